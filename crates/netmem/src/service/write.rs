//! A program writes pages, frees spaces, and says what it will need.

use super::events::Event;
use super::freed::TooMany;
use super::leases::{Begun, Leases, Writer};
use super::put::Weak;
use super::store::Stored;
use super::writing::Right;
use super::{Load, Service};
use crate::directory::{Entry, Holder, Role as HolderRole};
use crate::limits::*;
use crate::memory::{Arrival, Class, Durability};
use crate::page::{PageId, PageStamp, SpaceId, Version};
use crate::protocol::{Batch, Lease, LeaseReply, Message, Record, Spaces, Verdict, op};
use endpoint::Frame;
use node::{Answer, Bug, Request, all};
use wire::{Errno, NodeId, Time};

/// Why a page was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// A version as new as this one is known: it is here, or this node's lease says so.
    #[error("version {} of the page is known: write a newer one", .0.0)]
    Stale(Version),
    /// No frame is free, since what is in them could not be made durable: wait, or add nodes.
    #[error("no frame is free: {0}")]
    NoRoom(Weak),
    /// Longer than [`PAGE_BYTES_MAX`], longer than all memory of the service, or empty.
    #[error("a page has 1 to {PAGE_BYTES_MAX} bytes, this one {0}")]
    Length(usize),
    /// Its space was freed.
    #[error("the page's space was freed")]
    Freed,
    /// Another node writes to the page and did not give it up in time, or the directory did not answer.
    #[error("the right to write to the page was not granted in time; try again later")]
    NoLease,
    /// The space is another node's own.
    #[error("the space belongs to {0}")]
    NotOwner(NodeId),
}

/// How a page was used where it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// When last.
    pub last: Time,
    /// Not for the first time. A page that was used once displaces only what is much older.
    pub again: bool,
}

impl Service {
    /// Writes a page: `data` is its content in `version`, which must be newer than any before. It is in this node's
    /// memory when this ends, dirty; [`flush`](Service::flush) makes it durable at once, and until then it is lost with
    /// this node. Of a shared space this waits for the page's lease: one node writes at a time. Waits for room up to
    /// [`Config::patience`](super::Config::patience).
    pub async fn put(
        &self,
        id: PageId,
        version: Version,
        class: Class,
        data: Frame,
    ) -> Result<(), PutError> {
        self.check(id, &data)?;
        let stamp = PageStamp::of(id, version, [&data[..]]);
        let until = self.cx().now() + self.0.config.patience;
        loop {
            // at each turn: while this waits for room, another node may have asked for the lease
            if id.space.owner().is_none() {
                self.lease(id, version).await?;
            }
            let eased = self.0.events.wait(Event::Eased);
            if let Some(written) = self.write_here(stamp, class, &data)? {
                self.writing_mut().wrote(id, version);
                self.note_change(|other| other == id);
                self.outdate_copies(id);
                return Ok(written);
            }
            if self.cx().now() >= until {
                return Err(PutError::NoRoom(self.weakness(class)));
            }
            self.raise(Event::Pressure);
            let _ = self.cx().with_deadline(CLEANING_PAUSE, eased).await;
        }
    }

    /// As [`put`](Service::put), in the version after the newest that is known, which is the answer: the way to write
    /// to a shared page without having read it.
    pub async fn put_next(
        &self,
        id: PageId,
        class: Class,
        data: Frame,
    ) -> Result<Version, PutError> {
        let mut version = Version(1);
        loop {
            match self.put(id, version, class, data.clone()).await {
                Err(PutError::Stale(known)) => version = Version(known.0 + 1),
                put => return put.map(|()| version),
            }
        }
    }

    fn check(&self, id: PageId, data: &Frame) -> Result<(), PutError> {
        if data.is_empty() || data.len() > PAGE_BYTES_MAX.min(self.0.config.bytes) {
            return Err(PutError::Length(data.len()));
        }
        match id.space.owner() {
            Some(owner) if owner != self.me() => Err(PutError::NotOwner(owner)),
            _ => Ok(()),
        }
    }

