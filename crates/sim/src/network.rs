//! Links between nodes: latency, bandwidth, order per pair of nodes, and the rules of [`faults`](crate::faults).
//!
//! The network plays the adapter of every endpoint: it takes posted messages, carries copies in recycled buffers, and
//! at the far end places, fills and delivers. A message arrives in two events, its head and its tail, so that a node
//! may cancel, crash or lose the link while a payload is half there.
//!
//! A message that is still filling starts when it is posted, if its link is idle, so that only its last part is still
//! to be sent when that has come (cut-through); else it is sent when it is whole.
//!
//! It is best effort on purpose: nothing is retransmitted, a message for a node that is down is lost, and what was sent
//! to a node's former incarnation arrives in its next one.
//!
//! Invariant: every packet has one head event and one tail event; its buffer is free again after its tail and its
//! delivery, whichever is later.

use crate::copies::CopyCheck;
use crate::faults::{Message, Rule, Verdict};
use crate::fingerprint::Fingerprint;
use crate::limits::PACKETS;
use crate::queue::Picos;
use crate::random::Random;
use crate::tokens::TokenCheck;
use crate::trace::Trace;
use endpoint::{Endpoint, Placement, ReceiveMessage, SendMessage};
use std::collections::{BTreeMap, VecDeque};
use wire::{CallHeader, Control, ControlView, Flags, Header, Kind, NodeId};

/// Properties of a link between two nodes; all are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// From the first bit sent to the first bit received.
    pub latency: Picos,
    /// Each message takes up to this much longer, and holds up those behind it.
    pub jitter: Picos,
    /// Of each direction.
    pub bytes_per_second: u64,
}

impl Default for LinkModel {
    /// Ethernet of 10 Gbit/s through one switch (assumed).
    fn default() -> LinkModel {
        let (latency, jitter) = (Picos::micros(15), Picos::micros(2));
        LinkModel { latency, jitter, bytes_per_second: 1_250_000_000 }
    }
}

impl LinkModel {
    fn transfer(&self, bytes: usize) -> Picos {
        let picos = bytes as u128 * 1_000_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }
}

/// Names a packet on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u32);

impl PacketId {
    /// As a number, for models of links that carry only numbers.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The packet of a number.
    pub fn from_number(number: u32) -> PacketId {
        PacketId(number)
    }
}

/// An event that the network asks to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its control message is there.
    pub head: Picos,
    /// When all of it is there.
    pub tail: Picos,
    /// Of which packet.
    pub packet: PacketId,
}

/// Counts of messages, by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Taken from endpoints.
    pub sent: u64,
    /// Of these, begun before all of their data was there.
    pub cut_through: u64,
    /// Given to endpoints.
    pub delivered: u64,
    /// Struck by at least one rule.
    pub struck: u64,
    /// Lost by a rule, by a broken link or because the receiver was down.
    pub lost: u64,
    /// Refused at the far end because the control message was damaged.
    pub malformed: u64,
    /// Had to wait at the far end for a free entry of the receive ring.
    pub held: u64,
}

#[derive(Debug)]
enum Stage {
    Travelling,
    /// Its head is there, but no entry was free.
    Waiting,
    /// It has an entry; whether its payload is wanted.
    Placed(ReceiveMessage, bool),
    Dead,
}

#[derive(Debug)]
struct Packet {
    control: Control,
    header: Header,
    call: CallHeader,
    data: Vec<u8>,
    trailer: Vec<u8>,
    stage: Stage,
    complete: bool,
    cut: bool,
}

/// A message taken from its endpoint before all of its data was there.
#[derive(Debug)]
struct Begun {
    from: NodeId,
    message: SendMessage,
    since: Picos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    busy_until: Picos,
    last_tail: Picos,
}

/// All links and all that is on them.
#[derive(Debug)]
pub struct Network {
    model: LinkModel,
    rules: Vec<Rule>,
    random: Random,
    packets: Vec<Packet>,
    free: Vec<u32>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    begun: Vec<Begun>,
    inboxes: BTreeMap<NodeId, VecDeque<u32>>,
    tokens: TokenCheck,
    traffic: Traffic,
    digest: Fingerprint,
    watched_by: Option<CopyCheck>,
}

impl Network {
    /// A network without faults.
    pub fn new(seed: u64, model: LinkModel) -> Network {
        Network {
            model,
            rules: Vec::new(),
            random: Random::new(seed, "network"),
            packets: Vec::with_capacity(PACKETS),
            free: Vec::with_capacity(PACKETS),
            links: BTreeMap::new(),
            begun: Vec::new(),
            inboxes: BTreeMap::new(),
            tokens: TokenCheck::default(),
            traffic: Traffic::default(),
            digest: Fingerprint::default(),
            watched_by: None,
        }
    }

