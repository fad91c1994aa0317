//! A machine's network memory, as it tells of it.

use super::figures::{Figure, Number, figures, seconds};
use super::report::Took;
use netmem::service::{Counters, Latency, Misses};
use netmem::{Age, Service};
use serde::{Deserialize, Serialize};
use wire::limits::BLOCK_BYTES;

figures! {
    /// Network memory. Bytes by what is in them are of 4 KiB blocks, each counted as full.
    #[derive(Copy)]
    #[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
    pub struct Memory of (counters: &Counters) {
        /// Memory that the machine lends; of it, the part that its own pages can always have.
        lent_bytes => gauge "memory_lent_bytes", "Network memory on the machine.";
        kept_bytes => gauge "memory_kept_bytes", "Of it, what its own pages can always have.";
        /// Memory lent now, less while the machine is short of it; that of pages beyond it; that given back to the
        /// system.
        share_bytes => gauge "memory_share_bytes", "What it lends now.";
        over_bytes => gauge "memory_over_bytes", "What pages take beyond that.";
        returned_bytes => gauge "memory_returned_bytes", "What the system has back of it.";
        /// The machine's own pages, others' clean ones, others' dirty ones: `memory_bytes` by role.
        local_bytes;
        hosted_bytes;
        mirror_bytes;
        free_bytes;
        /// Of the view that it goes by: the number, the members, and the incarnation in which it is one itself; 0 for
        /// none.
        view => gauge "memory_view", "Number of the view that it goes by.";
        members => gauge "memory_members", "Nodes in that view.";
        incarnation => gauge "memory_incarnation", "The incarnation in which it is a member; 0 when it is none.";
        /// Whether all members have told what they hold since the view changed.
        settled: bool => gauge "memory_settled", "Whether all have told what they hold in it.";
        /// Epochs, and from what age on pages are dropped instead of sent; nothing when none is.
        epoch: u32 => gauge "memory_epoch", "Number of the epoch.";
        epochs_planned = counters.epochs_planned
            => counter "memory_epochs_planned_total", "Epochs that it planned.";
        #[serde(skip_serializing_if = "Option::is_none")]
        min_age_ms: Option<u64> => gauge "memory_min_age_seconds", "Age from which pages are dropped.",
            |m| seconds(m.min_age_ms.or(Some(0)), 1e3);
        /// How old the oldest page is that it would give up; nothing with free frames.
        #[serde(skip_serializing_if = "Option::is_none")]
        oldest_ms: Option<u64> => gauge "memory_oldest_seconds", "Age of the oldest page that it would give up.",
            |m| seconds(m.oldest_ms, 1e3);
        /// Pages by where they were found, and that were not. Nothing of storage where the service has none.
        local: Source = Source::of(counters.local_hits, &counters.local_latency);
        peer: Source = Source::of(counters.peer_hits, &counters.peer_latency);
        #[serde(skip_serializing_if = "Option::is_none")]
        storage: Option<Source> = Some(Source::of(counters.backing_hits, &counters.backing_latency));
        missed = missed(&counters.misses) => counter "memory_missed_total", "Pages that were not found.";
        damaged = counters.misses.mismatches.total()
            => counter "memory_damaged_total", "Payloads that were not what was asked for.";
        hedges = counters.hedges
            => counter "memory_hedges_total", "Pages asked of storage beside a slow peer.";
        hedges_won = counters.hedges_won
            => counter "memory_hedges_won_total", "Of these, those that storage answered first.";
        /// Pages that it sent to the nodes that asked, and passed on to those that have them.
        served = counters.served => counter "memory_served_total", "Pages sent to the nodes that asked.";
        delegated = counters.delegated
            => counter "memory_delegated_total", "Requests passed on to a node that has the page.";
        /// Clean pages that it gave to others, offered and taken; refusals by others and by itself.
        puts_sent = counters.puts_sent
            => counter "memory_offered_total", "Clean pages that were offered to others.";
        puts_stored = counters.puts_stored => counter "memory_given_total", "Clean pages that others took.";
        refused = counters.refused.total() => counter "memory_refused_total", "Pages that others refused.";
        refusals = counters.refusals.total()
            => counter "memory_refusals_total", "Pages of others that it refused.";
        accepted = counters.accepted => counter "memory_accepted_total", "Pages of others that it took.";
        dropped = counters.dropped
            => counter "memory_dropped_total", "Clean pages that left network memory.";
        mirrors_made = counters.mirrors_made => counter "memory_mirrors_made_total", "Mirrors of its pages.";
        mirrors_again = counters.mirrors_again => counter "memory_mirrors_again_total", "Mirrors made anew.";
        mirrors_missing = counters.durable_deficit_pages
            => gauge "memory_mirrors_missing", "Pages with too few mirrors.";
        handed_on = counters.handed_on
            => counter "memory_handed_on_total", "Mirrors given up for others elsewhere.";
        written_back = counters.written_back
            => counter "memory_written_back_total", "Dirty pages written to storage.";
        lost_pages = counters.lost_pages
            => counter "memory_lost_pages_total", "Pages whose versions were lost.";
        incarnations_lost = counters.incarnations_lost
            => counter "memory_incarnations_lost_total", "Times that it was given up while it ran.";
        notices_lost = counters.notices_lost
            => counter "memory_notices_lost_total", "Notices dropped because too many waited.";
        /// Pages that programs said they would use; that came before they were asked for: of these, used, gone unused
        /// and asked for meanwhile; and those that idle nodes read from storage for this one.
        hinted = counters.hinted => counter "memory_hinted_total", "Pages that programs said they would use.";
        prefetched = counters.prefetched
            => counter "memory_prefetched_total", "Pages that came before they were asked for.";
        prefetched_used = counters.prefetched_used
            => counter "memory_prefetched_used_total", "Of these, those used after that.";
        prefetched_wasted = counters.prefetched_wasted
            => counter "memory_prefetched_wasted_total", "And those that left unused.";
        prefetched_late = counters.prefetched_late
            => counter "memory_prefetched_late_total", "And those asked for meanwhile.";
        read_early = counters.read_early
            => counter "memory_read_early_total", "Pages that idle nodes read from storage for it.";
    }
}

/// Pages that were not found, whatever the reason.
fn missed(misses: &Misses) -> u64 {
    let missed = misses.not_here + misses.older + misses.unreachable + misses.unknown;
    missed + misses.lost + misses.freed
}

figures! {
    /// Pages from one source, and how long they took.
    #[derive(Copy)]
    #[allow(missing_docs)]
    pub struct Source {
        pages => counter "memory_pages_total", "Pages by where they were found.";
        #[serde(flatten)]
        took: Took => gauge "memory_latency_p50_seconds", "Median of the latest.", |s| seconds(s.took.p50_ns, 1e9)
            => gauge "memory_latency_p99_seconds", "99th percentile of the latest.", |s| seconds(s.took.p99_ns, 1e9);
    }
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
        let counted = Memory::counted(&service.counters());
        Memory {
            storage: counted.storage.filter(|_| config.backing.is_some()),
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
            ..counted
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
