//! Connections over an Ethernet in memory that does its worst.

use endpoint::{Endpoint, Frames, HeapRegion};
use nic::ether::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN, RESEND_SPAN_MAX, SILENCE_SPAN};
use nic::ether::{Checked, Config, Connection, Fault};
use rig::{Ethernet, Faults};
use std::time::Duration;
use wire::checksum::crc32c;
use wire::{CallHeader, Control, Header, Kind, NodeId, Time, Token, mix};

const PAGES: usize = 4096;
const STEP: Duration = Duration::from_micros(10);

struct Side {
    id: u16,
    endpoint: Endpoint,
    frames: Frames,
    connection: Connection,
    fault: Option<Fault>,
}

fn address(id: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, id as u8]
}

fn connection(from: u16, to: u16, frame_bytes: usize) -> Connection {
    let config = Config {
        peer: NodeId(to),
        from: address(from),
        to: address(to),
        number: from * 100 + to,
        peer_number: to * 100 + from,
        frame_bytes,
        seal: Box::new(Checked(7)),
    };
    Connection::new(config, Time::ZERO)
}

impl Side {
    fn new(id: u16, peer: u16, frame_bytes: usize) -> Side {
        let frames = Frames::new(HeapRegion::new(PAGES));
        let endpoint = Endpoint::new(frames.clone(), id.into());
        let connection = connection(id, peer, frame_bytes);
        Side { id, endpoint, frames, connection, fault: None }
    }

    fn post(&mut self, to: u16, token: Token, data: &[u8], trailer: &[u8]) {
        let message = self.endpoint.get_sendmsg().unwrap();
        for part in data.chunks(32 << 10) {
            let frame = self.frames.copy_of(part).unwrap();
            self.endpoint.attach_sendmsg(&message, frame, None);
        }
        let mut header = Header::new(Kind::Request, NodeId(self.id), NodeId(to));
        header.payload_bytes = data.len() as u32;
        header.trailer_words = (trailer.len() / 8) as u8;
        header.token = token;
        let entry = self.endpoint.outgoing(&message);
        entry.trailer[..trailer.len()].copy_from_slice(trailer);
        header.payload_checksum = endpoint::payload_checksum(&entry.payload, trailer);
        entry.control = Control::new(&header, &CallHeader::default());
        entry.control.seal();
        self.endpoint.release_sendmsg(message);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.endpoint.get_rcvmsg()?;
        let entry = self.endpoint.arrived(&message);
        assert!(!entry.damaged);
        let mut data: Vec<u8> = entry.landed.iter().flat_map(|frame| frame.to_vec()).collect();
        data.truncate(entry.payload_bytes);
        self.endpoint.release_rcvmsg(message);
        Some(data)
    }

    fn step(&mut self, wire: &mut Ethernet, now: Time) {
        while let Some(mut frame) = wire.receive(address(self.id)) {
            let handled = self.connection.handle_frame(&mut frame, &mut self.endpoint, now);
            self.fault = self.fault.or(handled.err());
        }
        while self.connection.is_up()
            && let Some(message) = self.endpoint.next_send()
        {
            self.connection.push(message, &mut self.endpoint);
        }
        let mut frame = [0; FRAME_BYTES_MAX];
        while let Some(bytes) = self.connection.poll_frame(&mut frame, &mut self.endpoint, now) {
            wire.send(&frame[..bytes]);
        }
    }
}

struct Pair {
    a: Side,
    b: Side,
    wire: Ethernet,
    now: Time,
}

impl Pair {
    fn new(seed: u64, frame_bytes: usize, faults: Faults) -> Pair {
        let (a, b) = (Side::new(1, 2, frame_bytes), Side::new(2, 1, frame_bytes));
        let mut wire = Ethernet::new(seed);
        wire.faults = faults;
        Pair { a, b, wire, now: Time::ZERO }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        self.a.step(&mut self.wire, self.now);
        self.b.step(&mut self.wire, self.now);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Pair) -> bool) {
        for _ in 0..2_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("{what}: {:?} {:?}", self.a.connection, self.b.connection.counters());
    }
}

fn pattern(bytes: usize, number: u64) -> Vec<u8> {
    let mut data: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251 + number as usize) as u8).collect();
    data.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, digit)| *byte = digit);
    data
}

const SIZES: [usize; 12] =
    [8, 8, 100, 3000, 3314, 3315, 4096, 8192, 10_000, 65_536, 100_000, 1 << 20];