    /// Requests to I/O servers and their answers are checked.
    pub fn watch(&mut self, check: CopyCheck) {
        self.watched_by = Some(check);
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// As [`rules`](Network::rules), to add to and take from.
    pub fn rules_mut(&mut self) -> &mut Vec<Rule> {
        &mut self.rules
    }

    /// Counts so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The hash of all messages taken so far: their control parts, which hold the payloads' checksums.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Packets whose buffers are in use.
    pub fn in_flight(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Violations of payload tokens since the last call.
    pub fn take_violations(&mut self) -> Vec<String> {
        let watched = self.watched_by.iter().flat_map(CopyCheck::take_violations);
        watched.chain(self.tokens.take_violations()).collect()
    }

    /// The node died: what it has half received is gone, what it has half sent breaks off.
    pub fn forget(&mut self, node: NodeId) {
        self.tokens.forget(node);
        self.begun.retain(|begun| begun.from != node);
        let inbox = self.inboxes.remove(&node).unwrap_or_default();
        let mut freed = Vec::new();
        for (index, packet) in self.packets.iter_mut().enumerate() {
            let here = packet.header.destination == node;
            if packet.header.source == node && !packet.complete {
                packet.cut = true;
            }
            if here && matches!(packet.stage, Stage::Placed(..) | Stage::Waiting) {
                packet.stage = Stage::Dead;
                if packet.complete && inbox.contains(&(index as u32)) {
                    freed.push(index as u32);
                }
            }
        }
        freed.into_iter().for_each(|index| self.free(index));
    }

    /// Takes everything that the endpoint of `from` has posted. `schedule` is told of every arrival to come.
    pub fn collect(
        &mut self,
        now: Picos,
        from: NodeId,
        endpoint: &mut Endpoint,
        trace: &mut Trace,
        mut schedule: impl FnMut(Arrival),
    ) {
        if endpoint.take_filled() {
            let now_whole =
                |b: &mut Begun| b.from == from && endpoint.taken(&b.message).missing == 0;
            for begun in self.begun.extract_if(.., now_whole).collect::<Vec<_>>() {
                self.send(now, begun.since, begun.message, endpoint, trace, &mut schedule);
            }
        }
        while let Some(message) = endpoint.next_send() {
            if endpoint.taken(&message).missing > 0 {
                self.traffic.cut_through += 1;
                self.begun.push(Begun { from, message, since: now });
            } else {
                self.send(now, now, message, endpoint, trace, &mut schedule);
            }
        }
    }

    /// Sends a message that is whole now and began at `since`.
    fn send(
        &mut self,
        now: Picos,
        since: Picos,
        message: SendMessage,
        endpoint: &mut Endpoint,
        trace: &mut Trace,
        schedule: &mut impl FnMut(Arrival),
    ) {
        let control = endpoint.outgoing(&message).control;
        let view = ControlView::new(&control).expect("a node posts sealed messages only");
        let (header, call) = (view.header(), view.call());
        self.digest.mix_bytes(&control.0);
        self.note_offer(&header, &call);
        self.watched_by.iter().for_each(|check| check.sent(now, &header, &call));
        let Header { source: from, destination: to, kind, channel, .. } = header;
        let struck = Message { from, to, kind, channel, op: call.op };
        let verdict = Verdict::of(&mut self.rules, now, &struck, &mut self.random);
        self.traffic.sent += 1;
        self.traffic.struck += u64::from(!verdict.is_pass());
        trace_sent(trace, now, &header, &call, &verdict);
        let last = endpoint.outgoing(&message).payload.last().map_or(0, |part| part.len());
        let arrival = self.times(now, (since, last), &header, &verdict);
        if verdict.dropped {
            self.traffic.lost += 1;
        } else {
            let outgoing = endpoint.outgoing(&message);
            let packet = self.copy(outgoing, &header, &call, &verdict);
            schedule(Arrival { packet, ..arrival });
            if let Some(later) = verdict.again {
                let packet = self.copy(outgoing, &header, &call, &Verdict::default());
                let (head, tail) = (arrival.head + later, arrival.tail + later);
                schedule(Arrival { head, tail, packet });
            }
        }
        endpoint.transmitted(message);
    }

    fn note_offer(&mut self, header: &Header, call: &CallHeader) {
        if header.kind == Kind::Request && !header.flags.has(Flags::DELEGATED) {
            self.tokens.offered(header.source, header.token, call.call);
        }
    }

    /// When the message is there, which began at `since` and whose `last` bytes of data have just come. A dropped one
    /// uses the link all the same.
    fn times(
        &mut self,
        now: Picos,
        (since, last): (Picos, usize),
        header: &Header,
        verdict: &Verdict,
    ) -> Arrival {
        let bytes = wire::limits::CONTROL_BYTES + header.following_bytes();
        let (jitter, mut transfer) = (self.model.jitter.0, self.model.transfer(bytes));
        let jitter = Picos(if jitter == 0 { 0 } else { self.random.below(jitter) });
        let rest = self.model.transfer(last + header.trailer_bytes());
        let link = self.links.entry((header.source, header.destination)).or_default();
        let begun = now.max(link.busy_until);
        if since < now && link.busy_until <= since {
            transfer = Picos((since + transfer).max(now + rest).0 - now.0);
        }
        link.busy_until = begun + transfer;
        let in_order = (begun + self.model.latency + jitter + verdict.delayed).max(link.last_tail);
        let head = in_order + verdict.reordered.unwrap_or_default();
        let tail = head + transfer;
        if verdict.reordered.is_none() {
            link.last_tail = tail;
        }
        Arrival { head, tail, packet: PacketId(u32::MAX) }
    }

    fn copy(
        &mut self,
        message: &endpoint::Message,
        header: &Header,
        call: &CallHeader,
        verdict: &Verdict,
    ) -> PacketId {
        let index = self.free_packet(*header, *call);
        let packet = &mut self.packets[index as usize];
        packet.control = message.control;
        packet.cut = verdict.cut;
        message.payload.iter().for_each(|part| packet.data.extend_from_slice(part));
        packet.trailer.extend_from_slice(&message.trailer[..header.trailer_bytes()]);
        assert_eq!(
            packet.data.len(),
            header.payload_bytes as usize,
            "the header's length is right"
        );
        if verdict.header_bent {
            flip_bit(&mut packet.control.0, &mut self.random);
        }
        if verdict.payload_bent {
            bend_payload(packet, &mut self.random);
        }
        PacketId(index)
    }

    /// The packet has arrived or is lost: its buffer may be used again.
    fn free(&mut self, index: u32) {
        assert!(self.free.len() < self.packets.len(), "a buffer is free once");
        self.free.push(index);
    }

    fn free_packet(&mut self, header: Header, call: CallHeader) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.packets.push(Packet {
                control: Control::default(),
                header,
                call,
                data: Vec::new(),
                trailer: Vec::new(),
                stage: Stage::Dead,
                complete: false,
                cut: false,
            });
            self.packets.len() as u32 - 1
        });
        let packet = &mut self.packets[index as usize];
        (packet.header, packet.call, packet.stage) = (header, call, Stage::Travelling);
        (packet.complete, packet.cut) = (false, false);
        packet.data.clear();
        packet.trailer.clear();
        index
    }

    /// The node that a packet is for.
    pub fn destination(&self, packet: PacketId) -> NodeId {
        self.packets[packet.0 as usize].header.destination
    }

    /// Bytes of a packet's payload.
    pub fn payload_bytes(&self, packet: PacketId) -> usize {
        self.packets[packet.0 as usize].data.len()
    }

    /// The packet's control message has arrived. `None`: the receiver is down.
    pub fn handle_head(
        &mut self,
        now: Picos,
        packet: PacketId,
        endpoint: Option<&mut Endpoint>,
        trace: &mut Trace,
    ) {
        let Packet { control, header, stage, .. } = &mut self.packets[packet.0 as usize];
        assert!(matches!(stage, Stage::Travelling), "a packet has one head");
        let (node, intact) = (header.destination, ControlView::new(control).is_ok());
        if !intact {
            *stage = Stage::Dead;
            self.traffic.malformed += 1;
            return trace.line(now, node, "net", format_args!("refuses a damaged control message"));
        }
        let Some(endpoint) = endpoint else {
            *stage = Stage::Dead;
            self.traffic.lost += 1;
            return trace.line(now, node, "net", format_args!("is down: message lost"));
        };
        *stage = Stage::Waiting;
        self.inboxes.entry(node).or_default().push_back(packet.0);
        self.place_waiting(now, node, endpoint, trace);
        if matches!(self.packets[packet.0 as usize].stage, Stage::Waiting) {
            self.traffic.held += 1;
        }
    }

    /// The last byte of the packet has arrived. The second argument as for [`handle_head`](Network::handle_head).
    pub fn handle_tail(
        &mut self,
        now: Picos,
        packet: PacketId,
        endpoint: Option<&mut Endpoint>,
        trace: &mut Trace,
    ) {
        let entry = &mut self.packets[packet.0 as usize];
        assert!(!entry.complete, "a packet has one tail");
        entry.complete = true;
        match (&entry.stage, endpoint) {
            (Stage::Waiting, _) => {}
            (Stage::Placed(..), Some(endpoint)) => self.finish(now, packet.0, endpoint, trace),
            _ => self.free(packet.0),
        }
    }

    /// Places what waits for a free entry of `node`'s receive ring; to be called whenever the node may have freed one.
    pub fn place_waiting(
        &mut self,
        now: Picos,
        node: NodeId,
        endpoint: &mut Endpoint,
        trace: &mut Trace,
    ) {
        while let Some(index) = self.inboxes.get(&node).and_then(|inbox| inbox.front().copied()) {
            let packet = &mut self.packets[index as usize];
            let (message, wanted) = match endpoint.place(&packet.control, &packet.header) {
                Placement::Wait => return,
                Placement::Fill(message) => (message, true),
                Placement::Skip(message) => (message, false),
            };
            if wanted {
                note_claim(&mut self.tokens, packet, endpoint, &message);
            }
            packet.stage = Stage::Placed(message, wanted);
            self.inboxes.get_mut(&node).expect("just looked into").pop_front();
            if self.packets[index as usize].complete {
                self.finish(now, index, endpoint, trace);
            }
        }
    }

    /// Fills and delivers a placed packet whose last byte is there.
    fn finish(&mut self, now: Picos, index: u32, endpoint: &mut Endpoint, trace: &mut Trace) {
        let packet = &mut self.packets[index as usize];
        let stage = std::mem::replace(&mut packet.stage, Stage::Dead);
        let Stage::Placed(message, wanted) = stage else { panic!("a placed packet") };
        let node = packet.header.destination;
        for frame in &endpoint.arrived(&message).landed {
            self.tokens.filled(node, frame.offset());
        }
        self.free(index);
        let packet = &self.packets[index as usize];
        if packet.cut {
            self.traffic.lost += 1;
            self.tokens.broken_off(node, packet.header.token);
            trace_arrived(trace, now, packet, "broken off");
            return endpoint.abandon(message);
        }
        if wanted {
            fill(packet, endpoint.arrived(&message));
        }
        self.traffic.delivered += 1;
        trace_arrived(trace, now, packet, if wanted { "delivered" } else { "payload skipped" });
        if let (Some(check), Ok(view)) = (&self.watched_by, ControlView::new(&packet.control)) {
            check.arrived(&packet.header, &packet.call, view.body());
        }
        endpoint.deliver(message, &packet.header);
    }
}

