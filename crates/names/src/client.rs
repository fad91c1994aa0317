//! The client half: operations on the name space as async functions.
//!
//! A call that changes something has a name that the manager keeps with its answer, so it is retransmitted until it is
//! answered, over a restart of the manager too, and executed once. The client remembers its opens and locks, and
//! reclaims them from a manager that forgot ([`Client::keep_alive`]).

mod backup;
mod calls;
mod held;
mod locking;
mod router;
mod slots;

pub use backup::{BackupPart, NotTaken, Snapshot};

use crate::limits::{DEADLINE, HOLDING_MAX, INCARNATIONS_MAX, RETRY_PAUSE};
use crate::locks::Locks;
use crate::protocol::{CallNumber, Operation, Point, cut, join};
use crate::wcc;
use endpoint::{Frame, FrameMut};
use node::{Call, CallError, Cx, Notify, Pieces, Reply, Semaphore, Wait};
use slots::{Slot, Slots};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::field::Field;
use wire::{
    Attr, CallId, Channel, Decoder, Errno, FileId, NodeId, Sites, Time, VolumeId, Wall, Wcc,
};

/// A lock that another client took while this one was not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLock {
    /// The file.
    pub file: FileId,
    /// Its owner, as the client numbers them.
    pub owner: u64,
    /// flock's, not fcntl's.
    pub whole_file: bool,
}

/// How often this client has a file open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Open {
    readers: u32,
    writers: u32,
}

struct Inner {
    cx: Cx,
    /// The manager that the volume was made at; operations about no file go there.
    first: NodeId,
    /// Managers of sites, as far as they are known here.
    sites: RefCell<Sites>,
    /// Directories that are known to be hashed.
    hashed: RefCell<BTreeSet<FileId>>,
    /// State of each manager.
    managers: RefCell<BTreeMap<NodeId, Managed>>,
    volume: VolumeId,
    /// Tells the clients of one node apart.
    instance: u32,
    slots: Slots,
    opens: RefCell<BTreeMap<FileId, Open>>,
    /// The number of the last close, and those that were not answered, of files open for writing and for reading.
    last_close: Cell<u64>,
    unsure_closes: RefCell<BTreeMap<(FileId, bool), Vec<u64>>>,
    locks: RefCell<Locks>,
    /// Locks of which the manager may believe something else than `locks` says.
    doubts: RefCell<BTreeMap<locking::Key, locking::Doubt>>,
    /// Owners whose locks are being requested.
    turns: RefCell<BTreeSet<locking::Key>>,
    turn_ended: Notify,
    /// To be told by the next [`Client::keep_alive`].
    lost: RefCell<Vec<LostLock>>,
    /// A power cut took changes; to be told by the sync that ends next.
    lost_changes: Cell<bool>,
    /// The client has ended.
    left: Cell<bool>,
    /// One permit for each open, close or lock under way, all for saying again what is held.
    holding: Semaphore,
}

/// A client's state of one manager.
#[derive(Clone, Debug, Default)]
struct Managed {
    /// The registration under which it knows what is held; `None` when it may know something else.
    registration: Option<u64>,
    /// The version of its table of sites that was taken over last.
    table: Option<u64>,
    /// Changes of names that were answered since the last sync: how far each incarnation had come.
    unsynced: BTreeMap<u32, u64>,
    /// The latest incarnation that has answered.
    incarnation: u32,
    /// Changes that were answered, and how many of them a sync has covered.
    changed: u64,
    synced: u64,
}

impl Managed {
    /// A sync has compared the changes up to these points, of `changed` in all, with the manager's store; whether it is
    /// the first one that has.
    fn compared(&mut self, points: &BTreeMap<u32, u64>, changed: u64) -> bool {
        self.synced = self.synced.max(changed);
        let is_first = self.unsynced.keys().any(|incarnation| points.contains_key(incarnation));
        self.unsynced.retain(|incarnation, change| points.get(incarnation) < Some(change));
        is_first
    }
}

/// A volume's name space. Clones are one client; how long it waits is each one's own.
#[derive(Clone)]
pub struct Client(Rc<Inner>, Settings);

/// How one of the clones asks.
#[derive(Clone)]
struct Settings {
    /// For a manager that is away, for requests that change nothing.
    patience: Duration,
    /// Of an operation whose changes are on stable storage when it is answered.
    wcc: Option<wcc::Collector>,
    /// Files of imports may be changed.
    imports: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { patience: DEADLINE, wcc: None, imports: false }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client(volume {} at {})", self.0.volume.0, self.0.first)
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Bytes of answer beside what the body holds.
    room: usize,
    deadline: Option<Duration>,
}

/// Bytes that [`Wcc`] of two directories add to an answer.
const WCC_BYTES_MAX: usize = 4 + 2 * (1 + 2 * Attr::BYTES);

/// For an entry.
const SMALL: Style = Style { room: 256, deadline: Some(DEADLINE) };

