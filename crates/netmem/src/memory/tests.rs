//! The frame table against a map of pages.

use super::*;
use crate::limits::{OLD_END, STAGING_SHARE};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::NodeId;

const FRAMES: u32 = 24;
const LOCAL_MIN: u32 = 9;

#[derive(Clone, Debug)]
enum Op {
    /// `ahead`: prefetched, and kept for so many ns.
    Install {
        index: u64,
        class: Class,
        duplicate: bool,
        ahead: Option<u64>,
    },
    Use(u64),
    Copied(u64),
    Write(u64),
    Sending(u64),
    Sent(u64),
    Stored {
        index: u64,
        back: u64,
    },
    MirrorLost {
        index: u64,
    },
    Written {
        index: u64,
        back: u64,
    },
    Release(u64),
    Superseded {
        index: u64,
        ahead: u64,
    },
    Accept {
        index: u64,
        version: u64,
        age: u64,
        mirror: bool,
    },
    Evict,
    FreeSpace(u64),
}

/// Two spaces, so that one can be freed.
fn page(index: u64) -> PageId {
    PageId { space: SpaceId(index % 2), index }
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop_oneof![Just(Class::WriteBack), Just(Class::Mirrored), Just(Class::Volatile)];
    let index = || 0u64..60;
    prop_oneof![
        8 => (index(), class, any::<bool>(), prop::option::weighted(0.3, 0u64..2_000_000))
            .prop_map(|(index, class, duplicate, ahead)| Op::Install { index, class, duplicate, ahead }),
        6 => index().prop_map(Op::Use),
        1 => index().prop_map(Op::Copied),
        4 => index().prop_map(Op::Write),
        1 => index().prop_map(Op::Sending),
        3 => index().prop_map(Op::Sent),
        4 => (index(), 0u64..2).prop_map(|(index, back)| Op::Stored { index, back }),
        1 => index().prop_map(|index| Op::MirrorLost { index }),
        2 => (index(), 0u64..2).prop_map(|(index, back)| Op::Written { index, back }),
        2 => index().prop_map(Op::Release),
        1 => (index(), 0u64..2).prop_map(|(index, ahead)| Op::Superseded { index, ahead }),
        8 => (index(), 0u64..6, 0u64..3000, prop::bool::weighted(0.3))
            .prop_map(|(index, version, age, mirror)| Op::Accept { index, version, age, mirror }),
        8 => Just(Op::Evict),
        1 => (0u64..2).prop_map(Op::FreeSpace),
    ]
}

/// State of a page as seen from outside: nothing of frames, lists and ages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    version: u64,
    own: bool,
    /// `None` when clean.
    copies: Option<u8>,
    needed: Option<u8>,
    busy: bool,
}

impl Known {
    fn is_durable(&self) -> bool {
        self.copies.is_none_or(|copies| self.needed.is_some_and(|needed| copies >= needed))
    }

    /// A clean copy of the same version does not take a mirror's place.
    fn is_demoted_by(&self, offer: &Offer) -> bool {
        self.is_mirror() && !offer.mirror && self.version == offer.version.0
    }

    fn is_mirror(&self) -> bool {
        !self.own && self.copies.is_some()
    }
}

struct World {
    memory: Memory,
    model: BTreeMap<u64, Known>,
    now: Time,
}

impl World {
    fn at(&mut self, index: u64) -> Option<(FrameNo, &mut Known)> {
        let frame = self.memory.find(page(index));
        assert_eq!(frame.is_some(), self.model.contains_key(&index));
        Some((frame?, self.model.get_mut(&index)?))
    }

    /// A page has gone: only if nothing is lost by that.
    fn gone(&mut self, index: u64) {
        let known = self.model.remove(&index).unwrap();
        assert!(known.is_durable() && !known.busy && !known.is_mirror(), "lost {index}: {known:?}");
    }

