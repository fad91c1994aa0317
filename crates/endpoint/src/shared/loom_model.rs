//! The orders in which two processes may meet in the rings, all of them, by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p endpoint --release --lib loom`.
//!
//! Plain copies of the code are writes of a loom cell here, so that loom also reports any read of a slot while its
//! owner writes it.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

const SLOTS: usize = 2;
const COUNTERS: usize = 5;

/// One side's memory: the counters and counts of pieces are atomics; a slot's control message is one cell, its pieces
/// another.
#[derive(Clone)]
struct Model(Arc<Words>);

struct Words {
    atomics: Vec<AtomicU64>,
    slots: Vec<[UnsafeCell<[u64; SLOT_WORDS]>; 2]>,
}

impl Model {
    fn new() -> Model {
        Model(Arc::new(Words {
            atomics: (0..COUNTERS + SLOTS).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..SLOTS).map(|_| [(); 2].map(|_| UnsafeCell::new([0; SLOT_WORDS]))).collect(),
        }))
    }

    fn atomic(&self, word: usize) -> &AtomicU64 {
        match word.checked_sub(SLOTS_AT) {
            None => &self.0.atomics[word / 8],
            Some(at) => &self.0.atomics[COUNTERS + at / SLOT_WORDS],
        }
    }
}

impl Model {
    /// The cell that a word of a slot is in, and the word's place in it.
    fn cell(&self, word: usize) -> (&UnsafeCell<[u64; SLOT_WORDS]>, usize) {
        let (slot, at) = ((word - SLOTS_AT) / SLOT_WORDS, (word - SLOTS_AT) % SLOT_WORDS);
        (&self.0.slots[slot][usize::from(at >= PIECES_AT)], at)
    }
}

impl Memory for Model {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.atomic(word).load(order)
    }

    fn copy_out(&self, word: usize, into: &mut [u64]) {
        if into.is_empty() {
            return;
        }
        let (cell, at) = self.cell(word);
        // SAFETY: the pointer is valid during the call, and loom itself fails the test when another thread writes.
        cell.with(|words| into.copy_from_slice(unsafe { &(&(*words))[at..at + into.len()] }));
    }
}

impl OwnMemory for Model {
    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.atomic(word).store(value, order);
    }

    fn copy_in(&self, word: usize, from: &[u64]) {
        let (cell, at) = self.cell(word);
        // SAFETY: as above; loom fails the test when another thread reads or writes.
        cell.with_mut(|words| unsafe {
            (&mut (*words))[at..at + from.len()].copy_from_slice(from)
        });
    }
}

type Side = End<Model, Model>;

fn pair() -> (Side, Side) {
    let (a, b) = (Model::new(), Model::new());
    (End::new(a.clone(), b.clone(), SLOTS), End::new(b, a, SLOTS))
}

fn numbered(number: u8) -> Control {
    Control([number; CONTROL_BYTES])
}

fn take(side: &mut Side, expected: u8) {
    let mut entry = Entry::default();
    while !side.read(1 << 20, &mut entry).unwrap() {
        thread::yield_now();
    }
    assert_eq!(entry.control, numbered(expected));
    assert_eq!(entry.payload_bytes(), expected as usize);
    side.release();
}

#[test]
fn messages_arrive_whole_and_in_order_while_slots_are_reused() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        let receiver = thread::spawn(move || (1..=3).for_each(|n| take(&mut b, n)));
        for n in 1..=3u8 {
            while a.room() == 0 {
                if a.reclaim().unwrap() == 0 {
                    thread::yield_now();
                }
            }
            a.post(&numbered(n), &[Piece { offset: 0, bytes: n as usize }], &[]);
        }
        receiver.join().unwrap();
        a.reclaim().unwrap();
        assert_eq!(a.under_way(), 0);
    });
}

