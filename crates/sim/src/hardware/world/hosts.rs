//! Hosts: one processor that does one job at a time, its programmed I/O on the bus, its pages, and its program.

use super::{BusUsers, Event, HostSetup, World};
use crate::hardware::bus::{Bus, Direction};
use crate::hardware::flow::{Flow, Rate};
use crate::hardware::host::{Host, Notice};
use crate::hardware::world::check::Header;
use crate::hardware::world::program::{Cx, Program, ReceiveMessage, Wake};
use crate::hardware::world::work::Work;
use crate::queue::Picos;
use nic::{HostFrame, Interrupts, Landed, Piece, Reuse};
use std::collections::VecDeque;
use wire::{NodeId, Token};

/// The next job of a host's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Writes a control message to the adapter and rings.
    Send { posting: u32 },
    /// Takes a message off the receive ring.
    Take { adapter: u16, slot: usize },
    /// Fields an interrupt.
    Interrupt,
    /// Computes for its program, for a slice of time.
    Work,
}

/// A message on its way through the send ring. Its list is used again.
#[derive(Clone, Debug, Default)]
struct Posting {
    adapter: u16,
    to: u16,
    header: Header,
    pieces: Vec<Piece>,
    compute: Picos,
}

/// A host at work.
#[derive(Debug)]
pub(crate) struct HostState {
    host: Host,
    /// Times that [constants] add to each message, and to each with a payload.
    message: Picos,
    attached: Picos,
    pub bus: Bus,
    pub page: usize,
    notice: Notice,
    pub adapters: Vec<u16>,
    pub users: BusUsers,
    jobs: VecDeque<Job>,
    current: Option<Job>,
    pub pio: Flow,
    pub pio_stamp: u32,
    pio_on: Option<(Direction, Rate)>,
    /// Delivered and not taken.
    inbox: VecDeque<(u16, usize, usize)>,
    taken: u64,
    /// The message that was read and that the program has not taken, and where its payload is.
    at_hand: Option<ReceiveMessage>,
    landed: Vec<Landed>,
    idle_since: Picos,
    noticing: bool,
    draining: bool,
    pub busy: Picos,
    busy_since: Picos,
    /// Computations, and transfers of other devices.
    pub work: Work,
    /// Time that the bus was in use; whether it is, and since when that was looked at.
    pub bus_busy: Picos,
    bus_used: bool,
    bus_since: Picos,
    /// Names of pages; free pages; the next name.
    names: Vec<u64>,
    free: Vec<u64>,
    next_name: u64,
    postings: Vec<Posting>,
    free_postings: Vec<u32>,
}

impl HostState {
    pub fn new(setup: &HostSetup) -> HostState {
        let interrupts =
            |adapter: &super::AdapterSetup| adapter.nic.interrupts != Interrupts::Never;
        let notice =
            if setup.adapters.iter().any(interrupts) { Notice::Interrupt } else { Notice::Poll };
        let added = setup.adapters.iter().find_map(|adapter| match adapter.pricing {
            super::Pricing::Constants(constants) => Some((constants.message, constants.attached)),
            super::Pricing::Contention => None,
        });
        let (message, attached) = added.unwrap_or_default();
        HostState {
            host: setup.machine.host,
            message,
            attached,
            bus: setup.machine.bus,
            page: setup.page,
            notice,
            adapters: Vec::new(),
            users: BusUsers::default(),
            jobs: VecDeque::with_capacity(64),
            current: None,
            pio: Flow::default(),
            pio_stamp: 0,
            pio_on: None,
            inbox: VecDeque::with_capacity(64),
            taken: 0,
            at_hand: None,
            landed: Vec::new(),
            idle_since: Picos::ZERO,
            noticing: false,
            draining: false,
            busy: Picos::ZERO,
            busy_since: Picos::ZERO,
            work: Work::default(),
            bus_busy: Picos::ZERO,
            bus_used: false,
            bus_since: Picos::ZERO,
            names: vec![0],
            free: Vec::new(),
            next_name: 1,
            postings: Vec::new(),
            free_postings: Vec::new(),
        }
    }

    /// The programmed I/O now: towards whom, and how fast it would be alone.
    pub fn pio_rate(&self) -> Option<(Direction, Rate)> {
        self.pio_on
    }

