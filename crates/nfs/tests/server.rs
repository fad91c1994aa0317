//! All 22 procedures against a file system in memory, over streams of bytes in memory.

use crate::memory::Memory;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use endpoint::{Frame, Frames, HeapRegion};
use nfs::exports;
use nfs::handle::{Key, Named};
use nfs::limits::{CALL_HEAD_BYTES_MAX, REPLY_HEAD_BYTES_MAX};
use nfs::portmap::TCP;
use nfs::record::{Outgoing, Progress, Reader, Record, Writer, begin};
use nfs::replies::{self, Replies, Verdict};
use nfs::rpc::{Acceptance, Call, Credential, Groups, Reply, System};
use nfs::server::{Execution, Origin, Port, Server, Step};
use nfs::v3::*;
use nfs::xdr::{decoded, encoded};
use node::rings::{Caller, FileOp};
use std::rc::Rc;
use wire::{Errno, FileId, VolumeId};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const VERIFIER: [u8; 8] = *b"started1";

fn origin() -> Origin {
    Origin { from: SocketAddr::new(CLIENT, 900), to: CLIENT, over: TCP, port: Port::Nfs }
}

/// A server and one client, whose bytes pass through both ends of a stream.
struct Pair {
    frames: Frames,
    memory: Memory,
    server: Rc<Server>,
    replies: Replies,
    to_server: Reader,
    to_client: Reader,
    xid: u32,
    uid: u32,
}

impl Pair {
    fn new(text: &str) -> Pair {
        let frames = Frames::new(HeapRegion::new(2048));
        let exports = exports::parse(text).unwrap();
        let (volume, key) = (VolumeId(4), Key([3; 16]));
        let server = Rc::new(Server::new(volume, key, exports, VERIFIER));
        Pair {
            memory: Memory::new(frames.clone()),
            frames,
            server,
            replies: Replies::default(),
            to_server: Reader::new(CALL_HEAD_BYTES_MAX),
            to_client: Reader::new(REPLY_HEAD_BYTES_MAX),
            xid: 0,
            uid: 500,
        }
    }

    fn handle(&self, file: FileId) -> Vec<u8> {
        let export = self.server.exports.iter().next().unwrap().number();
        let named = Named { volume: self.server.volume, file, generation: 0, export };
        named.encode(&self.server.key).to_vec()
    }

    fn root(&self) -> Vec<u8> {
        self.handle(FileId::ROOT)
    }

    /// The reply's record to a call with this number.
    fn exchange(&mut self, xid: u32, procedure: u32, arguments: &[u8], data: &[u8]) -> Record {
        let (program, version) = (PROGRAM, VERSION);
        let groups = Groups::of([self.uid]);
        let system = System { uid: self.uid, gid: self.uid, groups, ..System::default() };
        let credential = Credential::System(system);
        let mut head = begin(0);
        Call { xid, program, version, procedure, credential, arguments }.put(&mut head);
        let data = self.frames.copy_of(data).filter(|_| !data.is_empty());
        let bytes = data.as_ref().map_or(0, |data| data.len());
        let call = Outgoing::with_data(head, Vec::from_iter(data), bytes);
        let record = pass(&self.frames, &mut self.to_server, call, &mut call_plan);
        let reply = self.serve(record);
        let is_read = procedure == Procedure::Read as u32;
        pass(&self.frames, &mut self.to_client, reply, &mut |head| {
            read_reply_plan(head, |_| is_read)
        })
    }

    /// Executes a call, as a front does.
    fn serve(&mut self, record: Record) -> Outgoing {
        let key = Call::parse(&record.head)
            .ok()
            .map(|call| replies::Key::of(CLIENT, &call, &record.head));
        let key = key.filter(replies::Key::is_kept);
        if let Some(key) = key {
            match self.replies.begin(key) {
                Verdict::Execute => {}
                Verdict::Done(reply) => {
                    let mut head = begin(0);
                    head.extend(reply);
                    return Outgoing::of(head);
                }
                other => panic!("{other:?}"),
            }
        }
        let mut execution = Execution::begin(self.server.clone(), origin(), None, record);
        let outcome = loop {
            match execution.step() {
                Step::Ask(caller, op) => execution.answer(self.memory.serve(&caller, op)),
                Step::Reply(outcome) => break outcome,
            }
        };
        self.close_files();
        let reply = outcome.reply.expect("a call has a reply");
        match key {
            Some(key) if outcome.is_final => self.replies.complete(key, reply.head()),
            Some(key) => self.replies.forget(key),
            None => {}
        }
        reply
    }

