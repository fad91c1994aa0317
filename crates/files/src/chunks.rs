//! Bytes of a file that were read ahead of a sequential reader.
//!
//! A chunk is an image of the file as of some moment after it was asked for. A local write to its range, a truncation,
//! a new version of the file or its age take it away, so a read never finds in it what it would not find at the
//! servers: close-to-open consistency is not weaker with read-ahead than without.

use crate::limits::{AHEAD_AGE_MAX, RUN_SLACK_BYTES};
use endpoint::Frame;
use node::rings::Handle;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use wire::Time;

/// The handle of chunks that no open file's reader asked for.
pub(crate) const NO_READER: Handle = Handle(0);

/// The chunks of one file, by first byte.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: BTreeMap<u64, Chunk>,
    numbers: u64,
}

struct Chunk {
    /// The handle for whose reads it is.
    reader: Handle,
    end: u64,
    number: u64,
    asked: Time,
    served: u64,
    /// `None` while it is under way.
    data: Option<Frame>,
    _room: Room,
}

/// A share of the mount's read-ahead memory, given back when it is dropped.
pub(crate) struct Room {
    used: Rc<Cell<u64>>,
    bytes: u64,
}

impl Room {
    pub fn take(used: &Rc<Cell<u64>>, bytes: u64, most: u64) -> Option<Room> {
        let after = used.get() + bytes;
        (after <= most).then(|| {
            used.set(after);
            Room { used: used.clone(), bytes }
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes);
    }
}

/// Result of a look for data read ahead.
pub(crate) enum Prefetched {
    Missing,
    /// It will come, or be missing: when the file changes.
    Coming,
    Here(Vec<Frame>),
}

/// Whether a chunk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Nothing,
    UnderWay,
    Whole,
}

impl Chunks {
    /// Whether the byte at `offset` was read ahead.
    pub fn arrived(&self, offset: u64) -> Arrived {
        match self.touching(&(offset..offset + 1)).next() {
            None => Arrived::Nothing,
            Some((_, chunk)) if chunk.data.is_none() => Arrived::UnderWay,
            Some(_) => Arrived::Whole,
        }
    }

    /// A chunk is going to be read: its number, unless a part of it is there.
    pub fn begin(
        &mut self,
        reader: Handle,
        range: &Range<u64>,
        room: Room,
        now: Time,
    ) -> Option<u64> {
        if self.touching(range).next().is_some() {
            return None;
        }
        self.numbers += 1;
        let (end, number) = (range.end, self.numbers);
        let chunk = Chunk { reader, end, number, asked: now, served: 0, data: None, _room: room };
        self.chunks.insert(range.start, chunk);
        Some(number)
    }

    /// Whether the chunk is still wanted.
    pub fn wants(&self, start: u64, number: u64) -> bool {
        self.chunks.get(&start).is_some_and(|chunk| chunk.number == number)
    }

    /// The chunk was read, or could not be.
    pub fn arrive(&mut self, start: u64, number: u64, data: Option<Frame>) {
        if !self.wants(start, number) {
            return;
        }
        match data {
            Some(frame) => {
                let chunk = self.chunks.get_mut(&start).expect("it is wanted");
                chunk.data = Some(frame);
            }
            None => drop(self.chunks.remove(&start)),
        }
    }

    /// The bytes of `range`, when all of them were read ahead. Chunks handed out completely are forgotten.
    pub fn find(&mut self, range: &Range<u64>, now: Time) -> Prefetched {
        self.forget_old(now);
        let (mut at, mut coming, mut frames) = (range.start, false, Vec::new());
        for (start, chunk) in self.touching(range) {
            if start > at {
                return Prefetched::Missing;
            }
            let to = range.end.min(chunk.end);
            match &chunk.data {
                Some(data) => frames.push(data.slice((at - start) as usize..(to - start) as usize)),
                None => coming = true,
            }
            at = to;
        }
        match (at == range.end, coming) {
            (false, _) => Prefetched::Missing,
            (true, true) => Prefetched::Coming,
            (true, false) => {
                self.note_served(range);
                Prefetched::Here(frames)
            }
        }
    }

