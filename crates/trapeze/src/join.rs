//! A node of a program: its memory, its links and the loop that runs it on the calling thread.
//!
//! [`crate::service`]'s servers and clients are made of it, and so is the C library.

use endpoint::{Endpoint, Frames};
use live::host::Host;
use live::link::{Address, Directory, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use node::{CallError, Node, NodeConfig};
use std::io;
use std::time::Duration;
use wire::NodeId;

/// Options of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of payload frames, all taken at the start.
    pub memory_bytes: usize,
    /// How the thread waits when there is nothing to do.
    pub wait: WaitPolicy,
    /// Of TCP: a shared key, or [`Security::Insecure`] by name. Shared memory needs none: it admits the same user only.
    pub security: Option<Security>,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory_bytes: 64 << 20, wait: WaitPolicy::Adaptive, security: None }
    }
}

/// Why a server or a client does not work.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The address cannot be read.
    #[error(transparent)]
    Address(#[from] live::link::address::BadAddress),
    /// TCP without a word about security.
    #[error("{0}: name a key in Options::security, or Security::Insecure")]
    NoSecurity(Address),
    /// No id, and no peer that could give one.
    #[error("a node that connects to nobody needs an id of its own, 1 or more")]
    Nobody,
    /// The system says no.
    #[error("{0}: {1}")]
    System(String, io::Error),
    /// The call did not come to a reply.
    #[error(transparent)]
    Call(#[from] CallError),
}

type Result<T> = std::result::Result<T, ServiceError>;

/// How long the node that is connected to may take to greet.
const CONNECT_SPAN: Duration = Duration::from_secs(10);
/// Memory that links and calls need in any case.
const PAGES_MIN: usize = 64;

/// The node to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<'a> {
    /// Its id; 0 when the node that it connects to is to give it one.
    pub node: NodeId,
    /// Where it listens: `unix:PATH`, `adapter:PATH`, `tcp:HOST:PORT` (port 0: any free one).
    pub listen: Option<&'a str>,
    /// The address that it connects to at once.
    pub connect: Option<&'a str>,
}

/// A node on the calling thread.
pub struct Joined {
    /// To be driven.
    pub host: Host,
    /// Where other nodes are found.
    pub directory: Directory,
    /// Where it listens, with the real port.
    pub address: Option<Address>,
    /// The node that it has connected to.
    pub peer: Option<NodeId>,
}

pub(crate) fn system(what: impl ToString) -> impl FnOnce(io::Error) -> ServiceError {
    move |error| ServiceError::System(what.to_string(), error)
}

/// Security of TCP for links to these addresses. Shared memory needs none: it admits the same user only.
pub fn security<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
    said: Option<Security>,
) -> Result<Security> {
    let tcp = addresses.into_iter().find(|address| !address.is_local());
    match (said, tcp) {
        (Some(security), _) => Ok(security),
        (None, None) => Ok(Security::Insecure),
        (None, Some(address)) => Err(ServiceError::NoSecurity(address.clone())),
    }
}

fn links(config: LinkConfig, options: &Options) -> Result<(Links, Frames)> {
    let pages = options.memory_bytes.div_ceil(endpoint::limits::PAGE_BYTES).max(PAGES_MIN);
    let region = MemfdRegion::create("service", pages).map_err(system("payload memory"))?;
    let fd = region.share().map_err(system("payload memory"))?;
    let pool = SharedPool { fd, bytes: pages * endpoint::limits::PAGE_BYTES };
    let links = Links::new(config, Some(pool), Box::new(|_| {})).map_err(system("links"))?;
    Ok((links, Frames::new(region)))
}

/// Makes the node: connects, if that is wanted, then listens, if that is.
pub fn join(plan: Plan<'_>, options: &Options) -> Result<Joined> {
    let parse = |text: Option<&str>| text.map(str::parse::<Address>).transpose();
    let (listen, connect) = (parse(plan.listen)?, parse(plan.connect)?);
    if plan.node == NodeId(0) && connect.is_none() {
        return Err(ServiceError::Nobody);
    }
    let security = security(listen.iter().chain(&connect), options.security.clone())?;
    let incarnation = crate::incarnation::clock();
    let config = LinkConfig { node: plan.node, incarnation, cluster: 0, security };
    let (mut links, frames) = links(config, options)?;
    // The links need somewhere to put messages while they greet; none comes before we are greeted.
    let mut greeting = Endpoint::new(frames.clone(), incarnation);
    let greet = |address: &Address| {
        let greeted = links.bootstrap(&mut greeting, address, CONNECT_SPAN);
        greeted.map_err(system(format!("no server at {address}")))
    };
    let greeted = connect.as_ref().map(greet).transpose()?;
    let listened = listen.map(|at| links.listen(&at).map_err(system(&at))).transpose()?;
    let (id, directory) = (links.node(), links.directory().clone());
    let seed = u64::from_le_bytes(crate::random::bytes());
    let node = Node::new(NodeConfig::new(id, incarnation, seed), frames);
    let mut host = Host::new(node, options.wait).map_err(system("the loop"))?;
    host.add(links).map_err(system("links"))?;
    Ok(Joined { host, directory, address: listened, peer: greeted.map(|(_, peer)| peer) })
}
