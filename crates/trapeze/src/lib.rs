//! Trapeze: network storage at network speed.
//!
//! Modules for programs:
//!
//! - [`service`]: servers and clients of your own over Trapeze messages ([`service::Server`], [`service::Client`]);
//! - [`volume::Volume`]: striped files of a cluster without a mount, and [`client::Reach`], which finds the cluster;
//! - [`embedded::Embedded`]: a whole cluster on threads of this process;
//!
//! Everything else here serves the command `trapeze`, its measurements and libtrapeze, and may change.
#![forbid(unsafe_code)]

#[macro_use]
pub mod output;

pub mod ask;
pub mod beginning;
pub mod children;
pub mod client;
pub mod config;
pub mod embedded;
pub mod flags;
pub mod import;
pub mod incarnation;
pub mod interrupted;
pub mod join;
pub mod lenders;
pub mod lending;
pub mod local;
pub mod machine;
pub mod machine_stat;
pub mod membership;
pub mod new_disk;
pub mod nfs;
pub mod older;
pub mod pulses;
pub mod random;
pub mod reach;
pub mod scratch;
pub mod scrubbing;
pub mod serve;
pub mod service;
pub mod size;
pub mod socket_access;
pub mod status;
pub mod stopper;
pub mod stopping;
pub mod volume;
mod waiting;
pub mod xdp;
