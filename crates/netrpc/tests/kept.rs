//! Kept replies are bounded, go with the client's link, and are the server's to decide about.

use crate::common::*;
use netrpc::CallError;
use netrpc::limits::{KEPT_POOL_PART, PEER_LOST, RETRY};
use wire::{Channel, Flags};

/// Pages of one large reply here.
const LARGE_PAGES: usize = 64;
const LARGE: Ask = Ask { want_bytes: LARGE_PAGES * 4096, ..ASK };

/// Has `from` make `count` large once-calls to node 2 that are all open together, so that each takes a slot of its own.
fn hoard(net: &mut Net, from: u16, count: u64) {
    let before = net.peer(from).ended.len();
    for ticket in 0..count {
        net.call(from, Ask { ticket, ..LARGE }).unwrap();
    }
    let all = move |net: &mut Net| net.peer(from).ended.len() >= before + count as usize;
    assert!(net.serve(3000, |_| vec![7; LARGE.want_bytes], all));
    assert!(net.peer(from).ended.iter().all(|ended| ended.result == Ok(0)));
}

fn kept(net: &mut Net) -> usize {
    net.peer(2).rpc.kept_pages()
}

#[test]
fn a_client_that_never_acknowledges_stops_no_other() {
    let mut net = Net::new(3);
    for _ in 0..8 {
        hoard(&mut net, 1, 12); // and makes no call that would say that it has the replies
        assert!(kept(&mut net) <= PAGES / KEPT_POOL_PART);
        assert!(net.peer(2).frames.free_pages() >= PAGES - PAGES / KEPT_POOL_PART);
    }
    for _ in 0..8 {
        hoard(&mut net, 3, 4);
        assert!(kept(&mut net) <= PAGES / KEPT_POOL_PART);
    }
}

#[test]
fn who_keeps_most_forgets_first() {
    let mut net = Net::new(3);
    net.call(3, Ask { ticket: 1, want_bytes: 4096, ..ASK });
    // The first sending of the small reply is lost: its kept copy has to answer.
    let mut lost = 0;
    net.route = Box::new(move |packet| {
        let small = is_reply(packet) && packet.header().destination.0 == 3;
        if small && std::mem::replace(&mut lost, 1) == 0 { LOST } else { SAFE }
    });
    assert!(net.serve(50, |_| vec![9; 4096], |net| net.peer(2).rpc.kept_pages() > 0));
    hoard(&mut net, 1, 12);
    let done = |net: &mut Net| !net.peer(3).ended.is_empty();
    assert!(net.serve(5000, |_| vec![9; 4096], done));
    let ended = &net.peer(3).ended[0];
    assert_eq!((ended.result, ended.data[0]), (Ok(0), 9));
    assert_eq!(net.peer(2).rpc.counters().executed, 13);
}

#[test]
fn a_call_whose_kept_reply_is_forgotten_is_not_executed_again() {
    let mut net = Net::new(3);
    let mut lost = 0;
    net.route = Box::new(move |packet| {
        let first = is_reply(packet) && packet.header().destination.0 == 3;
        if first && std::mem::replace(&mut lost, 1) == 0 { LOST } else { SAFE }
    });
    // As large as all that hoard keeps together, so that it is the one to go.
    net.call(3, Ask { ticket: 1, want_bytes: 200 * 4096, ..ASK });
    assert!(net.serve(100, |_| vec![9; 200 * 4096], |net| net.peer(2).rpc.kept_pages() > 0));
    hoard(&mut net, 1, 3);
    let done = |net: &mut Net| !net.peer(3).ended.is_empty();
    assert!(net.serve(30_000, |_| vec![9; 200 * 4096], done));
    assert_eq!(net.peer(3).ended[0].result, Err(CallError::PeerLost));
    assert_eq!(net.peer(2).rpc.counters().executed, 4);
    assert_eq!(net.peer(2).rpc.counters().forgotten, 1);
}

#[test]
fn replies_of_a_peer_that_is_gone_are_given_back() {
    let mut net = Net::new(2);
    hoard(&mut net, 1, 3);
    assert!(kept(&mut net) > 0);
    let now = net.now();
    net.peer(2).rpc.link_down(now, wire::NodeId(1));
    net.run(PEER_LOST.as_millis() as u64 / 2);
    assert!(kept(&mut net) > 0, "it may come back and ask again");
    net.run(PEER_LOST.as_millis() as u64);
    assert_eq!(kept(&mut net), 0);
    net.run(50);
    net.check_nothing_left();
}

#[test]
fn no_caller_has_replies_of_pure_operations_kept() {
    let mut net = Net::new(2);
    net.peer(2).rpc.set_pure(Channel::USER, |op| op == 7);
    net.route = Box::new(|packet| Fate { copies: if is_request(packet) { 2 } else { 1 }, ..SAFE });
    net.call(1, Ask { ticket: 1, once: true, want_bytes: 8192, ..ASK });
    assert!(net.serve(2000, |_| vec![7; 8192], |net| net.peer(1).ended.len() == 1));
    net.serve(50, |_| vec![7; 8192], |_| false);
    assert_eq!(kept(&mut net), 0);
    assert_eq!(net.peer(2).rpc.counters().executed, 2, "each copy anew");
    net.check_nothing_left();
}

/// A call that takes long is retransmitted, and the last copy may reach the server behind its reply.
#[test]
fn a_late_copy_of_a_pure_request_with_a_small_reply_begins_no_second_execution() {
    let mut net = Net::new(2);
    net.peer(2).rpc.set_pure(Channel::USER, |op| op == 7);
    let late = RETRY.as_millis() as u64 * 2;
    net.route = Box::new(move |packet| {
        let is_copy = is_request(packet) && packet.header().flags.has(Flags::AGAIN);
        Fate { late: if is_copy { late } else { 0 }, ..SAFE }
    });
    net.call(1, Ask { ticket: 1, once: false, ..ASK });
    net.run(late);
    assert!(net.peer(1).rpc.counters().retries > 0, "the call is retransmitted");
    let done = |net: &mut Net| net.peer(1).ended.len() == 1;
    assert!(net.serve(10, |_| Vec::new(), done));
    net.serve(4 * late, |_| Vec::new(), |_| false);
    assert_eq!(net.peer(2).rpc.counters().executed, 1);
    assert!(net.peer(2).rpc.counters().duplicates > 0, "a copy comes behind the reply");
    assert_eq!(kept(&mut net), 0, "no pages are kept for it");
    net.check_nothing_left();
}

/// The first copy of the reply is lost: the second is the same one, by the token of the retransmitted request.
#[test]
fn a_small_reply_that_is_lost_is_sent_again_without_another_execution() {
    let mut net = Net::new(2);
    let mut lost = false;
    net.route = Box::new(move |packet| {
        let is_first = is_reply(packet) && !std::mem::replace(&mut lost, true);
        if is_first { LOST } else { SAFE }
    });
    net.call(1, Ask { ticket: 1, once: false, want_bytes: 4096, ..ASK });
    let done = |net: &mut Net| net.peer(1).ended.len() == 1;
    assert!(net.serve(2000, |_| Vec::new(), done));
    assert_eq!(net.peer(1).ended[0].result, Ok(0));
    assert_eq!(net.peer(2).rpc.counters().executed, 1);
    net.run(10);
    net.check_nothing_left();
}
