//! Messages about many pages at once: who holds them, which spaces are gone.

use crate::ages::Age;
use crate::directory::{Holder, Lookup, Refusal, Role};
use crate::page::{PageId, SpaceId, Version};
use wire::field::{Field, Output, fields};
use wire::limits::{BLOCK_BYTES, BODY_BYTES};
use wire::{Decoder, Encoder, NodeId, Short};

/// Bytes of a [`Record`].
pub const RECORD_BYTES: usize = 36;
/// Most records of one message: 16 pages of data are 1,820 of them.
pub const RECORDS_MAX: usize = 16 * BLOCK_BYTES / RECORD_BYTES;
/// Bytes of a [`Holding`]: words of a trailer.
pub const HOLDING_BYTES: usize = 16;
/// Spaces that a body has room for.
const SPACES_MAX: usize = (BODY_BYTES - 2) / 8;

/// One node's copy of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The page.
    pub id: PageId,
    /// Of which version, or of an older one too when it is to be dropped.
    pub version: Version,
    /// Its holder.
    pub holder: Holder,
    /// Of a mirror, and of a clean copy that was a mirror until its version was on stable storage, the number
    /// of them that there are to be.
    pub copies: u8,
    /// No copy is left, and it was nowhere else.
    pub lost: bool,
    /// It is not about a copy: the node has the page's lease.
    pub writer: bool,
}

impl Record {
    /// A node holds, or held, a version of a page of which no mirrors are counted.
    pub const fn new(id: PageId, version: Version, holder: Holder) -> Record {
        Record { id, version, holder, copies: 0, lost: false, writer: false }
    }
}

impl<'a> Field<'a> for Record {
    fn put(&self, out: &mut impl Output) {
        let mirror = u8::from(self.holder.role == Role::Mirror);
        let flags = mirror | u8::from(self.lost) << 1 | u8::from(self.writer) << 2;
        (self.id, self.version).put(out);
        (self.holder.node, self.holder.incarnation).put(out);
        (self.copies, flags).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Record, Short> {
        let (id, version) = Field::take(input)?;
        let (node, incarnation) = Field::take(input)?;
        let (copies, flags) = <(u8, u8)>::take(input)?;
        if flags > 7 {
            return Err(Short);
        }
        let role = if flags & 1 == 1 { Role::Mirror } else { Role::Clean };
        let holder = Holder { node, incarnation, role };
        let (lost, writer) = (flags & 2 == 2, flags & 4 == 4);
        Ok(Record { id, version, holder, copies, lost, writer })
    }
}

/// The body of a message about records. A single record is in the body, several are the message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of the sender's view.
    pub view: u64,
    /// Records that the message has.
    pub count: u16,
    /// The sender has told all that concerns the receiver since that view began.
    pub last: bool,
    /// The only one.
    pub single: Option<Record>,
}

impl Batch {
    /// The body for these records, and whether they go in the data.
    pub fn of(view: u64, records: &[Record], last: bool) -> Batch {
        let single = if let [record] = records { Some(*record) } else { None };
        Batch { view, count: records.len() as u16, last, single }
    }

    /// Bytes that the message's data takes.
    pub fn data_bytes(&self) -> usize {
        if self.count < 2 { 0 } else { usize::from(self.count) * RECORD_BYTES }
    }

    /// Writes the data of a message with these records.
    pub fn encode_data(records: &[Record], data: &mut [u8]) {
        let mut out = Encoder::new(data);
        records.iter().for_each(|record| record.put(&mut out));
    }

    /// The records, from the body or from the data.
    pub fn records<'a>(
        &self,
        data: &'a [u8],
    ) -> Result<impl Iterator<Item = Record> + use<'a>, Short> {
        let many = data.get(..self.data_bytes()).ok_or(Short)?;
        let (single, mut input) = (self.single, Decoder::new(many));
        for _ in 0..many.len() / RECORD_BYTES {
            Record::take(&mut input)?;
        }
        let mut input = Decoder::new(many);
        Ok(single.into_iter().chain(std::iter::from_fn(move || Record::take(&mut input).ok())))
    }
}

impl<'a> Field<'a> for Batch {
    fn put(&self, out: &mut impl Output) {
        (self.view, self.count, self.last).put(out);
        if let Some(record) = &self.single {
            record.put(out);
        }
    }

    fn take(input: &mut Decoder<'a>) -> Result<Batch, Short> {
        let (view, count, last) = Field::take(input)?;
        let single = (count == 1).then(|| Record::take(input)).transpose()?;
        if usize::from(count) > RECORDS_MAX {
            return Err(Short);
        }
        Ok(Batch { view, count, last, single })
    }
}

/// The outcome of one record of a [`Batch`]: of a single one in the answer's body, of several one byte each, in order,
/// and then the versions of those that are stale, in the answer's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Registered, or what else was asked.
    Done,
    /// A newer version is known: this one.
    Stale(Version),
    /// A later incarnation of the holder is known, or it is not in the view.
    Outlived,
    /// The page has holders enough.
    Enough,
    /// No entry can be forgotten.
    Full,
    /// The space was freed.
    Freed,
    /// The node keeps no directory entry for the page in its view, or does not believe the sender.
    NotHome,
    /// Not now: say it again.
    Later,
}

