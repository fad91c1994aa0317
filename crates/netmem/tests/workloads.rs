//! What the policies are worth: mean access times of synthetic workloads, from seeds, with stated costs. The table is
//! printed (`cargo test -p netmem --test workloads -- --nocapture`); only its shape is asserted.

mod cluster;

use cluster::{Cluster, Counters, FRAMES, NODES, Setting};
use netmem::{Hints, PageId, Policy, Run, SpaceId, Trend};
use rig::Counting;
use wire::NodeId;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP_ROUNDS: u64 = 6_000;
const ROUNDS: u64 = 6_000;
const SEED: u64 = 20_261_122;

/// What one busy node does.
#[derive(Clone, Copy, Debug)]
enum Work {
    Idle,
    /// Half of the accesses go through so many pages in a loop, the other half prefers the first ones.
    Mixed(u64),
    /// A loop.
    Loop(u64),
    /// As mixed, and all nodes use the same pages.
    Shared(u64),
}

struct Workload {
    name: &'static str,
    work: fn(usize) -> Work,
}

const WORKLOADS: [Workload; 5] = [
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
        name: "a hog, six loops, one idle",
        work: |at| match at {
            0 => Work::Mixed(3 * FRAMES),
            1..7 => Work::Loop(19 * FRAMES / 20),
            _ => Work::Idle,
        },
    },
    Workload { name: "read-shared", work: |_| Work::Shared(6 * FRAMES) },
];

const POLICIES: [(&str, Option<Policy>); 5] = [
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

fn access(cluster: &mut Cluster, at: usize, round: u64, work: Work) {
    let (pages, loops) = match work {
        Work::Idle => return,
        Work::Mixed(pages) | Work::Shared(pages) => (pages, round.is_multiple_of(2)),
        Work::Loop(pages) => (pages, true),
    };
    let steps = if matches!(work, Work::Loop(_)) { round } else { round / 2 };
    // nodes that share pages are at different places of the loop
    let index = match loops {
        true => (steps + at as u64 * pages / NODES as u64) % pages,
        false => skewed(cluster.draw(), pages),
    };
    let shared = matches!(work, Work::Shared(_));
    let owner = NodeId(at as u16 + 1);
    let space = if shared { SpaceId::shared(1) } else { SpaceId::private(owner, 1) };
    cluster.access(at, PageId { space, index }, shared);
}

/// What happens after the warm-up.
fn run(workload: &Workload, setting: Setting, seed: u64) -> Counters {
    let mut cluster = Cluster::new(setting, seed);
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        if round == WARM_UP_ROUNDS {
            cluster.check();
            cluster.counters = Counters::default();
        }
        (0..NODES).for_each(|at| access(&mut cluster, at, round, (workload.work)(at)));
        cluster.next_round();
    }
    cluster.check();
    cluster.counters
}

fn row(workload: &Workload, counts_uses: bool) -> Vec<Counters> {
    let settings = POLICIES.iter().map(|(_, policy)| Setting { policy: *policy, counts_uses });
    settings.map(|setting| run(workload, setting, SEED)).collect()
}

fn show(workload: &Workload, counts_uses: bool, row: &[Counters]) {
    let means = row.iter().map(|counters| format!("{:.1}", counters.mean_us()));
    let uses = if counts_uses { "counted" } else { "not counted" };
    println!("| {} | {uses} | {} |", workload.name, means.collect::<Vec<_>>().join(" | "));
}

/// Mean access times of a workload by policy, none first, after they were printed.
fn means(name: &str, counts_uses: bool) -> Vec<(Counters, f64)> {
    let workload = WORKLOADS.iter().find(|workload| workload.name == name).unwrap();
    let row = row(workload, counts_uses);
    show(workload, counts_uses, &row);
    row.into_iter().map(|counters| (counters, counters.mean_us())).collect()
}

/// Every policy takes at most `most` of the time without network memory, with and without counted uses.
fn check_gain(name: &str, most: f64) {
    for counts_uses in [false, true] {
        let row = means(name, counts_uses);
        for ((_, mean), (policy, _)) in row.iter().zip(POLICIES).skip(1) {
            let part = mean / row[0].1;
            assert!(part <= most, "{name}, {policy}: {part:.2} of the time without network memory");
        }
    }
}

#[test]
fn two_busy_nodes_have_the_memory_of_eight() {
    check_gain("2 busy of 8", 0.5);
}

#[test]
fn busy_nodes_have_the_memory_of_idle_ones() {
    check_gain("half busy", 0.5);
}

#[test]
fn a_hog_has_what_others_do_not_need() {
    check_gain("a hog, six loops, one idle", 0.85);
}

#[test]
fn readers_of_the_same_pages_share_their_memory() {
    check_gain("read-shared", 0.5);
}

/// Where there is no idle memory, ages say so: pages stay where they are, and nobody is slower for it.
#[test]
fn where_all_are_over_committed_there_is_no_harm() {
    for counts_uses in [false, true] {
        let row = means("all over-committed", counts_uses);
        for ((counters, mean), (policy, _)) in row.iter().zip(POLICIES).skip(3) {
            assert!(mean / row[0].1 <= 1.05, "{policy}: {mean:.1}");
            assert!(counters.sent * 10 <= counters.evicted, "{policy}: {counters:?}");
        }
    }
}

/// Weights and ages are good enough that few pages are refused.
#[test]
fn few_pages_are_refused_where_memory_is_idle() {
    for policy in [Policy::Gms, Policy::BestOfTwo] {
        let setting = Setting { policy: Some(policy), counts_uses: true };
        let counters = run(&WORKLOADS[0], setting, SEED);
        assert!(counters.refused * 5 < counters.sent, "{policy:?}: {counters:?}");
    }
}

#[test]
fn a_run_is_its_seed() {
    let setting = Setting { policy: Some(Policy::BestOfTwo), counts_uses: true };
    let run = |seed| run(&WORKLOADS[1], setting, seed);
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// All tables take their memory at the start; only a new epoch, once a second, has a list of its own.
#[test]
fn pages_come_and_go_without_an_allocation() {
    let setting = Setting { policy: Some(Policy::BestOfTwo), counts_uses: true };
    let mut cluster = Cluster::new(setting, SEED);
    let mut allocations = 0;
    for round in 0..ROUNDS {
        let before = Counting::in_thread();
        (0..NODES).for_each(|at| access(&mut cluster, at, round, (WORKLOADS[0].work)(at)));
        allocations += Counting::in_thread() - before;
        cluster.next_round();
    }
    assert!(cluster.counters.sent > 1_000, "{:?}", cluster.counters);
    assert_eq!(allocations, 0);
}

#[test]
fn prefetching_takes_no_allocation() {
    let (mut trend, mut hints) = (Trend::default(), Hints::default());
    let page = |index| PageId { space: SpaceId(1), index };
    let before = Counting::in_thread();
    let mut prefetched = 0;
    for index in 0..10_000 {
        prefetched += trend.handle_fault(index).map_or(0, |prefetch| prefetch.pages);
        hints.push(Run { first: page(index * 2), pages: 2 }).unwrap();
        assert!(
            hints.poll_near(4).is_some() && hints.poll_far(4).is_none_or(|(_, ahead)| ahead < 4)
        );
        assert!(hints.handle_use(page(index * 2 + 1)));
    }
    assert!(prefetched > 10_000);
    assert_eq!(Counting::in_thread() - before, 0);
}
