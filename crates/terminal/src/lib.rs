//! Output of the command on a terminal: bars of progress, and tables that are JSON for programs.
#![forbid(unsafe_code)]

#[macro_use]
extern crate trapeze;

pub mod progress;
pub mod table;
