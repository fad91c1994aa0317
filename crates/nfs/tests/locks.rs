//! Locks over NLM and NSM: a front, clients as datagrams, and a file manager that knows locks and who waits for them.

use crate::memory::Memory;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use endpoint::{Frames, HeapRegion};
use nfs::exports;
use nfs::front::Front;
use nfs::handle::{Key, Named};
use nfs::limits::*;
use nfs::locks::{Beginning, Kept, Monitored};
use nfs::nlm::{self, *};
use nfs::nsm;
use nfs::portmap::{self, Mapping, UDP};
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::server::{Origin, Port, Server};
use nfs::xdr::{decoded, encoded};
use node::rings::{Caller, FileDone, FileOp, FileReply, FileRequest, Lock, LockKind};
use proptest::prelude::*;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, Time, VolumeId, Wall};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));
const KEY: Key = Key([3; 16]);
const VOLUME: VolumeId = VolumeId(4);
const EXPORTS: &str = "/ 10.0.0.0/16(rw,no_root_squash) 10.1.0.0/16(ro,no_root_squash)";
const ATTRIBUTE: &[u8] = b"trusted.nfs3.clients.test";
/// Ports of a client's programs.
const LOCKD: u16 = 4001;
const STATD: u16 = 4002;

fn address(client: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, client).into()
}

/// A file manager that all of the volume share.
#[derive(Default)]
struct Manager {
    held: Vec<(FileId, u64, Lock)>,
    waiting: Vec<(u64, FileId, u64, Lock)>,
    asked: usize,
}

impl Manager {
    fn conflict(&self, file: FileId, owner: u64, lock: &Lock) -> Option<Lock> {
        let found = self.held.iter().find(|(its, by, held)| {
            let exclusive = held.kind == LockKind::Write || lock.kind == LockKind::Write;
            let overlap = held.start <= lock.end && lock.start <= held.end;
            *its == file && *by != owner && exclusive && overlap
        });
        found.map(|(.., held)| *held)
    }

    fn set(&mut self, file: FileId, owner: u64, lock: Lock) -> Result<(), Errno> {
        if lock.kind != LockKind::Unlock && self.conflict(file, owner, &lock).is_some() {
            return Err(Errno::EAGAIN);
        }
        let mut all = Vec::new();
        for (its, by, held) in self.held.drain(..) {
            let apart = held.end < lock.start || held.start > lock.end;
            if (its, by) != (file, owner) || apart {
                all.push((its, by, held));
                continue;
            }
            if held.start < lock.start {
                all.push((its, by, Lock { end: lock.start - 1, ..held }));
            }
            if held.end > lock.end {
                all.push((its, by, Lock { start: lock.end + 1, ..held }));
            }
        }
        self.held = all;
        if lock.kind != LockKind::Unlock {
            self.held.push((file, owner, lock));
        }
        Ok(())
    }
}

/// A call to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Called {
    client: IpAddr,
    of: (u32, u32),
    xid: u32,
    arguments: Vec<u8>,
}

struct World {
    front: Front,
    server: Rc<Server>,
    memory: Memory,
    manager: Manager,
    now: Time,
    xid: u32,
    /// Values of the attribute, oldest first.
    lists: Vec<Vec<u8>>,
    synced: usize,
    reclaimed: usize,
    /// Ports that a client's port mapper tells.
    mapped: bool,
    called: Vec<Called>,
    replies: Vec<(u32, Vec<u8>)>,
    /// Operations are kept, to be answered later.
    holds: bool,
    held_back: Vec<FileRequest>,
}

impl World {
    fn new() -> World {
        World::after(Kept { state: 3, clients: Vec::new() }, Manager::default())
    }

    /// After a restart, with what is on stable storage and at the manager.
    fn after(kept: Kept, manager: Manager) -> World {
        let frames = Frames::new(HeapRegion::new(512));
        let exports = exports::parse(EXPORTS).unwrap();
        let server = Rc::new(Server::new(VOLUME, KEY, exports, *b"started1"));
        server.begin_locks(Beginning { attribute: Some(ATTRIBUTE.into()), kept });
        let front = Front::new(server.clone(), frames.clone());
        let mut world = World {
            front,
            server,
            memory: Memory::new(frames),
            manager,
            now: Time(1),
            xid: 100,
            lists: Vec::new(),
            synced: 0,
            reclaimed: 0,
            mapped: true,
            called: Vec::new(),
            replies: Vec::new(),
            holds: false,
            held_back: Vec::new(),
        };
        world.make(b"file", 0o644);
        world.pass(Duration::ZERO);
        world
    }

    fn make(&mut self, name: &[u8], mode: u32) -> FileId {
        let (parent, name) = (FileId::ROOT, name.into());
        let op = FileOp::Create { parent, name, mode, flags: 0 };
        let made = self.memory.serve(&Caller::default(), op);
        let Ok(FileReply::Created { attr, .. }) = made else { panic!("{made:?}") };
        attr.file
    }

