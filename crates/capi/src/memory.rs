//! Network memory: pages by number, in the memory of every endpoint that takes part. See [`netmem::service`].

use crate::ep::{Ep, News, on_ep, tpz_ep_t};
use crate::error::*;
use crate::frame::{borrow, tpz_frame_t};
use crate::jobs::Memory;
use endpoint::Frame;
use netmem::service::{Config, GetError, PutError, Service, Source, TooMany, Up, View, Weak};
use netmem::{Class, PageId, SpaceId, Version, Wanted};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::{Rc, Weak as WeakRc};
use wire::{Channel, NodeId};

/// Of tpz_page_op_t: two other endpoints have the page before it may leave this one.
pub const TPZ_MIRRORED: u32 = 0;
/// One other endpoint has it.
pub const TPZ_VOLATILE: u32 = 1;
/// Of tpz_page_op_t: the page was in this endpoint's memory.
pub const TPZ_FROM_HERE: u32 = 0;
/// It was in another one's.
pub const TPZ_FROM_PEER: u32 = 1;

/// Most pages of one batch.
const BATCH: usize = 1 << 20;

/// An endpoint that takes part in network memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tpz_member_t {
    /// Its tpz_incarnation().
    pub incarnation: u64,
    /// Its part of the directory relative to the others', say MiB of its memory; 0 is none.
    pub weight: u32,
    /// Its tpz_self().
    pub node: u16,
    /// 0.
    pub reserved: u16,
}

/// A page to get, put or flush, and what came of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_page_op_t {
    /// The page's space: tpz_own_space() or tpz_shared_space().
    pub space: u64,
    /// Its number in the space.
    pub index: u64,
    /// To get: the oldest version that will do, 0 for any; the version that came. To put: the new version, newer than
    /// any before, or 0 for the one after the newest that is known; the version that it is now.
    pub version: u64,
    /// To get: the page's bytes, which are read-only; yours to free. To put: what the page is to be; it stays yours,
    /// to be freed when you like, but is not to be written any more.
    pub frame: *mut tpz_frame_t,
    /// To get: bytes of a page of that space. To put: bytes of `frame`, 0 is all of it. 65536 at most.
    pub bytes: u32,
    /// To put: TPZ_MIRRORED or TPZ_VOLATILE.
    pub durability: u32,
    /// Got: TPZ_FROM_HERE or TPZ_FROM_PEER.
    pub source: u32,
    /// Result: TPZ_OK; TPZ_ENOENT (no node knows the page), TPZ_ENODATA (the version is lost with the nodes that had
    /// it), TPZ_ESTALE (its space was freed), TPZ_EEXIST (a version as new is known), TPZ_EACCES (the space is
    /// another's), TPZ_ENOSPC, TPZ_ENOMEM (no room), TPZ_EAGAIN (the node that has or knows it
    /// does not answer), TPZ_ECANCELED.
    pub code: c_int,
}

/// Called when a batch has ended, with TPZ_OK or the code of the first page in it that failed.
pub type tpz_done_fn_t = Option<unsafe extern "C" fn(code: c_int, arg: *mut c_void)>;

/// A request for one page.
enum Ask {
    Get(Wanted),
    Put(PageId, Version, Class, Frame),
    Flush(PageId),
    Free(SpaceId),
}

/// Its result.
#[derive(Default)]
struct Came {
    code: c_int,
    version: u64,
    frame: Option<Frame>,
    source: u32,
}

type Told = Box<dyn FnOnce(Vec<Came>)>;

/// Some pages that were asked for together.
struct Batch {
    left: Cell<usize>,
    came: RefCell<Vec<Came>>,
    told: RefCell<Option<Told>>,
}

impl Batch {
    fn end_one(&self, at: usize, came: Came) {
        self.came.borrow_mut()[at] = came;
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(told) = self.told.take() {
            told(self.came.take());
        }
    }
}

/// Pages that were not asked for any more when the endpoint was closed are TPZ_ECANCELED.
impl Drop for Batch {
    fn drop(&mut self) {
        self.tell();
    }
}

impl Memory {
    fn start(&self, asks: Vec<Ask>, told: Told) {
        let nothing = || Came { code: TPZ_ECANCELED, ..Came::default() };
        let batch = Rc::new(Batch {
            left: Cell::new(asks.len()),
            came: RefCell::new(asks.iter().map(|_| nothing()).collect()),
            told: RefCell::new(Some(told)),
        });
        for (at, ask) in asks.into_iter().enumerate() {
            let (service, batch) = (self.service.clone(), batch.clone());
            self.submit(async move { batch.end_one(at, ask_for(&service, ask).await) });
        }
    }
}

