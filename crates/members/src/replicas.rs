//! Replicas of anything: which repair is next, and the placement of the next copy ([`farthest`]).
//!
//! Plain code without I/O and without a clock, for all that is kept in several places: pages of network memory with
//! mirrors, a process's pages that others keep, columns with copies. The form of a copy and how it is made are the
//! user's; when it is its turn, how many are made at once, and how far apart they are is the same everywhere.
//!
//! ```text
//!  insert ──► waits ──► poll ──► in flight ──► handle_end: done, and forgotten
//!               ▲                                  │
//!               └── failed: the last in turn, and its slot rests
//! ```
//!
//! Invariants: a key waits once, or is in flight; slots in flight and at rest are together at most as many as the
//! limit; what was polled stays known until it is done or forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::Time;

/// Whether a candidate for a copy is on another machine than those that have one. A machine that is not known is 0, and
/// counts as distinct.
pub fn is_apart(machine: u64, copies: impl IntoIterator<Item = u64>) -> bool {
    machine == 0 || copies.into_iter().all(|copy| copy != machine)
}

/// Of the candidates for another copy the farthest from those that there are, in their order: on machines without a
/// copy, or else all; and of these those beside the `source`'s machine, or else all.
pub fn farthest<T>(
    candidates: impl Iterator<Item = T> + Clone,
    machine: impl Fn(&T) -> u64 + Copy,
    copies: &[u64],
    source: u64,
) -> impl Iterator<Item = T> + Clone {
    let nearness = move |candidate: &T| {
        let machine = machine(candidate);
        (!is_apart(machine, copies.iter().copied()), !is_apart(machine, [source]))
    };
    let least = candidates.clone().map(|candidate| nearness(&candidate)).min();
    candidates.filter(move |candidate| Some(nearness(candidate)) == least)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    InFlight,
    /// Another repair was requested since it was polled.
    Again,
    /// It was forgotten since it was polled.
    Gone,
}

/// A queue of repairs: the key that has lacked something longest, say a copy, is repaired first, and one that fails
/// keeps no other waiting.
///
/// Getters; then `insert` and `handle_end` for what is heard; `retain` as a command; `poll` for what is to be done.
#[derive(Debug)]
pub struct Repairs<K, T = ()> {
    entries: BTreeMap<K, (State, T)>,
    /// Keys that wait, in their order.
    queue: VecDeque<K>,
    in_flight: usize,
    /// When the slots of repairs that failed may be used again.
    rests: VecDeque<Time>,
    limit: usize,
    pause: Duration,
}

impl<K: Ord + Copy, T: Copy> Repairs<K, T> {
    /// At most `limit` at once; after one that failed its slot rests for the pause.
    pub fn new(limit: usize, pause: Duration) -> Repairs<K, T> {
        let (entries, queue, rests) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Repairs { entries, queue, in_flight: 0, rests, limit, pause }
    }

    /// Whether a repair of this key waits or is in flight.
    pub fn has(&self, key: K) -> bool {
        self.entries.get(&key).is_some_and(|(state, _)| *state != State::Gone)
    }

