//! Payload frames as C holds them.

use crate::ep::{on_ep, tpz_ep_t};
use crate::error::*;
use endpoint::{Frame, FrameMut, Frames};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use wire::limits::PAYLOAD_BYTES_MAX;

/// Most bytes of a frame, and of a payload: 1 MiB.
pub const TPZ_PAYLOAD_BYTES: usize = 1 << 20;
const _: () = assert!(TPZ_PAYLOAD_BYTES == PAYLOAD_BYTES_MAX);

/// A payload frame: some bytes of an endpoint's payload memory, in one piece and aligned to a page. Peers of this
/// machine read it where it is; nothing is copied on the way out.
///
/// A frame belongs to the side that was last given it: to the program after tpz_frame_alloc(), to the message after
/// tpz_attach_sendmsg(), to the call after tpz_call(), to the program again when a completion or a reply brings it.
pub struct tpz_frame_t {
    held: Option<Bytes>,
    mark: Mark,
}

enum Bytes {
    Alone(FrameMut),
    Shared(Frame),
}

const GONE: &str = "a frame always holds its bytes";

impl tpz_frame_t {
    fn new(held: Bytes) -> *mut tpz_frame_t {
        Box::into_raw(Box::new(tpz_frame_t { held: Some(held), mark: Mark::here() }))
    }

    /// For C: the bytes are its alone.
    pub fn alone(frame: FrameMut) -> *mut tpz_frame_t {
        tpz_frame_t::new(Bytes::Alone(frame))
    }

    /// For C: others may read the bytes too.
    pub fn shared(frame: Frame) -> *mut tpz_frame_t {
        tpz_frame_t::new(Bytes::Shared(frame))
    }

    /// NULL for none.
    pub fn maybe(frame: Option<FrameMut>) -> *mut tpz_frame_t {
        frame.map_or(null_mut(), tpz_frame_t::alone)
    }

    fn bytes(&self) -> &[u8] {
        match self.held.as_ref().expect(GONE) {
            Bytes::Alone(frame) => frame,
            Bytes::Shared(frame) => frame,
        }
    }

    /// How many bytes.
    pub fn size(&self) -> usize {
        self.bytes().len()
    }

    /// Fails when the frame is another endpoint's.
    pub fn check_pool(&self, pool: &Frames) -> Outcome<()> {
        let ours = match self.held.as_ref().expect(GONE) {
            Bytes::Alone(frame) => frame.is_of(pool),
            Bytes::Shared(frame) => frame.is_of(pool),
        };
        if ours {
            Ok(())
        } else {
            Err(invalid("the frame belongs to another endpoint: copy its bytes"))
        }
    }

    /// Makes the bytes the holder's alone, if there is no other holder.
    pub fn make_alone(&mut self) -> Outcome<&mut FrameMut> {
        if let Some(Bytes::Shared(frame)) =
            self.held.take_if(|held| matches!(held, Bytes::Shared(_)))
        {
            self.held = Some(frame.try_mut().map_or_else(Bytes::Shared, Bytes::Alone));
        }
        match self.held.as_mut().expect(GONE) {
            Bytes::Alone(frame) => Ok(frame),
            Bytes::Shared(_) => Err(failure(
                TPZ_EBUSY,
                "others hold the frame's bytes too (tpz_frame_dup, or a message under way): use another frame",
            )),
        }
    }

    /// Another handle; from now on the bytes are shared.
    pub fn share(&mut self) -> Frame {
        let frame = match self.held.take().expect(GONE) {
            Bytes::Alone(frame) => frame.freeze(),
            Bytes::Shared(frame) => frame,
        };
        self.held = Some(Bytes::Shared(frame.clone()));
        frame
    }

    /// Out of C's hands, to be filled by a transfer. Fails where [`make_alone`](tpz_frame_t::make_alone) has not
    /// been asked.
    pub fn into_mut(mut self) -> Outcome<FrameMut> {
        self.make_alone()?;
        match self.held.take() {
            Some(Bytes::Alone(frame)) => Ok(frame),
            _ => unreachable!("it was made so"),
        }
    }
}

/// Runs `body` on a frame of C's.
///
/// # Safety
/// `frame` is NULL or a frame that C holds.
pub unsafe fn on_frame<T>(
    function: &'static str,
    frame: *mut tpz_frame_t,
    body: impl FnOnce(&mut tpz_frame_t) -> Outcome<T>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise; and C's thread is in here, so no other thread reaches the frame.
    run(function, None, || body(unsafe { borrow(frame)? }))
}

