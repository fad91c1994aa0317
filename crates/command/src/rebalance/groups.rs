//! `trapeze rebalance` where files are kept by groups of disks: the manager spreads them, and this shows how far it is.
//!
//! Which disks are to be emptied stands in the members' record, so a run that was killed is repeated to see the end.

use super::Result;
use crate::cli;
use crate::tools::ToolError;
use members::groups::{Group, Replica, Table as Groups};
use members::{Emptied, Empty, Member, Planned, is_silence};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use terminal::progress;
use terminal::table::{Table, print_json};
use trapeze::ask::{self, Told};
use trapeze::client::Reach;
use trapeze::size::Size;
use trapeze::volume::{Volume, VolumeError};
use wire::NodeId;

/// How often it is asked how far the manager is.
const PAUSE: Duration = Duration::from_millis(300);
/// Looks that must find nothing left to do, one after the other: a plan is made a second after a change.
const LOOKS: u32 = 5;

/// From now on the manager moves groups off the server's disks, or gives them their share again.
pub fn mark(volume: &mut Volume, member: &Member, disk: Option<u8>, emptied: bool) -> Result<()> {
    let disks = disk.map_or(u32::MAX, |disk| 1 << disk);
    Ok(volume.empty(Empty { id: member.id, disks, emptied })?)
}

/// Counts of what is left until the groups are where they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    /// Groups that lack a copy.
    lacking: usize,
    /// Replicas that are being filled.
    filling: usize,
    /// Replicas on disks that are to be emptied.
    leaving: usize,
    /// Groups whose primaries are to hand over.
    hand_overs: usize,
}

impl Left {
    fn of(planned: &Planned, table: &Groups) -> Left {
        let all = || table.iter().map(|(_, group)| group);
        let each = |which: &dyn Fn(&Group, Replica) -> bool| {
            let count = |group: &Group| {
                group.replicas().iter().filter(|replica| which(group, **replica)).count()
            };
            all().map(count).sum()
        };
        Left {
            lacking: all().filter(|group| group.lacks() > 0).count(),
            filling: each(&|group, replica| !group.is_in_sync(replica)),
            leaving: each(&|_, replica| is_emptied(&planned.emptied, replica.server, replica.disk)),
            hand_overs: planned.hand_overs as usize,
        }
    }

    fn count(self) -> usize {
        self.filling.max(self.lacking) + self.leaving + self.hand_overs
    }
}

fn is_emptied(emptied: &[Emptied], server: NodeId, disk: u8) -> bool {
    let of = emptied.iter().find(|it| it.id == server).map_or(0, |it| it.disks);
    of >> disk & 1 == 1
}

/// Waits until the manager has no group left to move, and shows how they are spread.
pub fn wait(
    arguments: &cli::Rebalance,
    volume: &mut Volume,
    names: BTreeMap<NodeId, String>,
) -> Result<()> {
    check(arguments)?;
    let bar = progress::counted("groups to move");
    let mut looks = 0;
    let (planned, table) = loop {
        let asked = match volume.planned() {
            // The manager is being started anew.
            Err(VolumeError::File { errno, .. }) if is_silence(errno) => {
                looks = 0;
                volume.pause(PAUSE)?;
                continue;
            }
            asked => asked?,
        };
        let left = Left::of(&asked.0, &asked.1);
        bar.set_position(left.count() as u64);
        // Moves that are under way end; where there are none, the rest cannot be moved now.
        let is_at_rest = asked.0.is_settled && left.filling == 0 && left.hand_overs == 0;
        let is_stuck = asked.0.is_settled && is_stuck(volume, &asked.1);
        looks = if is_at_rest || is_stuck { looks + 1 } else { 0 };
        if looks >= LOOKS {
            break asked;
        }
        volume.pause(PAUSE)?;
    };
    bar.finish_and_clear();
    show(arguments, &names, &planned, &table)?;
    match Left::of(&planned, &table) {
        left if left.count() == 0 => Ok(()),
        left => Err(ToolError::Usage(stuck_text(volume, left))),
    }
}

/// Whether all replicas that are being filled are on servers that are down.
fn is_stuck(volume: &Volume, table: &Groups) -> bool {
    let members = volume.server_members();
    let is_down =
        |server: NodeId| members.iter().any(|member| member.id == server && !member.alive);
    let unfilled = |group: &Group| {
        let all = group.replicas().iter().filter(|replica| !group.is_in_sync(**replica));
        all.copied().collect::<Vec<_>>()
    };
    let mut all = table.iter().flat_map(|(_, group)| unfilled(group)).peekable();
    all.peek().is_some() && all.all(|replica| is_down(replica.server))
}

