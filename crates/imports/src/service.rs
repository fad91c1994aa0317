//! The importer: a service that compares files with the origin's, and brings their bytes.

use crate::limits::*;
use crate::origin::{Origin, changes, version, version_before};
use crate::pieces::{Pieces, is_lost};
use crate::protocol::{
    CHANGE, CHECK, CHECK_LISTED, Check, FETCH, Fetch, Kept, LOST, ORIGIN, Said, Version, WRITE,
};
use crate::room::Room;
use crate::runs::Runs;
use crate::walks::Walks;
use names::{Entry, Who};
use nfs::convert::file_kind;
use nfs::v3::{Fattr, WccData};
use node::{Answer, Cx, Notify, Request, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use wire::field::{Field, Message, encoded};
use wire::limits::BODY_BYTES;
use wire::{Channel, Decoder, Errno, FileId, FileKind, Layout, Time};

/// How an import is served.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its number.
    pub import: u32,
    /// Its directory.
    pub root: FileId,
    /// How long what the origin said is believed.
    pub belief: Duration,
    /// While the origin is away, what is known of it is told on.
    pub stale_ok: bool,
    /// In whose name changes go through to the origin; `None`: they do not.
    pub changes: Option<As>,
    /// Bytes that may be cached; `None`: as many as the volume has room for.
    pub space: Option<u64>,
}

/// The user of changes at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// Whoever makes them here.
    Caller,
    /// The one that the origin is asked as.
    Importer,
}

/// A running importer.
#[derive(Clone)]
pub struct Service(Rc<Inner>);

/// State that its tasks share.
pub struct Inner {
    pub(crate) cx: Cx,
    pub(crate) config: Config,
    pub(crate) names: names::Client,
    pub(crate) objects: stripe::Client,
    pub(crate) origin: Rc<Origin>,
    files: RefCell<BTreeMap<FileId, Rc<Foreign>>>,
    pub(crate) fetches: Semaphore,
    pub(crate) room: RefCell<Room>,
    pub(crate) walks: RefCell<Walks>,
}

/// A foreign file.
pub(crate) struct Foreign {
    pub id: FileId,
    pub kind: FileKind,
    pub state: RefCell<State>,
    /// A comparison or a fetch has ended.
    pub changed: Notify,
    /// It is being compared.
    busy: Cell<bool>,
    /// The pieces that are there are being noted beside the inode.
    pub keeping: Cell<bool>,
}

pub(crate) struct State {
    pub kept: Kept,
    /// The same as the manager has it, as far as that has answered.
    pub stored: Option<Kept>,
    pub size: u64,
    pub layout: Option<Layout>,
    pub pieces: Pieces,
    /// When the origin was asked last; of a directory, for its names too.
    pub asked: Option<Time>,
    /// Of a directory, the version whose attributes the manager shows, and when the origin said that it has it.
    pub shown: Option<(Version, Time)>,
    /// When the origin answered the last change of ours.
    changed: Option<Time>,
    /// When all of it began anew last because pieces were lost.
    pub anew: Option<Time>,
    /// The last comparison's end.
    last: Result<(), Errno>,
    /// The manager may lose its truncate generation by a power cut.
    pub unsynced: bool,
    /// The length as the manager has it.
    pub told_size: u64,
    /// Attributes after changes of ours, of which the manager was not told yet.
    pub unflushed: Option<Fattr>,
}

impl State {
    /// Whether bytes of it are at the I/O servers, or on their way.
    pub fn is_cached(&self) -> bool {
        self.kept.whole || !self.pieces.is_empty()
    }

    /// A fetch has ended: a later importer is to know what is there.
    pub fn note_there(&mut self) {
        let there = self.pieces.there();
        self.kept.whole |= there.count() > 0 && there.count() == self.size.div_ceil(PIECE_BYTES);
        self.kept.there = if self.kept.whole { Vec::new() } else { there.first(RUNS_KEPT_MAX) };
    }

    /// The manager has raised the truncate generation: nothing is there of the new one.
    pub fn begin_generation(&mut self, entry: &Entry) {
        (self.kept.truncations, self.kept.whole) = (entry.truncations, false);
        self.kept.there.clear();
        (self.layout, self.unsynced) = (entry.layout, true);
        self.pieces.begin_version(entry.truncations);
    }
}

