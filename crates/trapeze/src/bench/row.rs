//! The row that every measurement prints with `--json`. Its names are kept stable.

use serde::Serialize;

/// A measurement and its baseline.
#[derive(Debug, Serialize)]
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
