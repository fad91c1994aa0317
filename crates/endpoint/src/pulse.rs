//! The pulse decision: when bytes that are arriving from one stage move on to the next (HotI'99 section 2.3,
//! adaptive message pipelining). It is the only such decision in the project; every link and device calls it.

/// When a sink that could take bytes should take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// Only whole payloads (store and forward).
    Whole,
    /// Pieces of exactly this many bytes, and the rest at the end.
    Fixed(usize),
    /// All buffered bytes, once there are at least so many; whole payloads when more messages are queued.
    Adaptive {
        /// Fewest bytes worth a transfer of their own.
        minimum: usize,
    },
}

/// The input of a stage's decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of this payload that came from the source and have not moved on.
    pub buffered: usize,
    /// Whether the source has delivered all of it.
    pub complete: bool,
    /// Whether the sink can start at once.
    pub idle: bool,
    /// Messages that wait behind this one.
    pub queued: usize,
}

impl Pulse {
    /// Bytes to move now; 0 is wait. Never more than are buffered; a complete payload's tail always moves.
    pub fn decide(self, backlog: Backlog) -> usize {
        let Backlog { buffered, complete, idle, queued } = backlog;
        if !idle || buffered == 0 {
            return 0;
        }
        match self {
            Pulse::Whole if !complete => 0,
            Pulse::Fixed(size) if buffered >= size => size.max(1),
            Pulse::Adaptive { minimum } if buffered >= minimum && queued == 0 => buffered,
            _ if complete => buffered,
            _ => 0,
        }
    }

    /// Fewest buffered bytes of a payload that is not complete for which an idle sink starts, with nothing queued;
    /// `None` is that it waits for the end. A poller of the source's counter may sleep until then.
    pub fn least(self) -> Option<usize> {
        match self {
            Pulse::Whole => None,
            Pulse::Fixed(size) => Some(size.max(1)),
            Pulse::Adaptive { minimum } => Some(minimum.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADAPTIVE: Pulse = Pulse::Adaptive { minimum: 512 };

    #[test]
    fn adaptive_moves_all_that_is_buffered_or_waits() {
        let backlog = Backlog { buffered: 700, complete: false, idle: true, queued: 0 };
        assert_eq!(ADAPTIVE.decide(backlog), 700);
        assert_eq!(ADAPTIVE.decide(Backlog { buffered: 511, ..backlog }), 0);
        assert_eq!(ADAPTIVE.decide(Backlog { queued: 2, ..backlog }), 0);
        assert_eq!(ADAPTIVE.decide(Backlog { buffered: 3, complete: true, ..backlog }), 3);
        assert_eq!(Pulse::Fixed(100).decide(backlog), 100);
        assert_eq!(Pulse::Whole.decide(backlog), 0);
    }

    proptest! {
        /// A sink starts at `least` bytes, and before that waits.
        #[test]
        fn least_is_where_the_decision_changes(policy in prop_oneof![
            Just(Pulse::Whole), (0usize..5000).prop_map(Pulse::Fixed), (0usize..5000).prop_map(|minimum| Pulse::Adaptive { minimum }),
        ], buffered in 0usize..10_000) {
            let backlog = Backlog { buffered, complete: false, idle: true, queued: 0 };
            let starts = policy.least().is_some_and(|least| buffered >= least);
            prop_assert_eq!(policy.decide(backlog) > 0, starts);
        }

        /// Any policy: a sink never overruns its source, and every payload ends.
        #[test]
        fn all_bytes_move_and_none_twice(policy in prop_oneof![
            Just(Pulse::Whole), (1usize..5000).prop_map(Pulse::Fixed), (0usize..5000).prop_map(|minimum| Pulse::Adaptive { minimum }),
        ], arrivals in prop::collection::vec(1usize..3000, 1..20), queued in 0usize..3) {
            let total: usize = arrivals.iter().sum();
            let (mut arrived, mut moved) = (0, 0);
            for piece in arrivals.into_iter().chain(std::iter::repeat_n(0, total)) {
                arrived += piece;
                let backlog = Backlog { buffered: arrived - moved, complete: arrived == total, idle: true, queued };
                moved += policy.decide(backlog);
                prop_assert!(moved <= arrived);
                if moved == total { break; }
            }
            prop_assert_eq!(moved, total);
        }
    }
}
