//! Programs of hosts, over the adapter's rings, by the names of its interface (HPDC'97 Table 1).
//! `crate::hardware::programs` has those of the papers.

pub use super::check::Header;
use super::work::Move;
use crate::hardware::bus::Direction;
use crate::hardware::flow::Rate;
use crate::queue::Picos;
use nic::{Landed, Piece};

/// A program of one host. It is called when something happens, and does what it wants through [`Cx`].
pub trait Program {
    /// The run begins.
    fn begin(&mut self, cx: &mut Cx<'_>);
    /// A message was taken from an adapter. Its pages are the adapter's again afterwards.
    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>);
    /// The host has read a message, which [`Cx::get_rcvmsg`] has. A program that leaves it there is called again when
    /// a message of its own has left; until then the host reads no other. By default each goes to
    /// [`Program::message`] at once.
    fn poll(&mut self, cx: &mut Cx<'_>) {
        take_one(self, cx);
    }
    /// A message that it sent has left its adapter: there is room for another.
    fn sent(&mut self, adapter: usize, cx: &mut Cx<'_>) {
        let _ = (adapter, cx);
    }
    /// A time that it asked for has come.
    fn timer(&mut self, token: u32, cx: &mut Cx<'_>) {
        let _ = (token, cx);
    }
    /// The work that it requested under this number is done: a computation, or a transfer of another device.
    fn done(&mut self, token: u32, cx: &mut Cx<'_>) {
        let _ = (token, cx);
    }
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    /// The adapter it came to.
    pub adapter: usize,
    /// The adapter it came from.
    pub from: usize,
    /// Its sender's metadata.
    pub header: Header,
    /// Payload bytes in host memory.
    pub bytes: usize,
    /// Its pieces in host memory, with the adapter's copies.
    pub pieces: &'m [Landed],
}

/// Takes the message that the host has read, shows it to [`Program::message`], and releases it.
pub fn take_one<P: Program + ?Sized>(program: &mut P, cx: &mut Cx<'_>) {
    let Some(taken) = cx.get_rcvmsg() else { return };
    let ReceiveMessage { adapter, from, header, bytes, .. } = taken;
    let pieces = cx.landed;
    program.message(&Message { adapter, from, header, bytes, pieces }, cx);
    cx.release_rcvmsg(taken);
}

/// An entry of a receive ring that the program has until it releases it, in the same call.
#[derive(Debug, PartialEq, Eq)]
pub struct ReceiveMessage {
    /// The adapter it came to.
    pub adapter: usize,
    /// The adapter it came from.
    pub from: usize,
    /// Its sender's metadata.
    pub header: Header,
    /// Payload bytes in host memory.
    pub bytes: usize,
    pub(crate) slot: usize,
}

/// An entry of a send ring that the program has until it releases it, in the same call.
#[derive(Debug)]
pub struct SendMessage {
    adapter: u16,
    /// Index of its first piece among those of the call.
    first: usize,
}

/// A program's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A message with a payload of its own.
    Send { adapter: u16, to: u16, bytes: usize, header: Header, compute: Picos },
    /// A message with these of the call's pieces as payload.
    Post { adapter: u16, to: u16, header: Header, first: usize, count: usize, compute: Picos },
    /// The pages of a receive entry are the program's: it gets others.
    Detach { adapter: u16, slot: usize },
    /// A receive entry is the adapter's again.
    Release { adapter: u16, slot: usize },
    /// A timer.
    Timer { at: Picos, token: u32 },
    /// A computation.
    Compute { span: Picos, token: u32 },
    /// A transfer of another device.
    Move(Move),
}

/// A forwarder's statements about the adapter's copies of a payload (forwarding paper, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Nothing: the payload is fetched from host memory.
    Ignore,
    /// The payload was not modified.
    Use,
    /// It was modified.
    Invalidate,
}

impl Copies {
    /// How a piece that landed is sent on.
    pub fn piece(self, landed: &Landed) -> Piece {
        match self {
            Copies::Ignore => Piece::from(landed.frame),
            Copies::Use => landed.unmodified(),
            Copies::Invalidate => landed.modified(),
        }
    }
}

/// A program's view of its host.
#[derive(Debug)]
pub struct Cx<'w> {
    pub(crate) now: Picos,
    pub(crate) room: &'w [usize],
    pub(crate) adapters: &'w [u16],
    pub(crate) asked: &'w mut Vec<Wake>,
    /// Of all messages that the program sends in this call.
    pub(crate) pieces: &'w mut Vec<Piece>,
    pub(crate) at_hand: &'w mut Option<ReceiveMessage>,
    pub(crate) landed: &'w [Landed],
    /// Entries that the program has now, and work that its next message waits for.
    pub(crate) owned: [usize; 2],
    pub(crate) compute: Picos,
}

