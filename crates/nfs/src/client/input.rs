//! Records of replies on a stream, in memory of the client's own.
//!
//! A record of one fragment, which is what servers send, stays where it was received.

use crate::limits::{IO_BYTES_MAX, REPLY_HEAD_BYTES_MAX};
use crate::record::{LAST_FRAGMENT, MARK_BYTES};
use std::ops::Range;

/// Bytes that [`Input::space`] has at least: a server writes more at a time to who reads more.
const SPACE_BYTES: usize = IO_BYTES_MAX;
/// Bytes of a reply: the longest head, and data.
const RECORD_BYTES_MAX: usize = REPLY_HEAD_BYTES_MAX + IO_BYTES_MAX;

/// A record that is longer than any reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reply of more than {RECORD_BYTES_MAX} bytes")]
pub struct RecordTooLong;

/// A record, by where it is.
pub(super) enum Record {
    Received(Range<usize>),
    Joined,
}

/// Bytes that were received and not consumed.
#[derive(Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The fragments of the record that is being received.
    fragments: Vec<u8>,
    /// A whole record that was fragments.
    joined: Vec<u8>,
}

impl Input {
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() - self.end < SPACE_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let wanted = self.end + SPACE_BYTES;
            self.buffer.resize(wanted.max(self.buffer.len()), 0);
        }
        &mut self.buffer[self.end..]
    }

    pub(super) fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.end, "no more than the space had");
        self.end += bytes;
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let (now, later) = bytes.split_at(bytes.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            self.filled(now.len());
            bytes = later;
        }
    }

    pub(super) fn next_record(&mut self) -> Result<Option<Record>, RecordTooLong> {
        while let Some((is_last, fragment)) = self.fragment()? {
            if is_last && self.fragments.is_empty() {
                return Ok(Some(Record::Received(fragment)));
            }
            self.fragments.extend_from_slice(&self.buffer[fragment]);
            if is_last {
                self.joined = std::mem::take(&mut self.fragments);
                return Ok(Some(Record::Joined));
            }
        }
        Ok(None)
    }

    pub(super) fn bytes(&self, place: &Record) -> &[u8] {
        match place {
            Record::Received(range) => &self.buffer[range.clone()],
            Record::Joined => &self.joined,
        }
    }

    /// The next fragment, which is consumed, and whether it is the last of its record.
    fn fragment(&mut self) -> Result<Option<(bool, Range<usize>)>, RecordTooLong> {
        let received = &self.buffer[self.start..self.end];
        let Some(mark) = received.first_chunk().map(|mark| u32::from_be_bytes(*mark)) else {
            return Ok(None);
        };
        let bytes = (mark & !LAST_FRAGMENT) as usize;
        if self.fragments.len() + bytes > RECORD_BYTES_MAX {
            return Err(RecordTooLong);
        }
        if received.len() < MARK_BYTES + bytes {
            return Ok(None);
        }
        let start = self.start + MARK_BYTES;
        self.start = start + bytes;
        Ok(Some((mark & LAST_FRAGMENT != 0, start..start + bytes)))
    }
}