    fn handle(&self, file: FileId) -> Vec<u8> {
        let export = self.server.exports.iter().next().unwrap().number();
        Named { volume: VOLUME, file, generation: 0, export }.encode(&KEY).to_vec()
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.front.set_now(self.now, Wall::default());
        self.front.look_after();
        self.run();
    }

    /// Serves until nothing is asked and nothing is to be sent.
    fn run(&mut self) {
        loop {
            if let Some(request) = self.front.poll_request() {
                self.serve(request);
            } else if let Some(datagram) = self.front.poll_datagram() {
                self.receive(datagram.origin.from, datagram.bytes);
            } else {
                return;
            }
        }
    }

    fn release_held(&mut self) {
        self.holds = false;
        for request in std::mem::take(&mut self.held_back) {
            self.serve(request);
        }
        self.run();
    }

    fn serve(&mut self, request: FileRequest) {
        if self.holds && !matches!(request.op, FileOp::Interrupt { .. }) {
            self.held_back.push(request);
            return;
        }
        let FileRequest { front, caller, op } = request;
        let result = match op {
            FileOp::SetLock { file, owner, lock, wait, whole_file, .. } => {
                assert!(!whole_file);
                self.manager.asked += 1;
                match self.manager.set(file, owner, lock) {
                    Err(Errno::EAGAIN) if wait => {
                        self.manager.waiting.push((front, file, owner, lock));
                        return;
                    }
                    result => result.map(|()| FileReply::Done),
                }
            }
            FileOp::ReclaimLock { file, owner, lock } => {
                self.reclaimed += 1;
                self.manager.set(file, owner, lock).map(|()| FileReply::Done)
            }
            FileOp::GetLock { file, owner, lock, .. } => {
                let found = self.manager.conflict(file, owner, &lock);
                Ok(FileReply::Lock(found.unwrap_or(Lock { kind: LockKind::Unlock, ..lock })))
            }
            FileOp::Interrupt { front: of } => {
                let at = self.manager.waiting.iter().position(|(its, ..)| *its == of);
                self.front.done(FileDone { front, result: Ok(FileReply::Done) });
                if let Some(at) = at {
                    self.manager.waiting.remove(at);
                    self.front.done(FileDone { front: of, result: Err(Errno::EINTR) });
                }
                return;
            }
            FileOp::SetXattr { file, name, value, .. } => {
                assert_eq!((file, &name[..], caller.uid), (FileId::ROOT, ATTRIBUTE, 0));
                self.lists.push(value.to_vec());
                Ok(FileReply::Done)
            }
            FileOp::FsyncDirectory { .. } => {
                self.synced = self.lists.len();
                Ok(FileReply::Done)
            }
            op => self.memory.serve(&caller, op),
        };
        self.front.done(FileDone { front, result });
        self.give_waiting();
    }

