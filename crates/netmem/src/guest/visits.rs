//! Background work of a guest: holders are visited, so that they keep its pages and it learns who is
//! away or in another incarnation; pages of which copies are missing are mended.

use super::keeping::Keeping;
use crate::limits::*;
use wire::Time;

/// When each holder is due.
#[derive(Debug)]
pub struct Visits {
    visits: Box<[Visit]>,
    /// Pages are looked for again that could not be mended.
    again: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Visit {
    due: Time,
    /// Copies were made of what it has.
    given_up: bool,
}

impl Visits {
    /// No holder was visited yet.
    pub fn new(keeping: &Keeping) -> Visits {
        let visits = keeping.holders().iter().map(|_| Visit::default()).collect();
        Visits { visits, again: None }
    }

    /// Whether a holder is to be visited.
    pub fn is_due(&self, at: usize, now: Time) -> bool {
        now >= self.visits[at].due
    }

    /// It was visited: whether it answered, its [`Standing`](super::Standing) says.
    pub fn handle_visit(&mut self, keeping: &Keeping, at: usize, now: Time) {
        let away = keeping.holders()[at].is_away();
        self.visits[at].given_up &= away;
        let span = if away { GUEST_AWAY_VISIT_SPAN } else { GUEST_VISIT_SPAN };
        self.visits[at].due = now + span;
    }

    /// It is due again at this time.
    pub fn visit_at(&mut self, at: usize, due: Time) {
        self.visits[at].due = due;
    }

    /// Copies are made of what holders have that have been away for too long.
    pub fn give_up_late(&mut self, keeping: &Keeping, at: usize, now: Time) {
        if keeping.holders()[at].is_given_up(now) && !self.visits[at].given_up {
            self.visits[at].given_up = true;
            keeping.raise_alarm();
        }
    }

    /// When something is due next.
    pub fn next(&self, now: Time) -> Time {
        let visits = self.visits.iter().map(|visit| visit.due);
        visits.chain(self.again).min().unwrap_or(now + GUEST_VISIT_SPAN)
    }

    /// Pages to be mended, those that were stored longest ago first: a bounded number, and none when nothing has
    /// changed.
    pub fn weak(&mut self, keeping: &Keeping, now: Time) -> Vec<u64> {
        if self.again.is_some_and(|at| now < at) {
            return Vec::new();
        }
        let again = self.again.take().is_some();
        if !keeping.take_alarm() && !again {
            return Vec::new();
        }
        let pages = keeping.weak(now, GUEST_WEAK_MAX);
        if pages.len() == GUEST_WEAK_MAX {
            keeping.raise_alarm(); // there may be more
        } else if keeping.weak_count(now) > pages.len() {
            self.handle_unmended(now); // no holder can give the others now
        }
        pages
    }

    /// One of them could not be mended now.
    pub fn handle_unmended(&mut self, now: Time) {
        self.again = Some(now + GUEST_MEND_PAUSE);
    }
}
