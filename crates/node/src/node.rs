//! The node, as its world drives it.

use crate::call::{Reply, Request, Trailer};
use crate::config::NodeConfig;
use crate::cx::{Core, Cx, Task, is_message};
use crate::limits::{MESSAGES_PER_STEP, POLLS_PER_STEP};
use crate::pieces::Pieces;
use crate::rings::*;
use crate::tickets::{Ended, Outcome};
use endpoint::{Endpoint, Frames, ReceiveMessage};
use netrpc::{Event, RequestKey, status};
use std::task::{Context, Waker};
use wire::{ControlView, Errno, NodeId, Time};

/// Counters and operations in flight of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCounters {
    /// Messages of its endpoint.
    pub endpoint: endpoint::Counters,
    /// Its calls and requests.
    pub rpc: netrpc::Counters,
    /// Calls that have not ended.
    pub open_calls: usize,
    /// Clients with sessions.
    pub clients: usize,
    /// Calls, disk and meta operations and timers that tasks wait for.
    pub tickets: usize,
    /// Times a task was run.
    pub polls: u64,
}

/// One core of one machine: its tasks and what they share. The world moves it by [`step`](Node::step) and serves its
/// rings in between.
pub struct Node {
    cx: Cx,
    tasks: Vec<Option<Task>>,
    names: Vec<&'static str>,
    polls: u64,
}

impl Node {
    /// A node without tasks.
    pub fn new(config: NodeConfig, frames: Frames) -> Node {
        Node { cx: Cx::new(config, frames), tasks: Vec::new(), names: Vec::new(), polls: 0 }
    }

    /// The handle for services.
    pub fn cx(&self) -> &Cx {
        &self.cx
    }

    fn core(&self) -> &Core {
        &self.cx.0
    }

    /// Takes what arrived and runs tasks until all wait, or long enough. When to call again at the latest; `None` when
    /// only something new can make a difference.
    pub fn step(&mut self, now: Time) -> Option<Time> {
        self.core().now.set(now);
        let (mut messages, mut polls) = (MESSAGES_PER_STEP, POLLS_PER_STEP);
        self.change_links(now);
        self.fire_timers(now);
        while (messages > 0 && self.take_message(now) && spend(&mut messages))
            || (polls > 0 && self.run_task() && spend(&mut polls))
        {}
        self.handle_timeouts(now);
        while spend(&mut polls) && self.run_task() {}
        let busy = self.core().scheduler.has_ready() || self.core().endpoint.borrow().waiting() > 0;
        if busy { Some(now) } else { self.next_timer() }
    }

    fn next_timer(&self) -> Option<Time> {
        let timer = self.core().timers.borrow().next().unwrap_or(Time::NEVER);
        let at = timer.min(self.core().rpc.borrow().poll_timeout());
        (at != Time::NEVER).then_some(at)
    }

    fn fire_timers(&self, now: Time) {
        loop {
            let due = self.core().timers.borrow_mut().pop_due(now);
            let Some(ticket) = due else { return };
            self.end(ticket, Outcome::Timer);
        }
    }

    fn handle_timeouts(&self, now: Time) {
        {
            let mut endpoint = self.core().endpoint.borrow_mut();
            self.core().rpc.borrow_mut().handle_timeout(now, &mut endpoint);
        }
        self.take_events();
    }

    fn change_links(&self, now: Time) {
        while let Some((peer, up)) = { self.core().links.borrow_mut().pop_front() } {
            let mut endpoint = self.core().endpoint.borrow_mut();
            let mut rpc = self.core().rpc.borrow_mut();
            match up {
                true => rpc.link_up(now, &mut endpoint, peer),
                false => rpc.link_down(now, peer),
            }
        }
        self.take_events();
    }

    fn take_events(&self) {
        loop {
            let event = self.core().rpc.borrow_mut().poll_event();
            let Some(event) = event else { return };
            self.take_event(event);
        }
    }

