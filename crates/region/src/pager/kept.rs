//! Background work of the region's keeper: written pages are stored before a fault has to wait for their room, and
//! pages of which the backing has lost copies are mended.

use super::*;

impl Pager {
    /// Stores written pages of the older half of the staging area, some of them; how many. There no thread can write
    /// them any more, and few come back; a page that is stored while it is mapped would often be written and stored
    /// again.
    /// `cursor` is how far the keeper has looked.
    pub fn clean(&self, context: &mut Context, cursor: &mut u64) -> Result<usize, StoreError> {
        let mut cleaned = 0;
        loop {
            let slots = self.staging.look(cursor, self.slots / 2);
            for (slot, page) in &slots {
                cleaned += usize::from(self.clean_slot(context, *slot, *page)?);
            }
            if slots.is_empty() || cleaned >= CLEANED_MAX {
                return Ok(cleaned);
            }
        }
    }

    /// Stores the page in the slot if it was written and no other thread has it.
    fn clean_slot(
        &self,
        context: &mut Context,
        slot: u32,
        page: usize,
    ) -> Result<bool, StoreError> {
        let waits = |held: Page| held.state == State::Staged && held.number == slot && held.dirty;
        let Some(held) = self.table.try_lock(page, waits) else { return Ok(false) };
        let (stored, held) = self.store_staged(context.parts().0, page, held);
        self.table.unlock(page, held);
        stored.inspect(|_| self.tally.count(What::Cleaned))
    }

    /// A written page has come into the staging area: the keeper is called now and then.
    pub fn note_written(&self) {
        let before = self.written.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of((self.slots / BELL_SHARE).max(1)) {
            self.bell.ring();
        }
    }

    /// Has the backing keep the page as safely as it promises. Its copies of a written one are worth nothing any more:
    /// that is stored anew. False when a thread has the page in hand: that may be waiting for the keeper's next step.
    pub fn mend(&self, context: &mut Context, page: usize) -> Result<bool, FetchError> {
        let Some(held) = self.table.try_lock(page, |_| true) else { return Ok(false) };
        let (source, buffer) = context.parts();
        let (mended, held) = match held.state {
            State::Staged if held.dirty => as_mended(self.store_staged(source, page, held)),
            State::Resident if held.dirty => {
                as_mended(self.store_mapped(source, buffer, page, held))
            }
            _ => (self.mend_stored(source, buffer, page, held), held),
        };
        self.table.unlock(page, held);
        mended.map(|()| true)
    }

    fn mend_stored(
        &self,
        source: &mut dyn Source,
        buffer: &mut [u8],
        page: usize,
        held: Page,
    ) -> Result<(), FetchError> {
        let version = self.table.version(page);
        if !held.stored || held.state == State::Lost {
            source.abandon(page as u64, version); // else it would be found weak for ever
            return Ok(());
        }
        if source.mend(page as u64, version, buffer)? {
            self.tally.count(What::Mended);
        }
        Ok(())
    }
}

/// A page that was stored anew is as safe as the backing promises.
fn as_mended<T>((stored, held): (Result<T, StoreError>, Page)) -> (Result<(), FetchError>, Page) {
    let mended = stored.map(drop).map_err(|StoreError(errno)| FetchError::Unavailable(errno));
    (mended, held)
}
