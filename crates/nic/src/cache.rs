//! The payload cache: host-page buffers of adapter memory, and what is in them (forwarding paper section 3).
//!
//! A buffer is in one of four states, made of a valid bit and a count of transfers to come (its Table 3):
//!
//! ```text
//!              attach                source done              sink done
//!   free ───────────────► fill ───────────────► drain ───────────────► valid ──► attached again, or used
//!   invalid, 0            invalid, 2 or 1       valid, 1 or 2          valid, 0
//! ```
//!
//! The tag is the host address of the bytes and a generation that grows whenever the buffer gets another content, so
//! that a binding that outlived its buffer never matches. Buffers are taken in a circle; who comes upon one with
//! transfers to come waits.
//!
//! Invariant: `pending` is 0, 1 or 2, and a buffer that is being filled is not valid.

use crate::config::{Buffers, CacheConfig};

/// What the host remembers of a payload on the adapter: the buffer, and the buffer's generation then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The buffer.
    pub buffer: u16,
    /// How many contents it had had.
    pub generation: u32,
}

/// What the host says about the adapter's copy when it sends a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Nothing is known: the frame is fetched from host memory.
    #[default]
    Fetch,
    /// The frame was not modified: the copy may be sent.
    Use(Binding),
    /// The frame was modified: the copy is to be fetched again, in its place.
    Invalidate(Binding),
}

/// Table 3 of the forwarding paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing in it, nothing to come.
    Free,
    /// Being filled, from the host or from the link.
    Fill,
    /// A payload, and nothing to come.
    Valid,
    /// A payload that is on its way out, to the link or to the host.
    Drain,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    valid: bool,
    pending: u8,
    address: u64,
    generation: u32,
    /// Received, and not sent on so far.
    unsent: bool,
}

impl Entry {
    fn state(&self) -> State {
        match (self.valid, self.pending) {
            (false, 0) => State::Free,
            (false, _) => State::Fill,
            (true, 0) => State::Valid,
            (true, _) => State::Drain,
        }
    }

    fn is(&self, address: u64, binding: Binding) -> bool {
        self.generation == binding.generation && self.address == address
    }
}

/// A stretch of the buffers that is taken in a circle.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: usize,
    len: usize,
    next: usize,
}

impl Segment {
    fn new(first: usize, len: usize) -> Segment {
        Segment { first, len, next: 0 }
    }

    fn head(&self) -> usize {
        self.first + self.next
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.len;
    }
}

/// What the cache has seen; counts of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Sent from the copy on the adapter.
    pub hits: u64,
    /// The host asked for the copy, which was there no more.
    pub misses: u64,
    /// Fetched again because the host had modified the frame.
    pub refills: u64,
    /// Sent without a binding.
    pub fetches: u64,
    /// Contents that were displaced.
    pub evictions: u64,
    /// Of these, outside the send segment, by sends.
    pub evictions_by_sends: u64,
    /// Of these, received and never sent on.
    pub evictions_unsent: u64,
    /// Payloads that had to wait for their buffer.
    pub waits: u64,
}

/// A buffer that was found for a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The buffer.
    pub buffer: u16,
    /// Whether it has the bytes already.
    pub hit: bool,
}

/// The buffer that a payload has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub u16);

/// The buffers of one adapter. Without a cache they forget their content when it has moved on.
#[derive(Debug)]
pub struct PayloadCache {
    entries: Box<[Entry]>,
    send: Segment,
    small: Segment,
    receive: Segment,
    small_bytes: usize,
    retains: bool,
    counters: CacheCounters,
}

