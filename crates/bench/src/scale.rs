//! Figure 4 of the 1999 paper, live: a file over 1 to 6 I/O servers with 1 to 4 stores each, every store limited to the
//! rate of a disk of its own. The rate of n stores is shown beside its bound: n times that rate, or, where that is
//! less, the rate of the same cluster without a limit, for there the client and the machine are slower than the stores.

use super::pass::Pass;
use super::place::Target;
use super::row::Row;
use super::stream;
use crate::arguments;
use live::disk::Throttle;
use terminal::progress;
use terminal::table::{Table, print_json};
use trapeze::local::Shape;
use trapeze::scratch::{Processes, Scratch};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A limit that none is.
const UNLIMITED: &str = "rate=1000G";
/// Width of the figure's longest bar.
const BAR_CHARS: f64 = 60.0;

/// The passes of one shape.
struct Point {
    servers: u16,
    stores: u16,
    /// n times the rate of a store, in MB/s.
    rate: f64,
    /// Write and read, with the limit and without one.
    limited: [Pass; 2],
    unlimited: Option<[Pass; 2]>,
}

impl Point {
    /// The rate that the stores, or without them client and machine, allow; for writes 0, for reads 1.
    fn bound(&self, op: usize) -> f64 {
        let machine = self.unlimited.as_ref().map_or(f64::INFINITY, |all| all[op].mb_per_s());
        self.rate.min(machine)
    }

    fn share(&self, op: usize) -> f64 {
        self.limited[op].mb_per_s() / self.bound(op)
    }

    fn cells(&self) -> Vec<String> {
        let unlimited = |op: usize| {
            let pass = self.unlimited.as_ref().map(|all| &all[op]);
            pass.map_or("-".to_string(), |pass| format!("{:.0}", pass.mb_per_s()))
        };
        let mut cells =
            vec![self.servers.to_string(), self.stores.to_string(), format!("{:.0}", self.rate)];
        for op in 0..2 {
            let speed = format!("{:.0}", self.limited[op].mb_per_s());
            cells.extend([unlimited(op), speed, format!("{:.2} x", self.share(op))]);
        }
        cells
    }

    /// A line of the figure: what was read, and where the stores' own rate is.
    fn bar(&self, longest: f64) -> String {
        let chars = |speed: f64| (speed / longest * BAR_CHARS).round() as usize;
        let (read, rate) = (chars(self.limited[1].mb_per_s()), chars(self.rate));
        let mut bar: Vec<char> = "#".repeat(read).chars().collect();
        bar.resize(bar.len().max(rate + 1), ' ');
        bar[rate] = '|';
        let bar: String = bar.into_iter().collect();
        format!(
            "{:>2} stores ({} x {}) {bar}",
            self.servers * self.stores,
            self.servers,
            self.stores
        )
    }
}

/// `trapeze bench scale`. Results before a shape failed are shown too.
pub fn measure(arguments: &arguments::Scale) -> Result<()> {
    let throttle: Throttle = arguments.limit.parse()?;
    let rate = throttle.bytes_per_second as f64 / 1e6;
    if rate == 0.0 {
        return Err("--limit needs a rate, as in rate=30M,delay=1ms".into());
    }
    let mut points = Vec::new();
    let ended = all(arguments, rate, &mut points);
    if !arguments.json && !points.is_empty() {
        show(points);
    }
    ended
}

