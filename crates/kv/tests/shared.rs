//! Several front ends that are one key space: every key at its owner, whichever node a client speaks with.

use crate::front::*;
use kv::Protocol;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn world() -> World {
    World::new(Plan { nodes: 4, fronts: 3, shared: true, ..Plan::default() })
}

/// Number of items of each front end.
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
    for key in &refused {
        // one answer each, so that the next one is the next command's
        assert_eq!(world.ask(client, format!("gat 1000 k{key}\r\n").as_bytes()), b"END\r\n");
        assert_eq!(world.ask(client, format!("get k{key} k{key}\r\n").as_bytes()), b"END\r\n");
        assert!(world.ask(client, b"version\r\n").starts_with(b"VERSION"));
    }
    let resp = world.client(1, Protocol::Resp);
    let all: String = (0..60).map(|key| format!(" m{key} v")).collect();
    let answer = world.ask(resp, format!("MSET{all}\r\n").as_bytes());
    assert!(answer.starts_with(b"-TRYAGAIN a node that keeps a part of the keys"), "{answer:?}");
    let mut get = |key| world.ask(resp, format!("GET m{key}\r\n").as_bytes());
    let stored = (0..60).filter(|key| get(*key) == b"$1\r\nv\r\n").count();
    assert!((1..60).contains(&stored), "the others' were stored: {stored}");
    let answer = world.ask(client, b"flush_all\r\n");
    assert!(answer.starts_with(b"SERVER_ERROR a node that keeps a part"), "{answer:?}");
    for key in (0..60).filter(|key| !refused.contains(key)) {
        assert!(world.set(client, &format!("k{key}"), b"after"), "all but that one's are gone");
    }
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
fn a_new_owner_gives_no_cas_unique_again() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    let key = key_of(&mut world, 3);
    let unique = |answer: &str| answer.split([' ', '\r']).nth(4).unwrap().parse::<u64>().unwrap();
    let before = unique(&text(world.ask(client, format!("gets {key}\r\n").as_bytes())));
    world.kill(3);
    world.next_view();
    assert!(world.set(client, &key, b"after"));
    let after = unique(&text(world.ask(client, format!("gets {key}\r\n").as_bytes())));
    assert!(after > before, "{before} {after}");
    let told = world.ask(client, format!("cas {key} 0 0 1 {before}\r\nx\r\n").as_bytes());
    assert_eq!(told, b"EXISTS\r\n");
}

#[test]
fn keys_that_have_moved_take_no_memory_where_they_were() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    world.kill(3);
    world.next_view();
    assert!((0..90).all(|key| world.set(client, &format!("k{key}"), b"value")));
    world.revive(3);
    world.next_view();
    let moment = world.moment();
    world.fronts.iter().for_each(|front| front.items.borrow_mut().sweep(moment));
    let there = (0..90).filter(|key| world.get(client, &format!("k{key}")).is_some()).count();
    assert!((30..90).contains(&there), "{there}");
    assert_eq!(held(&world).iter().sum::<usize>(), there);
    let resp = world.client(2, Protocol::Resp);
    assert_eq!(text(world.ask(resp, b"DBSIZE\r\n")), format!(":{there}\r\n"));
    assert_eq!(scan(&mut world, resp, "").0.len(), there);
}

/// A client that reads nothing has no more than its part of the node's frames, which messages need.
#[test]
fn answers_that_nobody_reads_wait_in_memory_of_the_items() {
    let mut world = long_world();
    let client = world.client(1, Protocol::Memcached);
    let key = key_of(&mut world, 2);
    assert!(world.set(client, &key, &value(1, 1, 100_000)));
    let free = world.net.nodes[0].cx().frames().free_pages();
    world.clients[client].deaf = true;
    world.send(client, format!("get {key}\r\n").repeat(500).as_bytes());
    (0..3000).for_each(|_| world.turn());
    let taken = free.saturating_sub(world.net.nodes[0].cx().frames().free_pages());
    assert!(taken < 16, "{taken} pages");
    let other = world.client(1, Protocol::Memcached);
    assert_eq!(world.get(other, &key), Some(value(1, 1, 100_000)), "others are served");
    world.clients[client].deaf = false;
    let answer = world.ask(client, b"");
    assert_eq!(answer.len(), 500 * (format!("VALUE {key} 5 100000\r\n").len() + 100_000 + 7));
}

