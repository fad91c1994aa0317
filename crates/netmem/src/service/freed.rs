//! Spaces that do not exist any more, so that nothing of them that comes late is taken for new.

use crate::limits::{FREED_MAX, FREED_SPAN};
use crate::page::SpaceId;
use std::collections::{BTreeSet, VecDeque};
use wire::Time;

/// So many spaces were freed in a minute that one more could not be remembered: free it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many spaces were freed in the last minute: free this one later")]
pub struct TooMany;

/// The spaces freed last. A space's number is not used again, so that forgetting one after a while does no harm: no
/// message is under way for so long.
#[derive(Debug, Default)]
pub struct Freed {
    spaces: BTreeSet<SpaceId>,
    order: VecDeque<(SpaceId, Time)>,
}

impl Freed {
    /// Whether a space was freed.
    pub fn has(&self, space: SpaceId) -> bool {
        self.spaces.contains(&space)
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = SpaceId> + '_ {
        self.spaces.iter().copied()
    }

    /// Remembers a space. Says whether it was not known yet.
    pub fn insert(&mut self, now: Time, space: SpaceId) -> Result<bool, TooMany> {
        if self.has(space) {
            return Ok(false);
        }
        if self.order.len() == FREED_MAX {
            self.forget_oldest(now)?;
        }
        self.order.push_back((space, now));
        Ok(self.spaces.insert(space))
    }

    fn forget_oldest(&mut self, now: Time) -> Result<(), TooMany> {
        let oldest = self.order.front().filter(|(_, at)| now.since(*at) >= FREED_SPAN);
        let space = oldest.ok_or(TooMany)?.0;
        self.order.pop_front();
        self.spaces.remove(&space);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_spaces_are_remembered_for_long_enough_or_not_freed() {
        let (mut freed, then) = (Freed::default(), Time(5));
        for number in 0..FREED_MAX as u64 {
            assert_eq!(freed.insert(then, SpaceId(number)), Ok(true));
        }
        assert_eq!(freed.insert(then, SpaceId(7)), Ok(false));
        assert_eq!(freed.insert(then, SpaceId(1 << 20)), Err(TooMany));
        assert!(freed.has(SpaceId(0)) && !freed.has(SpaceId(1 << 20)));
        assert_eq!(freed.insert(then + FREED_SPAN, SpaceId(1 << 20)), Ok(true));
        assert!(!freed.has(SpaceId(0)) && freed.has(SpaceId(1)));
        assert_eq!(freed.iter().count(), FREED_MAX);
    }
}
