//! Endpoints: opening, moving, closing.

use crate::error::*;
use crate::jobs::Memory;
use crate::limits::MEMORY_BYTES_MAX;
use live::clock;
use live::host::Host;
use live::link::Directory;
use live::wakeup::Wakeup;
use netmem::Service;
use node::Cx;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null;
use std::rc::Rc;
use std::time::Duration;
use trapeze::join::{Joined, Plan, join};
use trapeze::machine::Running;
use trapeze::membership::Membership;
use trapeze::service::{Keys, Options, Security, WaitPolicy};
use wire::{Channel, NodeId, Time};

/// Of tpz_options_t: TCP without encryption, open to any peer. Only for networks without other users.
pub const TPZ_INSECURE: u16 = 1;
/// How to wait: spin as long as that pays, then sleep.
pub const TPZ_WAIT_ADAPTIVE: u32 = 0;
/// Never sleep: the lowest latency, and a processor for it.
pub const TPZ_WAIT_SPIN: u32 = 1;
/// Sleep at once.
pub const TPZ_WAIT_BLOCK: u32 = 2;

/// Options of an endpoint: `tpz_options_t options = {.size = sizeof options, .node = 1, .listen = "..."};`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_options_t {
    /// sizeof(tpz_options_t).
    pub size: u32,
    /// The endpoint's number among its peers, 1 to 65535; 0 to be given one by the peer that `connect` names.
    pub node: u16,
    /// 0 or TPZ_INSECURE.
    pub flags: u16,
    /// Where to listen, or NULL: "unix:PATH" (shared memory), "adapter:PATH" (adapters over it), "tcp:HOST:PORT" (port
    /// 0: any free one).
    pub listen: *const c_char,
    /// The address to connect to at once, or NULL.
    pub connect: *const c_char,
    /// Bytes of payload memory; 0 is 64 MiB. Only what is used costs memory.
    pub memory_bytes: u64,
    /// For TCP: 32 secret bytes that both sides know, or NULL.
    pub key: *const u8,
    /// TPZ_WAIT_ADAPTIVE, TPZ_WAIT_SPIN or TPZ_WAIT_BLOCK.
    pub wait: u32,
    /// 0.
    pub reserved: u32,
}

/// Calls a callback of the program.
pub type Callback = Box<dyn FnOnce()>;

/// An event for a callback.
pub enum News {
    /// A call has ended, or pages were got, put or flushed.
    Ended(Callback),
    /// A request has come.
    Arrived(Callback),
}

/// The state of an endpoint.
pub struct Ep {
    /// Its thread.
    pub mark: Mark,
    /// Its node.
    pub cx: Cx,
    /// The peer that was connected to, or 0.
    pub peer: NodeId,
    /// Gone once closed; borrowed only while the node moves, never while a callback runs.
    pub host: RefCell<Option<Host>>,
    /// For callbacks, in order.
    pub news: RefCell<VecDeque<News>>,
    /// By number of a completion, what gives back the frames of a message that is under way.
    pub sent: RefCell<BTreeMap<u64, Callback>>,
    /// The number of the next message that has frames.
    pub next_sent: Cell<u64>,
    /// Its part in network memory, if it has one.
    pub memory: RefCell<Option<Rc<Memory>>>,
    /// The cluster that it is a member of, if it is one.
    pub member: RefCell<Option<Membership>>,
    /// Channels that are served, one bit each.
    pub served: Cell<u64>,
    /// Callbacks that are running.
    depth: Cell<u32>,
    directory: Directory,
    address: CString,
    wake: Wakeup,
}

/// An endpoint: a pair of message rings, payload memory, and links to peers. It belongs to the thread that opened it: a
/// call from another one fails (TPZ_EPERM), but for tpz_wake(). A process may have any number, one or more for each
/// thread. Nothing runs in the background: messages move while tpz_poll(), tpz_call_wait() or a tpz_spinwait_ function
/// runs. Do not use it in the child of a fork.
pub struct tpz_ep_t(pub(crate) Rc<Ep>);

