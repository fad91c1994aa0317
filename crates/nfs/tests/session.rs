//! A session with a foreign server, whose replies are scripted and whose clock is a number.

use nfs::client::session::{Action, Away, Busy, Finished, Session, Target, Trouble};
use nfs::client::{Caller, Request};
use nfs::limits::*;
use nfs::mount::{self, MntResult, MountHandle};
use nfs::portmap::{self, Mapping};
use nfs::record::{Outgoing, begin};
use nfs::rpc::{Acceptance, Call, Credential, Reply};
use nfs::v3::{self, Args, Handle, Outcome, Results, Status};
use nfs::xdr::{decoded, encoded};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::Time;

const NFS_PORT: u16 = 2050;
const MOUNT_PORT: u16 = 2051;
const ROOT: &[u8] = b"root handle";
const PATIENCE: Duration = Duration::from_secs(10);

/// A call as the server got it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    xid: u32,
    program: u32,
    procedure: u32,
    uid: u32,
    arguments: Vec<u8>,
}

struct Rig {
    session: Session,
    now: Time,
    /// Where the session is connected to.
    connected: Option<u16>,
    nfs_port: u16,
    refusal: Option<mount::Status>,
}

fn target(nfs_port: Option<u16>, mount_port: Option<u16>) -> Target {
    let address = "192.0.2.7".parse().unwrap();
    Target { address, path: b"/export".to_vec(), nfs_port, mount_port, portmap_port: 111 }
}

fn rig(target: Target) -> Rig {
    let session = Session::new(target, Caller::default(), 7, Time::ZERO);
    Rig { session, now: Time::ZERO, connected: None, nfs_port: NFS_PORT, refusal: None }
}

fn mounted() -> Rig {
    let mut rig = rig(target(Some(NFS_PORT), Some(MOUNT_PORT)));
    rig.connect();
    rig.serve_setup();
    rig.connect();
    rig.answer_all();
    assert_eq!(rig.session.away(), None);
    rig
}

fn getattr(handle: &[u8]) -> Request<'_> {
    Args::Getattr(Handle(handle)).into()
}

/// Results that tell which file they are of.
fn attributes_of(handle: &[u8]) -> Vec<u8> {
    let status = if handle.len().is_multiple_of(2) { Status::Stale } else { Status::Acces };
    let mut out = Vec::new();
    Results::Getattr(Outcome::Err(status, ())).put(&mut out);
    out
}

fn record(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut bytes = begin(64);
    Reply::Accepted(Acceptance::Success).put(xid, &mut bytes);
    bytes.extend_from_slice(results);
    let record = Outgoing::of(bytes);
    let mark = record.head().len() as u32 | 1 << 31;
    [&mark.to_be_bytes(), record.head()].concat()
}

impl Rig {
    fn later(&mut self, span: Duration) -> bool {
        self.now = self.now + span;
        self.session.handle_time(self.now)
    }

    /// Does what the session wants of its connections; where it is connected to then.
    fn connect(&mut self) -> Option<u16> {
        while let Some(action) = self.session.poll_action(self.now) {
            self.connected = None;
            if let Action::Connect(at) = action {
                self.connected = Some(at.port());
                self.session.handle_connected(self.now);
            }
        }
        self.connected
    }

    fn lose(&mut self) {
        self.connected = None;
        self.session.handle_lost("reset", self.now);
    }

    /// Takes what the session sends.
    fn calls(&mut self) -> Vec<Got> {
        let stream = self.session.output().to_vec();
        self.session.handle_wrote(stream.len());
        let (mut rest, mut all) = (&stream[..], Vec::new());
        while let Some((mark, behind)) = rest.split_first_chunk() {
            let bytes = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
            let Call { xid, program, procedure, credential, arguments, .. } =
                Call::parse(&behind[..bytes]).unwrap();
            let Credential::System(system) = credential else { panic!("no caller") };
            let (uid, arguments) = (system.uid, arguments.to_vec());
            all.push(Got { xid, program, procedure, uid, arguments });
            rest = &behind[bytes..];
        }
        all
    }

    fn reply(&mut self, xid: u32, results: &[u8]) -> bool {
        let bytes = record(xid, results);
        self.session.space()[..bytes.len()].copy_from_slice(&bytes);
        self.session.handle_filled(bytes.len(), self.now)
    }

