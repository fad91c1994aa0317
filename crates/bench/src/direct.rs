//! Reads of a disk past all memory.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(crate) const BLOCK_BYTES: usize = 8192;

pub(crate) fn open_direct(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// A block's memory as O_DIRECT wants it (open(2)).
pub(crate) struct Aligned(Vec<u8>);

impl Aligned {
    pub(crate) fn new() -> Aligned {
        Aligned(vec![0; BLOCK_BYTES + 4096])
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(4096);
        &mut self.0[start..start + BLOCK_BYTES]
    }
}
