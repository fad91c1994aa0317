//! Memory and processor time of this process, as the system says it.

use endpoint::limits::PAGE_BYTES;
use node::Usage;

/// Memory and processor time now; 0 of what the system does not tell.
pub fn usage() -> Usage {
    // SAFETY: all zeroes are a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is written to that value.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Usage {
        resident_bytes: pages * PAGE_BYTES as u64,
        peak_bytes: usage.ru_maxrss as u64 * 1024,
        user_us: us(usage.ru_utime),
        system_us: us(usage.ru_stime),
    }
}
