//! The front of a server of NFS, with what three clients send.

use ::nfs::exports;
use ::nfs::front::{ConnectionId, Front};
use ::nfs::handle::Key;
use ::nfs::portmap::TCP;
use ::nfs::server::{Origin, Port, Server};
use core::net::{Ipv4Addr, SocketAddr};
use endpoint::{Frames, HeapRegion};
use node::rings::{FileDone, FileRequest};
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, Time, VolumeId, Wall};

const POOL_PAGES: usize = 1024;
const CLIENTS: usize = 3;

/// A front and its clients' connections.
struct World {
    front: Front,
    clients: [ConnectionId; CLIENTS],
    waiting: Vec<FileRequest>,
}

fn origin(client: usize) -> Origin {
    let from = SocketAddr::new(Ipv4Addr::new(10, 0, 0, client as u8).into(), 700);
    Origin { from, to: Ipv4Addr::LOCALHOST.into(), over: TCP, port: Port::Nfs }
}

impl World {
    fn new(frames: &Frames) -> World {
        let exports = exports::parse("/ *(rw)").expect("an export for everybody");
        let server = Server::new(VolumeId(1), Key([7; 16]), exports, [1; 8]);
        let mut front = Front::new(Rc::new(server), frames.clone());
        let clients = [0, 1, 2].map(|client| front.connect(origin(client)).expect("room"));
        World { front, clients, waiting: Vec::new() }
    }

    /// Some bytes of one client; what is no call ends its connection, and it connects again.
    fn send(&mut self, client: usize, mut bytes: &[u8]) {
        let id = self.clients[client];
        while !bytes.is_empty() {
            let mut taken = 0;
            for mut slice in self.front.slices(id) {
                let part = slice.len().min(bytes.len());
                slice[..part].copy_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
                taken += part;
            }
            if taken == 0 {
                return; // it may not be read now
            }
            if self.front.filled(id, taken).is_err() {
                self.front.disconnect(id);
                self.clients[client] = self.front.connect(origin(client)).expect("room");
                return;
            }
        }
    }

    /// Fails what is asked of the file system, in another order than it was asked.
    fn answer(&mut self) {
        self.waiting.extend(std::iter::from_fn(|| self.front.poll_request()));
        while let Some(FileRequest { front, .. }) = self.waiting.pop() {
            self.front.done(FileDone { front, result: Err(Errno::EIO) });
            self.waiting.extend(std::iter::from_fn(|| self.front.poll_request()));
        }
    }
}

/// Pieces of streams: a byte says whose, and whether calls are answered before it; another one how long it is.
pub fn nfs_front(mut bytes: &[u8]) {
    let frames = Frames::new(HeapRegion::new(POOL_PAGES));
    let mut world = World::new(&frames);
    let mut now = Time::ZERO;
    while let [which, length, rest @ ..] = bytes {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length) * 4));
        world.send(usize::from(*which) % CLIENTS, piece);
        if which & 0x80 != 0 {
            world.answer();
            now = now + Duration::from_secs(1);
            world.front.set_now(now, Wall::default());
            world.front.look_after();
            while let Some(closed) = world.front.poll_closed() {
                let client = world.clients.iter().position(|id| *id == closed);
                let client = client.expect("it was connected");
                world.clients[client] = world.front.connect(origin(client)).expect("room");
            }
        }
        bytes = rest;
    }
    world.answer();
    world.clients.into_iter().for_each(|id| world.front.disconnect(id));
    world.front.close_files();
    world.answer();
    assert!(world.front.is_quiet());
    drop(world);
    assert_eq!(frames.free_pages(), POOL_PAGES);
}
