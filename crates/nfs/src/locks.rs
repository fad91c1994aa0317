//! Locks of clients of NFS: who holds what, who waits, and which clients are to be told of a restart.
//!
//! The file manager decides every lock, so that clients of NFS and mounts exclude each other; this remembers what its
//! clients were told, for what the manager does not know: clients and their restarts, locks that wait, callbacks.
//!
//! | kind | methods |
//! | --- | --- |
//! | what came | [`LockTable::op_done`], [`LockTable::replied`], [`LockTable::look`] |
//! | what is to be done | [`LockTable::poll_op`], [`LockTable::poll_message`] |
//!
//! All else is for the calls of NLM and NSM ([`server`](crate::server)). An owner's operations are sent in the order of
//! what was decided here, and what the manager holds for an owner is settled by what this table says as soon as none of
//! the owner's calls is in progress.

mod calls;
mod hosts;
mod kept;
mod owners;
mod ranges;
mod waiting;

pub use calls::Message;
pub use kept::{Kept, Monitored};
pub use waiting::Blocked;

use crate::handle::Key;
use crate::limits::*;
use crate::nlm::NlmLock;
use crate::nsm;
use crate::xdr::encoded;
use calls::{Calls, Ends, What};
use core::net::{IpAddr, SocketAddr};
use hosts::{HostId, Hosts};
use node::rings::{Caller, FileOp, FileReply, Handle, Lock, LockKind};
use owners::Owners;
use std::collections::{BTreeMap, VecDeque};
use waiting::{WaiterId, Waiters};
use wire::{Errno, FileId, Time};

/// An owner of locks, by the number that the file manager knows.
pub type OwnerId = u64;

/// A request to the front ring.
#[derive(Debug)]
pub enum LockOp {
    /// This; what becomes of it is to be [told](LockTable::op_done) by this number.
    Ask(u64, Caller, FileOp),
    /// The one of this number, which waits, is to be interrupted.
    Interrupt(u64),
}

/// Why an operation of ours was asked for.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Wait(WaiterId),
    /// The manager is brought to the state of the table.
    Settle,
}

/// Purpose of a call to a client.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Grant(WaiterId),
    Notify,
    Answer,
}

/// After a restart only reclaimed locks are given, until clients had the time.
#[derive(Debug)]
struct Grace {
    end: Time,
    /// The last client that was reached, or lock that was reclaimed.
    quiet_since: Time,
    /// Clients that do not know yet.
    unaware: usize,
}

/// Initial state of a server's locks.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// The attribute of the volume's root that keeps the list of clients; none where no next incarnation could be asked
    /// for it, as at a random port.
    pub attribute: Option<Box<[u8]>>,
    /// Its content since this server has started.
    pub kept: Kept,
}

/// A client, an owner and what it does now, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Address.
    pub client: IpAddr,
    /// Name.
    pub name: Box<[u8]>,
    /// Its process, as it says.
    pub process: i32,
    /// The file.
    pub file: FileId,
    /// The bytes.
    pub lock: Lock,
    /// It does not have them yet.
    pub waits: bool,
}

/// There is no room for another client, owner, lock or waiting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// See the module's text.
#[derive(Debug)]
pub struct LockTable {
    key: Key,
    attribute: Option<Box<[u8]>>,
    state: i32,
    now: Time,
    hosts: Hosts,
    owners: Owners,
    waiters: Waiters,
    calls: Calls<Purpose>,
    grace: Option<Grace>,
    has_begun: bool,
    todo: VecDeque<LockOp>,
    asked: BTreeMap<u64, Reason>,
    next: u64,
    /// The list is being written.
    is_writing: bool,
    /// Locks that were reclaimed, and those that clients were called for.
    counters: LockCounters,
}

/// Counters of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounters {
    /// Locks that clients had from the last incarnation.
    pub reclaimed: u64,
    /// Waiting locks that were granted by a call that their clients answered.
    pub granted: u64,
    /// Clients that said that they had restarted.
    pub restarts: u64,
    /// Locks that were refused since the server had just started.
    pub in_grace: u64,
}

impl LockTable {
    /// Without locks.
    pub fn new(key: Key, beginning: Beginning) -> LockTable {
        let Beginning { attribute, kept } = beginning;
        let mut hosts = Hosts::default();
        hosts.restore(&kept, Time::ZERO);
        LockTable {
            key,
            attribute,
            state: kept.state,
            now: Time::ZERO,
            hosts,
            owners: Owners::default(),
            waiters: Waiters::default(),
            calls: Calls::default(),
            grace: None,
            has_begun: false,
            todo: VecDeque::new(),
            asked: BTreeMap::new(),
            next: 1,
            is_writing: false,
            counters: LockCounters::default(),
        }
    }

