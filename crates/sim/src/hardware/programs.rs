//! The programs of the papers' measurements: ping-pong, fetch, stream, burst, sink. The forwarding agent is in
//! [`super::agent`].

use super::agent::Forwarder;
use super::world::program::{Cx, Message, Program, take_one};
use crate::queue::Picos;
use crate::random::Random;
use std::collections::VecDeque;

/// Program of a host.
#[derive(Clone, Debug)]
pub enum Role {
    /// Takes what comes and counts it.
    Sink(Sink),
    /// Sends a stream.
    Source(Source),
    /// Sends one message and waits for its answer, again and again (HPDC'97 section 4: half the mean of 50
    /// round trips).
    Ping(Ping),
    /// Answers each message with one of so many bytes: with the same an echo, with a page a server of pages.
    Echo {
        /// Bytes of each answer.
        bytes: usize,
        /// Work before it.
        service: Picos,
    },
    /// Sends each message on (forwarding paper, section 4).
    Forwarder(Forwarder),
}

/// Counts of received messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sink {
    /// Messages.
    pub messages: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// When the first and the last came.
    pub first: Picos,
    /// The last.
    pub last: Picos,
    /// Sum of the messages' ages when they were taken, since their first sender asked for them to be sent.
    pub age: Picos,
    /// The oldest.
    pub age_most: Picos,
    /// All ages, if they are kept.
    pub ages: Option<Vec<Picos>>,
    /// Messages to let pass before counting: the pipeline fills.
    pub skip: u64,
}

impl Sink {
    /// Counts after `skip` messages.
    pub fn after(skip: u64) -> Role {
        Role::Sink(Sink { skip, ..Sink::default() })
    }

    /// The same, and keeps the ages.
    pub fn timing(skip: u64) -> Role {
        Role::Sink(Sink { skip, ages: Some(Vec::new()), ..Sink::default() })
    }

    /// Payload bytes a second between the first message counted and the last.
    pub fn rate(&self) -> f64 {
        let mean = self.bytes as f64 / self.messages.max(1) as f64;
        let span = self.last.since(self.first).0 as f64 / 1e12;
        mean * (self.messages.saturating_sub(1)) as f64 / span
    }

    fn count(&mut self, message: &Message<'_>, now: Picos) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.messages == 0 {
            self.first = now;
        }
        let age = now.since(message.header.born);
        self.messages += 1;
        self.bytes += message.bytes as u64;
        self.last = now;
        self.age = self.age + age;
        self.age_most = self.age_most.max(age);
        self.ages.iter_mut().for_each(|ages| ages.push(age));
    }
}

/// When messages are due.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// All at once: as many as the ring takes, always.
    Stream,
    /// So many at once, and again after this time.
    Bursts(u64, Picos),
    /// One after the other, after exponentially distributed times with this mean (a Poisson process).
    Poisson(Random, Picos),
}

impl Arrivals {
    /// Number of messages due now, of `left`; and the time until more are.
    fn next(&mut self, left: u64) -> (u64, Picos) {
        match self {
            Arrivals::Stream => (left, Picos::ZERO),
            Arrivals::Bursts(burst, period) => ((*burst).min(left), *period),
            Arrivals::Poisson(random, mean) => (1, Picos(random.exponential(mean.0))),
        }
    }
}

/// A stream of messages.
#[derive(Clone, Debug)]
pub struct Source {
    /// Adapter that receives it.
    pub to: usize,
    /// Payload bytes, one size after the other.
    pub sizes: Vec<usize>,
    /// Messages to send.
    pub count: u64,
    /// When.
    pub arrivals: Arrivals,
    /// Flows: message n is of flow `first_flow` + n modulo `flows`, which is its header's word.
    pub flows: u64,
    /// The first of them.
    pub first_flow: u64,
    sent: u64,
    begun: u64,
    /// Due times of messages that were not sent yet; empty for a stream, whose messages are due when the ring has room.
    due: VecDeque<Picos>,
}

