//! Clients of NFS in a simulated cluster: applications on machines that are no nodes, whose calls go over lossy
//! connections to fronts on nodes.
//!
//! ```text
//!   worker ── act ──► nfs::Client ── stream ───► nfs::Front ──► front ring of the node
//!      │ shared                        loss, delay,      ▲ front.rs
//!      ├ tree, token, bytes, listing   late duplicates   │
//!   locker (ledger) ────────────────── locking: datagrams┘
//! ```
//!
//! Checked (RFC 1813 sections 3.3, 4.5, 4.8): each change of names has the outcome of one execution, also when its
//! front was restarted, and other calls of one or several then, one after the other; names are there when they are
//! answered, whatever loses power; data when it is committed, or as long as nothing restarts; others see what was
//! committed before they asked for the attributes, or opened the file on a mount; a listing has every name that stood
//! during all of it, once; no rename is seen half; of an exclusive creation by all there is one winner; locks exclude
//! each other (appendix II) also when a client, a front or a manager was restarted.

mod act;
mod bytes;
mod front;
mod ledger;
mod listing;
mod locker;
mod locking;
mod shared;
mod stream;
mod token;
mod tree;
mod visitor;
mod worker;

use crate::experiment::NfsShape;
use crate::nodes::Members;
use crate::queue::Picos;
use crate::random::Random;
use crate::trouble::{TICK, strikes};
use crate::world::World;
use bytes::Era;
use core::net::SocketAddr;
use front::{FrontMachine, Progress, address, machine_at};
use locking::{Arrival, Due, Locking};
use nfs::client::{Caller, Client};
use node::rings::FileDone;
use shared::Shared;
use std::collections::BTreeMap;
use stream::Stream;
use visitor::Visitor;
use wire::{NodeId, VolumeId};
use worker::{After, Circumstances, Worker};

/// Timers of this module have this bit.
const TIMER: u64 = 1 << 62;
/// With nothing wrong no call takes longer.
const CALL_MAX: Picos = Picos::seconds(60);
/// Longest pause before a client connects anew.
const CONNECT_US_MAX: u64 = 100_000;
/// Pause before it tries again.
const CONNECT_PAUSE: Picos = Picos::millis(200);
/// Time that a client waits for a reply before it retransmits.
const TIMEOUT_MS: (u64, u64) = (1_000, 4_000);
/// Longest time until a front notices that its client's end is gone.
const CUT_US_MAX: u64 = 50_000;
/// Machines that lock have addresses from here on.
const LOCKERS: usize = 1_000;
/// How often a filter is asked for replies of managers.
const LOOK_PAUSE: Picos = Picos::micros(200);
/// One call in so many is sent twice at once.
const TWICE_ONE_IN: u64 = 40;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Bytes of calls arrive at a front.
    Calls(u64),
    /// Bytes of replies arrive at a client.
    Replies(u64),
    /// A front notices that the client's end is gone.
    Cut(u64),
    Connect(usize),
    /// A client has waited for this call for long.
    Timeout(usize, u32),
    /// An application goes on.
    Next(usize),
    /// An application makes its call anew.
    Again(usize),
    /// A program on a mount goes on.
    Visit(usize),
    /// Something of the machines that lock is due.
    Lock(Due),
    /// Calls that a front forwarded may have ended.
    Look(usize),
    Tick,
}

/// A call without a reply: its application, and the incarnations of the front that it was sent to.
#[derive(Debug)]
struct Waiting {
    worker: usize,
    boots: Vec<u32>,
}

/// A client's machine.
struct Machine {
    front: usize,
    calls: Client,
    stream: Option<u64>,
    waiting: BTreeMap<u32, Waiting>,
}

/// All clients and fronts.
pub struct Nfs {
    shape: NfsShape,
    fronts: Vec<FrontMachine>,
    keepers: Vec<NodeId>,
    machines: Vec<Machine>,
    workers: Vec<Worker>,
    visitors: Vec<Visitor>,
    locking: Locking,
    is_finishing: bool,
    shared: Shared,
    streams: BTreeMap<u64, Stream>,
    events: BTreeMap<u64, Event>,
    next: u64,
    random: Random,
    troubled_until: Picos,
    violations: Vec<String>,
}

