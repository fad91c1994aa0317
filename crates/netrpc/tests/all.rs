//! Calls as plain state machines. One program, which is linked once.

mod common;
mod hostile;
mod kept;
mod mended;
mod properties;
