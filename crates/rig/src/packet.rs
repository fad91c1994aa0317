//! A message between two endpoints, as the two ends of a link see it.

use endpoint::{Endpoint, FrameMut, Placement, ReceiveMessage};
use node::Node;
use wire::{Control, ControlView, Header};

/// A message that has left one endpoint and not reached the other.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The control message, as it was sent.
    pub control: Control,
    /// The payload.
    pub data: Vec<u8>,
    /// The block checksums behind it.
    pub trailer: Vec<u8>,
}

impl Packet {
    /// The header, checked.
    pub fn header(&self) -> Header {
        ControlView::new(&self.control).expect("a sealed message").header()
    }

    /// The next message that `endpoint` sends.
    pub fn take(endpoint: &mut Endpoint) -> Option<Packet> {
        let message = endpoint.next_whole()?;
        let entry = endpoint.taken(&message);
        let packet = Packet {
            control: entry.control,
            data: entry.payload.iter().flat_map(|frame| frame.to_vec()).collect(),
            trailer: entry.trailer[..entry.control.trailer_bytes()].to_vec(),
        };
        endpoint.transmitted(message);
        Some(packet)
    }

    /// Delivers it to `endpoint`; lost where that has no room.
    pub fn put(&self, endpoint: &mut Endpoint) {
        match endpoint.place(&self.control, &self.header()) {
            Placement::Wait => {}
            Placement::Skip(message) => endpoint.deliver(message, &self.header()),
            Placement::Fill(message) => self.fill(endpoint, message),
        }
    }

    /// Fills what `Endpoint::place` gave for it, and delivers it.
    pub fn fill(&self, endpoint: &mut Endpoint, message: ReceiveMessage) {
        let entry = endpoint.arrived(&message);
        copy([&self.data[..]], &mut entry.landed);
        entry.trailer[..self.trailer.len()].copy_from_slice(&self.trailer);
        endpoint.deliver(message, &self.header());
    }
}

/// Copies `parts`, one behind the other, into `frames`; what has no room is left.
fn copy<'a>(parts: impl IntoIterator<Item = &'a [u8]>, frames: &mut [FrameMut]) {
    let (mut frame, mut at) = (0, 0);
    for mut part in parts {
        while !part.is_empty() && frame < frames.len() {
            let into = &mut frames[frame][at..];
            let count = part.len().min(into.len());
            into[..count].copy_from_slice(&part[..count]);
            (part, at) = (&part[count..], at + count);
            if at == frames[frame].len() {
                (frame, at) = (frame + 1, 0);
            }
        }
    }
}

/// The next message that `node` sends.
pub fn take_packet(node: &Node) -> Option<Packet> {
    node.with_endpoint(Packet::take)
}

/// Delivers `packet` to `node`; lost where that has no room.
pub fn put_packet(node: &Node, packet: &Packet) {
    node.with_endpoint(|endpoint| packet.put(endpoint));
}

/// Moves every message from one node to the other as a shared-memory link does: one copy of the data, nothing
/// allocated. The other has room.
pub fn carry(from: &Node, to: &Node) {
    from.with_endpoint(|source| {
        to.with_endpoint(|target| {
            while let Some(message) = source.next_whole() {
                hand_over(source.taken(&message), target);
                source.transmitted(message);
            }
        });
    });
}

fn hand_over(sent: &endpoint::Message, target: &mut Endpoint) {
    let header = ControlView::new(&sent.control).expect("a sealed message").header();
    let Placement::Fill(arrived) = target.place(&sent.control, &header) else {
        panic!("there is room");
    };
    let entry = target.arrived(&arrived);
    let trailer = header.trailer_bytes();
    entry.trailer[..trailer].copy_from_slice(&sent.trailer[..trailer]);
    copy(sent.payload.iter().map(|frame| &frame[..]), &mut entry.landed);
    target.deliver(arrived, &header);
}
