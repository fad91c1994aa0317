//! The striping client: files as ranges of bytes over the objects of many I/O servers.
//!
//! A contiguous range of a file is one contiguous range in each column's object, so a read or write is one call per
//! column, all at once; what is read lands directly in the pieces of the caller's frame. Checksums are verified where
//! the data landed. A server that restarts is waited for: reads and unstable writes are tried again until a deadline.
//!
//! It caches nothing and keeps no copy of unstable data: that a write must be retransmitted after a server's restart is
//! told by the verifiers, and done by the caller.

mod control;
mod copy;
mod hints;
mod holes;
mod read;
mod write;

pub use holes::Seek;
pub use read::Marks;

use crate::limits::*;
use crate::order::Stamp;
use crate::protocol::{DeviceRoom, ObjectReply, ObjectRequest, Role, Shape, op, text_of};
use endpoint::{Frame, FrameMut};
use members::Groups;
use node::{Bug, Call, CallError, Cx, Pieces, Reply, Wait, Waiting};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::layout::{WIDTH_MAX, column_mask};
use wire::{
    BlockMap, Channel, Errno, FileId, Fragment, GroupId, Home, Layout, NodeId, ObjectId, Placement,
    Time, VolumeId, Wall,
};

/// A file, as its manager describes it to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The file.
    pub file: FileId,
    /// Its layout.
    pub layout: Layout,
    /// The truncate generation that the caller knows.
    pub truncations: u32,
}

/// The holders of what was written to one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteReceipt {
    verifier: u64,
    /// The stamp that the write got when it was executed first.
    stamp: Stamp,
    /// It needs no commit.
    stable: bool,
}

/// The write verifiers of a file's columns, as far as they are known, and the stamps of what was written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verifiers([Option<WriteReceipt>; WIDTH_MAX]);

impl Verifiers {
    /// The verifier of a column's server.
    pub fn get(&self, column: u16) -> Option<u64> {
        self.0[usize::from(column)].map(|held| held.verifier)
    }

    /// Notes what a column's server said.
    pub fn set(&mut self, column: u16, verifier: u64) {
        self.0[usize::from(column)] =
            Some(WriteReceipt { verifier, stamp: Stamp::default(), stable: false });
    }

    /// Takes in what later writes said. Where both know a column the earlier one stays: it is the one whose loss a
    /// commit must show.
    pub fn merge(&mut self, later: &Verifiers) {
        for (mine, later) in self.0.iter_mut().zip(later.0) {
            *mine = mine.or(later);
        }
    }

    /// Whether both know the column by the same verifier: nothing written in between was lost.
    pub fn same(&self, column: u16, other: &Verifiers) -> bool {
        self.get(column).is_some() && self.get(column) == other.get(column)
    }

    /// Whether everything written is on stable storage: no commit is needed.
    pub fn are_stable(&self) -> bool {
        self.0.iter().flatten().all(|held| held.stable)
    }

    /// The columns that are known, a bit for each.
    pub fn mask(&self) -> u32 {
        column_mask(self.columns())
    }

    /// The columns that are known, ascending.
    pub fn columns(&self) -> impl Iterator<Item = u16> + '_ {
        (0..WIDTH_MAX as u16).filter(|column| self.get(*column).is_some())
    }

    /// The stamp of what was written to a column. A column that moved takes along what its servers need to judge it.
    fn stamp(&self, column: u16) -> Option<Stamp> {
        self.0[usize::from(column)].map(|held| held.stamp)
    }
}

/// The durability that a write asks for.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// They are in the servers' memory: a commit that answers with the same verifiers makes them stable.
    Unstable,
    /// They are stable if one call to each server can bring that about; [`Verifiers::are_stable`] says whether.
    Stable,
    /// They were written before, with these verifiers, and lost: the servers keep what is newer. EIO when one cannot
    /// tell any more what is. Unstable.
    Again(&'a Verifiers),
}

/// The combined answer of a file's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectTotals {
    /// Bytes of the file: the least size that all objects fit in.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Latest write.
    pub mtime: Wall,
    /// The columns that have objects, a bit for each.
    pub present: u32,
    /// A truncation has not reached all of them: the size is of before.
    pub uncut: bool,
}

/// Room on I/O servers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeRoom {
    /// All.
    pub total_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

