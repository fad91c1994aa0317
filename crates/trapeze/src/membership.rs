//! A machine's part in its cluster, apart from the host that drives it: what is given back at its end.

use crate::stopping;
use files::cluster::Services;
use live::host::Host;
use std::io;
use std::path::PathBuf;

/// What a running machine is a member by, for who drives its host himself.
pub struct Membership {
    /// What it serves.
    pub services: Services,
    _sockets: Sockets,
}

impl Membership {
    pub(crate) fn new(services: Services, sockets: Sockets) -> Membership {
        Membership { services, _sockets: sockets }
    }

    /// Gives the lease back; it ends by itself if the manager is gone.
    pub fn leave(&self, host: &mut Host) -> io::Result<()> {
        stopping::leave_with(host, &self.services)
    }
}

/// Sockets that nobody will listen at again: they have the name of a client.
pub(crate) struct Sockets(Vec<PathBuf>);

impl Sockets {
    /// Of these addresses.
    pub fn of(listen: &[String]) -> Sockets {
        let local = listen.iter().filter(|text| !text.starts_with("tcp:"));
        let paths = local.filter_map(|text| Some(text.split_once(':')?.1));
        Sockets(paths.map(PathBuf::from).collect())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path); // one more file in the cluster's directory
        }
    }
}
