//! Two links between bare endpoints, both in this thread, so that every step is the test's own.
#![allow(dead_code)] // each test file uses its part

pub mod ethernet;
pub mod memory_port;

use endpoint::{Endpoint, Filling, Frames, SendMessage};
use live::clock;
use live::link::{Address, Directory, Keys, LinkConfig, LinkEvent, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::checksum::crc32c;
use wire::{CallHeader, Control, Header, Kind, NodeId, Time, Token};

pub const POOL_PAGES: usize = 4096;
pub const CLUSTER: u64 = 77;

pub struct Side {
    pub links: Links,
    pub endpoint: Endpoint,
    pub frames: Frames,
    pub log: Rc<RefCell<Vec<String>>>,
    pub events: Vec<LinkEvent>,
}

pub fn config(node: u16, security: &Security) -> LinkConfig {
    LinkConfig {
        node: NodeId(node),
        incarnation: u64::from(node),
        cluster: CLUSTER,
        security: security.clone(),
    }
}

impl Side {
    pub fn new(node: u16, security: &Security) -> Side {
        Side::with(config(node, security))
    }

    pub fn with(config: LinkConfig) -> Side {
        let region = MemfdRegion::create("test", POOL_PAGES).unwrap();
        let pool = SharedPool { fd: region.share().unwrap(), bytes: POOL_PAGES * 4096 };
        let frames = Frames::new(region);
        let log = Rc::new(RefCell::new(Vec::new()));
        let lines = log.clone();
        let write = Box::new(move |line: &str| lines.borrow_mut().push(line.to_string()));
        let endpoint = Endpoint::new(frames.clone(), u64::from(config.node.0) << 32 | 1);
        let links = Links::new(config, Some(pool), write).unwrap();
        Side { links, endpoint, frames, log, events: Vec::new() }
    }

    pub fn step(&mut self) -> bool {
        self.step_at(clock::now())
    }

    pub fn step_at(&mut self, now: Time) -> bool {
        let moved = self.links.step(&mut self.endpoint, now).unwrap();
        while let Some(event) = self.links.take_event() {
            self.events.push(event);
        }
        moved
    }

    pub fn directory(&self) -> &Directory {
        self.links.directory()
    }

    pub fn logged(&self, part: &str) -> bool {
        self.log.borrow().iter().any(|line| line.contains(part))
    }

    /// Posts a message with `data`, in frames of `piece` bytes.
    pub fn post(
        &mut self,
        to: u16,
        kind: Kind,
        token: Token,
        data: &[u8],
        piece: usize,
        trailer: &[u8],
    ) {
        let message: SendMessage = self.endpoint.get_sendmsg().unwrap();
        for part in data.chunks(piece) {
            let frame = self.frames.copy_of(part).unwrap();
            self.endpoint.attach_sendmsg(&message, frame, None);
        }
        let mut header = Header::new(kind, self.links.node(), NodeId(to));
        header.payload_bytes = data.len() as u32;
        header.trailer_words = (trailer.len() / 8) as u8;
        header.token = token;
        let entry = self.endpoint.outgoing(&message);
        entry.trailer[..trailer.len()].copy_from_slice(trailer);
        header.payload_checksum = endpoint::rings::payload_checksum(&entry.payload, trailer);
        entry.control = Control::new(&header, &CallHeader::default());
        entry.control.seal();
        self.endpoint.release_sendmsg(message);
    }

    /// Posts a request of which only the first `there` bytes are there.
    pub fn begin(&mut self, to: u16, data: &[u8], there: usize, trailer: &[u8]) -> Filling {
        let message = self.endpoint.get_sendmsg().unwrap();
        let frame = self.frames.copy_of(&data[..there]).unwrap();
        self.endpoint.attach_sendmsg(&message, frame, None);
        let mut header = Header::new(Kind::Request, self.links.node(), NodeId(to));
        header.payload_bytes = data.len() as u32;
        header.trailer_words = (trailer.len() / 8) as u8;
        header.payload_checksum = crc32c(trailer);
        let entry = self.endpoint.outgoing(&message);
        entry.trailer[..trailer.len()].copy_from_slice(trailer);
        entry.control = Control::new(&header, &CallHeader::default());
        entry.control.seal();
        self.endpoint.release_filling(message, data.len() - there)
    }

    pub fn fill(&mut self, filling: &Filling, data: &[u8]) {
        let frame = self.frames.copy_of(data).unwrap();
        self.endpoint.fill(filling, frame);
    }

    pub fn post_request(&mut self, to: u16, data: &[u8]) {
        self.post(to, Kind::Request, Token::NONE, data, 1 << 20, &[]);
    }

    /// The next arrived message: data and trailer.
    pub fn take(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let message = self.endpoint.get_rcvmsg()?;
        let entry = self.endpoint.arrived(&message);
        assert!(!entry.damaged);
        let mut data: Vec<u8> = entry.landed.iter().flat_map(|frame| frame.to_vec()).collect();
        data.truncate(entry.payload_bytes);
        let trailer = entry.trailer[..entry.control.trailer_bytes()].to_vec();
        self.endpoint.release_rcvmsg(message);
        Some((data, trailer))
    }
}

/// Steps both until `done`. Fails when that takes unreasonably long.
pub fn until(a: &mut Side, b: &mut Side, mut done: impl FnMut(&mut Side, &mut Side) -> bool) {
    let late = clock::now() + Duration::from_secs(20);
    while !done(a, b) {
        a.step();
        b.step();
        assert!(clock::now() < late, "{:?} {:?}", a.log.borrow(), b.log.borrow());
    }
}

/// The same with one.
pub fn step_until(side: &mut Side, mut done: impl FnMut(&Side) -> bool) {
    let late = clock::now() + Duration::from_secs(20);
    while !done(side) {
        side.step();
        assert!(clock::now() < late, "{:?}", side.log.borrow());
    }
}

pub fn encrypted(cluster: u8) -> Security {
    Security::Encrypted(Keys::generate([cluster; 32]))
}

#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Shm,
    Adapter,
    Tcp,
    Noise,
    /// Frames over an Ethernet in memory, of TCP's connection.
    Ether,
    SealedEther,
    /// Frames over a veth.
    Xdp,
    SealedXdp,
}

