//! Commands about keys that other nodes keep. Those with several keys are split, and the answers put together.

use super::reply::null;
use super::strings::{put_here, upper};
use super::{Args, Client, TOO_LARGE, keys};
use crate::carry::{Dialect, Join, Target, command};
use crate::limits::{CARRIED_BYTES_MAX, KEY_BYTES_MAX};
use crate::session::{Effect, Protocol, Turn};

/// Where a command is executed.
pub enum Place {
    Here,
    /// All of it at the owner of a slot.
    There(usize),
    /// Key by key.
    Split,
    /// At every node.
    All,
    /// Nowhere, since its keys have several owners.
    Crossing,
}

/// Which arguments of a command are keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    First,
    Each,
    Pairs,
    /// Pairs that are stored together or not at all.
    Together,
    /// The command is about all keys.
    All,
}

fn keys_of(name: &[u8]) -> Keys {
    match name {
        b"GET" | b"SET" | b"SETEX" | b"PSETEX" | b"SETNX" | b"GETSET" | b"GETDEL" | b"GETEX"
        | b"APPEND" | b"STRLEN" | b"GETRANGE" | b"SUBSTR" | b"INCR" | b"DECR" | b"INCRBY"
        | b"DECRBY" | b"TYPE" | b"TTL" | b"PTTL" | b"EXPIRETIME" | b"PEXPIRETIME" | b"EXPIRE"
        | b"PEXPIRE" | b"EXPIREAT" | b"PEXPIREAT" | b"PERSIST" => Keys::First,
        b"MGET" | b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" => Keys::Each,
        b"MSET" => Keys::Pairs,
        b"MSETNX" => Keys::Together,
        b"FLUSHALL" | b"FLUSHDB" | b"DBSIZE" => Keys::All,
        _ => Keys::None,
    }
}

fn effect(name: &[u8]) -> Effect {
    match name {
        b"GET" | b"MGET" | b"STRLEN" | b"GETRANGE" | b"SUBSTR" | b"TYPE" | b"TTL" | b"PTTL"
        | b"EXPIRETIME" | b"PEXPIRETIME" | b"EXISTS" | b"TOUCH" | b"DBSIZE" => Effect::Reads,
        b"SET" | b"GETSET" | b"GETDEL" | b"GETEX" => Effect::ChangesAndGives,
        _ => Effect::Changes,
    }
}

/// Whether a command changes nothing.
pub fn reads(args: &Args<'_>) -> bool {
    effect(&upper(args.text(0))) == Effect::Reads
}

/// Where a command is executed. What is wrong is refused here.
pub fn place(args: &Args<'_>, turn: &Turn<'_>) -> Place {
    if !turn.is_for_all() {
        return Place::Here;
    }
    let keys = keys_of(&upper(args.text(0)));
    let step = if matches!(keys, Keys::Pairs | Keys::Together) { 2 } else { 1 };
    let numbers = || (1..args.len()).step_by(step);
    let is_key = |n: usize| args.get(n).is_some_and(|key| key.len() <= KEY_BYTES_MAX);
    match keys {
        Keys::None => Place::Here,
        Keys::All => Place::All,
        Keys::First if is_key(1) => turn.elsewhere(args.text(1)).map_or(Place::Here, Place::There),
        Keys::First => Place::Here,
        _ if step == 2 && args.len().is_multiple_of(2) || !numbers().all(is_key) => Place::Here,
        _ => {
            let mut slots = numbers().map(|n| turn.elsewhere(args.text(n)));
            let first = slots.next().flatten();
            let same = slots.all(|slot| slot == first);
            match (first, same) {
                (None, true) => Place::Here,
                (Some(slot), true) => Place::There(slot),
                _ if keys == Keys::Together => Place::Crossing,
                _ => Place::Split,
            }
        }
    }
}

