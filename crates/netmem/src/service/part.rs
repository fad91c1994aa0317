//! A part of a page of this node's own is read where the page is, and the page stays there: who needs a few blocks once
//! need not have all of them moved, and nothing has to leave for them.

use super::counters::Source;
use super::home::Route;
use super::{Load, Service};
use crate::memory::Memory;
use crate::page::{PageStamp, Wanted};
use crate::protocol::{Get, GetPart, GetReply, Message, Stale, op};
use endpoint::Frame;
use node::{Answer, Reply, Request};
use std::ops::Range;
use wire::{Errno, NodeId};

impl Service {
    /// Bytes `part` of a page of a private space of this node, from wherever the page is; there they count as a use of
    /// it. `None` when they do not come from the node that should have them: where the page is not is forgotten.
    pub async fn read_part(&self, wanted: Wanted, part: Range<usize>) -> Option<Frame> {
        let ask = GetPart::new(wanted, &part)?;
        let get = Get::new(wanted.id, wanted.at_least, wanted.bytes, self.me());
        let began = self.begin_get();
        if let Some(given) = self.give_noting(&get, true, Memory::handle_use) {
            self.count_here(began);
            return Some(given.data.slice(part));
        }
        let Route::To(stale, _) = self.direct(&get) else { return None };
        let start = self.cx().now();
        let data = self.ask_part(stale.node, &get, &ask).await?;
        let took = self.cx().now().since(start);
        self.0.peers.borrow_mut().handle_answer(stale.node, took);
        self.count(|counters| counters.hit(Source::Peer, Some(took)));
        Some(data)
    }

    async fn ask_part(&self, to: NodeId, get: &Get, ask: &GetPart) -> Option<Frame> {
        let into = self.cx().frames().alloc_exact(ask.range().len())?;
        let load = Load { into: self.cx().piece(into), ..self.load() };
        let mut reply = self.send(to, op::GET_PART, &ask.encode(), load).await.ok()?;
        match GetReply::decode(&reply.body).ok().filter(|_| reply.status == 0)? {
            GetReply::Data(data) => self.verified_part(ask, &data.stamp, &mut reply),
            GetReply::NotHere { stale, .. } | GetReply::Older { stale, .. } => {
                self.forget_holder(get, stale);
                None
            }
            _ => None,
        }
    }

    fn verified_part(&self, ask: &GetPart, stamp: &PageStamp, reply: &mut Reply) -> Option<Frame> {
        let wanted = Wanted { bytes: ask.length, ..ask.wanted };
        let frame = reply.data.pop().filter(|_| reply.bytes == ask.range().len())?;
        self.verify(wanted, stamp, &frame).then(|| frame.freeze())
    }

    /// The node that was asked does not have the page: this node's directory forgets that it did.
    fn forget_holder(&self, get: &Get, stale: Stale) {
        self.count(|counters| counters.misses.not_here += 1);
        let _ = self.direct(&Get { stale: Some(stale), ..*get });
    }

    /// Answers [`op::GET_PART`].
    pub(super) fn handle_get_part(&self, request: Request) {
        let Ok(ask) = GetPart::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let Wanted { id, at_least, bytes } = ask.wanted;
        let get = Get::new(id, at_least, bytes, request.source);
        let Some(mut given) = self.give_noting(&get, true, Memory::handle_read) else {
            let reply = self.not_here(&get);
            return self.answer_get(request, reply);
        };
        given.data = given.data.slice(ask.range());
        given.stamp = PageStamp::of(id, given.stamp.version, [&given.data[..]]);
        self.answer_data(request, &get, given, false);
    }
}
