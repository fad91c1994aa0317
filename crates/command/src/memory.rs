//! `trapeze memory`: keys and values for clients of memcached and Redis.

mod member;

use crate::cli::{self, Listen};
use crate::status::{Exporter, serve_own};
use endpoint::Frames;
use endpoint::limits::PAGE_BYTES;
use kv::limits::{MEMORY_BYTES_MIN, VALUE_BYTES_MAX};
use kv::{BadTenants, Items, ItemsConfig, Protocol, TenantConfig, TenantNo};
use live::host::Host;
use live::memory::MemfdRegion;
use live::signals::{self, Signals};
use node::{Node, NodeConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sockets::{Address, ListenError, Sockets};
use std::io;
use std::rc::Rc;
use trapeze::children::READY;
use trapeze::client::ReachError;
use trapeze::machine::{self, MachineError, Running};
use trapeze::serve::pin;
use trapeze::status::service::Source;
use wire::NodeId;

/// Longest value by default: a chunk of a language model's cache has up to 32 MiB.
const VALUE_BYTES: u64 = 64 << 20;
/// The part of the memory that one value may take, one in so many: others have to stay.
const VALUE_SHARE: u64 = 4;
/// Longest password: it comes in one short argument.
const PASSWORD_BYTES_MAX: usize = 512;
/// Descriptors beside those of connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The tenants.
    #[error(transparent)]
    Tenants(#[from] BadTenants),
    /// The addresses.
    #[error("{0}{next}", next = after_listening(.0))]
    Listen(#[from] ListenError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The parts of a node.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(String),
}

/// The addresses and their protocols; both usual ones when none is given, without memcached's where a password is.
fn listens(arguments: &cli::Memory) -> Vec<(Protocol, Listen)> {
    let usual = |text: &str| text.parse().expect("an address");
    let memcached = arguments.memcached.iter().cloned().map(|at| (Protocol::Memcached, at));
    let resp = arguments.resp.iter().cloned().map(|at| (Protocol::Resp, at));
    let all: Vec<_> = memcached.chain(resp).collect();
    match all.is_empty() {
        true if arguments.resp_password.is_some() => {
            vec![(Protocol::Resp, usual("127.0.0.1:6379"))]
        }
        true => vec![
            (Protocol::Memcached, usual("127.0.0.1:11211")),
            (Protocol::Resp, usual("127.0.0.1:6379")),
        ],
        false => all,
    }
}

/// The tenants of the addresses, in the order in which they are named, with their bounds.
fn tenants(
    arguments: &cli::Memory,
    listens: &[(Protocol, Listen)],
) -> Result<Vec<TenantConfig>, MemoryError> {
    let mut names: Vec<&str> = Vec::new();
    for (_, listen) in listens {
        if !names.contains(&listen.tenant.as_str()) {
            names.push(&listen.tenant);
        }
    }
    for (at, tenant) in arguments.tenants.iter().enumerate() {
        let name = &tenant.name;
        if !names.contains(&name.as_str()) {
            let text = format!("--tenant {name}: no address is its own: write HOST:PORT/{name}");
            return Err(MemoryError::Usage(text));
        }
        if arguments.tenants[..at].iter().any(|other| other.name == *name) {
            return Err(MemoryError::Usage(format!("--tenant {name} is given twice")));
        }
    }
    let config = |name: &&str| {
        let given = arguments.tenants.iter().find(|tenant| tenant.name == **name);
        TenantConfig {
            name: name.to_string(),
            min_bytes: given.map_or(0, |tenant| tenant.min.0 as usize),
            max_bytes: given.and_then(|tenant| tenant.max).map_or(usize::MAX, |max| max.0 as usize),
            away_max_bytes: given
                .and_then(|tenant| tenant.away)
                .map_or(usize::MAX, |away| away.0 as usize),
        }
    };
    Ok(names.iter().map(config).collect())
}

/// The password of clients of Redis. A memcached address with the same items would make it worthless.
fn password(
    arguments: &cli::Memory,
    listens: &[(Protocol, Listen)],
) -> Result<Option<Rc<str>>, MemoryError> {
    let Some(path) = &arguments.resp_password else { return Ok(None) };
    let usage = |why: String| MemoryError::Usage(format!("--resp-password: {why}"));
    let of = |wanted| listens.iter().filter(move |(protocol, _)| *protocol == wanted);
    for (_, open) in of(Protocol::Memcached) {
        if of(Protocol::Resp).any(|(_, listen)| listen.tenant == open.tenant) {
            return Err(usage(format!(
                "the memcached address {} asks for none and has the same items: leave it out, or give it a tenant of its own, {}/NAME",
                open.at, open.at
            )));
        }
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| usage(format!("{}: {error}", path.display())))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(usage(format!("{}: its first line is empty", path.display())));
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(usage(format!("a password has {PASSWORD_BYTES_MAX} bytes at most")));
    }
    Ok(Some(password.into()))
}

fn value_bytes_max(arguments: &cli::Memory) -> Result<usize, MemoryError> {
    let most = (arguments.memory.0 / VALUE_SHARE).min(VALUE_BYTES_MAX as u64);
    match arguments.value_max {
        None => Ok(most.min(VALUE_BYTES) as usize),
        Some(wanted) if wanted.0 <= most => Ok(wanted.0 as usize),
        Some(wanted) => Err(MemoryError::Usage(format!(
            "--value-max {wanted}: a value may take a quarter of --memory {}, and 512M at the most",
            arguments.memory
        ))),
    }
}

/// Lets this process open so many descriptors more, as far as it may.
fn allow_descriptors(connections: u64) -> Result<(), MemoryError> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections + OTHER_DESCRIPTORS;
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        let most = limit.maximum.unwrap_or_default().saturating_sub(OTHER_DESCRIPTORS);
        MemoryError::Usage(format!(
            "--connections {connections}: this process may open fewer files; use --connections {most}, or raise the hard limit (ulimit -Hn)"
        ))
    })
}