/// Values longer than a message of NetRPC, which has 1 MiB.
fn long_world() -> World {
    World::new(Plan { nodes: 4, fronts: 3, shared: true, memory: 12 << 20, ..Plan::default() })
}

/// A key that a node keeps.
fn key_of(world: &mut World, node: u16) -> String {
    let client = world.client(1, Protocol::Memcached);
    (0..)
        .map(|number| format!("at{node}-{number}"))
        .find(|key| {
            let before = held(world)[usize::from(node) - 1];
            assert!(world.set(client, key, b"here"));
            held(world)[usize::from(node) - 1] > before
        })
        .unwrap()
}

#[test]
fn values_of_any_length_are_carried() {
    let mut world = long_world();
    let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Memcached)).collect();
    let keys: Vec<String> = (1..=3).map(|node| key_of(&mut world, node)).collect();
    let lens = [16_000, 520_000, 600_000, (1 << 20) - 300, 1 << 20, (1 << 20) + 1, 3_000_000];
    for (round, len) in lens.into_iter().enumerate() {
        for (at, key) in keys.iter().enumerate() {
            let bytes = value(at as u64, round as u64, len);
            assert!(world.set(clients[(at + round) % 3], key, &bytes), "{len} at {key}");
            for client in &clients {
                assert!(world.get(*client, key) == Some(bytes.clone()), "{len} at {key}");
            }
        }
    }
    let long = value(9, 9, 6 << 20);
    assert!(world.set(clients[0], &keys[2], &long), "the longest");
    assert!(world.get(clients[1], &keys[2]) == Some(long));
    let head = format!("set {} 0 0 {}\r\n", keys[1], (6 << 20) + 1);
    let longer = [head.as_bytes(), &vec![0; (6 << 20) + 3]].concat();
    assert_eq!(world.ask(clients[0], &longer), b"SERVER_ERROR object too large for cache\r\n");
}

/// By memcached's protocol, at its owner and in order; by Redis's it is what it was.
#[test]
fn a_value_that_is_too_long_takes_the_old_one_with_it_wherever_that_is() {
    let mut world = long_world();
    let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Memcached)).collect();
    let keys: Vec<String> = (1..=3).map(|node| key_of(&mut world, node)).collect();
    let len = (6 << 20) + 1;
    let too_long = |head: String| [head.as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    let refused = "SERVER_ERROR object too large for cache\r\n";
    for key in &keys {
        assert!(world.set(clients[0], key, b"before"));
        let resp = world.client(1, Protocol::Resp);
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len());
        let answer = text(world.ask(resp, &too_long(head)));
        assert!(answer.starts_with("-ERR string exceeds"), "{answer}");
        assert_eq!(world.get(clients[1], key), Some(b"before".to_vec()));

        let head = format!("incr {key} 1\r\nms {key} {len}\r\n");
        let answer = text(world.ask(clients[0], &too_long(head)));
        assert!(answer.ends_with(refused) && answer.starts_with("CLIENT_ERROR"), "{answer}");
        assert_eq!(world.get(clients[1], key), None, "{key}");

        assert!(world.set(clients[0], key, b"before"));
        let head = format!("set {key} 5 0 {len} noreply\r\n");
        let commands = [&too_long(head)[..], format!("get {key}\r\n").as_bytes()].concat();
        assert_eq!(text(world.ask(clients[0], &commands)), "END\r\n", "{key}");
    }
}

