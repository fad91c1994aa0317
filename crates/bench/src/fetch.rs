//! `trapeze bench fetch` and `rate`: a block read that an I/O server answers from its memory, through the whole path,
//! beside the bare means of this machine, in turns.
//!
//! Client and server are two processes, pinned; a process that is not measured is stopped meanwhile, because it may
//! spin. The manager is a third one, asleep. A fetch ends when the block is verified in the caller's frame.

mod pace;

use super::pass::{histogram, median};
use super::peer::{self, Peer};
use super::row::Row;
use super::veth::{self, Veth};
use crate::arguments::{Exchange, LinkKind};
use hdrhistogram::Histogram;
use live::baseline::{BLOCK_BYTES, BLOCKS, Blocks, DEPTH_MAX, Series};
use live::clock;
use node::Cx;
use pace::Pace;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use stripe::FileRef;
use terminal::table::{Table, print_json};
use trapeze::children::Process;
use trapeze::client::{Reach, ReachError};
use trapeze::config::Memory;
use trapeze::flags::Wait;
use trapeze::local::LocalLink;
use trapeze::local::{LocalCluster, LocalError, Shape};
use trapeze::machine::{self, Running, Setup};
use trapeze::machine_stat::process_time_exact;
use trapeze::scratch::Scratch;
use trapeze::size::Size;
use trapeze::xdp::XdpQueue;
use wire::{Errno, FileId, Layout, NodeId, VolumeId};

/// Rounds, each of ours and of the baseline; medians of them are shown, also of their ratios: a virtual machine's
/// processors move, and then both change.
const ROUNDS: u64 = 15;
/// Fewest of them, however little time there is.
const ROUNDS_MIN: u64 = 3;
/// An adaptive wait is compared with blocking up to this rate, with spinning above it and without a pace.
const PACE_BLOCKING_MAX: u64 = 5_000;
/// Bytes written in one call while the server's memory is filled.
const FILL_BYTES: usize = 1 << 20;
/// A file that no manager knows; the directory is thrown away with it.
const FILE: FileId = FileId(0x00be_9c40);
const POOL_BYTES: u64 = 64 << 20;
/// Memory of the I/O server: the blocks, several times over.
const MEMORY: Memory = Memory {
    pool: Size(128 << 20),
    cache: Size(64 << 20),
    prefault: true,
    lend: None,
    keep: None,
    reserve: None,
};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The cluster.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Joining it.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// A fetch.
    #[error("a block could not be read or written: {0}")]
    Block(Errno),
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(&'static str),
}

/// Results of a round, and of all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    p50_us: f64,
    p99_us: f64,
    ops_per_s: f64,
    cpu_us: f64,
}

impl Figures {
    fn of(histogram: &Histogram<u64>, elapsed: Duration, cpu: Duration) -> Figures {
        let count = histogram.len().max(1) as f64;
        Figures {
            p50_us: histogram.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: histogram.value_at_quantile(0.99) as f64 / 1e3,
            ops_per_s: count / elapsed.as_secs_f64(),
            cpu_us: cpu.as_secs_f64() * 1e6 / count,
        }
    }

    fn median(rounds: &[Figures]) -> Figures {
        let median = |of: fn(&Figures) -> f64| median(rounds.iter().map(of).collect());
        Figures {
            p50_us: median(|f| f.p50_us),
            p99_us: median(|f| f.p99_us),
            ops_per_s: median(|f| f.ops_per_s),
            cpu_us: median(|f| f.cpu_us),
        }
    }

    fn mb_per_s(&self) -> f64 {
        self.ops_per_s * BLOCK_BYTES as f64 / 1e6
    }
}

/// A client node and the process of an I/O server whose memory holds the blocks.
struct Pair {
    running: Running,
    client: stripe::Client,
    server: Process,
    _manager: Process,
    _cluster: LocalCluster,
}

/// How long frames may take to pass.
const FRAMES_SPAN: Duration = Duration::from_secs(5);

/// The interface of both sides, each in its network.
fn interface() -> XdpQueue {
    veth::INTERFACE.parse().expect("a name and no queue")
}

/// A port without a listener.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn file() -> FileRef {
    let server = NodeId(trapeze::config::MANAGER_NODE + 1);
    let layout = Layout::new(1, 4 << 20, &[server]).expect("one server, a power of two");
    FileRef { file: FILE, layout, truncations: 0 }
}

