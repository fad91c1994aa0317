//! Servers of keys: every member of a view is asked, and has said then that it serves by no earlier one.

use super::Courier;
use super::carry::op;
use crate::limits::{VIEW_PAUSE, VIEW_WAIT};
use members::{Up, View};
use netmem::Member;
use node::{Bug, Call, CallError};
use wire::{Channel, NodeId, Time};

/// A member's statement.
enum Said {
    Serves,
    ServesNot,
    /// Nothing yet, or that it knows an earlier view only.
    Later,
}

impl Courier {
    /// The nodes that are up now, as the members' registry says it. Views come in ascending order; others are ignored.
    pub fn set_view(&self, view: View) {
        let keeps = self.0.cx.has_bug(Bug::FormerKeysServed);
        let mut items = self.0.items.borrow_mut();
        let owners = items.owners_mut().expect("one of several nodes");
        if owners.handle_view(self.0.cx.now(), view, keeps) {
            self.0.view_changed.notify_all();
        }
    }

    /// The incarnation that the view says this node is in; 0 when it is in none.
    pub fn incarnation(&self) -> u64 {
        self.0.items.borrow().owners().map_or(0, |owners| owners.membership().incarnation())
    }

    /// Extends the period in which no other node takes this one, in this incarnation, for dead. After it, it answers
    /// for no key.
    pub fn set_lease(&self, incarnation: u64, until: Time) {
        let mut items = self.0.items.borrow_mut();
        items.owners_mut().expect("one of several nodes").handle_lease(incarnation, until);
    }

    /// Whether all members know the view, so that keys are served.
    pub fn is_settled(&self) -> bool {
        self.0.items.borrow().owners().is_some_and(|owners| owners.members().is_some())
    }

    pub(super) async fn follow_views(self) {
        loop {
            let changed = self.0.view_changed.wait();
            match self.unsettled_view() {
                Some(view) => self.settle(&view).await,
                None => changed.await,
            }
        }
    }

    fn unsettled_view(&self) -> Option<View> {
        let items = self.0.items.borrow();
        let owners = items.owners()?;
        let due = owners.membership().is_member() && owners.members().is_none();
        due.then(|| owners.membership().view().clone())
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
        let others = view.others(self.0.cx.id());
        let mut claims = others.map(|up| up.node).filter(|node| self.has_claimed(*node));
        if claims.all(|node| members.iter().any(|member| member.node == node)) {
            self.0.items.borrow_mut().settle_view(view.number, &members, self.moment());
        }
    }

    /// Whether a member serves keys; `None` when another view has come before it said so.
    async fn serves_keys(&self, node: NodeId, view: u64) -> Option<bool> {
        while self.view() == view {
            match if node == self.0.cx.id() { Said::Serves } else { self.ask(node, view).await } {
                Said::Serves => return Some(true),
                Said::ServesNot if !self.has_claimed(node) => return Some(false),
                _ => self.0.cx.sleep(VIEW_PAUSE).await,
            }
        }
        None
    }

    /// Whether a member that serves keys may go by a view as far as this node is concerned: it has come as far itself,
    /// and has not settled it without that member.
    pub(super) fn admits(&self, node: NodeId, view: u64) -> bool {
        let mut items = self.0.items.borrow_mut();
        let Some(owners) = items.owners_mut() else { return false };
        let without = owners.members().is_some_and(|members| !members.contains(&node));
        if owners.view() == view && !without {
            owners.handle_claim(node);
        }
        owners.view() > view || (owners.view() == view && !without)
    }

    /// Whether a member has asked here in this view: it serves keys, whatever it answered before.
    fn has_claimed(&self, node: NodeId) -> bool {
        let items = self.0.items.borrow();
        items.owners().is_some_and(|owners| owners.membership().has_reported(node))
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
