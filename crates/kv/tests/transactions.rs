//! Transactions of Redis's protocol: on one node, and where their keys are another node's.

use crate::front::{Plan, World, bad_link};
use crate::talk::{Server, ask, command, pattern, script, script_of, start, tenant};
use kv::Protocol::{self, Resp};
use kv::TenantNo;
use netmem::{Member, Slots};
use wire::{NodeId, Time};

fn world() -> World {
    World::new(Plan { nodes: 4, fronts: 3, shared: true, ..Plan::default() })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn transactions_are_queued_and_executed() {
    script(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("UNWATCH", "+OK"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("SET a abc", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("MGET a b", "+QUEUED"),
        ("SET b 1 FOO", "+QUEUED"),
        ("PING", "+QUEUED"),
        (
            "EXEC",
            "*6|+OK|-ERR value is not an integer or out of range|$3|abc|*2|$3|abc|$-1|-ERR syntax error|+PONG",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
        ("MULTI", "+OK"),
        ("SET a 2", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "$3|abc"),
        ("MULTI", "+OK"),
        ("NONSENSE", "-ERR unknown command 'NONSENSE', with args beginning with: "),
        ("SET a 2", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET a", "$3|abc"),
        ("MULTI", "+OK"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "+OK"),
        ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "+OK"),
        (
            "EXEC x",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        ("UNWATCH", "+QUEUED"),
        ("TRANSACTION 0", "-ERR unknown command 'TRANSACTION', with args beginning with: '0' "),
        ("RESET", "+RESET"),
        ("VERSION a", "-ERR unknown command 'VERSION', with args beginning with: 'a' "),
        ("DBSIZE", ":1"),
    ]);
}

#[test]
fn what_is_watched_must_not_change() {
    for (change, same) in [
        ("GET a", true),
        ("SET a 3 NX", true),
        ("SET other 1", true),
        ("SET a 1", false),
        ("INCR a", false),
        ("DEL a", false),
        ("EXPIRE a 100", false),
        ("GETEX a EX 100", false),
        ("FLUSHALL", false),
    ] {
        let (mut server, mut client) = start(Resp);
        let mut other = server.client(Resp);
        script_of(&mut server, &mut client, &[("SET a 1", "+OK"), ("WATCH a b", "+OK")]);
        ask(&mut server, &mut other, change);
        let answer = if same { "*1|+PONG" } else { "*-1" };
        let lines = [("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", answer)];
        script_of(&mut server, &mut client, &lines);
        // once
        ask(&mut server, &mut other, "SET a again");
        let lines = [("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1|+PONG")];
        script_of(&mut server, &mut client, &lines);
    }
    for (forgets, version) in [("UNWATCH", 2), ("RESET", 2), ("DISCARD", 2), ("", 3)] {
        let (mut server, mut client) = start(Resp);
        if version == 3 {
            ask(&mut server, &mut client, "HELLO 3");
        }
        script_of(&mut server, &mut client, &[("WATCH a", "+OK"), ("SET a 1", "+OK")]);
        if forgets == "DISCARD" {
            ask(&mut server, &mut client, "MULTI");
        }
        if !forgets.is_empty() {
            ask(&mut server, &mut client, forgets);
        }
        let answer = if version == 3 { "_" } else { "*1|+PONG" };
        let lines = [("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", answer)];
        script_of(&mut server, &mut client, &lines);
    }
    // a key whose time has passed is not what it was
    let (mut server, mut client) = start(Resp);
    script_of(&mut server, &mut client, &[("SET a 1 PX 20", "+OK"), ("WATCH a", "+OK")]);
    server.wait_ms(30);
    let lines = [("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")];
    script_of(&mut server, &mut client, &lines);
}

/// Values of every length, more answers than are made ahead otherwise, and a bound.
#[test]
fn transactions_are_long_but_bounded() {
    let (mut server, mut client) = start(Resp);
    let value = pattern(100_000);
    let keys: Vec<String> = (0..2000).map(|number| format!("k{number}")).collect();
    let gets: Vec<&[u8]> =
        std::iter::once(&b"MGET"[..]).chain(keys.iter().map(String::as_bytes)).collect();
    let mut text = command(&[b"MULTI"]);
    for key in &keys {
        text.extend(command(&[b"SET", key.as_bytes(), &[b'v'; 1000]]));
    }
    text.extend(command(&[b"SET", b"long", &value]));
    text.extend([command(&[b"GET", b"long"]), command(&gets), command(&[b"EXEC"])].concat());
    let told = server.send(&mut client, &text, 1 << 14);
    let small = [b"$1000\r\n", &[b'v'; 1000][..], b"\r\n"].concat();
    let expected = [
        b"+OK\r\n".to_vec(),
        b"+QUEUED\r\n".repeat(2003),
        b"*2003\r\n".to_vec(),
        b"+OK\r\n".repeat(2001),
        format!("${}\r\n", value.len()).into_bytes(),
        [&value[..], b"\r\n*2000\r\n"].concat(),
        small.repeat(2000),
    ];
    assert!(told == expected.concat());
    ask(&mut server, &mut client, "MULTI");
    let most = kv::limits::QUEUED_ARGUMENTS_MAX / 2;
    let mut told = Vec::new();
    for _ in 0..=most {
        told = server.send(&mut client, &command(&[b"GET", b"k"]), 1 << 14);
    }
    assert!(told.starts_with(b"-ERR the transaction is too long"));
    assert_eq!(
        ask(&mut server, &mut client, "EXEC"),
        "-EXECABORT Transaction discarded because of previous errors.|"
    );
    // a value that is refused is one that the transaction does not have
    let too_large = vec![b'x'; (4 << 20) + 1];
    let text = [command(&[b"MULTI"]), command(&[b"SET", b"k", &too_large])].concat();
    server.send(&mut client, &text, 1 << 20);
    assert!(ask(&mut server, &mut client, "EXEC").starts_with("-EXECABORT"));
}

/// Long values are in the items' memory while they wait, in whatever pieces they came: there may be more of them than
/// of short ones.
#[test]
fn long_values_are_queued_in_any_pieces() {
    let value = vec![b'v'; 60_000];
    let sets = command(&[b"SET", b"k", &value]).repeat(300);
    for step in [1000, 1 << 20] {
        let mut server = Server::new(64 << 20, vec![tenant("default")]);
        let mut client = server.client(Resp);
        ask(&mut server, &mut client, "MULTI");
        let told = server.send(&mut client, &sets, step);
        assert!(told == b"+QUEUED\r\n".repeat(300), "{step}");
        assert!(client.session.held_bytes() < 100_000, "{}", client.session.held_bytes());
        assert!(server.items.held_bytes(TenantNo(0)) >= 300 * 60_000);
        let told = server.send(&mut client, &command(&[b"EXEC"]), step);
        assert!(told == [&b"*300\r\n"[..], &b"+OK\r\n".repeat(300)].concat(), "{step}");
    }
}

/// A transaction for whose long values there is no memory is not executed.
#[test]
fn long_values_that_have_no_room_are_not_queued() {
    let (mut server, mut client) = start(Resp);
    ask(&mut server, &mut client, "MULTI");
    let set = command(&[b"SET", b"k", &[b'v'; 30_000]]);
    let mut told = (0..1000).map(|_| text(server.send(&mut client, &set, 1 << 20)));
    let told = told.find(|told| told != "+QUEUED\r\n").unwrap();
    assert!(told.starts_with("-OOM command not allowed"), "{told}");
    assert!(ask(&mut server, &mut client, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(server.frames.free_pages(), server.frames.pages());
}

/// Long values in a transaction that never ends are given back with its connection.
#[test]
fn what_is_queued_goes_with_its_connection() {
    let (mut server, mut client) = start(Resp);
    ask(&mut server, &mut client, "MULTI");
    let value = pattern(100_000);
    for _ in 0..10 {
        server.send(&mut client, &command(&[b"SET", b"k", &value]), 1 << 16);
    }
    assert!(server.frames.free_pages() < server.frames.pages());
    drop(client);
    assert_eq!(server.frames.free_pages(), server.frames.pages());
}

/// Keys that a node keeps, of those that begin so.
fn keys_of(world: &mut World, node: u16, count: usize) -> Vec<String> {
    let owners = |world: &World, key: &str| {
        let items = world.fronts[0].items.borrow();
        items.owners().unwrap().owner(kv::slot_of(key.as_bytes())).unwrap().0
    };
    (0..).map(|n| format!("n{n}")).filter(|key| owners(world, key) == node).take(count).collect()
}

#[test]
fn a_transaction_is_executed_where_its_keys_are() {
    let mut world = world();
    for (asked, node) in [(1, 1), (1, 2), (2, 3), (3, 1)] {
        let keys = keys_of(&mut world, node, 5);
        let [a, b, c, none, nothing] = std::array::from_fn(|number| &keys[number]);
        let client = world.client(asked, Protocol::Resp);
        let mut ask = |bytes: &str| text(world.ask(client, bytes.as_bytes()));
        ask("FLUSHALL\r\n");
        let queue =
            format!("MULTI\r\nSET {a} 1\r\nINCR {a}\r\nMGET {a} {b}\r\nMSET {b} x {c} y\r\n");
        let queued = "+OK\r\n".to_string() + &"+QUEUED\r\n".repeat(4);
        assert_eq!(ask(&queue), queued);
        let rest = format!("EXEC\r\nMGET {a} {b} {c}\r\nMULTI\r\nPING\r\nEXEC\r\n");
        assert_eq!(
            ask(&rest),
            "*4\r\n+OK\r\n:2\r\n*2\r\n$1\r\n2\r\n$-1\r\n+OK\r\n*3\r\n$1\r\n2\r\n$1\r\nx\r\n$1\r\ny\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"
        );
        let together = format!("MSETNX {a} 1 {none} 1\r\nDEL {b} {c}\r\nMSETNX {b} 7 {c} 8\r\n");
        assert!(ask(&together).ends_with(":2\r\n:1\r\n"), "also keys of several slots");
        assert_eq!(ask(&format!("GET {c}\r\n")), "$1\r\n8\r\n");
        // answers of long values, in the client's version
        let long = String::from_utf8(vec![b'v'; 9000]).unwrap();
        ask("HELLO 3\r\n");
        let told = ask(&format!(
            "MULTI\r\nSET {a} {long}\r\nGET {a}\r\nGET {nothing}\r\nAPPEND {a} end\r\nEXEC\r\n"
        ));
        let (_, told) = told.split_once("*4\r\n").unwrap();
        assert!(told == format!("+OK\r\n$9000\r\n{long}\r\n_\r\n:9003\r\n"));
    }
}

#[test]
fn a_transaction_about_keys_of_several_nodes_is_refused() {
    let mut world = world();
    let keys: Vec<String> =
        (1..=3).map(|node| keys_of(&mut world, node, 1).pop().unwrap()).collect();
    let client = world.client(1, Protocol::Resp);
    let mut ask = |bytes: &str| text(world.ask(client, bytes.as_bytes()));
    for pair in [[0, 1], [1, 2], [2, 0]] {
        let [a, b] = pair.map(|number| &keys[number]);
        let told = ask(&format!("MULTI\r\nSET {a} 1\r\nSET {b} 1\r\nEXEC\r\nEXISTS {a} {b}\r\n"));
        assert!(
            told.ends_with(
                "-CROSSSLOT Keys of the transaction are kept by several servers\r\n:0\r\n"
            ),
            "{told}"
        );
        let told = ask(&format!("WATCH {a}\r\nMULTI\r\nSET {b} 1\r\nEXEC\r\n"));
        assert!(told.contains("-CROSSSLOT"), "{told}");
        let told = ask(&format!("MULTI\r\nSET {b} 1\r\nDBSIZE\r\nEXEC\r\nEXEC\r\n"));
        assert!(told.ends_with("several servers\r\n-ERR EXEC without MULTI\r\n"), "{told}");
    }
}

#[test]
fn what_is_watched_at_another_node_must_not_change() {
    let mut world = world();
    for node in 1..=3 {
        let keys = keys_of(&mut world, node, 2);
        let [a, b] = [&keys[0], &keys[1]];
        let (client, other) = (world.client(1, Protocol::Resp), world.client(2, Protocol::Resp));
        for (change, same) in [
            (format!("GET {a}"), true),
            (format!("SET {a} 2"), false),
            (format!("DEL {a}"), false),
            (format!("SET {b} 2"), false),
            (format!("EXPIRE {a} 100"), false),
        ] {
            let mut ask = |client, text_: &str| text(world.ask(client, text_.as_bytes()));
            ask(client, &format!("SET {a} 1\r\nDEL {b}\r\n"));
            assert_eq!(ask(client, &format!("WATCH {a} {b}\r\n")), "+OK\r\n");
            ask(other, &format!("{change}\r\n"));
            let told = ask(client, &format!("MULTI\r\nSET {b} 3\r\nEXEC\r\n"));
            let expected = if same { "*1\r\n+OK\r\n" } else { "*-1\r\n" };
            assert_eq!(told, format!("+OK\r\n+QUEUED\r\n{expected}"), "{change} at {node}");
            let told = ask(client, &format!("MULTI\r\nSET {b} 3\r\nEXEC\r\n"));
            assert!(told.ends_with("*1\r\n+OK\r\n"), "nothing is watched any more");
        }
    }
}

#[test]
fn a_transaction_whose_owner_is_away_is_told_so() {
    let mut world = world();
    let keys = keys_of(&mut world, 3, 2);
    let client = world.client(1, Protocol::Resp);
    world.ask(client, format!("WATCH {}\r\n", keys[0]).as_bytes());
    world.kill(3);
    let line = format!("MULTI\r\nSET {} 1\r\nSET {} 1\r\nEXEC\r\n", keys[0], keys[1]);
    let told = text(world.ask(client, line.as_bytes()));
    assert!(told.contains("\r\n-TRYAGAIN the node that keeps the key is away"), "{told}");
    let told = text(world.ask(client, format!("WATCH {}\r\n", keys[0]).as_bytes()));
    assert!(told.starts_with("-TRYAGAIN"), "{told}");
    world.next_view();
    // the key's version is not known, so it may have changed
    let told = text(world.ask(client, b"MULTI\r\nPING\r\nEXEC\r\n"));
    assert!(told.ends_with("*-1\r\n"), "{told}");
    let told = text(world.ask(client, line.as_bytes()));
    assert!(told.contains("*2\r\n+OK\r\n+OK\r\n") || told.contains("-CROSSSLOT"), "{told}");
}

/// A view in which the keys have two owners comes while it waits to be executed: then it is not.
#[test]
fn keys_that_part_meanwhile_are_not_changed_together() {
    let of = |count: u16| {
        let members: Vec<Member> =
            (1..=count).map(|node| Member { node: NodeId(node), weight: 100 }).collect();
        let slots = Slots::new(&members).unwrap();
        move |key: &str| slots.slot(kv::slot_of(key.as_bytes())).primary.0
    };
    let (before, after) = (of(3), of(4));
    let key = |last: u16| {
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| before(key) == 1 && after(key) == last).unwrap()
    };
    let (stays, goes) = (key(1), key(4));
    for line in [
        format!("MSETNX {stays} 1 {goes} 1\r\n"),
        format!("MULTI\r\nSET {stays} 1\r\nSET {goes} 1\r\nEXEC\r\n"),
    ] {
        let mut world = world();
        let client = world.client(1, Protocol::Resp);
        let courier = world.fronts[0].courier.clone();
        courier.set_lease(courier.incarnation(), Time(0));
        world.send(client, line.as_bytes());
        (0..20).for_each(|_| world.turn());
        assert!(!world.clients[client].is_idle(), "it waits for the lease");
        world.begin_late();
        world.next_view();
        let told = text(world.ask(client, b""));
        assert!(told.contains("-TRYAGAIN") && told.contains("nothing was changed"), "{told}");
        let line = format!("EXISTS {stays} {goes}\r\n");
        assert_eq!(text(world.ask(client, line.as_bytes())), ":0\r\n");
    }
}

/// Any faults of the link: of each transaction both numbers follow each other.
#[test]
fn nobody_comes_between_the_commands_of_a_transaction() {
    for seed in 0..4 {
        let mut world = world();
        world.net.fate = bad_link(seed);
        let keys = keys_of(&mut world, 2, 1);
        let key = &keys[0];
        let clients: Vec<usize> =
            (0..9).map(|number| world.client(number % 3 + 1, Protocol::Resp)).collect();
        for round in 0..20 {
            for client in &clients {
                let line = format!("MULTI\r\nINCR {key}\r\nINCR {key}\r\nEXEC\r\n");
                world.send(*client, line.as_bytes());
            }
            let mut numbers = Vec::new();
            for client in &clients {
                let told = text(world.ask(*client, b""));
                let answers = told.split_once("*2\r\n:").unwrap_or_else(|| panic!("{told}")).1;
                let (first, second) = answers.split_once("\r\n:").unwrap();
                numbers.push(first.parse::<u64>().unwrap());
                assert_eq!(second.trim_end().parse(), Ok(numbers.last().unwrap() + 1), "{told}");
            }
            numbers.sort();
            let expected: Vec<u64> = (0..9).map(|number| round * 18 + number * 2 + 1).collect();
            assert_eq!(numbers, expected, "each once");
        }
    }
}
