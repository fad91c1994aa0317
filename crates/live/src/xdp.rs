//! An AF_XDP socket: Ethernet frames between this process's memory and one queue of an interface, past the kernel's
//! stack.
//!
//! ```text
//!   chunks of 4 KiB (UMEM)      fill ring ──────► kernel: empty chunks for what arrives
//!                               receive ring ◄─── filled by the program below, for our frames only
//!                               transmit ring ──► what is to leave
//!                               completion ring ◄ chunks whose frames have left
//! ```
//!
//! The interface goes on working for all else: a program at its entrance takes frames of our Ethernet type out and
//! passes the others to the kernel. It is gone when this process is. One process has one queue.
//!
//! It is not a protocol: frames may be lost, and `nic::ether` sees to that.

mod bpf;
mod interface;
mod program;
mod ring;

use crate::link::ether::Port;
use bpf::{Loaded, Mode};
use interface::Interface;
use nic::ether::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use nic::ether::{Address, frame_bytes};
use ring::{Mapping, Ring};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

/// Bytes of a chunk: the kernel takes no larger one than a page.
const CHUNK_BYTES: usize = 4096;
/// Chunks for frames that arrive: eight senders' windows, 8 MiB.
const RECEIVE_CHUNKS: u32 = 2048;
/// Chunks for frames that leave: four windows, 4 MiB.
const TRANSMIT_CHUNKS: u32 = 1024;
/// Frames received in one turn, before their answers leave.
const TURN_FRAMES: usize = 64;
/// System calls for what is to leave in one turn: each moves at least 32 frames.
const TURN_CALLS: usize = 8;
/// The kernel frees a queue some time after its socket is closed: a process that is started again waits for that.
const BUSY_SPAN: Duration = Duration::from_millis(1500);
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Socket option of Linux 6.18: frames that one system call may move.
const XDP_MAX_TX_BUDGET: libc::c_int = 9;
const TX_BUDGET: u32 = 256;

/// An interface and one of its queues, as `IFACE[:QUEUE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name of the interface.
    pub interface: String,
    /// Number of the queue.
    pub number: u32,
}

/// The text names no queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no queue of an interface: write IFACE or IFACE:QUEUE, as eth0 or eth0:2")]
pub struct BadQueue(String);

impl FromStr for Queue {
    type Err = BadQueue;

    fn from_str(text: &str) -> Result<Queue, BadQueue> {
        let bad = || BadQueue(text.to_string());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, number.parse().map_err(|_| bad())?),
            None => (text, 0),
        };
        // The kernel's rules for names (IFNAMSIZ, dev_valid_name).
        let odd = |c: char| c == '/' || c.is_whitespace();
        let legal =
            (1..16).contains(&name.len()) && !name.contains(odd) && name != "." && name != "..";
        if !legal || number >= 1 << 16 {
            return Err(bad());
        }
        Ok(Queue { interface: name.to_string(), number })
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.interface, self.number)
    }
}

/// Why frames cannot go by an interface. TCP can.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is none of this name.
    #[error("there is no interface {0}: `ip link` lists those of this machine")]
    NoInterface(String),
    /// It is no Ethernet.
    #[error("{0} is no Ethernet, which AF_XDP is used for here")]
    NotEthernet(String),
    /// Its frames are too short.
    #[error("the MTU of {0} is {1}: AF_XDP is used from {min} on", min = FRAME_BYTES_MIN - 14)]
    Mtu(String, usize),
    /// This process may not.
    #[error("{0} needs root, or the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    Privilege(&'static str),
    /// Another process uses the queue.
    #[error(
        "{0} is used by another process: one process has a queue; `ip link` shows the program at an interface"
    )]
    Busy(Queue),
    /// There is no such queue.
    #[error(
        "{0} has no such queue, or its driver no room for AF_XDP: `ls /sys/class/net/IFACE/queues`"
    )]
    NoQueue(Queue),
    /// The kernel has no AF_XDP, or something else fails.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> XdpError {
    move |error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => XdpError::Privilege(what),
        _ => XdpError::System(what, error),
    }
}

