//! After warm-up, messages cross every link without a single allocation.

#[path = "sides/memory_port.rs"]
mod memory_port;

use endpoint::{Endpoint, Frames};
use live::clock;
use live::link::{Address, Keys, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use memory_port::MemoryPort;
use rig::Counting;
use std::cell::RefCell;
use std::rc::Rc;
use wire::{CallHeader, Control, Header, Kind, NodeId};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const POOL_PAGES: usize = 1024;

fn side(node: u16, security: &Security) -> (Links, Endpoint) {
    let region = MemfdRegion::create("test", POOL_PAGES).unwrap();
    let pool = SharedPool { fd: region.share().unwrap(), bytes: POOL_PAGES * 4096 };
    let config =
        LinkConfig { node: NodeId(node), incarnation: 1, cluster: 1, security: security.clone() };
    let links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
    (links, Endpoint::new(Frames::new(region), 1))
}

fn post(endpoint: &mut Endpoint, bytes: usize) {
    let message = endpoint.get_sendmsg().unwrap();
    let frame = endpoint.frames().alloc_exact(bytes).unwrap().freeze();
    let mut header = Header::new(Kind::Request, NodeId(1), NodeId(2));
    header.payload_bytes = bytes as u32;
    header.trailer_words = 1;
    header.payload_checksum = wire::checksum::crc32c(&[0; 8]);
    endpoint.attach_sendmsg(&message, frame, None);
    let entry = endpoint.outgoing(&message);
    entry.control = Control::new(&header, &CallHeader::default());
    entry.control.seal();
    endpoint.release_sendmsg(message);
}

fn exchange(a: &mut (Links, Endpoint), b: &mut (Links, Endpoint), rounds: usize) {
    for round in 0..rounds {
        post(&mut a.1, 1 + round * 977 % 100_000);
        post(&mut a.1, 8192);
        let mut got = 0;
        while got < 2 {
            // The counters for others are brought up to date by time; that is not a message's doing.
            a.0.step(&mut a.1, clock::now()).unwrap();
            b.0.step(&mut b.1, clock::now()).unwrap();
            while let Some(message) = b.1.get_rcvmsg() {
                got += 1;
                b.1.release_rcvmsg(message);
            }
        }
    }
}

#[test]
fn messages_allocate_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let unix = Address::Unix(directory.path().join("2.sock"));
    let tcp: Address = "tcp:127.0.0.1:0".parse().unwrap();
    let encrypted = Security::Encrypted(Keys::generate([1; 32]));
    let cases = [
        (unix, Security::Insecure, false),
        (tcp.clone(), Security::Insecure, false),
        (tcp.clone(), encrypted.clone(), false),
        (tcp, encrypted, true),
    ];
    for (address, security, frames) in cases {
        let (mut a, mut b) = (side(1, &security), side(2, &security));
        if frames {
            let wire = Rc::new(RefCell::new(rig::Ethernet::new(1)));
            a.0.set_ethernet(Box::new(MemoryPort::new(&wire, 1))).unwrap();
            b.0.set_ethernet(Box::new(MemoryPort::new(&wire, 2))).unwrap();
        }
        let address = b.0.listen(&address).unwrap();
        a.0.directory().set(NodeId(2), vec![address.clone()]);
        // Every entry of both rings is used a few times: each keeps the lists it has once grown.
        exchange(&mut a, &mut b, 1500);
        let before = Counting::in_process();
        exchange(&mut a, &mut b, 500);
        let count = Counting::in_process() - before;
        assert_eq!(count, 0, "{address}");
        let by = a.0.directory().status()[&NodeId(2)].transport;
        assert_eq!(by == "xdp+noise", frames, "{by}");
    }
}
