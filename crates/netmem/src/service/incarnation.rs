//! The incarnation in which this node takes part, by the members' registry, and what it may believe meanwhile.
//!
//! A node that others gave up, whether its process ended or was only paused, is no holder any more: others have freed
//! their copies of its spaces and re-replicated its copies of theirs, and they may have written to pages whose copies
//! it has. So it begins another incarnation. From the one before it keeps what only it can have written and has still:
//! the pages of its private spaces in its own frames, without mirrors, and guests' pages, whose processes alone say
//! which are current. Between the end of its lease and the next view it believes no copy of a shared page.

use super::Service;
use super::events::Event;
use super::home::Route;
use crate::limits::FAILED_MAX;
use crate::page::{PageId, SpaceId};
use crate::protocol::{Get, GetReply};
use members::View;
use node::Bug;
use std::collections::BTreeSet;
use wire::{NodeId, Time};

/// Remains of an incarnation that is over.
#[derive(Debug, Default)]
pub struct Remains {
    /// Pages that are not to be had here any more, and were in the middle of something.
    busy: BTreeSet<PageId>,
    /// Pages whose last version was durable nowhere: a flush of them fails.
    failed: BTreeSet<PageId>,
    /// More than can be remembered one by one.
    too_many: bool,
}

impl Remains {
    /// Whether the newest version that this node wrote is gone and was not durable. When there were too many such
    /// pages, it is said of all but those that are here as they were `written` since.
    pub fn has_failed(&self, id: PageId, written: bool) -> bool {
        self.failed.contains(&id) || (self.too_many && !written && id.space.owner().is_none())
    }

    /// The same of any page of a space.
    pub fn has_failed_in(&self, space: SpaceId) -> bool {
        let failed = self.failed.iter().any(|id| id.space == space);
        failed || (self.too_many && space.owner().is_none())
    }

    /// Whether a page of that incarnation is here, in the middle of something.
    pub fn is_busy(&self, id: PageId) -> bool {
        self.busy.contains(&id)
    }

    /// A page of that incarnation is in the middle of something.
    pub fn handle_busy(&mut self, id: PageId) {
        self.busy.insert(id);
    }

    /// Forgets those that are not busy any more.
    pub fn retain_busy(&mut self, is: impl FnMut(&PageId) -> bool) {
        self.busy.retain(is);
    }

    /// The last write of this node to a page is gone, and was not durable.
    pub fn fail(&mut self, id: PageId) {
        match self.failed.len() < FAILED_MAX {
            true => drop(self.failed.insert(id)),
            false => self.too_many = true,
        }
    }

    /// A newer version was written.
    pub fn handle_written(&mut self, id: PageId) {
        self.failed.remove(&id);
    }
}

impl Service {
    /// As [`set_view`](Service::set_view), for views whose incarnations are the registry's: the incarnation that the
    /// view gives this node is its own from now on. If it was in an earlier one, or is left out now, that one is over:
    /// pages that only other nodes had for it are lost, and of pages in shared spaces it has none. Before its first
    /// view it may have written pages, and keeps them.
    pub fn follow(&self, view: View) {
        let before = self.view();
        if view.number <= before.number {
            return;
        }
        let ends = self.0.home.borrow().members().is_ended_by(&view);
        if ends && !self.cx().has_bug(Bug::FormerIncarnationKept) {
            self.begin_again(&before, &view);
        }
        self.0.home.borrow_mut().members_mut().adopt(&view);
        self.set_view(view);
    }

    /// Extends the period in which no other node takes this one, in this incarnation, for dead. Without a lease it
    /// never ends.
    pub fn set_lease(&self, incarnation: u64, until: Time) {
        self.0.home.borrow_mut().members_mut().handle_lease(incarnation, until);
    }

    /// The incarnation that this node is in: its incarnation, unless the registry [says](Service::follow) otherwise.
    pub fn incarnation(&self) -> u64 {
        self.0.home.borrow().members().incarnation()
    }

