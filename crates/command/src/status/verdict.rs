//! Whether all is well: one line for people and an exit code for monitors.

use super::ask_once;
use super::show::state;
use crate::cli;
use members::Roles;
use serde_json::json;
use std::collections::BTreeMap;
use terminal::table::print_json;
use trapeze::ask::Told;
use trapeze::size::Size;
use trapeze::status::report::CopiesAt;

/// Not all is well. It was said already: only the exit code is left.
#[derive(Debug, thiserror::Error)]
#[error("not all is well")]
pub struct NotWell;

/// Room on disks, each real disk counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All.
    pub total_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

impl Room {
    /// Of all that told. Directories on one file system of one machine share its room.
    pub fn of(told: &[Told]) -> Room {
        let mut real: BTreeMap<(u64, u64), Room> = BTreeMap::new();
        let mut sum = Room::default();
        for report in told.iter().filter_map(Told::report) {
            for disk in &report.disks {
                let room = Room { total_bytes: disk.total_bytes, free_bytes: disk.free_bytes };
                match (report.machine, disk.device) {
                    // A release that did not tell: counted by itself.
                    (0, _) | (_, 0) => sum.add(room),
                    place => drop(real.insert(place, room)),
                }
            }
        }
        real.into_values().for_each(|room| sum.add(room));
        sum
    }

    fn add(&mut self, more: Room) {
        self.total_bytes += more.total_bytes;
        self.free_bytes += more.free_bytes;
    }
}

/// Problems, each in a few words; none when all is well.
pub fn troubles(told: &[Told]) -> Vec<String> {
    let mut troubles = Vec::new();
    for one in told.iter().filter(|one| one.member.roles.is_server() && !one.member.gone) {
        let name = &one.member.name;
        let [state, lease] = state(one);
        if state != "up" {
            troubles.push(format!("{name} is {state} {lease}").trim_end().to_string());
        }
        let Some(report) = one.report() else { continue };
        for (number, disk) in report.disks.iter().enumerate() {
            let known_lost = one.member.gone_disks >> number & 1 == 1;
            if disk.state != "serving" && !known_lost {
                troubles.push(format!("disk {number} of {name}: {}", disk.state));
            }
        }
        troubles.extend(report.problems.iter().map(|problem| format!("{name}: {problem}")));
    }
    troubles.extend(told.iter().filter_map(origin));
    if let (all, lacking @ 1..) = groups(told) {
        troubles.push(format!("{lacking} of {all} groups of disks lack a copy"));
    }
    troubles
}

/// The origin of an importer, when it is away.
fn origin(one: &Told) -> Option<String> {
    let is_own = !one.member.roles.is_server(); // a server's problems are told with it
    let problem = one.report().filter(|_| is_own)?.import.as_ref()?.problem()?;
    Some(format!("{}: {problem}", one.member.name))
}

/// The one line.
pub fn line(told: &[Told], troubles: &[String]) -> String {
    let Room { total_bytes, free_bytes } = Room::of(told);
    let servers = told.iter().filter(|one| one.member.roles.is_server() && !one.member.gone);
    let clients = told.iter().filter(|one| one.member.roles.contains(Roles::CLIENT)).count();
    let lost: Vec<String> = told.iter().filter_map(gone).collect();
    let lost = match lost.is_empty() {
        true => String::new(),
        false => format!("; gone for good: {}{}", lost.join(", "), files_gone(told)),
    };
    match troubles {
        [] => format!(
            "all is well: {} servers, {clients} clients, {} free of {}{lost}",
            servers.count(),
            Size(free_bytes),
            Size(total_bytes)
        ),
        some => format!("NOT WELL: {}{lost}", some.join("; ")),
    }
}

/// Groups of disks that keep the same bytes, and how many of them lack a copy, or cannot be known to have two: a server
/// that has just died is still counted on, and one that has just started has not compared what it has.
pub fn groups(told: &[Told]) -> (u64, u64) {
    let Some(keeper) = told.iter().filter_map(Told::report).max_by_key(|report| report.groups)
    else {
        return (0, 0);
    };
    let uncertain: u64 = keeper.copies_at.iter().map(|copies| uncertain(told, copies)).sum();
    (keeper.groups, (keeper.groups_lacking + uncertain).min(keeper.groups))
}

fn uncertain(told: &[Told], copies: &CopiesAt) -> u64 {
    let server = told.iter().find(|one| one.member.id.0 == copies.node);
    let whole = server.and_then(Told::report).map_or(0, |report| report.whole_copies);
    copies.groups.saturating_sub(whole)
}

/// Files with a part on what is gone, as the manager has counted them.
pub fn gone_files(told: &[Told]) -> u64 {
    told.iter().filter_map(Told::report).map(|report| report.gone_files).max().unwrap_or(0)
}