    pub fn is_working(&self) -> bool {
        self.current.is_some()
    }

    pub fn name_at(&self, address: u64) -> u64 {
        self.names[address as usize / self.page]
    }

    pub fn set_name(&mut self, address: u64, name: u64) {
        self.names[address as usize / self.page] = name;
    }

    fn take_page(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.names.push(0);
            self.names.len() as u64 - 1
        });
        index * self.page as u64
    }

    fn give_page(&mut self, address: u64) {
        self.free.push(address / self.page as u64);
    }

    fn posting(&mut self) -> u32 {
        self.free_postings.pop().unwrap_or_else(|| {
            self.postings.push(Posting::default());
            self.postings.len() as u32 - 1
        })
    }

    /// Time of a job before its programmed I/O.
    fn timed(&self, job: Job, landed: usize) -> Picos {
        let attach = |bytes: usize| if bytes > 0 { self.host.attach } else { Picos::ZERO };
        match job {
            Job::Send { posting } => {
                let posting = &self.postings[posting as usize];
                let bytes = posting.pieces.len();
                posting.compute + self.host.send + attach(bytes)
            }
            Job::Take { .. } => self.added(landed) + self.host.receive + attach(landed),
            Job::Interrupt => self.host.interrupt,
            Job::Work => self.work.slice().unwrap_or_default(),
        }
    }

    /// Time that [constants] add to a message with so many bytes, or pieces, of payload.
    fn added(&self, payload: usize) -> Picos {
        if payload > 0 { self.message + self.attached } else { self.message }
    }

    /// A user came to the bus or left it.
    pub fn note_bus(&mut self, now: Picos) {
        if self.bus_used {
            self.bus_busy = self.bus_busy + now.since(self.bus_since);
        }
        (self.bus_used, self.bus_since) = (self.users.any(), now);
    }
}

impl<P: Program> World<P> {
    /// Arms every receive ring and starts the programs.
    pub(crate) fn begin(&mut self) {
        for adapter in 0..self.adapters.len() as u16 {
            let (ring, mtu) = {
                let config = self.adapters[usize::from(adapter)].nic.config();
                (config.receive_ring, config.mtu)
            };
            let host = usize::from(self.adapters[usize::from(adapter)].host);
            let page = self.hosts[host].page;
            let pages = mtu.div_ceil(page);
            for slot in 0..ring {
                let state = &mut self.hosts[host];
                let frame = |_| HostFrame { address: state.take_page(), bytes: page };
                let frames: Vec<HostFrame> = (0..pages).map(frame).collect();
                self.adapters[usize::from(adapter)].armed[slot] = frames;
                self.arm(adapter, slot);
            }
        }
        (0..self.hosts.len() as u16)
            .for_each(|host| self.call(host, |program, cx| program.begin(cx)));
    }

    fn arm(&mut self, adapter: u16, slot: usize) {
        let state = &mut self.adapters[usize::from(adapter)];
        let armed =
            state.nic.arm(&state.armed[slot]).expect("the ring has as many entries as were taken");
        assert_eq!(armed, slot, "entries are armed in order");
    }

