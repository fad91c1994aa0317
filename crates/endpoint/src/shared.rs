//! Two message rings between two processes of one host, in memory that both map.
//!
//! Each side owns one stretch of memory and only reads the other's, so every shared byte has one writer:
//!
//! ```text
//! owner's memory   tail | head | sleeping | processor | layout | taken | slots ... | trailers ...
//!                   |      |       |                                     |
//!                   |      |       |                                     control 128, count, pieces
//!                   |      |       which sleep the owner is in; 0 is awake
//!                   |      entries of the peer's ring that the owner is done with
//!                   entries of this ring that the owner has written
//! ```
//!
//! Payloads are not in the rings: a slot names pieces of the owner's pool, and they stay busy until the peer's head
//! has passed the slot. A payload may still be filling: the count of its pieces grows, and what is counted does not
//! change any more and may be copied.
//!
//! It is not a transport: mapping memory, copying payloads and waking a sleeper are the link's. The logic is generic
//! over how a word is reached, so that loom checks the order of what runs over mapped memory.
//!
//! Invariant: nothing that the peer writes is used before it has been copied once and checked. A hostile peer makes
//! [`Broken`], wrong payloads and useless wake-ups, never an access outside the two stretches.

use crate::limits::GATHER_MAX;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use wire::Control;
use wire::limits::{CONTROL_BYTES, TRAILER_BYTES_MAX};

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

const WORD_BYTES: usize = 8;
/// Counters stand on cache lines of their own.
const TAIL: usize = 0;
const HEAD: usize = 8;
const SLEEPING: usize = 16;
const PROCESSOR: usize = 24;
const LAYOUT: usize = 32;
const TAKEN: usize = 40;
/// Slots start on the second page.
const SLOTS_AT: usize = 512;
const CONTROL_WORDS: usize = CONTROL_BYTES / WORD_BYTES;
const COUNT_AT: usize = CONTROL_WORDS;
const PIECES_AT: usize = CONTROL_WORDS + 1;
/// 16 + 1 + 64 words, rounded up to whole cache lines.
const SLOT_WORDS: usize = (PIECES_AT + GATHER_MAX).next_multiple_of(8);
/// Pieces of one slot: what the cache lines that hold [`GATHER_MAX`] have room for.
pub const PIECES_MAX: usize = SLOT_WORDS - PIECES_AT;
const TRAILER_WORDS: usize = TRAILER_BYTES_MAX.div_ceil(WORD_BYTES).next_multiple_of(8);
/// A piece is one word: 40 bits of offset, 24 of length.
const PIECE_BYTES_BITS: u32 = 24;
/// Names this layout; another one is refused at the handshake.
const LAYOUT_VALUE: u64 = u64::from_le_bytes(*b"tpzring3");
/// The lowest bit of `sleeping`: the sleeper also waits for room in its ring.
const WANTS_ROOM: u64 = 1;

/// How the words of one side's memory are read.
pub trait Memory {
    /// Reads a word that its owner changes while others read it.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Reads words that their owner does not change now, if it is honest.
    fn copy_out(&self, word: usize, into: &mut [u64]);
    /// Says that words will be read soon. Need not do anything.
    fn prefetch(&self, word: usize, count: usize) {
        let _ = (word, count);
    }
}

/// Write access to the own words; no other process writes there.
pub trait OwnMemory: Memory {
    /// Writes a word that others read at the same time.
    fn store(&self, word: usize, value: u64, order: Ordering);
    /// Writes words that the peer does not read before they are announced.
    fn copy_in(&self, word: usize, from: &[u64]);
}

/// Words of memory that one side needs for rings of `slots` slots.
pub const fn memory_words(slots: usize) -> usize {
    SLOTS_AT + slots * (SLOT_WORDS + TRAILER_WORDS)
}

/// Bytes of payload in the sender's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte, counted from the pool's.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl Piece {
    fn pack(self) -> u64 {
        assert!(self.bytes < 1 << PIECE_BYTES_BITS, "a piece is at most one payload");
        assert!(self.offset < 1 << (64 - PIECE_BYTES_BITS), "a pool is smaller than 1 TiB");
        (self.offset as u64) << PIECE_BYTES_BITS | self.bytes as u64
    }

    fn unpack(word: u64) -> Piece {
        let bytes = word & ((1 << PIECE_BYTES_BITS) - 1);
        Piece { offset: (word >> PIECE_BYTES_BITS) as usize, bytes: bytes as usize }
    }
}

