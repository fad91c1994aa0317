//! Transactions: commands that are queued, and then executed without another client's between them.
//!
//! A node does one thing at a time, so a transaction whose keys it keeps is executed in one go. Where all keys are
//! another node's the transaction is carried there as one command, `TRANSACTION`, which clients do not have:
//!
//! | argument | |
//! | --- | --- |
//! | number of watched keys | then for each the key and its version as it was |
//! | for each command: number of its arguments | then these |
//!
//! `VERSION` asks for a watched key's version: its CAS unique and its end.

use super::owner::{Tally, Whose};
use super::{Arg, Args, Client, NO_ROOM, commands};
use crate::carry::{Dialect, Join, Note, Protocol, Target, command};
use crate::items::{Content, NoRoom};
use crate::limits::{
    BESIDE_BYTES_MAX, KEY_BYTES_MAX, QUEUED_ARGUMENTS_MAX, QUEUED_BYTES_MAX, WATCHED_MAX,
};
use crate::number::unsigned;
use crate::out::Seat;
use crate::rope::Rope;
use crate::turn::{Effect, Turn};
use std::ops::Range;

/// Bytes that a watched key takes beside its own.
const WATCH_BYTES: usize = 128;
const CROSSING: &str = "CROSSSLOT Keys of the transaction are kept by several servers";

/// The commands of a transaction.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    args: Vec<Arg>,
    /// Ends of each command's arguments.
    ends: Vec<u32>,
    /// One of them was refused: none is executed.
    failed: bool,
}

impl Queue {
    /// Nothing of it will be executed.
    pub fn fail(&mut self) {
        *self = Queue { failed: true, ..Queue::default() };
    }

    fn has_room(&self, args: &Args<'_>) -> bool {
        let count = self.args.len() + args.len();
        let short = (0..args.len()).map(|number| args.text(number).len()).sum::<usize>();
        let bytes = self.bytes.len() + short + count * size_of::<Arg>();
        count <= QUEUED_ARGUMENTS_MAX && bytes <= QUEUED_BYTES_MAX
    }

    /// Adds a command. Long arguments go into frames of the items', as when they come in pieces.
    fn push(&mut self, mut args: Args<'_>, turn: &mut Turn<'_>) -> Result<(), NoRoom> {
        for number in 0..args.len() {
            let arg = match args.take(number) {
                Content::Bytes(bytes) if bytes.len() <= BESIDE_BYTES_MAX => self.span(bytes),
                Content::Bytes(bytes) => {
                    Arg::Draft(Box::new(turn.items.draft_of(turn.tenant, bytes)?))
                }
                Content::Draft(draft) => Arg::Draft(Box::new(draft)),
            };
            self.args.push(arg);
        }
        self.ends.push(self.args.len() as u32);
        Ok(())
    }

    fn span(&mut self, bytes: &[u8]) -> Arg {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Arg::span(at, self.bytes.len())
    }

    fn commands(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start as usize..*end as usize)
    }

    fn args(&mut self, command: Range<usize>) -> Args<'_> {
        Args { bytes: &self.bytes, args: &mut self.args[command] }
    }

    fn all(&mut self) -> Args<'_> {
        let end = self.args.len();
        self.args(0..end)
    }
}

/// A key, and what is known of it.
#[derive(Debug)]
pub struct Watch {
    key: Vec<u8>,
    version: Version,
}

#[derive(Debug)]
enum Version {
    Known(Vec<u8>),
    /// One of several that another node was asked for.
    Asked(Note, usize),
}

impl Watch {
    /// The version when it began to be watched; nothing when its node did not say it.
    fn version(&self) -> Vec<u8> {
        match &self.version {
            Version::Known(version) => version.clone(),
            Version::Asked(note, number) => {
                note.borrow().as_ref().map(|all| all[*number].clone()).unwrap_or_default()
            }
        }
    }
}

/// Bytes of what a client has queued and watches.
pub fn held_bytes(client: &Client) -> usize {
    let queued = client.queue.as_ref().map_or(0, |queue| {
        queue.bytes.capacity()
            + queue.args.capacity() * size_of::<Arg>()
            + queue.ends.capacity() * size_of::<u32>()
    });
    let watched = client.watched.iter().map(|watch| WATCH_BYTES + watch.key.len());
    queued + watched.sum::<usize>()
}

/// Nothing is queued or watched any more.
pub fn forget(client: &mut Client) {
    (client.queue, client.watched) = Default::default();
}

/// Outcome of a command.
pub enum Taken<'a> {
    /// It is executed as usual.
    Not(Args<'a>),
    Done,
    /// Nothing: it comes again.
    Blocked,
}

