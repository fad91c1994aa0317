//! The manager as a service of its node: requests in, log records out, answers when the records are safe.
//!
//! Everything that waits is here; everything that decides is in [`Manager`]. The manager is borrowed only between
//! waits, so that each of its operations is whole. A change is applied, its record posted in the same breath, and
//! answered when the append is done.

mod across;
mod backup;
mod begin;
mod compare;
mod decided;
mod describe;
mod dispatch;
mod drain;
mod gone;
mod handle;
mod handover;
mod layouts;
mod moment;
mod owners;
mod participant;
mod quarantine;
mod upkeep;

use crate::foreign::Stop;
use crate::holds::Tx;
use crate::limits::{FULL_SPAN, HEAR_INTERVAL, RETRY_INTERVAL, SCARCE_SPAN, SLOTS, TASKS};
use crate::manager::{Manager, Origin, VolumeSettings};
use crate::objects::Objects;
use crate::open_error::OpenError;
use crate::protocol::{CallNumber, Operation, cut, join};
use crate::servers::IoServer;
use crate::sites::Ownership;
use crate::transaction::Transaction;
use backup::{Backup, Members};
pub use begin::REFUSED;
use begin::Stage;
use compare::Strays;
pub use describe::Stopping;
use drain::Retiring;
pub use handle::Handle;
use moment::Quiesced;
use node::rings::{MetaError, MetaOp, MetaRoom, StoreId};
use node::{Answer, Cx, Notify, Request};
pub use quarantine::QuarantineCounters;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::{Append, Store, StoreError};
use stripe::Witness;
use wire::{Channel, Decoder, Errno, FileId, NodeId, Time, VolumeId};

/// How a manager is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of a new volume; of one that exists, the volume must be the same.
    pub volume: VolumeSettings,
    /// The active I/O servers.
    pub servers: Vec<IoServer>,
    /// The I/O servers that are asked at the start how far the store of names was.
    pub witnesses: Vec<NodeId>,
    /// In which time all of its store is read once; never when there is none.
    pub scrub: Option<Duration>,
    /// The manager that the volume was made at; `None` is this one.
    pub first: Option<NodeId>,
    /// Managers that are members: a store that was restored is a copy from before it gave them sites, maybe.
    pub managers: Vec<NodeId>,
}

/// State shared by the tasks of the service.
struct Service<O> {
    cx: Cx,
    volume: VolumeId,
    /// As I/O servers know this manager: 0 is the volume's first one.
    seat: NodeId,
    scrub: Option<Duration>,
    /// Other managers that the members know.
    managers: Vec<NodeId>,
    objects: O,
    manager: RefCell<Manager>,
    /// The change with which the incarnation, or its lineage, begins: on stable storage before any other is told.
    first: Cell<u64>,
    stage: Cell<Stage>,
    strays: RefCell<Option<Strays>>,
    /// All servers were surveyed.
    surveyed: Notify,
    backups: RefCell<BTreeMap<u64, Backup>>,
    /// The part of a backup beside the names.
    members: RefCell<Option<Members>>,
    /// What is held back for a snapshot of all managers.
    quiesced: Cell<Option<Quiesced>>,
    /// The stage is another.
    begun: Notify,
    /// The servers that were asked what they know before this incarnation began.
    asked: RefCell<BTreeSet<NodeId>>,
    /// Each active server's knowledge of this store.
    told: RefCell<BTreeMap<NodeId, Witness>>,
    /// Servers that stop, and were told of all files for that; until they answer again.
    parted: RefCell<BTreeSet<NodeId>>,
    /// Whether all names were walked for what the incarnation before changed and told no object.
    walked: Cell<bool>,
    /// The last change whose record is appended.
    appended: Cell<u64>,
    syncing: Cell<bool>,
    /// An append, a sync or a checkpoint ended.
    progress: Notify,
    /// The overlay wants a checkpoint now.
    full: Notify,
    /// There is something to remove, settle or expire.
    work: Notify,
    work_seen: Cell<usize>,
    /// Files whose length or layout is being changed on the objects.
    busy: RefCell<BTreeSet<FileId>>,
    gate: Notify,
    /// Files with a column on its way to another server.
    moving: RefCell<BTreeSet<FileId>>,
    /// When work that failed is tried again: each kind by itself, as one may wait for the other.
    retry_at: RefCell<BTreeMap<(upkeep::Chore, FileId), Time>>,
    /// Whether holdings that the last incarnation's clients did not reclaim were released.
    swept: Cell<bool>,
    quarantine: Cell<QuarantineCounters>,
    /// Disks that were declared gone, and how many files that concerns.
    gone: gone::Gone,
    /// Why the log last failed, until a sync succeeds.
    trouble: RefCell<Option<MetaError>>,
    /// When a change was last refused for want of room.
    full_at: Cell<Option<Time>>,
    /// Sites that are on their way here, with the giver's number of that.
    imports: RefCell<BTreeMap<u8, u64>>,
    /// Sites that are on their way to others.
    giving: RefCell<BTreeMap<u8, NodeId>>,
    /// Other managers that are taken out.
    retiring: RefCell<Retiring>,
    /// Operations over several managers that are not decided yet.
    undecided: RefCell<BTreeSet<Tx>>,
    /// Decided ones whose parts are not on stable storage everywhere.
    unsettled: decided::Unsettled,
    /// Files are not held any more, or a site has another owner.
    released: Notify,
    /// Requests that wait for that, or for other managers.
    waiting: Cell<usize>,
}

