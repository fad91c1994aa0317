//! Clusters that fetch from each other: a run is its seed, and an added node changes no other's luck.

use papers::speed;
use sim::hardware::fetching::{Fetching, Plan};
use sim::hardware::world::World;
use sim::queue::Picos;

fn plan(nodes: usize) -> Plan {
    Plan { nodes, fetches: 200, ..speed::cluster().unwrap() }
}

#[test]
fn a_run_is_the_same_on_one_thread_and_on_two() {
    let here = plan(12).run();
    let runs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| plan(12).run())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(runs.iter().all(|run| *run == here));
    let other = Plan { seed: 2, ..plan(12) }.run();
    assert_ne!(other.fingerprint, here.fingerprint);
}

/// Six hosts of which the first four fetch from each other; the last two, if they do anything, from each other too.
fn six(last_fetches: u64) -> (u64, Vec<Vec<Picos>>) {
    let (all, last) = (plan(4), Plan { fetches: last_fetches, ..plan(6) });
    let first = (0..4).map(|host| Fetching::new(&all, host));
    let others = (4..6).map(|host| Fetching::new(&last, host).among(4..6));
    run(&all, first.chain(others).collect())
}

fn run(plan: &Plan, programs: Vec<Fetching>) -> (u64, Vec<Vec<Picos>>) {
    let hosts = vec![plan.station.host(); programs.len()];
    let mut world = World::new(plan.seed, plan.link, &hosts, programs).unwrap();
    assert!(!world.run(Picos::seconds(1)), "all is fetched in a second");
    (world.fingerprint(), (0..4).map(|host| world.program(host).times().to_vec()).collect())
}

#[test]
fn hosts_that_are_added_change_nobody_elses_luck() {
    let four = plan(4);
    let alone = run(&four, (0..4).map(|host| Fetching::new(&four, host)).collect());
    assert!(alone.1.iter().all(|times| times.len() == 200));
    assert_eq!(six(0), alone, "two that do nothing");
    let busy = six(300);
    assert_ne!(busy.0, alone.0, "more happens");
    assert_eq!(busy.1, alone.1, "and the first four see nothing of it");
}

/// More is asked for than links carry: everything waits and ends, nothing stands still.
#[test]
fn an_overloaded_cluster_goes_on() {
    let calm = plan(8).run();
    let busy = Plan { between: Picos::nanos(100), ..plan(8) }.run();
    assert_eq!(busy.times.len(), 8 * 200);
    assert!(busy.percentile_us(50) > calm.percentile_us(99) * 2.0);
}
