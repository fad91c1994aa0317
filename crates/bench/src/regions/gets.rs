//! Part of `trapeze bench memory`: a page that a node gets from network memory, by where it is: in its own memory, in
//! another node's over shared memory and over TCP; and as many bytes that this program reads from a disk past all
//! memory.
//!
//! Two nodes are each other's only peers. This one puts its pages, whose mirrors the other one has, drops its own copy
//! before each get that is to come from there, and is the directory of them, as of all of a node's private pages. They
//! are pinned as the rest of the benchmark; the one not measured is stopped meanwhile, because it may spin.

use super::{CLUSTER, HOLDER, RegionsError, Times, start_holder};
use crate::arguments::{LinkKind, RegionBench};
use crate::direct::{Aligned, open_direct};
use crate::pass::histogram;
use crate::row::Row;
use endpoint::Frames;
use endpoint::limits::PAGE_BYTES;
use hdrhistogram::Histogram;
use live::clock;
use live::host::Host;
use live::link::{Address, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use netmem::service::{Config, GetError, Hint, PutError, Source, Up, View};
use netmem::{Class, Directory, PageId, Service, SpaceId, Version, Wanted};
use node::{Node, NodeConfig};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::children::Process;
use wire::{NodeId, mix};

const ROUNDS: usize = 15;
/// Bytes of a page.
const SIZES: [usize; 2] = [4096, 8192];
/// Both nodes are in their first incarnation: their processes are new.
const INCARNATION: u64 = 1;
const ME: NodeId = NodeId(3);
/// Frames of this node beside the pages.
const SPARE_PAGES: usize = 1024;
/// Bytes that the disk is read from: more than a device's own buffers, read in no order.
const FILE_BYTES: usize = 64 << 20;
/// Gets for each read of the disk, which takes ten times as long and more.
const DISK_SHARE: usize = 8;
/// How long the two nodes may take to find each other.
const SETTLE_SPAN: Duration = Duration::from_secs(20);

/// A page did not come.
#[derive(Debug, thiserror::Error)]
pub enum GetsError {
    /// It could not be put.
    #[error("a page could not be put: {0}")]
    Put(#[from] PutError),
    /// Its mirror could not be made.
    #[error("a page found no room in the other node: {0}")]
    Weak(#[from] netmem::service::Weak),
    /// It could not be had.
    #[error("a page could not be had: {0}")]
    Get(#[from] GetError),
    /// It came from elsewhere than it should have.
    #[error("a page came from {0:?} instead of {1:?}: that is no measurement")]
    Elsewhere(Source, Source),
}

/// This process as a node, and the process of its only peer.
struct Pair {
    host: Host,
    service: Service,
    holder: Process,
    pages: usize,
}

/// All that there is to know of a page's number: its size is a part of it.
fn page(number: usize, bytes: usize) -> PageId {
    PageId { space: SpaceId::private(ME, bytes as u64), index: number as u64 }
}

fn wanted(number: usize, bytes: usize) -> Wanted {
    Wanted { id: page(number, bytes), at_least: Version(1), bytes: bytes as u32 }
}

impl Pair {
    fn start(link: LinkKind, arguments: &RegionBench, dir: &Path) -> Result<Pair, RegionsError> {
        let pages = arguments.pages();
        let bytes: usize = SIZES.iter().map(|size| pages * size).sum();
        // Twice the room: a node does not fill itself with what it must not lose.
        let holder = start_holder(link, arguments, dir, (4 * pages, Some(ME)))?;
        let pool_pages = bytes / PAGE_BYTES * 2 + SPARE_PAGES;
        let region = MemfdRegion::create("bench-gets", pool_pages)?;
        region.touch()?;
        let pool = SharedPool { fd: region.share()?, bytes: pool_pages * PAGE_BYTES };
        let config = LinkConfig {
            node: ME,
            incarnation: INCARNATION,
            cluster: CLUSTER,
            security: Security::Insecure,
        };
        let links = Links::new(config, Some(pool), Box::new(|_| ()))?;
        let address: Address = holder.said.parse().map_err(io::Error::other)?;
        links.directory().set(HOLDER, vec![address]);
        let node = Node::new(NodeConfig::new(ME, INCARNATION, 1), Frames::new(region));
        let mut host = Host::new(node, arguments.policy())?;
        host.add(links)?;
        let service = Service::start(host.node().cx(), config_of(pages, bytes));
        service.set_view(view(ME, HOLDER));
        let mut pair = Pair { host, service, holder, pages };
        pair.fill()?;
        pair.holder.pause();
        Ok(pair)
    }

    /// Puts all pages; each is with the other node then, too.
    fn fill(&mut self) -> Result<(), RegionsError> {
        let late = clock::now() + SETTLE_SPAN;
        let service = self.service.clone();
        self.host.run(|| service.is_settled() || clock::now() >= late)?;
        let (service, pages) = (self.service.clone(), self.pages);
        let frames = self.host.node().cx().frames().clone();
        let filled = self.host.block_on(async move {
            for bytes in SIZES {
                for number in 0..pages {
                    let data = vec![mix(number as u64) as u8; bytes];
                    let frame = frames.copy_of(&data).ok_or(GetError::NoMemory)?;
                    let id = page(number, bytes);
                    service.put(id, Version(1), Class::Volatile, frame).await?;
                    service.flush(id).await?;
                }
            }
            Ok::<(), GetsError>(())
        });
        Ok(filled??)
    }

    /// Gets every page once, in an order that prefetching cannot guess.
    fn round(&mut self, bytes: usize, from: Source) -> Result<Histogram<u64>, RegionsError> {
        self.holder.resume();
        let (service, pages) = (self.service.clone(), self.pages);
        let gets = self.host.block_on(gets(service, pages, bytes, from))?;
        self.holder.pause();
        gets
    }
}

async fn gets(
    service: Service,
    pages: usize,
    bytes: usize,
    from: Source,
) -> Result<Histogram<u64>, RegionsError> {
    let mut times = histogram();
    for n in 0..pages {
        // An odd factor visits every page of a power of two.
        let number = n.wrapping_mul(0x9e5) % pages;
        if from == Source::Peer {
            service.hint(page(number, bytes), Hint::DontNeed);
        }
        let start = clock::now();
        let got = service.get(wanted(number, bytes)).await.map_err(GetsError::from)?;
        times.saturating_record(clock::now().since(start).as_nanos() as u64);
        if got.source != from {
            return Err(GetsError::Elsewhere(got.source, from).into());
        }
        if got.data[bytes / 2] != mix(number as u64) as u8 {
            return Err(RegionsError::Wrong(number));
        }
    }
    Ok(times)
}

/// Of the node that has all pages in both places: its directory, where one of them is.
fn config_of(pages: usize, bytes: usize) -> Config {
    // Both sizes; a table has no room for all that it has bytes for.
    let directory_bytes = 2 * SIZES.len() * pages * Directory::ENTRY_BYTES;
    // The order of the gets is a trend, which would have them prefetched.
    Config { directory_bytes, trends: false, ..Config::new(bytes * 2) }
}

/// The view of both nodes.
pub fn view(one: NodeId, other: NodeId) -> View {
    let up = |node| Up { node, incarnation: INCARNATION, weight: 1, machine: 0 };
    View::new(1, vec![up(one), up(other)])
}

/// The part of the other node's process: nothing but its memory.
pub fn lend(cx: &node::Cx, bytes: usize, neighbour: NodeId) -> Service {
    let service = Service::start(cx, Config { local_min_bytes: 0, ..Config::new(bytes) });
    service.set_view(view(cx.id(), neighbour));
    service
}

/// A file to be read past all memory; `None` where its file system cannot do that.
struct Disk(Option<File>);

impl Disk {
    fn new(dir: &Path) -> io::Result<Disk> {
        let path = dir.join("disk");
        let mut file = File::create(&path)?;
        for part in 0..FILE_BYTES >> 20 {
            file.write_all(&vec![part as u8; 1 << 20])?;
        }
        file.sync_all()?;
        Ok(Disk(open_direct(&path).ok()))
    }

    fn round(&self, bytes: usize, count: usize, round: usize) -> io::Result<Histogram<u64>> {
        let (mut times, mut buffer) = (histogram(), Aligned::new());
        let Some(file) = &self.0 else { return Ok(times) };
        let places = FILE_BYTES / bytes;
        for n in 0..count {
            let place = (round * count + n).wrapping_mul(0x85eb_ca6b) % places;
            let start = clock::now();
            file.read_exact_at(&mut buffer.bytes()[..bytes], (place * bytes) as u64)?;
            times.saturating_record(clock::now().since(start).as_nanos() as u64);
        }
        Ok(times)
    }
}

/// Where pages come from.
const SOURCES: [&str; 4] = ["local", "shm", "tcp", "disk"];

/// Results of one size.
#[derive(Default)]
struct OfSize {
    bytes: usize,
    times: [Times; 4],
}

/// Measures and prints a line for each source and size.
pub fn measure(arguments: &RegionBench, dir: &Path) -> Result<(), RegionsError> {
    let disk = Disk::new(dir)?;
    let mut shm = Pair::start(LinkKind::Shm, arguments, dir)?;
    let mut tcp = Pair::start(LinkKind::Tcp, arguments, dir)?;
    let mut sizes = SIZES.map(|bytes| OfSize { bytes, ..OfSize::default() });
    let bar = terminal::progress::steps("getting", ROUNDS as u64 + 1);
    for round in 0..=ROUNDS {
        for OfSize { bytes, times } in &mut sizes {
            let reads = (shm.pages / DISK_SHARE).max(1);
            let peer = [shm.round(*bytes, Source::Peer)?, tcp.round(*bytes, Source::Peer)?];
            let local = shm.round(*bytes, Source::Local)?;
            let [shm, tcp] = peer;
            let all = [local, shm, tcp, disk.round(*bytes, reads, round)?];
            // The first one warms up.
            let kept = times.iter_mut().zip(&all).filter(|_| round > 0);
            kept.for_each(|(times, measured)| times.add(measured));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(arguments, &sizes, disk.0.is_some());
    Ok(())
}

fn report(arguments: &RegionBench, sizes: &[OfSize], has_disk: bool) {
    let head = ["get of a page in network memory", "4 KiB p50 us", "p99", "8 KiB p50 us", "p99"];
    let (mut table, count) = (Table::new(&head), SOURCES.len() - usize::from(!has_disk));
    let names = ["in this node", "in a peer, shm", "in a peer, tcp", "disk, O_DIRECT read"];
    for (source, name) in names.iter().enumerate().take(count) {
        let mut line = vec![name.to_string()];
        for size in sizes {
            let (p50, p99) = size.times[source].median();
            line.extend([p50, p99].map(|us| format!("{us:.2}")));
            if arguments.json {
                print_json(&row(arguments, size, source, has_disk));
            }
        }
        table.row(&line);
    }
    if arguments.json {
        return;
    }
    print!("{}", table.render());
    let waits = arguments.waits();
    println!(
        "this node and its peer on processors {:?}, {waits}; two looks at the clock are in each",
        arguments.cpus
    );
    if !has_disk {
        println!(
            "no disk: the file system does not read past memory; name another directory with --dir"
        );
    }
}

fn row(arguments: &RegionBench, size: &OfSize, source: usize, has_disk: bool) -> Row {
    let ((p50_us, p99_us), disk) = (size.times[source].median(), size.times[3].median().0);
    let baseline_p50_us = if has_disk { disk } else { 0.0 };
    let row = arguments.row(["page", "get", SOURCES[source]], size.bytes);
    Row {
        processes: if source == 1 || source == 2 { 2 } else { 1 },
        ratio: if has_disk { p50_us / disk } else { 0.0 },
        ..row.timed((p50_us, p99_us), baseline_p50_us)
    }
}
