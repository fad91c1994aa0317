//! NLM version 4, locks of byte ranges (RFC 1813 appendix II, which extends XNFS chapter 10 to 64 bits).
//!
//! Each procedure has a form that answers and one (`Msg`) whose answer is a call of its own (`Res`). A lock that must
//! wait is answered BLOCKED, and the server calls GRANTED when it is had.

use crate::limits::{LOCK_OBJECT_BYTES_MAX, LOCK_STRING_BYTES_MAX};
use crate::xdr::{Garbage, Input, Xdr, enumeration, opaque, record};
use node::rings::{Lock, LockKind};

/// Program.
pub const PROGRAM: u32 = 100_021;
/// The version of NFSv3.
pub const VERSION: u32 = 4;

enumeration! {
    /// The procedures.
    #[allow(missing_docs)] // they are named as in the specification
    pub enum Procedure {
        Null = 0,
        Test = 1,
        Lock = 2,
        Cancel = 3,
        Unlock = 4,
        Granted = 5,
        TestMsg = 6,
        LockMsg = 7,
        CancelMsg = 8,
        UnlockMsg = 9,
        GrantedMsg = 10,
        TestRes = 11,
        LockRes = 12,
        CancelRes = 13,
        UnlockRes = 14,
        GrantedRes = 15,
        Share = 20,
        Unshare = 21,
        NmLock = 22,
        FreeAll = 23,
    }
}

impl Procedure {
    /// Whether a duplicate is answered with the first reply: a duplicate LOCK that arrives after its UNLOCK would else
    /// take the lock again, without an owner.
    pub fn keeps_reply(self) -> bool {
        use Procedure::*;
        matches!(self, Lock | Cancel | Unlock | LockMsg | CancelMsg | UnlockMsg | NmLock)
    }
}

enumeration! {
    /// Outcome (`nlm4_stats`).
    #[allow(missing_docs)]
    pub enum Status {
        Granted = 0,
        Denied = 1,
        DeniedNoLocks = 2,
        Blocked = 3,
        DeniedGracePeriod = 4,
        Deadlock = 5,
        Rofs = 6,
        StaleHandle = 7,
        Fbig = 8,
        Failed = 9,
    }
}

opaque! {
    /// Bytes that only their owner understands (`netobj`).
    pub struct NetObject of LOCK_OBJECT_BYTES_MAX
}

opaque! {
    /// The name of a host, as NSM monitors it.
    pub struct Host of LOCK_STRING_BYTES_MAX
}

record! {
    /// A lock and its owner (`nlm4_lock`): the owner is host, `owner` and `process` together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct NlmLock<'a> {
        pub host: Host<'a>,
        pub handle: NetObject<'a>,
        pub owner: NetObject<'a>,
        pub process: i32,
        pub offset: u64,
        pub bytes: u64,
    }
}

/// The first and last byte of a range; 0 bytes are all to the end. `None`: it ends behind the last byte of any file.
pub fn range(offset: u64, bytes: u64) -> Option<(u64, u64)> {
    match bytes {
        0 => Some((offset, u64::MAX)),
        _ => offset.checked_add(bytes - 1).map(|last| (offset, last)),
    }
}

/// First byte and number of bytes of a range, as [`range`] reads them.
pub fn span(start: u64, end: u64) -> (u64, u64) {
    let bytes = if end == u64::MAX { 0 } else { end.saturating_sub(start).saturating_add(1) };
    (start, bytes)
}

impl NlmLock<'_> {
    /// The lock as the front ring takes it.
    pub fn to_lock(&self, kind: LockKind) -> Result<Lock, Status> {
        let (start, end) = range(self.offset, self.bytes).ok_or(Status::Fbig)?;
        Ok(Lock { start, end, kind, pid: self.process as u32 })
    }
}

record! {
    /// The holder of a conflicting lock (`nlm4_holder`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Holder<'a> {
        pub exclusive: bool,
        pub process: i32,
        pub owner: NetObject<'a>,
        pub offset: u64,
        pub bytes: u64,
    }
}

impl Holder<'static> {
    /// The holder as the front ring tells it, which knows no owner.
    pub fn of(lock: &Lock) -> Holder<'static> {
        let (offset, bytes) = span(lock.start, lock.end);
        let exclusive = lock.kind == LockKind::Write;
        Holder { exclusive, process: lock.pid as i32, owner: NetObject(&[]), offset, bytes }
    }
}

/// Structures of arguments: as the specification has them.
macro_rules! args {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        record! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub struct $name<'a> { $(pub $field: $kind),* }
        }
    )*};
}

