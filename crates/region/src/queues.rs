//! The order in which pages leave, and where they wait before they are dropped: two queues of fixed size.
//!
//! *Resident* is a FIFO with a second chance for pages that came back from the staging area (S3-FIFO, SOSP'23, without
//! the hits that only an access bit could count). An entry is a frame of the budget: a thread that takes one out has a
//! frame, whether the page that it names is still there or not. A page that left because the program said so keeps its
//! entry, and comes back into its own frame if no other page needed that meanwhile. *Staging* is a FIFO of slots.
//!
//! Both are guarded by a lock that is held for a few instructions, never during a system call, and by threads that take
//! no signals meanwhile: so a signal handler may use them.

use super::limits::RETIRE_MAX;
use arrayvec::ArrayVec;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Entries looked at under the lock.
const AHEAD_MAX: usize = 16;

/// Slots that leave soon, and whose pages were put there.
pub type Ahead = ArrayVec<(u32, usize), AHEAD_MAX>;

/// Looks at a lock before the thread lets others run: the lock's holder may have lost its processor.
const LOOKS: u32 = 100;

/// A lock without the operating system.
#[derive(Debug, Default)]
struct Spin<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `held` lets one thread at a time to the value, which may move between threads.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    fn new(value: T) -> Spin<T> {
        Spin { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn lock(&self) -> Guard<'_, T> {
        let mut looks = 0;
        while self.held.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks > LOOKS {
                std::thread::yield_now(); // sched_yield(2), nothing else
            }
            std::hint::spin_loop();
        }
        Guard(self)
    }
}

struct Guard<'a, T>(&'a Spin<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this handle exists once, see `lock`.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this handle exists once, see `lock`.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

/// A FIFO that never grows.
#[derive(Debug)]
struct Ring<T> {
    entries: Box<[T]>,
    first: usize,
    len: usize,
    /// Entries that were ever taken out.
    taken: u64,
}

impl<T: Copy + Default> Ring<T> {
    fn new(entries: usize) -> Ring<T> {
        Ring { entries: vec![T::default(); entries].into(), first: 0, len: 0, taken: 0 }
    }

    fn push(&mut self, value: T) {
        assert!(self.len < self.entries.len(), "an entry for every frame");
        let at = (self.first + self.len) % self.entries.len();
        self.entries[at] = value;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let value = (self.len > 0).then(|| self.entries[self.first])?;
        self.first = (self.first + 1) % self.entries.len();
        self.len -= 1;
        self.taken += 1;
        Some(value)
    }

    /// The next entries that `cursor` has not seen, but for the youngest ones; the cursor counts entries since the ring
    /// was made.
    fn look(&self, cursor: &mut u64, youngest: usize) -> impl Iterator<Item = T> {
        *cursor = self.taken.max(*cursor);
        let (from, end) = ((*cursor - self.taken) as usize, self.len.saturating_sub(youngest));
        let seen = from..end.clamp(from, from + AHEAD_MAX);
        *cursor += seen.len() as u64;
        seen.map(|n| self.entries[(self.first + n) % self.entries.len()])
    }
}

/// A frame, or whose frame it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Free.
    Free,
    /// This page was put into it once: it is free when the page has left.
    Of(usize),
}

#[derive(Debug)]
struct ResidentQueue {
    free: usize,
    queue: Ring<u32>,
}

/// The frames of the mapped pages.
#[derive(Debug)]
pub struct Resident(Spin<ResidentQueue>);

impl Resident {
    /// `frames` free frames.
    pub fn new(frames: usize) -> Resident {
        Resident(Spin::new(ResidentQueue { free: frames, queue: Ring::new(frames) }))
    }

    /// A frame, free ones first; `None` when all are in hands.
    pub fn take(&self) -> Option<Frame> {
        let mut queue = self.0.lock();
        if queue.free > 0 {
            queue.free -= 1;
            return Some(Frame::Free);
        }
        queue.queue.pop().map(|page| Frame::Of(page as usize))
    }

    /// A frame that was taken is this page's, the last to leave.
    pub fn put(&self, page: usize) {
        self.0.lock().queue.push(page as u32);
    }

    /// Gives back a frame that was taken.
    pub fn give_back(&self) {
        self.0.lock().free += 1;
    }
}

#[derive(Debug)]
struct StagingQueue {
    free: Ring<u32>,
    /// Slots, and the page that was put there.
    queue: Ring<(u32, u32)>,
}

