//! Requests over a line, and how a thread that must not make a line gets another one.

use super::super::limits::{AHEAD_BYTES, LINE_CALLS, LINE_PAGES, VISIT_DEADLINE};
use super::line::Answered;
use super::{Line, LineConfig, LineError, PeerConfig, Question};
use arrayvec::ArrayVec;
use endpoint::FrameMut;
use endpoint::limits::PAGE_BYTES;
use netmem::guest::{Refused, Response, found, taken};
use netmem::protocol::{Batch, Body, Get, Message, Put, Record, Spaces, Stayed, op};
use netmem::{PageStamp, SpaceId, Wanted};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::field::Field;
use wire::{Encoder, Errno, NodeId};

/// A line to a holder.
pub struct Connection {
    line: Line,
    /// Where pages land; `None` after a call that has not given it back. One, and more for pages that come ahead.
    frames: [Option<FrameMut>; LINE_CALLS],
    /// Of those.
    answers: [Answered; LINE_CALLS],
    /// The peer.
    pub there: Stayed,
    /// The holder's incarnation, as the region counts.
    pub generation: u16,
}

// SAFETY: the frame belongs to the pool of the line beside it, and both are used by the thread that has the way, see
// `Line`.
unsafe impl Send for Connection {}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("there", &self.there).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to a holder and asks who it is.
    pub fn reach(config: &PeerConfig, at: usize, page_bytes: usize) -> io::Result<Connection> {
        let pages = LINE_PAGES + (4 * page_bytes + AHEAD_BYTES) / PAGE_BYTES;
        let deadline = config.line.deadline;
        let hasty = LineConfig { deadline: deadline.min(VISIT_DEADLINE), ..config.line.clone() };
        let line = Line::connect(&config.holders[at], hasty, pages)?;
        let frames = std::array::from_fn(|nth| {
            let used = nth < ahead_max(page_bytes).max(1);
            used.then(|| line.frames().alloc_exact(page_bytes)).flatten()
        });
        let there = Stayed { node: NodeId(0), incarnation: 0, machine: 0 };
        let answers = [const { None }; LINE_CALLS];
        let mut way = Connection { line, frames, answers, there, generation: 0 };
        way.there = way.stay(config.space).map_err(io::Error::other)?;
        way.line.set_deadline(deadline);
        Ok(way)
    }

    /// To a holder in this incarnation.
    pub fn of_generation(self, generation: u16) -> Connection {
        Connection { generation, ..self }
    }

    /// Of no use any more.
    pub fn is_broken(&self) -> bool {
        self.line.is_broken()
    }

    /// Of the keeper, whose other work waits while it waits.
    pub fn set_hasty(&mut self) {
        self.line.set_deadline(VISIT_DEADLINE);
    }

    /// The page that the last [`get`](Way::get) has found, or the nth of the last [`answers`](Way::answers).
    pub fn landed(&self, nth: usize, bytes: usize) -> &[u8] {
        &self.frames[nth].as_deref().expect("a page has landed there")[..bytes]
    }

    /// Asks for a page.
    pub fn get(&mut self, wanted: Wanted) -> Response {
        let mut found = [Response::Not];
        self.post(self.line.deadline(), &[wanted]);
        self.answers(&[wanted], &mut found);
        found[0]
    }

    /// Asks for pages, without waiting. The results are in the answers.
    pub fn post(&mut self, deadline: Duration, wanted: &[Wanted]) {
        let bodies: ArrayVec<Body, LINE_CALLS> =
            wanted.iter().map(|wanted| get_body(*wanted, self.line.node())).collect();
        let pool = self.line.frames().clone();
        let questions = wanted.iter().zip(&bodies).zip(&mut self.frames);
        let questions = questions.map(|((wanted, body), frame)| {
            let into = frame.take().or_else(|| pool.alloc_exact(wanted.bytes as usize));
            Question { op: op::GET, once: false, body, data: None, trailer: &[], into }
        });
        self.line.post(deadline, questions, &mut self.answers[..wanted.len()]);
    }

    /// Waits for what was asked for so.
    pub fn answers(&mut self, wanted: &[Wanted], all: &mut [Response]) {
        let answers = &mut self.answers[..wanted.len()];
        self.line.collect(answers);
        let landings = answers.iter_mut().zip(&mut self.frames);
        for ((wanted, at), (answer, frame)) in wanted.iter().zip(all).zip(landings) {
            *at = match answer.take().expect("every question gets an answer") {
                Ok(answer) => {
                    *frame = answer.data;
                    let landed = frame.as_deref().map_or(&[][..], |frame| &frame[..answer.bytes]);
                    found(*wanted, &answer.body, landed)
                }
                Err(error) => Response::Silent(errno_of(&error)),
            };
        }
    }

    /// Has the holder keep a page.
    pub fn put(&mut self, put: &Put, from: &[u8]) -> Result<(), Refused> {
        let data = self.line.frames().copy_of(from).ok_or(Refused::Other(Errno::ENOMEM))?;
        let mut trailer = [0; PageStamp::BYTES];
        put.stamp.put(&mut Encoder::new(&mut trailer));
        let (body, data) = (put.encode(), Some(data));
        let question =
            Question { op: op::PUT, once: true, body: &body, data, trailer: &trailer, into: None };
        let answer = self.line.ask(question).map_err(|error| refused(&error))?;
        taken(&answer.body)
    }

    /// Says that the region is there; who is at the other end.
    pub fn stay(&mut self, space: SpaceId) -> Result<Stayed, LineError> {
        let body = Spaces::of(&[space]).encode();
        let answer = self.plain(op::STAY, false, &body, None)?;
        Stayed::decode(&answer).map_err(|_| LineError::Status(wire::Errno::EPROTO.0))
    }

    /// Has the holder forget pages of these versions or older ones.
    pub fn forget(&mut self, records: &[Record]) -> Result<(), LineError> {
        let batch = Batch::of(0, records, false);
        let mut data = None;
        if batch.data_bytes() > 0 {
            let Some(mut frame) = self.line.frames().alloc_exact(batch.data_bytes()) else {
                return Err(LineError::Status(wire::Errno::ENOMEM.0));
            };
            Batch::encode_data(records, &mut frame);
            data = Some(frame.freeze());
        }
        self.plain(op::DROP, true, &batch.encode(), data).map(drop)
    }

    /// Has the holder forget all of the region.
    pub fn free(&mut self, space: SpaceId) -> Result<(), LineError> {
        self.plain(op::FREE_SPACE, true, &Spaces::of(&[space]).encode(), None).map(drop)
    }

    fn plain(
        &mut self,
        op: u16,
        once: bool,
        body: &Body,
        data: Option<endpoint::Frame>,
    ) -> Result<Body, LineError> {
        let question = Question { op, once, body, data, trailer: &[], into: None };
        self.line.ask(question).map(|answer| answer.body)
    }
}

