//! The nodes of servers of NFS, and of importers of what other servers have: clients of the cluster.

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

/// As [`client`](super::client), for an importer of a foreign server's files: as patient as a mount. Other machines
/// reach it at `listen`, those of this machine's own cluster beside their manager.
pub fn importer(setup: &Setup, listen: Option<&str>) -> Result<Running, MachineError> {
    let manager_patience = files::limits::PATIENCE;
    let name = client_name("import");
    let listen = listens(setup, &name, listen).map_err(|error| match error {
        MachineError::LendsNowhere => {
            let text = "other machines must reach the importer: say where with --listen HOST:PORT";
            MachineError::Refused(text.to_string())
        }
        error => error,
    })?;
    client_with(setup, name, listen, files::Config { manager_patience, ..setup.files() })
}