    /// The line of waiting locks moves on.
    fn give_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.manager.waiting);
        for (front, file, owner, lock) in waiting {
            match self.manager.set(file, owner, lock) {
                Ok(()) => self.front.done(FileDone { front, result: Ok(FileReply::Done) }),
                Err(_) => self.manager.waiting.push((front, file, owner, lock)),
            }
        }
    }

    /// A datagram to a client: its port mapper answers; other calls are noted.
    fn receive(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if nfs::rpc::is_reply(&bytes) {
            let (xid, reply, results) = Reply::parse(&bytes).unwrap();
            assert_eq!(reply, Reply::Accepted(Acceptance::Success));
            self.replies.push((xid, results.to_vec()));
            return;
        }
        let call = Call::parse(&bytes).unwrap();
        if to.port() != portmap::PORT {
            let (client, of, xid) = (to.ip(), (call.program, call.procedure), call.xid);
            let wanted = if call.program == nlm::PROGRAM { LOCKD } else { STATD };
            assert_eq!(to.port(), wanted);
            let arguments = call.arguments.to_vec();
            self.called.push(Called { client, of, xid, arguments });
            return;
        }
        let asked: Mapping = decoded(call.arguments).unwrap();
        assert_eq!((asked.protocol, call.procedure), (UDP, portmap::version2::GETPORT));
        let port = if asked.program == nlm::PROGRAM { LOCKD } else { STATD };
        if self.mapped {
            self.reply(to, call.xid, &encoded(&u32::from(port)));
        }
    }

    fn reply(&mut self, from: SocketAddr, xid: u32, results: &[u8]) {
        let mut bytes = Vec::new();
        Reply::Accepted(Acceptance::Success).put(xid, &mut bytes);
        bytes.extend_from_slice(results);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        self.front.datagram(origin, &bytes);
    }

    /// The client answers what it was called for.
    fn answer(&mut self, called: &Called, results: &[u8]) {
        self.reply(SocketAddr::new(called.client, LOCKD), called.xid, results);
        self.run();
    }

    fn send(&mut self, client: IpAddr, of: (u32, u32, u32), arguments: &[u8], xid: u32) {
        let (program, version, procedure) = of;
        let credential = Credential::System(System::default());
        let mut bytes = Vec::new();
        Call { xid, program, version, procedure, credential, arguments }.put(&mut bytes);
        let from = SocketAddr::new(client, 700);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        self.front.datagram(origin, &bytes);
        self.run();
    }

    fn taken_reply(&mut self, xid: u32) -> Option<Vec<u8>> {
        let at = self.replies.iter().position(|(its, _)| *its == xid)?;
        Some(self.replies.remove(at).1)
    }

    fn call(&mut self, client: IpAddr, of: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        self.send(client, of, arguments, self.xid);
        self.taken_reply(self.xid).expect("an answer")
    }

    fn nlm(&mut self, who: &Who, procedure: Procedure, args: Args<'_>) -> Vec<u8> {
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        self.call(who.address, (nlm::PROGRAM, nlm::VERSION, procedure as u32), &arguments)
    }

    fn status(&mut self, who: &Who, procedure: Procedure, args: Args<'_>) -> Status {
        let results = self.nlm(who, procedure, args);
        decoded::<Answer<'_>>(&results).unwrap().status
    }

    fn lock(&mut self, who: &Who, file: FileId, want: Want) -> Status {
        let handle = self.handle(file);
        let args = who.lock_args(&handle, want);
        self.status(who, Procedure::Lock, Args::Lock(args))
    }

    fn unlock(&mut self, who: &Who, file: FileId, offset: u64, bytes: u64) -> Status {
        let handle = self.handle(file);
        let lock = who.lock(&handle, offset, bytes);
        let cookie = NetObject(b"u");
        self.status(who, Procedure::Unlock, Args::Unlock(UnlockArgs { cookie, lock }))
    }

    fn cancel(&mut self, who: &Who, file: FileId, want: Want) -> Status {
        let handle = self.handle(file);
        let lock = who.lock(&handle, want.offset, want.bytes);
        let (cookie, exclusive, block) = (NetObject(b"c"), want.exclusive, true);
        let args = CancelArgs { cookie, block, exclusive, lock };
        self.status(who, Procedure::Cancel, Args::Cancel(args))
    }

    /// The holder that is in the way.
    fn test(&mut self, who: &Who, file: FileId, want: Want) -> Option<(bool, i32, Vec<u8>)> {
        let handle = self.handle(file);
        let lock = who.lock(&handle, want.offset, want.bytes);
        let args = TestArgs { cookie: NetObject(b"t"), exclusive: want.exclusive, lock };
        let results = self.nlm(who, Procedure::Test, Args::Test(args));
        match decoded::<TestAnswer<'_>>(&results).unwrap().outcome {
            Ok(Status::Granted) => None,
            Ok(status) => panic!("{status:?}"),
            Err(holder) => Some((holder.exclusive, holder.process, holder.owner.0.to_vec())),
        }
    }

    fn notify(&mut self, client: IpAddr, name: &[u8], state: i32) {
        let notice = nsm::Notice { host: nsm::Host(name), state };
        let of = (nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify as u32);
        assert!(self.call(client, of, &encoded(&notice)).is_empty());
    }

    /// Calls that clients got since the last time.
    fn calls(&mut self) -> Vec<Called> {
        std::mem::take(&mut self.called)
    }

    fn kept(&self) -> Kept {
        Kept::decode(&self.lists[self.synced - 1]).unwrap()
    }

    /// Invariants of a front between two calls.
    fn check(&self) {
        let locks = self.server.locks().borrow();
        let noted = locks.holdings().filter(|holding| !holding.waits).count();
        assert_eq!(noted, locks.held());
    }
}

/// An owner of locks.
#[derive(Clone, Copy, Debug)]
struct Who {
    address: IpAddr,
    name: &'static [u8],
    owner: &'static [u8],
    process: i32,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    offset: u64,
    bytes: u64,
    exclusive: bool,
    block: bool,
    reclaim: bool,
}

/// Exclusively, all bytes.
const ALL: Want = Want { offset: 0, bytes: 0, exclusive: true, block: false, reclaim: false };

fn who(client: u8, process: i32) -> Who {
    Who { address: address(client), name: b"client", owner: b"owner", process }
}

impl Who {
    fn lock<'a>(&self, handle: &'a [u8], offset: u64, bytes: u64) -> NlmLock<'a> {
        let (host, owner) = (Host(self.name), NetObject(self.owner));
        NlmLock { host, handle: NetObject(handle), owner, process: self.process, offset, bytes }
    }

    fn lock_args<'a>(&self, handle: &'a [u8], want: Want) -> LockArgs<'a> {
        let lock = self.lock(handle, want.offset, want.bytes);
        let Want { block, exclusive, reclaim, .. } = want;
        LockArgs { cookie: NetObject(b"cookie"), block, exclusive, lock, reclaim, state: 11 }
    }
}

const FILE: FileId = FileId(2);
const GRANTED: (u32, u32) = (nlm::PROGRAM, Procedure::Granted as u32);
const NOTIFY: (u32, u32) = (nsm::PROGRAM, nsm::Procedure::Notify as u32);

fn answered(status: Status) -> Vec<u8> {
    encoded(&Answer { cookie: NetObject(b"cookie"), status })
}

