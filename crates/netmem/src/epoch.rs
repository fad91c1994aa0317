//! The content of an epoch: how old a page must be to be worth nothing, and which nodes have the old frames (SOSP'95
//! section 3.2).
//!
//! Every node tells the initiator how many of its frames are how old. The initiator finds the M oldest of the cluster;
//! a node's weight is how many of them it has. Buckets of powers of two are enough: of the bucket that the M-th oldest
//! frame is in, each node gets its part, and the least age in it is the epoch's. Where all nodes are equally busy, what
//! one of them evicts is at least so old, and goes nowhere.

use crate::ages::{Age, Boundary, Histogram, floor};
use crate::limits::{EPOCH, EPOCH_SHARE, SLOW_START, WEIGHT_PERCENT_MAX};
use std::time::Duration;
use wire::NodeId;

/// A node's report to the initiator. Counts are of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The node.
    pub node: NodeId,
    /// All its frames.
    pub capacity: u32,
    /// Frames that its own pages may have whatever others want.
    pub local_min: u32,
    /// Frames with nothing in them.
    pub free: u32,
    /// Its own pages, by effective age.
    pub local: Histogram,
    /// Other nodes' clean pages, by effective age.
    pub hosted: Histogram,
    /// The oldest page that it would take in now.
    pub oldest: Age,
    /// How long it has been a member.
    pub member_for: Duration,
    /// Pages that its link may take in one epoch.
    pub link_pages: u32,
}

impl Digest {
    /// Frames that other nodes' pages may have at most.
    pub fn lendable(&self) -> u64 {
        self.capacity.saturating_sub(self.local_min).into()
    }

    /// The frames that another node's page may take, but for the free ones. The node's own pages count as half as old:
    /// they go for what is much younger only (SOSP'95 counts the others' as older instead).
    fn replaceable(&self) -> Histogram {
        let own = self.local.total().saturating_sub(self.local_min.into());
        let mut all = self.local.oldest(own).halved();
        all.merge(&self.hosted);
        all
    }
}

/// How epochs are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochConfig {
    /// Longest epoch.
    pub period: Duration,
    /// M is the lendable frames divided by this.
    pub share: u64,
    /// Percent of M that one node takes at most.
    pub weight_percent_max: u64,
    /// How long a new member takes until it has its full weight.
    pub slow_start: Duration,
}

impl Default for EpochConfig {
    fn default() -> EpochConfig {
        EpochConfig {
            period: EPOCH,
            share: EPOCH_SHARE,
            weight_percent_max: WEIGHT_PERCENT_MAX,
            slow_start: SLOW_START,
        }
    }
}

/// A node's part in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The node.
    pub node: NodeId,
    /// Pages that it is to take in: its part of the M oldest frames.
    pub weight: u32,
    /// The oldest page that it would take in, as far as is known.
    pub oldest: Age,
}

/// The initiator's broadcast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Grows with every epoch.
    pub number: u32,
    /// Pages so old are dropped rather than sent; 0 says that nothing is worth sending.
    pub min_age: Age,
    /// Replacements that end the epoch.
    pub replacements: u32,
    /// Every node's part, in the order of their numbers.
    pub shares: Vec<Share>,
    /// The planner of the next one: the node with the largest weight, of several the lowest.
    pub next: NodeId,
}

impl Epoch {
    /// Plans an epoch from what the nodes told; their order does not matter.
    pub fn plan(number: u32, digests: &[Digest], config: &EpochConfig) -> Epoch {
        let m = digests.iter().map(Digest::lendable).sum::<u64>() / config.share;
        let oldest = Oldest::of(digests, m);
        let mut shares: Vec<Share> =
            digests.iter().map(|digest| oldest.share(digest, config)).collect();
        shares.sort_unstable_by_key(|share| share.node);
        let once = shares.windows(2).all(|pair| pair[0].node < pair[1].node);
        assert!(once, "a node has one part");
        let next = shares.iter().rev().max_by_key(|share| share.weight);
        Epoch {
            number,
            min_age: oldest.min_age(),
            replacements: shares.iter().map(|share| share.weight).sum(),
            next: next.map_or(NodeId::default(), |share| share.node),
            shares,
        }
    }

