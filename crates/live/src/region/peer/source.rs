//! A fault's ways to all holders.

use super::super::backing::{FetchError, Fetched, Source, StoreError};
use super::super::limits::PAUSE;
use super::places::{Held, HeldBy};
use super::way::{Found, Mailbox, Refused, Way};
use super::{Obsolete, Shared};
use crate::clock;
use netmem::{PageId, PageStamp, Version};
use std::io;
use std::sync::{Arc, PoisonError};
use wire::mix;

/// Looks for room among what holders are to forget: the keeper makes some meanwhile.
const FORGETS_MAX: u32 = 100;

/// What one thread at a time uses.
pub struct PeerSource {
    shared: Arc<Shared>,
    ways: Box<[Option<Way>]>,
    mail: Arc<[Mailbox]>,
    page_bytes: usize,
}

impl PeerSource {
    /// Connects to all holders that answer; an error when fewer do than there are to be copies.
    pub fn new(shared: Arc<Shared>, page_bytes: usize) -> io::Result<PeerSource> {
        let (config, mut failed) = (&shared.config, None);
        let mut reach = |at: usize| match Way::reach(config, at, page_bytes) {
            Ok(way) => Some(shared.admit(at, way)),
            Err(error) => {
                shared.holders[at].note_away();
                failed = Some(error);
                None
            }
        };
        let ways: Box<[Option<Way>]> = (0..config.holders.len()).map(&mut reach).collect();
        let (there, needed) = (ways.iter().flatten().count(), usize::from(config.copies));
        if there < needed {
            let why = failed.map_or(String::new(), |error| format!(": {error}"));
            let what = format!("{needed} holders are needed for a region, and {there} answer{why}");
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        let mail: Arc<[Mailbox]> = ways.iter().map(|_| Mailbox::default()).collect();
        let boxes = Arc::downgrade(&mail);
        shared.boxes.lock().unwrap_or_else(PoisonError::into_inner).push(boxes);
        Ok(PeerSource { ways, mail, page_bytes, shared })
    }

    fn id(&self, page: u64) -> PageId {
        PageId { space: self.shared.config.space, index: page }
    }

    /// The way to a holder that answers.
    fn way(&mut self, at: usize) -> Option<&mut Way> {
        let usable = self.ways[at].as_ref().is_some_and(|way| !way.is_broken());
        if !usable && !self.mail[at].exchange(&mut self.ways[at]) {
            self.shared.ring();
            return None;
        }
        self.ways[at].as_mut().filter(|_| !self.shared.holders[at].is_away())
    }

    /// A holder did not answer. Where the link broke the keeper finds out why.
    fn note_silent(&mut self, at: usize) {
        if self.ways[at].as_ref().is_some_and(|way| !way.is_broken()) {
            self.shared.holders[at].note_away();
        }
        self.shared.ring();
    }

    fn get(&mut self, at: usize, page: u64, version: u64) -> Found {
        let (id, bytes) = (self.id(page), self.page_bytes);
        let Some(way) = self.way(at) else { return Found::Silent(libc::EHOSTDOWN) };
        let found = way.get(id, Version(version), bytes);
        if let Found::Silent(_) = found {
            self.note_silent(at);
        }
        found
    }

    /// The number of a holder in whose frame the page has landed, with its checksum.
    fn find(&mut self, page: u64, version: u64) -> Result<(usize, u32), FetchError> {
        let mut silent = None;
        for held in self.shared.places().held(page) {
            // What it had in another life is gone.
            let found = match self.shared.holders[held.by].life() == held.life {
                true => self.get(held.by, page, version),
                false => Found::Not,
            };
            match found {
                Found::Here(checksum) => return Ok((held.by, checksum)),
                Found::Silent(errno) => silent = Some(errno),
                Found::Not => {
                    self.shared.places().remove(page, held);
                    self.shared.raise_alarm();
                }
            }
        }
        Err(silent.map_or(FetchError::Lost, FetchError::Unavailable))
    }

    fn put(&mut self, at: usize, stamp: PageStamp, from: &[u8]) -> Result<Held, i32> {
        let copies = self.shared.config.copies;
        let way = self.way(at).ok_or(libc::EHOSTDOWN)?;
        let life = way.life;
        match way.put(stamp, copies, from) {
            Ok(()) => Ok(Held { by: at, life }),
            Err(Refused::Room) => {
                self.shared.holders[at].note_full();
                Err(libc::ENOSPC)
            }
            Err(Refused::Silent(errno)) => {
                self.note_silent(at);
                Err(errno)
            }
            Err(Refused::Other(errno)) => Err(errno),
        }
    }

    /// The order in which holders are offered a page: those that have had it, whose frame it takes; then the others,
    /// different pages beginning with different ones.
    fn order(&self, page: u64, had: &HeldBy) -> impl Iterator<Item = usize> + use<> {
        let (count, first) = (self.ways.len(), mix(page) as usize);
        let had = had.clone();
        let others = (0..count).map(move |n| first.wrapping_add(n) % count);
        let is_new = |had: &HeldBy, at: usize| had.iter().all(|held| held.by != at);
        let rest = had.clone();
        had.into_iter().map(|held| held.by).chain(others.filter(move |at| is_new(&rest, *at)))
    }

    /// Whether the holder is another process than those that have the page, whatever its address.
    fn is_another(&self, at: usize, held: &HeldBy) -> bool {
        let there = |at: usize| self.ways[at].as_ref().map(|way| way.there);
        held.iter().all(|held| held.by != at && there(held.by) != there(at))
    }

    /// Offers a page to holders in `order` until there are as many as asked for in `held`; why not.
    fn spread(
        &mut self,
        order: impl Iterator<Item = usize>,
        stamp: PageStamp,
        from: &[u8],
        held: &mut HeldBy,
    ) -> Result<(), i32> {
        let (copies, now) = (usize::from(self.shared.config.copies), clock::now());
        let (had, mut refused) = (self.shared.places().held(stamp.id.index), libc::EHOSTDOWN);
        for at in order {
            if held.len() >= copies {
                break;
            }
            let has_frame = had.iter().any(|held| held.by == at);
            let full = !has_frame && self.shared.holders[at].is_full(now);
            if full {
                refused = libc::ENOSPC;
            }
            if full || self.way(at).is_none() || !self.is_another(at, held) {
                continue;
            }
            match self.put(at, stamp, from) {
                Ok(new) => held.push(new),
                Err(errno) => refused = errno,
            }
        }
        if held.len() >= copies { Ok(()) } else { Err(refused) }
    }

    /// Those of `had` that do not have the page's version now are to forget theirs.
    fn withdraw(&self, page: u64, version: u64, had: &HeldBy, has: &HeldBy) {
        for old in had.iter().filter(|old| has.iter().all(|new| new.by != old.by)) {
            self.shared.drop_at(Obsolete { holder: old.by, page, version });
        }
    }
}

impl Shared {
    /// A holder was reached.
    pub fn admit(&self, at: usize, way: Way) -> Way {
        if self.holders[at].note(way.there.node, way.there.incarnation) {
            self.raise_alarm();
        }
        way.of_life(self.holders[at].life())
    }
}

impl Source for PeerSource {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let (at, checksum) = self.find(page, version)?;
        let way = self.ways[at].as_ref().expect("it has landed there");
        Ok(Fetched { bytes: way.landed(into.len()), checksum })
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        let stamp = PageStamp::of(self.id(page), Version(version), [from]);
        let had = self.shared.places().held(page);
        let mut held = HeldBy::new();
        let order = self.order(page, &had);
        let stored = self.spread(order, stamp, from, &mut held);
        if !held.is_empty() {
            // Also when there are too few: the page is offered to them again, and not fetched before that succeeds.
            self.shared.places().set(page, &held);
            self.withdraw(page, version, &had, &held);
        }
        let at = clock::now().since(self.shared.begun).as_millis() as u32;
        self.shared.places().set_stored(page, at);
        stored.map_err(StoreError)
    }