impl Client {
    /// For the volume that was made at the manager `first`.
    pub fn new(cx: &Cx, first: NodeId, volume: VolumeId) -> Client {
        let inner = Inner {
            cx: cx.clone(),
            first,
            sites: RefCell::new(Sites::all_at(first)),
            hashed: RefCell::default(),
            managers: RefCell::new(BTreeMap::from([(first, Managed::default())])),
            volume,
            instance: cx.random() as u32,
            slots: Slots::new(cx),
            opens: RefCell::default(),
            last_close: Cell::default(),
            unsure_closes: RefCell::default(),
            locks: RefCell::default(),
            doubts: RefCell::default(),
            turns: RefCell::default(),
            turn_ended: Notify::new(cx),
            lost: RefCell::default(),
            lost_changes: Cell::default(),
            left: Cell::default(),
            holding: Semaphore::new(cx, HOLDING_MAX),
        };
        Client(Rc::new(inner), Settings::default())
    }

    /// The same client, with this timeout for a manager that is away, for requests that change nothing. Changes wait
    /// no longer than [`DEADLINE`]: the manager keeps the answers of a client for as long as its lease, and would
    /// execute one a second time afterwards.
    pub fn with_patience(&self, patience: Duration) -> Client {
        Client(self.0.clone(), Settings { patience, ..self.1.clone() })
    }

    /// The same client, for an importer: it may change files of imports, which are EROFS to all others.
    pub fn for_imports(&self) -> Client {
        Client(self.0.clone(), Settings { imports: true, ..self.1.clone() })
    }

    /// The same client, for one operation. One that changes files or directories is on stable storage when it is
    /// answered, and what it changed is in the second value then, the directories in the order of its arguments; a
    /// look-up puts its directory there. `guard`: EBADE, and nothing is done, unless this is the file's ctime. A
    /// change is made once for all duplicates of `call`, through whichever client they come: the manager keeps its
    /// answer with the change, for the last [`DUPLICATES_MAX`](crate::limits::DUPLICATES_MAX) of them.
    pub fn with_wcc(
        &self,
        guard: Option<Wall>,
        call: Option<CallId>,
    ) -> (Client, Rc<RefCell<Vec<Wcc>>>) {
        let asked = wcc::Collector { guard, call, ..wcc::Collector::default() };
        let changed = asked.changed.clone();
        (Client(self.0.clone(), Settings { wcc: Some(asked), ..self.1.clone() }), changed)
    }

    /// Whether what changes files or directories is on stable storage when it is answered.
    pub fn answers_synced(&self) -> bool {
        self.1.wcc.is_some()
    }

    /// Makes a call to the manager that it is about, wherever that is, and returns the answer's bytes.
    async fn ask(&self, operation: Operation<'_>, style: Style) -> Result<Vec<u8>, Errno> {
        match &self.1.wcc {
            Some(asked) if !operation.changed().is_empty() => {
                self.ask_with_wcc(asked, operation, style).await
            }
            _ => self.ask_plainly(operation, style).await,
        }
    }

    async fn ask_with_wcc(
        &self,
        asked: &wcc::Collector,
        operation: Operation<'_>,
        style: Style,
    ) -> Result<Vec<u8>, Errno> {
        let (operation, guard, call) = (Box::new(operation), asked.guard, asked.call);
        let style = Style { room: style.room + WCC_BYTES_MAX, ..style };
        let mut answer =
            self.ask_plainly(Operation::WithWcc { operation, guard, call }, style).await?;
        let mut input = Decoder::new(&answer);
        let changed = Vec::<Wcc>::take(&mut input).map_err(|_| Errno::EPROTO)?;
        let left = input.rest().len();
        asked.changed.replace(changed);
        Ok(answer.split_off(answer.len() - left))
    }

    async fn ask_plainly(&self, operation: Operation<'_>, style: Style) -> Result<Vec<u8>, Errno> {
        let mut message = Vec::with_capacity(96);
        operation.encode(&mut message);
        self.route(&operation, &message, style).await
    }

    /// Makes a call that is about no file to one manager.
    async fn ask_at(
        &self,
        manager: NodeId,
        operation: Operation<'_>,
        style: Style,
    ) -> Result<Vec<u8>, Errno> {
        let mut message = Vec::new();
        operation.encode(&mut message);
        let numbered = self.take_number(&operation, false).await;
        self.send(manager, &operation, numbered.number, &message, style, &|| false).await
    }

