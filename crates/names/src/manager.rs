//! The manager: one volume's name space over a store, a single writer without a clock, a wait or a system call.
//!
//! Every operation is a [`Transaction`]; [`Manager::change`] commits it as one batch and hands out the log record,
//! which must be appended before the answer is sent. The state in memory beside the store (opens, clients, truncations
//! under way) can be made again from it, but for locks and for opens for reading: their clients reclaim them.

use crate::changed::Changed;
use crate::duplicates::Duplicates;
use crate::foreign::{Foreign, Parts, Stop};
use crate::grace::Grace;
use crate::hashing::Hashed;
use crate::holds::{Holds, Tx};
use crate::keys::{self, BucketId, Table};
use crate::limits::DUPLICATES_MAX;
use crate::listings::Listings;
use crate::locks::Locks;
use crate::open_error::{OpenError, damaged};
use crate::opens::{Holder, Opens};
use crate::protocol::Point;
use crate::record::{
    Answered, FORMAT, FORMAT_SHARED, Incarnation, Participants, Policy, PreparedPart, Reader,
    Session, Volume,
};
use crate::restoration::Restoration;
use crate::servers::IoServer;
use crate::sites::Ownership;
use crate::transaction::{CallName, Changes, Effect, Records, Transaction};
use node::{Bug, Bugs};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use store::{Append, Store};
use wire::field::encoded;
use wire::layout::WIDTH_MAX;
use wire::{Errno, FileId, NodeId, Time, VolumeId, Wall};

/// Kind and version of a store of names, for [`store::Config`].
pub const STORE: store::Format = store::Format { kind: "names", version: FORMAT };

/// Settings of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Its id.
    pub volume: VolumeId,
    /// Of 1000 new directories so many go to the site of their hash.
    pub switch_per_mille: u16,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Mode of the root directory.
    pub mode: u32,
    /// How files are striped where no directory says otherwise.
    pub policy: Policy,
}

impl VolumeSettings {
    /// The defaults: root's, open to all to read, striped over all servers.
    pub fn new(volume: VolumeId) -> VolumeSettings {
        let policy = Policy::default();
        VolumeSettings { volume, switch_per_mille: 100, owner: (0, 0), mode: 0o755, policy }
    }
}

/// The client that asks for a change, and the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The client's incarnation; 0 is the manager itself.
    pub client: u64,
    /// Wall-clock time.
    pub now: Wall,
}

/// The manager's state of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub heard: Time,
    /// Given anew when the manager starts or has taken the client for dead.
    pub registration: u64,
    /// The change that made it known to the store.
    pub durable: Option<u64>,
}

/// Outcome of a call that must not be executed twice.
#[derive(Debug)]
pub struct Once {
    /// The answer.
    pub reply: Vec<u8>,
    /// The record to append before it is sent.
    pub append: Option<Append>,
    /// It was executed before: its record, posted then, may still be on its way to the log.
    pub repeated: bool,
}

/// One volume's name space.
///
/// Getters: [`read`](Manager::read), [`store`](Manager::store). Commands: [`change`](Manager::change),
/// [`hear`](Manager::hear), [`set_servers`](Manager::set_servers). Due work: [`expired`](Manager::expired),
/// [`opens`](Manager::opens), [`truncating`](Manager::truncating), [`removing`](Manager::removing).
pub struct Manager {
    pub(crate) store: Store,
    pub(crate) volume: Volume,
    /// The store is empty yet.
    pub(crate) is_new: bool,
    /// The last change in the store when it was opened.
    pub(crate) found: u64,
    /// The store was made or restored, so that it goes on as a lineage above all that servers know of.
    pub(crate) outbids: bool,
    /// The I/O servers as they were told.
    pub(crate) told_servers: Vec<IoServer>,
    /// Active I/O servers, and those of them that get new files.
    pub(crate) servers: Vec<IoServer>,
    pub(crate) open_servers: Vec<IoServer>,
    /// Most columns of a new file.
    pub(crate) columns_max: usize,
    /// Those that are told how far the store is, where they are others.
    pub(crate) witnesses: Option<Vec<NodeId>>,
    pub(crate) retired: BTreeSet<NodeId>,
    pub(crate) opens: Opens,
    pub(crate) truncating: BTreeMap<FileId, u64>,
    pub(crate) removing: BTreeSet<FileId>,
    pub(crate) restoration: Restoration,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) grace: Grace,
    pub(crate) registrations: u64,
    /// Of clients that are saying again what they hold: what they have not mentioned yet.
    pub(crate) suspects: BTreeMap<u64, BTreeSet<FileId>>,
    /// Answers to calls that changed only what is in memory, by client, site and slot.
    pub(crate) recent: BTreeMap<(u64, u8, u16), Answered>,
    /// Calls whose duplicates get the answer of the first.
    pub(crate) duplicates: Duplicates,
    /// Locks, which are only in memory.
    pub locks: Locks,
    /// The latest incarnations by their numbers, this one last.
    pub(crate) incarnations: BTreeMap<u32, Incarnation>,
    /// Files that changed, whose objects are to be told.
    pub(crate) changed: Changed,
    /// Planted bugs; none outside of tests of the checkers.
    pub(crate) bugs: Bugs,
    pub(crate) sites: Ownership,
    /// Parts of directories that clients may have kept.
    pub(crate) listings: Listings,
    /// Hashed directories of which it has buckets.
    pub(crate) hashed: Hashed,
    /// Files that operations over several managers hold here.
    pub(crate) holds: Holds,
    /// Parts of other managers' operations that are not decided yet, as far as is known here.
    pub(crate) prepared: BTreeMap<Tx, PreparedPart>,
    /// Operations that were decided here, until all parts are done.
    pub(crate) decided: BTreeMap<Tx, Participants>,
    /// Fetched records of an operation that is all here: none.
    nothing: Foreign,
}

