//! TCP over the adapter: what the window, the copies and the sums cost. The paper's number is an experiment,
//! `experiments/papers/hoti-tcp.toml`.

use nic::{Buffers, Config, Policy};
use sim::hardware::catalogue;
use sim::hardware::host::Handling;
use sim::hardware::measure::Station;
use sim::hardware::tcp::{Streamed, stream};

const REMAPPED: Handling = Handling { remaps: true, sums: false };
const COPIED: Handling = Handling { remaps: false, sums: false };

fn xp1000() -> Station {
    let buffers = Buffers::Pools { send: 16, receive: 16 };
    let nic = Config { policy: Policy::adaptive(512), buffers, ..Config::new(8_192) };
    let machine = catalogue::machine("xp1000").unwrap();
    Station::constants(machine, catalogue::board("lanai7").unwrap(), nic).unwrap()
}

fn run(station: &Station, bytes: usize, handling: Handling) -> Streamed {
    stream(station, catalogue::link("myrinet").unwrap(), bytes, handling).unwrap()
}

#[test]
fn copies_and_sums_cost_the_processor_and_pages_that_change_hands_little() {
    let station = xp1000();
    let [remapped, copied, summed] =
        [REMAPPED, COPIED, Handling { sums: true, ..COPIED }].map(|how| run(&station, 57_344, how));
    println!("{remapped:?}\n{copied:?}\n{summed:?}");
    assert!(remapped.busy.iter().all(|share| *share < 0.5), "{remapped:?}");
    // where the processor is the limit, it is busy all the time
    assert!(copied.busy[1] > 0.99 && copied.rate < remapped.rate, "{copied:?}");
    assert!(summed.rate < copied.rate * 0.8, "{summed:?}");
}

#[test]
fn a_small_window_stops_the_stream() {
    let mut station = xp1000();
    let wide = run(&station, 8_192, REMAPPED);
    station.machine.host.tcp.as_mut().unwrap().window = 2 * 8_192;
    let narrow = run(&station, 8_192, REMAPPED);
    println!(
        "{:.1} MB/s with a wide window, {:.1} with two segments",
        wide.rate / 1e6,
        narrow.rate / 1e6
    );
    assert!(narrow.rate < wide.rate * 0.8, "{narrow:?} {wide:?}");
}

#[test]
fn what_cannot_stream_is_refused() {
    let mut station = xp1000();
    let refused = |station: &Station, bytes| {
        stream(station, catalogue::link("myrinet").unwrap(), bytes, REMAPPED).unwrap_err()
    };
    assert!(refused(&station, 300_000).contains("below two segments"));
    station.machine.host.tcp = None;
    assert!(refused(&station, 8_192).contains("[tcp]"));
}
