//! How pages of a region come and leave. Every function here may run in a signal handler: system calls, atomics and the
//! context's own memory, nothing else.
//!
//! A thread that brings a page takes a frame first, and so may have to wait for others to leave, and only then takes
//! the page. No thread waits for a page, a frame or a slot while it holds a page, but for the backing.
//!
//! A page that leaves is clean when the kernel has seen no write since it was protected. A write may still come between
//! that look and the move; so a page is dropped only if its bytes in the staging area, where no thread can write them
//! any more, have the checksum that was stored. A page that was written is stored whatever its checksum.

mod ahead;
mod asked;
mod kept;
mod leaving;

use super::backing::{FetchError, Fetched, Source, StoreError};
use super::bell::Bell;
use super::contexts::{Context, Contexts};
use super::counters::{Tally, What};
use super::limits::*;
use super::queues::{Frame, Leaving, Resident, Staging};
use super::table::{Page, State, Table};
use super::uffd::{Is, PageMap, PageRange, Stopped, Uffd, Why, errno};
pub(super) use ahead::Streams;
use ahead::is_away;
use arrayvec::ArrayVec;
use endpoint::limits::PAGE_BYTES;
use live::clock;
use rustix::mm::{Advice as Madvice, madvise};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wire::Errno;
use wire::checksum::crc32c;

/// A program's access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look at it.
    Read,
    /// To change it.
    Write,
}

/// Why a page is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// No copy of it is left. It stays so.
    #[error("no copy of the page is left")]
    Lost,
    /// The backing did not answer, or took no page to make room, for as long as the region is patient.
    #[error("{what}: {errno}", what = unavailable(*.0), errno = Errno(*.0 as u16))]
    Unavailable(i32),
    /// All frames are pinned or held by the kernel.
    #[error("every frame of the region is pinned")]
    Full,
    /// The kernel does not do what it is asked.
    #[error("userfaultfd: {0}")]
    System(Why),
}

fn unavailable(errno: i32) -> &'static str {
    match Errno(errno as u16) {
        Errno::ENOSPC => "pages that must leave find no room, with who lends memory or on disk",
        _ => "the backing of the region does not answer",
    }
}

/// Whether a page has left.
enum Leave {
    /// It is in the slot.
    Left,
    /// It was not there; the slot is still empty.
    Gone,
    /// It is needed.
    Stays,
}

/// Position of the entry of a page that has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// In the hand of the thread that has it leave: the frame is that thread's.
    InHand,
    /// In the queue of frames.
    Queued,
}

impl Entry {
    /// The page as it is when it has left.
    fn left_by(self, page: Page) -> Page {
        Page { framed: page.framed && self == Entry::Queued, ..page }
    }
}

pub(super) struct Pager {
    pub uffd: Uffd,
    pub pagemap: PageMap,
    pub table: Table,
    pub resident: Resident,
    pub staging: Staging,
    pub contexts: Contexts,
    pub tally: Tally,
    /// Address of the first page.
    pub base: usize,
    /// Address of the first slot.
    pub area: usize,
    pub page_bytes: usize,
    pub patience: Duration,
    /// Slots that are emptied at once.
    pub retire: usize,
    pub frames: usize,
    /// Pages that come ahead in one go, at most.
    pub ahead: usize,
    pub streams: Streams,
    /// Of the staging area.
    pub slots: usize,
    /// Written pages that have come there.
    pub written: AtomicUsize,
    pub pins: AtomicUsize,
    /// CRC-32C of a page of zeros.
    pub zeros: u32,
    /// Wakes the keeper.
    pub bell: Arc<Bell>,
}

impl Pager {
    fn address(&self, page: usize) -> usize {
        self.base + page * self.page_bytes
    }

    pub fn range(&self, page: usize) -> Range<usize> {
        self.address(page)..self.address(page + 1)
    }

    fn slot(&self, slot: u32) -> usize {
        self.area + slot as usize * self.page_bytes
    }

