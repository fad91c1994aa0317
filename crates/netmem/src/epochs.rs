//! A node's place in the sequence of epochs: which one holds, when it ends, who plans the next.

use crate::ages::Age;
use crate::epoch::{Epoch, EpochConfig};
use crate::limits::{OFFERS_MIN, REFUSED_PERCENT_MAX, SILENT_EPOCHS};
use wire::{NodeId, Time};

/// Whether a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Pages go where the epoch says.
    Cluster,
    /// No epoch was heard of for three of them: pages go nowhere.
    Local,
}

/// Why an epoch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has lasted long enough.
    Elapsed,
    /// This node, which is to plan the next one, has taken in its weight: about all replacements are made.
    Spent,
    /// Pages were refused that should have been taken: the ages are not what they were.
    Inaccurate,
}

/// A node's state in the sequence of epochs.
#[derive(Debug)]
pub struct Epochs {
    me: NodeId,
    config: EpochConfig,
    current: Epoch,
    since: Time,
    taken: u32,
    offered: u32,
    refused: u32,
    /// Another node has found the ages wrong.
    inaccurate: bool,
}

impl Epochs {
    /// Before the first epoch, from `now` on.
    pub fn new(me: NodeId, config: EpochConfig, now: Time) -> Epochs {
        let current = Epoch::default();
        Epochs {
            me,
            config,
            current,
            since: now,
            taken: 0,
            offered: 0,
            refused: 0,
            inaccurate: false,
        }
    }

    /// The epoch that holds; number 0 before the first.
    pub fn current(&self) -> &Epoch {
        &self.current
    }

    /// Whether this node sends pages away.
    pub fn mode(&self, now: Time) -> Mode {
        let silent = now.since(self.since) > self.config.period * SILENT_EPOCHS;
        if self.current.number == 0 || silent { Mode::Local } else { Mode::Cluster }
    }

    /// A broadcast arrived. Late and repeated ones change nothing; says whether this one did.
    pub fn handle_epoch(&mut self, now: Time, epoch: Epoch) -> bool {
        if epoch.number <= self.current.number {
            return false;
        }
        (self.current, self.since) = (epoch, now);
        (self.taken, self.offered, self.refused) = (0, 0, 0);
        self.inaccurate = false;
        true
    }

    /// This node took in a page.
    pub fn handle_taken(&mut self) {
        self.taken += 1;
    }

    /// Another node answered this node's page: it took it, or not, and said how old its next frame is.
    pub fn handle_answer(&mut self, from: NodeId, taken: bool, oldest: Age) {
        self.offered += 1;
        self.refused += u32::from(!taken);
        self.current.handle_advertised(from, oldest);
    }

    /// Another node says that pages were refused that should have been taken.
    pub fn handle_inaccurate(&mut self) {
        self.inaccurate = true;
    }

    /// Why a new epoch is due. Elapsed and spent ones concern the initiator; every node tells it of an inaccurate one.
    pub fn ending(&self, now: Time) -> Option<Ending> {
        let refused = self.refused * 100 > self.offered * REFUSED_PERCENT_MAX;
        if now.since(self.since) >= self.config.period {
            return Some(Ending::Elapsed);
        }
        if self.inaccurate || (self.offered >= OFFERS_MIN && refused) {
            return Some(Ending::Inaccurate);
        }
        let weight = self.current.weight(self.me);
        let spent = self.current.next == self.me && weight > 0 && self.taken >= weight;
        spent.then_some(Ending::Spent)
    }

    /// The planner of the next epoch: the node that this one names, while it is alive and not twice an epoch late; else
    /// the first of `live` nodes, which are in the order of their numbers.
    pub fn initiator(&self, now: Time, live: &[NodeId]) -> Option<NodeId> {
        let named = self.current.next;
        let late = now.since(self.since) > self.config.period * 2;
        if live.contains(&named) && !late { Some(named) } else { live.first().copied() }
    }

    /// The number of the next epoch.
    pub fn next_number(&self) -> u32 {
        self.current.number + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Share;
    use std::time::Duration;

    const ME: NodeId = NodeId(2);

    fn epoch(number: u32, weight: u32) -> Epoch {
        let shares = vec![Share { node: ME, weight, oldest: Age(9) }];
        Epoch { number, next: ME, min_age: Age(5), replacements: weight, shares }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn epochs() -> Epochs {
        let mut epochs = Epochs::new(ME, EpochConfig::default(), Time::ZERO);
        assert!(epochs.handle_epoch(at(100), epoch(4, 2)));
        epochs
    }

    #[test]
    fn a_node_that_hears_of_no_epoch_keeps_to_itself() {
        let silent = Epochs::new(ME, EpochConfig::default(), Time::ZERO);
        assert_eq!(silent.mode(Time::ZERO), Mode::Local);
        let epochs = epochs();
        assert_eq!(epochs.mode(at(3_100)), Mode::Cluster);
        assert_eq!(epochs.mode(at(3_101)), Mode::Local);
    }

    #[test]
    fn late_and_repeated_epochs_change_nothing() {
        let mut epochs = epochs();
        epochs.handle_taken();
        assert!(!epochs.handle_epoch(at(200), epoch(4, 9)));
        assert!(!epochs.handle_epoch(at(200), epoch(3, 9)));
        assert_eq!((epochs.current().weight(ME), epochs.taken), (2, 1));
        assert!(epochs.handle_epoch(at(200), epoch(5, 9)));
        assert_eq!((epochs.current().weight(ME), epochs.taken), (9, 0));
    }

    #[test]
    fn an_epoch_ends_by_time_or_when_its_weight_is_taken() {
        let mut epochs = epochs();
        epochs.handle_taken();
        assert_eq!(epochs.ending(at(1_099)), None);
        assert_eq!(epochs.ending(at(1_100)), Some(Ending::Elapsed));
        epochs.handle_taken();
        assert_eq!(epochs.ending(at(200)), Some(Ending::Spent));
    }

    #[test]
    fn refusals_end_an_epoch() {
        let mut epochs = epochs();
        (0..90).for_each(|_| epochs.handle_answer(ME, true, Age(8)));
        (0..10).for_each(|_| epochs.handle_answer(ME, false, Age(7)));
        assert_eq!(epochs.ending(at(200)), None);
        epochs.handle_answer(ME, false, Age(6));
        assert_eq!(epochs.ending(at(200)), Some(Ending::Inaccurate));
        assert_eq!(epochs.current().share(ME).map(|share| share.oldest), Some(Age(6)));
    }

    #[test]
    fn an_initiator_that_is_dead_or_late_is_replaced() {
        let (epochs, live) = (epochs(), [NodeId(1), ME, NodeId(3)]);
        assert_eq!(epochs.initiator(at(2_100), &live), Some(ME));
        assert_eq!(epochs.initiator(at(2_101), &live), Some(NodeId(1)));
        assert_eq!(epochs.initiator(at(200), &[NodeId(3)]), Some(NodeId(3)));
        assert_eq!(epochs.initiator(at(200), &[]), None);
    }
}
