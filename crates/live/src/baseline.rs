//! What this machine's bare means do with a block: the baselines of `bench fetch` and `bench rate`.
//!
//! *Bare ring*: two processes share memory; a request names one of 1,024 blocks of 8 KiB, the server copies it once
//! into the shared memory, the client reads a word of each cache line there. *Bare socket*: a request of 128 bytes, one
//! vectored write of 128 bytes and the block, received as header and then payload into the client's buffer.

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
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
pub const RING_BYTES: usize = PAYLOADS_AT + DEPTH_MAX * BLOCK_BYTES;
/// Names no block: the server is to end.
const STOP: u64 = u64::MAX;

/// Nanoseconds of each exchange go here.
pub type Record<'a> = &'a mut dyn FnMut(u64);

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
pub struct Ring(NonNull<u8>);

impl Ring {
    /// Maps a file, which both processes open, and makes it long enough.
    pub fn open(path: &Path) -> io::Result<Ring> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(RING_BYTES as u64)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an unused address; nobody shortens the file.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), RING_BYTES, protection, flags, &file, 0)?
        };
        Ok(Ring(NonNull::new(base.cast()).expect("a mapping is never at address 0")))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= RING_BYTES);
        // SAFETY: inside the mapping, aligned to 64 bytes, and both processes use these words as atomics only.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(at).cast()) }
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
        unsafe { self.0.as_ptr().add(at) }
    }

    /// Reads a word of each cache line.
    fn touch(&self, slot: usize) -> u64 {
        let words = (0..BLOCK_BYTES).step_by(LINE_BYTES);
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
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), RING_BYTES) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Serves a bare ring of `depth` slots, spinning, until the client says stop.
pub fn serve_ring(ring: &Ring, depth: usize) {
    let (blocks, mut seen) = (blocks(), vec![0; depth]);
    loop {
        for (slot, seen) in seen.iter_mut().enumerate() {
            let (sequence, block) = ring.request(slot);
            let now = sequence.load(Ordering::Acquire);
            if now == *seen {
                std::hint::spin_loop();
                continue;
            }
            let block = block.load(Ordering::Relaxed);
            if block == STOP {
                return;
            }
            *seen = now;
            let from = &blocks[block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            // SAFETY: the client waits for the answer and does not touch the slot's payload meanwhile.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), ring.payload(slot), BLOCK_BYTES)
            };
            ring.answer(slot).store(now, Ordering::Release);
        }
    }
}

/// What the client knows of a slot.
struct Asked {
    sequence: u64,
    start: Option<Instant>,
}

/// `count` exchanges over a bare ring, `depth` at a time, spinning.
pub fn use_ring(ring: &Ring, depth: usize, count: u64, record: Record<'_>) {
    let (mut blocks, mut sum, mut begun, mut ended) = (Blocks::new(), 0u64, 0, 0);
    let sequence = |slot| ring.answer(slot).load(Ordering::Acquire);
    let mut slots: Vec<Asked> =
        (0..depth).map(|slot| Asked { sequence: sequence(slot), start: None }).collect();
    while ended < count {
        for (slot, asked) in slots.iter_mut().enumerate() {
            if let Some(start) = asked.start {
                if ring.answer(slot).load(Ordering::Acquire) != asked.sequence {
                    std::hint::spin_loop();
                    continue;
                }
                sum = sum.wrapping_add(ring.touch(slot));
                record(start.elapsed().as_nanos() as u64);
                (asked.start, ended) = (None, ended + 1);
            }
            if begun < count {
                (asked.start, asked.sequence, begun) =
                    (Some(Instant::now()), asked.sequence + 1, begun + 1);
                let (sequence, block) = ring.request(slot);
                block.store(blocks.pick(), Ordering::Relaxed);
                sequence.store(asked.sequence, Ordering::Release);
            }
        }
    }
    std::hint::black_box(sum);
}

/// Ends the server of a bare ring.
pub fn stop_ring(ring: &Ring) {
    let (sequence, block) = ring.request(0);
    block.store(STOP, Ordering::Relaxed);
    sequence.store(u64::MAX, Ordering::Release);
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
        let block = u64::from_le_bytes(request[..8].try_into().expect("8 bytes")) as usize % BLOCKS;
        send(&mut socket, &request, &blocks[block * BLOCK_BYTES..][..BLOCK_BYTES])?;
    }
}

/// `count` exchanges over a bare socket, `depth` at a time.
pub fn use_socket(
    socket: &mut TcpStream,
    spin: bool,
    depth: usize,
    count: u64,
    record: Record<'_>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(spin)?;
    let (mut header, mut data) = ([0; CONTROL_BYTES], vec![0; BLOCK_BYTES]);
    let (mut blocks, mut begun) = (Blocks::new(), 0);
    let mut started = std::collections::VecDeque::with_capacity(depth);
    for ended in 0..count {
        while begun < count && begun < ended + depth as u64 {
            header[..8].copy_from_slice(&blocks.pick().to_le_bytes());
            started.push_back(Instant::now());
            send(socket, &header, &[])?;
            begun += 1;
        }
        receive(socket, &mut header)?;
        receive(socket, &mut data)?;
        let words = data.chunks_exact(LINE_BYTES).map(|line| u64::from(line[0]));
        std::hint::black_box(words.sum::<u64>());
        let start = started.pop_front().expect("answers come in order");
        record(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_baselines_move_every_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let ring = Ring::open(&path).unwrap();
        let server = std::thread::spawn(move || serve_ring(&Ring::open(&path).unwrap(), 4));
        let mut exchanges = 0;
        use_ring(&ring, 1, 50, &mut |_| exchanges += 1);
        use_ring(&ring, 4, 50, &mut |_| exchanges += 1);
        stop_ring(&ring);
        server.join().unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || serve_socket(&listener, true).unwrap());
        let mut socket = TcpStream::connect(address).unwrap();
        use_socket(&mut socket, true, 3, 50, &mut |_| exchanges += 1).unwrap();
        drop(socket);
        server.join().unwrap();
        assert_eq!(exchanges, 150);
    }
}