    /// `None` without room.
    fn write_here(
        &self,
        stamp: PageStamp,
        class: Class,
        data: &Frame,
    ) -> Result<Option<()>, PutError> {
        let (now, PageStamp { id, version, checksum, .. }) = (self.cx().now(), stamp);
        if self.0.home.borrow().is_freed(id.space) {
            return Err(PutError::Freed);
        }
        self.leaving().forget(|other| other == id);
        let known = self.version_here(id);
        if known.is_some_and(|known| known >= version) {
            return Err(PutError::Stale(known.unwrap_or_default()));
        }
        if !self.makes_way(id, version, data.len()) {
            return Ok(None);
        }
        self.0.pages.borrow_mut().handle_write(id);
        let stored = Stored { written: true, ..Stored::new(data.clone(), checksum) };
        let mut store = self.store_mut();
        if let Some(frame) = store.memory().find(id) {
            return Ok(store.overwrite(now, frame, version, class, stored).then_some(()));
        }
        let durability = Durability::Dirty { copies: 0 };
        let arrival = Arrival { id, version, class, durability, ..Arrival::default() };
        Ok(store.install(now, arrival, stored).ok().map(|_| ()))
    }

    fn version_here(&self, id: PageId) -> Option<Version> {
        self.0.pages.borrow().version(id)
    }

    /// Room for a new content: in the frame of the old one when that is as long, else in another.
    fn makes_way(&self, id: PageId, version: Version, bytes: usize) -> bool {
        let store = self.store_mut();
        let found =
            store.find(id).map(|(frame, page, stored)| (frame, page.busy, stored.data.len()));
        let Some((frame, busy, before)) = found else {
            drop(store);
            return self.make_room(bytes);
        };
        let mirror = store.memory().role(frame) == crate::Role::Mirror;
        if before == bytes && !mirror {
            return true;
        }
        // another length, or another writer's mirror: others count on it until the new content has its place
        let fits = store.would_fit(frame, bytes);
        drop(store);
        !busy && (fits || self.make_room(bytes)) && self.gives_way(id, version)
    }

    /// Drops an old content that is not busy, if it is still here.
    fn gives_way(&self, id: PageId, newer: Version) -> bool {
        let mut store = self.store_mut();
        let old = store.find(id).map(|(frame, page, _)| (frame, page.busy));
        old.is_none_or(|(frame, busy)| !busy && store.drop_older(frame, newer))
    }

    fn weakness(&self, class: Class) -> Weak {
        let others = self.0.home.borrow().view().others(self.me()).count();
        let needed = class.copies().unwrap_or(0);
        Weak { have: needed.min(u8::try_from(others).unwrap_or(u8::MAX)), needed }
    }

    /// A page that was read from stable storage by who asks: a clean copy, kept if there is room and no version as new
    /// is here. Says whether it is. Other nodes find it here.
    pub fn insert(&self, id: PageId, version: Version, data: Frame) -> bool {
        self.insert_used(id, version, data, Use { last: self.cx().now(), again: false })
    }

    /// As [`insert`](Service::insert), of a page that another component of this node had in memory until now.
    pub fn insert_used(&self, id: PageId, version: Version, data: Frame, used: Use) -> bool {
        if self.check(id, &data).is_err() {
            return false;
        }
        let stamp = PageStamp::of(id, version, [&data[..]]);
        let arrival = Arrival { id, version, reused: used.again, ..Arrival::default() };
        let kept = self.keep_of(used.last, arrival, Stored::new(data, stamp.checksum));
        if kept {
            self.announce(id, version);
        }
        kept
    }

    /// A version is on stable storage: wherever it is in network memory, it is a clean copy from now on.
    pub fn written(&self, id: PageId, version: Version) {
        self.note_written(id, version);
        self.raise(Event::Eased);
    }

    pub(super) fn note_written(&self, id: PageId, version: Version) {
        let mirrors = self.mark_written(id, version);
        for holder in mirrors {
            let record = Record::new(id, version, holder);
            self.notice(holder.node, op::WRITTEN, record);
        }
        let homes: Vec<NodeId> = self.0.home.borrow().other_homes(id).collect();
        for home in homes {
            self.notice(home, op::WRITTEN, self.record(id, version, HolderRole::Clean, 0));
        }
    }

