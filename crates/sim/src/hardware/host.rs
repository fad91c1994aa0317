//! Hosts: what their processor spends on a message, and how it notices one.
//!
//! Control messages are written and read by programmed I/O, word by word over the bus (HPDC'97 section 2.3), so
//! that they contend with DMA for it. How long a host takes to see a message depends on who waits how: a poll
//! with back-off, or an interrupt.

use super::flow::Rate;
use super::preset::Section;
use crate::queue::Picos;
use crate::source::Fault;

/// A host's costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Bytes of a control message that are touched on each side: the valid words.
    pub control_touched: u64,
    /// Rate of programmed stores to the adapter.
    pub pio_write: Rate,
    /// Rate of programmed loads from it.
    pub pio_read: Rate,
    /// Processor time to send a control message, without its programmed I/O.
    pub send: Picos,
    /// Processor time to take one, without its programmed I/O.
    pub receive: Picos,
    /// More, on each side, when a frame is attached.
    pub attach: Picos,
    /// Time between two looks at the receive ring, at first.
    pub poll: Picos,
    /// Time between two looks after long silence: the back-off doubles up to this.
    pub poll_most: Picos,
    /// An interrupt, to its handler's first instruction.
    pub interrupt: Picos,
    /// The work behind a message: a page request, or what a forwarder decides.
    pub service: Picos,
    /// Rate of a copy by the processor, when data is not in its cache.
    pub copy: Rate,
    /// TCP, where the papers give it.
    pub tcp: Option<Tcp>,
}

/// Costs of a TCP stack over the adapter (HotI'99 section 4; Trapeze/IP, USENIX 1999).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Processor time of one segment, driver and stack, whatever its size.
    pub segment: Picos,
    /// Processor time of one acknowledgement.
    pub acknowledgement: Picos,
    /// Processor time to remap one page between socket and user.
    pub remap: Picos,
    /// Bytes of a page.
    pub page: u64,
    /// Rate at which the processor sums data, where the adapter does not.
    pub checksum: Rate,
    /// Bytes that may be on their way unacknowledged.
    pub window: u64,
}

/// A host's treatment of the data of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// Pages change hands between socket and user; else their bytes are copied.
    pub remaps: bool,
    /// The host sums the data; else the adapter does while it moves them.
    pub sums: bool,
}

/// Costs of file calls at the system call layer (HotI'99 section 4), beside [`Host::copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCalls {
    /// Processor time of one call, without its data.
    pub call: Picos,
    /// Processor time to hand one page to the caller without a copy.
    pub remap: Picos,
    /// Bytes of a page.
    pub page: u64,
}

/// How a host learns of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It looks, with back-off.
    Poll,
    /// It is interrupted.
    Interrupt,
}

impl Host {
    /// When a host that has looked in vain since `since` notices what came at `came`. Looks are `poll` apart,
    /// then twice, and so on up to `poll_most`.
    pub fn noticed(&self, since: Picos, came: Picos) -> Picos {
        let (mut look, mut gap) = (since, self.poll);
        if gap == Picos::ZERO || came <= since {
            return came.max(since);
        }
        while gap < self.poll_most {
            if look >= came {
                return look;
            }
            (look, gap) = (look + gap, Picos(gap.0 * 2).min(self.poll_most));
        }
        let missing = came.since(look).0;
        look + Picos(missing.div_ceil(gap.0) * gap.0)
    }

    /// Processor time that TCP takes for a segment of `bytes`, on either side.
    pub fn segment_time(&self, tcp: &Tcp, bytes: u64, handling: Handling) -> Picos {
        let remap = Picos(tcp.remap.0 * bytes.div_ceil(tcp.page));
        let data = if handling.remaps { remap } else { self.copy.time(bytes) };
        let sum = if handling.sums { tcp.checksum.time(bytes) } else { Picos::ZERO };
        tcp.segment + data + sum
    }

    /// Time of a segment of a stream in which adapter, bus and link take `path` for each: what the slowest takes, they
    /// or the receiving processor, which acknowledges every second segment.
    pub fn tcp_time(&self, tcp: &Tcp, bytes: u64, handling: Handling, path: Picos) -> Picos {
        let taken = self.receive + self.attach + self.segment_time(tcp, bytes, handling);
        let acknowledges =
            self.send + tcp.acknowledgement + self.pio_write.time(self.control_touched);
        path.max(taken + Picos(acknowledges.0 / 2))
    }

