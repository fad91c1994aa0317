//! Dispatch of operations to calls of the manager, and their waits for each other.

use super::Service;
use super::layouts::Asker;
use crate::attributes::is_truncation;
use crate::foreign::Stop;
use crate::limits::{CHANGES_MAX, CLAIMS_AT_ONCE, DEADLINE, LISTING_BYTES_MAX};
use crate::listings::Part;
use crate::locks::{IN_GRACE, LockOutcome, LockOwner, LockTarget};
use crate::manager::Once;
use crate::objects::{Objects, ObjectsOf};
use crate::permissions::WRITE;
use crate::protocol::{
    Alive, CallNumber, Comparing, Created, FoundIn, Map, Operation, Outcome, Point,
};
use crate::quarantine::Wanted;
use crate::rename::DirectoryEntry;
use crate::transaction::{CallName, Transaction};
use node::rings::{Lock, LockKind, MetaRoom, VolumeSpace};
use node::{Bug, Either, Request, both, race};
use std::rc::Rc;
use wire::field::encoded;
use wire::{Errno, FileId, ListingVersion, NodeId, SetAttr};

/// Files that a volume may have beside those it has: serial numbers are 56 bits.
const FREE_FILES: u64 = 1 << 48;

pub(super) type Encoded = Result<Vec<u8>, Errno>;

/// The same of an operation that others may have a part in.
pub(super) type Ran = Result<Vec<u8>, Stop>;

/// The permanent name of a call.
pub(super) fn call_name(number: CallNumber, operation: &Operation<'_>) -> CallName {
    let site = operation.site(number.by_name).unwrap_or_default();
    let duplicates = operation.duplicates();
    let (slot, sequence, imports) = (number.slot, number.sequence, number.imports);
    CallName { site, slot, sequence, duplicates, imports }
}

impl<O: Objects> Service<O> {
    /// Whether this manager executes the operation.
    pub(super) fn is_here(&self, number: CallNumber, operation: &Operation<'_>) -> bool {
        let manager = self.manager.borrow();
        let here = |site| manager.sites.owns(site) && !manager.sites.is_leaving(site);
        let is_accepted = self.cx.has_bug(Bug::StaleTableAccepted);
        is_accepted || operation.site(number.by_name).is_none_or(here)
    }

    /// Executes an operation, unless others have a part in it or hold what it is about.
    pub(super) async fn run(
        self: &Rc<Self>,
        request: &Request,
        number: CallNumber,
        operation: &Operation<'_>,
    ) -> Ran {
        let client = number.client(request.source, request.client);
        let registration = self.manager.borrow_mut().hear(client, self.cx.now());
        let call = call_name(number, operation);
        match operation.plain() {
            Operation::KeepAlive {} => {
                let version = self.manager.borrow().sites.version();
                return Ok(Outcome::Alive(Alive { registration, version }).encode());
            }
            Operation::SetAttr { file, changes, .. } if is_truncation(changes) => {
                self.compare(*file).await?;
                let truncated = self.truncate(client, call, operation);
                return self.soon_alone(*file, truncated).await;
            }
            _ => {}
        }
        match self.run_alone(client, call, operation).await {
            Some(result) => result.map_err(Stop::Failed),
            None if operation.is_once() => self.change(client, call, operation).await,
            None => self.read(client, call, operation).await,
        }
    }

