//! Changes of layout: more columns for later data, a column on another server; and the block map.
//!
//! A fragment says where a range of units is; units without one are where the formula says. Clients cache the map under
//! the layout's epoch. A change has three steps: the *fence*, the new epoch, is in the log; every object has that
//! epoch, so that no client reads or writes by the old layout any more; the new layout is in the log. Between the first
//! and the last the fence is above the layout's epoch, and if the manager or the change dies there, the next request
//! for the file makes it whole again with the old placement and one more epoch.
//!
//! This store alone must not know where bytes are: it may be lost. Before a layout with a block map is in the log, and
//! after a change was given up, every object is told the layout, on stable storage. So the latest layout that any
//! object knows places every byte that was ever written, and bytes elsewhere were given up or are a copy.

use crate::keys::{self, Table};
use crate::limits::{FRAGMENTS_MAX, LINEAGE_EPOCHS_SHIFT};
use crate::permissions::Who;
use crate::servers::homes_of;
use crate::transaction::Transaction;
use wire::field::encoded;
use wire::{BlockMap, Errno, FileId, Fragment, Home, Layout, Placement};

impl Transaction<'_> {
    /// Fragments from stripe unit `unit` on, at most `count`, and the epoch they belong to. The fragment that began
    /// before `unit` and covers it is the first.
    pub fn fragments(
        &self,
        file: FileId,
        unit: u64,
        count: usize,
    ) -> Result<(u32, Vec<Fragment>), Errno> {
        let inode = self.inode(file)?;
        let layout = inode.regular().ok_or(Errno::EINVAL)?.layout;
        let all = self.scan(&keys::about(file, Table::Fragment), None, FRAGMENTS_MAX)?;
        let all = all.iter().map(|(_, value)| Self::decoded(value));
        let mut found = all.collect::<Result<Vec<Fragment>, Errno>>()?;
        found.retain(|fragment| fragment.end() > unit);
        found.truncate(count);
        Ok((layout.epoch, found))
    }

    /// The block map of a file that has this layout, all of it; by a formula there is none.
    pub fn map_of(&self, file: FileId, layout: &Layout) -> Result<Vec<Fragment>, Errno> {
        match layout.placement {
            Placement::Formula => Ok(Vec::new()),
            Placement::Map => Ok(self.fragments(file, 0, FRAGMENTS_MAX)?.1),
        }
    }

    /// Whether a change of the file's layout is under way, or was given up in the middle.
    pub fn is_fenced(&self, file: FileId) -> Result<bool, Errno> {
        let inode = self.inode(file)?;
        Ok(inode.regular().is_some_and(|regular| regular.fence > regular.layout.epoch))
    }

    /// The epoch that the objects are to be given next. Only root, which is who moves blocks, may. Objects that this
    /// store does not know of may have epochs of an earlier lineage, so those of each lineage begin above them.
    pub fn fence(&mut self, who: &Who<'_>, file: FileId) -> Result<u32, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        let above = u32::from(self.volume.lineage) << LINEAGE_EPOCHS_SHIFT;
        let epoch = regular.fence.max(regular.layout.epoch).max(above).checked_add(1);
        let epoch = epoch.ok_or(Errno::EOVERFLOW)?;
        regular.fence = epoch;
        regular.has_objects = true;
        self.put_inode(&inode);
        Ok(epoch)
    }

    /// From now on the file has this layout, of the epoch that all its objects have.
    pub fn set_layout(&mut self, file: FileId, layout: Layout) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        if layout.epoch != regular.fence {
            return Err(Errno::EAGAIN);
        }
        regular.layout = layout;
        inode.touch(self.now);
        self.put_inode(&inode);
        Ok(())
    }

    /// The layout with columns, a bit for each, on other disks than these are on: where there are any, on such as have
    /// no column of the file yet.
    pub(crate) fn replaced(
        &self,
        file: FileId,
        layout: &Layout,
        epoch: u32,
        columns: u32,
    ) -> Result<Layout, Errno> {
        let is_lost = |column: &u16| columns >> column & 1 == 1;
        let lost: Vec<u16> = (0..layout.width()).filter(is_lost).collect();
        let usable = |home: &Home| lost.iter().all(|column| layout.home(*column) != *home);
        let mut homes: Vec<Home> = homes_of(self.servers).into_iter().filter(usable).collect();
        let is_new = |home: &Home| layout.homes().all(|known| known != *home);
        if homes.iter().any(is_new) {
            homes.retain(is_new);
        }
        if homes.is_empty() {
            return Err(Errno::EHOSTDOWN);
        }
        let turns = (file.serial() % homes.len() as u64) as usize;
        let mut next = homes.into_iter().cycle().skip(turns);
        lost.into_iter()
            .try_fold(layout.with_epoch(epoch), |layout, column| {
                layout.with_home(epoch, column, next.next()?)
            })
            .ok_or(Errno::EINVAL)
    }

    /// As [`set_layout`](Transaction::set_layout) with columns that were added: everything from byte `size` on is in
    /// them, in turns.
    pub fn set_columns(&mut self, file: FileId, layout: Layout, size: u64) -> Result<(), Errno> {
        let fragments = self.grown_map(file, &layout, size)?;
        self.put_fragments(file, &fragments)?;
        self.set_layout(file, layout)
    }

    /// The block map of the file as it is once it has this layout, with columns that were added at byte `size`. EINVAL
    /// when there is no such map.
    pub(crate) fn grown_map(
        &self,
        file: FileId,
        layout: &Layout,
        size: u64,
    ) -> Result<Vec<Fragment>, Errno> {
        let before = self.inode(file)?.regular().ok_or(Errno::EINVAL)?.layout.width();
        let unit = size.div_ceil(layout.unit_bytes.into());
        let mut fragments = Vec::new();
        for fragment in self.fragments(file, 0, FRAGMENTS_MAX)?.1 {
            // The last one was open to the end; nothing is in it from here on.
            let units = unit.saturating_sub(fragment.unit).min(fragment.units);
            fragments.extend((units > 0).then_some(Fragment { units, ..fragment }));
        }
        let (units, width) = (u64::MAX - unit, (layout.width() - before) as u8);
        fragments.push(Fragment { unit, units, column: before, width, object_unit: 0 });
        match BlockMap::new(layout, &fragments).is_valid() {
            true => Ok(fragments),
            false => Err(Errno::EINVAL),
        }
    }

    /// The file has this block map, and no fragment beside it.
    pub(crate) fn put_fragments(
        &mut self,
        file: FileId,
        fragments: &[Fragment],
    ) -> Result<(), Errno> {
        for before in self.fragments(file, 0, FRAGMENTS_MAX)?.1 {
            self.delete(keys::fragment(file, before.unit));
        }
        for fragment in fragments {
            self.put(keys::fragment(file, fragment.unit), encoded(fragment));
        }
        Ok(())
    }
}

/// The layout with columns on more disks. EINVAL when there are none or too many.
pub(crate) fn with_homes(layout: &Layout, epoch: u32, more: &[Home]) -> Result<Layout, Errno> {
    layout.with_columns(epoch, more).filter(|_| !more.is_empty()).ok_or(Errno::EINVAL)
}
