//! The program that the kernel runs on every frame that an interface receives: ours go to the socket of their queue,
//! all others on to the kernel.
//!
//! Seven conditions would be seven chances to be wrong, so it looks at the Ethernet type alone; what is in the frame is
//! checked by its proof.

use nic::ether::ETHER_TYPE;
use std::fmt;

/// One instruction of BPF, as bpf(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// Target in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const LOAD_MAP: u8 = 0x18;
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const ADD: u8 = 0x07;
const MOVE_NUMBER: u8 = 0xb7;
const MOVE: u8 = 0xbf;
const JUMP_GREATER: u8 = 0x2d;
const JUMP_OTHER: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Source register of [`LOAD_MAP`] that says that the number is a map's descriptor.
const MAP_BY_DESCRIPTOR: u8 = 1;
/// The helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// The verdict that a frame is the kernel's.
const XDP_PASS: i32 = 2;
/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
/// Where Ethernet's type is, and where its header ends.
const TYPE: i16 = 12;
const HEADER_BYTES: i32 = 14;

const fn instruction(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: source << 4 | target, offset, immediate }
}

/// The program, over the map of sockets by queue.
pub fn program(sockets: i32) -> [Instruction; 15] {
    // As a processor of this byte order reads the two bytes.
    let ours = i32::from(ETHER_TYPE.to_be());
    [
        instruction(LOAD_WORD, 2, 1, DATA, 0),
        instruction(LOAD_WORD, 3, 1, DATA_END, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD, 4, 0, 0, HEADER_BYTES),
        instruction(JUMP_GREATER, 4, 3, 8, 0),
        instruction(LOAD_HALF, 4, 2, TYPE, 0),
        instruction(JUMP_OTHER, 4, 0, 6, ours),
        instruction(LOAD_WORD, 2, 1, QUEUE, 0),
        instruction(LOAD_MAP, 1, MAP_BY_DESCRIPTOR, 0, sockets),
        instruction(0, 0, 0, 0, 0),
        // Where the queue has no socket, the frame is the kernel's.
        instruction(MOVE_NUMBER, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
        instruction(MOVE_NUMBER, 0, 0, 0, XDP_PASS),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

impl fmt::Display for Instruction {
    /// As `bpftool prog dump xlated` and llvm-objdump write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, source) = (self.registers & 15, self.registers >> 4);
        let Instruction { offset, immediate, .. } = self;
        match self.code {
            LOAD_WORD => write!(f, "r{target} = *(u32 *)(r{source} + {offset})"),
            LOAD_HALF => write!(f, "r{target} = *(u16 *)(r{source} + {offset})"),
            LOAD_MAP => write!(f, "r{target} = map[fd {immediate}] ll"),
            ADD => write!(f, "r{target} += {immediate}"),
            MOVE_NUMBER => write!(f, "r{target} = {immediate}"),
            MOVE => write!(f, "r{target} = r{source}"),
            JUMP_GREATER => write!(f, "if r{target} > r{source} goto +{offset}"),
            JUMP_OTHER => write!(f, "if r{target} != {immediate:#x} goto +{offset}"),
            CALL => write!(f, "call {immediate}"),
            EXIT => f.write_str("exit"),
            _ => f.write_str("(second half of the load)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_this() {
        let program = program(7);
        let lines: Vec<_> =
            program.iter().enumerate().map(|(n, it)| format!("{n}: {it}")).collect();
        let expected = "\
0: r2 = *(u32 *)(r1 + 0)
1: r3 = *(u32 *)(r1 + 4)
2: r4 = r2
3: r4 += 14
4: if r4 > r3 goto +8
5: r4 = *(u16 *)(r2 + 12)
6: if r4 != 0xb588 goto +6
7: r2 = *(u32 *)(r1 + 16)
8: r1 = map[fd 7] ll
9: (second half of the load)
10: r3 = 2
11: call 51
12: exit
13: r0 = 2
14: exit";
        assert_eq!(lines.join("\n"), expected);
        assert_eq!(size_of::<Instruction>(), 8);
    }
}
