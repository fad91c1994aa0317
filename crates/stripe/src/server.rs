//! The I/O server: objects on the node's disks, served on [`Channel::STRIPE`].
//!
//! A fixed pool of loops takes requests. A read that the cache answers is answered at once, without waiting, copying,
//! summing or allocating. Each disk has three more tasks: the writer of its log, the flusher that commits what is dirty
//! for long or too much, and the checkpoint that brings committed blocks into place.
//!
//! Invariants: what COMMIT, TRUNCATE, REMOVE and SET_LAYOUT acknowledge is in the disk's log or in place, durably;
//! nothing is written in place that is not covered by a record of the log; a read returns blocks whose checksums were
//! verified when they came into memory, with those checksums; one disk's failure stops no other.

use crate::cache::{Cache, Network};
use crate::disk::{Disk, Health, errno};
use crate::groups::Groups;
use crate::limits::*;
use crate::objects::{Object, Objects, Spot};
use crate::protocol::{DeviceRoom, ObjectReply, ObjectRequest, op, text_trailer};
use crate::recent::Recent;
use crate::sources::Sources;
use crate::witness::Witnesses;
use endpoint::Frame;
use node::rings::{DiskId, DiskOp, DiskReply};
use node::{Answer, Bug, Cx, Notify, Request, Semaphore, WorkQueue};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::codec::Encoder;
use wire::field::Field;
use wire::{Channel, Errno, NodeId, Time, VolumeId};

/// Configuration of an I/O server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The volume whose objects it keeps.
    pub volume: VolumeId,
    /// The node that the disks belong to.
    pub server: NodeId,
    /// Most bytes of clean blocks in memory.
    pub cache_bytes: usize,
    /// Most bytes per disk that are written and not committed; writers wait at this.
    pub dirty_bytes_max: usize,
    /// Requests executed at once.
    pub slots: usize,
    /// Bytes in a disk's log that start a checkpoint.
    pub checkpoint_bytes: u64,
    /// The node's network memory, when it takes part.
    pub memory: Option<netmem::Service>,
    /// Whether a disk serves only after [`Server::confirm`].
    pub confirms: bool,
    /// In which time everything on the disks is read once; never when there is none.
    pub scrub: Option<Duration>,
    /// The groups of the volume, where its disks may be in some.
    pub groups: Option<members::Groups>,
    /// Disks, one bit each, of which a person has said that an empty one is in the place of a lost one.
    pub replacing: u32,
}

impl ServerConfig {
    /// The usual limits: an eighth of the cache may be dirty on each disk.
    pub fn new(volume: VolumeId, server: NodeId, cache_bytes: usize) -> ServerConfig {
        ServerConfig {
            volume,
            server,
            cache_bytes,
            dirty_bytes_max: (cache_bytes / 8).max(2 << 20),
            slots: 64,
            checkpoint_bytes: CHECKPOINT_BYTES,
            memory: None,
            confirms: false,
            scrub: Some(node::limits::SCRUB_PERIOD),
            groups: None,
            replacing: 0,
        }
    }
}

/// Counters since the server started, and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// READs.
    pub reads: u64,
    /// READs answered from memory at once.
    pub hits: u64,
    /// READs that waited for a disk.
    pub misses: u64,
    /// READs whose answer began while the disk was still reading.
    pub cut_through: u64,
    /// Bytes that READs returned.
    pub read_bytes: u64,
    /// WRITEs.
    pub writes: u64,
    /// Bytes that WRITEs brought.
    pub written_bytes: u64,
    /// Disk reads of data, read-ahead included.
    pub disk_reads: u64,
    /// Bytes that they asked for.
    pub disk_read_bytes: u64,
    /// PREFETCH requests.
    pub hints: u64,
    /// Hints that were refused, since too many waited.
    pub hints_refused: u64,
    /// Bytes that they brought into memory.
    pub hinted_bytes: u64,
    /// Chunks that left the cache for network memory.
    pub network_sent: u64,
    /// Chunks that came back from there instead of from a disk, or of which blocks did.
    pub network_hits: u64,
    /// Of the hits, chunks that stayed there.
    pub network_in_place: u64,
    /// Chunks that were asked for there and did not come as they were.
    pub network_misses: u64,
    /// Of the misses, chunks that did not fit their checksums.
    pub network_wrong: u64,
    /// Times a disk was asked since network memory was slow.
    pub network_late: u64,
    /// Commits that made something durable.
    pub commits: u64,
    /// Commits that were too large for the log.
    pub large_commits: u64,
    /// Writes to logs; `log_records` over this is how many commits shared one.
    pub log_writes: u64,
    /// Records in them.
    pub log_records: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// Checkpoints that ended well.
    pub checkpoints: u64,
    /// Blocks found torn by a crash inside of a commit, at the start.
    pub torn_blocks: u64,
    /// Times a block did not fit its checksum.
    pub corrupt_blocks: u64,
    /// Blocks that were damaged here and came from another copy.
    pub repaired_blocks: u64,
    /// Data that arrived damaged.
    pub damaged_writes: u64,
    /// Requests refused for a stale layout epoch or truncate generation.
    pub stale: u64,
    /// Bytes in the cache now.
    pub cached_bytes: u64,
    /// Bytes written and not committed now.
    pub dirty_bytes: u64,
    /// Bytes committed and not in place now.
    pub logged_bytes: u64,
}

