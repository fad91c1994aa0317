//! A log of what engines did, as stripes and as a trace: both pictures of one run.

use super::perfetto::Trace;
use super::svg::{Lane, Span, Stripes};
use sim::queue::Picos;

/// One transfer, or whatever else an engine was busy with.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    /// The machine.
    pub machine: String,
    /// The engine; of one machine and engine no two overlap.
    pub engine: String,
    /// Its kind: control message, payload, instructions. Kinds have colours.
    pub kind: String,
    /// When it began.
    pub start: Picos,
    /// When it ended.
    pub end: Picos,
    /// Which packet, for example; written on the stripe where there is room.
    pub label: String,
    /// Details that a trace shows when it is selected: bytes, for example.
    pub details: Vec<(&'static str, String)>,
}

/// A lane for each machine and engine, in the order of their first activities; times from the first of all.
pub fn stripes(log: &[Activity]) -> Stripes {
    let origin = log.iter().map(|activity| activity.start).min().unwrap_or_default();
    let mut stripes = Stripes { lanes: Vec::new(), kinds: Vec::new() };
    for activity in log {
        let kind =
            position(&mut stripes.kinds, |kind| *kind == activity.kind, || activity.kind.clone());
        let name = format!("{} {}", activity.machine, activity.engine).trim().to_string();
        let lane = position(
            &mut stripes.lanes,
            |lane| lane.name == name,
            || Lane { name: name.clone(), spans: Vec::new() },
        );
        let (start, end) = (activity.start - origin, activity.end - origin);
        stripes.lanes[lane].spans.push(Span { start, end, kind, label: activity.label.clone() });
    }
    stripes
}

/// A track for each engine, in a process for each machine.
pub fn trace(log: &[Activity]) -> Trace {
    let mut trace = Trace::default();
    for activity in log {
        let track = trace.track(&activity.machine, &activity.engine);
        let mut details = vec![("label", activity.label.clone())];
        details.extend(activity.details.iter().cloned());
        trace.slice(track, &activity.kind, (activity.start, activity.end), &details);
    }
    trace
}

/// The place of the one that fits, which is added when there is none.
fn position<T>(list: &mut Vec<T>, fits: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
    list.iter().position(fits).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    })
}
