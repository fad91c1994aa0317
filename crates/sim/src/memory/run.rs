//! One run of a cluster with network memory, from a seed to an outcome.

use super::check;
use super::guest;
use super::keys;
use super::pressure::Pressure;
use super::program::Program;
use super::shared::{Phase, Shared};
use super::storage::Door;
use super::trouble::Trouble;
use crate::experiment::{Experiment, MemoryShape};
use crate::machine::{Boot, MachineConfig, Role};
use crate::network::LinkModel;
use crate::queue::Picos;
use crate::run::Outcome;
use crate::trace::Trace;
use crate::world::{Happening, World};
use endpoint::limits::PAGE_BYTES;
use netmem::service::{Backing, Config};
use netmem::{Directory, EpochConfig, Service};
use std::any::Any;
use std::rc::Rc;
use wire::NodeId;

/// How often the registry's news and the checks have their turn.
const TICK: Picos = Picos::millis(5);
/// Ticks between chances of harm, and between checks of all tables.
const TROUBLE_TICKS: u64 = 20;
/// Time for views, mirrors and retries to settle after the last fault.
const SETTLE: Picos = Picos::seconds(25);
/// Time without any request before the tables are compared.
const QUIET: Picos = Picos::seconds(5);
/// Time for the last phase.
const READING_MAX: Picos = Picos::seconds(120);
/// Directory entries for each frame.
const ENTRIES_PER_FRAME: usize = 6;
/// Pages of the payload pool beside those of network memory: what is on its way.
const POOL_PAGES: usize = 1024;

struct Run {
    world: World,
    shared: Rc<Shared>,
    trouble: Trouble,
    pressure: Pressure,
    violations: Vec<String>,
    ticks: u64,
    working_until: Picos,
}

/// Starts the service and the programs of a node. Every incarnation has another share of memory.
pub(super) fn role(shared: Rc<Shared>, epoch: EpochConfig) -> Role {
    Rc::new(move |boot: &mut Boot<'_>| {
        let (cx, shape) = (&boot.cx, shared.shape);
        shared.clocks.borrow_mut().insert(cx.id(), boot.clock);
        let frames = u64::from(shape.frames);
        let frames =
            frames - (cx.random() % (frames / 2 + 1)) * u64::from(cx.incarnation() as u32 > 1);
        let door = Door { cx: cx.clone(), shared: shared.clone() };
        let bytes = frames as usize * PAGE_BYTES;
        // small memories, of which most pages are kept for others: the usual share would have no room for their entries
        let directory_bytes = frames as usize * ENTRIES_PER_FRAME * Directory::ENTRY_BYTES;
        let backing = Some(Rc::new(door) as Rc<dyn Backing>);
        let trends = shape.trends;
        let base = Config::new(bytes);
        let policy = shape.policy.policy(shared.seed);
        let config = Config { directory_bytes, backing, trends, epoch, policy, ..base };
        let service = Service::start(cx, config);
        for number in 0..shape.programs {
            cx.spawn("program", Program::new(cx, &service, &shared, number).run());
        }
        if shape.key_clients > 0 {
            keys::start(cx, &service, &shared);
        }
        shared.services.borrow_mut().insert(cx.id(), service.clone());
        shared.nodes.borrow_mut().insert(cx.id(), cx.clone());
        Ok(Box::new(service) as Box<dyn Any>)
    })
}

impl Run {
    fn new(
        seed: u64,
        experiment: &Experiment,
        shape: MemoryShape,
        bugs: u128,
        trace: Trace,
    ) -> Run {
        let shared = Rc::new(Shared::new(seed, shape, trace.is_on()));
        let mut world = World::new(seed, LinkModel::default(), trace);
        let frame_pages = shape.frames as usize * 2 + POOL_PAGES;
        let clock_rate_percent = experiment.faults.clock_rate_percent;
        let machine = |node| MachineConfig { bugs, clock_rate_percent, ..MachineConfig::new(node) };
        for node in (1..=shape.nodes).map(NodeId) {
            let config = MachineConfig { frame_pages, ..machine(node) };
            world.add(config, role(shared.clone(), EpochConfig::default()));
        }
        for guest in (shape.nodes + 1..=shape.nodes + shape.guests).map(NodeId) {
            let config = MachineConfig { frame_pages: POOL_PAGES, ..machine(guest) };
            world.add(config, guest::role(shared.clone()));
        }
        *world.network_mut().rules_mut() = experiment.faults.rules();
        let mut trouble = Trouble::new(&shared, experiment.faults);
        world.nodes().into_iter().for_each(|node| trouble.start(&mut world, node));
        let pressure = Pressure::new(&shared, experiment.faults.shrinks_per_minute);
        world.set_timer(TICK, 0);
        let working_until = Picos::seconds(experiment.seconds);
        Run { world, shared, trouble, pressure, violations: Vec::new(), ticks: 0, working_until }
    }