/// An operation over several managers as it would be committed now.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub reply: Vec<u8>,
    /// Its changes at this manager.
    pub changes: Changes,
    /// Its changes at others.
    pub parts: Parts,
    /// It was executed before.
    pub repeated: bool,
}

impl Manager {
    /// Over a store that was opened with [`STORE`]; an empty one becomes the volume of `settings`. The record returned
    /// must be on stable storage before anybody is told of a change. `incarnation` must differ from that of every
    /// earlier manager of the volume; `now` is when
    /// leases begin.
    pub fn open(
        store: Store,
        settings: &VolumeSettings,
        wall: Wall,
        now: Time,
        incarnation: u64,
    ) -> Result<(Manager, Option<Append>), OpenError> {
        let sites = Ownership::new(NodeId(0), NodeId(0));
        let mut manager = Manager::load(store, settings, sites, now, incarnation)?;
        let append = manager.begin_incarnation(settings, wall, incarnation, 0, true)?;
        Ok((manager, Some(append)))
    }

    /// As [`open`](Manager::open), without a change: what is in the store can be read, and
    /// [`begin_incarnation`](Manager::begin_incarnation) is to come first of all changes.
    pub fn load(
        store: Store,
        settings: &VolumeSettings,
        sites: Ownership,
        now: Time,
        incarnation: u64,
    ) -> Result<Manager, OpenError> {
        let volume = Volume {
            format: if sites.is_alone() { FORMAT } else { FORMAT_SHARED },
            volume: settings.volume,
            switch_per_mille: settings.switch_per_mille,
            base: 0,
            lineage: 0,
            store: 0,
            // Servers may know of another store: of what they have of its files this one knows nothing.
            outbids: true,
            frozen: false,
        };
        let mut manager = Manager {
            found: store.sequence(),
            store,
            volume,
            is_new: true,
            outbids: true,
            told_servers: Vec::new(),
            servers: Vec::new(),
            open_servers: Vec::new(),
            columns_max: WIDTH_MAX,
            witnesses: None,
            retired: BTreeSet::new(),
            opens: Opens::default(),
            truncating: BTreeMap::new(),
            removing: BTreeSet::new(),
            restoration: Restoration::default(),
            clients: BTreeMap::new(),
            grace: Grace::default(),
            registrations: incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            suspects: BTreeMap::new(),
            recent: BTreeMap::new(),
            duplicates: Duplicates::new(DUPLICATES_MAX),
            locks: Locks::default(),
            incarnations: BTreeMap::new(),
            changed: Changed::default(),
            bugs: Bugs::everywhere(),
            sites,
            listings: Listings::default(),
            hashed: Hashed::default(),
            holds: Holds::default(),
            prepared: BTreeMap::new(),
            decided: BTreeMap::new(),
            nothing: Foreign::default(),
        };
        let Some(bytes) = manager.store.get(&keys::volume())? else { return Ok(manager) };
        manager.volume = damaged(&keys::volume(), &bytes)?;
        (manager.is_new, manager.outbids) = (false, manager.volume.outbids);
        manager.check_volume(settings.volume)?;
        manager.load_tables(now)?;
        Ok(manager)
    }