    /// The time of all that follows. The first time is that of the start.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin();
        }
    }

    /// Clients of the last incarnation are told that this is another one.
    fn begin(&mut self) {
        let told: Vec<Ends> = self.hosts.iter().map(|(_, host)| host.ends).collect();
        if told.is_empty() {
            return;
        }
        let (now, unaware) = (self.now, told.len());
        self.grace = Some(Grace { end: now + GRACE_SPAN, quiet_since: now, unaware });
        for ends in told {
            let own = ends.own.to_string();
            let notice = nsm::Notice { host: nsm::Host(own.as_bytes()), state: self.state };
            let procedure = nsm::Procedure::Notify as u32;
            let what = What { program: nsm::PROGRAM, version: nsm::VERSION, procedure };
            let times = (self.seed(), now, now + NOTIFY_SPAN);
            self.calls.begin(ends, (what, encoded(&notice)), Purpose::Notify, times);
        }
    }

    /// This incarnation's number of NSM.
    pub fn state(&self) -> i32 {
        self.state
    }

    /// Counters since the start.
    pub fn counters(&self) -> LockCounters {
        self.counters
    }

    /// Clients that have locks, wait for some, or did not long ago.
    pub fn clients(&self) -> usize {
        self.hosts.iter().count()
    }

    /// Locks that are held.
    pub fn held(&self) -> usize {
        self.owners.held()
    }

    /// Locks that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nothing of it is under way at the front ring.
    pub fn is_quiet(&self) -> bool {
        self.asked.is_empty() && self.todo.is_empty()
    }

    /// Whether only reclaimed locks are given.
    pub fn in_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(|grace| {
            let waits = grace.unaware > 0 || self.now < grace.quiet_since + GRACE_QUIET_SPAN;
            self.now < grace.end && waits
        })
    }

    /// When it is to be looked at.
    pub fn deadline(&self) -> Option<Time> {
        self.calls.deadline().into_iter().chain(self.waiters.deadline()).min()
    }

    /// Every lock, and every lock that waits.
    pub fn holdings(&self) -> impl Iterator<Item = Holding> + '_ {
        let holding = |owner: OwnerId, file, lock, waits| {
            let (host, process) = self.owners.of(owner)?;
            let host = self.hosts.get(host);
            let (client, name) = (host.ends.client.to_canonical(), host.name.clone());
            Some(Holding { client, name, process, file, lock, waits })
        };
        let held = self
            .owners
            .iter()
            .filter_map(move |(owner, file, lock)| holding(owner, file, lock, false));
        let waiting = self
            .waiters
            .iter()
            .filter_map(move |(owner, file, lock)| holding(owner, file, lock, true));
        held.chain(waiting)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A number for a call that cannot be guessed without the key.
    fn seed(&mut self) -> u32 {
        let number = self.number();
        let of = [&number.to_be_bytes()[..], &self.state.to_be_bytes()].concat();
        self.key.hash(&of) as u32
    }

    /// The next operation for the front ring.
    pub fn poll_op(&mut self) -> Option<LockOp> {
        self.todo.pop_front()
    }

    fn ask(&mut self, reason: Reason, caller: Caller, op: FileOp) -> u64 {
        let number = self.number();
        self.asked.insert(number, reason);
        self.todo.push_back(LockOp::Ask(number, caller, op));
        number
    }

    fn set(&mut self, reason: Reason, owner: OwnerId, file: FileId, lock: Lock, wait: bool) -> u64 {
        let caller = Caller { pid: lock.pid, ..Caller::default() };
        self.ask(reason, caller, set_lock(owner, file, lock, wait))
    }

    /// An operation has ended.
    pub fn op_done(&mut self, number: u64, result: Result<FileReply, Errno>) {
        match self.asked.remove(&number) {
            Some(Reason::Wait(waiter)) => self.waited(waiter, result.map(drop)),
            // what cannot be told the manager now, the front's client tells it later
            Some(Reason::Settle) | None => {}
        }
    }

    /// Periodic work.
    pub fn look(&mut self) {
        if self.grace.is_some() && !self.in_grace() {
            self.grace = None;
        }
        while let Some(purpose) = self.calls.poll_late(self.now) {
            self.called(purpose, None);
        }
        self.look_at_waiters();
    }

    /// The next datagram to a client.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.calls.poll(self.now)
    }

    /// A client's reply to one.
    pub fn replied(&mut self, from: SocketAddr, record: &[u8]) {
        if let Some((purpose, results)) = self.calls.replied(from, record, self.now) {
            self.called(purpose, Some(&results));
        }
    }

    /// A call was answered, or timed out.
    fn called(&mut self, purpose: Purpose, results: Option<&[u8]>) {
        match purpose {
            Purpose::Grant(waiter) => self.grant_answered(waiter, results.unwrap_or_default()),
            Purpose::Notify => {
                if let Some(grace) = &mut self.grace {
                    grace.unaware = grace.unaware.saturating_sub(1);
                    grace.quiet_since = self.now;
                }
            }
            Purpose::Answer => {}
        }
    }

    /// Gives up on what waits: the server is about to stop, and clients ask its next incarnation.
    pub fn stop(&mut self) {
        let all: Vec<WaiterId> = self.waiters.ids().collect();
        all.into_iter().for_each(|waiter| self.give_up(waiter));
        self.calls = Calls::default();
    }
}

