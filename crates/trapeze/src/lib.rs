//! Trapeze: network storage at network speed.
//!
//! The command `trapeze` is a thin layer over this library.
#![forbid(unsafe_code)]

pub mod bench;
pub mod children;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod local;
pub mod machine;
pub mod machine_stat;
pub mod progress;
pub mod scratch;
pub mod serve;
pub mod simulate;
pub mod size;
pub mod table;
pub mod tools;
pub mod trees;
pub mod volume;