    /// Closes the files that calls left open, as the front does.
    fn close_files(&mut self) {
        let mut open_files = self.server.open_files().borrow_mut();
        open_files.close_all();
        while let Some((file, handle)) = open_files.poll_close() {
            let op = FileOp::Release { file, handle, owner: None };
            self.memory.serve(&Caller::default(), op).unwrap();
        }
        assert_eq!(self.memory.open_handles(), 0);
    }

    fn call(&mut self, args: Args<'_>, data: &[u8]) -> (Vec<u8>, Vec<Frame>) {
        self.xid += 1;
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        let Record { head, data } =
            self.exchange(self.xid, args.procedure() as u32, &arguments, data);
        let (xid, reply, results) = Reply::parse(&head).unwrap();
        assert_eq!((xid, reply), (self.xid, Reply::Accepted(Acceptance::Success)));
        (results.to_vec(), data)
    }

    fn status(&mut self, args: Args<'_>) -> Status {
        let (results, _) = self.call(args, &[]);
        Status::of(u32::from_be_bytes(results[..4].try_into().unwrap())).unwrap()
    }

    fn create(&mut self, name: &str, how: CreateHow) -> Result<Vec<u8>, Status> {
        let root = self.root();
        let place = DirOpArgs { dir: Handle(&root), name: Path(name.as_bytes()) };
        let (results, _) = self.call(Args::Create(CreateArgs { place, how }), &[]);
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => {
                assert!(ok.wcc.after.is_some());
                Ok(ok.object.unwrap().0.to_vec())
            }
            Outcome::Err(status, wcc) => {
                assert!(
                    wcc.after.is_some(),
                    "an error has the directory's attributes too (chimera#1400)"
                );
                Err(status)
            }
        }
    }

    fn file(&mut self, name: &str) -> Vec<u8> {
        self.create(name, CreateHow::Guarded(Sattr::default())).unwrap()
    }

    fn attr(&mut self, handle: &[u8]) -> Fattr {
        let (results, _) = self.call(Args::Getattr(Handle(handle)), &[]);
        match decoded::<Outcome<Fattr, ()>>(&results).unwrap() {
            Outcome::Ok(attr) => attr,
            Outcome::Err(status, ()) => panic!("{status:?}"),
        }
    }

    fn write(&mut self, handle: &[u8], offset: u64, data: &[u8], stable: StableHow) -> WriteOk {
        let (file, count) = (Handle(handle), data.len() as u32);
        let args = WriteArgs { file, offset, count, stable, data_bytes: count };
        let (results, _) = self.call(Args::Write(args), data);
        match decoded::<Outcome<WriteOk, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => ok,
            Outcome::Err(status, _) => panic!("{status:?}"),
        }
    }
}

/// Moves a record through a stream, a few thousand bytes at a time.
fn pass(
    frames: &Frames,
    reader: &mut Reader,
    record: Outgoing,
    plan: &mut dyn FnMut(&[u8]) -> nfs::record::Plan,
) -> Record {
    let mut writer = Writer::default();
    writer.push(record);
    let bytes: Vec<u8> = writer.slices().flat_map(|slice| slice.to_vec()).collect();
    let mut rest = &bytes[..];
    loop {
        match reader.poll(frames, plan).unwrap() {
            Progress::Record(record) => return record,
            Progress::Bytes => {
                let mut taken = 0;
                for mut slice in reader.slices(frames) {
                    let part = slice.len().min(rest.len()).min(3000 - taken);
                    slice[..part].copy_from_slice(&rest[..part]);
                    rest = &rest[part..];
                    taken += part;
                }
                assert!(taken > 0, "the record is whole");
                reader.filled(taken);
            }
            Progress::Frames => panic!("there are frames"),
        }
    }
}

