//! A store that was restored from a backup, or accepted though it is an older copy: what of its records still counts,
//! and which files are to be compared with their objects.
//!
//! Objects go on without the store. A file may have been written, truncated, moved or removed since; so its size, its
//! truncate generation and the disks of its columns are the objects' to say, and until they did the file is not opened.

use crate::keys::{self, Table};
use crate::open_error::{OpenError, damaged};
use crate::record::{Inode, Volume};
use crate::restoration::Restored;
use crate::sessions::Final;
use crate::transaction::{Effect, Transaction};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use store::{Append, Batch, Entry, Store};
use wire::field::encoded;
use wire::{Errno, FileId, Fragment, Layout, Wall};

/// Rows of a batch: 2 MiB hold more than this many of them.
const BATCH_ROWS: usize = 4096;

/// The part of a backup that a record is in, as the manager sees it whose store is restored.
#[derive(Clone, Debug)]
pub struct PartOf {
    is_own: bool,
    sites: BTreeSet<u8>,
}

impl PartOf {
    /// This manager's own part, of a moment when it owned these sites.
    pub fn own(sites: impl IntoIterator<Item = u8>) -> PartOf {
        PartOf { is_own: true, sites: sites.into_iter().collect() }
    }

    /// Another manager's part of the same moment: any site of it may have come to this one since.
    pub fn other(sites: impl IntoIterator<Item = u8>) -> PartOf {
        PartOf { is_own: false, sites: sites.into_iter().collect() }
    }

    /// Whether the record is one of this manager, or of a site that it may own by now. A store may have records yet of
    /// a site that went, or some of one that had not come.
    fn has(&self, key: &[u8]) -> bool {
        match key.first() {
            Some(site) if keys::is_of_site(key) => self.sites.contains(site),
            _ => self.is_own,
        }
    }
}

/// The rows of a restored store for a record of a part of a backup.
pub fn restored(part: &PartOf, key: &[u8], value: &[u8]) -> Result<Vec<Entry>, OpenError> {
    let table = key.get(1).copied().unwrap_or_default();
    let is = |one: Table| table == one as u8;
    if !part.has(key) {
        return Ok(Vec::new());
    }
    // Of clients and starts of before nothing is left, and a truncation may have been done and written over since.
    if is(Table::Session) {
        // Behind the row of its file, whose place this one takes.
        return Ok(open_row(key).into_iter().collect());
    }
    let of_before =
        [Table::Client, Table::Answer, Table::Duplicate, Table::Incarnation, Table::Truncation];
    // No decision was awaited when the snapshots were taken: a part that was prepared then was given up. And no site
    // was on its way.
    let of_others = [Table::Prepared, Table::Decided, Table::Arrived];
    if of_before.into_iter().chain(of_others).any(is) {
        return Ok(Vec::new());
    }
    if is(Table::Volume) {
        let volume = restored_volume(key, value)?;
        let lineage = volume.lineage + 1;
        return Ok(vec![(key.to_vec(), encoded(&Volume { lineage, ..volume }))]);
    }
    let row = if is(Table::Inode) { due(key, value)? } else { None };
    Ok([(key.to_vec(), value.to_vec())].into_iter().chain(row).collect())
}

fn restored_volume(key: &[u8], value: &[u8]) -> Result<Volume, OpenError> {
    let volume: Volume = damaged(key, value)?;
    if !volume.is_known() {
        return Err(OpenError::Format { found: volume.format });
    }
    Ok(Volume { store: 0, outbids: true, frozen: true, ..volume })
}

/// The row that says so of a file that was open for writing, by the key of its session.
fn open_row(key: &[u8]) -> Option<Entry> {
    keys::file_of(key).map(|file| (keys::restored(file), encoded(&Restored::Open)))
}

/// The row that says that a file is to be compared, if it has objects.
fn due(key: &[u8], value: &[u8]) -> Result<Option<Entry>, OpenError> {
    let inode: Inode = damaged(key, value)?;
    let has_objects = inode.regular().is_some_and(|regular| regular.has_objects);
    let row = || (keys::restored(inode.attr.file), encoded(&Restored::Due));
    Ok(has_objects.then(row))
}

