//! One replica's part in its group: whether its server may order writes or take them, and what it proposes about the
//! others (PacificA, MSR-TR-2008-25, sections 2.2 to 2.4; what is acknowledged from memory is added to it).
//!
//! **Leases.** The replicas of a group ask each other all the time. A replica in sync promises the primary to take
//! nothing over for a grace that is longer than the primary's lease, and counts from when it was asked, the primary
//! from when it asked: the primary stops first, whatever is delayed or lost, as long as no clock runs faster than
//! another by more than [`DRIFT_MAX_PERCENT`]. No store is asked, so an outage of that one ends no lease.
//!
//! **Memory.** A WRITE is answered when every replica in sync has it in memory, so a replica that starts anew lacks
//! what it was in sync with. It *has its memory* while it lacks nothing, under a number that is the same at all of
//! them: clients see it as the write verifier. It outlives a primary whose place is taken by a replica that has its
//! memory. Where none has, as after a power cut, what is durable at the primary counts: it goes on without the others,
//! under a new number, and fills them.
//!
//! ```text
//!  start ─► Lost ── the primary, and alone in sync ────────────────────────► Kept(number)
//!             │                                                                  ▲
//!             └─ removed by another one ─► out of sync ─ filled, admitted ───────┘
//! ```
//!
//! **Damage.** A replica with a damaged object offers to leave: it says that it has lost its memory, and does nothing
//! that takes memory, until one that has all has removed it and fills it, or none is there to do so. Nothing is
//! acknowledged without it meanwhile, so it may go on as before.
//!
//! **Handing over.** A primary that is to be another one orders nothing more, waits until all that it has ordered was
//! executed by all, and proposes the other one. It orders again only when it knows the outcome, so the others never
//! lack what it has. The next one need not wait for the end of its promise once it hears that the one before knows.

use super::{Change, Group, Replica};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{NodeId, Time};

/// How long a primary acts on a lease.
pub const LEASE_SPAN: Duration = Duration::from_secs(2);
/// How much faster than another's a server's clock may run.
pub const DRIFT_MAX_PERCENT: u32 = 10;
/// How long a replica keeps its promise.
pub const GRACE: Duration = Duration::from_millis(2_400);
const _: () = assert!(
    GRACE.as_millis() * 100 > LEASE_SPAN.as_millis() * (100 + DRIFT_MAX_PERCENT as u128),
    "the primary stops first"
);

/// What a replica in sync has of the data that was acknowledged from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Its server has started since.
    Lost,
    /// All of it; the number is the write verifier.
    Kept(u64),
}

/// What a replica says of itself with each request for a lease, and with each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The incarnation of its server.
    pub incarnation: u64,
    /// The group's epoch as it knows it. One that hears of a later one asks for the group.
    pub epoch: u32,
    /// What it has.
    pub memory: Memory,
}

/// Why a server does not order a change, or take one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The group has this epoch here.
    Epoch(u32),
    /// Another one is the primary, or this one is not in sync.
    NotYours,
    /// It is not certain that it still is the primary.
    NoLease,
    /// It is not settled yet what is here since the last start.
    Starting,
}

/// The promise to a primary.
#[derive(Clone, Copy, Debug)]
struct Promise {
    to: NodeId,
    until: Time,
}

/// A replica's part in its group.
///
/// Getters; [`orders`](Seat::orders), [`takes`](Seat::takes), [`settles`](Seat::settles),
/// [`is_whole`](Seat::is_whole); then
/// [`propose`](Seat::propose), [`handle_group`](Seat::handle_group), [`handle_ask`](Seat::handle_ask),
/// [`handle_answer`](Seat::handle_answer), [`handle_settled`](Seat::handle_settled).
#[derive(Debug)]
pub struct Seat {
    own: Replica,
    incarnation: u64,
    /// Promises of the incarnation before are not known, and kept for as long as they may last.
    started: Time,
    group: Group,
    memory: Memory,
    /// It offers to leave, as something here is damaged.
    leaves: bool,
    /// What others said last, and when.
    heard: BTreeMap<NodeId, (Word, Time)>,
    /// Since when the group, and what is here of it, are as they are.
    since: Time,
    /// Until when others have promised.
    held: BTreeMap<NodeId, Time>,
    promise: Option<Promise>,
    /// It has become the primary in place of one that is gone: the others may have changes of that one which it lacks.
    took_over: bool,
    /// A proposal is under way: what was true when it was made stays so, and nothing is promised.
    proposes: bool,
    /// It hands over: nothing is ordered.
    yields: bool,
}

