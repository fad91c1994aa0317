//! The nodes of a cluster that lend memory, for regions of programs beside it.

use crate::client::{POOL_BYTES, Reach, ReachError};
use crate::serve::{self, ServeError};
use live::link::{Address, Security};
use live::region::limits::HOLDERS_MAX;
use live::wait::WaitPolicy;
use members::{Member, Roles};
use std::io;
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
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// Saying good-bye.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Two have every page.
    #[error(
        "{0} of the cluster's nodes lend memory where this machine reaches them, and every page is kept by two: set `lend` under [memory] in their files, or mount with --lend"
    )]
    TooFew(usize),
}

/// Asks the cluster's manager for the nodes that lend memory now: two at least. Nodes that come later are not known of;
/// one that restarts at its address is used again.
pub fn find(reach: &Reach) -> Result<Lenders, LendersError> {
    let security = reach.setup(POOL_BYTES, WaitPolicy::Adaptive)?.security;
    let mut running = reach.client("run")?;
    let client = running.services.member.clone().expect("a client is a member");
    let members = running.host.block_on(async move {
        let _ = client.refresh().await; // the view that it has is good enough
        client.directory().iter().cloned().collect::<Vec<Member>>()
    })?;
    serve::stop(running)?;
    let lends = |member: &&Member| member.alive && member.roles.contains(Roles::MEMORY);
    let address = |member: &Member| reached(&member.addresses, Path::exists);
    let holders: Vec<Address> = members.iter().filter(lends).filter_map(address).collect();
    let holders = some_of(holders, std::process::id() as usize);
    if holders.len() < 2 {
        Err(LendersError::TooFew(holders.len()))
    } else {
        Ok(Lenders { holders, security })
    }
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
    fn of_many_nodes_different_programs_take_different_ones() {
        let all = |count: usize| (0..count).map(|n| Address::Unix(format!("/{n}").into()));
        assert_eq!(some_of(Vec::new(), 3), []);
        assert_eq!(some_of(all(3).collect(), 3), all(3).collect::<Vec<_>>());
        let some = some_of(all(100).collect(), 90);
        assert_eq!((some.len(), &some[0]), (HOLDERS_MAX, &all(100).nth(90).unwrap()));
    }
}
