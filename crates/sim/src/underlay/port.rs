//! A node's side of the hardware world: what it was asked to do, by number, and what of it is done.

use super::Done;
use crate::hardware::bus::Direction;
use crate::hardware::flow::Rate;
use crate::hardware::world::program::{Cx, Message, Program};
use crate::network::PacketId;
use crate::queue::Picos;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A packet's worth of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub to: usize,
    pub bytes: usize,
    pub packet: PacketId,
    pub is_last: bool,
}

/// A host's next task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Send(Part),
    Compute(Picos, Done),
    Move { bytes: u64, towards: Direction, alone: Rate, done: Done },
    Tell(Done),
}

/// All hosts' tasks by number, and what is done.
#[derive(Debug, Default)]
pub(super) struct Desk {
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
    pub done: VecDeque<Done>,
}

impl Desk {
    pub fn put(&mut self, task: Task) -> u32 {
        let token = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() as u32 - 1
        });
        self.tasks[token as usize] = Some(task);
        token
    }

    fn take(&mut self, token: u32) -> Task {
        self.free.push(token);
        self.tasks[token as usize].take().expect("a task is done once")
    }
}

/// The program of a host.
#[derive(Debug)]
pub(super) struct Port {
    /// Parts that the send ring had no room for.
    waiting: VecDeque<Part>,
    /// Processor time for each message that arrives.
    service: Picos,
    desk: Rc<RefCell<Desk>>,
}

impl Port {
    pub fn new(desk: Rc<RefCell<Desk>>, service: Picos) -> Port {
        Port { waiting: VecDeque::new(), service, desk }
    }

    fn put(&self, done: Done) -> u32 {
        self.desk.borrow_mut().put(Task::Tell(done))
    }

    fn post(&mut self, cx: &mut Cx<'_>) {
        let adapter = cx.adapters().next().expect("a host with an adapter");
        while cx.room(adapter) > 0 {
            let Some(part) = self.waiting.pop_front() else { return };
            let word = u64::from(part.packet.number()) << 1 | u64::from(part.is_last);
            cx.send(adapter, part.to, part.bytes, word, Picos::ZERO);
        }
    }

    fn begin_task(&mut self, task: Task, cx: &mut Cx<'_>) {
        match task {
            Task::Send(part) => {
                self.waiting.push_back(part);
                self.post(cx);
            }
            Task::Compute(span, done) => cx.compute(span, self.put(done)),
            Task::Move { bytes, towards, alone, done } => {
                cx.transfer(bytes, towards, alone, self.put(done));
            }
            Task::Tell(done) => self.desk.borrow_mut().done.push_back(done),
        }
    }
}

impl Program for Port {
    fn begin(&mut self, _: &mut Cx<'_>) {}

    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>) {
        let word = message.header.word;
        if word & 1 == 1 {
            let done = Done::Arrived(PacketId::from_number((word >> 1) as u32));
            let task = match self.service {
                Picos::ZERO => Task::Tell(done),
                service => Task::Compute(service, done),
            };
            self.begin_task(task, cx);
        }
    }

    fn sent(&mut self, _: usize, cx: &mut Cx<'_>) {
        self.post(cx);
    }

    fn timer(&mut self, token: u32, cx: &mut Cx<'_>) {
        let task = self.desk.borrow_mut().take(token);
        self.begin_task(task, cx);
    }

    fn done(&mut self, token: u32, cx: &mut Cx<'_>) {
        self.timer(token, cx);
    }
}
