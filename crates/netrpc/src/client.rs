//! Calls: from the caller to its reply, through sessions, slots and windows.

use crate::calls::{CallId, Start, State as CallState};
use crate::limits::*;
use crate::outbox::Letter;
use crate::rpc::{Event, Rpc};
use crate::session::{Session, State};
use crate::{CallError, status};
use endpoint::{Endpoint, Frame, FrameMut, ReceiveMessage};
use wire::{CallHeader, Decoder, Encoder, Flags, Header, Kind, NodeId, SessionEpoch, Time, Token};

impl Rpc {
    /// Starts a call: takes the frames of both lists, leaving them empty. When all records are in use
    /// ([`CALLS`]) it is [`CallError::Overloaded`] and the lists stay as they are. Panics when the call does not fit
    /// into a message: a body over 64 bytes, over 1 MiB of data, a trailer over 2040 bytes or not of whole words.
    pub fn call(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        start: &Start<'_>,
        data: &mut Vec<Frame>,
        into: &mut Vec<FrameMut>,
    ) -> Result<CallId, CallError> {
        let id = self.calls.begin(start, data, into).ok_or(CallError::Overloaded)?;
        self.calls.at(id.index() as u16).begun = now;
        self.enqueue(now, endpoint, id);
        Ok(id)
    }

    /// Takes memory beforehand for so many calls at a time, each with a frame either way and a trailer of so many
    /// bytes: then none of them allocates. For callers that may not, at times.
    pub fn reserve(&mut self, calls: usize, trailer_bytes: usize) {
        self.calls.reserve(calls, trailer_bytes);
    }

    pub(crate) fn enqueue(&mut self, now: Time, endpoint: &mut Endpoint, id: CallId) {
        let record = self.calls.at(id.index() as u16);
        let (to, deadline) = (record.to, record.deadline);
        self.next_check = self.next_check.min(deadline);
        let control = record.is_control();
        let session = self.sessions.entry(to).or_insert_with(Session::new);
        session.lane(control).push_back(id.index() as u16);
        self.pump(now, endpoint, to);
        let stalled = self.calls.at(id.index() as u16).state == CallState::Waiting;
        self.counters.credit_stalls += u64::from(stalled);
    }

    /// Gives up a call: its token is revoked at once, no event follows. Nothing happens when it has ended.
    pub fn cancel(&mut self, now: Time, endpoint: &mut Endpoint, id: CallId) {
        if self.calls.find(id).is_some() {
            self.finish(now, endpoint, id.index() as u16);
        }
    }

    /// Sends what waits for this peer, as far as session, slots, window and ring allow.
    pub(crate) fn pump(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        match session.state {
            State::Closed if !session.is_idle() => self.greet(now, endpoint, peer),
            State::Open => {
                while self.send_next(now, endpoint, peer, true) {}
                while self.send_next(now, endpoint, peer, false) {}
            }
            _ => {}
        }
    }

    /// Sends the oldest waiting call of a lane; whether the next may be looked at.
    pub(crate) fn send_next(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        peer: NodeId,
        control: bool,
    ) -> bool {
        let session = self.sessions.get_mut(&peer).expect("pump found it");
        let Some(&index) = session.lane(control).front() else { return false };
        let record = self.calls.at(index);
        assert!(record.state == CallState::Waiting, "who gives up a waiting call takes it off");
        if record.not_before > now || endpoint.send_room() == 0 {
            self.next_check = self.next_check.min(record.not_before.max(now + OVERLOAD_PAUSE));
            return false;
        }
        if !session.has_room(record.pages, control) {
            return false;
        }
        session.lane(control).pop_front();
        (record.slot, record.sequence) = session.take(record.pages);
        (record.state, record.epoch) = (CallState::Sent, session.epoch);
        record.retry_span = self.config.retry;
        self.counters.calls += 1;
        self.post_request(now, endpoint, index, Flags::default());
        true
    }

    pub(crate) fn greet(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let session = self.sessions.get_mut(&peer).expect("pump found it");
        session.greeted(now);
        self.next_check = self.next_check.min(session.greet_at);
        let header = Header::new(Kind::Hello, self.config.id, peer);
        let mut body = [0; 16];
        Encoder::new(&mut body).u64(self.config.incarnation).u64(session.over);
        self.outbox.post(endpoint, &Letter { body: &body, ..Letter::bare(header) });
    }

