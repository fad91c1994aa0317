//! The forwarding paper's queueing network (section 2): formulas, and the simulation that checks them.

use super::{CACHE, drawings};
use crate::constants::{Constants, Wanted};
use crate::model::{AxisKind, Measure, Model, Point, Value};
use crate::queueing::forwarding::{Board, Extra, Host};
use crate::queueing::simulate::{Load, Measured, Plan, simulate};
use crate::queueing::{Network, Traffic};

const CONSTANTS: [Wanted; 17] = [
    ("host.packet", "B"),
    ("host.word", "B"),
    ("host.bus", "MHz"),
    ("host.link", "MB/s"),
    ("host.instructions", ""),
    ("host.accesses", ""),
    ("host.interrupt", "us"),
    ("host.processing", "us"),
    ("lanai4.access", "MHz"),
    ("lanai4.crossing", "us"),
    ("lanai4.packet", "us"),
    ("lanai7.access", "MHz"),
    ("lanai7.crossing", "us"),
    ("lanai7.packet", "us"),
    ("lanai9.access", "MHz"),
    ("lanai9.crossing", "us"),
    ("lanai9.packet", "us"),
];

/// Entries of a ring, and so packets inside at saturation (section 4: ring size 64).
const RING: u32 = 64;
const FULL_RING: &str = "full ring";
/// Bytes that are enough, as the paper says (section 2.3).
const CLAIM_BYTES: f64 = 65_536.0;
const KB: f64 = 1_024.0;

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "forwarding",
    axes: &[
        AxisKind::names("board", "adapter", &["LANai-4", "LANai-7", "LANai-9"]),
        CACHE,
        AxisKind::names("traffic", "traffic", &["M/M/1", "M/D/1", "D/D/1", FULL_RING]),
        AxisKind::numbers("load", "load", "%", 0.1, 100.0),
    ],
    measures: &[
        Measure::new("adapter", "demand of the adapter", "us"),
        Measure::new("bus", "demand of the bus", "us"),
        Measure::new("saturation", "bandwidth at saturation", "MB/s"),
        Measure::new("observed", "observed bandwidth", "MB/s"),
        Measure::new("rate", "arrival rate", "1000 packets/s"),
        Measure::new("length", "packets inside", ""),
        Measure::new("response", "response", "us"),
        Measure::new("held", "payload cache", "KB"),
        Measure { ignores: &["load"], ..Measure::new("enough", "64 KB are enough up to", "%") },
        Measure::new("little", "rate x response against packets inside", "ppm"),
    ],
    constants: &CONSTANTS,
    drawings: &[
        ("network", drawings::network),
        ("memory", drawings::memory),
        ("pipeline", drawings::pipeline),
    ],
    run,
    ..Model::BARE
};

/// Constants of all boards, from a preset.
pub fn host(constants: &Constants) -> Host {
    Host {
        packet_bytes: constants.get("host.packet"),
        word_bytes: constants.get("host.word"),
        bus_mhz: constants.get("host.bus"),
        link_mb_s: constants.get("host.link"),
        instructions: constants.get("host.instructions"),
        accesses: constants.get("host.accesses"),
        interrupt_us: constants.get("host.interrupt"),
        processing_us: constants.get("host.processing"),
    }
}

/// A board from a preset: `LANai-4`, `LANai-7` or `LANai-9`.
pub fn board(name: &str, constants: &Constants) -> Board {
    let table = match name {
        "LANai-4" => "lanai4",
        "LANai-7" => "lanai7",
        _ => "lanai9",
    };
    let get = |key: &str| constants.get(&format!("{table}.{key}"));
    let extra = Extra { crossing_us: get("crossing"), packet_us: get("packet") };
    Board { name: name.into(), contended: table == "lanai4", access_mhz: get("access"), extra }
}

/// Everything at one point, before it is put in the order of the measures.
struct Case {
    host: Host,
    board: Board,
    cached: bool,
    network: Network,
    traffic: Option<Traffic>,
    rate_per_s: f64,
}

fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let (host, board) = (host(constants), board(point.name("board"), constants));
    let cached = point.name("cache") == "on";
    let network = host.network(&board, cached);
    let traffic = Traffic::ALL.into_iter().find(|kind| kind.name() == point.name("traffic"));
    let rate_per_s = network.saturation_per_s() * point.number("load") / 100.0;
    let case = Case { host, board, cached, network, traffic, rate_per_s };
    let mut values = case.formulas();
    if let Some(packets) = point.simulate {
        let measured = case.simulate(packets, point.seed);
        for (value, simulated) in values.iter_mut().zip(case.measures(&measured)) {
            value.simulated = simulated;
        }
    }
    values
}

impl Case {
    fn formulas(&self) -> Vec<Value> {
        let network = &self.network;
        let of = |traffic: fn(&Network, f64, Traffic) -> Option<f64>| {
            self.traffic.and_then(|kind| traffic(network, self.rate_per_s, kind))
        };
        let length = of(Network::length);
        let enough = |traffic| network.load_for_cache(CLAIM_BYTES, traffic, self.host.packet_bytes);
        let all = [
            Some(network.centres[0].demand_us()),
            Some(network.centres[1].demand_us()),
            Some(self.host.bandwidth_mb_s(network.bottleneck().demand_us())),
            Some(self.host.observed_mb_s(&self.board, self.cached)),
            Some(self.rate_per_s / 1e3),
            length,
            of(Network::response_us),
            length.map(|length| length * self.host.packet_bytes / KB),
            self.traffic.map(|traffic| enough(traffic) * 100.0),
            None,
        ];
        all.map(|formula| Value { formula, simulated: None }).to_vec()
    }

    fn simulate(&self, packets: u64, seed: u64) -> Measured {
        let load = match self.traffic {
            Some(_) => Load::Rate(self.rate_per_s),
            None => Load::Window(RING),
        };
        let traffic = self.traffic.unwrap_or(Traffic::Dd1);
        simulate(&self.network, Plan { traffic, load, packets, warm_up: packets / 20, seed })
    }

    /// In the order of the measures.
    fn measures(&self, measured: &Measured) -> [Option<f64>; 10] {
        let is_full = self.traffic.is_none();
        let bandwidth = measured.rate_per_s * self.host.packet_bytes / 1e6;
        [
            Some(measured.demands_us[0]),
            Some(measured.demands_us[1]),
            is_full.then_some(bandwidth),
            None,
            Some(measured.rate_per_s / 1e3),
            Some(measured.length),
            Some(measured.response_us),
            Some(measured.length * self.host.packet_bytes / KB),
            None,
            Some(measured.little_residual() * 1e6),
        ]
    }
}
