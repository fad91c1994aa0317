//! The storage evaluation of HotI'99 (section 4, Figure 4): one client reads or writes a large file in sequence,
//! striped over the disks of several servers.
//!
//! Client, manager and servers run the services that real machines run; messages, processors, buses and disks are the
//! models of [`hardware`](sim::hardware), joined by [`underlay`](sim::underlay).

mod bench;
mod setup;

pub use bench::{Bench, Direction, Measured, Until};
pub use setup::{Machines, Setup};
