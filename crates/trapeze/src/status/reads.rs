//! An I/O server's READs by where their blocks were, as it tells of them.

use super::figures::{Figure, Number, figures, seconds};
use super::report::Took;
use serde::{Deserialize, Serialize};

/// READs that were answered, each by the slowest of its blocks' sources: the server's own memory, network memory, a
/// disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
pub struct Reads {
    pub cache: SourceReads,
    pub network: SourceReads,
    pub disk: SourceReads,
}

figures! {
    /// READs with one source, and how long they took on the server.
    #[derive(Copy)]
    #[allow(missing_docs)]
    pub struct SourceReads {
        reads => counter "reads_found_total", "Reads answered, by where the slowest block was.";
        #[serde(flatten)]
        took: Took => gauge "read_latency_p50_seconds", "Median of the latest.", |s| seconds(s.took.p50_ns, 1e9)
            => gauge "read_latency_p99_seconds", "99th percentile of the latest.", |s| seconds(s.took.p99_ns, 1e9);
    }
}

/// Names of the sources in labels and headings, in the order of [`Reads::all`].
pub const NAMES: [&str; 3] = ["cache", "network", "disk"];

impl Reads {
    /// As a server counts.
    pub fn of(sources: &stripe::Sources) -> Reads {
        let found = |one: &stripe::SourceReads| SourceReads {
            reads: one.reads,
            took: Took::of(&one.latency),
        };
        Reads {
            cache: found(&sources.cache),
            network: found(&sources.network),
            disk: found(&sources.disk),
        }
    }

    /// From fast to slow.
    pub fn all(&self) -> [SourceReads; 3] {
        [self.cache, self.network, self.disk]
    }

    /// READs that were answered.
    pub fn answered(&self) -> u64 {
        self.all().iter().map(|found| found.reads).sum()
    }
}