impl VolumeRoom {
    /// The sum. Room that several disks share, of one server or of several on one machine, counts once.
    fn of<'a>(rooms: impl Iterator<Item = &'a DeviceRoom>) -> VolumeRoom {
        let (mut room, mut counted) = (VolumeRoom::default(), BTreeSet::new());
        for one in rooms.filter(|one| one.device == 0 || counted.insert(one.device)) {
            room.total_bytes += one.total_bytes;
            room.free_bytes += one.free_bytes;
        }
        room
    }
}

/// Counters since the client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Calls to I/O servers that were tried again.
    pub retries: u64,
    /// Replies whose data did not fit its checksums.
    pub damaged_reads: u64,
    /// Requests whose data did not fit its checksums when it arrived.
    pub damaged_writes: u64,
    /// Blocks that did not fit their checksums in every try.
    pub corrupt_reads: u64,
}

/// The client. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct Client(Rc<Shared>);

struct Shared {
    cx: Cx,
    volume: VolumeId,
    patience: Cell<Duration>,
    counters: Cell<ClientCounters>,
    maps: RefCell<BTreeMap<FileId, KnownMap>>,
    /// The room of each server that was asked, as it said last; nothing if it never did.
    rooms: RefCell<BTreeMap<NodeId, Option<Vec<DeviceRoom>>>>,
    formula: Rc<[Fragment]>,
    /// Disks that were declared gone, one bit each.
    gone: RefCell<BTreeMap<NodeId, u32>>,
    /// The groups of the volume, once they are known.
    groups: RefCell<Option<Groups>>,
}

/// A block map, and the layout epoch it belongs to.
struct KnownMap {
    epoch: u32,
    fragments: Rc<[Fragment]>,
}

/// How a try ended that did not succeed.
enum Trouble {
    /// Trying again may help.
    Retry(Errno),
    /// It will not.
    Fail(Errno),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Trouble {
        match error {
            CallError::Fatal => Trouble::Fail(error.into()),
            // No service yet: as a server that is away. ENODEV is a disk that went missing.
            CallError::Refused => Trouble::Retry(Errno::EHOSTDOWN),
            _ => Trouble::Retry(error.into()),
        }
    }
}

impl Trouble {
    fn of_status(status: u16) -> Trouble {
        match Errno(status) {
            errno @ (Errno::EAGAIN | Errno::EREMOTE) => Trouble::Retry(errno),
            errno => Trouble::Fail(errno),
        }
    }

    /// Of a disk that its server refuses another one of its group takes over.
    fn of_reply(home: Home, status: u16) -> Trouble {
        match Errno(status) {
            errno @ (Errno::ENXIO | Errno::ENODEV) if GroupId::from(home).is_listed() => {
                Trouble::Retry(errno)
            }
            _ => Trouble::of_status(status),
        }
    }
}

/// The data of a request behind its body.
#[derive(Default)]
struct Sent<'a> {
    data: Option<Pieces<Frame>>,
    trailer: &'a [u8],
}

/// The tries of one operation: until when, and how long to wait between two.
struct Tries<'a> {
    client: &'a Client,
    /// The node that it asks, where that is one.
    asked: Option<(NodeId, Option<u8>)>,
    begun: Time,
    /// The event to wait for after a try.
    waiting: Option<Waiting>,
    until: Time,
    pause: Duration,
    damaged: u32,
}

impl Tries<'_> {
    /// Time left for all tries, for a call's deadline.
    fn left(&self) -> Duration {
        self.until.since(self.client.cx().now()).max(Duration::from_millis(1))
    }

    /// Waits before the next try; the error when there is to be none.
    async fn again(&mut self, trouble: Trouble) -> Result<(), Errno> {
        let errno = match trouble {
            Trouble::Fail(errno) => return Err(errno),
            Trouble::Retry(errno) => errno,
        };
        let cx = self.client.cx();
        if cx.now() + self.pause >= self.until {
            return Err(errno);
        }
        self.client.count(|c| c.retries += 1);
        self.client.refresh_groups();
        let wait = |(node, disk)| Wait { node, disk, since: self.begun, why: errno };
        self.waiting = self.asked.map(|asked| cx.note_wait(wait(asked)));
        cx.sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
        Ok(())
    }

    /// As [`again`](Tries::again), at once, after data arrived damaged; not for ever.
    fn damaged(&mut self) -> Result<(), Errno> {
        self.damaged += 1;
        if self.damaged > CHECKSUM_RETRIES {
            return Err(Errno::EIO);
        }
        self.client.count(|c| c.retries += 1);
        Ok(())
    }
}

