//! A snapshot: the store as it was at one moment, read a few keys at a time while changes go on, for a backup.
//!
//! It is a read transaction of the checkpoint, and what was not in it yet. It belongs to its store, because it ends
//! when the database is opened anew, after an error or for a scrub: what it reads could have been written over then.

use super::{Entry, Store};
use crate::error::StoreError;
use crate::limits::SNAPSHOTS_MAX;
use crate::overlay::{Bounds, Bytes, Merged, Overlay};
use redb::ReadOnlyTable;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// One moment of the store.
pub(crate) struct Moment {
    table: ReadOnlyTable<Bytes, Bytes>,
    active: Overlay,
    frozen: Option<Arc<Overlay>>,
}

/// All moments that are being read.
#[derive(Default)]
pub(crate) struct Moments {
    next: u64,
    all: BTreeMap<u64, Moment>,
}

impl Moments {
    /// They end.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}

impl Store {
    /// Begins a snapshot of what is applied now; its number. The changes that are not in the checkpoint are copied, so
    /// that it is best begun after one. The oldest of [`SNAPSHOTS_MAX`] ends for a new one.
    pub fn snapshot_begin(&mut self) -> Result<u64, StoreError> {
        let table = self.base.table().map_err(|error| self.read_failed(error))?;
        let moment = Moment { table, active: self.active.clone(), frozen: self.frozen.clone() };
        let moments = &mut *self.moments.borrow_mut();
        moments.next += 1;
        moments.all.insert(moments.next, moment);
        if moments.all.len() > SNAPSHOTS_MAX {
            moments.all.pop_first();
        }
        Ok(moments.next)
    }

    /// The keys of a snapshot behind `after`, with their values, of at least `bytes` bytes or all that are left; `None`
    /// when it has ended.
    pub fn snapshot_read(
        &self,
        snapshot: u64,
        after: Option<&[u8]>,
        bytes: usize,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let moments = self.moments.borrow();
        let Some(moment) = moments.all.get(&snapshot) else { return Ok(None) };
        let bounds = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (mut entries, mut taken) = (Vec::new(), 0);
        let read = moment.scan(bounds, |key, value| {
            taken += key.len() + value.len();
            entries.push((key.to_vec(), value.to_vec()));
            if taken < bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        drop(moments);
        match read {
            Ok(()) => Ok(Some(entries)),
            Err(error) => Err(self.read_failed(self.base.failed("read", error.into()))),
        }
    }

    /// A snapshot is not needed any more.
    pub fn snapshot_end(&mut self, snapshot: u64) {
        self.moments.borrow_mut().all.remove(&snapshot);
    }
}

impl Moment {
    fn scan(
        &self,
        bounds: Bounds<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), redb::StorageError> {
        let entries = self.table.range::<&[u8]>(bounds)?;
        Merged::new(&self.active, self.frozen.as_deref(), bounds).over(entries, &mut visit)
    }
}
