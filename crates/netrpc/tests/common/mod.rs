//! Bare pairs of `Rpc` and `Endpoint` in fake time, and a link between them that does what the test says.
#![allow(dead_code)] // each test file uses its part

use endpoint::{Endpoint, Frame, FrameMut, Frames, HeapRegion, Placement, ReceiveMessage};
use netrpc::{CallError, CallId, Config, Event, Flaws, RequestKey, Rpc, Start};
pub use rig::Packet;
use std::time::Duration;
use wire::{Channel, Kind, NodeId, Time};

pub const PAGES: usize = 1024;
pub const TURN: Duration = Duration::from_millis(1);

/// The link's treatment of one packet. Times are in turns.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Copies that arrive.
    pub copies: usize,
    /// How late they arrive; the second copy one turn later than the first.
    pub late: u64,
    /// How long the adapter takes to fill the frames of the payload.
    pub filling: u64,
    /// The payload's first byte is bent.
    pub bent: bool,
    /// The link breaks in the middle of the payload.
    pub broken: bool,
}

pub const SAFE: Fate = Fate { copies: 1, late: 0, filling: 0, bent: false, broken: false };
pub const LOST: Fate = Fate { copies: 0, ..SAFE };

/// An arrived request that the test has not answered.
pub struct ArrivedRequest {
    pub key: RequestKey,
    pub data: Vec<u8>,
    pub body: [u8; 64],
    frames: Vec<FrameMut>,
}

#[derive(Debug)]
pub struct Ended {
    pub ticket: u64,
    pub result: Result<u16, CallError>,
    pub data: Vec<u8>,
}

struct Landing {
    message: ReceiveMessage,
    packet: Packet,
    until: u64,
    broken: bool,
}

pub struct Peer {
    pub id: NodeId,
    pub rpc: Rpc,
    pub endpoint: Endpoint,
    pub frames: Frames,
    pub asked: Vec<ArrivedRequest>,
    pub ended: Vec<Ended>,
    landing: Vec<Landing>,
}

impl Peer {
    pub fn new(config: Config, entries: usize) -> Peer {
        let frames = Frames::new(HeapRegion::new(PAGES));
        Peer {
            id: config.id,
            rpc: Rpc::new(config),
            endpoint: Endpoint::with_entries(frames.clone(), config.seed, entries),
            frames,
            asked: Vec::new(),
            ended: Vec::new(),
            landing: Vec::new(),
        }
    }

    /// Takes all that arrived and does what is due.
    pub fn step(&mut self, now: Time) {
        while let Some(message) = self.endpoint.get_rcvmsg() {
            let event = self.rpc.handle_message(now, &mut self.endpoint, message);
            event.into_iter().for_each(|event| self.take(event));
        }
        self.rpc.handle_timeout(now, &mut self.endpoint);
        while let Some(event) = self.rpc.poll_event() {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request { key, message } => {
                let entry = self.endpoint.arrived(&message);
                let frames = std::mem::take(&mut entry.landed);
                let data = gather(&frames, entry.payload_bytes);
                let body = *entry.control.body();
                self.endpoint.release_rcvmsg(message);
                self.asked.push(ArrivedRequest { key, data, body, frames });
            }
            Event::Reply { ticket, status, message } => {
                let entry = self.endpoint.arrived(&message);
                let data = gather(&entry.landed, entry.payload_bytes);
                self.endpoint.release_rcvmsg(message);
                self.ended.push(Ended { ticket, result: Ok(status), data });
            }
            Event::Failed { ticket, error } => {
                self.ended.push(Ended { ticket, result: Err(error), data: Vec::new() })
            }
        }
    }

    pub fn reply(&mut self, asked: ArrivedRequest, status: u16, data: &[u8]) {
        let frames: Vec<Frame> =
            self.frames.copy_of(data).filter(|f| !f.is_empty()).into_iter().collect();
        self.rpc.reply(&mut self.endpoint, &asked.key, status, &[], &frames, &[]);
    }

    fn place(&mut self, packet: Packet, now: u64, fate: Fate) {
        let header = packet.header();
        match self.endpoint.place(&packet.control, &header) {
            Placement::Wait => {} // the link loses it
            Placement::Skip(message) => self.endpoint.deliver(message, &header),
            Placement::Fill(message) => {
                let payload = header.following_bytes() > 0;
                let filling = if payload { fate.filling } else { 0 };
                let broken = payload && fate.broken;
                let landing = Landing { message, packet, until: now + filling, broken };
                self.landing.push(landing);
            }
        }
        self.land(now);
    }

    fn land(&mut self, now: u64) {
        for landing in std::mem::take(&mut self.landing) {
            if landing.until > now {
                self.landing.push(landing);
            } else if landing.broken {
                self.endpoint.abandon(landing.message);
            } else {
                landing.packet.fill(&mut self.endpoint, landing.message);
            }
        }
    }
}

fn gather(frames: &[FrameMut], bytes: usize) -> Vec<u8> {
    let mut data: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
    data.truncate(bytes);
    data
}

/// A call as tests make them.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub to: u16,
    pub channel: Channel,
    pub once: bool,
    pub deadline: Time,
    pub send_bytes: usize,
    pub want_bytes: usize,
    pub ticket: u64,
}

pub const ASK: Ask = Ask {
    to: 2,
    channel: Channel::USER,
    once: true,
    deadline: Time::NEVER,
    send_bytes: 0,
    want_bytes: 0,
    ticket: 0,
};

pub type Route = Box<dyn FnMut(&Packet) -> Fate>;

