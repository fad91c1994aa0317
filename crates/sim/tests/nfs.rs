//! Clients of NFS in a simulated cluster.

use crate::seeds::lose_nothing;
use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

const NFS_CLIENTS: &str = include_str!("../../../experiments/nfs-clients.toml");

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 20;
/// Bugs that they notice.
const FOUND: [Bug; 1] = [Bug::SourceNameKept];

fn experiment() -> Experiment {
    Experiment { seconds: 40, ..Experiment::parse(NFS_CLIENTS).expect("a good experiment") }
}

#[test]
fn clients_of_nfs_have_what_they_were_promised() {
    lose_nothing(experiment(), Some("experiments/nfs-clients.toml"), 3);
}

#[test]
fn clients_of_nfs_notice_planted_bugs() {
    for bug in FOUND {
        let with_bug = Experiment { bugs: vec![format!("{bug:?}")], ..experiment() };
        let found = search(1..=SEEDS_MAX, &with_bug, |_, _| ()).expect("a known bug");
        let (seed, outcome) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: seed {seed}, {}", outcome.violations[0]);
    }
}