impl Client {
    /// A client of the volume's I/O servers.
    pub fn new(cx: &Cx, volume: VolumeId) -> Client {
        Client::with_patience(cx, volume, RETRY_DEADLINE)
    }

    /// As [`new`](Client::new), waiting this long for a server that does not answer.
    pub fn with_patience(cx: &Cx, volume: VolumeId, patience: Duration) -> Client {
        let (counters, formula, cx) = (Cell::default(), Rc::default(), cx.clone());
        let (maps, rooms, patience) = (RefCell::default(), RefCell::default(), Cell::new(patience));
        let (gone, groups) = (RefCell::default(), RefCell::default());
        Client(Rc::new(Shared {
            cx,
            volume,
            patience,
            counters,
            maps,
            rooms,
            formula,
            gone,
            groups,
        }))
    }

    /// The volume's groups are these from now on.
    pub fn set_groups(&self, groups: Groups) {
        self.0.groups.replace(Some(groups));
    }

    /// Asks for newer groups, where there are some: what failed may be another's task now.
    fn refresh_groups(&self) {
        let Some(groups) = self.0.groups.borrow().clone() else { return };
        let has_none = groups.is_known() && groups.version() == 0;
        if !has_none {
            groups.refresh_soon();
        }
    }

    /// The server that answers for this home now, to whose disk the request goes. EREMOTE: its group is not known.
    fn aim(&self, home: Home, request: &mut ObjectRequest) -> Result<NodeId, Errno> {
        let id = GroupId::from(home);
        if !id.is_listed() {
            return Ok(home.server);
        }
        let groups = self.0.groups.borrow();
        let group = groups.as_ref().and_then(|groups| groups.get(id)).ok_or(Errno::EREMOTE)?;
        let primary = group.primary();
        (request.disk, request.group, request.group_epoch) = (primary.disk, id, group.epoch());
        Ok(primary.server)
    }

    /// From now on a server that does not answer is waited for this long.
    pub fn set_patience(&self, patience: Duration) {
        self.0.patience.set(patience);
    }

    /// These servers' disks, one bit each, were declared gone: what is asked of them fails with EIO from now on instead
    /// of being waited for.
    pub fn set_gone(&self, gone: impl IntoIterator<Item = (NodeId, u32)>) {
        let gone = gone.into_iter().filter(|(_, disks)| *disks != 0).collect();
        self.0.gone.replace(gone);
    }

    /// Whether the disk was declared gone.
    pub fn is_gone(&self, home: Home) -> bool {
        let gone = self.0.gone.borrow();
        gone.get(&home.server).is_some_and(|disks| disks >> home.disk & 1 == 1)
    }

