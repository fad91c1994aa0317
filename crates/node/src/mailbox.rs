//! A bounded queue between the world and a pool of tasks.

use crate::scheduler::TaskId;
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    items: VecDeque<T>,
    waiters: VecDeque<TaskId>,
    /// By task, whether it is among the waiters.
    waits: Vec<bool>,
    limit: usize,
    /// Whether any task ever took from it: without one the items have no reader.
    pub served: bool,
}

impl<T> Mailbox<T> {
    pub fn new(limit: usize) -> Mailbox<T> {
        Mailbox {
            items: VecDeque::new(),
            waiters: VecDeque::new(),
            waits: Vec::new(),
            limit,
            served: false,
        }
    }

    /// Adds an item; the task to wake, if one waits. Gives it back when full.
    pub fn push(&mut self, item: T) -> Result<Option<TaskId>, T> {
        if self.items.len() >= self.limit {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(self.next_waiter())
    }

    fn next_waiter(&mut self) -> Option<TaskId> {
        let task = self.waiters.pop_front()?;
        let waited = std::mem::replace(&mut self.waits[task.0 as usize], false);
        assert!(waited, "a task waits once");
        Some(task)
    }

    /// Takes out the first item that is `wanted`.
    pub fn take(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.items.iter().position(wanted)?;
        self.items.remove(at)
    }

    /// The oldest item; else the task waits.
    pub fn poll(&mut self, task: TaskId) -> Option<T> {
        self.served = true;
        let item = self.items.pop_front();
        if item.is_none() && !self.is_waiting(task) {
            let tasks = self.waits.len().max(task.0 as usize + 1);
            self.waits.resize(tasks, false);
            self.waits[task.0 as usize] = true;
            self.waiters.push_back(task);
        }
        item
    }

    /// The task stops waiting. Another one to wake, when an item came for the first.
    pub fn leave(&mut self, task: TaskId) -> Option<TaskId> {
        if self.is_waiting(task) {
            self.waits[task.0 as usize] = false;
            self.waiters.retain(|waiter| *waiter != task);
        }
        if self.items.is_empty() { None } else { self.next_waiter() }
    }

    fn is_waiting(&self, task: TaskId) -> bool {
        self.waits.get(task.0 as usize).copied().unwrap_or(false)
    }
}
