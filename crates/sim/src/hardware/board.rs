//! Adapter boards: a processor, memory that runs at twice its clock, three DMA engines, and who gets the memory.
//!
//! There are two accesses in each processor cycle. An engine takes at most one of them; an instruction needs two, for
//! itself and its data. The order is host DMA, net receive, net send, processor (forwarding paper, section
//! 2.2). So two engines at full speed leave a LANai-4's processor nothing.
//!
//! The arbiter is asked when something starts, ends or changes its rate, and answers with rates that hold until then:
//! cycle credits over a span, not cycles one by one.

use super::flow::Rate;
use super::preset::Section;
use crate::source::Fault;

/// A board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Memory accesses a second: two for each processor cycle.
    pub accesses: Rate,
    /// Bytes of one access.
    pub width: u64,
    /// Processor cycles of an instruction when memory does not slow it.
    pub instruction_cycles: u64,
    /// Memory for firmware, rings and payload buffers.
    pub memory: u64,
    /// Memory cycles that DMA engines leave to the processor even when all are busy, in parts of a million: PCI
    /// bursts and link symbols have gaps. 0 is the strict order.
    pub processor_floor: u32,
    /// Most that the net engines and the link interface move.
    pub link: Rate,
}

/// Rate of each user of the memory if it were alone, in bytes a second; zero is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Host DMA: what the bus gives it.
    pub host: Rate,
    /// Net receive: what the link brings.
    pub receive: Rate,
    /// Net send: what the link takes.
    pub send: Rate,
}

/// Rate that each user gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Bytes a second of host DMA.
    pub host: Rate,
    /// Bytes a second of net receive.
    pub receive: Rate,
    /// Bytes a second of net send.
    pub send: Rate,
    /// Instructions a second of the processor.
    pub instructions: Rate,
}

impl Board {
    /// Divides the memory among those who want it.
    pub fn arbitrate(&self, wanted: Wanted) -> Granted {
        let mut left = self.accesses;
        let host = self.grant(wanted.host, &mut left);
        let receive = self.grant(wanted.receive, &mut left);
        let send = self.grant(wanted.send, &mut left);
        Granted { host, receive, send, instructions: self.instructions(left) }
    }

    /// Bytes a second that one engine moves alone: one access in each processor cycle.
    pub fn engine_peak(&self) -> Rate {
        Rate(self.accesses.0 / 2 * self.width)
    }

    fn grant(&self, wanted: Rate, left: &mut Rate) -> Rate {
        let accesses = Rate(wanted.0.div_ceil(self.width).min(self.accesses.0 / 2).min(left.0));
        *left = left.less(accesses);
        Rate((accesses.0 * self.width).min(wanted.0))
    }

    /// Instructions a second with `left` accesses: two for each, and none faster than the processor.
    fn instructions(&self, left: Rate) -> Rate {
        let floor = u128::from(self.accesses.0) * u128::from(self.processor_floor) / 1_000_000;
        let processor = self.accesses.0 / 2 / self.instruction_cycles;
        Rate((left.0.max(floor as u64) / 2).min(processor))
    }

    /// Reads the table [board].
    pub fn read(table: &Section<'_>) -> Result<Board, Fault> {
        let processor = table.clock("processor")?;
        let board = Board {
            accesses: table.clock("memory_clock")?,
            width: table.size("memory_width", 4..=64)?,
            instruction_cycles: table.count("instruction_cycles", 1..=16)?,
            memory: table.size("memory", 64 << 10..=64 << 30)?,
            processor_floor: table.share("processor_floor")?,
            link: table.rate("link", 1_000_000..=100_000_000_000)?,
        };
        if board.accesses.0.abs_diff(processor.0 * 2) > processor.0 / 50 {
            let what = "`memory_clock` must be twice `processor` (within 1 %): the arbiter counts two accesses in a cycle";
            return Err(table.impossible("memory_clock", what.into()));
        }
        if board.engine_peak() < Rate(board.link.0.div_ceil(2)) {
            return Err(table.impossible(
                "link",
                "`link` above twice what one engine's accesses can move".into(),
            ));
        }
        Ok(board)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANAI4: Board = Board {
        accesses: Rate::mega(66),
        width: 4,
        instruction_cycles: 1,
        memory: 1 << 20,
        processor_floor: 0,
        link: Rate::mega(160),
    };
    const FULL: Rate = Rate::mega(132);

    #[test]
    fn two_engines_starve_the_processor_and_the_third_engine_of_a_lanai4() {
        let none = LANAI4.arbitrate(Wanted::default());
        assert_eq!(none.instructions, Rate::mega(33));
        let one = LANAI4.arbitrate(Wanted { send: FULL, ..Wanted::default() });
        assert_eq!((one.send, one.instructions), (FULL, Rate(16_500_000)));
        let all = LANAI4.arbitrate(Wanted { host: FULL, receive: FULL, send: FULL });
        assert_eq!((all.host, all.receive), (FULL, FULL));
        assert_eq!((all.send, all.instructions), (Rate::ZERO, Rate::ZERO));
    }

    #[test]
    fn wide_memory_has_room_for_all() {
        let lanai7 = Board { accesses: Rate::mega(132), width: 8, ..LANAI4 };
        let wanted = Wanted { host: FULL, receive: Rate::mega(160), send: Rate::mega(160) };
        let got = lanai7.arbitrate(wanted);
        assert_eq!((got.host, got.receive, got.send), (wanted.host, wanted.receive, wanted.send));
        assert_eq!(got.instructions, Rate(37_750_000));
    }

    proptest! {
        /// No user gets more than it wants or than there is, and one that is earlier in the order never loses to a
        /// later one.
        #[test]
        fn the_order_holds(host in 0u64..400, receive in 0u64..400, send in 0u64..400, more in 0u64..400) {
            let mega = |rate| Rate::mega(rate);
            let wanted = Wanted { host: mega(host), receive: mega(receive), send: mega(send) };
            let got = LANAI4.arbitrate(wanted);
            let bytes = got.host.0 + got.receive.0 + got.send.0;
            prop_assert!(bytes / 4 + got.instructions.0 * 2 <= 66_000_000 + 4);
            prop_assert!(got.host <= wanted.host && got.receive <= wanted.receive && got.send <= wanted.send);
            prop_assert_eq!(got.host, wanted.host.min(LANAI4.engine_peak()));
            let later = LANAI4.arbitrate(Wanted { send: mega(more), ..wanted });
            prop_assert_eq!((later.host, later.receive), (got.host, got.receive));
        }
    }
}
