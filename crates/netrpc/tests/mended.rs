//! One test for each fault that review found, by the story that showed it.

use crate::common::*;
use netrpc::{CallError, status};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::{CallHeader, Channel, Control, ControlView, Flags, Header, Kind, NodeId, Time};

/// A route that gives the n-th packet for which `which` holds the fate `fate`, and all others a safe way.
fn nth(n: usize, which: fn(&Packet) -> bool, fate: Fate) -> Route {
    let mut seen = 0;
    Box::new(move |packet| {
        seen += usize::from(which(packet));
        if which(packet) && seen == n { fate } else { SAFE }
    })
}

/// Takes all of the server's memory, so that requests with data are refused.
fn hog(net: &mut Net, id: u16) -> Vec<endpoint::FrameMut> {
    let frames = net.peer(id).frames.clone();
    std::iter::from_fn(move || frames.alloc(1)).collect()
}

fn executed(net: &mut Net, id: u16) -> u64 {
    net.peer(id).rpc.counters().executed
}

fn all_ended(count: usize) -> impl FnMut(&mut Net) -> bool {
    move |net| net.peer(1).ended.len() >= count
}

#[test]
fn a_copy_of_a_request_that_was_refused_for_lack_of_memory_is_not_executed() {
    let mut net = Net::new(2);
    net.call(1, Ask { ticket: 1, ..ASK });
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    let memory = hog(&mut net, 2);
    net.route = nth(1, is_request, Fate { copies: 2, ..SAFE }); // the copy comes one turn later
    net.call(1, Ask { ticket: 2, send_bytes: 5000, ..ASK });
    net.step();
    net.step();
    drop(memory); // between the two copies
    assert!(net.serve(2000, |_| Vec::new(), all_ended(2)));
    net.run(50);
    assert_eq!(executed(&mut net, 2), 2, "each call once");
}

#[test]
fn a_second_copy_of_an_overload_answer_does_not_send_the_call_again() {
    let mut net = Net::new(2);
    net.call(1, Ask { ticket: 1, ..ASK });
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    let memory = hog(&mut net, 2);
    let mut first = true;
    net.route = Box::new(move |packet| {
        let overloaded = is_reply(packet)
            && ControlView::new(&packet.control).unwrap().call().status == status::OVERLOADED;
        let copies = if overloaded && std::mem::take(&mut first) { 12 } else { 1 };
        Fate { copies, ..SAFE }
    });
    net.call(1, Ask { ticket: 2, send_bytes: 5000, ..ASK });
    net.run(4);
    drop(memory);
    net.run(40); // the request has come again and waits here, while more copies of the overload answer arrive
    assert!(net.serve(2000, |_| Vec::new(), all_ended(2)));
    net.run(50);
    assert_eq!(executed(&mut net, 2), 2, "each call once");
}

#[test]
fn a_kept_reply_lands_in_the_frames_that_wait_now() {
    let mut net = Net::new(2);
    net.route = nth(1, is_reply, Fate { bent: true, ..SAFE });
    net.call(1, Ask { ticket: 1, want_bytes: 100, ..ASK });
    assert!(net.serve(5000, |_| vec![9; 100], all_ended(1)), "the call ends");
    assert_eq!(net.peer(1).ended[0].data, [9; 100]);
    assert_eq!(executed(&mut net, 2), 1);
}

#[test]
fn a_request_whose_trailer_did_not_arrive_whole_is_not_executed() {
    for no_memory in [true, false] {
        let mut net = Net::new(2);
        let (mut header, call) = first_request(&mut net);
        let memory = if no_memory { hog(&mut net, 2) } else { Vec::new() };
        (header.trailer_words, header.payload_checksum) = (2, 12345);
        let mut control = Control::new(&header, &CallHeader { slot: 99, ..call });
        control.seal();
        net.inject(Packet { control, data: Vec::new(), trailer: vec![1; 16] }, SAFE);
        net.run(3);
        let mut slots = net.peer(2).asked.iter().map(|asked| asked.key.slot);
        assert!(!slots.any(|slot| slot == 99), "no memory: {no_memory}");
        drop(memory);
    }
}

