//! The state machine that joins calls, sessions and the endpoint.

use crate::calls::{CallId, Calls, Delegated, Start, State as CallState};
use crate::limits::*;
use crate::outbox::{Letter, Outbox};
use crate::server::{Admission, RequestKey, Server};
use crate::session::{Session, State};
use crate::{CallError, status};
use endpoint::{Endpoint, Frame, FrameMut, ReceiveMessage};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use wire::{
    CallHeader, Channel, ControlView, Decoder, Encoder, Flags, Header, Kind, NodeId, SessionEpoch,
    Time, Token,
};

/// What a node's calls are configured by.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Who we are.
    pub id: NodeId,
    /// Which life of us: greater than in every earlier life.
    pub incarnation: u64,
    /// Random: the first session epoch.
    pub seed: u64,
    /// Slots granted to each client.
    pub slots: u16,
    /// Pages of request payload that all clients share.
    pub budget_pages: usize,
    /// First time between two sendings of a request.
    pub retry: Duration,
}

impl Config {
    /// The usual limits.
    pub fn new(id: NodeId, incarnation: u64, seed: u64) -> Config {
        Config { id, incarnation, seed, slots: SLOTS, budget_pages: BUDGET_PAGES, retry: RETRY }
    }
}

/// What came out of a step.
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

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent for the first time.
    pub calls: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Requests given out for execution.
    pub executed: u64,
    /// Requests that came again and were answered from the slot or ignored.
    pub duplicates: u64,
    /// Replies that nobody waits for.
    pub stale_replies: u64,
    /// Messages in epochs that are not ours.
    pub resets_sent: u64,
    /// Sessions lost to a peer's restart.
    pub sessions_lost: u64,
    /// Requests sent back for lack of memory.
    pub overloads: u64,
    /// Times a call had to wait for slots or window.
    pub credit_stalls: u64,
}

/// Calls and requests of one node. See the crate's text for how to drive it.
#[derive(Debug)]
pub struct Rpc {
    config: Config,
    calls: Calls,
    sessions: BTreeMap<NodeId, Session>,
    server: Server,
    outbox: Outbox,
    events: VecDeque<Event>,
    /// No timer is due before this; it may be early.
    next_check: Time,
    counters: Counters,
}

impl Rpc {
    /// A node without calls or sessions.
    pub fn new(config: Config) -> Rpc {
        Rpc {
            config,
            calls: Calls::new(CALLS),
            sessions: BTreeMap::new(),
            server: Server::new(config.seed as u32, config.slots, config.budget_pages),
            outbox: Outbox::new(config.id),
            events: VecDeque::new(),
            next_check: Time::NEVER,
            counters: Counters::default(),
        }
    }

    // Getters.

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Calls that have not ended.
    pub fn open_calls(&self) -> usize {
        self.calls.open()
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

    /// Takes a message that the endpoint received. What it leads to, if anything, is for the caller; more may follow
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
            Kind::Credit => {}
        }
        endpoint.release_rcvmsg(message);
        None
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.outbox.flush(endpoint);
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