    /// The number of the present incarnation.
    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnations.last_key_value().map_or(0, |(incarnation, _)| *incarnation)
    }

    /// The present point of this incarnation.
    pub(crate) fn point(&self) -> Point {
        Point { incarnation: self.incarnation(), change: self.store.sequence() }
    }

    /// Whether the changes up to this point are known to be in the store: a power cut may have taken the last ones of
    /// an incarnation.
    pub(crate) fn has(&self, point: Point) -> bool {
        match self.incarnations.get(&point.incarnation.saturating_add(1)) {
            Some(next) => point.change <= next.before,
            None => point.incarnation == self.incarnation(),
        }
    }

    fn check_volume(&self, wanted: VolumeId) -> Result<(), OpenError> {
        let Volume { format, volume, .. } = self.volume;
        if !self.volume.is_known() {
            return Err(OpenError::Format { found: format });
        }
        if volume != wanted {
            return Err(OpenError::Volume { found: volume.0, wanted: wanted.0 });
        }
        Ok(())
    }

    /// For how many seconds the volume had a manager when that was last written down.
    pub(crate) fn uptime(&self) -> Result<u64, Errno> {
        let seconds = self.read(0, |t| t.get(&keys::uptime()))?;
        seconds.map_or(Ok(0), |seconds| Transaction::decoded(&seconds))
    }

    /// Makes again what is in memory.
    fn load_tables(&mut self, now: Time) -> Result<(), OpenError> {
        for (key, _) in self.table(0, Table::Client)? {
            let client = keys::number_at(&key, 2).ok_or(OpenError::Damaged { key })?;
            self.grace.await_all(client);
            self.registrations = self.registrations.wrapping_add(1);
            let registration = self.registrations;
            self.clients.insert(client, Client { heard: now, registration, durable: Some(0) });
        }
        for (key, value) in self.table(0, Table::Incarnation)? {
            let incarnation = keys::incarnation_of(&key).ok_or(OpenError::Damaged { key })?;
            self.incarnations
                .insert(incarnation, damaged(&keys::incarnation(incarnation), &value)?);
        }
        self.retired = self
            .read(0, |t| t.retired())
            .map_err(|_| OpenError::Damaged { key: keys::table(0, Table::Retired) })?;
        self.load_owners()?;
        self.load_switching()?;
        self.load_operations()?;
        for site in (0..=u8::MAX).filter(|site| self.sites.owns(*site)).collect::<Vec<_>>() {
            self.load_site(site, now)?;
        }
        Ok(())
    }

    /// Makes again what is in memory of a site.
    pub(crate) fn load_site(&mut self, site: u8, now: Time) -> Result<(), OpenError> {
        for (key, value) in self.table(site, Table::Session)? {
            let session: Session = damaged(&key, &value)?;
            let client = keys::number_at(&key, keys::ABOUT_BYTES).unwrap_or_default();
            // Of a client that was dead already, the objects know how it left the file.
            let settling = !self.grace.awaits(client);
            let holder = Holder { readers: 0, session, settling, restored: true };
            self.opens.set(key_file(&key)?, client, holder);
        }
        for (key, value) in self.table(site, Table::Orphan)? {
            self.load_orphan(key_file(&key)?, damaged(&key, &value)?, now);
        }
        for (key, value) in self.table(site, Table::Truncation)? {
            self.truncating.insert(key_file(&key)?, damaged(&key, &value)?);
        }
        for (key, _) in self.table(site, Table::Removed)? {
            self.removing.insert(key_file(&key)?);
        }
        for (key, _) in self.table(site, Table::Bucket)? {
            self.hashed.set(BucketId { directory: key_file(&key)?, site }, true);
        }
        self.load_duplicates(site)?;
        for (key, value) in self.table(site, Table::Restored)? {
            self.restoration.change(None, Some(damaged(&key, &value)?));
        }
        Ok(())
    }

    /// A client that has such a file open for reading may have changed nothing ever: the orphan alone knows of the
    /// client.
    fn load_orphan(&mut self, file: FileId, readers: Vec<Reader>, now: Time) {
        for Reader { client, count } in readers {
            let holder = self.opens.get(file, client);
            self.opens.set(file, client, Holder { readers: count, ..holder });
            if !self.clients.contains_key(&client) {
                self.hear(client, now);
                self.grace.await_site(client, file.site());
            }
        }
    }

    pub(crate) fn table(&self, site: u8, table: Table) -> Result<Records, OpenError> {
        let prefix = keys::table(site, table);
        let end = [site, table as u8 + 1];
        let mut found = Vec::new();
        self.store.scan(&prefix[..]..&end[..], |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// An operation that may change something if it is committed.
    fn begin(&self, origin: Origin) -> Transaction<'_> {
        self.begin_with(origin, &self.nothing)
    }

    fn begin_with<'a>(&'a self, origin: Origin, foreign: &'a Foreign) -> Transaction<'a> {
        Transaction {
            store: &self.store,
            volume: &self.volume,
            servers: &self.open_servers,
            columns_max: self.columns_max,
            opens: &self.opens,
            locks: &self.locks,
            truncating: &self.truncating,
            restoration: self.restoration,
            keep_orphans: self.in_grace(),
            bugs: self.bugs,
            now: origin.now,
            client: origin.client,
            sites: &self.sites,
            hashed: &self.hashed,
            holds: &self.holds,
            foreign,
            needs: RefCell::default(),
            changes: Changes::default(),
        }
    }

    /// Plants bugs, for simulations that test whether they find them.
    pub fn plant(&mut self, bugs: Bugs) {
        self.bugs = bugs;
    }

    /// An operation that changes nothing.
    pub fn read<T>(&self, client: u64, operation: impl FnOnce(&Transaction<'_>) -> T) -> T {
        operation(&self.begin(Origin { client, now: Wall::default() }))
    }

    /// The same, for an answer to a client: records that may be changing just now are not shown.
    pub(crate) fn try_read<T>(
        &self,
        client: u64,
        operation: impl FnOnce(&Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<T, Stop> {
        let transaction = self.begin(Origin { client, now: Wall::default() });
        let result = operation(&transaction);
        transaction.needs.into_inner().judge(result)
    }

    /// An operation that changes something, as a whole or not at all. The record, if there is one, must be appended to
    /// its log before the result is told to anybody.
    pub fn change<T>(
        &mut self,
        origin: Origin,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<(T, Option<Append>), Errno> {
        Ok(self.try_change(origin, operation)?)
    }

    /// As [`change`](Manager::change); it may stop where other managers have a part in it.
    pub(crate) fn try_change<T>(
        &mut self,
        origin: Origin,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<(T, Option<Append>), Stop> {
        let mut transaction = self.begin(origin);
        let result = operation(&mut transaction);
        let (needs, changes) = transaction.end();
        let value = needs.judge(result)?;
        Ok((value, self.commit(origin.client, changes)))
    }

    /// As [`change`](Manager::change) for a call that must not be executed twice: `answer` encodes the result, which
    /// is kept with the change and returned when the same call comes again.
    pub fn change_once<T>(
        &mut self,
        origin: Origin,
        call: CallName,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
        answer: impl FnOnce(T) -> Vec<u8>,
    ) -> Result<Once, Errno> {
        Ok(self.change_admitted(Ok(()), origin, call, operation, answer)?)
    }

    /// As [`change_once`](Manager::change_once) when the log may take no changes: one that needs none, because only
    /// memory knows of it, is made all the same; any other ends with what `admitted` says.
    pub(crate) fn change_admitted<T>(
        &mut self,
        admitted: Result<(), Errno>,
        origin: Origin,
        call: CallName,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
        answer: impl FnOnce(T) -> Vec<u8>,
    ) -> Result<Once, Stop> {
        let proposed = self.propose(origin, call, &self.nothing, operation, answer);
        let Proposal { reply, changes, repeated, .. } = proposed?;
        if !changes.writes.is_empty() {
            admitted?;
        }
        let repeated_before = changes.repeated;
        self.keep_recent(origin.client, call, &reply, &changes);
        let append = match admitted {
            Ok(()) => self.commit(origin.client, changes),
            Err(_) => {
                changes.effects.iter().for_each(|effect| self.take_effect(*effect));
                None
            }
        };
        Ok(Once { reply, append, repeated: repeated || repeated_before })
    }

    /// The operation as it would be committed now, with what was fetched for it.
    pub(crate) fn propose<T>(
        &self,
        origin: Origin,
        call: CallName,
        foreign: &Foreign,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
        answer: impl FnOnce(T) -> Vec<u8>,
    ) -> Result<Proposal, Stop> {
        let mut transaction = self.begin_with(origin, foreign);
        let recent = self.recent.get(&(origin.client, call.site, call.slot));
        let recent = recent.filter(|recent| recent.sequence == call.sequence);
        let known = transaction.answered(&call)?.or(recent.map(|recent| recent.reply.clone()));
        let known =
            known.map_or_else(|| self.answer_of_duplicate(&call), |known| Ok(Some(known)))?;
        if let Some(reply) = known.filter(|_| !self.bugs.has(Bug::AnswersForgotten)) {
            let (changes, parts) = (Changes::default(), Parts::new());
            return Ok(Proposal { reply: reply.into(), changes, parts, repeated: true });
        }
        let result = operation(&mut transaction);
        let (needs, mut changes) = transaction.end();
        let reply = answer(needs.judge(result)?);
        let parts = match self.sites.is_alone() {
            true => Parts::new(),
            false => changes.take_parts(&self.sites, origin.now),
        };
        if !changes.writes.is_empty() || !parts.is_empty() {
            let key = keys::answer(call.site, origin.client, call.slot);
            let kept = Answered { sequence: call.sequence, reply: reply.as_slice().into() };
            changes.writes.insert(key, Some(encoded(&kept)));
            self.answer_duplicates(&mut changes, &call, origin.now, &reply);
        }
        Ok(Proposal { reply, changes, parts, repeated: false })
    }

    pub(crate) fn commit(&mut self, client: u64, mut changes: Changes) -> Option<Append> {
        let ends = changes.effects.iter().any(|effect| matches!(effect, Effect::Expired(_)));
        let holds =
            |effect: &Effect| matches!(effect, Effect::Holder(_, _, holder) if !holder.is_empty());
        // A client that only reads is waited for after a restart too: a file that it has open must not go before.
        if !ends && (!changes.writes.is_empty() || changes.effects.iter().any(holds)) {
            self.make_durable(client, &mut changes);
        }
        assert!(changes.acts.is_empty(), "parts of other managers are theirs to commit");
        let format = self.volume.format;
        changes.effects.iter().for_each(|effect| self.take_effect(*effect));
        self.changed.note_all(&changes.writes);
        let before = self.listing_basis();
        self.note_listed(&changes.writes);
        let hashes = self.hashed.note_all(&changes.writes) && self.volume.set_hashed();
        if hashes || self.volume.format != format {
            changes.writes.insert(keys::volume(), Some(encoded(&self.volume)));
        }
        let append = (!changes.writes.is_empty()).then(|| self.store.apply(changes.batch()));
        self.listings.counted(before, self.listing_basis());
        append
    }

    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Holder(file, client, holder) => {
                self.opens.set(file, client, holder);
                self.listings.note(file);
                self.suspects.get_mut(&client).map(|suspects| suspects.remove(&file));
            }
            Effect::Truncating(file, size) => drop(self.truncating.insert(file, size)),
            Effect::Truncated(file) => drop(self.truncating.remove(&file)),
            Effect::Removed(file) => drop(self.removing.insert(file)),
            Effect::ObjectsRemoved(file) => drop(self.removing.remove(&file)),
            Effect::Ended(file) => self.opens.count_end(file),
            Effect::Closed(client, number) => self.opens.closed(client, number),
            Effect::Expired(client) => self.forget_client(client),
            Effect::Switching(switching) => self.sites.switching = switching,
            Effect::Imported => self.volume.set_imports(),
            Effect::Thawed => self.thaw(),
            Effect::Restored(before, now) => self.restoration.change(before, now),
            Effect::Answered(key, kept) => {
                self.duplicates.remove_oldest();
                self.duplicates.insert(key, kept);
            }
            Effect::Retired(server, retired) => {
                match retired {
                    true => self.retired.insert(server),
                    false => self.retired.remove(&server),
                };
                self.choose_servers();
            }
        }
    }

    /// The store, to sync and to checkpoint it.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Open files by client.
    pub fn opens(&self) -> &Opens {
        &self.opens
    }

    /// Truncations that have not reached every object, with their lengths.
    pub fn truncating(&self) -> &BTreeMap<FileId, u64> {
        &self.truncating
    }

    /// Files whose objects are to be removed.
    pub fn removing(&self) -> &BTreeSet<FileId> {
        &self.removing
    }

    /// Files of a restored volume that are to be compared with their objects, or have lost some.
    pub fn restoration(&self) -> Restoration {
        self.restoration
    }
}

fn key_file(key: &[u8]) -> Result<FileId, OpenError> {
    keys::file_of(key).ok_or_else(|| OpenError::Damaged { key: key.to_vec() })
}
