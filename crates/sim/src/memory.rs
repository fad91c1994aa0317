//! Clusters with network memory under faults: programs on every node read and write pages of their own and of shared
//! spaces, evict them, free spaces; a checker knows what every version holds and what must be readable.
//!
//! ```text
//!   program ──► netmem::Service ──► calls, links        as on real machines
//!      │              │
//!      │              └──► Backing: stable storage of all nodes
//!      └──► model: contents of every (page, version), what was acknowledged, what may be gone
//!   registry: who is up ──► views      trouble: kills, power cuts, pauses, partitions, storage, messages
//! ```
//!
//! Checks: every payload is what was written as this version of this page; versions are as new as was asked for;
//! nothing of a freed space is returned; acknowledged pages are readable while no more went down than their class
//! stands; a request ends in its time and is passed on four times at most; a shared page has one writer; frames sum up,
//! others' pages leave the node's own their part, directory and hints stay in theirs; at rest directories and frames
//! agree.

pub mod ahead;
mod check;
mod guest;
mod keys;
pub mod model;
mod pressure;
mod program;
mod registry;
mod run;
pub mod scene;
pub(crate) mod shared;
pub mod spaces;
mod storage;
mod trouble;

pub use run::run;
