//! The nodes of a cluster that lend memory, for regions of programs beside it.

use crate::ask::ask_once;
use crate::client::VisitError;
use crate::config::CLIENT_POOL_BYTES;
use crate::machine::{self, Setup};
use crate::reach::{Reach, ReachError};
use crate::serve;
use crate::status::memory::Memory;
use live::link::{Address, Security};
use live::wait::WaitPolicy;
use members::{Member, Roles};
use region::limits::HOLDERS_MAX;
use std::path::Path;

/// Those that are up, and what links to them need.
#[derive(Clone, Debug)]
pub struct Lenders {
    /// One address of each, at most [`HOLDERS_MAX`].
    pub holders: Vec<Address>,
    /// Of TCP links.
    pub security: Security,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum LendersError {
    /// The cluster did not tell.
    #[error(transparent)]
    Visit(#[from] VisitError),
    /// Two have every page.
    #[error(
        "{0} of the cluster's nodes lend memory where this machine reaches them, and every page is kept by two: set `lend` under [memory] in their files, or mount with --lend"
    )]
    TooFew(usize),
}

/// Asks the cluster's manager for the nodes that lend memory now: two at least. Nodes that come later are not known of;
/// one that restarts at its address is used again.
pub fn find(reach: &Reach) -> Result<Lenders, LendersError> {
    find_as(&reach.setup(CLIENT_POOL_BYTES, WaitPolicy::Adaptive).map_err(VisitError::from)?)
}

/// As [`find`], as a client with this setup.
pub fn find_as(setup: &Setup) -> Result<Lenders, LendersError> {
    let holders = some_of(all_of(setup)?, std::process::id() as usize);
    if holders.len() < 2 {
        Err(LendersError::TooFew(holders.len()))
    } else {
        Ok(Lenders { holders, security: setup.security.clone() })
    }
}

/// Bytes that the nodes have left for a program's pages, each of which is kept by two.
pub fn room(reach: &Reach) -> Result<u64, VisitError> {
    let told = ask_once(reach)?;
    let memory = told.iter().filter_map(|told| told.report()?.memory.as_ref());
    Ok(in_pairs(memory.map(left).collect()))
}

/// Bytes that a node has left for pages that are nowhere else: clean ones of others make way for them.
fn left(memory: &Memory) -> u64 {
    memory.share_bytes.saturating_sub(memory.kept_bytes + memory.mirror_bytes)
}

/// How much fits on two nodes each.
fn in_pairs(left: Vec<u64>) -> u64 {
    let (sum, most) = (left.iter().sum::<u64>(), left.iter().max().copied().unwrap_or(0));
    (sum / 2).min(sum - most)
}

/// One address of each node that lends.
fn all_of(setup: &Setup) -> Result<Vec<Address>, VisitError> {
    let mut running = machine::client(setup, "run").map_err(ReachError::from)?;
    let client = running.services.member.clone().expect("a client is a member");
    let members = running.host.block_on(async move {
        let _ = client.refresh().await; // the view that it has is good enough
        client.directory().iter().cloned().collect::<Vec<Member>>()
    })?;
    serve::stop(running)?;
    let lends = |member: &&Member| member.alive && member.roles.contains(Roles::MEMORY);
    let address = |member: &Member| reached(&member.addresses, Path::exists);
    Ok(members.iter().filter(lends).filter_map(address).collect())
}

/// Where this machine reaches a node: at its socket where that `is_here`, else over the network.
fn reached(addresses: &[String], is_here: impl Fn(&Path) -> bool) -> Option<Address> {
    let mut all = addresses.iter().filter_map(|text| text.parse().ok());
    all.find(|address| match address {
        Address::Unix(path) | Address::Adapter(path) => is_here(path),
        Address::Tcp(..) => true,
    })
}

/// As many as a region may have, others for each `seed`.
fn some_of(mut holders: Vec<Address>, seed: usize) -> Vec<Address> {
    let first = seed % holders.len().max(1);
    holders.rotate_left(first);
    holders.truncate(HOLDERS_MAX);
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_on_another_machine_is_reached_over_the_network() {
        let texts = ["unix:/run/a.sock", "tcp:10.0.0.1:7400"].map(String::from);
        assert_eq!(reached(&texts, |_| true), texts[0].parse().ok());
        assert_eq!(reached(&texts, |_| false), texts[1].parse().ok());
        assert_eq!(reached(&texts[..1], |_| false), None);
    }

    #[test]
    fn a_page_has_room_where_two_nodes_have() {
        let pairs = [
            (vec![], 0),
            (vec![8], 0),
            (vec![8, 5], 5),
            (vec![8, 5, 5], 9),
            (vec![20, 5, 5], 10),
            (vec![0, 0, 7], 0),
        ];
        for (left, fits) in pairs {
            assert_eq!(in_pairs(left.clone()), fits, "{left:?}");
        }
        let memory =
            Memory { share_bytes: 64, kept_bytes: 16, mirror_bytes: 8, ..Memory::default() };
        assert_eq!((left(&memory), left(&Memory { mirror_bytes: 60, ..memory })), (40, 0));
    }

    #[test]
    fn of_many_nodes_different_programs_take_different_ones() {
        let all = |count: usize| (0..count).map(|n| Address::Unix(format!("/{n}").into()));
        assert_eq!(some_of(Vec::new(), 3), []);
        assert_eq!(some_of(all(3).collect(), 3), all(3).collect::<Vec<_>>());
        let some = some_of(all(100).collect(), 90);
        assert_eq!((some.len(), &some[0]), (HOLDERS_MAX, &all(100).nth(90).unwrap()));
    }
}