    /// Maps the page. `faulted`: a thread found it missing just now, whatever the table says.
    pub fn bring(
        &self,
        context: &mut Context,
        page: usize,
        access: Access,
        faulted: bool,
    ) -> Result<(), FaultError> {
        match self.table.peek(page).map(|held| held.state) {
            Some(State::Lost) => return Err(FaultError::Lost),
            Some(State::Resident) if !faulted || self.is_mapped(page) => return Ok(()),
            _ => {}
        }
        let (held, in_hand) = self.lock_framed(context, page)?;
        let brought = match held.state {
            State::Resident => Ok(held), // another thread was faster
            State::Lost => Err(FaultError::Lost),
            State::Staged => self.take_back(page, held, access),
            State::Absent => self.fetch(context, page, held, access),
        };
        match brought {
            Ok(now) => self.resident_now(page, now, in_hand),
            Err(error) => return self.stay_away(page, held, in_hand, error),
        }
        if is_away(held) {
            self.go_on(context, page);
        }
        Ok(())
    }

    /// Takes the page, and a frame into the hand where it has none.
    fn lock_framed(&self, context: &mut Context, page: usize) -> Result<(Page, bool), FaultError> {
        if let Some(held) = self.table.try_lock(page, |held| held.framed) {
            return Ok((held, false));
        }
        self.take_frame(context)?;
        Ok((self.table.lock(page), true))
    }

    fn resident_now(&self, page: usize, now: Page, in_hand: bool) {
        if !now.framed {
            self.resident.put(page);
        } else if in_hand {
            self.resident.give_back();
        }
        self.table.unlock(page, Page { framed: true, ..now });
    }

    fn stay_away(
        &self,
        page: usize,
        held: Page,
        in_hand: bool,
        error: FaultError,
    ) -> Result<(), FaultError> {
        if in_hand {
            self.resident.give_back();
        }
        let lost = error == FaultError::Lost && held.state != State::Lost;
        let state = if lost { State::Lost } else { held.state };
        if lost {
            self.tally.count(What::Lost);
        }
        self.table.unlock(page, Page { state, ..held });
        Err(error)
    }

    /// Whether the page that the table calls resident is there. Where the program has given it up itself, it becomes
    /// absent, and what was stored last comes again.
    fn is_mapped(&self, page: usize) -> bool {
        let held = self.table.lock(page);
        let mapped =
            held.state == State::Resident && self.is_there(self.address(page), self.page_bytes);
        let vanished = held.state == State::Resident && !mapped;
        let state = if vanished { State::Absent } else { held.state };
        if vanished {
            self.tally.count(What::Vanished);
        }
        self.table.unlock(page, Page { state, ..held });
        mapped
    }

    fn take_back(&self, page: usize, held: Page, access: Access) -> Result<Page, FaultError> {
        let (to, from) = (self.address(page), self.slot(held.number));
        let uses = (held.uses + 1).min(3);
        let now = Page { state: State::Resident, uses, number: 0, ..held };
        self.tally.count(What::TakenBack);
        if !held.dirty && access == Access::Read {
            // A moved page is not protected, and would be stored again. The slot's page goes with the slot.
            return self.install(to, from as *const u8, true).map(|()| now);
        }
        match self.shift(to, from) {
            Ok(()) => Ok(now),
            Err(Why::Busy) => {
                self.install(to, from as *const u8, false).map(|()| Page { dirty: true, ..now })
            }
            Err(why) => Err(FaultError::System(why)),
        }
    }

    fn fetch(
        &self,
        context: &mut Context,
        page: usize,
        held: Page,
        access: Access,
    ) -> Result<Page, FaultError> {
        let now = fetched(held);
        let (source, buffer) = context.parts();
        if held.stored {
            let (bytes, checksum) = self.fetch_checked(source, page, held, buffer)?;
            self.tally.count(What::Fetched);
            self.table.set_checksum(page, checksum);
            self.install(self.address(page), bytes, access == Access::Read)?;
            return Ok(now);
        }
        self.tally.count(What::Zeroed);
        self.table.set_checksum(page, self.zeros);
        if access == Access::Read {
            self.insist(|done| {
                self.uffd.zero(&(self.address(page) + done..self.address(page + 1)))
            })?;
        } else {
            buffer.fill(0);
            self.install(self.address(page), buffer.as_ptr(), false)?;
        }
        Ok(now)
    }

