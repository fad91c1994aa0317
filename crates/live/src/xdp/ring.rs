//! The four rings that an AF_XDP socket shares with the kernel: of each, one side writes entries and their count, the
//! other takes them and counts that.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapping of a socket's ring or of plain memory, unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// A ring of the socket.
    pub fn of(socket: BorrowedFd<'_>, bytes: usize, which: u64) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address, so no existing mapping is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, socket, which)?
        };
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// Zeroed memory.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as above.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// The first byte, aligned to a page.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and whoever reaches into it goes away with it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// This side of a ring with entries of type `T`.
#[derive(Debug)]
pub struct Ring<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
    size: u32,
    /// This side's count; the kernel sees it when it is published.
    own: u32,
    /// The kernel's count, as it was last read.
    kernels: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// The ring in a mapping, as the kernel describes it. `size` is a power of two.
    pub fn new(mapping: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> Ring<T> {
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        let entries = offsets.desc as usize;
        assert!(size.is_power_of_two(), "a ring's size");
        assert!(entries + size as usize * size_of::<T>() <= mapping.bytes(), "a ring's mapping");
        assert!(producer.max(consumer) + 4 <= entries, "its counters are in front");
        let of = PhantomData;
        Ring { mapping, producer, consumer, entries, size, own: 0, kernels: 0, of }
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping, checked in `new`; the kernel aligns its counters; here and in the kernel they are
        // only reached atomically.
        unsafe { &*self.mapping.base().add(at).cast::<AtomicU32>() }
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.entries + (number & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: below `size` entries, which lie in the mapping, checked in `new`.
        unsafe { self.mapping.base().add(at).cast() }
    }

    /// As producer: writes an entry, for which there is room.
    pub fn push(&mut self, entry: T) {
        let taken = self.counter(self.consumer).load(Ordering::Acquire);
        debug_assert!(self.own.wrapping_sub(taken) < self.size, "there is a chunk for each entry");
        // SAFETY: the kernel does not read entries that are not published, and `entry` is in the mapping.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As producer: the kernel may take what was pushed.
    pub fn publish(&self) {
        self.counter(self.producer).store(self.own, Ordering::Release);
    }

    /// As producer: entries that the kernel has not taken.
    pub fn untaken(&mut self) -> u32 {
        self.kernels = self.counter(self.consumer).load(Ordering::Acquire);
        self.own.wrapping_sub(self.kernels)
    }

    /// As consumer: whether an entry has come. Changes nothing.
    pub fn has_entry(&self) -> bool {
        self.kernels != self.own || self.counter(self.producer).load(Ordering::Relaxed) != self.own
    }

    /// As consumer: the next entry.
    pub fn pop(&mut self) -> Option<T> {
        if self.kernels == self.own {
            self.kernels = self.counter(self.producer).load(Ordering::Acquire);
        }
        if self.kernels == self.own {
            return None;
        }
        // SAFETY: the kernel has published it and does not write it before this side has counted it; `entry` is in the
        // mapping, and every bit pattern is a value of the two types that rings have.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// As consumer: the kernel may write where what was popped has been.
    pub fn release(&self) {
        self.counter(self.consumer).store(self.own, Ordering::Release);
    }
}
