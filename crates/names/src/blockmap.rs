//! Changes of layout: more columns for what is yet to be written, a column on another server; and the block map.
//!
//! A fragment says where a range of units is; units without one are where the formula says. Clients cache the map under
//! the layout's epoch. A change has three steps: the *fence*, the new epoch, is in the log; every object has that
//! epoch, so that nobody who goes by the old layout reads or writes any more; the new layout is in the log. Between
//! the first and the last the fence is above the layout's epoch, and if the manager or the change dies there, the
//! next who asks for the file makes it whole again with the old placement and one more epoch.

use crate::field::encoded;
use crate::keys::{self, Table};
use crate::limits::FRAGMENTS_MAX;
use crate::permissions::Who;
use crate::transaction::Transaction;
use wire::{BlockMap, Errno, FileId, Fragment, Home, Layout};

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

    /// Whether a change of the file's layout is under way, or was given up in the middle.
    pub fn is_fenced(&self, file: FileId) -> Result<bool, Errno> {
        let inode = self.inode(file)?;
        Ok(inode.regular().is_some_and(|regular| regular.fence > regular.layout.epoch))
    }

    /// The epoch that the objects are to be given next. Only root, which is who moves blocks, may.
    pub fn fence(&mut self, who: &Who<'_>, file: FileId) -> Result<u32, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        let epoch = regular.fence.max(regular.layout.epoch).checked_add(1);
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

    /// As [`set_layout`](Transaction::set_layout) with columns that were added: everything from byte `size` on is in
    /// them, in turns.
    pub fn set_columns(&mut self, file: FileId, layout: Layout, size: u64) -> Result<(), Errno> {
        let before = self.inode(file)?.regular().ok_or(Errno::EINVAL)?.layout.width();
        let unit = size.div_ceil(layout.unit_bytes.into());
        let (_, before_it) = self.fragments(file, 0, FRAGMENTS_MAX)?;
        let mut fragments = Vec::new();
        for fragment in before_it {
            // The last one was open to the end; nothing is in it from here on.
            self.delete(keys::fragment(file, fragment.unit));
            let units = unit.saturating_sub(fragment.unit).min(fragment.units);
            fragments.extend((units > 0).then_some(Fragment { units, ..fragment }));
        }
        let width = (layout.width() - before) as u8;
        let units = u64::MAX - unit;
        fragments.push(Fragment { unit, units, column: before, width, object_unit: 0 });
        if !BlockMap::new(&layout, &fragments).is_valid() {
            return Err(Errno::EINVAL);
        }
        for fragment in fragments {
            self.put(keys::fragment(file, fragment.unit), encoded(&fragment));
        }
        self.set_layout(file, layout)
    }
}

/// The layout with columns on more disks. EINVAL when there are none or too many.
pub(crate) fn with_homes(layout: &Layout, epoch: u32, more: &[Home]) -> Result<Layout, Errno> {
    layout.with_columns(epoch, more).filter(|_| !more.is_empty()).ok_or(Errno::EINVAL)
}
