//! Ranges of locks between NLM and the front ring.

use nfs::nlm::{Holder, Host, NetObject, NlmLock, Status, range, span};
use node::rings::{Lock, LockKind};
use proptest::prelude::*;

fn lock(offset: u64, bytes: u64) -> NlmLock<'static> {
    let (host, handle, owner) = (Host(b"client"), NetObject(b"file"), NetObject(b"owner"));
    NlmLock { host, handle, owner, process: 7, offset, bytes }
}

#[test]
fn no_bytes_are_all_to_the_end() {
    let wanted = Lock { start: 5, end: u64::MAX, kind: LockKind::Write, pid: 7 };
    assert_eq!(lock(5, 0).to_lock(LockKind::Write), Ok(wanted));
    let holder = Holder::of(&wanted);
    assert_eq!((holder.exclusive, holder.offset, holder.bytes), (true, 5, 0));
    assert_eq!(span(0, u64::MAX), (0, 0));
}

#[test]
fn a_range_behind_the_last_byte_is_too_big() {
    assert_eq!(lock(u64::MAX, 2).to_lock(LockKind::Read), Err(Status::Fbig));
    assert_eq!(range(u64::MAX, 1), Some((u64::MAX, u64::MAX)));
}

proptest! {
    #[test]
    fn ranges_come_back(offset in 0u64..1 << 63, bytes in 0u64..1 << 62) {
        let (start, end) = range(offset, bytes).unwrap();
        prop_assert_eq!(span(start, end), (offset, bytes));
    }
}