/// The socket, with its memory and its program.
#[derive(Debug)]
pub struct XdpSocket {
    queue: Queue,
    how: &'static str,
    address: Address,
    frame_bytes: usize,
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    transmit: Ring<libc::xdp_desc>,
    /// Chunks for frames to leave that are not with the kernel.
    spare: Vec<u64>,
    /// A frame that comes in pieces is being skipped.
    skipping: bool,
    skipped: u64,
    socket: OwnedFd,
    memory: Mapping,
    _program: (Loaded, OwnedFd),
}

impl XdpSocket {
    /// Opens the queue. The interface must be there; it may be down.
    pub fn open(queue: &Queue) -> Result<XdpSocket, XdpError> {
        let interface = Interface::find(&queue.interface)?;
        if interface.mtu + 14 < FRAME_BYTES_MIN {
            return Err(XdpError::Mtu(queue.interface.clone(), interface.mtu));
        }
        let socket = socket()?;
        let memory = Mapping::anonymous((RECEIVE_CHUNKS + TRANSMIT_CHUNKS) as usize * CHUNK_BYTES)
            .map_err(failed("memory for frames"))?;
        let [mut fill, completion] = set_memory(&socket, &memory)?;
        let [receive, transmit] = set_rings(&socket)?;
        // Before it is bound: what arrives first finds chunks.
        (0..u64::from(RECEIVE_CHUNKS)).for_each(|chunk| fill.push(chunk * CHUNK_BYTES as u64));
        fill.publish();
        let loaded = Loaded::new(queue.number + 1).map_err(failed("loading an XDP program"))?;
        let zero_copy = bind(&socket, &interface, queue)?;
        loaded
            .set_socket(queue.number, socket.as_fd())
            .map_err(failed("an AF_XDP socket in a map"))?;
        let (link, how) = attach(&loaded, &interface, queue, zero_copy)?;
        let first = u64::from(RECEIVE_CHUNKS);
        let spare = (first..first + u64::from(TRANSMIT_CHUNKS)).map(|n| n * CHUNK_BYTES as u64);
        Ok(XdpSocket {
            queue: queue.clone(),
            how,
            address: interface.address,
            frame_bytes: frame_bytes(interface.mtu).min(FRAME_BYTES_MAX),
            fill,
            completion,
            receive,
            transmit,
            spare: spare.collect(),
            skipping: false,
            skipped: 0,
            socket,
            memory,
            _program: (loaded, link),
        })
    }

    fn chunk(&mut self, at: u64, bytes: usize) -> &mut [u8] {
        let (at, end) = (at as usize, self.memory.bytes());
        assert!(at <= end && bytes <= end - at, "the kernel names bytes of our own memory");
        // SAFETY: in our own mapping, asserted above. The chunk is with this side: it came by the receive or the
        // completion ring, or was never given away; and `&mut self` makes this access the only one.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(at), bytes) }
    }

    fn reclaim(&mut self) {
        while let Some(at) = self.completion.pop() {
            self.spare.push(at);
        }
        self.completion.release();
    }

    /// Has the kernel send what is in the ring. In copy mode it does so in this call, a number of frames at a time.
    fn kick(&mut self) {
        for _ in 0..TURN_CALLS {
            if self.transmit.untaken() == 0 {
                break;
            }
            // SAFETY: a call on a descriptor of ours, without memory.
            let sent = unsafe {
                let (none, flags) = (std::ptr::null(), libc::MSG_DONTWAIT);
                libc::sendto(self.socket.as_raw_fd(), none, 0, flags, std::ptr::null(), 0)
            };
            if sent >= 0 {
                continue;
            }
            // Whatever else it says, the driver is busy, or the interface down, gone or changed: frames that do
            // not leave are lost ones, and TCP is next.
            if !matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::EAGAIN | libc::EINTR)
            ) {
                break;
            }
        }
    }
}