/// Runs `body` on an endpoint of C's.
///
/// # Safety
/// `ep` is NULL or open.
pub unsafe fn on_ep<T>(
    function: &'static str,
    ep: *const tpz_ep_t,
    body: impl FnOnce(&tpz_ep_t) -> Outcome<T>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise; an endpoint is only ever borrowed for reading, and freed by tpz_close alone, which
    // refuses while anything of it runs.
    let ep = unsafe { ep.as_ref() };
    run(function, ep.map(|ep| &ep.0.mark), || {
        let ep = ep.ok_or(failure(TPZ_EINVAL, "the endpoint is NULL: open one with tpz_open()"))?;
        ep.0.mark.check()?;
        body(ep)
    })
}

/// Text of C's.
///
/// # Safety
/// `text` is NULL or ends with a zero, and stays during `'a`.
pub unsafe fn text<'a>(name: &str, text: *const c_char) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| invalid(format!("{name} is not UTF-8")))
}

/// Options as this release knows them: a structure named so, whose first field is its size.
///
/// # Safety
/// `options` is NULL or has as many bytes as its first field, a `u32`, says.
pub unsafe fn read_sized<T: Copy>(name: &str, options: *const T) -> Outcome<T> {
    if options.is_null() {
        return Err(invalid("options is NULL"));
    }
    // SAFETY: the caller's promise: at least the first field is there.
    let size = unsafe { options.cast::<u32>().read() } as usize;
    check_size(name, size, size_of::<T>())?;
    // SAFETY: all of the structure is there.
    Ok(unsafe { options.read() })
}

/// Security of TCP by flags and key.
///
/// # Safety
/// `key` is NULL or has 32 bytes.
pub unsafe fn security(flags: u16, key: *const u8) -> Outcome<Option<Security>> {
    match (flags, key.is_null()) {
        (0, true) => Ok(None),
        (TPZ_INSECURE, true) => Ok(Some(Security::Insecure)),
        (0, false) => {
            // SAFETY: the caller's promise.
            let key = unsafe { key.cast::<[u8; 32]>().read() };
            Ok(Some(Security::Encrypted(Keys::generate(key))))
        }
        (TPZ_INSECURE, false) => Err(invalid("a key and TPZ_INSECURE: choose one")),
        (other, _) => Err(invalid(format!("flags are {other}: 0 or TPZ_INSECURE"))),
    }
}

/// One of TPZ_WAIT_....
pub fn wait_policy(wait: u32) -> Outcome<WaitPolicy> {
    match wait {
        TPZ_WAIT_ADAPTIVE => Ok(WaitPolicy::Adaptive),
        TPZ_WAIT_SPIN => Ok(WaitPolicy::Spin),
        TPZ_WAIT_BLOCK => Ok(WaitPolicy::Block),
        other => Err(invalid(format!("wait is {other}: one of TPZ_WAIT_..."))),
    }
}

fn node_options(options: &tpz_options_t, security: Option<Security>) -> Outcome<Options> {
    let memory_bytes = match options.memory_bytes {
        0 => Options::default().memory_bytes,
        bytes if bytes > MEMORY_BYTES_MAX => {
            return Err(invalid(format!(
                "memory_bytes is {bytes}: {MEMORY_BYTES_MAX} is the most"
            )));
        }
        bytes => bytes as usize,
    };
    Ok(Options { memory_bytes, wait: wait_policy(options.wait)?, security })
}

fn open(plan: Plan<'_>, options: &Options) -> Outcome<Ep> {
    let Joined { host, directory, address, peer } = join(plan, options)?;
    let address = address.map_or(String::new(), |address| address.to_string());
    Ep::new(host, directory, address, peer.unwrap_or_default())
}

