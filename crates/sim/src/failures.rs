//! Failures of one machine at a time: the next one comes when every group of disks is whole again.
//!
//! With copies nothing may be noticed of an I/O server's failure but a pause, nor of the loss of all that it has: empty
//! disks take the places of its own. So the workload is told of the failures of managers only.

use crate::copies::CopyCheck;
use crate::faults::{Nodes, Rule};
use crate::nodes::Members;
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::storage::Crash;
use crate::trouble::strikes;
use crate::world::World;
use wire::NodeId;

/// Longest time that a machine is down, is paused or cut off.
const SPAN_MS_MAX: u64 = 8_000;
/// A machine with empty disks fails once more within this time of its start; half of them.
const AGAIN_MS_MAX: u64 = 2_000;
/// A replica that has started anew is found to lack something within this time.
const NOTICED: Picos = Picos::seconds(5);
/// Groups are whole again within this time, at the latest.
const HEALED: Picos = Picos::seconds(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Failing {
        node: NodeId,
        until: Picos,
    },
    /// It starts with empty disks, and fails again.
    Beginning {
        node: NodeId,
        until: Picos,
    },
    Healing {
        since: Picos,
    },
}

/// What is to be done to a manager, whose failure is everybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfManager {
    pub node: NodeId,
    pub crash: Crash,
    pub span: Picos,
}

/// The source of failures.
#[derive(Debug)]
pub(crate) struct Failures {
    per_minute: u32,
    random: Random,
    servers: Vec<NodeId>,
    managers: Vec<NodeId>,
    check: CopyCheck,
    state: State,
}

impl Failures {
    pub fn new(seed: u64, per_minute: u32, members: &Members, check: CopyCheck) -> Failures {
        let random = Random::new(seed, "failures");
        let (servers, managers) = (members.servers.clone(), members.managers());
        Failures { per_minute, random, servers, managers, check, state: State::Idle }
    }

    /// A tick: ends what is over, and may begin something. A manager's failure is the caller's to make.
    pub fn tick(&mut self, world: &mut World) -> Result<Option<OfManager>, String> {
        let now = world.now();
        match self.state {
            State::Idle if !self.check.is_whole() => {}
            State::Idle if strikes(&mut self.random, self.per_minute) => {
                return Ok(self.fail(world));
            }
            State::Idle => {}
            State::Failing { node, until } if until <= now => self.end_failure(world, node),
            State::Beginning { node, until } if until <= now => {
                world.crash(node, Crash::Kill);
                self.state = State::Failing { node, until: now + self.span() };
            }
            State::Failing { .. } | State::Beginning { .. } => {}
            State::Healing { since } if now < since + NOTICED => {}
            State::Healing { .. } if self.check.is_whole() => self.rest(world),
            State::Healing { since } if since + HEALED < now => {
                self.state = State::Idle;
                return Err(format!("{now} not whole again: {:?}", self.check.lacking()));
            }
            State::Healing { .. } => {}
        }
        Ok(None)
    }

    fn span(&mut self) -> Picos {
        Picos::millis(self.random.within(1, SPAN_MS_MAX))
    }

    /// The machine starts, if it is down.
    fn end_failure(&mut self, world: &mut World, node: NodeId) {
        let now = world.now();
        self.state = State::Healing { since: now };
        if world.is_up(node) || !self.servers.contains(&node) {
            return;
        }
        world.start(node);
        let is_replaced = world.machine(node).replacing != 0;
        if is_replaced && self.random.chance(MILLION / 2) {
            let until = now + Picos::millis(self.random.within(1, AGAIN_MS_MAX));
            self.state = State::Beginning { node, until };
        }
    }

    /// All is whole: the manager knows the disks.
    fn rest(&mut self, world: &mut World) {
        self.state = State::Idle;
        self.servers.iter().for_each(|node| world.machine_mut(*node).replacing = 0);
    }

    fn replace(&mut self, world: &mut World, node: NodeId) {
        world.crash(node, Crash::Power);
        world.machine_mut(node).replace_disks();
        let now = world.now();
        world.trace_mut().line(now, node, "world", format_args!("has empty disks"));
    }

    fn fail(&mut self, world: &mut World) -> Option<OfManager> {
        let span = self.span();
        let node = *self.random.pick(&self.servers);
        let until = world.now() + span;
        self.state = State::Failing { node, until };
        match self.random.below(9) {
            0 | 1 => world.crash(node, Crash::Kill),
            2 => world.crash(node, Crash::Power),
            3 => world.pause(node, span),
            4 => self.cut_off(world, node, until),
            7 | 8 => self.replace(world, node),
            _ if self.random.chance(MILLION / 2) => self.cut_off(world, node, until),
            _ => {
                let node = *self.random.pick(&self.managers);
                let crash =
                    if self.random.chance(MILLION / 2) { Crash::Kill } else { Crash::Power };
                self.state = State::Failing { node, until };
                return Some(OfManager { node, crash, span });
            }
        }
        None
    }

    /// Nothing comes to it, or from it, or neither; from some of the others, or all.
    fn cut_off(&mut self, world: &mut World, node: NodeId, until: Picos) {
        let now = world.now();
        let all = self.random.chance(MILLION / 2);
        let others = world.nodes().into_iter().filter(|other| *other != node);
        let others = others.filter(|_| all || self.random.chance(MILLION / 2)).collect();
        let (one, others) = (Nodes::These(vec![node]), Nodes::These(others));
        let ways = self.random.below(3);
        let text = format_args!("is cut off, {ways}: {others:?}");
        world.trace_mut().line(now, node, "world", text);
        let rules = world.network_mut().rules_mut();
        if ways != 0 {
            rules.push(Rule::silence(one.clone(), others.clone(), now, until));
        }
        if ways != 1 {
            rules.push(Rule::silence(others, one, now, until));
        }
    }

    /// No more of them; what is down starts.
    pub fn end(&mut self, world: &mut World) {
        self.per_minute = 0;
        for node in self.servers.clone() {
            if !world.is_up(node) {
                world.start(node);
            }
        }
    }
}
