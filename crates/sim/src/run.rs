//! One run: a cluster, its workload and its trouble, from a seed to an outcome.

use crate::backup::Backups;
use crate::copies::{Answer, Comparison, CopyCheck};
use crate::data_check::RECENT;
use crate::decay::Decays;
use crate::disk::DiskModel;
use crate::experiment::Experiment;
use crate::failures::{Failures, OfManager};
use crate::importing::{Importing, SharedOrigin};
use crate::machine::{MachineConfig, Role};
use crate::network::{LinkModel, Traffic};
use crate::nfs::Nfs;
pub use crate::nodes::Members;
use crate::queue::Picos;
use crate::random::Random;
use crate::taking_out::TakenOut;
use crate::trace::Trace;
use crate::trouble::{TICK, Trouble};
use crate::workload::Workload;
use crate::world::{Happening, World};
use endpoint::limits::PAGE_BYTES;
use files::cluster::Services;
use node::rings::FileDone;
use std::fmt;
use wire::{NodeId, VolumeId};

/// Timers of the run itself are numbered from here, workers' below.
const TICK_TIMER: u64 = u64::MAX;
/// Simulated time that the last phase may take.
const LAST_PHASE_MAX: Picos = Picos::seconds(600);
/// Time for leases and retries to settle between the last fault and the last phase.
const SETTLE: Picos = Picos::seconds(60);

/// The only volume.
pub(crate) const VOLUME: VolumeId = VolumeId(7);

/// Roles of the machines of a cluster: the caller, which makes their nodes, knows the services.
pub struct Roles {
    /// The first machine.
    pub manager: Role,
    /// Machines after the mounts.
    pub more_manager: Role,
    /// Machines 2 and on.
    pub server: Role,
    /// Machines after the servers.
    pub mount: Role,
    /// Machines after the other managers, which serve NFS.
    pub front: Role,
    /// The machine that imports, if there is one, and the origin of it.
    pub importer: Option<(Role, SharedOrigin)>,
    /// Planted bugs, for every node.
    pub bugs: u128,
    /// Taken by an administrator on a mount.
    pub backups: Backups,
    /// The manager that is taken out.
    pub taken_out: TakenOut,
    /// Where files have copies: what the first manager shows its groups to.
    pub copies: Option<CopyCheck>,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of all that happened: equal in two runs of one seed and experiment.
    pub fingerprint: u64,
    /// Events.
    pub events: u64,
    /// Simulated time.
    pub time: Picos,
    /// File operations that succeeded.
    pub succeeded: u64,
    /// File operations that failed, as they may in trouble.
    pub failed: u64,
    /// Fates of messages.
    pub traffic: Traffic,
    /// How often a manager was taken out.
    pub taken_out: u64,
    /// Violations; empty in a good run.
    pub violations: Vec<String>,
}

