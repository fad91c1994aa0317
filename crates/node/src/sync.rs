//! Waiting for each other among the tasks of one node.

use crate::cx::Cx;
use crate::scheduler::TaskId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

/// Tasks that wait for something to change.
pub struct Notify {
    cx: Cx,
    round: Cell<u64>,
    waiters: RefCell<Vec<TaskId>>,
}

impl Notify {
    /// For tasks of this node.
    pub fn new(cx: &Cx) -> Notify {
        Notify { cx: cx.clone(), round: Cell::new(0), waiters: RefCell::default() }
    }

    /// Waits for the next [`notify_all`](Notify::notify_all) after this call (not after its first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let round = self.round.get();
        poll_fn(move |_| {
            if self.round.get() != round {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            let task = self.cx.current();
            if !waiters.contains(&task) {
                waiters.push(task);
            }
            Poll::Pending
        })
    }

    /// Ends the waiting of all who wait now.
    pub fn notify_all(&self) {
        self.round.set(self.round.get() + 1);
        self.waiters.borrow_mut().drain(..).for_each(|task| self.cx.wake(task));
    }
}

/// A number of permits, given out in the order of asking.
pub struct Semaphore {
    cx: Cx,
    free: Cell<usize>,
    next: Cell<u64>,
    queue: RefCell<VecDeque<Waiter>>,
}

struct Waiter {
    number: u64,
    task: TaskId,
    wants: usize,
}

/// Permits that are held; dropping them gives them back.
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// With this many permits free.
    pub fn new(cx: &Cx, permits: usize) -> Semaphore {
        Semaphore {
            cx: cx.clone(),
            free: permits.into(),
            next: Cell::new(0),
            queue: RefCell::default(),
        }
    }

    /// Permits that are free.
    pub fn available(&self) -> usize {
        self.free.get()
    }

    /// Takes `count` permits at once, if they are free and no task waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit<'_>> {
        let free = self.queue.borrow().is_empty() && self.free.get() >= count;
        free.then(|| self.take(count))
    }

    fn take(&self, count: usize) -> Permit<'_> {
        assert!(count <= self.free.get(), "permits are given out when they are free");
        self.free.set(self.free.get() - count);
        Permit { semaphore: self, count }
    }

    /// Waits for `count` permits. Asking for more than there are waits for ever.
    pub async fn acquire(&self, count: usize) -> Permit<'_> {
        if let Some(permit) = self.try_acquire(count) {
            return permit;
        }
        let number = self.next.get();
        self.next.set(number + 1);
        let queued = Queued { semaphore: self, number };
        let task = self.cx.current();
        self.queue.borrow_mut().push_back(Waiter { number, task, wants: count });
        poll_fn(|_| if self.is_next(number) { Poll::Ready(()) } else { Poll::Pending }).await;
        let permit = self.take(count);
        drop(queued);
        permit
    }

    fn is_next(&self, number: u64) -> bool {
        let queue = self.queue.borrow();
        queue.front().is_some_and(|w| w.number == number && w.wants <= self.free.get())
    }

    fn wake_next(&self) {
        if let Some(waiter) = self.queue.borrow().front() {
            self.cx.wake(waiter.task);
        }
    }
}

/// A place in the queue, left when the waiting ends, however it ends.
struct Queued<'a> {
    semaphore: &'a Semaphore,
    number: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.semaphore.queue.borrow_mut().retain(|waiter| waiter.number != self.number);
        self.semaphore.wake_next();
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.free.set(self.semaphore.free.get() + self.count);
        self.semaphore.wake_next();
    }
}
