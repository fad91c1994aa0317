//! A foreign NFS server, with one directory of files that change, go and come anew: what it answers to a call, and what
//! each name stood for at any time.
//!
//! Its READs are short, so that a piece takes many of them, in the midst of which a file may change; its listings have
//! few names in a part.

use crate::queue::Picos;
use crate::random::Random;
use nfs::mount::{self, MntResult, MountHandle};
use nfs::rpc::{Acceptance, Call, Reply};
use nfs::v3::{
    Args, DirOpArgs, EntryPlus, Fattr, FileType, Handle, LookupOk, NfsTime, NodeNumbers, Outcome,
    Path, Procedure, ReadArgs, ReadData, ReadOk, ReaddirplusArgs, ReaddirplusOk, Results, Status,
};
use nfs::xdr::Xdr;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const ROOT: &[u8] = b"root";
/// Its random stream.
const STREAM: &str = "origin";
/// Most bytes of one READ.
const READ_BYTES: u64 = 24 << 10;
/// Names of a part of a listing.
const PART: usize = 2;
/// One change in so many keeps the length.
const SAME_LENGTH_ONE_IN: u64 = 2;
/// One change in so many is a removal, or another file by a name.
const OTHER_FILE_ONE_IN: u64 = 5;

/// The bytes of a file from one change to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    handle: u64,
    number: u32,
    /// Length.
    pub size: u64,
}

impl Version {
    /// Bytes of a range, as far as the file has them.
    pub fn bytes(&self, offset: u64, count: u64) -> Vec<u8> {
        let end = self.size.min(offset + count);
        let word = |at: u64| {
            let mixed = (u64::from(self.number) << 32 | at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).to_le_bytes()[(at % 8) as usize]
        };
        (offset..end).map(word).collect()
    }

    fn attributes(&self) -> Fattr {
        attributes(FileType::Regular, self.handle, self.size, self.number)
    }
}

/// The values of a name, each from when on it had it.
type History = Vec<(Picos, Option<Version>)>;

/// The server.
pub struct Origin {
    names: Vec<History>,
    bytes_max: u64,
    /// Changes of the directory's names.
    renamed: u32,
    last_handle: u64,
    last_version: u32,
    random: Random,
    /// Starts so far.
    pub boot: u32,
    /// It answers nothing.
    pub is_away: bool,
}

/// The server, which outlives the nodes that ask it.
pub type SharedOrigin = Rc<RefCell<Origin>>;

/// The name of this number.
pub fn name_of(number: usize) -> String {
    format!("file{number}")
}

impl Origin {
    /// With so many files of this length at most, which are there when it has begun.
    pub fn new(files: usize, bytes_max: u64) -> Origin {
        Origin {
            names: vec![Vec::new(); files],
            bytes_max,
            renamed: 0,
            last_handle: 0,
            last_version: 0,
            random: Random::new(0, STREAM),
            boot: 0,
            is_away: false,
        }
    }

    /// Makes all files.
    pub fn begin(&mut self, seed: u64) {
        self.random = Random::new(seed, STREAM);
        (0..self.names.len()).for_each(|name| self.make(name, Picos::ZERO));
    }

    fn now(&self, name: usize) -> Option<Version> {
        self.names[name].last().and_then(|(_, version)| *version)
    }

    fn put(&mut self, name: usize, version: Option<Version>, now: Picos) {
        self.names[name].push((now, version));
    }

    fn make(&mut self, name: usize, now: Picos) {
        self.last_handle += 1;
        self.last_version += 1;
        self.renamed += 1;
        let (handle, number) = (self.last_handle, self.last_version);
        let size = self.random.within(1, self.bytes_max);
        self.put(name, Some(Version { handle, number, size }), now);
    }

    /// Some file changes.
    pub fn change(&mut self, now: Picos) -> String {
        let name = self.random.index(self.names.len());
        let Some(version) = self.now(name) else {
            self.make(name, now);
            return format!("{} is there again", name_of(name));
        };
        if self.random.below(OTHER_FILE_ONE_IN) > 0 {
            self.last_version += 1;
            let is_as_long = self.random.below(SAME_LENGTH_ONE_IN) == 0;
            let size =
                if is_as_long { version.size } else { self.random.within(1, self.bytes_max) };
            let version = Version { number: self.last_version, size, ..version };
            self.put(name, Some(version), now);
            return format!("{} is {version:?}", name_of(name));
        }
        match self.random.below(2) {
            0 => {
                self.renamed += 1;
                self.put(name, None, now);
            }
            _ => self.make(name, now),
        }
        format!("{} is {:?}", name_of(name), self.now(name))
    }

