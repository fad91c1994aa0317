//! Directory listings in the kernel's layout: `.` and `..` first, then what the front names, as much as fits.
//!
//! A front never lists `.` and `..` and may use every cookie below [`DOT`]. Entries that do not fit are dropped; the
//! kernel asks again from the cookie of the last one it got.

use super::abi::{self, DIRENT_BYTES, ENTRY_OUT_BYTES, Output};
use super::reply::{Belief, put_entry};
use node::rings::{DirectoryEntry, FileOp, Handle};
use wire::{FileId, FileKind};

/// Cookie behind `.`; with the next, the largest that a file position can hold.
pub const DOT: u64 = i64::MAX as u64 - 1;
/// Cookie behind `..`.
pub const DOT_DOT: u64 = i64::MAX as u64;

/// One READDIR or READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    directory: FileId,
    bytes: u32,
    with_attributes: bool,
    /// How many of `.` and `..` are still to come, 0 to 2.
    dots: u8,
}

impl Listing {
    /// Entries of `directory` after `cookie`, at most `bytes` bytes of them.
    pub fn new(directory: FileId, cookie: u64, bytes: u32, with_attributes: bool) -> Listing {
        let dots = match cookie {
            0 => 2,
            DOT => 1,
            _ => 0,
        };
        Listing { directory, bytes, with_attributes, dots }
    }

    /// What to ask of the front: what is left of the room, from the cookie that the front knows.
    pub fn operation(&self, handle: Handle, cookie: u64) -> FileOp {
        let dots = usize::from(self.dots) * record_bytes(2, self.with_attributes);
        FileOp::ReadDirectory {
            file: self.directory,
            handle,
            cookie: if cookie >= DOT { 0 } else { cookie },
            bytes: self.bytes.saturating_sub(dots as u32),
            with_attributes: self.with_attributes,
        }
    }

    /// Appends the records that fit.
    pub fn put(&self, out: &mut Output<'_>, belief: &Belief, entries: &[DirectoryEntry]) {
        let end = out.0.len() + self.bytes as usize;
        let all = self.dots().into_iter().flatten();
        for entry in all.chain(entries.iter().cloned()) {
            if out.0.len() + record_bytes(entry.name.len(), self.with_attributes) > end {
                break;
            }
            self.put_record(out, belief, &entry);
        }
    }

    fn dots(&self) -> [Option<DirectoryEntry>; 2] {
        let dot = |name: &[u8], file, cookie| DirectoryEntry {
            file,
            name: name.into(),
            kind: FileKind::Directory,
            cookie,
            attr: None,
        };
        let above = match self.directory {
            FileId::ROOT => FileId::ROOT,
            _ => FileId(abi::UNKNOWN_INO),
        };
        [
            (self.dots > 1).then(|| dot(b".", self.directory, DOT)),
            (self.dots > 0).then(|| dot(b"..", above, DOT_DOT)),
        ]
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

    fn entry(name: &str, cookie: u64) -> DirectoryEntry {
        let name = name.as_bytes().into();
        DirectoryEntry { file: FileId(cookie), name, kind: FileKind::Regular, cookie, attr: None }
    }

    fn packed(listing: Listing, entries: &[DirectoryEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        listing.put(&mut Output(&mut bytes), &Belief::default(), entries);
        bytes
    }

    #[test]
    fn dots_come_first_and_are_resumed_in_the_middle() {
        let all = [entry("a", 7), entry("b", 8)];
        let start = packed(Listing::new(FileId(5), 0, 4096, false), &all);
        assert_eq!(start.len(), 4 * 32);
        assert_eq!(start[24], b'.');
        assert_eq!(&start[32 + 24..32 + 26], b"..");
        let second = packed(Listing::new(FileId(5), DOT, 4096, false), &all);
        assert_eq!(second, start[32..]);
        let third = packed(Listing::new(FileId(5), DOT_DOT, 4096, false), &all);
        assert_eq!(third, start[64..]);
        assert_eq!(packed(Listing::new(FileId(5), 7, 4096, false), &all[1..]), start[96..]);
    }

    #[test]
    fn what_does_not_fit_whole_is_left_out() {
        let listing = Listing::new(FileId(5), 3, 2 * 32 + 31, false);
        let all: Vec<_> = (4..20).map(|cookie| entry("name", cookie)).collect();
        assert_eq!(packed(listing, &all).len(), 64);
        let plus = Listing::new(FileId(5), 3, 160, true);
        assert_eq!(packed(plus, &all).len(), record_bytes(4, true));
    }

    #[test]
    fn the_front_is_asked_for_what_is_left_of_the_room() {
        let asked = |cookie, plus| {
            let listing = Listing::new(FileId(5), cookie, 4096, plus);
            match listing.operation(Handle(1), cookie) {
                FileOp::ReadDirectory { cookie, bytes, .. } => (cookie, bytes),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(asked(0, false), (0, 4096 - 64));
        assert_eq!(asked(0, true), (0, 4096 - 320));
        assert_eq!(asked(DOT, false), (0, 4096 - 32));
        assert_eq!(asked(DOT_DOT, false), (0, 4096));
        assert_eq!(asked(99, false), (99, 4096));
    }
}
