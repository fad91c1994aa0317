//! Figure 4 of the 1999 paper, live: a file over 1 to 6 I/O servers with 1 to 4 stores each, every store limited to the
//! rate of a disk of its own. What n stores give is shown beside n times that rate.

use super::pass::Pass;
use super::place::Place;
use super::row::Row;
use super::stream;
use crate::cli;
use crate::local::Shape;
use crate::progress;
use crate::scratch::{Processes, Scratch};
use crate::table::{Table, print_json};
use live::disk::Throttle;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// `trapeze bench scale`.
pub fn measure(arguments: &cli::Scale) -> Result<()> {
    let throttle: Throttle = arguments.limit.parse()?;
    let rate = throttle.bytes_per_second as f64 / 1e6;
    if rate == 0.0 {
        return Err("--limit needs a rate, as in rate=30M,delay=1ms".into());
    }
    let headings = ["servers", "stores of each", "n x rate MB/s", "write", "", "read", ""];
    let mut table = Table::new(&headings);
    let steps = u64::from(arguments.servers) * u64::from(arguments.stores);
    let bar = progress::steps("scale", steps);
    for servers in 1..=arguments.servers {
        for stores in 1..=arguments.stores {
            let (written, read) = one(arguments, servers, stores)?;
            let bound = rate * f64::from(servers) * f64::from(stores);
            let share = |pass: &Pass| pass.mb_per_s() / bound;
            table.row(&[
                servers.to_string(),
                stores.to_string(),
                format!("{bound:.0}"),
                format!("{:.0}", written.mb_per_s()),
                format!("{:.2} x", share(&written)),
                format!("{:.0}", read.mb_per_s()),
                format!("{:.2} x", share(&read)),
            ]);
            for (op, pass) in [("write + fsync", &written), ("read, all cold", &read)] {
                if arguments.json {
                    print_json(&row(op, servers, stores, pass, bound));
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if !arguments.json {
        print!("{}", table.render());
    }
    Ok(())
}

fn one(arguments: &cli::Scale, servers: u16, stores: u16) -> Result<(Pass, Pass)> {
    let scratch = Scratch::new(None, false)?;
    let limit = Some(arguments.limit.clone());
    let shape = Shape { stores, limit, ..Shape::of(servers) };
    let mut cluster = Processes::start(scratch.path(), &shape, None)?;
    cluster.mount()?;
    let mut place = Place::cluster(&mut cluster);
    let file = place.path().join("scale");
    let written = stream::write(&file, arguments.size.0)?;
    place.forget_all()?;
    let read = stream::read(&file)?;
    drop(place);
    cluster.stop()?;
    Ok((written, read))
}

fn row(op: &'static str, servers: u16, stores: u16, pass: &Pass, bound: f64) -> Row {
    let calls = bound * 1e6 / stream::CALL_BYTES as f64;
    Row {
        name: "scale",
        op,
        link: "mount",
        wait: "adaptive".to_string(),
        depth: usize::from(servers) * usize::from(stores),
        cpus: "all".to_string(),
        processes: usize::from(servers) + 3,
        bytes: pass.bytes,
        p50_us: pass.p50_us,
        p99_us: pass.p99_us,
        ops_per_s: pass.ops_per_s(),
        mb_per_s: pass.mb_per_s(),
        baseline_p50_us: 1e6 / calls,
        baseline_ops_per_s: calls,
        baseline_mb_per_s: bound,
        ratio: pass.mb_per_s() / bound,
    }
}
