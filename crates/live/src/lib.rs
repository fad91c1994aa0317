//! The real world: every system call, clock and thread of a node.
pub mod fuse;
