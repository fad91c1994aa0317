//! Pages in this node's log: the second copy of those of [`Class::MirroredAndLogged`](crate::Class), beside one mirror.
//!
//! A log is a holder as others' memory is: both homes of a page's directory entry know of it before it counts. So when
//! the mirror goes down, the directory has another one made from the log, and when the log's node does, from the
//! mirror. It is read where no node has the page in memory. Its pages are of this incarnation of its node and of no
//! other.

use super::get::Got;
use super::store::Stored;
use super::{Log, Service, Source};
use crate::directory::Role as HolderRole;
use crate::memory::Arrival;
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::protocol::{Get, GetReply, No, Record};
use endpoint::Frame;
use node::{Answer, Request};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Errno;

/// The log, if there is one, and what it has. Each page takes a block there at least, so that the log's size is this
/// table's limit.
#[derive(Default)]
pub struct Logged {
    log: Option<Rc<dyn Log>>,
    pages: BTreeMap<PageId, PageStamp>,
}

impl Logged {
    /// The log.
    pub fn log(&self) -> Option<Rc<dyn Log>> {
        self.log.clone()
    }

    /// Its pages.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = &PageStamp> {
        self.pages.values()
    }

    /// Whether it has just this.
    pub fn has(&self, stamp: &PageStamp) -> bool {
        self.pages.get(&stamp.id) == Some(stamp)
    }

    /// A page in this version or a newer one.
    pub fn find(&self, id: PageId, at_least: Version) -> Option<PageStamp> {
        self.pages.get(&id).filter(|stamp| stamp.version >= at_least).copied()
    }

    /// There is a log from now on. One that there is already stays: it has pages.
    pub fn keep(&mut self, log: Rc<dyn Log>) {
        self.log.get_or_insert(log);
    }

    /// A page was appended.
    pub fn handle_appended(&mut self, stamp: PageStamp) {
        self.pages.insert(stamp.id, stamp);
    }

    /// Versions of a page up to this one are not needed any more.
    pub fn forget(&mut self, id: PageId, version: Version) {
        if self.pages.get(&id).is_some_and(|stamp| stamp.version <= version) {
            self.pages.remove(&id);
            self.log.iter().for_each(|log| log.forget(id));
        }
    }

    /// Pages that are not to be kept are not needed any more.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        let log = self.log.clone();
        self.pages.retain(|id, _| {
            let stays = keeps(*id);
            log.iter().filter(|_| !stays).for_each(|log| log.forget(*id));
            stays
        });
    }
}

impl Service {
    /// This node has a log from now on. One that it has already stays: it has pages.
    pub fn keep_log(&self, log: Rc<dyn Log>) {
        self.0.replicas.borrow_mut().logged.keep(log);
    }

    /// Whether it has one.
    pub fn keeps_log(&self) -> bool {
        self.0.replicas.borrow().logged.log().is_some()
    }

    /// Pages that this node's log has.
    pub fn logged_pages(&self) -> usize {
        self.0.replicas.borrow().logged.pages().len()
    }

    /// Which pages. For those who check it while nothing runs: tests and the simulator.
    pub fn logged(&self) -> Vec<(PageId, Version)> {
        let replicas = self.0.replicas.borrow();
        replicas.logged.pages().map(|stamp| (stamp.id, stamp.version)).collect()
    }

    /// Appends a page to the log, and tells its directories. What was told to one of them only stays.
    pub(super) async fn log_page(&self, stamp: PageStamp, data: &Frame) -> Result<(), No> {
        let log = self.0.replicas.borrow().logged.log().ok_or(No::Room)?;
        let has = self.0.replicas.borrow().logged.has(&stamp);
        if !has {
            let incarnation = self.incarnation();
            log.append(stamp, data.clone()).await.map_err(|_| No::Room)?;
            self.0.replicas.borrow_mut().logged.handle_appended(stamp);
            let freed = self.0.home.borrow().is_freed(stamp.id.space);
            if freed || incarnation != self.incarnation() {
                self.unlog(stamp.id, stamp.version);
                return Err(No::Outside);
            }
        }
        let record = self.log_record(&stamp);
        match self.register(&record, None).await {
            Ok(()) if self.has_log(&record) => Ok(()),
            Err(No::Unregistered) => Err(No::Unregistered),
            ended => {
                self.unlog(stamp.id, stamp.version);
                self.deny_all(&record);
                Err(ended.err().unwrap_or(No::Stale))
            }
        }
    }