async fn ask_for(service: &Service, ask: Ask) -> Came {
    let code = match ask {
        Ask::Get(wanted) => match service.get(wanted).await {
            Ok(got) => {
                let source = match got.source {
                    Source::Local | Source::Backing => TPZ_FROM_HERE,
                    Source::Peer => TPZ_FROM_PEER,
                };
                return Came {
                    code: TPZ_OK,
                    version: got.version.0,
                    frame: Some(got.data),
                    source,
                };
            }
            Err(error) => get_code(error),
        },
        Ask::Put(id, version, class, data) => match put(service, id, version, class, data).await {
            Ok(version) => return Came { version: version.0, ..Came::default() },
            Err(error) => put_code(error),
        },
        Ask::Flush(id) => {
            service.flush(id).await.map_or_else(|Weak { .. }| TPZ_ENOSPC, |()| TPZ_OK)
        }
        Ask::Free(space) => {
            service.free(space).await.map_or_else(|TooMany| TPZ_EAGAIN, |()| TPZ_OK)
        }
    };
    Came { code, ..Came::default() }
}

async fn put(
    service: &Service,
    id: PageId,
    version: Version,
    class: Class,
    data: Frame,
) -> Result<Version, PutError> {
    match version {
        Version(0) => service.put_next(id, class, data).await,
        version => service.put(id, version, class, data).await.map(|()| version),
    }
}

fn get_code(error: GetError) -> c_int {
    match error {
        GetError::Unknown => TPZ_ENOENT,
        GetError::Lost(_) => TPZ_ENODATA,
        GetError::Unavailable => TPZ_EAGAIN,
        GetError::Freed => TPZ_ESTALE,
        GetError::NoMemory => TPZ_ENOMEM,
        GetError::Backing(errno) => errno.0.into(),
    }
}

fn put_code(error: PutError) -> c_int {
    match error {
        PutError::Stale(_) => TPZ_EEXIST,
        PutError::NoRoom(_) => TPZ_ENOSPC,
        PutError::Length(_) => TPZ_EMSGSIZE,
        PutError::Freed => TPZ_ESTALE,
        PutError::NoLease => TPZ_EAGAIN,
        PutError::NotOwner(_) => TPZ_EACCES,
    }
}

/// The part that the endpoint has, if it has one.
pub fn memory(ep: &Ep) -> Outcome<Rc<Memory>> {
    let memory = ep.memory.borrow().clone();
    memory.ok_or(failure(
        TPZ_EINVAL,
        "the endpoint takes no part in network memory: call tpz_memory_start first",
    ))
}

/// Has the endpoint take part in network memory with `bytes` bytes of its payload memory, at most half of it. It keeps
/// to itself until tpz_set_view(). Others find their pages here as long as it is polled. TPZ_EBUSY when it takes part
/// already.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_memory_start(ep: *const tpz_ep_t, bytes: u64) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let most = (ep.0.cx.frames().bytes() / 2) as u64;
        if bytes < 4096 || bytes > most {
            return Err(invalid(format!("{bytes} bytes: 4096 to {most}, half of memory_bytes")));
        }
        ep.0.serve_once(Channel::MEMORY)?;
        let (cx, service) = (&ep.0.cx, Service::start(&ep.0.cx, Config::new(bytes as usize)));
        *ep.0.memory.borrow_mut() = Some(Memory::start_with(cx, service));
        ep.0.catch_up()
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_memory_start", ep, body) })
}

/// Which incarnation of its number the endpoint is in, for tpz_member_t; 0 only for NULL.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_incarnation(ep: *const tpz_ep_t) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_incarnation", ep, |ep| Ok(ep.0.cx.incarnation())) }.unwrap_or(0)
}

/// Sets the members of network memory, this endpoint included. `number` grows with every change, and all are told the
/// same. Addresses of the others are for tpz_add_peer(). The program has to know which of them are up: pages of a
/// member that is not in the view any more are mirrored again from where they still are.
///
/// # Safety
/// `ep` is open, `members` has `count` members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_set_view(
    ep: *const tpz_ep_t,
    number: u64,
    members: *const tpz_member_t,
    count: usize,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let memory = memory(&ep.0)?;
        if ep.0.member.borrow().is_some() {
            return Err(invalid("the endpoint goes by the view of the cluster that it has joined"));
        }
        if members.is_null() || count == 0 || count > usize::from(u16::MAX) {
            return Err(invalid(format!(
                "{count} members: 1 to {}, and members not NULL",
                u16::MAX
            )));
        }
        // SAFETY: the caller's promise.
        let members = unsafe { std::slice::from_raw_parts(members, count) };
        if number <= memory.service.view().number {
            return Err(invalid(format!("number {number}: it must grow from view to view")));
        }
        memory.service.set_view(view(number, members, &ep.0)?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_set_view", ep, body) })
}

