//! Cluster coordination. One program, which is linked once.

mod group_table;
mod grouping;
mod groups;
mod registry;
mod service;
