//! Who serves keys: every member of a view is asked, and has said then that it serves by no earlier one.

use super::Courier;
use super::carry::op;
use crate::limits::{VIEW_PAUSE, VIEW_WAIT};
use netmem::Member;
use netmem::service::{Up, View};
use node::{Call, CallError, Cx, Notify};
use std::cell::RefCell;
use std::collections::BTreeSet;
use wire::{Channel, NodeId, Time};

/// The view that the node goes by, or is about to.
pub(super) struct Views {
    view: RefCell<View>,
    changed: Notify,
    /// Members that have asked here, in this view: they serve keys, whatever they answered before.
    claims: RefCell<BTreeSet<NodeId>>,
}

impl Views {
    pub fn new(cx: &Cx) -> Views {
        Views { view: RefCell::default(), changed: Notify::new(cx), claims: RefCell::default() }
    }
}

/// What a member says of itself.
enum Said {
    Serves,
    ServesNot,
    /// Nothing yet, or that it knows an earlier view only.
    Later,
}

impl Courier {
    /// Who is up now, as the members' registry says it. Views come in ascending order; others are ignored.
    pub fn set_view(&self, view: View) {
        let me = self.0.cx.id();
        let before = self.0.views.view.borrow().incarnation(me);
        // a node that was left out has missed who owned its keys meanwhile
        let afresh = before.is_none() || before != view.incarnation(me);
        let mut items = self.0.items.borrow_mut();
        let owners = items.owners_mut().expect("one of several nodes");
        if owners.set_view(view.number, afresh) {
            *self.0.views.view.borrow_mut() = view;
            self.0.views.claims.borrow_mut().clear();
            self.0.views.changed.notify_all();
        }
    }

    /// The life that the view says this node is in; 0 when it is in none.
    pub fn life(&self) -> u64 {
        self.0.views.view.borrow().incarnation(self.0.cx.id()).unwrap_or(0)
    }

    /// Until then nobody takes this node, in this life, for dead. After it, it answers for no key.
    pub fn set_lease(&self, life: u64, until: Time) {
        if life != self.life() {
            return;
        }
        let mut items = self.0.items.borrow_mut();
        items.owners_mut().expect("one of several nodes").set_lease(until.0 / 1_000_000);
    }

    /// Whether all members know the view, so that keys are served.
    pub fn is_settled(&self) -> bool {
        self.0.items.borrow().owners().is_some_and(|owners| owners.members().is_some())
    }

    pub(super) async fn follow_views(self) {
        loop {
            let changed = self.0.views.changed.wait();
            let view = self.0.views.view.borrow().clone();
            let is_in = view.incarnation(self.0.cx.id()).is_some();
            if is_in && !self.is_settled() {
                self.settle(&view).await;
            } else {
                changed.await;
            }
        }
    }

    /// Asks all members of a view until each has answered, or another view has come.
    async fn settle(&self, view: &View) {
        let mut members: Vec<Member> = Vec::new();
        for up in &view.members {
            match self.serves_keys(up.node, view.number).await {
                Some(true) => members.push(member(up)),
                Some(false) => {}
                None => return,
            }
        }
        let claims = self.0.views.claims.borrow();
        if claims.iter().all(|node| members.iter().any(|member| member.node == *node)) {
            self.0.items.borrow_mut().settle_view(view.number, &members, self.moment());
        }
    }

    /// Whether a member serves keys; `None` when another view has come before it said so.
    async fn serves_keys(&self, node: NodeId, view: u64) -> Option<bool> {
        while self.0.views.view.borrow().number == view {
            match if node == self.0.cx.id() { Said::Serves } else { self.ask(node, view).await } {
                Said::Serves => return Some(true),
                Said::ServesNot if !self.0.views.claims.borrow().contains(&node) => {
                    return Some(false);
                }
                _ => self.0.cx.sleep(VIEW_PAUSE).await,
            }
        }
        None
    }

    /// Whether a member that serves keys may go by a view as far as this node is concerned: it has come as far itself,
    /// and has not settled it without that member.
    pub(super) fn admits(&self, node: NodeId, view: u64) -> bool {
        let items = self.0.items.borrow();
        let Some(owners) = items.owners() else { return false };
        let without = owners.members().is_some_and(|members| !members.contains(&node));
        if owners.view() == view && !without {
            self.0.views.claims.borrow_mut().insert(node);
        }
        owners.view() > view || (owners.view() == view && !without)
    }

    async fn ask(&self, node: NodeId, view: u64) -> Said {
        let cx = &self.0.cx;
        let call = Call {
            to: node,
            channel: Channel::KEYS,
            op: op::VIEW,
            once: false,
            deadline: Some(VIEW_WAIT),
            body: &view.to_le_bytes(),
            data: cx.pieces(),
            trailer: &[],
            into: cx.pieces(),
        };
        match cx.call(call).await {
            Ok(reply) if reply.status == 0 => Said::Serves,
            Err(CallError::Refused) => Said::ServesNot,
            _ => Said::Later,
        }
    }
}

/// Its part of the keys is as its part of the memory.
fn member(up: &Up) -> Member {
    Member { node: up.node, weight: up.weight.max(1) }
}
