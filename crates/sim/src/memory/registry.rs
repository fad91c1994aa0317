//! Members that are up, as the members' registry would report them: it gives up a node that is silent for a second,
//! tells every node that it can reach, and takes in a process that asks to be a member in another incarnation, be it
//! another process or one that was given up and went on running.

use crate::queue::Picos;
use crate::random::Random;
use netmem::service::{Up, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::NodeId;

/// Silence after which a node is given up.
pub const GIVEN_UP: Picos = Picos::seconds(1);
/// Silence after which a node itself knows that it may be, a fifth sooner: its clock may be a tenth too slow, and the
/// registry's a tenth too fast.
pub const EXPIRED: Duration = Duration::from_millis(800);
/// Longest time until a node hears of a new view, in milliseconds.
const NEWS_MS_MAX: u64 = 40;

/// A process: a node, and the incarnation of its machine.
pub type Process = (NodeId, u32);

/// Something that is due.
#[derive(Clone, Debug)]
pub enum Step {
    /// A process wants to be a member.
    Join(Process),
    /// Nothing was heard of these incarnations for long, all at once.
    GiveUp(Vec<(NodeId, u64)>),
    /// A process hears who is up.
    Tell(Process, View),
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    random: Random,
    number: u64,
    members: BTreeMap<NodeId, (Process, Up)>,
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
        View::new(self.number, self.members.values().map(|(_, up)| *up).collect())
    }

    /// Does something later.
    pub fn later(&mut self, at: Picos, step: Step) {
        self.due.push((at, step));
    }

    /// A node is heard of again: its silence so far counts for nothing.
    pub fn spare(&mut self, node: NodeId) {
        for (_, step) in &mut self.due {
            if let Step::GiveUp(nodes) = step {
                nodes.retain(|(gone, _)| *gone != node);
            }
        }
    }

    /// The steps that are due, in the order of their times.
    pub fn take_due(&mut self, now: Picos) -> Vec<Step> {
        let (mut due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= now);
        self.due = later;
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, step)| step).collect()
    }

    /// A process is a member from now on, in an incarnation that is later than all there were.
    pub fn join(&mut self, now: Picos, process: Process, weight: u32) {
        let (node, incarnation) = (process.0, self.number + 1);
        let machine = u64::from(node.0).div_ceil(2); // two on each
        self.members.insert(node, (process, Up { node, incarnation, weight, machine }));
        self.announce(now);
    }

    /// The incarnation that a node is a member in; 0 of one that is none.
    pub fn incarnation(&self, node: NodeId) -> u64 {
        self.members.get(&node).map_or(0, |(_, up)| up.incarnation)
    }

    /// Whether this very process is a member.
    pub fn has(&self, process: Process) -> bool {
        self.members.get(&process.0).is_some_and(|(member, _)| *member == process)
    }

    /// The nodes that are members in just these incarnations.
    pub fn members_of(&self, incarnations: &[(NodeId, u64)]) -> Vec<NodeId> {
        let is_member = |(node, incarnation): &&(NodeId, u64)| {
            *incarnation != 0 && self.incarnation(*node) == *incarnation
        };
        incarnations.iter().filter(is_member).map(|(node, _)| *node).collect()
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
        for (process, _) in self.members.values() {
            if !self.cut_off.contains(&process.0) {
                let at = now + Picos::micros(self.random.below(NEWS_MS_MAX * 1_000));
                self.due.push((at, Step::Tell(*process, view.clone())));
            }
        }
    }
}
