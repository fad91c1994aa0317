//! Values that have pages of their own, and drafts: such values while they arrive.

use crate::away::Trip;
use crate::body::{Account, Body, Charge, Stored, pool_bytes};
use crate::limits::EXTENT_BYTES;
use crate::out::{Chunk, Out, Rope};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, FrameMut, Frames};
use std::rc::Rc;

/// Place of an item's value.
#[derive(Debug, Default)]
pub enum Value {
    /// Beside the key.
    #[default]
    Beside,
    /// In extents.
    Here(Stored),
    /// In other memory.
    Away(Rc<Trip>),
}

impl Value {
    /// The extents that are here to stay, in order.
    pub fn extents(&self) -> &[Frame] {
        match self {
            Value::Beside | Value::Away(_) => &[],
            Value::Here(stored) => stored.body().extents(),
        }
    }

    /// Bytes of the pool that the value's pages take; they are counted by themselves.
    pub fn pool_bytes(&self) -> usize {
        match self {
            Value::Beside | Value::Away(_) => 0,
            Value::Here(stored) => stored.body().pool_bytes(),
        }
    }

    /// Whether it is being sent, so that its pages stay whatever becomes of the item.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Value::Here(stored) if stored.body().is_in_use())
    }

    /// Adds the value to what is to be written.
    pub fn send(&self, out: &mut Out) {
        match self {
            Value::Beside => {}
            Value::Here(stored) => stored.body().pieces().for_each(|piece| out.piece(piece)),
            Value::Away(trip) => {
                Body::new(trip.pages(), None).pieces().for_each(|piece| out.piece(piece));
            }
        }
    }
}

/// A value that is arriving, in the extents where it stays.
#[derive(Debug)]
pub struct Draft {
    done: Vec<Frame>,
    /// The extent that is being filled.
    current: Option<FrameMut>,
    /// Bytes of it that are.
    at: usize,
    /// Bytes that have not arrived.
    left: usize,
    len: usize,
    /// It is made and stored at once: no rest of it is awaited.
    passes: bool,
    charge: Option<Charge>,
}

impl Draft {
    /// Of a value of `len` bytes; it has no memory yet.
    pub fn new(len: usize) -> Draft {
        let (done, current, charge) = (Vec::new(), None, None);
        Draft { done, current, at: 0, left: len, len, passes: false, charge }
    }

    /// The same, of a value that is here and becomes an item's before anything else is done.
    pub(crate) fn passing(len: usize) -> Draft {
        Draft { passes: true, ..Draft::new(len) }
    }

    /// Whether it becomes an item's before anything else is done.
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    /// Bytes that have not arrived.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes of all of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the pool that it has.
    pub fn held_bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// Whether the next byte has no place yet.
    pub fn wants_extent(&self) -> bool {
        self.left > 0 && self.current.is_none()
    }

    /// Bytes of the next extent, at the best.
    pub fn next_extent_bytes(&self) -> usize {
        self.left.min(EXTENT_BYTES)
    }

    /// Takes an extent from the pool, as long as there is one; whether there was any.
    pub(crate) fn take_extent(&mut self, frames: &Frames, account: &Rc<Account>) -> bool {
        let mut bytes = self.next_extent_bytes();
        loop {
            if let Some(frame) = frames.alloc_exact(bytes) {
                self.current = Some(frame);
                let charge = self.charge.get_or_insert_with(|| Charge::new(account.clone()));
                charge.add(pool_bytes(bytes));
                return true;
            }
            if bytes <= PAGE_BYTES {
                return false;
            }
            bytes = (bytes / 2).next_multiple_of(PAGE_BYTES);
        }
    }

    /// Room for the next bytes; empty when an extent has to be taken first, or nothing is missing.
    pub fn gap(&mut self) -> &mut [u8] {
        match &mut self.current {
            Some(frame) => &mut frame[self.at..],
            None => &mut [],
        }
    }

    /// So many bytes have been put into the gap.
    pub fn filled(&mut self, bytes: usize) {
        self.at += bytes;
        self.left -= bytes;
        if self.current.as_ref().is_some_and(|frame| frame.len() == self.at) {
            let frame = self.current.take().expect("it is there");
            self.done.push(frame.freeze());
            self.at = 0;
        }
    }

    /// Copies the first of `bytes` into the gap; how many.
    pub fn copy(&mut self, bytes: &[u8]) -> usize {
        let gap = self.gap();
        let count = gap.len().min(bytes.len());
        gap[..count].copy_from_slice(&bytes[..count]);
        if count > 0 {
            self.filled(count);
        }
        count
    }

    /// The bytes that have arrived, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let current = self.current.as_ref().map(|frame| &frame[..self.at]);
        self.done.iter().map(|frame| &frame[..]).chain(current)
    }

    /// The bytes, when all of them have arrived.
    pub(crate) fn into_rope(self) -> Rope {
        Rope::of_chunks(self.finish().pieces().map(Chunk::Value).collect())
    }

    /// The value, when all of it has arrived.
    pub(crate) fn finish(self) -> Rc<Body> {
        debug_assert_eq!(self.left, 0, "all has arrived");
        Body::new(self.done, self.charge)
    }
}
