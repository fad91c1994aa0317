//! Shared pieces of several crates' tests: packets between endpoints, nodes on a bad link, an Ethernet in memory,
//! counted allocations, copied executables, a foreign NFS server, and notes of tests that cannot run here.
//!
//! It is for tests only: crates name it among their dev-dependencies. It is not a world: it has no clock, no faults of
//! its own and no checkers; those are `sim`'s.

mod counting;
mod ending;
mod ethernet;
pub mod ganesha;
pub mod holes;
mod net;
mod packet;
mod programs;
mod skips;

pub use counting::Counting;
pub use ending::SetOnDrop;
pub use ethernet::{Ethernet, Faults};
pub use net::{Fate, Net, node, start};
pub use packet::{Packet, carry, put_packet, take_packet};
pub use programs::copy_program;
pub use skips::{SKIPS, lacking, lacks, python, skip};