impl Deref for Service {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Foreign {
    /// As the manager and the attribute say.
    fn new(cx: &Cx, entry: &Entry, kept: Kept) -> Foreign {
        let pieces = Pieces::with(entry.truncations, Runs::of(&kept.there));
        let state = State {
            stored: Some(kept.clone()),
            kept,
            size: entry.attr.size,
            layout: entry.layout,
            pieces,
            asked: None,
            shown: None,
            changed: None,
            anew: None,
            last: Ok(()),
            unsynced: true,
            told_size: entry.attr.size,
            unflushed: None,
        };
        let (id, kind) = (entry.attr.file, entry.attr.kind);
        Foreign {
            id,
            kind,
            state: RefCell::new(state),
            changed: Notify::new(cx),
            busy: Cell::new(false),
            keeping: Cell::new(false),
        }
    }

    /// Runs `work` as the only comparison of the file, which none is under way of.
    async fn exclusively<T>(
        &self,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        self.begin_turn();
        let result = work.await;
        self.end_turn(result.as_ref().map(drop).map_err(|errno| *errno));
        result
    }

    /// Runs `work` when no comparison of the file, nor a change, is under way.
    pub async fn in_turn<T>(
        &self,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        while self.busy.get() {
            self.changed.wait().await;
        }
        self.begin_turn();
        let result = work.await;
        // its error is its own: a comparison that waits asks itself
        self.end_turn(Ok(()));
        result
    }

    fn begin_turn(&self) {
        assert!(!self.busy.replace(true), "one comparison or change of a file at a time");
    }

    fn end_turn(&self, result: Result<(), Errno>) {
        self.busy.set(false);
        self.state.borrow_mut().last = result;
        self.changed.notify_all();
    }

    /// The origin's handle.
    pub fn handle(&self) -> Box<[u8]> {
        self.state.borrow().kept.handle.clone()
    }

    /// Whether a change of ours was the only one since the version that is known, or nothing of that is cached.
    pub fn is_alone(&self, wcc: &WccData) -> bool {
        let state = self.state.borrow();
        let is_next = version_before(wcc) == Some(state.kept.version);
        is_next || self.kind != FileKind::Directory && !state.is_cached()
    }

    /// A change of ours has left these attributes: the version that is cached has become this one.
    pub fn note_own(&self, fattr: &Fattr) {
        let mut state = self.state.borrow_mut();
        (state.kept.version, state.size) = (version(fattr), fattr.size);
        state.unflushed = Some(*fattr);
    }

    /// The origin has answered a change of ours.
    pub fn note_changed(&self, now: Time) {
        self.state.borrow_mut().changed = Some(now);
    }

    /// Whether what was asked of the origin then may be of before a change of ours.
    pub fn is_outdated(&self, asked: Time) -> bool {
        self.state.borrow().changed.is_some_and(|changed| asked <= changed)
    }

    /// The cache may be of another version: it is compared, and is another one, when the file is asked for next.
    pub fn forget_version(&self) {
        let mut state = self.state.borrow_mut();
        (state.kept.version, state.asked, state.unflushed) = (Version::default(), None, None);
        state.shown = None;
    }

    /// Pieces of all of it.
    pub fn piece_count(&self) -> u64 {
        self.state.borrow().size.div_ceil(PIECE_BYTES)
    }

    /// The origin is to be asked, after this time, before anything is believed.
    pub fn doubt(&self, now: Time) {
        let mut state = self.state.borrow_mut();
        (state.asked, state.shown, state.changed) = (None, None, Some(now));
    }

    /// Whether the manager shows this version.
    pub fn has_version(&self, version: Version) -> bool {
        let state = self.state.borrow();
        state.kept.version == version || state.shown.is_some_and(|(shown, _)| shown == version)
    }

    /// Whether the origin has answered what it was asked later than this.
    pub fn is_known_since(&self, asked: Time) -> bool {
        let state = self.state.borrow();
        state.asked.max(state.shown.map(|(_, at)| at)) > Some(asked)
    }

