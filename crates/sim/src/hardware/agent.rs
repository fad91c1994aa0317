//! The user-level forwarding agent (forwarding paper, section 4): a program over the endpoint's names that polls, asks
//! the policy for a backend, rewrites the header, attaches the payload as it lies, and sends.
//!
//! While its adapter's ring is full it leaves arrived messages in the receive ring, so that the adapter stops the
//! sender. An agent that first has to wait for a decision ([`Forwarder::holds`]) takes messages off the ring meanwhile;
//! then no sender is stopped, and the adapter's copies may be displaced before they are sent.

use super::programs::Role;
use super::world::program::{Copies, Cx, Header, ReceiveMessage, SendMessage};
use crate::queue::Picos;
use nic::{Agent, Balance, Landed};
use std::collections::VecDeque;
use wire::NodeId;

/// The agent.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// The backend of a flow; backends are adapters.
    pub policy: Agent,
    /// Its statements about the adapter's copies.
    pub copies: Copies,
    /// Its computation for each message.
    pub service: Picos,
    /// How long it holds each message before it sends it: it takes all that comes meanwhile. Zero is to send at once.
    pub holds: Picos,
    /// Messages sent on.
    pub forwarded: u64,
    kept: VecDeque<Kept>,
    /// Lists, to be used again.
    spare: Vec<Vec<Landed>>,
}

/// A message in host memory that is to be sent, not before it is due.
#[derive(Clone, Debug)]
struct Kept {
    due: Picos,
    adapter: usize,
    to: NodeId,
    header: Header,
    landed: Vec<Landed>,
}

/// Flows that the agent remembers.
const FLOWS: usize = 1_024;

impl Forwarder {
    /// An agent for these backends.
    pub fn new(balance: Balance, to: &[usize], copies: Copies, service: Picos) -> Forwarder {
        let backends: Vec<NodeId> = to.iter().map(|adapter| NodeId(*adapter as u16)).collect();
        let policy = Agent::new(balance, &backends, FLOWS);
        let (kept, spare) = (VecDeque::new(), Vec::new());
        Forwarder { policy, copies, service, holds: Picos::ZERO, forwarded: 0, kept, spare }
    }

    /// Forwards all to one adapter.
    pub fn role(to: usize, copies: Copies, service: Picos) -> Role {
        Role::Forwarder(Forwarder::new(Balance::RoundRobin, &[to], copies, service))
    }

    /// Looks at the receive rings until they have nothing, or until there is no room to send.
    pub(super) fn poll(&mut self, cx: &mut Cx<'_>) {
        while let Some(adapter) = cx.arrived() {
            if self.holds > Picos::ZERO {
                self.hold(cx);
                continue;
            }
            let Some(out) = cx.get_sendmsg(adapter) else { return };
            let message = cx.get_rcvmsg().expect("a message has arrived");
            match self.take(&message, cx) {
                Some(kept) => self.send(out, kept, cx),
                None => cx.senderr(out),
            }
            cx.release_rcvmsg(message);
        }
    }

    fn hold(&mut self, cx: &mut Cx<'_>) {
        let message = cx.get_rcvmsg().expect("a message has arrived");
        if let Some(kept) = self.take(&message, cx) {
            cx.wake(kept.due, 0);
            self.kept.push_back(kept);
        }
        cx.release_rcvmsg(message);
    }

    /// Sends what is due, as far as there is room.
    pub(super) fn send_kept(&mut self, cx: &mut Cx<'_>) {
        while self.kept.front().is_some_and(|kept| kept.due <= cx.now()) {
            let Some(out) = cx.get_sendmsg(self.kept[0].adapter) else { return };
            let kept = self.kept.pop_front().expect("there is one in front");
            self.send(out, kept, cx);
        }
    }

    /// The message's payload and where it goes; without a backend it stays in its entry, to be overwritten.
    fn take(&mut self, message: &ReceiveMessage, cx: &mut Cx<'_>) -> Option<Kept> {
        let to = self.policy.forward(message.header.word)?;
        let mut landed = self.spare.pop().unwrap_or_default();
        cx.detach_rcvmsg(message, &mut landed);
        let (due, adapter) = (cx.now() + self.holds, message.adapter);
        Some(Kept { due, adapter, to, header: message.header, landed })
    }

    /// The payload goes on as it lies; the header says where to.
    fn send(&mut self, out: SendMessage, mut kept: Kept, cx: &mut Cx<'_>) {
        for landed in kept.landed.drain(..) {
            cx.attach_sendmsg(&out, self.copies.piece(&landed));
        }
        self.spare.push(kept.landed);
        cx.charge(self.service);
        cx.release_sendmsg(out, usize::from(kept.to.0), kept.header);
        self.forwarded += 1;
    }
}
