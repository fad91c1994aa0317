//! A machine's network memory, as it tells of it and as it is shown.

use super::report::{Report, Took};
use crate::size::Size;
use crate::table::Table;
use members::Member;
use netmem::service::{Counters, Latency};
use netmem::{Age, Service};
use serde::{Deserialize, Serialize};
use wire::limits::BLOCK_BYTES;

/// Network memory. Bytes by what is in them are of 4 KiB blocks, each counted as full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
pub struct Memory {
    /// What the machine lends; of it, what its own pages can always have.
    pub lent_bytes: u64,
    pub kept_bytes: u64,
    /// What it lends now, less while it is short of memory; what pages take beyond that; what the system has back.
    pub share_bytes: u64,
    pub over_bytes: u64,
    pub returned_bytes: u64,
    /// The machine's own pages, others' clean ones, others' dirty ones.
    pub local_bytes: u64,
    pub hosted_bytes: u64,
    pub mirror_bytes: u64,
    pub free_bytes: u64,
    /// Of the view that it goes by: the number, the members, and the life in which it is one itself; 0 for none.
    pub view: u64,
    pub members: u64,
    pub life: u64,
    /// Whether everybody has told what it holds since the view changed.
    pub settled: bool,
    /// Epochs, and from what age on pages are dropped instead of sent; nothing when none is.
    pub epoch: u32,
    pub epochs_planned: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_age_ms: Option<u64>,
    /// How old the oldest page is that it would give up; nothing with free frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Pages by where they were found, and that were not. Nothing of storage where the service has none.
    pub local: Source,
    pub peer: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Source>,
    pub missed: u64,
    pub damaged: u64,
    pub hedges: u64,
    pub hedges_won: u64,
    /// Pages that it sent to who asked, and passed on to who has them.
    pub served: u64,
    pub delegated: u64,
    /// Clean pages that it gave to others, offered and taken; refusals by others and by itself.
    pub puts_sent: u64,
    pub puts_stored: u64,
    pub refused: u64,
    pub refusals: u64,
    pub accepted: u64,
    pub dropped: u64,
    pub mirrors_made: u64,
    pub mirrors_again: u64,
    pub mirrors_missing: u64,
    pub handed_on: u64,
    pub written_back: u64,
    pub lost_pages: u64,
    pub lives_lost: u64,
    pub notices_lost: u64,
    /// Pages that programs said they would use; that came before they were asked for: of these, used, gone unused and
    /// asked for meanwhile; and those that idle nodes read from storage for this one.
    pub hinted: u64,
    pub prefetched: u64,
    pub prefetched_used: u64,
    pub prefetched_wasted: u64,
    pub prefetched_late: u64,
    pub read_early: u64,
}

/// Pages from one source, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Source {
    pub pages: u64,
    #[serde(flatten)]
    pub took: Took,
}

impl Source {
    fn of(pages: u64, latency: &Latency) -> Source {
        Source { pages, took: Took::of(latency) }
    }
}

fn millis(age: Age) -> Option<u64> {
    (age != Age::OLDEST).then_some(age.0 / 1000)
}

impl Memory {
    /// As the service tells now.
    pub fn of(service: &Service) -> Memory {
        let (counts, view, epoch) = (service.blocks(), service.view(), service.epoch());
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES as u64;
        let (config, share) = (service.config(), service.share());
        Memory {
            lent_bytes: config.bytes as u64,
            kept_bytes: config.local_min_bytes as u64,
            share_bytes: share.bytes as u64,
            over_bytes: share.over as u64,
            returned_bytes: share.returned as u64,
            local_bytes: bytes(counts.own()),
            hosted_bytes: bytes(counts.hosted),
            mirror_bytes: bytes(counts.mirror),
            free_bytes: share.bytes.saturating_sub(service.used_bytes()) as u64,
            view: view.number,
            members: view.members.len() as u64,
            life: service.incarnation(),
            settled: service.is_settled(),
            epoch: epoch.number,
            min_age_ms: (epoch.min_age > Age::NEWEST).then(|| millis(epoch.min_age)).flatten(),
            oldest_ms: millis(service.digest().oldest),
            ..Memory::counted(&service.counters(), config.backing.is_some())
        }
    }

    fn counted(counters: &Counters, has_storage: bool) -> Memory {
        let misses = &counters.misses;
        let missed = misses.not_here + misses.older + misses.unreachable + misses.unknown;
        Memory {
            epochs_planned: counters.epochs_planned,
            local: Source::of(counters.local_hits, &counters.local_latency),
            peer: Source::of(counters.peer_hits, &counters.peer_latency),
            storage: has_storage
                .then(|| Source::of(counters.backing_hits, &counters.backing_latency)),
            missed: missed + misses.lost + misses.freed,
            damaged: misses.mismatches.total(),
            hedges: counters.hedges,
            hedges_won: counters.hedges_won,
            served: counters.served,
            delegated: counters.delegated,
            puts_sent: counters.puts_sent,
            puts_stored: counters.puts_stored,
            refused: counters.refused.total(),
            refusals: counters.refusals.total(),
            accepted: counters.accepted,
            dropped: counters.dropped,
            mirrors_made: counters.mirrors_made,
            mirrors_again: counters.mirrors_again,
            mirrors_missing: counters.durable_deficit_pages,
            handed_on: counters.handed_on,
            written_back: counters.written_back,
            lost_pages: counters.lost_pages,
            lives_lost: counters.lives_lost,
            notices_lost: counters.notices_lost,
            hinted: counters.hinted,
            prefetched: counters.prefetched,
            prefetched_used: counters.prefetched_used,
            prefetched_wasted: counters.prefetched_wasted,
            prefetched_late: counters.prefetched_late,
            read_early: counters.read_early,
            ..Memory::default()
        }
    }

