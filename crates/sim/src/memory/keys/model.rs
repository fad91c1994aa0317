//! Permitted values of a key, and whether it must have one: a register for each key, whose value may vanish when its
//! owner goes, and never goes back.
//!
//! A read is wrong when it returns a value that was never written, was refused, or was replaced by a change that began
//! after its end and before the read began. It is a loss when it returns nothing although a change was acknowledged,
//! its owner is the same in the same incarnation since, and nothing was dropped.

use crate::queue::Picos;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::{NodeId, mix};

/// Numbers that a counter may take before it is another one's.
pub const SPAN: u64 = 1_000_000;

/// State of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may have been made or not, now or later.
    Open,
    /// It was made before then.
    Made(Picos),
    /// It was not.
    Refused,
}

#[derive(Debug)]
struct Write {
    key: u64,
    bytes: usize,
    state: State,
    /// Of a counter: what its increments were answered.
    counts: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of the changes that have ended well the latest beginning: what had ended before it is replaced.
    floor: Picos,
    /// Since when it must be there, and the number of items that had been dropped then.
    present: Option<(Picos, u64)>,
    /// When it may have vanished last.
    danger: Picos,
    /// Some nodes do not know yet which is its owner: a write may be with an earlier one.
    moves: bool,
    /// Deletions that may be made still.
    deletes: u32,
    /// When one may have been made last.
    deleted: Picos,
    /// Increments begun.
    increments: u64,
    /// The counter that answered last.
    newest: u64,
}

/// A change, or a read, of a key that a client has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Of which key.
    pub key: u64,
    /// The written value: unique in a run. 0 where there is none.
    pub serial: u64,
    /// When.
    pub at: Picos,
    floor: Picos,
    /// The newest count of the newest counter.
    count: (u64, u64),
}

/// How a change has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was made.
    Made,
    /// It was certainly not.
    Refused,
    /// It is not known.
    Unknown,
}

/// The checker.
#[derive(Debug, Default)]
pub struct KeyModel {
    writes: BTreeMap<u64, Write>,
    keys: BTreeMap<u64, Known>,
    serial: u64,
    /// Some nodes do not know yet which owns what.
    moving: bool,
    /// Violations so far.
    pub violations: Vec<String>,
}

/// The bytes of a value: they say which one they are.
pub fn value(key: u64, serial: u64, bytes: usize) -> Vec<u8> {
    let seed = mix(mix(key) ^ serial);
    let mut value = Vec::with_capacity(bytes + 16);
    value.extend_from_slice(&serial.to_be_bytes());
    (0..bytes as u64 / 8).for_each(|at| value.extend_from_slice(&mix(seed ^ at).to_le_bytes()));
    value.truncate(bytes.max(8));
    value
}

impl KeyModel {
    fn violation(&mut self, text: fmt::Arguments<'_>) {
        self.violations.push(text.to_string());
    }

    /// A read begins, or a change that writes nothing of its own.
    pub fn begin(&mut self, key: u64, at: Picos) -> Begun {
        let new = Known { moves: self.moving, ..Known::default() };
        let known = self.keys.entry(key).or_insert(new);
        let newest = known.newest;
        let count = self.writes.get(&newest).and_then(|write| write.counts.last().copied());
        Begun { key, serial: 0, at, floor: known.floor, count: (newest, count.unwrap_or(0)) }
    }

    /// A value is written.
    pub fn begin_set(&mut self, key: u64, bytes: usize, at: Picos) -> Begun {
        self.serial += 1;
        let counts = BTreeSet::new();
        self.writes.insert(self.serial, Write { key, bytes, state: State::Open, counts });
        Begun { serial: self.serial, ..self.begin(key, at) }
    }

    /// A key is deleted.
    pub fn begin_delete(&mut self, key: u64, at: Picos) -> Begun {
        let begun = self.begin(key, at);
        let known = self.keys.entry(key).or_default();
        (known.present, known.deletes) = (None, known.deletes + 1);
        begun
    }