/// The request of a lock to the front ring. No file needs to be open for it.
pub fn set_lock(owner: OwnerId, file: FileId, lock: Lock, wait: bool) -> FileOp {
    FileOp::SetLock { file, handle: Handle(0), owner, lock, wait, whole_file: false }
}

/// Clients: who they are, whether they are in the list, and what becomes of their locks.
impl LockTable {
    /// An owner of a client that is to have a lock; a call of it is in progress until [`rest`](LockTable::rest).
    pub fn meet(
        &mut self,
        (client, own): (IpAddr, IpAddr),
        lock: &NlmLock<'_>,
        state: i32,
    ) -> Result<OwnerId, NoRoom> {
        let ends = Ends { client, own };
        let host = self.hosts.meet(ends, lock.host.0, self.now).ok_or(NoRoom)?;
        let (before, key) = (self.hosts.get(host).owners, self.key);
        let identity = owners::Identity::new(host, lock).ok_or(NoRoom)?;
        let seed = owners::seed(&key, client, lock);
        let (owner, is_new) = self.owners.meet(identity, seed, before)?;
        let known = self.hosts.get_mut(host);
        known.owners += usize::from(is_new);
        known.state = state;
        Ok(owner)
    }

    /// The owner, if it holds anything or waits for it; a call of it is in progress until [`rest`](LockTable::rest).
    pub fn find(&mut self, client: IpAddr, lock: &NlmLock<'_>) -> Option<OwnerId> {
        let host = self.hosts.find(client, lock.host.0)?;
        self.owners.find(&owners::Identity::new(host, lock)?)
    }

    /// The number by which a lock is tested for an owner that may have none.
    pub fn peek(&self, client: IpAddr, lock: &NlmLock<'_>) -> OwnerId {
        let host = self.hosts.find(client, lock.host.0);
        let known = host.and_then(|host| owners::Identity::new(host, lock));
        let known = known.and_then(|identity| self.owners.number(&identity));
        known.unwrap_or_else(|| owners::seed(&self.key, client, lock))
    }

    /// The process and the owner's bytes of who holds a lock that is in the way, if it is a client of ours.
    pub fn holder(&self, file: FileId, lock: &Lock) -> Option<(i32, Box<[u8]>)> {
        self.owners.holder(file, lock)
    }

    /// The owner's call has ended.
    pub fn rest(&mut self, owner: OwnerId) {
        for (file, lock) in self.owners.rest(owner) {
            self.set(Reason::Settle, owner, file, lock, false);
        }
        self.forget(owner);
    }

    /// The owner's number is free again when nothing of it is here.
    fn forget(&mut self, owner: OwnerId) {
        if self.waiters.of_owner(owner).next().is_none()
            && let Some(host) = self.owners.forget(owner)
        {
            self.hosts.get_mut(host).owners -= 1;
        }
    }

    /// Whether the owner's client may reclaim what it held.
    pub fn may_reclaim(&self, owner: OwnerId) -> bool {
        self.in_grace() && self.host_of(owner).is_some_and(|host| self.hosts.get(host).may_reclaim)
    }

    /// Whether it has all of this already.
    pub fn has(&self, owner: OwnerId, file: FileId, lock: &Lock) -> bool {
        self.owners.has(owner, file, lock)
    }

    /// It did.
    pub fn reclaimed(&mut self) {
        self.counters.reclaimed += 1;
        if let Some(grace) = &mut self.grace {
            grace.quiet_since = self.now;
        }
    }

    /// A lock was refused since the server has just started.
    pub fn refused_in_grace(&mut self) {
        self.counters.in_grace += 1;
    }

