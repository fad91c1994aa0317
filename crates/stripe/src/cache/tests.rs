//! The cache against a map of blocks.

use super::*;
use crate::protocol::{pieces, trailer_bytes};
use endpoint::HeapRegion;
use proptest::prelude::*;
use wire::checksum::block_crc;

const BLOCKS: u64 = 200;

#[derive(Clone, Debug)]
enum Op {
    /// From a writer.
    Write {
        offset: usize,
        bytes: usize,
    },
    /// From the disk.
    Insert {
        window: u64,
        first: usize,
        count: usize,
    },
    Commit {
        works: bool,
    },
    Cut {
        kept: u64,
    },
    Read {
        first: u64,
        count: u64,
    },
    /// Slices are kept while others write.
    Hold,
}

fn op() -> impl Strategy<Value = Op> {
    let size = BLOCKS as usize * 4096;
    prop_oneof![
        4 => (0..size - 100_000, prop_oneof![1usize..5000, 1usize..100_000])
            .prop_map(|(offset, bytes)| Op::Write { offset, bytes }),
        2 => (0usize..20, 1usize..20).prop_map(|(block, count)| Op::Write { offset: block * 8 * 4096, bytes: count * 4096 }),
        4 => (0u64..3, 0usize..60, 1usize..20)
            .prop_map(|(window, first, count)| Op::Insert { window, first, count: count.min(64 - first) }),
        2 => any::<bool>().prop_map(|works| Op::Commit { works }),
        1 => (0..BLOCKS).prop_map(|kept| Op::Cut { kept }),
        4 => (0..BLOCKS - 20, 1u64..20).prop_map(|(first, count)| Op::Read { first, count }),
        1 => Just(Op::Hold),
    ]
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

struct Model {
    cache: Cache,
    key: Key,
    /// Content of the disk.
    disk: Vec<u8>,
    /// Content that readers must see.
    now: Vec<u8>,
    held: Vec<(Frame, Vec<u8>)>,
}

impl Model {
    fn new(limit_bytes: usize) -> Model {
        let mut cache = Cache::new(Frames::new(HeapRegion::new(1024)), limit_bytes, 1);
        let key = cache.open(0);
        let zeros = vec![0; BLOCKS as usize * 4096];
        Model { cache, key, disk: zeros.clone(), now: zeros, held: Vec::new() }
    }

    /// A block, as the server brings it in.
    fn bring_in(&mut self, block: u64) -> Block {
        if let Some(block) = self.cache.block(self.key, block) {
            return block;
        }
        let (at, window, within) = (block as usize * 4096, block / 64, (block % 64) as usize);
        self.cache.loading(self.key, window, within..within + 1);
        let mut frame = self.cache.alloc(4096).unwrap();
        frame.copy_from_slice(&self.disk[at..at + 4096]);
        let sums = [block_crc(&frame)];
        self.cache.insert(self.key, window, within, &frame.freeze(), &sums).unwrap();
        self.cache.loaded(self.key, window, within..within + 1, Source::Disk);
        self.cache.block(self.key, block).unwrap()
    }

    /// The block brought in last may have evicted one before it, when all else is dirty.
    fn flush_when_tight(&mut self, wanted: &[u64]) {
        if !wanted.iter().all(|block| self.cache.sum(self.key, *block).is_some()) {
            self.commit(true);
        }
    }

    fn write(&mut self, seed: usize, offset: usize, count: usize) {
        let data = bytes(seed, count);
        let edges = [offset / 4096, (offset + count - 1) / 4096];
        let edges = edges.map(|block| self.bring_in(block as u64)).into();
        let mut trailer = vec![0; trailer_bytes(count / 4096 + 2)];
        for (index, (at, len)) in pieces(offset as u64, count).enumerate() {
            set_sum(&mut trailer, index, block_crc(&data[at..at + len]));
        }
        let cut = count / 3;
        let frames: Vec<Frame> = [&data[..cut], &data[cut..]]
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| self.cache.frames.copy_of(part).unwrap())
            .collect();
        self.cache.write(self.key, offset as u64, count, &frames, &trailer, edges).unwrap();
        self.now[offset..offset + count].copy_from_slice(&data);
    }

    fn read(&mut self, first: u64, count: u64) -> Result<(), TestCaseError> {
        let (mut out, mut trailer) = (Vec::new(), [0; 256]);
        let wanted = count as usize * 4096 - 100;
        while !self.cache.hit(self.key, first, wanted, &mut out, &mut trailer) {
            let blocks: Vec<u64> = (first..first + count).collect();
            blocks.iter().for_each(|block| drop(self.bring_in(*block)));
            self.flush_when_tight(&blocks);
        }
        let found: Vec<u8> = out.iter().flat_map(|frame| frame.to_vec()).collect();
        let at = first as usize * 4096;
        prop_assert!(found == self.now[at..at + wanted]);
        for block in 0..count as usize {
            let sum = block_crc(&self.now[at + block * 4096..at + (block + 1) * 4096]);
            prop_assert_eq!(crate::protocol::sum_at(&trailer, block), Some(sum));
        }
        let copies = out.iter().map(|frame| frame.to_vec()).collect::<Vec<_>>();
        self.held.extend(out.into_iter().zip(copies));
        Ok(())
    }

    fn commit(&mut self, works: bool) {
        let stretches = self.cache.begin_commit(self.key, 1 << 20);
        for stretch in stretches.iter().filter(|_| works) {
            let at = stretch.first as usize * 4096;
            self.disk[at..at + stretch.frame.len()].copy_from_slice(&stretch.frame);
        }
        self.cache.end_commit(self.key, works);
    }

    fn step(&mut self, seed: usize, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Write { offset, bytes } => self.write(seed, offset, bytes),
            Op::Insert { window, first, count } => {
                let from = (window as usize * 64 + first) * 4096;
                let count = count.min(BLOCKS as usize - window as usize * 64 - first.min(8));
                let Some(data) = self.disk.get(from..from + count * 4096) else { return Ok(()) };
                let sums: Vec<u32> = data.chunks(4096).map(block_crc).collect();
                let frame = self.cache.frames.copy_of(data).unwrap();
                self.cache.insert(self.key, window, first, &frame, &sums).unwrap();
            }
            Op::Commit { works } => self.commit(works),
            Op::Cut { kept } => {
                self.cache.cut(self.key, kept);
                self.disk[kept as usize * 4096..].fill(0);
                self.now[kept as usize * 4096..].fill(0);
            }
            Op::Read { first, count } => self.read(first, count)?,
            Op::Hold => self.held.clear(),
        }
        for (frame, copy) in &self.held {
            prop_assert!(frame[..] == copy[..], "held bytes changed");
        }
        let real: usize = self.cache.windows.iter().filter(|w| w.live).map(Window::bytes).sum();
        prop_assert_eq!(self.cache.used_bytes(), real);
        let unstable = |w: &Window| (w.dirty | w.committing).count_ones() as usize;
        let dirty: usize = self.cache.windows.iter().map(unstable).sum();
        prop_assert_eq!(self.cache.dirty_bytes(0), dirty * 4096);
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_is_cached_is_what_was_written(
        limit_bytes in 300_000usize..1 << 20, ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut model = Model::new(limit_bytes);
        for (seed, op) in ops.into_iter().enumerate() {
            model.step(seed, op)?;
        }
        model.held.clear();
        model.commit(true);
        prop_assert!(model.disk == model.now);
        model.cache.close(model.key);
        prop_assert_eq!(model.cache.used_bytes(), 0);
        prop_assert_eq!(model.cache.frames.free_pages(), 1024);
    }

    #[test]
    fn runs_of_bits_are_all_bits(bits: u64) {
        let runs: Vec<_> = bit_runs(bits).collect();
        prop_assert_eq!(runs.iter().fold(0, |all, run| all | mask(run.clone())), bits);
        prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
    }
}

