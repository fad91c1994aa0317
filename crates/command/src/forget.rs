//! `trapeze forget`: a machine or a disk that is gone for good is declared so.
//!
//! The members' record holds it, and every client learns of it with the view: what was there is an error at once
//! instead of being waited for. Nothing else changes: the files keep their layouts, which say what of them is lost.

use crate::cli;
use crate::tools::{Result, ToolError, close, name_of, volume};
use members::{Forget, Member};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal::table::print_json;
use trapeze::ask;
use trapeze::client::Reach;
use trapeze::size::Size;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, FileKind, NodeId};

/// `trapeze forget`.
pub fn forget(arguments: &cli::Forget) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    if arguments.files {
        let lost = disks_of(&volume, arguments)?;
        list(&mut volume, arguments, &lost)?;
        return close(volume);
    }
    let server = server(&volume, arguments)?;
    if let Some(disk) = arguments.disk {
        check_disk(arguments, &server, disk)?;
    }
    let has_groups = volume.has_groups()?;
    let asked = Forget { id: server.id, disk: arguments.disk };
    volume.forget(asked).map_err(|error| explained(error, arguments))?;
    close(volume)?;
    let what = what_of(arguments);
    if arguments.target.json {
        print_json(
            &json!({ "forgotten": server.name, "node": server.id.0, "disk": arguments.disk }),
        );
    } else if has_groups {
        println!("{what} is gone for good: others take its place, which `trapeze rebalance` shows");
    } else {
        println!("{what} is gone for good: reading what was there is an error (EIO) from now on");
        println!("which files that concerns: trapeze forget --files{}", again(arguments));
    }
    Ok(())
}

fn what_of(arguments: &cli::Forget) -> String {
    match arguments.disk {
        Some(disk) => format!("disk {disk} of {}", arguments.name),
        None => arguments.name.clone(),
    }
}

fn again(arguments: &cli::Forget) -> String {
    let disk = arguments.disk.map(|disk| format!(" --disk {disk}")).unwrap_or_default();
    format!(" -c {} {}{disk}", arguments.target.cluster.cluster, arguments.name)
}

/// The server of this name that was not declared gone.
fn server(volume: &Volume, arguments: &cli::Forget) -> Result<Member> {
    let all = volume.server_members();
    let named = |member: &&Member| member.name == arguments.name;
    let there = all.iter().find(|member| named(member) && !member.gone);
    match there {
        Some(member) => Ok(member.clone()),
        None if all.iter().any(|member| named(&member)) => {
            let text = format!(
                "{} was declared gone before; its files: trapeze forget --files{}",
                arguments.name,
                again(arguments)
            );
            Err(ToolError::Usage(text))
        }
        None => Err(ToolError::Usage(unknown(&all, &arguments.name))),
    }
}

fn unknown(all: &[Member], name: &str) -> String {
    let names: Vec<&str> = all.iter().filter(|m| !m.gone).map(|m| m.name.as_str()).collect();
    format!("the cluster has no server named {name}; it has {}", names.join(", "))
}

/// A number that no disk has would be refused to a disk that is added later.
fn check_disk(arguments: &cli::Forget, server: &Member, disk: u8) -> Result<()> {
    let known = match server.alive {
        true => ask::disks_of(&Reach::from(&arguments.target.cluster), server.id)?,
        false => (32 - (server.disks | server.gone_disks).leading_zeros()) as usize,
    };
    if usize::from(disk) < known {
        return Ok(());
    }
    let name = &arguments.name;
    Err(ToolError::Usage(match server.alive {
        true => format!("{name} has no disk {disk}; it has {known}, numbered from 0"),
        false => format!(
            "{name} is down and was not seen with a disk {disk}: start it without that disk first, or declare all of {name} gone"
        ),
    }))
}

/// Explains the manager's refusal.
fn explained(error: VolumeError, arguments: &cli::Forget) -> ToolError {
    let VolumeError::File { errno, .. } = &error else { return error.into() };
    let name = &arguments.name;
    ToolError::Usage(match (*errno, arguments.disk) {
        (Errno::EBUSY, None) => format!(
            "{name} is up, or was until a few seconds ago: only a machine that is gone for good is declared gone. One that \
             was just stopped is down when its lease ends, after 10 s"
        ),
        (Errno::EBUSY, Some(disk)) => format!(
            "disk {disk} of {name} is in use: `trapeze rebalance` moves what it has elsewhere; only a disk that is lost is \
             declared gone"
        ),
        (Errno::ENOTEMPTY, _) => format!(
            "the only whole copy of some files is on {}: bring it back, or start the servers that `trapeze status` names as \
             down, and run this again when it counts no group that lacks a copy",
            what_of(arguments)
        ),
        (Errno::EPERM, _) => format!(
            "{name} is a file manager, whose names have one copy, at it: one that is up is taken out first with `trapeze rebalance \
             --off {name}`, which the first manager cannot be; one that is down has to be started again"
        ),
        _ => return error.into(),
    })
}

/// The disks that are asked about, one bit each, of every server that has or had the name.
fn disks_of(volume: &Volume, arguments: &cli::Forget) -> Result<BTreeMap<NodeId, u32>> {
    let all = volume.server_members();
    let bits = arguments.disk.map_or(u32::MAX, |disk| 1 << disk);
    let named = all.iter().filter(|member| member.name == arguments.name);
    // With a machine of that name gone and another one there, the one that is gone is meant.
    let gone: Vec<&Member> =
        named.clone().filter(|member| member.lost_disks() & bits != 0).collect();
    let meant = if gone.is_empty() { named.collect() } else { gone };
    match meant.is_empty() {
        true => Err(ToolError::Usage(unknown(&all, &arguments.name))),
        false => Ok(meant.into_iter().map(|member| (member.id, bits)).collect()),
    }
}

/// Names every file with bytes on these disks.
fn list(volume: &mut Volume, arguments: &cli::Forget, lost: &BTreeMap<NodeId, u32>) -> Result<()> {
    let json = arguments.target.json;
    let (mut files, mut all, mut bytes) = (0u64, 0u64, 0u64);
    let mut folders = vec![PathBuf::from("/")];
    while let Some(folder) = folders.pop() {
        for entry in volume.list(&folder)? {
            let path = folder.join(name_of(&entry.name));
            match entry.kind {
                FileKind::Directory => folders.push(path),
                FileKind::Regular => {
                    all += 1;
                    let held = volume.held_on(&path, entry.file, lost)?;
                    if held == 0 {
                        continue;
                    }
                    (files, bytes) = (files + 1, bytes + held);
                    show(&path, held, json);
                }
                _ => {}
            }
        }
    }
    match json {
        true => print_json(&json!({ "files": all, "concerned": files, "bytes": bytes })),
        false => println!("{files} of {all} files have {} there", Size(bytes)),
    }
    Ok(())
}

fn show(path: &Path, bytes: u64, json: bool) {
    match json {
        true => print_json(&json!({ "path": path.to_string_lossy(), "bytes": bytes })),
        false => println!("{}", path.display()),
    }
}
