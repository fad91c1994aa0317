//! Ranges of bytes, owners and exports: which locks exclude each other.

use super::*;

#[test]
fn no_bytes_are_all_to_the_end() {
    let lock = who(1, 7).lock(b"file", 5, 0);
    let wanted = Lock { start: 5, end: u64::MAX, kind: LockKind::Write, pid: 7 };
    assert_eq!(lock.to_lock(LockKind::Write), Ok(wanted));
    let holder = Holder::of(&wanted);
    assert_eq!((holder.exclusive, holder.offset, holder.bytes), (true, 5, 0));
    assert_eq!(span(0, u64::MAX), (0, 0));
}

#[test]
fn a_range_behind_the_last_byte_is_too_big() {
    let mut world = World::new();
    let lock = who(1, 7).lock(b"file", u64::MAX, 2);
    assert_eq!(lock.to_lock(LockKind::Read), Err(Status::Fbig));
    assert_eq!(range(u64::MAX, 1), Some((u64::MAX, u64::MAX)));
    let behind = Want { offset: u64::MAX, bytes: 2, ..ALL };
    assert_eq!(world.lock(&who(1, 7), FILE, behind), Status::Fbig);
}

#[test]
fn owners_exclude_each_other_by_machine_name_process_and_owner() {
    let mut world = World::new();
    let one = who(1, 7);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted, "its own");
    for other in
        [who(2, 7), who(1, 8), Who { owner: b"other", ..one }, Who { name: b"elsewhere", ..one }]
    {
        assert_eq!(world.lock(&other, FILE, ALL), Status::Denied, "{other:?}");
        assert_eq!(world.test(&other, FILE, ALL), Some((true, 7, b"owner".to_vec())));
        assert_eq!(world.unlock(&other, FILE, 0, 0), Status::Granted, "it has none");
    }
    assert_eq!(world.test(&one, FILE, ALL), None);
    assert_eq!(world.lock(&who(2, 7), FileId::ROOT, ALL), Status::Granted, "another file");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&who(2, 7), FILE, ALL), Status::Granted);
    world.check();
}

#[test]
fn parts_of_a_file_and_shared_locks_go_beside_each_other() {
    let mut world = World::new();
    let part = |offset, bytes, exclusive| Want { offset, bytes, exclusive, ..ALL };
    let (one, other) = (who(1, 1), who(2, 2));
    assert_eq!(world.lock(&one, FILE, part(0, 10, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(10, 10, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(9, 1, false)), Status::Denied);
    assert_eq!(world.unlock(&one, FILE, 5, 5), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(5, 5, true)), Status::Granted);
    assert_eq!(world.lock(&other, FILE, part(4, 1, true)), Status::Denied);
    assert_eq!(world.lock(&one, FILE, part(0, 5, false)), Status::Granted, "less than it had");
    assert_eq!(world.lock(&other, FILE, part(0, 5, false)), Status::Granted);
    assert_eq!(world.lock(&one, FILE, part(0, 5, true)), Status::Denied);
    assert_eq!(world.server.locks().borrow().held(), 3);
    world.check();
    for who in [one, other] {
        assert_eq!(world.unlock(&who, FILE, 0, 0), Status::Granted);
    }
    let locks = world.server.locks().borrow();
    assert_eq!((locks.held(), world.manager.held.len()), (0, 0));
}

#[test]
fn a_release_that_leaves_nothing_is_one_of_the_whole_file() {
    let mut world = World::new();
    let part = Want { offset: 100, bytes: 10, ..ALL };
    assert_eq!(world.lock(&who(1, 1), FILE, part), Status::Granted);
    world.holds = true;
    let handle = world.handle(FILE);
    let lock = who(1, 1).lock(&handle, 100, 10);
    let arguments = encoded(&UnlockArgs { cookie: NetObject(b""), lock });
    world.send(address(1), (nlm::PROGRAM, nlm::VERSION, 4), &arguments, 7);
    let asked = &world.held_back[0].op;
    let FileOp::SetLock { lock, .. } = asked else { panic!("{asked:?}") };
    assert_eq!((lock.start, lock.end, lock.kind), (0, u64::MAX, LockKind::Unlock));
    world.release_held();
    assert!(world.taken_reply(7).is_some());
}

#[test]
fn exports_decide_who_may_lock() {
    let mut world = World::new();
    let outside = Who { address: Ipv4Addr::new(10, 9, 0, 1).into(), ..who(1, 1) };
    assert_eq!(world.lock(&outside, FILE, ALL), Status::StaleHandle);
    let reader = Who { address: Ipv4Addr::new(10, 1, 0, 1).into(), ..who(1, 1) };
    assert_eq!(world.lock(&reader, FILE, ALL), Status::Rofs);
    let shared = Want { exclusive: false, ..ALL };
    assert_eq!(world.lock(&reader, FILE, shared), Status::Granted);
    let args = who(1, 1).lock_args(b"no handle of ours", ALL);
    let status = world.status(&who(1, 1), Procedure::Lock, Args::Lock(args));
    assert_eq!(status, Status::StaleHandle);
    assert_eq!(world.lock(&who(1, 1), FileId(77), ALL), Status::StaleHandle);
}