impl Nfs {
    /// Of a cluster with these nodes.
    pub fn new(seed: u64, shape: NfsShape, members: &Members, volume: VolumeId) -> Nfs {
        let filters = shape.filters.then_some(members.manager);
        let fronts = members.fronts.iter().map(|node| FrontMachine::new(*node, volume, filters));
        let fronts: Vec<FrontMachine> = fronts.collect();
        let machine = |number: usize| {
            let caller = Caller { machine: format!("client{number}").into(), ..Caller::default() };
            // the numbers of different clients are the same
            let calls = Client::new(caller, 0);
            let front = number % fronts.len();
            Machine { front, calls, stream: None, waiting: BTreeMap::new() }
        };
        let machines = (0..usize::from(shape.machines)).map(machine).collect();
        let count = usize::from(shape.machines) * usize::from(shape.applications);
        Nfs {
            shape,
            machines,
            fronts,
            keepers: members.keepers(),
            workers: (0..count)
                .map(|number| Worker::new(seed, number, shape.duplicates_outlive))
                .collect(),
            visitors: members.mounts.iter().map(|mount| Visitor::new(seed, *mount)).collect(),
            locking: Locking::new(seed, shape.lockers.into(), members.fronts.len().max(1)),
            is_finishing: false,
            shared: Shared::new(count),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            next: 0,
            random: Random::new(seed, "nfs"),
            troubled_until: Picos::ZERO,
            violations: Vec::new(),
        }
    }

    /// Whether a timer of the world is of this module.
    pub fn is_timer(number: u64) -> bool {
        number & TIMER != 0 && number != u64::MAX
    }

    /// Whether an operation of a node is of this module: all of one that serves NFS, and of a mount those of programs
    /// that read files of applications on NFS.
    pub fn is_own(&self, node: NodeId, done: &FileDone) -> bool {
        let is_front = self.fronts.iter().any(|front| front.node == node);
        is_front || Visitor::is_visit(done.front)
    }

    /// Calls that were answered, and that had errors.
    pub fn calls(&self) -> (u64, u64) {
        (self.shared.succeeded + self.locking.granted(), self.shared.failed)
    }

    /// Violations since they were taken last.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Errors are explained until then.
    pub fn trouble(&mut self, until: Picos) {
        self.troubled_until = until;
    }

    /// Sets every application going.
    pub fn start(&mut self, world: &mut World) {
        (0..self.machines.len())
            .for_each(|machine| self.after(Picos::ZERO, Event::Connect(machine), world));
        for worker in 0..self.workers.len() {
            let at = Picos::micros(self.random.below(5_000));
            self.after(at, Event::Next(worker), world);
        }
        (0..self.visitors.len()).for_each(|visitor| self.after(TICK, Event::Visit(visitor), world));
        self.plan_locks(world);
        self.after(TICK, Event::Tick, world);
    }

    /// From now on everything is only looked at once.
    pub fn finish(&mut self) {
        self.is_finishing = true;
        self.workers.iter_mut().for_each(Worker::finish);
        self.locking.finish();
    }

