//! Configuration of an adapter. Numbers of real hardware are data of its user (presets), never constants here.

use crate::direction::Direction;
use crate::limits::PAYLOAD_BYTES_MAX;
use endpoint::Pulse;
use wire::limits::CONTROL_BYTES;

/// How payloads move through an adapter (papers: HPDC'97 sections 3 and 4, HotI'99 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A payload moves on when it is whole.
    StoreForward,
    /// Sinks move pieces of exactly so many bytes, and the tail (HPDC'97 section 4.1).
    Static {
        /// Bytes of a pulse to the link.
        send: usize,
        /// Bytes of a pulse to the host.
        receive: usize,
    },
    /// An idle sink moves all that is buffered once that is at least the minimum: eager DMA (HPDC'97 section 4.2),
    /// adaptive message pipelining (HotI'99 section 3). Under load transfers grow by themselves to whole payloads.
    Adaptive {
        /// Fewest bytes of a pulse to the link.
        send: usize,
        /// Fewest bytes of a pulse to the host.
        receive: usize,
    },
    /// As [`Policy::Adaptive`], with minima for each length of payload that follow from what transfers cost here
    /// ([`endpoint::tuning`]). While more messages are on the adapter, a pulse is a whole buffer at least.
    Tuned,
    /// Transfers of so many bytes on sinks and on the host's side of a send alike (HotI'99 Table 1, fixed pipeline).
    FixedAll {
        /// Bytes of a transfer.
        size: usize,
    },
    /// Baseline that the papers argue against: each message as several packets of at most so many bytes, each stored
    /// and forwarded with a control message of its own.
    Fragment {
        /// Bytes of a packet's payload.
        size: usize,
    },
    /// Baseline: one loop for sending and one for receiving, that take turns when one has to wait (LANai Active
    /// Messages). Packets overlap, the steps of one packet do not (HPDC'97 section 3).
    Functional,
}

impl Policy {
    /// The adaptive policy with one minimum for both sinks, as in HotI'99 (`minpulse`).
    pub const fn adaptive(minpulse: usize) -> Policy {
        Policy::Adaptive { send: minpulse, receive: minpulse }
    }

    /// When a sink moves payload: to the link ([`Direction::ToNet`]), or to the host. `None`: that is measured.
    pub fn pulse(self, direction: Direction) -> Option<Pulse> {
        let chosen = |send, receive| match direction {
            Direction::ToNet => send,
            Direction::ToHost => receive,
        };
        Some(match self {
            Policy::Static { send, receive } => Pulse::Fixed(chosen(send, receive)),
            Policy::Adaptive { send, receive } => {
                Pulse::Adaptive { minimum: chosen(send, receive) }
            }
            Policy::Tuned => return None,
            Policy::FixedAll { size } => Pulse::Fixed(size),
            Policy::StoreForward | Policy::Fragment { .. } | Policy::Functional => Pulse::Whole,
        })
    }

    /// Most bytes of one transfer from the host.
    pub(crate) const fn fetch_bytes_max(self) -> usize {
        match self {
            Policy::FixedAll { size } => size,
            _ => usize::MAX,
        }
    }

    /// Most payload of one packet.
    pub(crate) const fn packet_bytes_max(self) -> usize {
        match self {
            Policy::Fragment { size } => size,
            _ => usize::MAX,
        }
    }
}

/// The treatment of a packet for which the host has armed no receive entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It is taken off the link and dropped, so that the network is never blocked (HPDC'97 section 2). Counted.
    Drop,
    /// It waits on the link, which stops its sender (forwarding paper section 4). Counted.
    Backpressure,
}

/// When a message that was delivered interrupts the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// Never: the host polls.
    Never,
    /// For each message.
    Each,
    /// Once; then not until the host says that it has drained the ring ([`crate::Nic::drained`]).
    Suppressed,
}

/// Adapter memory for payloads: buffers as long as a host page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Payloads are gone from the adapter when they have moved on.
    Pools {
        /// Buffers for payloads to the link; at least 2, or the adaptive policy never grows its pulses.
        send: usize,
        /// Buffers for payloads to the host.
        receive: usize,
    },
    /// They stay until their buffer is needed (forwarding paper section 3).
    Cache(CacheConfig),
}

/// The payload cache's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Buffers of the whole cache: at least the send segment, the small segment and twice the longer ring.
    pub entries: usize,
    /// Buffers for sends whose payload is not cached, so that they displace nothing else (typically 4).
    pub send_segment: usize,
    /// Buffers of their own for received payloads that are no longer than `small_bytes`; 0 is none.
    pub small_segment: usize,
    /// Payloads up to this size are small: they gain least from the cache and should not crowd it.
    pub small_bytes: usize,
}

