//! userfaultfd(2) and the PAGEMAP_SCAN of ioctl_pagemap_scan(2): this process serves its own page faults.
//!
//! Bindings of our own: what the libraries know ends before `UFFDIO_MOVE`, `UFFDIO_POISON` and `WP_ASYNC` (Linux 6.8).
//! Every operation is one system call, allocates nothing and takes no lock, so that a signal handler may use it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Capabilities of a descriptor, agreed on when it is made (`UFFD_FEATURE_*` of linux/userfaultfd.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// A fault is a SIGBUS of the thread that made it, instead of a message.
    pub const SIGBUS: Features = Features(1 << 7);
    /// Write protection also where there is no page yet.
    pub const WP_UNPOPULATED: Features = Features(1 << 13);
    /// [`Uffd::poison`].
    pub const POISON: Features = Features(1 << 14);
    /// The kernel lifts write protection by itself; who wants to know scans.
    pub const WP_ASYNC: Features = Features(1 << 15);
    /// [`Uffd::take`].
    pub const MOVE: Features = Features(1 << 16);

    /// Both.
    pub const fn and(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

/// Faults that a registered range reports: of pages that are not there.
const REGISTER_MISSING: u64 = 1;
/// Writes to pages that are protected.
const REGISTER_WP: u64 = 2;
/// A page that is copied in is protected against writing.
const COPY_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
/// `_IO(0xAA, 0x00)`: a descriptor from the device.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;

/// `_IOC` of asm-generic/ioctl.h: direction, type, number and the size of what is passed.
const fn code(direction: u64, kind: u8, number: u64, bytes: usize) -> libc::c_ulong {
    direction << 30 | (bytes as u64) << 16 | (kind as u64) << 8 | number
}

const READ: u64 = 2;
const BOTH: u64 = 3;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Stretch {
    start: u64,
    bytes: u64,
}

impl Stretch {
    fn of(range: &Range<usize>) -> Stretch {
        Stretch { start: range.start as u64, bytes: range.len() as u64 }
    }
}

#[repr(C)]
struct Register {
    range: Stretch,
    mode: u64,
    ioctls: u64,
}

/// Of `UFFDIO_COPY` and `UFFDIO_MOVE`.
#[repr(C)]
struct Transfer {
    target: u64,
    source: u64,
    bytes: u64,
    mode: u64,
    done: i64,
}

/// Of `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE` and `UFFDIO_POISON`.
#[repr(C)]
struct Fill {
    range: Stretch,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct Protect {
    range: Stretch,
    mode: u64,
}

/// Why an operation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The address space is changing just now, or the operation was interrupted: go on from `done` (EAGAIN).
    #[error("the address space is changing")]
    Again,
    /// There is a page already (EEXIST).
    #[error("there is a page already")]
    Exists,
    /// There is no page to take, or the range is not registered (ENOENT).
    #[error("there is no page, or the range is not registered")]
    Missing,
    /// The page is held elsewhere: pinned for a device, or shared with a child (EBUSY).
    #[error("somebody else holds the page")]
    Busy,
    /// Anything else.
    #[error("error {0} of the system")]
    Other(i32),
}

/// An operation that did not do all it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}, after {done} bytes")]
pub struct Stopped {
    /// Bytes done before, whole pages.
    pub done: usize,
    /// Why no more.
    pub why: Why,
}

impl Stopped {
    fn new(done: i64, errno: i32) -> Stopped {
        let why = match errno {
            libc::EAGAIN | libc::EINTR => Why::Again,
            libc::EEXIST => Why::Exists,
            libc::ENOENT => Why::Missing,
            libc::EBUSY => Why::Busy,
            other => Why::Other(other),
        };
        // The kernel puts the error there too when nothing was done.
        Stopped { done: done.max(0) as usize, why }
    }
}

/// Why there is no descriptor.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel is built without it.
    #[error("this kernel has no userfaultfd (CONFIG_USERFAULTFD)")]
    Absent,
    /// A filter forbids the call: containers do.
    #[error(
        "userfaultfd is not allowed here: {0}. Set the sysctl vm.unprivileged_userfaultfd=1, or give this user read \
         and write access to /dev/userfaultfd (a group and mode 0660), or run as root; in a container the seccomp \
         profile has to allow userfaultfd, or the device has to be passed in"
    )]
    Forbidden(io::Error),
    /// The kernel is too old for what is needed.
    #[error("this kernel's userfaultfd lacks {0}: regions need Linux 6.8 or newer")]
    Features(&'static str),
    /// The system says.
    #[error("userfaultfd: {0}")]
    Failed(#[from] io::Error),
}

/// Origin of the page faults that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Code of the program alone; anybody may.
    User,
    /// Also the kernel, when a system call touches the range; needs a privilege.
    All,
}

/// One page fault, of a descriptor without [`Features::SIGBUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page's first byte.
    pub address: usize,
    /// Whether it was a write.
    pub write: bool,
}

