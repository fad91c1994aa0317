//! A TCP stream between two hosts of the adapter world: segments whose headers are in the control message and whose
//! data are pages attached to it, one window, an acknowledgement for every second segment, interrupts that stop while
//! the host drains its ring (HotI'99 section 4; Trapeze/IP, USENIX 1999).
//!
//! Nothing is lost under back-pressure, so that there are neither timers nor retransmissions nor slow start.

use super::fabric::Link;
use super::host::Handling;
use super::measure::Station;
use super::world::World;
use super::world::program::{Cx, Message, Program};
use crate::queue::Picos;
use nic::{Config, Interrupts};

/// One end of a stream. It counts segments.
#[derive(Clone, Debug)]
pub enum End {
    /// Has data without end.
    Sender(Sender),
    /// Takes them.
    Receiver(Receiver),
}

/// The end that sends.
#[derive(Clone, Debug)]
pub struct Sender {
    to: usize,
    bytes: usize,
    /// Segments that may be on their way.
    window: u64,
    /// Processor time of a segment, and of an acknowledgement that came.
    segment: Picos,
    acknowledgement: Picos,
    sent: u64,
    acknowledged: u64,
}

/// The end that receives.
#[derive(Clone, Debug)]
pub struct Receiver {
    from: usize,
    bytes: usize,
    /// Processor time of a segment that came, and of an acknowledgement.
    segment: Picos,
    acknowledgement: Picos,
    came: u64,
    /// Segments that the user has.
    received: u64,
}

impl Sender {
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let adapter = cx.adapters().next().expect("a host with an adapter");
        while self.sent - self.acknowledged < self.window && cx.room(adapter) > 0 {
            self.sent += 1;
            cx.send(adapter, self.to, self.bytes, self.sent, self.segment);
        }
    }
}

impl Receiver {
    fn segment(&mut self, message: &Message<'_>, cx: &mut Cx<'_>) {
        self.came += 1;
        assert_eq!((message.bytes, message.header.word), (self.bytes, self.came), "in order");
        cx.compute(self.segment, 0);
    }

    /// The user has another segment.
    fn delivered(&mut self, cx: &mut Cx<'_>) {
        self.received += 1;
        if self.received.is_multiple_of(2) {
            let adapter = cx.adapters().next().expect("a host with an adapter");
            cx.send(adapter, self.from, 0, self.received, self.acknowledgement);
        }
    }
}

impl Program for End {
    fn begin(&mut self, cx: &mut Cx<'_>) {
        if let End::Sender(sender) = self {
            sender.go_on(cx);
        }
    }

    fn message(&mut self, message: &Message<'_>, cx: &mut Cx<'_>) {
        match self {
            End::Receiver(receiver) => receiver.segment(message, cx),
            End::Sender(sender) => cx.compute(sender.acknowledgement, message.header.word as u32),
        }
    }

    fn done(&mut self, token: u32, cx: &mut Cx<'_>) {
        match self {
            End::Receiver(receiver) => receiver.delivered(cx),
            End::Sender(sender) => {
                sender.acknowledged = u64::from(token);
                sender.go_on(cx);
            }
        }
    }

    fn sent(&mut self, _adapter: usize, cx: &mut Cx<'_>) {
        if let End::Sender(sender) = self {
            sender.go_on(cx);
        }
    }
}

/// Result of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// Payload bytes a second.
    pub rate: f64,
    /// Share of the sender's processor that was at work, and of the receiver's.
    pub busy: [f64; 2],
}

/// Segments that pass before a stream is measured, and that are measured.
const FILL: u64 = 50;
const MEASURED: u64 = 400;

/// A stream of segments of `bytes` between two such stations; interrupts and MTU are TCP's.
///
/// The error says what cannot be: a machine whose preset has no table [tcp], a window below two segments.
pub fn stream(
    station: &Station,
    link: Link,
    bytes: usize,
    handling: Handling,
) -> Result<Streamed, String> {
    let nic = Config { interrupts: Interrupts::Suppressed, mtu: bytes, ..station.nic.clone() };
    let host = Station { nic, ..station.clone() }.host();
    let mut world = World::new(1, link, &[host.clone(), host], ends(station, bytes, handling)?)?;
    let [begun, ended] = [FILL, FILL + MEASURED].map(|count| {
        let received =
            |ends: &[End]| matches!(&ends[1], End::Receiver(end) if end.received == count);
        assert!(world.run_until(received), "the stream stood still at {} s", world.now());
        (world.now(), [0, 1].map(|host| world.host_busy(host)))
    });
    let span = ended.0.since(begun.0).0 as f64;
    let busy = [0, 1].map(|host| ended.1[host].since(begun.1[host]).0 as f64 / span);
    Ok(Streamed { rate: (MEASURED * bytes as u64) as f64 / (span / 1e12), busy })
}

fn ends(station: &Station, bytes: usize, handling: Handling) -> Result<Vec<End>, String> {
    let host = &station.machine.host;
    let tcp = host.tcp.as_ref().ok_or("this machine's preset has no table [tcp]")?;
    let window = tcp.window / bytes as u64;
    if window < 2 {
        return Err(format!("a window of {} bytes is below two segments of {bytes}", tcp.window));
    }
    let segment = host.segment_time(tcp, bytes as u64, handling);
    let acknowledgement = tcp.acknowledgement;
    let (sent, acknowledged, came, received) = (0, 0, 0, 0);
    Ok(vec![
        End::Sender(Sender { to: 1, bytes, window, segment, acknowledgement, sent, acknowledged }),
        End::Receiver(Receiver { from: 0, bytes, segment, acknowledgement, came, received }),
    ])
}