/// The frame behind a pointer of C's.
///
/// # Safety
/// `frame` is NULL or a frame that C holds, and is not borrowed otherwise during `'a`.
pub unsafe fn borrow<'a>(frame: *mut tpz_frame_t) -> Outcome<&'a mut tpz_frame_t> {
    // SAFETY: the caller's promise.
    let frame = unsafe { frame.as_mut() }.ok_or(failure(TPZ_EINVAL, "the frame is NULL"))?;
    frame.mark.check()?;
    Ok(frame)
}

/// Takes a frame, which was borrowed before, out of C's hands.
///
/// # Safety
/// As for [`borrow`], which has succeeded; C does not use the pointer from now on.
pub unsafe fn take(frame: *mut tpz_frame_t) -> tpz_frame_t {
    // SAFETY: every frame that C holds was made by `new`, from a box.
    *unsafe { Box::from_raw(frame) }
}

/// A frame of `bytes` bytes, 1 to TPZ_PAYLOAD_BYTES, of the endpoint's payload memory, contents undefined. It takes
/// whole pages of 4096. NULL when there is none (TPZ_ENOMEM).
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_alloc(ep: *const tpz_ep_t, bytes: usize) -> *mut tpz_frame_t {
    let body = |ep: &tpz_ep_t| {
        if bytes == 0 || bytes > TPZ_PAYLOAD_BYTES {
            return Err(invalid(format!("{bytes} bytes: a frame has 1 to {TPZ_PAYLOAD_BYTES}")));
        }
        let frame = ep.0.cx.frames().alloc_exact(bytes);
        frame.map(tpz_frame_t::alone).ok_or_else(|| {
            let text = format!(
                "no {bytes} bytes of payload memory are free in one piece: {:?}",
                ep.0.cx.frames()
            );
            Failure { code: TPZ_ENOMEM, text: text.into() }
        })
    };
    // SAFETY: the caller's promise.
    unsafe { on_ep("tpz_frame_alloc", ep, body) }.unwrap_or(null_mut())
}

/// The frame's bytes, for reading, until the frame is given away or freed. NULL only for NULL.
///
/// # Safety
/// `frame` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_data(frame: *mut tpz_frame_t) -> *const c_void {
    // SAFETY: the caller's promise.
    let data = unsafe { on_frame("tpz_frame_data", frame, |f| Ok(f.bytes().as_ptr().cast())) };
    data.unwrap_or(std::ptr::null())
}

/// The frame's bytes, for writing, until the frame is given away, shared or freed. NULL when others hold the bytes too
/// (TPZ_EBUSY): a message that is still under way, or a handle of tpz_frame_dup().
///
/// # Safety
/// `frame` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_mut(frame: *mut tpz_frame_t) -> *mut c_void {
    let body = |frame: &mut tpz_frame_t| Ok(frame.make_alone()?.as_mut_pointer().cast());
    // SAFETY: the caller's promise.
    unsafe { on_frame("tpz_frame_mut", frame, body) }.unwrap_or(null_mut())
}

/// How many bytes the frame has; 0 only for NULL.
///
/// # Safety
/// `frame` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_bytes(frame: *mut tpz_frame_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { on_frame("tpz_frame_bytes", frame, |f| Ok(f.size())) }.unwrap_or(0)
}

/// Another handle to the same bytes, which are read-only as long as there is more than one: to send what is kept. NULL
/// only for NULL.
///
/// # Safety
/// `frame` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_dup(frame: *mut tpz_frame_t) -> *mut tpz_frame_t {
    // SAFETY: the caller's promise.
    let copy = unsafe { on_frame("tpz_frame_dup", frame, |f| Ok(tpz_frame_t::shared(f.share()))) };
    copy.unwrap_or(null_mut())
}

/// Gives the handle back, and with the last one the memory. NULL is nothing. Also after tpz_close().
///
/// # Safety
/// `frame` is NULL or the caller's, who does not use it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_frame_free(frame: *mut tpz_frame_t) -> c_int {
    if frame.is_null() {
        return TPZ_OK;
    }
    // SAFETY: the caller's promise; it is borrowed only to be checked.
    code(run("tpz_frame_free", None, || unsafe {
        borrow(frame)?;
        drop(take(frame));
        Ok(())
    }))
}
