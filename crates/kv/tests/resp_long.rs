//! Redis's protocol: long commands, arguments and answers, in any pieces; what a connection holds of them is bounded.

use crate::talk::{LENGTHS_AND_STEPS, Server, ask, command, pattern, start, tenant};
use endpoint::Frames;
use endpoint::limits::PAGE_BYTES;
use endpoint::memory::HeapRegion;
use kv::Protocol::Resp;
use kv::limits::OUTPUT_BYTES_MAX;
use kv::{Items, ItemsConfig, TenantNo};

#[test]
fn values_of_every_length_come_back_in_any_pieces() {
    for (len, step) in LENGTHS_AND_STEPS {
        let (mut server, mut client) = start(Resp);
        let value = pattern(len);
        let text = [command(&[b"SET", b"key", &value]), command(&[b"PING"])].concat();
        assert_eq!(server.send(&mut client, &text, step), b"+OK\r\n+PONG\r\n", "{len}");
        let expected = [format!("${len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert!(
            server.send(&mut client, &command(&[b"GET", b"key"]), 1 << 20) == expected,
            "{len}"
        );
        ask(&mut server, &mut client, "DEL key");
        assert_eq!(server.frames.free_pages(), server.frames.pages(), "nothing is left of {len}");
    }
}

#[test]
fn commands_of_many_arguments_come_in_pieces() {
    let (mut server, mut client) = start(Resp);
    let names: Vec<String> = (0..2000).map(|n| format!("key-{n}")).collect();
    let long = pattern(5000);
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for (number, name) in names.iter().enumerate() {
        let value: &[u8] = if number.is_multiple_of(10) { &long } else { name.as_bytes() };
        words.extend([name.as_bytes(), value]);
    }
    for step in [999, 1 << 20] {
        assert_eq!(server.send(&mut client, &command(&words), step), b"+OK\r\n");
        let mut keys: Vec<&[u8]> = vec![b"MGET"];
        keys.extend(names.iter().map(String::as_bytes));
        let told = server.send(&mut client, &command(&keys), step);
        let mut expected = b"*2000\r\n".to_vec();
        for pair in words[1..].chunks(2) {
            expected.extend_from_slice(format!("${}\r\n", pair[1].len()).as_bytes());
            expected.extend_from_slice(pair[1]);
            expected.extend_from_slice(b"\r\n");
        }
        assert!(told == expected);
    }
}

/// As many arguments as clients of Redis send, and a bound for their bytes that cuts no connection.
#[test]
fn commands_are_as_long_as_those_of_redis() {
    let (mut server, mut client) = start(Resp);
    let mut send = |words: &[Vec<u8>]| {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let text = [command(&words), command(&[b"PING"])].concat();
        String::from_utf8(server.send(&mut client, &text, 1 << 20)).unwrap()
    };
    let words = |name: &str, count: usize, word: &dyn Fn(usize) -> String| {
        let rest = (0..count).map(|number| word(number).into_bytes());
        std::iter::once(name.as_bytes().to_vec()).chain(rest).collect::<Vec<_>>()
    };
    let pair = |n: usize| if n.is_multiple_of(2) { format!("k{}", n / 2) } else { "v".into() };
    assert_eq!(send(&words("MSET", 16_400, &pair)), "+OK\r\n+PONG\r\n");
    let told = send(&words("MGET", 17_000, &|number| format!("k{number}")));
    assert_eq!(told.matches("$1\r\nv\r\n").count(), 8200);
    assert!(told.starts_with("*17000\r\n") && told.ends_with("$-1\r\n+PONG\r\n"));
    let long = words("DEL", 12_000, &|number| format!("{}{number}", "k".repeat(100)));
    assert_eq!(send(&long), ":0\r\n+PONG\r\n");
    let most = words("EXISTS", kv::limits::ARGUMENTS_MAX - 1, &|_| "k1".into());
    assert_eq!(send(&most), format!(":{}\r\n+PONG\r\n", kv::limits::ARGUMENTS_MAX - 1));
    let too_long = words("EXISTS", 30_000, &|number| format!("{}{number}", "k".repeat(1000)));
    let refused = "-ERR the command is too long: keys and short values of one have 24M at most";
    let told = send(&too_long);
    assert!(told.starts_with(refused) && told.ends_with("each\r\n+PONG\r\n"), "{told}");
    let more = words("EXISTS", kv::limits::ARGUMENTS_MAX, &|_| "k1".into());
    assert_eq!(send(&more), "-ERR Protocol error: invalid multibulk length\r\n");
}

/// Arrived and queued bytes count; bytes that are passed over do not.
#[test]
fn what_a_connection_holds_is_bounded_and_counted() {
    let (mut server, mut client) = start(Resp);
    let text = command(&[&[b'x'; 2000][..]; 20_000]);
    let mut most = 0;
    for piece in text[..text.len() - 1].chunks(1 << 16) {
        server.send(&mut client, piece, 1 << 16);
        most = most.max(client.session.held_bytes());
    }
    let bound = 2 * kv::limits::ARGUMENT_BYTES_MAX;
    assert!((kv::limits::ARGUMENT_BYTES_MAX / 2..bound).contains(&most), "{most}");
    assert!(client.session.held_bytes() < 4096, "what is refused is forgotten at once");
    server.send(&mut client, &text[text.len() - 1..], 1 << 16);

    let (set, value) = (b"SET", [b'v'; 2000]);
    server.send(&mut client, &command(&[b"MULTI"]), 1 << 16);
    for number in 0..1000 {
        let key = format!("key-{number}");
        server.send(&mut client, &command(&[set, key.as_bytes(), &value]), 1 << 16);
    }
    let held = client.session.held_bytes();
    assert!((2_000_000..6_000_000).contains(&held), "{held}");
    server.send(&mut client, &command(&[b"DISCARD"]), 1 << 16);
    assert_eq!(client.session.held_bytes(), 0);
}

/// As long as there is room: the output is bounded, not the answer.
#[test]
fn a_long_answer_is_made_as_it_is_written() {
    let (mut server, mut client) = start(Resp);
    let value = [b'v'; 2000];
    server.send(&mut client, &command(&[b"SET", b"there", &value]), 1 << 20);
    let keys = || (0..4000).map(|number| if number % 4 == 0 { &b"none"[..] } else { b"there" });
    let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys()).collect();
    let there = [b"$2000\r\n", &value[..], b"\r\n"].concat();
    let answers: Vec<&[u8]> =
        keys().map(|key| if key == b"none" { &b"$-1\r\n"[..] } else { &there }).collect();
    let expected = [b"*4000\r\n", &answers.concat()[..]].concat();
    for line in [command(&words), [words.join(&b' '), b"\r\n".to_vec()].concat()] {
        let (mut answer, mut at) = (Vec::new(), 0);
        while at < line.len() || client.is_full {
            at += server.read(&mut client, &line[at..]);
            assert!(client.out.len() < OUTPUT_BYTES_MAX + there.len(), "{}", client.out.len());
            answer.extend(client.take());
        }
        assert!(answer == expected, "{} bytes of {}", answer.len(), expected.len());
        assert_eq!(ask(&mut server, &mut client, "PING"), "+PONG|", "and the next command");
    }
}

