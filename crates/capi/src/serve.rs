//! Services: NetRPC for who answers.

use crate::call::{TPZ_BODY_BYTES, check_channel, check_data, read_body};
use crate::ep::{Ep, News, on_ep, tpz_ep_t};
use crate::error::*;
use crate::frame::{take, tpz_frame_t};
use crate::limits::REQUESTS_OPEN;
use node::{Answer, Notify, Request};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::{Rc, Weak};
use wire::Channel;

/// Statuses of answers lie below this; the rest is NetRPC's own.
pub const TPZ_STATUS_RESERVED: u16 = 0xff00;
const _: () = assert!(TPZ_STATUS_RESERVED == netrpc::status::RESERVED);

/// A request that the program is to answer with tpz_reply(), in the handler or later; until then it counts against the
/// 128 that each channel gives out.
pub struct tpz_request_t {
    ep: Rc<Ep>,
    request: Request,
    _place: Permit,
}

/// A request's source and arguments.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_request_info_t {
    /// The caller.
    pub source: u16,
    /// The service.
    pub channel: u16,
    /// The operation.
    pub op: u16,
    /// 0 or TPZ_ONCE.
    pub flags: u16,
    /// Arguments; what the caller did not fill is zero.
    pub body: [u8; TPZ_BODY_BYTES],
    /// Bytes of data, for tpz_request_detach().
    pub bytes: usize,
}

/// Called for every request of a channel; the request is the handler's to answer.
pub type tpz_handler_fn_t =
    Option<unsafe extern "C" fn(request: *mut tpz_request_t, arg: *mut c_void)>;

type Handler = (unsafe extern "C" fn(*mut tpz_request_t, *mut c_void), *mut c_void);

/// How many requests of a channel are with the program.
struct Places {
    open: Cell<usize>,
    freed: Notify,
}

/// One of them.
struct Permit(Rc<Places>);

impl Places {
    async fn room(&self) {
        while self.open.get() >= REQUESTS_OPEN {
            self.freed.wait().await;
        }
    }

    fn take(self: &Rc<Places>) -> Permit {
        self.open.set(self.open.get() + 1);
        Permit(self.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.freed.notify_all();
    }
}

/// A request for its handler.
pub struct Arrived {
    ep: Weak<Ep>,
    request: Request,
    place: Permit,
    handler: Handler,
}

impl Arrived {
    /// Calls it.
    pub fn tell(self) {
        let Some(ep) = self.ep.upgrade() else { return };
        let request = tpz_request_t { ep, request: self.request, _place: self.place };
        let (handler, arg) = self.handler;
        // SAFETY: the server of the channel has promised that this may be called with these.
        unsafe { handler(Box::into_raw(Box::new(request)), arg) }
    }
}

/// Takes the channel's requests for the program, as many as may be with it.
async fn accept(ep: Weak<Ep>, channel: Channel, handler: Handler) {
    let Some(cx) = ep.upgrade().map(|ep| ep.cx.clone()) else { return };
    let places = Rc::new(Places { open: Cell::new(0), freed: Notify::new(&cx) });
    loop {
        places.room().await;
        let request = cx.accept(channel).await;
        let place = places.take();
        let Some(ep) = ep.upgrade() else { return };
        let arrived = Arrived { ep: Rc::downgrade(&ep), request, place, handler };
        ep.news.borrow_mut().push_back(News::Arrived(Box::new(|| arrived.tell())));
    }
}

/// From now on requests for `channel`, TPZ_CHANNEL_FIRST to TPZ_CHANNEL_LAST, are given to `handler` with `arg`, from
/// tpz_poll(). The handler may answer at once or keep the request and answer later. TPZ_EBUSY when the channel is
/// served already.
///
/// # Safety
/// `ep` is open; `handler` may be called with `arg` until the endpoint is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_serve(
    ep: *const tpz_ep_t,
    channel: u16,
    handler: tpz_handler_fn_t,
    arg: *mut c_void,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let handler = handler.ok_or(failure(TPZ_EINVAL, "handler is NULL"))?;
        let channel = check_channel(channel)?;
        ep.0.serve_once(channel)?;
        ep.0.cx.spawn("serve", accept(Rc::downgrade(&ep.0), channel, (handler, arg)));
        ep.0.catch_up() // the task runs, so that the next request finds a server
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_serve", ep, body) })
}

