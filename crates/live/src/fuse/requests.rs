//! Requests that were read from the kernel and are not yet answered.
//!
//! A request's number at the front names its place in a table of bounded size and its generation there, so that an
//! answer given twice or too late finds nothing. Locks that wait do not take the places of other requests.

use super::limits::{REQUESTS_MAX, WAITING_LOCKS_MAX, WAITING_LOOKS_MAX};
use super::request::Shape;

/// Bits of a front's number that name the place.
const PLACE_BITS: u32 = 20;
const _: () = assert!(REQUESTS_MAX + WAITING_LOCKS_MAX < 1 << PLACE_BITS);

/// The table.
pub struct Requests {
    places: Vec<Slot>,
    free: Vec<usize>,
    /// Requests that are no waiting locks.
    passing: usize,
    waiting_locks: usize,
    generations: u64,
    /// Where the next look at the callers of waiting locks begins.
    look_from: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    front: u64,
    request: Option<(u64, Shape)>,
    /// The thread that waits; 0 when the kernel names none.
    caller: u32,
    /// Whether it was here at the last look at the callers.
    old: bool,
}

const EMPTY: Slot = Slot { front: 0, request: None, caller: 0, old: false };

impl Requests {
    /// With room for [`REQUESTS_MAX`], and as many waiting locks as come.
    pub fn new() -> Requests {
        Requests {
            places: vec![EMPTY; REQUESTS_MAX],
            free: (0..REQUESTS_MAX).rev().collect(),
            passing: 0,
            waiting_locks: 0,
            generations: 0,
            look_from: 0,
        }
    }

    /// Whether one more fits.
    pub fn has_room(&self) -> bool {
        self.passing < REQUESTS_MAX
    }

    /// Whether one more lock may wait.
    pub fn has_room_to_wait(&self) -> bool {
        self.waiting_locks < WAITING_LOCKS_MAX
    }

    /// Whether none is under way but locks that wait, maybe for ever.
    pub fn is_quiet(&self) -> bool {
        self.passing == 0
    }

    /// Enters the kernel's request `unique` of thread `caller` and gives it its number at the front. Ask
    /// [`has_room`](Self::has_room) first.
    pub fn insert(&mut self, unique: u64, caller: u32, shape: Shape) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(EMPTY);
            self.places.len() - 1
        });
        self.generations += 1;
        let front = self.generations << PLACE_BITS | place as u64;
        *self.count_of(shape) += 1;
        self.places[place] = Slot { front, request: Some((unique, shape)), caller, old: false };
        front
    }

    /// Takes out the request that has this number at the front.
    pub fn remove(&mut self, front: u64) -> Option<(u64, Shape)> {
        let at = (front & ((1 << PLACE_BITS) - 1)) as usize;
        let place = self.places.get_mut(at).filter(|place| place.front == front)?;
        let (unique, shape) = place.request.take()?;
        *self.count_of(shape) -= 1;
        self.free.push(at);
        Some((unique, shape))
    }

    fn count_of(&mut self, shape: Shape) -> &mut usize {
        if shape == Shape::WaitingLock { &mut self.waiting_locks } else { &mut self.passing }
    }

    /// The number at the front of the kernel's request `unique` when any signal ends it: a lock that waits, and a
    /// request whose caller cannot be looked at. Looks at all of them: interrupts are rare.
    pub fn find_interrupted(&self, unique: u64) -> Option<u64> {
        let is_it = |place: &&Slot| match place.request {
            Some((known, shape)) => {
                known == unique && (shape == Shape::WaitingLock || place.caller == 0)
            }
            None => false,
        };
        self.places.iter().find(is_it).map(|place| place.front)
    }

    /// Those that were here at the last call already and whose callers have `given_up`; of waiting locks some at each
    /// call, in turns.
    pub fn abandoned(&mut self, given_up: impl Fn(u32) -> bool) -> Vec<u64> {
        let (count, from) = (self.places.len(), std::mem::take(&mut self.look_from));
        let (mut gone, mut locks) = (Vec::new(), 0);
        for at in (from..count).chain(0..from) {
            let place = &mut self.places[at];
            let Some((_, shape)) = place.request else { continue };
            let waits = shape == Shape::WaitingLock;
            if waits && locks == WAITING_LOOKS_MAX {
                continue;
            }
            if !std::mem::replace(&mut place.old, true) || place.caller == 0 {
                continue;
            }
            if waits {
                (locks, self.look_from) = (locks + 1, at + 1);
            }
            gone.extend(given_up(place.caller).then_some(place.front));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_only_in_its_own_life() {
        let mut requests = Requests::new();
        let first = requests.insert(2, 0, Shape::Empty);
        assert_eq!(requests.find_interrupted(2), Some(first));
        assert_eq!(requests.remove(first), Some((2, Shape::Empty)));
        let second = requests.insert(4, 7, Shape::Attr);
        assert_eq!(requests.remove(first), None);
        assert_eq!(requests.remove(u64::MAX), None);
        assert_eq!(requests.find_interrupted(2), None);
        assert!(!requests.is_quiet());
        assert_eq!(requests.remove(second), Some((4, Shape::Attr)));
        assert!(requests.is_quiet());
    }

    #[test]
    fn the_table_and_the_locks_in_it_are_bounded() {
        let mut requests = Requests::new();
        let waiting: Vec<_> = (0..WAITING_LOCKS_MAX as u64)
            .map(|unique| requests.insert(unique, 7, Shape::WaitingLock))
            .collect();
        assert!(!requests.has_room_to_wait());
        assert!(requests.is_quiet());
        let passing: Vec<_> =
            (0..REQUESTS_MAX).map(|_| requests.insert(9, 0, Shape::Empty)).collect();
        assert!(!requests.has_room());
        requests.remove(waiting[0]);
        assert!(!requests.has_room(), "a lock had no other's place");
        assert!(requests.has_room_to_wait());
        requests.remove(passing[0]);
        assert!(requests.has_room());
        assert_eq!(requests.places.len(), REQUESTS_MAX + WAITING_LOCKS_MAX);
    }

    #[test]
    fn of_many_waiting_locks_some_callers_are_looked_at_in_each_turn() {
        let mut requests = Requests::new();
        let caller = |number: u32| number + 1;
        (0..1000).for_each(|number| _ = requests.insert(1, caller(number), Shape::WaitingLock));
        let request = requests.insert(1, 5000, Shape::Empty);
        let (looks, turns) = (std::cell::RefCell::new(std::collections::BTreeSet::new()), 40);
        for turn in 0..turns {
            let looked = std::cell::Cell::new(0);
            let gone = requests.abandoned(|id| {
                looked.set(looked.get() + 1);
                looks.borrow_mut().insert(id);
                id == 5000
            });
            assert!(looked.get() <= WAITING_LOOKS_MAX + 1);
            assert_eq!(gone.contains(&request), turn > 0);
        }
        assert_eq!(looks.borrow().len(), 1001, "all in their turns");
    }

    #[test]
    fn who_gave_up_is_found_at_the_second_look() {
        let mut requests = Requests::new();
        let [waits, gone, nobody] = [7, 8, 0].map(|id| requests.insert(id.into(), id, Shape::Attr));
        assert_eq!(requests.abandoned(|id| id != 7), []);
        assert_eq!(requests.abandoned(|id| id != 7), [gone]);
        requests.remove(gone);
        requests.insert(9, 8, Shape::Attr);
        assert_eq!(requests.abandoned(|id| id != 7), []);
        assert_eq!(requests.find_interrupted(7), None, "its caller is looked at");
        [waits, nobody].iter().for_each(|front| _ = requests.remove(*front).unwrap());
    }
}
