//! The meta commands (doc/protocol.txt of memcached 1.6, "Meta Commands").

use super::base64::{self, Key};
use super::change::{self, Change, Mode, Outcome, Step};
use super::{Announced, BAD_CHUNK, BAD_LINE, ERROR, NO_ROOM, TOO_LARGE, is_key, words};
use crate::items::{Content, Item, ItemNo, Items, Placed};
use crate::limits::OPAQUE_BYTES_MAX;
use crate::moment::{Expiry, Moment};
use crate::number::{Decimal, counted, signed, unsigned};
use crate::turn::Turn;
use std::borrow::Cow;

const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
const DOUBLE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// Error of `md` and `ma` for any fault of a flag.
const BAD_FLAGS: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
const BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
const BAD_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
const BAD_COUNT_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
const BAD_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
const BAD_CODE: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Words of flags on one line: each letter can be there once.
const FLAGS_MAX: usize = 52;
/// Flags that each command accepts, meaningful or not (`x` is of later versions, as `E` is).
const KNOWN: &[u8] = b"bcfhklqstuvxCDEFIJLMNOPRT";
/// Flags that each answers.
const GETS: &[u8] = b"cfhklstO";
const STORES: &[u8] = b"cksO";
const COUNTS: &[u8] = b"cktO";

/// The error, and the length of the value that follows if that is known.
type Wrong = (&'static [u8], Option<usize>);

/// The words behind the key (and the length).
struct Flags<'a>(arrayvec::ArrayVec<&'a [u8], FLAGS_MAX>);

/// Values of the flags with numbers.
#[derive(Clone, Copy, Default)]
struct Numbers {
    compare: Option<u64>,
    cas: Option<u64>,
    delta: Option<u64>,
    initial: Option<u64>,
    flags: Option<u64>,
    expiry_s: Option<i64>,
    vivify_s: Option<i64>,
    recache_s: Option<i64>,
}

impl Numbers {
    fn expiry(&self, turn: &Turn<'_>) -> Option<Expiry> {
        self.expiry_s.map(|seconds| Expiry::of_memcached(seconds, turn.moment))
    }

    fn vivify(&self, turn: &Turn<'_>) -> Option<Expiry> {
        self.vivify_s.map(|seconds| Expiry::of_memcached(seconds, turn.moment))
    }
}

