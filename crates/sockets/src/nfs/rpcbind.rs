//! Telling the machine's rpcbind which ports are ours, where one runs.
//!
//! It is asked over its UNIX socket, where it sees who asks: whoever registered a program may take that back. A
//! program that another server has keeps that one's port, unless nothing listens there any more.

use nfs::portmap::{Binding, RPCBIND, TCP, Text, UDP, network, of_universal, rpcbind, universal};
use nfs::portmap::{PROGRAM, Service};
use nfs::rpc::{Acceptance, Call, Credential, Reply};
use nfs::xdr::{Xdr, decoded, encoded};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where rpcbind listens on this machine.
const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];
/// How long it may take to answer.
const ANSWER_SPAN: Duration = Duration::from_secs(2);
/// Longest answer that is of use.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Programs that rpcbind knows from us. Dropping it takes them back.
#[derive(Debug)]
pub struct Registration {
    socket: PathBuf,
    ours: Vec<(Service, IpAddr)>,
    /// Programs that another server has.
    pub taken: Vec<Service>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        for (service, address) in &self.ours {
            let _ = ask::<bool>(&self.socket, rpcbind::UNSET, service, *address);
        }
    }
}

/// Registers services at this address. `None`: no rpcbind runs here.
pub fn register(services: &[Service], address: IpAddr) -> io::Result<Option<Registration>> {
    let listens = |socket: &Path| UnixStream::connect(socket).is_ok();
    let Some(socket) = SOCKETS.iter().map(Path::new).find(|socket| listens(socket)) else {
        return Ok(None);
    };
    let (socket, ours, taken) = (socket.to_path_buf(), Vec::new(), Vec::new());
    let mut registration = Registration { socket, ours, taken };
    for service in services {
        match registration.add(service, address)? {
            true => registration.ours.push((*service, address)),
            false => registration.taken.push(*service),
        }
    }
    Ok(Some(registration))
}

impl Registration {
    fn add(&self, service: &Service, address: IpAddr) -> io::Result<bool> {
        if ask(&self.socket, rpcbind::SET, service, address)? {
            return Ok(true);
        }
        // GETADDR would tell of the network that the call came over, which is this socket's
        let known: Known = ask(&self.socket, rpcbind::DUMP, service, address)?;
        if known.serves(service, network(address, service.protocol)) {
            return Ok(false);
        }
        // its server was killed
        ask::<bool>(&self.socket, rpcbind::UNSET, service, address)?;
        ask(&self.socket, rpcbind::SET, service, address)
    }
}

/// All that rpcbind knows: program, version, network, address.
struct Known(Vec<(u32, u32, Box<[u8]>, Box<[u8]>)>);

impl Known {
    /// Whether something listens where it says that the service is.
    fn serves(&self, service: &Service, network: &str) -> bool {
        let is_it = |(program, version, over, _): &&(u32, u32, Box<[u8]>, Box<[u8]>)| {
            (*program, *version) == (service.program, service.version)
                && **over == *network.as_bytes()
        };
        let Some((.., address)) = self.0.iter().find(is_it) else { return false };
        let Some((address, port)) = of_universal(address) else { return true };
        let address = match address {
            IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            address => address,
        };
        match service.protocol {
            // it is bound by us
            _ if port == service.port => false,
            TCP => TcpStream::connect_timeout(&SocketAddr::new(address, port), ANSWER_SPAN).is_ok(),
            _ => answers(service, SocketAddr::new(address, port)),
        }
    }
}

/// Whether a program answers to a call of nothing over UDP.
fn answers(service: &Service, at: SocketAddr) -> bool {
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let Service { program, version, .. } = *service;
    let (xid, credential) = (std::process::id(), Credential::None);
    let mut record = Vec::new();
    Call { xid, program, version, procedure: 0, credential, arguments: &[] }.put(&mut record);
    let answered = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(at)?;
        socket.set_read_timeout(Some(ANSWER_SPAN))?;
        socket.send(&record)?;
        socket.recv(&mut [0; 64])
    });
    answered.is_ok()
}

/// What an answer holds.
trait Results: Sized {
    fn of(bytes: &[u8]) -> Option<Self>;
}

impl Results for bool {
    fn of(bytes: &[u8]) -> Option<bool> {
        decoded(bytes).ok()
    }
}

impl Results for Known {
    fn of(bytes: &[u8]) -> Option<Known> {
        let all: Vec<Binding<'_>> = decoded(bytes).ok()?;
        let known = all
            .iter()
            .map(|one| (one.program, one.version, one.network.0.into(), one.address.0.into()));
        Some(Known(known.collect()))
    }
}

fn ask<T: Results>(
    socket: &Path,
    procedure: u32,
    service: &Service,
    address: IpAddr,
) -> io::Result<T> {
    let text = universal(address, service.port);
    debug_assert!([TCP, UDP].contains(&service.protocol));
    let binding = Binding {
        program: service.program,
        version: service.version,
        network: Text(network(address, service.protocol).as_bytes()),
        address: Text(text.as_bytes()),
        owner: Text(b"trapeze"),
    };
    let arguments = if procedure == rpcbind::DUMP { Vec::new() } else { encoded(&binding) };
    let (xid, version, credential) = (std::process::id(), RPCBIND[0], Credential::None);
    let call =
        Call { xid, program: PROGRAM, version, procedure, credential, arguments: &arguments };
    let answer = exchange(socket, &call)?;
    let refused = || io::Error::other("rpcbind refuses the call, or answers something else");
    let (of, reply, results) = Reply::parse(&answer).map_err(|_| refused())?;
    let is_answer = of == xid && reply == Reply::Accepted(Acceptance::Success);
    is_answer.then(|| T::of(results)).flatten().ok_or_else(refused)
}

fn exchange(socket: &Path, call: &Call<'_>) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_SPAN))?;
    stream.set_write_timeout(Some(ANSWER_SPAN))?;
    let mut record = Vec::new();
    call.put(&mut record);
    let mut bytes = Vec::new();
    (record.len() as u32 | 1 << 31).put(&mut bytes);
    bytes.extend(record);
    stream.write_all(&bytes)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & !(1 << 31)) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::other("rpcbind answers with too much"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
