//! Arguments of measurements.

#![allow(missing_docs)] // the documentation of a flag is its help

use clap::{Args, Subcommand, ValueEnum};
use live::link::Address;
use std::path::PathBuf;
use trapeze::flags::Wait;
use trapeze::pulses::PulsePolicy;
use trapeze::size::Size;

/// Bytes of a call to the mount.
pub const CALL_BYTES: usize = 64 * 1024;

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Latency of one block read that hits an I/O server's memory
    Fetch(Exchange),
    /// Block reads per second
    Rate(Exchange),
    /// 64 KiB calls through the mount, read and write, with fsync
    Stream(Stream),
    /// Create, stat, list, read and delete small files through the mount
    Files(Files),
    /// Payloads through two adapters by size and pulse: latency of one, bandwidth of 16; the best pulse of this machine
    Pulse(Pulse),
    /// Figure 4 of the 1999 paper, live: 1-6 I/O servers with 1-4 stores each, every store rate-limited
    Scale(Scale),
    /// Pages of network memory by where they are: in this node, in a peer over shared memory and TCP, a disk beside;
    /// page faults of a region likewise; pages that come and go
    Memory(RegionBench),
    /// 8 KiB of a file in another node's memory, through a mount and as a page fault, beside reads of the disk
    Blocks(BlocksBench),
    /// 8 KiB gets over the memcached and Redis protocols, beside memcached and redis-server
    Protocols(Protocols),
    /// Calls of NFSv3 over TCP, by kind, beside nfs-ganesha
    Nfs(Nfs),
    /// Events a second of the simulator: its bare queue, the adapter models, a thousand servers
    Simulator(Simulator),
}

