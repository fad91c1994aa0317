//! Bare means of this machine to move a block: the baselines of `bench fetch` and `bench rate`.
//!
//! *Bare ring*: two processes share memory; a request names one of 1,024 blocks of 8 KiB, the server copies it once
//! into the shared memory, the client reads a word of each cache line there. *Bare socket*: a request of 128 bytes, one
//! vectored write of 128 bytes and the block, received as header and then payload into the client's buffer.
//!
//! Both ends spin, or both sleep until the other wakes them: on a futex, or in the socket.

use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 8192;
/// Blocks in the server's memory.
pub const BLOCKS: usize = 1024;
/// Most exchanges under way.
pub const DEPTH_MAX: usize = 64;
const CONTROL_BYTES: usize = 128;
const LINE_BYTES: usize = 64;
const PAYLOADS_AT: usize = 2 * DEPTH_MAX * CONTROL_BYTES;
/// Bytes of the memory that both ends of a bare ring share.
pub const RING_BYTES: usize = SLEEPERS_AT + 2 * CONTROL_BYTES;
/// Where a word for each end is, 1 while it sleeps.
const SLEEPERS_AT: usize = PAYLOADS_AT + DEPTH_MAX * BLOCK_BYTES;
const SERVER: usize = 0;
const CLIENT: usize = 1;
/// Names no block: the server is to end.
const STOP: u64 = u64::MAX;
/// Where a request has the bytes that it wants, above the block's number.
const BYTES_SHIFT: u32 = 32;

/// A request for `bytes` bytes of a block.
fn request(block: u64, bytes: usize) -> u64 {
    assert!(bytes <= BLOCK_BYTES, "no more than a block");
    block | (bytes as u64) << BYTES_SHIFT
}

/// The bytes that a request wants.
fn wanted(blocks: &[u8], request: u64) -> &[u8] {
    let bytes = (request >> BYTES_SHIFT) as usize;
    let block = (request & u64::from(u32::MAX)) as usize % BLOCKS;
    &blocks[block * BLOCK_BYTES..][..bytes.min(BLOCK_BYTES)]
}

/// Exchanges to make.
pub struct Series<'a> {
    /// How many are under way at a time.
    pub depth: usize,
    /// How many in all.
    pub count: u64,
    /// Bytes of each block that are moved, at most [`BLOCK_BYTES`].
    pub bytes: usize,
    /// Never sleep.
    pub spin: bool,
    /// Which blocks.
    pub blocks: &'a mut Blocks,
    /// Called before each exchange; returns when it is due.
    pub pace: &'a mut dyn FnMut(),
    /// Nanoseconds of each exchange go here.
    pub record: &'a mut dyn FnMut(u64),
}

/// A small generator for block numbers; the same sequence in every run.
#[derive(Debug)]
pub struct Blocks(u64);

impl Blocks {
    /// From the start.
    pub fn new() -> Blocks {
        Blocks(0x2545_f491_4f6c_dd1d)
    }

    /// The next block number.
    pub fn pick(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % BLOCKS as u64
    }
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks::new()
    }
}

fn blocks() -> Vec<u8> {
    (0..BLOCKS * BLOCK_BYTES).map(|i| (i / 7) as u8).collect()
}

/// The shared memory of a bare ring: a request word and an answer word for each slot, and room for its block.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    memory: File,
}

impl Ring {
    /// New memory; the far end opens it by its [`path`](Ring::path) while this process lives.
    pub fn create() -> io::Result<Ring> {
        let memory = rustix::fs::memfd_create("bare-ring", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, RING_BYTES as u64)?;
        Ring::map(File::from(memory))
    }

    /// The memory that another process has created.
    pub fn open(path: &Path) -> io::Result<Ring> {
        Ring::map(File::options().read(true).write(true).open(path)?)
    }

    /// Where other processes find the memory.
    pub fn path(&self) -> PathBuf {
        let (process, fd) = (std::process::id(), self.memory.as_raw_fd());
        PathBuf::from(format!("/proc/{process}/fd/{fd}"))
    }

