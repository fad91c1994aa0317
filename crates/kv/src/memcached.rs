//! memcached's text protocol, classic and meta (doc/protocol.txt of memcached 1.6).

mod base64;
mod change;
mod meta;
mod owner;
mod text;

use crate::items::Content;
use crate::limits::{
    BESIDE_BYTES_MAX, GET_LINE_BYTES, GET_PART_BYTES, INPUT_BYTES, LINE_BYTES_MAX,
    MEMCACHED_KEY_BYTES_MAX,
};
use crate::turn::{Step, Turn};
use crate::value::Draft;
use std::borrow::Cow;
use text::Reading;

/// Version that libmemcached and others parse: major, minor and micro number. The major one must not be 0.
pub const VERSION: &str = concat!("1.6.18-trapeze-", env!("CARGO_PKG_VERSION"));

const ERROR: &[u8] = b"ERROR\r\n";
const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const LONG_LINE: &[u8] = b"CLIENT_ERROR line too long\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const NO_ROOM: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

/// A connection's place in the protocol.
#[derive(Debug, Default)]
pub struct Memcached(State);

#[derive(Debug, Default)]
enum State {
    #[default]
    Command,
    /// The value of a line is arriving.
    Storing(Box<Storing>),
    /// So many bytes of a value that is not wanted are to come.
    Discarding(usize),
    /// In the middle of the keys of a long `get`.
    Getting(Reading),
    /// The rest of such a line is no command; so many bytes of it are passed over.
    Passing(usize),
}

#[derive(Debug)]
struct Storing {
    line: Box<[u8]>,
    draft: Draft,
}

/// A line that announces a value, as far as this matters before the value is here.
struct Announced<'a> {
    key: Cow<'a, [u8]>,
    len: usize,
    /// When the value cannot be taken, what the key had goes: the client believes that it is no longer there.
    replaces: bool,
    /// Errors are not told.
    quiet: bool,
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// How a line reads, if it does, and where its verb ends. Spaces in front of that count for a command's length: what
/// has come so far tells as much as all of the line.
fn reading(line: &[u8]) -> Option<(Reading, usize)> {
    let verb = words(line).next()?;
    let end = line.iter().take_while(|byte| **byte == b' ').count() + verb.len();
    Reading::of(verb).filter(|_| end <= LINE_BYTES_MAX).map(|reading| (reading, end))
}

/// Whether a line is one of an HTTP request's: a header's, a POST, or any other method's with the version at its end.
/// Commands are all lower case; a wrong one in capitals is an error, as with memcached.
fn is_http(line: &[u8]) -> bool {
    let Some(verb) = words(line).next() else { return false };
    let method = verb.iter().all(u8::is_ascii_uppercase);
    let version = words(line).last().is_some_and(|word| word.starts_with(b"HTTP/"));
    verb.ends_with(b":") || verb == b"POST" || method && version
}

/// A key as it may be: not empty, not too long. As with memcached it is any bytes that a line can have as one word, so
/// control characters too, and in base64 anything.
fn is_key(key: &[u8]) -> bool {
    (1..=MEMCACHED_KEY_BYTES_MAX).contains(&key.len())
}

impl Memcached {
    /// Room for the next bytes of a long value.
    pub fn gap(&mut self) -> &mut [u8] {
        match &mut self.0 {
            State::Storing(storing) => storing.draft.gap(),
            _ => &mut [],
        }
    }

    /// Bytes of the items' memory that a value has that is arriving.
    pub fn draft_bytes(&self) -> usize {
        match &self.0 {
            State::Storing(storing) => storing.draft.held_bytes(),
            _ => 0,
        }
    }

    /// Whether nothing is known of a next command.
    pub fn is_between(&self) -> bool {
        matches!(self.0, State::Command)
    }

    /// So many bytes have been put there.
    pub fn filled(&mut self, bytes: usize) {
        if let State::Storing(storing) = &mut self.0 {
            storing.draft.filled(bytes);
        }
    }

    /// Does the first thing in `input`.
    pub fn step(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        match std::mem::take(&mut self.0) {
            State::Command => self.line(input, turn),
            State::Storing(storing) => self.storing(storing, input, turn),
            State::Discarding(left) => self.discard(left, input),
            State::Getting(reading) => self.get_on(reading, input, turn),
            State::Passing(left) => self.pass(left, input),
        }
    }

