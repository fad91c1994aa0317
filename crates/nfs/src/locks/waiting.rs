//! Locks that wait: asked of the front ring with the wish to wait, then told to their clients (GRANTED) until those
//! answer.

use super::calls::What;
use super::hosts::HostId;
use super::ranges::Ranges;
use super::{LockOp, LockTable, NoRoom, OwnerId, Purpose, Reason};
use crate::limits::{
    LOCK_ANSWER_SPAN, LOCK_ANSWERS_MAX, LOCK_RETRY_SPAN, LOCK_WAITERS_MAX, LOCK_WAITERS_OF_HOST_MAX,
};
use crate::nlm::{self, Host, NetObject, NlmLock, Status, TestArgs};
use crate::xdr::{decoded, encoded};
use core::net::IpAddr;
use node::rings::{Lock, LockKind};
use std::collections::BTreeMap;
use wire::{Errno, FileId, Time};

/// A lock that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(u64);

#[derive(Debug)]
enum Stage {
    /// The operation of this number is under way.
    Asking(u64),
    /// It ended with an error that passes.
    Resting(Time),
    /// It is had, and this call tells the client; what the owner had before.
    Granting(u64, Ranges),
    /// The client does not wait any more, but the operation is under way still.
    GivenUp(u64),
}

/// A lock that is asked for, as its client calls it.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// Number that the client gave it.
    pub cookie: Box<[u8]>,
    /// As the client has it.
    pub handle: Box<[u8]>,
    /// The file.
    pub file: FileId,
    /// First byte and number of bytes, as they came.
    pub span: (u64, u64),
    /// The requested lock.
    pub lock: Lock,
}

#[derive(Debug)]
struct Waiter {
    host: HostId,
    owner: OwnerId,
    /// The owner's name.
    name: Box<[u8]>,
    blocked: Blocked,
    stage: Stage,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    all: BTreeMap<WaiterId, Waiter>,
    next: u64,
}

impl Waiters {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = WaiterId> + '_ {
        self.all.keys().copied()
    }

    pub fn of_owner(&self, owner: OwnerId) -> impl Iterator<Item = WaiterId> + '_ {
        let its = self.all.iter().filter(move |(_, waiter)| waiter.owner == owner);
        its.map(|(id, _)| *id)
    }

    pub fn of_host(&self, host: HostId) -> impl Iterator<Item = WaiterId> + '_ {
        let its = self.all.iter().filter(move |(_, waiter)| waiter.host == host);
        its.map(|(id, _)| *id)
    }

    /// Those of an owner on a file.
    fn of_file(
        &mut self,
        owner: OwnerId,
        file: FileId,
    ) -> impl Iterator<Item = (WaiterId, &mut Waiter)> {
        let is_its = move |waiter: &Waiter| waiter.owner == owner && waiter.blocked.file == file;
        let its = self.all.iter_mut().filter(move |(_, waiter)| is_its(waiter));
        its.map(|(id, waiter)| (*id, waiter))
    }

    /// Locks that are not granted yet.
    pub fn iter(&self) -> impl Iterator<Item = (OwnerId, FileId, Lock)> + '_ {
        let waits = |waiter: &&Waiter| matches!(waiter.stage, Stage::Asking(_) | Stage::Resting(_));
        let all = self.all.values().filter(waits);
        all.map(|waiter| (waiter.owner, waiter.blocked.file, waiter.blocked.lock))
    }

    pub fn deadline(&self) -> Option<Time> {
        let until = |waiter: &Waiter| match waiter.stage {
            Stage::Resting(until) => Some(until),
            _ => None,
        };
        self.all.values().filter_map(until).min()
    }

    fn find(&self, owner: OwnerId, file: FileId, lock: &Lock) -> Option<WaiterId> {
        let is_it = |waiter: &Waiter| {
            let its = waiter.blocked.lock;
            let same = (its.start, its.end, its.kind) == (lock.start, lock.end, lock.kind);
            let is_given_up = matches!(waiter.stage, Stage::GivenUp(_));
            waiter.owner == owner && waiter.blocked.file == file && same && !is_given_up
        };
        self.all.iter().find(|(_, waiter)| is_it(waiter)).map(|(id, _)| *id)
    }
}