/// The slots of the staging area.
#[derive(Debug)]
pub struct Staging(Spin<StagingQueue>);

/// Slots that leave together, and whose pages were put there.
pub type Leaving = ArrayVec<(u32, usize), RETIRE_MAX>;

impl Staging {
    /// `slots` empty slots.
    pub fn new(slots: usize) -> Staging {
        let mut free = Ring::new(slots);
        (0..slots as u32).for_each(|slot| free.push(slot));
        Staging(Spin::new(StagingQueue { free, queue: Ring::new(slots) }))
    }

    /// An empty slot; else the oldest slots, up to `most`, whose pages have to leave before.
    pub fn take(&self, most: usize) -> Result<u32, Leaving> {
        let mut staging = self.0.lock();
        if let Some(slot) = staging.free.pop() {
            return Ok(slot);
        }
        let most = most.clamp(1, RETIRE_MAX);
        let oldest = std::iter::from_fn(|| staging.queue.pop()).take(most);
        Err(oldest.map(|(slot, page)| (slot, page as usize)).collect())
    }

    /// The slots that [`take`](Staging::take) would empty for one; none where there is an empty one.
    pub fn next_to_leave(&self, most: usize) -> Leaving {
        let staging = self.0.lock();
        let most = if staging.free.len > 0 { 0 } else { most.clamp(1, RETIRE_MAX) };
        let mut from_first = 0;
        let oldest = staging.queue.look(&mut from_first, 0).take(most);
        oldest.map(|(slot, page)| (slot, page as usize)).collect()
    }

    /// The page is in the slot now, the last to leave.
    pub fn put(&self, slot: u32, page: usize) {
        self.0.lock().queue.push((slot, page as u32));
    }

    /// Slots with pages, the oldest first, which `cursor` has not seen yet; the `youngest` do not count.
    pub fn look(&self, cursor: &mut u64, youngest: usize) -> Ahead {
        let staging = self.0.lock();
        staging.queue.look(cursor, youngest).map(|(slot, page)| (slot, page as usize)).collect()
    }

    /// The slot is empty.
    pub fn give_back(&self, slot: u32) {
        self.0.lock().free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_once_and_the_oldest_first() {
        let resident = Resident::new(2);
        assert_eq!((resident.take(), resident.take()), (Some(Frame::Free), Some(Frame::Free)));
        assert_eq!(resident.take(), None);
        resident.put(7);
        resident.put(8);
        assert_eq!(resident.take(), Some(Frame::Of(7)));
        resident.give_back();
        assert_eq!(resident.take(), Some(Frame::Free));
        assert_eq!(resident.take(), Some(Frame::Of(8)));
    }

    #[test]
    fn slots_go_round() {
        let staging = Staging::new(3);
        for page in 0..3 {
            let slot = staging.take(8).unwrap();
            staging.put(slot, page);
        }
        let oldest = staging.take(2).unwrap_err();
        assert_eq!(&oldest[..], [(0, 0), (1, 1)]);
        assert_eq!(&staging.next_to_leave(2)[..], [(2, 2)]);
        staging.give_back(1);
        assert!(staging.next_to_leave(2).is_empty());
        assert_eq!(staging.take(2), Ok(1));
    }

    #[test]
    fn who_looks_ahead_sees_each_entry_once_and_none_that_has_left() {
        let (staging, mut cursor) = (Staging::new(40), 0);
        (0..40).for_each(|page| staging.put(staging.take(1).unwrap(), page));
        let mut look = |youngest| -> Vec<usize> {
            staging.look(&mut cursor, youngest).into_iter().map(|(_, page)| page).collect()
        };
        assert_eq!(look(30), (0..10).collect::<Vec<_>>());
        assert_eq!(look(30), []);
        assert_eq!(look(0), (10..26).collect::<Vec<_>>());
        assert_eq!(staging.take(16).unwrap_err().len(), 16);
        assert_eq!(staging.take(16).unwrap_err().len(), 16);
        assert_eq!(look(0), (32..40).collect::<Vec<_>>());
        staging.put(7, 100);
        assert_eq!(look(0), [100]);
    }

    #[test]
    fn the_lock_keeps_threads_apart() {
        let counter = Spin::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *counter.lock() += 1));
            }
        });
        assert_eq!(*counter.lock(), 40_000);
    }
}
