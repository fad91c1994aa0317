//! Memory pressure: nodes lend less for a while, down to a frame in sixteen.

use super::shared::Shared;
use crate::queue::Picos;
use crate::random::Random;
use crate::trouble::strikes;
use crate::world::World;
use std::rc::Rc;
use wire::NodeId;

/// Longest time that a node is short of memory.
const SHORT_MS_MAX: u64 = 8_000;
/// A share is so many sixteenths of the node's memory.
const SIXTEENTHS: u64 = 16;

/// The source of it. Its randomness is its own: other faults strike as they do without it.
pub struct Pressure {
    shared: Rc<Shared>,
    per_minute: u32,
    random: Random,
    /// When each node has its memory again.
    short: Vec<(Picos, NodeId)>,
}

impl Pressure {
    /// For a cluster that begins.
    pub fn new(shared: &Rc<Shared>, per_minute: u32) -> Pressure {
        let random = Random::new(shared.seed, "pressure");
        Pressure { shared: shared.clone(), per_minute, random, short: Vec::new() }
    }

    /// May have a node lend less; who was short for long enough lends all of it again.
    pub fn strike(&mut self, world: &mut World) {
        let now = world.now();
        self.ease(world, |until| until <= now);
        if !strikes(&mut self.random, self.per_minute) {
            return;
        }
        let nodes = world.nodes().into_iter();
        let nodes: Vec<NodeId> = nodes.filter(|node| self.shared.is_member(*node)).collect();
        let node = *self.random.pick(&nodes);
        let sixteenths = self.random.within(1, SIXTEENTHS - 1);
        self.short.push((now + Picos::millis(self.random.within(1, SHORT_MS_MAX)), node));
        self.set_share(world, node, sixteenths);
    }

    /// All lend what they can.
    pub fn end(&mut self, world: &mut World) {
        self.per_minute = 0;
        self.ease(world, |_| true);
    }

    fn ease(&mut self, world: &mut World, is_over: impl Fn(Picos) -> bool) {
        let over: Vec<(Picos, NodeId)> =
            self.short.extract_if(.., |(until, _)| is_over(*until)).collect();
        over.into_iter().for_each(|(_, node)| self.set_share(world, node, SIXTEENTHS));
    }

    /// A node in another incarnation than when it was short has all of its memory.
    fn set_share(&self, world: &mut World, node: NodeId, sixteenths: u64) {
        let Some(service) = self.shared.services.borrow().get(&node).cloned() else { return };
        let bytes = service.config().bytes as u64 * sixteenths / SIXTEENTHS;
        service.set_share(bytes as usize);
        let now = world.now();
        let line = format_args!("lends {sixteenths} sixteenths");
        world.trace_mut().line(now, node, "world", line);
        world.wake(node);
    }
}