/// Keys of one slot go together: the last value of a key counts, and what is on its way is counted.
#[test]
fn commands_with_many_keys_are_split_by_slots() {
    let mut world = world();
    let client = world.client(1, Protocol::Resp);
    let pairs: String =
        (0..6000).map(|n| format!("$5\r\nk{:04}\r\n$1\r\n{}\r\n", n % 3000, n / 3000)).collect();
    let command = format!("*12001\r\n$4\r\nMSET\r\n{pairs}");
    assert_eq!(text(world.ask(client, command.as_bytes())), "+OK\r\n");
    assert_eq!(held(&world).iter().sum::<usize>(), 3000);
    let keys: String = (0..4000).map(|n| format!("$5\r\nk{n:04}\r\n")).collect();
    let command = |name: &str| format!("*4001\r\n${}\r\n{name}\r\n{keys}", name.len());
    let told = text(world.ask(client, command("MGET").as_bytes()));
    assert_eq!(
        (told.matches("$1\r\n1\r\n").count(), told.matches("$-1\r\n").count()),
        (3000, 1000)
    );
    assert_eq!(text(world.ask(client, command("EXISTS").as_bytes())), ":3000\r\n");
    world.send(client, command("DEL").as_bytes());
    assert!(world.clients[client].held_bytes() > 20_000, "{}", world.clients[client].held_bytes());
    assert_eq!(text(world.ask(client, b"")), ":3000\r\n");
    assert_eq!(world.clients[client].held_bytes(), 0);
    assert_eq!(held(&world), [0, 0, 0]);
}

#[test]
fn a_miss_says_what_it_was_asked_to_say() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    for key in ["a", "b", "c", "d", "e", "f"] {
        let line = format!("mg {key} v k s Oabc\r\nmg {key} k q\r\nmg eHg{key} b k\r\n");
        let answer = text(world.ask(client, line.as_bytes()));
        assert_eq!(answer, format!("EN k{key} Oabc\r\nEN keHg{key} b\r\n"));
    }
    world.kill(3);
    for key in 0..20 {
        let answer = text(world.ask(client, format!("mg k{key} v k Oabc\r\n").as_bytes()));
        assert_eq!(answer, format!("EN kk{key} Oabc\r\n"), "also when its owner is away");
    }
}