/// A violation of the ring's protocol by the peer. The link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The memory is laid out in another way: another release.
    Layout,
    /// More entries announced, or released, than there can be.
    Cursor,
    /// More pieces than a message may have.
    Pieces,
    /// A piece that is not inside the peer's pool.
    Bounds,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::Layout => "the peer's shared memory is laid out by another release",
            Broken::Cursor => "the peer's ring counters are impossible",
            Broken::Pieces => "the peer names more payload pieces than a message may have",
            Broken::Bounds => "the peer names payload outside its memory",
        })
    }
}

impl std::error::Error for Broken {}

/// A copy of one arrived slot.
#[derive(Debug)]
pub struct Entry {
    /// The control message, not checked.
    pub control: Control,
    pieces: [u64; PIECES_MAX],
    count: usize,
}

impl Default for Entry {
    fn default() -> Self {
        Entry { control: Control::default(), pieces: [0; PIECES_MAX], count: 0 }
    }
}

impl Entry {
    /// Pieces of the payload in the peer's pool, in order, as far as they are there; each is inside the pool.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        self.pieces[..self.count].iter().map(|word| Piece::unpack(*word))
    }

    /// Bytes of payload that the pieces hold.
    pub fn payload_bytes(&self) -> usize {
        self.pieces().map(|piece| piece.bytes).sum()
    }
}

/// One end of a pair of rings: sends by its own memory, receives by the peer's.
#[derive(Debug)]
pub struct End<O, P> {
    own: O,
    peer: P,
    slots: u64,
    tail: u64,
    freed: u64,
    /// The peer's `taken` as it was last seen.
    taken: Cell<u64>,
    head: u64,
    /// The peer's tail as it was last seen: an honest one never goes back.
    seen: Cell<u64>,
    sleeps: u64,
    woken: u64,
    /// `head` when the peer was last asked whether it waits for room.
    asked: u64,
}

impl<O: OwnMemory, P: Memory> End<O, P> {
    /// An end over fresh own memory, which must be zero and hold [`memory_words`] of `slots`, a power of two; and the
    /// peer's, which may not be laid out yet.
    pub fn new(own: O, peer: P, slots: usize) -> Self {
        assert!(slots.is_power_of_two());
        own.store(LAYOUT, LAYOUT_VALUE, Ordering::Release);
        let (slots, seen) = (slots as u64, Cell::new(0));
        let (tail, freed, taken, head) = (0, 0, Cell::new(0), 0);
        End { own, peer, slots, tail, freed, taken, head, seen, sleeps: 0, woken: 0, asked: 0 }
    }

    /// Whether the peer's memory is laid out as ours.
    pub fn check_layout(&self) -> Result<(), Broken> {
        let theirs = self.peer.load(LAYOUT, Ordering::Acquire);
        if theirs == LAYOUT_VALUE { Ok(()) } else { Err(Broken::Layout) }
    }

    /// The peer's memory.
    pub fn peer(&self) -> &P {
        &self.peer
    }

    #[inline]
    fn slot(&self, entry: u64) -> usize {
        SLOTS_AT + (entry & (self.slots - 1)) as usize * SLOT_WORDS
    }

    #[inline]
    fn trailer_slot(&self, entry: u64) -> usize {
        let first = SLOTS_AT + self.slots as usize * SLOT_WORDS;
        first + (entry & (self.slots - 1)) as usize * TRAILER_WORDS
    }

    // Sending.

    /// Slots free for [`post`](End::post).
    pub fn room(&self) -> usize {
        (self.slots - (self.tail - self.freed)) as usize
    }

    /// Entries posted whose payload the peer may still read.
    pub fn under_way(&self) -> usize {
        (self.tail - self.freed) as usize
    }

