//! The transactional store. One program, which is linked once.

mod crash;
mod damage;