args! {
    /// TEST.
    TestArgs { cookie: NetObject<'a>, exclusive: bool, lock: NlmLock<'a> }
    /// LOCK and NM_LOCK.
    LockArgs {
        cookie: NetObject<'a>,
        block: bool,
        exclusive: bool,
        lock: NlmLock<'a>,
        reclaim: bool,
        state: i32,
    }
    /// CANCEL.
    CancelArgs { cookie: NetObject<'a>, block: bool, exclusive: bool, lock: NlmLock<'a> }
    /// UNLOCK.
    UnlockArgs { cookie: NetObject<'a>, lock: NlmLock<'a> }
    /// Result of all but TEST and SHARE.
    Answer { cookie: NetObject<'a>, status: Status }
    /// A share of a whole file (DOS): mode is what is denied to others, access what is wanted.
    ShareArgs {
        cookie: NetObject<'a>,
        host: Host<'a>,
        handle: NetObject<'a>,
        owner: NetObject<'a>,
        mode: u32,
        access: u32,
        reclaim: bool,
    }
    /// Result of SHARE and UNSHARE.
    ShareAnswer { cookie: NetObject<'a>, status: Status, sequence: i32 }
    /// FREE_ALL: a client without a monitor has restarted.
    FreeAllArgs { host: Host<'a>, state: i32 }
}

/// Result of TEST (`nlm4_testres`): denied, by whom, or another status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestAnswer<'a> {
    /// As it came.
    pub cookie: NetObject<'a>,
    /// The holder, or another outcome. DENIED has a holder.
    pub outcome: Result<Status, Holder<'a>>,
}

impl<'a> Xdr<'a> for TestAnswer<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.cookie.put(out);
        match &self.outcome {
            Ok(Status::Denied) => panic!("a lock that is denied has a holder"),
            Ok(status) => status.put(out),
            Err(holder) => (Status::Denied.put(out), holder.put(out)).1,
        }
    }
    fn take(input: &mut Input<'a>) -> Result<TestAnswer<'a>, Garbage> {
        let cookie = NetObject::take(input)?;
        let outcome = match Status::take(input)? {
            Status::Denied => Err(Holder::take(input)?),
            status => Ok(status),
        };
        Ok(TestAnswer { cookie, outcome })
    }
}

/// A call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // they are named as in the specification
pub enum Args<'a> {
    Null,
    Test(TestArgs<'a>),
    Lock(LockArgs<'a>),
    Cancel(CancelArgs<'a>),
    Unlock(UnlockArgs<'a>),
    /// Of GRANTED, which has TEST's arguments.
    Granted(TestArgs<'a>),
    /// An answer to one of our calls.
    TestRes(TestAnswer<'a>),
    Res(Answer<'a>),
    Share(ShareArgs<'a>),
    Unshare(ShareArgs<'a>),
    FreeAll(FreeAllArgs<'a>),
}

impl<'a> Args<'a> {
    /// Decodes all of `bytes`.
    pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Result<Args<'a>, Garbage> {
        use Procedure::*;
        match procedure {
            Null => crate::xdr::decoded::<()>(bytes).map(|()| Args::Null),
            Test | TestMsg => crate::xdr::decoded(bytes).map(Args::Test),
            Lock | LockMsg | NmLock => crate::xdr::decoded(bytes).map(Args::Lock),
            Cancel | CancelMsg => crate::xdr::decoded(bytes).map(Args::Cancel),
            Unlock | UnlockMsg => crate::xdr::decoded(bytes).map(Args::Unlock),
            Granted | GrantedMsg => crate::xdr::decoded(bytes).map(Args::Granted),
            TestRes => crate::xdr::decoded(bytes).map(Args::TestRes),
            LockRes | CancelRes | UnlockRes | GrantedRes => {
                crate::xdr::decoded(bytes).map(Args::Res)
            }
            Share => crate::xdr::decoded(bytes).map(Args::Share),
            Unshare => crate::xdr::decoded(bytes).map(Args::Unshare),
            FreeAll => crate::xdr::decoded(bytes).map(Args::FreeAll),
        }
    }

    /// Appends the arguments.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Args::Null => {}
            Args::Test(args) | Args::Granted(args) => args.put(out),
            Args::Lock(args) => args.put(out),
            Args::Cancel(args) => args.put(out),
            Args::Unlock(args) => args.put(out),
            Args::TestRes(answer) => answer.put(out),
            Args::Res(answer) => answer.put(out),
            Args::Share(args) | Args::Unshare(args) => args.put(out),
            Args::FreeAll(args) => args.put(out),
        }
    }
}
