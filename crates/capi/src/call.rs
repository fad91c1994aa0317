//! Calls: NetRPC for who asks.

use crate::ep::{Ep, News, on_ep, tpz_ep_t};
use crate::error::*;
use crate::frame::{borrow, take, tpz_frame_t};
use endpoint::Frame;
use node::{Call, CallError, Reply};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::limits::BODY_BYTES;
use wire::{Channel, NodeId};

/// Most bytes of a call's or an answer's body.
pub const TPZ_BODY_BYTES: usize = 64;
const _: () = assert!(TPZ_BODY_BYTES == BODY_BYTES);
/// The first channel for services of your own, and the last.
pub const TPZ_CHANNEL_FIRST: u16 = 16;
/// See TPZ_CHANNEL_FIRST.
pub const TPZ_CHANNEL_LAST: u16 = 31;
const _: () = assert!(TPZ_CHANNEL_FIRST == Channel::USER.0);
const _: () = assert!(TPZ_CHANNEL_LAST as usize == Channel::COUNT - 1);
/// Of tpz_call_t: not to be executed twice, whatever the network does. For everything that changes something.
pub const TPZ_ONCE: u16 = 1;
/// How long a call may take that does not say.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A call: `tpz_call_t call = {.size = sizeof call, .channel = TPZ_CHANNEL_FIRST, .op = 1};`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_call_t {
    /// sizeof(tpz_call_t).
    pub size: u32,
    /// The node that is to serve it; 0 is the peer that `connect` named.
    pub to: u16,
    /// The service, TPZ_CHANNEL_FIRST to TPZ_CHANNEL_LAST.
    pub channel: u16,
    /// The operation, in the service's numbering.
    pub op: u16,
    /// 0 or TPZ_ONCE.
    pub flags: u16,
    /// Milliseconds to wait for the reply; 0 is 30 s.
    pub timeout_ms: u32,
    /// Arguments, `body_bytes` bytes, at most TPZ_BODY_BYTES. Copied.
    pub body: *const c_void,
    /// See `body`.
    pub body_bytes: usize,
    /// Data to send, or NULL. The call's until its reply.
    pub data: *mut tpz_frame_t,
    /// Bytes of `data` to send; 0 is all of them.
    pub data_bytes: usize,
    /// Where the reply's data lands, or NULL: then a reply with data fails. The call's until its reply.
    pub into: *mut tpz_frame_t,
}

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_reply_t {
    /// TPZ_OK when there is a reply. Otherwise why there is none: TPZ_ETIMEDOUT, TPZ_EHOSTDOWN (both: it may have been
    /// executed), TPZ_ECONNREFUSED, TPZ_ENOBUFS (both: it was not), TPZ_EPROTO, TPZ_ECANCELED.
    pub code: c_int,
    /// The service's verdict, 0 for success, by convention an error number.
    pub status: u16,
    /// Results.
    pub body: [u8; TPZ_BODY_BYTES],
    /// Bytes of data in `into`.
    pub bytes: usize,
    /// The call's `data`, the program's again.
    pub data: *mut tpz_frame_t,
    /// The call's `into`, the program's again. NULL when there is no reply: the memory went back to the endpoint.
    pub into: *mut tpz_frame_t,
}

/// Called once for every call that tpz_call() took; `reply` is there during the callback only, its frames stay.
pub type tpz_reply_fn_t = Option<unsafe extern "C" fn(reply: *const tpz_reply_t, arg: *mut c_void)>;

/// A call that has ended, for its callback.
pub struct Ended {
    reply: tpz_reply_t,
    callback: unsafe extern "C" fn(*const tpz_reply_t, *mut c_void),
    arg: *mut c_void,
}

impl Ended {
    /// Calls it.
    pub fn tell(self) {
        // SAFETY: the maker of the call has promised that this may be called with these.
        unsafe { (self.callback)(&self.reply, self.arg) }
    }
}

/// A call that waits for its end. Dropped when the endpoint is closed before.
struct Waiting {
    data: Option<Frame>,
    end: Option<Box<dyn FnOnce(tpz_reply_t)>>,
}

impl Waiting {
    fn end(mut self, result: Result<Reply, CallError>) {
        let data = self.data.take();
        self.end.take().expect("it ends once")(reply_of(result, data));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end(no_reply(TPZ_ECANCELED, self.data.take()));
        }
    }
}

