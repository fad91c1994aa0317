//! Changing attributes (RFC 1813 section 3.3.2), with the rules of chmod(2), chown(2), utimensat(2), truncate(2).
//!
//! A change of length takes three steps: [`prepare_truncation`](Transaction::prepare_truncation) makes it durable that
//! it is to happen, the service then truncates every object, [`Transaction::truncated`] ends it. A restart between
//! them finds the record and does the objects again.

use crate::keys;
use crate::lookup::Entry;
use crate::permissions::{WRITE, Who, without_set_id};
use crate::record::Inode;
use crate::transaction::{Effect, Transaction};
use wire::field::encoded;
use wire::layout::column_mask;
use wire::{Errno, FileId, FileKind, SetAttr, SetTime, Wall};

const NANOS_PER_SECOND: u32 = 1_000_000_000;

impl Transaction<'_> {
    /// Changes everything but the length.
    pub fn set_attr(
        &mut self,
        who: &Who<'_>,
        file: FileId,
        changes: &SetAttr,
    ) -> Result<Entry, Errno> {
        let inode = self.inode(file)?;
        if *changes == SetAttr::default() || keeps_set_id(who, &inode, changes) {
            return Ok(self.entry_of(&inode));
        }
        check_changes(who, &inode, changes)?;
        let now = self.now;
        self.change_everywhere(inode, |inode| apply(who, inode, changes, now))
    }

    /// Changes attributes with the length among them. `opened` says that the caller does it through an open file,
    /// which counts when this client has a write session. Whether objects must be truncated comes with the entry.
    pub fn prepare_truncation(
        &mut self,
        who: &Who<'_>,
        file: FileId,
        changes: &SetAttr,
        opened: bool,
    ) -> Result<(Entry, bool), Errno> {
        let size = changes.size.ok_or(Errno::EINVAL)?;
        let mut inode = self.inode(file)?;
        match inode.attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        let writes = self.opens.get(file, self.client).session.writers > 0;
        if !(opened && writes) {
            who.check(&inode.attr, WRITE)?;
        }
        if inode.regular().is_some_and(|regular| size > regular.layout.size_max()) {
            return Err(Errno::EFBIG);
        }
        check_changes(who, &inode, changes)?;
        let asked = self.begin_truncation(&mut inode, size)?;
        if !who.may_all() {
            inode.attr.mode = without_set_id(inode.attr.mode);
        }
        self.apply(who, &mut inode, changes);
        if changes.mtime.is_none() {
            inode.attr.mtime = self.now;
        }
        inode.touch(self.now);
        self.put_inode(&inode);
        Ok((self.entry_of(&inode), asked))
    }

    /// Raises the truncate generation. A file that never had objects needs none for a length of 0.
    fn begin_truncation(&mut self, inode: &mut Inode, size: u64) -> Result<bool, Errno> {
        let file = inode.attr.file;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        if !regular.has_objects && size == 0 {
            return Ok(false);
        }
        regular.truncations = regular.truncations.checked_add(1).ok_or(Errno::EOVERFLOW)?;
        regular.has_objects = true;
        inode.attr.size = size;
        inode.attr.used = inode.attr.used.min(size);
        self.put(keys::truncation(file), encoded(&size));
        self.effect(Effect::Truncating(file, size));
        self.share_sessions(file);
        Ok(true)
    }

    /// Every object has the new length and generation, those that were missing too.
    pub fn truncated(&mut self, file: FileId) -> Result<(), Errno> {
        self.delete(keys::truncation(file));
        self.effect(Effect::Truncated(file));
        match self.inode(file) {
            Err(Errno::ESTALE) => Ok(()),
            inode => {
                let width = inode?.regular().map_or(0, |regular| regular.layout.width());
                self.note_present(file, column_mask(0..width))
            }
        }
    }

    /// These columns of the file have objects.
    pub fn note_present(&mut self, file: FileId, columns: u32) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        if regular.present | columns != regular.present {
            regular.present |= columns;
            self.put_inode(&inode);
        }
        Ok(())
    }

    /// These columns of these files have objects, as far as they are still open for writing: all others have told.
    pub fn note_all_present(&mut self, files: &[(FileId, u32)]) -> Result<(), Errno> {
        for (file, columns) in files {
            let is_open = self.opens.holders(*file).any(|(_, holder)| holder.session.writers > 0);
            match is_open.then(|| self.note_present(*file, *columns)) {
                None | Some(Err(Errno::ESTALE)) => {}
                Some(noted) => noted?,
            }
        }
        Ok(())
    }

    fn apply(&self, who: &Who<'_>, inode: &mut Inode, changes: &SetAttr) {
        apply(who, inode, changes, self.now);
    }
}

