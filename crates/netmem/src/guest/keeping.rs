//! The holders of a guest's pages, and the outcomes of fetches, stores and repairs. Shared by all threads.

use super::asking::{Gone, Refused, Response, Transport, offer};
use super::entries::{Entries, Replica, Replicas};
use super::standing::Standing;
use crate::limits::{GUEST_AHEAD_MAX, GUEST_DROPS_MAX, GUEST_RUN};
use crate::page::{PageId, PageStamp, SpaceId, Version, Wanted};
use arrayvec::ArrayVec;
use members::replicas::is_apart;
use node::{Bug, Bugs};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use wire::{Errno, Time, mix};

/// A page that a holder is to forget, up to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obsolete {
    /// The holder's number.
    pub holder: usize,
    /// The page.
    pub page: u64,
    /// The version.
    pub version: u64,
}

/// The holders to ask first for some pages.
type Firsts = ArrayVec<Option<usize>, GUEST_AHEAD_MAX>;
/// One request to a holder.
type Batch = ArrayVec<Wanted, GUEST_AHEAD_MAX>;

/// A guest's state of its pages and of their holders. No two requests for one page run at the same time.
#[derive(Debug)]
pub struct Keeping {
    space: SpaceId,
    copies: usize,
    holders: Box<[Standing]>,
    entries: Entries,
    obsolete: Mutex<VecDeque<Obsolete>>,
    /// Copies may be missing.
    alarm: AtomicBool,
    begun: Time,
    bugs: Bugs,
}

impl Keeping {
    /// Of a space that begins now, whose pages are to be with `copies` of so many `holders`.
    pub fn new(now: Time, space: SpaceId, holders: usize, copies: u8, entries: Entries) -> Keeping {
        Keeping {
            space,
            copies: copies.into(),
            holders: (0..holders).map(|_| Standing::default()).collect(),
            entries,
            obsolete: Mutex::new(VecDeque::with_capacity(GUEST_DROPS_MAX)),
            alarm: AtomicBool::new(false),
            begun: now,
            bugs: Bugs::default(),
        }
    }

    /// With planted bugs.
    pub fn with_bugs(self, bugs: Bugs) -> Keeping {
        Keeping { bugs, ..self }
    }

    /// The space of the pages.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The state of the holders.
    pub fn holders(&self) -> &[Standing] {
        &self.holders
    }

    /// Copies may be missing: a task should look for [`weak`](Keeping::weak) pages.
    pub fn raise_alarm(&self) {
        self.alarm.store(true, Ordering::Release);
    }

    /// Whether that was said since the last time.
    pub fn take_alarm(&self) -> bool {
        self.alarm.swap(false, Ordering::AcqRel)
    }

    /// Whether a holder has what it took, as far as is known.
    fn has(&self, held: &Replica, now: Time) -> bool {
        let holder = &self.holders[held.by];
        let same =
            holder.generation() == held.generation || self.bugs.has(Bug::GuestsIncarnationIgnored);
        same && !holder.is_given_up(now)
    }

    fn is_weak(&self, held: &Replicas, now: Time) -> bool {
        held.iter().filter(|held| self.has(held, now)).count() < self.copies
    }

    /// Pages that are kept by fewer holders than there are to be, as far as is known. Looks at all pages.
    pub fn weak_count(&self, now: Time) -> usize {
        self.entries.count(|held| self.is_weak(held, now))
    }

    /// At most `most` such pages whose holders can be reached, those that were stored longest ago.
    pub fn weak(&self, now: Time, most: usize) -> Vec<u64> {
        self.entries.oldest(most, |held| self.is_weak(held, now) && !self.is_out_of_reach(held))
    }

    /// Whether all that have a page do not answer: then it cannot be mended now, and must keep no others waiting.
    fn is_out_of_reach(&self, held: &Replicas) -> bool {
        let mut there =
            held.iter().filter(|held| self.holders[held.by].generation() == held.generation);
        there.clone().next().is_some() && there.all(|held| self.holders[held.by].is_away())
    }

    /// The node that took a page may have begun another incarnation before that was written down, unnoticed.
    fn look_again<T: Transport>(&self, transport: &T, held: &Replicas) {
        if self.is_weak(held, transport.now()) {
            self.raise_alarm();
            transport.ring();
        }
    }

