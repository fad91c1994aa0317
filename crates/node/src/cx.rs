//! The handle through which services reach their node.

mod filling;
mod messages;
mod waits;

pub use filling::FillingReply;
pub(crate) use messages::is_message;
pub use waits::{Wait, Waiting};

use crate::bugs::{Bug, Bugs};
use crate::call::{Answer, Call, Reply, Request, SpareTrailers};
use crate::config::NodeConfig;
use crate::limits::{FRONT_WAITING, INTERRUPTS_WAITING, REQUESTS_WAITING};
use crate::mailbox::Mailbox;
use crate::pieces::{Pieces, Spare};
use crate::rings::*;
use crate::scheduler::{Scheduler, TaskId, Timers};
use crate::tickets::{Outcome, Tickets};
use endpoint::{Endpoint, Frame, FrameMut, Frames};
use messages::Messages;
use netrpc::{CallError, Rpc, Start};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use waits::Waits;
use wire::{Channel, Errno, NodeId, Time, Wall};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// State shared by services and node. Only [`crate::Node`] holds the tasks, so that dropping it ends them.
pub(crate) struct Core {
    pub config: NodeConfig,
    pub now: Cell<Time>,
    pub wall_offset: Cell<i128>,
    /// A clock that goes on during a step, in a world that has one.
    pub clock: Cell<Option<fn() -> Time>>,
    pub random: Cell<u64>,
    pub frames: Frames,
    pub endpoint: RefCell<Endpoint>,
    pub rpc: RefCell<Rpc>,
    pub scheduler: Scheduler,
    pub spawned: RefCell<Vec<(TaskId, &'static str, Task)>>,
    pub tickets: RefCell<Tickets>,
    pub timers: RefCell<Timers>,
    /// Links that came up or went down since the last step, in order.
    pub links: RefCell<VecDeque<(NodeId, bool)>>,
    pub channels: RefCell<Vec<Mailbox<Request>>>,
    pub messages: RefCell<Messages>,
    /// Continuations that were run and messages that came for the endpoint's reader: what a step did beside tasks.
    pub told: Cell<u64>,
    pub front: RefCell<Mailbox<FileRequest>>,
    pub interrupts: RefCell<Mailbox<u64>>,
    pub front_done: RefCell<VecDeque<FileDone>>,
    pub disk: RefCell<VecDeque<DiskRequest>>,
    pub meta: RefCell<VecDeque<MetaRequest>>,
    /// Whether the store's reserve is in use, by the latest operation on its files.
    pub meta_room: Cell<MetaRoom>,
    pub spare_frames: Spare<Frame>,
    pub spare_frames_mut: Spare<FrameMut>,
    pub spare_trailers: SpareTrailers,
    pub waits: Waits,
}

/// The handle. It belongs to one node and one thread; cloning it is cheap.
#[derive(Clone)]
pub struct Cx(pub(crate) Rc<Core>);

/// An element of the lists of [`Cx::pieces`].
pub trait Piece: Sized {
    #[doc(hidden)]
    fn pieces(cx: &Cx) -> Pieces<Self>;
}

impl Piece for Frame {
    fn pieces(cx: &Cx) -> Pieces<Frame> {
        Pieces::new(&cx.0.spare_frames)
    }
}

impl Piece for FrameMut {
    fn pieces(cx: &Cx) -> Pieces<FrameMut> {
        Pieces::new(&cx.0.spare_frames_mut)
    }
}

/// The planted bugs that are below this crate.
fn flaws(bugs: Bugs) -> netrpc::Flaws {
    netrpc::Flaws {
        executed_twice: bugs.has(Bug::ExecutedTwice),
        token_not_cancelled: bugs.has(Bug::TokenNotCancelled),
        lost_peer_ignored: bugs.has(Bug::LostPeerIgnored),
        old_session_accepted: bugs.has(Bug::OldSessionAccepted),
    }
}

impl Cx {
    pub(crate) fn new(config: NodeConfig, frames: Frames) -> Cx {
        let rpc = netrpc::Config {
            slots: config.slots,
            budget_pages: config.budget_pages,
            flaws: flaws(Bugs(config.bugs)),
            ..netrpc::Config::new(config.id, config.incarnation, config.seed)
        };
        let mut endpoint = Endpoint::new(frames.clone(), config.seed);
        endpoint.set_keys_ignored(Bugs(config.bugs).has(Bug::TokenKeyIgnored));
        let channels = (0..Channel::COUNT).map(|_| Mailbox::new(REQUESTS_WAITING)).collect();
        Cx(Rc::new(Core {
            config,
            now: Cell::default(),
            wall_offset: Cell::default(),
            clock: Cell::default(),
            random: Cell::new(config.seed),
            frames,
            endpoint: RefCell::new(endpoint),
            rpc: RefCell::new(Rpc::new(rpc)),
            scheduler: Scheduler::new(),
            spawned: RefCell::default(),
            tickets: RefCell::default(),
            timers: RefCell::default(),
            links: RefCell::default(),
            channels: RefCell::new(channels),
            messages: RefCell::default(),
            told: Cell::default(),
            front: RefCell::new(Mailbox::new(FRONT_WAITING)),
            interrupts: RefCell::new(Mailbox::new(INTERRUPTS_WAITING)),
            front_done: RefCell::default(),
            disk: RefCell::default(),
            meta: RefCell::default(),
            meta_room: Cell::default(),
            spare_frames: Spare::default(),
            spare_frames_mut: Spare::default(),
            spare_trailers: SpareTrailers::default(),
            waits: Waits::default(),
        }))
    }