    /// A counter is incremented.
    pub fn begin_increment(&mut self, key: u64, at: Picos) -> Begun {
        let begun = self.begin(key, at);
        self.keys.entry(key).or_default().increments += 1;
        begun
    }

    /// A value was written, or not. `drops` items were dropped so far.
    pub fn end_set(&mut self, begun: Begun, ended: Ended, now: Picos, drops: u64) {
        let Begun { key, serial, at, .. } = begun;
        let write = self.writes.get_mut(&serial).expect("it was begun");
        let known = self.keys.entry(key).or_default();
        match ended {
            Ended::Made => {
                write.state = State::Made(now);
                known.floor = known.floor.max(at);
                let stays = !known.moves && known.danger < at;
                let safe = stays && known.deletes == 0 && known.deleted < at;
                known.present = safe.then_some((now, drops));
            }
            // where a value found no room the one before it may be gone
            Ended::Refused => (write.state, known.present) = (State::Refused, None),
            Ended::Unknown => known.present = None,
        }
    }

    /// A key was deleted, or not.
    pub fn end_delete(&mut self, begun: Begun, ended: Ended, now: Picos) {
        let known = self.keys.entry(begun.key).or_default();
        known.deleted = now;
        if ended != Ended::Unknown {
            known.deletes -= 1;
        }
        if ended == Ended::Made {
            known.floor = known.floor.max(begun.at);
        }
    }

    /// The owner of a key says that there is none.
    pub fn absent(&mut self, begun: Begun, node: NodeId, drops: u64) {
        self.missed(begun, node, drops);
        let known = self.keys.entry(begun.key).or_default();
        known.floor = known.floor.max(begun.at);
    }

    /// Whether a read that brought nothing should have brought something.
    pub fn misses(&self, begun: Begun, drops: u64) -> bool {
        let known = self.keys.get(&begun.key);
        let present = known.and_then(|known| known.present);
        present.is_some_and(|(since, before)| since <= begun.at && before == drops)
    }

    /// Nothing came.
    pub fn missed(&mut self, begun: Begun, node: NodeId, drops: u64) {
        if self.misses(begun, drops) {
            let key = begun.key;
            self.violation(format_args!("{node}: key {key} is lost, and its owner lives"));
        }
    }

    /// These keys have another owner, of whom others will hear.
    pub fn begin_move(&mut self, which: impl Fn(u64) -> bool) {
        self.moving = true;
        for (key, known) in &mut self.keys {
            if which(*key) {
                (known.present, known.moves) = (None, true);
            }
        }
    }

    /// All have heard who owns what.
    pub fn end_moves(&mut self, now: Picos) {
        if !std::mem::take(&mut self.moving) {
            return;
        }
        for known in self.keys.values_mut().filter(|known| known.moves) {
            (known.moves, known.danger) = (false, now);
        }
    }

    /// These keys may vanish now.
    pub fn endanger(&mut self, now: Picos, which: impl Fn(u64) -> bool) {
        for (key, known) in &mut self.keys {
            if which(*key) {
                (known.present, known.danger) = (None, now);
            }
        }
    }

    /// A read has brought a value.
    pub fn got(&mut self, begun: Begun, node: NodeId, bytes: &[u8]) {
        let head = bytes.first_chunk::<8>().map(|head| u64::from_be_bytes(*head));
        let key = begun.key;
        let written = head.and_then(|serial| Some((serial, self.writes.get(&serial)?)));
        let fits = written.filter(|(serial, write)| {
            write.key == key && bytes == value(key, *serial, write.bytes)
        });
        match fits {
            Some((serial, _)) => self.check(begun, node, serial),
            None => self.violation(format_args!("{node}: key {key} has bytes that nobody wrote")),
        }
    }

    fn check(&mut self, begun: Begun, node: NodeId, serial: u64) {
        let (key, floor) = (begun.key, begun.floor);
        match self.writes[&serial].state {
            State::Refused => {
                self.violation(format_args!("{node}: key {key} has a value that was refused"));
            }
            State::Made(end) if end < floor => self.violation(format_args!(
                "{node}: key {key} has a value of {end} s, which one of {floor} s replaced"
            )),
            _ => (),
        }
    }