    /// The number of a call; of one that must not be executed twice as soon as a slot of its site is free.
    async fn take_number(&self, operation: &Operation<'_>, by_name: bool) -> Numbered<'_> {
        if !operation.is_once() {
            let number = CallNumber { by_name, ..self.number(0, 0) };
            return Numbered { number, _slot: None };
        }
        let slot = self.0.slots.take(operation.site(by_name).unwrap_or(0)).await;
        let number = CallNumber { by_name, ..self.number(slot.slot, slot.sequence) };
        Numbered { number, _slot: Some(slot) }
    }

    fn number(&self, slot: u16, sequence: u32) -> CallNumber {
        let (volume, instance) = (self.0.volume, self.0.instance);
        CallNumber { volume, instance, slot, by_name: false, imports: self.1.imports, sequence }
    }

    fn note_answer(&self, manager: NodeId, operation: &Operation<'_>, point: Point) {
        let mut managers = self.0.managers.borrow_mut();
        let Some(known) = managers.get_mut(&manager) else { return };
        known.incarnation = known.incarnation.max(point.incarnation);
        if operation.is_once() && !matches!(operation, Operation::WithWcc { .. }) {
            known.changed += 1;
        }
        if !operation.is_kept_by_sync() {
            return;
        }
        let change = known.unsynced.entry(point.incarnation).or_default();
        *change = point.change.max(*change);
        if known.unsynced.len() > INCARNATIONS_MAX {
            // The manager, too, knows of no more incarnations how far they came.
            known.unsynced.pop_first();
            self.0.lost_changes.set(true);
        }
    }

    /// Sends the call until it is answered, refused, or the time is up. EREMCHG: it is not answered, and another
    /// manager is to be asked by now.
    async fn send(
        &self,
        manager: NodeId,
        operation: &Operation<'_>,
        number: CallNumber,
        message: &[u8],
        style: Style,
        is_elsewhere: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        let (cx, once) = (&self.0.cx, operation.is_once());
        let parts = cut(message, number.about());
        let span =
            style.deadline.map(|least| if once { least } else { least.max(self.1.patience) });
        let end = span.map_or(Time::NEVER, |span| cx.now() + span);
        let (begun, mut lost_since, mut _waiting) = (cx.now(), None, None);
        loop {
            let call = Call {
                to: manager,
                channel: Channel::NAMES,
                op: operation.code(),
                once,
                deadline: span.map(|_| end.since(cx.now())),
                body: &parts.body,
                data: self.payload(parts.data)?,
                trailer: &[],
                into: self.room(style.room)?,
            };
            let error = match cx.call(call).await {
                Ok(reply) => match reply.ok() {
                    // There was no frame for the answer, which the manager keeps.
                    Err(Errno::ENOMEM) => CallError::Overloaded,
                    reply => {
                        let (message, point) = answer(reply?)?;
                        self.note_answer(manager, operation, point);
                        return Ok(message);
                    }
                },
                Err(error) => error,
            };
            let again =
                matches!(error, CallError::PeerLost | CallError::Refused | CallError::Overloaded);
            // A manager that was taken out is gone with what it owned.
            if is_elsewhere() {
                return Err(Errno::EREMCHG);
            }
            let patience = *lost_since.get_or_insert(cx.now()) + span.unwrap_or(DEADLINE);
            if !again || cx.now() + RETRY_PAUSE >= end.min(patience) {
                // EAGAIN would be a conflict of locks.
                let late = error == CallError::Overloaded;
                return Err(if late { Errno::ETIMEDOUT } else { error.into() });
            }
            let (node, why) = (manager, error.into());
            _waiting = Some(cx.note_wait(Wait { node, disk: None, since: begun, why }));
            cx.sleep(RETRY_PAUSE).await;
        }
    }

    /// The latest incarnation of the file's manager that this client has heard of; 0 is none. Changes at an earlier one
    /// that were not synced may be lost.
    pub fn incarnation(&self, file: FileId) -> u32 {
        self.incarnation_at(self.manager_of(file))
    }

    /// The same of the manager of a name, which makes files of that name.
    pub fn incarnation_of_name(&self, parent: FileId, name: &[u8]) -> u32 {
        self.incarnation_at(self.manager_of_name(parent, name))
    }

    /// A number that changes when any manager is started anew.
    pub fn incarnations(&self) -> u64 {
        self.0.managers.borrow().values().map(|known| u64::from(known.incarnation)).sum()
    }

    fn incarnation_at(&self, manager: NodeId) -> u32 {
        self.0.managers.borrow().get(&manager).map_or(0, |known| known.incarnation)
    }

    fn payload(&self, data: &[u8]) -> Result<Pieces<Frame>, Errno> {
        if data.is_empty() {
            return Ok(self.0.cx.pieces());
        }
        let frame = self.0.cx.frames().copy_of(data).ok_or(Errno::ENOMEM)?;
        Ok(self.0.cx.piece(frame))
    }

    fn room(&self, bytes: usize) -> Result<Pieces<FrameMut>, Errno> {
        let frame = self.0.cx.frames().alloc(bytes).ok_or(Errno::ENOMEM)?;
        Ok(self.0.cx.piece(frame))
    }
}

/// A call's number, and the slot that it has in use.
struct Numbered<'a> {
    number: CallNumber,
    _slot: Option<Slot<'a>>,
}

fn answer(reply: Reply) -> Result<(Vec<u8>, Point), Errno> {
    let mut message = Vec::with_capacity(wire::limits::BODY_BYTES + reply.bytes);
    let joined = join(&reply.body, &reply.data, reply.bytes, &mut message);
    let point = joined.and_then(Point::of).map_err(|_| Errno::EPROTO)?;
    Ok((message, point))
}