fn names(pair: &mut Pair, count: u32) -> Vec<String> {
    let root = pair.root();
    let (mut cookie, mut verifier, mut all) = (0, [0; 8], Vec::new());
    loop {
        let args = ReaddirArgs { dir: Handle(&root), cookie, verifier, count };
        let (results, _) = pair.call(Args::Readdir(args), &[]);
        let found: Outcome<ReaddirOk<'_>, AttrFailure> = decoded(&results).unwrap();
        let Outcome::Ok(found) = found else { panic!("{found:?}") };
        all.extend(
            found.entries.iter().map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap()),
        );
        (cookie, verifier) =
            (found.entries.last().map_or(cookie, |last| last.cookie), found.verifier);
        if found.eof {
            return all;
        }
    }
}

#[test]
fn every_procedure_is_answered() {
    let mut pair = Pair::new("/ *(rw)");
    let (root, file) = (pair.root(), pair.file("file"));
    let handle = Handle(&file);
    let place = |name: &'static str| DirOpArgs { dir: Handle(&[]), name: Path(name.as_bytes()) };
    let place = |name| DirOpArgs { dir: Handle(&root), ..place(name) };
    let attributes = Sattr::default();
    let verifier = nfs::cookies::VERIFIER;
    let link = LinkArgs { file: handle, link: place("hard") };
    let read = ReadArgs { file: handle, offset: 0, count: 100 };
    let dir = Handle(&root);
    for args in [
        Args::Getattr(handle),
        Args::Setattr(SetattrArgs { object: handle, attributes, guard: None }),
        Args::Lookup(place("file")),
        Args::Access(AccessArgs { object: handle, access: 63 }),
        Args::Read(read),
        Args::Write(WriteArgs {
            file: handle,
            offset: 0,
            count: 0,
            stable: StableHow::Unstable,
            data_bytes: 0,
        }),
        Args::Create(CreateArgs { place: place("other"), how: CreateHow::Unchecked(attributes) }),
        Args::Mkdir(MkdirArgs { place: place("directory"), attributes }),
        Args::Symlink(SymlinkArgs { place: place("soft"), attributes, target: Path(b"file") }),
        Args::Mknod(MknodArgs { place: place("pipe"), what: NodeKind::Fifo(attributes) }),
        Args::Link(link),
        Args::Rename(RenameArgs { from: place("other"), to: place("renamed") }),
        Args::Remove(place("renamed")),
        Args::Rmdir(place("directory")),
        Args::Readdir(ReaddirArgs { dir, cookie: 0, verifier, count: 4096 }),
        Args::Readdirplus(ReaddirplusArgs {
            dir,
            cookie: 0,
            verifier,
            dircount: 1000,
            maxcount: 4096,
        }),
        Args::Fsstat(dir),
        Args::Fsinfo(dir),
        Args::Pathconf(dir),
        Args::Commit(CommitArgs { file: handle, offset: 0, count: 0 }),
    ] {
        assert_eq!(pair.status(args), Status::Ok, "{args:?}");
    }
    let reply = pair.exchange(900, Procedure::Null as u32, &[], &[]);
    assert_eq!(Reply::parse(&reply.head).unwrap().1, Reply::Accepted(Acceptance::Success));
    let (results, _) = pair.call(Args::Lookup(place("soft")), &[]);
    let found: Outcome<LookupOk<'_>, AttrFailure> = decoded(&results).unwrap();
    let Outcome::Ok(found) = found else { panic!() };
    assert_eq!(pair.status(Args::Readlink(found.object)), Status::Ok);
    let names = names(&mut pair, 4096);
    assert_eq!(names, [".", "..", "file", "soft", "pipe", "hard"], "in the order of making");
}