impl Pair {
    /// Starts the cluster in the new directory `dir`, its memory filled, its server at rest.
    fn start(arguments: &Exchange, veth: Option<&Veth>, dir: &Path) -> Result<Pair, FetchError> {
        let link = match arguments.link {
            LinkKind::Adapter => LocalLink::Adapter,
            LinkKind::Shm | LinkKind::Tcp => LocalLink::Shm,
        };
        let shape = Shape { insecure: arguments.insecure, memory: MEMORY, link, ..Shape::of(1) };
        let mut cluster = LocalCluster::open_or_create(dir, &shape)?;
        if arguments.link == LinkKind::Tcp {
            let host = veth.map_or("127.0.0.1", |_| veth::THERE);
            cluster.machines[1].listen = vec![format!("tcp:{host}:{}", free_port()?)];
            cluster.machines[1].xdp = arguments.xdp.then(interface);
            let machine = &cluster.machines[1];
            machine.save(&cluster.config_of(machine)).map_err(LocalError::from)?;
        }
        let start = |number: usize, flags: &[String]| {
            let machine = &cluster.machines[number];
            let config = cluster.config_of(machine).display().to_string();
            let mut all: Vec<String> = ["serve", "--config", &config].map(String::from).to_vec();
            all.extend_from_slice(flags);
            let log = cluster.log_of(&machine.name);
            match veth {
                Some(veth) => Process::start_command(&machine.name, veth.command(&all)?, &log),
                None => Process::start(&machine.name, &all, &log),
            }
        };
        let manager = start(0, &[])?;
        let wait = clap::ValueEnum::to_possible_value(&arguments.wait).expect("none is hidden");
        let cpu = arguments.cpus[1].to_string();
        let flags = ["--wait", wait.get_name(), "--cpu", &cpu].map(String::from);
        let server = start(1, &flags)?;
        trapeze::serve::pin(Some(arguments.cpus[0]))?;
        let target = cluster.dir().display().to_string();
        let reach = Reach { cluster: target, key: None, insecure: false };
        let setup = reach.setup(POOL_BYTES, arguments.wait.into())?;
        let setup = Setup { xdp: arguments.xdp.then(interface), ..setup };
        let running = machine::client(&setup, "bench").map_err(ReachError::from)?;
        let client = stripe::Client::new(running.host.node().cx(), VolumeId(1));
        let mut pair = Pair { running, client, server, _manager: manager, _cluster: cluster };
        pair.fill()?;
        if arguments.xdp {
            pair.await_frames()?;
        }
        pair.server.pause();
        Ok(pair)
    }

    /// Waits until frames pass, without which TCP would be measured.
    fn await_frames(&mut self) -> Result<(), FetchError> {
        let (directory, late) = (self.running.directory.clone(), clock::now() + FRAMES_SPAN);
        let passes = || {
            let status = directory.status();
            status.values().any(|status| status.transport.starts_with("xdp"))
        };
        self.running.host.run(|| passes() || clock::now() > late)?;
        match passes() {
            true => Ok(()),
            false => Err(FetchError::Usage("--xdp: frames do not pass the veth here")),
        }
    }

    /// Writes the blocks: the server's memory has them then.
    fn fill(&mut self) -> Result<(), FetchError> {
        let (cx, client) = (self.running.host.node().cx().clone(), self.client.clone());
        let fill = async move {
            let mut written = stripe::Verifiers::default();
            for at in (0..BLOCKS * BLOCK_BYTES).step_by(FILL_BYTES) {
                let mut frame = cx.frames().alloc_exact(FILL_BYTES).ok_or(Errno::ENOMEM)?;
                frame.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((at + i) / 7) as u8);
                let data = cx.piece(frame.freeze());
                written
                    .merge(&client.write(&file(), at as u64, data, stripe::Write::Unstable).await?);
            }
            client.commit(&file(), &written).await
        };
        let filled = self.running.host.block_on(fill)?;
        filled.map(drop).map_err(FetchError::Block)
    }

    fn cpu(&self) -> Duration {
        let ids = [self.server.id(), std::process::id()];
        ids.into_iter().filter_map(process_time_exact).sum()
    }

    /// `count` fetches, `depth` under way at a time.
    fn round(&mut self, count: u64, arguments: &Exchange) -> Result<Figures, FetchError> {
        self.server.resume();
        let depth = arguments.depth();
        let work = Rc::new(Work {
            client: self.client.clone(),
            left: Cell::new(count),
            loops: Cell::new(depth),
            failed: Cell::new(None),
            blocks: RefCell::new(Blocks::new()),
            pace: Cell::new(Pace::new(arguments.pace)),
            histogram: RefCell::new(histogram()),
        });
        let (cpu, start) = (self.cpu(), clock::now());
        let cx = self.running.host.node().cx().clone();
        (0..depth).for_each(|_| cx.spawn("fetch", work.clone().fetch(cx.clone())));
        self.running.host.run(|| work.loops.get() == 0)?;
        let (elapsed, cpu) = (clock::now().since(start), self.cpu().saturating_sub(cpu));
        self.server.pause();
        work.failed.get().map_or(Ok(()), |errno| Err(FetchError::Block(errno)))?;
        Ok(Figures::of(&work.histogram.borrow(), elapsed, cpu))
    }
}

