//! Files that RENAME moves from one directory to another, and back.

use super::client::Client;
use nfs::client::Request;
use nfs::v3::{
    Args, CreateArgs, CreateHow, DirOpArgs, Handle, MkdirArgs, Outcome, Path, RenameArgs, Results,
    Sattr, SetTime,
};
use std::cell::Cell;
use std::io;

/// More than are ever in progress: no two calls are about one name.
const FILES: usize = 256;

/// Two directories with files that move between them.
pub struct Moves {
    directories: [Vec<u8>; 2],
    names: Vec<Vec<u8>>,
    /// Calls so far.
    made: Cell<usize>,
}

impl Moves {
    /// Makes files in the first of two directories below an export's root, which are made where they are not there.
    pub fn between(client: &mut Client, root: &[u8], names: [&str; 2]) -> io::Result<Moves> {
        let mut directory = |name: &str| match lookup(client, place(root, name.as_bytes())) {
            Ok(found) => Ok(found),
            Err(_) => make_directory(client, root, name),
        };
        let directories = [directory(names[0])?, directory(names[1])?];
        let prefix = names[1];
        let names: Vec<Vec<u8>> =
            (0..FILES).map(|number| format!("{prefix}-{number:03}").into_bytes()).collect();
        for name in &names {
            let how = CreateHow::Guarded(sattr(0o644));
            let create = CreateArgs { place: place(&directories[0], name), how };
            client.call(&Args::Create(create).into(), |_| Ok(()))?;
        }
        Ok(Moves { directories, names, made: Cell::new(0) })
    }

    /// The next: all files go to the second directory, then all back.
    pub fn request(&self) -> Request<'_> {
        let number = self.made.replace(self.made.get() + 1);
        let (name, from) = (&self.names[number % FILES], number / FILES % 2);
        let place = |at: usize| place(&self.directories[at], name);
        Args::Rename(RenameArgs { from: place(from), to: place(1 - from) }).into()
    }
}

fn place<'a>(dir: &'a [u8], name: &'a [u8]) -> DirOpArgs<'a> {
    DirOpArgs { dir: Handle(dir), name: Path(name) }
}

/// Attributes of something new.
pub fn sattr(mode: u32) -> Sattr {
    let (atime, mtime) = (SetTime::DontChange, SetTime::DontChange);
    Sattr { mode: Some(mode), uid: None, gid: None, size: None, atime, mtime }
}

/// Makes an empty directory; its handle.
pub fn make_directory(client: &mut Client, dir: &[u8], name: &str) -> io::Result<Vec<u8>> {
    let place = place(dir, name.as_bytes());
    let mkdir = MkdirArgs { place, attributes: sattr(0o755) };
    client.call(&Args::Mkdir(mkdir).into(), |_| Ok(()))?;
    lookup(client, place)
}

/// The handle of a name.
pub fn lookup(client: &mut Client, place: DirOpArgs<'_>) -> io::Result<Vec<u8>> {
    client.call(&Args::Lookup(place).into(), |reply| {
        match reply.nfs().map_err(io::Error::other)? {
            Results::Lookup(Outcome::Ok(found)) => Ok(found.object.0.to_vec()),
            other => Err(io::Error::other(format!("LOOKUP: {other:?}"))),
        }
    })
}