#[test]
fn a_value_that_is_too_large_is_passed_over() {
    let (mut server, mut client) = start(Resp);
    let value = vec![b'*'; (4 << 20) + 1];
    let text = [command(&[b"SET", b"a", &value]), command(&[b"PING"])].concat();
    let told = server.send(&mut client, &text, 1 << 20);
    let expected = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n+PONG\r\n";
    assert_eq!(String::from_utf8(told).unwrap(), expected);
}

#[test]
fn arguments_that_have_arrived_count_as_what_a_connection_holds() {
    let (mut server, mut client) = start(Resp);
    let text = command(&[&[b'x'; 2000][..]; 300]);
    server.send(&mut client, &text[..400_000], 1 << 14);
    let held = client.session.held_bytes();
    assert!((390_000..1_200_000).contains(&held), "{held}");
    server.send(&mut client, &text[400_000..], 1 << 14);
    assert_eq!(client.session.held_bytes(), 0);
}

/// The answers to commands that come in reads of several lengths; all are the same.
fn in_any_pieces(server: impl Fn() -> Server, text: &[u8]) -> Vec<u8> {
    let told = [1, 100, 5000, 1 << 20].map(|step| {
        let server = &mut server();
        let mut client = server.client(Resp);
        server.send(&mut client, text, step)
    });
    let shown = |told: &[u8]| String::from_utf8_lossy(&told[..told.len().min(200)]).into_owned();
    let same = told.iter().all(|other| *other == told[0]);
    assert!(same, "{:?}", told.iter().map(|told| shown(told)).collect::<Vec<_>>());
    told.into_iter().next().unwrap()
}