    /// EIO for a disk that was declared gone. Asked before every try: it may be declared so meanwhile.
    fn there(&self, home: Home) -> Result<(), Errno> {
        if self.is_gone(home) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The volume whose files it reads and writes.
    pub fn volume(&self) -> VolumeId {
        self.0.volume
    }

    /// Counters since the start.
    pub fn counters(&self) -> ClientCounters {
        self.0.counters.get()
    }

    /// Keeps a file's block map, all of it, as its manager gave it out for this layout epoch.
    pub fn learn_map(&self, file: FileId, epoch: u32, fragments: &[Fragment]) {
        let mut maps = self.0.maps.borrow_mut();
        if maps.len() >= MAPS_MAX {
            maps.clear();
        }
        maps.insert(file, KnownMap { epoch, fragments: fragments.into() });
    }

    /// Whether the file can be read and written without asking for its block map.
    pub fn knows_map(&self, file: &FileRef) -> bool {
        self.fragments(file).is_ok()
    }

    /// The fragments of the file; ESTALE when those of its epoch are not known.
    fn fragments(&self, file: &FileRef) -> Result<Rc<[Fragment]>, Errno> {
        if file.layout.placement == Placement::Formula {
            return Ok(self.0.formula.clone());
        }
        let maps = self.0.maps.borrow();
        let known = maps
            .get(&file.file)
            .filter(|map| map.epoch == file.layout.epoch || self.cx().has_bug(Bug::StaleMapUsed));
        known.map(|map| map.fragments.clone()).ok_or(Errno::ESTALE)
    }

    fn cx(&self) -> &Cx {
        &self.0.cx
    }

    fn count(&self, change: impl FnOnce(&mut ClientCounters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    fn tries(&self, asked: Option<(NodeId, Option<u8>)>) -> Tries<'_> {
        let (begun, pause) = (self.cx().now(), RETRY_PAUSE);
        let until = begun + self.0.patience.get();
        Tries { client: self, asked, begun, waiting: None, until, pause, damaged: 0 }
    }

    /// The tries of what needs one disk.
    fn tries_of(&self, home: Home) -> Tries<'_> {
        self.tries(Some((home.server, Some(home.disk))))
    }

    /// Notes for people whether the disk that was asked is refused by its server.
    fn note_disk(&self, home: Home, reply: &Reply) {
        match Errno(reply.status) {
            Errno::ENXIO | Errno::ENODEV => {
                self.cx().note_refusal(home, &text_of(reply.trailer()));
            }
            Errno(0) => self.cx().note_service(home),
            _ => {}
        }
    }

    /// The body of a request about a column of a file, all of which go by its layout.
    fn request(&self, file: &FileRef, column: u16) -> ObjectRequest {
        let layout = &file.layout;
        ObjectRequest {
            object: ObjectId { volume: self.0.volume, file: file.file, column },
            epoch: layout.epoch,
            truncations: file.truncations,
            shape: Shape {
                unit_shift: layout.unit_bytes.trailing_zeros() as u8,
                width: layout.width() as u8,
                copies: layout.copies,
                role: Role::Column,
            },
            disk: layout.home(column).disk,
            ..ObjectRequest::default()
        }
    }

    /// As [`request`](Client::request), of one that moves a column: what the object is then.
    fn request_as(&self, role: Role, file: &FileRef, column: u16) -> ObjectRequest {
        let request = self.request(file, column);
        ObjectRequest { shape: Shape { role, ..request.shape }, ..request }
    }

    /// One try of a request; what comes lands in `into`.
    async fn send(
        &self,
        home: Home,
        op: u16,
        mut request: ObjectRequest,
        sent: Sent<'_>,
        into: Pieces<FrameMut>,
        tries: &Tries<'_>,
    ) -> Result<Reply, Trouble> {
        let to = self.aim(home, &mut request).map_err(Trouble::Retry)?;
        // A primary that says nothing is asked for no longer than another one takes to be it.
        let most = if request.group.is_listed() { GROUP_CALL_SPAN } else { Duration::MAX };
        let (body, data) = (request.encode(), sent.data.unwrap_or_else(|| self.cx().pieces()));
        let call = Call {
            to,
            channel: Channel::STRIPE,
            op,
            once: !op::is_pure(op),
            deadline: Some(tries.left().min(most)),
            body: &body,
            data,
            trailer: sent.trailer,
            into,
        };
        let reply = self.cx().call(call).await?;
        // Of several objects, or of none, the status says nothing of the disk.
        if !matches!(op, op::REMOVE | op::DESCRIBE | op::WITNESS | op::LIST | op::SPACE) {
            self.note_disk(Home { server: to, disk: request.disk }, &reply);
        }
        Ok(reply)
    }

    /// A call without data, tried until it is answered.
    async fn ask(
        &self,
        to: NodeId,
        op: u16,
        request: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        decoded(&self.ask_with(to, op, request, &[]).await?)
    }

    /// The same with a trailer; the whole reply.
    async fn ask_with(
        &self,
        to: NodeId,
        op: u16,
        request: &ObjectRequest,
        trailer: &[u8],
    ) -> Result<Reply, Errno> {
        let home = Home { server: to, disk: request.disk };
        let mut tries = self.tries_of(home);
        loop {
            self.there(home)?;
            let sent = Sent { trailer, ..Sent::default() };
            let reply = self.send(home, op, *request, sent, self.cx().pieces(), &tries).await;
            let trouble = match reply {
                Ok(reply) if reply.status == 0 => return Ok(reply),
                Ok(reply) => Trouble::of_reply(home, reply.status),
                Err(trouble) => trouble,
            };
            tries.again(trouble).await?;
        }
    }
}

fn decoded(reply: &Reply) -> Result<ObjectReply, Errno> {
    ObjectReply::decode(&reply.body).map_err(|_| Errno::EPROTO)
}
