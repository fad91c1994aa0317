//! Values in network memory: an evicted one comes back, a lost one is a miss, and no client waits for another's value.

use crate::front::*;
use kv::Protocol;
use netmem::Class;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEYS: u64 = 300;

/// 2.3 MiB of values in 1 MiB of memory.
fn filled(plan: Plan) -> (World, usize) {
    let mut world = World::new(plan);
    let client = world.client(1, Protocol::Memcached);
    for key in 0..KEYS {
        assert!(world.set(client, &format!("key-{key}"), &value(key, 0, 8000)), "{key}");
        world.turn();
        assert!(world.fronts[0].items.borrow().holds(TENANT).1 <= MEMORY);
    }
    (world, client)
}

/// Number of keys, all with their values.
fn count(world: &mut World, client: usize) -> u64 {
    let there = (0..KEYS).filter(|key| {
        let got = world.get(client, &format!("key-{key}"));
        got.inspect(|got| assert_eq!(*got, value(*key, 0, 8000), "key-{key}")).is_some()
    });
    there.count() as u64
}

/// Number of mirrors on a node, which are the pages of the front end's values.
fn mirrors(world: &World, node: u16) -> usize {
    world.services[usize::from(node) - 1].counts().mirror as usize
}

#[test]
fn what_is_evicted_comes_back() {
    let (mut world, client) = filled(Plan::default());
    let sent = world.fronts[0].items.borrow().away_counters(TENANT).sent;
    assert!(sent > KEYS / 2, "{sent}");
    assert_eq!(count(&mut world, client), KEYS);
    assert_eq!(
        count(&mut world, client),
        KEYS,
        "again, when some came home and others left for them"
    );
    assert_eq!(count(&mut world, client), KEYS);
    let counters = world.fronts[0].items.borrow().away_counters(TENANT);
    assert!(counters.returned > 0 && counters.lost == 0 && counters.dropped == 0, "{counters:?}");
}

#[test]
fn the_part_that_is_away_is_bounded_too() {
    let plan = Plan { away_max_bytes: 512 << 10, ..Plan::default() };
    let (mut world, client) = filled(plan);
    assert!(world.fronts[0].items.borrow().away_bytes(TENANT) <= 512 << 10);
    let there = count(&mut world, client);
    assert!((170..KEYS).contains(&there), "{there}: 115 here and 64 away");
    assert!(world.fronts[0].items.borrow().away_bytes(TENANT) <= 512 << 10);
    assert!(world.fronts[0].items.borrow().away_counters(TENANT).dropped > 0);
    assert_eq!(world.ask(client, b"flush_all\r\n"), b"OK\r\n");
    assert_eq!(world.fronts[0].items.borrow().away_bytes(TENANT), 0);
    assert_eq!(count(&mut world, client), 0);
}

#[test]
fn keys_of_values_that_are_away_take_a_bounded_part() {
    let mut world = World::new(Plan::default());
    let client = world.client(1, Protocol::Memcached);
    for key in 0..2000 {
        world.set(client, &format!("{key}{}", "k".repeat(200)), &value(key, 0, 2100));
        world.turn();
        assert!(world.fronts[0].items.borrow().holds(TENANT).1 <= MEMORY);
    }
    let newest = format!("1999{}", "k".repeat(200));
    assert_eq!(world.get(client, &newest), Some(value(1999, 0, 2100)));
    assert!(world.fronts[0].items.borrow().holds(TENANT).0 > 400);
}

#[test]
fn a_node_that_dies_takes_volatile_values_with_it_and_no_mirrored_ones() {
    for class in [Class::Volatile, Class::Mirrored] {
        let (mut world, client) = filled(Plan { class, ..Plan::default() });
        world.until(|world| (2..=4).any(|node| mirrors(world, node) > 20));
        let victim = (2..=4).max_by_key(|node| mirrors(&world, *node)).unwrap();
        world.kill(victim);
        world.next_view();
        let there = count(&mut world, client);
        match class {
            Class::Mirrored => assert_eq!(there, KEYS),
            _ => assert!(there < KEYS && there > KEYS / 2, "{there}"),
        }
        let lost = world.fronts[0].items.borrow().away_counters(TENANT).lost;
        assert_eq!(lost, KEYS - there);
        assert_eq!(count(&mut world, client), there, "what is lost is lost once");
    }
}

