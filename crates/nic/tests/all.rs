//! The firmware. One program, which is linked once.

mod ether;
mod forward;
mod keeps;
mod properties;
mod vectors;
mod world;