    fn apply(&mut self, op: Op) {
        self.now.0 += 100_000;
        match op {
            Op::Install { index, class, duplicate, ahead } => {
                let ahead_until = ahead.map(|span| Time(self.now.0 + span));
                let arrival = Arrival { class, duplicate, ahead_until, ..Arrival::default() };
                self.install(index, arrival);
            }
            Op::Accept { index, version, age, mirror } => {
                let offer = Offer {
                    id: page(index),
                    version: Version(version),
                    blocks: 1,
                    age: Age(age),
                    chances: 2,
                    reused: age.is_multiple_of(2),
                    mirror,
                };
                self.accept(index, offer);
            }
            Op::Evict => self.evict(),
            Op::FreeSpace(space) => {
                let left = self.memory.free_space(SpaceId(space));
                self.model.retain(|index, known| index % 2 != space || known.busy);
                assert_eq!(
                    left as usize,
                    self.model.keys().filter(|index| *index % 2 == space).count()
                );
            }
            Op::Use(index)
            | Op::Copied(index)
            | Op::Write(index)
            | Op::Sending(index)
            | Op::Sent(index)
            | Op::Release(index) => self.step(index, op),
            Op::Stored { index, .. }
            | Op::MirrorLost { index }
            | Op::Written { index, .. }
            | Op::Superseded { index, .. } => self.told(index, op),
        }
    }

    fn install(&mut self, index: u64, arrival: Arrival) {
        let arrival = Arrival { id: page(index), version: Version(1), ..arrival };
        let free = self.memory.counts().free;
        let present = self.at(index).map(|(frame, _)| frame);
        match self.memory.install(self.now, arrival) {
            Ok(frame) => {
                let ahead = arrival.ahead_until.is_some();
                assert_eq!(self.memory.role(frame), if ahead { Role::Ahead } else { Role::Local });
                let known = Known {
                    version: 1,
                    own: true,
                    copies: None,
                    needed: arrival.class.copies(),
                    busy: false,
                };
                assert!(self.model.insert(index, known).is_none());
            }
            Err(NotInstalled::Present(frame)) => assert_eq!(present, Some(frame)),
            Err(NotInstalled::NoRoom) => assert!(free == 0 && present.is_none()),
        }
    }

    fn step(&mut self, index: u64, op: Op) {
        let now = self.now;
        let Some((frame, known)) = self.at(index) else { return };
        let mut known = *known;
        let mut goes = false;
        match op {
            Op::Use(_) => {
                self.memory.handle_use(now, frame);
                known.own |= !known.is_mirror();
            }
            Op::Copied(_) => self.memory.handle_copied(now, frame),
            Op::Sending(_) => {
                self.memory.handle_sending(frame);
                known.busy = true;
            }
            Op::Sent(_) => {
                self.memory.handle_sent(frame);
                known.busy = false;
            }
            Op::Write(_) => match self.memory.handle_write(now, frame) {
                None => assert!(known.is_mirror()),
                Some(Version(version)) => {
                    assert!(
                        version == known.version && known.copies.is_some()
                            || version == known.version + 1
                    );
                    let copies = if version == known.version { known.copies } else { Some(0) };
                    known = Known { version, own: true, copies, ..known };
                }
            },
            _ => match self.memory.release(frame) {
                Ok(_) => goes = true,
                Err(Kept::Busy) => assert!(known.busy),
                Err(Kept::NotDurable) => assert!(known.is_mirror() || !known.is_durable()),
            },
        }
        self.model.insert(index, known);
        if goes {
            self.gone(index);
        }
    }

