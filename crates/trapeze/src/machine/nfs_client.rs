//! The node of a server of NFS: a client of the cluster.

use super::addresses::listens;
use super::{MachineError, Running, Setup, client_name, client_with};
use std::time::Duration;

/// As [`client`](super::client), for a server of NFS: as patient as a mount, and without attributes of its own that it
/// believes.
pub fn nfs_client(setup: &Setup) -> Result<Running, MachineError> {
    let (manager_patience, attribute_age_max) = (files::limits::PATIENCE, Duration::ZERO);
    let files = files::Config { manager_patience, attribute_age_max, ..setup.files() };
    let name = client_name("nfs");
    // Beside the manager it is asked for its counters; from elsewhere nothing reaches it.
    let listen = listens(setup, &name, None).unwrap_or_default();
    client_with(setup, name, listen, files)
}