    /// When [`handle_timeout`](Rpc::handle_timeout) is due; at once while messages wait for the send ring.
    pub fn poll_timeout(&self) -> Time {
        if self.outbox.waiting() > 0 { Time::ZERO } else { self.next_check }
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
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.down_since.get_or_insert(now);
            self.next_check = self.next_check.min(now + PEER_LOST);
        }
    }

    // Commands.

    /// Starts a call: takes the frames of both lists, leaving them empty. When all records are in use the lists stay
    /// as they are.
    pub fn call(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        start: &Start<'_>,
        data: &mut Vec<Frame>,
        into: &mut Vec<FrameMut>,
    ) -> Result<CallId, CallError> {
        let id = self.calls.begin(start, data, into).ok_or(CallError::Overloaded)?;
        self.enqueue(now, endpoint, id);
        Ok(id)
    }

    fn enqueue(&mut self, now: Time, endpoint: &mut Endpoint, id: CallId) {
        let record = self.calls.at(id.index() as u16);
        let (to, deadline) = (record.to, record.deadline);
        self.next_check = self.next_check.min(deadline);
        let session = self.sessions.entry(to).or_insert_with(Session::new);
        session.waiting.push_back(id.index() as u16);
        self.pump(now, endpoint, to);
        let stalled = self.sessions[&to].waiting.back() == Some(&(id.index() as u16));
        self.counters.credit_stalls += u64::from(stalled);
    }

    /// Gives up a call: its token is revoked at once, no event follows. Nothing happens when it has ended.
    pub fn cancel(&mut self, now: Time, endpoint: &mut Endpoint, id: CallId) {
        if self.calls.find(id).is_some() {
            self.finish(now, endpoint, id.index() as u16);
        }
    }

    /// Answers a request. Dropped when the caller's session is gone or its slot has gone on.
    pub fn reply(
        &mut self,
        endpoint: &mut Endpoint,
        key: &RequestKey,
        answer_status: u16,
        body: &[u8],
        data: &[Frame],
        trailer: &[u8],
    ) {
        let (slots, window) = (self.server.slots(), self.server.window());
        let Some(session) = self.server.find(key.source, key.epoch) else { return };
        if !session.awaits(key) {
            return;
        }
        let mut header = Header::new(Kind::Reply, self.config.id, key.origin);
        (header.credit_slots, header.credit_frames) = (slots, window);
        (header.channel, header.token, header.epoch) = (key.channel, key.token, key.origin_epoch);
        header.sequence = key.sequence;
        header.flags = if key.origin == key.source { Flags::default() } else { Flags::DELEGATED };
        let call = CallHeader {
            call: key.call,
            slot: key.slot,
            op: key.op,
            status: answer_status,
            ..CallHeader::default()
        };
        let letter = Letter { header, call, body, data, trailer };
        let control = self.outbox.post(endpoint, &letter);
        session.answered(key, &control, data, trailer);
        if key.origin != key.source {
            self.send_done(endpoint, key);
        }
    }

    /// Passes a request on to `to`, which answers the caller itself (USENIX'98: delegated RPC). Only for calls that
    /// may be executed twice. When no record is free the caller is told to try again.
    pub fn forward(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        key: &RequestKey,
        to: NodeId,
        body: &[u8],
    ) {
        assert!(!key.once, "a call that must not be executed twice is not delegated");
        let Some(session) = self.server.find(key.source, key.epoch) else { return };
        if !session.awaits(key) {
            return;
        }
        session.answered(key, &wire::Control::default(), &[], &[]);
        let start = Start {
            to,
            channel: key.channel,
            op: key.op,
            once: false,
            deadline: key.deadline,
            body,
            trailer: &[],
            ticket: u64::MAX,
        };
        let Some(id) = self.calls.begin(&start, &mut Vec::new(), &mut Vec::new()) else { return };
        self.calls.at(id.index() as u16).delegated = Some(Delegated {
            origin: key.origin,
            epoch: key.origin_epoch,
            call: key.call,
            token: key.token,
        });
        self.enqueue(now, endpoint, id);
    }

    // The client's side.

    /// Sends what waits for this peer, as far as session, slots, window and ring allow.
    fn pump(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        match session.state {
            State::Closed if !session.waiting.is_empty() => self.greet(now, endpoint, peer),
            State::Open => while self.send_next(now, endpoint, peer) {},
            _ => {}
        }
    }

    fn send_next(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) -> bool {
        let session = self.sessions.get_mut(&peer).expect("pump found it");
        let Some(&index) = session.waiting.front() else { return false };
        let record = self.calls.at(index);
        if record.state != CallState::Waiting {
            session.waiting.pop_front(); // given up while it waited
            return true;
        }
        if record.not_before > now || endpoint.send_room() == 0 {
            self.next_check = self.next_check.min(record.not_before.max(now + OVERLOAD_PAUSE));
            return false;
        }
        let control = matches!(record.channel, Channel::CONTROL | Channel::MEMBERS);
        if !session.has_room(record.pages, control) {
            return false;
        }
        session.waiting.pop_front();
        (record.slot, record.sequence) = session.take(record.pages);
        (record.state, record.epoch) = (CallState::Sent, session.epoch);
        record.retry_span = self.config.retry;
        self.counters.calls += 1;
        self.post_request(now, endpoint, index, Flags::default());
        true
    }

    fn greet(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let session = self.sessions.get_mut(&peer).expect("pump found it");
        session.greeted(now);
        self.next_check = self.next_check.min(session.greet_at);
        let header = Header::new(Kind::Hello, self.config.id, peer);
        let body = self.config.incarnation.to_le_bytes();
        self.outbox.post(endpoint, &Letter { body: &body, ..Letter::bare(header) });
    }

    /// Puts a request on the ring; the token is armed here, so that a request that waits holds none.
    fn post_request(&mut self, now: Time, endpoint: &mut Endpoint, index: u16, again: Flags) {
        let id = self.calls.id(index);
        let record = self.calls.at(index);
        if !record.token.is_some() && !record.into.is_empty() {
            record.token = endpoint.get_replytoken(&mut record.into).unwrap_or(Token::NONE);
        }
        let mut header = Header::new(Kind::Request, self.config.id, record.to);
        header.flags = if record.once { again.with(Flags::ONCE) } else { again };
        (header.channel, header.token) = (record.channel, record.token);
        (header.epoch, header.sequence) = (record.epoch, record.sequence);
        header.deadline_ms = remaining_ms(now, record.deadline);
        let mut call =
            CallHeader { call: id.0, slot: record.slot, op: record.op, ..Default::default() };
        if let Some(delegated) = record.delegated {
            header.flags = header.flags.with(Flags::DELEGATED);
            header.token = delegated.token;
            (call.call, call.origin) = (delegated.call, delegated.origin);
            call.origin_epoch = delegated.epoch;
        }
        header.credit_frames = self.sessions[&record.to].window;
        record.retry_at = now + record.retry_span;
        self.next_check = self.next_check.min(record.retry_at);
        let (body, data, trailer) = (&record.body.0[..], &record.data[..], &record.trailer[..]);
        self.outbox.post(endpoint, &Letter { header, call, body, data, trailer });
    }

    fn handle_reply(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        message: ReceiveMessage,
        header: &Header,
        call: &CallHeader,
    ) -> Option<Event> {
        if !self.is_awaited(header, call) {
            self.counters.stale_replies += 1;
            endpoint.release_rcvmsg(message);
            return None;
        }
        self.take_credits(header);
        let index = CallId(call.call).index() as u16;
        if call.status == status::OVERLOADED {
            endpoint.release_rcvmsg(message);
            self.pause(now, endpoint, index);
            return None;
        }
        if !self.settle_payload(now, endpoint, index, &message, header) {
            endpoint.release_rcvmsg(message);
            return None;
        }
        let record = self.calls.at(index);
        let ticket = record.ticket;
        let (peer, slot, pages) = (record.to, record.slot, record.pages);
        self.calls.end(index);
        self.free_slot(now, endpoint, peer, slot, pages);
        if call.status == status::REFUSED {
            endpoint.release_rcvmsg(message);
            return Some(Event::Failed { ticket, error: CallError::Refused });
        }
        Some(Event::Reply { ticket, status: call.status, message })
    }

    fn is_awaited(&mut self, header: &Header, call: &CallHeader) -> bool {
        let Some(record) = self.calls.find(CallId(call.call)) else { return false };
        let from_peer = header.source == record.to || header.flags.has(Flags::DELEGATED);
        record.state == CallState::Sent && record.epoch == header.epoch && from_peer
    }

    /// The server's latest word on how much may be under way.
    fn take_credits(&mut self, header: &Header) {
        if let Some(session) = self.sessions.get_mut(&header.source) {
            if session.epoch == header.epoch {
                session.window = header.credit_frames;
            }
        }
    }

    /// Brings the call's frames into the message, with or without data. Not when the data was damaged (the request is
    /// sent again) or went elsewhere (another reply is on its way).
    fn settle_payload(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        index: u16,
        message: &ReceiveMessage,
        header: &Header,
    ) -> bool {
        let record = self.calls.at(index);
        let entry = endpoint.arrived(message);
        if header.following_bytes() == 0 {
            record.revoke(endpoint);
            std::mem::swap(&mut endpoint.arrived(message).landed, &mut record.into);
            return true;
        }
        if entry.landed.is_empty() {
            return false;
        }
        record.token = Token::NONE;
        if entry.damaged {
            std::mem::swap(&mut entry.landed, &mut record.into);
            self.counters.retries += 1;
            self.post_request(now, endpoint, index, Flags::AGAIN);
            return false;
        }
        true
    }

    /// The server had no room: the call is tried again after a pause, in a slot and with a number of its own, since it
    /// was not executed.
    fn pause(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        self.counters.overloads += 1;
        let record = self.calls.at(index);
        record.pause = (record.pause * 2).min(RETRY);
        record.not_before = now + record.pause;
        self.wait_again(now, endpoint, index);
    }

    fn wait_again(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        let record = self.calls.at(index);
        record.revoke(endpoint);
        if record.wants_data && record.into.is_empty() {
            // A transfer is just filling the frames and will free them: there is nothing to try again with.
            return self.fail(now, endpoint, index, CallError::PeerLost);
        }
        record.state = CallState::Waiting;
        let (peer, slot, pages, not_before) =
            (record.to, record.slot, record.pages, record.not_before);
        self.next_check = self.next_check.min(not_before.max(now));
        let session = self.sessions.get_mut(&peer).expect("it was sent in one");
        session.waiting.push_back(index);
        self.free_slot(now, endpoint, peer, slot, pages);
    }

    fn free_slot(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        peer: NodeId,
        slot: u16,
        pages: u32,
    ) {
        let session = self.sessions.get_mut(&peer).expect("a sent call has a session");
        if session.state == State::Open {
            session.give_back(slot, pages);
        }
        if !session.waiting.is_empty() {
            self.pump(now, endpoint, peer);
        }
    }

    /// Ends a call: the token first, then the frames, then the slot.
    fn finish(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        let record = self.calls.at(index);
        record.revoke(endpoint);
        let sent = record.state == CallState::Sent;
        let (peer, slot, pages, epoch) = (record.to, record.slot, record.pages, record.epoch);
        self.calls.end(index);
        match self.sessions.get_mut(&peer) {
            Some(session) if sent && session.epoch == epoch => {
                self.free_slot(now, endpoint, peer, slot, pages);
            }
            Some(session) if !sent => session.waiting.retain(|waiting| *waiting != index),
            _ => {}
        }
    }

    fn fail(&mut self, now: Time, endpoint: &mut Endpoint, index: u16, error: CallError) {
        let record = self.calls.at(index);
        let (ticket, delegated) = (record.ticket, record.delegated.is_some());
        self.finish(now, endpoint, index);
        if !delegated {
            self.events.push_back(Event::Failed { ticket, error });
        }
    }

    fn handle_done(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        header: &Header,
        call: &CallHeader,
    ) {
        let forwarded = self.calls.indices().find(|index| {
            let record = self.calls.at(*index);
            record.state == CallState::Sent
                && record.delegated.is_some()
                && (record.to, record.epoch) == (header.source, header.epoch)
                && (record.slot, record.sequence) == (call.slot, header.sequence)
        });
        if let Some(index) = forwarded {
            self.finish(now, endpoint, index);
        }
    }

    fn handle_welcome(&mut self, now: Time, endpoint: &mut Endpoint, header: &Header, body: &[u8]) {
        let echoed = Decoder::new(body).u64() == Ok(self.config.incarnation);
        let Some(session) = self.sessions.get_mut(&header.source) else { return };
        if echoed && session.state == State::Greeting && header.epoch != SessionEpoch(0) {
            let slots = header.credit_slots.clamp(1, SLOTS_MAX);
            session.open(header.epoch, slots, header.credit_frames);
            self.pump(now, endpoint, header.source);
        }
    }

    fn handle_reset(&mut self, now: Time, endpoint: &mut Endpoint, header: &Header) {
        let lost = self.sessions.get_mut(&header.source);
        let lost = lost.filter(|s| s.state == State::Open && s.epoch == header.epoch);
        if let Some(session) = lost {
            session.close();
            self.counters.sessions_lost += 1;
            self.settle_lost(now, endpoint, header.source, header.epoch);
            self.pump(now, endpoint, header.source);
        }
    }

    /// The session's calls: what may be executed twice waits for the next session, the others end.
    fn settle_lost(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        peer: NodeId,
        epoch: SessionEpoch,
    ) {
        for index in self.calls.indices() {
            let record = self.calls.at(index);
            if record.state != CallState::Sent || (record.to, record.epoch) != (peer, epoch) {
                continue;
            }
            match record.once {
                true => self.fail(now, endpoint, index, CallError::PeerLost),
                false => self.wait_again(now, endpoint, index),
            }
        }
    }

    fn check_call(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        let record = self.calls.at(index);
        if record.state == CallState::Free {
            return;
        }
        if record.deadline <= now {
            return self.fail(now, endpoint, index, CallError::Deadline);
        }
        let mut due = record.deadline;
        if record.state == CallState::Sent {
            if record.retry_at <= now && endpoint.send_room() > 0 {
                record.retry_span = (record.retry_span * 2).min(RETRY_MAX);
                self.counters.retries += 1;
                self.post_request(now, endpoint, index, Flags::AGAIN);
            }
            due = due.min(self.calls.at(index).retry_at.max(now + OVERLOAD_PAUSE));
        }
        self.next_check = self.next_check.min(due);
    }

    fn check_session(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let session = self.sessions.get_mut(&peer).expect("it is in the list");
        if let Some(lost_at) = session.down_since.map(|since| since + PEER_LOST) {
            if lost_at <= now {
                session.down_since = Some(now);
                self.give_up(now, endpoint, peer);
            }
            self.next_check =
                self.next_check.min(if lost_at <= now { Time::NEVER } else { lost_at });
        }
        let session = self.sessions.get_mut(&peer).expect("it is in the list");
        if session.state == State::Greeting {
            match session.waiting.is_empty() {
                true => session.close(),
                false if session.greet_at <= now => return self.greet(now, endpoint, peer),
                false => self.next_check = self.next_check.min(session.greet_at),
            }
        }
        self.pump(now, endpoint, peer);
    }

    /// The peer stayed unreachable: all its calls end.
    fn give_up(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        for index in self.calls.indices() {
            let record = self.calls.at(index);
            if record.state != CallState::Free && record.to == peer {
                self.fail(now, endpoint, index, CallError::PeerLost);
            }
        }
    }

    // The server's side.

    fn handle_hello(&mut self, now: Time, endpoint: &mut Endpoint, header: &Header, body: &[u8]) {
        let Ok(client) = Decoder::new(body).u64() else { return };
        let Some(epoch) = self.server.greet(header.source, client, now) else { return };
        let mut answer = Header::new(Kind::Welcome, self.config.id, header.source);
        answer.epoch = epoch;
        (answer.credit_slots, answer.credit_frames) = (self.server.slots(), self.server.window());
        let mut echo = [0; 8];
        Encoder::new(&mut echo).u64(client);
        self.outbox.post(endpoint, &Letter { body: &echo, ..Letter::bare(answer) });
    }

    fn handle_request(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        message: ReceiveMessage,
        header: &Header,
        call: &CallHeader,
    ) -> Option<Event> {
        let Some(session) = self.server.find(header.source, header.epoch) else {
            self.send_reset(endpoint, header);
            endpoint.release_rcvmsg(message);
            return None;
        };
        let client = session.client;
        let entry = endpoint.arrived(&message);
        let missing = header.payload_bytes > 0 && entry.payload_bytes == 0;
        let damaged = entry.damaged;
        if missing {
            if !damaged {
                self.send_overloaded(endpoint, header, call);
            }
            endpoint.release_rcvmsg(message); // of a damaged payload the caller sends another copy
            return None;
        }
        match session.admit(call.slot, header.sequence, now) {
            Some(Admission::Execute) => {
                self.counters.executed += 1;
                let key = request_key(now, client, header, call);
                return Some(Event::Request { key, message });
            }
            Some(Admission::Answered) => {
                let (control, data, trailer) = session.kept(call.slot);
                self.outbox.post_sealed(endpoint, control, header.source, data, trailer);
            }
            Some(Admission::Ignore) | None => {}
        }
        self.counters.duplicates += 1;
        endpoint.release_rcvmsg(message);
        None
    }

    fn send_reset(&mut self, endpoint: &mut Endpoint, header: &Header) {
        self.counters.resets_sent += 1;
        let mut answer = Header::new(Kind::Reset, self.config.id, header.source);
        answer.epoch = header.epoch;
        self.outbox.post(endpoint, &Letter::bare(answer));
    }

    /// No frames were free for the request's payload. The slot does not learn of it: nothing was executed.
    fn send_overloaded(&mut self, endpoint: &mut Endpoint, header: &Header, call: &CallHeader) {
        self.counters.overloads += 1;
        let mut answer = Header::new(Kind::Reply, self.config.id, header.source);
        (answer.channel, answer.epoch) = (header.channel, header.epoch);
        (answer.credit_slots, answer.credit_frames) = (self.server.slots(), self.server.window());
        let call = CallHeader { status: status::OVERLOADED, ..*call };
        self.outbox.post(endpoint, &Letter { call, ..Letter::bare(answer) });
    }

    fn send_done(&mut self, endpoint: &mut Endpoint, key: &RequestKey) {
        let mut header = Header::new(Kind::Done, self.config.id, key.source);
        (header.channel, header.epoch) = (key.channel, key.epoch);
        header.sequence = key.sequence;
        let call = CallHeader { slot: key.slot, ..CallHeader::default() };
        self.outbox.post(endpoint, &Letter { call, ..Letter::bare(header) });
    }
}

fn request_key(now: Time, client: u64, header: &Header, call: &CallHeader) -> RequestKey {
    let delegated = header.flags.has(Flags::DELEGATED);
    let deadline = match header.deadline_ms {
        0 => Time::NEVER,
        ms => now + Duration::from_millis(ms.into()),
    };
    RequestKey {
        source: header.source,
        client,
        slot: call.slot,
        sequence: header.sequence,
        channel: header.channel,
        op: call.op,
        once: header.flags.has(Flags::ONCE),
        deadline,
        origin: if delegated { call.origin } else { header.source },
        epoch: header.epoch,
        origin_epoch: if delegated { call.origin_epoch } else { header.epoch },
        call: call.call,
        token: header.token,
    }
}

/// Milliseconds that a caller will still wait, for the header: 0 is for ever, less than one is one.
fn remaining_ms(now: Time, deadline: Time) -> u32 {
    match deadline {
        Time::NEVER => 0,
        deadline => deadline.since(now).as_millis().clamp(1, u32::MAX.into()) as u32,
    }
}
