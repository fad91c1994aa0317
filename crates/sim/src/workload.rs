//! All workers of a run: hands their operations to the mounts and the answers back, and watches that every operation
//! ends.

use crate::experiment::Shape;
use crate::name_check::Change;
use crate::queue::Picos;
use crate::random::Random;
use crate::worker::{LINGER, Model, Worker};
use crate::world::World;
use node::rings::{Caller, FileDone, FileRequest};
use std::collections::BTreeMap;
use wire::NodeId;

/// With all nodes running and nothing wrong, no operation takes longer.
const OPERATION_MAX: Picos = Picos::seconds(60);
/// How soon a worker looks again when there is nothing it can do.
const IDLE: Picos = Picos::millis(50);

/// The workers.
#[derive(Debug, Default)]
pub struct Workload {
    workers: Vec<Worker>,
    /// The worker that waits for each operation.
    waiting: BTreeMap<(NodeId, u64), usize>,
    model: Model,
    next_front: u64,
    /// Operations may fail, and take long, until this.
    trouble_until: Picos,
    reported: bool,
    /// Nothing new is asked.
    rests: bool,
    /// For so long the checks remember what was overwritten.
    remembers: Picos,
}

impl Workload {
    /// The workers of all mounts.
    pub fn new(seed: u64, mounts: &[NodeId], shape: &Shape) -> Workload {
        let repeat = |mount: &NodeId| std::iter::repeat_n(*mount, shape.workers.into());
        let all = mounts.iter().flat_map(repeat);
        let make = |(number, mount)| Worker::new(seed, number, mount, shape);
        let workers = all.enumerate().map(make).collect();
        Workload { workers, ..Workload::default() }
    }

    /// Operations that succeeded and that failed.
    pub fn operations(&self) -> (u64, u64) {
        (self.model.succeeded, self.model.failed)
    }

    /// Changes of names that may have been made by now, and were not answered.
    pub fn under_way(&self) -> Vec<Change> {
        self.workers.iter().filter_map(Worker::changes).collect()
    }

    /// The checks, to be told of crashes.
    pub fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// Whether every worker has read everything once more.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(Worker::is_finished)
    }

    /// Sets every worker going, each a little later than the one before.
    pub fn start(&mut self, world: &mut World, random: &mut Random) {
        for worker in 0..self.workers.len() {
            let at = world.now() + Picos::micros(random.below(5_000));
            world.set_timer(at, worker as u64);
        }
    }

    /// From now on workers only read everything once more.
    pub fn finish(&mut self) {
        self.workers.iter_mut().for_each(Worker::finish);
    }

    /// The checks can look back for so long.
    pub fn remember(&mut self, span: Picos) {
        self.remembers = span;
    }

    /// From now on nothing new is asked.
    pub fn rest(&mut self) {
        self.rests = true;
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// From now on everything is looked at once, in a cluster that was started anew. The first such audit is one of
    /// disks that are as they should be.
    pub fn audit(&mut self, is_control: bool, world: &mut World) {
        self.rests = false;
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.begin_audit(&mut self.model, is_control);
            world.set_timer(world.now(), number as u64);
        }
    }

    /// After audits: work goes on.
    pub fn resume(&mut self, world: &mut World) {
        self.rests = false;
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.end_audit();
            world.set_timer(world.now(), number as u64);
        }
    }

    /// Something is wrong with the world until `until`: operations may fail, and for a while after.
    pub fn trouble(&mut self, until: Picos) {
        self.trouble_until = self.trouble_until.max(until + LINGER);
    }

    /// Until when operations may fail.
    pub fn troubled_until(&self) -> Picos {
        self.trouble_until
    }

    /// A mount's node died.
    pub fn mount_died(&mut self, mount: NodeId, world: &mut World) {
        let now = world.now();
        self.model.data.mount_died(mount, now);
        self.waiting.retain(|(node, _), _| *node != mount);
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if worker.mount == mount {
                let waited = worker.waits_since().is_some();
                worker.mount_died(&mut self.model, now);
                if waited {
                    world.set_timer(now + LINGER, index as u64);
                }
            }
        }
    }

    /// A worker's timer is due: it asks for its next operation.
    pub fn handle_timer(&mut self, number: u64, world: &mut World) {
        let worker = &mut self.workers[number as usize];
        let mount = worker.mount;
        if worker.is_finished() || worker.waits_since().is_some() {
            return;
        }
        if self.rests {
            return world.set_timer(world.now() + IDLE, number);
        }
        let Some(frames) = world.frames(mount) else {
            return world.set_timer(world.now() + IDLE, number);
        };
        let Some(op) = worker.next(&mut self.model, &frames, world.now()) else {
            return world.set_timer(world.now() + IDLE, number);
        };
        let front = self.next_front;
        self.next_front += 1;
        let now = world.now();
        world.trace_mut().line(now, mount, "ask", format_args!("{front} worker {number} {op:?}"));
        let caller = Caller { pid: number as u32 + 1, ..Caller::default() };
        self.waiting.insert((mount, front), number as usize);
        if let Err(request) = world.ask(mount, FileRequest { front, caller, op }) {
            let result = Err(wire::Errno::EAGAIN);
            self.model.troubled = true;
            self.handle_done(mount, FileDone { front: request.front, result }, world);
        }
    }

    /// An operation has ended.
    pub fn handle_done(&mut self, mount: NodeId, done: FileDone, world: &mut World) {
        let FileDone { front, result } = done;
        let now = world.now();
        self.model.troubled |= now < self.trouble_until;
        let Some(index) = self.waiting.remove(&(mount, front)) else {
            let text = format!("{now} {mount}: operation {front} ended twice");
            return self.model.violations.push(text);
        };
        let how = match &result {
            Ok(_) => "done".to_owned(),
            Err(errno) => format!("{errno:?}"),
        };
        world.trace_mut().line(now, mount, "ask", format_args!("{front} worker {index}: {how}"));
        let pause = self.workers[index].done(result, &mut self.model, now);
        self.model.troubled = false;
        world.set_timer(now + pause, index as u64);
    }

    /// To be asked now and then: an operation that takes too long is a violation.
    pub fn check_progress(&mut self, now: Picos) {
        let oldest = self.workers.iter().map(|worker| worker.looks_back_to(now)).min();
        let oldest = oldest.unwrap_or(now).min(Picos(now.0.saturating_sub(self.remembers.0)));
        self.model.data.set_oldest(oldest);
        if self.reported {
            return;
        }
        for worker in &self.workers {
            let since = worker.waits_since().map(|begun| begun.max(self.trouble_until));
            if since.is_some_and(|since| since + OPERATION_MAX < now) {
                self.reported = true;
                let text = format!("{now} does not end: {}", worker.describe());
                self.model.violations.push(text);
            }
        }
    }
}
