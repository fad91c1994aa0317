//! A mount's read-ahead: whether the reads of one open file are sequential, and how far to read ahead of them.
//!
//! It plans and remembers offsets only; who reads, and where the bytes wait, is `read`'s business. A kernel sends the
//! reads of one sequential reader several at a time and not strictly in order, so a read counts as the next one when it
//! lies near where the run has come to, but only once there is a run: single random reads never plan anything.

use crate::limits::{
    AHEAD_BYTES_MAX, AHEAD_BYTES_MIN, CHUNK_BYTES, LONG_CHUNK_BYTES, RUN_READS_MIN,
    RUN_SLACK_BYTES, START_BYTES_MIN,
};
use std::ops::Range;

/// The reads of one open file.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    next: u64,
    reads: u32,
    run_bytes: u64,
    planned: u64,
}

impl Stream {
    /// A read of `bytes` bytes at `offset` was asked for.
    pub fn handle_read(&mut self, offset: u64, bytes: u64) {
        if self.continues(offset) {
            self.reads = self.reads.saturating_add(1);
            self.run_bytes = self.run_bytes.saturating_add(bytes);
            self.next = self.next.max(offset + bytes);
        } else {
            let from_start = offset == 0 && bytes >= START_BYTES_MIN;
            let reads = if from_start { RUN_READS_MIN } else { 1 };
            *self = Stream { next: offset + bytes, reads, run_bytes: bytes, planned: 0 };
        }
    }

    /// Whether the reads so far are a sequential run.
    pub fn is_run(&self) -> bool {
        self.reads >= RUN_READS_MIN
    }

    /// The next chunk to read ahead of a file of `size` bytes, if it is time for one and `room` holds the shortest:
    /// starts at a multiple of [`CHUNK_BYTES`]; short at the start of a run, then up to [`LONG_CHUNK_BYTES`], which it
    /// does not straddle.
    pub fn poll_chunk(&mut self, size: u64, room: u64) -> Option<Range<u64>> {
        let start = self.planned.max(self.next.next_multiple_of(CHUNK_BYTES));
        let due = self.is_run() && start < size && start < self.next + self.window();
        if !due || room < CHUNK_BYTES {
            return None;
        }
        let long = self.run_bytes >= 2 * LONG_CHUNK_BYTES;
        let chunk = if long { LONG_CHUNK_BYTES } else { CHUNK_BYTES };
        let most = start.saturating_add(room / CHUNK_BYTES * CHUNK_BYTES);
        let end = (start + 1).next_multiple_of(chunk).min(most);
        self.planned = end;
        Some(start..end.min(size))
    }

    /// Where the run has come to: what lies well before it will hardly be asked for again.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// How far ahead: as much as was read so far, within limits.
    fn window(&self) -> u64 {
        (2 * self.run_bytes).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
    }

    fn continues(&self, offset: u64) -> bool {
        let exact = self.reads > 0 && offset == self.next;
        exact || self.is_run() && offset.abs_diff(self.next) <= RUN_SLACK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_sequential_reader_is_led_by_at_most_the_window() {
        let (mut stream, mut covered) = (Stream::default(), 0);
        for offset in (0..16 * MIB).step_by(128 << 10) {
            assert!(offset == 0 || covered >= offset, "read ahead lags at {offset}");
            stream.handle_read(offset, 128 << 10);
            covered = covered.max(offset + (128 << 10));
            while let Some(chunk) = stream.poll_chunk(16 * MIB, u64::MAX) {
                assert!(chunk.start.is_multiple_of(CHUNK_BYTES));
                let most = offset + AHEAD_BYTES_MAX + CHUNK_BYTES + LONG_CHUNK_BYTES;
                assert!(chunk.end <= most.min(16 * MIB));
                covered = covered.max(chunk.end);
            }
        }
        assert_eq!(covered, 16 * MIB);
    }

    /// The chunks planned for a reader of 16 MiB while there is `room` for what is ahead.
    fn planned(room: u64) -> Vec<Range<u64>> {
        let (mut stream, mut chunks) = (Stream::default(), Vec::new());
        for offset in (0..16 * MIB).step_by(128 << 10) {
            stream.handle_read(offset, 128 << 10);
            while let Some(chunk) = stream.poll_chunk(16 * MIB, room) {
                chunks.push(chunk);
            }
        }
        chunks
    }

    #[test]
    fn chunks_follow_one_another_and_grow_with_the_run() {
        let chunks = planned(u64::MAX);
        let bytes: Vec<u64> = chunks.iter().map(|chunk| chunk.end - chunk.start).collect();
        assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((bytes[0], *bytes.last().unwrap()), (CHUNK_BYTES, LONG_CHUNK_BYTES));
        let long = chunks.iter().filter(|chunk| chunk.end - chunk.start == LONG_CHUNK_BYTES);
        assert!(long.into_iter().all(|chunk| chunk.start.is_multiple_of(LONG_CHUNK_BYTES)));
    }

    #[test]
    fn chunks_fit_the_room_and_none_is_planned_without() {
        let chunks = planned(2 * CHUNK_BYTES + 1);
        assert!(chunks.iter().all(|chunk| chunk.end - chunk.start <= 2 * CHUNK_BYTES));
        assert_eq!(chunks.last().unwrap().end, 16 * MIB);
        assert_eq!(planned(CHUNK_BYTES - 1), []);
    }

    #[test]
    fn a_kernel_that_reorders_keeps_its_run() {
        let mut stream = Stream::default();
        for step in [0u64, 1, 3, 2, 4, 6, 5] {
            stream.handle_read(step * (128 << 10), 128 << 10);
        }
        assert!(stream.is_run());
        assert_eq!(stream.position(), 7 * (128 << 10));
    }

    proptest! {
        /// 8 KiB reads that never follow one another plan nothing, wherever they are.
        #[test]
        fn random_reads_plan_nothing(blocks in prop::collection::vec(0u64..1 << 20, 1..200)) {
            let (mut stream, mut last) = (Stream::default(), None);
            for block in blocks {
                if last.is_some_and(|last| block == last + 1) { continue; }
                stream.handle_read(block * 8192, 8192);
                prop_assert_eq!(stream.poll_chunk(1 << 40, u64::MAX), None);
                last = Some(block);
            }
        }
    }
}
