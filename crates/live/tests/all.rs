//! The real world of a node: links, disks, mounts. One program, which is linked once.

mod adapter;
mod calls;
mod common;
mod disk;
mod disk_rig;
mod ether;
mod filling;
mod full;
mod fuse;
mod hostile;
mod links;
mod meta;
mod node;
mod pressure;
mod sandbox;
mod seccomp;
mod sides;
mod strangers;
mod support;