fn no_reply(code: c_int, data: Option<Frame>) -> tpz_reply_t {
    tpz_reply_t {
        code,
        status: 0,
        body: [0; BODY_BYTES],
        bytes: 0,
        data: data.map_or(null_mut(), tpz_frame_t::shared),
        into: null_mut(),
    }
}

fn reply_of(result: Result<Reply, CallError>, data: Option<Frame>) -> tpz_reply_t {
    match result {
        Err(error) => no_reply(call_code(error), data),
        Ok(mut reply) => tpz_reply_t {
            status: reply.status,
            body: reply.body,
            bytes: reply.bytes,
            into: tpz_frame_t::maybe(reply.data.pop()),
            ..no_reply(TPZ_OK, data)
        },
    }
}

/// A call as C describes it.
///
/// # Safety
/// `call` is NULL or has as many bytes as its first field says.
unsafe fn read_call(call: *const tpz_call_t) -> Outcome<tpz_call_t> {
    if call.is_null() {
        return Err(invalid("call is NULL"));
    }
    // SAFETY: the caller's promise: at least the first field is there.
    let size = unsafe { (&raw const (*call).size).read() } as usize;
    check_size("tpz_call_t", size, size_of::<tpz_call_t>())?;
    // SAFETY: all of the structure is there.
    Ok(unsafe { call.read() })
}

/// Fails for a number that is none of the channels for services of one's own.
pub fn check_channel(channel: u16) -> Outcome<Channel> {
    match channel {
        TPZ_CHANNEL_FIRST..=TPZ_CHANNEL_LAST => Ok(Channel(channel)),
        other => Err(invalid(format!(
            "channel {other}: {TPZ_CHANNEL_FIRST} to {TPZ_CHANNEL_LAST} are yours"
        ))),
    }
}

/// Bytes of C's, of at most `TPZ_BODY_BYTES`.
///
/// # Safety
/// `body` is NULL or has `bytes` bytes during `'a`.
pub unsafe fn read_body<'a>(body: *const c_void, bytes: usize) -> Outcome<&'a [u8]> {
    match (body.is_null(), bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid(format!("body is NULL, body_bytes {bytes}"))),
        // SAFETY: the caller's promise.
        (false, 1..=BODY_BYTES) => Ok(unsafe { std::slice::from_raw_parts(body.cast(), bytes) }),
        _ => Err(Failure {
            code: TPZ_EMSGSIZE,
            text: format!(
                "body_bytes is {bytes}: {BODY_BYTES} is the most, longer data goes into a frame"
            )
            .into(),
        }),
    }
}

/// Checks data that is to be sent, and how much of it.
///
/// # Safety
/// `data` is NULL or C's.
pub unsafe fn check_data(ep: &Ep, data: *mut tpz_frame_t, bytes: usize) -> Outcome<usize> {
    if data.is_null() {
        return if bytes == 0 {
            Ok(0)
        } else {
            Err(invalid(format!("data is NULL, data_bytes {bytes}")))
        };
    }
    // SAFETY: the caller's promise.
    let data = unsafe { borrow(data)? };
    data.check_pool(ep.cx.frames())?;
    match bytes {
        0 => Ok(data.size()),
        bytes if bytes <= data.size() => Ok(bytes),
        bytes => Err(invalid(format!("data_bytes is {bytes}, the frame has {}", data.size()))),
    }
}

/// Checks everything, then takes the frames and starts the call; `end` is told what it comes to.
///
/// # Safety
/// As for [`tpz_call`].
unsafe fn start(
    ep: &Rc<Ep>,
    call: *const tpz_call_t,
    end: impl FnOnce(tpz_reply_t) + 'static,
) -> Outcome<()> {
    // SAFETY: the caller's promise, here and below.
    let asked = unsafe { read_call(call)? };
    let (to, channel) = (ep.to(asked.to)?, check_channel(asked.channel)?);
    if asked.flags & !TPZ_ONCE != 0 {
        return Err(invalid(format!("flags are {}: 0 or TPZ_ONCE", asked.flags)));
    }
    // SAFETY: as above.
    let body = unsafe { read_body(asked.body, asked.body_bytes)? };
    // SAFETY: as above.
    let data_bytes = unsafe { check_data(ep, asked.data, asked.data_bytes)? };
    if !asked.into.is_null() {
        if asked.into == asked.data {
            return Err(invalid(
                "data and into are the same frame: the reply needs one of its own",
            ));
        }
        // SAFETY: as above.
        let into = unsafe { borrow(asked.into)? };
        into.check_pool(ep.cx.frames())?;
        into.make_alone()?;
    }
    ep.catch_up()?;
    // SAFETY: everything is checked, and the frames are C's.
    unsafe { begin(ep, &asked, (to, channel), (body, data_bytes), end) }
}