/// Queues a command, or does what ends a transaction or goes before one.
pub fn take<'a>(mut args: Args<'a>, client: &mut Client, turn: &mut Turn<'_>) -> Taken<'a> {
    let (name, queues) = (super::strings::upper(args.text(0)), client.queue.is_some());
    let carried = matches!(turn.seat, Seat::Carried(_));
    match (&name[..], queues) {
        (b"TRANSACTION", _) if carried => return transaction(&mut args, client, turn),
        (b"VERSION", _) if carried => {
            let version = version(args.text(1), turn);
            turn.say(&version);
        }
        (b"EXEC", _) if args.len() > 1 => {
            forget(client);
            turn.error(WRONG_EXEC);
        }
        (b"EXEC", true) => return execute(client, turn),
        (b"WATCH", false) if args.len() > 1 => watch(&args, client, turn),
        (b"QUIT", _) | (_, false) => return Taken::Not(args),
        (b"MULTI" | b"DISCARD" | b"RESET", true) if args.len() == 1 => return Taken::Not(args),
        (b"WATCH", true) if args.len() > 1 => return Taken::Not(args),
        (b"", true) if args.len() == 0 => return Taken::Not(args),
        _ => queue(args, client, turn),
    }
    Taken::Done
}

const WRONG_EXEC: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";

fn queue(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let queue = client.queue.as_mut().expect("a transaction has begun");
    if commands::find(&args, turn).is_none() {
        queue.fail();
    } else if !queue.has_room(&args) {
        queue.fail();
        turn.error(
            "ERR the transaction is too long: its commands have 65536 arguments and 16M at most",
        );
    } else if queue.failed || queue.push(args, turn).is_ok() {
        turn.simple("QUEUED");
    } else {
        queue.fail();
        turn.say(NO_ROOM);
    }
}

pub fn begin(_: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    match client.queue {
        Some(_) => turn.error("ERR MULTI calls can not be nested"),
        None => {
            client.queue = Some(Box::default());
            turn.ok();
        }
    }
}

pub fn discard(_: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    match client.queue {
        None => turn.error("ERR DISCARD without MULTI"),
        Some(_) => {
            forget(client);
            turn.ok();
        }
    }
}

pub fn without(_: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    turn.error("ERR EXEC without MULTI");
}

pub fn watch_inside(_: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    turn.error("ERR WATCH inside MULTI is not allowed");
}

pub fn unwatch(_: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    client.watched.clear();
    turn.ok();
}

/// A value that changes with every change of a key of this node's.
fn version(key: &[u8], turn: &mut Turn<'_>) -> Vec<u8> {
    match turn.items.find(turn.tenant, key, turn.moment) {
        None => b"+none\r\n".to_vec(),
        Some(at) => {
            let (cas, end) = (turn.items.item(at).cas, turn.items.expiry(at).bits());
            format!("+{cas}:{end}\r\n").into_bytes()
        }
    }
}

fn watch(args: &Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let is_key = |n: usize| args.get(n).is_some_and(|key| key.len() <= KEY_BYTES_MAX);
    if !(1..args.len()).all(is_key) {
        return turn.error(&format!("ERR a key has at most {KEY_BYTES_MAX} bytes here"));
    }
    if client.watched.len() + args.len() - 1 > WATCHED_MAX {
        return turn.error(&format!("ERR no more than {WATCHED_MAX} keys can be watched here"));
    }
    let (note, mut parts) = (Note::default(), Vec::new());
    for number in 1..args.len() {
        let key = args.text(number);
        let version = match turn.elsewhere(key) {
            None => Version::Known(version(key, turn)),
            Some(slot) => {
                let text = command([&b"VERSION"[..], key].map(Rope::of_text));
                parts.push((Target::Slot(slot), text));
                Version::Asked(note.clone(), parts.len() - 1)
            }
        };
        client.watched.push(Watch { key: key.to_vec(), version });
    }
    if parts.is_empty() {
        return turn.ok();
    }
    let miss = b"-TRYAGAIN the node that keeps the key is away\r\n";
    turn.carry(dialect(client), parts, (Join::Noted(note), Effect::Reads, miss));
}

fn dialect(client: &Client) -> Dialect {
    Dialect { protocol: Protocol::Resp, version: client.version }
}