#[test]
fn a_miss_of_what_is_lost_says_what_it_was_asked_to_say() {
    let (mut world, client) = filled(Plan::default());
    world.until(|world| (2..=4).any(|node| mirrors(world, node) > 20));
    let victim = (2..=4).max_by_key(|node| mirrors(&world, *node)).unwrap();
    world.kill(victim);
    world.next_view();
    let mut missed = 0;
    for key in 0..KEYS {
        let answer = world.ask(client, format!("mg key-{key} v k Oabc\r\n").as_bytes());
        if !answer.starts_with(b"VA ") {
            assert_eq!(answer, format!("EN kkey-{key} Oabc\r\n").as_bytes());
            missed += 1;
        }
    }
    assert_eq!(missed, world.fronts[0].items.borrow().away_counters(TENANT).lost);
    assert!(missed > 0);
}

#[test]
fn answers_stay_in_order_and_nobody_waits_for_another() {
    let (mut world, client) = filled(Plan::default());
    let other = world.client(1, Protocol::Memcached);
    let (first, last) = (value(0, 0, 8000), value(KEYS - 1, 0, 8000));
    world.send(
        client,
        format!("get key-{} key-0 nothing\r\nget key-0\r\nmn\r\n", KEYS - 1).as_bytes(),
    );
    assert!(!world.clients[client].is_idle(), "key-0 is away");
    world.send(other, format!("get key-{}\r\n", KEYS - 1).as_bytes());
    assert!(world.clients[other].is_idle(), "served at once");
    let answer = world.ask(client, b"");
    let head = format!("VALUE key-{} 5 8000\r\n", KEYS - 1);
    let expected = [
        head.as_bytes(),
        &last,
        b"\r\nVALUE key-0 5 8000\r\n",
        &first,
        b"\r\nEND\r\nVALUE key-0 5 8000\r\n",
        &first,
        b"\r\nEND\r\nMN\r\n",
    ];
    assert!(answer == expected.concat());
}

#[test]
fn what_was_asked_before_a_change_is_what_was_before_it() {
    let (mut world, client) = filled(Plan::default());
    let answer = world.ask(
        client,
        b"get key-0\r\nset key-0 5 0 3\r\nnew\r\nget key-0\r\nget key-1\r\ndelete key-1\r\nget key-1\r\n",
    );
    let (zero, one) = (value(0, 0, 8000), value(1, 0, 8000));
    let expected = [
        b"VALUE key-0 5 8000\r\n",
        &zero[..],
        b"\r\nEND\r\nSTORED\r\nVALUE key-0 5 3\r\nnew\r\nEND\r\nVALUE key-1 5 8000\r\n",
        &one,
        b"\r\nEND\r\nDELETED\r\nEND\r\n",
    ];
    assert!(answer == expected.concat());
}

#[test]
fn values_that_are_away_are_joined() {
    let (mut world, client) = filled(Plan::default());
    assert_eq!(world.ask(client, b"append key-0 0 0 3\r\nend\r\nmn\r\n"), b"STORED\r\nMN\r\n");
    assert_eq!(world.ask(client, b"ms key-1 5 MP\r\nbegin\r\n"), b"HD\r\n");
    let joined = [&value(0, 0, 8000)[..], b"end"].concat();
    assert_eq!(world.get(client, "key-0"), Some(joined));
    let joined = [b"begin", &value(1, 0, 8000)[..]].concat();
    assert_eq!(world.get(client, "key-1"), Some(joined));
    let resp = world.client(1, Protocol::Resp);
    assert_eq!(world.ask(resp, b"*3\r\n$6\r\nAPPEND\r\n$5\r\nkey-2\r\n$2\r\nxy\r\n"), b":8002\r\n");
    assert_eq!(world.ask(resp, b"GETRANGE key-2 -4 -1\r\nSTRLEN key-3\r\n"), {
        let end = value(2, 0, 8000)[7998..].to_vec();
        [b"$4\r\n", &end[..], b"xy\r\n:8000\r\n"].concat()
    });
}

#[test]
fn what_came_from_elsewhere_waits_for_a_slow_reader_in_memory_of_its_tenant() {
    let (mut world, client) = filled(Plan::default());
    let free = world.net.nodes[0].cx().frames().free_pages();
    world.clients[client].deaf = true;
    let gets: String = (0..40).map(|key| format!("get key-{key}\r\n")).collect();
    world.send(client, gets.as_bytes());
    (0..3000).for_each(|_| world.turn());
    assert!(world.fronts[0].items.borrow().held_bytes(TENANT) > 39 * 8192, "nearly all were away");
    assert!(world.fronts[0].items.borrow().holds(TENANT).1 <= MEMORY);
    let taken = free.saturating_sub(world.net.nodes[0].cx().frames().free_pages());
    assert!(taken < 16, "{taken} pages");
    world.clients[client].deaf = false;
    let answer = world.ask(client, b"");
    let right = (0..40).flat_map(|key| {
        let head = format!("VALUE key-{key} 5 8000\r\n").into_bytes();
        [head, value(key, 0, 8000), b"\r\nEND\r\n".to_vec()].concat()
    });
    assert!(answer == right.collect::<Vec<u8>>());
    assert_eq!(world.fronts[0].items.borrow().held_bytes(TENANT), 0);
}