/// Has other nodes execute it, or the parts of it that are theirs.
pub fn carry(args: Args<'_>, place: Place, client: &mut Client, turn: &mut Turn<'_>) {
    let name = upper(args.text(0));
    let all = |args: &Args<'_>| {
        let args: Vec<Vec<u8>> = (0..args.len()).map(|number| args.copy(number)).collect();
        command(args.iter().map(Vec::as_slice))
    };
    match place {
        Place::Crossing => turn.error("CROSSSLOT Keys in request don't hash to the same slot"),
        Place::Split => split(args, &name, client, turn),
        _ if args.bytes() > CARRIED_BYTES_MAX - 16 * args.len() => turn.say(TOO_LARGE),
        Place::There(slot) => {
            let part = (Target::Slot(slot), all(&args));
            ask(vec![part], Join::One, &name, client, turn);
        }
        Place::All => {
            let join = if &name[..] == b"DBSIZE" { Join::Sum(0) } else { Join::Same };
            ask(vec![(Target::All, all(&args))], join, &name, client, turn);
        }
        Place::Here => unreachable!("it is executed here"),
    }
}

fn ask(
    parts: Vec<(Target, Vec<u8>)>,
    join: Join,
    name: &[u8],
    client: &Client,
    turn: &mut Turn<'_>,
) {
    let miss: &[u8] = match name {
        b"GET" | b"MGET" => null(client),
        b"STRLEN" | b"EXISTS" | b"TOUCH" => b":0\r\n",
        b"GETRANGE" | b"SUBSTR" => b"$0\r\n\r\n",
        b"TYPE" => b"+none\r\n",
        _ => b":-2\r\n",
    };
    let dialect = Dialect { protocol: Protocol::Resp, version: client.version };
    turn.carry(dialect, parts, (join, effect(name), miss));
}

fn split(args: Args<'_>, name: &[u8], client: &mut Client, turn: &mut Turn<'_>) {
    match name {
        b"MGET" => get_several(&args, client, turn),
        b"MSET" => set_several(args, client, turn),
        _ => count(&args, name, client, turn),
    }
}

fn get_several(args: &Args<'_>, client: &Client, turn: &mut Turn<'_>) {
    turn.array(args.len() - 1);
    for number in 1..args.len() {
        let key = args.text(number);
        match turn.elsewhere(key) {
            None => super::strings::read_and_send(key, client, turn),
            Some(slot) => {
                let part = (Target::Slot(slot), command([&b"GET"[..], key].into_iter()));
                ask(vec![part], Join::One, b"GET", client, turn);
            }
        }
    }
}

/// DEL, EXISTS and their like, whose answers are numbers.
fn count(args: &Args<'_>, name: &[u8], client: &Client, turn: &mut Turn<'_>) {
    let (mut mine, mut parts) = (0, Vec::new());
    for number in 1..args.len() {
        let key = args.text(number);
        match turn.elsewhere(key) {
            None => mine += i64::from(keys::one(name, key, turn)),
            Some(slot) => {
                parts.push((Target::Slot(slot), command([name, key].into_iter())));
            }
        }
    }
    ask(parts, Join::Sum(mine), name, client, turn);
}

fn set_several(mut args: Args<'_>, client: &Client, turn: &mut Turn<'_>) {
    if (2..args.len()).step_by(2).any(|n| args.copy(n).len() > CARRIED_BYTES_MAX - KEY_BYTES_MAX) {
        return turn.say(TOO_LARGE);
    }
    let mut parts = Vec::new();
    for number in (1..args.len()).step_by(2) {
        let key = args.text(number);
        match turn.elsewhere(key) {
            Some(slot) => {
                let value = args.copy(number + 1);
                let text = command([&b"SET"[..], key, &value].into_iter());
                parts.push((Target::Slot(slot), text));
            }
            None if put_here(key, args.take(number + 1), turn) => {}
            None => return,
        }
    }
    ask(parts, Join::Same, b"MSET", client, turn);
}
