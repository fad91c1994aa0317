//! Peers that are refused, do not speak the protocol, or are not there: each has its reason in the log, in few lines.

use crate::sides::*;
use live::clock;
use live::link::hello::{Hello, LINK_VERSION, Refusal};
use live::link::limits::BACKOFF_MAX;
use live::link::{Address, LinkConfig, LinkEvent, Security};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use wire::checksum::crc32c;
use wire::{CallHeader, Control, Header, Kind, NodeId};

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

/// A caller with these keys, and what answers it at node 2's address.
fn answered(answer: &[u8]) -> Side {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = Side::new(1, &encrypted(1));
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    a.directory().set(NodeId(2), vec![address.parse().unwrap()]);
    a.post_request(2, b"hello");
    listener.set_nonblocking(true).unwrap();
    let (mut socket, mut begun, mut have) = (None, [0; 64 + 48], 0);
    step_until(&mut a, |_| {
        socket = socket.take().or_else(|| listener.accept().ok());
        let heard = |(socket, _): &mut (TcpStream, _)| {
            socket.set_nonblocking(true).unwrap();
            socket.read(&mut begun[have..]).unwrap_or(0)
        };
        have += socket.as_mut().map_or(0, heard);
        have == begun.len()
    });
    let (mut socket, _) = socket.expect("it was heard");
    let _ = socket.write_all(answer); // it may hang up before it has heard all
    drop((socket, listener));
    step_until(&mut a, |side| !side.events.is_empty());
    a
}

/// Clear text from a process at a peer's port that does not know the cluster key: nothing of it is believed.
fn said_in_clear() -> Vec<Vec<u8>> {
    let honest = Hello {
        secure: true,
        node: NodeId(2),
        cluster: CLUSTER,
        incarnation: u64::MAX,
        session: 2,
        ..Hello::default()
    };
    let mut said = vec![vec![], vec![0; 64], b"HTTP/1.1 200 OK\r\n".repeat(20)];
    for byte in 8..64 {
        for value in [0, 6, 0xff] {
            let mut bytes = honest.encode();
            bytes[byte] = value;
            said.push(bytes.to_vec());
        }
    }
    for refusal in (0..=9).chain([255]) {
        let mut bytes = honest.encode();
        bytes[12] = refusal;
        said.push(bytes.to_vec());
        said.push([&bytes[..], &[7; 160]].concat());
        said.push([&bytes[..], &[0; 32], &bytes, &[0; 64]].concat());
        said.push(bytes[..usize::from(refusal) * 6 % 64].to_vec());
    }
    said
}

#[test]
fn a_refusal_in_clear_is_one_failed_dial() {
    for said in said_in_clear() {
        let a = answered(&said);
        assert!(a.events.iter().all(|event| *event == LinkEvent::Down(NodeId(2))), "{said:?}");
        let status = a.directory().status().remove(&NodeId(2)).unwrap();
        assert_eq!((status.refused, status.connections), (None, 0), "{said:?}");
        assert!(!status.last_error.is_empty() && a.logged("cannot connect to"), "{said:?}");
    }
}

#[test]
fn after_whatever_was_said_in_clear_the_real_peer_is_connected() {
    for said in said_in_clear().iter().step_by(41) {
        let mut a = answered(said);
        let mut b = Side::new(2, &encrypted(1));
        let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        a.directory().set(NodeId(2), vec![address]);
        a.post_request(2, b"hello again");
        until(&mut a, &mut b, |a, b| {
            a.events.contains(&LinkEvent::Up(NodeId(2))) && b.take().is_some()
        });
    }
}