/// Runs `body` on a request of C's.
///
/// # Safety
/// `request` is NULL or one that C holds.
unsafe fn on_request<T>(
    function: &'static str,
    request: *mut tpz_request_t,
    body: impl FnOnce(&mut tpz_request_t) -> Outcome<T>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise; and C's thread is in here, so no other thread reaches the request.
    let request = unsafe { request.as_mut() };
    // SAFETY: the request keeps its endpoint alive, and `body` does not free it.
    let mark = request.as_ref().map(|asked| &raw const asked.ep.mark).map(|mark| unsafe { &*mark });
    run(function, mark, || {
        let request = request.ok_or(failure(TPZ_EINVAL, "the request is NULL"))?;
        request.ep.mark.check()?;
        body(request)
    })
}

/// Writes what the request asks to `*info`.
///
/// # Safety
/// `request` is the caller's, `info` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_request_info(
    request: *mut tpz_request_t,
    info: *mut tpz_request_info_t,
) -> c_int {
    let body = |asked: &mut tpz_request_t| {
        if info.is_null() {
            return Err(invalid("info is NULL"));
        }
        let request = &asked.request;
        let told = tpz_request_info_t {
            source: request.source.0,
            channel: request.channel().0,
            op: request.op,
            flags: u16::from(request.once()),
            body: request.body,
            bytes: request.bytes,
        };
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { info.write(told) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_request("tpz_request_info", request, body) })
}

/// Takes the frame with the request's data; it is the program's now, and counts against the endpoint's payload memory
/// as long as it is kept. NULL when the request has none (TPZ_EAGAIN). Its length is the data's, rounded up at most to
/// a page.
///
/// # Safety
/// `request` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_request_detach(request: *mut tpz_request_t) -> *mut tpz_frame_t {
    let body = |asked: &mut tpz_request_t| {
        let frame = asked.request.data.pop();
        frame.map(tpz_frame_t::alone).ok_or(failure(TPZ_EAGAIN, "the request has no data"))
    };
    // SAFETY: the caller's promise.
    unsafe { on_request("tpz_request_detach", request, body) }.unwrap_or(null_mut())
}

/// Answers a request; it is gone then. `status` is 0 or, by convention, an error number, below TPZ_STATUS_RESERVED.
/// `body` are results, at most TPZ_BODY_BYTES bytes, copied. `data`, or NULL, is the answer's data, the first
/// `data_bytes` bytes of it or for 0 all; the frame is the answer's now (keep a handle of tpz_frame_dup()). It lands
/// in the caller's `into`. When this fails for an argument, request and frame stay the program's.
///
/// # Safety
/// `request` is the caller's, who does not use it from now on if this succeeds; `body` has `body_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_reply(
    request: *mut tpz_request_t,
    status: u16,
    body: *const c_void,
    body_bytes: usize,
    data: *mut tpz_frame_t,
    data_bytes: usize,
) -> c_int {
    let check = |asked: &mut tpz_request_t| {
        if status >= TPZ_STATUS_RESERVED {
            return Err(invalid(format!("status {status}: below {TPZ_STATUS_RESERVED}")));
        }
        // SAFETY: the caller's promise, for both.
        Ok(unsafe { (read_body(body, body_bytes)?, check_data(&asked.ep, data, data_bytes)?) })
    };
    // SAFETY: the caller's promise.
    let checked = unsafe { on_request("tpz_reply", request, check) };
    let (body, bytes) = match checked {
        Ok(checked) => checked,
        Err(code) => return code,
    };
    // SAFETY: every request was made from a box; C gives it back.
    let asked = *unsafe { Box::from_raw(request) };
    // SAFETY: it is checked; C gives it away.
    let data = (!data.is_null()).then(|| unsafe { take(data) }.share().slice(0..bytes));
    code(run("tpz_reply", Some(&asked.ep.mark), || {
        let answer = Answer { status, body, data: data.as_slice(), trailer: &[] };
        asked.ep.cx.reply(asked.request, answer);
        Ok(())
    }))
}
