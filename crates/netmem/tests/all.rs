//! Network memory on nodes over a bad link. One program, which is linked once.

mod copies;
mod directories;
mod faulty;
mod guests;
mod incarnations;
mod leaving;
mod prefetch;
mod service;
mod share;
mod shared;
mod world;
