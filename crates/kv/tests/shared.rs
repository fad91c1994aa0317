//! Several front ends that are one key space: every key at its owner, whichever node a client speaks with.

mod front;

use front::*;
use kv::Protocol;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn world() -> World {
    World::new(Plan { nodes: 4, fronts: 3, shared: true, ..Plan::default() })
}

/// How many items each front end has.
fn held(world: &World) -> Vec<usize> {
    world.fronts.iter().map(|front| front.items.borrow().holds(TENANT).0).collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_key_is_seen_at_every_node() {
    let mut world = world();
    let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Memcached)).collect();
    for key in 0..90 {
        assert!(world.set(clients[key % 3], &format!("k{key}"), &value(key as u64, 0, 3000)));
    }
    assert_eq!(held(&world).iter().sum::<usize>(), 90, "each key at one node");
    assert!(held(&world).iter().all(|items| *items > 10), "{:?}", held(&world));
    for client in &clients {
        for key in 0..90 {
            let got = world.get(*client, &format!("k{key}"));
            assert_eq!(got, Some(value(key, 0, 3000)), "k{key}");
        }
    }
    let resp = world.client(2, Protocol::Resp);
    assert_eq!(
        text(world.ask(resp, b"DBSIZE\r\nDEL k0 k1 k2 k3 k4 nothing\r\nDBSIZE\r\n")),
        ":90\r\n:5\r\n:85\r\n"
    );
    assert_eq!(
        text(world.ask(resp, b"EXISTS k0 k5 k6 k7 k7\r\nFLUSHALL\r\nDBSIZE\r\n")),
        ":4\r\n+OK\r\n:0\r\n"
    );
    assert_eq!(held(&world), [0, 0, 0]);
}

#[test]
fn all_protocols_are_carried() {
    for node in 1..=3 {
        let mut world = world();
        let text_client = world.client(node, Protocol::Memcached);
        let mut ask = |bytes: &str| text(world.ask(text_client, bytes.as_bytes()));
        for key in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(ask(&format!("set {key} 7 0 2\r\n10\r\n")), "STORED\r\n");
            assert_eq!(ask(&format!("add {key} 7 0 2\r\n10\r\n")), "NOT_STORED\r\n");
            assert_eq!(ask(&format!("incr {key} 5\r\n")), "15\r\n");
            assert_eq!(
                ask(&format!("append {key} 0 0 2 noreply\r\nxy\r\nget {key}\r\n")),
                format!("VALUE {key} 7 4\r\n15xy\r\nEND\r\n")
            );
            assert_eq!(ask(&format!("ms {key} 3 T0 F9\r\nabc\r\n")), "HD\r\n");
            assert_eq!(ask(&format!("mg {key} v f k\r\n")), format!("VA 3 f9 k{key}\r\nabc\r\n"));
            assert_eq!(ask(&format!("mg {key}-no v\r\nmg {key}-no v q\r\nmn\r\n")), "EN\r\nMN\r\n");
            assert_eq!(
                ask(&format!("touch {key} 100\r\nmd {key} q\r\nmg {key} v\r\n")),
                "TOUCHED\r\nEN\r\n"
            );
            assert_eq!(ask(&format!("delete {key}\r\n")), "NOT_FOUND\r\n");
            assert_eq!(
                ask(&format!("incr {key} x\r\n")),
                "CLIENT_ERROR invalid numeric delta argument\r\n"
            );
        }
        let resp = world.client(node, Protocol::Resp);
        let mut ask = |bytes: &str| text(world.ask(resp, bytes.as_bytes()));
        assert_eq!(
            ask("MSET a 1 b 2 c 3 d 4\r\nMGET a b x c d\r\n"),
            "+OK\r\n*5\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n$1\r\n4\r\n"
        );
        for key in ["a", "b", "c", "d"] {
            assert_eq!(
                ask(&format!("INCRBY {key} 10\r\nSTRLEN {key}\r\nTTL {key}\r\n"))[3..],
                *"\r\n:2\r\n:-1\r\n"
            );
            assert_eq!(
                ask(&format!("GETSET {key} new\r\nGETDEL {key}\r\nGET {key}\r\n"))[6..],
                *"\r\n$3\r\nnew\r\n$-1\r\n"
            );
            assert_eq!(
                ask(&format!("SET {key}\r\n")),
                "-ERR wrong number of arguments for 'set' command\r\n"
            );
        }
        assert!(ask("HELLO 3\r\n").starts_with("%7"));
        assert_eq!(
            ask("MGET n1 n2 n3 n4 n5\r\n"),
            "*5\r\n_\r\n_\r\n_\r\n_\r\n_\r\n",
            "in the client's version"
        );
        assert!(ask("MSETNX n1 1 n2 1 n3 1 n4 1 n5 1\r\n").starts_with("-CROSSSLOT"));
        assert_eq!(ask("MSETNX n1 1\r\nMSETNX n1 2\r\nGET n1\r\n"), ":1\r\n:0\r\n$1\r\n1\r\n");
    }
}

