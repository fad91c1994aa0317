//! An I/O server's READs by where their blocks were, as it tells of them and as they are shown.

use super::report::{Report, Took};
use crate::table::Table;
use members::Member;
use serde::{Deserialize, Serialize};

/// READs that were answered, each by the slowest of its blocks' sources: the server's own memory, network memory, a
/// disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
pub struct Reads {
    pub cache: Found,
    pub network: Found,
    pub disk: Found,
}

/// READs with one source, and how long they took on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Found {
    pub reads: u64,
    #[serde(flatten)]
    pub took: Took,
}

/// What the sources are called in labels and headings, in the order of [`Reads::all`].
pub const NAMES: [&str; 3] = ["cache", "network", "disk"];

impl Reads {
    /// As a server counts.
    pub fn of(sources: &stripe::Sources) -> Reads {
        let found = |one: &stripe::Found| Found { reads: one.reads, took: Took::of(&one.latency) };
        Reads {
            cache: found(&sources.cache),
            network: found(&sources.network),
            disk: found(&sources.disk),
        }
    }

    /// From fast to slow.
    pub fn all(&self) -> [Found; 3] {
        [self.cache, self.network, self.disk]
    }

    /// READs that were answered.
    pub fn answered(&self) -> u64 {
        self.all().iter().map(|found| found.reads).sum()
    }
}

/// READs of the I/O servers since their start.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let mut table =
        Table::new(&["reads of", "cache", "network", "disk", "cache us", "network us", "disk us"]);
    for (member, report) in reports {
        let Some(io) = &report.io else { continue };
        let all = io.found.all();
        let counts = all.iter().map(|found| found.reads.to_string());
        let times = all.iter().map(|found| found.took.shown());
        let name = [member.name.clone()].into_iter();
        table.row(&name.chain(counts).chain(times).collect::<Vec<String>>());
    }
    table
}
