//! Bytes with two states: what a reader sees now, and what a power cut leaves.
//!
//! A write changes the first; a sync makes it the second. A power cut keeps of everything between them whatever the
//! seed says: nothing, all, the oldest writes, or any set of pages; a page survives whole or not at all. Pages are
//! shared between the two states and copied when written.
//!
//! It is not a file system: names are [`Volume`](crate::volume::Volume)'s.

use crate::limits::DISK_PAGE_BYTES;
use crate::random::{MILLION, Random};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

type Page = Arc<[u8; DISK_PAGE_BYTES]>;

/// How the world ends for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Its process is killed: what it handed to the operating system stays.
    Kill,
    /// The machine loses power: only what was synced surely stays.
    Power,
}

/// Effect of one power cut on unsynced pages; drawn once per cut.
#[derive(Clone, Copy, Debug)]
enum Loss {
    All,
    None,
    /// Writes up to this number survive.
    After(u64),
    /// Each page survives so often in a million.
    Any(u32),
}

/// The luck of one power cut, the same for all files of a disk.
#[derive(Clone, Debug)]
pub struct PowerCut {
    loss: Loss,
    random: Random,
}

impl PowerCut {
    /// Draws it. `first` and `last` number the oldest and the newest write that may be lost.
    pub fn draw(random: &mut Random, first: u64, last: u64) -> PowerCut {
        let loss = match random.below(4) {
            0 => Loss::All,
            1 => Loss::None,
            2 => Loss::After(random.within(first.saturating_sub(1), last.max(first))),
            _ => Loss::Any(random.below(u64::from(MILLION)) as u32),
        };
        PowerCut { loss, random: Random::new(random.next(), "power cut") }
    }

