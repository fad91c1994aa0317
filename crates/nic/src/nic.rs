//! The firmware: what the three engines do next.

mod functional;
mod timing;

use crate::cache::PayloadCache;
use crate::command::{
    Action, Command, Engine, HostFrame, Kind, Packet, Piece, Progress, Ticks, Transfer,
};
use crate::config::{CONTROL, Config, ConfigError, Costs, Interrupts, Lag, Policy};
use crate::direction::Direction;
use crate::log::{Log, Record};
use crate::receive::{Admit, ArmError, Landed, Receives, Receiving};
use crate::send::{Leaving, PostError, Send, Sending};
use endpoint::IncomingTable;
use functional::Turns;
use std::collections::VecDeque;
use timing::Timing;

/// Counters of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that left.
    pub sent: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Of these, with a payload that was kept nowhere.
    pub payloads_discarded: u64,
    /// Packets dropped because the host had armed no entry ([`Lag::Drop`]).
    pub dropped: u64,
    /// Fragments dropped because their message's beginning was, and packets that no adapter sends.
    pub dropped_fragments: u64,
    /// Packets that had to wait on the link for an entry ([`Lag::Backpressure`]).
    pub held: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Deliveries that raised none.
    pub interrupts_suppressed: u64,
    /// Turns that passed from one loop to the other ([`Policy::Functional`]).
    pub punts: u64,
    /// Instructions of all commands so far.
    pub instructions: u64,
}

/// The commands that a step started, and the instructions that it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub engine: Engine,
    pub instructions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    transfer: Transfer,
    start: Ticks,
}

/// One adapter's firmware (HPDC'97 section 3, HotI'99 section 3).
///
/// The driver owns engines, bytes and time. It calls, in this order, whenever something happened:
/// - events: [`Nic::finished`] for each engine whose transfer has ended, in the order of the ends;
///   [`Nic::arriving`] when a packet's head has come to the adapter;
/// - the host's calls: [`Nic::post`], [`Nic::arm`], [`Nic::drained`];
/// - [`Nic::step`] until it returns nothing, carrying out each command;
/// - [`Nic::watch`], to know how far an active transfer must get before another step can bring something.
///
/// Invariant: a sink never overruns its source. Nothing is allocated after the first turn of the rings.
#[derive(Debug)]
pub struct Nic {
    pub(crate) config: Config,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    cache: PayloadCache,
    /// Buffers whose payload has left, and that the link still reads.
    with_link: VecDeque<u16>,
    active: [Option<Active>; 3],
    /// Bytes moved by the active transfers in this step, and the step's time.
    moved: [usize; 3],
    now: Ticks,
    /// The direction that the host's engine is to try first.
    turn: Direction,
    pub(crate) turns: Turns,
    notices: VecDeque<Action>,
    /// Instructions not yet charged to a command: the next one bears them.
    owed: u32,
    interrupts_off: bool,
    holding: bool,
    log: Log,
    counters: Counters,
    /// Of payloads to the link, and of those to the host.
    timing: [Timing; 2],
}

