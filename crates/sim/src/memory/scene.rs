//! Scripted scenes: a few nodes with network memory, and what they do, when, said by a test.

use super::model::fill;
use super::run::role;
use super::shared::Shared;
use super::spaces::kind;
use crate::experiment::MemoryShape;
use crate::faults::{Nodes, Rule};
use crate::machine::MachineConfig;
use crate::network::LinkModel;
use crate::queue::Picos;
use crate::storage::Crash;
use crate::trace::Trace;
use crate::world::{Happening, World};
use endpoint::limits::PAGE_BYTES;
use netmem::limits::{EPOCH_SHARE, WEIGHT_PERCENT_MAX};
use netmem::service::{Counters, GetError, PutError, Source, Up, View, Weak};
use netmem::{EpochConfig, Homes, Member, Page, PageId, Role, Service, Slots, Version, Wanted};
use node::Cx;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

/// Longest time that a script may take.
const SCRIPT_MAX: Picos = Picos::seconds(120);
const POOL_PAGES: usize = 1024;
/// Epochs in which every member has its whole weight, and that follow the ages of pages closely.
pub const EPOCHS: EpochConfig = EpochConfig {
    period: Duration::from_millis(100),
    share: EPOCH_SHARE,
    weight_percent_max: WEIGHT_PERCENT_MAX,
    slow_start: Duration::from_millis(1),
};
/// Incarnations that a node may begin while its process goes on.
const RETURNS_MAX: u64 = 1 << 8;

/// A cluster without programs.
pub struct Scene {
    /// The machines and the links.
    pub world: World,
    shared: Rc<Shared>,
    views: u64,
    /// Nodes that were given up while they ran: how often, and whether they are now.
    given_up: BTreeMap<NodeId, (u64, bool)>,
}

/// The result of a script, once it has ended.
pub type Later<T> = Rc<RefCell<Option<T>>>;

/// A node as scripts see it.
#[derive(Clone)]
pub struct Actor {
    /// The node.
    pub cx: Cx,
    /// Its service.
    pub service: Service,
    shared: Rc<Shared>,
}

/// A version that scripts count from 1. Those of shared pages are newer than any lease begins with.
fn numbered(id: PageId, version: u64) -> Version {
    Version(if version == 0 { 0 } else { version + base(id) })
}

fn base(id: PageId) -> u64 {
    if id.space.owner().is_none() { 1 << 62 } else { 0 }
}

impl Actor {
    /// Writes a version of a page into this node's memory.
    pub async fn put(&self, id: PageId, version: u64) -> Result<(), PutError> {
        let (version, class) = (numbered(id, version), kind(id.space).class());
        let content = self.shared.model.borrow_mut().begin(id, class, version);
        let mut data = self.cx.frames().alloc_exact(PAGE_BYTES).expect("a pool with room");
        fill(&mut data, id, content);
        let outcome = self.service.put(id, version, class, data.freeze()).await;
        if outcome.is_err() {
            self.shared.model.borrow_mut().refused(id, content);
        }
        outcome
    }

    /// Makes it durable.
    pub async fn flush(&self, id: PageId) -> Result<(), Weak> {
        self.service.flush(id).await
    }

    /// Both, and the checker knows that it must be readable.
    pub async fn write(&self, id: PageId, version: u64) {
        let (class, newest) = (kind(id.space).class(), numbered(id, version));
        let content = self.shared.model.borrow_mut().begin(id, class, newest);
        let mut data = self.cx.frames().alloc_exact(PAGE_BYTES).expect("a pool with room");
        fill(&mut data, id, content);
        let put = self.service.put(id, newest, class, data.freeze()).await;
        put.unwrap_or_else(|error| panic!("{id} version {version}: {error}"));
        let flushed = self.service.flush(id).await;
        flushed.unwrap_or_else(|error| panic!("{id} version {version}: {error}"));
        self.shared.model.borrow_mut().acknowledged(id, content);
    }

    /// The version of a page that comes; its bytes are checked.
    pub async fn get(&self, id: PageId, at_least: u64) -> Result<u64, GetError> {
        self.find(id, at_least).await.map(|(version, _)| version)
    }

    /// As [`get`](Actor::get), and where it was.
    pub async fn find(&self, id: PageId, at_least: u64) -> Result<(u64, Source), GetError> {
        let at_least = numbered(id, at_least);
        let asked = self.shared.model.borrow().ask(self.cx.id(), id, at_least, false);
        let wanted = Wanted { id, at_least, bytes: PAGE_BYTES as u32 };
        match self.service.get(wanted).await {
            Ok(got) => {
                self.shared.model.borrow_mut().delivered(asked, got.version, &got.data);
                Ok((got.version.0 - base(id), got.source))
            }
            Err(error) => {
                self.shared.model.borrow_mut().failed(asked, &error);
                Err(error)
            }
        }
    }

