//! How a page leaves: from its place into a slot of the staging area, and from there to the backing.

use super::*;

impl Pager {
    /// Has the page leave, into a slot that is taken before the page is.
    pub(super) fn leave(
        &self,
        context: &mut Context,
        page: usize,
        slot: &mut Option<u32>,
        entry: Entry,
    ) -> Result<Leave, FaultError> {
        if let Some(held) = self.table.try_lock(page, |held| held.state != State::Resident) {
            self.table.unlock(page, entry.left_by(held));
            return Ok(Leave::Gone);
        }
        let target = match *slot {
            Some(slot) => slot,
            None => *slot.insert(self.take_slot(context)?),
        };
        let left = self.evict(page, target, entry);
        if matches!(left, Leave::Left) {
            *slot = None;
        }
        Ok(left)
    }

    pub(super) fn evict(&self, page: usize, slot: u32, entry: Entry) -> Leave {
        // A thread that has it just now needs it, or comes here again.
        let Some(held) = self.table.try_lock(page, |held| held.state == State::Resident) else {
            return Leave::Stays;
        };
        let spared = held.uses > 0 && entry == Entry::InHand; // not where the program knows better
        if held.number > 0 || spared {
            let pinned = held.number > 0;
            self.tally.count(if pinned { What::Held } else { What::Spared });
            let uses = held.uses.saturating_sub(1);
            self.table.unlock(page, Page { uses, ..held });
            return Leave::Stays;
        }
        let dirty = held.dirty || self.is_written(page);
        match self.shift(self.slot(slot), self.address(page)) {
            Ok(()) => {
                self.tally.count(What::Evicted);
                self.staging.put(slot, page);
                let staged = Page { state: State::Staged, dirty, number: slot, ..held };
                self.table.unlock(page, entry.left_by(staged));
                if dirty {
                    self.note_written();
                }
                Leave::Left
            }
            Err(Why::Missing) => {
                self.tally.count(What::Vanished);
                let absent = Page { state: State::Absent, dirty: false, ..held };
                self.table.unlock(page, entry.left_by(absent));
                Leave::Gone
            }
            Err(_) => {
                self.tally.count(What::Held);
                self.table.unlock(page, held);
                Leave::Stays
            }
        }
    }

    /// Whether the page was written since it was protected. Zeros that the kernel shares were not.
    pub(super) fn is_written(&self, page: usize) -> bool {
        self.pagemap.any(&self.range(page), Is::WRITTEN, Is::ZERO).unwrap_or(true)
    }

    /// An empty slot; the oldest ones are emptied where none is.
    fn take_slot(&self, context: &mut Context) -> Result<u32, FaultError> {
        let mut slot = None;
        self.patiently(|| {
            loop {
                match self.staging.take(self.retire) {
                    Ok(empty) => {
                        slot = Some(empty);
                        return Ok(());
                    }
                    Err(leaving) if leaving.is_empty() => std::thread::yield_now(),
                    Err(leaving) => self.retire(context.parts().0, &leaving)?,
                }
            }
        })?;
        Ok(slot.expect("it was taken"))
    }

    /// Empties slots; an error when none could be.
    fn retire(&self, source: &mut dyn Source, leaving: &Leaving) -> Result<(), FaultError> {
        let (mut empty, mut failed) = (ArrayVec::<u32, RETIRE_MAX>::new(), None);
        for (slot, page) in leaving {
            match self.settle(source, *slot, *page) {
                Ok(stored) => {
                    empty.push(*slot);
                    if stored {
                        self.tally.count(What::Pressed);
                    }
                }
                Err(StoreError(errno)) => {
                    self.staging.put(*slot, *page);
                    failed = Some(FaultError::Unavailable(errno));
                }
            }
        }
        self.discard(&empty);
        empty.iter().for_each(|slot| self.staging.give_back(*slot));
        match failed {
            Some(error) if empty.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The page in the slot, if it is still there, is kept by the backing and leaves the table. Says whether it had to
    /// be stored for that.
    pub(super) fn settle(
        &self,
        source: &mut dyn Source,
        slot: u32,
        page: usize,
    ) -> Result<bool, StoreError> {
        let held = self.table.lock(page);
        if held.state != State::Staged || held.number != slot {
            self.table.unlock(page, held);
            return Ok(false);
        }
        let (result, held) = self.store_staged(source, page, held);
        let gone = Page { state: State::Absent, uses: 0, number: 0, ..held };
        if result == Ok(false) {
            self.tally.count(What::Dropped);
        }
        self.table.unlock(page, if result.is_ok() { gone } else { held });
        result
    }

    /// Gives the slots' memory back to the kernel.
    fn discard(&self, slots: &[u32]) {
        for run in slots.chunk_by(|a, b| a + 1 == *b) {
            let (at, bytes) = (self.slot(run[0]), run.len() * self.page_bytes);
            // SAFETY: the slots are this thread's, and no page is in them.
            while unsafe { madvise(at as *mut _, bytes, Madvice::LinuxDontNeed) }.is_err() {
                std::thread::yield_now(); // EAGAIN: the kernel is short of memory
            }
        }
    }
}