impl<'a> Flags<'a> {
    fn parse(words: impl Iterator<Item = &'a [u8]>) -> Result<Flags<'a>, &'static [u8]> {
        let (mut flags, mut seen) = (arrayvec::ArrayVec::new(), 0u128);
        for word in words {
            let bit = 1u128 << (word[0] & 127);
            if !KNOWN.contains(&word[0]) {
                return Err(BAD_FLAG);
            }
            if seen & bit != 0 {
                return Err(DOUBLE_FLAG);
            }
            if word[0] == b'O' && word.len() > OPAQUE_BYTES_MAX {
                return Err(BAD_OPAQUE);
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

    /// The numbers; any fault is refused, even if it would not have mattered.
    fn asked(&self) -> Result<Numbers, &'static [u8]> {
        let number = |flag, of: fn(&[u8]) -> Option<u64>| {
            self.token(flag).map(|token| of(token).ok_or(BAD_TOKEN)).transpose()
        };
        if self.token(b'M').is_some_and(|token| token.len() != 1) {
            return Err(BAD_MODE_LENGTH);
        }
        let seconds =
            |flag| self.token(flag).map(|token| signed(token).ok_or(BAD_TOKEN)).transpose();
        Ok(Numbers {
            compare: number(b'C', unsigned)?,
            cas: number(b'E', unsigned)?,
            delta: number(b'D', counted)?,
            initial: number(b'J', unsigned)?,
            flags: number(b'F', unsigned).map_err(|_| BAD_LINE)?,
            expiry_s: seconds(b'T')?,
            vivify_s: seconds(b'N')?,
            recache_s: seconds(b'R')?,
        })
    }

    /// The key as it is stored.
    fn key<'k>(&self, text: &'k [u8]) -> Result<Cow<'k, [u8]>, &'static [u8]> {
        let key = match self.has(b'b') {
            true => Cow::Owned(base64::decode(text).ok_or(BAD_CODE)?.to_vec()),
            false => Cow::Borrowed(text),
        };
        if is_key(&key) { Ok(key) } else { Err(BAD_LINE) }
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
fn parse(line: &[u8]) -> Result<(&[u8], Flags<'_>), &'static [u8]> {
    let mut words = words(line).skip(1);
    let key = words.next().ok_or(ERROR)?;
    Ok((key, Flags::parse(words)?))
}

/// The item before the command.
#[derive(Clone, Copy, Default)]
struct Before {
    item: Item,
    /// This client is the one that makes a new value.
    won: bool,
    /// Another was told so.
    sent: bool,
}

fn get(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line)?;
    let (key, asked) = (flags.key(text)?, flags.asked()?);
    let (found, made) = match (turn.items.find(turn.tenant, &key, turn.moment), asked.vivify(turn))
    {
        (Some(found), _) => (found, false),
        (None, vivify) => {
            turn.items.read(turn.tenant, &key, turn.moment); // a miss that counts
            let Some(expiry) = vivify else {
                miss_of(&key, &flags).into_iter().for_each(|text| turn.say(&text));
                return Ok(());
            };
            (make(&key, b"", expiry, asked.cas, turn)?, true)
        }
    };
    let before = read(&key, found, made, &asked, turn);
    if !flags.has(b'v') {
        turn.say(b"HD");
        reply(&key, (found, before), (&flags, GETS), turn);
        return Ok(());
    }
    let moment = turn.moment;
    let head = |items: &Items, text: &mut Vec<u8>| {
        text.extend_from_slice(b"VA ");
        text.extend_from_slice(Decimal::new(items.value_len(found) as u64).text());
        reply_text(&key, (found, before), (&flags, GETS), (items, moment), text);
    };
    let miss = if turn.items.is_away(found) { miss_of(&key, &flags) } else { None };
    let miss = miss.unwrap_or_default();
    turn.give(found, 0..turn.items.value_len(found), (head, b"\r\n", &miss));
    Ok(())
}

/// Answer to a miss of a line that gets.
pub fn miss(line: &[u8]) -> Vec<u8> {
    let parsed = parse(line).and_then(|(text, flags)| Ok(miss_of(&flags.key(text)?, &flags)));
    parsed.unwrap_or(None).unwrap_or_default()
}

fn miss_of(key: &[u8], flags: &Flags<'_>) -> Option<Vec<u8>> {
    (!flags.has(b'q')).then(|| bare_text(b"EN", key, flags))
}

/// Notes a read, and decides who makes a new value.
fn read(key: &[u8], found: ItemNo, made: bool, asked: &Numbers, turn: &mut Turn<'_>) -> Before {
    let item = *turn.items.item(found);
    let left = turn.items.expiry(found).left_ms(turn.moment);
    let recache = asked.recache_s.and_then(|span| u64::try_from(span).ok()).zip(left);
    let recache = recache.is_some_and(|(span, left)| left < span.saturating_mul(1000));
    let wanted = made || item.stale || recache;
    let before = Before { item, won: wanted && !item.win_sent, sent: item.win_sent };
    if before.won {
        turn.items.item_mut(found).win_sent = true;
    }
    match made {
        true => turn.items.use_item(found, turn.moment),
        false => _ = turn.items.read(turn.tenant, key, turn.moment),
    }
    // Behind the read, which would remove an item whose time has passed.
    if let Some(expiry) = asked.expiry(turn) {
        turn.items.set_expiry(found, expiry);
    }
    before
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

/// An item, and what it was.
type At = (ItemNo, Before);

/// The flags of a reply, in the order in which they were asked for, and the end of its line.
fn reply(key: &[u8], at: At, flags: (&Flags<'_>, &[u8]), turn: &mut Turn<'_>) {
    let (items, moment) = (&*turn.items, turn.moment);
    turn.out.with(|text| reply_text(key, at, flags, (items, moment), text));
}

fn reply_text(
    key: &[u8],
    (at, before): At,
    (flags, answers): (&Flags<'_>, &[u8]),
    (items, moment): (&Items, Moment),
    text: &mut Vec<u8>,
) {
    let idle_s = (moment.now_ms / 1000).saturating_sub(u64::from(before.item.used_s));
    for word in flags.0.iter().filter(|word| answers.contains(&word[0])) {
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
    let marks = [(before.sent, b" Z"), (before.item.stale, b" X"), (before.won, b" W")];
    marks.iter().filter(|(on, _)| *on).for_each(|(_, mark)| text.extend_from_slice(*mark));
    text.extend_from_slice(b"\r\n");
}

/// Repeats parts of the request in a reply: the opaque token, the key.
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
    turn.say(&bare_text(code, key, flags));
}

fn bare_text(code: &[u8], key: &[u8], flags: &Flags<'_>) -> Vec<u8> {
    let mut text = code.to_vec();
    flags.0.iter().for_each(|word| echo(word, key, flags.has(b'b'), &mut text));
    text.extend_from_slice(b"\r\n");
    text
}

/// The length on an `ms` line, and its key and flags.
fn parse_store(line: &[u8]) -> Result<(&[u8], usize, Flags<'_>), Wrong> {
    let mut words = words(line).skip(1);
    let key = words.next().ok_or((ERROR, None))?;
    let len = words.next().and_then(unsigned).ok_or((BAD_LINE, None))?;
    let len = usize::try_from(len).ok().filter(|len| *len <= u32::MAX as usize);
    let len = len.ok_or((BAD_CHUNK, None))?;
    let flags = Flags::parse(words).map_err(|text| (text, Some(len)))?;
    Ok((key, len, flags))
}

/// The value that an `ms` line announces.
pub fn announce(line: &[u8]) -> Result<Announced<'_>, Wrong> {
    let (text, len, flags) = parse_store(line)?;
    let judge = || {
        let _ = (flags.asked()?, mode(&flags)?);
        flags.key(text)
    };
    let key = judge().map_err(|text| (text, Some(len)))?;
    Ok(Announced { key, len, quiet: false, replaces: true })
}

/// The key whose value an `ms` line's value is joined with.
pub fn joins(line: &[u8]) -> Option<Key> {
    let (text, _, flags) = parse_store(line).ok()?;
    let joins = matches!(mode(&flags), Ok(Mode::Append | Mode::Prepend));
    if joins { Key::try_from(&*flags.key(text).ok()?).ok() } else { None }
}

/// Stores the value of an `ms` line.
pub fn store(line: &[u8], content: Content<'_>, turn: &mut Turn<'_>) {
    if let Err(text) = try_store(line, content, turn) {
        turn.say(text);
    }
}

fn try_store(line: &[u8], content: Content<'_>, turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, _, flags) = parse_store(line).map_err(|(text, _)| text)?;
    let (key, asked) = (flags.key(text)?, flags.asked()?);
    let change = Change {
        key: &key,
        mode: mode(&flags)?,
        flags: u32::try_from(asked.flags.unwrap_or_default()).map_err(|_| BAD_TOKEN)?,
        expiry: asked.expiry(turn).unwrap_or(Expiry::NEVER),
        compare: asked.compare,
        cas: asked.cas,
        invalidate: flags.has(b'I'),
        vivify: asked.vivify(turn),
    };
    let outcome = change::store(&change, content, turn);
    if let Outcome::Stored(found) = outcome {
        if !flags.has(b'q') {
            turn.say(b"HD");
            reply(&key, (found, Before::default()), (&flags, STORES), turn);
        }
        return Ok(());
    }
    bare_reply(code(outcome)?, &key, &flags, turn);
    Ok(())
}

fn mode(flags: &Flags<'_>) -> Result<Mode, &'static [u8]> {
    Ok(match flags.token(b'M') {
        None | Some(b"S" | b"s") => Mode::Set,
        Some(b"E" | b"e") => Mode::Add,
        Some(b"R" | b"r") => Mode::Replace,
        Some(b"A" | b"a") => Mode::Append,
        Some(b"P" | b"p") => Mode::Prepend,
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

/// The key, flags and what they say of a line such as `md`, in which all that is wrong has one name.
fn parse_change(line: &[u8]) -> Result<(Cow<'_, [u8]>, Flags<'_>, Numbers), &'static [u8]> {
    let one = |text: &'static [u8]| match text {
        ERROR | BAD_LINE => text,
        _ => BAD_FLAGS,
    };
    let (text, flags) = parse(line).map_err(one)?;
    let (key, asked) = (flags.key(text).map_err(one)?, flags.asked().map_err(|_| BAD_FLAGS)?);
    Ok((key, flags, asked))
}

fn delete(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (key, flags, asked) = parse_change(line)?;
    let expiry = asked.expiry(turn);
    let code: &[u8] = match turn.items.find(turn.tenant, &key, turn.moment) {
        None => b"NF",
        Some(found) if asked.compare.is_some_and(|cas| cas != turn.items.item(found).cas) => b"EX",
        Some(found) if flags.has(b'I') || flags.has(b'x') => {
            mark(&key, found, &flags, (asked.cas, expiry), turn)?;
            b"HD"
        }
        Some(found) => {
            turn.items.remove(found);
            b"HD"
        }
    };
    if !(flags.has(b'q') && code == b"HD") {
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
    let (key, flags, asked) = parse_change(line)?;
    let (down, cas) = (is_down(&flags)?, asked.cas);
    let step = Step { delta: asked.delta.unwrap_or(1), down, cas };
    // memcached compares with anything but 0 here
    let compare = asked.compare.filter(|cas| *cas != 0);
    let mut made = false;
    let counted = match (turn.items.find(turn.tenant, &key, turn.moment), asked.vivify(turn)) {
        (None, None) => Err(Outcome::NotFound),
        (None, Some(expiry)) => {
            made = true;
            let initial = asked.initial.unwrap_or_default();
            Ok((initial, make(&key, Decimal::new(initial).text(), expiry, cas, turn)?))
        }
        (Some(found), _) if compare.is_some_and(|cas| cas != turn.items.item(found).cas) => {
            Err(Outcome::Exists)
        }
        (Some(found), _) => change::count(found, step, &key, turn).ok_or(NO_NUMBER)?,
    };
    let (value, found) = match counted {
        Ok(counted) => counted,
        Err(outcome) => {
            bare_reply(code(outcome)?, &key, &flags, turn);
            return Ok(());
        }
    };
    asked.expiry(turn).into_iter().for_each(|expiry| turn.items.set_expiry(found, expiry));
    // who is the first to count is always told
    if made || !flags.has(b'q') {
        counted_reply(&key, value, found, &flags, turn);
    }
    Ok(())
}

fn counted_reply(key: &[u8], value: u64, found: ItemNo, flags: &Flags<'_>, turn: &mut Turn<'_>) {
    let digits = Decimal::new(value);
    if !flags.has(b'v') {
        turn.say(b"HD");
        return reply(key, (found, Before::default()), (flags, COUNTS), turn);
    }
    turn.say(b"VA ");
    turn.out.number(digits.text().len() as u64);
    reply(key, (found, Before::default()), (flags, COUNTS), turn);
    turn.say(digits.text());
    turn.say(b"\r\n");
}

fn is_down(flags: &Flags<'_>) -> Result<bool, &'static [u8]> {
    match flags.token(b'M') {
        None | Some(b"I" | b"i" | b"+") => Ok(false),
        Some(b"D" | b"d" | b"-") => Ok(true),
        _ => Err(BAD_COUNT_MODE),
    }
}

/// State of an item, for people.
fn debug(line: &[u8], turn: &mut Turn<'_>) -> Result<(), &'static [u8]> {
    let (text, flags) = parse(line).map_err(|_| BAD_LINE)?;
    let key = flags.key(text).map_err(|_| BAD_LINE)?;
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
