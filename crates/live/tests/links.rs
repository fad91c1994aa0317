//! Links between bare endpoints: what crosses them, who is refused, who dies.

mod sides;

use live::clock;
use live::link::limits::{BACKOFF_MAX, SHARED_SLOTS, SILENCE_SPAN};
use live::link::{Address, LinkConfig, LinkEvent, Security};
use sides::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use wire::checksum::crc32c;
use wire::{CallHeader, Control, Header, Kind, NodeId, Time, Token};

#[test]
fn payloads_of_every_size_cross_in_order_with_their_trailers() {
    for transport in TRANSPORTS {
        let (mut a, mut b, _directory) = pair(transport);
        let sizes = [0, 1, 127, 4095, 4096, 8192, 10_000, 61_440, 61_441, 65_536, 1 << 20];
        for bytes in sizes {
            let data = pattern(bytes);
            let trailer: Vec<u8> = pattern(bytes.div_ceil(4096).div_ceil(2) * 8);
            a.post(2, Kind::Request, Token::NONE, &data, 32 << 10, &trailer);
            let mut got = None;
            until(&mut a, &mut b, |_, b| {
                got = b.take();
                got.is_some()
            });
            assert!(got.unwrap() == (data, trailer), "{transport:?} {bytes} bytes");
        }
        until(&mut a, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
        assert_eq!(b.frames.free_pages(), POOL_PAGES, "{transport:?}");
        assert_eq!(a.events, [LinkEvent::Up(NodeId(2))]);
        assert_eq!(b.events, [LinkEvent::Up(NodeId(1))]);
    }
}

#[test]
fn a_reply_lands_in_the_frames_of_its_token_and_a_stale_one_nowhere() {
    for transport in TRANSPORTS {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"read");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let data = pattern(100_000);
        // 25 frames of a page each: more pieces than one run.
        let mut frames: Vec<_> = (0..25).map(|_| a.frames.alloc(4096).unwrap()).collect();
        let first = frames[0].offset();
        let token = a.endpoint.get_replytoken(&mut frames).unwrap();
        for _ in 0..2 {
            b.post(1, Kind::Reply, token, &data, 4096, &[]);
        }
        until(&mut a, &mut b, |a, _| a.endpoint.waiting() == 2);
        let message = a.endpoint.get_rcvmsg().unwrap();
        assert_eq!(a.endpoint.arrived(&message).landed[0].offset(), first);
        let landed: Vec<u8> = a
            .endpoint
            .detach_rcvmsg(&message)
            .flat_map(|frame| frame.to_vec())
            .take(data.len())
            .collect();
        assert!(landed == data, "{transport:?}");
        a.endpoint.release_rcvmsg(message);
        assert_eq!(a.take().unwrap().0.len(), 0, "a token is good once");
        assert_eq!(a.endpoint.counters().discarded_token, 1);
    }
}

#[test]
fn many_messages_both_ways_keep_their_order_on_each_connection() {
    for transport in TRANSPORTS {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"first");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let (mut sent, mut at_a, mut at_b) = (0u32, 0u32, 0u32);
        until(&mut a, &mut b, |a, b| {
            if sent < 3000 && a.endpoint.send_room() > 490 && b.endpoint.send_room() > 490 {
                let size = 4 + sent as usize * 37 % 9000;
                let mut data = pattern(size);
                data[..4].copy_from_slice(&sent.to_le_bytes());
                a.post_request(2, &data);
                b.post_request(1, &data);
                sent += 1;
            }
            for (side, count) in [(a, &mut at_a), (b, &mut at_b)] {
                while let Some((data, _)) = side.take() {
                    assert_eq!(data[..4], count.to_le_bytes(), "{transport:?}");
                    assert_eq!(data.len(), 4 + *count as usize * 37 % 9000);
                    *count += 1;
                }
            }
            (at_a, at_b) == (3000, 3000)
        });
        let status = &a.directory().status()[&NodeId(2)];
        assert!(status.tally.drops == 0, "{status:?}");
    }
}

