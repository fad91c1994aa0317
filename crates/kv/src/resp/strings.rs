//! Commands on values.

use super::reply::null;
use super::{Args, Client, NO_ROOM, TOO_LARGE, keys};
use crate::items::{Content, ItemNo, Placed};
use crate::limits::KEY_BYTES_MAX;
use crate::moment::Expiry;
use crate::number::{DIGITS_MAX, Decimal, integer};
use crate::turn::Turn;
use arrayvec::ArrayVec;

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

/// The key at this place; `None` when it is too long, which is answered.
pub(super) fn key<'a>(args: &Args<'a>, number: usize, turn: &mut Turn<'_>) -> Option<&'a [u8]> {
    let key = args.get(number).filter(|key| key.len() <= KEY_BYTES_MAX);
    if key.is_none() {
        turn.error(&format!("ERR a key has at most {KEY_BYTES_MAX} bytes here"));
    }
    key
}

/// The item of a key, for a read.
fn read(key: &[u8], turn: &mut Turn<'_>) -> Option<ItemNo> {
    turn.items.read(turn.tenant, key, turn.moment)
}

/// The item of a key.
pub(super) fn find(key: &[u8], turn: &mut Turn<'_>) -> Option<ItemNo> {
    turn.items.find(turn.tenant, key, turn.moment)
}

/// Stores a value; an error is answered.
fn put(key: &[u8], content: Content<'_>, expiry: Expiry, turn: &mut Turn<'_>) -> Option<ItemNo> {
    if !turn.items.takes(content.len()) {
        turn.say(TOO_LARGE);
        return None;
    }
    let placed = Placed { flags: 0, expiry, cas: None };
    let stored = turn.items.store(turn.tenant, key, content, placed, turn.moment);
    if stored.is_err() {
        turn.say(NO_ROOM);
    }
    stored.ok()
}

fn send(found: Option<ItemNo>, client: &Client, turn: &mut Turn<'_>) {
    match found {
        Some(found) => turn.value(found, 0..turn.items.value_len(found), null(client)),
        None => turn.null(client),
    }
}

pub fn get(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let found = read(key, turn);
    send(found, client, turn);
}

/// The value of a key that this node keeps.
pub(super) fn read_and_send(key: &[u8], client: &Client, turn: &mut Turn<'_>) {
    let found = read(key, turn);
    send(found, client, turn);
}

/// Stores a value of a key that this node keeps; false when there is no room, which is answered.
pub(super) fn put_here(key: &[u8], content: Content<'_>, turn: &mut Turn<'_>) -> bool {
    put(key, content, Expiry::NEVER, turn).is_some()
}

/// Options of SET and GETEX behind key and value.
#[derive(Clone, Copy, Default)]
struct Options<'a> {
    /// The unit of a time, whether it is a date, and the number.
    time: Option<((i64, bool), &'a [u8])>,
    keeps: bool,
    persists: bool,
    only_new: bool,
    only_old: bool,
    gives: bool,
}

/// In milliseconds, and whether it is a date.
fn unit(option: &[u8]) -> Option<(i64, bool)> {
    Some(match option {
        b"EX" => (1000, false),
        b"PX" => (1, false),
        b"EXAT" => (1000, true),
        b"PXAT" => (1, true),
        _ => return None,
    })
}

/// When a value is to end; what to answer when that is no time.
fn end(
    text: &[u8],
    (unit, absolute): (i64, bool),
    command: &str,
    turn: &Turn<'_>,
) -> Result<Expiry, String> {
    let count = integer(text).ok_or(NO_INTEGER)?;
    let end = Some(count).filter(|count| *count > 0);
    let end = end.and_then(|count| Expiry::of_redis(count, unit, absolute, turn.moment));
    end.ok_or_else(|| format!("ERR invalid expire time in '{command}' command"))
}

/// A short word in capitals.
pub(super) fn upper(word: &[u8]) -> ArrayVec<u8, 16> {
    word.iter().take(16).map(u8::to_ascii_uppercase).collect()
}

