//! Whether what is answered are answers, and as many as were asked for.

use super::{LATER, Plan};
use kv::Protocol;
use kv::limits::{ARGUMENTS_MAX, INLINE_BYTES_MAX, VALUE_BYTES_MAX};

pub fn check(plan: Plan, text: &[u8], said: &[u8], ended: bool) {
    match plan.protocol {
        Protocol::Memcached => memcached(said),
        Protocol::Resp => resp(plan, text, said, ended),
    }
}

/// The beginning of a text, to be shown.
fn shown(text: &[u8]) -> impl std::fmt::Display {
    text[..text.len().min(200)].escape_ascii()
}

fn resp(plan: Plan, text: &[u8], said: &[u8], ended: bool) {
    let (mut rest, mut count) = (said, 0);
    while !rest.is_empty() {
        rest = reply(rest).unwrap_or_else(|| panic!("no answer: {}", shown(rest)));
        count += 1;
    }
    let sent: Vec<u8> = text.iter().copied().filter(|byte| *byte != LATER).collect();
    let asked = asked(&sent, plan.value_bytes_max);
    let commands = asked.commands;
    match ended {
        _ if asked.quotes => {}
        // there was no room for it
        false if asked.quits => assert!(count >= commands),
        false => {
            assert!(count == commands, "{count} answers of {commands}, then {}", shown(asked.rest));
        }
        // QUIT, or an error for what is no command
        true => assert!(count <= commands + 1 && (asked.wrong || asked.quits)),
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Takes off bytes and the end of their line.
fn taken(len: usize, rest: &[u8]) -> Option<&[u8]> {
    rest.get(len..)?.strip_prefix(b"\r\n")
}

/// What is behind the first reply.
fn reply(bytes: &[u8]) -> Option<&[u8]> {
    let (head, mut rest) = line(bytes)?;
    let (kind, head) = head.split_first()?;
    match kind {
        b'+' | b'-' => (!head.contains(&b'\r')).then_some(rest),
        b'_' => head.is_empty().then_some(rest),
        b':' => number(head).map(|_| rest),
        b'$' | b'*' if head == b"-1" => Some(rest), // nothing, as version 2 says it
        b'$' | b'=' => taken(usize::try_from(number(head)?).ok()?, rest),
        b'*' | b'%' => {
            let pairs = if *kind == b'%' { 2 } else { 1 };
            for _ in 0..pairs * usize::try_from(number(head)?).ok()? {
                rest = reply(rest)?;
            }
            Some(rest)
        }
        _ => None,
    }
}

/// Commands of Redis's protocol in a text.
#[derive(Default)]
struct ParsedCommands<'a> {
    commands: usize,
    /// What is behind them.
    rest: &'a [u8],
    /// Behind them is what is none.
    wrong: bool,
    quits: bool,
    /// A line has quotes, which are not looked at here.
    quotes: bool,
}

fn asked(mut text: &[u8], value_bytes_max: usize) -> ParsedCommands<'_> {
    let mut asked = ParsedCommands::default();
    loop {
        let before = text;
        asked.rest = before;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if line.iter().any(|byte| matches!(byte, b'"' | b'\'' | 0 | 11)) && !line.starts_with(b"*")
        {
            asked.quotes = true;
            return asked;
        }
        match command(&mut text, value_bytes_max) {
            Some(Some(name)) => {
                asked.commands += usize::from(name.is_some());
                if name.is_some_and(|name| name.eq_ignore_ascii_case(b"QUIT")) {
                    asked.quits = true;
                    return asked;
                }
            }
            Some(None) => return asked,
            None => {
                asked.wrong = true;
                return asked;
            }
        }
        assert!(text.len() < before.len());
    }
}

/// The name of the next command, if it is one that is answered; `Some(None)` when it is not all there, `None` when it
/// is none.
fn command<'a>(text: &mut &'a [u8], value_bytes_max: usize) -> Option<Option<Option<&'a [u8]>>> {
    if !text.starts_with(b"*") {
        let end = text.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(text.len()) > INLINE_BYTES_MAX {
            return None;
        }
        let Some(end) = end else { return Some(None) };
        let words = text[..end].split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
        *text = &text[end + 1..];
        return Some(Some(words));
    }
    let Some(count) = header(text, b'*')? else { return Some(None) };
    if count > ARGUMENTS_MAX as i64 {
        return None;
    }
    let mut name = None;
    for place in 0..count.max(0) {
        if text.is_empty() {
            return Some(None);
        }
        let Some(len) = header(text, b'$')? else { return Some(None) };
        let len = usize::try_from(len).ok().filter(|len| *len <= VALUE_BYTES_MAX)?;
        let Some(bytes) = text.get(..len + 2) else { return Some(None) };
        if !bytes.ends_with(b"\r\n") {
            return None;
        }
        *text = &text[len + 2..];
        name = match place {
            // refused, whatever it is
            _ if len > value_bytes_max => Some(&b""[..]),
            0 => Some(&bytes[..len]),
            _ => name,
        };
    }
    Some(Some(name))
}

/// The number on a line that begins so; `Some(None)` when it has no end.
fn header(text: &mut &[u8], kind: u8) -> Option<Option<i64>> {
    let rest = text.strip_prefix(&[kind])?;
    let Some(end) = rest.iter().take(32).position(|byte| *byte == b'\n') else {
        return if rest.len() < 32 { Some(None) } else { None };
    };
    let line = rest[..end].strip_suffix(b"\r")?;
    let digits = line.strip_prefix(b"-").unwrap_or(line);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    *text = &rest[end + 1..];
    number(line).filter(|number| number.to_string().as_bytes() == line).map(Some)
}

fn memcached(mut said: &[u8]) {
    const WHOLE: &[&[u8]] = &[
        b"STORED",
        b"NOT_STORED",
        b"EXISTS",
        b"NOT_FOUND",
        b"DELETED",
        b"TOUCHED",
        b"OK",
        b"END",
        b"ERROR",
        b"RESET",
        b"MN",
        b"ERROR: shutdown not enabled",
    ];
    const BEGIN: &[&[u8]] = &[b"CLIENT_ERROR ", b"SERVER_ERROR ", b"VERSION ", b"STAT ", b"ME "];
    const CODES: &[&[u8]] = &[b"HD", b"EN", b"NS", b"EX", b"NF"];
    while !said.is_empty() {
        let shown = said[..said.len().min(200)].escape_ascii();
        let (head, rest) = line(said).unwrap_or_else(|| panic!("no line: {shown}"));
        let words: Vec<&[u8]> = head.split(|byte| *byte == b' ').collect();
        let len = match words[0] {
            b"VALUE" => Some(words[3]),
            b"VA" => Some(words[1]),
            _ => None,
        };
        let known = len.is_some()
            || WHOLE.contains(&head)
            || CODES.contains(&words[0])
            || BEGIN.iter().any(|begin| head.starts_with(begin))
            || (words.len() == 1 && !head.is_empty() && head.iter().all(u8::is_ascii_digit));
        assert!(known, "no answer: {shown}");
        said = match len {
            None => rest,
            Some(len) => {
                let len = number(len).unwrap_or_else(|| panic!("no length: {shown}"));
                taken(len as usize, rest).unwrap_or_else(|| panic!("no value: {shown}"))
            }
        };
    }
}
