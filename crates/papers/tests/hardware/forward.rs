//! "Fast Forwarding on Myrinet": Table 2, Figures 6 and 7.

use super::stations::within;
use sim::hardware::forwarding::{
    Forwarded, Forwarding, PAGE, end_host, entries, forwarder, myrinet,
};
use sim::hardware::measure::stream;
use sim::hardware::world::program::Copies;

fn off(machine: &str, board: &str) -> Forwarded {
    let middle = forwarder(machine, board, None, PAGE);
    Forwarding::new(&end_host(PAGE), &middle, Copies::Ignore).stream(PAGE)
}

fn on(machine: &str, board: &str) -> Forwarded {
    let middle = forwarder(machine, board, Some(entries(board)), PAGE);
    Forwarding::new(&end_host(PAGE), &middle, Copies::Use).stream(PAGE)
}

/// Table 2, the observed rates: within 6 %.
#[test]
fn observed_rates_of_table_2() {
    let paper = [("lanai4", 49.89, 62.94), ("lanai7", 52.69, 89.10), ("lanai9", 54.23, 106.43)];
    let rows = paper.map(|(board, without, with)| {
        let [off, on] = [off("piii433", board), on("piii433", board)];
        println!(
            "{board}: hits {:?}, host busy {:.2}, {:.2}; age {:.0}, {:.0} us",
            on.cache,
            off.host_busy,
            on.host_busy,
            off.age(),
            on.age()
        );
        let without =
            within(&format!("{board} without the cache, MB/s"), without, off.rate / 1e6, 6.0);
        let with = within(&format!("{board} with the cache, MB/s"), with, on.rate / 1e6, 6.0);
        [without, with]
    });
    assert_eq!(rows, [[true; 2]; 3]);
}

/// Figure 7: on 64 bits at 66 MHz the cache gains nothing, and a forwarder is as fast as two ends.
#[test]
fn a_fast_bus_gains_nothing_from_the_cache() {
    let end = end_host(PAGE);
    let direct = stream(&end, &end, myrinet(), PAGE) / 1e6;
    for board in ["lanai7", "lanai9"] {
        let [off, on] = [off("piii733", board).rate / 1e6, on("piii733", board).rate / 1e6];
        println!(
            "{board} on 64/66: {off:.1} MB/s without, {on:.1} with the cache; two ends {direct:.1}"
        );
        assert!((on / off - 1.0).abs() < 0.05, "{board}: {off} {on}");
    }
}
