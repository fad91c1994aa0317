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

/// The host's reference to a payload on the adapter: the buffer and its generation then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The buffer.
    pub buffer: u16,
    /// Number of contents that it had had.
    pub generation: u32,
}

/// The host's word about the adapter's copy when it sends a frame.
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
        assert!(self.next < self.len, "the circle is in its segment");
        self.first + self.next
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.len;
    }
}

/// Counters of the cache, in buffers.
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

impl std::ops::Add for CacheCounters {
    type Output = CacheCounters;
    fn add(self, more: CacheCounters) -> CacheCounters {
        CacheCounters {
            hits: self.hits + more.hits,
            misses: self.misses + more.misses,
            refills: self.refills + more.refills,
            fetches: self.fetches + more.fetches,
            evictions: self.evictions + more.evictions,
            evictions_by_sends: self.evictions_by_sends + more.evictions_by_sends,
            evictions_unsent: self.evictions_unsent + more.evictions_unsent,
            waits: self.waits + more.waits,
        }
    }
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
        assert!(received < shape.entries, "there are buffers for what is received");
        assert!(shape.send_segment > 0, "there are buffers for what is sent");
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

    /// Counters since the start.
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

    /// Number of buffers.
    pub fn buffers(&self) -> usize {
        self.entries.len()
    }

    /// The reference to a buffer's present content, for the host; `None` without a cache.
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
        assert!(entry.pending <= 2, "two transfers at most are to come");
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
        assert_eq!(entry.pending, 0, "buffer {index} has transfers to come");
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESSES: usize = 6;
    const SHAPE: CacheConfig =
        CacheConfig { entries: 10, send_segment: 2, small_segment: 1, small_bytes: 64 };