    /// A node's weight.
    pub fn weight(&self, node: NodeId) -> u32 {
        self.share(node).map_or(0, |share| share.weight)
    }

    /// A node's part.
    pub fn share(&self, node: NodeId) -> Option<&Share> {
        let at = self.shares.binary_search_by_key(&node, |share| share.node).ok()?;
        Some(&self.shares[at])
    }

    /// A node has said which is the oldest page that it would take in now.
    pub fn handle_advertised(&mut self, node: NodeId, oldest: Age) {
        if let Ok(at) = self.shares.binary_search_by_key(&node, |share| share.node) {
            self.shares[at].oldest = oldest;
        }
    }
}

/// The M oldest frames of the cluster.
struct Oldest {
    m: u64,
    /// Free frames, which are the oldest, of all nodes.
    free: u64,
    /// Position of the last of them; `None` when the free frames are enough, or all frames together are not.
    boundary: Option<Boundary>,
}

impl Oldest {
    fn of(digests: &[Digest], m: u64) -> Oldest {
        let free = digests.iter().map(|digest| u64::from(digest.free)).sum();
        let mut all = Histogram::default();
        digests.iter().for_each(|digest| all.merge(&digest.replaceable()));
        let boundary = if free >= m { None } else { all.boundary(m - free) };
        Oldest { m, free, boundary }
    }

    fn min_age(&self) -> Age {
        match self.boundary {
            Some(boundary) => floor(boundary.bucket),
            None if self.m > 0 && self.free >= self.m => Age::OLDEST,
            None => Age::NEWEST,
        }
    }

    /// Number of them on a node.
    fn count(&self, digest: &Digest) -> u64 {
        let free = u64::from(digest.free);
        let Some(Boundary { bucket, older, within }) = self.boundary else {
            return if self.free >= self.m { part(free, self.m, self.free) } else { 0 };
        };
        let frames = digest.replaceable();
        let needed = self.m - self.free - older;
        free + frames.older(bucket) + part(frames.within(bucket), needed, within)
    }

    fn share(&self, digest: &Digest, config: &EpochConfig) -> Share {
        let most = (self.m * config.weight_percent_max / 100).min(digest.link_pages.into());
        let weight = self.count(digest).min(digest.lendable()).min(most);
        let weight = started(weight, digest.member_for, config.slow_start) as u32;
        Share { node: digest.node, weight, oldest: digest.oldest }
    }
}

/// `count * numerator / denominator`, rounded up; 0 of nothing.
fn part(count: u64, numerator: u64, denominator: u64) -> u64 {
    (count * numerator).div_ceil(denominator.max(1))
}