    /// Whether what is here of a page may be older than what another node has written meanwhile, because this node was
    /// given up or may have been.
    pub(super) fn doubts(&self, id: PageId) -> bool {
        self.0.pages.borrow().doubts(id, self.is_doubtful_of(id))
    }

    /// Whether others may take this node for dead, where that matters for a page: in a shared space.
    pub(super) fn is_doubtful_of(&self, id: PageId) -> bool {
        id.space.owner().is_none() && self.is_doubtful()
    }

    /// The same; `None` when the page's space was freed.
    pub(super) fn doubtful(&self, id: PageId) -> Option<bool> {
        self.0.home.borrow().doubts(self.cx().now(), id.space)
    }

    /// Whether others may take this node for dead.
    pub(super) fn is_doubtful(&self) -> bool {
        self.0.home.borrow().members().is_doubtful(self.cx().now())
    }

    /// The shared pages that this node would write to at this time of its clock, without asking anybody. For those who
    /// check it while nothing runs: tests and the simulator.
    pub fn writes_at(&self, now: Time) -> Vec<PageId> {
        if self.0.home.borrow().members().is_doubtful(now) {
            return Vec::new();
        }
        let pages = self.0.pages.borrow();
        self.writing().iter().map(|(id, _)| id).filter(|id| pages.may_write(*id)).collect()
    }

    /// Whether the answer to a request of this view may be kept: a node that has written the page since, and went down,
    /// found no copy here to invalidate, and the present directory does not know of the write.
    pub(super) fn is_of_today(&self, id: PageId, began: u64) -> bool {
        id.space.owner().is_some() || began == self.view_number()
    }

    /// Routes a request by this node's directory. A page without an entry is nowhere only while no other node takes
    /// this one for dead: else another directory may know better by now.
    pub(super) fn direct(&self, get: &Get) -> Route {
        let route = self.at_home(|home| home.direct(get, self.cx().random()));
        match route {
            Route::Back(GetReply::Unknown { .. } | GetReply::Lost(_)) if self.is_doubtful() => {
                Route::Back(GetReply::Unknown { settled: false })
            }
            route => route,
        }
    }

    fn begin_again(&self, before: &View, next: &View) {
        let others: Vec<(NodeId, u64)> =
            before.others(self.me()).map(|up| (up.node, up.incarnation)).collect();
        let lost = self.0.home.borrow_mut().handle_end(&others);
        self.0.peers.borrow_mut().forget_holders();
        self.note_change(|_| true);
        // in this order: what is in mirrors is durable
        let guests = !self.cx().has_bug(Bug::GuestsForgotten);
        self.0.pages.borrow_mut().handle_end(self.me(), next, guests);
        self.lose_mirrors(&others);
        self.count(|counters| {
            counters.incarnations_lost += 1;
            counters.lost_pages += lost;
        });
        self.raise(Event::Eased);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that is here need not be what this node wrote: it may have been read since, in an older version.
    #[test]
    fn of_more_pages_than_can_be_remembered_only_those_written_since_have_not_failed() {
        let page = |index| PageId { space: SpaceId::shared(7), index };
        let mut remains = Remains::default();
        (0..FAILED_MAX as u64).for_each(|index| remains.fail(page(index)));
        let next = page(FAILED_MAX as u64);
        assert!(remains.has_failed(page(0), true) && !remains.has_failed(next, false));
        remains.fail(next);
        assert!(remains.has_failed(next, false) && !remains.has_failed(next, true));
        remains.handle_written(page(0));
        assert!(!remains.has_failed(page(0), true) && remains.has_failed(page(0), false));
        let private = SpaceId::private(wire::NodeId(1), 3);
        assert!(!remains.has_failed(PageId { space: private, index: 0 }, false));
        assert!(remains.has_failed_in(page(0).space) && !remains.has_failed_in(private));
    }
}