impl<'a> Options<'a> {
    /// Those from one argument on. The same one may come again, the last time counts.
    fn parse(args: &Args<'a>, from: usize, of_set: bool) -> Result<Options<'a>, &'static str> {
        let (mut options, mut at) = (Options::default(), from);
        while at < args.len() {
            let word = upper(args.text(at));
            at += 1;
            match word.as_slice() {
                b"NX" if of_set && !options.only_old => options.only_new = true,
                b"XX" if of_set && !options.only_new => options.only_old = true,
                b"GET" if of_set => options.gives = true,
                b"KEEPTTL" if of_set && options.time.is_none() => options.keeps = true,
                b"PERSIST" if !of_set && options.time.is_none() => options.persists = true,
                word => {
                    let told = unit(word).zip(args.get(at)).ok_or(SYNTAX)?;
                    let other = options.time.is_some_and(|(unit, _)| unit != told.0);
                    if other || options.keeps || options.persists {
                        return Err(SYNTAX);
                    }
                    options.time = Some(told);
                    at += 1;
                }
            }
        }
        Ok(options)
    }

    fn end(&self, command: &str, turn: &Turn<'_>) -> Result<Option<Expiry>, String> {
        self.time.map(|(unit, text)| end(text, unit, command, turn)).transpose()
    }
}

/// The options of a command, and the time that they say; `None` when something is wrong, which is answered.
fn options<'a>(
    args: &Args<'a>,
    (from, command): (usize, &str),
    turn: &mut Turn<'_>,
) -> Option<(Options<'a>, Option<Expiry>)> {
    let options = Options::parse(args, from, command == "set").map_err(String::from);
    match options.and_then(|options| Ok((options, options.end(command, turn)?))) {
        Ok(told) => Some(told),
        Err(text) => {
            turn.error(&text);
            None
        }
    }
}

pub fn set(mut args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let Some((options, end)) = options(&args, (3, "set"), turn) else { return };
    let found = find(key, turn);
    let stops = if found.is_some() { options.only_new } else { options.only_old };
    if stops && options.gives {
        return send(found, client, turn);
    }
    if stops {
        return turn.null(client);
    }
    let kept = found.filter(|_| options.keeps).map(|found| turn.items.expiry(found));
    let expiry = kept.or(end).unwrap_or(Expiry::NEVER);
    let content = args.take(2);
    if options.gives {
        exchange(key, found, (content, expiry), client, turn);
    } else if put(key, content, expiry, turn).is_some() {
        turn.ok();
    }
}

/// Stores a value and answers with what was there; an error is answered instead.
fn exchange(
    key: &[u8],
    found: Option<ItemNo>,
    (content, expiry): (Content<'_>, Expiry),
    client: &Client,
    turn: &mut Turn<'_>,
) {
    let out = std::mem::take(&mut *turn.out);
    send(found, client, turn);
    let before = std::mem::replace(&mut *turn.out, out);
    if put(key, content, expiry, turn).is_some() {
        turn.out.join(before);
    }
}

fn set_for(mut args: Args<'_>, unit: i64, name: &str, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    match end(args.text(2), (unit, false), name, turn) {
        Err(text) => turn.error(&text),
        Ok(end) => {
            if put(key, args.take(3), end, turn).is_some() {
                turn.ok();
            }
        }
    }
}

pub fn set_with_seconds(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_for(args, 1000, "setex", turn);
}

pub fn set_with_milliseconds(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_for(args, 1, "psetex", turn);
}

pub fn set_new(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    if find(key, turn).is_some() {
        turn.integer(0);
    } else if put(key, args.take(2), Expiry::NEVER, turn).is_some() {
        turn.integer(1);
    }
}

pub fn get_set(mut args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let found = read(key, turn);
    exchange(key, found, (args.take(2), Expiry::NEVER), client, turn);
}

pub fn get_and_delete(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let found = read(key, turn);
    send(found, client, turn);
    found.into_iter().for_each(|found| turn.items.remove(found));
}

pub fn get_and_expire(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let Some((options, end)) = options(&args, (2, "getex"), turn) else { return };
    let found = read(key, turn);
    send(found, client, turn);
    let end = if options.persists { Some(Expiry::NEVER) } else { end };
    if let (Some(found), Some(expiry)) = (found, end) {
        turn.items.set_expiry(found, expiry);
    }
}

