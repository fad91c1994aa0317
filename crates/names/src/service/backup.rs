//! A backup: everything in the stores at one moment, told in parts to who asks for one after the other.

use super::Service;
use super::dispatch::Encoded;
use crate::limits::{BACKUP_PART_BYTES, BACKUP_SPAN};
use crate::objects::Objects;
use crate::permissions::Who;
use crate::protocol::{Part, Row};
use std::rc::Rc;
use store::Entry;
use wire::field::encoded;
use wire::{Errno, Time};

/// One that is under way.
pub(super) struct Backup {
    pub sequence: u64,
    pub lineage: u16,
    pub members: Vec<Entry>,
    pub used: Time,
}

/// The part of a backup beside the names.
pub(super) type Members = Rc<dyn Fn() -> Result<Vec<Entry>, Errno>>;

impl<O: Objects> Service<O> {
    /// A part of a snapshot behind a key, of the names or of the members. ECANCELED: it has ended before its time,
    /// since the store was opened anew; root's.
    pub(super) async fn back_up(
        self: &Rc<Self>,
        who: &Who<'_>,
        snapshot: u64,
        of_members: bool,
        after: &[u8],
    ) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let now = self.cx.now();
        let mut backups = self.backups.borrow_mut();
        let backup = backups.get_mut(&snapshot).ok_or(Errno::ECANCELED)?;
        backup.used = now;
        let after = Some(after).filter(|after| !after.is_empty());
        let entries = match of_members {
            true => members_behind(&backup.members, after),
            false => {
                let mut manager = self.manager.borrow_mut();
                let store = manager.store();
                let read = store.snapshot_read(snapshot, after, BACKUP_PART_BYTES);
                read.map_err(|_| Errno::EIO)?.ok_or(Errno::ECANCELED)?
            }
        };
        let (sequence, lineage) = (backup.sequence, backup.lineage);
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let last = bytes < BACKUP_PART_BYTES;
        let row = |(key, value): Entry| Row { key: key.into(), value: value.into() };
        let rows = entries.into_iter().map(row).collect();
        Ok(encoded(&Part { snapshot, sequence, lineage, rows, last }))
    }

    /// Ends backups that were not asked for any more: they hold on to pages of the database.
    pub(super) fn end_backups(&self) {
        let now = self.cx.now();
        let mut manager = self.manager.borrow_mut();
        self.backups.borrow_mut().retain(|snapshot, backup| {
            let goes_on = backup.used + BACKUP_SPAN > now;
            if !goes_on {
                manager.store().snapshot_end(*snapshot);
            }
            goes_on
        });
    }
}

fn members_behind(members: &[Entry], after: Option<&[u8]>) -> Vec<Entry> {
    let mut bytes = 0;
    let rest = members.iter().filter(|(key, _)| after.is_none_or(|after| &key[..] > after));
    let fits = |(key, value): &&Entry| {
        let fits = bytes < BACKUP_PART_BYTES;
        bytes += key.len() + value.len();
        fits
    };
    rest.take_while(fits).cloned().collect()
}