    fn finish(mut self) -> Outcome {
        while self.violations.is_empty() && !self.is_over() {
            match self.world.advance(Picos::NEVER) {
                Happening::Timer(_) => self.tick(),
                Happening::Done(..) => unreachable!("nobody asks for a file"),
                Happening::Pause => unreachable!("a timer is always set"),
            }
        }
        self.outcome()
    }

    fn is_over(&self) -> bool {
        let done = self.shared.readers_done.borrow().len();
        done == usize::from(self.shared.shape.nodes + self.shared.shape.guests)
    }

    fn tick(&mut self) {
        let now = self.world.now();
        self.trouble.tick(&mut self.world);
        let turn = self.ticks.is_multiple_of(TROUBLE_TICKS);
        self.ticks += 1;
        if turn && now < self.working_until {
            self.trouble.strike(&mut self.world);
            self.pressure.strike(&mut self.world);
        }
        if turn {
            let unsettled = !self.trouble.is_whole();
            self.shared.model.borrow_mut().handle_time(now, unsettled);
            self.check(now);
        }
        self.change_phase(now);
        self.write_lines();
        self.world.set_timer(now + TICK, 0);
    }

    fn change_phase(&mut self, now: Picos) {
        let phase = self.shared.phase.get();
        let rested = self.working_until + SETTLE;
        let next = match phase {
            Phase::Working if now >= self.working_until => Phase::Resting,
            Phase::Resting if now >= rested => Phase::Quiet,
            Phase::Quiet if now >= rested + QUIET => Phase::Reading,
            _ => return self.check_end(now, rested + QUIET + READING_MAX),
        };
        self.shared.phase.set(next);
        self.world.trace_mut().line(now, NodeId(0), "run", format_args!("{next:?}"));
        match next {
            Phase::Resting => {
                self.trouble.end(&mut self.world);
                self.pressure.end(&mut self.world);
            }
            Phase::Reading => {
                let view = self.trouble.registry.view();
                self.violations.append(&mut check::quiet(&self.shared, &view));
            }
            _ => (),
        }
    }

    fn check_end(&mut self, now: Picos, last: Picos) {
        if now > last {
            self.violations.push("the last phase does not end".to_string());
        }
    }

    fn check(&mut self, now: Picos) {
        self.violations.append(&mut self.shared.model.borrow_mut().violations);
        self.violations.append(&mut self.shared.keys.model.borrow_mut().violations);
        self.violations.append(&mut self.world.take_violations());
        self.violations.append(&mut check::always(&self.shared, now));
        if let Some(open) = self.shared.overdue(now) {
            let text =
                format!("{} of {} has not ended since {} s", open.what, open.node, open.since);
            self.violations.push(text);
        }
    }

    /// Writes the programs' operations to the trace, a tick late at most.
    fn write_lines(&mut self) {
        for (at, node, text) in self.shared.lines.take() {
            self.world.trace_mut().line(at, node, "ask", format_args!("{text}"));
        }
    }

    fn outcome(mut self) -> Outcome {
        self.check(self.world.now());
        self.write_lines();
        self.shared.end_all();
        Outcome::of(self.world, self.shared.tally.get(), self.violations)
    }
}

/// Runs one seed to its end, or to its first violation.
pub fn run(
    seed: u64,
    experiment: &Experiment,
    shape: MemoryShape,
    bugs: u128,
    trace: Trace,
) -> Outcome {
    Run::new(seed, experiment, shape, bugs, trace).finish()
}
