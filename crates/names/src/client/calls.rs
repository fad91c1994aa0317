//! The operations that hold nothing.

use super::{Client, SMALL, Style};
use crate::buckets::{HASHED, LOST};
use crate::create::How;
use crate::directory::{Listing, Plus, Span};
use crate::limits::{
    CHANGES_MAX, DEADLINE, LISTING_BYTES_MAX, LISTING_HEAD_BYTES, REPLY_BYTES_MAX,
};
use crate::lookup::{Entry, LookedUp};
use crate::permissions::Who;
use crate::protocol::{Comparing, Created, FoundIn, Map, Operation, Point};
use crate::quarantine::Aside;
use crate::record::{Policy, SwitchingShare};
use crate::restoration::Restoration;
use crate::salvage::Salvaged;
use crate::servers::IoServer;
use crate::unnamed::Unnamed;
use node::rings::VolumeSpace;
use wire::field::Field;
use wire::limits::PATH_BYTES_MAX;
use wire::{
    Attr, Decoder, Errno, FileId, FileKind, Fragment, Home, ListingVersion, NodeId, SetAttr,
};

const LARGE: Style = Style { room: REPLY_BYTES_MAX, deadline: Some(DEADLINE) };
const PATH: Style = Style { room: PATH_BYTES_MAX, deadline: Some(DEADLINE) };
const UNNAMED: Style = Style { room: PATH_BYTES_MAX + Attr::BYTES, deadline: Some(DEADLINE) };

pub(super) fn decoded<T: for<'a> Field<'a>>(message: Vec<u8>) -> Result<T, Errno> {
    T::take(&mut Decoder::new(&message)).map_err(|_| Errno::EPROTO)
}

impl Client {
    /// The file called `name` in `parent`; `.` and `..` too.
    pub async fn lookup(&self, who: &Who<'_>, parent: FileId, name: &[u8]) -> Result<Entry, Errno> {
        let mut gone = None;
        loop {
            let found = self.find(who, parent, name).await?;
            let LookedUp { file, entry: None } = found else {
                return found.entry.ok_or(Errno::EIO);
            };
            match self.get_attr(file).await {
                // It went meanwhile, with its name.
                Err(Errno::ESTALE) if gone != Some(file) => gone = Some(file),
                entry => return entry,
            }
        }
    }