#[test]
fn a_full_receive_ring_stops_the_sender_and_loses_nothing() {
    for transport in TRANSPORTS {
        let (mut a, mut b, _directory) = pair(transport);
        let total = 2000u32;
        let mut sent = 0u32;
        // 512 entries at the receiver, which takes nothing out, and 128 queued.
        for _ in 0..20_000 {
            if sent < total && a.endpoint.send_room() > 400 {
                a.post_request(2, &sent.to_le_bytes());
                sent += 1;
            }
            a.step();
            b.step();
        }
        assert!(b.endpoint.waiting() == 512, "{transport:?}: {}", b.endpoint.waiting());
        let mut taken = 0u32;
        until(&mut a, &mut b, |a, b| {
            if sent < total && a.endpoint.send_room() > 400 {
                a.post_request(2, &sent.to_le_bytes());
                sent += 1;
            }
            while let Some((data, _)) = b.take() {
                assert_eq!(data, taken.to_le_bytes(), "{transport:?}");
                taken += 1;
            }
            taken == total
        });
    }
}

#[test]
fn a_large_payload_does_not_block_small_messages() {
    let (mut a, mut b, _directory) = pair(Transport::Tcp);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    until(&mut a, &mut b, |a, b| {
        // Both connections are there when a large payload overtakes nothing any more.
        a.post_request(2, &pattern(1 << 20));
        a.post_request(2, b"small");
        let mut order = Vec::new();
        until_two(a, b, &mut order);
        order == [5, 1 << 20]
    });
}

