//! Rounds of calls to servers in turns, and what comes of them.

use super::sides::Side;
use crate::arguments::{Nfs, NfsCalls, Placement};
use crate::pass::median;
use crate::protocols::place;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use live::clock;
use rustix::thread::CpuSet;
use serde_json::json;
use std::io;
use std::time::Duration;

/// Calls in progress.
pub const DEPTHS: [usize; 2] = [1, 16];

/// Results of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Calls a second.
    pub per_s: f64,
    /// The latency that 99 of 100 calls keep.
    pub p99_us: f64,
    /// Of the server, for each call.
    pub cpu_us: f64,
}

impl Figures {
    /// Of so many calls in that time, with so much processor time of the server.
    pub fn of(calls: usize, elapsed: Duration, cpu: Duration, times: &Histogram<u64>) -> Figures {
        Figures {
            per_s: calls as f64 / elapsed.as_secs_f64(),
            p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
            cpu_us: cpu.as_secs_f64() * 1e6 / calls as f64,
        }
    }
}

/// A row of the table: the rounds of each side.
pub struct Cell {
    /// For programs.
    pub what: &'static str,
    /// Of the calls.
    pub kind: NfsCalls,
    /// Of client and servers.
    pub placement: Placement,
    /// Calls in progress.
    pub depth: usize,
    /// Of the sides.
    pub names: Vec<&'static str>,
    /// Of each side.
    pub rounds: Vec<Vec<Figures>>,
}

impl Cell {
    /// Of a side, over its rounds.
    pub fn median(&self, side: usize, figure: fn(&Figures) -> f64) -> f64 {
        median(self.rounds[side].iter().map(figure).collect())
    }

    /// The median over the rounds of ours to the first of theirs.
    pub fn ratio(&self, figure: fn(&Figures) -> f64) -> Option<f64> {
        let theirs = self.rounds.get(1)?;
        let pairs = self.rounds[0].iter().zip(theirs);
        Some(median(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()))
    }

    /// The placement's name.
    pub fn place(&self) -> String {
        let placement = self.placement.to_possible_value().expect("none is hidden");
        placement.get_name().to_string()
    }

    /// For people.
    pub fn cells(&self) -> Vec<String> {
        let text = |side: usize, figure, digits: usize| match side < self.rounds.len() {
            true => format!("{:.digits$}", self.median(side, figure)),
            false => "-".to_string(),
        };
        let ratio =
            |figure| self.ratio(figure).map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
        let what = format!("{}, {}, {}", self.kind.name(), self.place(), self.depth);
        let rates = (0..3).map(|side| text(side, |f| f.per_s, 0));
        let cpu = (0..2).map(|side| text(side, |f| f.cpu_us, 1));
        let late = (0..2).map(|side| text(side, |f| f.p99_us, 0));
        let mut cells: Vec<String> = [what].into_iter().chain(rates).collect();
        cells.push(ratio(|f| f.per_s));
        cells.extend(cpu);
        cells.push(ratio(|f| 1.0 / f.cpu_us));
        cells.extend(late);
        cells
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let sides = self.names.iter().enumerate().map(|(side, name)| {
            json!({ "server": name, "calls_per_s": self.median(side, |f| f.per_s),
                "p99_us": self.median(side, |f| f.p99_us), "server_cpu_us": self.median(side, |f| f.cpu_us) })
        });
        json!({ "name": self.what, "kind": self.kind.name(), "placement": self.place(), "depth": self.depth,
            "servers": sides.collect::<Vec<_>>(), "rate_ratio": self.ratio(|f| f.per_s),
            "calls_per_cpu_second_ratio": self.ratio(|f| 1.0 / f.cpu_us) })
    }
}

/// All that is measured, and how far it has come.
pub struct Run<'a> {
    /// For programs.
    pub what: &'static str,
    /// The command's arguments.
    pub arguments: &'a Nfs,
    /// Processors that there are.
    pub all: CpuSet,
    /// The sides compared.
    pub sides: Vec<&'a mut Side>,
    /// Names of CREATE so far.
    pub made: usize,
}

impl Run<'_> {
    /// CREATE's names go by REMOVE, which follows it with the same numbers.
    pub fn cell(&mut self, kind: NfsCalls, placement: Placement, depth: usize) -> io::Result<Cell> {
        let rounds = self.arguments.rounds as usize;
        let count = kind.count(self.arguments);
        let names = self.sides.iter().map(|side| side.name).collect();
        let (what, none) = (self.what, vec![Vec::new(); self.sides.len()]);
        let mut cell = Cell { what, kind, placement, depth, names, rounds: none };
        let (client, server) = placement.sets(&self.all);
        for round in 0..rounds {
            for (side, figures) in self.sides.iter_mut().zip(&mut cell.rounds) {
                side.place(&server)?;
                place(None, &client)?;
                figures.push(measured(side, kind, depth, (self.made + round * count, count))?);
            }
        }
        self.made += if kind == NfsCalls::Remove { rounds * count } else { 0 };
        Ok(cell)
    }
}

fn measured(
    side: &mut Side,
    kind: NfsCalls,
    depth: usize,
    range: (usize, usize),
) -> io::Result<Figures> {
    let Side { client, tree, .. } = side;
    if !matches!(kind, NfsCalls::Create | NfsCalls::Remove) {
        // The first ones wake it, and bring its memory into the caches.
        tree.calls(client, kind, depth, (0, range.1 / 10 + 1))?;
    }
    let (cpu, start) = (side.cpu(), clock::now());
    let times = side.tree.calls(&mut side.client, kind, depth, range)?;
    let (elapsed, cpu) = (clock::now().since(start), side.cpu().saturating_sub(cpu));
    Ok(Figures::of(range.1, elapsed, cpu, &times))
}
