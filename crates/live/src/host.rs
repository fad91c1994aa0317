//! The loop of one node on one thread: poll the devices, step the node, wait.
//!
//! It is not a scheduler: the node runs its tasks, a device moves ring entries, and the [`Waiter`] decides what to do
//! when there is no work. All sleeping is one `epoll_wait` over what the devices put into the set.

use crate::clock::{self, WallOffset};
use crate::device::{Poller, Ready};
use crate::scheduler::{Slices, switches};
use crate::wait::{Pause, Thrift, WaitCounters, WaitPolicy, Waiter};
use node::Node;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

/// A part of the real world that serves some of a node's rings.
pub trait Device {
    /// Keeps the poller to add and remove its descriptors.
    fn attach(&mut self, poller: &Poller) -> io::Result<()>;

    /// Moves what can be moved without waiting, a bounded number of entries; whether anything moved.
    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool>;

    /// Hands on what the node's step has just posted, so that it need not wait for the next [`poll`](Device::poll).
    fn flush(&mut self, node: &mut Node, now: Time) -> io::Result<()> {
        let _ = (node, now);
        Ok(())
    }

    /// Whether a look that costs no system call shows that [`poll`](Device::poll) would move nothing. False when only
    /// `poll` can tell.
    fn is_quiet(&self) -> bool {
        false
    }

    /// About to sleep: arm wake-ups; true when something arrived meanwhile, then do not sleep.
    fn before_sleep(&mut self) -> bool {
        false
    }

    /// Awake again, by these of the host's descriptors; the device knows its own by the names it gave them.
    fn woken(&mut self, ready: &[Ready]) {
        let _ = ready;
    }

    /// Awake again: disarm.
    fn after_sleep(&mut self) {}

    /// When to be polled at the latest, even if no descriptor says so.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Whether what is waited for may be done by another on this very processor.
    fn shares_processor(&self) -> bool {
        false
    }

    /// Stops bringing work; true when no more will come. The host is driven meanwhile.
    fn quiesce(&mut self, node: &mut Node) -> io::Result<bool> {
        let _ = node;
        Ok(true)
    }

    /// Drains; true when nothing is under way any more.
    fn stop(&mut self, node: &mut Node) -> io::Result<bool> {
        let _ = node;
        Ok(true)
    }
}

/// How often the wall clock is read.
const WALL_SPAN: Duration = Duration::from_millis(100);
/// Idle turns before a node that blocks sleeps: what the last step posted has to leave first.
const IDLE_TURNS_MIN: u32 = 2;
/// Idle turns between two looks at where the peers run: each reads what the peers write.
const SHARES_TURNS: u32 = 16;
/// Looks at the devices between two turns of a node that spins. A look takes 20 ns, most of it the processor's pause
/// instruction, so timers come at most 1 us late.
const LOOKS_PER_TURN: u32 = 32;
/// Longest a stopping node waits for what is under way.
const DRAIN_SPAN: Duration = Duration::from_secs(10);

/// A node, its devices, and their thread.
pub struct Host {
    node: Node,
    devices: Vec<Box<dyn Device>>,
    poller: Poller,
    waiter: Waiter,
    slices: Slices,
    ready: Vec<Ready>,
    idle_turns: u32,
    shares: bool,
    /// Time of the present turn.
    now: Time,
    /// Whether the last turn ended with looks that found something.
    looked: bool,
    wall: WallOffset,
    wall_at: Time,
    waits: Rc<Cell<WaitCounters>>,
}

impl Host {
    /// A host of `node`. The thread that calls this is the one to run it on.
    pub fn new(node: Node, policy: WaitPolicy) -> io::Result<Host> {
        // The kernel may otherwise wake a sleeper 50 us late; without the right to change that it still works.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        node.set_clock(clock::now);
        let mut host = Host {
            node,
            devices: Vec::new(),
            poller: Poller::new()?,
            waiter: Waiter::new(policy, switches),
            slices: Slices::new(),
            ready: Vec::new(),
            idle_turns: 0,
            shares: false,
            now: Time::ZERO,
            looked: false,
            wall: WallOffset::read(),
            wall_at: Time::ZERO,
            waits: Rc::default(),
        };
        host.read_wall(clock::now());
        host.catch_up();
        Ok(host)
    }

    /// Tells the node the time. A node's time stands still between two steps, so who starts a call from outside its
    /// tasks does this first; else the call's deadline counts from the last step.
    pub fn catch_up(&mut self) {
        self.node.step(clock::now());
    }

    /// Adds a device.
    pub fn add(&mut self, mut device: impl Device + 'static) -> io::Result<()> {
        device.attach(&self.poller)?;
        self.devices.push(Box::new(device));
        Ok(())
    }

