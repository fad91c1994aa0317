//! Operations in which other managers have a part: the coordinator's side.
//!
//! It runs the operation with what it has, fetches what is lacking, has the parts of others prepared, and runs it once
//! more where it is committed: what happened here meanwhile counts, and nothing of this manager's own is held for it.

use super::Service;
use super::dispatch::{call_name, change};
use crate::foreign::{Foreign, Part, Parts, Stop, Want};
use crate::holds::Tx;
use crate::limits::{DEADLINE, FETCHED_AT_ONCE, HOLD_SPAN, RETRY_PAUSE, WAITING_MAX};
use crate::manager::{Once, Origin, Proposal};
use crate::objects::Objects;
use crate::protocol::managers::{Fetch, Prepare, op};
use crate::protocol::{CallNumber, Operation, Outcome};
use crate::transaction::CallName;
use node::{Bug, Request, race};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::field::encoded;
use wire::{Decoder, Errno, NodeId, Time};

/// How an attempt ended.
enum Attempt {
    Done(Vec<u8>),
    Failed(Errno),
    /// Another operation has what this one wants, or a manager did not answer.
    Again,
    /// It is decided, but not on stable storage; with the error of that.
    Unsure(Errno),
}

/// Of an answer of another manager.
impl From<Errno> for Attempt {
    fn from(errno: Errno) -> Attempt {
        match errno {
            // A site moved, or something is held.
            Errno::EBUSY | Errno::EAGAIN | Errno::EREMCHG => Attempt::Again,
            Errno::ETIMEDOUT | Errno::EHOSTDOWN | Errno::ENODEV => Attempt::Again,
            errno => Attempt::Failed(errno),
        }
    }
}

impl Attempt {
    /// Of an operation that fails here, whatever the error: EBUSY is then its own.
    fn failed(errno: Errno) -> Attempt {
        if errno == Errno::EREMCHG { Attempt::Again } else { Attempt::Failed(errno) }
    }
}

/// An operation with who asks for it.
struct ClientOperation<'a> {
    operation: &'a Operation<'a>,
    call: CallName,
    origin: Origin,
}

impl<O: Objects> Service<O> {
    /// Executes an operation that waits for others in a task of its own: none of those that serve may wait for a
    /// manager that is away.
    pub(super) fn wait_for_others(
        self: &Rc<Self>,
        request: Request,
        number: CallNumber,
        message: Vec<u8>,
        stop: Stop,
    ) {
        if self.waiting.get() >= WAITING_MAX {
            return self.answer(request, Err(Errno::ETIMEDOUT));
        }
        self.waiting.set(self.waiting.get() + 1);
        let service = self.clone();
        self.cx.spawn("names waits", async move {
            let result = service.run_waiting(&request, number, &message, stop).await;
            service.waiting.set(service.waiting.get() - 1);
            service.answer(request, result);
        });
    }

    async fn run_waiting(
        self: &Rc<Self>,
        request: &Request,
        number: CallNumber,
        message: &[u8],
        mut stop: Stop,
    ) -> Result<Vec<u8>, Errno> {
        let end = self.cx.now() + DEADLINE;
        let operation = Operation::decode(request.op, &mut Decoder::new(message));
        let operation = operation.map_err(|_| Errno::EPROTO)?;
        loop {
            match stop {
                Stop::Failed(errno) => return Err(errno),
                Stop::Wants(_) if !operation.is_once() => return Err(Errno::EREMOTE),
                Stop::Wants(_) => {
                    let client = number.client(request.source, request.client);
                    let call = call_name(number, &operation);
                    let asked = ClientOperation {
                        operation: &operation,
                        call,
                        origin: self.origin(client),
                    };
                    return self.run_across(&asked, end).await;
                }
                Stop::Blocked(file) => self.until_released(file, end).await?,
            }
            if !self.is_here(number, &operation) {
                return Err(Errno::EREMCHG);
            }
            stop = match self.run(request, number, &operation).await {
                Ok(reply) => return Ok(reply),
                Err(stop) => stop,
            };
        }
    }

