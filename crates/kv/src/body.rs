//! The bytes of long values, and who is charged for them: their memory is the tenant's from the moment it is taken from
//! the pool until the last who needs it has let go, whether a value arrives, is an item's, is sent or is carried.

use endpoint::Frame;
use endpoint::limits::PAGE_BYTES;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// A tenant's memory of the pool for long values.
#[derive(Debug, Default)]
pub struct Account {
    bytes: Cell<usize>,
    held: Cell<usize>,
}

impl Account {
    /// All of it.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Bytes that no eviction frees: of values that arrive, are sent or are carried.
    pub fn held_bytes(&self) -> usize {
        self.held.get()
    }
}

/// Bytes that an account is charged for, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Rc<Account>,
    bytes: usize,
    held: Cell<bool>,
}

impl Charge {
    /// Nothing yet; what comes is held.
    pub fn new(account: Rc<Account>) -> Charge {
        Charge { account, bytes: 0, held: Cell::new(true) }
    }

    /// So many more.
    pub fn add(&mut self, bytes: usize) {
        debug_assert!(self.held.get(), "an item's value does not grow");
        self.bytes += bytes;
        self.account.bytes.set(self.account.bytes.get() + bytes);
        self.account.held.set(self.account.held.get() + bytes);
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn hold(&self, holds: bool) {
        let held = &self.account.held;
        match (self.held.replace(holds), holds) {
            (false, true) => held.set(held.get() + self.bytes),
            (true, false) => held.set(held.get() - self.bytes),
            _ => {}
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.hold(false);
        self.account.bytes.set(self.account.bytes.get() - self.bytes);
    }
}

/// Bytes of the pool that an extent takes.
pub fn pool_bytes(extent: usize) -> usize {
    extent.next_multiple_of(PAGE_BYTES)
}

#[derive(Debug)]
enum Extents {
    One(Frame),
    Many(Box<[Frame]>),
}

/// A long value.
#[derive(Debug)]
pub struct Body {
    extents: Extents,
    /// None when its frames are of another pool than the items'.
    charge: Option<Charge>,
    /// It is an item's.
    stored: Cell<bool>,
    /// References to it that are to be sent or carried.
    pieces: Cell<u32>,
}

impl Body {
    /// With these frames.
    pub fn new(mut extents: Vec<Frame>, charge: Option<Charge>) -> Rc<Body> {
        let extents = match extents.len() {
            1 => Extents::One(extents.pop().expect("one")),
            _ => Extents::Many(extents.into()),
        };
        Rc::new(Body { extents, charge, stored: Cell::new(false), pieces: Cell::new(0) })
    }

    /// Its frames, in order.
    pub fn extents(&self) -> &[Frame] {
        match &self.extents {
            Extents::One(frame) => std::slice::from_ref(frame),
            Extents::Many(frames) => frames,
        }
    }

    /// Bytes of the items' pool that it takes.
    pub fn pool_bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// Bytes of memory beside its frames.
    pub fn head_bytes(&self) -> usize {
        let more = match &self.extents {
            Extents::One(_) => 0,
            Extents::Many(frames) => size_of_val(&frames[..]),
        };
        size_of::<Body>() + 2 * size_of::<usize>() + more
    }

    /// Whether it is being sent or carried.
    pub fn is_in_use(&self) -> bool {
        self.pieces.get() > 0
    }

    /// All of it, in order, to be sent.
    pub fn pieces(self: &Rc<Body>) -> impl Iterator<Item = Piece> + '_ {
        let lens = self.extents().iter().map(|extent| extent.len());
        (0..).zip(lens).map(|(extent, len)| Piece::new(self, extent, 0..len))
    }

    fn update(&self) {
        let held = !self.stored.get() || self.is_in_use();
        self.charge.iter().for_each(|charge| charge.hold(held));
    }

    fn use_pieces(&self, more: u32, less: u32) {
        self.pieces.set(self.pieces.get() + more - less);
        self.update();
    }
}

/// A value that an item has.
#[derive(Debug)]
pub struct Stored(Rc<Body>);

impl Stored {
    /// From now on.
    pub fn new(body: Rc<Body>) -> Stored {
        body.stored.set(true);
        body.update();
        Stored(body)
    }

    /// The value.
    pub fn body(&self) -> &Rc<Body> {
        &self.0
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.0.stored.set(false);
        self.0.update();
    }
}

/// A part of a value that is to be sent or carried; it keeps all of the value.
#[derive(Debug)]
pub struct Piece {
    body: Rc<Body>,
    extent: u32,
    start: u32,
    end: u32,
}

impl Piece {
    /// These bytes of an extent.
    pub fn new(body: &Rc<Body>, extent: u32, range: Range<usize>) -> Piece {
        body.use_pieces(1, 0);
        let (start, end) = (range.start as u32, range.end as u32); // an extent has 64 KiB at the most
        Piece { body: body.clone(), extent, start, end }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.body.extents()[self.extent as usize][self.start as usize..self.end as usize]
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Forgets the first `count`.
    pub fn skip(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "no more than there are");
        self.start += count as u32;
    }

    /// Forgets all but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len as u32);
    }

    /// Whether its memory is of another pool than the items'.
    pub fn is_foreign(&self) -> bool {
        self.body.charge.is_none()
    }

    /// Its part of the memory that the value takes: the others that are to be sent of it have the rest.
    pub fn held_bytes(&self) -> usize {
        self.body.pool_bytes() / self.body.pieces.get() as usize
    }
}

impl Clone for Piece {
    fn clone(&self) -> Piece {
        Piece::new(&self.body, self.extent, self.start as usize..self.end as usize)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.body.use_pieces(0, 1);
    }
}
