//! Calls that change something at the origin, with what it says of the state before and after.

use super::{Origin, add, failure};
use crate::limits::WRITE_BYTES_MIN;
use crate::protocol::Version;
use nfs::client::{Caller, Request};
use nfs::convert::{sattr, wall};
use nfs::rpc::Groups;
use nfs::v3::{
    Args, CreateArgs, CreateHow, CreateOk, DirOpArgs, Fattr, Handle, LinkArgs, LinkResult,
    MkdirArgs, MknodArgs, NodeKind, Outcome, Path, RenameArgs, Results, Sattr, SetattrArgs,
    StableHow, SymlinkArgs, WccData,
};
use wire::{Errno, SetAttr};

/// An object to be made at the origin.
pub(crate) enum Made<'a> {
    File(CreateHow),
    Directory(Sattr),
    Symlink(Sattr, &'a [u8]),
    Node(NodeKind),
}

/// A file that was made, as far as the origin says.
pub(crate) struct New {
    pub handle: Option<Vec<u8>>,
    pub attributes: Option<Fattr>,
    /// Of the directory.
    pub wcc: WccData,
}

/// A name in a directory of the origin's.
pub(crate) type NameIn<'a> = (&'a [u8], &'a [u8]);

/// The version of before a change, where it was captured in one step with that.
pub(crate) fn version_before(wcc: &WccData) -> Option<Version> {
    let before = wcc.before?;
    Some(Version { mtime: wall(before.mtime)?, ctime: wall(before.ctime)?, size: before.size })
}

fn place<'a>((dir, name): NameIn<'a>) -> DirOpArgs<'a> {
    DirOpArgs { dir: Handle(dir), name: Path(name) }
}

impl Origin {
    /// The caller with this user; without one, the importer's.
    pub(crate) fn caller(&self, user: Option<(u32, u32, Groups)>) -> Caller {
        match user {
            Some((uid, gid, groups)) => {
                Caller { machine: self.caller.machine.clone(), uid, gid, groups }
            }
            None => self.caller.clone(),
        }
    }

    /// Bytes that one WRITE may have.
    pub(crate) async fn write_max(&self) -> Result<usize, Errno> {
        if let Some(max) = self.write_max.get() {
            return Ok(max as usize);
        }
        let root = self.root().await?;
        let told = self.call(Args::Fsinfo(Handle(&root)), |results| match results {
            Results::Fsinfo(Outcome::Ok(ok)) => Ok(ok.write_max),
            other => Err(failure(&other)),
        });
        let max = told.await?.max(WRITE_BYTES_MIN);
        self.write_max.set(Some(max));
        Ok(max as usize)
    }

    /// Writes to stable storage (DATA_SYNC); how many bytes of the data. EIO where the origin keeps no such promise.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        (file, offset): (&[u8], u64),
        data: &[u8],
    ) -> Result<(usize, WccData), Errno> {
        let request = Request::write(Handle(file), offset, StableHow::DataSync, data);
        self.call_as(caller, &request, |results| match results {
            Results::Write(Outcome::Ok(ok)) => {
                let is_stable = ok.committed != StableHow::Unstable;
                let is_some = (1..=data.len()).contains(&(ok.count as usize));
                if !is_stable || !is_some {
                    return Err(Errno::EIO);
                }
                add(&self.counters.written_bytes, ok.count as usize);
                Ok((ok.count as usize, ok.wcc))
            }
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn set_attributes(
        &self,
        caller: &Caller,
        file: &[u8],
        changes: &SetAttr,
    ) -> Result<WccData, Errno> {
        let (object, attributes) = (Handle(file), sattr(changes));
        let args = Args::Setattr(SetattrArgs { object, attributes, guard: None });
        self.call_as(caller, &args.into(), |results| match results {
            Results::Setattr(Outcome::Ok(wcc)) => Ok(wcc),
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn make(
        &self,
        caller: &Caller,
        at: NameIn<'_>,
        made: &Made<'_>,
    ) -> Result<New, Errno> {
        let place = place(at);
        let args = match *made {
            Made::File(how) => Args::Create(CreateArgs { place, how }),
            Made::Directory(attributes) => Args::Mkdir(MkdirArgs { place, attributes }),
            Made::Symlink(attributes, target) => {
                Args::Symlink(SymlinkArgs { place, attributes, target: Path(target) })
            }
            Made::Node(what) => Args::Mknod(MknodArgs { place, what }),
        };
        let new = |ok: CreateOk<'_>| New {
            handle: ok.object.map(|handle| handle.0.to_vec()),
            attributes: ok.attributes,
            wcc: ok.wcc,
        };
        self.call_as(caller, &args.into(), |results| match results {
            Results::Create(Outcome::Ok(ok))
            | Results::Mkdir(Outcome::Ok(ok))
            | Results::Symlink(Outcome::Ok(ok))
            | Results::Mknod(Outcome::Ok(ok)) => Ok(new(ok)),
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn remove(
        &self,
        caller: &Caller,
        at: NameIn<'_>,
        is_directory: bool,
    ) -> Result<WccData, Errno> {
        let place = place(at);
        let args = if is_directory { Args::Rmdir(place) } else { Args::Remove(place) };
        self.call_as(caller, &args.into(), |results| match results {
            Results::Remove(Outcome::Ok(wcc)) | Results::Rmdir(Outcome::Ok(wcc)) => Ok(wcc),
            other => Err(failure(&other)),
        })
        .await
    }

    /// Renames; of both directories before and after.
    pub(crate) async fn rename(
        &self,
        caller: &Caller,
        from: NameIn<'_>,
        to: NameIn<'_>,
    ) -> Result<[WccData; 2], Errno> {
        let args = Args::Rename(RenameArgs { from: place(from), to: place(to) });
        self.call_as(caller, &args.into(), |results| match results {
            Results::Rename(Outcome::Ok(both)) => Ok([both.from, both.to]),
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn link(
        &self,
        caller: &Caller,
        file: &[u8],
        at: NameIn<'_>,
    ) -> Result<LinkResult, Errno> {
        let args = Args::Link(LinkArgs { file: Handle(file), link: place(at) });
        self.call_as(caller, &args.into(), |results| match results {
            Results::Link(Outcome::Ok(linked)) => Ok(linked),
            other => Err(failure(&other)),
        })
        .await
    }
}
