//! Changes in memory over the checkpoint: for a key either its new value or that it has none any more.

use crate::batch::Change;
use crate::limits::OVERLAY_ENTRY_BYTES;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};

type Key = Box<[u8]>;
type Value = Option<Box<[u8]>>;
/// A key or a value, as the database has it.
pub(crate) type Bytes = &'static [u8];
/// First and last key of a range.
pub(crate) type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    map: BTreeMap<Key, Value>,
    bytes: usize,
}

impl Overlay {
    /// `None` when the overlay says nothing about `key`, `Some(None)` when it has no value any more.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.map.get(key).map(Option::as_deref)
    }

    /// About how much memory this takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn entries(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.map.iter().map(|(key, value)| (&**key, value.as_deref()))
    }

    pub fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::Put(key, value) => self.set(key.into(), Some(value.into())),
            Change::Delete(key) => self.set(key.into(), None),
        }
    }

    /// Puts the later changes of `newer` over these.
    pub fn absorb(&mut self, newer: Overlay) {
        newer.map.into_iter().for_each(|(key, value)| self.set(key, value));
    }

    fn set(&mut self, key: Key, value: Value) {
        let key_bytes = key.len() + OVERLAY_ENTRY_BYTES;
        self.bytes += value_bytes(&value);
        match self.map.insert(key, value) {
            Some(old) => {
                assert!(value_bytes(&old) <= self.bytes, "what was counted is taken off");
                self.bytes -= value_bytes(&old);
            }
            None => self.bytes += key_bytes,
        }
    }

    fn range(&self, bounds: Bounds<'_>) -> btree_map::Range<'_, Key, Value> {
        self.map.range::<[u8], _>(bounds)
    }
}

fn value_bytes(value: &Value) -> usize {
    value.as_ref().map_or(0, |value| value.len())
}

/// Whether no key can be within `bounds`, which a `BTreeMap` takes for a mistake.
pub(crate) fn is_empty_range(bounds: Bounds<'_>) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        _ => false,
    }
}

/// Entries of two overlays in order of their keys, the newer overlay's where both have one.
pub(crate) struct Merged<'a> {
    newer: Peekable<btree_map::Range<'a, Key, Value>>,
    older: Option<Peekable<btree_map::Range<'a, Key, Value>>>,
}

impl<'a> Merged<'a> {
    pub fn new(newer: &'a Overlay, older: Option<&'a Overlay>, bounds: Bounds<'_>) -> Merged<'a> {
        Merged {
            newer: newer.range(bounds).peekable(),
            older: older.map(|older| older.range(bounds).peekable()),
        }
    }
}

impl Merged<'_> {
    /// Visits `entries` with these later changes applied, in order, until `visit` has enough.
    pub fn over(
        self,
        entries: redb::Range<'_, Bytes, Bytes>,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), redb::StorageError> {
        let mut changed = self.peekable();
        for entry in entries {
            let (key, value) = entry?;
            let key = key.value();
            while let Some(entry) = changed.next_if(|entry| entry.0 < key) {
                if show(entry, visit).is_break() {
                    return Ok(());
                }
            }
            let entry = changed.next_if(|entry| entry.0 == key);
            if show(entry.unwrap_or((key, Some(value.value()))), visit).is_break() {
                return Ok(());
            }
        }
        let _ = changed.try_for_each(|entry| show(entry, visit));
        Ok(())
    }
}

fn show(
    entry: (&[u8], Option<&[u8]>),
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    entry.1.map_or(ControlFlow::Continue(()), |value| visit(entry.0, value))
}

impl<'a> Iterator for Merged<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let older_key = self.older.as_mut().and_then(|older| older.peek()).map(|entry| entry.0);
        let newer_key = self.newer.peek().map(|entry| entry.0);
        let take_older = match (newer_key, older_key) {
            (Some(newer), Some(older)) => older < newer,
            (newer, _) => newer.is_none(),
        };
        if !take_older && newer_key == older_key {
            self.older.as_mut().and_then(Iterator::next);
        }
        let entry = if take_older { self.older.as_mut()?.next() } else { self.newer.next() };
        entry.map(|(key, value)| (&**key, value.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(changes: &[Change<'_>]) -> Overlay {
        let mut overlay = Overlay::default();
        changes.iter().for_each(|change| overlay.apply(*change));
        overlay
    }

    const ALL: Bounds<'static> = (Bound::Unbounded, Bound::Unbounded);

    #[test]
    fn the_newer_entry_hides_the_older_one() {
        let older =
            overlay(&[Change::Put(b"a", b"1"), Change::Put(b"b", b"1"), Change::Put(b"d", b"1")]);
        let newer =
            overlay(&[Change::Delete(b"b"), Change::Put(b"c", b"2"), Change::Put(b"d", b"2")]);
        let merged: Vec<_> = Merged::new(&newer, Some(&older), ALL).collect();
        let wanted: [(&[u8], Option<&[u8]>); 4] =
            [(b"a", Some(b"1")), (b"b", None), (b"c", Some(b"2")), (b"d", Some(b"2"))];
        assert_eq!(merged, wanted);
        let mut absorbed = older.clone();
        absorbed.absorb(newer);
        assert_eq!(absorbed.entries().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn bytes_follow_what_is_held() {
        let mut one = overlay(&[Change::Put(b"key", &[0; 100])]);
        assert_eq!(one.bytes(), 3 + 100 + OVERLAY_ENTRY_BYTES);
        one.apply(Change::Put(b"key", &[0; 10]));
        assert_eq!(one.bytes(), 3 + 10 + OVERLAY_ENTRY_BYTES);
        one.apply(Change::Delete(b"key"));
        assert_eq!(one.bytes(), 3 + OVERLAY_ENTRY_BYTES);
    }

    #[test]
    fn ranges_that_hold_nothing_are_known() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        assert!(is_empty_range((Bound::Included(b), Bound::Included(a))));
        assert!(is_empty_range((Bound::Included(a), Bound::Excluded(a))));
        assert!(is_empty_range((Bound::Excluded(a), Bound::Excluded(a))));
        assert!(!is_empty_range((Bound::Included(a), Bound::Included(a))));
        assert!(!is_empty_range((Bound::Excluded(a), Bound::Excluded(b))));
        assert!(!is_empty_range(ALL));
    }
}