    fn map(memory: File) -> io::Result<Ring> {
        if memory.metadata()?.len() < RING_BYTES as u64 {
            return Err(io::Error::other("the memory of a bare ring is too short"));
        }
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an unused address; nothing shortens the memory.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), RING_BYTES, protection, flags, &memory, 0)?
        };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Ring { base, memory })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= RING_BYTES);
        // SAFETY: inside the mapping, aligned to 64 bytes, and both processes use these words as atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn request(&self, slot: usize) -> (&AtomicU64, &AtomicU64) {
        let at = slot * CONTROL_BYTES;
        (self.word(at), self.word(at + 8))
    }

    fn answer(&self, slot: usize) -> &AtomicU64 {
        self.word((DEPTH_MAX + slot) * CONTROL_BYTES)
    }

    fn payload(&self, slot: usize) -> *mut u8 {
        let at = PAYLOADS_AT + slot * BLOCK_BYTES;
        assert!(at + BLOCK_BYTES <= RING_BYTES);
        // SAFETY: inside the mapping, checked above.
        unsafe { self.base.as_ptr().add(at) }
    }

    fn sleeper(&self, end: usize) -> &AtomicU32 {
        let at = SLEEPERS_AT + end * CONTROL_BYTES;
        // SAFETY: inside the mapping, aligned, and both processes use this word as an atomic only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Something was posted for `end`: wakes it if it sleeps.
    fn wake(&self, end: usize) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let sleeper = self.sleeper(end);
        if sleeper.load(Ordering::Relaxed) == 1 && sleeper.swap(0, Ordering::SeqCst) == 1 {
            let _ = futex::wake(sleeper, futex::Flags::empty(), 1);
        }
    }

    /// Sleeps until [`wake`](Ring::wake), unless `ready` finds something posted meanwhile.
    fn sleep(&self, end: usize, ready: impl FnOnce() -> bool) {
        let sleeper = self.sleeper(end);
        sleeper.store(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        if !ready() {
            let _ = futex::wait(sleeper, futex::Flags::empty(), 1, None); // early returns do no harm
        }
        sleeper.store(0, Ordering::SeqCst);
    }

    /// Reads a word of each cache line.
    fn touch(&self, slot: usize, bytes: usize) -> u64 {
        let words = (0..bytes).step_by(LINE_BYTES);
        // SAFETY: the slot's answer was seen with acquire order, and the server writes there only after the next
        // request.
        words
            .map(|at| unsafe { self.payload(slot).add(at).cast::<u64>().read_volatile() })
            .fold(0, u64::wrapping_add)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `mmap` gave; no reference into it outlives the ring.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), RING_BYTES) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Serves a bare ring until the client says stop.
pub fn serve_ring(ring: &Ring, spin: bool) {
    let (blocks, mut seen) = (blocks(), [0; DEPTH_MAX]);
    let posted = |slot: usize| ring.request(slot).0.load(Ordering::Acquire);
    loop {
        let mut idle = true;
        for (slot, seen) in seen.iter_mut().enumerate() {
            let now = posted(slot);
            if now == *seen {
                // Slots are used from the first on: behind one that never was, there are none.
                if now == 0 {
                    break;
                }
                continue;
            }
            let block = ring.request(slot).1.load(Ordering::Relaxed);
            if block == STOP {
                return;
            }
            (*seen, idle) = (now, false);
            let from = wanted(&blocks, block);
            // SAFETY: the client waits for the answer and does not touch the slot's payload meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), ring.payload(slot), from.len()) };
            ring.answer(slot).store(now, Ordering::Release);
            if !spin {
                ring.wake(CLIENT);
            }
        }
        match (idle, spin) {
            (true, false) => ring.sleep(SERVER, || (0..DEPTH_MAX).any(|s| posted(s) != seen[s])),
            (true, true) => std::hint::spin_loop(),
            _ => {}
        }
    }
}

/// The client's state of a slot.
struct Exchange {
    sequence: u64,
    start: Option<Instant>,
}

/// Exchanges over a bare ring.
pub fn use_ring(ring: &Ring, series: &mut Series<'_>) {
    let (mut sum, mut begun, mut ended) = (0u64, 0, 0);
    let answered = |slot: usize| ring.answer(slot).load(Ordering::Acquire);
    let mut slots: Vec<Exchange> =
        (0..series.depth).map(|slot| Exchange { sequence: answered(slot), start: None }).collect();
    while ended < series.count {
        let ended_before = ended;
        for (slot, asked) in slots.iter_mut().enumerate() {
            if let Some(start) = asked.start {
                if answered(slot) != asked.sequence {
                    continue;
                }
                sum = sum.wrapping_add(ring.touch(slot, series.bytes));
                (series.record)(start.elapsed().as_nanos() as u64);
                (asked.start, ended) = (None, ended + 1);
            }
            if begun < series.count {
                (series.pace)();
                (asked.start, asked.sequence, begun) =
                    (Some(Instant::now()), asked.sequence + 1, begun + 1);
                let (sequence, block) = ring.request(slot);
                block.store(request(series.blocks.pick(), series.bytes), Ordering::Relaxed);
                sequence.store(asked.sequence, Ordering::Release);
                if !series.spin {
                    ring.wake(SERVER);
                }
            }
        }
        let answered_now = |(slot, asked): (usize, &Exchange)| {
            asked.start.is_some() && answered(slot) == asked.sequence
        };
        match (ended == ended_before, series.spin) {
            (true, false) => ring.sleep(CLIENT, || slots.iter().enumerate().any(answered_now)),
            (true, true) => std::hint::spin_loop(),
            _ => {}
        }
    }
    std::hint::black_box(sum);
}

