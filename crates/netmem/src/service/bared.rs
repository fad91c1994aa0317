//! Pages of this node's own whose mirrors went down all at once. Directories make mirrors from mirrors only, so that
//! nobody but the writer, who has the page still, can make it durable again: before he is asked to, since what he
//! was told once that is durable he does not flush again.

use super::Service;
use super::dirty::Dirt;
use crate::limits::BARED_PAUSE;
use crate::memory::FrameNo;
use crate::page::PageId;
use node::Bug;
use wire::NodeId;

impl Service {
    /// Mirrors of this node's pages that went down with their nodes.
    pub(super) fn lose_mirrors(&self, gone: &[(NodeId, u64)]) {
        let mut store = self.0.store.borrow_mut();
        let lost = |(node, life): &(NodeId, u64)| {
            gone.iter().any(|(other, last)| other == node && life <= last)
        };
        let named = |frame: &FrameNo| !store.stored(*frame).mirrors.is_empty();
        let frames: Vec<FrameNo> =
            store.memory().pages().map(|(frame, ..)| frame).filter(named).collect();
        for frame in frames {
            store.retain_mirrors(frame, |mirror| !lost(mirror));
            // of what is in the log the directory has another mirror made, as of what is in one
            if store.stored(frame).mirrors.is_empty() && !store.is_logged(frame) {
                let id = store.memory().page(frame).expect("a page").id;
                self.0.bared.borrow_mut().insert(id, ());
            }
        }
        self.0.bares.notify_all();
    }

    /// The task that makes them durable again.
    pub(super) async fn secure_all_bared(self) {
        loop {
            let bares = self.0.bares.wait();
            let next = self.0.bared.borrow_mut().next();
            let next = next.filter(|_| !self.cx().has_bug(Bug::MirrorsNotMadeAgain));
            let Some((id, ())) = next else {
                bares.await;
                continue;
            };
            if self.is_secured(id).await {
                self.0.bared.borrow_mut().done(id, |()| true);
            } else {
                self.cx().sleep(BARED_PAUSE).await;
            }
        }
    }

    /// Makes a page durable. Says whether that is over, well or not.
    async fn is_secured(&self, id: PageId) -> bool {
        match self.dirt(id) {
            Dirt::None => true,
            Dirt::Busy => false,
            Dirt::Dirty(frame) => self.secure(frame).await.is_ok(),
        }
    }
}
