//! The ordinary cluster, whose machines lend memory: files under faults beside it, machines that pause, a manager that
//! dies.

use crate::seeds::outcome;
use files::cluster::Services;
use sim::cluster::roles;
use sim::experiment::{Experiment, Faults, Shape};
use sim::machine::MachineConfig;
use sim::network::LinkModel;
use sim::queue::Picos;
use sim::run::Members;
use sim::storage::Crash;
use sim::trace::Trace;
use sim::world::{Happening, World};
use wire::NodeId;

const LEND_MIB: u32 = 2;
const MANAGER: NodeId = NodeId(1);
const SERVER: NodeId = NodeId(3);

fn lending(experiment: Experiment) -> Experiment {
    let shape = Shape { lend_mib: LEND_MIB, ..experiment.shape };
    Experiment { shape, ..experiment }
}

fn passes(seed: u64, experiment: &Experiment) {
    let outcome = outcome(seed, experiment);
    assert!(outcome.violations.is_empty(), "seed {seed}: {}", outcome.violations.join("\n"));
}

#[test]
fn files_under_faults_lose_nothing_beside_network_memory() {
    let experiment = lending(Experiment { seconds: 40, ..Experiment::default() });
    (1..4).for_each(|seed| passes(seed, &experiment));
}

#[test]
fn power_cuts_lose_nothing_beside_network_memory() {
    let text = include_str!("../../../experiments/power-cuts.toml");
    let experiment = lending(Experiment { seconds: 40, ..Experiment::parse(text).unwrap() });
    (1..3).for_each(|seed| passes(seed, &experiment));
}

/// As many as take five seconds of a quiet processor.
const SEEDS: usize = 3;

#[test]
fn fresh_seeds_lose_nothing() {
    let kept = Experiment::parse(include_str!("../../../experiments/lending.toml")).unwrap();
    crate::seeds::lose_nothing(kept, Some("experiments/lending.toml"), SEEDS);
}

/// A cluster in which nothing happens but what the test does, and what its programs do with network memory.
struct Cluster(World);

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let experiment = lending(Experiment { faults: Faults::NONE, ..Experiment::default() });
        let Members { manager, servers, mounts, .. } = Members::of(&experiment);
        let roles = roles(&experiment, 0);
        let mut world = World::new(seed, LinkModel::default(), Trace::default());
        let disks = |id, disks| MachineConfig { disks, ..MachineConfig::new(id) };
        world.add(disks(manager, 1), roles.manager.clone());
        servers.iter().for_each(|id| world.add(disks(*id, 2), roles.server.clone()));
        mounts.iter().for_each(|id| world.add(disks(*id, 0), roles.mount.clone()));
        world.nodes().into_iter().for_each(|node| world.start(node));
        let mut cluster = Cluster(world);
        cluster.pass(10);
        cluster
    }

    fn pass(&mut self, seconds: u64) {
        self.0.set_timer(self.0.now() + Picos::seconds(seconds), 0);
        while !matches!(self.0.advance(Picos::NEVER), Happening::Timer(_)) {}
        let wrong = self.0.take_violations();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn memory(&self, node: NodeId) -> netmem::Service {
        let services = self.0.machine(node).services::<Services>().expect("it runs");
        services.memory.clone().expect("it lends")
    }

    /// The number of the view that all have, with all of them in it, each in the incarnation that it believes to be in.
    fn agreed(&self) -> u64 {
        let view = self.memory(MANAGER).view();
        let nodes = self.0.nodes();
        assert_eq!(view.members.len(), nodes.len(), "{view:?}");
        for node in nodes {
            let memory = self.memory(node);
            assert_eq!(memory.view(), view, "{node}");
            assert_eq!(Some(memory.incarnation()), view.incarnation(node), "{node}");
            assert!(memory.is_settled() && memory.is_consistent(), "{node}");
        }
        view.number
    }
}

#[test]
fn all_that_lend_agree_and_keep_each_others_pages() {
    let mut cluster = Cluster::new(1);
    cluster.agreed();
    cluster.pass(10);
    for node in cluster.0.nodes() {
        let counters = cluster.memory(node).counters();
        assert!(counters.mirrors_made > 20 && counters.peer_hits > 5, "{node}: {counters:?}");
        assert_eq!((counters.lost_pages, counters.incarnations_lost), (0, 0), "{node}");
    }
}

/// Within its lease no more is noticed than that it is slow.
#[test]
fn a_machine_that_pauses_for_5_s_goes_on_in_its_life() {
    let mut cluster = Cluster::new(2);
    let (number, incarnation) = (cluster.agreed(), cluster.memory(SERVER).incarnation());
    cluster.0.pause(SERVER, Picos::seconds(5));
    cluster.pass(15);
    assert_eq!((cluster.agreed(), cluster.memory(SERVER).incarnation()), (number, incarnation));
    let lost: u64 =
        cluster.0.nodes().iter().map(|node| cluster.memory(*node).counters().lost_pages).sum();
    assert_eq!(lost, 0);
}

#[test]
fn a_machine_that_pauses_for_longer_than_its_lease_begins_again() {
    let mut cluster = Cluster::new(3);
    let (number, incarnation) = (cluster.agreed(), cluster.memory(SERVER).incarnation());
    cluster.0.pause(SERVER, Picos::seconds(16));
    cluster.pass(14);
    let others = cluster.memory(MANAGER).view();
    assert_eq!((others.number, others.incarnation(SERVER)), (number + 1, None));
    cluster.pass(10);
    assert_eq!(cluster.agreed(), number + 2);
    let memory = cluster.memory(SERVER);
    assert!(memory.incarnation() > incarnation);
    assert_eq!(memory.counters().incarnations_lost, 1);
    cluster.pass(20);
    let mirrors = memory.counters().mirrors_made;
    cluster.pass(5);
    assert!(memory.counters().mirrors_made > mirrors, "it takes part again");
}

/// A death of the manager of any kind costs no node its membership, and no number is given to two views.
#[test]
fn views_outlive_the_manager_and_never_go_back() {
    for (seed, crash) in [(4, Crash::Kill), (5, Crash::Power)] {
        let mut cluster = Cluster::new(seed);
        let number = cluster.agreed();
        let incarnations = |cluster: &Cluster| -> Vec<u64> {
            let others = cluster.0.nodes().into_iter().filter(|node| *node != MANAGER);
            others.map(|node| cluster.memory(node).incarnation()).collect()
        };
        let before = incarnations(&cluster);
        cluster.0.crash(MANAGER, crash);
        cluster.pass(14);
        cluster.0.start(MANAGER);
        cluster.pass(12);
        assert_eq!(cluster.agreed(), number + 1, "the manager has begun another incarnation");
        assert_eq!(incarnations(&cluster), before, "and nobody else");
        assert_eq!(cluster.memory(SERVER).counters().incarnations_lost, 0);
    }
}
