//! Block storage: plain structs, and nodes over a bad link. One program, which is linked once.

mod common;
mod crashes;
mod crowded;
mod damage;
mod decay;
mod descriptions;
mod disks;
mod groups;
mod hints;
mod log;
mod network;
mod order;
mod roles;
mod scrub;
mod service;
mod storage;
mod through;
mod unreadable;