#[test]
fn no_bytes_are_all_to_the_end() {
    let lock = who(1, 7).lock(b"file", 5, 0);
    let wanted = Lock { start: 5, end: u64::MAX, kind: LockKind::Write, pid: 7 };
    assert_eq!(lock.to_lock(LockKind::Write), Ok(wanted));
    let holder = Holder::of(&wanted);
    assert_eq!((holder.exclusive, holder.offset, holder.bytes), (true, 5, 0));
    assert_eq!(span(0, u64::MAX), (0, 0));
}

#[test]
fn a_range_behind_the_last_byte_is_too_big() {
    let mut world = World::new();
    let lock = who(1, 7).lock(b"file", u64::MAX, 2);
    assert_eq!(lock.to_lock(LockKind::Read), Err(Status::Fbig));
    assert_eq!(range(u64::MAX, 1), Some((u64::MAX, u64::MAX)));
    let behind = Want { offset: u64::MAX, bytes: 2, ..ALL };
    assert_eq!(world.lock(&who(1, 7), FILE, behind), Status::Fbig);
}

#[test]
fn owners_exclude_each_other_by_machine_name_process_and_owner() {
    let mut world = World::new();
    let one = who(1, 7);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted, "its own");
    for other in
        [who(2, 7), who(1, 8), Who { owner: b"other", ..one }, Who { name: b"elsewhere", ..one }]
    {
        assert_eq!(world.lock(&other, FILE, ALL), Status::Denied, "{other:?}");
        assert_eq!(world.test(&other, FILE, ALL), Some((true, 7, b"owner".to_vec())));
        assert_eq!(world.unlock(&other, FILE, 0, 0), Status::Granted, "it has none");
    }
    assert_eq!(world.test(&one, FILE, ALL), None);
    assert_eq!(world.lock(&who(2, 7), FileId::ROOT, ALL), Status::Granted, "another file");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&who(2, 7), FILE, ALL), Status::Granted);
    world.check();
}

#[test]
fn parts_of_a_file_and_shared_locks_go_beside_each_other() {
    let mut world = World::new();
    let part = |offset, bytes, exclusive| Want { offset, bytes, exclusive, ..ALL };
    let (one, other) = (who(1, 1), who(2, 2));
    assert_eq!(world.lock(&one, FILE, part(0, 10, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(10, 10, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(9, 1, false)), Status::Denied);
    assert_eq!(world.unlock(&one, FILE, 5, 5), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(5, 5, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(4, 1, true)), Status::Denied);
    assert_eq!(world.lock(&one, FILE, part(0, 5, false)), Status::Granted, "less than it had");
    assert_eq!(world.lock(&other, FILE, part(0, 5, false)), Status::Granted);
    assert_eq!(world.lock(&one, FILE, part(0, 5, true)), Status::Denied);
    assert_eq!(world.server.locks().borrow().held(), 3);
    world.check();
    for who in [one, other] {
        assert_eq!(world.unlock(&who, FILE, 0, 0), Status::Granted);
    }
    let locks = world.server.locks().borrow();
    assert_eq!((locks.held(), world.manager.held.len()), (0, 0));
}

#[test]
fn a_release_that_leaves_nothing_is_one_of_the_whole_file() {
    let mut world = World::new();
    let part = Want { offset: 100, bytes: 10, ..ALL };
    assert_eq!(world.lock(&who(1, 1), FILE, part), Status::Granted);
    world.holds = true;
    let handle = world.handle(FILE);
    let lock = who(1, 1).lock(&handle, 100, 10);
    let arguments = encoded(&UnlockArgs { cookie: NetObject(b""), lock });
    world.send(address(1), (nlm::PROGRAM, nlm::VERSION, 4), &arguments, 7);
    let asked = &world.held_back[0].op;
    let FileOp::SetLock { lock, .. } = asked else { panic!("{asked:?}") };
    assert_eq!((lock.start, lock.end, lock.kind), (0, u64::MAX, LockKind::Unlock));
    world.release_held();
    assert!(world.taken_reply(7).is_some());
}

#[test]
fn exports_decide_who_may_lock() {
    let mut world = World::new();
    let outside = Who { address: Ipv4Addr::new(10, 9, 0, 1).into(), ..who(1, 1) };
    assert_eq!(world.lock(&outside, FILE, ALL), Status::StaleHandle);
    let reader = Who { address: Ipv4Addr::new(10, 1, 0, 1).into(), ..who(1, 1) };
    assert_eq!(world.lock(&reader, FILE, ALL), Status::Rofs);
    let shared = Want { exclusive: false, ..ALL };
    assert_eq!(world.lock(&reader, FILE, shared), Status::Granted);
    let args = who(1, 1).lock_args(b"no handle of ours", ALL);
    let status = world.status(&who(1, 1), Procedure::Lock, Args::Lock(args));
    assert_eq!(status, Status::StaleHandle);
    assert_eq!(world.lock(&who(1, 1), FileId(77), ALL), Status::StaleHandle);
}

#[test]
fn a_waiting_lock_is_granted_by_a_call_that_is_repeated_until_it_is_answered() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let waits = Want { block: true, bytes: 9, ..ALL };
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked, "asked again, it waits once");
    assert_eq!(world.manager.waiting.len(), 1);
    assert!(world.calls().is_empty());
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let calls = world.calls();
    assert_eq!((calls.len(), calls[0].client, calls[0].of), (1, address(2), GRANTED));
    let handle = world.handle(FILE);
    let args: TestArgs<'_> = decoded(&calls[0].arguments).unwrap();
    assert_eq!(args.lock, other.lock(&handle, 0, 9), "as it was asked for");
    assert_eq!((args.exclusive, args.cookie), (true, NetObject(b"cookie")));
    // it is lost some times, and the client restarts its lock manager at another port
    for _ in 0..4 {
        world.pass(CALL_PAUSE_MAX);
    }
    let again = world.calls();
    assert!(again.iter().all(|call| call.of == GRANTED) && again.len() >= 3);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Denied, "it is the other's");
    world.answer(again.last().unwrap(), &answered(Status::Granted));
    world.pass(CALL_PAUSE_MAX);
    assert!(world.calls().is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.unlock(&other, FILE, 0, 9), Status::Granted);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.check();
}

