//! Many clients of one front, over streams and datagrams in memory; the file system is one in memory too.

use crate::memory::Memory;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use endpoint::{Frames, HeapRegion};
use nfs::exports;
use nfs::front::{ConnectionId, Ended, Front};
use nfs::handle::Key;
use nfs::limits::*;
use nfs::mount::{self, DirPath, Exported, MntResult, Mounted};
use nfs::portmap::{self, Mapping, Service, TCP, UDP};
use nfs::record::RecordError;
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::server::{Origin, Port, Server};
use nfs::v3::*;
use nfs::xdr::{decoded, encoded, padding};
use node::rings::{FileDone, FileOp, FileRequest};
use proptest::prelude::*;
use std::rc::Rc;
use std::time::Duration;
use wire::{FileId, Time, VolumeId, Wall};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));

fn origin(client: u8, port: u16) -> Origin {
    let from = SocketAddr::new(Ipv4Addr::new(10, 0, 0, client).into(), port);
    Origin { from, to: SERVER, over: TCP, port: Port::Nfs }
}

struct World {
    front: Front,
    memory: Memory,
    frames: Frames,
    now: Time,
    xid: u32,
}

impl World {
    fn new(text: &str, pages: usize) -> World {
        let frames = Frames::new(HeapRegion::new(pages));
        let exports = exports::parse(text).unwrap();
        let mut server = Server::new(VolumeId(4), Key([3; 16]), exports, *b"started1");
        let service = |program, version, port| Service { program, version, protocol: TCP, port };
        server.services =
            vec![service(PROGRAM, 3, 2049), service(mount::PROGRAM, mount::VERSION, 2049)];
        let front = Front::new(Rc::new(server), frames.clone());
        let memory = Memory::new(frames.clone());
        World { front, memory, frames, now: Time(1), xid: 0 }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.front.set_now(self.now, Wall::default());
        self.front.look_after();
        self.run();
    }

    fn connect(&mut self, client: u8) -> ConnectionId {
        self.front.connect(origin(client, 700)).unwrap()
    }

    /// Hands over as many of the bytes as the front takes, `step` at a time; how many.
    fn send(&mut self, id: ConnectionId, bytes: &[u8], step: usize) -> Result<usize, Ended> {
        let mut sent = 0;
        while sent < bytes.len() {
            let mut taken = 0;
            for mut slice in self.front.slices(id) {
                let rest = &bytes[sent + taken..];
                let part = slice.len().min(rest.len()).min(step - taken);
                slice[..part].copy_from_slice(&rest[..part]);
                taken += part;
            }
            if taken == 0 {
                return Ok(sent);
            }
            sent += taken;
            self.front.filled(id, taken)?;
        }
        Ok(sent)
    }

    fn answer(&mut self, request: FileRequest) {
        let FileRequest { front, caller, op } = request;
        let result = self.memory.serve(&caller, op);
        self.front.done(FileDone { front, result });
    }

    /// Serves until nothing is asked.
    fn run(&mut self) {
        while let Some(request) = self.front.poll_request() {
            self.answer(request);
        }
    }

    /// The records that wait to be written to a connection.
    fn read(&mut self, id: ConnectionId) -> Vec<Vec<u8>> {
        let writer = self.front.writer(id).expect("it is connected");
        let bytes: Vec<u8> = writer.slices().flat_map(|slice| slice.to_vec()).collect();
        self.front.wrote(id, bytes.len()).unwrap();
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while let Some((mark, behind)) = rest.split_first_chunk() {
            let (record, behind) =
                behind.split_at((u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize);
            records.push(record.to_vec());
            rest = behind;
        }
        records
    }

    fn record(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let system = System { uid: 500, gid: 500, ..System::default() };
        let (xid, credential) = (self.xid, Credential::System(system));
        let call = Call { xid, program, version, procedure, credential, arguments };
        let mut bytes = vec![0; 4];
        call.put(&mut bytes);
        let mark = (bytes.len() - 4) as u32 | 1 << 31;
        bytes[..4].copy_from_slice(&mark.to_be_bytes());
        bytes
    }

    fn nfs_record(&mut self, args: Args<'_>, data: &[u8]) -> Vec<u8> {
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        arguments.extend_from_slice(data);
        arguments.extend_from_slice(&[0; 3][..padding(data.len())]);
        self.record(PROGRAM, VERSION, args.procedure() as u32, &arguments)
    }

    /// The results of a call that succeeds as one.
    fn call(&mut self, id: ConnectionId, record: &[u8]) -> Vec<u8> {
        let xid = u32::from_be_bytes(record[4..8].try_into().unwrap());
        assert_eq!(self.send(id, record, 1000), Ok(record.len()));
        self.run();
        let replies = self.read(id);
        assert_eq!(replies.len(), 1);
        let (of, reply, results) = Reply::parse(&replies[0]).unwrap();
        assert_eq!((of, reply), (xid, Reply::Accepted(Acceptance::Success)));
        results.to_vec()
    }

    fn mount(&mut self, id: ConnectionId, path: &str) -> Result<Vec<u8>, mount::Status> {
        let arguments = encoded(&DirPath(path.as_bytes()));
        let record = self.record(mount::PROGRAM, 3, mount::Procedure::Mnt as u32, &arguments);
        match decoded(&self.call(id, &record)).unwrap() {
            MntResult::Ok(handle, flavors) => {
                assert_eq!(flavors, [mount::AUTH_SYS]);
                Ok(handle.0.to_vec())
            }
            MntResult::Err(status) => Err(status),
        }
    }

    fn make(&mut self, id: ConnectionId, dir: &[u8], name: &str, directory: bool) -> Vec<u8> {
        let record = self.make_record(dir, name, directory);
        let results = self.call(id, &record);
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => ok.object.unwrap().0.to_vec(),
            Outcome::Err(status, _) => panic!("{status:?}"),
        }
    }

