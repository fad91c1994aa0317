//! Keys and values in a node's frames, and the protocols that clients of memcached and Redis speak.
//!
//! Plain state machines without I/O, clock or threads: bytes go in, bytes and frames come out, the time is an argument.
//! Only [`service`] has tasks: it takes values to network memory and brings them back.
//!
//! | piece | what it is |
//! | --- | --- |
//! | [`Items`] | the bounded table: key to value, flags, expiry, CAS unique, for several tenants |
//! | [`Session`] | one connection: commands in any pieces in, replies out, at most as much output as is read |
//! | [`Out`] | replies that wait: text, and the frames of values themselves |
//! | [`Draft`] | a long value that is arriving, in the frames where it stays |
//! | [`Trip`] | the pages of a value that is away; its key, length and expiry stay here |
//! | [`Courier`](service::Courier) | the tasks that take values away and bring them |
//!
//! Invariants: the memory of all tenants together stays within the server's, with what half commands and unread
//! answers have; a tenant within its most, and what is below a tenant's least is not taken for others; a value that is
//! being sent does not change; a `get` of what is here allocates nothing; answers of a connection are in order, also
//! those that come later.
#![forbid(unsafe_code)]

mod away;
mod body;
mod carry;
mod entries;
mod ids;
mod items;
pub mod limits;
mod memcached;
mod moment;
mod number;
mod out;
mod owners;
mod resp;
mod rope;
pub mod service;
mod session;
mod slab;
mod tenants;
mod turn;
mod value;

pub use away::{AwayConfig, Fetch, PageRef, Store, Trip};
pub use carry::{Carry, Dialect, Protocol, Target, Unanswered};
pub use ids::{ItemNo, TenantNo};
pub use items::{Content, Facts, Item, Items, ItemsConfig, NoRoom, Placed};
pub use moment::{Expiry, Moment};
pub use out::Out;
pub use owners::{Owners, slot_of};
pub use session::{Progress, Session};
pub use tenants::{AwayCounters, BadTenants, Counters, TenantConfig};
pub use value::Draft;