fn until_two(a: &mut Side, b: &mut Side, order: &mut Vec<usize>) {
    let late = clock::now() + Duration::from_secs(20);
    while order.len() < 2 {
        a.step();
        b.step();
        order.extend(b.take().map(|(data, _)| data.len()));
        assert!(clock::now() < late);
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_payload_leaves_nothing_behind() {
    for transport in [Transport::Tcp, Transport::Noise] {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let token = a.endpoint.get_replytoken(&mut vec![a.frames.alloc(1 << 20).unwrap()]).unwrap();
        b.post(1, Kind::Reply, token, &pattern(1 << 20), 1 << 20, &[]);
        // Some of it is under way when it dies.
        while a.frames.free_pages() == POOL_PAGES || a.endpoint.waiting() > 0 {
            b.step();
            a.step();
        }
        b.step();
        drop(b);
        let late = clock::now() + Duration::from_secs(20);
        while !a.events.contains(&LinkEvent::Down(NodeId(2))) {
            a.step();
            a.take();
            assert!(clock::now() < late);
        }
        assert_eq!(a.frames.free_pages(), POOL_PAGES, "{transport:?}");
    }
}

#[test]
fn the_death_of_a_shared_memory_peer_shows_and_a_new_life_is_found() {
    let (mut a, mut b, directory) = pair(Transport::Shm);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    drop(b);
    a.post_request(2, b"lost");
    while !a.events.contains(&LinkEvent::Down(NodeId(2))) {
        a.step();
    }
    assert_eq!(a.frames.free_pages(), POOL_PAGES);
    let mut b = Side::new(2, &Security::Insecure);
    b.links.listen(&Address::Unix(directory.path().join("2.sock"))).unwrap();
    a.post_request(2, b"again");
    let mut got = None;
    until(&mut a, &mut b, |_, b| {
        got = b.take();
        got.is_some()
    });
    assert_eq!(got.unwrap().0, b"again");
}

fn refusal(a: Side, b: Side, at_a: &str, at_b: &str) {
    let (mut a, mut b) = (a, b);
    let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    a.directory().set(NodeId(2), vec![address]);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |a, b| a.logged(at_a) && b.logged(at_b));
    assert!(a.events.iter().all(|event| *event == LinkEvent::Down(NodeId(2))));
    assert!(b.events.is_empty());
}

#[test]
fn who_does_not_belong_is_refused_with_the_reason_on_both_sides() {
    let insecure = Security::Insecure;
    let key = "the cluster key does not fit";
    refusal(Side::new(1, &encrypted(1)), Side::new(2, &encrypted(2)), key, key);
    refusal(Side::new(1, &insecure), Side::new(2, &encrypted(2)), "--insecure", "--insecure");
    refusal(Side::new(1, &encrypted(2)), Side::new(2, &insecure), "--insecure", "--insecure");
    let foreign = Side::with(LinkConfig { cluster: 1, ..config(1, &insecure) });
    refusal(foreign, Side::new(2, &insecure), "another cluster", "another cluster");
    refusal(Side::new(2, &insecure), Side::new(2, &insecure), "the same id", "the same id");
    refusal(
        Side::new(1, &insecure),
        Side::new(3, &insecure),
        "another node answers",
        "another node answers",
    );
}

/// A raw connection to a fresh side.
fn raw() -> (Side, TcpStream) {
    let mut side = Side::new(2, &Security::Insecure);
    let address = side.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp(host, port) = address else { panic!() };
    (side, TcpStream::connect((host, port)).unwrap())
}

fn step_until(side: &mut Side, mut done: impl FnMut(&Side) -> bool) {
    let late = clock::now() + Duration::from_secs(20);
    while !done(side) {
        side.step();
        assert!(clock::now() < late, "{:?}", side.log.borrow());
    }
}

fn hello() -> [u8; 64] {
    let hello =
        live::link::hello::Hello { node: NodeId(1), cluster: CLUSTER, ..Default::default() };
    hello.encode()
}

/// Two nodes with one id take each other's place for ever, but not a thousand times a second.
#[test]
fn a_connection_that_ends_at_once_is_not_made_again_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let mut a = Side::new(2, &Security::Insecure);
    a.directory().set(NodeId(1), vec![address.parse().unwrap()]);
    let start = clock::now();
    let until_event = |a: &mut Side, now, event| {
        let late = clock::now() + Duration::from_secs(20);
        loop {
            a.links.step(&mut a.endpoint, now).unwrap();
            a.links.after_sleep(); // looks at the sockets again, though the time stands still
            if a.links.take_event() == Some(event) {
                return;
            }
            assert!(clock::now() < late, "{event:?} {:?}", a.log.borrow());
        }
    };
    for round in 0..3 {
        let now = start + round * BACKOFF_MAX;
        a.post_request(1, b"hello");
        a.links.step(&mut a.endpoint, now).unwrap();
        a.links.after_sleep();
        a.links.step(&mut a.endpoint, now).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 64]).unwrap();
        socket.write_all(&hello()).unwrap();
        until_event(&mut a, now, LinkEvent::Up(NodeId(1)));
        drop(socket);
        until_event(&mut a, now, LinkEvent::Down(NodeId(1)));
        a.post_request(1, b"hello again");
        for _ in 0..100 {
            a.links.step(&mut a.endpoint, now + BACKOFF_MAX / 2).unwrap();
            a.links.after_sleep();
        }
        assert_eq!(a.directory().status()[&NodeId(1)].connections, u64::from(round) + 1);
        listener.set_nonblocking(true).unwrap();
        // Its second connection, for large payloads, may be there; it begins with the same hello.
        while let Ok((mut socket, _)) = listener.accept() {
            let mut hello = [0; 64];
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            socket.read_exact(&mut hello).unwrap();
            assert!(live::link::hello::Hello::parse(&hello).unwrap().bulk);
        }
        listener.set_nonblocking(false).unwrap();
    }
}

/// A server that is away fails by each of its addresses in another way.
#[test]
fn a_node_that_stays_away_is_a_few_lines_whatever_its_addresses_answer() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut a = Side::new(1, &Security::Insecure);
    let addresses = [format!("tcp:{closed}"), "unix:/nowhere/at/all".to_string()];
    a.directory().set(NodeId(2), addresses.map(|address| address.parse().unwrap()).to_vec());
    let mut now = clock::now();
    let late = clock::now() + Duration::from_secs(20);
    let mut failures = 0;
    while failures < 100 {
        a.post_request(2, b"hello");
        a.links.step(&mut a.endpoint, now).unwrap();
        a.links.after_sleep();
        if let Some(event) = a.links.take_event() {
            assert_eq!(event, LinkEvent::Down(NodeId(2)));
            failures += 1;
            now = now + BACKOFF_MAX;
        }
        assert!(clock::now() < late);
    }
    assert!(a.logged("refused") && a.logged("No such file") && a.logged("more like it"));
    assert!(a.log.borrow().len() < 12, "{:?}", a.log.borrow());
}

