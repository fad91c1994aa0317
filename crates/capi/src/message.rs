//! Messages: the interface of HPDC'97 Table 1, and reply tokens.

use crate::ep::{Ep, on_ep, tpz_ep_t};
use crate::error::*;
use crate::frame::{borrow, take, tpz_frame_t};
use crate::limits::SEND_RESERVE;
use crate::token::tpz_token_t;
use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, ReceiveMessage, SendMessage, payload_checksum};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use wire::limits::{MESSAGE_BYTES, PAYLOAD_BYTES_MAX};
use wire::{CallHeader, Channel, Control, ControlView, Header, Kind, NodeId, Token};

/// Bytes of content of a message: 80 of the control message's 128.
pub const TPZ_MESSAGE_BYTES: usize = 80;
const _: () = assert!(TPZ_MESSAGE_BYTES == MESSAGE_BYTES);

/// Called with a frame that has been sent, which is the program's again, and the `arg` of tpz_attach_sendmsg().
pub type tpz_io_completion_t =
    Option<unsafe extern "C" fn(frame: *mut tpz_frame_t, arg: *mut c_void)>;

/// A frame that is attached to a message.
pub struct Attached {
    frame: *mut tpz_frame_t,
    completion: tpz_io_completion_t,
    arg: *mut c_void,
}

impl Attached {
    /// Gives the frame back: to the program, or to the pool.
    pub fn complete(mut self) {
        let frame = std::mem::replace(&mut self.frame, null_mut());
        match self.completion {
            // SAFETY: the code that attached the frame has promised that this may be called with these.
            Some(completion) => unsafe { completion(frame, self.arg) },
            // SAFETY: the frame was taken from C when it was attached.
            None => drop(unsafe { take(frame) }),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.frame.is_null() {
            // SAFETY: as for `complete`.
            drop(unsafe { take(self.frame) });
        }
    }
}

enum Side {
    Send(Outgoing),
    Receive(Incoming),
}

struct Outgoing {
    message: SendMessage,
    to: Option<NodeId>,
    token: Token,
    attached: Vec<Attached>,
    /// Bytes to send of the attached frames; all by default.
    bytes: Option<usize>,
    failed: bool,
}

struct Incoming {
    message: ReceiveMessage,
    source: NodeId,
    announced: usize,
}

/// A message entry that the program holds: of the send ring from tpz_get_sendmsg(), of the receive ring from
/// tpz_get_rcvmsg(), until it is released (`msg_t` of HPDC'97).
pub struct tpz_msg_t {
    ep: Rc<Ep>,
    content: UnsafeCell<[u8; MESSAGE_BYTES]>,
    side: Side,
}

impl tpz_msg_t {
    fn boxed(ep: &Rc<Ep>, content: [u8; MESSAGE_BYTES], side: Side) -> *mut tpz_msg_t {
        Box::into_raw(Box::new(tpz_msg_t { ep: ep.clone(), content: content.into(), side }))
    }

    fn outgoing(&mut self) -> Outcome<&mut Outgoing> {
        match &mut self.side {
            Side::Send(outgoing) => Ok(outgoing),
            Side::Receive(_) => {
                Err(invalid("the message was received: this is for one from tpz_get_sendmsg"))
            }
        }
    }

    fn incoming(&mut self) -> Outcome<&mut Incoming> {
        match &mut self.side {
            Side::Receive(incoming) => Ok(incoming),
            Side::Send(_) => {
                Err(invalid("the message is to be sent: this is for one from tpz_get_rcvmsg"))
            }
        }
    }
}

/// Runs `body` on a message of C's.
///
/// # Safety
/// `msg` is NULL or a message that C holds.
unsafe fn on_msg<T>(
    function: &'static str,
    msg: *mut tpz_msg_t,
    body: impl FnOnce(&mut tpz_msg_t) -> Outcome<T>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise; and C's thread is in here, so no other thread reaches the message.
    let msg = unsafe { msg.as_mut() };
    // SAFETY: the message keeps its endpoint alive, and `body` does not free it. Nothing is counted before the thread
    // is known.
    let mark = msg.as_ref().map(|msg| &raw const msg.ep.mark).map(|mark| unsafe { &*mark });
    run(function, mark, || {
        let msg = msg.ok_or(failure(TPZ_EINVAL, "the message is NULL"))?;
        msg.ep.mark.check()?;
        body(msg)
    })
}

/// Takes an entry of the send ring for an outgoing message. NULL when none is free (TPZ_EAGAIN): poll, and ask again.
/// Never waits. Completions of messages that have left run first.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_sendmsg(ep: *const tpz_ep_t) -> *mut tpz_msg_t {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_get_sendmsg", ep, |ep| get_sendmsg(&ep.0)) }.unwrap_or(null_mut())
}

