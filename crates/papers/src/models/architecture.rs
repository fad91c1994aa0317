//! HotI'99 Figure 1: the parts between a program and a disk, as they are in this project.

use crate::constants::Constants;
use crate::report::Drawing;
use crate::report::svg::{Arrow, Boxes, Node, Words};

const CLIENT: f64 = 210.0;
const SERVER: f64 = 590.0;
const TOP: f64 = 56.0;
const STEP: f64 = 74.0;

/// From top to bottom, on a client and on an I/O server: name, and what the paper calls it.
fn parts() -> [Vec<[String; 2]>; 2] {
    let rings = format!(
        "rings of {} x {} B, {} tokens",
        endpoint::limits::RING_ENTRIES,
        wire::limits::CONTROL_BYTES,
        endpoint::limits::INCOMING_ENTRIES,
    );
    let firmware = nic::Config::new(endpoint::limits::PAGE_BYTES);
    let adapter = format!("{} entries a ring; or plain links", firmware.send_ring);
    let part = |name: &str, what: &str| [name.to_string(), what.to_string()];
    let both = [
        part("netrpc", "NetRPC: calls, replies to tokens"),
        part("endpoint", &rings),
        part("nic", &adapter),
    ];
    let mut client = vec![
        part("programs", "system calls, through FUSE"),
        part("files", "the Slice layer: cache, ahead, behind"),
        part("names, stripe", "block maps; striping"),
    ];
    let mut server = vec![
        part("disks", "log, data, checksums"),
        part("stripe", "block service, server memory as cache"),
        part("node", "tasks, timers; names on the manager"),
    ];
    client.extend(both.clone());
    server.extend(both);
    [client, server]
}

/// The figure.
pub fn architecture(_: &Constants) -> Drawing {
    let [client, server] = parts();
    let columns = [(CLIENT, &client), (SERVER, &server)];
    let mut nodes = Vec::new();
    let mut arrows = Vec::new();
    for (x, parts) in columns {
        let (first, down) = (nodes.len(), x == CLIENT);
        for (index, lines) in parts.iter().enumerate() {
            let at = (x, TOP + STEP * index as f64);
            nodes.push(Node { at, size: (268.0, 46.0), lines: lines.to_vec(), colour: None });
        }
        arrows.extend(
            (first + 1..nodes.len())
                .map(|below| if down { plain(below - 1, below) } else { plain(below, below - 1) }),
        );
    }
    let (left, right) = (client.len() - 1, nodes.len() - 1);
    let control = wire::limits::CONTROL_BYTES;
    let most = wire::limits::PAYLOAD_BYTES_MAX >> 20;
    arrows.push(plain(left, right));
    let bottom = TOP + STEP * left as f64;
    let link = format!(
        "One packet: {control} B of control message, up to {most} MiB of payload that lands where its receiver said."
    );
    let title = |x: f64, text: &str| Words { at: (x, 18.0), text: text.to_string() };
    let words = vec![
        title(CLIENT, "client"),
        title(SERVER, "I/O server, or manager of names"),
        Words { at: (400.0, bottom + 46.0), text: link },
    ];
    Drawing::Boxes(Boxes { height: bottom + 66.0, nodes, arrows, words })
}

fn plain(from: usize, to: usize) -> Arrow {
    Arrow { from, to, label: String::new(), bend: 0.0, label_at: (0.0, 0.0) }
}
