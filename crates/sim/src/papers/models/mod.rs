//! The models that experiments may name. A model with hardware or firmware in it is one more row.

pub mod adapter;
pub mod bound;
pub mod dma;
mod drawings;
pub mod forwarding;
pub mod slice;

use super::model::Model;

/// All of them.
pub const ALL: &[&Model] = &[
    &bound::MODEL,
    &dma::MODEL,
    &adapter::LATENCY,
    &adapter::FETCH,
    &adapter::STREAM,
    &adapter::BURST,
    &forwarding::MODEL,
    &slice::READ,
    &slice::WRITE,
    &slice::WHOLE_FILE,
    &slice::FAULT,
];
