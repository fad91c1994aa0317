//! The meta commands (doc/protocol.txt of memcached 1.6, "Meta Commands").

use super::base64::{self, Key};
use super::change::{self, Change, Mode, Outcome, Step};
use super::{Announced, BAD_CHUNK, BAD_LINE, ERROR, NO_ROOM, TOO_LARGE, is_key, words};
use crate::items::{Content, Item, ItemNo, Items, Placed};
use crate::moment::{Expiry, Moment};
use crate::number::{Decimal, signed, unsigned};
use crate::session::Turn;

const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
const DOUBLE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
const BAD_MODE: &[u8] = b"CLIENT_ERROR invalid mode\r\n";
const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Words of flags on one line: each letter can be there once.
const FLAGS_MAX: usize = 52;

/// What is wrong, and the length of the value that follows if that is known.
type Wrong = (&'static [u8], Option<usize>);

/// The words behind the key (and the length).
struct Flags<'a>(arrayvec::ArrayVec<&'a [u8], FLAGS_MAX>);

impl<'a> Flags<'a> {
    fn parse(
        words: impl Iterator<Item = &'a [u8]>,
        known: &[u8],
    ) -> Result<Flags<'a>, &'static [u8]> {
        let (mut flags, mut seen) = (arrayvec::ArrayVec::new(), 0u128);
        for word in words {
            let bit = 1u128 << (word[0] & 127);
            if !known.contains(&word[0]) {
                return Err(BAD_FLAG);
            }
            if seen & bit != 0 {
                return Err(DOUBLE_FLAG);
            }
            seen |= bit;
            flags.push(word);
        }
        Ok(Flags(flags))
    }

    fn token(&self, flag: u8) -> Option<&'a [u8]> {
        self.0.iter().find(|word| word[0] == flag).map(|word| &word[1..])
    }

    fn has(&self, flag: u8) -> bool {
        self.token(flag).is_some()
    }

    fn number(&self, flag: u8) -> Result<Option<u64>, &'static [u8]> {
        self.token(flag).map(|token| unsigned(token).ok_or(BAD_TOKEN)).transpose()
    }

    fn expiry(&self, flag: u8, turn: &Turn<'_>) -> Result<Option<Expiry>, &'static [u8]> {
        let Some(token) = self.token(flag) else { return Ok(None) };
        let seconds = signed(token).ok_or(BAD_TOKEN)?;
        Ok(Some(Expiry::of_memcached(seconds, turn.moment)))
    }

    /// The key as it is stored.
    fn key(&self, text: &[u8]) -> Result<Key, &'static [u8]> {
        let key = match self.has(b'b') {
            true => base64::decode(text),
            false => Key::try_from(text).ok(),
        };
        key.filter(|key| is_key(key)).ok_or(BAD_LINE)
    }
}

/// A command that is one line.
pub fn command(verb: &[u8], line: &[u8], turn: &mut Turn<'_>) {
    let done = match verb {
        b"mn" => {
            turn.say(b"MN\r\n");
            Ok(())
        }
        b"mg" => get(line, turn),
        b"md" => delete(line, turn),
        b"ma" => arithmetic(line, turn),
        _ => debug(line, turn),
    };
    if let Err(text) = done {
        turn.say(text);
    }
}

/// The key as it stands on the line, and the flags behind it.
fn parse<'a>(line: &'a [u8], known: &[u8]) -> Result<(&'a [u8], Flags<'a>), &'static [u8]> {
    let mut words = words(line).skip(1);
    let key = words.next().ok_or(ERROR)?;
    Ok((key, Flags::parse(words, known)?))
}

/// What an item was before the command.
#[derive(Clone, Copy, Default)]
struct Before {
    item: Item,
    /// This client is the one that makes a new value.
    won: bool,
    /// Another was told so.
    sent: bool,
}

