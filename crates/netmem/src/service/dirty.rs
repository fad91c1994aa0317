//! Dirty pages: made durable before their frames are needed, and again when a node goes down.

use super::events::Event;
use super::put::{Avoid, Weak};
use super::store::Stored;
use super::{Load, Service};
use crate::directory::{Entry, Holder};
use crate::limits::*;
use crate::memory::{Arrival, Class, Durability, FrameNo, Page, Role};
use crate::page::{PageId, PageStamp, SpaceId, Version};
use crate::protocol::{AVOID_MAX, Message, MirrorAgain, No, PutReply, Record, op};
use endpoint::Frame;
use node::{Bug, all};
use std::cell::RefCell;
use wire::NodeId;

/// A dirty page that is being made durable. Its frame keeps it until this is dropped.
struct Busy<'a> {
    service: &'a Service,
    frame: FrameNo,
    id: PageId,
    version: Version,
    class: Class,
    have: u8,
    stamp: PageStamp,
    data: Frame,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.service.store_mut().memory_mut().handle_sent(self.frame);
        self.service.0.pages.borrow_mut().forget_remains();
        self.service.raise(Event::Eased);
    }
}

fn copies(page: &Page) -> u8 {
    match page.durability {
        Durability::Clean => u8::MAX,
        Durability::Dirty { copies } => copies,
    }
}

/// The result of a flush of pages that went with an earlier incarnation, or did not.
fn unless_gone(gone: bool) -> Result<(), Weak> {
    if gone { Err(Weak { have: 0, needed: 1 }) } else { Ok(()) }
}

impl Service {
    /// Makes a page that this node has written as durable as its class says: on stable storage, in mirrors. A page
    /// acknowledged so survives the failures that its class names. `Ok` too when the page is not here: then it left,
    /// which it can only when it is durable, unless the others gave this node up: a page of a shared space that it had
    /// not made durable then is gone, and this an error until it is written again. Waits up to
    /// [`Config::patience`](super::Config::patience) for nodes that take mirrors.
    pub async fn flush(&self, id: PageId) -> Result<(), Weak> {
        self.make_durable(id).await?;
        unless_gone(self.0.pages.borrow().has_failed(id))
    }

    /// As [`flush`](Service::flush), whatever was lost with an earlier incarnation.
    pub(super) async fn make_durable(&self, id: PageId) -> Result<(), Weak> {
        let until = self.cx().now() + self.0.config.patience;
        loop {
            let eased = self.0.events.wait(Event::Eased);
            match self.dirt(id) {
                Dirt::None => return Ok(()),
                // another task is at it, perhaps with an older version
                Dirt::Busy => {
                    let _ = self.cx().with_deadline(PAUSE_MAX, eased).await;
                }
                Dirt::Dirty(frame) => match self.secure(frame).await {
                    Ok(()) => (),
                    Err(weak) if self.cx().now() >= until => return Err(weak),
                    Err(_) => self.cx().sleep(CLEANING_PAUSE).await,
                },
            }
        }
    }

    /// As [`flush`](Service::flush), every page of a space that this node has written, eight at a time: an error too
    /// when one of them was lost with an earlier incarnation.
    pub async fn flush_space(&self, space: SpaceId) -> Result<(), Weak> {
        let ids: Vec<PageId> = {
            let store = self.store();
            let dirty = store.memory().pages().filter(|(_, role, page)| {
                page.id.space == space && *role != Role::Mirror && !page.is_durable()
            });
            dirty.map(|(_, _, page)| page.id).collect()
        };
        for some in ids.chunks(8) {
            let ended = all(some.iter().map(|id| self.flush(*id))).await;
            ended.into_iter().collect::<Result<(), Weak>>()?;
        }
        unless_gone(self.0.pages.borrow().has_failed_in(space))
    }

    pub(super) fn dirt(&self, id: PageId) -> Dirt {
        let store = self.store();
        match store.find(id) {
            Some((frame, page, _)) if store.memory().role(frame) != Role::Mirror => match page {
                page if page.is_durable() => Dirt::None,
                page if page.busy => Dirt::Busy,
                _ => Dirt::Dirty(frame),
            },
            _ => Dirt::None,
        }
    }

    /// One of the tasks that make dirty pages durable when their frames are needed.
    pub(super) async fn clean(self) {
        loop {
            let pressure = self.0.events.wait(Event::Pressure);
            let dirty = self.store().memory().poll_dirty();
            let Some(frame) = dirty.filter(|_| !self.has_reserve()) else {
                pressure.await;
                continue;
            };
            if self.secure(frame).await.is_err() {
                self.cx().sleep(CLEANING_PAUSE).await;
            }
        }
    }

