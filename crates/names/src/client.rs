//! The client half: operations on the name space as async functions.
//!
//! A call that changes something has a name that the manager keeps with its answer, so it is sent again until it is
//! answered, over a restart of the manager too, and executed once. The client remembers what it has open and locked,
//! and says it again to a manager that forgot ([`Client::keep_alive`]).

mod calls;
mod held;
mod locking;

pub use calls::BackupPart;

use crate::limits::{DEADLINE, HOLDING_MAX, INCARNATIONS_MAX, RETRY_PAUSE, SLOTS};
use crate::locks::Locks;
use crate::protocol::{CallNumber, Operation, Point, cut, join};
use endpoint::{Frame, FrameMut};
use node::{Call, CallError, Cx, Notify, Pieces, Reply, Semaphore, Wait};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, Errno, FileId, NodeId, Time, VolumeId};

/// A lock that another client took while this one was not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLock {
    /// The file.
    pub file: FileId,
    /// Who held it, as the client numbers its owners.
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
    manager: NodeId,
    volume: VolumeId,
    /// Tells the clients of one node apart.
    instance: u32,
    /// The last sequence of each slot, and the slots that are free.
    sequences: RefCell<[u32; SLOTS]>,
    free_slots: RefCell<Vec<u16>>,
    slots: Semaphore,
    /// The registration under which the manager knows what is held; `None` when it may know something else.
    registration: Cell<Option<u64>>,
    opens: RefCell<BTreeMap<FileId, Open>>,
    /// The number of the last close, and those that were not answered, of files open for writing and for reading.
    last_close: Cell<u64>,
    unsure_closes: RefCell<BTreeMap<(FileId, bool), Vec<u64>>>,
    locks: RefCell<Locks>,
    /// Locks of which the manager may believe something else than `locks` says.
    doubts: RefCell<BTreeMap<locking::Key, locking::Doubt>>,
    /// Whose locks are being asked for.
    turns: RefCell<BTreeSet<locking::Key>>,
    turn_ended: Notify,
    /// To be told by the next [`Client::keep_alive`].
    lost: RefCell<Vec<LostLock>>,
    /// Changes of names that were answered since the last sync: how far each incarnation of the manager had come.
    unsynced: RefCell<BTreeMap<u32, u64>>,
    /// The latest incarnation of the manager that has answered.
    incarnation: Cell<u32>,
    /// One permit for each open, close or lock under way, all for saying again what is held.
    holding: Semaphore,
}

/// A volume's name space. Clones are one client; how long it waits is each one's own.
#[derive(Clone)]
pub struct Client(Rc<Inner>, Duration);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client(volume {} at {})", self.0.volume.0, self.0.manager)
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Bytes of answer beside what the body holds.
    room: usize,
    deadline: Option<Duration>,
}

/// For an entry.
const SMALL: Style = Style { room: 256, deadline: Some(DEADLINE) };

impl Client {
    /// For the volume that `manager` serves.
    pub fn new(cx: &Cx, manager: NodeId, volume: VolumeId) -> Client {
        let inner = Inner {
            cx: cx.clone(),
            manager,
            volume,
            instance: cx.random() as u32,
            sequences: RefCell::new([0; SLOTS]),
            free_slots: RefCell::new((0..SLOTS as u16).rev().collect()),
            slots: Semaphore::new(cx, SLOTS),
            registration: Cell::new(None),
            opens: RefCell::default(),
            last_close: Cell::default(),
            unsure_closes: RefCell::default(),
            locks: RefCell::default(),
            doubts: RefCell::default(),
            turns: RefCell::default(),
            turn_ended: Notify::new(cx),
            lost: RefCell::default(),
            unsynced: RefCell::default(),
            incarnation: Cell::default(),
            holding: Semaphore::new(cx, HOLDING_MAX),
        };
        Client(Rc::new(inner), DEADLINE)
    }

    /// The same client, that waits for `patience` for a manager that is away where it only asks for something. What
    /// changes something waits for no longer than [`DEADLINE`]: the manager keeps the answers of a client for as long
    /// as its lease, and would execute it a second time afterwards.
    pub fn with_patience(&self, patience: Duration) -> Client {
        Client(self.0.clone(), patience)
    }

