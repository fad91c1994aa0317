//! Calls of a filter's front that managers execute.

use super::{Front, Running, of_head};
use crate::filter::{Forward, Forwarded, OpenHere, Outcome, Subject, subject};
use crate::record::Record;
use crate::rpc::Call;
use crate::server::{Executed, OpenFiles, Origin, Port, Server};
use crate::v3::PROGRAM;
use endpoint::Frames;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::FileId;

/// Files that are open between calls, and those that are being closed.
struct Held<'f> {
    open: &'f OpenFiles,
    closing: &'f dyn Fn(Option<FileId>) -> bool,
}

impl OpenHere for Held<'_> {
    fn is_open(&self, file: FileId) -> bool {
        self.open.has(file) || (self.closing)(Some(file))
    }

    fn is_any_open(&self) -> bool {
        !self.open.is_empty() || (self.closing)(None)
    }

    fn is_any_written(&self) -> bool {
        self.open.has_written() || (self.closing)(None)
    }
}

impl Front {
    /// Of a packet filter: whoever drives it takes calls with [`poll_forward`](Front::poll_forward) and gives their
    /// replies back with [`forwarded`](Front::forwarded).
    pub fn filter(server: Rc<Server>, frames: Frames) -> Front {
        Front { forwards: Some(VecDeque::new()), ..Front::new(server, frames) }
    }

    /// The next call to be forwarded.
    pub fn poll_forward(&mut self) -> Option<Forward> {
        self.forwards.as_mut()?.pop_front()
    }

    /// A call that was forwarded has ended; `None`: without a reply. The client gets none then and retransmits. One
    /// that is not known any more is ignored.
    pub fn forwarded(&mut self, number: u64, outcome: Option<Outcome>) {
        let is_forwarded = |running: &Running| running.execution.is_none();
        if !self.calls.get(&number).is_some_and(is_forwarded) {
            return;
        }
        let running = self.calls.remove(&number).expect("it was found");
        let target = running.target;
        let executed = match outcome {
            Some(Outcome { reply, is_final, failed }) => {
                Executed { reply: Some(of_head(&reply)), is_final, failed }
            }
            None => Executed { reply: None, is_final: false, failed: true },
        };
        self.end(running, executed);
        self.go_on(target);
    }

    /// What became of forwarded calls so far.
    pub fn note_forwarded(&mut self, forwarded: Forwarded) {
        self.counters.forwarded = forwarded;
    }

    /// What a call is about, if a manager is to execute it.
    pub(super) fn subject(&mut self, call: &Call<'_>, origin: Origin) -> Option<Subject> {
        self.forwards.as_ref()?;
        if origin.port != Port::Nfs {
            return None;
        }
        let open = self.server.open_files().borrow();
        let closing = |file: Option<FileId>| {
            self.behind.closing().any(|closing| file.is_none_or(|file| file == closing))
        };
        let held = Held { open: &open, closing: &closing };
        let subject = subject(call, &self.server, origin.client(), &held);
        self.counters.executed_here += u64::from(subject.is_none() && call.program == PROGRAM);
        subject
    }

    pub(super) fn forward(
        &mut self,
        number: u64,
        running: Running,
        (origin, subject, record): (Origin, Subject, Record),
    ) {
        let forward = Forward { number, client: origin.from, subject, record: record.head };
        self.calls.insert(number, running);
        self.forwards.as_mut().expect("a filter").push_back(forward);
    }

    /// Calls of managers end without a reply: their clients retransmit them to the next incarnation.
    pub(super) fn give_up_forwarded(&mut self) {
        self.forwards.iter_mut().for_each(VecDeque::clear);
        let all = self.calls.iter().filter(|(_, running)| running.execution.is_none());
        let all: Vec<u64> = all.map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.forwarded(number, None));
    }
}
