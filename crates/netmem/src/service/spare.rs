//! A cache of this node beside the service: pages that it takes back for good, and memory of the node's pool that
//! somebody needs in one piece.

use super::Service;
use super::get::{GetError, Got};
use super::write::Hint;
use crate::memory::{FrameNo, Page};
use crate::page::Wanted;
use endpoint::Frame;

impl Service {
    /// As [`get`](Service::get), for who keeps the page himself: no copy stays in this node's frames of the service.
    pub async fn take_out(&self, wanted: Wanted) -> Result<Got, GetError> {
        let got = self.get(wanted).await;
        self.hint(wanted.id, Hint::DontNeed);
        got
    }

    /// Looks at the bytes of every page that could be given up at once.
    pub fn visit_spare(&self, mut visit: impl FnMut(&Frame)) {
        let store = self.0.store.borrow();
        let spare = store.memory().pages().filter(|(_, _, page)| is_spare(page));
        spare.for_each(|(frame, ..)| visit(&store.stored(frame).data));
    }

    /// Gives up all such pages whose bytes `goes` names: whoever needs the memory cannot wait until they are elsewhere.
    /// Answers with how many went.
    pub fn drop_spare(&self, goes: impl Fn(&Frame) -> bool) -> usize {
        let frames: Vec<FrameNo> = {
            let store = self.0.store.borrow();
            let pages = store.memory().pages();
            let spare =
                pages.filter(|(frame, _, page)| is_spare(page) && goes(&store.stored(*frame).data));
            spare.map(|(frame, ..)| frame).collect()
        };
        for frame in &frames {
            let held = self.0.store.borrow_mut().take(*frame).expect("it is durable and not busy");
            self.withdraw(&held.page);
        }
        self.count(|counters| counters.dropped += frames.len() as u64);
        frames.len()
    }
}

fn is_spare(page: &Page) -> bool {
    !page.busy && page.is_durable()
}