#[test]
fn transactions_work_on_what_is_away() {
    let (mut world, _) = filled(Plan::default());
    let resp = world.client(1, Protocol::Resp);
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let (zero, one) = (value(0, 0, 8000), value(1, 0, 8000));
    let line = "MULTI\r\nAPPEND key-0 end\r\nGET key-1\r\nGET key-0\r\nGETSET key-2 new\r\nSTRLEN key-3\r\nEXEC\r\nPING\r\n";
    let answer = world.ask(resp, line.as_bytes());
    let expected = [
        b"+OK\r\n".to_vec(),
        b"+QUEUED\r\n".repeat(5),
        b"*5\r\n:8003\r\n".to_vec(),
        bulk(&one),
        bulk(&[&zero[..], b"end"].concat()),
        bulk(&value(2, 0, 8000)),
        b":8000\r\n+PONG\r\n".to_vec(),
    ];
    assert!(answer == expected.concat());
}

#[test]
fn redis_clients_get_what_is_away() {
    let (mut world, _) = filled(Plan::default());
    let resp = world.client(1, Protocol::Resp);
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let (zero, one, two) = (value(0, 0, 8000), value(1, 0, 8000), value(2, 0, 8000));
    let answer = world.ask(resp, b"MGET key-0 nothing key-1\r\nPING\r\n");
    assert!(
        answer == [b"*3\r\n", &bulk(&zero)[..], b"$-1\r\n", &bulk(&one), b"+PONG\r\n"].concat()
    );
    let answer = world.ask(resp, b"GETRANGE key-2 10 19\r\nGETDEL key-2\r\nGET key-2\r\n");
    assert!(answer == [&bulk(&two[10..20])[..], &bulk(&two), b"$-1\r\n"].concat());
    let answer = world.ask(resp, b"SET key-0 a GET\r\nGETSET key-1 b\r\nMGET key-0 key-1\r\n");
    let expected = [&bulk(&zero)[..], &bulk(&one), b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"].concat();
    assert!(answer == expected);
}

#[test]
fn long_values_are_several_pages() {
    let mut world = World::new(Plan::default());
    let client = world.client(1, Protocol::Memcached);
    for key in 0..6 {
        assert!(world.set(client, &format!("long-{key}"), &value(key, 0, 300_000)));
        world.net.run(10);
    }
    for key in (0..6).chain(0..6) {
        assert_eq!(
            world.get(client, &format!("long-{key}")),
            Some(value(key, 0, 300_000)),
            "{key}"
        );
    }
    assert!(world.fronts[0].items.borrow().away_counters(TENANT).sent >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A link that loses, repeats and delays; a node that dies: a key has its last value or none.
    #[test]
    fn a_key_has_its_last_value_or_none(
        steps in prop::collection::vec((0u64..60, 0u8..4, 100usize..20_000), 100..400),
        seed: u64,
        victim in 2u16..=4,
        mirrored: bool,
    ) {
        let class = if mirrored { Class::Mirrored } else { Class::Volatile };
        let mut world = World::new(Plan { class, pages: 192, ..Plan::default() });
        world.net.fate = Box::new(move |packet| match wire::mix(seed ^ packet) % 100 {
            0..4 => (0, 0),
            4..7 => (2, 3),
            7..15 => (1, 5),
            _ => (1, 0),
        });
        let client = world.client(1, Protocol::Memcached);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let half = steps.len() / 2;
        for (at, (key, what, len)) in steps.into_iter().enumerate() {
            if at == half {
                world.kill(victim);
                world.next_view();
            }
            let name = format!("k{key}");
            world.turn();
            match what {
                0 | 1 => {
                    let value = value(key, at as u64, len);
                    prop_assert!(world.set(client, &name, &value));
                    model.insert(key, value);
                }
                2 => {
                    world.ask(client, format!("delete {name}\r\n").as_bytes());
                    model.remove(&key);
                }
                _ => {
                    if let Some(got) = world.get(client, &name) {
                        prop_assert_eq!(Some(&got), model.get(&key), "{}", name);
                    }
                }
            }
        }
        prop_assert!(world.services.iter().all(netmem::Service::is_consistent));
    }
}
