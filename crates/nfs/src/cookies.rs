//! Cookies of listings, and the number of entries that fit in a reply (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A cookie of ours is a site (8 bits) and a position in it (48 bits) that belongs to one entry for as long as it has
//! its name. Clients see another number:
//!
//! | directory | cookie of NFS |
//! | --- | --- |
//! | all of whose entries are at its own site | the position and 2 |
//! | whose entries are at many sites | bit 62, the site, the position |
//!
//! So the usual cookie fits in 31 bits until two thousand million names were made in one directory: programs with
//! 32-bit offsets go on working. None is 1 or 2, which NFSv4 has taken, and none reaches 2^63, where some clients'
//! offsets end.
//!
//! The verifier is that of the encoding, not of the directory: a position stays right whatever happens to others, and
//! one that changed with mtime would send a client that lists while it removes (Finder, `rm -r`) back to the start.

use crate::v3::{EntryPlus, Fattr, Handle, Path, Status};
use crate::xdr::{Xdr, padding};
use wire::FileId;

/// The verifier of all listings, as long as cookies are made as they are.
pub const VERIFIER: [u8; 8] = *b"trapeze1";
const POSITION_BITS: u32 = 48;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
/// NFSv4 keeps cookies 1 and 2 for itself.
const RESERVED: u64 = 2;
const SPREAD: u64 = 1 << 62;

/// The cookie that a client sees of an entry of `directory`.
pub fn to_client(directory: FileId, cookie: u64) -> u64 {
    let (site, position) = (cookie >> POSITION_BITS, cookie & POSITION_MASK);
    match (cookie, site == u64::from(directory.site())) {
        (0, _) => 0,
        (_, true) if position <= POSITION_MASK - RESERVED => position + RESERVED,
        _ => SPREAD | (site & 0xff) << POSITION_BITS | position,
    }
}

/// The cookie of ours that a client sent; `None` for one that was never given.
pub fn of_client(directory: FileId, cookie: u64) -> Option<u64> {
    let site = u64::from(directory.site());
    match cookie {
        0 => Some(0),
        _ if cookie & SPREAD != 0 => {
            let ours = cookie & !SPREAD;
            (ours >> (POSITION_BITS + 8) == 0).then_some(ours)
        }
        _ if cookie <= RESERVED || cookie - RESERVED > POSITION_MASK => None,
        _ => Some(site << POSITION_BITS | (cookie - RESERVED)),
    }
}

/// The site of a hashed directory whose entries a listing goes on with; of a cookie that was never given the
/// directory's own.
pub fn site(directory: FileId, cookie: u64) -> u8 {
    match of_client(directory, cookie) {
        Some(ours) if ours != 0 => (ours >> POSITION_BITS) as u8,
        _ => directory.site(),
    }
}

/// Whether a client may go on from a cookie with this verifier. Some clients send zeros always.
pub fn check(directory: FileId, cookie: u64, verifier: [u8; 8]) -> Result<u64, Status> {
    let known = cookie == 0 || verifier == VERIFIER || verifier == [0; 8];
    known.then(|| of_client(directory, cookie)).flatten().ok_or(Status::BadCookie)
}

/// Bytes of `post_op_attr`.
fn attr_bytes(attr: &Option<Fattr>) -> usize {
    if attr.is_some() { 4 + 84 } else { 4 }
}

/// Bytes of an opaque or string with its length.
fn opaque_bytes(bytes: usize) -> usize {
    4 + bytes + padding(bytes)
}

/// Bytes of fileid, name and cookie.
fn name_bytes(name: &[u8]) -> usize {
    8 + opaque_bytes(name.len()) + 8
}

/// Fewest bytes of entries to request of a directory.
pub const MIN_LISTING_BYTES: u32 = 512;

/// A reply to READDIR or READDIRPLUS that is being filled: entries, as long as they fit.
///
/// All of the reply counts: attributes of the directory, verifier, each entry with its padding and the word before it,
/// the word behind the last, and the end.
#[derive(Debug)]
pub struct Listing {
    out: Vec<u8>,
    entries: usize,
    /// Bytes of results that may still be used.
    room: usize,
    /// Bytes of names that may still be used.
    name_room: usize,
    plus: bool,
}

impl Listing {
    /// Of READDIR: `count` bytes of results.
    pub fn readdir(out: Vec<u8>, attributes: Option<Fattr>, count: u32) -> Result<Listing, Status> {
        Listing::begin(out, attributes, count, u32::MAX, false)
    }

    /// Of READDIRPLUS: `maxcount` bytes of results, of which names, numbers and cookies take `dircount`. A client that
    /// says less than one name takes gets one.
    pub fn readdirplus(
        out: Vec<u8>,
        attributes: Option<Fattr>,
        dircount: u32,
        maxcount: u32,
    ) -> Result<Listing, Status> {
        Listing::begin(out, attributes, maxcount, dircount, true)
    }

    fn begin(
        mut out: Vec<u8>,
        attributes: Option<Fattr>,
        count: u32,
        names: u32,
        plus: bool,
    ) -> Result<Listing, Status> {
        let count = count.min(crate::limits::LISTING_BYTES_MAX) as usize;
        let around = attr_bytes(&attributes) + VERIFIER.len() + 4 + 4;
        let room = count.checked_sub(around).ok_or(Status::TooSmall)?;
        Status::Ok.put(&mut out);
        attributes.put(&mut out);
        VERIFIER.put(&mut out);
        Ok(Listing { out, entries: 0, room, name_room: names as usize, plus })
    }

    /// Appends an entry; whether it still fitted. After one that did not, no more are to be pushed.
    pub fn push(&mut self, entry: &EntryPlus<'_>) -> bool {
        let name_bytes = name_bytes(entry.name.0);
        let handle_bytes = entry.handle.map_or(4, |handle| 4 + opaque_bytes(handle.0.len()));
        let plus_bytes = if self.plus { attr_bytes(&entry.attributes) + handle_bytes } else { 0 };
        let bytes = 4 + name_bytes + plus_bytes;
        if bytes > self.room || (name_bytes > self.name_room && self.entries > 0) {
            return false;
        }
        self.room -= bytes;
        self.name_room = self.name_room.saturating_sub(name_bytes);
        self.entries += 1;
        true.put(&mut self.out);
        match self.plus {
            true => entry.put(&mut self.out),
            false => {
                let EntryPlus { fileid, name, cookie, .. } = *entry;
                crate::v3::Entry { fileid, name, cookie }.put(&mut self.out);
            }
        }
        true
    }

    /// The results. `end`: all entries were pushed, and they were the last. TOOSMALL when there are entries and none
    /// fits, since a client would ask for the same for ever.
    pub fn finish(mut self, end: bool) -> Result<Vec<u8>, Status> {
        if self.entries == 0 && !end {
            return Err(Status::TooSmall);
        }
        false.put(&mut self.out);
        end.put(&mut self.out);
        Ok(self.out)
    }
}

/// An entry to push.
pub fn entry<'a>(
    directory: FileId,
    listed: &'a node::rings::DirectoryEntry,
    fsid: u64,
    handle: Option<Handle<'a>>,
) -> EntryPlus<'a> {
    EntryPlus {
        fileid: listed.file.0,
        name: Path(&listed.name),
        cookie: to_client(directory, listed.cookie),
        attributes: listed.attr.map(|attr| crate::convert::fattr(&attr, fsid)),
        handle,
    }
}