/// A port scan is a few lines, and who stands in the door keeps nobody out.
#[test]
fn strangers_fill_neither_the_log_nor_the_place_of_others() {
    let (mut b, first) = raw();
    let address = first.peer_addr().unwrap();
    for _ in 0..300 {
        TcpStream::connect(address).unwrap().write_all(&[b'G'; 64]).unwrap();
        b.step();
    }
    step_until(&mut b, |b| b.logged("does not speak Trapeze: check the address"));
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).unwrap());
        b.step();
    }
    let mut a = Side::new(1, &Security::Insecure);
    a.directory().set(NodeId(2), vec![format!("tcp:{address}").parse().unwrap()]);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    assert!(!b.logged("in time") && b.logged("this one is the oldest"), "{:?}", b.log.borrow());
    assert!(b.log.borrow().len() < 15, "{:?}", b.log.borrow());
    assert!(b.logged("from 127.0.0.1"));
}

#[test]
fn garbage_on_the_port_is_logged_and_closed() {
    let (mut side, mut socket) = raw();
    socket.write_all(&[b'G'; 200]).unwrap();
    step_until(&mut side, |side| side.logged("does not speak Trapeze"));
    let (mut side, socket) = raw();
    drop(socket);
    step_until(&mut side, |side| side.logged("during the handshake"));
}

#[test]
fn another_version_is_refused_naming_both() {
    let (mut side, mut socket) = raw();
    let mut bytes = hello();
    bytes[8] = 9;
    socket.write_all(&bytes).unwrap();
    step_until(&mut side, |side| side.logged("link version 9") && side.logged("this program 1"));
    let mut answer = [0; 64];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..8], b"trapeze\n");
    assert_eq!(answer[12], live::link::hello::Refusal::Version as u8);
}

/// A raw peer that has said hello.
fn greeted() -> (Side, TcpStream) {
    let (mut side, mut socket) = raw();
    socket.write_all(&hello()).unwrap();
    step_until(&mut side, |side| side.events == [LinkEvent::Up(NodeId(1))]);
    socket.read_exact(&mut [0; 64]).unwrap();
    (side, socket)
}

fn sealed(source: u16, payload_bytes: u32) -> Control {
    let mut header = Header::new(Kind::Request, NodeId(source), NodeId(2));
    header.payload_bytes = payload_bytes;
    header.payload_checksum = crc32c(b"data");
    let mut control = Control::new(&header, &CallHeader::default());
    control.seal();
    control
}

#[test]
fn what_is_no_message_ends_the_connection_with_its_reason() {
    let mut other = sealed(1, 0);
    other.0[0] = 200;
    let mut damaged = sealed(1, 0);
    damaged.0[100] ^= 1;
    let cases = [
        (other, "message version 200, this program speaks 2"),
        (damaged, "checksum does not fit"),
        (sealed(7, 0), "in the name of node 7"),
    ];
    for (control, reason) in cases {
        let (mut side, mut socket) = greeted();
        socket.write_all(&control.0).unwrap();
        step_until(&mut side, |side| side.events.contains(&LinkEvent::Down(NodeId(1))));
        assert!(side.logged(reason), "{:?}", side.log.borrow());
        assert_eq!(side.endpoint.waiting(), 0);
    }
}

#[test]
fn a_message_that_comes_in_drops_is_put_together_and_a_truncated_one_is_not_delivered() {
    let (mut side, mut socket) = greeted();
    socket.set_nodelay(true).unwrap();
    let message = [&sealed(1, 4).0[..], b"data"].concat();
    for byte in &message {
        socket.write_all(&[*byte]).unwrap();
        side.step();
    }
    step_until(&mut side, |side| side.endpoint.waiting() == 1);
    assert_eq!(side.take().unwrap().0, b"data");
    for cut in [1, 127, 128, 131] {
        let (mut side, mut socket) = greeted();
        socket.write_all(&message[..cut]).unwrap();
        drop(socket);
        step_until(&mut side, |side| side.events.contains(&LinkEvent::Down(NodeId(1))));
        assert!(side.logged("in the middle of a message"), "{:?}", side.log.borrow());
        assert_eq!((side.endpoint.waiting(), side.frames.free_pages()), (0, POOL_PAGES));
    }
}