/// Whether there is a value for each key, and all keys are short enough; else it is answered.
fn are_pairs(args: &Args<'_>, turn: &mut Turn<'_>) -> bool {
    if args.len().is_multiple_of(2) {
        super::commands::wrong_count(args.text(0), turn);
        return false;
    }
    (1..args.len()).step_by(2).all(|number| key(args, number, turn).is_some())
}

/// Stores pairs; false when there was no room, which is answered.
fn put_pairs(args: &mut Args<'_>, turn: &mut Turn<'_>) -> bool {
    (1..args.len()).step_by(2).all(|number| {
        let content = args.take(number + 1);
        put(args.text(number), content, Expiry::NEVER, turn).is_some()
    })
}

pub fn set_several(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    if are_pairs(&args, turn) && put_pairs(&mut args, turn) {
        turn.ok();
    }
}

pub fn set_several_new(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    if !are_pairs(&args, turn) {
        return;
    }
    if (1..args.len()).step_by(2).any(|number| find(args.text(number), turn).is_some()) {
        return turn.integer(0);
    }
    if put_pairs(&mut args, turn) {
        turn.integer(1);
    }
}

pub fn append(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let more = args.take(2);
    let Some(found) = find(key, turn) else {
        let len = more.len();
        if put(key, more, Expiry::NEVER, turn).is_some() {
            turn.integer(len as i64);
        }
        return;
    };
    let (len, expiry) = (turn.items.value_len(found) + more.len(), turn.items.expiry(found));
    if !turn.items.takes(len) {
        return turn.say(TOO_LARGE);
    }
    match turn.items.joined(found, &more, false, turn.tenant) {
        Err(_) => turn.say(NO_ROOM),
        Ok(draft) => {
            if put(key, Content::Draft(draft), expiry, turn).is_some() {
                turn.integer(len as i64);
            }
        }
    }
}

pub fn len(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let len = read(key, turn).map_or(0, |found| turn.items.value_len(found));
    turn.integer(len as i64);
}

/// The part of `len` bytes from `start` to `end`, counted from the end when negative.
fn span(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let start = place(start).max(0).min(len);
    let end = place(end).min(len - 1) + 1;
    start as usize..end.max(start) as usize
}

pub fn range(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let ends = args.get(2).and_then(integer).zip(args.get(3).and_then(integer));
    let Some((start, end)) = ends else { return turn.error(NO_INTEGER) };
    match read(key, turn) {
        Some(found) => {
            let span = span(start, end, turn.items.value_len(found));
            turn.value(found, span, b"$0\r\n\r\n");
        }
        None => turn.bulk(b""),
    }
}

fn change(key: &[u8], delta: i64, turn: &mut Turn<'_>) {
    let found = read(key, turn);
    let expiry = found.map_or(Expiry::NEVER, |found| turn.items.expiry(found));
    let before = match found {
        None => Some(0),
        Some(found) if turn.items.value_len(found) > DIGITS_MAX => None,
        Some(found) => {
            let text: ArrayVec<u8, DIGITS_MAX> =
                turn.items.value(found).flatten().copied().collect();
            integer(&text)
        }
    };
    let Some(before) = before else { return turn.error(NO_INTEGER) };
    let Some(after) = before.checked_add(delta) else { return turn.error(OVERFLOW) };
    if put(key, Content::Bytes(Decimal::signed(after).text()), expiry, turn).is_some() {
        turn.integer(after);
    }
}

pub fn increment(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    if let Some(key) = key(&args, 1, turn) {
        change(key, 1, turn);
    }
}

pub fn decrement(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    if let Some(key) = key(&args, 1, turn) {
        change(key, -1, turn);
    }
}

pub fn increment_by(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    if let Some(delta) = keys::integer(&args, 2, turn) {
        change(key, delta, turn);
    }
}

pub fn decrement_by(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    match keys::integer(&args, 2, turn).map(i64::checked_neg) {
        Some(Some(delta)) => change(key, delta, turn),
        Some(None) => turn.error("ERR decrement would overflow"),
        None => {}
    }
}
