//! The memory that a node lends while it runs: less when its machine is short of memory, more again later.
//!
//! A smaller share applies at once to pages that would come in. Pages that are here leave in this order: other nodes'
//! clean pages, by age and to nodes with room; the node's own down to what it is guaranteed, made durable first; then
//! mirrors, each only when its directory says that the page has mirrors enough without this one, which it sees to. A
//! page that finds no room elsewhere stays, and counts as [`Share::over`] until it does. So nothing promised is lost.
//!
//! ```text
//!   this node ──HAND_ON──► directory ──MIRROR_AGAIN──► this node ──PUT──► another ──REGISTER──► both directories
//!       ▲                      │ enough without it: forgotten at the backup, then here
//!       └────── Ok ────────────┘
//! ```
//!
//! Pages of processes that are no nodes ([`guests`](super::guests)) stay: the process alone knows their other holders.

use super::events::Event;
use super::leave::evict;
use super::{Load, Service};
use crate::directory::{Entry, Holder, Role as HolderRole};
use crate::limits::*;
use crate::memory::{FrameNo, Role};
use crate::page::{PageId, Version};
use crate::protocol::{AVOID_MAX, Batch, Message, MirrorAgain, No, PutReply, Record, op};
use endpoint::limits::{PAGE_BYTES, STRETCH_BYTES};
use node::{Request, all};
use wire::NodeId;

/// The memory that a node lends, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// At most: [`Config::bytes`](super::Config::bytes).
    pub most: usize,
    /// Now, as was [said](Service::set_share) last.
    pub bytes: usize,
    /// Bytes of pages beyond that: they found no room elsewhere yet.
    pub over: usize,
    /// The part of the node's payload memory that the system has back.
    pub returned: usize,
}

impl Service {
    /// Limits pages to `bytes` bytes from now on, at most [`Config::bytes`](super::Config::bytes); a page that is
    /// longer than that has no room here. Pages that do not fit any more leave in the background, least valuable first.
    pub fn set_share(&self, bytes: usize) {
        self.store_mut().resize(bytes);
        self.raise(Event::ShareChanged);
        self.raise(Event::Eased);
    }

    /// The memory that this node lends now.
    pub fn share(&self) -> Share {
        let store = self.store();
        let returned = self.cx().frames().discarded_bytes();
        Share { most: self.config().bytes, bytes: store.limit(), over: store.over(), returned }
    }

    pub(super) fn view_number(&self) -> u64 {
        self.0.home.borrow().view().number
    }

    /// Gives memory that is not lent any more back to the system, in whole stretches of the pool, which are cleared of
    /// pages for that. A stretch that is used again is touched again.
    pub(super) fn return_memory(&self) {
        let (frames, share) = (self.cx().frames(), self.share());
        let wanted = (share.most - share.bytes) / STRETCH_BYTES;
        if wanted * STRETCH_BYTES <= frames.discarded_bytes() {
            return;
        }
        let scattered = || frames.free_pages() * PAGE_BYTES - frames.free_largest_bytes();
        let lacks = || frames.free_largest_bytes() < wanted * STRETCH_BYTES;
        let clears = || scattered() >= 2 * STRETCH_BYTES && lacks() && self.clear_stretch();
        let cleared = (0..CLEARED_STRETCHES_MAX).take_while(|_| clears());
        cleared.count();
        frames.discard_free(wanted, RETURNED_STRETCHES_MAX);
    }

    /// The task that makes pages leave while they take more than they may.
    pub(super) async fn shrink(self) {
        loop {
            let changed = self.0.events.wait(Event::ShareChanged);
            if self.share().over == 0 {
                changed.await;
                continue;
            }
            let gone = self.spare_some() || self.clean_one().await || self.hand_some_on().await;
            let pause = if gone { SHRINK_PAUSE } else { SHRINK_RETRY };
            let _ = self.cx().with_deadline(pause, changed).await;
        }
    }

