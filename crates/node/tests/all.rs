//! Nodes, their calls and timers. One program, which is linked once.

mod calls;
mod messages;
mod pools;
mod waiting;
