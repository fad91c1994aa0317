//! The load: kinds of calls over a small tree that every server has.

use super::client::Client;
use super::moves::{Moves, lookup, make_directory, sattr};
use crate::arguments::{Nfs, NfsCalls};
use hdrhistogram::Histogram;
use nfs::client::Request;
use nfs::v3::{
    Args, CommitArgs, CreateArgs, CreateHow, DirOpArgs, Handle, Path, ReadArgs, ReaddirplusArgs,
    StableHow,
};
use std::io;

/// Files of the tree, of 64 KiB each: 16 MiB, in every server's memory.
const FILES: usize = 256;
const FILE_BYTES: usize = 64 << 10;
const BLOCK_BYTES: u32 = 8 << 10;
/// Of so many calls of the kind [`NfsCalls::Write`] one is a COMMIT.
const WRITES_PER_COMMIT: usize = 32;
/// Bytes that a READDIRPLUS may answer with.
const LISTING_BYTES: u32 = 32 << 10;

impl NfsCalls {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            NfsCalls::Getattr => "GETATTR",
            NfsCalls::Lookup => "LOOKUP",
            NfsCalls::Create => "CREATE",
            NfsCalls::Remove => "REMOVE",
            NfsCalls::Rename => "RENAME",
            NfsCalls::Read8 => "READ 8 KiB",
            NfsCalls::Read64 => "READ 64 KiB",
            NfsCalls::Write => "WRITE 8 KiB, COMMIT",
            NfsCalls::Readdirplus => "READDIRPLUS",
            NfsCalls::Mix => "mix",
        }
    }

    /// Calls of a round: of dear kinds fewer, which take as long.
    pub fn count(self, arguments: &Nfs) -> usize {
        let count = (arguments.count / arguments.rounds).max(1) as usize;
        match self {
            NfsCalls::Create | NfsCalls::Remove | NfsCalls::Rename | NfsCalls::Readdirplus => {
                count / 16 + 1
            }
            NfsCalls::Read64 => count / 4 + 1,
            _ => count,
        }
    }
}

/// The tree of one server.
pub struct Tree {
    directory: Vec<u8>,
    files: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    data: Vec<u8>,
    moves: Moves,
}

impl Tree {
    /// Makes it below an export's root, in a new directory of this name, and writes every file. RENAME has two more.
    pub fn make(
        client: &mut Client,
        root: &[u8],
        name: &str,
        renamed: [&str; 2],
    ) -> io::Result<Tree> {
        let directory = make_directory(client, root, name)?;
        let moves = Moves::between(client, root, renamed)?;
        let data: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 7) as u8).collect();
        let names: Vec<Vec<u8>> =
            (0..FILES).map(|number| format!("file-{number:03}").into_bytes()).collect();
        let mut tree = Tree { directory, files: Vec::new(), names, data, moves };
        for number in 0..FILES {
            let place = DirOpArgs { dir: Handle(&tree.directory), name: Path(&tree.names[number]) };
            let how = CreateHow::Unchecked(sattr(0o644));
            client.call(&Args::Create(CreateArgs { place, how }).into(), |_| Ok(()))?;
            let file = lookup(client, place)?;
            let write = Request::write(Handle(&file), 0, StableHow::FileSync, &tree.data);
            client.call(&write, |_| Ok(()))?;
            tree.files.push(file);
        }
        Ok(tree)
    }

    /// `count` calls of a kind, `depth` in progress; `first` tells rounds apart.
    pub fn calls(
        &self,
        client: &mut Client,
        kind: NfsCalls,
        depth: usize,
        (first, count): (usize, usize),
    ) -> io::Result<Histogram<u64>> {
        let made: Vec<Vec<u8>> = match kind {
            NfsCalls::Create | NfsCalls::Remove => {
                (first..first + count).map(|n| format!("made-{n:08}").into_bytes()).collect()
            }
            _ => Vec::new(),
        };
        client.calls(depth, count, |number| self.request(kind, number, &made))
    }

    fn request<'a>(&'a self, kind: NfsCalls, number: usize, made: &'a [Vec<u8>]) -> Request<'a> {
        let which = number % FILES;
        let (dir, file) = (Handle(&self.directory), Handle(&self.files[which]));
        let read = |bytes: u32| {
            let blocks = (FILE_BYTES as u32 / bytes) as usize;
            let offset = (number / FILES % blocks) as u64 * u64::from(bytes);
            Args::Read(ReadArgs { file, offset, count: bytes }).into()
        };
        match kind {
            NfsCalls::Getattr => Args::Getattr(file).into(),
            NfsCalls::Lookup => {
                Args::Lookup(DirOpArgs { dir, name: Path(&self.names[which]) }).into()
            }
            NfsCalls::Create => {
                let place = DirOpArgs { dir, name: Path(&made[number]) };
                Args::Create(CreateArgs { place, how: CreateHow::Guarded(sattr(0o644)) }).into()
            }
            NfsCalls::Remove => Args::Remove(DirOpArgs { dir, name: Path(&made[number]) }).into(),
            NfsCalls::Rename => self.moves.request(),
            NfsCalls::Read8 => read(BLOCK_BYTES),
            NfsCalls::Read64 => read(FILE_BYTES as u32),
            NfsCalls::Write => self.write(number),
            NfsCalls::Readdirplus => Args::Readdirplus(ReaddirplusArgs {
                dir,
                cookie: 0,
                verifier: [0; 8],
                dircount: LISTING_BYTES,
                maxcount: LISTING_BYTES,
            })
            .into(),
            NfsCalls::Mix => self.request(mixed(number), number, made),
        }
    }

    /// Runs of writes to one file, with a COMMIT of it at the end of each.
    fn write(&self, number: usize) -> Request<'_> {
        let (run, at) = (number / WRITES_PER_COMMIT, number % WRITES_PER_COMMIT);
        let file = Handle(&self.files[run % FILES]);
        if at == WRITES_PER_COMMIT - 1 {
            return Args::Commit(CommitArgs { file, offset: 0, count: 0 }).into();
        }
        let offset = (at as u64 * u64::from(BLOCK_BYTES)) % FILE_BYTES as u64;
        let data = &self.data[..BLOCK_BYTES as usize];
        Request::write(file, offset, StableHow::Unstable, data)
    }
}

fn mixed(number: usize) -> NfsCalls {
    match number * 7 % 20 {
        0..8 => NfsCalls::Getattr,
        8..13 => NfsCalls::Lookup,
        13..17 => NfsCalls::Read8,
        17..19 => NfsCalls::Write,
        _ => NfsCalls::Readdirplus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_parts_that_it_says() {
        let of = |kind| (0..20).filter(|number| mixed(*number) == kind).count();
        let parts = [
            NfsCalls::Getattr,
            NfsCalls::Lookup,
            NfsCalls::Read8,
            NfsCalls::Write,
            NfsCalls::Readdirplus,
        ];
        assert_eq!(parts.map(of), [8, 5, 4, 2, 1]);
    }
}