    /// Lets pages go that lose nothing by it: no more at a time than can wait to be carried away. Says whether any
    /// went.
    fn spare_some(&self) -> bool {
        (0..SHRINK_PAGES).take_while(|_| self.spare_one()).count() > 0
    }

    fn spare_one(&self) -> bool {
        let mut store = self.store_mut();
        let spare = store.memory().poll_spare(self.cx().now()).filter(|_| store.is_over());
        let Some(held) = spare.and_then(|frame| evict(&mut store, frame)) else { return false };
        drop(store);
        self.leave(held);
        true
    }

    /// Makes a page of the node's own durable, so that it can go. Says whether there was one.
    async fn clean_one(&self) -> bool {
        let dirty = self.store().memory().poll_spare_dirty();
        match dirty {
            Some(frame) => self.secure(frame).await.is_ok(),
            None => false,
        }
    }

    /// Mirrors go elsewhere, those first that were not tried for longest. Says whether any went.
    async fn hand_some_on(&self) -> bool {
        let mirrors = self.some_mirrors();
        let gone = all(mirrors.into_iter().map(|(id, version)| self.hand_on(id, version))).await;
        gone.contains(&true)
    }

    /// The next ones to be tried, no more than what is over. Guests' are looked at and left.
    fn some_mirrors(&self) -> Vec<(PageId, Version)> {
        let mut store = self.store_mut();
        let mut over = store.over();
        let frames: Vec<FrameNo> = store.memory().old_mirrors(SHRINK_MIRRORS_SEEN).collect();
        let mut mirrors = Vec::new();
        for frame in frames {
            if mirrors.len() == SHRINK_MIRRORS || over == 0 {
                break;
            }
            let page = store.memory().page(frame).expect("a mirror");
            let (id, version) = (page.id, page.version);
            store.memory_mut().put_off(frame);
            if !id.space.is_guest() {
                over = over.saturating_sub(store.stored(frame).data.len());
                mirrors.push((id, version));
            }
        }
        mirrors
    }

    /// Has another node take over a mirror; it is given up here when the directory counts on it no more.
    async fn hand_on(&self, id: PageId, version: Version) -> bool {
        self.0.pages.borrow_mut().set_handed_on(id, true);
        let agreed = self.ask_to_hand_on(id, version).await;
        self.0.pages.borrow_mut().set_handed_on(id, false);
        if !matches!(agreed, Ok(_) | Err(No::Stale)) {
            self.claim_again(id, version);
            return false;
        }
        self.forget_copy(id, version);
        self.count(|counters| counters.handed_on += u64::from(agreed.is_ok()));
        true
    }

    /// The node that was asked may have agreed, and the answer is lost: the directories are told that the mirror is
    /// here.
    fn claim_again(&self, id: PageId, version: Version) {
        let copies = {
            let store = self.store();
            store.find(id).map_or(0, |(_, _, stored)| stored.copies)
        };
        self.register_late(self.record(id, version, HolderRole::Mirror, copies));
    }

    async fn ask_to_hand_on(&self, id: PageId, version: Version) -> Result<NodeId, No> {
        let copies = 0; // as many as the directory knows of
        let ask = MirrorAgain { id, version, copies, avoid: [NodeId::default(); AVOID_MAX] };
        let homes = self.0.home.borrow().homes(id).ok_or(No::Unregistered)?;
        if homes.primary == self.me() {
            return self.agree_to_hand_on(self.me(), &ask).await;
        }
        let load = Load { once: true, wait: ATTEMPT * 8, ..self.load() };
        let reply = self.ask_for(homes.primary, op::HAND_ON, &ask.encode(), load).await;
        reply.map_or(Err(No::Unregistered), |reply: PutReply| reply.stored)
    }

    /// Answers [`op::HAND_ON`], for this node's directory.
    pub(super) async fn handle_hand_on(&self, request: Request) {
        let stored = match MirrorAgain::decode(&request.body) {
            Ok(ask) => self.agree_to_hand_on(request.source, &ask).await,
            Err(_) => Err(No::Damaged),
        };
        self.answer_put(request, stored);
    }