    /// Waits until an operation that held the file has ended; ETIMEDOUT after `end`.
    async fn until_released(&self, file: wire::FileId, end: Time) -> Result<(), Errno> {
        loop {
            let released = self.released.wait();
            let blocks = {
                let manager = self.manager.borrow();
                manager.holds.blocks(file, true) || manager.sites.is_leaving(file.site())
            };
            if !blocks {
                return Ok(());
            }
            if self.cx.now() >= end {
                return Err(Errno::ETIMEDOUT);
            }
            race(released, self.cx.sleep_until(end)).await;
        }
    }

    async fn run_across(
        self: &Rc<Self>,
        asked: &ClientOperation<'_>,
        end: Time,
    ) -> Result<Vec<u8>, Errno> {
        loop {
            self.until_resumed().await;
            // A late word about an earlier attempt is about that one only.
            let tx = Tx { manager: self.cx.id(), number: self.cx.random() };
            let mut participants = BTreeSet::new();
            self.undecided.borrow_mut().insert(tx);
            let attempt = self.attempt(asked, tx, &mut participants).await;
            let attempt = attempt.unwrap_or_else(|attempt| attempt);
            if let Attempt::Unsure(errno) = attempt {
                self.cx.spawn("names decide", self.clone().finish_late(tx));
                return Err(errno);
            }
            self.undecided.borrow_mut().remove(&tx);
            if !matches!(attempt, Attempt::Done(_)) {
                self.give_up(tx, participants);
            }
            match attempt {
                Attempt::Unsure(errno) => return Err(errno),
                Attempt::Done(reply) => return Ok(reply),
                Attempt::Failed(errno) => return Err(errno),
                Attempt::Again if self.cx.now() >= end => return Err(Errno::ETIMEDOUT),
                Attempt::Again => {}
            }
            let pause = Duration::from_micros(self.cx.random() % RETRY_PAUSE.as_micros() as u64);
            self.cx.sleep(pause).await;
        }
    }

    /// One attempt; what it holds elsewhere is held by `participants`.
    async fn attempt(
        self: &Rc<Self>,
        asked: &ClientOperation<'_>,
        tx: Tx,
        participants: &mut BTreeSet<NodeId>,
    ) -> Result<Attempt, Attempt> {
        let (mut foreign, begun) = (Foreign::default(), self.cx.now());
        let parts = loop {
            self.admit_operation(asked.operation).await?;
            match self.propose(asked, &foreign) {
                Ok(Proposal { parts, .. }) => break parts,
                Err(Stop::Failed(errno)) => return Err(Attempt::failed(errno)),
                Err(Stop::Wants(wants)) => {
                    self.fetch(tx, asked.origin.client, wants, &mut foreign, participants).await?;
                }
                // To wait with what is held elsewhere would be to wait for ever, where that one waits for this.
                Err(Stop::Blocked(_)) => return Err(Attempt::Again),
            }
            if self.cx.now().since(begun) > HOLD_SPAN / 2 {
                return Err(Attempt::Again);
            }
        };
        // Managers that it only reads from; the others let go with their parts.
        let readers: BTreeSet<NodeId> =
            participants.iter().filter(|manager| !parts.contains_key(*manager)).copied().collect();
        self.prepare(tx, &parts, &readers).await?;
        self.admit_operation(asked.operation).await?;
        // Files that were only read are held no longer than that; clocks may differ by a tenth.
        if self.cx.now().since(begun) > HOLD_SPAN * 8 / 10 {
            return Err(Attempt::Again);
        }
        // Nothing waits from here to the commit.
        let proposal = match self.propose(asked, &foreign) {
            Ok(proposal) => proposal,
            Err(Stop::Failed(errno)) => return Err(Attempt::failed(errno)),
            Err(_) => return Err(Attempt::Again),
        };
        if proposal.parts != parts {
            return Err(Attempt::Again);
        }
        let decided = self.decide(asked.origin.client, tx, proposal).await;
        self.give_up(tx, readers);
        decided.map(Attempt::Done)
    }

