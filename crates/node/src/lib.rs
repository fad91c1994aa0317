//! One core of one machine.
pub mod rings;
