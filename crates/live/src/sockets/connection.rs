//! One connection: a socket and its session.

use super::limits::*;
use arrayvec::ArrayVec;
use kv::limits::INPUT_BYTES;
use kv::{Items, Moment, Out, Progress, Session};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// What all connections share.
#[derive(Debug)]
pub struct Workplace {
    pub items: Rc<RefCell<Items>>,
    input: Box<[u8]>,
    /// Empty between two connections.
    out: Out,
    /// Bytes of half commands of all connections.
    pub kept_bytes: usize,
    /// Bytes of text that clients have not read, of all connections. Values that are not copied do not count.
    pub waiting_bytes: usize,
    /// The most of it.
    pub waiting_bytes_max: usize,
}

impl Workplace {
    pub fn new(items: Items) -> Workplace {
        let input = vec![0; INPUT_BYTES].into();
        Workplace {
            items: Rc::new(RefCell::new(items)),
            input,
            out: Out::default(),
            kept_bytes: 0,
            waiting_bytes: 0,
            waiting_bytes_max: WAITING_BYTES_MAX,
        }
    }
}

/// What serving a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There was nothing to do.
    Nothing,
    /// What there was is done.
    Done,
    /// There is more than one turn's.
    Again,
    /// It is at its end.
    Closed,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    session: Session,
    /// Output that the client does not take.
    waiting: Option<Box<Waiting>>,
    /// Commands may be complete in what the session keeps.
    has_more: bool,
    /// Of the half command that it keeps.
    kept_bytes: usize,
    /// Of these, what is read again in front of what comes next.
    again_bytes: usize,
    /// Of the text that waits for the client.
    waiting_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    out: Out,
    /// Since when, or since the client last took something.
    since_ms: u64,
    /// The connection ends behind it.
    last: bool,
}

/// How far a write came.
enum Wrote {
    All,
    Part(usize),
    Failed,
}

/// Writes what waits, as long as the socket takes it.
fn write(socket: &TcpStream, out: &mut Out) -> Wrote {
    let mut total = 0;
    out.settle();
    while !out.is_empty() {
        if out.is_blocked() {
            return Wrote::Part(total);
        }
        let written = {
            let pieces: ArrayVec<IoSlice<'_>, PIECES_MAX> =
                out.pieces().take(PIECES_MAX).map(IoSlice::new).collect();
            rustix::io::writev(socket, &pieces)
        };
        match written {
            Ok(0) | Err(Errno::AGAIN) => return Wrote::Part(total),
            Ok(count) => {
                total += count;
                out.written(count);
            }
            Err(Errno::INTR) => {}
            Err(_) => return Wrote::Failed,
        }
    }
    Wrote::All
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// With a client of whom nothing is known.
    pub fn new(socket: TcpStream, session: Session) -> Connection {
        Connection {
            socket,
            session,
            waiting: None,
            has_more: false,
            kept_bytes: 0,
            again_bytes: 0,
            waiting_bytes: 0,
        }
    }

    /// Whether output waits for the client.
    pub fn is_stalled(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether what is to be written next is still to come.
    pub fn is_blocked(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.out.is_blocked())
    }

    /// How long the client has not taken anything of what waits for it.
    pub fn stalls_since(&self, moment: Moment) -> Duration {
        let waiting = self.waiting.as_ref().filter(|waiting| !waiting.out.is_blocked());
        let since = waiting.map_or(moment.now_ms, |waiting| waiting.since_ms);
        Duration::from_millis(moment.now_ms.saturating_sub(since))
    }

    /// Bytes of the half command that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Bytes of text that wait for the client.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Reads, executes, writes.
    pub fn serve(&mut self, place: &mut Workplace, moment: Moment) -> Served {
        let served = match self.waiting.take() {
            Some(waiting) => self.go_on(waiting, place, moment),
            None if self.has_more => self.execute(0, place, moment),
            None => self.read(place, moment),
        };
        self.count_kept(place);
        let crowded = self.kept_bytes > 0 && place.kept_bytes > KEPT_BYTES_MAX
            || self.waiting_bytes > 0 && place.waiting_bytes > place.waiting_bytes_max;
        if crowded { Served::Closed } else { served }
    }

    /// Writes what waits; when that is done, goes on with what the client has sent before.
    fn go_on(
        &mut self,
        mut waiting: Box<Waiting>,
        place: &mut Workplace,
        moment: Moment,
    ) -> Served {
        match write(&self.socket, &mut waiting.out) {
            Wrote::Failed => Served::Closed,
            Wrote::All if waiting.last => Served::Closed,
            Wrote::All => self.execute(0, place, moment),
            Wrote::Part(count) => {
                waiting.since_ms = if count > 0 { moment.now_ms } else { waiting.since_ms };
                self.waiting = Some(waiting);
                if count > 0 { Served::Done } else { Served::Nothing }
            }
        }
    }

    fn read(&mut self, place: &mut Workplace, moment: Moment) -> Served {
        for reads in 0..READS_PER_TURN {
            let gap = self.session.gap();
            let is_gap = !gap.is_empty();
            let room = if is_gap { gap } else { &mut place.input[self.again_bytes..] };
            let asked = room.len();
            let count = match rustix::io::read(&self.socket, room) {
                Ok(0) => return Served::Closed,
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) if reads == 0 => return Served::Nothing,
                Err(Errno::AGAIN | Errno::INTR) => return Served::Done,
                Err(_) => return Served::Closed,
            };
            let fresh = if is_gap { 0 } else { count };
            if is_gap {
                self.session.filled(count);
            }
            let served = self.execute(fresh, place, moment);
            if served != Served::Done || self.is_stalled() || count < asked {
                return served;
            }
            self.count_kept(place);
        }
        Served::Done
    }

    /// Executes what was kept and the `fresh` bytes behind it, and writes the answers.
    fn execute(&mut self, mut fresh: usize, place: &mut Workplace, moment: Moment) -> Served {
        self.has_more = false;
        for _ in 0..WRITES_PER_TURN {
            let end = self.session.begin_input(&mut place.input) + std::mem::take(&mut fresh);
            let input = &place.input[..end];
            let items = &mut place.items.borrow_mut();
            let progress = self.session.run(input, items, moment, &mut place.out);
            match write(&self.socket, &mut place.out) {
                Wrote::All => {}
                Wrote::Part(_) => {
                    let (out, since_ms) = (std::mem::take(&mut place.out), moment.now_ms);
                    let last = progress == Progress::Ended;
                    self.waiting = Some(Box::new(Waiting { out, since_ms, last }));
                    return Served::Done;
                }
                Wrote::Failed => {
                    place.out.clear();
                    return Served::Closed;
                }
            }
            match progress {
                Progress::Waiting => return Served::Done,
                Progress::Ended => return Served::Closed,
                Progress::Full => {}
            }
        }
        self.has_more = true;
        Served::Again
    }

    /// Counts what the session keeps now, and what waits.
    fn count_kept(&mut self, place: &mut Workplace) {
        place.waiting_bytes -= self.waiting_bytes;
        self.waiting_bytes = self.waiting.as_ref().map_or(0, |waiting| waiting.out.text_bytes());
        place.waiting_bytes += self.waiting_bytes;
        place.kept_bytes -= self.kept_bytes;
        self.kept_bytes = self.session.held_bytes();
        self.again_bytes = self.session.kept_bytes();
        place.kept_bytes += self.kept_bytes;
    }
}
