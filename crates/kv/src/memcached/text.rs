//! The classic commands.

use super::base64::Key;
use super::change::{self, Change, Mode, Outcome, Step};
use super::{Announced, BAD_CHUNK, BAD_LINE, ERROR, NO_ROOM, TOO_LARGE, VERSION, is_key, words};
use crate::carry::{Dialect, Join, Target};
use crate::items::{Content, ItemNo, Items};
use crate::moment::Expiry;
use crate::number::{Decimal, counted, signed, unsigned};
use crate::rope::Rope;
use crate::turn::{Effect, Turn};

const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_EXPIRY: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
const NOREPLY: &[u8] = b"noreply";

/// How the keys of a line are read: `get`, `gets`, `gat`, `gats`.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    with_cas: bool,
    /// An expiry comes before the keys, or came.
    touches: bool,
    expiry: Option<i64>,
    keys: usize,
}

impl Reading {
    /// Of a command, if it reads.
    pub fn of(verb: &[u8]) -> Option<Reading> {
        let (with_cas, touches) = match verb {
            b"get" => (false, false),
            b"gets" => (true, false),
            b"gat" => (false, true),
            b"gats" => (true, true),
            _ => return None,
        };
        Some(Reading { with_cas, touches, expiry: None, keys: 0 })
    }

    /// Whether it changes the expiry.
    pub fn changes(&self) -> bool {
        self.touches
    }

    /// Has the node that keeps a key read it.
    fn carry(&self, key: &[u8], slot: usize, turn: &mut Turn<'_>) {
        let verb: &[u8] = match (self.touches, self.with_cas) {
            (false, false) => b"get ",
            (false, true) => b"gets ",
            (true, false) => b"gat ",
            (true, true) => b"gats ",
        };
        let mut text = verb.to_vec();
        if let Some(seconds) = self.expiry {
            text.extend_from_slice(Decimal::signed(seconds).text());
            text.push(b' ');
        }
        text.extend_from_slice(key);
        text.extend_from_slice(b"\r\n");
        let effect = if self.touches { Effect::ChangesAndGives } else { Effect::Reads };
        let parts = vec![(Target::Slot(slot), Rope::of_text(text))];
        turn.carry(Dialect::MEMCACHED, parts, (Join::WithoutEnd, effect, b""));
    }

    /// The next word; what to answer when it is wrong.
    pub fn word(&mut self, word: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
        if self.touches && self.expiry.is_none() {
            self.expiry = Some(signed(word).ok_or(BAD_EXPIRY)?);
            return Ok(());
        }
        self.keys += 1;
        if !is_key(word) {
            return Err(BAD_LINE);
        }
        if let Some(slot) = turn.elsewhere(word) {
            self.carry(word, slot, turn);
        } else if let Some(found) = turn.items.read(turn.tenant, word, turn.moment) {
            if let Some(seconds) = self.expiry {
                turn.items.set_expiry(found, Expiry::of_memcached(seconds, turn.moment));
            }
            self.send(word, found, turn);
        }
        Ok(())
    }

    /// The line is at its end; what to answer when something is missing.
    pub fn end(&self) -> Result<(), &'static [u8]> {
        if self.keys > 0 || self.expiry.is_some() { Ok(()) } else { Err(ERROR) }
    }

    fn send(&self, key: &[u8], found: ItemNo, turn: &mut Turn<'_>) {
        let head = |items: &Items, text: &mut Vec<u8>| {
            let item = items.item(found);
            text.extend_from_slice(b"VALUE ");
            text.extend_from_slice(key);
            text.push(b' ');
            text.extend_from_slice(Decimal::new(item.flags.into()).text());
            text.push(b' ');
            text.extend_from_slice(Decimal::new(items.value_len(found) as u64).text());
            if self.with_cas {
                text.push(b' ');
                text.extend_from_slice(Decimal::new(item.cas).text());
            }
            text.extend_from_slice(b"\r\n");
        };
        turn.give(found, 0..turn.items.value_len(found), (head, b"\r\n", b""));
    }
}

/// A line such as `set key flags exptime bytes [cas] [noreply]`.
struct Line<'a> {
    change: Change<'a>,
    expiry: i64,
    len: usize,
    noreply: bool,
}

