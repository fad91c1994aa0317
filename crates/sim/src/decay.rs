//! Disks that decay while their machines are off ([`node::decay`]), and a check that no damage is silent.
//!
//! When the work is over the cluster stops: rested, at once after it was idle for longer than marks take to be written,
//! or in the middle of its work, where the last second before the stop is not covered. The contents of its machines'
//! storage are kept then, with earlier ones. Each round begins with them: one thing decays, all machines start, and
//! everything is looked up, listed and read. Every result must be right, or an error. The first round is without
//! damage.
//!
//! Or a round is a disaster: the stores of managers are lost, and restored from a backup ([`crate::restoring`]), or
//! without one ([`crate::salvaging`]).
//!
//! If servers scrub their disks often enough, that comes before everything is read: damage that a reader finds must
//! have been reported already. Disks that nothing happened to must not be reported.

use crate::backup::Backups;
use crate::experiment::Experiment;
use crate::machine::Images;
use crate::media::{Standing, Stores};
use crate::nodes::Members;
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::restoring::Restoring;
use crate::storage::Crash;
use crate::strikes::Strikes;
use crate::trouble::TICK;
use crate::workload::Workload;
use crate::world::World;
use files::cluster::Services;
use node::decay::Decay;
use stripe::Health;
use wire::{NodeId, ObjectId};

/// How long a cluster is idle before it is stopped, if it is: longer than marks and names take to be on disk.
const REST: Picos = Picos::seconds(6);
/// How long everything may take to be read when nothing is damaged, and how long it is tried otherwise.
const AUDIT: Picos = Picos::seconds(60);
/// How long a machine may take to scrub its disks.
const SCRUB: Picos = Picos::seconds(20);
/// Of a round the first audit is over, and the machine that decayed is started once more.
const AGAIN: u32 = MILLION / 4;

/// A restored manager is killed, or loses its power, within this time of its start; of half of them.
const STRUCK_MS_MAX: u64 = 1_500;
/// The same of one whose names were salvaged: while they are read.
const STRUCK_SALVAGED_MS_MAX: u64 = 200;
/// How long names may take to be salvaged, and machines to be stopped for that.
const SALVAGE: Picos = Picos::seconds(60);
/// A tick while names are salvaged.
const STRIKING_TICK: Picos = Picos::micros(50);
/// How long files may take to be made in a restored volume.
const MAKING: Picos = Picos::seconds(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The cluster works.
    Working,
    /// Nothing new is asked, and what is under way ends.
    Quieting,
    /// Nothing is under way.
    Resting { until: Picos },
    /// Machines are stopped cleanly.
    Stopping { until: Picos },
    /// Names are salvaged.
    Salvaging { until: Picos },
    /// The disks of the machine that decayed are scrubbed.
    Scrubbing { until: Picos },
    /// Everything is read.
    Auditing { until: Picos, again: bool },
    /// Files are made in a volume that was restored.
    Making { until: Picos },
    /// All rounds are over.
    Over,
}

/// All rounds of a run.
#[derive(Debug)]
pub struct Decays {
    left: u32,
    kinds: Vec<Decay>,
    members: Members,
    random: Random,
    /// Whether the cluster rests before it is stopped.
    rests: bool,
    crash: Crash,
    phase: Phase,
    earlier: Vec<(Picos, Option<Images>)>,
    stopped: Images,
    /// The machine of which something decayed.
    victim: Option<NodeId>,
    /// Whether servers scrub their disks often.
    scrubs: bool,
    /// Damaged objects that the scrub of its disks has named; `None` when it did not come to their ends.
    named: Option<Vec<(usize, ObjectId)>>,
    rounds: u32,
    restoring: Option<Restoring>,
    /// The manager's stores were restored in this round.
    is_restored: bool,
    /// When the manager is struck then.
    struck: Option<Picos>,
    /// Crashes while names are salvaged.
    strikes: Strikes,
}

