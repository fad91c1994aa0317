//! Arguments of measurements.

use super::{Files, LinkKind, Scale, Simulator, Stream, Wait};
use crate::bench::pulse::PulsePolicy;
use crate::size::Size;
use clap::{Args, Subcommand, ValueEnum};
use live::link::Address;
use std::path::PathBuf;

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
    /// Events a second of the simulator: its bare queue, the adapter models, a thousand servers
    Simulator(Simulator),
}

#[derive(Clone, Debug, Args)]
pub struct Exchange {
    /// How client and server are linked
    #[arg(long, value_enum, default_value_t = LinkKind::Shm)]
    pub link: LinkKind,
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
    /// How payloads move: sf, fixed:BYTES, adaptive or adaptive:LEAST; may be repeated. Default: one of each and more
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

/// What the forwarder's adapter remembers.
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
    /// Be the only neighbour of this node, in whose first life it is, instead of keeping pages of programs
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
    /// The file under a ring
    pub path: PathBuf,
    /// Run on this processor only
    #[arg(long)]
    pub cpu: usize,
    /// Never sleep
    #[arg(long)]
    pub spin: bool,
}
