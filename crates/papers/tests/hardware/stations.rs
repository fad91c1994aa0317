//! The papers' machines.

use nic::{Config, Policy};
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