    /// The page's bytes as they were stored, where they are until the source is used again, and their checksum.
    fn fetch_checked(
        &self,
        source: &mut dyn Source,
        page: usize,
        held: Page,
        buffer: &mut [u8],
    ) -> Result<(*const u8, u32), FaultError> {
        let version = self.table.version(page);
        for _ in 0..FETCHES_MAX {
            let mut got = (std::ptr::null(), 0);
            self.patiently(|| match source.fetch(page as u64, version, buffer) {
                Ok(fetched) => {
                    assert_eq!(fetched.bytes.len(), self.page_bytes, "a source brings whole pages");
                    got = (fetched.bytes.as_ptr(), fetched.checksum);
                    Ok(())
                }
                Err(FetchError::Lost) => Err(FaultError::Lost),
                Err(FetchError::Unavailable(errno)) => Err(FaultError::Unavailable(errno)),
            })?;
            if !held.summed || got.1 == self.table.checksum(page) {
                return Ok(got);
            }
            self.tally.count(What::Damaged);
        }
        Err(FaultError::Lost)
    }

    /// Asks the backing again, after a pause, until the region's timeout ends.
    fn patiently(&self, mut ask: impl FnMut() -> Result<(), FaultError>) -> Result<(), FaultError> {
        let mut late = None;
        loop {
            match ask() {
                Err(FaultError::Unavailable(errno)) => {
                    self.tally.count(What::Refused);
                    let now = clock::now();
                    if now >= *late.get_or_insert(now + self.patience) {
                        return Err(FaultError::Unavailable(errno));
                    }
                    std::thread::sleep(PAUSE); // nanosleep(2), nothing else
                }
                other => return other,
            }
        }
    }

    /// Makes the bytes at `source` appear at `target`.
    fn install(&self, target: usize, source: *const u8, protected: bool) -> Result<(), FaultError> {
        self.insist(|done| {
            let left = self.page_bytes - done;
            // SAFETY: the source is a page of this region's context or a slot whose page is held; what is at the target
            // is a page of this region that is held and absent.
            unsafe { self.uffd.copy(target + done, source.wrapping_add(done), left, protected) }
        })
    }

    /// Goes on where an operation on a page stopped because the address space was changing.
    fn insist(
        &self,
        mut operation: impl FnMut(usize) -> Result<(), Stopped>,
    ) -> Result<(), FaultError> {
        let mut done = 0;
        loop {
            match operation(done) {
                Ok(()) | Err(Stopped { why: Why::Exists, .. }) => return Ok(()),
                Err(Stopped { done: more, why: Why::Again }) => done += more,
                Err(Stopped { why, .. }) => return Err(FaultError::System(why)),
            }
            std::thread::yield_now();
        }
    }