/// The answer, and the length of the value that follows if that is known.
type Wrong = (&'static [u8], Option<usize>);

fn parse(line: &[u8]) -> Result<Line<'_>, Wrong> {
    let mut words = words(line);
    let verb = words.next().unwrap_or_default();
    let mode = match verb {
        b"add" => Mode::Add,
        b"replace" => Mode::Replace,
        b"append" => Mode::Append,
        b"prepend" => Mode::Prepend,
        _ => Mode::Set,
    };
    let [key, flags, expiry, len] = std::array::from_fn(|_| words.next());
    let len_text = len.ok_or((ERROR, None))?;
    let len = usize::try_from(unsigned(len_text).ok_or((BAD_LINE, None))?).ok();
    let len = len.filter(|len| *len <= u32::MAX as usize).ok_or((BAD_CHUNK, None))?;
    let wrong = || (BAD_LINE, Some(len));
    let key = key.filter(|key| is_key(key)).ok_or_else(wrong)?;
    let flags = flags.and_then(unsigned).and_then(|flags| u32::try_from(flags).ok());
    let flags = flags.ok_or_else(wrong)?;
    let expiry = expiry.and_then(signed).ok_or_else(wrong)?;
    let compare = match verb {
        b"cas" => Some(words.next().and_then(unsigned).ok_or_else(wrong)?),
        _ => None,
    };
    let noreply = words.next() == Some(NOREPLY);
    let change = Change {
        key,
        mode,
        flags,
        expiry: Expiry::NEVER,
        compare,
        cas: None,
        invalidate: false,
        vivify: None,
    };
    Ok(Line { change, expiry, len, noreply })
}

/// The value that a line announces.
pub fn announce(line: &[u8]) -> Result<Announced<'_>, Wrong> {
    let Line { change, len, noreply, .. } = parse(line)?;
    let replaces = change.mode == Mode::Set && change.compare.is_none();
    Ok(Announced { key: change.key.into(), len, quiet: noreply, replaces })
}

/// The key whose value a line's value is joined with.
pub fn joins(line: &[u8]) -> Option<Key> {
    let change = parse(line).ok()?.change;
    let joins = matches!(change.mode, Mode::Append | Mode::Prepend);
    if joins { Key::try_from(change.key).ok() } else { None }
}

/// Stores the value of a line.
pub fn store(line: &[u8], content: Content<'_>, turn: &mut Turn<'_>) {
    let Ok(Line { mut change, expiry, noreply, .. }) = parse(line) else { return };
    change.expiry = Expiry::of_memcached(expiry, turn.moment);
    let outcome = change::store(&change, content, turn);
    if !noreply {
        turn.say(told(outcome));
    }
}

fn told(outcome: Outcome) -> &'static [u8] {
    match outcome {
        Outcome::Stored(_) => b"STORED\r\n",
        Outcome::NotStored => b"NOT_STORED\r\n",
        Outcome::Exists => b"EXISTS\r\n",
        Outcome::NotFound => b"NOT_FOUND\r\n",
        Outcome::TooLarge => TOO_LARGE,
        Outcome::NoRoom => NO_ROOM,
    }
}

/// A command that is one line, its verb taken off.
pub fn command<'a>(verb: &[u8], rest: impl Iterator<Item = &'a [u8]>, turn: &mut Turn<'_>) {
    let mut words: arrayvec::ArrayVec<&[u8], 8> = rest.take(8).collect();
    // These two answer whatever they are told (memccapable expects it).
    let answers = matches!(verb, b"version" | b"stats");
    let quiet = words.last() == Some(&NOREPLY) && !answers;
    if quiet {
        words.pop();
    }
    let before = turn.out.len();
    match (verb, words.as_slice()) {
        (b"delete", [key] | [key, b"0"]) => delete(key, turn),
        (b"delete", [_, _]) => turn.say(BAD_LINE_DELETE),
        (b"incr", [key, delta]) => count(key, delta, false, turn),
        (b"decr", [key, delta]) => count(key, delta, true, turn),
        (b"touch", [key, expiry]) => touch(key, expiry, turn),
        (b"flush_all", []) => flush(b"0", turn),
        (b"flush_all", [delay]) => flush(delay, turn),
        (b"verbosity", [level]) if unsigned(level).is_none() => turn.say(BAD_LINE),
        (b"verbosity", [_] | [_, _]) => turn.say(b"OK\r\n"),
        (b"verbosity", []) if quiet => {}
        (b"version", _) => turn.out.text(format!("VERSION {VERSION}\r\n").as_bytes()),
        (b"stats", words) => stats(words, turn),
        (b"shutdown", _) => turn.say(b"ERROR: shutdown not enabled\r\n"),
        _ => return turn.say(ERROR),
    }
    if quiet {
        turn.out.take_back(before);
    }
}

const BAD_LINE_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";

fn delete(key: &[u8], turn: &mut Turn<'_>) {
    if !is_key(key) {
        return turn.say(BAD_LINE);
    }
    match turn.items.find(turn.tenant, key, turn.moment) {
        Some(found) => {
            turn.items.remove(found);
            turn.say(b"DELETED\r\n");
        }
        None => turn.say(b"NOT_FOUND\r\n"),
    }
}

fn count(key: &[u8], delta: &[u8], down: bool, turn: &mut Turn<'_>) {
    if !is_key(key) {
        return turn.say(BAD_LINE);
    }
    let Some(delta) = counted(delta) else { return turn.say(BAD_DELTA) };
    let Some(found) = turn.items.read(turn.tenant, key, turn.moment) else {
        return turn.say(b"NOT_FOUND\r\n");
    };
    match change::count(found, Step { delta, down, cas: None }, key, turn) {
        None => turn.say(NO_NUMBER),
        Some(Err(outcome)) => turn.say(told(outcome)),
        Some(Ok((value, _))) => {
            turn.out.number(value);
            turn.say(b"\r\n");
        }
    }
}

