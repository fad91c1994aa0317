//! The service's tasks: requests, leases that end, and the store's log and checkpoints.

mod groups;

use crate::disks::{ToldDisk, Verdict};
use crate::groups::{GroupsPage, Table};
use crate::limits::{
    JOINING_IDS, LEASE_DEFAULT, MEMBER_BYTES_MAX, PARTING_SPAN, REPLICAS_PER_DISK, REQUEST_TASKS,
    RETRY_PAUSE, SYNC_PERIOD,
};
use crate::planner::Planner;
use crate::protocol::{
    CHANGE_GROUP, DISKS, DRAINED, EMPTY, Empty, FORGET, Forget, GROUPS, JOIN, Join, LEAVE, LENDERS,
    Lease, LendersPage, PLAN, Page, RENEW, RETIRE, Registration, Retire, STOPPING, Telling, VIEW,
};
use crate::registry::Registry;
use node::limits::{SCRUB_PERIOD, scrub_first};
use node::rings::{MetaError, MetaOp, MetaWork, StoreId};
use node::{Answer, Cx, Notify, Request, Semaphore};
use std::cell::{Ref, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{Append, Checkpoint, Health, Store, StoreError};
use wire::codec::{Decoder, Short};
use wire::field::Message;
use wire::limits::BODY_BYTES;
use wire::{Channel, Errno, NodeId, Wall};

/// Settings of the service.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Length of a lease.
    pub lease: Duration,
    /// In which time all of its store is read once; never when there is none.
    pub scrub: Option<Duration>,
    /// Copies of data: from 2 on, groups of replicas are made of the disks of I/O servers, and kept whole.
    pub copies: u8,
    /// Replicas on each disk.
    pub per_disk: u16,
}

impl Default for Config {
    fn default() -> Config {
        let (lease, scrub) = (LEASE_DEFAULT, Some(SCRUB_PERIOD));
        Config { lease, scrub, copies: 1, per_disk: REPLICAS_PER_DISK }
    }
}

/// The service, for others on its node.
#[derive(Clone)]
pub struct Service(Rc<Shared>);

struct Shared {
    cx: Cx,
    config: Config,
    registry: RefCell<Registry>,
    /// Held from a change to the end of its append, so that no node hears of a change that may yet fail.
    /// Renewals do not wait for it: a slow log must end no lease.
    turn: Semaphore,
    /// The view has another number.
    changed: Notify,
    /// The store has something to sync.
    dirty: Notify,
    /// Others are told other groups.
    regrouped: Notify,
    /// Proposals about groups that are not decided yet.
    proposals: RefCell<VecDeque<Request>>,
    proposed: Notify,
    planner: RefCell<Planner>,
    /// Servers that are being asked to hand over.
    asked: RefCell<BTreeSet<NodeId>>,
    /// Lenders have to be on stable storage before they are shown.
    hidden: Notify,
    /// The work before a server stops.
    parting: RefCell<Option<Parting>>,
}

type Parting = Rc<dyn Fn(NodeId, &Table) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Starts the service on this node, over a store that was opened with the kind and version of this crate.
pub fn serve(cx: &Cx, store: Store, config: Config) -> Result<Service, StoreError> {
    let registry = Registry::open(store, config.lease)?;
    let service = Service(Rc::new(Shared {
        cx: cx.clone(),
        config,
        registry: RefCell::new(registry),
        turn: Semaphore::new(cx, 1),
        changed: Notify::new(cx),
        dirty: Notify::new(cx),
        regrouped: Notify::new(cx),
        proposals: RefCell::default(),
        proposed: Notify::new(cx),
        planner: RefCell::new(Planner::new(config.copies, config.per_disk)),
        asked: RefCell::default(),
        hidden: Notify::new(cx),
        parting: RefCell::default(),
    }));
    cx.set_pure(Channel::MEMBERS, crate::protocol::is_pure);
    for _ in 0..REQUEST_TASKS {
        cx.spawn("members request", service.clone().requests());
    }
    cx.spawn("members leases", service.clone().leases());
    cx.spawn("members store", service.clone().upkeep());
    cx.spawn("members lenders", service.clone().show_lenders());
    cx.spawn("members scrub", service.clone().scrubs());
    cx.spawn("members proposals", service.clone().decide_proposals());
    if config.copies > 1 {
        cx.spawn("members planner", service.clone().keep_groups());
    }
    Ok(service)
}