/// Measures every shape, one after the other.
fn all(arguments: &arguments::Scale, rate: f64, points: &mut Vec<Point>) -> Result<()> {
    let arguments::Scale { servers, stores, .. } = arguments;
    let steps = (servers.to - servers.from + 1) * (stores.to - stores.from + 1);
    let bar = progress::steps("scale", steps.into());
    let of = |servers| (stores.from..=stores.to).map(move |stores| (servers, stores));
    let ended = (servers.from..=servers.to).flat_map(of).try_for_each(|(servers, stores)| {
        let point = point(arguments, servers, stores, rate)?;
        bar.suspend(|| tell(&point, arguments.json));
        points.push(point);
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    ended
}

fn point(arguments: &arguments::Scale, servers: u16, stores: u16, rate: f64) -> Result<Point> {
    let pass = |limit| one(arguments, servers, stores, limit);
    let limited = pass(&arguments.limit)?;
    let unlimited = (!arguments.limited_only).then(|| pass(UNLIMITED)).transpose()?;
    let rate = rate * f64::from(servers) * f64::from(stores);
    Ok(Point { servers, stores, rate, limited, unlimited })
}

/// Prints a result at once: all shapes together take long.
fn tell(point: &Point, json: bool) {
    if json {
        return (0..2).for_each(|op| print_json(&row(point, op)));
    }
    let [write, read] = [0, 1].map(|op| (point.limited[op].mb_per_s(), point.share(op)));
    eprintln!(
        "{} x {}: write {:.0} MB/s, {:.2} x; read {:.0} MB/s, {:.2} x",
        point.servers, point.stores, write.0, write.1, read.0, read.1
    );
}

fn show(mut points: Vec<Point>) {
    let headings = [
        "servers",
        "stores each",
        "n x rate MB/s",
        "write, no limit",
        "write",
        "",
        "read, no limit",
        "read, all cold",
        "",
    ];
    let mut table = Table::new(&headings);
    points.iter().for_each(|point| table.row(&point.cells()));
    print!("{}", table.render());
    points.sort_by_key(|point| point.servers * point.stores);
    let longest = points.iter().map(|point| point.rate.max(point.limited[1].mb_per_s()));
    let longest = longest.fold(0.0, f64::max);
    println!("\nread, all cold (#) beside n x rate (|):");
    points.iter().for_each(|point| println!("{}", point.bar(longest)));
}

/// Writes and reads over that many stores, in a cluster of its own.
fn one(arguments: &arguments::Scale, servers: u16, stores: u16, limit: &str) -> Result<[Pass; 2]> {
    let scratch = Scratch::new(arguments.dir.as_deref(), false)?.removed_at_interrupt()?;
    let shape = Shape { stores, limit: Some(limit.to_string()), ..Shape::prefaulted(servers) };
    let which = format!("{servers} servers with {stores} stores each, {limit}");
    let mut cluster = Processes::start(scratch.path(), &shape, None)
        .map_err(|error| format!("{which}: {error}"))?;
    passes(&mut cluster, arguments.size.0)
        .map_err(|error| format!("{which}: {error}{}", cluster.last_words()).into())
}

fn passes(cluster: &mut Processes, bytes: u64) -> Result<[Pass; 2]> {
    cluster.mount()?;
    let mut place = Target::cluster(cluster);
    let file = place.path().join("scale");
    // The host gives memory back slower than the stores take data: a first write gets it, so that they do not pay.
    stream::write(&file, bytes)?;
    std::fs::remove_file(&file)?;
    let written = stream::write(&file, bytes)?;
    place.forget_all()?;
    let read = stream::read(&file)?;
    drop(place);
    cluster.stop()?;
    Ok([written, read])
}

fn row(point: &Point, op: usize) -> Row {
    let (pass, bound) = (&point.limited[op], point.bound(op));
    let calls = bound * 1e6 / arguments::CALL_BYTES as f64;
    Row {
        name: "scale",
        op: ["write + fsync", "read, all cold"][op],
        link: "mount",
        wait: "adaptive".to_string(),
        depth: usize::from(point.servers) * usize::from(point.stores),
        cpus: "all".to_string(),
        processes: usize::from(point.servers) + 3,
        bytes: pass.bytes,
        p50_us: pass.p50_us,
        p99_us: pass.p99_us,
        ops_per_s: pass.ops_per_s(),
        mb_per_s: pass.mb_per_s(),
        baseline_p50_us: 1e6 / calls,
        baseline_ops_per_s: calls,
        baseline_mb_per_s: bound,
        ratio: point.share(op),
    }
}
