//! The firmware. One program, which is linked once.

mod forward;
mod keeps;
mod properties;
mod vectors;
mod world;
