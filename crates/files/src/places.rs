//! The places of a pool of loops, each of which does one piece of work after the other. While every loop is at work,
//! others take the places of those whose work takes long: what waits for a server or the manager to come back does not
//! hold up what can be done without. One watcher sees to that for the whole pool, so that the work itself needs no
//! timer.
//!
//! Invariant: a pool has as many places as loops were started in it; at most `spare` loops more go on without one.

use crate::Files;
use crate::limits::WORK_SPAN;
use node::{Cx, Notify};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::Time;

/// The places of one pool.
pub(crate) struct Places {
    all: RefCell<Vec<Rc<Worker>>>,
    /// Starts a loop.
    start: fn(&Files),
    /// How many loops may go on without a place, and how many do.
    spare: usize,
    behind: Cell<usize>,
    /// How many wait for work; none does any more.
    idle: Cell<usize>,
    busy: Notify,
}

/// That of one loop.
#[derive(Default)]
pub(crate) struct Worker {
    /// Since when the loop is at work; `None`: it waits for some.
    since: Cell<Option<Time>>,
    /// Whether another loop has it: its own ends when it has done what it does.
    replaced: Cell<bool>,
}

impl Worker {
    fn is_late(&self, now: Time) -> bool {
        self.since.get().is_some_and(|since| now.since(since) >= WORK_SPAN) && !self.replaced.get()
    }
}

impl Places {
    /// None yet.
    pub fn new(cx: &Cx, spare: usize, start: fn(&Files)) -> Rc<Places> {
        let (all, behind, idle) = Default::default();
        Rc::new(Places { all, start, spare, behind, idle, busy: Notify::new(cx) })
    }

    /// The loop of each worker of the pool: does `work` on each piece that `next` brings, until another loop has taken
    /// its place.
    pub async fn work<T>(
        &self,
        cx: &Cx,
        next: impl AsyncFn() -> T,
        work: impl AsyncFn(T, &Worker),
    ) {
        let place = Rc::new(Worker::default());
        self.all.borrow_mut().push(place.clone());
        while !place.replaced.get() {
            let piece = self.wait(cx, &place, next()).await;
            work(piece, &place).await;
        }
        assert!(self.behind.get() <= self.spare, "no more loops go on without a place than may");
        self.behind.set(self.behind.get() - 1);
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, &place));
    }

    /// Waits for the next piece of work of the loop whose place it is.
    async fn wait<T>(&self, cx: &Cx, place: &Worker, next: impl Future<Output = T>) -> T {
        place.since.set(None);
        self.idle.set(self.idle.get() + 1);
        let piece = next.await;
        self.idle.set(self.idle.get() - 1);
        place.since.set(Some(cx.now()));
        if self.idle.get() == 0 {
            self.busy.notify_all();
        }
        piece
    }

    fn late(&self, now: Time) -> Vec<Rc<Worker>> {
        self.all.borrow().iter().filter(|place| place.is_late(now)).cloned().collect()
    }
}

impl Files {
    /// The watcher of a pool.
    pub(crate) async fn watch_places(self, places: Rc<Places>) {
        loop {
            let busy = places.busy.wait();
            if places.idle.get() > 0 {
                busy.await;
            }
            self.cx.sleep(WORK_SPAN).await;
            if places.idle.get() == 0 {
                places.late(self.cx.now()).iter().for_each(|place| self.replace(&places, place));
            }
        }
    }

    /// Starts another loop in this place, unless that has happened or too many go on without one already.
    pub(crate) fn replace(&self, places: &Places, place: &Worker) {
        let behind = places.behind.get();
        if behind < places.spare && !place.replaced.replace(true) {
            places.behind.set(behind + 1);
            (places.start)(self);
        }
    }
}
