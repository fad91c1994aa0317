//! Destination of a page that its node evicts: a policy, so that several can be compared; random numbers are arguments.

use crate::ages::Age;
use crate::epoch::{Epoch, Share};
use wire::NodeId;

/// How a node is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A lottery by the epoch's weights (SOSP'95).
    Gms,
    /// Two lotteries, and of both nodes the one with the older frame; neither, when the page is older than both.
    #[default]
    BestOfTwo,
    /// Any other node: a baseline.
    Random,
    /// Any other node, for a page that is nowhere else, so many times in a row (Dahlin and others, OSDI'94): a
    /// baseline.
    NChance,
}

/// Attributes of a page that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its effective age.
    pub age: Age,
    /// It was used again since it was read from disk.
    pub reused: bool,
    /// Another node has a copy, as far as is known.
    pub duplicate: bool,
    /// Times that it may still be passed on without a use.
    pub chances: u8,
}

impl Policy {
    /// The node that is offered the page; `None` when it is dropped. `refused` has just refused it. The same `draws`
    /// give the same answer.
    pub fn target(
        self,
        epoch: &Epoch,
        me: NodeId,
        refused: Option<NodeId>,
        page: Leaving,
        draws: [u64; 2],
    ) -> Option<NodeId> {
        let others = |share: &&Share| share.node != me && Some(share.node) != refused;
        let ask = Ask { epoch, others, page, draws };
        match self {
            Policy::Gms => ask.gms(),
            Policy::BestOfTwo => ask.best_of_two(),
            Policy::Random => ask.any(),
            Policy::NChance => ask.n_chance(),
        }
    }
}

struct Ask<'a, F> {
    epoch: &'a Epoch,
    others: F,
    page: Leaving,
    draws: [u64; 2],
}

impl<F: Fn(&&Share) -> bool + Copy> Ask<'_, F> {
    fn others(&self) -> impl Iterator<Item = &Share> {
        self.epoch.shares.iter().filter(self.others)
    }

    /// Whether the page is worth a place elsewhere. A copy of what another node has is not.
    ///
    /// One that was used once displaces only what is much older; while a node has free frames it displaces nothing.
    fn is_worth_it(&self) -> bool {
        let Leaving { age, reused, duplicate, .. } = self.page;
        let displaces = !self.others().any(|share| share.oldest == Age::OLDEST);
        let age = age.of_use(reused || !displaces);
        age < self.epoch.min_age && !duplicate
    }

    fn gms(&self) -> Option<NodeId> {
        if !self.is_worth_it() {
            return None;
        }
        Some(self.lottery(self.draws[0])?.node)
    }

    fn best_of_two(&self) -> Option<NodeId> {
        if !self.is_worth_it() {
            return None;
        }
        let (one, other) = (self.lottery(self.draws[0])?, self.lottery(self.draws[1])?);
        let best = if other.oldest > one.oldest { other } else { one };
        (best.oldest >= self.page.age.of_use(self.page.reused)).then_some(best.node)
    }

    fn any(&self) -> Option<NodeId> {
        let count = self.others().count() as u64;
        let drawn = scaled(self.draws[0], count) as usize;
        self.others().nth(drawn).map(|share| share.node)
    }

    fn n_chance(&self) -> Option<NodeId> {
        let passes = self.page.chances > 0 && !self.page.duplicate;
        if passes { self.any() } else { None }
    }

    /// A node, with its weight as probability.
    fn lottery(&self, draw: u64) -> Option<&Share> {
        let weights = self.others().map(|share| u64::from(share.weight)).sum();
        let mut drawn = scaled(draw, weights);
        self.others().find(|share| {
            let wins = drawn < u64::from(share.weight);
            drawn = drawn.saturating_sub(share.weight.into());
            wins
        })
    }
}