    /// Has a holder forget a page, soon; false when it cannot be noted now.
    pub fn drop_at(&self, now: Time, obsolete: Obsolete) -> bool {
        let Ok(mut list) = self.obsolete.try_lock() else { return false };
        if list.len() >= GUEST_DROPS_MAX {
            // A node that is gone hears of nothing, and must not take the room of those who do.
            list.retain(|obsolete| !self.holders[obsolete.holder].is_given_up(now));
        }
        let room = list.len() < GUEST_DROPS_MAX; // it never grows
        if room {
            list.push_back(obsolete);
        }
        room
    }

    /// Takes out at most `most` pages that this holder is to forget.
    pub fn take_obsolete(&self, at: usize, most: usize) -> Vec<Obsolete> {
        let mut list = self.obsolete.lock().unwrap_or_else(PoisonError::into_inner);
        let due = list.iter().filter(|obsolete| obsolete.holder == at).take(most);
        let due: Vec<Obsolete> = due.copied().collect();
        let mut left = due.len();
        list.retain(|obsolete| {
            let goes = obsolete.holder == at && left > 0;
            left -= usize::from(goes);
            !goes
        });
        due
    }

    fn id(&self, page: u64) -> PageId {
        PageId { space: self.space, index: page }
    }

    /// Gets a page in this version or a newer one: the number of the holder from whom it has landed, and its checksum.
    pub async fn fetch<T: Transport>(
        &self,
        transport: &mut T,
        page: u64,
        version: u64,
    ) -> Result<(usize, u32), Gone> {
        let mut silent = None;
        for held in self.entries.held(page) {
            // Pages that it had in another incarnation are gone.
            let found = match self.holders[held.by].generation() == held.generation {
                true => self.get(transport, held.by, page, version).await,
                false => Response::Not,
            };
            match found {
                Response::Here(checksum) => return Ok((held.by, checksum)),
                Response::Silent(errno) => silent = Some(errno),
                Response::Not => {
                    self.entries.remove(page, held);
                    self.raise_alarm();
                    transport.ring();
                }
            }
        }
        Err(silent.map_or(Gone::Lost, Gone::Unavailable))
    }

    /// Gets those of the pages, by number and version, that come at once from the holder asked first, all of them
    /// together: `landed` is told of each where it stands in `wanted`, its bytes and their checksum. Nothing is
    /// concluded from the absence of the others: they are to be [fetched](Keeping::fetch).
    pub async fn fetch_ahead<T: Transport>(
        &self,
        transport: &mut T,
        wanted: &[(u64, u64)],
        mut landed: impl FnMut(usize, &[u8], u32),
    ) {
        let firsts: Firsts = wanted.iter().map(|(page, _)| self.first(transport, *page)).collect();
        let (firsts, bytes) = (&firsts[..], transport.page_bytes() as u32);
        let of = |at| {
            let its = (0..wanted.len()).filter(move |which| firsts[*which] == Some(at));
            its.map(|which| (which, self.wanted(wanted[which], bytes)))
        };
        let asks = |at| of(at).map(|(_, wanted)| wanted).collect::<Batch>();
        let mut asked = ArrayVec::<usize, GUEST_AHEAD_MAX>::new();
        for at in firsts.iter().flatten() {
            if !asked.contains(at) && transport.ask_ahead(*at, &asks(*at)) {
                asked.push(*at);
            }
        }
        for at in asked {
            let (wanted, mut found) = (asks(at), [Response::Not; GUEST_AHEAD_MAX]);
            transport.answers(at, &wanted, &mut found[..wanted.len()]).await;
            for ((which, _), (nth, found)) in of(at).zip(found.into_iter().enumerate()) {
                if let Response::Here(checksum) = found {
                    landed(which, transport.landed(at, nth), checksum);
                }
            }
        }
    }

    /// The holder to ask first for a page, if one can be asked now.
    fn first<T: Transport>(&self, transport: &mut T, page: u64) -> Option<usize> {
        let held = self.entries.held(page).into_iter();
        let mut has = held.filter(|held| self.holders[held.by].generation() == held.generation);
        has.find(|held| transport.reach(held.by)).map(|held| held.by)
    }

    fn wanted(&self, (page, version): (u64, u64), bytes: u32) -> Wanted {
        Wanted { id: self.id(page), at_least: Version(version), bytes }
    }

    async fn get<T: Transport>(
        &self,
        transport: &mut T,
        at: usize,
        page: u64,
        version: u64,
    ) -> Response {
        if !transport.reach(at) {
            return Response::Silent(Errno::EHOSTDOWN);
        }
        let wanted = self.wanted((page, version), transport.page_bytes() as u32);
        let found = transport.get(at, wanted).await;
        if let Response::Silent(_) = found {
            self.note_silent(transport, at);
        }
        found
    }