impl Port for XdpSocket {
    fn name(&self) -> String {
        format!("{}, {}", self.queue, self.how)
    }

    fn address(&self) -> Address {
        self.address
    }

    fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn has_arrived(&self) -> bool {
        self.receive.has_entry()
    }

    fn receive(&mut self, take: &mut dyn FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        while count < TURN_FRAMES
            && let Some(entry) = self.receive.pop()
        {
            count += 1;
            let goes_on = entry.options & libc::XDP_PKT_CONTD != 0;
            if goes_on || self.skipping {
                // None of ours is longer than a chunk.
                self.skipped += u64::from(!goes_on);
                self.skipping = goes_on;
            } else {
                take(self.chunk(entry.addr, entry.len as usize));
            }
            // The address is where the frame begins in its chunk.
            self.fill.push(entry.addr & !(CHUNK_BYTES as u64 - 1));
        }
        if count > 0 {
            self.receive.release();
            self.fill.publish();
        }
        count
    }

    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> usize {
        let mut count = 0;
        loop {
            if self.spare.is_empty() {
                self.reclaim();
            }
            let Some(at) = self.spare.pop() else { break };
            let Some(bytes) = next(self.chunk(at, CHUNK_BYTES)) else {
                self.spare.push(at);
                break;
            };
            self.transmit.push(libc::xdp_desc { addr: at, len: bytes as u32, options: 0 });
            count += 1;
        }
        if count > 0 {
            self.transmit.publish();
        }
        if count > 0 || self.spare.len() < TRANSMIT_CHUNKS as usize {
            self.kick();
            self.reclaim();
        }
        count
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn drops(&self) -> u64 {
        let mut counted = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        // Without an answer nothing is known to be dropped.
        let _ = option_of(self.socket.as_fd(), libc::XDP_STATISTICS, &mut counted);
        let full = counted.rx_ring_full + counted.rx_fill_ring_empty_descs;
        self.skipped + counted.rx_dropped + full
    }
}

fn socket() -> Result<OwnedFd, XdpError> {
    // SAFETY: a call without memory; the descriptor that it answers with is only ours.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(failed("an AF_XDP socket")(io::Error::last_os_error()));
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (from, bytes) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `bytes` bytes of `value`, which it keeps nothing of.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, from, bytes) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn option_of<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let into = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `bytes` bytes of `value`, a struct of numbers.
    let got =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, into, &mut bytes) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets(socket: BorrowedFd<'_>) -> Result<libc::xdp_mmap_offsets, XdpError> {
    let none = || libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none(), tx: none(), fr: none(), cr: none() };
    option_of(socket, libc::XDP_MMAP_OFFSETS, &mut offsets).map_err(failed("AF_XDP's rings"))?;
    Ok(offsets)
}

fn ring<T: Copy>(
    socket: BorrowedFd<'_>,
    (option, place, size): (libc::c_int, u64, u32),
    offset: &libc::xdp_ring_offset,
) -> Result<Ring<T>, XdpError> {
    set_option(socket, option, &size).map_err(failed("AF_XDP's rings"))?;
    let bytes = offset.desc as usize + size as usize * size_of::<T>();
    let mapping = Mapping::of(socket, bytes, place).map_err(failed("AF_XDP's rings"))?;
    Ok(Ring::new(mapping, offset, size))
}

