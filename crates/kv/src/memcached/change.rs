//! Changes of an item, as the classic and the meta commands ask for them.

use crate::items::{Content, ItemNo, Placed};
use crate::moment::Expiry;
use crate::number::{Decimal, counted};
use crate::turn::Turn;

/// Longest value that may be a number: with spaces in front and behind.
const NUMBER_BYTES_MAX: usize = 128;

/// When a value is stored, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

/// A value that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub key: &'a [u8],
    pub mode: Mode,
    pub flags: u32,
    pub expiry: Expiry,
    /// Only over a value with this CAS unique.
    pub compare: Option<u64>,
    /// The new CAS unique.
    pub cas: Option<u64>,
    /// A value with an older CAS unique is stored and marked stale; it ends when what was there would have, and who
    /// was told to make a new one still is.
    pub invalidate: bool,
    /// An append to nothing makes an item with this expiry.
    pub vivify: Option<Expiry>,
}

/// Outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stored(ItemNo),
    NotStored,
    Exists,
    NotFound,
    TooLarge,
    NoRoom,
}

/// Stores a value as asked.
pub fn store(change: &Change<'_>, content: Content<'_>, turn: &mut Turn<'_>) -> Outcome {
    let found = turn.items.find(turn.tenant, change.key, turn.moment);
    // what is only added is not compared
    let compare = change.compare.filter(|_| change.mode != Mode::Add);
    let mut stale = None;
    match (compare, found) {
        (Some(_), None) if change.mode == Mode::Set => return Outcome::NotFound,
        (Some(cas), Some(found)) if cas != turn.items.item(found).cas => {
            let before = (turn.items.item(found), turn.items.expiry(found));
            let older = change.mode == Mode::Set && (1..before.0.cas).contains(&cas);
            if !change.invalidate || !older {
                return Outcome::Exists;
            }
            stale = Some((before.0.win_sent, before.1));
        }
        _ => {}
    }
    let expiry = stale.map_or(change.expiry, |(_, expiry)| expiry);
    let placed = Placed { flags: change.flags, expiry, cas: change.cas };
    let outcome = match (change.mode, found, change.vivify) {
        (Mode::Add, Some(found), _) => {
            turn.items.use_item(found, turn.moment);
            Outcome::NotStored
        }
        (Mode::Replace, None, _) => Outcome::NotStored,
        (Mode::Append | Mode::Prepend, Some(found), _) => join(change, found, content, turn),
        (Mode::Append | Mode::Prepend, None, None) => Outcome::NotStored,
        (Mode::Append | Mode::Prepend, None, Some(expiry)) => {
            put(change.key, content, Placed { expiry, ..placed }, turn)
        }
        _ => put(change.key, content, placed, turn),
    };
    if let (Outcome::Stored(at), Some((win_sent, _))) = (outcome, stale) {
        let item = turn.items.item_mut(at);
        (item.stale, item.win_sent) = (true, win_sent);
    }
    outcome
}

fn put(key: &[u8], content: Content<'_>, placed: Placed, turn: &mut Turn<'_>) -> Outcome {
    match turn.items.store(turn.tenant, key, content, placed, turn.moment) {
        Ok(at) => Outcome::Stored(at),
        Err(_) => Outcome::NoRoom,
    }
}

/// Appends or prepends; flags and expiry stay.
fn join(change: &Change<'_>, at: ItemNo, more: Content<'_>, turn: &mut Turn<'_>) -> Outcome {
    let items = &mut *turn.items;
    if !items.takes(items.value_len(at) + more.len()) {
        return Outcome::TooLarge;
    }
    let (flags, expiry) = (items.item(at).flags, items.expiry(at));
    let placed = Placed { flags, expiry, cas: change.cas };
    match items.joined(at, &more, change.mode == Mode::Prepend, turn.tenant) {
        Ok(draft) => put(change.key, Content::Draft(draft), placed, turn),
        Err(_) => Outcome::NoRoom,
    }
}

/// A number that is to be changed.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub delta: u64,
    /// Down, to no less than 0; up it begins at 0 again behind 2^64 - 1.
    pub down: bool,
    pub cas: Option<u64>,
}

/// Changes the number that an item's value is; the new one, or `None` when it is no number.
pub fn count(
    at: ItemNo,
    step: Step,
    key: &[u8],
    turn: &mut Turn<'_>,
) -> Option<Result<(u64, ItemNo), Outcome>> {
    let items = &mut *turn.items;
    if items.value_len(at) > NUMBER_BYTES_MAX {
        return None;
    }
    let text: arrayvec::ArrayVec<u8, NUMBER_BYTES_MAX> =
        items.value(at).flatten().copied().collect();
    let before = counted(&text)?;
    let after = match step.down {
        true => before.saturating_sub(step.delta),
        false => before.wrapping_add(step.delta),
    };
    let (flags, expiry) = (items.item(at).flags, items.expiry(at));
    let placed = Placed { flags, expiry, cas: step.cas };
    let outcome = put(key, Content::Bytes(Decimal::new(after).text()), placed, turn);
    Some(match outcome {
        Outcome::Stored(at) => Ok((after, at)),
        other => Err(other),
    })
}
