//! Mirroring a directory: our names become the origin's, with inodes of ours.
//!
//! A name is the same file as long as its handle is. Of a file that is another one the name goes, and comes anew.

use crate::limits::*;
use crate::origin::{Listed, changes, version};
use crate::protocol::Kept;
use crate::service::{Foreign, Service};
use names::{Entry, How, ListingEntry, Plus, Who};
use nfs::convert::{file_kind, rdev};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Errno, FileId, FileKind, Time};

/// Permissions of a file until its own are set.
const NONE_YET: u32 = 0;

/// The first error of all, when all have ended.
async fn all_done(
    work: impl Iterator<Item = impl Future<Output = Result<(), Errno>>>,
) -> Result<(), Errno> {
    node::all(work).await.into_iter().collect()
}

/// The names of a directory of ours, but for `.` and `..`.
pub(crate) async fn names_of(
    names: &names::Client,
    id: FileId,
) -> Result<BTreeMap<Vec<u8>, ListingEntry>, Errno> {
    let (mut all, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let bytes = LISTING_BYTES as usize;
        let part = names.read_directory(&Who::ROOT, id, cookie, bytes, Plus::Nothing).await?;
        cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
        let named = part.entries.into_iter().filter(|it| !matches!(&*it.name, b"." | b".."));
        all.extend(named.map(|entry| (entry.name.to_vec(), entry)));
        if part.end {
            return Ok(all);
        }
    }
}

/// Whether the volume cannot have such a file: too long, or a link to nothing. The others of its directory are shown.
fn is_unfit(errno: Errno) -> bool {
    matches!(errno, Errno::EFBIG | Errno::ENAMETOOLONG | Errno::EINVAL | Errno::ENOENT)
}

/// Takes all names of a directory of ours away, and what is below them; the files.
pub async fn empty(names: &names::Client, directory: FileId) -> Result<Vec<FileId>, Errno> {
    let mut gone = Vec::new();
    for entry in names_of(names, directory).await?.values() {
        gone.extend(remove(names, directory, entry).await?);
    }
    Ok(gone)
}

/// Takes a name of ours away, and all below it; the files.
async fn remove(
    names: &names::Client,
    directory: FileId,
    entry: &ListingEntry,
) -> Result<Vec<FileId>, Errno> {
    let mut gone = Vec::new();
    let removed = if entry.kind == FileKind::Directory {
        gone = Box::pin(empty(names, entry.file)).await?;
        names.remove_directory(&Who::ROOT, directory, &entry.name).await
    } else {
        names.unlink(&Who::ROOT, directory, &entry.name).await
    };
    gone.push(entry.file);
    match removed {
        Ok(_) | Err(Errno::ENOENT) => Ok(gone),
        Err(errno) => Err(errno),
    }
}

impl Service {
    /// Lists the origin's directory and makes ours the same.
    pub(crate) async fn mirror(&self, directory: FileId, handle: &[u8]) -> Result<(), Errno> {
        let asked = self.cx.now();
        let theirs = self.origin.list(handle).await?;
        let mut ours = names_of(&self.names, directory).await?;
        let pairs = theirs.iter().map(|listed| (listed, ours.remove(&*listed.name)));
        let pairs: Vec<_> = pairs.collect();
        for entry in ours.values() {
            self.drop_name(directory, entry).await?;
        }
        for some in pairs.chunks(NAMES_AT_ONCE) {
            let adopted =
                some.iter().map(|(listed, our)| self.adopt(directory, listed, our.as_ref(), asked));
            all_done(adopted).await?;
        }
        Ok(())
    }

    pub(crate) async fn drop_name(
        &self,
        directory: FileId,
        entry: &ListingEntry,
    ) -> Result<(), Errno> {
        let gone = remove(&self.names, directory, entry).await?;
        gone.into_iter().for_each(|id| self.forget(id));
        Ok(())
    }