impl Outcome {
    /// The result of `world`, after so many operations that succeeded and failed.
    pub(crate) fn of(
        mut world: World,
        (succeeded, failed): (u64, u64),
        violations: Vec<String>,
    ) -> Outcome {
        let now = world.now();
        for violation in &violations {
            world.trace_mut().line(now, NodeId(0), "check", format_args!("{violation}"));
        }
        Outcome {
            fingerprint: world.fingerprint(),
            events: world.events(),
            time: now,
            succeeded,
            failed,
            traffic: world.network_mut().traffic(),
            taken_out: 0,
            violations,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { fingerprint, events, time, succeeded, failed, violations, .. } = self;
        write!(
            f,
            "{time} s simulated, {events} events, {succeeded} operations, {failed} failed, "
        )?;
        write!(f, "{} violations, fingerprint {fingerprint:016x}", violations.len())
    }
}

/// A run under way.
pub struct Run {
    world: World,
    workload: Workload,
    trouble: Trouble,
    decays: Option<Decays>,
    nfs: Option<Nfs>,
    importing: Option<Importing>,
    taken_out: TakenOut,
    copies: Option<Copies>,
    violations: Vec<String>,
    working_until: Picos,
    finishing: bool,
}

/// A run of a volume with copies.
struct Copies {
    check: CopyCheck,
    servers: Vec<NodeId>,
    failures: Failures,
    comparison: Comparison,
    random: Random,
    /// There are groups, so that files can be made.
    works: bool,
}

impl Run {
    /// Builds the cluster and starts all of it.
    pub fn new(seed: u64, experiment: &Experiment, roles: &Roles, trace: Trace) -> Run {
        let mut world = World::new(seed, LinkModel::default(), trace);
        let mut random = Random::new(seed, "run");
        let members = Members::of(experiment);
        let shape = &experiment.shape;
        add(&mut world, members.manager, 1, experiment, roles, &roles.manager, &mut random);
        for node in &members.servers {
            add(&mut world, *node, shape.disks, experiment, roles, &roles.server, &mut random);
        }
        for node in &members.mounts {
            add(&mut world, *node, 0, experiment, roles, &roles.mount, &mut random);
        }
        for node in &members.more_managers {
            add(&mut world, *node, 1, experiment, roles, &roles.more_manager, &mut random);
        }
        for node in &members.only_fronts() {
            add(&mut world, *node, 0, experiment, roles, &roles.front, &mut random);
        }
        for (node, (role, _)) in members.importer.iter().zip(&roles.importer) {
            add(&mut world, *node, 0, experiment, roles, role, &mut random);
        }
        *world.network_mut().rules_mut() = experiment.faults.rules();
        let mut workload = Workload::new(seed, &members.mounts, shape);
        let trouble = Trouble::new(seed, experiment.faults, &members);
        world.nodes().into_iter().for_each(|node| world.start(node));
        if roles.copies.is_none() {
            workload.start(&mut world, &mut random);
        }
        world.set_timer(TICK, TICK_TIMER);
        let working_until = Picos::seconds(experiment.seconds);
        let decays = Decays::new(seed, experiment, &members, &roles.backups);
        if decays.is_some() {
            workload.remember(RECENT);
            workload.model_mut().data.keeps_all = experiment.restores();
        }
        let mut nfs = experiment.nfs.map(|shape| Nfs::new(seed, shape, &members, VOLUME));
        nfs.iter_mut().for_each(|nfs| nfs.start(&mut world));
        let importing =
            experiment.imports.zip(roles.importer.as_ref()).map(|(shape, (_, from))| {
                let importing = Importing::new(seed, shape, &members.mounts, from.clone());
                importing.start(&mut world);
                importing
            });
        let copies = roles.copies.clone().map(|check| {
            world.network_mut().watch(check.clone());
            let often = experiment.faults.failures_per_minute;
            let failures = Failures::new(seed, often, &members, check.clone());
            let (servers, comparison) = (members.servers.clone(), Comparison::default());
            Copies { check, servers, failures, comparison, random, works: false }
        });
        Run {
            world,
            workload,
            trouble,
            decays,
            nfs,
            importing,
            taken_out: roles.taken_out.clone(),
            copies,
            violations: Vec::new(),
            working_until,
            finishing: false,
        }
    }

    /// Runs to the end, or to the first violation.
    pub fn finish(mut self) -> Outcome {
        let until = match self.decays {
            Some(_) => Picos::NEVER,
            None => self.working_until + SETTLE + LAST_PHASE_MAX,
        };
        while self.violations.is_empty() && !self.is_over() {
            match self.world.advance(until) {
                Happening::Done(node, done) => self.ended(node, done),
                Happening::Timer(TICK_TIMER) => self.tick(),
                Happening::Timer(number) if Nfs::is_timer(number) => {
                    let nfs = self.nfs.as_mut().expect("a timer of its own");
                    nfs.handle_timer(number, &mut self.world);
                }
                Happening::Timer(number) if Importing::is_own(number) => {
                    let importing = self.importing.as_mut().expect("a timer of its own");
                    importing.handle_timer(number, &mut self.world);
                }
                Happening::Timer(worker) => self.workload.handle_timer(worker, &mut self.world),
                Happening::Pause => {
                    let mut rest = self.nfs.as_ref().map_or(Vec::new(), Nfs::unfinished);
                    rest.extend(self.importing.iter().flat_map(Importing::unfinished));
                    let rest = rest.join("; ");
                    self.violations.push(format!("the last phase does not end: {rest}"));
                }
            }
            self.collect();
        }
        self.outcome()
    }

    fn ended(&mut self, node: NodeId, done: FileDone) {
        let world = &mut self.world;
        match (&mut self.importing, &mut self.nfs) {
            (Some(importing), _) if Importing::is_own(done.front) => {
                importing.handle_done(done, world);
            }
            (_, Some(nfs)) if nfs.is_own(node, &done) => nfs.handle_done(node, done, world),
            _ => self.workload.handle_done(node, done, world),
        }
    }

    fn is_over(&self) -> bool {
        match &self.decays {
            Some(decays) => decays.is_over(),
            None => {
                let nfs = self.nfs.as_ref().is_none_or(Nfs::is_finished);
                let compared =
                    self.copies.as_ref().is_none_or(|copies| copies.comparison.is_over());
                let imported = self.importing.as_ref().is_none_or(Importing::is_finished);
                nfs && imported && self.workload.is_finished() && compared
            }
        }
    }

    fn collect(&mut self) {
        self.violations.append(&mut self.workload.model_mut().violations);
        self.violations.append(&mut self.world.take_violations());
        if let Some(nfs) = &mut self.nfs {
            self.violations.append(&mut nfs.take_violations());
        }
        if let Some(importing) = &mut self.importing {
            self.violations.append(&mut importing.take_violations());
        }
    }