fn get(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line, b"bcfhklOqstvENRTPL")?;
    let key = flags.key(text)?;
    let vivify = flags.expiry(b'N', turn)?;
    let (found, made) = match (turn.items.find(turn.tenant, &key, turn.moment), vivify) {
        (Some(found), _) => (found, false),
        (None, Some(expiry)) => (make(&key, b"", expiry, flags.number(b'E')?, turn)?, true),
        (None, None) => {
            turn.items.read(turn.tenant, &key, turn.moment); // a miss that counts
            if !flags.has(b'q') {
                turn.say(b"EN\r\n");
            }
            return Ok(());
        }
    };
    let before = read(&key, found, made, &flags, turn)?;
    if !flags.has(b'v') {
        turn.say(b"HD");
        reply(&key, found, before, &flags, turn);
        return Ok(());
    }
    let moment = turn.moment;
    let head = |items: &Items, text: &mut Vec<u8>| {
        text.extend_from_slice(b"VA ");
        text.extend_from_slice(Decimal::new(items.value_len(found) as u64).text());
        reply_text(&key, found, before, (&flags, moment), items, text);
    };
    let miss: &[u8] = if flags.has(b'q') { b"" } else { b"EN\r\n" };
    turn.give(found, 0..turn.items.value_len(found), (head, b"\r\n", miss));
    Ok(())
}

/// Notes a read, and decides who makes a new value.
fn read(
    key: &[u8],
    found: ItemNo,
    made: bool,
    flags: &Flags<'_>,
    turn: &mut Turn<'_>,
) -> Result<Before, &'static [u8]> {
    let item = *turn.items.item(found);
    let left = turn.items.expiry(found).left_ms(turn.moment);
    let recache =
        flags.number(b'R')?.zip(left).is_some_and(|(span, left)| left < span.saturating_mul(1000));
    let wanted = made || item.stale || recache;
    let before = Before { item, won: wanted && !item.win_sent, sent: item.win_sent };
    if before.won {
        turn.items.item_mut(found).win_sent = true;
    }
    if let Some(expiry) = flags.expiry(b'T', turn)? {
        turn.items.set_expiry(found, expiry);
    }
    if !made {
        turn.items.read(turn.tenant, key, turn.moment);
    }
    Ok(before)
}

/// Makes an item that was not there.
fn make(
    key: &[u8],
    value: &[u8],
    expiry: Expiry,
    cas: Option<u64>,
    turn: &mut Turn<'_>,
) -> Result<ItemNo, &'static [u8]> {
    let placed = Placed { flags: 0, expiry, cas };
    let content = Content::Bytes(value);
    turn.items.store(turn.tenant, key, content, placed, turn.moment).map_err(|_| NO_ROOM)
}

/// The flags of a reply, in the order in which they were asked for, and the end of its line.
fn reply(key: &[u8], at: ItemNo, before: Before, flags: &Flags<'_>, turn: &mut Turn<'_>) {
    let (items, moment) = (&*turn.items, turn.moment);
    turn.out.with(|text| reply_text(key, at, before, (flags, moment), items, text));
}

fn reply_text(
    key: &[u8],
    at: ItemNo,
    before: Before,
    (flags, moment): (&Flags<'_>, Moment),
    items: &Items,
    text: &mut Vec<u8>,
) {
    let idle_s = (moment.now_ms / 1000).saturating_sub(u64::from(before.item.used_s));
    for word in &flags.0 {
        let value = match word[0] {
            b'c' => Some(items.item(at).cas),
            b'f' => Some(items.item(at).flags.into()),
            b'h' => Some(before.item.fetched.into()),
            b'l' => Some(idle_s),
            b's' => Some(items.value_len(at) as u64),
            b't' => items.expiry(at).left_ms(moment).map(|left| left.div_ceil(1000)),
            _ => {
                echo(word, key, flags.has(b'b'), text);
                continue;
            }
        };
        text.extend_from_slice(&[b' ', word[0]]);
        match value {
            Some(value) => text.extend_from_slice(Decimal::new(value).text()),
            None => text.extend_from_slice(b"-1"),
        }
    }
    let marks = [(before.won, b" W"), (before.item.stale, b" X"), (before.sent, b" Z")];
    marks.iter().filter(|(on, _)| *on).for_each(|(_, mark)| text.extend_from_slice(*mark));
    text.extend_from_slice(b"\r\n");
}

/// What a reply repeats of the request: the opaque token, the key.
fn echo(word: &[u8], key: &[u8], binary: bool, text: &mut Vec<u8>) {
    match (word[0], binary) {
        (b'O', _) => {
            text.push(b' ');
            text.extend_from_slice(word);
        }
        (b'k', false) => {
            text.extend_from_slice(b" k");
            text.extend_from_slice(key);
        }
        (b'k', true) => {
            text.extend_from_slice(b" k");
            base64::encode(key, text);
            text.extend_from_slice(b" b");
        }
        _ => {}
    }
}

/// A reply without an item: what is repeated only.
fn bare_reply(code: &[u8], key: &[u8], flags: &Flags<'_>, turn: &mut Turn<'_>) {
    turn.out.with(|text| {
        text.extend_from_slice(code);
        flags.0.iter().for_each(|word| echo(word, key, flags.has(b'b'), text));
        text.extend_from_slice(b"\r\n");
    });
}

/// The length on an `ms` line, and its key and flags.
fn parse_store(line: &[u8]) -> Result<(&[u8], usize, Flags<'_>), Wrong> {
    let mut words = words(line).skip(1);
    let key = words.next().ok_or((ERROR, None))?;
    let len = words.next().and_then(unsigned).and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len <= u32::MAX as usize).ok_or((BAD_CHUNK, None))?;
    let flags = Flags::parse(words, b"bcfksOqCEFITMN").map_err(|text| (text, Some(len)))?;
    Ok((key, len, flags))
}