fn started(weight: u64, member_for: Duration, slow_start: Duration) -> u64 {
    if member_for >= slow_start {
        return weight;
    }
    (u128::from(weight) * member_for.as_nanos() / slow_start.as_nanos()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(node: u16, free: u32, local: &[(u64, u32)]) -> Digest {
        let mut ages = Histogram::default();
        local.iter().for_each(|(age, frames)| ages.add(Age(*age), *frames));
        let capacity = free + ages.total() as u32;
        Digest {
            node: NodeId(node),
            capacity,
            free,
            local: ages,
            member_for: SLOW_START,
            link_pages: u32::MAX,
            ..Digest::default()
        }
    }

    fn digests() -> impl Strategy<Value = Vec<Digest>> {
        let ages = prop::collection::vec((0u64..1 << 32, 1u32..500), 1..6);
        let node = (0u32..500, ages.clone(), ages, 0u32..400, 0u64..40, 0u32..2000);
        let digest = |(at, (free, local, hosted, local_min, joined_s, link_pages)): (usize, _)| {
            let local: Vec<(u64, u32)> = local;
            let hosted: Vec<(u64, u32)> = hosted;
            let mut digest = digest(at as u16 + 1, free, &local);
            hosted.iter().for_each(|(age, frames)| digest.hosted.add(Age(*age), *frames));
            digest.capacity += digest.hosted.total() as u32;
            Digest { local_min, link_pages, member_for: Duration::from_secs(joined_s), ..digest }
        };
        prop::collection::vec(node, 1..10)
            .prop_map(move |nodes| nodes.into_iter().enumerate().map(digest).collect())
    }

    proptest! {
        /// No weight exceeds its cap, its link, its lendable frames, or its slow start; all together are the M oldest,
        /// each part rounded up.
        #[test]
        fn weights_stay_in_their_limits(digests in digests()) {
            let config = EpochConfig::default();
            let epoch = Epoch::plan(7, &digests, &config);
            let m = digests.iter().map(Digest::lendable).sum::<u64>() / config.share;
            for digest in &digests {
                let weight = u64::from(epoch.weight(digest.node));
                let started = m * digest.member_for.as_secs().min(30) / 30;
                prop_assert!(weight <= m / 4 && weight <= started && weight <= digest.lendable());
                prop_assert!(weight <= u64::from(digest.link_pages));
                prop_assert!(weight <= u64::from(epoch.weight(epoch.next)));
            }
            prop_assert!(u64::from(epoch.replacements) <= m + digests.len() as u64);
        }

        /// A member's weight grows with the time since it joined, and never faster (the sum granted to a joiner).
        #[test]
        fn a_joiner_grows_no_faster_than_its_slow_start(digests in digests(), ms in 0u64..30_000) {
            let config = EpochConfig::default();
            let weight = |ms| {
                let mut all = digests.clone();
                all[0].member_for = Duration::from_millis(ms);
                u64::from(Epoch::plan(1, &all, &config).weight(all[0].node))
            };
            prop_assert!(weight(ms) <= weight(30_000) * ms / 30_000);
            prop_assert!(weight(ms) + 1 >= weight(30_000) * ms / 30_000);
        }

        #[test]
        fn the_order_of_the_nodes_does_not_matter(digests in digests()) {
            let config = EpochConfig::default();
            let mut reversed = digests.clone();
            reversed.reverse();
            prop_assert_eq!(Epoch::plan(1, &digests, &config), Epoch::plan(1, &reversed, &config));
        }

        /// K idle nodes with as many free frames each as they like: weights are in their proportion, while no cap
        /// holds.
        #[test]
        fn weights_are_in_proportion_to_free_frames(free in prop::collection::vec(1u32..2000, 5..9)) {
            let all: Vec<Digest> = (1..).zip(&free).map(|(node, free)| digest(node, *free, &[])).collect();
            let config = EpochConfig { weight_percent_max: 100, ..EpochConfig::default() };
            let epoch = Epoch::plan(1, &all, &config);
            let sum: u64 = free.iter().map(|free| u64::from(*free)).sum();
            let m = sum / config.share;
            for digest in &all {
                let exact = u64::from(digest.free) * m / sum;
                let weight = u64::from(epoch.weight(digest.node));
                prop_assert!(weight == exact || weight == exact + 1, "{weight} {exact}");
            }
            prop_assert_eq!(epoch.min_age, if m > 0 { Age::OLDEST } else { Age::NEWEST });
        }
    }

    /// The oldest frames of all are found, and the least age of their bucket.
    #[test]
    fn the_oldest_frames_make_the_weights() {
        let busy = |node| digest(node, 0, &[(1 << 10, 1000)]);
        let idle = digest(3, 0, &[(1 << 20, 1000)]);
        let config = EpochConfig { weight_percent_max: 100, ..EpochConfig::default() };
        let epoch = Epoch::plan(1, &[busy(1), busy(2), idle], &config);
        assert_eq!(epoch.min_age, Age(1 << 19));
        assert_eq!([1, 2, 3].map(|n| epoch.weight(NodeId(n))), [0, 0, 187]);
        assert_eq!(epoch.next, NodeId(3));
    }

    #[test]
    fn who_has_its_guaranteed_frames_only_has_no_weight() {
        let small = Digest { local_min: 1000, ..digest(1, 0, &[(1 << 30, 1000)]) };
        let epoch = Epoch::plan(1, &[small, digest(2, 0, &[(5, 1000)])], &EpochConfig::default());
        assert_eq!(epoch.weight(NodeId(1)), 0);
        assert_eq!(epoch.min_age, Age(2));
    }

    #[test]
    fn without_frames_nothing_is_worth_sending() {
        assert_eq!(Epoch::plan(1, &[digest(1, 0, &[])], &EpochConfig::default()).min_age, Age(0));
        assert!(Epoch::plan(1, &[], &EpochConfig::default()).shares.is_empty());
    }
}