    /// Moves a page, all of it or nothing.
    fn shift(&self, target: usize, source: usize) -> Result<(), Why> {
        let mut done = 0;
        while done < self.page_bytes {
            let left = self.page_bytes - done;
            // SAFETY: both are pages of this region and its staging area, held by this thread.
            match unsafe { self.uffd.take(target + done, source + done, left) } {
                Ok(()) => return Ok(()),
                Err(Stopped { done: more, why: Why::Again }) => done += more,
                Err(Stopped { done: more, why: Why::Exists | Why::Missing })
                    if self.has_moved(target + done + more, source + done + more) =>
                {
                    done += more + PAGE_BYTES;
                }
                Err(Stopped { done: more, why }) => {
                    self.shift_back(target, source, done + more);
                    return Err(why);
                }
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether a move that failed has been made all the same. Linux 6.18 begins again when a page changed under its
    /// hands, forgets that the second try went well, and finds the page gone from here and there already.
    fn has_moved(&self, target: usize, source: usize) -> bool {
        self.is_there(target, PAGE_BYTES) && !self.is_there(source, PAGE_BYTES)
    }

    /// Whether something is mapped there. Where the kernel does not say, it is.
    fn is_there(&self, at: usize, bytes: usize) -> bool {
        self.pagemap.any(&(at..at + bytes), Is::PRESENT, Is(0)).unwrap_or(true)
    }

    /// Undoes the first `bytes` of a move: no thread has seen those pages at `target`.
    fn shift_back(&self, target: usize, source: usize, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            // SAFETY: as in `shift`, the other way.
            match unsafe { self.uffd.take(source + done, target + done, bytes - done) } {
                Ok(()) => return,
                Err(stopped) => done += stopped.done,
            }
            std::thread::yield_now();
        }
    }

    /// Takes a frame of the budget; a page leaves for it where none is free.
    fn take_frame(&self, context: &mut Context) -> Result<(), FaultError> {
        let (mut slot, mut late) = (None, None);
        let result = loop {
            match self.try_frame(context, &mut slot) {
                Err(FaultError::Full) => {
                    let now = clock::now();
                    if now >= *late.get_or_insert(now + self.patience) {
                        break Err(FaultError::Full);
                    }
                    std::thread::sleep(PAUSE); // nanosleep(2), nothing else
                }
                other => break other,
            }
        };
        if let Some(slot) = slot {
            self.staging.give_back(slot);
        }
        result
    }

    fn try_frame(&self, context: &mut Context, slot: &mut Option<u32>) -> Result<(), FaultError> {
        let mut tries = 0;
        while tries < CHANCES * self.frames {
            let page = match self.resident.take() {
                Some(Frame::Of(page)) => page,
                Some(Frame::Free) => return Ok(()),
                None => {
                    std::thread::yield_now(); // all are in other threads' hands for a moment
                    continue;
                }
            };
            match self.leave(context, page, slot, Entry::InHand) {
                Ok(Leave::Stays) => self.resident.put(page),
                Ok(_) => return Ok(()),
                Err(error) => {
                    self.resident.put(page);
                    return Err(error);
                }
            }
            tries += 1;
        }
        Err(FaultError::Full)
    }

    /// Stores what is in the page's slot, if the backing does not have it; whether that was necessary.
    fn store_staged(
        &self,
        source: &mut dyn Source,
        page: usize,
        held: Page,
    ) -> (Result<bool, StoreError>, Page) {
        let at = self.slot(held.number) as *const u8;
        // SAFETY: the slot has the page as long as it is held, and no thread writes there.
        let bytes = unsafe { std::slice::from_raw_parts(at, self.page_bytes) };
        let same = || held.summed && self.table.checksum(page) == crc32c(bytes);
        if !held.dirty && same() {
            return (Ok(false), held);
        }
        let stored = self.store(source, page, bytes);
        let held = if stored.is_ok() { is_stored(held) } else { Page { dirty: true, ..held } };
        (stored.map(|()| true), held)
    }

    fn store(&self, source: &mut dyn Source, page: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let version = self.table.version(page) + 1;
        // Also when it fails: it may have been kept somewhere, and other bytes must not get the same number. The page
        // stays dirty then and is not fetched before a store has succeeded.
        self.table.set_version(page, version);
        source.store(page as u64, version, bytes)?;
        self.tally.count(What::Stored);
        self.table.set_checksum(page, crc32c(bytes));
        Ok(())
    }
}

/// The page when it has come. Where it has a frame already it may be the next to leave.
fn fetched(held: Page) -> Page {
    let uses = held.uses.max(held.framed.into());
    Page { state: State::Resident, summed: true, uses, number: 0, ..held }
}

fn is_stored(held: Page) -> Page {
    Page { dirty: false, stored: true, summed: true, ..held }
}
