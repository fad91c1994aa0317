//! What `trapeze sim [EXPERIMENT.toml] --seed N --trace F --minutes M` does, without files and clocks: the caller reads
//! the experiment, takes the trace's lines, and says when the time is over.

use crate::cluster::roles;
use crate::experiment::Experiment;
use crate::run::{Outcome, run};
use crate::trace::Trace;
use node::bugs::Bug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The bits of the bugs that the experiment names. An error names the first that there is not.
pub fn bugs(experiment: &Experiment) -> Result<u64, String> {
    experiment.bugs.iter().try_fold(0, |bits, name| match Bug::parse(name) {
        Some(bug) => Ok(bits | bug.bit()),
        None => Err(format!("no planted bug is called {name}; there are {:?}", Bug::ALL)),
    })
}

/// Runs the cluster once from this seed. A panic of any node is a violation; what it says is on standard error.
pub fn simulate(seed: u64, experiment: &Experiment, trace: Trace) -> Result<Outcome, String> {
    let roles = roles(experiment, bugs(experiment)?);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, experiment, &roles, trace)));
    Ok(outcome.unwrap_or_else(|_| Outcome {
        violations: vec!["a node panicked".into()],
        ..Outcome::default()
    }))
}

/// The command that runs this seed again with a trace. `file` is the experiment's, if it is not the default.
pub fn replay(seed: u64, file: Option<&str>) -> String {
    let file = file.map(|file| format!("{file} ")).unwrap_or_default();
    format!("trapeze sim {file}--seed {seed} --trace trace.txt")
}

/// Runs one seed after the other and tells `each` of every outcome. The first seed that fails ends it and is returned.
pub fn search(
    seeds: impl Iterator<Item = u64>,
    experiment: &Experiment,
    mut each: impl FnMut(u64, &Outcome),
) -> Result<Option<(u64, Outcome)>, String> {
    for seed in seeds {
        let outcome = simulate(seed, experiment, Trace::default())?;
        each(seed, &outcome);
        if !outcome.violations.is_empty() {
            return Ok(Some((seed, outcome)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bug_is_named() {
        let named = |name: &str| Experiment { bugs: vec![name.into()], ..Experiment::default() };
        assert_eq!(bugs(&named("SkippedFsync")), Ok(1));
        assert!(bugs(&named("Nonsense")).unwrap_err().contains("Nonsense"));
    }

    #[test]
    fn a_replay_is_a_command() {
        assert_eq!(replay(7, None), "trapeze sim --seed 7 --trace trace.txt");
        assert_eq!(replay(7, Some("a.toml")), "trapeze sim a.toml --seed 7 --trace trace.txt");
    }
}
