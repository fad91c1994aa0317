//! Another node's page is taken in; a page of this node's own is given to others to keep.

use super::Service;
use super::events::Event;
use super::home::Home;
use super::leave::SWAP_BYTES;
use super::store::{Stored, blocks};
use crate::directory::Role as HolderRole;
use crate::guest::offer;
use crate::limits::{ATTEMPT, MIRROR_TRIES};
use crate::memory::{FrameNo, Offer, Reason};
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::protocol::{
    AVOID_MAX, Batch, Message, MirrorAgain, No, Put, PutReply, Record, Verdict, op,
};
use arrayvec::ArrayVec;
use endpoint::Frame;
use members::replicas::farthest;
use node::{Answer, Bug, Request, all};
use std::cell::RefCell;
use wire::field::Field;
use wire::{Decoder, NodeId};

/// A dirty page could not be made as durable as its class asks: too few nodes take mirrors, or stable storage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a page of this class needs {needed} copies elsewhere and has {have}: add nodes or memory, or wait"
)]
pub struct Weak {
    /// Copies that there are.
    pub have: u8,
    /// Copies that the class asks for; 0 is stable storage.
    pub needed: u8,
}

/// Nodes that are not asked for a mirror: those that have one, and those that refused.
pub(super) type Avoid = ArrayVec<NodeId, AVOIDED_MAX>;
const AVOIDED_MAX: usize = MIRROR_TRIES + AVOID_MAX;

impl Service {
    /// Answers [`op::PUT`].
    pub(super) async fn handle_put(&self, mut request: Request) {
        let stored = match Put::decode(&request.body) {
            Ok(put) => {
                let data = request.data.pop().filter(|_| request.bytes == put.stamp.bytes as usize);
                let data = data.map(|frame| frame.freeze());
                self.take_in(request.source, &put, data).await
            }
            Err(_) => Err(No::Damaged),
        };
        self.answer_put(request, stored);
    }

    pub(super) fn answer_put(&self, request: Request, stored: Result<NodeId, No>) {
        if let Err(no) = stored {
            self.count(|counters| counters.refusals.count(no));
        }
        let reply = PutReply { stored, oldest: self.oldest() };
        self.cx().reply(request, Answer::body(&reply.encode()));
    }

    /// Takes a page in, and registers it before it says so.
    async fn take_in(&self, source: NodeId, put: &Put, data: Option<Frame>) -> Result<NodeId, No> {
        let data = data.ok_or(No::Damaged)?;
        self.accept(source, put, data)?;
        self.0.epochs.borrow_mut().handle_taken();
        let PageStamp { id, version, .. } = put.stamp;
        let role = if put.is_mirror() { HolderRole::Mirror } else { HolderRole::Clean };
        let record = self.record(id, version, role, put.copies);
        // of its own clean page the answer tells it where it is; a copy that others write to must not be without a word
        let owner = id.space.owner().filter(|owner| *owner == source && !put.is_mirror());
        let unknown = id.space.is_guest() || self.cx().has_bug(Bug::MirrorNotRegistered);
        if !unknown {
            self.register_taken(&record, owner).await?;
        }
        Ok(self.me())
    }

    /// Registers a page that was taken in. A page that cannot be registered is dropped again, but for a mirror that a
    /// directory counts already.
    pub(super) async fn register_taken(
        &self,
        record: &Record,
        knows: Option<NodeId>,
    ) -> Result<(), No> {
        let Record { id, version, holder, .. } = *record;
        let registered = self.register(record, knows).await;
        // in whatever frame: it may have been dropped meanwhile, and have come again
        let here = self.store().find(id).is_some_and(|(_, page, _)| page.version == version);
        match registered {
            Ok(()) if here => return Ok(()),
            Err(No::Unregistered) if here && holder.role == HolderRole::Mirror => {
                self.register_late(*record);
                return registered;
            }
            Ok(()) => (),
            Err(_) => self.forget_copy(id, version),
        }
        self.deny_all(record);
        registered.and(Err(No::Stale))
    }

    /// Checks the bytes and the table; what has to go for the page is withdrawn.
    pub(super) fn accept(&self, source: NodeId, put: &Put, data: Frame) -> Result<FrameNo, No> {
        self.admits(source, put)?;
        let PageStamp { id, version, bytes, checksum } = put.stamp;
        let wanted = Wanted { id, at_least: version, bytes };
        if !self.verify(wanted, &put.stamp, &data) {
            return Err(No::Damaged);
        }
        let offer = Offer {
            id,
            version,
            blocks: blocks(data.len()),
            age: put.age,
            chances: put.chances,
            reused: put.reused,
            mirror: put.is_mirror(),
        };
        let stored = Stored { copies: put.copies, ..Stored::new(data, checksum) };
        let accepted = self.store_mut().accept(self.cx().now(), offer, stored);
        let (frame, gone) = accepted.map_err(|refused| no(refused.reason))?;
        if id.space.is_guest() {
            self.0.guests.borrow_mut().handle_stored(self.cx().now(), id.space);
        }
        gone.iter().for_each(|held| self.withdraw(held));
        self.count(|counters| {
            counters.accepted += 1;
            counters.dropped += gone.len() as u64;
        });
        Ok(frame)
    }

