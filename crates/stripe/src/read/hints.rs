//! Hints: blocks that clients say they will read soon are loaded while no reader waits for a disk.
//!
//! A hint is never an obligation. It is refused when too many wait, has the lowest priority at the disk, and its data
//! takes a bounded part of the cache, in which only hints displace each other: wrong ones cost disk reads for which no
//! request waits.

use super::plan::{Next, ReadPlan};
use crate::cache::WindowPart;
use crate::limits::*;
use crate::objects::{Object, Phase};
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::Inner;
use std::rc::Rc;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

impl Inner {
    /// PREFETCH: noted and answered at once.
    pub fn note_hint(&self, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        self.disk_at(ask.disk)?.check()?;
        assert!(self.hints.len() <= HINTS_MAX, "{} hints wait", self.hints.len());
        self.count(|c| c.hints += 1);
        if self.hints.len() == HINTS_MAX {
            self.count(|c| c.hints_refused += 1);
            return Err(Errno::EAGAIN);
        }
        self.hints.push(*ask);
        Ok(ObjectReply::default())
    }

    /// A task that does what hints ask for.
    pub async fn follow_hints(self: Rc<Self>) {
        loop {
            let ask = self.hints.next().await;
            // An error here is found again, and told, by the reader who gets there.
            let _ = self.follow_hint(&ask).await;
            self.note_room();
        }
    }

    async fn follow_hint(self: &Rc<Self>, ask: &ObjectRequest) -> Result<(), Errno> {
        self.wait_for_readers().await;
        // The first blocks come with the header.
        let first_bytes = (ask.bytes as usize).min(CHUNK_BYTES);
        self.cache.borrow_mut().make_room_for_hint(first_bytes);
        let object = self.object(ask).await?;
        self.check_read(&object, ask)?;
        let plan = ReadPlan::new(object, ask);
        for part in plan.parts() {
            self.wait_for_readers().await;
            self.load_hinted(&plan.object, &part).await?;
        }
        Ok(())
    }

    /// Waits until no request waits for this server's disks, for a while at most.
    async fn wait_for_readers(&self) {
        let until = self.cx.now() + HINT_WAIT;
        let is_busy = || self.missing.get() > 0 || !self.ahead.is_empty();
        while is_busy() && self.cx.now() < until {
            self.cx.sleep(HINT_PAUSE).await;
        }
    }

    async fn load_hinted(
        self: &Rc<Self>,
        object: &Rc<Object>,
        part: &WindowPart,
    ) -> Result<(), Errno> {
        if object.state.borrow().phase != Phase::Open {
            return Err(Errno::ESTALE);
        }
        let index = part.index;
        if let Next::Load { blocks, needed } = self.window(object, index).next(&part.blocks, false)
        {
            self.cache.borrow_mut().make_room_for_hint(blocks.len() * BLOCK_BYTES);
            self.load(object, WindowPart { index, blocks }, needed).await?;
        }
        let bytes = self.cache.borrow_mut().note_hinted(object.key, index);
        self.count(|c| c.hinted_bytes += bytes as u64);
        Ok(())
    }
}
