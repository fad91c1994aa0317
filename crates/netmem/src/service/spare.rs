//! Others on this node: a cache that takes pages back for good, and who needs memory of the pool in one piece.
//!
//! Pages lie where they arrived. The pool gives memory in runs of up to a stretch, and a payload of any length wants
//! one run; so when few are left, the stretch that holds least beside pages is cleared of them: they move to other
//! runs, dirty ones too, or are given up.

use super::Service;
use super::get::{GetError, Got};
use super::pages::Here;
use super::prefetch::Hint;
use crate::limits::{CLEARED_STRETCHES_MAX, FREE_STRETCHES};
use crate::memory::FrameNo;
use crate::page::Wanted;
use endpoint::limits::{PAGE_BYTES, STRETCH_BYTES};
use endpoint::{Frame, FrameMut};

impl Service {
    /// As [`get`](Service::get), for a caller that keeps the page itself: no copy of it stays in this node's frames of
    /// the service, and none has to leave them for it. Of a space without stable storage.
    pub async fn take_out(&self, wanted: Wanted) -> Result<Got, GetError> {
        let (start, began) = (self.cx().now(), self.begin_get());
        let doubtful = self.doubtful(wanted.id).ok_or(GetError::Freed)?;
        let here = self.0.pages.borrow_mut().handle_use(start, wanted, false, doubtful);
        if let Some(here) = here {
            let got = match here {
                Here::Kept(got, _) => got,
                Here::Leaving(leaves) => self.take_back(wanted, leaves),
            };
            self.count_here(began);
            self.hint(wanted.id, Hint::DontNeed);
            return Ok(got);
        }
        let got = self.search(wanted, false).await.map_err(|miss| miss.without_backing(wanted))?;
        let took = self.cx().now().since(start);
        self.count(|counters| counters.hit(got.source, Some(took)));
        Ok(got)
    }

    /// Keeps some longest runs of the pool free of pages.
    pub(super) fn keep_room(&self) {
        let frames = self.cx().frames();
        let wanted = FREE_STRETCHES.min(frames.stretches() / 2) * STRETCH_BYTES;
        let cleared = (0..CLEARED_STRETCHES_MAX)
            .take_while(|_| frames.free_largest_bytes() < wanted && self.clear_stretch());
        cleared.count();
    }

    /// Clears the stretch of the pool where least but pages is in use. Says whether any of them went. Takes time for
    /// every page of this node.
    pub fn clear_stretch(&self) -> bool {
        let Some(stretch) = self.cheapest_stretch() else { return false };
        let here: Vec<FrameNo> = {
            let store = self.store();
            let pages = store.memory().pages().map(|(frame, ..)| frame);
            pages.filter(|frame| stretch_of(&store.stored(*frame).data) == stretch).collect()
        };
        // runs of the stretch itself, held so that they are not given again
        let mut unfit = Vec::new();
        let gone = here.into_iter().filter(|frame| self.clear(*frame, stretch, &mut unfit));
        gone.count() > 0
    }

    /// The stretch with the fewest pages of those in which nothing else is in use.
    fn cheapest_stretch(&self) -> Option<usize> {
        let frames = self.cx().frames();
        let mut pages = vec![0; frames.stretches()];
        let store = self.store();
        for (frame, ..) in store.memory().pages() {
            let data = &store.stored(frame).data;
            pages[stretch_of(data)] += data.len().div_ceil(PAGE_BYTES);
        }
        let held = pages.into_iter().enumerate().filter(|(_, pages)| *pages > 0);
        let alone = held.filter(|(stretch, pages)| {
            pages + frames.free_pages_in(*stretch) == STRETCH_BYTES / PAGE_BYTES
        });
        alone.min_by_key(|(_, pages)| *pages).map(|(stretch, _)| stretch)
    }

    /// Moves a page out of a stretch, or gives it up. Says whether it is there no more.
    fn clear(&self, frame: FrameNo, stretch: usize, unfit: &mut Vec<FrameMut>) -> bool {
        let data = self.store().stored(frame).data.clone();
        if let Some(mut copy) = self.alloc_outside(data.len(), stretch, unfit) {
            copy.copy_from_slice(&data);
            self.store_mut().relocate(frame, copy.freeze());
            return true;
        }
        let held = self.store_mut().take(frame).ok();
        held.iter().for_each(|held| self.withdraw(held));
        self.count(|counters| counters.dropped += u64::from(held.is_some()));
        held.is_some()
    }

    /// Memory in another stretch that is in use already, so that none is opened for it.
    fn alloc_outside(
        &self,
        bytes: usize,
        stretch: usize,
        unfit: &mut Vec<FrameMut>,
    ) -> Option<FrameMut> {
        let frames = self.cx().frames();
        loop {
            let longest = frames.free_largest_bytes();
            let run = frames.alloc_exact(bytes)?;
            if frames.free_largest_bytes() < longest {
                return None;
            }
            if run.offset() / STRETCH_BYTES != stretch {
                return Some(run);
            }
            unfit.push(run);
        }
    }
}

fn stretch_of(data: &Frame) -> usize {
    data.offset() / STRETCH_BYTES
}
