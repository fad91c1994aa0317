//! A machine's part in its cluster, apart from the host that drives it: what is given back at its end.

use files::cluster::Services;
use live::host::Host;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long the manager may take to hear a good-bye.
const GOODBYE_SPAN: Duration = Duration::from_secs(2);

/// The membership of a running machine, for a program that drives its host itself.
pub struct Membership {
    /// Its services.
    pub services: Services,
    _sockets: Sockets,
}

impl Membership {
    pub(crate) fn new(services: Services, sockets: Sockets) -> Membership {
        Membership { services, _sockets: sockets }
    }

    /// Gives the lease back; it ends by itself if the manager is gone.
    pub fn leave(&self, host: &mut Host) -> io::Result<()> {
        leave(host, &self.services)
    }
}

/// Gives the lease of a machine's services back.
pub(crate) fn leave(host: &mut Host, services: &Services) -> io::Result<()> {
    let Some(member) = services.member.clone() else { return Ok(()) };
    let cx = host.node().cx().clone();
    let leaving = async move { cx.with_deadline(GOODBYE_SPAN, member.leave()).await };
    host.block_on(leaving).map(drop)
}

/// Sockets that will have no listener again: they have the name of a client.
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