    /// A counter has answered; `counted` when that was an increment.
    pub fn got_number(&mut self, begun: Begun, node: NodeId, number: u64, counted: bool) {
        let Begun { key, count: (newest, least), .. } = begun;
        let (serial, count) = (number / SPAN, number % SPAN);
        let increments = self.keys.entry(key).or_default().increments;
        let known = self.writes.get(&serial).is_some_and(|write| write.key == key);
        if !known || count > increments {
            return self.violation(format_args!("{node}: counter {key} is {number}: never so far"));
        }
        self.check(begun, node, serial);
        if serial == newest && (count < least || (counted && count == least)) {
            self.violation(format_args!("{node}: counter {key} is {number}, and was {least} on"));
        }
        let write = self.writes.get_mut(&serial).expect("just seen");
        if counted && !write.counts.insert(count) {
            self.violation(format_args!("{node}: counter {key} was {number} twice"));
        }
        if counted {
            self.keys.entry(key).or_default().newest = serial;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);
    const KEY: u64 = 7;

    fn at(ms: u64) -> Picos {
        Picos::millis(ms)
    }

    fn set(model: &mut KeyModel, begin: u64, end: u64, ended: Ended) -> u64 {
        let begun = model.begin_set(KEY, 20, at(begin));
        model.end_set(begun, ended, at(end), 0);
        begun.serial
    }

    fn reads(model: &mut KeyModel, when: u64, serial: u64) -> usize {
        let begun = model.begin(KEY, at(when));
        model.got(begun, NODE, &value(KEY, serial, 20));
        std::mem::take(&mut model.violations).len()
    }

    fn misses(model: &mut KeyModel, when: u64) -> usize {
        let begun = model.begin(KEY, at(when));
        model.missed(begun, NODE, 0);
        std::mem::take(&mut model.violations).len()
    }

    #[test]
    fn what_was_replaced_does_not_come_back() {
        let mut model = KeyModel::default();
        let old = set(&mut model, 1, 2, Ended::Made);
        assert_eq!(reads(&mut model, 3, old), 0);
        let unknown = set(&mut model, 3, 4, Ended::Unknown);
        let refused = set(&mut model, 3, 4, Ended::Refused);
        let overlaps = set(&mut model, 5, 8, Ended::Made);
        let new = set(&mut model, 6, 7, Ended::Made);
        let found = [old, unknown, refused, overlaps, new];
        assert_eq!(found.map(|serial| reads(&mut model, 9, serial)), [1, 0, 1, 0, 0]);
        let begun = model.begin(KEY, at(9));
        model.got(begun, NODE, b"anything else than these");
        assert_eq!(model.violations.len(), 1);
    }

    #[test]
    fn what_was_acknowledged_is_there_until_its_owner_goes() {
        let mut model = KeyModel::default();
        assert_eq!(misses(&mut model, 1), 0);
        set(&mut model, 1, 2, Ended::Made);
        assert_eq!(misses(&mut model, 3), 1);
        model.endanger(at(4), |key| key == KEY);
        assert_eq!(misses(&mut model, 5), 0);
        set(&mut model, 3, 6, Ended::Made);
        assert_eq!(misses(&mut model, 7), 0, "it was made before, perhaps");
        set(&mut model, 8, 9, Ended::Made);
        assert_eq!(misses(&mut model, 10), 1);
        let begun = model.begin_delete(KEY, at(11));
        set(&mut model, 12, 13, Ended::Made);
        model.end_delete(begun, Ended::Made, at(14));
        assert_eq!(misses(&mut model, 15), 0);
    }

    #[test]
    fn a_counter_counts_each_increment_once() {
        let mut model = KeyModel::default();
        let serial = set(&mut model, 1, 2, Ended::Made);
        let mut counts = |number: u64| {
            let begun = model.begin_increment(KEY, at(3));
            model.got_number(begun, NODE, serial * SPAN + number, true);
            std::mem::take(&mut model.violations).len()
        };
        assert_eq!([counts(1), counts(2), counts(1), counts(9)], [0, 0, 2, 1]);
    }
}
