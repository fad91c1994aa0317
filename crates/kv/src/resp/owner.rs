//! Commands about keys that other nodes keep. Those with several keys are split, and the answers put together.

use super::reply::null;
use super::strings::{put_here, upper};
use super::{Args, Client, NO_ROOM, WHOLE_ARGUMENTS, keys};
use crate::carry::{Dialect, Join, Protocol, Target, command};
use crate::items::NoRoom;
use crate::limits::KEY_BYTES_MAX;
use crate::rope::Rope;
use crate::turn::{Effect, Turn};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use wire::NodeId;

/// Place where a command is executed.
pub enum Route {
    Here,
    /// All of it at the owner of a slot.
    There(usize),
    /// All of it at the one owner of these slots.
    Together(Vec<usize>),
    /// Key by key.
    Split,
    /// At every node.
    All,
    /// At the first node from this one on.
    From(NodeId),
    /// Nowhere, since its keys have several owners.
    Crossing,
}

/// The arguments of a command that are keys.
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
    /// About a part of all keys, which a cursor names.
    Cursor,
    /// About the connection.
    Own,
}

/// Owners of some keys.
pub enum Whose {
    Mine,
    /// Another node's, or one's that is not known now: the one owner of these slots.
    Another(Vec<usize>),
    Several,
}

/// Keys that are looked at for whose they are.
#[derive(Default)]
pub struct Tally {
    mine: bool,
    all: bool,
    slots: BTreeSet<usize>,
}

impl Tally {
    /// One more key.
    pub fn add(&mut self, key: &[u8], turn: &Turn<'_>) {
        match turn.elsewhere(key) {
            None => self.mine = true,
            Some(slot) => _ = self.slots.insert(slot),
        }
    }

    /// Adds the keys of a command.
    pub fn add_keys(&mut self, args: &Args<'_>, turn: &Turn<'_>) {
        let keys = keys_of(&upper(args.text(0)));
        match keys {
            Keys::None => {}
            Keys::Own => self.mine = true,
            Keys::First => self.add(args.text(1), turn),
            Keys::Each | Keys::Pairs | Keys::Together => {
                (1..args.len()).step_by(keys.step()).for_each(|n| self.add(args.text(n), turn));
            }
            Keys::All | Keys::Cursor => self.all = true,
        }
    }

    pub fn judged(self, turn: &Turn<'_>) -> Whose {
        let Some(owners) = turn.items.owners().filter(|_| turn.is_for_all()) else {
            return Whose::Mine;
        };
        let mut nodes = self.slots.iter().filter_map(|slot| owners.owner(*slot));
        let first = nodes.next();
        let several =
            nodes.any(|node| Some(node) != first) || (self.mine && !self.slots.is_empty());
        match self.slots.is_empty() {
            _ if several || self.all => Whose::Several,
            true => Whose::Mine,
            false => Whose::Another(self.slots.into_iter().collect()),
        }
    }
}

impl Keys {
    /// From one key to the next.
    fn step(self) -> usize {
        if matches!(self, Keys::Pairs | Keys::Together) { 2 } else { 1 }
    }
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
        b"FLUSHALL" | b"FLUSHDB" | b"DBSIZE" | b"KEYS" => Keys::All,
        b"SCAN" => Keys::Cursor,
        b"HELLO" | b"CLIENT" => Keys::Own,
        _ => Keys::None,
    }
}

/// Whether a command's only key is its first argument.
pub fn has_one_key(name: &[u8]) -> bool {
    keys_of(name) == Keys::First
}

fn effect(name: &[u8]) -> Effect {
    match name {
        b"GET" | b"MGET" | b"STRLEN" | b"GETRANGE" | b"SUBSTR" | b"TYPE" | b"TTL" | b"PTTL"
        | b"EXPIRETIME" | b"PEXPIRETIME" | b"EXISTS" | b"TOUCH" | b"DBSIZE" | b"KEYS" | b"SCAN" => {
            Effect::Reads
        }
        b"SET" | b"GETSET" | b"GETDEL" | b"GETEX" => Effect::ChangesAndGives,
        _ => Effect::Changes,
    }
}

/// Whether a command changes nothing.
pub fn reads(args: &Args<'_>) -> bool {
    effect(&upper(args.text(0))) == Effect::Reads
}

/// Place where a command is executed. Faulty ones are refused here.
pub fn route(args: &Args<'_>, turn: &Turn<'_>) -> Route {
    if !turn.is_for_all() {
        return Route::Here;
    }
    let keys = keys_of(&upper(args.text(0)));
    let step = keys.step();
    let numbers = || (1..args.len()).step_by(step);
    let is_key = |n: usize| args.get(n).is_some_and(|key| key.len() <= KEY_BYTES_MAX);
    match keys {
        Keys::None | Keys::Own => Route::Here,
        Keys::All => Route::All,
        Keys::Cursor => keys::cursor(args).map_or(Route::Here, |(node, _)| Route::From(node)),
        Keys::First if is_key(1) => turn.elsewhere(args.text(1)).map_or(Route::Here, Route::There),
        Keys::First => Route::Here,
        _ if step == 2 && args.len().is_multiple_of(2) || !numbers().all(is_key) => Route::Here,
        Keys::Together => {
            let mut tally = Tally::default();
            tally.add_keys(args, turn);
            match tally.judged(turn) {
                Whose::Mine => Route::Here,
                Whose::Another(slots) => Route::Together(slots),
                Whose::Several => Route::Crossing,
            }
        }
        _ => {
            let mut slots = numbers().map(|n| turn.elsewhere(args.text(n)));
            let first = slots.next().flatten();
            let same = slots.all(|slot| slot == first);
            match (first, same) {
                (None, true) => Route::Here,
                (Some(slot), true) => Route::There(slot),
                _ => Route::Split,
            }
        }
    }
}