/// A random number below `below`, from 64 random bits.
fn scaled(draw: u64, below: u64) -> u64 {
    (u128::from(draw) * u128::from(below) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::mix;

    fn epoch(shares: &[(u32, u64)]) -> Epoch {
        let share = |(node, (weight, oldest)): (u16, &(u32, u64))| Share {
            node: NodeId(node),
            weight: *weight,
            oldest: Age(*oldest),
        };
        let shares = (1..).zip(shares).map(share).collect();
        Epoch { number: 1, min_age: Age(1000), shares, ..Epoch::default() }
    }

    fn page(age: u64) -> Leaving {
        Leaving { age: Age(age), reused: true, duplicate: false, chances: 2 }
    }

    fn draws(number: u64) -> [u64; 2] {
        [mix(number), mix(!number)]
    }

    const ALL: [Policy; 4] = [Policy::Gms, Policy::BestOfTwo, Policy::Random, Policy::NChance];

    proptest! {
        /// K idle nodes, one active: pages go to them in proportion to their weights, within five standard deviations.
        #[test]
        fn the_lottery_is_fair(weights in prop::collection::vec(0u32..1000, 2..9), seed: u64) {
            let shares: Vec<(u32, u64)> = weights.iter().map(|weight| (*weight, 5000)).collect();
            let (epoch, me) = (epoch(&shares), NodeId(1));
            let all: u32 = weights[1..].iter().sum();
            let pages = 2000;
            let mut got = vec![0u32; weights.len()];
            for number in 0..pages {
                let draws = draws(mix(seed).wrapping_add(number));
                let target = Policy::Gms.target(&epoch, me, None, page(10), draws);
                prop_assert_eq!(target.is_some(), all > 0);
                target.into_iter().for_each(|node| got[usize::from(node.0) - 1] += 1);
            }
            prop_assert_eq!(got[0], 0);
            for (weight, got) in weights.iter().zip(got).skip(1) {
                let part = f64::from(*weight) / f64::from(all.max(1));
                let expected = part * pages as f64;
                let deviation = (expected * (1.0 - part)).sqrt();
                prop_assert!((f64::from(got) - expected).abs() <= 5.0 * deviation, "{got} of {expected}");
            }
        }

        /// Never to itself, never to whom has refused, never to a weightless node but by the baselines.
        #[test]
        fn a_target_is_another_node(
            shares in prop::collection::vec((0u32..3, 0u64..2000), 1..6),
            age in 0u64..2000,
            number in any::<u64>(),
            refused in 0u16..6,
        ) {
            let epoch = epoch(&shares);
            for policy in ALL {
                let refused = NodeId(refused);
                let draws = draws(number >> 1);
                let target = policy.target(&epoch, NodeId(1), Some(refused), page(age), draws);
                let Some(target) = target else { continue };
                prop_assert!(target != NodeId(1) && target != refused);
                let share = *epoch.share(target).unwrap();
                let by_weight = matches!(policy, Policy::Gms | Policy::BestOfTwo);
                prop_assert!(!by_weight || (share.weight > 0 && age < 1000));
                prop_assert!(policy != Policy::BestOfTwo || share.oldest >= Age(age));
            }
        }
    }

    #[test]
    fn old_pages_and_duplicates_go_nowhere() {
        let epoch = epoch(&[(0, 0), (5, 5000)]);
        let target = |policy: Policy, page| policy.target(&epoch, NodeId(1), None, page, [7, 7]);
        let duplicate = Leaving { duplicate: true, ..page(10) };
        let worn = Leaving { chances: 0, ..page(10) };
        let sent = |page| ALL.map(|policy| target(policy, page).is_some());
        assert_eq!(sent(page(999)), [true; 4]);
        assert_eq!(sent(page(1000)), [false, false, true, true]);
        assert_eq!(sent(duplicate), [false, false, true, false]);
        assert_eq!(sent(worn), [true, true, true, false]);
    }

    #[test]
    fn of_two_the_one_with_the_older_frame_is_taken() {
        let epoch = epoch(&[(0, 0), (1, 50), (1, 500)]);
        let target =
            |age, draws| Policy::BestOfTwo.target(&epoch, NodeId(1), None, page(age), draws);
        assert_eq!(target(10, [0, u64::MAX]), Some(NodeId(3)));
        assert_eq!(target(10, [u64::MAX, 0]), Some(NodeId(3)));
        assert_eq!(target(10, [0, 0]), Some(NodeId(2)));
        assert_eq!(target(51, [0, 0]), None);
    }
}
