//! The states of a payload buffer (forwarding paper, Table 3), found by trying every operation of the cache in every
//! state that can be reached.

use crate::constants::Constants;
use crate::report::Drawing;
use crate::report::svg::{Arrow, Boxes, Node, Words};
use nic::{Buffers, CacheConfig, PayloadCache, Reuse, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Operations on a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Attach,
    SourceDone,
    SinkDone,
    Use,
    Invalidate,
}

const OPERATIONS: [Operation; 5] = [
    Operation::Attach,
    Operation::SourceDone,
    Operation::SinkDone,
    Operation::Use,
    Operation::Invalidate,
];

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Attach => "attach",
            Operation::SourceDone => "source done",
            Operation::SinkDone => "sink done",
            Operation::Use => "use",
            Operation::Invalidate => "invalidate",
        }
    }
}

/// One buffer that is received into and one for sends.
const SHAPE: CacheConfig =
    CacheConfig { entries: 2, send_segment: 1, small_segment: 0, small_bytes: 0 };
const BUFFER: u16 = 1;
const ADDRESS: u64 = 4_096;

/// A state with its transfers to come, by number so that it has an order.
type StateKey = (usize, u8);

const STATES: [State; 4] = [State::Free, State::Fill, State::Drain, State::Valid];

fn place(cache: &PayloadCache) -> StateKey {
    let state = cache.state(BUFFER);
    let number = STATES.iter().position(|known| *known == state).expect("one of the four");
    (number, cache.pending(BUFFER))
}

/// The cache after these operations; `None` where the last one has to wait, or cannot happen.
fn after(operations: &[Operation]) -> Option<PayloadCache> {
    let mut cache = PayloadCache::new(Buffers::Cache(SHAPE));
    for operation in operations {
        let (state, binding) = (cache.state(BUFFER), cache.binding(BUFFER)?);
        let is_known = state != State::Free;
        match operation {
            Operation::Attach => {
                cache.attach_receive(ADDRESS, 4_096).ok()?;
            }
            Operation::SourceDone if state == State::Fill => cache.source_done(BUFFER),
            Operation::SinkDone if state == State::Drain => cache.sink_done(BUFFER),
            Operation::Use if is_known => {
                cache.attach_send(ADDRESS, Reuse::Use(binding)).ok()?;
            }
            Operation::Invalidate if is_known => {
                cache.attach_send(ADDRESS, Reuse::Invalidate(binding)).ok()?;
            }
            _ => return None,
        }
    }
    Some(cache)
}

/// Every step from every place that can be reached.
fn explore() -> BTreeSet<(StateKey, Operation, StateKey)> {
    let mut steps = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut next = VecDeque::from([Vec::new()]);
    while let Some(way) = next.pop_front() {
        let from = place(&after(&way).expect("a way that was gone"));
        if !seen.insert(from) {
            continue;
        }
        for operation in OPERATIONS {
            let longer = [&way[..], &[operation]].concat();
            if let Some(cache) = after(&longer) {
                steps.insert((from, operation, place(&cache)));
                next.push_back(longer);
            }
        }
    }
    steps
}

/// Table 3 with what leads from one state to the next.
pub fn states(_: &Constants) -> Drawing {
    let steps = explore();
    let nodes = (0..STATES.len()).map(|state| node(state, &steps)).collect();
    let mut labels: BTreeMap<(usize, usize), BTreeSet<Operation>> = BTreeMap::new();
    for ((from, _), operation, (to, _)) in &steps {
        labels.entry((*from, *to)).or_default().insert(*operation);
    }
    let (stays, leaves): (Vec<_>, Vec<_>) =
        labels.into_iter().partition(|((from, to), _)| from == to);
    let arrows = leaves.iter().map(|((from, to), names)| arrow(*from, *to, &joined(names)));
    let words = stays.iter().map(|((state, _), names)| Words {
        at: (AT[*state].0, AT[*state].1 + 46.0),
        text: format!("stays: {}", joined(names)),
    });
    Drawing::Boxes(Boxes { height: 230.0, nodes, arrows: arrows.collect(), words: words.collect() })
}

/// Where the states stand.
const AT: [(f64, f64); 4] = [(100.0, 90.0), (300.0, 90.0), (500.0, 90.0), (690.0, 90.0)];

fn node(state: usize, steps: &BTreeSet<(StateKey, Operation, StateKey)>) -> Node {
    let places = steps.iter().flat_map(|(from, _, to)| [from, to]);
    let pending: BTreeSet<u8> =
        places.filter(|place| place.0 == state).map(|place| place.1).collect();
    let pending: Vec<String> = pending.iter().map(u8::to_string).collect();
    let valid = matches!(STATES[state], State::Drain | State::Valid);
    let lines = vec![
        format!("{:?}", STATES[state]).to_lowercase(),
        if valid { "valid" } else { "not valid" }.to_string(),
        format!("{} to come", pending.join(" or ")),
    ];
    Node { at: AT[state], size: (110.0, 64.0), lines, colour: Some(state) }
}

/// To the next state straight; back by one state in a bow above, further back in one below.
fn arrow(from: usize, to: usize, label: &str) -> Arrow {
    let (bend, label_at) = match from as i64 - to as i64 {
        -1 => (0.0, (0.0, -9.0)),
        1 => (-40.0, (0.0, -9.0)),
        _ => (95.0, (0.0, 18.0)),
    };
    Arrow { from, to, label: label.to_string(), bend, label_at }
}

fn joined(names: &BTreeSet<Operation>) -> String {
    names.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 3: free and valid have nothing to come, fill and drain have; use and attach go by section 3.1.
    #[test]
    fn the_states_are_those_of_table_3() {
        let [free, fill, drain, valid] = [0, 1, 2, 3];
        let steps = explore();
        let places: BTreeSet<StateKey> =
            steps.iter().flat_map(|(from, _, to)| [*from, *to]).collect();
        let expected = [(free, 0), (fill, 2), (drain, 1), (drain, 2), (valid, 0)];
        assert_eq!(places, BTreeSet::from(expected));
        let to = |from: StateKey, operation: Operation| {
            steps.iter().find(|step| (step.0, step.1) == (from, operation)).map(|step| step.2)
        };
        assert_eq!(to((fill, 2), Operation::Use), None, "what is being filled is not sent");
        assert_eq!(to((drain, 1), Operation::Use), Some((drain, 2)));
        assert_eq!(to((drain, 1), Operation::Invalidate), None, "only when nothing is to come");
        assert_eq!(to((valid, 0), Operation::Invalidate), Some((fill, 2)));
    }
}
