//! The papers' numbers, and what is made of them. One program, which is linked once.

mod hardware;
mod managers;
mod papers;
mod queueing;
mod report;
mod slice;