pub(crate) struct Inner {
    pub cx: Cx,
    pub config: ServerConfig,
    pub verifier: u64,
    /// Writes executed in this incarnation.
    pub orders: Cell<u64>,
    pub recent: RefCell<Recent>,
    /// End of the time for which it is kept; zero when nothing is.
    recent_until: Cell<Time>,
    pub cache: Rc<RefCell<Cache>>,
    /// For the windows of READs of several.
    pub long_reads: Semaphore,
    pub objects: RefCell<Objects>,
    pub disks: Vec<Disk>,
    pub counters: Cell<ServerCounters>,
    /// READs by where their blocks were.
    pub sources: RefCell<Sources>,
    /// READs that wait for a disk now.
    pub missing: Cell<u32>,
    /// READs that looked into memory, by which those to be measured are chosen.
    pub hits: Cell<u32>,
    pub ahead: WorkQueue<(Rc<Object>, u64)>,
    /// PREFETCH requests to be done.
    pub hints: WorkQueue<ObjectRequest>,
    problems: RefCell<VecDeque<String>>,
    started: Cell<bool>,
    changed: Notify,
    /// State of the managers' stores, as last heard.
    pub witnesses: RefCell<Witnesses>,
    pub witnessed: Notify,
    /// Memory for long requests is short.
    pub tight: Notify,
    /// The replicas of groups that are here.
    pub groups: Groups,
}

/// A running I/O server.
#[derive(Clone)]
pub struct Server(pub(crate) Rc<Inner>);

/// Starts the service. It accepts requests once every disk is ready or refused; see [`Server::ready`].
pub fn serve(cx: &Cx, config: ServerConfig) -> Server {
    cx.set_pure(Channel::STRIPE, op::is_pure);
    let cache = Rc::new(RefCell::new(cache(cx, &config)));
    let disks = (0..cx.disks()).map(|disk| Disk::new(cx, &cache, DiskId(disk))).collect();
    let inner = Rc::new(Inner {
        cx: cx.clone(),
        verifier: if cx.has_bug(Bug::ConstantVerifier) { 1 } else { cx.random().max(1) },
        orders: Cell::new(0),
        recent: RefCell::default(),
        recent_until: Cell::new(Time::ZERO),
        cache,
        long_reads: Semaphore::new(cx, (config.cache_bytes / 2 / WINDOW_BYTES).max(WINDOWS_MAX)),
        objects: RefCell::default(),
        disks,
        counters: Cell::default(),
        sources: RefCell::default(),
        missing: Cell::default(),
        hits: Cell::default(),
        ahead: WorkQueue::new(cx),
        hints: WorkQueue::new(cx),
        problems: RefCell::default(),
        started: Cell::new(false),
        changed: Notify::new(cx),
        witnesses: RefCell::default(),
        witnessed: Notify::new(cx),
        tight: Notify::new(cx),
        groups: Groups::new(config.groups.clone()),
        config,
    });
    cx.spawn("stripe start", start(inner.clone()));
    Server(inner)
}

fn cache(cx: &Cx, config: &ServerConfig) -> Cache {
    let cache = Cache::new(cx.frames().clone(), config.cache_bytes, cx.disks().into());
    match config.memory.clone() {
        Some(service) => cache.with_network(Network::new(cx, service)),
        None => cache,
    }
}