    fn told(&mut self, index: u64, op: Op) {
        let Some((frame, known)) = self.at(index) else { return };
        let mut known = *known;
        let version = |back| Version(known.version.saturating_sub(back));
        match op {
            Op::Stored { back, .. } => {
                let counts = self.memory.handle_stored(frame, version(back));
                assert_eq!(counts, known.copies.is_some() && version(back).0 == known.version);
                known.copies = known.copies.map(|copies| copies + u8::from(counts));
            }
            Op::MirrorLost { .. } => {
                let counts = self.memory.handle_mirror_lost(frame, version(0));
                assert_eq!(counts, known.copies.is_some());
                known.copies = known.copies.map(|copies| copies.saturating_sub(1));
            }
            Op::Written { back, .. } => {
                let counts = self.memory.handle_written(frame, version(back));
                assert_eq!(counts, version(back).0 == known.version);
                known.copies = known.copies.filter(|_| !counts);
            }
            Op::Superseded { ahead, .. } => {
                let goes = self.memory.handle_superseded(frame, Version(known.version + ahead));
                assert_eq!(goes, ahead > 0 && !known.busy);
                if goes {
                    self.model.remove(&index);
                    return;
                }
            }
            _ => unreachable!(),
        }
        self.model.insert(index, known);
    }

    fn accept(&mut self, index: u64, offer: Offer) {
        let before = self.memory.counts();
        let present = self.at(index).map(|(_, known)| *known);
        let limit = self.memory.oldest_taken(self.now);
        let accepted = match self.memory.accept(self.now, offer) {
            Ok(accepted) => accepted,
            Err(refused) => return self.check_refusal(offer, present, refused),
        };
        assert!(
            present
                .is_none_or(|known| !known.own && !known.busy && known.version <= offer.version.0)
        );
        assert!(!present.is_some_and(|known| known.is_demoted_by(&offer)));
        if let Some(displaced) = accepted.displaced {
            assert!(before.free == 0 && present.is_none());
            assert!(
                offer.mirror || offer.age.of_use(offer.reused) <= limit,
                "{offer:?} for {limit:?}"
            );
            let was_own = self.model[&displaced.id.index].own;
            assert!(!was_own || before.own() > LOCAL_MIN, "below the guaranteed minimum");
            self.gone(displaced.id.index);
        }
        let copies = offer.mirror.then_some(0);
        let known =
            Known { version: offer.version.0, own: false, copies, needed: None, busy: false };
        self.model.insert(index, known);
    }

    fn check_refusal(&self, offer: Offer, present: Option<Known>, refused: Refused) {
        match refused.reason {
            Reason::InUse => {
                let in_use = |known: Known| known.own || known.busy || known.is_demoted_by(&offer);
                assert!(present.is_some_and(in_use));
            }
            Reason::Stale => assert!(present.is_some_and(|known| known.version > offer.version.0)),
            Reason::NoRoom if offer.mirror => {
                let counts = self.memory.counts();
                assert!(counts.free == 0 || counts.mirror >= FRAMES - LOCAL_MIN);
            }
            Reason::NoRoom => {
                let rank = offer.age.of_use(offer.reused);
                assert!(self.memory.counts().free == 0 && rank >= refused.oldest)
            }
        }
    }

    fn evict(&mut self) {
        let Some(eviction) = self.memory.poll_eviction(self.now) else {
            let movable = |known: &&Known| !known.busy && !known.is_mirror();
            let stuck = self.model.values().filter(movable).filter(|known| !known.own);
            let busy = self.model.values().filter(|known| known.busy).count();
            return assert!(
                stuck.count() == 0 || busy >= OLD_END,
                "a page of another node could go"
            );
        };
        self.check_guarantee(eviction);
        match eviction {
            Eviction::Staged(frame) => assert_eq!(self.memory.role(frame), Role::Staged),
            Eviction::Dirty(frame) => {
                let index = self.memory.page(frame).unwrap().id.index;
                assert!(!self.model[&index].is_durable() && !self.model[&index].busy);
                assert_eq!(self.memory.release(frame), Err(Kept::NotDurable));
            }
            Eviction::Durable(frame) => {
                let gone = self.memory.release(frame).expect("what may leave can be released");
                self.gone(gone.id.index);
            }
        }
    }

