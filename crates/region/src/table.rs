//! State and lock of each page of a region: one word, changed by compare-and-swap, waited for by futex(2). Nothing here
//! allocates, so that a signal handler may use it.
//!
//! ```text
//!   absent -fetch-> resident -evict-> staged -store, drop-> absent
//!                      ^                 |
//!                      +----refault------+          absent -no copy is left-> lost
//! ```
//!
//! While one thread takes a page from one state to the next, the word says busy, and others wait.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Place of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not in memory here.
    #[default]
    Absent,
    /// Mapped.
    Resident,
    /// In the staging area, in the slot `number`.
    Staged,
    /// No copy of it is left.
    Lost,
}

/// A page's word, when it is not locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its place.
    pub state: State,
    /// It differs from what the backing has, whatever the write protection says.
    pub dirty: bool,
    /// Refaults from the staging area that have not yet earned it a second chance, at most 3.
    pub uses: u8,
    /// The backing has its content; else it is zeros.
    pub stored: bool,
    /// The checksum in the table is that of the content.
    pub summed: bool,
    /// It has a frame: the queue of frames has an entry for it, or a thread has just taken that entry out. A page that
    /// left without being told to by that queue keeps its frame until another page needs it.
    pub framed: bool,
    /// Staged: the slot. Resident: how often it is pinned.
    pub number: u32,
}

const STATE: u32 = 0b111;
const BUSY: u32 = 0b111;
const WAITED: u32 = 1 << 3;
const DIRTY: u32 = 1 << 4;
const USES_SHIFT: u32 = 5;
const STORED: u32 = 1 << 7;
const SUMMED: u32 = 1 << 8;
const FRAMED: u32 = 1 << 9;
const NUMBER_SHIFT: u32 = 10;
/// Largest [`Page::number`].
pub const NUMBER_MAX: u32 = u32::MAX >> NUMBER_SHIFT;
/// Looks at a busy page before the thread sleeps: 5 us, a little more than a page takes that is not fetched.
const LOOKS: u32 = 200;

impl Page {
    fn word(self) -> u32 {
        debug_assert!(self.number <= NUMBER_MAX && self.uses <= 3);
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        self.state as u32
            | flag(self.dirty, DIRTY)
            | u32::from(self.uses) << USES_SHIFT
            | flag(self.stored, STORED)
            | flag(self.summed, SUMMED)
            | flag(self.framed, FRAMED)
            | self.number << NUMBER_SHIFT
    }

    /// `None` of a busy one.
    fn of(word: u32) -> Option<Page> {
        let state = match word & STATE {
            0 => State::Absent,
            1 => State::Resident,
            2 => State::Staged,
            3 => State::Lost,
            _ => return None,
        };
        Some(Page {
            state,
            dirty: word & DIRTY != 0,
            uses: (word >> USES_SHIFT & 3) as u8,
            stored: word & STORED != 0,
            summed: word & SUMMED != 0,
            framed: word & FRAMED != 0,
            number: word >> NUMBER_SHIFT,
        })
    }
}

/// One page's; 16 bytes.
#[derive(Debug)]
struct Entry {
    word: AtomicU32,
    checksum: AtomicU32,
    version: AtomicU64,
}

/// All pages of a region.
#[derive(Debug)]
pub struct Table {
    entries: Box<[Entry]>,
    /// Bits in which words differ from [`Page::word`], so that zeros are a page as it is at first.
    flip: u32,
}

impl Table {
    /// `pages` absent pages, which the backing has or which are zeros.
    pub fn new(pages: usize, stored: bool) -> Table {
        // SAFETY: an entry is atomic integers, for which zero is a value. The memory is taken when it is touched.
        let entries = unsafe { Box::<[Entry]>::new_zeroed_slice(pages).assume_init() };
        Table { entries, flip: Page { stored, ..Page::default() }.word() }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.entries.len()
    }

    /// The present state of the page; `None` when it is locked. It may be another at once.
    pub fn peek(&self, page: usize) -> Option<Page> {
        Page::of(self.entries[page].word.load(Ordering::Acquire) ^ self.flip)
    }

