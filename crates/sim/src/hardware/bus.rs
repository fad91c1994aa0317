//! I/O buses between a host's memory and its adapters: conventional PCI and PCI Express.
//!
//! PCI moves one thing at a time, in either direction; who wants it at once shares it evenly, since arbitration
//! goes round in bursts far shorter than a transfer. Programmed I/O of the processor is one more user: that is
//! what makes the first transfer of a burst long (HotI'99 Figure 3). Reading host memory and writing it have
//! rates of their own (HPDC'97 section 4: reads at 128 MB/s, writes at half). PCI Express moves both ways at
//! once, in packets with headers.

use super::flow::Rate;
use super::preset::Section;
use crate::queue::Picos;
use crate::source::Fault;

/// Direction of a transfer, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Host memory is read: data that leaves.
    ToAdapter,
    /// Host memory is written: data that came.
    ToHost,
}

/// Cost of a transfer between host memory and adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// 32 or 64 bits, 33 or 66 MHz, half duplex.
    Pci(Pci),
    /// Generations 3 to 5, full duplex.
    Pcie(Pcie),
}

/// A conventional PCI bus behind its host bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci {
    /// Width times clock: nothing is faster.
    pub peak: Rate,
    /// Sustained rate of reading host memory.
    pub read: Rate,
    /// Sustained rate of writing it.
    pub write: Rate,
    /// From a request for the bus to the first byte, reading: arbitration and the bridge's latency.
    pub read_setup: Picos,
    /// The same, writing.
    pub write_setup: Picos,
}

/// A PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcie {
    /// Bytes each way after line coding, before packets: lanes times transfers.
    pub raw: Rate,
    /// Share of it that link-layer packets take, in parts of a million.
    pub link_layer: u32,
    /// Most payload in one packet (MPS).
    pub payload_max: u64,
    /// Most bytes asked for in one read request (MRRS).
    pub request_max: u64,
    /// Header, framing and CRC of one packet.
    pub header: u64,
    /// From a read request to its first data.
    pub read_latency: Picos,
    /// Read requests under way at once.
    pub tags: u64,
}

impl Bus {
    /// Whether both directions share the same wires.
    pub fn is_half_duplex(&self) -> bool {
        matches!(self, Bus::Pci(_))
    }

    /// The rate of one transfer alone on the bus.
    pub fn rate(&self, direction: Direction) -> Rate {
        match (self, direction) {
            (Bus::Pci(pci), Direction::ToAdapter) => pci.read,
            (Bus::Pci(pci), Direction::ToHost) => pci.write,
            (Bus::Pcie(pcie), Direction::ToAdapter) => pcie.read_rate(),
            (Bus::Pcie(pcie), Direction::ToHost) => pcie.write_rate(),
        }
    }

    /// How long a transfer waits for its first byte; the bus is free for others meanwhile.
    pub fn setup(&self, direction: Direction) -> Picos {
        match (self, direction) {
            (Bus::Pci(pci), Direction::ToAdapter) => pci.read_setup,
            (Bus::Pci(pci), Direction::ToHost) => pci.write_setup,
            (Bus::Pcie(pcie), Direction::ToAdapter) => pcie.read_latency,
            (Bus::Pcie(_), Direction::ToHost) => Picos::ZERO,
        }
    }

    /// Time of one transfer alone: set-up and data. HPDC'97 Figure 5 is this over `bytes`.
    pub fn time(&self, direction: Direction, bytes: u64) -> Picos {
        self.setup(direction) + self.rate(direction).time(bytes)
    }

    /// Reads the table [bus].
    pub fn read(table: &Section<'_>) -> Result<Bus, Fault> {
        match table.word("type", &["pci", "pcie"])? {
            0 => Pci::read(table).map(Bus::Pci),
            _ => Pcie::read(table).map(Bus::Pcie),
        }
    }
}

const RATE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

impl Pci {
    fn read(table: &Section<'_>) -> Result<Pci, Fault> {
        let bits = [32, 64][table.word("width", &["32", "64"])?];
        let clock = table.clock("clock")?;
        let pci = Pci {
            peak: Rate(clock.0 * bits / 8),
            read: table.rate("read", RATE)?,
            write: table.rate("write", RATE)?,
            read_setup: table.time("read_setup", Picos::millis(1))?,
            write_setup: table.time("write_setup", Picos::millis(1))?,
        };
        for (key, rate) in [("read", pci.read), ("write", pci.write)] {
            if rate > pci.peak {
                let most = super::units::RATE.show(pci.peak.0);
                return Err(
                    table.impossible(key, format!("`{key}` above the bus's peak of {most}"))
                );
            }
        }
        Ok(pci)
    }
}

impl Pcie {
    /// Data that the adapter writes to host memory: posted packets of at most `payload_max`.
    fn write_rate(&self) -> Rate {
        self.packets(self.payload_max)
    }

