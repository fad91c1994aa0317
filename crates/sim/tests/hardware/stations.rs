//! The papers' machines.

use nic::{Buffers, CacheConfig, Config, Policy};
use sim::hardware::catalogue;
use sim::hardware::measure::Station;

/// Prints a line of paper and simulation, and says whether the simulation is within `band` percent.
pub fn within(what: &str, paper: f64, simulated: f64, band: f64) -> bool {
    let error = (simulated / paper - 1.0) * 100.0;
    let fits = error.abs() <= band;
    let verdict = if fits { "" } else { "   OUT OF BAND" };
    println!("{what:<44} {paper:>8.2} {simulated:>8.2} {error:>+6.1} % of {band}{verdict}");
    fits
}

/// AlphaStation 500 and LANai-4.1 of HPDC'97: the host reads control messages in the adapter's memory.
pub fn as500(policy: Policy) -> Station {
    let nic = Config { policy, control_to_host: false, ..Config::new(8_192) };
    let machine = catalogue::machine("as500").unwrap();
    Station::constants(machine, catalogue::board("lanai4-256k").unwrap(), nic).unwrap()
}

/// A machine of HotI'99 with the two-regime constants: control messages go to the host as transfers of their own.
pub fn hoti(machine: &str, policy: Policy) -> Station {
    let nic = Config { policy, ..Config::new(8_192) };
    let machine = catalogue::machine(machine).unwrap();
    Station::constants(machine, catalogue::board("lanai4").unwrap(), nic).unwrap()
}

/// The same machine with one mechanism instead: the firmware's instructions on a starving processor.
pub fn hoti_contention(machine: &str, policy: Policy) -> Station {
    let nic = Config { policy, ..Config::new(8_192) };
    let machine = catalogue::machine(machine).unwrap();
    let firmware = catalogue::firmware("mcp-hoti").unwrap();
    Station::contention(machine, catalogue::board("lanai4").unwrap(), firmware, nic)
}

/// An end host of the forwarding paper: 733 MHz, LANai-7, 64-bit 66 MHz PCI.
pub fn end_host(page: usize, mtu: usize) -> Station {
    forwarding("piii733", "lanai7", Buffers::Pools { send: 16, receive: 16 }, page, mtu)
}

/// A forwarder of the paper: with a cache of `entries` pages or without.
pub fn forwarder(machine: &str, board: &str, entries: Option<usize>, mtu: usize) -> Station {
    let cache = |entries| {
        Buffers::Cache(CacheConfig { entries, send_segment: 4, small_segment: 0, small_bytes: 0 })
    };
    let buffers = entries.map_or(Buffers::Pools { send: 16, receive: 16 }, cache);
    forwarding(machine, board, buffers, 4_096, mtu)
}

fn forwarding(machine: &str, board: &str, buffers: Buffers, page: usize, mtu: usize) -> Station {
    let ring =
        if matches!(buffers, Buffers::Cache(cache) if cache.entries < 256) { 32 } else { 64 };
    let nic = Config {
        policy: Policy::adaptive(512),
        buffers,
        send_ring: ring,
        receive_ring: ring,
        mtu,
        ..Config::new(page)
    };
    let machine = catalogue::machine(machine).unwrap();
    let firmware = catalogue::firmware("mcp-forward").unwrap();
    Station::contention(machine, catalogue::board(board).unwrap(), firmware, nic)
}
