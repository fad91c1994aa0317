//! What is done to a cluster with network memory, and what that may cost.

use super::registry::{EXPIRED, GIVEN_UP, Registry, Step};
use super::shared::Shared;
use crate::experiment::Faults;
use crate::faults::{Nodes, Rule};
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::storage::Crash;
use crate::trouble::strikes;
use crate::world::World;
use netmem::service::Up;
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::NodeId;

/// Longest time that a node is down, a partition lasts, stable storage is slow.
const TROUBLE_MS_MAX: u64 = 6_000;
const PAUSE_MS_MAX: u64 = 3_000;
/// How long a node takes from its start until it asks to be a member.
const JOIN: Picos = Picos::millis(50);
/// How long a node lives that learns that it was given up.
const LAST_BREATH: Picos = Picos::millis(20);

enum Cure {
    Start(NodeId),
    Storage,
    Heal(Vec<NodeId>),
    Woken(NodeId),
}

/// The source of trouble, and the registry that notices.
pub struct Trouble {
    shared: Rc<Shared>,
    faults: Faults,
    random: Random,
    cures: Vec<(Picos, Cure)>,
    /// Who is up.
    pub registry: Registry,
    /// Nodes whose loss has been reckoned with, until they begin another life.
    lost: BTreeSet<NodeId>,
    /// Nodes that do nothing.
    asleep: BTreeSet<NodeId>,
    /// Who has heard nothing for so long that it believes to be given up.
    alone: BTreeSet<NodeId>,
}

fn life(world: &World, node: NodeId) -> u64 {
    u64::from(node.0) << 32 | u64::from(world.machine(node).life)
}

impl Trouble {
    /// For a cluster that begins.
    pub fn new(shared: &Rc<Shared>, faults: Faults) -> Trouble {
        Trouble {
            shared: shared.clone(),
            faults,
            random: Random::new(shared.seed, "trouble"),
            cures: Vec::new(),
            registry: Registry::new(shared.seed),
            lost: BTreeSet::new(),
            asleep: BTreeSet::new(),
            alone: BTreeSet::new(),
        }
    }

    /// Starts a node in a new life.
    pub fn start(&mut self, world: &mut World, node: NodeId) {
        world.start(node);
        self.lost.remove(&node);
        self.asleep.remove(&node);
        self.alone.remove(&node);
        self.shared.fenced.borrow_mut().remove(&node);
        let weight = self.shared.shape.frames;
        let up = Up { node, incarnation: life(world, node), weight };
        self.registry.later(world.now() + JOIN, Step::Join(up));
    }

    /// Whether one node may go down and nothing that is durable with it: all are up, know it, and lack no mirror.
    pub fn is_whole(&self) -> bool {
        let view = self.registry.view();
        let services = self.shared.services.borrow();
        let knows = |service: &netmem::Service| {
            service.view() == view
                && service.is_settled()
                && service.counters().durable_deficit_pages == 0
        };
        self.lost.is_empty()
            && view.members.len() == usize::from(self.shared.shape.nodes)
            && services.values().all(knows)
    }

    /// These nodes' memory is gone.
    fn lose(&mut self, nodes: &[NodeId]) {
        let new: Vec<NodeId> =
            nodes.iter().copied().filter(|node| !self.lost.contains(node)).collect();
        let alone = new.len() == 1 && self.is_whole();
        for node in new {
            self.lost.insert(node);
            self.shared.fenced.borrow_mut().insert(node);
            self.shared.model.borrow_mut().node_down(node, alone);
        }
    }

    /// What is due of cures and news.
    pub fn tick(&mut self, world: &mut World) {
        let now = world.now();
        let (due, later): (Vec<_>, Vec<_>) = self.cures.drain(..).partition(|(at, _)| *at <= now);
        self.cures = later;
        due.into_iter().for_each(|(_, cure)| self.cure(world, cure));
        for step in self.registry.take_due(now) {
            self.step(world, step);
        }
        world.network_mut().rules_mut().retain(|rule| rule.end > now);
    }

    fn step(&mut self, world: &mut World, step: Step) {
        let now = world.now();
        match step {
            Step::Join(up) if life(world, up.node) != up.incarnation => (),
            Step::Join(up) if self.registry.cut_off.contains(&up.node) => {
                self.registry.later(now + JOIN, Step::Join(up));
            }
            Step::Join(up) => self.registry.join(now, up),
            Step::GiveUp(nodes) => {
                let gone = self.registry.members_of(&nodes);
                self.lose(&gone);
                self.registry.give_up(now, &gone);
                let line = format_args!("{gone:?} are given up");
                world.trace_mut().line(now, NodeId(0), "view", line);
            }
            Step::Tell(node, incarnation, view) if life(world, node) == incarnation => {
                if view.incarnation(node).is_none() {
                    self.alone.insert(node);
                }
                let service = self.shared.services.borrow().get(&node).cloned();
                let number = view.number;
                service.into_iter().for_each(|service| service.set_view(view.clone()));
                world.trace_mut().line(now, node, "view", format_args!("hears of view {number}"));
                world.wake(node);
            }
            Step::End(node, incarnation) if life(world, node) == incarnation => {
                self.crash(world, node, Crash::Kill);
            }
            _ => (),
        }
    }

    fn cure(&mut self, world: &mut World, cure: Cure) {
        match cure {
            Cure::Start(node) if !world.is_up(node) => self.start(world, node),
            Cure::Start(_) => (),
            Cure::Storage => self.shared.storage.borrow_mut().faults = Default::default(),
            Cure::Heal(nodes) => nodes.into_iter().for_each(|node| self.back(world, node)),
            Cure::Woken(node) => self.back(world, node),
        }
    }

