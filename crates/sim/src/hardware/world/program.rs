//! What hosts do: programs over the adapter's rings. `crate::hardware::programs` has those of the papers.

pub use super::check::Header;
use super::work::Move;
use crate::hardware::bus::Direction;
use crate::hardware::flow::Rate;
use crate::queue::Picos;
use nic::Landed;

/// A program of one host. It is called when something happens, and asks for what it wants through [`Cx`].
pub trait Program {
    /// The run begins.
    fn begin(&mut self, cx: &mut Cx<'_>);
    /// A message was taken from an adapter. Its pages are the adapter's again afterwards, unless the program
    /// forwards them.
    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>);
    /// A message that it sent has left its adapter: there is room for another.
    fn sent(&mut self, adapter: usize, cx: &mut Cx<'_>) {
        let _ = (adapter, cx);
    }
    /// A time that it asked for has come.
    fn timer(&mut self, token: u32, cx: &mut Cx<'_>) {
        let _ = (token, cx);
    }
    /// What it asked for under this number is done: a computation, or a transfer of another device.
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
    /// What its sender said.
    pub header: Header,
    /// Payload bytes in host memory.
    pub bytes: usize,
    /// Where they are, and the adapter's copies.
    pub pieces: &'m [Landed],
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A message with a payload of its own.
    Send { adapter: u16, to: u16, bytes: usize, word: u64, compute: Picos },
    /// The message at hand goes on.
    Forward { to: u16, via: u16, reuse: Copies, compute: Picos },
    /// A timer.
    Timer { at: Picos, token: u32 },
    /// A computation.
    Compute { span: Picos, token: u32 },
    /// A transfer of another device.
    Move(Move),
}

/// What a forwarder says about the adapter's copies of a payload (forwarding paper, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Nothing: the payload is fetched from host memory.
    Ignore,
    /// The payload was not modified.
    Use,
    /// It was modified.
    Invalidate,
}

/// A program's view of its host.
#[derive(Debug)]
pub struct Cx<'w> {
    pub(crate) now: Picos,
    pub(crate) room: &'w [usize],
    pub(crate) adapters: &'w [u16],
    pub(crate) asked: &'w mut Vec<Wake>,
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

    /// How many more messages an adapter of this host takes.
    pub fn room(&self, adapter: usize) -> usize {
        let place = self.adapters.iter().position(|own| usize::from(*own) == adapter);
        let place = place.expect("an adapter of this host");
        let asked = |wake: &Wake| match *wake {
            Wake::Send { adapter: via, .. } | Wake::Forward { via, .. } => {
                usize::from(via) == adapter
            }
            Wake::Timer { .. } | Wake::Compute { .. } | Wake::Move(_) => false,
        };
        self.room[place].saturating_sub(self.asked.iter().filter(|wake| asked(wake)).count())
    }

    /// Sends `bytes` of new payload and a word from an adapter of this host, once the host has computed for
    /// `compute`.
    pub fn send(&mut self, adapter: usize, to: usize, bytes: usize, word: u64, compute: Picos) {
        assert!(self.room(adapter) > 0, "who sends asks for room first");
        let (adapter, to) = (adapter as u16, to as u16);
        self.asked.push(Wake::Send { adapter, to, bytes, word, compute });
    }

    /// Sends the message at hand on, once the host has computed for `compute`.
    pub fn forward(&mut self, via: usize, to: usize, reuse: Copies, compute: Picos) {
        self.asked.push(Wake::Forward { to: to as u16, via: via as u16, reuse, compute });
    }

    /// Calls [`Program::timer`] at `at`.
    pub fn wake(&mut self, at: Picos, token: u32) {
        self.asked.push(Wake::Timer { at, token });
    }

    /// Computes for `span`, in the time that messages leave, then calls [`Program::done`].
    pub fn compute(&mut self, span: Picos, token: u32) {
        self.asked.push(Wake::Compute { span, token });
    }

    /// Another device moves `bytes` over this host's bus, at `alone` if nobody else is on it, then calls
    /// [`Program::done`].
    pub fn transfer(&mut self, bytes: u64, towards: Direction, alone: Rate, token: u32) {
        self.asked.push(Wake::Move(Move { bytes, towards, alone, token }));
    }
}
