//! Cooperative caching (Dahlin and others, OSDI'94; GMS: Feeley and others, SOSP'95): what a placement policy is worth
//! to synthetic workloads of eight nodes, from a seed.
//!
//! All decisions are those of the tables of `netmem`; a fetch takes no time, and the cost of an access is left to the
//! reader of the counters.

mod cluster;

pub use cluster::{Cluster, Counters, FRAMES, NODES, Setting};
use netmem::{PageId, Policy, SpaceId};
use wire::NodeId;

/// Rounds before counting begins: two passes over the longest loop.
pub const WARM_UP_ROUNDS: u64 = 12_000;
/// Rounds that are counted, by default.
pub const ROUNDS: u64 = 12_000;
/// Rounds until a program that moves on uses other pages: two passes over its loop.
const PHASE_ROUNDS: u64 = 12_000;

/// Accesses of one busy node.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Nothing.
    Idle,
    /// Half of the accesses go through so many pages in a loop, the other half prefers the first ones.
    Mixed(u64),
    /// A loop.
    Loop(u64),
    /// As mixed, and all nodes use the same pages.
    Shared(u64),
    /// As mixed, and after a while other pages, never the old ones again.
    Moving(u64),
}

/// Accesses of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// As experiments name it.
    pub name: &'static str,
    work: fn(usize) -> Work,
}

/// All of them.
pub const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "2 busy of 8",
        work: |at| if at < 2 { Work::Mixed(3 * FRAMES) } else { Work::Idle },
    },
    Workload {
        name: "half busy",
        work: |at| if at < 4 { Work::Mixed(19 * FRAMES / 10) } else { Work::Idle },
    },
    Workload { name: "all over-committed", work: |_| Work::Mixed(2 * FRAMES) },
    Workload {
        name: "one hog",
        work: |at| match at {
            0 => Work::Mixed(3 * FRAMES),
            1..7 => Work::Loop(19 * FRAMES / 20),
            _ => Work::Idle,
        },
    },
    Workload { name: "read-shared", work: |_| Work::Shared(6 * FRAMES) },
    Workload {
        name: "2 move on",
        work: |at| if at < 2 { Work::Moving(3 * FRAMES) } else { Work::Idle },
    },
];

/// The policies as experiments name them.
pub const POLICIES: [(&str, Option<Policy>); 5] = [
    ("none", None),
    ("random", Some(Policy::Random)),
    ("N-chance", Some(Policy::NChance)),
    ("GMS", Some(Policy::Gms)),
    ("best of two", Some(Policy::BestOfTwo)),
];

/// An index below `pages`, the lower the likelier: the third power of an even random number.
fn skewed(draw: u64, pages: u64) -> u64 {
    let u = u128::from(draw >> 32);
    ((u * u >> 32) * u * u128::from(pages) >> 64) as u64
}

impl Workload {
    /// The workload of this name.
    pub fn named(name: &str) -> Option<Workload> {
        WORKLOADS.into_iter().find(|workload| workload.name == name)
    }

    /// The page that a node uses in a round, and whether others use it too. `draw` is a random number.
    pub fn page(
        &self,
        at: usize,
        round: u64,
        draw: impl FnOnce() -> u64,
    ) -> Option<(PageId, bool)> {
        let work = (self.work)(at);
        let (pages, loops) = match work {
            Work::Idle => return None,
            Work::Mixed(pages) | Work::Shared(pages) | Work::Moving(pages) => {
                (pages, round.is_multiple_of(2))
            }
            Work::Loop(pages) => (pages, true),
        };
        let steps = if matches!(work, Work::Loop(_)) { round } else { round / 2 };
        // nodes that share pages are at different places of the loop
        let index = match loops {
            true => (steps + at as u64 * pages / NODES as u64) % pages,
            false => skewed(draw(), pages),
        };
        let shared = matches!(work, Work::Shared(_));
        let phase = if matches!(work, Work::Moving(_)) { round / PHASE_ROUNDS } else { 0 };
        let owner = NodeId(at as u16 + 1);
        let space = if shared { SpaceId::shared(1) } else { SpaceId::private(owner, phase) };
        Some((PageId { space, index }, shared))
    }

    /// One access of every busy node.
    pub fn round(&self, cluster: &mut Cluster, round: u64) {
        for at in 0..NODES {
            if let Some((page, shared)) = self.page(at, round, || cluster.draw()) {
                cluster.access(at, page, shared);
            }
        }
    }

    /// Counts the accesses and pages of each node after the warm-up.
    pub fn run(&self, setting: Setting, seed: u64, rounds: u64) -> [Counters; NODES] {
        let mut cluster = Cluster::new(setting, seed);
        for round in 0..WARM_UP_ROUNDS + rounds {
            if round == WARM_UP_ROUNDS {
                cluster.check();
                cluster.restart_counters();
            }
            self.round(&mut cluster, round);
            cluster.next_round();
        }
        cluster.check();
        std::array::from_fn(|at| cluster.counters(at))
    }
}

impl Work {
    /// How often in a round a node uses each of its pages, the most used first.
    fn frequencies(self) -> Vec<f64> {
        let skewed = |pages: u64| {
            let part = move |page: u64| (page as f64 / pages as f64).cbrt();
            (0..pages).map(move |page| 0.5 / pages as f64 + 0.5 * (part(page + 1) - part(page)))
        };
        match self {
            Work::Idle => Vec::new(),
            Work::Loop(pages) => vec![1.0 / pages as f64; pages as usize],
            Work::Mixed(pages) | Work::Shared(pages) | Work::Moving(pages) => {
                skewed(pages).collect()
            }
        }
    }
}

impl Workload {
    /// The mean time of an access where every page stays at the best place for it, for ever: each node's most used ones
    /// in its own memory, then all nodes' most used ones in what is left, and the rest on disk. `None` of pages that
    /// several nodes use, and of those that change.
    pub fn best_fixed(&self, times: [f64; 3]) -> Option<f64> {
        let works: Vec<Work> = (0..NODES).map(|at| (self.work)(at)).collect();
        if works.iter().any(|work| matches!(work, Work::Shared(_) | Work::Moving(_))) {
            return None;
        }
        let (mut own, mut others, mut left) = (0.0, Vec::new(), 0);
        for frequencies in works.iter().map(|work| work.frequencies()) {
            let fits = frequencies.len().min(FRAMES as usize);
            own += frequencies[..fits].iter().sum::<f64>();
            others.extend_from_slice(&frequencies[fits..]);
            left += FRAMES as usize - fits;
        }
        others.sort_unstable_by(|one, other| other.total_cmp(one));
        let fits = others.len().min(left);
        let [near, far] = [&others[..fits], &others[fits..]].map(|part| part.iter().sum::<f64>());
        Some((own * times[0] + near * times[1] + far * times[2]) / (own + near + far))
    }
}

/// Those of all nodes together.
pub fn sum(counters: &[Counters]) -> Counters {
    let mut all = Counters::default();
    counters.iter().for_each(|counters| all += *counters);
    all
}
