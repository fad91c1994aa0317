//! Both ends in one process, and a hostile one.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const SLOTS: usize = 4;
const POOL_BYTES: usize = 1 << 20;

#[derive(Clone)]
struct Heap(Arc<[AtomicU64]>);

impl Heap {
    fn new() -> Heap {
        Heap((0..memory_words(SLOTS)).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Memory for Heap {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0[word].load(order)
    }
    fn copy_out(&self, word: usize, into: &mut [u64]) {
        let from = &self.0[word..word + into.len()];
        into.iter_mut().zip(from).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    }
}

impl OwnMemory for Heap {
    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.0[word].store(value, order);
    }
    fn copy_in(&self, word: usize, from: &[u64]) {
        let to = &self.0[word..word + from.len()];
        to.iter().zip(from).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
    }
}

fn pair() -> (End<Heap, Heap>, End<Heap, Heap>) {
    let (a, b) = (Heap::new(), Heap::new());
    (End::new(a.clone(), b.clone(), SLOTS), End::new(b, a, SLOTS))
}

fn numbered(number: u8) -> Control {
    Control([number; CONTROL_BYTES])
}

#[test]
fn a_message_crosses_with_its_pieces_and_trailer() {
    let (mut a, mut b) = pair();
    let pieces = [Piece { offset: 4096, bytes: 10 }, Piece { offset: 8192, bytes: 1 << 19 }];
    a.post(&numbered(7), &pieces, b"checksums");
    let mut entry = Entry::default();
    assert!(b.read(POOL_BYTES, &mut entry).unwrap());
    assert_eq!(entry.control, numbered(7));
    assert_eq!(entry.pieces().collect::<Vec<_>>(), pieces);
    let mut trailer = [0; 9];
    b.read_trailer(&mut trailer);
    assert_eq!(&trailer, b"checksums");
    assert_eq!(a.reclaim(), Ok(0));
    b.release();
    assert_eq!(a.reclaim(), Ok(1));
    assert!(!b.read(POOL_BYTES, &mut entry).unwrap());
}

#[test]
fn a_message_is_read_piece_by_piece_while_it_fills() {
    let (mut a, mut b) = pair();
    let pieces = [0, 1, 2].map(|n| Piece { offset: n * 8192, bytes: 100 });
    let number = a.post(&numbered(7), &pieces[..1], &[]);
    let mut entry = Entry::default();
    assert!(b.read(POOL_BYTES, &mut entry).unwrap());
    assert_eq!(entry.payload_bytes(), 100);
    assert!(!b.before_sleep(false, Some(&entry)), "nothing new: it may sleep");
    a.publish(number, 1, &pieces[1..]);
    assert!(a.must_wake());
    assert!(b.before_sleep(false, Some(&entry)));
    b.awake();
    b.read_more(POOL_BYTES, &mut entry).unwrap();
    assert_eq!(entry.pieces().collect::<Vec<_>>(), pieces);
    assert!(!b.has_more(&entry));
    b.release();
    assert_eq!((a.reclaim(), a.oldest()), (Ok(1), number + 1));
}

#[test]
fn the_ring_turns_over_and_is_never_overrun() {
    let (mut a, mut b) = pair();
    let mut entry = Entry::default();
    for round in 0..10u8 {
        for n in 0..SLOTS as u8 {
            a.post(&numbered(round * 4 + n), &[], &[]);
        }
        assert_eq!(a.room(), 0);
        for n in 0..SLOTS as u8 {
            assert!(b.read(POOL_BYTES, &mut entry).unwrap());
            assert_eq!(entry.control, numbered(round * 4 + n));
            b.release();
        }
        assert_eq!(a.reclaim(), Ok(SLOTS));
    }
}

#[test]
fn a_sleeper_is_woken_once_and_only_when_it_sleeps() {
    let (mut a, mut b) = pair();
    a.post(&numbered(1), &[], &[]);
    assert!(!a.must_wake(), "the peer is awake");
    assert!(b.before_sleep(false, None), "a message is there: no sleep");
    b.awake();
    b.release();
    assert!(!b.before_sleep(false, None));
    a.post(&numbered(2), &[], &[]);
    assert!(a.must_wake());
    a.post(&numbered(3), &[], &[]);
    assert!(!a.must_wake(), "one wake-up per sleep");
    b.awake();
}

#[test]
fn a_sleeper_that_waits_for_room_is_woken_by_a_release() {
    let (mut a, mut b) = pair();
    for _ in 0..SLOTS {
        a.post(&numbered(1), &[], &[]);
    }
    assert!(!a.before_sleep(true, None));
    assert_eq!(b.arrived(), Ok(SLOTS as u64));
    b.release();
    assert!(b.must_wake_for_room());
    a.awake();
    assert_eq!(a.reclaim(), Ok(1));
    assert!(!a.before_sleep(false, None));
    b.release();
    assert!(!b.must_wake_for_room(), "it waits for messages only");
}

#[test]
fn a_peer_that_takes_back_what_it_announced_breaks_the_link_and_nothing_else() {
    let (a, b) = (Heap::new(), Heap::new());
    let mut end = End::new(b, a.clone(), SLOTS);
    let mut entry = Entry::default();
    for before_release in [true, false] {
        a.store(TAIL, end.head + 1, Ordering::Relaxed);
        assert_eq!(end.read(POOL_BYTES, &mut entry), Ok(true));
        a.store(TAIL, end.head, Ordering::Relaxed);
        if before_release {
            end.release();
        } else {
            assert_eq!(end.read(POOL_BYTES, &mut entry), Err(Broken::Cursor));
            assert_eq!(end.arrived(), Err(Broken::Cursor));
        }
    }
}

proptest! {
    /// Any content of the peer's memory reads as an error or as something inside the peer's pool.
    #[test]
    fn a_hostile_peer_cannot_name_what_is_not_its_own(
        writes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u64>(), 0u64..6]), 1..200),
        noise in any::<u64>(), pool_bytes in 0usize..10_000,
    ) {
        let (own, peer) = (Heap::new(), Heap::new());
        let mut end = End::new(own, peer.clone(), SLOTS);
        let (mut entry, mut half) = (Entry::default(), false);
        peer.0.iter().skip(SLOTS_AT).enumerate().for_each(|(i, word)| {
            word.store(noise.wrapping_mul(i as u64 | 1) >> (i % 64), Ordering::Relaxed)
        });
        for (index, value) in writes {
            let hot = [TAIL, HEAD, SLEEPING, SLOTS_AT + COUNT_AT, SLOTS_AT + PIECES_AT];
            let word = index.index(hot.len() + memory_words(SLOTS));
            let word = hot.get(word).copied().unwrap_or(word.saturating_sub(hot.len()));
            peer.0[word].store(value, Ordering::Relaxed);
            if half && end.read_more(pool_bytes, &mut entry).is_ok() {
                prop_assert!(entry.pieces().all(|p| p.offset + p.bytes <= pool_bytes));
                end.release();
            }
            half = end.read(pool_bytes, &mut entry) == Ok(true);
            prop_assert!(!half || entry.pieces().all(|p| p.offset + p.bytes <= pool_bytes));
            if end.room() > 0 {
                end.post(&numbered(1), &[], &[]);
            }
            let _ = (end.reclaim(), end.must_wake(), end.has_more(&entry), end.peer_processor());
            prop_assert!(end.under_way() <= SLOTS);
        }
    }
}
