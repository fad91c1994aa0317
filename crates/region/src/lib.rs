//! Regions: memory of a program that is larger than what it has here. Pages beyond a budget of frames are in a
//! [`Backing`], and come back when the program touches them (userfaultfd(2); GMS, SOSP'95, has the kernel do it).
//!
//! | part | what it does |
//! | --- | --- |
//! | [`uffd`] | the system calls |
//! | [`table`] | each page's state, version and checksum, and its lock |
//! | `queues` | which page leaves next: frames of the mapped pages, slots of the staging area |
//! | `pager` | how a page comes and leaves |
//! | `fault`, `handlers` | who serves a fault: the faulting thread itself, or a thread that waits for it |
//! | `keeper` | a thread for what is done in the background: cleaning, and what the backing has to do |
//! | [`backing`], [`peer`] | where the other pages are: a file, memory of other nodes |
//! | [`calls`] | system calls on memory of regions |
//!
//! Invariants: a page is dropped only if the backing has its bytes; a page of which no copy is left is never zeros, it
//! is an error ([`Region::touch`]) or a SIGBUS; bytes whose checksum is not that of what was stored are not mapped; no
//! more than the budget is mapped and staged, but for the page tables.
//!
//! A hostile backing can refuse, so that the region's timeout ends, and give bytes that it forged together with their
//! CRC-32C. It cannot make memory of anything else appear.

pub mod backing;
pub mod bare;
mod bell;
pub mod calls;
mod contexts;
mod counters;
mod fault;
mod handlers;
mod keeper;
pub mod limits;
mod pager;
pub mod peer;
mod queues;
mod table;
pub mod uffd;

pub use backing::{
    Backing, FetchError, Fetched, FileBacking, LocalMemory, Source, StoreError, Upkeep,
};
pub use bell::Bell;
pub use counters::Counters;
pub use pager::{Access, FaultError};

use contexts::{Context, Contexts};
use counters::Tally;
use endpoint::limits::PAGE_BYTES;
use fault::Registered;
use handlers::Handlers;
use keeper::{Keeper, Work};
use limits::*;
use pager::{Pager, Streams};
use queues::{Resident, Staging};
use rustix::mm::{Advice as Madvice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use table::Table;
use uffd::{Features, OpenError, Origin, PageMap, Uffd};
use wire::checksum::crc32c;

/// The server of a region's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// The faulting thread itself, in a handler of SIGBUS: the fastest, and every user may. A system call that
    /// touches a missing page fails with EFAULT: see [`calls`].
    InThread,
    /// So many threads: system calls work too. Needs root or a privilege, see [`OpenError::Forbidden`].
    Handlers(usize),
}

/// How a region is made.
#[derive(Clone, Copy, Debug)]
pub struct RegionConfig {
    /// Pages that it may have in memory; a tenth of them is the staging area.
    pub frames: usize,
    /// Bytes of a page: the kernel's 4096, or a power of two up to [`PAGE_BYTES_MAX`].
    pub page_bytes: usize,
    /// The server of faults.
    pub faults: Faults,
    /// Faults served at the same time; at most a quarter of the frames.
    pub contexts: usize,
    /// How long a fault waits for a backing that does not answer.
    pub patience: Duration,
    /// Whether a thread stores written pages before a fault waits for their room.
    pub cleans: bool,
}

impl RegionConfig {
    /// Pages of 4 KiB, faults served by the faulting threads, of which eight may fault at the same time.
    pub fn new(frames: usize) -> RegionConfig {
        RegionConfig {
            frames,
            page_bytes: PAGE_BYTES,
            faults: Faults::InThread,
            contexts: 8,
            patience: PATIENCE,
            cleans: true,
        }
    }

