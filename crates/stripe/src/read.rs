//! READ: from the cache at once, else from the disk in large aligned pieces, checksums verified once.
//!
//! A request is planned ([`ReadPlan`]), then answered by the first of these that can: the cache, network memory where
//! the blocks are, the disk while it still reads, the cache again when everything was loaded into it. A source that
//! cannot answer leaves the request pending.

mod ahead;
mod hints;
mod load;
mod network;
mod plan;
mod through;

use crate::limits::*;
use crate::objects::{Object, Phase, Spot};
use crate::protocol::{ObjectRequest, set_sum, trailer_bytes};
use crate::server::Inner;
use crate::sources::{Slowest, Source};
use endpoint::Frame;
use node::{Answer, Pieces, Request};
use plan::ReadPlan;
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::{BLOCK_BYTES, TRAILER_BYTES_MAX};
use wire::{Errno, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Checksums of 16 blocks, 64 KiB.
const TRAILER_BYTES_FEW: usize = 64;

/// A READ that memory could not answer at once, and its plan when its object is open.
pub(crate) type PendingRead<'a> = (Request, Option<ReadPlan<'a>>);

impl Inner {
    /// Answers a READ from memory, or says what is known of it.
    pub fn read_at_once<'a>(
        self: &Rc<Self>,
        request: Request,
        ask: &'a ObjectRequest,
    ) -> Option<PendingRead<'a>> {
        let began = self.begin_hit();
        let Some(plan) = self.plan_at_once(ask) else { return Some((request, None)) };
        if let Some(request) = self.read_from_cache(request, &plan) {
            return Some((request, Some(plan)));
        }
        self.count(|c| {
            c.reads += 1;
            c.hits += 1;
        });
        self.note_hit(began);
        None
    }

    /// The plan of a READ of an object that is open; nothing when it is refused.
    fn plan_at_once<'a>(&self, ask: &'a ObjectRequest) -> Option<ReadPlan<'a>> {
        let object = self.objects.borrow().get(Spot::of(ask))?.clone();
        let open = object.state.borrow().phase == Phase::Open;
        (open && self.check_read(&object, ask).is_ok()).then(|| ReadPlan::new(object, ask))
    }

    /// The plan of a READ, whose object is opened first if need be.
    async fn plan_read<'a>(self: &Rc<Self>, ask: &'a ObjectRequest) -> Result<ReadPlan<'a>, Errno> {
        let object = self.object(ask).await?;
        self.check_read(&object, ask)?;
        Ok(ReadPlan::new(object, ask))
    }

    /// Answers when all blocks are in the cache; else gives the request back.
    fn read_from_cache(self: &Rc<Self>, request: Request, plan: &ReadPlan<'_>) -> Option<Request> {
        let (mut few, mut many);
        let trailer = match trailer_bytes(plan.block_count()) {
            // Clearing the longest trailer costs more than looking up a few blocks.
            bytes @ ..=TRAILER_BYTES_FEW => {
                few = [0; TRAILER_BYTES_FEW];
                &mut few[..bytes]
            }
            bytes => {
                many = [0; TRAILER_BYTES_MAX];
                &mut many[..bytes]
            }
        };
        let mut data = self.cx.pieces::<Frame>();
        let (key, first) = (plan.object.key, plan.blocks().start);
        if !self.cache.borrow_mut().hit(key, first, plan.bytes, &mut data, trailer) {
            return Some(request);
        }
        self.reply_data(request, plan, &data, trailer);
        None
    }

    /// Answers with the bytes of a plan, and the checksums of their blocks. The reply describes the object as it is
    /// now: what was written behind the bytes meanwhile is in the last block's checksum.
    fn reply_data(
        self: &Rc<Self>,
        request: Request,
        plan: &ReadPlan<'_>,
        data: &Pieces<Frame>,
        trailer: &mut [u8],
    ) {
        let reply = self.describe(&plan.object);
        let within = (plan.end() % BLOCK) as usize;
        if let Some(last) = data.last().filter(|_| within > 0 && plan.end() < reply.length) {
            // The caller sees a part of the block, and can verify no more.
            let tail = last.len() - within;
            set_sum(trailer, plan.block_count() - 1, block_crc(&last[tail..]));
        }
        self.note_answered(plan);
        self.cx.reply(request, Answer { body: &reply.encode(), data, trailer, status: 0 });
    }

    fn note_answered(&self, plan: &ReadPlan<'_>) {
        self.note_reader(&plan.object, plan.blocks());
        self.count(|c| c.read_bytes += plan.bytes as u64);
    }

    /// READ with waiting.
    pub async fn read(self: &Rc<Self>, (request, plan): PendingRead<'_>, ask: &ObjectRequest) {
        self.count(|c| {
            c.reads += 1;
            c.misses += 1;
        });
        let (began, slowest) = (self.cx.instant(), Slowest::default());
        let mut pending = Some(request);
        self.missing.set(self.missing.get() + 1);
        let answered = self.answer_read(&mut pending, plan, ask, &slowest).await;
        self.missing.set(self.missing.get() - 1);
        match (answered, pending) {
            (Err(errno), Some(request)) => self.refuse(request, ask, errno),
            _ => self.note_read(slowest.get(), began),
        }
    }

    /// Answers a pending READ from wherever the blocks are. An error when it is to be refused.
    async fn answer_read(
        self: &Rc<Self>,
        pending: &mut Option<Request>,
        plan: Option<ReadPlan<'_>>,
        ask: &ObjectRequest,
        slowest: &Slowest,
    ) -> Result<(), Errno> {
        if let Some(plan) = plan {
            self.read_in_place(pending, &plan, slowest).await;
        }
        let mut is_first = true;
        while pending.is_some() {
            let plan = self.plan_read(ask).await?;
            match is_first && plan.is_long() {
                true => self.read_through(pending, &plan, slowest).await,
                false => self.read_whole(pending, &plan, slowest).await?,
            }
            is_first = false;
        }
        Ok(())
    }

    /// Whether the caller may read: shape of the request, epoch.
    pub fn check_read(&self, object: &Object, ask: &ObjectRequest) -> Result<(), Errno> {
        let whole = ask.offset.is_multiple_of(BLOCK) && ask.bytes as usize <= TRANSFER_BYTES_MAX;
        if !whole || ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let state = object.state.borrow();
        if self.is_old_layout(&state, ask) {
            return Err(Errno::ESTALE);
        }
        // An object that was not found on a disk that turned out to be missing may be there.
        if state.exists { Ok(()) } else { self.disk(object).check() }
    }

    /// When a READ that may be answered at once begins; nothing for those that are not measured. A node's time stands
    /// still while it is answered, so this is a look at the world's clock.
    fn begin_hit(&self) -> Option<Time> {
        let hits = self.hits.get().wrapping_add(1);
        self.hits.set(hits);
        hits.is_multiple_of(HITS_SAMPLED).then(|| self.cx.instant())
    }

    /// A READ has been answered at once.
    fn note_hit(&self, began: Option<Time>) {
        let took = began.map(|began| self.cx.instant().since(began));
        self.sources.borrow_mut().note(Source::Cache, took);
    }

    /// A READ has been answered that could not be at once. Also of these some end in the step in which they began: what
    /// they ask for is in this node's part of network memory.
    fn note_read(&self, source: Source, began: Time) {
        let took = self.cx.instant().since(began);
        self.sources.borrow_mut().note(source, Some(took));
    }
}