/// A client whose process was killed meanwhile has no use for the lock.
#[test]
fn a_granted_lock_that_the_client_refuses_is_released_and_what_it_had_before_is_not() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let shared = Want { exclusive: false, bytes: 10, ..ALL };
    let waits = Want { block: true, bytes: 5, ..ALL };
    assert_eq!(world.lock(&one, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&other, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let call = world.calls().pop().unwrap();
    world.answer(&call, &answered(Status::Denied));
    assert_eq!(world.lock(&one, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&one, FILE, Want { exclusive: true, ..shared }), Status::Denied);
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    world.check();
}

#[test]
fn a_reply_from_another_address_or_with_another_number_grants_nothing() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&who(2, 2), FILE, Want { block: true, ..ALL }), Status::Blocked);
    assert_eq!(world.unlock(&who(1, 1), FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let call = world.calls().pop().unwrap();
    let forged = Called { client: address(9), ..call.clone() };
    world.answer(&forged, &answered(Status::Denied));
    let other = Called { xid: call.xid.wrapping_add(1), ..call.clone() };
    world.answer(&other, &answered(Status::Denied));
    assert_eq!(world.server.locks().borrow().waiting(), 1);
    // an answer that is none is as good as none
    world.answer(&call, b"abc");
    world.pass(LOCK_RETRY_SPAN);
    let call = world.calls().pop().unwrap();
    world.answer(&call, &answered(Status::Granted));
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Denied);
}

#[test]
fn a_cancelled_wait_ends_and_takes_nothing() {
    let mut world = World::new();
    let (one, other, waits) = (who(1, 1), who(2, 2), Want { block: true, ..ALL });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted);
    world.pass(LOOK_SPAN);
    assert!(world.manager.waiting.is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted, "as often as one likes");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(LOOK_SPAN);
    assert!(world.calls().is_empty());
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
}

/// The lock may be had in the moment in which it is given up.
#[test]
fn a_lock_that_is_had_when_its_wait_was_cancelled_is_released() {
    let mut world = World::new();
    let (one, other, waits) = (who(1, 1), who(2, 2), Want { block: true, ..ALL });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.lock(&other, FILE, waits);
    // the manager gives it before it hears of the interrupt
    let (front, file, owner, lock) = world.manager.waiting.pop().unwrap();
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted);
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.manager.set(file, owner, lock).unwrap();
    world.front.done(FileDone { front, result: Ok(FileReply::Done) });
    world.run();
    assert!(world.manager.held.is_empty(), "{:?}", world.manager.held);
    assert!(world.calls().is_empty());
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.check();
}

#[test]
fn duplicates_are_not_executed_again() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let handle = world.handle(FILE);
    let lock = encoded(&one.lock_args(&handle, ALL));
    let of = |procedure: Procedure| (nlm::PROGRAM, nlm::VERSION, procedure as u32);
    world.send(address(1), of(Procedure::Lock), &lock, 7);
    assert_eq!(world.taken_reply(7), Some(answered(Status::Granted)));
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Granted);
    assert_eq!(world.unlock(&other, FILE, 0, 0), Status::Granted);
    world.send(address(1), of(Procedure::Lock), &lock, 7);
    assert_eq!(world.taken_reply(7), Some(answered(Status::Granted)), "the first reply");
    assert!(world.manager.held.is_empty(), "and no lock");
    // a number that the client chose may be so long that its reply is not kept
    let long = [b'c'; LOCK_OBJECT_BYTES_MAX];
    let args = LockArgs { cookie: NetObject(&long), ..one.lock_args(&handle, ALL) };
    assert_eq!(world.status(&one, Procedure::Lock, Args::Lock(args)), Status::Granted);
}

