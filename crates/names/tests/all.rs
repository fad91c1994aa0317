//! The name space: plain structs, and nodes over a bad link. One program, which is linked once.

mod array;
mod common;
mod crashes;
mod dead;
mod describe;
mod duplicates;
mod imports;
mod layouts;
mod lineage;
mod listings;
mod locks;
mod model;
mod posix;
mod quarantine;
mod restored;
mod salvage;
mod service;
mod wcc;
