//! Front ends that are one key space, under faults: clients on every node set, read, count and delete keys, and a
//! checker knows which value a key may have.
//!
//! ```text
//!   client ──► kv::Session ──► Items ──► Courier ──► other front ends, values in netmem::Service
//!      └─────► model: what was begun, acknowledged, refused; what must be there
//! ```
//!
//! Nodes, registry, faults and the programs beside are those of [the network memory](super).

mod client;
mod front;
pub mod model;

use crate::queue::Picos;
use kv::service::Courier;
use kv::{Items, TenantNo};
use model::KeyModel;
use netmem::service::View;
use netmem::{Member, Slots};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{NodeId, Time};

pub use front::start;

/// The only one.
const TENANT: TenantNo = TenantNo(0);

/// A node's front end.
#[derive(Clone)]
pub struct Front {
    /// Its items.
    pub items: Rc<RefCell<Items>>,
    /// Its tasks.
    pub courier: Courier,
}

/// State shared by the clients of all nodes and their checker.
#[derive(Default)]
pub struct Keys {
    /// The checker.
    pub model: RefCell<KeyModel>,
    /// Of every node that runs.
    pub fronts: RefCell<BTreeMap<NodeId, Front>>,
    /// Start of the time in which all nodes are up, know it and are heard; `None` when one is not.
    pub calm: Cell<Option<Picos>>,
    owners: RefCell<Option<(View, Slots)>>,
}

/// Keys are named so.
fn name(key: u64) -> String {
    format!("key{key}")
}

impl Keys {
    /// Items that were dropped for want of room or of other memory.
    fn drops(&self) -> u64 {
        let dropped = |front: &Front| {
            let items = front.items.borrow();
            let (here, away) = (items.counters(TENANT), items.away_counters(TENANT));
            here.evicted + here.no_room + away.dropped + away.lost
        };
        self.fronts.borrow().values().map(dropped).sum()
    }

    /// The registry has another view: whose owner is another now, or in another incarnation, may be gone.
    pub fn handle_view(&self, view: &View) {
        let members: Vec<Member> = view
            .members
            .iter()
            .map(|up| Member { node: up.node, weight: up.weight.max(1) })
            .collect();
        let next = Slots::new(&members).map(|slots| (view.clone(), slots));
        let before = self.owners.replace(next.clone());
        let owner = |of: &Option<(View, Slots)>, key: u64| {
            let (view, slots) = of.as_ref()?;
            let node = slots.slot(kv::slot_of(name(key).as_bytes())).primary;
            Some((node, view.incarnation(node)))
        };
        self.model.borrow_mut().begin_move(|key| owner(&before, key) != owner(&next, key));
    }

    /// More went down than values away can stand.
    pub fn handle_loss(&self, now: Picos) {
        self.model.borrow_mut().endanger(now, |_| true);
    }

    /// A node hears of a view. Where the one before never settled, it cannot know who kept its keys meanwhile.
    pub fn tell(&self, now: Picos, node: NodeId, view: &View) {
        let front = self.fronts.borrow().get(&node).cloned();
        let Some(Front { items, courier }) = front else { return };
        let known = items.borrow().owners().map_or(0, |owners| owners.view());
        if view.number > known && !courier.is_settled() {
            self.model.borrow_mut().endanger(now, |_| true);
        }
        courier.set_view(view.clone());
    }

    /// As machines do it: without a membership no node answers for any key.
    pub fn renew(&self, node: NodeId, incarnation: u64, until: Time) {
        let front = self.fronts.borrow().get(&node).cloned();
        front.into_iter().for_each(|front| front.courier.set_lease(incarnation, until));
    }

    /// Time has passed: whether all nodes hear (`hears`), and all members of the view go by it.
    pub fn note(&self, now: Picos, view: &View, hears: bool) {
        let settled = self.are_settled(view);
        if settled {
            self.model.borrow_mut().end_moves(now);
        }
        let calm = settled && hears;
        self.calm.set(calm.then(|| self.calm.get().unwrap_or(now)));
    }

    fn are_settled(&self, view: &View) -> bool {
        let fronts = self.fronts.borrow();
        let goes_by = |front: &Front| {
            let number = front.items.borrow().owners().map_or(0, |owners| owners.view());
            front.courier.is_settled() && number == view.number
        };
        view.members.iter().all(|up| fronts.get(&up.node).is_some_and(goes_by))
    }
}