/// Has other nodes execute it, or the parts of it that are theirs.
pub fn carry(args: Args<'_>, route: Route, client: &mut Client, turn: &mut Turn<'_>) {
    let name = upper(args.text(0));
    let (target, slots) = match route {
        Route::Crossing => {
            return turn.error("CROSSSLOT Keys in request don't hash to the same slot");
        }
        Route::Split => return split(args, &name, client, turn),
        Route::Together(slots) => (Target::Slot(slots[0]), slots),
        Route::There(slot) => (Target::Slot(slot), Vec::new()),
        Route::From(node) => (Target::From(node), Vec::new()),
        Route::All => (Target::All, Vec::new()),
        Route::Here => unreachable!("it is executed here"),
    };
    let join = match (target, &name[..]) {
        (Target::All, b"DBSIZE") => Join::Sum(0),
        (Target::All, b"KEYS") => Join::Arrays,
        (Target::All, _) => Join::Same,
        _ => Join::One,
    };
    match whole(args, turn) {
        Ok(text) => ask(vec![(target, text)], (join, slots), &name, client, turn),
        Err(NoRoom) => turn.say(NO_ROOM),
    }
}

/// A command as it was.
fn whole(mut args: Args<'_>, turn: &mut Turn<'_>) -> Result<Rope, NoRoom> {
    let count = args.len();
    let args: Result<Vec<Rope>, NoRoom> =
        (0..count).map(|number| turn.rope_of(args.take(number))).collect();
    Ok(command(args?))
}

fn ask(
    parts: Vec<(Target, Rope)>,
    (join, slots): (Join, Vec<usize>),
    name: &[u8],
    client: &Client,
    turn: &mut Turn<'_>,
) {
    let miss: &[u8] = match name {
        b"GET" | b"MGET" => null(client),
        b"STRLEN" | b"EXISTS" | b"TOUCH" => b":0\r\n",
        b"GETRANGE" | b"SUBSTR" => b"$0\r\n\r\n",
        b"TYPE" => b"+none\r\n",
        b"SCAN" => b"-TRYAGAIN the node that the cursor has come to is away\r\n",
        _ => b":-2\r\n",
    };
    let dialect = Dialect { protocol: Protocol::Resp, version: client.version };
    turn.carry_together(dialect, parts, (join, effect(name), miss), slots);
}

fn split(args: Args<'_>, name: &[u8], client: &mut Client, turn: &mut Turn<'_>) {
    match name {
        b"MGET" => get_several(args, client, turn),
        b"MSET" => set_several(args, client, turn),
        _ => count(&args, name, client, turn),
    }
}

/// Answers keys one by one, here and elsewhere; of many, as long as there is room.
pub fn get_several(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let answered = client.answered.take();
    if answered.is_none() {
        turn.array(args.len() - 1);
    }
    for number in answered.map_or(1, NonZeroUsize::get)..args.len() {
        if args.len() > WHOLE_ARGUMENTS && turn.is_full() {
            client.answered = NonZeroUsize::new(number);
            return;
        }
        let Some(key) = args.get(number).filter(|key| key.len() <= KEY_BYTES_MAX) else {
            turn.null(client);
            continue;
        };
        match turn.elsewhere(key) {
            None => super::strings::read_and_send(key, client, turn),
            Some(slot) => {
                let part = (Target::Slot(slot), command([&b"GET"[..], key].map(Rope::of_text)));
                ask(vec![part], (Join::One, Vec::new()), b"GET", client, turn);
            }
        }
    }
}

/// DEL, EXISTS and their like, whose answers are numbers. Keys of one slot go together.
fn count(args: &Args<'_>, name: &[u8], client: &Client, turn: &mut Turn<'_>) {
    let (mut mine, mut theirs) = (0, BTreeMap::<usize, Vec<u32>>::new());
    for number in 1..args.len() {
        match turn.elsewhere(args.text(number)) {
            None => mine += i64::from(keys::one(name, args.text(number), turn)),
            Some(slot) => theirs.entry(slot).or_default().push(number as u32),
        }
    }
    let text = |numbers: &Vec<u32>| {
        let keys = numbers.iter().map(|number| args.text(*number as usize));
        let words: Vec<Rope> = std::iter::once(name).chain(keys).map(Rope::of_text).collect();
        command(words)
    };
    let parts = theirs.iter().map(|(slot, numbers)| (Target::Slot(*slot), text(numbers)));
    ask(parts.collect(), (Join::Sum(mine), Vec::new()), name, client, turn);
}

/// MSET. Pairs of one slot go together, in order.
fn set_several(mut args: Args<'_>, client: &Client, turn: &mut Turn<'_>) {
    let mut theirs = BTreeMap::<usize, Vec<u32>>::new();
    for number in (1..args.len()).step_by(2) {
        let key = args.text(number);
        match turn.elsewhere(key) {
            Some(slot) => theirs.entry(slot).or_default().push(number as u32),
            None if put_here(key, args.take(number + 1), turn) => {}
            None => return,
        }
    }
    let mut parts = Vec::new();
    for (slot, numbers) in theirs {
        let mut words = vec![Rope::of_text(b"MSET")];
        for number in numbers.into_iter().map(|number| number as usize) {
            let Ok(value) = turn.rope_of(args.take(number + 1)) else { return turn.say(NO_ROOM) };
            words.extend([Rope::of_text(args.text(number)), value]);
        }
        parts.push((Target::Slot(slot), command(words)));
    }
    ask(parts, (Join::Same, Vec::new()), b"MSET", client, turn);
}
