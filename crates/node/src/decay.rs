//! How storage decays: damage to files while nothing has them open. For tests and simulations only.
//!
//! One table serves the disks of the simulator, those of tests, and real directories: each is a [`Medium`]. Faults of a
//! disk in use appear here as what they leave: an acknowledged write that was never made leaves the block as it was, a
//! misdirected one leaves that and its bytes in another place.

use std::fmt::Debug;

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
/// The unit that programs write.
const BLOCK_BYTES: usize = 4096;
/// Headers, descriptions and marks begin a block: every other flipped bit is in so many first bytes of one.
const HEAD_BYTES: usize = 320;
/// Tries to find something to damage.
const TRIES: usize = 32;

/// Files that decay, and what they were earlier.
pub trait Medium {
    /// Names a file.
    type File: Clone + Debug + Ord;

    /// All files, in order.
    fn files(&self) -> Vec<Self::File>;

    /// The kind of a file: kinds of files are damaged equally often, however many there are of each.
    fn class(&self, file: &Self::File) -> usize;

    /// A file's bytes.
    fn bytes(&self, file: &Self::File) -> Vec<u8>;

    /// The same earlier, if it was there.
    fn earlier(&self, file: &Self::File) -> Option<Vec<u8>>;

    /// The file has these bytes from now on.
    fn put(&mut self, file: &Self::File, bytes: Vec<u8>);

    /// The file is gone.
    fn remove(&mut self, file: &Self::File);

    /// Everything is as it was earlier.
    fn restore(&mut self);
}

/// A way to decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// One bit is another one.
    BitFlipped,
    /// A block is zeros.
    BlockZeroed,
    /// A block has some sectors of what it was earlier.
    SectorsTorn,
    /// A block is as it was earlier: a write was acknowledged and never made.
    WriteLost,
    /// As [`WriteLost`](Decay::WriteLost), and the block is in another place.
    WriteMisdirected,
    /// A file is gone.
    FileRemoved,
    /// A file is as it was earlier.
    FileOlder,
    /// Two files have each other's bytes.
    FilesSwapped,
    /// A file is truncated.
    FileTruncated,
    /// All files are gone: a mount point without its disk.
    Emptied,
    /// All files are as they were earlier.
    AllOlder,
}

impl Decay {
    /// Decays of one file or two.
    pub const OF_FILES: [Decay; 9] = [
        Decay::BitFlipped,
        Decay::BlockZeroed,
        Decay::SectorsTorn,
        Decay::WriteLost,
        Decay::WriteMisdirected,
        Decay::FileRemoved,
        Decay::FileOlder,
        Decay::FilesSwapped,
        Decay::FileTruncated,
    ];
    /// Decays of a whole medium.
    pub const OF_ALL: [Decay; 2] = [Decay::Emptied, Decay::AllOlder];