    fn host_of(&self, owner: OwnerId) -> Option<HostId> {
        self.owners.of(owner).map(|(host, _)| host)
    }

    /// Whether the owner's client is to be put in the list before it gets a lock.
    pub fn is_unlisted(&self, owner: OwnerId) -> bool {
        let host = self.host_of(owner).map(|host| self.hosts.get(host));
        self.attribute.is_some() && host.is_some_and(|host| !host.is_kept)
    }

    /// The attribute and its value with all clients; `None` while another call writes it: one that was asked for
    /// earlier may arrive later and lack a client.
    pub fn begin_list(&mut self) -> Option<(Box<[u8]>, Vec<u8>)> {
        if self.is_writing {
            return None;
        }
        self.is_writing = true;
        self.hosts.forget_idle(self.now);
        let kept = Kept { state: self.state, clients: self.hosts.list() };
        self.attribute.clone().map(|attribute| (attribute, kept.encode()))
    }

    /// The list was written, with the clients that were known when it began, or not.
    pub fn end_list(&mut self, value: &[u8], is_written: bool) {
        self.is_writing = false;
        let Ok(kept) = Kept::decode(value) else { return };
        for one in kept.clients.iter().filter(|_| is_written) {
            if let Some(id) = self.hosts.find(one.client, &one.name) {
                self.hosts.get_mut(id).is_kept = true;
            }
        }
    }

    /// A client says that it has restarted (NSM): what it held and waited for is no more. How many locks.
    pub fn restarted(&mut self, client: IpAddr, name: &[u8], state: i32) -> usize {
        let all = self.hosts.restarted(client, name);
        let mut released = 0;
        for host in all {
            // a copy of the notice is late, and its client has locks again
            if self.hosts.get(host).state == state && state != 0 {
                continue;
            }
            self.hosts.get_mut(host).state = state;
            self.counters.restarts += 1;
            released += self.release(host);
        }
        released
    }

    /// The same of a client without a monitor (FREE_ALL).
    pub fn free_all(&mut self, client: IpAddr, name: &[u8]) -> usize {
        let host = self.hosts.find(client, name);
        host.map_or(0, |host| self.release(host))
    }

    /// An operator says that a client is gone for good. How many locks it had.
    pub fn drop_client(&mut self, client: IpAddr) -> usize {
        let client = client.to_canonical();
        let is_it = |(id, host): (HostId, &hosts::Host)| {
            (host.ends.client.to_canonical() == client).then_some(id)
        };
        let all: Vec<HostId> = self.hosts.iter().filter_map(is_it).collect();
        all.into_iter().map(|host| self.release(host)).sum()
    }

    fn release(&mut self, host: HostId) -> usize {
        self.hosts.get_mut(host).releases += 1;
        let waiters: Vec<WaiterId> = self.waiters.of_host(host).collect();
        // first, since one that was granted just now gives its owner back what it had before
        waiters.into_iter().for_each(|waiter| self.give_up(waiter));
        let owners = self.owners.of_host(host);
        let released = owners.iter().map(|owner| self.owners.release(*owner)).sum();
        owners.into_iter().for_each(|owner| self.settle(owner));
        released
    }

    /// How often the owner's client said that it has no locks any more: calls from before bring none.
    pub fn releases(&self, owner: OwnerId) -> u64 {
        self.host_of(owner).map_or(0, |host| self.hosts.get(host).releases)
    }

    /// Of what a call may have brought the owner nothing is noted: the manager is told so when no call is in progress.
    pub fn doubt(&mut self, owner: OwnerId, file: FileId) {
        self.owners.doubt(owner, file);
    }

    /// Tells the manager what the table says, as soon as no call of the owner is in progress.
    fn settle(&mut self, owner: OwnerId) {
        if self.owners.begin(owner) {
            self.rest(owner);
        }
    }
}

/// Locks.
impl LockTable {
    /// Whether there is room for one more lock.
    pub fn has_room(&self) -> bool {
        self.owners.held() < LOCKS_MAX
    }

    /// The bytes to release: all of them where the owner keeps nothing else, so that the front's client forgets it.
    pub fn widened(&self, owner: OwnerId, file: FileId, lock: Lock) -> Lock {
        let is_last = self.owners.is_last(owner, file, &lock);
        if is_last { ranges::whole(LockKind::Unlock, lock.pid) } else { lock }
    }

    /// The owner has, or released, what its client asked for.
    pub fn note(&mut self, owner: OwnerId, file: FileId, lock: Lock) {
        self.owners.note(owner, file, lock);
        self.told(owner, file, lock);
    }
}
