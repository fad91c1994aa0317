//! The demands of the forwarding paper (section 2.2, Table 2), by formula from clocks, widths and counts.
//!
//! All of them are for one packet of `packet_bytes` that arrives, goes to the host, and leaves again. Without a payload
//! cache it crosses the bus twice and the adapter's memory four times; with one, once and three times.

use super::{Centre, Network};
use sim::queue::Picos;

/// An adapter of Table 1 of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// As tables show it.
    pub name: String,
    /// Whether transfers and instructions compete for the memory (LANai-4); otherwise they overlap.
    pub contended: bool,
    /// Rate at which the two accesses of an instruction are counted, in MHz: the memory's on the LANai-4, the
    /// processor's on the others (the paper's own numbers in Table 2 need it so).
    pub access_mhz: f64,
    /// Cost of a packet on the bus for each crossing and in the firmware, beside the model (fitted to Table 2).
    pub extra: Extra,
}

/// Two costs that the paper's model leaves out, fitted to the rates that it observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extra {
    /// Microseconds for each crossing of the bus.
    pub crossing_us: f64,
    /// Microseconds for each packet.
    pub packet_us: f64,
}

/// Constants of all boards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Bytes of a payload.
    pub packet_bytes: f64,
    /// Bytes that the bus, and a contended memory, move at a time.
    pub word_bytes: f64,
    /// Clock of the bus, MHz.
    pub bus_mhz: f64,
    /// Rate of the links, MB/s.
    pub link_mb_s: f64,
    /// Instructions of the firmware to forward one packet.
    pub instructions: f64,
    /// Memory accesses of one instruction.
    pub accesses: f64,
    /// Microseconds of the host to field a packet's interrupt.
    pub interrupt_us: f64,
    /// Microseconds of the host to process a packet.
    pub processing_us: f64,
}

/// A transfer of the payload cache's schedule on a contended memory, for figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Packet, from 0.
    pub packet: usize,
    /// The transfer.
    pub work: Work,
    /// The first or the second of the two memory cycles in each processor cycle.
    pub cycle: usize,
    /// When it begins.
    pub start: Picos,
    /// When it ends.
    pub end: Picos,
}

/// A transfer that occupies a memory cycle (Figure 2 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// From the network to the adapter (A1).
    NetToCard,
    /// From the adapter to the host (A2).
    CardToHost,
    /// Instructions.
    Processing,
    /// From the adapter to the network (A3).
    CardToNet,
}

impl Host {
    fn words(&self) -> f64 {
        self.packet_bytes / self.word_bytes
    }

    /// Microseconds to move a payload over the bus once.
    pub fn crossing_us(&self) -> f64 {
        self.words() / self.bus_mhz
    }

    /// Accesses to the adapter's memory by the instructions for one packet.
    pub fn instruction_accesses(&self) -> f64 {
        self.instructions * self.accesses
    }

    /// Crossings of the bus for each packet.
    pub fn visits(cached: bool) -> u32 {
        if cached { 1 } else { 2 }
    }

    /// Demand of a packet on the adapter, in microseconds.
    pub fn adapter_us(&self, board: &Board, cached: bool) -> f64 {
        match (board.contended, cached) {
            (true, false) => self.all_accesses_us(board),
            (true, true) => self.two_stages_us(board),
            (false, _) => {
                let bus = f64::from(Host::visits(cached)) * self.crossing_us();
                bus.max(self.link_and_instructions_us(board))
            }
        }
    }

    /// Every access takes its turn: four transfers and the instructions.
    fn all_accesses_us(&self, board: &Board) -> f64 {
        (4.0 * self.words() + self.instruction_accesses()) / board.access_mhz
    }

    /// Two stages as long as a crossing of the bus, in which three transfers leave a quarter of the accesses to
    /// instructions; what is left of those runs at half the rate (Figures 2 and 3; the formula is inferred from them).
    fn two_stages_us(&self, board: &Board) -> f64 {
        2.0 * self.crossing_us() + 2.0 * self.left_over(board) / board.access_mhz
    }

    /// Instruction accesses that find no idle memory cycle in two stages.
    fn left_over(&self, board: &Board) -> f64 {
        let idle = 2.0 * self.crossing_us() * board.access_mhz - 3.0 * self.words();
        (self.instruction_accesses() - idle).max(0.0)
    }

    fn link_and_instructions_us(&self, board: &Board) -> f64 {
        self.packet_bytes / self.link_mb_s + self.instruction_accesses() / board.access_mhz
    }

    /// The network of Figure 1: adapter, bus, host.
    pub fn network(&self, board: &Board, cached: bool) -> Network {
        Network {
            centres: vec![
                Centre::new("NIC", 1, self.adapter_us(board, cached)),
                Centre::new("PCI", Host::visits(cached), self.crossing_us()),
                Centre::new("host", 1, self.interrupt_us + self.processing_us),
            ],
        }
    }

    /// Bandwidth at a packet every `us`, in MB/s.
    pub fn bandwidth_mb_s(&self, us: f64) -> f64 {
        self.packet_bytes / us
    }

    /// Bandwidth with the costs that the model leaves out, in MB/s; the slower of the bus and the adapter's own work
    /// decides.
    pub fn observed_mb_s(&self, board: &Board, cached: bool) -> f64 {
        let own = match board.contended {
            true => self.adapter_us(board, cached),
            false => self.link_and_instructions_us(board),
        };
        let bus = f64::from(Host::visits(cached)) * (self.crossing_us() + board.extra.crossing_us);
        self.bandwidth_mb_s(bus.max(own) + board.extra.packet_us)
    }

    /// The two-stage schedule of a contended memory with a payload cache, for so many packets (Figures 2 and 3).
    ///
    /// First stage: a payload comes in while the one before leaves. Second: it goes to the host, and instructions have
    /// the other cycle; what they lack follows at half the rate, in either cycle.
    pub fn schedule(&self, board: &Board, packets: usize) -> Vec<Slot> {
        let at = |us: f64| Picos((us * 1e6).round() as u64);
        let (stage, period) = (self.crossing_us(), self.two_stages_us(board));
        let mut slots = Vec::new();
        for packet in 0..packets {
            let begun = packet as f64 * period;
            let mut slot = |work, cycle, start: f64, end: f64, packet| {
                let (start, end) = (at(begun + start), at(begun + end));
                slots.push(Slot { packet, work, cycle, start, end });
            };
            slot(Work::NetToCard, 0, 0.0, stage, packet);
            if let Some(before) = packet.checked_sub(1) {
                slot(Work::CardToNet, 1, 0.0, stage, before);
            }
            slot(Work::CardToHost, 0, stage, 2.0 * stage, packet);
            slot(Work::Processing, 1, stage, period, packet);
        }
        let end = packets as f64 * period;
        let (start, end) = (at(end), at(end + stage));
        if let Some(packet) = packets.checked_sub(1) {
            slots.push(Slot { packet, work: Work::CardToNet, cycle: 1, start, end });
        }
        slots
    }
}

impl Work {
    /// Its number in the paper's figures, as in A1, A2, A3.
    pub fn label(self) -> &'static str {
        match self {
            Work::NetToCard => "1",
            Work::CardToHost => "2",
            Work::Processing => "p",
            Work::CardToNet => "3",
        }
    }
}
