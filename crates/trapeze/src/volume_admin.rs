//! An administrator's operations on a volume: where columns are, moving them, servers that are to go, quarantine.
//!
//! The cluster's key, or its directory, is the permission: these calls are made as root.

use super::{At, O_RDWR, Result, Volume, VolumeError};
use crate::config::MANAGER_NODE;
use members::groups::Table;
use members::{Empty, Forget, Member, Planned, Retire};
use names::{Aside, Entry, IoServer, SwitchingShare, Who};
use node::rings::FileOp;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use stripe::FileRef;
use wire::{BlockMap, Errno, FileId, Home, Layout, NodeId, Placement, Sites};

/// How often a change is asked for again that met another one.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// Extended attribute with the privileges of a program.
const CAPABILITY: &[u8] = b"security.capability";

/// Where a file is and what it takes there.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The file.
    pub file: FileId,
    /// Its columns.
    pub layout: Layout,
    /// Storage of each column, or why its server does not tell.
    pub used: Vec<std::result::Result<u64, Errno>>,
}

impl Volume {
    /// The node's context and clients of the services below the file system, for [`run`](Volume::run).
    pub fn asking(&mut self) -> (node::Cx, names::Client, stripe::Client) {
        let (names, stripe) = self.clients();
        (self.running.host.node().cx().clone(), names, stripe)
    }

