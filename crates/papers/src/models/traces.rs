//! Drawings of what the firmware does: of simulated packets' transfers, and of its loop. Everything in them is from a
//! run or from the code that runs.

use super::adapter::{activity_of, build, link};
use crate::constants::Constants;
use crate::report::number::fixed;
use crate::report::svg::{Arrow, Boxes, Node, Words};
use crate::report::{Activity, Drawing, activity};
use nic::{Direction, Engine, Kind, Policy, Record, State};
use sim::hardware::forwarding::{Forwarding, PAGE, SEND_SEGMENT, end_host, entries, forwarder};
use sim::hardware::measure::burst;
use sim::hardware::programs::{Arrivals, Role};
use sim::hardware::world::World;
use sim::hardware::world::program::Copies;
use sim::queue::Picos;

const ALPHA_PAGE: usize = 8_192;

/// The transfers of one page between two machines, adapter by adapter.
fn one_page(machine: &str, policy: Policy) -> [Vec<Record>; 2] {
    let mut station = build(machine, "constants", policy);
    station.nic.log = 1_000;
    let world = burst(&station, link(), ALPHA_PAGE, 1);
    [0, 1].map(|adapter| world.nic(adapter).log().records().to_vec())
}

/// HPDC'97 Figure 1: the four transfers of a message, with the bytes and times of one.
pub fn four_dmas(_: &Constants) -> Drawing {
    let stored = Policy::Static { send: ALPHA_PAGE, receive: ALPHA_PAGE };
    let logs = one_page("as500", stored);
    let payload = |record: &&Record| record.transfer.kind == Kind::Payload;
    let records: Vec<&Record> = logs.iter().flatten().filter(payload).collect();
    let names = ["host memory", "adapter", "link", "adapter", "host memory"];
    let x = |index: usize| 80.0 + 155.0 * index as f64;
    let node = |(index, name): (usize, &&str)| Node {
        at: (x(index), 60.0),
        size: (96.0, 54.0),
        lines: vec![name.to_string()],
        colour: None,
    };
    let mut order: Vec<&Record> = records;
    order.sort_by_key(|record| super::adapter::place(&activity_of("", record, Picos(1)).engine));
    let arrow = |index: usize| Arrow {
        from: index,
        to: index + 1,
        label: format!("DMA {}", index + 1),
        bend: 0.0,
        label_at: (0.0, -10.0),
    };
    let facts = |(index, record): (usize, &&Record)| {
        let middle = (x(index) + x(index + 1)) / 2.0;
        let took = fixed((record.end - record.start) as f64 / 1e6, 1);
        let begun = fixed(record.start as f64 / 1e6, 1);
        let lines = [
            engine_name(record).to_string(),
            format!("{} B", record.transfer.bytes),
            format!("in {took} µs"),
            format!("from {begun} µs on"),
        ];
        let at = |line: usize| (middle, 112.0 + 17.0 * line as f64);
        let words = lines.into_iter().enumerate();
        words.map(move |(line, text)| Words { at: at(line), text }).collect::<Vec<_>>()
    };
    let words = order.iter().enumerate().flat_map(facts).collect();
    let nodes = names.iter().enumerate().map(node).collect();
    Drawing::Boxes(Boxes { height: 190.0, nodes, arrows: (0..4).map(arrow).collect(), words })
}

/// HPDC'97 Figure 2: one page stored and forwarded, and the same page cut through.
pub fn cut_through(_: &Constants) -> Drawing {
    let ways = [
        ("stored", Policy::Static { send: ALPHA_PAGE, receive: ALPHA_PAGE }),
        ("cut through", Policy::adaptive(512)),
    ];
    let log = ways.into_iter().flat_map(|(name, policy)| {
        let records: Vec<Record> = one_page("as500", policy).into_iter().flatten().collect();
        by_engine(records.iter().map(|record| labelled(name, record)).collect())
    });
    Drawing::Stripes(activity::stripes(&log.collect::<Vec<_>>()))
}