    /// Calls a host's program, then does what it asked for.
    pub(crate) fn call(&mut self, host: u16, call: impl FnOnce(&mut P, &mut Cx<'_>)) {
        let now = self.now();
        let mut asked = std::mem::take(&mut self.wakes);
        let mut pieces = std::mem::take(&mut self.pieces);
        let room = self.rooms_of(host);
        let HostState { adapters, at_hand, landed, .. } = &mut self.hosts[usize::from(host)];
        let (owned, compute) = ([0; 2], Picos::ZERO);
        let (asked_now, pieces_now) = (&mut asked, &mut pieces);
        #[rustfmt::skip]
        let mut cx = Cx {
            now, room: &room, adapters, asked: asked_now, pieces: pieces_now, at_hand, landed, owned, compute,
        };
        call(&mut self.programs[usize::from(host)], &mut cx);
        assert_eq!(cx.owned, [0; 2], "a program keeps no entry");
        let mut released = None;
        for wake in asked.drain(..) {
            released = self.asked(host, wake, &pieces).or(released);
        }
        pieces.clear();
        (self.wakes, self.rooms, self.pieces) = (asked, room, pieces);
        self.next_job(host);
        released.into_iter().for_each(|adapter| self.wake(adapter));
    }

    /// Room in the send rings of a host's adapters, in their order.
    fn rooms_of(&mut self, host: u16) -> Vec<usize> {
        let mut room = std::mem::take(&mut self.rooms);
        let free = |adapter: &u16| {
            let adapter = &self.adapters[usize::from(*adapter)];
            adapter.nic.config().send_ring.saturating_sub(adapter.claimed)
        };
        room.clear();
        room.extend(self.hosts[usize::from(host)].adapters.iter().map(free));
        room
    }

    /// Does what a program asked for; the adapter that got a receive entry back.
    fn asked(&mut self, host: u16, wake: Wake, pieces: &[Piece]) -> Option<u16> {
        match wake {
            Wake::Timer { at, token } => self.at(at, Event::Timer { host, token }),
            Wake::Compute { span, token } => {
                self.hosts[usize::from(host)].work.push(span, token);
            }
            Wake::Move(what) => self.queue_move(host, what),
            Wake::Send { adapter, to, bytes, header, compute } => {
                self.send(host, (adapter, to), bytes, header, compute)
            }
            Wake::Post { adapter, to, header, first, count, compute } => {
                let pieces = &pieces[first..first + count];
                self.send_pieces(host, (adapter, to), pieces, header, compute)
            }
            Wake::Detach { adapter, slot } => self.detach(host, adapter, slot),
            Wake::Release { adapter, slot } => {
                self.arm(adapter, slot);
                return Some(adapter);
            }
        }
        None
    }

    /// A message with new content in pages of its own.
    fn send(
        &mut self,
        host: u16,
        (adapter, to): (u16, u16),
        bytes: usize,
        header: Header,
        compute: Picos,
    ) {
        let state = &mut self.hosts[usize::from(host)];
        let index = state.posting();
        let mut posting = std::mem::take(&mut state.postings[index as usize]);
        let header = Header { name: (u64::from(host) + 1) << 48 | state.next_name, ..header };
        posting.pieces.clear();
        let mut left = bytes;
        while left > 0 {
            let frame = HostFrame { address: state.take_page(), bytes: left.min(state.page) };
            let name = header.name + posting.pieces.len() as u64;
            state.set_name(frame.address, name);
            posting.pieces.push(Piece::from(frame));
            left -= frame.bytes;
        }
        state.next_name += posting.pieces.len() as u64;
        (posting.adapter, posting.to, posting.header, posting.compute) =
            (adapter, to, header, compute);
        self.enqueue(host, index, posting);
    }

    /// A message whose payload lies in pages of the program's. Those that it modified have a new content.
    fn send_pieces(
        &mut self,
        host: u16,
        (adapter, to): (u16, u16),
        pieces: &[Piece],
        header: Header,
        compute: Picos,
    ) {
        let state = &mut self.hosts[usize::from(host)];
        let index = state.posting();
        let mut posting = std::mem::take(&mut state.postings[index as usize]);
        posting.pieces.clear();
        posting.pieces.extend_from_slice(pieces);
        (posting.adapter, posting.to, posting.header, posting.compute) =
            (adapter, to, header, compute);
        if pieces.iter().any(|piece| matches!(piece.reuse, Reuse::Invalidate(_))) {
            posting.header.name = self.rename(host, &posting.pieces);
        }
        self.enqueue(host, index, posting);
    }

    /// The pages that a message landed in are the program's; its entry gets others.
    fn detach(&mut self, host: u16, adapter: u16, slot: usize) {
        let state = &mut self.hosts[usize::from(host)];
        let armed = &mut self.adapters[usize::from(adapter)].armed[slot];
        for index in 0..state.landed.len() {
            let address = state.landed[index].frame.address;
            let entry = armed.iter_mut().find(|frame| frame.address == address);
            entry.expect("payload landed in the entry's frames").address = state.take_page();
        }
    }

    /// The host modifies the pages: they have new names.
    fn rename(&mut self, host: u16, pieces: &[Piece]) -> u64 {
        let state = &mut self.hosts[usize::from(host)];
        let first = (u64::from(host) + 1) << 48 | state.next_name;
        state.next_name += pieces.len() as u64;
        for (n, piece) in pieces.iter().enumerate() {
            state.set_name(piece.frame.address, first + n as u64);
        }
        first
    }

    fn enqueue(&mut self, host: u16, index: u32, posting: Posting) {
        self.adapters[usize::from(posting.adapter)].claimed += 1;
        let state = &mut self.hosts[usize::from(host)];
        state.postings[index as usize] = posting;
        state.jobs.push_back(Job::Send { posting: index });
    }

    /// A message is in host memory, or in the ring for the host to read.
    pub(crate) fn delivered(&mut self, adapter: u16, slot: usize, landed: usize) {
        let now = self.now();
        let host = self.adapters[usize::from(adapter)].host;
        let state = &mut self.hosts[usize::from(host)];
        state.inbox.push_back((adapter, slot, landed));
        let idle = state.current.is_none() && state.jobs.is_empty();
        if state.notice == Notice::Poll && idle && !state.noticing {
            state.noticing = true;
            let time = state.host.noticed(state.idle_since, now);
            self.at(time, Event::Notice { host });
        }
    }

    /// The adapter interrupts its host.
    pub(crate) fn interrupted(&mut self, adapter: u16) {
        let host = self.adapters[usize::from(adapter)].host;
        self.hosts[usize::from(host)].jobs.push_front(Job::Interrupt);
        self.next_job(host);
    }

    pub(crate) fn notice(&mut self, host: u16) -> Option<u64> {
        self.hosts[usize::from(host)].noticing = false;
        self.next_job(host);
        Some(7)
    }

    pub(crate) fn timer(&mut self, host: u16, token: u32) -> Option<u64> {
        self.call(host, |program, cx| program.timer(token, cx));
        Some(8)
    }

    /// The processor, if it is idle, begins its next job: what it has begun comes before what has come.
    fn next_job(&mut self, host: u16) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        if state.current.is_some() || state.noticing {
            return;
        }
        let looks = state.notice == Notice::Poll || state.draining;
        // a full send ring stops the program, and with it what it would take: back-pressure
        if let Some(Job::Send { posting }) = state.jobs.front() {
            let adapter = state.postings[*posting as usize].adapter;
            let adapter = &self.adapters[usize::from(adapter)];
            if adapter.nic.send_room() <= adapter.ringing {
                return;
            }
        }
        let state = &mut self.hosts[usize::from(host)];
        let job = state.jobs.pop_front();
        let looks = looks && state.at_hand.is_none();
        let mut landed = 0;
        let next = job.or_else(|| {
            let (adapter, slot, bytes) = state.inbox.front().filter(|_| looks).copied()?;
            state.inbox.pop_front();
            landed = bytes;
            Some(Job::Take { adapter, slot })
        });
        let next = next.or_else(|| state.work.slice().map(|_| Job::Work));
        let Some(next) = next else {
            if state.at_hand.is_none() {
                self.rest(host);
            }
            return;
        };
        state.current = Some(next);
        state.busy_since = now;
        let time = now + state.timed(next, landed);
        self.at(time, Event::Job { host });
    }

