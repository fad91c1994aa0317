//! The walk over the name space, and the way back from the objects.

use super::file::{Findings, Inspector, Target};
use super::names::{Miscounted, Names};
use super::report::{DamagedFile, Orphan, Report};
use indicatif::ProgressBar;
use names::{Entry, Listing, ListingEntry, Plus, Who};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stripe::{FileRef, Kept};
use terminal::progress;
use trapeze::volume::Volume;
use wire::blockmap::MAP_FRAGMENTS_MAX;
use wire::{Attr, Errno, FileId, FileKind, Fragment, NodeId, Placement};

type Result<T> = super::Result<T>;

/// Files that are looked at at the same time.
const FILES: usize = 64;
/// Bytes of a listing.
const LISTING_BYTES: usize = 64 * 1024;
/// Times that a file whose layout changes meanwhile is looked at.
const TRIES: usize = 5;

/// A name without its file.
const GONE: &str = "a name without its file, which is gone from its manager: `trapeze check --accept` removes the name";
/// A directory under another name.
const ELSEWHERE: &str = "a second name of a directory that is in another one: `trapeze check --accept` removes the name";

fn nameless(file: FileId) -> String {
    format!("the last path of a file without a name, number {:x}: its bytes are kept", file.0)
}

/// How long a file is waited for that was not compared with its objects yet. A server that is away is waited for by the
/// manager, and the others may need what it has.
const COMPARE_SPAN: Duration = Duration::from_secs(5);

/// A directory to be listed.
struct Listable {
    path: PathBuf,
    directory: FileId,
    /// The one that it has its name in; none is known of the one that the check begins with.
    parent: Option<FileId>,
}

/// All of them.
type Open = Vec<Listable>;

/// The state of a volume whose names were restored from a backup.
#[derive(Default)]
struct Comparison {
    /// Some files are not compared with their objects yet, or lack some.
    wanted: Cell<bool>,
    /// One could not be compared in time: others are not waited for.
    late: Cell<bool>,
}

/// The result of comparing a file with its objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// The manager and the objects agree.
    Known,
    /// Objects are missing, or cannot be read.
    Lacks,
    /// A server is waited for.
    Later,
}