    /// Whether this node takes pages from that one, in the incarnation that the view says.
    fn admits(&self, source: NodeId, put: &Put) -> Result<(), No> {
        let home = self.0.home.borrow();
        if home.is_freed(put.stamp.id.space) {
            return Err(No::Freed);
        }
        if self.0.pages.borrow().is_handed_on(put.stamp.id) {
            return Err(No::InUse);
        }
        let guest = put.stamp.id.space.is_guest();
        let private = put.stamp.id.space.owner().is_some() && !put.is_mirror();
        if !guest && !private && put.view != home.view().number {
            return Err(No::Outside);
        }
        let member = home.members().is_member();
        let known = guest || home.view().has(source, put.incarnation);
        if member && known { Ok(()) } else { Err(No::Outside) }
    }

    /// A copy that could not be registered, or is not wanted any more.
    pub(super) fn forget_copy(&self, id: PageId, version: Version) {
        let mut store = self.store_mut();
        let frame = store.find(id).filter(|(_, page, _)| page.version == version);
        if let Some((frame, ..)) = frame {
            store.drop_older(frame, Version(version.0 + 1));
        }
    }

    /// Tells both homes of a page who has it, and waits for them. A clean copy concerns the primary only, which `knows`
    /// if the page is its own and came from there.
    pub(super) async fn register(&self, record: &Record, knows: Option<NodeId>) -> Result<(), No> {
        let homes = self.0.home.borrow().homes(record.id).ok_or(No::Unregistered)?;
        let told = homes.told_of(record.holder.role).filter(|home| Some(*home) != knows);
        let verdicts = all(told.map(|home| async move {
            (home == homes.primary, self.register_at(home, record).await)
        }));
        verdicts.await.into_iter().try_for_each(|(primary, verdict)| match verdict {
            Some(Verdict::Done) => Ok(()),
            Some(Verdict::Stale(_)) => Err(No::Stale),
            Some(Verdict::Freed) => Err(No::Freed),
            // what the backup has no place for takes that of a mirror which the primary refuses
            Some(Verdict::Enough) if primary => Err(No::InUse),
            Some(Verdict::Full) => Err(No::Room),
            Some(Verdict::Enough | Verdict::NotHome | Verdict::Outlived | Verdict::Later)
            | None => Err(No::Unregistered),
        })
    }

    pub(super) fn register_here(&self, record: &Record) -> Verdict {
        self.at_home(|home| home.register(record))
    }

    pub(super) fn unregister_here(&self, record: &Record) -> Verdict {
        self.at_home(|home| home.unregister(record))
    }

    /// Changes this node's directory; who is to be told of it is.
    pub(super) fn at_home<T>(&self, change: impl FnOnce(&mut Home) -> T) -> T {
        let mut home = self.0.home.borrow_mut();
        let said = change(&mut home);
        if home.notices().len() > 0 {
            self.raise(Event::NoticeWaits);
        }
        said
    }

    async fn register_at(&self, home: NodeId, record: &Record) -> Option<Verdict> {
        if home == self.me() {
            return Some(self.register_here(record));
        }
        let view = self.view_number();
        let batch = Batch::of(view, std::slice::from_ref(record), false);
        let load = super::Load { once: true, wait: ATTEMPT, ..self.load() };
        self.ask_for(home, op::REGISTER, &batch.encode(), load).await
    }

    /// Gives one more mirror of a page to a node that is not to be avoided: who has it then.
    pub(super) async fn mirror(
        &self,
        put: &Put,
        data: &Frame,
        avoid: &RefCell<Avoid>,
    ) -> Result<NodeId, No> {
        let mut last = No::Room;
        for _ in 0..MIRROR_TRIES {
            let Some(to) = self.mirror_target(&avoid.borrow()) else { return Err(last) };
            let _ = avoid.borrow_mut().try_push(to);
            let view = self.view_number();
            match self.put_to(to, &Put { view, ..*put }, data.clone()).await {
                Ok(PutReply { stored: Ok(node), .. }) => {
                    self.count(|counters| counters.mirrors_made += 1);
                    return Ok(node);
                }
                Ok(PutReply { stored: Err(no), .. }) => last = no,
                // it may have it, or not: no mirror is counted, and if it has, the directories hear of it
                Err(_) => (),
            }
            if last == No::Freed {
                return Err(last);
            }
        }
        Err(last)
    }

