//! The disks that new blocks go to, and in which order.
//!
//! A server announces its disks; a file gets a column on each of them, up to the most that a layout has. Where a column
//! is stands in the layout, so that nothing moves when disks or servers are added. A server that is to be taken away is
//! *retired*: it keeps what it has and gets nothing new.

use crate::keys::{self, Table};
use crate::permissions::Who;
use crate::transaction::{Effect, Transaction};
use std::collections::BTreeSet;
use wire::field::encoded;
use wire::{Errno, NodeId};

impl Transaction<'_> {
    /// From now on the server gets nothing new, or does again. Only root may.
    pub fn retire(&mut self, who: &Who<'_>, server: NodeId, retired: bool) -> Result<(), Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        match retired {
            true => self.put(keys::retired(server), encoded(&retired)),
            false => self.delete(keys::retired(server)),
        }
        self.effect(Effect::Retired(server, retired));
        Ok(())
    }

    /// The servers that are retired.
    pub(crate) fn retired(&self) -> Result<BTreeSet<NodeId>, Errno> {
        let all = self.scan(&keys::table(0, Table::Retired), None, usize::MAX)?;
        all.iter().map(|(key, _)| keys::retired_of(key).ok_or(Errno::EIO)).collect()
    }
}