/// State that the loops of a round share.
struct Work {
    client: stripe::Client,
    left: Cell<u64>,
    loops: Cell<usize>,
    failed: Cell<Option<Errno>>,
    blocks: RefCell<Blocks>,
    pace: Cell<Pace>,
    histogram: RefCell<Histogram<u64>>,
}

impl Work {
    async fn fetch(self: Rc<Self>, cx: Cx) {
        if let Err(errno) = self.fetch_all(&cx).await {
            self.failed.set(Some(errno));
            self.left.set(0);
        }
        self.loops.set(self.loops.get() - 1);
    }

    async fn fetch_all(&self, cx: &Cx) -> Result<(), Errno> {
        let mut frame = cx.frames().alloc_exact(BLOCK_BYTES).ok_or(Errno::ENOMEM)?;
        let file = file();
        while self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            let mut pace = self.pace.get();
            if let Some(due) = pace.due() {
                self.pace.set(pace);
                cx.sleep_until(due).await;
            }
            let offset = self.blocks.borrow_mut().pick() * BLOCK_BYTES as u64;
            let start = clock::now();
            frame = self.client.read(&file, offset, frame).await?;
            let elapsed = clock::now().since(start).as_nanos() as u64;
            self.histogram.borrow_mut().saturating_record(elapsed);
        }
        Ok(())
    }
}

/// The partner of a link: the bare means of the machine, or for adapters the plain link below them.
enum Baseline {
    Bare(Peer),
    Plain(Box<Pair>),
}

impl Baseline {
    fn start(
        arguments: &Exchange,
        veth: Option<&Veth>,
        dir: &Path,
    ) -> Result<Baseline, FetchError> {
        if arguments.link == LinkKind::Adapter {
            let plain = Exchange { link: LinkKind::Shm, ..arguments.clone() };
            let plain = Pair::start(&plain, None, &dir.join("plain"))?;
            return Ok(Baseline::Plain(Box::new(plain)));
        }
        let spin = arguments.baseline_spins();
        let way = (arguments.link, veth);
        Ok(Baseline::Bare(Peer::start(way, spin, arguments.cpus[1], dir)?))
    }

    fn round(
        &mut self,
        count: u64,
        spin: bool,
        arguments: &Exchange,
    ) -> Result<Figures, FetchError> {
        match self {
            Baseline::Bare(peer) => baseline_round(peer, count, spin, arguments),
            Baseline::Plain(pair) => pair.round(count, arguments),
        }
    }
}

fn baseline_round(
    peer: &mut Peer,
    count: u64,
    spin: bool,
    arguments: &Exchange,
) -> Result<Figures, FetchError> {
    let (mut blocks, mut histogram) = (Blocks::new(), histogram());
    let mut pace = Pace::new(arguments.pace);
    let ids = [peer.id(), std::process::id()];
    let cpu = || ids.into_iter().filter_map(process_time_exact).sum::<Duration>();
    let (before, start) = (cpu(), clock::now());
    peer.run(&mut Series {
        depth: arguments.depth(),
        count,
        bytes: BLOCK_BYTES,
        spin,
        blocks: &mut blocks,
        pace: &mut || pace.wait(spin),
        record: &mut |ns| histogram.saturating_record(ns),
    })?;
    Ok(Figures::of(&histogram, clock::now().since(start), cpu().saturating_sub(before)))
}

impl Exchange {
    fn depth(&self) -> usize {
        self.depth.expect("the command has set it")
    }

    fn check(&self) -> Result<(), FetchError> {
        if self.cpus.len() != 2 {
            return Err(FetchError::Usage("--cpus: two processors are needed, as in --cpus 0,1"));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth()) {
            return Err(FetchError::Usage("--depth: 1 to 64"));
        }
        if self.veth && self.link != LinkKind::Tcp {
            return Err(FetchError::Usage("--veth: of --link tcp"));
        }
        if self.veth && self.wait == Wait::Adaptive {
            return Err(FetchError::Usage("--veth: with --wait spin or block"));
        }
        if self.pace.is_some() && self.depth() > 1 {
            return Err(FetchError::Usage("--pace measures one fetch at a time: use --depth 1"));
        }
        if self.cpus[0] == self.cpus[1] && self.wait == Wait::Spin {
            return Err(FetchError::Usage(
                "two that spin cannot share a processor: use --wait adaptive or block",
            ));
        }
        Ok(())
    }