    /// Of the nodes that are up, the one with the older frame of two that are drawn (Mitzenmacher, The Power of Two
    /// Choices, TPDS 2001). None that is to be avoided; and of the others those on machines of their own, else those on
    /// this one: then at least the mirrors are on two.
    fn mirror_target(&self, avoid: &Avoid) -> Option<NodeId> {
        let (home, epochs) = (self.0.home.borrow(), self.0.epochs.borrow());
        let machine = |node: &NodeId| home.view().machine(*node);
        let copies: ArrayVec<u64, AVOIDED_MAX> = avoid.iter().map(machine).collect();
        let others = home.view().others(self.me()).map(|up| up.node);
        let others = others.filter(|node| !avoid.contains(node));
        let others = farthest(others, machine, &copies, machine(&self.me()));
        let count = others.clone().count() as u64;
        let draw = || others.clone().nth((self.cx().random() % count) as usize);
        if count == 0 {
            return None;
        }
        let oldest = |node| epochs.current().share(node).map(|share| share.oldest);
        let (one, other) = (draw()?, draw()?);
        Some(if oldest(other) > oldest(one) { other } else { one })
    }

    /// Answers [`op::MIRROR_AGAIN`]: one more mirror of a page that this node has one of.
    pub(super) async fn handle_mirror_again(&self, request: Request) {
        let stored = match MirrorAgain::decode(&request.body) {
            Ok(ask) => self.mirror_again(&ask).await,
            Err(_) => Err(No::Damaged),
        };
        self.answer_put(request, stored);
    }

    pub(super) async fn mirror_again(&self, ask: &MirrorAgain) -> Result<NodeId, No> {
        let Some((put, data)) = self.mirrored_here(ask) else {
            return Err(self.without_mirror(ask).await);
        };
        let avoid: Avoid = ask.avoid.into_iter().filter(|node| node.0 != 0).collect();
        self.mirror(&put, &data, &RefCell::new(avoid)).await
    }

    /// Reaction to a repair of a mirror that is not here: if this node has written a newer version in its place, that
    /// one is made durable instead; if it has taken a newer mirror in, that one is about to be registered.
    async fn without_mirror(&self, ask: &MirrorAgain) -> No {
        let newer = {
            let store = self.store();
            store.find(ask.id).is_some_and(|(_, page, _)| page.version > ask.version)
        };
        if newer && self.writing().has(ask.id) {
            // whether it succeeds in time or not, the directory asks again
            let _ = self.cx().with_deadline(ATTEMPT * 2, self.flush(ask.id)).await;
        }
        if newer {
            return No::Stale;
        }
        // whichever directory took this node for a holder, the other one does too
        self.deny_all(&self.record(ask.id, ask.version, HolderRole::Mirror, ask.copies));
        No::NotHere
    }

    fn mirrored_here(&self, ask: &MirrorAgain) -> Option<(Put, Frame)> {
        let store = self.store();
        let (_, page, stored) = store.find(ask.id)?;
        let stamp = stored.stamp(page.id, page.version);
        let (age, reused) = (page.age(self.cx().now()), page.reused);
        let put = Put { age, reused, ..self.put_of(stamp, ask.copies) };
        (page.version == ask.version).then(|| (put, stored.data.clone()))
    }

    /// A mirror, sent by this node, of a page that needs one.
    pub(super) fn put_of(&self, stamp: PageStamp, copies: u8) -> Put {
        Put { incarnation: self.incarnation(), ..offer(stamp, copies) }
    }

    /// The page that came with [`op::TAKE`], if this node has room for it. It belongs to who sent it, whose directory
    /// learns of it by the answer.
    pub(super) fn swap_in(&self, request: &mut Request) -> bool {
        let put = Put::take(&mut Decoder::new(request.trailer()));
        let trailer = request.trailer().len();
        let (Ok(put), SWAP_BYTES) = (put, trailer) else { return false };
        let Some(data) = request.data.pop() else { return false };
        let own = put.stamp.id.space.owner() == Some(request.source) && !put.is_mirror();
        if !own || request.bytes != put.stamp.bytes as usize {
            return false;
        }
        let taken = self.accept(request.source, &put, data.freeze());
        taken.map_err(|no| self.count(|counters| counters.refusals.count(no))).is_ok()
    }
}

fn no(reason: Reason) -> No {
    match reason {
        Reason::NoRoom => No::Room,
        Reason::InUse => No::InUse,
        Reason::Stale => No::Stale,
    }
}
