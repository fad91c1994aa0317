//! An NFS server: a client node of a cluster whose files clients of NFS use.
//!
//! ```text
//!   NfsOptions, [nfs] and [[export]] ─ plan ─► Plan ─ bind ─► Bound ─ serve ─► Serving
//! ```
//!
//! What cannot be is refused by [`NfsOptions::plan`] and [`Plan::bind`], before anything is started. The node joins the
//! cluster as a mount does, or is a machine's own ([`drive_with`]). It believes no attributes: a client's GETATTR is
//! what an open is elsewhere, and tells what the last close anywhere left.

mod kept;
mod on_machine;
mod options;

pub use on_machine::drive_with;
pub use options::NfsOptions;

use crate::machine::{self, Running, Setup};
use crate::serve::{self, ServeError};
use crate::stopper::Stopper;
use crate::waiting;
use nfs::exports::Exports;
use nfs::filter::Forwarder;
use nfs::front::Front;
use nfs::portmap::{self, Service, TCP, UDP};
use nfs::server::Server;
use nfs::start::Started;
use nfs::{mount, nlm, nsm, v3};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sockets::ListenError;
use sockets::nfs::{Nfs, NfsPlaces, NfsSockets, Registration, register};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use wire::{NodeId, VolumeId};

/// Why nothing is served over NFS. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum NfsError {
    /// An export.
    #[error("{0}")]
    Export(String),
    /// The address.
    #[error("--nfs {0:?}: {1}; write HOST, or HOST:PORT for another port than 2049")]
    Address(String, String),
    /// An address that cannot be listened at.
    #[error("{0}{next}", next = after_listening(.0))]
    Listen(#[from] ListenError),
    /// The port mapper.
    #[error("rpcbind: {0}")]
    Rpcbind(io::Error),
}

impl From<NfsError> for ServeError {
    fn from(error: NfsError) -> ServeError {
        ServeError::Refused(error.to_string())
    }
}

fn after_listening(error: &ListenError) -> &'static str {
    match error {
        ListenError::Address(at, error)
            if error.kind() == io::ErrorKind::AddrInUse && at.port() == portmap::PORT =>
        {
            "; another port mapper answers there, maybe that of another NFS server of Trapeze: leave this one out, and \
             mount with -o port=PORT,mountport=PORT"
        }
        ListenError::Address(_, error) if error.kind() == io::ErrorKind::AddrInUse => {
            "; another NFS server listens there, maybe the kernel's (`systemctl stop nfs-server`): stop it, or choose \
             another port and mount with -o port=PORT,mountport=PORT"
        }
        ListenError::Address(_, error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "; ports below 1024 are root's"
        }
        ListenError::Address(_, error) => machine::after_listening(error),
        ListenError::System(_) => "",
    }
}

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    listen: SocketAddr,
    exports: Exports,
    mount_udp: bool,
    portmap: bool,
}

impl Plan {
    /// Takes the addresses.
    pub fn bind(self) -> Result<Bound, NfsError> {
        allow_descriptors();
        let mut places = NfsPlaces { nfs: vec![self.listen], ..NfsPlaces::default() };
        let udp = if self.mount_udp { &mut places.mount } else { &mut places.locks };
        udp.push(self.listen);
        let bound = NfsSockets::bind(&places)?;
        let at = bound.nfs_addresses().next().expect("it listens");
        let locks = bound.lock_addresses().next().expect("it listens");
        let mut services = services(at.port(), locks.port(), self.mount_udp);
        let registration = register(&services, at.ip()).map_err(NfsError::Rpcbind);
        let (sockets, registration) = match registration {
            Ok(None) if self.portmap => {
                drop(bound);
                places.nfs = vec![at];
                places.portmap = vec![SocketAddr::new(at.ip(), portmap::PORT)];
                services.extend(mapper());
                (NfsSockets::bind(&places)?, None)
            }
            Ok(registration) => (bound, registration),
            Err(error) if self.portmap => return Err(error),
            Err(error) => {
                eprintln!("{error}: clients name the port, with -o port=,mountport=");
                (bound, None)
            }
        };
        let is_findable = self.listen.port() != 0;
        Ok(Bound { at, is_findable, sockets, services, exports: self.exports, registration })
    }
}

/// Lets this process open a socket for each connection, as far as it may: who cannot be accepted waits.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
}

fn services(port: u16, udp_port: u16, mount_udp: bool) -> Vec<Service> {
    let tcp = |program, version| Service { program, version, protocol: TCP, port };
    let udp = |it: Service| Service { port: udp_port, protocol: UDP, ..it };
    let mut all = vec![tcp(v3::PROGRAM, v3::VERSION)];
    for version in mount::VERSION_LOWEST..=mount::VERSION {
        let mount = tcp(mount::PROGRAM, version);
        all.push(mount);
        all.extend(mount_udp.then(|| udp(mount)));
    }
    for (program, version) in [(nlm::PROGRAM, nlm::VERSION), (nsm::PROGRAM, nsm::VERSION)] {
        all.extend([tcp(program, version), udp(tcp(program, version))]);
    }
    all
}

/// A port mapper of our own, which clients ask for itself first.
fn mapper() -> impl Iterator<Item = Service> {
    let versions = [portmap::PORTMAP].into_iter().chain(portmap::RPCBIND);
    versions.flat_map(|version| {
        let (program, port) = (portmap::PROGRAM, portmap::PORT);
        [TCP, UDP].map(|protocol| Service { program, version, protocol, port })
    })
}