#[test]
fn commands_of_a_connection_are_executed_in_order() {
    let mut world = world();
    // the later a packet the sooner it arrives, now and then
    world.net.fate = Box::new(|packet| (1, (wire::mix(packet) % 8) as usize));
    let client = world.client(1, Protocol::Resp);
    let (mut commands, mut expected) = (String::new(), String::new());
    for round in 0..40 {
        for key in 0..6 {
            commands +=
                &format!("GET k{key}\r\nSET k{key} {round}\r\nGET k{key}\r\nINCR k{key}\r\n");
            expected += &match round {
                0 => "$-1\r\n".to_string(),
                _ => format!("${}\r\n{round}\r\n", round.to_string().len()),
            };
            let len = round.to_string().len();
            expected += &format!("+OK\r\n${len}\r\n{round}\r\n:{}\r\n", round + 1);
        }
    }
    assert_eq!(text(world.ask(client, commands.as_bytes())), expected);
}

#[test]
fn an_owner_that_is_down_is_a_miss_and_a_clear_error() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    for key in 0..60 {
        world.set(client, &format!("k{key}"), b"before");
    }
    let lost = held(&world)[2];
    world.kill(3);
    let there = (0..60).filter(|key| world.get(client, &format!("k{key}")).is_some()).count();
    assert_eq!(there, 60 - lost, "the others' keys are there, its own are missed");
    let mut refused = Vec::new();
    for key in 0..60 {
        let answer = world.ask(client, format!("set k{key} 5 0 5\r\nafter\r\n").as_bytes());
        if answer != b"STORED\r\n" {
            assert!(
                answer.starts_with(b"SERVER_ERROR the node that keeps the key is away"),
                "{answer:?}"
            );
            refused.push(key);
        }
    }
    assert_eq!(refused.len(), lost);
    world.next_view();
    for key in 0..60 {
        let got = world.get(client, &format!("k{key}"));
        let expected = (!refused.contains(&key)).then(|| b"after".to_vec());
        assert_eq!(got, expected, "the new owner begins with nothing");
        assert!(world.set(client, &format!("k{key}"), b"again"));
    }
    // what the others kept for it meanwhile is not there any more when it was its own for a while
    world.revive(3);
    world.next_view();
    let there = (0..60).filter(|key| world.get(client, &format!("k{key}")).is_some()).count();
    assert_eq!(there, 60 - lost);
    for key in &refused {
        assert!(world.set(client, &format!("k{key}"), b"newer"));
    }
    world.kill(3);
    world.next_view();
    assert!(refused.iter().all(|key| world.get(client, &format!("k{key}")).is_none()));
}

#[test]
fn who_begins_to_serve_in_the_middle_of_a_view_waits_for_the_next() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    assert!((0..60).all(|key| world.set(client, &format!("k{key}"), b"value")));
    world.begin_late();
    (0..2000).for_each(|_| world.turn());
    assert!(!world.fronts[3].courier.is_settled(), "the others have settled the view without it");
    assert!((0..60).all(|key| world.get(client, &format!("k{key}")).is_some()));
    world.next_view();
    let late = world.client(4, Protocol::Memcached);
    let there = (0..60).filter(|key| world.get(late, &format!("k{key}")).is_some()).count();
    assert!((30..60).contains(&there), "{there}: its own part begins with nothing");
}

#[test]
fn long_values_are_carried_up_to_a_message() {
    let mut world = world();
    let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Memcached)).collect();
    for (client, key) in clients.iter().flat_map(|client| (0..4).map(move |key| (*client, key))) {
        let bytes = value(key, 1, 200_000);
        assert!(world.set(client, &format!("long{key}"), &bytes));
        for reader in &clients {
            assert!(world.get(*reader, &format!("long{key}")) == Some(bytes.clone()), "{key}");
        }
    }
}

