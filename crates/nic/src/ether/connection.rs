//! A connection over Ethernet between two nodes: messages cut into frames, acknowledged, sent again when they are lost.

use super::flights::{Flights, Fragment, News};
use super::frame::*;
use super::heard::Heard;
use super::incoming::{Fault, Incoming, Outcome};
use super::limits::*;
use super::outgoing::Outgoing;
use endpoint::{Endpoint, SendMessage};
use std::time::Duration;
use wire::{NodeId, Time};

/// The two sides, as both know them.
#[derive(Debug)]
pub struct Config {
    /// The node at the other side.
    pub peer: NodeId,
    /// This side's Ethernet address.
    pub from: Address,
    /// The other side's.
    pub to: Address,
    /// The number by which frames to this side name the connection.
    pub number: u16,
    /// The number by which frames to the other side do.
    pub peer_number: u16,
    /// Bytes of the longest frame that both take.
    pub frame_bytes: usize,
    /// Proves frames.
    pub seal: Box<dyn Seal>,
}

/// Counts since the start, of frames unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent.
    pub sent: u64,
    /// Received and taken.
    pub received: u64,
    /// Found lost, and sent again.
    pub lost: u64,
    /// Times that nothing was acknowledged in time.
    pub timeouts: u64,
    /// Dropped: they came before, or are too old to tell.
    pub replayed: u64,
    /// Dropped: not sealed by the peer, or changed on their way.
    pub forged: u64,
    /// Dropped: before the first of their message. They come again.
    pub early: u64,
    /// Dropped: no entry was free. They come again.
    pub full: u64,
    /// Fragments that came twice, in different frames.
    pub duplicates: u64,
}

impl Counters {
    /// Adds what another connection counted.
    pub fn add(&mut self, other: &Counters) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.timeouts += other.timeouts;
        self.replayed += other.replayed;
        self.forged += other.forged;
        self.early += other.early;
        self.full += other.full;
        self.duplicates += other.duplicates;
    }
}

/// Traffic in messages; bytes are of data and trailers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Sent and acknowledged.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Delivered.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Given up.
    pub drops: u64,
}

/// One side. Methods, in order: getters; [`push`](Connection::push); [`handle_frame`](Connection::handle_frame) for
/// each frame that comes; [`poll_frame`](Connection::poll_frame) until it has none, after either and at the
/// [`deadline`](Connection::deadline).
#[derive(Debug)]
pub struct Connection {
    config: Config,
    outgoing: Outgoing,
    flights: Flights,
    incoming: Incoming,
    heard: Heard,
    counters: Counters,
    /// A probe was answered: frames of full length pass in both directions.
    up: bool,
    probe_at: Time,
    probe_span: Duration,
    must_answer: bool,
    /// Frames that came and are not acknowledged.
    owed: u32,
    ack_at: Option<Time>,
    told_limit: u64,
    ask_at: Option<Time>,
    ask_span: Duration,
    looked_at: Time,
}

impl Connection {
    /// Not up before a probe has passed.
    pub fn new(config: Config, now: Time) -> Connection {
        let fragment_bytes = body_bytes(config.frame_bytes);
        Connection {
            outgoing: Outgoing::new(fragment_bytes),
            flights: Flights::new(now),
            incoming: Incoming::new(config.peer, fragment_bytes),
            heard: Heard::default(),
            counters: Counters::default(),
            up: false,
            probe_at: now,
            probe_span: PROBE_SPAN_MIN,
            must_answer: false,
            owed: 0,
            ack_at: None,
            told_limit: 0,
            ask_at: None,
            ask_span: RESEND_SPAN_MIN,
            looked_at: now,
            config,
        }
    }

    /// The node at the other side.
    pub fn peer(&self) -> NodeId {
        self.config.peer
    }

    /// The number by which frames to this side name the connection.
    pub fn number(&self) -> u16 {
        self.config.number
    }

    /// Whether messages may go this way: frames of full length have passed there and back.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether messages wait or are not acknowledged.
    pub fn is_pending(&self) -> bool {
        self.outgoing.is_pending()
    }

