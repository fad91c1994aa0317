//! A client of NFSv3, MOUNT, NLM and port mappers on a stream: calls as bytes, replies matched to them by xid.
//!
//! It has no socket, clock or timer, so that tests, `bench nfs` and a simulated client encode the same calls:
//!
//! ```text
//!   call ─► bytes for the stream          bytes of the stream ─► space, filled (or received) ─► poll_reply
//! ```
//!
//! A call is in flight until its reply is polled. When a connection is lost, [`Client::reconnected`] drops the half of
//! a record that came by it, and [`Client::retransmit`] gives the calls in flight again, byte for byte and with the
//! same xids, by which the server's duplicate-request cache knows them (RFC 1813 section 4.5).
//!
//! Invariant: a reply whose xid is of no call in flight is never taken for another call's. Such a reply is counted: it
//! is what a call that was retransmitted on the same connection gets twice.

mod input;
mod request;
pub mod session;

pub use input::RecordTooLong;
pub use request::{Called, Request};

use crate::record::{LAST_FRAGMENT, MARK_BYTES};
use crate::rpc::{self, Acceptance, Call, Credential, Groups, System};
use crate::v3;
use crate::xdr::{Garbage, Xdr, decoded, padding};
use input::Input;
use std::collections::BTreeMap;

/// The caller that a call names (AUTH_SYS).
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The machine's name for itself.
    pub machine: Vec<u8>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Groups,
}

struct InFlight {
    called: Called,
    /// The record with its mark.
    record: Vec<u8>,
}

/// The calls of one client on one stream at a time.
pub struct Client {
    caller: Caller,
    last_xid: u32,
    in_flight: BTreeMap<u32, InFlight>,
    input: Input,
    unmatched_replies: u64,
}

/// The stream cannot be read on: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A record that no reply needs.
    #[error(transparent)]
    TooLong(#[from] RecordTooLong),
    /// A record that is no reply.
    #[error("a record of the server's is no reply")]
    NoReply,
}

/// A reply without the results that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The call was not executed.
    #[error("the call is refused: {0:?}")]
    Refused(rpc::Reply),
    /// The results are not those of the procedure.
    #[error("the results cannot be decoded")]
    Garbage,
}

impl From<Garbage> for ReplyError {
    fn from(_: Garbage) -> ReplyError {
        ReplyError::Garbage
    }
}

/// The reply to a call that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The number of the call.
    pub xid: u32,
    /// The procedure of the call.
    pub called: Called,
    /// Whether it was executed.
    pub head: rpc::Reply,
    results: &'a [u8],
}

impl<'a> Reply<'a> {
    /// The results as bytes.
    pub fn results(&self) -> Result<&'a [u8], ReplyError> {
        match self.head {
            rpc::Reply::Accepted(Acceptance::Success) => Ok(self.results),
            refused => Err(ReplyError::Refused(refused)),
        }
    }

    /// All of the results as a value, for MOUNT and NLM.
    pub fn decoded<T: Xdr<'a>>(&self) -> Result<T, ReplyError> {
        Ok(decoded(self.results()?)?)
    }

    /// The results of a procedure of NFS. Garbage when another program was called.
    pub fn nfs(&self) -> Result<v3::Results<'a>, ReplyError> {
        match self.called {
            Called::Nfs(procedure) => Ok(v3::Results::decode(procedure, self.results()?)?),
            Called::Mount(_) | Called::Lock(_) | Called::Port => Err(ReplyError::Garbage),
        }
    }
}

impl Client {
    /// Its first call has the number after `last_xid`: a client that restarts begins elsewhere than it began before.
    pub fn new(caller: Caller, last_xid: u32) -> Client {
        let (in_flight, input) = (BTreeMap::new(), Input::default());
        Client { caller, last_xid, in_flight, input, unmatched_replies: 0 }
    }

    /// Calls without a reply.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Replies that came for no call in flight.
    pub fn unmatched_replies(&self) -> u64 {
        self.unmatched_replies
    }

