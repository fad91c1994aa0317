//! Codes, the last error's text, and the border that no panic crosses.

use node::CallError;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trapeze::service::ServiceError;

/// Done. The other codes are the error numbers of Linux with these names, so that strerror(3) knows them too; an error
/// of the system has the number that the system gave.
pub const TPZ_OK: c_int = 0;
/// Another thread than the one that opened the endpoint.
pub const TPZ_EPERM: c_int = 1;
/// No peer has that number.
pub const TPZ_ENOENT: c_int = 2;
/// The system failed without saying how.
pub const TPZ_EIO: c_int = 5;
/// The endpoint is closed.
pub const TPZ_EBADF: c_int = 9;
/// Nothing is there, or no entry of the ring is free: poll and ask again.
pub const TPZ_EAGAIN: c_int = 11;
/// The payload memory is used up: free frames, or open the endpoint with more.
pub const TPZ_ENOMEM: c_int = 12;
/// The system does not let the program serve its own page faults, or the space is another endpoint's.
pub const TPZ_EACCES: c_int = 13;
/// In use: a frame with several holders is to be written, a channel is served already, or the endpoint is to be closed
/// from a callback.
pub const TPZ_EBUSY: c_int = 16;
/// A version as new as this one is known: write a newer one.
pub const TPZ_EEXIST: c_int = 17;
/// An argument that cannot be; tpz_last_error() says which.
pub const TPZ_EINVAL: c_int = 22;
/// Too few others have room for the page.
pub const TPZ_ENOSPC: c_int = 28;
/// The system has no such call, or one that lacks what is needed.
pub const TPZ_ENOSYS: c_int = 38;
/// No copy of the page is left.
pub const TPZ_ENODATA: c_int = 61;
/// The peer broke the protocol, as by more data than was asked for.
pub const TPZ_EPROTO: c_int = 71;
/// Longer than a message may be.
pub const TPZ_EMSGSIZE: c_int = 90;
/// Too many calls are open.
pub const TPZ_ENOBUFS: c_int = 105;
/// The time is up. Of a call: it may have been executed.
pub const TPZ_ETIMEDOUT: c_int = 110;
/// The channel is not served at the peer.
pub const TPZ_ECONNREFUSED: c_int = 111;
/// The peer restarted, or was away for 10 s. A call may have been executed.
pub const TPZ_EHOSTDOWN: c_int = 112;
/// The page's space was freed.
pub const TPZ_ESTALE: c_int = 116;
/// The endpoint was closed before the call ended.
pub const TPZ_ECANCELED: c_int = 125;
/// A fault of the library itself. The endpoint takes no more calls but tpz_close().
pub const TPZ_EINTERNAL: c_int = 1000;

const TEXTS: &[(c_int, &CStr)] = &[
    (TPZ_OK, c"no error"),
    (TPZ_EPERM, c"another thread than the one that opened the endpoint"),
    (TPZ_ENOENT, c"nobody has that number"),
    (TPZ_EIO, c"the system failed without saying how"),
    (TPZ_EBADF, c"the endpoint is closed"),
    (TPZ_EAGAIN, c"nothing is there, or no entry is free: poll and ask again"),
    (TPZ_ENOMEM, c"the payload memory is used up: free frames, or open the endpoint with more"),
    (TPZ_EACCES, c"not allowed: to serve page faults, or to write to another's space"),
    (TPZ_EBUSY, c"in use by somebody else"),
    (TPZ_EEXIST, c"a version as new as this one is known: write a newer one"),
    (TPZ_ENOSPC, c"too few others have room for the page"),
    (TPZ_ESTALE, c"the page's space was freed"),
    (TPZ_EINVAL, c"an argument that cannot be"),
    (TPZ_ENOSYS, c"the system has no such call, or one that lacks what is needed"),
    (TPZ_ENODATA, c"no copy of the page is left"),
    (TPZ_EPROTO, c"the peer broke the protocol"),
    (TPZ_EMSGSIZE, c"longer than a message may be"),
    (TPZ_ENOBUFS, c"too many calls are open"),
    (TPZ_ETIMEDOUT, c"the time is up"),
    (TPZ_ECONNREFUSED, c"nobody serves the channel at the peer"),
    (TPZ_EHOSTDOWN, c"the peer restarted, or was away for 10 s"),
    (TPZ_ECANCELED, c"the endpoint was closed"),
    (TPZ_EINTERNAL, c"a fault of the library itself"),
];

/// A failure, for the caller.
#[derive(Debug)]
pub struct Failure {
    /// One of the codes above.
    pub code: c_int,
    /// The failure, its place, and the remedy.
    pub text: Cow<'static, str>,
}

/// Result of a function of the library.
pub type Outcome<T> = Result<T, Failure>;

/// A failure with a text that needs no memory.
pub const fn failure(code: c_int, text: &'static str) -> Failure {
    Failure { code, text: Cow::Borrowed(text) }
}

/// An argument that cannot be.
pub fn invalid(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure { code: TPZ_EINVAL, text: text.into() }
}