    /// A node that has fewer pages than it is guaranteed gets the frames that others' clean pages have.
    fn check_guarantee(&self, eviction: Eviction) {
        let (Eviction::Durable(frame) | Eviction::Dirty(frame)) = eviction else { return };
        let of_others = |known: &&Known| !known.own && !known.is_mirror() && !known.busy;
        let others = self.model.values().filter(of_others).count();
        let busy = self.model.values().filter(|known| known.busy).count();
        // what was fetched ahead and not used in its time goes first anyhow
        let goes = matches!(self.memory.role(frame), Role::Local | Role::Staged);
        let lacks = self.memory.counts().own() < LOCAL_MIN;
        assert!(!(goes && lacks && others > 0 && busy < OLD_END), "others keep what is guaranteed");
    }

    fn check(&self) {
        assert_eq!(self.memory.squeezed(), 0);
        let counts = self.memory.counts();
        assert_eq!(counts.total(), FRAMES);
        assert!(counts.staged <= (FRAMES / STAGING_SHARE).max(1));
        assert!(counts.mirror <= FRAMES - LOCAL_MIN);
        assert_eq!((counts.total() - counts.free) as usize, self.model.len());
        for (index, known) in &self.model {
            let frame = self.memory.find(page(*index)).expect("a page that is known is there");
            let page = self.memory.page(frame).unwrap();
            let own = self.memory.role(frame).is_own();
            let copies = match page.durability {
                Durability::Clean => None,
                Durability::Dirty { copies } => Some(copies),
            };
            assert_eq!((page.id.index, page.version.0, own), (*index, known.version, known.own));
            assert_eq!((copies, page.busy), (known.copies, known.busy));
            assert_eq!(self.memory.role(frame) == Role::Mirror, known.is_mirror());
        }
        [0, 300, 3000].iter().for_each(|time_to_use| self.check_ahead(Age(*time_to_use)));
        let digest = self.memory.digest(self.now);
        assert_eq!(digest.local.total(), u64::from(counts.own()));
        assert_eq!(digest.hosted.total(), u64::from(counts.hosted));
    }
}

impl World {
    /// The victim for a prefetched page is used later than it, or was not used in its time.
    fn check_ahead(&self, time_to_use: Age) {
        let Some(frame) = self.memory.poll_ahead(self.now, time_to_use) else { return };
        let page = self.memory.page(frame).unwrap();
        assert!(page.is_durable() && !page.busy && self.memory.role(frame) != Role::Mirror);
        match self.memory.role(frame) {
            Role::Ahead => assert!(page.until <= self.now),
            _ => assert!(page.age(self.now) > time_to_use),
        }
    }
}

fn memory(counts_uses: bool) -> Memory {
    Memory::new(MemoryConfig { frames: FRAMES, local_min: LOCAL_MIN, counts_uses })
}

proptest! {
    /// After any operations: the sums fit, nothing is lost that is not durable, every guarantee holds.
    #[test]
    fn a_memory_is_a_map(counts_uses: bool, ops in prop::collection::vec(op(), 1..400)) {
        let memory = memory(counts_uses);
        let mut world = World { memory, model: BTreeMap::new(), now: Time(1 << 40) };
        for op in ops {
            world.apply(op);
            world.check();
        }
    }
}

fn filled(pages: u64) -> Memory {
    let mut memory = memory(true);
    for index in 0..pages {
        let arrival = Arrival { id: page(index), version: Version(1), ..Arrival::default() };
        memory.install(Time(index * 1_000_000), arrival).unwrap();
    }
    memory
}

fn offer(index: u64, age: u64) -> Offer {
    let (id, version, age) = (page(index), Version(1), Age(age));
    Offer { id, version, blocks: 1, age, chances: 2, reused: true, mirror: false }
}