    /// Fetches of each side in a round. At a pace only so many fit into the time, which is known beforehand.
    fn count_of_round(&self) -> u64 {
        let sides = 2 + u64::from(self.wait == Wait::Adaptive);
        let rounds = ROUNDS + 1;
        let fit = self.pace.map(|pace| pace.saturating_mul(self.seconds) / (sides * rounds));
        (self.count / ROUNDS).min(fit.unwrap_or(u64::MAX)).max(1)
    }

    /// The fixed way to wait that an adaptive one is compared with.
    fn partner(&self) -> Option<Exchange> {
        let wait = if self.baseline_spins() { Wait::Spin } else { Wait::Block };
        (self.wait == Wait::Adaptive).then(|| Exchange { wait, ..self.clone() })
    }

    fn baseline_spins(&self) -> bool {
        let apart = self.cpus[0] != self.cpus[1];
        match self.wait {
            Wait::Spin => true,
            Wait::Block => false,
            Wait::Adaptive => apart && self.pace.is_none_or(|pace| pace > PACE_BLOCKING_MAX),
        }
    }
}

/// Which figure the row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// `fetch`: the time of one.
    Latency,
    /// `rate`: how many a second.
    Rate,
}

/// Results of the rounds.
#[derive(Default)]
struct Results {
    ours: Vec<Figures>,
    /// Of our own path with a fixed way to wait.
    partner: Vec<Figures>,
    baseline: Vec<Figures>,
    /// Nanoseconds that a cache line takes to the other processor and back.
    line_ns: Vec<f64>,
}

impl Results {
    /// The median over the rounds of ours to the baseline's.
    fn ratio(&self, figure: fn(&Figures) -> f64) -> f64 {
        let pairs = self.ours.iter().zip(&self.baseline);
        median(pairs.map(|(ours, baseline)| figure(ours) / figure(baseline)).collect())
    }
}

/// Measures and prints one row.
pub fn measure(goal: Goal, arguments: &Exchange) -> Result<(), FetchError> {
    let depth = arguments.depth.unwrap_or(if goal == Goal::Rate { 16 } else { 1 });
    let arguments = &Exchange { depth: Some(depth), ..arguments.clone() };
    arguments.check()?;
    let results = run_rounds(arguments)?;
    match arguments.json {
        true => print_json(&row(goal, arguments, &results)),
        false => print(arguments, &results),
    }
    Ok(())
}

