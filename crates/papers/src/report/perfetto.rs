//! Traces that open in Perfetto (ui.perfetto.dev) and in chrome://tracing: Chrome's JSON, one track for each engine.
//!
//! Times are microseconds with six decimals, which are the simulator's picoseconds without loss.

use super::svg::Stripes;
use sim::queue::Picos;
use std::fmt::Write;

/// A trace under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Process and name of each track; the processes' numbers follow their first appearance.
    tracks: Vec<(String, String)>,
    events: String,
    processes: Vec<String>,
}

/// A track of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(usize);

impl Trace {
    /// The track `name`, an engine for example, of `process`, its machine for example. The same pair is the same track.
    pub fn track(&mut self, process: &str, name: &str) -> Track {
        let wanted = |track: &(String, String)| track.0 == process && track.1 == name;
        if let Some(at) = self.tracks.iter().position(wanted) {
            return Track(at);
        }
        if !self.processes.iter().any(|known| known == process) {
            self.processes.push(process.to_string());
        }
        self.tracks.push((process.to_string(), name.to_string()));
        Track(self.tracks.len() - 1)
    }

    /// Something that took from `start` to `end`, with what is shown when it is selected.
    pub fn slice(
        &mut self,
        track: Track,
        name: &str,
        span: (Picos, Picos),
        details: &[(&str, String)],
    ) {
        let (start, end) = span;
        let last = format!("\"dur\":{}", micros(end.since(start)));
        self.event("X", track, name, start, &last, details);
    }

    /// Something that happened at `at`.
    pub fn instant(&mut self, track: Track, name: &str, at: Picos, details: &[(&str, String)]) {
        self.event("i", track, name, at, "\"s\":\"t\"", details);
    }

    /// A value that holds from `at` on, drawn as a curve of the track's process.
    pub fn counter(&mut self, track: Track, name: &str, at: Picos, value: u64) {
        let (process, _) = self.numbers(track.0);
        let (name, at) = (text(name), micros(at));
        let line = format!(
            "{{\"ph\":\"C\",\"pid\":{process},\"name\":{name},\"ts\":{at},\"args\":{{\"value\":{value}}}}}"
        );
        self.events.push_str(&format!(",\n{line}"));
    }

    fn event(
        &mut self,
        phase: &str,
        track: Track,
        name: &str,
        at: Picos,
        last: &str,
        details: &[(&str, String)],
    ) {
        let (process, thread) = self.numbers(track.0);
        let (name, at) = (text(name), micros(at));
        let details: Vec<String> =
            details.iter().map(|(key, value)| format!("{}:{}", text(key), text(value))).collect();
        write!(
            self.events,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"name\":{name},\"ts\":{at},{last},\
             \"args\":{{{}}}}}",
            details.join(",")
        )
        .expect("a string takes everything");
    }

    /// Numbers of a track's process and of the track in the file; from 1.
    fn numbers(&self, track: usize) -> (usize, usize) {
        let process = self.processes.iter().position(|known| *known == self.tracks[track].0);
        (process.map_or(0, |at| at + 1), track + 1)
    }

    /// The file.
    pub fn json(&self) -> String {
        let process = |(at, name): (usize, &String)| named("process_name", at + 1, 0, name);
        let track = |(at, (_, name)): (usize, &(String, String))| {
            let (process, thread) = self.numbers(at);
            named("thread_name", process, thread, name)
        };
        let mut names: Vec<String> = self.processes.iter().enumerate().map(process).collect();
        names.extend(self.tracks.iter().enumerate().map(track));
        let (names, events) = (names.join(",\n"), &self.events);
        let events = if names.is_empty() { events.trim_start_matches(",\n") } else { events };
        format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{names}{events}\n]}}\n")
    }
}

/// A diagram's lanes as tracks of one process.
impl From<&Stripes> for Trace {
    fn from(stripes: &Stripes) -> Trace {
        let mut trace = Trace::default();
        for lane in &stripes.lanes {
            let track = trace.track("figure", &lane.name);
            for span in &lane.spans {
                let details = [("label", span.label.clone())];
                trace.slice(track, &stripes.kinds[span.kind], (span.start, span.end), &details);
            }
        }
        trace
    }
}

fn named(what: &str, process: usize, thread: usize, name: &str) -> String {
    let name = text(name);
    format!(
        "{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}"
    )
}

fn micros(time: Picos) -> String {
    format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000)
}

fn text(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}
