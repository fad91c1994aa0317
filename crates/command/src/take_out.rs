//! `trapeze rebalance --off` of a file manager: it gives its sites to the others, and can be stopped then.
//!
//! The members' record of it is all the state: the manager goes on whichever process is killed, and a run that was
//! broken off is repeated to see the end.

use crate::tools::{Result, ToolError};
use members::{Member, Retire, Roles, is_silence};
use serde_json::json;
use std::time::Duration;
use terminal::progress;
use terminal::table::print_json;
use trapeze::config::MANAGER_NODE;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, NodeId, SITES};

/// How often it is asked how far the manager is.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether the member owns names that can be elsewhere.
pub fn is_one(member: &Member) -> bool {
    let is_manager = member.roles.contains(Roles::MANAGER);
    // The disks of the first one are taken out as those of any I/O server.
    is_manager && (member.id != NodeId(MANAGER_NODE) || !member.roles.contains(Roles::IO))
}

/// From now on the manager gives away what it owns, or gets its share again.
pub fn mark(volume: &mut Volume, member: &Member, retired: bool) -> Result<()> {
    let name = &member.name;
    let marked = volume.retire_manager(Retire { id: member.id, retired });
    match marked {
        Err(VolumeError::File { errno: Errno::EPERM, .. }) => Err(ToolError::Usage(format!(
            "{name} keeps the root of all names and who is a member: the first manager cannot be taken out"
        ))),
        Err(VolumeError::File { errno: Errno::EBUSY, .. }) => {
            Err(ToolError::Usage(away(volume, member)))
        }
        marked => Ok(marked?),
    }
}

fn away(volume: &mut Volume, member: &Member) -> String {
    let (name, sites) = (&member.name, sites(volume, member.id));
    format!(
        "{name} is down and owns {sites} of {SITES} sites, which it alone can give away: what is there waits for it. Start it and \
         run this again; its directory has the only copy of these names"
    )
}

/// How many sites it owns.
fn count(volume: &mut Volume, manager: NodeId) -> std::result::Result<usize, VolumeError> {
    Ok(volume.sites()?.of(manager).count())
}

/// The same, for people.
fn sites(volume: &mut Volume, manager: NodeId) -> String {
    count(volume, manager).map_or("some".to_string(), |sites| sites.to_string())
}

/// Waits until a retired manager owns nothing and may be stopped.
pub fn wait(volume: &mut Volume, member: &Member, as_json: bool) -> Result<()> {
    let name = &member.name;
    let bar = progress::counted(&format!("sites of {name}"));
    loop {
        let members = volume.server_members();
        let Some(now) = members.iter().find(|one| one.id == member.id) else { continue };
        match now {
            now if now.drained => break,
            // The mark may not have come with a view yet.
            now if now.retired && !now.alive => {
                return Err(ToolError::Usage(away(volume, now)));
            }
            _ => {}
        }
        let down = members.iter().find(|one| is_one(one) && !one.alive && !one.gone);
        match count(volume, member.id) {
            Ok(0) => bar.set_message(match down {
                Some(down) => format!("{name} waits for {}, which is down", down.name),
                None => format!("{name} waits for its last clients and operations"),
            }),
            Ok(sites) => bar.set_position(sites as u64),
            Err(VolumeError::File { errno, .. }) if is_silence(errno) => {}
            Err(error) => return Err(error.into()),
        }
        volume.pause(PAUSE)?;
    }
    bar.finish_and_clear();
    match as_json {
        true => print_json(&json!({ "manager": name, "sites": 0, "drained": true })),
        false => println!("{name} owns no names any more: stop it, then: trapeze forget {name}"),
    }
    Ok(())
}
