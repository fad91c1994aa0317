//! The state machine that joins calls, sessions and the endpoint.

use crate::CallError;
use crate::calls::{Calls, State as CallState};
use crate::limits::*;
use crate::outbox::Outbox;
use crate::server::{RequestKey, Server};
use crate::session::{Session, State};
use endpoint::{Endpoint, ReceiveMessage};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use wire::{Channel, ControlView, Kind, NodeId, Time};

/// Configuration of a node's calls.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This node.
    pub id: NodeId,
    /// This node's incarnation: another number in each, and a greater one where the clock allows.
    pub incarnation: u64,
    /// Random: the first session epoch.
    pub seed: u64,
    /// Slots granted to each client.
    pub slots: u16,
    /// Pages of request payload that all clients share.
    pub budget_pages: usize,
    /// First time between two sendings of a request.
    pub retry: Duration,
    /// Planted bugs; none outside of tests of the checkers.
    pub flaws: Flaws,
}

/// Planted bugs, for simulations that test whether their checkers find them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flaws {
    /// A request that comes again is executed again.
    pub executed_twice: bool,
    /// A call that is given up does not cancel its payload token.
    pub token_not_cancelled: bool,
    /// Calls under way when a peer restarts never end.
    pub lost_peer_ignored: bool,
    /// A request of an earlier session is executed.
    pub old_session_accepted: bool,
}

impl Config {
    /// The usual limits.
    pub fn new(id: NodeId, incarnation: u64, seed: u64) -> Config {
        Config {
            id,
            incarnation,
            seed,
            slots: SLOTS,
            budget_pages: BUDGET_PAGES,
            retry: RETRY,
            flaws: Flaws::default(),
        }
    }
}

/// An event of a step.
#[derive(Debug)]
pub enum Event {
    /// A request to execute and answer. Its data is in the message, which goes back to the endpoint when that is taken.
    Request {
        /// For the reply.
        key: RequestKey,
        /// The entry with body, data and trailer.
        message: ReceiveMessage,
    },
    /// The answer to a call. The frames that the call brought are in the message's `landed`.
    Reply {
        /// Of the call.
        ticket: u64,
        /// The service's verdict, 0 is success.
        status: u16,
        /// The entry with body, data and trailer.
        message: ReceiveMessage,
    },
    /// The call ended without an answer.
    Failed {
        /// Of the call.
        ticket: u64,
        /// Why.
        error: CallError,
    },
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent for the first time.
    pub calls: u64,
    /// Requests retransmitted.
    pub retries: u64,
    /// Requests given out for execution.
    pub executed: u64,
    /// Duplicate requests that were answered from the slot or ignored.
    pub duplicates: u64,
    /// Replies without a call that waits for them.
    pub stale_replies: u64,
    /// Requests in epochs that are not ours, each answered by a reset.
    pub resets_sent: u64,
    /// Sessions lost to a peer's restart.
    pub sessions_lost: u64,
    /// Requests sent back for lack of memory.
    pub overloads: u64,
    /// Times a call had to wait for slots or window.
    pub credit_stalls: u64,
    /// Answers lost because too many waited for the send ring.
    pub answers_lost: u64,
    /// Duplicate requests received when their reply was not kept any more.
    pub forgotten: u64,
}

/// Calls and requests of one node. See the crate's text for how to drive it.
#[derive(Debug)]
pub struct Rpc {
    pub(crate) config: Config,
    pub(crate) calls: Calls,
    pub(crate) sessions: BTreeMap<NodeId, Session>,
    pub(crate) server: Server,
    pub(crate) outbox: Outbox,
    pub(crate) events: VecDeque<Event>,
    /// No timer is due before this; it may be early.
    pub(crate) next_check: Time,
    /// When to try the full send ring again.
    pub(crate) flush_at: Time,
    pub(crate) counters: Counters,
    /// For each channel, which operations may be executed twice.
    pub(crate) pure: [Option<fn(u16) -> bool>; Channel::COUNT],
}

impl Rpc {
    /// A node without calls or sessions.
    pub fn new(config: Config) -> Rpc {
        Rpc {
            config,
            calls: Calls::new(CALLS),
            sessions: BTreeMap::new(),
            server: Server::new(first_epoch(&config), config.slots, config.budget_pages),
            outbox: Outbox::new(config.id),
            events: VecDeque::new(),
            next_check: Time::NEVER,
            flush_at: Time::ZERO,
            counters: Counters::default(),
            pure: [None; Channel::COUNT],
        }
    }

