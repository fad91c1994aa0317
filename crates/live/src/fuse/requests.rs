//! Requests that were read from the kernel and are not yet answered.
//!
//! A request's number at the front names its place in a table of fixed size and its life there, so that an answer
//! given twice or too late finds nothing.

use super::limits::{REQUESTS_MAX, WAITING_LOCKS_MAX};
use super::request::Shape;

/// Bits of a front's number that name the place.
const PLACE_BITS: u32 = 16;

/// The table.
pub struct Requests {
    places: Vec<Place>,
    free: Vec<usize>,
    waiting_locks: usize,
    lives: u64,
}

#[derive(Clone, Copy)]
struct Place {
    front: u64,
    request: Option<(u64, Shape)>,
}

impl Requests {
    /// With room for [`REQUESTS_MAX`].
    pub fn new() -> Requests {
        Requests {
            places: vec![Place { front: 0, request: None }; REQUESTS_MAX],
            free: (0..REQUESTS_MAX).rev().collect(),
            waiting_locks: 0,
            lives: 0,
        }
    }

    /// Whether one more fits.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether one more lock may wait.
    pub fn has_room_to_wait(&self) -> bool {
        self.waiting_locks < WAITING_LOCKS_MAX
    }

    /// Whether none is under way but locks that wait, maybe for ever.
    pub fn is_quiet(&self) -> bool {
        self.free.len() + self.waiting_locks == self.places.len()
    }

    /// Enters the kernel's request `unique` and gives it its number at the front. Ask [`has_room`](Self::has_room)
    /// first.
    pub fn insert(&mut self, unique: u64, shape: Shape) -> u64 {
        let place = self.free.pop().expect("room for the request");
        self.lives += 1;
        let front = self.lives << PLACE_BITS | place as u64;
        self.waiting_locks += usize::from(shape == Shape::WaitingLock);
        self.places[place] = Place { front, request: Some((unique, shape)) };
        front
    }

    /// Takes out the request that has this number at the front.
    pub fn remove(&mut self, front: u64) -> Option<(u64, Shape)> {
        let at = (front & ((1 << PLACE_BITS) - 1)) as usize;
        let place = self.places.get_mut(at).filter(|place| place.front == front)?;
        let (unique, shape) = place.request.take()?;
        self.waiting_locks -= usize::from(shape == Shape::WaitingLock);
        self.free.push(at);
        Some((unique, shape))
    }

    /// The number at the front of the kernel's request `unique`. Looks at all of them: interrupts are rare.
    pub fn find(&self, unique: u64) -> Option<u64> {
        let is_it = |place: &&Place| place.request.is_some_and(|(known, _)| known == unique);
        self.places.iter().find(is_it).map(|place| place.front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_only_in_its_own_life() {
        let mut requests = Requests::new();
        let first = requests.insert(2, Shape::Empty);
        assert_eq!(requests.find(2), Some(first));
        assert_eq!(requests.remove(first), Some((2, Shape::Empty)));
        let second = requests.insert(4, Shape::Attr);
        assert_eq!(requests.remove(first), None);
        assert_eq!(requests.remove(u64::MAX), None);
        assert_eq!(requests.find(2), None);
        assert!(!requests.is_quiet());
        assert_eq!(requests.remove(second), Some((4, Shape::Attr)));
        assert!(requests.is_quiet());
    }

    #[test]
    fn the_table_and_the_locks_in_it_are_bounded() {
        let mut requests = Requests::new();
        let waiting: Vec<_> = (0..WAITING_LOCKS_MAX as u64)
            .map(|unique| requests.insert(unique, Shape::WaitingLock))
            .collect();
        assert!(!requests.has_room_to_wait());
        assert!(requests.is_quiet());
        (WAITING_LOCKS_MAX..REQUESTS_MAX).for_each(|_| _ = requests.insert(9, Shape::Empty));
        assert!(!requests.has_room());
        requests.remove(waiting[0]);
        assert!(requests.has_room());
        assert!(requests.has_room_to_wait());
    }
}
