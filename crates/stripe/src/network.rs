//! What left the cache for network memory comes back from there, before a disk is asked.
//!
//! Network memory is never waited for long, and no error of it is one of a read: the disk has all of it. Whatever comes
//! is verified by the committed checksums, as what a disk returns.

use crate::cache::{InPlace, Recalled, WindowPart};
use crate::limits::*;
use crate::object::group_of;
use crate::objects::{Object, Phase, Spot};
use crate::protocol::{ObjectRequest, set_sum, trailer_bytes};
use crate::read::{Found, available};
use crate::server::Inner;
use crate::sources::{Slowest, Source};
use endpoint::Frame;
use node::{Bug, Either, Request, race};
use std::ops::Range;
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

/// A READ of blocks of one chunk, which is in network memory.
struct Elsewhere {
    object: Rc<Object>,
    blocks: Range<u64>,
    read: InPlace,
}

impl Inner {
    /// Waits, for not long, while more leaves the cache than is carried away: `bytes` bytes more need room in it.
    pub async fn wait_for_carriers(&self, bytes: usize) {
        if let Some(service) = self.config.memory.as_ref().filter(|service| service.is_busy()) {
            let patience = CARRY_PATIENCE * bytes.div_ceil(BLOCK_BYTES) as u32;
            service.wait_for_carriers(patience / WINDOW_BLOCKS as u32).await;
        }
    }

    /// Answers a READ of a few blocks from where their chunk is; gives every other request back.
    pub async fn read_in_place(
        self: &Rc<Self>,
        request: Request,
        ask: &ObjectRequest,
        slowest: &Slowest,
    ) -> Option<Request> {
        let Some(elsewhere) = self.elsewhere(ask) else { return Some(request) };
        let read = race(self.blocks_of(&elsewhere), self.cx.sleep(NETWORK_PATIENCE)).await;
        let data = match read {
            Either::Left(data) => data,
            Either::Right(()) => {
                self.count(|c| c.network_late += 1);
                None
            }
        };
        let found = data.and_then(|data| self.check_in_place(&elsewhere, ask, data));
        let Some((found, mut trailer)) = found else {
            self.cache.borrow_mut().forget_in_place(&elsewhere.read);
            self.count(|c| c.network_misses += 1);
            return Some(request);
        };
        self.count(|c| {
            (c.network_hits, c.network_in_place) = (c.network_hits + 1, c.network_in_place + 1)
        });
        slowest.note(Source::Network);
        self.reply_data(request, &found, &mut trailer);
        None
    }

    /// Where a READ's blocks are, if that is a chunk in network memory with nothing newer here.
    fn elsewhere(&self, ask: &ObjectRequest) -> Option<Elsewhere> {
        self.config.memory.as_ref()?;
        let object = self.objects.borrow().get(Spot::of(ask))?.clone();
        self.check_in_memory(&object, ask)?;
        let (first, bytes) = (ask.offset / BLOCK_BYTES as u64, available(&object, ask));
        let blocks = first..first + (bytes / BLOCK_BYTES) as u64;
        let chunk = |block: u64| block / CHUNK_BLOCKS as u64;
        let one = bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES);
        if !one || chunk(blocks.start) != chunk(blocks.end - 1) {
            return None;
        }
        let mut cache = self.cache.borrow_mut();
        let known = cache.has_group(object.key, group_of(first));
        let read = if known { cache.in_place(object.key, &blocks)? } else { return None };
        drop(cache);
        Some(Elsewhere { object, blocks, read })
    }

    async fn blocks_of(&self, elsewhere: &Elsewhere) -> Option<Frame> {
        let service = self.config.memory.clone()?;
        let Elsewhere { blocks, read, .. } = elsewhere;
        let start = (blocks.start % CHUNK_BLOCKS as u64) as usize * BLOCK_BYTES;
        let bytes = (blocks.end - blocks.start) as usize * BLOCK_BYTES;
        service.read_part(read.wanted, start..start + bytes).await
    }

    /// Blocks as they came, with their checksums, if they are the committed ones still.
    fn check_in_place(
        &self,
        elsewhere: &Elsewhere,
        ask: &ObjectRequest,
        data: Frame,
    ) -> Option<(Found, Vec<u8>)> {
        let Elsewhere { object, blocks, read } = elsewhere;
        let bytes = data.len();
        self.check_in_memory(object, ask)?;
        let cache = self.cache.borrow();
        if !cache.is_in_place(read) || available(object, ask) != bytes {
            return None;
        }
        let trusting = self.cx.has_bug(Bug::AwayPageTaken);
        let mut trailer = vec![0; trailer_bytes(bytes / BLOCK_BYTES)];
        for (at, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            let sum = block_crc(block);
            let committed = cache.committed_sum(object.key, blocks.start + at as u64);
            if committed != Some(sum) && !trusting {
                self.count(|c| c.network_wrong += 1);
                return None;
            }
            set_sum(&mut trailer, at, sum);
        }
        let data = self.cx.piece(data);
        Some((self.found(object.clone(), ask, bytes, data), trailer))
    }

    /// Whether an object that is in memory may be read as is asked.
    fn check_in_memory(&self, object: &Object, ask: &ObjectRequest) -> Option<()> {
        let open = object.state.borrow().phase == Phase::Open;
        (open && self.check_read(object, ask).is_ok()).then_some(())
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
