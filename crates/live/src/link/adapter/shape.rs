//! How an adapter on a real machine is made.

use crate::memory::SharedMemory;
use endpoint::Pulse;
use endpoint::limits::PAGE_BYTES;
use endpoint::shared::PIECES_MAX;
use endpoint::tuning::Pulses;
use nic::{Buffers, Config, ConfigError, Policy};
use std::io;

/// Bytes between two buffers' beginnings beyond their length: small payloads lie at the beginnings, and those of one
/// power of two share their places in a processor's caches.
const SKEW_BYTES: usize = 2 * PAGE_BYTES + 256;
/// Bytes of a payload buffer: the largest payload in 64 stretches takes 71 of them, as many as a slot has pieces.
const BUFFER_BYTES: usize = 128 << 10;
/// Entries of the adapter's rings: what is posted to it and has not left, and what has come and is not delivered.
const RING: usize = 32;
/// Frames joined to as few stretches as can be are at most so many in one message, and a buffer's end cuts some once
/// more.
const UNITS_MAX: usize = PIECES_MAX;

/// The payload policy and the memory of an adapter.
#[derive(Clone, Debug)]
pub struct AdapterShape {
    /// How payloads move.
    pub policy: Policy,
    /// Bytes of a payload buffer.
    pub buffer_bytes: usize,
    /// Its buffers.
    pub buffers: Buffers,
    /// Transfers that the log keeps; 0 is no log.
    pub log: usize,
}

impl Default for AdapterShape {
    /// 16 buffers to the link are the depth of a busy reader; 8 to the host hold the largest payload.
    fn default() -> AdapterShape {
        AdapterShape {
            policy: Policy::Tuned,
            buffer_bytes: BUFFER_BYTES,
            buffers: Buffers::Pools { send: 16, receive: 8 },
            log: 0,
        }
    }
}

/// The firmware's policy for these pulses.
pub fn policy(pulses: Pulses) -> Policy {
    match pulses {
        Pulses::Tuned => Policy::Tuned,
        Pulses::Given(Pulse::Whole) => Policy::StoreForward,
        Pulses::Given(Pulse::Fixed(size)) => Policy::FixedAll { size },
        Pulses::Given(Pulse::Adaptive { minimum }) => Policy::adaptive(minimum),
    }
}

/// Why an adapter cannot be made this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The firmware says.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The link carries whole messages.
    #[error(
        "this link carries whole messages: fragments and two separate loops are for models only"
    )]
    Policy,
    /// A message in the most pieces does not fit a slot.
    #[error(
        "an adapter buffer of {0} bytes is too short: the largest payload must fit {UNITS_MAX} buffers"
    )]
    Buffer(usize),
}

impl AdapterShape {
    /// The firmware's configuration.
    pub fn config(&self) -> Config {
        Config {
            policy: self.policy,
            send_ring: RING,
            receive_ring: RING,
            incoming: 1, // the endpoint has the table
            mtu: nic::limits::PAYLOAD_BYTES_MAX,
            buffers: self.buffers,
            control_to_host: false,
            link_keeps: true,
            log: self.log,
            ..Config::new(self.buffer_bytes)
        }
    }

    /// Whether an adapter can be made.
    pub fn check(&self) -> Result<(), ShapeError> {
        if matches!(self.policy, Policy::Fragment { .. } | Policy::Functional) {
            return Err(ShapeError::Policy);
        }
        if self.buffer_bytes < nic::limits::PAYLOAD_BYTES_MAX.div_ceil(UNITS_MAX) {
            return Err(ShapeError::Buffer(self.buffer_bytes));
        }
        Ok(self.config().check()?)
    }

    fn count(&self) -> usize {
        match self.buffers {
            Buffers::Pools { send, receive } => send + receive,
            Buffers::Cache(cache) => cache.entries,
        }
    }

    /// Where the byte `at` of a buffer lies in adapter memory.
    pub fn place(&self, buffer: u16, at: usize) -> usize {
        usize::from(buffer) * (self.buffer_bytes + SKEW_BYTES) + at
    }

    /// Adapter memory, zeroed.
    pub fn memory(&self) -> io::Result<SharedMemory> {
        let bytes = self.count() * (self.buffer_bytes + SKEW_BYTES);
        SharedMemory::create("trapeze-adapter", bytes.next_multiple_of(PAGE_BYTES))
    }
}
