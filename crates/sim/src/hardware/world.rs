//! The adapter world: hosts whose adapters run the firmware of `nic` on modelled engines, over links and crossbars.
//!
//! ```text
//!   Program ─ post, take ─► host processor ─ programmed I/O ─┐
//!                                                            ▼
//!   host memory ◄────────── HostDma, on the bus ─────────► buffers ◄── NetReceive, NetSend ──► fabric
//!                                                            ▲
//!                            adapter's processor: `Nic::step`, one command after the other
//! ```
//!
//! A run is a function of its seed and its set-up. Transfers, programmed I/O and runs of instructions are
//! flows; their rates are worked out anew only when one of them starts or ends (`rates`). Payload bytes are not
//! stored but named: each page of host memory and each adapter buffer has the name of its content, and every
//! transfer is checked against what its source has (`check`). A broken check ends the run with seed and time.

mod apply;
mod check;
mod engines;
mod hosts;
pub mod program;
mod rates;
mod wire;
mod work;

use super::board::Board;
use super::bus::Users;
use super::catalogue::{Constants, Machine};
use super::fabric::{Fabric, Link};
use crate::fingerprint::Fingerprint;
use crate::queue::{Picos, Queue};
use check::Contents;
use engines::{Bank, Processor};
use hosts::HostState;
use nic::{Engine, HostFrame, Nic, Piece};
use program::{Program, Wake};
use wire::Outgoing;

/// How transfers are priced on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pricing {
    /// The machine's two fitted constants stand for the adapter's processor and memory.
    Constants(Constants),
    /// The firmware's instructions, on a processor that gets what memory the engines leave (forwarding paper section
    /// 2.2).
    Contention,
}

/// One adapter of a world.
#[derive(Clone, Debug)]
pub struct AdapterSetup {
    /// The board.
    pub board: Board,
    /// How its transfers are priced.
    pub pricing: Pricing,
    /// Settings of its firmware.
    pub nic: nic::Config,
}

/// One host of a world.
#[derive(Clone, Debug)]
pub struct HostSetup {
    /// Its processor and bus.
    pub machine: Machine,
    /// Bytes of a page of its memory.
    pub page: usize,
    /// Its adapters, all on the one bus.
    pub adapters: Vec<AdapterSetup>,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An engine is through with what a transfer costs before its first byte.
    Ready { adapter: u16, engine: Engine },
    /// A host DMA transfer ends, if its stamp is still the engine's.
    HostDma { adapter: u16, stamp: u32 },
    /// A burst on the link ends.
    Burst { adapter: u16, stamp: u32 },
    /// The adapter's processor has executed what a command costs.
    Executed { adapter: u16, stamp: u32 },
    /// A packet's head has come to its receiver.
    Head { adapter: u16 },
    /// A transfer is as far as the firmware waits for.
    Look { adapter: u16, stamp: u32 },
    /// The host's processor is done with the timed part of its job.
    Job { host: u16 },
    /// The adapter sees a message in its send ring.
    Rung { host: u16, posting: u32 },
    /// The host's programmed I/O ends.
    Pio { host: u16, stamp: u32 },
    /// A transfer of another device ends, if its stamp is still the host's.
    Moved { host: u16, stamp: u32 },
    /// The host sees what came.
    Notice { host: u16 },
    /// A program wanted to be woken.
    Timer { host: u16, token: u32 },
}

/// An adapter at work.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub host: u16,
    pub board: Board,
    pub pricing: Pricing,
    pub nic: Nic,
    pub engines: Bank,
    pub processor: Processor,
    /// When the firmware looks again at how far its engines are, and the stamp of that event.
    pub look_time: Option<Picos>,
    pub look: u32,
    /// The packet on its way out, and the adapter whose packet is coming in.
    pub outgoing: Outgoing,
    pub incoming: Option<u16>,
    /// Messages posted and not completed, packets arriving and not delivered: what makes a transfer a busy one.
    pub in_progress: u32,
    /// Sends that programs asked for and that are not completed.
    pub claimed: usize,
    /// Messages in the send ring that the adapter has not seen yet.
    pub ringing: usize,
    pub contents: Contents,
    /// By entry of the receive ring: its frames, and who sent what is in it. By entry of the send ring: its posting.
    pub armed: Vec<Vec<HostFrame>>,
    pub senders: Vec<u16>,
    pub postings: Vec<u32>,
}

/// The world.
#[derive(Debug)]
pub struct World<P> {
    seed: u64,
    queue: Queue<Event>,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) adapters: Vec<Adapter>,
    pub(crate) fabric: Fabric,
    programs: Vec<P>,
    fingerprint: Fingerprint,
    handled: u64,
    /// Adapters whose rates are to be worked out anew; kept to be used again.
    dirty: Vec<u16>,
    wakes: Vec<Wake>,
    rooms: Vec<usize>,
    pieces: Vec<Piece>,
}

/// Events of one adapter that can be in the queue at once, generously.
const EVENTS_EACH: usize = 64;

