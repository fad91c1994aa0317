//! Redis's protocol and commands, as its documentation describes them.

use crate::talk::{Server, WALL_MS, ask, command, script, script_of, start, tenant};
use kv::Protocol::Resp;
use kv::TenantConfig;

#[test]
fn values_are_set_under_conditions() {
    script(&[
        ("GET a", "$-1"),
        ("SET a 1", "+OK"),
        ("get a", "$1|1"),
        ("SET a 2 NX", "$-1"),
        ("SET b 2 XX", "$-1"),
        ("SET b 2 NX", "+OK"),
        ("SET a 3 XX GET", "$1|1"),
        ("SET c 3 GET", "$-1"),
        ("SET c 4 NX GET", "$1|3"),
        ("GET c", "$1|3"),
        ("SETNX c 9", ":0"),
        ("SETNX d 9", ":1"),
        ("GETSET d 10", "$1|9"),
        ("GETDEL d", "$2|10"),
        ("GETDEL d", "$-1"),
        ("MSET x 1 y 2", "+OK"),
        ("MSETNX y 3 z 4", ":0"),
        ("MSETNX z 4 w 5", ":1"),
        ("MGET x y none z", "*4|$1|1|$1|2|$-1|$1|4"),
        ("EXISTS x y x none", ":3"),
        ("DEL x y none", ":2"),
        ("UNLINK z", ":1"),
        ("TYPE w", "+string"),
        ("TYPE z", "+none"),
        ("DBSIZE", ":4"),
        ("FLUSHALL ASYNC", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn strings_and_numbers_change() {
    script(&[
        ("APPEND a hello", ":5"),
        ("APPEND a !", ":6"),
        ("STRLEN a", ":6"),
        ("STRLEN none", ":0"),
        ("GETRANGE a 1 -2", "$4|ello"),
        ("GETRANGE a 9 20", "$0|"),
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 50", ":-9"),
        ("INCR a", "-ERR value is not an integer or out of range"),
        ("INCRBY n x", "-ERR value is not an integer or out of range"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
    ]);
    for text in ["007", "-0", "-01", "+5", "1.0", "00"] {
        script(&[
            (&format!("SET n {text}"), "+OK"),
            ("INCR n", "-ERR value is not an integer or out of range"),
            ("DECRBY n 1", "-ERR value is not an integer or out of range"),
            (&format!("INCRBY m {text}"), "-ERR value is not an integer or out of range"),
            ("GET n", &format!("${}|{text}", text.len())),
        ]);
    }
}

/// Dates that 64 bits cannot hold, of every command that takes a time.
#[test]
fn no_end_is_beyond_what_can_be_told() {
    let wrong = |name: &str| format!("-ERR invalid expire time in '{name}' command");
    let most = i64::MAX - WALL_MS as i64;
    let (far, seconds) = (i64::MAX, i64::MAX / 1000);
    for (line, name) in [
        (format!("SET k v EX {far}"), "set"),
        (format!("SET k v EX {seconds}"), "set"),
        (format!("SET k v PX {far}"), "set"),
        (format!("SET k v PX {}", most + 1), "set"),
        (format!("SET k v EXAT {far}"), "set"),
        ("SET k v PX 0".into(), "set"),
        ("SETEX k 18000000000000000 v".into(), "setex"),
        ("SETEX k -1 v".into(), "setex"),
        (format!("PSETEX k {far} v"), "psetex"),
        (format!("GETEX k PX {far}"), "getex"),
        (format!("EXPIRE k {far}"), "expire"),
        (format!("EXPIRE none {seconds}"), "expire"),
        (format!("EXPIRE k {}", i64::MIN), "expire"),
        (format!("PEXPIRE k {}", most + 1), "pexpire"),
        (format!("EXPIREAT k {far}"), "expireat"),
    ] {
        script(&[
            ("SET k old", "+OK"),
            (&line, &wrong(name)),
            ("TTL k", ":-1"),
            ("STRLEN k", ":3"),
        ]);
    }
    script(&[
        (&format!("SET k v PX {most}"), "+OK"),
        ("PTTL k", &format!(":{most}")),
        ("PEXPIRETIME k", &format!(":{far}")),
        (&format!("PEXPIREAT k {far}"), ":1"),
        ("PEXPIRETIME k", &format!(":{far}")),
        (&format!("PEXPIRE k {}", i64::MIN), ":1"),
        ("GET k", "$-1"),
    ]);
    // memcached's clients may say more, which is told as what can be
    let (mut server, mut client) = start(Resp);
    let mut other = server.client(kv::Protocol::Memcached);
    server.ask(&mut other, &format!("set k 0 {far} 1\r\n1\r\n"));
    for line in ["PTTL k", "PEXPIRETIME k"] {
        assert_eq!(ask(&mut server, &mut client, line), format!(":{far}|"));
    }
    assert!(ask(&mut server, &mut client, "TTL k").len() > 15);
}

#[test]
fn conditions_of_a_time_may_be_several() {
    script(&[
        ("SET k v", "+OK"),
        (
            "EXPIRE k 10 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k x FOO", "-ERR Unsupported option FOO"),
        ("EXPIRE k 10 XX LT", ":0"),
        ("EXPIRE k 20 LT", ":1"),
        ("EXPIRE k 10 xx lt", ":1"),
        ("EXPIRE k 15 XX LT", ":0"),
        ("EXPIRE k 15 XX GT", ":1"),
        ("TTL k", ":15"),
        ("EXPIRE k 010", "-ERR value is not an integer or out of range"),
        ("SET k v EX 10 EX 20", "+OK"),
        ("TTL k", ":20"),
        ("SET k v KEEPTTL KEEPTTL XX XX", "+OK"),
        ("SET k v EX 10 KEEPTTL", "-ERR syntax error"),
        ("SET k v EX x FOO", "-ERR syntax error"),
        ("SET k v PERSIST", "-ERR syntax error"),
        ("GETEX k EX 10 PERSIST", "-ERR syntax error"),
        ("GETEX k NX", "-ERR syntax error"),
        ("GETEX k EX 5 EX 6", "$1|v"),
        ("TTL k", ":6"),
    ]);
}

/// By an error, and with what they had where that is possible.
#[test]
fn what_is_exchanged_is_refused_as_what_is_set() {
    let tenant = TenantConfig { max_bytes: 8192, ..crate::talk::tenant("small") };
    let mut server = Server::new(1 << 20, vec![tenant, crate::talk::tenant("other")]);
    let mut client = server.client(Resp);
    let too_large = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    let no_room = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    for (len, text, left) in [((1 << 18) + 1, too_large, "$3|old|"), (9000, no_room, "$-1|")] {
        let value = vec![b'v'; len];
        for words in [
            &[&b"SET"[..], b"k", &value, b"GET"][..],
            &[b"GETSET", b"k", &value],
            &[b"SET", b"k", &value, b"XX", b"GET"],
        ] {
            ask(&mut server, &mut client, "SET k old");
            let told = server.send(&mut client, &command(words), 1 << 20);
            assert_eq!(String::from_utf8(told).unwrap(), text);
            assert_eq!(ask(&mut server, &mut client, "GET k"), left, "{len}");
        }
    }
}

#[test]
fn keys_end_when_they_are_told_to() {
    let (mut server, mut client) = start(Resp);
    let date = WALL_MS / 1000 + 50;
    let mut told = |server: &mut Server, line: &str| ask(server, &mut client, line);
    for line in ["SET a 1 EX 100", "SET b 1 PX 1500", "SETEX e 10 1", "PSETEX f 10 1", "SET g 1"] {
        assert_eq!(told(&mut server, line), "+OK|", "{line}");
    }
    assert_eq!(told(&mut server, &format!("SET c 1 EXAT {date}")), "+OK|");
    assert_eq!(told(&mut server, &format!("SET d 1 PXAT {}", WALL_MS + 10)), "+OK|");
    for (line, answer) in [
        ("TTL a", ":100|"),
        ("PTTL b", ":1500|"),
        ("TTL c", ":50|"),
        ("EXPIRETIME c", &format!(":{date}|")),
        ("TTL g", ":-1|"),
        ("TTL none", ":-2|"),
        ("SET a 2 KEEPTTL", "+OK|"),
        ("TTL a", ":100|"),
        ("PERSIST a", ":1|"),
        ("PERSIST a", ":0|"),
        ("TTL a", ":-1|"),
        ("EXPIRE a 10 XX", ":0|"),
        ("EXPIRE a 10 NX", ":1|"),
        ("EXPIRE a 5 GT", ":0|"),
        ("EXPIRE a 20 GT", ":1|"),
        ("PEXPIRE a 5000 LT", ":1|"),
        ("EXPIRE none 5", ":0|"),
        ("EXPIRE a 5 QQ", "-ERR Unsupported option QQ|"),
        ("GETEX a EX 7", "$1|2|"),
        ("TTL a", ":7|"),
        ("GETEX a PERSIST", "$1|2|"),
        ("TTL a", ":-1|"),
        ("SET h 1 EX 0", "-ERR invalid expire time in 'set' command|"),
        ("SET h 1 EX x", "-ERR value is not an integer or out of range|"),
        ("SET h 1 EX 5 PX 5", "-ERR syntax error|"),
        ("SET h 1 NX XX", "-ERR syntax error|"),
        ("SETEX h -1 1", "-ERR invalid expire time in 'setex' command|"),
    ] {
        assert_eq!(told(&mut server, line), answer, "{line}");
    }
    server.wait_ms(10);
    assert_eq!(told(&mut server, "EXISTS a b c d e f g"), ":5|");
    server.wait_ms(10_000);
    assert_eq!(told(&mut server, "EXISTS a b c d e f g"), ":3|");
    assert_eq!(told(&mut server, "EXPIRE g -1"), ":1|");
    assert_eq!(told(&mut server, "GET g"), "$-1|");
    assert_eq!(told(&mut server, "EXPIREAT a 1000"), ":1|");
    assert_eq!(told(&mut server, "DBSIZE"), ":1|");
}

#[test]
fn connections_introduce_themselves() {
    script(&[
        ("PING", "+PONG"),
        ("PING hello", "$5|hello"),
        ("ECHO x", "$1|x"),
        ("SELECT 0", "+OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("CLIENT GETNAME", "$-1"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "$2|me"),
        ("CLIENT SETINFO LIB-NAME x", "+OK"),
        ("CLIENT ID", ":1"),
        ("COMMAND", "*0"),
        ("COMMAND DOCS", "*0"),
        ("CONFIG GET save", "*2|$4|save|$0|"),
        ("CONFIG GET nothing", "*0"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("CLIENT SETNAME a b", "-ERR wrong number of arguments for 'client|setname' command"),
        ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
        ("HELLO abc", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 2 FOO", "-ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 2 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'"),
        ("HELLO 2 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"),
        ("AUTH default anything", "+OK"),
        (
            "AUTH somebody anything",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "HELLO 3 AUTH somebody x",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH a b c", "-ERR syntax error"),
        ("ROLE", "*3|$6|master|:0|*0"),
        (
            "INFO replication",
            "$105|# Replication|role:master|connected_slaves:0|master_failover_state:no-failover|master_repl_offset:0|",
        ),
        ("FLUSHALL SYNC ASYNC", "-ERR syntax error"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("CLIENT GETNAME", "$2|me"),
        ("RESET", "+RESET"),
        ("CLIENT GETNAME", "$-1"),
        ("QUIT", "+OK"),
    ]);
    let (mut server, mut client) = start(Resp);
    assert!(
        ask(&mut server, &mut client, "AUTH secret").starts_with("-ERR AUTH <password> called")
    );
    let told = ask(&mut server, &mut client, "HELLO 3 AUTH default x SETNAME you");
    assert!(told.starts_with("%7|$6|server|"), "{told}");
    assert_eq!(ask(&mut server, &mut client, "CLIENT GETNAME"), "$3|you|");
    assert!(ask(&mut server, &mut client, "HELLO 2").starts_with("*14|"));
    assert!(ask(&mut server, &mut client, "INFO").contains("redis_version:7.0.15|"));
    assert!(ask(&mut server, &mut client, "INFO memory").contains("maxmemory:16777216|"));
    ask(&mut server, &mut client, "QUIT");
    assert!(client.ended);
}

#[test]
fn version_3_has_its_own_nulls_and_maps() {
    let (mut server, mut client) = start(Resp);
    let told = ask(&mut server, &mut client, "HELLO 3 SETNAME me");
    assert!(told.starts_with("%7|$6|server|$5|redis|"), "{told}");
    assert!(told.contains("$5|proto|:3|"), "{told}");
    for (line, answer) in [
        ("GET a", "_|"),
        ("MGET a", "*1|_|"),
        ("SET a 1 XX", "_|"),
        ("CLIENT GETNAME", "$2|me|"),
        ("CONFIG GET save", "%1|$4|save|$0||"),
    ] {
        assert_eq!(ask(&mut server, &mut client, line), answer, "{line}");
    }
    assert!(ask(&mut server, &mut client, "INFO server").starts_with('='));
}

#[test]
fn errors_are_those_that_clients_know() {
    let long = format!("GET {}", "k".repeat(1025));
    script(&[
        ("NONSENSE a b", "-ERR unknown command 'NONSENSE', with args beginning with: 'a' 'b' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET a b", "-ERR wrong number of arguments for 'get' command"),
        ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("SET a 1 QQ", "-ERR syntax error"),
        ("SET a 1 EX", "-ERR syntax error"),
        ("SCAN x", "-ERR invalid cursor"),
        (&long, "-ERR a key has at most 1024 bytes here"),
        (
            "CONFIG SET maxmemory 1",
            "-ERR CONFIG SET is not supported: settings are flags of trapeze memory",
        ),
    ]);
    for (text, answer) in [
        ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1048577\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        ("*01\r\n$4\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("GET \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("GET 'a'b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1\r\n$4\r\nPINGxx", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1\r\n$99999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        let (mut server, mut client) = start(Resp);
        assert_eq!(server.ask(&mut client, text), answer, "{text:?}");
        assert!(client.ended, "{text:?}");
    }
    let (mut server, mut client) = start(Resp);
    let told = server.ask(&mut client, &"x".repeat(100_000));
    assert_eq!(told, "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn a_person_can_type_commands() {
    let (mut server, mut client) = start(Resp);
    assert_eq!(
        server.ask(&mut client, "PING\r\n\r\nset a 5\nGET  a\r\n"),
        "+PONG\r\n+OK\r\n$1\r\n5\r\n"
    );
    assert_eq!(server.ask(&mut client, "*0\r\n*-1\r\nPING\r\n"), "+PONG\r\n");
    let line = "SET a \"hello \\x77orld\"\r\nGET a\r\nSET 'it\\'s' ''\r\nSTRLEN \"it's\"\r\n";
    assert_eq!(server.ask(&mut client, line), "+OK\r\n$11\r\nhello world\r\n+OK\r\n:0\r\n");
    let many: String = (0..40).map(|n| format!(" 'key {n}'")).collect();
    assert_eq!(server.ask(&mut client, &format!("EXISTS{many} 'it\\'s'\r\n")), ":1\r\n");
}

#[test]
fn counters_begin_again() {
    let (mut server, mut client) = start(Resp);
    server.items.facts_mut().refused = 3;
    script_of(&mut server, &mut client, &[("SET a 1", "+OK"), ("GET a", "$1|1"), ("GET b", "$-1")]);
    let told = ask(&mut server, &mut client, "INFO stats");
    assert!(told.contains("keyspace_hits:1|keyspace_misses:1|"), "{told}");
    assert_eq!(ask(&mut server, &mut client, "CONFIG RESETSTAT"), "+OK|");
    let told = ask(&mut server, &mut client, "INFO stats");
    assert!(told.contains("rejected_connections:0|keyspace_hits:0|keyspace_misses:0|"), "{told}");
    assert_eq!(ask(&mut server, &mut client, "DBSIZE"), ":1|");
}

#[test]
fn a_scan_finds_every_key_once() {
    let (mut server, mut client) = start(Resp);
    for number in 0..500 {
        ask(&mut server, &mut client, &format!("SET key-{number} x"));
    }
    ask(&mut server, &mut client, "SET other x PX 5");
    server.wait_ms(5);
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let told = ask(&mut server, &mut client, &format!("SCAN {cursor} MATCH key-* COUNT 33"));
        let words: Vec<&str> = told.split('|').collect();
        cursor = words[2].to_string();
        found.extend(words[4..].iter().filter(|w| w.starts_with("key-")).map(|w| w.to_string()));
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 500);
    assert!(ask(&mut server, &mut client, "KEYS *-49?").starts_with("*10|"));
}

#[test]
fn items_end_when_they_should_though_the_wall_clock_is_set() {
    for step in [-7_200_000i64, 7_200_000] {
        let (mut server, mut client) = start(Resp);
        let date = WALL_MS / 1000 + 100;
        ask(&mut server, &mut client, "SET a 1 EX 100");
        ask(&mut server, &mut client, &format!("SET b 1 EXAT {date}"));
        server.moment.wall_ms = server.moment.wall_ms.checked_add_signed(step).unwrap();
        for key in ["a", "b"] {
            assert_eq!(ask(&mut server, &mut client, &format!("TTL {key}")), ":100|", "{step}");
        }
        server.moment.now_ms += 99_000;
        assert_eq!(ask(&mut server, &mut client, "EXISTS a b"), ":2|", "{step}");
        server.moment.now_ms += 1_001;
        assert_eq!(ask(&mut server, &mut client, "EXISTS a b"), ":0|", "{step}");
    }
}

#[test]
fn an_http_request_ends_the_connection_before_its_body_is_executed() {
    let requests = [
        "POST / HTTP/1.1\r\nHost: localhost:6379\r\n\r\nSET a stolen\r\n",
        "GET /index.html HTTP/1.1\r\nSET a stolen\r\n",
        "get / HTTP/1.0\r\nSET a stolen\r\n",
        "DELETE /x HTTP/1.1\r\nSET a stolen\r\n",
        "Host: localhost\r\nSET a stolen\r\n",
        "host: localhost\r\nSET a stolen\r\n",
        "X-Anything: y\r\nSET a stolen\r\n",
        "PING\r\nPOST /\r\nSET a stolen\r\n",
    ];
    for request in requests {
        for step in [1, 7, 4096] {
            let mut server = Server::usual();
            let mut client = server.client(Resp);
            let answer = server.send(&mut client, request.as_bytes(), step);
            assert!(client.ended, "{request:?}");
            assert!(!String::from_utf8_lossy(&answer).contains("OK"), "{request:?}");
            let mut other = server.client(Resp);
            assert_eq!(server.ask(&mut other, "GET a\r\n"), "$-1\r\n", "{request:?}");
        }
    }
    script(&[("SET HTTP/1.1 1", "+OK"), ("MGET a HTTP/1.1", "*2|$-1|$1|1")]);
}

/// A server whose clients have to give this password.
fn locked(password: &str) -> Server {
    let mut server = Server::usual();
    server.items.facts_mut().password = Some(password.into());
    server
}

#[test]
fn without_the_password_nothing_is_executed() {
    let mut server = locked("sesame");
    let mut client = server.client(Resp);
    let no = "-NOAUTH Authentication required.\r\n";
    for text in
        ["GET a", "SET a 1", "INFO", "MULTI", "EXEC", "CONFIG GET *", "FLUSHALL", "nonsense"]
    {
        assert_eq!(server.ask(&mut client, &format!("{text}\r\n")), no, "{text}");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let long = "x".repeat(500);
    let texts = ["AUTH x", "AUTH sesam", "AUTH sesame2", "AUTH other sesame", "AUTH default x"];
    for text in texts.iter().map(|text| text.to_string()).chain([format!("AUTH {long}")]) {
        assert_eq!(server.ask(&mut client, &format!("{text}\r\n")), wrong, "{text}");
        assert_eq!(server.ask(&mut client, "GET a\r\n"), no, "{text}");
    }
    assert!(server.ask(&mut client, "HELLO 3\r\n").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(server.ask(&mut client, "HELLO 3 AUTH default x\r\n"), wrong);
    assert_eq!(
        server.ask(&mut client, "AUTH\r\n"),
        "-ERR wrong number of arguments for 'auth' command\r\n"
    );
    assert!(!client.ended);
}

#[test]
fn the_password_opens_by_every_way_to_give_it() {
    for text in ["AUTH sesame", "AUTH default sesame", "HELLO 2 AUTH default sesame SETNAME me"] {
        let mut server = locked("sesame");
        let mut client = server.client(Resp);
        assert!(!server.ask(&mut client, &format!("{text}\r\n")).starts_with('-'), "{text}");
        assert_eq!(server.ask(&mut client, "SET a 1\r\n"), "+OK\r\n", "{text}");
        assert_eq!(server.ask(&mut client, "AUTH wrong\r\n").as_bytes()[0], b'-');
        assert_eq!(server.ask(&mut client, "GET a\r\n"), "$1\r\n1\r\n", "it stays open");
        assert_eq!(server.ask(&mut client, "RESET\r\n"), "+RESET\r\n");
        assert!(server.ask(&mut client, "GET a\r\n").starts_with("-NOAUTH"), "{text}");
    }
}

#[test]
fn a_stranger_has_no_memory_of_the_server() {
    for text in [
        "*11\r\n$4\r\nMGET\r\n".to_string(),
        "*1000000\r\n".into(),
        "*2\r\n$3\r\nSET\r\n$1000000\r\n".into(),
    ] {
        let mut server = locked("sesame");
        let mut client = server.client(Resp);
        let text = text + &"x".repeat(300_000);
        let answer = server.send(&mut client, text.as_bytes(), 4096);
        assert!(client.ended || client.session.held_bytes() < 1 << 16, "{:?}", &text[..20]);
        assert_eq!(client.session.draft_bytes(), 0);
        assert!(answer.is_empty() || answer[0] == b'-');
    }
}

#[test]
fn a_scan_takes_rounds_by_the_keys_there_are() {
    let mut server = Server::new(64 << 20, vec![tenant("default")]);
    let mut client = server.client(Resp);
    for number in 0..50_000 {
        server.send(&mut client, format!("SET key-{number} 1\r\n").as_bytes(), 4096);
    }
    server.ask(&mut client, "FLUSHALL\r\n");
    server.ask(&mut client, "SET only 1\r\n");
    let (mut cursor, mut rounds, mut found) = ("0".to_string(), 0, Vec::new());
    loop {
        let told = server.ask(&mut client, &format!("SCAN {cursor}\r\n"));
        let words: Vec<_> = told.split("\r\n").collect();
        cursor = words[2].to_string();
        found.extend(words.iter().filter(|word| **word == "only").map(|word| word.to_string()));
        rounds += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, ["only"]);
    assert!(rounds <= 5, "{rounds} rounds for one key");
}

#[test]
fn info_counts_what_expires_and_has_what_exporters_read() {
    let mut server = Server::usual();
    let mut client = server.client(Resp);
    for text in ["SET a 1 PX 4000", "SET b 1 PX 2000", "SET c 1", "SET d 1 EX 9", "PERSIST d"] {
        server.ask(&mut client, &format!("{text}\r\n"));
    }
    let info = server.ask(&mut client, "INFO keyspace\r\n");
    assert!(info.contains("db0:keys=4,expires=2,avg_ttl=3000"), "{info}");
    server.ask(&mut client, "DEL a\r\n");
    server.ask(&mut client, "EXPIRE c 6\r\n");
    let info = server.ask(&mut client, "INFO keyspace\r\n");
    assert!(info.contains("db0:keys=3,expires=2,avg_ttl=4000"), "{info}");
    server.ask(&mut client, "FLUSHALL\r\n");
    let info = server.ask(&mut client, "INFO\r\n");
    assert!(!info.contains("db0"), "{info}");
    // Fields that redis_exporter 1.x reads of a server without persistence and replicas.
    let fields = [
        "redis_version",
        "redis_mode",
        "os",
        "process_id",
        "tcp_port",
        "uptime_in_seconds",
        "connected_clients",
        "blocked_clients",
        "maxclients",
        "used_memory",
        "used_memory_rss",
        "used_memory_peak",
        "maxmemory",
        "maxmemory_policy",
        "mem_fragmentation_ratio",
        "loading",
        "rdb_changes_since_last_save",
        "rdb_last_save_time",
        "aof_enabled",
        "total_connections_received",
        "total_commands_processed",
        "total_net_input_bytes",
        "total_net_output_bytes",
        "rejected_connections",
        "expired_keys",
        "evicted_keys",
        "keyspace_hits",
        "keyspace_misses",
        "pubsub_channels",
        "latest_fork_usec",
        "role",
        "connected_slaves",
        "master_repl_offset",
        "used_cpu_sys",
        "used_cpu_user",
        "cluster_enabled",
    ];
    for field in fields {
        let lines: Vec<_> =
            info.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(':')).collect();
        assert!(lines.len() == 1 && !lines[0].is_empty(), "{field}: {lines:?}");
    }
}
