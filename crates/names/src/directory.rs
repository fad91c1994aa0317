//! Listing directories (RFC 1813 sections 3.3.16 and 3.3.17), and how new files in them are striped.
//!
//! A cookie is a site and a position; positions only grow and belong to one entry for as long as it has its name. So
//! a listing that goes on from a cookie shows every entry that was there all the time exactly once, whatever happens
//! to the others. And it ends where the directory ended when it began, however many names are made meanwhile.

use crate::keys;
use crate::lookup::Entry;
use crate::permissions::{READ, Who};
use crate::record::{Listed, Policy};
use crate::transaction::Transaction;
use node::rings::DirectoryEntry;
use wire::layout::WIDTH_MAX;
use wire::{Attr, Errno, FileId, FileKind, Layout, NodeId};

/// Bits of a cookie below the site.
const POSITION_BITS: u32 = 48;
/// Positions of `.` and `..`.
const SELF: u64 = 1;
const PARENT: u64 = 2;
/// Bytes of an entry in a reply beside its name: file, kind, cookie, length, and whether there is more.
const ENTRY_BYTES: usize = 8 + 1 + 8 + 4 + 1;
/// Bytes of what is there with attributes, at most: of a file with the widest layout. Beside these two an entry says
/// whether it has a layout, the truncate generation, and whether there are writers and it is unsure.
const PLUS_BYTES: usize = Attr::BYTES + Layout::BYTES_MAX + 1 + 4 + 1 + 1;
/// Entries read from the store at once.
const CHUNK: usize = 128;

/// The requested part of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Cookie of the last entry that was listed; 0 is the start.
    pub cookie: u64,
    /// The end that the first part of the listing came with; 0: what the directory has now.
    pub until: u64,
}

impl From<u64> for Span {
    fn from(cookie: u64) -> Span {
        Span { cookie, until: 0 }
    }
}

/// A part of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries; `.` and `..` are the first two of a directory.
    pub entries: Vec<ListingEntry>,
    /// There are no more.
    pub end: bool,
    /// End of the listing: positions from here on are of names that were made after it began.
    pub until: u64,
    /// Attributes of the directory.
    pub directory: Attr,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// The file.
    pub file: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Position for the next listing.
    pub cookie: u64,
    /// The name.
    pub name: Box<[u8]>,
    /// The entry as of a lookup, when asked for and the file is at the same manager.
    pub entry: Option<Entry>,
}

impl From<ListingEntry> for DirectoryEntry {
    fn from(listed: ListingEntry) -> DirectoryEntry {
        let ListingEntry { file, kind, cookie, name, entry } = listed;
        DirectoryEntry { file, name, kind, cookie, attr: entry.map(|entry| entry.attr) }
    }
}

/// Collects entries as long as there is room.
struct Collector {
    site: u8,
    room: usize,
    plus: bool,
    listing: Listing,
}

impl Collector {
    /// Whether the entry still fitted.
    fn add(
        &mut self,
        transaction: &Transaction<'_>,
        listed: Listed,
        position: u64,
    ) -> Result<bool, Errno> {
        let plus = if self.plus { PLUS_BYTES } else { 0 };
        let bytes = ENTRY_BYTES + plus + listed.name.len();
        if bytes > self.room {
            return Ok(false);
        }
        self.room -= bytes;
        let entry = if self.plus { transaction.entry_here(listed.file)? } else { None };
        let cookie = u64::from(self.site) << POSITION_BITS | position;
        let Listed { file, kind, name } = listed;
        self.listing.entries.push(ListingEntry { file, kind, cookie, name, entry });
        Ok(true)
    }
}

impl Transaction<'_> {
    /// Entries of the span, as many as fit in `bytes` bytes of reply; EINVAL when not even the first does, or when the
    /// cookie is of another site.
    pub fn read_directory(
        &self,
        who: &Who<'_>,
        file: FileId,
        span: impl Into<Span>,
        bytes: usize,
        plus: bool,
    ) -> Result<Listing, Errno> {
        let Span { cookie, until } = span.into();
        let inode = self.inode(file)?;
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        who.check(&inode.attr, READ)?;
        let (site, start) = (cookie >> POSITION_BITS, cookie & ((1 << POSITION_BITS) - 1));
        if cookie != 0 && site != u64::from(file.site()) {
            return Err(Errno::EINVAL);
        }
        let until = if until == 0 { directory.next_position } else { until };
        let listing = Listing { until, directory: inode.attr, ..Listing::default() };
        let mut collector = Collector { site: file.site(), room: bytes, plus, listing };
        let full = !self.list_dots(&mut collector, file, directory.parent, start)?
            || !self.list_names(&mut collector, file, start.max(PARENT))?;
        collector.listing.end = !full;
        if full && collector.listing.entries.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(collector.listing)
    }

    fn list_dots(
        &self,
        collector: &mut Collector,
        file: FileId,
        parent: FileId,
        after: u64,
    ) -> Result<bool, Errno> {
        let dots: [(u64, FileId, &[u8]); 2] = [(SELF, file, b"."), (PARENT, parent, b"..")];
        for (position, file, name) in dots.into_iter().filter(|dot| dot.0 > after) {
            let listed = Listed { file, kind: FileKind::Directory, name: name.into() };
            if !collector.add(self, listed, position)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn list_names(
        &self,
        collector: &mut Collector,
        file: FileId,
        mut after: u64,
    ) -> Result<bool, Errno> {
        let prefix = keys::about(file, keys::Table::Position);
        loop {
            let from = keys::position(file, after);
            let chunk = self.scan(&prefix, Some(&from), CHUNK)?;
            let last = chunk.len() < CHUNK;
            for (key, value) in chunk {
                after = keys::number_at(&key, keys::ABOUT_BYTES).ok_or(Errno::EIO)?;
                if after >= collector.listing.until {
                    return Ok(true);
                }
                if !collector.add(self, Self::decoded(&value)?, after)? {
                    return Ok(false);
                }
            }
            if last {
                return Ok(true);
            }
        }
    }

    /// How new files in the directory are striped.
    pub fn directory_layout(&self, file: FileId) -> Result<Policy, Errno> {
        Ok(self.inode(file)?.directory().ok_or(Errno::ENOTDIR)?.policy.clone())
    }

    /// From now on new files in the directory are striped so, and directories made in it inherit it. Its owner may.
    pub fn set_directory_layout(
        &mut self,
        who: &Who<'_>,
        file: FileId,
        policy: Policy,
    ) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        who.check_owner(&inode.attr)?;
        let known = |id: &NodeId| self.servers.iter().any(|server| server.id == *id);
        let servers = policy.servers.len();
        let any: Vec<NodeId> = self.servers.iter().map(|server| server.id).take(1).collect();
        let legal = Layout::new(1, policy.unit_bytes, &any);
        if legal.is_none() || servers > WIDTH_MAX || usize::from(policy.width) > WIDTH_MAX {
            return Err(Errno::EINVAL);
        }
        if !policy.servers.iter().all(known) {
            return Err(Errno::EINVAL);
        }
        inode.directory_mut().ok_or(Errno::ENOTDIR)?.policy = policy;
        inode.touch(self.now);
        self.put_inode(&inode);
        Ok(())
    }
}