    /// Makes our name the origin's, whose attributes are of the time `asked`.
    pub(crate) async fn adopt(
        &self,
        directory: FileId,
        listed: &Listed,
        our: Option<&ListingEntry>,
        asked: Time,
    ) -> Result<(), Errno> {
        if let Some(entry) = our {
            if self.is_same(listed, entry).await? {
                return self.refresh(listed, entry, asked).await;
            }
            self.drop_name(directory, entry).await?;
        }
        let made = match self.make(directory, listed).await {
            Ok(Some(made)) => made,
            Ok(None) => return Ok(()),
            Err(errno) if is_unfit(errno) => {
                self.report_unfit(listed, errno);
                return Ok(());
            }
            Err(errno) => return Err(errno),
        };
        let kept = Kept { handle: listed.handle.as_slice().into(), ..Kept::default() };
        let file = self.remember(&made, kept.clone());
        match file.in_turn(self.begin(&file, kept, listed, asked)).await {
            Err(errno) if is_unfit(errno) => {
                self.report_unfit(listed, errno);
                self.names.unlink(&Who::ROOT, directory, &listed.name).await?;
                self.forget(file.id);
                Ok(())
            }
            result => result,
        }
    }

    fn report_unfit(&self, listed: &Listed, errno: Errno) {
        let name = String::from_utf8_lossy(&listed.name);
        self.origin.report(&format!("{name:?} cannot be shown: {errno}"));
    }

    /// Gives a file that was made the origin's attributes.
    async fn begin(
        &self,
        file: &Rc<Foreign>,
        kept: Kept,
        listed: &Listed,
        asked: Time,
    ) -> Result<(), Errno> {
        if file.kind == FileKind::Directory {
            // not listed: its version stays none
            self.names.set_attr(&Who::ROOT, file.id, changes(&listed.attributes), false).await?;
            file.state.borrow_mut().shown = Some((version(&listed.attributes), asked));
            return self.keep(file, &kept).await;
        }
        self.renew(file, &listed.attributes, version(&listed.attributes)).await?;
        file.note_asked(asked);
        Ok(())
    }

    async fn is_same(&self, listed: &Listed, entry: &ListingEntry) -> Result<bool, Errno> {
        if file_kind(listed.attributes.kind) != entry.kind {
            return Ok(false);
        }
        match self.load(entry.file).await {
            Ok(file) => Ok(*file.state.borrow().kept.handle == *listed.handle),
            // half made, or a device, which is none of the import's
            Err(Errno::ESTALE | Errno::EINVAL) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// A file that stays has the attributes that were listed; names of a directory are compared when asked for.
    async fn refresh(
        &self,
        listed: &Listed,
        entry: &ListingEntry,
        asked: Time,
    ) -> Result<(), Errno> {
        let file = self.load(entry.file).await?;
        self.learn_listed(&file, &listed.attributes, asked).await.map(drop)
    }

    /// Makes a name with an inode; `None` where it went from the origin meanwhile, or is none that we can make.
    async fn make(&self, parent: FileId, listed: &Listed) -> Result<Option<Entry>, Errno> {
        let (who, name) = (&Who::ROOT, &*listed.name);
        let kind = file_kind(listed.attributes.kind);
        let made = match kind {
            FileKind::Regular => {
                let made = self.names.create(who, parent, name, NONE_YET, How::Guarded, None).await;
                made.map(|(entry, _)| entry)
            }
            FileKind::Directory => self.names.make_directory(who, parent, name, NONE_YET).await,
            FileKind::Symlink => match self.origin.link_target(&listed.handle).await {
                Ok(target) => self.names.symlink(who, parent, name, &target).await,
                Err(Errno::ESTALE) => return Ok(None),
                Err(errno) => Err(errno),
            },
            FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => {
                let Some(rdev) = rdev(listed.attributes.rdev) else { return Ok(None) };
                self.names.make_node(who, parent, name, kind.mode_bits(), rdev).await
            }
        };
        made.map(Some)
    }
}
