//! The key space of the store: where each record of the name space is.
//!
//! Every key is `site | table | …`: the site first, so that a site is one range and moves as one; numbers big-endian,
//! so that keys sort as they count.

use crate::holds::Tx;
use wire::field::{Field, encoded};
use wire::{Decoder, FileId, Home, NodeId};

/// The tables of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// The volume; at site 0 only.
    Volume = 1,
    /// Counters of the site.
    Site = 2,
    /// Attributes, by file.
    Inode = 3,
    /// Directory entries, by directory and name.
    Name = 4,
    /// Directory entries, by directory and position.
    Position = 5,
    /// Extended attributes, by file and name.
    Xattr = 6,
    /// Files without a name that are still open.
    Orphan = 7,
    /// Write sessions, by file and client.
    Session = 8,
    /// Files that are gone but whose objects may still exist.
    Removed = 9,
    /// Truncations that have not reached every object.
    Truncation = 10,
    /// Answers of calls that must not be executed twice, by client and slot.
    Answer = 11,
    /// Clients that hold something; at site 0 only.
    Client = 12,
    /// Block maps, by file and stripe unit.
    Fragment = 13,
    /// Objects that no file claimed, by server and object; at site 0 only.
    Quarantine = 14,
    /// Servers that get nothing new; at site 0 only.
    Retired = 15,
    /// Incarnations of the manager, by number: the last change before each; at site 0 only.
    Incarnation = 16,
    /// Serial numbers that were passed over, by the last of them: the last one before them.
    Passed = 17,
    /// For how many seconds the volume had a manager; at site 0 only.
    Uptime = 18,
    /// Files of a restored volume that were not compared with their objects yet, or whose objects are gone.
    Restored = 19,
    /// Sites that were handed over, by site: to whom, or from whom; at site 0 only.
    Owner = 20,
    /// Parts of operations of other managers that are not decided here yet; at site 0 only.
    Prepared = 21,
    /// Operations over several managers that are decided, and not done everywhere yet; at site 0 only.
    Decided = 22,
    /// Buckets of hashed directories, by directory: what a site has of one.
    Bucket = 23,
    /// Answers for duplicates of calls that come under other names, by age.
    Duplicate = 24,
    /// How many new directories go to the site of their hash; at site 0 only.
    Switching = 25,
    /// How often servers were retired or taken back; at site 0 only.
    Retirements = 26,
    /// Sites of which all records have come, and whose owner will say that they are this manager's; at site 0 only.
    Arrived = 27,
}

/// A site's part of the names of a directory: all of them at the directory's own site, or a bucket of a hashed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketId {
    /// The directory.
    pub directory: FileId,
    /// Where the name is.
    pub site: u8,
}

impl From<FileId> for BucketId {
    /// Of a directory that is not hashed.
    fn from(directory: FileId) -> BucketId {
        BucketId { directory, site: directory.site() }
    }
}

impl BucketId {
    fn key(self, table: Table, rest: &[u8]) -> Vec<u8> {
        key(self.site, table, &[&self.directory.0.to_be_bytes(), rest])
    }
}

fn key(site: u8, table: Table, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.extend_from_slice(&[site, table as u8]);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

fn of_file(file: FileId, table: Table, rest: &[u8]) -> Vec<u8> {
    key(file.site(), table, &[&file.0.to_be_bytes(), rest])
}

/// The prefix of all keys of a table at a site.
pub fn table(site: u8, table: Table) -> Vec<u8> {
    key(site, table, &[])
}

/// The prefix of all keys of a table about one file.
pub fn about(file: FileId, table: Table) -> Vec<u8> {
    of_file(file, table, &[])
}

/// An incarnation of the manager.
pub fn incarnation(number: u32) -> Vec<u8> {
    key(0, Table::Incarnation, &[&number.to_be_bytes()])
}

/// The number of a key that [`incarnation`] made.
pub fn incarnation_of(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(2..6)?.try_into().ok()?))
}

/// Serial numbers that were passed over, up to this one.
pub fn passed(site: u8, last: u64) -> Vec<u8> {
    key(site, Table::Passed, &[&last.to_be_bytes()])
}

/// A file of a restored volume.
pub fn restored(file: FileId) -> Vec<u8> {
    about(file, Table::Restored)
}

/// For how long the volume had a manager.
pub fn uptime() -> Vec<u8> {
    key(0, Table::Uptime, &[])
}

/// How many new directories go to the site of their hash.
pub fn switching() -> Vec<u8> {
    key(0, Table::Switching, &[])
}

/// The volume record.
pub fn volume() -> Vec<u8> {
    key(0, Table::Volume, &[])
}

