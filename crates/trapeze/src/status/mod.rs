//! `trapeze status`: what every machine tells about itself, and how it is asked.
//!
//! ```text
//!  status ── VIEW ─────────────► manager's members: who there is
//!         ── REPORT, offset ───► each server's status service: a page of a Report, as JSON
//! ```
//!
//! It is not monitoring: nothing is kept, a report shows counters since the machine's start. Mounts tell nothing, they
//! listen nowhere; the manager tells that they are there and until when.

pub mod report;
pub mod service;
mod show;

pub use show::{StatusError, status};