    /// In this node's own tables. Answers with the mirrors that these know of.
    pub(super) fn mark_written(&self, id: PageId, version: Version) -> Vec<Holder> {
        self.mark_here(id, version);
        self.at_home(|home| {
            let entry = home.directory().entry(id).filter(|entry| entry.version == version);
            let mirrors = entry.into_iter().flat_map(Entry::mirror_holders).copied();
            let mirrors = mirrors.filter(|holder| holder.node != self.me()).collect();
            home.handle_written(id, version);
            mirrors
        })
    }

    /// The copy of the page here is clean or outdated; but not one that this node wrote and no other has.
    fn mark_here(&self, id: PageId, version: Version) {
        let mut store = self.store_mut();
        let Some(frame) = store.memory().find(id) else { return };
        if store.memory_mut().handle_written(frame, version) {
            store.stored_mut(frame).mirrors.clear();
            return;
        }
        let clean = store.memory().page(frame).is_some_and(|p| p.durability == Durability::Clean);
        if clean || store.memory().role(frame) == crate::Role::Mirror {
            store.drop_older(frame, version);
        }
    }

    /// Nothing of a space exists any more when this ends, on any node that is up, whatever is still under way; dirty
    /// pages too are gone. The space's number is not used again. Waits for every node that is up.
    pub async fn free(&self, space: SpaceId) -> Result<(), TooMany> {
        self.free_here(space)?;
        let spaces = [space];
        loop {
            let view = self.view();
            if self.cx().has_bug(Bug::FreedNotTold) {
                return Ok(());
            }
            let told =
                all(view.others(self.me()).map(|up| self.tell_freed(up.node, &spaces))).await;
            if told.into_iter().all(|told| told) {
                return Ok(());
            }
            // who did not answer does so later, or another view says that it is down
            self.cx().sleep(PAUSE_MAX).await;
        }
    }

    /// In this node's own tables.
    pub(super) fn free_here(&self, space: SpaceId) -> Result<(), TooMany> {
        self.0.home.borrow_mut().free_space(self.cx().now(), space)?;
        self.0.guests.borrow_mut().remove(space);
        self.0.peers.borrow_mut().forget_space(space);
        self.note_change(|id| id.space == space);
        self.0.pages.borrow_mut().free_space(space);
        self.raise(Event::Eased);
        Ok(())
    }

    /// Tells a node which spaces were freed. Says whether it knows now.
    pub(super) async fn tell_freed(&self, to: NodeId, spaces: &[SpaceId]) -> bool {
        let body = Spaces::of(spaces);
        let mut load = Load { once: true, ..self.load() };
        if body.data_bytes() > 0 {
            let Some(mut data) = self.cx().frames().alloc_exact(body.data_bytes()) else {
                return false;
            };
            Spaces::encode_data(spaces, &mut data);
            load.data.push(data.freeze());
        }
        let reply = self.send(to, op::FREE_SPACE, &body.encode(), load).await;
        reply.is_ok_and(|reply| reply.status == 0)
    }

    /// Waits until this node is the only one that writes to a shared page. Every other node's copy is gone then.
    async fn lease(&self, id: PageId, version: Version) -> Result<(), PutError> {
        let until = self.cx().now() + self.0.config.patience;
        while self.cx().now() < until {
            if self.doubts(id) {
                // others may take this node for dead: whatever it is granted is worth nothing yet
                self.cx().sleep(PAUSE).await;
                continue;
            }
            let right = self.writing().right(id);
            match right {
                Right::Writes(known) if known >= version => return Err(PutError::Stale(known)),
                Right::Writes(_) => return Ok(()),
                Right::GivesBack => self.cx().sleep(PAUSE).await,
                Right::None => self.try_lease(id).await?,
            }
        }
        Err(PutError::NoLease)
    }

