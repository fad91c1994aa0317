//! One command at work: what it works on, and what it may do.

use crate::away::Wish;
use crate::carry::{Carry, Charge, Dialect, Join, Target};
use crate::ids::{ItemNo, TenantNo};
use crate::items::{Content, Items, NoRoom};
use crate::limits::BESIDE_BYTES_MAX;
use crate::moment::Moment;
use crate::out::{Out, Seat};
use crate::rope::Rope;
use crate::value::Draft;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// The outcome of a step of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took so many bytes.
    Used(usize),
    /// Needs more than there is.
    Wants,
    /// Took nothing: to be done when the output, in which something is to come, is written.
    Blocked,
    /// The connection is at its end.
    End,
}

/// The action of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Reads,
    /// Changes something, and answers shortly.
    Changes,
    /// Changes something, and may answer with a value.
    ChangesAndGives,
}

/// The things that a command works on.
pub(crate) struct Turn<'a> {
    pub items: &'a mut Items,
    pub tenant: TenantNo,
    pub moment: Moment,
    pub out: &'a mut Out,
    pub seat: Seat,
    /// Answers are made whole, however much waits.
    pub whole: bool,
    /// Bytes of commands of the connection's that other nodes execute.
    pub carried: &'a Rc<Cell<usize>>,
}

impl Turn<'_> {
    /// Adds text to the output.
    pub fn say(&mut self, text: &[u8]) {
        self.out.text(text);
    }

    /// Adds a reply with a value, or the bytes of it that are in the range: what `head` writes, the bytes, `tail`. When
    /// the value is away all of this comes later, or `miss` if it is lost.
    pub fn give(
        &mut self,
        at: ItemNo,
        range: Range<usize>,
        (head, tail, miss): (impl FnOnce(&Items, &mut Vec<u8>), &'static [u8], &[u8]),
    ) {
        let (items, out) = (&mut *self.items, &mut *self.out);
        if items.is_away(at) {
            let (mut text, later) = (Vec::new(), items.later(self.seat));
            head(items, &mut text);
            let wish = Wish { later, head: text, tail, miss: miss.to_vec(), range };
            return items.fetch(at, wish, false, out);
        }
        out.with(|text| head(items, text));
        match range.len() == items.value_len(at) {
            true => items.send_value(at, out),
            false => items.send_part(at, range, out),
        }
        out.text(tail);
    }

    /// The slot of a key that another node keeps. A command that was carried here is executed here.
    pub fn elsewhere(&self, key: &[u8]) -> Option<usize> {
        match self.seat {
            Seat::Connection(_) => self.items.slot_elsewhere(key, self.moment),
            Seat::Carried(_) => None,
        }
    }

    /// Whether a command concerns all nodes of the key space.
    pub fn is_for_all(&self) -> bool {
        matches!(self.seat, Seat::Connection(_)) && self.items.owners().is_some()
    }

    /// Whether the next command has to wait for those before it, which other nodes execute: one that changes something
    /// there for all of them, any other for changes.
    pub fn has_to_wait(&self, changes: bool) -> bool {
        if changes { self.out.has_laters() } else { self.out.waits_for_change() }
    }

    /// Whether the rest of a command's answer has to wait. A command that was carried here is answered as a whole.
    pub fn is_full(&self) -> bool {
        matches!(self.seat, Seat::Connection(_)) && self.out.is_full() && !self.whole
    }

    /// Has other nodes execute commands.
    pub fn carry(
        &mut self,
        dialect: Dialect,
        parts: Vec<(Target, Rope)>,
        told: (Join, Effect, &[u8]),
    ) {
        self.carry_together(dialect, parts, told, Vec::new());
    }

    /// As [`carry`](Turn::carry), as long as all these slots have the same owner as the command's.
    pub fn carry_together(
        &mut self,
        dialect: Dialect,
        parts: Vec<(Target, Rope)>,
        (join, effect, miss): (Join, Effect, &[u8]),
        slots: Vec<usize>,
    ) {
        let (later, tenant) = (self.items.later(self.seat), self.tenant);
        let (changes, long) = (effect != Effect::Reads, effect == Effect::ChangesAndGives);
        let (miss, _held) = (miss.to_vec(), Charge::of(&parts, self.carried));
        let carry =
            Carry { tenant, dialect, parts, slots, changes, long, join, miss, later, _held };
        self.items.carry(carry, self.out);
    }

    /// A stored value, to be carried: a long one in frames of the items', so that values under way are bounded as they
    /// are.
    pub fn rope_of(&mut self, content: Content<'_>) -> Result<Rope, NoRoom> {
        match content {
            Content::Bytes(bytes) if bytes.len() <= BESIDE_BYTES_MAX => Ok(Rope::of_text(bytes)),
            Content::Bytes(bytes) => self.items.draft_of(self.tenant, bytes).map(Draft::into_rope),
            Content::Draft(draft) => Ok(draft.into_rope()),
        }
    }

    /// The item of a key whose value is away.
    pub fn away(&mut self, key: &[u8]) -> Option<ItemNo> {
        let found = self.items.find(self.tenant, key, self.moment);
        found.filter(|at| self.items.is_away(*at))
    }

    /// Whether a command can work on the key's value. If not, it has been asked for.
    pub fn has_value(&mut self, key: &[u8]) -> bool {
        let Some(at) = self.away(key) else { return true };
        self.items.bring(at, self.seat, self.out);
        false
    }
}