/// HotI'99 Figure 2: one page under the adaptive policy.
pub fn adaptive(_: &Constants) -> Drawing {
    let [sender, receiver] = one_page("piii450", Policy::adaptive(512));
    let both = [("sender", sender), ("receiver", receiver)];
    let log = both.iter().flat_map(|(machine, records)| {
        by_engine(records.iter().map(|record| labelled(machine, record)).collect())
    });
    Drawing::Stripes(activity::stripes(&log.collect::<Vec<_>>()))
}

/// A transfer with its bytes as label.
fn labelled(machine: &str, record: &Record) -> Activity {
    Activity { label: record.transfer.bytes.to_string(), ..activity_of(machine, record, Picos(1)) }
}

fn by_engine(mut log: Vec<Activity>) -> Vec<Activity> {
    let place = |entry: &Activity| super::adapter::place(&entry.engine);
    log.sort_by_key(|entry| (place(entry), entry.start));
    log
}

fn engine_name(record: &Record) -> &'static str {
    match (record.transfer.engine, record.transfer.direction) {
        (Engine::HostDma, Direction::ToNet) => "host to adapter",
        (Engine::NetSend, _) => "adapter to link",
        (Engine::NetReceive, _) => "link to adapter",
        (Engine::HostDma, Direction::ToHost) => "adapter to host",
    }
}

/// HPDC'97 Figure 3: which engine the firmware asks after which, and what it was seen to start on each.
pub fn turn(_: &Constants) -> Drawing {
    let started = started();
    let mut nodes = Vec::new();
    let mut arrows = Vec::new();
    for (index, engine) in Engine::ALL.into_iter().enumerate() {
        let y = 50.0 + 105.0 * index as f64;
        let question = format!("{} idle?", engine_title(engine));
        let mine = started.iter().filter(|(by, _)| *by == engine).map(|(_, what)| what.to_string());
        nodes.push(Node {
            at: (190.0, y),
            size: (200.0, 44.0),
            lines: vec![question],
            colour: None,
        });
        let lines: Vec<String> = mine.collect();
        let size = (330.0, 24.0 + 17.0 * lines.len() as f64);
        nodes.push(Node { at: (545.0, y), size, lines, colour: Some(index) });
        let arrow = |from, to, label: &str, label_at| {
            let (label, bend) = (label.to_string(), 0.0);
            Arrow { from, to, label, bend, label_at }
        };
        arrows.push(arrow(2 * index, 2 * index + 1, "yes", (0.0, -8.0)));
        if index > 0 {
            arrows.push(arrow(2 * index - 2, 2 * index, "no, or nothing to do", (72.0, 4.0)));
        }
    }
    let last = 2 * Engine::ALL.len() - 2;
    let (label, label_at) = ("next".to_string(), (18.0, 4.0));
    arrows.push(Arrow { from: last, to: 0, label, bend: 120.0, label_at });
    let text =
        "One transfer is started in a turn; then the next turn begins at the top.".to_string();
    let words = vec![Words { at: (390.0, 322.0), text }];
    Drawing::Boxes(Boxes { height: 345.0, nodes, arrows, words })
}

fn engine_title(engine: Engine) -> &'static str {
    match engine {
        Engine::HostDma => "host's engine",
        Engine::NetSend => "sending engine",
        Engine::NetReceive => "receiving engine",
    }
}

/// Work that each engine was started for while two hosts sent each other pages, in the order of the first times.
fn started() -> Vec<(Engine, &'static str)> {
    let mut station = build("as500", "constants", Policy::adaptive(512));
    station.nic.log = 1_000;
    let world = sim::hardware::measure::ping_pong(&station, link(), ALPHA_PAGE, 4);
    let mut seen = Vec::new();
    for record in world.nic(0).log().records().iter().chain(world.nic(1).log().records()) {
        let found = (record.transfer.engine, work(record));
        if !seen.contains(&found) {
            seen.push(found);
        }
    }
    seen
}