/// Instructions that the adapter's processor executes for each action; all 0 is a processor that costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Starting a transfer between host and adapter.
    pub host: u32,
    /// Starting a transfer to the link.
    pub net_send: u32,
    /// Starting a transfer from the link.
    pub net_receive: u32,
    /// Once for each packet sent: taking it off the ring, completing it.
    pub send_packet: u32,
    /// Once for each packet received: its receive entry, its token, delivering it.
    pub receive_packet: u32,
    /// Looking at the payload cache for one buffer.
    pub cache: u32,
    /// Raising an interrupt.
    pub interrupt: u32,
    /// Changing from one loop to the other in [`Policy::Functional`].
    pub punt: u32,
}

/// Settings of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How payloads move.
    pub policy: Policy,
    /// Entries of the send ring (64 in the papers).
    pub send_ring: usize,
    /// Entries of the receive ring.
    pub receive_ring: usize,
    /// Entries of the incoming payload table.
    pub incoming: usize,
    /// Seed of its keys.
    pub seed: u64,
    /// Most payload bytes of a message.
    pub mtu: usize,
    /// Bytes of a payload buffer: the host's page.
    pub buffer_bytes: usize,
    /// Adapter memory for payloads.
    pub buffers: Buffers,
    /// The treatment of packets when the host lags.
    pub lag: Lag,
    /// When the host is interrupted.
    pub interrupts: Interrupts,
    /// Whether control messages go to the host as a transfer of their own (HotI'99); else the host reads them in the
    /// adapter's memory (HPDC'97).
    pub control_to_host: bool,
    /// Whether a buffer whose payload has left stays busy until [`crate::Nic::released`]: the link reads adapter memory
    /// later, as a peer does that maps it. Else the link has the bytes when their transfer ends.
    pub link_keeps: bool,
    /// Costs of actions on the adapter's processor.
    pub costs: Costs,
    /// Transfers that the log keeps; 0 is no log.
    pub log: usize,
}

/// Why an adapter cannot be built this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A size that must be at least 1.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// The cache cannot hold both rings.
    #[error(
        "a payload cache of {entries} buffers is too small: the segments and twice the longer ring take {least}"
    )]
    CacheTooSmall {
        /// Buffers asked for.
        entries: usize,
        /// Fewest that do.
        least: usize,
    },
    /// More than a message can be.
    #[error("an MTU of {0} is more than {PAYLOAD_BYTES_MAX}")]
    MtuOverLimit(usize),
}

impl Config {
    /// Store-and-forward with 64-entry rings, an MTU of one page and 8 page buffers each way; nothing costs anything.
    pub fn new(page: usize) -> Config {
        Config {
            policy: Policy::StoreForward,
            send_ring: 64,
            receive_ring: 64,
            incoming: 256,
            seed: 0,
            mtu: page,
            buffer_bytes: page,
            buffers: Buffers::Pools { send: 8, receive: 8 },
            lag: Lag::Backpressure,
            interrupts: Interrupts::Never,
            control_to_host: true,
            link_keeps: false,
            costs: Costs::default(),
            log: 0,
        }
    }

    /// Whether an adapter can be built.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("the send ring", self.send_ring),
            ("the receive ring", self.receive_ring),
            ("the buffer", self.buffer_bytes),
            ("the pulse", self.least_pulse()),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ConfigError::Zero(name));
        }
        self.check_cache()?;
        self.check_mtu()
    }

    fn least_pulse(&self) -> usize {
        match self.policy {
            Policy::Static { send, receive } | Policy::Adaptive { send, receive } => {
                send.min(receive)
            }
            Policy::FixedAll { size } | Policy::Fragment { size } => size,
            Policy::StoreForward | Policy::Functional | Policy::Tuned => 1,
        }
    }

    fn check_cache(&self) -> Result<(), ConfigError> {
        let Buffers::Cache(cache) = self.buffers else { return Ok(()) };
        let rings = 2 * self.send_ring.max(self.receive_ring);
        let least = cache.send_segment + cache.small_segment + rings;
        if cache.send_segment == 0 {
            return Err(ConfigError::Zero("the send segment"));
        }
        if cache.entries < least || cache.entries > usize::from(u16::MAX) {
            return Err(ConfigError::CacheTooSmall { entries: cache.entries, least });
        }
        Ok(())
    }

    fn check_mtu(&self) -> Result<(), ConfigError> {
        if self.mtu > PAYLOAD_BYTES_MAX {
            return Err(ConfigError::MtuOverLimit(self.mtu));
        }
        let Buffers::Pools { send, receive } = self.buffers else { return Ok(()) };
        if send.min(receive) == 0 { Err(ConfigError::Zero("the buffers")) } else { Ok(()) }
    }
}

/// Bytes of a control message on the link and on the bus.
pub const CONTROL: usize = CONTROL_BYTES;