    /// Data that it reads: completions, and no more requests than there are tags.
    fn read_rate(&self) -> Rate {
        let in_flight = self.tags * self.request_max;
        let latency_bound =
            u128::from(in_flight) * 1_000_000_000_000 / u128::from(self.read_latency.0.max(1));
        let latency_bound = Rate(u64::try_from(latency_bound).unwrap_or(u64::MAX));
        self.packets(self.payload_max).min(latency_bound)
    }

    fn packets(&self, payload: u64) -> Rate {
        let usable = u128::from(self.raw.0) * u128::from(1_000_000 - self.link_layer) / 1_000_000;
        Rate((usable * u128::from(payload) / u128::from(payload + self.header)) as u64)
    }

    fn read(table: &Section<'_>) -> Result<Pcie, Fault> {
        // transfers a second and lane, times the coding of 128 bits in 130 (generations 3 to 5)
        let transfers = [8u64, 16, 32][table.word("generation", &["3", "4", "5"])?] * 1_000_000_000;
        let lanes = [1, 2, 4, 8, 16][table.word("lanes", &["1", "2", "4", "8", "16"])?];
        let pcie = Pcie {
            raw: Rate(transfers / 130 * 128 / 8 * lanes),
            link_layer: table.share("link_layer")?,
            payload_max: table.size("payload_max", 128..=4_096)?,
            request_max: table.size("request_max", 128..=4_096)?,
            header: table.size("header", 12..=64)?,
            read_latency: table.time("read_latency", Picos::millis(1))?,
            tags: table.count("tags", 1..=1_024)?,
        };
        if pcie.link_layer >= 500_000 {
            return Err(table.impossible(
                "link_layer",
                "`link_layer` = half the link or more; allowed: 0 to 49 %".into(),
            ));
        }
        Ok(pcie)
    }
}

/// The users of a bus, and how it is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Users {
    to_adapter: u32,
    to_host: u32,
}

impl Users {
    /// One more.
    pub fn join(&mut self, direction: Direction) {
        *self.of(direction) += 1;
    }

    /// One less.
    pub fn leave(&mut self, direction: Direction) {
        let users = self.of(direction);
        *users = users.checked_sub(1).expect("who leaves the bus was on it");
    }

    /// The rate that each transfer in `direction` gets; `alone` is what it would have alone.
    pub fn share(&self, bus: &Bus, direction: Direction, alone: Rate) -> Rate {
        let users = match (bus.is_half_duplex(), direction) {
            (true, _) => self.to_adapter + self.to_host,
            (false, Direction::ToAdapter) => self.to_adapter,
            (false, Direction::ToHost) => self.to_host,
        };
        alone.shared(u64::from(users))
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.to_adapter + self.to_host > 0
    }

    fn of(&mut self, direction: Direction) -> &mut u32 {
        match direction {
            Direction::ToAdapter => &mut self.to_adapter,
            Direction::ToHost => &mut self.to_host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEN3: Pcie = Pcie {
        raw: Rate(7_876_923_008),
        link_layer: 80_000,
        payload_max: 256,
        request_max: 512,
        header: 24,
        read_latency: Picos::nanos(600),
        tags: 32,
    };

    #[test]
    fn half_duplex_is_shared_by_both_directions_and_full_duplex_by_one() {
        let setup = Picos::ZERO;
        let rate = Rate::mega(132);
        let pci = Bus::Pci(Pci {
            peak: rate,
            read: rate,
            write: rate,
            read_setup: setup,
            write_setup: setup,
        });
        let mut users = Users::default();
        users.join(Direction::ToAdapter);
        users.join(Direction::ToHost);
        assert_eq!(users.share(&pci, Direction::ToHost, rate), Rate::mega(66));
        assert_eq!(users.share(&Bus::Pcie(GEN3), Direction::ToHost, rate), rate);
        users.leave(Direction::ToAdapter);
        assert_eq!(users.share(&pci, Direction::ToHost, rate), rate);
    }

    #[test]
    fn headers_and_tags_cost_what_they_should() {
        // 7.88 GB/s, 8 % link layer, 256 of 280 bytes are data: 6.6 GB/s, as measured for gen 3 x8 (SIGCOMM'18)
        let write = Bus::Pcie(GEN3).rate(Direction::ToHost).0;
        assert!((6_600_000_000..6_650_000_000).contains(&write), "{write}");
        let few = Pcie { tags: 4, ..GEN3 };
        assert_eq!(
            Bus::Pcie(few).rate(Direction::ToAdapter).0,
            4 * 512 * 1_000_000_000_000 / 600_000
        );
    }

    #[test]
    #[should_panic(expected = "was on it")]
    fn nobody_leaves_twice() {
        Users::default().leave(Direction::ToHost);
    }
}
