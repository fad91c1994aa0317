//! Ports of programs (RFC 1833): portmap version 2, rpcbind versions 3 and 4, for a machine where no rpcbind runs; and
//! requests to an rpcbind that does.
//!
//! [`answer`] knows a fixed list of services. Clients can neither register nor forward calls here: forwarding (CALLIT,
//! BCAST, INDIRECT) lends the server's address to anybody, and has made rpcbind an amplifier.

use crate::limits::UNIVERSAL_BYTES_MAX;
use crate::rpc::Acceptance;
use crate::xdr::{Garbage, Xdr, decoded, opaque, record};
use core::net::IpAddr;

/// Program.
pub const PROGRAM: u32 = 100_000;
/// Version of portmap (section 3).
pub const PORTMAP: u32 = 2;
/// Versions of rpcbind (section 2).
pub const RPCBIND: [u32; 2] = [3, 4];
/// The port that clients ask.
pub const PORT: u16 = 111;
/// `IPPROTO_TCP`.
pub const TCP: u32 = 6;
/// `IPPROTO_UDP`.
pub const UDP: u32 = 17;

/// Procedures of version 2 (section 3.2).
pub mod version2 {
    #![allow(missing_docs)]
    pub const NULL: u32 = 0;
    pub const SET: u32 = 1;
    pub const UNSET: u32 = 2;
    pub const GETPORT: u32 = 3;
    pub const DUMP: u32 = 4;
    pub const CALLIT: u32 = 5;
}

/// Procedures of versions 3 and 4 (section 2.2.1); those from `GETVERSADDR` on are of version 4.
pub mod rpcbind {
    #![allow(missing_docs)]
    pub const NULL: u32 = 0;
    pub const SET: u32 = 1;
    pub const UNSET: u32 = 2;
    pub const GETADDR: u32 = 3;
    pub const DUMP: u32 = 4;
    pub const BCAST: u32 = 5;
    pub const GETTIME: u32 = 6;
    pub const UADDR2TADDR: u32 = 7;
    pub const TADDR2UADDR: u32 = 8;
    pub const GETVERSADDR: u32 = 9;
    pub const INDIRECT: u32 = 10;
    pub const GETADDRLIST: u32 = 11;
    pub const GETSTAT: u32 = 12;
}

record! {
    /// One program (section 3.1, `mapping`): arguments of SET, UNSET and GETPORT, and an entry of DUMP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Mapping {
        pub program: u32,
        pub version: u32,
        pub protocol: u32,
        pub port: u32,
    }
}

opaque! {
    /// A network, an address or an owner.
    pub struct Text of UNIVERSAL_BYTES_MAX
}

record! {
    /// One program (section 2.1, `rpcb`): arguments of SET, UNSET and GETADDR, and an entry of DUMP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Binding<'a> {
        pub program: u32,
        pub version: u32,
        /// `tcp`, `udp`, `tcp6` or `udp6`.
        pub network: Text<'a>,
        pub address: Text<'a>,
        pub owner: Text<'a>,
    }
}

record! {
    /// An entry of GETADDRLIST (section 2.1, `rpcb_entry`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct AddressEntry<'a> {
        pub address: Text<'a>,
        pub network: Text<'a>,
        pub semantics: u32,
        pub family: Text<'a>,
        pub protocol: Text<'a>,
    }
}

/// A service of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Program.
    pub program: u32,
    /// Version.
    pub version: u32,
    /// [`TCP`] or [`UDP`].
    pub protocol: u32,
    /// Port.
    pub port: u16,
}

/// Circumstances of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The address of ours that the call came to: clients are told the same one.
    pub to: IpAddr,
    /// [`TCP`] or [`UDP`].
    pub over: u32,
    /// Seconds since 1970, for GETTIME.
    pub unix_seconds: u32,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These results.
    Results(Vec<u8>),
    /// This refusal.
    Refused(Acceptance),
    /// No reply: what a forwarded call gets that failed (section 3.2.1).
    Silence,
}

/// Answers a call of any version.
pub fn answer(
    services: &[Service],
    asked: Query,
    (version, procedure): (u32, u32),
    arguments: &[u8],
) -> Answer {
    let result = match version {
        PORTMAP => answer_portmap(services, procedure, arguments),
        3 | 4 => answer_rpcbind(services, asked, (version, procedure), arguments),
        _ => Ok(Answer::Refused(Acceptance::Versions { low: PORTMAP, high: 4 })),
    };
    result.unwrap_or(Answer::Refused(Acceptance::GarbageArguments))
}

fn results<'a>(value: &impl Xdr<'a>) -> Result<Answer, Garbage> {
    Ok(Answer::Results(crate::xdr::encoded(value)))
}

fn answer_portmap(
    services: &[Service],
    procedure: u32,
    arguments: &[u8],
) -> Result<Answer, Garbage> {
    match procedure {
        version2::NULL => results(&()),
        version2::SET | version2::UNSET => {
            decoded::<Mapping>(arguments)?;
            results(&false)
        }
        version2::GETPORT => {
            let asked: Mapping = decoded(arguments)?;
            let wanted = |service: &&Service| service.protocol == asked.protocol;
            let found = find(services, asked.program, asked.version, wanted);
            results(&found.map_or(0, |service| u32::from(service.port)))
        }
        version2::DUMP => {
            decoded::<()>(arguments)?;
            results(&services.iter().map(Mapping::from).collect::<Vec<_>>())
        }
        version2::CALLIT => Ok(Answer::Silence),
        _ => Ok(Answer::Refused(Acceptance::NoProcedure)),
    }
}

