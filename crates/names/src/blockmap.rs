//! Block maps: where the stripe units of a file are that a formula cannot place.
//!
//! A fragment says where consecutive units are; units without one are where the formula says. Clients cache fragments
//! under the layout's epoch; a change of placement has a new epoch, which every object knows before anybody is told.

use crate::field::encoded;
use crate::keys::{self, Table};
use crate::limits::FRAGMENTS_MAX;
use crate::permissions::Who;
use crate::record::Fragment;
use crate::transaction::Transaction;
use wire::{Errno, FileId, Layout, Placement};

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
        let (prefix, count) = (keys::about(file, Table::Fragment), count.min(FRAGMENTS_MAX));
        let start = self.covering(file, unit)?.map_or(unit, |fragment| fragment.unit);
        let after = start.checked_sub(1).map(|before| keys::fragment(file, before));
        let found = self.scan(&prefix, after.as_deref(), count)?;
        let fragments = found.iter().map(|(_, value)| Self::decoded(value));
        Ok((layout.epoch, fragments.collect::<Result<_, _>>()?))
    }

    /// The fragment that covers `unit`.
    fn covering(&self, file: FileId, unit: u64) -> Result<Option<Fragment>, Errno> {
        let prefix = keys::about(file, Table::Fragment);
        let end = keys::fragment(file, unit.saturating_add(1));
        let mut last = None;
        let visit = |_: &[u8], value: &[u8]| {
            last = Some(value.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        self.store.scan(&prefix[..]..&end[..], visit).map_err(|_| Errno::EIO)?;
        let fragment: Option<Fragment> = last.map(|value| Self::decoded(&value)).transpose()?;
        Ok(fragment.filter(|found| unit < found.unit + u64::from(found.units)))
    }

    /// The layout that a change of placement would have: the next epoch. The service sets it on every object, then
    /// [`set_placement`](Transaction::set_placement) commits it. Only root, which is who moves blocks, may.
    pub fn next_layout(
        &self,
        who: &Who<'_>,
        file: FileId,
        columns: &[wire::NodeId],
    ) -> Result<Layout, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let inode = self.inode(file)?;
        let layout = inode.regular().ok_or(Errno::EINVAL)?.layout;
        let epoch = layout.epoch.checked_add(1).ok_or(Errno::EOVERFLOW)?;
        if !columns.starts_with(layout.servers()) {
            return Err(Errno::EINVAL);
        }
        let mut next = Layout::new(epoch, layout.unit_bytes, columns).ok_or(Errno::EINVAL)?;
        next.copies = layout.copies;
        next.placement = Placement::Map;
        Ok(next)
    }

    /// From now on the file has this layout, and these units are where the fragments say.
    pub fn set_placement(
        &mut self,
        file: FileId,
        layout: Layout,
        fragments: &[Fragment],
    ) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        let regular = inode.regular_mut().ok_or(Errno::EINVAL)?;
        if layout.epoch != regular.layout.epoch + 1 {
            return Err(Errno::EAGAIN);
        }
        regular.layout = layout;
        regular.has_objects = true;
        inode.touch(self.now);
        self.put_inode(&inode);
        for fragment in fragments {
            self.place(file, layout, *fragment)?;
        }
        Ok(())
    }

    fn place(&mut self, file: FileId, layout: Layout, fragment: Fragment) -> Result<(), Errno> {
        let end = fragment.unit.checked_add(fragment.units.into()).ok_or(Errno::EINVAL)?;
        if fragment.units == 0 || fragment.column >= layout.width() {
            return Err(Errno::EINVAL);
        }
        // A fragment may replace one of the same extent; what overlaps otherwise must be moved as it lies.
        let same = |other: Fragment| (other.unit, other.units) == (fragment.unit, fragment.units);
        let (_, found) = self.fragments(file, fragment.unit, 1)?;
        if found.iter().any(|other| other.unit < end && !same(*other)) {
            return Err(Errno::EINVAL);
        }
        self.put(keys::fragment(file, fragment.unit), encoded(&fragment));
        Ok(())
    }
}