    /// Whether an unsynced change, the `number`th, is on the medium.
    pub fn keeps(&mut self, number: u64) -> bool {
        match self.loss {
            Loss::All => false,
            Loss::None => true,
            Loss::After(last) => number <= last,
            Loss::Any(chance) => self.random.chance(chance),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    pages: BTreeMap<u64, Page>,
    len: u64,
}

/// One file's bytes.
#[derive(Clone, Debug, Default)]
pub struct LossyFile {
    now: State,
    stable: State,
    /// Pages that differ, with the number of the first write since the page was stable.
    dirty: BTreeMap<u64, u64>,
    /// Whether the length differs, likewise.
    len_dirty: Option<u64>,
}

fn split(offset: u64) -> (u64, usize) {
    (offset / DISK_PAGE_BYTES as u64, (offset % DISK_PAGE_BYTES as u64) as usize)
}

fn zero_page() -> Page {
    Arc::new([0; DISK_PAGE_BYTES])
}

impl LossyFile {
    /// Length as a reader sees it.
    pub fn len(&self) -> u64 {
        self.now.len
    }

    /// Whether a reader sees no bytes.
    pub fn is_empty(&self) -> bool {
        self.now.len == 0
    }

    /// Pages of storage.
    pub fn pages(&self) -> u64 {
        self.now.pages.len() as u64
    }

    /// Pages of storage of which all bytes are in the range.
    pub fn pages_in(&self, range: Range<u64>) -> u64 {
        let (first, end) =
            (range.start.div_ceil(DISK_PAGE_BYTES as u64), range.end / DISK_PAGE_BYTES as u64);
        if first < end { self.now.pages.range(first..end).count() as u64 } else { 0 }
    }

    /// Pages that writing `len` bytes at `offset` adds.
    pub fn new_pages(&self, offset: u64, len: usize) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (split(offset).0, split(offset + len as u64 - 1).0);
        last - first + 1 - self.now.pages.range(first..=last).count() as u64
    }

    /// Fills `into` from `offset`; how many bytes there were.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let bytes = self.now.len.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < bytes {
            let (page, within) = split(offset + done as u64);
            let part = (DISK_PAGE_BYTES - within).min(bytes - done);
            let to = &mut into[done..done + part];
            match self.now.pages.get(&page) {
                Some(page) => to.copy_from_slice(&page[within..within + part]),
                None => to.fill(0),
            }
            done += part;
        }
        bytes
    }

    /// All bytes that a reader sees.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.now.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// The write with this number: `data` at `offset`.
    pub fn write(&mut self, number: u64, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let (page, within) = split(offset + done as u64);
            let part = (DISK_PAGE_BYTES - within).min(data.len() - done);
            let to = Arc::make_mut(self.now.pages.entry(page).or_insert_with(zero_page));
            to[within..within + part].copy_from_slice(&data[done..done + part]);
            self.dirty.entry(page).or_insert(number);
            done += part;
        }
        self.set_len(number, self.now.len.max(offset + data.len() as u64));
    }

    /// Cuts the file or extends it with zeros.
    pub fn truncate(&mut self, number: u64, len: u64) {
        if len < self.now.len {
            let (last, within) = split(len);
            if within > 0 && self.now.pages.contains_key(&last) {
                let page = self.now.pages.get_mut(&last).expect("just seen");
                Arc::make_mut(page)[within..].fill(0);
                self.dirty.entry(last).or_insert(number);
            }
            let gone = self.now.pages.split_off(&(last + u64::from(within > 0)));
            gone.keys().for_each(|page| {
                self.dirty.entry(*page).or_insert(number);
            });
        }
        self.set_len(number, len);
    }

    /// The first byte of the range on a page that takes storage; its end when there is none.
    pub fn find_data(&self, range: Range<u64>) -> u64 {
        let end = range.end.min(self.now.len);
        if range.start >= end {
            return range.end;
        }
        let pages = split(range.start).0..=split(end - 1).0;
        let first = self.now.pages.range(pages).next();
        first.map_or(range.end, |(page, _)| (page * DISK_PAGE_BYTES as u64).max(range.start))
    }

    /// Zeroes the bytes of a range, as far as the file goes; its whole pages take no storage any more.
    pub fn punch(&mut self, number: u64, range: Range<u64>) {
        let range = range.start..range.end.min(self.now.len);
        if range.is_empty() {
            return;
        }
        let pages = split(range.start).0..=split(range.end - 1).0;
        let there: Vec<u64> = self.now.pages.range(pages).map(|(page, _)| *page).collect();
        for page in there {
            let start = page * DISK_PAGE_BYTES as u64;
            let from = range.start.saturating_sub(start) as usize;
            let to = (range.end - start).min(DISK_PAGE_BYTES as u64) as usize;
            if (from, to) == (0, DISK_PAGE_BYTES) {
                self.now.pages.remove(&page);
            } else {
                let bytes = self.now.pages.get_mut(&page).expect("just seen");
                Arc::make_mut(bytes)[from..to].fill(0);
            }
            self.dirty.entry(page).or_insert(number);
        }
    }

    fn set_len(&mut self, number: u64, len: u64) {
        if len != self.now.len {
            self.now.len = len;
            self.len_dirty.get_or_insert(number);
        }
    }

    /// Every write up to the one with this number is stable from now on.
    pub fn sync(&mut self, up_to: u64) {
        let (now, stable) = (&self.now, &mut self.stable);
        self.dirty.retain(|page, number| {
            let synced = *number <= up_to;
            if synced {
                settle(now, stable, *page);
            }
            !synced
        });
        if self.len_dirty.is_some_and(|number| number <= up_to) {
            self.sync_len();
        }
    }

    /// The pages that hold `len` bytes at `offset`, and the length, are stable from now on.
    pub fn sync_range(&mut self, offset: u64, len: usize) {
        let (first, last) = (split(offset).0, split(offset + (len as u64).max(1) - 1).0);
        for page in first..=last {
            if self.dirty.remove(&page).is_some() {
                settle(&self.now, &mut self.stable, page);
            }
        }
        self.sync_len();
    }

    fn sync_len(&mut self) {
        self.stable.len = self.now.len;
        self.len_dirty = None;
    }

    /// The number of the oldest change that a power cut may take.
    pub fn oldest_change(&self) -> Option<u64> {
        self.dirty.values().copied().chain(self.len_dirty).min()
    }

    /// The power fails: what was not stable is there or not.
    pub fn power_cut(&mut self, cut: &mut PowerCut) {
        let len_kept = self.len_dirty.is_none_or(|number| cut.keeps(number));
        for (page, number) in std::mem::take(&mut self.dirty) {
            // A page that a truncation removed goes with the length.
            let removed = !self.now.pages.contains_key(&page);
            if if removed { len_kept } else { cut.keeps(number) } {
                settle(&self.now, &mut self.stable, page);
            }
        }
        if len_kept {
            self.stable.len = self.now.len;
        }
        self.len_dirty = None;
        self.trim_stable();
        self.now = self.stable.clone();
    }

    /// Clears bytes beyond the length that survived: they were never part of the file.
    fn trim_stable(&mut self) {
        let (last, within) = split(self.stable.len);
        self.stable.pages.split_off(&(last + u64::from(within > 0)));
        if let Some(page) = self.stable.pages.get_mut(&last) {
            Arc::make_mut(page)[within..].fill(0);
        }
    }

    /// Flips one bit of a stored page, in both states: the medium decays. Whether there was anything to decay.
    pub fn rot(&mut self, random: &mut Random) -> bool {
        if self.now.pages.is_empty() {
            return false;
        }
        let nth = random.index(self.now.pages.len());
        let (at, bit) = (random.index(DISK_PAGE_BYTES), 1u8 << random.below(8));
        let page = *self.now.pages.keys().nth(nth).expect("an index below the length");
        for state in [&mut self.now, &mut self.stable] {
            if let Some(page) = state.pages.get_mut(&page) {
                Arc::make_mut(page)[at] ^= bit;
            }
        }
        true
    }
}

