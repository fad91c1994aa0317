//! One core of one machine: tasks, timers and waiting on top of `netrpc`, without threads, clocks or system calls.
//!
//! A service is a handful of long-lived tasks, boxed once, that share a [`Cx`]. A world drives a [`Node`]: it writes
//! the rings, calls [`Node::step`] with the time, and serves what the rings then hold. Tasks are polled with a waker
//! that does nothing; what ends a wait knows the task's number and puts it on the ready list.
//!
//! It is not a general executor: futures that are not made here never wake anything. Everything belongs to one thread.
//!
//! Invariants: a frame in a ring entry belongs to the world until the entry's completion is read; what a dropped
//! future waited for still completes and its frames are released then; overload is refused with a typed error.

mod batches;
pub mod bugs;
mod call;
mod combine;
mod config;
mod cx;
pub mod decay;
pub mod limits;
mod mailbox;
mod node;
mod pieces;
mod pool;
pub mod rings;
mod scheduler;
mod sync;
mod tickets;
mod usage;

pub use batches::{Batch, Batches};
pub use bugs::{Bug, Bugs};
pub use call::{Answer, Call, Reply, Request};
pub use combine::{Either, Late, all, all_of, both, race};
pub use config::NodeConfig;
pub use cx::{Cx, FillingReply, Piece, Wait, Waiting};
pub use netrpc::CallError;
pub use node::{Node, NodeCounters};
pub use pieces::Pieces;
pub use pool::{Idle, WorkQueue};
pub use sync::{Notify, Permit, Semaphore};
pub use usage::Usage;