    /// Nothing to do: the host polls, or is to be interrupted again.
    fn rest(&mut self, host: u16) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        state.idle_since = now;
        if std::mem::take(&mut state.draining) {
            let taken = state.taken;
            let adapters = state.adapters.clone();
            for adapter in adapters {
                self.adapters[usize::from(adapter)].nic.drained(taken);
                self.wake(adapter);
            }
        }
    }

    /// The timed part of the job is over; its programmed I/O follows, if it has any.
    pub(crate) fn job_timed(&mut self, host: u16) -> Option<u64> {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        let job = state.current.expect("a job is under way");
        let touched = state.host.control_touched;
        let io = match job {
            Job::Send { .. } => Some((Direction::ToAdapter, state.host.pio_write)),
            Job::Take { adapter, .. } => {
                let in_place = !self.adapters[usize::from(adapter)].nic.config().control_to_host;
                in_place.then_some((Direction::ToHost, state.host.pio_read))
            }
            Job::Interrupt | Job::Work => None,
        };
        let Some((towards, rate)) = io else {
            self.job_done(host, job);
            return Some(9);
        };
        let state = &mut self.hosts[usize::from(host)];
        state.pio = Flow::new(now, touched);
        state.pio_on = Some((towards, rate));
        state.users.join(towards);
        self.refresh_host(host);
        Some(9)
    }

    pub(crate) fn pio_ends(&mut self, host: u16, stamp: u32) -> Option<u64> {
        let state = &mut self.hosts[usize::from(host)];
        if state.pio_stamp != stamp {
            return None;
        }
        let (towards, _) = state.pio_on.take()?;
        state.pio_stamp += 1;
        state.users.leave(towards);
        let job = state.current.expect("a job is under way");
        self.refresh_host(host);
        self.job_done(host, job);
        Some(10)
    }

    /// Applies the effect of a finished job.
    fn job_done(&mut self, host: u16, job: Job) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        state.current = None;
        state.busy = state.busy + now.since(state.busy_since);
        match job {
            Job::Send { posting } => self.ring(host, posting),
            Job::Take { adapter, slot } => self.take(host, adapter, slot),
            Job::Interrupt => state.draining = true,
            Job::Work => self.computed(host),
        }
        self.next_job(host);
    }

    /// The message is in the ring. The time that [constants] add passes before the adapter has seen it; the host goes
    /// on meanwhile.
    fn ring(&mut self, host: u16, posting: u32) {
        let state = &self.hosts[usize::from(host)];
        let asked = &state.postings[posting as usize];
        self.adapters[usize::from(asked.adapter)].ringing += 1;
        match state.added(asked.pieces.len()) {
            Picos::ZERO => self.post(host, posting),
            time => self.at(self.now() + time, Event::Rung { host, posting }),
        }
    }

    /// The adapter sees it.
    pub(crate) fn rung(&mut self, host: u16, index: u32) -> Option<u64> {
        self.post(host, index);
        Some(11)
    }

    fn post(&mut self, host: u16, index: u32) {
        let posting = &self.hosts[usize::from(host)].postings[index as usize];
        let adapter = posting.adapter;
        let state = &mut self.adapters[usize::from(adapter)];
        state.ringing -= 1;
        let send = nic::Send {
            source: NodeId(adapter),
            destination: NodeId(posting.to),
            token: Token::NONE,
        };
        let number =
            state.nic.post(send, &posting.pieces).expect("programs keep to the ring and the MTU");
        let slot = (number % state.nic.config().send_ring as u64) as usize;
        state.contents.sent[slot] = posting.header;
        state.postings[slot] = index;
        state.in_progress += 1;
        self.wake(adapter);
    }

    /// The host has read a message: its program may have it.
    fn take(&mut self, host: u16, adapter: u16, slot: usize) {
        let from = &self.adapters[usize::from(adapter)];
        let bytes = from.contents.deposited[slot];
        let message = ReceiveMessage {
            adapter: usize::from(adapter),
            from: usize::from(from.senders[slot]),
            header: from.contents.received[slot],
            bytes,
            slot,
        };
        let state = &mut self.hosts[usize::from(host)];
        state.taken += 1;
        state.landed.clear();
        state.landed.extend_from_slice(if bytes > 0 { from.nic.landed(slot) } else { &[] });
        state.at_hand = Some(message);
        self.call(host, P::poll);
    }

    /// A message has left the adapter: its pages are free.
    pub(crate) fn completed(&mut self, adapter: u16, slot: usize) {
        let state = &mut self.adapters[usize::from(adapter)];
        state.claimed -= 1;
        let (host, index) = (state.host, state.postings[slot]);
        let owner = &mut self.hosts[usize::from(host)];
        let pieces = std::mem::take(&mut owner.postings[index as usize].pieces);
        pieces.iter().for_each(|piece| owner.give_page(piece.frame.address));
        owner.postings[index as usize].pieces = pieces;
        owner.free_postings.push(index);
        self.call(host, |program, cx| program.sent(usize::from(adapter), cx));
        if self.hosts[usize::from(host)].at_hand.is_some() {
            self.call(host, P::poll);
        }
    }
}
