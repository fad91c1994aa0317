//! The command line: flags as data, from which `--help` is made.
#![allow(missing_docs)] // the documentation of a flag is its help

mod disk;
mod files;
mod forget;
mod import;
mod manual;
pub mod memory;
mod nfs;
mod program;
mod restore;
mod simulations;

use bench::arguments::{Bench, BenchHolder, BenchPeer, Forward, file_size};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use trapeze::flags::Wait;
use trapeze::lending::Lending;
use trapeze::local::LocalLink;
use trapeze::nfs::NfsOptions;
use trapeze::scrubbing::Scrubbing;
use trapeze::size::Size;
use trapeze::socket_access::ListenAccess;
use trapeze::xdp::XdpFlag;

pub use disk::{AddDisk, Disk, ReplaceDisk};
pub use files::{Cat, Cp, Du, Layout, Mkdir, Mv, Paths, Prefetch, Rm, default_cluster, in_cluster};
pub use forget::Forget;
pub use import::{ImportExport, Writes};
pub use manual::{Completions, Man};
pub use memory::{Listen, Memory};
pub use nfs::{Filter, NfsNode, ServeNfs};
pub use program::{RunEnd, RunProgram};
pub use restore::{Backup, Restore, Salvage};
pub use simulations::{Output, Papers, Results, Sim};

/// Network storage at network speed: files striped over block servers, mounted, on one machine or several.
#[derive(Debug, Parser)]
#[command(name = "trapeze", version, max_term_width = 100)]
#[command(
    after_help = "Start here:\n  trapeze demo              see it work, in a scratch directory\n  trapeze up --dir D --mount M   a file system of your own on this machine\n\nExit codes: 0 done, 1 failed, 2 bad usage."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Demonstrate a cluster in a scratch directory: mount, real files, a server killed, speeds
    Demo(Demo),
    /// Run a whole cluster on this machine, its data kept in a directory; stop with Ctrl-C
    Up(Up),
    /// Make the first machine of a cluster of several: its key, its manager, and the token for the others
    Init(Init),
    /// Add this machine to a cluster as an I/O server
    Join(Join),
    /// Add disks to an I/O server
    #[command(subcommand)]
    Disk(Disk),
    /// Run one machine of a cluster from its configuration file; stop with Ctrl-C
    Serve(Serve),
    /// Mount the file system; stop with Ctrl-C or by unmounting
    Mount(Mount),
    /// Serve the file system to clients of NFS; stop with Ctrl-C
    Nfs(ServeNfs),
    /// Serve NFS at one address before several managers: each call is executed by the manager of its names
    Filter(Filter),
    /// Read an export of another NFS server as a directory of the volume, cached; stop with Ctrl-C
    Import(ImportExport),
    /// Keep keys and values in memory for clients of memcached and Redis; stop with Ctrl-C
    Memory(Memory),
    /// List a directory of the cluster (no mount needed)
    Ls(Paths),
    /// Copy files and trees: local paths as they are, the cluster's as :/path
    Cp(Cp),
    /// Print files of the cluster
    Cat(Cat),
    /// Make directories in the cluster
    Mkdir(Mkdir),
    /// Rename or move files in the cluster
    Mv(Mv),
    /// Show the storage that directories of the cluster take
    Du(Du),
    /// Remove files and trees of the cluster
    Rm(Rm),
    /// Show what the cluster knows of a file: attributes, layout, where its columns are
    Stat(Paths),
    /// Show how the names of directories are spread over managers; --hash spreads those of an empty one over all
    Layout(Layout),
    /// Announce files that will be read soon, in order: the servers bring them from their disks into memory
    Prefetch(Prefetch),
    /// Show room on the cluster
    Df(Target),
    /// Show problems and list machines; the exit code is 1 when there is a problem
    Status(Status),
    /// For monitors: prints nothing and exits with 0 when all is well, else prints the problem and exits with 1
    Health(Target),
    /// Watch rates of reads, writes, calls and messages of all servers, their waiting, and lent memory
    Top(Top),
    /// Serve the servers' counters to Prometheus
    Metrics(Metrics),
    /// Move columns until every disk holds about the same, or off servers that are to go; files stay in use
    Rebalance(Rebalance),
    /// Compare names with objects and list damaged files by path; exit code 1 when anything is wrong
    Check(Check),
    /// Declare a machine or a disk lost: access to its data fails at once, its name becomes free
    Forget(Forget),
    /// Objects that no file claims: list them, put them back, remove them
    Quarantine(Quarantine),
    /// Write all names, and where their bytes are, to a file: online, at one moment, compressed
    Backup(Backup),
    /// Restore the names of a manager from a backup, or go on with an older copy of its store
    Restore(Restore),
    /// Rebuild files under /lost+found from the disks when names are lost and no backup has them
    Salvage(Salvage),
    /// Run the cluster in the deterministic simulator, or replay a seed; model a cluster of your own
    Sim(Sim),
    /// The papers' tables and figures: the paper's values beside formulas and simulations
    Papers(Papers),
    /// Measure, each beside its baseline in the same run
    #[command(subcommand)]
    Bench(Bench),
    /// Run a program with a part of its large memory here, and the rest in a file or in the cluster's memory
    Run(RunProgram),
    /// Waits for the end of a program of `run`, and has its pages forgotten: started by it
    #[command(hide = true)]
    RunEnd(RunEnd),
    /// Write a man page for each command
    Man(Man),
    /// Print completions of commands and flags for a shell
    Completions(Completions),
    /// Forward packets between two adapters on this machine, with and without the payload cache
    Forward(Forward),
    /// The far end of a bare ring or socket: the baseline of the measurements
    #[command(hide = true)]
    BenchPeer(BenchPeer),
    /// A node that keeps pages: the far end of the measurements of regions
    #[command(hide = true)]
    BenchHolder(BenchHolder),
    /// A plain directory through the FUSE device loop: the baseline of the measurements
    #[command(hide = true)]
    PassThrough {
        /// The directory
        source: PathBuf,
        /// Where to mount it
        path: PathBuf,
    },
}

