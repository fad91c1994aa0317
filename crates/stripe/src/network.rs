//! What left the cache for network memory comes back from there, before a disk is asked.
//!
//! Network memory is never waited for long, and no error of it is one of a read: the disk has all of it. Whatever comes
//! is verified by the committed checksums, as what a disk returns.

use crate::cache::{Recalled, WindowPart};
use crate::limits::*;
use crate::objects::{Object, Phase};
use crate::server::Inner;
use endpoint::Frame;
use node::{Either, race};
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;

impl Inner {
    /// Waits, for not long, while more leaves the cache than is carried away: `bytes` bytes more need room in it.
    pub async fn wait_for_carriers(&self, bytes: usize) {
        if let Some(service) = self.config.memory.as_ref().filter(|service| service.is_busy()) {
            let patience = CARRY_PATIENCE * bytes.div_ceil(BLOCK_BYTES) as u32;
            service.wait_for_carriers(patience / WINDOW_BLOCKS as u32).await;
        }
    }

    /// Brings what network memory has of a part into the cache, if it comes soon.
    pub async fn load_from_network(&self, object: &Rc<Object>, part: &WindowPart) {
        let recalled = self.cache.borrow_mut().recall(object.key, part);
        if recalled.is_empty() {
            return;
        }
        let all = node::all(recalled.iter().map(|page| self.fetch(object, part, page)));
        if let Either::Right(()) = race(all, self.cx.sleep(NETWORK_PATIENCE)).await {
            self.count(|c| c.network_late += 1);
        }
    }

    async fn fetch(&self, object: &Object, part: &WindowPart, page: &Recalled) {
        let service = self.config.memory.clone().expect("who sent something there");
        let got = service.take_out(page.wanted).await;
        let kept = got.is_ok_and(|got| self.keep_recalled(object, part, page, got.data));
        self.count(|c| match kept {
            true => c.network_hits += 1,
            false => c.network_misses += 1,
        });
    }

    /// Keeps what came and is right; says whether all of it is.
    fn keep_recalled(
        &self,
        object: &Object,
        part: &WindowPart,
        page: &Recalled,
        data: Frame,
    ) -> bool {
        if object.state.borrow().phase != Phase::Open {
            return false;
        }
        let end = page.first + data.len() / BLOCK_BYTES;
        let (from, to) = (page.first.max(part.blocks.start), end.min(part.blocks.end));
        if from >= to {
            return false;
        }
        let data = data.slice((from - page.first) * BLOCK_BYTES..(to - page.first) * BLOCK_BYTES);
        let part = WindowPart { index: part.index, blocks: from..to };
        let bad = self.keep(object, &part, data);
        self.count(|c| c.network_wrong += u64::from(bad.as_ref().is_ok_and(|bad| !bad.is_empty())));
        bad.is_ok_and(|bad| bad.is_empty())
    }
}
