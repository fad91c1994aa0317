//! The same operations on a cluster's mount and on its baselines, in turns; medians of passes.

use super::pass::Pass;
use super::place::Place;
use super::row::Row;
use crate::local::Shape;
use crate::machine_stat::touch_memory;
use crate::progress;
use crate::scratch::{Processes, Scratch};
use crate::table::{Table, print_json};
use std::io;

/// Memory touched before a place is measured.
const TOUCH_BYTES: usize = 1 << 30;

/// What the rates of an operation count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Calls or files.
    Ops,
    /// How long the whole takes.
    Whole,
}

type Work = Box<dyn Fn(&mut Place<'_>) -> io::Result<Pass>>;

/// An operation, with what has to be forgotten before it.
pub struct Op {
    name: &'static str,
    unit: Unit,
    work: Work,
}

impl Op {
    /// Of this name.
    pub fn new(
        name: &'static str,
        unit: Unit,
        work: impl Fn(&mut Place<'_>) -> io::Result<Pass> + 'static,
    ) -> Op {
        Op { name, unit, work: Box::new(work) }
    }

    fn shown(&self, pass: &Pass) -> String {
        match self.unit {
            Unit::Bytes => format!("{:.0} MB/s", pass.mb_per_s()),
            Unit::Ops => format!("{:.0} /s", pass.ops_per_s()),
            Unit::Whole => format!("{:.2} s", pass.elapsed.as_secs_f64()),
        }
    }

    fn cost(&self, pass: &Pass) -> String {
        match self.unit {
            Unit::Bytes => format!("{:.2} s/GiB", pass.cpu_s_per_gib()),
            Unit::Ops => format!("{:.0} us", pass.cpu_us_per_op()),
            Unit::Whole => format!("{:.2} s", pass.busy.as_secs_f64()),
        }
    }
}

/// How to compare.
#[derive(Debug)]
pub struct Compare {
    /// Of the rows.
    pub name: &'static str,
    /// I/O servers of the cluster.
    pub servers: u16,
    /// Times that everything is done.
    pub passes: usize,
    /// The whole cluster in one process.
    pub embedded: bool,
    /// Everything on this processor.
    pub cpu: Option<usize>,
    /// Rows as JSON.
    pub json: bool,
}

impl Compare {
    /// Does all operations in every place, and prints.
    pub fn run(&self, ops: &[Op]) -> Result<(), Box<dyn std::error::Error>> {
        crate::serve::pin(self.cpu)?;
        let scratch = Scratch::new(None, false)?;
        let plain = scratch.path().join("plain");
        let mut cluster = None;
        let mut places = vec![Place::plain(&plain)?, Place::pass_through(&plain)?];
        if self.embedded {
            places.push(Place::embedded(scratch.path(), self.servers)?);
        } else {
            let shape = Shape::of(self.servers);
            let started = cluster.insert(Processes::start(scratch.path(), &shape, self.cpu)?);
            started.mount()?;
            places.push(Place::cluster(started));
        }
        let medians = self.passes(ops, &mut places)?;
        drop(places);
        self.print(ops, &medians);
        Ok(())
    }

    /// For each operation, of each place the median pass.
    fn passes(&self, ops: &[Op], places: &mut [Place<'_>]) -> io::Result<Vec<Vec<Pass>>> {
        let mut all = vec![vec![Vec::new(); places.len()]; ops.len()];
        let bar = progress::steps(self.name, (self.passes * places.len() * ops.len()) as u64);
        for _ in 0..self.passes {
            for (number, place) in places.iter_mut().enumerate() {
                touch_memory(TOUCH_BYTES);
                for (op, passes) in ops.iter().zip(&mut all) {
                    let done = (op.work)(place).map_err(|error| {
                        io::Error::other(format!("{}, {}: {error}", place.name(), op.name))
                    });
                    passes[number].push(done?);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let medians = |passes: Vec<Vec<Pass>>| passes.into_iter().map(Pass::median).collect();
        Ok(all.into_iter().map(medians).collect())
    }

    fn print(&self, ops: &[Op], medians: &[Vec<Pass>]) {
        let ours = if self.embedded { "trapeze, one process" } else { "trapeze" };
        let headings =
            [self.name, ours, "pass-through FUSE", "ratio", "plain", "CPU", "CPU pass-through"];
        let mut table = Table::new(&headings);
        for (op, passes) in ops.iter().zip(medians) {
            let [plain, through, ours] = passes.as_slice() else { unreachable!("three places") };
            let ratio = through.elapsed.as_secs_f64() / ours.elapsed.as_secs_f64();
            let shown = [ours, through].map(|pass| op.shown(pass));
            table.row(&[
                op.name.to_string(),
                shown[0].clone(),
                shown[1].clone(),
                format!("{ratio:.2}"),
                op.shown(plain),
                op.cost(ours),
                op.cost(through),
            ]);
            if self.json {
                print_json(&self.row(op, ours, through, ratio));
            }
        }
        if !self.json {
            print!("{}", table.render());
            println!(
                "ratio: speed beside the pass-through FUSE, medians of {} passes",
                self.passes
            );
        }
    }

    fn row(&self, op: &Op, ours: &Pass, baseline: &Pass, ratio: f64) -> Row {
        // Every I/O server, the manager, the mount and the load.
        let processes = if self.embedded { 2 } else { usize::from(self.servers) + 3 };
        Row {
            name: self.name,
            op: op.name,
            link: "mount",
            wait: "adaptive".to_string(),
            depth: 1,
            cpus: self.cpu.map_or("all".to_string(), |cpu| cpu.to_string()),
            processes,
            bytes: ours.bytes,
            p50_us: ours.p50_us,
            p99_us: ours.p99_us,
            ops_per_s: ours.ops_per_s(),
            mb_per_s: ours.mb_per_s(),
            baseline_p50_us: baseline.p50_us,
            baseline_ops_per_s: baseline.ops_per_s(),
            baseline_mb_per_s: baseline.mb_per_s(),
            ratio,
        }
    }
}
