//! Work for a pool of tasks.
//!
//! An item wakes one task, the last that became idle, and not all of them. A task that gives up after it was woken
//! wakes another, so no work waits while a task is idle.

use crate::cx::Cx;
use crate::scheduler::TaskId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// Tasks that wait for work.
pub struct Idle {
    cx: Cx,
    next: Cell<u64>,
    /// In the order in which they became idle, so by ascending number.
    tasks: RefCell<Vec<(u64, TaskId)>>,
}

/// One wait of an idle task. However it ends, the task is in the list no more.
struct Rest<'a> {
    idle: &'a Idle,
    number: u64,
    is_over: bool,
}

impl Idle {
    /// For tasks of this node.
    pub fn new(cx: &Cx) -> Idle {
        Idle { cx: cx.clone(), next: Cell::new(0), tasks: RefCell::default() }
    }

    /// Waits for a [`wake_one`](Idle::wake_one) after this call (not after its first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let number = self.next.replace(self.next.get() + 1);
        self.tasks.borrow_mut().push((number, self.cx.current()));
        let mut rest = Rest { idle: self, number, is_over: false };
        poll_fn(move |_| rest.poll())
    }

    /// Ends the wait of one task, where any is idle.
    pub fn wake_one(&self) {
        let last = self.tasks.borrow_mut().pop();
        if let Some((_, task)) = last {
            self.cx.wake(task);
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.tasks.borrow().binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

impl Rest<'_> {
    fn poll(&mut self) -> Poll<()> {
        self.is_over = self.idle.position(self.number).is_none();
        if self.is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        match self.idle.position(self.number) {
            Some(at) => drop(self.idle.tasks.borrow_mut().remove(at)),
            None => self.idle.wake_one(), // it was woken and will not look for the work
        }
    }
}

/// A queue from which the tasks of a pool take work.
pub struct WorkQueue<T> {
    items: RefCell<VecDeque<T>>,
    idle: Idle,
}

impl<T> WorkQueue<T> {
    /// An empty queue, for tasks of this node.
    pub fn new(cx: &Cx) -> WorkQueue<T> {
        WorkQueue { items: RefCell::default(), idle: Idle::new(cx) }
    }

    /// Appends an item.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        self.idle.wake_one();
    }

    /// Takes the oldest item, once there is one.
    pub async fn next(&self) -> T {
        loop {
            let item = self.items.borrow_mut().pop_front();
            if let Some(item) = item {
                return item;
            }
            self.idle.wait().await;
        }
    }

    /// Items that no task has taken.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether every item was taken.
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }
}