/// The device, its memory in frames of a pool.
fn sockets(arguments: &cli::Memory, frames: &Frames) -> Result<Sockets, MemoryError> {
    let listens = listens(arguments);
    let tenants = tenants(arguments, &listens)?;
    let number = |name: &str| tenants.iter().position(|tenant| tenant.name == name);
    let address = |(protocol, listen): &(Protocol, Listen)| {
        let tenant = TenantNo(number(&listen.tenant).expect("every address has one") as u16);
        Address { at: listen.at, protocol: *protocol, tenant }
    };
    let addresses: Vec<Address> = listens.iter().map(address).collect();
    let config = ItemsConfig {
        memory_bytes: frames.bytes(),
        value_bytes_max: value_bytes_max(arguments)?,
        seed: u64::from_le_bytes(trapeze::random::bytes()),
        tenants,
    };
    let mut items = Items::new(config, frames.clone())?;
    items.facts_mut().password = password(arguments, &listens)?;
    Ok(Sockets::listen(&addresses, items, arguments.connections as usize)?)
}

fn after_listening(error: &ListenError) -> &'static str {
    match error {
        ListenError::Address(_, error) => machine::after_listening(error),
        ListenError::System(_) => "",
    }
}

fn host(arguments: &cli::Memory) -> Result<(Serving, String), MemoryError> {
    let pages = arguments.memory.0 as usize / PAGE_BYTES;
    if pages * PAGE_BYTES < MEMORY_BYTES_MIN {
        return Err(BadTenants::Memory(arguments.memory.0 as usize).into());
    }
    let region = MemfdRegion::create("trapeze-memory", pages)?;
    if arguments.prefault {
        region.touch()?;
    }
    let frames = Frames::new(region);
    let sockets = sockets(arguments, &frames)?;
    let said: Vec<String> = listens(arguments)
        .iter()
        .zip(sockets.addresses())
        .map(|((protocol, listen), at)| {
            let name = if *protocol == Protocol::Memcached { "memcached" } else { "resp" };
            format!("{name} at {at} ({})", listen.tenant)
        })
        .collect();
    let said = said.join(", ");
    match &arguments.member.cluster {
        Some(cluster) => Ok((member::join(arguments, cluster, sockets)?, said)),
        None => alone(arguments, frames, sockets, said),
    }
}

/// A node that knows of no other.
fn alone(
    arguments: &cli::Memory,
    frames: Frames,
    sockets: Sockets,
    mut said: String,
) -> Result<(Serving, String), MemoryError> {
    let seed = u64::from_le_bytes(trapeze::random::bytes());
    let config = NodeConfig::new(NodeId(1), trapeze::incarnation::clock(), seed);
    let mut host = Host::new(Node::new(config, frames), arguments.wait.into())?;
    let items = sockets.items();
    host.add(sockets)?;
    if let Some(at) = &arguments.metrics {
        let exporter = Exporter::bind("--metrics", at)?;
        said = format!("{said}, metrics at {}", exporter.address()?);
        host.add(serve_own(exporter, "memory", Source::of_keys(&host, items))?)?;
    }
    Ok((Serving::Alone(Box::new(host)), said))
}

/// The host that serves: a node by itself, or a member of a cluster.
enum Serving {
    Alone(Box<Host>),
    Member(Box<Running>),
}

impl Serving {
    fn host(&mut self) -> &mut Host {
        match self {
            Serving::Alone(host) => host,
            Serving::Member(running) => &mut running.host,
        }
    }
}

/// `trapeze memory`.
pub fn serve(arguments: &cli::Memory) -> Result<(), MemoryError> {
    let member = &arguments.member;
    if member.cluster.is_none() && member.lending.lend.is_some() {
        let text = "--lend: a member of a cluster lends; name the cluster with --cluster";
        return Err(MemoryError::Usage(text.into()));
    }
    pin(arguments.cpu)?;
    allow_descriptors(arguments.connections.into())?;
    signals::install()?;
    let (mut serving, said) = host(arguments)?;
    let open = |protocol| protocol == Protocol::Memcached || arguments.resp_password.is_none();
    let reached =
        |(protocol, listen): &(_, Listen)| open(*protocol) && !listen.at.ip().is_loopback();
    if listens(arguments).iter().any(reached) {
        eprintln!("anybody who reaches these addresses can read and change every item");
    }
    println!("{READY} {said}; {} of memory; stop with Ctrl-C", arguments.memory);
    serving.host().add(Signals::default())?;
    serving.host().save();
    serving.host().run(signals::asked)?;
    member::leave(serving)
}
