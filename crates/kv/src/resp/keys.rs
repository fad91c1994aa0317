//! Commands on keys.

use super::strings::{NO_INTEGER, SYNTAX, find, key, upper};
use super::{Args, Client, glob};
use crate::items::ItemNo;
use crate::moment::{Expiry, Moment};
use crate::number::{self, Decimal, unsigned};
use crate::owners::Owners;
use crate::turn::Turn;
use wire::NodeId;

/// Places of the table that one SCAN looks at when it is not told.
const SCAN_COUNT: u32 = 10;
const NX_ALONE: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
const GT_OR_LT: &str = "ERR GT and LT options at the same time are not compatible";
/// Bits of a cursor that say a place of a table; those above them say whose.
const CURSOR_PLACE_BITS: u32 = 32;

/// The number at this place; `None` when it is none, which is answered.
pub(super) fn integer(args: &Args<'_>, number: usize, turn: &mut Turn<'_>) -> Option<i64> {
    let value = args.get(number).and_then(number::integer);
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
        Some(found) => of(turn.items.expiry(found), turn.moment)
            .map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX)),
    };
    turn.integer(value);
}

pub fn seconds_left(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    time(
        &args,
        |expiry, moment| expiry.left_ms(moment).map(|ms| ms.saturating_add(500) / 1000),
        turn,
    );
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

/// When an item's end may be changed.
#[derive(Clone, Copy, Default)]
struct Conditions {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    /// The options of a command such as EXPIRE; what to answer when they are wrong.
    fn parse(args: &Args<'_>) -> Result<Conditions, String> {
        let mut all = Conditions::default();
        for number in 3..args.len() {
            match upper(args.text(number)).as_slice() {
                b"NX" => all.without = true,
                b"XX" => all.with = true,
                b"GT" => all.later = true,
                b"LT" => all.earlier = true,
                _ => {
                    let option = String::from_utf8_lossy(args.text(number));
                    return Err(format!("ERR Unsupported option {option}"));
                }
            }
        }
        if all.without && (all.with || all.later || all.earlier) {
            return Err(NX_ALONE.into());
        }
        if all.later && all.earlier { Err(GT_OR_LT.into()) } else { Ok(all) }
    }

    fn allow(&self, before: Expiry, after: Expiry) -> bool {
        let has_end = before != Expiry::NEVER;
        let known = !(self.without && has_end || self.with && !has_end);
        known && (!self.later || after > before) && (!self.earlier || after < before)
    }
}

/// When an item is to end by a command such as EXPIRE, and when that is allowed; what to answer when they are wrong.
fn end(
    args: &Args<'_>,
    (unit, absolute): (i64, bool),
    turn: &Turn<'_>,
) -> Result<(Expiry, Conditions), String> {
    let conditions = Conditions::parse(args)?;
    let count = args.get(2).and_then(number::integer).ok_or(NO_INTEGER)?;
    let end = Expiry::of_redis(count, unit, absolute, turn.moment).ok_or_else(|| {
        let name = String::from_utf8_lossy(args.text(0)).to_lowercase();
        format!("ERR invalid expire time in '{name}' command")
    });
    Ok((end?, conditions))
}

fn set_end(args: &Args<'_>, unit: i64, absolute: bool, turn: &mut Turn<'_>) {
    let Some(key) = key(args, 1, turn) else { return };
    let (after, conditions) = match end(args, (unit, absolute), turn) {
        Ok(told) => told,
        Err(text) => return turn.error(&text),
    };
    let found = find(key, turn);
    let before = found.map_or(Expiry::NEVER, |found| turn.items.expiry(found));
    let found = found.filter(|_| conditions.allow(before, after));
    match found {
        Some(found) if after.has_passed(turn.moment) => turn.items.remove(found),
        Some(found) => turn.items.set_expiry(found, after),
        None => {}
    }
    turn.integer(found.is_some().into());
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
    let alive = found.into_iter().filter(|at| !turn.items.has_ended(*at, turn.moment));
    (alive.filter(|at| glob::fits(pattern, turn.items.key(*at))).collect(), next)
}

fn send_keys(found: &[ItemNo], turn: &mut Turn<'_>) {
    turn.array(found.len());
    for at in found {
        let key = turn.items.key(*at).to_vec();
        turn.bulk(&key);
    }
}

/// Position of a cursor: the node, 0 at the start and where there is one node only, and the place in its table.
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

/// Start of the next part in this node's table; `None` when the cursor has gone past it.
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
            (b"COUNT", Some(told)) => match number::integer(told) {
                Some(told @ 1..) => count = u32::try_from(told).unwrap_or(u32::MAX),
                Some(_) => return turn.error(SYNTAX),
                None => return turn.error(NO_INTEGER),
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
    let known = |n: usize| matches!(upper(args.text(n)).as_slice(), b"ASYNC" | b"SYNC");
    if args.len() > 2 || (args.len() == 2 && !known(1)) {
        return turn.error(SYNTAX);
    }
    turn.items.flush(turn.tenant);
    turn.ok();
}
