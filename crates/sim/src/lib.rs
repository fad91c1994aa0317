//! The simulated world: everything a node asks for on its rings is answered here, by models, in simulated time.
//!
//! It is not an imitation of the services: the nodes run the same code as on real machines; only what holds the far
//! end of their rings differs. A run is a function of its seed and its experiment: integer picoseconds, one random
//! stream per component, no clock, no thread, no container whose order depends on an address.
//!
//! ```text
//!   queue ──► world ──► network   messages: delay, loss, duplication, corruption, partition
//!               │  ├──► ethernet  or frames of them, over the connections that are also live
//!               │  ├──► disk      object stores: volatile and durable state, power cuts
//!               │  ├──► meta      managers' logs and checkpoints
//!               │  ├──► decay     what becomes of both while their machines stand still
//!               │  └──► workload  what applications do, checked by checker
//!               └─ fingerprint, trace
//!   importing                   a cache of a foreign NFS server's files
//!   nfs                         clients of NFS, whose fronts are nodes of the cluster
//!   memory                      clusters with network memory: programs, registry, checker
//!   underlay                    instead of plain links and disks: the nodes on what follows
//!   hardware                    buses, adapters, links and disks of the papers' machines and of today's
//! ```
#![forbid(unsafe_code)]

pub mod backup;
mod borrower;
mod chain;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod copies;
pub mod data_check;
pub mod decay;
pub mod disk;
pub mod ethernet;
pub mod experiment;
mod failures;
pub mod faults;
pub mod fingerprint;
pub mod hardware;
pub mod importing;
pub mod limits;
pub mod machine;
mod media;
pub mod memory;
pub mod meta;
pub mod name_check;
pub mod network;
pub mod nfs;
mod nodes;
pub mod queue;
pub mod random;
mod restoring;
pub mod run;
mod salvaging;
pub mod source;
pub mod storage;
mod strikes;
pub mod taking_out;
pub mod tokens;
pub mod trace;
pub mod trouble;
pub mod underlay;
pub mod volume;
pub mod worker;
pub mod workload;
pub mod world;