    /// The time of the present step.
    pub fn now(&self) -> Time {
        self.0.now.get()
    }

    /// The time of this very moment, of the world's clock if it has one: for measurements of what ends in the step in
    /// which it began. Nothing may be decided by it, and it costs a look at the clock.
    pub fn instant(&self) -> Time {
        self.0.clock.get().map_or(self.now(), |clock| clock())
    }

    /// The wall clock, as the world set it.
    pub fn wall(&self) -> Wall {
        self.wall_at(self.now())
    }

    /// The wall-clock time at a time of the monotonic clock.
    pub fn wall_at(&self, now: Time) -> Wall {
        Wall::of_nanos(i128::from(now.0) + self.0.wall_offset.get())
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.0.config.id
    }

    /// This incarnation of the node: greater than in every earlier one.
    pub fn incarnation(&self) -> u64 {
        self.0.config.incarnation
    }

    /// Disks of this node.
    pub fn disks(&self) -> u16 {
        self.0.config.disks
    }

    /// Whether this planted bug is switched on: only ever in simulations that test the checkers.
    pub fn has_bug(&self, bug: Bug) -> bool {
        self.bugs().has(bug)
    }

    /// The planted bugs that are switched on.
    pub fn bugs(&self) -> Bugs {
        Bugs(self.0.config.bugs)
    }

    /// The next number of this node's random stream (splitmix64): the same in every run from the same seed.
    pub fn random(&self) -> u64 {
        let state = self.0.random.get();
        self.0.random.set(state.wrapping_add(wire::mix::STEP));
        wire::mix(state)
    }

    /// Counters of calls and requests since the start.
    pub fn rpc_counters(&self) -> netrpc::Counters {
        self.0.rpc.borrow().counters()
    }

    /// The payload pool.
    pub fn frames(&self) -> &Frames {
        &self.0.frames
    }

    /// An empty list of [`Frame`]s or [`FrameMut`]s.
    pub fn pieces<T: Piece>(&self) -> Pieces<T> {
        T::pieces(self)
    }

    /// A list of one.
    pub fn piece<T: Piece>(&self, one: T) -> Pieces<T> {
        let mut pieces = T::pieces(self);
        pieces.push(one);
        pieces
    }

    /// Starts a task that runs until it returns, or until the node ends.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let id = self.0.scheduler.add();
        self.0.spawned.borrow_mut().push((id, name, Box::pin(task)));
    }

