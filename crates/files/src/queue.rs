//! A queue from which a pool of loops takes work; a push wakes one idle loop, not all.

use node::{Cx, Notify};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The queue.
pub(crate) struct Queue<T> {
    items: RefCell<VecDeque<T>>,
    idle: RefCell<Vec<Rc<Notify>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { items: RefCell::default(), idle: RefCell::default() }
    }
}

impl<T> Queue<T> {
    /// Appends an item.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        let idle = self.idle.borrow_mut().pop();
        idle.into_iter().for_each(|worker| worker.notify_all());
    }

    /// Items that nobody has taken.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// The place of one loop at this queue.
    pub fn worker(self: &Rc<Self>, cx: &Cx) -> Worker<T> {
        Worker { queue: self.clone(), wake: Rc::new(Notify::new(cx)) }
    }
}

/// A loop's place at a queue.
pub(crate) struct Worker<T> {
    queue: Rc<Queue<T>>,
    wake: Rc<Notify>,
}

impl<T> Worker<T> {
    /// The next item.
    pub async fn next(&self) -> T {
        loop {
            let item = self.queue.items.borrow_mut().pop_front();
            if let Some(item) = item {
                return item;
            }
            let woken = self.wake.wait();
            self.queue.idle.borrow_mut().push(self.wake.clone());
            woken.await;
        }
    }
}