#[test]
fn a_connection_has_a_bounded_number_of_commands_at_other_nodes() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    world.send(client, "get some-key other-key\r\n".repeat(2000).as_bytes());
    assert!(world.fronts[0].items.borrow().carries() <= 130);
    assert_eq!(world.ask(client, b""), "END\r\n".repeat(2000).as_bytes());
}

/// What a stranger may send on the channel is refused, and nothing is executed.
#[test]
fn messages_that_are_none_are_refused() {
    let mut world = world();
    let cx = world.net.nodes[3].cx().clone();
    let (good, run) = (b"\x07defaultflush_all\r\n", 2);
    let mut body = [0; 13];
    body[0] = 1;
    body[9] = 255;
    let cases: [(u16, &[u8], &[u8], u16); 8] = [
        (run, &body, good, 0),
        (run, &body, b"\x07defaultnonsense\r\n", 0),
        (run, &body, b"\x09nobody-isflush_all\r\n", 3),
        (run, &body, b"\xff", 5),
        (run, &body, b"", 5),
        (run, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 255], good, 5),
        (run, &[7], good, 1),
        (99, &body, good, 5),
    ];
    for (number, (op, body, data, status)) in cases.into_iter().enumerate() {
        let (task, body, data) = (cx.clone(), body.to_vec(), data.to_vec());
        let asked = world.start_task(4, async move {
            let frame = (!data.is_empty()).then(|| task.frames().copy_of(&data).unwrap());
            let call = node::Call {
                to: wire::NodeId(1),
                channel: wire::Channel::KEYS,
                op,
                once: true,
                deadline: None,
                body: &body,
                data: frame.map_or_else(|| task.pieces(), |frame| task.piece(frame)),
                trailer: &[],
                into: task.piece(task.frames().alloc(4096).unwrap()),
            };
            task.call(call).await.unwrap().status
        });
        world.until(|_| asked.borrow().is_some());
        assert_eq!(asked.take(), Some(status), "case {number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// A bad link; nodes die and come back, sometimes between the views; clients at all nodes, one command at a time: a
    /// key has its last value or none, and with a living owner the last one.
    #[test]
    fn no_wrong_value_and_nothing_lost_of_a_living_owner(
        steps in prop::collection::vec((0u64..40, 0u8..9, 0u16..3, 1usize..9000), 100..250),
        seed: u64,
    ) {
        let mut world = world();
        world.net.fate = Box::new(move |packet| match wire::mix(seed ^ packet) % 100 {
            0..3 => (0, 0),
            3..6 => (2, 3),
            6..12 => (1, 5),
            _ => (1, 0),
        });
        let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Memcached)).collect();
        // the values that a key may have, and whether it must have one
        let mut model: BTreeMap<u64, (Vec<Vec<u8>>, bool)> = BTreeMap::new();
        for (at, (key, what, node, len)) in steps.into_iter().enumerate() {
            let node = (0..3).map(|n| (node + n) % 3 + 1).find(|node| world.is_up(*node)).unwrap();
            let (client, name) = (clients[usize::from(node) - 1], format!("k{key}"));
            match what {
                0..=3 => {
                    let bytes = value(key, at as u64, len);
                    let stored = world.set(client, &name, &bytes);
                    let known = model.entry(key).or_default();
                    match stored {
                        true => *known = (vec![bytes], true),
                        false => {
                            known.0.push(bytes);
                            known.1 = false;
                        }
                    }
                }
                4 if world.down.is_empty() => {
                    world.kill(node);
                    // whose keys they were is the view's business: nothing has to be there
                    model.values_mut().for_each(|known| known.1 = false);
                }
                5 => {
                    if let Some(down) = world.down.first().copied().filter(|_| seed % 2 == 0) {
                        world.next_view();
                        world.revive(down);
                        world.clients[clients[usize::from(down) - 1]].ended = false;
                    }
                    world.next_view();
                    model.values_mut().for_each(|known| known.1 = false);
                }
                _ => {
                    let got = world.get(client, &name);
                    let (values, must) = model.get(&key).cloned().unwrap_or_default();
                    match got {
                        Some(got) => prop_assert!(values.contains(&got), "{name} at {at}"),
                        None => prop_assert!(!must, "{name} at {at} is lost"),
                    }
                }
            }
        }
    }
}