    /// Lets other tasks run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.wake(self.current());
            Poll::Pending
        })
        .await
    }

    pub(crate) fn current(&self) -> TaskId {
        self.0.scheduler.current()
    }

    pub(crate) fn wake(&self, task: TaskId) {
        self.0.scheduler.wake(task);
    }

    /// Waits for this long.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Unpin + use<> {
        self.sleep_until(self.now() + span)
    }

    /// Waits until this time.
    pub fn sleep_until(&self, at: Time) -> impl Future<Output = ()> + Unpin + use<> {
        let ticket = self.0.tickets.borrow_mut().start();
        self.0.timers.borrow_mut().add(at, ticket);
        Sleep(Pending { cx: self.clone(), ticket: Some(ticket), take: |_| () })
    }

    /// Asks a disk. The frames of the operation come back with its completion, also when the future is dropped.
    pub fn disk(
        &self,
        disk: DiskId,
        op: DiskOp,
    ) -> impl Future<Output = Result<DiskReply, DiskError>> + Unpin + use<> {
        let ticket = self.0.tickets.borrow_mut().start();
        self.0.disk.borrow_mut().push_back(DiskRequest { ticket: Ticket(ticket), disk, op });
        Pending {
            cx: self.clone(),
            ticket: Some(ticket),
            take: |outcome| match outcome {
                Outcome::Disk(result) => result,
                other => unreachable!("a disk ticket ended with {other:?}"),
            },
        }
    }

    /// Room on the disk of a store, as the last operation on its files reported it.
    pub fn meta_room(&self) -> MetaRoom {
        self.0.meta_room.get()
    }

    /// Asks for an operation on a store's files.
    pub fn meta(
        &self,
        store: StoreId,
        op: MetaOp,
    ) -> impl Future<Output = Result<(), MetaError>> + Unpin + use<> {
        let ticket = self.0.tickets.borrow_mut().start();
        self.0.meta.borrow_mut().push_back(MetaRequest { ticket: Ticket(ticket), store, op });
        Pending {
            cx: self.clone(),
            ticket: Some(ticket),
            take: |outcome| match outcome {
                Outcome::Meta(result) => result,
                other => unreachable!("a meta ticket ended with {other:?}"),
            },
        }
    }

    /// Starts a call at once; the future is its reply, or why there is none: [`CallError::Overloaded`] without waiting
    /// when too many calls are open. Dropping the future gives the call up and revokes its token.
    pub fn call(
        &self,
        call: Call<'_>,
    ) -> impl Future<Output = Result<Reply, CallError>> + Unpin + use<> {
        Pending {
            cx: self.clone(),
            ticket: Some(self.start(call)),
            take: |outcome| match outcome {
                Outcome::Call(result) => result,
                other => unreachable!("a call ticket ended with {other:?}"),
            },
        }
    }

    /// When the oldest call that has not ended was started, for each node that was called.
    pub fn oldest_calls(&self) -> std::collections::BTreeMap<NodeId, Time> {
        self.0.rpc.borrow().oldest_calls()
    }

    /// Starts a call and runs `continuation` when it has ended. The continuation may not wait; it may start calls.
    pub fn call_then(
        &self,
        call: Call<'_>,
        continuation: impl FnOnce(Result<Reply, CallError>) + 'static,
    ) {
        let ticket = self.start(call);
        let ended = self.0.tickets.borrow_mut().poll(ticket, TaskId(u32::MAX));
        match ended {
            Some(Outcome::Call(result)) => continuation(result),
            _ => self.0.tickets.borrow_mut().set_continuation(ticket, Box::new(continuation)),
        }
    }

    fn start(&self, mut call: Call<'_>) -> u64 {
        let ticket = self.0.tickets.borrow_mut().start();
        let deadline = call.deadline.map_or(Time::NEVER, |span| self.now() + span);
        let start = Start {
            to: call.to,
            channel: call.channel,
            op: call.op,
            once: call.once,
            deadline,
            body: call.body,
            trailer: call.trailer,
            ticket,
        };
        let mut endpoint = self.0.endpoint.borrow_mut();
        let (data, into) = (&mut *call.data, &mut *call.into);
        let started = self.0.rpc.borrow_mut().call(self.now(), &mut endpoint, &start, data, into);
        let mut tickets = self.0.tickets.borrow_mut();
        match started {
            Ok(id) => tickets.set_call(ticket, id),
            Err(error) => drop(tickets.end(ticket, Outcome::Call(Err(error)))),
        }
        ticket
    }

    /// Says which operations of `channel` may be executed twice: no reply is kept for them, whatever a caller asks for.
    pub fn set_pure(&self, channel: Channel, is_pure: fn(u16) -> bool) {
        self.0.rpc.borrow_mut().set_pure(channel, is_pure);
    }

    /// The next request for `channel`; of several tasks that wait, each gets one.
    pub async fn accept(&self, channel: Channel) -> Request {
        let task = self.current();
        let waiting = Leave { cx: self, channel: Some(channel), task };
        let request = std::future::poll_fn(|_| {
            let mut channels = self.0.channels.borrow_mut();
            match channels[channel.0 as usize].poll(task) {
                Some(request) => Poll::Ready(request),
                None => Poll::Pending,
            }
        })
        .await;
        drop(waiting);
        request
    }

    /// Takes out the first request for `channel` that is wanted and that no task has taken yet.
    pub fn take_request(
        &self,
        channel: Channel,
        wanted: impl Fn(&Request) -> bool,
    ) -> Option<Request> {
        self.0.channels.borrow_mut()[channel.0 as usize].take(wanted)
    }

    /// Answers a request. Nothing happens when the caller has gone on without it. Panics with a status that NetRPC
    /// keeps for itself ([`netrpc::status::RESERVED`] and above).
    pub fn reply(&self, request: Request, answer: Answer<'_>) {
        let Answer { status, body, data, trailer } = answer;
        assert!(status < netrpc::status::RESERVED, "a status of the service's own");
        let mut endpoint = self.0.endpoint.borrow_mut();
        let mut rpc = self.0.rpc.borrow_mut();
        rpc.reply(&mut endpoint, &request.key, status, body, data, trailer);
    }

    /// Answers a request with success and the first part of the data; `missing` bytes are still to come. The trailer
    /// has the checksums of all of it, so the reader detects other data. Gives the request back if it must not be
    /// executed twice, is no longer awaited or is of this very node, if too little of the data is there
    /// ([`endpoint::is_fillable`]), or if the send ring is full.
    pub fn reply_filling(
        &self,
        request: Request,
        answer: Answer<'_>,
        missing: usize,
    ) -> Result<FillingReply, Request> {
        let Answer { status, body, data, trailer } = answer;
        assert_eq!(status, 0, "what is filling is a success");
        let mut endpoint = self.0.endpoint.borrow_mut();
        let mut rpc = self.0.rpc.borrow_mut();
        let key = &request.key;
        match rpc.reply_filling(&mut endpoint, key, body, data, missing, trailer) {
            Some(filling) => Ok(FillingReply::new(self.clone(), filling)),
            None => Err(request),
        }
    }

    /// Has `to` answer the caller in our stead, without the request's data. A request that must not be executed twice
    /// is refused instead.
    pub fn forward(&self, request: Request, to: NodeId, body: &[u8]) {
        let mut endpoint = self.0.endpoint.borrow_mut();
        self.0.rpc.borrow_mut().forward(self.now(), &mut endpoint, &request.key, to, body);
    }

    /// The next file operation that the front asks for; of several tasks that wait, each gets one.
    pub async fn front(&self) -> FileRequest {
        let task = self.current();
        let waiting = Leave { cx: self, channel: None, task };
        let request = std::future::poll_fn(|_| match self.0.front.borrow_mut().poll(task) {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        })
        .await;
        drop(waiting);
        request
    }

    /// The next number of a file operation that its application has given up on, and that a task took. One task asks.
    pub async fn interrupted(&self) -> u64 {
        let task = self.current();
        std::future::poll_fn(|_| match self.0.interrupts.borrow_mut().poll(task) {
            Some(front) => Poll::Ready(front),
            None => Poll::Pending,
        })
        .await
    }

    /// Ends a file operation.
    pub fn front_done(&self, front: u64, result: Result<FileReply, Errno>) {
        self.0.front_done.borrow_mut().push_back(FileDone { front, result });
    }
}

