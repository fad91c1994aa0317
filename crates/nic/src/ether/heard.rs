//! Which frames of the peer have come.

/// The highest number and the 128 below it. A frame that is older than those cannot be told from a replayed one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Highest number that has come, plus 1.
    next: u64,
    /// Bit n: the one n + 1 below the highest.
    before: u128,
}

impl Heard {
    /// Whether the frame has surely not come yet.
    pub fn is_new(&self, number: u64) -> bool {
        match self.next.checked_sub(number) {
            None | Some(0) => true,
            Some(1) => false,
            Some(below) => below - 2 < 128 && self.before >> (below - 2) & 1 == 0,
        }
    }

    /// It has come; whether one before it is missing.
    pub fn note(&mut self, number: u64) -> bool {
        let Some(ahead) = (number + 1).checked_sub(self.next).filter(|ahead| *ahead > 0) else {
            self.before |= 1 << (self.next - number - 2);
            return false;
        };
        let highest = u128::from(self.next > 0); // the one that was the highest
        let moved = self.before.checked_shl(ahead as u32).filter(|_| ahead < 128).unwrap_or(0);
        let bit = if ahead <= 128 { highest << (ahead - 1) } else { 0 };
        (self.next, self.before) = (number + 1, moved | bit);
        ahead > 1
    }

    /// As a header says it.
    pub fn told(&self) -> (u64, u64) {
        (self.next, self.before as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set: nothing is taken twice, and what is told has come.
        #[test]
        fn a_frame_is_new_once(steps in prop::collection::vec(-200i64..40, 1..300)) {
            let (mut heard, mut came, mut at) = (Heard::default(), BTreeSet::new(), 0i64);
            for step in steps {
                let number = (at + step).max(0) as u64;
                let new = heard.is_new(number);
                prop_assert!(!(new && came.contains(&number)));
                if new {
                    heard.note(number);
                    came.insert(number);
                } else {
                    prop_assert!(came.contains(&number) || number + 128 < at as u64);
                }
                at = at.max(number as i64 + 1);
                let (next, before) = heard.told();
                prop_assert_eq!(next, came.last().map_or(0, |last| last + 1));
                for bit in 0..64 {
                    let number = next.checked_sub(bit + 2);
                    let is_told = before >> bit & 1 == 1;
                    prop_assert_eq!(is_told, number.is_some_and(|n| came.contains(&n)));
                }
            }
        }
    }
}
