//! A connection between a client of NFS and a front: bytes that arrive in order, after a delay, until it is lost.
//!
//! Bytes that were sent to the front before the client lost its end still arrive: a call may be executed that its
//! client retransmits over the next connection.

use crate::queue::Picos;
use crate::random::Random;
use nfs::front::ConnectionId;
use std::collections::VecDeque;

/// Usual delay of a chunk.
const DELAY_US: u64 = 200;
/// Delay of one in [`LATE_ONE_IN`].
const LATE_US: u64 = 30_000;
const LATE_ONE_IN: u64 = 50;
/// One chunk in so many is two, so that records arrive in pieces.
const SPLIT_ONE_IN: u64 = 8;

/// One direction.
#[derive(Debug, Default)]
pub struct Pipe {
    chunks: VecDeque<Vec<u8>>,
    last: Picos,
}

impl Pipe {
    /// Sends bytes; the times at which a chunk of them arrives.
    pub fn send(&mut self, bytes: Vec<u8>, now: Picos, random: &mut Random) -> Vec<Picos> {
        let is_split = bytes.len() > 1 && random.below(SPLIT_ONE_IN) == 0;
        let at = if is_split { random.within(1, bytes.len() as u64 - 1) as usize } else { 0 };
        let (first, second) = bytes.split_at(at);
        let chunks = [first, second].into_iter().filter(|chunk| !chunk.is_empty());
        let mut send = |chunk: &[u8]| {
            let is_late = random.below(LATE_ONE_IN) == 0;
            let delay = Picos::micros(20 + random.below(if is_late { LATE_US } else { DELAY_US }));
            self.last = self.last.max(now + delay);
            self.chunks.push_back(chunk.to_vec());
            self.last
        };
        chunks.map(&mut send).collect()
    }

    /// The chunk that arrives.
    pub fn arrived(&mut self) -> Option<Vec<u8>> {
        self.chunks.pop_front()
    }

    /// When all that was sent has arrived.
    pub fn last(&self) -> Picos {
        self.last
    }
}

/// The connection.
#[derive(Debug)]
pub struct Stream {
    /// The client's machine.
    pub machine: usize,
    /// The front, and its incarnation.
    pub front: usize,
    pub boot: u32,
    /// The front's name of it, once bytes have arrived there.
    pub connection: Option<ConnectionId>,
    /// Towards the front.
    pub calls: Pipe,
    /// Bytes that the front does not take yet.
    pub untaken: VecDeque<u8>,
    /// Towards the client.
    pub replies: Pipe,
}

impl Stream {
    /// A new one.
    pub fn new(machine: usize, front: usize, boot: u32) -> Stream {
        let (calls, replies) = (Pipe::default(), Pipe::default());
        Stream { machine, front, boot, connection: None, calls, untaken: VecDeque::new(), replies }
    }
}