#[derive(Clone, Debug, Args)]
pub struct Exchange {
    /// How client and server are linked
    #[arg(long, value_enum, default_value_t = LinkKind::Shm)]
    pub link: LinkKind,
    /// TCP over a veth to a network of the server's own, instead of over loopback; needs root
    #[arg(long)]
    pub veth: bool,
    /// Ethernet frames past the kernel's stack (AF_XDP) over that veth
    #[arg(long, requires = "veth")]
    pub xdp: bool,
    /// How both wait
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    pub wait: Wait,
    /// Fetches under way at a time; default 1, of `rate` 16
    #[arg(long)]
    pub depth: Option<usize>,
    /// Processors of client and server
    #[arg(long, default_value = "0,1", value_delimiter = ',', num_args = 1)]
    pub cpus: Vec<usize>,
    /// Do not encrypt TCP
    #[arg(long)]
    pub insecure: bool,
    /// Fetches to measure, fewer when the time is up
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// How long all of it may take
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Start fetches at this rate per second instead of as fast as they go
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub pace: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Pulse {
    /// How payloads move: sf, fixed:BYTES, adaptive (measured here) or adaptive:LEAST; may be repeated. Default: sf,
    /// fixed ones of 4K to 128K, and adaptive
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<PulsePolicy>,
    /// Processors of the two sides
    #[arg(long, default_value = "0,1", value_delimiter = ',', num_args = 1)]
    pub cpus: Vec<usize>,
    /// Rounds; medians are shown
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Draw a burst here, live and simulated
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Protocols {
    /// Gets of each cell and server, over all rounds
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Rounds, ours and theirs in turns; medians are shown
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Where client and server run; may be repeated. Default: each
    #[arg(long = "placement", value_enum)]
    pub placements: Vec<Placement>,
    /// How our server waits
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Nfs {
    /// Calls of each cell and server, over all rounds; of dear kinds a part of it
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Rounds, ours and theirs in turns; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Where client and server run; may be repeated. Default: same and apart
    #[arg(long = "placement", value_enum)]
    pub placements: Vec<Placement>,
    /// Kinds of calls; may be repeated. Default: each
    #[arg(long = "kind", value_enum)]
    pub kinds: Vec<NfsCalls>,
    /// Ours is `trapeze nfs` beside a manager and an I/O server, each a process of its own, instead of one machine
    #[arg(long)]
    pub node: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// In a network namespace of its own already
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// A kind of calls of NFSv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NfsCalls {
    /// Attributes
    Getattr,
    /// A name
    Lookup,
    /// New names
    Create,
    /// Removal of the names that CREATE made: with it
    Remove,
    /// To another directory; and between two of four managers, beside within one
    Rename,
    /// 8 KiB
    Read8,
    /// 64 KiB
    Read64,
    /// 8 KiB each, unstable, and a COMMIT now and then
    Write,
    /// A directory
    Readdirplus,
    /// 40 % GETATTR, 25 % LOOKUP, 20 % READ, 10 % WRITE, 5 % READDIRPLUS
    Mix,
}

/// Where the two sides of a measurement run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// Where the system puts them
    Free,
    /// Both on processor 0
    Same,
    /// On processors 0 and 1
    Apart,
}

#[derive(Clone, Debug, Args)]
pub struct Forward {
    /// Whether packets leave from the adapter's copy; `touch` also reads them in host memory. May be repeated; default:
    /// all three
    #[arg(long = "payload-cache", value_enum)]
    pub modes: Vec<CacheMode>,
    /// How a flow gets its backend
    #[arg(long, value_enum, default_value_t = Balancing::Hash)]
    pub balance: Balancing,
    /// Packets of 8 KiB in each round of each mode
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Rounds; medians are shown
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Processors of the sender, which also receives, and of the forwarder
    #[arg(long, default_value = "0,1", value_delimiter = ',', num_args = 1)]
    pub cpus: Vec<usize>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Memory of the forwarder's adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheMode {
    /// Packets leave from the adapter's copy
    On,
    /// Packets are fetched from host memory again
    Off,
    /// As on, and the host reads every byte in its own memory
    Touch,
}

/// How a new flow's backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Balancing {
    /// By the flow alone
    Hash,
    /// One after the other
    RoundRobin,
    /// The one with the fewest flows
    LeastConnections,
}

#[derive(Clone, Debug, Args)]
pub struct RegionBench {
    /// A directory of the disk that is read beside
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Processors of the program and of the node that keeps its pages
    #[arg(long, default_value = "0,1", value_delimiter = ',', num_args = 1)]
    pub cpus: Vec<usize>,
    /// Faults to measure of each kind
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// Bytes of a page
    #[arg(long, default_value_t = 4096)]
    pub page: usize,
    /// Seconds of each kind of coming and going
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct BlocksBench {
    /// Where the cluster's data is kept meanwhile: a directory of the disk to compare with
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Bytes of the file; the other node lends a quarter more
    #[arg(long, default_value = "256M")]
    pub size: Size,
    /// Blocks to read
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(8..=1_000_000))]
    pub count: u64,
    /// Processors of the reading program with its mount, and of the servers; by default wherever the system puts them
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub cpus: Vec<usize>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl BlocksBench {
    /// The pages of a peer that it measures beside the blocks.
    pub fn region(&self) -> RegionBench {
        let cpus = vec![0, 1];
        RegionBench { dir: None, cpus, count: self.count, page: 4096, seconds: 1, json: self.json }
    }
}

#[derive(Debug, Args)]
pub struct BenchHolder {
    /// Where to listen
    pub listen: Address,
    /// Run on this processor only
    #[arg(long)]
    pub cpu: usize,
    /// Pages to have room for
    #[arg(long)]
    pub pages: u32,
    /// Bytes of a page
    #[arg(long)]
    pub page: usize,
    /// Be the only peer of this node, in its first incarnation, instead of keeping pages of programs
    #[arg(long)]
    pub member: Option<u16>,
    /// Never sleep
    #[arg(long)]
    pub spin: bool,
}

#[derive(Debug, Args)]
pub struct BenchPeer {
    /// How the client reaches it
    #[arg(value_enum)]
    pub link: LinkKind,
    /// The file under a ring, or the address of a socket
    pub path: PathBuf,
    /// Run on this processor only
    #[arg(long)]
    pub cpu: usize,
    /// Never sleep
    #[arg(long)]
    pub spin: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Simulator {
    /// Events of the bare queue
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// Fetches between the hosts with LANai-7
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub fetches: u64,
    /// Servers of the large cluster
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(2..=4_000))]
    pub nodes: u16,
    /// Simulated milliseconds of it, with 20 fetches of each server in one
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub millis: u64,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Stream {
    /// Bytes of the file
    #[arg(long, default_value = "1250M", value_parser = file_size)]
    pub size: Size,
    /// I/O servers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: u16,
    /// Passes; the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub passes: u16,
    /// Only the cluster in one process
    #[arg(long)]
    pub embedded: bool,
    /// Only the cluster of processes
    #[arg(long, conflicts_with = "embedded")]
    pub separate: bool,
    /// Beside the cluster of processes one that keeps two copies
    #[arg(long, conflicts_with = "embedded")]
    pub two_copies: bool,
    /// Run everything on this processor, or on all
    #[arg(long, value_name = "CPU|all", default_value = "all,0", value_delimiter = ',')]
    pub cpu: Vec<Processors>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Files {
    /// Files of 4 KiB
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Passes; the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub passes: u16,
    /// I/O servers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: u16,
    /// Beside the cluster one that keeps two copies
    #[arg(long)]
    pub two_copies: bool,
    /// Run everything on this processor, or on all
    #[arg(long, value_name = "CPU|all", default_value = "all,0", value_delimiter = ',')]
    pub cpu: Vec<Processors>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Scale {
    /// Bytes of the file
    #[arg(long, default_value = "1250M", value_parser = file_size)]
    pub size: Size,
    /// I/O servers, from-to
    #[arg(long, default_value = "1-6", value_name = "FROM-TO")]
    pub servers: Span,
    /// Stores of each server, from-to
    #[arg(long, default_value = "1-4", value_name = "FROM-TO")]
    pub stores: Span,
    /// Limits of every store
    #[arg(long, default_value = "rate=30M,delay=1ms")]
    pub limit: String,
    /// Where the stores are: it must be faster than all of them together. Default: where temporary files go
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave out the passes without a limit, which show what client and machine can do
    #[arg(long)]
    pub limited_only: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The size of a file to measure with: at least one call.
pub fn file_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: trapeze::size::BadSize| error.to_string())?;
    let least = Size(CALL_BYTES as u64);
    if size < least { Err(format!("at least {least} are needed")) } else { Ok(size) }
}

/// Numbers in a row, as in 1-6; one number is a row of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u16,
    pub to: u16,
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (from.parse(), to.parse()) {
            (Ok(from), Ok(to)) if 1 <= from && from <= to && to <= 32 => Ok(Span { from, to }),
            _ => Err("write a number from 1 to 32, or two as in 1-6".to_string()),
        }
    }
}

/// One processor, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors(pub Option<usize>);

impl std::str::FromStr for Processors {
    type Err = String;

    fn from_str(text: &str) -> Result<Processors, String> {
        match text {
            "all" => Ok(Processors(None)),
            number => match number.parse() {
                Ok(number) => Ok(Processors(Some(number))),
                Err(_) => Err(format!("{number} is neither the number of a processor nor all")),
            },
        }
    }
}

/// How two nodes are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkKind {
    /// Shared memory
    Shm,
    /// Adapters over shared memory: payloads go through adapter memory on both sides
    Adapter,
    /// TCP over loopback
    Tcp,
}
