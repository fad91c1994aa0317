//! Sockets: made, bound, connected without waiting.

use super::address::Address;
use super::limits::SILENCE_SPAN;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{self, Receiver, TryRecvError};

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

/// A listening socket and the address it really has (port 0 becomes a free one). The path of a UNIX socket that
/// nobody listens on any more is taken over.
pub fn listen(address: &Address) -> io::Result<(OwnedFd, Address)> {
    match address {
        Address::Unix(path) | Address::Adapter(path) => {
            if std::os::unix::net::UnixStream::connect(path).is_err() && path.exists() {
                std::fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok((listener.into(), address.clone()))
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
