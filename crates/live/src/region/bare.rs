//! A bare UFFDIO_COPY: what a page costs that appears, without the fault, without a backing and without a checksum. The
//! local part of what a region's fault is measured against.

use super::Mapped;
use super::uffd::{Features, Origin, Uffd};
use super::{Madvice, RegionError};
use crate::clock;

/// Pages that appear by UFFDIO_COPY and by nothing else.
pub struct BareCopies {
    uffd: Uffd,
    mapping: Mapped,
    source: Vec<u8>,
}

impl BareCopies {
    /// `pages` pages of `page_bytes` bytes, a power of two from 4096.
    pub fn new(pages: usize, page_bytes: usize) -> Result<BareCopies, RegionError> {
        let mapping = Mapped::new(pages * page_bytes, 0)?;
        let uffd = Uffd::open(Origin::User, Features::default())?;
        uffd.register(&mapping.whole())?;
        Ok(BareCopies { uffd, mapping, source: vec![1; page_bytes] })
    }

    /// Has every page appear once, in an order that nobody guesses; `record` hears the nanoseconds of each.
    pub fn round(&mut self, mut record: impl FnMut(u64)) -> Result<(), RegionError> {
        let (whole, bytes) = (self.mapping.whole(), self.source.len());
        let pages = whole.len() / bytes;
        for n in 0..pages {
            // An odd factor visits every page of a power of two.
            let target = whole.start + n.wrapping_mul(0x9e5) % pages * bytes;
            let start = clock::now();
            // SAFETY: the target is a page of the mapping that is not there, and nobody else has it.
            let copied = unsafe { self.uffd.copy(target, self.source.as_ptr(), bytes, false) };
            record(clock::now().since(start).as_nanos() as u64);
            copied.map_err(|stopped| std::io::Error::other(stopped.why.to_string()))?;
        }
        // SAFETY: nobody has a reference to the mapping's bytes.
        unsafe {
            rustix::mm::madvise(whole.start as *mut _, whole.len(), Madvice::LinuxDontNeed)
                .map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_copied_once_a_round() {
        let mut copies = match BareCopies::new(64, 4096) {
            Ok(copies) => copies,
            Err(error) => return println!("skipped: {error}"),
        };
        for _ in 0..3 {
            let mut count = 0;
            copies.round(|_| count += 1).unwrap();
            assert_eq!(count, 64);
        }
    }
}
