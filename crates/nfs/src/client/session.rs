//! A session with one export of a foreign server: ports, MOUNT, and calls over one connection at a time.
//!
//! ```text
//!            ports unknown          no root handle            both known
//!   closed ──► port mapper ──► closed ──► MOUNT ──► closed ──► NFS (NULL first, then all calls in flight)
//! ```
//!
//! Like the [`Client`] it has no socket and no clock. Its driver asks [`Session::poll_action`] which connection it
//! wants, moves bytes, and reports what became of the connection. A connection that is lost or silent is replaced, and
//! the calls in flight are retransmitted with their xids, by which the server's duplicate-request cache knows them.
//!
//! A driver's turn: [`handle_time`](Session::handle_time), [`poll_action`](Session::poll_action), then bytes in
//! ([`space`](Session::space), [`handle_filled`](Session::handle_filled)) and out ([`output`](Session::output),
//! [`handle_wrote`](Session::handle_wrote)), until [`deadline`](Session::deadline). A user waits for
//! [`root`](Session::root), then makes a [`call`](Session::call) and takes its result ([`take`](Session::take)).
//!
//! Invariant: a call is in flight or finished, until it is taken or given up; never both.

use super::{Called, Caller, Client, Reply, ReplyError, Request, StreamError};
use crate::limits::*;
use crate::mount::{self, DirPath, MntResult};
use crate::portmap::{self, Mapping};
use crate::v3;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::Time;

/// A foreign export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub address: IpAddr,
    /// The export's path, as MOUNT takes it.
    pub path: Vec<u8>,
    /// Port of NFS; `None`: the port mapper is asked.
    pub nfs_port: Option<u16>,
    /// Port of MOUNT; `None`: the port mapper is asked.
    pub mount_port: Option<u16>,
    /// Port of the port mapper, usually [`portmap::PORT`].
    pub portmap_port: u16,
}

/// The driver's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection, and report it with [`Session::handle_connected`] or [`Session::handle_lost`].
    Connect(SocketAddr),
    /// Close the connection, and report nothing.
    Close,
}

/// Why a server is away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Nothing was tried yet.
    #[error("it was not asked yet")]
    NotAsked,
    /// The connection could not be made or was lost.
    #[error("{0}")]
    Lost(String),
    /// No connection in [`CONNECT_SPAN`], or no reply in [`SILENCE_SPAN`].
    #[error("it does not answer")]
    Silent,
    /// It sends what no server sends.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A call of the session's own is refused.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// Its port mapper does not know this program.
    #[error("its port mapper has no port of program {0}")]
    NoProgram(u32),
    /// MOUNT refuses the export.
    #[error("it refuses to export the directory: {0:?}")]
    Refused(mount::Status),
}

/// Since when a server is away, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Since when.
    pub since: Time,
    /// The last reason.
    pub trouble: Trouble,
}

/// A finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The procedure and its encoded results.
    Results(v3::Procedure, Vec<u8>),
    /// The server did not execute it.
    Refused(ReplyError),
    /// There was no reply in time. It may have been executed.
    TimedOut,
}

impl Finished {
    /// The decoded results; `None` of a call without.
    pub fn results(&self) -> Option<Result<v3::Results<'_>, ReplyError>> {
        match self {
            Finished::Results(procedure, bytes) => {
                Some(v3::Results::decode(*procedure, bytes).map_err(ReplyError::from))
            }
            Finished::Refused(error) => Some(Err(*error)),
            Finished::TimedOut => None,
        }
    }
}

/// As many calls as a session may have are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{SESSION_CALLS_MAX} calls are in flight to the foreign server")]
pub struct Busy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ports,
    Mount,
    Nfs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Closed {
        connect_at: Time,
    },
    Connecting {
        until: Time,
    },
    Open,
    /// The driver is to close it, and then to connect.
    Closing {
        connect_at: Time,
    },
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Time,
    deadline: Time,
}

/// The session.
pub struct Session {
    target: Target,
    caller: Caller,
    nfs_port: Option<u16>,
    mount_port: Option<u16>,
    root: Option<Vec<u8>>,
    phase: Phase,
    link: Link,
    /// Ports and MOUNT: their calls are made anew on every connection.
    setup: Client,
    calls: Client,
    /// The NULL by which a server shows that it is back.
    probe: Option<u32>,
    begun: BTreeMap<u32, Begun>,
    finished: BTreeMap<u32, Finished>,
    output: Vec<u8>,
    written: usize,
    /// When anything was received last, or the first call was made after a rest.
    heard_at: Time,
    /// Failed connections since the last good one.
    failures: u32,
    /// Silent ones of them.
    silences: u32,
    away: Option<Away>,
    reconnects: u64,
}

