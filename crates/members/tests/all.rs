//! Cluster coordination. One program, which is linked once.

mod registry;
mod service;