    /// Forgets what names stood for before this time.
    pub fn forget(&mut self, before: Picos) {
        for history in &mut self.names {
            let old = history.iter().rposition(|(from, _)| *from <= before).unwrap_or(0);
            history.drain(..old);
        }
    }

    // Checks of answers to questions that were asked since some time.

    /// The values that a name had at any time since then.
    pub fn since(&self, name: usize, since: Picos) -> Vec<Option<Version>> {
        let history = &self.names[name];
        let first = history.iter().rposition(|(from, _)| *from <= since).unwrap_or(0);
        history[first..].iter().map(|(_, version)| *version).collect()
    }

    /// Whether there was but one.
    pub fn is_unchanged(&self, name: usize, since: Picos) -> bool {
        self.since(name, since).len() == 1
    }

    /// Checks the names of a listing. The error names the violation.
    pub fn check_listing(&self, since: Picos, listed: &[Vec<u8>]) -> Result<(), String> {
        let all: BTreeSet<&[u8]> = listed.iter().map(|name| &name[..]).collect();
        if all.len() != listed.len() {
            return Err(format!("a listing has a name twice: {listed:?}"));
        }
        for name in 0..self.names.len() {
            let is_there = all.contains(name_of(name).as_bytes());
            let may = self.since(name, since);
            if !may.iter().any(|version| version.is_some() == is_there) {
                return Err(format!("{} is listed: {is_there}, of {may:?}", name_of(name)));
            }
        }
        Ok(())
    }

    /// Checks bytes that were read. The error names the violation.
    pub fn check_bytes(
        &self,
        (name, since): (usize, Picos),
        (offset, asked): (u64, u64),
        read: &[u8],
    ) -> Result<(), String> {
        let may: Vec<Version> = self.since(name, since).into_iter().flatten().collect();
        let is_of = |version: &Version| version.bytes(offset, asked) == read;
        match may.iter().any(is_of) {
            true => Ok(()),
            false => Err(format!(
                "{} bytes of {} from {offset} on are of no version since {since}: {may:?}",
                read.len(),
                name_of(name)
            )),
        }
    }

    // Its answers.

    /// The replies to records of calls.
    pub fn serve(&mut self, mut calls: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((mark, behind)) = calls.split_first_chunk() {
            let (record, rest) = behind.split_at((u32::from_be_bytes(*mark) & !(1 << 31)) as usize);
            let call = Call::parse(record).expect("a call of a session");
            let mut reply = vec![0; 4];
            Reply::Accepted(Acceptance::Success).put(call.xid, &mut reply);
            match call.program {
                mount::PROGRAM => {
                    MntResult::Ok(MountHandle(ROOT), vec![mount::AUTH_SYS]).put(&mut reply)
                }
                _ => self.results(&call, &mut reply),
            }
            let mark = (reply.len() as u32 - 4 | 1 << 31).to_be_bytes();
            reply[..4].copy_from_slice(&mark);
            all.append(&mut reply);
            calls = rest;
        }
        all
    }

    fn results(&self, call: &Call<'_>, out: &mut Vec<u8>) {
        let procedure = Procedure::of(call.procedure).expect("a procedure of a session");
        match Args::decode(procedure, call.arguments).expect("arguments of a session") {
            Args::Null(()) => {}
            Args::Getattr(handle) => {
                let outcome = match self.of(handle.0) {
                    Some(attributes) => Outcome::Ok(attributes),
                    None => Outcome::Err(Status::Stale, ()),
                };
                Results::Getattr(outcome).put(out);
            }
            Args::Lookup(args) => self.look_up(&args, out),
            Args::Read(args) => self.read(&args, out),
            Args::Readdirplus(args) => self.list(&args, out),
            other => panic!("a cache that is not written asks {other:?}"),
        }
    }

    fn root(&self) -> Fattr {
        attributes(FileType::Directory, 0, 4_096, self.renamed)
    }

    fn version(&self, handle: &[u8]) -> Option<Version> {
        let number = u64::from_be_bytes(handle.try_into().ok()?);
        let mut all = (0..self.names.len()).filter_map(|name| self.now(name));
        all.find(|version| version.handle == number)
    }

    fn of(&self, handle: &[u8]) -> Option<Fattr> {
        if handle == ROOT {
            return Some(self.root());
        }
        self.version(handle).map(|version| version.attributes())
    }

