//! The papers' evaluation as files: an experiment names a model, sweeps its axes, and says what a paper has there.
//!
//! ```text
//!   experiments/papers/NAME.toml ──► Experiment ──► points ──► Model::run ──► Outcome: table, figure, traces
//!   presets/…                         (loader)    (any order, any threads)      (in the order of the points)
//! ```
//!
//! The command runs points on all processors; nothing of an outcome depends on how. It is not a place for models of
//! hardware: those are rows of [`models::ALL`] that call the modules which have them, in `sim` and here: [`queueing`],
//! [`cooperative`] caching, and [`slice`], whole clusters on modelled machines. [`report`] makes tables, figures and
//! pages of what comes out.
#![forbid(unsafe_code)]

pub mod builtin;
pub mod constants;
pub mod cooperative;
pub mod experiment;
pub mod managers;
pub mod model;
pub mod models;
pub mod outcome;
pub mod pages;
pub mod queueing;
pub mod raw;
pub mod report;
pub mod slice;
pub mod speed;

pub use experiment::{Catalogue, Experiment};
pub use model::{Model, Point, Value};
pub use outcome::Outcome;
pub use sim::source::{Fault, Source};
