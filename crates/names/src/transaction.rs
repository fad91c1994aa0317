//! One operation on the name space: it reads, decides, and collects what is to change. Nothing has happened until the
//! manager commits what it collected, all of it in one batch; an operation that fails leaves nothing.

use crate::duplicates::Kept;
use crate::foreign::{Act, Foreign, Needs, Parts, Want, Write};
use crate::hashing::Hashed;
use crate::holds::Holds;
use crate::keys::{self, BucketId};
use crate::limits::CHANGES_BYTES_MAX;
use crate::locks::Locks;
use crate::opens::{Holder, Opens};
use crate::record::{DuplicateKey, FIRST_POSITION, Inode, Listed, Named, Site, Switching, Volume};
use crate::restoration::{Restoration, Restored};
use crate::servers::IoServer;
use crate::sites::Ownership;
use crate::unnamed::Unnamed;
use node::{Bug, Bugs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{Batch, Store};
use wire::field::{Field, encoded};
use wire::{Decoder, Errno, FileId, NodeId, Wall};

/// Bytes of a change in a batch beside key and value.
const CHANGE_BYTES: usize = 7;

/// Keys with their values.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A change of what the manager keeps in memory beside the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The client holds this of the file.
    Holder(FileId, u64, Holder),
    /// Objects are to be truncated to this length.
    Truncating(FileId, u64),
    /// They are, or the file is gone.
    Truncated(FileId),
    /// Objects are to be removed.
    Removed(FileId),
    /// They are, and what the store knew of them.
    ObjectsRemoved(FileId),
    /// A write session that is to be settled ended once more.
    Ended(FileId),
    /// A close of the client's, by its number.
    Closed(u64, u64),
    /// The client is dead.
    Expired(u64),
    /// The server gets nothing new, or does again.
    Retired(NodeId, bool),
    /// There is an import.
    Imported,
    /// Another share of new directories goes to the site of their hash.
    Switching(Switching),
    /// A restored volume is as any other from now on.
    Thawed,
    /// The row of one of its files, before and now.
    Restored(Option<Restored>, Option<Restored>),
    /// The answer for duplicates of a call is kept here.
    Answered(DuplicateKey, Kept),
}

/// What an operation wants to change.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Bytes that were written, what was written over among them.
    pub bytes: usize,
    pub effects: Vec<Effect>,
    /// What is done to files of other managers beside.
    pub acts: Vec<Act>,
    /// It was made before, by a call of another number.
    pub repeated: bool,
    /// What went with its last name.
    pub unnamed: Option<Unnamed>,
}

impl Changes {
    /// Takes out what is other managers', by manager.
    pub fn take_parts(&mut self, sites: &Ownership, now: Wall) -> Parts {
        let mut parts = Parts::new();
        let is_foreign = |key: &[u8]| keys::subject(key).is_some_and(|file| !sites.has(file));
        let foreign = self.writes.extract_if(.., |key, _| is_foreign(key));
        for (key, value) in foreign.collect::<Vec<_>>() {
            let write = Write { key: key.into(), value: value.map(Into::into) };
            let part = parts.entry(sites.manager(write.key[0])).or_default();
            part.writes.push(write);
        }
        for act in std::mem::take(&mut self.acts) {
            parts.entry(sites.manager(act.file().site())).or_default().acts.push(act);
        }
        parts.values_mut().for_each(|part| part.now = now);
        parts
    }

    pub fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in &self.writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        batch
    }
}

/// An operation under way.
pub struct Transaction<'a> {
    pub(crate) store: &'a Store,
    pub(crate) volume: &'a Volume,
    /// Those that get new files.
    pub(crate) servers: &'a [IoServer],
    /// Most columns of a new file.
    pub(crate) columns_max: usize,
    pub(crate) opens: &'a Opens,
    pub(crate) locks: &'a Locks,
    pub(crate) truncating: &'a BTreeMap<FileId, u64>,
    pub(crate) restoration: Restoration,
    /// Files without a name stay for now, for clients may still say that they have them open.
    pub(crate) keep_orphans: bool,
    pub(crate) bugs: Bugs,
    pub(crate) now: Wall,
    pub(crate) client: u64,
    pub(crate) sites: &'a Ownership,
    /// Hashed directories of which something is here.
    pub(crate) hashed: &'a Hashed,
    /// What operations over several managers hold here.
    pub(crate) holds: &'a Holds,
    /// What was fetched of other managers for this one.
    pub(crate) foreign: &'a Foreign,
    pub(crate) needs: RefCell<Needs>,
    pub(crate) changes: Changes,
}

/// Where a record is.
enum Source<'a> {
    /// In the store.
    Store,
    /// At another manager, where it was fetched from.
    Fetched(Option<&'a [u8]>),
}