    fn make_record(&mut self, dir: &[u8], name: &str, directory: bool) -> Vec<u8> {
        let place = DirOpArgs { dir: Handle(dir), name: Path(name.as_bytes()) };
        let attributes = Sattr::default();
        let args = match directory {
            true => Args::Mkdir(MkdirArgs { place, attributes }),
            false => Args::Create(CreateArgs { place, how: CreateHow::Guarded(attributes) }),
        };
        self.nfs_record(args, &[])
    }

    fn lookup(&mut self, id: ConnectionId, dir: &[u8], name: &str) -> Result<Vec<u8>, Status> {
        let place = DirOpArgs { dir: Handle(dir), name: Path(name.as_bytes()) };
        let record = self.nfs_record(Args::Lookup(place), &[]);
        match decoded::<Outcome<LookupOk<'_>, AttrFailure>>(&self.call(id, &record)).unwrap() {
            Outcome::Ok(ok) => Ok(ok.object.0.to_vec()),
            Outcome::Err(status, _) => Err(status),
        }
    }

    fn write_record(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
        let (count, stable) = (data.len() as u32, StableHow::Unstable);
        let args = WriteArgs { file: Handle(file), offset, count, stable, data_bytes: count };
        self.nfs_record(Args::Write(args), data)
    }

    fn read_record(&mut self, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
        self.nfs_record(Args::Read(ReadArgs { file: Handle(file), offset, count }), &[])
    }

    /// A client that mounted all, and a file.
    fn with_file(&mut self, client: u8) -> (ConnectionId, Vec<u8>) {
        let id = self.connect(client);
        let root = self.mount(id, "/").unwrap();
        let file = self.make(id, &root, "file", false);
        (id, file)
    }
}

#[test]
fn clients_mount_write_and_read_in_any_pieces() {
    for step in [1, 7, 1000, 1 << 20] {
        let mut world = World::new("/ *(rw)", 4096);
        let (one, file) = world.with_file(1);
        let data: Vec<u8> = (0..100_003u32).map(|at| (at % 251) as u8).collect();
        let record = world.write_record(&file, 0, &data);
        assert_eq!(world.send(one, &record, step), Ok(record.len()));
        world.run();
        assert_eq!(world.read(one).len(), 1);
        let two = world.connect(2);
        let record = world.read_record(&file, 3, 200_000);
        let results = world.call(two, &record);
        let data = &data[3..];
        assert!(results.windows(data.len()).any(|part| part == data));
        let clients: Vec<_> = world.front.counters().clients().collect();
        assert_eq!((clients.len(), clients[0].1.calls, clients[1].1.connections), (2, 3, 1));
    }
}

