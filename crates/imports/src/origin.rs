//! The origin as the importer asks it: calls of NFS that wait for their replies.

mod changing;
mod gathering;
mod listing;
#[cfg(test)]
mod tests;

pub(crate) use changing::{Made, NameIn, New, version_before};
pub(crate) use listing::{Listed, Position};

use crate::limits::*;
use crate::protocol::Version;
use nfs::client::session::{Finished, Session};
use nfs::client::{Caller, Request};
use nfs::convert::{errno, file_kind, wall};
use nfs::limits::SESSION_CALLS_MAX;
use nfs::v3::{Args, Fattr, Handle, Outcome, ReadArgs, Results, Status};
use node::{Cx, Notify, Semaphore};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileKind, SetAttr, SetTime, Time};

/// An origin, reached by a session that some device moves.
pub struct Origin {
    cx: Cx,
    session: Rc<RefCell<Session>>,
    finished: Rc<Notify>,
    calls: Semaphore,
    caller: Caller,
    name: String,
    /// It is away, and is not asked again before this.
    away: Cell<Option<Time>>,
    log: Box<dyn Fn(&str)>,
    counters: Counters,
    /// Bytes of a WRITE, at most, once the origin has said it.
    write_max: Cell<Option<u32>>,
    /// It has said that it has no READDIRPLUS.
    names_only: Cell<Option<NamesOnly>>,
    /// Names that a directory may have.
    names_max: usize,
}

/// An answer of an origin without READDIRPLUS.
#[derive(Clone, Copy, Debug)]
struct NamesOnly {
    at: Time,
    /// Connections that had been lost until then.
    reconnects: u64,
}

/// Calls and bytes so far.
#[derive(Default)]
struct Counters {
    calls: Cell<u64>,
    read_bytes: Cell<u64>,
    written_bytes: Cell<u64>,
}

fn add(counter: &Cell<u64>, more: usize) {
    counter.set(counter.get() + more as u64);
}

/// An origin as its importer finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// `nfs://HOST/EXPORT`.
    pub name: String,
    /// Calls that it has answered.
    pub calls: u64,
    /// Bytes that were read of it.
    pub read_bytes: u64,
    /// Bytes that were written to it.
    pub written_bytes: u64,
    /// For how long it has not answered, and why.
    pub away: Option<(Duration, String)>,
}

/// The bytes of one READ, and the file's attributes with them.
pub(crate) struct Bytes {
    pub data: Vec<u8>,
    pub attributes: Option<Fattr>,
}

/// The version that these attributes are of.
pub(crate) fn version(fattr: &Fattr) -> Version {
    let time = |time| wall(time).unwrap_or_default();
    Version { mtime: time(fattr.mtime), ctime: time(fattr.ctime), size: fattr.size }
}

/// The attributes to set for these of the origin's. Set-id bits are not taken over.
pub(crate) fn changes(fattr: &Fattr) -> SetAttr {
    let kind = file_kind(fattr.kind);
    SetAttr {
        mode: (kind != FileKind::Symlink).then_some(fattr.mode & 0o1777),
        uid: Some(fattr.uid),
        gid: Some(fattr.gid),
        size: (kind == FileKind::Regular).then_some(fattr.size),
        mtime: Some(SetTime::To(wall(fattr.mtime).unwrap_or_default())),
        ..SetAttr::default()
    }
}

impl Origin {
    /// Called `name`. The device calls `finished` when calls have finished; `caller` makes all of them; `log` hears
    /// when the origin is away and when it is back.
    pub fn new(
        cx: &Cx,
        (session, finished): (Rc<RefCell<Session>>, Rc<Notify>),
        caller: Caller,
        name: String,
        log: impl Fn(&str) + 'static,
    ) -> Origin {
        let calls = Semaphore::new(cx, SESSION_CALLS_MAX);
        let (cx, away, log) = (cx.clone(), Cell::new(None), Box::new(log));
        let (counters, write_max, names_only) = Default::default();
        Origin {
            cx,
            session,
            finished,
            calls,
            caller,
            name,
            away,
            log,
            counters,
            write_max,
            names_only,
            names_max: NAMES_MAX,
        }
    }

    /// The handle of the export; EHOSTDOWN when it is not to be had soon.
    pub async fn root(&self) -> Result<Vec<u8>, Errno> {
        if let Some(root) = self.session.borrow().root() {
            return Ok(root.to_vec());
        }
        let known = async {
            loop {
                let round = self.finished.wait();
                if let Some(root) = self.session.borrow().root() {
                    return root.to_vec();
                }
                round.await;
            }
        };
        let root = self.cx.with_deadline(self.patience()?, known).await;
        root.map_err(|_| self.is_away())
    }

    /// The handle of the export is stale: it is mounted again.
    pub(crate) fn remount(&self) {
        self.session.borrow_mut().remount(self.cx.now());
        self.names_only.set(None);
    }