impl Source {
    /// `count` messages, each of a flow of its own.
    pub fn new(to: usize, sizes: Vec<usize>, count: u64, arrivals: Arrivals) -> Source {
        let (flows, first_flow) = (u64::MAX, 0);
        let due = VecDeque::new();
        Source { to, sizes, count, arrivals, flows, first_flow, sent: 0, begun: 0, due }
    }

    /// `count` messages of `bytes`, as fast as the ring takes them.
    pub fn stream(to: usize, bytes: usize, count: u64) -> Role {
        Role::Source(Source::new(to, vec![bytes], count, Arrivals::Stream))
    }

    /// `count` messages, `burst` of them each `period`.
    pub fn paced(to: usize, sizes: Vec<usize>, count: u64, burst: u64, period: Picos) -> Role {
        Role::Source(Source::new(to, sizes, count, Arrivals::Bursts(burst, period)))
    }

    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let adapters: Vec<usize> = cx.adapters().collect();
        for adapter in adapters {
            while self.sent < self.begun && cx.room(adapter) > 0 {
                let bytes = self.sizes[(self.sent % self.sizes.len() as u64) as usize];
                let flow = self.first_flow + self.sent % self.flows;
                let born = self.due.pop_front().unwrap_or(cx.now());
                cx.send_born(adapter, self.to, bytes, flow, born);
                self.sent += 1;
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        let (more, period) = self.arrivals.next(self.count - self.begun);
        self.begun += more;
        if !matches!(self.arrivals, Arrivals::Stream) {
            (0..more).for_each(|_| self.due.push_back(cx.now()));
        }
        if self.begun < self.count {
            cx.wake(cx.now() + period, 0);
        }
        self.go_on(cx);
    }
}

/// Ping-pong.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Adapter that answers.
    pub to: usize,
    /// Payload bytes of each message.
    pub bytes: usize,
    /// Round trips to make.
    pub rounds: u64,
    /// Round trips made.
    pub made: u64,
    /// When the first began and the last ended.
    pub begun: Picos,
    /// The last.
    pub ended: Picos,
}

impl Ping {
    /// `rounds` messages of `bytes`, one after the other.
    pub fn role(to: usize, bytes: usize, rounds: u64) -> Role {
        Role::Ping(Ping { to, bytes, rounds, made: 0, begun: Picos::ZERO, ended: Picos::ZERO })
    }

    /// Mean round trip in microseconds.
    pub fn round_trip(&self) -> f64 {
        self.ended.since(self.begun).0 as f64 / self.made as f64 / 1e6
    }

    fn send(&mut self, cx: &mut Cx<'_>) {
        let adapter = cx.adapters().next().expect("a host with an adapter");
        cx.send(adapter, self.to, self.bytes, self.made, Picos::ZERO);
    }

    fn answered(&mut self, cx: &mut Cx<'_>) {
        self.made += 1;
        self.ended = cx.now();
        if self.made < self.rounds {
            self.send(cx);
        }
    }
}

impl Program for Role {
    fn begin(&mut self, cx: &mut Cx<'_>) {
        match self {
            Role::Source(source) => source.timer(cx),
            Role::Ping(ping) => ping.send(cx),
            Role::Sink(_) | Role::Echo { .. } | Role::Forwarder(_) => {}
        }
    }

    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>) {
        match self {
            Role::Sink(sink) => sink.count(message, cx.now()),
            Role::Ping(ping) => ping.answered(cx),
            Role::Echo { bytes, service } => {
                cx.send(message.adapter, message.from, *bytes, message.header.word, *service);
            }
            Role::Source(_) | Role::Forwarder(_) => {}
        }
    }

    fn poll(&mut self, cx: &mut Cx<'_>) {
        match self {
            Role::Forwarder(agent) => agent.poll(cx),
            _ => take_one(self, cx),
        }
    }

    fn sent(&mut self, _adapter: usize, cx: &mut Cx<'_>) {
        match self {
            Role::Source(source) => source.go_on(cx),
            Role::Forwarder(agent) => agent.send_kept(cx),
            _ => {}
        }
    }

    fn timer(&mut self, _token: u32, cx: &mut Cx<'_>) {
        match self {
            Role::Source(source) => source.timer(cx),
            Role::Forwarder(agent) => agent.send_kept(cx),
            _ => {}
        }
    }
}
