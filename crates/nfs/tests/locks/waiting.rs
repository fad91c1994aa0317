//! Locks that wait, are granted by a call to the client, or are cancelled.

use super::*;

#[test]
fn a_waiting_lock_is_granted_by_a_call_that_is_repeated_until_it_is_answered() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let waits = Want { block: true, bytes: 9, ..ALL };
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked, "asked again, it waits once");
    assert_eq!(world.manager.waiting.len(), 1);
    assert!(world.calls().is_empty());
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let calls = world.calls();
    assert_eq!((calls.len(), calls[0].client, calls[0].of), (1, address(2), GRANTED));
    let handle = world.handle(FILE);
    let args: TestArgs<'_> = decoded(&calls[0].arguments).unwrap();
    assert_eq!(args.lock, other.lock(&handle, 0, 9), "as it was asked for");
    assert_eq!((args.exclusive, args.cookie), (true, NetObject(b"cookie")));
    // it is lost some times, and the client restarts its lock manager at another port
    for _ in 0..4 {
        world.pass(CALL_PAUSE_MAX);
    }
    let again = world.calls();
    assert!(again.iter().all(|call| call.of == GRANTED) && again.len() >= 3);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Denied, "it is the other's");
    world.answer(again.last().unwrap(), &answered(Status::Granted));
    world.pass(CALL_PAUSE_MAX);
    assert!(world.calls().is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.unlock(&other, FILE, 0, 9), Status::Granted);
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.check();
}

/// A client whose process was killed meanwhile has no use for the lock.
#[test]
fn a_granted_lock_that_the_client_refuses_is_released_and_what_it_had_before_is_not() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let shared = Want { exclusive: false, bytes: 10, ..ALL };
    let waits = Want { block: true, bytes: 5, ..ALL };
    assert_eq!(world.lock(&one, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&other, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let call = world.calls().pop().unwrap();
    world.answer(&call, &answered(Status::Denied));
    assert_eq!(world.lock(&one, FILE, shared), Status::Granted);
    assert_eq!(world.lock(&one, FILE, Want { exclusive: true, ..shared }), Status::Denied);
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    world.check();
}

/// The answer to a call is lost, and the client goes on: late copies of the call take nothing of what it locks then,
/// nor give it anything.
#[test]
fn a_call_whose_lock_was_released_since_neither_gives_nor_takes() {
    for other_has_it in [false, true] {
        let mut world = World::new();
        let (one, other) = (who(1, 1), who(2, 2));
        let waits = Want { block: true, ..ALL };
        assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
        assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
        assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
        world.pass(Duration::ZERO);
        let call = world.calls().pop().unwrap();
        assert_eq!(world.unlock(&other, FILE, 0, 0), Status::Granted, "it was told, and answers");
        if other_has_it {
            assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
            assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
            world.pass(CALL_PAUSE_MAX);
            assert!(world.calls().is_empty(), "it is not the client's");
            assert_eq!(world.server.locks().borrow().waiting(), 1);
            continue;
        }
        assert_eq!(world.lock(&other, FILE, Want { offset: 3, ..ALL }), Status::Granted);
        world.answer(&call, &answered(Status::Denied));
        assert_eq!(world.lock(&one, FILE, ALL), Status::Denied, "the client's second lock");
        world.check();
    }
}

/// Two threads of a client wait for bytes that overlap, and one of them has gone.
#[test]
fn a_refused_lock_leaves_what_another_wait_of_its_owner_brings() {
    for (refused, accepts_first) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut world = World::new();
        let (one, other) = (who(1, 1), who(2, 2));
        let (few, many) =
            (Want { block: true, bytes: 4, ..ALL }, Want { block: true, bytes: 9, ..ALL });
        assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
        assert_eq!(world.lock(&other, FILE, few), Status::Blocked);
        assert_eq!(world.lock(&other, FILE, many), Status::Blocked);
        assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
        world.pass(Duration::ZERO);
        let calls = world.calls();
        assert_eq!(calls.len(), 2);
        let bytes_of = |call: &Called| {
            let args: TestArgs<'_> = decoded(&call.arguments).unwrap();
            args.lock.bytes
        };
        let (no, yes) = (&calls[refused], &calls[1 - refused]);
        let mut answers = [(no, Status::Denied), (yes, Status::Granted)];
        if accepts_first {
            answers.reverse();
        }
        answers.iter().for_each(|(call, status)| world.answer(call, &answered(*status)));
        let (had, least) = (bytes_of(yes), Want { bytes: 1, ..ALL });
        assert_eq!(world.lock(&one, FILE, Want { offset: had - 1, ..least }), Status::Denied);
        assert_eq!(world.lock(&one, FILE, Want { offset: had, ..least }), Status::Granted);
        world.check();
    }
}

#[test]
fn a_reply_from_another_address_or_with_another_number_grants_nothing() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&who(2, 2), FILE, Want { block: true, ..ALL }), Status::Blocked);
    assert_eq!(world.unlock(&who(1, 1), FILE, 0, 0), Status::Granted);
    world.pass(Duration::ZERO);
    let call = world.calls().pop().unwrap();
    let forged = Called { client: address(9), ..call.clone() };
    world.answer(&forged, &answered(Status::Denied));
    let other = Called { xid: call.xid.wrapping_add(1), ..call.clone() };
    world.answer(&other, &answered(Status::Denied));
    assert_eq!(world.server.locks().borrow().waiting(), 1);
    // an answer that is none is as good as none
    world.answer(&call, b"abc");
    world.pass(LOCK_RETRY_SPAN);
    let call = world.calls().pop().unwrap();
    world.answer(&call, &answered(Status::Granted));
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Denied);
}

#[test]
fn a_cancelled_wait_ends_and_takes_nothing() {
    let mut world = World::new();
    let (one, other, waits) = (who(1, 1), who(2, 2), Want { block: true, ..ALL });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, waits), Status::Blocked);
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted);
    world.pass(LOOK_SPAN);
    assert!(world.manager.waiting.is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted, "as often as one likes");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.pass(LOOK_SPAN);
    assert!(world.calls().is_empty());
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
}

/// The lock may be had in the moment in which it is given up.
#[test]
fn a_lock_that_is_had_when_its_wait_was_cancelled_is_released() {
    let mut world = World::new();
    let (one, other, waits) = (who(1, 1), who(2, 2), Want { block: true, ..ALL });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.lock(&other, FILE, waits);
    // the manager gives it before it hears of the interrupt
    let (front, file, owner, lock) = world.manager.waiting.pop().unwrap();
    assert_eq!(world.cancel(&other, FILE, waits), Status::Granted);
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    world.manager.set(file, owner, lock).unwrap();
    world.front.done(FileDone { front, result: Ok(FileReply::Done) });
    world.run();
    assert!(world.manager.held.is_empty(), "{:?}", world.manager.held);
    assert!(world.calls().is_empty());
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    world.check();
}