    fn take_message(&self, now: Time) -> bool {
        let message = self.core().endpoint.borrow_mut().get_rcvmsg();
        let Some(message) = message else { return false };
        let event = {
            let mut endpoint = self.core().endpoint.borrow_mut();
            if is_message(&mut endpoint, &message) {
                self.core().messages.borrow_mut().push(&mut endpoint, message);
                self.core().told.set(self.core().told.get() + 1);
                return true;
            }
            self.core().rpc.borrow_mut().handle_message(now, &mut endpoint, message)
        };
        event.into_iter().for_each(|event| self.take_event(event));
        self.take_events();
        true
    }

    fn take_event(&self, event: Event) {
        match event {
            Event::Request { key, message } => self.take_request(key, message),
            Event::Reply { ticket, status, message } => {
                let reply = self.take_reply(status, message);
                self.end(ticket, Outcome::Call(Ok(reply)));
            }
            Event::Failed { ticket, error } => self.end(ticket, Outcome::Call(Err(error))),
        }
    }

    fn take_reply(&self, status: u16, message: ReceiveMessage) -> Reply {
        let core = self.core();
        let mut endpoint = core.endpoint.borrow_mut();
        let entry = endpoint.arrived(&message);
        let trailer_bytes = ControlView::checked_before(&entry.control).header().trailer_bytes();
        let mut data = Pieces::new(&core.spare_frames_mut);
        std::mem::swap(&mut *data, &mut entry.landed);
        let reply = Reply {
            status,
            body: *entry.control.body(),
            data,
            bytes: entry.payload_bytes,
            trailer: Trailer::take(&mut entry.trailer, trailer_bytes, &core.spare_trailers),
        };
        endpoint.release_rcvmsg(message);
        reply
    }

    fn take_request(&self, key: RequestKey, message: ReceiveMessage) {
        let reply = self.take_reply(0, message);
        let request = Request {
            source: key.source,
            op: key.op,
            body: reply.body,
            data: reply.data,
            bytes: reply.bytes,
            client: key.client,
            slot: key.slot,
            sequence: key.sequence,
            key,
            trailer: reply.trailer,
        };
        let mut channels = self.core().channels.borrow_mut();
        let mailbox = &mut channels[key.channel.0 as usize];
        if !mailbox.served {
            return self.refuse(&key, status::REFUSED);
        }
        match mailbox.push(request) {
            Ok(task) => task.into_iter().for_each(|task| self.cx.wake(task)),
            Err(_) => self.refuse(&key, status::OVERLOADED),
        }
    }

    fn refuse(&self, key: &RequestKey, status: u16) {
        let mut endpoint = self.core().endpoint.borrow_mut();
        self.core().rpc.borrow_mut().reply(&mut endpoint, key, status, &[], &[], &[]);
    }

    fn end(&self, ticket: u64, outcome: Outcome) {
        let ended = self.core().tickets.borrow_mut().end(ticket, outcome);
        match ended {
            Ended::Wake(task) => self.cx.wake(task),
            Ended::Run(continuation, result) => {
                self.core().told.set(self.core().told.get() + 1);
                continuation(result);
            }
            Ended::Nobody(_) => {}
        }
    }

    fn place_spawned(&mut self) {
        for (id, name, task) in self.cx.0.spawned.borrow_mut().drain(..) {
            let slot = id.0 as usize;
            if slot == self.tasks.len() {
                self.tasks.push(None);
                self.names.push(name);
            }
            assert!(self.tasks[slot].is_none(), "a number is one task's at a time");
            (self.tasks[slot], self.names[slot]) = (Some(task), name);
        }
    }