fn settle(now: &State, stable: &mut State, page: u64) {
    match now.pages.get(&page) {
        Some(bytes) => stable.pages.insert(page, bytes.clone()),
        None => stable.pages.remove(&page),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(loss: Loss) -> PowerCut {
        PowerCut { loss, random: Random::new(1, "test") }
    }

    #[test]
    fn synced_bytes_survive_and_others_may_not() {
        let mut file = LossyFile::default();
        file.write(1, 0, &[1; 5000]);
        file.sync(1);
        file.write(2, 4096, &[2; 8192]);
        let mut lost = file.clone();
        lost.power_cut(&mut cut(Loss::All));
        assert_eq!(lost.bytes(), [1; 5000]);
        file.power_cut(&mut cut(Loss::None));
        assert_eq!((file.len(), file.bytes()[4096]), (12288, 2));
    }

    #[test]
    fn a_sync_covers_what_came_before_it_only() {
        let mut file = LossyFile::default();
        file.write(1, 0, b"first");
        file.write(2, 8192, b"second");
        file.sync(1);
        file.power_cut(&mut cut(Loss::All));
        assert_eq!(&file.bytes()[..5], b"first");
        assert!(file.bytes()[5..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_lost_length_takes_its_pages() {
        let mut file = LossyFile::default();
        file.write(1, 0, b"kept");
        file.sync(1);
        file.write(2, 4096, &[7; 4096]);
        file.len_dirty = Some(9);
        file.power_cut(&mut cut(Loss::After(2)));
        assert_eq!(file.bytes(), b"kept");
        file.truncate(3, 8192);
        assert!(file.bytes()[4..].iter().all(|b| *b == 0), "nothing comes back");
    }

    #[test]
    fn rot_is_permanent() {
        let mut file = LossyFile::default();
        file.write(1, 0, &[0; 4096]);
        file.sync(1);
        assert!(file.rot(&mut Random::new(1, "rot")));
        file.power_cut(&mut cut(Loss::All));
        assert_eq!(file.bytes().iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    }

    proptest! {
        /// After any writes, truncations and syncs a reader sees the contents of a flat array, and a power cut that
        /// loses all goes back exactly to the last full sync.
        #[test]
        fn equals_a_flat_array(
            steps in prop::collection::vec((0u8..4, 0u64..20_000, 1usize..9_000, any::<u8>()), 1..40)
        ) {
            let (mut file, mut model, mut stable) = (LossyFile::default(), Vec::new(), Vec::new());
            for (number, (kind, at, len, byte)) in (1..).zip(steps) {
                match kind {
                    0 | 1 => {
                        let end = at as usize + len;
                        if model.len() < end { model.resize(end, 0); }
                        model[at as usize..end].fill(byte);
                        file.write(number, at, &vec![byte; len]);
                    }
                    2 => {
                        model.resize(at as usize, 0);
                        file.truncate(number, at);
                    }
                    _ => {
                        stable = model.clone();
                        file.sync(number);
                    }
                }
                prop_assert_eq!(file.bytes(), model.clone());
            }
            file.power_cut(&mut cut(Loss::All));
            prop_assert_eq!(file.bytes(), stable);
        }
    }
}