#[test]
fn a_page_in_the_staging_queue_that_is_used_goes_back() {
    let mut memory = filled(24);
    let now = Time(24_000_000);
    let Some(Eviction::Staged(first)) = memory.poll_eviction(now) else { panic!("nothing staged") };
    assert_eq!(memory.page(first).unwrap().id, page(0));
    let Some(Eviction::Staged(second)) = memory.poll_eviction(now) else {
        panic!("nothing staged")
    };
    memory.handle_use(now, first);
    assert_eq!(memory.role(first), Role::Local);
    assert!(matches!(memory.poll_eviction(now), Some(Eviction::Staged(_))));
    assert_eq!(memory.poll_eviction(now), Some(Eviction::Durable(second)));
}

#[test]
fn a_page_that_was_used_again_stays_longer() {
    let mut memory = filled(24);
    let now = Time(24_000_000);
    memory.handle_use(now, FrameNo(0));
    let leaves = |memory: &mut Memory| loop {
        match memory.poll_eviction(now).unwrap() {
            Eviction::Durable(frame) => return memory.release(frame).unwrap().id.index,
            _ => continue,
        }
    };
    assert!((1..20).all(|index| leaves(&mut memory) == index));
}

#[test]
fn a_younger_page_is_not_displaced_and_an_older_one_is() {
    let mut memory = filled(20);
    (100..104).for_each(|index| {
        memory.accept(Time(20_000_000), offer(index, 5_000)).unwrap();
    });
    let now = Time(20_000_000);
    let refused = memory.accept(now, offer(200, 20_000)).unwrap_err();
    assert_eq!(refused.reason, Reason::NoRoom);
    // the oldest own page is 20 ms old: a page of 13.3 ms may take its place, one of another node up to its age
    assert_eq!(refused.oldest, Age(13_333));
    let accepted = memory.accept(now, offer(201, 5_000)).unwrap();
    assert_eq!(accepted.displaced.map(|page| page.id.index), Some(100));
    let accepted = memory.accept(now, offer(202, 13_000)).unwrap();
    assert_eq!(accepted.displaced.map(|page| page.id.index), Some(0));
}

#[test]
fn others_never_take_what_is_guaranteed() {
    let mut memory = filled(24);
    let now = Time(1 << 50);
    // each is older than what others have here by then
    let taken = (100..200).filter(|age| memory.accept(now, offer(*age, *age)).is_ok()).count();
    assert_eq!((taken, memory.counts().own()), (15, LOCAL_MIN));
}

/// A node that was idle, whose frames others have, gets what it is guaranteed as soon as it uses pages, however slowly
/// and however much others use theirs.
#[test]
fn an_idle_node_gets_what_it_is_guaranteed_back() {
    let mut memory = memory(true);
    let (mut now, mut own) = (Time(1 << 50), 0);
    while own < LOCAL_MIN {
        (100..100 + u64::from(FRAMES)).for_each(|index| {
            let _ = memory.accept(now, offer(index, 1));
            let hosted = memory.find(page(index));
            hosted.into_iter().for_each(|frame| memory.handle_read(now, frame));
        });
        while memory.counts().free == 0 {
            if let Some(Eviction::Durable(frame)) = memory.poll_eviction(now) {
                memory.release(frame).unwrap();
            }
        }
        let arrival = Arrival { id: page(own.into()), version: Version(1), ..Arrival::default() };
        memory.install(now, arrival).unwrap();
        own += 1;
        assert_eq!(memory.counts().own(), own, "one of them had to go for others'");
        now.0 += 1 << 40;
    }
}

/// Mirrors cannot be taken back, so they leave the node its minimum even while nothing else is there.
#[test]
fn mirrors_leave_the_node_its_minimum() {
    let mut memory = memory(true);
    let now = Time(1 << 50);
    let mirror = |index| Offer { mirror: true, ..offer(index, 5) };
    let taken = (100..200).filter(|index| memory.accept(now, mirror(*index)).is_ok()).count();
    assert_eq!((taken as u32, memory.counts().free), (FRAMES - LOCAL_MIN, LOCAL_MIN));
    assert!(memory.accept(now, mirror(100)).is_ok(), "one that is there may come again");
    assert_eq!(memory.release(memory.find(page(100)).unwrap()), Err(Kept::NotDurable));
    assert_eq!(memory.poll_eviction(now), None);
    let settled = memory.find(page(101)).unwrap();
    assert!(memory.handle_written(settled, Version(1)));
    assert_eq!(memory.poll_eviction(now), Some(Eviction::Durable(settled)));
}

