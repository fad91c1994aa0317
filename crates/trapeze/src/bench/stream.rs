//! Sequential bytes through a directory, wherever it leads: 64 KiB calls, fsync at the end.

use crate::machine_stat::busy_time;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one call.
pub const CALL_BYTES: usize = 64 * 1024;

/// What a pass took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Bytes moved.
    pub bytes: u64,
    /// From open to close.
    pub elapsed: Duration,
    /// Processor time of the whole machine meanwhile.
    pub busy: Duration,
}

impl Pass {
    /// 10^6 bytes per second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    /// Processor seconds of the whole machine per GiB.
    pub fn cpu_s_per_gib(&self) -> f64 {
        self.busy.as_secs_f64() * (1u64 << 30) as f64 / self.bytes as f64
    }

    /// The pass of median speed.
    pub fn median(mut passes: Vec<Pass>) -> Pass {
        passes.sort_by_key(|pass| pass.elapsed);
        passes.get(passes.len() / 2).copied().unwrap_or_default()
    }
}

fn timed(work: impl FnOnce() -> io::Result<u64>) -> io::Result<Pass> {
    let (busy, start) = (busy_time(), Instant::now());
    let bytes = work()?;
    Ok(Pass { bytes, elapsed: start.elapsed(), busy: busy_time().saturating_sub(busy) })
}

/// Writes a new file of `bytes` bytes and makes it durable.
pub fn write(path: &Path, bytes: u64) -> io::Result<Pass> {
    let call: Vec<u8> = (0..CALL_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    let _ = std::fs::remove_file(path);
    timed(|| {
        let mut file = File::create(path)?;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(CALL_BYTES as u64) as usize;
            file.write_all(&call[..part])?;
            left -= part as u64;
        }
        file.sync_all()?;
        Ok(bytes)
    })
}

/// Reads the file once.
pub fn read(path: &Path) -> io::Result<Pass> {
    let mut call = vec![0; CALL_BYTES];
    timed(|| {
        let mut file = File::open(path)?;
        let mut total = 0;
        loop {
            match file.read(&mut call)? {
                0 => return Ok(total),
                bytes => total += bytes as u64,
            }
        }
    })
}
