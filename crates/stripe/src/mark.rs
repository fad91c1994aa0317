//! The extent of a disk's log, noted in a second place: in the disk's label, behind the server's incarnations.
//!
//! The log's own chain reveals damage in front of what it still holds; the mark reveals that its end, a whole log or
//! all of them are missing, damaged or older than they were. It is written by every checkpoint before it drops logs, by
//! a stop, and a second after a commit; never on the path of one. So the records that the mark does not cover are at
//! most those of the last second before the server or its machine died.
//!
//! Both slots say the same: the one that is due is written durably, then the other one, which is the next that is due.
//! A power cut tears one of them at most, and damage to one costs nothing.

use wire::field::fields;

/// The state of a disk's log, in the disk's label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Every record up to this one is in place, and says nothing any more.
    pub applied: u64,
    /// Every record up to this one was durable.
    pub durable: u64,
    /// The latest log that may have been written to, or the one before it.
    pub generation: u32,
    /// The salt of that log.
    pub salt: u64,
    /// The salt of the next one: known before anything is written to it.
    pub next_salt: u64,
}
fields!(Mark { applied, durable, generation, salt, next_salt });

impl Mark {
    /// The salt of the log with this number, as far as it is known.
    pub fn salt_of(&self, generation: u32) -> Option<u64> {
        match generation.checked_sub(self.generation)? {
            0 => Some(self.salt),
            1 => Some(self.next_salt),
            _ => None,
        }
    }

    /// Whether the log with this number cannot have been written to yet.
    pub fn is_ahead(&self, generation: u32) -> bool {
        generation > self.generation + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_knows_the_salts_of_two_logs() {
        let mark = Mark { generation: 4, salt: 11, next_salt: 12, ..Mark::default() };
        assert_eq!([3, 4, 5, 6].map(|log| mark.salt_of(log)), [None, Some(11), Some(12), None]);
        assert!(!mark.is_ahead(5) && mark.is_ahead(6));
    }
}
