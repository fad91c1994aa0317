//! Periodic work: epochs, and operations that could not end at once.

use super::{Load, Service};
use crate::epoch::{Digest, Epoch};
use crate::epochs::Ending;
use crate::limits::*;
use crate::protocol::{
    DIGEST_BYTES, Message, Tick, decode_digest, decode_epoch, encode_digest, encode_epoch, op,
};
use node::{Answer, Request, all};
use wire::{Decoder, Encoder, Errno, NodeId};

impl Service {
    /// The task that looks at the clock.
    pub(super) async fn tick(self) {
        loop {
            let ending = self.0.epochs.borrow().ending(self.cx().now());
            let live: Vec<NodeId> = self.view().members.iter().map(|up| up.node).collect();
            let initiator = self.0.epochs.borrow().initiator(self.cx().now(), &live);
            match (ending, initiator) {
                (Some(_), Some(node)) if node == self.me() => self.plan().await,
                (Some(Ending::Inaccurate), Some(node)) => self.hasten(node).await,
                _ => (),
            }
            self.end_late();
            self.keep_room();
            self.return_memory();
            self.cx().sleep(EPOCH_TICK.min(self.0.config.epoch.period)).await;
        }
    }

    /// Frees what was in the middle of something when its space was freed, and the spaces of owners that stay away.
    fn end_late(&self) {
        let now = self.cx().now();
        let silent = self.0.guests.borrow_mut().take_silent(now);
        {
            let mut pages = self.0.pages.borrow_mut();
            pages.forget_remains();
            pages.finish_freeing();
            silent.into_iter().for_each(|space| pages.free_space(space));
        }
        let overdue = self.0.home.borrow_mut().members_mut().poll_overdue(now, ORPHAN_SPAN);
        overdue.into_iter().for_each(|node| self.free_owner(node));
    }

    /// Asks all members how old their frames are, and tells them the next epoch.
    async fn plan(&self) {
        let number = self.0.epochs.borrow().next_number();
        let view = self.view();
        let mut digests = vec![self.digest()];
        let told = all(view.others(self.me()).map(|up| self.ask_digest(up.node, number))).await;
        digests.extend(told.into_iter().flatten());
        let epoch = Epoch::plan(number, &digests, &self.0.config.epoch);
        self.count(|counters| counters.epochs_planned += 1);
        let bytes = encode_epoch(&epoch);
        self.0.epochs.borrow_mut().handle_epoch(self.cx().now(), epoch);
        all(view.others(self.me()).map(|up| self.tell_epoch(up.node, &bytes))).await;
    }

    /// This node's frames.
    pub fn digest(&self) -> Digest {
        let now = self.cx().now();
        let store = self.store();
        let joined = self.0.home.borrow().members().joined();
        Digest {
            node: self.me(),
            member_for: joined.map_or_else(Default::default, |(joined, _)| now.since(joined)),
            link_pages: self.0.config.link_pages,
            ..store.digest(now)
        }
    }

    async fn ask_digest(&self, node: NodeId, epoch: u32) -> Option<Digest> {
        let into = self.cx().piece(self.cx().frames().alloc_exact(DIGEST_BYTES)?);
        let wait = self.0.config.epoch.period / DIGEST_WAIT_SHARE;
        let load = Load { into, wait, ..self.load() };
        let reply = self.send(node, op::DIGEST, &Tick { epoch }.encode(), load).await.ok()?;
        let data = reply.data.first().filter(|_| reply.status == 0)?;
        let digest = decode_digest(&mut Decoder::new(data.get(..reply.bytes)?)).ok()?;
        Some(digest).filter(|digest| digest.node == node)
    }

    async fn tell_epoch(&self, node: NodeId, bytes: &[u8]) {
        let Some(frame) = self.cx().frames().copy_of(bytes) else { return };
        let wait = self.0.config.epoch.period;
        let load = Load { data: self.cx().piece(frame), wait, ..self.load() };
        // who does not hear of it keeps the last one for three of them
        drop(self.send(node, op::EPOCH, &[0; 64], load).await);
    }

    async fn hasten(&self, initiator: NodeId) {
        let epoch = self.0.epochs.borrow().next_number();
        let load = Load { wait: EPOCH_TICK, ..self.load() };
        drop(self.send(initiator, op::HASTEN, &Tick { epoch }.encode(), load).await);
    }

    pub(super) fn handle_digest(&self, request: Request) {
        let Some(mut frame) = self.cx().frames().alloc_exact(DIGEST_BYTES) else {
            return self.cx().reply(request, Answer::error(Errno::ENOMEM));
        };
        encode_digest(&self.digest(), &mut Encoder::new(&mut frame));
        self.cx().reply(request, Answer { data: &[frame.freeze()], ..Answer::DONE });
    }

    pub(super) fn handle_epoch(&self, request: Request) {
        let data = request.data.first().map_or(&[][..], |frame| &frame[..]);
        let member = self.0.home.borrow().view().incarnation(request.source).is_some();
        match decode_epoch(&mut Decoder::new(data)) {
            Ok(epoch) if member => {
                self.0.epochs.borrow_mut().handle_epoch(self.cx().now(), epoch);
                self.cx().reply(request, Answer::DONE);
            }
            _ => self.cx().reply(request, Answer::error(Errno::EINVAL)),
        }
    }

    pub(super) fn handle_hasten(&self, request: Request) {
        let tick = Tick::decode(&request.body);
        let next = self.0.epochs.borrow().next_number();
        if tick.is_ok_and(|tick| tick.epoch >= next) {
            self.0.epochs.borrow_mut().handle_inaccurate();
        }
        self.cx().reply(request, Answer::DONE);
    }
}