    /// A node hears again. If it was given up, that is what it hears, and soon ends.
    fn back(&mut self, world: &mut World, node: NodeId) {
        self.registry.cut_off.remove(&node);
        self.asleep.remove(&node);
        let (now, life) = (world.now(), life(world, node));
        if self.alone.remove(&node) {
            // it has given itself up, and the registry does too
            self.step(world, Step::GiveUp(vec![(node, life)]));
        }
        if self.lost.contains(&node) {
            self.registry.later(now, Step::Tell(node, life, self.registry.without(node)));
            self.registry.later(now + LAST_BREATH, Step::End(node, life));
        } else if world.is_up(node) {
            self.registry.spare(node, life);
            self.registry.later(now, Step::Tell(node, life, self.registry.view()));
        }
    }

    /// May do harm.
    pub fn strike(&mut self, world: &mut World) {
        let faults = self.faults;
        self.shared.storage.borrow_mut().faults.error_chance = faults.disk_error_per_million;
        if strikes(&mut self.random, faults.kills_per_minute) {
            let node = self.any_node(world);
            self.crash(world, node, Crash::Kill);
        }
        if strikes(&mut self.random, faults.power_cuts_per_minute) {
            self.cut_power(world);
        }
        if strikes(&mut self.random, faults.pauses_per_minute) {
            self.pause(world);
        }
        if strikes(&mut self.random, faults.partitions_per_minute) {
            self.partition(world);
        }
        if strikes(&mut self.random, faults.slow_disks_per_minute) {
            let end = world.now() + self.span();
            self.shared.storage.borrow_mut().faults.slowness = self.random.within(2, 200);
            self.cures.push((end, Cure::Storage));
        }
    }

    fn any_node(&mut self, world: &World) -> NodeId {
        *self.random.pick(&world.nodes())
    }

    fn span(&mut self) -> Picos {
        Picos::millis(self.random.within(1, TROUBLE_MS_MAX))
    }

    fn crash(&mut self, world: &mut World, node: NodeId, crash: Crash) {
        self.crash_all(world, &[node], crash);
    }

    /// Ends these at once; each begins another life later.
    pub fn crash_all(&mut self, world: &mut World, nodes: &[NodeId], crash: Crash) {
        let up: Vec<NodeId> = nodes.iter().copied().filter(|node| world.is_up(*node)).collect();
        self.lose(&up);
        let now = world.now();
        for node in up {
            let gone = Step::GiveUp(vec![(node, life(world, node))]);
            world.crash(node, crash);
            self.shared.node_down(node);
            self.registry.later(now + GIVEN_UP, gone);
            let back = now + self.span();
            self.cures.push((back, Cure::Start(node)));
        }
    }

    fn cut_power(&mut self, world: &mut World) {
        let mut nodes = world.nodes();
        let first = self.random.index(nodes.len());
        let first = nodes.swap_remove(first);
        nodes.retain(|_| self.random.chance(100_000));
        nodes.push(first);
        nodes.sort_unstable();
        self.crash_all(world, &nodes, Crash::Power);
    }

    fn pause(&mut self, world: &mut World) {
        let node = self.any_node(world);
        let span = Picos::millis(self.random.within(1, PAUSE_MS_MAX));
        if !world.is_up(node) || !self.asleep.insert(node) {
            return;
        }
        let now = world.now();
        world.pause(node, span);
        self.shared.excuse(node, span);
        self.silent(world, &[node], span);
        self.cures.push((now + span, Cure::Woken(node)));
    }

    /// Nothing is heard of these for a while.
    fn silent(&mut self, world: &World, nodes: &[NodeId], span: Picos) {
        let now = world.now();
        self.registry.cut_off.extend(nodes);
        if span > GIVEN_UP {
            let lives = nodes.iter().map(|node| (*node, life(world, *node))).collect();
            self.registry.later(now + GIVEN_UP, Step::GiveUp(lives));
        }
    }

    fn partition(&mut self, world: &mut World) {
        let mut few = world.nodes();
        few.retain(|node| self.random.chance(MILLION / 4) && world.is_up(*node));
        let many: Vec<NodeId> =
            world.nodes().into_iter().filter(|node| !few.contains(node)).collect();
        if few.is_empty() || few.len() >= many.len() || !self.registry.cut_off.is_empty() {
            return;
        }
        let (begin, end) = (world.now(), world.now() + self.span());
        world.trace_mut().line(begin, NodeId(0), "world", format_args!("{few:?} are cut off"));
        let (one, other) = (Nodes::These(few.clone()), Nodes::These(many));
        let rules = world.network_mut().rules_mut();
        rules.push(Rule::silence(one.clone(), other.clone(), begin, end));
        rules.push(Rule::silence(other, one, begin, end));
        self.silent(world, &few, end - begin);
        if end - begin > EXPIRED {
            for node in &few {
                let alone = self.registry.without(*node);
                self.registry.later(begin + EXPIRED, Step::Tell(*node, life(world, *node), alone));
            }
        }
        self.cures.push((end, Cure::Heal(few)));
    }

    /// Ends all faults now, and does no more harm. Who sleeps sleeps on.
    pub fn end(&mut self, world: &mut World) {
        self.faults = Faults::NONE;
        self.shared.storage.borrow_mut().faults = Default::default();
        world.network_mut().rules_mut().clear();
        let sleeps = |(_, cure): &(Picos, Cure)| matches!(cure, Cure::Woken(_));
        let (asleep, others): (Vec<_>, Vec<_>) = self.cures.drain(..).partition(sleeps);
        self.cures = asleep;
        others.into_iter().for_each(|(_, cure)| self.cure(world, cure));
    }
}