/// While version 1 is on its way to a mirror its page is written again: what the mirror then says is about the old one.
#[test]
fn a_write_during_a_transfer_makes_a_new_version() {
    let mut memory = memory(true);
    let arrival = Arrival { id: page(0), class: Class::Mirrored, ..Arrival::default() };
    let frame = memory.install(Time(1), arrival).unwrap();
    assert_eq!(memory.handle_write(Time(2), frame), Some(Version(1)));
    assert_eq!(memory.handle_write(Time(3), frame), Some(Version(1)));
    memory.handle_sending(frame);
    assert_eq!(memory.handle_write(Time(4), frame), Some(Version(2)));
    memory.handle_sent(frame);
    assert!(!memory.handle_stored(frame, Version(1)) && !memory.handle_stored(frame, Version(1)));
    assert_eq!(memory.release(frame), Err(Kept::NotDurable));
    memory.handle_sending(frame);
    memory.handle_sent(frame);
    assert!(memory.handle_stored(frame, Version(2)) && memory.handle_stored(frame, Version(2)));
    assert_eq!(memory.release(frame).map(|page| page.version), Ok(Version(2)));
}

/// A prefetched page waits for its first use; when its time has passed it leaves before all others.
#[test]
fn what_nobody_came_for_leaves_first() {
    let mut memory = memory(true);
    let ahead = |index, until| {
        let ahead_until = Some(Time(until));
        Arrival { id: page(index), version: Version(1), ahead_until, ..Arrival::default() }
    };
    let used = memory.install(Time(1), ahead(0, 1000)).unwrap();
    let late = memory.install(Time(2), ahead(1, 1000)).unwrap();
    for index in 2..u64::from(FRAMES) {
        memory.install(Time(3), Arrival { id: page(index), ..Arrival::default() }).unwrap();
    }
    memory.handle_use(Time(4), used);
    assert_eq!((memory.role(used), memory.role(late)), (Role::Local, Role::Ahead));
    let next = memory.poll_eviction(Time(999));
    assert!(next.is_some_and(|next| next != Eviction::Durable(late)), "its time has not passed");
    assert_eq!(memory.poll_eviction(Time(1000)), Some(Eviction::Durable(late)));
    memory.release(late).unwrap();
    assert_eq!(memory.ahead(), Ahead { used: 1, wasted: 1 });
}

/// Pages of caches that are used once go through a part of the memory, and leave what is used again where it is.
#[test]
fn a_caches_page_that_was_used_once_goes_for_others() {
    let (mut memory, now) = (memory(true), Time(1 << 40));
    let space = SpaceId::cache(NodeId(2), 1);
    let once =
        |index, age| Offer { id: PageId { space, index }, reused: false, ..offer(index, age) };
    let frames = u64::from(memory.counts().free);
    for index in 0..frames {
        let offer = if index < frames / 2 { offer(index, 1000) } else { once(index, 600) };
        assert_eq!(memory.accept(now, offer).unwrap().displaced, None);
    }
    let mut displaced =
        |offer| memory.accept(now, offer).unwrap().displaced.map(|page| page.id.index);
    assert!(displaced(offer(100, 10)).unwrap() >= frames / 2, "though others are older");
    assert!(displaced(once(101, 100)).unwrap() >= frames / 2);
    assert!(displaced(once(102, 200)).unwrap() < frames / 2, "four times as old");
    assert!(memory.accept(now, once(103, 300)).is_err());
    assert_eq!(u64::from(memory.counts().hosted), frames);
}
