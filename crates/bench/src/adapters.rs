//! Two adapters and nothing above them: hosts that only send and take, each on a thread of its own.

use live::link::Closed;
use live::link::adapter::{AdapterShape, Host, Port, pair};
use nic::{HostFrame, Landed, Piece, Reuse, Send as Heading};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use wire::limits::PAYLOAD_BYTES_MAX;
use wire::{CallHeader, Control, Header, Kind, NodeId, Token};

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
    /// Of the messages that are under way, by number.
    controls: Vec<Control>,
    source: Vec<u8>,
    sink: Vec<u8>,
    /// Messages that were delivered.
    pub delivered: u64,
}

impl Host for Flat {
    fn source(&self, _: u64, offset: usize) -> &[u8] {
        &self.source[offset..]
    }

    fn head(&self, number: u64) -> (&Control, &[u8]) {
        (&self.controls[(number % self.controls.len() as u64) as usize], &[])
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
    posted: u64,
}

impl Station {
    /// A host that sends payloads of `bytes` and has room for any, or keeps none.
    pub fn new(port: Port, bytes: usize, keeps: bool) -> Station {
        let source: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
        let ring = port.nic().config().send_ring;
        let controls = vec![control(NODES[0], NODES[1], 0, bytes); ring];
        let sink = vec![0; PAYLOAD_BYTES_MAX];
        let frame = HostFrame { address: 0, bytes: sink.len() };
        let frames = if keeps { vec![frame] } else { Vec::new() };
        let host = Flat { controls, source, sink, delivered: 0 };
        Station { port, host, frames, posted: 0 }
    }

    /// Whether what came last is the payload that it sends.
    pub fn has_own(&self) -> bool {
        self.host.sink.starts_with(&self.host.source)
    }

    /// Posts its payload once more, fetched from host memory. Panics without room.
    pub fn post(&mut self) {
        let frame = HostFrame { address: 0, bytes: self.host.source.len() };
        self.post_piece(frame.into());
    }

    /// The same as a packet of the flow `flow`, from the adapter's copy if it has one: a sender that costs little.
    pub fn post_known(&mut self, flow: u32) {
        let (slot, bytes) = (self.slot(), self.host.source.len());
        self.host.controls[slot] = control(NODES[0], NODES[1], flow, bytes);
        // Each entry of the ring has a copy of its own, found with what it sent last.
        let known = self.port.nic().sent(slot).next().and_then(|landed| landed.binding);
        let frame = HostFrame { address: (slot * bytes) as u64, bytes };
        self.post_piece(Piece { frame, reuse: known.map_or(Reuse::Fetch, Reuse::Use) });
    }

    fn slot(&self) -> usize {
        (self.posted % self.host.controls.len() as u64) as usize
    }

    fn post_piece(&mut self, piece: Piece) {
        let [source, destination] = NODES;
        let pieces = if piece.frame.bytes > 0 { &[piece][..] } else { &[] };
        self.port.post_pieces(Heading { source, destination, token: Token::NONE }, pieces);
        self.posted += 1;
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

/// Runs `far` on a thread on processor `cpu` while `near` works on this one, until that has ended. Returns both
/// results; `near` is told whether the other still runs.
pub fn side_by_side<N, F: Send>(
    cpu: usize,
    far: impl FnOnce(&AtomicBool) -> io::Result<F> + Send,
    near: impl FnOnce(&dyn Fn() -> io::Result<()>) -> io::Result<N>,
) -> io::Result<(N, F)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            trapeze::serve::pin(Some(cpu))?;
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
            station.post();
            answered += 1;
        }
    }
    Ok(station)
}

/// Sends `count` payloads by `post`, which gets the number of each, `window` under way at a time, until all have come
/// to the other side and back. `alive` fails when that side has ended.
pub fn send(
    station: &mut Station,
    count: u64,
    window: u64,
    alive: &dyn Fn() -> io::Result<()>,
    post: impl Fn(&mut Station, u64),
) -> io::Result<()> {
    let (mut posted, before) = (0, station.host.delivered);
    while station.host.delivered - before < count {
        let answered = station.host.delivered - before;
        while posted < count && posted - answered < window && station.port.send_room() > 0 {
            post(station, posted);
            posted += 1;
        }
        station.turn()?;
        alive()?;
    }
    Ok(())
}

/// The processors of the two sides, as `--cpus` names them; this thread is on the first one from now on, and the
/// second is the answer.
pub fn pin_near(cpus: &[usize]) -> Result<usize, Box<dyn std::error::Error>> {
    let &[near, far] = cpus else {
        return Err("--cpus: two processors are needed, as in --cpus 0,1".into());
    };
    trapeze::serve::pin(Some(near))?;
    Ok(far)
}

/// Two stations over adapters of one shape: one that sends `bytes`, one that answers with `answer` bytes.
pub fn stations(shape: &AdapterShape, bytes: usize, answer: usize) -> io::Result<[Station; 2]> {
    let [near, far] = pair([shape, shape])?;
    Ok([Station::new(near, bytes, true), Station::new(far, answer, true)])
}
