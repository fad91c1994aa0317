//! The real world: every system call, clock and thread of a node.
pub mod device;
pub mod fuse;
pub mod host;
