//! Disks that decay in the simulated cluster: nothing is silent.

mod seeds;

use sim::command::{replay, search};
use sim::experiment::Experiment;

const DECAYING_DISKS: &str = include_str!("../../../experiments/decaying-disks.toml");
/// Seeds, each with the 40 decays of the experiment. A soak has as many as fit its time.
const SEEDS: u64 = 8;

#[test]
fn no_decay_of_what_a_cluster_stores_is_silent() {
    let (kept, usual) = ("experiments/decaying-disks.toml", Experiment::parse(DECAYING_DISKS));
    let experiment = seeds::experiment(usual.unwrap());
    if ["SIM_SECONDS", "SIM_TRACE"].iter().any(|name| seeds::setting(name).is_some()) {
        return seeds::lose_nothing(experiment, Some(kept));
    }
    let each = |seed, outcome: &_| println!("seed {seed}: {outcome}");
    let failed = search(1..=SEEDS, &experiment, each).expect("no unknown bug");
    if let Some((seed, outcome)) = failed {
        panic!("{}\nreplay: {}", outcome.violations.join("\n"), replay(seed, Some(kept)));
    }
}