/// Counters of a site.
pub fn site(site: u8) -> Vec<u8> {
    key(site, Table::Site, &[])
}

/// Attributes of a file.
pub fn inode(file: FileId) -> Vec<u8> {
    about(file, Table::Inode)
}

/// The entry `name` of a directory.
pub fn name(place: BucketId, name: &[u8]) -> Vec<u8> {
    place.key(Table::Name, name)
}

/// The prefix of all entries of a directory at a site, by name.
pub fn names(place: BucketId) -> Vec<u8> {
    place.key(Table::Name, &[])
}

/// The entry at `position` of a directory.
pub fn position(place: BucketId, position: u64) -> Vec<u8> {
    place.key(Table::Position, &position.to_be_bytes())
}

/// The prefix of all entries of a directory at a site, by position.
pub fn positions(place: BucketId) -> Vec<u8> {
    place.key(Table::Position, &[])
}

/// The record of a bucket.
pub fn bucket(place: BucketId) -> Vec<u8> {
    place.key(Table::Bucket, &[])
}

/// Where the record with this key is, if it is a bucket.
pub fn bucket_of(key: &[u8]) -> Option<BucketId> {
    let is_bucket = key.get(1) == Some(&(Table::Bucket as u8));
    is_bucket.then(|| Some(BucketId { directory: file_of(key)?, site: key[0] }))?
}

/// An extended attribute.
pub fn xattr(file: FileId, name: &[u8]) -> Vec<u8> {
    of_file(file, Table::Xattr, name)
}

/// A file without a name.
pub fn orphan(file: FileId) -> Vec<u8> {
    about(file, Table::Orphan)
}

/// The write session of a client.
pub fn session(file: FileId, client: u64) -> Vec<u8> {
    of_file(file, Table::Session, &client.to_be_bytes())
}

/// A file whose objects are to be removed.
pub fn removed(file: FileId) -> Vec<u8> {
    about(file, Table::Removed)
}

/// A truncation under way.
pub fn truncation(file: FileId) -> Vec<u8> {
    about(file, Table::Truncation)
}

/// The answer of a client's slot.
pub fn answer(site: u8, client: u64, slot: u16) -> Vec<u8> {
    key(site, Table::Answer, &[&client.to_be_bytes(), &slot.to_be_bytes()])
}

/// All answers of a client at a site.
pub fn answers(site: u8, client: u64) -> Vec<u8> {
    key(site, Table::Answer, &[&client.to_be_bytes()])
}

/// The answer for duplicates of a call; later ones have greater numbers.
pub fn duplicate(site: u8, number: u64) -> Vec<u8> {
    key(site, Table::Duplicate, &[&number.to_be_bytes()])
}

/// A client.
pub fn client(client: u64) -> Vec<u8> {
    key(0, Table::Client, &[&client.to_be_bytes()])
}

/// The fragment of a block map that starts at stripe unit `unit`.
pub fn fragment(file: FileId, unit: u64) -> Vec<u8> {
    of_file(file, Table::Fragment, &unit.to_be_bytes())
}

/// How often servers were retired or taken back.
pub fn retirements() -> Vec<u8> {
    key(0, Table::Retirements, &[])
}

/// A server that gets nothing new.
pub fn retired(server: NodeId) -> Vec<u8> {
    key(0, Table::Retired, &[&server.0.to_be_bytes()])
}

/// The server of a key that [`retired`] made.
pub fn retired_of(key: &[u8]) -> Option<NodeId> {
    short_at(key, 2).map(NodeId)
}

/// An object in quarantine on a server's disk.
pub fn quarantined(home: Home, file: FileId, column: u16) -> Vec<u8> {
    let (server, file, column) =
        (home.server.0.to_be_bytes(), file.0.to_be_bytes(), column.to_be_bytes());
    key(0, Table::Quarantine, &[&server, &file, &column, &[home.disk]])
}

/// Disk, file and column of a key that [`quarantined`] made.
pub fn quarantined_of(key: &[u8]) -> Option<(Home, FileId, u16)> {
    let home = Home { server: NodeId(short_at(key, 2)?), disk: *key.get(14)? };
    Some((home, FileId(number_at(key, 4)?), short_at(key, 12)?))
}

/// The prefix of all objects in quarantine on a server.
pub fn quarantined_at(server: NodeId) -> Vec<u8> {
    key(0, Table::Quarantine, &[&server.0.to_be_bytes()])
}

/// The same, of files of one site: their numbers begin with it.
pub fn quarantined_of_site(server: NodeId, site: u8) -> Vec<u8> {
    key(0, Table::Quarantine, &[&server.0.to_be_bytes(), &[site]])
}

