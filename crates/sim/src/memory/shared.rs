//! State shared by the programs of a simulated cluster, its stable storage and its checkers. It is outside of the
//! machines: nothing that a service decides depends on it, but for the requests of its programs.

use super::keys::Keys;
use super::model::Model;
use super::storage::Storage;
use crate::clock::Clock;
use crate::experiment::MemoryShape;
use crate::queue::Picos;
use netmem::limits::{ATTEMPT, MIRROR_TRIES, PATIENCE};
use netmem::{Page, Role, Service};
use node::Cx;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use wire::NodeId;

/// Phase of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Read and write whatever they like.
    #[default]
    Working,
    /// Make durable what they wrote; no fault any more.
    Resting,
    /// Nothing.
    Quiet,
    /// Read all that must be readable.
    Reading,
}

/// How long requests take at most, by their nodes' clocks: what the service says, the last attempt that was begun
/// before that, and what stable storage takes when it is slow.
pub mod deadlines {
    use super::{ATTEMPT, Duration, MIRROR_TRIES, PATIENCE};

    const STORAGE: Duration = Duration::from_secs(1);
    /// A page is asked for.
    pub const GET: Duration = PATIENCE.saturating_add(STORAGE);
    /// One is written: its lease, whose last attempt takes four, and then room.
    pub const PUT: Duration = PATIENCE.saturating_mul(2).saturating_add(ATTEMPT.saturating_mul(4));
    /// One is made durable: all nodes that are tried for a mirror, and the directory that is told.
    pub const FLUSH: Duration = PATIENCE
        .saturating_add(ATTEMPT.saturating_mul(MIRROR_TRIES as u32 + 1))
        .saturating_add(STORAGE);
    /// A request that waits until all nodes that are up have answered, or are given up; and commands and guests'
    /// requests, which are several of the others.
    pub const SEVERAL: Duration = Duration::from_secs(45);
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct Open {
    /// The waiting node.
    pub node: NodeId,
    /// Its start.
    pub since: Picos,
    /// When it is to have ended.
    pub until: Picos,
    /// For what.
    pub what: String,
}

/// All of it.
pub struct Shared {
    /// Of the run.
    pub seed: u64,
    /// How large the cluster is.
    pub shape: MemoryShape,
    /// The checker.
    pub model: RefCell<Model>,
    /// Front ends, their clients and their checker.
    pub keys: Keys,
    /// Stable storage.
    pub storage: RefCell<Storage>,
    /// The service of every node that runs.
    pub services: RefCell<BTreeMap<NodeId, Service>>,
    /// The handle of every node that runs.
    pub nodes: RefCell<BTreeMap<NodeId, Cx>>,
    /// The clocks of their machines.
    pub clocks: RefCell<BTreeMap<NodeId, Clock>>,
    /// The programs' present phase.
    pub phase: Cell<Phase>,
    /// Nodes that the registry has given up and that are in no other incarnation yet: what they are told counts for
    /// nothing.
    pub fenced: RefCell<BTreeSet<NodeId>>,
    /// Nodes that have read all that they must.
    pub readers_done: RefCell<BTreeSet<NodeId>>,
    /// Requests that succeeded and that failed.
    pub tally: Cell<(u64, u64)>,
    /// Lines for the trace: when, who, what.
    pub lines: RefCell<Vec<(Picos, NodeId, String)>>,
    /// Whether they are read.
    pub traced: bool,
    /// Nodes' processes that have ended.
    pub ends: Cell<u64>,
    serial: Cell<u64>,
    open: RefCell<BTreeMap<u64, Open>>,
}

impl Shared {
    /// Of a run that begins.
    pub fn new(seed: u64, shape: MemoryShape, traced: bool) -> Shared {
        Shared {
            seed,
            shape,
            model: RefCell::default(),
            keys: Keys::default(),
            storage: RefCell::new(Storage::new(seed)),
            services: RefCell::default(),
            nodes: RefCell::default(),
            clocks: RefCell::default(),
            phase: Cell::default(),
            fenced: RefCell::default(),
            readers_done: RefCell::default(),
            tally: Cell::default(),
            lines: RefCell::default(),
            traced,
            ends: Cell::new(0),
            serial: Cell::new(0),
            open: RefCell::default(),
        }
    }

    /// Whether this is a node of the cluster, and no guest's machine.
    pub fn is_member(&self, node: NodeId) -> bool {
        node.0 <= self.shape.nodes
    }

    /// The clock of a node that runs.
    pub fn clock(&self, node: NodeId) -> Clock {
        self.clocks.borrow()[&node]
    }

    /// The world's time, whatever the node's clock says.
    pub fn now(&self, cx: &Cx) -> Picos {
        self.clock(cx.id()).when(cx.now())
    }

    /// A number that is unique in the run.
    pub fn serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// A request of this node begins, which has so long by its clock. Its number is for [`end`](Shared::end).
    pub fn begin(&self, cx: &Cx, most: Duration, what: fmt::Arguments<'_>) -> u64 {
        let (number, node, since) = (self.serial(), cx.id(), self.now(cx));
        let until = since + self.clock(node).span(most.into());
        let open = Open { node, since, until, what: what.to_string() };
        self.open.borrow_mut().insert(number, open);
        number
    }

    /// It has ended, well or not.
    pub fn end(
        &self,
        now: Picos,
        number: u64,
        outcome: Result<fmt::Arguments<'_>, fmt::Arguments<'_>>,
    ) {
        let Some(open) = self.open.borrow_mut().remove(&number) else { return };
        let (good, bad) = self.tally.get();
        let ok = outcome.is_ok();
        self.tally.set((good + u64::from(ok), bad + u64::from(!ok)));
        if self.traced {
            let (Ok(text) | Err(text)) = outcome;
            let line = format!("{} (since {}): {text}", open.what, open.since);
            self.lines.borrow_mut().push((now, open.node, line));
        }
    }

    /// A node has begun another incarnation: what is in its own memory of its own pages is there.
    pub fn note_kept(&self, node: NodeId, service: &Service) {
        let model = &mut *self.model.borrow_mut();
        service.inspect(|memory, _| {
            let own =
                |role: Role, page: &Page| role.is_own() && page.id.space.owner() == Some(node);
            let kept = memory.pages().filter(|(_, role, page)| own(*role, page));
            kept.for_each(|(_, _, page)| model.kept(page.id, page.version));
        });
    }

    /// The requests of a node end with it.
    pub fn node_down(&self, node: NodeId) {
        self.ends.set(self.ends.get() + 1);
        self.open.borrow_mut().retain(|_, open| open.node != node);
        self.services.borrow_mut().remove(&node);
        self.nodes.borrow_mut().remove(&node);
        self.keys.fronts.borrow_mut().remove(&node);
    }

    /// The run is over: services, whose storage knows this, are let go.
    pub fn end_all(&self) {
        self.services.borrow_mut().clear();
        self.keys.fronts.borrow_mut().clear();
        self.nodes.borrow_mut().clear();
    }

    /// A node did nothing for a while: its requests have that much more time.
    pub fn excuse(&self, node: NodeId, span: Picos) {
        let mut open = self.open.borrow_mut();
        open.values_mut()
            .filter(|open| open.node == node)
            .for_each(|open| open.until = open.until + span);
    }

    /// A request that was to have ended.
    pub fn overdue(&self, now: Picos) -> Option<Open> {
        self.open.borrow().values().find(|open| open.until < now).cloned()
    }
}
