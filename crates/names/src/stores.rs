//! The disks that new blocks go to, and in which order.
//!
//! A server announces its disks; a file gets a column on each of them, up to the most that a layout has. Where a column
//! is stands in the layout, so that nothing moves when disks or servers are added. A server that is to be taken away is
//! *retired*: it keeps what it has and gets nothing new. Managers tell each other which ones are, so that one that
//! joins or was away knows.

use crate::keys::{self, Table};
use crate::manager::{Manager, Origin};
use crate::permissions::Who;
use crate::record::{Inode, Retired};
use crate::transaction::{Effect, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::Append;
use wire::field::{Field, encoded};
use wire::{BlockMap, Decoder, Errno, Home, NodeId, Placement, Wall};

impl Manager {
    /// The servers that are retired, for other managers.
    pub(crate) fn retired(&self) -> Result<Retired, Errno> {
        self.read(0, |t| {
            let servers = t.retired()?.into_iter().collect();
            Ok(Retired { version: t.retirements()?, servers })
        })
    }

    /// Takes over what another manager says where that knows more.
    pub(crate) fn hear_retired(
        &mut self,
        heard: &Retired,
        now: Wall,
    ) -> Result<Option<Append>, Errno> {
        if heard.version <= self.retired()?.version {
            return Ok(None);
        }
        Ok(self.change(Origin { client: 0, now }, |t| t.hear_retired(heard))?.1)
    }

    /// Of at most `count` files of a site after the one with this key: how many have bytes on these disks, one bit
    /// each; and the key of the last, if there may be more.
    pub(crate) fn files_on(
        &self,
        disks: &BTreeMap<NodeId, u32>,
        site: u8,
        after: Option<&[u8]>,
        count: usize,
    ) -> Result<(u64, Option<Vec<u8>>), Errno> {
        let prefix = keys::table(site, Table::Inode);
        let end = [site, Table::Inode as u8 + 1];
        let start = after.map_or(Bound::Included(&prefix[..]), Bound::Excluded);
        let records = self.store.range((start, Bound::Excluded(&end[..])), count);
        let records = records.map_err(|_| Errno::EIO)?;
        let is_on = |value: &[u8]| {
            let inode = Inode::take(&mut Decoder::new(value)).ok()?;
            let layout = inode.regular()?.layout;
            let map = BlockMap::new(&layout, &[]);
            let mut columns = (0..layout.width()).zip(layout.homes());
            Some(columns.any(|(column, Home { server, disk })| {
                let is_gone = disks.get(&server).is_some_and(|bits| bits >> disk & 1 == 1);
                let by_formula = layout.placement == Placement::Formula;
                is_gone && (!by_formula || map.object_bytes(column, inode.attr.size) > 0)
            }))
        };
        let found = records.iter().filter(|(_, value)| is_on(value) == Some(true)).count() as u64;
        let last = records.last().filter(|_| records.len() == count);
        Ok((found, last.map(|(key, _)| key.to_vec())))
    }
}

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
        let version = self.retirements()? + 1;
        self.put(keys::retirements(), encoded(&version));
        Ok(())
    }

    /// How often servers were retired, or taken back: it tells which manager knows more.
    fn retirements(&self) -> Result<u32, Errno> {
        let version = self.record(&keys::retirements())?;
        // Stores of before it was counted.
        version.map_or_else(|| Ok(u32::from(!self.retired()?.is_empty())), Ok)
    }

    /// Another manager knows more.
    fn hear_retired(&mut self, heard: &Retired) -> Result<(), Errno> {
        let (known, servers) =
            (self.retired()?, BTreeSet::from_iter(heard.servers.iter().copied()));
        for server in known.symmetric_difference(&servers) {
            let retired = servers.contains(server);
            match retired {
                true => self.put(keys::retired(*server), encoded(&retired)),
                false => self.delete(keys::retired(*server)),
            }
            self.effect(Effect::Retired(*server, retired));
        }
        self.put(keys::retirements(), encoded(&heard.version));
        Ok(())
    }

    /// The servers that are retired.
    pub(crate) fn retired(&self) -> Result<BTreeSet<NodeId>, Errno> {
        let all = self.scan(&keys::table(0, Table::Retired), None, usize::MAX)?;
        all.iter().map(|(key, _)| keys::retired_of(key).ok_or(Errno::EIO)).collect()
    }
}
