//! An origin with one file that says of which state a write found it, as Linux's does (RFC 1813 section 2.6): what is
//! cached of that state stays.

use super::writes::writable;
use super::*;
use nfs::mount::{self, MntResult, MountHandle};
use nfs::rpc::{Acceptance, Call, Reply};
use nfs::v3::{
    self, Args, Entry, EntryPlus, Fattr, FileType, FsinfoOk, Handle, LookupOk, NfsTime,
    NodeNumbers, Outcome, Procedure, ReadData, ReadOk, ReaddirOk, ReaddirplusOk, Results,
    StableHow, Status, WccAttr, WccData, WriteOk,
};
use nfs::xdr::Xdr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

const ROOT: &[u8] = b"root";
const FILE: &[u8] = b"file";

#[derive(Default)]
struct State {
    data: Vec<u8>,
    changes: u32,
    reads: u64,
    /// It has no READDIRPLUS, and was asked for one so often.
    lists_names_only: bool,
    refused: u64,
    is_stopping: bool,
}

impl State {
    fn write(&mut self, offset: usize, part: &[u8]) {
        self.changes += 1;
        put(&mut self.data, offset, part);
    }

    fn time(&self) -> NfsTime {
        NfsTime { seconds: 1_000 + self.changes, nseconds: 7 }
    }

