//! The call table: what the client knows of each call it has open.

use crate::limits::{OVERLOAD_PAUSE, RETRY};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Endpoint, Frame, FrameMut};
use std::time::Duration;
use wire::limits::BODY_BYTES;
use wire::{Channel, NodeId, SessionEpoch, Time, Token};

/// Names an open call: the index of its record and the record's generation, as they travel in the call header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub(crate) u32);

impl CallId {
    pub(crate) fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// A call without its frames.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The node that is to serve it.
    pub to: NodeId,
    /// The service.
    pub channel: Channel,
    /// The operation, in the service's numbering.
    pub op: u16,
    /// Not to be executed twice.
    pub once: bool,
    /// When the caller stops waiting; [`Time::NEVER`] for never.
    pub deadline: Time,
    /// Arguments, at most 64 bytes.
    pub body: &'a [u8],
    /// Checksums that follow the data; a multiple of 8 bytes, at most 2040.
    pub trailer: &'a [u8],
    /// Comes back in the call's event.
    pub ticket: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Free,
    /// For a session, a slot, window or a pause to end.
    Waiting,
    /// In a slot of its session.
    Sent,
}

/// The operation's 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body(pub [u8; BODY_BYTES]);

impl Default for Body {
    fn default() -> Body {
        Body([0; BODY_BYTES])
    }
}

/// One call. The lists keep their memory from call to call.
#[derive(Debug, Default)]
pub(crate) struct Record {
    generation: u16,
    pub state: State,
    pub to: NodeId,
    pub channel: Channel,
    pub op: u16,
    pub once: bool,
    pub deadline: Time,
    /// When it was started.
    pub begun: Time,
    pub body: Body,
    pub trailer: Vec<u8>,
    pub ticket: u64,
    pub data: Vec<Frame>,
    pub into: Vec<FrameMut>,
    pub wants_data: bool,
    /// Bytes that `into` holds.
    pub room: usize,
    pub token: Token,
    pub slot: u16,
    pub sequence: u32,
    pub epoch: SessionEpoch,
    pub pages: u32,
    pub not_before: Time,
    pub retry_at: Time,
    pub retry_span: Duration,
    pub pause: Duration,
    pub delegated: Option<Delegated>,
}

/// Of a forwarded call: who waits for the reply, and where its payload goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delegated {
    pub origin: NodeId,
    pub epoch: SessionEpoch,
    pub call: u32,
    pub token: Token,
    /// The request that was forwarded: source, its session, slot, sequence.
    pub request: (NodeId, SessionEpoch, u16, u32),
}

impl Record {
    fn fill(&mut self, start: &Start<'_>, data: &mut Vec<Frame>, into: &mut Vec<FrameMut>) {
        assert!(start.body.len() <= BODY_BYTES, "a body of at most 64 bytes");
        assert!((start.channel.0 as usize) < Channel::COUNT, "a channel that exists");
        self.body = Body::default();
        self.body.0[..start.body.len()].copy_from_slice(start.body);
        (self.to, self.channel, self.op) = (start.to, start.channel, start.op);
        (self.once, self.deadline, self.ticket) = (start.once, start.deadline, start.ticket);
        self.trailer.extend_from_slice(start.trailer);
        std::mem::swap(&mut self.data, data);
        std::mem::swap(&mut self.into, into);
        self.wants_data = !self.into.is_empty();
        self.room = self.into.iter().map(|frame| frame.len()).sum();
        self.pages = pages(&self.data);
        (self.not_before, self.retry_at) = (Time::ZERO, Time::NEVER);
        (self.retry_span, self.pause) = (RETRY, OVERLOAD_PAUSE);
    }

    /// Whether bulk must not delay it: it may use the slots that bulk leaves free.
    pub fn is_control(&self) -> bool {
        matches!(self.channel, Channel::CONTROL | Channel::MEMBERS)
    }

    /// Revokes the token before anything else may happen to the frames, which then are in `into` again, unless a
    /// transfer was just filling them.
    pub fn revoke(&mut self, endpoint: &mut Endpoint) {
        let token = std::mem::take(&mut self.token);
        if token.is_some() {
            endpoint.release_replytoken(token, &mut self.into);
        }
    }
}

/// Pages that a receiver grants for `data`, which arrives as one run: what free runs are cut from are powers of two.
fn pages(data: &[Frame]) -> u32 {
    let bytes: usize = data.iter().map(|frame| frame.len()).sum();
    if bytes == 0 { 0 } else { bytes.div_ceil(PAGE_BYTES).next_power_of_two() as u32 }
}

/// All records.
#[derive(Debug)]
pub(crate) struct Calls {
    records: Box<[Record]>,
    free: Vec<u16>,
}

impl Calls {
    pub fn new(count: usize) -> Calls {
        let indices = u16::try_from(count).expect("at most 65,535 calls");
        Calls {
            records: (0..count).map(|_| Record::default()).collect(),
            free: (0..indices).rev().collect(),
        }
    }

    /// Takes memory for so many open calls, each with a frame either way and a trailer of so many bytes.
    pub fn reserve(&mut self, count: usize, trailer_bytes: usize) {
        for index in self.free.iter().rev().take(count) {
            let record = &mut self.records[*index as usize];
            record.data.reserve(1);
            record.into.reserve(1);
            record.trailer.reserve(trailer_bytes);
        }
    }

    pub fn open(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// A waiting record, or `None` and the lists as they were when all are in use.
    pub fn begin(
        &mut self,
        start: &Start<'_>,
        data: &mut Vec<Frame>,
        into: &mut Vec<FrameMut>,
    ) -> Option<CallId> {
        let index = self.free.pop()?;
        let record = &mut self.records[index as usize];
        assert!(record.state == State::Free, "a record that is given out is free");
        assert!(record.data.is_empty() && record.into.is_empty(), "a free record has no frames");
        record.generation = record.generation.wrapping_add(1);
        record.state = State::Waiting;
        record.fill(start, data, into);
        Some(CallId(u32::from(record.generation) << 16 | u32::from(index)))
    }

    /// The open calls.
    pub fn all_open(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.state != State::Free)
    }

    /// The open call of this name.
    pub fn find(&mut self, id: CallId) -> Option<&mut Record> {
        let record = self.records.get_mut(id.index())?;
        let same = u32::from(record.generation) == id.0 >> 16;
        (same && record.state != State::Free).then_some(record)
    }

    /// The name of an open record.
    pub fn id(&self, index: u16) -> CallId {
        CallId(u32::from(self.records[index as usize].generation) << 16 | u32::from(index))
    }

    pub fn at(&mut self, index: u16) -> &mut Record {
        &mut self.records[index as usize]
    }

    /// Whether a forwarded request, named as in [`Delegated`], is under way.
    pub fn is_forwarded(&self, request: (NodeId, SessionEpoch, u16, u32)) -> bool {
        let delegated = self.records.iter().filter_map(|record| record.delegated.as_ref());
        delegated.into_iter().any(|delegated| delegated.request == request)
    }

    /// Indices of all records, open or not.
    pub fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.records.len() as u16
    }

    /// Ends a call whose token is revoked or spent; its frames are released.
    pub fn end(&mut self, index: u16) {
        let record = &mut self.records[index as usize];
        assert!(record.state != State::Free, "a call ends once");
        assert!(!record.token.is_some(), "a token is revoked before its call ends");
        record.state = State::Free;
        record.data.clear();
        record.into.clear();
        record.trailer.clear();
        record.delegated = None;
        self.free.push(index);
    }
}
