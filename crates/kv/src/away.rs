//! Values whose pages are away, in memory that the world has elsewhere: which places they have, and what the world is
//! to do for them.
//!
//! A place is an index and a version: the next user of an index takes the next version, so the bytes of one value are
//! never taken for another's. The world polls for what is to be stored, fetched and forgotten, and tells what came of
//! it; nothing waits here.

use crate::body::{Body, Piece};
use crate::ids::ItemNo;
use crate::limits::LEAVING_SHARE;
use crate::out::{Chunk, Later};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, Frames};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Memory that the world has elsewhere.
#[derive(Clone, Debug)]
pub struct AwayConfig {
    /// Frames for pages until the world has taken them away. A value without frames is evicted for good.
    pub frames: Frames,
    /// Bytes of pages that may be away, of all tenants.
    pub bytes_max: usize,
}

/// A page that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// The page's index.
    pub index: u64,
    /// Version of its content: greater than in every earlier use.
    pub version: u64,
    /// Bytes of the content, at most [`EXTENT_BYTES`](crate::limits::EXTENT_BYTES).
    pub bytes: u32,
}

/// The pages of a value that is away. The places are free again when the last who uses them has let go.
#[derive(Debug)]
pub struct Trip {
    places: Box<[PageRef]>,
    /// The pages themselves, until the world has them.
    here: RefCell<Box<[Frame]>>,
    slots: Rc<RefCell<Slots>>,
}

impl Trip {
    /// Bytes of memory that it takes here.
    pub const BYTES: usize = size_of::<Trip>() + 2 * size_of::<usize>();

    /// The pages, in order.
    pub fn places(&self) -> &[PageRef] {
        &self.places
    }

    /// A page that waits to be taken away.
    pub fn page(&self, number: usize) -> Option<Frame> {
        self.here.borrow().get(number).cloned()
    }

    /// Whether the pages are still here.
    pub fn is_here(&self) -> bool {
        !self.here.borrow().is_empty()
    }

    /// The pages that are still here.
    pub fn pages(&self) -> Vec<Frame> {
        self.here.borrow().to_vec()
    }

    /// Bytes of pages of other memory that it is counted for.
    pub fn away_bytes(&self) -> usize {
        self.places.iter().map(|place| (place.bytes as usize).next_multiple_of(PAGE_BYTES)).sum()
    }

    /// The world has the pages.
    pub(crate) fn leave(&self) {
        let here = std::mem::take(&mut *self.here.borrow_mut());
        if !here.is_empty() {
            self.slots.borrow_mut().leaving_bytes -= self.away_bytes();
        }
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.leave();
        self.slots.borrow_mut().ended.extend(self.places.iter().copied());
    }
}

/// The indices of pages.
#[derive(Debug, Default)]
struct Slots {
    /// The last version of each index.
    versions: Vec<u64>,
    /// Indices that nothing is at.
    free: Vec<u64>,
    /// Contents that are not needed any more; the world does not know yet.
    ended: Vec<PageRef>,
    /// Bytes of pages that the world does not have yet.
    leaving_bytes: usize,
}

impl Slots {
    fn take(&mut self, bytes: usize) -> PageRef {
        let index = self.free.pop().unwrap_or_else(|| {
            self.versions.push(0);
            self.versions.len() as u64 - 1
        });
        let version = &mut self.versions[index as usize];
        *version += 1;
        PageRef { index, version: *version, bytes: bytes as u32 }
    }
}

/// The reply that a value becomes, or what is said when it is lost.
#[derive(Debug)]
pub struct Wish {
    pub(crate) later: Later,
    pub(crate) head: Vec<u8>,
    pub(crate) tail: &'static [u8],
    pub(crate) miss: Vec<u8>,
    /// Bytes of the value that are wanted.
    pub(crate) range: Range<usize>,
}

impl Wish {
    /// Sends the reply, with the value's pages.
    pub(crate) fn grant(self, pages: &[Frame]) {
        let mut chunks = vec![Chunk::Text(self.head)];
        let body = Body::new(pages.to_vec(), None);
        let mut start = 0;
        for (number, page) in (0..).zip(body.extents()) {
            let (from, to) = (self.range.start.max(start), self.range.end.min(start + page.len()));
            if from < to {
                let piece = Piece::new(&body, number, from - start..to - start);
                chunks.push(Chunk::Value(piece));
            }
            start += page.len();
        }
        chunks.push(Chunk::Text(self.tail.to_vec()));
        self.later.answer(chunks);
    }

    pub(crate) fn refuse(self) {
        self.later.answer(vec![Chunk::Text(self.miss)]);
    }
}

/// A value that is fetched.
#[derive(Debug)]
pub struct Fetch {
    pub(crate) at: ItemNo,
    pub(crate) trip: Rc<Trip>,
    /// It is to stay here, whatever becomes of the client that asked.
    pub(crate) home: bool,
    pub(crate) wish: Wish,
}

impl Fetch {
    /// The pages.
    pub fn trip(&self) -> &Trip {
        &self.trip
    }
}

/// A value that is taken away.
#[derive(Debug)]
pub struct Store {
    pub(crate) at: ItemNo,
    pub(crate) trip: Rc<Trip>,
}

impl Store {
    /// The pages, and where they belong.
    pub fn trip(&self) -> &Trip {
        &self.trip
    }
}

/// Values that are away, and the work on them.
#[derive(Debug)]
pub(crate) struct Away {
    pub frames: Frames,
    pub bytes_max: usize,
    pub bytes: usize,
    pub stores: VecDeque<Store>,
    pub fetches: VecDeque<Fetch>,
    slots: Rc<RefCell<Slots>>,
}

impl Away {
    pub fn new(config: AwayConfig) -> Away {
        let AwayConfig { frames, bytes_max } = config;
        let (stores, fetches) = (VecDeque::new(), VecDeque::new());
        Away { frames, bytes_max, bytes: 0, stores, fetches, slots: Rc::default() }
    }

    /// Copies of pages with places for them; `None` when there are no frames for that, or too many have not left.
    pub fn pack(&self, pages: &[Frame]) -> Option<Trip> {
        if self.slots.borrow().leaving_bytes > self.frames.bytes() / LEAVING_SHARE {
            return None;
        }
        let copies: Option<Box<[Frame]>> =
            pages.iter().map(|page| self.frames.copy_of(page)).collect();
        let copies = copies?;
        let mut slots = self.slots.borrow_mut();
        let places = pages.iter().map(|page| slots.take(page.len())).collect();
        let trip = Trip { places, here: RefCell::new(copies), slots: self.slots.clone() };
        slots.leaving_bytes += trip.away_bytes();
        Some(trip)
    }

    /// The next page that is not needed any more.
    pub fn poll_ended(&mut self) -> Option<PageRef> {
        let mut slots = self.slots.borrow_mut();
        let place = slots.ended.pop()?;
        slots.free.push(place.index);
        Some(place)
    }
}
