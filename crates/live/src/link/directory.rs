//! Which node is where, and how it goes with the link to it. The handle is shared: services and commands set
//! addresses and read the state while the links run.

use super::address::Address;
use super::frames::EthernetStatus;
use super::hello::Refusal;
use super::stream::Tally;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::NodeId;

/// The handle. Clones name the same directory; it belongs to the node's thread.
#[derive(Clone, Debug, Default)]
pub struct Directory(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    addresses: BTreeMap<NodeId, Vec<Address>>,
    status: BTreeMap<NodeId, PeerStatus>,
    ethernet: Option<EthernetStatus>,
}

/// How it goes with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// `shm`, `tcp`, `tcp+noise`, `xdp`, `xdp+noise`; empty while there is no connection.
    pub transport: &'static str,
    /// The traffic of all connections to it since the start.
    pub tally: Tally,
    /// Connections made.
    pub connections: u64,
    /// Why the last attempt or connection ended; empty when none has.
    pub last_error: String,
    /// Why the peer refused the last attempt to connect to it, where it did: on an encrypted link with proof that it
    /// knows the cluster key, on a UNIX socket as a process of the same user or root, else in clear.
    pub refused: Option<Refusal>,
}

impl Directory {
    /// From now on `peer` is looked for at these addresses, the first one first.
    pub fn set(&self, peer: NodeId, addresses: Vec<Address>) {
        self.0.borrow_mut().addresses.insert(peer, addresses);
    }

    /// `peer` is not to be connected to any more. A connection that stands stays.
    pub fn remove(&self, peer: NodeId) {
        self.0.borrow_mut().addresses.remove(&peer);
    }

    /// Where `peer` is to be found, the `attempt`th try.
    pub fn address(&self, peer: NodeId, attempt: usize) -> Option<Address> {
        let state = self.0.borrow();
        let addresses = state.addresses.get(&peer)?;
        addresses.get(attempt % addresses.len().max(1)).cloned()
    }

    /// Every peer that has or had a connection.
    pub fn status(&self) -> BTreeMap<NodeId, PeerStatus> {
        self.0.borrow().status.clone()
    }

    /// How it goes with the node's Ethernet, if it has one.
    pub fn ethernet(&self) -> Option<EthernetStatus> {
        self.0.borrow().ethernet.clone()
    }

    pub(super) fn update_ethernet(&self, change: impl FnOnce(&mut EthernetStatus)) {
        change(self.0.borrow_mut().ethernet.get_or_insert_default());
    }

    pub(super) fn update(&self, peer: NodeId, change: impl FnOnce(&mut PeerStatus)) {
        change(self.0.borrow_mut().status.entry(peer).or_default());
    }
}