fn work(record: &Record) -> &'static str {
    let transfer = record.transfer;
    match (transfer.engine, transfer.direction, transfer.kind) {
        (Engine::HostDma, Direction::ToNet, _) => "TO_NET: fill a send buffer",
        (Engine::HostDma, Direction::ToHost, Kind::Control) => "TO_HOST: a control message",
        (Engine::HostDma, Direction::ToHost, _) => "TO_HOST: empty a receive buffer (in turn)",
        (Engine::NetSend, _, Kind::Control) => "first the control message",
        (Engine::NetSend, _, _) => "empty a send buffer",
        (Engine::NetReceive, _, Kind::Control) => "a control message: where the payload goes",
        (Engine::NetReceive, _, Kind::Payload) => "fill a receive buffer",
        (Engine::NetReceive, _, Kind::Discard) => "a payload that goes nowhere",
    }
}

/// Forwarding paper, Figure 5: one packet through a forwarder, and the state of its buffer.
pub fn forward_steps(_: &Constants) -> Drawing {
    Drawing::Stripes(activity::stripes(&steps()))
}

const LANES: [&str; 5] = [
    "1 link to adapter",
    "1 adapter to host",
    "2, 3 host: bind, send",
    "4 adapter to link",
    "state of the buffer",
];

fn steps() -> Vec<Activity> {
    let end = end_host(PAGE);
    let mut middle = forwarder("piii433", "lanai7", Some(entries("lanai7")), PAGE);
    middle.nic.log = 100;
    let one = Forwarding { fill: 0, measured: 1, ..Forwarding::new(&end, &middle, Copies::Use) };
    let mut world = one.world(1, vec![PAGE], &Arrivals::Stream);
    let mut watched = Watched::default();
    while world.step() {
        watched.look(&world);
    }
    let mut log: Vec<Activity> = world.nic(0).log().records().iter().map(step_of).collect();
    log.extend(watched.spans(world.now()));
    let place = |entry: &Activity| LANES.iter().position(|lane| *lane == entry.engine);
    log.sort_by_key(|entry| (place(entry), entry.start));
    log
}

fn step_of(record: &Record) -> Activity {
    let transfer = record.transfer;
    let lane = match (transfer.engine, transfer.direction) {
        (Engine::NetReceive, _) => LANES[0],
        (Engine::HostDma, _) => LANES[1],
        (Engine::NetSend, _) => LANES[3],
    };
    let kind = if transfer.kind == Kind::Control { "control message" } else { "payload" };
    let label = if transfer.kind == Kind::Control { "" } else { "payload" };
    span(lane, kind, label, (Picos(record.start), Picos(record.end)))
}

fn span(lane: &str, kind: &str, label: &str, (start, end): (Picos, Picos)) -> Activity {
    Activity {
        machine: String::new(),
        engine: lane.to_string(),
        kind: kind.to_string(),
        start,
        end,
        label: label.to_string(),
        details: Vec::new(),
    }
}

/// When the first received payload's buffer changed its state, and when the host was at work.
#[derive(Default)]
struct Watched {
    states: Vec<(Picos, State)>,
    host: Vec<(Picos, bool)>,
}

impl Watched {
    fn look(&mut self, world: &World<Role>) {
        let state = world.nic(0).cache().state(SEND_SEGMENT as u16);
        if self.states.last().is_none_or(|(_, known)| *known != state) {
            self.states.push((world.now(), state));
        }
        let works = world.is_working(0);
        if self.host.last().is_none_or(|(_, known)| *known != works) {
            self.host.push((world.now(), works));
        }
    }

    fn spans(&self, end: Picos) -> Vec<Activity> {
        let until = |list: &[Picos], index: usize| list.get(index + 1).copied().unwrap_or(end);
        let times: Vec<Picos> = self.states.iter().map(|(time, _)| *time).collect();
        let states = self.states.iter().enumerate().filter(|(_, (_, state))| *state != State::Free);
        let states = states.map(|(index, (start, state))| {
            let name = format!("{state:?}").to_lowercase();
            span(LANES[4], &name, &name, (*start, until(&times, index)))
        });
        let times: Vec<Picos> = self.host.iter().map(|(time, _)| *time).collect();
        let jobs = self.host.iter().enumerate().filter(|(_, (_, works))| *works);
        let jobs = jobs.map(|(index, (start, _))| {
            span(LANES[2], "host at work", "", (*start, until(&times, index)))
        });
        states.chain(jobs).collect()
    }
}
