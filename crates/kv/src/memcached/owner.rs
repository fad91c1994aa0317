//! Commands about keys that other nodes keep: the lines are carried there as they are.

use super::{NO_ROOM, base64, words};
use crate::carry::{Dialect, Join, Target};
use crate::items::Content;
use crate::limits::MEMCACHED_KEY_BYTES_MAX;
use crate::rope::Rope;
use crate::turn::{Effect, Step, Turn};

const END: &[u8] = b"\r\n";

/// Whether a command that is one line has one key, or concerns all keys.
pub fn takes(verb: &[u8], line: &[u8]) -> bool {
    match verb {
        b"mg" | b"md" | b"ma" | b"me" | b"delete" | b"incr" | b"decr" | b"touch" => {
            words(line).nth(1).is_some()
        }
        b"flush_all" => true,
        _ => false,
    }
}

/// The slot of a line's key, when another node keeps it.
pub fn slot_of_line(line: &[u8], turn: &Turn<'_>) -> Option<usize> {
    if !turn.is_for_all() {
        return None;
    }
    let mut words = words(line);
    let (verb, key) = (words.next()?, words.next()?);
    let meta = matches!(verb, b"mg" | b"md" | b"ma" | b"me" | b"ms");
    let length = usize::from(verb == b"ms");
    if meta && words.skip(length).any(|flag| flag == b"b") {
        return turn.elsewhere(&base64::decode(key)?);
    }
    // what is no key is refused here
    Some(key).filter(|key| key.len() <= MEMCACHED_KEY_BYTES_MAX).and_then(|key| turn.elsewhere(key))
}

/// A command that is one line.
pub fn line(verb: &[u8], line: &[u8], used: usize, turn: &mut Turn<'_>) -> Step {
    let target = match verb {
        b"flush_all" => Some(Target::All),
        _ => slot_of_line(line, turn).map(Target::Slot),
    };
    let Some(target) = target else {
        match verb[0] == b'm' {
            true => super::meta::command(verb, line, turn),
            false => super::text::command(verb, words(line).skip(1), turn),
        }
        return Step::Used(used);
    };
    let effect = effect(verb, line);
    if turn.has_to_wait(effect != Effect::Reads) {
        return Step::Blocked;
    }
    let join = if target == Target::All { Join::Same } else { Join::One };
    let parts = vec![(target, Rope::of_text([line, END].concat()))];
    let miss = if verb == b"mg" { super::meta::miss(line) } else { b"EN\r\n".to_vec() };
    turn.carry(Dialect::MEMCACHED, parts, (join, effect, &miss));
    Step::Used(used)
}

/// `mg` makes items and changes their expiry by some of its flags.
fn effect(verb: &[u8], line: &[u8]) -> Effect {
    let changes = |flag: &[u8]| matches!(flag[0], b'N' | b'T' | b'R');
    match verb {
        b"me" => Effect::Reads,
        b"mg" if words(line).skip(2).any(changes) => Effect::ChangesAndGives,
        b"mg" => Effect::Reads,
        _ => Effect::Changes,
    }
}

/// Has the owner of a slot remove a key; `text` is answered when that is done.
pub fn forget(key: &[u8], slot: usize, text: &'static [u8], turn: &mut Turn<'_>) {
    let mut line = b"md ".to_vec();
    base64::encode(key, &mut line);
    line.extend_from_slice(b" b\r\n");
    let parts = vec![(Target::Slot(slot), Rope::of_text(line))];
    turn.carry(Dialect::MEMCACHED, parts, (Join::Instead(text), Effect::Changes, b""));
}

/// Has the owner of a slot store a value.
pub fn store(line: &[u8], content: Content<'_>, slot: usize, turn: &mut Turn<'_>) {
    let Ok(value) = turn.rope_of(content) else { return turn.say(NO_ROOM) };
    let mut text = Rope::of_text([line, END].concat());
    text.join(value);
    text.text(END);
    let parts = vec![(Target::Slot(slot), text)];
    turn.carry(Dialect::MEMCACHED, parts, (Join::One, Effect::Changes, b""));
}