    /// A holder did not answer. Where the connection broke the background finds out why.
    fn note_silent<T: Transport>(&self, transport: &T, at: usize) {
        if !transport.is_broken(at) {
            self.holders[at].note_away(transport.now());
        }
        transport.ring();
    }

    /// Keeps a page in this version, which is higher than any before, with as many holders as there are to be; else
    /// why not: then it is stored again, in a higher version, before it is fetched.
    pub async fn store<T: Transport>(
        &self,
        transport: &mut T,
        page: u64,
        version: u64,
        from: &[u8],
    ) -> Result<(), Errno> {
        let stamp = PageStamp::of(self.id(page), Version(version), [from]);
        let had = self.entries.held(page);
        let mut held = Replicas::new();
        let order = self.order(page, &had);
        let stored = self.spread(transport, order, stamp, from, &mut held).await;
        if !held.is_empty() {
            // Also when there are too few: the page is offered to them again, and not fetched before that succeeds.
            self.entries.set(page, &held);
            self.withdraw(transport.now(), page, version, &had, &held);
        }
        self.entries.set_stored(page, transport.now().since(self.begun).as_millis() as u32);
        if stored.is_ok() {
            self.look_again(transport, &held);
        }
        stored
    }

    /// The copies that holders are to forget when a page is not needed any more; it is stored nowhere from now on.
    pub fn forget(&self, page: u64, version: u64) -> impl Iterator<Item = Obsolete> + use<> {
        let held = self.entries.held(page);
        self.entries.set(page, &[]);
        held.into_iter().map(move |held| Obsolete { holder: held.by, page, version })
    }

    /// Keeps a page in this version, which was stored last, with as many holders again as there are to be; whether
    /// there was something to do for that. `buffer` is memory for a page.
    pub async fn mend<T: Transport>(
        &self,
        transport: &mut T,
        page: u64,
        version: u64,
        buffer: &mut [u8],
    ) -> Result<bool, Gone> {
        let (had, now) = (self.entries.held(page), transport.now());
        if !self.is_weak(&had, now) {
            return Ok(false);
        }
        let (at, _) = self.fetch(transport, page, version).await?;
        buffer.copy_from_slice(transport.landed(at, 0));
        let stamp = PageStamp::of(self.id(page), Version(version), [&*buffer]);
        let has = self.entries.held(page).into_iter().filter(|held| self.has(held, now));
        let mut held: Replicas = has.collect();
        let order = self.order(page, &Replicas::new());
        let spread = self.spread(transport, order, stamp, buffer, &mut held).await;
        // A node that is only away and has it still counts until there are enough others.
        if spread.is_ok() {
            self.entries.set(page, &held);
            self.withdraw(transport.now(), page, version, &had, &held);
            self.look_again(transport, &held);
        }
        spread.map(|()| true).map_err(Gone::Unavailable)
    }

    /// The order in which holders are offered a page: those that have had it, whose frame it takes; then the others,
    /// different runs of pages beginning with different ones.
    fn order(&self, page: u64, had: &Replicas) -> impl Iterator<Item = usize> + Clone + use<> {
        let (count, first) = (self.holders.len(), mix(page / GUEST_RUN) as usize);
        let had = had.clone();
        let others = (0..count).map(move |n| first.wrapping_add(n) % count);
        let is_new = |had: &Replicas, at: usize| had.iter().all(|held| held.by != at);
        let rest = had.clone();
        had.into_iter().map(|held| held.by).chain(others.filter(move |at| is_new(&rest, *at)))
    }

    /// Offers a page to holders in `order` until there are as many as asked for in `held`, on as many machines where
    /// there are so many; why not.
    async fn spread<T: Transport>(
        &self,
        transport: &mut T,
        order: impl Iterator<Item = usize> + Clone,
        stamp: PageStamp,
        from: &[u8],
        held: &mut Replicas,
    ) -> Result<(), Errno> {
        let (had, now) = (self.entries.held(stamp.id.index), transport.now());
        let mut refused = Errno::EHOSTDOWN;
        let anywhere = order.clone().map(|at| (at, false));
        for (at, apart) in order.map(|at| (at, true)).chain(anywhere) {
            if held.len() >= self.copies {
                break;
            }
            let machine = |at| transport.there(at).map_or(0, |there| there.machine);
            if apart && !is_apart(machine(at), held.iter().map(|held| machine(held.by))) {
                continue;
            }
            let has_frame = had.iter().any(|held| held.by == at);
            let full = !has_frame && self.holders[at].is_full(now);
            if full {
                refused = Errno::ENOSPC;
            }
            if full || !transport.reach(at) || !is_another(transport, at, held) {
                continue;
            }
            match self.put(transport, at, stamp, from).await {
                Ok(new) => held.push(new),
                Err(errno) => refused = errno,
            }
        }
        if held.len() >= self.copies { Ok(()) } else { Err(refused) }
    }