/// A server whose addresses are taken.
#[derive(Debug)]
pub struct Bound {
    at: SocketAddr,
    /// The next incarnation will be where this one is: somebody chose the port.
    is_findable: bool,
    sockets: NfsSockets,
    services: Vec<Service>,
    exports: Exports,
    registration: Option<Registration>,
}

impl Bound {
    /// Where clients mount from.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// How clients of this machine mount the first export, for people.
    pub fn mount_command(&self) -> String {
        let host = match self.at.ip() {
            IpAddr::V4(any) if any.is_unspecified() => "THIS-HOST".to_string(),
            IpAddr::V6(any) if any.is_unspecified() => "THIS-HOST".to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        let path = self.exports.iter().next().map_or("/", |export| &export.path);
        let port = self.at.port();
        let locks = if self.tells_port() { "" } else { "nolock," };
        format!("mount -t nfs -o vers=3,tcp,{locks}port={port},mountport={port} {host}:{path} PATH")
    }

    /// The attribute of the volume's root that keeps its clients' locks; none where the next incarnation is elsewhere.
    fn attribute(&self) -> Option<Box<[u8]>> {
        self.is_findable.then(|| kept::attribute(self.at))
    }

    /// Whether clients that ask port 111 of this machine find all that is served, as they must for locks.
    fn tells_port(&self) -> bool {
        let is_told = self.registration.is_some() && !self.is_hidden() && !self.lacks_locks();
        is_told || self.services.iter().any(|it| it.program == portmap::PROGRAM)
    }

    /// Whether another server has the place of NFS or MOUNT at the machine's rpcbind.
    pub fn is_hidden(&self) -> bool {
        self.has_taken([v3::PROGRAM, mount::PROGRAM])
    }

    /// Whether another one has the place of locks there: the kernel's client with mounts of its own, or rpc.statd.
    pub fn lacks_locks(&self) -> bool {
        self.has_taken([nlm::PROGRAM, nsm::PROGRAM])
    }

    fn has_taken(&self, programs: [u32; 2]) -> bool {
        let taken = self.registration.iter().flat_map(|registration| &registration.taken);
        taken.into_iter().any(|service| programs.contains(&service.program))
    }
}

/// A server that runs. Dropping it takes its ports back from rpcbind.
pub struct Serving(
    #[expect(dead_code, reason = "its drop is what it is for")] Option<Registration>,
);

/// Joins the cluster for a server. Its host has to be driven.
pub fn join(setup: &Setup) -> Result<Running, ServeError> {
    Ok(machine::nfs_client(setup)?)
}

/// Serves on a node that joined.
pub fn serve(running: &mut Running, volume: VolumeId, bound: Bound) -> Result<Serving, ServeError> {
    serve_as(running, volume, bound, None)
}

/// The same as a packet filter before all managers of a volume that was made at the manager `first`.
pub fn filter(
    running: &mut Running,
    (volume, first): (VolumeId, NodeId),
    bound: Bound,
) -> Result<Serving, ServeError> {
    serve_as(running, volume, bound, Some(first))
}

fn serve_as(
    running: &mut Running,
    volume: VolumeId,
    bound: Bound,
    filters: Option<NodeId>,
) -> Result<Serving, ServeError> {
    let files = running.services.files.clone().expect("a node that serves NFS is a client");
    let attribute = bound.attribute();
    let kept = running.host.block_on(async move { kept::begin(&files, attribute).await })??;
    serve_on(running, volume, bound, kept, filters)
}

fn serve_on(
    running: &mut Running,
    volume: VolumeId,
    bound: Bound,
    kept: Started,
    filters: Option<NodeId>,
) -> Result<Serving, ServeError> {
    let Bound { sockets, services, exports, registration, .. } = bound;
    let cx = running.host.node().cx();
    let verifier = cx.incarnation().to_be_bytes();
    let mut server = Server::new(volume, kept.key, exports, verifier);
    server.services = services;
    server.begin_locks(kept.locks);
    let (server, frames) = (Rc::new(server), cx.frames().clone());
    let device = match filters {
        None => Nfs::new(sockets, Front::new(server, frames))?,
        Some(first) => {
            let forwarder = Forwarder::new(cx, first, names::site_of_name);
            Nfs::new(sockets, Front::filter(server, frames))?.forwarding(forwarder)
        }
    };
    running.beside.nfs.replace(Some(device.front()));
    running.host.add(device)?;
    // clients may wait at any time
    waiting::watch(running).begin(running.host.node().cx().now());
    Ok(Serving(registration))
}

/// Joins the cluster, serves until somebody asks it to stop, and leaves. `ready` is called when clients can mount.
pub fn run(
    setup: &Setup,
    bound: Bound,
    stopper: &Stopper,
    ready: &dyn Fn(),
) -> Result<(), ServeError> {
    let mut running = join(setup)?;
    let serving = serve(&mut running, setup.volume, bound)?;
    stopper.watch(&mut running.host)?;
    ready();
    running.host.run(|| stopper.asked())?;
    drop(serving);
    serve::stop(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_in_use_it_is_said_what_is_there() {
        let told = |address: &str| {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            NfsError::from(ListenError::Address(address.parse().unwrap(), error)).to_string()
        };
        assert!(told("127.0.0.1:111").contains("another port mapper"));
        assert!(told("127.0.0.1:2049").contains("another NFS server"));
    }
}
