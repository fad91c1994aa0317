//! A hostile peer in shared memory: the node closes the link or takes wrong data, and lives.

use endpoint::{Endpoint, Frames};
use live::clock;
use live::link::hello::Hello;
use live::link::{Address, LinkConfig, LinkEvent, Links, Security, SharedPool};
use live::memory::{MemfdRegion, SharedMemory};
use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use wire::{CallHeader, Control, Header, Kind, NodeId};

const POOL_PAGES: usize = 64;
const SLOTS: usize = 128;
const SLOTS_AT: usize = 4096;
const SLOT_BYTES: usize = 704;

struct Victim {
    links: Links,
    endpoint: Endpoint,
    frames: Frames,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

fn victim() -> Victim {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("2.sock");
    let region = MemfdRegion::create("victim", POOL_PAGES).unwrap();
    let pool = SharedPool { fd: region.share().unwrap(), bytes: POOL_PAGES * 4096 };
    let frames = Frames::new(region);
    let config =
        LinkConfig { node: NodeId(2), incarnation: 1, cluster: 7, security: Security::Insecure };
    let mut links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
    links.listen(&Address::Unix(path.clone())).unwrap();
    let endpoint = Endpoint::with_entries(frames.clone(), 1, 32);
    Victim { links, endpoint, frames, path, _directory: directory }
}

impl Victim {
    /// Some turns; events that came.
    fn turns(&mut self, count: usize) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        for _ in 0..count {
            self.links.step(&mut self.endpoint, clock::now()).unwrap();
            self.links.before_sleep();
            self.links.after_sleep();
            events.extend(std::iter::from_fn(|| self.links.take_event()));
            while let Some(message) = self.endpoint.get_rcvmsg() {
                self.endpoint.release_rcvmsg(message);
            }
        }
        events
    }
}

/// Connects as node 1 and passes these two descriptors.
fn intrude(
    path: &Path,
    ring: BorrowedFd<'_>,
    pool: BorrowedFd<'_>,
    pool_bytes: u64,
    adapter: bool,
) -> UnixStream {
    let socket = UnixStream::connect(path).unwrap();
    let (node, slots) = (NodeId(1), SLOTS as u32);
    let hello = Hello { node, cluster: 7, slots, pool_bytes, adapter, ..Hello::default() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [ring, pool];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = hello.encode();
    rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())
        .unwrap();
    socket
}

fn ring_bytes() -> usize {
    (SLOTS_AT + SLOTS * (SLOT_BYTES + 2048)).next_multiple_of(4096)
}

fn write(memory: &SharedMemory, at: usize, bytes: &[u8]) {
    assert!(at + bytes.len() <= memory.bytes());
    // SAFETY: inside the mapping, and this thread is the only one that touches it now.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.base().as_ptr().add(at), bytes.len())
    };
}

#[test]
fn memory_that_can_shrink_is_not_mapped() {
    let mut victim = victim();
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let ring = rustix::fs::memfd_create("ring", flags).unwrap();
    rustix::fs::ftruncate(&ring, ring_bytes() as u64).unwrap();
    let pool = SharedMemory::create("pool", 4096).unwrap();
    let _socket = intrude(&victim.path, ring.as_fd(), pool.fd(), 4096, false);
    assert_eq!(victim.turns(100), []);
    let ring = SharedMemory::create("ring", 4096).unwrap();
    let _socket = intrude(&victim.path, ring.fd(), pool.fd(), 4096, false);
    assert_eq!(victim.turns(100), [], "a ring of the wrong size");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Sealed control messages with any payload length and pieces, counters and words of any value.
    #[test]
    fn whatever_a_peer_writes_the_node_lives(
        payload_bytes in prop_oneof![Just(0u32), Just(4096), any::<u32>().prop_map(|n| n % (2 << 20))],
        pieces in prop::collection::vec(any::<u64>(), 0..4),
        count in prop_oneof![0u64..5, any::<u64>()],
        trailer_words in any::<u8>(),
        tails in prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 1..4),
        words in prop::collection::vec((0usize..4096, any::<u64>()), 0..20),
        posts in 0usize..3,
        post_bytes in prop_oneof![Just(0usize), Just(4096), Just(100_000)],
        adapter: bool,
    ) {
        let mut victim = victim();
        let ring = SharedMemory::create("ring", ring_bytes()).unwrap();
        let pool = SharedMemory::create("pool", 8 * 4096).unwrap();
        let socket = intrude(&victim.path, ring.fd(), pool.fd(), 8 * 4096, adapter);
        prop_assert_eq!(victim.turns(200), [LinkEvent::Up(NodeId(1))]);
        let mut header = Header::new(Kind::Request, NodeId(1), NodeId(2));
        (header.payload_bytes, header.trailer_words) = (payload_bytes, trailer_words);
        let mut control = Control::new(&header, &CallHeader::default());
        control.seal();
        for slot in 0..SLOTS {
            let at = SLOTS_AT + slot * SLOT_BYTES;
            write(&ring, at, &control.0);
            write(&ring, at + 128, &count.to_le_bytes());
            for (n, piece) in pieces.iter().enumerate() {
                write(&ring, at + 136 + n * 8, &piece.to_le_bytes());
            }
        }
        for _ in 0..posts {
            let message = victim.endpoint.get_sendmsg().unwrap();
            let mut header = Header::new(Kind::Request, NodeId(2), NodeId(1));
            header.payload_bytes = post_bytes as u32;
            let frame = victim.frames.copy_of(&vec![5; post_bytes]).unwrap();
            if post_bytes > 0 {
                victim.endpoint.attach_sendmsg(&message, frame, None);
            }
            victim.endpoint.outgoing(&message).control = Control::new(&header, &CallHeader::default());
            victim.endpoint.outgoing(&message).control.seal();
            victim.endpoint.release_sendmsg(message);
        }
        for tail in tails {
            write(&ring, 0, &tail.to_le_bytes());
            victim.turns(20);
        }
        for (at, word) in words {
            write(&ring, at * 8 % 384, &word.to_le_bytes());
            victim.turns(1);
        }
        drop(socket);
        let mut turns = 0;
        let connected = |victim: &Victim| {
            !victim.links.directory().status()[&NodeId(1)].transport.is_empty()
        };
        while connected(&victim) && turns < 10_000 {
            victim.turns(1);
            turns += 1;
        }
        prop_assert_eq!(victim.links.directory().status()[&NodeId(1)].transport, "");
        prop_assert_eq!(victim.frames.free_pages(), POOL_PAGES);
        prop_assert_eq!(victim.endpoint.send_room(), 32);
    }
}
