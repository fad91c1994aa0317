//! Where a node's links look for the members.

use super::{MachineError, Setup};
use crate::config::own_address;
use live::link::{Address, Directory};
use members::Member;
use std::collections::BTreeSet;
use wire::NodeId;

/// Where a client that lends memory listens: beside the manager's socket where that is on this machine.
pub(super) fn listens(
    setup: &Setup,
    name: &str,
    listen: Option<&str>,
) -> Result<Vec<String>, MachineError> {
    let manager: Vec<String> = setup.manager.1.iter().map(Address::to_string).collect();
    let sockets = manager.iter().filter_map(|text| text.strip_suffix("/manager.sock"));
    let mut all: Vec<String> = sockets.map(|folder| format!("{folder}/{name}.sock")).collect();
    if let Some(listen) = listen {
        let wrong = |why| MachineError::BadListen(listen.to_string(), why);
        all.push(own_address(listen).map_err(wrong)?.to_string());
    }
    match manager.iter().any(|text| text.starts_with("tcp:")) || all.is_empty() {
        true if listen.is_none() => Err(MachineError::LendsNowhere),
        _ => Ok(all),
    }
}

/// Keeps the links' addresses as the views of the members say.
pub(super) struct Addresses {
    own: NodeId,
    known: BTreeSet<NodeId>,
    directory: Directory,
}

impl Addresses {
    /// For the links of the node `own`.
    pub(super) fn new(own: NodeId, directory: &Directory) -> Addresses {
        Addresses { own, known: BTreeSet::new(), directory: directory.clone() }
    }

    /// These are the members now.
    pub(super) fn follow<'a>(&mut self, members: impl Iterator<Item = &'a Member>) {
        let there: BTreeSet<NodeId> =
            members.filter(|member| !member.gone).map(|member| self.reach(member)).collect();
        // A client that lends memory and has left does not come back under its number.
        self.known.difference(&there).for_each(|gone| self.directory.remove(*gone));
        self.known = there;
    }

    fn reach(&self, member: &Member) -> NodeId {
        if member.id != self.own && !member.addresses.is_empty() {
            let addresses = member.addresses.iter().filter_map(|text| text.parse().ok());
            self.directory.set(member.id, addresses.collect());
        }
        member.id
    }
}