    /// The service of `channel` says which of its operations may be executed twice: no reply is kept for them, though a
    /// caller asks for it. Of a channel that says nothing each caller decides.
    pub fn set_pure(&mut self, channel: Channel, is_pure: fn(u16) -> bool) {
        self.pure[usize::from(channel.0)] = Some(is_pure);
    }

    // Getters.

    /// Pages of the replies that are kept for clients.
    pub fn kept_pages(&self) -> usize {
        self.server.kept_pages()
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        Counters { answers_lost: self.outbox.lost(), ..self.counters }
    }

    /// Calls that have not ended.
    pub fn open_calls(&self) -> usize {
        self.calls.open()
    }

    /// When the oldest call that has not ended was started, for each peer that was called.
    pub fn oldest_calls(&self) -> BTreeMap<NodeId, Time> {
        let mut oldest = BTreeMap::new();
        for call in self.calls.all_open() {
            let begun = oldest.entry(call.to).or_insert(call.begun);
            *begun = call.begun.min(*begun);
        }
        oldest
    }

    /// Clients with a session here.
    pub fn clients(&self) -> usize {
        self.server.len()
    }

    /// Calls that are in slots of `peer`.
    pub fn under_way(&self, peer: NodeId) -> usize {
        self.sessions.get(&peer).map_or(0, Session::under_way)
    }

    // Input.

    /// Takes a message that the endpoint received. The caller handles the event it leads to, if any; more may follow
    /// from [`poll_event`](Rpc::poll_event).
    pub fn handle_message(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        message: ReceiveMessage,
    ) -> Option<Event> {
        let control = endpoint.arrived(&message).control;
        let view = ControlView::checked_before(&control);
        let (header, call) = (view.header(), view.call());
        match header.kind {
            Kind::Request => return self.handle_request(now, endpoint, message, &header, &call),
            Kind::Reply => return self.handle_reply(now, endpoint, message, &header, &call),
            Kind::Done => self.handle_done(now, endpoint, &header, &call),
            Kind::Hello => self.handle_hello(now, endpoint, &header, view.body()),
            Kind::Welcome => self.handle_welcome(now, endpoint, &header, view.body()),
            Kind::Reset => self.handle_reset(now, endpoint, &header),
            Kind::Credit | Kind::Message => {}
        }
        endpoint.release_rcvmsg(message);
        None
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.outbox.flush(endpoint);
        self.flush_at = now + OVERLOAD_PAUSE;
        if now < self.next_check {
            return;
        }
        self.next_check = Time::NEVER;
        for index in self.calls.indices() {
            self.check_call(now, endpoint, index);
        }
        let mut next = self.sessions.keys().next().copied();
        while let Some(peer) = next {
            self.check_session(now, endpoint, peer);
            let after = (Bound::Excluded(peer), Bound::Unbounded);
            next = self.sessions.range(after).next().map(|(peer, _)| *peer);
        }
    }

    /// When [`handle_timeout`](Rpc::handle_timeout) is due at the latest; [`Time::NEVER`] when nothing waits for the
    /// time. Calling it whenever the send ring has got room again saves a millisecond.
    pub fn poll_timeout(&self) -> Time {
        if self.outbox.waiting() > 0 { self.flush_at.min(self.next_check) } else { self.next_check }
    }

    /// The next event that did not follow from a message alone.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A link to the peer is there (again): what may have been lost is sent at once.
    pub fn link_up(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        session.down_since = None;
        if session.state == State::Greeting {
            session.greet_at = now;
        }
        for index in self.calls.indices() {
            let record = self.calls.at(index);
            if record.state == CallState::Sent && record.to == peer {
                record.retry_at = now;
            }
        }
        self.next_check = now;
        self.handle_timeout(now, endpoint);
    }

    /// The link to the peer is gone. Calls wait for it to come back, for [`PEER_LOST`] at most.
    pub fn link_down(&mut self, now: Time, peer: NodeId) {
        let session = self.sessions.entry(peer).or_insert_with(Session::new);
        session.down_since.get_or_insert(now);
        self.next_check = self.next_check.min(now + PEER_LOST);
    }
}

/// The epoch before the first that a server grants: another one in every incarnation, also when the seed is the same.
fn first_epoch(config: &Config) -> u32 {
    (config.seed.wrapping_add(config.incarnation).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