/// Fails for a structure of another size than this release's.
pub fn check_size(name: &str, theirs: usize, ours: usize) -> Outcome<()> {
    if theirs == ours {
        return Ok(());
    }
    Err(invalid(format!("size is {theirs}, this release has {ours}: set it to sizeof({name})")))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let wrong = error.kind() == io::ErrorKind::InvalidInput;
        let code = error.raw_os_error().unwrap_or(if wrong { TPZ_EINVAL } else { TPZ_EIO });
        Failure { code, text: error.to_string().into() }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Failure {
        let code = match &error {
            ServiceError::System(_, error) => error.raw_os_error().unwrap_or(TPZ_EIO),
            ServiceError::Call(error) => call_code(*error),
            _ => TPZ_EINVAL,
        };
        let text = match &error {
            ServiceError::NoSecurity(address) => {
                format!("{address}: set key, or TPZ_INSECURE in flags")
            }
            ServiceError::Nobody => "an endpoint without connect needs a node id, 1 or more".into(),
            other => other.to_string(),
        };
        Failure { code, text: text.into() }
    }
}

/// The code of a call that came to no reply.
pub fn call_code(error: CallError) -> c_int {
    match error {
        CallError::Deadline => TPZ_ETIMEDOUT,
        CallError::PeerLost => TPZ_EHOSTDOWN,
        CallError::Refused => TPZ_ECONNREFUSED,
        CallError::Overloaded => TPZ_ENOBUFS,
        CallError::Fatal => TPZ_EPROTO,
    }
}

/// The thread that something belongs to, and whether a fault has been met there.
#[derive(Debug)]
pub struct Mark {
    thread: usize,
    broken: Cell<bool>,
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Mark {
    /// Of this thread.
    pub fn here() -> Mark {
        Mark { thread: this_thread(), broken: Cell::new(false) }
    }

    /// Fails on another thread, and after a fault.
    pub fn check(&self) -> Outcome<()> {
        if self.thread != this_thread() {
            return Err(failure(
                TPZ_EPERM,
                "another thread than the one that opened the endpoint: open one for each thread",
            ));
        }
        match self.broken.get() {
            true => Err(failure(TPZ_EINTERNAL, "the endpoint met a fault before: close it")),
            false => Ok(()),
        }
    }

    /// Whether a fault has been met.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// From now on nothing of it works.
    pub fn set_broken(&self) {
        self.broken.set(true);
    }
}

/// The last failure of a thread.
struct Last {
    function: &'static str,
    failure: Failure,
    /// Its text as C reads it, made when it is asked for.
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { function: "", failure: failure(TPZ_OK, "no error"), text: None })
    };
}

fn note(function: &'static str, failure: Failure) -> c_int {
    let code = failure.code;
    LAST.with_borrow_mut(|last| *last = Last { function, failure, text: None });
    code
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    format!("{text}; please report it. Close the endpoint and open another one")
}

/// Runs what a function of the library does and notes its failure. A panic ends here: it becomes TPZ_EINTERNAL, and the
/// endpoint, if there is one, takes no more work.
pub fn run<T>(
    function: &'static str,
    mark: Option<&Mark>,
    body: impl FnOnce() -> Outcome<T>,
) -> Result<T, c_int> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(note(function, failure)),
        Err(panic) => {
            mark.into_iter().for_each(Mark::set_broken);
            let text = Cow::Owned(panic_text(panic));
            Err(note(function, Failure { code: TPZ_EINTERNAL, text }))
        }
    }
}

/// As a code.
pub fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(TPZ_OK)
}

/// The meaning of an error number. Never NULL; the text is there for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_strerror(code: c_int) -> *const c_char {
    text(code).as_ptr()
}

/// The meaning of an error number.
pub fn text(code: c_int) -> &'static CStr {
    let text = TEXTS.iter().find(|(known, _)| *known == code).map(|(_, text)| *text);
    text.unwrap_or(c"an error of the system: see strerror(3)")
}

/// The number of this thread's last error: why a function that returns a pointer returned NULL. TPZ_OK when there was
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_errno() -> c_int {
    LAST.with_borrow(|last| last.failure.code)
}

/// This thread's last error in words: in which function, what, and what to do. Never NULL; the text is there until the
/// thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_last_error() -> *const c_char {
    LAST.with_borrow_mut(|last| {
        let (function, words) = (last.function, &last.failure.text);
        let text = last.text.get_or_insert_with(|| {
            let text = if function.is_empty() {
                words.to_string()
            } else {
                format!("{function}: {words}")
            };
            CString::new(text.replace('\0', " ")).expect("without zeros")
        });
        text.as_ptr()
    })
}

/// The number of this library's release, as text. The text is there for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text ends with a zero and stays until the next error.
        unsafe { CStr::from_ptr(tpz_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border_and_its_endpoint_takes_no_more_work() {
        let mark = Mark::here();
        let result = run("tpz_example", Some(&mark), || -> Outcome<()> { panic!("of this test") });
        assert_eq!((result, tpz_errno()), (Err(TPZ_EINTERNAL), TPZ_EINTERNAL));
        assert!(last().starts_with("tpz_example: of this test"), "{}", last());
        assert_eq!(mark.check().unwrap_err().code, TPZ_EINTERNAL);
    }

    #[test]
    fn texts_with_zeros_are_told_all_the_same() {
        let failed: Result<(), _> = run("tpz_example", None, || Err(invalid("a\0b")));
        assert_eq!((failed, last().as_str()), (Err(TPZ_EINVAL), "tpz_example: a b"));
    }

    #[test]
    fn the_codes_are_linuxs() {
        for (code, _) in TEXTS.iter().filter(|(code, _)| (1..TPZ_EINTERNAL).contains(code)) {
            let known = io::Error::from_raw_os_error(*code).to_string();
            assert!(!known.contains("Unknown"), "{known}");
        }
    }
}
