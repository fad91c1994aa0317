//! Faults injected into the machines of a cluster while it works: kills, power cuts, pauses, partitions, bad disks; and
//! that all is well again in the end.

use crate::experiment::Faults;
use crate::faults::{Nodes, Rule};
use crate::limits::PAUSE_MS_MAX;
use crate::nodes::Members;
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::storage::Crash;
use crate::workload::Workload;
use crate::world::World;
use wire::NodeId;

/// How often it is decided whether something happens.
pub const TICK: Picos = Picos::millis(100);
const TICKS_PER_MINUTE: u32 = 600;
/// Longest time that a machine is down, a partition lasts, a disk is slow.
const TROUBLE_MS_MAX: u64 = 8_000;

/// A fault that will be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    Start(NodeId),
    Disk(NodeId),
}

/// The source of trouble.
#[derive(Debug)]
pub struct Trouble {
    faults: Faults,
    random: Random,
    /// Machines that keep data: the managers, and the servers.
    keepers: Vec<NodeId>,
    managers: Vec<NodeId>,
    mounts: Vec<NodeId>,
    /// Nodes that do nothing but serve NFS, or import.
    fronts: Vec<NodeId>,
    cures: Vec<(Picos, Cure)>,
}

impl Trouble {
    /// Trouble for these machines.
    pub fn new(seed: u64, faults: Faults, members: &Members) -> Trouble {
        let random = Random::new(seed, "trouble");
        let (keepers, managers) = (members.keepers(), members.managers());
        let (mounts, mut fronts) = (members.mounts.clone(), members.only_fronts());
        fronts.extend(members.importer);
        Trouble { faults, random, keepers, managers, mounts, fronts, cures: Vec::new() }
    }

    /// A tick: cures what is due, and may do harm.
    pub fn tick(&mut self, world: &mut World, workload: &mut Workload) {
        self.cure(world, workload, world.now());
        self.fail_disks(world, workload);
        let Faults {
            kills_per_minute,
            power_cuts_per_minute,
            pauses_per_minute,
            partitions_per_minute,
            slow_disks_per_minute,
            full_disks_per_minute,
            ..
        } = self.faults;
        if self.strikes(kills_per_minute) {
            self.kill(world, workload);
        }
        if self.strikes(power_cuts_per_minute) {
            self.cut_power(world, workload);
        }
        if self.strikes(pauses_per_minute) {
            let node = self.any_node();
            let span = Picos::millis(self.random.within(1, PAUSE_MS_MAX));
            world.pause(node, span);
            workload.trouble(world.now() + span);
        }
        if self.strikes(partitions_per_minute) {
            self.partition(world, workload);
        }
        if self.strikes(slow_disks_per_minute) {
            self.harm_disk(world, workload, false);
        }
        if self.strikes(full_disks_per_minute) {
            self.harm_disk(world, workload, true);
        }
    }

    fn strikes(&mut self, per_minute: u32) -> bool {
        strikes(&mut self.random, per_minute)
    }

    fn any_node(&mut self) -> NodeId {
        let nodes: Vec<NodeId> =
            [&self.keepers, &self.mounts, &self.fronts].into_iter().flatten().copied().collect();
        *self.random.pick(&nodes)
    }

    fn span(&mut self) -> Picos {
        Picos::millis(self.random.within(1, TROUBLE_MS_MAX))
    }

    fn kill(&mut self, world: &mut World, workload: &mut Workload) {
        let node = self.any_node();
        self.crash(node, Crash::Kill, world, workload);
    }

    /// The power fails for some or all machines that keep data.
    fn cut_power(&mut self, world: &mut World, workload: &mut Workload) {
        let all = self.random.chance(300_000);
        let one = *self.random.pick(&self.keepers);
        for node in self.keepers.clone() {
            if all || node == one || self.random.chance(200_000) {
                self.crash(node, Crash::Power, world, workload);
            }
        }
    }

    fn crash(&mut self, node: NodeId, crash: Crash, world: &mut World, workload: &mut Workload) {
        if world.is_up(node) {
            let span = self.span();
            self.crash_for(node, crash, span, world, workload);
        }
    }

    /// A machine is down for so long.
    pub(crate) fn crash_for(
        &mut self,
        node: NodeId,
        crash: Crash,
        span: Picos,
        world: &mut World,
        workload: &mut Workload,
    ) {
        let back = world.now() + span;
        world.crash(node, crash);
        workload.trouble(back);
        if self.mounts.contains(&node) {
            workload.mount_died(node, world);
        } else if !self.fronts.contains(&node) {
            let alive: Vec<bool> = self.mounts.iter().map(|mount| world.is_up(*mount)).collect();
            let mounts = self.mounts.clone();
            let model = workload.model_mut();
            model.data.server_died(|mount| {
                mounts.iter().zip(&alive).any(|(node, alive)| *node == mount && *alive)
            });
            if crash == Crash::Power {
                model.names.note_power_cut(world.now());
                if self.managers.contains(&node) {
                    model.names.manager_power_cut(world.now());
                }
                model.data.power_cut();
            }
        }
        self.cures.push((back, Cure::Start(node)));
    }