/// Makes changes that were checked, but for the length.
pub(crate) fn apply(who: &Who<'_>, inode: &mut Inode, changes: &SetAttr, now: Wall) {
    let attr = &mut inode.attr;
    attr.uid = changes.uid.unwrap_or(attr.uid);
    attr.gid = changes.gid.unwrap_or(attr.gid);
    if let Some(mode) = changes.mode {
        attr.mode = who.permitted_mode(mode & 0o7777, attr.gid);
    }
    let chowned = changes.uid.is_some() || changes.gid.is_some();
    if (chowned || changes.clear_set_id) && attr.kind != FileKind::Directory {
        attr.mode = without_set_id(attr.mode);
    }
    let time = |time| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    attr.atime = changes.atime.map_or(attr.atime, time);
    let Some(mtime) = changes.mtime else { return };
    attr.mtime = time(mtime);
    if let Some(regular) = inode.regular_mut() {
        regular.mtime_set = now;
    }
}

/// Whether these changes are to be prepared, because the objects must be asked.
pub(crate) fn is_truncation(changes: &SetAttr) -> bool {
    changes.size.is_some()
}

/// Whether the only change is to clear set-id bits, by a user who may not change the mode; it is ignored then. A kernel
/// that checks permissions itself asks so for a chown to the present owner, which changes nothing, and before a write,
/// which asks again.
fn keeps_set_id(who: &Who<'_>, inode: &Inode, changes: &SetAttr) -> bool {
    let alone = SetAttr { clear_set_id: true, ..SetAttr::default() };
    *changes == alone && !who.is_root() && who.uid != inode.attr.uid
}

/// Whether the caller may make these changes.
pub(crate) fn check_changes(who: &Who<'_>, inode: &Inode, changes: &SetAttr) -> Result<(), Errno> {
    let attr = &inode.attr;
    if changes.mode.is_some() {
        who.check_owner(attr)?;
    }
    if let Some(uid) = changes.uid {
        let stays = uid == attr.uid && who.uid == attr.uid;
        if !who.may_all() && !stays {
            return Err(Errno::EPERM);
        }
    }
    if let Some(gid) = changes.gid {
        let own = who.uid == attr.uid && (gid == attr.gid || who.in_group(gid));
        if !who.may_all() && !own {
            return Err(Errno::EPERM);
        }
    }
    check_times(who, inode, changes)
}

/// The owner sets any time, a user who may write the present one.
fn check_times(who: &Who<'_>, inode: &Inode, changes: &SetAttr) -> Result<(), Errno> {
    let times = || [changes.atime, changes.mtime].into_iter().flatten();
    let nonsense = |time| matches!(time, SetTime::To(Wall { nanos: NANOS_PER_SECOND.., .. }));
    if times().any(nonsense) {
        return Err(Errno::EINVAL);
    }
    if times().next().is_none() || who.owns(&inode.attr) {
        return Ok(());
    }
    // utimensat(2): write permission is enough to set both to now, never to set one alone or another time.
    if times().all(|time| time == SetTime::Now) && times().count() == 2 {
        return who.check(&inode.attr, WRITE);
    }
    // A truncation by a user with write permission carries its own modification time.
    if changes.size.is_some() && times().all(|time| time == SetTime::Now) {
        return Ok(());
    }
    Err(Errno::EPERM)
}