/// A long argument where none may be is refused, not taken for an empty word.
#[test]
fn long_arguments_are_the_same_in_any_pieces() {
    let long = vec![b'x'; 5000];
    let bulk = [b"$5000\r\n", &long[..], b"\r\n"].concat();
    let too_long = b"-ERR an argument is too long\r\n".to_vec();
    let long_key = b"-ERR a key has at most 1024 bytes here\r\n".to_vec();
    let long = &long[..];
    for (words, expected) in [
        (vec![&b"ECHO"[..], long], &bulk),
        (vec![b"PING", long], &bulk),
        (vec![b"KEYS", long], &too_long),
        (vec![b"SELECT", long], &too_long),
        (vec![b"HELLO", b"3", b"SETNAME", long], &too_long),
        (vec![b"CLIENT", b"SETNAME", long], &too_long),
        (vec![b"EXPIRE", b"k", b"5", long], &too_long),
        (vec![b"SET", b"k", b"v", long], &too_long),
        (vec![b"SETEX", b"k", long, long], &too_long),
        (vec![b"SETEX", long, b"5", long], &long_key),
        (vec![b"SET", long, long], &long_key),
        (vec![b"GET", long], &long_key),
        (vec![b"SET", b"k", long, long], &b"-ERR syntax error\r\n".to_vec()),
        (vec![b"EXISTS", b"k", long], &b":0\r\n".to_vec()),
        (vec![b"APPEND", b"k", long], &b":5000\r\n".to_vec()),
    ] {
        let told = in_any_pieces(Server::usual, &command(&words));
        let shown = String::from_utf8_lossy(&told[..told.len().min(99)]);
        assert!(told == *expected, "{} {}: {shown}", words[0].escape_ascii(), words.len());
    }
}

/// An echoed text is in the items' memory until it is written, and no longer.
#[test]
fn an_echo_of_a_long_text_keeps_nothing() {
    let (mut server, mut client) = start(Resp);
    let text = pattern(1 << 20);
    let told = server.send(&mut client, &command(&[b"ECHO", &text]), 4097);
    assert!(told == [b"$1048576\r\n", &text[..], b"\r\n"].concat());
    assert_eq!(server.frames.free_pages(), server.frames.pages());
    assert_eq!(server.items.held_bytes(TenantNo(0)), 0);
}

/// A server whose values are shorter than what comes at once.
fn small() -> Server {
    let mut server = Server::usual();
    let (memory_bytes, tenants) = (1 << 20, vec![tenant("default")]);
    server.frames = Frames::new(HeapRegion::new(memory_bytes / PAGE_BYTES));
    let config = ItemsConfig { memory_bytes, value_bytes_max: 8192, seed: 7, tenants };
    server.items = Items::new(config, server.frames.clone()).unwrap();
    server
}

/// An argument longer than a value may be is refused also when all of it came at once, alone and in a transaction.
#[test]
fn too_large_arguments_are_the_same_in_any_pieces() {
    let large = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8193\r\n".to_string() + &"x".repeat(8193) + "\r\n";
    let text = format!("{large}MULTI\r\n{large}EXEC\r\n{large}");
    let told = String::from_utf8(in_any_pieces(small, text.as_bytes())).unwrap();
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(told, format!("{refused}\r\n+OK\r\n{refused}\r\n{aborted}\r\n{refused}\r\n"));
}

/// An argument that is passed over has to end as any other does.
#[test]
fn too_large_arguments_end_as_others_do() {
    let large =
        |end: &str| format!("*2\r\n$3\r\nDEL\r\n$9000\r\n{}{end}PING\r\n", "x".repeat(9000));
    let told = in_any_pieces(small, large("\r\n").as_bytes());
    assert!(told.starts_with(b"-ERR string exceeds") && told.ends_with(b"\r\n+PONG\r\n"));
    let told = in_any_pieces(small, large("yy").as_bytes());
    assert_eq!(told.escape_ascii().to_string(), "-ERR Protocol error: invalid bulk length\\r\\n");
}

/// A typed command may be so long and no longer, whether its end has come or not.
#[test]
fn long_inline_commands_are_the_same_in_any_pieces() {
    let line = |bytes: usize| format!("PING {}\nPING\n", "x".repeat(bytes - 5));
    let told = in_any_pieces(Server::usual, line(32_768).as_bytes());
    assert!(told.starts_with(b"$32763\r\n") && told.ends_with(b"\r\n+PONG\r\n"));
    let told = in_any_pieces(Server::usual, line(32_769).as_bytes());
    assert_eq!(
        told.escape_ascii().to_string(),
        "-ERR Protocol error: too big inline request\\r\\n"
    );
}
