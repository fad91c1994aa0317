//! Pages of a process that is no node, kept by nodes that run the service: what such a process knows and decides.
//!
//! A [guest](crate::SpaceId::guest)'s space is its process's own. So the process is its directory (SOSP'95, non-shared
//! pages: no hop): it knows which holders have a page, asks them by the service's own messages, and makes copies again
//! when one is gone. Nothing of it stands in the directories of the nodes.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Keeping`] | which holders have which page; what a fetch, a store, a mend comes to |
//! | [`Standing`] | what is known of each holder: its incarnation, whether it answers, has room |
//! | [`Entries`] | the holders of every page |
//! | [`Visits`] | what is done in the background, and when |
//! | [`Transport`] | how holders are asked: by whom, and whether that waits or blocks, is the world's |
//!
//! Requests are async functions over [`Transport`]. A thread that faults on a page drives its own links and blocks, so
//! there they are over when they are polled for the first time; in the simulator they wait as all do.
//!
//! Invariants: a version counts as stored when as many different nodes as asked for have said that they have it; a page
//! whose holders are all in another incarnation than when they took it is lost, and one whose holders do not answer is
//! not.

mod asking;
mod entries;
mod keeping;
mod standing;
mod visits;

pub use asking::{Gone, Refused, Response, Transport, found, offer, reminder, taken};
pub use entries::{Entries, Entry, Replica, Replicas};
pub use keeping::{Keeping, Obsolete};
pub use standing::Standing;
pub use visits::Visits;
