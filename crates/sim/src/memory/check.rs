//! Invariants of the services' tables: at any time, and when nothing is under way.

use super::shared::Shared;
use crate::queue::Picos;
use endpoint::limits::PAGE_BYTES;
use netmem::limits::{AHEAD_SHARE, HOPS_MAX};
use netmem::service::View;
use netmem::{Directory, HolderRole, PageId, Role, Service, Slots, Version};
use std::collections::BTreeMap;
use wire::NodeId;

/// Frames by role sum up; others' pages leave the node's own their part; directories stay in theirs; a request is
/// passed on so many times; a page has one writer.
pub fn always(shared: &Shared, now: Picos) -> Vec<String> {
    let services = shared.services.borrow();
    let mut wrong: Vec<String> =
        services.iter().filter_map(|(node, service)| problem(*node, service)).collect();
    drop(services);
    wrong.append(&mut writers(shared, now));
    wrong
}

/// Each node goes by its own clock. The view that it knows does not matter: who is not in the next one has found out
/// that its lease is over before another node is granted one.
fn writers(shared: &Shared, now: Picos) -> Vec<String> {
    let (mut known, mut wrong) = (BTreeMap::new(), Vec::new());
    for (node, service) in shared.services.borrow().iter() {
        let view = service.view().number;
        for id in service.writes_at(shared.clock(*node).time(now)) {
            if let Some((other, before)) = known.insert(id, (*node, view)) {
                wrong.push(format!(
                    "{other} in view {before} and {node} in view {view} both write to {id}"
                ));
            }
        }
    }
    wrong
}

fn problem(node: NodeId, service: &Service) -> Option<String> {
    let (counts, config) = (service.counts(), service.config());
    let frames = config.bytes / PAGE_BYTES;
    let local_min = config.local_min_bytes / PAGE_BYTES;
    let (used, mirror) = (service.used_bytes(), service.blocks().mirror);
    let entries = service.inspect(|_, directory| directory.len());
    let wrong = if counts.total() as usize != frames {
        format!("{counts:?} are not {frames} frames")
    } else if !service.is_consistent() || used > config.bytes {
        format!("{used} bytes of pages do not fit {counts:?}")
    } else if mirror as usize > frames - local_min {
        format!("{mirror} blocks of mirrors leave less than {local_min} of {frames}")
    } else if service.inspect(|memory, _| memory.squeezed()) > 0 {
        format!("others' pages took frames of the {local_min} that are the node's own: {counts:?}")
    } else if service.most_hops() > HOPS_MAX {
        format!("a request was passed on {} times", service.most_hops())
    } else if counts.ahead > (frames as u32 / AHEAD_SHARE).max(1) {
        format!("{} of {frames} frames have pages that nobody asked for", counts.ahead)
    } else if entries > (config.directory_bytes / Directory::ENTRY_BYTES).max(1) {
        format!("{entries} directory entries take more memory than they were given")
    } else {
        return None;
    };
    Some(format!("{node}: {wrong}"))
}

type Holders = BTreeMap<(PageId, NodeId), (Version, Role)>;

/// Every mirror that a node keeps has its entry at both directories, every entry its mirrors, as many as there are to
/// be. Clean copies are soft state: an entry of one that has gone costs a message.
pub fn quiet(shared: &Shared, view: &View) -> Vec<String> {
    let services = shared.services.borrow();
    let members = view.members.iter().map(|up| netmem::Member { node: up.node, weight: up.weight });
    let Some(slots) = Slots::new(&members.collect::<Vec<_>>()) else { return Vec::new() };
    let mut held = Holders::new();
    for (node, service) in services.iter() {
        service.inspect(|memory, _| {
            let pages = memory.pages();
            held.extend(pages.map(|(_, role, page)| ((page.id, *node), (page.version, role))));
        });
    }
    let mut wrong = Vec::new();
    let has_room = has_room(services.values());
    for (node, service) in services.iter() {
        if service.view() != *view {
            wrong.push(format!("{node} is not in the view that holds"));
        }
        service.inspect(|_, directory| {
            check_entries(*node, directory, &slots, &held, has_room, &mut wrong);
        });
    }
    // who has a guest's page its process alone knows
    for ((id, node), (version, role)) in held.iter().filter(|((id, _), _)| !id.space.is_guest()) {
        let knows =
            |home: &NodeId| services.get(home).is_none_or(|home| names(home, *id, *node, *version));
        let homes = slots.homes(*id).both().filter(|_| *role == Role::Mirror);
        for home in homes.filter(|home| !knows(home)) {
            wrong.push(format!(
                "{home} does not know that {node} has {id} version {} ({role:?})",
                version.0
            ));
        }
    }
    wrong
}

/// Nodes that have room when a page finds its mirrors: two, and one that may be its owner.
const ROOMY_MIN: usize = 3;

/// Whether another mirror finds a place: a quarter of all that mirrors may have is theirs still, and of enough nodes
/// each. Guests' pages, which nothing moves, fill some nodes more than others.
fn has_room<'s>(services: impl Iterator<Item = &'s Service>) -> bool {
    let is_roomy = |used: usize, most: usize| used * 4 < most * 3;
    let (mut used, mut all, mut roomy) = (0, 0, 0);
    for service in services {
        let config = service.config();
        let most = (config.bytes - config.local_min_bytes) / PAGE_BYTES;
        let mirrors = service.blocks().mirror as usize;
        (used, all, roomy) =
            (used + mirrors, all + most, roomy + usize::from(is_roomy(mirrors, most)));
    }
    is_roomy(used, all) && roomy >= ROOMY_MIN
}

fn names(home: &Service, id: PageId, node: NodeId, version: Version) -> bool {
    home.inspect(|_, directory| {
        let entry = directory.entry(id);
        entry.is_some_and(|entry| {
            entry.version == version && entry.holders.iter().any(|holder| holder.node == node)
        })
    })
}

fn check_entries(
    node: NodeId,
    directory: &Directory,
    slots: &Slots,
    held: &Holders,
    has_room: bool,
    wrong: &mut Vec<String>,
) {
    for entry in directory.entries().filter(|entry| slots.homes(entry.id).has(node)) {
        for holder in entry.holders.iter().filter(|holder| holder.role == HolderRole::Mirror) {
            let has = held.get(&(entry.id, holder.node)).map(|(version, _)| *version);
            // an owner's newer copy needs no entry
            if has.is_none_or(|version| version < entry.version) {
                let (id, version) = (entry.id, entry.version.0);
                wrong.push(format!(
                    "{node} believes that {} has {id} version {version}",
                    holder.node
                ));
            }
        }
        let mirrors =
            entry.holders.iter().filter(|holder| holder.role == HolderRole::Mirror).count();
        let primary = slots.homes(entry.id).primary == node;
        if entry.mirrors_missing() > 0 && has_room && primary {
            wrong.push(format!("{node} knows of {mirrors} mirrors of {}, too few", entry.id));
        }
    }
}
