//! Bounds of what clients can hold, the monitor, and a stop.

use super::*;

#[test]
fn what_clients_can_hold_is_bounded() {
    let mut world = World::new();
    let waits = |offset| Want { offset, bytes: 1, block: true, ..ALL };
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    for offset in 0..LOCK_WAITERS_OF_HOST_MAX as u64 {
        assert_eq!(world.lock(&who(2, 2), FILE, waits(offset)), Status::Blocked);
    }
    let more = waits(LOCK_WAITERS_OF_HOST_MAX as u64);
    assert_eq!(world.lock(&who(2, 2), FILE, more), Status::DeniedNoLocks);
    assert_eq!(world.lock(&who(3, 2), FILE, waits(0)), Status::Blocked, "others wait on");
    world.notify(address(2), b"client", 99);
    world.pass(LOOK_SPAN);
    assert_eq!(world.manager.waiting.len(), 1);
    let long = Who { owner: &[b'o'; LOCK_OWNER_BYTES_MAX + 1], ..who(1, 1) };
    assert_eq!(world.lock(&long, FileId::ROOT, ALL), Status::DeniedNoLocks);
    let shared = Want { exclusive: false, ..ALL };
    let mut refused = 0;
    for number in 0..LOCK_HOSTS_MAX as u16 + 5 {
        let [high, low] = number.to_be_bytes();
        let other = Who { address: Ipv4Addr::new(10, 0, high + 1, low).into(), ..who(1, 1) };
        refused += usize::from(world.lock(&other, FileId::ROOT, shared) == Status::DeniedNoLocks);
    }
    assert!(refused > 0 && world.server.locks().borrow().clients() <= LOCK_HOSTS_MAX);
    assert!(world.kept().encode().len() <= 64 << 10);
}

#[test]
fn the_monitor_monitors_nobody_for_others() {
    let mut world = World::new();
    let call_back =
        nsm::CallBack { host: nsm::Host(b"me"), program: 100_021, version: 4, procedure: 16 };
    let id = nsm::MonitorId { host: nsm::Host(b"you"), call_back };
    let mut ask = |procedure: nsm::Procedure, arguments: Vec<u8>| {
        world.call(address(1), (nsm::PROGRAM, nsm::VERSION, procedure as u32), &arguments)
    };
    let refused = encoded(&nsm::StatResult { outcome: nsm::Outcome::Failed, state: 3 });
    let monitor = nsm::Monitor { id, private: [1; 16] };
    assert_eq!(ask(nsm::Procedure::Mon, encoded(&monitor)), refused);
    assert_eq!(ask(nsm::Procedure::Stat, encoded(&nsm::Host(b"you"))), refused);
    assert_eq!(ask(nsm::Procedure::Unmon, encoded(&id)), encoded(&3));
    assert_eq!(ask(nsm::Procedure::UnmonAll, encoded(&call_back)), encoded(&3));
    assert!(ask(nsm::Procedure::SimuCrash, Vec::new()).is_empty());
    assert!(ask(nsm::Procedure::Null, Vec::new()).is_empty());
}

#[test]
fn a_server_that_stops_gives_up_what_waits() {
    let mut world = World::new();
    assert_eq!(world.lock(&who(1, 1), FILE, ALL), Status::Granted);
    assert_eq!(world.lock(&who(2, 2), FILE, Want { block: true, ..ALL }), Status::Blocked);
    world.front.stop();
    world.run();
    assert!(world.front.is_quiet() && world.manager.waiting.is_empty());
}