/// Registers the memory; its fill and completion rings.
fn set_memory(socket: &OwnedFd, memory: &Mapping) -> Result<[Ring<u64>; 2], XdpError> {
    let socket = socket.as_fd();
    let registration = libc::xdp_umem_reg {
        addr: memory.base().addr() as u64,
        len: memory.bytes() as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &registration).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOBUFS) => XdpError::System(
                "12 MiB of locked memory (raise `ulimit -l`)",
                io::Error::from_raw_os_error(libc::ENOBUFS),
            ),
            _ => failed("memory for frames")(error),
        }
    })?;
    let fill = (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING, RECEIVE_CHUNKS);
    let completion =
        (libc::XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING, TRANSMIT_CHUNKS);
    let offsets = offsets(socket)?;
    Ok([ring(socket, fill, &offsets.fr)?, ring(socket, completion, &offsets.cr)?])
}

/// The rings of frames that arrive and that leave.
fn set_rings(socket: &OwnedFd) -> Result<[Ring<libc::xdp_desc>; 2], XdpError> {
    let socket = socket.as_fd();
    let offsets = offsets(socket)?;
    let receive = (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING as u64, RECEIVE_CHUNKS);
    let transmit = (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING as u64, TRANSMIT_CHUNKS);
    // A kernel before 6.18 does not know it, and moves 32 frames in a call.
    let _ = set_option(socket, XDP_MAX_TX_BUDGET, &TX_BUDGET);
    Ok([ring(socket, receive, &offsets.rx)?, ring(socket, transmit, &offsets.tx)?])
}

/// Binds to the queue; whether the driver reads and writes our chunks itself.
fn bind(socket: &OwnedFd, interface: &Interface, queue: &Queue) -> Result<bool, XdpError> {
    let late = std::time::Instant::now() + BUSY_SPAN;
    let mut flags = libc::XDP_ZEROCOPY;
    loop {
        match try_bind(socket, interface.index, queue.number, flags) {
            Ok(()) => return Ok(flags == libc::XDP_ZEROCOPY),
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY) if std::time::Instant::now() < late => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Some(libc::EBUSY) => return Err(XdpError::Busy(queue.clone())),
                _ if flags == libc::XDP_ZEROCOPY => flags = libc::XDP_COPY,
                Some(libc::EINVAL) => return Err(XdpError::NoQueue(queue.clone())),
                _ => return Err(failed("binding an AF_XDP socket")(error)),
            },
        }
    }
}

fn try_bind(socket: &OwnedFd, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads the address, whose size is given.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs the program at the interface, in the driver where that is worth it; what moves frames then.
fn attach(
    loaded: &Loaded,
    interface: &Interface,
    queue: &Queue,
    zero_copy: bool,
) -> Result<(OwnedFd, &'static str), XdpError> {
    // A veth moves a frame into other memory before its own program sees it, which the generic place does not.
    let native = zero_copy || interface.driver != "veth";
    let attached = match native.then(|| loaded.attach(interface.index, Mode::Native)) {
        Some(Ok(link)) => {
            return Ok((link, if zero_copy { "zero-copy" } else { "native, copying" }));
        }
        Some(Err(error)) if zero_copy || error.raw_os_error() == Some(libc::EBUSY) => Err(error),
        _ => loaded.attach(interface.index, Mode::Generic),
    };
    match attached {
        Ok(link) => Ok((link, "generic, copying")),
        Err(error) => match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Err(XdpError::Busy(queue.clone())),
            _ => Err(failed("an XDP program at the interface")(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_and_written_alike() {
        for (text, name, number) in [("eth0", "eth0", 0), ("enp3s0f1:17", "enp3s0f1", 17)] {
            let queue: Queue = text.parse().unwrap();
            assert_eq!((queue.interface.as_str(), queue.number), (name, number));
            assert_eq!(queue.to_string().parse(), Ok(queue));
        }
        for text in [
            "",
            ":1",
            "eth0:",
            "eth0:x",
            "eth0:-1",
            "a/b",
            "..",
            "eth0:99999",
            "longer-than-15-bytes",
        ] {
            let error = text.parse::<Queue>().unwrap_err().to_string();
            assert!(error.contains("IFACE:QUEUE"), "{error}");
        }
    }
}
