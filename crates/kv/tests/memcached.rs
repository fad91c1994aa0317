//! memcached's protocols, as doc/protocol.txt of memcached 1.6 describes them.

use crate::talk::{Client, LENGTHS_AND_STEPS, Server, WALL_MS, pattern, start};
use kv::Protocol::Memcached;
use kv::limits::INPUT_BYTES;

/// Sends each line and compares the answer; `|` stands for a line's end in both.
fn script(lines: &[(&str, &str)]) {
    let (mut server, mut client) = start(Memcached);
    for (line, answer) in lines {
        let told = server.ask(&mut client, &format!("{line}|").replace('|', "\r\n"));
        let expected = if answer.is_empty() { String::new() } else { format!("{answer}|") };
        assert_eq!(told.replace("\r\n", "|"), expected, "{line}");
    }
}

#[test]
fn storage_commands_store_as_their_names_say() {
    script(&[
        ("get a", "END"),
        ("set a 5 0 3|abc", "STORED"),
        ("get a", "VALUE a 5 3|abc|END"),
        ("add a 0 0 1|x", "NOT_STORED"),
        ("add b 0 0 1|x", "STORED"),
        ("replace c 0 0 1|x", "NOT_STORED"),
        ("replace b 7 0 2|yz", "STORED"),
        ("append b 0 0 2|34", "STORED"),
        ("prepend b 0 0 2|12", "STORED"),
        ("append c 0 0 1|x", "NOT_STORED"),
        ("get a b c", "VALUE a 5 3|abc|VALUE b 7 6|12yz34|END"),
        ("delete a", "DELETED"),
        ("delete a", "NOT_FOUND"),
        ("delete b 0", "DELETED"),
        ("set e 0 0 0|", "STORED"),
        ("get e", "VALUE e 0 0||END"),
        ("set f 4294967295 0 1|1", "STORED"),
        ("get f", "VALUE f 4294967295 1|1|END"),
    ]);
}

#[test]
fn cas_is_checked_and_changes_with_every_store() {
    script(&[
        ("set a 0 0 1|1", "STORED"),
        ("gets a", "VALUE a 0 1 1|1|END"),
        ("cas a 0 0 1 1|2", "STORED"),
        ("cas a 0 0 1 1|3", "EXISTS"),
        ("cas b 0 0 1 1|3", "NOT_FOUND"),
        ("gets a", "VALUE a 0 1 2|2|END"),
        ("append a 0 0 1|3", "STORED"),
        ("gets a", "VALUE a 0 2 3|23|END"),
    ]);
}

