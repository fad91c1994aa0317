//! The log of an endpoint that takes part in network memory. See [`trapeze::page_log`].

use crate::ep::{on_ep, text, tpz_ep_t};
use crate::error::*;
use crate::memory::memory;
use std::ffi::{c_char, c_int};
use std::path::Path;
use trapeze::page_log::{self, PageLogError};

impl From<PageLogError> for Failure {
    fn from(error: PageLogError) -> Failure {
        let code = match &error {
            PageLogError::Small(_) | PageLogError::Foreign(_) => TPZ_EINVAL,
            PageLogError::Taken => TPZ_EBUSY,
            PageLogError::NoDirectory(_, error) | PageLogError::Loop(error) => {
                error.raw_os_error().unwrap_or(TPZ_EIO)
            }
            PageLogError::Disk(_) => TPZ_EIO,
        };
        Failure { code, text: error.to_string().into() }
    }
}

/// Has the endpoint, after tpz_memory_start() or tpz_join(), keep a log of at most `bytes` bytes (131072 or more) in
/// `directory`, for pages that are put with TPZ_MIRRORED_AND_LOGGED. The directory is made where it is missing, and no
/// other endpoint may use it. The log is a second copy for as long as this endpoint is open, and no longer: the next
/// one begins by removing what is there. TPZ_EBUSY when it has a log already.
///
/// # Safety
/// `ep` is open, `directory` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_memory_log(
    ep: *const tpz_ep_t,
    directory: *const c_char,
    bytes: u64,
) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let memory = memory(&ep.0)?;
        // SAFETY: the caller's promise.
        let directory = unsafe { text("directory", directory)? };
        let directory = directory.ok_or(invalid("directory is NULL"))?;
        let mut host = ep.0.host.borrow_mut();
        let host = host.as_mut().ok_or(failure(TPZ_EBADF, "the endpoint is closed"))?;
        Ok(page_log::keep(host, &memory.service, Path::new(directory), bytes)?)
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_memory_log", ep, body) })
}