fn stuck_text(volume: &Volume, left: Left) -> String {
    let members = volume.server_members();
    let down = members.iter().filter(|member| !member.alive && !member.gone);
    let down: Vec<&str> = down.map(|member| member.name.as_str()).collect();
    let mut text = format!(
        "{} groups lack a copy and {} have one on a disk that is to be emptied, and there is no other place for it now",
        left.lacking, left.leaving
    );
    if !down.is_empty() {
        text += &format!(
            ". Down: {}: start it; one that is gone for good: trapeze forget NAME; else others take its place ten minutes \
             after it went down",
            down.join(", ")
        );
    } else {
        text += ": each copy of a group is on a server of its own, so add a server, or name one with --back";
    }
    text
}

/// Refuses what is about columns of files.
fn check(arguments: &cli::Rebalance) -> Result<()> {
    let of_columns = [
        (arguments.path != Path::new("/"), "path"),
        (arguments.widen, "--widen"),
        (arguments.rate.0 > 0, "--rate"),
    ];
    match of_columns.into_iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, what)) => Err(ToolError::Usage(format!(
            "this cluster keeps copies: whole groups of disks are moved, so rebalance takes no {what}"
        ))),
    }
}

/// The replicas of groups on a disk.
#[derive(Clone, Copy, Debug, Default)]
struct GroupsOnDisk {
    groups: usize,
    primaries: usize,
    filling: usize,
}

fn show(
    arguments: &cli::Rebalance,
    names: &BTreeMap<NodeId, String>,
    planned: &Planned,
    table: &Groups,
) -> Result<()> {
    let mut held: BTreeMap<(NodeId, u8), GroupsOnDisk> = BTreeMap::new();
    for (_, group) in table.iter() {
        for replica in group.replicas() {
            let held = held.entry((replica.server, replica.disk)).or_default();
            held.groups += 1;
            held.primaries += usize::from(group.primary() == *replica);
            held.filling += usize::from(!group.is_in_sync(*replica));
        }
    }
    let told = ask::ask_once(&Reach::from(&arguments.target.cluster))?;
    // Also those that have nothing.
    for told in &told {
        let disks = told.report().map_or(0, |report| report.disks.len());
        for disk in 0..disks as u8 {
            held.entry((told.member.id, disk)).or_default();
        }
    }
    let mut shown = Table::new(&["server", "disk", "groups", "primaries", "filling", "holds", ""]);
    for ((server, disk), held) in held {
        let name = names.get(&server).cloned().unwrap_or_else(|| server.to_string());
        let bytes = bytes_on(&told, server, disk);
        let is_emptied = is_emptied(&planned.emptied, server, disk);
        let GroupsOnDisk { groups, primaries, filling } = held;
        if arguments.target.json {
            print_json(&json!({
                "server": name, "disk": disk, "groups": groups, "primaries": primaries,
                "filling": filling, "bytes": bytes, "emptied": is_emptied,
            }));
            continue;
        }
        let counts = [groups, primaries, filling].map(|count| count.to_string());
        let [groups, primaries, filling] = counts;
        let bytes = bytes.map_or("-".to_string(), |bytes| Size(bytes).to_string());
        let state = match (is_emptied, held.groups) {
            (true, 0) => "empty: may go",
            (true, _) => "to be emptied",
            (false, _) => "",
        };
        let row = [name, disk.to_string(), groups, primaries, filling, bytes, state.to_string()];
        shown.row(&row);
    }
    if !arguments.target.json {
        print!("{}", shown.render());
    }
    Ok(())
}

/// Storage of a disk's objects, as far as its server tells.
fn bytes_on(told: &[Told], server: NodeId, disk: u8) -> Option<u64> {
    let report = told.iter().find(|told| told.member.id == server)?.report()?;
    report.disks.get(usize::from(disk)).map(|disk| disk.held_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use members::groups::GroupId;

    fn disk(server: u16) -> Replica {
        Replica { server: NodeId(server), disk: 0, id: server.into() }
    }

    #[test]
    fn what_is_left_is_counted_by_replica() {
        let mut table = Groups::default();
        let first = GroupId::FIRST;
        table.insert(first, Group::new(2, &[disk(1), disk(2)]).unwrap());
        table.insert(first.next(), Group::new(2, &[disk(2), disk(3)]).unwrap());
        let planned = Planned {
            is_settled: true,
            hand_overs: 1,
            emptied: vec![Emptied { id: NodeId(2), disks: 1 }],
        };
        let left = Left::of(&planned, &table);
        assert_eq!(left, Left { lacking: 0, filling: 0, leaving: 2, hand_overs: 1 });
        let alone = members::groups::Change::Remove(disk(2));
        table.change(first, Some(disk(1)), 1, alone).unwrap();
        let left = Left::of(&Planned::default(), &table);
        assert_eq!(left, Left { lacking: 1, filling: 1, leaving: 0, hand_overs: 0 });
    }
}
