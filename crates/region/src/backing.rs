//! Backings: places of a region's pages that are not in its frames.

use super::bell::Bell;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use wire::checksum::crc32c;

/// Why a page did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No copy of this version is left anywhere. Final.
    #[error("no copy of it is left")]
    Lost,
    /// Not now; it is asked for again.
    #[error("it cannot be fetched now (error {0} of the system)")]
    Unavailable(i32),
}

/// Why a page was not taken; it is offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be stored now (error {0} of the system)")]
pub struct StoreError(pub i32);

impl StoreError {
    /// The system's error.
    pub fn of(error: &io::Error) -> StoreError {
        StoreError(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// A page as it came.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// Its bytes, a whole page.
    pub bytes: &'a [u8],
    /// CRC-32C of just these bytes, computed here.
    pub checksum: u32,
}

impl<'a> Fetched<'a> {
    /// The bytes with their checksum.
    pub fn of(bytes: &'a [u8]) -> Fetched<'a> {
        Fetched { bytes, checksum: crc32c(bytes) }
    }
}

/// Keeps pages by number and version.
pub trait Backing: Send + Sync + 'static {
    /// Whether every page reads as zeros until it is stored for the first time; else version 0 is fetched too.
    fn starts_empty(&self) -> bool {
        true
    }

    /// Bytes that it has room for, if there is such a limit.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// A region of so many pages begins. Threads that have work for it ring the bell.
    fn begin(&self, pages: usize, bell: &Arc<Bell>) -> io::Result<()> {
        let _ = (pages, bell);
        Ok(())
    }

    /// State for one fault at a time, made beforehand: connections, buffers.
    fn source(&self, page_bytes: usize) -> io::Result<Box<dyn Source>>;

    /// Background work, if any, for a thread of the region.
    fn upkeep(&self, page_bytes: usize) -> Option<Box<dyn Upkeep>> {
        let _ = page_bytes;
        None
    }
}

/// Background work of a backing. It must not touch a region's memory.
pub trait Upkeep: Send {
    /// Does what is due; says how long that can wait the next time, unless the bell is rung.
    fn turn(&mut self) -> Duration;

    /// Pages that are kept less safely than the backing promises, those that were stored longest ago first: each is to
    /// be [mended](Source::mend). A bounded number, and none when nothing has changed.
    fn weak(&mut self) -> Vec<u64>;

    /// One of them could not be mended now.
    fn handle_unmended(&mut self);

    /// No page is needed any more.
    fn end(&mut self);
}

/// One fault's way to the backing.
///
/// All but [`sync`](Source::sync) may run in a signal handler, in the middle of any code of the program that touches
/// the region: they must not panic, and not allocate or take a lock that a thread may hold while it does that. They
/// may block. They must not touch a region's memory. No two calls for one page run at the same time.
pub trait Source: Send {
    /// Gets the version that was stored last. `version` is its number, 0 when none was stored. A backing that checks
    /// versions never returns an older one. `into` is memory for a page, to be used or not.
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError>;

    /// Gets pages that no thread waits for yet, by number and version: as many as come soon. `landed` is told of each
    /// with its place in `wanted`. `into` is memory for a page, to be used or not.
    fn fetch_ahead(
        &mut self,
        wanted: &[(u64, u64)],
        into: &mut [u8],
        landed: &mut dyn FnMut(usize, Fetched<'_>),
    ) {
        for (which, (page, version)) in wanted.iter().enumerate() {
            if let Ok(fetched) = self.fetch(*page, *version, into) {
                landed(which, fetched);
            }
        }
    }

    /// Keeps the bytes as that version, which is higher than any before. When it returns they are kept as safely as the
    /// backing promises. After an error the page is stored again, with a higher number, before it is fetched.
    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError>;

    /// The page's content is not needed any more; `version` is the last that was offered.
    fn forget(&mut self, page: u64, version: u64) {
        let _ = (page, version);
    }

    /// Forgets copies that may be left without asking for them: the page is not weak any more. Called by the keeper, so
    /// it must not wait for the [upkeep](Backing::upkeep).
    fn abandon(&mut self, page: u64, version: u64) {
        self.forget(page, version);
    }

    /// Keeps this version, which was stored last, as safely again as the backing promises; whether there was something
    /// to do for that. `buffer` is memory for a page.
    fn mend(&mut self, page: u64, version: u64, buffer: &mut [u8]) -> Result<bool, FetchError> {
        let _ = (page, version, buffer);
        Ok(false)
    }

    /// Stored pages outlive the process from now on, if the backing does.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Memory of this process: for tests, and as the floor of measurements. It saves no memory.
#[derive(Clone, Debug)]
pub struct LocalMemory(Arc<Plain>);

#[derive(Debug)]
struct Plain {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process. Callers touch a page one at a time, see `Source`.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl LocalMemory {
    /// Room for `bytes` bytes, taken as they are stored.
    pub fn new(bytes: usize) -> io::Result<LocalMemory> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an unused address, so no existing mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(LocalMemory(Arc::new(Plain { base, bytes })))
    }
}

impl Plain {
    fn page(&self, page: u64, bytes: usize) -> *mut u8 {
        let at = page as usize * bytes;
        assert!(at + bytes <= self.bytes, "a page of the backing");
        // SAFETY: inside the mapping, asserted above.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `mmap` gave, and its only owner goes away.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

impl Backing for LocalMemory {
    fn bytes(&self) -> Option<u64> {
        Some(self.0.bytes as u64)
    }

    fn source(&self, _page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for LocalMemory {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        _version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let source = self.0.page(page, into.len());
        // SAFETY: inside the mapping; `into` is the caller's own, so they do not overlap; no thread writes the page
        // now.
        unsafe { std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len()) };
        Ok(Fetched::of(into))
    }

    fn store(&mut self, page: u64, _version: u64, from: &[u8]) -> Result<(), StoreError> {
        let target = self.0.page(page, from.len());
        // SAFETY: as for `fetch`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), target, from.len()) };
        Ok(())
    }
}

/// A file: page N of the region is its N-th page. The region begins with what the file has.
#[derive(Clone, Debug)]
pub struct FileBacking {
    file: Arc<File>,
    bytes: u64,
    empty: bool,
}

impl FileBacking {
    /// The file at `path`, made and grown with zeros to `bytes` where it is shorter. Two regions must not share one.
    pub fn open(path: &Path, bytes: u64) -> io::Result<FileBacking> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let len = file.metadata()?.len();
        if len < bytes {
            file.set_len(bytes)?;
        }
        Ok(FileBacking { file: Arc::new(file), bytes: bytes.max(len), empty: false })
    }

    /// A file without a name in `directory`, which goes with the region: it begins as zeros.
    pub fn scratch(directory: &Path, bytes: u64) -> io::Result<FileBacking> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
        file.set_len(bytes)?;
        Ok(FileBacking { file: Arc::new(file), bytes, empty: true })
    }
}

impl Backing for FileBacking {
    fn starts_empty(&self) -> bool {
        self.empty
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn source(&self, page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(FileSource { file: self.file.clone(), page_bytes }))
    }
}

#[derive(Debug)]
struct FileSource {
    file: Arc<File>,
    page_bytes: usize,
}

impl Source for FileSource {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        _version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let at = page * into.len() as u64;
        self.file.read_exact_at(into, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FetchError::Lost, // the file was truncated
            _ => FetchError::Unavailable(error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        Ok(Fetched::of(into))
    }

    fn store(&mut self, page: u64, _version: u64, from: &[u8]) -> Result<(), StoreError> {
        let at = page * from.len() as u64;
        self.file.write_all_at(from, at).map_err(|error| StoreError::of(&error))
    }

    fn forget(&mut self, page: u64, _version: u64) {
        let (at, bytes) = (page * self.page_bytes as u64, self.page_bytes as u64);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where the file system has no holes, the old bytes stay in the file, and this region does not ask for them.
        let _ = rustix::fs::fallocate(&self.file, hole, at, bytes);
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
