//! Membership of a node: the view, its own incarnation and lease in it, and how far the others have come in it.
//!
//! A plain struct without I/O and without a clock. Every service that keeps something for others has one: what it may
//! believe, whose word counts, and when all others have said what they hold are the same questions everywhere.
//!
//! ```text
//!  registry ── view, lease ──► handle_view ──► Change: who is gone, who came ──► what their incarnations' ends set off
//!  others ──── reports ──────► handle_report ──► is_settled: what is not known now is nowhere
//!  clock ────────────────────► poll_overdue: nodes that are away for too long to come back as they were
//! ```
//!
//! Invariants: views come in ascending order; a node is in one incarnation; only who is in the view is heard; the own
//! incarnation is the one that the view says, once it [is taken over](Membership::adopt).

use std::collections::BTreeMap;
use std::time::Duration;
use wire::{NodeId, Time};

/// A node that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Up {
    /// The node.
    pub node: NodeId,
    /// Greater than in every earlier one. A node that was left out of a view comes back in a later incarnation.
    pub incarnation: u64,
    /// Its part of what all keep together, relative to the others': any unit, say MiB of its memory. 0 is none.
    pub weight: u32,
    /// The machine that it runs on; 0 when that is not known, and then it is taken for one of its own.
    pub machine: u64,
}

/// The nodes that are up, as the members' registry says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Grows with every change; 0 is before the first.
    pub number: u64,
    /// In the order of their numbers, each once.
    pub members: Vec<Up>,
}

impl View {
    /// A view; the order of the members does not matter. Panics when a node is there twice.
    pub fn new(number: u64, mut members: Vec<Up>) -> View {
        members.sort_unstable_by_key(|up| up.node);
        let once = members.windows(2).all(|pair| pair[0].node < pair[1].node);
        assert!(once, "a node is in one incarnation");
        View { number, members }
    }

    /// A node that is up.
    pub fn get(&self, node: NodeId) -> Option<&Up> {
        let at = self.members.binary_search_by_key(&node, |up| up.node).ok()?;
        Some(&self.members[at])
    }

    /// The incarnation of a node; `None` when it is down.
    pub fn incarnation(&self, node: NodeId) -> Option<u64> {
        self.get(node).map(|up| up.incarnation)
    }

    /// Whether a node is up in just this incarnation.
    pub fn has(&self, node: NodeId, incarnation: u64) -> bool {
        self.incarnation(node) == Some(incarnation)
    }

    /// The machine that a node runs on; 0 when it is down or that is not known.
    pub fn machine(&self, node: NodeId) -> u64 {
        self.get(node).map_or(0, |up| up.machine)
    }

    /// The nodes, but for one.
    pub fn others(&self, me: NodeId) -> impl Iterator<Item = &Up> + Clone {
        self.members.iter().filter(move |up| up.node != me)
    }
}

/// The differences between a view and the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The view before.
    pub before: View,
    /// Nodes that are down or in a later incarnation, with the last incarnation that is over.
    pub gone: Vec<(NodeId, u64)>,
    /// Other nodes that are new or in a later incarnation.
    pub came: Vec<NodeId>,
}

/// One node's membership, as it may believe it.
///
/// Getters; then `handle_view`, `handle_lease`, `handle_report`, `handle_end` for what is heard; `adopt` as a command;
/// `poll_overdue` for the clock.
#[derive(Debug)]
pub struct Membership {
    me: NodeId,
    view: View,
    incarnation: u64,
    /// End of the period in which no other node takes this one, in this incarnation, for dead.
    until: Time,
    /// When this node became a member, and the view that said so.
    joined: Option<(Time, u64)>,
    /// The first view in which this node has seen each of the others in its present incarnation.
    since: BTreeMap<NodeId, u64>,
    /// The last view in which each node has reported.
    reports: BTreeMap<NodeId, u64>,
    /// Nodes that are down and may have been paused only, and since when.
    absent: BTreeMap<NodeId, Time>,
}

