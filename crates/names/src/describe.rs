//! The descriptions of files that their objects keep, so that names which are lost can be made again.
//!
//! The list of [changed files](Changed) is bounded and in memory only. Changes that it lost, when the manager died or
//! when more changed at once than is kept, are found again by a walk over the names.

use crate::changed::{Changed, Known, Spot, spot_of};
use crate::keys::{self, BucketId};
use crate::limits::DESCRIBED_SCAN_MAX;
use crate::manager::Manager;
use crate::record::{Named, Regular};
use crate::transaction::Transaction;
use stripe::Description;
use wire::field::{Field, encoded};
use wire::layout::column_mask;
use wire::{
    Attr, BlockMap, Decoder, Errno, FileId, FileKind, Fragment, Home, Layout, Placement, Wall,
};

/// The description that a file is due, and its objects.
#[derive(Debug)]
pub(crate) struct Due {
    pub file: FileId,
    pub spot: Option<Spot>,
    /// The columns that may have objects.
    pub columns: Vec<(u16, Home)>,
    pub description: Description,
    /// It is open for writing: objects may come.
    pub is_open: bool,
}

/// A part of a walk over names.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Number of names.
    pub names: usize,
    /// Behind which one the next part begins, if there is one.
    pub last: Option<Vec<u8>>,
    /// The latest change of a file among them.
    pub newest: Wall,
    pub directories: Vec<FileId>,
}

impl Manager {
    /// The descriptions that these files are due; those that have no objects, or no name, are left out.
    pub(crate) fn due(&mut self, files: Vec<Known>) -> Vec<Due> {
        let mut changed = std::mem::take(&mut self.changed);
        let due = files.into_iter().filter_map(|(file, spot)| {
            // An inode that cannot be read is reported by the request that needs it.
            self.read(0, |t| t.due(file, spot, &mut changed)).ok().flatten()
        });
        let due = due.collect();
        self.changed = changed;
        due
    }

    /// Looks at `count` names under a prefix of their table, behind a key: files that are wanted, by their last change,
    /// are to be described, and the names of directories are kept.
    pub(crate) fn walk_names(
        &mut self,
        prefix: &[u8],
        after: Option<&[u8]>,
        count: usize,
        mut is_wanted: impl FnMut(FileId, Wall) -> bool,
    ) -> Result<Walked, Errno> {
        let rows = self.read(0, |t| t.scan(prefix, after, count))?;
        let mut walked = Walked { names: rows.len(), ..Walked::default() };
        for (key, value) in &rows {
            let (Ok(named), Some(spot)) = (Transaction::decoded::<Named>(value), spot_of(key))
            else {
                continue;
            };
            match named.kind {
                FileKind::Directory => {
                    self.changed.learn(named.file, spot);
                    walked.directories.push(named.file);
                }
                FileKind::Regular => {
                    let Ok(inode) = self.read(0, |t| t.inode(named.file)) else { continue };
                    walked.newest = walked.newest.max(inode.attr.ctime);
                    if is_wanted(named.file, inode.attr.ctime) {
                        self.changed.note(named.file, Some(spot));
                    }
                }
                _ => {}
            }
        }
        walked.last = rows.into_iter().nth(count - 1).map(|(key, _)| key);
        Ok(walked)
    }
}

