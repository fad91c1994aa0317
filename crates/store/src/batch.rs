//! A batch of changes that is applied as a whole or not at all. It is encoded as it is filled: its bytes are the body
//! of the log record, so that a change is copied once on its way to the log, and a replay reads what `apply` read.

use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX, VALUE_BYTES_MAX};
use wire::codec::{Decoder, Short};

/// Room in front of the changes, for the header of the log record.
pub(crate) const HEADER_BYTES: usize = 48;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// Puts and deletes, in order: of two changes to one key the later one holds.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Room for the record's header, then the encoded changes.
    record: Vec<u8>,
    changes: u32,
}

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value from now on.
    Put(&'a [u8], &'a [u8]),
    /// The key has no value from now on.
    Delete(&'a [u8]),
}

impl Batch {
    /// Without a change.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Batch {
        Batch { record: vec![0; HEADER_BYTES], changes: 0 }
    }

    /// Gives `key` the value `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Batch {
        assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes", value.len());
        self.key(PUT, key);
        self.record.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.record.extend_from_slice(value);
        self.check_size()
    }

    /// Takes the value of `key` away; nothing happens when it has none.
    pub fn delete(&mut self, key: &[u8]) -> &mut Batch {
        self.key(DELETE, key);
        self.check_size()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes as usize
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Bytes of the log record that this batch will be.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// The changes in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        Changes(Decoder::new(&self.record[HEADER_BYTES..]))
            .map(|change| change.expect("our own bytes"))
    }

    /// The value that this batch gives to `key`: `None` when it does not change the key, `Some(None)` when it takes
    /// its value away. Looks at every change.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let of_key = self.changes().filter_map(|change| match change {
            Change::Put(changed, value) => (changed == key).then_some(Some(value)),
            Change::Delete(changed) => (changed == key).then_some(None),
        });
        of_key.last()
    }

    pub(crate) fn into_record(self) -> (Vec<u8>, u32) {
        (self.record, self.changes)
    }

    fn key(&mut self, tag: u8, key: &[u8]) {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        self.record.push(tag);
        self.record.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.record.extend_from_slice(key);
        self.changes += 1;
    }

    fn check_size(&mut self) -> &mut Batch {
        assert!(self.record.len() <= RECORD_BYTES_MAX, "a batch of {} bytes", self.record.len());
        self
    }
}

/// The changes in the body of a record; ends after the first that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Changes<'a>(Decoder<'a>);

impl<'a> Changes<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Changes<'a> {
        Changes(Decoder::new(body))
    }

    fn change(&mut self) -> Result<Change<'a>, Short> {
        let tag = self.0.u8()?;
        let key = self.0.bytes()?;
        match tag {
            PUT => {
                let len = self.0.u32()?;
                Ok(Change::Put(key, self.0.raw(len as usize)?))
            }
            DELETE => Ok(Change::Delete(key)),
            _ => Err(Short),
        }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, Short>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.rest().is_empty() {
            return None;
        }
        let change = self.change();
        if change.is_err() {
            self.0 = Decoder::new(&[]);
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_order() {
        let mut batch = Batch::new();
        batch.put(b"a", b"1").delete(b"b").put(b"", b"").put(b"a", b"2");
        let wanted = [
            Change::Put(b"a", b"1"),
            Change::Delete(b"b"),
            Change::Put(b"", b""),
            Change::Put(b"a", b"2"),
        ];
        assert_eq!(batch.changes().collect::<Vec<_>>(), wanted);
        assert_eq!(batch.len(), 4);
        assert_eq!(batch.get(b"a"), Some(Some(&b"2"[..])));
        assert_eq!(batch.get(b"b"), Some(None));
        assert_eq!(batch.get(b"c"), None);
    }

    #[test]
    fn a_body_cut_anywhere_is_short_or_whole_changes() {
        let mut batch = Batch::new();
        batch.put(b"key", b"value").delete(b"other");
        let (record, _) = batch.into_record();
        let body = &record[HEADER_BYTES..];
        let whole: Vec<_> = (0..=body.len())
            .filter(|&cut| Changes::new(&body[..cut]).all(|change| change.is_ok()))
            .collect();
        assert_eq!(whole, [0, 15, body.len()]);
        assert!(Changes::new(&[9, 0, 0]).any(|change| change.is_err()));
    }

    #[test]
    #[should_panic(expected = "a key of")]
    fn a_key_over_the_limit_is_refused() {
        Batch::new().put(&[0; KEY_BYTES_MAX + 1], b"");
    }
}
