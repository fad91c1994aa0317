//! Block storage.
pub mod cache;
pub mod limits;
pub mod log;
pub mod object;
pub mod protocol;
