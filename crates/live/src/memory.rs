//! Memory that other processes may look at: a memfd that its owner maps for writing and others only for reading.
//!
//! Every shared byte has one writer, and the kernel enforces it: the owner maps its memfd first and then seals it
//! against shrinking, growing, future writable mappings and further seals. Memory that is to be given back to the
//! system in parts cannot have the third seal: peers get a descriptor for reading instead. A peer that got the
//! descriptor over a UNIX socket checks those seals before it maps, so no access can fault because the owner cut the
//! file (SIGBUS).
//!
//! It is not synchronised: the owner may write while a peer copies. A peer therefore never makes a reference to the
//! bytes; it copies them out, or reads single words with atomics, and checks what it got.

use endpoint::Region;
use endpoint::limits::PAGE_BYTES;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

const LINE_BYTES: usize = 64;
/// Lines fetched ahead of a page's copy, and how much of a payload that is done for: a processor has room for a few
/// dozen lines on their way.
const PREFETCH_LINES: usize = 8;
const PREFETCH_BYTES_MAX: usize = 4 * PAGE_BYTES;

/// Seals that a peer insists on before it maps foreign memory, unless it can only read by its descriptor.
const SEALS_NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::FUTURE_WRITE);

/// Why foreign memory was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum PeerMemoryError {
    /// The descriptor is not a memfd that can be sealed.
    #[error("the peer's descriptor is not sealable memory: {0}")]
    NotMemory(io::Error),
    /// The seals that make the mapping safe are not all there.
    #[error("the peer's memory lacks the seals against shrinking and future writing")]
    Unsealed,
    /// The size is not the one agreed on.
    #[error("the peer's memory has {actual} bytes, {wanted} were announced")]
    Size {
        /// Bytes of the memfd.
        actual: u64,
        /// Bytes that the peer announced.
        wanted: usize,
    },
    /// The kernel refused the mapping.
    #[error("the peer's memory cannot be mapped: {0}")]
    Map(io::Error),
}