fn note_claim(
    tokens: &mut TokenCheck,
    packet: &Packet,
    endpoint: &mut Endpoint,
    message: &ReceiveMessage,
) {
    let (header, node) = (&packet.header, packet.header.destination);
    if header.kind == Kind::Reply && !endpoint.arrived(message).landed.is_empty() {
        tokens.claimed(node, header.token, packet.call.call);
    }
    for frame in &endpoint.arrived(message).landed {
        tokens.filling(node, frame.offset(), frame.len());
    }
}

/// Puts data and trailer where the endpoint wants them.
fn fill(packet: &Packet, message: &mut endpoint::Message) {
    let mut rest = &packet.data[..];
    for frame in &mut message.landed {
        let (now, later) = rest.split_at(rest.len().min(frame.len()));
        frame[..now.len()].copy_from_slice(now);
        rest = later;
    }
    assert!(rest.is_empty(), "the endpoint found room for all of it");
    message.trailer[..packet.trailer.len()].copy_from_slice(&packet.trailer);
}

fn flip_bit(bytes: &mut [u8], random: &mut Random) {
    let at = random.index(bytes.len());
    bytes[at] ^= 1 << random.below(8);
}

fn bend_payload(packet: &mut Packet, random: &mut Random) {
    let (data, trailer) = (packet.data.len(), packet.trailer.len());
    if data + trailer == 0 {
        return;
    }
    if random.index(data + trailer) < data {
        flip_bit(&mut packet.data, random);
    } else {
        flip_bit(&mut packet.trailer, random);
    }
}

fn trace_sent(
    trace: &mut Trace,
    now: Picos,
    header: &Header,
    call: &CallHeader,
    verdict: &Verdict,
) {
    if !trace.is_on() {
        return;
    }
    let again = if header.flags.has(Flags::AGAIN) { " again" } else { "" };
    let what = format_args!(
        "-> {} {:?}{again} ch{} op{} seq {} data {}",
        header.destination.0,
        header.kind,
        header.channel.0,
        call.op,
        header.sequence,
        header.payload_bytes
    );
    if verdict.is_pass() {
        trace.line(now, header.source, "net", what);
    } else {
        trace.line(now, header.source, "net", format_args!("{what}: {verdict:?}"));
    }
}

fn trace_arrived(trace: &mut Trace, now: Picos, packet: &Packet, how: &str) {
    let header = &packet.header;
    trace.line(
        now,
        header.destination,
        "net",
        format_args!(
            "<- {} {:?} ch{} op{} seq {} status {}: {how}",
            header.source.0,
            header.kind,
            header.channel.0,
            packet.call.op,
            header.sequence,
            packet.call.status
        ),
    );
}