    /// A host's next operation on one of its frames.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Receive {
            frame: usize,
            bytes: usize,
        },
        Modify(usize),
        /// Sends it, telling what it knows or nothing.
        Send {
            frame: usize,
            told: bool,
        },
        /// The oldest transfer but so many ends.
        End(usize),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let frame = 0..ADDRESSES;
        let op = prop_oneof![
            2 => (frame.clone(), prop_oneof![Just(64), Just(4096)]).prop_map(|(frame, bytes)| Op::Receive { frame, bytes }),
            1 => frame.clone().prop_map(Op::Modify),
            3 => (frame, any::<bool>()).prop_map(|(frame, told)| Op::Send { frame, told }),
            5 => (0usize..8).prop_map(Op::End),
        ];
        prop::collection::vec(op, 1..200)
    }

    /// A payload on its way: its frame, its buffer, the transfers it still needs, and what it carries.
    #[derive(Clone, Copy, Debug)]
    struct Moving {
        frame: usize,
        buffer: u16,
        transfers: u8,
        version: u32,
        sends: bool,
    }

    /// A host that keeps to the rules: a frame is on one ring at a time, and modified frames are told.
    #[derive(Default)]
    struct Model {
        versions: [u32; ADDRESSES],
        bindings: [Option<Binding>; ADDRESSES],
        modified: [bool; ADDRESSES],
        moving: Vec<Moving>,
        /// The content of each buffer.
        contents: [u32; SHAPE.entries],
        last: u32,
    }

    impl Model {
        fn uses(&self, frame: usize, sends: bool) -> bool {
            self.moving.iter().any(|m| m.frame == frame && m.sends == sends)
        }

        fn next_version(&mut self) -> u32 {
            self.last += 1;
            self.last
        }

        fn apply(&mut self, cache: &mut PayloadCache, op: Op) {
            match op {
                Op::Receive { frame, bytes }
                    if !self.uses(frame, true) && !self.uses(frame, false) =>
                {
                    self.receive(cache, frame, bytes);
                }
                Op::Modify(frame) if !self.uses(frame, true) && !self.uses(frame, false) => {
                    self.versions[frame] = self.next_version();
                    self.modified[frame] = true;
                }
                Op::Send { frame, told } if !self.uses(frame, false) => {
                    self.send(cache, frame, told)
                }
                Op::End(which) if which < self.moving.len() => self.end(cache, which),
                _ => (),
            }
        }

        fn receive(&mut self, cache: &mut PayloadCache, frame: usize, bytes: usize) {
            let Ok(buffer) = cache.attach_receive(frame as u64, bytes) else { return };
            let version = self.next_version();
            self.moving.push(Moving { frame, buffer, transfers: 2, version, sends: false });
        }

        fn send(&mut self, cache: &mut PayloadCache, frame: usize, told: bool) {
            let reuse = match self.bindings[frame].filter(|_| told) {
                None => Reuse::Fetch,
                Some(binding) if self.modified[frame] => Reuse::Invalidate(binding),
                Some(binding) => Reuse::Use(binding),
            };
            let Ok(found) = cache.attach_send(frame as u64, reuse) else { return };
            let version = self.versions[frame];
            let Attached { buffer, hit } = found;
            if hit {
                assert_eq!(
                    self.contents[usize::from(buffer)],
                    version,
                    "a hit has the host's bytes"
                );
            }
            self.modified[frame] &= !matches!(reuse, Reuse::Invalidate(_));
            let transfers = if hit { 1 } else { 2 };
            self.moving.push(Moving { frame, buffer, transfers, version, sends: true });
        }

        fn end(&mut self, cache: &mut PayloadCache, which: usize) {
            let moving = &mut self.moving[which];
            moving.transfers -= 1;
            let Moving { frame, buffer, transfers, version, sends } = *moving;
            if transfers == 1 {
                cache.source_done(buffer);
                self.contents[usize::from(buffer)] = version;
                return;
            }
            assert_eq!(self.contents[usize::from(buffer)], version, "it leaves as it came");
            cache.sink_done(buffer);
            self.moving.remove(which);
            if !sends {
                (self.versions[frame], self.modified[frame]) = (version, false);
                self.bindings[frame] = cache.binding(buffer);
            }
        }

        /// Table 3 against the transfers that are really to come.
        fn check(&self, cache: &PayloadCache) {
            for buffer in 0..cache.buffers() as u16 {
                let here = self.moving.iter().filter(|m| m.buffer == buffer);
                let pending: u8 = here.clone().map(|m| m.transfers).sum();
                let filling = here.clone().any(|m| m.transfers == 2);
                assert!(pending <= 2, "{pending} transfers to come");
                assert_eq!(cache.pending(buffer), pending);
                let states = match (pending, filling) {
                    (0, _) => [State::Free, State::Valid],
                    (_, true) => [State::Fill; 2],
                    (_, false) => [State::Drain; 2],
                };
                assert!(states.contains(&cache.state(buffer)), "{:?}", cache.state(buffer));
                assert!(cache.entries[usize::from(buffer)].valid != filling || pending == 0);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// G8: pending is 0, 1 or 2, what is being filled is not valid, and no stale byte leaves.
        #[test]
        fn table_3_holds_and_copies_are_true(ops in ops()) {
            let mut cache = PayloadCache::new(Buffers::Cache(SHAPE));
            let mut model = Model::default();
            for op in ops {
                model.apply(&mut cache, op);
                model.check(&cache);
            }
        }
    }

    fn received(cache: &mut PayloadCache, address: u64) -> Binding {
        let buffer = cache.attach_receive(address, 4096).unwrap();
        cache.source_done(buffer);
        cache.sink_done(buffer);
        cache.binding(buffer).unwrap()
    }

    fn cache() -> PayloadCache {
        PayloadCache::new(Buffers::Cache(SHAPE))
    }

    /// C11: with the right tag at once, also while it is on its way to the host; with a third transfer it waits.
    #[test]
    fn a_copy_is_sent_while_it_drains() {
        let mut cache = cache();
        let buffer = cache.attach_receive(7, 4096).unwrap();
        let binding = cache.binding(buffer).unwrap();
        assert_eq!(cache.attach_send(7, Reuse::Use(binding)), Err(Busy(buffer)), "still filling");
        cache.source_done(buffer);
        assert_eq!(cache.state(buffer), State::Drain);
        assert_eq!(cache.attach_send(7, Reuse::Use(binding)), Ok(Attached { buffer, hit: true }));
        assert_eq!(cache.pending(buffer), 2);
        assert_eq!(cache.attach_send(7, Reuse::Use(binding)), Err(Busy(buffer)), "twice is enough");
        assert_eq!(cache.attach_send(7, Reuse::Invalidate(binding)), Err(Busy(buffer)));
        cache.sink_done(buffer);
        cache.sink_done(buffer);
        let again = cache.attach_send(7, Reuse::Invalidate(binding)).unwrap();
        assert_eq!((again.hit, cache.state(buffer)), (false, State::Fill));
        assert_eq!(cache.binding(buffer), Some(binding), "the same frame's new bytes");
    }

    /// C11: with another tag it waits until what is there is done with, then fetches.
    #[test]
    fn a_binding_that_outlived_its_buffer_never_matches() {
        let mut cache = cache();
        let old = received(&mut cache, 7);
        for address in 100..106 {
            received(&mut cache, address);
        }
        let other = cache.attach_receive(200, 4096).unwrap();
        assert_eq!(other, old.buffer, "the circle has come round");
        cache.source_done(other);
        assert_eq!(
            cache.attach_send(7, Reuse::Use(old)),
            Err(Busy(other)),
            "on its way to the host"
        );
        cache.sink_done(other);
        assert!(!cache.attach_send(7, Reuse::Use(old)).unwrap().hit);
        let counters = cache.counters();
        assert_eq!((counters.misses, counters.evictions_by_sends), (1, 1));
        assert_eq!(counters.evictions_unsent, 2, "frame 7's and frame 200's");
    }

    /// The same address with another content is another tag, too.
    #[test]
    fn generations_tell_contents_of_one_address_apart() {
        let mut cache = cache();
        let old = received(&mut cache, 7);
        let bindings: Vec<_> = (0..7).map(|_| received(&mut cache, 7)).collect();
        assert_eq!(bindings[6].buffer, old.buffer);
        assert!(!cache.attach_send(7, Reuse::Use(old)).unwrap().hit);
    }

    #[test]
    fn without_a_cache_buffers_forget() {
        let mut cache = PayloadCache::new(Buffers::Pools { send: 2, receive: 2 });
        let buffer = cache.attach_receive(7, 4096).unwrap();
        cache.source_done(buffer);
        cache.sink_done(buffer);
        assert_eq!((cache.state(buffer), cache.binding(buffer)), (State::Free, None));
    }
}
