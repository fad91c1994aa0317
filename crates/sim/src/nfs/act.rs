//! The calls of an application, as records on the stream.

use super::bytes::{CELL_BYTES, CELLS, fill};
use super::shared::Shared;
use super::token::Step;
use super::tree::Change;
use nfs::client::{Client, Request};
use nfs::mount::{self, DirPath};
use nfs::v3::{
    Args, CommitArgs, CreateArgs, CreateHow, DirOpArgs, Handle, LinkArgs, MkdirArgs, NfsTime, Path,
    ReadArgs, ReaddirArgs, ReaddirplusArgs, RenameArgs, Sattr, SetattrArgs, StableHow,
};

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// MNT of the root directory.
    Mount,
    /// MKDIR of the application's own directory.
    Home,
    /// LOOKUP of it.
    FindHome,
    /// LOOKUP in it.
    Look(u8),
    /// A change of its names.
    Change(Change),
    /// An exclusive CREATE in the root directory.
    Race(usize),
    /// GETATTR of an own file.
    Size(u64),
    /// READ of a cell of an own file.
    Read(u64, usize),
    /// WRITE of this version of a cell.
    Write { file: u64, cell: usize, version: u32, stable: bool },
    /// COMMIT.
    Commit(u64),
    /// SETATTR of an own file's size, to so many cells.
    Cut(u64, usize),
    /// READ behind the end of an own file.
    ReadBehind(u64),
    /// SETATTR whose guard is no time of the file's.
    BadGuard(u64),
    /// READDIR or READDIRPLUS from a cookie.
    List { plus: bool, cookie: u64, verifier: [u8; 8], bytes: u32 },
    /// GETATTR of another application's file, before a cell of it is read.
    OthersSize { of: usize, file: u64, cell: usize },
    /// READ of it.
    OthersRead { of: usize, file: u64, cell: usize, asked: crate::queue::Picos },
    /// About the file that is renamed on and on.
    Token(Step),
}

/// A place in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The application.
    pub number: usize,
    /// Handle of the root directory.
    pub root: &'a [u8],
    /// Handle of the application's own directory.
    pub home: &'a [u8],
}

/// A name in an application's directory: long, so that few fit in one reply.
pub fn name(number: u8) -> Vec<u8> {
    format!("{number}-{}", "n".repeat(40)).into_bytes()
}

/// The number of a name.
pub fn number_of(name: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(name).ok()?;
    let number = text.split_once('-')?.0.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

fn home(number: usize) -> Vec<u8> {
    format!("nfs{number}").into_bytes()
}

impl Act {
    /// Appends the call's record; its xid.
    pub fn call(
        &self,
        places: Places<'_>,
        shared: &Shared,
        calls: &mut Client,
        out: &mut Vec<u8>,
    ) -> u32 {
        let root = Handle(places.root);
        let own = home(places.number);
        let handle = |file: u64| Handle(shared.handle(file));
        let args = match *self {
            Act::Mount => return calls.call(&mount::Args::Mnt(DirPath(b"/")).into(), out),
            Act::Token(step) => {
                return step.arguments(places.root, shared, |args| calls.call(&args.into(), out));
            }
            Act::Change(change) => return call_change(change, places, shared, calls, out),
            Act::Write { file, cell, version, stable } => {
                let data = fill(file, cell, version);
                let stable = if stable { StableHow::FileSync } else { StableHow::Unstable };
                let request = Request::write(handle(file), offset(cell), stable, &data);
                return calls.call(&request, out);
            }
            Act::Race(race) => {
                let name = format!("race{race}");
                let place = DirOpArgs { dir: root, name: Path(name.as_bytes()) };
                let verifier = (places.number as u64 + 1) << 32 | race as u64;
                let how = CreateHow::Exclusive(verifier.to_be_bytes());
                return calls.call(&Args::Create(CreateArgs { place, how }).into(), out);
            }
            Act::Look(number) => {
                let name = name(number);
                let place = DirOpArgs { dir: Handle(places.home), name: Path(&name) };
                return calls.call(&Args::Lookup(place).into(), out);
            }
            Act::Home => {
                let place = DirOpArgs { dir: root, name: Path(&own) };
                Args::Mkdir(MkdirArgs { place, attributes: Sattr::default() })
            }
            Act::FindHome => Args::Lookup(DirOpArgs { dir: root, name: Path(&own) }),
            Act::Size(file) | Act::OthersSize { file, .. } => Args::Getattr(handle(file)),
            Act::Read(file, cell) | Act::OthersRead { file, cell, .. } => {
                read(handle(file), offset(cell))
            }
            Act::ReadBehind(file) => read(handle(file), offset(CELLS) + 1),
            Act::Cut(file, cells) => {
                let attributes = Sattr { size: Some(offset(cells)), ..Sattr::default() };
                Args::Setattr(SetattrArgs { object: handle(file), attributes, guard: None })
            }
            Act::Commit(file) => {
                Args::Commit(CommitArgs { file: handle(file), offset: 0, count: 0 })
            }
            Act::BadGuard(file) => {
                let attributes = Sattr { mode: Some(0o600), ..Sattr::default() };
                let guard = Some(NfsTime { seconds: 5, nseconds: 5 });
                Args::Setattr(SetattrArgs { object: handle(file), attributes, guard })
            }
            Act::List { plus, cookie, verifier, bytes } => {
                let (dir, dircount, maxcount) = (Handle(places.home), bytes, bytes);
                let plain = ReaddirArgs { dir, cookie, verifier, count: bytes };
                let attributes = ReaddirplusArgs { dir, cookie, verifier, dircount, maxcount };
                if plus { Args::Readdirplus(attributes) } else { Args::Readdir(plain) }
            }
        };
        calls.call(&args.into(), out)
    }
}

fn offset(cell: usize) -> u64 {
    (cell * CELL_BYTES) as u64
}

fn read(file: Handle<'_>, offset: u64) -> Args<'_> {
    Args::Read(ReadArgs { file, offset, count: CELL_BYTES as u32 })
}

fn call_change(
    change: Change,
    places: Places<'_>,
    shared: &Shared,
    calls: &mut Client,
    out: &mut Vec<u8>,
) -> u32 {
    let dir = Handle(places.home);
    let names: Vec<Vec<u8>> = change.names().map(name).collect();
    let place = DirOpArgs { dir, name: Path(&names[0]) };
    let attributes = Sattr::default();
    let args = match change {
        Change::Guarded(_) => {
            Args::Create(CreateArgs { place, how: CreateHow::Guarded(attributes) })
        }
        Change::Unchecked(_) => {
            Args::Create(CreateArgs { place, how: CreateHow::Unchecked(attributes) })
        }
        Change::Exclusive(_, verifier) => {
            let how = CreateHow::Exclusive(verifier.to_be_bytes());
            Args::Create(CreateArgs { place, how })
        }
        Change::Mkdir(_) => Args::Mkdir(MkdirArgs { place, attributes }),
        Change::Remove(_) => Args::Remove(place),
        Change::Rmdir(_) => Args::Rmdir(place),
        Change::Rename(..) => {
            Args::Rename(RenameArgs { from: place, to: DirOpArgs { dir, name: Path(&names[1]) } })
        }
        Change::Link(file, _) => {
            Args::Link(LinkArgs { file: Handle(shared.handle(file)), link: place })
        }
    };
    calls.call(&args.into(), out)
}
