//! Chunks of pages: keys, and values that are short enough to lie beside them.
//!
//! A page of the pool is cut into chunks of one size. A chunk begins with the number of the item it belongs to, so that
//! a whole page can be emptied when chunks of another size are wanted.
//!
//! Invariant: a page with a free chunk is in the list of its size; a page without a used one is in the pool.

use endpoint::limits::PAGE_BYTES;
use endpoint::{FrameMut, Frames};

/// Bytes in front of each chunk: its owner.
pub const OWNER_BYTES: usize = 4;
/// Sizes of chunks: as many as fit in a page, each a third to a half larger than the one before.
const SIZES: [usize; 13] =
    [64, 96, 128, 192, 256, 336, 448, 576, 816, 1024, 1360, PAGE_BYTES / 2, PAGE_BYTES];
const NONE: u32 = u32::MAX;
const _: () = assert!(PAGE_BYTES / SIZES[0] <= 64, "a page has a bit for each of its chunks");
const _: () = assert!(SIZES[SIZES.len() - 1] == PAGE_BYTES, "the longest chunk is a page");

/// Place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    page: u32,
    slot: u16,
}

#[derive(Debug)]
struct Page {
    frame: FrameMut,
    class: u8,
    /// A bit for each chunk that is free.
    free: u64,
    previous: u32,
    next: u32,
}

impl Page {
    fn size(&self) -> usize {
        SIZES[usize::from(self.class)]
    }

    fn is_unused(&self) -> bool {
        self.free == all_free(self.class)
    }
}

/// The chunks.
#[derive(Debug)]
pub struct Slab {
    pages: Vec<Option<Page>>,
    /// Numbers of pages that are not there.
    spare: Vec<u32>,
    /// The first page with a free chunk, for each size.
    heads: [u32; SIZES.len()],
    /// The page that is emptied next when nothing else helps.
    hand: u32,
}

fn all_free(class: u8) -> u64 {
    u64::MAX >> (64 - PAGE_BYTES / SIZES[usize::from(class)])
}

fn class_of(bytes: usize) -> Option<u8> {
    let wanted = bytes + OWNER_BYTES;
    SIZES.iter().position(|size| *size >= wanted).map(|class| class as u8)
}

/// Bytes that a chunk for `bytes` takes, or `None` when it would be longer than a page.
pub fn chunk_bytes(bytes: usize) -> Option<usize> {
    class_of(bytes).map(|class| SIZES[usize::from(class)])
}

impl Slab {
    /// No chunks.
    pub fn new() -> Slab {
        Slab { pages: Vec::new(), spare: Vec::new(), heads: [NONE; SIZES.len()], hand: 0 }
    }

    /// A chunk for `bytes`, in a page of `frames` if it needs a new one. `None` when there is none.
    pub fn alloc(&mut self, bytes: usize, frames: &Frames) -> Option<Chunk> {
        let class = class_of(bytes)?;
        if self.heads[usize::from(class)] == NONE {
            self.add_page(class, frames.alloc_exact(PAGE_BYTES)?);
        }
        let page = self.heads[usize::from(class)];
        let at = self.page_mut(page);
        assert!(at.free != 0, "a page in a list has a free chunk");
        let slot = at.free.trailing_zeros() as u16;
        at.free &= at.free - 1;
        if at.free == 0 {
            self.unlink(page);
        }
        Some(Chunk { page, slot })
    }

    /// Says whose a chunk is.
    pub fn set_owner(&mut self, chunk: Chunk, owner: u32) {
        self.bytes_mut(chunk)[..OWNER_BYTES].copy_from_slice(&owner.to_ne_bytes());
    }

    fn add_page(&mut self, class: u8, frame: FrameMut) {
        let page = Page { frame, class, free: all_free(class), previous: NONE, next: NONE };
        let number = match self.spare.pop() {
            Some(number) => number,
            None => {
                self.pages.push(None);
                (self.pages.len() - 1) as u32
            }
        };
        assert!(self.pages[number as usize].is_none(), "a spare number has no page");
        self.pages[number as usize] = Some(page);
        self.link(number);
    }