/// Serves the volume in `store`, which was opened with [`crate::STORE`], on [`Channel::NAMES`]. A `Names` store of the
/// node's world must be where its logs are. `objects` is how the I/O servers are asked.
pub fn serve<O: Objects>(
    cx: &Cx,
    config: Config,
    store: Store,
    objects: O,
) -> Result<Handle, OpenError> {
    let sites = Ownership::new(cx.id(), config.first.unwrap_or(cx.id()));
    let mut manager = Manager::load(store, &config.volume, sites, cx.now(), cx.incarnation())?;
    manager.plant(cx.bugs());
    manager.set_servers(&config.servers);
    let service = Rc::new(Service {
        first: Cell::new(u64::MAX),
        asked: RefCell::default(),
        stage: Cell::default(),
        strays: RefCell::default(),
        surveyed: Notify::new(cx),
        backups: RefCell::default(),
        members: RefCell::default(),
        quiesced: Cell::default(),
        begun: Notify::new(cx),
        told: RefCell::default(),
        parted: RefCell::default(),
        walked: Cell::default(),
        cx: cx.clone(),
        volume: config.volume.volume,
        seat: config.first.map_or(NodeId(0), |_| cx.id()),
        scrub: config.scrub,
        managers: config.managers,
        objects,
        appended: Cell::new(manager.store().synced_sequence()),
        manager: RefCell::new(manager),
        syncing: Cell::new(false),
        progress: Notify::new(cx),
        full: Notify::new(cx),
        work: Notify::new(cx),
        work_seen: Cell::new(0),
        busy: RefCell::default(),
        gate: Notify::new(cx),
        moving: RefCell::default(),
        retry_at: RefCell::default(),
        swept: Cell::new(false),
        quarantine: Cell::default(),
        gone: gone::Gone::new(cx),
        trouble: RefCell::default(),
        full_at: Cell::default(),
        imports: RefCell::default(),
        giving: RefCell::default(),
        retiring: RefCell::default(),
        undecided: RefCell::default(),
        unsettled: decided::Unsettled::new(cx),
        released: Notify::new(cx),
        waiting: Cell::default(),
    });
    cx.spawn("names start", service.clone().begin(config.volume, config.witnesses));
    cx.set_pure(Channel::NAMES, Operation::is_pure);
    for _ in 0..TASKS {
        let service = service.clone();
        cx.spawn("names", async move {
            loop {
                let request = service.cx.accept(Channel::NAMES).await;
                service.serve(request).await;
            }
        });
    }
    cx.spawn("names hear", service.clone().hear_the_living());
    participant::spawn(&service);
    Ok(Handle(Rc::new(service)))
}

/// A record on its way to the log.
type Posted = Result<Option<u64>, Errno>;

