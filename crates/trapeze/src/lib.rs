//! Trapeze: network storage at network speed.
//!
//! The command `trapeze` is a thin layer over this library. What other programs use of it:
//!
//! - [`service`]: servers and clients of your own over Trapeze messages ([`service::Server`], [`service::Client`]);
//! - [`volume::Volume`]: striped files of a cluster without a mount, and [`client::Reach`], which finds the cluster;
//! - [`embedded::Embedded`]: a whole cluster on threads of this process;
//! - [`page_log`]: a log of pages in a directory, for a `netmem::Service` of your own.
//!
//! Everything else here serves the command and may change.
#![forbid(unsafe_code)]

#[macro_use]
pub mod output;

pub mod backup;
mod beginning;
pub mod bench;
pub mod built_in;
pub mod check;
pub mod children;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod config;
pub mod copy;
pub mod demo;
pub mod directories;
pub mod embedded;
pub mod forget;
mod incarnation;
pub mod interrupted;
pub mod join;
pub mod lenders;
pub mod lending;
pub mod local;
pub mod machine;
pub mod machine_stat;
pub mod membership;
pub mod memory;
pub mod mount_helper;
mod mount_options;
pub mod new_disk;
pub mod page_log;
pub mod papers;
pub mod preloaded;
pub mod progress;
pub mod quarantine;
pub mod rebalance;
pub mod restore;
pub mod salvage;
pub mod scratch;
pub mod scrubbing;
pub mod serve;
pub mod service;
pub mod simulate;
pub mod size;
pub mod socket_access;
pub mod status;
pub mod stopper;
mod stopping;
pub mod table;
pub mod tools;
pub mod trees;
mod undo;
pub mod volume;
mod waiting;