    fn attributes(&self, handle: &[u8]) -> Fattr {
        let is_file = handle == FILE;
        let time = if is_file { self.time() } else { NfsTime { seconds: 1, nseconds: 0 } };
        Fattr {
            kind: if is_file { FileType::Regular } else { FileType::Directory },
            mode: if is_file { 0o644 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            size: if is_file { self.data.len() as u64 } else { 4_096 },
            used: 0,
            rdev: NodeNumbers::default(),
            fsid: 1,
            fileid: if is_file { 2 } else { 1 },
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn results(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let procedure = Procedure::of(call.procedure).unwrap();
        let is_write = procedure == Procedure::Write;
        // a handle of 4 bytes, offset, count, how stable, length of the data
        let (head, data) =
            call.arguments.split_at(if is_write { 28 } else { call.arguments.len() });
        let results = match Args::decode(procedure, head).unwrap() {
            Args::Null(()) => return,
            Args::Getattr(handle) => Results::Getattr(Outcome::Ok(self.attributes(handle.0))),
            Args::Fsinfo(_) => Results::Fsinfo(Outcome::Ok(fsinfo())),
            Args::Readdirplus(_) if self.lists_names_only => {
                self.refused += 1;
                Results::Readdirplus(Outcome::Err(Status::NotSupp, None))
            }
            Args::Readdir(_) => Results::Readdir(Outcome::Ok(ReaddirOk {
                attributes: None,
                verifier: [0; 8],
                entries: vec![Entry { fileid: 2, name: v3::Path(FILE), cookie: 3 }],
                eof: true,
            })),
            Args::Lookup(args) if args.name.0 == FILE => Results::Lookup(Outcome::Ok(LookupOk {
                object: Handle(FILE),
                attributes: Some(self.attributes(FILE)),
                directory: None,
            })),
            Args::Readdirplus(_) => Results::Readdirplus(Outcome::Ok(self.listing())),
            Args::Read(args) => {
                self.reads += 1;
                let from = self.data.len().min(args.offset as usize);
                let to = self.data.len().min(from + args.count as usize);
                let (count, eof) = ((to - from) as u32, to == self.data.len());
                let attributes = Some(self.attributes(FILE));
                let ok = ReadOk { attributes, count, eof, data_bytes: count };
                Results::Read(Outcome::Ok(ReadData { ok, data: &self.data[from..to] }))
            }
            Args::Write(args) => {
                let (size, mtime) = (self.data.len() as u64, self.time());
                let before = Some(WccAttr { size, mtime, ctime: mtime });
                self.write(args.offset as usize, &data[..args.count as usize]);
                let wcc = WccData { before, after: Some(self.attributes(FILE)) };
                let (count, verifier) = (args.count, [0; 8]);
                let committed = StableHow::FileSync;
                Results::Write(Outcome::Ok(WriteOk { wcc, count, committed, verifier }))
            }
            other => panic!("{other:?}"),
        };
        results.put(out);
    }

    fn listing(&self) -> ReaddirplusOk<'static> {
        let (name, handle) = (v3::Path(FILE), Some(Handle(FILE)));
        let attributes = Some(self.attributes(FILE));
        let entries = vec![EntryPlus { fileid: 2, name, cookie: 3, attributes, handle }];
        let attributes = Some(self.attributes(ROOT));
        ReaddirplusOk { attributes, verifier: [0; 8], entries, eof: true }
    }
}

fn fsinfo() -> FsinfoOk {
    FsinfoOk {
        attributes: None,
        read_max: 1 << 20,
        read_preferred: 1 << 20,
        read_multiple: 4_096,
        write_max: 100_000,
        write_preferred: 100_000,
        write_multiple: 4_096,
        readdir_preferred: 4_096,
        file_bytes_max: u64::MAX >> 1,
        time_delta: NfsTime { seconds: 0, nseconds: 1 },
        properties: 0,
    }
}

fn put(data: &mut Vec<u8>, offset: usize, part: &[u8]) {
    data.resize(data.len().max(offset + part.len()), 0);
    data[offset..offset + part.len()].copy_from_slice(part);
}

/// The server. It ends with this.
struct Telling {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    accepting: Option<thread::JoinHandle<()>>,
}

impl Telling {
    fn start(data: Vec<u8>) -> Telling {
        let state = Arc::new(Mutex::new(State { data, ..State::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = state.clone();
        let accepting = thread::spawn(move || {
            for connection in listener.incoming() {
                if shared.lock().unwrap().is_stopping {
                    return;
                }
                let shared = shared.clone();
                // it ends when the importer closes the connection
                thread::spawn(move || serve_calls(connection.unwrap(), &shared));
            }
        });
        Telling { state, address, accepting: Some(accepting) }
    }

    fn source(&self) -> Source {
        Source::parse(&format!("nfs://{}/", self.address)).unwrap()
    }

    fn reads(&self) -> u64 {
        self.state.lock().unwrap().reads
    }

    fn data(&self) -> Vec<u8> {
        self.state.lock().unwrap().data.clone()
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.state.lock().unwrap().is_stopping = true;
        let _ = TcpStream::connect(self.address);
        self.accepting.take().map(thread::JoinHandle::join);
    }
}

fn serve_calls(mut stream: TcpStream, state: &Mutex<State>) {
    loop {
        let mut mark = [0; 4];
        if stream.read_exact(&mut mark).is_err() {
            return;
        }
        let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        if stream.read_exact(&mut record).is_err() {
            return;
        }
        let call = Call::parse(&record).unwrap();
        let mut reply = Vec::new();
        Reply::Accepted(Acceptance::Success).put(call.xid, &mut reply);
        match call.program {
            mount::PROGRAM => {
                MntResult::Ok(MountHandle(ROOT), vec![mount::AUTH_SYS]).put(&mut reply)
            }
            _ => state.lock().unwrap().results(&call, &mut reply),
        }
        let mark = (reply.len() as u32 | 1 << 31).to_be_bytes();
        if stream.write_all(&[&mark[..], &reply].concat()).is_err() {
            return;
        }
    }
}

#[test]
fn what_is_cached_is_written_over_where_nothing_else_has_changed() {
    if !Path::new("/dev/fuse").exists() {
        return rig::skip("no /dev/fuse");
    }
    let mut data = pattern((2 << 20) + 1_000, 1);
    let origin = Telling::start(data.clone());
    let plan = writable(plan(origin.source()));
    let mut cache = Cache::start(plan.clone());
    let mount = tempfile::tempdir().unwrap();
    let mounted = cache.cluster.mount(mount.path()).unwrap();
    let path = mount.path().join("imported/file");
    let write_at = |offset: usize, part: &[u8]| {
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(part, offset as u64).unwrap();
    };
    let mut ours = cache.volume();
    assert!(read(&mut ours, "file").unwrap() == data);
    assert_eq!(origin.reads(), 3);
    // inside a piece, over the border of two, and at the end with a hole, beyond what one WRITE of the origin takes
    for (offset, bytes) in [(5, 10), ((1 << 20) - 7, 5_000), ((2 << 20) + 9_000, 2_000_000)] {
        let part = pattern(bytes, 9);
        write_at(offset, &part);
        put(&mut data, offset, &part);
        assert!(origin.data() == data);
        assert!(read(&mut ours, "file").unwrap() == data, "{bytes} at {offset}");
    }
    assert_eq!(ours.stat(Path::new(&at("file"))).unwrap().size, data.len() as u64);
    cache.restart(plan);
    assert!(read(&mut ours, "file").unwrap() == data);
    assert_eq!(origin.reads(), 3, "all of it was cached");
    // another one writes just before us
    let theirs = pattern(1_000, 4);
    origin.state.lock().unwrap().write(3_000_000, &theirs);
    put(&mut data, 3_000_000, &theirs);
    write_at(0, b"ours");
    put(&mut data, 0, b"ours");
    assert!(origin.data() == data);
    assert!(read(&mut ours, "file").unwrap() == data);
    assert!(origin.reads() > 3);
    mounted.unmount().unwrap();
}

#[test]
fn an_origin_without_attributes_in_its_listings_is_asked_for_names_and_for_each_file() {
    let origin = Telling::start(pattern(100, 1));
    origin.state.lock().unwrap().lists_names_only = true;
    let cache = Cache::start(plan(origin.source()));
    let mut ours = cache.volume();
    assert_eq!(names(&mut ours, ""), ["file"]);
    assert_eq!(ours.list_attributes(Path::new(DIRECTORY)).unwrap()[0].1.size, 100);
    assert!(read(&mut ours, "file").unwrap() == pattern(100, 1));
    assert_eq!(origin.state.lock().unwrap().refused, 1, "its answer is remembered");
}