/// How to reach a cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// A directory of `up`, `init` or `join`, or the manager's address: unix:PATH, adapter:PATH or tcp:HOST:PORT.
    /// Default: trapeze-machine here, else trapeze-data
    #[arg(long, short = 'c', env = "TRAPEZE_CLUSTER", value_name = "DIR|ADDRESS", hide_default_value = true, default_value = default_cluster())]
    pub cluster: String,
    /// File with the cluster key, when the address is tcp
    #[arg(long, env = "TRAPEZE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not encrypt TCP; every machine of the cluster must agree
    #[arg(long)]
    pub insecure: bool,
}

/// The cluster of a command, and the form of its output.
#[derive(Clone, Debug, Args)]
pub struct Target {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// A directory whose files are copied in; default: a part of /usr
    pub source: Option<PathBuf>,
    /// I/O servers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: u16,
    /// Bytes of the file for the speeds
    #[arg(long, default_value = "512M", value_parser = file_size)]
    pub size: Size,
    /// How the processes are linked
    #[arg(long, value_enum, default_value_t = LocalLink::Shm)]
    pub link: LocalLink,
    /// Use the library client even where FUSE works
    #[arg(long)]
    pub no_mount: bool,
    /// Leave the scratch directory behind
    #[arg(long)]
    pub keep: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Memory: all of it together takes at most an eighth of this machine's, as it is used; little at the start.\n`pool` and `cache` under [memory] in DIR/ioN.toml, written when the directory is made, say otherwise.\nIts log: DIR/log/up.log."
)]
pub struct Up {
    /// Directory of the cluster's data; made if it does not exist
    #[arg(long, default_value = "trapeze-data")]
    pub dir: PathBuf,
    /// I/O servers, when the directory is made; default 4
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: Option<u16>,
    /// File managers, when the directory is made: the name space is spread over them; default 1
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub managers: Option<u16>,
    /// Disk directories of each I/O server, when the directory is made; default 1
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub disks: Option<u16>,
    /// Copies of each byte of files, on disks of distinct I/O servers, when the directory is made; default 1
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: Option<u8>,
    /// Mount the file system here, an empty directory
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Mount also over a directory that is not empty, whose contents are hidden meanwhile
    #[arg(long, requires = "mount")]
    pub nonempty: bool,
    /// Serve the file system to clients of NFS (version 3, over TCP) at this address; the usual port is 2049
    #[arg(long, value_name = "HOST[:PORT]")]
    pub nfs: Option<String>,
    /// With --nfs
    #[command(flatten)]
    pub nfs_options: NfsOptions,
    /// Also listen for other machines, when the directory is made: the manager here, the I/O servers at the ports after
    /// it, and a mount that lends memory at the next
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Do not encrypt TCP, when the directory is made
    #[arg(long)]
    pub insecure: bool,
    /// How processes of this machine are linked, when the directory is made
    #[arg(long, value_enum, default_value_t = LocalLink::Shm)]
    pub link: LocalLink,
    /// Of every machine in it
    #[command(flatten)]
    pub access: ListenAccess,
    /// Of each I/O server and of the mount
    #[command(flatten)]
    pub lending: Lending,
    #[command(flatten)]
    pub scrubbing: Scrubbing,
}

