//! Whether another node's page is taken in, and what makes room for it.

use super::evict::Hosted;
use super::{Class, Durability, FrameNo, Memory, Page, Role};
use crate::ages::Age;
use crate::limits::OWN_TENTHS;
use crate::page::{PageId, Version};
use wire::Time;

/// A page that another node would leave here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The page.
    pub id: PageId,
    /// Its content.
    pub version: Version,
    /// Blocks of 4 KiB that it takes.
    pub blocks: u8,
    /// How old it is, effectively.
    pub age: Age,
    /// Times that it may still be passed on without a use.
    pub chances: u8,
    /// It was used again since it was read from disk.
    pub reused: bool,
    /// It is dirty, and this is to be a mirror of it.
    pub mirror: bool,
}

/// Room was made, and the page is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The frame.
    pub frame: FrameNo,
    /// The page that it displaced, whose directory is to be told.
    pub displaced: Option<Page>,
}

/// Why a page is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No frame is free, none is old enough, or the rest is guaranteed to the node's own pages.
    NoRoom,
    /// The node has the page in its own use, or a mirror of it, or its bytes are just leaving.
    InUse,
    /// The node has a newer version.
    Stale,
}

/// The page is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The oldest page that would have been.
    pub oldest: Age,
}

impl Offer {
    fn role(&self) -> Role {
        match self.mirror {
            true => Role::Mirror,
            // Elsewhere it is no sign of a scan: a working set begins like that too, and its owner remembers nothing.
            false if !self.reused && self.id.space.is_cache() => Role::Passing,
            false => Role::Hosted,
        }
    }

    /// The age that another page must have to go for this one. A mirror is as urgent as a page can be.
    fn rank(&self) -> Age {
        if self.mirror { Age::NEWEST } else { self.age.of_use(self.reused) }
    }

    fn page(&self, now: Time) -> Page {
        let durability = match self.mirror {
            true => Durability::Dirty { copies: 0 },
            false => Durability::Clean,
        };
        Page {
            id: self.id,
            version: self.version,
            class: Class::default(),
            durability,
            chances: self.chances,
            reused: self.reused,
            ..Page::new(self.age.used_at(now))
        }
    }
}

impl Memory {
    /// Takes another node's page in if there is a free frame, an older page of another node, or one of the node's own
    /// that is half as old again and above its guaranteed minimum. The caller has verified the bytes, and registers the
    /// page before it says that it has it.
    pub fn accept(&mut self, now: Time, offer: Offer) -> Result<Accepted, Refused> {
        let refused = |reason| Refused { reason, oldest: self.oldest_taken(now) };
        if let Some(reason) = self.refuses(&offer) {
            return Err(refused(reason));
        }
        let present = self.find(offer.id);
        let room = present.or_else(|| self.room(now, &offer));
        let frame = room.ok_or_else(|| refused(Reason::NoRoom))?;
        let displaced = self.empty(frame).filter(|page| page.id != offer.id);
        self.fill(frame.0, offer.role(), offer.page(now));
        Ok(Accepted { frame, displaced })
    }

    /// Why an offer is refused whatever could make room for it.
    pub fn refuses(&self, offer: &Offer) -> Option<Reason> {
        let present = self.find(offer.id);
        let objection = present.and_then(|frame| self.objection(frame, offer));
        let no_room = || (!self.has_mirror_room(offer, present)).then_some(Reason::NoRoom);
        objection.or_else(no_room)
    }

    /// Gives up the page that would make room for an offer if no frame were free: where pages are of several lengths,
    /// one frame may not be room enough.
    pub fn displace(&mut self, now: Time, offer: &Offer) -> Option<(FrameNo, Page)> {
        let older = self.hosted_for(now, offer);
        let frame = FrameNo(older.or_else(|| self.own_room(now, offer))?);
        Some((frame, self.empty(frame)?))
    }

    /// The oldest page that [`accept`](Memory::accept) would take in now.
    pub fn oldest_taken(&self, now: Time) -> Age {
        if self.counts().free > 0 { Age::OLDEST } else { self.oldest_replaced(now) }
    }

    /// The oldest page that would take the place of another one now.
    pub fn oldest_replaced(&self, now: Time) -> Age {
        let others = self.hosted(now).map(|other| other.age).max().unwrap_or(Age::NEWEST);
        let own = self.own_to_give(now).map_or(Age::NEWEST, |(_, age)| age);
        others.max(own)
    }

    /// Why a page that is here already does not make way for the offer of the same page.
    fn objection(&self, frame: FrameNo, offer: &Offer) -> Option<Reason> {
        let page = &self.pages[frame.0 as usize];
        if self.role(frame).is_own() || page.busy {
            return Some(Reason::InUse);
        }
        // other nodes depend on a mirror, but not on a clean copy of the same version
        let same = offer.version == page.version;
        let demotes = self.role(frame) == Role::Mirror && !offer.mirror && same;
        let stale = (offer.version < page.version).then_some(Reason::Stale);
        stale.or(demotes.then_some(Reason::InUse))
    }

    /// Mirrors are not given up for the node's own pages, so they stay out of what is guaranteed to these.
    fn has_mirror_room(&self, offer: &Offer, present: Option<FrameNo>) -> bool {
        let is_one = present.is_some_and(|frame| self.role(frame) == Role::Mirror);
        let most = self.size - self.local_min();
        !offer.mirror || is_one || self.blocks().mirror + u32::from(offer.blocks) <= most
    }

    fn room(&self, now: Time, offer: &Offer) -> Option<FrameNo> {
        let free = self.lists.oldest(Role::Free);
        free.or_else(|| self.hosted_for(now, offer))
            .or_else(|| self.own_room(now, offer))
            .map(FrameNo)
    }

    /// Another node's page that goes for an offer: of two that may the one that counts as older.
    fn hosted_for(&self, now: Time, offer: &Offer) -> Option<u32> {
        let goes = |other: &Hosted| match offer.reused {
            true => other.counts_as >= offer.rank(),
            false => other.age >= offer.rank(),
        };
        let others = self.hosted(now).filter(goes);
        others.max_by_key(|other| other.counts_as).map(|other| other.frame)
    }

    fn own_room(&self, now: Time, offer: &Offer) -> Option<u32> {
        let (frame, age) = self.own_to_give(now)?;
        (age >= offer.rank()).then_some(frame)
    }

    /// The node's own page that would go first, above its guaranteed minimum, and the oldest page it would go for.
    fn own_to_give(&self, now: Time) -> Option<(u32, Age)> {
        let staged = self.oldest_durable(Role::Staged, now);
        let local = self.oldest_durable(Role::Local, now);
        let oldest = staged.into_iter().chain(local).max_by_key(|(_, age)| *age);
        let (frame, age) = oldest.filter(|(frame, _)| self.is_spare(*frame))?;
        Some((frame, Age(age.0.saturating_mul(10) / OWN_TENTHS)))
    }

    /// Takes the page out of a frame, if there is one.
    fn empty(&mut self, frame: FrameNo) -> Option<Page> {
        let (page, own) = (*self.page(frame)?, self.role(frame).is_own());
        self.clear(frame.0);
        self.squeezed += u64::from(own && self.blocks().own() < self.local_min());
        Some(page)
    }
}
