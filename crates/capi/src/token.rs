//! Reply tokens: where a payload is to land.

use crate::ep::{on_ep, tpz_ep_t};
use crate::error::*;
use crate::frame::{borrow, take, tpz_frame_t};
use endpoint::Cancelled;
use std::ffi::c_int;
use wire::Token;

/// The right to put one payload into a frame that its receiver chose (the payload token of USENIX'98 section 3.2). It
/// is plain data: send it in a message's content. It is good for one delivery. All zero is no token.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tpz_token_t {
    /// The secret part.
    pub key: u64,
    /// The table's entry.
    pub index: u64,
}

impl From<Token> for tpz_token_t {
    fn from(token: Token) -> tpz_token_t {
        tpz_token_t { key: token.key, index: token.index.into() }
    }
}

impl tpz_token_t {
    /// As the endpoint knows it.
    pub fn token(self) -> Outcome<Token> {
        let index = u16::try_from(self.index)
            .map_err(|_| invalid("the token is none of tpz_get_replytoken's"))?;
        Ok(Token { index, key: self.key })
    }
}

/// Arms a token with a frame: one payload that comes with the token lands there. The frame is the table's until a
/// message brings it (tpz_detach_rcvmsg) or the token is released. TPZ_EAGAIN when all 1,024 entries are in use.
///
/// # Safety
/// `ep` is open, `frame` the caller's, `token` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_get_replytoken(
    ep: *const tpz_ep_t,
    frame: *mut tpz_frame_t,
    token: *mut tpz_token_t,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        if token.is_null() {
            return Err(invalid("token is NULL"));
        }
        // SAFETY: the caller's promise.
        let checked = unsafe { borrow(frame)? };
        checked.check_pool(ep.0.cx.frames())?;
        checked.make_alone()?;
        let room = ep.0.cx.with_endpoint(|e| e.replytokens() < endpoint::limits::INCOMING_ENTRIES);
        if !room {
            return Err(failure(TPZ_EAGAIN, "all tokens are in use: release some"));
        }
        // SAFETY: as above; it is C's no more.
        let mut frames = vec![unsafe { take(frame) }.into_mut()?];
        let armed = ep.0.cx.with_endpoint(|endpoint| endpoint.get_replytoken(&mut frames));
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { token.write(armed.expect("there is room").into()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_get_replytoken", ep, body) })
}

/// Revokes a token: no payload lands by it any more. Writes the frame to `*frame`, or NULL where a payload was just
/// landing: the frame is freed when that has ended. TPZ_ENOENT when the token is spent or was never valid; a message
/// may wait that brings the frame.
///
/// # Safety
/// `ep` is open, `frame` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_release_replytoken(
    ep: *const tpz_ep_t,
    token: tpz_token_t,
    frame: *mut *mut tpz_frame_t,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        if frame.is_null() {
            return Err(invalid("frame is NULL: where is the frame to be written?"));
        }
        let (token, mut frames) = (token.token()?, Vec::new());
        let cancelled =
            ep.0.cx.with_endpoint(|endpoint| endpoint.release_replytoken(token, &mut frames));
        if cancelled == Cancelled::Stale {
            return Err(failure(TPZ_ENOENT, "the token is spent, or was never valid"));
        }
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { frame.write(tpz_frame_t::maybe(frames.pop())) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_release_replytoken", ep, body) })
}
