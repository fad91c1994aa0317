//! The records of the store: what is kept of a file, a directory entry, the volume.
//!
//! Records are decoded by the release that finds their volume's format version its own; a record that does not decode
//! is damage and answered with EIO.
//!
//! The placement of a new file's columns is [`Policy::layout`].

use crate::foreign::Part;
use crate::keys::BucketId;
use crate::servers::{IoServer, homes_of};
use wire::field::{Field, Output, fields};
use wire::layout::{UNIT_BYTES_DEFAULT, WIDTH_MAX};
use wire::{
    Attr, CallId, Decoder, FileId, FileKind, Home, Layout, NodeId, Short, SiteOwner, VolumeId, Wall,
};

/// Version of the key space and of all records in it.
pub const FORMAT: u32 = 8;

/// The same of a store of which other managers have sites: a program that knows nothing of them must not serve it.
pub const FORMAT_SHARED: u32 = 9;

/// Added to either where there is a hashed directory.
const FORMAT_HASHED: u32 = 2;

/// Added to any of them where there is an import: a program that knows nothing of them would take what is cached for
/// files of its own.
const FORMAT_IMPORTS: u32 = 4;

/// Position of a directory's first entry, after those of "." and "..".
pub const FIRST_POSITION: u64 = 3;

/// The volume: made once, with the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Of the records.
    pub format: u32,
    /// Which volume.
    pub volume: VolumeId,
    /// Of 1000 new directories so many go to the site of their hash, the others to their parent's (mkdir switching).
    pub switch_per_mille: u16,
    /// The serial number behind which sites begin that are made in this incarnation of the manager.
    pub base: u64,
    /// Which of the stores that the volume's names were in this is: a restored one begins another.
    pub lineage: u16,
    /// Which store it is; drawn by its first incarnation, and anew by the first one after a restore. 0: not yet.
    pub store: u32,
    /// It was restored, and not every server has told yet what it knows of other lineages: this one goes above them.
    pub outbids: bool,
    /// It was restored, and no person has said yet that what it does not know may go.
    pub frozen: bool,
}
fields!(Volume { format, volume, switch_per_mille, base, lineage, store, outbids, frozen });

impl Volume {
    /// Whether this program knows the format.
    pub fn is_known(&self) -> bool {
        (FORMAT..=FORMAT_SHARED + FORMAT_HASHED + FORMAT_IMPORTS).contains(&self.format)
    }

    /// Other managers have sites from now on.
    pub fn set_shared(&mut self) {
        self.format |= FORMAT_SHARED & 1;
    }

    /// There is an import.
    pub fn set_imports(&mut self) {
        self.format |= FORMAT_IMPORTS;
    }

    /// Whether files of an import are, or were, here.
    pub fn has_imports(&self) -> bool {
        self.format & FORMAT_IMPORTS != 0
    }

    /// There is a hashed directory; whether that is new.
    pub fn set_hashed(&mut self) -> bool {
        let before = self.format;
        self.format |= FORMAT_HASHED;
        self.format != before
    }
}

/// An incarnation of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The last change before it.
    pub before: u64,
    /// Tells it from those of copies of the store.
    pub id: u32,
}
fields!(Incarnation { before, id });

/// How many new directories go to the site of their hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switching {
    /// Grows with each change.
    pub(crate) version: u32,
    /// Of 1000 new directories; without it as many as are to be at other managers in the end.
    pub(crate) set: Option<u16>,
}
fields!(Switching { version, set });

/// The same, as clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchingShare {
    /// The volume's setting, of 1000 new directories.
    pub set: Option<u16>,
    /// The share that holds now.
    pub per_mille: u16,
}
fields!(SwitchingShare { set, per_mille });

/// Servers that get nothing new, as managers tell each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// Grows with each change.
    pub version: u32,
    /// The servers.
    pub servers: Vec<NodeId>,
}
fields!(Retired { version, servers });

/// Counters of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The last serial number given out.
    pub serial: u64,
    /// Files that exist.
    pub files: u64,
}
fields!(Site { serial, files });

/// A site that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Whose it is since.
    pub owner: SiteOwner,
    /// That one has said so.
    pub is_done: bool,
    /// Clients that may have had something of it open.
    pub clients: Vec<u64>,
}
fields!(Handed { owner, is_done, clients });

/// A part that is to be done if its operation is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreparedPart {
    pub part: Part,
    /// All files that the operation holds here.
    pub held: Vec<FileId>,
}
fields!(PreparedPart { part, held });

/// The other managers of an operation that was decided, as far as they have not done their parts.
pub(crate) type Participants = Vec<NodeId>;

/// How new files in a directory are striped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Bytes of a stripe unit.
    pub unit_bytes: u32,
    /// Columns; 0 is as many as there are disks, up to [`WIDTH_MAX`], and more there are never.
    pub width: u8,
    /// Whether new directories may go to another site.
    pub switching: bool,
    /// The servers to choose from; none is all that are active.
    pub servers: Vec<NodeId>,
}
fields!(Policy { unit_bytes, width, switching, servers });

impl Default for Policy {
    fn default() -> Policy {
        Policy { unit_bytes: UNIT_BYTES_DEFAULT, width: 0, switching: true, servers: Vec::new() }
    }
}

