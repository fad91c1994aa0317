//! READ of blocks that only the disk has, answered while the disk still reads (cut-through delivery, HPDC'97 section
//! 3).
//!
//! The checksums of the blocks are known before the blocks are, so header and trailer of the answer leave with its
//! first part; the others follow as the disk brings them. A part is what lies in one window, one disk read as for any
//! reader, loaded into the cache and verified likewise.
//!
//! It does not wait, repeat or refuse. Anything other than announced (a damaged block, a write in between, a disk that
//! stands still) spoils the answer: the client finds blocks that do not fit their checksums, retries, and gets its
//! answer in one piece, as all clients do for a while. While an answer is filling nothing else passes on its
//! connection, so none is begun when the disk is slow.
//!
//! Invariant: a part is sent only when it is in the cache with the checksums that the trailer announced.

use super::plan::ReadPlan;
use crate::cache::WindowPart;
use crate::limits::*;
use crate::object::group_of;
use crate::protocol::{set_sum, trailer_bytes};
use crate::server::Inner;
use crate::sources::Slowest;
use endpoint::Frame;
use node::{Answer, FillingReply, Request};
use std::cell::RefCell;
use std::rc::Rc;
use wire::Time;
use wire::limits::{BLOCK_BYTES, TRAILER_BYTES_MAX};

/// The range to be read, and its checksums.
struct Announced<'a> {
    plan: &'a ReadPlan<'a>,
    parts: Vec<WindowPart>,
    trailer: [u8; TRAILER_BYTES_MAX],
}

/// Progress of the answer.
struct Progress {
    /// Until the answer has begun.
    request: Option<Request>,
    /// While it is on its way.
    reply: Option<FillingReply>,
    /// When the reading began, then when the answer did.
    since: Time,
    /// Parts sent.
    sent: usize,
}

impl Inner {
    /// Answers a long READ part by part; leaves a request pending that is to be answered in one piece.
    pub async fn read_through(
        self: &Rc<Self>,
        pending: &mut Option<Request>,
        plan: &ReadPlan<'_>,
        slowest: &Slowest,
    ) {
        let Some(announced) = self.announce_sums(plan).await else { return };
        let since = self.cx.now();
        let progress = Progress { request: pending.take(), reply: None, since, sent: 0 };
        let progress = RefCell::new(progress);
        let parts = announced.parts.iter();
        let loads = parts.map(|part| self.load_part(&announced, part, (&progress, slowest)));
        node::race(node::all(loads), self.watch(&announced, &progress)).await;
        let mut progress = progress.into_inner();
        self.spoil(plan, &mut progress); // unless all of it is sent
        *pending = progress.request;
        if pending.is_none() {
            self.count(|c| c.cut_through += 1);
            self.note_answered(plan);
        }
    }

    /// `None` when the checksums are not known, or the object changed until they were.
    async fn announce_sums<'a>(&self, plan: &'a ReadPlan<'a>) -> Option<Announced<'a>> {
        let (object, blocks) = (&plan.object, plan.blocks());
        for group in group_of(blocks.start)..=group_of(blocks.end - 1) {
            self.need_group(object, group).await.ok()?;
        }
        // From here to the first disk read nothing waits, so nothing changes.
        let (length, end) = (object.state.borrow().head.length, plan.end());
        let whole = end == length || end.is_multiple_of(BLOCK_BYTES as u64);
        let spoilt = self.cx.now() < object.state.borrow().whole_until;
        if end > length || !whole || spoilt {
            return None;
        }
        let mut trailer = [0; TRAILER_BYTES_MAX];
        let cache = self.cache.borrow();
        for (at, block) in blocks.enumerate() {
            let sum = cache.sum(object.key, block);
            set_sum(&mut trailer, at, sum.or_else(|| cache.committed_sum(object.key, block))?);
        }
        Some(Announced { plan, parts: plan.parts().collect(), trailer })
    }

    async fn load_part(
        self: &Rc<Self>,
        announced: &Announced<'_>,
        part: &WindowPart,
        (progress, slowest): (&RefCell<Progress>, &Slowest),
    ) {
        // After an error the part is not there; who asks again is told why.
        let filled = self.fill_window(&announced.plan.object, part, false).await;
        filled.into_iter().for_each(|source| slowest.note(source));
        self.advance(announced, &mut progress.borrow_mut());
    }

    /// Sends the parts that are there, in order.
    fn advance(&self, announced: &Announced<'_>, progress: &mut Progress) {
        let mut data = self.cx.pieces::<Frame>();
        let left = announced.parts[progress.sent..].iter();
        let count = left.take_while(|part| self.take_loaded(announced, part, &mut data)).count();
        match (&progress.reply, progress.request.take()) {
            (Some(reply), _) => reply.fill(&data),
            (None, Some(request)) => match self.begin(announced, request, &data, progress.since) {
                Ok(reply) => (progress.reply, progress.since) = (Some(reply), self.cx.now()),
                Err(request) => {
                    progress.request = Some(request);
                    return;
                }
            },
            (None, None) => return,
        }
        progress.sent += count;
        if progress.sent == announced.parts.len() {
            progress.reply = None;
        }
    }

    /// Adds the bytes of a part to `data`, if it is in memory as it was announced.
    fn take_loaded(
        &self,
        Announced { plan, trailer, .. }: &Announced<'_>,
        part: &WindowPart,
        data: &mut Vec<Frame>,
    ) -> bool {
        let mut sums = [0; WINDOW_BLOCKS * size_of::<u32>()];
        let sums = &mut sums[..part.blocks.len() * size_of::<u32>()];
        let skipped = (part.first() - plan.blocks().start) as usize;
        let announced = &trailer[skipped * size_of::<u32>()..][..sums.len()];
        let (before, bytes) = (data.len(), plan.bytes_in(part));
        let hit = self.cache.borrow_mut().hit(plan.object.key, part.first(), bytes, data, sums);
        if announced != sums {
            data.truncate(before);
        }
        hit && announced == sums
    }

    /// Begins the answer with what is there of it, which has been waited for since `since`.
    fn begin(
        &self,
        Announced { plan, trailer, .. }: &Announced<'_>,
        request: Request,
        data: &[Frame],
        since: Time,
    ) -> Result<FillingReply, Request> {
        let there: usize = data.iter().map(|frame| frame.len()).sum();
        if self.cx.now() > since + THROUGH_SOON || there == plan.bytes {
            return Err(request);
        }
        let reply = self.describe(&plan.object);
        let trailer = &trailer[..trailer_bytes(plan.block_count())];
        let answer = Answer { status: 0, body: &reply.encode(), data, trailer };
        self.cx.reply_filling(request, answer, plan.bytes - there)
    }

    /// Spoils an answer that stands still. Never returns.
    async fn watch(&self, announced: &Announced<'_>, progress: &RefCell<Progress>) {
        self.cx.sleep(THROUGH_SOON).await;
        let begun = progress.borrow().since; // or it will not begin any more
        self.cx.sleep_until(begun + THROUGH_PATIENCE).await;
        self.spoil(announced.plan, &mut progress.borrow_mut());
        std::future::pending().await
    }

    /// Gives up an answer that is on its way. The next ones wait until all is there: else they could all fare so, and
    /// who asks too often takes it for a damaged block.
    fn spoil(&self, plan: &ReadPlan<'_>, progress: &mut Progress) {
        if progress.reply.take().is_some() {
            plan.object.state.borrow_mut().whole_until = self.cx.now() + THROUGH_PAUSE;
        }
    }
}