    fn look_up(&self, args: &DirOpArgs<'_>, out: &mut Vec<u8>) {
        let mut names = 0..self.names.len();
        let named = names.find(|name| name_of(*name).as_bytes() == args.name.0);
        let Some(version) = named.and_then(|name| self.now(name)) else {
            return Results::Lookup(Outcome::Err(Status::NoEnt, None)).put(out);
        };
        let handle = version.handle.to_be_bytes();
        let (object, attributes) = (Handle(&handle), Some(version.attributes()));
        Results::Lookup(Outcome::Ok(LookupOk { object, attributes, directory: None })).put(out);
    }

    fn read(&self, args: &ReadArgs<'_>, out: &mut Vec<u8>) {
        let Some(version) = self.version(args.file.0) else {
            return Results::Read(Outcome::Err(Status::Stale, None)).put(out);
        };
        let data = version.bytes(args.offset, READ_BYTES.min(args.count.into()));
        let (count, attributes) = (data.len() as u32, Some(version.attributes()));
        let eof = args.offset + data.len() as u64 >= version.size;
        let ok = ReadOk { attributes, count, eof, data_bytes: count };
        Results::Read(Outcome::Ok(ReadData { ok, data: &data })).put(out);
    }

    fn list(&self, args: &ReaddirplusArgs<'_>, out: &mut Vec<u8>) {
        let behind = (args.cookie as usize..self.names.len())
            .filter_map(|name| Some((name, self.now(name)?)))
            .map(|(name, version)| (name, name_of(name), version.handle.to_be_bytes(), version));
        let all: Vec<_> = behind.collect();
        let part = &all[..all.len().min(PART)];
        let entries = part.iter().map(|(number, name, handle, version)| EntryPlus {
            fileid: version.handle,
            name: Path(name.as_bytes()),
            cookie: *number as u64 + 1,
            attributes: Some(version.attributes()),
            handle: Some(Handle(handle)),
        });
        let (entries, eof) = (entries.collect(), part.len() == all.len());
        let attributes = Some(self.root());
        let ok = ReaddirplusOk { attributes, verifier: [0; 8], entries, eof };
        Results::Readdirplus(Outcome::Ok(ok)).put(out);
    }
}

/// Times tell states apart: each has a second of its own.
fn attributes(kind: FileType, fileid: u64, size: u64, state: u32) -> Fattr {
    let time = NfsTime { seconds: 1_000 + state, nseconds: 0 };
    let mode = if kind == FileType::Directory { 0o755 } else { 0o644 };
    Fattr {
        kind,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        size,
        used: size,
        rdev: NodeNumbers::default(),
        fsid: 1,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Picos = Picos::seconds(10);

    fn changed(at: Picos) -> Origin {
        let mut origin = Origin::new(1, 50_000);
        origin.begin(1);
        let version = origin.now(0).expect("it was made");
        let later = Version { number: version.number + 1, ..version };
        origin.put(0, Some(later), at);
        origin
    }

    #[test]
    fn bytes_of_before_are_right_until_the_attributes_are_too_old() {
        let read = |at, which: usize| {
            let origin = changed(at);
            let version = origin.names[0][which].1.expect("a version");
            origin.check_bytes((0, SINCE), (100, 500), &version.bytes(100, 500)).is_ok()
        };
        assert!(read(Picos::seconds(11), 0) && read(Picos::seconds(11), 1));
        assert!(!read(Picos::seconds(9), 0) && read(Picos::seconds(9), 1));
    }

    #[test]
    fn bytes_of_two_versions_are_wrong() {
        let origin = changed(Picos::seconds(11));
        let [before, after] = [0, 1].map(|which| origin.names[0][which].1.expect("a version"));
        let mixed = [before.bytes(0, 250), after.bytes(250, 250)].concat();
        assert!(origin.check_bytes((0, SINCE), (0, 500), &mixed).is_err());
        assert!(origin.check_bytes((0, SINCE), (0, 500), &after.bytes(0, 499)).is_err(), "short");
    }

    #[test]
    fn a_name_that_stood_all_the_time_must_be_listed() {
        let mut origin = changed(Picos::seconds(9));
        assert!(origin.check_listing(SINCE, &[b"file0".to_vec()]).is_ok());
        assert!(origin.check_listing(SINCE, &[]).is_err());
        origin.put(0, None, Picos::seconds(11));
        assert!(origin.check_listing(SINCE, &[]).is_ok());
        origin.forget(Picos::seconds(12));
        assert!(origin.check_listing(Picos::seconds(12), &[b"file0".to_vec()]).is_err());
    }
}