/// Every message, of each size, over an Ethernet of these faults: whole, and once.
fn all_cross(seed: u64, frame_bytes: usize, faults: Faults, count: u64) {
    let mut pair = Pair::new(seed, frame_bytes, faults);
    let (mut sent, mut came) = (0u64, [const { Vec::new() }; 2]);
    pair.until("all cross", |pair| {
        while sent < count && pair.a.endpoint.send_room() > 400 && pair.a.frames.free_pages() > 600
        {
            let size = SIZES[mix(seed ^ sent) as usize % SIZES.len()];
            pair.a.post(2, Token::NONE, &pattern(size, sent), &[sent as u8; 16]);
            pair.b.post(1, Token::NONE, &pattern(100, sent), &[]);
            sent += 1;
        }
        for (side, came) in [&mut pair.a, &mut pair.b].into_iter().zip(&mut came) {
            while let Some(data) = side.take() {
                let number = u64::from_le_bytes(data[..8].try_into().unwrap());
                assert!(data == pattern(data.len(), number), "seed {seed}: message {number}");
                came.push(number);
            }
        }
        came.iter().all(|came| came.len() as u64 == count)
    });
    for came in &mut came {
        came.sort_unstable();
        assert!(came.iter().copied().eq(0..count), "seed {seed}: each once");
    }
    pair.until("memory", |pair| {
        [&pair.a, &pair.b].iter().all(|side| side.frames.free_pages() == PAGES)
    });
    assert_eq!((pair.a.fault, pair.b.fault), (None, None));
}

#[test]
fn messages_of_every_size_cross_a_good_ethernet() {
    for frame_bytes in [FRAME_BYTES_MIN, 2000, FRAME_BYTES_MAX] {
        all_cross(1, frame_bytes, Faults::default(), 100);
    }
}

#[test]
fn nothing_is_lost_doubled_or_changed_by_an_ethernet_that_does_all_of_it() {
    for seed in 1..20 {
        let part = |n: u32| (mix(seed * 8 + u64::from(n)) % 60) as u32;
        let faults = Faults { lost: part(1), repeated: part(2), late: part(3), changed: part(4) };
        let frame_bytes = if seed % 2 == 0 { FRAME_BYTES_MIN } else { FRAME_BYTES_MAX };
        all_cross(seed, frame_bytes, faults, 60);
    }
}

#[test]
fn half_of_all_frames_may_be_lost() {
    all_cross(3, FRAME_BYTES_MAX, Faults { lost: 500, ..Faults::default() }, 30);
}

/// Lost frames cost themselves, not those behind them.
#[test]
fn what_is_sent_again_is_what_was_lost() {
    for (lost, most) in [(1, 1.01), (10, 1.04)] {
        let faults = |lost| Faults { lost, ..Faults::default() };
        let frames = |lost| {
            let mut pair = Pair::new(5, FRAME_BYTES_MAX, faults(lost));
            let (mut sent, mut came) = (0, 0);
            pair.until("a stream", |pair| {
                while sent < 5000 && pair.a.endpoint.send_room() > 496 {
                    pair.a.post(2, Token::NONE, &pattern(8192, sent), &[]);
                    sent += 1;
                }
                came += std::iter::from_fn(|| pair.b.take()).count();
                came == 5000
            });
            pair.a.connection.counters().sent as f64
        };
        let ratio = frames(lost) / frames(0);
        assert!(ratio < most, "{lost} of 1000 lost: {ratio} x the frames");
    }
}

#[test]
fn a_small_message_overtakes_a_large_one_that_has_begun() {
    let mut pair = Pair::new(1, FRAME_BYTES_MIN, Faults::default());
    pair.until("up", |pair| pair.a.connection.is_up() && pair.b.connection.is_up());
    pair.a.post(2, Token::NONE, &pattern(1 << 20, 1), &[]);
    pair.step();
    pair.a.post(2, Token::NONE, &pattern(8192, 2), &[]);
    let mut order = Vec::new();
    pair.until("both", |pair| {
        order.extend(pair.b.take().map(|data| data.len()));
        order.len() == 2
    });
    assert_eq!(order, [8192, 1 << 20]);
}

#[test]
fn a_host_that_takes_nothing_stops_its_sender_and_drops_nothing() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    let mut sent = 0u64;
    let post = |pair: &mut Pair, sent: &mut u64| {
        while *sent < 2000 && pair.a.endpoint.send_room() > 400 {
            pair.a.post(2, Token::NONE, &sent.to_le_bytes(), &[]);
            *sent += 1;
        }
    };
    for _ in 0..20_000 {
        post(&mut pair, &mut sent);
        pair.step();
    }
    assert_eq!(pair.b.endpoint.waiting(), 512);
    let quiet = pair.wire.sent();
    (0..10_000).for_each(|_| pair.step());
    assert!(pair.wire.sent() < quiet + 20, "it asks now and then");
    let mut taken = 0;
    pair.until("all", |pair| {
        post(pair, &mut sent);
        while let Some(data) = pair.b.take() {
            assert_eq!(data, u64::to_le_bytes(taken));
            taken += 1;
        }
        taken == 2000
    });
    assert_eq!(pair.b.connection.counters().full, 0);
    assert!(!pair.a.connection.is_silent(pair.now));
}