    fn answer(&mut self, call: &Got) -> bool {
        let results = match call.program {
            portmap::PROGRAM => {
                let asked: Mapping = decoded(&call.arguments).unwrap();
                let port = if asked.program == v3::PROGRAM { self.nfs_port } else { MOUNT_PORT };
                encoded(&u32::from(port))
            }
            mount::PROGRAM => encoded(&match self.refusal {
                Some(status) => MntResult::Err(status),
                None => MntResult::Ok(MountHandle(ROOT), vec![mount::AUTH_SYS]),
            }),
            _ if call.procedure == v3::Procedure::Null as u32 => Vec::new(),
            _ => attributes_of(decoded::<Handle<'_>>(&call.arguments).unwrap().0),
        };
        self.reply(call.xid, &results)
    }

    /// Answers what is asked; whether any call finished.
    fn answer_all(&mut self) -> bool {
        let calls = self.calls();
        calls.iter().fold(false, |any, call| self.answer(call) | any)
    }

    /// Answers ports and MOUNT, until nothing more is asked on this connection.
    fn serve_setup(&mut self) {
        while !self.session.output().is_empty() {
            self.answer_all();
        }
    }

    fn call(&mut self, handle: &[u8]) -> u32 {
        let deadline = self.now + PATIENCE;
        self.session.call(&Caller::default(), &getattr(handle), deadline, self.now).unwrap()
    }
}

#[test]
fn ports_are_asked_of_the_port_mapper_and_then_the_export_is_mounted() {
    let mut rig = rig(target(None, None));
    assert_eq!(rig.session.away().unwrap().trouble, Trouble::NotAsked);
    assert_eq!(rig.connect(), Some(111));
    rig.serve_setup();
    assert_eq!(rig.connect(), Some(MOUNT_PORT));
    rig.serve_setup();
    assert_eq!(rig.session.root(), Some(ROOT));
    assert_eq!(rig.connect(), Some(NFS_PORT));
    rig.answer_all();
    assert_eq!((rig.session.away(), rig.session.reconnects()), (None, 0));
}

#[test]
fn ports_that_are_given_are_not_asked() {
    let mut rig = rig(target(Some(4000), Some(4001)));
    assert_eq!(rig.connect(), Some(4001));
    rig.serve_setup();
    assert_eq!(rig.connect(), Some(4000));
}

#[test]
fn each_call_is_in_the_name_of_its_caller() {
    let mut rig = mounted();
    let caller = Caller { uid: 1234, ..Caller::default() };
    let deadline = rig.now + PATIENCE;
    let xid = rig.session.call(&caller, &getattr(ROOT), deadline, rig.now).unwrap();
    let calls = rig.calls();
    assert_eq!((calls[0].xid, calls[0].uid, calls.len()), (xid, 1234, 1));
    assert!(rig.answer(&calls[0]));
    let finished = rig.session.take(xid).unwrap();
    let results = finished.results().unwrap().unwrap();
    assert_eq!(results.status(), Status::Acces);
    assert_eq!(rig.session.take(xid), None, "once");
}

#[test]
fn calls_in_flight_are_retransmitted_over_the_next_connection() {
    let mut rig = mounted();
    let (one, two) = (rig.call(b"1"), rig.call(b"22"));
    let sent = rig.calls();
    rig.answer(&sent[0]);
    rig.lose();
    assert_eq!(rig.session.away(), None, "a connection may be closed");
    let three = rig.call(b"333");
    assert_eq!(rig.connect(), Some(NFS_PORT), "at once");
    let again = rig.calls();
    let numbers: Vec<u32> = again[1..].iter().map(|call| call.xid).collect();
    assert_eq!(again[0].procedure, v3::Procedure::Null as u32);
    assert_eq!((numbers, &again[1]), (vec![two, three], &sent[1]));
    again.iter().for_each(|call| {
        rig.answer(call);
    });
    for xid in [one, two, three] {
        assert!(matches!(rig.session.take(xid), Some(Finished::Results(..))));
    }
    assert_eq!((rig.session.in_flight(), rig.session.reconnects()), (0, 1));
}

#[test]
fn a_silent_server_is_away_since_it_was_heard_last() {
    let mut rig = mounted();
    rig.later(Duration::from_secs(100));
    let asked = rig.now;
    let xid = rig.call(b"1");
    rig.calls();
    assert!(rig.session.deadline().unwrap() <= asked + PATIENCE);
    assert!(rig.later(PATIENCE));
    assert_eq!(rig.session.take(xid), Some(Finished::TimedOut));
    assert_eq!(rig.session.away(), Some(&Away { since: asked, trouble: Trouble::Silent }));
    // a late reply says that it is back, and is nobody's
    assert!(!rig.reply(xid, &attributes_of(b"1")));
    let next = rig.call(b"1");
    assert!(rig.answer_all());
    assert_eq!(rig.session.away(), None);
    assert!(rig.session.take(next).is_some());
}

#[test]
fn a_silent_connection_is_replaced() {
    let mut rig = mounted();
    let deadline = rig.now + 10 * SILENCE_SPAN;
    let xid = rig.session.call(&Caller::default(), &getattr(b"1"), deadline, rig.now).unwrap();
    rig.calls();
    rig.later(SILENCE_SPAN);
    rig.later(CONNECT_PAUSE_MAX);
    assert_eq!(rig.connect(), Some(NFS_PORT));
    assert!(rig.answer_all());
    assert!(matches!(rig.session.take(xid), Some(Finished::Results(..))));
    assert_eq!(rig.session.away(), None);
}

#[test]
fn refused_exports_are_told_and_tried_again() {
    let mut rig = rig(target(Some(NFS_PORT), Some(MOUNT_PORT)));
    rig.refusal = Some(mount::Status::Acces);
    rig.connect();
    rig.serve_setup();
    assert_eq!(rig.session.away().unwrap().trouble, Trouble::Refused(mount::Status::Acces));
    assert_eq!(rig.connect(), None, "not at once");
    rig.refusal = None;
    rig.later(CONNECT_PAUSE_MAX);
    assert_eq!(rig.connect(), Some(MOUNT_PORT));
    rig.serve_setup();
    assert_eq!(rig.session.root(), Some(ROOT));
}

#[test]
fn a_program_without_a_port_is_named() {
    let mut rig = rig(target(None, None));
    rig.nfs_port = 0;
    rig.connect();
    rig.serve_setup();
    assert_eq!(rig.session.away().unwrap().trouble, Trouble::NoProgram(v3::PROGRAM));
}

#[test]
fn a_server_that_moved_to_another_port_is_found() {
    let mut rig = rig(target(None, None));
    for _ in 0..3 {
        rig.connect();
        rig.answer_all();
        rig.serve_setup();
    }
    assert_eq!(rig.session.away(), None);
    rig.nfs_port = 3333;
    for _ in 0..20 {
        match rig.connect() {
            Some(NFS_PORT) => rig.lose(),
            Some(_) => {
                rig.answer_all();
                rig.serve_setup();
            }
            None => {}
        }
        rig.later(CONNECT_PAUSE_MAX);
    }
    assert_eq!((rig.connect(), rig.session.away()), (Some(3333), None));
}

#[test]
fn calls_in_flight_are_bounded() {
    let mut rig = mounted();
    let calls: Vec<u32> = (0..SESSION_CALLS_MAX).map(|_| rig.call(b"1")).collect();
    let (now, caller) = (rig.now, Caller::default());
    let more = rig.session.call(&caller, &getattr(b"1"), now + PATIENCE, now);
    assert_eq!(more, Err(Busy));
    rig.session.give_up(calls[0]);
    rig.call(b"1");
    assert!(rig.answer_all());
    assert_eq!(rig.session.take(calls[0]), None, "it was given up");
}

#[test]
fn a_stale_root_is_mounted_again() {
    let mut rig = mounted();
    rig.session.remount(rig.now);
    assert_eq!(rig.session.root(), None);
    assert_eq!(rig.connect(), Some(MOUNT_PORT));
    rig.serve_setup();
    assert_eq!(rig.session.root(), Some(ROOT));
    assert_eq!(rig.connect(), Some(NFS_PORT));
}

#[test]
fn a_server_that_talks_nonsense_is_left() {
    let mut rig = mounted();
    rig.call(b"1");
    rig.calls();
    let nonsense = [0xff; 64];
    rig.session.space()[..64].copy_from_slice(&nonsense);
    rig.session.handle_filled(64, rig.now);
    assert!(matches!(rig.session.away().unwrap().trouble, Trouble::Stream(_)));
    rig.later(CONNECT_PAUSE_MAX);
    rig.connect();
    assert!(rig.answer_all());
}

#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Connect,
    Answer(usize),
    Lose,
    Later(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..60).prop_map(Step::Call),
        3 => Just(Step::Connect),
        4 => (0usize..8).prop_map(Step::Answer),
        1 => Just(Step::Lose),
        2 => (0u64..20_000).prop_map(Step::Later),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever happens to connections, a call finishes once, and with its own results.
    #[test]
    fn every_call_finishes_once_with_its_own_results(steps in steps()) {
        let mut rig = mounted();
        let mut open: BTreeMap<u32, usize> = BTreeMap::new();
        let mut pending: Vec<Got> = Vec::new();
        for step in steps {
            match step {
                Step::Call(bytes) if rig.session.in_flight() < SESSION_CALLS_MAX => {
                    let xid = rig.call(&vec![1; bytes]);
                    prop_assert!(open.insert(xid, bytes).is_none());
                }
                Step::Call(_) => {}
                Step::Connect => {
                    let before = rig.connected;
                    rig.connect();
                    if before.is_none() || rig.connected.is_none() {
                        pending.clear();
                    }
                }
                Step::Answer(at) => {
                    pending.extend(rig.calls());
                    if at < pending.len() && rig.connected.is_some() {
                        let call = pending.remove(at);
                        rig.answer(&call);
                    }
                }
                Step::Lose if rig.connected.is_some() => {
                    pending.clear();
                    rig.lose();
                }
                Step::Lose => {}
                Step::Later(ms) => {
                    rig.later(Duration::from_millis(ms));
                }
            }
            open.retain(|xid, bytes| match rig.session.take(*xid) {
                None => true,
                Some(Finished::TimedOut) => false,
                Some(finished) => {
                    let wanted = attributes_of(&vec![1; *bytes]);
                    assert_eq!(finished, Finished::Results(v3::Procedure::Getattr, wanted));
                    false
                }
            });
            prop_assert_eq!(open.len(), rig.session.in_flight());
        }
        rig.later(PATIENCE);
        open.retain(|xid, _| rig.session.take(*xid).is_none());
        prop_assert!(open.is_empty());
    }
}
