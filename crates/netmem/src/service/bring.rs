//! A batch of pages comes to this node's memory before anybody asks for them: see [`prefetch`](super::prefetch).

use super::ahead::Batch;
use super::prefetch::PAGES;
use super::waiting::First;
use super::{Backing, Load, Service, Source};
use crate::ages::Age;
use crate::page::{PageStamp, Wanted};
use crate::protocol::{GetMulti, Holding, Message, MultiReply, op};
use arrayvec::ArrayVec;
use node::{Reply, all};
use std::cell::RefCell;
use std::rc::Rc;
use wire::field::Field;
use wire::{Decoder, NodeId};

/// Pages that are on their way, by their place in the extent.
type Slots<'a> = RefCell<[Option<First<'a>>; PAGES]>;

/// Locations of a batch's pages, by bits.
#[derive(Debug, Default)]
struct Locations {
    /// At other nodes.
    nodes: ArrayVec<(NodeId, u16), PAGES>,
    /// On stable storage only.
    stored: u16,
}

impl Locations {
    fn add(&mut self, node: NodeId, at: usize) {
        match self.nodes.iter_mut().find(|(other, _)| *other == node) {
            Some((_, bits)) => *bits |= 1 << at,
            None => self.nodes.push((node, 1 << at)),
        }
    }
}

/// The places of some pages in the extent.
fn places(bits: u16) -> impl Iterator<Item = usize> {
    (0..PAGES).filter(move |at| bits & 1 << at != 0)
}

impl Service {
    /// Brings pages to this node's memory: from other nodes, several in one message where they are together, else from
    /// stable storage. A request for one of them meanwhile waits for it.
    pub(super) async fn bring(&self, batch: Batch) {
        let start = self.cx().now();
        let slots = RefCell::new(self.open_slots(&batch));
        if slots.borrow().iter().all(Option::is_none) {
            return;
        }
        let Locations { nodes, stored } = self.find_all(&batch, &slots).await;
        all(nodes.iter().map(|(node, bits)| self.fetch_from(*node, &batch, *bits, &slots))).await;
        if let Some(backing) = self.backing(batch.first.space) {
            all(places(stored).map(|at| self.read_ahead(&backing, &batch, at, &slots))).await;
        }
        self.0.ahead.borrow_mut().handle_fetched(self.cx().now().since(start));
    }

    /// Locations of the pages that are still to be fetched. Gives up those whose location is not known.
    async fn find_all(&self, batch: &Batch, slots: &Slots<'_>) -> Locations {
        let holdings = self.look_up(batch.first, PAGES as u8).await;
        let mut found = Locations::default();
        for (at, holding) in holdings.iter().enumerate() {
            match *holding {
                _ if !self.is_open(slots, at) => (),
                Holding::Held(version, node) if version >= batch.at_least && node != self.me() => {
                    found.add(node, at);
                }
                Holding::Nowhere => found.stored |= 1 << at,
                _ => slots.borrow_mut()[at] = None,
            }
        }
        found
    }

    /// Whether a page is still to be fetched, and not disowned.
    fn is_open(&self, slots: &Slots<'_>, at: usize) -> bool {
        let slots = slots.borrow();
        let number = slots[at].as_ref().map(First::number);
        number.is_some_and(|number| !self.fetches().is_disowned(number))
    }

    /// Fetches pages that one node has; gives up those that do not come.
    async fn fetch_from(&self, node: NodeId, batch: &Batch, wanted: u16, slots: &Slots<'_>) {
        if let Some((reply, here)) = self.ask_for_many(node, batch, wanted, slots).await {
            let _ = self.take_many(&reply, batch, here & wanted, slots);
        }
        places(wanted).for_each(|at| slots.borrow_mut()[at] = None);
    }

    /// The answer, and which of the pages it has.
    async fn ask_for_many(
        &self,
        node: NodeId,
        batch: &Batch,
        wanted: u16,
        slots: &Slots<'_>,
    ) -> Option<(Reply, u16)> {
        let Batch { first, at_least, bytes, .. } = *batch;
        let ask = GetMulti { first, wanted, at_least, bytes, ahead: true };
        let into = self.cx().frames().alloc_exact(wanted.count_ones() as usize * bytes as usize)?;
        for at in places(wanted) {
            let number = slots.borrow()[at].as_ref().map(First::number);
            number.into_iter().for_each(|number| self.fetches().note_begun(number));
        }
        let load = Load { into: self.cx().piece(into), ..self.load() };
        let reply = self.send(node, op::GET_MULTI, &ask.encode(), load).await.ok()?;
        let here = MultiReply::decode(&reply.body).ok().filter(|_| reply.status == 0)?.here;
        Some((reply, here))
    }

    /// Takes the pages out of an answer, one after the other; `None` where it is shorter than it says.
    fn take_many(&self, reply: &Reply, batch: &Batch, here: u16, slots: &Slots<'_>) -> Option<()> {
        let mut stamps = Decoder::new(reply.trailer());
        let mut data = reply.data.first()?.get(..reply.bytes)?;
        for at in places(here) {
            let (page, rest) = data.split_at_checked(batch.bytes as usize)?;
            data = rest;
            let stamp = PageStamp::take(&mut stamps).ok()?;
            let slot = slots.borrow_mut()[at].take();
            self.arrive_copied(slot, batch.page(at)?, &stamp, page, batch.time_to_use);
        }
        Some(())
    }

    /// A page of several that came in one message. It is copied: the others may leave before it.
    fn arrive_copied(
        &self,
        slot: Option<First<'_>>,
        wanted: Wanted,
        stamp: &PageStamp,
        page: &[u8],
        time_to_use: Age,
    ) {
        let good = self.verify(wanted, stamp, page);
        let data = good.then(|| self.cx().frames().copy_of(page)).flatten();
        if let (Some(slot), Some(data)) = (slot, data) {
            self.arrive(slot, *stamp, data, Source::Peer, time_to_use);
        }
    }

    async fn read_ahead(
        &self,
        backing: &Rc<dyn Backing>,
        batch: &Batch,
        at: usize,
        slots: &Slots<'_>,
    ) {
        let Some((slot, wanted)) = slots.borrow_mut()[at].take().zip(batch.page(at)) else {
            return;
        };
        let _permit = self.0.permits.early_reads.acquire(1).await;
        if self.yields() || self.fetches().is_disowned(slot.number()) {
            return;
        }
        self.fetches().note_reading(slot.number());
        let Wanted { id, at_least, bytes } = wanted;
        let Ok(Some((version, data))) = backing.read(id, at_least, bytes).await else { return };
        if version < at_least || data.len() != bytes as usize {
            return;
        }
        let stamp = PageStamp::of(id, version, [&data[..]]);
        self.arrive(slot, stamp, data, Source::Backing, batch.time_to_use);
    }
}