    /// Writes the next slot and announces it; returns its number. The pieces may be copied from now on. Panics without
    /// room, with too many pieces, or with a trailer that is too long.
    pub fn post(&mut self, control: &Control, pieces: &[Piece], trailer: &[u8]) -> u64 {
        assert!(self.room() > 0, "the caller looks for room first");
        assert!(pieces.len() <= PIECES_MAX);
        let (entry, slot) = (self.tail, self.slot(self.tail));
        let mut words = [0; CONTROL_WORDS];
        for (word, bytes) in words.iter_mut().zip(control.0.chunks_exact(WORD_BYTES)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        self.own.copy_in(slot, &words);
        self.write_pieces(slot + PIECES_AT, pieces);
        self.own.store(slot + COUNT_AT, pieces.len() as u64, Ordering::Relaxed);
        self.write_trailer(trailer);
        self.tail += 1;
        self.own.store(TAIL, self.tail, Ordering::Release);
        entry
    }

    fn write_pieces(&self, at: usize, pieces: &[Piece]) {
        for (n, piece) in pieces.iter().enumerate() {
            self.own.copy_in(at + n, &[piece.pack()]);
        }
    }

    fn write_trailer(&self, trailer: &[u8]) {
        assert!(trailer.len() <= TRAILER_BYTES_MAX);
        let slot = self.trailer_slot(self.tail);
        for (n, bytes) in trailer.chunks(WORD_BYTES).enumerate() {
            let mut whole = [0; WORD_BYTES];
            whole[..bytes.len()].copy_from_slice(bytes);
            self.own.copy_in(slot + n, &[u64::from_le_bytes(whole)]);
        }
    }

    /// Adds pieces to the payload of the posted `entry` behind the `before` that it has; from now on they may be copied
    /// too. Panics when the peer has released the entry.
    pub fn publish(&mut self, entry: u64, before: usize, more: &[Piece]) {
        assert!(entry < self.tail);
        assert!(entry >= self.freed);
        let count = before + more.len();
        assert!(count <= PIECES_MAX);
        let slot = self.slot(entry);
        self.write_pieces(slot + PIECES_AT + before, more);
        self.own.store(slot + COUNT_AT, count as u64, Ordering::Release);
    }

    /// The number of the oldest entry that the peer has not released, as far as [`reclaim`](End::reclaim) has seen.
    pub fn oldest(&self) -> u64 {
        self.freed
    }

    /// Number of the oldest entries that the peer has released since the last call.
    pub fn reclaim(&mut self) -> Result<usize, Broken> {
        let head = self.peer.load(HEAD, Ordering::Acquire);
        let more = head.wrapping_sub(self.freed);
        if more > self.tail - self.freed {
            return Err(Broken::Cursor);
        }
        self.freed = head;
        Ok(more as usize)
    }

    /// To be asked after posts or publications: whether the peer sleeps and must be woken. Says so once per sleep.
    pub fn must_wake(&mut self) -> bool {
        self.bell(0)
    }

    /// To be asked after all releases: whether the peer sleeps and waits for room.
    ///
    /// Asking costs a fence, so it is done only when the peer can have found its ring full since the last time. A peer
    /// that fell asleep after that had seen at least the `head` of that time, so its tail, which this side has seen
    /// before it releases the last entry, is a whole ring further.
    pub fn must_wake_for_room(&mut self) -> bool {
        if self.seen.get().wrapping_sub(self.asked) < self.slots {
            return false;
        }
        self.asked = self.head;
        self.bell(WANTS_ROOM)
    }

    /// To be asked after [`set_taken`](End::set_taken): whether the peer sleeps and waits for room.
    pub fn must_wake_for_taken(&mut self) -> bool {
        self.bell(WANTS_ROOM)
    }

    fn bell(&mut self, wanted: u64) -> bool {
        // Orders our counter before the load of `sleeping`; the sleeper has the same fence between its store of
        // `sleeping` and its last look at our counters. One of the two sees the other.
        fence(Ordering::SeqCst);
        let sleeping = self.peer.load(SLEEPING, Ordering::Relaxed);
        let wake = sleeping != 0 && sleeping != self.woken && sleeping & wanted == wanted;
        if wake {
            self.woken = sleeping;
        }
        wake
    }

    // Receiving.

    /// Entries that have arrived and are not released.
    #[inline]
    pub fn arrived(&self) -> Result<u64, Broken> {
        let tail = self.peer.load(TAIL, Ordering::Acquire);
        let (waiting, seen) =
            (tail.wrapping_sub(self.head), self.seen.get().wrapping_sub(self.head));
        if waiting > self.slots || waiting < seen {
            return Err(Broken::Cursor);
        }
        self.seen.set(tail);
        Ok(waiting)
    }

    /// Copies the oldest entry; it stays until it is released. Whether there was one. Its pieces are checked against
    /// a pool of `pool_bytes`.
    pub fn read(&self, pool_bytes: usize, into: &mut Entry) -> Result<bool, Broken> {
        if self.arrived()? == 0 {
            return Ok(false);
        }
        let slot = self.slot(self.head);
        let mut words = [0; CONTROL_WORDS];
        self.peer.copy_out(slot, &mut words);
        for (bytes, word) in into.control.0.chunks_exact_mut(WORD_BYTES).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        into.count = 0;
        self.read_more(pool_bytes, into)?;
        Ok(true)
    }

    /// Looks at the oldest entry, which `into` is a copy of, once more: there may be more pieces.
    pub fn read_more(&self, pool_bytes: usize, into: &mut Entry) -> Result<(), Broken> {
        let (before, count) = (into.count, self.count());
        if count > PIECES_MAX || count < before {
            return Err(Broken::Pieces);
        }
        let pieces = self.slot(self.head) + PIECES_AT;
        let more = &mut into.pieces[before..count];
        self.peer.copy_out(pieces + before, more);
        let inside = |piece: Piece| piece.offset + piece.bytes <= pool_bytes;
        if !more.iter().all(|word| inside(Piece::unpack(*word))) {
            return Err(Broken::Bounds);
        }
        // Only now: a call that asks again after an error must not find them taken for checked.
        into.count = count;
        Ok(())
    }

    /// Whether the oldest entry has other pieces by now than `entry`, which is a copy of it.
    pub fn has_more(&self, entry: &Entry) -> bool {
        self.count() != entry.count
    }

    /// Pieces of the oldest entry, as far as the peer says; any number.
    fn count(&self) -> usize {
        let word = self.peer.load(self.slot(self.head) + COUNT_AT, Ordering::Acquire);
        usize::try_from(word).unwrap_or(usize::MAX)
    }

    /// Copies the start of the oldest entry's trailer.
    pub fn read_trailer(&self, into: &mut [u8]) {
        let slot = self.trailer_slot(self.head);
        for (n, bytes) in into.chunks_mut(WORD_BYTES).take(TRAILER_WORDS).enumerate() {
            let mut word = [0];
            self.peer.copy_out(slot + n, &mut word);
            bytes.copy_from_slice(&word[0].to_le_bytes()[..bytes.len()]);
        }
    }

    /// Says that the oldest entry, or the next to come, will be read soon: while this side waits for the peer's
    /// counter, what it announces is already on its way from the peer's processor.
    pub fn prefetch(&self) {
        self.prefetch_entry(self.head);
    }

    /// As [`prefetch`](End::prefetch), of the entry behind the oldest.
    pub fn prefetch_behind(&self) {
        self.prefetch_entry(self.head.wrapping_add(1));
    }

    #[inline]
    fn prefetch_entry(&self, entry: u64) {
        self.peer.prefetch(self.slot(entry), PIECES_AT + 1);
        self.peer.prefetch(self.trailer_slot(entry), 1);
    }

    /// Gives the oldest entry back: the peer may reuse slot and payload. Panics when [`read`](End::read) or
    /// [`arrived`](End::arrived) has not shown it before; what the peer says by now does not matter.
    pub fn release(&mut self) {
        assert!(self.seen.get() != self.head, "only what has arrived is released");
        self.head += 1;
        self.own.store(HEAD, self.head, Ordering::Release);
    }

    /// Says how much has been taken so far of the entries that are not released, in units of the link's own: a sender
    /// whose memory is smaller than a payload goes on with that. It never goes back.
    pub fn set_taken(&mut self, taken: u64) {
        self.own.store(TAKEN, taken, Ordering::Release);
    }

    /// Bytes that the peer has taken, if it is honest; any number.
    pub fn taken(&self) -> u64 {
        self.taken.set(self.peer.load(TAKEN, Ordering::Acquire));
        self.taken.get()
    }

    // Sleeping.

    /// Announces that this side goes to sleep, also waiting for room when `for_room`. True when something arrived (or
    /// room appeared) meanwhile: then it must not sleep. While the oldest entry is half copied, `half` is that copy,
    /// and only more of it counts. Ends with [`awake`](End::awake) in any case.
    pub fn before_sleep(&mut self, for_room: bool, half: Option<&Entry>) -> bool {
        self.sleeps += 1;
        let word = self.sleeps << 1 | u64::from(for_room);
        self.own.store(SLEEPING, word, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let taken = || self.peer.load(TAKEN, Ordering::Acquire) != self.taken.get();
        let room = for_room && (self.peer.load(HEAD, Ordering::Acquire) != self.freed || taken());
        let news = half.map_or_else(|| self.arrived() != Ok(0), |entry| self.has_more(entry));
        news || room
    }

    /// Announces that this side looks at its rings again.
    pub fn awake(&mut self) {
        self.own.store(SLEEPING, 0, Ordering::Release);
    }

    /// Tells the peer the processor that this side runs on.
    pub fn set_processor(&mut self, processor: u32) {
        self.own.store(PROCESSOR, u64::from(processor) + 1, Ordering::Relaxed);
    }

    /// The processor that the peer last said it runs on.
    pub fn peer_processor(&self) -> Option<u32> {
        let word = self.peer.load(PROCESSOR, Ordering::Relaxed);
        u32::try_from(word.checked_sub(1)?).ok()
    }

    /// Whether the peer is about to sleep or asleep.
    pub fn peer_sleeps(&self) -> bool {
        self.peer.load(SLEEPING, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests;