    /// Sees to it that a page has mirrors enough without that of one node, and forgets that one. All of it in one view,
    /// in which this node is the page's home.
    async fn agree_to_hand_on(&self, from: NodeId, ask: &MirrorAgain) -> Result<NodeId, No> {
        let view = self.view_number();
        let entry = self.entry_for(ask)?;
        if others(&entry, from) < needed(&entry) {
            self.mirror_from(&entry, from).await?;
        }
        let entry = self.entry_for(ask)?;
        let enough = others(&entry, from) >= needed(&entry);
        if !enough || self.view_number() != view {
            return Err(No::Unregistered);
        }
        self.retire(&entry, from, view).await
    }

    /// The entry; an error where the directory is not sure of it.
    fn entry_for(&self, ask: &MirrorAgain) -> Result<Entry, No> {
        let home = self.0.home.borrow();
        if self.is_doubtful() || !home.is_primary(ask.id) || !home.is_settled() {
            return Err(No::Unregistered);
        }
        let entry = home.directory().entry(ask.id).ok_or(No::NotHere)?;
        match entry.version {
            newer if newer > ask.version => Err(No::Stale),
            same if same == ask.version => Ok(entry.clone()),
            _ => Err(No::NotHere),
        }
    }

    /// Retires a mirror of a node: first the other directory, then this one and the page's writer here. A mirror that
    /// is not known was retired by an earlier request whose answer was lost.
    async fn retire(&self, entry: &Entry, from: NodeId, view: u64) -> Result<NodeId, No> {
        let other =
            entry.mirror_holders().find(|h| h.node != from).map(|h| h.node).ok_or(No::NotHere)?;
        let Some(holder) = entry.mirror_holders().find(|h| h.node == from) else {
            return Ok(other);
        };
        let record = Record::new(entry.id, entry.version, *holder);
        let backups: Vec<NodeId> = self.0.home.borrow().other_homes(entry.id).collect();
        for backup in backups {
            self.unregister_at(backup, &record).await?;
        }
        if self.view_number() != view {
            return Err(No::Unregistered);
        }
        self.unregister_here(&record);
        self.renew_mirrors(entry.id, entry.version);
        Ok(other)
    }

    pub(super) async fn unregister_at(&self, home: NodeId, record: &Record) -> Result<(), No> {
        if home == self.me() {
            self.unregister_here(record);
            return Ok(());
        }
        let batch = Batch::of(self.view_number(), std::slice::from_ref(record), false);
        let load = Load { once: true, wait: ATTEMPT, ..self.load() };
        let reply = self.send(home, op::UNREGISTER, &batch.encode(), load).await;
        reply.ok().filter(|reply| reply.status == 0).map(drop).ok_or(No::Unregistered)
    }

    /// Counts, for a page that this node wrote and still has, the mirrors that the directory here knows of.
    fn renew_mirrors(&self, id: PageId, version: Version) {
        let home = self.0.home.borrow();
        let Some(entry) = home.directory().entry(id).filter(|e| e.version == version) else {
            return;
        };
        let mut store = self.store_mut();
        let found = store.find(id).filter(|(_, page, _)| page.version == version);
        let Some(frame) = found.map(|(frame, ..)| frame) else { return };
        if store.memory().role(frame) == Role::Mirror {
            return;
        }
        store.retain_mirrors(frame, |(node, _)| entry.mirror_holders().any(|h| h.node == *node));
        for Holder { node, incarnation, .. } in entry.mirror_holders() {
            store.handle_mirror(frame, version, (*node, *incarnation));
        }
    }
}

/// Mirrors of a page but for that of one node.
fn others(entry: &Entry, from: NodeId) -> usize {
    entry.mirror_holders().filter(|holder| holder.node != from).count()
}

/// Mirrors that a page is to have.
fn needed(entry: &Entry) -> usize {
    usize::from(entry.copies.max(1))
}
