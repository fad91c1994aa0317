//! Random acts of clients, and garbage.

use super::*;

#[derive(Clone, Debug)]
enum Act {
    Lock(Want),
    Unlock(u64, u64),
    Cancel(Want),
    Restart,
    /// The client answers what it was called for, with this outcome.
    Answer(bool),
    Pass,
}

fn acts() -> impl Strategy<Value = Vec<(u8, i32, Act)>> {
    let want = (0u64..6, 1u64..6, any::<bool>(), any::<bool>()).prop_map(
        |(offset, bytes, exclusive, block)| Want {
            offset,
            bytes,
            exclusive,
            block,
            reclaim: false,
        },
    );
    let act = prop_oneof![
        6 => want.clone().prop_map(Act::Lock),
        3 => (0u64..6, 1u64..8).prop_map(|(offset, bytes)| Act::Unlock(offset, bytes)),
        1 => want.prop_map(Act::Cancel),
        1 => Just(Act::Restart),
        3 => any::<bool>().prop_map(Act::Answer),
        1 => Just(Act::Pass),
    ];
    prop::collection::vec((0u8..3, 0i32..2, act), 0..60)
}

proptest! {
    #[test]
    fn ranges_come_back(offset in 0u64..1 << 63, bytes in 0u64..1 << 62) {
        let (start, end) = range(offset, bytes).unwrap();
        prop_assert_eq!(span(start, end), (offset, bytes));
    }

    #[test]
    fn garbage_breaks_nothing(
        program in 0usize..2, procedure in 0u32..25, arguments in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut world = World::new();
        let of = [(nlm::PROGRAM, nlm::VERSION), (nsm::PROGRAM, nsm::VERSION)][program];
        let credential = Credential::None;
        let (program, version) = of;
        let mut bytes = Vec::new();
        Call { xid: 1, program, version, procedure, credential, arguments: &arguments }.put(&mut bytes);
        let from = SocketAddr::new(address(1), 700);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        world.front.datagram(origin, &bytes);
        while let Some(request) = world.front.poll_request() {
            world.serve(request);
        }
        world.front.datagram(origin, &arguments);
        prop_assert_eq!(world.server.locks().borrow().held(), 0);
    }

    /// Any acts of clients in any order: the manager holds the locks that clients were told of, and with all of them
    /// restarted nothing is left.
    #[test]
    fn the_manager_holds_what_clients_were_told(acts in acts()) {
        let mut world = World::new();
        let mut state = 100;
        for (client, process, act) in acts {
            let one = Who { name: [&b"a"[..], b"b", b"c"][usize::from(client)], ..who(client, process) };
            match act {
                Act::Lock(want) => drop(world.lock(&one, FILE, want)),
                Act::Unlock(offset, bytes) => drop(world.unlock(&one, FILE, offset, bytes)),
                Act::Cancel(want) => drop(world.cancel(&one, FILE, want)),
                Act::Restart => {
                    state += 2;
                    world.notify(one.address, one.name, state);
                }
                Act::Answer(takes) => {
                    let status = if takes { Status::Granted } else { Status::Denied };
                    let its: Vec<Called> = world.calls();
                    for call in its.iter().filter(|call| call.client == one.address) {
                        world.answer(call, &answered(status));
                    }
                }
                Act::Pass => world.pass(Duration::from_secs(1)),
            }
            world.pass(Duration::ZERO);
            let mut told: Vec<(u64, u64, LockKind)> = world.server.locks().borrow().holdings()
                .filter(|it| !it.waits).map(|it| (it.lock.start, it.lock.end, it.lock.kind)).collect();
            let mut held = [(0, LockKind::Unlock); 16];
            told.sort_by_key(|it| it.0);
            let mut noted = [(0, LockKind::Unlock); 16];
            for (start, end, kind) in told {
                for at in start..=end.min(15) {
                    noted[at as usize] = (noted[at as usize].0 + 1, kind);
                }
            }
            for (_, _, lock) in &world.manager.held {
                for at in lock.start..=lock.end.min(15) {
                    held[at as usize] = (held[at as usize].0 + 1, lock.kind);
                }
            }
            prop_assert_eq!(noted, held);
            world.check();
        }
        for client in 0..3u8 {
            let name = [&b"a"[..], b"b", b"c"][usize::from(client)];
            world.notify(address(client), name, 99);
        }
        world.pass(LOOK_SPAN);
        prop_assert!(world.manager.held.is_empty() && world.manager.waiting.is_empty());
        let locks = world.server.locks().borrow();
        prop_assert_eq!((locks.held(), locks.waiting(), locks.is_quiet()), (0, 0, true));
    }
}
