//! An origin with one file that says of which state a write found it, as Linux's does (RFC 1813 section 2.6): what is
//! cached of that state stays.

use super::scripted::{ROOT, Script, Scripted, arguments, attributes, fsinfo};
use super::writes::writable;
use super::*;
use nfs::rpc::Call;
use nfs::v3::{
    self, Args, Entry, EntryPlus, Fattr, Handle, LookupOk, NfsTime, Outcome, ReadData, ReadOk,
    ReaddirOk, ReaddirplusOk, Results, StableHow, Status, WccAttr, WccData, WriteOk,
};
use std::os::unix::fs::FileExt;

const FILE: &[u8] = b"file";

#[derive(Default)]
struct State {
    data: Vec<u8>,
    changes: u32,
    reads: u64,
    /// It has no READDIRPLUS, and was asked for one so often.
    lists_names_only: bool,
    refused: u64,
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
        match handle == FILE {
            true => attributes(2, Some(self.data.len() as u64), self.time()),
            false => attributes(1, None, NfsTime { seconds: 1, nseconds: 0 }),
        }
    }

    fn listing(&self) -> ReaddirplusOk<'static> {
        let (name, handle) = (v3::Path(FILE), Some(Handle(FILE)));
        let attributes = Some(self.attributes(FILE));
        let entries = vec![EntryPlus { fileid: 2, name, cookie: 3, attributes, handle }];
        let attributes = Some(self.attributes(ROOT));
        ReaddirplusOk { attributes, verifier: [0; 8], entries, eof: true }
    }
}

impl Script for State {
    fn results(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> bool {
        let (args, data) = arguments(call);
        let results = match args {
            Args::Null(()) => return false,
            Args::Getattr(handle) => Results::Getattr(Outcome::Ok(self.attributes(handle.0))),
            Args::Fsinfo(_) => fsinfo(),
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
        false
    }
}

fn put(data: &mut Vec<u8>, offset: usize, part: &[u8]) {
    data.resize(data.len().max(offset + part.len()), 0);
    data[offset..offset + part.len()].copy_from_slice(part);
}

fn start(data: Vec<u8>) -> Scripted<State> {
    Scripted::start(State { data, ..State::default() })
}

#[test]
fn what_is_cached_is_written_over_where_nothing_else_has_changed() {
    if !Path::new("/dev/fuse").exists() {
        return rig::skip("no /dev/fuse");
    }
    let mut data = pattern((2 << 20) + 1_000, 1);
    let origin = start(data.clone());
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
    assert_eq!(origin.state().reads, 3);
    // inside a piece, over the border of two, and at the end with a hole, beyond what one WRITE of the origin takes
    for (offset, bytes) in [(5, 10), ((1 << 20) - 7, 5_000), ((2 << 20) + 9_000, 2_000_000)] {
        let part = pattern(bytes, 9);
        write_at(offset, &part);
        put(&mut data, offset, &part);
        assert!(origin.state().data == data);
        assert!(read(&mut ours, "file").unwrap() == data, "{bytes} at {offset}");
    }
    assert_eq!(ours.stat(Path::new(&at("file"))).unwrap().size, data.len() as u64);
    cache.restart(plan);
    assert!(read(&mut ours, "file").unwrap() == data);
    assert_eq!(origin.state().reads, 3, "all of it was cached");
    // another one writes just before us
    let theirs = pattern(1_000, 4);
    origin.state().write(3_000_000, &theirs);
    put(&mut data, 3_000_000, &theirs);
    write_at(0, b"ours");
    put(&mut data, 0, b"ours");
    assert!(origin.state().data == data);
    assert!(read(&mut ours, "file").unwrap() == data);
    assert!(origin.state().reads > 3);
    mounted.unmount().unwrap();
}

#[test]
fn an_origin_without_attributes_in_its_listings_is_asked_for_names_and_for_each_file() {
    let origin = start(pattern(100, 1));
    origin.state().lists_names_only = true;
    let cache = Cache::start(plan(origin.source()));
    let mut ours = cache.volume();
    assert_eq!(names(&mut ours, ""), ["file"]);
    assert_eq!(ours.list_attributes(Path::new(DIRECTORY)).unwrap()[0].1.size, 100);
    assert!(read(&mut ours, "file").unwrap() == pattern(100, 1));
    assert_eq!(origin.state().refused, 1, "its answer is remembered");
}
