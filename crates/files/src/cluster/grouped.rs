//! Groups as places for the columns of new files.

use members::groups::{Group, Replica, Table};
use names::IoServer;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Home, NodeId};

/// Groups as the manager takes them: each as a server with one disk.
#[derive(Debug)]
pub(super) struct Grouped {
    pub servers: Vec<IoServer>,
    /// Disks that those which take new files are on.
    pub disks: usize,
}

/// The groups that new files go to: the first that each disk leads, then the second of each, and so on, so that
/// adjacent ones, as in a file, are led by different disks where that is possible.
pub(super) fn grouped_servers(table: &Table) -> Grouped {
    let is_whole = |group: &Group| group.lacks() == 0;
    let any_whole = table.iter().any(|(_, group)| is_whole(group));
    let mut led: BTreeMap<Replica, usize> = BTreeMap::new();
    let (mut turns, mut disks) = (Vec::new(), BTreeSet::<Replica>::new());
    for (id, group) in table.iter() {
        let retired = any_whole && !is_whole(group);
        let turn = led.entry(group.primary()).or_default();
        if !retired {
            disks.extend(group.replicas().iter().copied());
        }
        let server = IoServer { id: Home::from(id).server, disks: 1, retired };
        turns.push((retired, *turn, group.primary(), server));
        *turn += usize::from(!retired);
    }
    turns.sort_by_key(|(retired, turn, primary, server)| (*retired, *turn, *primary, server.id));
    let servers = turns.into_iter().map(|(_, _, _, server)| server).collect();
    Grouped { servers, disks: disks.len() }
}

/// The ids by which layouts name columns that a server keeps: its own, and those of the groups of its replicas.
pub(super) fn homes_at(table: &Table, server: NodeId) -> BTreeSet<NodeId> {
    let is_there = |group: &Group| group.replicas().iter().any(|replica| replica.server == server);
    let groups = table.iter().filter(|(_, group)| is_there(group));
    groups.map(|(id, _)| Home::from(id).server).chain([server]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use members::groups::{Change, Disk, Plan, Shape, Step};

    /// A cluster's groups, as they are made for so many servers with so many disks.
    fn groups_of(servers: u16, disks: u8) -> Table {
        let each = (1..=servers).flat_map(|server| (0..disks).map(move |disk| (server, disk)));
        let disk = |(server, disk): (u16, u8)| Disk {
            replica: Replica {
                server: NodeId(server),
                disk,
                id: u64::from(server) << 8 | u64::from(disk),
            },
            machine: server.into(),
            rack: 0,
            weight: 1,
            takes: true,
            leaves: false,
        };
        let disks: Vec<Disk> = each.map(disk).collect();
        let shape = Shape { copies: 2, per_disk: 32, moves_max: 1 };
        let mut table = Table::default();
        for step in Plan::new(shape, &disks, &table).steps(10_000) {
            match step {
                Step::Make(id, group) => table.insert(id, group),
                Step::Change(id, epoch, change) => {
                    let by = table.get(id).map(|group| group.primary());
                    let by = by.filter(|_| change.is_of_replicas());
                    table.change(id, by, epoch, change).expect("a plan's steps can be made");
                }
            }
        }
        table
    }

    /// The disks that lead the groups, in the order of these.
    fn leads(table: &Table, grouped: &Grouped) -> Vec<Replica> {
        let lead = |server: &IoServer| {
            let group = table.get(Home::from(server.id).into()).expect("a group");
            group.primary()
        };
        grouped.servers.iter().map(lead).collect()
    }

    #[test]
    fn a_file_has_a_column_for_each_disk_and_none_leads_two_of_them() {
        for (servers, disks) in [(2, 1), (3, 1), (4, 1), (2, 3), (5, 2)] {
            let table = groups_of(servers, disks);
            let grouped = grouped_servers(&table);
            let all = usize::from(servers) * usize::from(disks);
            assert_eq!((grouped.servers.len(), grouped.disks), (table.len(), all));
            let leads = leads(&table, &grouped);
            let led = |disk: &Replica| leads.iter().filter(|lead| *lead == disk).count();
            // So often each has its turn; some lead a group or two more.
            let turns = leads.iter().map(led).min().expect("some groups");
            assert!(turns * all * 4 >= leads.len() * 3, "{turns} turns of {all} disks");
            for row in leads[..turns * all].windows(all) {
                assert_eq!(row.iter().collect::<BTreeSet<_>>().len(), all, "{servers}, {disks}");
            }
        }
    }

    #[test]
    fn a_server_keeps_columns_by_its_own_id_and_by_those_of_its_groups() {
        let table = groups_of(3, 1);
        let all = (1..=3).map(|server| homes_at(&table, NodeId(server)));
        let all: Vec<BTreeSet<NodeId>> = all.collect();
        for (server, homes) in (1..).zip(&all) {
            assert!(homes.contains(&NodeId(server)) && homes.len() > table.len() / 3, "{homes:?}");
        }
        // Each group has two replicas.
        assert_eq!(all.iter().map(|homes| homes.len() - 1).sum::<usize>(), 2 * table.len());
        assert_eq!(homes_at(&Table::default(), NodeId(1)), BTreeSet::from([NodeId(1)]));
    }

    #[test]
    fn groups_that_lack_a_copy_get_no_new_files_while_others_are_whole() {
        let mut table = groups_of(4, 1);
        let gone = NodeId(2);
        let ids: Vec<_> = table.iter().map(|(id, _)| id).collect();
        for id in ids {
            let group = table.get(id).expect("a group").clone();
            let Some(lost) = group.in_sync().find(|replica| replica.server == gone) else {
                continue;
            };
            let by = group.in_sync().find(|replica| replica.server != gone);
            table.change(id, by, group.epoch(), Change::Remove(lost)).expect("one that stays");
        }
        let grouped = grouped_servers(&table);
        let retired = grouped.servers.iter().filter(|server| server.retired).count();
        let lacking = table.iter().filter(|(_, group)| group.lacks() > 0).count();
        assert_eq!((retired, grouped.disks), (lacking, 3));
        assert!(lacking > 0 && lacking < table.len());
    }
}
