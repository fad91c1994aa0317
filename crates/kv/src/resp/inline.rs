//! Commands as a person types them: words on a line, with quotes (redis.io, "Inline commands"; the rules are those of
//! redis-cli and redis.conf).
//!
//! | between | what stands for what |
//! | --- | --- |
//! | `"` and `"` | `\n` `\r` `\t` `\b` `\a` as in C, `\x41` a byte, `\` and anything else that itself |
//! | `'` and `'` | `\'` a `'`, anything else itself |
//!
//! Quotes may begin in the middle of a word; behind their end there is a space or the end of the line.

use super::{Arg, Args};

/// The words of a line, which lie in the bytes; `None` when a quote has no end, or something follows behind it.
pub fn split(line: &[u8]) -> Option<(Vec<u8>, Vec<Arg>)> {
    // Redis takes a line for a text of C's
    let mut rest = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let (mut bytes, mut args) = (Vec::new(), Vec::new());
    loop {
        let spaces = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[spaces..];
        if rest.is_empty() {
            return Some((bytes, args));
        }
        let start = bytes.len();
        rest = word(rest, &mut bytes)?;
        args.push(Arg::span(start, bytes.len()));
    }
}

/// Whether a line is one of an HTTP request's: its first, or a header's.
pub fn is_http(args: &Args<'_>) -> bool {
    let first = args.text(0);
    let methods: [&[u8]; 9] =
        [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE"];
    let asks = args.len() == 3 && args.text(2).starts_with(b"HTTP/");
    let known = |method: &&[u8]| method.eq_ignore_ascii_case(first);
    let begins = asks && methods.iter().any(known);
    begins || first.eq_ignore_ascii_case(b"POST") || (first.len() > 1 && first.ends_with(b":"))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Takes a word off a line; the rest.
fn word<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            // a vertical tab or a form feed is a part of a word, though it is passed over between words
            [] | [b' ' | b'\t' | b'\n' | b'\r', ..] => return Some(rest),
            [b'"', quoted @ ..] => return closed(double(quoted, bytes)?),
            [b'\'', quoted @ ..] => return closed(single(quoted, bytes)?),
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

/// The text behind an end of quotes.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|byte| is_space(*byte)).then_some(rest)
}

fn double<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let byte;
        (byte, rest) = match rest {
            [] => return None,
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (16 * digit(*high) + digit(*low), rest)
            }
            [b'\\', b'n', rest @ ..] => (b'\n', rest),
            [b'\\', b'r', rest @ ..] => (b'\r', rest),
            [b'\\', b't', rest @ ..] => (b'\t', rest),
            [b'\\', b'b', rest @ ..] => (8, rest),
            [b'\\', b'a', rest @ ..] => (7, rest),
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => (*byte, rest),
        };
        bytes.push(byte);
    }
}

fn single<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let byte;
        (byte, rest) = match rest {
            [] => return None,
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'\'', rest @ ..] => (b'\'', rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        bytes.push(byte);
    }
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => (hex | 32) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (bytes, args) = split(line)?;
        let of = |arg: &Arg| match arg {
            Arg::Span(start, end) => bytes[*start as usize..*end as usize].to_vec(),
            _ => unreachable!("all are here"),
        };
        Some(args.iter().map(of).collect())
    }

    #[test]
    fn words_and_quotes_are_those_of_redis() {
        for (line, expected) in [
            ("", Some(&[][..])),
            ("  \t\r", Some(&[])),
            ("a  bc\r", Some(&["a", "bc"])),
            (r#"SET a "hello world""#, Some(&["SET", "a", "hello world"])),
            (r#"x"y z" '' "" "#, Some(&["xy z", "", ""])),
            (r#""\n\t\"\\\q\x4a\xZZ""#, Some(&["\n\t\"\\qJxZZ"])),
            (r"'it\'s' 'x\n'", Some(&["it's", "x\\n"])),
            (r#"'a"b' "a'b""#, Some(&["a\"b", "a'b"])),
            ("a\u{b}b \u{b}c", Some(&["a\u{b}b", "c"])),
            ("a\0 \"b", Some(&["a"])),
            (r#""a"#, None),
            (r#""a\""#, None),
            ("'a", None),
            (r#""a"b"#, None),
            ("'a'b", None),
            (r#"a" "b"#, None),
        ] {
            let expected = expected
                .map(|words: &[&str]| words.iter().map(|w| w.as_bytes().to_vec()).collect());
            assert_eq!(words(line.as_bytes()), expected, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_quoted(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5)) {
            let quote = |word: &Vec<u8>| {
                let text: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
                format!("\"{text}\"")
            };
            let line = all.iter().map(quote).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(words(line.as_bytes()), Some(all));
        }
    }
}
