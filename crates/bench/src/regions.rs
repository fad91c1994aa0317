//! `trapeze bench memory`: a page of network memory by where it is (see [`gets`]); a region's page fault served by the
//! faulting thread, the page in memory of this process, or of another process over TCP and over shared memory, each
//! beside a bare exchange of the same bytes in the same run; and pages that leave and come back through the staging
//! area, every one of them checked.
//!
//! The program and the node that keeps the pages are two processes, pinned; the node that is not measured is stopped
//! meanwhile, because it may spin. A fault's time is that of the access that takes it.

use super::pass::{histogram, median};
use super::peer::Peer;
use super::row::Row;
use crate::arguments::{BenchHolder, LinkKind, RegionBench};
use endpoint::Frames;
use endpoint::limits::PAGE_BYTES;
use hdrhistogram::Histogram;
use live::baseline::{Blocks, Series};
use live::clock;
use live::host::Host;
use live::link::{Address, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use netmem::{Service, SpaceId};
use node::{Node, NodeConfig};
use region::bare::BareCopies;
use region::peer::{LineConfig, PeerConfig, Peers};
use region::{Advice, Backing, FaultError, LocalMemory, Region, RegionConfig, RegionError};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::children::{Process, READY};
use trapeze::scratch::Scratch;
use wire::{NodeId, mix};

pub mod gets;

use gets::GetsError;

/// Rounds of each way, in turns; medians of them are shown, also of their ratios.
const ROUNDS: usize = 15;
pub(super) const CLUSTER: u64 = 1;
pub(super) const HOLDER: NodeId = NodeId(2);
/// Frames of the node that keeps the pages, besides them.
const SPARE_PAGES: usize = 2048;
/// Frames of the region whose pages come and go.
const CHURN_FRAMES: usize = 4096;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// There is no region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A page did not come.
    #[error("a page: {0}")]
    Fault(#[from] FaultError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// A page of network memory.
    #[error(transparent)]
    Gets(#[from] GetsError),
    /// A page came back with other content.
    #[error("page {0} came back with other content: this is a bug")]
    Wrong(usize),
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(&'static str),
}

/// The process that keeps pages: serves for ever.
pub fn hold(arguments: &BenchHolder) -> io::Result<()> {
    trapeze::serve::pin(Some(arguments.cpu))?;
    let pages = arguments.pages as usize * arguments.page.div_ceil(PAGE_BYTES) + SPARE_PAGES;
    let region = MemfdRegion::create("bench-holder", pages)?;
    region.touch()?;
    let pool = SharedPool { fd: region.share()?, bytes: pages * PAGE_BYTES };
    // A peer of another node is in its first incarnation: that one has to know it.
    let incarnation = if arguments.member.is_some() { 1 } else { clock::now().0 };
    let config =
        LinkConfig { node: HOLDER, incarnation, cluster: CLUSTER, security: Security::Insecure };
    let mut links = Links::new(config, Some(pool), Box::new(|line| eprintln!("{line}")))?;
    let address = links.listen(&arguments.listen)?;
    let node = Node::new(NodeConfig::new(HOLDER, incarnation, 1), Frames::new(region));
    let policy = if arguments.spin { WaitPolicy::Spin } else { WaitPolicy::Adaptive };
    let mut host = Host::new(node, policy)?;
    host.add(links)?;
    let (cx, bytes) = (host.node().cx(), arguments.pages as usize * arguments.page);
    match arguments.member {
        Some(neighbour) => gets::lend(cx, bytes, NodeId(neighbour)),
        None => Service::lend(cx, bytes),
    };
    println!("{READY} {address}");
    host.run(|| false)
}

/// A region whose pages are all stored and none is here.
struct Cold {
    region: Region,
    pages: usize,
    /// The node that keeps them, where it is not this process.
    holder: Option<Process>,
}

impl Cold {
    fn new(backing: &dyn Backing, pages: usize, page_bytes: usize) -> Result<Cold, RegionsError> {
        // Nothing leaves but what is told to.
        let frames = pages + pages / 4 + 64;
        let config = RegionConfig { page_bytes, contexts: 1, ..RegionConfig::new(frames) };
        let region = Region::map(pages * page_bytes, config, backing)?;
        for page in 0..pages {
            region.write(page * page_bytes, &vec![mix(page as u64) as u8; page_bytes])?;
        }
        let cold = Cold { region, pages, holder: None };
        cold.cool()?;
        Ok(cold)
    }

    fn local(arguments: &RegionBench) -> Result<Cold, RegionsError> {
        let memory = LocalMemory::new(arguments.pages() * arguments.page)?;
        Cold::new(&memory, arguments.pages(), arguments.page)
    }

    fn remote(link: LinkKind, arguments: &RegionBench, dir: &Path) -> Result<Cold, RegionsError> {
        let holder = start_holder(link, arguments, dir, (arguments.pages(), None))?;
        let backing = peers(&holder, arguments)?;
        let cold = Cold::new(&backing, arguments.pages(), arguments.page)?;
        holder.pause();
        Ok(Cold { holder: Some(holder), ..cold })
    }

    fn cool(&self) -> Result<(), FaultError> {
        self.region.advise(0, self.region.len(), Advice::PageOut)
    }

    /// Touches every page once, in an order that prefetching cannot guess.
    fn round(&self) -> Result<Histogram<u64>, RegionsError> {
        if let Some(holder) = &self.holder {
            holder.resume();
        }
        self.cool()?;
        let (before, mut times) = (self.region.counters().faults, histogram());
        for n in 0..self.pages {
            // An odd factor visits every page of a power of two.
            let page = n.wrapping_mul(0x9e5) % self.pages;
            let at = page * self.region.page_bytes();
            let start = clock::now();
            let byte = self.region.words()[at / 8].load(Ordering::Relaxed) as u8;
            times.saturating_record(clock::now().since(start).as_nanos() as u64);
            if byte != mix(page as u64) as u8 {
                return Err(RegionsError::Wrong(page));
            }
        }
        if let Some(holder) = &self.holder {
            holder.pause();
        }
        let faults = self.region.counters().faults - before;
        assert_eq!(faults, self.pages as u64, "every access was a fault");
        Ok(times)
    }
}

/// Starts a process that has room for so many pages, of programs or of the node that it is the peer of.
pub(super) fn start_holder(
    link: LinkKind,
    arguments: &RegionBench,
    dir: &Path,
    (pages, neighbour): (usize, Option<NodeId>),
) -> io::Result<Process> {
    let kind = if neighbour.is_some() { "member" } else { "holder" };
    let name = format!("{kind}-{link:?}-{pages}").to_lowercase();
    let address = match link {
        LinkKind::Tcp => "tcp:127.0.0.1:0".to_string(),
        _ => format!("unix:{}", dir.join(format!("{name}.sock")).display()),
    };
    let flags = ["bench-holder", &address, "--cpu", &arguments.cpus[1].to_string(), "--pages"];
    let mut flags: Vec<String> = flags.map(String::from).to_vec();
    let page = if neighbour.is_some() { live::baseline::BLOCK_BYTES } else { arguments.page };
    flags.extend([pages.to_string(), "--page".into(), page.to_string()]);
    flags.extend(neighbour.into_iter().flat_map(|node| ["--member".into(), node.0.to_string()]));
    flags.extend(arguments.spins().then(|| "--spin".to_string()));
    Process::start(&name, &flags, &dir.join(format!("{name}.log")))
}

fn peers(holder: &Process, arguments: &RegionBench) -> io::Result<Peers> {
    let address: Address = holder.said.parse().map_err(io::Error::other)?;
    let wait = arguments.policy();
    let (cluster, security) = (CLUSTER, Security::Insecure);
    let line = LineConfig { cluster, security, wait, deadline: Duration::from_secs(5) };
    let space = SpaceId::guest(u64::from_le_bytes(trapeze::random::bytes()));
    Peers::new(PeerConfig { holders: vec![address], copies: 1, space, line })
}

impl RegionBench {
    pub(super) fn pages(&self) -> usize {
        (self.count / ROUNDS as u64).max(64).next_power_of_two() as usize
    }

    /// On one processor the side that waits has to let the other run.
    pub(super) fn spins(&self) -> bool {
        self.cpus[0] != self.cpus[1]
    }

    /// How the two sides wait, in words.
    pub(super) fn waits(&self) -> &'static str {
        if self.spins() { "both sides spin" } else { "both sides on one processor" }
    }

    /// A row of this run, about one operation at a time, without its times.
    pub(super) fn row(&self, [name, op, link]: [&'static str; 3], bytes: usize) -> Row {
        let wait = if self.spins() { "spin" } else { "adaptive" }.into();
        let cpus = format!("{},{}", self.cpus[0], self.cpus[1]);
        Row { name, op, link, wait, cpus, depth: 1, bytes: bytes as u64, ..Row::default() }
    }

    pub(super) fn policy(&self) -> WaitPolicy {
        if self.spins() { WaitPolicy::Spin } else { WaitPolicy::Adaptive }
    }

    fn check(&self) -> Result<(), RegionsError> {
        if self.cpus.len() != 2 {
            let text = "--cpus: two processors are needed, as in --cpus 0,1";
            return Err(RegionsError::Usage(text));
        }
        if self.page > live::baseline::BLOCK_BYTES {
            return Err(RegionsError::Usage("--page: the baselines move at most 8192 bytes"));
        }
        Ok(())
    }
}

/// Medians of rounds, in microseconds.
#[derive(Default)]
pub(super) struct Times {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Times {
    pub(super) fn add(&mut self, times: &Histogram<u64>) {
        self.p50.push(times.value_at_quantile(0.5) as f64 / 1e3);
        self.p99.push(times.value_at_quantile(0.99) as f64 / 1e3);
    }

    pub(super) fn median(&self) -> (f64, f64) {
        (median(self.p50.clone()), median(self.p99.clone()))
    }
}

/// One link's: faults, and bare exchanges of a page.
struct Remote {
    link: LinkKind,
    cold: Cold,
    bare: Peer,
    faults: Times,
    exchanges: Times,
}

impl Remote {
    fn start(link: LinkKind, arguments: &RegionBench, dir: &Path) -> Result<Remote, RegionsError> {
        let cold = Cold::remote(link, arguments, dir)?;
        let bare = Peer::start((link, None), arguments.spins(), arguments.cpus[1], dir)?;
        Ok(Remote { link, cold, bare, faults: Times::default(), exchanges: Times::default() })
    }

    fn round(&mut self, arguments: &RegionBench, keep: bool) -> Result<(), RegionsError> {
        let faults = self.cold.round()?;
        let mut exchanges = histogram();
        self.bare.run(&mut Series {
            depth: 1,
            count: arguments.pages() as u64,
            bytes: arguments.page,
            spin: arguments.spins(),
            blocks: &mut Blocks::new(),
            pace: &mut || {},
            record: &mut |ns| exchanges.saturating_record(ns),
        })?;
        if keep {
            self.faults.add(&faults);
            self.exchanges.add(&exchanges);
        }
        Ok(())
    }

    /// The median over the rounds of a fault to the bare exchange and what else there is to do here.
    fn ratio(&self, local: &Times) -> f64 {
        let rounds = self.faults.p50.iter().zip(&self.exchanges.p50).zip(&local.p50);
        median(rounds.map(|((fault, bare), local)| fault / (bare + local)).collect())
    }

    fn name(&self) -> &'static str {
        if self.link == LinkKind::Tcp { "tcp" } else { "shm" }
    }
}

/// Median and 99th percentile of faults in microseconds, the page in another process over shared memory.
pub(super) fn faults_from_peer(
    arguments: &RegionBench,
    dir: &Path,
) -> Result<(f64, f64), RegionsError> {
    trapeze::serve::pin(Some(arguments.cpus[0]))?;
    let mut remote = Remote::start(LinkKind::Shm, arguments, dir)?;
    for round in 0..=ROUNDS {
        remote.round(arguments, round > 0)?; // the first one warms up
    }
    Ok(remote.faults.median())
}

/// Measurements in this process: a bare UFFDIO_COPY, a fault that is resolved by that and nothing else, and a region's
/// whole fault with its page here.
#[derive(Default)]
struct Here {
    copies: Times,
    bare: Times,
    faults: Times,
}

impl Here {
    fn round(
        &mut self,
        local: &Cold,
        bare: &mut BareCopies,
        keep: bool,
    ) -> Result<(), RegionsError> {
        let (faults, mut copied, mut faulted) = (local.round()?, histogram(), histogram());
        bare.copies(|ns| copied.saturating_record(ns))?;
        bare.faults(|ns| faulted.saturating_record(ns))?;
        if keep {
            self.faults.add(&faults);
            self.copies.add(&copied);
            self.bare.add(&faulted);
        }
        Ok(())
    }
}

/// Measures and prints.
pub fn measure(arguments: &RegionBench) -> Result<(), RegionsError> {
    arguments.check()?;
    trapeze::serve::pin(Some(arguments.cpus[0]))?;
    let scratch = Scratch::new(arguments.dir.as_deref(), false)?.removed_at_interrupt()?;
    gets::measure(arguments, scratch.path())?;
    let local = Cold::local(arguments)?;
    let mut copies = BareCopies::new(arguments.pages(), arguments.page)?;
    let mut links = [LinkKind::Tcp, LinkKind::Shm]
        .map(|link| Remote::start(link, arguments, scratch.path()))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let mut here = Here::default();
    let bar = terminal::progress::steps("faulting", ROUNDS as u64 + 1);
    for round in 0..=ROUNDS {
        // The first one warms up.
        here.round(&local, &mut copies, round > 0)?;
        links.iter_mut().try_for_each(|link| link.round(arguments, round > 0))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(arguments, &here, &links);
    drop((local, links)); // their background threads would go on beside
    churns(arguments, scratch.path())
}

fn report(arguments: &RegionBench, here: &Here, links: &[Remote]) {
    if arguments.json {
        links.iter().for_each(|link| print_json(&row(arguments, &here.bare, link)));
        return;
    }
    let head = format!("{} byte page", arguments.page);
    let mut table =
        Table::new(&[&head, "p50 us", "p99 us", "to exchange + bare fault", "to exchange + copy"]);
    let mut line = |name: String, times: &Times, ratios: [String; 2]| {
        let ((p50, p99), [fault, copy]) = (times.median(), ratios);
        table.row(&[name, format!("{p50:.2}"), format!("{p99:.2}"), fault, copy]);
    };
    line("bare UFFDIO_COPY, no fault".into(), &here.copies, Default::default());
    line("bare fault, UFFDIO_COPY".into(), &here.bare, Default::default());
    line("fault, page in this process".into(), &here.faults, Default::default());
    for link in links {
        let name = link.name();
        line(format!("bare exchange, {name}"), &link.exchanges, Default::default());
        let ratios = [&here.bare, &here.copies].map(|times| format!("{:.2}", link.ratio(times)));
        line(format!("fault, {name}"), &link.faults, ratios);
    }
    print!("{}", table.render());
    let waits = arguments.waits();
    println!("processors {:?}, {waits}; plain TCP, loopback: no network is in it", arguments.cpus);
}

fn row(arguments: &RegionBench, local: &Times, link: &Remote) -> Row {
    let ((p50_us, p99_us), (bare, _)) = (link.faults.median(), link.exchanges.median());
    let baseline_p50_us = bare + local.median().0;
    let row = arguments.row(["region", "fault", link.name()], arguments.page);
    Row { processes: 2, ratio: link.ratio(local), ..row.timed((p50_us, p99_us), baseline_p50_us) }
}

/// Pages that come and go.
struct Churn {
    pairs: f64,
    /// Pages that a fault had to store before it had room.
    pressed: f64,
    elapsed: Duration,
    cpu: Duration,
}

fn cpu_time() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}

/// Goes round `pages` pages, more than there are frames for, and checks all of each page. Every page that is touched
/// has to come in, and another one to leave.
fn churn(
    region: &Region,
    pages: usize,
    write: bool,
    span: Duration,
) -> Result<Churn, RegionsError> {
    let words = region.page_bytes() / 8;
    let mut rounds = vec![0u64; pages];
    let word = |page: usize, round: u64| mix(page as u64) ^ round;
    let content = |page: usize| &region.words()[page * words..(page + 1) * words];
    let fill = |page: &[AtomicU64], with: u64| {
        page.iter().for_each(|word| word.store(with, Ordering::Relaxed));
    };
    (0..pages).for_each(|page| fill(content(page), word(page, 0)));
    region.flush(0, pages * region.page_bytes())?;
    let (before, cpu, start) = (region.counters(), cpu_time(), clock::now());
    let mut turn = 0;
    while turn % 1024 != 0 || clock::now().since(start) < span {
        let page = turn % pages;
        let (here, wanted) = (content(page), word(page, rounds[page]));
        if here.iter().any(|found| found.load(Ordering::Relaxed) != wanted) {
            return Err(RegionsError::Wrong(page));
        }
        if write {
            rounds[page] += 1;
            fill(here, word(page, rounds[page]));
        }
        turn += 1;
    }
    let (elapsed, cpu) = (clock::now().since(start), cpu_time() - cpu);
    let after = region.counters();
    let came = after.taken_back + after.fetched - before.taken_back - before.fetched;
    let left = after.evicted - before.evicted;
    let pressed = (after.pressed - before.pressed) as f64;
    Ok(Churn { pairs: came.min(left) as f64, pressed, elapsed, cpu })
}

fn churns(arguments: &RegionBench, dir: &Path) -> Result<(), RegionsError> {
    let page_bytes = arguments.page;
    let config = RegionConfig { page_bytes, contexts: 1, ..RegionConfig::new(CHURN_FRAMES) };
    // Half of the staging area's pages more than what is mapped: all that leave come back from there.
    let (near, far) = (CHURN_FRAMES - CHURN_FRAMES / 20, 2 * CHURN_FRAMES);
    let span = Duration::from_secs(arguments.seconds);
    let mut rows = Vec::new();
    for write in [false, true] {
        let backing = LocalMemory::new(far * page_bytes)?;
        let region = Region::map(far * page_bytes, config, &backing)?;
        let how = if write { "written" } else { "read" };
        rows.push((format!("staging, pages {how}"), churn(&region, near, write, span)?));
    }
    let links = [LinkKind::Tcp, LinkKind::Shm];
    let ways = |link| [(link, false, true), (link, true, false), (link, true, true)];
    for (link, write, cleans) in links.into_iter().flat_map(ways) {
        let holder = start_holder(link, arguments, dir, (far, None))?;
        let config = RegionConfig { cleans, ..config };
        let region = Region::map(far * page_bytes, config, &peers(&holder, arguments)?)?;
        let name = if link == LinkKind::Tcp { "tcp" } else { "shm" };
        let how = if cleans { "" } else { ", without a cleaner" };
        let churned = churn(&region, far, write, span)?;
        let what = if write { "written" } else { "read" };
        rows.push((format!("peer over {name}, pages {what}{how}"), churned));
    }
    print_churns(arguments, &rows);
    Ok(())
}

fn print_churns(arguments: &RegionBench, rows: &[(String, Churn)]) {
    let head = ["leave and come back, one thread", "pairs/s", "per CPU second", "stored by faults"];
    let mut table = Table::new(&head);
    for (name, churn) in rows {
        let rates =
            [churn.elapsed, churn.cpu].map(|span| churn.pairs / span.as_secs_f64().max(1e-9));
        if arguments.json {
            print_json(&serde_json::json!({ "name": "region", "op": "churn", "where": name,
                "pairs_per_s": rates[0], "pairs_per_cpu_s": rates[1],
                "stored_by_faults": churn.pressed / churn.pairs.max(1.0) }));
        }
        let pressed = format!("{:.1} %", 100.0 * churn.pressed / churn.pairs.max(1.0));
        table.row(&[name.clone(), format!("{:.0}", rates[0]), format!("{:.0}", rates[1]), pressed]);
    }
    if !arguments.json {
        print!("{}", table.render());
        println!("every page's content was checked each time");
    }
}
