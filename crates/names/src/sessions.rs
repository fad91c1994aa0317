//! Opens and write sessions: who may be changing a file's length, and how the manager learns the outcome.
//!
//! While a client has a write session, length and modification time in the inode are hints. They become exact when the
//! session ends: by the client's own final values when it was the only writer all the time, else by what the objects
//! say (`settling`).

use crate::keys;
use crate::limits::CHANGES_MAX;
use crate::lookup::Entry;
use crate::opens::Holder;
use crate::permissions::{Who, without_set_id};
use crate::record::{Inode, Reader, Session};
use crate::transaction::{Effect, Transaction};
use node::Bug;
use wire::field::{encoded, fields};
use wire::{Errno, FileId, Wall};

/// The last writer's knowledge of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Final {
    /// Length in bytes.
    pub size: u64,
    /// When it was last written; what was written earlier than a time set by hand does not replace that.
    pub mtime: Wall,
    /// Bytes of storage; `None` when the writer does not know.
    pub used: Option<u64>,
    /// The truncate generation that the length is of.
    pub truncations: u32,
    /// Columns that have objects, a bit for each: all of them, or those that this writer wrote to.
    pub present: u32,
}
fields!(Final { size, mtime, used, truncations, present });

/// An open that a client had when the manager restarted or took it for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The file.
    pub file: FileId,
    /// How often it is open for reading only.
    pub readers: u32,
    /// How often it is open for writing.
    pub writers: u32,
}
fields!(Claim { file, readers, writers });

