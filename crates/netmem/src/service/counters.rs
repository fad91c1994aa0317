//! Counters of the service.

use super::latency::Latency;
use crate::limits::LOCAL_SAMPLED;
use crate::page::Mismatches;
use crate::protocol::No;
use std::time::Duration;

/// Place where a page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the node's own memory.
    Local,
    /// In another node's.
    Peer,
    /// On stable storage.
    Backing,
}

/// Why network memory did not have a page, so often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// A node that should have it did not: dropped meanwhile.
    pub not_here: u64,
    /// It had an older version.
    pub older: u64,
    /// A node did not answer.
    pub unreachable: u64,
    /// The directory knows no holder.
    pub unknown: u64,
    /// The version is lost.
    pub lost: u64,
    /// The space was freed.
    pub freed: u64,
    /// Payloads that were not what was asked for.
    pub mismatches: Mismatches,
}

/// Counts of refusals, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; No::ALL.len()]);

impl Refusals {
    /// One more.
    pub fn count(&mut self, no: No) {
        self.0[no as usize - 1] += 1;
    }

    /// So many for this reason.
    pub fn get(&self, no: No) -> u64 {
        self.0[no as usize - 1]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Counters since the service started, and how many pages lack a mirror now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages found in the node's own memory.
    pub local_hits: u64,
    /// Of these, pages that were just leaving it.
    pub taken_back: u64,
    /// Pages that came from other nodes.
    pub peer_hits: u64,
    /// Pages that came from stable storage.
    pub backing_hits: u64,
    /// Requests that waited for the fetch of another.
    pub coalesced: u64,
    /// Why network memory did not have them.
    pub misses: Misses,
    /// Requests of others that this node passed on to a holder.
    pub delegated: u64,
    /// Pages that this node sent to others.
    pub served: u64,
    /// Requests for which stable storage was asked beside a slow peer.
    pub hedges: u64,
    /// Of these, those that it answered first.
    pub hedges_won: u64,
    /// Pages that changed places with an evicted one.
    pub swapped: u64,
    /// Clean pages that were offered to others.
    pub puts_sent: u64,
    /// Of these, those that were taken.
    pub puts_stored: u64,
    /// Refusals by others, of clean pages and mirrors.
    pub refused: Refusals,
    /// Refusals by this node.
    pub refusals: Refusals,
    /// Pages of others that this node took in, mirrors included.
    pub accepted: u64,
    /// Clean pages that left network memory here.
    pub dropped: u64,
    /// Mirrors of this node's pages that were made.
    pub mirrors_made: u64,
    /// Mirrors made anew after a node went down.
    pub mirrors_again: u64,
    /// Mirrors that this node gave up for others' when it lent less than before.
    pub handed_on: u64,
    /// Dirty pages written to stable storage.
    pub written_back: u64,
    /// Pages whose versions this node's directory saw lost.
    pub lost_pages: u64,
    /// Notices that were dropped because too many waited.
    pub notices_lost: u64,
    /// Epochs that this node planned.
    pub epochs_planned: u64,
    /// Times that this node was given up and began again with nothing, while it ran.
    pub incarnations_lost: u64,
    /// Leases that this node granted.
    pub leases_granted: u64,
    /// Pages in this node's directory with fewer mirrors than there are to be, now.
    pub durable_deficit_pages: u64,
    /// Pages that programs said they would use.
    pub hinted: u64,
    /// Pages that came to this node's memory before anybody asked for them.
    pub prefetched: u64,
    /// Of these, pages that were used after that.
    pub prefetched_used: u64,
    /// And those that left unused.
    pub prefetched_wasted: u64,
    /// Pages that were asked for while they were being prefetched.
    pub prefetched_late: u64,
    /// Pages that idle nodes read from stable storage for this one.
    pub read_early: u64,
    /// How long requests took that the node's own memory answered, of one in
    /// [`LOCAL_SAMPLED`](crate::limits::LOCAL_SAMPLED).
    pub local_latency: Latency,
    /// Other nodes.
    pub peer_latency: Latency,
    /// Stable storage.
    pub backing_latency: Latency,
}

impl Counters {
    /// Counts a page that was found, and how long that took if it was measured.
    pub(super) fn hit(&mut self, source: Source, took: Option<Duration>) {
        let (hits, latency) = match source {
            Source::Local => (&mut self.local_hits, &mut self.local_latency),
            Source::Peer => (&mut self.peer_hits, &mut self.peer_latency),
            Source::Backing => (&mut self.backing_hits, &mut self.backing_latency),
        };
        *hits += 1;
        took.into_iter().for_each(|took| latency.add(took));
    }
}

/// Counters and times of a running service.
#[derive(Debug, Default)]
pub struct Stats {
    /// So far.
    pub counters: Counters,
    /// Requests for pages, by which those to be measured are chosen.
    gets: u32,
    most_hops: u8,
}

impl Stats {
    /// The most times that a request for a page had been forwarded when it came here.
    pub fn most_hops(&self) -> u8 {
        self.most_hops
    }

    /// A request for a page came here that had been forwarded so many times.
    pub fn note_hops(&mut self, hops: u8) {
        self.most_hops = self.most_hops.max(hops);
    }

    /// Counts a request for a page. Says whether it is one of those that are measured.
    pub fn is_sampled(&mut self) -> bool {
        self.gets = self.gets.wrapping_add(1);
        self.gets.is_multiple_of(LOCAL_SAMPLED)
    }
}
