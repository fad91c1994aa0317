//! Any values of the protocols, made of bytes and numbers that live long enough to be borrowed.

use nfs::v3::*;
use proptest::prelude::*;

/// Random material for values.
#[derive(Clone, Debug)]
pub struct Material {
    pub handles: [Vec<u8>; 2],
    pub names: [Vec<u8>; 2],
    pub words: [u32; 12],
    pub longs: [u64; 4],
    pub flags: [bool; 8],
    pub verifier: [u8; 8],
}

pub fn material() -> impl Strategy<Value = Material> {
    let handle = || prop::collection::vec(any::<u8>(), 0..=64);
    let name = || prop::collection::vec(any::<u8>(), 0..=300);
    let numbers = (any::<[u32; 12]>(), any::<[u64; 4]>(), any::<[bool; 8]>(), any::<[u8; 8]>());
    ([handle(), handle()], [name(), name()], numbers).prop_map(
        |(handles, names, (words, longs, flags, verifier))| Material {
            handles,
            names,
            words,
            longs,
            flags,
            verifier,
        },
    )
}

impl Material {
    pub fn handle(&self, which: usize) -> Handle<'_> {
        Handle(&self.handles[which])
    }

    pub fn place(&self, which: usize) -> DirOpArgs<'_> {
        DirOpArgs { dir: self.handle(which), name: Path(&self.names[which]) }
    }

    fn time(&self, which: usize) -> NfsTime {
        NfsTime { seconds: self.words[which], nseconds: self.words[which + 1] }
    }

    fn set_time(&self, which: usize) -> SetTime {
        match self.words[which] % 3 {
            0 => SetTime::DontChange,
            1 => SetTime::ToServerTime,
            _ => SetTime::ToClientTime(self.time(which)),
        }
    }

    pub fn sattr(&self) -> Sattr {
        let [mode, uid, gid, size, ..] = self.flags;
        Sattr {
            mode: mode.then_some(self.words[0]),
            uid: uid.then_some(self.words[1]),
            gid: gid.then_some(self.words[2]),
            size: size.then_some(self.longs[0]),
            atime: self.set_time(3),
            mtime: self.set_time(4),
        }
    }

    fn numbers(&self) -> NodeNumbers {
        NodeNumbers { major: self.words[5], minor: self.words[6] }
    }

    fn how(&self) -> CreateHow {
        match self.words[7] % 3 {
            0 => CreateHow::Unchecked(self.sattr()),
            1 => CreateHow::Guarded(self.sattr()),
            _ => CreateHow::Exclusive(self.verifier),
        }
    }

    fn node(&self) -> NodeKind {
        match self.words[8] % 4 {
            0 => NodeKind::Character(self.sattr(), self.numbers()),
            1 => NodeKind::Block(self.sattr(), self.numbers()),
            2 => NodeKind::Socket(self.sattr()),
            _ => NodeKind::Fifo(self.sattr()),
        }
    }

    pub fn stable(&self) -> StableHow {
        StableHow::of(self.words[9] % 3).unwrap()
    }

    pub fn args(&self, procedure: Procedure) -> Args<'_> {
        let (handle, place) = (self.handle(0), self.place(0));
        let [offset, cookie, ..] = self.longs;
        let [count, more, ..] = self.words;
        let verifier = self.verifier;
        match procedure {
            Procedure::Null => Args::Null(()),
            Procedure::Getattr => Args::Getattr(handle),
            Procedure::Setattr => {
                let guard = self.flags[7].then(|| self.time(10));
                Args::Setattr(SetattrArgs { object: handle, attributes: self.sattr(), guard })
            }
            Procedure::Lookup => Args::Lookup(place),
            Procedure::Access => Args::Access(AccessArgs { object: handle, access: count }),
            Procedure::Readlink => Args::Readlink(handle),
            Procedure::Read => Args::Read(ReadArgs { file: handle, offset, count }),
            Procedure::Write => {
                let stable = self.stable();
                Args::Write(WriteArgs { file: handle, offset, count, stable, data_bytes: 0 })
            }
            Procedure::Create => Args::Create(CreateArgs { place, how: self.how() }),
            Procedure::Mkdir => Args::Mkdir(MkdirArgs { place, attributes: self.sattr() }),
            Procedure::Symlink => {
                let target = Path(&self.names[1]);
                Args::Symlink(SymlinkArgs { place, attributes: self.sattr(), target })
            }
            Procedure::Mknod => Args::Mknod(MknodArgs { place, what: self.node() }),
            Procedure::Remove => Args::Remove(place),
            Procedure::Rmdir => Args::Rmdir(place),
            Procedure::Rename => Args::Rename(RenameArgs { from: place, to: self.place(1) }),
            Procedure::Link => Args::Link(LinkArgs { file: handle, link: self.place(1) }),
            Procedure::Readdir => {
                Args::Readdir(ReaddirArgs { dir: handle, cookie, verifier, count })
            }
            Procedure::Readdirplus => {
                let (dircount, maxcount) = (count, more);
                Args::Readdirplus(ReaddirplusArgs {
                    dir: handle,
                    cookie,
                    verifier,
                    dircount,
                    maxcount,
                })
            }
            Procedure::Fsstat => Args::Fsstat(handle),
            Procedure::Fsinfo => Args::Fsinfo(handle),
            Procedure::Pathconf => Args::Pathconf(handle),
            Procedure::Commit => Args::Commit(CommitArgs { file: handle, offset, count }),
        }
    }

    pub fn fattr(&self) -> Fattr {
        let [size, used, fsid, fileid] = self.longs;
        let [mode, nlink, uid, gid, ..] = self.words;
        Fattr {
            kind: FileType::ALL[self.words[4] as usize % 7],
            mode,
            nlink,
            uid,
            gid,
            size,
            used,
            rdev: self.numbers(),
            fsid,
            fileid,
            atime: self.time(5),
            mtime: self.time(7),
            ctime: self.time(9),
        }
    }

    pub fn after(&self, which: usize) -> Option<Fattr> {
        self.flags[which].then(|| self.fattr())
    }

    pub fn wcc(&self, which: usize) -> WccData {
        let before = WccAttr { size: self.longs[3], mtime: self.time(0), ctime: self.time(2) };
        WccData { before: self.flags[which].then_some(before), after: self.after(which + 1) }
    }

    /// Any status but success.
    pub fn status(&self) -> Status {
        Status::ALL[1 + self.words[11] as usize % (Status::ALL.len() - 1)]
    }
}
