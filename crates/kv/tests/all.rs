//! Keys and values, and their protocols. One program, which is linked once.

mod away;
mod front;
mod items;
mod memcached;
mod pipelines;
mod resp;
mod resp_long;
mod shared;
mod talk;
mod transactions;
