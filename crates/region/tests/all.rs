//! Regions on the real kernel. One program, which is linked once.

mod ahead;
mod churn;
mod clean;
mod fatal;
mod kills;
mod lenders;
mod mend;
mod peer;
mod region;
mod region_rig;
mod sandbox;
#[path = "../../live/tests/seccomp/mod.rs"]
mod seccomp;
