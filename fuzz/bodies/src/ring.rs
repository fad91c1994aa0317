//! The reader of shared rings over memory that a hostile peer writes.

use endpoint::shared::{End, Entry, Memory, OwnMemory, memory_words};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use wire::Control;
use wire::limits::TRAILER_BYTES_MAX;

const SLOTS: usize = 4;
const POOL_BYTES: usize = 1 << 20;

#[derive(Clone)]
struct Words(Rc<[Cell<u64>]>);

impl Words {
    fn new() -> Words {
        Words((0..memory_words(SLOTS)).map(|_| Cell::new(0)).collect())
    }
}

impl Memory for Words {
    fn load(&self, word: usize, _: Ordering) -> u64 {
        self.0[word].get()
    }
    fn copy_out(&self, word: usize, into: &mut [u64]) {
        let from = &self.0[word..word + into.len()];
        into.iter_mut().zip(from).for_each(|(to, from)| *to = from.get());
    }
}

impl OwnMemory for Words {
    fn store(&self, word: usize, value: u64, _: Ordering) {
        self.0[word].set(value);
    }
    fn copy_in(&self, word: usize, from: &[u64]) {
        let to = &self.0[word..word + from.len()];
        to.iter().zip(from).for_each(|(to, from)| to.set(*from));
    }
}

/// Steps of 11 bytes: what to do, a word of the peer's memory, its new value. Whatever the peer writes when, what is
/// read lies in its pool, and no counter makes the reader panic.
pub fn ring(bytes: &[u8]) {
    let (own, peer) = (Words::new(), Words::new());
    let mut end = End::new(own, peer.clone(), SLOTS);
    let (mut entry, mut holds) = (Entry::default(), false);
    for step in bytes.chunks_exact(11) {
        let word = usize::from(u16::from_le_bytes([step[1], step[2]])) % memory_words(SLOTS);
        peer.0[word].set(u64::from_le_bytes(step[3..].try_into().expect("8 bytes")));
        match step[0] % 8 {
            0 if end.read(POOL_BYTES, &mut entry) == Ok(true) => {
                assert!(entry.pieces().all(|piece| piece.offset + piece.bytes <= POOL_BYTES));
                holds = true;
            }
            1 if holds => {
                end.read_trailer(&mut [0; TRAILER_BYTES_MAX]);
                end.release();
                holds = false;
            }
            2 if end.room() > 0 => drop(end.post(&Control::default(), &[], b"checksums")),
            3 => drop(end.reclaim()),
            4 => drop((end.must_wake(), end.must_wake_for_room(), end.has_more(&entry))),
            5 => {
                end.before_sleep(step[1] % 2 == 0, holds.then_some(&entry));
                end.awake();
            }
            6 if holds && end.read_more(POOL_BYTES, &mut entry).is_ok() => {
                assert!(entry.pieces().all(|piece| piece.offset + piece.bytes <= POOL_BYTES));
            }
            7 => drop((end.peer_processor(), end.peer_sleeps(), end.check_layout())),
            _ => {}
        }
        assert!(end.under_way() <= SLOTS);
    }
}
