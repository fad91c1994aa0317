//! Reports of machines about themselves, and how they are asked.
//!
//! ```text
//!  asker ── VIEW ─────────────► manager's members: who there is
//!        ── REPORT, offset ───► each server's status service: a page of a Report, as JSON
//! ```
//!
//! The asking process is no member, so that nothing is written because of it: a cluster that cannot write tells why.
//! Nothing is kept on the machines, a report shows counters since the machine's start; rates are the difference of two
//! reports. Mounts that lend no memory tell nothing, they listen nowhere; the manager tells that they are there and
//! until when.

pub mod ethernet;
pub mod figures;
pub mod import;
pub mod keys;
pub mod memory;
pub mod nfs;
pub mod reads;
pub mod report;
pub mod service;