    /// Locks the page, if it is not locked and `fits`. Must be followed by [`Table::unlock`].
    pub fn try_lock(&self, page: usize, fits: impl Fn(Page) -> bool) -> Option<Page> {
        let word = &self.entries[page].word;
        let before = word.load(Ordering::Acquire);
        let held = Page::of(before ^ self.flip).filter(|held| fits(*held))?;
        let taken = word.compare_exchange(before, BUSY, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| held)
    }

    /// Locks the page, once it is not locked any more. Must be followed by [`Table::unlock`].
    pub fn lock(&self, page: usize) -> Page {
        loop {
            if let Some(held) = self.try_lock(page, |_| true) {
                return held;
            }
            self.wait(page);
        }
    }

    /// Gives the page back as `after`.
    pub fn unlock(&self, page: usize, after: Page) {
        let word = &self.entries[page].word;
        let before = word.swap(after.word() ^ self.flip, Ordering::Release);
        debug_assert_eq!(before & STATE, BUSY, "who unlocks has locked");
        if before & WAITED != 0 {
            futex(word, libc::FUTEX_WAKE, i32::MAX as u32, None);
        }
    }

    /// Waits until the page looks free, for a moment or longer.
    fn wait(&self, page: usize) {
        let word = &self.entries[page].word;
        for _ in 0..LOOKS {
            if word.load(Ordering::Relaxed) & STATE != BUSY {
                return;
            }
            std::hint::spin_loop();
        }
        let waited = BUSY | WAITED;
        let marked = word.compare_exchange(BUSY, waited, Ordering::Relaxed, Ordering::Relaxed);
        if marked == Ok(BUSY) || marked == Err(waited) {
            futex(word, libc::FUTEX_WAIT, waited, None);
        }
    }

    /// The number of the last version that was given to the backing; of a clean page the one that it has. For the
    /// page's holder.
    pub fn version(&self, page: usize) -> u64 {
        self.entries[page].version.load(Ordering::Relaxed)
    }

    /// For the page's holder.
    pub fn set_version(&self, page: usize, version: u64) {
        self.entries[page].version.store(version, Ordering::Relaxed);
    }

    /// CRC-32C of that version's bytes. For the page's holder.
    pub fn checksum(&self, page: usize) -> u32 {
        self.entries[page].checksum.load(Ordering::Relaxed)
    }

    /// For the page's holder.
    pub fn set_checksum(&self, page: usize, checksum: u32) {
        self.entries[page].checksum.store(checksum, Ordering::Relaxed);
    }
}

/// FUTEX_WAIT while the word is `value`, for `span` at most, or FUTEX_WAKE of `value` waiters.
pub(super) fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, span: Option<Duration>) {
    let time = |span: Duration| libc::timespec {
        tv_sec: span.as_secs() as libc::time_t,
        tv_nsec: span.subsec_nanos().into(),
    };
    let span = span.map(time);
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the span live through the call. Whatever it returns, the caller looks again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, span) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_put_in() {
        for state in [State::Absent, State::Resident, State::Staged, State::Lost] {
            for number in [0, 1, NUMBER_MAX] {
                let (stored, framed) = (number > 0, number == 1);
                let page =
                    Page { state, dirty: true, uses: 3, stored, summed: true, framed, number };
                assert_eq!(Page::of(page.word()), Some(page));
            }
        }
        assert_eq!(Page::of(BUSY), None);
        assert_eq!(Page::of(BUSY | WAITED), None);
        for stored in [true, false] {
            let table = Table::new(3, stored);
            assert_eq!(table.peek(2), Some(Page { stored, ..Page::default() }));
            let page = table.lock(1);
            assert_eq!(table.peek(1), None);
            table.unlock(1, Page { dirty: true, ..page });
            assert_eq!(table.peek(1), Some(Page { dirty: true, ..page }));
        }
    }

    #[test]
    fn one_thread_at_a_time_holds_a_page() {
        let table = Table::new(1, false);
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..5_000 {
                        let page = table.lock(0);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        if n % 100 == 0 {
                            std::thread::yield_now(); // others go to sleep
                        }
                        table.set_version(0, table.version(0) + 1);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        table.unlock(0, page);
                    }
                });
            }
        });
        assert_eq!(table.version(0), 20_000);
    }
}
