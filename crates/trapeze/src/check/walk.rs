//! The walk over the name space, and the way back from the objects.

use super::file::{Findings, Inspector, Target};
use super::report::{DamagedFile, Orphan, Report};
use crate::progress;
use crate::volume::Volume;
use indicatif::ProgressBar;
use names::{Entry, Listing, ListingEntry, Who};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use stripe::{FileRef, Kept};
use wire::blockmap::MAP_FRAGMENTS_MAX;
use wire::{Attr, Errno, FileId, FileKind, Fragment, NodeId, Placement};

type Result<T> = super::Result<T>;

/// Files that are looked at at the same time.
const FILES: usize = 64;
/// Objects that a server names at once.
const OBJECTS: usize = 4096;
/// Bytes of a listing.
const LISTING_BYTES: usize = 64 * 1024;
/// Times that a file whose layout changes meanwhile is looked at.
const TRIES: usize = 5;

/// Directories to be listed, with their paths.
type Open = Vec<(PathBuf, FileId)>;

/// A check under way.
pub struct Walk {
    names: names::Client,
    inspector: Inspector,
    servers: BTreeMap<NodeId, String>,
    /// Objects that no file has claimed so far.
    unclaimed: RefCell<BTreeSet<(NodeId, Kept)>>,
    report: RefCell<Report>,
    bar: ProgressBar,
}

impl Walk {
    pub fn new(
        volume: &mut Volume,
        deep: bool,
        servers: BTreeMap<NodeId, String>,
    ) -> Result<Rc<Walk>> {
        let (cx, names, stripe) = volume.asking();
        let inspector = Inspector { cx, stripe, deep, silent: RefCell::default() };
        let report = RefCell::new(Report::new(servers.clone(), deep));
        let (unclaimed, bar) = (RefCell::default(), progress::counted("files checked"));
        Ok(Rc::new(Walk { names, inspector, servers, unclaimed, report, bar }))
    }

    /// Checks what is under `path`, and of the whole tree the way back too.
    pub fn run(self: Rc<Self>, volume: &mut Volume, path: &Path, top: Attr) -> Result<Report> {
        let (walk, path) = (self.clone(), path.to_path_buf());
        let whole = top.file == FileId::ROOT;
        volume.run(async move {
            if whole {
                walk.list_objects().await;
            }
            walk.from(path, top).await;
            if whole {
                walk.back().await;
            }
        })?;
        self.bar.finish_and_clear();
        let silent = self.inspector.silent.borrow();
        let mut report = self.report.take();
        report.silent = silent.iter().copied().collect();
        Ok(report)
    }

    async fn list_objects(&self) {
        let servers = match self.names.servers().await {
            Ok(servers) => servers,
            Err(errno) => return self.report.borrow_mut().unlisted("the servers", errno),
        };
        for server in servers {
            if self.list_objects_of(server.id).await.is_err() {
                self.inspector.silent.borrow_mut().insert(server.id);
            }
        }
    }

    async fn list_objects_of(&self, server: NodeId) -> std::result::Result<(), Errno> {
        let mut after = None;
        loop {
            let some = self.inspector.stripe.list(server, after, OBJECTS).await?;
            after = some.last().map(|kept| kept.object);
            let all = some.iter().map(|kept| (server, *kept));
            self.unclaimed.borrow_mut().extend(all);
            if some.len() < OBJECTS {
                return Ok(());
            }
        }
    }

    async fn from(&self, path: PathBuf, top: Attr) {
        if top.kind != FileKind::Directory {
            return self.files(vec![(path, top.file)]).await;
        }
        let mut open: Open = vec![(path, top.file)];
        while let Some((path, directory)) = open.pop() {
            self.directory(&path, directory, &mut open).await;
        }
    }

    async fn directory(&self, path: &Path, directory: FileId, open: &mut Open) {
        self.report.borrow_mut().directories += 1;
        let (mut cookie, mut files) = (0, Vec::new());
        loop {
            let listing = match self.listing(directory, cookie).await {
                // Removed since its name was read.
                Err(Errno::ESTALE | Errno::ENOTDIR) => return,
                Err(errno) => {
                    self.report.borrow_mut().unlisted(&path.to_string_lossy(), errno);
                    break;
                }
                Ok(listing) => listing,
            };
            cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
            let end = listing.end || listing.entries.is_empty();
            for entry in listing.entries {
                self.sort(path, entry, open, &mut files);
            }
            if files.len() >= FILES || end {
                self.files(std::mem::take(&mut files)).await;
            }
            if end {
                return;
            }
        }
        self.files(files).await;
    }

    fn sort(
        &self,
        path: &Path,
        entry: ListingEntry,
        open: &mut Open,
        files: &mut Vec<(PathBuf, FileId)>,
    ) {
        if *entry.name == *b"." || *entry.name == *b".." {
            return;
        }
        let path = path.join(OsStr::from_bytes(&entry.name));
        match entry.kind {
            FileKind::Directory => open.push((path, entry.file)),
            // Of the others what the manager knows is all there is to look at.
            _ => files.push((path, entry.file)),
        }
    }

    async fn listing(&self, directory: FileId, cookie: u64) -> std::result::Result<Listing, Errno> {
        self.names.read_directory(&Who::ROOT, directory, cookie, LISTING_BYTES, false).await
    }

