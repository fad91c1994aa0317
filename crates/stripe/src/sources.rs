//! Origins of the blocks of READs, and the times that they took.

use netmem::service::Latency;
use std::cell::Cell;

/// Origin of a READ's blocks, from fast to slow: a READ is counted under the slowest of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// In this server's own memory.
    #[default]
    Cache,
    /// In network memory, mostly another node's.
    Network,
    /// On one of its disks.
    Disk,
}

/// READs with one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReads {
    /// Number of READs.
    pub reads: u64,
    /// How long they took here, from the READ's arrival to its answer.
    pub latency: Latency,
}

/// READs that were answered, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The server's own memory. Of those answered at once one in
    /// [`HITS_SAMPLED`](crate::limits::HITS_SAMPLED) is measured.
    pub cache: SourceReads,
    /// Network memory.
    pub network: SourceReads,
    /// A disk.
    pub disk: SourceReads,
}

impl Sources {
    pub(crate) fn note(&mut self, source: Source, took: Option<std::time::Duration>) {
        let found = match source {
            Source::Cache => &mut self.cache,
            Source::Network => &mut self.network,
            Source::Disk => &mut self.disk,
        };
        found.reads += 1;
        took.into_iter().for_each(|took| found.latency.add(took));
    }
}

/// The slowest source so far of what one READ asks for.
#[derive(Debug, Default)]
pub struct Slowest(Cell<Source>);

impl Slowest {
    /// Some of it came from there.
    pub fn note(&self, source: Source) {
        self.0.set(self.0.get().max(source));
    }

    /// The slowest origin.
    pub fn get(&self) -> Source {
        self.0.get()
    }
}