#[test]
fn a_peer_that_stops_reading_costs_a_bounded_queue() {
    for transport in TRANSPORTS {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        for _ in 0..3000 {
            if a.endpoint.send_room() > 0 && a.frames.free_pages() > 64 {
                a.post_request(2, &pattern(32 << 10));
            }
            a.step();
        }
        assert!(a.endpoint.send_room() >= 512 - 2 * 128 - 1, "{transport:?}");
        std::thread::sleep(Duration::from_millis(110));
        a.step();
        assert!(a.directory().status()[&NodeId(2)].tally.drops > 0, "{transport:?}");
    }
}

#[test]
fn calls_from_both_sides_at_once_leave_one_connection() {
    for transport in TRANSPORTS {
        let (mut a, mut b, directory) = pair(transport);
        let address = match transport {
            Transport::Shm => Address::Unix(directory.path().join("1.sock")),
            _ => "tcp:127.0.0.1:0".parse().unwrap(),
        };
        let address = a.links.listen(&address).unwrap();
        b.directory().set(NodeId(1), vec![address]);
        let (mut at_a, mut at_b) = (0, 0);
        a.post_request(2, b"a");
        b.post_request(1, b"b");
        // Messages on the connection that is given up are lost; calls above send again, as this does.
        let mut rounds = 0;
        until(&mut a, &mut b, |a, b| {
            rounds += 1;
            if rounds % 1000 == 0 {
                a.post_request(2, b"a");
                b.post_request(1, b"b");
            }
            at_a += usize::from(a.take().is_some());
            at_b += usize::from(b.take().is_some());
            at_a > 2 && at_b > 2
        });
        let last = |side: &Side| *side.events.last().unwrap();
        assert_eq!((last(&a), last(&b)), (LinkEvent::Up(NodeId(2)), LinkEvent::Up(NodeId(1))));
    }
}

#[test]
fn a_node_without_an_id_is_given_one() {
    let (_, mut b, _directory) = pair(Transport::Tcp);
    let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let running = std::thread::spawn(move || {
        let mut a = Side::new(0, &Security::Insecure);
        let ids = a.links.bootstrap(&mut a.endpoint, &address, Duration::from_secs(20)).unwrap();
        a.post_request(2, b"hello");
        let late = clock::now() + Duration::from_secs(20);
        while a.endpoint.waiting() == 0 && clock::now() < late {
            a.step();
        }
        (ids, a.take().unwrap().0)
    });
    step_until(&mut b, |b| b.endpoint.waiting() > 0);
    assert_eq!(b.take().unwrap().0, b"hello");
    b.post_request(0xF000, b"welcome");
    let late = clock::now() + Duration::from_secs(20);
    while !running.is_finished() {
        b.step();
        assert!(clock::now() < late);
    }
    let (ids, data) = running.join().unwrap();
    assert_eq!((ids, &data[..]), ((NodeId(0xF000), NodeId(2)), &b"welcome"[..]));
}

#[test]
fn an_unreachable_peer_is_tried_again_more_and_more_rarely() {
    let mut side = Side::new(1, &Security::Insecure);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    side.directory().set(NodeId(2), vec![Address::Tcp("127.0.0.1".into(), gone)]);
    side.post_request(2, b"hello");
    step_until(&mut side, |side| side.events.len() == 3);
    assert!(side.events.iter().all(|event| *event == LinkEvent::Down(NodeId(2))));
    assert_eq!(
        side.log.borrow().len(),
        1,
        "one line, not one per attempt: {:?}",
        side.log.borrow()
    );
    side.post_request(3, b"who");
    step_until(&mut side, |side| side.logged("no address"));
}

