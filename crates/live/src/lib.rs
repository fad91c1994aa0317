//! The real world of a node: every system call, clock and thread. It is not a service: it moves ring entries.

pub mod baseline;
pub mod boot;
pub mod clock;
pub mod device;
pub mod disk;
pub mod fuse;
mod helpers;
pub mod host;
pub mod limits;
pub mod link;
pub mod memory;
pub mod meta;
pub mod pressure;
pub mod scheduler;
pub mod signals;
pub mod usage;
pub mod wait;
pub mod wakeup;
pub mod xdp;
