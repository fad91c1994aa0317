//! Cost of a piece of work: its calls one by one, and the machine's processors meanwhile.

use hdrhistogram::Histogram;
use std::io;
use std::time::{Duration, Instant};
use trapeze::machine_stat::busy_time;

/// Cost of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Calls or files.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// From begin to end.
    pub elapsed: Duration,
    /// Processor time of the whole machine meanwhile.
    pub busy: Duration,
    /// Of one op.
    pub p50_us: f64,
    /// Of one op.
    pub p99_us: f64,
}

impl Pass {
    /// 10^6 bytes per second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    /// Ops per second.
    pub fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64()
    }

    /// Processor seconds of the whole machine per GiB.
    pub fn cpu_s_per_gib(&self) -> f64 {
        self.busy.as_secs_f64() * (1u64 << 30) as f64 / self.bytes as f64
    }

    /// Processor microseconds of the whole machine per op.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.busy.as_secs_f64() * 1e6 / self.ops as f64
    }

    /// The pass of median speed.
    pub fn median(mut passes: Vec<Pass>) -> Pass {
        passes.sort_by_key(|pass| pass.elapsed);
        passes.get(passes.len() / 2).copied().unwrap_or_default()
    }
}

/// The median; 0 of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Times of calls, from 1 ns to ten minutes.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order")
}

/// Measures a pass while it runs.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    busy: Duration,
    bytes: u64,
    times: Histogram<u64>,
}

impl Meter {
    /// The pass begins.
    pub fn start() -> Meter {
        let (times, busy) = (histogram(), busy_time());
        Meter { start: Instant::now(), busy, bytes: 0, times }
    }

    /// One op, which says how many bytes it moved.
    pub fn time(&mut self, op: impl FnOnce() -> io::Result<u64>) -> io::Result<u64> {
        let start = Instant::now();
        let bytes = op()?;
        self.times.saturating_record(start.elapsed().as_nanos() as u64);
        self.bytes += bytes;
        Ok(bytes)
    }

    /// Takes in what another thread measured meanwhile.
    pub fn add(&mut self, other: &Meter) {
        self.bytes += other.bytes;
        self.times.add(&other.times).expect("the same bounds");
    }

    /// The pass has ended.
    pub fn end(self) -> Pass {
        let us = |quantile| self.times.value_at_quantile(quantile) as f64 / 1e3;
        Pass {
            ops: self.times.len(),
            bytes: self.bytes,
            elapsed: self.start.elapsed(),
            busy: busy_time().saturating_sub(self.busy),
            p50_us: us(0.5),
            p99_us: us(0.99),
        }
    }
}
