//! The queueing model of a host that forwards packets, and a small simulation that checks it.
//!
//! An open network with one class of customers: packets arrive, visit each service centre so many times, and leave.
//! Visits and service times alone give the bottleneck, the saturation rate, the response, the queue
//! length, and by Little's law the bytes that an adapter's payload cache must hold (fast forwarding, section 2).
//!
//! ```text
//!   arrivals ──► adapter ──► bus ──► host ──► bus ──► departures     with a payload cache the second visit
//!                                             └──────────┘           of the bus is left out
//! ```
//!
//! It is not a model of the firmware: the adapter is one centre with one service time. [`simulate`] knows nothing of
//! the formulas; it moves packets through centres on the event queue and measures.

pub mod forwarding;
pub mod network;
pub mod simulate;

pub use network::{Centre, Network, Traffic};
