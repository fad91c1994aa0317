//! Choice of the page that leaves when a frame is needed.
//!
//! The oldest of the node's own pages goes to the end of a short queue first, where a region has it no longer mapped:
//! what is used there again goes back, and that use is the only one that a region ever sees (S3-FIFO's small queue).
//! From its front pages leave. Other nodes' pages leave before the node's own of the same age.

use super::{FrameNo, Memory, Role};
use crate::ages::Age;
use crate::hints::is_worth;
use crate::limits::{AHEAD_SHARE, CHANCES_MAX, OLD_END, STAGING_SHARE};
use std::cmp::Reverse;
use wire::Time;

/// The next step towards a free frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The page was moved to the staging queue: a region unmaps it. Ask again.
    Staged(FrameNo),
    /// The page may leave: send it elsewhere or not, and [`release`](Memory::release) it.
    Durable(FrameNo),
    /// The page must be made durable first.
    Dirty(FrameNo),
}

/// Another node's clean page.
pub(super) struct Hosted {
    pub frame: u32,
    pub age: Age,
    /// For a page that was used again: one that was used once is [`ONCE_BOOST`](crate::limits::ONCE_BOOST) times as old
    /// as it is.
    pub counts_as: Age,
}

impl Memory {
    /// The next step towards a free frame; `None` when all that could leave is just leaving.
    pub fn poll_eviction(&mut self, now: Time) -> Option<Eviction> {
        if let Some(frame) = self.overdue(now) {
            return Some(durable(frame));
        }
        if let Some(frame) = self.stage() {
            return Some(Eviction::Staged(FrameNo(frame)));
        }
        let own = self.next_staged().map(|frame| (frame, self.pages[frame as usize].age(now)));
        let others = self.hosted(now).max_by_key(|other| other.counts_as);
        let others = others.map(|other| (other.frame, other.age));
        // what others may not take away they do not keep either
        let lacks = self.blocks().own() < self.local_min();
        match (own, others) {
            (_, Some((frame, _))) if lacks => Some(durable(frame)),
            (Some((_, own)), Some((frame, age))) if age.boosted() >= own => Some(durable(frame)),
            (Some((frame, _)), _) if !self.pages[frame as usize].is_durable() => {
                Some(Eviction::Dirty(FrameNo(frame)))
            }
            (own, others) => {
                let last = || self.oldest_durable(Role::Ahead, now);
                own.or(others).or_else(last).map(|(frame, _)| durable(frame))
            }
        }
    }

    /// The page to evict for a prefetched one that is expected to be used in `time_to_use`: one whose own time has
    /// passed, else the oldest one if that is not used sooner. `None` where too many prefetched pages wait for their
    /// use already.
    pub fn poll_ahead(&self, now: Time, time_to_use: Age) -> Option<FrameNo> {
        if let Some(frame) = self.overdue(now) {
            return Some(FrameNo(frame));
        }
        let roles = [Role::Passing, Role::Hosted, Role::Staged, Role::Local];
        let oldest = roles.into_iter().filter_map(|role| self.oldest_durable(role, now));
        let (frame, age) = oldest.max_by_key(|(_, age)| *age)?;
        is_worth(time_to_use, age).then_some(FrameNo(frame))
    }

    /// Pages of one block that may still be added to those that wait for their first use.
    pub fn ahead_room(&self) -> u32 {
        let most = (self.size / AHEAD_SHARE).max(1);
        most.saturating_sub(self.blocks().ahead)
    }

    /// A page that was fetched ahead of a use that did not come.
    pub fn poll_overdue(&self, now: Time) -> Option<FrameNo> {
        self.overdue(now).map(FrameNo)
    }

    fn overdue(&self, now: Time) -> Option<u32> {
        let mut end = self.lists.old_end(Role::Ahead).take(OLD_END);
        end.find(|frame| {
            let page = &self.pages[*frame as usize];
            page.until <= now && !page.busy && page.is_durable()
        })
    }

    /// A page that may leave though younger ones wait in front of it to be made durable.
    pub fn poll_durable(&self, now: Time) -> Option<FrameNo> {
        let roles = [Role::Passing, Role::Hosted, Role::Staged, Role::Local, Role::Ahead];
        roles
            .into_iter()
            .find_map(|role| self.oldest_durable(role, now))
            .map(|(frame, _)| FrameNo(frame))
    }

    /// The next page of the node's own to be made durable: of those that wait to leave, then of the oldest others.
    pub fn poll_dirty(&self) -> Option<FrameNo> {
        let staged = self.lists.old_end(Role::Staged);
        let local = self.lists.old_end(Role::Local).take(CHANCES_MAX);
        // a page whose mirrors went down before its first use
        let ahead = self.lists.old_end(Role::Ahead);
        let mut pages =
            staged.chain(local).chain(ahead).map(|frame| (frame, &self.pages[frame as usize]));
        let (frame, _) = pages.find(|(_, page)| !page.busy && !page.is_durable())?;
        Some(FrameNo(frame))
    }

    /// Moves the next page of the node's own to the staging queue, if there is room.
    fn stage(&mut self) -> Option<u32> {
        let most = (self.counts().own() / STAGING_SHARE).max(1);
        if self.lists.len(Role::Staged) >= most {
            return None;
        }
        let frame = self.without_chance()?;
        self.lists.put(frame, Role::Staged);
        Some(frame)
    }

    /// The oldest local page that has no second chance. One whose copy another node has gets none.
    fn without_chance(&mut self) -> Option<u32> {
        for _ in 0..CHANCES_MAX {
            let frame = self.lists.oldest(Role::Local)?;
            let page = &mut self.pages[frame as usize];
            let stays = page.busy || (page.uses.spend() && !page.duplicate);
            if !stays {
                return Some(frame);
            }
            self.lists.put(frame, Role::Local);
        }
        self.lists
            .old_end(Role::Local)
            .take(OLD_END)
            .find(|frame| !self.pages[*frame as usize].busy)
    }

    fn next_staged(&self) -> Option<u32> {
        self.lists.old_end(Role::Staged).find(|frame| !self.pages[*frame as usize].busy)
    }

    /// The other nodes' clean pages that would go first: one of those that were used again and one of those that were
    /// used once. These have a list of their own, so that none of them keeps its place behind the others (S3-FIFO's
    /// small queue).
    pub(super) fn hosted(&self, now: Time) -> impl Iterator<Item = Hosted> + use<> {
        let used = self.oldest_durable(Role::Hosted, now);
        let once = self.oldest_durable(Role::Passing, now);
        let used = used.map(|(frame, age)| Hosted { frame, age, counts_as: age });
        let once = once.map(|(frame, age)| Hosted { frame, age, counts_as: age.of_use(false) });
        used.into_iter().chain(once)
    }

    /// Of the frames at the old end of a role's list that could be given up, the oldest, and its effective age.
    pub(super) fn oldest_durable(&self, role: Role, now: Time) -> Option<(u32, Age)> {
        let end = self.lists.old_end(role).take(OLD_END);
        let pages = end.map(|frame| (frame, &self.pages[frame as usize]));
        let durable = pages.filter(|(_, page)| !page.busy && page.is_durable());
        durable.map(|(frame, page)| (frame, page.age(now))).min_by_key(|(_, age)| Reverse(*age))
    }
}

fn durable(frame: u32) -> Eviction {
    Eviction::Durable(FrameNo(frame))
}