impl Nic {
    /// An adapter with empty rings.
    pub fn new(config: Config) -> Result<Nic, ConfigError> {
        config.check()?;
        Ok(Nic {
            sending: Sending::new(config.send_ring, config.policy.packet_bytes_max()),
            receiving: Receiving::new(&config),
            cache: PayloadCache::new(config.buffers),
            with_link: VecDeque::new(),
            active: [None; 3],
            moved: [0; 3],
            now: 0,
            turn: Direction::ToNet,
            turns: Turns::default(),
            notices: VecDeque::with_capacity(config.send_ring + 2 * config.receive_ring),
            owed: 0,
            interrupts_off: false,
            holding: false,
            log: Log::new(config.log),
            counters: Counters::default(),
            timing: timing::both(),
            config,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Its payload buffers.
    pub fn cache(&self) -> &PayloadCache {
        &self.cache
    }

    /// The transfers so far, as many as the log keeps.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Free entries of the send ring.
    pub fn send_room(&self) -> usize {
        self.sending.room()
    }

    /// Entries of the receive ring that are armed and not taken.
    pub fn armed(&self) -> usize {
        self.receiving.armed()
    }

    /// The transfer that an engine is making. It stays where it is: copied from hand to hand it would cost more than
    /// all else that a step does.
    pub fn active(&self, engine: Engine) -> Option<&Transfer> {
        self.active[engine as usize].as_ref().map(|active| &active.transfer)
    }

    /// Packets whose heads wait on the link.
    pub fn waiting(&self) -> usize {
        self.receiving.arrivals.len()
    }

    /// Frames of a delivered message's payload; until the entry is armed again.
    pub fn landed(&self, slot: usize) -> &[Landed] {
        self.receiving.landed(slot)
    }

    /// Frames and buffers of a sent message's payload; until the entry is used again.
    pub fn sent(&self, slot: usize) -> impl Iterator<Item = Landed> + '_ {
        let units = self.sending.slot_at(slot).stream.units.iter();
        units.map(|unit| Landed {
            frame: unit.frame,
            binding: unit.buffer.and_then(|buffer| self.cache.binding(buffer)),
        })
    }

    /// The incoming payload table: the host arms and cancels tokens in it.
    pub fn incoming(&mut self) -> &mut IncomingTable<HostFrame> {
        &mut self.receiving.incoming
    }

    /// Host: sends a message whose payload is these pieces of host memory, in order; its number. They stay as they
    /// are until [`Action::Complete`].
    pub fn post(&mut self, send: Send, pieces: &[Piece]) -> Result<u64, PostError> {
        let bytes = pieces.iter().map(|piece| piece.frame.bytes).sum();
        if bytes > self.config.mtu {
            return Err(PostError::TooLong { bytes, mtu: self.config.mtu });
        }
        self.sending.post(send, pieces, self.config.buffer_bytes)
    }

    /// Host: arms the next entry of the receive ring with frames for a payload, or none; which entry it is.
    pub fn arm(&mut self, frames: &[HostFrame]) -> Result<usize, ArmError> {
        self.receiving.arm(frames)
    }

    /// Host: has taken `messages` in all and found no more; it is to be interrupted again ([`Interrupts::Suppressed`]).
    /// If one came meanwhile, at once.
    pub fn drained(&mut self, messages: u64) {
        if self.config.interrupts == Interrupts::Suppressed {
            self.interrupts_off = false;
            if self.counters.delivered > messages {
                self.interrupt();
            }
        }
    }

    /// A packet's head has come to the adapter. Its bytes wait on the link until the net-receive engine takes them.
    pub fn arriving(&mut self, packet: Packet) {
        self.receiving.arrivals.push_back(packet);
    }

    /// The engine's transfer has ended.
    pub fn finished(&mut self, now: Ticks, engine: Engine) {
        let active = self.active[engine as usize].as_ref().expect("the engine had a transfer");
        let &Transfer { direction, kind, bytes, slot, .. } = &active.transfer;
        let Packet { number, payload, .. } = active.transfer.packet;
        self.log.add(|| Record { transfer: active.transfer, start: active.start, end: now });
        self.active[engine as usize] = None;
        match (engine, direction) {
            (Engine::HostDma, Direction::ToNet) => self.fetched(number, bytes),
            (Engine::HostDma, Direction::ToHost) => self.deposited(kind, bytes),
            (Engine::NetSend, _) => self.left(kind, bytes, Action::Complete { slot, number }),
            (Engine::NetReceive, _) => self.came(kind, bytes, payload),
        }
        while let Some(ended) = self.receiving.settle(&self.cache) {
            ended.into_iter().for_each(|action| self.deliver(action, now));
        }
        if engine == Engine::NetSend {
            self.end_timing_to_net(now);
        }
    }

    /// Buffers whose payload has left and that the link still reads ([`Config::link_keeps`]).
    pub fn with_link(&self) -> usize {
        self.with_link.len()
    }

    /// The link is done with the buffer that left first of those that it keeps. Panics when it keeps none.
    pub fn released(&mut self, now: Ticks) {
        let buffer = self.with_link.pop_front().expect("the link kept a buffer");
        self.cache.sink_done(buffer);
        self.end_timing_to_net(now);
    }

    /// The next action; `None` is to wait. `engines` are the counters of the active transfers.
    pub fn step(&mut self, now: Ticks, engines: &(impl Progress + ?Sized)) -> Option<Command> {
        if let Some(action) = self.notices.pop_front() {
            return Some(self.tell(action));
        }
        if self.sending.is_empty() && self.receiving.is_empty() {
            return None;
        }
        for engine in Engine::ALL {
            self.moved[engine as usize] = self.active(engine).map_or(0, |active| {
                let moved = engines.moved(engine);
                assert!(moved <= active.bytes, "a counter stays in its transfer");
                moved
            });
        }
        let found = self.sending.attach(&mut self.cache) + self.receiving.attach(&mut self.cache);
        self.owed += found * self.config.costs.cache;
        self.now = now;
        let started = match self.config.policy {
            Policy::Functional => self.functional()?,
            _ => self.resources()?,
        };
        Some(self.command(Action::Start(started.engine), started.instructions))
    }

    fn start(&mut self, transfer: Transfer, instructions: u32) -> Started {
        let engine = transfer.engine;
        self.active[engine as usize] = Some(Active { transfer, start: self.now });
        Started { engine, instructions }
    }

    /// Bytes of the engine's active transfer that must have moved before a step can start something that it could not
    /// when it last returned nothing; `None` is not before the transfer ends.
    pub fn watch(&self, engine: Engine) -> Option<usize> {
        let transfer = self.active(engine)?;
        if transfer.kind != Kind::Payload {
            return None;
        }
        match (engine, transfer.direction) {
            (Engine::HostDma, Direction::ToNet) => self.watch_fetch(transfer),
            (Engine::NetReceive, _) => self.watch_coming(transfer),
            _ => None,
        }
    }

    fn watch_fetch(&self, transfer: &Transfer) -> Option<usize> {
        let leaving = transfer.packet.number == self.sending.leaving;
        let idle = self.active(Engine::NetSend).is_none();
        let stream = &self.sending.slot_at(transfer.slot).stream;
        let pulse = self.pulse(Direction::ToNet, transfer.packet.total);
        if leaving && idle { stream.watch(pulse, transfer.bytes) } else { None }
    }

    fn watch_coming(&self, transfer: &Transfer) -> Option<usize> {
        let idle = self.active(Engine::HostDma).is_none();
        let stream = self.receiving.only_stream().filter(|_| idle)?;
        stream.watch(self.pulse(Direction::ToHost, transfer.packet.total), transfer.bytes)
    }

    /// The resource-centred loop: which engines are idle, and how can they be used (HPDC'97 Figure 3).
    fn resources(&mut self) -> Option<Started> {
        Engine::ALL.into_iter().find_map(|engine| match engine {
            Engine::HostDma => self.host(),
            Engine::NetSend => self.net_send(),
            Engine::NetReceive => self.net_receive(),
        })
    }

    fn is_idle(&self, engine: Engine) -> bool {
        self.active[engine as usize].is_none()
    }

    /// The host's engine: one transfer this way, one that way, while there is work both ways.
    fn host(&mut self) -> Option<Started> {
        let first = self.turn;
        self.host_towards(first).or_else(|| self.host_towards(first.other()))
    }

    pub(crate) fn host_towards(&mut self, direction: Direction) -> Option<Started> {
        if !self.is_idle(Engine::HostDma) {
            return None;
        }
        let transfer = match direction {
            Direction::ToNet => self.fetch()?,
            Direction::ToHost => self.deposit()?,
        };
        self.turn = direction.other();
        Some(self.start(transfer, self.config.costs.host))
    }

    fn fetch(&mut self) -> Option<Transfer> {
        let number = self.sending.next_fetch()?;
        if self.sending.slot(number).stream.source_started == 0 {
            self.begin_timing_to_net(number);
        }
        let slot = self.sending.index(number);
        let entry = self.sending.slot(number);
        let (unit, offset, bytes) = entry.stream.start_source(self.config.policy.fetch_bytes_max());
        let total = entry.packet().total;
        Some(Transfer {
            engine: Engine::HostDma,
            direction: Direction::ToNet,
            kind: Kind::Payload,
            packet: Packet { offset: 0, payload: total, ..entry.packet() },
            slot,
            buffer: unit.place(offset),
            address: unit.address(offset),
            offset,
            bytes,
            last: offset + bytes == total,
        })
    }

    fn deposit(&mut self) -> Option<Transfer> {
        let total = self.receiving.going()?.packet.total;
        let pulse = self.pulse(Direction::ToHost, total);
        let moved = self.moved_of_going();
        let (what, bytes) = self.receiving.next_going(pulse, moved)?;
        let arrived = self.receiving.going()?;
        let (packet, slot) = (arrived.packet, arrived.slot);
        let control =
            Transfer { direction: Direction::ToHost, ..control(Engine::HostDma, packet, slot) };
        if what == Receives::Control {
            let last = self.receiving.control_going();
            return Some(Transfer { last, ..control });
        }
        let (unit, offset) = arrived.stream.start_sink(bytes, moved);
        Some(Transfer {
            kind: Kind::Payload,
            buffer: unit.place(offset),
            address: unit.address(offset),
            offset,
            bytes,
            last: offset + bytes == packet.offset + packet.payload,
            ..control
        })
    }

    /// Bytes of the payload whose turn it is to go to the host that have come by the active transfer.
    fn moved_of_going(&self) -> usize {
        let payload = self.active(Engine::NetReceive).is_some_and(|t| t.kind == Kind::Payload);
        let only = self.receiving.only_stream().is_some();
        if payload && only { self.moved[Engine::NetReceive as usize] } else { 0 }
    }

    pub(crate) fn net_send(&mut self) -> Option<Started> {
        if !self.is_idle(Engine::NetSend) {
            return None;
        }
        let number = self.sending.leaving;
        let fetch = self.active(Engine::HostDma);
        let own =
            fetch.is_some_and(|t| t.direction == Direction::ToNet && t.packet.number == number);
        let moved = if own { self.moved[Engine::HostDma as usize] } else { 0 };
        if self.sending.is_empty() {
            return None;
        }
        let pulse = self.pulse(Direction::ToNet, self.sending.total(number));
        let what = self.sending.next_leaving(pulse, moved)?;
        let (slot, costs) = (self.sending.index(number), self.config.costs);
        let entry = self.sending.slot(number);
        let packet = entry.packet();
        let control = control(Engine::NetSend, packet, slot);
        let Leaving::Payload { bytes } = what else {
            return Some(self.start(control, costs.net_send + costs.send_packet));
        };
        let (unit, offset) = entry.stream.start_sink(bytes, moved);
        let last = offset + bytes == packet.offset + packet.payload;
        let kind = Kind::Payload;
        let transfer =
            Transfer { kind, buffer: unit.place(offset), offset, bytes, last, ..control };
        Some(self.start(transfer, costs.net_send))
    }

    pub(crate) fn net_receive(&mut self) -> Option<Started> {
        if !self.is_idle(Engine::NetReceive) {
            return None;
        }
        if self.receiving.coming().is_none() {
            return self.admit();
        }
        let what = self.receiving.next_coming()?;
        let arrived = self.receiving.coming()?;
        let (packet, slot) = (arrived.packet, arrived.slot);
        let control = incoming(packet, slot);
        let costs = self.config.costs;
        let transfer = match what {
            Receives::Control => {
                return Some(self.start(control, costs.net_receive + costs.receive_packet));
            }
            Receives::Discard(bytes) => {
                Transfer { kind: Kind::Discard, bytes, last: true, ..control }
            }
            Receives::Payload => {
                let (unit, offset, bytes) = arrived.stream.start_source(usize::MAX);
                let last = offset + bytes == packet.offset + packet.payload;
                let buffer = unit.place(offset);
                Transfer { kind: Kind::Payload, buffer, offset, bytes, last, ..control }
            }
        };
        Some(self.start(transfer, costs.net_receive))
    }

    /// Takes the packet whose head waits on the link, or drops it, or leaves it there.
    fn admit(&mut self) -> Option<Started> {
        let packet = *self.receiving.arrivals.front()?;
        let admitted = self.receiving.admit(&packet);
        match admitted {
            Admit::Slot(slot) => {
                self.receiving.arrivals.pop_front();
                self.receiving.take(packet, slot);
                self.begin_timing_to_host(packet.total);
                self.holding = false;
                return self.net_receive();
            }
            Admit::NoEntry if self.config.lag == Lag::Backpressure => {
                self.counters.held += u64::from(!self.holding);
                self.holding = true;
                return None;
            }
            Admit::Wait => return None,
            Admit::NoEntry => self.counters.dropped += 1,
            Admit::Unknown => self.counters.dropped_fragments += 1,
        }
        self.receiving.arrivals.pop_front();
        let bytes = CONTROL + packet.payload;
        let transfer = Transfer { kind: Kind::Discard, bytes, ..incoming(packet, 0) };
        Some(self.start(Transfer { last: true, ..transfer }, self.config.costs.net_receive))
    }

    fn fetched(&mut self, number: u64, bytes: usize) {
        let stream = &mut self.sending.slot(number).stream;
        if let Some(buffer) = stream.end_source(bytes) {
            self.cache.source_done(buffer);
        }
    }

    fn left(&mut self, kind: Kind, bytes: usize, complete: Action) {
        let (gone, done) = match kind {
            Kind::Control => (self.sending.control_left(), None),
            _ => self.sending.payload_left(bytes),
        };
        match done {
            Some(buffer) if self.config.link_keeps => self.with_link.push_back(buffer),
            Some(buffer) => self.cache.sink_done(buffer),
            None => {}
        }
        if gone {
            self.counters.sent += 1;
            self.notices.push_back(complete);
        }
    }

    fn came(&mut self, kind: Kind, bytes: usize, payload: usize) {
        match kind {
            Kind::Control => self.receiving.control_came(),
            Kind::Discard if bytes > payload => (), // a packet that was dropped
            Kind::Discard => self.receiving.discarded(bytes),
            Kind::Payload => {
                let arrived = self.receiving.coming().expect("a packet comes");
                if let Some(buffer) = arrived.stream.end_source(bytes) {
                    self.cache.source_done(buffer);
                }
            }
        }
    }

    fn deposited(&mut self, kind: Kind, bytes: usize) {
        if kind == Kind::Control {
            return self.receiving.control_gone();
        }
        let arrived = self.receiving.going().expect("a packet goes");
        if let Some(buffer) = arrived.stream.end_sink(bytes) {
            self.cache.sink_done(buffer);
        }
    }

    fn deliver(&mut self, action: Action, now: Ticks) {
        let Action::Deliver { packet, landed, .. } = action else { return };
        self.end_timing_to_host(now);
        self.counters.delivered += 1;
        self.counters.payloads_discarded += u64::from(packet.total > landed);
        self.notices.push_back(action);
        match self.config.interrupts {
            Interrupts::Never => (),
            Interrupts::Suppressed if self.interrupts_off => {
                self.counters.interrupts_suppressed += 1
            }
            Interrupts::Suppressed | Interrupts::Each => self.interrupt(),
        }
    }

    fn interrupt(&mut self) {
        self.interrupts_off = true;
        self.counters.interrupts += 1;
        self.notices.push_back(Action::Interrupt);
    }

    fn tell(&mut self, action: Action) -> Command {
        let cost = if action == Action::Interrupt { self.config.costs.interrupt } else { 0 };
        if let Action::Deliver { slot, .. } = action {
            self.receiving.told(slot);
        }
        self.command(action, cost)
    }

    fn command(&mut self, action: Action, instructions: u32) -> Command {
        let instructions = instructions + std::mem::take(&mut self.owed);
        self.counters.instructions += u64::from(instructions);
        Command { action, instructions }
    }

    pub(crate) fn count_punts(&mut self, punts: u32) {
        self.counters.punts += u64::from(punts);
        self.owed += punts * self.config.costs.punt;
    }
}

fn control(engine: Engine, packet: Packet, slot: usize) -> Transfer {
    Transfer {
        engine,
        direction: Direction::ToNet,
        kind: Kind::Control,
        packet,
        slot,
        buffer: None,
        address: 0,
        offset: packet.offset,
        bytes: CONTROL,
        last: packet.payload == 0,
    }
}

fn incoming(packet: Packet, slot: usize) -> Transfer {
    Transfer { direction: Direction::ToHost, ..control(Engine::NetReceive, packet, slot) }
}

impl Costs {
    /// Instructions to receive one packet of one unit and send it on from the cache, all transfers counted
    /// (forwarding paper section 2.2: about 550).
    pub fn forwarding(&self) -> u32 {
        let receive = self.receive_packet + self.cache + 2 * self.net_receive + 2 * self.host;
        receive + self.send_packet + self.cache + 2 * self.net_send
    }
}