    /// The origin said so at this time.
    pub fn note_asked(&self, at: Time) {
        let mut state = self.state.borrow_mut();
        state.asked = state.asked.max(Some(at));
    }
}

impl Service {
    /// Serves on `cx`, whose node is the import's importer by the volume's record.
    pub fn start(
        cx: &Cx,
        config: Config,
        (names, objects): (names::Client, stripe::Client),
        origin: Rc<Origin>,
    ) -> Service {
        let (files, fetches) = (RefCell::default(), Semaphore::new(cx, FETCHES_MAX));
        let cx = cx.clone();
        let names = names.for_imports();
        let room = RefCell::new(Room::new(config.space));
        let walks = RefCell::default();
        let inner = Inner { cx, config, names, objects, origin, files, fetches, room, walks };
        let service = Service(Rc::new(inner));
        // comparing or fetching twice is as good as once
        service.cx.set_pure(Channel::IMPORTS, |op| !matches!(op, WRITE | CHANGE));
        if config.space.is_some() {
            service.cx.spawn("imports: room", service.clone().count_all());
        }
        for _ in 0..SERVICE_LOOPS {
            service.cx.spawn("imports", service.clone().serve_loop());
        }
        service
    }

    async fn serve_loop(self) {
        loop {
            let request = self.cx.accept(Channel::IMPORTS).await;
            match self.serve(&request).await {
                Ok(body) => self.cx.reply(request, Answer::body(&body)),
                Err(errno) => self.cx.reply(request, Answer::error(errno)),
            }
        }
    }

    async fn serve(&self, request: &Request) -> Result<[u8; BODY_BYTES], Errno> {
        let yes = match request.op {
            CHECK => {
                let Check { import, file } =
                    Check::decode(&request.body).map_err(|_| Errno::EPROTO)?;
                self.check_own(import)?;
                self.check(file).await?
            }
            CHECK_LISTED => return Ok(self.serve_listed(request).await?.encode()),
            FETCH => {
                let fetch = Fetch::decode(&request.body).map_err(|_| Errno::EPROTO)?;
                self.check_own(fetch.import)?;
                self.fetch(fetch.file, fetch.truncations, fetch.piece).await?
            }
            LOST => {
                let lost = Fetch::decode(&request.body).map_err(|_| Errno::EPROTO)?;
                self.check_own(lost.import)?;
                self.note_lost(lost.file, lost.truncations, lost.piece).await?
            }
            WRITE => self.serve_write(request).await.map(|()| true)?,
            CHANGE => self.serve_change(request).await.map(|()| true)?,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Said { yes }.encode())
    }

