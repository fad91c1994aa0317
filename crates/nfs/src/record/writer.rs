//! Records for a stream: heads as bytes, data as the frames it lies in, in one list for `writev`.

use crate::xdr::padding;
use endpoint::Frame;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Bytes of the mark before a fragment.
pub const MARK_BYTES: usize = 4;
/// In a mark: the fragment is the last of its record.
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// A buffer for the head of a record: the mark's place is kept free, so that nothing moves later.
pub fn begin(bytes: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(MARK_BYTES + bytes);
    head.extend_from_slice(&[0; MARK_BYTES]);
    head
}

/// One record: a head, then the first `data_bytes` bytes of the frames, then their padding.
#[derive(Debug)]
pub struct Outgoing {
    head: Vec<u8>,
    frames: Vec<Frame>,
    padding: usize,
}

impl Outgoing {
    /// Of a head that was begun with [`begin`], without data.
    pub fn of(head: Vec<u8>) -> Outgoing {
        Outgoing::with_data(head, Vec::new(), 0)
    }

    /// With data: the first `bytes` bytes of the list. Panics when it has fewer.
    pub fn with_data(mut head: Vec<u8>, mut frames: Vec<Frame>, bytes: usize) -> Outgoing {
        let mut missing = bytes;
        frames.retain_mut(|frame| {
            let part = frame.len().min(missing);
            if part < frame.len() {
                *frame = frame.slice(0..part);
            }
            missing -= part;
            part > 0
        });
        assert_eq!(missing, 0, "frames with all of the data");
        let padding = padding(bytes);
        let length = (head.len() - MARK_BYTES + bytes + padding) as u32;
        assert!(length < LAST_FRAGMENT);
        head[..MARK_BYTES].copy_from_slice(&(LAST_FRAGMENT | length).to_be_bytes());
        Outgoing { head, frames, padding }
    }

    /// The head without the mark: what a datagram has, and what the duplicate-request cache keeps.
    pub fn head(&self) -> &[u8] {
        &self.head[MARK_BYTES..]
    }

    /// The record as one datagram.
    pub fn datagram(&self) -> Vec<u8> {
        self.slices().flatten().skip(MARK_BYTES).copied().collect()
    }

    /// Bytes of the record with its mark.
    pub fn bytes(&self) -> usize {
        let data: usize = self.frames.iter().map(|frame| frame.len()).sum();
        self.head.len() + data + self.padding
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let zeros = &[0; 3][..self.padding];
        let frames = self.frames.iter().map(|frame| &frame[..]);
        std::iter::once(&self.head[..]).chain(frames).chain(std::iter::once(zeros))
    }
}

/// Records that wait to be written, oldest first.
///
/// The owner looks at [`bytes`](Writer::bytes): a client that sends calls and reads no replies is not read from while
/// much waits.
#[derive(Debug, Default)]
pub struct Writer {
    waiting: VecDeque<Outgoing>,
    /// Bytes of the first one that are written.
    written: usize,
    bytes: usize,
}

impl Writer {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a record.
    pub fn push(&mut self, record: Outgoing) {
        self.bytes += record.bytes();
        self.waiting.push_back(record);
    }

    /// The bytes to write next.
    pub fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let mut skip = self.written;
        self.waiting.iter().flat_map(Outgoing::slices).filter_map(move |slice| {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            (skipped < slice.len()).then(|| IoSlice::new(&slice[skipped..]))
        })
    }

    /// So many of these bytes are written.
    pub fn wrote(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes, "no more than there was to write");
        self.bytes -= bytes;
        self.written += bytes;
        while let Some(first) = self.waiting.front() {
            if self.written < first.bytes() {
                break;
            }
            self.written -= first.bytes();
            self.waiting.pop_front();
        }
    }
}