/// Windows believes a mount that succeeded (ganesha#618), and `showmount` waits for each procedure (go-nfs#152).
#[test]
fn every_procedure_of_mount_answers_and_a_refusal_comes_at_once() {
    let mut world = World::new("/ 10.0.0.0/24(rw)\n/docs 10.0.0.1(ro)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let docs = world.make(one, &root, "docs", true);
    world.make(one, &docs, "deep", true);
    world.make(one, &root, "file", false);
    let refused = |world: &mut World, id, path: &str| world.mount(id, path).unwrap_err();
    assert_eq!(refused(&mut world, one, "/missing"), mount::Status::NoEnt);
    assert_eq!(refused(&mut world, one, "/file"), mount::Status::NotDir);
    assert_eq!(refused(&mut world, one, "/docs/../docs"), mount::Status::Inval);
    assert_eq!(refused(&mut world, one, "/file/below"), mount::Status::NotDir);
    world.mount(two, "/docs").expect("by the export of all");
    world.mount(one, "//docs//deep/").unwrap();
    let stranger = world.front.connect(Origin { to: SERVER, ..origin(1, 1) }).unwrap();
    world.mount(stranger, "/docs").unwrap();
    let mut other = World::new("/ 10.0.0.1(rw)", 64);
    let far = other.connect(2);
    assert_eq!(refused(&mut other, far, "/"), mount::Status::Acces);

    let ask = |world: &mut World, version, procedure: mount::Procedure, arguments: &[u8]| {
        let record = world.record(mount::PROGRAM, version, procedure as u32, arguments);
        world.call(one, &record)
    };
    use mount::Procedure::*;
    assert!(ask(&mut world, 3, Null, &[]).is_empty());
    let dumped = ask(&mut world, 3, Dump, &[]);
    let all: Vec<Mounted<'_>> = decoded(&dumped).unwrap();
    let of = |client: &[u8]| all.iter().filter(|one| one.client.0 == client).count();
    assert_eq!((of(b"10.0.0.1"), of(b"10.0.0.2")), (3, 1));
    ask(&mut world, 1, Umnt, &encoded(&DirPath(b"/docs")));
    let left = ask(&mut world, 1, Dump, &[]);
    assert_eq!(decoded::<Vec<Mounted<'_>>>(&left).unwrap().len(), 3);
    ask(&mut world, 3, UmntAll, &[]);
    let left = ask(&mut world, 3, Dump, &[]);
    assert_eq!(decoded::<Vec<Mounted<'_>>>(&left).unwrap().len(), 1, "another client's");
    let exports = ask(&mut world, 3, Export, &[]);
    let exports: Vec<Exported<'_>> = decoded(&exports).unwrap();
    let shown = |export: &Exported<'_>| (export.directory.0.to_vec(), export.groups.len());
    assert_eq!(
        exports.iter().map(shown).collect::<Vec<_>>(),
        [(b"/".to_vec(), 1), (b"/docs".to_vec(), 1)]
    );
}

/// A client of an export never gets a handle of what is above it.
#[test]
fn an_exports_directory_is_its_own_parent() {
    let mut world = World::new("/ 10.0.0.1(rw)\n/docs 10.0.0.2(rw)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let docs = world.make(one, &root, "docs", true);
    world.make(one, &docs, "deep", true);
    let top = world.mount(two, "/docs").unwrap();
    assert_eq!(world.lookup(two, &top, "..").as_ref(), Ok(&top));
    let deep = world.lookup(two, &top, "deep").unwrap();
    assert_eq!(world.lookup(two, &deep, ".."), Ok(top.clone()));
    assert_eq!(
        world.lookup(one, &docs, ".."),
        Ok(root.clone()),
        "all of it is exported to that one"
    );
    assert_eq!(
        world.lookup(two, &docs, "deep"),
        Err(Status::Acces),
        "a handle of the other export"
    );
    let args = ReaddirplusArgs {
        dir: Handle(&top),
        cookie: 0,
        verifier: [0; 8],
        dircount: 4096,
        maxcount: 4096,
    };
    let record = world.nfs_record(Args::Readdirplus(args), &[]);
    let results = world.call(two, &record);
    let listed: Outcome<ReaddirplusOk<'_>, AttrFailure> = decoded(&results).unwrap();
    let Outcome::Ok(listed) = listed else { panic!("{listed:?}") };
    let handles = listed.entries.iter().map(|entry| (entry.name.0, entry.handle.is_some()));
    let wanted: [(&[u8], bool); 3] = [(b".", true), (b"..", false), (b"deep", true)];
    assert!(handles.eq(wanted));
}

/// dittofs#1002: `before` is there only where nothing else changed the directory meanwhile.
#[test]
fn attributes_of_before_are_told_only_where_no_other_change_came_between() {
    let mut world = World::new("/ *(rw)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let results = |world: &mut World, id| {
        let replies = world.read(id);
        let results = Reply::parse(&replies[0]).unwrap().2.to_vec();
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => (Status::Ok, ok.wcc),
            Outcome::Err(status, wcc) => (status, wcc),
        }
    };
    let record = world.make_record(&root, "alone", false);
    world.send(one, &record, 1000).unwrap();
    world.run();
    let (status, first) = results(&mut world, one);
    assert_eq!((status, first.before.is_some()), (Status::Ok, true));
    let record = world.make_record(&root, "late", false);
    world.send(one, &record, 1000).unwrap();
    let asked = world.front.poll_request().unwrap();
    assert!(matches!(asked.op, FileOp::GetAttr { .. }));
    world.answer(asked);
    // another client's change comes between the two
    let creating = world.front.poll_request().unwrap();
    let record = world.make_record(&root, "quicker", false);
    world.send(two, &record, 1000).unwrap();
    world.run();
    assert!(results(&mut world, two).1.before.is_some());
    world.answer(creating);
    world.run();
    let (status, wcc) = results(&mut world, one);
    assert_eq!((status, wcc.before, wcc.after.is_some()), (Status::Ok, None, true));
    let record = world.make_record(&root, "late", false);
    world.send(one, &record, 1000).unwrap();
    world.run();
    let (status, wcc) = results(&mut world, one);
    let before = wcc.before.expect("a call that failed changed nothing");
    assert_eq!((status, before.ctime), (Status::Exist, wcc.after.unwrap().ctime));
}

/// chimera#1375: the entry exists while the call is in progress.
#[test]
fn a_call_that_comes_again_over_another_connection_is_executed_once() {
    let mut world = World::new("/ *(rw)", 64);
    let first = world.connect(1);
    let root = world.mount(first, "/").unwrap();
    let record = world.make_record(&root, "new", false);
    world.send(first, &record, 1000).unwrap();
    let request = world.front.poll_request().unwrap();
    world.front.disconnect(first);
    let second = world.front.connect(origin(1, 701)).unwrap();
    world.send(second, &record, 1000).unwrap();
    assert!(world.front.poll_request().is_none(), "it is in progress");
    world.answer(request);
    world.run();
    let reply = world.read(second);
    assert_eq!(reply.len(), 1, "it is answered where it came from last");
    let third = world.front.connect(origin(1, 702)).unwrap();
    world.send(third, &record, 1000).unwrap();
    assert!(world.front.poll_request().is_none(), "it was executed");
    assert_eq!(world.read(third), reply);
    assert_eq!((world.memory.changes, world.front.counters().duplicates), (1, 2));
    let other = world.connect(2);
    world.send(other, &record, 1000).unwrap();
    world.run();
    assert_ne!(world.read(other), reply, "another client's is another call");
}

#[test]
fn a_file_that_is_read_on_is_opened_once() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let mut opens = 0;
    for offset in 0..20 {
        let record = world.read_record(&file, offset, 10);
        world.send(id, &record, 1000).unwrap();
        while let Some(request) = world.front.poll_request() {
            opens += usize::from(matches!(request.op, FileOp::Open { .. }));
            world.answer(request);
        }
        world.read(id);
        world.pass(OPEN_SPAN / 4);
    }
    assert_eq!((opens, world.memory.open_handles()), (1, 1));
    world.pass(OPEN_SPAN);
    assert_eq!(world.memory.open_handles(), 0);
}

#[test]
fn bytes_that_are_no_calls_end_their_connection_and_no_other() {
    let mut world = World::new("/ *(rw)", 64);
    let (good, file) = world.with_file(1);
    let mark = |bytes: u32| (bytes | 1 << 31).to_be_bytes().to_vec();
    let long = [mark(1 << 30), vec![0; 20_000]].concat();
    let reply = [mark(8), vec![0, 0, 0, 1, 0, 0, 0, 1]].concat();
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        (long, Some(Ended::Record(RecordError::HeadTooLong(CALL_HEAD_BYTES_MAX)))),
        (reply, Some(Ended::Nonsense)),
        (
            [0, 0, 0, 0].repeat(FRAGMENTS_MAX as usize + 1),
            Some(Ended::Record(RecordError::Fragments)),
        ),
    ];
    for (bytes, ended) in cases {
        let bad = world.connect(2);
        assert_eq!(world.send(bad, &bytes, 4096).err(), ended);
        world.front.disconnect(bad);
        let record = world.read_record(&file, 0, 10);
        world.call(good, &record);
    }
    let record = world.record(999, 1, 0, &[]);
    world.send(good, &record, 1000).unwrap();
    let reply = world.read(good);
    assert_eq!(Reply::parse(&reply[0]).unwrap().1, Reply::Accepted(Acceptance::NoProgram));
}

#[test]
fn a_record_that_never_ends_is_given_up_and_holds_little() {
    let mut world = World::new("/ *(rw)", 4096);
    let (good, file) = world.with_file(1);
    let record = world.write_record(&file, 0, &vec![1; 1 << 20]);
    let slow: Vec<ConnectionId> = (0..10).map(|_| world.connect(2)).collect();
    for id in &slow {
        world.send(*id, &record[..1000], 1000).unwrap();
    }
    world.pass(SHORT_STALL_SPAN);
    let closed = std::iter::from_fn(|| world.front.poll_closed()).count();
    assert!(closed >= 6, "a quarter of the pool is 4 MiB, not 10: {closed} closed");
    let left = slow.iter().filter(|id| world.front.may_read(**id)).count();
    assert_eq!(left, slow.len() - closed);
    for byte in 0..left as u32 {
        world.pass(STALL_SPAN / 4);
        for id in slow.iter().filter(|id| world.front.may_read(**id)).copied().collect::<Vec<_>>() {
            world.send(id, &record[1000 + byte as usize..][..1], 1).unwrap();
        }
    }
    world.pass(STALL_SPAN);
    assert!(slow.iter().all(|id| !world.front.may_read(*id)), "a byte now and then does not help");
    let record = world.read_record(&file, 0, 10);
    world.call(good, &record);
    assert_eq!(world.front.counters().stalled, 10);
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_and_then_closed() {
    let mut world = World::new("/ *(rw)", 16 << 10);
    let (id, file) = world.with_file(1);
    let data = vec![5; 1 << 20];
    let record = world.write_record(&file, 0, &data);
    world.call(id, &record);
    let record = world.read_record(&file, 0, 1 << 20);
    let mut reads = 0;
    while world.front.may_read(id) {
        world.send(id, &record, 1000).unwrap();
        world.run();
        reads += 1;
        assert!(reads < 100, "it is read on");
    }
    assert!(world.front.writer(id).unwrap().bytes() <= UNREAD_BYTES_MAX + (2 << 20));
    let other = world.connect(2);
    assert!(world.call(other, &record).len() > 1 << 20);
    world.pass(STALL_SPAN - Duration::from_millis(1));
    assert!(world.front.has_output(id));
    world.pass(LOOK_SPAN + Duration::from_millis(1));
    assert_eq!(world.front.poll_closed(), Some(id));
    assert_eq!(world.front.connections(), 1);
}

#[test]
fn calls_of_one_connection_are_bounded_and_go_on() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let record = world.nfs_record(Args::Getattr(Handle(&file)), &[]);
    let many = record.repeat(CALLS_MAX * 3);
    let sent = world.send(id, &many, 1000).unwrap();
    let mut waiting: Vec<FileRequest> = Vec::new();
    waiting.extend(std::iter::from_fn(|| world.front.poll_request()));
    assert_eq!(waiting.len(), CALLS_MAX);
    assert!(sent < many.len() && !world.front.may_read(id));
    let mut answered = 0;
    let mut rest = &many[sent..];
    while let Some(request) = waiting.pop() {
        world.answer(request);
        answered += 1;
        if world.front.may_read(id) {
            let taken = world.send(id, rest, 1000).unwrap();
            rest = &rest[taken..];
        }
        waiting.extend(std::iter::from_fn(|| world.front.poll_request()));
        assert!(waiting.len() <= CALLS_MAX);
    }
    assert_eq!((answered, world.read(id).len()), (CALLS_MAX * 3, CALLS_MAX * 3));
}

#[test]
fn a_write_waits_for_frames_and_goes_on() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let held: Vec<_> = (0..50).map(|_| world.frames.alloc(4096).unwrap()).collect();
    let data = vec![7; 32 * 4096];
    let record = world.write_record(&file, 0, &data);
    let sent = world.send(id, &record, 1000).unwrap();
    assert!(sent < record.len() && !world.front.may_read(id));
    drop(held);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.send(id, &record[sent..], 1000), Ok(record.len() - sent));
    world.run();
    assert_eq!(world.read(id).len(), 1);
}

