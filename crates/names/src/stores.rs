//! The disks that new blocks go to, and in which order.
//!
//! A server announces its disks; a file gets a column on each of them, up to the most that a layout has. Where a column
//! is stands in the layout, so that nothing moves when disks or servers are added. A server that is to be taken away is
//! *retired*: it keeps what it has and gets nothing new.

use crate::keys::{self, Table};
use crate::permissions::Who;
use crate::transaction::{Effect, Transaction};
use std::collections::BTreeSet;
use wire::field::{encoded, fields};
use wire::{Errno, Home, NodeId};

/// An I/O server, as its manager knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoServer {
    /// Its id.
    pub id: NodeId,
    /// Its disks that take objects, one bit each.
    pub disks: u32,
    /// Whether it gets nothing new.
    pub retired: bool,
}
fields!(IoServer { id, disks, retired });

impl From<NodeId> for IoServer {
    /// A server with one disk.
    fn from(id: NodeId) -> IoServer {
        IoServer { id, disks: 1, retired: false }
    }
}

impl IoServer {
    /// Its disks, as places for columns.
    pub fn homes(&self) -> impl Iterator<Item = Home> + use<> {
        let IoServer { id: server, disks, .. } = *self;
        (0..u32::BITS as u8)
            .filter(move |disk| disks >> disk & 1 == 1)
            .map(move |disk| Home { server, disk })
    }
}

/// All disks of these servers: the first of each, then the second of each, and so on, so that neighbours in the list,
/// as neighbours in a file, are on different servers where there are several.
pub fn homes_of(servers: &[IoServer]) -> Vec<Home> {
    let turns = |server: &IoServer| server.homes().enumerate();
    let mut all: Vec<(usize, Home)> = servers.iter().flat_map(turns).collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().map(|(_, home)| home).collect()
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
        Ok(())
    }

    /// The servers that are retired.
    pub(crate) fn retired(&self) -> Result<BTreeSet<NodeId>, Errno> {
        let all = self.scan(&keys::table(0, Table::Retired), None, usize::MAX)?;
        all.iter().map(|(key, _)| keys::retired_of(key).ok_or(Errno::EIO)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_on_different_servers_and_every_disk_has_its_turn() {
        let server = |id, disks| IoServer { disks, ..IoServer::from(NodeId(id)) };
        let homes = homes_of(&[server(1, 0b1), server(2, 0b111), server(3, 0b101)]);
        let numbers: Vec<_> = homes.iter().map(|home| (home.server.0, home.disk)).collect();
        assert_eq!(numbers, [(1, 0), (2, 0), (3, 0), (2, 1), (3, 2), (2, 2)]);
        let array: Vec<_> = (1..=6).map(|id| server(id, 0b1111)).collect();
        let homes = homes_of(&array);
        assert_eq!(homes.len(), 24);
        for six in homes.chunks(6) {
            assert!(six.iter().enumerate().all(|(at, home)| usize::from(home.server.0) == at + 1));
        }
    }
}