    /// EINVAL: the import is another one.
    pub(crate) fn check_own(&self, import: u32) -> Result<(), Errno> {
        if import == self.config.import { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Compares a file with the origin's, unless what is known is young. Whether it may have changed meanwhile.
    pub async fn check(&self, id: FileId) -> Result<bool, Errno> {
        let (arrived, mut waited) = (self.cx.now(), false);
        let file = self.load(id).await?;
        loop {
            let asked = file.state.borrow().asked;
            if asked.is_some_and(|at| self.is_young(at, arrived)) {
                let is_told = file.state.borrow().unflushed.is_none();
                if !is_told {
                    file.in_turn(self.flush(&file)).await?;
                }
                return Ok(waited || !is_told);
            }
            if !file.busy.get() {
                break;
            }
            let changed = file.changed.wait();
            changed.await;
            waited = true;
            file.state.borrow().last?;
        }
        file.exclusively(self.ask(&file)).await
    }

    /// Whether what the origin said at this time is believed of a request that has arrived then. Asked after the client
    /// wanted to know is young whatever is believed.
    pub(crate) fn is_young(&self, at: Time, arrived: Time) -> bool {
        at >= arrived || self.cx.now().since(at) < self.config.belief
    }

    async fn ask(&self, file: &Rc<Foreign>) -> Result<bool, Errno> {
        let asked = self.cx.now();
        let handle = match file.id == self.config.root {
            true => self.root_handle(file).await,
            false => Ok(file.state.borrow().kept.handle.clone()),
        };
        let fattr = match handle {
            Ok(handle) => self.origin.attributes(&handle).await,
            Err(errno) => Err(errno),
        };
        match fattr {
            Ok(fattr) => {
                let changed = self.learn(file, &fattr).await?;
                file.note_asked(asked);
                Ok(changed)
            }
            Err(Errno::EHOSTDOWN) if self.config.stale_ok => self.flush(file).await,
            Err(Errno::ESTALE) => {
                if file.id == self.config.root {
                    self.origin.remount();
                }
                Err(Errno::ESTALE)
            }
            Err(errno) => Err(errno),
        }
    }

    async fn root_handle(&self, file: &Foreign) -> Result<Box<[u8]>, Errno> {
        let handle: Box<[u8]> = self.origin.root().await?.into();
        let mut state = file.state.borrow_mut();
        if state.kept.handle != handle {
            state.kept = Kept { handle: handle.clone(), ..Kept::default() };
        }
        Ok(handle)
    }

    /// Takes the origin's attributes of a file over; whether they are of another version.
    pub(crate) async fn learn(&self, file: &Rc<Foreign>, fattr: &Fattr) -> Result<bool, Errno> {
        if file_kind(fattr.kind) != file.kind {
            return Err(Errno::ESTALE);
        }
        let now = version(fattr);
        if file.state.borrow().kept.version == now {
            return self.flush(file).await;
        }
        match file.kind {
            FileKind::Directory => self.list(file, fattr, now).await?,
            _ => self.renew(file, fattr, now).await?,
        }
        Ok(true)
    }

    /// Lists a directory anew.
    async fn list(&self, file: &Rc<Foreign>, fattr: &Fattr, now: Version) -> Result<(), Errno> {
        let handle = file.handle();
        // the manager gives times of its own to a directory whose names change
        file.state.borrow_mut().shown = None;
        self.mirror(file.id, &handle).await?;
        self.renew(file, fattr, now).await
    }

    /// Gives a file the attributes of another version. The truncate generation is raised before the version is noted:
    /// a crash in between only has it raised again.
    pub(crate) async fn renew(
        &self,
        file: &Rc<Foreign>,
        fattr: &Fattr,
        now: Version,
    ) -> Result<(), Errno> {
        let set = self.names.set_attr(&Who::ROOT, file.id, changes(fattr), false).await;
        let entry = match set {
            Err(errno) if file.kind == FileKind::Regular && is_lost(errno) => {
                self.begin_anew(file).await?;
                self.names.set_attr(&Who::ROOT, file.id, changes(fattr), false).await?
            }
            set => set?,
        };
        let kept = {
            let mut state = file.state.borrow_mut();
            state.begin_generation(&entry);
            (state.kept.version, state.size) = (now, entry.attr.size);
            (state.told_size, state.unflushed) = (entry.attr.size, None);
            state.kept.clone()
        };
        self.keep(file, &kept).await
    }

    /// Keeps it beside the inode.
    pub(crate) async fn keep(&self, file: &Foreign, kept: &Kept) -> Result<(), Errno> {
        file.state.borrow_mut().stored = None;
        self.names.set_xattr(&Who::ROOT, file.id, ORIGIN, &encoded(kept), 0).await?;
        file.state.borrow_mut().stored = Some(kept.clone());
        Ok(())
    }

    /// The file as it is known, or as the manager keeps it. EINVAL: it is of no import, or another one's.
    pub(crate) async fn load(&self, id: FileId) -> Result<Rc<Foreign>, Errno> {
        if let Some(file) = self.files.borrow().get(&id) {
            return Ok(file.clone());
        }
        let entry = self.names.get_attr(id).await?;
        if entry.attr.import() != Some(self.config.import) {
            return Err(Errno::EINVAL);
        }
        let mut kept = match self.names.get_xattr(&Who::ROOT, id, ORIGIN).await {
            Ok(bytes) => Kept::take(&mut Decoder::new(&bytes)).map_err(|_| Errno::EIO)?,
            Err(Errno::ENODATA) if id == self.config.root => Kept::default(),
            // half of it was made
            Err(Errno::ENODATA) => return Err(Errno::ESTALE),
            Err(errno) => return Err(errno),
        };
        if kept.truncations != entry.truncations {
            // an importer ended between the two steps of another version
            (kept.version, kept.whole) = (Version::default(), false);
            kept.there.clear();
        }
        Ok(self.remember(&entry, kept))
    }

    /// The file, known from now on.
    pub(crate) fn remember(&self, entry: &Entry, kept: Kept) -> Rc<Foreign> {
        let mut files = self.files.borrow_mut();
        if files.len() >= FILES_MAX {
            files.retain(|_, file| Rc::strong_count(file) > 1);
        }
        let new = || Rc::new(Foreign::new(&self.cx, entry, kept));
        files.entry(entry.attr.file).or_insert_with(new).clone()
    }

    /// The file is gone.
    pub(crate) fn forget(&self, id: FileId) {
        self.room.borrow_mut().forget(id);
        self.walks.borrow_mut().forget(id);
        self.files.borrow_mut().remove(&id);
    }

    /// A power cut may have taken what was changed at a manager: all is asked of it again.
    pub(crate) fn forget_all(&self) {
        self.files.borrow_mut().clear();
    }
}
