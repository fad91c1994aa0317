//! Agreements between two machines: identifiers, the 128-byte control message, channels, versions.
//!
//! It is not a protocol: the order of messages is up to `netrpc` and the services. Nothing here allocates but for lists
//! in a [`field`], blocks or trusts its input: a [`ControlView`] is checked once and its accessors cannot fail; a
//! [`Header`] holds only legal values (the packet/representation pair that smoltcp made popular).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attr;
pub mod blockmap;
pub mod checksum;
pub mod codec;
pub mod control;
pub mod field;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod listing;
pub mod mix;
pub mod sites;
pub mod time;

pub use attr::{Attr, Errno, FileKind, SetAttr, SetTime, Wall, Wcc};
pub use blockmap::{BlockMap, Fragment};
pub use codec::{Decoder, Encoder, Short};
pub use control::{CallHeader, Channel, Control, ControlView, Flags, Header, Kind, Malformed};
pub use ids::{CallId, FileId, NodeId, ObjectId, SessionEpoch, Token, VolumeId};
pub use layout::{Extent, GroupId, Home, Layout, Placement};
pub use listing::ListingVersion;
pub use mix::mix;
pub use sites::{SITES, SiteOwner, Sites};
pub use time::Time;