    async fn files(&self, files: Vec<(PathBuf, FileId)>) {
        for some in files.chunks(FILES) {
            let looks = some.iter().map(|(path, file)| self.file(path, *file));
            node::all(looks).await;
            self.bar.inc(some.len() as u64);
        }
    }

    async fn file(&self, path: &Path, file: FileId) {
        for _ in 0..TRIES {
            let entry = match self.names.get_attr(file).await {
                // Removed since its name was read.
                Err(Errno::ESTALE) => return,
                Err(errno) => {
                    self.report.borrow_mut().files += 1;
                    return self.report.borrow_mut().unlisted(&path.to_string_lossy(), errno);
                }
                Ok(entry) => entry,
            };
            match self.inspect(file, &entry).await {
                Err(Errno::ESTALE) => continue,
                found => return self.note(path, &entry, found),
            }
        }
        self.note(path, &Entry::default(), Err(Errno::EBUSY));
    }

    async fn inspect(&self, file: FileId, entry: &Entry) -> std::result::Result<Findings, Errno> {
        let Some(layout) = entry.layout else { return Ok(Findings::default()) };
        self.claim(file, entry);
        let reference = FileRef { file, layout, truncations: entry.truncations };
        let fragments = self.fragments(&reference).await?;
        let size = entry.attr.size;
        self.inspector.inspect(&Target { reference, size, fragments: &fragments }).await
    }

    fn claim(&self, file: FileId, entry: &Entry) {
        let Some(layout) = entry.layout else { return };
        let volume = self.inspector.stripe.volume();
        let mut unclaimed = self.unclaimed.borrow_mut();
        for (column, home) in (0..).zip(layout.homes()) {
            let object = wire::ObjectId { volume, file, column };
            unclaimed.remove(&(home.server, Kept { object, disk: home.disk }));
        }
    }

    async fn fragments(&self, reference: &FileRef) -> std::result::Result<Vec<Fragment>, Errno> {
        if reference.layout.placement == Placement::Formula {
            return Ok(Vec::new());
        }
        let count = MAP_FRAGMENTS_MAX as u32;
        let (epoch, fragments) = self.names.fragments(reference.file, 0, count).await?;
        if epoch != reference.layout.epoch {
            return Err(Errno::ESTALE);
        }
        self.inspector.stripe.learn_map(reference.file, epoch, &fragments);
        Ok(fragments)
    }

    fn note(&self, path: &Path, entry: &Entry, found: std::result::Result<Findings, Errno>) {
        let mut report = self.report.borrow_mut();
        report.files += 1;
        report.bytes += entry.attr.size;
        match found {
            Ok(findings) => {
                report.unchecked += u64::from(!findings.silent.is_empty());
                if findings.is_damaged() {
                    let (path, size) = (path.to_path_buf(), entry.attr.size);
                    report.damaged.push(DamagedFile { path, size, findings });
                }
            }
            Err(errno) => report.unlisted(&path.to_string_lossy(), errno),
        }
    }

    /// Asks the manager about the objects that no file of the walk claimed.
    async fn back(&self) {
        let unclaimed = self.unclaimed.take();
        let unclaimed: Vec<_> = unclaimed.into_iter().collect();
        for some in unclaimed.chunks(FILES) {
            node::all(some.iter().map(|(server, kept)| self.orphan(*server, *kept))).await;
        }
    }

    async fn orphan(&self, server: NodeId, kept: Kept) {
        let why = match self.names.get_attr(kept.object.file).await {
            Err(Errno::ESTALE) => "its file is gone",
            Err(_) => "its file cannot be read",
            // A file without a name that is open, or one made meanwhile.
            Ok(entry) if has(&entry, server, kept) => return,
            // What a column that was moved leaves, until the manager sets it aside.
            Ok(_) if self.inspector.stripe.kept_bytes(server, kept).await == Ok(0) => return,
            Ok(_) => "its file has this column elsewhere",
        };
        let server = self.servers.get(&server).cloned().unwrap_or_else(|| server.to_string());
        self.report.borrow_mut().orphans.push(Orphan { server, kept, why });
    }
}

/// Reads all of one file: how it is striped, and what of it is lost.
pub fn look(volume: &mut Volume, path: &Path, file: FileId) -> Result<(FileRef, Findings)> {
    let walk = Walk::new(volume, true, BTreeMap::new())?;
    let looked = volume.run(async move {
        for _ in 0..TRIES {
            let entry = walk.names.get_attr(file).await?;
            let layout = entry.layout.ok_or(Errno::EINVAL)?;
            match walk.inspect(file, &entry).await {
                Err(Errno::ESTALE) => continue,
                found => {
                    let reference = FileRef { file, layout, truncations: entry.truncations };
                    return Ok((reference, found?));
                }
            }
        }
        Err(Errno::EBUSY)
    })?;
    let path = path.to_path_buf();
    Ok(looked.map_err(|errno| crate::volume::VolumeError::File { path, errno })?)
}

fn has(entry: &Entry, server: NodeId, kept: Kept) -> bool {
    let home = entry.layout.and_then(|layout| layout.homes().nth(kept.object.column.into()));
    home.is_some_and(|home| home.server == server && home.disk == kept.disk)
}