#[test]
fn ten_thousand_idle_connections_take_little_and_the_oldest_makes_room() {
    let mut world = World::new("/ *(rw)", 64);
    let mut all = Vec::new();
    for number in 0..CONNECTIONS_MAX {
        all.push(world.front.connect(origin((number % 200) as u8, number as u16)).unwrap());
        let record = world.record(PROGRAM, VERSION, 0, &[]);
        world.call(all[number], &record);
    }
    world.pass(IDLE_SPAN);
    let busy = all[0];
    let record = world.record(PROGRAM, VERSION, 0, &[]);
    world.call(busy, &record);
    let next = world.connect(250);
    assert_eq!(world.front.connections(), CONNECTIONS_MAX);
    assert_eq!(world.front.poll_closed(), Some(all[1]));
    for id in [busy, next, all[CONNECTIONS_MAX - 1]] {
        world.call(id, &record);
    }
}

#[test]
fn the_port_mapper_and_mount_answer_datagrams() {
    let mut world = World::new("/ *(rw)", 64);
    let udp = |port| Origin { over: UDP, port, ..origin(1, 700) };
    let wanted = Mapping { program: PROGRAM, version: 3, protocol: TCP, port: 0 };
    let arguments = encoded(&wanted);
    let get = portmap::version2::GETPORT;
    let record = world.record(portmap::PROGRAM, portmap::PORTMAP, get, &arguments);
    world.front.datagram(udp(Port::Portmap), &record[4..]);
    let reply = world.front.poll_datagram().unwrap();
    assert_eq!(reply.origin, udp(Port::Portmap));
    let (_, _, results) = Reply::parse(&reply.bytes).unwrap();
    assert_eq!(decoded(results), Ok(2049u32));
    let record = world.record(mount::PROGRAM, 3, mount::Procedure::Export as u32, &[]);
    world.front.datagram(udp(Port::Mount), &record[4..]);
    assert!(world.front.poll_datagram().is_some());
    let record = world.record(PROGRAM, VERSION, 0, &[]);
    world.front.datagram(udp(Port::Mount), &record[4..]);
    let reply = world.front.poll_datagram().unwrap();
    let refused = Reply::Accepted(Acceptance::NoProgram);
    assert_eq!(Reply::parse(&reply.bytes).unwrap().1, refused, "NFS is served over TCP");
    world.front.datagram(udp(Port::Mount), b"garbage");
    assert_eq!(world.front.poll_datagram(), None);
}