/// Takes a task off the waiters of a channel, or of the front, when its waiting ends, however it ends.
struct Leave<'a> {
    cx: &'a Cx,
    channel: Option<Channel>,
    task: TaskId,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let core = &self.cx.0;
        let next = match self.channel {
            Some(channel) => core.channels.borrow_mut()[channel.0 as usize].leave(self.task),
            None => core.front.borrow_mut().leave(self.task),
        };
        next.into_iter().for_each(|task| self.cx.wake(task));
    }
}

/// A future that ends with its ticket.
struct Pending<T> {
    cx: Cx,
    ticket: Option<u64>,
    take: fn(Outcome) -> T,
}

impl<T> Future for Pending<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let ticket = self.ticket.expect("not polled after it ended");
        let outcome = self.cx.0.tickets.borrow_mut().poll(ticket, self.cx.current());
        match outcome {
            Some(outcome) => {
                self.ticket = None;
                Poll::Ready((self.take)(outcome))
            }
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let core = &self.cx.0;
        let (call, state) = core.tickets.borrow_mut().abandon(ticket);
        if let Some(call) = call {
            let mut endpoint = core.endpoint.borrow_mut();
            core.rpc.borrow_mut().cancel(core.now.get(), &mut endpoint, call);
        }
        drop(state);
    }
}

/// A future that ends at its time.
struct Sleep(Pending<()>);

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(ticket) = self.0.ticket.take() else { return };
        let mut tickets = self.0.cx.0.tickets.borrow_mut();
        tickets.abandon_timer(ticket);
        self.0.cx.0.timers.borrow_mut().forget(|ticket| tickets.is_open(ticket));
    }
}