/// A userfaultfd, not yet or already with registered ranges.
#[derive(Debug)]
pub struct Uffd(OwnedFd);

impl Uffd {
    /// A descriptor with exactly these features, by the system call or by `/dev/userfaultfd`.
    pub fn open(origin: Origin, features: Features) -> Result<Uffd, OpenError> {
        let uffd = Uffd(descriptor(origin)?);
        let mut api = Api { api: UFFD_API, features: features.0, ioctls: 0 };
        // SAFETY: the structure is the one that this code reads and writes.
        match unsafe { uffd.call(code(BOTH, 0xaa, 0x3f, size_of::<Api>()), &mut api) } {
            Ok(()) => Ok(uffd),
            Err(libc::EINVAL) => Err(OpenError::Features(lacking(features))),
            Err(errno) => Err(io::Error::from_raw_os_error(errno).into()),
        }
    }

    /// Reports missing pages of `range` from now on, and tracks writes.
    pub fn register(&self, range: &Range<usize>) -> io::Result<()> {
        let mode = REGISTER_MISSING | REGISTER_WP;
        let mut register = Register { range: Stretch::of(range), mode, ioctls: 0 };
        // SAFETY: the structure is the one of this code; registering changes no byte of memory.
        let done = unsafe { self.call(code(BOTH, 0xaa, 0, size_of::<Register>()), &mut register) };
        done.map_err(io::Error::from_raw_os_error)
    }

    /// Makes a page of bytes appear at `target`, which is missing there; it wakes who waits for it. With `protected`
    /// the first write is noted.
    ///
    /// # Safety
    /// `source` is readable for `bytes`; no code relies on the pages at `target` staying away.
    pub unsafe fn copy(
        &self,
        target: usize,
        source: *const u8,
        bytes: usize,
        protected: bool,
    ) -> Result<(), Stopped> {
        let mode = if protected { COPY_MODE_WP } else { 0 };
        // SAFETY: as the caller says.
        unsafe { self.transfer(3, target, source as usize, bytes, mode) }
    }

    /// Moves pages without copying them: they disappear at `source` and appear at `target` at once. They are not
    /// protected there.
    ///
    /// # Safety
    /// Both ranges are registered private memory whose contents may move.
    pub unsafe fn take(&self, target: usize, source: usize, bytes: usize) -> Result<(), Stopped> {
        // SAFETY: as the caller says.
        unsafe { self.transfer(5, target, source, bytes, 0) }
    }

    unsafe fn transfer(
        &self,
        number: u64,
        target: usize,
        source: usize,
        bytes: usize,
        mode: u64,
    ) -> Result<(), Stopped> {
        let (target, source, bytes) = (target as u64, source as u64, bytes as u64);
        let mut transfer = Transfer { target, source, bytes, mode, done: 0 };
        let code = code(BOTH, 0xaa, number, size_of::<Transfer>());
        // SAFETY: the structure is the one of this code; what it does to memory is the caller's.
        let result = unsafe { self.call(code, &mut transfer) };
        result.map_err(|errno| Stopped::new(transfer.done, errno))
    }

    /// Makes pages of zeros appear in `range`, which is missing.
    pub fn zero(&self, range: &Range<usize>) -> Result<(), Stopped> {
        self.fill(4, range)
    }

    /// Maps pages of `range` that the page cache has already, of registered shared memory.
    pub fn resume(&self, range: &Range<usize>) -> Result<(), Stopped> {
        self.fill(7, range)
    }

    /// From now on an access to the missing `range` is a SIGBUS as of broken memory, also inside the kernel.
    pub fn poison(&self, range: &Range<usize>) -> Result<(), Stopped> {
        self.fill(8, range)
    }

    fn fill(&self, number: u64, range: &Range<usize>) -> Result<(), Stopped> {
        let mut fill = Fill { range: Stretch::of(range), mode: 0, done: 0 };
        // SAFETY: the structure is the one of this code; pages that exist are not changed.
        let result = unsafe { self.call(code(BOTH, 0xaa, number, size_of::<Fill>()), &mut fill) };
        result.map_err(|errno| Stopped::new(fill.done, errno))
    }

    /// Notes the next write to each page of `range`, or no longer does.
    pub fn protect(&self, range: &Range<usize>, protected: bool) -> Result<(), Stopped> {
        let mode = if protected { WRITEPROTECT_MODE_WP } else { 0 };
        let mut protect = Protect { range: Stretch::of(range), mode };
        // SAFETY: the structure is the one of this code; no byte of memory changes.
        let result = unsafe { self.call(code(BOTH, 0xaa, 6, size_of::<Protect>()), &mut protect) };
        result.map_err(|errno| Stopped::new(0, errno))
    }

    /// Has all threads that wait for `range` try again.
    pub fn wake(&self, range: &Range<usize>) -> Result<(), Stopped> {
        let mut range = Stretch::of(range);
        // SAFETY: the structure is the one of this code; no byte of memory changes.
        let result = unsafe { self.call(code(READ, 0xaa, 2, size_of::<Stretch>()), &mut range) };
        result.map_err(|errno| Stopped::new(0, errno))
    }

