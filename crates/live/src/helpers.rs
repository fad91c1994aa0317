//! A few threads that wait for the disk in the node's place.
//!
//! Work goes in through a queue and its results come back through another; an eventfd rings only while the node's
//! thread says that it sleeps. Work is done in no particular order. Dropping the pool finishes what was submitted.

use crate::device::Poller;
use crate::wakeup::Edge;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Something that takes long.
pub(crate) trait Work: Send + 'static {
    /// Its result.
    type Done: Send + 'static;
    /// Does it.
    fn run(self) -> Self::Done;
}

type Outcome<W> = Result<<W as Work>::Done, Box<dyn Any + Send>>;

/// The threads and both queues. Belongs to one thread, which submits and takes.
pub(crate) struct Helpers<W: Work> {
    shared: Arc<Shared<W>>,
    threads: Vec<JoinHandle<()>>,
    spare: Vec<Outcome<W>>,
}

struct Shared<W: Work> {
    queue: Mutex<Queue<W>>,
    submitted: Condvar,
    done: Mutex<Vec<Outcome<W>>>,
    done_count: AtomicUsize,
    bell: Bell,
}

struct Queue<W> {
    work: VecDeque<W>,
    stop: bool,
}

/// Wakes a thread that said it would sleep.
struct Bell {
    edge: Edge,
    sleeping: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        Ok(Bell { edge: Edge::new()?, sleeping: AtomicBool::new(false) })
    }

    /// By the one who has put something where the sleeper looks.
    fn ring(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.edge.ring();
        }
    }
}

/// Locks also after a panic elsewhere: every critical section here leaves its queue whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Work> Helpers<W> {
    /// Starts `threads` threads, named `name`.
    pub(crate) fn start(name: &str, threads: usize) -> io::Result<Helpers<W>> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { work: VecDeque::new(), stop: false }),
            submitted: Condvar::new(),
            done: Mutex::new(Vec::new()),
            done_count: AtomicUsize::new(0),
            bell: Bell::new()?,
        });
        let mut helpers = Helpers { shared, threads: Vec::new(), spare: Vec::new() };
        for _ in 0..threads {
            let shared = helpers.shared.clone();
            let builder = std::thread::Builder::new().name(name.to_owned());
            helpers.threads.push(builder.spawn(move || shared.serve())?);
        }
        Ok(helpers)
    }

    /// Hands on one piece of work; its result comes from [`take`](Helpers::take).
    pub(crate) fn submit(&self, work: W) {
        lock(&self.shared.queue).work.push_back(work);
        self.shared.submitted.notify_one();
    }

    /// Gives every result that is there to `each`. Costs one atomic load when there is none.
    pub(crate) fn take(&mut self, mut each: impl FnMut(W::Done)) {
        if !self.is_ready() {
            return;
        }
        {
            let mut done = lock(&self.shared.done);
            std::mem::swap(&mut *done, &mut self.spare);
            self.shared.done_count.store(0, Ordering::Release);
        }
        for outcome in self.spare.drain(..) {
            match outcome {
                Ok(done) => each(done),
                Err(panic) => resume_unwind(panic),
            }
        }
    }

    /// Whether [`take`](Helpers::take) has something.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.done_count.load(Ordering::Acquire) > 0
    }

    /// About to sleep: from now on a result rings. True when one is there already.
    pub(crate) fn before_sleep(&self) -> bool {
        self.shared.bell.sleeping.store(true, Ordering::SeqCst);
        // Under the lock: a helper that adds its result later than this sees `sleeping`.
        !lock(&self.shared.done).is_empty()
    }

    /// Awake: results no longer ring.
    pub(crate) fn after_sleep(&self) {
        self.shared.bell.sleeping.store(false, Ordering::SeqCst);
    }

    /// From now on a result that comes during sleep ends a wait of this poller.
    pub(crate) fn watch(&self, poller: &Poller) -> io::Result<()> {
        self.shared.bell.edge.watch(poller)
    }
}

impl<W: Work> Shared<W> {
    fn serve(&self) {
        while let Some(work) = self.next() {
            let outcome = catch_unwind(AssertUnwindSafe(|| work.run()));
            let mut done = lock(&self.done);
            done.push(outcome);
            self.done_count.store(done.len(), Ordering::Release);
            drop(done);
            self.bell.ring();
        }
    }

    fn next(&self) -> Option<W> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.work.pop_front() {
                return Some(work);
            }
            if queue.stop {
                return None;
            }
            queue = self.submitted.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<W: Work> Drop for Helpers<W> {
    fn drop(&mut self) {
        lock(&self.shared.queue).stop = true;
        self.shared.submitted.notify_all();
        for thread in self.threads.drain(..) {
            // `serve` catches the panics of work; there is nothing else to report.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Square(u64);

    impl Work for Square {
        type Done = u64;
        fn run(self) -> u64 {
            assert!(self.0 != 13, "planted");
            self.0 * self.0
        }
    }

    fn watched(threads: usize) -> (Helpers<Square>, Poller) {
        let (helpers, poller) = (Helpers::start("test", threads).unwrap(), Poller::new().unwrap());
        helpers.watch(&poller).unwrap();
        (helpers, poller)
    }

    fn collect(helpers: &mut Helpers<Square>, poller: &Poller, count: usize) -> Vec<u64> {
        let (mut ready, mut results) = (Vec::new(), Vec::new());
        while results.len() < count {
            if !helpers.before_sleep() {
                poller.wait(None, &mut ready).unwrap();
            }
            helpers.after_sleep();
            helpers.take(|result| results.push(result));
        }
        results
    }

    #[test]
    fn every_result_wakes_the_sleeper() {
        let (mut helpers, poller) = watched(2);
        for round in 0..500 {
            (0..3).for_each(|n| helpers.submit(Square(round + 1000 + n)));
            let mut results = collect(&mut helpers, &poller, 3);
            results.sort_unstable();
            let wanted: Vec<_> = (0..3).map(|n| (round + 1000 + n).pow(2)).collect();
            assert_eq!(results, wanted);
        }
    }

    #[test]
    fn dropping_finishes_what_was_submitted() {
        struct Count(Arc<AtomicUsize>);
        impl Work for Count {
            type Done = ();
            fn run(self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        let helpers = Helpers::start("test", 2).unwrap();
        (0..100).for_each(|_| helpers.submit(Count(count.clone())));
        drop(helpers);
        assert_eq!(count.load(Ordering::SeqCst), 100);
    }

    #[test]
    #[should_panic(expected = "planted")]
    fn a_panic_of_a_helper_is_the_owners() {
        let (mut helpers, poller) = watched(1);
        helpers.submit(Square(13));
        collect(&mut helpers, &poller, 1);
    }
}
