//! Commands on keys.

use super::strings::{NO_INTEGER, SYNTAX, find, key, upper};
use super::{Args, Client, glob};
use crate::items::ItemNo;
use crate::moment::{Expiry, Moment};
use crate::number::{Decimal, signed, unsigned};
use crate::owners::Owners;
use crate::session::Turn;
use wire::NodeId;

/// Places of the table that one SCAN looks at when it is not told.
const SCAN_COUNT: u32 = 10;
/// Bits of a cursor that say a place of a table; those above them say whose.
const CURSOR_PLACE_BITS: u32 = 32;

/// The number at this place; `None` when it is none, which is answered.
pub(super) fn integer(args: &Args<'_>, number: usize, turn: &mut Turn<'_>) -> Option<i64> {
    let value = args.get(number).and_then(signed);
    if value.is_none() {
        turn.error(NO_INTEGER);
    }
    value
}

/// Deletes a key of this node's, or notes a use of it; whether it was there.
pub(super) fn one(name: &[u8], key: &[u8], turn: &mut Turn<'_>) -> bool {
    let found = find(key, turn);
    match name {
        b"DEL" | b"UNLINK" => found.into_iter().for_each(|found| turn.items.remove(found)),
        _ => found.into_iter().for_each(|found| turn.items.use_item(found, turn.moment)),
    }
    found.is_some()
}

pub fn delete(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let mut count = 0;
    for number in 1..args.len() {
        count += i64::from(args.get(number).is_some_and(|key| one(b"DEL", key, turn)));
    }
    turn.integer(count);
}

pub fn exists(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let there = (1..args.len())
        .filter(|number| args.get(*number).is_some_and(|key| one(b"EXISTS", key, turn)));
    let count = there.count();
    turn.integer(count as i64);
}

pub fn kind(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let there = find(key, turn).is_some();
    turn.simple(if there { "string" } else { "none" });
}

/// Answers a time of an item: -2 when there is no item, -1 when it never ends.
fn time(args: &Args<'_>, of: impl Fn(Expiry, Moment) -> Option<u64>, turn: &mut Turn<'_>) {
    let Some(key) = key(args, 1, turn) else { return };
    let value = match find(key, turn) {
        None => -2,
        Some(found) => of(turn.items.expiry(found), turn.moment).map_or(-1, |ms| ms as i64),
    };
    turn.integer(value);
}

pub fn seconds_left(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    time(&args, |expiry, moment| expiry.left_ms(moment).map(|ms| (ms + 500) / 1000), turn);
}

pub fn milliseconds_left(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    time(&args, Expiry::left_ms, turn);
}

pub fn end_second(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    time(&args, |expiry, moment| expiry.wall_ms(moment).map(|ms| ms / 1000), turn);
}

pub fn end_millisecond(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    time(&args, Expiry::wall_ms, turn);
}

/// When an item is to end by a command such as EXPIRE; `None` when it is wrong, which is answered.
fn end(args: &Args<'_>, unit: i64, absolute: bool, turn: &mut Turn<'_>) -> Option<Expiry> {
    let value = integer(args, 2, turn)?;
    let Some(ms) = value.checked_mul(unit) else {
        let name = String::from_utf8_lossy(args.text(0)).to_lowercase();
        turn.error(&format!("ERR invalid expire time in '{name}' command"));
        return None;
    };
    Some(match (u64::try_from(ms), absolute) {
        (Err(_), _) => Expiry::PAST,
        (Ok(ms), true) => Expiry::at_wall_ms(ms, turn.moment),
        (Ok(ms), false) => Expiry::after_ms(ms, turn.moment),
    })
}

/// Whether the option allows the new end; `None` when there is no such option.
fn allows(option: &[u8], before: Expiry, after: Expiry) -> Option<bool> {
    Some(match option {
        b"" => true,
        b"NX" => before == Expiry::NEVER,
        b"XX" => before != Expiry::NEVER,
        b"GT" => after > before,
        b"LT" => after < before,
        _ => return None,
    })
}

fn set_end(args: &Args<'_>, unit: i64, absolute: bool, turn: &mut Turn<'_>) {
    let Some(key) = key(args, 1, turn) else { return };
    let Some(after) = end(args, unit, absolute, turn) else { return };
    let option = upper(args.text(3));
    let found = find(key, turn);
    let before = found.map_or(Expiry::NEVER, |found| turn.items.expiry(found));
    let Some(allowed) = allows(&option, before, after) else {
        let option = String::from_utf8_lossy(args.text(3));
        return turn.error(&format!("ERR Unsupported option {option}"));
    };
    let Some(found) = found.filter(|_| allowed) else { return turn.integer(0) };
    match after.has_passed(turn.moment) {
        true => turn.items.remove(found),
        false => turn.items.set_expiry(found, after),
    }
    turn.integer(1);
}

