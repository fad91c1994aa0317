//! What a run says at its end: which jobs were longest, and where the processors' time went.

use crate::run::Outcome;
use crate::usage::Processors;
use std::cmp::Reverse;
use std::fmt::{Display, Formatter};
use std::time::{Duration, Instant};

/// Jobs that are named at the end.
const NAMED: usize = 10;

/// A job that has ended.
pub struct Done {
    pub what: String,
    pub outcome: Outcome,
    pub took: Duration,
}

impl Display for Done {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let [took, cpu] = [self.took, self.outcome.cpu].map(|span| span.as_secs_f64());
        write!(f, "{}: {took:.1} s, {cpu:.1} s of a processor", self.what)
    }
}

/// The clocks at the beginning.
pub struct Clocks {
    start: Instant,
    processors: Processors,
}

impl Clocks {
    pub fn now() -> Clocks {
        Clocks { start: Instant::now(), processors: Processors::now() }
    }

    /// How long it took until now, and how busy the machine was.
    pub fn told(&self) -> String {
        let busy = Processors::now().busy_since(self.processors);
        format!("{:.0} s, processors busy for {busy} %", self.start.elapsed().as_secs_f64())
    }
}

/// The longest jobs, those that used most processor time, and the sums.
pub fn lines(done: &[Done]) -> Vec<String> {
    let mut order: Vec<&Done> = done.iter().collect();
    let sum = |span: fn(&Done) -> Duration| done.iter().map(span).sum::<Duration>().as_secs_f64();
    let (took, cpu) = (sum(|done| done.took), sum(|done| done.outcome.cpu));
    let mut lines = vec!["longest:".to_string()];
    order.sort_by_key(|done| Reverse(done.took));
    lines.extend(order.iter().take(NAMED).map(|done| format!("   {done}")));
    lines.push("most of the processors:".to_string());
    order.sort_by_key(|done| Reverse(done.outcome.cpu));
    lines.extend(order.iter().take(NAMED).map(|done| format!("   {done}")));
    lines.push(format!("{} jobs: {took:.0} s, {cpu:.0} s of processors", done.len()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_the_most_expensive_jobs_are_named() {
        let done = |number: u64, took: u64, cpu: u64| {
            let outcome = Outcome { cpu: Duration::from_secs(cpu), ..Outcome::default() };
            Done { what: format!("job {number}"), outcome, took: Duration::from_secs(took) }
        };
        let done: Vec<Done> = (0..12).map(|number| done(number, number, 12 - number)).collect();
        let lines = lines(&done);
        assert_eq!(lines.len(), 2 * (1 + NAMED) + 1);
        assert_eq!(lines[1], "   job 11: 11.0 s, 1.0 s of a processor");
        assert_eq!(lines[NAMED + 2], "   job 0: 0.0 s, 12.0 s of a processor");
        assert_eq!(lines[2 * NAMED + 2], "12 jobs: 66 s, 78 s of processors");
    }
}
