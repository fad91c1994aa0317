//! The programs of the papers' measurements: ping-pong, fetch, stream, burst, sink, and the user-level
//! forwarding agent.

use super::world::program::{Copies, Cx, Message, Program};
use crate::queue::Picos;

/// What a host does.
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

/// What came.
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
    /// Messages to let pass before counting: the pipeline fills.
    pub skip: u64,
}

impl Sink {
    /// Counts after `skip` messages.
    pub fn after(skip: u64) -> Role {
        Role::Sink(Sink { skip, ..Sink::default() })
    }

    /// Payload bytes a second between the first message counted and the last.
    pub fn rate(&self) -> f64 {
        let mean = self.bytes as f64 / self.messages.max(1) as f64;
        let span = self.last.since(self.first).0 as f64 / 1e12;
        mean * (self.messages.saturating_sub(1)) as f64 / span
    }

    /// Mean age of the messages counted, in microseconds.
    pub fn mean_age(&self) -> f64 {
        self.age.0 as f64 / self.messages.max(1) as f64 / 1e6
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
    /// Messages in a burst; 0 is as many as the ring takes, always.
    pub burst: u64,
    /// Time between the beginnings of two bursts.
    pub period: Picos,
    sent: u64,
    due: u64,
}

impl Source {
    /// `count` messages of `bytes`, as fast as the ring takes them.
    pub fn stream(to: usize, bytes: usize, count: u64) -> Role {
        Source::paced(to, vec![bytes], count, 0, Picos::ZERO)
    }

    /// `count` messages, `burst` of them each `period`.
    pub fn paced(to: usize, sizes: Vec<usize>, count: u64, burst: u64, period: Picos) -> Role {
        Role::Source(Source { to, sizes, count, burst, period, sent: 0, due: 0 })
    }

    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let adapters: Vec<usize> = cx.adapters().collect();
        for adapter in adapters {
            while self.sent < self.due && cx.room(adapter) > 0 {
                let bytes = self.sizes[(self.sent % self.sizes.len() as u64) as usize];
                cx.send(adapter, self.to, bytes, self.sent, Picos::ZERO);
                self.sent += 1;
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        let more = if self.burst == 0 { self.count } else { self.burst };
        self.due = (self.due + more).min(self.count);
        if self.due < self.count {
            cx.wake(cx.now() + self.period, 0);
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

/// The user-level forwarding agent: polls, decides, binds the payload's copy, sends.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// Adapters to forward to, in turn.
    pub to: Vec<usize>,
    /// What it says about the adapter's copies.
    pub copies: Copies,
    /// What it computes for each message.
    pub service: Picos,
    /// Messages forwarded.
    pub forwarded: u64,
}

impl Forwarder {
    /// Forwards all to one adapter.
    pub fn role(to: usize, copies: Copies, service: Picos) -> Role {
        Role::Forwarder(Forwarder { to: vec![to], copies, service, forwarded: 0 })
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
            Role::Forwarder(agent) => {
                let to = agent.to[(agent.forwarded % agent.to.len() as u64) as usize];
                agent.forwarded += 1;
                cx.forward(message.adapter, to, agent.copies, agent.service);
            }
            Role::Source(_) => {}
        }
    }

    fn sent(&mut self, _adapter: usize, cx: &mut Cx<'_>) {
        if let Role::Source(source) = self {
            source.go_on(cx);
        }
    }

    fn timer(&mut self, _token: u32, cx: &mut Cx<'_>) {
        if let Role::Source(source) = self {
            source.timer(cx);
        }
    }
}
