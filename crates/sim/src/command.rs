//! `trapeze sim [EXPERIMENT.toml] --seed N --trace F --minutes M`, without files and clocks: the caller reads the
//! experiment, takes the trace's lines, and says when the time is over.

use crate::cluster::roles;
use crate::experiment::Experiment;
use crate::run::{Outcome, run};
use crate::source::{Fault, Source};
use crate::trace::Trace;
use node::bugs::Bug;

use std::panic::{AssertUnwindSafe, catch_unwind};
use toml::de::DeTable;

/// Kinds of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cluster under faults ([`crate::experiment`]).
    Faults,
    /// A model and what is expected of it (`papers::experiment`).
    Model,
}

/// The keys that a file may have outside its tables.
const KEYS: [(Kind, &[&str]); 2] = [
    (
        Kind::Faults,
        &["seconds", "shape", "faults", "memory", "nfs", "imports", "bugs", "decays_of"],
    ),
    (
        Kind::Model,
        &[
            "title", "model", "preset", "axis", "simulate", "seeds", "expect", "figure",
            "sentence", "paper", "what", "fitted",
        ],
    ),
];

/// The kind of an experiment, by the first of its keys that only one kind has. A file without keys is the usual
/// cluster.
pub fn kind(source: Source<'_>) -> Result<Kind, Fault> {
    let table = DeTable::parse(source.text).map_err(|error| source.of_toml(&error))?;
    let mut keys: Vec<_> = table.get_ref().keys().map(|key| (key.span(), key.get_ref())).collect();
    keys.sort_by_key(|(span, _)| span.start);
    let of = |key: &str| KEYS.iter().find(|(_, keys)| keys.contains(&key)).map(|(kind, _)| *kind);
    let Some((at, first)) = keys.first() else { return Ok(Kind::Faults) };
    if *first == "kind" {
        let what = "a preset and no experiment: name it on an axis of one";
        return Err(source.fault(at.clone(), what));
    }
    keys.iter().find_map(|(_, key)| of(key)).ok_or_else(|| {
        let [faults, model] = KEYS.map(|(_, keys)| keys.join(", "));
        let allowed = format!("with faults: {faults}; with a model: {model}");
        source.fault(at.clone(), format!("unknown key `{first}`; an experiment has, {allowed}"))
    })
}

/// The bits of the bugs that the experiment names. An error names the first that there is not.
pub fn bugs(experiment: &Experiment) -> Result<u128, String> {
    experiment.bugs.iter().try_fold(0, |bits, name| match Bug::parse(name) {
        Some(bug) => Ok(bits | bug.bit()),
        None => Err(format!("no planted bug is called {name}; there are {:?}", Bug::ALL)),
    })
}

/// Runs the cluster once from this seed. A panic of any node is a violation; what it says is on standard error.
pub fn simulate(seed: u64, experiment: &Experiment, trace: Trace) -> Result<Outcome, String> {
    let bugs = bugs(experiment)?;
    let outcome = catch_unwind(AssertUnwindSafe(|| match experiment.memory {
        Some(shape) => crate::memory::run(seed, experiment, shape, bugs, trace),
        None => run(seed, experiment, &roles(experiment, bugs), trace),
    }));
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
    fn a_file_is_told_by_its_keys() {
        let kind = |text: &'static str| kind(text.into()).map_err(|fault| fault.to_string());
        assert_eq!(kind(""), Ok(Kind::Faults));
        assert_eq!(kind("# nothing\n[shape]\nmounts = 1\n"), Ok(Kind::Faults));
        assert_eq!(kind("nonsense = 1\nmodel = \"cluster\"\n[[axis]]\n"), Ok(Kind::Model));
        let preset = "text:1: a preset and no experiment: name it on an axis of one";
        assert_eq!(kind("kind = \"machine\"\n"), Err(preset.to_string()));
        let told = kind("\ncolour = \"red\"\n").unwrap_err();
        assert!(
            told.starts_with(
                "text:2: unknown key `colour`; an experiment has, with faults: seconds"
            ),
            "{told}"
        );
        assert!(told.contains("with a model: title, model"), "{told}");
        assert!(kind("seconds = 1\nx = \n").unwrap_err().starts_with("text:2: "));
    }

    #[test]
    fn a_replay_is_a_command() {
        assert_eq!(replay(7, None), "trapeze sim --seed 7 --trace trace.txt");
        assert_eq!(replay(7, Some("a.toml")), "trapeze sim a.toml --seed 7 --trace trace.txt");
    }
}