fn get_sendmsg(ep: &Rc<Ep>) -> Outcome<*mut tpz_msg_t> {
    const FULL: Failure =
        failure(TPZ_EAGAIN, "no entry of the send ring is free: call tpz_poll and ask again");
    ep.complete();
    let message = ep.cx.with_endpoint(|endpoint| {
        let room = endpoint.send_room() > SEND_RESERVE;
        if room { endpoint.get_sendmsg() } else { None }
    });
    let outgoing = Outgoing {
        message: message.ok_or(FULL)?,
        to: None,
        token: Token::NONE,
        attached: Vec::new(),
        bytes: None,
        failed: false,
    };
    Ok(tpz_msg_t::boxed(ep, [0; MESSAGE_BYTES], Side::Send(outgoing)))
}

/// Takes the oldest message that has come. NULL when there is none (TPZ_EAGAIN). Never waits, and does not move
/// messages: tpz_poll() does. The program may hold and leave waiting 256 messages at most; what comes beyond that is
/// dropped (tpz_counters_t.dropped), as HPDC'97's adapter drops what its host does not keep up with.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_rcvmsg(ep: *const tpz_ep_t) -> *mut tpz_msg_t {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_get_rcvmsg", ep, |ep| get_rcvmsg(&ep.0)) }.unwrap_or(null_mut())
}

fn get_rcvmsg(ep: &Rc<Ep>) -> Outcome<*mut tpz_msg_t> {
    const NONE: Failure = failure(TPZ_EAGAIN, "no message has come: call tpz_poll and ask again");
    let message = ep.cx.take_message().ok_or(NONE)?;
    let control = ep.cx.with_endpoint(|endpoint| endpoint.arrived(&message).control);
    let header = ControlView::checked_before(&control).header();
    let announced = header.payload_bytes as usize;
    let incoming = Incoming { message, source: header.source, announced };
    Ok(tpz_msg_t::boxed(ep, *control.content(), Side::Receive(incoming)))
}

/// Polls until an entry of the send ring is free. NULL only for an error.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_spinwait_get_sendmsg(ep: *const tpz_ep_t) -> *mut tpz_msg_t {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_spinwait_get_sendmsg", ep, |ep| spinwait(&ep.0, get_sendmsg)) }
        .unwrap_or(null_mut())
}

/// Polls until a message has come. Callbacks do not run meanwhile. NULL only for an error.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_spinwait_get_rcvmsg(ep: *const tpz_ep_t) -> *mut tpz_msg_t {
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_spinwait_get_rcvmsg", ep, |ep| spinwait(&ep.0, get_rcvmsg)) }
        .unwrap_or(null_mut())
}

/// Moves the endpoint, waiting as it was told to wait, until `get` gets something.
fn spinwait(ep: &Rc<Ep>, get: fn(&Rc<Ep>) -> Outcome<*mut tpz_msg_t>) -> Outcome<*mut tpz_msg_t> {
    loop {
        match get(ep) {
            Err(failure) if failure.code == TPZ_EAGAIN => ep.turn(None)?,
            other => return other,
        }
    }
}

/// The message's content, TPZ_MESSAGE_BYTES bytes, until it is released: to be written before it is sent (zero at
/// first), to be read after it came. Bytes travel as they are.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_msg_data(msg: *mut tpz_msg_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_msg_data", msg, |msg| Ok(msg.content.get().cast())) }.unwrap_or(null_mut())
}

/// The receiver of the message. Without it: the peer that `connect` named.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_set_destination(msg: *mut tpz_msg_t, node: u16) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        let to = msg.ep.to(node)?;
        msg.outgoing()?.to = Some(to);
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_set_destination", msg, body) })
}

/// The sender of a received message; 0 only for an error.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_source(msg: *mut tpz_msg_t) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_get_source", msg, |msg| Ok(msg.incoming()?.source.0)) }.unwrap_or(0)
}

/// Has the payload land in the frame that the destination armed this token with, or nowhere.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_set_token(msg: *mut tpz_msg_t, token: tpz_token_t) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        msg.outgoing()?.token = token.token()?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_set_token", msg, body) })
}

/// Attaches a frame to an outgoing message as (the next part of) its payload; 1 MiB in all. The frame is the message's
/// now. When it has been sent, `completion` is called with the frame and `arg`, by tpz_poll(),
/// tpz_check_xmit_complete(), tpz_get_sendmsg() or tpz_close(); without a completion the frame is freed then.
///
/// # Safety
/// `msg` and `frame` are the caller's; `completion` may be called with `arg` by then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_attach_sendmsg(
    msg: *mut tpz_msg_t,
    frame: *mut tpz_frame_t,
    completion: tpz_io_completion_t,
    arg: *mut c_void,
) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        // SAFETY: the caller's promise.
        let checked = unsafe { borrow(frame)? };
        checked.check_pool(msg.ep.cx.frames())?;
        let more = checked.size();
        let outgoing = msg.outgoing()?;
        let bytes = attached_bytes(outgoing) + more;
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(too_long(bytes));
        }
        outgoing.attached.push(Attached { frame, completion, arg });
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_attach_sendmsg", msg, body) })
}

