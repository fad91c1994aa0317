//! All clients of one server: their connections, their calls in progress, and bounds for what each of them can hold.
//!
//! ```text
//!   socket ─ slices, filled ─► Connection ─ record ─► Execution ─ poll_request ─► front ring
//!          ◄ writer ──────────            ◄ reply ──            ◄ done ─────────
//! ```
//!
//! It has no sockets, clock or tasks: the owner of the sockets (a device of a live host, a simulated client) moves
//! bytes in and out, and operations to the node's front ring and back. One call of a connection waits for no other.
//!
//! | kind | methods |
//! | --- | --- |
//! | what came | [`connect`](Front::connect), [`filled`](Front::filled), [`datagram`](Front::datagram), [`done`](Front::done), [`disconnect`](Front::disconnect) |
//! | commands | [`look_after`](Front::look_after), [`stop`](Front::stop), [`close_files`](Front::close_files) |
//! | what is to be done | [`poll_request`](Front::poll_request), [`poll_changed`](Front::poll_changed), [`poll_closed`](Front::poll_closed), [`poll_datagram`](Front::poll_datagram) |
//!
//! Bounds: a connection with many calls, much data or unread replies is not read from; half records and unread replies
//! of all connections together may take a part of the pool, and who stood still longest is closed.

mod behind;
mod connection;
mod counters;
mod forwarding;

pub use counters::{Client, Counted, Counters, LATENCY_BUCKETS, name};

use crate::filter::Forward;
use crate::limits::*;
use crate::portmap::UDP;
use crate::record::{Outgoing, Progress, Record, RecordError, Writer, begin};
use crate::replies::{Key, Replies, Verdict};
use crate::rpc::{self, Call, NoCall};
use crate::server::{Executed, Execution, Origin, Port, Server, Step};
use crate::v3;
use crate::xdr::decoded;
use behind::Behind;
use connection::Connection;
use endpoint::Frames;
use endpoint::limits::PAGE_BYTES;
use node::Bug;
use node::rings::{FileDone, FileRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSliceMut;
use std::rc::Rc;
use wire::{Time, Wall};

/// Names a connection, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Its records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record that is no call.
    #[error("a record that is no call")]
    Nonsense,
}

/// A reply to a datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The ends of the call that it answers: it leaves from the same port.
    pub origin: Origin,
    /// The reply.
    pub bytes: Vec<u8>,
}

/// Destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Connection(ConnectionId),
    Datagram(Origin),
}

/// A call in progress.
struct Running {
    target: Target,
    key: Option<Key>,
    /// None: it was forwarded.
    execution: Option<Execution>,
    /// Of one that was forwarded: it is executed here after all when its reply has attributes of files that are open
    /// here.
    repeated: Option<(Origin, Record)>,
    /// Program and procedure.
    of: (u32, u32),
    began: Time,
    /// Of a WRITE, or of a READ's reply.
    data_bytes: usize,
}

/// The server's front. See the module's text.
pub struct Front {
    server: Rc<Server>,
    frames: Frames,
    now: Time,
    look_at: Time,
    next: u64,
    connections: BTreeMap<ConnectionId, Connection>,
    calls: BTreeMap<u64, Running>,
    /// Data of all of them.
    data_bytes: usize,
    replies: Replies,
    requests: VecDeque<FileRequest>,
    /// Calls to be forwarded; only a filter forwards.
    forwards: Option<VecDeque<Forward>>,
    /// Operations for which no call waits.
    behind: Behind,
    /// Connections that wait for frames, or for calls of others to end.
    waiting: BTreeSet<ConnectionId>,
    changed: BTreeSet<ConnectionId>,
    closed: Vec<ConnectionId>,
    datagrams: VecDeque<Datagram>,
    is_stopping: bool,
    counters: Counters,
}

impl Front {
    /// Of a server whose records land in these frames.
    pub fn new(server: Rc<Server>, frames: Frames) -> Front {
        Front {
            server,
            frames,
            now: Time::ZERO,
            look_at: Time::ZERO,
            next: 1,
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            data_bytes: 0,
            replies: Replies::default(),
            requests: VecDeque::new(),
            forwards: None,
            behind: Behind::default(),
            waiting: BTreeSet::new(),
            changed: BTreeSet::new(),
            closed: Vec::new(),
            datagrams: VecDeque::new(),
            is_stopping: false,
            counters: Counters::default(),
        }
    }

    /// Counters since the start, by procedure and client.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The state that its calls share.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether no call is in progress and no reply waits.
    pub fn is_quiet(&self) -> bool {
        let written = |connection: &Connection| connection.writer.bytes() == 0;
        let locks = self.server.locks().borrow().is_quiet();
        let is_done = self.calls.is_empty() && self.behind.is_empty() && locks;
        is_done && self.connections.values().all(written)
    }

