//! Listings of an origin whose answers are scripted, over a session without a socket.

use super::*;
use crate::limits::{NAMES_AGAIN_MAX, NAMES_ONLY_SPAN};
use nfs::client::session::{Action, Target};
use nfs::mount::{self, MntResult, MountHandle};
use nfs::rpc::{Acceptance, Call, Reply};
use nfs::v3::{
    Entry, EntryPlus, FileType, LookupOk, NfsTime, NodeNumbers, Path, Procedure, ReaddirOk,
    ReaddirplusOk,
};
use nfs::xdr::Xdr;
use rig::{Net, start};

const ROOT: &[u8] = b"root";
const PART: u64 = 300;
/// No call of a test takes so many turns.
const TURNS_MAX: usize = 10_000;

/// A directory with so many names, each the number that is its cookie too.
#[derive(Default)]
struct Script {
    names: u64,
    /// It has READDIRPLUS for parts up to this cookie; `None`: for all.
    lists_attributes_to: Option<u64>,
    plus: u64,
    plain: u64,
    look_ups: u64,
}

fn attributes() -> Fattr {
    let time = NfsTime { seconds: 1, nseconds: 0 };
    Fattr {
        kind: FileType::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 5,
        used: 0,
        rdev: NodeNumbers::default(),
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

impl Script {
    fn part(&self, cookie: u64) -> (Vec<(u64, String)>, bool) {
        let numbers = cookie + 1..=self.names.min(cookie + PART);
        (numbers.map(|number| (number, number.to_string())).collect(), self.names <= cookie + PART)
    }

    fn results(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let procedure = Procedure::of(call.procedure).unwrap();
        match Args::decode(procedure, call.arguments).unwrap() {
            Args::Null(()) => {}
            Args::Readdirplus(args) => {
                self.plus += 1;
                if self.lists_attributes_to.is_some_and(|to| args.cookie >= to) {
                    return Results::Readdirplus(Outcome::Err(Status::NotSupp, None)).put(out);
                }
                let (part, eof) = self.part(args.cookie);
                let (attributes, handle) = (Some(attributes()), Some(Handle(b"file")));
                let entries = part.iter().map(|(cookie, name)| {
                    let name = Path(name.as_bytes());
                    EntryPlus { fileid: *cookie, name, cookie: *cookie, attributes, handle }
                });
                let entries = entries.collect();
                let ok = ReaddirplusOk { attributes: None, verifier: [0; 8], entries, eof };
                Results::Readdirplus(Outcome::Ok(ok)).put(out);
            }
            Args::Readdir(args) => {
                self.plain += 1;
                let (part, eof) = self.part(args.cookie);
                let entries = part.iter().map(|(cookie, name)| Entry {
                    fileid: *cookie,
                    name: Path(name.as_bytes()),
                    cookie: *cookie,
                });
                let entries = entries.collect();
                let ok = ReaddirOk { attributes: None, verifier: [0; 8], entries, eof };
                Results::Readdir(Outcome::Ok(ok)).put(out);
            }
            Args::Lookup(_) => {
                self.look_ups += 1;
                let (object, attributes) = (Handle(b"file"), Some(attributes()));
                let ok = LookupOk { object, attributes, directory: None };
                Results::Lookup(Outcome::Ok(ok)).put(out);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A node that asks the origin.
struct Asking {
    net: Net,
    session: Rc<RefCell<Session>>,
    finished: Rc<Notify>,
    origin: Rc<Origin>,
    reports: Rc<RefCell<Vec<String>>>,
    script: Script,
}

impl Asking {
    fn new(names: u64, names_max: usize) -> Asking {
        let net = Net::new(1);
        let target = Target {
            address: "192.0.2.7".parse().unwrap(),
            path: b"/".to_vec(),
            nfs_port: Some(2049),
            mount_port: Some(2049),
            portmap_port: 111,
        };
        let session = Session::new(target, Caller::default(), 7, net.now);
        let session = Rc::new(RefCell::new(session));
        let cx = net.nodes[0].cx();
        let finished = Rc::new(Notify::new(cx));
        let reports = Rc::new(RefCell::new(Vec::new()));
        let told = reports.clone();
        let log = move |text: &str| told.borrow_mut().push(text.to_string());
        let asked = (session.clone(), finished.clone());
        let mut origin = Origin::new(cx, asked, Caller::default(), "nfs://h/".into(), log);
        origin.names_max = names_max;
        let script = Script { names, ..Script::default() };
        Asking { net, session, finished, origin: Rc::new(origin), reports, script }
    }

    fn turn(&mut self) {
        self.net.turn();
        let now = self.net.now;
        let mut session = self.session.borrow_mut();
        let mut is_finished = session.handle_time(now);
        while let Some(action) = session.poll_action(now) {
            if let Action::Connect(_) = action {
                session.handle_connected(now);
            }
        }
        let calls = session.output().to_vec();
        session.handle_wrote(calls.len());
        for reply in replies(&mut self.script, &calls) {
            let mut rest = &reply[..];
            while !rest.is_empty() {
                let space = session.space();
                let count = space.len().min(rest.len());
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                is_finished |= session.handle_filled(count, now);
            }
        }
        drop(session);
        if is_finished {
            self.finished.notify_all();
        }
    }

    fn list(&mut self) -> Result<usize, Errno> {
        let origin = self.origin.clone();
        let task = async move { origin.list(ROOT).await.map(|listed| listed.len()) };
        let listed = start(self.net.nodes[0].cx(), task);
        for _ in 0..TURNS_MAX {
            if let Some(listed) = listed.borrow_mut().take() {
                return listed;
            }
            self.turn();
        }
        panic!("it does not end");
    }
}

/// The replies to records of calls.
fn replies(script: &mut Script, mut calls: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((mark, behind)) = calls.split_first_chunk() {
        let (record, rest) = behind.split_at((u32::from_be_bytes(*mark) & !(1 << 31)) as usize);
        let call = Call::parse(record).unwrap();
        let mut reply = vec![0; 4];
        Reply::Accepted(Acceptance::Success).put(call.xid, &mut reply);
        match call.program {
            mount::PROGRAM => {
                MntResult::Ok(MountHandle(ROOT), vec![mount::AUTH_SYS]).put(&mut reply)
            }
            _ => script.results(&call, &mut reply),
        }
        let mark = (reply.len() as u32 - 4 | 1 << 31).to_be_bytes();
        reply[..4].copy_from_slice(&mark);
        all.push(reply);
        calls = rest;
    }
    all
}

#[test]
fn a_directory_with_too_many_names_is_an_error_that_is_reported() {
    const NAMES_MAX: u64 = 10 * PART;
    for lists_attributes_to in [None, Some(0)] {
        let mut asking = Asking::new(u64::MAX, NAMES_MAX as usize);
        asking.script.lists_attributes_to = lists_attributes_to;
        assert_eq!(asking.list(), Err(Errno::EFBIG));
        let parts = asking.script.plus.max(asking.script.plain);
        assert!(parts <= (NAMES_MAX + NAMES_AGAIN_MAX as u64) / PART + 1, "{parts} parts");
        let report = "nfs://h/: a directory has more than 3000 names and cannot be shown";
        assert_eq!(asking.reports.take(), [report]);
        // once enough of them are gone
        asking.script.names = NAMES_MAX;
        assert_eq!(asking.list(), Ok(NAMES_MAX as usize));
    }
}

/// An origin that was upgraded.
#[test]
fn an_origin_that_had_no_readdirplus_is_asked_for_it_again_after_a_while() {
    let mut asking = Asking::new(2 * PART, 1 << 20);
    asking.script.lists_attributes_to = Some(0);
    for _ in 0..2 {
        assert_eq!(asking.list(), Ok(600));
        assert_eq!((asking.script.plus, asking.script.plain % 2), (1, 0), "it is remembered");
    }
    assert_eq!(asking.script.look_ups, 1_200);
    asking.script.lists_attributes_to = None;
    asking.net.now = asking.net.now + NAMES_ONLY_SPAN;
    assert_eq!(asking.list(), Ok(600));
    assert_eq!(asking.list(), Ok(600));
    assert_eq!((asking.script.plus, asking.script.plain), (1 + 4, 4));
    assert_eq!(asking.script.look_ups, 1_200);
}

/// One that was restarted, or mounted again because its root was stale.
#[test]
fn an_origin_that_had_no_readdirplus_is_asked_for_it_over_its_next_connection() {
    let mut asking = Asking::new(PART, 1 << 20);
    asking.script.lists_attributes_to = Some(0);
    assert_eq!(asking.list(), Ok(300));
    asking.session.borrow_mut().handle_lost("reset", asking.net.now);
    assert_eq!(asking.list(), Ok(300));
    assert_eq!(asking.script.plus, 2, "it has none still");
    asking.script.lists_attributes_to = None;
    assert_eq!(asking.list(), Ok(300));
    assert_eq!(asking.script.plus, 2);
    asking.origin.remount();
    assert_eq!(asking.list(), Ok(300));
    assert_eq!((asking.script.plus, asking.script.plain), (3, 3));
}

/// One that was replaced by an older one in the middle of a listing.
#[test]
fn a_listing_is_of_one_procedure_from_its_beginning_on() {
    let mut asking = Asking::new(3 * PART, 1 << 20);
    asking.script.lists_attributes_to = Some(PART);
    assert_eq!(asking.list(), Ok(900));
    assert_eq!((asking.script.plus, asking.script.plain), (2, 3));
    assert_eq!(asking.script.look_ups, 900);
}
