//! Faults injected into a cluster with network memory, and their permitted costs.

use super::registry::{EXPIRED, GIVEN_UP, Process, Registry, Step};
use super::shared::Shared;
use crate::clock::Clock;
use crate::experiment::Faults;
use crate::faults::{Nodes, Rule};
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::storage::Crash;
use crate::trouble::strikes;
use crate::world::World;
use netmem::Service;
use netmem::service::View;
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::NodeId;

/// Longest time that a node is down, a partition lasts, stable storage is slow.
const TROUBLE_MS_MAX: u64 = 6_000;
const PAUSE_MS_MAX: u64 = 3_000;
/// How long a node takes from its start, or from when it is heard of again, until it asks to be a member.
const JOIN: Picos = Picos::millis(50);

enum Cure {
    Start(NodeId),
    Storage,
    Heal(Vec<NodeId>),
    Woken(Process),
}

/// The source of trouble, and the registry that notices.
pub struct Trouble {
    shared: Rc<Shared>,
    faults: Faults,
    random: Random,
    cures: Vec<(Picos, Cure)>,
    /// The nodes that are up.
    pub registry: Registry,
    /// The registry's own.
    clock: Clock,
    /// Nodes whose loss has been reckoned with, until they begin another incarnation.
    lost: BTreeSet<NodeId>,
    /// Nodes that do nothing.
    asleep: BTreeSet<NodeId>,
    /// Nodes that do not reach the others.
    parted: BTreeSet<NodeId>,
}

fn process(world: &World, node: NodeId) -> Process {
    (node, world.machine(node).boot)
}

impl Trouble {
    /// For a cluster that begins.
    pub fn new(shared: &Rc<Shared>, faults: Faults) -> Trouble {
        let mut rates = Random::new(shared.seed, "registry's clock");
        Trouble {
            shared: shared.clone(),
            faults,
            random: Random::new(shared.seed, "trouble"),
            cures: Vec::new(),
            registry: Registry::new(shared.seed),
            clock: Clock::drawn(Picos::ZERO, faults.clock_rate_percent, &mut rates),
            lost: BTreeSet::new(),
            asleep: BTreeSet::new(),
            parted: BTreeSet::new(),
        }
    }

    /// Starts a node in a new incarnation.
    pub fn start(&mut self, world: &mut World, node: NodeId) {
        world.start(node);
        if !self.shared.is_member(node) {
            return;
        }
        if !self.parted.contains(&node) {
            self.registry.cut_off.remove(&node);
        }
        self.registry.later(world.now() + JOIN, Step::Join(process(world, node)));
    }

    /// Whether one node may go down and nothing that is durable with it: all are up, know it, and lack no mirror.
    pub fn is_whole(&self) -> bool {
        let view = self.registry.view();
        let services = self.shared.services.borrow();
        let knows = |service: &Service| {
            service.view() == view
                && service.is_settled()
                && service.counters().durable_deficit_pages == 0
        };
        self.lost.is_empty()
            && view.members.len() == usize::from(self.shared.shape.nodes)
            && services.values().all(knows)
    }

    /// These nodes' memory is gone.
    fn lose(&mut self, now: Picos, nodes: &[NodeId]) {
        let new: Vec<NodeId> =
            nodes.iter().copied().filter(|node| !self.lost.contains(node)).collect();
        let alone = new.len() == 1 && self.is_whole();
        if !alone && !new.is_empty() {
            self.shared.keys.handle_loss(now);
        }
        for node in new {
            self.lost.insert(node);
            self.shared.fenced.borrow_mut().insert(node);
            self.shared.model.borrow_mut().node_down(node, alone);
        }
    }

    /// Applies the cures and news that are due.
    pub fn tick(&mut self, world: &mut World) {
        let now = world.now();
        let (due, later): (Vec<_>, Vec<_>) = self.cures.drain(..).partition(|(at, _)| *at <= now);
        self.cures = later;
        due.into_iter().for_each(|(_, cure)| self.cure(world, cure));
        for step in self.registry.take_due(now) {
            self.step(world, step);
        }
        self.renew(world);
        self.note_calm(now);
        world.network_mut().rules_mut().retain(|rule| rule.end > now);
    }

    /// Whether the owner of every key can be reached, and knows that it is.
    fn note_calm(&self, now: Picos) {
        let (keys, view) = (&self.shared.keys, self.registry.view());
        let all = view.members.len() == usize::from(self.shared.shape.nodes);
        keys.note(now, &view, all && self.registry.cut_off.is_empty());
    }

    /// A node that was heard of is not taken for dead for a while.
    fn renew(&self, world: &World) {
        for (node, service) in self.shared.services.borrow().iter() {
            if !self.registry.cut_off.contains(node) {
                let until = self.shared.clock(*node).time(world.now()) + EXPIRED;
                let incarnation = self.registry.incarnation(*node);
                service.set_lease(incarnation, until);
                self.shared.keys.renew(*node, incarnation, until);
            }
        }
    }