/// Makes every disk ready, then starts the loops.
async fn start(inner: Rc<Inner>) {
    let known = inner.known_disks().await;
    let mut identified = Vec::new();
    for disk in 0..inner.disks.len() {
        identified.push(inner.identify(disk, known).await);
    }
    // All have their labels: from now on none of them is a new one.
    let last = identified.iter().rposition(|result| result.is_ok());
    let disks = last.map_or(0, |last| last as u16 + 1);
    let service = &inner;
    let prepared = identified.into_iter().enumerate().map(|(disk, identified)| async move {
        match identified {
            Ok(()) => service.prepare(disk, disks).await,
            refused => refused,
        }
    });
    let prepared = node::all(prepared).await;
    for (disk, prepared) in prepared.into_iter().enumerate() {
        let health = match prepared {
            Ok(()) if inner.config.confirms => Health::Starting,
            Ok(()) => Health::Serving,
            Err((errno, text)) => {
                inner.report(text.clone());
                Health::Refused(errno, text)
            }
        };
        *inner.disks[disk].health.borrow_mut() = health;
        inner.spawn_disk_tasks(disk);
    }
    inner.remember_writes();
    for _ in 0..inner.config.slots {
        inner.cx.spawn("stripe request", inner.clone().requests());
    }
    for _ in 0..READ_AHEAD_TASKS * inner.disks.len() {
        inner.cx.spawn("stripe read-ahead", inner.clone().read_ahead());
    }
    for _ in 0..HINT_TASKS * inner.disks.len() {
        let service = inner.clone();
        inner.cx.spawn("stripe hints", async move { service.follow_hints().await });
    }
    inner.cx.spawn("stripe room", inner.clone().keep_room());
    inner.serve_replicas();
    inner.started.set(true);
    inner.changed.notify_all();
}

impl Server {
    /// Waits until the service accepts requests. The error names the first disk that was refused and why; the others
    /// serve.
    pub async fn ready(&self) -> Result<(), String> {
        while !self.0.started.get() {
            self.0.changed.wait().await;
        }
        let refused = self.disks().into_iter().find_map(|health| match health {
            Health::Refused(_, text) => Some(text),
            _ => None,
        });
        refused.map_or(Ok(()), Err)
    }

    /// Whether the service accepts requests.
    pub fn is_ready(&self) -> bool {
        self.0.started.get()
    }

    /// Of every disk, whether it serves.
    pub fn disks(&self) -> Vec<Health> {
        self.0.disks.iter().map(|disk| disk.health.borrow().clone()).collect()
    }

    /// Replicas here that have all that their groups count on them for.
    pub fn whole_replicas(&self) -> usize {
        self.0.groups.whole()
    }

    /// The write verifier of this incarnation.
    pub fn verifier(&self) -> u64 {
        self.0.verifier
    }

    /// Counters and contents.
    pub fn counters(&self) -> ServerCounters {
        let cache = self.0.cache.borrow();
        let disks = 0..self.0.disks.len();
        ServerCounters {
            network_sent: cache.sent_away(),
            cached_bytes: cache.used_bytes() as u64,
            dirty_bytes: disks.map(|disk| cache.dirty_bytes(disk) as u64).sum(),
            logged_bytes: self.0.disks.iter().map(|disk| disk.journal.size().0).sum(),
            ..self.0.counters.get()
        }
    }

    /// READs that were answered, by where their blocks were.
    pub fn sources(&self) -> Sources {
        *self.0.sources.borrow()
    }

    /// The latest things that went wrong, as sentences, oldest first; at most 32.
    pub fn problems(&self) -> Vec<String> {
        self.0.problems.borrow().iter().cloned().collect()
    }

    /// Commits everything and brings it into place: for a clean stop. Writes that come meanwhile are not waited for. A
    /// disk that fails stops no other.
    pub async fn flush(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for disk in self.0.disks.iter().filter(|disk| disk.check().is_ok()) {
            let flushed = self.0.put_in_place(disk).await;
            let flushed = flushed.and(disk.note_durable().await.map_err(errno));
            result = result.and(flushed);
        }
        result
    }
}

