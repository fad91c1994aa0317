//! Counters of a region.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counted events.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Faults,
    Zeroed,
    Fetched,
    Ahead,
    TakenBack,
    Evicted,
    Dropped,
    Stored,
    Spared,
    Held,
    Vanished,
    Damaged,
    Lost,
    Refused,
    Pressed,
    Cleaned,
    Mended,
}

const KINDS: usize = What::Mended as usize + 1;

/// The counters while threads count.
#[derive(Debug, Default)]
pub(super) struct Tally([AtomicU64; KINDS]);

impl Tally {
    pub fn count(&self, what: What) {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> Counters {
        let of = |what: What| self.0[what as usize].load(Ordering::Relaxed);
        Counters {
            faults: of(What::Faults),
            zeroed: of(What::Zeroed),
            fetched: of(What::Fetched),
            ahead: of(What::Ahead),
            taken_back: of(What::TakenBack),
            evicted: of(What::Evicted),
            dropped: of(What::Dropped),
            stored: of(What::Stored),
            spared: of(What::Spared),
            held: of(What::Held),
            vanished: of(What::Vanished),
            damaged: of(What::Damaged),
            lost: of(What::Lost),
            refused: of(What::Refused),
            pressed: of(What::Pressed),
            cleaned: of(What::Cleaned),
            mended: of(What::Mended),
        }
    }
}

/// Events in a region since it was mapped, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults of the program.
    pub faults: u64,
    /// Pages that appeared as zeros.
    pub zeroed: u64,
    /// Fetched from the backing.
    pub fetched: u64,
    /// Of these, before they were touched.
    pub ahead: u64,
    /// Taken back from the staging area.
    pub taken_back: u64,
    /// Moved to the staging area.
    pub evicted: u64,
    /// Dropped from there because the backing had them.
    pub dropped: u64,
    /// Given to the backing, by eviction or flush.
    pub stored: u64,
    /// Not evicted, because they had come back before.
    pub spared: u64,
    /// Not evicted, because the kernel holds them (EBUSY) or they are pinned.
    pub held: u64,
    /// Found missing although the region did not take them: the program has given them up itself.
    pub vanished: u64,
    /// Fetched, and not the bytes that were stored.
    pub damaged: u64,
    /// Of which no copy was left.
    pub lost: u64,
    /// Times the backing did not answer or took no page.
    pub refused: u64,
    /// Given to the backing while a fault waited for their room.
    pub pressed: u64,
    /// Given to the backing by the cleaner, before that.
    pub cleaned: u64,
    /// Kept as safely again as the backing promises, after it had lost a copy.
    pub mended: u64,
}

/// Shows the counters that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.faults, "faults"),
            (self.zeroed, "zeroed"),
            (self.fetched, "fetched"),
            (self.ahead, "ahead of their use"),
            (self.taken_back, "taken back"),
            (self.evicted, "evicted"),
            (self.dropped, "dropped"),
            (self.stored, "stored"),
            (self.spared, "spared"),
            (self.held, "held"),
            (self.vanished, "vanished"),
            (self.damaged, "damaged"),
            (self.lost, "lost"),
            (self.refused, "refused"),
            (self.pressed, "pressed"),
            (self.cleaned, "cleaned"),
            (self.mended, "mended"),
        ];
        let some = all.iter().filter(|(count, _)| *count > 0);
        let texts: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_was_none_of_is_not_shown() {
        let counters = Counters { faults: 12, taken_back: 3, ..Counters::default() };
        assert_eq!(counters.to_string(), "12 faults, 3 taken back");
    }
}