    /// The file of a name.
    pub(super) async fn find(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<LookedUp, Errno> {
        let Some(asked) = &self.1.wcc else {
            return decoded(self.ask(Operation::Lookup { who: *who, parent, name }, SMALL).await?);
        };
        let style = Style { room: SMALL.room + Attr::BYTES + 1, ..SMALL };
        let answer = self.ask(Operation::LookupIn { who: *who, parent, name }, style).await?;
        let FoundIn { found, directory } = decoded(answer)?;
        asked.saw(directory);
        Ok(found)
    }

    /// The file's entry; ESTALE when it is gone.
    pub async fn get_attr(&self, file: FileId) -> Result<Entry, Errno> {
        if self.is_hashed(file) {
            return self.merged(file).await;
        }
        match self.ask(Operation::GetAttr { file }, SMALL).await {
            Err(HASHED) => self.merged(file).await,
            entry => decoded(entry?),
        }
    }

    /// Changes attributes. `opened`: through a file that is open for writing, so that its mode does not matter for a
    /// change of length.
    pub async fn set_attr(
        &self,
        who: &Who<'_>,
        file: FileId,
        changes: SetAttr,
        opened: bool,
    ) -> Result<Entry, Errno> {
        let operation = Operation::SetAttr { who: *who, file, changes, opened };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// EACCES unless all of `mask` is permitted.
    pub async fn access(&self, who: &Who<'_>, file: FileId, mask: u32) -> Result<(), Errno> {
        self.ask(Operation::Access { who: *who, file, mask }, SMALL).await.map(drop)
    }

    /// The path in a symbolic link.
    pub async fn read_link(&self, file: FileId) -> Result<Box<[u8]>, Errno> {
        decoded(self.ask(Operation::ReadLink { file }, PATH).await?)
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let operation = Operation::Symlink { who: *who, parent, name, target };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// Makes a node of the kind in `mode`.
    pub async fn make_node(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::MakeNode { who: *who, parent, name, mode, rdev };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// Makes a directory.
    pub async fn make_directory(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::MakeDirectory { who: *who, parent, name, mode };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// Makes a regular file and, when `open` says with which permissions ([`crate::READ`], [`crate::WRITE`]), opens it;
    /// a new file whatever its mode. Whether it was made comes with it.
    pub async fn create(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
        how: How,
        open: Option<u32>,
    ) -> Result<(Entry, bool), Errno> {
        let operation = Operation::Create { who: *who, parent, name, mode, how, open };
        loop {
            let file = |created: &Created| created.entry.attr.file;
            match self.made((parent, name), operation.clone(), open, file).await {
                Ok(Created { entry, made }) => return Ok((entry, made)),
                Err(Errno::EREMOTE) => {}
                Err(errno) => return Err(errno),
            }
            match self.take_existing(who, parent, name, how, open).await {
                Ok(entry) => return Ok((entry, false)),
                Err(Errno::ENOENT) => {} // it went meanwhile
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The file that has the name already, and is at another manager than its directory.
    async fn take_existing(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        how: How,
        open: Option<u32>,
    ) -> Result<Entry, Errno> {
        let entry = self.lookup(who, parent, name).await?;
        match (how, entry.attr.kind) {
            (How::Unchecked, FileKind::Directory) => Err(Errno::EISDIR),
            // Its kernel took the name for a free one, as where the file is here.
            (How::Unchecked, _) if who.is_decided() => Err(Errno::ESTALE),
            (How::Unchecked, FileKind::Regular) => match open {
                Some(mask) => self.open_named(who, (parent, name), entry.attr.file, mask).await,
                None => Ok(entry),
            },
            _ => Err(Errno::EEXIST),
        }
    }

    /// Makes a regular file without a name, and opens it: it exists until it is closed, or for good once it is linked.
    pub async fn create_unnamed(
        &self,
        who: &Who<'_>,
        parent: FileId,
        mode: u32,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::CreateUnnamed { who: *who, parent, mode, mask };
        self.made((parent, b"."), operation, Some(mask), |entry: &Entry| entry.attr.file).await
    }

    /// Asks for a new file, which is open with these permissions when that is answered.
    async fn made<T: for<'a> Field<'a>>(
        &self,
        (parent, name): (FileId, &[u8]),
        operation: Operation<'_>,
        open: Option<u32>,
        file: impl Fn(&T) -> FileId,
    ) -> Result<T, Errno> {
        let _permit = self.hold().await;
        let made = self.ask(operation, SMALL).await;
        let made = decoded(self.unsure(self.manager_of_name(parent, name), made)?)?;
        if let Some(mask) = open {
            self.opened(file(&made), mask);
        }
        Ok(made)
    }

    /// Removes a name of anything but a directory; what went with it, if it had no bytes.
    pub async fn unlink(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<Option<Unnamed>, Errno> {
        decoded(self.ask(Operation::Unlink { who: *who, parent, name }, UNNAMED).await?)
    }

    /// Removes an empty directory; what it was.
    pub async fn remove_directory(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<Option<Unnamed>, Errno> {
        decoded(self.ask(Operation::RemoveDirectory { who: *who, parent, name }, UNNAMED).await?)
    }

    /// Renames; `flags` are those of rename(2). Returns the replaced file, if it had no bytes and no other name.
    pub async fn rename(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        new_parent: FileId,
        new_name: &[u8],
        flags: u32,
    ) -> Result<Option<Unnamed>, Errno> {
        let operation = Operation::Rename { who: *who, parent, name, new_parent, new_name, flags };
        decoded(self.ask(operation, UNNAMED).await?)
    }

    /// Another name of a file.
    pub async fn link(
        &self,
        who: &Who<'_>,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        decoded(self.ask(Operation::Link { who: *who, parent, name, file }, SMALL).await?)
    }

    /// Entries of the span that fit in `bytes` bytes of answer, at most 64 KiB; `.` and `..` come first.
    pub async fn read_directory(
        &self,
        who: &Who<'_>,
        file: FileId,
        span: impl Into<Span>,
        bytes: usize,
        plus: Plus,
    ) -> Result<Listing, Errno> {
        self.read_directory_again(who, file, span, bytes, plus, None).await
    }

    /// The same of a part that the caller has as of the version `known`: where that still holds nothing else is said.
    pub async fn read_directory_again(
        &self,
        who: &Who<'_>,
        file: FileId,
        span: impl Into<Span>,
        bytes: usize,
        plus: Plus,
        known: Option<ListingVersion>,
    ) -> Result<Listing, Errno> {
        let bytes = bytes.clamp(1024, LISTING_BYTES_MAX);
        let style = Style { room: bytes + LISTING_HEAD_BYTES, ..SMALL };
        let (mut span, bytes) = (span.into(), bytes as u32);
        loop {
            let operation = Operation::ReadDirectory { who: *who, file, span, bytes, plus, known };
            let listing: Listing = decoded(self.ask(operation, style).await?)?;
            if !listing.end && !listing.is_known && listing.entries.is_empty() {
                span = listing.next.into();
                continue;
            }
            if let Some(asked) = &self.1.wcc {
                asked.saw(listing.directory);
            }
            return Ok(listing);
        }
    }

    /// The value of an extended attribute.
    pub async fn get_xattr(
        &self,
        who: &Who<'_>,
        file: FileId,
        name: &[u8],
    ) -> Result<Box<[u8]>, Errno> {
        decoded(self.ask(Operation::GetXattr { who: *who, file, name }, LARGE).await?)
    }

    /// Gives an extended attribute a value; `flags` are those of setxattr(2).
    pub async fn set_xattr(
        &self,
        who: &Who<'_>,
        file: FileId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        if value.len() > crate::limits::XATTR_VALUE_BYTES_MAX {
            return Err(Errno::ENOSPC);
        }
        let operation = Operation::SetXattr { who: *who, file, name, value, flags };
        self.ask(operation, SMALL).await.map(drop)
    }

    /// The names of all extended attributes, each followed by a zero.
    pub async fn list_xattr(&self, who: &Who<'_>, file: FileId) -> Result<Box<[u8]>, Errno> {
        decoded(self.ask(Operation::ListXattr { who: *who, file }, LARGE).await?)
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(
        &self,
        who: &Who<'_>,
        file: FileId,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.ask(Operation::RemoveXattr { who: *who, file, name }, SMALL).await.map(drop)
    }

    /// Room in the volume. Files at managers that are away are not counted.
    pub async fn space(&self) -> Result<VolumeSpace, Errno> {
        let mut space: VolumeSpace = decoded(self.ask(Operation::Space {}, SMALL).await?)?;
        let others = self.managers().into_iter().filter(|manager| *manager != self.0.first);
        for manager in others {
            let told = self.ask_at(manager, Operation::Space {}, SMALL).await;
            let told = told.and_then(decoded::<VolumeSpace>);
            space.files += told.map_or(0, |told| told.files);
        }
        Ok(space)
    }

    /// Every change acknowledged so far is on stable storage. ESTALE when a power cut had taken one that this client
    /// made since the last sync; it is told once.
    pub async fn sync(&self) -> Result<(), Errno> {
        let managers = self.managers();
        let calls = managers.iter().map(|manager| self.sync_at(*manager));
        node::all(calls).await.into_iter().collect::<Result<(), Errno>>()?;
        // Of several syncs at once the first to end tells of what any of them found.
        if self.0.lost_changes.take() { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// The same of one manager; nothing where that has changed nothing since. A loss is noted.
    pub(super) async fn sync_at(&self, manager: NodeId) -> Result<(), Errno> {
        let (changed, points) = {
            let managers = self.0.managers.borrow();
            let Some(known) = managers.get(&manager) else { return Ok(()) };
            let is_synced = known.synced == known.changed && known.unsynced.is_empty();
            if is_synced && manager != self.0.first {
                return Ok(());
            }
            (known.changed, known.unsynced.clone())
        };
        let changes = points
            .iter()
            .map(|(incarnation, change)| Point { incarnation: *incarnation, change: *change });
        let operation = Operation::Sync { changes: changes.collect() };
        let is_lost = match self.ask_at(manager, operation, SMALL).await {
            Err(Errno::ESTALE) => true,
            answer => answer.map(|_| false)?,
        };
        let mut managers = self.0.managers.borrow_mut();
        let known = managers.get_mut(&manager);
        let is_first = known.is_none_or(|known| known.compared(&points, changed));
        if is_lost && is_first {
            self.0.lost_changes.set(true);
        }
        Ok(())
    }

    /// How new files in a directory are striped.
    pub async fn directory_layout(&self, file: FileId) -> Result<Policy, Errno> {
        decoded(self.ask(Operation::DirectoryLayout { file }, SMALL).await?)
    }

    /// The names of an empty directory are at the sites of their hashes from now on, and so are new files in it.
    /// Of one that is hashed, parts that were lost with a manager's store are made anew, without names.
    pub async fn hash_directory(&self, who: &Who<'_>, file: FileId) -> Result<(), Errno> {
        let mends = self.get_attr(file).await == Err(LOST);
        self.ask(Operation::HashDirectory { who: *who, file, mends }, SMALL).await.map(drop)
    }

    /// Whether the names of a directory are at the sites of their hashes.
    pub async fn is_directory_hashed(&self, file: FileId) -> Result<bool, Errno> {
        self.directory_layout(file).await?;
        Ok(self.share_at(self.manager_of(file), file).await?.is_hashed)
    }

    /// From now on new files in the directory are striped so.
    pub async fn set_directory_layout(
        &self,
        who: &Who<'_>,
        file: FileId,
        policy: Policy,
    ) -> Result<(), Errno> {
        let operation = Operation::SetDirectoryLayout { who: *who, file, policy };
        self.ask(operation, SMALL).await.map(drop)
    }

    /// Fragments of a file's block map from stripe unit `unit` on, with the epoch they belong to.
    pub async fn fragments(
        &self,
        file: FileId,
        unit: u64,
        count: u32,
    ) -> Result<(u32, Vec<Fragment>), Errno> {
        let operation = Operation::Fragments { file, unit, count };
        let Map { epoch, fragments } = decoded(self.ask(operation, LARGE).await?)?;
        Ok((epoch, fragments))
    }

    /// The active I/O servers.
    pub async fn servers(&self) -> Result<Vec<IoServer>, Errno> {
        decoded(self.ask(Operation::Servers {}, LARGE).await?)
    }

    /// From now on so many of 1000 new directories go to the site of their hash; without a number as many as are to be
    /// at other managers in the end. All managers know within seconds. Root's. EINVAL: more than all.
    pub async fn set_switching(&self, who: &Who<'_>, set: Option<u16>) -> Result<(), Errno> {
        let operation = Operation::SetSwitching { who: *who, per_mille: set };
        self.ask(operation, SMALL).await.map(drop)
    }

    /// How many new directories go to the site of their hash, as far as the first manager knows.
    pub async fn switching(&self) -> Result<SwitchingShare, Errno> {
        decoded(self.ask(Operation::Switching {}, SMALL).await?)
    }

    /// From now on the server gets nothing new, or does again. Root's. A manager that is away hears it when it is back.
    pub async fn retire(&self, who: &Who<'_>, server: NodeId, retired: bool) -> Result<(), Errno> {
        for manager in self.all_managers().await {
            let operation = Operation::Retire { who: *who, server, retired };
            match self.ask_at(manager, operation, SMALL).await {
                Err(Errno::EHOSTDOWN | Errno::ENODEV | Errno::ETIMEDOUT)
                    if manager != self.0.first => {}
                asked => asked.map(drop)?,
            }
        }
        Ok(())
    }

    /// All objects that no file claimed, of all managers. Root's.
    pub async fn quarantined(&self, who: &Who<'_>) -> Result<Vec<Aside>, Errno> {
        let (mut all, count) = (Vec::new(), CHANGES_MAX as u32);
        for manager in self.all_managers().await {
            let mut after = None;
            loop {
                let operation = Operation::Quarantined { who: *who, after, count };
                let some: Vec<Aside> = decoded(self.ask_at(manager, operation, LARGE).await?)?;
                let Some(last) = some.last() else { break };
                after = Some((last.home, last.file, last.column));
                all.extend(some);
            }
        }
        Ok(all)
    }

    /// Makes one of them an object again. Root's.
    pub async fn restore(&self, who: &Who<'_>, aside: &Aside) -> Result<(), Errno> {
        let Aside { home, file, column, .. } = *aside;
        self.ask(Operation::Restore { who: *who, home, file, column }, SMALL).await.map(drop)
    }

    /// Removes one of them for good. Root's.
    pub async fn purge(&self, who: &Who<'_>, aside: &Aside) -> Result<(), Errno> {
        let Aside { home, file, column, .. } = *aside;
        self.ask(Operation::Purge { who: *who, home, file, column }, SMALL).await.map(drop)
    }

    /// Takes objects of files that the store cannot know for what a power cut left: they are set aside from now on.
    /// Root's.
    pub async fn own_all(&self, who: &Who<'_>) -> Result<(), Errno> {
        for manager in self.all_managers().await {
            self.ask_at(manager, Operation::Own { who: *who }, SMALL).await?;
        }
        Ok(())
    }

    /// Files of a restored volume that are not as any other yet, of all managers.
    pub async fn restoration(&self) -> Result<Restoration, Errno> {
        let mut all = Restoration::default();
        for (_, Comparing { restoration, .. }) in self.comparing().await? {
            (all.due, all.lost) = (all.due + restoration.due, all.lost + restoration.lost);
        }
        Ok(all)
    }

    /// Managers whose names were restored, or lost, and of which no person has said yet that what they do not know may
    /// go.
    pub async fn restored_managers(&self) -> Result<Vec<NodeId>, Errno> {
        let all = self.comparing().await?.into_iter();
        Ok(all.filter(|(_, told)| told.is_frozen).map(|(manager, _)| manager).collect())
    }

    async fn comparing(&self) -> Result<Vec<(NodeId, Comparing)>, Errno> {
        let mut all = Vec::new();
        for manager in self.all_managers().await {
            let told = self.ask_at(manager, Operation::Restoration {}, SMALL).await?;
            all.push((manager, decoded(told)?));
        }
        Ok(all)
    }

    /// The file, if it is of a restored volume, is as its objects say when this ends. EIO: it had some that are
    /// nowhere, or that cannot be read.
    pub async fn compare(&self, file: FileId) -> Result<(), Errno> {
        self.ask(Operation::Compare { file }, SMALL).await.map(drop)
    }

    /// Of a file that lost objects when its volume was restored: what it has is all of it from now on, and zeros where
    /// they are missing. Root's.
    pub async fn accept_lost(&self, who: &Who<'_>, file: FileId) -> Result<(), Errno> {
        self.ask(Operation::AcceptLost { who: *who, file }, SMALL).await.map(drop)
    }

    /// Makes a file of what its objects know, whose name is lost: the path that it has now; an empty one when the
    /// manager knows it. Root's. EEXIST: its manager has lost no names.
    pub async fn salvage(&self, who: &Who<'_>, found: Salvaged) -> Result<Box<[u8]>, Errno> {
        decoded(self.ask(Operation::Salvage { who: *who, found }, PATH).await?)
    }

    /// Compares what was salvaged with its objects from now on. Root's.
    pub async fn compare_all(&self, who: &Who<'_>) -> Result<(), Errno> {
        for manager in self.restored_managers().await? {
            self.ask_at(manager, Operation::CompareAll { who: *who }, SMALL).await?;
        }
        Ok(())
    }

    /// From now on what is written behind the file's present end goes to new columns on these disks, in turns.
    /// Root's.
    pub async fn add_columns(
        &self,
        who: &Who<'_>,
        file: FileId,
        homes: Vec<Home>,
    ) -> Result<Entry, Errno> {
        let operation = Operation::AddColumns { who: *who, file, homes };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// Begins columns of a file of an import, a bit for each, anew on other disks, without what they had: their disks
    /// are lost. Its importer's, once it has raised the truncate generation.
    pub async fn replace_columns(
        &self,
        who: &Who<'_>,
        file: FileId,
        columns: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::ReplaceColumns { who: *who, file, columns };
        decoded(self.ask(operation, SMALL).await?)
    }

    /// Moves the blocks of one column to another disk, while the file is read and written, at most `rate` bytes a
    /// second; 0 is as fast as it goes. Waits until it is done, however long. Root's.
    pub async fn move_column(
        &self,
        who: &Who<'_>,
        file: FileId,
        column: u16,
        home: impl Into<Home>,
        rate: u64,
    ) -> Result<Entry, Errno> {
        let home = home.into();
        let operation = Operation::MoveColumn { who: *who, file, column, home, rate };
        decoded(self.ask(operation, Style { deadline: None, ..SMALL }).await?)
    }
}