impl Service {
    /// The members as they are now. Not to be held while waiting for anything.
    pub fn registry(&self) -> Ref<'_, Registry> {
        self.0.registry.borrow()
    }

    /// Whether the store's content was intact, as far as it was read.
    pub fn health(&self) -> Health {
        self.0.registry.borrow_mut().store_mut().health()
    }

    /// All that the store holds, for a backup.
    pub fn rows(&self) -> Result<Vec<store::Entry>, StoreError> {
        self.0.registry.borrow_mut().store_mut().range(&[][..].., usize::MAX)
    }

    /// The groups of replicas, as others are told them. Not to be held while waiting for anything.
    pub fn groups(&self) -> Ref<'_, Table> {
        Ref::map(self.0.registry.borrow(), Registry::groups)
    }

    /// Waits until others are told other groups.
    pub fn groups_changed(&self) -> impl Future<Output = ()> + '_ {
        self.0.regrouped.wait()
    }

    /// Waits for another view.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.0.changed.wait()
    }

    /// A member that stops is answered when this has ended, for as long as it waits: until then it still serves.
    /// `parting` is given the groups: with this service in it neither would ever end.
    pub fn before_stopping(
        &self,
        parting: impl Fn(NodeId, &Table) -> Pin<Box<dyn Future<Output = ()>>> + 'static,
    ) {
        self.0.parting.replace(Some(Rc::new(parting)));
    }

    async fn part(&self, registration: Registration) -> Result<(), Errno> {
        let known =
            self.0.registry.borrow().member(registration.id).map(|member| member.incarnation);
        if known != Some(registration.incarnation) {
            return Err(Errno::ESTALE);
        }
        let parting = self.0.parting.borrow().clone();
        if let Some(parting) = parting {
            let parted = parting(registration.id, &self.groups());
            // Its last word is one of courtesy.
            let _ = self.0.cx.with_deadline(PARTING_SPAN, parted).await;
        }
        Ok(())
    }

    async fn requests(self) {
        loop {
            let request = self.0.cx.accept(Channel::MEMBERS).await;
            if request.op == CHANGE_GROUP {
                self.propose(request);
                continue;
            }
            match self.execute(&request).await {
                Ok((body, data)) => self.answer(request, &body, &data),
                Err(errno) => self.0.cx.reply(request, Answer::error(errno)),
            }
        }
    }

    fn answer(&self, request: Request, body: &[u8], data: &[u8]) {
        self.answer_with(request, 0, body, data);
    }

    fn answer_with(&self, request: Request, status: u16, body: &[u8], data: &[u8]) {
        let cx = &self.0.cx;
        if data.is_empty() {
            return cx.reply(request, Answer { status, body, ..Answer::DONE });
        }
        match cx.frames().copy_of(data) {
            Some(frame) => {
                cx.reply(request, Answer { status, body, data: &[frame], ..Answer::DONE });
            }
            None => cx.reply(request, Answer::error(Errno::ENOMEM)),
        }
    }

    async fn execute(&self, request: &Request) -> Result<([u8; BODY_BYTES], Vec<u8>), Errno> {
        let malformed = |_: Short| Errno::EINVAL;
        match request.op {
            JOIN => {
                let join = Join::decode(&request.body, &data(request)?).map_err(malformed)?;
                Ok((self.join(request.source, &join).await?.encode(), Vec::new()))
            }
            RENEW => {
                let registration = self.registration(request)?;
                Ok((self.renew(registration).await?.encode(), Vec::new()))
            }
            STOPPING => {
                self.part(self.registration(request)?).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            LEAVE => {
                self.leave(self.registration(request)?).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            DISKS => {
                let disks = ToldDisk::decode_all(&data(request)?).map_err(malformed)?;
                let Telling { replacing, .. } =
                    Telling::decode(&request.body).map_err(malformed)?;
                let told = (&disks[..], replacing);
                Ok((self.disks(self.registration(request)?, told).await?.encode(), Vec::new()))
            }
            FORGET => {
                let forget = Forget::decode(&request.body).map_err(malformed)?;
                self.forget(forget).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            RETIRE => {
                let retire = Retire::decode(&request.body).map_err(malformed)?;
                self.retire(retire).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            DRAINED => {
                self.drained(self.registration(request)?).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            EMPTY => {
                let asked = Empty::decode(&request.body).map_err(malformed)?;
                self.empty(asked).await?;
                Ok(([0; BODY_BYTES], Vec::new()))
            }
            PLAN => Ok(self.planned().encode()),
            VIEW => Ok(self.page(&request.body).map_err(malformed)?.encode()),
            LENDERS => Ok(self.lenders_page(&request.body).map_err(malformed)?.encode()),
            GROUPS => Ok(self.groups_page(&request.body).map_err(malformed)?.encode()),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// The incarnation that asks; a member asks for itself only.
    fn registration(&self, request: &Request) -> Result<Registration, Errno> {
        let registration = Registration::decode(&request.body).map_err(|_| Errno::EINVAL)?;
        if registration.id == request.source { Ok(registration) } else { Err(Errno::EPERM) }
    }

    async fn join(&self, source: NodeId, join: &Join) -> Result<Lease, Errno> {
        if !JOINING_IDS.contains(&source.0) && join.identity.wish != Some(source) {
            return Err(Errno::EPERM);
        }
        let _turn = self.0.turn.acquire(1).await;
        let now = self.0.cx.now();
        let has_id = !JOINING_IDS.contains(&source.0);
        let reserves = !has_id && join.identity.roles.is_server();
        let clock = clock(self.0.cx.wall());
        let (lease, append) = {
            let mut registry = self.0.registry.borrow_mut();
            registry.check_claim(clock, has_id, join)?;
            match reserves {
                true => registry.handle_reserve(now, join)?,
                false => registry.handle_join(now, join)?,
            }
        };
        self.appended(append).await?;
        Ok(lease)
    }

    async fn renew(&self, registration: Registration) -> Result<Lease, Errno> {
        let now = self.0.cx.now();
        let (lease, append) = self.0.registry.borrow_mut().handle_renew(now, registration)?;
        self.appended(append).await?;
        Ok(lease)
    }

    /// Told once in an incarnation of the server, and what its disks' replicas go by: the answer comes when it is
    /// durable.
    async fn disks(
        &self,
        registration: Registration,
        (disks, replacing): (&[ToldDisk], u32),
    ) -> Result<Verdict, Errno> {
        let _turn = self.0.turn.acquire(1).await;
        let now = self.0.cx.now();
        let (verdict, append) =
            self.0.registry.borrow_mut().handle_disks(now, registration, disks, replacing)?;
        let is_new = append.is_some();
        self.appended(append).await?;
        if is_new {
            self.sync_for_good().await?;
        }
        Ok(verdict)
    }

    async fn leave(&self, registration: Registration) -> Result<(), Errno> {
        let _turn = self.0.turn.acquire(1).await;
        let append = self.0.registry.borrow_mut().handle_leave(registration)?;
        self.appended(append).await
    }

    /// Tells of it only when it is on stable storage: a loss that was announced must not come back with a power cut.
    async fn forget(&self, forget: Forget) -> Result<(), Errno> {
        let now = self.0.cx.now();
        self.change_for_good(|registry| registry.handle_forget(now, forget)).await
    }

    /// EPERM: it is the manager that keeps the members.
    async fn retire(&self, retire: Retire) -> Result<(), Errno> {
        if retire.retired && retire.id == self.0.cx.id() {
            return Err(Errno::EPERM);
        }
        self.change_for_good(|registry| registry.handle_retire(retire)).await
    }

    async fn drained(&self, registration: Registration) -> Result<(), Errno> {
        self.change_for_good(|registry| registry.handle_drained(registration)).await
    }

    /// A change that is on stable storage when this ends without an error.
    async fn change_for_good(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<Option<Append>, Errno>,
    ) -> Result<(), Errno> {
        let _turn = self.0.turn.acquire(1).await;
        let append = change(&mut self.0.registry.borrow_mut())?;
        self.appended(append).await?;
        self.sync_for_good().await
    }

    /// All that was appended is on stable storage when this ends without an error.
    async fn sync_for_good(&self) -> Result<(), Errno> {
        self.sync().await;
        let admitted = self.0.registry.borrow_mut().store_mut().admit();
        admitted.map_err(Errno::from)
    }

    async fn end_leases(&self) -> Result<(), Errno> {
        let _turn = self.0.turn.acquire(1).await;
        let append = self.0.registry.borrow_mut().handle_timeout(self.0.cx.now())?;
        self.appended(append).await
    }

    fn page(&self, body: &[u8]) -> Result<Page, Short> {
        let after = NodeId(Decoder::new(body).u16()?);
        Ok(self.0.registry.borrow().page(after))
    }

    fn lenders_page(&self, body: &[u8]) -> Result<LendersPage, Short> {
        let after = NodeId(Decoder::new(body).u16()?);
        Ok(self.0.registry.borrow().lenders_page(after))
    }

    fn groups_page(&self, body: &[u8]) -> Result<GroupsPage, Short> {
        let known = Decoder::new(body).u64()?;
        Ok(self.0.registry.borrow().groups_page(known))
    }

    async fn append(&self, append: Append) -> Result<(), Errno> {
        let Append { log, bytes, .. } = append;
        let result = self.meta(MetaOp::Append { log, bytes }).await;
        self.0.dirty.notify_all();
        if result.is_err() {
            self.0.registry.borrow_mut().store_mut().append_failed();
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// Appends the record of a change, then wakes the tasks that wait for a view.
    async fn appended(&self, append: Option<Append>) -> Result<(), Errno> {
        let Some(append) = append else { return Ok(()) };
        self.append(append).await?;
        self.0.changed.notify_all();
        if self.0.registry.borrow().hides_lenders() {
            self.0.hidden.notify_all();
        }
        Ok(())
    }

    /// Ends leases. None can end sooner than a whole lease after it was given, so sleeping that long misses none.
    async fn leases(self) {
        let cx = self.0.cx.clone();
        // Not in `serve`: a node knows the time only when it runs.
        self.0.registry.borrow_mut().handle_start(cx.now());
        loop {
            let next = self.0.registry.borrow().poll_timeout();
            let longest = cx.now() + self.0.config.lease;
            cx.sleep_until(next.map_or(longest, |at| at.min(longest))).await;
            if self.end_leases().await.is_err() {
                cx.sleep(SYNC_PERIOD).await;
            }
        }
    }

    /// Syncs the log within the period after a change and puts changes into the checkpoint; does nothing without one.
    async fn upkeep(self) {
        loop {
            let dirty = self.0.dirty.wait();
            self.drop_logs().await;
            if !self.0.registry.borrow_mut().store_mut().is_dirty() {
                dirty.await;
            }
            self.0.cx.sleep(SYNC_PERIOD).await;
            self.sync().await;
            self.checkpoint().await;
        }
    }

    /// Syncs at once where others wait to be shown who lends memory.
    async fn show_lenders(self) {
        loop {
            let hidden = self.0.hidden.wait();
            if !self.0.registry.borrow().hides_lenders() {
                hidden.await;
            }
            self.sync().await;
            if self.0.registry.borrow().hides_lenders() {
                // The log cannot be synced, or more has changed meanwhile.
                self.0.cx.sleep(RETRY_PAUSE).await;
            }
        }
    }

    fn synced(&self) {
        let groups = self.groups().version();
        if self.0.registry.borrow_mut().handle_synced() {
            self.0.changed.notify_all();
        }
        if self.groups().version() > groups {
            self.0.regrouped.notify_all();
        }
    }

    async fn sync(&self) {
        let point = self.0.registry.borrow_mut().store_mut().sync_point();
        for log in &point.logs {
            if self.meta(MetaOp::Sync { log: *log }).await.is_err() {
                return self.0.registry.borrow_mut().store_mut().append_failed();
            }
        }
        self.0.registry.borrow_mut().store_mut().synced(&point);
        self.synced();
    }

    async fn checkpoint(&self) {
        let checkpoint = self.0.registry.borrow_mut().store_mut().freeze();
        let Some(checkpoint) = checkpoint else { return };
        let result = self.meta(MetaOp::Checkpoint(Box::new(Work(checkpoint)))).await;
        self.0
            .registry
            .borrow_mut()
            .store_mut()
            .checkpoint_done(result.map_err(|error| error.reason));
        // Also what could not be appended is done now.
        self.0.changed.notify_all();
        self.synced();
    }

    /// Reads all of the store now and then; what is damaged is in its state.
    async fn scrubs(self) {
        let Some(period) = self.0.config.scrub else { return };
        self.0.cx.sleep(scrub_first(period)).await;
        loop {
            let pause = self.0.registry.borrow_mut().store_mut().scrub_on(period);
            self.0.cx.sleep(pause).await;
        }
    }

    async fn drop_logs(&self) {
        loop {
            let log = self.0.registry.borrow_mut().store_mut().poll_drop();
            let Some(log) = log else { return };
            // A log that cannot be removed is passed over by the next opening, which names it again.
            let _ = self.meta(MetaOp::DropLog { log }).await;
        }
    }

    fn meta(&self, op: MetaOp) -> impl Future<Output = Result<(), MetaError>> + Unpin + use<> {
        self.0.cx.meta(StoreId::Members, op)
    }
}

/// Wall-clock time as incarnations count it.
fn clock(wall: Wall) -> u64 {
    let seconds = u64::try_from(wall.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(wall.nanos.into())
}

/// The data of a request, which is small or refused.
fn data(request: &Request) -> Result<Vec<u8>, Errno> {
    if request.bytes > MEMBER_BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    Ok(request.data.copied(request.bytes))
}

/// A checkpoint as the world runs it.
struct Work(Checkpoint);

impl MetaWork for Work {
    fn run(self: Box<Self>) -> Result<(), String> {
        self.0.run()
    }
}
