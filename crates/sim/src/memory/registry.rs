//! Who is up, as the members' registry would say it: it gives up who is silent for a second, tells every node that it
//! can reach, and a node that was given up comes back in another life.

use crate::queue::Picos;
use crate::random::Random;
use netmem::service::{Up, View};
use std::collections::{BTreeMap, BTreeSet};
use wire::NodeId;

/// Silence after which a node is given up.
pub const GIVEN_UP: Picos = Picos::seconds(1);
/// Silence after which a node itself knows that it may be, a fifth sooner.
pub const EXPIRED: Picos = Picos::millis(800);
/// Longest time until a node hears of a new view, in milliseconds.
const NEWS_MS_MAX: u64 = 40;

/// Something that is due.
#[derive(Clone, Debug)]
pub enum Step {
    /// A node that has started wants to be a member.
    Join(Up),
    /// Nothing was heard of these for long, all at once.
    GiveUp(Vec<(NodeId, u64)>),
    /// A node hears who is up.
    Tell(NodeId, u64, View),
    /// A node in this life ends: it was given up.
    End(NodeId, u64),
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    random: Random,
    number: u64,
    members: BTreeMap<NodeId, Up>,
    due: Vec<(Picos, Step)>,
    /// Nodes that hear nothing.
    pub cut_off: BTreeSet<NodeId>,
}

impl Registry {
    /// Without members.
    pub fn new(seed: u64) -> Registry {
        Registry {
            random: Random::new(seed, "registry"),
            number: 0,
            members: BTreeMap::new(),
            due: Vec::new(),
            cut_off: BTreeSet::new(),
        }
    }

    /// The newest view.
    pub fn view(&self) -> View {
        View::new(self.number, self.members.values().copied().collect())
    }

    /// Does something later.
    pub fn later(&mut self, at: Picos, step: Step) {
        self.due.push((at, step));
    }

    /// A node is heard of again in time: it is not given up for its silence, and does not give itself up.
    pub fn spare(&mut self, node: NodeId, life: u64) {
        let newest = self.number;
        let alone = |step: &Step| matches!(step, Step::Tell(to, _, view) if *to == node && view.number > newest);
        self.due.retain(|(_, step)| !alone(step));
        for (_, step) in &mut self.due {
            if let Step::GiveUp(nodes) = step {
                nodes.retain(|gone| *gone != (node, life));
            }
        }
    }

    /// What is due, in the order of its time.
    pub fn take_due(&mut self, now: Picos) -> Vec<Step> {
        let (mut due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= now);
        self.due = later;
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, step)| step).collect()
    }

    /// A node is a member from now on, in this life only.
    pub fn join(&mut self, now: Picos, up: Up) {
        self.members.insert(up.node, up);
        self.announce(now);
    }

    /// Those that are members in just these lives.
    pub fn members_of(&self, lives: &[(NodeId, u64)]) -> Vec<NodeId> {
        let is_member = |(node, life): &&(NodeId, u64)| {
            self.members.get(node).is_some_and(|up| up.incarnation == *life)
        };
        lives.iter().filter(is_member).map(|(node, _)| *node).collect()
    }

    /// These members are given up.
    pub fn give_up(&mut self, now: Picos, gone: &[NodeId]) {
        for node in gone {
            self.members.remove(node);
        }
        if !gone.is_empty() {
            self.announce(now);
        }
    }

    fn announce(&mut self, now: Picos) {
        self.number += 1;
        let view = self.view();
        for up in self.members.values() {
            if !self.cut_off.contains(&up.node) {
                let at = now + Picos::micros(self.random.below(NEWS_MS_MAX * 1_000));
                self.due.push((at, Step::Tell(up.node, up.incarnation, view.clone())));
            }
        }
    }

    /// What a node believes that hears nothing any more: all others may be there, it is not.
    pub fn without(&self, node: NodeId) -> View {
        let others = self.members.values().copied().filter(|up| up.node != node).collect();
        View::new(self.number + 1, others)
    }
}