    /// Drives the node until `work` has ended.
    pub fn run<T: 'static>(&mut self, work: impl Future<Output = T> + 'static) -> Result<T> {
        Ok(self.running.host.block_on(work)?)
    }

    fn asked<T: 'static>(
        &mut self,
        path: &Path,
        ask: impl AsyncFnOnce(names::Client) -> std::result::Result<T, Errno> + 'static,
    ) -> Result<T> {
        let (names, _) = self.clients();
        self.block_on(async move { ask(names).await })?.at(path)
    }

    /// The active I/O servers.
    pub fn servers(&mut self) -> Result<Vec<IoServer>> {
        self.asked(Path::new("the servers"), async |names| names.servers().await)
    }

    /// The names of all members that are servers.
    pub fn server_names(&self) -> BTreeMap<NodeId, String> {
        let servers = self.server_members();
        let there = servers.into_iter().filter(|member| !member.gone);
        there.map(|member| (member.id, member.name)).collect()
    }

    /// All members that are servers, also those that were declared gone.
    pub fn server_members(&self) -> Vec<Member> {
        let member = self.running.services.member.clone().expect("a client is a member");
        let directory = member.directory();
        directory.iter().filter(|member| member.roles.is_server()).cloned().collect()
    }

    /// Declares a server or a disk gone for good; on stable storage.
    pub fn forget(&mut self, forget: Forget) -> Result<()> {
        let (cx, manager) = (self.running.host.node().cx().clone(), NodeId(MANAGER_NODE));
        let asked = self.block_on(async move { members::forget(&cx, manager, forget).await })?;
        asked.at(Path::new("the members"))
    }

    /// Disks of a server are to be emptied of groups, or to get some again; on stable storage.
    pub fn empty(&mut self, asked: Empty) -> Result<()> {
        let (cx, manager) = (self.running.host.node().cx().clone(), NodeId(MANAGER_NODE));
        let asked = self.block_on(async move { members::empty(&cx, manager, asked).await })?;
        asked.at(Path::new("the members"))
    }

    /// How far the planner of groups is, and the groups as they are at least as late.
    pub fn planned(&mut self) -> Result<(Planned, Table)> {
        let (cx, manager) = (self.running.host.node().cx().clone(), NodeId(MANAGER_NODE));
        let member = self.running.services.member.clone().expect("a client is a member");
        let asked = self.block_on(async move {
            let planned = members::planned(&cx, manager).await?;
            let groups = member.groups();
            groups.refresh().await?;
            let table = groups.table().clone();
            Ok((planned, table))
        })?;
        asked.at(Path::new("the members"))
    }

    /// A file manager is to give away what it owns, or to own a share again; on stable storage.
    pub fn retire_manager(&mut self, retire: Retire) -> Result<()> {
        let (cx, manager) = (self.running.host.node().cx().clone(), NodeId(MANAGER_NODE));
        let asked = self.block_on(async move { members::retire(&cx, manager, retire).await })?;
        asked.at(Path::new("the members"))
    }

    /// Which file manager owns which site, as far as the first one knows.
    pub fn sites(&mut self) -> Result<Sites> {
        self.asked(Path::new("the managers"), async move |names| names.table_of_sites().await)
    }

    /// Waits that long.
    pub fn pause(&mut self, span: Duration) -> Result<()> {
        let cx = self.running.host.node().cx().clone();
        self.block_on(async move { cx.sleep(span).await })
    }

    /// Bytes of a regular file that its layout has on these disks, one bit each; holes count.
    pub fn held_on(
        &mut self,
        path: &Path,
        file: FileId,
        disks: &BTreeMap<NodeId, u32>,
    ) -> Result<u64> {
        let entry = self.asked(path, async move |names| match names.get_attr(file).await {
            Err(Errno::ESTALE) => Ok(None),
            entry => entry.map(Some),
        })?;
        let Some((size, Some(layout))) = entry.map(|entry| (entry.attr.size, entry.layout)) else {
            return Ok(0);
        };
        let on = |column: &u16| {
            let home = layout.home(*column);
            disks.get(&home.server).is_some_and(|disks| disks >> home.disk & 1 == 1)
        };
        let map = BlockMap::new(&layout, &[]);
        let held = |column: u16| match layout.placement {
            Placement::Formula => map.object_bytes(column, size),
            // Which of its columns the file's bytes are in stands in a map that is not asked for here.
            _ => size,
        };
        Ok((0..layout.width()).filter(on).map(held).sum())
    }

    /// The names of an empty directory are spread over all managers from now on, and new files in it; on stable
    /// storage. ENOTEMPTY: it has names. Of a hashed one parts that were lost are made anew, without names.
    pub fn hash_directory(&mut self, path: &Path) -> Result<()> {
        let file = self.number(path)?;
        self.asked(path, async move |names| {
            names.hash_directory(&Who::ROOT, file).await?;
            names.sync().await
        })
    }

    /// The number of a file, also of a directory that has lost a part, whose attributes cannot be told.
    fn number(&mut self, path: &Path) -> Result<FileId> {
        match (self.stat(path), path.parent(), path.file_name()) {
            (
                Err(VolumeError::File { errno: Errno::ENOTRECOVERABLE, .. }),
                Some(parent),
                Some(name),
            ) => {
                let mut listed = self.list(parent)?.into_iter();
                let found = listed.find(|entry| *entry.name == *name.as_encoded_bytes());
                found.map(|entry| entry.file).ok_or(Errno::ENOENT).at(path)
            }
            (Err(VolumeError::File { errno: Errno::ENOTRECOVERABLE, .. }), ..) => Ok(FileId::ROOT),
            (stat, ..) => Ok(stat?.file),
        }
    }

    /// From now on so many of 1000 new directories go to the site of their hash, on stable storage; without a number
    /// all but one in the number of managers. Every manager knows some seconds later.
    pub fn set_mkdir_switching(&mut self, per_mille: Option<u16>) -> Result<()> {
        self.asked(Path::new("the managers"), async move |names| {
            names.set_switching(&Who::ROOT, per_mille).await?;
            names.sync().await
        })
    }

    /// How many new directories go to the site of their hash.
    pub fn mkdir_switching(&mut self) -> Result<SwitchingShare> {
        self.asked(Path::new("the managers"), async move |names| names.switching().await)
    }

    /// Whether the names of a directory are spread over all managers. ENOTDIR for what is none.
    pub fn is_hashed(&mut self, path: &Path) -> Result<bool> {
        let file = self.stat(path)?.file;
        self.asked(path, async move |names| names.is_directory_hashed(file).await)
    }

    /// From now on the server gets nothing new, or does again; on stable storage.
    pub fn retire(&mut self, server: NodeId, retired: bool) -> Result<()> {
        self.asked(Path::new("the servers"), async move |names| {
            names.retire(&Who::ROOT, server, retired).await?;
            names.sync().await
        })
    }

    /// Where a file is; `None` of what is no regular file, or is gone.
    pub fn placed(&mut self, path: &Path, file: FileId) -> Result<Option<Placed>> {
        let (names, stripe) = self.clients();
        let asked = self.block_on(async move {
            let entry = match names.get_attr(file).await {
                Err(Errno::ESTALE) => return Ok(None),
                entry => entry?,
            };
            let Some(layout) = entry.layout else { return Ok(None) };
            let reference = FileRef { file, layout, truncations: entry.truncations };
            let told = stripe.columns(&reference).await.into_iter();
            let used = told.map(|told| match told {
                Ok(told) => Ok(told.used),
                Err(Errno::ENOENT) => Ok(0),
                Err(errno) => Err(errno),
            });
            Ok(Some(Placed { file, layout, used: used.collect() }))
        })?;
        asked.at(path)
    }

    /// Moves a column to another disk, at most `rate` bytes a second; 0 is as fast as it goes. The file can be used
    /// meanwhile.
    pub fn move_column(
        &mut self,
        path: &Path,
        file: FileId,
        column: u16,
        to: Home,
        rate: u64,
    ) -> Result<Entry> {
        self.changed(path, async move |names| {
            names.move_column(&Who::ROOT, file, column, to, rate).await
        })
    }

    /// Adds columns on these disks for writes behind the file's end from now on.
    pub fn add_columns(&mut self, path: &Path, file: FileId, homes: Vec<Home>) -> Result<Entry> {
        self.changed(path, async move |names| {
            names.add_columns(&Who::ROOT, file, homes.clone()).await
        })
    }

    /// Asks for a change of layout until no other is in the way.
    fn changed(
        &mut self,
        path: &Path,
        change: impl AsyncFn(&names::Client) -> std::result::Result<Entry, Errno> + 'static,
    ) -> Result<Entry> {
        let cx = self.running.host.node().cx().clone();
        self.asked(path, async move |names| {
            let mut tries = 0;
            loop {
                tries += 1;
                match change(&names).await {
                    Err(Errno::EAGAIN | Errno::EBUSY) if tries < TRIES => cx.sleep(TRY_PAUSE).await,
                    result => return result,
                }
            }
        })
    }

    /// Begins a lost column anew as an empty one.
    pub fn accept_column(&mut self, path: &Path, file: FileRef, column: u16) -> Result<()> {
        let (_, stripe) = self.clients();
        self.run(async move { stripe.accept_loss(&file, column).await })?.at(path)
    }

    /// Of a file that lacks objects since its names were restored: zeros where they are missing.
    pub fn accept_lost(&mut self, path: &Path, file: FileId) -> Result<()> {
        self.asked(path, async move |names| names.accept_lost(&Who::ROOT, file).await)
    }

    /// Takes the file's `security.capability` away before it is written to: a program that was written anew is not
    /// trusted with it. On a mount the kernel does so for every writer.
    pub(super) fn drop_privileges(&mut self, path: &Path, file: FileId) -> Result<()> {
        self.asked(path, async move |names| {
            match names.remove_xattr(&Who::ROOT, file, CAPABILITY).await {
                // a file of an import has none: these are its origin's
                Err(Errno::ENODATA | Errno::EROFS) => Ok(()),
                removed => removed,
            }
        })
    }

    /// Writes zeros over a part of a file, on stable storage when this returns.
    pub fn write_zeros(&mut self, path: &Path, offset: u64, bytes: u64) -> Result<()> {
        let file = self.stat(path)?.file;
        self.drop_privileges(path, file)?;
        let handle = self.open(path, file, O_RDWR)?;
        let zeros = &mut std::io::repeat(0).take(bytes);
        let written = self.write_chunks(path, (file, handle, offset), zeros, &mut |_| ());
        let synced =
            written.and_then(|_| self.ask(path, FileOp::Fsync { file, handle, data_only: false }));
        let released = self.release(path, file, handle);
        synced.and(released)
    }

    /// Objects that no file claimed, and those that were put back.
    pub fn quarantined(&mut self) -> Result<Vec<Aside>> {
        self.asked(Path::new("the quarantine"), async |names| names.quarantined(&Who::ROOT).await)
    }

    /// Makes what was set aside an object again.
    pub fn restore(&mut self, name: &Path, aside: Aside) -> Result<()> {
        self.asked(name, async move |names| names.restore(&Who::ROOT, &aside).await)
    }

    /// Removes for good what was set aside.
    pub fn purge(&mut self, name: &Path, aside: Aside) -> Result<()> {
        self.asked(name, async move |names| names.purge(&Who::ROOT, &aside).await)
    }

    /// Takes objects of files that the manager's store cannot know for what a power cut left.
    pub fn own_all(&mut self) -> Result<()> {
        self.asked(Path::new("quarantine"), async move |names| names.own_all(&Who::ROOT).await)
    }
}
