//! The adapter world against the papers' numbers (`cargo test -p papers --test all hardware`).
//!
//! Bands are those of issue 3, declared before the first run; a number that does not fit is stated in
//! docs/src/internals/hardware.md and not fitted further.

mod cluster;
mod forward;
mod hoti;
mod hpdc;
mod stations;
mod tcp;
mod world;
