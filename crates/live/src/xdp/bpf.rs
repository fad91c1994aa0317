//! bpf(2): a map of sockets, the program over it, and its place at an interface.

use super::program::{Instruction, program};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
/// Frames may come in several pieces: without it a driver refuses interfaces with long frames.
const HAS_FRAGMENTS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;

/// Where the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// On each packet that any driver has received.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

/// The argument of a call: 128 bytes, of which it reads those that it knows.
#[repr(C, align(8))]
struct Argument([u8; 128]);

impl Argument {
    fn new() -> Argument {
        Argument([0; 128])
    }

    fn u32(mut self, at: usize, value: u32) -> Argument {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: RawFd) -> Argument {
        self.u32(at, fd as u32)
    }

    fn address<T>(mut self, at: usize, of: *const T) -> Argument {
        self.0[at..at + 8].copy_from_slice(&(of.addr() as u64).to_ne_bytes());
        self
    }
}

fn call(command: libc::c_int, argument: &Argument) -> io::Result<RawFd> {
    // SAFETY: the kernel reads the argument, whose size is given, and what its addresses name: callers keep that alive
    // until this returns. It writes nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, argument.0.as_ptr(), argument.0.len() as libc::c_uint)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

fn made(command: libc::c_int, argument: &Argument) -> io::Result<OwnedFd> {
    let fd = call(command, argument)?;
    // SAFETY: these commands answer with a new descriptor, which is only ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program in the kernel, not attached yet.
#[derive(Debug)]
pub struct Loaded {
    sockets: OwnedFd,
    program: OwnedFd,
}

impl Loaded {
    /// Loads it, for queues below `queues`.
    pub fn new(queues: u32) -> io::Result<Loaded> {
        let map = Argument::new().u32(0, MAP_OF_SOCKETS).u32(4, 4).u32(8, 4).u32(12, queues);
        let sockets = made(MAP_CREATE, &map)?;
        let instructions: [Instruction; 15] = program(sockets.as_raw_fd());
        let licence = c"MIT OR Apache-2.0";
        let load = Argument::new()
            .u32(0, PROGRAM_XDP)
            .u32(4, instructions.len() as u32)
            .address(8, instructions.as_ptr())
            .address(16, licence.as_ptr())
            .u32(44, HAS_FRAGMENTS);
        let program = made(PROGRAM_LOAD, &load)?;
        Ok(Loaded { sockets, program })
    }

    /// Frames that come in this queue go to this socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let update = Argument::new()
            .fd(0, self.sockets.as_raw_fd())
            .address(8, &raw const queue)
            .address(16, &raw const socket);
        call(MAP_UPDATE, &update).map(drop)
    }

    /// Runs it at the interface for as long as the result exists, and no longer than this process.
    pub fn attach(&self, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
        let link = Argument::new()
            .fd(0, self.program.as_fd().as_raw_fd())
            .u32(4, interface)
            .u32(8, ATTACH_XDP)
            .u32(12, mode as u32);
        made(LINK_CREATE, &link)
    }
}
