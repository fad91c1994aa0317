//! The connection between an importer and its origin: bytes that arrive in order, some time later, until the origin is
//! started anew. While it is away nothing arrives.

use super::origin::SharedOrigin;
use nfs::client::session::{Action, Session};
use node::{Cx, Notify};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

/// How often it is looked whether there is something to send, or has come.
const LOOK: Duration = Duration::from_micros(500);
/// Longest time that bytes are on their way, usually and one time in so many.
const DELAY_US: u64 = 1_000;
const LATE_US: u64 = 60_000;
const LATE_ONE_IN: u64 = 40;

/// Bytes on their way, each with the time when they arrive.
type Pipe = VecDeque<(Time, Vec<u8>)>;

/// One end of it is on a node.
pub struct Link {
    cx: Cx,
    session: Rc<RefCell<Session>>,
    finished: Rc<Notify>,
    origin: SharedOrigin,
    is_connecting: bool,
    /// The start of the origin that it leads to.
    boot: Option<u32>,
    calls: Pipe,
    replies: Pipe,
}

impl Link {
    /// Moves the bytes of this session.
    pub fn new(
        cx: &Cx,
        session: Rc<RefCell<Session>>,
        finished: Rc<Notify>,
        origin: SharedOrigin,
    ) -> Link {
        let (calls, replies) = (Pipe::new(), Pipe::new());
        let cx = cx.clone();
        Link { cx, session, finished, origin, is_connecting: false, boot: None, calls, replies }
    }

    /// Until the node ends.
    pub async fn run(mut self) {
        loop {
            if self.turn() {
                self.finished.notify_all();
            }
            self.cx.sleep(LOOK).await;
        }
    }

    /// Whether calls have finished.
    fn turn(&mut self) -> bool {
        let (now, session) = (self.cx.now(), self.session.clone());
        let mut session = session.borrow_mut();
        let mut is_finished = session.handle_time(now);
        while let Some(action) = session.poll_action(now) {
            self.is_connecting = matches!(action, Action::Connect(_));
            self.forget();
        }
        let (boot, is_away) = (self.origin.borrow().boot, self.origin.borrow().is_away);
        if self.boot.is_some_and(|known| known != boot) {
            self.forget();
            session.handle_lost("connection reset", now);
        }
        if is_away {
            return is_finished;
        }
        if std::mem::take(&mut self.is_connecting) {
            self.boot = Some(boot);
            session.handle_connected(now);
        }
        let calls = session.output().to_vec();
        session.handle_wrote(calls.len());
        send(&self.cx, &mut self.calls, calls);
        while let Some(calls) = arrived(&mut self.calls, now) {
            let replies = self.origin.borrow_mut().serve(&calls);
            send(&self.cx, &mut self.replies, replies);
        }
        while let Some(bytes) = arrived(&mut self.replies, now) {
            let mut rest = &bytes[..];
            while !rest.is_empty() && session.is_open() {
                let space = session.space();
                let count = space.len().min(rest.len());
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                is_finished |= session.handle_filled(count, now);
            }
        }
        is_finished
    }

    fn forget(&mut self) {
        self.boot = None;
        self.calls.clear();
        self.replies.clear();
    }
}

fn send(cx: &Cx, pipe: &mut Pipe, bytes: Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let is_late = cx.random().is_multiple_of(LATE_ONE_IN);
    let span = cx.random() % if is_late { LATE_US } else { DELAY_US };
    let at = cx.now() + Duration::from_micros(span);
    let last = pipe.back().map_or(at, |(last, _)| *last);
    pipe.push_back((at.max(last), bytes));
}

fn arrived(pipe: &mut Pipe, now: Time) -> Option<Vec<u8>> {
    pipe.front().filter(|(at, _)| *at <= now)?;
    pipe.pop_front().map(|(_, bytes)| bytes)
}