    /// Frees the page's space everywhere.
    pub async fn free(&self, id: PageId) {
        self.shared.model.borrow_mut().begin_free(id.space);
        self.service.free(id.space).await.expect("few spaces are freed");
        self.shared.model.borrow_mut().end_free(id.space);
    }
}

impl Scene {
    /// So many nodes with so many frames each, all up and members, between which pages go from now on.
    pub fn new(seed: u64, nodes: u16, frames: u32) -> Scene {
        let shape = MemoryShape { nodes, frames, ..MemoryShape::default() };
        let mut scene = Scene::of(seed, shape, EPOCHS);
        scene.await_weights();
        scene
    }

    /// A cluster of this shape, whose programs do nothing, with such epochs, a few seconds old.
    pub fn of(seed: u64, shape: MemoryShape, epoch: EpochConfig) -> Scene {
        let shape = MemoryShape { programs: 0, ..shape };
        let MemoryShape { nodes, frames, .. } = shape;
        let shared = Rc::new(Shared::new(seed, shape, false));
        let mut world = World::new(seed, LinkModel::default(), Trace::default());
        for node in (1..=nodes).map(NodeId) {
            let frame_pages = frames as usize * 2 + POOL_PAGES;
            let config = MachineConfig { frame_pages, disks: 1, ..MachineConfig::new(node) };
            world.add(config, role(shared.clone(), epoch));
            world.start(node);
        }
        let mut scene = Scene { world, shared, views: 0, given_up: BTreeMap::new() };
        scene.pass(Picos::millis(10));
        scene.view();
        scene.pass(Picos::seconds(3));
        scene
    }

    /// Every node knows an epoch in which every node takes pages.
    fn await_weights(&mut self) {
        let members = self.members();
        let knows = |service: &Service| {
            let epoch = service.epoch();
            members.iter().all(|up| epoch.weight(up.node) > 0)
        };
        let all = self.shared.services.borrow().values().all(knows);
        assert!(all, "pages go to every node");
    }

    /// All members learn the present view, and have time to report to each other.
    pub fn view(&mut self) {
        self.tell_view();
        self.pass(Picos::millis(300));
    }

    /// All members learn the present view.
    pub fn tell_view(&mut self) {
        self.views += 1;
        let view = View::new(self.views, self.members());
        for up in &view.members {
            self.actor(up.node).service.follow(view.clone());
            self.world.wake(up.node);
        }
    }

    /// The nodes that are up and were not given up.
    fn members(&self) -> Vec<Up> {
        let nodes = self.world.nodes().into_iter();
        let up = nodes.filter(|node| self.world.is_up(*node) && !self.given_up(*node).1);
        let weight = self.weight();
        up.map(|node| Up { node, incarnation: self.incarnation(node), weight, machine: 0 })
            .collect()
    }

    fn weight(&self) -> u32 {
        self.shared.shape.frames
    }

    fn given_up(&self, node: NodeId) -> (u64, bool) {
        self.given_up.get(&node).copied().unwrap_or_default()
    }

    /// The incarnation that a node is a member in: later with each of its processes and with each return.
    fn incarnation(&self, node: NodeId) -> u64 {
        let (process, returns) = (self.world.machine(node).boot, self.given_up(node).0);
        u64::from(node.0) << 32 | u64::from(process) * RETURNS_MAX + returns
    }

    /// The others go on without a node whose lease has ended, and which does not hear of it.
    pub fn give_up(&mut self, node: NodeId) {
        self.shared.model.borrow_mut().node_down(node, true);
        self.given_up.insert(node, (self.given_up(node).0, true));
        let service = self.actor(node).service;
        let now = self.shared.clock(node).time(self.world.now());
        service.set_lease(service.incarnation(), now);
        self.view();
    }

    /// A node that was given up is a member again, in another incarnation, and hears that.
    pub fn come_back(&mut self, node: NodeId) {
        let returns = self.given_up(node).0 + 1;
        assert!(returns < RETURNS_MAX);
        self.given_up.insert(node, (returns, false));
        self.tell_view();
        let service = self.actor(node).service;
        service.set_lease(self.incarnation(node), Time::NEVER);
        self.shared.note_kept(node, &service);
    }

    /// The homes of a page when these nodes are members.
    pub fn homes_with(&self, id: PageId, nodes: &[NodeId]) -> Homes {
        let member = |node: &NodeId| Member { node: *node, weight: self.weight() };
        let members: Vec<Member> = nodes.iter().map(member).collect();
        Slots::new(&members).expect("members").homes(id)
    }

    /// A node that is up.
    pub fn actor(&self, node: NodeId) -> Actor {
        let cx = self.shared.nodes.borrow()[&node].clone();
        let service = self.shared.services.borrow()[&node].clone();
        Actor { cx, service, shared: self.shared.clone() }
    }

    /// A node's state of a page in its memory.
    pub fn page(&self, node: NodeId, id: PageId) -> Option<Page> {
        let service = self.actor(node).service;
        service.inspect(|memory, _| memory.page(memory.find(id)?).copied())
    }