    fn check(&self, bytes: usize, room: Option<u64>) -> Result<(), RegionError> {
        let wrong = |what: String| Err(RegionError::Config(what));
        let page = self.page_bytes;
        if !page.is_power_of_two() || !(PAGE_BYTES..=PAGE_BYTES_MAX).contains(&page) {
            return wrong(format!(
                "pages of {page} bytes: take a power of two from {PAGE_BYTES} to {PAGE_BYTES_MAX}"
            ));
        }
        let pages = bytes / page;
        if pages == 0 || !bytes.is_multiple_of(page) || u32::try_from(pages).is_err() {
            return wrong(format!("{bytes} bytes: take whole pages, and fewer than 2^32 of them"));
        }
        let most = STAGING_SHARE * table::NUMBER_MAX as usize;
        if !(FRAMES_MIN..=most).contains(&self.frames) {
            return wrong(format!("{} frames: take {FRAMES_MIN} to {most}", self.frames));
        }
        if self.contexts == 0 || self.contexts > (self.frames / 4).min(CONTEXTS_MAX) {
            let most = (self.frames / 4).min(CONTEXTS_MAX);
            return wrong(format!(
                "{} contexts: take 1 to {most} for so many frames",
                self.contexts
            ));
        }
        if matches!(self.faults, Faults::Handlers(count) if !(1..=HANDLERS_MAX).contains(&count)) {
            return wrong(format!("handler threads: take 1 to {HANDLERS_MAX}"));
        }
        match room {
            Some(room) if room < bytes as u64 => {
                wrong(format!("{bytes} bytes: the backing has room for {room}"))
            }
            _ => Ok(()),
        }
    }
}

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The configuration cannot be.
    #[error("a region of {0}")]
    Config(String),
    /// Page faults cannot be served here.
    #[error(transparent)]
    Uffd(#[from] OpenError),
    /// The system says.
    #[error("a region cannot be mapped: {0}")]
    System(#[from] io::Error),
}

/// A program's advice on a range of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be used soon: fetched now, by this thread, several pages in one exchange.
    WillNeed,
    /// It will not be used soon: moved to the staging area, from where it leaves next.
    Cold,
    /// It leaves memory now. Pinned pages stay.
    PageOut,
    /// Its content is not needed any more: it reads as zeros from now on. Pinned and lost pages stay as they are.
    Free,
}

/// An address range whose pages come from a backing.
///
/// Threads share it: [`words`](Region::words) is safe to use, and a lost page is a SIGBUS there. [`read`](Region::read)
/// and [`write`](Region::write) report it as an error.
///
/// After fork(2) the child does not have the range (`MADV_DONTFORK`).
pub struct Region {
    /// Before the pager, which they use.
    keeper: Option<Keeper>,
    handlers: Option<Handlers>,
    registered: Option<Registered>,
    pager: Arc<Pager>,
    mapping: Mapped,
}

/// The address range, and the staging area behind it.
struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
    staging_bytes: usize,
}

// SAFETY: the mapping belongs to the process. Only raw pointers to it are given out.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Never huge pages, which would not fit the budget; not inherited by children, whose pages could not move.
    fn new(bytes: usize, staging_bytes: usize) -> io::Result<Mapped> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let (whole, flags) = (bytes + staging_bytes, flags | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses an unused address, so no existing mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, access, flags)? };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        let mapped = Mapped { base, bytes, staging_bytes };
        for advice in [Madvice::LinuxNoHugepage, Madvice::LinuxDontFork] {
            // SAFETY: the range was just mapped, and neither advice changes a byte.
            match unsafe { rustix::mm::madvise(base.as_ptr().cast(), whole, advice) } {
                Err(rustix::io::Errno::INVAL) if advice == Madvice::LinuxNoHugepage => {} // has none
                result => result?,
            }
        }
        Ok(mapped)
    }

    fn whole(&self) -> Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + self.bytes + self.staging_bytes
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let whole = self.bytes + self.staging_bytes;
        // SAFETY: the range is exactly what `mmap` gave, and its only owner goes away.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), whole) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Signals of this thread wait while it does what a handler does: a handler of the program that touched a region in
/// the middle of it would wait for its own thread.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn new() -> Quiet {
        // SAFETY: both sets are this function's own, and zeroed ones are valid.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Quiet(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