#[test]
fn asynchronous_calls_are_answered_by_calls() {
    let mut world = World::new();
    let handle = world.handle(FILE);
    let one = who(1, 1);
    let arguments = one.lock_args(&handle, ALL);
    assert!(world.nlm(&one, Procedure::LockMsg, Args::Lock(arguments)).is_empty());
    let test = TestArgs { cookie: NetObject(b"t"), exclusive: true, lock: one.lock(&handle, 0, 0) };
    assert!(world.nlm(&who(2, 2), Procedure::TestMsg, Args::Test(test)).is_empty());
    let calls = world.calls();
    let of = |procedure: Procedure| (nlm::PROGRAM, procedure as u32);
    assert_eq!(calls[0].of, of(Procedure::LockRes));
    assert_eq!(calls[0].arguments, answered(Status::Granted));
    assert_eq!(calls[1].of, of(Procedure::TestRes));
    world.pass(CALL_PAUSE_MAX);
    assert!(world.calls().is_empty(), "once");
    assert!(
        world
            .nlm(
                &one,
                Procedure::GrantedRes,
                Args::Res(Answer { cookie: NetObject(b"c"), status: Status::Granted })
            )
            .is_empty()
    );
}

#[test]
fn other_versions_procedures_and_programs_are_refused_by_name() {
    let mut world = World::new();
    let mut refused = |of: (u32, u32, u32)| {
        world.xid += 1;
        let (program, version, procedure) = of;
        let (xid, credential) = (world.xid, Credential::None);
        let mut bytes = Vec::new();
        Call { xid, program, version, procedure, credential, arguments: b"\0\0\0\x01" }
            .put(&mut bytes);
        let from = SocketAddr::new(address(1), 700);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        world.front.datagram(origin, &bytes);
        let reply = world.front.poll_datagram().unwrap().bytes;
        Reply::parse(&reply).unwrap().1
    };
    let versions = |low| Reply::Accepted(Acceptance::Versions { low, high: low });
    assert_eq!(refused((nlm::PROGRAM, 3, 0)), versions(4));
    assert_eq!(refused((nsm::PROGRAM, 2, 0)), versions(1));
    assert_eq!(refused((nlm::PROGRAM, 4, 16)), Reply::Accepted(Acceptance::NoProcedure));
    assert_eq!(refused((nlm::PROGRAM, 4, 2)), Reply::Accepted(Acceptance::GarbageArguments));
    assert_eq!(refused((nsm::PROGRAM, 1, 6)), Reply::Accepted(Acceptance::GarbageArguments));
    assert_eq!(refused((100_003, 3, 0)), Reply::Accepted(Acceptance::NoProgram));
}

#[test]
fn a_client_is_on_stable_storage_before_it_has_a_lock() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!((world.lists.len(), world.synced), (1, 1));
    let monitored = |client, name: &[u8]| Monitored { client, own: SERVER, name: name.into() };
    let kept = world.kept();
    assert_eq!(kept, Kept { state: 3, clients: vec![monitored(address(1), b"client")] });
    assert_eq!(world.unlock(&who(1, 1), FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&who(1, 2), FILE, ALL), Status::Granted);
    assert_eq!(world.lists.len(), 1, "it is known");
    // two that are new at once: no list lacks one of them for good
    world.holds = true;
    let other = world.make(b"other", 0o644);
    let handle = world.handle(other);
    for client in [2, 3] {
        let mut want = Want { exclusive: false, ..ALL };
        want.offset = client.into();
        let arguments = encoded(&who(client, 1).lock_args(&handle, want));
        let of = (nlm::PROGRAM, nlm::VERSION, Procedure::Lock as u32);
        world.send(address(client), of, &arguments, client.into());
    }
    world.release_held();
    assert_eq!(world.taken_reply(2), Some(answered(Status::Granted)));
    assert_eq!(world.taken_reply(3), Some(answered(Status::Granted)));
    assert_eq!(world.kept().clients.len(), 3);
    assert_eq!(world.synced, world.lists.len());
}

#[test]
fn a_client_that_restarted_has_no_locks() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), Who { name: b"other", ..who(2, 2) });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, Want { block: true, ..ALL }), Status::Blocked);
    world.notify(address(1), b"client.example.com", 11);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Denied, "an old notice: it locked since");
    world.notify(address(3), b"client", 13);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Denied, "another machine's");
    world.notify(address(1), b"client.example.com", 13);
    world.pass(Duration::ZERO);
    assert_eq!(world.calls().pop().map(|call| call.client), Some(address(2)));
    world.notify(address(2), b"other", 13);
    world.pass(LOOK_SPAN);
    assert!(world.manager.held.is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Granted);
    let free = FreeAllArgs { host: Host(b"client"), state: 0 };
    assert!(world.nlm(&who(3, 3), Procedure::FreeAll, Args::FreeAll(free)).is_empty());
    assert!(world.manager.held.is_empty());
    assert_eq!(world.server.locks().borrow().counters().restarts, 3);
    world.check();
}

#[test]
fn an_operator_drops_the_locks_of_a_client_that_is_gone() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.server.locks().borrow_mut().drop_client(address(2)), 0);
    assert_eq!(world.server.locks().borrow_mut().drop_client(address(1)), 1);
    world.run();
    assert!(world.manager.held.is_empty());
    assert_eq!(world.lock(&who(2, 1), FILE, ALL), Status::Granted);
}

