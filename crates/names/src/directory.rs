//! Listing directories (RFC 1813 sections 3.3.16 and 3.3.17), and how new files in them are striped.
//!
//! A cookie is a site and a position; positions only grow and belong to one entry for as long as it has its name. So
//! a listing that goes on from a cookie shows every entry that was there all the time exactly once, whatever happens
//! to the others. And it ends where the directory ended when it began, however many names are made meanwhile.
//!
//! A hashed directory is listed bucket by bucket, from the directory's own site on in the order of the sites, whichever
//! managers own them. A manager lists as far as it has the buckets and says where the listing goes on; each bucket ends
//! where it ended when the listing came to it.

use crate::keys::{self, BucketId};
use crate::lookup::Entry;
use crate::permissions::{READ, Who};
use crate::record::{Listed, Policy};
use crate::transaction::Transaction;
use node::rings::DirectoryEntry;
use wire::field::{Field, Output};
use wire::layout::WIDTH_MAX;
use wire::{Attr, Decoder, Errno, FileId, FileKind, Layout, ListingVersion, NodeId, Short};

/// Bits of a cookie below the site.
const POSITION_BITS: u32 = 48;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
/// Positions of `.` and `..`.
const SELF: u64 = 1;
const PARENT: u64 = 2;
/// Bytes of an entry in a reply beside its name: file, kind, cookie, length, and whether there is more.
const ENTRY_BYTES: usize = 8 + 1 + 8 + 4 + 1;
/// Bytes of an entry beside its layout: attributes, whether it has a layout, the truncate generation, and whether there
/// are writers and it is unsure.
const ATTRIBUTES_BYTES: usize = Attr::BYTES + 1 + 4 + 1 + 1;
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

/// The part of an entry that a listing has beside name, type and cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// Nothing.
    Nothing,
    /// The entries without layouts.
    Attributes,
    /// The entries.
    Entries,
}

impl Plus {
    /// Bytes of it in a reply, at most: of a file with the widest layout.
    fn bytes(self) -> usize {
        match self {
            Plus::Nothing => 0,
            Plus::Attributes => ATTRIBUTES_BYTES,
            Plus::Entries => ATTRIBUTES_BYTES + Layout::BYTES_MAX,
        }
    }
}

impl<'a> Field<'a> for Plus {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(Plus::Nothing),
            1 => Ok(Plus::Attributes),
            2 => Ok(Plus::Entries),
            _ => Err(Short),
        }
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
    /// Attributes of the directory, but of a hashed one of which others have a part.
    pub directory: Option<Attr>,
    /// Where it goes on at another manager, when there are no more entries here but the end is not.
    pub next: u64,
    /// What the asker can name it by when it asks for it again.
    pub version: Option<ListingVersion>,
    /// It is as of the version that the asker has: nothing else is said.
    pub is_known: bool,
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
    /// The entry as of a lookup, or all of it but the layout, when asked for and the file is at the same manager.
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
    plus: Plus,
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
        let bytes = ENTRY_BYTES + self.plus.bytes() + listed.name.len();
        if bytes > self.room {
            return Ok(false);
        }
        self.room -= bytes;
        let entry = match self.plus {
            Plus::Nothing => None,
            Plus::Attributes => {
                let entry = transaction.entry_here(listed.file)?;
                entry.map(|entry| Entry { layout: None, ..entry })
            }
            Plus::Entries => transaction.entry_here(listed.file)?,
        };
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
        plus: Plus,
    ) -> Result<Listing, Errno> {
        let Span { cookie, until } = span.into();
        if self.hashed.has(file) {
            return self.read_hashed(who, file, Span { cookie, until }, bytes, plus);
        }
        let inode = self.inode(file)?;
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        who.check(&inode.attr, READ)?;
        let (site, start) = (cookie >> POSITION_BITS, cookie & POSITION_MASK);
        if cookie != 0 && site != u64::from(file.site()) {
            return Err(Errno::EINVAL);
        }
        let until = if until == 0 { directory.next_position } else { until };
        let listing = Listing { until, directory: Some(inode.attr), ..Listing::default() };
        let mut collector = Collector { site: file.site(), room: bytes, plus, listing };
        let full = !self.list_dots(&mut collector, file, directory.parent, start)?
            || !self.list_names(&mut collector, file.into(), start.max(PARENT))?;
        collector.listing.end = !full;
        if full && collector.listing.entries.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(collector.listing)
    }

    /// The same of a hashed directory: buckets as far as they are here.
    fn read_hashed(
        &self,
        who: &Who<'_>,
        file: FileId,
        Span { cookie, until }: Span,
        bytes: usize,
        plus: Plus,
    ) -> Result<Listing, Errno> {
        let first = if cookie == 0 { file.site() } else { site_of_cookie(cookie) };
        let mut start = cookie & POSITION_MASK;
        let is_elsewhere = self.is_elsewhere(file);
        let directory = if is_elsewhere { None } else { Some(self.get_attr(file)?.attr) };
        let listing = Listing { until, directory, ..Listing::default() };
        let mut collector = Collector { site: first, room: bytes, plus, listing };
        loop {
            let place = BucketId { directory: file, site: collector.site };
            if !self.sites.owns(place.site) {
                collector.listing.next = u64::from(place.site) << POSITION_BITS | PARENT;
                return Ok(collector.listing);
            }
            let bucket = self.bucket(place)?;
            let directory = bucket.directory().ok_or(Errno::EIO)?;
            who.check(&bucket.attr, READ)?;
            // The end of another bucket than the one that is gone on with says nothing of that one.
            if place.site != first || until == 0 || site_of_cookie(until) != first {
                let end = u64::from(place.site) << POSITION_BITS | directory.next_position;
                collector.listing.until = end;
            }
            let has_dots = start < PARENT && place.site == file.site();
            let full = has_dots && !self.list_own_dots(&mut collector, file, start)?
                || !self.list_names(&mut collector, place, start.max(PARENT))?;
            if full && collector.listing.entries.is_empty() {
                return Err(Errno::EINVAL);
            }
            (collector.site, start) = (place.site.wrapping_add(1), PARENT);
            collector.listing.end = !full && collector.site == file.site();
            if full || collector.listing.end {
                return Ok(collector.listing);
            }
        }
    }

    fn list_own_dots(
        &self,
        collector: &mut Collector,
        file: FileId,
        after: u64,
    ) -> Result<bool, Errno> {
        let parent = self.inode(file)?.directory().ok_or(Errno::EIO)?.parent;
        self.list_dots(collector, file, parent, after)
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
        place: BucketId,
        mut after: u64,
    ) -> Result<bool, Errno> {
        let prefix = keys::positions(place);
        loop {
            let from = keys::position(place, after);
            let chunk = self.scan(&prefix, Some(&from), CHUNK)?;
            let last = chunk.len() < CHUNK;
            for (key, value) in chunk {
                after = keys::number_at(&key, keys::ABOUT_BYTES).ok_or(Errno::EIO)?;
                if after >= collector.listing.until & POSITION_MASK {
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
        let inode = self.inode(file)?;
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
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.change_everywhere(inode, |inode| {
            if let Some(directory) = inode.directory_mut() {
                directory.policy.clone_from(&policy);
            }
        })?;
        Ok(())
    }
}

/// The site that a listing goes on at.
pub(crate) fn site_of_cookie(cookie: u64) -> u8 {
    (cookie >> POSITION_BITS) as u8
}