    /// Whether that is done.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(Worker::is_finished) && self.locking.is_finished()
    }

    /// Applications and machines that are not, for people.
    pub fn unfinished(&self) -> Vec<String> {
        let workers = self.workers.iter().filter(|worker| !worker.is_finished());
        let lockers = self.locking.unfinished();
        workers.map(Worker::describe).chain(lockers).collect()
    }

    /// An operation of a front's node has ended.
    pub fn handle_done(&mut self, node: NodeId, done: FileDone, world: &mut World) {
        let Some(front) = self.fronts.iter().position(|front| front.node == node) else {
            return self.visited(node, done, world);
        };
        self.fronts[front].done(world, done);
        self.serve(front, world);
        self.plan_locks(world);
    }

    /// A timer of this module is due.
    pub fn handle_timer(&mut self, number: u64, world: &mut World) {
        let event = self.events.remove(&(number & !TIMER)).expect("a timer that was set");
        match event {
            Event::Calls(stream) => self.calls_arrive(stream, world),
            Event::Replies(stream) => self.replies_arrive(stream, world),
            Event::Cut(stream) => self.cut(stream, world),
            Event::Connect(machine) => self.connect(machine, world),
            Event::Timeout(machine, xid) => self.timed_out(machine, xid, world),
            Event::Next(worker) => {
                self.shared.keepers = self.starts_of_keepers(world);
                if self.workers[worker].choose(&mut self.shared, world.now()) {
                    self.ask(worker, world);
                } else if !self.workers[worker].is_finished() {
                    self.after(TICK, Event::Next(worker), world);
                }
            }
            Event::Again(worker) => self.ask(worker, world),
            Event::Visit(_) if self.is_finishing => {}
            Event::Visit(visitor) => {
                self.visitors[visitor].begin(&self.shared, world);
                let pause = self.visitors[visitor].pause();
                self.after(pause, Event::Visit(visitor), world);
            }
            Event::Lock(due) => self.lock_due(due, world),
            Event::Look(front) => {
                self.fronts[front].is_looked_after = false;
                self.serve(front, world);
            }
            Event::Tick => self.tick(world),
        }
        self.plan_locks(world);
    }

    fn plan_locks(&mut self, world: &mut World) {
        while let Some((at, due)) = self.locking.poll_later() {
            self.at(at, Event::Lock(due), world);
        }
    }

    fn lock_due(&mut self, due: Due, world: &mut World) {
        let front = self.locking.front_of(due);
        let paused = front.and_then(|front| self.fronts[front].paused_until(world));
        if let Some(until) = paused {
            return self.at(until, Event::Lock(due), world);
        }
        let (now, about) = (world.now(), self.locking.describe(due));
        world.trace_mut().line(now, NodeId(0), "nlm", format_args!("{about}"));
        match self.locking.due(due, self.shared.lock_file(), now) {
            Ok(None) => {}
            Ok(Some(Arrival { front, locker, port, bytes })) => {
                let from = SocketAddr::new(address(LOCKERS + locker), port);
                self.fronts[front].datagram(world, from, &bytes);
                self.serve(front, world);
            }
            Err(what) => self.violations.push(format!("{} {what}", world.now())),
        }
    }

    fn visited(&mut self, mount: NodeId, done: FileDone, world: &mut World) {
        let is_troubled = world.now() < self.troubled_until;
        let visitor = self.visitors.iter_mut().find(|visitor| visitor.mount() == mount);
        let visitor = visitor.expect("a program on each mount");
        let judged = visitor.done(done, &mut self.shared, is_troubled, world);
        self.violations.extend(judged.err().map(|what| format!("{} {what}", world.now())));
    }

    fn at(&mut self, at: Picos, event: Event, world: &mut World) {
        self.events.insert(self.next, event);
        world.set_timer(at, TIMER | self.next);
        self.next += 1;
    }

    fn after(&mut self, span: Picos, event: Event, world: &mut World) {
        self.at(world.now() + span, event, world);
    }

    fn tick(&mut self, world: &mut World) {
        (0..self.fronts.len()).for_each(|front| self.serve(front, world));
        self.locking.tick(world.now());
        for machine in 0..self.machines.len() {
            let lost = strikes(&mut self.random, self.shape.losses_per_minute);
            if lost || self.is_dead(machine, world) {
                self.lose(machine, world);
            }
        }
        let late = self.workers.iter().find(|worker| {
            let since = worker.asks_since().map(|since| since.max(self.troubled_until));
            since.is_some_and(|since| since + CALL_MAX < world.now())
        });
        let late =
            late.map(|worker| format!("{} does not end: {}", world.now(), worker.describe()));
        self.violations.extend(late);
        self.after(TICK, Event::Tick, world);
    }

    /// Whether a client's connection leads to an incarnation that is no more.
    fn is_dead(&self, machine: usize, world: &World) -> bool {
        let stream = self.machines[machine].stream.and_then(|stream| self.streams.get(&stream));
        stream.is_some_and(|stream| self.fronts[stream.front].boot(world) != Some(stream.boot))
    }

    /// A client's end of its connection is lost; it will connect anew.
    fn lose(&mut self, machine: usize, world: &mut World) {
        let Some(id) = self.machines[machine].stream.take() else { return };
        let last = self.streams.get(&id).map_or(Picos::ZERO, |stream| stream.calls.last());
        let late = Picos::micros(self.random.below(CUT_US_MAX));
        self.at(last.max(world.now()) + late, Event::Cut(id), world);
        let pause = Picos::micros(self.random.below(CONNECT_US_MAX));
        self.after(pause, Event::Connect(machine), world);
    }

    fn cut(&mut self, id: u64, world: &mut World) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if let Some(connection) = stream.connection {
            self.fronts[stream.front].disconnect(world, stream.boot, connection);
            self.serve(stream.front, world);
        }
    }

    fn connect(&mut self, machine: usize, world: &mut World) {
        let Machine { front, stream, .. } = self.machines[machine];
        if stream.is_some() {
            return;
        }
        let Some(boot) = self.fronts[front].boot(world) else {
            return self.after(CONNECT_PAUSE, Event::Connect(machine), world);
        };
        let id = self.next;
        self.next += 1;
        self.streams.insert(id, Stream::new(machine, front, boot));
        let it = &mut self.machines[machine];
        it.stream = Some(id);
        it.calls.reconnected();
        let mut bytes = Vec::new();
        it.calls.retransmit_all(&mut bytes);
        it.waiting.values_mut().for_each(|waiting| waiting.boots.push(boot));
        self.send(machine, bytes, world);
    }

    fn send(&mut self, machine: usize, bytes: Vec<u8>, world: &mut World) {
        let Some(id) = self.machines[machine].stream else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let times = stream.calls.send(bytes, world.now(), &mut self.random);
        times.into_iter().for_each(|at| self.at(at, Event::Calls(id), world));
    }

    fn boot_of(&self, machine: usize) -> Option<u32> {
        let stream = self.machines[machine].stream?;
        self.streams.get(&stream).map(|stream| stream.boot)
    }

    fn ask(&mut self, worker: usize, world: &mut World) {
        let machine = worker / usize::from(self.shape.applications);
        let boots = self.boot_of(machine).into_iter().collect();
        let mut bytes = Vec::new();
        let calls = &mut self.machines[machine].calls;
        let xid = self.workers[worker].call(&self.shared, calls, &mut bytes);
        let (now, node) = (world.now(), self.fronts[self.machines[machine].front].node);
        let what = self.workers[worker].describe();
        world.trace_mut().line(now, node, "nfs", format_args!("{machine}.{xid} {what}"));
        self.machines[machine].waiting.insert(xid, Waiting { worker, boots });
        if self.random.below(TWICE_ONE_IN) == 0 {
            bytes.extend_from_within(..);
        }
        self.send(machine, bytes, world);
        self.wait(machine, xid, world);
    }

    fn wait(&mut self, machine: usize, xid: u32, world: &mut World) {
        let span = Picos::millis(self.random.within(TIMEOUT_MS.0, TIMEOUT_MS.1));
        self.after(span, Event::Timeout(machine, xid), world);
    }

    fn timed_out(&mut self, machine: usize, xid: u32, world: &mut World) {
        let boot = self.boot_of(machine);
        let it = &mut self.machines[machine];
        let Some(waiting) = it.waiting.get_mut(&xid) else { return };
        if self.random.chance(crate::random::MILLION / 2) {
            waiting.boots.extend(boot);
            let mut bytes = Vec::new();
            it.calls.retransmit(xid, &mut bytes);
            self.send(machine, bytes, world);
        } else {
            self.lose(machine, world);
        }
        self.wait(machine, xid, world);
    }

    fn calls_arrive(&mut self, id: u64, world: &mut World) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let front = &mut self.fronts[stream.front];
        if let Some(until) = front.paused_until(world) {
            return self.at(until, Event::Calls(id), world);
        }
        stream.untaken.extend(stream.calls.arrived().unwrap_or_default());
        let (front, machine) = (stream.front, stream.machine);
        if !self.take(id, world) {
            self.streams.remove(&id);
            if self.machines[machine].stream == Some(id) {
                self.lose(machine, world);
            }
        }
        self.serve(front, world);
    }

    /// Gives a front the bytes that it takes; whether the connection goes on.
    fn take(&mut self, id: u64, world: &World) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let front = &mut self.fronts[stream.front];
        let connection = match stream.connection {
            Some(connection) => Some(connection),
            None => front.connect(world, stream.boot, stream.machine),
        };
        stream.connection = connection;
        let Some(connection) = connection else { return false };
        let bytes = stream.untaken.make_contiguous();
        let Some(taken) = front.take(world, stream.boot, connection, bytes) else { return false };
        stream.untaken.drain(..taken);
        true
    }

    /// A front goes on as far as it can.
    fn serve(&mut self, front: usize, world: &mut World) {
        loop {
            let all = self.fronts[front].progress(world);
            if all.is_empty() {
                return self.look_later(front, world);
            }
            let boot = self.fronts[front].boot(world).expect("it runs");
            all.into_iter().for_each(|progress| self.follow(front, boot, progress, world));
        }
    }

    /// No event says that a call that was forwarded has ended.
    fn look_later(&mut self, front: usize, world: &mut World) {
        let it = &mut self.fronts[front];
        if it.forwards() > 0 && !std::mem::replace(&mut it.is_looked_after, true) {
            self.after(LOOK_PAUSE, Event::Look(front), world);
        }
    }

    fn follow(&mut self, front: usize, boot: u32, progress: Progress, world: &mut World) {
        let connection = match &progress {
            Progress::Send(connection, _)
            | Progress::MayTake(connection)
            | Progress::Closed(connection) => *connection,
            Progress::Datagram(to, bytes) => {
                let locker = machine_at(to.ip()) - LOCKERS;
                return self.locking.sent(locker, to.port(), bytes.clone(), world.now());
            }
        };
        let is_it = |stream: &Stream| {
            (stream.front, stream.boot, stream.connection) == (front, boot, Some(connection))
        };
        let found = self.streams.iter_mut().find(|(_, stream)| is_it(stream));
        let Some((&id, stream)) = found else { return };
        match progress {
            Progress::Send(_, bytes) => {
                let times = stream.replies.send(bytes, world.now(), &mut self.random);
                times.into_iter().for_each(|at| self.at(at, Event::Replies(id), world));
            }
            Progress::MayTake(_) if stream.untaken.is_empty() => {}
            Progress::MayTake(_) => {
                self.take(id, world);
            }
            Progress::Closed(_) => {
                let text = format!("{} the front closed connection {connection:?}", world.now());
                self.violations.push(text);
            }
            Progress::Datagram(..) => {}
        }
    }

    fn starts_of_keepers(&self, world: &World) -> u32 {
        self.keepers.iter().map(|node| world.machine(*node).boot).sum()
    }

    fn replies_arrive(&mut self, id: u64, world: &mut World) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (machine, front) = (stream.machine, stream.boot);
        let Some(bytes) = stream.replies.arrived() else { return };
        if self.machines[machine].stream != Some(id) {
            return;
        }
        self.machines[machine].calls.received(&bytes);
        let era = Era { front, keepers: self.starts_of_keepers(world) };
        while let Some((worker, after)) = self.reply(machine, era, world) {
            match after {
                After::Next(span) => self.after(span, Event::Next(worker), world),
                After::Again(span) => self.after(span, Event::Again(worker), world),
            }
        }
    }

    /// Judges the next reply that has arrived.
    fn reply(&mut self, machine: usize, era: Era, world: &mut World) -> Option<(usize, After)> {
        let now = world.now();
        let Machine { calls, waiting, front, .. } = &mut self.machines[machine];
        let reply = match calls.poll_reply() {
            Ok(reply) => reply?,
            Err(error) => {
                self.violations.push(format!("{now} client {machine}: {error}"));
                return None;
            }
        };
        let Waiting { worker, boots } = waiting.remove(&reply.xid).expect("a call in flight");
        let mut before: Vec<u32> = boots.into_iter().filter(|boot| *boot != era.front).collect();
        before.dedup();
        let (before, is_troubled) = (before.len() as u32, now < self.troubled_until);
        let about = Circumstances { era, now, is_troubled, before };
        let node = self.fronts[*front].node;
        world.trace_mut().line(
            now,
            node,
            "nfs",
            format_args!("{machine}.{} is answered", reply.xid),
        );
        match self.workers[worker].answered(&reply, &mut self.shared, about) {
            Ok(after) => Some((worker, after)),
            Err(what) => {
                self.violations.push(format!("{now} {what}"));
                None
            }
        }
    }
}
