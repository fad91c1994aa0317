//! Network memory: the memory of other machines as a layer between local memory and disk (GMS: Feeley and others,
//! SOSP'95; PGMS: Voelker and others, SIGMETRICS'98).
//!
//! These are its tables, plain structs without I/O and without a clock: `now` and random numbers are arguments, so that
//! a run is its seed. Requests that wait for messages are not here.
//!
//! | table | kept by | question |
//! | --- | --- | --- |
//! | [`Slots`] | every node, from the view | which two nodes keep a page's directory entry |
//! | [`Directory`] | those two | who holds the page, in which version |
//! | [`Memory`] | every node | which page is in which frame, what leaves next, what is taken in |
//! | [`Epoch`], [`Epochs`] | every node, from the initiator | how old is old, and who has the old frames |
//! | [`Policy`] | the evicting node | where a page that leaves goes |
//! | [`Trend`], [`Hints`] | every program's thread | which pages come before they are asked for |
//!
//! Invariants: every frame is in one role; a frame is given up only when what it holds is clean or durable elsewhere; a
//! directory entry's version never goes back; bytes without a fitting stamp are a counted miss and never data.
#![forbid(unsafe_code)]

mod ages;
mod directory;
mod epoch;
mod epochs;
pub mod guest;
mod hints;
mod index;
pub mod limits;
mod memory;
mod page;
mod placement;
pub mod protocol;
pub mod service;
mod slots;
mod trend;

pub use ages::{Age, Histogram, Uses};
pub use directory::{Directory, Entry, Holder, Lookup, Outcome, Refusal, Role as HolderRole};
pub use epoch::{Digest, Epoch, EpochConfig, Share};
pub use epochs::{Ending, Epochs, Mode};
pub use hints::{Full, Hints, Run, is_worth, just_in_time};
pub use memory::{
    Accepted, Ahead, Arrival, Class, Counts, Durability, Eviction, FrameNo, Kept, Memory,
    MemoryConfig, NotInstalled, Offer, Page, Reason, Refused, Role,
};
pub use page::{Mismatch, Mismatches, PageId, PageStamp, SpaceId, Version, Wanted};
pub use placement::{Leaving, Policy};
pub use service::Service;
pub use slots::{Homes, Member, Slots};
pub use trend::{Prefetch, Trend};