    /// Puts a request on the ring; the token is armed here, so that a request that waits holds none.
    pub(crate) fn post_request(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        index: u16,
        again: Flags,
    ) {
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
        self.outbox.post(endpoint, &Letter { header, call, body, data, missing: 0, trailer });
    }

    pub(crate) fn handle_reply(
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
        let failed = match call.status {
            status::REFUSED => CallError::Refused,
            status::FORGOTTEN => CallError::PeerLost,
            status => return Some(Event::Reply { ticket, status, message }),
        };
        endpoint.release_rcvmsg(message);
        Some(Event::Failed { ticket, error: failed })
    }

    /// Whether the call is under way and this answers its latest sending: an answer to an earlier one, in another slot
    /// or by another token, says nothing about it. A third node answers in a slot that is not ours.
    pub(crate) fn is_awaited(&mut self, header: &Header, call: &CallHeader) -> bool {
        let Some(record) = self.calls.find(CallId(call.call)) else { return false };
        if record.state != CallState::Sent || record.epoch != header.epoch {
            return false;
        }
        let slot_fits = (call.slot, header.sequence) == (record.slot, record.sequence);
        let from_peer = header.source == record.to && slot_fits;
        let from_third = header.flags.has(Flags::DELEGATED) && !record.once;
        let token_fits = header.following_bytes() == 0 || header.token == record.token;
        (from_peer || from_third) && token_fits
    }

    /// The server's latest word on how much may be under way.
    pub(crate) fn take_credits(&mut self, header: &Header) {
        if let Some(session) = self.sessions.get_mut(&header.source) {
            if session.epoch == header.epoch {
                session.window = header.credit_frames;
            }
        }
    }

    /// Moves the call's frames into the message, with or without data. False when the data was damaged (the request is
    /// retransmitted) or went elsewhere (another copy of the reply is on its way). Data that was not asked for, or more
    /// than was asked for, ends the call.
    pub(crate) fn settle_payload(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        index: u16,
        message: &ReceiveMessage,
        header: &Header,
    ) -> bool {
        let record = self.calls.at(index);
        let entry = endpoint.arrived(message);
        let no_data = header.payload_bytes == 0 && !header.token.is_some();
        if header.following_bytes() == 0 || no_data && !entry.damaged {
            record.revoke(endpoint);
            std::mem::swap(&mut endpoint.arrived(message).landed, &mut record.into);
            return true;
        }
        if entry.landed.is_empty() && !no_data {
            if !record.wants_data || header.payload_bytes as usize > record.room {
                self.fail(now, endpoint, index, CallError::Fatal);
            }
            return false;
        }
        let damaged = entry.damaged;
        if !no_data {
            record.token = Token::NONE; // spent
        }
        if damaged {
            if !no_data {
                std::mem::swap(&mut entry.landed, &mut record.into);
            }
            self.counters.retries += 1;
            self.post_request(now, endpoint, index, Flags::AGAIN);
        }
        !damaged
    }

    /// The server had no room: the call is tried again after a pause, in a slot and with a number of its own, since it
    /// was not executed.
    pub(crate) fn pause(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        self.counters.overloads += 1;
        let record = self.calls.at(index);
        record.pause = (record.pause * 2).min(RETRY);
        record.not_before = now + record.pause;
        self.wait_again(now, endpoint, index);
    }

    pub(crate) fn wait_again(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
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
        let control = record.is_control();
        let session = self.sessions.get_mut(&peer).expect("it was sent in one");
        session.lane(control).push_back(index);
        self.free_slot(now, endpoint, peer, slot, pages);
    }

    pub(crate) fn free_slot(
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
        if !session.is_idle() {
            self.pump(now, endpoint, peer);
        }
    }

    /// Ends a call: the token first, then the frames, then the slot.
    pub(crate) fn finish(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        let record = self.calls.at(index);
        match self.config.flaws.token_not_cancelled {
            false => record.revoke(endpoint),
            true => record.token = Token::NONE,
        }
        let sent = record.state == CallState::Sent;
        let (peer, slot, pages, epoch) = (record.to, record.slot, record.pages, record.epoch);
        let control = record.is_control();
        self.calls.end(index);
        match self.sessions.get_mut(&peer) {
            Some(session) if sent && session.epoch == epoch => {
                self.free_slot(now, endpoint, peer, slot, pages);
            }
            Some(session) if !sent => session.lane(control).retain(|waiting| *waiting != index),
            _ => {}
        }
    }