    /// What it lends, and of how much where that is less than it could.
    fn lent(&self) -> String {
        let size = |bytes| Size(bytes >> 20 << 20).to_string();
        match (self.share_bytes < self.lent_bytes, self.over_bytes) {
            (false, _) => Size(self.lent_bytes).to_string(),
            (true, 0) => format!("{} of {}", size(self.share_bytes), Size(self.lent_bytes)),
            (true, over) => {
                format!(
                    "{} of {}, {} over",
                    size(self.share_bytes),
                    Size(self.lent_bytes),
                    Size(over)
                )
            }
        }
    }

    /// The first cells of a row: what is where, and by which view and epoch.
    pub(super) fn places(&self) -> [String; 8] {
        let size = |bytes| Size(bytes).to_string();
        let view = match self.life {
            0 => format!("{} (out)", self.view),
            _ if !self.settled => format!("{} (new)", self.view),
            _ => self.view.to_string(),
        };
        [
            self.lent(),
            size(self.local_bytes),
            size(self.hosted_bytes),
            size(self.mirror_bytes),
            size(self.free_bytes),
            format!("{view}/{}", self.members),
            self.epoch.to_string(),
            age(self.oldest_ms),
        ]
    }
}

/// Headings of [`Memory::places`].
pub(super) const PLACES: [&str; 8] =
    ["lent", "own", "hosted", "mirrors", "free", "view/nodes", "epoch", "oldest"];

/// An age for people; `-` where frames are free.
fn age(ms: Option<u64>) -> String {
    ms.map_or("-".to_string(), |ms| format!("{:.1} s", ms as f64 / 1e3))
}

/// Network memory of those that have it, with a column for storage where any of them has that.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let lenders = || reports.iter().filter_map(|(member, r)| Some((member, r.memory.as_ref()?)));
    let storage = lenders().any(|(_, memory)| memory.storage.is_some());
    let found = ["local", "peer"].into_iter().chain(storage.then_some("storage"));
    let rest = ["missed", "local us", "peer us", "lost", "lacking"];
    let headings: Vec<&str> =
        ["lent by"].into_iter().chain(PLACES).chain(found).chain(rest).collect();
    let mut table = Table::new(&headings);
    for (member, memory) in lenders() {
        let mut row = vec![member.name.clone()];
        row.extend(memory.places());
        row.extend([memory.local.pages, memory.peer.pages].map(|pages| pages.to_string()));
        let of_storage = |source: Source| source.pages.to_string();
        row.extend(storage.then(|| memory.storage.map_or("-".into(), of_storage)));
        row.push(memory.missed.to_string());
        row.extend([memory.local, memory.peer].map(|source| source.took.shown()));
        row.extend([memory.lost_pages, memory.mirrors_missing].map(|number| number.to_string()));
        table.row(&row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_where_they_are_known() {
        assert_eq!((age(None), age(Some(1500))), ("-".to_string(), "1.5 s".to_string()));
        assert_eq!((millis(Age::OLDEST), millis(Age(2_500_000))), (None, Some(2500)));
    }

    #[test]
    fn a_node_without_a_life_is_out_of_the_view() {
        let memory = Memory { view: 4, members: 2, settled: true, ..Memory::default() };
        assert_eq!(memory.places()[0], "0");
        assert_eq!(memory.places()[5], "4 (out)/2");
        assert_eq!(Memory { life: 3, ..memory }.places()[5], "4/2");
        assert_eq!(Memory { life: 3, settled: false, ..memory }.places()[5], "4 (new)/2");
    }

    #[test]
    fn a_share_that_has_shrunk_is_shown_beside_all() {
        let lent = |share_bytes: u64, over_bytes| {
            Memory { lent_bytes: 64 << 20, share_bytes, over_bytes, ..Memory::default() }.lent()
        };
        assert_eq!(lent(64 << 20, 0), "64M");
        assert_eq!(lent((48 << 20) + 4096, 0), "48M of 64M");
        assert_eq!(lent(16 << 20, 5 << 20), "16M of 64M, 5M over");
    }

    #[test]
    fn storage_has_a_column_where_somebody_has_it() {
        let member = super::super::ask::tests::told(2, "io1", None).member;
        let shown = |memory: Memory| {
            let report = Report { memory: Some(memory), ..Report::default() };
            table(&[(&member, &report)]).render()
        };
        let without = Memory::counted(&Counters::default(), false);
        let with = Memory::counted(&Counters { backing_hits: 77, ..Counters::default() }, true);
        assert!(!shown(without).contains("storage"), "{}", shown(without));
        assert!(shown(with).contains("storage") && shown(with).contains("77"), "{}", shown(with));
    }

    #[test]
    fn reports_survive_json_and_other_releases() {
        let took = Took { p50_ns: Some(9), p99_ns: None };
        let memory = Memory { peer: Source { pages: 1, took }, ..Memory::default() };
        let report = Report { memory: Some(memory), ..Report::default() };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(
            serde_json::from_str::<Report>("{\"memory\":{\"new\":1}}").unwrap().memory,
            Some(Memory::default())
        );
        assert!(!serde_json::to_string(&Report::default()).unwrap().contains("memory\""));
    }
}