    /// The next page fault, or `None` when there is none now.
    pub fn next_fault(&self) -> io::Result<Option<Fault>> {
        const EVENT_PAGEFAULT: u64 = 0x12;
        let mut message = [0u64; 4]; // struct uffd_msg: event, flags, address
        // SAFETY: the message has its 32 bytes.
        let got = unsafe { libc::read(self.0.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
        match got {
            32 if message[0] & 0xff == EVENT_PAGEFAULT => {
                let (address, write) = (message[2] as usize, message[1] & 1 != 0);
                Ok(Some(Fault { address, write }))
            }
            32 => Err(io::Error::other("an event of userfaultfd that nobody asked for")),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    unsafe fn call<T>(&self, code: libc::c_ulong, argument: &mut T) -> Result<(), i32> {
        // SAFETY: as the caller says; the argument lives through the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), code as _, std::ptr::from_mut(argument)) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The error number of this thread's last system call.
pub(super) fn errno() -> i32 {
    // SAFETY: it is the address of a variable of this thread.
    unsafe { *libc::__errno_location() }
}

fn descriptor(origin: Origin) -> Result<OwnedFd, OpenError> {
    let mode = if origin == Origin::User { UFFD_USER_MODE_ONLY } else { 0 };
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes nothing but its flags.
    let got = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::c_long::from(flags | mode)) };
    if got >= 0 {
        // SAFETY: the kernel has just made this descriptor, and no other code has it.
        return Ok(unsafe { OwnedFd::from_raw_fd(got as i32) });
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOSYS) => Err(OpenError::Absent),
        error if error.raw_os_error() == Some(libc::EPERM) => by_device(flags, error),
        error => Err(error.into()),
    }
}

/// The other way, which is guarded by the device's owner and mode.
fn by_device(flags: libc::c_int, refused: io::Error) -> Result<OwnedFd, OpenError> {
    let device = Path::new("/dev/userfaultfd");
    let Ok(device) = std::fs::File::options().read(true).write(true).open(device) else {
        return Err(OpenError::Forbidden(refused));
    };
    // SAFETY: this request takes its flags as a number.
    match unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags) } {
        // SAFETY: the kernel has just made this descriptor, and no other code has it.
        got if got >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(got) }),
        _ => Err(OpenError::Forbidden(io::Error::last_os_error())),
    }
}

/// The newest of the features, which an older kernel does not have.
fn lacking(features: Features) -> &'static str {
    match features.0 {
        bits if bits & Features::MOVE.0 != 0 => "UFFDIO_MOVE (6.8)",
        bits if bits & Features::WP_ASYNC.0 != 0 => "asynchronous write protection (6.7)",
        _ => "a feature",
    }
}

/// State of a page, for [`PageMap::scan`] (`PAGE_IS_*` of linux/fs.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Is(pub u64);

impl Is {
    /// Written since it was protected, or never protected.
    pub const WRITTEN: Is = Is(1 << 1);
    /// In memory.
    pub const PRESENT: Is = Is(1 << 3);
    /// The kernel's page of zeros.
    pub const ZERO: Is = Is(1 << 5);
}

/// Pages that follow each other and are alike, as the kernel reports them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRange {
    /// The first byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// Their state, as far as it was asked for.
    pub is: u64,
}

#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    found: u64,
    found_len: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    reported: u64,
}

/// `/proc/self/pagemap`.
#[derive(Debug)]
pub struct PageMap(OwnedFd);

impl PageMap {
    /// Of this process. A child after fork(2) needs its own.
    pub fn open() -> io::Result<PageMap> {
        Ok(PageMap(std::fs::File::open("/proc/self/pagemap")?.into()))
    }

    /// Finds the pages of `range` that are all of `all` and nothing of `none`; how many entries of `found` that filled,
    /// and where the look ended: at the end of `range`, unless `found` was full.
    pub fn scan(
        &self,
        range: &Range<usize>,
        all: Is,
        none: Is,
        found: &mut [PageRange],
    ) -> io::Result<(usize, usize)> {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: range.start as u64,
            end: range.end as u64,
            walk_end: 0,
            found: found.as_mut_ptr() as u64,
            found_len: found.len() as u64,
            pages_max: 0,
            inverted: none.0,
            all_of: all.0 | none.0,
            any_of: 0,
            reported: all.0,
        };
        let code = code(BOTH, b'f', 16, size_of::<Scan>());
        // SAFETY: both structures are the ones of this code and live through the call.
        let count = unsafe { libc::ioctl(self.0.as_raw_fd(), code as _, &raw mut scan) };
        match count {
            count if count >= 0 => Ok((count as usize, scan.walk_end as usize)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether any page of `range` is all of `all` and nothing of `none`.
    pub fn any(&self, range: &Range<usize>, all: Is, none: Is) -> io::Result<bool> {
        Ok(self.scan(range, all, none, &mut [PageRange::default()])?.0 > 0)
    }
}