fn touch(key: &[u8], expiry: &[u8], turn: &mut Turn<'_>) {
    if !is_key(key) {
        return turn.say(BAD_LINE);
    }
    let Some(seconds) = signed(expiry) else { return turn.say(BAD_EXPIRY) };
    match turn.items.find(turn.tenant, key, turn.moment) {
        Some(found) => {
            turn.items.set_expiry(found, Expiry::of_memcached(seconds, turn.moment));
            turn.say(b"TOUCHED\r\n");
        }
        None => turn.say(b"NOT_FOUND\r\n"),
    }
}

fn flush(delay: &[u8], turn: &mut Turn<'_>) {
    match signed(delay) {
        None => turn.say(BAD_EXPIRY),
        Some(..=0) => {
            turn.items.flush(turn.tenant);
            turn.say(b"OK\r\n");
        }
        Some(seconds) => {
            let at = Expiry::of_memcached(seconds, turn.moment);
            turn.items.flush_at(turn.tenant, at);
            turn.say(b"OK\r\n");
        }
    }
}

fn stats(words: &[&[u8]], turn: &mut Turn<'_>) {
    match words {
        [] => general(turn),
        [b"reset"] => {
            turn.items.reset_counters(turn.tenant);
            return turn.say(b"RESET\r\n");
        }
        [b"settings"] => settings(turn),
        // There are no slab classes of memcached's kind, so there is nothing to list.
        [b"items" | b"slabs" | b"sizes" | b"conns"] => {}
        _ => return turn.say(ERROR),
    }
    turn.say(b"END\r\n");
}

fn stat(turn: &mut Turn<'_>, name: &str, value: impl std::fmt::Display) {
    turn.out.text(format!("STAT {name} {value}\r\n").as_bytes());
}

/// Microseconds as seconds with six places.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn general(turn: &mut Turn<'_>) {
    let (facts, counters) = (turn.items.facts().clone(), turn.items.counters(turn.tenant));
    let used = facts.used();
    let (items, bytes) = turn.items.holds(turn.tenant);
    let most = turn.items.tenant(turn.tenant).max_bytes.min(turn.items.memory_bytes());
    stat(turn, "pid", facts.process);
    stat(turn, "uptime", turn.moment.now_ms.saturating_sub(facts.started_ms) / 1000);
    stat(turn, "time", turn.moment.wall_ms / 1000);
    stat(turn, "version", VERSION);
    stat(turn, "pointer_size", usize::BITS);
    stat(turn, "rusage_user", seconds(used.user_us));
    stat(turn, "rusage_system", seconds(used.system_us));
    stat(turn, "max_connections", facts.connections_max);
    stat(turn, "curr_connections", facts.connections);
    stat(turn, "total_connections", facts.accepted);
    stat(turn, "rejected_connections", facts.refused);
    stat(turn, "cmd_get", counters.hits + counters.misses);
    stat(turn, "cmd_set", counters.stored);
    stat(turn, "get_hits", counters.hits);
    stat(turn, "get_misses", counters.misses);
    stat(turn, "get_expired", counters.expired);
    stat(turn, "bytes_read", facts.received_bytes);
    stat(turn, "bytes_written", facts.sent_bytes);
    stat(turn, "accepting_conns", 1);
    stat(turn, "listen_disabled_num", facts.refused);
    stat(turn, "bytes", bytes);
    stat(turn, "held_bytes", turn.items.held_bytes(turn.tenant));
    stat(turn, "curr_items", items);
    stat(turn, "total_items", counters.stored);
    stat(turn, "evictions", counters.evicted);
    stat(turn, "store_no_memory", counters.no_room);
    if turn.items.can_be_away() {
        let away = turn.items.away_counters(turn.tenant);
        stat(turn, "away_bytes", turn.items.away_bytes(turn.tenant));
        stat(turn, "away_sent", away.sent);
        stat(turn, "away_asked", away.asked);
        stat(turn, "away_lost", away.lost);
        stat(turn, "away_returned", away.returned);
        stat(turn, "away_dropped", away.dropped);
    }
    stat(turn, "limit_maxbytes", most);
    stat(turn, "threads", 1);
}

fn settings(turn: &mut Turn<'_>) {
    let most = turn.items.tenant(turn.tenant).max_bytes.min(turn.items.memory_bytes());
    stat(turn, "maxbytes", most);
    stat(turn, "tcpport", turn.items.facts().port);
    stat(turn, "evictions", "on");
    stat(turn, "cas_enabled", "yes");
    stat(turn, "item_size_max", turn.items.value_bytes_max());
    stat(turn, "tenant", turn.items.tenant(turn.tenant).name.clone());
}
