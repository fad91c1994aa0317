//! Commands that are mostly right, out of any bytes: words from a list, and long ones of lengths near the limits.

use super::LATER;
use kv::Protocol;

/// Names of commands, keys, and what may be behind them.
type Lists = [&'static [&'static str]; 3];

const CLASSIC: Lists = [
    &[
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "get",
        "gets",
        "gat",
        "gats",
        "delete",
        "incr",
        "decr",
        "touch",
        "flush_all",
        "stats",
        "version",
        "verbosity",
        "quit",
        "",
    ],
    &["a", "b", "c", "a", "b", "1", "-1", "noreply", "items", "settings", "reset"],
    &[
        "noreply",
        "a",
        "b",
        "0",
        "1",
        "2",
        "-1",
        "5",
        "2592001",
        "1700000002",
        "4294967295",
        "18446744073709551615",
        "9223372036854775807",
    ],
];

const META: Lists = [
    &["mg", "ms", "md", "ma", "mn", "me"],
    &["a", "b", "c", "YQ=="],
    &[
        "v", "k", "f", "c", "s", "t", "h", "l", "q", "b", "I", "x", "N0", "N1", "N-1", "T0", "T1",
        "T-1", "R1", "R30", "E7", "E99", "C1", "C2", "C7", "F5", "Oxy", "MA", "MP", "ME", "MR",
        "MS", "MI", "MD", "D2", "J10",
    ],
];

const RESP: Lists = [
    &[
        "GET",
        "SET",
        "SETEX",
        "PSETEX",
        "SETNX",
        "GETSET",
        "GETDEL",
        "GETEX",
        "MGET",
        "MSET",
        "MSETNX",
        "APPEND",
        "STRLEN",
        "GETRANGE",
        "INCR",
        "DECR",
        "INCRBY",
        "DECRBY",
        "DEL",
        "EXISTS",
        "TYPE",
        "TTL",
        "PTTL",
        "EXPIRETIME",
        "PEXPIRETIME",
        "EXPIRE",
        "PEXPIRE",
        "EXPIREAT",
        "PEXPIREAT",
        "PERSIST",
        "SCAN",
        "KEYS",
        "DBSIZE",
        "FLUSHALL",
        "PING",
        "ECHO",
        "SELECT",
        "AUTH",
        "HELLO",
        "RESET",
        "CLIENT",
        "COMMAND",
        "CONFIG",
        "INFO",
        "TIME",
        "QUIT",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH",
        "UNWATCH",
        "EXEC",
        "",
    ],
    &[
        "a", "b", "c", "a", "b", "3", "2", "0", "1", "*", "[a-c]", "?", "GET", "SETNAME",
        "GETNAME", "SETINFO", "LIST", "ID", "DOCS", "ASYNC", "",
    ],
    &[
        "a",
        "b",
        "c",
        "0",
        "1",
        "2",
        "-1",
        "-2",
        "5",
        "100",
        "1000",
        "1700000002",
        "1700000002000",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551",
        "EX",
        "PX",
        "EXAT",
        "PXAT",
        "NX",
        "XX",
        "GT",
        "LT",
        "KEEPTTL",
        "GET",
        "PERSIST",
        "MATCH",
        "COUNT",
        "TYPE",
        "SETNAME",
        "AUTH",
        "max*",
        "*",
        "[a-c]",
        "string",
        "",
    ],
];

/// Near all limits of lengths.
const LENGTHS: [usize; 16] = [
    1, 20, 250, 251, 1023, 1024, 1025, 2042, 2045, 4100, 16_400, 40_000, 65_530, 66_000, 262_144,
    262_145,
];

struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Of the list, a long one, or any.
    fn word(&mut self, list: &[&str]) -> Option<Vec<u8>> {
        Some(match self.byte()? {
            number @ 0..200 => list[usize::from(number) % list.len()].as_bytes().to_vec(),
            number @ 200..232 => {
                let len = LENGTHS[usize::from(number) % 16];
                vec![if number < 216 { b'a' } else { b'7' }; len]
            }
            number => {
                let (word, rest) = self.0.split_at(usize::from(number - 232).min(self.0.len()));
                self.0 = rest;
                word.iter().map(|byte| byte % LATER).collect()
            }
        })
    }
}

/// What a client sends. Other bytes make other commands, and most bytes some.
pub fn compose(protocol: Protocol, bytes: &[u8]) -> Vec<u8> {
    let (mut source, mut text) = (Source(bytes), Vec::new());
    while text.len() < 2 << 20 {
        let Some(kind) = source.byte() else { break };
        if kind == LATER {
            text.push(LATER);
            continue;
        }
        let count = if kind < 224 { 1 + usize::from(kind) % 7 } else { 1 + usize::from(kind) % 32 };
        let lists = match protocol {
            Protocol::Resp => RESP,
            Protocol::Memcached if kind % 2 == 0 => META,
            Protocol::Memcached => CLASSIC,
        };
        let words: Vec<Vec<u8>> =
            (0..count).map_while(|place| source.word(lists[place.min(2)])).collect();
        match protocol {
            Protocol::Resp => array(&words, &mut text),
            Protocol::Memcached => lines(&words, &mut text),
        }
    }
    text
}

fn array(words: &[Vec<u8>], text: &mut Vec<u8>) {
    text.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        text.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
}

/// The last word is the value when the first one wants one.
fn lines(words: &[Vec<u8>], text: &mut Vec<u8>) {
    let place = match words.first().map(Vec::as_slice) {
        Some(b"ms") => 2,
        Some(b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas") => 4,
        _ => usize::MAX,
    };
    let (line, value) = match words.split_last() {
        Some((value, line)) if place < 5 && line.len() > 1 => {
            (announcing(line, place, value.len()), Some(value))
        }
        _ => (words.to_vec(), None),
    };
    for part in [Some(&line.join(&b' ')), value].into_iter().flatten() {
        text.extend_from_slice(part);
        text.extend_from_slice(b"\r\n");
    }
}

/// A line with the length of the value that follows it at this place; the classic ones have two numbers before that.
fn announcing(words: &[Vec<u8>], place: usize, len: usize) -> Vec<Vec<u8>> {
    let mut line = words.to_vec();
    if place == 4 {
        let is_number = |word: &[u8]| word.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'));
        line.resize(4, b"0".to_vec());
        line[2..].iter_mut().filter(|word| !is_number(word)).for_each(|word| *word = b"1".to_vec());
    }
    line.insert(place, len.to_string().into_bytes());
    if line[0] == b"cas" {
        line.push(b"1".to_vec());
    }
    line.extend(
        words.iter().filter(|word| *word == b"noreply").take(usize::from(place == 4)).cloned(),
    );
    line
}
