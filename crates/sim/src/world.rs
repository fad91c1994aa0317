//! The world: machines, the network between them, and time.
//!
//! [`World::advance`] takes the next event, lets the model of what it is about act, steps the nodes that have
//! something new, and takes what they put on their rings. It returns whenever the code that runs the world has
//! something to do: a file operation that ended, a timer of its own.
//!
//! Invariant: what happens is a function of the seed and of the calls made on the world; every random draw comes from
//! a component's own stream, and machines are visited in the order of their ids.

mod carrying;

use crate::ethernet::{Ethernet, EthernetModel};
use crate::fingerprint::Fingerprint;
use crate::limits::QUEUE_EVENTS;
use crate::machine::{Machine, MachineConfig, Role};
use crate::network::{Arrival, LinkModel, Network, PacketId};
use crate::queue::{Picos, Queue};
use crate::random::Random;
use crate::storage::Crash;
use crate::trace::Trace;
use crate::underlay::{Done, Underlay};
use endpoint::Frames;
use node::rings::{FileDone, FileRequest};
use std::collections::{BTreeMap, VecDeque};
use wire::NodeId;

/// A node that has something new runs this much later: what one step costs (assumed), and time for more to come.
const STEP: Picos = Picos::nanos(500);
/// How long after a process was killed its peers' connections are reset.
const RESET_DELAY: Picos = Picos::micros(100);
/// The wall clock at the beginning of every run, in seconds since 1970.
const WALL_SECONDS: i64 = 1_000_000_000;
/// Random streams of the world itself.
const STREAM: &str = "world";

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Head(PacketId),
    Tail(PacketId),
    Frame(u32),
    Frames(NodeId),
    Step { node: NodeId, boot: u32 },
    Disk { node: NodeId, disk: u16, number: u64 },
    Meta { node: NodeId, number: u64 },
    LinkUp { node: NodeId, peer: NodeId },
    LinkDown { node: NodeId, peer: NodeId },
    Timer(u64),
    Hardware(Done),
}

/// Event for the driver of the world.
#[derive(Debug)]
pub enum Happening {
    /// A file operation has ended at this node.
    Done(NodeId, FileDone),
    /// A timer set by [`World::set_timer`] is due.
    Timer(u64),
    /// The time to which the world was to run has come.
    Pause,
}

/// The world.
pub struct World {
    queue: Queue<Event>,
    network: Network,
    /// Carries messages instead, if there is one.
    ethernet: Option<Ethernet>,
    machines: BTreeMap<NodeId, Machine>,
    happenings: VecDeque<Happening>,
    violations: Vec<String>,
    fingerprint: Fingerprint,
    trace: Trace,
    random: Random,
    seed: u64,
    events: u64,
    hardware: Option<Hardware>,
}

/// Modelled hardware under the nodes, instead of plain models, and the file calls that are on their way through the
/// system call layer, there and back.
struct Hardware {
    underlay: Underlay,
    asked: BTreeMap<(NodeId, u64), FileRequest>,
    answered: BTreeMap<(NodeId, u64), FileDone>,
    leaving: Vec<PacketId>,
}

impl World {
    /// An empty world at time zero.
    pub fn new(seed: u64, links: LinkModel, trace: Trace) -> World {
        World {
            queue: Queue::with_capacity(QUEUE_EVENTS),
            network: Network::new(seed, links),
            ethernet: None,
            machines: BTreeMap::new(),
            happenings: VecDeque::new(),
            violations: Vec::new(),
            fingerprint: Fingerprint::default(),
            trace,
            random: Random::new(seed, STREAM),
            seed,
            events: 0,
            hardware: None,
        }
    }

    /// The same on modelled hardware, which has a host for each machine that will be added.
    pub fn on_hardware(seed: u64, underlay: Underlay, trace: Trace) -> World {
        let (asked, answered) = (BTreeMap::new(), BTreeMap::new());
        let hardware = Hardware { underlay, asked, answered, leaving: Vec::new() };
        World { hardware: Some(hardware), ..World::new(seed, LinkModel::default(), trace) }
    }