/// Each GETSET is executed once, whatever the link does: it answers with the value before, to the last byte.
#[test]
fn long_changes_are_executed_once_on_a_bad_link() {
    for seed in 0..3 {
        let mut world = long_world();
        let key = key_of(&mut world, 2);
        let clients: Vec<usize> = (1..=3).map(|node| world.client(node, Protocol::Resp)).collect();
        world.net.fate = bad_link(seed);
        let mut before = b"here".to_vec();
        for round in 0..8 {
            let next = value(seed, round, [1_500_000, 40, 700_000, 1 << 20][round as usize % 4]);
            let head =
                format!("*3\r\n$6\r\nGETSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), next.len());
            let text = [head.as_bytes(), &next, b"\r\n"].concat();
            let expected = [format!("${}\r\n", before.len()).as_bytes(), &before, b"\r\n"].concat();
            assert!(world.ask(clients[round as usize % 3], &text) == expected, "{seed} {round}");
            before = next;
        }
        let ask = format!("MGET {key} nothing\r\nGETDEL {key}\r\nGET {key}\r\n");
        let bulk = [format!("${}\r\n", before.len()).as_bytes(), &before, b"\r\n"].concat();
        let expected = [b"*2\r\n", &bulk[..], b"$-1\r\n", &bulk, b"$-1\r\n"].concat();
        assert!(world.ask(clients[0], ask.as_bytes()) == expected, "{seed}");
    }
}

#[test]
fn who_dies_in_the_middle_of_a_long_value_leaves_nothing_behind() {
    let mut world = long_world();
    let (client, other) =
        (world.client(1, Protocol::Memcached), world.client(2, Protocol::Memcached));
    let keys = [key_of(&mut world, 2), key_of(&mut world, 3)];
    let bytes = value(1, 1, 4 << 20);
    let set = |key: &str| {
        let head = format!("set {key} 5 0 {}\r\n", bytes.len());
        [head.as_bytes(), &bytes, b"\r\n"].concat()
    };
    // the owner
    world.send(client, &set(&keys[1]));
    world.until(|world| world.fronts[2].courier.parts_held() > 0);
    world.kill(3);
    let answer = text(world.ask(client, b""));
    assert!(answer.starts_with("SERVER_ERROR the node that keeps the key is away"), "{answer}");
    world.next_view();
    assert!(
        world.set(client, &keys[1], &bytes) && world.get(other, &keys[1]) == Some(bytes.clone())
    );
    // who asks
    world.send(client, &set(&keys[0]));
    world.until(|world| world.fronts[1].courier.parts_held() > 0);
    world.kill(1);
    world.next_view();
    world.until(|world| world.fronts[1].courier.parts_held() == 0);
    assert_eq!(world.get(other, &keys[0]), Some(b"here".to_vec()), "nothing was changed");
    assert!(world.set(other, &keys[0], &bytes), "its memory is free again");
}

/// All keys of a cursor's whole way, and how many steps it took.
fn scan(world: &mut World, client: usize, more: &str) -> (Vec<String>, usize) {
    let (mut keys, mut cursor, mut steps) = (Vec::new(), "0".to_string(), 0);
    loop {
        let answer = text(world.ask(client, format!("SCAN {cursor} {more}\r\n").as_bytes()));
        let mut lines = answer.split("\r\n").filter(|line| !line.starts_with(['*', '$']));
        cursor = lines.next().unwrap().to_string();
        keys.extend(lines.filter(|line| !line.is_empty()).map(String::from));
        steps += 1;
        if cursor == "0" {
            keys.sort();
            return (keys, steps);
        }
    }
}

#[test]
fn a_cursor_goes_through_all_members() {
    let mut world = world();
    let writer = world.client(2, Protocol::Memcached);
    let mut expected: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
    assert!(expected.iter().all(|key| world.set(writer, key, b"value")));
    expected.sort();
    for node in 1..=3 {
        let client = world.client(node, Protocol::Resp);
        let (found, steps) = scan(&mut world, client, "COUNT 7");
        assert_eq!(found, expected);
        assert!(steps > 40, "{steps}");
        let (found, _) = scan(&mut world, client, "COUNT 1000 MATCH k29?");
        assert_eq!(found.len(), 10);
        let keys = text(world.ask(client, b"KEYS k1?\r\n"));
        assert!(keys.starts_with("*10\r\n") && keys.matches("\r\nk1").count() == 10, "{keys}");
        assert_eq!(world.ask(client, b"SCAN x\r\n"), b"-ERR invalid cursor\r\n");
    }
    // the member that it has come to goes away in the middle of it
    let client = world.client(1, Protocol::Resp);
    let lost = held(&world)[1];
    let there = (2u64 << 32 | 5).to_string();
    world.kill(2);
    let refused = text(world.ask(client, format!("SCAN {there}\r\n").as_bytes()));
    assert!(refused.starts_with("-TRYAGAIN"), "{refused}");
    world.next_view();
    let next = text(world.ask(client, format!("SCAN {there} COUNT 1000\r\n").as_bytes()));
    assert!(next.starts_with("*2\r\n$1\r\n0\r\n*"), "it goes on with the third: {next}");
    assert_eq!(scan(&mut world, client, "").0.len(), 300 - lost);
    assert_eq!(text(world.ask(client, b"FLUSHALL\r\nKEYS *\r\n")), "+OK\r\n*0\r\n");
    let past = (9u64 << 32).to_string();
    assert_eq!(
        text(world.ask(client, format!("SCAN {past}\r\n").as_bytes())),
        "*2\r\n$1\r\n0\r\n*0\r\n"
    );
}

/// Messages of no known form on the channel are refused, and nothing is executed.
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