impl Cx<'_> {
    /// Simulated time.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// This host's adapters, as the world numbers them.
    pub fn adapters(&self) -> impl Iterator<Item = usize> + '_ {
        self.adapters.iter().map(|adapter| usize::from(*adapter))
    }

    /// Messages that an adapter of this host can still take.
    pub fn room(&self, adapter: usize) -> usize {
        let place = self.adapters.iter().position(|own| usize::from(*own) == adapter);
        let place = place.expect("an adapter of this host");
        let asked = |wake: &Wake| match *wake {
            Wake::Send { adapter: via, .. } | Wake::Post { adapter: via, .. } => {
                usize::from(via) == adapter
            }
            _ => false,
        };
        self.room[place].saturating_sub(self.asked.iter().filter(|wake| asked(wake)).count())
    }

    /// Sends `bytes` of new payload and a word from an adapter of this host, once the host has computed for
    /// `compute`.
    pub fn send(&mut self, adapter: usize, to: usize, bytes: usize, word: u64, compute: Picos) {
        self.compute = compute;
        self.send_born(adapter, to, bytes, word, self.now);
    }

    /// The same for a message that was due at `born`, without computing.
    pub fn send_born(&mut self, adapter: usize, to: usize, bytes: usize, word: u64, born: Picos) {
        assert!(self.room(adapter) > 0, "who sends asks for room first");
        let (adapter, to) = (adapter as u16, to as u16);
        let (header, compute) = (Header { word, name: 0, born }, std::mem::take(&mut self.compute));
        self.asked.push(Wake::Send { adapter, to, bytes, header, compute });
    }

    /// The adapter of the message that [`Cx::get_rcvmsg`] would give.
    pub fn arrived(&self) -> Option<usize> {
        self.at_hand.as_ref().map(|message| message.adapter)
    }

    /// The message that the host has read, once.
    pub fn get_rcvmsg(&mut self) -> Option<ReceiveMessage> {
        let message = self.at_hand.take()?;
        self.owned[0] += 1;
        Some(message)
    }

    /// Takes a message's payload out of its entry, which gets other pages: where it lies in host memory, and the
    /// adapter's copies. The pages are the program's until it sends them.
    pub fn detach_rcvmsg(&mut self, message: &ReceiveMessage, into: &mut Vec<Landed>) {
        into.extend_from_slice(self.landed);
        self.asked.push(Wake::Detach { adapter: message.adapter as u16, slot: message.slot });
    }

    /// The entry is the adapter's again.
    pub fn release_rcvmsg(&mut self, message: ReceiveMessage) {
        self.owned[0] -= 1;
        self.asked.push(Wake::Release { adapter: message.adapter as u16, slot: message.slot });
    }

    /// An entry of an adapter's send ring; `None` when the ring is full.
    pub fn get_sendmsg(&mut self, adapter: usize) -> Option<SendMessage> {
        assert_eq!(self.owned[1], 0, "one entry after the other");
        if self.room(adapter) == 0 {
            return None;
        }
        self.owned[1] += 1;
        Some(SendMessage { adapter: adapter as u16, first: self.pieces.len() })
    }

    /// Adds a piece of host memory to a message's payload.
    pub fn attach_sendmsg(&mut self, message: &SendMessage, piece: Piece) {
        assert!(message.first <= self.pieces.len(), "an entry of this call");
        self.pieces.push(piece);
    }

    /// The host works for `span` before it writes the next message.
    pub fn charge(&mut self, span: Picos) {
        self.compute = self.compute + span;
    }

    /// Sends it, with this header, to an adapter.
    pub fn release_sendmsg(&mut self, message: SendMessage, to: usize, header: Header) {
        self.owned[1] -= 1;
        let SendMessage { adapter, first } = message;
        let (to, count) = (to as u16, self.pieces.len() - first);
        let compute = std::mem::take(&mut self.compute);
        self.asked.push(Wake::Post { adapter, to, header, first, count, compute });
    }

    /// Gives an entry back unsent.
    pub fn senderr(&mut self, message: SendMessage) {
        self.owned[1] -= 1;
        self.pieces.truncate(message.first);
    }

    /// Calls [`Program::timer`] at `at`.
    pub fn wake(&mut self, at: Picos, token: u32) {
        self.asked.push(Wake::Timer { at, token });
    }

    /// Computes for `span`, in the time that messages leave, then calls [`Program::done`].
    pub fn compute(&mut self, span: Picos, token: u32) {
        self.asked.push(Wake::Compute { span, token });
    }

    /// Another device moves `bytes` over this host's bus, at `alone` if the bus is free, then calls [`Program::done`].
    pub fn transfer(&mut self, bytes: u64, towards: Direction, alone: Rate, token: u32) {
        self.asked.push(Wake::Move(Move { bytes, towards, alone, token }));
    }
}