/// A wake-up that was sent stays until the sleeper takes it, as a byte in a socket does: here it is counted.
fn sleep_until_woken(bell: &AtomicU64, seen: &mut u64) {
    while bell.load(Ordering::Acquire) == *seen {
        thread::yield_now();
    }
    *seen = bell.load(Ordering::Acquire);
}

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        let bell = Arc::new(AtomicU64::new(0));
        let rung = bell.clone();
        let receiver = thread::spawn(move || {
            let mut seen = 0;
            for n in 1..=2 {
                if !b.before_sleep(false, None) {
                    sleep_until_woken(&rung, &mut seen);
                }
                b.awake();
                take(&mut b, n);
            }
        });
        for n in 1..=2u8 {
            a.post(&numbered(n), &[Piece { offset: 0, bytes: n as usize }], &[]);
            if a.must_wake() {
                bell.fetch_add(1, Ordering::AcqRel);
            }
        }
        receiver.join().unwrap();
    });
}

#[test]
fn no_wake_up_for_room_is_lost() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        for n in 1..=2 {
            a.post(&numbered(n), &[], &[]);
        }
        let bell = Arc::new(AtomicU64::new(0));
        let rung = bell.clone();
        let receiver = thread::spawn(move || {
            assert_eq!(b.arrived(), Ok(2));
            b.release();
            if b.must_wake_for_room() {
                rung.fetch_add(1, Ordering::AcqRel);
            }
        });
        if !a.before_sleep(true, None) {
            sleep_until_woken(&bell, &mut 0);
        }
        a.awake();
        assert_eq!(a.reclaim(), Ok(1));
        receiver.join().unwrap();
    });
}

/// As above, with a receiver that has not seen the ring full when it releases the first entry.
#[test]
fn no_wake_up_for_room_is_lost_while_the_ring_fills() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        a.post(&numbered(1), &[Piece { offset: 0, bytes: 1 }], &[]);
        let bell = Arc::new(AtomicU64::new(0));
        let rung = bell.clone();
        let receiver = thread::spawn(move || {
            for n in 1..=2 {
                take(&mut b, n);
                if b.must_wake_for_room() {
                    rung.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        a.post(&numbered(2), &[Piece { offset: 0, bytes: 2 }], &[]);
        if a.room() == 0 && !a.before_sleep(true, None) {
            sleep_until_woken(&bell, &mut 0);
        }
        a.awake();
        receiver.join().unwrap();
        assert_eq!(a.reclaim(), Ok(2));
    });
}

/// Adds a piece of one byte that is 9 to the entry, which has none yet.
fn publish_nine(side: &mut Side, entry: u64, payload: &UnsafeCell<u8>) {
    // SAFETY: loom fails the test when the other thread reads before it was published.
    payload.with_mut(|byte| unsafe { *byte = 9 });
    side.publish(entry, 0, &[Piece { offset: 0, bytes: 1 }]);
}

#[test]
fn what_is_published_may_be_read() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        let payload = Arc::new(UnsafeCell::new(0u8));
        let written = payload.clone();
        let number = a.post(&numbered(1), &[], &[]);
        let sender = thread::spawn(move || publish_nine(&mut a, number, &written));
        let mut entry = Entry::default();
        assert_eq!(b.read(1 << 20, &mut entry), Ok(true));
        while entry.payload_bytes() == 0 {
            thread::yield_now();
            b.read_more(1 << 20, &mut entry).unwrap();
        }
        // SAFETY: as above.
        payload.with(|byte| assert_eq!(unsafe { *byte }, 9));
        b.release();
        sender.join().unwrap();
    });
}

#[test]
fn no_wake_up_for_more_of_a_message_is_lost() {
    loom::model(|| {
        let (mut a, mut b) = pair();
        let (payload, bell) = (Arc::new(UnsafeCell::new(0u8)), Arc::new(AtomicU64::new(0)));
        let (written, rung) = (payload.clone(), bell.clone());
        let number = a.post(&numbered(1), &[], &[]);
        let sender = thread::spawn(move || {
            publish_nine(&mut a, number, &written);
            if a.must_wake() {
                rung.fetch_add(1, Ordering::AcqRel);
            }
        });
        let mut entry = Entry::default();
        assert_eq!(b.read(1 << 20, &mut entry), Ok(true));
        if entry.payload_bytes() == 0 && !b.before_sleep(false, Some(&entry)) {
            sleep_until_woken(&bell, &mut 0);
        }
        b.awake();
        b.read_more(1 << 20, &mut entry).unwrap();
        assert_eq!(entry.payload_bytes(), 1);
        sender.join().unwrap();
    });
}