#[test]
fn a_refusal_with_proof_of_the_cluster_key_counts() {
    for (node, foreign, wanted) in
        [(2, false, Refusal::Identity), (1, true, Refusal::Cluster), (1, false, Refusal::Address)]
    {
        let cluster = if foreign { CLUSTER + 1 } else { CLUSTER };
        let mut a = Side::with(LinkConfig { cluster, ..config(node, &encrypted(1)) });
        let acceptor = if wanted == Refusal::Address { 3 } else { 2 };
        let mut b = Side::new(acceptor, &encrypted(1));
        let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        a.directory().set(NodeId(2), vec![address]);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |a, _| !a.events.is_empty());
        assert_eq!(a.directory().status()[&NodeId(2)].refused, Some(wanted));
    }
}

/// The other direction: a caller that does not know the key takes neither a peer's place nor its name.
#[test]
fn a_caller_without_the_key_takes_no_place() {
    let (mut a, mut b) = (Side::new(1, &encrypted(1)), Side::new(2, &encrypted(1)));
    let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp(host, port) = address.clone() else { panic!() };
    a.directory().set(NodeId(2), vec![address]);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    let later = Hello {
        secure: true,
        node: NodeId(1),
        assigned: NodeId(2),
        cluster: CLUSTER,
        incarnation: u64::MAX,
        ..Hello::default()
    };
    let logged = |side: &Side| side.log.borrow().iter().filter(|l| l.contains("not made")).count();
    for tail in [&[0; 48][..], &[7; 300]] {
        let before = logged(&b);
        let mut socket = TcpStream::connect((host.as_str(), port)).unwrap();
        socket.write_all(&[&later.encode()[..], tail].concat()).unwrap();
        until(&mut a, &mut b, |_, b| logged(b) > before);
    }
    a.post_request(2, b"still here");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    assert_eq!(b.events, [LinkEvent::Up(NodeId(1))]);
}

/// A raw connection to a fresh side.
fn raw() -> (Side, TcpStream) {
    let mut side = Side::new(2, &Security::Insecure);
    let address = side.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp(host, port) = address else { panic!() };
    (side, TcpStream::connect((host, port)).unwrap())
}

fn hello() -> [u8; 64] {
    Hello { node: NodeId(1), cluster: CLUSTER, ..Default::default() }.encode()
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
            assert!(Hello::parse(&hello).unwrap().bulk);
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

/// A port scan is a few lines, and idle connections keep no node out.
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

/// A node whose requests have another layout, older or newer, is told so and hears this one's version, over both kinds
/// of socket.
#[test]
fn another_version_is_refused_naming_both() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    for (version, older) in [(1, "the peer is the older one"), (9, "this program is the older one")]
    {
        let (mut side, mut socket) = raw();
        other_release(&mut side, &mut socket, version, older);
        let mut side = Side::new(2, &Security::Insecure);
        side.links.listen(&format!("unix:{}", path.display()).parse().unwrap()).unwrap();
        other_release(&mut side, &mut UnixStream::connect(&path).unwrap(), version, older);
    }
}

fn other_release(side: &mut Side, socket: &mut (impl Read + Write), version: u8, older: &str) {
    let mut bytes = hello();
    bytes[8] = version;
    socket.write_all(&bytes).unwrap();
    let both = [format!("link version {version}"), format!("this program {LINK_VERSION}")];
    step_until(side, |side| both.iter().all(|text| side.logged(text)) && side.logged(older));
    let mut answer = [0; 64];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..8], b"trapeze\n");
    assert_eq!(answer[8..10], LINK_VERSION.to_le_bytes());
    assert_eq!(answer[12], Refusal::Version as u8);
}

#[test]
fn a_caller_of_a_newer_release_is_told_that_the_node_it_calls_is_older() {
    let refusal = Hello { refusal: Some(Refusal::Version), ..Hello::default() };
    let mut bytes = refusal.encode();
    bytes[8] = 1; // what release 1 answers
    let a = answered(&bytes);
    assert!(a.logged("the peer is the older one: upgrade it"), "{:?}", a.log.borrow());
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
fn an_unreachable_peer_is_tried_again_more_and_more_rarely() {
    let mut side = Side::new(1, &Security::Insecure);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