    /// Reads the tables [host] and, where there is one, [tcp].
    pub fn read(table: &Section<'_>, tcp: Option<&Section<'_>>) -> Result<Host, Fault> {
        let most = Picos::millis(10);
        let rate = 1_000_000..=1_000_000_000_000;
        let host = Host {
            control_touched: table.size("control_touched", 8..=128)?,
            pio_write: table.rate("pio_write", rate.clone())?,
            pio_read: table.rate("pio_read", rate.clone())?,
            send: table.time("send", most)?,
            receive: table.time("receive", most)?,
            attach: table.time("attach", most)?,
            poll: table.time("poll", most)?,
            poll_most: table.time("poll_most", most)?,
            interrupt: table.time("interrupt", most)?,
            service: table.time("service", most)?,
            copy: table.rate("copy", rate)?,
            tcp: tcp.map(Tcp::read).transpose()?,
        };
        if host.poll_most < host.poll {
            return Err(table
                .impossible("poll_most", "`poll_most` below `poll`: back-off only grows".into()));
        }
        Ok(host)
    }
}

impl FileCalls {
    /// Reads the table [files].
    pub fn read(table: &Section<'_>) -> Result<FileCalls, Fault> {
        Ok(FileCalls {
            call: table.time("call", Picos::millis(10))?,
            remap: table.time("remap", Picos::millis(1))?,
            page: table.size("page", 512..=1 << 20)?,
        })
    }

    /// Processor time to hand `bytes` to a caller.
    pub fn remap_time(&self, bytes: u64) -> Picos {
        Picos(self.remap.0 * bytes.div_ceil(self.page))
    }
}

impl Tcp {
    fn read(table: &Section<'_>) -> Result<Tcp, Fault> {
        Ok(Tcp {
            segment: table.time("segment", Picos::millis(10))?,
            acknowledgement: table.time("acknowledgement", Picos::millis(10))?,
            remap: table.time("remap", Picos::millis(1))?,
            page: table.size("page", 512..=1 << 20)?,
            checksum: table.rate("checksum", 1_000_000..=1_000_000_000_000)?,
            window: table.size("window", 1_024..=1 << 30)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host {
        control_touched: 32,
        pio_write: Rate::mega(20),
        pio_read: Rate::mega(5),
        send: Picos::ZERO,
        receive: Picos::ZERO,
        attach: Picos::ZERO,
        poll: Picos::micros(1),
        poll_most: Picos::micros(8),
        interrupt: Picos::micros(6),
        service: Picos::ZERO,
        copy: Rate::mega(100),
        tcp: None,
    };

    #[test]
    fn a_poll_backs_off_and_then_keeps_its_pace() {
        let noticed = |came| HOST.noticed(Picos::ZERO, Picos::nanos(came));
        // looks at 0, 1, 3, 7, 15, 23 us and so on
        for (came, looked) in
            [(1, 1), (1_000, 1), (1_001, 3), (3_100, 7), (7_001, 15), (15_001, 23), (80_000, 87)]
        {
            assert_eq!(noticed(came), Picos::micros(looked), "{came}");
        }
        assert_eq!(HOST.noticed(Picos::micros(9), Picos::micros(4)), Picos::micros(9));
    }

    #[test]
    fn without_a_copy_a_stream_is_as_fast_as_its_path() {
        let tcp = Tcp {
            segment: Picos::micros(40),
            acknowledgement: Picos::ZERO,
            remap: Picos::micros(2),
            page: 8_192,
            checksum: Rate::mega(400),
            window: 1 << 19,
        };
        let path = Picos::micros(300);
        let time = |remaps, sums| HOST.tcp_time(&tcp, 32_768, Handling { remaps, sums }, path);
        assert_eq!(time(true, false), path);
        // 40 us, 327.68 us of copying, half of an acknowledgement's 1.6 us of stores; and 81.92 us of sums
        assert_eq!(time(false, false), Picos::nanos(368_480));
        assert_eq!(time(false, true), Picos::nanos(450_400));
    }
}