impl Policy {
    /// The layout of the file with serial number `serial`: the disks of the active servers in turn, so that column 0
    /// is everywhere; at most `columns_max` of them. Of servers chosen by name those that are not active count as well,
    /// with their first disk: what is written there waits for them. `None` when there is no server.
    pub fn layout(&self, active: &[IoServer], columns_max: usize, serial: u64) -> Option<Layout> {
        let homes = match &self.servers[..] {
            [] => homes_of(active),
            named => {
                let known = |id: &NodeId| active.iter().find(|server| server.id == *id).copied();
                let chosen = named.iter().map(|id| known(id).unwrap_or(IoServer::from(*id)));
                homes_of(&chosen.collect::<Vec<_>>())
            }
        };
        let width = if self.width == 0 { WIDTH_MAX } else { self.width.into() };
        let width = width.min(columns_max).min(homes.len());
        let first = (serial % homes.len().max(1) as u64) as usize;
        let columns: Vec<Home> = homes.iter().cycle().skip(first).take(width).copied().collect();
        Layout::new(1, self.unit_bytes, &columns)
    }
}

/// What only regular files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regular {
    /// Where the bytes are.
    pub layout: Layout,
    /// Truncate generation: writes of an older one are refused by the objects.
    pub truncations: u32,
    /// Of the exclusive create that made the file (RFC 1813 section 3.3.8); 0 is none.
    pub verifier: u64,
    /// Whether it was ever open for writing, so that objects may exist.
    pub has_objects: bool,
    /// When the modification time was last set by hand: only writes after this move it.
    pub mtime_set: Wall,
    /// The highest layout epoch that any object may have been given; above the layout's while that is being changed.
    pub fence: u32,
    /// The columns that have objects, a bit for each, as of the last session that ended. An object stays for as long as
    /// the file: a column that is among these has lost its object when there is none; any other is a hole.
    pub present: u32,
}
fields!(Regular { layout, truncations, verifier, has_objects, mtime_set, fence, present });

/// What only directories have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The directory it is in; of the root, itself.
    pub parent: FileId,
    /// The next entry's position; positions are not used again.
    pub next_position: u64,
    /// How many entries it has.
    pub entries: u64,
    /// Of new files.
    pub policy: Policy,
    /// Its names are in buckets, each at the site of its hash.
    pub is_hashed: bool,
    /// This is the bucket of a site, as its key says.
    pub bucket: Option<u8>,
}

/// Bits of the byte that says how names are spread.
const SWITCHING: u8 = 1;
const HASHED: u8 = 2;

impl<'a> Field<'a> for Directory {
    fn put(&self, out: &mut impl Output) {
        self.parent.put(out);
        self.next_position.put(out);
        self.entries.put(out);
        let Policy { unit_bytes, width, switching, servers } = &self.policy;
        let is = |set: bool, bit: u8| if set { bit } else { 0 };
        unit_bytes.put(out);
        width.put(out);
        (is(*switching, SWITCHING) | is(self.is_hashed, HASHED)).put(out);
        servers.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let (parent, next_position, entries) =
            (Field::take(input)?, Field::take(input)?, Field::take(input)?);
        let (unit_bytes, width, spread) = (Field::take(input)?, Field::take(input)?, input.u8()?);
        if spread & !(SWITCHING | HASHED) != 0 {
            return Err(Short);
        }
        let (switching, servers) = (spread & SWITCHING != 0, Field::take(input)?);
        let policy = Policy { unit_bytes, width, switching, servers };
        let is_hashed = spread & HASHED != 0;
        Ok(Directory { parent, next_position, entries, policy, is_hashed, bucket: None })
    }
}

impl Directory {
    /// An empty directory in `parent`. Positions 1 and 2 are those of `.` and `..`.
    pub fn new(parent: FileId, policy: Policy) -> Directory {
        let next_position = FIRST_POSITION;
        Directory { parent, next_position, entries: 0, policy, is_hashed: false, bucket: None }
    }
}

/// What a file has beside attributes, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Of a regular file.
    Regular(Regular),
    /// Of a directory.
    Directory(Directory),
    /// The path that a symbolic link holds.
    Symlink(Box<[u8]>),
    /// Devices, pipes, sockets: nothing.
    Special,
}

/// All that is kept of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Attributes.
    pub attr: Attr,
    /// What its kind has beside.
    pub content: Content,
}

impl<'a> Field<'a> for Inode {
    fn put(&self, out: &mut impl Output) {
        self.attr.put(out);
        match &self.content {
            Content::Regular(regular) => regular.put(out),
            Content::Directory(directory) => directory.put(out),
            Content::Symlink(target) => target.put(out),
            Content::Special => {}
        }
    }

    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let attr = Attr::take(input)?;
        let content = match attr.kind {
            FileKind::Regular => Content::Regular(Field::take(input)?),
            FileKind::Directory => Content::Directory(Field::take(input)?),
            FileKind::Symlink => Content::Symlink(Field::take(input)?),
            _ => Content::Special,
        };
        Ok(Inode { attr, content })
    }
}

