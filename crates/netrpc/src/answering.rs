//! Requests: from their arrival to the reply, never twice what must not be.

use crate::calls::{Delegated, Start};
use crate::limits::{KEPT_PAGES, KEPT_POOL_PART};
use crate::outbox::Letter;
use crate::rpc::{Event, Rpc};
use crate::server::{Admission, RequestKey};
use crate::status;
use endpoint::{Endpoint, Filling, Frame, ReceiveMessage};
use std::time::Duration;
use wire::{
    CallHeader, Channel, Control, ControlView, Decoder, Encoder, Flags, Header, Kind, NodeId,
    SessionEpoch, Time, Token,
};

impl Rpc {
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
        let header = reply_header(self.config.id, key, (slots, window));
        let call = reply_call(key, answer_status);
        let letter = Letter { header, call, body, data, missing: 0, trailer };
        let control = self.outbox.post(endpoint, &letter);
        session.answered(key, &control, data, trailer);
        if key.once && !data.is_empty() {
            let pool = endpoint.frames().pages();
            self.server.bound_kept(key.source, KEPT_PAGES.min(pool / KEPT_POOL_PART));
        }
        if key.origin != key.source {
            self.send_done(endpoint, key);
        }
    }

    /// Answers a request with success while `missing` bytes of the data are still to come by [`Endpoint::fill`]; the
    /// trailer has the checksums of all of it. `None`, and nothing is sent, if the answer is to be kept, goes to this
    /// very node or is no longer awaited, if too little of the data is there ([`endpoint::is_fillable`]), or if the
    /// send ring is full.
    pub fn reply_filling(
        &mut self,
        endpoint: &mut Endpoint,
        key: &RequestKey,
        body: &[u8],
        data: &[Frame],
        missing: usize,
        trailer: &[u8],
    ) -> Option<Filling> {
        let credits = (self.server.slots(), self.server.window());
        let session = self.server.find(key.source, key.epoch)?;
        if key.once || key.origin == self.config.id || !session.awaits(key) {
            return None;
        }
        let (header, call) = (reply_header(self.config.id, key, credits), reply_call(key, 0));
        let letter = Letter { header, call, body, data, missing, trailer };
        let filling = self.outbox.post_filling(endpoint, &letter)?;
        session.passed_on(key);
        if key.origin != key.source {
            self.send_done(endpoint, key);
        }
        Some(filling)
    }

    /// Passes a request on to `to`, which answers the caller itself (USENIX'98: delegated RPC). Only for calls that
    /// may be executed twice: any other is refused. When no record is free the caller is told to try again.
    pub fn forward(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        key: &RequestKey,
        to: NodeId,
        body: &[u8],
    ) {
        let Some(session) = self.server.find(key.source, key.epoch) else { return };
        if !session.awaits(key) {
            return;
        }
        if key.once {
            return self.reply(endpoint, key, status::REFUSED, &[], &[], &[]);
        }
        let request = (key.source, key.epoch, key.slot, key.sequence);
        if key.again && self.calls.is_forwarded(request) {
            return session.passed_on(key);
        }
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
        let Some(id) = self.calls.begin(&start, &mut Vec::new(), &mut Vec::new()) else {
            return self.reply(endpoint, key, status::OVERLOADED, &[], &[], &[]);
        };
        session.passed_on(key);
        self.calls.at(id.index() as u16).delegated = Some(Delegated {
            origin: key.origin,
            epoch: key.origin_epoch,
            call: key.call,
            token: key.token,
            request,
        });
        if key.origin != key.source {
            self.send_done(endpoint, key); // from here on the record below takes care of the call
        }
        self.enqueue(now, endpoint, id);
    }

    pub(crate) fn handle_hello(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        header: &Header,
        body: &[u8],
    ) {
        let mut input = Decoder::new(body);
        let (Ok(client), Ok(over)) = (input.u64(), input.u64()) else { return };
        let greeted = self.server.greet(header.source, client, over, now);
        let mut answer = Header::new(Kind::Welcome, self.config.id, header.source);
        // Epoch 0 grants nothing: an incarnation that is really an earlier one is not there to read it.
        answer.epoch = greeted.unwrap_or(SessionEpoch(0));
        (answer.credit_slots, answer.credit_frames) = (self.server.slots(), self.server.window());
        let mut echo = [0; 16];
        Encoder::new(&mut echo).u64(client).u64(greeted.err().unwrap_or(0));
        self.outbox.post(endpoint, &Letter { body: &echo, ..Letter::bare(answer) });
    }

    pub(crate) fn handle_request(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        message: ReceiveMessage,
        header: &Header,
        call: &CallHeader,
    ) -> Option<Event> {
        let session = match self.config.flaws.old_session_accepted {
            false => self.server.find(header.source, header.epoch),
            true => self.server.latest(header.source),
        };
        let Some(session) = session else {
            self.send_reset(endpoint, header);
            endpoint.release_rcvmsg(message);
            return None;
        };
        let client = session.client;
        let entry = endpoint.arrived(&message);
        if entry.damaged {
            endpoint.release_rcvmsg(message); // the caller sends another copy
            return None;
        }
        let missing = header.payload_bytes > 0 && entry.landed.is_empty();
        match session.admit(call.slot, header.sequence, now) {
            Some(Admission::Execute) if missing => {
                let key = self.request_key(now, client, header, call);
                self.refuse_overloaded(endpoint, key);
                endpoint.release_rcvmsg(message);
                return None;
            }
            Some(Admission::Execute) => {
                self.counters.executed += 1;
                let key = self.request_key(now, client, header, call);
                return Some(Event::Request { key, message });
            }
            Some(Admission::Answered) => {
                let (control, data, trailer) = session.kept(call.slot);
                let control = for_token(control, header.token);
                self.outbox.post_sealed(endpoint, &control, header.source, data, trailer);
                if self.config.flaws.executed_twice {
                    let key = self.request_key(now, client, header, call);
                    return Some(Event::Request { key, message });
                }
            }
            Some(Admission::Forgotten) => {
                let key = self.request_key(now, client, header, call);
                self.send_forgotten(endpoint, &key);
            }
            Some(Admission::Ignore) | None => {}
        }
        self.counters.duplicates += 1;
        endpoint.release_rcvmsg(message);
        None
    }

    fn request_key(
        &self,
        now: Time,
        client: u64,
        header: &Header,
        call: &CallHeader,
    ) -> RequestKey {
        let delegated = header.flags.has(Flags::DELEGATED);
        let deadline = match header.deadline_ms {
            0 => Time::NEVER,
            ms => now + Duration::from_millis(ms.into()),
        };
        RequestKey {
            source: header.source,
            client: incarnation_of(header.source, client),
            slot: call.slot,
            sequence: header.sequence,
            channel: header.channel,
            op: call.op,
            once: header.flags.has(Flags::ONCE) && !self.is_pure(header.channel, call.op),
            deadline,
            origin: if delegated { call.origin } else { header.source },
            epoch: header.epoch,
            origin_epoch: if delegated { call.origin_epoch } else { header.epoch },
            call: call.call,
            token: header.token,
            again: header.flags.has(Flags::AGAIN),
        }
    }

    /// Whether the service of the channel said that the operation may be executed twice, whatever the caller says: then
    /// no data of its replies is kept.
    fn is_pure(&self, channel: Channel, op: u16) -> bool {
        let pure = self.pure.get(usize::from(channel.0)).copied().flatten();
        pure.is_some_and(|is_pure| is_pure(op))
    }

    /// The call was executed, and the data of its reply is not kept any more.
    fn send_forgotten(&mut self, endpoint: &mut Endpoint, key: &RequestKey) {
        self.counters.forgotten += 1;
        let header = reply_header(self.config.id, key, (self.server.slots(), self.server.window()));
        let header = Header { token: Token::NONE, ..header };
        let call = reply_call(key, status::FORGOTTEN);
        self.outbox.post(endpoint, &Letter { call, ..Letter::bare(header) });
    }

    pub(crate) fn send_reset(&mut self, endpoint: &mut Endpoint, header: &Header) {
        self.counters.resets_sent += 1;
        let mut answer = Header::new(Kind::Reset, self.config.id, header.source);
        answer.epoch = header.epoch;
        self.outbox.post(endpoint, &Letter::bare(answer));
    }

    /// No frames were free for the request's payload. The answer is kept in the slot, so that a copy of the request
    /// that does find frames is not executed after all: the caller tries again in another slot.
    fn refuse_overloaded(&mut self, endpoint: &mut Endpoint, key: RequestKey) {
        self.counters.overloads += 1;
        let key = RequestKey { once: true, ..key };
        self.reply(endpoint, &key, status::OVERLOADED, &[], &[], &[]);
    }

    pub(crate) fn send_done(&mut self, endpoint: &mut Endpoint, key: &RequestKey) {
        let mut header = Header::new(Kind::Done, self.config.id, key.source);
        (header.channel, header.epoch) = (key.channel, key.epoch);
        header.sequence = key.sequence;
        let call = CallHeader { slot: key.slot, ..CallHeader::default() };
        self.outbox.post(endpoint, &Letter { call, ..Letter::bare(header) });
    }
}

/// Of an answer; `credits` are slots and window.
fn reply_header(id: NodeId, key: &RequestKey, credits: (u16, u16)) -> Header {
    let mut header = Header::new(Kind::Reply, id, key.origin);
    (header.credit_slots, header.credit_frames) = credits;
    (header.channel, header.token, header.epoch) = (key.channel, key.token, key.origin_epoch);
    header.sequence = key.sequence;
    header.flags = if key.origin == key.source { Flags::default() } else { Flags::DELEGATED };
    header
}

fn reply_call(key: &RequestKey, status: u16) -> CallHeader {
    CallHeader { call: key.call, slot: key.slot, op: key.op, status, ..CallHeader::default() }
}

/// The incarnation of a client among those of all nodes: incarnations alone are each node's own counts.
fn incarnation_of(node: NodeId, incarnation: u64) -> u64 {
    u64::from(node.0) << 48 ^ incarnation
}

/// A kept reply for a duplicate request, perhaps with another token than the one the reply was made for.
fn for_token(kept: &Control, token: Token) -> Control {
    let mut control = *kept;
    let header = Header { token, ..ControlView::checked_before(kept).header() };
    control.set_header(&header);
    control.seal();
    control
}