    fn discard(&mut self, left: usize, input: &[u8]) -> Step {
        let count = left.min(input.len());
        if count < left {
            self.0 = State::Discarding(left - count);
        }
        if count == 0 && left > 0 { Step::Wants } else { Step::Used(count) }
    }

    /// Goes on behind the end of the line, if it comes within `left` bytes.
    fn pass(&mut self, left: usize, input: &[u8]) -> Step {
        let input = &input[..input.len().min(left)];
        if let Some(end) = input.iter().position(|byte| *byte == b'\n') {
            return Step::Used(end + 1);
        }
        if input.len() == left {
            return Step::End;
        }
        self.0 = State::Passing(left - input.len());
        if input.is_empty() { Step::Wants } else { Step::Used(input.len()) }
    }

    fn line(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return self.half_line(input, turn);
        };
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut rest = words(line);
        let verb = rest.next().unwrap_or_default();
        if is_http(line) {
            return Step::End; // a page in a browser sends it: what follows must not be executed
        }
        if turn.has_to_wait(false) {
            return Step::Blocked;
        }
        turn.items.facts_mut().commands += 1;
        if let Some((reading, verb_end)) = reading(line) {
            if reading.changes() && turn.has_to_wait(true) {
                return Step::Blocked;
            }
            if line.len() > GET_LINE_BYTES {
                self.0 = State::Getting(reading);
                return Step::Used(verb_end);
            }
            return self.get(reading, &line[verb_end..], end + 1, turn);
        }
        if line.len() > LINE_BYTES_MAX {
            turn.say(LONG_LINE);
            return Step::End;
        }
        match verb {
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" | b"ms" => {
                return self.announced(line, end + 1, input, turn);
            }
            _ if turn.is_for_all() && owner::takes(verb, line) => {
                return owner::line(verb, line, end + 1, turn);
            }
            b"mg" | b"md" | b"ma" | b"mn" | b"me" => meta::command(verb, line, turn),
            b"quit" => return Step::End,
            _ => text::command(verb, rest, turn),
        }
        Step::Used(end + 1)
    }

    /// A line without an end: one that gets keys is done as far as it is here.
    fn half_line(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        match reading(input) {
            // the last byte may be the `\r` of a line's end
            _ if input.len() <= LINE_BYTES_MAX + 1 => Step::Wants,
            Some(_) if input.len() <= GET_PART_BYTES => Step::Wants,
            Some((reading, _))
                if turn.has_to_wait(reading.changes()) || turn.has_to_wait(false) =>
            {
                Step::Blocked
            }
            Some((reading, verb_end)) => {
                self.0 = State::Getting(reading);
                Step::Used(verb_end)
            }
            None => {
                turn.say(LONG_LINE);
                Step::End
            }
        }
    }

    /// The keys of a whole line that reads.
    fn get(&mut self, mut reading: Reading, keys: &[u8], used: usize, turn: &mut Turn<'_>) -> Step {
        let done = words(keys).try_for_each(|word| reading.word(word, turn));
        match done.and_then(|()| reading.end()) {
            Ok(()) => turn.say(b"END\r\n"),
            Err(text) => turn.say(text),
        }
        Step::Used(used)
    }

    /// The next key of a line that is longer than the input.
    fn get_on(&mut self, mut reading: Reading, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let start = input.iter().take_while(|byte| **byte == b' ').count();
        let word = &input[start..];
        if word.is_empty() && start > 0 {
            self.0 = State::Getting(reading);
            return Step::Used(start);
        }
        let Some(len) = word.iter().position(|byte| matches!(byte, b' ' | b'\n')) else {
            if word.len() > MEMCACHED_KEY_BYTES_MAX + 1 {
                // it is neither a key nor a number
                let wrong = reading.word(word, turn).err();
                turn.say(wrong.unwrap_or(BAD_LINE));
                return self.pass(start + INPUT_BYTES, input);
            }
            self.0 = State::Getting(reading);
            return Step::Wants;
        };
        if word[len] == b'\n' {
            let last = &word[..len];
            let used = self.get(reading, last.strip_suffix(b"\r").unwrap_or(last), 0, turn);
            debug_assert_eq!(used, Step::Used(0));
            return Step::Used(start + len + 1);
        }
        if let Err(text) = reading.word(&word[..len], turn) {
            turn.say(text);
            return self.pass(start + INPUT_BYTES, input);
        }
        self.0 = State::Getting(reading);
        Step::Used(start + len)
    }

    /// A line whose value follows.
    fn announced(&mut self, line: &[u8], used: usize, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let announced = match announce(line) {
            Ok(announced) => announced,
            Err((text, len)) => {
                turn.say(text);
                // The value, if we know how long it is, must not be taken for commands.
                self.0 = len.map_or(State::Command, |len| State::Discarding(len + 2));
                return Step::Used(used);
            }
        };
        let len = announced.len;
        if !turn.items.takes(len) {
            if !refuse(&announced, TOO_LARGE, turn) {
                return Step::Blocked;
            }
            self.0 = State::Discarding(len + 2);
        } else if let Some(data) = input.get(used..used + len + 2) {
            if !is_ready(line, turn) {
                return Step::Blocked;
            }
            store(line, Content::Bytes(&data[..len]), &data[len..], turn);
            return Step::Used(used + len + 2);
        } else if len <= BESIDE_BYTES_MAX {
            return Step::Wants;
        } else {
            self.0 =
                State::Storing(Box::new(Storing { line: line.into(), draft: Draft::new(len) }));
        }
        Step::Used(used)
    }

    fn storing(&mut self, mut storing: Box<Storing>, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let left = storing.draft.left();
        if left > 0 {
            if turn.items.extend(&mut storing.draft, turn.tenant).is_err() {
                let announced = announce(&storing.line).expect("it was announced");
                if !refuse(&announced, NO_ROOM, turn) {
                    self.0 = State::Storing(storing);
                    return Step::Blocked;
                }
                self.0 = State::Discarding(left + 2);
                return Step::Used(0);
            }
            let count = storing.draft.copy(input);
            self.0 = State::Storing(storing);
            return if count == 0 { Step::Wants } else { Step::Used(count) };
        }
        let Some(end) = input.get(..2) else {
            self.0 = State::Storing(storing);
            return Step::Wants;
        };
        if !is_ready(&storing.line, turn) {
            self.0 = State::Storing(storing);
            return Step::Blocked;
        }
        store(&storing.line, Content::Draft(storing.draft), end, turn);
        Step::Used(2)
    }
}