    /// May wait for a moment: what is given up in great numbers is told of in batches.
    fn forget(&mut self, page: u64, version: u64) {
        for held in self.shared.places().held(page) {
            let obsolete = Obsolete { holder: held.by, page, version };
            let mut looks = 0;
            while !self.shared.drop_at(obsolete) && looks < FORGETS_MAX {
                self.shared.ring();
                std::thread::sleep(PAUSE);
                looks += 1;
            }
        }
        self.shared.places().set(page, &[]);
    }

    fn mend(&mut self, page: u64, version: u64, buffer: &mut [u8]) -> Result<bool, FetchError> {
        let (had, now) = (self.shared.places().held(page), clock::now());
        let mut held: HeldBy =
            had.iter().copied().filter(|held| self.shared.has(held, now)).collect();
        if held.len() >= usize::from(self.shared.config.copies) {
            return Ok(false);
        }
        let (at, _) = self.find(page, version)?;
        buffer.copy_from_slice(
            self.ways[at].as_ref().expect("it has landed there").landed(buffer.len()),
        );
        let stamp = PageStamp::of(self.id(page), Version(version), [&*buffer]);
        held.retain(|held| self.shared.places().held(page).contains(held));
        let order = self.order(page, &HeldBy::new());
        let spread = self.spread(order, stamp, buffer, &mut held);
        // Who is only away and has it still counts until there are enough others.
        if spread.is_ok() {
            self.shared.places().set(page, &held);
            self.withdraw(page, version, &had, &held);
        }
        spread.map(|()| true).map_err(FetchError::Unavailable)
    }
}
