//! Engines and processor of one adapter, as far as time goes.

use crate::hardware::flow::Flow;
use crate::queue::Picos;
use nic::{Command, Engine, Progress, Transfer};

/// Progress of an engine's transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// Before the first byte.
    Starting,
    /// Bytes move, or wait for the other side.
    Moving,
}

/// One engine. The bytes of a net engine move in bursts that the wire keeps; `moved` are those of its earlier bursts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineState {
    pub transfer: Option<Transfer>,
    pub phase: Phase,
    pub moved: usize,
}

impl EngineState {
    /// Bytes that are still to move.
    pub fn left(&self) -> usize {
        self.transfer.map_or(0, |transfer| transfer.bytes - self.moved)
    }

    pub fn is_moving(&self) -> bool {
        self.phase == Phase::Moving
    }
}

/// The three engines. The host's has a flow of its own; the link's burst is the sender's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bank {
    pub states: [EngineState; 3],
    pub host: Flow,
    pub host_stamp: u32,
    /// The burst that leaves; its receiver looks here.
    pub burst: Flow,
    pub burst_stamp: u32,
    pub bursting: bool,
}

impl Bank {
    pub fn of(&mut self, engine: Engine) -> &mut EngineState {
        &mut self.states[engine as usize]
    }

    pub fn state(&self, engine: Engine) -> &EngineState {
        &self.states[engine as usize]
    }
}

/// The counter registers at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub moved: [usize; 3],
}

impl Progress for Registers {
    fn moved(&self, engine: Engine) -> usize {
        self.moved[engine as usize]
    }
}

/// The adapter's processor: it executes what one command costs, then the command happens, then it looks for the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processor {
    pub flow: Flow,
    pub command: Option<Command>,
    pub stamp: u32,
    /// Instructions so far.
    pub executed: u64,
    /// Start of the present command.
    pub since: Picos,
    /// Time it was executing, at whatever speed.
    pub busy: Picos,
}
