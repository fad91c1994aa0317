//! Flags of `sim` and `papers`.

use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "A model of your own cluster:\n  trapeze sim --list                          models and presets\n  trapeze sim --print cluster > mine.toml     an experiment to begin with; --print also gives presets\n  trapeze sim mine.toml --out results"
)]
pub struct Sim {
    /// An experiment with faults or with a model, told apart by its keys; without one, the usual cluster and faults
    #[arg(value_name = "FILE.toml")]
    pub experiment: Option<PathBuf>,
    /// List the models with their axes and measures, and the presets; run nothing
    #[arg(long, conflicts_with = "experiment")]
    pub list: bool,
    /// Print a preset or an experiment that is built in, as a file to change; run nothing
    #[arg(long, value_name = "NAME", conflicts_with_all = ["experiment", "list"])]
    pub print: Option<String>,
    #[command(flatten, next_help_heading = "Experiments with faults")]
    pub seeds: Seeds,
    #[command(flatten, next_help_heading = "Experiments with a model")]
    pub results: Results,
    #[command(flatten, next_help_heading = "Both")]
    pub output: Output,
}

/// Which seeds of an experiment with faults.
#[derive(Debug, Args)]
pub struct Seeds {
    /// Run this seed only
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run seed after seed for this many seconds [default: 60]
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Begin with this seed; default: a fresh one
    #[arg(long, value_name = "SEED")]
    pub first: Option<u64>,
    /// Run at most so many seeds
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Write one line for each event here; - is the terminal
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Options for the results of experiments with models.
#[derive(Debug, Args)]
pub struct Results {
    /// Write everything here too: tables (txt, md, csv, json), figures (svg), traces for Perfetto, and report.html
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fail when a value is outside its declared band
    #[arg(long)]
    pub check: bool,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// How a simulation runs and is printed.
#[derive(Debug, Args)]
pub struct Output {
    /// Run so many points or seeds at a time [default: one on each processor]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// How many run at a time.
    pub fn jobs(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.jobs.map_or_else(processors, NonZeroUsize::get)
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "An experiment is a file of TOML: docs/src/papers.md says what is in one; those of the papers are in experiments/papers."
)]
pub struct Papers {
    /// Experiments of the papers by their names, or files of your own; default: all of the papers
    #[arg(value_name = "NAME|FILE.toml")]
    pub experiments: Vec<String>,
    /// List the names, and run nothing
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub results: Results,
    #[command(flatten)]
    pub output: Output,
}
