//! Restarts of clients and of the server: the list of clients, grace, reclaimed locks.

use super::*;

#[test]
fn a_client_is_on_stable_storage_before_it_has_a_lock() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!((world.lists.len(), world.synced), (1, 1));
    let monitored = |client, name: &[u8]| Monitored { client, own: SERVER, name: name.into() };
    let kept = world.kept();
    assert_eq!(kept, Kept { state: 3, clients: vec![monitored(address(1), b"client")] });
    assert_eq!(world.unlock(&who(1, 1), FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&who(1, 2), FILE, ALL), Status::Granted);
    assert_eq!(world.lists.len(), 1, "it is known");
    // two that are new at once: no list lacks one of them for good
    world.holds = true;
    let other = world.make(b"other", 0o644);
    let handle = world.handle(other);
    for client in [2, 3] {
        let mut want = Want { exclusive: false, ..ALL };
        want.offset = client.into();
        let arguments = encoded(&who(client, 1).lock_args(&handle, want));
        let of = (nlm::PROGRAM, nlm::VERSION, Procedure::Lock as u32);
        world.send(address(client), of, &arguments, client.into());
    }
    world.release_held();
    assert_eq!(world.taken_reply(2), Some(answered(Status::Granted)));
    assert_eq!(world.taken_reply(3), Some(answered(Status::Granted)));
    assert_eq!(world.kept().clients.len(), 3);
    assert_eq!(world.synced, world.lists.len());
}

#[test]
fn a_client_that_restarted_has_no_locks() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), Who { name: b"other", ..who(2, 2) });
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&other, FILE, Want { block: true, ..ALL }), Status::Blocked);
    world.notify(address(1), b"client.example.com", 11);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Denied, "an old notice: it locked since");
    world.notify(address(3), b"client", 13);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Denied, "another machine's");
    world.notify(address(1), b"client.example.com", 13);
    world.pass(Duration::ZERO);
    assert_eq!(world.calls().pop().map(|call| call.client), Some(address(2)));
    world.notify(address(2), b"other", 13);
    world.pass(LOOK_SPAN);
    assert!(world.manager.held.is_empty());
    assert_eq!(world.server.locks().borrow().waiting(), 0);
    assert_eq!(world.lock(&who(3, 3), FILE, ALL), Status::Granted);
    let free = FreeAllArgs { host: Host(b"client"), state: 0 };
    assert!(world.nlm(&who(3, 3), Procedure::FreeAll, Args::FreeAll(free)).is_empty());
    assert!(world.manager.held.is_empty());
    assert_eq!(world.server.locks().borrow().counters().restarts, 3);
    world.check();
}

#[test]
fn a_lock_that_a_client_asked_for_before_it_restarted_is_none() {
    for is_held in [false, true] {
        let mut world = World::new();
        assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
        assert_eq!(world.unlock(&who(1, 1), FILE, 0, 0), Status::Granted);
        if is_held {
            assert_eq!(world.lock(&who(2, 2), FILE, ALL), Status::Granted);
        }
        let handle = world.handle(FILE);
        let arguments = encoded(&who(1, 1).lock_args(&handle, Want { block: true, ..ALL }));
        let of = (nlm::PROGRAM, nlm::VERSION, Procedure::Lock as u32);
        world.holds = true;
        world.send(address(1), of, &arguments, 7);
        world.notify(address(1), b"client", 13);
        world.release_held();
        assert_eq!(world.taken_reply(7), Some(answered(Status::Denied)));
        assert_eq!(world.server.locks().borrow().waiting(), 0);
        assert_eq!(world.manager.held.len(), usize::from(is_held));
        world.check();
    }
}

#[test]
fn an_operator_drops_the_locks_of_a_client_that_is_gone() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.server.locks().borrow_mut().drop_client(address(2)), 0);
    assert_eq!(world.server.locks().borrow_mut().drop_client(address(1)), 1);
    world.run();
    assert!(world.manager.held.is_empty());
    assert_eq!(world.lock(&who(2, 1), FILE, ALL), Status::Granted);
}

#[test]
fn after_a_restart_clients_are_told_and_reclaim_before_others_lock() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    assert_eq!(world.lock(&one, FILE, ALL), Status::Granted);
    let (kept, manager) = (world.kept().restarted(), world.manager);
    let mut world = World::after(kept.clone(), manager);
    assert_eq!(world.lock(&other, FILE, ALL), Status::DeniedGracePeriod);
    let reclaims = Want { reclaim: true, ..ALL };
    assert_eq!(world.lock(&other, FILE, reclaims), Status::Denied, "it had none");
    let call = world.calls().pop().unwrap();
    assert_eq!((call.client, call.of), (address(1), NOTIFY));
    let notice: nsm::Notice<'_> = decoded(&call.arguments).unwrap();
    assert_eq!((notice.host.0, notice.state), (&b"10.0.0.100"[..], kept.state));
    assert_eq!(kept.state, 5);
    world.answer(&call, b"");
    assert_eq!(world.lock(&one, FILE, reclaims), Status::Granted);
    assert_eq!((world.reclaimed, world.manager.held.len()), (1, 1), "its number is the same");
    world.pass(GRACE_QUIET_SPAN - Duration::from_millis(1));
    assert_eq!(world.lock(&other, FILE, ALL), Status::DeniedGracePeriod);
    world.pass(GRACE_QUIET_SPAN);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Denied, "it was reclaimed");
    assert_eq!(world.lock(&one, FILE, reclaims), Status::Granted, "again");
    assert_eq!(world.lock(&who(1, 9), FileId::ROOT, reclaims), Status::Denied, "too late");
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Granted);
    world.check();
}

#[test]
fn a_client_that_does_not_hear_of_the_restart_delays_others_for_a_bounded_time() {
    let gone = Monitored { client: address(1), own: SERVER, name: b"gone".as_slice().into() };
    let kept = Kept { state: 5, clients: vec![gone] };
    let mut world = World::after(kept, Manager::default());
    world.mapped = false;
    world.pass(GRACE_SPAN - Duration::from_secs(1));
    assert_eq!(world.lock(&who(2, 2), FILE, ALL), Status::DeniedGracePeriod);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.lock(&who(2, 2), FILE, ALL), Status::Granted);
    world.pass(NOTIFY_SPAN);
    world.calls();
    world.pass(NOTIFY_SPAN);
    assert!(world.calls().is_empty(), "it is given up");
}

#[test]
fn a_server_without_clients_begins_without_grace() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
}