    /// Executes what is more than one reading or change of the name space; `None` for all else.
    async fn run_alone(
        self: &Rc<Self>,
        client: u64,
        call: CallName,
        operation: &Operation<'_>,
    ) -> Option<Encoded> {
        Some(match operation {
            Operation::Sync { .. } if self.cx.has_bug(Bug::SyncNotWaitedFor) => Ok(Vec::new()),
            Operation::Sync { changes } => self.sync_changes(changes).await,
            Operation::Space {} => self.space().await,
            Operation::SetLock { .. } => self.set_lock(client, operation).await,
            Operation::TakeOverLock { file, owner, lock } => {
                self.take_over_lock((*file, LockOwner { client, owner: *owner }), *lock).await
            }
            Operation::Leave {} => self.expire(client).await.map(|()| Vec::new()),
            Operation::Claim { .. } => self.claim(client, operation).await,
            Operation::AddColumns { who, file, homes } => {
                let asker = Asker { client, call, who };
                self.soon_alone(*file, self.add_columns(asker, *file, homes)).await
            }
            Operation::MoveColumn { who, file, column, home, rate } => {
                let asker = Asker { client, call, who };
                self.move_column(asker, *file, *column, *home, *rate).await
            }
            Operation::ReplaceColumns { who, file, columns } => {
                let asker = Asker { client, call, who };
                self.soon_alone(*file, self.replace_columns(asker, *file, *columns)).await
            }
            Operation::Backup { who, snapshot, of_members, after } => {
                self.back_up(who, *snapshot, *of_members, after).await
            }
            Operation::Snapshot { who, id, step } => self.step(who, *id, *step).await,
            Operation::Servers {} => Ok(encoded(&self.manager.borrow().servers().to_vec())),
            Operation::Sites {} => Ok(encoded(self.manager.borrow().sites.table())),
            Operation::Switching {} => Ok(encoded(&self.manager.borrow().switching_share())),
            Operation::Purge { who, home, file, column } => {
                self.purge_now(Wanted { who, home: *home, file: *file, column: *column }).await
            }
            Operation::Restoration {} => {
                let manager = self.manager.borrow();
                let (restoration, is_frozen) = (manager.restoration(), manager.is_frozen());
                Ok(encoded(&Comparing { restoration, is_frozen }))
            }
            Operation::Compare { file } => self.compare(*file).await.map(|()| Vec::new()),
            Operation::AcceptLost { who, file } => self.accept_lost(who, *file).await,
            Operation::Own { who } => self.own_now(who).await,
            Operation::CompareAll { who } => self.compare_now(who),
            Operation::Restore { who, home, file, column } => {
                self.restore_now(Wanted { who, home: *home, file: *file, column: *column }).await
            }
            _ => return None,
        })
    }

    /// Syncs. ESTALE when a power cut took one of the changes that an earlier incarnation had answered.
    async fn sync_changes(&self, changes: &[Point]) -> Encoded {
        self.sync().await?;
        let known = changes.iter().all(|point| self.manager.borrow().has(*point));
        if known || self.cx.has_bug(Bug::LossNotNoticed) {
            Ok(Vec::new())
        } else {
            Err(Errno::ESTALE)
        }
    }

    async fn read(self: &Rc<Self>, client: u64, call: CallName, operation: &Operation<'_>) -> Ran {
        if let Operation::GetAttr { file } = operation {
            self.soon_quiet(*file).await?;
            self.heal(*file).await?;
        }
        let manager = self.manager.borrow();
        manager.try_read(client, |transaction| {
            transaction.check_route(operation, call)?;
            match *operation {
                Operation::ReadDirectory { ref who, file, span, bytes, plus, known } => {
                    let part =
                        Part { file, span, bytes: bytes.min(LISTING_BYTES_MAX as u32), plus };
                    let listing = manager
                        .list(transaction, who, part, known, |number| self.version(number))?;
                    Ok(Outcome::Listing(listing).encode())
                }
                _ => read(transaction, client, operation),
            }
        })
    }

    fn version(&self, number: u64) -> ListingVersion {
        ListingVersion { manager: self.cx.id(), incarnation: self.cx.incarnation(), number }
    }

    /// A change that waits for nothing but the log.
    async fn change(
        self: &Rc<Self>,
        client: u64,
        call: CallName,
        operation: &Operation<'_>,
    ) -> Ran {
        match operation {
            Operation::Open { file, mask, .. } | Operation::OpenNamed { file, mask, .. } => {
                self.soon_quiet(*file).await?;
                self.compare(*file).await?;
                self.heal(*file).await?;
                if mask & WRITE != 0 && self.manager.borrow().truncating().contains_key(file) {
                    self.soon_alone(*file, self.finish_truncation(*file)).await?;
                }
            }
            Operation::Close { file, .. } => self.soon_quiet(*file).await?,
            _ => {}
        }
        self.apply(client, call, operation).await
    }

