//! The services on modelled machines.

use papers::slice::{Bench, Direction, Machines, Setup, Until};
use sim::hardware::measure::round_trip;
use sim::queue::Picos;

fn setup(machines: Result<Machines, String>, servers: u16, disks: u16) -> Setup {
    Setup { machines: machines.unwrap(), servers, disks, seed: 1 }
}

/// Written bytes come back from the disks of servers that started anew, unchanged ([`Bench::read`] compares), and a run
/// is a function of its seed.
#[test]
fn a_file_comes_back_and_a_seed_is_a_run() {
    let run = || {
        let mut bench = Bench::new(setup(Machines::scsi(), 2, 2)).unwrap();
        let bytes = Until::Bytes(4 << 20);
        let written = bench.stream(Direction::Write, bytes);
        bench.prepare(4 << 20);
        bench.flush_caches();
        let read = bench.stream(Direction::Read, bytes);
        assert_eq!((written.bytes, read.bytes), (4 << 20, 4 << 20));
        (bench.world().fingerprint(), written, read)
    };
    assert_eq!(run(), run());
}

/// A page comes from a server's memory in the time of a request and a page between these machines: the services add
/// nothing. HotI'99 section 4 says under 150 us.
#[test]
fn a_page_comes_from_a_servers_memory_in_two_messages() {
    let machines = Machines::scsi().map(Machines::without_calls).unwrap();
    let (stations, link) = ([&machines.client, &machines.server], machines.link);
    let messages = round_trip(stations, link, 0, 8_192, Picos::ZERO);
    let mut bench = Bench::new(setup(Ok(machines.clone()), 2, 2)).unwrap();
    bench.prepare(4 << 20);
    let fault = bench.fault(21).0 as f64 / 1e6;
    assert!((fault - messages).abs() < 0.5, "{fault} us, {messages} us between two hosts");
    assert!(fault < 150.0, "{fault} us");
}

/// HotI'99 section 2.1: 40 MB/s between disks and network, because both cross the one bus.
#[test]
fn the_bus_bounds_an_ide_server() {
    let mut bench = Bench::new(setup(Machines::ide(), 1, 4)).unwrap();
    bench.prepare(Until::Steady.bytes_needed());
    bench.flush_caches();
    let read = bench.stream(Direction::Read, Until::Steady);
    assert!((38.8e6..=41.2e6).contains(&read.rate), "{read:?}");
    assert!(read.server_bus > 0.95, "{read:?}");
}
