//! Where READs found their blocks, and how long that took them.

use crate::limits::HITS_SAMPLED;
use crate::server::Inner;
use netmem::service::Latency;
use std::cell::Cell;
use wire::Time;

/// Where blocks were that a READ asked for, from fast to slow: a READ is counted under the slowest of its blocks.
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
pub struct Found {
    /// How many.
    pub reads: u64,
    /// How long they took here, from the READ's arrival to its answer.
    pub latency: Latency,
}

/// READs that were answered, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The server's own memory. One in [`HITS_SAMPLED`] of those answered at once is measured.
    pub cache: Found,
    /// Network memory.
    pub network: Found,
    /// A disk.
    pub disk: Found,
}

impl Sources {
    fn note(&mut self, source: Source, took: Option<std::time::Duration>) {
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

    /// Where the last of it came from.
    pub fn get(&self) -> Source {
        self.0.get()
    }
}

impl Inner {
    /// When a READ that may be answered at once begins; nothing for those that are not measured. A node's time stands
    /// still while it is answered, so this is a look at the world's clock.
    pub fn begin_hit(&self) -> Option<Time> {
        let hits = self.hits.get().wrapping_add(1);
        self.hits.set(hits);
        hits.is_multiple_of(HITS_SAMPLED).then(|| self.cx.instant())
    }

    /// A READ has been answered at once.
    pub fn note_hit(&self, began: Option<Time>) {
        let took = began.map(|began| self.cx.instant().since(began));
        self.sources.borrow_mut().note(Source::Cache, took);
    }

    /// A READ has been answered that could not be at once. Also of these some end in the step in which they began: what
    /// they ask for is in this node's part of network memory.
    pub fn note_read(&self, source: Source, began: Time) {
        let took = self.cx.instant().since(began);
        self.sources.borrow_mut().note(source, Some(took));
    }
}