    /// From now on looking costs hardly more processor time than sleeping would; see [`Thrift`].
    pub fn save(&mut self) {
        self.waiter.save(Thrift::new(clock::thread_time));
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// How often waiting spun, yielded and slept.
    pub fn wait_counters(&self) -> WaitCounters {
        self.waiter.counters()
    }

    /// The same, for the node's own tasks; a little old.
    pub fn waits(&self) -> Rc<Cell<WaitCounters>> {
        self.waits.clone()
    }

    /// Polls every device, steps the node, and, when there was nothing to do, waits as the policy says.
    pub fn turn(&mut self) -> io::Result<()> {
        self.turn_until(None)
    }

    /// As [`turn`](Host::turn), but waits no longer than until `late`; with a time that has passed not at all.
    pub fn turn_until(&mut self, late: Option<Time>) -> io::Result<()> {
        // Time does not stand still while the devices are looked at, but at most a microsecond has passed.
        let now = if std::mem::take(&mut self.looked) { self.now } else { clock::now() };
        self.now = now;
        if now >= self.wall_at + WALL_SPAN {
            self.read_wall(now);
            self.slices.look(now);
        }
        let polls = self.node.polls();
        let mut moved = false;
        for device in &mut self.devices {
            moved |= device.poll(&mut self.node, now)?;
        }
        let next = self.node.step(now);
        if moved || self.node.polls() > polls || next.is_some_and(|at| at <= now) {
            for device in &mut self.devices {
                device.flush(&mut self.node, now)?;
            }
            self.idle_turns = 0;
            self.waiter.busy(now);
            return Ok(());
        }
        let next = next.into_iter().chain(late).min();
        self.idle_turns = self.idle_turns.wrapping_add(1);
        if late.is_some_and(|late| late <= now) || self.idle_turns < IDLE_TURNS_MIN {
            return Ok(());
        }
        if self.idle_turns % SHARES_TURNS == IDLE_TURNS_MIN && self.waiter.minds_sharing() {
            self.shares = self.devices.iter().any(|device| device.shares_processor());
        }
        match self.waiter.idle(now, self.shares, next) {
            Pause::Spin => self.look(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep => self.sleep(next)?,
        }
        Ok(())
    }

    /// Waits for a moment, as long as no device shows anything.
    fn look(&mut self) {
        for look in 0..LOOKS_PER_TURN {
            std::hint::spin_loop();
            if !self.devices.iter().all(|device| device.is_quiet()) {
                self.looked = look > 0;
                return;
            }
        }
    }

    fn sleep(&mut self, next: Option<Time>) -> io::Result<()> {
        self.waits.set(self.waiter.counters());
        let mut busy = false;
        for device in &mut self.devices {
            busy |= device.before_sleep();
        }
        if !busy {
            let due = self.devices.iter().filter_map(|device| device.deadline()).chain(next).min();
            let span = due.map(|at| at.since(clock::now()));
            self.poller.wait(span, &mut self.ready)?;
            self.devices.iter_mut().for_each(|device| device.woken(&self.ready));
            let due = due.filter(|_| self.ready.is_empty() && span > Some(Duration::ZERO));
            self.waiter.woken(clock::now(), due);
        }
        self.devices.iter_mut().for_each(|device| device.after_sleep());
        Ok(())
    }

    fn read_wall(&mut self, now: Time) {
        self.wall_at = now;
        self.waits.set(self.waiter.counters());
        self.wall = self.wall.after(WallOffset::read());
        self.node.set_wall(self.wall.ns());
    }

    /// Runs until `done` says so; it is asked after every turn.
    pub fn run(&mut self, mut done: impl FnMut() -> bool) -> io::Result<()> {
        while !done() {
            self.turn()?;
        }
        Ok(())
    }

    /// Runs the node until `future`, one of its tasks from now on, is finished; its result.
    pub fn block_on<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
    ) -> io::Result<T> {
        let result = Rc::new(Cell::new(None));
        let slot = result.clone();
        self.catch_up();
        self.node.cx().spawn("block_on", async move { slot.set(Some(future.await)) });
        loop {
            self.turn()?;
            if let Some(value) = result.take() {
                return Ok(value);
            }
        }
    }

    /// As [`quiesce_while`](Host::quiesce_while), for a bounded time.
    pub fn quiesce(&mut self) -> io::Result<bool> {
        let late = clock::now() + DRAIN_SPAN;
        self.quiesce_while(|| clock::now() < late)
    }

    /// Has the devices bring no more work, and runs until what they brought is done, or for as long as there is
    /// `patience`; whether it is done.
    pub fn quiesce_while(&mut self, mut patience: impl FnMut() -> bool) -> io::Result<bool> {
        loop {
            let mut quiet = true;
            for device in &mut self.devices {
                quiet &= device.quiesce(&mut self.node)?;
            }
            if quiet || !patience() {
                return Ok(quiet);
            }
            let now = clock::now();
            let mut moved = false;
            for device in &mut self.devices {
                moved |= device.poll(&mut self.node, now)?;
            }
            self.node.step(now);
            if !moved {
                self.poller.wait(Some(Duration::from_millis(1)), &mut self.ready)?;
            }
        }
    }

    /// Lets the devices finish what is under way, for a bounded time; whether all of it is finished.
    pub fn stop(&mut self) -> io::Result<bool> {
        self.stop_within(DRAIN_SPAN)
    }

    /// As [`stop`](Host::stop), for at most `span`.
    pub fn stop_within(&mut self, span: Duration) -> io::Result<bool> {
        let late = clock::now() + span;
        loop {
            let mut drained = true;
            for device in &mut self.devices {
                drained &= device.stop(&mut self.node)?;
            }
            if drained || clock::now() >= late {
                return Ok(drained);
            }
            // Operations under way at a front end only when the node's tasks run.
            self.node.step(clock::now());
            self.poller.wait(Some(Duration::from_millis(1)), &mut self.ready)?;
        }
    }
}
