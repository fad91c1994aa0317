//! Several neighbouring pages at once: what prefetch asks for.

use super::store::Stored;
use super::{Load, Service};
use crate::directory::Found;
use crate::limits::{ATTEMPT, EXTENT_PAGES};
use crate::memory::{Arrival, Durability};
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::protocol::{Get, GetMulti, HOLDING_BYTES, Holding, LookUp, Message, MultiReply, op};
use arrayvec::ArrayVec;
use endpoint::Frame;
use node::{Answer, Request};
use wire::{Decoder, Encoder, Errno, NodeId};

const PAGES: usize = EXTENT_PAGES as usize;

impl Service {
    /// Fetches what other nodes have of the `pages` pages from `first` on, which are in one extent of
    /// [`EXTENT_PAGES`], each of `bytes` bytes and of version `at_least` or newer. Nobody waits for them: a page is
    /// kept only in a frame that is free, so that it displaces nothing. Answers with how many came.
    pub async fn fetch_ahead(
        &self,
        first: PageId,
        pages: u8,
        at_least: Version,
        bytes: u32,
    ) -> usize {
        let holdings = self.look_up(first, pages).await;
        let mut missing: u16 = 0;
        for (at, holding) in holdings.iter().enumerate() {
            let id = page_at(first, at);
            let absent = self.0.store.borrow().find(id).is_none();
            let held = matches!(holding, Holding::Held(version, node)
                if *version >= at_least && *node != self.me());
            missing |= u16::from(absent && held) << at;
        }
        let mut came = 0;
        while missing != 0 {
            let at = missing.trailing_zeros() as usize;
            let Holding::Held(_, node) = holdings[at] else { break };
            let same =
                |at: &usize| matches!(holdings[*at], Holding::Held(_, other) if other == node);
            let wanted =
                (0..holdings.len()).filter(same).fold(0, |bits, at| bits | 1 << at) & missing;
            missing &= !wanted;
            let ask = GetMulti { first, wanted, at_least, bytes, ahead: true };
            came += self.fetch_from(node, &ask).await.unwrap_or(0);
        }
        came
    }

    /// Has another node read a page from stable storage, early (PGMS, section 3): `node` keeps it where it has a free
    /// frame. Says whether it did.
    pub async fn fetch_elsewhere(&self, node: NodeId, wanted: Wanted) -> bool {
        let get = Get::new(wanted.id, wanted.at_least, wanted.bytes, self.me());
        let load = Load { wait: ATTEMPT, ..self.load() };
        let reply = self.send(node, op::FETCH_AHEAD, &get.encode(), load).await;
        let there = reply.is_ok_and(|reply| reply.status == 0);
        if there {
            self.0.guesses.borrow_mut().put(wanted.id, node);
        }
        there
    }

    /// Who holds which of the pages.
    async fn look_up(&self, first: PageId, pages: u8) -> ArrayVec<Holding, PAGES> {
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
        let all = (0..ask.pages).map_while(|_| Holding::read(&mut input).ok()).collect();
        Some(all).filter(|_| reply.status == 0)
    }

    fn holdings(&self, ask: &LookUp) -> ArrayVec<Holding, PAGES> {
        let home = self.0.home.borrow();
        let pick = self.cx().random() as usize;
        let holding = |at| {
            let found = match home.directory().entry(page_at(ask.first, at)) {
                Some(entry) => home.directory().look_up(entry.id, entry.version),
                None => Found::Unknown,
            };
            Holding::of(found, pick)
        };
        (0..usize::from(ask.pages)).map(holding).collect()
    }

    pub(super) fn handle_look_up(&self, request: Request) {
        let Ok(ask) = LookUp::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let mut trailer = [0; PAGES * HOLDING_BYTES];
        let mut out = Encoder::new(&mut trailer);
        self.holdings(&ask).iter().for_each(|holding| holding.write(&mut out));
        let len = out.len();
        self.cx().reply(request, Answer { trailer: &trailer[..len], ..Answer::DONE });
    }

    async fn fetch_from(&self, node: NodeId, ask: &GetMulti) -> Option<usize> {
        let pages = ask.wanted.count_ones() as usize;
        let into = self.cx().frames().alloc_exact(pages * ask.bytes as usize)?;
        let load = Load { into: self.cx().piece(into), ..self.load() };
        let reply = self.send(node, op::GET_MULTI, &ask.encode(), load).await.ok()?;
        let here = MultiReply::decode(&reply.body).ok().filter(|_| reply.status == 0)?.here;
        let (mut stamps, mut came) = (Decoder::new(reply.trailer()), 0);
        let mut data = reply.data.first()?.get(..reply.bytes)?;
        for at in (0..PAGES).filter(|at| here & ask.wanted & 1 << at != 0) {
            let (page, rest) = data.split_at_checked(ask.bytes as usize)?;
            data = rest;
            let stamp = PageStamp::decode(&mut stamps).ok()?;
            let wanted =
                Wanted { id: page_at(ask.first, at), at_least: ask.at_least, bytes: ask.bytes };
            came += usize::from(self.keep_ahead(wanted, &stamp, page));
        }
        Some(came)
    }

    /// A page that nobody waits for takes a free frame or none. It is copied: its neighbours may go before it.
    fn keep_ahead(&self, wanted: Wanted, stamp: &PageStamp, page: &[u8]) -> bool {
        let good = {
            let mut counters = self.0.counters.borrow_mut();
            counters.misses.mismatches.verify(wanted, stamp, [page]).is_some()
        };
        if !good || !self.0.store.borrow().has_room(page.len()) {
            return false;
        }
        let Some(data) = self.cx().frames().copy_of(page) else { return false };
        let PageStamp { id, version, checksum, .. } = *stamp;
        let arrival = Arrival { id, version, duplicate: true, reused: true, ..Arrival::default() };
        let kept = self.keep(arrival, Stored::new(data, checksum));
        if kept {
            self.announce(id, version);
        }
        kept
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
            let Some((stamp, frame)) = self.clean_copy(page_at(ask.first, at), &ask) else {
                continue;
            };
            here |= 1 << at;
            stamp.encode(&mut out);
            data.push(frame);
        }
        let len = out.len();
        self.count(|counters| counters.served += data.len() as u64);
        let body = MultiReply { here }.encode();
        let answer = Answer { status: 0, body: &body, data: &data, trailer: &trailer[..len] };
        self.cx().reply(request, answer);
    }

    /// Only what is on stable storage travels ahead: a copy of it is nobody's business.
    fn clean_copy(&self, id: PageId, ask: &GetMulti) -> Option<(PageStamp, Frame)> {
        let mut store = self.0.store.borrow_mut();
        let (frame, page, stored) = store.find(id)?;
        let fits = page.version >= ask.at_least && stored.data.len() == ask.bytes as usize;
        if !fits || page.durability != Durability::Clean {
            return None;
        }
        let given = (stored.stamp(id, page.version), stored.data.clone());
        store.memory_mut().handle_copied(self.cx().now(), frame);
        Some(given)
    }
}

fn page_at(first: PageId, at: usize) -> PageId {
    PageId { index: first.index.wrapping_add(at as u64), ..first }
}