impl Membership {
    /// Before the first view. Without a [lease](Membership::handle_lease) it is believed for ever.
    pub fn new(me: NodeId, incarnation: u64) -> Membership {
        Membership {
            me,
            view: View::default(),
            incarnation,
            until: Time::NEVER,
            joined: None,
            since: BTreeMap::new(),
            reports: BTreeMap::new(),
            absent: BTreeMap::new(),
        }
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The nodes that are up.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The incarnation that this node is in; 0 in none.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The other nodes that are up.
    pub fn others(&self) -> impl Iterator<Item = &Up> {
        self.view.others(self.me)
    }

    /// Whether this node is in the view, in its incarnation.
    pub fn is_member(&self) -> bool {
        self.is_in(&self.view)
    }

    /// Whether this node is in a view, in its incarnation.
    pub fn is_in(&self, view: &View) -> bool {
        view.has(self.me, self.incarnation)
    }

    /// When this node became a member, and in which view.
    pub fn joined(&self) -> Option<(Time, u64)> {
        self.joined
    }

    /// Whether others may take this node for dead: what it knows may not hold any more.
    pub fn is_doubtful(&self, now: Time) -> bool {
        self.until <= now
    }

    /// Whether the view ends this node's incarnation: it was a member, and is none or in a later one.
    pub fn is_ended_by(&self, view: &View) -> bool {
        view.number > self.view.number && self.is_member() && !self.is_in(view)
    }

    /// Whether a node's reports about others count, when it goes by the view of this number: it is in the incarnation
    /// in which it is a member here. A node that was declared dead and does not know it yet still believes that it is a
    /// member.
    pub fn believes(&self, node: NodeId, view: u64) -> bool {
        self.since.get(&node).is_some_and(|since| view >= *since)
    }

    /// Whether a node that goes by the view of this number speaks of an earlier incarnation of `node`.
    pub fn is_outlived(&self, node: NodeId, view: u64) -> bool {
        self.since.get(&node).is_some_and(|since| view < *since)
    }

    /// Whether a node has reported in this view.
    pub fn has_reported(&self, node: NodeId) -> bool {
        self.reports.get(&node).is_some_and(|view| *view >= self.view.number)
    }

    /// Whether all others have reported in this view.
    pub fn is_settled(&self) -> bool {
        self.others().all(|up| self.has_reported(up.node))
    }

    /// Another view. `None` when it is not newer.
    pub fn handle_view(&mut self, now: Time, view: View) -> Option<Change> {
        if view.number <= self.view.number {
            return None;
        }
        let before = std::mem::replace(&mut self.view, view);
        let ended = before.members.iter().filter(|up| !self.view.has(up.node, up.incarnation));
        let gone: Vec<(NodeId, u64)> = ended.map(|up| (up.node, up.incarnation)).collect();
        let new = self.others().filter(|up| !before.has(up.node, up.incarnation));
        let came: Vec<NodeId> = new.map(|up| up.node).collect();
        for (node, _) in gone.iter().filter(|(node, _)| *node != self.me) {
            self.since.remove(node);
            if self.view.get(*node).is_none() {
                self.absent.insert(*node, now);
            }
        }
        for node in &came {
            self.since.insert(*node, self.view.number);
            self.absent.remove(node);
        }
        if self.is_member() && self.joined.is_none() {
            self.joined = Some((now, self.view.number));
        }
        assert_eq!(self.since.len(), self.others().count(), "every other node came in some view");
        let is_away = |node: &NodeId| self.view.get(*node).is_none();
        assert!(self.absent.keys().all(is_away), "a node is up or absent");
        Some(Change { before, gone, came })
    }

    /// Extends the period in which no other node takes this one for dead. Ignored for another incarnation than the
    /// present.
    pub fn handle_lease(&mut self, incarnation: u64, until: Time) {
        if incarnation == self.incarnation {
            self.until = until;
        }
    }

    /// A node has said all that it has to say in the view of this number.
    pub fn handle_report(&mut self, node: NodeId, view: u64) {
        let reported = self.reports.entry(node).or_default();
        *reported = view.max(*reported);
    }

    /// This node's incarnation is over: what others reported to it they report again.
    pub fn handle_end(&mut self) {
        self.reports.clear();
        self.joined = None;
    }

    /// From now on this node is in the incarnation that the view gives it.
    pub fn adopt(&mut self, view: &View) {
        self.incarnation = view.incarnation(self.me).unwrap_or(0);
    }

    /// The nodes that are away for so long: they come back without what they had. Each is named once.
    pub fn poll_overdue(&mut self, now: Time, span: Duration) -> Vec<NodeId> {
        let overdue = |since: &Time| now.since(*since) >= span;
        let nodes = self.absent.iter().filter(|(_, since)| overdue(since)).map(|(node, _)| *node);
        let nodes = nodes.collect();
        self.absent.retain(|_, since| !overdue(since));
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    /// A view of nodes in incarnations.
    fn view(number: u64, nodes: &[(u16, u64)]) -> View {
        let up = |&(node, incarnation): &(u16, u64)| Up {
            node: NodeId(node),
            incarnation,
            weight: 1,
            machine: 0,
        };
        View::new(number, nodes.iter().map(up).collect())
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_view_says_who_is_gone_and_who_came() {
        let mut members = Membership::new(ME, 1);
        let change = members.handle_view(at(1), view(3, &[(1, 1), (2, 1), (3, 1)])).unwrap();
        assert_eq!((change.gone, change.came), (vec![], vec![NodeId(2), NodeId(3)]));
        assert_eq!(members.joined(), Some((at(1), 3)));
        assert!(members.handle_view(at(2), view(3, &[])).is_none(), "it is known");
        let change = members.handle_view(at(2), view(4, &[(1, 1), (2, 4), (4, 1)])).unwrap();
        assert_eq!(change.gone, [(NodeId(2), 1), (NodeId(3), 1)]);
        assert_eq!(change.came, [NodeId(2), NodeId(4)]);
        assert_eq!((change.before.number, members.view().number), (3, 4));
    }

    #[test]
    fn a_view_is_settled_when_all_others_have_reported_in_it() {
        let mut members = Membership::new(ME, 1);
        assert!(members.is_settled(), "nobody else is there");
        members.handle_view(at(1), view(3, &[(1, 1), (2, 1), (3, 1)])).unwrap();
        members.handle_report(NodeId(2), 4);
        members.handle_report(NodeId(3), 2);
        assert!(!members.is_settled() && members.has_reported(NodeId(2)));
        members.handle_report(NodeId(3), 3);
        assert!(members.is_settled());
        members.handle_view(at(2), view(4, &[(1, 1), (2, 1), (3, 1)])).unwrap();
        assert!(!members.is_settled() && members.has_reported(NodeId(2)));
        members.handle_end();
        assert!(!members.has_reported(NodeId(2)) && members.joined().is_none());
    }

    #[test]
    fn who_speaks_of_an_earlier_incarnation_is_not_heard() {
        let mut members = Membership::new(ME, 1);
        members.handle_view(at(1), view(3, &[(1, 1), (2, 1)])).unwrap();
        assert!(members.believes(NodeId(2), 3) && !members.believes(NodeId(2), 2));
        members.handle_view(at(2), view(4, &[(1, 1), (2, 4)])).unwrap();
        assert!(!members.believes(NodeId(2), 3) && members.is_outlived(NodeId(2), 3));
        assert!(members.believes(NodeId(2), 4) && !members.is_outlived(NodeId(2), 4));
        members.handle_view(at(3), view(5, &[(1, 1)])).unwrap();
        assert!(!members.believes(NodeId(2), 5) && !members.is_outlived(NodeId(2), 5));
    }

    #[test]
    fn a_node_that_was_given_up_is_in_another_incarnation() {
        let mut members = Membership::new(ME, 1);
        let first = view(3, &[(1, 7), (2, 1)]);
        assert!(!members.is_ended_by(&first), "it was no member before");
        members.adopt(&first);
        members.handle_view(at(1), first).unwrap();
        assert!(members.is_member() && members.incarnation() == 7);
        members.handle_lease(7, at(5));
        members.handle_lease(6, at(9));
        assert!(!members.is_doubtful(at(4)) && members.is_doubtful(at(5)));
        for next in [view(4, &[(2, 1)]), view(4, &[(1, 9), (2, 1)])] {
            assert!(members.is_ended_by(&next) && !members.is_in(&next));
        }
        assert!(!members.is_ended_by(&view(3, &[])), "it is known");
        members.adopt(&view(4, &[(2, 1)]));
        assert!(!members.is_member() && members.incarnation() == 0);
    }

    #[test]
    fn a_node_is_overdue_once_and_not_when_it_has_come_back() {
        let mut members = Membership::new(ME, 1);
        members.handle_view(at(1), view(3, &[(1, 1), (2, 1), (3, 1)])).unwrap();
        members.handle_view(at(2), view(4, &[])).unwrap();
        members.handle_view(at(3), view(5, &[(1, 5), (2, 5)])).unwrap();
        let span = Duration::from_secs(60);
        assert_eq!(members.poll_overdue(at(61), span), []);
        assert_eq!(members.poll_overdue(at(62), span), [NodeId(3)]);
        assert_eq!(members.poll_overdue(at(99), span), []);
    }
}