#[derive(Debug, Args)]
pub struct Init {
    /// Directory of this machine's configuration and of the name space
    #[arg(long, default_value = "trapeze-machine")]
    pub dir: PathBuf,
    /// The address that the other machines reach this one by
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// A disk directory of this machine, when it is to be an I/O server too; may be repeated
    #[arg(long = "disk", value_name = "DIR")]
    pub disks: Vec<PathBuf>,
    /// Copies of each byte of files, on disks of distinct machines: with 2, files are there and can be written while
    /// any one I/O server or disk is not
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: u8,
    /// Name of this machine
    #[arg(long, default_value = "manager")]
    pub name: String,
    /// Do not encrypt TCP
    #[arg(long)]
    pub insecure: bool,
    /// Written to its configuration
    #[command(flatten)]
    pub access: ListenAccess,
    /// Written to its configuration
    #[command(flatten)]
    pub lending: Lending,
    /// Written to its configuration
    #[command(flatten)]
    pub xdp: XdpFlag,
    #[command(flatten)]
    pub scrubbing: Scrubbing,
}

#[derive(Debug, Args)]
pub struct Join {
    /// The token that `trapeze init` printed; `-` is standard input, since all users can read command lines
    #[arg(required_unless_present = "token_file", conflicts_with = "token_file")]
    pub token: Option<String>,
    /// Read the token from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Directory of this machine's configuration
    #[arg(long, default_value = "trapeze-machine")]
    pub dir: PathBuf,
    /// The address that the other machines reach this one by
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Role of this machine; may be repeated. A manager takes over its share of the name space as soon as it is started
    #[arg(long = "role", value_enum, default_values_t = [JoinRole::Io])]
    pub roles: Vec<JoinRole>,
    /// A directory for objects, one for each disk; may be repeated. Default of an I/O server: DIR/disk0
    #[arg(long = "disk", value_name = "DIR")]
    pub disks: Vec<PathBuf>,
    /// Name of this machine, unique in the cluster. Default: the host's name
    #[arg(long)]
    pub name: Option<String>,
    /// Written to its configuration
    #[command(flatten)]
    pub lending: Lending,
    /// Written to its configuration
    #[command(flatten)]
    pub xdp: XdpFlag,
    #[command(flatten)]
    pub scrubbing: Scrubbing,
}

/// Roles of a machine that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum JoinRole {
    /// Keeps objects on its disks
    Io,
    /// Keeps a share of the name space in DIR/store
    Manager,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// The machine's configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Overrides the configuration
    #[command(flatten)]
    pub lending: Lending,
    /// Overrides the configuration
    #[command(flatten)]
    pub xdp: XdpFlag,
    #[command(flatten)]
    pub scrubbing: Scrubbing,
    /// Wait for a line of input before anything else
    #[arg(long, hide = true)]
    pub on_line: bool,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// Run on this processor only
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
}

#[derive(Clone, Debug, Args)]
#[command(override_usage = "trapeze mount [OPTIONS] [CLUSTER] PATH")]
pub struct Mount {
    /// The cluster, unless TRAPEZE_CLUSTER or --cluster names it, then where to mount: an empty directory
    #[arg(required = true, num_args = 1..=2, value_name = "[CLUSTER] PATH")]
    pub places: Vec<PathBuf>,
    /// A directory of `up`, `init` or `join`, or the manager's address: unix:PATH, adapter:PATH or tcp:HOST:PORT.
    /// Default: trapeze-machine here, else trapeze-data
    #[arg(long, short = 'c', env = "TRAPEZE_CLUSTER", value_name = "DIR|ADDRESS", hide_default_value = true, default_value = default_cluster())]
    pub cluster: String,
    /// Mount also over a directory that is not empty, whose contents are hidden meanwhile
    #[arg(long)]
    pub nonempty: bool,
    /// File with the cluster key, when the address is tcp
    #[arg(long, env = "TRAPEZE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not encrypt TCP
    #[arg(long)]
    pub insecure: bool,
    /// Memory for payload frames
    #[arg(long, default_value = "256M")]
    pub pool: Size,
    /// Of this mount
    #[command(flatten)]
    pub lending: Lending,
    /// Address for other machines to reach lent memory; not needed when the cluster is on one machine
    #[arg(long, value_name = "HOST:PORT", requires = "lend")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub xdp: XdpFlag,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// Run on this processor only
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// Options as mount(8) has them: ro, allow_other, noatime, noexec, sync, fsname=NAME; and key=FILE, insecure,
    /// pool=SIZE, lend=SIZE, listen=HOST:PORT, xdp=IFACE[:QUEUE], which are those above
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Called by mount(8): leaves the terminal that it was started from
    #[arg(long, hide = true)]
    pub background: bool,
}