    async fn apply(self: &Rc<Self>, client: u64, call: CallName, operation: &Operation<'_>) -> Ran {
        let admitted = self.admit_operation(operation).await;
        let once = self.manager.borrow_mut().change_admitted(
            admitted,
            self.origin(client),
            call,
            |transaction| change(transaction, call, operation),
            |outcome| outcome.encode(),
        )?;
        match operation {
            // The change is made, and a retry would find it: an error that passes is told as one that does not.
            Operation::WithWcc { .. } => {
                Ok(self.told_synced(once).await?.map_err(|_| Errno::EIO)?)
            }
            _ => Ok(self.told(once).await?),
        }
    }

    /// Waits until the change may be applied; ENOSPC for one that takes room for good where there is none.
    pub(super) async fn admit_operation(&self, operation: &Operation<'_>) -> Result<(), Errno> {
        let full = self.cx.meta_room() > MetaRoom::Plenty && operation.takes_room();
        self.note_full(full);
        if full { Err(Errno::ENOSPC) } else { self.admit().await }
    }

    /// The answer, when it may be told.
    pub(super) async fn told(self: &Rc<Self>, once: Once) -> Encoded {
        let posted = self.post(once.append);
        if self.cx.has_bug(Bug::AnswerBeforeAppend) {
            let service = self.clone();
            self.cx.spawn("names late append", async move { service.note(posted.await) });
            return Ok(once.reply);
        }
        posted.await?;
        if once.repeated {
            self.settled().await?;
        }
        let begun = self.manager.borrow_mut().store().synced_sequence() >= self.first.get();
        if !begun {
            self.sync().await?;
        }
        self.wake_upkeep();
        Ok(once.reply)
    }

    /// The same, and then whether it is on stable storage. The sync is asked for right behind the record, since a world
    /// may make one write of both.
    pub(super) async fn told_synced(self: &Rc<Self>, once: Once) -> Result<Encoded, Errno> {
        let (told, synced) = both(self.told(once), self.sync()).await;
        told.map(|reply| synced.map(|()| reply))
    }

    /// Waits until no task changes the length or layout of `file`.
    async fn quiet(&self, file: FileId) {
        loop {
            let gate = self.gate.wait();
            if !self.busy.borrow().contains(&file) {
                return;
            }
            gate.await;
        }
    }

    /// As [`quiet`](Self::quiet), but no longer than who asked waits for an answer: ETIMEDOUT, and nothing is done.
    async fn soon_quiet(&self, file: FileId) -> Result<(), Errno> {
        if !self.busy.borrow().contains(&file) {
            return Ok(());
        }
        match race(self.quiet(file), self.cx.sleep(DEADLINE)).await {
            Either::Left(()) => Ok(()),
            Either::Right(()) => Err(Errno::ETIMEDOUT),
        }
    }

    /// As [`alone`](Self::alone), after [`soon_quiet`](Self::soon_quiet).
    pub(super) async fn soon_alone<T, E: From<Errno>>(
        &self,
        file: FileId,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.soon_quiet(file).await?;
        self.alone(file, work).await
    }

    /// Runs `work` while no other task changes the length or layout of `file`.
    pub(super) async fn alone<T>(&self, file: FileId, work: impl Future<Output = T>) -> T {
        self.quiet(file).await;
        self.busy.borrow_mut().insert(file);
        let result = work.await;
        self.busy.borrow_mut().remove(&file);
        self.gate.notify_all();
        result
    }

    async fn truncate(
        self: &Rc<Self>,
        client: u64,
        call: CallName,
        operation: &Operation<'_>,
    ) -> Ran {
        let Operation::SetAttr { file, changes: SetAttr { size: Some(new), .. }, .. } =
            *operation.plain()
        else {
            return Err(Errno::EPROTO.into());
        };
        // A file that cannot be made whole now is noticed by the truncation.
        let _ = self.heal_alone(file).await;
        // A truncation under way to a greater length is covered by this one, and need not end before: maybe it cannot.
        let unfinished = self.manager.borrow().truncating().get(&file).copied();
        if unfinished.is_some_and(|size| new > size) {
            self.finish_truncation(file).await?;
        }
        let reply = self.apply(client, call, operation).await?;
        self.finish_truncation(file).await?;
        if let Operation::WithWcc { .. } = operation {
            self.sync().await.map_err(|_| Errno::EIO)?;
        }
        Ok(reply)
    }

