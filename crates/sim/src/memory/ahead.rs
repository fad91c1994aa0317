//! Worth of hints and trends: one program with pages on stable storage, one idle node, and the services as they are,
//! over modelled links and a modelled disk.

use super::scene::{Actor, Scene};
use super::spaces::private;
use crate::experiment::MemoryShape;
use crate::random::Random;
use endpoint::limits::PAGE_BYTES;
use netmem::service::Counters;
use netmem::{EpochConfig, PageId, Run, Version};
use std::time::Duration;
use wire::NodeId;

/// Frames of each of the two nodes.
pub const FRAMES: u32 = 256;
/// Pages of the program: four times what the memories of both nodes have.
pub const PAGES: u64 = 2048;
const BUSY: NodeId = NodeId(1);
/// Pages from one of a strided program to its next, in as many passes.
const STRIDE: u64 = 5;

/// In which order the program uses its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Sequential,
    /// Every fifth.
    Strided,
    /// Any.
    Random,
}

/// Prior knowledge of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing, and no trend is looked for.
    Nothing,
    /// The trend of the faults.
    Trend,
    /// The program says it.
    Hints,
    /// The program says something else.
    WrongHints,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Mean time that an access waits for its page.
    pub access: Duration,
    /// Accesses.
    pub accesses: u64,
    /// Counters of the service of the program's node.
    pub counters: Counters,
}

fn pages(order: Order, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed, "order");
    let strided = (0..STRIDE).flat_map(|first| (first..PAGES).step_by(STRIDE as usize));
    match order {
        Order::Sequential => (0..PAGES).collect(),
        Order::Strided => strided.collect(),
        Order::Random => (0..PAGES).map(|_| random.below(PAGES)).collect(),
    }
}

fn page(index: u64) -> PageId {
    // of a space on stable storage
    PageId { space: private(BUSY, 5), index }
}

/// The program: it goes on computing for `compute` after each page.
async fn program(actor: Actor, order: Vec<u64>, said: Vec<u64>, compute: Duration) -> Duration {
    let plan = actor.service.plan_use(Version(1), PAGE_BYTES as u32).expect("the first plan");
    let mut said = said.into_iter().peekable();
    let mut waited = Duration::ZERO;
    for index in order {
        while said.peek().is_some_and(|next| plan.add(Run::one(page(*next))).is_ok()) {
            said.next();
        }
        let start = actor.cx.now();
        actor.get(page(index), 1).await.expect("a page on stable storage");
        waited += actor.cx.now().since(start);
        actor.cx.sleep(compute).await;
    }
    waited
}

/// One run from a seed.
pub fn measure(order: Order, known: Known, compute: Duration, seed: u64) -> Measured {
    let trends = known == Known::Trend;
    let shape = MemoryShape { nodes: 2, frames: FRAMES, trends, ..MemoryShape::default() };
    let mut scene = Scene::of(seed, shape, EpochConfig::default());
    (0..PAGES).for_each(|index| scene.store(page(index)));
    let used = pages(order, seed);
    let said = match known {
        Known::Nothing | Known::Trend => Vec::new(),
        Known::Hints => used.clone(),
        Known::WrongHints => pages(Order::Random, seed + 1),
    };
    let accesses = used.len() as u64;
    let waited = scene.run(BUSY, async move |actor| program(actor, used, said, compute).await);
    scene.check();
    let counters = scene.actor(BUSY).service.counters();
    Measured { access: waited / accesses as u32, accesses, counters }
}
