//! The real world of a node: every system call, every clock and every thread is here, behind the rings.

pub mod clock;
pub mod device;
pub mod disk;
mod helpers;
pub mod host;
pub mod limits;
pub mod memory;
pub mod meta;
pub mod wait;
