//! HotI'99: Table 1 and Figure 3.

use super::stations::{hoti, hoti_contention, within};
use nic::{Direction, Engine, Kind, Policy, Record};
use sim::hardware::catalogue;
use sim::hardware::measure::{Station, burst, one_way, stream};

const PAGE: usize = 8_192;
const FIXED: Policy = Policy::FixedAll { size: 1_408 };

fn adaptive() -> Policy {
    Policy::adaptive(512)
}

/// Machine, policy, latency in us, bandwidth in MB/s.
fn table_1() -> [(&'static str, Policy, f64, f64); 6] {
    [
        ("piii450", FIXED, 124.0, 77.0),
        ("piii450", Policy::StoreForward, 217.0, 110.0),
        ("piii450", adaptive(), 112.0, 110.0),
        ("miata500", FIXED, 129.0, 71.0),
        ("miata500", Policy::StoreForward, 236.0, 93.0),
        ("miata500", adaptive(), 119.0, 93.0),
    ]
}

fn measured(station: &Station) -> (f64, f64) {
    let link = catalogue::link("myrinet").unwrap();
    (one_way(station, link, PAGE), stream(station, station, link, PAGE) / 1e6)
}

/// For each row of the table whether latency and bandwidth are within the bands.
fn compare(build: fn(&str, Policy) -> Station, bands: [f64; 2]) -> [[bool; 2]; 6] {
    table_1().map(|(machine, policy, latency, bandwidth)| {
        let (us, rate) = measured(&build(machine, policy));
        let latency = within(&format!("{machine} {policy:?}, us"), latency, us, bands[0]);
        [latency, within(&format!("{machine} {policy:?}, MB/s"), bandwidth, rate, bands[1])]
    })
}

/// Table 1 from two constants for transfers: latencies within 3 %, bandwidths within 2 %.
#[test]
fn table_1_from_the_two_regimes() {
    assert_eq!(compare(hoti, [3.0, 2.0]), [[true; 2]; 6]);
}

/// Table 1 from one mechanism, fitted on the Pentium-III; the Miata is a prediction. Aim: within 6 %. Two latencies of
/// the Miata miss it, and a change that mends them is to be seen here too.
#[test]
fn table_1_from_contention_for_the_adapters_memory() {
    let pentium = [[true, true]; 3];
    let miata = [[false, true], [true, true], [false, true]];
    assert_eq!(compare(hoti_contention, [6.0, 6.0]).as_slice(), [pentium, miata].concat());
}

/// When an engine's transfers have become whole payloads: the start of the first of ten such packets in a row, in us.
fn reverts(records: &[Record], engine: Engine, direction: Direction) -> f64 {
    let of_engine = |record: &&Record| {
        let transfer = record.transfer;
        (transfer.engine, transfer.direction, transfer.kind) == (engine, direction, Kind::Payload)
    };
    let pulses: Vec<&Record> = records.iter().filter(of_engine).collect();
    let whole = |ten: &[&Record]| ten.iter().all(|record| record.transfer.bytes == PAGE);
    let first = pulses.windows(10).position(whole).expect("the burst comes to whole payloads");
    println!(
        "pulses before: {:?}",
        pulses[..first].iter().map(|record| record.transfer.bytes).collect::<Vec<_>>()
    );
    pulses[first].start as f64 / 1e6
}

/// Figure 3: both adapters are at whole payloads between 0.8 and 1.4 ms after the burst begins.
#[test]
fn a_burst_reverts_to_whole_transfers() {
    let mut station = hoti("pii300", adaptive());
    station.nic.log = 10_000;
    let world = burst(&station, catalogue::link("myrinet").unwrap(), PAGE, 64);
    let records = |adapter: usize| world.nic(adapter).log().records();
    let begin = records(0).iter().map(|record| record.start).min().unwrap() as f64 / 1e6;
    let sender = reverts(records(0), Engine::NetSend, Direction::ToNet) - begin;
    let receiver = reverts(records(1), Engine::HostDma, Direction::ToHost) - begin;
    println!("whole payloads from {sender:.0} us on the sender, {receiver:.0} us on the receiver");
    let first = records(0).iter().find(|record| record.transfer.engine == Engine::HostDma).unwrap();
    let later =
        records(0).iter().rfind(|record| record.transfer.engine == Engine::HostDma).unwrap();
    let constants = station.machine.constants.unwrap();
    let overheads = [constants.alone, constants.busy].map(|time| time.0 as f64 / 1e6);
    let [first, later] = [first, later].map(|record| (record.end - record.start) as f64 / 1e6);
    let [first, later] = [first - overheads[0], later - overheads[1]];
    println!(
        "bytes of the first packet's host DMA take {first:.1} us, of the last one's {later:.1} us"
    );
    let control = |record: &&Record| record.transfer.kind == Kind::Control;
    assert!(
        records(0).iter().filter(control).all(|record| record.transfer.engine == Engine::NetSend)
    );
    assert!(first > later * 1.02, "the host's programmed I/O contends with the first transfer");
    for time in [sender, receiver] {
        assert!((800.0..=1_400.0).contains(&time), "{sender} {receiver}");
    }
}