impl From<&Service> for Mapping {
    fn from(service: &Service) -> Mapping {
        let Service { program, version, protocol, port } = *service;
        Mapping { program, version, protocol, port: port.into() }
    }
}

/// The version that is asked for, or another of the program: the client then learns from PROG_MISMATCH which there are
/// (section 3.2.1).
fn find(
    services: &[Service],
    program: u32,
    version: u32,
    wanted: impl Fn(&&Service) -> bool,
) -> Option<Service> {
    let all = || services.iter().filter(&wanted).filter(|service| service.program == program);
    all().find(|service| service.version == version).or_else(|| all().next()).copied()
}

fn answer_rpcbind(
    services: &[Service],
    asked: Query,
    (version, procedure): (u32, u32),
    arguments: &[u8],
) -> Result<Answer, Garbage> {
    match (version, procedure) {
        (_, rpcbind::NULL) => results(&()),
        (_, rpcbind::SET | rpcbind::UNSET) => {
            decoded::<Binding<'_>>(arguments)?;
            results(&false)
        }
        (_, rpcbind::GETADDR) => address_of(services, asked, decoded(arguments)?, false),
        (4, rpcbind::GETVERSADDR) => address_of(services, asked, decoded(arguments)?, true),
        (_, rpcbind::DUMP) => dump(services, asked),
        (_, rpcbind::GETTIME) => results(&asked.unix_seconds),
        (4, rpcbind::GETADDRLIST) => address_list(services, asked, decoded(arguments)?),
        (_, rpcbind::BCAST) | (4, rpcbind::INDIRECT) => Ok(Answer::Silence),
        _ => Ok(Answer::Refused(Acceptance::NoProcedure)),
    }
}

/// GETADDR says where any version is, GETVERSADDR only where this one is. The network is the one that the call came
/// over (section 2.2.1), and an empty address is "nowhere".
fn address_of(
    services: &[Service],
    asked: Query,
    wanted: Binding<'_>,
    exactly: bool,
) -> Result<Answer, Garbage> {
    let over = |service: &&Service| service.protocol == asked.over;
    let found = find(services, wanted.program, wanted.version, over);
    let found = found.filter(|service| !exactly || service.version == wanted.version);
    let address = found.map(|service| universal(asked.to, service.port)).unwrap_or_default();
    results(&Text(address.as_bytes()))
}

fn dump(services: &[Service], asked: Query) -> Result<Answer, Garbage> {
    let all: Vec<_> =
        services.iter().map(|service| (service, universal(asked.to, service.port))).collect();
    let binding = |(service, address): &(&Service, String)| {
        let crate::portmap::Service { program, version, protocol, .. } = **service;
        let network = Text(network(asked.to, protocol).as_bytes());
        // the entry borrows its address from `all`, so it is encoded here
        let mut out = Vec::new();
        true.put(&mut out);
        let owner = Text(b"trapeze");
        Binding { program, version, network, address: Text(address.as_bytes()), owner }
            .put(&mut out);
        out
    };
    let mut out: Vec<u8> = all.iter().flat_map(binding).collect();
    false.put(&mut out);
    Ok(Answer::Results(out))
}

/// `NC_TPI_CLTS` and `NC_TPI_COTS_ORD` (section 2.1).
const CONNECTIONLESS: u32 = 1;
const CONNECTED: u32 = 3;

fn address_list(
    services: &[Service],
    asked: Query,
    wanted: Binding<'_>,
) -> Result<Answer, Garbage> {
    let mut out = Vec::new();
    let of =
        |service: &&Service| service.program == wanted.program && service.version == wanted.version;
    for service in services.iter().filter(of) {
        let address = universal(asked.to, service.port);
        let is_tcp = service.protocol == TCP;
        true.put(&mut out);
        AddressEntry {
            address: Text(address.as_bytes()),
            network: Text(network(asked.to, service.protocol).as_bytes()),
            semantics: if is_tcp { CONNECTED } else { CONNECTIONLESS },
            family: Text(if asked.to.is_ipv4() { b"inet" } else { b"inet6" }),
            protocol: Text(if is_tcp { b"tcp" } else { b"udp" }),
        }
        .put(&mut out);
    }
    false.put(&mut out);
    Ok(Answer::Results(out))
}

/// The name of a network (section 2.1, `r_netid`).
pub fn network(address: IpAddr, protocol: u32) -> &'static str {
    match (address.is_ipv4(), protocol) {
        (true, TCP) => "tcp",
        (true, _) => "udp",
        (false, TCP) => "tcp6",
        (false, _) => "udp6",
    }
}

/// A universal address (RFC 5665 section 5.2.3): the address, and the port as two more numbers.
pub fn universal(address: IpAddr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("{address}.{high}.{low}")
}

/// Address and port of a universal address.
pub fn of_universal(text: &[u8]) -> Option<(IpAddr, u16)> {
    let text = core::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (address, high) = rest.rsplit_once('.')?;
    Some((address.parse().ok()?, u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?])))
}