impl Region {
    /// Maps `bytes` bytes, whose pages are in `backing` where they are not in memory.
    pub fn map(
        bytes: usize,
        config: RegionConfig,
        backing: &dyn Backing,
    ) -> Result<Region, RegionError> {
        config.check(bytes, backing.bytes())?;
        let slots = config.frames.div_ceil(STAGING_SHARE);
        let mapping = Mapped::new(bytes, slots * config.page_bytes)?;
        let uffd = open_uffd(config.faults)?;
        uffd.register(&mapping.whole())?;
        let pager = Arc::new(make_pager(uffd, &mapping, slots, config, backing)?);
        let mut region = Region { keeper: None, handlers: None, registered: None, pager, mapping };
        let range = region.range();
        match config.faults {
            Faults::InThread => {
                fault::install()?;
                let pager = Arc::as_ptr(&region.pager);
                region.registered = Some(Registered::new(range.start, range.end, pager)?);
            }
            Faults::Handlers(count) => {
                region.handlers = Some(Handlers::start(&region.pager, count)?);
            }
        }
        region.keeper = start_keeper(&region.pager, config, backing)?;
        Ok(region)
    }

    fn range(&self) -> Range<usize> {
        let start = self.mapping.base.as_ptr() as usize;
        start..start + self.mapping.bytes
    }