    fn tick(&mut self) {
        let now = self.world.now();
        self.begin_work();
        if now < self.working_until {
            self.trouble.tick(&mut self.world, &mut self.workload);
            self.fail_one();
            self.decays.iter_mut().for_each(|decays| decays.watch(&self.world, &mut self.workload));
        } else if !self.finishing {
            self.finishing = true;
            self.trouble.end(&mut self.world, &mut self.workload);
            self.copies.iter_mut().for_each(|copies| copies.failures.end(&mut self.world));
            self.importing.iter_mut().for_each(|importing| importing.rest(&mut self.world));
            self.world.trace_mut().line(now, NodeId(0), "run", format_args!("all faults end"));
        } else if let Some(decays) = &mut self.decays {
            let ticked = decays.tick(&mut self.world, &mut self.workload);
            self.violations.extend(ticked.err());
        } else if now >= self.working_until + SETTLE {
            self.workload.finish();
            self.nfs.iter_mut().for_each(Nfs::finish);
            self.compare_copies();
        }
        let troubled_until = self.workload.troubled_until();
        self.nfs.iter_mut().for_each(|nfs| nfs.trouble(troubled_until));
        if let Some(importing) = &mut self.importing {
            importing.tick(&mut self.world, troubled_until);
        }
        self.workload.check_progress(now);
        let span = self.decays.as_ref().map_or(TICK, Decays::tick_span);
        self.world.set_timer(now + span, TICK_TIMER);
    }

    fn begin_work(&mut self) {
        let Some(copies) = self.copies.as_mut().filter(|it| !it.works && it.check.is_whole())
        else {
            return;
        };
        copies.works = true;
        self.workload.start(&mut self.world, &mut copies.random);
    }

    fn fail_one(&mut self) {
        let Some(copies) = &mut self.copies else { return };
        match copies.failures.tick(&mut self.world) {
            Ok(None) => {}
            Ok(Some(OfManager { node, crash, span })) => {
                let (world, workload) = (&mut self.world, &mut self.workload);
                self.trouble.crash_for(node, crash, span, world, workload);
            }
            Err(violation) => self.violations.push(violation),
        }
    }

    /// When all has been read: the groups are whole, and their replicas alike.
    fn compare_copies(&mut self) {
        let nfs = self.nfs.as_ref().is_none_or(Nfs::is_finished);
        let is_finished = nfs && self.workload.is_finished();
        let Some(copies) = self.copies.as_mut().filter(|_| is_finished) else { return };
        if !copies.check.is_whole() {
            let text = format!("not whole in the end: {:?}", copies.check.lacking());
            return self.violations.push(text);
        }
        if !copies.comparison.has_begun() {
            let asked =
                copies.servers.iter().map(|server| (*server, digests(&self.world, *server)));
            copies.comparison.begin(asked.collect());
            copies.servers.iter().for_each(|server| self.world.wake(*server));
        }
        self.violations.extend(copies.comparison.tick(&copies.check).err());
    }

    fn outcome(self) -> Outcome {
        let (succeeded, failed) = self.workload.operations();
        let (calls, errors) = self.nfs.as_ref().map_or((0, 0), Nfs::calls);
        let (told, untold) = self.importing.as_ref().map_or((0, 0), Importing::calls);
        let operations = (succeeded + calls + told, failed + errors + untold);
        let taken_out = self.taken_out.drained();
        Outcome { taken_out, ..Outcome::of(self.world, operations, self.violations) }
    }
}

/// Asks a server for what it has.
fn digests(world: &World, server: NodeId) -> Answer {
    let machine = world.machine(server);
    let answer = Answer::default();
    let services: &Services = machine.services().expect("all servers run");
    let (io, result) = (services.io.clone().expect("an I/O server"), answer.clone());
    let cx = machine.node.as_ref().expect("all servers run").cx();
    cx.spawn("digests", async move {
        let digests = io.digests().await;
        result.replace(Some(digests));
    });
    answer
}

fn add(
    world: &mut World,
    id: NodeId,
    disks: u16,
    experiment: &Experiment,
    roles: &Roles,
    role: &Role,
    random: &mut Random,
) {
    let skew = experiment.shape.clock_skew_ms * 1_000_000;
    let skew = random.below(2 * skew + 1) as i64 - skew as i64;
    let config = MachineConfig {
        disks,
        disk_model: DiskModel::default(),
        wall_skew_ns: skew,
        clock_rate_percent: experiment.faults.clock_rate_percent,
        bugs: roles.bugs,
        ..MachineConfig::new(id)
    };
    let lent = (experiment.shape.lend_mib << 20) as usize / PAGE_BYTES;
    let config = MachineConfig { frame_pages: config.frame_pages + lent, ..config };
    world.add(config, role.clone());
}

/// Runs one seed to its end.
pub fn run(seed: u64, experiment: &Experiment, roles: &Roles, trace: Trace) -> Outcome {
    Run::new(seed, experiment, roles, trace).finish()
}