impl<O: Objects> Service<O> {
    /// Posts a record at once, so that records are in the order of their changes; the future ends when it is safe.
    fn post(self: &Rc<Self>, append: Option<Append>) -> impl Future<Output = Posted> + use<O> {
        let service = self.clone();
        let posted = append.map(|append| {
            let op = MetaOp::Append { log: append.log, bytes: append.bytes };
            (append.sequence, service.cx.meta(StoreId::Names, op))
        });
        async move {
            let Some((sequence, done)) = posted else { return Ok(None) };
            if let Err(error) = done.await {
                service.note_full(error.full);
                service.trouble.replace(Some(error));
                service.manager.borrow_mut().store().append_failed();
                service.full.notify_all();
                service.progress.notify_all();
                return Err(service.refusal());
            }
            if service.manager.borrow_mut().store().is_behind_hole(sequence) {
                return Err(service.refusal());
            }
            service.appended.set(service.appended.get().max(sequence));
            service.progress.notify_all();
            Ok(Some(sequence))
        }
    }

    /// A change of the service's own, made when one may be; ends when it is safe. EAGAIN when a file stays held by an
    /// operation over several managers.
    async fn commit<T>(
        self: &Rc<Self>,
        change: impl Fn(&mut Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let end = self.cx.now() + RETRY_INTERVAL;
        loop {
            self.admit().await?;
            let released = self.released.wait();
            let changed = self.manager.borrow_mut().try_change(self.origin(0), &change);
            match changed {
                Ok((value, append)) => {
                    self.post(append).await?;
                    return Ok(value);
                }
                Err(Stop::Blocked(_)) if self.cx.now() < end => {
                    node::race(released, self.cx.sleep_until(end)).await;
                }
                Err(stop) => return Err(stop.into()),
            }
        }
    }

    /// A change is refused, for want of room if `full`.
    fn note_full(&self, full: bool) {
        if full {
            self.full_at.set(Some(self.cx.now()));
        }
    }

    /// The reserve of the disk is in use, or was when a change was refused a moment ago: a checkpoint may end that and
    /// the next changes begin it again.
    fn full_disk(&self) -> Option<MetaError> {
        let lately = self.full_at.get().is_some_and(|at| self.cx.now().since(at) < FULL_SPAN);
        (lately || self.cx.meta_room() > MetaRoom::Plenty).then(|| MetaError {
            full: true,
            reason: "the disk of the manager's store is full. Removals still work; make room on it"
                .to_string(),
        })
    }

    /// The error while the log has a hole: that there was no room, or that it could not be written.
    fn refusal(&self) -> Errno {
        let full = self.trouble.borrow().as_ref().is_some_and(|error| error.full);
        if full { Errno::ENOSPC } else { Errno::EIO }
    }

    /// An append without a waiting request has ended; a failure is in the store's state.
    fn note(&self, _: Posted) {}

    /// Waits until a change may be applied.
    async fn admit(&self) -> Result<(), Errno> {
        self.room_for_logs().await;
        loop {
            if self.is_refused() {
                return Err(REFUSED);
            }
            let progress = self.progress.wait();
            if let Some(until) = self.paused_until() {
                node::race(progress, self.cx.sleep_until(until)).await;
                continue;
            }
            match self.manager.borrow_mut().store().admit() {
                Ok(()) => return Ok(()),
                Err(StoreError::Full { .. }) => self.full.notify_all(),
                Err(_) => return Err(self.refusal()),
            }
            progress.await;
        }
    }

    /// Waits, where the disk has no room for longer logs, until a checkpoint has let some go. A change after that may
    /// find no room for its record, and says so.
    async fn room_for_logs(&self) {
        let late = self.cx.now() + SCARCE_SPAN;
        while self.cx.meta_room() == MetaRoom::Scarce && self.cx.now() < late {
            let progress = self.progress.wait();
            self.full.notify_all();
            node::race(self.cx.sleep_until(late), progress).await;
        }
    }

    /// Waits until everything applied so far is appended: what a repeated call's answer tells of.
    async fn settled(&self) -> Result<(), Errno> {
        let target = self.manager.borrow_mut().store().sequence();
        self.appended_to(target).await
    }

    /// Waits until the changes up to `target` are appended.
    async fn appended_to(&self, target: u64) -> Result<(), Errno> {
        loop {
            let progress = self.progress.wait();
            let (synced, failed) = {
                let mut manager = self.manager.borrow_mut();
                let store = manager.store();
                (store.synced_sequence(), matches!(store.admit(), Err(StoreError::LogFailed)))
            };
            if self.appended.get().max(synced) >= target {
                return Ok(());
            }
            if failed {
                return Err(self.refusal());
            }
            progress.await;
        }
    }

    /// Waits until everything applied so far is on stable storage. However many wait, one sync serves them.
    async fn sync(&self) -> Result<(), Errno> {
        let target = self.manager.borrow_mut().store().sequence();
        loop {
            let progress = self.progress.wait();
            if self.manager.borrow_mut().store().synced_sequence() >= target {
                return Ok(());
            }
            if self.syncing.get() {
                progress.await;
                continue;
            }
            self.syncing.set(true);
            let result = self.sync_once().await;
            self.syncing.set(false);
            self.progress.notify_all();
            result?;
        }
    }

    async fn sync_once(&self) -> Result<(), Errno> {
        let point = self.manager.borrow_mut().store().sync_point();
        for log in &point.logs {
            let done = self.cx.meta(StoreId::Names, MetaOp::Sync { log: *log });
            if let Err(error) = done.await {
                self.trouble.replace(Some(error));
                return Err(Errno::EIO);
            }
        }
        let mut manager = self.manager.borrow_mut();
        if let Err(StoreError::LogFailed) = manager.store().admit() {
            return Err(self.refusal());
        }
        manager.store().synced(&point);
        self.trouble.replace(None);
        Ok(())
    }

    fn origin(&self, client: u64) -> Origin {
        Origin { client, now: self.cx.wall() }
    }

    /// Serves those who say that they live while all tasks are taken: else who waits for a server that is away could
    /// cost every client its lease.
    async fn hear_the_living(self: Rc<Self>) {
        let wanted = |request: &Request| request.op == Operation::KeepAlive {}.code();
        loop {
            self.cx.sleep(HEAR_INTERVAL).await;
            while let Some(request) = self.cx.take_request(Channel::NAMES, wanted) {
                self.serve(request).await;
            }
        }
    }

    async fn serve(self: &Rc<Self>, request: Request) {
        // Keepalives are served at any time: the client's lease would end meanwhile.
        let waits = request.op != Operation::KeepAlive {}.code() || self.is_refused();
        if waits && let Err(errno) = self.may_serve().await {
            return self.cx.reply(request, Answer::error(errno));
        }
        let mut message = Vec::new();
        let about = join(&request.body, &request.data, request.bytes, &mut message);
        let number = about.and_then(CallNumber::of);
        let operation =
            number.and_then(|_| Operation::decode(request.op, &mut Decoder::new(&message)));
        match (number, operation) {
            (Ok(number), Ok(_)) if number.volume != self.volume => {
                self.cx.reply(request, Answer::error(Errno::ENXIO));
            }
            (Ok(number), Ok(_)) if usize::from(number.slot) >= SLOTS => {
                self.cx.reply(request, Answer::error(Errno::EPROTO));
            }
            (Ok(number), Ok(operation)) if !self.is_here(number, &operation) => {
                self.cx.reply(request, Answer::error(Errno::EREMCHG));
            }
            (Ok(number), Ok(operation)) => match self.run(&request, number, &operation).await {
                Err(Stop::Failed(errno)) => self.answer(request, Err(errno)),
                Ok(reply) => self.answer(request, Ok(reply)),
                Err(stop) => self.wait_for_others(request, number, message, stop),
            },
            _ => self.cx.reply(request, Answer::error(Errno::EPROTO)),
        }
    }

    pub(super) fn answer(&self, request: Request, result: Result<Vec<u8>, Errno>) {
        let message = match result {
            Ok(message) => message,
            Err(errno) => return self.cx.reply(request, Answer::error(errno)),
        };
        let parts = cut(&message, self.manager.borrow().point().about());
        let frame = match parts.data.len() {
            0 => None,
            _ => match self.cx.frames().copy_of(parts.data) {
                Some(frame) => Some(frame),
                None => return self.cx.reply(request, Answer::error(Errno::ENOMEM)),
            },
        };
        let answer = Answer { body: &parts.body, data: frame.as_slice(), ..Answer::DONE };
        self.cx.reply(request, answer);
    }
}
