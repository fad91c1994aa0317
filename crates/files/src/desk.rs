//! The places at which the front's operations are served, and how one ends whose application has given up.
//!
//! An interrupted operation is answered with EINTR at once, wherever it waits. One that only asks is given up: a read,
//! a look-up, an fsync, a write that has not been taken over. One that changes names, opens, closes or truncates goes
//! on, because half of it may be done elsewhere; another loop takes its place at the front. A file that it opens is
//! closed again, and an error that no caller heard is told again. A lock is given up, and the manager told what its
//! owner has without it: the same owner may have asked again by then.
//!
//! Invariant: an operation is answered once.

use crate::Files;
use crate::flags::{PUNCH_HOLE, ZERO_RANGE};
use crate::locks::Wanted;
use crate::places::Worker;
use crate::table::Open;
use node::rings::{FileOp, FileReply, FileRequest, LockKind};
use node::{Cx, Notify};
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use wire::Errno;

/// Where one loop serves.
pub(crate) struct Desk {
    front: Cell<Option<u64>>,
    given_up: Cell<bool>,
    told: Notify,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Desks(RefCell<Vec<Rc<Desk>>>);

impl Desks {
    fn add(&self, cx: &Cx) -> Rc<Desk> {
        let (front, given_up) = Default::default();
        let desk = Rc::new(Desk { front, given_up, told: Notify::new(cx) });
        self.0.borrow_mut().push(desk.clone());
        desk
    }

    fn remove(&self, desk: &Rc<Desk>) {
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, desk));
    }

    /// Whether the operation `front` is being served; it then knows that its application has given up.
    pub fn interrupt(&self, front: u64) -> bool {
        let all = self.0.borrow();
        let Some(desk) = all.iter().find(|desk| desk.front.get() == Some(front)) else {
            return false;
        };
        desk.given_up.set(true);
        desk.told.notify_all();
        true
    }
}

impl Desk {
    /// Runs `operation` and returns its value; `None` when its application gave up before.
    async fn watch<T>(
        &self,
        front: u64,
        mut operation: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        assert_eq!(self.front.get(), None, "a loop serves one operation at a time");
        self.given_up.set(false);
        self.front.set(Some(front));
        let mut told = pin!(self.told.wait());
        let ended = std::future::poll_fn(|context| {
            if let Poll::Ready(value) = operation.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            match told.as_mut().poll(context) {
                Poll::Ready(()) if self.given_up.get() => Poll::Ready(None),
                _ => Poll::Pending,
            }
        })
        .await;
        self.front.set(None);
        ended
    }
}

/// The end of an operation whose application has given up.
enum Afterwards {
    /// It is given up where it waits.
    GivenUp,
    /// It goes on; what it opened is closed.
    GoesOn,
    /// It goes on; an error that it told since is to be told again.
    Untold(Rc<Open>, u64),
    /// It is given up, and its owner's locks are what they were.
    NotLocked(Wanted),
}

impl Files {
    fn afterwards(&self, op: &FileOp) -> Afterwards {
        match op {
            FileOp::Read { .. }
            | FileOp::Write { .. }
            | FileOp::Fsync { .. }
            | FileOp::FsyncDirectory { .. }
            | FileOp::Seek { .. }
            | FileOp::Prefetch { .. }
            | FileOp::GetAttr { .. }
            | FileOp::Lookup { .. }
            | FileOp::OpenDirectory { .. }
            | FileOp::ReadDirectory { .. }
            | FileOp::ListDirectory { .. }
            | FileOp::StatFs
            | FileOp::Access { .. }
            | FileOp::Permissions { .. }
            | FileOp::ReadLink { .. }
            | FileOp::GetXattr { .. }
            | FileOp::ListXattr { .. }
            | FileOp::GetLock { .. } => Afterwards::GivenUp,
            FileOp::WithWcc { op, .. } => self.afterwards(op),
            // Steps that must not be left half done run in `to_the_end`.
            FileOp::Allocate { mode, .. } if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 => {
                Afterwards::GivenUp
            }
            FileOp::Flush { handle, .. } => match self.table.borrow().handle(*handle) {
                Ok(open) => Afterwards::Untold(open.clone(), open.reported.get()),
                Err(_) => Afterwards::GoesOn,
            },
            FileOp::SetLock { file, handle, owner, lock, whole_file, .. }
                if lock.kind != LockKind::Unlock =>
            {
                let (file, handle, owner, whole_file) = (*file, *handle, *owner, *whole_file);
                Afterwards::NotLocked(Wanted { file, handle, owner, lock: *lock, whole_file })
            }
            _ => Afterwards::GoesOn,
        }
    }