impl Decays {
    /// The rounds of this experiment; `None` when it has none. An error names a kind that there is not.
    pub fn new(
        seed: u64,
        experiment: &Experiment,
        members: &Members,
        backups: &Backups,
    ) -> Option<Decays> {
        let left = experiment.faults.decays;
        let mut random = Random::new(seed, "decays");
        let all = Decay::OF_FILES.into_iter().chain(Decay::OF_ALL);
        let named = |kind: &Decay| {
            let names = &experiment.decays_of;
            names.is_empty() || names.contains(&format!("{kind:?}"))
        };
        let kinds: Vec<Decay> = all.filter(named).collect();
        let quarter = Picos(Picos::seconds(experiment.seconds).0 / 4);
        let quarters = (1..=3).map(|part| Picos(quarter.0 * part));
        let earlier = quarters.clone().map(|at| (at, None)).collect();
        let restores = experiment.restores();
        let restoring = restores.then(|| match experiment.salvages() {
            true => Restoring::salvaging(backups.clone(), members.keepers(), &mut random),
            false => Restoring::new(backups.clone(), members.managers(), quarters.collect()),
        });
        let rests = random.chance(MILLION / 2);
        let power = rests && random.chance(MILLION / 2);
        (left > 0 && (!kinds.is_empty() || restores)).then(|| Decays {
            left,
            kinds,
            members: members.clone(),
            random,
            rests,
            crash: if power { Crash::Power } else { Crash::Kill },
            phase: Phase::Working,
            earlier,
            stopped: Images::new(),
            victim: None,
            scrubs: experiment.shape.scrub().is_some(),
            named: None,
            rounds: 0,
            restoring,
            is_restored: false,
            struck: None,
            strikes: Strikes::default(),
        })
    }

    /// Whether all rounds are over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the cluster is being stopped, or was.
    pub fn has_begun(&self) -> bool {
        self.phase != Phase::Working
    }

    /// How long the next tick is after this one: a salvage is over in milliseconds, and is struck in the middle.
    pub fn tick_span(&self) -> Picos {
        let is_near = self.restoring.as_ref().is_some_and(Restoring::is_near);
        match self.phase {
            Phase::Salvaging { .. } if is_near && self.strikes.are_left() => STRIKING_TICK,
            _ => TICK,
        }
    }

    /// To be called in each tick of the work.
    pub fn watch(&mut self, world: &World, workload: &mut Workload) {
        let now = world.now();
        self.restoring.iter_mut().for_each(|restoring| restoring.watch(now, workload));
        let due = self.earlier.iter_mut().find(|(at, images)| *at <= now && images.is_none());
        if let Some((_, images)) = due {
            *images = Some(images_of(world));
        }
    }

