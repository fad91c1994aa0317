//! Links over adapters: what the memory of an adapter and the policy of its payloads may change is time, never bytes.

use crate::sides::*;
use live::link::adapter::AdapterShape;
use live::link::{LinkEvent, ShapeError};
use nic::{Buffers, Policy};
use proptest::prelude::*;
use wire::{Kind, NodeId, Token};

/// Two sides over adapters of these shapes.
fn shaped(shapes: [&AdapterShape; 2]) -> (Side, Side, tempfile::TempDir) {
    let (mut a, mut b, directory) = pair(Transport::Adapter);
    a.links.set_adapter(shapes[0].clone()).unwrap();
    b.links.set_adapter(shapes[1].clone()).unwrap();
    (a, b, directory)
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::StoreForward),
        Just(Policy::Tuned),
        (256usize..100_000).prop_map(|size| Policy::FixedAll { size }),
        (256usize..100_000, 256usize..100_000)
            .prop_map(|(send, receive)| Policy::Static { send, receive }),
        (256usize..100_000, 256usize..100_000)
            .prop_map(|(send, receive)| Policy::Adaptive { send, receive }),
    ]
}

/// Adapters that often hold less than one payload.
fn shapes() -> impl Strategy<Value = AdapterShape> {
    (policies(), 16usize..64, 1usize..5, 1usize..5).prop_map(|(policy, kib, send, receive)| {
        let buffers = Buffers::Pools { send, receive };
        AdapterShape { policy, buffer_bytes: kib << 10, buffers, log: 0 }
    })
}

/// A message: its length, the length of its frames, words of its trailer.
fn messages() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let bytes = prop_oneof![0usize..10_000, 0usize..300_000, Just(1 << 20)];
    prop::collection::vec((bytes, 17_000usize..(1 << 20), 0usize..20), 1..12)
}

/// Sends them one way, both sides stepping in turns of these lengths.
fn exchange(a: &mut Side, b: &mut Side, messages: &[(usize, usize, usize)], turns: [usize; 2]) {
    let (mut sent, mut taken) = (0, 0);
    until(a, b, |a, b| {
        for (side, steps) in [(&mut *a, turns[0]), (&mut *b, turns[1])] {
            for _ in 0..steps {
                side.step();
            }
        }
        if sent < messages.len() && a.frames.free_pages() > 1024 {
            let (bytes, piece, words) = messages[sent];
            let trailer = pattern(words * 8);
            a.post(2, Kind::Request, Token::NONE, &pattern(bytes + sent)[sent..], piece, &trailer);
            sent += 1;
        }
        if let Some((data, trailer)) = b.take() {
            let (bytes, _, words) = messages[taken];
            assert!(data == pattern(bytes + taken)[taken..], "message {taken} of {bytes} bytes");
            assert_eq!(trailer, pattern(words * 8));
            taken += 1;
        }
        taken == messages.len()
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every byte arrives once and in order, for any size of the memory, any policies and a slow side; afterwards all
    /// memory is free.
    #[test]
    fn payloads_larger_than_adapter_memory_arrive_whole(
        first in shapes(),
        second in shapes(),
        messages in messages(),
        turns in [0usize..3, 0usize..3],
    ) {
        let (mut a, mut b, _directory) = shaped([&first, &second]);
        exchange(&mut a, &mut b, &messages, turns);
        until(&mut a, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
        prop_assert_eq!(b.frames.free_pages(), POOL_PAGES);
        prop_assert_eq!(a.directory().status()[&NodeId(2)].transport, "adapter");
    }
}

#[test]
fn a_host_frame_is_free_when_its_bytes_are_on_the_adapter() {
    let (mut a, mut b, _directory) = pair(Transport::Adapter);
    a.post_request(2, b"first");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    until(&mut a, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
    a.post_request(2, &pattern(64 << 10));
    a.step();
    assert_eq!(a.frames.free_pages(), POOL_PAGES, "the peer has not looked yet");
    let mut got = None;
    until(&mut a, &mut b, |_, b| {
        got = b.take();
        got.is_some()
    });
    assert!(got.unwrap().0 == pattern(64 << 10));
}

#[test]
fn one_that_listens_takes_callers_of_both_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let security = live::link::Security::Insecure;
    let mut server = Side::new(2, &security);
    server.links.listen(&Transport::Shm.address(directory.path(), 2)).unwrap();
    for (node, transport) in [(1, Transport::Shm), (3, Transport::Adapter)] {
        let mut caller = Side::new(node, &security);
        let address = transport.address(directory.path(), 2);
        caller.directory().set(NodeId(2), vec![address]);
        caller.post_request(2, b"hello");
        until(&mut caller, &mut server, |_, server| server.take().is_some());
        let seen = server.directory().status()[&NodeId(node)].transport;
        assert_eq!(seen, if node == 1 { "shm" } else { "adapter" });
        assert_eq!(caller.events, [LinkEvent::Up(NodeId(2))]);
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let mut side = Side::new(1, &live::link::Security::Insecure);
    let usual = AdapterShape::default();
    let buffers = Buffers::Pools { send: 0, receive: 1 };
    for (shape, told) in [
        (AdapterShape { policy: Policy::Functional, ..usual.clone() }, "whole messages"),
        (
            AdapterShape { policy: Policy::Fragment { size: 512 }, ..usual.clone() },
            "whole messages",
        ),
        (AdapterShape { buffer_bytes: 4096, ..usual.clone() }, "too short"),
        (AdapterShape { buffers, ..usual.clone() }, "buffers"),
        (AdapterShape { policy: Policy::adaptive(0), ..usual.clone() }, "pulse"),
    ] {
        let error: ShapeError = side.links.set_adapter(shape).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    side.links.set_adapter(usual).unwrap();
}