    /// The nodes that have a page in memory, as what, in which version.
    pub fn holders(&self, id: PageId) -> Vec<(NodeId, Role, u64)> {
        let has = |(node, service): (&NodeId, &Service)| {
            service.inspect(|memory, _| {
                let frame = memory.find(id)?;
                let version = memory.page(frame)?.version.0 - base(id);
                Some((*node, memory.role(frame), version))
            })
        };
        self.shared.services.borrow().iter().filter_map(has).collect()
    }

    /// The version of a page that a node's directory knows, and who has it.
    pub fn entry(&self, node: NodeId, id: PageId) -> Option<(u64, Vec<NodeId>)> {
        let service = self.actor(node).service;
        service.inspect(|_, directory| {
            let entry = directory.entry(id)?;
            let holders = entry.holders.iter().map(|holder| holder.node).collect();
            Some((entry.version.0 - base(id), holders))
        })
    }

    /// Counters of a node.
    pub fn counters(&self, node: NodeId) -> Counters {
        self.actor(node).service.counters()
    }

    /// A counter, summed over all nodes that are up.
    pub fn total(&self, count: impl Fn(&Counters) -> u64) -> u64 {
        self.shared.services.borrow().values().map(|service| count(&service.counters())).sum()
    }

    /// Adds a rule for messages. Its number is for [`struck`](Scene::struck).
    pub fn strike(&mut self, rule: Rule) -> usize {
        let rules = self.world.network_mut().rules_mut();
        rules.push(rule);
        rules.len() - 1
    }

    /// Number of messages that a rule has struck.
    pub fn struck(&mut self, rule: usize) -> u64 {
        self.world.network_mut().rules()[rule].struck
    }

    /// Time passes.
    pub fn pass(&mut self, span: Picos) {
        let until = self.world.now() + span;
        self.world.set_timer(until, 0);
        while !matches!(self.world.advance(Picos::NEVER), Happening::Timer(_)) {}
        self.shared.model.borrow_mut().handle_time(until, false);
    }

    /// A node begins to do something.
    pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        node: NodeId,
        script: impl FnOnce(Actor) -> F,
    ) -> Later<T> {
        let later = Later::default();
        let (actor, result) = (self.actor(node), later.clone());
        let cx = actor.cx.clone();
        let script = script(actor);
        cx.spawn("script", async move {
            let value = script.await;
            *result.borrow_mut() = Some(value);
        });
        self.world.wake(node);
        later
    }

    /// Waits for the script's result.
    pub fn end<T>(&mut self, later: &Later<T>) -> T {
        let until = self.world.now() + SCRIPT_MAX;
        while later.borrow().is_none() {
            assert!(self.world.now() < until, "a script does not end");
            self.pass(Picos::millis(1));
        }
        later.take().expect("just seen")
    }

    /// A node does something from beginning to end.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        node: NodeId,
        script: impl FnOnce(Actor) -> F,
    ) -> T {
        let later = self.begin(node, script);
        self.end(&later)
    }

    /// For a while nothing passes from one node to another.
    pub fn silence(&mut self, from: NodeId, to: NodeId, span: Picos) {
        let (begin, end) = (self.world.now(), self.world.now() + span);
        let only = |node| Nodes::These(vec![node]);
        self.strike(Rule::silence(only(from), only(to), begin, end));
    }

    /// For a while nothing passes between a node and all others.
    pub fn cut_off(&mut self, node: NodeId, span: Picos) {
        for other in self.world.nodes().into_iter().filter(|other| *other != node) {
            self.silence(node, other, span);
            self.silence(other, node, span);
        }
    }

    /// A node dies. Others learn it by the next view.
    pub fn crash(&mut self, node: NodeId) {
        self.shared.model.borrow_mut().node_down(node, true);
        self.shared.model.borrow_mut().process_ended(node);
        self.world.crash(node, Crash::Kill);
        self.shared.node_down(node);
    }

    /// Stable storage has version 1 of this page.
    pub fn store(&mut self, id: PageId) {
        let version = numbered(id, 1);
        let content = self.shared.model.borrow_mut().begin(id, kind(id.space).class(), version);
        let mut data = vec![0; PAGE_BYTES];
        fill(&mut data, id, content);
        self.shared.storage.borrow_mut().fill(id, version, &data);
    }

    /// Stable storage takes so many times as long.
    pub fn slow_storage(&mut self, slowness: u64) {
        self.shared.storage.borrow_mut().faults.slowness = slowness;
    }

    /// Nothing was wrong so far. Panics when something was.
    pub fn check(&mut self) {
        let mut wrong = std::mem::take(&mut self.shared.model.borrow_mut().violations);
        wrong.append(&mut self.world.take_violations());
        wrong.append(&mut super::check::always(&self.shared, self.world.now()));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.shared.end_all();
    }
}