/// # Safety
/// The call's frames are C's, who does not use them from now on.
unsafe fn begin(
    ep: &Rc<Ep>,
    asked: &tpz_call_t,
    (to, channel): (NodeId, Channel),
    (body, data_bytes): (&[u8], usize),
    end: impl FnOnce(tpz_reply_t) + 'static,
) -> Outcome<()> {
    let (mut data, mut into, mut kept) = (ep.cx.pieces(), ep.cx.pieces(), None);
    if !asked.data.is_null() {
        // SAFETY: the caller's promise.
        let frame = unsafe { take(asked.data) }.share();
        data.push(frame.slice(0..data_bytes));
        kept = Some(frame);
    }
    if !asked.into.is_null() {
        // SAFETY: as above.
        into.push(unsafe { take(asked.into) }.into_mut()?);
    }
    let waiting = Waiting { data: kept, end: Some(Box::new(end)) };
    let timeout = match asked.timeout_ms {
        0 => TIMEOUT,
        milliseconds => Duration::from_millis(milliseconds.into()),
    };
    let call = Call {
        to,
        channel,
        op: asked.op,
        once: asked.flags & TPZ_ONCE != 0,
        deadline: Some(timeout),
        body,
        data,
        trailer: &[],
        into,
    };
    ep.cx.call_then(call, move |result| waiting.end(result));
    Ok(())
}

/// Starts a call and returns at once. `callback` is called with what it came to and `arg`, once, from tpz_poll() or
/// tpz_close(). When this fails nothing was started and the frames stay the program's.
///
/// # Safety
/// `ep` is open; `call` points to a call whose body and frames are there; `callback` may be called with `arg` until
/// the endpoint is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_call(
    ep: *const tpz_ep_t,
    call: *const tpz_call_t,
    callback: tpz_reply_fn_t,
    arg: *mut c_void,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let callback =
            callback.ok_or(failure(TPZ_EINVAL, "callback is NULL: tpz_call_wait() needs none"))?;
        let news = Rc::downgrade(&ep.0);
        // SAFETY: the caller's promise.
        unsafe { start(&ep.0, call, move |reply| note(&news, Ended { reply, callback, arg })) }
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_call", ep, body) })
}

fn note(ep: &Weak<Ep>, ended: Ended) {
    if let Some(ep) = ep.upgrade() {
        ep.news.borrow_mut().push_back(News::Ended(Box::new(|| ended.tell())));
    }
}

/// Makes a call and waits for what it comes to, which is written to `*reply`. The endpoint moves meanwhile, but no
/// callback runs: what they are to be told waits for tpz_poll(). Returns TPZ_OK when there is a reply, whose `status`
/// is the service's, otherwise `reply->code`. When arguments are wrong, `*reply` is not written and the frames stay
/// the program's.
///
/// # Safety
/// `ep` is open; `call` points to a call whose body and frames are there; `reply` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_call_wait(
    ep: *const tpz_ep_t,
    call: *const tpz_call_t,
    reply: *mut tpz_reply_t,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        if reply.is_null() {
            return Err(invalid("reply is NULL: where is it to be written?"));
        }
        let slot = Rc::new(RefCell::new(None));
        let end = slot.clone();
        // SAFETY: the caller's promise.
        unsafe { start(&ep.0, call, move |reply| *end.borrow_mut() = Some(reply))? };
        while slot.borrow().is_none() {
            ep.0.turn(None)?;
        }
        let ended = slot.take().expect("it has ended");
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { reply.write(ended) };
        match ended.code {
            TPZ_OK => Ok(()),
            code => {
                Err(Failure { code, text: "the call came to no reply: see reply->code".into() })
            }
        }
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_call_wait", ep, body) })
}