/// The announced value; else the answer, and the length if that is known.
fn announce(line: &[u8]) -> Result<Announced<'_>, (&'static [u8], Option<usize>)> {
    match line.starts_with(b"ms") {
        true => meta::announce(line),
        false => text::announce(line),
    }
}

/// Whether a value can be stored now: what it is joined with is here (if not, it has been asked for), and nothing
/// before it is still being done where its key is kept.
fn is_ready(line: &[u8], turn: &mut Turn<'_>) -> bool {
    if owner::slot_of_line(line, turn).is_some() {
        return !turn.has_to_wait(true);
    }
    let joined = match line.starts_with(b"ms") {
        true => meta::joins(line),
        false => text::joins(line),
    };
    joined.is_none_or(|key| turn.has_value(&key))
}

/// The value is not taken, and what it would have replaced goes. False when this has to wait for what is before it.
fn refuse(announced: &Announced<'_>, text: &'static [u8], turn: &mut Turn<'_>) -> bool {
    let (key, text) = (&announced.key, if announced.quiet { b"" } else { text });
    if announced.replaces {
        if let Some(slot) = turn.elsewhere(key) {
            let waits = turn.has_to_wait(true);
            if !waits {
                owner::forget(key, slot, text, turn);
            }
            return !waits;
        }
        let found = turn.items.find(turn.tenant, key, turn.moment);
        found.into_iter().for_each(|found| turn.items.remove(found));
    }
    turn.say(text);
    true
}

/// The value is here.
fn store(line: &[u8], content: Content<'_>, end: &[u8], turn: &mut Turn<'_>) {
    if end != b"\r\n" {
        turn.say(BAD_CHUNK);
    } else if let Some(slot) = owner::slot_of_line(line, turn) {
        owner::store(line, content, slot, turn);
    } else if line.starts_with(b"ms") {
        meta::store(line, content, turn);
    } else {
        text::store(line, content, turn);
    }
}
