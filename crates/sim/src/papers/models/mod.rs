//! The models that experiments may name. A model with hardware or firmware in it is one more row.

pub mod bound;
pub mod dma;
mod drawings;
pub mod forwarding;

use super::model::Model;

/// All of them.
pub const ALL: &[&Model] = &[&forwarding::MODEL, &dma::MODEL, &bound::MODEL];
