//! Messages that are no calls, as HPDC'97 section 2 has them: best effort, for readers of the endpoint itself.
//!
//! They share the rings with the calls. So that a reader that is slow or gone keeps no call from arriving, only so many
//! entries of the receive ring may hold them; what comes beyond that is dropped and counted, as HPDC'97's adapter
//! drops what its host does not keep up with. A node that has not asked for messages drops them all.

use super::Cx;
use crate::limits::MESSAGES_MAX;
use endpoint::{Endpoint, ReceiveMessage};
use std::collections::VecDeque;
use wire::{Kind, NodeId};

/// Messages that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    waiting: VecDeque<ReceiveMessage>,
    /// Entries that their reader has taken and not given back.
    taken: usize,
    limit: usize,
    dropped: u64,
}

/// Whether the message is for the reader of the endpoint, not for NetRPC.
pub(crate) fn is_message(endpoint: &mut Endpoint, message: &ReceiveMessage) -> bool {
    endpoint.arrived(message).control.0[1] == Kind::Message as u8
}

impl Messages {
    pub fn push(&mut self, endpoint: &mut Endpoint, message: ReceiveMessage) {
        if self.waiting.len() + self.taken < self.limit {
            self.waiting.push_back(message);
        } else {
            self.dropped += 1;
            endpoint.release_rcvmsg(message);
        }
    }
}

impl Cx {
    /// From now on messages that are no calls wait for [`take_message`](Cx::take_message).
    pub fn accept_messages(&self) {
        self.0.messages.borrow_mut().limit = MESSAGES_MAX;
    }

    /// The oldest message that is no call.
    pub fn take_message(&self) -> Option<ReceiveMessage> {
        let mut messages = self.0.messages.borrow_mut();
        let message = messages.waiting.pop_front()?;
        messages.taken += 1;
        Some(message)
    }

    /// Gives the entry of a taken message back, with the frames that are still in it.
    pub fn release_message(&self, message: ReceiveMessage) {
        self.0.messages.borrow_mut().taken -= 1;
        self.0.endpoint.borrow_mut().release_rcvmsg(message);
    }

    /// Messages that wait.
    pub fn messages_waiting(&self) -> usize {
        self.0.messages.borrow().waiting.len()
    }

    /// Messages dropped because no reader took them.
    pub fn messages_dropped(&self) -> u64 {
        self.0.messages.borrow().dropped
    }

    /// The endpoint, to post messages that are no calls and to look into those that came. Not for calls, and not from
    /// within itself.
    pub fn with_endpoint<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> R {
        f(&mut self.0.endpoint.borrow_mut())
    }

    /// Posts a sealed message. One to this very node arrives at once.
    pub fn release_sendmsg(&self, message: endpoint::SendMessage, to: NodeId) {
        let mut endpoint = self.0.endpoint.borrow_mut();
        if to == self.id() {
            endpoint.loop_back(message);
        } else {
            endpoint.release_sendmsg(message);
        }
    }
}