/// Starts a once-call without data; the headers of its request, which waits at the server.
fn first_request(net: &mut Net) -> (Header, CallHeader) {
    let request = Rc::new(Cell::new(None));
    let seen = request.clone();
    net.route = Box::new(move |packet| {
        if is_request(packet) {
            seen.set(Some((packet.header(), ControlView::new(&packet.control).unwrap().call())));
        }
        SAFE
    });
    net.call(1, Ask { ticket: 1, ..ASK });
    net.run(4);
    request.get().expect("it was sent")
}

#[test]
fn data_that_nobody_asked_for_or_too_much_of_it_ends_the_call() {
    for want_bytes in [0, 100] {
        let mut net = Net::new(2);
        net.call(1, Ask { ticket: 1, want_bytes, ..ASK });
        assert!(net.serve(3000, |_| vec![9; 5000], all_ended(1)));
        assert_eq!(net.peer(1).ended[0].result, Err(CallError::Fatal));
        assert_eq!(net.peer(1).endpoint.replytokens(), 0);
    }
}

#[test]
fn a_forged_reply_that_takes_the_frames_does_not_leave_the_call_waiting() {
    let mut net = Net::new(3);
    net.route = Box::new(|packet| if is_reply(packet) { LOST } else { SAFE });
    net.call(1, Ask { ticket: 1, want_bytes: 100, ..ASK });
    let token = Rc::new(Cell::new(wire::Token::NONE));
    let seen = token.clone();
    net.route = Box::new(move |packet| {
        seen.set(if is_request(packet) { packet.header().token } else { seen.get() });
        SAFE
    });
    net.run(4);
    let data = vec![6; 100];
    let mut header = Header::new(Kind::Reply, NodeId(3), NodeId(1));
    header.token = token.get();
    (header.payload_bytes, header.payload_checksum) = (100, wire::checksum::crc32c(&data));
    let mut control = Control::new(&header, &CallHeader::default());
    control.seal();
    net.inject(Packet { control, data, trailer: Vec::new() }, SAFE);
    assert!(net.serve(5000, |_| vec![9; 100], all_ended(1)), "the call ends");
    assert_eq!(net.peer(1).ended[0].result, Err(CallError::Fatal));
}

#[test]
fn a_reply_with_the_token_of_another_call_takes_nothing_with_it() {
    let mut net = Net::new(2);
    let requests = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = requests.clone();
    net.route = Box::new(move |packet| {
        if is_request(packet) {
            seen.borrow_mut()
                .push((packet.header(), ControlView::new(&packet.control).unwrap().call()));
        }
        SAFE
    });
    for ticket in 1..=2 {
        net.call(1, Ask { ticket, want_bytes: 100, ..ASK });
    }
    net.run(4);
    let (first, second) = (requests.borrow()[0], requests.borrow()[1]);
    let mut header =
        Header { kind: Kind::Reply, source: NodeId(2), destination: NodeId(1), ..first.0 };
    header.token = second.0.token; // the server answers the first call with the second's token
    let data = vec![6; 100];
    (header.payload_bytes, header.payload_checksum) = (100, wire::checksum::crc32c(&data));
    let mut control = Control::new(&header, &first.1);
    control.seal();
    net.inject(Packet { control, data, trailer: Vec::new() }, SAFE);
    net.run(2);
    assert!(net.serve(5000, |_| vec![9; 100], all_ended(2)), "both calls end");
    assert_eq!(net.peer(1).endpoint.replytokens(), 0, "no token is left behind");
    assert_eq!(net.peer(1).frames.free_pages(), PAGES);
}

#[test]
fn bulk_that_waits_does_not_stand_before_control_calls() {
    let mut net = Net::new(2);
    for ticket in 0..400 {
        net.call(1, Ask { ticket, ..ASK });
    }
    net.run(5);
    net.call(1, Ask { ticket: 999, channel: Channel::MEMBERS, ..ASK });
    net.run(3);
    let control = net.peer(2).asked.iter().any(|asked| asked.key.channel == Channel::MEMBERS);
    assert!(control, "the lease renewal is there although no bulk call was answered");
}

#[test]
fn every_forwarder_of_a_chain_is_done() {
    let mut net = Net::new(4);
    net.call(1, Ask { ticket: 1, once: false, want_bytes: 64, ..ASK });
    forward_along(&mut net, 200);
    assert_eq!(net.peer(1).ended.len(), 1);
    net.run(5000);
    for id in 2..=3 {
        assert_eq!(net.peer(id).rpc.open_calls(), 0, "forwarder {id}");
        assert_eq!(net.peer(id).rpc.counters().retries, 0, "forwarder {id}");
    }
    assert_eq!(executed(&mut net, 4), 1);
}