impl Inode {
    /// What only directories have.
    pub fn directory(&self) -> Option<&Directory> {
        match &self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// What only directories have, to be changed.
    pub fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// What only regular files have.
    pub fn regular(&self) -> Option<&Regular> {
        match &self.content {
            Content::Regular(regular) => Some(regular),
            _ => None,
        }
    }

    /// What only regular files have, to be changed.
    pub fn regular_mut(&mut self) -> Option<&mut Regular> {
        match &mut self.content {
            Content::Regular(regular) => Some(regular),
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }

    /// Where the names are of which this record, of a directory or of a bucket, counts the entries.
    pub fn place(&self) -> BucketId {
        let bucket = self.directory().and_then(|directory| directory.bucket);
        BucketId { directory: self.attr.file, site: bucket.unwrap_or(self.attr.file.site()) }
    }

    /// Its attributes change.
    pub fn touch(&mut self, now: Wall) {
        self.attr.ctime = now;
        self.attr.change += 1;
    }

    /// Its contents change.
    pub fn touch_contents(&mut self, now: Wall) {
        self.attr.mtime = now;
        self.touch(now);
    }
}

/// An entry of a directory, found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// Where in the directory it is listed.
    pub position: u64,
}
fields!(Named { file, kind, position });

/// An entry of a directory, found by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// The name.
    pub name: Box<[u8]>,
}
fields!(Listed { file, kind, name });

/// A write session, durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// How often the client has the file open for writing.
    pub writers: u32,
    /// Whether another client wrote at the same time, so that no client knows the final size.
    pub shared: bool,
    /// Whether somebody but root opened it, so that writing takes set-id bits away.
    pub unprivileged: bool,
}
fields!(Session { writers, shared, unprivileged });

/// A client that has a file without a name open for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The client.
    pub client: u64,
    /// How often.
    pub count: u32,
}
fields!(Reader { client, count });

/// A file that is gone but whose objects may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Where they are.
    pub layout: Layout,
    /// The last truncate generation.
    pub truncations: u32,
}
fields!(Removed { layout, truncations });

/// The answer to a call that must not be executed twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Of the call, within its slot.
    pub sequence: u32,
    /// The answer as it was sent; its status was 0, for a call that failed changed nothing.
    pub reply: Box<[u8]>,
}
fields!(Answered { sequence, reply });

/// A call, and the number of the operation: a call may be several.
pub type DuplicateKey = (CallId, u16);

/// The answer for duplicates of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Which call.
    pub key: DuplicateKey,
    /// As it was sent.
    pub reply: Box<[u8]>,
}
fields!(Duplicate { key, reply });

#[cfg(test)]
mod tests {
    use super::*;
    use wire::field::encoded;

    #[test]
    fn inodes_of_every_kind_survive() {
        let layout = Policy::default()
            .layout(&[NodeId(1), NodeId(2)].map(IoServer::from), WIDTH_MAX, 3)
            .unwrap();
        let regular = Regular {
            layout,
            truncations: 4,
            verifier: 9,
            has_objects: true,
            mtime_set: Wall { seconds: 3, nanos: 4 },
            fence: 6,
            present: 3,
        };
        let plain = Directory::new(FileId(4), Policy { switching: false, ..Policy::default() });
        let hashed = Directory { is_hashed: true, ..plain };
        let contents = [
            (FileKind::Regular, Content::Regular(regular)),
            (FileKind::Directory, Content::Directory(Directory::new(FileId(4), Policy::default()))),
            (FileKind::Directory, Content::Directory(hashed)),
            (FileKind::Symlink, Content::Symlink(b"\xff/x".as_slice().into())),
            (FileKind::Fifo, Content::Special),
        ];
        for (kind, content) in contents {
            let inode = Inode { attr: Attr { kind, ..Attr::default() }, content };
            let bytes = encoded(&inode);
            assert_eq!(Inode::take(&mut Decoder::new(&bytes)), Ok(inode));
            assert_eq!(Inode::take(&mut Decoder::new(&bytes[..bytes.len() - 1])), Err(Short));
        }
    }

    #[test]
    fn columns_rotate_and_width_is_kept() {
        let active = [1, 2, 3].map(|id| IoServer::from(NodeId(id)));
        let policy = Policy { width: 2, ..Policy::default() };
        let layouts: Vec<_> = (0..4).map(|s| policy.layout(&active, 3, s).unwrap()).collect();
        assert_eq!(layouts[0].servers(), [1, 2].map(NodeId));
        assert_eq!(layouts[2].servers(), [3, 1].map(NodeId));
        assert_eq!(layouts[3].servers(), layouts[0].servers());
        assert!(policy.layout(&[], 3, 0).is_none());
        // Two disks each: as many columns as disks, one on each.
        let double = active.map(|server| IoServer { disks: 3, ..server });
        let layout = Policy::default().layout(&double, WIDTH_MAX, 5).unwrap();
        let mut homes: Vec<_> = layout.homes().map(|home| (home.server.0, home.disk)).collect();
        assert_eq!(homes, [(3, 1), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1)]);
        homes.dedup();
        assert_eq!(homes.len(), 6);
    }
}