fn run_rounds(arguments: &Exchange) -> Result<Results, FetchError> {
    let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
    let veth = arguments.veth.then(|| Veth::new(scratch.path())).transpose()?;
    let veth = veth.as_ref();
    let mut pair = Pair::start(arguments, veth, &scratch.path().join("cluster"))?;
    let fixed = arguments.partner();
    let mut partner = match &fixed {
        Some(fixed) => Some(Pair::start(fixed, veth, &scratch.path().join("partner"))?),
        None => None,
    };
    let spin = arguments.baseline_spins();
    let mut baseline = Baseline::start(arguments, veth, scratch.path())?;
    let mut results = Results::default();
    let bar = terminal::progress::steps("fetching", ROUNDS + 1);
    let begun = clock::now();
    for round in 0..=ROUNDS {
        // The first round warms memory, caches and branch predictors up.
        if round == 1 {
            results = Results::default();
        }
        let count = arguments.count_of_round();
        results.ours.push(pair.round(count, arguments)?);
        results.baseline.push(baseline.round(count, spin, arguments)?);
        if let (Some(partner), Some(fixed)) = (&mut partner, &fixed) {
            results.partner.push(partner.round(count, fixed)?);
        }
        if arguments.cpus[0] != arguments.cpus[1] {
            results.line_ns.push(peer::line_exchange_ns(arguments.cpus[1])?);
        }
        bar.inc(1);
        // Medians need a few; the first counts for nothing.
        if round >= ROUNDS_MIN
            && clock::now().since(begun) >= Duration::from_secs(arguments.seconds)
        {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

fn row(goal: Goal, arguments: &Exchange, results: &Results) -> Row {
    let wait = clap::ValueEnum::to_possible_value(&arguments.wait).expect("none is hidden");
    let (ours, theirs) = (Figures::median(&results.ours), Figures::median(&results.baseline));
    let (name, ratio) = match goal {
        Goal::Latency => ("fetch", results.ratio(|f| f.p50_us)),
        Goal::Rate => ("rate", results.ratio(|f| f.ops_per_s)),
    };
    Row {
        name,
        op: "read",
        link: link_name(arguments),
        wait: wait.get_name().to_string(),
        depth: arguments.depth(),
        cpus: format!("{},{}", arguments.cpus[0], arguments.cpus[1]),
        processes: 2,
        bytes: BLOCK_BYTES as u64,
        p50_us: ours.p50_us,
        p99_us: ours.p99_us,
        ops_per_s: ours.ops_per_s,
        mb_per_s: ours.mb_per_s(),
        baseline_p50_us: theirs.p50_us,
        baseline_ops_per_s: theirs.ops_per_s,
        baseline_mb_per_s: theirs.mb_per_s(),
        ratio,
    }
}

fn link_name(arguments: &Exchange) -> &'static str {
    match (arguments.link, arguments.insecure) {
        (LinkKind::Shm, _) => "shm",
        (LinkKind::Adapter, _) => "adapter",
        (LinkKind::Tcp, true) if arguments.xdp => "xdp",
        (LinkKind::Tcp, false) if arguments.xdp => "xdp+noise",
        (LinkKind::Tcp, true) => "tcp",
        (LinkKind::Tcp, false) => "tcp+noise",
    }
}

fn print(arguments: &Exchange, results: &Results) {
    let way = if arguments.baseline_spins() { "spinning" } else { "blocking" };
    let (bare, baseline) = match arguments.link {
        LinkKind::Shm => ("bare ring", format!("bare ring, {way}")),
        LinkKind::Adapter => ("plain link", "trapeze, shm".to_string()),
        LinkKind::Tcp => ("bare socket", format!("bare socket, {way}")),
    };
    let ours_name = format!("trapeze, {}", link_name(arguments));
    let rows = [
        (ours_name.clone(), &results.ours),
        (format!("{ours_name}, {way}"), &results.partner),
        (baseline, &results.baseline),
    ];
    let mut table =
        Table::new(&["8 KiB fetches", "p50 us", "p99 us", "fetches/s", "MB/s", "CPU us/fetch"]);
    for (name, rounds) in rows.into_iter().filter(|(_, rounds)| !rounds.is_empty()) {
        let figures = Figures::median(rounds);
        table.row(&[
            name,
            format!("{:.2}", figures.p50_us),
            format!("{:.2}", figures.p99_us),
            format!("{:.0}", figures.ops_per_s),
            format!("{:.0}", figures.mb_per_s()),
            format!("{:.2}", figures.cpu_us),
        ]);
    }
    let ratio = |figure| format!("{:.2}", results.ratio(figure));
    table.row(&[
        format!("ratio to the {bare}"),
        ratio(|f| f.p50_us),
        ratio(|f| f.p99_us),
        ratio(|f| f.ops_per_s),
        ratio(Figures::mb_per_s),
        ratio(|f| f.cpu_us),
    ]);
    print!("{}", table.render());
    let checksum_us = checksum_us();
    let share = 100.0 * checksum_us / Figures::median(&results.ours).p50_us;
    println!(
        "the client's checksum over 8 KiB: {checksum_us:.2} us, {share:.0}% of the p50 at this depth"
    );
    if let Some((least, most)) = range(&results.line_ns) {
        println!(
            "a cache line to the other processor and back: {least:.0} to {most:.0} ns over the rounds"
        );
    }
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// Microseconds that verifying one fetched block takes, in the processor's cache.
fn checksum_us() -> f64 {
    let (block, times) = (vec![7u8; BLOCK_BYTES], 20_000);
    let start = clock::now();
    for _ in 0..times {
        for part in std::hint::black_box(&block).chunks(wire::limits::BLOCK_BYTES) {
            std::hint::black_box(wire::checksum::block_crc(part));
        }
    }
    clock::now().since(start).as_secs_f64() * 1e6 / f64::from(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Bench;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        what: Bench,
    }

    #[test]
    fn a_slow_pace_measures_less_instead_of_longer() {
        let fetches = |flags: &str| {
            let words = format!("bench fetch {flags}");
            let Bench::Fetch(arguments) = Line::parse_from(words.split(' ')).what else { panic!() };
            arguments.count_of_round()
        };
        assert_eq!(fetches("--wait spin"), 200_000 / ROUNDS);
        assert_eq!(fetches("--wait spin --pace 100"), 30 * 100 / (2 * (ROUNDS + 1)));
        assert_eq!(fetches("--wait adaptive --pace 1 --seconds 1"), 1);
    }
}