impl Transaction<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        match self.changes.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => match self.source(key)? {
                Source::Store => self.store.get(key).map_err(|_| Errno::EIO),
                Source::Fetched(value) => Ok(value.map(<[u8]>::to_vec)),
            },
        }
    }

    /// Whether nothing can be at another manager or held by an operation of one.
    pub(crate) fn is_alone(&self) -> bool {
        self.sites.is_alone() && self.holds.is_empty()
    }

    /// Where the record is. EREMOTE, noted: it is to be fetched; EAGAIN, noted: it may be changing.
    fn source(&self, key: &[u8]) -> Result<Source<'_>, Errno> {
        if self.is_alone() {
            return Ok(Source::Store);
        }
        let Some(file) = keys::subject(key) else { return Ok(Source::Store) };
        if self.sites.has(file) {
            let is_blocked = self.holds.blocks(file, false);
            return match is_blocked && !self.bugs.has(Bug::PreparedShown) {
                false => Ok(Source::Store),
                true => {
                    self.needs.borrow_mut().blocked = Some(file);
                    Err(Errno::EAGAIN)
                }
            };
        }
        let want = Want::Record(key.into());
        match self.foreign.get(&want) {
            Some(got) => Ok(Source::Fetched(got.value.as_deref())),
            None => {
                self.needs.borrow_mut().wants.insert(want);
                Err(Errno::EREMOTE)
            }
        }
    }

    /// The file is about to change.
    fn note_change(&self, file: FileId) {
        if self.is_alone() {
            return;
        }
        let mut needs = self.needs.borrow_mut();
        match self.sites.has(file) {
            false => needs.strayed |= !self.foreign.has(file),
            true if self.holds.blocks(file, true) || self.sites.is_leaving(file.site()) => {
                needs.blocked = Some(file);
            }
            true => {}
        }
    }

    fn note_write(&self, key: &[u8]) {
        if let Some(file) = keys::subject(key).filter(|_| !self.is_alone()) {
            self.note_change(file);
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.note_write(&key);
        self.changes.bytes += CHANGE_BYTES + key.len() + value.len();
        self.changes.writes.insert(key, Some(value));
    }

    /// Writes the record as it is.
    pub(crate) fn repeat(&mut self, key: Vec<u8>) -> Result<(), Errno> {
        match self.get(&key)? {
            Some(value) => self.put(key, value),
            None => self.delete(key),
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.note_write(&key);
        self.changes.bytes += CHANGE_BYTES + key.len();
        self.changes.writes.insert(key, None);
    }

    /// Whether what concerns many files is to go on in another batch.
    pub(crate) fn is_full(&self) -> bool {
        self.changes.bytes >= CHANGES_BYTES_MAX
    }

    /// Ends it: what it lacked, and what it is to change.
    pub(crate) fn end(self) -> (Needs, Changes) {
        (self.needs.into_inner(), self.changes)
    }

    /// Does this to a file of another manager.
    pub(crate) fn act(&mut self, act: Act) {
        assert!(self.foreign.has(act.file()), "what is changed elsewhere is held there");
        self.changes.acts.push(act);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        if let Effect::Holder(file, ..) | Effect::Truncating(file, _) | Effect::Ended(file) = effect
        {
            self.note_change(file);
        }
        self.changes.effects.push(effect);
    }

    /// Records under `prefix` after `after`, at most `count`, as they were before this operation.
    pub(crate) fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        count: usize,
    ) -> Result<Records, Errno> {
        let end = keys::behind(prefix).ok_or(Errno::EIO)?;
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        self.store.range((start, Bound::Excluded(&end[..])), count).map_err(|_| Errno::EIO)
    }

    pub(crate) fn decoded<'b, T: Field<'b>>(bytes: &'b [u8]) -> Result<T, Errno> {
        T::take(&mut Decoder::new(bytes)).map_err(|_| Errno::EIO)
    }

    pub(crate) fn record<T: for<'b> Field<'b>>(&self, key: &[u8]) -> Result<Option<T>, Errno> {
        if let Some(value) = self.changes.writes.get(key) {
            return value.as_ref().map(|value| Self::decoded(value)).transpose();
        }
        let read = |value: Option<&[u8]>| value.map(Self::decoded).transpose();
        match self.source(key)? {
            Source::Store => self.store.get_with(key, read).map_err(|_| Errno::EIO)?,
            Source::Fetched(value) => read(value),
        }
    }

    /// The file; ESTALE when it is gone.
    pub(crate) fn inode(&self, file: FileId) -> Result<Inode, Errno> {
        self.record(&keys::inode(file))?.ok_or(Errno::ESTALE)
    }

    /// Writes the record of a file, or of a bucket.
    pub(crate) fn put_inode(&mut self, inode: &Inode) {
        if inode.attr.import().is_some() {
            self.effect(Effect::Imported);
        }
        let key = match inode.directory().and_then(|directory| directory.bucket) {
            Some(site) => keys::bucket(BucketId { directory: inode.attr.file, site }),
            None => keys::inode(inode.attr.file),
        };
        self.put(key, encoded(inode));
    }

    pub(crate) fn named(&self, place: BucketId, name: &[u8]) -> Result<Option<Named>, Errno> {
        self.record(&keys::name(place, name))
    }

    /// The entry of a name that keeps or takes over a position.
    pub(crate) fn put_name(&mut self, place: BucketId, name: &[u8], named: Named) {
        let listed = Listed { file: named.file, kind: named.kind, name: name.into() };
        self.put(keys::name(place, name), encoded(&named));
        self.put(keys::position(place, named.position), encoded(&listed));
    }

    /// A new name in `directory`, at a new position; the caller puts the directory.
    pub(crate) fn insert_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        file: FileId,
        kind: wire::FileKind,
    ) {
        let place = directory.place();
        directory.touch_contents(self.now);
        let content = directory.directory_mut().expect("names are made in directories");
        let position = match self.bugs.has(Bug::UnstableCookies) {
            false => content.next_position,
            true => content.entries + FIRST_POSITION,
        };
        assert!(content.entries < content.next_position, "each name has a position of its own");
        content.next_position += 1;
        content.entries += 1;
        self.put_name(place, name, Named { file, kind, position });
    }

    /// Gives the entry another name of the same directory, which it has not yet. It keeps its position: a listing shows
    /// it once, by the one name or the other. The caller puts the directory.
    pub(crate) fn change_name(
        &mut self,
        directory: &mut Inode,
        (from, to): (&[u8], &[u8]),
        named: Named,
    ) {
        let place = directory.place();
        directory.touch_contents(self.now);
        if !self.bugs.has(Bug::SourceNameKept) {
            self.delete(keys::name(place, from));
        }
        self.put_name(place, to, named);
    }

    /// Takes a name out of `directory`; the caller puts the directory.
    pub(crate) fn delete_name(&mut self, directory: &mut Inode, name: &[u8], position: u64) {
        let place = directory.place();
        directory.touch_contents(self.now);
        let content = directory.directory_mut().expect("names are in directories");
        assert!(content.entries > 0, "a name that goes was counted");
        content.entries -= 1;
        self.delete(keys::name(place, name));
        self.delete(keys::position(place, position));
    }

    /// An identifier that no file ever had.
    pub(crate) fn new_file(&mut self, site: u8) -> Result<FileId, Errno> {
        if !self.sites.owns(site) {
            return self.new_foreign_file(site);
        }
        // No number of a site that is on its way: its counter has gone.
        self.note_change(FileId::new(site, 0));
        let counters: Option<Site> = self.record(&keys::site(site))?;
        if counters.is_none() && self.volume.base > 0 {
            self.put(keys::passed(site, self.volume.base), encoded(&0u64));
        }
        let first = Site { serial: self.volume.base, files: 0 };
        let mut counters = counters.unwrap_or(first);
        counters.serial += 1;
        counters.files += 1;
        self.put(keys::site(site), encoded(&counters));
        Ok(FileId::new(site, counters.serial))
    }

    /// The same where the site is another manager's, which has given out a number.
    fn new_foreign_file(&mut self, site: u8) -> Result<FileId, Errno> {
        let want = Want::Serial(site);
        let Some(got) = self.foreign.get(&want) else {
            self.needs.borrow_mut().wants.insert(want);
            return Err(Errno::EREMOTE);
        };
        let file = got.file().ok_or(Errno::EIO)?;
        self.act(Act::Count(file));
        Ok(file)
    }

    /// A serial number of the site that nobody else gets, whatever becomes of it.
    pub(crate) fn reserve(&mut self, site: u8) -> Result<FileId, Errno> {
        let file = self.new_file(site)?;
        self.count_files(site, -1)?;
        Ok(file)
    }

    pub(crate) fn count_files(&mut self, site: u8, change: i64) -> Result<(), Errno> {
        let mut counters: Site = self.record(&keys::site(site))?.unwrap_or_default();
        counters.files = counters.files.saturating_add_signed(change);
        self.put(keys::site(site), encoded(&counters));
        Ok(())
    }

    /// Files of the volume.
    pub fn files(&self) -> Result<u64, Errno> {
        let count = |site| Ok(self.record::<Site>(&keys::site(site))?.unwrap_or_default().files);
        (0..=u8::MAX).map(count).sum()
    }

    /// The answer to a call that was executed before; ECANCELED when the slot has gone on since.
    pub(crate) fn answered(&self, call: &CallName) -> Result<Option<Box<[u8]>>, Errno> {
        let key = keys::answer(call.site, self.client, call.slot);
        let Some(answered) = self.record::<crate::record::Answered>(&key)? else {
            return Ok(None);
        };
        match answered.sequence.cmp(&call.sequence) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => Ok(Some(answered.reply)),
            std::cmp::Ordering::Greater => Err(Errno::ECANCELED),
        }
    }
}

/// Names a call of a client for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallName {
    /// The site of the file that the call is about.
    pub site: u8,
    /// One of the client's slots: it has one call at a time.
    pub slot: u16,
    /// Grows from call to call of a slot.
    pub sequence: u32,
    /// Duplicates of it come under other names: over another client, after a restart of that.
    pub duplicates: Option<DuplicateKey>,
    /// It may change files of imports.
    pub imports: bool,
}