impl PayloadCache {
    /// Free buffers in this arrangement.
    pub fn new(buffers: Buffers) -> PayloadCache {
        let (shape, retains) = match buffers {
            Buffers::Cache(shape) => (shape, true),
            Buffers::Pools { send, receive } => (pools(send, receive), false),
        };
        let received = shape.send_segment + shape.small_segment;
        PayloadCache {
            entries: vec![Entry::default(); shape.entries].into(),
            send: Segment::new(0, shape.send_segment),
            small: Segment::new(shape.send_segment, shape.small_segment),
            receive: Segment::new(received, shape.entries - received),
            small_bytes: shape.small_bytes,
            retains,
            counters: CacheCounters::default(),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// The state of a buffer.
    pub fn state(&self, buffer: u16) -> State {
        self.entries[usize::from(buffer)].state()
    }

    /// Transfers to come of a buffer.
    pub fn pending(&self, buffer: u16) -> u8 {
        self.entries[usize::from(buffer)].pending
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> usize {
        self.entries.len()
    }

    /// What the host is to remember of a buffer's present content; `None` without a cache.
    pub fn binding(&self, buffer: u16) -> Option<Binding> {
        let generation = self.entries[usize::from(buffer)].generation;
        self.retains.then_some(Binding { buffer, generation })
    }

    /// A buffer for a payload of `bytes` that arrives for host memory at `address`.
    pub fn attach_receive(&mut self, address: u64, bytes: usize) -> Result<u16, Busy> {
        let small = self.small.len > 0 && bytes <= self.small_bytes;
        let segment = if small { &mut self.small } else { &mut self.receive };
        let index = segment.head();
        if self.entries[index].pending > 0 {
            return Err(Busy(index as u16));
        }
        segment.advance();
        self.fill(index, address);
        self.entries[index].unsent = true;
        Ok(index as u16)
    }

    /// A buffer for a send from host memory at `address`.
    pub fn attach_send(&mut self, address: u64, reuse: Reuse) -> Result<Attached, Busy> {
        match reuse {
            Reuse::Use(binding) if self.knows(binding) => self.attach_use(address, binding),
            Reuse::Invalidate(binding) if self.knows(binding) => self.refill(address, binding),
            _ => self.attach_fetch(address),
        }
    }

    /// The transfer into the buffer has ended.
    pub fn source_done(&mut self, buffer: u16) {
        let entry = &mut self.entries[usize::from(buffer)];
        assert_eq!(entry.state(), State::Fill, "a buffer is filled once");
        entry.valid = true;
        entry.pending -= 1;
    }

    /// A transfer out of the buffer has ended.
    pub fn sink_done(&mut self, buffer: u16) {
        let entry = &mut self.entries[usize::from(buffer)];
        assert_eq!(entry.state(), State::Drain, "a buffer is emptied after it was filled");
        entry.pending -= 1;
        if !self.retains && entry.pending == 0 {
            entry.valid = false;
        }
    }

    fn knows(&self, binding: Binding) -> bool {
        self.retains && usize::from(binding.buffer) < self.entries.len()
    }

    fn attach_fetch(&mut self, address: u64) -> Result<Attached, Busy> {
        let index = self.send.head();
        if self.entries[index].pending > 0 {
            return Err(Busy(index as u16));
        }
        self.send.advance();
        self.counters.fetches += 1;
        Ok(self.fill(index, address))
    }

    /// With the right tag: at once, unless it is being filled or already on its way twice. With another: what is
    /// there now has to be done with, then the buffer is filled from the host.
    fn attach_use(&mut self, address: u64, binding: Binding) -> Result<Attached, Busy> {
        let entry = &mut self.entries[usize::from(binding.buffer)];
        if !entry.is(address, binding) || entry.state() == State::Free {
            return self.replace(address, binding);
        }
        if !entry.valid || entry.pending == 2 {
            return Err(Busy(binding.buffer));
        }
        entry.pending += 1;
        entry.unsent = false;
        self.counters.hits += 1;
        Ok(Attached { buffer: binding.buffer, hit: true })
    }

    fn replace(&mut self, address: u64, binding: Binding) -> Result<Attached, Busy> {
        let index = usize::from(binding.buffer);
        if self.entries[index].pending > 0 {
            return Err(Busy(index as u16));
        }
        self.counters.misses += 1;
        let displaces = self.entries[index].valid && index >= self.send.len;
        self.counters.evictions_by_sends += u64::from(displaces);
        Ok(self.fill(index, address))
    }

    /// The same frame's new bytes take the old ones' place: the binding stays good.
    fn refill(&mut self, address: u64, binding: Binding) -> Result<Attached, Busy> {
        let entry = &mut self.entries[usize::from(binding.buffer)];
        if !entry.is(address, binding) {
            return self.replace(address, binding);
        }
        if entry.pending > 0 {
            return Err(Busy(binding.buffer));
        }
        (entry.valid, entry.pending, entry.unsent) = (false, 2, false);
        self.counters.refills += 1;
        Ok(Attached { buffer: binding.buffer, hit: false })
    }

    fn fill(&mut self, index: usize, address: u64) -> Attached {
        let entry = &mut self.entries[index];
        if entry.valid {
            self.counters.evictions += 1;
            self.counters.evictions_unsent += u64::from(entry.unsent);
        }
        let generation = entry.generation.wrapping_add(1);
        *entry = Entry { valid: false, pending: 2, address, generation, unsent: false };
        Attached { buffer: index as u16, hit: false }
    }

    pub(crate) fn count_wait(&mut self) {
        self.counters.waits += 1;
    }
}

fn pools(send: usize, receive: usize) -> CacheConfig {
    let entries = send + receive;
    CacheConfig { entries, send_segment: send, small_segment: 0, small_bytes: 0 }
}