impl<P: Program> World<P> {
    /// A world of `hosts`, all of whose adapters are on crossbars of `link`; adapters are numbered host by host. Each
    /// host runs its program.
    ///
    /// The error says what cannot be built.
    pub fn new(
        seed: u64,
        link: Link,
        hosts: &[HostSetup],
        programs: Vec<P>,
    ) -> Result<World<P>, String> {
        assert_eq!(hosts.len(), programs.len(), "a program for each host");
        let count: usize = hosts.iter().map(|host| host.adapters.len()).sum();
        let mut world = World {
            seed,
            queue: Queue::with_capacity(EVENTS_EACH * count.max(1)),
            hosts: hosts.iter().map(HostState::new).collect(),
            adapters: Vec::with_capacity(count),
            fabric: Fabric::new(link, count),
            programs,
            fingerprint: Fingerprint::default(),
            handled: 0,
            dirty: Vec::with_capacity(count),
            wakes: Vec::new(),
            rooms: Vec::new(),
            pieces: Vec::new(),
        };
        for (index, setup) in hosts.iter().enumerate() {
            for adapter in &setup.adapters {
                world.hosts[index].adapters.push(world.adapters.len() as u16);
                world.adapters.push(Adapter::new(index as u16, adapter)?);
            }
        }
        world.begin();
        Ok(world)
    }

    /// The seed, which with the set-up determines the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Simulated time.
    pub fn now(&self) -> Picos {
        self.queue.now()
    }

    /// Events that did something; those overtaken by a change of rate are not counted.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// The hash of everything that happened.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    /// The firmware of an adapter: counters, cache, log.
    pub fn nic(&self, adapter: usize) -> &Nic {
        &self.adapters[adapter].nic
    }

    /// A host's program.
    pub fn program(&self, host: usize) -> &P {
        &self.programs[host]
    }

    /// Time that a host's processor worked.
    pub fn host_busy(&self, host: usize) -> Picos {
        self.hosts[host].busy
    }

    /// Whether a host's processor works now.
    pub fn is_working(&self, host: usize) -> bool {
        self.hosts[host].is_working()
    }

    /// Time that a host's bus was in use.
    pub fn bus_busy(&self, host: usize) -> Picos {
        self.hosts[host].bus_busy
    }

    /// When something happens next.
    pub fn next_time(&self) -> Option<Picos> {
        self.queue.next_time()
    }

    /// Goes on until nothing is to come or `until` is reached. Whether anything is to come.
    pub fn run(&mut self, until: Picos) -> bool {
        while let Some(time) = self.queue.next_time() {
            if time > until {
                return true;
            }
            self.step();
        }
        false
    }

    /// Goes on until `done` of the programs; whether it came to that before the world stood still.
    pub fn run_until(&mut self, done: impl Fn(&[P]) -> bool) -> bool {
        while !done(&self.programs) {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// The next event; whether there was one.
    pub fn step(&mut self) -> bool {
        let Some((now, event)) = self.queue.pop() else { return false };
        let number = match event {
            Event::Ready { adapter, engine } => self.ready(adapter, engine),
            Event::HostDma { adapter, stamp } => self.host_dma_ends(adapter, stamp),
            Event::Burst { adapter, stamp } => self.burst_ends(adapter, stamp),
            Event::Executed { adapter, stamp } => self.executed(adapter, stamp),
            Event::Head { adapter } => self.head_comes(adapter),
            Event::Look { adapter, stamp } => self.look(adapter, stamp),
            Event::Job { host } => self.job_timed(host),
            Event::Rung { host, posting } => self.rung(host, posting),
            Event::Pio { host, stamp } => self.pio_ends(host, stamp),
            Event::Moved { host, stamp } => self.moved(host, stamp),
            Event::Notice { host } => self.notice(host),
            Event::Timer { host, token } => self.timer(host, token),
        };
        if let Some(kind) = number {
            self.handled += 1;
            self.fingerprint.mix(now.0 ^ kind << 56);
        }
        true
    }

    pub(crate) fn at(&mut self, time: Picos, event: Event) {
        self.queue.push(time, 0, event);
    }

    /// Ends the run: a model did what no hardware may.
    pub(crate) fn wrong(&self, adapter: u16, what: &str) -> ! {
        panic!("seed {}, {} s, adapter {adapter}: {what}", self.seed, self.queue.now())
    }
}

impl Adapter {
    fn new(host: u16, setup: &AdapterSetup) -> Result<Adapter, String> {
        let nic = Nic::new(setup.nic.clone()).map_err(|error| error.to_string())?;
        let buffers = nic.cache().buffers();
        let needed = (buffers * setup.nic.buffer_bytes) as u64;
        if needed > setup.board.memory {
            let has = setup.board.memory;
            return Err(format!(
                "{buffers} payload buffers take {needed} bytes; the board has {has}"
            ));
        }
        Ok(Adapter {
            host,
            board: setup.board,
            pricing: setup.pricing,
            engines: Bank::default(),
            processor: Processor::default(),
            look_time: None,
            look: 0,
            outgoing: Outgoing::default(),
            incoming: None,
            in_progress: 0,
            claimed: 0,
            ringing: 0,
            contents: Contents::new(&setup.nic, buffers),
            armed: vec![Vec::new(); setup.nic.receive_ring],
            senders: vec![0; setup.nic.receive_ring],
            postings: vec![0; setup.nic.send_ring],
            nic,
        })
    }
}

/// The users of a host's bus.
pub(crate) type BusUsers = Users;