    /// Gives a chunk back.
    pub fn free(&mut self, chunk: Chunk) {
        let page = self.page_mut(chunk.page);
        assert_eq!(page.free >> chunk.slot & 1, 0, "a chunk is freed once");
        let was_full = page.free == 0;
        page.free |= 1 << chunk.slot;
        let unused = page.is_unused();
        match (was_full, unused) {
            (true, false) => self.link(chunk.page),
            (false, true) => self.unlink(chunk.page),
            _ => {}
        }
        if unused {
            self.pages[chunk.page as usize] = None;
            self.spare.push(chunk.page);
        }
    }

    fn page(&self, number: u32) -> &Page {
        self.pages[number as usize].as_ref().expect("a page with chunks in use")
    }

    fn page_mut(&mut self, number: u32) -> &mut Page {
        self.pages[number as usize].as_mut().expect("a page with chunks in use")
    }

    fn link(&mut self, number: u32) {
        let class = usize::from(self.page(number).class);
        let head = std::mem::replace(&mut self.heads[class], number);
        let page = self.page_mut(number);
        (page.previous, page.next) = (NONE, head);
        if head != NONE {
            self.page_mut(head).previous = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let page = self.page(number);
        let (previous, next, class) = (page.previous, page.next, usize::from(page.class));
        match previous {
            NONE => self.heads[class] = next,
            previous => self.page_mut(previous).next = next,
        }
        if next != NONE {
            self.page_mut(next).previous = previous;
        }
    }

    fn bytes_mut(&mut self, chunk: Chunk) -> &mut [u8] {
        let page = self.page_mut(chunk.page);
        let size = page.size();
        &mut page.frame[usize::from(chunk.slot) * size..][..size]
    }

    /// The chunk's content.
    pub fn get(&self, chunk: Chunk) -> &[u8] {
        let page = self.page(chunk.page);
        let size = page.size();
        &page.frame[usize::from(chunk.slot) * size + OWNER_BYTES..][..size - OWNER_BYTES]
    }

    /// The same, to be written.
    pub fn get_mut(&mut self, chunk: Chunk) -> &mut [u8] {
        &mut self.bytes_mut(chunk)[OWNER_BYTES..]
    }

    /// The owners of all chunks of one page that is in use, another page each time; none when no page is.
    pub fn page_owners(&mut self) -> impl Iterator<Item = u32> + use<> {
        let pages = self.pages.len() as u32;
        let mut turn = (0..pages).map(|step| (self.hand + 1 + step) % pages);
        let found = turn.find(|page| self.pages[*page as usize].is_some());
        self.hand = found.unwrap_or_default();
        let owners: Vec<u32> = match found {
            Some(page) => self.owners(page),
            None => Vec::new(),
        };
        owners.into_iter()
    }

    fn owners(&self, number: u32) -> Vec<u32> {
        let page = self.page(number);
        let slots = 0..PAGE_BYTES / page.size();
        let used = slots.filter(|slot| page.free >> slot & 1 == 0);
        used.map(|slot| {
            let owner = &page.frame[slot * page.size()..][..OWNER_BYTES];
            u32::from_ne_bytes(owner.try_into().expect("four bytes"))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::memory::HeapRegion;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_keep_their_bytes_and_pages_return(
            steps in prop::collection::vec((0usize..PAGE_BYTES - OWNER_BYTES, any::<bool>()), 1..300)
        ) {
            let frames = Frames::new(HeapRegion::new(64));
            let (mut slab, mut held) = (Slab::new(), Vec::new());
            for (number, (bytes, free)) in steps.into_iter().enumerate() {
                if free && !held.is_empty() {
                    let (chunk, len, owner): (Chunk, usize, u32) = held.swap_remove(bytes % held.len());
                    prop_assert!(slab.get(chunk)[..len].iter().all(|b| *b == owner as u8));
                    slab.free(chunk);
                } else if let Some(chunk) = slab.alloc(bytes, &frames) {
                    slab.set_owner(chunk, number as u32);
                    prop_assert!(slab.get(chunk).len() >= bytes);
                    slab.get_mut(chunk)[..bytes].fill(number as u8);
                    held.push((chunk, bytes, number as u32));
                }
            }
            let mut owners: Vec<u32> = held.iter().map(|(_, _, owner)| *owner).collect();
            let pages = slab.pages.iter().flatten().count();
            let mut named: Vec<u32> = (0..pages).flat_map(|_| slab.page_owners()).collect();
            owners.sort();
            named.sort();
            prop_assert_eq!(owners, named);
            held.into_iter().for_each(|(chunk, _, _)| slab.free(chunk));
            prop_assert_eq!(frames.free_pages(), 64);
        }
    }
}