    /// Counts of frames.
    pub fn counters(&self) -> Counters {
        Counters { lost: self.flights.lost, timeouts: self.flights.timeouts, ..self.counters }
    }

    /// Counts of messages.
    pub fn messages(&self) -> Messages {
        Messages {
            sent: self.outgoing.sent,
            sent_bytes: self.outgoing.sent_bytes,
            received: self.incoming.received,
            received_bytes: self.incoming.received_bytes,
            drops: self.outgoing.drops,
        }
    }

    /// Whether what was sent has not been acknowledged for [`SILENCE_SPAN`].
    pub fn is_silent(&self, now: Time) -> bool {
        self.flights.is_waiting() && now >= self.flights.progress_at() + SILENCE_SPAN
    }

    /// When [`poll_frame`](Connection::poll_frame) is due at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let probe = (!self.up).then_some(self.probe_at);
        [probe, self.flights.resend_at(), self.ack_at, self.ask_at].into_iter().flatten().min()
    }

    /// Queues a message.
    pub fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint) {
        self.outgoing.push(message, endpoint);
    }

    /// Takes a frame, and opens it in place. An error ends the connection.
    pub fn handle_frame(
        &mut self,
        frame: &mut [u8],
        endpoint: &mut Endpoint,
        now: Time,
    ) -> Result<(), Fault> {
        let Some((head, body)) = self.open(frame) else { return Ok(()) };
        let (flights, outgoing) = (&mut self.flights, &mut self.outgoing);
        let told = (head.heard, head.before);
        let is_good = flights.acknowledged(told, now, |news| match news {
            News::Came(fragment) => outgoing.came(fragment, endpoint),
            News::Lost(fragment) => outgoing.lost(fragment),
        });
        if !is_good {
            return Err(Fault::Fragment);
        }
        outgoing.set_limit(head.limit);
        match head.kind {
            Kind::Data => {
                let which = (head.message, head.fragment);
                match self.incoming.take(which, &frame[body], endpoint)? {
                    Outcome::Taken(_) => {}
                    Outcome::Duplicate => {
                        self.counters.duplicates += 1;
                        self.ack_at = Some(now); // an acknowledgement was lost
                    }
                    Outcome::Early => {
                        self.counters.early += 1;
                        return Ok(());
                    }
                    Outcome::Full => {
                        self.counters.full += 1;
                        return Ok(());
                    }
                }
            }
            Kind::Probe => self.must_answer = true,
            Kind::Answer => self.up = true,
            Kind::Ack | Kind::Ask => {}
        }
        self.note(&head, now);
        Ok(())
    }

    /// Checks and opens a frame: its headers, and where its body is.
    fn open(&mut self, frame: &mut [u8]) -> Option<(Head, std::ops::Range<usize>)> {
        let head = Head::parse(frame).filter(|head| head.connection == self.config.number)?;
        if !self.heard.is_new(head.number) {
            self.counters.replayed += 1;
            return None;
        }
        let (start, rest) = frame.split_at_mut(HEAD_BYTES);
        let (body, proof) = rest.split_at_mut(head.bytes.into());
        if !self.config.seal.open(head.number, start, body, &proof[..PROOF_BYTES]) {
            self.counters.forged += 1;
            return None;
        }
        Some((head, HEAD_BYTES..HEAD_BYTES + usize::from(head.bytes)))
    }

    /// The frame counts as received.
    fn note(&mut self, head: &Head, now: Time) {
        self.counters.received += 1;
        let gap = self.heard.note(head.number);
        if !head.kind.is_acknowledged() {
            return;
        }
        self.owed += 1;
        let at = if gap || self.owed >= ACK_EVERY { now } else { now + ACK_SPAN };
        self.ack_at = Some(self.ack_at.map_or(at, |due| due.min(at)));
    }

    /// Writes the next frame that is to be sent; its length. `None`: none now.
    pub fn poll_frame(
        &mut self,
        into: &mut [u8],
        endpoint: &mut Endpoint,
        now: Time,
    ) -> Option<usize> {
        self.look(now);
        let limit = self.incoming.limit(endpoint);
        self.offer(limit, now);
        self.outgoing.begin(endpoint);
        let (kind, fragment) = self.choose(endpoint, now)?;
        let bytes = match (kind, fragment) {
            (_, Some(fragment)) => self.outgoing.copy(fragment, endpoint, &mut into[HEAD_BYTES..]),
            (Kind::Probe | Kind::Answer, None) => {
                let bytes = body_bytes(self.config.frame_bytes);
                into[HEAD_BYTES..HEAD_BYTES + bytes].fill(0);
                bytes
            }
            _ => 0,
        };
        Some(self.finish(into, (kind, fragment, bytes), limit, now))
    }

    /// Puts headers and proof around the body.
    fn finish(
        &mut self,
        into: &mut [u8],
        (kind, fragment, bytes): (Kind, Option<Fragment>, usize),
        limit: u64,
        now: Time,
    ) -> usize {
        let number = self.flights.next();
        let (heard, before) = self.heard.told();
        let head = Head {
            destination: self.config.to,
            source: self.config.from,
            kind,
            connection: self.config.peer_number,
            number,
            heard,
            before,
            limit,
            message: fragment.map_or(0, |it| it.message),
            fragment: fragment.map_or(0, |it| it.index),
            bytes: bytes as u16,
        };
        head.encode(into);
        let (start, rest) = into.split_at_mut(HEAD_BYTES);
        let (body, proof) = rest.split_at_mut(bytes);
        self.config.seal.seal(number, start, body, &mut proof[..PROOF_BYTES]);
        match kind.is_acknowledged() {
            true => self.flights.sent(fragment, now),
            false => self.flights.sent_alone(now),
        }
        (self.owed, self.ack_at, self.told_limit) = (0, None, limit);
        self.counters.sent += 1;
        HEAD_BYTES + bytes + PROOF_BYTES
    }

    /// Time has passed.
    fn look(&mut self, now: Time) {
        if now.since(self.looked_at) > LOOK_SPAN_MAX {
            self.flights.excuse(now);
        }
        self.looked_at = now;
        if self.flights.resend_at().is_some_and(|at| at <= now) {
            let outgoing = &mut self.outgoing;
            self.flights.time_out(|fragment| outgoing.lost(fragment));
        }
    }

    /// Sees to it that the peer hears of room that it waits for.
    fn offer(&mut self, limit: u64, now: Time) {
        let more = limit - self.told_limit;
        let waits = more > 0 && self.incoming.has_used(self.told_limit);
        if more >= MESSAGES_MAX as u64 / 4 || waits && more >= u64::from(ACK_EVERY) {
            self.ack_at = Some(now);
        } else if waits && self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_SPAN);
        }
    }

    fn choose(&mut self, endpoint: &Endpoint, now: Time) -> Option<(Kind, Option<Fragment>)> {
        if std::mem::take(&mut self.must_answer) {
            return Some((Kind::Answer, None));
        }
        if !self.up && now >= self.probe_at {
            self.probe_at = now + self.probe_span;
            self.probe_span = (self.probe_span * 2).min(PROBE_SPAN_MAX);
            return Some((Kind::Probe, None));
        }
        if self.flights.has_room()
            && let Some(fragment) = self.outgoing.choose(endpoint)
        {
            return Some((Kind::Data, Some(fragment)));
        }
        if self.must_ask(now) {
            return Some((Kind::Ask, None));
        }
        let due = self.ack_at.is_some_and(|at| at <= now);
        due.then_some((Kind::Ack, None))
    }

    fn must_ask(&mut self, now: Time) -> bool {
        if !self.outgoing.is_blocked() || self.flights.under_way() > 0 {
            self.ask_at = None;
            self.ask_span =
                if self.outgoing.is_blocked() { self.ask_span } else { RESEND_SPAN_MIN };
            return false;
        }
        let at = *self.ask_at.get_or_insert(now + self.ask_span);
        if now < at {
            return false;
        }
        self.ask_at = None;
        self.ask_span = (self.ask_span * 2).min(RESEND_SPAN_MAX);
        true
    }

    /// Gives up what is under way in both directions.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        self.outgoing.close(endpoint);
        self.incoming.close(endpoint);
    }
}
