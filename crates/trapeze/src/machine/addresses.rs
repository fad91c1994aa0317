//! Where a node's links look for the members.

use super::{MachineError, Setup};
use live::link::{Address, Directory};
use members::Member;
use std::collections::BTreeSet;
use std::net::IpAddr;
use wire::NodeId;

/// The address that others reach this machine by, from `HOST:PORT`. Why it is none, for in front of what to write.
pub fn own_address(listen: &str) -> Result<Address, String> {
    let none = || format!("{listen} is no address: ");
    let address = format!("tcp:{listen}").parse::<Address>().map_err(|_| none())?;
    let Address::Tcp(host, port) = &address else { return Err(none()) };
    let every = host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified());
    match (every || host == "0", port) {
        (true, _) => Err(format!(
            "{host} stands for every address of a machine, and from another machine leads to none of them (`ip address` shows this one's): "
        )),
        (false, 0) => {
            Err("port 0 is whichever is free, which no other machine knows: ".to_string())
        }
        (false, _) => Ok(address),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stands_for_all_or_for_none_is_no_machines_own() {
        for listen in ["0.0.0.0:7400", "[::]:7400", "[::ffff:0.0.0.0]:7400", "0:7400"] {
            let why = own_address(listen).unwrap_err();
            assert!(why.contains("every address") && why.contains("ip address"), "{listen}: {why}");
        }
        for listen in ["10.0.0.1:0", "alpha:0", "[::1]:0"] {
            assert!(own_address(listen).unwrap_err().contains("port 0"), "{listen}");
        }
        for listen in ["", "alpha", ":7400", "alpha:x"] {
            assert!(own_address(listen).unwrap_err().contains("no address"), "{listen}");
        }
        for listen in ["10.0.0.1:7400", "alpha:1", "[fe80::1]:65535", "127.0.0.1:7400"] {
            assert_eq!(own_address(listen).unwrap().to_string(), format!("tcp:{listen}"));
        }
    }
}
