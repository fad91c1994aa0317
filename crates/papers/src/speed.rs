//! Work that `trapeze bench simulator` times. There is no clock here: the caller has one.

use crate::builtin::{CATALOGUE, EXAMPLES};
use crate::models::cluster;
use crate::{Experiment, Fault};
use nic::{Config, Policy};
use sim::hardware::catalogue;
use sim::hardware::fetching::Plan;
use sim::hardware::measure::Station;
use sim::queue::{Picos, Queue};
use sim::random::Random;

/// The hold model (Jones 1986): pop an event, push one, so that always as many are pending.
#[derive(Debug)]
pub struct Hold {
    queue: Queue<u32>,
    random: Random,
}

/// Events are up to this much later than the one that made them.
const SPAN: u64 = 1_000_000;

impl Hold {
    /// A queue with so many events pending.
    pub fn new(pending: u32) -> Hold {
        let mut queue = Queue::with_capacity(pending as usize + 1);
        let mut random = Random::new(1, "hold");
        (0..pending).for_each(|n| queue.push(Picos(random.below(SPAN)), 0, n));
        Hold { queue, random }
    }

    /// So many events; the time of the last.
    pub fn turn(&mut self, events: u64) -> Picos {
        for _ in 0..events {
            let (now, what) = self.queue.pop().expect("always as many are pending");
            self.queue.push(Picos(now.0 + self.random.below(SPAN)), 0, what);
        }
        self.queue.now()
    }
}

/// Eight hosts of the forwarding paper on one crossbar, each of which fetches 8 KiB 3,000 times a second.
///
/// The error is that a preset is not there.
pub fn adapters(fetches: u64) -> Result<Plan, String> {
    const PAGE: usize = 8_192;
    let nic = Config { policy: Policy::adaptive(512), ..Config::new(PAGE) };
    let (machine, board) = (catalogue::machine("piii733")?, catalogue::board("lanai7")?);
    let station = Station::contention(machine, board, catalogue::firmware("mcp-forward")?, nic);
    let (link, between) = (catalogue::link("myrinet")?, Picos::micros(333));
    Ok(Plan {
        station,
        link,
        nodes: 8,
        bytes: PAGE,
        between,
        fetches: fetches.div_ceil(8),
        seed: 1,
    })
}

/// The cluster of `experiments/cluster-1000.toml`.
pub fn cluster() -> Result<Plan, Fault> {
    let found = EXAMPLES.iter().find(|(name, _)| *name == "cluster-1000");
    let (name, source) = found.expect("an example that is built in");
    let experiment = Experiment::parse(name, *source, CATALOGUE)?;
    Ok(cluster::plan(&experiment.points()[0], &experiment.constants))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_events_stay_pending() {
        let mut hold = Hold::new(1_000);
        let first = hold.turn(10_000);
        assert!(hold.turn(10_000) > first);
        assert_eq!((hold.queue.len(), hold.queue.pushed()), (1_000, 21_000));
    }

    #[test]
    fn the_large_cluster_is_what_its_file_says() {
        let plan = cluster().unwrap();
        assert_eq!((plan.nodes, plan.fetches, plan.bytes), (1_000, 2_000, 8_192));
        assert_eq!(plan.between, Picos::micros(50));
        let few = Plan { nodes: 20, fetches: 5, ..plan }.run();
        assert_eq!(few.times.len(), 100);
    }
}
