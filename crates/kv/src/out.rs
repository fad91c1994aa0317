//! Replies that wait to be written: text, and the frames of values themselves.

use crate::body::{Body, Piece};
use crate::limits::OUTPUT_BYTES_MAX;
use crate::number::Decimal;
pub(crate) use crate::rope::{Chunk, Rope};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Output that waits, in order.
#[derive(Debug, Default)]
pub struct Out {
    text: Vec<u8>,
    parts: VecDeque<Part>,
    waiting: usize,
    /// Replies among the parts that have not come.
    laters: usize,
    /// Among them may be one of a change that another node makes.
    changes: bool,
}

/// Connections whose replies have come, by their seats.
pub(crate) type Ready = Rc<RefCell<Vec<u32>>>;

/// The waiter for a reply that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// A connection, by the world's number.
    Connection(u32),
    /// A command of another node.
    Carried(u32),
}

/// A reply that comes later. Replies behind it wait, so that answers stay in order.
#[derive(Clone, Debug)]
pub(crate) struct Later(Rc<Reply>);

#[derive(Debug)]
struct Reply {
    answer: RefCell<Option<Vec<Chunk>>>,
    seat: u32,
    ready: Ready,
}

impl Later {
    /// For the connection at a seat.
    pub fn new(seat: u32, ready: Ready) -> Later {
        Later(Rc::new(Reply { answer: RefCell::default(), seat, ready }))
    }

    /// Here it is.
    pub fn answer(self, chunks: Vec<Chunk>) {
        *self.0.answer.borrow_mut() = Some(chunks);
        self.0.ready.borrow_mut().push(self.0.seat);
    }
}

#[derive(Debug)]
enum Part {
    /// A range of the text.
    Text(usize, usize),
    /// Bytes of a value.
    Value(Piece),
    /// Text that came later, from the given byte on.
    Told(Vec<u8>, usize),
    /// The reply to come, and its expected bytes.
    Later(Later, usize),
}

impl Out {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Bytes of memory of the text that was made for it, whether it waits or was written.
    pub fn text_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether some reply has not come.
    pub fn has_laters(&self) -> bool {
        self.laters > 0
    }

    /// Whether a change that another node makes is not answered.
    pub(crate) fn waits_for_change(&self) -> bool {
        self.changes && self.laters > 0
    }

    /// The last addition comes from another node.
    pub(crate) fn note_carried(&mut self, changes: bool) {
        self.changes = changes || self.waits_for_change();
    }

    /// Whether the next thing to be written has not come.
    pub fn is_blocked(&self) -> bool {
        matches!(self.parts.front(), Some(Part::Later(..)))
    }

    /// Adds a reply that comes later, of about so many bytes.
    pub(crate) fn later(&mut self, later: &Later, bytes: usize) {
        self.laters += 1;
        self.waiting += bytes;
        self.parts.push_back(Part::Later(later.clone(), bytes));
    }

    /// Puts replies that have come in their places.
    pub fn settle(&mut self) {
        if self.laters == 0 {
            return;
        }
        for part in std::mem::take(&mut self.parts) {
            match part {
                Part::Later(later, bytes) => self.settle_one(later, bytes),
                part => self.parts.push_back(part),
            }
        }
    }

    fn settle_one(&mut self, later: Later, bytes: usize) {
        let answer = later.0.answer.borrow_mut().take();
        let Some(chunks) = answer else { return self.parts.push_back(Part::Later(later, bytes)) };
        self.laters -= 1;
        self.waiting -= bytes;
        for chunk in chunks {
            match chunk {
                Chunk::Text(text) if !text.is_empty() => {
                    self.waiting += text.len();
                    self.parts.push_back(Part::Told(text, 0));
                }
                Chunk::Text(_) => {}
                Chunk::Value(piece) => self.piece(piece),
            }
        }
    }

    /// Whether so much waits that no more is to be made.
    pub fn is_full(&self) -> bool {
        self.waiting >= OUTPUT_BYTES_MAX
    }

    /// Adds text.
    pub fn text(&mut self, bytes: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        self.grown(start);
    }

    /// Adds a number.
    pub fn number(&mut self, value: u64) {
        self.text(Decimal::new(value).text());
    }

    /// Adds a number.
    pub fn signed(&mut self, value: i64) {
        self.text(Decimal::signed(value).text());
    }