fn view(number: u64, members: &[tpz_member_t], ep: &Ep) -> Outcome<View> {
    let mut nodes: Vec<u16> = members.iter().map(|member| member.node).collect();
    nodes.sort_unstable();
    if nodes[0] == 0 || nodes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(invalid("members: each has a number of its own, 1 to 65535"));
    }
    let up = |member: &tpz_member_t| Up {
        node: NodeId(member.node),
        incarnation: member.incarnation,
        weight: member.weight,
        machine: 0,
    };
    let view = View::new(number, members.iter().map(up).collect());
    match view.has(ep.cx.id(), ep.cx.incarnation()) {
        true => Ok(view),
        false => {
            Err(invalid("members: this endpoint, with its tpz_incarnation, is not among them"))
        }
    }
}

/// The number of a space that this endpoint alone writes; of `serial` 46 bits count. A page of it is found without
/// asking a directory. 0 only for NULL.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_own_space(ep: *const tpz_ep_t, serial: u64) -> u64 {
    // SAFETY: the caller's promise.
    let space =
        unsafe { on_ep("tpz_own_space", ep, |ep| Ok(SpaceId::private(ep.0.cx.id(), serial).0)) };
    space.unwrap_or(0)
}

/// The number of a space that all read and write, one writer of a page at a time; of `serial` 63 bits count.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_shared_space(serial: u64) -> u64 {
    SpaceId::shared(serial).0
}

/// Checks a batch and makes of each page what `ask` makes of it; starts it; waits for it where there is no callback.
///
/// # Safety
/// `ep` is open; `ops` has `count` pages, until the callback, which may be called with `arg`.
unsafe fn batch(
    function: &'static str,
    ep: *const tpz_ep_t,
    (ops, count): (*mut tpz_page_op_t, usize),
    (callback, arg): (tpz_done_fn_t, *mut c_void),
    ask: unsafe fn(&Ep, &tpz_page_op_t) -> Outcome<Ask>,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let memory = memory(&ep.0)?;
        if ops.is_null() || count == 0 || count > BATCH {
            return Err(invalid(format!("{count} pages: 1 to {BATCH}, and ops not NULL")));
        }
        // SAFETY: the caller's promise, for the slice and for what `ask` needs.
        let asks = unsafe { std::slice::from_raw_parts(ops, count) };
        // SAFETY: as above.
        let asks =
            asks.iter().map(|op| unsafe { ask(&ep.0, op) }).collect::<Outcome<Vec<Ask>>>()?;
        ep.0.catch_up()?;
        // SAFETY: the caller's promise.
        unsafe { start(ep, &memory, asks, ops, (callback, arg)) }
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep(function, ep, body) })
}

/// # Safety
/// As for [`batch`]; `ops` may be NULL for pages of which nothing is to be written.
unsafe fn start(
    ep: &tpz_ep_t,
    memory: &Memory,
    asks: Vec<Ask>,
    ops: *mut tpz_page_op_t,
    (callback, arg): (tpz_done_fn_t, *mut c_void),
) -> Outcome<()> {
    let Some(callback) = callback else {
        let slot = Rc::new(RefCell::new(None));
        let end = slot.clone();
        memory.start(asks, Box::new(move |came| *end.borrow_mut() = Some(came)));
        while slot.borrow().is_none() {
            ep.0.turn(None)?;
        }
        // SAFETY: the caller's promise.
        let failed = unsafe { write_down(ops, slot.take().expect("it has ended")) };
        return failed.map_or(Ok(()), |(at, code)| Err(not_done(at, code)));
    };
    let news = Rc::downgrade(&ep.0);
    memory.start(asks, Box::new(move |came| note(&news, Done { came, ops, callback, arg })));
    Ok(())
}

/// Why the page at this place of a batch was not done.
fn not_done(at: usize, code: c_int) -> Failure {
    let why = match code {
        TPZ_EAGAIN => "the node that has or knows it did not answer in time: ask again".into(),
        TPZ_ENOSPC => "too few others took it in time: flush it again".into(),
        code => text(code).to_string_lossy(),
    };
    Failure {
        code,
        text: format!("page {at} of the batch: {why}; each page's code says more").into(),
    }
}

/// Writes down what came; the place and the code of the first page that failed.
///
/// # Safety
/// `ops` is NULL or has as many pages.
unsafe fn write_down(ops: *mut tpz_page_op_t, came: Vec<Came>) -> Option<(usize, c_int)> {
    let mut first = None;
    for (at, Came { code, version, frame, source }) in came.into_iter().enumerate() {
        first = first.or(Some((at, code)).filter(|_| code != TPZ_OK));
        if ops.is_null() {
            continue;
        }
        // SAFETY: the caller's promise.
        let op = unsafe { &mut *ops.add(at) };
        op.code = code;
        if version > 0 {
            op.version = version;
        }
        if let Some(frame) = frame {
            op.source = source;
            op.frame = tpz_frame_t::shared(frame);
        }
    }
    first
}

