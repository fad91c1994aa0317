//! The experiments that are part of the command, so that `trapeze papers` needs no files beside it.

use super::experiment::{Catalogue, Experiment};
use super::models;
use crate::source::{Fault, Source};

macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, Source {
            file: concat!("experiments/papers/", $folder, $name, ".toml"),
            text: include_str!(concat!("../../../../experiments/papers/", $folder, $name, ".toml")),
        })),*]
    };
}

/// Sets of constants.
pub const PRESETS: &[(&str, Source<'static>)] =
    files!("presets/": "forwarding" "forwarding-boards" "hpdc");

/// Experiments, in the order of the report.
pub const EXPERIMENTS: &[(&str, Source<'static>)] = files!("":
    "hpdc-bounds"
    "hpdc-figure-4"
    "hpdc-figure-4-receive"
    "hpdc-figure-5"
    "hpdc-figure-6"
    "hpdc-figure-7"
    "hpdc-figure-8"
    "hpdc-fetch"
    "hoti-table-1"
    "hoti-figure-3"
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
);

/// What experiments may name.
pub const CATALOGUE: Catalogue<'static> = Catalogue { models: models::ALL, presets: PRESETS };

/// All of them, read.
pub fn experiments() -> Result<Vec<Experiment>, Fault> {
    let read = |(name, source): &(&str, Source<'_>)| Experiment::parse(name, *source, CATALOGUE);
    EXPERIMENTS.iter().map(read).collect()
}