    async fn put<T: Transport>(
        &self,
        transport: &mut T,
        at: usize,
        stamp: PageStamp,
        from: &[u8],
    ) -> Result<Replica, Errno> {
        let generation = transport.generation(at);
        match transport.put(at, &offer(stamp, self.copies as u8), from).await {
            Ok(()) => Ok(Replica { by: at, generation }),
            Err(Refused::Room) => {
                self.holders[at].note_full(transport.now());
                Err(Errno::ENOSPC)
            }
            Err(Refused::Silent(errno)) => {
                self.note_silent(transport, at);
                let counted = self.bugs.has(Bug::SilentHolderCounted);
                if counted { Ok(Replica { by: at, generation }) } else { Err(errno) }
            }
            Err(Refused::Other(errno)) => Err(errno),
        }
    }

    /// Holders in `had` without the page's present version are to drop their copies.
    fn withdraw(&self, now: Time, page: u64, version: u64, had: &Replicas, has: &Replicas) {
        for old in had.iter().filter(|old| has.iter().all(|new| new.by != old.by)) {
            self.drop_at(now, Obsolete { holder: old.by, page, version });
        }
    }
}

/// Whether a holder is another process than those that have the page, whatever its address.
fn is_another<T: Transport>(transport: &T, at: usize, held: &Replicas) -> bool {
    held.iter().all(|held| held.by != at && transport.there(held.by) != transport.there(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Visits;
    use crate::limits::{GUEST_AWAY_MAX, GUEST_MEND_PAUSE};
    use crate::protocol::{Put, Stayed};
    use std::task::{Context, Poll, Waker};
    use wire::NodeId;

    const NOW: Time = Time(1_000);

    fn keeping(holders: usize) -> Keeping {
        let keeping = Keeping::new(NOW, SpaceId::guest(5), holders, 2, Entries::new(1 << 14));
        let nodes = (2..).map(NodeId).zip(keeping.holders());
        nodes.for_each(|(node, holder)| assert!(!holder.note(node, 7)));
        keeping
    }

    #[test]
    fn what_a_holder_that_is_gone_was_to_forget_takes_no_room() {
        let keeping = keeping(3);
        let mut pages = 0..;
        let mut noted = |now, holder, count: usize| {
            let pages = pages.by_ref().take(count);
            let obsolete = pages.map(|page| Obsolete { holder, page, version: 1 });
            obsolete.filter(|obsolete| keeping.drop_at(now, *obsolete)).count()
        };
        assert_eq!(noted(NOW, 0, GUEST_DROPS_MAX - 10) + noted(NOW, 1, 10), GUEST_DROPS_MAX);
        assert_eq!(noted(NOW, 1, 5), 0, "nobody is gone");
        keeping.holders()[0].note_away(NOW);
        assert_eq!(noted(NOW + GUEST_AWAY_MAX, 1, 5), 5);
        assert_eq!(keeping.take_obsolete(0, 100), []);
        assert_eq!(keeping.take_obsolete(1, 12).len(), 12);
        assert_eq!(keeping.take_obsolete(1, 12).len(), 3);
    }

    #[test]
    fn pages_of_a_holder_in_another_life_are_weak_and_those_of_a_silent_one_after_a_while() {
        let keeping = keeping(3);
        let held = |by| Replica { by, generation: 1 };
        (0..10).for_each(|page| keeping.entries.set(page, &[held(0), held(1 + page as usize % 2)]));
        assert_eq!(keeping.weak_count(NOW), 0);
        keeping.holders()[1].note_away(NOW);
        assert_eq!(keeping.weak_count(NOW), 0);
        assert_eq!(keeping.weak(NOW + GUEST_AWAY_MAX, 100), [0, 2, 4, 6, 8]);
        assert!(keeping.holders()[2].note(NodeId(4), 8));
        assert_eq!(keeping.weak_count(NOW + GUEST_AWAY_MAX), 10);
    }

    #[test]
    fn pages_that_nobody_can_give_now_keep_no_others_waiting() {
        let (keeping, late) = (keeping(3), NOW + GUEST_AWAY_MAX);
        let held = |by| Replica { by, generation: 1 };
        (0..10).for_each(|page| keeping.entries.set(page, &[held(0), held(1)]));
        (10..20).for_each(|page| keeping.entries.set(page, &[held(0), held(2)]));
        keeping.entries.set(20, &[held(0), Replica { by: 2, generation: 0 }]);
        (0..2).for_each(|at| keeping.holders()[at].note_away(NOW));
        assert_eq!(keeping.weak(late, 100), Vec::from_iter(10..20));
        let mut visits = Visits::new(&keeping);
        keeping.raise_alarm();
        assert_eq!(visits.weak(&keeping, late), Vec::from_iter(10..20));
        keeping.holders()[0].note(NodeId(2), 7);
        let again = visits.weak(&keeping, late + GUEST_MEND_PAUSE);
        assert_eq!(again, Vec::from_iter((0..10).chain([20])), "they are looked for again");
    }

    /// Transport to holders on these machines that take pages.
    struct Taking<'a> {
        keeping: &'a Keeping,
        machines: [u64; 4],
        /// Begins another incarnation before it is heard of.
        restarts: Option<usize>,
        rung: std::cell::Cell<u32>,
    }

    impl<'a> Taking<'a> {
        fn new(keeping: &'a Keeping) -> Taking<'a> {
            Taking { keeping, machines: [0; 4], restarts: None, rung: Default::default() }
        }

        fn store(&mut self, page: u64) {
            let store = std::pin::pin!(self.keeping.store(self, page, 1, &[0; 4096]));
            let stored = store.poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(stored, Poll::Ready(Ok(())));
        }
    }

    impl Transport for Taking<'_> {
        fn now(&self) -> Time {
            NOW
        }

        fn page_bytes(&self) -> usize {
            4096
        }

        fn reach(&mut self, _at: usize) -> bool {
            true
        }

        fn is_broken(&self, _at: usize) -> bool {
            false
        }

        fn there(&self, at: usize) -> Option<Stayed> {
            Some(Stayed { node: NodeId(2 + at as u16), incarnation: 7, machine: self.machines[at] })
        }

        fn generation(&self, _at: usize) -> u16 {
            1
        }

        async fn get(&mut self, _at: usize, _wanted: Wanted) -> Response {
            Response::Not
        }

        fn ask_ahead(&mut self, _at: usize, _wanted: &[Wanted]) -> bool {
            false
        }

        async fn answers(&mut self, _at: usize, _wanted: &[Wanted], _found: &mut [Response]) {}

        fn landed(&self, _at: usize, _nth: usize) -> &[u8] {
            &[]
        }

        async fn put(&mut self, at: usize, _put: &Put, _data: &[u8]) -> Result<(), Refused> {
            if self.restarts == Some(at) {
                self.keeping.holders()[at].note(NodeId(3), 8);
                self.keeping.take_alarm(); // who noticed that has looked before this page was there
            }
            Ok(())
        }

        fn ring(&self) {
            self.rung.set(self.rung.get() + 1);
        }
    }

    #[test]
    fn copies_are_on_different_machines_where_there_are_two() {
        for machines in [[5, 5, 5, 6], [5, 5, 5, 5], [0; 4]] {
            let keeping = keeping(4);
            let mut transport = Taking { machines, ..Taking::new(&keeping) };
            for page in (0..100).map(|page| page * GUEST_RUN) {
                transport.store(page);
                let by: Vec<usize> =
                    keeping.entries.held(page).iter().map(|held| held.by).collect();
                assert!(by.len() == 2 && by[0] != by[1]);
                assert!(machines[3] != 6 || by.contains(&3), "the other machine has one: {by:?}");
            }
        }
    }

    #[test]
    fn who_took_a_page_and_went_before_that_was_written_down_is_noticed() {
        let keeping = keeping(2);
        let mut transport = Taking { restarts: Some(1), ..Taking::new(&keeping) };
        transport.store(5);
        assert_eq!(keeping.weak(NOW, 100), [5]);
        assert!(keeping.take_alarm() && transport.rung.get() == 1);
    }
}