#[test]
fn replayed_forged_and_foreign_frames_do_nothing_and_are_counted() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    pair.until("up", |pair| pair.a.connection.is_up() && pair.b.connection.is_up());
    (0..20).for_each(|_| pair.step());
    pair.a.post(2, Token::NONE, &pattern(8192, 0), &[]);
    pair.a.step(&mut pair.wire, pair.now);
    let seen: Vec<_> = std::iter::from_fn(|| pair.wire.receive(address(2))).collect();
    assert_eq!(seen.len(), 3);
    let deliver = |frame: &[u8], side: &mut Side| {
        let mut frame = frame.to_vec();
        side.connection.handle_frame(&mut frame, &mut side.endpoint, pair.now).unwrap();
    };
    for frame in &seen {
        // Whatever is changed in it, it is not taken, and nor does it spoil the real one.
        for bit in 0..8 * frame.len() {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            deliver(&changed, &mut pair.b);
        }
        (0..frame.len()).for_each(|cut| deliver(&frame[..cut], &mut pair.b));
    }
    assert_eq!(pair.b.endpoint.waiting(), 0);
    let forged = pair.b.connection.counters().forged;
    assert!(forged > 20_000, "{forged}");
    seen.iter().for_each(|frame| deliver(frame, &mut pair.b));
    assert_eq!(pair.b.take().unwrap(), pattern(8192, 0));
    // A changed number may be one that has come.
    let before = pair.b.connection.counters().replayed;
    (0..5).for_each(|_| seen.iter().for_each(|frame| deliver(frame, &mut pair.b)));
    assert_eq!(pair.b.endpoint.waiting(), 0);
    assert_eq!(pair.b.connection.counters().replayed, before + 15);
}

#[test]
fn a_peer_that_breaks_the_protocol_ends_the_connection() {
    let fault = |wrong: &dyn Fn(&mut Control)| {
        let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
        pair.until("up", |pair| pair.a.connection.is_up());
        pair.a.post(2, Token::NONE, b"data", &[]);
        let message = pair.a.endpoint.next_send().unwrap();
        wrong(&mut pair.a.endpoint.outgoing(&message).control);
        pair.a.connection.push(message, &mut pair.a.endpoint);
        pair.until("the fault", |pair| pair.b.fault.is_some());
        assert_eq!(pair.b.endpoint.waiting(), 0);
        pair.b.fault.unwrap()
    };
    assert!(matches!(fault(&|control| control.0[50] ^= 1), Fault::Malformed(_)));
    let forged = fault(&|control| {
        let header = Header::new(Kind::Request, NodeId(9), NodeId(2));
        *control = Control::new(&header, &CallHeader::default());
        control.seal();
    });
    assert_eq!(forged, Fault::Forged(NodeId(9)));
}

#[test]
fn a_wire_that_goes_down_is_noticed_and_leaves_nothing_behind() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    pair.until("up", |pair| pair.a.connection.is_up() && pair.b.connection.is_up());
    let frames = &mut vec![pair.b.frames.alloc(1 << 20).unwrap()];
    let token = pair.b.endpoint.get_replytoken(frames).unwrap();
    pair.a.post(2, token, &pattern(1 << 20, 1), &[]);
    pair.until("half", |pair| pair.b.connection.counters().received > 100);
    pair.wire.down = true;
    let since = pair.now;
    pair.until("silent", |pair| pair.a.connection.is_silent(pair.now));
    let span = pair.now.since(since);
    assert!(span >= SILENCE_SPAN - STEP && span < SILENCE_SPAN + RESEND_SPAN_MAX, "{span:?}");
    pair.a.connection.close(&mut pair.a.endpoint);
    pair.b.connection.close(&mut pair.b.endpoint);
    assert_eq!(pair.a.frames.free_pages(), PAGES);
    assert!(pair.b.endpoint.has_replytoken(token), "it waits for the message to come another way");
    pair.b.endpoint.release_replytoken(token, &mut Vec::new());
    assert_eq!(pair.b.frames.free_pages(), PAGES);
}