pub fn expire(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_end(&args, 1000, false, turn);
}

pub fn expire_milliseconds(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_end(&args, 1, false, turn);
}

pub fn expire_at(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_end(&args, 1000, true, turn);
}

pub fn expire_at_millisecond(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    set_end(&args, 1, true, turn);
}

pub fn persist(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(key) = key(&args, 1, turn) else { return };
    let found = find(key, turn).filter(|found| turn.items.expiry(*found) != Expiry::NEVER);
    found.into_iter().for_each(|found| turn.items.set_expiry(found, Expiry::NEVER));
    turn.integer(found.is_some().into());
}

/// The places of the table where keys are that fit, from `from` on, and where to go on.
fn matching(from: u32, count: u32, pattern: &[u8], turn: &Turn<'_>) -> (Vec<ItemNo>, u32) {
    let (found, next) = turn.items.scan(turn.tenant, from, count);
    let alive = found.filter(|at| !turn.items.has_ended(*at, turn.moment));
    (alive.filter(|at| glob::fits(pattern, turn.items.key(*at))).collect(), next)
}

fn send_keys(found: &[ItemNo], turn: &mut Turn<'_>) {
    turn.array(found.len());
    for at in found {
        let key = turn.items.key(*at).to_vec();
        turn.bulk(&key);
    }
}

/// Where a cursor has come to: the node, 0 at the start and where there is one node only, and the place of its table.
pub(super) fn cursor(args: &Args<'_>) -> Option<(NodeId, u32)> {
    let cursor = args.get(1).and_then(unsigned)?;
    let node = u16::try_from(cursor >> CURSOR_PLACE_BITS).ok()?;
    Some((NodeId(node), cursor as u32))
}

/// The cursor of what comes behind a part of this node's table that ends before `next`, or with the table.
fn behind(next: u32, turn: &Turn<'_>) -> u64 {
    let Some(owners) = turn.items.owners() else { return next.into() };
    let node = if next > 0 { Some(owners.me()) } else { owners.next_member() };
    node.map_or(0, |node| u64::from(node.0) << CURSOR_PLACE_BITS | u64::from(next))
}

/// Where to begin in this node's table, and where the next part begins; `None` when a cursor has gone past it.
fn part(cursor: (NodeId, u32), turn: &Turn<'_>) -> Option<u32> {
    let (node, place) = cursor;
    match turn.items.owners().map(Owners::me) {
        None => Some(place),
        Some(me) if node == me => Some(place),
        Some(me) if node < me => Some(0), // that node is gone, and its keys with it
        Some(_) => None,
    }
}

pub fn scan(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let Some(cursor) = cursor(&args) else { return turn.error("ERR invalid cursor") };
    let (mut pattern, mut count, mut strings): (&[u8], _, _) = (b"*", SCAN_COUNT, true);
    for number in (2..args.len()).step_by(2) {
        let told = args.get(number + 1);
        match (upper(args.text(number)).as_slice(), told) {
            (b"MATCH", Some(told)) => pattern = told,
            (b"TYPE", Some(told)) => strings = told.eq_ignore_ascii_case(b"string"),
            (b"COUNT", Some(told)) => match unsigned(told) {
                Some(told @ 1..) => count = u32::try_from(told).unwrap_or(u32::MAX),
                _ => return turn.error(NO_INTEGER),
            },
            _ => return turn.error(SYNTAX),
        }
    }
    let (found, next) = match part(cursor, turn) {
        None => (Vec::new(), 0),
        Some(from) => {
            let (found, next) = matching(from, count, pattern, turn);
            (found, behind(next, turn))
        }
    };
    turn.array(2);
    turn.bulk(Decimal::new(next).text());
    send_keys(if strings { &found } else { &[] }, turn);
}

pub fn keys(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let (found, _) = matching(0, u32::MAX, args.text(1), turn);
    send_keys(&found, turn);
}

pub fn count(_: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let (items, _) = turn.items.holds(turn.tenant);
    turn.integer(items as i64);
}

pub fn flush(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    if args.len() == 2 && !matches!(upper(args.text(1)).as_slice(), b"ASYNC" | b"SYNC") {
        return turn.error(SYNTAX);
    }
    turn.items.flush(turn.tenant);
    turn.ok();
}