fn get_body(Wanted { id, at_least, bytes }: Wanted, from: NodeId) -> Body {
    Get::new(id, at_least, bytes, from).encode()
}

/// Pages of this size that are asked for at once: none ahead where that would be only one.
pub fn ahead_max(page_bytes: usize) -> usize {
    Some((AHEAD_BYTES / page_bytes).min(LINE_CALLS)).filter(|pages| *pages > 1).unwrap_or(0)
}

fn errno_of(error: &LineError) -> Errno {
    match error {
        LineError::Call(error) => Errno::from(*error),
        LineError::Status(status) => Errno(*status),
        LineError::Broken => Errno::EHOSTDOWN,
        LineError::Link(error) => error
            .raw_os_error()
            .and_then(|number| u16::try_from(number).ok())
            .map_or(Errno::EIO, Errno),
    }
}

/// A service that answers with a status is there, and just cannot.
fn refused(error: &LineError) -> Refused {
    match error {
        LineError::Status(status) => Refused::Other(Errno(*status)),
        error => Refused::Silent(errno_of(error)),
    }
}

/// Where a source gets another way to a holder from the keeper, which alone makes them: that allocates.
#[derive(Debug, Default)]
pub struct Mailbox {
    wanted: AtomicBool,
    mail: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    fresh: Option<Connection>,
    /// The connection that the fresh one has replaced, to be taken apart by the keeper.
    used: Option<Connection>,
}

impl Mailbox {
    /// Puts a fresh way in the place of `way`; false when there is none yet.
    pub fn exchange(&self, way: &mut Option<Connection>) -> bool {
        let Ok(mut mail) = self.mail.try_lock() else { return false };
        match mail.fresh.take() {
            Some(fresh) => {
                mail.used = way.replace(fresh);
                true
            }
            None => {
                self.wanted.store(true, Ordering::Release);
                false
            }
        }
    }

    /// Whether the source waits for a way.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// The keeper's part: a fresh way.
    pub fn deliver(&self, way: Connection) {
        let Ok(mut mail) = self.mail.lock() else { return };
        *mail = Mail { fresh: Some(way), used: None };
        self.wanted.store(false, Ordering::Release);
    }
}