#[test]
fn a_wire_that_comes_back_in_time_carries_on() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    pair.until("up", |pair| pair.a.connection.is_up());
    pair.a.post(2, Token::NONE, &pattern(1 << 20, 1), &[]);
    pair.until("half", |pair| pair.b.connection.counters().received > 100);
    pair.wire.down = true;
    (0..100_000).for_each(|_| pair.step());
    pair.wire.down = false;
    pair.until("the message", |pair| pair.b.take().is_some());
}

#[test]
fn a_connection_whose_full_frames_do_not_pass_never_comes_up() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    pair.wire.longest = FRAME_BYTES_MIN;
    (0..300_000).for_each(|_| pair.step());
    assert!(!pair.a.connection.is_up() && !pair.b.connection.is_up());
    assert!(pair.wire.sent() < 40, "{} probes in 3 s", pair.wire.sent());
    pair.wire.longest = usize::MAX;
    pair.until("up", |pair| pair.a.connection.is_up() && pair.b.connection.is_up());
}

/// A message leaves while its data still comes, and others pass it.
#[test]
fn what_is_there_of_a_filling_message_goes_out() {
    let mut pair = Pair::new(1, FRAME_BYTES_MAX, Faults::default());
    pair.until("up", |pair| pair.a.connection.is_up() && pair.b.connection.is_up());
    let (data, trailer) = (pattern(64 << 10, 9), [3; 16]);
    let message = pair.a.endpoint.get_sendmsg().unwrap();
    let first = pair.a.frames.copy_of(&data[..32 << 10]).unwrap();
    pair.a.endpoint.attach_sendmsg(&message, first, None);
    let mut header = Header::new(Kind::Request, NodeId(1), NodeId(2));
    (header.payload_bytes, header.trailer_words) = (data.len() as u32, 2);
    header.payload_checksum = crc32c(&trailer);
    let entry = pair.a.endpoint.outgoing(&message);
    entry.trailer[..16].copy_from_slice(&trailer);
    entry.control = Control::new(&header, &CallHeader::default());
    entry.control.seal();
    let filling = pair.a.endpoint.release_filling(message, 32 << 10);
    pair.a.post(2, Token::NONE, b"small one", &[]);
    pair.until("the small one", |pair| pair.b.take().is_some_and(|it| it == b"small one"));
    (0..100).for_each(|_| pair.step());
    assert!(pair.b.connection.counters().received >= 9, "the first part has come");
    let rest = pair.a.frames.copy_of(&data[32 << 10..]).unwrap();
    pair.a.endpoint.fill(&filling, rest);
    pair.until("the rest", |pair| pair.b.take().is_some_and(|it| it == data));
}

/// Two peers were promised the same entries: what finds none comes again.
#[test]
fn entries_that_two_peers_were_promised_are_given_once() {
    let mut wire = Ethernet::new(1);
    let (mut a, mut c) = (Side::new(1, 2, FRAME_BYTES_MAX), Side::new(3, 2, FRAME_BYTES_MAX));
    let frames = Frames::new(HeapRegion::new(64));
    let mut endpoint = Endpoint::with_entries(frames, 2, 16);
    let mut connections = [connection(2, 1, FRAME_BYTES_MAX), connection(2, 3, FRAME_BYTES_MAX)];
    let (mut now, mut sent, mut came) = (Time::ZERO, 0u64, 0);
    while came < 400 {
        now = now + STEP;
        for side in [&mut a, &mut c] {
            if sent < 400 && side.endpoint.send_room() > 480 {
                side.post(2, Token::NONE, &pattern(8, sent), &[]);
                sent += 1;
            }
            side.step(&mut wire, now);
        }
        while let Some(mut frame) = wire.receive(address(2)) {
            let number = nic::ether::connection_of(&frame).unwrap();
            let connection = connections.iter_mut().find(|c| c.number() == number).unwrap();
            connection.handle_frame(&mut frame, &mut endpoint, now).unwrap();
        }
        let mut frame = [0; FRAME_BYTES_MAX];
        for connection in &mut connections {
            while let Some(bytes) = connection.poll_frame(&mut frame, &mut endpoint, now) {
                wire.send(&frame[..bytes]);
            }
        }
        if now.0 % 1_000_000 == 0 {
            while let Some(message) = endpoint.get_rcvmsg() {
                endpoint.release_rcvmsg(message);
                came += 1;
            }
        }
        assert!(now < Time::ZERO + Duration::from_secs(20), "{came} {connections:?}");
    }
    let full: u64 = connections.iter().map(|c| c.counters().full).sum();
    assert!(full > 0, "both were promised all of them");
}