/// Ends the server of a bare ring.
pub fn stop_ring(ring: &Ring) {
    let (sequence, block) = ring.request(0);
    block.store(STOP, Ordering::Relaxed);
    sequence.store(u64::MAX, Ordering::Release);
    ring.wake(SERVER);
}

/// Fills `buffer` from the socket; spinning sockets are nonblocking.
fn receive(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        match socket.read(&mut buffer[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => have += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send(socket: &mut TcpStream, header: &[u8], data: &[u8]) -> io::Result<()> {
    let (mut sent, total) = (0, header.len() + data.len());
    while sent < total {
        let head = &header[sent.min(header.len())..];
        let rest = &data[sent.saturating_sub(header.len())..];
        match socket.write_vectored(&[io::IoSlice::new(head), io::IoSlice::new(rest)]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Serves one client of a bare socket until it closes.
pub fn serve_socket(listener: &TcpListener, spin: bool) -> io::Result<()> {
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(spin)?;
    let (blocks, mut request) = (blocks(), [0; CONTROL_BYTES]);
    loop {
        match receive(&mut socket, &mut request) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let what = u64::from_le_bytes(request[..8].try_into().expect("8 bytes"));
        send(&mut socket, &request, wanted(&blocks, what))?;
    }
}

/// Exchanges over a bare socket.
pub fn use_socket(socket: &mut TcpStream, series: &mut Series<'_>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(series.spin)?;
    let (mut header, mut data) = ([0; CONTROL_BYTES], vec![0; series.bytes]);
    let (mut begun, depth) = (0, series.depth as u64);
    let mut started = std::collections::VecDeque::with_capacity(series.depth);
    for ended in 0..series.count {
        while begun < series.count && begun < ended + depth {
            (series.pace)();
            let what = request(series.blocks.pick(), series.bytes);
            header[..8].copy_from_slice(&what.to_le_bytes());
            started.push_back(Instant::now());
            send(socket, &header, &[])?;
            begun += 1;
        }
        receive(socket, &mut header)?;
        receive(socket, &mut data)?;
        let words = data.chunks_exact(LINE_BYTES).map(|line| u64::from(line[0]));
        std::hint::black_box(words.sum::<u64>());
        let start = started.pop_front().expect("answers come in order");
        (series.record)(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series<'a>(
        (depth, spin, bytes): (usize, bool, usize),
        blocks: &'a mut Blocks,
        pace: &'a mut dyn FnMut(),
        record: &'a mut dyn FnMut(u64),
    ) -> Series<'a> {
        Series { depth, count: 50, bytes, spin, blocks, pace, record }
    }

    #[test]
    fn both_baselines_move_every_block_spinning_and_sleeping() {
        let (mut blocks, mut exchanges, mut paced) = (Blocks::new(), 0, 0);
        for spin in [true, false] {
            let ring = Ring::create().unwrap();
            let path = ring.path();
            let server = std::thread::spawn(move || serve_ring(&Ring::open(&path).unwrap(), spin));
            for depth in [1, 4] {
                let (mut pace, mut record) = (|| paced += 1, |_| exchanges += 1);
                let how = (depth, spin, BLOCK_BYTES);
                use_ring(&ring, &mut series(how, &mut blocks, &mut pace, &mut record));
            }
            stop_ring(&ring);
            server.join().unwrap();

            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || serve_socket(&listener, spin).unwrap());
            let mut socket = TcpStream::connect(address).unwrap();
            let (mut pace, mut record) = (|| paced += 1, |_| exchanges += 1);
            let mut series = series((3, spin, 4096), &mut blocks, &mut pace, &mut record);
            use_socket(&mut socket, &mut series).unwrap();
            drop(socket);
            server.join().unwrap();
        }
        assert_eq!((exchanges, paced), (300, 300));
    }
}