impl Transport {
    /// Where a node listens.
    pub fn address(self, directory: &std::path::Path, node: u16) -> Address {
        let socket = directory.join(format!("{node}.sock"));
        match self {
            Transport::Shm => Address::Unix(socket),
            Transport::Adapter => Address::Adapter(socket),
            _ => "tcp:127.0.0.1:0".parse().unwrap(),
        }
    }
}

/// All that there are here.
pub fn transports() -> Vec<Transport> {
    use Transport::*;
    let all = [Shm, Adapter, Tcp, Noise, Ether, SealedEther, Xdp, SealedXdp];
    let count = if ethernet::has_xdp() { all.len() } else { all.len() - 2 };
    all[..count].to_vec()
}
/// Those through memory that both sides map.
pub const NEIGHBOURS: [Transport; 2] = [Transport::Shm, Transport::Adapter];

/// Two sides; 1 knows where 2 is. The directory holds the socket.
pub fn pair(transport: Transport) -> (Side, Side, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let security = match transport {
        Transport::Noise | Transport::SealedEther | Transport::SealedXdp => encrypted(5),
        _ => Security::Insecure,
    };
    let (mut a, mut b) = (Side::new(1, &security), Side::new(2, &security));
    let has_frames = match transport {
        Transport::Ether | Transport::SealedEther => {
            ethernet::in_memory(&mut a, &mut b);
            true
        }
        Transport::Xdp | Transport::SealedXdp => {
            ethernet::over_veth(&mut a, &mut b);
            true
        }
        _ => false,
    };
    let address = b.links.listen(&transport.address(directory.path(), 2)).unwrap();
    a.directory().set(NodeId(2), vec![address]);
    if has_frames {
        ethernet::connect(&mut a, &mut b);
    }
    (a, b, directory)
}

pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect()
}