    /// Makes a call and returns the answer's bytes.
    async fn ask(&self, operation: Operation<'_>, style: Style) -> Result<Vec<u8>, Errno> {
        let mut message = Vec::with_capacity(96);
        operation.encode(&mut message);
        let code = operation.code();
        let (volume, instance) = (self.0.volume, self.0.instance);
        if !operation.is_once() {
            let number = CallNumber { volume, instance, ..CallNumber::default() };
            return self.send(code, false, number, &message, style).await.map(|answer| answer.0);
        }
        let _permit = self.0.slots.acquire(1).await;
        let slot = self.0.free_slots.borrow_mut().pop().expect("a permit is a free slot");
        let _slot = Slot { client: self, slot };
        let sequence = {
            let sequence = &mut self.0.sequences.borrow_mut()[slot as usize];
            *sequence += 1;
            *sequence
        };
        let number = CallNumber { volume, instance, slot, sequence };
        let (answer, point) = self.send(code, true, number, &message, style).await?;
        if operation.is_kept_by_sync() {
            self.note_unsynced(point);
        }
        Ok(answer)
    }

    fn note_unsynced(&self, point: Point) {
        let mut unsynced = self.0.unsynced.borrow_mut();
        let known = unsynced.entry(point.incarnation).or_default();
        *known = point.change.max(*known);
        if unsynced.len() > INCARNATIONS_MAX {
            unsynced.pop_first();
        }
    }

    /// Sends the call until it is answered, refused, or the time is up.
    async fn send(
        &self,
        op: u16,
        once: bool,
        number: CallNumber,
        message: &[u8],
        style: Style,
    ) -> Result<(Vec<u8>, Point), Errno> {
        let cx = &self.0.cx;
        let parts = cut(message, number.about());
        let span = style.deadline.map(|least| if once { least } else { least.max(self.1) });
        let end = span.map_or(Time::NEVER, |span| cx.now() + span);
        let (begun, mut lost_since, mut _waiting) = (cx.now(), None, None);
        loop {
            let call = Call {
                to: self.0.manager,
                channel: Channel::NAMES,
                op,
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
                    reply => return self.answered(reply?),
                },
                Err(error) => error,
            };
            let again =
                matches!(error, CallError::PeerLost | CallError::Refused | CallError::Overloaded);
            let patience = *lost_since.get_or_insert(cx.now()) + span.unwrap_or(DEADLINE);
            if !again || cx.now() + RETRY_PAUSE >= end.min(patience) {
                // EAGAIN would be a conflict of locks.
                let late = error == CallError::Overloaded;
                return Err(if late { Errno::ETIMEDOUT } else { error.into() });
            }
            let (node, why) = (self.0.manager, error.into());
            _waiting = Some(cx.note_wait(Wait { node, disk: None, since: begun, why }));
            cx.sleep(RETRY_PAUSE).await;
        }
    }

    fn answered(&self, reply: Reply) -> Result<(Vec<u8>, Point), Errno> {
        let (message, point) = answer(reply)?;
        self.0.incarnation.set(self.0.incarnation.get().max(point.incarnation));
        Ok((message, point))
    }

    /// The latest incarnation of the manager that this client has heard of; 0 is none. What an earlier one was told
    /// without a sync may be lost.
    pub fn incarnation(&self) -> u32 {
        self.0.incarnation.get()
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

/// A slot in use.
struct Slot<'a> {
    client: &'a Client,
    slot: u16,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.client.0.free_slots.borrow_mut().push(self.slot);
    }
}

fn answer(reply: Reply) -> Result<(Vec<u8>, Point), Errno> {
    let mut message = Vec::with_capacity(wire::limits::BODY_BYTES + reply.bytes);
    let joined = join(&reply.body, &reply.data, reply.bytes, &mut message);
    let point = joined.and_then(Point::of).map_err(|_| Errno::EPROTO)?;
    Ok((message, point))
}
