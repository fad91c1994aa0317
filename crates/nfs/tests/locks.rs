//! Locks over NLM and NSM: a front, clients as datagrams, and a file manager that knows locks and who waits for them.

mod bounds;
mod calls;
mod properties;
mod ranges;
mod restarts;
mod waiting;

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