    /// Whether frames that are free, or could be at once, are enough for a while.
    fn has_reserve(&self) -> bool {
        let store = self.store();
        store.has_room(PAGE_BYTES_MAX) || store.memory().poll_durable(self.cx().now()).is_some()
    }

    /// Makes the page in a frame durable. Panics when it is not dirty, or busy.
    pub(super) async fn secure(&self, frame: FrameNo) -> Result<(), Weak> {
        let busy = self.begin(frame);
        match busy.class {
            Class::WriteBack => self.write_back(&busy).await,
            Class::Mirrored | Class::Volatile => self.make_mirrors(&busy).await,
        }
    }

    fn begin(&self, frame: FrameNo) -> Busy<'_> {
        let mut store = self.store_mut();
        let page = *store.memory().page(frame).expect("a dirty page");
        assert!(!page.busy && !page.is_durable());
        store.memory_mut().handle_sending(frame);
        let stored = store.stored(frame);
        let stamp = stored.stamp(page.id, page.version);
        let (id, version, class) = (page.id, page.version, page.class);
        let (have, data) = (copies(&page), stored.data.clone());
        Busy { service: self, frame, id, version, class, have, stamp, data }
    }

    async fn write_back(&self, busy: &Busy<'_>) -> Result<(), Weak> {
        let weak = Weak { have: 0, needed: 0 };
        let backing = self.backing(busy.id.space).ok_or(weak)?;
        let written = backing.write(busy.id, busy.version, busy.data.clone()).await;
        written.map_err(|_| weak)?;
        self.count(|counters| counters.written_back += 1);
        self.note_written(busy.id, busy.version);
        Ok(())
    }

    async fn make_mirrors(&self, busy: &Busy<'_>) -> Result<(), Weak> {
        let needed = busy.class.copies().expect("a class with mirrors");
        let missing = usize::from(needed.saturating_sub(busy.have));
        let one = missing > 1 && self.cx().has_bug(Bug::OneMirrorForTwo);
        let missing = if one { 1 } else { missing };
        let avoid = self.mirrors_of(busy);
        let made = all((0..missing).map(|_| self.make_mirror(busy, &avoid))).await;
        if one {
            self.store_mut().memory_mut().handle_stored(busy.frame, busy.version);
        }
        made.into_iter().collect::<Result<(), No>>().map_err(|_| busy.weak(needed))
    }

    /// Holders of mirrors. Tasks that make mirrors side by side add the node before they ask it.
    fn mirrors_of(&self, busy: &Busy<'_>) -> RefCell<Avoid> {
        let store = self.store();
        RefCell::new(store.stored(busy.frame).mirrors.iter().map(|(node, _)| *node).collect())
    }

    /// One mirror of a page, counted where it is still this version.
    async fn make_mirror(&self, busy: &Busy<'_>, avoid: &RefCell<Avoid>) -> Result<(), No> {
        let copies = busy.class.copies().unwrap_or(1);
        let incarnation = self.incarnation();
        let node = self.mirror(&self.put_of(busy.stamp, copies), &busy.data, avoid).await?;
        if self.incarnation() != incarnation {
            return Err(No::Outside); // who took it in has freed it again, as a page of an earlier incarnation
        }
        let incarnation = self.0.home.borrow().view().incarnation(node).ok_or(No::Outside)?;
        self.store_mut().handle_mirror(busy.frame, busy.version, (node, incarnation));
        Ok(())
    }

    /// A page that left is here again. One of the node's own that depends on copies elsewhere is as dirty as it was,
    /// wherever its bytes come from: those copies go with this incarnation of the node, and it stays.
    pub(super) fn come_back(&self, arrival: Arrival, stored: &mut Stored) -> Arrival {
        match self.depends(arrival.id, arrival.version) {
            true => self.with_mirrors(arrival, stored),
            false => arrival,
        }
    }

    /// Whether a version of the node's own page is on no stable storage.
    pub(super) fn depends(&self, id: PageId, version: Version) -> bool {
        let home = self.0.home.borrow();
        let entry = home.directory().entry(id).filter(|entry| entry.version == version);
        id.space.owner() == Some(self.me()) && entry.is_some_and(Entry::is_hard)
    }

    /// A dirty page of the node's own, of which its directory says who has mirrors.
    pub(super) fn with_mirrors(&self, arrival: Arrival, stored: &mut Stored) -> Arrival {
        let Arrival { id, version, .. } = arrival;
        let home = self.0.home.borrow();
        let entry = home.directory().entry(id).filter(|entry| entry.version == version);
        for Holder { node, incarnation, .. } in entry.into_iter().flat_map(Entry::mirror_holders) {
            let _ = stored.mirrors.try_push((*node, *incarnation));
        }
        let wanted = entry.map_or(1, |entry| entry.copies);
        let class = match wanted {
            0 | 1 => Class::Volatile,
            _ => Class::Mirrored,
        };
        let copies = stored.mirrors.len() as u8;
        let durability = Durability::Dirty { copies };
        Arrival { class, durability, ..arrival }
    }

    /// One of the tasks that make mirrors anew, of pages in this node's directory.
    pub(super) async fn repair(self) {
        loop {
            let more = self.0.events.wait(Event::RepairDue);
            let Some(entry) = self.next_repair() else {
                let (now, rests) = (self.cx().now(), self.0.home.borrow().repairs_rest_until());
                let span = rests.map_or(PAUSE_MAX, |until| until.since(now));
                let _ = self.cx().with_deadline(span, more).await;
                continue;
            };
            let repaired = self.repair_page(&entry).await;
            if let Some(node) = repaired {
                self.count(|counters| counters.mirrors_again += 1);
                self.note_mirror_of_own(&entry, node);
            }
            let whole = repaired.is_some() && entry.mirrors_missing() == 1;
            self.0.home.borrow_mut().handle_repair(self.cx().now(), entry.id, whole);
        }
    }

    fn next_repair(&self) -> Option<Entry> {
        let (mut home, now) = (self.0.home.borrow_mut(), self.cx().now());
        let entry = home.poll_repair(now)?;
        if self.cx().has_bug(Bug::MirrorsNotMadeAgain) {
            home.handle_repair(now, entry.id, true);
            return None;
        }
        Some(entry)
    }

    /// Has a surviving mirror make another one.
    async fn repair_page(&self, entry: &Entry) -> Option<NodeId> {
        for holder in entry.mirror_holders() {
            match self.mirror_from(entry, holder.node).await {
                Ok(node) => return Some(node),
                Err(No::NotHere) => self.forget_mirror(entry, holder),
                Err(_) => (),
            }
        }
        None
    }

    /// Has a node make another mirror of what it has.
    pub(super) async fn mirror_from(&self, entry: &Entry, node: NodeId) -> Result<NodeId, No> {
        let mut avoid = [NodeId::default(); AVOID_MAX];
        avoid.iter_mut().zip(&entry.holders).for_each(|(to, holder)| *to = holder.node);
        let Entry { id, version, copies, .. } = *entry;
        let ask = MirrorAgain { id, version, copies: copies.max(1), avoid };
        match node == self.me() {
            true => self.mirror_again(&ask).await,
            false => self.ask_for_mirror(node, &ask).await,
        }
    }

    /// The node that was asked just now does not have what it had: it is no mirror.
    fn forget_mirror(&self, entry: &Entry, holder: &Holder) {
        self.unregister_here(&Record::new(entry.id, entry.version, *holder));
    }

    /// Counts a new mirror of a page that this node wrote, if it still has it.
    fn note_mirror_of_own(&self, entry: &Entry, node: NodeId) {
        let incarnation = self.0.home.borrow().view().incarnation(node);
        let mut store = self.store_mut();
        let frame = store.memory().find(entry.id);
        let own = frame.filter(|frame| store.memory().role(*frame) != Role::Mirror);
        if let (Some(frame), Some(incarnation)) = (own, incarnation) {
            store.handle_mirror(frame, entry.version, (node, incarnation));
        }
    }

    async fn ask_for_mirror(&self, node: NodeId, ask: &MirrorAgain) -> Result<NodeId, No> {
        let load = Load { once: true, wait: ATTEMPT * 4, ..self.load() };
        let reply = self.ask_for(node, op::MIRROR_AGAIN, &ask.encode(), load).await;
        reply.map_or(Err(No::Unregistered), |reply: PutReply| reply.stored)
    }
}

/// The work that a page's durability needs.
pub(super) enum Dirt {
    None,
    Busy,
    Dirty(FrameNo),
}

impl Busy<'_> {
    fn weak(&self, needed: u8) -> Weak {
        let store = self.service.store();
        let have = store.memory().page(self.frame).map_or(0, copies);
        Weak { have, needed }
    }
}