impl Seat {
    /// Of a replica whose server has just started, in the group as it is known then.
    pub fn new(now: Time, own: Replica, incarnation: u64, group: Group) -> Seat {
        let (heard, held) = (BTreeMap::new(), BTreeMap::new());
        let (memory, promise, proposes) = (Memory::Lost, None, false);
        let (took_over, leaves, yields) = (false, false, false);
        Seat {
            own,
            incarnation,
            started: now,
            group,
            memory,
            leaves,
            heard,
            since: now,
            held,
            promise,
            took_over,
            proposes,
            yields,
        }
    }

    /// The group as it is known here.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// What it says of itself.
    pub fn word(&self) -> Word {
        Word { incarnation: self.incarnation, epoch: self.group.epoch(), memory: self.memory() }
    }

    /// What it acts on.
    fn memory(&self) -> Memory {
        if self.leaves { Memory::Lost } else { self.memory }
    }

    /// Whether it has all that the group counts on it for. One that has just started does not know that yet.
    pub fn is_whole(&self) -> bool {
        self.is_in_sync() && self.memory() != Memory::Lost
    }

    /// The other replicas in sync, in order.
    pub fn others(&self) -> impl Iterator<Item = Replica> + Clone + '_ {
        self.group.in_sync().filter(|other| *other != self.own)
    }

    fn is_in_sync(&self) -> bool {
        self.group.is_in_sync(self.own)
    }

    /// Whether others in sync may have what this one lacks, or lack what it has.
    fn is_unlike(&self) -> bool {
        self.took_over && self.others().next().is_some()
    }

    fn is_primary(&self) -> bool {
        self.group.primary() == self.own
    }

    /// Whether a change or a read that knows this epoch may be executed as the primary: with which verifier.
    pub fn orders(&self, now: Time, epoch: u32) -> Result<u64, Refused> {
        if epoch != self.group.epoch() {
            return Err(Refused::Epoch(self.group.epoch()));
        }
        if !self.is_primary() {
            return Err(Refused::NotYours);
        }
        let Memory::Kept(verifier) = self.memory() else { return Err(Refused::Starting) };
        // A promise to the one before is kept, also where the proposal that followed took long.
        let has_promised = self.promise.is_some_and(|promise| now < promise.until);
        let acts = !self.yields
            && !has_promised
            && !self.is_unlike()
            && self.others().all(|other| self.holds(now, other));
        if acts { Ok(verifier) } else { Err(Refused::NoLease) }
    }

    /// Whether a change that `primary` has ordered in this epoch is to be executed. Also one that is being filled takes
    /// all.
    pub fn takes(&self, primary: Replica, epoch: u32, verifier: u64) -> Result<(), Refused> {
        if epoch != self.group.epoch() {
            return Err(Refused::Epoch(self.group.epoch()));
        }
        if primary != self.group.primary() || self.is_primary() {
            return Err(Refused::NotYours);
        }
        let has_all = self.memory() == Memory::Kept(verifier);
        if has_all || !self.is_in_sync() { Ok(()) } else { Err(Refused::Starting) }
    }

    fn holds(&self, now: Time, other: Replica) -> bool {
        self.held.get(&other.server).is_some_and(|until| now < *until)
    }

    /// What another replica has, as far as it has said so in this epoch.
    fn told(&self, other: Replica) -> Option<Memory> {
        let (word, _) = self.heard.get(&other.server)?;
        (word.epoch == self.group.epoch()).then_some(word.memory)
    }

    /// Whether nothing was promised to the primary that may still last.
    fn is_free_of(&self, now: Time, primary: Replica) -> bool {
        let promised = self.promise.filter(|promise| promise.to == primary.server);
        now >= promised.map_or(self.started + GRACE, |promise| promise.until)
    }

    /// Whether another replica has said nothing for so long that it is not waited for.
    fn is_silent(&self, now: Time, other: Replica) -> bool {
        let heard = self.heard.get(&other.server).map_or(self.started, |(_, at)| *at);
        now >= heard.max(self.since) + GRACE
    }

    /// Whether another replica does not do its part any more.
    fn misses(&self, now: Time, other: Replica) -> bool {
        let granted = self.held.get(&other.server).copied().unwrap_or_default();
        match self.is_primary() {
            true => now >= granted.max(self.since + GRACE),
            false => self.is_silent(now, other),
        }
    }

    /// What is to be proposed about another replica now, if anything; until [`handle_proposed`](Seat::handle_proposed)
    /// nothing is promised, and nothing more proposed.
    pub fn propose(&mut self, now: Time) -> Option<Change> {
        if !self.is_in_sync() || self.proposes {
            return None;
        }
        self.leaves &= self.may_leave(now);
        if self.leaves {
            return None;
        }
        let goes = self.others().find(|other| self.goes(now, *other));
        self.proposes = goes.is_some();
        goes.map(Change::Remove)
    }

    fn goes(&self, now: Time, other: Replica) -> bool {
        let is_primary = other == self.group.primary();
        let may_propose = self.is_primary() || is_primary && self.is_free_of(now, other);
        if !may_propose {
            return false;
        }
        match (self.memory(), self.told(other)) {
            // What was on its way from the primary before this one is at some of the others only.
            (Memory::Kept(_), _) if self.is_primary() && self.took_over => true,
            (Memory::Kept(_), Some(Memory::Lost)) => true,
            // All have lost theirs: what is durable at the primary counts.
            (Memory::Lost, Some(Memory::Lost)) => self.is_primary() || self.is_silent(now, other),
            // It may have what was acknowledged from memory: it is the one to go on, for as long as it is there.
            (Memory::Lost, _) => self.is_silent(now, other),
            _ => self.misses(now, other),
        }
    }

    /// Something here is damaged that another replica in sync has: this one offers to leave, if one is there to take
    /// over. Whether it does.
    pub fn handle_damage(&mut self, now: Time) -> bool {
        let offers = self.is_in_sync() && self.memory != Memory::Lost && self.may_leave(now);
        if offers && !self.leaves {
            self.held.clear();
        }
        self.leaves = offers;
        offers
    }

    /// Whether another replica in sync is there.
    pub fn is_answered(&self, now: Time) -> bool {
        self.others().any(|other| !self.is_silent(now, other))
    }

    /// Whether another replica in sync is there that has all.
    fn may_leave(&self, now: Time) -> bool {
        let has_all = |other| matches!(self.told(other), Some(Memory::Kept(_)));
        self.others().any(|other| has_all(other) && !self.is_silent(now, other))
    }

    /// The proposal has come to its end, whatever that is.
    pub fn handle_proposed(&mut self) {
        (self.proposes, self.yields) = (false, false);
    }

    /// This primary is asked to hand over to another replica, by the group's epoch: whether it does. Then it orders
    /// nothing more until [`handle_proposed`](Seat::handle_proposed).
    pub fn handle_hand_over(&mut self, now: Time, epoch: u32, to: Replica) -> bool {
        let has_all =
            self.told(to) == Some(self.memory()) && self.others().any(|other| other == to);
        let yields = !self.proposes && has_all && self.orders(now, epoch).is_ok();
        (self.proposes, self.yields) = (self.proposes || yields, self.yields || yields);
        yields
    }

    /// Whether what is durable here counts: this is the primary, what was acknowledged from memory is lost, and no
    /// other replica is in sync. Then [`handle_settled`](Seat::handle_settled) follows.
    pub fn settles(&self) -> bool {
        self.is_primary() && self.memory == Memory::Lost && self.others().next().is_none()
    }

    /// This replica has what the primary has, which goes by this verifier: when it was settled after a start, or when
    /// it has been filled.
    pub fn handle_settled(&mut self, now: Time, epoch: u32, verifier: u64) -> bool {
        if epoch != self.group.epoch() {
            return false;
        }
        (self.memory, self.since, self.leaves) = (Memory::Kept(verifier), now, false);
        for other in self.group.replicas() {
            if let Some((word, _)) = self.heard.get_mut(&other.server) {
                word.memory = self.memory; // an earlier word may yet come
            }
        }
        true
    }

    /// The group as the store has it, or as another replica knows it.
    pub fn handle_group(&mut self, now: Time, group: Group) {
        if group.epoch() <= self.group.epoch() {
            return;
        }
        let (was_filled, before) = (!self.is_in_sync(), self.group.primary());
        (self.group, self.since) = (group, now);
        let is_new = before != self.own && self.is_primary();
        let (was, has_others) = (self.took_over, self.others().next().is_some());
        self.took_over = has_others && (was || is_new && !self.group.is_in_sync(before));
        if !self.is_in_sync() && !was_filled {
            (self.memory, self.leaves) = (Memory::Lost, false);
        }
        if !self.is_primary() {
            // Others may forget that they have promised this.
            self.held.clear();
        }
    }

    /// Another replica asks for a lease: whether it gets one.
    pub fn handle_ask(&mut self, now: Time, of: NodeId, word: Word) -> bool {
        if !self.hear(now, of, word) {
            return false;
        }
        let is_its = self.group.primary().server == of && self.is_in_sync() && !self.is_primary();
        let is_same = word.epoch == self.group.epoch() && word.memory == self.memory();
        let grants = is_its && is_same && self.memory() != Memory::Lost && !self.proposes;
        if grants {
            self.promise = Some(Promise { to: of, until: now + GRACE });
        }
        grants
    }

    /// Another replica has answered what it was asked at `asked`.
    pub fn handle_answer(&mut self, now: Time, of: NodeId, word: Word, asked: Time, granted: bool) {
        let is_of_now = word.epoch == self.group.epoch() && self.is_primary();
        if self.hear(now, of, word) && granted && is_of_now {
            let until = self.held.entry(of).or_default();
            *until = (*until).max(asked + LEASE_SPAN);
        }
    }

    /// Whether it is the word of the present incarnation.
    fn hear(&mut self, now: Time, of: NodeId, word: Word) -> bool {
        let (known, at) = self.heard.entry(of).or_insert((word, now));
        if word.incarnation < known.incarnation {
            return false;
        }
        if word.incarnation > known.incarnation {
            self.held.remove(&of);
            // An incarnation that has ended acts on no promise.
            if let Some(promise) = self.promise.as_mut().filter(|promise| promise.to == of) {
                promise.until = Time::ZERO;
            }
        }
        let is_later = word.epoch >= known.epoch || word.incarnation > known.incarnation;
        if is_later {
            (*known, *at) = (word, now);
        }
        // One that knows that another is the primary acts on no promise of before.
        let knows = is_later && word.epoch == self.group.epoch();
        if knows
            && self.group.primary().server != of
            && let Some(promise) = self.promise.as_mut().filter(|promise| promise.to == of)
        {
            promise.until = Time::ZERO;
        }
        is_later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(server: u16) -> Replica {
        Replica { server: NodeId(server), disk: 0, id: u64::from(server) }
    }

    fn group() -> Group {
        Group::new(3, &[replica(1), replica(2), replica(3)]).unwrap()
    }

    fn word(incarnation: u64, memory: Memory) -> Word {
        Word { incarnation, epoch: 1, memory }
    }

    const STEP: Duration = Duration::from_millis(250);

    /// Another one is heard all the time and promises nothing: that is to whom the group belongs now.
    #[test]
    fn a_primary_that_lost_its_memory_goes_on_without_none_that_has_it() {
        let mut now = Time(1 << 40);
        let mut seat = Seat::new(now, replica(1), 7, group());
        for _ in 0..40 {
            now = now + STEP;
            for other in [2, 3] {
                seat.handle_answer(now, NodeId(other), word(1, Memory::Kept(5)), now, false);
            }
            assert_eq!(seat.propose(now), None);
        }
        // One that is silent is not waited for.
        now = now + GRACE;
        assert_eq!(seat.propose(now), Some(Change::Remove(replica(2))));
    }

    /// It has the place of a primary that is gone, and lacks what the third one has.
    #[test]
    fn one_that_took_over_without_memory_goes_on_without_none_that_has_it() {
        let mut now = Time(1 << 40);
        let mut seat = Seat::new(now, replica(2), 7, group());
        now = now + GRACE;
        let change = seat.propose(now).expect("a primary that is silent");
        assert_eq!(change, Change::Remove(replica(1)));
        seat.handle_proposed();
        seat.handle_group(now, group().after(Some(replica(2)), 1, change).unwrap());
        let word = Word { epoch: 2, ..word(1, Memory::Kept(5)) };
        seat.handle_answer(now, NodeId(3), word, now, false);
        assert_eq!(seat.propose(now), None);
    }

    /// Two replicas that ask each other, in turns.
    fn ask(now: Time, one: &mut Seat, other: &mut Seat) {
        let asked = one.word();
        let granted = other.handle_ask(now, one.own.server, asked);
        one.handle_answer(now, other.own.server, other.word(), now, granted);
    }

    /// A primary and another replica that both have all.
    fn pair(now: Time) -> (Seat, Seat) {
        let group = Group::new(2, &[replica(1), replica(2)]).unwrap();
        let seat = |server| {
            let mut seat = Seat::new(now, replica(server), 7, group.clone());
            assert!(seat.handle_settled(now, 1, 5));
            seat
        };
        let (mut one, mut other) = (seat(1), seat(2));
        ask(now, &mut one, &mut other);
        ask(now, &mut other, &mut one);
        (one, other)
    }

    #[test]
    fn a_primary_that_hands_over_orders_nothing_and_the_next_one_waits_until_it_knows() {
        let now = Time(1 << 40);
        let (mut one, mut other) = pair(now);
        assert!(one.orders(now, 1).is_ok());
        assert!(!one.handle_hand_over(now, 1, replica(3)), "it is none of the group");
        assert!(!other.handle_hand_over(now, 1, replica(1)), "it is not the primary");
        assert!(one.handle_hand_over(now, 1, replica(2)));
        assert_eq!(one.orders(now, 1), Err(Refused::NoLease));
        assert!(!one.handle_hand_over(now, 1, replica(2)), "it does already");
        let next = one.group().after(Some(replica(1)), 1, Change::Lead(replica(2))).unwrap();
        other.handle_group(now, next.clone());
        ask(now, &mut other, &mut one);
        assert!(other.orders(now, 2).is_err(), "the one before does not know");
        one.handle_group(now, next);
        one.handle_proposed();
        assert!(one.orders(now, 1).is_err() && one.orders(now, 2).is_err());
        ask(now, &mut other, &mut one);
        assert!(other.orders(now, 2).is_ok());
        // A lease of before says nothing when it is the primary again.
        let last = other.group().after(Some(replica(2)), 2, Change::Lead(replica(1))).unwrap();
        one.handle_group(now, last);
        assert_eq!(one.orders(now, 3), Err(Refused::NoLease));
    }

    #[test]
    fn a_primary_whose_proposal_fails_orders_again() {
        let now = Time(1 << 40);
        let (mut one, _) = pair(now);
        assert!(one.handle_hand_over(now, 1, replica(2)));
        one.handle_proposed();
        assert!(one.orders(now, 1).is_ok());
    }
}
