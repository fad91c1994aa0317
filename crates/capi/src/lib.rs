//! libtrapeze: Trapeze messages and calls for programs in C, and in everything that can call C.
//!
//! ```text
//!   program ── tpz_get_sendmsg, tpz_attach_sendmsg, tpz_release_sendmsg ──► endpoint ──► link ──► peer
//!           ◄─ tpz_get_rcvmsg, tpz_detach_rcvmsg, tpz_release_rcvmsg ─────┘   ▲
//!           ── tpz_call ──► NetRPC ───────────────────────────────────────────┘   all moved by tpz_poll
//! ```
//!
//! The functions of HPDC'97 Table 1 have its names and argument orders; those of NetRPC follow [`trapeze::service`].
//! `include/trapeze.h` is made from this crate's docstrings, which are therefore written for users of C.
//!
//! It is a thin layer: everything is done by `node` and `live`. Invariants: no panic crosses the border
//! ([`error::run`]); no Rust reference to an endpoint's innards exists while a callback of the program runs, so that a
//! callback may call whatever it likes but tpz_close; what C owns is a box that C gives back.
#![allow(non_camel_case_types)]

pub mod call;
pub mod cluster;
pub mod ep;
pub mod error;
pub mod frame;
mod jobs;
mod limits;
pub mod memory;
pub mod message;
pub mod region;
pub mod serve;
pub mod system_calls;
pub mod token;