/// The edges are put back when they were thrown out before the write.
#[test]
fn a_write_brings_its_edges_along() {
    let mut model = Model::new(1 << 20);
    model.disk = bytes(9, BLOCKS as usize * 4096);
    model.now = model.disk.clone();
    let edges: Vec<Block> = [60, 68].into_iter().map(|block| model.bring_in(block)).collect();
    while model.cache.evict() {}
    assert!(edges.iter().all(|block| model.cache.sum(model.key, block.number).is_none()));
    let (offset, data) = (60 * 4096 + 5, bytes(3, 8 * 4096));
    let mut trailer = vec![0; trailer_bytes(9)];
    for (index, (at, len)) in pieces(offset as u64, data.len()).enumerate() {
        set_sum(&mut trailer, index, block_crc(&data[at..at + len]));
    }
    let frame = model.cache.frames.copy_of(&data).unwrap();
    model.cache.write(model.key, offset as u64, data.len(), &[frame], &trailer, edges).unwrap();
    model.now[offset..offset + data.len()].copy_from_slice(&data);
    model.read(60, 9).unwrap();
    model.commit(true);
    assert!(model.disk == model.now);
}

/// Blocks 60 and 68 stay for a write over both of them, although the blocks between them take all memory there is.
#[test]
fn the_edges_of_a_write_are_not_thrown_out_by_it() {
    let mut model = Model::new(1 << 20);
    model.disk = bytes(9, BLOCKS as usize * 4096);
    model.now = model.disk.clone();
    [60, 68].into_iter().for_each(|block| drop(model.bring_in(block)));
    model.cache.limit_bytes = model.cache.used_bytes();
    model.write(3, 60 * 4096 + 5, 8 * 4096);
    model.commit(true);
    assert!(model.disk == model.now);
}

/// Blocks written here and there, each committed and held by the log for a while, lie in all stretches of the pool.
/// Room for a long request is not made by throwing out what is useful.
#[test]
fn scattered_blocks_are_not_thrown_out_for_room() {
    let frames = Frames::new(HeapRegion::new(32 << 8));
    let mut cache = Cache::new(frames.clone(), 24 << 20, 1);
    let key = cache.open(0);
    let (mut held, mut at) = (std::collections::VecDeque::new(), 1u64);
    let mut least = usize::MAX;
    for step in 0..40_000 {
        at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
        let offset = (at >> 33) % (48 << 8) * BLOCK_BYTES as u64;
        let block = frames.alloc(BLOCK_BYTES).expect("one block finds room").freeze();
        cache.write(key, offset, BLOCK_BYTES, &[block], &[0; 8], Vec::new()).unwrap();
        drop(cache.begin_commit(key, 1));
        cache.end_commit(key, true);
        let _ = cache.has_free_stretches() || cache.clear_stretch();
        held.push_back(cache.alloc(2 * BLOCK_BYTES).expect("the log finds room"));
        if held.len() > 512 {
            held.pop_front();
        }
        if step > 20_000 {
            least = least.min(cache.used_bytes());
        }
    }
    assert!(least > 20 << 20, "{} MiB of 24 at least", least >> 20);
}