/// What an `ms` line announces. A key in base64 is judged when the value is here.
pub fn announce(line: &[u8]) -> Result<Announced<'_>, Wrong> {
    let (key, len, flags) = parse_store(line)?;
    flags.key(key).map_err(|text| (text, Some(len)))?;
    Ok(Announced { key, len, quiet: false })
}

/// The key whose value an `ms` line's value is joined with.
pub fn joins(line: &[u8]) -> Option<Key> {
    let (text, _, flags) = parse_store(line).ok()?;
    let joins = matches!(mode(&flags), Ok(Mode::Append | Mode::Prepend));
    if joins { flags.key(text).ok() } else { None }
}

/// Stores the value of an `ms` line.
pub fn store(line: &[u8], content: Content<'_>, turn: &mut Turn<'_>) {
    if let Err(text) = try_store(line, content, turn) {
        turn.say(text);
    }
}

fn try_store(line: &[u8], content: Content<'_>, turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, _, flags) = parse_store(line).map_err(|(text, _)| text)?;
    let key = flags.key(text)?;
    let given = flags.number(b'F')?.unwrap_or_default();
    let change = Change {
        key: &key,
        mode: mode(&flags)?,
        flags: u32::try_from(given).map_err(|_| BAD_TOKEN)?,
        expiry: flags.expiry(b'T', turn)?.unwrap_or(Expiry::NEVER),
        compare: flags.number(b'C')?,
        cas: flags.number(b'E')?,
        invalidate: flags.has(b'I'),
        vivify: flags.expiry(b'N', turn)?,
    };
    let outcome = change::store(&change, content, turn);
    if let Outcome::Stored(at) = outcome {
        if !flags.has(b'q') {
            turn.say(b"HD");
            let before =
                Before { item: Item { stale: false, ..*turn.items.item(at) }, ..Before::default() };
            reply(&key, at, before, &flags, turn);
        }
        return Ok(());
    }
    bare_reply(code(outcome)?, &key, &flags, turn);
    Ok(())
}

fn mode(flags: &Flags<'_>) -> Result<Mode, &'static [u8]> {
    Ok(match flags.token(b'M') {
        None | Some(b"S" | b"s" | b"set") => Mode::Set,
        Some(b"E" | b"e" | b"add") => Mode::Add,
        Some(b"R" | b"r" | b"replace") => Mode::Replace,
        Some(b"A" | b"a" | b"append") => Mode::Append,
        Some(b"P" | b"p" | b"prepend") => Mode::Prepend,
        _ => return Err(BAD_MODE),
    })
}

/// The code of a reply, or the text of an error.
fn code(outcome: Outcome) -> Result<&'static [u8], &'static [u8]> {
    match outcome {
        Outcome::Stored(_) => Ok(b"HD"),
        Outcome::NotStored => Ok(b"NS"),
        Outcome::Exists => Ok(b"EX"),
        Outcome::NotFound => Ok(b"NF"),
        Outcome::TooLarge => Err(TOO_LARGE),
        Outcome::NoRoom => Err(NO_ROOM),
    }
}

fn delete(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line, b"bkOqCEITx")?;
    let key = flags.key(text)?;
    let (compare, cas) = (flags.number(b'C')?, flags.number(b'E')?);
    let expiry = flags.expiry(b'T', turn)?;
    let code: &[u8] = match turn.items.find(turn.tenant, &key, turn.moment) {
        None => b"NF",
        Some(found) if compare.is_some_and(|cas| cas != turn.items.item(found).cas) => b"EX",
        Some(found) if flags.has(b'I') || flags.has(b'x') => {
            mark(&key, found, &flags, (cas, expiry), turn)?;
            b"HD"
        }
        Some(found) => {
            turn.items.remove(found);
            b"HD"
        }
    };
    if !(flags.has(b'q') && matches!(code, b"HD" | b"NF")) {
        bare_reply(code, &key, &flags, turn);
    }
    Ok(())
}