#[test]
fn after_a_restart_clients_are_told_and_reclaim_before_others_lock() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    let (kept, manager) = (world.kept().restarted(), world.manager);
    let mut world = World::after(kept.clone(), manager);
    assert_eq!(world.lock(&other, FILE, ALL), Status::DeniedGracePeriod);
    let reclaims = Want { reclaim: true, ..ALL };
    assert_eq!(world.lock(&other, FILE, reclaims), Status::Denied, "it had none");
    let call = world.calls().pop().unwrap();
    assert_eq!((call.client, call.of), (address(1), NOTIFY));
    let notice: nsm::Notice<'_> = decoded(&call.arguments).unwrap();
    assert_eq!((notice.host.0, notice.state), (&b"10.0.0.100"[..], kept.state));
    assert_eq!(kept.state, 5);
    world.answer(&call, b"");
    assert_eq!(world.lock(&one, FILE, reclaims), Status::Granted);
    assert_eq!((world.reclaimed, world.manager.held.len()), (1, 1), "its number is the same");
    world.pass(GRACE_QUIET_SPAN - Duration::from_millis(1));
    assert_eq!(world.lock(&other, FILE, ALL), Status::DeniedGracePeriod);
    world.pass(GRACE_QUIET_SPAN);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Denied, "it was reclaimed");
    assert_eq!(world.lock(&one, FILE, reclaims), Status::Granted, "again");
    assert_eq!(world.lock(&who(1, 9), FileId::ROOT, reclaims), Status::Denied, "too late");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Granted);
    world.check();
}

#[test]
fn a_client_that_does_not_hear_of_the_restart_delays_others_for_a_bounded_time() {
    let gone = Monitored { client: address(1), own: SERVER, name: b"gone".as_slice().into() };
    let kept = Kept { state: 5, clients: vec![gone] };
    let mut world = World::after(kept, Manager::default());
    world.mapped = false;
    world.pass(GRACE_SPAN - Duration::from_secs(1));
    assert_eq!(world.lock(&who(2, 2), FILE, ALL), Status::DeniedGracePeriod);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.lock(&who(2, 2), FILE, ALL), Status::Granted);
    world.pass(NOTIFY_SPAN);
    world.calls();
    world.pass(NOTIFY_SPAN);
    assert!(world.calls().is_empty(), "it is given up");
}

#[test]
fn a_server_without_clients_begins_without_grace() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
}

#[test]
fn what_clients_can_hold_is_bounded() {
    let mut world = World::new();
    let waits = |offset| Want { offset, bytes: 1, block: true, ..ALL };
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    for offset in 0..LOCK_WAITERS_OF_HOST_MAX as u64 {
        assert_eq!(world.lock(&who(2, 2), FILE, waits(offset)), Status::Blocked);
    }
    let more = waits(LOCK_WAITERS_OF_HOST_MAX as u64);
    assert_eq!(world.lock(&who(2, 2), FILE, more), Status::DeniedNoLocks);
    assert_eq!(world.lock(&who(3, 2), FILE, waits(0)), Status::Blocked, "others wait on");
    world.notify(address(2), b"client", 99);
    world.pass(LOOK_SPAN);
    assert_eq!(world.manager.waiting.len(), 1);
    let long = Who { owner: &[b'o'; LOCK_OWNER_BYTES_MAX + 1], ..who(1, 1) };
    assert_eq!(world.lock(&long, FileId::ROOT, ALL), Status::DeniedNoLocks);
    let shared = Want { exclusive: false, ..ALL };
    let mut refused = 0;
    for number in 0..LOCK_HOSTS_MAX as u16 + 5 {
        let [high, low] = number.to_be_bytes();
        let other = Who { address: Ipv4Addr::new(10, 0, high + 1, low).into(), ..who(1, 1) };
        refused += usize::from(world.lock(&other, FileId::ROOT, shared) == Status::DeniedNoLocks);
    }
    assert!(refused > 0 && world.server.locks().borrow().clients() <= LOCK_HOSTS_MAX);
    assert!(world.kept().encode().len() <= 64 << 10);
}

#[test]
fn the_monitor_monitors_nobody_for_others() {
    let mut world = World::new();
    let call_back =
        nsm::CallBack { host: nsm::Host(b"me"), program: 100_021, version: 4, procedure: 16 };
    let id = nsm::MonitorId { host: nsm::Host(b"you"), call_back };
    let mut ask = |procedure: nsm::Procedure, arguments: Vec<u8>| {
        world.call(address(1), (nsm::PROGRAM, nsm::VERSION, procedure as u32), &arguments)
    };
    let refused = encoded(&nsm::StatResult { outcome: nsm::Outcome::Failed, state: 3 });
    let monitor = nsm::Monitor { id, private: [1; 16] };
    assert_eq!(ask(nsm::Procedure::Mon, encoded(&monitor)), refused);
    assert_eq!(ask(nsm::Procedure::Stat, encoded(&nsm::Host(b"you"))), refused);
    assert_eq!(ask(nsm::Procedure::Unmon, encoded(&id)), encoded(&3));
    assert_eq!(ask(nsm::Procedure::UnmonAll, encoded(&call_back)), encoded(&3));
    assert!(ask(nsm::Procedure::SimuCrash, Vec::new()).is_empty());
    assert!(ask(nsm::Procedure::Null, Vec::new()).is_empty());
}

