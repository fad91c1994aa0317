//! Bytes in a list of frames: what a write brought, never copied on the way unless it is many crumbs.

use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, Frames};
use std::ops::Range;

/// Frames in order. No frame is empty.
#[derive(Clone, Debug, Default)]
pub struct Gather(Vec<Frame>);

impl Gather {
    /// The bytes of `frames`, in order.
    pub fn new(mut frames: Vec<Frame>) -> Gather {
        frames.retain(|frame| !frame.is_empty());
        Gather(frames)
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|frame| frame.len() as u64).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the pool that the frames keep from others: each frame in whole pages.
    pub fn held(&self) -> u64 {
        self.0.iter().map(|frame| frame.len().next_multiple_of(PAGE_BYTES) as u64).sum()
    }

    /// The frames.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// The frames, to be handed on.
    pub fn into_frames(self) -> Vec<Frame> {
        self.0
    }

    /// Another handle to some of the bytes. Panics when `range` is outside.
    pub fn slice(&self, range: Range<u64>) -> Gather {
        assert!(range.start <= range.end, "a range that does not run backwards");
        assert!(range.end <= self.len(), "a range inside the bytes");
        let mut at = 0;
        let mut found = Vec::new();
        for frame in &self.0 {
            let end = at + frame.len() as u64;
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                found.push(frame.slice((from - at) as usize..(to - at) as usize));
            }
            at = end;
        }
        Gather(found)
    }

    /// Puts the bytes of `next` behind these.
    pub fn append(&mut self, mut next: Gather) {
        self.0.append(&mut next.0);
    }

    /// Copies all bytes to the start of `into`, which is long enough.
    pub fn copy_to(&self, into: &mut [u8]) {
        let mut at = 0;
        for frame in &self.0 {
            into[at..at + frame.len()].copy_from_slice(frame);
            at += frame.len();
        }
    }

    /// The same bytes in one run of the pool, when that has one.
    pub fn joined(&self, pool: &Frames) -> Option<Gather> {
        let mut frame = pool.alloc_exact(self.len() as usize)?;
        self.copy_to(&mut frame);
        Some(Gather(vec![frame.freeze()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::HeapRegion;

    #[test]
    fn slices_and_joins_are_the_same_bytes() {
        let pool = Frames::new(HeapRegion::new(64));
        let parts = [&b"abc"[..], b"", b"defgh", b"ij"];
        let gather = Gather::new(parts.iter().map(|part| pool.copy_of(part).unwrap()).collect());
        assert_eq!((gather.len(), gather.held()), (10, 3 * 4096));
        for from in 0..=10u64 {
            for to in from..=10 {
                let slice = gather.slice(from..to);
                let mut bytes = vec![0; (to - from) as usize];
                slice.copy_to(&mut bytes);
                assert_eq!(bytes, b"abcdefghij"[from as usize..to as usize]);
            }
        }
        assert_eq!(gather.joined(&pool).unwrap().frames()[0][..], b"abcdefghij"[..]);
    }
}