    /// Adds what `write` appends.
    pub fn with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.grown(start);
    }

    /// The text from `start` on is new.
    fn grown(&mut self, start: usize) {
        let end = self.text.len();
        self.waiting += end - start;
        match self.parts.back_mut() {
            Some(Part::Text(_, before)) => *before = end,
            _ if end > start => self.parts.push_back(Part::Text(start, end)),
            _ => {}
        }
    }

    /// Adds bytes of a value, which are not copied.
    pub(crate) fn piece(&mut self, piece: Piece) {
        if piece.len() > 0 {
            self.waiting += piece.len();
            self.parts.push_back(Part::Value(piece));
        }
    }

    fn values(&self) -> impl Iterator<Item = &Piece> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(piece) => Some(piece),
            _ => None,
        })
    }

    /// Bytes of the items' memory that values among it take: its part, where others wait for the same ones.
    pub fn held_bytes(&self) -> usize {
        self.values().map(Piece::held_bytes).sum()
    }

    /// Values that came from other nodes' memory are copied by `copy`; where that fails all is good for nothing.
    pub(crate) fn copy_foreign<E>(
        &mut self,
        mut copy: impl FnMut(&[u8]) -> Result<Rc<Body>, E>,
    ) -> Result<(), E> {
        if !self.values().any(Piece::is_foreign) {
            return Ok(());
        }
        for part in std::mem::take(&mut self.parts) {
            match part {
                Part::Value(piece) if piece.is_foreign() => {
                    self.parts.extend(copy(piece.bytes())?.pieces().map(Part::Value));
                }
                part => self.parts.push_back(part),
            }
        }
        Ok(())
    }

    /// Adds all that waits in another.
    pub(crate) fn join(&mut self, other: Out) {
        let start = self.text.len();
        self.changes = self.waits_for_change() || other.waits_for_change();
        self.text.extend_from_slice(&other.text);
        self.parts.extend(other.parts.into_iter().map(|part| match part {
            Part::Text(from, to) => Part::Text(start + from, start + to),
            part => part,
        }));
        self.waiting += other.waiting;
        self.laters += other.laters;
    }

    /// Takes back the text that was added since there were `len` bytes.
    pub fn take_back(&mut self, len: usize) {
        let bytes = self.waiting - len;
        self.waiting = len;
        self.text.truncate(self.text.len() - bytes);
        let Some(Part::Text(start, end)) = self.parts.back_mut() else { return };
        *end -= bytes;
        if start == end {
            self.parts.pop_back();
        }
    }

    /// The first pieces that wait, for one gathered write: as far as all has come.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map_while(|part| match part {
            Part::Text(start, end) => Some(&self.text[*start..*end]),
            Part::Value(piece) => Some(piece.bytes()),
            Part::Told(text, from) => Some(&text[*from..]),
            Part::Later(..) => None,
        })
    }

    /// Writes the first pieces that wait to memory.
    pub fn write_to(&mut self, to: &mut Vec<u8>) {
        let before = to.len();
        self.pieces().for_each(|piece| to.extend_from_slice(piece));
        self.written(to.len() - before);
    }

    /// All output, once it is complete.
    pub(crate) fn into_rope(self) -> Rope {
        let text = self.text;
        let chunks = self.parts.into_iter().filter_map(|part| match part {
            Part::Text(start, end) => Some(Chunk::Text(text[start..end].to_vec())),
            Part::Value(piece) => Some(Chunk::Value(piece)),
            Part::Told(told, from) => Some(Chunk::Text(told[from..].to_vec())),
            Part::Later(..) => None,
        });
        Rope::of_chunks(chunks.collect())
    }

    /// So many bytes have been written.
    pub fn written(&mut self, mut bytes: usize) {
        self.waiting = self.waiting.checked_sub(bytes).expect("no more than there was");
        while bytes > 0 {
            let left = match self.parts.front_mut().expect("as long as bytes wait") {
                Part::Text(start, end) => {
                    let step = bytes.min(*end - *start);
                    (*start, bytes) = (*start + step, bytes - step);
                    *end - *start
                }
                Part::Value(piece) => {
                    let step = bytes.min(piece.len());
                    piece.skip(step);
                    bytes -= step;
                    piece.len()
                }
                Part::Told(text, from) => {
                    let step = bytes.min(text.len() - *from);
                    (*from, bytes) = (*from + step, bytes - step);
                    text.len() - *from
                }
                Part::Later(..) => unreachable!("it has not come, so it was not written"),
            };
            if left == 0 {
                self.parts.pop_front();
            }
        }
        if self.parts.is_empty() {
            self.clear();
        }
    }

    /// Forgets everything, but for the memory of the text, which is used again.
    pub fn clear(&mut self) {
        self.text.clear();
        self.parts.clear();
        (self.waiting, self.laters) = (0, 0);
        self.text.shrink_to(OUTPUT_BYTES_MAX);
    }
}
