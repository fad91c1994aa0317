//! A faulting thread's own way to one holder: an endpoint, calls and a link of its own, driven by that thread until the
//! answer is there. No other thread has a part in it on this side, so that a fault costs no wake here.
//!
//! To the holder it is a node without an id, which is given one. A line whose link broke is of no use any more: another
//! one is made by somebody who may allocate.

use super::super::limits::{LINE_ENTRIES, LOOKS_PER_TURN, SHARES_TURNS};
use crate::clock;
use crate::host::switches;
use crate::link::{Address, LinkConfig, LinkEvent, Links, Security, SharedPool};
use crate::memory::MemfdRegion;
use crate::wait::{Pause, WaitPolicy, Waiter};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Endpoint, Frame, FrameMut, Frames, ReceiveMessage};
use netrpc::{CallError, Config, Event, Rpc, Start};
use std::io;
use std::time::Duration;
use wire::limits::BODY_BYTES;
use wire::{Channel, ControlView, NodeId, Time};

/// How a line is made.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// Of the cluster that the holders belong to.
    pub cluster: u64,
    /// Of TCP connections.
    pub security: Security,
    /// How a thread waits for an answer.
    pub wait: WaitPolicy,
    /// How long a call may take.
    pub deadline: Duration,
}

/// What a call says.
pub struct Question<'a> {
    /// The operation.
    pub op: u16,
    /// Not to be executed twice.
    pub once: bool,
    /// At most 64 bytes.
    pub body: &'a [u8],
    /// Data that follows.
    pub data: Option<Frame>,
    /// Checksums behind the data.
    pub trailer: &'a [u8],
    /// Where the answer's data lands.
    pub into: Option<FrameMut>,
}

/// What came back.
pub struct Answer {
    /// Results.
    pub body: [u8; BODY_BYTES],
    /// Bytes of data in `data`.
    pub bytes: usize,
    /// The question's `into`.
    pub data: Option<FrameMut>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The call ended without one.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The link broke: make another line.
    #[error("the link broke")]
    Broken,
    /// The service could not read it, or failed.
    #[error("the holder answers with status {0}")]
    Status(u16),
    /// The link.
    #[error("{0}")]
    Link(#[from] io::Error),
}

/// The line.
pub struct Line {
    endpoint: Endpoint,
    rpc: Rpc,
    links: Links,
    peer: NodeId,
    config: LineConfig,
    /// Numbers the calls.
    ticket: u64,
    waiter: Waiter,
    /// Turns of the present wait in which nothing moved.
    idle_turns: u32,
    /// Whether the peer runs on this thread's processor.
    shares: bool,
    broken: bool,
    data: Vec<Frame>,
    into: Vec<FrameMut>,
}

// SAFETY: what cannot be sent in a line are the shared handles between its own parts: the pool's of endpoint and
// frames, the directory's of its links. None of them leaves the line, but for frames that a caller has while it
// borrows the line or hands to the next call. So all of them are used by one thread at a time, the one that has the
// line.
unsafe impl Send for Line {}

impl Line {
    /// Connects to whoever listens at `address`, with a pool of `pages` pages.
    pub fn connect(address: &Address, config: LineConfig, pages: usize) -> io::Result<Line> {
        let region = MemfdRegion::create("trapeze-line", pages)?;
        region.touch()?;
        let pool = SharedPool { fd: region.share()?, bytes: pages * PAGE_BYTES };
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let [incarnation, seed] =
            [0, 8].map(|at| u64::from_ne_bytes(random[at..at + 8].try_into().expect("8 bytes")));
        let incarnation = incarnation | 1;
        let (cluster, security) = (config.cluster, config.security.clone());
        let link = LinkConfig { node: NodeId(0), incarnation, cluster, security };
        let mut links = Links::new(link, Some(pool), Box::new(|_| {}))?;
        let mut endpoint = Endpoint::with_entries(Frames::new(region), seed, LINE_ENTRIES);
        let (node, peer) = links.bootstrap(&mut endpoint, address, config.deadline)?;
        Ok(Line {
            endpoint,
            rpc: Rpc::new(Config::new(node, incarnation, seed)),
            links,
            peer,
            waiter: Waiter::new(config.wait, switches),
            idle_turns: 0,
            shares: false,
            broken: false,
            config,
            ticket: 0,
            data: Vec::with_capacity(1),
            into: Vec::with_capacity(1),
        })
    }

    /// What the other end calls this one.
    pub fn node(&self) -> NodeId {
        self.links.node()
    }

    /// Whether the link broke.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// How long a call may take from now on.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.config.deadline = deadline;
    }

