//! `trapeze bench protocols`: an 8 KiB get over the memcached and the Redis protocol, of `trapeze memory`, of memcached
//! and of redis-server, with one and the same client, in turns.
//!
//! The client is this thread: it keeps `depth` gets under way on one connection and blocks in read(2). A server that is
//! not measured is stopped meanwhile. Processor time is that of all threads of the server.

use super::fetch::free_port;
use super::pass::{histogram, median};
use crate::arguments::{Placement, Protocols};
use clap::ValueEnum;
use kv::Protocol;
use live::clock;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::children::Process;
use trapeze::machine_stat::threads_time_exact;
use trapeze::scratch::Scratch;

/// Bytes of a value.
const VALUE_BYTES: usize = 8192;
/// Keys that are read in turn: 2 MiB, as a working set that a processor's cache holds in part.
const KEYS: usize = 256;
/// Bytes of one read of the client's.
const READ_BYTES: usize = 1 << 20;
const DEPTHS: [usize; 2] = [1, 16];
/// A reply that does not come in this time never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bytes of a get of a key, and of the beginning and the end of its reply.
fn get(protocol: Protocol, key: usize) -> (Vec<u8>, Vec<u8>, &'static [u8]) {
    match protocol {
        Protocol::Memcached => (
            format!("get key-{key:03}\r\n").into_bytes(),
            format!("VALUE key-{key:03} 0 {VALUE_BYTES}\r\n").into_bytes(),
            b"\r\nEND\r\n",
        ),
        Protocol::Resp => (
            format!("*2\r\n$3\r\nGET\r\n$7\r\nkey-{key:03}\r\n").into_bytes(),
            format!("${VALUE_BYTES}\r\n").into_bytes(),
            b"\r\n",
        ),
    }
}

fn set(protocol: Protocol, key: usize, value: &[u8]) -> (Vec<u8>, &'static [u8]) {
    let (head, answer): (String, &[u8]) = match protocol {
        Protocol::Memcached => (format!("set key-{key:03} 0 0 {VALUE_BYTES}\r\n"), b"STORED\r\n"),
        Protocol::Resp => {
            (format!("*3\r\n$3\r\nSET\r\n$7\r\nkey-{key:03}\r\n${VALUE_BYTES}\r\n"), b"+OK\r\n")
        }
    };
    ([head.as_bytes(), value, b"\r\n"].concat(), answer)
}

fn value(key: usize) -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| (at / 7 + key) as u8).collect()
}

/// A server and the connection to it.
struct Side {
    name: &'static str,
    protocol: Protocol,
    process: Process,
    stream: TcpStream,
    requests: Vec<Vec<u8>>,
    reply_bytes: usize,
    input: Vec<u8>,
}

