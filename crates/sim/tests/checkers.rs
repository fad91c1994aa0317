//! The checkers find nothing wrong with a file system that is right, and every flaw of one that is not.

use crate::common::{Flaw, roles};
use sim::experiment::{Experiment, Faults};
use sim::run::{Outcome, run};
use sim::trace::Trace;

fn experiment(faults: Faults, seconds: u64) -> Experiment {
    Experiment { seconds, faults, ..Experiment::default() }
}

fn outcome(seed: u64, flaw: Flaw, faults: Faults) -> Outcome {
    run(seed, &experiment(faults, 8), &roles(flaw), Trace::default())
}

#[test]
fn a_right_file_system_passes_with_and_without_trouble() {
    for faults in [Faults::NONE, Faults::default()] {
        for seed in 0..2 {
            let outcome = outcome(seed, Flaw::None, faults);
            println!("seed {seed}: {outcome}");
            assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
            assert!(outcome.succeeded > 1_000, "work was done");
        }
    }
}

#[test]
fn every_flaw_is_found() {
    use Flaw::*;
    let flaws = [
        LostWrite,
        WrongPlace,
        OldSize,
        LostUnlink,
        ShortListing,
        Hang,
        Error,
        StaleTail,
        NoExtension,
        HalfRename,
        LostZeros,
        WrongHole,
    ];
    for flaw in flaws {
        let found =
            (0..3).map(|seed| outcome(seed, flaw, Faults::NONE)).find(|o| !o.violations.is_empty());
        let found = found.unwrap_or_else(|| panic!("{flaw:?} is not found"));
        println!("{flaw:?}: {} after {} operations", found.violations[0], found.succeeded);
    }
}

#[test]
fn a_seed_is_a_run() {
    let outcome = |seed| outcome(seed, Flaw::None, Faults::default());
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3).fingerprint, outcome(4).fingerprint);
}
