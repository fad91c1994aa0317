//! Calls of a filter's front that managers execute.

use super::{Front, Running, of_head};
use crate::filter::{Forward, Forwarded, OpenHere, Outcome, Subject, files_named, subject};
use crate::record::Record;
use crate::rpc::Call;
use crate::server::{Executed, Execution, Origin, Port, Server};
use crate::v3::{PROGRAM, Procedure};
use endpoint::Frames;
use node::Bug;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::FileId;

/// Files that are open between calls, and those that are being closed.
impl OpenHere for Front {
    fn is_open(&self, file: FileId) -> bool {
        let is_closing = || self.behind.closing().any(|closing| closing == file);
        self.server.open_files().borrow().has(file) || is_closing()
    }

    fn is_any_open(&self) -> bool {
        !self.server.open_files().borrow().is_empty() || self.behind.closing().next().is_some()
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
        let number = match self.server.bugs.has(Bug::ForwardsMistaken) {
            true => self.calls.iter().find(|(_, it)| is_forwarded(it)).map_or(number, |it| *it.0),
            false => number,
        };
        if !self.calls.get(&number).is_some_and(is_forwarded) {
            return;
        }
        let mut running = self.calls.remove(&number).expect("it was found");
        let (target, repeated) = (running.target, running.repeated.take());
        match (outcome, repeated) {
            (Some(outcome), Some((origin, record))) if self.names_open(&record, &outcome) => {
                self.counters.executed_here += 1;
                let execution = Execution::begin(self.server.clone(), origin, None, record);
                self.step(number, Running { execution: Some(execution), ..running });
            }
            (Some(Outcome { reply, is_final, failed }), _) => {
                let reply = Some(of_head(&reply));
                self.end(running, Executed { reply, is_final, failed });
            }
            (None, _) => self.end(running, Executed { reply: None, is_final: false, failed: true }),
        }
        if !self.calls.contains_key(&number) {
            self.go_on(target);
        }
    }

    /// Whether bytes of any file may be here that no other node has.
    fn is_any_written(&self) -> bool {
        self.server.open_files().borrow().has_written() || self.behind.closing().next().is_some()
    }

    /// Whether a reply has attributes of files that are open here, and so may be older than their bytes.
    fn names_open(&self, record: &Record, outcome: &Outcome) -> bool {
        let call = Call::parse(&record.head).expect("it was forwarded");
        let procedure = Procedure::of(call.procedure).expect("it was forwarded");
        let mut files = files_named(procedure, &outcome.reply, &self.server).into_iter();
        files.any(|file| self.is_open(file))
    }

    /// Takes over counts of forwarded calls.
    pub fn note_forwarded(&mut self, forwarded: Forwarded) {
        self.counters.forwarded = forwarded;
    }

    /// The subject of a call, if a manager is to execute it.
    pub(super) fn subject(&mut self, call: &Call<'_>, origin: Origin) -> Option<Subject> {
        self.forwards.as_ref()?;
        if origin.port != Port::Nfs {
            return None;
        }
        let subject = subject(call, &self.server, origin.client(), self);
        self.counters.executed_here += u64::from(subject.is_none() && call.program == PROGRAM);
        subject
    }

    pub(super) fn forward(
        &mut self,
        number: u64,
        running: Running,
        (origin, subject, record): (Origin, Subject, Record),
    ) {
        let repeated = subject.names_files && self.is_any_written();
        let repeated =
            repeated.then(|| (origin, Record { head: record.head.clone(), data: Vec::new() }));
        self.calls.insert(number, Running { repeated, ..running });
        let forward = Forward { number, client: origin.from, subject, record: record.head };
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
