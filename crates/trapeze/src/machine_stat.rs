//! Load of the whole machine, read from /proc.

use std::fs;
use std::time::Duration;

/// Time that all processors together have worked since the machine started.
pub fn busy_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: all but idle, waiting and what other machines took
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|column| ticks.get(*column)).sum::<u64>();
    Duration::from_millis(busy * 1000 / ticks_per_second())
}

/// Processor time that a process has used.
pub fn process_time(id: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / ticks_per_second()))
}

/// As [`process_time`], as exactly as the scheduler counts it.
pub fn process_time_exact(id: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The same of all threads of a process: [`process_time_exact`] is of its first one only.
pub fn threads_time_exact(id: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    threads.filter_map(|thread| of(thread.path())).sum()
}

/// Bytes of memory that a process occupies.
pub fn process_memory(id: u32) -> Option<u64> {
    process_bytes(id, "VmRSS:")
}

/// The most bytes of memory that a process has occupied.
pub fn process_memory_peak(id: u32) -> Option<u64> {
    process_bytes(id, "VmHWM:")
}

fn process_bytes(id: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes of memory of the machine, or of the container we are in; when that cannot be told, all.
pub fn total_memory() -> u64 {
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok()); // "max": no limit
    meminfo("MemTotal:").map_or(u64::MAX, |bytes| bytes as u64).min(limit.unwrap_or(u64::MAX))
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(key: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib * 1024)
}

/// Bytes that this program could still get; when that cannot be told, all.
pub fn available_memory() -> usize {
    let available = meminfo("MemAvailable:").unwrap_or(usize::MAX);
    available.min(container_memory().unwrap_or(usize::MAX))
}

/// Bytes that the container we are in has left, if it is limited.
fn container_memory() -> Option<usize> {
    let figure = |name: &str| {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?;
        text.trim().parse::<usize>().ok() // "max": no limit
    };
    Some(figure("max")?.saturating_sub(figure("current")?))
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Empties the kernel's caches, where we may.
pub fn drop_kernel_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Touches this much memory, at most half of what is available, and frees it: a virtual machine's host takes free
/// memory back after seconds, and the first touch afterwards would be measured instead of what is to be measured.
pub fn touch_memory(bytes: usize) {
    let mut memory = vec![0u8; bytes.min(available_memory() / 2)];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