    /// Appends the record of a new call to `out`, to be sent; its number.
    pub fn call(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> u32 {
        let xid = self.next_xid();
        let record = record(&self.caller, xid, request);
        self.begin(xid, request, record, out)
    }

    /// As [`call`](Client::call), in the name of another caller than the client's own.
    pub fn call_as(&mut self, caller: &Caller, request: &Request<'_>, out: &mut Vec<u8>) -> u32 {
        let xid = self.next_xid();
        self.begin(xid, request, record(caller, xid, request), out)
    }

    fn begin(
        &mut self,
        xid: u32,
        request: &Request<'_>,
        record: Vec<u8>,
        out: &mut Vec<u8>,
    ) -> u32 {
        out.extend_from_slice(&record);
        self.in_flight.insert(xid, InFlight { called: request.called(), record });
        xid
    }

    /// The call's reply is not waited for any more: when it comes, it is one for no call in flight.
    pub fn forget(&mut self, xid: u32) {
        self.in_flight.remove(&xid);
    }

    /// Appends the record of a call in flight once more. `false`: its reply was polled.
    pub fn retransmit(&self, xid: u32, out: &mut Vec<u8>) -> bool {
        let call = self.in_flight.get(&xid);
        call.inspect(|call| out.extend_from_slice(&call.record)).is_some()
    }

    /// Appends the records of all calls in flight once more, by their numbers.
    pub fn retransmit_all(&self, out: &mut Vec<u8>) {
        self.in_flight.values().for_each(|call| out.extend_from_slice(&call.record));
    }

    /// A new connection: the bytes that were received and not polled belonged to another stream.
    pub fn reconnected(&mut self) {
        self.input = Input::default();
    }

    /// Where the next bytes of the stream go. Poll until there is no reply before more are received.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// So many bytes of the space are filled.
    pub fn filled(&mut self, bytes: usize) {
        self.input.filled(bytes);
    }

    /// The next bytes of the stream, as a copy.
    pub fn received(&mut self, bytes: &[u8]) {
        self.input.push(bytes);
    }

    /// The next reply to a call in flight, which it is then no longer. `None`: more bytes are needed.
    pub fn poll_reply(&mut self) -> Result<Option<Reply<'_>>, StreamError> {
        let (place, called) = loop {
            let Some(place) = self.input.next_record()? else { return Ok(None) };
            let record = self.input.bytes(&place);
            let Some(xid) = record.first_chunk().filter(|_| rpc::is_reply(record)) else {
                return Err(StreamError::NoReply);
            };
            match self.in_flight.remove(&u32::from_be_bytes(*xid)) {
                Some(call) => break (place, call.called),
                None => self.unmatched_replies += 1,
            }
        };
        let reply = rpc::Reply::parse(self.input.bytes(&place));
        let (xid, head, results) = reply.map_err(|_| StreamError::NoReply)?;
        Ok(Some(Reply { xid, called, head, results }))
    }

    /// The number of the next call: none that is in flight, also after 2^32 calls.
    fn next_xid(&mut self) -> u32 {
        loop {
            self.last_xid = self.last_xid.wrapping_add(1);
            if !self.in_flight.contains_key(&self.last_xid) {
                return self.last_xid;
            }
        }
    }
}

fn record(caller: &Caller, xid: u32, request: &Request<'_>) -> Vec<u8> {
    let Caller { machine, uid, gid, groups } = caller;
    let system = System { stamp: 0, machine, uid: *uid, gid: *gid, groups: *groups };
    let (program, version, procedure) = request.called().numbers();
    let (arguments, data) = (request.arguments(), request.data());
    let credential = Credential::System(system);
    let mut record = crate::record::begin(256 + arguments.len() + data.len());
    Call { xid, program, version, procedure, credential, arguments: &arguments }.put(&mut record);
    record.extend_from_slice(data);
    record.resize(record.len() + padding(data.len()), 0);
    let bytes = u32::try_from(record.len() - MARK_BYTES).expect("a call of less than 2 GiB");
    record[..MARK_BYTES].copy_from_slice(&(LAST_FRAGMENT | bytes).to_be_bytes());
    record
}