    /// When it is to be looked after at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let is_idle = self.connections.is_empty() && self.server.open_files().borrow().is_empty();
        let locks = self.server.locks().borrow().deadline();
        (!is_idle).then_some(self.look_at).into_iter().chain(locks).min()
    }

    /// Whether bytes of a connection may be read now.
    pub fn may_read(&self, id: ConnectionId) -> bool {
        !self.is_stopping && self.connections.get(&id).is_some_and(Connection::may_read)
    }

    /// Whether there is something to write to a connection.
    pub fn has_output(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.writer.bytes() > 0)
    }

    /// The time of all that follows.
    pub fn set_now(&mut self, now: Time, wall: Wall) {
        self.now = now;
        self.server.set_now(now, wall);
    }

    /// A client connected. Of too many connections the one that was idle longest makes room; `None`: none is idle.
    pub fn connect(&mut self, origin: Origin) -> Option<ConnectionId> {
        if self.connections.len() >= CONNECTIONS_MAX {
            let idle = self.connections.iter().filter(|(_, connection)| connection.is_idle());
            let oldest = idle.min_by_key(|(_, connection)| connection.moved).map(|(id, _)| *id)?;
            self.close(oldest);
        }
        let id = ConnectionId(self.number());
        self.counters.connected(origin.client(), self.now);
        self.connections.insert(id, Connection::new(origin, self.now));
        Some(id)
    }

    /// A connection is gone. Its calls go on, for a client that retransmits them over another one.
    pub fn disconnect(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.counters.disconnected(connection.origin.client());
            self.changed.remove(&id);
            self.waiting.remove(&id);
        }
    }

    /// Buffers for the next bytes of a connection; none when it may not be read.
    pub fn slices(&mut self, id: ConnectionId) -> impl Iterator<Item = IoSliceMut<'_>> {
        let connection = self.connections.get_mut(&id).filter(|connection| connection.may_read());
        let frames = &self.frames;
        connection.into_iter().flat_map(|connection| connection.reader.slices(frames))
    }

    /// So many bytes came into the last slices. After an error the connection is to be closed.
    pub fn filled(&mut self, id: ConnectionId, bytes: usize) -> Result<(), Ended> {
        let connection = self.connections.get_mut(&id).expect("a connection that is there");
        connection.moved = self.now;
        connection.reader.filled(bytes);
        self.counters.received_bytes += bytes as u64;
        self.advance(id)
    }

    /// The output of a connection. Call [`wrote`](Front::wrote) after writing.
    pub fn writer(&self, id: ConnectionId) -> Option<&Writer> {
        self.connections.get(&id).map(|connection| &connection.writer)
    }

    /// So many bytes were written to a connection.
    pub fn wrote(&mut self, id: ConnectionId, bytes: usize) -> Result<(), Ended> {
        let connection = self.connections.get_mut(&id).expect("a connection that is there");
        connection.moved = self.now;
        connection.writer.wrote(bytes);
        self.counters.sent_bytes += bytes as u64;
        // calls that waited for their client to read go on
        self.advance(id)
    }

    /// A datagram came.
    pub fn datagram(&mut self, origin: Origin, bytes: &[u8]) {
        if origin.port.has_locks() && rpc::is_reply(bytes) {
            return self.server.locks().borrow_mut().replied(origin.from, bytes);
        }
        self.counters.called(origin.client(), self.now);
        let record = Record { head: bytes.to_vec(), data: Vec::new() };
        let has_room = self.has_room() && !self.is_stopping;
        if record.head.len() <= CALL_HEAD_BYTES_MAX && has_room {
            // what is no call is no reason to answer
            let _ = self.begin(Target::Datagram(origin), origin, record);
        }
    }

    /// The next operation for the front ring. One that finds no room is to be [put back](Front::put_back).
    pub fn poll_request(&mut self) -> Option<FileRequest> {
        self.collect();
        self.requests.pop_front()
    }

    /// An operation that found no room: it is the next one again.
    pub fn put_back(&mut self, request: FileRequest) {
        self.requests.push_front(request);
    }

    /// An operation has ended.
    pub fn done(&mut self, done: FileDone) {
        let Some(done) = self.behind.done(&self.server, done) else { return };
        let mut running = self.calls.remove(&done.front).expect("a call that asked");
        running.execution.as_mut().expect("it asked").answer(done.result);
        let target = running.target;
        self.step(done.front, running);
        if !self.calls.contains_key(&done.front) {
            self.go_on(target);
        }
    }

    /// A call of a connection has ended: the next one may begin.
    fn go_on(&mut self, target: Target) {
        if let Target::Connection(id) = target {
            self.advance_or_close(id);
        }
    }

    /// The next connection that may be read, or has something to write, or neither, unlike before.
    pub fn poll_changed(&mut self) -> Option<ConnectionId> {
        self.changed.pop_first()
    }

    /// The next connection that is to be closed, and is not known here any more.
    pub fn poll_closed(&mut self) -> Option<ConnectionId> {
        self.closed.pop()
    }

    /// The next reply to a datagram, or call to a client.
    pub fn poll_datagram(&mut self) -> Option<Datagram> {
        self.datagrams.pop_front().or_else(|| {
            let message = self.server.locks().borrow_mut().poll_message()?;
            let (from, to) = (message.to, message.own);
            let origin = Origin { from, to, over: UDP, port: Port::Locks };
            Some(Datagram { origin, bytes: message.bytes })
        })
    }

    /// Periodic work; to be called also when frames may have come back.
    pub fn look_after(&mut self) {
        self.retry();
        if self.now < self.look_at {
            return;
        }
        self.look_at = self.now + LOOK_SPAN;
        self.server.open_files().borrow_mut().expire(self.now);
        self.server.locks().borrow_mut().look();
        let now = self.now;
        self.connections.values_mut().for_each(|connection| connection.rest(now));
        self.close_stalled();
    }

    /// Begins no more calls: their clients retransmit them to the next incarnation.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.give_up_forwarded();
        self.server.locks().borrow_mut().stop();
        self.changed.extend(self.connections.keys());
    }

    /// Closes all files that no call uses: the server is about to stop.
    pub fn close_files(&mut self) {
        self.server.open_files().borrow_mut().close_all();
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Begins the calls that a connection's bytes hold, as many as it may have.
    fn advance(&mut self, id: ConnectionId) -> Result<(), Ended> {
        self.changed.insert(id);
        self.waiting.remove(&id);
        loop {
            let has_room = self.has_room();
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            if !connection.may_begin() || self.is_stopping {
                return Ok(());
            }
            if !has_room {
                connection.waits = self.waiting.insert(id);
                return Ok(());
            }
            connection.waits = false;
            match connection.poll(&self.frames, self.now)? {
                Progress::Record(record) => {
                    let origin = connection.origin;
                    self.counters.called(origin.client(), self.now);
                    self.begin(Target::Connection(id), origin, record)?;
                }
                Progress::Bytes => return Ok(()),
                Progress::Frames => {
                    connection.waits = self.waiting.insert(id);
                    return Ok(());
                }
            }
        }
    }

    /// Whether another call of any connection may begin.
    fn has_room(&self) -> bool {
        let data_bytes_max = self.frames.pages() * PAGE_BYTES / CALLS_PART;
        self.calls.len() < CALLS_OF_ALL_MAX && self.data_bytes < data_bytes_max
    }

    fn begin(&mut self, target: Target, origin: Origin, record: Record) -> Result<(), Ended> {
        let call = match Call::parse(&record.head) {
            Ok(call) => call,
            Err(NoCall::Nonsense) => return Err(Ended::Nonsense),
            Err(no) => {
                let refusal = crate::rpc::refusal(no).expect("a call, if a bad one");
                self.counters.refused += 1;
                self.reply(target, of_head(&refusal));
                return Ok(());
            }
        };
        let of = (call.program, call.procedure);
        let key = Key::with_bugs(origin.client(), &call, &record.head, self.server.bugs);
        let key = Some(key).filter(Key::is_kept);
        let key = key.filter(|_| !self.server.bugs.has(Bug::ChangeDuplicated));
        if !key.is_none_or(|key| self.is_new(key, target)) {
            return Ok(());
        }
        let (data_bytes, began) = (record.data_bytes() + reply_bytes(&call), self.now);
        let subject = self.subject(&call, origin);
        self.hold(target, 1, data_bytes as isize);
        self.data_bytes += data_bytes;
        let number = self.number();
        let running =
            Running { target, key, execution: None, repeated: None, of, began, data_bytes };
        match subject {
            Some(subject) => self.forward(number, running, (origin, subject, record)),
            None => {
                let id = key.map(|key| key.call_id());
                let execution = Execution::begin(self.server.clone(), origin, id, record);
                self.step(number, Running { execution: Some(execution), ..running });
            }
        }
        Ok(())
    }

    /// Whether a call is to be executed. One that was is answered with the same reply; one that is being executed is
    /// answered where it came from last.
    fn is_new(&mut self, key: Key, target: Target) -> bool {
        let reply = match self.replies.begin(key) {
            Verdict::Execute => return true,
            Verdict::Done(reply) => Some(of_head(reply)),
            Verdict::InProgress | Verdict::Full => None,
        };
        self.counters.duplicates += 1;
        match reply {
            Some(reply) => self.reply(target, reply),
            None => self.redirect(key, target),
        }
        false
    }

    fn redirect(&mut self, key: Key, target: Target) {
        let found = self.calls.values_mut().find(|running| running.key == Some(key));
        let Some(running) = found else { return };
        let (before, bytes) = (std::mem::replace(&mut running.target, target), running.data_bytes);
        self.hold(before, -1, -(bytes as isize));
        self.hold(target, 1, bytes as isize);
    }

    fn step(&mut self, number: u64, mut running: Running) {
        match running.execution.as_mut().expect("it is executed here").step() {
            Step::Ask(caller, op) => {
                // what was decided earlier of an owner's locks goes first
                self.collect();
                self.requests.push_back(FileRequest { front: number, caller, op });
                self.calls.insert(number, running);
            }
            Step::Reply(executed) => self.end(running, executed),
        }
    }

    fn end(&mut self, running: Running, executed: Executed) {
        let Running { target, key, of, began, data_bytes, .. } = running;
        self.counters.ended(of, executed.failed, self.now.since(began));
        match (key, &executed.reply) {
            (Some(key), Some(reply)) if executed.is_final && is_short(reply) => {
                self.replies.complete(key, reply.head());
            }
            (Some(key), _) => self.replies.forget(key),
            (None, _) => {}
        }
        self.hold(target, -1, -(data_bytes as isize));
        self.data_bytes -= data_bytes;
        if let Some(reply) = executed.reply {
            self.reply(target, reply);
        }
    }

    /// A connection has so many calls more, with so much data.
    fn hold(&mut self, target: Target, calls: isize, data_bytes: isize) {
        let Target::Connection(id) = target else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.hold(calls, data_bytes);
        }
    }

    fn reply(&mut self, target: Target, reply: Outgoing) {
        match target {
            Target::Connection(id) => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                if connection.writer.bytes() == 0 {
                    connection.moved = self.now;
                }
                connection.writer.push(reply);
                self.changed.insert(id);
            }
            Target::Datagram(origin) if self.datagrams.len() < DATAGRAMS_MAX => {
                self.datagrams.push_back(Datagram { origin, bytes: reply.datagram() });
            }
            Target::Datagram(_) => {}
        }
    }

    fn advance_or_close(&mut self, id: ConnectionId) {
        if self.advance(id).is_err() {
            self.close(id);
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.disconnect(id);
        self.closed.push(id);
    }

    /// Turns operations for which no call waits into requests.
    fn collect(&mut self) {
        while let Some(request) = self.behind.poll(&self.server, self.next) {
            self.next += 1;
            self.requests.push_back(request);
        }
    }

    /// Connections that wait go on, as far as they can.
    fn retry(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|id| self.advance_or_close(id));
    }

    /// Closes who stands still: for long, or while all who do hold too much.
    fn close_stalled(&mut self) {
        let all = self.connections.iter();
        let still = all.filter_map(|(id, it)| Some((it.still_since()?, *id, it.stalled_bytes())));
        let mut still: Vec<(Time, ConnectionId, usize)> = still.collect();
        still.sort();
        let most = self.frames.pages() * PAGE_BYTES / STALLED_PART;
        let mut held: usize = still.iter().map(|(.., bytes)| bytes).sum();
        for (since, id, bytes) in still {
            let span = if held > most { SHORT_STALL_SPAN } else { STALL_SPAN };
            if self.now.since(since) < span {
                break;
            }
            held -= bytes;
            self.counters.stalled += 1;
            self.close(id);
        }
    }
}

/// Whether the duplicate-request cache has room for it: a lock's reply has a number that its client chose.
fn is_short(reply: &Outgoing) -> bool {
    reply.head().len() <= REPLY_BYTES_MAX
}

/// Data that a call's reply may have.
fn reply_bytes(call: &Call<'_>) -> usize {
    let asked = (call.program, call.procedure);
    if asked != (v3::PROGRAM, v3::Procedure::Read as u32) {
        return 0;
    }
    let args: Result<v3::ReadArgs<'_>, _> = decoded(call.arguments);
    args.map_or(0, |args| IO_BYTES_MAX.min(args.count as usize))
}

fn of_head(reply: &[u8]) -> Outgoing {
    let mut head = begin(reply.len());
    head.extend_from_slice(reply);
    Outgoing::of(head)
}