/// The item stays, without its value or marked stale.
fn mark(
    key: &[u8],
    found: ItemNo,
    flags: &Flags<'_>,
    (cas, expiry): (Option<u64>, Option<Expiry>),
    turn: &mut Turn<'_>,
) -> Result<(), &'static [u8]> {
    let mut at = found;
    if flags.has(b'x') {
        at = make(key, b"", turn.items.expiry(found), cas, turn)?;
    }
    let cas = cas.unwrap_or_else(|| turn.items.next_cas());
    turn.items.item_mut(at).cas = cas;
    if flags.has(b'I') {
        let item = turn.items.item_mut(at);
        (item.stale, item.win_sent) = (true, false);
    }
    if let Some(expiry) = expiry {
        turn.items.set_expiry(at, expiry);
    }
    Ok(())
}

fn arithmetic(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line, b"bckOqstvCDEJMNTf")?;
    let key = flags.key(text)?;
    let (compare, cas) = (flags.number(b'C')?, flags.number(b'E')?);
    let step = Step { delta: flags.number(b'D')?.unwrap_or(1), down: is_down(&flags)?, cas };
    let initial = flags.number(b'J')?.unwrap_or_default();
    let (vivify, expiry) = (flags.expiry(b'N', turn)?, flags.expiry(b'T', turn)?);
    let counted = match (turn.items.find(turn.tenant, &key, turn.moment), vivify) {
        (None, None) => Err(Outcome::NotFound),
        (None, Some(expiry)) => {
            let digits = Decimal::new(initial);
            Ok((initial, make(&key, digits.text(), expiry, cas, turn)?))
        }
        (Some(found), _) if compare.is_some_and(|cas| cas != turn.items.item(found).cas) => {
            Err(Outcome::Exists)
        }
        (Some(found), _) => change::count(found, step, &key, turn).ok_or(NO_NUMBER)?,
    };
    let (value, at) = match counted {
        Ok(counted) => counted,
        Err(outcome) => {
            if !(flags.has(b'q') && outcome == Outcome::NotFound) {
                bare_reply(code(outcome)?, &key, &flags, turn);
            }
            return Ok(());
        }
    };
    expiry.into_iter().for_each(|expiry| turn.items.set_expiry(at, expiry));
    counted_reply(&key, value, at, &flags, turn);
    Ok(())
}

fn counted_reply(key: &[u8], value: u64, at: ItemNo, flags: &Flags<'_>, turn: &mut Turn<'_>) {
    let digits = Decimal::new(value);
    let before = Before { item: *turn.items.item(at), ..Before::default() };
    if flags.has(b'v') {
        turn.say(b"VA ");
        turn.out.number(digits.text().len() as u64);
        reply(key, at, before, flags, turn);
        turn.say(digits.text());
        turn.say(b"\r\n");
    } else if !flags.has(b'q') {
        turn.say(b"HD");
        reply(key, at, before, flags, turn);
    }
}

fn is_down(flags: &Flags<'_>) -> Result<bool, &'static [u8]> {
    match flags.token(b'M') {
        None | Some(b"I" | b"i" | b"+" | b"incr") => Ok(false),
        Some(b"D" | b"d" | b"-" | b"decr") => Ok(true),
        _ => Err(BAD_MODE),
    }
}

/// What is known of an item, for people.
fn debug(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line, b"b")?;
    let key = flags.key(text)?;
    let Some(at) = turn.items.find(turn.tenant, &key, turn.moment) else {
        turn.say(b"EN\r\n");
        return Ok(());
    };
    let (items, moment) = (&*turn.items, turn.moment);
    let item = items.item(at);
    let ends = items.expiry(at).left_ms(moment).map_or(-1, |left| left.div_ceil(1000) as i64);
    let idle = (moment.now_ms / 1000).saturating_sub(item.used_s.into());
    let (cas, fetched) = (item.cas, if item.fetched { "yes" } else { "no" });
    turn.out.text(b"ME ");
    turn.out.text(text);
    let rest = format!(
        " exp={ends} la={idle} cas={cas} fetch={fetched} cls=1 size={}\r\n",
        items.cost(at)
    );
    turn.out.text(rest.as_bytes());
    Ok(())
}