#[test]
fn numbers_count_up_around_and_down_to_nothing() {
    script(&[
        ("incr n 1", "NOT_FOUND"),
        ("set n 3 0 2|10", "STORED"),
        ("incr n 5", "15"),
        ("decr n 6", "9"),
        ("decr n 100", "0"),
        ("set n 0 0 20|18446744073709551615", "STORED"),
        ("incr n 2", "1"),
        ("incr n x", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr n -1", "CLIENT_ERROR invalid numeric delta argument"),
        ("set n 0 0 2|1x", "STORED"),
        ("incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ("set n 0 0 3|10 ", "STORED"),
        ("incr n 1", "11"),
        ("get n", "VALUE n 0 2|11|END"),
        ("set n 0 0 3| 10", "STORED"),
        ("decr n +1", "9"),
        ("set n 0 0 7|  7 abc", "STORED"),
        ("incr n 01", "8"),
        ("set n 0 0 2|-5", "STORED"),
        ("incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ("set n 0 0 1| ", "STORED"),
        ("incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
    ]);
}

#[test]
fn noreply_is_silent_and_what_follows_is_answered() {
    script(&[
        ("set a 0 0 1 noreply|1", ""),
        ("add a 0 0 1 noreply|1", ""),
        ("incr a 4 noreply", ""),
        ("touch a 0 noreply", ""),
        ("verbosity 1 noreply", ""),
        ("cas a 0 0 1 99 noreply|1", ""),
        ("delete b noreply|get a", "VALUE a 0 1|5|END"),
        ("flush_all noreply|get a", "END"),
        ("get a|delete b noreply|get a", "END|END"),
    ]);
}

#[test]
fn errors_are_those_that_clients_know() {
    let long = "k".repeat(251);
    script(&[
        ("", "ERROR"),
        ("nonsense", "ERROR"),
        ("get", "ERROR"),
        ("verbosity", "ERROR"),
        ("verbosity 1", "OK"),
        ("verbosity 1 2 3", "ERROR"),
        (&format!("get {long}"), "CLIENT_ERROR bad command line format"),
        (&format!("set {long} 0 0 4|quit|get x"), "CLIENT_ERROR bad command line format|END"),
        ("set a x 0 1|1|get x", "CLIENT_ERROR bad command line format|END"),
        ("set a 0 x 1|1", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 x", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 -1", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 99999999999", "CLIENT_ERROR bad data chunk"),
        ("verbosity x", "CLIENT_ERROR bad command line format"),
        ("gat", "ERROR"),
        ("gat 10", "END"),
        ("set a 0 0", "ERROR"),
        ("cas a 0 0 1|1", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 3|abcde", "CLIENT_ERROR bad data chunk|ERROR"),
        ("get a", "END"),
        ("touch a x", "CLIENT_ERROR invalid exptime argument"),
        ("gat x a", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
        ("delete a 5", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("shutdown", "ERROR: shutdown not enabled"),
        (&format!("set {} 0 0 1|1", "k".repeat(250)), "STORED"),
        ("set a\u{1}\tb 0 0 1|1", "STORED"),
        ("get a\u{1}\tb", "VALUE a\u{1}\tb 0 1|1|END"),
    ]);
}

#[test]
fn items_end_when_they_are_told_to() {
    let (mut server, mut client) = start(Memcached);
    let date = WALL_MS / 1000 + 100;
    let sets =
        [("span", 100), ("date", date as i64), ("past", 1_600_000_000), ("gone", -1), ("ever", 0)];
    for (key, expiry) in sets {
        let line = format!("set {key} 0 {expiry} 1\r\nx\r\n");
        assert_eq!(server.ask(&mut client, &line), "STORED\r\n");
    }
    let keys = |server: &mut Server, client: &mut Client| {
        let told = server.ask(client, "get span date past gone ever\r\n");
        told.lines().filter_map(|line| line.split(' ').nth(1).map(String::from)).collect::<Vec<_>>()
    };
    assert_eq!(keys(&mut server, &mut client), ["span", "date", "ever"]);
    server.wait_ms(99_999);
    assert_eq!(keys(&mut server, &mut client), ["span", "date", "ever"]);
    assert_eq!(server.ask(&mut client, "gat 50 span\r\n"), "VALUE span 0 1\r\nx\r\nEND\r\n");
    assert_eq!(server.ask(&mut client, "touch ever 1\r\n"), "TOUCHED\r\n");
    server.wait_ms(1);
    assert_eq!(keys(&mut server, &mut client), ["span", "ever"]);
    server.wait_ms(1_000);
    assert_eq!(keys(&mut server, &mut client), ["span"]);
    assert_eq!(server.ask(&mut client, "touch ever 1\r\n"), "NOT_FOUND\r\n");
}

#[test]
fn flush_all_empties_now_or_later() {
    let (mut server, mut client) = start(Memcached);
    server.ask(&mut client, "set a 0 0 1\r\n1\r\n");
    assert_eq!(server.ask(&mut client, "flush_all 10\r\n"), "OK\r\n");
    server.wait_ms(9_999);
    server.ask(&mut client, "set b 0 0 1\r\n1\r\n");
    assert!(server.ask(&mut client, "get a\r\n").starts_with("VALUE"));
    server.wait_ms(1);
    assert_eq!(server.ask(&mut client, "get a b\r\n"), "END\r\n");
    server.ask(&mut client, "set a 0 0 1\r\n1\r\n");
    assert!(server.ask(&mut client, "get a\r\n").starts_with("VALUE"));
    server.ask(&mut client, "flush_all\r\n");
    assert_eq!(server.ask(&mut client, "get a\r\n"), "END\r\n");
}

#[test]
fn statistics_count() {
    let (mut server, mut client) = start(Memcached);
    server.ask(&mut client, "set a 0 0 1\r\n1\r\nget a b\r\n");
    let told = server.ask(&mut client, "stats\r\n");
    assert!(told.ends_with("END\r\n"));
    for line in
        ["get_hits 1", "get_misses 1", "curr_items 1", "cmd_get 2", "limit_maxbytes 16777216"]
    {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line} in {told}");
    }
    assert_eq!(server.ask(&mut client, "stats items\r\n"), "END\r\n");
    server.items.facts_mut().accepted = 5;
    assert_eq!(server.ask(&mut client, "stats reset\r\n"), "RESET\r\n");
    let told = server.ask(&mut client, "stats\r\n");
    for line in ["get_hits 0", "get_misses 0", "cmd_set 0", "total_connections 0", "curr_items 1"] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line} in {told}");
    }
    assert!(server.ask(&mut client, "version\r\n").starts_with("VERSION 1.6."));
    assert!(
        server.ask(&mut client, "stats settings\r\n").contains("STAT item_size_max 4194304\r\n")
    );
    assert_eq!(server.ask(&mut client, "quit\r\nget a\r\n"), "");
    assert!(client.ended);
}

/// A get whose new end has passed already gives the value once more, and the item is gone.
#[test]
fn a_meta_get_may_end_its_item() {
    script(&[
        ("set a 0 100 3|abc", "STORED"),
        ("mg a T-1 v", "VA 3|abc"),
        ("mg a v", "EN"),
        ("set a 0 0 1|b", "STORED"),
        ("mg a v", "VA 1|b"),
    ]);
}

#[test]
fn meta_get_tells_what_it_is_asked() {
    script(&[
        ("mn", "MN"),
        ("mg a v", "EN"),
        ("mg a v k Oabc", "EN ka Oabc"),
        ("mg a v s t Oabc k", "EN Oabc ka"),
        ("mg Yg== b v k Ox", "EN kYg== b Ox"),
        ("mg a v q k|mn", "MN"),
        ("set a 5 100 3|abc", "STORED"),
        ("mg a", "HD"),
        ("mg a v", "VA 3|abc"),
        ("mg a t f s v c k Oxyz q", "VA 3 t100 f5 s3 c1 ka Oxyz|abc"),
        ("mg YQ== b k v", "VA 3 kYQ== b|abc"),
        ("set b 0 0 1|1", "STORED"),
        ("mg b h l t", "HD h0 l0 t-1"),
        ("mg b h", "HD h1"),
        ("mg new N30 t", "HD t30 W"),
        ("mg new h", "HD h1 Z"),
        ("mg b T30 t", "HD t30"),
        ("mg", "ERROR"),
        ("mg b !", "CLIENT_ERROR invalid flag"),
        ("mg b v v", "CLIENT_ERROR duplicate flag"),
        ("mg b Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg none Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg none Rx", "CLIENT_ERROR bad token in command line format"),
        ("mg none Nx", "CLIENT_ERROR bad token in command line format"),
        ("mg none R-1 T-1", "EN"),
        ("mg !!! b v", "CLIENT_ERROR error decoding key"),
        ("mg c O1234567890123456789012345678901", "EN O1234567890123456789012345678901"),
        ("mg a O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long"),
        ("me", "CLIENT_ERROR bad command line format"),
        ("me c", "EN"),
    ]);
}

#[test]
fn meta_set_has_modes_and_flags() {
    script(&[
        ("ms a 2|hi", "HD"),
        ("ms a 2 c Oq k|hi", "HD c2 Oq ka"),
        ("ms a 2 q|hi|mn", "MN"),
        ("ms a 2 ME|no", "NS"),
        ("ms b 2 MR|no", "NS"),
        ("ms b 2 MA|no", "NS"),
        ("ms b 2 MA N0|ye", "HD"),
        ("ms b 1 MP|!", "HD"),
        ("ms b 1 append|x", "CLIENT_ERROR invalid flag"),
        ("ms b 1 MZ|x", "CLIENT_ERROR invalid mode for ms M token"),
        ("ms b 1 Mset|x", "CLIENT_ERROR incorrect length for M token"),
        ("ms b 1 F-1|x", "CLIENT_ERROR bad command line format"),
        ("ms b 1 P L v f t h l u|!", "HD"),
        ("ms b 1 Cx|x", "CLIENT_ERROR bad token in command line format"),
        ("ms a", "CLIENT_ERROR bad command line format"),
        ("ms b 2 MS|!y", "HD"),
        ("ms b 1 MA|e", "HD"),
        ("mg b v s", "VA 3 s3|!ye"),
        ("ms a 1 C1|x", "EX"),
        ("ms a 1 C3 F9 T60|x", "HD"),
        ("mg a v f t", "VA 1 f9 t60|x"),
        ("ms z 1 C3 Oo k|x", "NF Oo kz"),
        ("ms a 1 E1000|y", "HD"),
        ("mg a c", "HD c1000"),
        ("ms a 1 C5 ME|y", "NS"),
        ("ms no 1 C5 MA|y", "NS"),
        ("ms a x", "CLIENT_ERROR bad command line format"),
        ("ms a 1|toolong", "CLIENT_ERROR bad data chunk|ERROR"),
        ("ms AP8= 2 b|hi", "HD"),
        ("mg AP8= b v k", "VA 2 kAP8= b|hi"),
    ]);
}

#[test]
fn meta_delete_and_arithmetic() {
    script(&[
        ("md a", "NF"),
        ("md a q k|mn", "NF ka|MN"),
        ("ms a 1|1", "HD"),
        ("md a C9", "EX"),
        ("ma a", "HD"),
        ("ma a v", "VA 1|3"),
        ("ma a MD D2 v", "VA 1|1"),
        ("ma a D10 v t", "VA 2 t-1|11"),
        ("ma n", "NF"),
        ("ma n N0 J13 v", "VA 2|13"),
        ("ma n N0 J13 v", "VA 2|14"),
        ("ma n N0 J13 v C0", "VA 2|15"),
        ("ma n MX", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma n Dx", "CLIENT_ERROR invalid or duplicate flag"),
        ("md n k k", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma new N30 T99 t", "HD t99"),
        ("ms x 1|x", "HD"),
        ("ma x", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ("md a q", ""),
        ("mg a", "EN"),
        ("md x x", "HD"),
        ("mg x v", "VA 0|"),
    ]);
}

#[test]
fn one_client_makes_the_new_value() {
    script(&[
        ("mg a v N30", "VA 0 W|"),
        ("mg a v N30", "VA 0 Z|"),
        ("ms a 1 T100|1", "HD"),
        ("mg a v N30 R30", "VA 1|1"),
        ("mg a v R200", "VA 1 W|1"),
        ("mg a v R200", "VA 1 Z|1"),
        ("ms a 1|1", "HD"),
        ("md a I T30", "HD"),
        ("mg a v t c", "VA 1 t30 c4 X W|1"),
        ("mg a v", "VA 1 Z X|1"),
        ("ms a 1 C3 I|2", "HD"),
        ("mg a v t", "VA 1 t30 Z X|2"),
        ("ms a 1 C0 I|3", "EX"),
        ("ms a 1 C3 I MA|3", "EX"),
        ("ms a 1 C4 I T90|3", "HD"),
        ("mg a v t", "VA 1 t30 Z X|3"),
        ("ms a 1|3", "HD"),
        ("mg a v", "VA 1|3"),
    ]);
}

/// No client was told to make a new value when it is replaced by an older one: then the next one to ask is.
#[test]
fn an_older_value_leaves_open_who_makes_a_new_one() {
    script(&[
        ("ms a 1 T30|1", "HD"),
        ("md a I", "HD"),
        ("ms a 1 C1 I|2", "HD"),
        ("mg a v t", "VA 1 t30 X W|2"),
        ("mg a v t", "VA 1 t30 Z X|2"),
    ]);
}

/// As memcached 1.6.18 does it: what is usual is silent, and that is another thing for each command.
#[test]
fn a_quiet_command_tells_what_is_not_usual() {
    script(&[
        ("mg a q", ""),
        ("ms a 1 q MR|1", "NS"),
        ("ms a 1 q C5|1", "NF"),
        ("md a q", "NF"),
        ("ma a q", "NF"),
        ("ma a q N0", "HD"),
        ("ma a q N0", ""),
        ("ma a q v", ""),
        ("ma a q v C5", "EX"),
        ("md a q C5", "EX"),
        ("ms a 1 q ME|1", "NS"),
        ("ms a 1 q C5|1", "EX"),
        ("ms a 1 q|x", ""),
        ("ma a q", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ("mg a q", "HD"),
        ("mg a q v", "VA 1|x"),
        ("md a q", ""),
        ("mg a", "EN"),
    ]);
}

#[test]
fn values_of_every_length_come_back_in_any_pieces() {
    for (len, step) in LENGTHS_AND_STEPS {
        let (mut server, mut client) = start(Memcached);
        let value = pattern(len);
        let mut line = format!("set key 1 0 {len}\r\n").into_bytes();
        line.extend_from_slice(&value);
        line.extend_from_slice(b"\r\nmn\r\n");
        assert_eq!(server.send(&mut client, &line, step), b"STORED\r\nMN\r\n", "{len}");
        let mut expected = format!("VALUE key 1 {len}\r\n").into_bytes();
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\nEND\r\n");
        assert!(server.send(&mut client, b"get key\r\n", 1 << 20) == expected, "{len}");
        server.ask(&mut client, "delete key\r\n");
        assert_eq!(server.frames.free_pages(), server.frames.pages(), "nothing is left of {len}");
    }
}

#[test]
fn a_value_that_is_being_sent_does_not_change() {
    let (mut server, mut writer) = start(Memcached);
    let mut reader = server.client(Memcached);
    let value = |byte: u8| [b"set k 0 0 8192\r\n".as_slice(), &[byte; 8192], b"\r\n"].concat();
    server.send(&mut writer, &value(b'a'), 1 << 20);
    server.read(&mut reader, b"get k\r\n");
    server.send(&mut writer, &value(b'b'), 1 << 20);
    server.ask(&mut writer, "delete k\r\n");
    server.send(&mut writer, &value(b'c'), 1 << 20);
    let told = reader.take();
    assert!(told[16..16 + 8192].iter().all(|byte| *byte == b'a'));
}

#[test]
fn a_value_that_is_too_large_is_passed_over_and_the_old_one_goes() {
    let (mut server, mut client) = start(Memcached);
    server.ask(&mut client, "set a 0 0 1\r\n1\r\n");
    let len = (4 << 20) + 1;
    let mut line = format!("set a 0 0 {len}\r\n").into_bytes();
    line.extend(std::iter::repeat_n(b'\n', len));
    line.extend_from_slice(b"\r\nget a\r\n");
    let told = server.send(&mut client, &line, 1 << 20);
    assert_eq!(told, b"SERVER_ERROR object too large for cache\r\nEND\r\n");
}

/// Also under a name in base64; what would not have replaced it leaves it, as in memcached.
#[test]
fn a_value_that_is_too_large_takes_the_old_one_with_it_if_it_was_to_replace_it() {
    let len = (4 << 20) + 1;
    for (line, goes) in [
        (format!("set a 0 0 {len} noreply"), true),
        (format!("ms a {len}"), true),
        (format!("ms YQ== {len} b"), true),
        (format!("ms a {len} ME"), true),
        (format!("add a 0 0 {len}"), false),
        (format!("append a 0 0 {len}"), false),
        (format!("cas a 0 0 {len} 1"), false),
    ] {
        let (mut server, mut client) = start(Memcached);
        server.ask(&mut client, "set a 0 0 1\r\n1\r\n");
        let mut text = format!("{line}\r\n").into_bytes();
        text.extend(std::iter::repeat_n(b'x', len));
        text.extend_from_slice(b"\r\nget a\r\n");
        let told = String::from_utf8(server.send(&mut client, &text, 1 << 20)).unwrap();
        let refused = "SERVER_ERROR object too large for cache\r\n";
        let refused = if line.ends_with("noreply") { "" } else { refused };
        let left = if goes { "" } else { "VALUE a 0 1\r\n1\r\n" };
        assert_eq!(told, format!("{refused}{left}END\r\n"), "{line}");
    }
}

#[test]
fn a_get_of_more_keys_than_fit_into_the_input_is_answered() {
    let (mut server, mut client) = start(Memcached);
    server.ask(&mut client, "set last 0 0 2\r\nok\r\n");
    for end in [" last\r\n", " last \n"] {
        let line = format!("get{}{end}", " a-key-that-is-not-there".repeat(10_000));
        let told = server.send(&mut client, line.as_bytes(), 1 << 20);
        assert_eq!(told, b"VALUE last 0 2\r\nok\r\nEND\r\n");
    }
    let line = format!("get {}", "k".repeat(100_000));
    assert!(server.ask(&mut client, &line).starts_with("CLIENT_ERROR"));
    assert!(client.ended);
}

#[test]
fn a_line_without_an_end_ends_the_connection() {
    let (mut server, mut client) = start(Memcached);
    let told = server.ask(&mut client, &"x".repeat(100_000));
    assert_eq!(told, "CLIENT_ERROR line too long\r\n");
    assert!(client.ended);
}

#[test]
fn a_line_of_many_keys_is_done_as_its_answers_are_read() {
    let (mut server, mut client) = start(Memcached);
    server.ask(&mut client, &format!("set k 0 0 2000\r\n{}\r\n", "x".repeat(2000)));
    let line = format!("  gets {}\r\nversion\r\n", "k ".repeat(2000));
    server.read(&mut client, line.as_bytes());
    assert!(client.out.len() < kv::limits::OUTPUT_BYTES_MAX + 4096, "{}", client.out.len());
    let mut answer = String::from_utf8(client.take()).unwrap();
    answer += &server.ask(&mut client, "");
    assert_eq!(answer.matches("VALUE k 0 2000 1\r\n").count(), 2000);
    let end = answer.split("\r\nEND\r\n").nth(1).unwrap();
    assert!(end.starts_with("VERSION ") && end.ends_with("\r\n"));
    // a key that is none ends the line, not the connection
    let line = format!("get {} {} k\r\nmn\r\n", "no ".repeat(200), "y".repeat(251));
    let told = server.ask(&mut client, &line);
    assert_eq!(told, "CLIENT_ERROR bad command line format\r\nMN\r\n");
}

#[test]
fn cas_uniques_are_greater_than_those_of_earlier_lives() {
    let mut incarnations = (0..3).map(|incarnation| {
        let (mut server, mut client) = start(Memcached);
        server.wait_ms(1 + incarnation);
        server.items.begin_cas(server.moment);
        let told = server.ask(&mut client, "set a 0 0 1\r\n1\r\nset a 0 0 1\r\n1\r\nmg a c\r\n");
        told.trim_end().rsplit('c').next().unwrap().parse::<u64>().unwrap()
    });
    let first = incarnations.next().unwrap();
    assert!(
        incarnations.next().unwrap() > first + 1000 && incarnations.all(|later| later < 1 << 63)
    );
}

/// Wherever a read of the socket ends, a line is taken or refused as it is when all of it comes at once.
#[test]
fn what_is_answered_does_not_depend_on_the_pieces() {
    let keys = |count| "k ".repeat(count);
    for line in [
        format!("gat x {}\r\nmn\r\n", keys(20_000)),
        format!("get {} {}\r\nmn\r\n", "y".repeat(300), keys(20_000)),
        format!("get k{}k\r\nmn\r\n", " ".repeat(70_000)),
        format!("{}gets {}\r\nmn\r\n", " ".repeat(13), keys(18_000)),
        format!("{}get k\r\nmn\r\n", " ".repeat(2045)),
        format!("mn {}\r\nmn\r\n", "x".repeat(2045)),
    ] {
        let told = in_pieces(&line);
        assert!(told[0].ends_with(b"MN\r\n"), "{}", &line[..20]);
        assert!(told.iter().all(|other| *other == told[0]), "{}", &line[..20]);
    }
    for line in [
        format!("{}get k\r\nmn\r\n", " ".repeat(2046)),
        format!("mn {}\r\nmn\r\n", "x".repeat(2046)),
    ] {
        let refused = b"CLIENT_ERROR line too long\r\n";
        assert!(in_pieces(&line).iter().all(|told| told == refused), "{}", &line[..20]);
    }
}

/// The part of a line that is passed over from a wrong word on is bounded: a line without an end ends the connection.
#[test]
fn a_wrong_line_that_does_not_end_is_given_up() {
    let refused = b"CLIENT_ERROR bad command line format\r\n".to_vec();
    let taken = [&refused[..], b"MN\r\n"].concat();
    for (spaces, more, expected) in
        [(1, 0, &taken), (300, 0, &taken), (1, 1, &refused), (300, 1, &refused)]
    {
        let rest = |word: &str| word.to_string() + &"z".repeat(INPUT_BYTES - 2 - word.len() + more);
        for wrong in [rest(""), rest(&("y".repeat(300) + " "))] {
            let line = format!("get k{}{wrong}\r\nmn\r\n", " ".repeat(spaces));
            assert!(in_pieces(&line).iter().all(|told| told == expected), "{spaces} {more}");
        }
    }
}

/// The answers to a text that comes in reads of several lengths.
fn in_pieces(text: &str) -> [Vec<u8>; 4] {
    [1, 7, 500, 1 << 20].map(|step| {
        let (mut server, mut client) = start(Memcached);
        server.ask(&mut client, "set s 0 0 1\r\nx\r\n");
        server.send(&mut client, text.as_bytes(), step)
    })
}

#[test]
fn an_http_request_ends_the_connection_before_its_body_is_executed() {
    let body = "set a 0 0 6\r\nstolen\r\n";
    let heads = [
        "POST / HTTP/1.1\r\nHost: localhost:11211\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "PUT /x HTTP/1.1\r\n",
        "Host: localhost\r\n",
        "content-length: 5\r\n",
        "version\r\nPOST /\r\n",
    ];
    for head in heads {
        for step in [1, 4096] {
            let mut server = Server::usual();
            let mut client = server.client(Memcached);
            server.send(&mut client, format!("{head}{body}").as_bytes(), step);
            assert!(client.ended, "{head:?}");
            let mut other = server.client(Memcached);
            assert_eq!(server.ask(&mut other, "get a\r\n"), "END\r\n", "{head:?}");
        }
    }
}
