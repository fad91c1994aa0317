//! A machine's network memory, as it tells of it.

use super::report::Took;
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
    /// Of the view that it goes by: the number, the members, and the incarnation in which it is one itself; 0 for none.
    pub view: u64,
    pub members: u64,
    pub incarnation: u64,
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
    pub incarnations_lost: u64,
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
            incarnation: service.incarnation(),
            settled: service.is_settled(),
            epoch: epoch.number,
            min_age_ms: (epoch.min_age > Age::NEWEST).then(|| millis(epoch.min_age)).flatten(),
            oldest_ms: millis(service.digest().oldest),
            ..Memory::counted(&service.counters(), config.backing.is_some())
        }
    }

    /// From these counters.
    pub fn counted(counters: &Counters, has_storage: bool) -> Memory {
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
            incarnations_lost: counters.incarnations_lost,
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
}

#[cfg(test)]
mod tests {
    use super::super::report::Report;
    use super::*;

    #[test]
    fn only_an_age_that_is_known_has_milliseconds() {
        assert_eq!((millis(Age::OLDEST), millis(Age(2_500_000))), (None, Some(2500)));
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
