//! The event queue: a 4-ary heap ordered by (time, priority, sequence).
//!
//! Four children share a cache line or two, so that a pop touches half the lines of a binary heap's. Entries are
//! copied, never boxed; after warm-up nothing is allocated.
//!
//! Invariant: what is popped never goes back in time, and of two events of one time and priority the one pushed
//! first comes first. This order is what makes a run a function of its seed.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Simulated time in picoseconds since the run began; 2^64 of them are 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// When every run begins.
    pub const ZERO: Picos = Picos(0);
    /// Later than every event.
    pub const NEVER: Picos = Picos(u64::MAX);

    /// So many nanoseconds.
    pub const fn nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(1_000))
    }

    /// So many microseconds.
    pub const fn micros(micros: u64) -> Picos {
        Picos(micros.saturating_mul(1_000_000))
    }

    /// So many milliseconds.
    pub const fn millis(millis: u64) -> Picos {
        Picos(millis.saturating_mul(1_000_000_000))
    }

    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Picos {
        Picos(seconds.saturating_mul(1_000_000_000_000))
    }

    /// The time as a node's clock tells it: whole nanoseconds, rounded down.
    pub const fn node_time(self) -> wire::Time {
        wire::Time(self.0 / 1_000)
    }

    /// The first picosecond of a node's nanosecond.
    pub const fn of_node_time(time: wire::Time) -> Picos {
        Picos(time.0.saturating_mul(1_000))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub const fn since(self, earlier: Picos) -> Picos {
        Picos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Picos {
    fn from(span: Duration) -> Picos {
        Picos::nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Picos {
    type Output = Picos;
    fn add(self, span: Picos) -> Picos {
        Picos(self.0.saturating_add(span.0))
    }
}

impl Sub for Picos {
    type Output = Picos;
    fn sub(self, span: Picos) -> Picos {
        Picos(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Picos {
    /// Seconds with nanoseconds: what a trace shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 / 1_000;
        write!(f, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

const CHILDREN: usize = 4;
const SEQUENCE_BITS: u32 = 56;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    time: u64,
    /// Priority in the top 8 bits, sequence below.
    order: u64,
    what: T,
}

impl<T> Entry<T> {
    fn key(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.order)
    }
}

/// The queue of events to come. `T` is small and copied.
#[derive(Debug)]
pub struct Queue<T> {
    heap: Vec<Entry<T>>,
    sequence: u64,
    now: Picos,
}

impl<T: Copy> Queue<T> {
    /// An empty queue at time zero with room for `events` before it allocates.
    pub fn with_capacity(events: usize) -> Queue<T> {
        Queue { heap: Vec::with_capacity(events), sequence: 0, now: Picos::ZERO }
    }

    /// The time of the event popped last.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Events to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Events pushed so far.
    pub fn pushed(&self) -> u64 {
        self.sequence
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<Picos> {
        self.heap.first().map(|entry| Picos(entry.time))
    }

    /// Adds an event at `time`, which must not lie in the past. The lower priority of one time comes first.
    pub fn push(&mut self, time: Picos, priority: u8, what: T) {
        assert!(time >= self.now, "an event is never in the past");
        assert!(self.sequence < 1 << SEQUENCE_BITS, "fewer than 2^56 events in a run");
        let order = u64::from(priority) << SEQUENCE_BITS | self.sequence;
        self.sequence += 1;
        let entry = Entry { time: time.0, order, what };
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
    }

    /// Takes the next event and moves the clock to it.
    pub fn pop(&mut self) -> Option<(Picos, T)> {
        let last = self.heap.pop()?;
        let first = match self.heap.first() {
            None => last,
            Some(&first) => {
                self.sink(last);
                first
            }
        };
        assert!(first.time >= self.now.0, "time never goes back");
        self.now = Picos(first.time);
        Some((self.now, first.what))
    }

    /// Moves the hole at `at` up to where `entry` belongs.
    fn rise(&mut self, mut at: usize, entry: Entry<T>) {
        let key = entry.key();
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent].key() <= key {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    /// Moves the hole at the root to a leaf, then `entry` up from there: what was last is mostly late, so that this
    /// compares less than stopping on the way down.
    fn sink(&mut self, entry: Entry<T>) {
        let mut at = 0;
        loop {
            let first = at * CHILDREN + 1;
            let Some(least) = self.least_child(first) else { break };
            self.heap[at] = self.heap[least];
            at = least;
        }
        self.rise(at, entry);
    }

    fn least_child(&self, first: usize) -> Option<usize> {
        let end = (first + CHILDREN).min(self.heap.len());
        let children = self.heap.get(first..end)?;
        let mut least = (children.first()?.key(), 0);
        for (index, child) in children.iter().enumerate().skip(1) {
            let key = child.key();
            if key < least.0 {
                least = (key, index);
            }
        }
        Some(first + least.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The queue against a sorted list: the same order, whatever is pushed when.
        #[test]
        fn order_is_time_then_priority_then_arrival(
            steps in prop::collection::vec((0u64..50, 0u8..3, any::<bool>()), 1..300)
        ) {
            let mut queue = Queue::with_capacity(8);
            let mut model: Vec<(u64, u8, usize)> = Vec::new();
            for (index, (delay, priority, pop)) in steps.into_iter().enumerate() {
                let time = queue.now().0 + delay;
                queue.push(Picos(time), priority, index);
                model.push((time, priority, index));
                if pop {
                    model.sort_unstable();
                    let first = model.remove(0);
                    prop_assert_eq!(queue.pop(), Some((Picos(first.0), first.2)));
                }
            }
            model.sort_unstable();
            for (time, _, index) in model {
                prop_assert_eq!(queue.pop(), Some((Picos(time), index)));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    #[should_panic(expected = "never in the past")]
    fn the_past_is_refused() {
        let mut queue = Queue::with_capacity(1);
        queue.push(Picos(5), 0, ());
        queue.pop();
        queue.push(Picos(4), 0, ());
    }

    #[test]
    fn times_read_as_seconds() {
        assert_eq!((Picos::seconds(2) + Picos::nanos(5)).to_string(), "2.000000005");
        assert_eq!(Picos::of_node_time(Picos(1_999).node_time()), Picos(1_000));
    }
}
