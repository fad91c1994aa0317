//! Directory listings in the kernel's layout: what the front lists, as much as fits.
//!
//! The front lists `.` and `..` as any other name and chooses the cookies. Entries that do not fit are dropped; the
//! kernel asks again from the cookie of the last one it got.

use super::abi::{DIRENT_BYTES, ENTRY_OUT_BYTES, Output};
use super::reply::{Belief, put_entry};
use node::rings::DirectoryEntry;

/// One READDIR or READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Room for records.
    pub bytes: u32,
    /// Whether each record has the file's attributes.
    pub with_attributes: bool,
}

impl Listing {
    /// Appends the records that fit.
    pub fn put(&self, out: &mut Output<'_>, belief: &Belief, entries: &[DirectoryEntry]) {
        let end = out.0.len() + self.bytes as usize;
        for entry in entries {
            if out.0.len() + record_bytes(entry.name.len(), self.with_attributes) > end {
                break;
            }
            self.put_record(out, belief, entry);
        }
    }

    fn put_record(&self, out: &mut Output<'_>, belief: &Belief, entry: &DirectoryEntry) {
        match (self.with_attributes, &entry.attr) {
            (true, Some(attr)) => put_entry(out, belief, attr),
            // Node 0: the kernel takes the name and asks for the rest when it needs it.
            (true, None) => {
                out.zeros(ENTRY_OUT_BYTES);
            }
            (false, _) => {}
        }
        out.u64(entry.file.0).u64(entry.cookie).u32(entry.name.len() as u32);
        out.u32(entry.kind.mode_bits() >> 12).bytes(&entry.name);
        out.zeros(entry.name.len().next_multiple_of(8) - entry.name.len());
    }
}

/// Bytes of an entry with a name of `name_bytes`: what a front that counts exactly must count.
pub fn record_bytes(name_bytes: usize, with_attributes: bool) -> usize {
    let before = if with_attributes { ENTRY_OUT_BYTES } else { 0 };
    before + DIRENT_BYTES + name_bytes.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::abi::Input;
    use wire::{Attr, FileId, FileKind};

    fn entry(name: &str, cookie: u64, attr: Option<Attr>) -> DirectoryEntry {
        let name = name.as_bytes().into();
        DirectoryEntry { file: FileId(5), name, kind: FileKind::Directory, cookie, attr }
    }

    fn packed(bytes: u32, with_attributes: bool, entries: &[DirectoryEntry]) -> Vec<u8> {
        let (mut packed, listing) = (Vec::new(), Listing { bytes, with_attributes });
        listing.put(&mut Output(&mut packed), &Belief::default(), entries);
        packed
    }

    #[test]
    fn records_are_where_the_kernel_reads_them() {
        let bytes = packed(4096, false, &[entry("..", 7, None), entry("123456789", 8, None)]);
        assert_eq!(bytes.len(), 32 + 40);
        let mut input = Input::new(&bytes[32..]);
        assert_eq!((input.u64().unwrap(), input.u64().unwrap()), (5, 8));
        assert_eq!((input.u32().unwrap(), input.u32().unwrap()), (9, 4));
        assert_eq!(input.bytes(16).unwrap(), b"123456789\0\0\0\0\0\0\0");
    }

    #[test]
    fn attributes_come_before_the_name_and_may_be_missing() {
        let attr = Attr { file: FileId(5), ..Attr::default() };
        let bytes = packed(4096, true, &[entry("a", 7, Some(attr)), entry("b", 8, None)]);
        assert_eq!(bytes.len(), 2 * 160);
        assert_eq!(bytes[0], 5);
        assert_eq!(bytes[160..160 + 128], [0; 128]);
        assert_eq!(bytes[160 + 128], 5);
    }

    #[test]
    fn what_does_not_fit_whole_is_left_out() {
        let all: Vec<_> = (4..20).map(|cookie| entry("name", cookie, None)).collect();
        assert_eq!(packed(2 * 32 + 31, false, &all).len(), 64);
        assert_eq!(packed(160, true, &all).len(), record_bytes(4, true));
        assert_eq!(packed(31, false, &all).len(), 0);
    }
}