    /// Brings a truncation that was prepared to every object, and ends it.
    pub(super) async fn finish_truncation(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        let Some(size) = self.manager.borrow().truncating().get(&file).copied() else {
            return Ok(());
        };
        if let Some(objects) = self.objects_of(file)? {
            // No object may know a generation that a power cut takes back: it would be given out again, for another
            // length.
            self.sync().await?;
            self.objects.truncate(&objects, size).await.map_err(of_disk)?;
        }
        self.commit(|transaction| transaction.truncated(file)).await
    }

    /// The objects of a file; `None` when the file is gone.
    pub(super) fn objects_of(&self, file: FileId) -> Result<Option<ObjectsOf>, Errno> {
        let entry = self.manager.borrow().read(0, |transaction| transaction.get_attr(file));
        match entry {
            Err(Errno::ESTALE) => Ok(None),
            Err(errno) => Err(errno),
            Ok(entry) => {
                let Some(layout) = entry.layout else { return Ok(None) };
                self.teach_map(file, &layout)?;
                Ok(Some(ObjectsOf { file, layout, truncations: entry.truncations }))
            }
        }
    }

    async fn space(&self) -> Encoded {
        let servers: Vec<NodeId> = self.manager.borrow().servers().iter().map(|s| s.id).collect();
        let space = self.objects.space(&servers).await?;
        let files = self.manager.borrow().read(0, |transaction| transaction.files())?;
        Ok(Outcome::Space(VolumeSpace { files, free_files: FREE_FILES, ..space }).encode())
    }

    async fn claim(self: &Rc<Self>, client: u64, operation: &Operation<'_>) -> Encoded {
        let Operation::Claim { claims, first, last } = operation else {
            return Err(Errno::EPROTO);
        };
        let origin = self.origin(client);
        if let Some(closes) = *first {
            self.manager.borrow_mut().begin_claims(client, closes);
        }
        for claims in claims.chunks(CLAIMS_AT_ONCE) {
            self.admit().await?;
            let (_, append) = self.manager.borrow_mut().change(origin, |t| t.claim_all(claims))?;
            self.post(append).await?;
        }
        let mut of = *last;
        while let Some(registration) = of {
            self.admit().await?;
            let (done, append) = self.manager.borrow_mut().end_claims(registration, origin)?;
            self.post(append).await?;
            of = of.filter(|_| !done);
        }
        self.work.notify_all();
        Ok(Vec::new())
    }

    /// No lock of a site is given before clients have said those that they had before it came here, nor to a client
    /// that the next incarnation would not wait for.
    async fn may_lock(self: &Rc<Self>, client: u64, site: u8, reclaim: bool) -> Result<(), Errno> {
        let is_in_grace = self.manager.borrow().is_site_in_grace(site);
        if !reclaim && is_in_grace && !self.cx.has_bug(Bug::GraceSkipped) {
            return Err(IN_GRACE);
        }
        let known = self.manager.borrow_mut().register(client);
        self.post(known).await?;
        self.known(client).await
    }

    /// Waits until what makes the client known to the store is appended, if that is on its way.
    async fn known(&self, client: u64) -> Result<(), Errno> {
        let change = self.manager.borrow().known_since(client);
        self.appended_to(change).await
    }

    async fn set_lock(self: &Rc<Self>, client: u64, operation: &Operation<'_>) -> Encoded {
        let Operation::SetLock { file, owner, whole_file, lock, reclaim } = *operation else {
            return Err(Errno::EPROTO);
        };
        if lock.kind == LockKind::Unlock {
            // For any client, and after the locks that were requested before.
            let _ = self.known(client).await;
        } else {
            self.may_lock(client, file.site(), reclaim).await?;
        }
        self.check_site(file.site())?;
        let (target, owner) = (LockTarget { file, whole_file }, LockOwner { client, owner });
        match self.manager.borrow_mut().locks.set(target, owner, lock)? {
            LockOutcome::Done => Ok(Vec::new()),
            LockOutcome::Conflict(_) if self.cx.has_bug(Bug::ConflictGranted) => Ok(Vec::new()),
            LockOutcome::Conflict(_) => Err(Errno::EAGAIN),
        }
    }