#[test]
fn what_is_no_call_of_ours_is_refused() {
    let mut pair = Pair::new("/ *(rw)");
    let refused = |pair: &mut Pair, procedure, arguments: &[u8]| {
        let reply = pair.exchange(1, procedure, arguments, &[]);
        Reply::parse(&reply.head).unwrap().1
    };
    assert_eq!(refused(&mut pair, 22, &[]), Reply::Accepted(Acceptance::NoProcedure));
    assert_eq!(refused(&mut pair, 1, &[0; 3]), Reply::Accepted(Acceptance::GarbageArguments));
    assert_eq!(pair.status(Args::Getattr(Handle(&[1; 32]))), Status::BadHandle);
    let gone = pair.handle(FileId(99));
    assert_eq!(pair.status(Args::Getattr(Handle(&gone))), Status::Stale);
    let volume = VolumeId(5);
    let other = Named { volume, ..Named::default() }.encode(&pair.server.key);
    assert_eq!(pair.status(Args::Getattr(Handle(&other))), Status::Stale);
}

#[test]
fn data_comes_back_and_is_committed_when_it_is_said_to_be() {
    let mut pair = Pair::new("/ *(rw)");
    let file = pair.file("file");
    let data: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    pair.memory.synced.clear();
    let written = pair.write(&file, 10, &data, StableHow::Unstable);
    assert_eq!((written.count, written.committed), (200_000, StableHow::Unstable));
    assert_eq!((written.verifier, written.wcc.after.unwrap().size), (VERIFIER, 200_010));
    assert_eq!(pair.memory.synced, []);
    let written = pair.write(&file, 0, &data[..10], StableHow::DataSync);
    assert_eq!(written.committed, StableHow::FileSync);
    assert_eq!(pair.memory.synced.len(), 1);
    let args = ReadArgs { file: Handle(&file), offset: 10, count: 1 << 20 };
    let (results, frames) = pair.call(Args::Read(args), &[]);
    let read: ReadOk = decoded::<Outcome<ReadOk, AttrFailure>>(&results)
        .map(|read| match read {
            Outcome::Ok(read) => read,
            Outcome::Err(status, _) => panic!("{status:?}"),
        })
        .unwrap();
    assert_eq!((read.count, read.eof), (200_000, true));
    assert!(frames.iter().flat_map(|frame| frame.iter()).eq(&data));
    let (results, _) = pair.call(Args::Read(ReadArgs { count: 5, ..args }), &[]);
    assert!(matches!(
        decoded(&results),
        Ok(Outcome::<_, AttrFailure>::Ok(ReadOk { count: 5, eof: false, .. }))
    ));
}

/// chimera#1326.
#[test]
fn a_commit_that_fails_says_so() {
    let mut pair = Pair::new("/ *(rw)");
    let file = pair.file("file");
    pair.write(&file, 0, b"data", StableHow::Unstable);
    pair.memory.broken = Some(Errno::EIO);
    let commit = Args::Commit(CommitArgs { file: Handle(&file), offset: 0, count: 0 });
    assert_eq!(pair.status(commit), Status::Io);
    assert_eq!(pair.status(commit), Status::Ok);
}

/// chimera#957, #1508: the verifier is not in times, so that a SETATTR between two of the same calls changes nothing.
#[test]
fn an_exclusive_create_is_known_again() {
    let mut pair = Pair::new("/ *(rw)");
    let first = pair.create("file", CreateHow::Exclusive(*b"12345678")).unwrap();
    let size = Sattr { size: Some(100), mtime: SetTime::ToServerTime, ..Sattr::default() };
    let set = SetattrArgs { object: Handle(&first), attributes: size, guard: None };
    assert_eq!(pair.status(Args::Setattr(set)), Status::Ok);
    assert_eq!(pair.create("file", CreateHow::Exclusive(*b"12345678")), Ok(first));
    assert_eq!(pair.create("file", CreateHow::Exclusive(*b"12345679")), Err(Status::Exist));
    assert_eq!(pair.create("file", CreateHow::Guarded(Sattr::default())), Err(Status::Exist));
}

#[test]
fn an_unchecked_create_of_what_is_there_sets_its_length_only() {
    let mut pair = Pair::new("/ *(rw)");
    let file = pair.file("file");
    pair.write(&file, 0, b"data", StableHow::Unstable);
    let attributes = Sattr { size: Some(0), mode: Some(0o600), ..Sattr::default() };
    assert_eq!(pair.create("file", CreateHow::Unchecked(attributes)).as_ref(), Ok(&file));
    let attr = pair.attr(&file);
    assert_eq!((attr.size, attr.mode), (0, 0o644));
}