/// A side whose peer stands still, in time of its own, which begins when they are connected.
struct Alone {
    side: Side,
    now: Time,
}

impl Alone {
    fn pass(&mut self, looks: u32, span: Duration) {
        for _ in 0..looks {
            self.now = self.now + span;
            self.side.step_at(self.now);
        }
    }

    fn is_down(&self) -> bool {
        self.side.events.contains(&LinkEvent::Down(NodeId(2)))
    }
}

#[test]
fn a_shared_memory_peer_that_stands_still_is_given_up_and_may_come_back() {
    let (mut side, mut b, _directory) = pair(Transport::Shm);
    side.post_request(2, b"first");
    until(&mut side, &mut b, |_, b| b.take().is_some());
    until(&mut side, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
    let (span, look) = (SILENCE_SPAN, Duration::from_millis(100));
    let mut a = Alone { side, now: clock::now() };
    a.pass(300, look);
    assert!(!a.is_down(), "nothing waits for it");
    a.side.post_request(2, b"lost");
    a.pass(5, span);
    assert!(!a.is_down(), "this side stood still, not the other");
    a.pass(98, look);
    assert!(!a.is_down());
    a.pass(4, look);
    assert!(a.is_down() && a.side.logged("taken nothing for 10 s"), "{:?}", a.side.log.borrow());
    assert_eq!(a.side.frames.free_pages(), POOL_PAGES, "its frames wait for nobody");
    let mut side = a.side;
    side.post_request(2, b"again");
    for _ in 0..200_000 {
        a.now = a.now + Duration::from_millis(1);
        side.step_at(a.now);
        b.step();
        while let Some(message) = b.endpoint.get_rcvmsg() {
            let entry = b.endpoint.arrived(&message);
            let frames = entry.landed.iter().flat_map(|frame| frame.to_vec());
            let data: Vec<u8> = frames.take(entry.payload_bytes).collect();
            // What it finds of before may be other data by now, and then does not fit its checksum.
            assert!(entry.damaged || data == b"lost" || data == b"again", "{data:?}");
            let came = !entry.damaged && data == b"again";
            b.endpoint.release_rcvmsg(message);
            if came {
                return;
            }
        }
    }
    panic!("{:?} {:?}", side.log.borrow(), b.log.borrow());
}

#[test]
fn a_shared_memory_peer_that_computes_is_not_given_up_while_it_keeps_no_frames() {
    let (mut side, mut b, _directory) = pair(Transport::Shm);
    side.post_request(2, b"first");
    until(&mut side, &mut b, |_, b| b.take().is_some());
    until(&mut side, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
    let look = Duration::from_millis(100);
    let mut a = Alone { side, now: clock::now() };
    a.side.post_request(2, &[]);
    a.pass(300, look);
    assert!(!a.is_down(), "it is asked again, and what asks keeps no memory");
    (0..SHARED_SLOTS).for_each(|_| a.side.post_request(2, &[]));
    a.side.post_request(2, b"data behind a full ring");
    a.pass(98, look);
    assert!(!a.is_down(), "no memory has waited for so long");
    a.pass(4, look);
    assert!(a.is_down(), "{:?}", a.side.log.borrow());
    assert_eq!(a.side.frames.free_pages(), POOL_PAGES);
}

#[test]
fn who_is_still_filling_a_message_does_not_take_its_reader_for_silent() {
    let (mut side, mut b, _directory) = pair(Transport::Shm);
    let data = pattern(64 << 10);
    let trailer = pattern(16 * 4);
    let filling = side.begin(2, &data, 32 << 10, &trailer);
    until(&mut side, &mut b, |_, b| !b.events.is_empty());
    for _ in 0..100 {
        side.step();
        b.step();
    }
    let mut a = Alone { side, now: clock::now() };
    a.pass(300, Duration::from_millis(100));
    assert!(!a.is_down(), "{:?}", a.side.log.borrow());
    a.side.fill(&filling, &data[32 << 10..]);
    a.pass(105, Duration::from_millis(100));
    assert!(a.is_down(), "now it has everything");
}