fn too_long(bytes: usize) -> Failure {
    let text = format!("a payload of {bytes} bytes: {PAYLOAD_BYTES_MAX} is the most");
    Failure { code: TPZ_EMSGSIZE, text: text.into() }
}

fn frames_of(attached: &[Attached]) -> Vec<Frame> {
    // SAFETY: attached frames are ours, and C does not use them.
    attached.iter().map(|attached| unsafe { &mut *attached.frame }.share()).collect()
}

fn attached_bytes(outgoing: &Outgoing) -> usize {
    // SAFETY: as for `frames_of`.
    outgoing.attached.iter().map(|attached| unsafe { &*attached.frame }.size()).sum()
}

/// Takes the first frame off an outgoing message that has not been released; it is the program's again. NULL when there
/// is none (TPZ_EAGAIN).
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_detach_sendmsg(msg: *mut tpz_msg_t) -> *mut tpz_frame_t {
    let body = |msg: &mut tpz_msg_t| {
        let outgoing = msg.outgoing()?;
        if outgoing.attached.is_empty() {
            return Err(failure(TPZ_EAGAIN, "no frame is attached"));
        }
        outgoing.bytes = None;
        Ok(std::mem::replace(&mut outgoing.attached.remove(0).frame, null_mut()))
    };
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_detach_sendmsg", msg, body) }.unwrap_or(null_mut())
}

/// Sends only the first `bytes` bytes of what is attached.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_set_payload_len(msg: *mut tpz_msg_t, bytes: c_int) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        let outgoing = msg.outgoing()?;
        let there = attached_bytes(outgoing);
        let wanted = usize::try_from(bytes).ok().filter(|bytes| *bytes <= there);
        let fault = || invalid(format!("{bytes} bytes: 0 to {there} are attached"));
        outgoing.bytes = Some(wanted.ok_or_else(fault)?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_set_payload_len", msg, body) })
}

/// Bytes of payload that came with a received message and are in its frame. 0 for a message without payload, for one
/// whose payload was discarded (tpz_get_announced_len() tells them apart), and for an error.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_payload_len(msg: *mut tpz_msg_t) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        let cx = msg.ep.cx.clone();
        let incoming = msg.incoming()?;
        Ok(cx.with_endpoint(|endpoint| endpoint.get_payload_len(&incoming.message)) as c_int)
    };
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_get_payload_len", msg, body) }.unwrap_or(0)
}

/// Bytes of payload that the sender of a received message attached: more than tpz_get_payload_len() when they were
/// discarded, because the token was stale or its frame too small, no memory was free, or the checksum did not fit.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_announced_len(msg: *mut tpz_msg_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_get_announced_len", msg, |msg| Ok(msg.incoming()?.announced as c_int)) }
        .unwrap_or(0)
}

/// Takes the frame with the payload off a received message; it is the program's now. It is the one that the token was
/// armed with, or one of the endpoint's memory. NULL when the message has none (TPZ_EAGAIN).
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_detach_rcvmsg(msg: *mut tpz_msg_t) -> *mut tpz_frame_t {
    let body = |msg: &mut tpz_msg_t| {
        let cx = msg.ep.cx.clone();
        let message = &msg.incoming()?.message;
        let frame = cx.with_endpoint(|endpoint| endpoint.detach_rcvmsg(message).next());
        frame.map(tpz_frame_t::alone).ok_or(failure(TPZ_EAGAIN, "the message has no frame"))
    };
    // SAFETY: the caller's promise.
    unsafe { on_msg("tpz_detach_rcvmsg", msg, body) }.unwrap_or(null_mut())
}

/// Gives the receive entry a frame for the payload of a message to come: the frame goes to the endpoint's payload
/// memory, and the entry may take as many pages from there. With NULL the entry's payloads are discarded, unless they
/// come by a token. At first every entry may take 1 MiB.
///
/// # Safety
/// `msg` is the caller's, `frame` NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_attach_rcvmsg(msg: *mut tpz_msg_t, frame: *mut tpz_frame_t) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        let cx = msg.ep.cx.clone();
        let message = &msg.incoming()?.message;
        let mut pages = 0;
        if !frame.is_null() {
            // SAFETY: the caller's promise.
            let checked = unsafe { borrow(frame)? };
            checked.check_pool(cx.frames())?;
            pages = checked.size().div_ceil(PAGE_BYTES);
            // SAFETY: as above.
            drop(unsafe { take(frame) });
        }
        cx.with_endpoint(|endpoint| endpoint.attach_rcvmsg(message, pages));
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_attach_rcvmsg", msg, body) })
}

