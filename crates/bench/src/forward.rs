//! `trapeze forward`: the forwarding agent of "Fast Forwarding on Myrinet" between two adapters of this machine. The
//! sender's adapter is also the receiver's: 8 KiB packets go to the forwarder and come back.
//!
//! With the payload cache a packet leaves from the copy that its arrival left on the forwarder's adapter; without, it
//! is fetched from host memory again. The modes take turns in one run. The sender sends from its
//! adapter's copies and keeps nothing of what comes back, so that the forwarder is what limits.

use super::adapters::{NODES, Station, control, pin_near, send, side_by_side, step};
use super::pass::median;
use crate::arguments::{self, Balancing, CacheMode};
use live::clock;
use live::link::adapter::{AdapterShape, Copied, Host, Port, pair};
use nic::{
    Agent, Balance, Buffers, CacheConfig, CacheCounters, HostFrame, Landed, Send as Heading,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terminal::table::{Table, print_json};
use wire::{Control, NodeId, Token};

/// Payload of a packet (its section 4: a page of the Alpha).
const PACKET: usize = 8 << 10;
/// Packets that the sender has under way, and frames of the forwarder.
const WINDOW: u64 = 32;
/// Buffers of the forwarder's adapter: twice a ring and the send segment, so that back-pressure keeps every hit.
const CACHE: CacheConfig =
    CacheConfig { entries: 68, send_segment: 4, small_segment: 0, small_bytes: 0 };
/// The sender's, with a copy for each entry of its ring.
const SENDER: CacheConfig =
    CacheConfig { entries: 96, send_segment: 32, small_segment: 0, small_bytes: 0 };
/// Without the cache: the same memory.
const POOLS: Buffers = Buffers::Pools { send: 32, receive: 36 };
const BUFFER: usize = 16 << 10;
const FLOWS: u64 = 64;
const BACKENDS: [NodeId; 4] = [NodeId(10), NodeId(11), NodeId(12), NodeId(13)];

impl From<Balancing> for Balance {
    fn from(balancing: Balancing) -> Balance {
        match balancing {
            Balancing::Hash => Balance::Hash,
            Balancing::RoundRobin => Balance::RoundRobin,
            Balancing::LeastConnections => Balance::LeastConnections,
        }
    }
}

/// The forwarder's memory and what it knows of its packets.
struct Relay {
    memory: Vec<u8>,
    /// Of each frame, the packet's flow and the control message that it leaves with.
    flows: Vec<u32>,
    controls: Vec<Control>,
    free: Vec<usize>,
    /// Frames whose packets come in, wait, and leave, each in its order.
    landing: VecDeque<usize>,
    arrived: VecDeque<(usize, Landed)>,
    leaving: VecDeque<usize>,
    /// The number of the first that leaves.
    first: u64,
    /// Sum of the payload bytes that the host has read.
    sum: u32,
}

impl Relay {
    fn new() -> Relay {
        let frames = WINDOW as usize;
        Relay {
            memory: vec![0; frames * PACKET],
            flows: vec![0; frames],
            controls: vec![Control::default(); frames],
            free: (0..frames).rev().collect(),
            landing: VecDeque::with_capacity(frames),
            arrived: VecDeque::with_capacity(frames),
            leaving: VecDeque::with_capacity(frames),
            first: 0,
            sum: 0,
        }
    }

    fn place(&mut self, flow: u32) -> Option<[HostFrame; 1]> {
        let frame = self.free.pop()?;
        self.flows[frame] = flow;
        self.landing.push_back(frame);
        Some([HostFrame { address: (frame * PACKET) as u64, bytes: PACKET }])
    }

    fn packet(&self, frame: usize) -> &[u8] {
        &self.memory[frame * PACKET..(frame + 1) * PACKET]
    }

    fn leaves(&self, number: u64) -> usize {
        self.leaving[(number - self.first) as usize]
    }
}

impl Host for Relay {
    fn source(&self, number: u64, offset: usize) -> &[u8] {
        &self.packet(self.leaves(number))[offset..]
    }

    fn head(&self, number: u64) -> (&Control, &[u8]) {
        (&self.controls[self.leaves(number)], &[])
    }

    fn sent(&mut self, _: u64) {
        self.free.extend(self.leaving.pop_front());
        self.first += 1;
    }

    fn sink(&mut self, offset: usize) -> &mut [u8] {
        let frame = *self.landing.front().expect("a packet goes to the host");
        &mut self.memory[frame * PACKET + offset..(frame + 1) * PACKET]
    }

    fn deposited(&mut self, _: usize) {}

    fn trailer(&mut self, _: &mut dyn FnMut(&mut [u8])) {}

    fn delivered(&mut self, landed: &[Landed]) {
        let frame = self.landing.pop_front().expect("a packet goes to the host");
        self.arrived.push_back((frame, landed[0]));
    }
}

/// The forwarding program.
struct Forwarder {
    port: Port,
    host: Relay,
    agent: Agent,
    mode: CacheMode,
    forwarded: u64,
    busy: Duration,
}

impl Forwarder {
    fn new(port: Port, mode: CacheMode, balance: Balance) -> Forwarder {
        let agent = Agent::new(balance, &BACKENDS, FLOWS as usize);
        let (host, busy) = (Relay::new(), Duration::ZERO);
        Forwarder { port, host, agent, mode, forwarded: 0, busy }
    }

    /// Polls, chooses a backend for what has come, rewrites its header and sends it on. Whether there was something.
    fn turn(&mut self) -> io::Result<bool> {
        let place = |host: &mut Relay, header: &wire::Header| host.place(header.sequence);
        let moved = step(&mut self.port, &mut self.host, place)?;
        let before = self.forwarded;
        while self.port.send_room() > 0
            && let Some((frame, landed)) = self.host.arrived.pop_front()
        {
            self.forward(frame, &landed);
        }
        Ok(moved || self.forwarded > before)
    }

    fn forward(&mut self, frame: usize, landed: &Landed) {
        let flow = self.host.flows[frame];
        let destination = self.agent.forward(flow.into()).expect("all backends are up");
        if self.mode == CacheMode::Touch {
            self.host.sum ^= wire::checksum::crc32c(self.host.packet(frame));
        }
        let source = NODES[1];
        self.host.controls[frame] = control(source, destination, flow, PACKET);
        let piece = match self.mode {
            CacheMode::Off => landed.frame.into(),
            CacheMode::On | CacheMode::Touch => landed.unmodified(),
        };
        self.host.leaving.push_back(frame);
        self.port.post_pieces(Heading { source, destination, token: Token::NONE }, &[piece]);
        self.forwarded += 1;
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<Forwarder> {
        while !stop.load(Ordering::Relaxed) {
            let start = clock::now();
            // Polls that find nothing cost a spinning host nothing else.
            if self.turn()? {
                self.busy += clock::now().since(start);
            }
        }
        std::hint::black_box(self.host.sum);
        Ok(self)
    }
}

/// Result of a round.
#[derive(Clone, Debug)]
struct Round {
    packets: u64,
    elapsed: Duration,
    busy: Duration,
    copied: Copied,
    cache: CacheCounters,
}

impl Round {
    fn cpu_us(&self) -> f64 {
        self.busy.as_secs_f64() * 1e6 / self.packets as f64
    }

    fn per_packet(&self, bytes: u64) -> f64 {
        bytes as f64 / PACKET as f64 / self.packets as f64
    }
}

/// A mode: a row of `--json`. Copies are of payloads, per packet.
#[derive(Clone, Debug, Serialize)]
struct Forwarded {
    name: &'static str,
    payload_cache: String,
    packets: u64,
    packets_per_s: f64,
    mb_per_s: f64,
    cpu_us: f64,
    cpu_ratio_to_off: Option<f64>,
    copies_from_link: f64,
    copies_to_host: f64,
    copies_to_net: f64,
    hits: u64,
    misses: u64,
}

/// `trapeze forward`.
pub fn run(arguments: &arguments::Forward) -> Result<(), Box<dyn std::error::Error>> {
    let far = pin_near(&arguments.cpus)?;
    let modes = match &arguments.modes[..] {
        [] => vec![CacheMode::Off, CacheMode::On, CacheMode::Touch],
        asked => asked.to_vec(),
    };
    let mut rounds = vec![Vec::new(); modes.len()];
    let bar = terminal::progress::steps("forwarding", arguments.rounds);
    for _ in 0..arguments.rounds {
        for (mode, rounds) in modes.iter().zip(&mut rounds) {
            rounds.push(round(*mode, arguments.balance.into(), arguments.count, far)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let rows = rows(&modes, &rounds);
    match arguments.json {
        true => rows.iter().for_each(print_json),
        false => print(&rows),
    }
    Ok(())
}

fn shape(buffers: Buffers) -> AdapterShape {
    AdapterShape { buffer_bytes: BUFFER, buffers, ..AdapterShape::default() }
}

impl CacheMode {
    /// The forwarder's adapter.
    fn shape(self) -> AdapterShape {
        shape(if self == CacheMode::Off { POOLS } else { Buffers::Cache(CACHE) })
    }
}

/// Sends `count` packets through a forwarder on processor `cpu`.
fn round(mode: CacheMode, balance: Balance, count: u64, cpu: usize) -> io::Result<Round> {
    let [near, far] = pair([&shape(Buffers::Cache(SENDER)), &mode.shape()])?;
    let mut sender = Station::new(near, PACKET, false);
    let forwarder = Forwarder::new(far, mode, balance);
    let post = |sender: &mut Station, number| sender.post_known((number % FLOWS) as u32 + 1);
    let all = |alive: &dyn Fn() -> io::Result<()>| {
        let start = clock::now();
        send(&mut sender, count, WINDOW, alive, post)?;
        Ok(clock::now().since(start))
    };
    let (elapsed, forwarder) = side_by_side(cpu, |stop| forwarder.run(stop), all)?;
    let cache = forwarder.port.nic().cache().counters();
    let (busy, copied) = (forwarder.busy, forwarder.port.copied());
    Ok(Round { packets: count, elapsed, busy, copied, cache })
}

fn rows(modes: &[CacheMode], rounds: &[Vec<Round>]) -> Vec<Forwarded> {
    let off = modes.iter().position(|mode| *mode == CacheMode::Off).map(|at| &rounds[at]);
    modes.iter().zip(rounds).map(|(mode, rounds)| row(*mode, rounds, off)).collect()
}

fn row(mode: CacheMode, rounds: &[Round], off: Option<&Vec<Round>>) -> Forwarded {
    let over = |of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    let ratio = |off: &Vec<Round>| {
        median(rounds.iter().zip(off).map(|(this, off)| this.cpu_us() / off.cpu_us()).collect())
    };
    let packets_per_s = over(&|round| round.packets as f64 / round.elapsed.as_secs_f64());
    let mode = clap::ValueEnum::to_possible_value(&mode).expect("none is hidden");
    Forwarded {
        name: "forward",
        payload_cache: mode.get_name().to_string(),
        packets: rounds.iter().map(|round| round.packets).sum(),
        packets_per_s,
        mb_per_s: packets_per_s * PACKET as f64 / 1e6,
        cpu_us: over(&Round::cpu_us),
        cpu_ratio_to_off: off.map(ratio),
        copies_from_link: over(&|round| round.per_packet(round.copied.from_link)),
        copies_to_host: over(&|round| round.per_packet(round.copied.to_host)),
        copies_to_net: over(&|round| round.per_packet(round.copied.to_net)),
        hits: rounds.iter().map(|round| round.cache.hits).sum(),
        misses: rounds.iter().map(|round| round.cache.misses).sum(),
    }
}

fn print(rows: &[Forwarded]) {
    let mut table = Table::new(&[
        "payload cache",
        "packets/s",
        "MB/s",
        "CPU us/packet",
        "to off",
        "copies",
        "from the link",
        "to the host",
        "to the adapter",
        "hits",
        "misses",
    ]);
    for row in rows {
        let copies = row.copies_from_link + row.copies_to_host + row.copies_to_net;
        table.row(&[
            row.payload_cache.clone(),
            format!("{:.0}", row.packets_per_s),
            format!("{:.0}", row.mb_per_s),
            format!("{:.2}", row.cpu_us),
            row.cpu_ratio_to_off.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
            format!("{copies:.2}"),
            format!("{:.2}", row.copies_from_link),
            format!("{:.2}", row.copies_to_host),
            format!("{:.2}", row.copies_to_net),
            row.hits.to_string(),
            row.misses.to_string(),
        ]);
    }
    print!("{}", table.render());
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u64 = 500;

    #[test]
    fn with_the_cache_each_payload_is_copied_once_less() {
        let bytes = COUNT * PACKET as u64;
        for (mode, to_net, hits) in
            [(CacheMode::Off, bytes, 0), (CacheMode::On, 0, COUNT), (CacheMode::Touch, 0, COUNT)]
        {
            let round = round(mode, Balance::Hash, COUNT, 0).unwrap();
            let copied = Copied { to_net, to_host: bytes, from_link: bytes };
            assert_eq!(round.copied, copied, "{mode:?}");
            assert_eq!((round.cache.hits, round.cache.misses), (hits, 0), "{mode:?}");
        }
    }

    #[test]
    fn what_comes_back_is_what_was_sent() {
        for mode in [CacheMode::Off, CacheMode::On, CacheMode::Touch] {
            let [near, far] = pair([&AdapterShape::default(), &mode.shape()]).unwrap();
            let mut sender = Station::new(near, PACKET, true);
            let mut forwarder = Forwarder::new(far, mode, Balance::RoundRobin);
            let mut turns = 0;
            sender.post_known(1);
            while sender.host.delivered == 0 {
                sender.turn().unwrap();
                forwarder.turn().unwrap();
                turns += 1;
                assert!(turns < 1000, "{mode:?}");
            }
            assert!(sender.has_own(), "{mode:?}");
            assert_eq!(forwarder.agent.counters().forwarded, 1);
        }
    }
}