pub struct Net {
    pub peers: Vec<Peer>,
    pub turn: u64,
    pub route: Route,
    /// Messages that each adapter takes off its send ring in a turn.
    pub pace: usize,
    flying: Vec<(u64, Packet, Fate)>,
}

pub fn config(id: u16, incarnation: u64) -> Config {
    Config {
        flaws: flaws(),
        ..Config::new(NodeId(id), incarnation, incarnation * 1000 + u64::from(id))
    }
}

/// The bug that `cargo xtask planted` names, if no other crate's tests notice it.
fn flaws() -> Flaws {
    let planted = std::env::var("TRAPEZE_PLANTED").unwrap_or_default();
    let token_not_cancelled = cfg!(planted) && planted == "TokenNotCancelled";
    Flaws { token_not_cancelled, ..Flaws::default() }
}

impl Net {
    /// Peers 1 to `count`.
    pub fn new(count: u16) -> Net {
        Net::with((1..=count).map(|id| Peer::new(config(id, 1), 64)).collect())
    }

    pub fn with(peers: Vec<Peer>) -> Net {
        Net { peers, turn: 1, route: Box::new(|_| SAFE), pace: usize::MAX, flying: Vec::new() }
    }

    pub fn now(&self) -> Time {
        Time(0) + TURN * self.turn as u32
    }

    pub fn peer(&mut self, id: u16) -> &mut Peer {
        &mut self.peers[usize::from(id) - 1]
    }

    /// Starts a call; `None` when the table is full or there is no memory.
    pub fn call(&mut self, from: u16, ask: Ask) -> Option<CallId> {
        let now = self.now();
        let peer = self.peer(from);
        let mut data: Vec<Frame> = Vec::new();
        if ask.send_bytes > 0 {
            let mut frame = peer.frames.alloc_exact(ask.send_bytes)?;
            frame.fill(ask.ticket as u8);
            data.push(frame.freeze());
        }
        let mut into: Vec<FrameMut> = Vec::new();
        if ask.want_bytes > 0 {
            into.push(peer.frames.alloc_exact(ask.want_bytes)?);
        }
        let body = ask.ticket.to_le_bytes();
        let start = Start {
            to: NodeId(ask.to),
            channel: ask.channel,
            op: 7,
            once: ask.once,
            deadline: ask.deadline,
            body: &body,
            trailer: &[],
            ticket: ask.ticket,
        };
        peer.rpc.call(now, &mut peer.endpoint, &start, &mut data, &mut into).ok()
    }

    pub fn cancel(&mut self, from: u16, id: CallId) {
        let now = self.now();
        let peer = self.peer(from);
        peer.rpc.cancel(now, &mut peer.endpoint, id);
    }

    /// Puts a packet on its way as if a node had sent it.
    pub fn inject(&mut self, packet: Packet, fate: Fate) {
        self.flying.push((self.turn + fate.late, packet, fate));
    }

    pub fn step(&mut self) {
        let (turn, now) = (self.turn, self.now());
        self.peers.iter_mut().for_each(|peer| peer.land(turn));
        for (at, packet, fate) in std::mem::take(&mut self.flying) {
            if at > turn {
                self.flying.push((at, packet, fate));
                continue;
            }
            let to = packet.header().destination;
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == to) {
                peer.place(packet, turn, fate);
            }
        }
        for peer in &mut self.peers {
            peer.step(now);
        }
        for index in 0..self.peers.len() {
            for _ in 0..self.pace {
                let Some(packet) = Packet::take(&mut self.peers[index].endpoint) else { break };
                self.fly(packet);
            }
        }
        self.turn += 1;
    }

    fn fly(&mut self, packet: Packet) {
        let fate = (self.route)(&packet);
        for copy in 0..fate.copies {
            let mut packet = packet.clone();
            if let (true, Some(byte)) = (fate.bent, packet.data.first_mut()) {
                *byte ^= 0x55;
            }
            let plain = if copy == 0 { fate } else { SAFE };
            self.flying.push((self.turn + 1 + fate.late + copy as u64, packet, plain));
        }
    }

    /// Steps and answers every request with status 0 and `data`, until `done` or for `turns`.
    pub fn serve(
        &mut self,
        turns: u64,
        mut answer: impl FnMut(&ArrivedRequest) -> Vec<u8>,
        mut done: impl FnMut(&mut Net) -> bool,
    ) -> bool {
        for _ in 0..turns {
            if done(self) {
                return true;
            }
            self.step();
            for peer in &mut self.peers {
                for asked in std::mem::take(&mut peer.asked) {
                    let data = answer(&asked);
                    peer.reply(asked, 0, &data);
                }
            }
        }
        done(self)
    }

    pub fn run(&mut self, turns: u64) {
        (0..turns).for_each(|_| self.step());
    }

    /// The next incarnation of a peer: everything it knew is gone.
    pub fn restart(&mut self, id: u16, incarnation: u64, entries: usize) {
        *self.peer(id) = Peer::new(config(id, incarnation), entries);
    }

    /// No call, token or frame is left at any peer, except `kept` frames' pages in kept replies.
    pub fn check_nothing_left(&self) {
        for peer in &self.peers {
            assert_eq!(peer.rpc.open_calls(), 0, "calls of {}", peer.id);
            assert_eq!(peer.frames.free_pages(), PAGES, "frames of {}", peer.id);
            assert!(peer.asked.is_empty());
        }
    }
}

pub fn is_reply(packet: &Packet) -> bool {
    packet.header().kind == Kind::Reply
}

pub fn is_request(packet: &Packet) -> bool {
    packet.header().kind == Kind::Request
}
