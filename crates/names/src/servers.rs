//! I/O servers, as the manager knows them, and the order in which their disks get columns.

use wire::field::fields;
use wire::{Home, NodeId};

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

/// All disks of these servers: the first of each, then the second of each, and so on, so that adjacent ones in the
/// list, as in a file, are on different servers where there are several.
pub fn homes_of(servers: &[IoServer]) -> Vec<Home> {
    let turns = |server: &IoServer| server.homes().enumerate();
    let mut all: Vec<(usize, Home)> = servers.iter().flat_map(turns).collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().map(|(_, home)| home).collect()
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
