//! One connection: a socket and its session.

use super::detour::Detour;
use super::limits::*;
use kv::limits::INPUT_BYTES;
use kv::{Items, Moment, Out, Progress, Session, TenantNo};
use rustix::io::Errno;
use std::cell::RefCell;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// State that all connections share.
#[derive(Debug)]
pub struct Workplace {
    pub items: Rc<RefCell<Items>>,
    input: Box<[u8]>,
    /// Empty between two connections.
    out: Out,
    detour: Detour,
    /// Bytes of half commands of all connections.
    pub kept_bytes: usize,
    /// The most of it.
    pub kept_bytes_max: usize,
    /// Bytes of text that clients have not read, of all connections. Values that are not copied do not count.
    pub waiting_bytes: usize,
    /// The most of it.
    pub waiting_bytes_max: usize,
    /// Bytes read and written that are not yet told.
    pub moved: Moved,
}

/// Bytes read from sockets, and written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub received: u64,
    pub sent: u64,
}

impl Workplace {
    pub fn new(items: Items) -> Workplace {
        let input = vec![0; INPUT_BYTES].into();
        Workplace {
            items: Rc::new(RefCell::new(items)),
            input,
            out: Out::default(),
            detour: Detour::new(),
            kept_bytes: 0,
            kept_bytes_max: KEPT_BYTES_MAX,
            waiting_bytes: 0,
            waiting_bytes_max: WAITING_BYTES_MAX,
            moved: Moved::default(),
        }
    }
}

/// Memory of which connections together may have too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Half commands.
    Kept,
    /// Text that clients have not read.
    Waiting,
    /// A tenant's values that are arriving or being sent.
    Values(TenantNo),
}

impl Workplace {
    /// Tells the items' facts what was read and written.
    fn tell_moved(&mut self) {
        let Moved { received, sent } = std::mem::take(&mut self.moved);
        let mut items = self.items.borrow_mut();
        let facts = items.facts_mut();
        facts.received_bytes += received;
        facts.sent_bytes += sent;
    }

    /// The first of them that they have too much of.
    pub fn excess(&self) -> Option<Excess> {
        if self.kept_bytes > self.kept_bytes_max {
            return Some(Excess::Kept);
        }
        if self.waiting_bytes > self.waiting_bytes_max {
            return Some(Excess::Waiting);
        }
        self.items.borrow().crowded().map(Excess::Values)
    }
}

/// Result of serving a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There was nothing to do.
    Nothing,
    /// Everything there was is done.
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
    /// When something was last read or written.
    moved_ms: u64,
}

#[derive(Debug)]
struct Waiting {
    out: Out,
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
fn write(socket: &TcpStream, out: &mut Out, detour: &mut Detour, moved: &mut Moved) -> Wrote {
    let mut total = 0;
    out.settle();
    while !out.is_empty() {
        if out.is_blocked() {
            return Wrote::Part(total);
        }
        let written = rustix::io::writev(socket, &detour.slices(out.pieces()));
        match written {
            Ok(0) | Err(Errno::AGAIN) => return Wrote::Part(total),
            Ok(count) => {
                total += count;
                moved.sent += count as u64;
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
            moved_ms: 0,
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

    /// How long nothing was read or written; not at all where it is not the client who is waited for.
    pub fn stands_still(&self, moment: Moment) -> Duration {
        let since = if self.is_blocked() { moment.now_ms } else { self.moved_ms };
        Duration::from_millis(moment.now_ms.saturating_sub(since))
    }

    /// Bytes that it has of what there may be too much of.
    pub fn holds(&self, excess: Excess) -> usize {
        match excess {
            Excess::Kept => self.kept_bytes,
            Excess::Waiting => self.waiting_bytes,
            Excess::Values(tenant) if tenant == self.session.tenant() => {
                let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.out.held_bytes());
                self.session.draft_bytes() + waiting
            }
            Excess::Values(_) => 0,
        }
    }

    /// Reads, executes, writes.
    pub fn serve(&mut self, place: &mut Workplace, moment: Moment) -> Served {
        let served = match self.waiting.take() {
            Some(waiting) => self.go_on(waiting, place, moment),
            None if self.has_more => self.execute(0, place, moment),
            None => self.read(place, moment),
        };
        self.count_kept(place);
        if served != Served::Nothing {
            place.tell_moved();
            self.moved_ms = moment.now_ms;
        }
        served
    }

    /// Writes what waits; when that is done, goes on with what the client has sent before.
    fn go_on(
        &mut self,
        mut waiting: Box<Waiting>,
        place: &mut Workplace,
        moment: Moment,
    ) -> Served {
        match write(&self.socket, &mut waiting.out, &mut place.detour, &mut place.moved) {
            Wrote::Failed => Served::Closed,
            Wrote::All if waiting.last => Served::Closed,
            Wrote::All => self.execute(0, place, moment),
            Wrote::Part(count) => self.wait(waiting, count, place),
        }
    }

    /// Lets output wait for the client, of which so many bytes were written now.
    fn wait(&mut self, mut waiting: Box<Waiting>, count: usize, place: &mut Workplace) -> Served {
        let tenant = self.session.tenant();
        let items = &mut place.items.borrow_mut();
        // what waits for another node does not wait for long
        if !waiting.out.is_blocked() && items.adopt(&mut waiting.out, tenant).is_err() {
            return Served::Closed;
        }
        self.waiting = Some(waiting);
        if count > 0 { Served::Done } else { Served::Nothing }
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
            place.moved.received += count as u64;
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
            let progress = {
                let items = &mut place.items.borrow_mut();
                self.session.run(input, items, moment, &mut place.out)
            };
            match write(&self.socket, &mut place.out, &mut place.detour, &mut place.moved) {
                Wrote::All => {}
                Wrote::Part(_) => {
                    let out = std::mem::take(&mut place.out);
                    let waiting = Waiting { out, last: progress == Progress::Ended };
                    return self.wait(Box::new(waiting), 1, place);
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
