//! Cluster coordination: ids, incarnations, addresses and roles of the members; the view of all members, and leases.
//!
//! It is not consensus: one service on the first manager keeps the members in its store, and a cluster that needs
//! more than that will keep them in etcd behind the same client. It checks no keys: links let no node in without one.
//!
//! ```text
//!  Client ── JOIN, RENEW, LEAVE, VIEW ──► service tasks ── handle_* ──► Registry ── batches ──► Store
//!    ├ Directory: the last view seen
//!    └ Groups ── GROUPS, CHANGE_GROUP: the replicas of data, which the planner moves
//! ```
//!
//! A server keeps its id by its name for ever; a client loses membership and id when its lease ends. A client counts
//! its lease from before it asked, the service from after, so a client knows first that it is none any more.
#![forbid(unsafe_code)]

mod ask;
mod client;
mod disks;
mod emptied;
pub mod groups;
mod lenders;
pub mod limits;
mod membership;
mod planner;
pub mod protocol;
mod registry;
pub mod replicas;
mod service;

pub use client::{
    Client, Directory, Standing, empty, forget, is_silence, join, planned, retire, view,
};
pub use disks::{Age, ToldDisk, Verdict};
pub use groups::Groups;
pub use membership::{Change, Membership, Up, View};
pub use protocol::{
    DECLARED_GONE, Emptied, Empty, Forget, Identity, Lease, Lends, Member, Planned, Registration,
    Retire, Roles,
};
pub use registry::{Denied, Registry, STORE_KIND, STORE_VERSION};
pub use service::{Config, Service, serve};