    /// A lock that is taken over was held before this incarnation, so it is not one of the new locks that wait for
    /// those.
    async fn take_over_lock(
        self: &Rc<Self>,
        (file, owner): (FileId, LockOwner),
        lock: Lock,
    ) -> Encoded {
        self.may_lock(owner.client, file.site(), true).await?;
        self.check_site(file.site())?;
        let target = LockTarget { file, whole_file: false };
        match self.manager.borrow_mut().locks.take_over(target, owner, lock)? {
            LockOutcome::Done => Ok(Vec::new()),
            LockOutcome::Conflict(_) => Err(Errno::EAGAIN),
        }
    }

    /// Wakes who removes and settles when there is more of it than before.
    pub(super) fn wake_upkeep(&self) {
        let work = self.upkeep_left();
        if work > self.work_seen.replace(work) {
            self.work.notify_all();
        }
    }

    /// Number of files to remove and to settle.
    pub(super) fn upkeep_left(&self) -> usize {
        let manager = self.manager.borrow();
        manager.removing().len() + manager.opens().settling().len()
    }
}

/// The error that an application gets for objects on a disk that its server refuses, or that went missing under it:
/// neither ENXIO nor ENODEV is an error of truncate(2) or open(2).
fn of_disk(errno: Errno) -> Errno {
    if matches!(errno, Errno::ENXIO | Errno::ENODEV) { Errno::EIO } else { of_object(errno) }
}

/// The same of an object: its server refuses one that was removed or set aside not long ago, and takes it again later.
/// ESTALE would say that the file is gone, and a mount would let go of it.
pub(super) fn of_object(errno: Errno) -> Errno {
    if errno == Errno::ESTALE { Errno::EAGAIN } else { errno }
}

fn read(transaction: &Transaction<'_>, client: u64, operation: &Operation<'_>) -> Encoded {
    use Operation::*;
    let outcome = match operation {
        Lookup { who, parent, name } => Outcome::Found(transaction.find(who, *parent, name)?),
        LookupIn { who, parent, name } => {
            let found = transaction.find(who, *parent, name)?;
            let directory = match transaction.is_elsewhere(*parent) {
                false => Some(transaction.get_attr(*parent)?.attr),
                true => None,
            };
            Outcome::FoundIn(FoundIn { found, directory })
        }
        GetAttr { file } => Outcome::Entry(transaction.get_attr(*file)?),
        Access { who, file, mask } => {
            transaction.access(who, *file, *mask)?;
            Outcome::Done
        }
        ReadLink { file } => Outcome::Bytes(transaction.read_link(*file)?.into()),
        GetXattr { who, file, name } => Outcome::Bytes(transaction.get_xattr(who, *file, name)?),
        ListXattr { who, file } => Outcome::Bytes(transaction.list_xattr(who, *file)?),
        Fragments { file, unit, count } => {
            let (epoch, fragments) = transaction.fragments(*file, *unit, *count as usize)?;
            Outcome::Map(Map { epoch, fragments })
        }
        Quarantined { who, after, count } => {
            let count = (*count as usize).min(CHANGES_MAX);
            return Ok(encoded(&transaction.quarantined(who, *after, count)?));
        }
        Share { file } => return Ok(encoded(&transaction.share(*file)?)),
        DirectoryLayout { file } => Outcome::Policy(transaction.directory_layout(*file)?),
        TestLock { file, owner, whole_file, lock } => {
            let target = LockTarget { file: *file, whole_file: *whole_file };
            let owner = LockOwner { client, owner: *owner };
            Outcome::Lock(transaction.locks.test(target, owner, *lock))
        }
        _ => return Err(Errno::EPROTO),
    };
    Ok(outcome.encode())
}

