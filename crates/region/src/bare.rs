//! Cost of a page that appears without a region: by a bare UFFDIO_COPY, and by a fault whose handler does that copy and
//! nothing else. The local part of what a region's fault is measured against.

use super::Mapped;
use super::fault::{handled_by, set, zeroed};
use super::uffd::{Features, Origin, Uffd};
use super::{Madvice, RegionError};
use live::clock;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Pages that appear by UFFDIO_COPY and by nothing else.
pub struct BareCopies {
    uffd: Uffd,
    mapping: Mapped,
    source: Vec<u8>,
}

/// The program whose pages the handler copies.
static FAULTING: AtomicPtr<BareCopies> = AtomicPtr::new(null_mut());

impl BareCopies {
    /// `pages` pages of `page_bytes` bytes, both powers of two, the second from 4096.
    pub fn new(pages: usize, page_bytes: usize) -> Result<BareCopies, RegionError> {
        let mapping = Mapped::new(pages * page_bytes, 0)?;
        let uffd = Uffd::open(Origin::User, Features::SIGBUS)?;
        uffd.register(&mapping.whole())?;
        Ok(BareCopies { uffd, mapping, source: vec![1; page_bytes] })
    }

    /// Has every page appear once by a copy, in a random order; `record` gets the nanoseconds of each.
    pub fn copies(&mut self, record: impl FnMut(u64)) -> Result<(), RegionError> {
        self.round(record, |copies, at| copies.copy(at))
    }

    /// The same by faults of this thread. Meanwhile no other thread may fault in a region: the handler of SIGBUS is
    /// this one's.
    pub fn faults(&mut self, record: impl FnMut(u64)) -> Result<(), RegionError> {
        FAULTING.store(std::ptr::from_mut(self), Ordering::Release);
        let _instead = Instead::of_regions()?;
        self.round(record, |_, at| {
            // SAFETY: the byte is in the mapping, and its page appears before the read ends.
            match unsafe { AtomicU8::from_ptr(at as *mut u8) }.load(Ordering::Relaxed) {
                1 => Ok(()),
                other => Err(io::Error::other(format!("a copied page reads {other}"))),
            }
        })
    }

    fn round(
        &self,
        mut record: impl FnMut(u64),
        appear: impl Fn(&BareCopies, usize) -> io::Result<()>,
    ) -> Result<(), RegionError> {
        let (whole, bytes) = (self.mapping.whole(), self.source.len());
        let pages = whole.len() / bytes;
        for n in 0..pages {
            // An odd factor visits every page of a power of two.
            let target = whole.start + n.wrapping_mul(0x9e5) % pages * bytes;
            let start = clock::now();
            let appeared = appear(self, target);
            record(clock::now().since(start).as_nanos() as u64);
            appeared?;
        }
        // SAFETY: there is no reference to the mapping's bytes.
        unsafe {
            rustix::mm::madvise(whole.start as *mut _, whole.len(), Madvice::LinuxDontNeed)
                .map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn copy(&self, target: usize) -> io::Result<()> {
        // SAFETY: the target is a page of the mapping that is not there, and nothing else uses it.
        let copied =
            unsafe { self.uffd.copy(target, self.source.as_ptr(), self.source.len(), false) };
        copied.map_err(|stopped| io::Error::other(stopped.why.to_string()))
    }
}

/// As long as it lives, SIGBUS is handled by [`on_fault`].
struct Instead(libc::sigaction);

impl Instead {
    fn of_regions() -> io::Result<Instead> {
        let mut before = zeroed();
        set(Some(&handled_by(on_fault)), &mut before)?;
        Ok(Instead(before))
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        let _ = set(Some(&self.0), &mut zeroed());
        FAULTING.store(null_mut(), Ordering::Release);
    }
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it, and it lives until the handler returns.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: the thread that has set it waits in `faults` until the handler is another one.
    let copied = unsafe { FAULTING.load(Ordering::Acquire).as_ref() }.is_some_and(|copies| {
        let page = address & !(copies.source.len() - 1);
        copies.mapping.whole().contains(&page) && copies.copy(page).is_ok()
    });
    if !copied {
        let _ = set(Some(&zeroed()), &mut zeroed()); // SIG_DFL: comes again and ends the process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_copied_once_a_round() {
        let mut copies = match BareCopies::new(64, 4096) {
            Ok(copies) => copies,
            Err(error) => return rig::skip(error),
        };
        for _ in 0..3 {
            let mut count = [0; 2];
            copies.copies(|_| count[0] += 1).unwrap();
            copies.faults(|_| count[1] += 1).unwrap();
            assert_eq!(count, [64; 2]);
        }
    }
}