/// A check under way.
pub struct Walk {
    names: names::Client,
    inspector: Inspector,
    servers: BTreeMap<NodeId, String>,
    /// Objects that no file has claimed so far.
    unclaimed: RefCell<BTreeSet<(NodeId, Kept)>>,
    report: RefCell<Report>,
    comparison: Comparison,
    /// Names that were met, where several managers have some.
    met: Option<RefCell<Names>>,
    /// In seconds since 1970.
    begun: i64,
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
        let comparison = Comparison::default();
        let met = (volume.sites()?.managers().len() > 1).then(RefCell::default);
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
        let begun = begun as i64;
        Ok(Rc::new(Walk {
            names,
            inspector,
            servers,
            unclaimed,
            report,
            comparison,
            met,
            begun,
            bar,
        }))
    }

    /// Checks what is under `path`, and of the whole tree the way back too.
    pub fn run(self: Rc<Self>, volume: &mut Volume, path: &Path, top: Attr) -> Result<Report> {
        let (walk, path) = (self.clone(), path.to_path_buf());
        let whole = top.file == FileId::ROOT;
        volume.run(async move {
            walk.ask_restored().await;
            if whole {
                walk.list_objects().await;
            }
            walk.from(path, top).await;
            walk.count_names(whole).await;
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

    async fn ask_restored(&self) {
        match self.names.restoration().await {
            Ok(restoration) => self.comparison.wanted.set(restoration.files() > 0),
            Err(errno) => self.report.borrow_mut().unlisted("what was restored", errno),
        }
    }

    async fn list_objects(&self) {
        let servers = match self.names.servers().await {
            Ok(servers) => servers,
            Err(errno) => return self.report.borrow_mut().unlisted("the servers", errno),
        };
        for server in servers {
            let claim = |some: &[Kept]| {
                let all = some.iter().map(|kept| (server.id, *kept));
                self.unclaimed.borrow_mut().extend(all);
            };
            if self.inspector.stripe.list_all(server.id, claim).await.is_err() {
                self.inspector.silent.borrow_mut().insert(server.id);
            }
        }
    }

    async fn from(&self, path: PathBuf, top: Attr) {
        if top.kind != FileKind::Directory {
            return self.files(vec![(path, top.file)]).await;
        }
        let mut open: Open = vec![Listable { path, directory: top.file, parent: None }];
        while let Some(Listable { path, directory, parent }) = open.pop() {
            if self.is_in(&path, directory, parent).await {
                self.directory(&path, directory, &mut open).await;
            }
        }
    }

    /// Whether the directory knows the one that it has its name in, as it does where all names are of one manager. One
    /// that has two names is gone through once; else one could be within itself.
    async fn is_in(&self, path: &Path, directory: FileId, parent: Option<FileId>) -> bool {
        let Some(parent) = parent.filter(|_| self.met.is_some()) else { return true };
        match self.names.lookup(&Who::ROOT, directory, b"..").await {
            Ok(entry) if entry.attr.file == parent => true,
            Ok(_) => {
                if self.is_named(path, directory).await {
                    self.report.borrow_mut().misnamed(path, ELSEWHERE);
                }
                false
            }
            Err(Errno::ESTALE) => {
                self.note_gone(path, directory).await;
                false
            }
            Err(errno) => {
                self.report.borrow_mut().unlisted(&path.to_string_lossy(), errno);
                false
            }
        }
    }

    /// The file of a name is not there: it was removed since the name was read, or the name is without it.
    async fn note_gone(&self, path: &Path, file: FileId) {
        if self.met.is_some() && self.is_named(path, file).await {
            self.report.borrow_mut().misnamed(path, GONE);
        }
    }

    /// Whether the path still leads to the file, which need not be there.
    async fn is_named(&self, path: &Path, file: FileId) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let Some(parent) = self.resolve(parent).await else { return false };
        let (mut cookie, name) = (0, name.as_bytes());
        // A look-up would tell of the file, not of the name.
        while let Ok(listing) = self.listing(parent, cookie).await {
            let is_it = |entry: &&ListingEntry| *entry.name == *name;
            if let Some(entry) = listing.entries.iter().find(is_it) {
                return entry.file == file;
            }
            match listing.entries.last() {
                Some(last) if !listing.end => cookie = last.cookie,
                _ => return false,
            }
        }
        false
    }

    async fn resolve(&self, path: &Path) -> Option<FileId> {
        let mut at = FileId::ROOT;
        for part in path.components() {
            if let std::path::Component::Normal(name) = part {
                at = self.names.lookup(&Who::ROOT, at, name.as_bytes()).await.ok()?.attr.file;
            }
        }
        Some(at)
    }

    /// Tells of files that have another number of names than their managers know, and did not change since.
    async fn count_names(&self, whole: bool) {
        let Some(met) = &self.met else { return };
        let wrong = met.borrow().miscounted(whole);
        for Miscounted { file, path, names, links, change } in wrong {
            let now = self.names.get_attr(file).await;
            if now.is_ok_and(|entry| entry.attr.change == change) {
                let why = format!("it has {names} names, and its manager counts {links}");
                self.report.borrow_mut().misnamed(&path, &why);
            }
        }
    }

    async fn directory(&self, path: &Path, directory: FileId, open: &mut Open) {
        self.report.borrow_mut().directories += 1;
        let (mut cookie, mut files) = (0, Vec::new());
        loop {
            let listing = match self.listing(directory, cookie).await {
                Err(Errno::ESTALE | Errno::ENOTDIR) => {
                    return self.note_gone(path, directory).await;
                }
                Err(errno) => {
                    self.report.borrow_mut().unlisted(&path.to_string_lossy(), errno);
                    break;
                }
                Ok(listing) => listing,
            };
            cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
            let end = listing.end || listing.entries.is_empty();
            for entry in listing.entries {
                self.sort((path, directory), entry, open, &mut files);
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
        (path, parent): (&Path, FileId),
        entry: ListingEntry,
        open: &mut Open,
        files: &mut Vec<(PathBuf, FileId)>,
    ) {
        if *entry.name == *b"." || *entry.name == *b".." {
            return;
        }
        let path = path.join(OsStr::from_bytes(&entry.name));
        match entry.kind {
            FileKind::Directory => {
                open.push(Listable { path, directory: entry.file, parent: Some(parent) });
            }
            // Of the others what the manager knows is all there is to look at.
            _ => files.push((path, entry.file)),
        }
    }

    async fn listing(&self, directory: FileId, cookie: u64) -> std::result::Result<Listing, Errno> {
        self.names.read_directory(&Who::ROOT, directory, cookie, LISTING_BYTES, Plus::Nothing).await
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
            let compared = self.compare(file).await;
            let entry = match self.names.get_attr(file).await {
                Err(Errno::ESTALE) => return self.note_gone(path, file).await,
                Err(errno) => {
                    self.report.borrow_mut().files += 1;
                    return self.report.borrow_mut().unlisted(&path.to_string_lossy(), errno);
                }
                Ok(entry) => entry,
            };
            match self.inspect(file, &entry, compared).await {
                Err(Errno::ESTALE) => continue,
                found => return self.note(path, &entry, found),
            }
        }
        self.note(path, &Entry::default(), Err(Errno::EBUSY));
    }

    /// Has the manager compare a file of a restored volume now.
    async fn compare(&self, file: FileId) -> Compared {
        if !self.comparison.wanted.get() {
            return Compared::Known;
        }
        if self.comparison.late.get() {
            return Compared::Later;
        }
        let asked = self.names.compare(file);
        match self.inspector.cx.with_deadline(COMPARE_SPAN, asked).await {
            Ok(Ok(()) | Err(Errno::ESTALE)) => Compared::Known,
            Ok(Err(Errno::EIO)) => Compared::Lacks,
            Ok(Err(_)) | Err(_) => {
                self.comparison.late.set(true);
                Compared::Later
            }
        }
    }

    async fn inspect(
        &self,
        file: FileId,
        entry: &Entry,
        compared: Compared,
    ) -> std::result::Result<Findings, Errno> {
        let Some(layout) = entry.layout else { return Ok(Findings::default()) };
        self.claim(file, entry);
        let reference = FileRef { file, layout, truncations: entry.truncations };
        let fragments = self.fragments(&reference).await?;
        let size = entry.attr.size;
        let lacks = compared == Compared::Lacks;
        let target = Target { reference, size, fragments: &fragments, lacks };
        let mut findings = self.inspector.inspect(&target).await?;
        findings.uncompared = compared == Compared::Later;
        Ok(findings)
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
        if let Some(met) = self.met.as_ref().filter(|_| found.is_ok()) {
            met.borrow_mut().meet(path, &entry.attr);
        }
        let mut report = self.report.borrow_mut();
        report.files += 1;
        report.bytes += entry.attr.size;
        match found {
            Ok(findings) => {
                report.unchecked += u64::from(!findings.silent.is_empty() || findings.uncompared);
                report.uncompared += u64::from(findings.uncompared);
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
        let entry = self.names.get_attr(kept.object.file).await;
        // A file without a name that is open, or one made meanwhile.
        if let Some(entry) = entry.as_ref().ok().filter(|entry| has(entry, server, kept)) {
            return self.note_nameless(entry, server, kept).await;
        }
        let bytes = self.inspector.stripe.kept_bytes(server, kept).await;
        let Some(why) = why_orphan(&entry, kept.object.column, bytes) else { return };
        let server = self.servers.get(&server).cloned().unwrap_or_else(|| server.to_string());
        self.report.borrow_mut().orphans.push(Orphan { server, kept, why });
    }
}

impl Walk {
    /// A file whose name was not met: it has none, if the path that its object was told is not its own any more.
    async fn note_nameless(&self, entry: &Entry, server: NodeId, kept: Kept) {
        let is_met = |met: &RefCell<Names>| met.borrow().has(entry.attr.file);
        let is_known = self.met.as_ref().is_none_or(is_met);
        // Its name may have come or moved since its directory was listed.
        let is_new = entry.attr.ctime.seconds >= self.begun;
        if is_known || is_new || entry.attr.links == 0 || kept.object.column != 0 {
            return;
        }
        let told = self.inspector.stripe.description(server, kept).await;
        let description = told.ok().and_then(|(_, told)| told.description);
        let path = description.map(|description| description.path).unwrap_or_default();
        let path = PathBuf::from(OsStr::from_bytes(&path));
        // One that was made a moment ago has not been described.
        if path.as_os_str().is_empty() || self.resolve(&path).await == Some(entry.attr.file) {
            return;
        }
        self.report.borrow_mut().misnamed(&path, &nameless(entry.attr.file));
    }
}

/// Why an object is one without a file, if it is: what the manager says of its file, and the server of its bytes, asked
/// in this order.
fn why_orphan(
    entry: &std::result::Result<Entry, Errno>,
    column: u16,
    bytes: std::result::Result<u64, Errno>,
) -> Option<&'static str> {
    match (entry, bytes) {
        // It was set aside, or removed, since it was listed.
        (_, Err(Errno::ENOENT)) => None,
        (Err(Errno::ESTALE), _) => Some("its file is gone"),
        (Err(_), _) => Some("its file cannot be read"),
        // An empty object that a moved column leaves, until the manager sets it aside.
        (Ok(_), Ok(0)) => None,
        (Ok(entry), _) if entry.layout.is_none_or(|layout| layout.width() <= column) => {
            Some("its file has no such column")
        }
        (Ok(_), _) => Some("its file has this column elsewhere"),
    }
}

/// Reads all of one file: how it is striped, and what of it is lost.
pub fn look(volume: &mut Volume, path: &Path, file: FileId) -> Result<(FileRef, Findings)> {
    let walk = Walk::new(volume, true, BTreeMap::new())?;
    let looked = volume.run(async move {
        walk.ask_restored().await;
        for _ in 0..TRIES {
            let compared = walk.compare(file).await;
            let entry = walk.names.get_attr(file).await?;
            let layout = entry.layout.ok_or(Errno::EINVAL)?;
            match walk.inspect(file, &entry, compared).await {
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
    Ok(looked.map_err(|errno| trapeze::volume::VolumeError::File { path, errno })?)
}

fn has(entry: &Entry, server: NodeId, kept: Kept) -> bool {
    let home = entry.layout.and_then(|layout| layout.homes().nth(kept.object.column.into()));
    home.is_some_and(|home| home.server == server && home.disk == kept.disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_set_aside_since_it_was_listed_is_no_problem() {
        let known = Ok(Entry::default());
        for entry in [&Err(Errno::ESTALE), &Err(Errno::EIO), &known] {
            assert_eq!(why_orphan(entry, 0, Err(Errno::ENOENT)), None);
            // A server that does not answer, or an object that cannot be read, is none the less one without a file.
            assert!(why_orphan(entry, 0, Err(Errno::EIO)).is_some());
            assert!(why_orphan(entry, 0, Ok(7)).is_some());
        }
        assert_eq!(why_orphan(&known, 0, Ok(0)), None, "a column that was moved leaves it");
    }
}
