//! A queue from which a pool of loops takes work; a push wakes one idle loop, not all. A loop whose work takes long
//! leaves the pool, and another comes in its place.

use crate::Files;
use crate::limits::{LATE_MAX, WORK_SPAN};
use node::{Cx, Either, Notify};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
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

/// How many loops have no place any more because their work takes long.
#[derive(Default)]
pub(crate) struct Late(Cell<usize>);

impl Files {
    /// Does the work of a loop; whether the loop still has its place. Work that waits for a server or the manager to
    /// come back gives the place to another loop, which `replace` starts: what others can do does not wait along.
    pub(crate) async fn in_place(
        &self,
        work: impl Future<Output = ()>,
        replace: impl FnOnce(&Files),
    ) -> bool {
        let mut work = pin!(work);
        let done = node::race(work.as_mut(), self.cx.sleep(WORK_SPAN)).await;
        let late = &self.late.0;
        if done == Either::Left(()) {
            return true;
        }
        let replaced = late.get() < LATE_MAX;
        if replaced {
            late.set(late.get() + 1);
            replace(self);
        }
        work.await;
        late.set(late.get() - usize::from(replaced));
        !replaced
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
