//! The functional baseline: a loop for sending and one for receiving, each of which asks whether its packet is ready
//! for its next step and lets the other run when it is not (LANai Active Messages; HPDC'97 section 3).

use super::{Nic, Started};
use crate::command::{Engine, Transfer};
use crate::direction::Direction;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Loop {
    #[default]
    Send,
    Receive,
}

/// The loop whose turn it is, and where each one stands: the packet it works at, and whether it is at its second step.
/// The second step of receiving overlaps with the first of the next packet only once all of it has been started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    turn: Loop,
    sends: u64,
    leaving: bool,
    receives: u64,
    going: bool,
}

impl Nic {
    pub(crate) fn functional(&mut self) -> Option<Started> {
        for punts in 0..2 {
            let found = match self.turns.turn {
                Loop::Send => self.send_loop(),
                Loop::Receive => self.receive_loop(),
            };
            if found.is_some() {
                self.count_punts(punts);
                return found;
            }
            self.turns.turn = match self.turns.turn {
                Loop::Send => Loop::Receive,
                Loop::Receive => Loop::Send,
            };
        }
        None
    }

    /// Fetches the payload; once all of that has been started, waits to send it; then goes on to the next packet. A
    /// payload that is longer than the adapter's buffers leaves while it is fetched.
    fn send_loop(&mut self) -> Option<Started> {
        let number = self.turns.sends;
        if number == self.sending.posted {
            return None;
        }
        let fetches = self.sending.fetching == number;
        self.turns.leaving |= !fetches || self.sending.slot(number).stream.stuck;
        if !self.turns.leaving {
            return self.host_towards(Direction::ToNet);
        }
        if self.sending.leaving != number {
            return None;
        }
        let sent = self.net_send();
        let message_ends = |t: &Transfer| t.last && t.packet.is_last();
        if sent.is_some_and(|sent| message_ends(self.started(sent))) {
            (self.turns.sends, self.turns.leaving) = (number + 1, false);
        }
        sent.or_else(|| if fetches { self.host_towards(Direction::ToNet) } else { None })
    }

    /// Takes the packet off the link; once all of that has been started, waits to pass it on; then goes on to the next.
    fn receive_loop(&mut self) -> Option<Started> {
        let (came, went) = self.receiving.counts();
        self.turns.receives = self.turns.receives.max(went);
        self.turns.going &= came > self.turns.receives;
        let stuck = self.receiving.only_stream().is_some_and(|stream| stream.stuck);
        if !self.turns.going && !stuck {
            let found = self.net_receive()?;
            let kept = self.receiving.counts().0 > self.turns.receives;
            self.turns.going = self.started(found).last && kept;
            return Some(found);
        }
        let room = !self.turns.going; // a payload that is longer than the buffers comes while it goes
        let gone = self.host_towards(Direction::ToHost);
        let found = gone.or_else(|| if room { self.net_receive() } else { None })?;
        if found.engine == Engine::HostDma && self.started(found).last {
            self.turns.receives += 1;
            self.turns.going = false;
        }
        Some(found)
    }

    fn started(&self, started: Started) -> &Transfer {
        self.active(started.engine).expect("it has just been started")
    }
}
