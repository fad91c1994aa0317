//! The client file system on nodes over a bad link. One program, which is linked once.

mod common;
mod conformance;
mod economy;
mod failures;
mod hints;
mod interrupts;
mod kernel;
mod layouts;
mod leftovers;
mod power_cuts;