/// Nodes 2 and 3 pass on to the next; node 4 answers.
fn forward_along(net: &mut Net, turns: u64) {
    for _ in 0..turns {
        net.step();
        let now = net.now();
        for id in 2..=4 {
            let peer = net.peer(id);
            for asked in std::mem::take(&mut peer.asked) {
                match id {
                    4 => peer.reply(asked, 0, &[4; 64]),
                    _ => peer.rpc.forward(
                        now,
                        &mut peer.endpoint,
                        &asked.key,
                        NodeId(id + 1),
                        &asked.body,
                    ),
                }
            }
        }
    }
}

#[test]
fn a_forwarder_without_a_free_record_says_so_at_once() {
    let mut net = Net::new(3);
    for ticket in 0..netrpc::limits::CALLS as u64 {
        net.call(2, Ask { to: 9, ticket, ..ASK });
    }
    net.call(1, Ask { ticket: 1, once: false, ..ASK });
    net.run(4);
    let now = net.now();
    let peer = net.peer(2);
    let asked = peer.asked.pop().unwrap();
    peer.rpc.forward(now, &mut peer.endpoint, &asked.key, NodeId(3), &[]);
    net.run(4);
    assert_eq!(net.peer(1).rpc.counters().overloads, 1);
    let deadline = now + Duration::from_millis(50);
    while net.peer(2).asked.is_empty() {
        net.step();
        assert!(
            net.now() < deadline,
            "the caller asks again after a pause, not after a retry span"
        );
    }
}

#[test]
fn a_request_that_comes_again_is_not_forwarded_twice() {
    let mut net = Net::new(3);
    net.call(1, Ask { ticket: 1, once: false, ..ASK });
    for _ in 0..10_000 {
        net.step();
        let now = net.now();
        let peer = net.peer(2);
        for asked in std::mem::take(&mut peer.asked) {
            peer.rpc.forward(now, &mut peer.endpoint, &asked.key, NodeId(9), &[]);
        }
    }
    assert!(net.peer(1).rpc.counters().retries > 3);
    assert_eq!(net.peer(2).rpc.open_calls(), 1);
}

#[test]
fn a_peer_cannot_make_a_forwarder_panic_with_a_once_call() {
    let mut net = Net::new(3);
    net.call(1, Ask { ticket: 1, once: true, ..ASK });
    net.run(4);
    let now = net.now();
    let peer = net.peer(2);
    let asked = peer.asked.pop().unwrap();
    peer.rpc.forward(now, &mut peer.endpoint, &asked.key, NodeId(3), &[]);
    net.run(4);
    assert_eq!(net.peer(1).ended[0].result, Err(CallError::Refused));
}

#[test]
fn a_third_node_cannot_answer_a_call_that_is_never_delegated() {
    let mut net = Net::new(3);
    let (header, call) = first_request(&mut net);
    let flags = Flags::DELEGATED;
    let header =
        Header { kind: Kind::Reply, source: NodeId(3), destination: NodeId(1), flags, ..header };
    let mut control = Control::new(&header, &call);
    control.seal();
    net.inject(Packet { control, data: Vec::new(), trailer: Vec::new() }, SAFE);
    net.run(4);
    assert!(net.peer(1).ended.is_empty());
}

#[test]
fn a_call_to_a_peer_whose_link_was_down_before_is_given_up_too() {
    let mut net = Net::new(1);
    let now = net.now();
    net.peer(1).rpc.link_down(now, NodeId(2));
    net.call(1, Ask { ticket: 1, ..ASK });
    net.run(11_000);
    assert_eq!(net.peer(1).ended[0].result, Err(CallError::PeerLost));
}