impl Transaction<'_> {
    /// This client opens the file; whether the inode changed.
    pub(crate) fn hold(&mut self, inode: &mut Inode, who: &Who<'_>, write: bool) -> bool {
        let (file, client) = (inode.attr.file, self.client);
        let mut holder = self.opens.get(file, client);
        if !write || inode.regular().is_none() {
            holder.readers += 1;
            self.set_holder(inode, client, holder);
            return false;
        }
        if std::mem::take(&mut holder.settling) {
            // The ended session is not settled yet: this one goes on with it, and is settled in its stead.
            holder.session = Session { writers: 0, shared: true, ..holder.session };
        }
        holder.session.writers += 1;
        // A mount's kernel says of each write whether they go.
        holder.session.unprivileged |= !who.may_all();
        let mut others = self.opens.holders(file).filter(|(other, _)| *other != client);
        if others.any(|(_, other)| other.session.writers > 0) {
            holder.session.shared = true;
            self.share_sessions(file);
        }
        self.set_holder(inode, client, holder);
        let objects = inode.regular_mut().map(|regular| &mut regular.has_objects);
        objects.is_some_and(|objects| !std::mem::replace(objects, true))
    }

    /// No other client that has a write session knows the final length any more.
    pub(crate) fn share_sessions(&mut self, file: FileId) {
        let others: Vec<_> = self.opens.holders(file).collect();
        for (client, holder) in others {
            let session = Session { shared: true, ..holder.session };
            if client != self.client && holder.session.writers > 0 && session != holder.session {
                self.put(keys::session(file, client), encoded(&session));
                self.effect(Effect::Holder(file, client, Holder { session, ..holder }));
            }
        }
    }

    /// Records what `client` holds from now on.
    fn set_holder(&mut self, inode: &Inode, client: u64, holder: Holder) {
        let file = inode.attr.file;
        let before = self.opens.get(file, client);
        if holder.session.writers == 0 && before.session.writers > 0 {
            self.delete(keys::session(file, client));
        } else if holder.session != before.session && !self.bugs.has(Bug::SessionNotLogged) {
            self.put(keys::session(file, client), encoded(&holder.session));
        }
        self.effect(Effect::Holder(file, client, holder));
        if inode.attr.links == 0 && holder.readers != before.readers {
            self.put_orphan_with(file, client, holder.readers);
        }
    }

    pub(crate) fn put_orphan(&mut self, file: FileId) {
        let own = self.opens.get(file, self.client).readers;
        self.put_orphan_with(file, self.client, own);
    }

    fn put_orphan_with(&mut self, file: FileId, client: u64, count: u32) {
        let others = self.opens.holders(file).filter(|(other, _)| *other != client);
        let readers = others.map(|(client, holder)| Reader { client, count: holder.readers });
        let readers = readers.chain([Reader { client, count }]).filter(|reader| reader.count > 0);
        let readers: Vec<Reader> = readers.collect();
        self.put(keys::orphan(file), encoded(&readers));
    }

    /// This client closes the file: `outcome` for a write session, none for an open for reading. A close of what the
    /// manager does not know as open is no error: the lease may have ended in between.
    ///
    /// The file as it is then is returned, when the manager knows: it does not while others write, or when the objects
    /// must be asked first.
    pub fn close(&mut self, file: FileId, outcome: Option<Final>) -> Result<Option<Entry>, Errno> {
        let settles = self.end_open(file, outcome)?;
        match self.inode(file) {
            Err(Errno::ESTALE) => Ok(None),
            inode => Ok(Some(self.entry_of(&inode?)).filter(|entry| !settles && !entry.is_hint())),
        }
    }

    /// As [`close`](Transaction::close), once for each number that the client gives its closes: one that was not
    /// answered comes again by another call, while the first may still be on its way. ECANCELED when the client has
    /// begun meanwhile to say what it has open, whether that was done or not: it closes anew.
    pub fn close_once(
        &mut self,
        file: FileId,
        outcome: Option<Final>,
        number: u64,
    ) -> Result<Option<Entry>, Errno> {
        if self.opens.has_closed(self.client, number) {
            self.changes.repeated = true;
            return Ok(None);
        }
        if self.opens.has_ended_close(self.client, number) {
            return Err(Errno::ECANCELED);
        }
        let entry = self.close(file, outcome)?;
        self.effect(Effect::Closed(self.client, number));
        Ok(entry)
    }

    /// Whether the session is to be settled.
    fn end_open(&mut self, file: FileId, outcome: Option<Final>) -> Result<bool, Errno> {
        let mut inode = match self.inode(file) {
            Err(Errno::ESTALE) => return Ok(false),
            inode => inode?,
        };
        let mut holder = self.opens.get(file, self.client);
        let Some(outcome) = outcome else {
            holder.readers = holder.readers.saturating_sub(1);
            self.release(inode, self.client, holder)?;
            return Ok(false);
        };
        if holder.settling {
            // The objects may have been asked before this client wrote last.
            self.effect(Effect::Ended(file));
            return Ok(true);
        }
        if holder.session.writers == 0 {
            // Its session ended without it, as when the answer to its open was lost with an earlier incarnation of the
            // manager: what it wrote since is known to the objects only.
            holder.session = Session { writers: 1, shared: true, ..holder.session };
            self.set_holder(&inode, self.client, holder);
        }
        let unsure = holder.session.shared || holder.restored;
        let inexact = unsure || self.is_cut(&inode, outcome);
        let last = holder.session.writers == 1;
        if last && inode.attr.links > 0 && inexact {
            self.effect(Effect::Holder(file, self.client, Holder { settling: true, ..holder }));
            return Ok(true);
        }
        let exact = !inexact && !self.bugs.has(Bug::LostSizeUpdate);
        if exact && self.adopt(&mut inode, holder.session, outcome) {
            self.put_inode(&inode);
        }
        assert!(holder.session.writers > 0, "a session that ends has a writer");
        holder.session.writers -= 1;
        if last {
            (holder.session, holder.restored) = (Session::default(), false);
        }
        self.release(inode, self.client, holder)?;
        Ok(false)
    }

    /// Whether the file is being truncated, or was since the writer knew its length.
    fn is_cut(&self, inode: &Inode, outcome: Final) -> bool {
        let older = inode.regular().is_some_and(|now| outcome.truncations != now.truncations);
        let older = older && !self.bugs.has(Bug::LengthBeforeCutAdopted);
        older || self.truncating.contains_key(&inode.attr.file)
    }

    /// Ends a session without final values by those of the objects.
    pub fn settle(&mut self, file: FileId, client: u64, totals: Final) -> Result<(), Errno> {
        let holder = self.opens.get(file, client);
        if !holder.settling {
            return Ok(());
        }
        let mut inode = match self.inode(file) {
            Err(Errno::ESTALE) => {
                self.delete(keys::session(file, client));
                self.effect(Effect::Holder(file, client, Holder::default()));
                return Ok(());
            }
            inode => inode?,
        };
        if self.adopt(&mut inode, holder.session, totals) {
            self.put_inode(&inode);
        }
        let rest = Holder { readers: holder.readers, ..Holder::default() };
        self.release(inode, client, rest)
    }

    /// The opens of `client` that remain; an orphan without any goes.
    fn release(&mut self, inode: Inode, client: u64, holder: Holder) -> Result<(), Errno> {
        let file = inode.attr.file;
        self.set_holder(&inode, client, holder);
        let mut others = self.opens.holders(file).filter(|(other, _)| *other != client);
        let unused = holder.is_empty() && others.next().is_none();
        drop(others);
        if inode.attr.links == 0 && unused && !self.keep_orphans {
            return self.forget(&inode);
        }
        Ok(())
    }

    /// Takes over what a writer or the objects know; whether there is something to keep.
    ///
    /// The change version moves even when no attribute does: the clock of who wrote may be behind, and others must
    /// see that what they hold is old.
    fn adopt(&self, inode: &mut Inode, session: Session, outcome: Final) -> bool {
        let before = inode.attr;
        let Some(regular) = inode.regular_mut() else { return false };
        regular.present |= outcome.present;
        let by_hand = regular.mtime_set != Wall::default();
        let newer = match by_hand {
            true => outcome.mtime > regular.mtime_set,
            false => outcome.mtime > before.mtime,
        };
        if newer {
            regular.mtime_set = Wall::default();
            inode.attr.mtime = outcome.mtime;
            inode.attr.ctime = before.ctime.max(outcome.mtime);
            if session.unprivileged {
                inode.attr.mode = without_set_id(inode.attr.mode);
            }
        }
        inode.attr.size = outcome.size;
        inode.attr.used = outcome.used.unwrap_or(before.used);
        inode.attr.change += 1;
        true
    }

    /// A client is dead: what it had open for reading is closed, its write sessions wait to be settled. No more files
    /// at once than a batch takes; whether that was all, and the client is forgotten.
    pub fn expire(&mut self, client: u64) -> Result<bool, Errno> {
        let held = self.opens.files_of(client);
        let open = |file: &FileId| !self.opens.get(*file, client).settling;
        let files: Vec<FileId> = held.into_iter().filter(open).collect();
        if !self.abandon_all(&files, client)? {
            return Ok(false);
        }
        self.delete(keys::client(client));
        for site in 0..=u8::MAX {
            for (key, _) in self.scan(&keys::answers(site, client), None, usize::MAX)? {
                self.delete(key);
            }
        }
        self.effect(Effect::Expired(client));
        Ok(true)
    }

    /// `client` no longer has these files open, and cannot say how it left them. Whether all of them fitted in a batch.
    pub(crate) fn abandon_all(&mut self, files: &[FileId], client: u64) -> Result<bool, Errno> {
        for (at, file) in files.iter().enumerate() {
            if at == CHANGES_MAX || self.is_full() {
                return Ok(false);
            }
            self.abandon(*file, client)?;
        }
        Ok(true)
    }

    fn abandon(&mut self, file: FileId, client: u64) -> Result<(), Errno> {
        let holder = self.opens.get(file, client);
        let inode = match self.inode(file) {
            Err(Errno::ESTALE) => {
                self.effect(Effect::Holder(file, client, Holder::default()));
                return Ok(());
            }
            inode => inode?,
        };
        if holder.session.writers > 0 && inode.attr.links > 0 {
            let settling = Holder { readers: 0, settling: true, ..holder };
            self.set_holder(&inode, client, settling);
            return Ok(());
        }
        self.release(inode, client, Holder::default())
    }

    /// This client says again what it has open of one file.
    pub fn claim(&mut self, who: &Who<'_>, claim: Claim) -> Result<(), Errno> {
        let mut inode = match self.inode(claim.file) {
            Err(Errno::ESTALE) => return Ok(()),
            inode => inode?,
        };
        let mut holder = self.opens.get(claim.file, self.client);
        let known = holder.session.writers > 0;
        holder.readers = claim.readers;
        if claim.writers > 0 && !known {
            // The session had ended: whatever was written since, the objects know better.
            self.hold(&mut inode, who, true);
            self.put_inode(&inode);
            holder.session = Session { shared: true, unprivileged: true, writers: claim.writers };
        } else if claim.writers > 0 {
            holder.session.writers = claim.writers;
        } else if known {
            holder.settling = true;
        }
        holder.settling &= claim.writers == 0;
        self.set_holder(&inode, self.client, holder);
        Ok(())
    }
}
