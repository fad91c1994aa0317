//! The row that every measurement prints with `--json`. Its names are kept stable.

use serde::Serialize;

/// A measurement and its baseline.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)] // the names say it; times are of one operation
pub struct Row {
    pub name: &'static str,
    pub op: &'static str,
    pub link: &'static str,
    pub wait: String,
    pub depth: usize,
    pub cpus: String,
    pub processes: usize,
    pub bytes: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    pub baseline_p50_us: f64,
    pub baseline_ops_per_s: f64,
    pub baseline_mb_per_s: f64,
    pub ratio: f64,
}

impl Row {
    /// With the median and the 99th percentile of one operation at a time, and the baseline's median; 0 is none.
    pub fn timed(self, (p50_us, p99_us): (f64, f64), baseline_p50_us: f64) -> Row {
        let per_s = |us: f64| if us > 0.0 { 1e6 / us } else { 0.0 };
        let mb = |rate: f64| rate * self.bytes as f64 / 1e6;
        let (ops_per_s, baseline_ops_per_s) = (per_s(p50_us), per_s(baseline_p50_us));
        let (mb_per_s, baseline_mb_per_s) = (mb(ops_per_s), mb(baseline_ops_per_s));
        Row {
            p50_us,
            p99_us,
            ops_per_s,
            mb_per_s,
            baseline_p50_us,
            baseline_ops_per_s,
            baseline_mb_per_s,
            ..self
        }
    }
}