impl LockTable {
    /// A lock waits. One that does already goes on waiting, whatever it was called then.
    pub fn wait(
        &mut self,
        owner: OwnerId,
        of: &NlmLock<'_>,
        blocked: Blocked,
    ) -> Result<(), NoRoom> {
        if let Some(known) = self.waiters.find(owner, blocked.file, &blocked.lock) {
            self.waiters.all.get_mut(&known).expect("it was found").blocked.cookie = blocked.cookie;
            return Ok(());
        }
        let host = self.host_of(owner).ok_or(NoRoom)?;
        let of_host = self.hosts.get(host).waiters;
        if self.waiters.len() >= LOCK_WAITERS_MAX || of_host >= LOCK_WAITERS_OF_HOST_MAX {
            return Err(NoRoom);
        }
        self.hosts.get_mut(host).waiters += 1;
        let id = WaiterId(self.waiters.next);
        self.waiters.next += 1;
        let (file, lock) = (blocked.file, blocked.lock);
        let stage = Stage::Asking(self.set(Reason::Wait(id), owner, file, lock, true));
        let name = of.owner.0.into();
        self.waiters.all.insert(id, Waiter { host, owner, name, blocked, stage });
        Ok(())
    }

    /// The client does not wait any more, or was given the lock by another call. Whether it did wait.
    pub fn cancel(&mut self, owner: OwnerId, file: FileId, lock: &Lock) -> bool {
        let found = self.waiters.find(owner, file, lock);
        found.into_iter().for_each(|waiter| self.give_up(waiter));
        found.is_some()
    }

    /// The client was given by another call what it waits for.
    pub fn overtake(&mut self, owner: OwnerId, file: FileId, lock: &Lock) {
        let Some(found) = self.waiters.find(owner, file, lock) else { return };
        if let Stage::Granting(call, _) = self.waiters.all[&found].stage {
            self.calls.forget(call);
            self.remove(found);
        } else {
            self.give_up(found);
        }
    }

    pub(super) fn give_up(&mut self, id: WaiterId) {
        let Some(waiter) = self.waiters.all.get_mut(&id) else { return };
        let given_up = Stage::GivenUp(0);
        match std::mem::replace(&mut waiter.stage, given_up) {
            Stage::Asking(number) | Stage::GivenUp(number) => {
                waiter.stage = Stage::GivenUp(number);
                self.todo.push_back(LockOp::Interrupt(number));
            }
            Stage::Resting(_) => self.remove(id),
            Stage::Granting(call, before) => {
                self.calls.forget(call);
                self.take_back(id, (call, before));
            }
        }
    }

    fn remove(&mut self, id: WaiterId) {
        let Some(waiter) = self.waiters.all.remove(&id) else { return };
        self.hosts.get_mut(waiter.host).waiters -= 1;
        self.forget(waiter.owner);
    }

    /// The client has itself set or released a lock, or taken one that waited. Other calls that tell it of locks take
    /// back no more than they gave it; one whose lock it has released is done, whatever it is answered.
    pub(super) fn told(&mut self, owner: OwnerId, file: FileId, lock: Lock) {
        let mut released = Vec::new();
        for (id, waiter) in self.waiters.of_file(owner, file) {
            let its = waiter.blocked.lock;
            let Stage::Granting(call, before) = &mut waiter.stage else { continue };
            before.set(lock);
            let is_whole = lock.start <= its.start && its.end <= lock.end;
            if lock.kind == LockKind::Unlock && is_whole {
                released.push((id, *call));
            }
        }
        for (id, call) in released {
            self.calls.forget(call);
            self.remove(id);
        }
    }

    /// The client has no use for the lock that this call gave it. Ranges that other calls of the owner give it stay.
    fn take_back(&mut self, id: WaiterId, (call, before): (u64, Ranges)) {
        let Some(waiter) = self.waiters.all.get(&id) else { return };
        let (owner, file, lock) = (waiter.owner, waiter.blocked.file, waiter.blocked.lock);
        let mut left = self.owners.ranges(owner, file).without(&lock, &before);
        for (other, waiter) in self.waiters.of_file(owner, file) {
            let its = waiter.blocked.lock;
            let (start, end) = (its.start.max(lock.start), its.end.min(lock.end));
            let Stage::Granting(its_call, its_before) = &mut waiter.stage else { continue };
            if other == id || start > end {
                continue;
            }
            left.set(Lock { start, end, ..its });
            if *its_call > call {
                *its_before = its_before.without(&lock, &before);
            }
        }
        self.owners.restore(owner, file, left);
        self.settle(owner);
        self.remove(id);
    }

