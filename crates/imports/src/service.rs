//! The importer: a service that compares files with the origin's, and brings their bytes.

use crate::limits::*;
use crate::origin::{Origin, changes, version};
use crate::pieces::Pieces;
use crate::protocol::{CHECK, Check, FETCH, Fetch, Kept, ORIGIN, Said, Version};
use names::{Entry, Who};
use nfs::convert::file_kind;
use nfs::v3::Fattr;
use node::{Answer, Cx, Notify, Request, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use wire::field::{Field, Message, encoded};
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
}

pub(crate) struct State {
    pub kept: Kept,
    pub size: u64,
    pub layout: Option<Layout>,
    pub pieces: Pieces,
    /// When the origin was asked last.
    asked: Option<Time>,
    /// The last comparison's end.
    last: Result<(), Errno>,
    /// The manager may lose its truncate generation by a power cut.
    pub unsynced: bool,
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
        let state = State {
            kept,
            size: entry.attr.size,
            layout: entry.layout,
            pieces: Pieces::new(entry.truncations),
            asked: None,
            last: Ok(()),
            unsynced: true,
        };
        let (id, kind) = (entry.attr.file, entry.attr.kind);
        Foreign {
            id,
            kind,
            state: RefCell::new(state),
            changed: Notify::new(cx),
            busy: Cell::new(false),
        }
    }

    /// Runs `work` as the only comparison of the file, which none is under way of.
    async fn exclusively<T>(
        &self,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        assert!(!self.busy.replace(true), "one comparison of a file at a time");
        let result = work.await;
        self.busy.set(false);
        self.state.borrow_mut().last = result.as_ref().map(drop).map_err(|errno| *errno);
        self.changed.notify_all();
        result
    }

    /// Runs `work` when no comparison of the file is under way.
    pub async fn in_turn<T>(
        &self,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        while self.busy.get() {
            self.changed.wait().await;
        }
        self.exclusively(work).await
    }

    /// Pieces of all of it.
    pub fn piece_count(&self) -> u64 {
        self.state.borrow().size.div_ceil(PIECE_BYTES)
    }

    /// The origin is to be asked before anything is believed.
    pub fn doubt(&self) {
        self.state.borrow_mut().asked = None;
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
        let inner = Inner { cx, config, names, objects, origin, files, fetches };
        let service = Service(Rc::new(inner));
        // comparing or fetching twice is as good as once
        service.cx.set_pure(Channel::IMPORTS, |_| true);
        for _ in 0..SERVICE_LOOPS {
            service.cx.spawn("imports", service.clone().serve_loop());
        }
        service
    }

    async fn serve_loop(self) {
        loop {
            let request = self.cx.accept(Channel::IMPORTS).await;
            match self.serve(&request).await {
                Ok(yes) => self.cx.reply(request, Answer::body(&Said { yes }.encode())),
                Err(errno) => self.cx.reply(request, Answer::error(errno)),
            }
        }
    }

    async fn serve(&self, request: &Request) -> Result<bool, Errno> {
        let own = |import| if import == self.config.import { Ok(()) } else { Err(Errno::EINVAL) };
        match request.op {
            CHECK => {
                let Check { import, file } =
                    Check::decode(&request.body).map_err(|_| Errno::EPROTO)?;
                own(import)?;
                self.check(file).await
            }
            FETCH => {
                let fetch = Fetch::decode(&request.body).map_err(|_| Errno::EPROTO)?;
                own(fetch.import)?;
                self.fetch(fetch.file, fetch.truncations, fetch.piece).await
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Compares a file with the origin's, unless what is known is young. Whether it may have changed meanwhile.
    pub async fn check(&self, id: FileId) -> Result<bool, Errno> {
        let (arrived, mut waited) = (self.cx.now(), false);
        let file = self.load(id).await?;
        loop {
            let asked = file.state.borrow().asked;
            // asked after the client wanted to know is young whatever is believed
            let is_young = |at: Time| at >= arrived || self.cx.now().since(at) < self.config.belief;
            if asked.is_some_and(is_young) {
                return Ok(waited);
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
            Err(Errno::EHOSTDOWN) if self.config.stale_ok => Ok(false),
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
            return Ok(false);
        }
        match file.kind {
            FileKind::Directory => self.list(file, fattr, now).await?,
            _ => self.renew(file, fattr, now).await?,
        }
        Ok(true)
    }

    /// Lists a directory anew.
    async fn list(&self, file: &Rc<Foreign>, fattr: &Fattr, now: Version) -> Result<(), Errno> {
        let handle = file.state.borrow().kept.handle.clone();
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
        let entry = self.names.set_attr(&Who::ROOT, file.id, changes(fattr), false).await?;
        let kept = {
            let mut state = file.state.borrow_mut();
            (state.kept.version, state.kept.whole) = (now, false);
            state.kept.truncations = entry.truncations;
            (state.size, state.layout) = (entry.attr.size, entry.layout);
            state.pieces.begin_version(entry.truncations);
            state.unsynced = true;
            state.kept.clone()
        };
        self.keep(file.id, &kept).await
    }

    /// Keeps it beside the inode.
    pub(crate) async fn keep(&self, id: FileId, kept: &Kept) -> Result<(), Errno> {
        self.names.set_xattr(&Who::ROOT, id, ORIGIN, &encoded(kept), 0).await
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
        self.files.borrow_mut().remove(&id);
    }

    /// A power cut may have taken what was changed at a manager: all is asked of it again.
    pub(crate) fn forget_all(&self) {
        self.files.borrow_mut().clear();
    }
}