/// EXEC: here, or where the keys are kept.
fn execute(client: &mut Client, turn: &mut Turn<'_>) -> Taken<'static> {
    // what is watched may be being asked for; and what is carried comes behind what was carried before
    if turn.has_to_wait(true) {
        return Taken::Blocked;
    }
    let mut queue = client.queue.take().expect("a transaction has begun");
    if queue.failed {
        forget(client);
        turn.error("EXECABORT Transaction discarded because of previous errors.");
        return Taken::Done;
    }
    let whose = whose(&mut queue, client, turn);
    let commands: Vec<_> = queue.commands().collect();
    if matches!(whose, Whose::Mine) && !are_ready(&mut queue.all(), &commands, client, turn) {
        client.queue = Some(queue);
        return Taken::Blocked;
    }
    client.brought = false;
    let watched = std::mem::take(&mut client.watched);
    match whose {
        Whose::Several => turn.error(CROSSING),
        Whose::Another(slots) => carry(*queue, &watched, slots, (client, turn)),
        Whose::Mine => {
            match watched.iter().all(|watch| version(&watch.key, turn) == watch.version()) {
                true => run(&mut queue.all(), &commands, client, turn),
                false => changed(client, turn),
            }
        }
    }
    Taken::Done
}

/// A watched key is not what it was.
fn changed(client: &Client, turn: &mut Turn<'_>) {
    turn.say(if client.version < 3 { b"*-1\r\n" } else { b"_\r\n" });
}

/// Owners of the keys of the transaction and of those that are watched.
fn whose(queue: &mut Queue, client: &Client, turn: &Turn<'_>) -> Whose {
    let commands: Vec<_> = queue.commands().collect();
    let mut all = Tally::default();
    commands.into_iter().for_each(|command| all.add_keys(&queue.args(command), turn));
    client.watched.iter().for_each(|watch| all.add(&watch.key, turn));
    all.judged(turn)
}

/// Whether all that the commands work on is here. It is asked for once: what is away again by then is refused.
fn are_ready(
    args: &mut Args<'_>,
    commands: &[Range<usize>],
    client: &mut Client,
    turn: &mut Turn<'_>,
) -> bool {
    if !std::mem::replace(&mut client.brought, true) {
        let mut ready = true;
        for command in commands {
            ready &= commands::is_ready(&args.part(command.clone()), turn);
        }
        if !ready {
            return false;
        }
    }
    client.brought = false;
    true
}

/// Executes the commands, without another client's between them.
fn run(args: &mut Args<'_>, commands: &[Range<usize>], client: &mut Client, turn: &mut Turn<'_>) {
    turn.array(commands.len());
    turn.whole = true;
    for command in commands {
        let args = args.part(command.clone());
        match commands::joined(&args).and_then(|key| turn.away(key)) {
            Some(_) => turn.error("TRYAGAIN the value is in another server's memory"),
            None => _ = commands::execute(args, client, turn),
        }
    }
    turn.whole = false;
}

/// Has the owner of all keys execute the transaction.
fn carry(
    mut queue: Queue,
    watched: &[Watch],
    slots: Vec<usize>,
    (client, turn): (&Client, &mut Turn<'_>),
) {
    let mut texts = vec![Rope::of_text(b"TRANSACTION"), number(watched.len())];
    for watch in watched {
        texts.extend([Rope::of_text(&watch.key[..]), Rope::of_text(watch.version())]);
    }
    let commands: Vec<_> = queue.commands().collect();
    for command in commands {
        texts.push(number(command.len()));
        let mut args = queue.args(command);
        for place in 0..args.len() {
            match turn.rope_of(args.take(place)) {
                Ok(text) => texts.push(text),
                Err(NoRoom) => return turn.say(NO_ROOM),
            }
        }
    }
    let parts = vec![(Target::Slot(slots[0]), command(texts))];
    let told = (Join::One, Effect::ChangesAndGives, &b""[..]);
    turn.carry_together(dialect(client), parts, told, slots);
}

fn number(value: usize) -> Rope {
    Rope::of_text(value.to_string())
}

/// A transaction of another node's client.
fn transaction(args: &mut Args<'_>, client: &mut Client, turn: &mut Turn<'_>) -> Taken<'static> {
    let Some((watched, commands)) = parts_of(args) else {
        turn.error("ERR this is no transaction");
        return Taken::Done;
    };
    if turn.has_to_wait(true) || !are_ready(args, &commands, client, turn) {
        return Taken::Blocked;
    }
    let mut same = watched.step_by(2).map(|number| (args.text(number), args.text(number + 1)));
    match same.all(|(key, before)| version(key, turn) == before) {
        true => run(args, &commands, client, turn),
        false => changed(client, turn),
    }
    Taken::Done
}

/// The watched keys and their versions, and the range of each command.
fn parts_of(args: &Args<'_>) -> Option<(Range<usize>, Vec<Range<usize>>)> {
    let number = |at: usize| Some(unsigned(args.get(at)?)? as usize);
    let end = number(1)?.checked_mul(2)?.checked_add(2).filter(|end| *end <= args.len())?;
    let (mut at, mut commands) = (end, Vec::new());
    while at < args.len() {
        let next = number(at)?.checked_add(at + 1)?;
        commands.push(at + 1..next);
        at = next;
    }
    (at == args.len()).then_some((2..end, commands))
}
