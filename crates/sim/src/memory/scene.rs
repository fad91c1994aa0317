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
use netmem::service::{GetError, PutError, Up, View, Weak};
use netmem::{PageId, Service, Version, Wanted};
use node::Cx;
use std::cell::RefCell;
use std::rc::Rc;
use wire::NodeId;

/// Longest time that a script may take.
const SCRIPT_MAX: Picos = Picos::seconds(120);
const POOL_PAGES: usize = 1024;

/// A cluster without programs.
pub struct Scene {
    /// The machines and the links.
    pub world: World,
    shared: Rc<Shared>,
    views: u64,
}

/// What a script will come to.
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
        let at_least = numbered(id, at_least);
        let asked = self.shared.model.borrow().ask(self.cx.id(), id, at_least, false);
        let wanted = Wanted { id, at_least, bytes: PAGE_BYTES as u32 };
        match self.service.get(wanted).await {
            Ok(got) => {
                self.shared.model.borrow_mut().delivered(asked, got.version, &got.data);
                Ok(got.version.0 - base(id))
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
    /// So many nodes with so many frames each, all up and members.
    pub fn new(seed: u64, nodes: u16, frames: u32) -> Scene {
        Scene::of(seed, MemoryShape { nodes, frames, ..MemoryShape::default() })
    }

    /// As [`new`](Scene::new), of a cluster of this shape, whose programs do nothing.
    pub fn of(seed: u64, shape: MemoryShape) -> Scene {
        let shape = MemoryShape { programs: 0, ..shape };
        let MemoryShape { nodes, frames, .. } = shape;
        let shared = Rc::new(Shared::new(seed, shape, false));
        let mut world = World::new(seed, LinkModel::default(), Trace::default());
        for node in (1..=nodes).map(NodeId) {
            let frame_pages = frames as usize * 2 + POOL_PAGES;
            let config = MachineConfig { frame_pages, disks: 1, ..MachineConfig::new(node) };
            world.add(config, role(shared.clone()));
            world.start(node);
        }
        let mut scene = Scene { world, shared, views: 0 };
        scene.pass(Picos::millis(10));
        scene.view();
        // an epoch, so that pages go to other nodes
        scene.pass(Picos::seconds(3));
        scene
    }

    /// All who are up learn who is up, and have time to tell each other.
    pub fn view(&mut self) {
        self.tell_view();
        self.pass(Picos::millis(300));
    }

    /// All who are up learn who is up.
    pub fn tell_view(&mut self) {
        self.views += 1;
        let nodes = self.world.nodes();
        let up: Vec<NodeId> = nodes.into_iter().filter(|node| self.world.is_up(*node)).collect();
        let weight = self.shared.shape.frames;
        let member = |node: &NodeId| {
            let life = u64::from(self.world.machine(*node).life);
            Up { node: *node, incarnation: u64::from(node.0) << 32 | life, weight }
        };
        let view = View::new(self.views, up.iter().map(member).collect());
        for node in up {
            self.actor(node).service.set_view(view.clone());
            self.world.wake(node);
        }
    }

    /// A node that is up.
    pub fn actor(&self, node: NodeId) -> Actor {
        let cx = self.shared.nodes.borrow()[&node].clone();
        let service = self.shared.services.borrow()[&node].clone();
        Actor { cx, service, shared: self.shared.clone() }
    }

    /// Time passes.
    pub fn pass(&mut self, span: Picos) {
        let until = self.world.now() + span;
        self.world.set_timer(until, 0);
        while !matches!(self.world.advance(Picos::NEVER), Happening::Timer(_)) {}
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

    /// What it came to.
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
        self.world.network_mut().rules_mut().push(Rule::silence(only(from), only(to), begin, end));
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
        let content = self.shared.model.borrow_mut().begin(id, kind(id.space).class(), Version(1));
        let mut data = vec![0; PAGE_BYTES];
        fill(&mut data, id, content);
        self.shared.storage.borrow_mut().fill(id, Version(1), &data);
    }

    /// Stable storage takes so many times as long.
    pub fn slow_storage(&mut self, slowness: u64) {
        self.shared.storage.borrow_mut().faults.slowness = slowness;
    }

    /// Nothing was wrong so far. Panics when something was.
    pub fn check(&mut self) {
        let mut wrong = std::mem::take(&mut self.shared.model.borrow_mut().violations);
        wrong.append(&mut self.world.take_violations());
        wrong.append(&mut super::check::always(&self.shared));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.shared.end_all();
    }
}
