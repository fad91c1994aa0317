//! One connection: what arrives on it, what waits to leave, and what of it is in progress.

use crate::limits::{
    CALL_DATA_BYTES_MAX, CALL_HEAD_BYTES_MAX, CALLS_MAX, IDLE_SPAN, UNREAD_BYTES_MAX,
};
use crate::record::{Progress, Reader, RecordError, Writer};
use crate::server::Origin;
use crate::v3::call_plan;
use endpoint::Frames;
use wire::Time;

pub(super) struct Connection {
    pub origin: Origin,
    pub reader: Reader,
    pub writer: Writer,
    /// When bytes last came or went.
    pub moved: Time,
    /// It waits for frames, or for calls of others to end.
    pub waits: bool,
    /// When the record began that is arriving.
    half_since: Option<Time>,
    calls: usize,
    data_bytes: usize,
}

impl Connection {
    pub fn new(origin: Origin, now: Time) -> Connection {
        Connection {
            origin,
            reader: Reader::new(CALL_HEAD_BYTES_MAX),
            writer: Writer::default(),
            moved: now,
            waits: false,
            half_since: None,
            calls: 0,
            data_bytes: 0,
        }
    }

    /// Whether another of its calls may begin.
    pub fn may_begin(&self) -> bool {
        self.calls < CALLS_MAX
            && self.data_bytes < CALL_DATA_BYTES_MAX
            && self.writer.bytes() < UNREAD_BYTES_MAX
    }

    /// Whether more of its bytes are of use.
    pub fn may_read(&self) -> bool {
        self.may_begin() && !self.waits
    }

    /// It has so many calls more, with so much data.
    pub fn hold(&mut self, calls: isize, data_bytes: isize) {
        let add = |number: usize, change| number.checked_add_signed(change).expect("held before");
        self.calls = add(self.calls, calls);
        self.data_bytes = add(self.data_bytes, data_bytes);
    }

    /// Whether it is between two records and has no reply to send.
    pub fn is_idle(&self) -> bool {
        self.reader.is_at_rest() && self.calls == 0 && self.writer.bytes() == 0
    }

    /// The next record.
    pub fn poll(&mut self, frames: &Frames, now: Time) -> Result<Progress, RecordError> {
        let progress = self.reader.poll(frames, &mut call_plan)?;
        match &progress {
            Progress::Record(_) => self.half_since = None,
            _ if self.reader.is_at_rest() => self.half_since = None,
            _ => self.half_since = self.half_since.or(Some(now)),
        }
        Ok(progress)
    }

    /// Fewest bytes of entries to request of a directory.
    pub fn still_since(&self) -> Option<Time> {
        let half = self.half_since.filter(|_| self.may_read());
        let unread = (self.writer.bytes() > 0).then_some(self.moved);
        half.into_iter().chain(unread).min()
    }

    /// Bytes that it holds meanwhile.
    pub fn stalled_bytes(&self) -> usize {
        self.reader.data_bytes() + self.reader.memory_bytes() + self.writer.bytes()
    }

    /// Gives its buffer back when it has been idle for long.
    pub fn rest(&mut self, now: Time) {
        if self.is_idle() && now.since(self.moved) >= IDLE_SPAN {
            self.reader.release();
        }
    }
}