    pub(crate) fn fail(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        index: u16,
        error: CallError,
    ) {
        let record = self.calls.at(index);
        let (ticket, delegated) = (record.ticket, record.delegated.is_some());
        self.finish(now, endpoint, index);
        if !delegated {
            self.events.push_back(Event::Failed { ticket, error });
        }
    }

    pub(crate) fn handle_done(
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

    pub(crate) fn handle_welcome(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        header: &Header,
        body: &[u8],
    ) {
        let mut input = Decoder::new(body);
        let echoed = input.u64() == Ok(self.config.incarnation);
        let Some(session) = self.sessions.get_mut(&header.source) else { return };
        if !echoed || session.state != State::Greeting {
            return;
        }
        if header.epoch == SessionEpoch(0) {
            // The server has a session with another incarnation under this id. Only we can know that it was over before
            // we began, and only if that server has never known us: an incarnation that it knew is the earlier one.
            let known = input.u64().unwrap_or(0);
            if session.epoch == SessionEpoch(0) && known != session.over {
                session.over = known;
                self.greet(now, endpoint, header.source);
            }
        } else {
            let slots = header.credit_slots.clamp(1, SLOTS_MAX);
            session.open(header.epoch, slots, header.credit_frames);
            self.pump(now, endpoint, header.source);
        }
    }

    pub(crate) fn handle_reset(&mut self, now: Time, endpoint: &mut Endpoint, header: &Header) {
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
    pub(crate) fn settle_lost(
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
                true if self.config.flaws.lost_peer_ignored => {}
                true => self.fail(now, endpoint, index, CallError::PeerLost),
                false => self.wait_again(now, endpoint, index),
            }
        }
    }

    pub(crate) fn check_call(&mut self, now: Time, endpoint: &mut Endpoint, index: u16) {
        let record = self.calls.at(index);
        if record.state == CallState::Free {
            return;
        }
        if record.deadline <= now {
            return self.fail(now, endpoint, index, CallError::Deadline);
        }
        let mut due = record.deadline;
        if record.state == CallState::Sent {
            let spent = record.token.is_some() && !endpoint.has_replytoken(record.token);
            if spent && endpoint.waiting() == 0 {
                // A message that was no answer took the frames: none of ours does that.
                return self.fail(now, endpoint, index, CallError::Fatal);
            }
            if record.retry_at <= now && endpoint.send_room() > 0 {
                record.retry_span = (record.retry_span * 2).min(RETRY_MAX);
                self.counters.retries += 1;
                self.post_request(now, endpoint, index, Flags::AGAIN);
            }
            due = due.min(self.calls.at(index).retry_at.max(now + OVERLOAD_PAUSE));
        }
        self.next_check = self.next_check.min(due);
    }

    pub(crate) fn check_session(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        let session = self.sessions.get_mut(&peer).expect("it is in the list");
        if let Some(lost_at) = session.down_since.map(|since| since + PEER_LOST) {
            if lost_at <= now {
                session.down_since = Some(now);
                self.give_up(now, endpoint, peer);
                self.server.forget_kept(peer);
            }
            self.next_check =
                self.next_check.min(if lost_at <= now { Time::NEVER } else { lost_at });
        }
        let session = self.sessions.get_mut(&peer).expect("it is in the list");
        if session.state == State::Greeting {
            match session.is_idle() {
                true => session.close(),
                false if session.greet_at <= now => return self.greet(now, endpoint, peer),
                false => self.next_check = self.next_check.min(session.greet_at),
            }
        }
        self.pump(now, endpoint, peer);
    }

    /// The peer stayed unreachable: all its calls end.
    pub(crate) fn give_up(&mut self, now: Time, endpoint: &mut Endpoint, peer: NodeId) {
        for index in self.calls.indices() {
            let record = self.calls.at(index);
            if record.state != CallState::Free && record.to == peer {
                self.fail(now, endpoint, index, CallError::PeerLost);
            }
        }
    }
}

/// Milliseconds that a caller will still wait, for the header: 0 is for ever, less than one is one.
fn remaining_ms(now: Time, deadline: Time) -> u32 {
    match deadline {
        Time::NEVER => 0,
        deadline => deadline.since(now).as_millis().clamp(1, u32::MAX.into()) as u32,
    }
}