    fn note_served(&mut self, range: &Range<u64>) {
        let starts: Vec<u64> = self.touching(range).map(|(start, _)| start).collect();
        for start in starts {
            let chunk = self.chunks.get_mut(&start).expect("just found");
            chunk.served += chunk.end.min(range.end) - start.max(range.start);
            if chunk.served >= chunk.end - start {
                self.chunks.remove(&start);
            }
        }
    }

    /// Forgets what touches `range`.
    pub fn forget(&mut self, range: &Range<u64>) {
        let starts: Vec<u64> = self.touching(range).map(|(start, _)| start).collect();
        starts.iter().for_each(|start| drop(self.chunks.remove(start)));
    }

    /// Forgets what was read ahead for a reader who is at `position` by now, and has left it well behind.
    pub fn forget_before(&mut self, reader: Handle, position: u64) {
        let behind = |chunk: &Chunk| chunk.end + RUN_SLACK_BYTES <= position;
        self.chunks.retain(|_, chunk| chunk.reader != reader || !behind(chunk));
    }

    /// Forgets what is too old to be handed out.
    pub fn forget_old(&mut self, now: Time) {
        self.chunks
            .retain(|_, chunk| chunk.data.is_none() || now.since(chunk.asked) <= AHEAD_AGE_MAX);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }

    fn touching(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Chunk)> {
        let before = self.chunks.range(..=range.start).next_back();
        let first = before.filter(|(_, chunk)| chunk.end > range.start).map(|(start, _)| *start);
        let from = first.unwrap_or(range.start);
        self.chunks.range(from..range.end.max(from)).map(|(start, chunk)| (*start, chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::{Frames, HeapRegion};

    fn frames_of(found: Prefetched) -> Option<Vec<Vec<u8>>> {
        match found {
            Prefetched::Here(frames) => Some(frames.iter().map(|frame| frame.to_vec()).collect()),
            _ => None,
        }
    }

    #[test]
    fn chunks_serve_reads_across_their_borders_once() {
        let (pool, used) = (Frames::new(HeapRegion::new(16)), Rc::new(Cell::new(0)));
        let mut chunks = Chunks::default();
        let begin = |chunks: &mut Chunks, range: Range<u64>| {
            let room = Room::take(&used, 4, 8).unwrap();
            chunks.begin(Handle(1), &range, room, Time::ZERO).unwrap()
        };
        let first = begin(&mut chunks, 0..4);
        let second = begin(&mut chunks, 4..8);
        assert!(Room::take(&used, 1, 8).is_none());
        chunks.arrive(0, first, pool.copy_of(b"abcd"));
        assert!(matches!(chunks.find(&(2..6), Time::ZERO), Prefetched::Coming));
        assert!(matches!(chunks.find(&(6..10), Time::ZERO), Prefetched::Missing));
        chunks.arrive(4, second, pool.copy_of(b"efgh"));
        let found = frames_of(chunks.find(&(2..6), Time::ZERO));
        assert_eq!(found, Some(vec![b"cd".to_vec(), b"ef".to_vec()]));
        assert!(frames_of(chunks.find(&(0..2), Time::ZERO)).is_some());
        assert!(matches!(chunks.find(&(0..2), Time::ZERO), Prefetched::Missing));
        assert_eq!(used.get(), 4);
    }

    #[test]
    fn a_write_or_age_takes_chunks_away_even_those_under_way() {
        let (pool, used) = (Frames::new(HeapRegion::new(16)), Rc::new(Cell::new(0)));
        let mut chunks = Chunks::default();
        let room = || Room::take(&used, 4, 100).unwrap();
        let old = chunks.begin(Handle(1), &(0..4), room(), Time::ZERO).unwrap();
        chunks.forget(&(3..9));
        let new = chunks.begin(Handle(1), &(0..4), room(), Time::ZERO).unwrap();
        chunks.arrive(0, old, pool.copy_of(b"old!"));
        assert!(matches!(chunks.find(&(0..4), Time::ZERO), Prefetched::Coming));
        chunks.arrive(0, new, pool.copy_of(b"new!"));
        assert!(matches!(chunks.find(&(0..4), Time(2_000_000_000)), Prefetched::Missing));
        assert_eq!(used.get(), 0);
    }
}
