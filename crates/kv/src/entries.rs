//! The entries of the table: a slab that grows in blocks, so that it is never copied.

use crate::ids::{NONE, TenantNo};
use crate::moment::Expiry;
use crate::slab::Chunk;
use crate::value::Value;

/// Bytes of memory that an entry is counted for.
pub const ENTRY_BYTES: usize = size_of::<Entry>();
/// Places of a block.
pub const BLOCK: usize = 1024;

/// Properties of an item beside its key and its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Flags that the client stored with it.
    pub flags: u32,
    /// Changes with every change of the value.
    pub cas: u64,
    /// Second of its last use.
    pub used_s: u32,
    /// Uses since it was put at the young end, at most 3.
    pub uses: u8,
    /// It was read.
    pub fetched: bool,
    /// It was marked so: clients may use it while one of them makes a new one (protocol.txt, "meta delete").
    pub stale: bool,
    /// One client was told that it is the one.
    pub win_sent: bool,
}

#[derive(Debug)]
pub struct Entry {
    pub item: Item,
    pub hash: u64,
    pub expiry: Expiry,
    /// The next in the chain of its hash, or of the free entries.
    pub next: u32,
    pub older: u32,
    pub newer: u32,
    pub chunk: Option<Chunk>,
    pub key_len: u16,
    pub tenant: TenantNo,
    /// Of the owners' when it was stored.
    pub generation: u32,
    pub len: u32,
    /// Bytes of memory that it is counted for.
    pub cost: u32,
    pub value: Value,
}

#[derive(Debug)]
pub struct Entries {
    blocks: Vec<Vec<Entry>>,
    /// Items of each block.
    used: Vec<u32>,
    free: u32,
}

impl Entries {
    pub fn new() -> Entries {
        Entries { blocks: Vec::new(), used: Vec::new(), free: NONE }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) -> u32 {
        if self.free != NONE {
            let number = self.free;
            assert!(!self.is_used(number), "a free entry has no item");
            self.free = self.get(number).next;
            *self.get_mut(number) = entry;
            self.used[number as usize / BLOCK] += 1;
            return number;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
            self.used.push(0);
        }
        *self.used.last_mut().expect("just added") += 1;
        self.blocks.last_mut().expect("just added").push(entry);
        assert_eq!(self.blocks.len(), self.used.len(), "every block has its count");
        self.len() - 1
    }

    /// Takes an entry's chunk and value out; its number is used again.
    pub fn take(&mut self, number: u32) -> (Option<Chunk>, Value) {
        let next = std::mem::replace(&mut self.free, number);
        self.used[number as usize / BLOCK] -= 1;
        let entry = self.get_mut(number);
        entry.next = next;
        (entry.chunk.take(), std::mem::take(&mut entry.value))
    }

    /// Entries there are or were.
    pub fn len(&self) -> u32 {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len()) as u32
    }

    pub fn get(&self, number: u32) -> &Entry {
        &self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }

    /// The first place from `number` on that is not in a block without items; where the table ends if there is none.
    pub fn skip_empty(&self, number: u32) -> u32 {
        let block = number as usize / BLOCK;
        match self.used.iter().skip(block).position(|used| *used > 0) {
            Some(0) => number,
            Some(blocks) => ((block + blocks) * BLOCK) as u32,
            None => self.len(),
        }
    }

    /// Whether there is an item under this number.
    pub fn is_used(&self, number: u32) -> bool {
        number < self.len() && self.get(number).chunk.is_some()
    }
}