impl Side {
    fn new(
        name: &'static str,
        protocol: Protocol,
        process: Process,
        port: u16,
    ) -> io::Result<Side> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let requests = (0..KEYS).map(|key| get(protocol, key).0).collect();
        let (_, head, tail) = get(protocol, 0);
        let reply_bytes = head.len() + VALUE_BYTES + tail.len();
        let input = vec![0; READ_BYTES];
        let mut side = Side { name, protocol, process, stream, requests, reply_bytes, input };
        side.fill()?;
        side.process.pause();
        Ok(side)
    }

    /// Stores the values, and reads each of them once: what is measured is what is right.
    fn fill(&mut self) -> io::Result<()> {
        for key in 0..KEYS {
            let (text, answer) = set(self.protocol, key, &value(key));
            self.expect(&text, answer)?;
        }
        for key in 0..KEYS {
            let (text, head, tail) = get(self.protocol, key);
            self.expect(&text, &[&head[..], &value(key), tail].concat())?;
        }
        Ok(())
    }

    fn expect(&mut self, text: &[u8], answer: &[u8]) -> io::Result<()> {
        self.stream.write_all(text)?;
        let told = &mut self.input[..answer.len()];
        self.stream.read_exact(told)?;
        match told == answer {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} answers something else", self.name))),
        }
    }

    /// `count` gets, `depth` under way at a time.
    fn gets(&mut self, depth: usize, count: usize) -> io::Result<Figures> {
        let (mut times, mut sent, mut done, mut have) = (histogram(), 0, 0, 0);
        let mut text = Vec::with_capacity(64 * depth);
        let (cpu, start) = (self.cpu(), clock::now());
        let mut asked = start;
        while done < count {
            text.clear();
            while sent < count && sent < done + depth {
                text.extend_from_slice(&self.requests[sent % KEYS]);
                sent += 1;
            }
            if !text.is_empty() {
                self.stream.write_all(&text)?;
            }
            let bytes = self.stream.read(&mut self.input)?;
            if bytes == 0 {
                return Err(io::Error::other(format!("{} has closed the connection", self.name)));
            }
            have += bytes;
            let before = std::mem::replace(&mut done, have / self.reply_bytes);
            if done > before {
                let now = clock::now();
                times.saturating_record(now.since(asked).as_nanos() as u64);
                asked = now;
            }
        }
        let elapsed = clock::now().since(start).as_secs_f64();
        let cpu = self.cpu().saturating_sub(cpu).as_secs_f64();
        Ok(Figures {
            per_s: count as f64 / elapsed,
            p50_us: times.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
            cpu_us: cpu * 1e6 / count as f64,
        })
    }

    fn cpu(&self) -> Duration {
        threads_time_exact(self.process.id())
    }

    fn round(
        &mut self,
        client: &CpuSet,
        server: &CpuSet,
        depth: usize,
        count: usize,
    ) -> io::Result<Figures> {
        place(Some(self.process.id()), server)?;
        place(None, client)?;
        self.process.resume();
        // The first ones wake it, and bring its memory into the caches.
        let measured = self.gets(depth, count / 10 + 1).and_then(|_| self.gets(depth, count));
        self.process.pause();
        measured
    }
}

/// Results of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// Of the server, for each get.
    cpu_us: f64,
}

/// Lets all threads of a process, or this one, run on these processors.
pub(super) fn place(process: Option<u32>, set: &CpuSet) -> io::Result<()> {
    let Some(process) = process else { return Ok(sched_setaffinity(None, set)?) };
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        task.map_or(Ok(()), |task| sched_setaffinity(Some(task), set))?;
    }
    Ok(())
}

/// This processor.
pub(super) fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

impl Placement {
    /// Where client and server run; `all` is where this process may.
    pub(super) fn sets(self, all: &CpuSet) -> (CpuSet, CpuSet) {
        match self {
            Placement::Free => (*all, *all),
            Placement::Same => (only(0), only(0)),
            Placement::Apart => (only(0), only(1)),
        }
    }
}

fn ours(arguments: &Protocols, protocol: Protocol, dir: &Path) -> io::Result<Side> {
    let flag = if protocol == Protocol::Memcached { "--memcached" } else { "--resp" };
    let wait = arguments.wait.to_possible_value().expect("none is hidden");
    let flags = ["memory", flag, "127.0.0.1:0", "--wait", wait.get_name()].map(String::from);
    let process = Process::start("memory", &flags, &dir.join("memory.log"))?;
    let port = process.said.split(' ').find_map(|word| word.strip_prefix("127.0.0.1:"));
    let port = port.and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| io::Error::other("trapeze memory does not say where it is"))?;
    Side::new("trapeze", protocol, process, port)
}