    /// The operation of a waiting lock has ended.
    pub(super) fn waited(&mut self, id: WaiterId, result: Result<(), Errno>) {
        let Some(waiter) = self.waiters.all.get_mut(&id) else { return };
        let (owner, file, lock) = (waiter.owner, waiter.blocked.file, waiter.blocked.lock);
        let is_given_up = matches!(waiter.stage, Stage::GivenUp(_));
        match result {
            Ok(()) if is_given_up => {
                self.owners.doubt(owner, file);
                self.settle(owner);
                self.remove(id);
            }
            Ok(()) => {
                let before = self.owners.ranges(owner, file);
                self.owners.note(owner, file, lock);
                self.grant(id, before, self.now);
            }
            Err(Errno::EINTR | Errno::ESTALE) => self.remove(id),
            Err(_) if is_given_up => self.remove(id),
            Err(_) => waiter.stage = Stage::Resting(self.now + LOCK_RETRY_SPAN),
        }
    }

    fn grant(&mut self, id: WaiterId, before: Ranges, at: Time) {
        let seed = self.seed();
        let waiter = self.waiters.all.get_mut(&id).expect("it was found");
        let host = self.hosts.get(waiter.host);
        let Blocked { cookie, handle, span: (offset, bytes), lock, .. } = &waiter.blocked;
        let lock_of = NlmLock {
            host: Host(&host.name),
            handle: NetObject(handle),
            owner: NetObject(&waiter.name),
            process: lock.pid as i32,
            offset: *offset,
            bytes: *bytes,
        };
        let exclusive = lock.kind == LockKind::Write;
        let arguments = encoded(&TestArgs { cookie: NetObject(cookie), exclusive, lock: lock_of });
        let call = (of_nlm(nlm::Procedure::Granted), arguments);
        // until it is answered: a client that is gone has its locks until it says so
        let times = (seed, at, Time::NEVER);
        let call = self.calls.begin(host.ends, call, Purpose::Grant(id), times);
        waiter.stage = Stage::Granting(call, before);
    }

    /// The client said whether it still wants the lock.
    pub(super) fn grant_answered(&mut self, id: WaiterId, results: &[u8]) {
        let Some(waiter) = self.waiters.all.get_mut(&id) else { return };
        let (owner, file, lock) = (waiter.owner, waiter.blocked.file, waiter.blocked.lock);
        let Stage::Granting(call, before) = &mut waiter.stage else { return };
        let (call, before) = (*call, std::mem::take(before));
        let answer = decoded::<nlm::Answer<'_>>(results).map(|answer| answer.status);
        match answer {
            Ok(Status::Granted) => {
                self.counters.granted += 1;
                self.remove(id);
                self.told(owner, file, lock);
            }
            Ok(Status::DeniedGracePeriod) | Err(_) => {
                self.grant(id, before, self.now + LOCK_RETRY_SPAN);
            }
            Ok(_) => self.take_back(id, (call, before)),
        }
    }

    pub(super) fn look_at_waiters(&mut self) {
        let now = self.now;
        let due = |waiter: &Waiter| match waiter.stage {
            Stage::Resting(until) => until <= now,
            _ => false,
        };
        let all = self.waiters.all.iter().filter(|(_, waiter)| due(waiter));
        let all: Vec<WaiterId> = all.map(|(id, _)| *id).collect();
        for id in all {
            let waiter = &self.waiters.all[&id];
            let (owner, file, lock) = (waiter.owner, waiter.blocked.file, waiter.blocked.lock);
            let number = self.set(Reason::Wait(id), owner, file, lock, true);
            self.waiters.all.get_mut(&id).expect("it was found").stage = Stage::Asking(number);
        }
        // one that came before its operation was taken up is lost
        for waiter in self.waiters.all.values() {
            if let Stage::GivenUp(number) = waiter.stage {
                self.todo.push_back(LockOp::Interrupt(number));
            }
        }
    }

    /// Sends the result of an asynchronous call, as a call to the client.
    pub fn answer(
        &mut self,
        (client, own): (IpAddr, IpAddr),
        procedure: nlm::Procedure,
        arguments: Vec<u8>,
    ) {
        if self.calls.len() >= LOCK_ANSWERS_MAX + LOCK_WAITERS_MAX {
            return;
        }
        let times = (self.seed(), self.now, self.now + LOCK_ANSWER_SPAN);
        let ends = super::Ends { client, own };
        self.calls.tell(ends, (of_nlm(procedure), arguments), Purpose::Answer, times);
    }
}

fn of_nlm(procedure: nlm::Procedure) -> What {
    let (program, version) = (nlm::PROGRAM, nlm::VERSION);
    What { program, version, procedure: procedure as u32 }
}