impl Session {
    /// `caller` mounts; `last_xid` is another one in each incarnation.
    pub fn new(target: Target, caller: Caller, last_xid: u32, now: Time) -> Session {
        let (nfs_port, mount_port) = (target.nfs_port, target.mount_port);
        let (setup, calls) =
            (Client::new(caller.clone(), !last_xid), Client::new(caller.clone(), last_xid));
        Session {
            target,
            caller,
            nfs_port,
            mount_port,
            root: None,
            phase: Phase::Ports,
            link: Link::Closed { connect_at: now },
            setup,
            calls,
            probe: None,
            begun: BTreeMap::new(),
            finished: BTreeMap::new(),
            output: Vec::new(),
            written: 0,
            heard_at: now,
            failures: 0,
            silences: 0,
            away: Some(Away { since: now, trouble: Trouble::NotAsked }),
            reconnects: 0,
        }
    }

    /// The export.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The handle of the export, once it was mounted.
    pub fn root(&self) -> Option<&[u8]> {
        self.root.as_deref()
    }

    /// Since when the server is away; `None`: it answers, as far as is known.
    pub fn away(&self) -> Option<&Away> {
        self.away.as_ref()
    }

    /// Whether there is a connection, and it is of use.
    pub fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Whether something is to come by the connection.
    pub fn awaits_reply(&self) -> bool {
        let has_calls = self.probe.is_some() || !self.begun.is_empty();
        self.is_open() && (self.phase != Phase::Nfs || has_calls)
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Connections for calls that were made after the first.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Begins a call of NFS in the name of `caller`; its number. Without a reply at `deadline` it has timed out.
    pub fn call(
        &mut self,
        caller: &Caller,
        request: &Request<'_>,
        deadline: Time,
        now: Time,
    ) -> Result<u32, Busy> {
        assert!(matches!(request.called(), Called::Nfs(_)), "the session makes all other calls");
        if self.begun.len() >= SESSION_CALLS_MAX {
            return Err(Busy);
        }
        self.rest_ends(now);
        let is_open = self.is_ready();
        // One that cannot be sent now is sent with all others in flight when there is a connection.
        let mut later = Vec::new();
        let out = if is_open { &mut self.output } else { &mut later };
        let xid = self.calls.call_as(caller, request, out);
        self.begun.insert(xid, Begun { at: now, deadline });
        Ok(xid)
    }

    /// The end of a call, once; `None`: it is in flight.
    pub fn take(&mut self, xid: u32) -> Option<Finished> {
        self.finished.remove(&xid)
    }

    /// The call's result is not wanted any more. It may be executed.
    pub fn give_up(&mut self, xid: u32) {
        self.finished.remove(&xid);
        self.begun.remove(&xid);
        self.calls.forget(xid);
    }

    /// The handle of the export is stale: mounts it again.
    pub fn remount(&mut self, now: Time) {
        self.root = None;
        self.close(now, now);
    }

    /// The driver's next action; `None`: the connection stays as it is.
    pub fn poll_action(&mut self, now: Time) -> Option<Action> {
        match self.link {
            Link::Closing { connect_at } => {
                self.link = Link::Closed { connect_at };
                Some(Action::Close)
            }
            Link::Closed { connect_at } if connect_at <= now => {
                self.link = Link::Connecting { until: now + CONNECT_SPAN };
                self.phase = self.next_phase();
                Some(Action::Connect(SocketAddr::new(self.target.address, self.port())))
            }
            Link::Closed { .. } | Link::Connecting { .. } | Link::Open => None,
        }
    }

    /// The connection that [`Action::Connect`] asked for is there.
    pub fn handle_connected(&mut self, now: Time) {
        if !matches!(self.link, Link::Connecting { .. }) {
            return; // it came too late, and is to be closed
        }
        self.link = Link::Open;
        self.heard_at = now;
        match self.phase {
            Phase::Ports => self.ask_ports(),
            Phase::Mount => {
                let path = self.target.path.clone();
                let request = mount::Args::Mnt(DirPath(&path)).into();
                self.setup.call(&request, &mut self.output);
            }
            Phase::Nfs => {
                let null = Request::Nfs(v3::Args::Null(()));
                // behind it, so that it is not sent twice
                let mut again = Vec::new();
                self.calls.retransmit_all(&mut again);
                self.probe = Some(self.calls.call_as(&self.caller, &null, &mut self.output));
                self.output.append(&mut again);
            }
        }
    }

    /// The connection could not be made, or was lost.
    pub fn handle_lost(&mut self, why: impl std::fmt::Display, now: Time) {
        self.fail(Trouble::Lost(why.to_string()), now);
        // there is none that the driver could close
        if let Link::Closing { connect_at } = self.link {
            self.link = Link::Closed { connect_at };
        }
    }

    /// Where the bytes that come next go.
    pub fn space(&mut self) -> &mut [u8] {
        if self.phase == Phase::Nfs { self.calls.space() } else { self.setup.space() }
    }

    /// So many bytes of the space are filled; whether calls are finished or the root is known now.
    pub fn handle_filled(&mut self, bytes: usize, now: Time) -> bool {
        self.heard_at = now;
        if self.phase == Phase::Nfs {
            self.calls.filled(bytes);
            return self.finish_calls(now);
        }
        self.setup.filled(bytes);
        match self.set_up() {
            Ok(false) => false,
            Ok(true) => {
                self.close(now, now);
                true
            }
            Err(trouble) => {
                self.fail(trouble, now);
                true
            }
        }
    }

    /// Bytes to be written.
    pub fn output(&self) -> &[u8] {
        if self.is_open() { &self.output[self.written..] } else { &[] }
    }

    /// So many of them are written.
    pub fn handle_wrote(&mut self, bytes: usize) {
        self.written += bytes;
        assert!(self.written <= self.output.len(), "no more than there was");
        // also while more is always added, so that what is written does not stay
        if self.written * 2 >= self.output.len() {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// When [`handle_time`](Session::handle_time) is next to be called.
    pub fn deadline(&self) -> Option<Time> {
        let link = match self.link {
            Link::Closing { .. } => Some(Time::ZERO),
            Link::Closed { connect_at } => Some(connect_at),
            Link::Connecting { until } => Some(until),
            Link::Open if self.awaits_reply() => Some(self.heard_at + self.silence_span()),
            Link::Open => None,
        };
        link.into_iter().chain(self.begun.values().map(|call| call.deadline)).min()
    }

    /// Times calls out and gives silent connections up; whether any call has finished.
    pub fn handle_time(&mut self, now: Time) -> bool {
        let is_silent = match self.link {
            Link::Connecting { until } => until <= now,
            Link::Open => self.awaits_reply() && self.heard_at + self.silence_span() <= now,
            Link::Closed { .. } | Link::Closing { .. } => false,
        };
        if is_silent {
            self.silences += 1;
            self.fail(Trouble::Silent, now);
        }
        let late = |call: &Begun| call.deadline <= now;
        let all: Vec<(u32, Begun)> = self
            .begun
            .iter()
            .filter(|(_, call)| late(call))
            .map(|(xid, call)| (*xid, *call))
            .collect();
        for (xid, call) in &all {
            self.begun.remove(xid);
            self.calls.forget(*xid);
            self.finished.insert(*xid, Finished::TimedOut);
            if self.heard_at <= call.at || self.link != Link::Open {
                self.note_away(Trouble::Silent, call.at);
            }
        }
        !all.is_empty()
    }

    /// Whether calls can be sent.
    fn is_ready(&self) -> bool {
        self.is_open() && self.phase == Phase::Nfs
    }

    fn rest_ends(&mut self, now: Time) {
        if !self.awaits_reply() {
            self.heard_at = now;
        }
    }

    fn silence_span(&self) -> Duration {
        doubled(SILENCE_SPAN, self.silences, SILENCE_SPAN_MAX)
    }

    fn next_phase(&self) -> Phase {
        let mounts = self.root.is_none();
        match (self.nfs_port, self.mount_port) {
            (None, _) => Phase::Ports,
            (_, None) if mounts => Phase::Ports,
            _ if mounts => Phase::Mount,
            _ => Phase::Nfs,
        }
    }

    fn port(&self) -> u16 {
        let port = match self.phase {
            Phase::Ports => Some(self.target.portmap_port),
            Phase::Mount => self.mount_port,
            Phase::Nfs => self.nfs_port,
        };
        port.expect("a phase begins when its port is known")
    }

    /// The programs whose ports are to be asked, one after the other.
    fn unknown_port(&self) -> Option<(u32, u32)> {
        if self.nfs_port.is_none() {
            return Some((v3::PROGRAM, v3::VERSION));
        }
        self.mount_port.is_none().then_some((mount::PROGRAM, mount::VERSION))
    }

    fn ask_ports(&mut self) {
        if let Some((program, version)) = self.unknown_port() {
            let wanted = Mapping { program, version, protocol: portmap::TCP, port: 0 };
            self.setup.call(&Request::Port(wanted), &mut self.output);
        }
    }

    /// Takes the replies of the port mapper and of MOUNT; whether this phase is over.
    fn set_up(&mut self) -> Result<bool, Trouble> {
        while let Some(reply) = self.setup.poll_reply()? {
            if reply.called != Called::Port {
                self.root = Some(mounted(&reply)?);
                return Ok(true);
            }
            let port: u32 = reply.decoded()?;
            let (program, _) = self.unknown_port().expect("an unknown port was asked for");
            let port = u16::try_from(port).ok().filter(|port| *port != 0);
            let port = Some(port.ok_or(Trouble::NoProgram(program))?);
            let is_nfs = program == v3::PROGRAM;
            *(if is_nfs { &mut self.nfs_port } else { &mut self.mount_port }) = port;
            if self.next_phase() != Phase::Ports {
                return Ok(true);
            }
            self.ask_ports();
        }
        Ok(false)
    }

    /// Takes the replies to calls; whether any has finished.
    fn finish_calls(&mut self, now: Time) -> bool {
        let mut any = false;
        loop {
            let (xid, finished) = match self.calls.poll_reply() {
                Ok(Some(reply)) => (reply.xid, finished(&reply)),
                Ok(None) => return any,
                Err(error) => {
                    self.fail(error.into(), now);
                    return any;
                }
            };
            self.away = None;
            (self.failures, self.silences) = (0, 0);
            if self.probe == Some(xid) {
                self.probe = None;
            } else if self.begun.remove(&xid).is_some() {
                self.finished.insert(xid, finished);
                any = true;
            }
        }
    }

    fn note_away(&mut self, trouble: Trouble, since: Time) {
        match &mut self.away {
            Some(away) => away.trouble = trouble,
            None => self.away = Some(Away { since, trouble }),
        }
    }

    /// The connection is of no use.
    fn fail(&mut self, trouble: Trouble, now: Time) {
        let since = if trouble == Trouble::Silent { self.heard_at } else { now };
        let had_calls = self.phase == Phase::Nfs && self.link == Link::Open;
        self.reconnects += u64::from(had_calls);
        // A server that closes an idle connection is not away.
        let is_first = had_calls && self.failures == 0 && matches!(trouble, Trouble::Lost(_));
        let pause = if is_first {
            Duration::ZERO
        } else {
            self.note_away(trouble, since);
            doubled(CONNECT_PAUSE, self.failures, CONNECT_PAUSE_MAX)
        };
        self.failures += 1;
        if self.failures.is_multiple_of(FAILURES_BEFORE_ASKING) {
            (self.nfs_port, self.mount_port) = (self.target.nfs_port, self.target.mount_port);
        }
        self.close(now + pause, now);
    }

    fn close(&mut self, connect_at: Time, now: Time) {
        if let Some(probe) = self.probe.take() {
            self.calls.forget(probe);
        }
        self.heard_at = now;
        self.calls.reconnected();
        self.setup = Client::new(self.caller.clone(), self.setup.last_xid);
        self.output.clear();
        self.written = 0;
        self.link = match self.link {
            Link::Closed { .. } => Link::Closed { connect_at },
            _ => Link::Closing { connect_at },
        };
    }
}

/// `span`, doubled so often, and `max` at most.
fn doubled(span: Duration, times: u32, max: Duration) -> Duration {
    span.saturating_mul(1 << times.min(16)).min(max)
}

fn mounted(reply: &Reply<'_>) -> Result<Vec<u8>, Trouble> {
    match reply.decoded()? {
        MntResult::Ok(handle, _) => Ok(handle.0.to_vec()),
        MntResult::Err(status) => Err(Trouble::Refused(status)),
    }
}

fn finished(reply: &Reply<'_>) -> Finished {
    match (reply.called, reply.results()) {
        (Called::Nfs(procedure), Ok(results)) => Finished::Results(procedure, results.to_vec()),
        (_, Ok(_)) => Finished::Refused(ReplyError::Garbage),
        (_, Err(error)) => Finished::Refused(error),
    }
}