impl<'a> Field<'a> for Verdict {
    fn put(&self, out: &mut impl Output) {
        let (tag, value) = match *self {
            Verdict::Done => (0u8, 0u64),
            Verdict::Stale(version) => (1, version.0),
            Verdict::Outlived => (2, 0),
            Verdict::Enough => (3, 0),
            Verdict::Full => (4, 0),
            Verdict::Freed => (5, 0),
            Verdict::NotHome => (6, 0),
            Verdict::Later => (7, 0),
        };
        (tag, value).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Verdict, Short> {
        let (tag, value) = (input.u8()?, input.u64()?);
        Ok(match tag {
            0 => Verdict::Done,
            1 => Verdict::Stale(Version(value)),
            2 => Verdict::Outlived,
            3 => Verdict::Enough,
            4 => Verdict::Full,
            5 => Verdict::Freed,
            6 => Verdict::NotHome,
            7 => Verdict::Later,
            _ => return Err(Short),
        })
    }
}

impl Verdict {
    /// Bytes of one.
    pub const BYTES: usize = 9;
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Verdict {
        match refusal {
            Refusal::Stale(version) => Verdict::Stale(version),
            Refusal::Outlived => Verdict::Outlived,
            Refusal::Enough => Verdict::Enough,
            Refusal::Full => Verdict::Full,
        }
    }
}

/// Spaces that were freed: up to seven in the body, more in the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spaces {
    /// Number of spaces.
    pub count: u16,
    inline: [u64; SPACES_MAX],
}

impl Spaces {
    /// The body for these spaces; they go in the data as well when there are more than seven.
    pub fn of(spaces: &[SpaceId]) -> Spaces {
        let mut inline = [0; SPACES_MAX];
        inline.iter_mut().zip(spaces).for_each(|(to, space)| *to = space.0);
        Spaces { count: spaces.len() as u16, inline }
    }

    /// Bytes that the message's data takes.
    pub fn data_bytes(&self) -> usize {
        if usize::from(self.count) <= SPACES_MAX { 0 } else { usize::from(self.count) * 8 }
    }

    /// Writes the data of a message with these spaces.
    pub fn encode_data(spaces: &[SpaceId], data: &mut [u8]) {
        let mut out = Encoder::new(data);
        spaces.iter().for_each(|space| space.put(&mut out));
    }

    /// The spaces, from the body or from the data.
    pub fn spaces<'a>(
        &self,
        data: &'a [u8],
    ) -> Result<impl Iterator<Item = SpaceId> + use<'a>, Short> {
        let bytes = self.data_bytes();
        let many = data.get(..bytes).ok_or(Short)?;
        let few = if bytes == 0 { usize::from(self.count) } else { 0 };
        let inline = self.inline.into_iter().take(few).map(SpaceId);
        let word = |word: &[u8]| SpaceId(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        Ok(inline.chain(many.chunks_exact(8).map(word)))
    }
}

fields!(Spaces { count, inline });

/// A directory's answer about one page: two words of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nothing is known, or nothing that others should act upon.
    Unknown,
    /// It has no holder.
    Nowhere,
    /// A node has this version.
    Held(Version, NodeId),
    /// This version existed in network memory only and is gone.
    Lost(Version),
}

impl Holding {
    /// As a look-up found it; of several holders in memory the one `pick` says.
    pub fn of(found: Lookup<'_>, pick: usize) -> Holding {
        match found {
            Lookup::Held(entry) => {
                let holder = entry.holders.get(pick % entry.holders.len().max(1));
                holder.map_or(Holding::Unknown, |it| Holding::Held(entry.version, it.node))
            }
            Lookup::Lost(version) => Holding::Lost(version),
            Lookup::Unknown => Holding::Unknown,
        }
    }
}

impl<'a> Field<'a> for Holding {
    fn put(&self, out: &mut impl Output) {
        let (tag, version, node) = match *self {
            Holding::Unknown => (0u8, Version(0), NodeId(0)),
            Holding::Nowhere => (3, Version(0), NodeId(0)),
            Holding::Held(version, node) => (1, version, node),
            Holding::Lost(version) => (2, version, NodeId(0)),
        };
        (version, node, tag).put(out);
        out.append(&[0; 5]);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Holding, Short> {
        let (version, node, tag) = Field::take(input)?;
        input.raw(5)?;
        Ok(match tag {
            0u8 => Holding::Unknown,
            1 => Holding::Held(version, node),
            2 => Holding::Lost(version),
            3 => Holding::Nowhere,
            _ => return Err(Short),
        })
    }
}

/// Asks for some of an extent's pages to be read from stable storage and kept for the sender. The answer is a
/// [`MultiReply`](super::MultiReply), with the stamps of what is kept in the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// The first page of the extent.
    pub first: PageId,
    /// Bit n is the n-th page from the first on.
    pub wanted: u16,
    /// The oldest content of each that will do.
    pub at_least: Version,
    /// Bytes of a page of that space.
    pub bytes: u32,
    /// When they are expected to be used, from now.
    pub time_to_use: Age,
    /// The sender's incarnation.
    pub incarnation: u64,
}

fields!(Early { first, wanted, at_least, bytes, time_to_use, incarnation });