    fn run_task(&mut self) -> bool {
        self.place_spawned();
        let Some(id) = self.cx.0.scheduler.next() else { return false };
        self.polls += 1;
        let slot = &mut self.tasks[id.0 as usize];
        let Some(task) = slot else { return true };
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            *slot = None;
            self.core().scheduler.end_current();
        }
        true
    }

    /// Names of the tasks that have not returned.
    pub fn tasks(&self) -> impl Iterator<Item = &'static str> + '_ {
        let live = self.tasks.iter().zip(&self.names).filter(|(task, _)| task.is_some());
        live.map(|(_, name)| *name)
    }

    /// Times a task or a continuation was run, or a message came that is no call: grown after a step that may have
    /// served a waiting task.
    pub fn polls(&self) -> u64 {
        self.polls + self.core().told.get()
    }

    /// Counters since the start.
    pub fn counters(&self) -> NodeCounters {
        let rpc = self.core().rpc.borrow();
        NodeCounters {
            endpoint: self.core().endpoint.borrow().counters(),
            rpc: rpc.counters(),
            open_calls: rpc.open_calls(),
            clients: rpc.clients(),
            tickets: self.core().tickets.borrow().under_way(),
            polls: self.polls,
        }
    }

    // The world's side of the rings.

    /// The wall clock reads this much more than the monotonic one, in nanoseconds.
    pub fn set_wall(&self, wall_minus_monotonic_ns: i128) {
        self.core().wall_offset.set(wall_minus_monotonic_ns);
    }

    /// A clock that goes on during a step, for measurements. Without one, as in a simulation, they are of length zero.
    pub fn set_clock(&self, clock: fn() -> Time) {
        self.core().clock.set(Some(clock));
    }

    /// The adapter's access to the endpoint.
    pub fn with_endpoint<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> R {
        f(&mut self.core().endpoint.borrow_mut())
    }

    /// A link to the peer is there (again). Noted until the next step, which is due at once and knows the time.
    pub fn link_up(&self, peer: NodeId) {
        self.core().links.borrow_mut().push_back((peer, true));
    }

    /// The last link to the peer is gone; likewise.
    pub fn link_down(&self, peer: NodeId) {
        self.core().links.borrow_mut().push_back((peer, false));
    }

    /// The next disk operation to do.
    pub fn take_disk(&self) -> Option<DiskRequest> {
        self.core().disk.borrow_mut().pop_front()
    }

    /// A disk operation has ended.
    pub fn disk_done(&self, done: DiskDone) {
        self.end(done.ticket.0, Outcome::Disk(done.result));
    }

    /// The next operation on a store's files to do.
    pub fn take_meta(&self) -> Option<MetaRequest> {
        self.core().meta.borrow_mut().pop_front()
    }

    /// An operation on a store's files has ended.
    pub fn meta_done(&self, done: MetaDone) {
        self.cx.0.meta_room.set(done.room);
        self.end(done.ticket.0, Outcome::Meta(done.result));
    }

    /// Asks the node for a file operation; gives it back when too many wait. An interrupt never waits behind others.
    pub fn front_push(&self, request: FileRequest) -> Result<(), FileRequest> {
        if let FileOp::Interrupt { front } = request.op {
            if !self.interrupt(front) {
                return Err(request);
            }
            self.cx.front_done(request.front, Ok(FileReply::Done));
            return Ok(());
        }
        let task = self.core().front.borrow_mut().push(request)?;
        task.into_iter().for_each(|task| self.cx.wake(task));
        Ok(())
    }

    /// Ends an operation that no task has taken, or tells the service; false when there is no room for that now.
    fn interrupt(&self, front: u64) -> bool {
        let waiting = self.core().front.borrow_mut().take(|request| request.front == front);
        if waiting.is_some() {
            self.cx.front_done(front, Err(Errno::EINTR));
            return true;
        }
        let Ok(task) = self.core().interrupts.borrow_mut().push(front) else { return false };
        task.into_iter().for_each(|task| self.cx.wake(task));
        true
    }

    /// The next file operation that has ended.
    pub fn take_front_done(&self) -> Option<FileDone> {
        self.core().front_done.borrow_mut().pop_front()
    }
}

/// Tasks that never ran and continuations hold handles to the node: they would keep it alive.
impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.clear();
        drop(self.core().spawned.take());
        let tickets = self.core().tickets.borrow_mut().clear();
        drop(tickets);
    }
}

/// Takes one from the allowance; whether there was one.
fn spend(allowance: &mut usize) -> bool {
    let some = *allowance > 0;
    *allowance = allowance.saturating_sub(1);
    some
}
