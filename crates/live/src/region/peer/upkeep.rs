//! What is done for a region's holders in the background, by the region's keeper.

use super::super::backing::Upkeep;
use super::super::limits::*;
use super::places::{Held, HeldBy};
use super::way::Way;
use super::{LineConfig, Obsolete, PeerConfig, Shared};
use crate::clock;
use crate::wait::WaitPolicy;
use netmem::protocol::Record;
use netmem::{Holder, HolderRole, PageId, Version};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use wire::{NodeId, Time};

/// The keeper's own ways, and when each holder is due.
pub struct PeerUpkeep {
    shared: Arc<Shared>,
    /// Of its own ways, where nobody waits: a holder that does not answer costs no processor.
    unhurried: PeerConfig,
    page_bytes: usize,
    visits: Box<[Visit]>,
    /// Pages are looked for again that could not be mended.
    again: Option<Time>,
}

#[derive(Debug, Default)]
struct Visit {
    way: Option<Way>,
    due: Time,
    /// Copies were made of what it has.
    given_up: bool,
}

impl Shared {
    /// Whether a holder has what it took, as far as is known.
    pub fn has(&self, held: &Held, now: Time) -> bool {
        let holder = &self.holders[held.by];
        holder.life() == held.life && !holder.is_given_up(now)
    }

    fn wanted_at(&self, at: usize) -> bool {
        self.boxes().iter().any(|mail| mail[at].is_wanted())
    }

    /// Takes pages out that this holder is to forget.
    fn take_obsolete(&self, at: usize) -> Vec<Obsolete> {
        let mut list = self.obsolete.lock().unwrap_or_else(PoisonError::into_inner);
        let due = list.iter().filter(|obsolete| obsolete.holder == at).take(DROPS_AT_ONCE);
        let due: Vec<Obsolete> = due.copied().collect();
        let mut left = due.len();
        list.retain(|obsolete| {
            let goes = obsolete.holder == at && left > 0;
            left -= usize::from(goes);
            !goes
        });
        due
    }
}

impl PeerUpkeep {
    /// Nobody was visited yet.
    pub fn new(shared: Arc<Shared>, page_bytes: usize) -> PeerUpkeep {
        let visits = shared.holders.iter().map(|_| Visit::default()).collect();
        let line = LineConfig { wait: WaitPolicy::Block, ..shared.config.line.clone() };
        let unhurried = PeerConfig { line, ..shared.config.clone() };
        PeerUpkeep { shared, unhurried, page_bytes, visits, again: None }
    }

    /// Says to a holder that the region is there.
    fn visit(&mut self, at: usize) {
        let (shared, page_bytes) = (self.shared.clone(), self.page_bytes);
        let standing = &shared.holders[at];
        let way = self.visits[at].way.take().filter(|way| !way.is_broken());
        let reached = match way {
            Some(mut way) => way.stay(shared.config.space).is_ok().then_some(way),
            None => Way::reach(&self.unhurried, at, page_bytes).ok(),
        };
        match reached {
            Some(way) => {
                let mut way = shared.admit(at, way);
                way.set_hasty();
                self.visits[at].way = Some(way);
                self.visits[at].given_up = false;
            }
            None => standing.note_away(),
        }
        let span = if standing.is_away() { AWAY_VISIT_SPAN } else { VISIT_SPAN };
        self.visits[at].due = clock::now() + span;
    }

    /// Makes links to a holder for those who wait for one.
    fn deliver(&mut self, at: usize) {
        for mail in self.shared.boxes().iter().filter(|mail| mail[at].is_wanted()) {
            match Way::reach(&self.shared.config, at, self.page_bytes) {
                Ok(way) => mail[at].deliver(self.shared.admit(at, way)),
                Err(_) => {
                    self.shared.holders[at].note_away();
                    self.visits[at].due = clock::now() + LINK_PAUSE;
                    return;
                }
            }
        }
    }

    /// Tells a holder what it is to forget. What it may not have heard of is told again.
    fn tell(&mut self, at: usize) {
        loop {
            let due = self.shared.take_obsolete(at);
            let Some(way) = self.visits[at].way.as_mut().filter(|_| !due.is_empty()) else {
                return self.keep(due);
            };
            let space = self.shared.config.space;
            let records: Vec<Record> = due.iter().map(|due| record(space, due)).collect();
            if way.forget(&records).is_err() {
                return self.keep(due);
            }
        }
    }

    fn keep(&self, due: Vec<Obsolete>) {
        for obsolete in due {
            self.shared.drop_at(obsolete);
        }
    }

    fn give_up_late(&mut self, at: usize, now: Time) {
        if self.shared.holders[at].is_given_up(now) && !self.visits[at].given_up {
            self.visits[at].given_up = true;
            self.shared.raise_alarm();
        }
    }
}

fn record(space: netmem::SpaceId, obsolete: &Obsolete) -> Record {
    Record {
        id: PageId { space, index: obsolete.page },
        version: Version(obsolete.version),
        holder: Holder { node: NodeId(0), incarnation: 0, role: HolderRole::Mirror },
        copies: 0,
        lost: false,
        writer: false,
    }
}

impl Upkeep for PeerUpkeep {
    fn turn(&mut self) -> Duration {
        let mut next = clock::now() + VISIT_SPAN;
        for at in 0..self.visits.len() {
            let now = clock::now();
            let standing = &self.shared.holders[at];
            let wanted = self.shared.wanted_at(at);
            let hurries = wanted && !standing.is_away() && self.visits[at].way.is_some();
            if now >= self.visits[at].due || hurries {
                self.visit(at);
            }
            if !self.shared.holders[at].is_away() {
                if wanted {
                    self.deliver(at);
                }
                self.tell(at);
            }
            self.give_up_late(at, clock::now());
            next = next.min(self.visits[at].due);
        }
        next = next.min(self.again.unwrap_or(next));
        next.since(clock::now())
    }

    fn weak(&mut self) -> Vec<u64> {
        let (now, copies) = (clock::now(), usize::from(self.shared.config.copies));
        if self.again.is_some_and(|at| now < at) {
            return Vec::new();
        }
        let again = self.again.take().is_some();
        if !self.shared.alarm.swap(false, Ordering::AcqRel) && !again {
            return Vec::new();
        }
        let has = |held: &&Held| self.shared.has(held, now);
        let weak = |held: &HeldBy| held.iter().filter(has).count() < copies;
        let pages = self.shared.places().oldest(WEAK_MAX, weak);
        if pages.len() == WEAK_MAX {
            self.shared.raise_alarm(); // there may be more
        }
        pages
    }

    fn handle_unmended(&mut self) {
        self.again = Some(clock::now() + MEND_PAUSE);
    }

    fn end(&mut self) {
        let space = self.shared.config.space;
        for visit in &mut self.visits {
            if let Some(way) = &mut visit.way {
                let _ = way.free(space); // who does not hear it forgets the region after a while
            }
        }
    }
}