pub(super) fn change(
    transaction: &mut Transaction<'_>,
    call: CallName,
    operation: &Operation<'_>,
) -> Result<Outcome, Errno> {
    use Operation::*;
    transaction.check_route(operation, call)?;
    if !call.imports {
        transaction.check_imports(operation)?;
    }
    match operation {
        WithWcc { operation, guard, .. } => {
            let (changed, outcome) = transaction
                .with_wcc(operation, *guard, |t, operation| change(t, call, operation))?;
            Ok(Outcome::WithWcc(changed, Box::new(outcome)))
        }
        SetAttr { who, file, changes, opened } => {
            let entry = if is_truncation(changes) {
                transaction.prepare_truncation(who, *file, changes, *opened)?.0
            } else {
                transaction.set_attr(who, *file, changes)?
            };
            Ok(Outcome::Entry(entry))
        }
        Create { who, parent, name, mode, how, open } => {
            let (entry, made) = transaction.create(who, *parent, name, *mode, *how, *open)?;
            Ok(Outcome::Created(Created { entry, made }))
        }
        CreateUnnamed { who, parent, mode, mask } => {
            transaction.create_unnamed(who, *parent, *mode, *mask).map(Outcome::Entry)
        }
        MakeDirectory { who, parent, name, mode } => {
            transaction.make_directory(who, *parent, name, *mode).map(Outcome::Entry)
        }
        Symlink { who, parent, name, target } => {
            transaction.symlink(who, *parent, name, target).map(Outcome::Entry)
        }
        MakeNode { who, parent, name, mode, rdev } => {
            transaction.make_node(who, *parent, name, *mode, *rdev).map(Outcome::Entry)
        }
        Link { who, parent, name, file } => {
            transaction.link(who, *file, *parent, name).map(Outcome::Entry)
        }
        Unlink { who, parent, name } => {
            transaction.unlink(who, *parent, name)?;
            Ok(Outcome::Unnamed(transaction.take_unnamed()))
        }
        RemoveDirectory { who, parent, name } => {
            transaction.remove_directory(who, *parent, name)?;
            Ok(Outcome::Unnamed(transaction.take_unnamed()))
        }
        Rename { who, parent, name, new_parent, new_name, flags } => {
            let from = DirectoryEntry { parent: *parent, name };
            let to = DirectoryEntry { parent: *new_parent, name: new_name };
            transaction.rename(who, from, to, *flags)?;
            Ok(Outcome::Unnamed(transaction.take_unnamed()))
        }
        operation => change_more(transaction, operation),
    }
}

/// Changes of what is open, and of what belongs to files beside attributes.
fn change_more(
    transaction: &mut Transaction<'_>,
    operation: &Operation<'_>,
) -> Result<Outcome, Errno> {
    use Operation::*;
    let done = |()| Outcome::Done;
    match operation {
        Open { who, file, mask } => transaction.open(who, *file, *mask).map(Outcome::Entry),
        OpenNamed { who, parent, name, file, mask } => {
            transaction.open_named(who, *parent, name, *file, *mask).map(Outcome::Entry)
        }
        Close { file, outcome, number } => {
            transaction.close_once(*file, *outcome, *number).map(Outcome::Closed)
        }
        SetXattr { who, file, name, value, flags } => {
            transaction.set_xattr(who, *file, name, value, *flags).map(done)
        }
        RemoveXattr { who, file, name } => transaction.remove_xattr(who, *file, name).map(done),
        SetDirectoryLayout { who, file, policy } => {
            transaction.set_directory_layout(who, *file, policy.clone()).map(done)
        }
        HashDirectory { who, file, mends: false } => {
            transaction.hash_directory(who, *file).map(done)
        }
        HashDirectory { who, file, mends: true } => transaction.mend_hashed(who, *file).map(done),
        Salvage { who, found } => transaction.salvage(who, found).map(Outcome::Bytes),
        SetSwitching { who, per_mille } => transaction.set_switching(who, *per_mille).map(done),
        Retire { who, server, retired } => transaction.retire(who, *server, *retired).map(done),
        _ => Err(Errno::EPROTO),
    }
}