    fn partition(&mut self, world: &mut World, workload: &mut Workload) {
        let (begin, end) = (world.now(), world.now() + self.span());
        let nodes = world.nodes();
        let (one, other): (Vec<NodeId>, Vec<NodeId>) =
            nodes.into_iter().partition(|_| self.random.chance(MILLION / 2));
        let (one, other) = (Nodes::These(one), Nodes::These(other));
        world.trace_mut().line(begin, NodeId(0), "world", format_args!("{one:?} are cut off"));
        let rules = world.network_mut().rules_mut();
        rules.push(Rule::silence(one.clone(), other.clone(), begin, end));
        rules.push(Rule::silence(other, one, begin, end));
        workload.trouble(end);
    }

    fn harm_disk(&mut self, world: &mut World, workload: &mut Workload, full: bool) {
        let node = *self.random.pick(&self.keepers);
        let end = world.now() + self.span();
        let slowness = self.random.within(2, 200);
        let what = if full { "full" } else { "slow" };
        let now = world.now();
        world.trace_mut().line(now, node, "disk", format_args!("all are {what}"));
        for faults in world.machine_mut(node).faults() {
            if full {
                faults.full = true;
            } else {
                faults.slowness = slowness;
            }
        }
        if full {
            workload.model_mut().disk_full(world.now());
        }
        workload.trouble(end);
        self.cures.push((end, Cure::Disk(node)));
    }

    /// Ends what is over by `now`.
    fn cure(&mut self, world: &mut World, workload: &mut Workload, now: Picos) {
        let (due, later): (Vec<_>, Vec<_>) = self.cures.drain(..).partition(|(at, _)| *at <= now);
        self.cures = later;
        for (_, cure) in due {
            match cure {
                Cure::Start(node) if world.is_up(node) => {}
                // A manager says that its disk is full and ends; who watches over it starts it again.
                Cure::Start(node) if self.managers.contains(&node) && is_full(world, node) => {
                    self.cures.push((now + TICK, cure));
                }
                Cure::Start(node) => world.start(node),
                Cure::Disk(node) => self.empty_disks(world, workload, node),
            }
        }
        if self.keepers.iter().all(|node| world.is_up(*node)) {
            workload.model_mut().data.servers_back(now);
        }
        world.network_mut().rules_mut().retain(|rule| rule.end > now);
    }

    /// Heals them; what they did not take while they were full is known to be at risk.
    fn empty_disks(&self, world: &mut World, workload: &mut Workload, node: NodeId) {
        if is_full(world, node) {
            workload.model_mut().disk_full(world.now());
        }
        self.heal_disks(world, node);
    }

    fn heal_disks(&self, world: &mut World, node: NodeId) {
        world.machine_mut(node).faults().for_each(|faults| *faults = Default::default());
    }

    /// Makes disks fail at any time, if the experiment wants it: then any operation may fail, and unsynced data be
    /// given up as on a full disk. Not before the first tick: a disk that could not be labelled must be mended by an
    /// operator.
    fn fail_disks(&self, world: &mut World, workload: &mut Workload) {
        let error_chance = self.faults.disk_error_per_million;
        if error_chance > 0 {
            for node in &self.keepers {
                world.machine_mut(*node).faults().for_each(|disk| disk.error_chance = error_chance);
            }
            workload.trouble(world.now());
            workload.model_mut().disk_full(world.now());
        }
    }

    /// Ends all faults now, and does no more harm.
    pub fn end(&mut self, world: &mut World, workload: &mut Workload) {
        let disk_errors = self.faults.disk_error_per_million > 0;
        self.faults = Faults::NONE;
        self.keepers.iter().for_each(|node| self.empty_disks(world, workload, *node));
        if disk_errors {
            // A disk that could not be read at its server's start is not used before the next one.
            for node in self.keepers.clone() {
                self.crash(node, Crash::Kill, world, workload);
            }
        }
        self.cure(world, workload, Picos::NEVER);
        world.network_mut().rules_mut().clear();
        workload.model_mut().data.servers_back(world.now());
        workload.trouble(world.now());
    }
}

/// Whether what happens so often in a minute happens in this tick.
pub(crate) fn strikes(random: &mut Random, per_minute: u32) -> bool {
    random.chance(per_minute.saturating_mul(MILLION / TICKS_PER_MINUTE))
}

fn is_full(world: &mut World, node: NodeId) -> bool {
    world.machine_mut(node).faults().any(|disk| disk.full)
}