/// A person takes the store as it is, though it may lack what was acknowledged: its next start goes on as a lineage
/// above all that the servers know of, compares files with their objects, and nothing is set aside or purged until a
/// person says so. The records must be appended, in order.
pub fn accept(store: &mut Store) -> Result<Vec<Append>, OpenError> {
    let key = keys::volume();
    let value = store.get(&key)?.ok_or_else(|| OpenError::Damaged { key: key.clone() })?;
    let mut rows = vec![(key.clone(), Some(encoded(&restored_volume(&key, &value)?)))];
    for site in 0..=u8::MAX {
        for (key, value) in table(store, site, Table::Inode)? {
            rows.extend(due(&key, &value)?.map(|(key, value)| (key, Some(value))));
        }
        for (key, _) in table(store, site, Table::Session)? {
            rows.extend(open_row(&key).map(|(key, value)| (key, Some(value))));
        }
        let truncations = table(store, site, Table::Truncation)?;
        rows.extend(truncations.into_iter().map(|(key, _)| (key, None)));
    }
    let batch = |rows: &[(Vec<u8>, Option<Vec<u8>>)]| {
        let mut batch = Batch::new();
        for (key, value) in rows {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        batch
    };
    Ok(rows.chunks(BATCH_ROWS).map(|rows| store.apply(batch(rows))).collect())
}

fn table(store: &Store, site: u8, table: Table) -> Result<Vec<Entry>, OpenError> {
    let (prefix, end) = (keys::table(site, table), [site, table as u8 + 1]);
    let mut found = Vec::new();
    store.scan(&prefix[..]..&end[..], |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Result of a comparison with the objects.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Where the columns are, and the epoch that the objects know.
    pub layout: Layout,
    /// The block map.
    pub fragments: Vec<Fragment>,
    /// The truncate generation.
    pub truncations: u32,
    /// Totals of the objects; `None` when there are none, and need be none.
    pub totals: Option<Final>,
    /// A truncation that did not reach all of them is to be ended at this length.
    pub unfinished: Option<u64>,
}

impl Transaction<'_> {
    /// The state of a file of a restored volume; nothing of any other.
    pub fn restored(&self, file: FileId) -> Result<Option<Restored>, Errno> {
        let key = keys::restored(file);
        // Most volumes have no such rows, and removals need not look for them; the count has none of this change.
        if self.restoration.files() == 0 && !self.changes.writes.contains_key(&key) {
            return Ok(None);
        }
        self.get(&key)?.map(|row| Self::decoded(&row)).transpose()
    }

    /// Files of a site that are to be compared, or are lost, behind one; at most `count`.
    pub fn restored_at(
        &self,
        site: u8,
        after: Option<FileId>,
        count: usize,
    ) -> Result<Vec<(FileId, Restored)>, Errno> {
        let after = after.map(keys::restored);
        let rows = self.scan(&keys::table(site, Table::Restored), after.as_deref(), count)?;
        let row = |(key, value): &(Vec<u8>, Vec<u8>)| {
            Ok((keys::file_of(key).ok_or(Errno::EIO)?, Self::decoded(value)?))
        };
        rows.iter().map(row).collect()
    }

    /// The objects may be given this epoch from now on, and have this truncate generation.
    pub fn fence_restored(
        &mut self,
        file: FileId,
        epoch: u32,
        truncations: u32,
    ) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        regular.fence = regular.fence.max(epoch);
        regular.truncations = regular.truncations.max(truncations);
        self.put_inode(&inode);
        Ok(())
    }

    /// The file is as its objects say.
    pub fn compared(&mut self, file: FileId, found: &Compared) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        regular.layout = found.layout;
        regular.fence = regular.fence.max(found.layout.epoch);
        regular.truncations = regular.truncations.max(found.truncations);
        regular.present |= found.totals.map_or(0, |totals| totals.present);
        let by_hand = regular.mtime_set;
        if let Some(Final { size, mtime, used, .. }) = found.totals {
            inode.attr.size = size;
            inode.attr.used = used.unwrap_or(inode.attr.used);
            if mtime > inode.attr.mtime && (by_hand == Wall::default() || mtime > by_hand) {
                inode.attr.mtime = mtime;
            }
        }
        inode.touch(self.now);
        self.put_inode(&inode);
        self.put_fragments(file, &found.fragments)?;
        if let Some(size) = found.unfinished {
            self.put(keys::truncation(file), encoded(&size));
            self.effect(Effect::Truncating(file, size));
        }
        self.forget_restored(file)
    }

    /// Nothing is to be compared any more.
    pub fn forget_restored(&mut self, file: FileId) -> Result<(), Errno> {
        self.put_restored(file, None)
    }

    /// Objects that the file had are nowhere.
    pub fn note_lost(&mut self, file: FileId) -> Result<(), Errno> {
        let row = self.restored(file)?.unwrap_or(Restored::Due);
        self.put_restored(file, Some(row.lost()))
    }

    pub(crate) fn put_restored(
        &mut self,
        file: FileId,
        now: Option<Restored>,
    ) -> Result<(), Errno> {
        let before = self.restored(file)?;
        match now {
            _ if now == before => return Ok(()),
            Some(now) => self.put(keys::restored(file), encoded(&now)),
            None => self.delete(keys::restored(file)),
        }
        self.effect(Effect::Restored(before, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::{Manager, Origin, STORE, VolumeSettings};
    use store::{Config, MemoryBackend};
    use wire::{Time, VolumeId};

    #[test]
    fn a_row_that_is_written_twice_in_one_change_is_counted_once() {
        let config = Config::new(STORE.kind, STORE.version);
        let store = Store::open(MemoryBackend::new(), config, Vec::new()).unwrap();
        let settings = VolumeSettings::new(VolumeId(5));
        let opened = Manager::open(store, &settings, Wall::default(), Time::ZERO, 1);
        let mut manager = opened.unwrap().0;
        let mut change = |rows: &[Option<Restored>]| {
            let origin = Origin { client: 0, now: Wall::default() };
            let put = |t: &mut Transaction<'_>| {
                rows.iter().try_for_each(|row| t.put_restored(FileId(9), *row))
            };
            let _no_log = manager.change(origin, put).unwrap();
            (manager.restoration().due, manager.restoration().lost)
        };
        assert_eq!(
            change(&[Some(Restored::Due), Some(Restored::Lost), Some(Restored::Due)]),
            (1, 0)
        );
        assert_eq!(change(&[Some(Restored::Open), Some(Restored::Lost)]), (0, 1));
        assert_eq!(change(&[Some(Restored::Due), None, None]), (0, 0));
    }
}