    /// The loop that hears of applications that gave up.
    pub(crate) async fn interrupt_loop(self) {
        loop {
            let front = self.cx.interrupted().await;
            if !self.desks.interrupt(front) {
                self.interrupt_lock(front);
            }
        }
    }

    /// One of the loops that serve the front.
    pub(crate) async fn front_loop(self) {
        let desk = self.desks.add(&self.cx);
        let work = async |request, place: &Worker| self.serve(request, &desk, place).await;
        self.front_places.work(&self.cx, || self.cx.front(), work).await;
        self.desks.remove(&desk);
    }

    async fn serve(&self, request: FileRequest, desk: &Desk, place: &Worker) {
        let (front, kind) = (request.front, crate::counters::kind(&request.op));
        let afterwards = self.afterwards(&request.op);
        let mut operation = pin!(Some(self.answer(request)));
        let waited_for = operation.as_mut().as_pin_mut().expect("it is not given up yet");
        match desk.watch(front, waited_for).await {
            Some(Some(result)) => self.done(front, kind, result),
            // It joined the line of waiting locks, maybe just when it was given up.
            Some(None) if desk.given_up.get() => self.interrupt_lock(front),
            Some(None) => {}
            None => {
                self.done(front, kind, Err(Errno::EINTR));
                self.go_on(place, afterwards, operation).await;
            }
        }
    }

    /// Does the rest of an operation whose application has given up.
    async fn go_on(
        &self,
        place: &Worker,
        afterwards: Afterwards,
        mut operation: Pin<&mut Option<impl Future<Output = Option<Result<FileReply, Errno>>>>>,
    ) {
        match afterwards {
            Afterwards::GivenUp => {}
            Afterwards::NotLocked(wanted) => {
                operation.set(None);
                self.replace(&self.front_places, place);
                self.settle_lock(&wanted).await;
            }
            _ => {
                self.replace(&self.front_places, place);
                let operation = operation.as_mut().as_pin_mut().expect("it is not given up");
                if let Some(outcome) = operation.await {
                    self.settle(afterwards, outcome).await;
                }
            }
        }
    }

    /// Does `work` to its end, even when the operation that waits for it is given up.
    pub(crate) async fn to_the_end<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
    ) -> T {
        let ended = Rc::new((Cell::new(None), Notify::new(&self.cx)));
        let told = ended.clone();
        self.cx.spawn("files: to the end", async move {
            told.0.set(Some(work.await));
            told.1.notify_all();
        });
        loop {
            let woken = ended.1.wait();
            if let Some(value) = ended.0.take() {
                return value;
            }
            woken.await;
        }
    }

    fn done(&self, front: u64, kind: usize, result: Result<FileReply, Errno>) {
        self.counters.ops[kind].add(1);
        self.counters.failures.add(result.is_err().into());
        self.cx.front_done(front, result);
    }

    /// An operation whose application gave up has ended. Errors of giving back are not told: the manager then keeps an
    /// open for this client until its lease ends.
    async fn settle(&self, afterwards: Afterwards, outcome: Result<FileReply, Errno>) {
        match (afterwards, outcome) {
            (Afterwards::Untold(open, before), Err(_)) => {
                open.reported.set(before);
                open.file.state.borrow_mut().failure.told = before;
            }
            (_, Ok(FileReply::Opened { handle, .. } | FileReply::Created { handle, .. })) => {
                drop(self.release(handle, None).await)
            }
            _ => {}
        }
    }
}
