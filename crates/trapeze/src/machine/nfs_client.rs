//! The nodes of servers of NFS, and of importers of what other servers have: clients of the cluster.

use super::addresses::listens;
use super::{MachineError, Running, Setup, client_name, client_with};
use crate::config::{CLIENT_POOL_BYTES, Machine};
use files::Config;
use files::cluster::ClientRole;
use files::limits::PATIENCE;

/// Bytes of a machine's payload frames: a server of NFS has its own beside those of the configuration.
pub(super) fn pool_bytes(machine: &Machine) -> u64 {
    let front = machine.nfs.as_ref().map_or(0, |_| CLIENT_POOL_BYTES);
    machine.memory.pool.0.saturating_add(front)
}

/// The client of a machine's own server of NFS, if it has one.
pub(super) fn role(machine: &Machine, setup: &Setup) -> Option<ClientRole> {
    let files = Config::for_pool(CLIENT_POOL_BYTES as usize);
    machine.nfs.as_ref().map(|_| of_nfs(setup, files))
}

/// The client of a manager that executes what filters forward to it.
pub(super) fn forwarded(setup: &Setup) -> ClientRole {
    of_nfs(setup, setup.files())
}

fn of_nfs(setup: &Setup, files: Config) -> ClientRole {
    ClientRole { manager: setup.manager.0, volume: setup.volume, files: files.for_nfs() }
}

/// As [`client`](super::client), for a server of NFS.
pub fn nfs_client(setup: &Setup) -> Result<Running, MachineError> {
    let name = client_name("nfs");
    // Beside the manager it is asked for its counters; from elsewhere nothing reaches it.
    let listen = listens(setup, &name, None).unwrap_or_default();
    client_with(setup, name, listen, setup.files().for_nfs())
}

/// As [`client`](super::client), for an importer of a foreign server's files: as patient as a mount. Other machines
/// reach it at `listen`, those of this machine's own cluster beside their manager.
pub fn importer(setup: &Setup, listen: Option<&str>) -> Result<Running, MachineError> {
    let manager_patience = PATIENCE;
    let name = client_name("import");
    let listen = listens(setup, &name, listen).map_err(|error| match error {
        MachineError::LendsNowhere => {
            let text = "other machines must reach the importer: say where with --listen HOST:PORT";
            MachineError::Refused(text.to_string())
        }
        error => error,
    })?;
    client_with(setup, name, listen, Config { manager_patience, ..setup.files() })
}