    /// Bytes of the range.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.mapping.bytes
    }

    /// The first byte. The rules for any raw pointer hold, and those of [`as_mut_slice`](Region::as_mut_slice).
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.base.as_ptr()
    }

    /// The whole range as a slice.
    ///
    /// # Safety
    /// That a reference's bytes change only through it is what the caller vouches for, because it hangs on things that
    /// this type does not see: the backing returns what was stored (a page's CRC-32C is compared, but an enemy can
    /// forge that); no code uses any other way to the range or [`Advice::Free`] meanwhile; and the program leaves
    /// the range and the SIGBUS handler alone. That a page may be lost is no breach: the process ends then, as for a
    /// memory error.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: the range is mapped as long as `self` lives, and every byte has a value, zero until it is written;
        // the rest is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// The whole range as words, for any number of threads. A word of a lost page is a SIGBUS.
    pub fn words(&self) -> &[AtomicU64] {
        let (words, count) = (self.as_ptr().cast::<AtomicU64>(), self.len() / size_of::<u64>());
        // SAFETY: the range is mapped as long as `self` lives and aligned to pages. Any bytes are a word, and a word
        // may change under its reference; code that changes it otherwise has promised more in `as_mut_slice`.
        unsafe { std::slice::from_raw_parts(words, count) }
    }

    /// Copies `into.len()` bytes from `offset` out. Panics outside. Bytes that another thread writes meanwhile are
    /// torn.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), FaultError> {
        self.by_pages(offset, into.len(), Access::Read, |at, part| {
            let words = self.words();
            copy_words(at, &mut into[part], |index, at, bytes| {
                let word = words[index].load(Ordering::Relaxed).to_ne_bytes();
                bytes.copy_from_slice(&word[at..at + bytes.len()]);
            });
        })
    }

    /// Copies `from` to `offset`. Panics outside. Two threads may write to the same place at a time; of words that both
    /// change in part, all the bytes arrive.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), FaultError> {
        let mut page = [0; PAGE_BYTES];
        self.by_pages(offset, from.len(), Access::Write, |at, part| {
            let words = self.words();
            for (n, from) in from[part].chunks(PAGE_BYTES).enumerate() {
                // A copy, so that reading and writing share the walk.
                let copy = &mut page[..from.len()];
                copy.copy_from_slice(from);
                copy_words(at + n * PAGE_BYTES, copy, |index, at, bytes| {
                    put_bytes(&words[index], at, bytes);
                });
            }
        })
    }

    fn by_pages(
        &self,
        offset: usize,
        bytes: usize,
        access: Access,
        mut copy: impl FnMut(usize, Range<usize>),
    ) -> Result<(), FaultError> {
        self.pages_of(offset, bytes);
        let mut done = 0;
        while done < bytes {
            let at = offset + done;
            let step = (self.pager.page_bytes - at % self.pager.page_bytes).min(bytes - done);
            self.touch(at, step, access)?;
            copy(at, done..done + step);
            done += step;
        }
        Ok(())
    }

    /// The pages that a stretch lies in. Panics outside.
    fn pages_of(&self, offset: usize, bytes: usize) -> Range<usize> {
        let end = offset.checked_add(bytes).expect("a stretch has an end");
        assert!(end <= self.len(), "a stretch of the region");
        let page = self.pager.page_bytes;
        if bytes == 0 { 0..0 } else { offset / page..end.div_ceil(page) }
    }

    fn each_page(
        &self,
        offset: usize,
        bytes: usize,
        mut work: impl FnMut(&Pager, &mut contexts::Context, usize) -> Result<(), FaultError>,
    ) -> Result<(), FaultError> {
        let mut pages = self.pages_of(offset, bytes);
        let _quiet = Quiet::new();
        self.pager
            .contexts
            .with(|context| pages.try_for_each(|page| work(&self.pager, context, page)))
    }

    /// Has the stretch's pages in memory, as far as the budget goes: what comes in last stays. Panics outside.
    pub fn touch(&self, offset: usize, bytes: usize, access: Access) -> Result<(), FaultError> {
        let pages = self.pages_of(offset, bytes);
        let there = |page| {
            let held = self.pager.table.peek(page);
            held.is_some_and(|held| held.state == table::State::Resident)
        };
        if pages.clone().all(there) {
            return Ok(());
        }
        let (mut asked, end) = (pages.start, pages.end);
        self.each_page(offset, bytes, |pager, context, page| {
            if page == asked {
                asked = (page + pager.ahead.max(1)).min(end);
                pager.bring_ahead(context, page..asked);
            }
            pager.bring(context, page, access, false)
        })
    }

    /// As [`touch`](Region::touch), and the pages stay until they are [unpinned](Region::unpin), as often as they were
    /// pinned. At most three quarters of the mapped frames can be. Panics outside.
    pub fn pin(&self, offset: usize, bytes: usize) -> Result<(), FaultError> {
        let mut pinned = 0;
        let result = self.each_page(offset, bytes, |pager, context, page| {
            pager.pin(context, page)?;
            pinned += 1;
            Ok(())
        });
        if result.is_err() {
            let first = self.pages_of(offset, bytes).start;
            (first..first + pinned).for_each(|page| self.pager.unpin(page));
        }
        result
    }

    /// Undoes one [`pin`](Region::pin) of this stretch. Panics outside.
    pub fn unpin(&self, offset: usize, bytes: usize) {
        let _quiet = Quiet::new();
        self.pages_of(offset, bytes).for_each(|page| self.pager.unpin(page));
    }

    /// Says something about the pages of a stretch; of a page that is there in part, of all of it, but
    /// [`Advice::Free`] frees only pages that lie wholly in the stretch. Panics outside.
    pub fn advise(&self, offset: usize, bytes: usize, advice: Advice) -> Result<(), FaultError> {
        match advice {
            Advice::WillNeed => self.touch(offset, bytes, Access::Read),
            Advice::Cold => {
                self.each_page(offset, bytes, |pager, context, page| pager.cool(context, page))
            }
            Advice::PageOut => {
                self.each_page(offset, bytes, |pager, context, page| pager.page_out(context, page))
            }
            Advice::Free => {
                self.pages_of(offset, bytes);
                let page = self.pager.page_bytes;
                let start = offset.next_multiple_of(page);
                let end = (offset + bytes) / page * page;
                self.each_page(start.min(end), end.saturating_sub(start), |pager, context, page| {
                    pager.empty(context, page);
                    Ok(())
                })
            }
        }
    }

    /// Stores every page of the stretch that differs from what the backing has. Writes of threads meanwhile are stored
    /// now or the next time. Panics outside.
    pub fn flush(&self, offset: usize, bytes: usize) -> Result<(), FaultError> {
        let pages = self.pages_of(offset, bytes);
        let _quiet = Quiet::new();
        self.pager.contexts.with(|context| self.pager.flush(context, pages))
    }

    /// As [`flush`](Region::flush) of everything, and it outlives the process, if the backing does.
    pub fn sync(&self) -> Result<(), FaultError> {
        self.flush(0, self.len())?;
        let synced = self.pager.contexts.with(|context| context.parts().0.sync());
        synced.map_err(|error| FaultError::Unavailable(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Counters since it was mapped.
    pub fn counters(&self) -> Counters {
        self.pager.tally.read()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.pager.page_bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // No handler serves a fault any more when the range goes, and no thread is left to touch it.
        self.keeper = None;
        self.handlers = None;
        self.registered = None;
    }
}

/// Gives each word of `bytes`, the first of which is at `offset`, to `each`: its index, its first byte that counts, and
/// the bytes that count.
fn copy_words(offset: usize, bytes: &mut [u8], mut each: impl FnMut(usize, usize, &mut [u8])) {
    const WORD: usize = size_of::<u64>();
    let head = ((WORD - offset % WORD) % WORD).min(bytes.len());
    let (first, rest) = bytes.split_at_mut(head);
    if head > 0 {
        each(offset / WORD, offset % WORD, first);
    }
    let index = offset.div_ceil(WORD);
    rest.chunks_mut(WORD).enumerate().for_each(|(n, word)| each(index + n, 0, word));
}

/// Changes bytes of a word from `at` on.
fn put_bytes(word: &AtomicU64, at: usize, bytes: &[u8]) {
    if let Ok(whole) = bytes.try_into() {
        return word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
    let change = |present: u64| {
        let mut changed = present.to_ne_bytes();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(changed))
    };
    // It never gives up.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
}

fn open_uffd(faults: Faults) -> Result<Uffd, OpenError> {
    let needed = Features::WP_UNPOPULATED.and(Features::WP_ASYNC).and(Features::POISON);
    let needed = needed.and(Features::MOVE);
    match faults {
        Faults::InThread => Uffd::open(Origin::User, needed.and(Features::SIGBUS)),
        Faults::Handlers(_) => Uffd::open(Origin::All, needed),
    }
}

fn start_keeper(
    pager: &Arc<Pager>,
    config: RegionConfig,
    backing: &dyn Backing,
) -> io::Result<Option<Keeper>> {
    let RegionConfig { page_bytes, cleans, .. } = config;
    let upkeep = backing.upkeep(page_bytes);
    if !cleans && upkeep.is_none() {
        return Ok(None);
    }
    let context = Context::new(backing, page_bytes)?;
    Keeper::start(Work { pager: pager.clone(), context, upkeep, cleans }).map(Some)
}

fn make_pager(
    uffd: Uffd,
    mapping: &Mapped,
    slots: usize,
    config: RegionConfig,
    backing: &dyn Backing,
) -> io::Result<Pager> {
    let base = mapping.base.as_ptr() as usize;
    let page_bytes = config.page_bytes;
    let frames = config.frames - slots;
    let (pages, bell) = (mapping.bytes / page_bytes, Arc::new(Bell::default()));
    backing.begin(pages, &bell)?;
    Ok(Pager {
        uffd,
        pagemap: PageMap::open()?,
        table: Table::new(pages, !backing.starts_empty()),
        resident: Resident::new(frames),
        staging: Staging::new(slots),
        contexts: Contexts::new(config.contexts, backing, page_bytes)?,
        tally: Tally::default(),
        base,
        area: base + mapping.bytes,
        page_bytes,
        patience: config.patience,
        retire: (slots / 4).clamp(1, RETIRE_MAX),
        frames,
        ahead: peer::ahead_max(page_bytes).min(frames / AHEAD_SHARE),
        streams: Streams::default(),
        slots,
        written: AtomicUsize::new(0),
        bell,
        pins: AtomicUsize::new(0),
        // Also has the checksum choose its instructions now, not in a handler.
        zeros: crc32c(&vec![0; page_bytes]),
    })
}
