//! Hardware: hosts, buses, adapter boards, links and crossbars, disks. Models with constants that are data.
//!
//! ```text
//!   host ──programmed I/O──┐
//!     │                    ▼
//!   memory ◄── bus ──► adapter memory ◄──► link ──► crossbar ──► link ──► the same, backwards
//!            (half duplex)     ▲ arbitrated: host DMA, receive, send, processor
//!                              processor: the firmware of `nic`
//! ```
//!
//! Every constant is in a preset (`presets/*.toml`) beside its source. Rates change only when something starts or ends;
//! between two changes progress is a straight line that is evaluated on demand ([`flow::Flow`]).
//!
//! It is not cycle-accurate: a burst on the bus, a flit on a link, an instruction have no events of their own.

pub mod agent;
pub mod board;
pub mod bus;
pub mod catalogue;
pub mod disk;
pub mod fabric;
pub mod fetching;
pub mod flow;
pub mod forwarding;
pub mod host;
pub mod measure;
pub mod preset;
pub mod programs;
pub mod tcp;
pub mod units;
pub mod world;