    /// Why it is away, if it is.
    pub fn trouble(&self) -> Option<String> {
        self.session.borrow().away().map(|away| away.trouble.to_string())
    }

    /// As it is now. It is away when calls to it have failed, not while it is only slow or was not asked yet.
    pub fn standing(&self) -> Standing {
        let away = self.away.get().map(|_| match self.session.borrow().away() {
            Some(away) => (self.cx.now().since(away.since), away.trouble.to_string()),
            None => (Duration::ZERO, "it does not answer".to_string()),
        });
        let Counters { calls, read_bytes, written_bytes } = &self.counters;
        Standing {
            name: self.name.clone(),
            calls: calls.get(),
            read_bytes: read_bytes.get(),
            written_bytes: written_bytes.get(),
            away,
        }
    }

    /// How long it is waited for; EHOSTDOWN when it is away and was asked a moment ago.
    fn patience(&self) -> Result<Duration, Errno> {
        match self.away.get() {
            None => Ok(ORIGIN_PATIENCE),
            Some(next) if self.cx.now() < next => Err(Errno::EHOSTDOWN),
            Some(_) => {
                self.away.set(Some(self.cx.now() + AWAY_PAUSE));
                Ok(AWAY_PATIENCE)
            }
        }
    }

    fn is_away(&self) -> Errno {
        if self.away.replace(Some(self.cx.now() + AWAY_PAUSE)).is_none() {
            let session = self.session.borrow();
            let away = session.away();
            let since = away.map_or(ORIGIN_PATIENCE, |away| self.cx.now().since(away.since));
            let why = away.map(|away| format!(": {}", away.trouble)).unwrap_or_default();
            (self.log)(&format!("{} is away for {} s{why}", self.name, since.as_secs()));
        }
        Errno::EHOSTDOWN
    }

    /// Reports something of it that cannot be shown.
    pub(crate) fn report(&self, what: &str) {
        (self.log)(&format!("{}: {what}", self.name));
    }

    fn is_back(&self) {
        if self.away.replace(None).is_some() {
            (self.log)(&format!("{} is back", self.name));
        }
    }

    /// A call's results, decoded by `take`. Waits where the origin says JUKEBOX.
    async fn call<T>(
        &self,
        args: Args<'_>,
        take: impl Fn(Results<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.call_as(&self.caller, &args.into(), take).await
    }

    /// The same in the name of `caller`.
    async fn call_as<T>(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        take: impl Fn(Results<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _permit = self.calls.acquire(1).await;
        let deadline = self.cx.now() + self.patience()?;
        loop {
            let finished = self.finish(caller, request, deadline).await?;
            let results = finished.results().ok_or_else(|| self.is_away())?;
            self.is_back();
            add(&self.counters.calls, 1);
            let results = results.map_err(|_| Errno::EPROTO)?;
            if results.status() != Status::Jukebox || self.cx.now() >= deadline {
                return take(results);
            }
            self.cx.sleep(JUKEBOX_PAUSE).await;
        }
    }

    async fn finish(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        deadline: Time,
    ) -> Result<Finished, Errno> {
        let now = self.cx.now();
        let made = self.session.borrow_mut().call(caller, request, deadline, now);
        let xid = made.map_err(|_| Errno::EAGAIN)?; // there are as many permits as calls
        loop {
            let round = self.finished.wait();
            if let Some(finished) = self.session.borrow_mut().take(xid) {
                return Ok(finished);
            }
            round.await;
        }
    }

    pub(crate) async fn attributes(&self, file: &[u8]) -> Result<Fattr, Errno> {
        self.call(Args::Getattr(Handle(file)), |results| match results {
            Results::Getattr(Outcome::Ok(fattr)) => Ok(fattr),
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn link_target(&self, link: &[u8]) -> Result<Vec<u8>, Errno> {
        self.call(Args::Readlink(Handle(link)), |results| match results {
            Results::Readlink(Outcome::Ok(ok)) => Ok(ok.target.0.to_vec()),
            other => Err(failure(&other)),
        })
        .await
    }

    pub(crate) async fn read(&self, file: &[u8], offset: u64, count: u32) -> Result<Bytes, Errno> {
        let args = Args::Read(ReadArgs { file: Handle(file), offset, count });
        self.call(args, |results| match results {
            Results::Read(Outcome::Ok(read)) => {
                add(&self.counters.read_bytes, read.data.len());
                Ok(Bytes { data: read.data.to_vec(), attributes: read.ok.attributes })
            }
            other => Err(failure(&other)),
        })
        .await
    }
}

fn failure(results: &Results<'_>) -> Errno {
    match results.status() {
        Status::Ok => Errno::EPROTO,
        // the origin's word, which no retry of ours changes
        Status::Jukebox => Errno::EIO,
        status => errno(status),
    }
}