    fn propose(&self, asked: &ClientOperation<'_>, foreign: &Foreign) -> Result<Proposal, Stop> {
        self.manager.borrow().propose(
            asked.origin,
            asked.call,
            foreign,
            |transaction| change(transaction, asked.call, asked.operation),
            |outcome: Outcome| outcome.encode(),
        )
    }

    /// Fetches what the operation lacks, each from the manager that it is at.
    async fn fetch(
        self: &Rc<Self>,
        tx: Tx,
        client: u64,
        wants: BTreeSet<Want>,
        foreign: &mut Foreign,
        participants: &mut BTreeSet<NodeId>,
    ) -> Result<(), Attempt> {
        let mut by_manager: BTreeMap<NodeId, Vec<Want>> = BTreeMap::new();
        for want in wants {
            let manager = self.manager.borrow().sites.manager(want.site());
            by_manager.entry(manager).or_default().push(want);
        }
        let some = by_manager.iter().flat_map(|(manager, wants)| {
            wants.chunks(FETCHED_AT_ONCE).map(|some| (*manager, some.to_vec()))
        });
        for (manager, wants) in some {
            participants.insert(manager);
            let fetch = Fetch { tx, client, wants };
            let got = self.ask_manager::<Vec<_>>(manager, op::FETCH, &encoded(&fetch)).await;
            if got == Err(Errno::EREMCHG) {
                self.exchange_table(manager).await;
            }
            let got = got?;
            if got.len() != fetch.wants.len() {
                return Err(Attempt::Failed(Errno::EPROTO));
            }
            fetch.wants.into_iter().zip(got).for_each(|(want, got)| foreign.insert(want, got));
        }
        Ok(())
    }

    /// Each part is on stable storage at its manager, and so is what was only read: nothing that it is decided by is
    /// taken back.
    async fn prepare(
        &self,
        tx: Tx,
        parts: &Parts,
        readers: &BTreeSet<NodeId>,
    ) -> Result<(), Attempt> {
        let prepare = |part: &Part| (op::PREPARE, encoded(&Prepare { tx, part: part.clone() }));
        let parts = parts.iter().map(|(manager, part)| (*manager, prepare(part)));
        let reads = readers.iter().map(|manager| (*manager, (op::STAY, encoded(&tx))));
        let calls = parts.chain(reads).map(async |(manager, (op, message))| {
            self.ask_manager::<()>(manager, op, &message).await
        });
        node::all(calls).await.into_iter().collect::<Result<(), Errno>>()?;
        Ok(())
    }

    /// Commits the operation; the answer, when that is on stable storage.
    async fn decide(
        self: &Rc<Self>,
        client: u64,
        tx: Tx,
        proposal: Proposal,
    ) -> Result<Vec<u8>, Attempt> {
        let Proposal { reply, changes, parts, repeated } = proposal;
        if repeated {
            let once = Once { reply, append: None, repeated };
            // Its parts were prepared for nothing.
            self.give_up(tx, parts.into_keys().collect());
            // The earlier attempt may have failed to sync.
            return Ok(self.told_synced(once).await??);
        }
        let participants: Vec<NodeId> = parts.into_keys().collect();
        let append = self.manager.borrow_mut().decide(client, tx, changes, participants.clone());
        let once = Once { reply, append, repeated };
        let told = match self.cx.has_bug(Bug::DecisionNotSynced) {
            false => self.told_synced(once).await.flatten(),
            true => self.told(once).await,
        };
        let reply = told.map_err(Attempt::Unsure)?;
        if !participants.is_empty() {
            self.cx.spawn("names finish", self.clone().finish(tx, participants));
        }
        Ok(reply)
    }

    /// Tells the holders of an operation's files that it is given up. One that does not hear it asks.
    fn give_up(self: &Rc<Self>, tx: Tx, participants: BTreeSet<NodeId>) {
        let service = self.clone();
        self.cx.spawn("names give up", async move {
            for manager in participants {
                let _ = service.ask_manager::<()>(manager, op::ABORT, &encoded(&tx)).await;
            }
        });
    }
}
