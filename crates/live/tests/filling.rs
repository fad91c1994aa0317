//! Messages that are sent while they fill.

use crate::sides::*;
use endpoint::Pulse;
use endpoint::tuning::Pulses;
use live::clock;
use live::link::LinkEvent;
use std::time::Duration;
use wire::NodeId;

/// Steps both until neither moves anything for a while; how often the second did.
fn settle(a: &mut Side, b: &mut Side) -> usize {
    let (mut moves, mut idle) = (0, 0);
    while idle < 100 {
        let (sent, received) = (a.step(), b.step());
        moves += usize::from(received);
        idle = if sent || received { 0 } else { idle + 1 };
    }
    moves
}

/// Two sides that have heard of each other. The pulses are given: those that tune themselves depend on the machine.
fn acquainted(transport: Transport) -> (Side, Side, tempfile::TempDir) {
    acquainted_with(transport, Pulse::Adaptive { minimum: 4096 })
}

fn acquainted_with(transport: Transport, pulse: Pulse) -> (Side, Side, tempfile::TempDir) {
    let (mut a, mut b, directory) = pair(transport);
    a.links.set_pulses(Pulses::Given(pulse)).unwrap();
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    settle(&mut a, &mut b);
    (a, b, directory)
}

#[test]
fn a_message_is_sent_while_it_fills() {
    for transport in [Transport::Shm, Transport::Tcp, Transport::Noise] {
        let (mut a, mut b, _directory) = acquainted(transport);
        let (data, trailer) = (pattern(300_000), [7; 64]);
        let filling = a.begin(2, &data, 100_000, &trailer);
        for part in [100_000..200_000, 200_000..300_000] {
            assert!(settle(&mut a, &mut b) > 0, "{transport:?}: what is there comes");
            assert!(b.frames.free_pages() < POOL_PAGES && b.take().is_none());
            assert!(!b.links.before_sleep(), "{transport:?}: it may sleep until the rest comes");
            b.links.after_sleep();
            a.fill(&filling, &data[part]);
        }
        until(&mut a, &mut b, |_, b| b.endpoint.waiting() > 0);
        assert_eq!(b.take().unwrap(), (data, trailer.to_vec()), "{transport:?}");
        a.endpoint.end_filling(filling);
    }
}

#[test]
fn whole_pulses_wait_for_the_last_byte() {
    for transport in [Transport::Shm, Transport::Tcp, Transport::Noise] {
        let (mut a, mut b, _directory) = acquainted_with(transport, Pulse::Whole);
        let (data, trailer) = (pattern(300_000), [7; 64]);
        let filling = a.begin(2, &data, 100_000, &trailer);
        a.fill(&filling, &data[100_000..299_999]);
        assert_eq!(settle(&mut a, &mut b), 0, "{transport:?}: nothing comes");
        a.fill(&filling, &data[299_999..]);
        until(&mut a, &mut b, |_, b| b.endpoint.waiting() > 0);
        assert_eq!(b.take().unwrap(), (data, trailer.to_vec()), "{transport:?}");
        a.endpoint.end_filling(filling);
    }
}

#[test]
fn an_adapter_takes_a_message_when_it_is_whole() {
    let (mut a, mut b, _directory) = acquainted(Transport::Adapter);
    let (data, trailer) = (pattern(300_000), [7; 64]);
    let filling = a.begin(2, &data, 100_000, &trailer);
    assert_eq!(settle(&mut a, &mut b), 0, "nothing comes");
    a.fill(&filling, &data[100_000..]);
    until(&mut a, &mut b, |_, b| b.endpoint.waiting() > 0);
    assert_eq!(b.take().unwrap(), (data, trailer.to_vec()));
    a.endpoint.end_filling(filling);
}

#[test]
fn whole_messages_pass_one_that_is_filling_and_has_not_begun() {
    for transport in transports() {
        let (mut a, mut b, _directory) = acquainted(transport);
        let data = pattern(30_000);
        let filling = a.begin(2, &data, 1000, &[7; 64]);
        a.post_request(2, b"small");
        settle(&mut a, &mut b);
        assert_eq!(b.take().unwrap().0, b"small", "{transport:?}");
        a.fill(&filling, &data[1000..]);
        until(&mut a, &mut b, |_, b| b.endpoint.waiting() > 0);
        assert_eq!(b.take().unwrap().0, data, "{transport:?}");
        a.endpoint.end_filling(filling);
    }
}

#[test]
fn a_message_that_nobody_fills_ends_and_the_next_one_comes() {
    for transport in transports() {
        let (mut a, mut b, _directory) = acquainted(transport);
        let data = pattern(60_000);
        let filling = a.begin(2, &data, 20_000, &[7; 64]);
        settle(&mut a, &mut b);
        a.endpoint.end_filling(filling);
        a.post_request(2, b"next");
        settle(&mut a, &mut b);
        let (found, _) = b.take().unwrap();
        assert_eq!((found.len(), &found[..20_000]), (60_000, &data[..20_000]), "{transport:?}");
        assert_eq!(b.take().unwrap().0, b"next", "{transport:?}");
        settle(&mut a, &mut b);
        assert_eq!(a.frames.free_pages(), POOL_PAGES, "{transport:?}");
    }
}

#[test]
fn a_peer_that_dies_while_a_message_fills_leaves_nothing_behind() {
    for transport in transports() {
        let (mut a, mut b, _directory) = acquainted(transport);
        let data = pattern(300_000);
        let filling = a.begin(2, &data, 100_000, &[7; 64]);
        settle(&mut a, &mut b);
        drop(b);
        let late = clock::now() + Duration::from_secs(20);
        while !a.events.contains(&LinkEvent::Down(NodeId(2))) {
            a.step();
            assert!(clock::now() < late);
        }
        a.fill(&filling, &data[100_000..]);
        a.endpoint.end_filling(filling);
        assert_eq!(a.frames.free_pages(), POOL_PAGES, "{transport:?}");
    }
}