    /// Keys whose repair waits or is in flight.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        let owed = self.entries.iter().filter(|(_, (state, _))| *state != State::Gone);
        owed.map(|(key, _)| *key)
    }

    /// When a slot is free again, if all are at rest or in flight.
    pub fn rests_until(&self) -> Option<Time> {
        self.rests.front().copied().filter(|_| self.in_flight + self.rests.len() >= self.limit)
    }

    /// Requests a repair. A key that waits keeps its turn; one in flight is repaired once more.
    pub fn insert(&mut self, key: K, value: T) {
        let state = match self.entries.get(&key) {
            None | Some((State::Waits, _)) => State::Waits,
            Some(_) => State::Again,
        };
        if self.entries.insert(key, (state, value)).is_none() {
            self.queue.push_back(key);
        }
    }

    /// Forgets those that are not to be kept, also such that are in flight.
    pub fn retain(&mut self, keeps: impl Fn(K) -> bool) {
        self.queue.retain(|key| keeps(*key));
        self.entries.retain(|key, (state, _)| {
            let stays = keeps(*key);
            if !stays && *state != State::Waits {
                *state = State::Gone; // its slot is in use until it ends
            }
            stays || *state == State::Gone
        });
    }

    /// The next repair, which is then in flight until it [has ended](Repairs::handle_end).
    pub fn poll(&mut self, now: Time) -> Option<(K, T)> {
        while self.rests.front().is_some_and(|until| *until <= now) {
            self.rests.pop_front();
        }
        if self.in_flight + self.rests.len() >= self.limit {
            return None;
        }
        let key = self.queue.pop_front()?;
        let (state, value) = self.entries.get_mut(&key).expect("what waits is known");
        assert_eq!(*state, State::Waits, "it waits once");
        *state = State::InFlight;
        self.in_flight += 1;
        Some((key, *value))
    }

    /// A repair that was polled has ended. If it failed, or was requested again, it waits behind all others.
    pub fn handle_end(&mut self, now: Time, key: K, done: bool) {
        self.in_flight = self.in_flight.checked_sub(1).expect("it was polled");
        if !done {
            self.rests.push_back(now + self.pause);
        }
        let (state, _) = self.entries.get_mut(&key).expect("it was polled");
        match *state {
            State::Waits => unreachable!("it is in flight"),
            State::Gone => _ = self.entries.remove(&key),
            State::InFlight if done => _ = self.entries.remove(&key),
            State::InFlight | State::Again => {
                *state = State::Waits;
                self.queue.push_back(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const LIMIT: usize = 3;
    const PAUSE: Duration = Duration::from_nanos(10);

    /// Events of a planner.
    #[derive(Clone, Debug)]
    enum Step {
        Lacks(u8, u8),
        Poll,
        /// Of those in flight the nth has ended.
        Ends(u8, bool),
        Forgets(u8),
        Waits(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..12, 0u8..3).prop_map(|(key, value)| Step::Lacks(key, value)),
            6 => Just(Step::Poll),
            4 => (any::<u8>(), any::<bool>()).prop_map(|(nth, done)| Step::Ends(nth, done)),
            1 => (0u8..12).prop_map(Step::Forgets),
            3 => (1u8..8).prop_map(Step::Waits),
        ]
    }

    /// A planner and what it should know, in the plainest way.
    struct Checked {
        repairs: Repairs<u8, u8>,
        /// Keys by the turn in which they came to wait.
        waiting: Vec<u8>,
        values: BTreeMap<u8, u8>,
        in_flight: Vec<u8>,
        /// Of these, those that are to be done once more.
        again: BTreeSet<u8>,
        /// When each repair that failed did.
        failed: Vec<Time>,
        now: Time,
    }

    impl Checked {
        fn busy(&self) -> usize {
            let rests = self.failed.iter().filter(|at| **at + PAUSE > self.now).count();
            self.in_flight.len() + rests
        }

        fn poll(&mut self) {
            let next = self.waiting.first().copied().filter(|_| self.busy() < LIMIT);
            let polled = self.repairs.poll(self.now);
            assert_eq!(polled, next.map(|key| (key, self.values[&key])), "it waits longest");
            if let Some((key, _)) = polled {
                self.waiting.remove(0);
                self.in_flight.push(key);
            }
            assert!(self.busy() <= LIMIT);
        }

        fn end(&mut self, nth: u8, done: bool) {
            if self.in_flight.is_empty() {
                return;
            }
            let key = self.in_flight.remove(usize::from(nth) % self.in_flight.len());
            self.repairs.handle_end(self.now, key, done);
            self.failed.extend((!done).then_some(self.now));
            let again = self.again.remove(&key);
            match self.values.contains_key(&key) {
                true if done && !again => _ = self.values.remove(&key),
                true => self.waiting.push(key),
                false => (),
            }
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::Lacks(key, value) => {
                    self.repairs.insert(key, value);
                    let new = self.values.insert(key, value).is_none();
                    match self.in_flight.contains(&key) {
                        true => _ = self.again.insert(key),
                        false if new => self.waiting.push(key),
                        false => (),
                    }
                }
                Step::Poll => self.poll(),
                Step::Ends(nth, done) => self.end(nth, done),
                Step::Forgets(gone) => {
                    self.repairs.retain(|key| key != gone);
                    self.values.remove(&gone);
                    self.again.remove(&gone);
                    self.waiting.retain(|key| *key != gone);
                }
                Step::Waits(span) => self.now = self.now + Duration::from_nanos(span.into()),
            }
            assert!(self.repairs.keys().eq(self.values.keys().copied()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The longest lacking first, no more than the limit at once, after a failure a pause, and none forgotten.
        #[test]
        fn repairs_are_in_turn_bounded_and_paced(steps in prop::collection::vec(step(), 1..200)) {
            let mut checked = Checked {
                repairs: Repairs::new(LIMIT, PAUSE),
                waiting: Vec::new(),
                values: BTreeMap::new(),
                in_flight: Vec::new(),
                again: BTreeSet::new(),
                failed: Vec::new(),
                now: Time::ZERO,
            };
            steps.into_iter().for_each(|step| checked.take(step));
            // when nothing fails any more all is done, each in a pause at the latest
            for _ in 0..2 * checked.values.len() + checked.in_flight.len() {
                checked.now = checked.repairs.rests_until().unwrap_or(checked.now);
                checked.poll();
                checked.end(0, true);
            }
            prop_assert_eq!(checked.repairs.keys().count(), 0);
        }

        /// On any machines, a copy is beside others only where there is no other candidate.
        #[test]
        fn copies_are_on_distinct_machines_where_there_are_enough(
            machines in prop::collection::vec(0u64..5, 0..8),
            copies in prop::collection::vec(0u64..5, 0..4),
            source in 0u64..5,
        ) {
            let candidates = machines.iter().enumerate();
            let chosen = farthest(candidates, |(_, machine)| **machine, &copies, source);
            let chosen: Vec<(usize, &u64)> = chosen.collect();
            prop_assert_eq!(chosen.is_empty(), machines.is_empty());
            prop_assert!(chosen.is_sorted());
            let apart = |machine: u64| machine == 0 || !copies.contains(&machine);
            let best = |machine: u64| apart(machine) && (machine == 0 || machine != source);
            let all: BTreeSet<u64> = machines.iter().copied().collect();
            for (_, machine) in &chosen {
                prop_assert!(apart(**machine) || !all.iter().any(|other| apart(*other)));
                prop_assert!(best(**machine) || !all.iter().any(|other| best(*other)));
            }
        }
    }
}