/// A batch that has ended, for its callback.
pub struct Done {
    came: Vec<Came>,
    ops: *mut tpz_page_op_t,
    callback: unsafe extern "C" fn(c_int, *mut c_void),
    arg: *mut c_void,
}

impl Done {
    /// Calls it.
    pub fn tell(self) {
        // SAFETY: the starter of the batch has promised that the pages are there until now, and that the callback may
        // be called with this.
        unsafe {
            let failed = write_down(self.ops, self.came);
            (self.callback)(failed.map_or(TPZ_OK, |(_, code)| code), self.arg)
        }
    }
}

fn note(ep: &WeakRc<Ep>, done: Done) {
    if let Some(ep) = ep.upgrade() {
        ep.news.borrow_mut().push_back(News::Ended(Box::new(|| done.tell())));
    }
}

fn id(op: &tpz_page_op_t) -> PageId {
    PageId { space: SpaceId(op.space), index: op.index }
}

/// Gets `count` pages, each in the version that is asked for or a newer one, from wherever they are. Without a
/// callback it waits, and no callback runs meanwhile; otherwise `ops` must stay until the callback. Each page's `code`
/// says what came of it; what is returned is the first that failed. Where an argument is wrong (TPZ_EINVAL), nothing
/// was started.
///
/// # Safety
/// `ep` is open; `ops` has `count` pages, until the callback, which may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get(
    ep: *const tpz_ep_t,
    ops: *mut tpz_page_op_t,
    count: usize,
    callback: tpz_done_fn_t,
    arg: *mut c_void,
) -> c_int {
    unsafe fn ask(_: &Ep, op: &tpz_page_op_t) -> Outcome<Ask> {
        if op.bytes == 0 {
            return Err(invalid("bytes is 0: how long are pages of that space?"));
        }
        Ok(Ask::Get(Wanted { id: id(op), at_least: Version(op.version), bytes: op.bytes }))
    }
    // SAFETY: the caller's promise.
    unsafe { batch("tpz_get", ep, (ops, count), (callback, arg), ask) }
}

fn class(durability: u32) -> Outcome<Class> {
    match durability {
        TPZ_MIRRORED => Ok(Class::Mirrored),
        TPZ_VOLATILE => Ok(Class::Volatile),
        other => Err(invalid(format!("durability {other}: TPZ_MIRRORED or TPZ_VOLATILE"))),
    }
}

/// Writes `count` pages; as tpz_get(). They are in this endpoint's memory then, and others find them there;
/// tpz_flush() makes them as durable as they are to be, and until then they are lost with this endpoint.
///
/// # Safety
/// `ep` is open; `ops` has `count` pages with frames of the caller's, until the callback, which may be called with
/// `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_put(
    ep: *const tpz_ep_t,
    ops: *mut tpz_page_op_t,
    count: usize,
    callback: tpz_done_fn_t,
    arg: *mut c_void,
) -> c_int {
    unsafe fn ask(ep: &Ep, op: &tpz_page_op_t) -> Outcome<Ask> {
        let class = class(op.durability)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { crate::call::check_data(ep, op.frame, op.bytes as usize)? };
        // SAFETY: as above.
        let data = unsafe { borrow(op.frame)? }.share().slice(0..bytes);
        Ok(Ask::Put(id(op), Version(op.version), class, data))
    }
    // SAFETY: the caller's promise.
    unsafe { batch("tpz_put", ep, (ops, count), (callback, arg), ask) }
}

/// Makes `count` pages that were put as durable as was said; as tpz_get(). TPZ_ENOSPC when too few others take them, or
/// the log's disk is full or fails; the pages stay what they are, and may be flushed again.
///
/// # Safety
/// `ep` is open; `ops` has `count` pages, until the callback, which may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_flush(
    ep: *const tpz_ep_t,
    ops: *mut tpz_page_op_t,
    count: usize,
    callback: tpz_done_fn_t,
    arg: *mut c_void,
) -> c_int {
    unsafe fn ask(_: &Ep, op: &tpz_page_op_t) -> Outcome<Ask> {
        Ok(Ask::Flush(id(op)))
    }
    // SAFETY: the caller's promise.
    unsafe { batch("tpz_flush", ep, (ops, count), (callback, arg), ask) }
}

/// Forgets all pages of a space on every member, for ever: its number is not used again. Without a callback it waits.
///
/// # Safety
/// `ep` is open; `callback` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_free_space(
    ep: *const tpz_ep_t,
    space: u64,
    callback: tpz_done_fn_t,
    arg: *mut c_void,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let memory = memory(&ep.0)?;
        ep.0.catch_up()?;
        let asks = vec![Ask::Free(SpaceId(space))];
        // SAFETY: the caller's promise.
        unsafe { start(ep, &memory, asks, null_mut(), (callback, arg)) }
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_free_space", ep, body) })
}
