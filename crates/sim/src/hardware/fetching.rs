//! A cluster whose hosts fetch blocks from each other: each asks a random other one, at times of a Poisson process,
//! and answers requests.
//!
//! The adapter's firmware runs on modelled hardware, and this program over the adapter's rings: a control message as
//! request, the block's bytes as answer. The calls of `netrpc` are not in it.

use super::fabric::Link;
use super::measure::Station;
use super::world::World;
use super::world::program::{Cx, Message, Program};
use crate::queue::Picos;
use crate::random::Random;
use std::collections::VecDeque;
use std::ops::Range;

/// Fetches of a host that are under way at once at most; others wait. Half of a ring of 64: the other half is for
/// answers.
const WINDOW: usize = 32;

/// The work of a cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every host.
    pub station: Station,
    /// The network between them.
    pub link: Link,
    /// Hosts, at least 2.
    pub nodes: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Mean time between two fetches of a host.
    pub between: Picos,
    /// Fetches of each host.
    pub fetches: u64,
    /// Of the run.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// From when a fetch was due until its block was there, shortest first.
    pub times: Vec<Picos>,
    /// When the last was done.
    pub ended: Picos,
    /// Share of the hosts' processors that was at work.
    pub host_busy: f64,
    /// Events.
    pub handled: u64,
    /// The hash of everything that happened.
    pub fingerprint: u64,
}

impl Fetched {
    /// The time that so many of a hundred fetches did not exceed, in microseconds (nearest rank).
    pub fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times[rank - 1].0 as f64 / 1e6
    }

    /// Fetches a second of all hosts together.
    pub fn per_second(&self) -> f64 {
        self.times.len() as f64 / (self.ended.0 as f64 / 1e12)
    }
}

impl Plan {
    /// Runs it.
    ///
    /// Panics with the seed if the cluster stands still before all is fetched: a fault of the models.
    pub fn run(&self) -> Fetched {
        self.run_and_tell(|_| ())
    }

    /// When the last fetch is due, about.
    pub fn expected(&self) -> Picos {
        Picos(self.between.0.saturating_mul(self.fetches))
    }

    /// Runs it and says now and then how far it is.
    pub fn run_and_tell(&self, mut tell: impl FnMut(Picos)) -> Fetched {
        let mut world = self.world();
        let step = Picos(self.expected().0 / 200 + 1);
        let mut until = step;
        while world.run(until) {
            tell(until);
            until = until + step;
        }
        let host = |host| world.program(host);
        let mut times: Vec<Picos> =
            (0..self.nodes).flat_map(|index| host(index).times.iter().copied()).collect();
        let all = self.nodes as u64 * self.fetches;
        assert_eq!(times.len() as u64, all, "seed {}: fetches that ended", self.seed);
        times.sort_unstable();
        let ended = (0..self.nodes).map(|index| host(index).ended).max().unwrap_or_default();
        let busy: u64 = (0..self.nodes).map(|index| world.host_busy(index).0).sum();
        let host_busy = busy as f64 / (ended.0 as f64 * self.nodes as f64);
        let (handled, fingerprint) = (world.handled(), world.fingerprint());
        Fetched { times, ended, host_busy, handled, fingerprint }
    }

    /// The cluster before its first event.
    pub fn world(&self) -> World<Fetching> {
        let programs = (0..self.nodes).map(|host| Fetching::new(self, host)).collect();
        let hosts = vec![self.station.host(); self.nodes];
        World::new(self.seed, self.link, &hosts, programs).expect("what the caller has checked")
    }
}

/// The program of one host.
#[derive(Clone, Debug)]
pub struct Fetching {
    host: usize,
    /// Of these all but itself are asked.
    peers: Range<usize>,
    bytes: usize,
    /// Work before each answer.
    service: Picos,
    between: Picos,
    /// Fetches that are not due yet.
    left: u64,
    under_way: usize,
    /// Due times of fetches that found no room.
    due: VecDeque<Picos>,
    /// Answers that no room was for: whom, and the word of the request.
    owed: VecDeque<(usize, u64)>,
    random: Random,
    times: Vec<Picos>,
    ended: Picos,
}

impl Fetching {
    /// The program of host `host` of the plan.
    pub fn new(plan: &Plan, host: usize) -> Fetching {
        Fetching {
            host,
            peers: 0..plan.nodes,
            bytes: plan.bytes,
            service: plan.station.machine.host.service,
            between: plan.between,
            left: plan.fetches,
            under_way: 0,
            due: VecDeque::new(),
            owed: VecDeque::new(),
            random: Random::new(plan.seed, &format!("fetches of host {host}")),
            times: Vec::with_capacity(plan.fetches as usize),
            ended: Picos::ZERO,
        }
    }

    /// Asks only these, of which it is one.
    pub fn among(self, peers: Range<usize>) -> Fetching {
        Fetching { peers, ..self }
    }

    /// Times of the fetches that are done, in the order of their ends.
    pub fn times(&self) -> &[Picos] {
        &self.times
    }

    fn next(&mut self, cx: &mut Cx<'_>) {
        if self.left > 0 {
            self.left -= 1;
            cx.wake(cx.now() + Picos(self.random.exponential(self.between.0)), 0);
        }
    }

    /// Sends as far as there is room: answers first, since a host waits for them.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let adapter = cx.adapters().next().expect("a host with an adapter");
        while cx.room(adapter) > 0 {
            if let Some((to, word)) = self.owed.pop_front() {
                cx.send(adapter, to, self.bytes, word, self.service);
            } else if self.under_way < WINDOW
                && let Some(due) = self.due.pop_front()
            {
                self.under_way += 1;
                cx.send(adapter, self.peer(), 0, due.0 << 1, Picos::ZERO);
            } else {
                return;
            }
        }
    }

    /// Another host.
    fn peer(&mut self) -> usize {
        let other = self.peers.start + self.random.index(self.peers.len() - 1);
        if other < self.host { other } else { other + 1 }
    }

    /// The word of a message is when the fetch was due, and whether it is the answer.
    fn came(&mut self, from: usize, word: u64, cx: &mut Cx<'_>) {
        let is_answer = word & 1 == 1;
        if is_answer {
            self.under_way -= 1;
            self.times.push(cx.now().since(Picos(word >> 1)));
            self.ended = cx.now();
        } else {
            self.owed.push_back((from, word | 1));
        }
        self.go_on(cx);
    }
}

impl Program for Fetching {
    fn begin(&mut self, cx: &mut Cx<'_>) {
        self.next(cx);
    }

    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>) {
        self.came(message.from, message.header.word, cx);
    }

    fn sent(&mut self, _adapter: usize, cx: &mut Cx<'_>) {
        self.go_on(cx);
    }

    fn timer(&mut self, _token: u32, cx: &mut Cx<'_>) {
        self.due.push_back(cx.now());
        self.next(cx);
        self.go_on(cx);
    }
}
