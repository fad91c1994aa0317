//! The simulated cluster. One program, which is linked once.

mod bugs;
mod calls;
mod checkers;
mod cluster;
mod common;
mod copies;
mod decay;
mod idle;
mod imports;
mod lending;
mod memory;
mod nfs;
mod races;
mod scripts;
mod seeds;
