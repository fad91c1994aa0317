//! Operations in flight of the node's tasks, and the tasks that wait for them.
//!
//! A dropped future does not end what it waited for: its ticket is marked, the completion finds the mark and releases
//! the frames it brings.

use crate::call::Reply;
use crate::rings::{DiskError, DiskReply, MetaError};
use crate::scheduler::TaskId;
use netrpc::{CallError, CallId};

/// The outcome of a ticket.
#[derive(Debug)]
pub(crate) enum Outcome {
    Call(Result<Reply, CallError>),
    Disk(Result<DiskReply, DiskError>),
    Meta(Result<(), MetaError>),
    Timer,
}

/// Runs when its call ends (HotI'99 section 2.1); may not wait.
pub(crate) type Continuation = Box<dyn FnOnce(Result<Reply, CallError>)>;

pub(crate) enum State {
    Free,
    /// No task polls yet.
    Started,
    Waiting(TaskId),
    Continued(Continuation),
    Ended(Outcome),
    /// The future is gone; the completion will free the ticket.
    Abandoned,
}

struct Entry {
    generation: u32,
    state: State,
    call: Option<CallId>,
}

/// The table. It grows to the most that was ever under way.
#[derive(Default)]
pub(crate) struct Tickets {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Tickets {
    /// A new ticket.
    pub fn start(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, state: State::Free, call: None });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        assert!(matches!(entry.state, State::Free), "a ticket that is given out is free");
        assert!(entry.call.is_none(), "a free ticket belongs to no call");
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Started;
        u64::from(entry.generation) << 32 | u64::from(index)
    }

    fn find(&mut self, ticket: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut((ticket & 0xffff_ffff) as usize)?;
        let same = u64::from(entry.generation) == ticket >> 32;
        (same && !matches!(entry.state, State::Free)).then_some(entry)
    }

    pub fn set_call(&mut self, ticket: u64, call: CallId) {
        let entry = self.find(ticket).expect("a call that has just started");
        assert!(entry.call.is_none(), "a ticket is of one call");
        entry.call = Some(call);
    }

    pub fn set_continuation(&mut self, ticket: u64, continuation: Continuation) {
        let entry = self.find(ticket).expect("a call that has just started");
        let unpolled = matches!(entry.state, State::Waiting(TaskId(u32::MAX)));
        assert!(unpolled, "no task waits for what is continued");
        entry.state = State::Continued(continuation);
    }

    fn release(&mut self, ticket: u64) -> State {
        let entry = &mut self.entries[(ticket & 0xffff_ffff) as usize];
        entry.call = None;
        let state = std::mem::replace(&mut entry.state, State::Free);
        assert!(!matches!(state, State::Free), "a ticket is released once");
        self.free.push((ticket & 0xffff_ffff) as u32);
        state
    }

    /// Ends the ticket and returns the effect, with the outcome when it is not kept here.
    pub fn end(&mut self, ticket: u64, outcome: Outcome) -> Ended {
        let Some(entry) = self.find(ticket) else { return Ended::Nobody(Some(outcome)) };
        entry.call = None; // its record serves another call from now on
        match &entry.state {
            State::Waiting(task) => {
                let task = *task;
                entry.state = State::Ended(outcome);
                Ended::Wake(task)
            }
            State::Started => {
                entry.state = State::Ended(outcome);
                Ended::Nobody(None)
            }
            State::Continued(_) => match (self.release(ticket), outcome) {
                (State::Continued(run), Outcome::Call(result)) => Ended::Run(run, result),
                _ => unreachable!("only calls have continuations"),
            },
            _ => {
                let state = self.release(ticket);
                assert!(matches!(state, State::Abandoned), "what is under way ends once");
                Ended::Nobody(Some(outcome))
            }
        }
    }

    /// The outcome, when there is one; else `task` is told when there will be.
    pub fn poll(&mut self, ticket: u64, task: TaskId) -> Option<Outcome> {
        let entry = self.find(ticket).expect("polled after it was taken");
        if !matches!(entry.state, State::Ended(_)) {
            let waits = matches!(entry.state, State::Started | State::Waiting(_));
            assert!(waits, "what is given up or continued is not polled");
            entry.state = State::Waiting(task);
            return None;
        }
        match self.release(ticket) {
            State::Ended(outcome) => Some(outcome),
            _ => unreachable!("just looked"),
        }
    }

    /// The future of a timer is dropped: nothing comes back, so the ticket is free at once.
    pub fn abandon_timer(&mut self, ticket: u64) {
        if self.find(ticket).is_some() {
            self.release(ticket);
        }
    }

    /// Whether the ticket is in use.
    pub fn is_open(&self, ticket: u64) -> bool {
        let entry = self.entries.get((ticket & 0xffff_ffff) as usize);
        entry.is_some_and(|entry| {
            u64::from(entry.generation) == ticket >> 32 && !matches!(entry.state, State::Free)
        })
    }

    /// The future is dropped. The call to cancel and the outcome to drop, if any.
    pub fn abandon(&mut self, ticket: u64) -> (Option<CallId>, Option<State>) {
        let Some(entry) = self.find(ticket) else { return (None, None) };
        let call = entry.call.take();
        if call.is_some() || matches!(entry.state, State::Ended(_)) {
            return (call, Some(self.release(ticket)));
        }
        entry.state = State::Abandoned;
        (None, None)
    }

    /// Forgets all tickets. The caller drops what they held, outside of any borrow.
    pub fn clear(&mut self) -> impl Sized + use<> {
        std::mem::take(self)
    }

    /// Tickets in use.
    pub fn under_way(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// The effect of an end. Outcomes are dropped by the caller, outside of any borrow.
pub(crate) enum Ended {
    Wake(TaskId),
    Run(Continuation, Result<Reply, CallError>),
    #[allow(dead_code)] // held only to be dropped late
    Nobody(Option<Outcome>),
}