/// Marks an outgoing message so that releasing it sends nothing.
///
/// # Safety
/// `msg` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_senderr(msg: *mut tpz_msg_t) -> c_int {
    let body = |msg: &mut tpz_msg_t| {
        msg.outgoing()?.failed = true;
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_msg("tpz_senderr", msg, body) })
}

/// Sends the message; the entry is the ring's again. It leaves with the next tpz_poll(). Delivery is best effort: what
/// a broken connection held is lost. When there is no destination (TPZ_EINVAL) the message stays the program's.
///
/// # Safety
/// `msg` is the caller's, who does not use it from now on if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_release_sendmsg(msg: *mut tpz_msg_t) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { release("tpz_release_sendmsg", msg, |msg| msg.outgoing().map(drop)) })
}

/// Gives a received message's entry back to the ring, with its frame if that was not detached.
///
/// # Safety
/// `msg` is the caller's, who does not use it from now on if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_release_rcvmsg(msg: *mut tpz_msg_t) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { release("tpz_release_rcvmsg", msg, |msg| msg.incoming().map(drop)) })
}

/// Releases a message of either ring, the name of HPDC'97's text.
///
/// # Safety
/// `msg` is the caller's, who does not use it from now on if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_release_msg(msg: *mut tpz_msg_t) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { release("tpz_release_msg", msg, |_| Ok(())) })
}

/// # Safety
/// `msg` is NULL or C's, who does not use it from now on if this succeeds.
unsafe fn release(
    function: &'static str,
    msg: *mut tpz_msg_t,
    check: fn(&mut tpz_msg_t) -> Outcome<()>,
) -> Result<(), c_int> {
    let body = |message: &mut tpz_msg_t| {
        check(message)?;
        if let Side::Send(Outgoing { to: to @ None, failed: false, .. }) = &mut message.side {
            *to = Some(message.ep.to(0)?);
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on_msg(function, msg, body)? };
    // SAFETY: every message was made from a box; C gives it back.
    let msg = *unsafe { Box::from_raw(msg) };
    let ep = msg.ep.clone();
    run(function, Some(&ep.mark), || {
        match msg.side {
            Side::Send(outgoing) => send(&ep, &msg.content.into_inner(), outgoing),
            Side::Receive(incoming) => ep.cx.release_message(incoming.message),
        }
        Ok(())
    })
}

/// Hands the message to the endpoint; where it is marked as failed nothing is sent, and its frames come back all the
/// same.
fn send(ep: &Ep, content: &[u8; MESSAGE_BYTES], outgoing: Outgoing) {
    let Outgoing { message, to, token, attached, bytes, failed } = outgoing;
    if ep.is_closed() {
        return attached.into_iter().for_each(Attached::complete);
    }
    let to = to.unwrap_or_default();
    let payload = first_bytes(frames_of(&attached), bytes);
    let mut header = Header::new(Kind::Message, ep.cx.id(), to);
    header.channel = Channel::USER;
    header.token = token;
    header.payload_bytes = payload.iter().map(|frame| frame.len() as u32).sum();
    header.payload_checksum = payload_checksum(&payload, &[]);
    let mut control = Control::new(&header, &CallHeader::default());
    *control.content_mut() = *content;
    control.seal();
    let number = ep.next_sent.replace(ep.next_sent.get() + 1);
    let has_frames = !attached.is_empty();
    if has_frames {
        let complete = || attached.into_iter().for_each(Attached::complete);
        ep.sent.borrow_mut().insert(number, Box::new(complete));
    }
    ep.cx.with_endpoint(|endpoint| {
        let entry = endpoint.outgoing(&message);
        entry.control = control;
        entry.payload.extend(payload);
        if has_frames {
            endpoint.set_completion(&message, number);
        }
        if failed {
            endpoint.senderr(&message);
        }
    });
    ep.cx.release_sendmsg(message, if failed { NodeId(0) } else { to });
}

/// The first `bytes` bytes of the frames; all of them for `None`.
fn first_bytes(frames: Vec<Frame>, bytes: Option<usize>) -> Vec<Frame> {
    let mut left = bytes.unwrap_or(PAYLOAD_BYTES_MAX);
    let cut = frames.into_iter().map(|frame| {
        let keep = left.min(frame.len());
        left -= keep;
        if keep < frame.len() { frame.slice(0..keep) } else { frame }
    });
    cut.filter(|frame| !frame.is_empty()).collect()
}

/// Calls the completions of messages that have left (HPDC'97 Table 1). tpz_poll() does so too.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_check_xmit_complete(ep: *const tpz_ep_t) -> c_int {
    let body = |ep: &tpz_ep_t| {
        ep.0.complete();
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_check_xmit_complete", ep, body) })
}