    fn step(&mut self, world: &mut World, step: Step) {
        let now = world.now();
        match step {
            Step::Join(joins) if process(world, joins.0) != joins || !world.is_up(joins.0) => (),
            Step::Join(joins) if self.registry.cut_off.contains(&joins.0) => {
                self.registry.later(now + JOIN, Step::Join(joins));
            }
            Step::Join(joins) if self.registry.has(joins) => (),
            Step::Join(joins) => {
                self.lost.remove(&joins.0);
                self.registry.join(now, joins, self.shared.shape.frames);
                self.shared.keys.handle_view(&self.registry.view());
            }
            Step::GiveUp(nodes) => {
                let gone = self.registry.members_of(&nodes);
                self.lose(now, &gone);
                self.registry.give_up(now, &gone);
                self.shared.keys.handle_view(&self.registry.view());
                let line = format_args!("{gone:?} are given up");
                world.trace_mut().line(now, NodeId(0), "view", line);
            }
            Step::Tell(told, view) if process(world, told.0) == told => {
                self.tell(world, told.0, view);
            }
            _ => (),
        }
    }

    /// A node hears who is up, and goes by that.
    fn tell(&mut self, world: &mut World, node: NodeId, view: View) {
        let (now, number) = (world.now(), view.number);
        world.trace_mut().line(now, node, "view", format_args!("hears of view {number}"));
        let service = self.shared.services.borrow().get(&node).cloned();
        let Some(service) = service else { return };
        let before = service.incarnation();
        self.shared.keys.tell(now, node, &view);
        service.follow(view);
        if service.incarnation() != before {
            let line = format_args!("is in incarnation {} now", service.incarnation());
            world.trace_mut().line(now, node, "view", line);
            self.shared.note_kept(node, &service);
        }
        if service.incarnation() != 0 && service.incarnation() == self.registry.incarnation(node) {
            self.shared.fenced.borrow_mut().remove(&node);
        }
        world.wake(node);
    }

    fn cure(&mut self, world: &mut World, cure: Cure) {
        match cure {
            Cure::Start(node) if !world.is_up(node) => self.start(world, node),
            Cure::Start(_) => (),
            Cure::Storage => self.shared.storage.borrow_mut().faults = Default::default(),
            Cure::Heal(nodes) => {
                self.parted.clear();
                nodes.into_iter().for_each(|node| self.back(world, node));
            }
            Cure::Woken(woken) if process(world, woken.0) == woken => {
                self.asleep.remove(&woken.0);
                self.back(world, woken.0);
            }
            Cure::Woken(_) => (),
        }
    }

    /// A node hears again, unless there is another reason why it does not. If it was given up it hears that, or only
    /// that it is a member again, in another incarnation.
    fn back(&mut self, world: &mut World, node: NodeId) {
        if self.asleep.contains(&node) || self.parted.contains(&node) {
            return;
        }
        self.registry.cut_off.remove(&node);
        if !world.is_up(node) {
            return;
        }
        self.registry.spare(node);
        let (now, process) = (world.now(), process(world, node));
        let given_up = self.lost.contains(&node);
        if given_up {
            self.registry.later(now + JOIN, Step::Join(process));
        }
        if !given_up || self.random.chance(MILLION / 2) {
            self.registry.later(now, Step::Tell(process, self.registry.view()));
        }
    }

    /// May do harm.
    pub fn strike(&mut self, world: &mut World) {
        let faults = self.faults;
        self.shared.storage.borrow_mut().faults.error_chance = faults.disk_error_per_million;
        if strikes(&mut self.random, faults.kills_per_minute) {
            let node = *self.random.pick(&self.members(world));
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

    /// All but guests' machines.
    fn members(&self, world: &World) -> Vec<NodeId> {
        let nodes = world.nodes().into_iter();
        nodes.filter(|node| self.shared.is_member(*node)).collect()
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

    /// Ends these at once; each begins another incarnation later.
    pub fn crash_all(&mut self, world: &mut World, nodes: &[NodeId], crash: Crash) {
        let up: Vec<NodeId> = nodes.iter().copied().filter(|node| world.is_up(*node)).collect();
        let now = world.now();
        self.lose(now, &up);
        for node in up {
            let gone = Step::GiveUp(vec![(node, self.registry.incarnation(node))]);
            world.crash(node, crash);
            self.asleep.remove(&node);
            self.shared.node_down(node);
            self.shared.model.borrow_mut().process_ended(node);
            self.registry.later(now + self.clock.span(GIVEN_UP), gone);
            let back = now + self.span();
            self.cures.push((back, Cure::Start(node)));
        }
    }

    fn cut_power(&mut self, world: &mut World) {
        let mut nodes = self.members(world);
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
        self.cures.push((now + span, Cure::Woken(process(world, node))));
    }

    /// Nothing is heard of these for a while.
    fn silent(&mut self, world: &World, nodes: &[NodeId], span: Picos) {
        let now = world.now();
        self.registry.cut_off.extend(nodes);
        let given_up = self.clock.span(GIVEN_UP);
        if span > given_up {
            let incarnations =
                nodes.iter().map(|node| (*node, self.registry.incarnation(*node))).collect();
            self.registry.later(now + given_up, Step::GiveUp(incarnations));
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
        self.parted.extend(few.iter().copied());
        self.silent(world, &few, end - begin);
        self.cures.push((end, Cure::Heal(few)));
    }

    /// Ends all faults now, and does no more harm. Paused nodes stay paused.
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