    /// Frames for questions and answers.
    pub fn frames(&self) -> &Frames {
        self.endpoint.frames()
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, question: Question<'_>) -> Result<Answer, LineError> {
        if self.broken {
            return Err(LineError::Broken);
        }
        let now = clock::now();
        let late = now + self.config.deadline;
        self.ticket += 1;
        self.data.extend(question.data);
        self.into.extend(question.into);
        let start = Start {
            to: self.peer,
            channel: Channel::MEMORY,
            op: question.op,
            once: question.once,
            deadline: late,
            body: question.body,
            trailer: question.trailer,
            ticket: self.ticket,
        };
        let begun = self.rpc.call(now, &mut self.endpoint, &start, &mut self.data, &mut self.into);
        if let Err(error) = begun {
            self.data.clear();
            self.into.clear();
            return Err(error.into());
        }
        self.links.send_posted(&mut self.endpoint, now)?;
        self.wait()
    }

    fn wait(&mut self) -> Result<Answer, LineError> {
        self.idle_turns = 0;
        loop {
            let now = clock::now();
            let (ended, moved) = self.turn(now)?;
            if ended.is_some() || moved {
                self.waiter.busy(now);
            }
            match ended {
                Some(result) => return result,
                None if self.broken => return Err(LineError::Broken),
                None if moved => {}
                None => self.pause(now)?,
            }
        }
    }

    /// Nothing has come: looks again, lets others run, or sleeps.
    fn pause(&mut self, now: Time) -> io::Result<()> {
        if self.idle_turns.is_multiple_of(SHARES_TURNS) {
            self.shares = self.links.shares_processor();
        }
        self.idle_turns += 1;
        let due = self.links.deadline().into_iter().chain([self.rpc.poll_timeout()]).min();
        match self.waiter.idle(now, self.shares, due) {
            Pause::Spin => self.look(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep => self.sleep(due)?,
        }
        Ok(())
    }

    /// Moves what can be moved; the call's end, if that came, and whether anything moved.
    fn turn(&mut self, now: Time) -> io::Result<(Option<Result<Answer, LineError>>, bool)> {
        let mut moved = self.links.step(&mut self.endpoint, now)?;
        while let Some(event) = self.links.take_event() {
            match event {
                LinkEvent::Up(peer) => self.rpc.link_up(now, &mut self.endpoint, peer),
                LinkEvent::Down(peer) => {
                    self.broken = true;
                    self.rpc.link_down(now, peer);
                }
            }
        }
        let mut ended = None;
        while let Some(message) = self.endpoint.get_rcvmsg() {
            moved = true;
            let event = self.rpc.handle_message(now, &mut self.endpoint, message);
            ended = event.and_then(|event| self.take(event)).or(ended);
        }
        if now >= self.rpc.poll_timeout() {
            self.rpc.handle_timeout(now, &mut self.endpoint);
        }
        while let Some(event) = self.rpc.poll_event() {
            ended = self.take(event).or(ended);
        }
        if self.endpoint.posted() > 0 {
            self.links.send_posted(&mut self.endpoint, now)?;
        }
        Ok((ended, moved))
    }

    fn take(&mut self, event: Event) -> Option<Result<Answer, LineError>> {
        match event {
            Event::Reply { ticket, status, message } if ticket == self.ticket => {
                Some(self.answer(status, message))
            }
            Event::Failed { ticket, error } if ticket == self.ticket => Some(Err(error.into())),
            Event::Failed { .. } => None,
            Event::Reply { message, .. } | Event::Request { message, .. } => {
                self.endpoint.release_rcvmsg(message);
                None
            }
        }
    }

    fn answer(&mut self, status: u16, message: ReceiveMessage) -> Result<Answer, LineError> {
        let entry = self.endpoint.arrived(&message);
        let body = *ControlView::checked_before(&entry.control).body();
        let bytes = entry.payload_bytes;
        let data = self.endpoint.detach_rcvmsg(&message).next();
        self.endpoint.release_rcvmsg(message);
        if status == 0 { Ok(Answer { body, bytes, data }) } else { Err(LineError::Status(status)) }
    }

    /// Waits for a moment, as long as nothing has come.
    fn look(&mut self) {
        for _ in 0..LOOKS_PER_TURN {
            std::hint::spin_loop();
            if !self.links.is_quiet() {
                return;
            }
        }
    }

    fn sleep(&mut self, due: Option<Time>) -> io::Result<()> {
        if !self.links.before_sleep() {
            let span = due.map(|at| at.since(clock::now()));
            let woken = self.links.wait(span)?;
            let due = due.filter(|_| !woken && span > Some(Duration::ZERO));
            self.waiter.woken(clock::now(), due);
        }
        self.links.after_sleep();
        Ok(())
    }
}