/// Whether the record is of an object in quarantine that a file of this site had.
pub fn is_aside_of(key: &[u8], site: u8) -> bool {
    key.starts_with(&table(0, Table::Quarantine))
        && quarantined_of(key).is_some_and(|(_, file, _)| file.site() == site)
}

fn short_at(key: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(key.get(at..at + 2)?.try_into().ok()?))
}

/// The 8-byte number at `at` in a key.
pub fn number_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?))
}

/// Tables of which every key is about a file.
const PER_FILE: [Table; 11] = [
    Table::Inode,
    Table::Name,
    Table::Position,
    Table::Xattr,
    Table::Orphan,
    Table::Session,
    Table::Removed,
    Table::Truncation,
    Table::Fragment,
    Table::Restored,
    Table::Bucket,
];

/// The tables of a site beside those about its files: they move with it.
const PER_SITE: [Table; 4] = [Table::Site, Table::Answer, Table::Passed, Table::Duplicate];

/// The file that a key is about, if it is of a table about files. Of what a site has of a directory that is elsewhere,
/// a number of that site stands for it: so it is held, and waited for, apart from the directory.
pub fn subject(key: &[u8]) -> Option<FileId> {
    let (site, table) = (*key.first()?, *key.get(1)?);
    let file = PER_FILE.iter().any(|one| *one as u8 == table).then(|| file_of(key))??;
    if file.site() == site {
        return Some(file);
    }
    Some(FileId::new(site, crate::hash::hash(file, &[])))
}

/// Whether a record moves with its site, as all but those of the store itself do.
pub fn is_of_site(key: &[u8]) -> bool {
    let is = |one: &Table| key.get(1) == Some(&(*one as u8));
    PER_FILE.iter().any(is) || PER_SITE.iter().any(is)
}

/// Where a site was handed over.
pub fn owner(site: u8) -> Vec<u8> {
    key(0, Table::Owner, &[&[site]])
}

/// The epoch with which a site, whose records are all here, is to become this manager's.
pub fn arrived(site: u8) -> Vec<u8> {
    key(0, Table::Arrived, &[&[site]])
}

/// A part of an operation of another manager.
pub fn prepared(tx: &Tx) -> Vec<u8> {
    key(0, Table::Prepared, &[&encoded(tx)])
}

/// An operation over several managers.
pub fn decided(tx: &Tx) -> Vec<u8> {
    key(0, Table::Decided, &[&encoded(tx)])
}

/// The operation of a key that [`prepared`] or [`decided`] made.
pub fn tx_of(key: &[u8]) -> Option<Tx> {
    Tx::take(&mut Decoder::new(key.get(2..)?)).ok()
}

/// The file that a key of a per-file table is about.
pub fn file_of(key: &[u8]) -> Option<FileId> {
    number_at(key, 2).map(FileId)
}

/// Bytes before the part of a per-file key that tells records of one file apart.
pub const ABOUT_BYTES: usize = 10;

/// The least key behind all keys that start with `prefix`; `None` when there is none.
pub fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_sort_as_they_count_and_sites_apart() {
        let directory = FileId::new(7, 3);
        let place = BucketId::from(directory);
        assert!(position(place, 255) < position(place, 256));
        assert_eq!(position(place, 1)[0], 7);
        assert!(position(FileId::new(6, 9).into(), 9) < position(place, 0));
        assert_eq!(file_of(&position(place, 1)), Some(directory));
    }

    #[test]
    fn what_a_site_has_of_a_directory_is_held_there() {
        let directory = FileId::new(7, 3);
        let (own, other) = (BucketId::from(directory), BucketId { directory, site: 9 });
        assert_eq!(subject(&bucket(own)), Some(directory));
        assert_eq!(subject(&inode(directory)), Some(directory));
        let held = subject(&bucket(other)).unwrap();
        assert_eq!((held.site(), subject(&name(other, b"x"))), (9, Some(held)));
        assert_eq!(subject(&position(other, 4)), Some(held));
        assert_eq!(bucket_of(&bucket(other)), Some(other));
        assert_eq!(
            (bucket_of(&inode(directory)), file_of(&bucket(other))),
            (None, Some(directory))
        );
    }

    #[test]
    fn behind_a_prefix() {
        assert_eq!(behind(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(behind(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(behind(&[0xff]), None);
        let file = FileId(u64::MAX);
        assert!(behind(&about(file, Table::Xattr)).unwrap() > xattr(file, &[0xff; 255]));
    }
}
