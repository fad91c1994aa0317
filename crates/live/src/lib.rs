//! The real world of a node: every system call, clock and thread. It is not a service: it moves ring entries.

pub mod clock;
pub mod device;
pub mod disk;
mod helpers;
pub mod host;
pub mod limits;
pub mod link;
pub mod memory;
pub mod signals;
pub mod wait;
