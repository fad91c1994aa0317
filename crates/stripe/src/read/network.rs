//! Reads from network memory of chunks that left the cache, before a disk is asked.
//!
//! Network memory is never waited for long, and no error of it is one of a read: the disk has all of it. Its data is
//! verified by the committed checksums, as that of a disk.

use super::plan::ReadPlan;
use crate::cache::{InPlace, Recalled, WindowPart};
use crate::limits::*;
use crate::object::group_of;
use crate::objects::{Object, Phase};
use crate::protocol::{set_sum, trailer_bytes};
use crate::server::Inner;
use crate::sources::{Slowest, Source};
use endpoint::Frame;
use node::{Bug, Either, Request, race};
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

impl Inner {
    /// Waits, for not long, while more leaves the cache than is carried away: `bytes` bytes more need room in it.
    pub async fn wait_for_carriers(&self, bytes: usize) {
        if let Some(service) = self.config.memory.as_ref().filter(|service| service.is_busy()) {
            let patience = CARRY_PATIENCE * bytes.div_ceil(BLOCK_BYTES) as u32;
            service.wait_for_carriers(patience / WINDOW_BLOCKS as u32).await;
        }
    }

    /// Answers a READ of a few blocks from where their chunk is; leaves every other request pending.
    pub async fn read_in_place(
        self: &Rc<Self>,
        pending: &mut Option<Request>,
        plan: &ReadPlan<'_>,
        slowest: &Slowest,
    ) {
        let Some(service) = &self.config.memory else { return };
        let Some(read) = self.in_place(plan) else { return };
        let start = (plan.blocks().start % CHUNK_BLOCKS as u64) as usize * BLOCK_BYTES;
        let part = service.read_part(read.wanted, start..start + plan.bytes);
        let data = match race(part, self.cx.sleep(NETWORK_PATIENCE)).await {
            Either::Left(data) => data,
            Either::Right(()) => {
                self.count(|c| c.network_late += 1);
                None
            }
        };
        let checked = data.and_then(|data| self.check_in_place(plan, &read, data));
        let Some((data, mut sums)) = checked else {
            self.cache.borrow_mut().forget_in_place(&read);
            self.count(|c| c.network_misses += 1);
            return;
        };
        self.count(|c| {
            (c.network_hits, c.network_in_place) = (c.network_hits + 1, c.network_in_place + 1)
        });
        slowest.note(Source::Network);
        let request = pending.take().expect("a pending READ");
        self.reply_data(request, plan, &self.cx.piece(data), &mut sums);
    }

    /// The page with a READ's blocks, if that is a chunk in network memory with nothing newer here.
    fn in_place(&self, plan: &ReadPlan<'_>) -> Option<InPlace> {
        let (key, blocks) = (plan.object.key, plan.blocks());
        let chunk = |block: u64| block / CHUNK_BLOCKS as u64;
        let whole = plan.bytes > 0 && plan.bytes.is_multiple_of(BLOCK_BYTES);
        if !whole || chunk(blocks.start) != chunk(blocks.end - 1) {
            return None;
        }
        let mut cache = self.cache.borrow_mut();
        let known = cache.has_group(key, group_of(blocks.start));
        if known { cache.in_place(key, &blocks) } else { None }
    }

    /// Blocks as they came, with their checksums, if they are the committed ones still.
    fn check_in_place(
        &self,
        plan: &ReadPlan<'_>,
        read: &InPlace,
        data: Frame,
    ) -> Option<(Frame, Vec<u8>)> {
        let object = &plan.object;
        let open = object.state.borrow().phase == Phase::Open;
        let readable = open && self.check_read(object, plan.ask).is_ok();
        let cache = self.cache.borrow();
        let same = plan.has_same_bytes() && data.len() == plan.bytes && cache.is_in_place(read);
        if !readable || !same {
            return None;
        }
        let trusting = self.cx.has_bug(Bug::AwayPageTaken);
        let mut sums = vec![0; trailer_bytes(plan.block_count())];
        for (at, (block, number)) in data.chunks_exact(BLOCK_BYTES).zip(plan.blocks()).enumerate() {
            let sum = block_crc(block);
            if cache.committed_sum(object.key, number) != Some(sum) && !trusting {
                self.count(|c| c.network_wrong += 1);
                return None;
            }
            set_sum(&mut sums, at, sum);
        }
        Some((data, sums))
    }

    /// Brings what network memory has of a part into the cache, if it comes soon. Says whether it was asked.
    pub async fn load_from_network(&self, object: &Rc<Object>, part: &WindowPart) -> Source {
        let recalled = self.cache.borrow_mut().recall(object.key, part);
        if recalled.is_empty() {
            return Source::Cache;
        }
        let all = node::all(recalled.iter().map(|page| self.fetch(object, part, page)));
        if let Either::Right(()) = race(all, self.cx.sleep(NETWORK_PATIENCE)).await {
            self.count(|c| c.network_late += 1);
        }
        Source::Network
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
