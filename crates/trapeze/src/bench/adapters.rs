//! Two adapters and nothing above them: hosts that only send and take, each on a thread of its own.

use live::link::Closed;
use live::link::adapter::{AdapterShape, Host, Port, pair};
use nic::{HostFrame, Landed};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use wire::limits::PAYLOAD_BYTES_MAX;
use wire::{CallHeader, Control, Header, Kind, NodeId};

/// The two nodes.
pub const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// A sealed control message between the two for a payload of so many bytes.
pub fn control(from: NodeId, to: NodeId, flow: u32, bytes: usize) -> Control {
    let mut header = Header::new(Kind::Request, from, to);
    (header.sequence, header.payload_bytes) = (flow, bytes as u32);
    let mut control = Control::new(&header, &CallHeader::default());
    control.seal();
    control
}

/// A host with one payload to send and one place for what comes.
pub struct Flat {
    control: Control,
    source: Vec<u8>,
    sink: Vec<u8>,
    /// Messages that were delivered.
    pub delivered: u64,
}

impl Host for Flat {
    fn source(&self, _: u64, offset: usize) -> &[u8] {
        &self.source[offset..]
    }

    fn head(&self, _: u64) -> (&Control, &[u8]) {
        (&self.control, &[])
    }

    fn sent(&mut self, _: u64) {}

    fn sink(&mut self, offset: usize) -> &mut [u8] {
        &mut self.sink[offset..]
    }

    fn deposited(&mut self, _: usize) {}

    fn trailer(&mut self, _: &mut dyn FnMut(&mut [u8])) {}

    fn delivered(&mut self, _: &[Landed]) {
        self.delivered += 1;
    }
}

/// A host and its adapter.
pub struct Station {
    /// The adapter.
    pub port: Port,
    /// The host.
    pub host: Flat,
    /// Where what comes goes; nowhere is a host that keeps nothing.
    frames: Vec<HostFrame>,
}

impl Station {
    /// A host that sends payloads of `bytes` and has room for any, or keeps none.
    pub fn new(port: Port, bytes: usize, keeps: bool) -> Station {
        let source: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
        let control = control(NODES[0], NODES[1], 0, bytes);
        let sink = vec![0; PAYLOAD_BYTES_MAX];
        let frame = HostFrame { address: 0, bytes: sink.len() };
        let frames = if keeps { vec![frame] } else { Vec::new() };
        Station { port, host: Flat { control, source, sink, delivered: 0 }, frames }
    }

    /// Whether what came last is the payload that it sends.
    pub fn has_own(&self) -> bool {
        self.host.sink.starts_with(&self.host.source)
    }

    /// Posts one more of its payload, of the flow `flow`. Panics without room.
    pub fn post(&mut self, flow: u32) {
        let bytes = self.host.source.len();
        if flow > 0 {
            self.host.control = control(NODES[0], NODES[1], flow, bytes);
        }
        let frame = HostFrame { address: 0, bytes };
        let frames = if bytes > 0 { &[frame][..] } else { &[] };
        self.port.post(&self.host.control, frames);
    }

    /// Takes what has come and lets the adapter do what it can.
    pub fn turn(&mut self) -> io::Result<bool> {
        step(&mut self.port, &mut self.host, |_, _| Some(&self.frames))
    }
}

/// One turn of an adapter: `place` finds frames for the message that is next, or none now.
pub fn step<H: Host, F: AsRef<[HostFrame]>>(
    port: &mut Port,
    host: &mut H,
    place: impl FnOnce(&mut H, &Header) -> Option<F>,
) -> io::Result<bool> {
    let broken = |closed: Closed| io::Error::other(closed.to_string());
    let freed = port.reclaim().map_err(broken)?;
    let head = if port.is_coming() { None } else { port.next_head().map_err(broken)? };
    if let Some((_, header)) = head
        && let Some(frames) = place(host, &header)
    {
        port.take_head(&header, frames.as_ref());
    }
    Ok(port.run(host).map_err(broken)? || freed)
}

/// Runs `far` on a thread on processor `cpu` while `near` works on this one, until that has ended. What the two
/// brought; `near` is told whether the other still runs.
pub fn side_by_side<N, F: Send>(
    cpu: usize,
    far: impl FnOnce(&AtomicBool) -> io::Result<F> + Send,
    near: impl FnOnce(&dyn Fn() -> io::Result<()>) -> io::Result<N>,
) -> io::Result<(N, F)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            crate::serve::pin(Some(cpu))?;
            far(&stop)
        });
        let alive = || match thread.is_finished() {
            true => Err(io::Error::other("the other side has ended")),
            false => Ok(()),
        };
        let near = near(&alive);
        stop.store(true, Ordering::Relaxed);
        let far = thread.join().expect("it does not panic")?;
        Ok((near?, far))
    })
}

/// Answers every message with one, until it is told to stop; the adapter afterwards.
pub fn echo(mut station: Station, stop: &AtomicBool) -> io::Result<Station> {
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        station.turn()?;
        while answered < station.host.delivered && station.port.send_room() > 0 {
            station.post(0);
            answered += 1;
        }
    }
    Ok(station)
}

/// Two stations over adapters of one shape: one that sends `bytes`, one that answers with `answer` bytes.
pub fn stations(shape: &AdapterShape, bytes: usize, answer: usize) -> io::Result<[Station; 2]> {
    let [near, far] = pair([shape, shape])?;
    Ok([Station::new(near, bytes, true), Station::new(far, answer, true)])
}