impl Transaction<'_> {
    fn due(
        &self,
        file: FileId,
        spot: Option<Spot>,
        changed: &mut Changed,
    ) -> Result<Option<Due>, Errno> {
        let inode = self.inode(file)?;
        let has_objects = |regular: &&Regular| regular.has_objects && inode.attr.links > 0;
        let Some(regular) = inode.regular().filter(has_objects) else { return Ok(None) };
        let layout = regular.layout;
        let is_open = self.opens.holders(file).any(|(_, holder)| holder.session.writers > 0);
        // Until the file was compared with its objects, only they know where its columns are.
        if self.restored(file)?.is_some() {
            return Ok(None);
        }
        let path = spot.as_ref().map(|spot| self.path(spot, changed)).unwrap_or_default();
        let fragments = self.map_of(file, &layout)?;
        let description = described(&inode.attr, regular.present, &layout, &fragments, path);
        let columns = columns(&layout, inode.attr.size, is_open);
        Ok(Some(Due { file, spot, columns, description, is_open }))
    }

    /// The description for objects of a file whose layout is to be this one, under names that they know.
    pub(crate) fn described_as(
        &self,
        file: FileId,
        layout: &Layout,
        fragments: &[Fragment],
    ) -> Result<Description, Errno> {
        let inode = self.inode(file)?;
        // A change of the layout makes all objects.
        let present = column_mask(0..layout.width());
        Ok(described(&inode.attr, present, layout, fragments, Vec::new()))
    }

    /// The path of a name. It begins where the names of directories are known from: mostly at the root.
    fn path(&self, spot: &Spot, changed: &mut Changed) -> Vec<u8> {
        let (mut directory, mut names) = (spot.0, vec![spot.1.clone()]);
        let mut bytes = spot.1.len();
        while directory != FileId::ROOT && bytes < stripe::limits::DESCRIBED_PATH_BYTES_MAX {
            let Some((parent, name)) = self.name_of(directory, changed) else {
                names.reverse();
                return names.join(&b'/');
            };
            bytes += name.len() + 1;
            names.push(name);
            directory = parent;
        }
        names.push(Box::default());
        names.reverse();
        names.join(&b'/')
    }

    /// The name of a directory; `None` when it is one of very many in its parent, and was not seen.
    fn name_of(&self, directory: FileId, changed: &mut Changed) -> Option<Spot> {
        if let Some(spot) = changed.directory(directory) {
            return Some(spot.clone());
        }
        let parent = self.inode(directory).ok()?.directory()?.parent;
        // In a hashed directory it is where its name is, if it was made there.
        let site = if self.hashed.has(parent) { directory.site() } else { parent.site() };
        let prefix = keys::names(BucketId { directory: parent, site });
        for (key, value) in self.scan(&prefix, None, DESCRIBED_SCAN_MAX).ok()? {
            let Ok(named) = Self::decoded::<Named>(&value) else { continue };
            if let (FileKind::Directory, Some(spot)) = (named.kind, spot_of(&key)) {
                changed.learn(named.file, spot);
            }
        }
        changed.directory(directory).cloned()
    }
}

fn described(
    attr: &Attr,
    present: u32,
    layout: &Layout,
    fragments: &[Fragment],
    path: Vec<u8>,
) -> Description {
    let mut placed = encoded(layout);
    placed.extend(encoded(&fragments.to_vec()));
    Description {
        size: attr.size,
        used: attr.used,
        mtime: attr.mtime,
        ctime: attr.ctime,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        present,
        layout: placed,
        path,
    }
}

/// The latest layout that descriptions tell, with its block map.
pub fn latest_layout<'a>(
    descriptions: impl Iterator<Item = &'a Description>,
) -> Option<(Layout, Vec<Fragment>)> {
    descriptions.filter_map(described_layout).max_by_key(|(layout, _)| layout.epoch)
}

/// The layout and block map in a file's description. `None` when they were too long to be kept.
fn described_layout(description: &Description) -> Option<(Layout, Vec<Fragment>)> {
    let mut input = Decoder::new(&description.layout);
    let layout = Layout::decode(&mut input).ok()?;
    Some((layout, Field::take(&mut input).ok()?))
}

/// The columns that may have objects. Of a file that is open for writing the length is a hint.
fn columns(layout: &Layout, size: u64, is_open: bool) -> Vec<(u16, Home)> {
    let map = BlockMap::new(layout, &[]);
    let by_length = layout.placement == Placement::Formula && !is_open && size > 0;
    let has = |column: u16| !by_length || map.object_bytes(column, size) > 0;
    (0..).zip(layout.homes()).filter(|(column, _)| has(*column)).collect()
}