#[test]
fn a_server_that_stops_gives_up_what_waits() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&who(2, 2), FILE, Want { block: true, ..ALL }), Status::Blocked);
    world.front.stop();
    world.run();
    assert!(world.front.is_quiet() && world.manager.waiting.is_empty());
}

#[derive(Clone, Debug)]
enum Act {
    Lock(Want),
    Unlock(u64, u64),
    Cancel(Want),
    Restart,
    /// The client answers what it was called for, with this outcome.
    Answer(bool),
    Pass,
}

fn acts() -> impl Strategy<Value = Vec<(u8, i32, Act)>> {
    let want = (0u64..6, 1u64..6, any::<bool>(), any::<bool>()).prop_map(
        |(offset, bytes, exclusive, block)| Want {
            offset,
            bytes,
            exclusive,
            block,
            reclaim: false,
        },
    );
    let act = prop_oneof![
        6 => want.clone().prop_map(Act::Lock),
        3 => (0u64..6, 1u64..8).prop_map(|(offset, bytes)| Act::Unlock(offset, bytes)),
        1 => want.prop_map(Act::Cancel),
        1 => Just(Act::Restart),
        3 => any::<bool>().prop_map(Act::Answer),
        1 => Just(Act::Pass),
    ];
    prop::collection::vec((0u8..3, 0i32..2, act), 0..60)
}

proptest! {
    #[test]
    fn ranges_come_back(offset in 0u64..1 << 63, bytes in 0u64..1 << 62) {
        let (start, end) = range(offset, bytes).unwrap();
        prop_assert_eq!(span(start, end), (offset, bytes));
    }

    #[test]
    fn garbage_breaks_nothing(
        program in 0usize..2, procedure in 0u32..25, arguments in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut world = World::new();
        let of = [(nlm::PROGRAM, nlm::VERSION), (nsm::PROGRAM, nsm::VERSION)][program];
        let credential = Credential::None;
        let (program, version) = of;
        let mut bytes = Vec::new();
        Call { xid: 1, program, version, procedure, credential, arguments: &arguments }.put(&mut bytes);
        let from = SocketAddr::new(address(1), 700);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        world.front.datagram(origin, &bytes);
        while let Some(request) = world.front.poll_request() {
            world.serve(request);
        }
        world.front.datagram(origin, &arguments);
        prop_assert_eq!(world.server.locks().borrow().held(), 0);
    }

    /// Any acts of clients in any order: the manager holds the locks that clients were told of, and with all of them
    /// restarted nothing is left.
    #[test]
    fn the_manager_holds_what_clients_were_told(acts in acts()) {
        let mut world = World::new();
        let mut state = 100;
        for (client, process, act) in acts {
            let one = Who { name: [&b"a"[..], b"b", b"c"][usize::from(client)], ..who(client, process) };
            match act {
                Act::Lock(want) => drop(world.lock(&one, FILE, want)),
                Act::Unlock(offset, bytes) => drop(world.unlock(&one, FILE, offset, bytes)),
                Act::Cancel(want) => drop(world.cancel(&one, FILE, want)),
                Act::Restart => {
                    state += 2;
                    world.notify(one.address, one.name, state);
                }
                Act::Answer(takes) => {
                    let status = if takes { Status::Granted } else { Status::Denied };
                    let its: Vec<Called> = world.calls();
                    for call in its.iter().filter(|call| call.client == one.address) {
                        world.answer(call, &answered(status));
                    }
                }
                Act::Pass => world.pass(Duration::from_secs(1)),
            }
            world.pass(Duration::ZERO);
            let mut told: Vec<(u64, u64, LockKind)> = world.server.locks().borrow().holdings()
                .filter(|it| !it.waits).map(|it| (it.lock.start, it.lock.end, it.lock.kind)).collect();
            let mut held = [(0, LockKind::Unlock); 16];
            told.sort_by_key(|it| it.0);
            let mut noted = [(0, LockKind::Unlock); 16];
            for (start, end, kind) in told {
                for at in start..=end.min(15) {
                    noted[at as usize] = (noted[at as usize].0 + 1, kind);
                }
            }
            for (_, _, lock) in &world.manager.held {
                for at in lock.start..=lock.end.min(15) {
                    held[at as usize] = (held[at as usize].0 + 1, lock.kind);
                }
            }
            prop_assert_eq!(noted, held);
            world.check();
        }
        for client in 0..3u8 {
            let name = [&b"a"[..], b"b", b"c"][usize::from(client)];
            world.notify(address(client), name, 99);
        }
        world.pass(LOOK_SPAN);
        prop_assert!(world.manager.held.is_empty() && world.manager.waiting.is_empty());
        let locks = world.server.locks().borrow();
        prop_assert_eq!((locks.held(), locks.waiting(), locks.is_quiet()), (0, 0, true));
    }
}
