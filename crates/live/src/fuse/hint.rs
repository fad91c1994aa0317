//! The ioctl(2) by which a program says which bytes of an open file it will read soon: both ends of it.
//!
//! It is the only one that a mount knows: posix_fadvise(2) and readahead(2) do not reach a FUSE file system.

use super::abi::{self, Input};
use node::rings::{FileOp, Handle};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use wire::{Errno, FileId};

/// `_IOWR(0xd5, 1, struct { uint64_t offset, bytes; })`: in, what will be read, with 0 bytes all that follow; out, how
/// many of the bytes are noted.
pub const PREFETCH: u32 = 0xc010_d501;

/// Bytes of what is passed.
const ARGUMENT_BYTES: u32 = 16;

/// The hint of an ioctl of a file and where its range begins, from what is behind the header; ENOTTY for all others.
pub(super) fn parse(file: FileId, input: &mut Input<'_>) -> Result<(FileOp, u64), Errno> {
    let other = |_| Errno(libc::ENOTTY as u16);
    let handle = Handle(input.u64().map_err(other)?);
    let (flags, command) = (input.u32().map_err(other)?, input.u32().map_err(other)?);
    if command != PREFETCH || flags & abi::IOCTL_DIR != 0 {
        return Err(other(Errno::EINVAL));
    }
    let _argument = input.u64()?;
    if [input.u32()?, input.u32()?] != [ARGUMENT_BYTES; 2] {
        return Err(Errno::EINVAL);
    }
    let (offset, bytes) = (input.u64()?, input.u64()?);
    Ok((FileOp::Prefetch { file, handle, offset, bytes }, offset))
}

/// Says that `range` of an open file in a mount will be read soon, after all that was named before. How many of its
/// bytes are noted; ENOTTY when the file is in no mount of a cluster.
pub fn prefetch(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    if range.is_empty() {
        return Ok(0);
    }
    let mut argument = [range.start, range.end - range.start];
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the kernel reads and writes the 16 bytes that
    // the command's number says, which `argument` has.
    let done = unsafe {
        libc::ioctl(file.as_fd().as_raw_fd(), PREFETCH as _, std::ptr::from_mut(&mut argument))
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(argument[1]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(flags: u32, command: u32, bytes: u32) -> Result<(FileOp, u64), Errno> {
        let mut body = 7u64.to_ne_bytes().to_vec();
        [flags, command, 0, 0, bytes, bytes].iter().for_each(|v| body.extend(v.to_ne_bytes()));
        [4096u64, 100].iter().for_each(|v| body.extend(v.to_ne_bytes()));
        parse(FileId(3), &mut Input::new(&body))
    }

    #[test]
    fn the_hint_is_told_from_other_commands_and_from_wrong_sizes() {
        let (op, at) = asked(0, PREFETCH, 16).unwrap();
        let FileOp::Prefetch { file: FileId(3), handle: Handle(7), offset: 4096, bytes: 100 } = op
        else {
            panic!("{op:?}")
        };
        assert_eq!(at, 4096);
        for (flags, command) in [(0, PREFETCH + 1), (abi::IOCTL_DIR, PREFETCH), (0, 0x5401)] {
            assert_eq!(asked(flags, command, 16).unwrap_err(), Errno(libc::ENOTTY as u16));
        }
        assert_eq!(asked(0, PREFETCH, 8).unwrap_err(), Errno::EINVAL);
        assert!(parse(FileId(3), &mut Input::new(&[])).is_err());
    }
}
