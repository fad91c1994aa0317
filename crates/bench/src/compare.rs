//! The same operations on a cluster's mount and on its baselines, in turns; medians of passes.
//!
//! The baseline is a pass-through mount: ours, or libfuse's where it is installed, whichever is faster at the
//! operation.

use super::pass::Pass;
use super::place::{Kind, Target};
use super::row::Row;
use std::io;
use std::time::Duration;
use terminal::progress;
use terminal::table::{Table, print_json};
use trapeze::local::Shape;
use trapeze::machine_stat::touch_memory;
use trapeze::scratch::{Processes, Scratch};

/// Memory touched before a place is measured.
const TOUCH_BYTES: usize = 1 << 30;

/// How often the time that has passed is shown: a step of a long file takes a minute.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Units of an operation's rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Calls or files.
    Ops,
    /// How long the whole takes.
    Whole,
}

type Prepare = Box<dyn Fn(&mut Target<'_>) -> io::Result<()>>;
type Work = Box<dyn Fn(&mut Target<'_>) -> io::Result<Pass>>;

/// An operation, with what has to be forgotten before it.
pub struct Op {
    name: &'static str,
    unit: Unit,
    prepare: Prepare,
    /// Memory touched before it.
    touch_bytes: usize,
    work: Work,
}

impl Op {
    /// Of this name.
    pub fn new(
        name: &'static str,
        unit: Unit,
        work: impl Fn(&mut Target<'_>) -> io::Result<Pass> + 'static,
    ) -> Op {
        Op { name, unit, prepare: Box::new(|_| Ok(())), touch_bytes: 0, work: Box::new(work) }
    }

    /// Before it `prepare` is done and then so much memory touched.
    pub fn after(
        self,
        prepare: impl Fn(&mut Target<'_>) -> io::Result<()> + 'static,
        touch_bytes: usize,
    ) -> Op {
        Op { prepare: Box::new(prepare), touch_bytes, ..self }
    }

    fn run(&self, place: &mut Target<'_>) -> io::Result<Pass> {
        (self.prepare)(place)?;
        touch_memory(self.touch_bytes);
        (self.work)(place)
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

/// Processors that a comparison is confined to; `None`: all.
pub type Cpu = Option<usize>;

/// How to compare.
pub struct Compare {
    /// Of the rows.
    pub name: &'static str,
    /// I/O servers of the cluster.
    pub servers: u16,
    /// Times that everything is done.
    pub passes: u16,
    /// A cluster of processes.
    pub separate: bool,
    /// A cluster in one process.
    pub embedded: bool,
    /// A cluster of processes that keeps two copies, beside the one that keeps one.
    pub two_copies: bool,
    /// Once on each of these.
    pub cpus: Vec<Cpu>,
    /// Rows as JSON.
    pub json: bool,
    /// Done once in every place and not counted: touches what stays touched from then on.
    pub warm_up: Option<Op>,
}

/// Results of a place: for each operation its median pass.
struct Figures {
    kind: Kind,
    medians: Vec<Pass>,
}

impl Compare {
    /// Does all operations in every place, and prints.
    pub fn run(&self, ops: &[Op]) -> Result<(), Box<dyn std::error::Error>> {
        let all = rustix::thread::sched_getaffinity(None)?;
        for cpu in &self.cpus {
            rustix::thread::sched_setaffinity(None, &all)?;
            trapeze::serve::pin(*cpu)?;
            let figures = self.measure(ops, *cpu)?;
            self.print(ops, *cpu, &figures);
        }
        Ok(())
    }

    fn measure(&self, ops: &[Op], cpu: Cpu) -> Result<Vec<Figures>, Box<dyn std::error::Error>> {
        let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
        let plain = scratch.path().join("plain");
        let (mut cluster, mut two_copies) = (None, None);
        let mut places = vec![Target::plain(&plain)?, Target::pass_through(&plain)?];
        places.extend(Target::libfuse(&plain)?);
        if self.embedded {
            places.push(Target::embedded(scratch.path(), self.servers)?);
        }
        if self.separate {
            let shape = Shape::prefaulted(self.servers);
            let started = cluster.insert(Processes::start(scratch.path(), &shape, cpu)?);
            started.mount()?;
            places.push(Target::cluster(started));
        }
        if self.two_copies {
            let shape = Shape { copies: 2, ..Shape::prefaulted(self.servers) };
            let parent = scratch.path().join("two-copies");
            let started = two_copies.insert(Processes::start(&parent, &shape, cpu)?);
            started.mount()?;
            places.push(Target::cluster(started));
        }
        Ok(self.passes(ops, &mut places)?)
    }

    fn passes(&self, ops: &[Op], places: &mut [Target<'_>]) -> io::Result<Vec<Figures>> {
        let mut all = vec![vec![Vec::new(); ops.len()]; places.len()];
        let each = usize::from(self.passes) * ops.len() + usize::from(self.warm_up.is_some());
        let bar = progress::steps(self.name, (places.len() * each) as u64);
        bar.enable_steady_tick(PROGRESS_PERIOD);
        let step = |op: &Op, place: &mut Target<'_>| {
            let what = format!("{}, {}", place.kind().name(), op.name);
            bar.set_message(what.clone());
            let done = op.run(place).map_err(|error| io::Error::other(format!("{what}: {error}")));
            bar.inc(1);
            done
        };
        if let Some(op) = &self.warm_up {
            places.iter_mut().try_for_each(|place| step(op, place).map(drop))?;
        }
        for _ in 0..self.passes {
            for (place, passes) in places.iter_mut().zip(&mut all) {
                touch_memory(TOUCH_BYTES);
                for (op, passes) in ops.iter().zip(passes) {
                    passes.push(step(op, place)?);
                }
            }
        }
        bar.finish_and_clear();
        let medians = |passes: Vec<Vec<Pass>>| passes.into_iter().map(Pass::median).collect();
        let kinds = places.iter().map(Target::kind);
        Ok(kinds
            .zip(all)
            .map(|(kind, passes)| Figures { kind, medians: medians(passes) })
            .collect())
    }

    fn print(&self, ops: &[Op], cpu: Cpu, figures: &[Figures]) {
        let ours = figures.iter().filter(|place| place.kind.is_ours());
        let title = cpu.map_or(self.name.to_string(), |cpu| format!("{}, cpu {cpu}", self.name));
        for place in ours {
            let beside = match place.kind {
                Kind::TwoCopies => "one copy",
                _ => "pass-through FUSE",
            };
            let mut table = Table::new(&[
                &title,
                place.kind.name(),
                beside,
                "ratio",
                "plain",
                "CPU",
                "CPU of that",
            ]);
            for (number, op) in ops.iter().enumerate() {
                let (by, through) = baseline(figures, place.kind, number);
                let pass = &place.medians[number];
                if self.json {
                    print_json(&self.row(op, place.kind, cpu, pass, (by, through)));
                }
                table.row(&[
                    op.name.to_string(),
                    op.shown(pass),
                    op.shown(through) + if by == Kind::Libfuse { " *" } else { "" },
                    format!("{:.2}", ratio(pass, through)),
                    op.shown(&figures[0].medians[number]),
                    op.cost(pass),
                    op.cost(through),
                ]);
            }
            if !self.json {
                println!("{}", table.render());
            }
        }
        if !self.json {
            println!("ratio: to the column on its left, medians of {} passes", self.passes);
            println!("*: libfuse's passthrough_ll, where it is faster than ours");
        }
    }

    fn row(
        &self,
        op: &Op,
        kind: Kind,
        cpu: Cpu,
        ours: &Pass,
        (by, baseline): (Kind, &Pass),
    ) -> serde_json::Value {
        // Every I/O server, the manager, the mount and the load.
        let all = usize::from(self.servers) + 3;
        let row = Row {
            name: self.name,
            op: op.name,
            link: "mount",
            wait: "adaptive".to_string(),
            depth: 1,
            cpus: cpu.map_or("all".to_string(), |cpu| cpu.to_string()),
            processes: if kind == Kind::Embedded { 2 } else { all },
            bytes: ours.bytes,
            p50_us: ours.p50_us,
            p99_us: ours.p99_us,
            ops_per_s: ours.ops_per_s(),
            mb_per_s: ours.mb_per_s(),
            baseline_p50_us: baseline.p50_us,
            baseline_ops_per_s: baseline.ops_per_s(),
            baseline_mb_per_s: baseline.mb_per_s(),
            ratio: ratio(ours, baseline),
        };
        let mut row = serde_json::to_value(row).expect("a row is an object");
        row["baseline"] = by.name().into();
        row["cpu_s"] = ours.busy.as_secs_f64().into();
        row["baseline_cpu_s"] = baseline.busy.as_secs_f64().into();
        row
    }
}

/// The place that operation `number` of one of this kind is compared with, the faster one of two pass-throughs.
fn baseline(figures: &[Figures], ours: Kind, number: usize) -> (Kind, &Pass) {
    let places = figures.iter().filter(|place| place.kind.is_baseline_of(ours));
    let passes = places.map(|place| (place.kind, &place.medians[number]));
    passes.min_by_key(|(_, pass)| pass.elapsed).expect("a baseline of each is there")
}

fn ratio(ours: &Pass, baseline: &Pass) -> f64 {
    baseline.elapsed.as_secs_f64() / ours.elapsed.as_secs_f64()
}