/// chimera#959.
#[test]
fn files_are_removed_as_files_and_directories_as_directories() {
    let mut pair = Pair::new("/ *(rw)");
    let root = pair.root();
    pair.file("file");
    let place = |name: &'static str| DirOpArgs { dir: Handle(&root), name: Path(name.as_bytes()) };
    let attributes = Sattr::default();
    pair.status(Args::Mkdir(MkdirArgs { place: place("directory"), attributes }));
    assert_eq!(pair.status(Args::Rmdir(place("file"))), Status::NotDir);
    assert_eq!(pair.status(Args::Remove(place("directory"))), Status::IsDir);
    assert_eq!(pair.status(Args::Remove(place("none"))), Status::NoEnt);
    let what = NodeKind::Other(FileType::Regular);
    assert_eq!(pair.status(Args::Mknod(MknodArgs { place: place("a"), what })), Status::BadType);
}

/// agentfs#339: a guard with an older ctime stops the change.
#[test]
fn a_stale_guard_stops() {
    let mut pair = Pair::new("/ *(rw)");
    let file = pair.file("file");
    let before = pair.attr(&file).ctime;
    let attributes = Sattr { mode: Some(0o600), ..Sattr::default() };
    let set = |guard| Args::Setattr(SetattrArgs { object: Handle(&file), attributes, guard });
    assert_eq!(pair.status(set(Some(before))), Status::Ok);
    assert_eq!(pair.status(set(Some(before))), Status::NotSync);
}

#[test]
fn a_read_only_export_reads() {
    let mut pair = Pair::new("/ *(ro)");
    let root = pair.root();
    assert_eq!(pair.create("file", CreateHow::Guarded(Sattr::default())), Err(Status::Rofs));
    let access = AccessArgs { object: Handle(&root), access: 63 };
    let (results, _) = pair.call(Args::Access(access), &[]);
    let granted: Outcome<AccessOk, AttrFailure> = decoded(&results).unwrap();
    let Outcome::Ok(granted) = granted else { panic!() };
    assert_eq!(granted.access, nfs::v3::access::READ | nfs::v3::access::LOOKUP);
    assert_eq!(pair.memory.changes, 0);
}

#[test]
fn a_client_that_no_network_has_is_refused_with_a_handle_too() {
    let mut pair = Pair::new("/ 192.168.0.0/16(rw)");
    let root = pair.root();
    assert_eq!(pair.status(Args::Getattr(Handle(&root))), Status::Acces);
}

/// chimera#1480: files that root makes are the anonymous user's.
#[test]
fn root_is_squashed() {
    let mut pair = Pair::new("/ *(rw)");
    pair.uid = 0;
    let file = pair.file("file");
    assert_eq!(pair.attr(&file).uid, exports::NOBODY);
    let mut trusting = Pair::new("/ *(rw,no_root_squash)");
    trusting.uid = 0;
    let file = trusting.file("file");
    assert_eq!(trusting.attr(&file).uid, 0);
}

/// chimera#1375: the same call, over another connection, is answered the same and done once.
#[test]
fn a_duplicate_is_not_executed_again() {
    let mut pair = Pair::new("/ *(rw)");
    let root = pair.root();
    let place = DirOpArgs { dir: Handle(&root), name: Path(b"file") };
    let how = CreateHow::Guarded(Sattr::default());
    let create = encoded(&CreateArgs { place, how });
    let first = pair.exchange(77, Procedure::Create as u32, &create, &[]);
    let changes = pair.memory.changes;
    pair.to_server = Reader::new(CALL_HEAD_BYTES_MAX);
    let again = pair.exchange(77, Procedure::Create as u32, &create, &[]);
    assert_eq!(first.head, again.head);
    assert_eq!(pair.memory.changes, changes);
}