    /// The log's page, as its directories know it.
    pub(super) fn log_record(&self, stamp: &PageStamp) -> Record {
        self.record(stamp.id, stamp.version, HolderRole::Log, 2)
    }

    /// Whether the log has what a record says.
    pub(super) fn has_log(&self, record: &Record) -> bool {
        let found = self.0.replicas.borrow().logged.find(record.id, record.version);
        found.is_some_and(|stamp| stamp.version == record.version)
    }

    /// Nobody needs what the log has of a page up to this version.
    pub(super) fn unlog(&self, id: PageId, version: Version) {
        self.0.replicas.borrow_mut().logged.forget(id, version);
    }

    /// This node's incarnation is over, and what its log has is nobody's.
    pub(super) fn unlog_all(&self) {
        self.0.replicas.borrow_mut().logged.retain(|_| false);
        self.store_mut().forget_log();
    }

    /// What the log has of a page. Where other bytes come than were appended, or where they were superseded meanwhile,
    /// it has nothing, and the directories hear of the former.
    pub(super) async fn read_log(
        &self,
        id: PageId,
        at_least: Version,
    ) -> Result<(PageStamp, Frame), No> {
        let stamp = self.0.replicas.borrow().logged.find(id, at_least).ok_or(No::NotHere)?;
        let log = self.0.replicas.borrow().logged.log().ok_or(No::NotHere)?;
        let read = log.read(stamp).await;
        if !self.0.replicas.borrow().logged.has(&stamp) {
            return Err(No::NotHere);
        }
        // a disk that fails may answer later
        let data = read.map_err(|_| No::Unregistered)?;
        let wanted = Wanted { id, at_least, bytes: stamp.bytes };
        if self.verify(wanted, &stamp, &data) {
            return Ok((stamp, data));
        }
        self.unlog(id, stamp.version);
        self.deny_all(&self.log_record(&stamp));
        Err(No::NotHere)
    }

    /// A page that nobody has in memory, or nobody who answers, from this node's own log. One of its own space comes
    /// back as what it was.
    pub(super) async fn get_logged(&self, wanted: Wanted, keeps: bool) -> Option<Got> {
        let Wanted { id, at_least, bytes } = wanted;
        if self.doubts(id) {
            return None;
        }
        let own = id.space.owner() == Some(self.me());
        let newest = self.0.home.borrow().version(id);
        let (stamp, data) = self.read_log(id, at_least.max(newest)).await.ok()?;
        let PageStamp { version, checksum, .. } = stamp;
        if keeps && own {
            let mut stored = Stored::new(data.clone(), checksum);
            let arrival = Arrival { id, version, reused: true, ..Arrival::default() };
            let arrival = self.with_mirrors(arrival, &mut stored);
            self.keep(arrival, stored);
        }
        (stamp.bytes == bytes).then_some(Got { version, data, source: Source::Backing })
    }

    /// Whether a directory's word that this node has a page is about its log. Who has written a newer version since has
    /// it elsewhere, or will say so.
    pub(super) fn gives_logged(&self, get: &Get) -> bool {
        let logged = self.0.replicas.borrow().logged.find(get.id, get.at_least);
        let newest = self.writing().newest(get.id).unwrap_or_default();
        logged.is_some_and(|stamp| stamp.version >= newest && stamp.bytes == get.bytes)
    }

    /// Answers a request with what the log has.
    pub(super) async fn answer_logged(&self, request: Request, get: &Get) {
        let Some(_permit) = self.0.permits.slow.try_acquire(1) else {
            return self.cx().reply(request, Answer::error(Errno::EAGAIN));
        };
        match self.read_log(get.id, get.at_least).await {
            Ok((stamp, data)) if self.gives_logged(get) && !self.doubts(get.id) => {
                self.answer_data(request, get, super::answer::Given::hard(stamp, data), false);
            }
            Err(No::Unregistered) => {
                self.answer_get(request, GetReply::Unknown { settled: false });
            }
            _ => {
                let reply = self.not_here(get);
                self.answer_get(request, reply);
            }
        }
    }
}
