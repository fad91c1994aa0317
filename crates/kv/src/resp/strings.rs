//! Commands on values.

use super::reply::null;
use super::{Args, Client, NO_ROOM, TOO_LARGE, keys};
use crate::items::{Content, ItemNo, Placed};
use crate::limits::KEY_BYTES_MAX;
use crate::moment::Expiry;
use crate::number::{DIGITS_MAX, Decimal, signed};
use crate::session::Turn;
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

/// What SET is told behind key and value.
#[derive(Clone, Copy, Default)]
struct SetOptions {
    expiry: Option<Expiry>,
    keeps: bool,
    only_new: bool,
    only_old: bool,
    gives: bool,
}

/// A time that a command is told, by the option's name; `None` when the option is no such one.
fn expiry(
    option: &[u8],
    text: Option<&[u8]>,
    command: &str,
    turn: &Turn<'_>,
) -> Option<Result<Expiry, String>> {
    let (unit, absolute) = match option {
        b"EX" => (1000, false),
        b"PX" => (1, false),
        b"EXAT" => (1000, true),
        b"PXAT" => (1, true),
        _ => return None,
    };
    let Some(text) = text else { return Some(Err(SYNTAX.into())) };
    let Some(value) = signed(text) else { return Some(Err(NO_INTEGER.into())) };
    let wrong = format!("ERR invalid expire time in '{command}' command");
    let ms = u64::try_from(value).ok().filter(|value| *value > 0);
    let Some(ms) = ms.and_then(|value| value.checked_mul(unit)) else { return Some(Err(wrong)) };
    Some(Ok(match absolute {
        true => Expiry::at_wall_ms(ms, turn.moment),
        false => Expiry::after_ms(ms, turn.moment),
    }))
}

/// A short word in capitals.
pub(super) fn upper(word: &[u8]) -> ArrayVec<u8, 16> {
    word.iter().take(16).map(u8::to_ascii_uppercase).collect()
}

impl SetOptions {
    fn parse(args: &Args<'_>, turn: &Turn<'_>) -> Result<SetOptions, String> {
        let (mut options, mut at) = (SetOptions::default(), 3);
        while at < args.len() {
            let word = upper(args.text(at));
            at += 1;
            match word.as_slice() {
                b"NX" if !options.only_old => options.only_new = true,
                b"XX" if !options.only_new => options.only_old = true,
                b"GET" => options.gives = true,
                b"KEEPTTL" if options.expiry.is_none() => options.keeps = true,
                word => {
                    let told = expiry(word, args.get(at), "set", turn).ok_or(SYNTAX)?;
                    if options.expiry.replace(told?).is_some() || options.keeps {
                        return Err(SYNTAX.into());
                    }
                    at += 1;
                }
            }
        }
        Ok(options)
    }
}

pub fn set(mut args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let options = match SetOptions::parse(&args, turn) {
        Ok(options) => options,
        Err(text) => return turn.error(&text),
    };
    let found = find(key, turn);
    let stops = if found.is_some() { options.only_new } else { options.only_old };
    let before = turn.out.len();
    if options.gives {
        send(found, client, turn);
    }
    if stops {
        if !options.gives {
            turn.null(client);
        }
        return;
    }
    let kept = found.filter(|_| options.keeps).map(|found| turn.items.expiry(found));
    let expiry = kept.or(options.expiry).unwrap_or(Expiry::NEVER);
    let content = args.take(2);
    if turn.out.len() > before {
        // What was there is on its way already, so an error can no longer be answered: the key has nothing then.
        let placed = Placed { flags: 0, expiry, cas: None };
        let _ = turn.items.store(turn.tenant, key, content, placed, turn.moment);
    } else if put(key, content, expiry, turn).is_some() {
        turn.ok();
    }
}

fn set_for(mut args: Args<'_>, unit: u64, name: &str, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let Some(value) = args.get(2).and_then(signed) else { return turn.error(NO_INTEGER) };
    let ms = u64::try_from(value).ok().filter(|value| *value > 0);
    let Some(ms) = ms.and_then(|value| value.checked_mul(unit)) else {
        return turn.error(&format!("ERR invalid expire time in '{name}' command"));
    };
    let expiry = Expiry::after_ms(ms, turn.moment);
    if put(key, args.take(3), expiry, turn).is_some() {
        turn.ok();
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
    send(found, client, turn);
    let placed = Placed { flags: 0, expiry: Expiry::NEVER, cas: None };
    // As for SET with GET: the answer is the old value.
    let _ = turn.items.store(turn.tenant, key, args.take(2), placed, turn.moment);
}

pub fn get_and_delete(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let found = read(key, turn);
    send(found, client, turn);
    found.into_iter().for_each(|found| turn.items.remove(found));
}

pub fn get_and_expire(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let option = upper(args.text(2));
    let told = match (args.len(), option.as_slice()) {
        (2, _) => None,
        (3, b"PERSIST") => Some(Expiry::NEVER),
        (_, option) => match expiry(option, args.get(3), "getex", turn) {
            Some(Ok(expiry)) => Some(expiry),
            Some(Err(text)) => return turn.error(&text),
            None => return turn.error(SYNTAX),
        },
    };
    let found = read(key, turn);
    send(found, client, turn);
    if let (Some(found), Some(expiry)) = (found, told) {
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

/// Where a range from `start` to `end`, counted from the end when negative, lies in `len` bytes.
fn span(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let start = place(start).max(0).min(len);
    let end = place(end).min(len - 1) + 1;
    start as usize..end.max(start) as usize
}

pub fn range(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let ends = args.get(2).and_then(signed).zip(args.get(3).and_then(signed));
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
            signed(&text)
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