/// The server that is compared with; `None` where it is not installed.
fn theirs(protocol: Protocol, dir: &Path) -> io::Result<Option<Side>> {
    let port = free_port()?;
    let text = port.to_string();
    let (name, flags): (_, &[&str]) = match protocol {
        Protocol::Memcached => {
            ("memcached", &["-u", "root", "-l", "127.0.0.1", "-p", &text, "-t", "1", "-m", "256"])
        }
        Protocol::Resp => ("redis-server", &["--port", &text, "--save", "", "--appendonly", "no"]),
    };
    let mut command = Command::new(name);
    command.args(flags).current_dir(dir);
    let is_ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    match Process::start_until(name, command, &dir.join(name), is_ready) {
        Ok(process) => Side::new(name, protocol, process, port).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!("without {name}, which is not installed (Debian: apt-get install {name})");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A row of the table.
struct Cell {
    protocol: Protocol,
    placement: Placement,
    depth: usize,
    ours: Vec<Figures>,
    theirs: Vec<Figures>,
}

impl Cell {
    fn median(rounds: &[Figures], figure: fn(&Figures) -> f64) -> f64 {
        median(rounds.iter().map(figure).collect())
    }

    /// The median over the rounds of ours to theirs.
    fn ratio(&self, figure: fn(&Figures) -> f64) -> f64 {
        let pairs = self.ours.iter().zip(&self.theirs);
        median(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect())
    }

    fn name(&self) -> &'static str {
        if self.protocol == Protocol::Memcached { "memcached" } else { "redis-server" }
    }

    fn cells(&self) -> Vec<String> {
        let placement = self.placement.to_possible_value().expect("none is hidden");
        let (ours, theirs) = (&self.ours, &self.theirs);
        let text = |rounds: &[Figures], figure, digits: usize| match rounds.is_empty() {
            true => "-".to_string(),
            false => format!("{:.digits$}", Cell::median(rounds, figure)),
        };
        let ratio = |figure| match theirs.is_empty() {
            true => "-".to_string(),
            false => format!("{:.2}", self.ratio(figure)),
        };
        vec![
            format!("{}, {}, {}", self.name(), placement.get_name(), self.depth),
            text(ours, |f| f.per_s, 0),
            text(theirs, |f| f.per_s, 0),
            ratio(|f| f.per_s),
            text(ours, |f| f.p99_us, 1),
            text(theirs, |f| f.p99_us, 1),
            text(ours, |f| f.cpu_us, 2),
            text(theirs, |f| f.cpu_us, 2),
            ratio(|f| f.cpu_us),
        ]
    }

    fn json(&self) -> serde_json::Value {
        let placement = self.placement.to_possible_value().expect("none is hidden");
        let of = |rounds: &[Figures]| {
            json!({ "gets_per_s": Cell::median(rounds, |f| f.per_s), "p50_us": Cell::median(rounds, |f| f.p50_us),
                "p99_us": Cell::median(rounds, |f| f.p99_us), "server_cpu_us": Cell::median(rounds, |f| f.cpu_us) })
        };
        json!({ "name": "protocols", "against": self.name(), "placement": placement.get_name(), "depth": self.depth,
            "bytes": VALUE_BYTES, "ours": of(&self.ours), "theirs": of(&self.theirs),
            "rate_ratio": self.ratio(|f| f.per_s), "cpu_ratio": self.ratio(|f| f.cpu_us) })
    }
}

fn measure_cell(
    cell: &mut Cell,
    sides: (&mut Side, Option<&mut Side>),
    all: &CpuSet,
    arguments: &Protocols,
) -> io::Result<()> {
    let count = (arguments.count / arguments.rounds).max(1) as usize;
    let (client, server) = cell.placement.sets(all);
    let (ours, mut theirs) = sides;
    for _ in 0..arguments.rounds {
        cell.ours.push(ours.round(&client, &server, cell.depth, count)?);
        if let Some(theirs) = theirs.as_mut() {
            cell.theirs.push(theirs.round(&client, &server, cell.depth, count)?);
        }
    }
    Ok(())
}

/// Measures and prints a row for each protocol, placement and depth.
pub fn measure(arguments: &Protocols) -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let placements = match arguments.placements.is_empty() {
        true => Placement::value_variants(),
        false => &arguments.placements,
    };
    if !all.is_set(0) || (placements.contains(&Placement::Apart) && !all.is_set(1)) {
        return Err(io::Error::other("processors 0 and 1 are needed, or --placement free"));
    }
    let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
    let mut table = Table::new(&[
        "8 KiB gets: against, placement, depth",
        "gets/s",
        "theirs",
        "ratio",
        "p99 us",
        "theirs",
        "server CPU us/get",
        "theirs",
        "ratio",
    ]);
    for protocol in [Protocol::Memcached, Protocol::Resp] {
        let mut sides =
            (ours(arguments, protocol, scratch.path())?, theirs(protocol, scratch.path())?);
        for placement in placements {
            for depth in DEPTHS {
                let (placement, ours, theirs) = (*placement, Vec::new(), Vec::new());
                let mut cell = Cell { protocol, placement, depth, ours, theirs };
                measure_cell(&mut cell, (&mut sides.0, sides.1.as_mut()), &all, arguments)?;
                if arguments.json {
                    print_json(&cell.json());
                }
                table.row(&cell.cells());
            }
        }
        place(None, &all)?;
    }
    if !arguments.json {
        print!("{}", table.render());
    }
    Ok(())
}
