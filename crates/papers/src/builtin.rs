//! The experiments that are part of the command, so that `trapeze papers` needs no files beside it.

use super::experiment::{Catalogue, Experiment};
use super::models;
use sim::source::{Fault, Source};

macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, Source {
            file: concat!("experiments/", $folder, $name, ".toml"),
            text: include_str!(concat!("../../../experiments/", $folder, $name, ".toml")),
        })),*]
    };
}

/// Experiments of no paper, to begin with.
pub const EXAMPLES: &[(&str, Source<'static>)] =
    files!("": "cluster" "cluster-1000" "memory" "managers" "memory-without-uses" "prefetch");

/// Experiments of the papers, in the order of the report.
pub const EXPERIMENTS: &[(&str, Source<'static>)] = files!("papers/":
    "hpdc-figure-1"
    "hpdc-figure-2"
    "hpdc-figure-3"
    "hpdc-bounds"
    "hpdc-figure-4"
    "hpdc-figure-4-receive"
    "hpdc-figure-5"
    "hpdc-figure-6"
    "hpdc-figure-7"
    "hpdc-figure-8"
    "hpdc-fetch"
    "hpdc-designs"
    "hoti-figure-1"
    "hoti-figure-2"
    "hoti-table-1"
    "hoti-table-1-contention"
    "hoti-figure-3"
    "hoti-tcp"
    "hoti-figure-4-read"
    "hoti-figure-4-write"
    "hoti-whole-file"
    "hoti-fault"
    "what-if-read"
    "what-if-write"
    "forwarding-figure-1"
    "forwarding-table-2"
    "forwarding-observed"
    "forwarding-observed-boards"
    "forwarding-figure-2"
    "forwarding-figure-3"
    "forwarding-figure-4"
    "forwarding-queues"
    "forwarding-table-3"
    "forwarding-figure-5"
    "forwarding-figure-6"
    "forwarding-figure-7"
    "forwarding-gains"
    "forwarding-between"
    "forwarding-load"
    "forwarding-bursts"
    "forwarding-mix"
    "forwarding-adapters"
);

/// The models that experiments may name, without files beside them.
pub const CATALOGUE: Catalogue<'static> =
    Catalogue { models: models::ALL, read: &|_| Err("no file can be read here".to_string()) };

/// Those of the papers, read.
pub fn experiments() -> Result<Vec<Experiment>, Fault> {
    let read = |(name, source): &(&str, Source<'_>)| Experiment::parse(name, *source, CATALOGUE);
    EXPERIMENTS.iter().map(read).collect()
}