    /// The same whose messages go as frames over an Ethernet.
    pub fn on_ethernet(seed: u64, model: EthernetModel, trace: Trace) -> World {
        let ethernet = Some(Ethernet::new(seed, model));
        World { ethernet, ..World::new(seed, LinkModel::default(), trace) }
    }

    // Getters.

    /// The time.
    pub fn now(&self) -> Picos {
        let hardware = self.hardware.as_ref().map(|hardware| hardware.underlay.now());
        hardware.unwrap_or_default().max(self.queue.now())
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The hash of all that has happened.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    /// The hardware below, if it is modelled.
    pub fn underlay(&self) -> Option<&Underlay> {
        self.hardware.as_ref().map(|hardware| &hardware.underlay)
    }

    /// The links, to read figures and change rules.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The Ethernet, if messages go over one.
    pub fn ethernet(&self) -> Option<&Ethernet> {
        self.ethernet.as_ref()
    }

    /// The trace, to add lines to.
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// The machine of this node. Panics when there is none: who runs the world knows whom it made.
    pub fn machine(&self, node: NodeId) -> &Machine {
        self.machines.get(&node).expect("a machine that was added")
    }

    /// As [`machine`](World::machine), to change its disks' faults.
    pub fn machine_mut(&mut self, node: NodeId) -> &mut Machine {
        self.machines.get_mut(&node).expect("a machine that was added")
    }

    /// Whether the node runs (or is paused).
    pub fn is_up(&self, node: NodeId) -> bool {
        self.machine(node).node.is_some()
    }

    /// The payload pool of the node, if it runs: what a front fills.
    pub fn frames(&self, node: NodeId) -> Option<Frames> {
        self.machine(node).node.as_ref().map(|node| node.cx().frames().clone())
    }

    /// All nodes, in order.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    /// Violations that the world's own checks found; empties the list.
    pub fn take_violations(&mut self) -> Vec<String> {
        self.violations.append(&mut self.network.take_violations());
        std::mem::take(&mut self.violations)
    }

    // Commands.

    /// Adds a machine, without a node yet.
    pub fn add(&mut self, config: MachineConfig, role: Role) {
        let machine = Machine::new(self.seed, config, role);
        let old = self.machines.insert(config.id, machine);
        assert!(old.is_none(), "one machine for each node");
    }

    /// Starts the machine's node. Links to all others that run come up. An error of its services is a violation: a
    /// machine must start from whatever a crash left.
    pub fn start(&mut self, node: NodeId) {
        let now = self.now();
        if let Err(error) = self.try_start(node) {
            self.violations.push(format!("{now} {node} does not start: {error}"));
        }
    }

    /// As [`start`](World::start) where an error may be: of a machine of which something decayed.
    pub fn try_start(&mut self, node: NodeId) -> Result<(), String> {
        let now = self.now();
        let wall = i128::from(WALL_SECONDS) * 1_000_000_000;
        self.fingerprint.mix(u64::from(node.0));
        if let Err(error) = self.machine_mut(node).start(now, wall) {
            self.trace.line(now, node, "world", format_args!("does not start: {error}"));
            return Err(error);
        }
        let boot = self.machine(node).boot;
        self.trace.line(now, node, "world", format_args!("starts, incarnation {boot}"));
        for peer in self.nodes() {
            if peer != node && self.is_up(peer) {
                self.link_event(node, peer, true, Picos::micros(200));
            }
        }
        self.wake(node);
        Ok(())
    }

    /// Both ends of a link learn within `delay` that it is up or down, if their nodes run then.
    fn link_event(&mut self, one: NodeId, other: NodeId, up: bool, delay: Picos) {
        for (node, peer) in [(one, other), (other, one)] {
            let at = self.now() + Picos(self.random.below(delay.0));
            let event =
                if up { Event::LinkUp { node, peer } } else { Event::LinkDown { node, peer } };
            self.queue.push(at, 1, event);
        }
    }

    /// The node ends. Peers learn of a kill soon, of a power cut from silence only.
    pub fn crash(&mut self, node: NodeId, crash: Crash) {
        if !self.is_up(node) {
            return;
        }
        let now = self.now();
        self.trace.line(now, node, "world", format_args!("ends: {crash:?}"));
        self.network.forget(node);
        if let Some(ethernet) = &mut self.ethernet {
            ethernet.peers(node).into_iter().for_each(|peer| ethernet.close((node, peer), None));
        }
        self.machine_mut(node).crash(crash);
        for peer in self.nodes() {
            if peer != node && crash == Crash::Kill {
                self.link_event(node, peer, false, RESET_DELAY);
            }
        }
    }

    /// The node does nothing for this long; what arrives waits.
    pub fn pause(&mut self, node: NodeId, span: Picos) {
        let now = self.now();
        self.trace.line(now, node, "world", format_args!("pauses for {span} s"));
        let machine = self.machine_mut(node);
        (machine.paused_at, machine.paused_until) = (now, now + span);
        self.wake(node);
    }

    /// Start of the time in which the node may not have run for a second: now, or when it was paused last.
    pub fn ran_until(&self, node: NodeId) -> Picos {
        let machine = self.machine(node);
        match machine.paused_until + Picos::seconds(1) > self.now() {
            true => machine.paused_at,
            false => self.now(),
        }
    }

    /// Asks the node for a file operation; gives it back when the node is down or has too many waiting.
    pub fn ask(&mut self, node: NodeId, request: FileRequest) -> Result<(), FileRequest> {
        let (now, is_up) = (self.now(), self.is_up(node));
        if let Some(hardware) = self.hardware.as_mut().filter(|_| is_up)
            && hardware.underlay.ask(now, node, request.front, &request.op)
        {
            hardware.asked.insert((node, request.front), request);
            return Ok(());
        }
        self.push_front(node, request)
    }

    fn push_front(&mut self, node: NodeId, request: FileRequest) -> Result<(), FileRequest> {
        match &self.machine(node).node {
            Some(running) => running.front_push(request)?,
            None => return Err(request),
        }
        self.wake(node);
        Ok(())
    }

    /// [`Happening::Timer`] with this number comes at `at`.
    pub fn set_timer(&mut self, at: Picos, number: u64) {
        self.queue.push(at.max(self.now()), 2, Event::Timer(number));
    }

    /// The node has something new: it is stepped soon.
    pub fn wake(&mut self, node: NodeId) {
        // what a step costs is the hardware's, where there is some
        let step = if self.hardware.is_some() { Picos::ZERO } else { STEP };
        let soon = self.now() + step;
        self.step_by(node, soon);
    }

    fn step_by(&mut self, node: NodeId, at: Picos) {
        let machine = self.machines.get_mut(&node).expect("a machine that was added");
        let at = at.max(machine.paused_until);
        if machine.node.is_some() && at < machine.step_at {
            machine.step_at = at;
            self.queue.push(at, 1, Event::Step { node, boot: machine.boot });
        }
    }

    /// Runs until there is something to do for the caller, at the latest until `until`.
    pub fn advance(&mut self, until: Picos) -> Happening {
        loop {
            if let Some(happening) = self.happenings.pop_front() {
                return happening;
            }
            self.run_hardware(until);
            if self.queue.next_time().is_none_or(|time| time > until) {
                return Happening::Pause;
            }
            let (now, event) = self.queue.pop().expect("just looked at");
            self.events += 1;
            self.fingerprint.mix(now.0);
            self.handle(now, event);
        }
    }

    /// The hardware goes on up to the cluster's next event; what it has done is one.
    fn run_hardware(&mut self, until: Picos) {
        let Some(Hardware { underlay, .. }) = &mut self.hardware else { return };
        while let Some(time) = underlay.next_time().filter(|time| *time <= until) {
            if self.queue.next_time().is_some_and(|next| next < time) {
                return;
            }
            underlay.step();
            while let Some(done) = underlay.take_done() {
                self.queue.push(time, 0, Event::Hardware(done));
            }
        }
    }

    fn hardware_done(&mut self, now: Picos, done: Done) {
        let hardware = self.hardware.as_mut().expect("hardware did something");
        match done {
            Done::Arrived(packet) => {
                self.arrive(now, packet, false);
                self.arrive(now, packet, true);
            }
            Done::Asked(node, front) => {
                let request = hardware.asked.remove(&(node, front)).expect("a call under way");
                let refused = self.push_front(node, request).is_err() && self.is_up(node);
                assert!(!refused, "{node} has too many calls at once for a model of its processor");
            }
            Done::Answered(node, front) => {
                let done = hardware.answered.remove(&(node, front)).expect("a call under way");
                self.happenings.push_back(Happening::Done(node, done));
            }
            Done::Disk { node, disk, number } => self.disk_done(now, node, disk, number),
            Done::Fetched { .. } => unreachable!("the underlay keeps it"),
        }
    }

    fn handle(&mut self, now: Picos, event: Event) {
        match event {
            Event::Head(packet) => self.arrive(now, packet, false),
            Event::Tail(packet) => self.arrive(now, packet, true),
            Event::Frame(frame) => self.frame_arrives(now, frame),
            Event::Frames(node) => self.frames_due(now, node),
            Event::Step { node, boot } => self.step(now, node, boot),
            Event::Disk { node, disk, number } => self.disk_done(now, node, disk, number),
            Event::Meta { node, number } => self.meta_done(now, node, number),
            Event::LinkUp { node, peer } | Event::LinkDown { node, peer } => {
                self.link_changed(now, node, peer, matches!(event, Event::LinkUp { .. }));
            }
            Event::Hardware(done) => self.hardware_done(now, done),
            Event::Timer(number) => {
                self.fingerprint.mix(number);
                self.happenings.push_back(Happening::Timer(number));
            }
        }
    }

    fn arrive(&mut self, now: Picos, packet: PacketId, tail: bool) {
        let node = self.network.destination(packet);
        let machine = self.machines.get(&node);
        let (network, trace) = (&mut self.network, &mut self.trace);
        let mut deliver = |endpoint: Option<&mut endpoint::Endpoint>| {
            if tail {
                network.handle_tail(now, packet, endpoint, trace);
            } else {
                network.handle_head(now, packet, endpoint, trace);
            }
        };
        match machine.and_then(|machine| machine.node.as_ref()) {
            Some(running) => running.with_endpoint(|endpoint| deliver(Some(endpoint))),
            None => return deliver(None),
        }
        self.fingerprint.mix(u64::from(node.0) << 1 | u64::from(tail));
        self.wake(node);
    }

    fn link_changed(&mut self, now: Picos, node: NodeId, peer: NodeId, up: bool) {
        // A link is up only between nodes that both run, and down only when one does not.
        if self.is_up(peer) != up {
            return;
        }
        let Some(running) = &self.machine(node).node else { return };
        if up {
            running.link_up(peer)
        } else {
            running.link_down(peer)
        }
        if !up {
            self.close_side((node, peer));
        }
        let how = if up { "up" } else { "down" };
        self.trace.line(now, node, "link", format_args!("to {} is {how}", peer.0));
        self.wake(node);
    }

    fn disk_done(&mut self, now: Picos, node: NodeId, disk: u16, number: u64) {
        let wall = WALL_SECONDS + (now.0 / 1_000_000_000_000) as i64;
        let machine = self.machine_mut(node);
        let Some(done) = machine.disks[usize::from(disk)].complete(number, wall) else { return };
        let Some(running) = &machine.node else { return };
        let ticket = done.ticket.0;
        let error = done.result.as_ref().err().copied();
        running.disk_done(done);
        if let Some(error) = error {
            self.trace.line(now, node, "disk", format_args!("{disk}: {error}"));
        }
        self.fingerprint.mix(ticket);
        self.wake(node);
    }

    fn meta_done(&mut self, now: Picos, node: NodeId, number: u64) {
        let machine = self.machine_mut(node);
        let Some(done) = machine.meta.complete(number) else { return };
        let Some(running) = &machine.node else { return };
        let ticket = done.ticket.0;
        let error = done.result.as_ref().err().cloned();
        running.meta_done(done);
        if let Some(error) = error {
            self.trace.line(now, node, "meta", format_args!("{}", error.reason));
        }
        self.fingerprint.mix(ticket);
        self.wake(node);
    }

    fn step(&mut self, now: Picos, node: NodeId, boot: u32) {
        let machine = self.machines.get_mut(&node).expect("a machine that was added");
        if machine.boot != boot || machine.step_at != now {
            return;
        }
        machine.step_at = Picos::NEVER;
        if machine.paused_until > now {
            let at = machine.paused_until;
            return self.step_by(node, at);
        }
        let Some(running) = &mut machine.node else { return };
        let clock = machine.clock;
        let next = running.step(clock.time(now));
        self.drain(now, node);
        if let Some(next) = next {
            // A node's clock is rounded down: one nanosecond more and the time has surely come.
            let at = clock.when(next).max(now) + STEP;
            self.step_by(node, at);
        }
    }

    /// Takes what the node put on its rings.
    fn drain(&mut self, now: Picos, node: NodeId) {
        let machine = self.machines.get_mut(&node).expect("a machine that was added");
        let Some(running) = &machine.node else { return };
        let queue = &mut self.queue;
        while let Some(request) = running.take_disk() {
            let disk = request.disk.0;
            let model = &mut machine.disks[usize::from(disk)];
            if let Some(Hardware { underlay, .. }) = &mut self.hardware {
                let number = model.accept(request);
                let op = model.pending(number).expect("just accepted");
                underlay.disk(now, node, disk, number, op);
                continue;
            }
            let (at, number) = model.submit(now, request);
            queue.push(at, 0, Event::Disk { node, disk, number });
        }
        while let Some(request) = running.take_meta() {
            let (at, number) = machine.meta.submit(now, request);
            queue.push(at, 0, Event::Meta { node, number });
        }
        while let Some(done) = running.take_front_done() {
            self.fingerprint.mix(done.front << 1 | u64::from(done.result.is_ok()));
            if let Some(hardware) = &mut self.hardware
                && hardware.underlay.answer(now, node, done.front, done.result.as_ref().ok())
            {
                hardware.answered.insert((node, done.front), done);
                continue;
            }
            self.happenings.push_back(Happening::Done(node, done));
        }
        if self.ethernet.is_some() {
            return self.carry(now, node);
        }
        let (network, trace) = (&mut self.network, &mut self.trace);
        let mut leaving = self.hardware.as_mut().map(|hardware| &mut hardware.leaving);
        let arrived = running.with_endpoint(|endpoint| {
            network.collect(now, node, endpoint, trace, |Arrival { head, tail, packet }| {
                if let Some(leaving) = &mut leaving {
                    return leaving.push(packet);
                }
                queue.push(head, 0, Event::Head(packet));
                queue.push(tail, 0, Event::Tail(packet));
            });
            let before = endpoint.waiting();
            network.place_waiting(now, node, endpoint, trace);
            endpoint.waiting() > before
        });
        if let Some(Hardware { underlay, leaving, .. }) = &mut self.hardware {
            for packet in leaving.drain(..) {
                let (to, bytes) = (network.destination(packet), network.payload_bytes(packet));
                underlay.send(now, node, to, bytes, packet);
            }
        }
        self.fingerprint.mix(self.network.digest());
        if arrived {
            self.wake(node);
        }
    }
}
