//! NFSv3 and the protocols beside it, for servers and clients: bytes in, bytes and frames out.
//!
//! It has no sockets, clock or tasks, so that a front on a live node and a simulated client run the same code.
//!
//! | module | what it is | specification |
//! | --- | --- | --- |
//! | [`xdr`] | the encoding | RFC 4506 |
//! | [`record`] | records on a stream; data lands in frames | RFC 5531 section 11 |
//! | [`rpc`] | heads of calls and replies, credentials, refusals | RFC 5531 |
//! | [`v3`] | NFS version 3 | RFC 1813 |
//! | [`mount`] | MOUNT version 3 | RFC 1813 section 5.0 |
//! | [`portmap`] | which port a program has | RFC 1833 |
//! | [`nlm`], [`nsm`] | locks, and who restarted | RFC 1813 appendix II, XNFS |
//! | [`locks`] | who holds and who waits for them | |
//! | [`handle`] | what a file handle says, and whether it is ours | |
//! | [`convert`] | attributes, kinds, times, errors: ours and NFS's | |
//! | [`cookies`] | where a listing goes on, and what fits in one | RFC 1813 sections 3.3.16, 3.3.17 |
//! | [`exports`] | who may mount what, and as whom | |
//! | [`replies`] | the duplicate-request cache | RFC 1813 section 4.5 |
//! | [`server`] | a call as what it asks of the front ring | RFC 1813 section 3.3 |
//! | [`start`] | what a server reads and writes before it serves | |
//! | [`front`] | connections, their calls, and what they may hold | RFC 1813 section 4 |
//! | [`filter`] | one address for many managers: which of them executes a call | |
//! | [`client`] | the other end: calls as bytes, replies by xid | RFC 1813 section 4 |
//!
//! Invariants: no length is believed before its bytes are there; what one peer can make us keep has a limit in
//! [`limits`]; the data of a READ or WRITE is in the frames where it stays, never in a buffer of this crate.
#![forbid(unsafe_code)]

pub mod client;
pub mod convert;
pub mod cookies;
pub mod exports;
pub mod filter;
pub mod front;
pub mod handle;
pub mod limits;
pub mod locks;
pub mod mount;
pub mod nlm;
pub mod nsm;
pub mod portmap;
pub mod record;
pub mod replies;
pub mod rpc;
pub mod server;
pub mod start;
pub mod v3;
pub mod xdr;
