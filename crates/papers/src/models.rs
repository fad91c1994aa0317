//! The models that experiments may name. A model with hardware or firmware in it is one more row.

pub mod adapter;
mod architecture;
pub mod bound;
pub mod cluster;
pub mod dma;
mod drawings;
pub mod forwarder;
pub mod forwarding;
pub mod managers;
pub mod memory;
mod prefetch;
pub mod slice;
mod states;
pub mod tcp;
mod traces;

use super::model::{AxisKind, Model};

/// Whether an adapter has a payload cache.
const CACHE: AxisKind = AxisKind::names("cache", "cache", &["off", "on"]);
/// How transfers are priced ([`Pricing`](sim::hardware::world::Pricing)).
const PRICING: AxisKind = AxisKind::names("pricing", "pricing", &["constants", "contention"]);

/// All of them.
pub const ALL: &[&Model] = &[
    &bound::MODEL,
    &dma::MODEL,
    &adapter::LATENCY,
    &adapter::FETCH,
    &adapter::STREAM,
    &adapter::BURST,
    &tcp::MODEL,
    &forwarder::STREAMS,
    &forwarder::GAINS,
    &forwarder::LOAD,
    &forwarder::BURSTS,
    &forwarder::ADAPTERS,
    &forwarder::MIX,
    &forwarding::MODEL,
    &cluster::MODEL,
    &memory::MODEL,
    &managers::MODEL,
    &prefetch::MODEL,
    &slice::READ,
    &slice::WRITE,
    &slice::WHOLE_FILE,
    &slice::FAULT,
];
