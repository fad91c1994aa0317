//! Background work for a region's holders, by the region's keeper.

use super::super::backing::Upkeep;
use super::super::limits::LINK_PAUSE;
use super::way::Connection;
use super::{LineConfig, PeerConfig, Shared};
use live::clock;
use live::wait::WaitPolicy;
use netmem::guest::{Obsolete, Visits, reminder};
use netmem::limits::GUEST_DROPS_AT_ONCE;
use netmem::protocol::Record;
use std::sync::Arc;
use std::time::Duration;

/// The keeper's own connections, and when each holder is due.
pub struct PeerUpkeep {
    shared: Arc<Shared>,
    /// Of its own ways, where no fault waits: a holder that does not answer costs no processor.
    unhurried: PeerConfig,
    page_bytes: usize,
    ways: Box<[Option<Connection>]>,
    visits: Visits,
}

impl PeerUpkeep {
    /// No holder was visited yet.
    pub fn new(shared: Arc<Shared>, page_bytes: usize) -> PeerUpkeep {
        let visits = Visits::new(shared.keeping());
        let ways = shared.config.holders.iter().map(|_| None).collect();
        let line = LineConfig { wait: WaitPolicy::Block, ..shared.config.line.clone() };
        let unhurried = PeerConfig { line, ..shared.config.clone() };
        PeerUpkeep { shared, unhurried, page_bytes, ways, visits }
    }

    fn wanted_at(&self, at: usize) -> bool {
        self.shared.boxes().iter().any(|mail| mail[at].is_wanted())
    }

    fn is_away(&self, at: usize) -> bool {
        self.shared.keeping().holders()[at].is_away()
    }

    /// Says to a holder that the region is there.
    fn visit(&mut self, at: usize) {
        let way = self.ways[at].take().filter(|way| !way.is_broken());
        let reached = match way {
            Some(mut way) => way.stay(self.shared.config.space).is_ok().then_some(way),
            None => Connection::reach(&self.unhurried, at, self.page_bytes).ok(),
        };
        match reached {
            Some(way) => {
                let mut way = self.shared.admit(at, way);
                way.set_hasty();
                self.ways[at] = Some(way);
            }
            None => self.shared.keeping().holders()[at].note_away(clock::now()),
        }
        self.visits.handle_visit(self.shared.keeping(), at, clock::now());
    }

    /// Makes links to a holder for those who wait for one.
    fn deliver(&mut self, at: usize) {
        for mail in self.shared.boxes().iter().filter(|mail| mail[at].is_wanted()) {
            match Connection::reach(&self.shared.config, at, self.page_bytes) {
                Ok(way) => mail[at].deliver(self.shared.admit(at, way)),
                Err(_) => {
                    let now = clock::now();
                    self.shared.keeping().holders()[at].note_away(now);
                    return self.visits.visit_at(at, now + LINK_PAUSE);
                }
            }
        }
    }

    /// Tells a holder which pages to forget. Messages that it may not have heard are repeated.
    fn tell(&mut self, at: usize) {
        loop {
            let due = self.shared.keeping().take_obsolete(at, GUEST_DROPS_AT_ONCE);
            let Some(way) = self.ways[at].as_mut().filter(|_| !due.is_empty()) else {
                return self.keep(due);
            };
            let space = self.shared.config.space;
            let records: Vec<Record> = due.iter().map(|due| reminder(space, due)).collect();
            if way.forget(&records).is_err() {
                return self.keep(due);
            }
        }
    }

    fn keep(&self, due: Vec<Obsolete>) {
        for obsolete in due {
            self.shared.keeping().drop_at(clock::now(), obsolete);
        }
    }
}

impl Upkeep for PeerUpkeep {
    fn turn(&mut self) -> Duration {
        for at in 0..self.ways.len() {
            let wanted = self.wanted_at(at);
            let hurries = wanted && !self.is_away(at) && self.ways[at].is_some();
            if self.visits.is_due(at, clock::now()) || hurries {
                self.visit(at);
            }
            if !self.is_away(at) {
                if wanted {
                    self.deliver(at);
                }
                self.tell(at);
            }
            self.visits.give_up_late(self.shared.keeping(), at, clock::now());
        }
        let now = clock::now();
        self.visits.next(now).since(now)
    }

    fn weak(&mut self) -> Vec<u64> {
        self.visits.weak(self.shared.keeping(), clock::now())
    }

    fn handle_unmended(&mut self) {
        self.visits.handle_unmended(clock::now());
    }

    fn end(&mut self) {
        let space = self.shared.config.space;
        for way in self.ways.iter_mut().flatten() {
            let _ = way.free(space); // who does not hear it forgets the region after a while
        }
    }
}
