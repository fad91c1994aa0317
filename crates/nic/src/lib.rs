//! The Trapeze-MCP: the adapter's firmware as one state machine that does no I/O (HPDC'97, HotI'99, "Fast Forwarding
//! on Myrinet").
//!
//! It decides what three engines do: the host's bus, the link out, the link in. The driver owns the engines, the bytes
//! and the time: modelled hardware in the simulator, memory copies on a real machine. Payloads are never touched here,
//! only named by host address and adapter buffer.
//!
//! ```text
//!             HostDma, ToNet            NetSend
//!   host ───────────────────► buffers ──────────► link      control message: written by the host, sent first
//!   memory                    of the
//!        ◄─────────────────── adapter ◄────────── link      control message: a transfer of its own to the host
//!             HostDma, ToHost           NetReceive
//! ```
//!
//! It is not the endpoint: rings here hold what the firmware sees of an entry.
#![forbid(unsafe_code)]

pub mod agent;
pub mod cache;
pub mod command;
pub mod config;
mod direction;
pub mod ether;
pub mod limits;
pub mod log;
mod nic;
mod receive;
mod send;
mod unit;

pub use agent::{Agent, Balance};
pub use cache::{Binding, CacheCounters, PayloadCache, Reuse, State};
pub use command::{
    Action, Command, Engine, HostFrame, Kind, Landing, Packet, Piece, Progress, Ticks, Transfer,
};
pub use config::{
    Buffers, CONTROL, CacheConfig, Config, ConfigError, Costs, Interrupts, Lag, Policy,
};
pub use direction::Direction;
pub use log::{Log, Record};
pub use nic::{Counters, Nic};
pub use receive::{ArmError, Landed};
pub use send::{PostError, Send};