    /// Does it to `medium`, and says what it was; `None` when there is nothing to do it to. `below` draws a number
    /// below one that is not 0.
    pub fn strike<M: Medium>(
        self,
        medium: &mut M,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Option<String> {
        match self {
            Decay::Emptied => {
                let files = medium.files();
                files.iter().for_each(|file| medium.remove(file));
                (!files.is_empty()).then(|| "all files removed".into())
            }
            Decay::AllOlder => {
                medium.restore();
                Some("all files as they were earlier".into())
            }
            _ => (0..TRIES).find_map(|_| {
                let file = any_file(medium, below)?;
                self.strike_file(medium, &file, below)
            }),
        }
    }

    fn strike_file<M: Medium>(
        self,
        medium: &mut M,
        file: &M::File,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Option<String> {
        let mut bytes = medium.bytes(file);
        match self {
            Decay::BitFlipped if !bytes.is_empty() => {
                let (at, bit) = (any_byte(bytes.len(), below), below(8));
                bytes[at] ^= 1 << bit;
                medium.put(file, bytes);
                Some(format!("bit {bit} of byte {at} of {file:?} flipped"))
            }
            Decay::BlockZeroed if !bytes.is_empty() => {
                let at = any_byte(bytes.len(), below) / BLOCK_BYTES * BLOCK_BYTES;
                block_of(&mut bytes, at).fill(0);
                medium.put(file, bytes);
                Some(format!("block at {at} of {file:?} zeroed"))
            }
            Decay::SectorsTorn | Decay::WriteLost | Decay::WriteMisdirected => {
                self.strike_write(medium, file, bytes, below)
            }
            Decay::FileRemoved => {
                medium.remove(file);
                Some(format!("{file:?} removed"))
            }
            Decay::FileOlder => {
                let earlier = medium.earlier(file).filter(|earlier| *earlier != bytes)?;
                medium.put(file, earlier);
                Some(format!("{file:?} as it was earlier"))
            }
            Decay::FilesSwapped => {
                let other = any_file(medium, below).filter(|other| other != file)?;
                let others = medium.bytes(&other);
                medium.put(&other, bytes);
                medium.put(file, others);
                Some(format!("{file:?} and {other:?} swapped"))
            }
            Decay::FileTruncated if !bytes.is_empty() => {
                let (length, kept) = (bytes.len(), any_byte(bytes.len(), below));
                bytes.truncate(kept);
                medium.put(file, bytes);
                Some(format!("{file:?} truncated from {length} to {kept}"))
            }
            _ => None,
        }
    }

    /// A write of a block did not do what it should.
    fn strike_write<M: Medium>(
        self,
        medium: &mut M,
        file: &M::File,
        mut bytes: Vec<u8>,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Option<String> {
        let earlier = medium.earlier(file).unwrap_or_default();
        let blocks = changed_blocks(&bytes, &earlier);
        let at = *blocks.get(below(blocks.len().max(1) as u64) as usize)?;
        let block = block_of(&mut bytes, at);
        let mut before = earlier.get(at..).unwrap_or_default().to_vec();
        before.resize(block.len(), 0);
        let written = block.to_vec();
        for (new, old) in block.chunks_mut(SECTOR_BYTES).zip(before.chunks(SECTOR_BYTES)) {
            if self != Decay::SectorsTorn || below(2) == 0 {
                new.copy_from_slice(old);
            }
        }
        medium.put(file, bytes);
        let what = format!("the write of the block at {at} of {file:?}");
        Some(match self {
            Decay::SectorsTorn => format!("{what} torn"),
            Decay::WriteLost => format!("{what} lost"),
            _ => {
                let other = any_file(medium, below)?;
                let mut bytes = medium.bytes(&other);
                let to = any_byte(bytes.len().max(1), below) / BLOCK_BYTES * BLOCK_BYTES;
                if other == *file && to == at {
                    return Some(format!("{what} lost")); // to its own place would be no damage
                }
                bytes.resize(bytes.len().max(to + written.len()), 0);
                bytes[to..to + written.len()].copy_from_slice(&written);
                medium.put(&other, bytes);
                format!("{what} went to {to} of {other:?}")
            }
        })
    }
}

fn any_file<M: Medium>(medium: &M, below: &mut dyn FnMut(u64) -> u64) -> Option<M::File> {
    let files = medium.files();
    let mut classes: Vec<usize> = files.iter().map(|file| medium.class(file)).collect();
    classes.sort_unstable();
    classes.dedup();
    let class = *classes.get(below(classes.len().max(1) as u64) as usize)?;
    let of_class: Vec<_> = files.iter().filter(|file| medium.class(file) == class).collect();
    Some(of_class[below(of_class.len() as u64) as usize].clone())
}

/// A place in so many bytes, which are not none.
fn any_byte(length: usize, below: &mut dyn FnMut(u64) -> u64) -> usize {
    let at = below(length as u64) as usize;
    match below(2) {
        0 => at,
        _ => {
            at / BLOCK_BYTES * BLOCK_BYTES
                + at % HEAD_BYTES.min(length - at / BLOCK_BYTES * BLOCK_BYTES)
        }
    }
}

fn block_of(bytes: &mut [u8], at: usize) -> &mut [u8] {
    let end = bytes.len().min(at + BLOCK_BYTES);
    &mut bytes[at..end]
}

/// Offsets of the blocks that have changed.
fn changed_blocks(bytes: &[u8], earlier: &[u8]) -> Vec<usize> {
    let zeros = [0; BLOCK_BYTES];
    let differs = |at: &usize| {
        let now = &bytes[*at..bytes.len().min(at + BLOCK_BYTES)];
        let before = earlier.get(*at..).unwrap_or_default();
        let before = &before[..before.len().min(now.len())];
        now[..before.len()] != *before || now[before.len()..] != zeros[..now.len() - before.len()]
    };
    (0..bytes.len()).step_by(BLOCK_BYTES).filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Default)]
    struct Files {
        now: BTreeMap<u8, Vec<u8>>,
        earlier: BTreeMap<u8, Vec<u8>>,
    }

    impl Medium for Files {
        type File = u8;

        fn files(&self) -> Vec<u8> {
            self.now.keys().copied().collect()
        }
        fn class(&self, file: &u8) -> usize {
            (file % 2).into()
        }
        fn bytes(&self, file: &u8) -> Vec<u8> {
            self.now[file].clone()
        }
        fn earlier(&self, file: &u8) -> Option<Vec<u8>> {
            self.earlier.get(file).cloned()
        }
        fn put(&mut self, file: &u8, bytes: Vec<u8>) {
            self.now.insert(*file, bytes);
        }
        fn remove(&mut self, file: &u8) {
            self.now.remove(file);
        }
        fn restore(&mut self) {
            self.now = self.earlier.clone();
        }
    }

    fn files() -> Files {
        let file = |number: u8| (number, vec![number + 1; 5000 * usize::from(number)]);
        let earlier: BTreeMap<u8, Vec<u8>> = (0..4).map(file).collect();
        let mut now = earlier.clone();
        now.get_mut(&2).expect("made above").resize(12_000, 77);
        now.insert(5, vec![6; 100]);
        Files { now, earlier }
    }

    /// Every kind changes something, whatever is drawn, and files of no bytes are no trouble.
    #[test]
    fn every_kind_of_decay_does_damage() {
        for decay in Decay::OF_FILES.into_iter().chain(Decay::OF_ALL) {
            for seed in 0..200 {
                let (mut medium, mut state) = (files(), seed);
                let mut below = |end: u64| {
                    state += 1;
                    wire::mix(state) % end
                };
                let said = decay.strike(&mut medium, &mut below);
                let torn_back = decay == Decay::SectorsTorn;
                assert!(said.is_some(), "{decay:?} {seed}");
                assert!(torn_back || medium.now != files().now, "{decay:?} {seed}: {said:?}");
            }
        }
    }
}