impl Inner {
    pub fn count(&self, change: impl FnOnce(&mut ServerCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Remembers what is written for as long as clients may send again what an earlier incarnation lost.
    fn remember_writes(self: &Rc<Self>) {
        if !self.disks.iter().any(|disk| disk.incarnations.borrow().has_earlier()) {
            return;
        }
        self.recent.borrow_mut().start();
        self.forget_later();
    }

    /// Forgets what is remembered of writes, [`RECENT_SPAN`] after this was called last.
    pub fn forget_later(self: &Rc<Self>) {
        let before = self.recent_until.replace(self.cx.now() + RECENT_SPAN);
        if before != Time::ZERO {
            return;
        }
        let service = self.clone();
        self.cx.spawn("stripe recent writes", async move {
            while service.cx.now() < service.recent_until.get() {
                service.cx.sleep_until(service.recent_until.get()).await;
            }
            service.recent_until.set(Time::ZERO);
            service.recent.borrow_mut().stop();
        });
    }

    /// Notes a problem for people; once, while it is among the latest.
    pub fn report(&self, text: String) {
        let mut problems = self.problems.borrow_mut();
        if problems.contains(&text) {
            return;
        }
        if problems.len() == 32 {
            problems.pop_front();
        }
        problems.push_back(text);
    }

    async fn requests(self: Rc<Self>) {
        loop {
            let request = self.cx.accept(Channel::STRIPE).await;
            match ObjectRequest::decode(&request.body) {
                Ok(ask) if ask.group.is_listed() => self.serve_group(request, ask).await,
                Ok(ask) if request.op == op::READ => self.serve_read(request, &ask).await,
                Ok(ask) => self.execute(request, &ask).await,
                Err(_) => self.cx.reply(request, Answer::error(Errno::EPROTO)),
            }
            self.note_room();
        }
    }

    async fn serve_read(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        if let Some(pending) = self.read_at_once(request, ask) {
            self.read(pending, ask).await;
        }
    }

    /// A request to a group: its primary executes it, and has the others execute what changes something.
    async fn serve_group(self: &Rc<Self>, request: Request, ask: ObjectRequest) {
        match self.admit(ask) {
            Err(errno) => self.refuse(request, &ask, errno),
            Ok((_, ask)) if request.op == op::READ => self.serve_read(request, &ask).await,
            Ok((local, ask)) if op::changes(request.op) => {
                local.changing.set(local.changing.get() + 1);
                self.change(&local, request, &ask).await;
                local.changing.set(local.changing.get() - 1);
                local.moved.notify_all();
            }
            Ok((_, ask)) => self.execute(request, &ask).await,
        }
    }

    async fn execute(self: &Rc<Self>, mut request: Request, ask: &ObjectRequest) {
        let result = match request.op {
            op::LIST => return self.list(request, ask).await,
            op::SPACE => return self.space(request).await,
            op::REMOVE => return self.remove_all(request, ask).await,
            op::HISTORY => return self.tell_history(request, ask).await,
            op::DESCRIBE => return self.describe_all(request, ask).await,
            op::DESCRIPTION => return self.tell_description(request, ask).await,
            _ => self.apply(&mut request, ask).await,
        };
        match result {
            Ok(reply) => self.cx.reply(request, Answer::body(&reply.encode())),
            Err(errno) => self.refuse(request, ask, errno),
        }
    }

    /// Executes a request about one object whose answer is a reply alone.
    pub async fn apply(
        self: &Rc<Self>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        match request.op {
            op::WRITE => self.write(request, ask).await,
            op::REWRITE => self.rewrite(request, ask).await,
            op::COMMIT => self.commit_request(ask).await,
            op::TRUNCATE => self.truncate(ask).await,
            op::PUNCH => self.punch(request, ask).await,
            op::GROW => self.grow(ask).await,
            op::SEEK => self.seek(ask).await,
            op::PREFETCH => self.note_hint(ask),
            op::INHERIT => self.inherit(request, ask).await,
            op::VACATE => self.vacate(ask).await,
            op::ATTRIBUTES => self.attributes(ask).await,
            op::SET_LAYOUT => self.set_layout(ask).await,
            op::ACCEPT_LOSS => self.accept_loss(ask).await,
            op::QUARANTINE => self.quarantine(ask).await,
            op::PURGE => self.purge(ask).await,
            op::RESTORE => self.restore(ask).await,
            op::WITNESS => self.hear_witness(ask).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Answers with an error, and what the server knows of the object; of a disk that it refuses, why.
    pub fn refuse(&self, request: Request, ask: &ObjectRequest, errno: Errno) {
        let errno = match errno {
            Errno::EIO if self.is_awaited(ask) => Errno::EAGAIN,
            errno => errno,
        };
        let object = self.objects.borrow().get(Spot::of(ask)).cloned();
        let reply = object.map_or_else(ObjectReply::default, |object| self.describe(&object));
        if errno == Errno::ESTALE {
            self.count(|c| c.stale += 1);
        }
        let refused = matches!(errno, Errno::ENXIO | Errno::ENODEV);
        let disk = self.disks.get(usize::from(ask.disk)).filter(|_| refused);
        let trailer = disk.and_then(Disk::refusal).map(|why| text_trailer(&why));
        let (body, trailer) = (reply.encode(), trailer.unwrap_or_default());
        let answer = Answer { status: errno.0, body: &body, trailer: &trailer, ..Answer::DONE };
        self.cx.reply(request, answer);
    }

    /// The reply body about an object as it is now.
    pub fn describe(&self, object: &Object) -> ObjectReply {
        let state = object.state.borrow();
        ObjectReply {
            verifier: self.verifier_of(&state),
            length: state.head.length,
            used: 0,
            mtime: state.head.mtime,
            epoch: state.head.epoch,
            truncations: state.head.truncations,
            order: 0,
            stable: false,
        }
    }

    pub async fn attributes(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        if !object.state.borrow().exists {
            return Err(Errno::ENOENT);
        }
        let used = self.used_bytes(&object).await?;
        Ok(ObjectReply { used, ..self.describe(&object) })
    }

    async fn space(&self, request: Request) {
        match self.rooms().await {
            Ok((reply, shared)) => {
                let devices = shared.len();
                let rooms = shared.into_iter().map(|(device, [total_bytes, free_bytes])| {
                    DeviceRoom { device, total_bytes, free_bytes }
                });
                self.reply_rows(request, reply, (devices, DeviceRoom::BYTES), rooms);
            }
            Err(errno) => self.cx.reply(request, Answer::error(errno)),
        }
    }

    /// Room on disks with their own, all together; and on what other disks may be on too, by device.
    async fn rooms(&self) -> Result<(ObjectReply, BTreeMap<u64, [u64; 2]>), Errno> {
        let mut reply = ObjectReply { verifier: self.verifier, ..ObjectReply::default() };
        let mut shared = BTreeMap::new();
        for disk in self.disks.iter().filter(|disk| disk.check().is_ok()) {
            match disk.ask(|| DiskOp::Space).await {
                Ok(DiskReply::Space { total, free, device: 0 }) => {
                    reply.length += total;
                    reply.used += free;
                }
                Ok(DiskReply::Space { total, free, device }) => {
                    shared.insert(device, [total, free]);
                }
                Ok(_) => return Err(Errno::EPROTO),
                Err(_) if disk.is_refused() => {} // by this very question
                Err(error) => return Err(errno(error)),
            }
        }
        Ok((reply, shared))
    }

    /// Replies with so many rows of so many bytes.
    pub fn reply_rows<'a>(
        &self,
        request: Request,
        reply: ObjectReply,
        (count, row_bytes): (usize, usize),
        rows: impl Iterator<Item = impl Field<'a>>,
    ) {
        let mut data = self.cx.pieces::<Frame>();
        if count > 0 {
            let Some(mut frame) = self.cx.frames().alloc_exact(count * row_bytes) else {
                return self.cx.reply(request, Answer::error(Errno::EAGAIN));
            };
            frame.fill(0);
            for (row, out) in rows.zip(frame.chunks_exact_mut(row_bytes)) {
                row.put(&mut Encoder::new(out));
            }
            data.push(frame.freeze());
        }
        let body = reply.encode();
        self.cx.reply(request, Answer { body: &body, data: &data, ..Answer::DONE });
    }

    fn spawn_disk_tasks(self: &Rc<Self>, disk: usize) {
        let service = self.clone();
        self.cx.spawn("stripe log", async move {
            loop {
                let batch = service.disks[disk].journal.write_next(&service.disks[disk]).await;
                service.count(|c| {
                    c.log_writes += 1;
                    c.log_records += batch.records as u64;
                    c.log_bytes += batch.bytes as u64;
                });
                service.disks[disk].work.notify_all();
            }
        });
        self.cx.spawn("stripe flush", self.clone().flusher(disk));
        self.cx.spawn("stripe checkpoint", self.clone().checkpoints(disk));
        self.cx.spawn("stripe mark", self.clone().note_progress(disk));
        self.cx.spawn("stripe scrub", self.clone().scrubs(disk));
        self.cx.spawn("stripe witness", self.clone().keep_witness(disk));
    }
}
