//! A small driver: machines with an adapter each, engines that cost `o + n/B`, links without any memory of their own.
//! Bytes are really copied, as far as the engines' counters say, so that a sink that overran its source would pass on
//! what was there before.
#![allow(dead_code)] // each test uses its part

use nic::*;
use std::collections::BTreeMap;
use wire::NodeId;

/// Picoseconds of a microsecond.
pub const US: f64 = 1e6;

/// Cost of a transfer: an overhead and so much for each byte, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub overhead: u64,
    pub read: u64,
    pub write: u64,
    pub link: u64,
    /// Whether control messages cost anything; else their time is part of a constant added by the caller.
    pub control: bool,
}

impl Rates {
    /// From an overhead in microseconds and bandwidths in MB/s (10^6 bytes).
    pub fn new(overhead_us: f64, read: f64, write: f64, link: f64, control: bool) -> Rates {
        let per_byte = |bandwidth: f64| (1e6 / bandwidth).round() as u64;
        let overhead = (overhead_us * US).round() as u64;
        Rates {
            overhead,
            read: per_byte(read),
            write: per_byte(write),
            link: per_byte(link),
            control,
        }
    }

    fn cost(&self, transfer: &Transfer) -> (u64, u64) {
        if transfer.kind == Kind::Control && !self.control {
            return (0, 0);
        }
        match (transfer.engine, transfer.direction) {
            (Engine::HostDma, Direction::ToNet) => (self.overhead, self.read),
            (Engine::HostDma, Direction::ToHost) => (self.overhead, self.write),
            _ => (self.overhead, self.link),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Running {
    transfer: Transfer,
    /// When bytes begin to move, and how long each takes.
    begin: u64,
    per_byte: u64,
    /// Of the link's engines: bytes that earlier flows moved, and those of the present one.
    done: usize,
    flow: usize,
    ready: bool,
    copied: usize,
}

impl Running {
    fn moved(&self, now: u64) -> usize {
        let spent = now.saturating_sub(self.begin);
        let now_moved = spent.checked_div(self.per_byte).map_or(self.flow, |moved| moved as usize);
        self.done + now_moved.min(self.flow)
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Bus(usize),
    Ready(usize),
    Flow(usize),
    Look(usize),
    Timer(usize, u64),
}

/// Event for a test's host program.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    Action(Action),
    Timer(u64),
}

pub struct Machine {
    pub nic: Nic,
    pub host: Vec<u8>,
    memory: Vec<u8>,
    engines: [Option<Running>; 3],
    page: usize,
}

impl Machine {
    fn copy(&mut self, now: u64, link: &mut BTreeMap<(u16, u64), Vec<u8>>, which: &[Engine]) {
        for &engine in which {
            let Some(running) = &mut self.engines[engine as usize] else { continue };
            let (from, to) = (running.copied, running.moved(now));
            running.copied = to;
            let transfer = running.transfer;
            let Some((buffer, at)) = transfer.buffer.filter(|_| to > from) else { continue };
            let here = usize::from(buffer) * self.page + at;
            let key = (transfer.packet.source.0, transfer.packet.number);
            let there = transfer.offset;
            let host = transfer.address as usize + from;
            let (here, there, bytes) = (here + from, there + from, to - from);
            let memory = &mut self.memory[here..here + bytes];
            match (engine, transfer.direction) {
                (Engine::HostDma, Direction::ToNet) => {
                    memory.copy_from_slice(&self.host[host..host + bytes]);
                }
                (Engine::HostDma, Direction::ToHost) => {
                    self.host[host..host + bytes].copy_from_slice(memory);
                }
                (Engine::NetSend, _) => {
                    let wire = link.entry(key).or_insert_with(|| vec![0; transfer.packet.total]);
                    wire[there..there + bytes].copy_from_slice(memory);
                }
                (Engine::NetReceive, _) => {
                    memory.copy_from_slice(&link[&key][there..there + bytes]);
                }
            }
        }
    }
}

pub struct World {
    pub now: u64,
    pub machines: Vec<Machine>,
    pub rates: Rates,
    pub steps: u64,
    /// Payloads on the links.
    link: BTreeMap<(u16, u64), Vec<u8>>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
}

pub type Host<'a> = dyn FnMut(&mut World, usize, Told) + 'a;

impl World {
    pub fn new(rates: Rates, configs: &[Config], host_bytes: usize) -> World {
        let machine = |config: &Config| {
            let nic = Nic::new(config.clone()).unwrap();
            let memory = vec![0; nic.cache().buffers() * config.buffer_bytes];
            let page = config.buffer_bytes;
            Machine { nic, host: vec![0; host_bytes], memory, engines: [None; 3], page }
        };
        World {
            now: 0,
            machines: configs.iter().map(machine).collect(),
            rates,
            steps: 0,
            link: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
        }
    }

    pub fn nic(&mut self, machine: usize) -> &mut Nic {
        &mut self.machines[machine].nic
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time, self.sequence), event);
    }

    pub fn timer(&mut self, machine: usize, delay: u64, what: u64) {
        self.at(self.now + delay, Event::Timer(machine, what));
    }

    /// Lets the machine's adapter look at what its host has done.
    pub fn kick(&mut self, machine: usize) {
        self.at(self.now, Event::Look(machine));
    }

    /// Until nothing happens any more.
    pub fn run(&mut self, host: &mut Host) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = time;
            self.steps += 1;
            assert!(self.steps < 5_000_000, "the world comes to an end");
            self.happen(event, host);
        }
    }

    fn happen(&mut self, event: Event, host: &mut Host) {
        match event {
            Event::Bus(machine) => self.bus_done(machine, host),
            Event::Ready(machine) => self.ready(machine, host),
            Event::Flow(machine) => self.flowed(machine, host),
            Event::Look(machine) => self.pump(machine, host),
            Event::Timer(machine, what) => {
                host(self, machine, Told::Timer(what));
                self.pump(machine, host);
            }
        }
    }

    fn bus_done(&mut self, machine: usize, host: &mut Host) {
        self.sync(machine);
        self.machines[machine].engines[Engine::HostDma as usize] = None;
        let now = self.now;
        self.nic(machine).finished(now, Engine::HostDma);
        self.pump(machine, host);
    }

    /// The sender's overhead is over: bytes can flow; with a packet's first ones its head arrives.
    fn ready(&mut self, from: usize, host: &mut Host) {
        let running = self.machines[from].engines[Engine::NetSend as usize].as_mut().unwrap();
        running.ready = true;
        let transfer = running.transfer;
        let to = usize::from(transfer.packet.destination.0);
        if transfer.kind == Kind::Control {
            self.nic(to).arriving(transfer.packet);
            self.pump(to, host);
        }
        self.flow(from);
    }

    /// Starts a flow if both ends are there.
    fn flow(&mut self, from: usize) {
        let Some(sender) = self.machines[from].engines[Engine::NetSend as usize] else { return };
        let packet = sender.transfer.packet;
        let to = usize::from(packet.destination.0);
        let Some(receiver) = self.machines[to].engines[Engine::NetReceive as usize] else { return };
        let same = receiver.transfer.packet == packet;
        if !sender.ready || sender.flow > 0 || receiver.flow > 0 || !same {
            return;
        }
        let left = sender.transfer.bytes - sender.done;
        let bytes = left.min(receiver.transfer.bytes - receiver.done);
        let (_, per_byte) = self.rates.cost(&sender.transfer);
        let now = self.now;
        for (machine, engine) in [(from, Engine::NetSend), (to, Engine::NetReceive)] {
            let running = self.machines[machine].engines[engine as usize].as_mut().unwrap();
            (running.begin, running.per_byte, running.flow) = (now, per_byte, bytes);
        }
        self.at(now + bytes as u64 * per_byte, Event::Flow(from));
        self.watch(to);
    }

    fn flowed(&mut self, from: usize, host: &mut Host) {
        let sender = self.machines[from].engines[Engine::NetSend as usize].unwrap();
        let to = usize::from(sender.transfer.packet.destination.0);
        self.sync(from);
        self.sync(to);
        for (machine, engine) in [(from, Engine::NetSend), (to, Engine::NetReceive)] {
            let slot = &mut self.machines[machine].engines[engine as usize];
            let running = slot.as_mut().unwrap();
            running.done += running.flow;
            running.flow = 0;
            if running.done == running.transfer.bytes {
                *slot = None;
                let now = self.now;
                self.nic(machine).finished(now, engine);
            }
        }
        self.pump(to, host);
        self.pump(from, host);
        self.flow(from);
    }

    /// Copies what has moved, the senders' part first.
    fn sync(&mut self, machine: usize) {
        for sender in &mut self.machines {
            sender.copy(self.now, &mut self.link, &[Engine::NetSend]);
        }
        let rest = [Engine::HostDma, Engine::NetReceive];
        self.machines[machine].copy(self.now, &mut self.link, &rest);
    }

    fn pump(&mut self, machine: usize, host: &mut Host) {
        loop {
            self.sync(machine);
            let now = self.now;
            let Machine { nic, engines, .. } = &mut self.machines[machine];
            let moved = |engine: Engine| engines[engine as usize].map_or(0, |r| r.moved(now));
            let Some(command) = nic.step(now, &moved) else { break };
            match command.action {
                Action::Start(engine) => {
                    let transfer = *nic.active(engine).expect("it starts");
                    self.start(machine, transfer)
                }
                action => host(self, machine, Told::Action(action)),
            }
        }
        self.watch(machine);
    }

    fn start(&mut self, machine: usize, transfer: Transfer) {
        let (overhead, per_byte) = self.rates.cost(&transfer);
        let begin = self.now + overhead;
        let (flow, ready) =
            (if transfer.engine == Engine::HostDma { transfer.bytes } else { 0 }, false);
        let running = Running { transfer, begin, per_byte, done: 0, flow, ready, copied: 0 };
        let engine = &mut self.machines[machine].engines[transfer.engine as usize];
        assert!(engine.is_none(), "an engine does one thing at a time");
        *engine = Some(running);
        match transfer.engine {
            Engine::HostDma => self.at(begin + flow as u64 * per_byte, Event::Bus(machine)),
            Engine::NetSend => self.at(begin, Event::Ready(machine)),
            Engine::NetReceive => self.flow(usize::from(transfer.packet.source.0)),
        }
    }

    /// Looks again when a counter gets where the firmware waits for it.
    fn watch(&mut self, machine: usize) {
        for engine in [Engine::HostDma, Engine::NetReceive] {
            let Some(bytes) = self.machines[machine].nic.watch(engine) else { continue };
            let running = self.machines[machine].engines[engine as usize].unwrap();
            assert!(bytes > running.moved(self.now), "what can be done now has been done");
            let ahead = bytes - running.done;
            if ahead <= running.flow {
                self.at(running.begin + ahead as u64 * running.per_byte, Event::Look(machine));
            }
        }
    }
}

/// The address and length of host frame `index`, a page each.
pub fn page(index: usize, bytes: usize) -> HostFrame {
    HostFrame { address: (index * bytes) as u64, bytes }
}

pub fn to(source: u16, destination: u16) -> Send {
    Send { source: NodeId(source), destination: NodeId(destination), ..Send::default() }
}