/// A stream of calls, some of them damaged.
fn streams() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let flip = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    let call = (0usize..3, 0u32..24, prop::collection::vec(any::<u8>(), 0..60), flip);
    prop::collection::vec(call, 1..40).prop_map(|calls| {
        let record = |(at, (which, procedure, tail, flip)): (usize, _)| {
            let (procedure, tail): (u32, Vec<u8>) = (procedure, tail);
            let flip: Option<(prop::sample::Index, u8)> = flip;
            let handle = nfs::handle::Named {
                volume: VolumeId(4),
                file: FileId::ROOT,
                generation: 0,
                export: exports::parse("/ *(rw)").unwrap().iter().next().unwrap().number(),
            };
            let mut arguments = encoded(&Handle(&handle.encode(&Key([3; 16]))));
            arguments.extend(tail);
            let program = [PROGRAM, mount::PROGRAM, PROGRAM][which];
            let (xid, credential) = (at as u32, Credential::None);
            let call =
                Call { xid, program, version: 3, procedure, credential, arguments: &arguments };
            let mut bytes = vec![0; 4];
            call.put(&mut bytes);
            let mark = (bytes.len() - 4) as u32 | 1 << 31;
            bytes[..4].copy_from_slice(&mark.to_be_bytes());
            if let Some((place, value)) = flip {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            (which, bytes)
        };
        calls.into_iter().enumerate().map(record).collect()
    })
}

proptest! {
    /// Any bytes from clients: no panic, every frame and every open file comes back.
    #[test]
    fn damaged_calls_of_three_clients_take_nothing_for_good(calls in streams(), step in 1usize..200) {
        let mut world = World::new("/ *(rw)", 600);
        let mut ids = [0u8, 1, 2].map(|client| world.connect(client));
        for (which, bytes) in calls {
            if world.send(ids[which], &bytes, step).is_err() {
                world.front.disconnect(ids[which]);
                ids[which] = world.connect(which as u8);
            }
            world.run();
            world.read(ids[which]);
        }
        for id in ids {
            world.front.disconnect(id);
        }
        world.front.close_files();
        world.run();
        prop_assert!(world.front.is_quiet());
        prop_assert_eq!(world.memory.open_handles(), 0);
        prop_assert_eq!(world.frames.free_pages(), 600);
    }
}
