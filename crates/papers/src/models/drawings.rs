//! Figures 1 to 3 of the forwarding paper, from the model's constants.

use super::forwarding::{board, host};
use crate::constants::Constants;
use crate::queueing::forwarding::{Host, Slot, Work};
use crate::report::Drawing;
use crate::report::number::short;
use crate::report::svg::{Arrow, Boxes, Lane, Node, Span, Stripes, Words};

/// Packets in the figures of the schedule: as many as show that it repeats.
const PACKETS: usize = 4;

/// Figure 1: the centres with visits, service and demand, without a cache and with one.
pub fn network(constants: &Constants) -> Drawing {
    let (host, board) = (host(constants), board("LANai-4", constants));
    let [off, on] = [false, true].map(|cached| host.network(&board, cached).centres);
    let places = [(230.0, 90.0), (430.0, 90.0), (630.0, 90.0)];
    let names = ["adapter (NIC)", "bus (PCI)", "host"];
    let node = |index: usize| Node {
        at: places[index],
        size: (150.0, 96.0),
        lines: vec![
            names[index].to_string(),
            format!("visits {} / {}", off[index].visits, on[index].visits),
            format!("demand {} µs", short(off[index].demand_us())),
            format!("with cache {} µs", short(on[index].demand_us())),
        ],
        colour: None,
    };
    let end = |x: f64, y: f64| Node { at: (x, y), size: (1.0, 1.0), lines: vec![], colour: None };
    let nodes = vec![node(0), node(1), node(2), end(40.0, 90.0), end(430.0, 220.0)];
    let arrow = |from, to, label: &str, bend, label_at| Arrow {
        from,
        to,
        label: label.to_string(),
        bend,
        label_at,
    };
    let arrows = vec![
        arrow(3, 0, "arrivals", 0.0, (0.0, -8.0)),
        arrow(0, 1, "", 0.0, (0.0, 0.0)),
        arrow(1, 2, "", -16.0, (0.0, -8.0)),
        arrow(2, 1, "", -16.0, (0.0, 0.0)),
        arrow(1, 4, "departures", 0.0, (44.0, 4.0)),
    ];
    let note =
        "With a payload cache only the header goes back: the payload leaves from the adapter.";
    let words = vec![Words { at: (390.0, 250.0), text: note.to_string() }];
    Drawing::Boxes(Boxes { height: 275.0, nodes, arrows, words })
}

/// Figure 2: the two memory cycles.
pub fn memory(constants: &Constants) -> Drawing {
    let (host, board) = (host(constants), board("LANai-4", constants));
    let slots = host.schedule(&board, PACKETS);
    let lane = |(cycle, name): (usize, &str)| lane(name, &slots, |slot| slot.cycle == cycle);
    let lanes = ["first cycle", "second cycle"].into_iter().enumerate().map(lane).collect();
    Drawing::Stripes(Stripes { lanes, kinds: kinds(&host) })
}

/// Figure 3: the stages of each packet.
pub fn pipeline(constants: &Constants) -> Drawing {
    let (host, board) = (host(constants), board("LANai-4", constants));
    let slots = host.schedule(&board, PACKETS);
    let lanes = WORKS.map(|(work, name)| lane(name, &slots, |slot| slot.work == work));
    Drawing::Stripes(Stripes { lanes: lanes.to_vec(), kinds: kinds(&host) })
}

const WORKS: [(Work, &str); 4] = [
    (Work::NetToCard, "net to card"),
    (Work::CardToHost, "card to host"),
    (Work::Processing, "instructions"),
    (Work::CardToNet, "card to net"),
];

fn kinds(host: &Host) -> Vec<String> {
    let accesses = host.packet_bytes / host.word_bytes;
    let name = |(work, name): &(Work, &str)| match work {
        Work::Processing => format!("{name} ({} accesses)", host.instruction_accesses()),
        _ => format!("{name} ({accesses} accesses)"),
    };
    WORKS.iter().map(name).collect()
}

fn lane(name: &str, slots: &[Slot], mine: impl Fn(&Slot) -> bool) -> Lane {
    let letter = |packet: usize| char::from(b'A' + (packet % 26) as u8);
    let kind = |work: Work| WORKS.iter().position(|(known, _)| *known == work).unwrap_or(0);
    let span = |slot: &Slot| Span {
        start: slot.start,
        end: slot.end,
        kind: kind(slot.work),
        label: format!("{}{}", letter(slot.packet), slot.work.label()),
    };
    let spans = slots.iter().filter(|slot| mine(slot)).map(span).collect();
    Lane { name: name.to_string(), spans }
}