impl Mount {
    /// The cluster, and where to mount it.
    pub fn places(&self) -> (String, PathBuf) {
        match &self.places[..] {
            [cluster, path] => (cluster.to_string_lossy().into_owned(), path.clone()),
            places => (self.cluster.clone(), places[0].clone()),
        }
    }
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub target: Target,
    /// Also every disk, memory, links and calls, with their counters
    #[arg(long)]
    pub all: bool,
    /// Repeat it with this pause, until Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub watch: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub target: Target,
    /// Seconds between two pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,
    /// Pictures until it ends by itself
    #[arg(long)]
    pub count: Option<u64>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Then in Prometheus:\n  scrape_configs: [{job_name: trapeze, static_configs: [{targets: ['127.0.0.1:9464']}]}]"
)]
pub struct Metrics {
    #[command(flatten)]
    pub target: Target,
    /// Address for Prometheus, over HTTP at /metrics
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9464")]
    pub listen: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A server that was added takes its share:\n  trapeze rebalance -c DIR\nTo remove a server:\n  trapeze rebalance -c DIR --off io3     then stop it when this says that it holds nothing\n\nAn interrupted run can be repeated. In a cluster that keeps copies the servers spread what they have by themselves: this\nwaits until they have, and shows how; there --off io3:1 empties disk 1 of io3."
)]
pub struct Rebalance {
    #[command(flatten)]
    pub target: Target,
    /// Only files under this path of the cluster
    #[arg(default_value = "/", value_parser = in_cluster())]
    pub path: PathBuf,
    /// Move all data off the server with this name, which gets no new data; may be repeated. A disk of it is
    /// SERVER:NUMBER, in a cluster that keeps copies
    #[arg(long, value_name = "SERVER[:DISK]")]
    pub off: Vec<String>,
    /// The server with this name gets its share again, or a disk of it; may be repeated
    #[arg(long, value_name = "SERVER[:DISK]")]
    pub back: Vec<String>,
    /// Also give files columns on disks where they have none, for data appended later
    #[arg(long)]
    pub widen: bool,
    /// Most bytes a second; 0 is as fast as it goes
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub rate: Size,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Everything, quickly:\n  trapeze check -c DIR\nEvery byte of a tree:\n  trapeze check -c DIR --deep /home\nA loss is final, the rest of the file is to be used:\n  trapeze check -c DIR --accept /home/a/mail.db\n\nExit codes: 0 nothing is wrong, 1 something is, or could not be checked."
)]
pub struct Check {
    #[command(flatten)]
    pub target: Target,
    /// Only this path of the cluster; orphaned objects are looked for under / only
    #[arg(default_value = "/", value_parser = in_cluster())]
    pub path: PathBuf,
    /// Read every byte, not only each object's head
    #[arg(long)]
    pub deep: bool,
    /// Accept the loss in this file: it reads as zeros there from now on; may be repeated
    #[arg(long, value_name = "PATH", value_parser = in_cluster())]
    pub accept: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Quarantine {
    #[command(subcommand)]
    pub what: QuarantineDo,
}

#[derive(Debug, Subcommand)]
pub enum QuarantineDo {
    /// List quarantined objects, since when and why; they are removed after a day
    List(Target),
    /// Put quarantined objects back; they are not quarantined again
    Restore(Objects),
    /// Remove quarantined or restored objects for good
    Purge(Objects),
    /// Quarantine also objects of files that this manager's store cannot know: no newer copy of it will come back
    Resume(Target),
}

#[derive(Debug, Args)]
pub struct Objects {
    #[command(flatten)]
    pub target: Target,
    /// Names of objects as `list` shows them
    #[arg(required_unless_present = "all")]
    pub objects: Vec<String>,
    /// All that are set aside
    #[arg(long, conflicts_with = "objects")]
    pub all: bool,
}
