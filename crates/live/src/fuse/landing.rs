//! Where requests land: pages of the pool behind a small head, so that the data of a WRITE is page-aligned in frames
//! of its own from the moment the kernel copies it.
//!
//! There is always room for the largest request. A write takes the pages it filled and leaves the rest to the next
//! one; a small write is copied out instead, so that it never keeps a large run from the pool.

use super::abi::{IN_HEADER_BYTES, WRITE_IN_BYTES};
use super::limits::{COPY_BYTES_MAX, IO_BYTES_MAX};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, FrameMut, Frames};
use std::collections::VecDeque;
use std::io::IoSliceMut;

/// Bytes before the data of a WRITE.
pub const HEAD_BYTES: usize = IN_HEADER_BYTES + WRITE_IN_BYTES;
/// Sizes of runs to ask the pool for, best first: in a fragmented pool many small ones serve as well.
const RUNS_BYTES: [usize; 3] = [IO_BYTES_MAX, IO_BYTES_MAX / 8, IO_BYTES_MAX / 64];
/// Most runs held: one begun and the largest request in the smallest runs, and one for the rounding.
pub const RUNS_MAX: usize = 64 + 2;

/// Room for one request.
pub struct Landing {
    head: [u8; HEAD_BYTES],
    runs: VecDeque<FrameMut>,
}

impl Landing {
    /// Without room yet.
    pub fn new() -> Landing {
        Landing { head: [0; HEAD_BYTES], runs: VecDeque::with_capacity(RUNS_MAX) }
    }

    /// Whether there is room for the largest request, after taking from the pool what is missing.
    pub fn make_room(&mut self, frames: &Frames) -> bool {
        while self.room() < IO_BYTES_MAX {
            let Some(run) = RUNS_BYTES.iter().find_map(|bytes| frames.alloc(*bytes)) else {
                return false;
            };
            self.runs.push_back(run);
        }
        true
    }

    fn room(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The head.
    pub fn head(&self) -> &[u8; HEAD_BYTES] {
        &self.head
    }

    /// Where the kernel puts a request.
    pub fn slices(&mut self) -> impl Iterator<Item = IoSliceMut<'_>> {
        let head = std::iter::once(IoSliceMut::new(&mut self.head));
        head.chain(self.runs.iter_mut().map(|run| IoSliceMut::new(run)))
    }

    /// Copies the `bytes` bytes of a request that stand behind its header to `body`.
    pub fn copy_body(&self, bytes: usize, body: &mut Vec<u8>) {
        let end = bytes.min(HEAD_BYTES);
        body.clear();
        body.extend_from_slice(&self.head[IN_HEADER_BYTES.min(end)..end]);
        self.copy_data(bytes - end, body);
    }

    fn copy_data(&self, mut bytes: usize, to: &mut Vec<u8>) {
        for run in &self.runs {
            let part = bytes.min(run.len());
            to.extend_from_slice(&run[..part]);
            bytes -= part;
        }
    }

    /// The `bytes` bytes of data behind the head, as frames of their own.
    pub fn take(&mut self, bytes: usize, frames: &Frames) -> Vec<Frame> {
        let small = if bytes <= COPY_BYTES_MAX { frames.alloc_exact(bytes) } else { None };
        match small {
            Some(frame) => vec![self.copied(frame)],
            None => self.cut(bytes),
        }
    }

    fn copied(&self, mut frame: FrameMut) -> Frame {
        let mut at = 0;
        for run in &self.runs {
            let part = run.len().min(frame.len() - at);
            frame[at..at + part].copy_from_slice(&run[..part]);
            at += part;
        }
        frame.freeze()
    }

    fn cut(&mut self, mut bytes: usize) -> Vec<Frame> {
        let mut data = Vec::with_capacity(2);
        while bytes > 0 {
            let mut run = self.runs.pop_front().expect("no more data than there was room");
            let part = bytes.min(run.len());
            let rest = run.split_off(part.next_multiple_of(PAGE_BYTES).min(run.len()));
            if !rest.is_empty() {
                self.runs.push_front(rest);
            }
            run.truncate(part);
            data.push(run.freeze());
            bytes -= part;
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::HeapRegion;
    use proptest::prelude::*;

    /// Puts `bytes` bytes of a pattern where the kernel would.
    fn land(landing: &mut Landing, bytes: usize, seed: u8) -> Vec<u8> {
        let request: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        let mut rest = &request[..];
        for mut slice in landing.slices() {
            let part = rest.len().min(slice.len());
            slice[..part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
        }
        assert!(rest.is_empty());
        request
    }

    #[test]
    fn a_full_pool_means_no_room_and_its_return_means_room() {
        let frames = Frames::new(HeapRegion::new(300));
        let mut landing = Landing::new();
        assert!(landing.make_room(&frames));
        land(&mut landing, HEAD_BYTES + (1 << 20), 1);
        let data = landing.take(1 << 20, &frames);
        assert_eq!(data.len(), 1);
        assert!(!landing.make_room(&frames));
        drop(data);
        assert!(landing.make_room(&frames));
    }

    #[test]
    fn a_small_write_leaves_the_large_run_alone() {
        let frames = Frames::new(HeapRegion::new(257));
        let mut landing = Landing::new();
        assert!(landing.make_room(&frames));
        land(&mut landing, HEAD_BYTES + 100, 1);
        let data = landing.take(100, &frames);
        assert_eq!(frames.free_pages(), 0);
        assert!(landing.make_room(&frames));
        drop(data);
        assert_eq!(frames.free_pages(), 1);
    }

    proptest! {
        /// Writes of any size, held for a while: what was written is what the frames hold, page-aligned.
        #[test]
        fn data_arrives_whole_and_aligned(sizes in prop::collection::vec((0usize..=1 << 20, 0usize..4), 1..12)) {
            let frames = Frames::new(HeapRegion::new(2000));
            let mut landing = Landing::new();
            let mut held = Vec::new();
            for (seed, (bytes, keep)) in sizes.into_iter().enumerate() {
                prop_assert!(landing.make_room(&frames));
                prop_assert!(landing.runs.len() <= RUNS_MAX);
                let request = land(&mut landing, HEAD_BYTES + bytes, seed as u8);
                let mut body = Vec::new();
                landing.copy_body(request.len(), &mut body);
                prop_assert!(body == request[IN_HEADER_BYTES..]);
                let data = landing.take(bytes, &frames);
                prop_assert!(data.iter().all(|frame| frame.offset() % PAGE_BYTES == 0));
                held.push((data, request[HEAD_BYTES..].to_vec()));
                if held.len() > keep {
                    let (data, wanted) = held.remove(0);
                    prop_assert!(data.iter().flat_map(|frame| frame.iter()).eq(wanted.iter()));
                }
            }
            drop((landing, held));
            prop_assert_eq!(frames.free_pages(), 2000);
        }
    }
}
