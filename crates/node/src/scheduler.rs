//! The tasks that are ready to run, and the timers that wake them.

use crate::limits::TIMERS_STALE_MIN;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use wire::Time;

/// A task of the node, numbered from 0; a number is used again when its task has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub u32);

/// Tasks that are ready, once each.
#[derive(Debug)]
pub(crate) struct Scheduler {
    current: Cell<TaskId>,
    ready: RefCell<VecDeque<TaskId>>,
    queued: RefCell<Vec<bool>>,
    /// Numbers of tasks that have returned, for those to come.
    free: RefCell<Vec<TaskId>>,
}

impl Scheduler {
    pub fn new() -> Scheduler {
        Scheduler {
            current: Cell::new(TaskId(u32::MAX)),
            ready: RefCell::default(),
            queued: RefCell::default(),
            free: RefCell::default(),
        }
    }

    /// The number of a new task, which is ready at once. A late waker of the number's former task wakes this one
    /// spuriously.
    pub fn add(&self) -> TaskId {
        let free = self.free.borrow_mut().pop();
        let task = free.unwrap_or_else(|| {
            let mut queued = self.queued.borrow_mut();
            queued.push(false);
            TaskId(queued.len() as u32 - 1)
        });
        self.wake(task);
        task
    }

    /// The current task has returned.
    pub fn end_current(&self) {
        let mut free = self.free.borrow_mut();
        free.push(self.current());
        assert!(free.len() <= self.queued.borrow().len(), "a task returns once");
    }

    pub fn wake(&self, task: TaskId) {
        let mut queued = self.queued.borrow_mut();
        if !std::mem::replace(&mut queued[task.0 as usize], true) {
            self.ready.borrow_mut().push_back(task);
        }
    }

    /// The next task to poll, from now on the current one.
    pub fn next(&self) -> Option<TaskId> {
        let task = self.ready.borrow_mut().pop_front()?;
        let was_queued = std::mem::replace(&mut self.queued.borrow_mut()[task.0 as usize], false);
        assert!(was_queued, "a task is ready once");
        self.current.set(task);
        Some(task)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// The task that is being polled: a future that must wait tells it to the code that will end the waiting.
    pub fn current(&self) -> TaskId {
        let task = self.current.get();
        assert!(task.0 != u32::MAX, "a future of a node is polled by a task of the node");
        task
    }
}

/// Tickets that are to end at a time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64)>>,
    /// Entries of cancelled tickets, at most.
    stale: usize,
}

impl Timers {
    pub fn add(&mut self, at: Time, ticket: u64) {
        self.heap.push(Reverse((at, ticket)));
    }

    /// A wait was given up. When most entries are like that they are thrown out, so that many short waits with
    /// long deadlines keep no memory; `is_open` tells whether a ticket is in use.
    pub fn forget(&mut self, is_open: impl Fn(u64) -> bool) {
        self.stale += 1;
        if self.stale > TIMERS_STALE_MIN && self.stale * 2 > self.heap.len() {
            self.heap.retain(|Reverse((_, ticket))| is_open(*ticket));
            self.stale = 0;
        }
    }

    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub fn pop_due(&mut self, now: Time) -> Option<u64> {
        (self.next()? <= now).then(|| self.heap.pop().expect("peeked").0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_have_returned_leave_nothing() {
        let scheduler = Scheduler::new();
        let lasting = scheduler.add();
        assert_eq!(scheduler.next(), Some(lasting));
        for _ in 0..1000 {
            let task = scheduler.add();
            assert_eq!(scheduler.next(), Some(task));
            scheduler.wake(task); // it returns just now, which is not known yet
            scheduler.end_current();
        }
        assert_eq!(scheduler.queued.borrow().len(), 2);
        scheduler.wake(lasting);
        assert!(std::iter::from_fn(|| scheduler.next()).any(|task| task == lasting));
    }
}
