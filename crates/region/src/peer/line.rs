//! A faulting thread's own way to one holder: an endpoint, calls and a link of its own, driven by that thread until the
//! answer is there. No other thread has a part in it on this side, so that a fault costs no wake here.
//!
//! To the holder it is a node without an id, which is given one. A line whose link broke is of no use any more: another
//! one is made by a thread that may allocate.

use super::super::limits::{LINE_CALLS, LINE_ENTRIES, LOOKS_PER_TURN, SHARES_TURNS};
use endpoint::limits::PAGE_BYTES;
use endpoint::{Endpoint, Frame, FrameMut, Frames, ReceiveMessage};
use live::clock;
use live::link::{Address, LinkConfig, LinkEvent, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::scheduler::switches;
use live::wait::{Pause, WaitPolicy, Waiter};
use netmem::PageStamp;
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

/// Content of a call.
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
    /// Frame for the answer's data.
    pub into: Option<FrameMut>,
}

/// Content of an answer.
pub struct Answer {
    /// Results.
    pub body: [u8; BODY_BYTES],
    /// Bytes of data in `data`.
    pub bytes: usize,
    /// The question's `into`.
    pub data: Option<FrameMut>,
}

/// Outcome of a question, once it has one.
pub type Answered = Option<Result<Answer, LineError>>;

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
    /// The first of those that were asked last.
    first: u64,
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
    /// Connects to the node that listens at `address`, with a pool of `pages` pages.
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
        let mut rpc = Rpc::new(Config::new(node, incarnation, seed));
        // A fault may not allocate.
        rpc.reserve(LINE_CALLS, PageStamp::BYTES);
        endpoint.reserve(LINE_CALLS);
        Ok(Line {
            endpoint,
            rpc,
            links,
            peer,
            waiter: Waiter::new(config.wait, switches),
            idle_turns: 0,
            shares: false,
            broken: false,
            config,
            ticket: 0,
            first: 1,
            data: Vec::with_capacity(1),
            into: Vec::with_capacity(1),
        })
    }

    /// This end's id at the other.
    pub fn node(&self) -> NodeId {
        self.links.node()
    }

    /// Whether the link broke.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// How long a call may take.
    pub fn deadline(&self) -> Duration {
        self.config.deadline
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
        let (mut answer, deadline) = ([None], self.config.deadline);
        self.post(deadline, [question], &mut answer);
        self.collect(&mut answer);
        let [answer] = answer;
        answer.expect("every question gets an answer")
    }

    /// Asks all of these, [`LINE_CALLS`](super::super::limits::LINE_CALLS) at the most, to be answered within
    /// `deadline`; those that cannot be asked have their answers then. [`collect`](Line::collect) follows.
    pub fn post<'a>(
        &mut self,
        deadline: Duration,
        questions: impl IntoIterator<Item = Question<'a>>,
        answers: &mut [Answered],
    ) {
        let now = clock::now();
        self.first = self.ticket + 1;
        for (question, answer) in questions.into_iter().zip(answers.iter_mut()) {
            *answer = self.begin(now, deadline, question).err().map(Err);
        }
        if let Err(error) = self.links.send_posted(&mut self.endpoint, now) {
            fail(answers, error.into());
        }
    }

    /// Waits for the answers to what was asked last, as many as that was, in the same order.
    pub fn collect(&mut self, answers: &mut [Answered]) {
        if let Err(error) = self.wait(answers) {
            fail(answers, error);
        }
    }

    fn begin(
        &mut self,
        now: Time,
        deadline: Duration,
        question: Question<'_>,
    ) -> Result<(), LineError> {
        self.ticket += 1;
        if self.broken {
            return Err(LineError::Broken);
        }
        let late = now + deadline;
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
        Ok(())
    }

    fn wait(&mut self, answers: &mut [Answered]) -> Result<(), LineError> {
        self.idle_turns = 0;
        while answers.iter().any(Option::is_none) {
            let now = clock::now();
            let moved = self.turn(now, answers)?;
            if moved {
                self.waiter.busy(now);
            } else if self.broken {
                return Err(LineError::Broken);
            } else {
                self.pause(now)?;
            }
        }
        Ok(())
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

    /// Moves what can be moved, and takes the answers that came; whether there was anything.
    fn turn(&mut self, now: Time, answers: &mut [Answered]) -> io::Result<bool> {
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
        while let Some(message) = self.endpoint.get_rcvmsg() {
            moved = true;
            let event = self.rpc.handle_message(now, &mut self.endpoint, message);
            event.into_iter().for_each(|event| self.take(event, answers));
        }
        if now >= self.rpc.poll_timeout() {
            self.rpc.handle_timeout(now, &mut self.endpoint);
        }
        while let Some(event) = self.rpc.poll_event() {
            moved = true;
            self.take(event, answers);
        }
        if self.endpoint.posted() > 0 {
            self.links.send_posted(&mut self.endpoint, now)?;
        }
        Ok(moved)
    }

    /// An event of a question that is not awaited any more is none.
    fn take(&mut self, event: Event, answers: &mut [Answered]) {
        let first = self.first;
        let nth = |ticket: u64| {
            let nth = ticket.checked_sub(first).and_then(|nth| usize::try_from(nth).ok());
            nth.filter(|nth| *nth < answers.len())
        };
        match event {
            Event::Reply { ticket, status, message } => match nth(ticket) {
                Some(nth) => answers[nth] = Some(self.answer(status, message)),
                None => self.endpoint.release_rcvmsg(message),
            },
            Event::Failed { ticket, error } => {
                if let Some(nth) = nth(ticket) {
                    answers[nth] = Some(Err(error.into()));
                }
            }
            Event::Request { message, .. } => self.endpoint.release_rcvmsg(message),
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

/// Requests without an answer get none any more.
fn fail(answers: &mut [Answered], error: LineError) {
    let mut error = Some(error);
    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
        *answer = Some(Err(error.take().unwrap_or(LineError::Broken)));
    }
}