/// A refusal that passes is no reply to keep: the client asks again, and then it is done. But what was done, and could
/// not be put on stable storage, is not to be asked for again.
#[test]
fn what_was_not_done_is_asked_again_and_what_was_done_is_not() {
    let mut pair = Pair::new("/ *(rw)");
    let root = pair.root();
    let attributes = Sattr::default();
    let make = |name: &'static [u8]| {
        let place = DirOpArgs { dir: Handle(&root), name: Path(name) };
        encoded(&MkdirArgs { place, attributes })
    };
    let status = |record: &Record| {
        let (_, _, results) = Reply::parse(&record.head).unwrap();
        Status::of(u32::from_be_bytes(results[..4].try_into().unwrap())).unwrap()
    };
    let mkdir = Procedure::Mkdir as u32;
    pair.memory.busy = Some(Errno::EAGAIN);
    let busy = pair.exchange(5, mkdir, &make(b"a"), &[]);
    assert_eq!((status(&busy), pair.replies.len()), (Status::Jukebox, 0));
    let again = pair.exchange(5, mkdir, &make(b"a"), &[]);
    assert_eq!((status(&again), pair.replies.len()), (Status::Ok, 1));
    pair.memory.broken = Some(Errno::EAGAIN);
    let broken = pair.exchange(6, mkdir, &make(b"b"), &[]);
    assert_eq!((status(&broken), pair.replies.len()), (Status::Io, 2));
}

/// nfsserve#50, dittofs#1002: every name once, whatever the client has room for; a change in between changes nothing.
#[test]
fn a_listing_goes_on_where_it_stopped() {
    let mut pair = Pair::new("/ *(rw)");
    for number in 0..60 {
        pair.file(&format!("name-{number:03}"));
    }
    let all = names(&mut pair, 65_536);
    assert_eq!(all.len(), 62);
    for count in [200, 333, 1000] {
        assert_eq!(names(&mut pair, count), all);
    }
    let root = pair.root();
    let dir = Handle(&root);
    let small = ReaddirArgs { dir, cookie: 0, verifier: [0; 8], count: 110 };
    assert_eq!(pair.status(Args::Readdir(small)), Status::TooSmall);
    let verifier = [9; 8];
    let bad = ReaddirArgs { dir, cookie: 9, verifier, count: 4096 };
    assert_eq!(pair.status(Args::Readdir(bad)), Status::BadCookie);
    let (cookie, dircount, maxcount) = (0, 300, 2000);
    let args = ReaddirplusArgs { dir, cookie, verifier, dircount, maxcount };
    let (results, _) = pair.call(Args::Readdirplus(args), &[]);
    assert!(results.len() <= 2004);
    let found: Outcome<ReaddirplusOk<'_>, AttrFailure> = decoded(&results).unwrap();
    let Outcome::Ok(found) = found else { panic!() };
    let third = &found.entries[2];
    let handle = third.handle.unwrap().0.to_vec();
    assert_eq!(Some(pair.attr(&handle)), third.attributes);
}

/// The manager says so; each other request is another listing.
#[test]
fn a_listing_that_is_unchanged_is_answered_as_before() {
    let mut pair = Pair::new("/ *(rw)");
    let files: Vec<_> = (0..20).map(|number| pair.file(&format!("name-{number:03}"))).collect();
    let root = pair.root();
    let dir = Handle(&root);
    let list = |pair: &mut Pair, maxcount, is_unchanged: bool| {
        let (cookie, verifier, dircount) = (0, [0; 8], maxcount);
        let args = ReaddirplusArgs { dir, cookie, verifier, dircount, maxcount };
        let before = (pair.memory.listed, pair.memory.unchanged);
        let (results, _) = pair.call(Args::Readdirplus(args), &[]);
        let unchanged = before.1 + usize::from(is_unchanged);
        assert_eq!((pair.memory.listed, pair.memory.unchanged), (before.0 + 1, unchanged));
        results
    };
    let first = list(&mut pair, 8192, false);
    assert_eq!(list(&mut pair, 8192, true), first);
    assert_ne!(list(&mut pair, 2000, false), first);
    let attributes = Sattr { mode: Some(0o600), ..Sattr::default() };
    let set = SetattrArgs { object: Handle(&files[3]), attributes, guard: None };
    assert_eq!(pair.status(Args::Setattr(set)), Status::Ok);
    let second = list(&mut pair, 8192, false);
    assert_ne!(second, first);
    assert_eq!(list(&mut pair, 8192, true), second);
    pair.file("another");
    assert_ne!(list(&mut pair, 8192, false), second);
}