fn files_gone(told: &[Told]) -> String {
    match gone_files(told) {
        0 => String::new(),
        count => format!(" ({count} files have a part there: trapeze forget --files NAME)"),
    }
}

fn gone(told: &Told) -> Option<String> {
    let member = &told.member;
    if member.gone {
        return Some(member.name.clone());
    }
    let disks = (0..32).filter(|disk| member.gone_disks >> disk & 1 == 1);
    let disks: Vec<String> = disks.map(|disk| disk.to_string()).collect();
    (!disks.is_empty()).then(|| format!("disk {} of {}", disks.join(" and "), member.name))
}

/// `trapeze health`: says nothing when all is well.
pub fn health(target: &cli::Target) -> Result<(), Box<dyn std::error::Error>> {
    let told = ask_once(target)?;
    let troubles = troubles(&told);
    if target.json {
        print_json(&json!({ "well": troubles.is_empty(), "troubles": troubles }));
    } else if !troubles.is_empty() {
        println!("{}", line(&told, &troubles));
    }
    if troubles.is_empty() { Ok(()) } else { Err(NotWell.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests;
    use trapeze::status::report::{Disk, Report};
    use wire::Errno;

    fn server(id: u16, machine: u64, devices: &[u64]) -> Told {
        let disk = |device: &u64| Disk {
            state: "serving".into(),
            total_bytes: 100,
            free_bytes: 40,
            device: *device,
            ..Disk::default()
        };
        let disks = devices.iter().map(disk).collect();
        let report = Report { machine, disks, ..Report::default() };
        tests::told(id, &format!("io{id}"), Some(Ok(report)))
    }

    #[test]
    fn a_real_disk_is_counted_once_however_many_directories_are_on_it() {
        let told = [server(1, 7, &[5, 5]), server(2, 7, &[5, 6]), server(3, 8, &[5])];
        assert_eq!(Room::of(&told), Room { total_bytes: 300, free_bytes: 120 });
        let silent = [server(1, 0, &[5, 5])];
        assert_eq!(Room::of(&silent).total_bytes, 200, "a release that does not tell");
    }

    #[test]
    fn a_copy_at_a_server_that_is_silent_or_has_just_started_does_not_count() {
        let manager = |lacking| {
            let copies_at = [2, 3].map(|node| CopiesAt { node, groups: 5 }).to_vec();
            Report { groups: 8, groups_lacking: lacking, copies_at, ..Report::default() }
        };
        let manager = |lacking| tests::told(1, "manager", Some(Ok(manager(lacking))));
        let server = |id, whole_copies| {
            tests::told(id, "io", Some(Ok(Report { whole_copies, ..Report::default() })))
        };
        let silent = |id| tests::told(id, "io", Some(Err(Errno::ETIMEDOUT)));
        assert_eq!(groups(&[manager(0), server(2, 5), server(3, 5)]), (8, 0));
        assert_eq!(groups(&[manager(0), server(2, 5), server(3, 6)]), (8, 0), "one is admitted");
        assert_eq!(groups(&[manager(1), server(2, 5), server(3, 3)]), (8, 3));
        assert_eq!(groups(&[manager(0), silent(2), server(3, 5)]), (8, 5));
        assert_eq!(groups(&[manager(0), silent(2), silent(3)]), (8, 8));
        assert_eq!(groups(&[server(2, 5), server(3, 5)]), (0, 0), "no manager among them");
    }

    #[test]
    fn the_line_names_what_is_wrong_and_what_is_gone() {
        let well = [server(1, 7, &[5])];
        assert!(troubles(&well).is_empty());
        let text = line(&well, &[]);
        assert!(text.starts_with("all is well: 1 servers, 0 clients, 40"), "{text}");
        let mut bad = [server(1, 7, &[5, 6]), server(2, 7, &[5]), server(3, 7, &[5])];
        bad[1].report = Some(Err(Errno::ETIMEDOUT));
        (bad[2].member.gone, bad[2].member.alive) = (true, false);
        bad[0].member.gone_disks = 1;
        if let Some(Ok(report)) = &mut bad[0].report {
            report.disks[0].state = "missing".into();
            report.disks[1].state = "damaged".into();
        }
        let troubles = troubles(&bad);
        assert_eq!(troubles[0], "disk 1 of io1: damaged");
        assert!(troubles[1].starts_with("io2 is no answer: timed out"), "{troubles:?}");
        assert_eq!(troubles.len(), 2);
        assert!(line(&bad, &troubles).ends_with("gone for good: disk 0 of io1, io3"));
        if let Some(Ok(report)) = &mut bad[0].report {
            report.gone_files = 7;
        }
        assert!(line(&bad, &troubles).contains("io3 (7 files have a part there: trapeze forget"));
    }
}
