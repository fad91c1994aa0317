//! Several neighbouring pages at once: what [`prefetch`](super::prefetch) asks for.

use super::Service;
use super::prefetch::PAGES;
use crate::limits::EXTENT_PAGES;
use crate::memory::{Durability, Role};
use crate::page::{PageId, PageStamp};
use crate::protocol::{GetMulti, HOLDING_BYTES, Holding, LookUp, Message, MultiReply, op};
use arrayvec::ArrayVec;
use endpoint::Frame;
use node::{Answer, Request};
use wire::field::Field;
use wire::{Decoder, Encoder, Errno, NodeId};

impl Service {
    /// Holders of the pages.
    pub(super) async fn look_up(&self, first: PageId, pages: u8) -> ArrayVec<Holding, PAGES> {
        let ask =
            LookUp { first, pages: pages.min((EXTENT_PAGES - first.index % EXTENT_PAGES) as u8) };
        let primary = self.0.home.borrow().homes(first).map(|homes| homes.primary);
        match primary {
            Some(node) if node == self.me() => self.holdings(&ask),
            Some(node) => self.ask_holdings(node, &ask).await.unwrap_or_default(),
            None => ArrayVec::new(),
        }
    }

    async fn ask_holdings(&self, node: NodeId, ask: &LookUp) -> Option<ArrayVec<Holding, PAGES>> {
        let reply = self.send(node, op::LOOK_UP, &ask.encode(), self.load()).await.ok()?;
        let mut input = Decoder::new(reply.trailer());
        let all = (0..ask.pages).map_while(|_| Holding::take(&mut input).ok()).collect();
        Some(all).filter(|_| reply.status == 0)
    }

    fn holdings(&self, ask: &LookUp) -> ArrayVec<Holding, PAGES> {
        let pick = self.cx().random() as usize;
        (0..usize::from(ask.pages)).map(|at| self.holding(page_at(ask.first, at), pick)).collect()
    }

    /// A page with a writer is not sent to others ahead of time. `Nowhere` is answered only when all nodes have
    /// reported their copies.
    fn holding(&self, id: PageId, pick: usize) -> Holding {
        let mut home = self.0.home.borrow_mut();
        if home.leases().writer(id).is_some() || home.is_freed(id.space) {
            return Holding::Unknown;
        }
        match home.directory().entry(id) {
            Some(entry) => Holding::of(home.directory().look_up(id, entry.version), pick),
            None if home.knows_all(id) => Holding::Nowhere,
            None => Holding::Unknown,
        }
    }

    pub(super) fn handle_look_up(&self, request: Request) {
        let Ok(ask) = LookUp::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let mut trailer = [0; PAGES * HOLDING_BYTES];
        let mut out = Encoder::new(&mut trailer);
        self.holdings(&ask).iter().for_each(|holding| holding.put(&mut out));
        let len = out.len();
        self.cx().reply(request, Answer { trailer: &trailer[..len], ..Answer::DONE });
    }

    pub(super) fn handle_get_multi(&self, request: Request) {
        let Ok(ask) = GetMulti::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let mut here = 0;
        let mut data = ArrayVec::<Frame, PAGES>::new();
        let mut trailer = [0; PAGES * PageStamp::BYTES];
        let mut out = Encoder::new(&mut trailer);
        for at in (0..PAGES).filter(|at| ask.wanted & 1 << at != 0) {
            let page = page_at(ask.first, at);
            let Some((stamp, frame)) = self.copy_ahead(page, &ask, request.source) else {
                continue;
            };
            here |= 1 << at;
            stamp.put(&mut out);
            data.push(frame);
        }
        let len = out.len();
        self.count(|counters| counters.served += data.len() as u64);
        let body = MultiReply { here }.encode();
        let answer = Answer { status: 0, body: &body, data: &data, trailer: &trailer[..len] };
        self.cx().reply(request, answer);
    }

    /// Only two kinds of pages are sent ahead: those on stable storage without a writer, whose copies need no
    /// bookkeeping, and mirrors that go to their owner.
    fn copy_ahead(&self, id: PageId, ask: &GetMulti, source: NodeId) -> Option<(PageStamp, Frame)> {
        if self.writing().has(id) || self.doubts(id) {
            return None;
        }
        let mut store = self.store_mut();
        let (frame, page, stored) = store.find(id)?;
        let fits = page.version >= ask.at_least && stored.data.len() == ask.bytes as usize;
        let (clean, given) = (
            page.durability == Durability::Clean,
            (stored.stamp(id, page.version), stored.data.clone()),
        );
        let mirror = store.memory().role(frame) == Role::Mirror && id.space.owner() == Some(source);
        if !fits || !(clean || mirror) {
            return None;
        }
        match ask.ahead {
            true => store.memory_mut().handle_copied_ahead(frame),
            false => store.memory_mut().handle_copied(self.cx().now(), frame),
        }
        Some(given)
    }
}

fn page_at(first: PageId, at: usize) -> PageId {
    PageId { index: first.index.wrapping_add(at as u64), ..first }
}
