//! Group commit: requests that wait together are answered together.
//!
//! ```text
//!   submit ─► waiting ─┐                       ┌─► its outcome
//!   submit ─► waiting ─┴─► take ─► one write ──┴─► its outcome
//!                          what is submitted meanwhile is the next batch's
//! ```
//!
//! It knows nothing of what is written. The task that takes a batch decides when, how much of it, and what came of it.

use crate::cx::Cx;
use crate::sync::Notify;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

/// Requests `T` that end with an outcome `R` each.
pub struct Batches<T, R> {
    waiting: RefCell<VecDeque<Submitted<T, R>>>,
    more: Notify,
    ended: Notify,
}

struct Submitted<T, R> {
    item: T,
    outcome: Rc<RefCell<Option<R>>>,
}

/// Requests that were taken together, in the order of submission. Nothing but [`end`](Batch::end) ends their waits.
pub struct Batch<'a, T, R> {
    batches: &'a Batches<T, R>,
    taken: Vec<Submitted<T, R>>,
}

impl<T, R> Batches<T, R> {
    /// None waits. For tasks of this node.
    pub fn new(cx: &Cx) -> Batches<T, R> {
        let (more, ended) = (Notify::new(cx), Notify::new(cx));
        Batches { waiting: RefCell::default(), more, ended }
    }

    /// Waits until a batch with this request has ended. The request stays in its batch when the wait is given up.
    pub async fn submit(&self, item: T) -> R {
        let outcome = Rc::new(RefCell::new(None));
        self.waiting.borrow_mut().push_back(Submitted { item, outcome: outcome.clone() });
        self.more.notify_all();
        loop {
            let ended = self.ended.wait();
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            ended.await;
        }
    }

    /// Waits until a request waits.
    pub async fn ready(&self) {
        while self.waiting.borrow().is_empty() {
            self.more.wait().await;
        }
    }

    /// Takes the oldest requests: as many as weigh `most` together, and at least one where any waits.
    pub fn take(&self, most: usize, weigh: impl Fn(&T) -> usize) -> Batch<'_, T, R> {
        let mut waiting = self.waiting.borrow_mut();
        let mut weight = 0;
        let fits = |submitted: &&Submitted<T, R>| {
            weight += weigh(&submitted.item);
            weight <= most
        };
        let count = waiting.iter().take_while(fits).count();
        let count = count.max(1).min(waiting.len());
        Batch { batches: self, taken: waiting.drain(..count).collect() }
    }

    /// Waits for the end of the next batch.
    pub fn ended(&self) -> impl Future<Output = ()> + '_ {
        self.ended.wait()
    }
}

impl<T, R> Batch<'_, T, R> {
    /// The requests.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.taken.iter().map(|submitted| &submitted.item)
    }

    /// Ends the waits, each with the outcome of its request; asks for them in order.
    pub fn end(self, mut outcome: impl FnMut(&T) -> R) {
        for submitted in &self.taken {
            let before = submitted.outcome.replace(Some(outcome(&submitted.item)));
            assert!(before.is_none(), "a request ends once");
        }
        self.batches.ended.notify_all();
    }
}