    async fn try_lease(&self, id: PageId) -> Result<(), PutError> {
        let ask = Ask::new(self, id);
        let granted = match self.ask_for_lease(id).await {
            Some(LeaseReply::Granted(known)) => ask.grant(known),
            Some(LeaseReply::Freed) => return Err(PutError::Freed),
            _ => false,
        };
        if !granted {
            self.cx().sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn ask_for_lease(&self, id: PageId) -> Option<LeaseReply> {
        let (view, homes) = {
            let home = self.0.home.borrow();
            (home.view().number, home.homes(id))
        };
        let lease = Lease { id, view, incarnation: self.incarnation() };
        let primary = homes?.primary;
        let reply = if primary == self.me() {
            self.grant(self.me(), &lease).await
        } else {
            let load = Load { once: true, wait: ATTEMPT * 4, ..self.load() };
            self.ask_for(primary, op::LEASE, &lease.encode(), load).await?
        };
        // granted in a view that is over: the page may have another directory by now
        let same = self.view_number() == view;
        Some(reply).filter(|_| same)
    }

    /// Answers [`op::LEASE`].
    pub(super) async fn handle_lease(&self, request: Request) {
        let Ok(lease) = Lease::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let reply = self.grant(request.source, &lease).await;
        self.cx().reply(request, Answer::body(&reply.encode()));
    }

    /// Takes a page from its writer and from all who have copies, and then grants it.
    async fn grant(&self, to: NodeId, lease: &Lease) -> LeaseReply {
        let writer = Writer { node: to, incarnation: lease.incarnation };
        let mut begun = self.begin_grant(writer, lease);
        if begun == Err(LeaseReply::Full) && self.take_oldest_back(lease.view).await {
            begun = self.begin_grant(writer, lease);
        }
        let from = match begun {
            Ok(from) => from,
            Err(reply) => return reply,
        };
        let mut changing = Changing::new(self, lease);
        let from = from.filter(|_| !self.cx().has_bug(Bug::LeaseNotRevoked));
        let written = match from {
            Some(from) => self.revoke(from, lease).await,
            None => Some(Version(0)),
        };
        let taken = written.is_some() && self.drop_copies(lease.id, to).await;
        let written = written.unwrap_or_default();
        let ended = changing.end(|leases, id| leases.end(id, taken.then_some(writer), written));
        let Some(newest) = ended.filter(|_| taken) else { return LeaseReply::Busy };
        self.count(|counters| counters.leases_granted += 1);
        LeaseReply::Granted(self.0.home.borrow().version(lease.id).max(newest))
    }

    /// Makes room for another lease: the one that was granted longest ago is given back. Says whether it was.
    async fn take_oldest_back(&self, view: u64) -> bool {
        let oldest = self.0.home.borrow_mut().leases().begin_oldest();
        let Some((id, writer)) = oldest else { return false };
        let lease = Lease { id, view, incarnation: writer.incarnation };
        let mut changing = Changing::new(self, &lease);
        let Some(written) = self.revoke(writer, &lease).await else { return false };
        changing.end(|leases, id| leases.forget(id, written)).is_some()
    }

    fn begin_grant(&self, writer: Writer, lease: &Lease) -> Result<Option<Writer>, LeaseReply> {
        let mut home = self.0.home.borrow_mut();
        if home.is_freed(lease.id.space) {
            return Err(LeaseReply::Freed);
        }
        if !home.is_primary(lease.id) {
            return Err(LeaseReply::NotHome(home.view().number));
        }
        let up = home.view().has(writer.node, writer.incarnation);
        // until all have told what they hold, an earlier directory's writer may not know that its lease is over
        if !up || lease.view != home.view().number || !home.is_settled() {
            return Err(LeaseReply::Busy);
        }
        let version = home.version(lease.id);
        match home.leases().begin(lease.id, writer) {
            Begun::Has(newest) => Err(LeaseReply::Granted(version.max(newest))),
            Begun::Take(from) => Ok(from),
            Begun::Busy => Err(LeaseReply::Busy),
            Begun::Full => Err(LeaseReply::Full),
        }
    }

    /// The newest version of the earlier writer; `None` when it could not be given back.
    async fn revoke(&self, from: Writer, lease: &Lease) -> Option<Version> {
        let reply = if from.node == self.me() {
            self.give_back(lease).await
        } else {
            let load = Load { once: true, wait: ATTEMPT * 2, ..self.load() };
            self.ask_for(from.node, op::REVOKE, &lease.encode(), load).await?
        };
        if let LeaseReply::Granted(version) = reply { Some(version) } else { None }
    }

    /// Waits for all who have copies to drop them; mirrors stay.
    async fn drop_copies(&self, id: PageId, writer: NodeId) -> bool {
        let (holders, version) = {
            let home = self.0.home.borrow();
            (home.copies_to_drop(id, writer), home.version(id))
        };
        let dropped =
            all(holders.into_iter().map(|holder| self.drop_copy(id, version, holder))).await;
        let gone = dropped.into_iter().all(|dropped| dropped);
        if gone {
            self.0.home.borrow_mut().handle_dispersed(id);
        }
        gone
    }

    async fn drop_copy(&self, id: PageId, version: Version, holder: Holder) -> bool {
        let record = Record::new(id, version, holder);
        let view = self.view_number();
        let batch = Batch::of(view, &[record], false);
        let dropped = if holder.node == self.me() {
            self.gives_copy_up(id)
        } else {
            let load = Load { once: true, ..self.load() };
            let verdict = self.ask_for(holder.node, op::DROP, &batch.encode(), load).await;
            verdict == Some(Verdict::Done)
        };
        if dropped {
            self.unregister_here(&record);
        }
        dropped
    }

    /// Answers [`op::REVOKE`].
    pub(super) async fn handle_revoke(&self, request: Request) {
        let Ok(lease) = Lease::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let reply = self.give_back(&lease).await;
        self.cx().reply(request, Answer::body(&reply.encode()));
    }

    /// Stops writing to a page: what was written becomes durable, and this node's copy goes. Only for a directory of
    /// this node's own view: another one has been told, or will be, that this node writes.
    async fn give_back(&self, lease: &Lease) -> LeaseReply {
        let same_view = || self.view_number() == lease.view;
        if !same_view() {
            return LeaseReply::Busy;
        }
        let Ok(known) = self.writing_mut().begin_giving_back(lease.id) else {
            return LeaseReply::Busy;
        };
        let version = self.version_here(lease.id).max(known).unwrap_or_default();
        let flushed = self.cx().with_deadline(ATTEMPT, self.make_durable(lease.id)).await;
        let flushed = flushed == Ok(Ok(()));
        // else it stays the writer: what it wrote is nowhere else, or the next view's directory counts on it
        let given = flushed && same_view() && self.gives_copy_up(lease.id);
        self.writing_mut().end_giving_back(lease.id, given);
        if given { LeaseReply::Granted(version) } else { LeaseReply::Busy }
    }

    /// Drops this node's own copy.
    fn gives_copy_up(&self, id: PageId) -> bool {
        self.0.pages.borrow_mut().gives_up(id)
    }
}

/// A request for a lease, which may be given up.
struct Ask<'a> {
    service: &'a Service,
    id: PageId,
    begun: u64,
}

impl Ask<'_> {
    fn new(service: &Service, id: PageId) -> Ask<'_> {
        Ask { service, id, begun: service.writing_mut().begin_ask(id) }
    }

    /// It was granted, `version` being the newest that the directory knows. Says whether that counts.
    fn grant(&self, version: Version) -> bool {
        self.service.writing_mut().handle_granted(self.id, self.begun, version)
    }
}

impl Drop for Ask<'_> {
    fn drop(&mut self) {
        self.service.writing_mut().end_ask(self.id);
    }
}

/// A lease that is changing hands. The requester may give up meanwhile: then it stays with its holder.
struct Changing<'a> {
    service: &'a Service,
    id: PageId,
    view: u64,
    ended: bool,
}

impl Changing<'_> {
    fn new<'a>(service: &'a Service, lease: &Lease) -> Changing<'a> {
        Changing { service, id: lease.id, view: lease.view, ended: false }
    }

    /// It has changed hands, or will not. Nothing is `done` where another view began: its leases are others.
    fn end<T>(&mut self, done: impl FnOnce(&mut Leases, PageId) -> T) -> Option<T> {
        let mut home = self.service.0.home.borrow_mut();
        let ended = std::mem::replace(&mut self.ended, true) || home.view().number != self.view;
        (!ended).then(|| done(home.leases(), self.id))
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.end(|leases, id| leases.end(id, None, Version(0)));
    }
}