    /// To be called in each tick when the work is over. The error names the violation.
    pub fn tick(&mut self, world: &mut World, workload: &mut Workload) -> Result<(), String> {
        let now = world.now();
        workload.trouble(now);
        self.restoring.iter().for_each(Restoring::rest);
        match self.phase {
            Phase::Working if self.rests => {
                workload.rest();
                self.phase = Phase::Quieting;
            }
            Phase::Working => self.stop(world, workload),
            Phase::Quieting if workload.is_quiet() => {
                self.phase = Phase::Resting { until: now + REST };
            }
            Phase::Resting { until } if now >= until && self.salvages() => {
                self.phase = Phase::Stopping { until: now + SALVAGE };
            }
            Phase::Resting { until } if now >= until => self.stop(world, workload),
            Phase::Stopping { until } | Phase::Salvaging { until } => {
                let done = self.salvage(world, workload)?;
                if !done && now >= until {
                    return Err(format!("{now} does not end: {:?}", self.phase));
                }
            }
            Phase::Auditing { .. } if self.struck.is_some_and(|at| at <= now) => {
                self.strike_manager(world, workload);
            }
            Phase::Making { until } => {
                if self.restoring.as_ref().expect("it was restored").is_made(world)? {
                    self.next_round(world, workload)?;
                } else if now >= until {
                    return Err(format!("{now} no files can be made in a restored volume"));
                }
            }
            Phase::Scrubbing { until } => {
                self.named = self.scrubbed(world);
                if self.named.is_some() || now >= until || !world.is_up(self.victim_now()) {
                    self.start_audit(world, workload);
                }
            }
            Phase::Auditing { until, again } => {
                let read = workload.is_finished();
                let late = now >= until || !self.members.keepers().iter().all(|n| world.is_up(*n));
                if !read && late && self.victim.is_none() {
                    return Err(format!("{now} not everything can be read though nothing decayed"));
                }
                if !read && late && self.is_restored {
                    return Err(format!(
                        "{now} not everything is answered though names were restored"
                    ));
                }
                if read || late {
                    self.check_scrub(world)?;
                }
                match () {
                    () if again && read => self.start_again(world, workload),
                    () if self.is_restored && read => {
                        let restoring = self.restoring.as_ref().expect("it was restored");
                        restoring.make();
                        self.phase = Phase::Making { until: now + MAKING };
                    }
                    () if read || late => self.next_round(world, workload)?,
                    () => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The cluster stops, and what it stores is kept.
    fn stop(&mut self, world: &mut World, workload: &mut Workload) {
        self.end_all(world, workload, self.crash);
        if !self.rests {
            // The tasks that tell others of the last changes do not run during a pause.
            let keepers = self.members.keepers();
            let ran_until = keepers.iter().map(|node| world.ran_until(*node)).min();
            let (until, model) = (ran_until.unwrap_or(world.now()), workload.model_mut());
            model.data.last_second_lost(until);
            model.names.last_second_lost(until);
        }
        self.stopped = images_of(world);
        self.start_round(world, workload);
    }

    fn end_all(&self, world: &mut World, workload: &mut Workload, crash: Crash) {
        for mount in &self.members.mounts {
            world.crash(*mount, crash);
            workload.mount_died(*mount, world);
        }
        for keeper in self.members.keepers() {
            world.crash(keeper, crash);
        }
        let (now, model) = (world.now(), workload.model_mut());
        model.data.server_died(|_| false);
        if crash == Crash::Power {
            model.names.note_power_cut(now);
            model.names.manager_power_cut(now);
            model.data.power_cut();
        }
    }

    fn next_round(&mut self, world: &mut World, workload: &mut Workload) -> Result<(), String> {
        self.rounds += 1;
        if self.rounds > self.left {
            self.phase = Phase::Over;
            return Ok(());
        }
        if let Some(restoring) = self.restoring.as_mut().filter(|_| self.rounds == 1) {
            restoring.stopped(&mut self.stopped, workload, &mut self.random);
        }
        self.trace_health(world);
        self.end_all(world, workload, Crash::Kill);
        for (node, image) in &self.stopped {
            world.machine_mut(*node).restore(image);
        }
        self.is_restored = self.restore(world, workload)?;
        if !self.is_restored {
            self.strike(world);
        }
        self.start_round(world, workload);
        Ok(())
    }

    /// The manager's stores are restored from a backup, if this round is about that.
    fn restore(&mut self, world: &mut World, workload: &mut Workload) -> Result<bool, String> {
        self.struck = None;
        let Some(restoring) = &self.restoring else { return Ok(false) };
        restoring.begin(workload);
        if !self.kinds.is_empty() && self.random.chance(MILLION / 2) {
            return Ok(false);
        }
        let (now, manager) = (world.now(), self.members.manager);
        let done = if restoring.salvages() {
            let is_lost = restoring.lose(manager, world, workload);
            is_lost.then(|| (manager, "the names are lost".to_string()))
        } else {
            restoring.restore(&mut self.random, world, workload)?
        };
        let is_restored = done.is_some();
        let nothing = || (manager, "there is nothing to go back to".to_string());
        let (manager, said) = done.unwrap_or_else(nothing);
        world.trace_mut().line(now, manager, "decay", format_args!("{said}"));
        self.victim = Some(manager);
        if is_restored && self.random.chance(MILLION / 2) {
            self.struck = Some(now + Picos::millis(self.random.below(STRUCK_MS_MAX)));
        }
        Ok(is_restored || self.kinds.is_empty())
    }

    /// In the middle of what a manager does after a restore.
    fn strike_manager(&mut self, world: &mut World, workload: &mut Workload) {
        self.struck = None;
        self.strike_node(self.victim_now(), world, workload);
    }

    /// The manager, or as often a server, in the middle of a salvage.
    fn strike_keeper(&mut self, world: &mut World, workload: &mut Workload) {
        let node = match self.random.chance(MILLION / 2) {
            true => self.members.manager,
            false => *self.random.pick(&self.members.keepers()),
        };
        self.strike_node(node, world, workload);
    }

    fn strike_node(&mut self, node: NodeId, world: &mut World, workload: &mut Workload) {
        let crash = if self.random.chance(MILLION / 2) { Crash::Power } else { Crash::Kill };
        self.start_anew(node, crash, world, workload);
    }

    fn start_anew(&self, node: NodeId, crash: Crash, world: &mut World, workload: &mut Workload) {
        world.crash(node, crash);
        workload.model_mut().data.server_died(|_| false);
        world.start(node);
    }

    fn start_round(&mut self, world: &mut World, workload: &mut Workload) {
        let now = world.now();
        for node in world.nodes() {
            match self.victim {
                // A refusal is an answer.
                Some(victim) if victim == node && !self.is_restored => drop(world.try_start(node)),
                _ => world.start(node),
            }
        }
        workload.model_mut().names.start_again();
        self.named = None;
        let manager = self.members.manager;
        let is_server = |node: NodeId| node != manager && world.is_up(node);
        if self.scrubs && self.victim.is_some_and(is_server) {
            self.phase = Phase::Scrubbing { until: now + SCRUB };
            return;
        }
        if self.restoring.as_ref().is_some_and(Restoring::are_lost) {
            self.phase = Phase::Salvaging { until: now + SALVAGE };
            self.strikes = Strikes::new(&mut self.random);
            return;
        }
        self.start_audit(world, workload);
    }

    /// Goes on where names are salvaged; whether that is done.
    fn salvage(&mut self, world: &mut World, workload: &mut Workload) -> Result<bool, String> {
        let restoring = self.restoring.as_mut().expect("names are salvaged");
        let is_stopping = matches!(self.phase, Phase::Stopping { .. });
        if is_stopping && restoring.stop_cleanly(world) {
            self.stop(world, workload);
            return Ok(true);
        }
        if is_stopping {
            return Ok(false);
        }
        if !restoring.is_salvaged(workload)? {
            let (attempt, forgets) = (restoring.attempts(), restoring.forgets());
            if let Some(server) = forgets {
                self.start_anew(server, Crash::Kill, world, workload);
            }
            if self.strikes.is_due(world.now(), attempt, &mut self.random) {
                self.strike_keeper(world, workload);
            }
            return Ok(false);
        }
        let (now, random) = (world.now(), &mut self.random);
        let span = |_| Picos::millis(random.below(STRUCK_SALVAGED_MS_MAX));
        self.struck = self.struck.map(span).map(|span| now + span);
        self.start_audit(world, workload);
        Ok(true)
    }

    fn salvages(&self) -> bool {
        self.restoring.as_ref().is_some_and(Restoring::salvages)
    }

    fn start_audit(&mut self, world: &mut World, workload: &mut Workload) {
        let now = world.now();
        let again = self.victim.is_some() && self.random.chance(AGAIN);
        self.phase = Phase::Auditing { until: now + AUDIT, again };
        workload.audit(self.victim.is_none(), world);
    }

    fn victim_now(&self) -> NodeId {
        self.victim.expect("nothing is scrubbed in the first round")
    }

    /// The damaged objects of the machine that decayed, once all its disks that serve were scrubbed.
    fn scrubbed(&self, world: &World) -> Option<Vec<(usize, ObjectId)>> {
        let services: &Services = world.machine(self.victim_now()).services()?;
        let io = services.io.as_ref()?;
        let disks = io.disks();
        let ready = disks.iter().all(|health| !matches!(health, Health::Starting));
        let mut done = disks.iter().zip(io.scrubbed());
        let done = done.all(|(health, seen)| *health != Health::Serving || seen.rounds > 0);
        (ready && done).then(|| io.damaged())
    }

    /// All damage that the reads found had been named by the scrub; none where nothing decayed.
    fn check_scrub(&self, world: &World) -> Result<(), String> {
        let now = world.now();
        let nodes = match self.victim {
            Some(victim) => vec![victim],
            None => self.members.keepers(),
        };
        for node in nodes {
            let services: Option<&Services> = world.machine(node).services();
            let Some(io) = services.and_then(|services| services.io.as_ref()) else { continue };
            let known = match (&self.named, self.victim) {
                (Some(named), _) => &named[..],
                (None, None) => &[],
                (None, Some(_)) => continue,
            };
            if let Some((disk, object)) = io.damaged().iter().find(|it| !known.contains(it)) {
                return Err(format!(
                    "{now} {node}, disk {disk}: {object} is named as damaged, and the scrub did not find it"
                ));
            }
        }
        Ok(())
    }

    /// Traces the state of the decayed disk, as its server reports it.
    fn trace_health(&self, world: &mut World) {
        let Some(victim) = self.victim else { return };
        let services: Option<&Services> = world.machine(victim).services();
        let Some(io) = services.and_then(|services| services.io.as_ref()) else { return };
        let said = format!("{:?}, damaged {:?}", io.disks(), io.damaged());
        let now = world.now();
        world.trace_mut().line(now, victim, "decay", format_args!("{said}"));
    }

    /// Starts again, to check that the first start and the reads have made nothing worse.
    fn start_again(&mut self, world: &mut World, workload: &mut Workload) {
        let victim = self.victim.expect("nothing is started again in the first round");
        world.crash(victim, Crash::Kill);
        workload.model_mut().data.server_died(|_| false);
        drop(world.try_start(victim));
        self.named = None;
        let until = world.now() + AUDIT;
        self.phase = Phase::Auditing { until, again: false };
        workload.audit(false, world);
    }

    /// Something decays on one machine.
    fn strike(&mut self, world: &mut World) {
        let now = world.now();
        let (keepers, kind) = (self.members.keepers(), *self.random.pick(&self.kinds));
        let node = *self.random.pick(&keepers);
        // Second copies of all of it are complete only after a second of rest. An empty directory of a manager is
        // detected before its stores are opened.
        let unmodelled = node == self.members.manager && kind == Decay::Emptied;
        let whole = Decay::OF_ALL.contains(&kind) && (!self.rests || unmodelled);
        let kind = if whole { *self.random.pick(&Decay::OF_FILES) } else { kind };
        let known: Vec<&Images> = self.earlier.iter().filter_map(|(_, i)| i.as_ref()).collect();
        let earlier = match known.is_empty() {
            true => &self.stopped[&node],
            false => &self.random.pick(&known)[&node],
        };
        let earlier = earlier.clone();
        let below = &mut |end: u64| self.random.below(end);
        let machine = world.machine_mut(node);
        let said = if node == self.members.manager {
            let mut stores = Stores { now: machine.meta.image(), earlier: earlier.stores };
            let said = kind.strike(&mut stores, below);
            machine.meta.restore(&stores.now);
            said
        } else {
            let disk = below(earlier.disks.len() as u64) as usize;
            let mut medium = Standing { machine, disk, earlier: &earlier.disks[disk] };
            kind.strike(&mut medium, below)
        };
        let said = said.unwrap_or_else(|| "nothing to decay".into());
        world.trace_mut().line(now, node, "decay", format_args!("{kind:?}: {said}"));
        self.victim = Some(node);
    }
}

fn images_of(world: &World) -> Images {
    world.nodes().into_iter().map(|node| (node, world.machine(node).image())).collect()
}
