//! The real world of a node: every system call, every clock and every thread is here, behind the rings.

mod helpers;
pub mod limits;
pub mod memory;