impl Ep {
    fn new(mut host: Host, directory: Directory, address: String, peer: NodeId) -> Outcome<Ep> {
        let wake = Wakeup::new()?;
        host.add(wake.clone())?;
        let cx = host.node().cx().clone();
        cx.accept_messages();
        Ok(Ep {
            mark: Mark::here(),
            cx,
            peer,
            host: RefCell::new(Some(host)),
            news: RefCell::default(),
            sent: RefCell::default(),
            next_sent: Cell::new(0),
            memory: RefCell::default(),
            member: RefCell::default(),
            served: Cell::new(0),
            depth: Cell::new(0),
            directory,
            address: CString::new(address).expect("an address has no zeros"),
            wake,
        })
    }

    /// Of a node that is a member of a cluster, and takes part in its memory.
    pub fn of_member(running: Running, service: Service) -> Outcome<Ep> {
        let (host, directory, member) = running.into_parts();
        let ep = Ep::new(host, directory, String::new(), NodeId(0))?;
        // both are served by the node itself: others ask it how it is
        let taken = 1 << Channel::MEMORY.0 | 1 << Channel::STATUS.0;
        ep.served.set(ep.served.get() | taken);
        *ep.memory.borrow_mut() = Some(Memory::start_with(&ep.cx, service));
        *ep.member.borrow_mut() = Some(member);
        Ok(ep)
    }
}

/// Counts a callback of the program as running.
struct Inside<'a>(&'a Cell<u32>);

impl<'a> Inside<'a> {
    fn new(depth: &'a Cell<u32>) -> Inside<'a> {
        depth.set(depth.get() + 1);
        Inside(depth)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Ep {
    /// The node that is meant: 0 is the peer that was connected to.
    pub fn to(&self, node: u16) -> Outcome<NodeId> {
        match NodeId(node) {
            NodeId(0) if self.peer == NodeId(0) => Err(invalid(
                "no destination: name a node; only an endpoint opened with connect has a peer of its own",
            )),
            NodeId(0) => Ok(self.peer),
            node => Ok(node),
        }
    }

    /// Notes that the channel is served from now on; fails when it is already.
    pub fn serve_once(&self, channel: Channel) -> Outcome<()> {
        let bit = 1 << channel.0;
        if self.served.get() & bit != 0 {
            return Err(failure(
                TPZ_EBUSY,
                "the channel is served already: choose another, or another endpoint",
            ));
        }
        self.served.set(self.served.get() | bit);
        Ok(())
    }

    /// Moves the node once, waiting until `late` at most when there is nothing to do.
    pub fn turn(&self, late: Option<Time>) -> Outcome<()> {
        let mut host = self.host.borrow_mut();
        let host = host.as_mut().ok_or(failure(TPZ_EBADF, "the endpoint is closed"))?;
        Ok(host.turn_until(late)?)
    }

    /// Brings the node's time up to now, for what is started from outside of it.
    pub fn catch_up(&self) -> Outcome<()> {
        let mut host = self.host.borrow_mut();
        host.as_mut().ok_or(failure(TPZ_EBADF, "the endpoint is closed"))?.catch_up();
        Ok(())
    }

    /// Runs the completions of messages that have left; how many.
    pub fn complete(&self) -> usize {
        let mut count = 0;
        while let Some(number) = self.cx.with_endpoint(|endpoint| endpoint.check_xmit_complete()) {
            let complete = self.sent.borrow_mut().remove(&number);
            let _inside = Inside::new(&self.depth);
            complete.into_iter().for_each(|complete| complete());
            count += 1;
        }
        count
    }

    /// Runs the callbacks of what has happened; how many.
    fn tell(&self) -> usize {
        let waiting = self.news.borrow().len();
        for _ in 0..waiting {
            // A callback may have polled, and told the rest.
            let Some(news) = self.news.borrow_mut().pop_front() else { break };
            let _inside = Inside::new(&self.depth);
            let (News::Ended(tell) | News::Arrived(tell)) = news;
            tell();
        }
        waiting
    }

    /// Moves the node until something has happened; false when it is `late`.
    fn poll(&self, late: Option<Time>) -> Outcome<bool> {
        loop {
            let waits = self.news.borrow().is_empty() && self.cx.messages_waiting() == 0;
            self.turn(if waits && !self.wake.is_rung() { late } else { Some(Time::ZERO) })?;
            if self.complete() + self.tell() + self.cx.messages_waiting() > 0 {
                return Ok(true);
            }
            let passed = late.is_some_and(|late| clock::now() >= late);
            if self.wake.take() || passed {
                return Ok(!passed);
            }
        }
    }
}

/// Opens an endpoint for this thread: connects, if `connect` is set, then listens, if `listen` is. The endpoint is
/// written to `*ep`.
///
/// # Safety
/// `options` points to options whose texts end with a zero and whose key has 32 bytes; `ep` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_open(options: *const tpz_options_t, ep: *mut *mut tpz_ep_t) -> c_int {
    code(run("tpz_open", None, || {
        if ep.is_null() {
            return Err(invalid("ep is NULL: where is the endpoint to be written?"));
        }
        // SAFETY: the caller's promise, for this and the texts and the key below.
        let options = unsafe { read_sized("tpz_options_t", options)? };
        // SAFETY: as above.
        let (listen, connect) =
            unsafe { (text("listen", options.listen)?, text("connect", options.connect)?) };
        // SAFETY: as above.
        let security = unsafe { security(options.flags, options.key)? };
        let plan = Plan { node: NodeId(options.node), listen, connect };
        let opened = open(plan, &node_options(&options, security)?)?;
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { ep.write(Box::into_raw(Box::new(tpz_ep_t(Rc::new(opened))))) };
        Ok(())
    }))
}

/// Closes an endpoint: what was posted leaves first, for 10 s at most, then every call that has not ended ends with
/// TPZ_ECANCELED. Frames, messages and requests stay to be freed. Not from a callback (TPZ_EBUSY). NULL is nothing.
///
/// # Safety
/// `ep` is NULL or open, and is not used from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_close(ep: *mut tpz_ep_t) -> c_int {
    if ep.is_null() {
        return TPZ_OK;
    }
    code(run("tpz_close", None, || {
        // SAFETY: the caller's promise; borrowed only to be checked.
        unsafe { (*ep).0.check_closable()? };
        // SAFETY: every endpoint was made from a box by tpz_open; the caller gives it back, and nothing of it runs.
        let tpz_ep_t(ep) = *unsafe { Box::from_raw(ep) };
        ep.close()
    }))
}

impl Ep {
    /// Whether tpz_close has been called.
    pub fn is_closed(&self) -> bool {
        self.host.borrow().is_none()
    }

