//! Sockets: made, bound, connected without waiting.

use super::address::Address;
use super::limits::{BACKLOG, SILENCE_SPAN};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Which users of this machine may connect to a UNIX socket, whatever the process's umask. Over it nothing is encrypted
/// and everything is believed: a user that may connect may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permissions of the socket.
    pub mode: u32,
    /// Its group; else the process's.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    fn default() -> SocketAccess {
        SocketAccess { mode: 0o600, group: None }
    }
}

impl SocketAccess {
    /// Whether other users than the process's own and root may connect.
    pub fn is_shared(&self) -> bool {
        self.mode & 0o022 != 0
    }
}

/// A host name on its way to becoming an address.
#[derive(Debug)]
pub struct Lookup(Receiver<io::Result<SocketAddr>>);

/// A connection being made.
#[derive(Debug)]
pub enum Dial {
    /// The name is being looked up.
    Lookup(Lookup),
    /// The socket connects; it will be writable when it is done.
    Socket(OwnedFd),
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Starts to connect. Only a host name that is no IP address needs a thread: resolvers block.
pub fn dial(address: &Address) -> io::Result<Dial> {
    match address {
        Address::Unix(path) | Address::Adapter(path) => {
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?)?;
            Ok(Dial::Socket(socket))
        }
        Address::Tcp(host, port) => match host.parse::<IpAddr>() {
            Ok(ip) => Ok(Dial::Socket(connect(SocketAddr::new(ip, *port))?)),
            Err(_) => Ok(Dial::Lookup(Lookup::start(host.clone(), *port)?)),
        },
    }
}

impl Lookup {
    fn start(host: String, port: u16) -> io::Result<Lookup> {
        let (answer, answers) = mpsc::channel();
        let look_up = move || {
            let found = (host.as_str(), port).to_socket_addrs().and_then(|mut all| {
                all.next().ok_or_else(|| io::Error::other(format!("{host} has no address")))
            });
            // The receiver may have given up by now.
            let _ = answer.send(found);
        };
        std::thread::Builder::new().name("trapeze-lookup".into()).spawn(look_up)?;
        Ok(Lookup(answers))
    }

    /// The connecting socket, when the name has been found.
    pub fn poll(&self) -> io::Result<Option<OwnedFd>> {
        match self.0.try_recv() {
            Ok(found) => connect(found?).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the name could not be looked up"))
            }
        }
    }
}

fn connect(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
    tune(&socket)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Latency before everything; a dead peer shows within [`SILENCE_SPAN`].
pub fn tune(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE_SPAN / 2)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE_SPAN / 5)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE_SPAN.as_millis() as u32)?;
    Ok(())
}

/// Removes a socket without a listener. Anything else at the path stays: it is not ours.
fn make_way(path: &Path) -> io::Result<()> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        let text = "there is something that is no socket: choose another path, or move it away";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // Refused is what a socket without a listener answers; what may not be asked, or does not answer, is in use.
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Ok(()), // binding says that it is in use
    }
}

/// A socket at this path, for those users only from the first connection on.
fn listen_at(path: &Path, access: SocketAccess) -> io::Result<OwnedFd> {
    make_way(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nothing can connect before it listens.
    if let Some(group) = access.group {
        rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
    }
    rustix::fs::chmod(path, Mode::from_raw_mode(access.mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A listening socket and the address it really has (port 0 becomes a free one). The path of a UNIX socket without a
/// listener is taken over.
pub fn listen(address: &Address, access: SocketAccess) -> io::Result<(OwnedFd, Address)> {
    match address {
        Address::Unix(path) | Address::Adapter(path) => {
            Ok((listen_at(path, access)?, address.clone()))
        }
        Address::Tcp(host, port) => {
            let listener = TcpListener::bind((host.as_str(), *port))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            Ok((listener.into(), Address::Tcp(host.clone(), port)))
        }
    }
}

/// The next connection, or `None`; and where it comes from, if it comes by TCP.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
    match rustix::net::acceptfrom_with(listener, FLAGS) {
        Ok((socket, from)) => {
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            Ok(Some((socket, from.map(|from| from.ip().to_canonical()))))
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