#[test]
fn a_full_send_ring_asks_for_patience_and_keeps_a_bounded_number_of_answers() {
    let mut net = Net::with(vec![Peer::new(config(1, 1), 64), Peer::new(config(2, 1), 4)]);
    net.pace = 0;
    let hello = |incarnation: u64| {
        let mut control =
            Control::new(&Header::new(Kind::Hello, NodeId(1), NodeId(2)), &CallHeader::default());
        control.body_mut()[..8].copy_from_slice(&incarnation.to_le_bytes());
        control.seal();
        Packet { control, data: Vec::new(), trailer: Vec::new() }
    };
    for incarnation in 0..netrpc::limits::OUTBOX as u64 + 100 {
        net.inject(hello(incarnation), SAFE);
        net.step();
    }
    let now = net.now();
    let counters = net.peer(2).rpc.counters();
    assert_eq!(counters.answers_lost, 100 - 4);
    assert!(net.peer(2).rpc.poll_timeout() > Time::ZERO);
    assert!(net.peer(2).rpc.poll_timeout() <= now + Duration::from_millis(2));
}

#[test]
fn a_server_with_the_same_seed_grants_other_epochs_in_its_next_generation() {
    let epoch = |incarnation: u64| {
        let mut config = config(2, incarnation);
        config.seed = 7;
        let mut net =
            Net::with(vec![Peer::new(crate::common::config(1, 1), 64), Peer::new(config, 64)]);
        let seen = Rc::new(Cell::new(0));
        let slot = seen.clone();
        net.route = Box::new(move |packet| {
            slot.set(if is_request(packet) { packet.header().epoch.0 } else { slot.get() });
            SAFE
        });
        net.call(1, ASK);
        net.run(5);
        seen.get()
    };
    let mut epochs: Vec<u32> = (1..50).map(epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 49);
}

/// Another node may have had this one's id, with a clock that is ahead of ours.
#[test]
fn a_life_with_a_lower_number_gets_a_session_too() {
    let mut net = Net::with(vec![Peer::new(config(1, 9), 64), Peer::new(config(2, 1), 64)]);
    let greeting = Rc::new(RefCell::new(None));
    let slot = greeting.clone();
    net.route = Box::new(move |packet| {
        if packet.header().kind == Kind::Hello {
            slot.borrow_mut().get_or_insert_with(|| packet.clone());
        }
        SAFE
    });
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    net.peers[0] = Peer::new(config(1, 5), 64);
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)), "it says that it is the later one");
    assert_eq!(net.peer(1).ended[0].result, Ok(0));
    // The earlier incarnation's number is the greater one, and its HELLO may have been on its way all the time.
    let late = greeting.borrow().clone().unwrap();
    net.inject(late, SAFE);
    net.run(4);
    net.call(1, Ask { once: false, ..ASK });
    assert!(net.serve(2000, |_| Vec::new(), all_ended(2)), "a session that was lost is made again");
    assert_eq!(net.peer(1).ended[1].result, Ok(0));
}

#[test]
fn a_late_greeting_of_an_earlier_life_takes_nothing_from_a_later_one() {
    let mut net = Net::with(vec![Peer::new(config(1, 5), 64), Peer::new(config(2, 1), 64)]);
    let mut control =
        Control::new(&Header::new(Kind::Hello, NodeId(1), NodeId(2)), &CallHeader::default());
    control.body_mut()[..8].copy_from_slice(&4u64.to_le_bytes());
    control.seal();
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    for _ in 0..3 {
        net.inject(Packet { control, data: Vec::new(), trailer: Vec::new() }, SAFE);
        net.run(4);
    }
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(2)));
    assert!(net.peer(1).ended.iter().all(|ended| ended.result == Ok(0)));
    assert_eq!(net.peer(1).rpc.counters().sessions_lost, 0);
}

/// Two processes with one id, as when a machine was copied: the one that started later stays.
#[test]
fn an_earlier_life_that_goes_on_does_not_call_itself_later() {
    let mut net = Net::with(vec![Peer::new(config(1, 5), 64), Peer::new(config(2, 1), 64)]);
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    let earlier = std::mem::replace(&mut net.peers[0], Peer::new(config(1, 9), 64));
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(1)));
    let later = std::mem::replace(&mut net.peers[0], earlier);
    let deadline = net.now() + Duration::from_secs(3);
    net.call(1, Ask { once: false, deadline, ..ASK });
    net.serve(5000, |_| Vec::new(), all_ended(2));
    assert_eq!(net.peer(1).ended[1].result, Err(CallError::Deadline));
    net.peers[0] = later;
    net.call(1, ASK);
    assert!(net.serve(20, |_| Vec::new(), all_ended(2)));
    assert_eq!(net.peer(1).ended[1].result, Ok(0), "in the session that it had");
}