    fn check_closable(&self) -> Outcome<()> {
        match self.mark.check() {
            Err(failure) if failure.code == TPZ_EPERM => return Err(failure),
            _ if self.depth.get() > 0 => {}
            _ => return Ok(()),
        }
        Err(failure(
            TPZ_EBUSY,
            "a callback of the endpoint is running: close it when tpz_poll has returned",
        ))
    }

    fn close(&self) -> Outcome<()> {
        let (host, member) = (self.host.borrow_mut().take(), self.member.take());
        let stopped = host.map_or(Ok(true), |mut host| match self.mark.is_broken() {
            true => Ok(true),
            false => {
                let left = member.as_ref().map_or(Ok(()), |member| member.leave(&mut host));
                left.and_then(|()| host.stop())
            }
        });
        drop(self.memory.take());
        // Requests are not answered any more.
        self.news.borrow_mut().retain(|news| !matches!(news, News::Arrived(_)));
        self.complete();
        self.tell();
        // Messages that a broken link never took.
        self.sent.take().into_values().for_each(|complete| complete());
        stopped.map(drop).map_err(Failure::from)
    }
}

/// The endpoint's own number; 0 only for NULL.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_self(ep: *const tpz_ep_t) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_self", ep, |ep| Ok(ep.0.cx.id().0)) }.unwrap_or(0)
}

/// The number of the peer that `connect` named; 0 when there is none.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_peer(ep: *const tpz_ep_t) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_peer", ep, |ep| Ok(ep.0.peer.0)) }.unwrap_or(0)
}

