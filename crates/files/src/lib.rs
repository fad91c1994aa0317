//! The client file system.
#![forbid(unsafe_code)]

pub mod gather;
pub mod limits;
pub mod stream;
pub mod written;