/// A mapping, unmapped when it is dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it, and `Mapping` itself only hands out its
// address; code that turns that into accesses answers for them.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses an unused address, so no existing mapping is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)?
        };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Mapping { base, bytes })
    }

    fn address(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `mmap` gave, and the owner of the mapping goes away with it.
        let unmapped = unsafe { rustix::mm::munmap(self.address(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Memory of ours that peers may map for reading.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    mapping: Mapping,
    /// The descriptor for peers, where that is not `fd` itself.
    read_only: Option<OwnedFd>,
}

/// Whether peers can only read through a descriptor that was passed to them.
fn is_read_only(fd: &OwnedFd, seals: SealFlags) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(seals.contains(SealFlags::FUTURE_WRITE) || (flags & OFlags::ACCMODE) == OFlags::RDONLY)
}

/// A file of `bytes` zeroed bytes that exists as long as a descriptor or mapping of it, and can be sealed.
fn memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    assert!(bytes > 0, "shared memory has at least one page");
    assert!(bytes.is_multiple_of(PAGE_BYTES), "shared memory is whole pages");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    Ok(fd)
}

impl SharedMemory {
    /// `bytes` zeroed bytes, a multiple of the page. `name` is shown in `/proc/PID/maps`.
    pub fn create(name: &str, bytes: usize) -> io::Result<SharedMemory> {
        let fd = memfd(name, bytes)?;
        let mapping = Mapping::new(fd.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        // Only now: the seal against future writing would have refused our own mapping too.
        let seals = SEALS_NEEDED | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok(SharedMemory { fd, mapping, read_only: None })
    }

    /// As [`create`](SharedMemory::create), and pages can be given [back](SharedMemory::discard): the kernel refuses
    /// that (fallocate(2), `FALLOC_FL_PUNCH_HOLE`) where future writing is sealed. Peers get a descriptor for reading
    /// of a file that only this user may open, and for reading only. That keeps mistakes out: another process of
    /// this user that means to can make the file writable (fchmod(2)) and write there.
    pub fn create_returnable(name: &str, bytes: usize) -> io::Result<SharedMemory> {
        let fd = memfd(name, bytes)?;
        rustix::fs::fchmod(&fd, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mapping = Mapping::new(fd.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(SharedMemory { fd, mapping, read_only: Some(read_only) })
    }

    /// Gives whole pages back to the system; they are zeros when they are touched again. False where that cannot be.
    /// Panics outside.
    pub fn discard(&self, at: usize, bytes: usize) -> bool {
        self.own(at, bytes);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.read_only.is_some()
            && rustix::fs::fallocate(&self.fd, hole, at as u64, bytes as u64).is_ok()
    }

    /// Maps a peer's memory of exactly `bytes` bytes for reading.
    pub fn open_read_only(fd: OwnedFd, bytes: usize) -> Result<PeerRegion, PeerMemoryError> {
        let seals = rustix::fs::fcntl_get_seals(&fd)
            .map_err(|error| PeerMemoryError::NotMemory(error.into()))?;
        let read_only = is_read_only(&fd, seals).map_err(PeerMemoryError::NotMemory)?;
        if !seals.contains(SealFlags::SHRINK) || !read_only {
            return Err(PeerMemoryError::Unsealed);
        }
        // Read after the seals: from here on the size cannot fall.
        let status = rustix::fs::fstat(&fd).map_err(|e| PeerMemoryError::NotMemory(e.into()))?;
        let actual = status.st_size.max(0) as u64;
        if bytes == 0 || actual != bytes as u64 {
            return Err(PeerMemoryError::Size { actual, wanted: bytes });
        }
        let mapping =
            Mapping::new(fd.as_fd(), bytes, ProtFlags::READ).map_err(PeerMemoryError::Map)?;
        Ok(PeerRegion { mapping })
    }

    /// Makes the kernel back every page now, so that later accesses cost no page fault. Contents stay.
    pub fn touch(&self) -> io::Result<()> {
        let (base, bytes) = (self.mapping.address(), self.mapping.bytes);
        // SAFETY: the range is our own mapping, and populating changes no byte of it.
        match unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite) } {
            Err(rustix::io::Errno::INVAL) => self.touch_each_page(), // before Linux 5.14
            result => Ok(result?),
        }
    }

    fn touch_each_page(&self) -> io::Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, self.mapping.bytes as u64)?;
        for at in (0..self.mapping.bytes).step_by(PAGE_BYTES) {
            // SAFETY: `at` is inside the mapping, which lives as long as `self`.
            unsafe { self.mapping.base.add(at).read_volatile() };
        }
        Ok(())
    }

    /// Writes `from` at `offset`. Peers may read meanwhile. Panics outside.
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) {
        let target = self.own(offset, from.len());
        // SAFETY: the target is inside our own mapping, checked by `own`; `from` is a reference, and those are never
        // made to this memory, so the two do not overlap. Peers read by raw copies only.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), target, from.len()) };
    }

    /// Reads what [`copy_in`](SharedMemory::copy_in) has written. Panics outside.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let source = self.own(offset, into.len());
        // SAFETY: as for `copy_in`; no other thread writes here.
        unsafe { std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` bytes at `from` of a peer's memory to `offset`. They may be torn if the peer writes meanwhile.
    /// Panics outside of ours.
    pub fn copy_across(
        &mut self,
        offset: usize,
        peer: &PeerRegion,
        from: usize,
        bytes: usize,
    ) -> Result<(), OutOfBounds> {
        let source = peer.stretch(from, bytes)?;
        let target = self.own(offset, bytes);
        // SAFETY: both are inside their mappings, checked by `stretch` and `own`. A peer's region is another mapping,
        // so that the ranges do not overlap; where the peer passed our own memory back, the copy may be torn.
        unsafe { std::ptr::copy(source, target, bytes) };
        Ok(())
    }

    fn own(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes).expect("a stretch has an end");
        assert!(end <= self.mapping.bytes, "a stretch of our own memory");
        // SAFETY: `offset` is at most the mapping's size, asserted above.
        unsafe { self.mapping.base.as_ptr().add(offset) }
    }

    /// The descriptor to pass to peers. It gives access to all of the memory, for reading.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.read_only.as_ref().unwrap_or(&self.fd).as_fd()
    }

    /// The first byte, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }
}

/// A pool's bytes in shared memory: [`endpoint::Frames`] are made of it, peers read the frames they are told of.
///
/// The pool takes the region for itself; what peers need of it is the descriptor, taken before with
/// [`share`](MemfdRegion::share).
#[derive(Debug)]
pub struct MemfdRegion(SharedMemory);

impl MemfdRegion {
    /// `pages` zeroed pages.
    pub fn create(name: &str, pages: usize) -> io::Result<MemfdRegion> {
        Ok(MemfdRegion(SharedMemory::create(name, pages * PAGE_BYTES)?))
    }

    /// As [`create`](MemfdRegion::create), of pages that can be given back, where the system allows that.
    pub fn create_returnable(name: &str, pages: usize) -> io::Result<MemfdRegion> {
        let returnable = SharedMemory::create_returnable(name, pages * PAGE_BYTES);
        returnable.or_else(|_| SharedMemory::create(name, pages * PAGE_BYTES)).map(MemfdRegion)
    }

    /// A descriptor of its own to pass to peers, which stays good when the pool owns the region.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.fd().try_clone_to_owned()
    }

    /// The descriptor to pass to peers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// As [`SharedMemory::touch`].
    pub fn touch(&self) -> io::Result<()> {
        self.0.touch()
    }
}

// SAFETY: the mapping lives until drop and is page-aligned. It is the only writable one there is or can be: before a
// descriptor could leave `create` the memfd was sealed against others, or in `create_returnable` made one that no other
// user may open, of which peers get a descriptor for reading. Only the pool learns the address.
unsafe impl Region for MemfdRegion {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.bytes()
    }

    fn discard(&self, at: usize, bytes: usize) -> bool {
        self.0.discard(at, bytes)
    }
}

/// A peer's memory, for reading. The peer may change any byte at any time.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Mapping,
}

/// A stretch that does not lie inside the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer names {bytes} bytes at {offset} of its {size} bytes of memory")]
pub struct OutOfBounds {
    /// First byte asked for.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    /// Bytes there are.
    pub size: usize,
}

impl PeerRegion {
    /// Copies `into.len()` bytes from `offset`. The bytes may be torn if the peer writes meanwhile.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let source = self.stretch(offset, into.len())?;
        // SAFETY: source is inside the mapping, checked above; `into` is ours alone, so they do not overlap. The
        // bytes are copied through raw pointers only; a racing peer can change what is copied, nothing else.
        unsafe { std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Where `bytes` bytes at `offset` are, for atomics and raw copies while `self` lives. Never for references.
    pub fn stretch(&self, offset: usize, bytes: usize) -> Result<*const u8, OutOfBounds> {
        let size = self.mapping.bytes;
        match offset.checked_add(bytes) {
            // SAFETY: `offset` is at most the mapping's size, so the pointer stays inside it or one past it.
            Some(end) if end <= size => Ok(unsafe { self.mapping.base.as_ptr().add(offset) }),
            _ => Err(OutOfBounds { offset, bytes, size }),
        }
    }

    /// Has the processor fetch the first lines of each page of a stretch that is to be copied: what it fetches ahead by
    /// itself begins after a few accesses and ends at the page.
    pub fn prefetch_starts(&self, offset: usize, bytes: usize) {
        for page in (0..bytes.min(PREFETCH_BYTES_MAX)).step_by(PAGE_BYTES) {
            self.prefetch(offset + page, PREFETCH_LINES * LINE_BYTES);
        }
    }

    /// Has the processor fetch the cache lines of these bytes, if they are all there; changes nothing else.
    pub fn prefetch(&self, offset: usize, bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(first) = self.stretch(offset, bytes) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in (0..bytes).step_by(LINE_BYTES) {
                // SAFETY: every x86-64 processor has the instruction, and it faults on no address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line).cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, bytes);
    }

    /// Where the mapping begins, for atomics and raw copies while `self` lives. Never for references.
    pub fn base(&self) -> *const u8 {
        self.mapping.base.as_ptr()
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::Frames;

    fn bare_memfd(bytes: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn a_peer_reads_what_the_pool_writes() {
        let region = MemfdRegion::create("frames", 4).unwrap();
        region.touch().unwrap();
        let shared = region.share().unwrap();
        let frames = Frames::new(region);
        let mut frame = frames.alloc(8192).unwrap();
        frame.fill(7);
        let peer = SharedMemory::open_read_only(shared, 4 * PAGE_BYTES).unwrap();
        let mut copy = [0; 100];
        peer.copy_out(frame.offset() + 50, &mut copy).unwrap();
        assert_eq!(copy, [7; 100]);
    }

    #[test]
    fn touching_changes_nothing_and_backs_every_page() {
        let memory = SharedMemory::create("test", 8 * PAGE_BYTES).unwrap();
        // SAFETY: inside the mapping, and nothing else knows it.
        unsafe { memory.base().as_ptr().add(5000).write(42) };
        memory.touch().unwrap();
        memory.touch_each_page().unwrap();
        let blocks = rustix::fs::fstat(memory.fd()).unwrap().st_blocks;
        assert_eq!(blocks as usize * 512, 8 * PAGE_BYTES);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.base().as_ptr().add(5000).read() }, 42);
    }

    #[test]
    fn the_kernel_keeps_the_owners_promises() {
        let memory = SharedMemory::create("test", PAGE_BYTES).unwrap();
        assert!(rustix::fs::ftruncate(memory.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(memory.fd(), 2 * PAGE_BYTES as u64).is_err());
        assert!(rustix::io::pwrite(memory.fd(), b"x", 0).is_err());
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        assert!(Mapping::new(memory.fd(), PAGE_BYTES, writable).is_err());
        assert!(rustix::fs::fcntl_add_seals(memory.fd(), SealFlags::WRITE).is_err());
    }

    #[test]
    fn memory_that_is_given_back_is_zeros_and_peers_only_read_it() {
        let memory = SharedMemory::create_returnable("test", 8 * PAGE_BYTES).unwrap();
        memory.touch().unwrap();
        // SAFETY: inside the mapping, and nothing else knows it.
        unsafe { memory.base().as_ptr().add(5 * PAGE_BYTES).write(42) };
        let blocks = || rustix::fs::fstat(memory.fd()).unwrap().st_blocks as usize * 512;
        assert_eq!(blocks(), 8 * PAGE_BYTES);
        assert!(memory.discard(4 * PAGE_BYTES, 4 * PAGE_BYTES));
        assert_eq!(blocks(), 4 * PAGE_BYTES);
        let shared = memory.fd().try_clone_to_owned().unwrap();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        assert!(Mapping::new(shared.as_fd(), 8 * PAGE_BYTES, writable).is_err());
        assert!(rustix::io::pwrite(&shared, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&shared, 0).is_err());
        let peer = SharedMemory::open_read_only(shared, 8 * PAGE_BYTES).unwrap();
        let mut byte = [1];
        peer.copy_out(5 * PAGE_BYTES, &mut byte).unwrap();
        assert_eq!(byte, [0], "a peer that reads it finds zeros and no end");
        let sealed = SharedMemory::create("test", PAGE_BYTES).unwrap();
        assert!(!sealed.discard(0, PAGE_BYTES));
    }

    #[test]
    fn a_pool_gives_back_what_is_free_and_takes_it_again() {
        let frames = Frames::new(MemfdRegion::create_returnable("frames", 3 * 256).unwrap());
        let held = frames.copy_of(&[9; 100]).unwrap();
        assert_eq!(frames.discard_free(9, 1), 1, "one at a time");
        assert_eq!((frames.discard_free(9, 9), frames.discarded_bytes()), (2, 2 << 20));
        assert_eq!((&held[..], frames.free_pages()), (&[9; 100][..], 3 * 256 - 1));
        let whole = frames.alloc(1 << 20).unwrap();
        assert!(whole.iter().all(|byte| *byte == 0));
        assert_eq!(frames.discarded_bytes(), 1 << 20, "it has memory again");
        drop(whole);
        assert_eq!(frames.discard_free(2, 9), 2);
        let never = Frames::new(MemfdRegion::create("frames", 512).unwrap());
        assert_eq!(never.discard_free(9, 9), 0);
    }

    #[test]
    fn memory_that_could_fault_is_refused() {
        let open = |fd, bytes| SharedMemory::open_read_only(fd, bytes).unwrap_err();
        assert!(matches!(open(bare_memfd(4096), 4096), PeerMemoryError::Unsealed));
        let shrinks = bare_memfd(4096);
        rustix::fs::fcntl_add_seals(&shrinks, SealFlags::FUTURE_WRITE).unwrap();
        assert!(matches!(open(shrinks, 4096), PeerMemoryError::Unsealed));
        let written = bare_memfd(4096);
        rustix::fs::fcntl_add_seals(&written, SealFlags::SHRINK).unwrap();
        assert!(matches!(open(written, 4096), PeerMemoryError::Unsealed));
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(open(file.into(), 4096), PeerMemoryError::NotMemory(_)));
        let fd = SharedMemory::create("test", PAGE_BYTES).unwrap().fd;
        assert!(matches!(open(fd, 8192), PeerMemoryError::Size { actual: 4096, wanted: 8192 }));
    }

    #[test]
    fn bounds_hold_at_every_edge() {
        let memory = SharedMemory::create("test", PAGE_BYTES).unwrap();
        let peer = SharedMemory::open_read_only(memory.fd, PAGE_BYTES).unwrap();
        let mut byte = [1];
        assert_eq!(peer.copy_out(PAGE_BYTES - 1, &mut byte), Ok(()));
        assert_eq!(byte, [0]);
        assert!(peer.copy_out(PAGE_BYTES, &mut byte).is_err());
        assert!(peer.copy_out(usize::MAX, &mut byte).is_err());
        assert!(peer.stretch(0, PAGE_BYTES + 1).is_err());
        assert!(peer.stretch(PAGE_BYTES, 0).is_ok());
    }
}