/// Where the endpoint listens, with the port that it really got; "" when it does not. Until tpz_close().
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_address(ep: *const tpz_ep_t) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_address", ep, |ep| Ok(ep.0.address.as_ptr())) }.unwrap_or(null())
}

/// From now on the peer with this number is found at this address. A connection is made when something is sent to it.
///
/// # Safety
/// `ep` is open, `address` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_add_peer(
    ep: *const tpz_ep_t,
    node: u16,
    address: *const c_char,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        // SAFETY: the caller's promise.
        let address = unsafe { text("address", address)? }.ok_or(invalid("address is NULL"))?;
        if node == 0 || NodeId(node) == ep.0.cx.id() {
            return Err(invalid(format!("node {node}: another endpoint's number, 1 to 65535")));
        }
        let address = address.parse().map_err(trapeze::service::ServiceError::from)?;
        ep.0.directory.set(NodeId(node), vec![address]);
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_add_peer", ep, body) })
}

/// Moves messages, runs the callbacks of what has happened, and returns as soon as something has: a callback ran, a
/// message waits for tpz_get_rcvmsg(), or another thread called tpz_wake(). Otherwise waits for `timeout_ms`
/// milliseconds, then returns TPZ_ETIMEDOUT; 0 only looks, -1 waits for ever. Posted messages leave in here.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_poll(ep: *const tpz_ep_t, timeout_ms: c_int) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let span = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match ep.0.poll(span.map(|span| clock::now() + span))? {
            true => Ok(()),
            false => Err(failure(TPZ_ETIMEDOUT, "nothing happened in time")),
        }
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_poll", ep, body) })
}

/// Has tpz_poll() return, now or the next time. From any thread, as long as the endpoint is open.
///
/// # Safety
/// `ep` is NULL or open, and no thread closes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_wake(ep: *const tpz_ep_t) -> c_int {
    code(run("tpz_wake", None, || {
        if ep.is_null() {
            return Err(failure(TPZ_EINVAL, "the endpoint is NULL"));
        }
        // SAFETY: the caller's promise. Of the endpoint only this field is reached, which never changes and whose parts
        // are made for several threads; the pointer to it is made without a reference to the rest.
        let wake = unsafe { &(*Rc::as_ptr(&(*ep).0)).wake };
        wake.ring();
        Ok(())
    }))
}

/// Counters of an endpoint since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tpz_counters_t {
    /// Messages handed to the link, those of calls included.
    pub sent: u64,
    /// Messages that came, those of calls included.
    pub received: u64,
    /// Messages that are no calls and that were dropped because tpz_get_rcvmsg() was not called in time.
    pub dropped: u64,
    /// Payloads discarded: the token was stale or its frame too small, no memory was free, or the checksum did not fit.
    pub discarded: u64,
    /// Pages of 4096 bytes of payload memory that are free.
    pub free_pages: u64,
    /// Times the thread slept.
    pub sleeps: u64,
}

/// Writes the counters to `*counters`.
///
/// # Safety
/// `ep` is open, `counters` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_counters(ep: *const tpz_ep_t, counters: *mut tpz_counters_t) -> c_int {
    let body = |ep: &tpz_ep_t| {
        if counters.is_null() {
            return Err(invalid("counters is NULL"));
        }
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { counters.write(ep.0.counters()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_counters", ep, body) })
}

impl Ep {
    fn counters(&self) -> tpz_counters_t {
        let endpoint = self.cx.with_endpoint(|endpoint| endpoint.counters());
        let host = self.host.borrow();
        tpz_counters_t {
            sent: endpoint.sent,
            received: endpoint.received,
            dropped: self.cx.messages_dropped(),
            discarded: endpoint.discarded_token
                + endpoint.discarded_frames
                + endpoint.damaged
                + endpoint.late,
            free_pages: self.cx.frames().free_pages() as u64,
            sleeps: host.as_ref().map_or(0, |host| host.wait_counters().sleeps),
        }
    }
}
