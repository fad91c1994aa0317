//! Messages on their way out, in fragments. A message's frames of the pool stay with it until all of it is
//! acknowledged, so that what is lost is read again from where it lies.

use super::flights::Fragment;
use super::limits::*;
use endpoint::{Endpoint, SendMessage};
use std::collections::VecDeque;
use wire::limits::CONTROL_BYTES;

/// A set of fragments of one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragments([u64; FRAGMENTS_MAX / 64]);

impl Fragments {
    /// Adds one; whether it was not there.
    pub fn add(&mut self, index: u16) -> bool {
        let (word, bit) = (&mut self.0[usize::from(index) / 64], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether it is there.
    pub fn has(&self, index: u16) -> bool {
        self.0[usize::from(index) / 64] >> (index % 64) & 1 == 1
    }
}

#[derive(Debug)]
struct Message {
    handle: SendMessage,
    bytes: usize,
    fragments: u16,
    /// First that was never sent.
    next: u16,
    came: u16,
    has_come: Fragments,
}

/// Messages of one direction.
#[derive(Debug)]
pub struct Outgoing {
    fragment_bytes: usize,
    waiting: VecDeque<SendMessage>,
    /// Those begun, by number; one that has come whole is gone.
    begun: Box<[Option<Message>]>,
    /// The oldest that has not come.
    oldest: u64,
    next: u64,
    /// The peer's room.
    limit: u64,
    /// Messages with fragments that were never sent.
    small: VecDeque<u64>,
    bulk: VecDeque<u64>,
    lost: VecDeque<Fragment>,
    was_bulk: bool,
    /// Messages dropped, because too many waited.
    pub drops: u64,
    /// Messages that have come.
    pub sent: u64,
    /// Bytes of them behind their control messages.
    pub sent_bytes: u64,
}

fn at(number: u64) -> usize {
    number as usize % MESSAGES_MAX
}

impl Outgoing {
    /// None yet. A fragment has so many bytes, the last of a message fewer.
    pub fn new(fragment_bytes: usize) -> Outgoing {
        Outgoing {
            fragment_bytes,
            waiting: VecDeque::with_capacity(WAITING_MAX),
            begun: (0..MESSAGES_MAX).map(|_| None).collect(),
            oldest: 0,
            next: 0,
            limit: 0,
            small: VecDeque::with_capacity(MESSAGES_MAX),
            bulk: VecDeque::with_capacity(MESSAGES_MAX),
            lost: VecDeque::with_capacity(WINDOW_MAX as usize),
            was_bulk: false,
            drops: 0,
            sent: 0,
            sent_bytes: 0,
        }
    }

    /// Adds a message; one too many is dropped, as delivery is best effort.
    pub fn push(&mut self, handle: SendMessage, endpoint: &mut Endpoint) {
        if self.waiting.len() == WAITING_MAX {
            self.drops += 1;
            return endpoint.transmitted(handle);
        }
        self.waiting.push_back(handle);
    }

    /// The peer has room for messages below this number.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Whether messages wait for the peer's room.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() && self.next >= self.limit
    }

    /// Whether anything has not come yet.
    pub fn is_pending(&self) -> bool {
        !self.waiting.is_empty() || self.oldest < self.next
    }

    /// Begins as many messages as there is room for.
    pub fn begin(&mut self, endpoint: &Endpoint) {
        while self.next < self.limit.min(self.oldest + MESSAGES_MAX as u64) {
            let Some(handle) = self.waiting.pop_front() else { return };
            let entry = endpoint.taken(&handle);
            let data = entry.whole_bytes();
            let bytes = CONTROL_BYTES + data + entry.control.trailer_bytes();
            let fragments = bytes.div_ceil(self.fragment_bytes) as u16;
            let has_come = Fragments::default();
            let message = Message { handle, bytes, fragments, next: 0, came: 0, has_come };
            self.begun[at(self.next)] = Some(message);
            let queue = if data > BULK_BYTES_MIN { &mut self.bulk } else { &mut self.small };
            queue.push_back(self.next);
            self.next += 1;
        }
    }

    /// The fragment that goes next: lost ones first, then those of small and of large messages in turns.
    pub fn choose(&mut self, endpoint: &Endpoint) -> Option<Fragment> {
        while let Some(fragment) = self.lost.pop_front() {
            if self.message(fragment.message).is_some_and(|m| !m.has_come.has(fragment.index)) {
                return Some(fragment);
            }
        }
        let bulk_first = !self.was_bulk;
        for bulk in [bulk_first, !bulk_first] {
            if let Some(fragment) = self.choose_of(bulk, endpoint) {
                self.was_bulk = bulk;
                return Some(fragment);
            }
        }
        None
    }

    fn choose_of(&mut self, bulk: bool, endpoint: &Endpoint) -> Option<Fragment> {
        let queue = if bulk { &self.bulk } else { &self.small };
        // One that is still filling lets those behind it pass.
        let is_there = |number: &u64| self.message(*number).is_some_and(|m| self.has(m, endpoint));
        let place = queue.iter().position(is_there)?;
        let number = queue[place];
        let message = self.begun[at(number)].as_mut().expect("it was begun");
        let index = message.next;
        message.next += 1;
        if message.next == message.fragments {
            let queue = if bulk { &mut self.bulk } else { &mut self.small };
            queue.remove(place);
        }
        Some(Fragment { message: number, index })
    }

    /// Whether all bytes of the message's next fragment are there.
    fn has(&self, message: &Message, endpoint: &Endpoint) -> bool {
        let entry = endpoint.taken(&message.handle);
        let end = (usize::from(message.next) + 1) * self.fragment_bytes;
        entry.missing == 0 || end <= CONTROL_BYTES + entry.data_bytes()
    }

    fn message(&self, number: u64) -> Option<&Message> {
        let is_begun = number >= self.oldest && number < self.next;
        self.begun[at(number)].as_ref().filter(|_| is_begun)
    }

    /// Copies a fragment's bytes; how many.
    pub fn copy(&self, fragment: Fragment, endpoint: &Endpoint, into: &mut [u8]) -> usize {
        let message = self.message(fragment.message).expect("it was chosen");
        let entry = endpoint.taken(&message.handle);
        let mut skip = usize::from(fragment.index) * self.fragment_bytes;
        let bytes = self.fragment_bytes.min(message.bytes - skip);
        let trailer = &entry.trailer[..entry.control.trailer_bytes()];
        let data = entry.payload.iter().map(|frame| &frame[..]);
        let mut room = &mut into[..bytes];
        for part in [&entry.control.0[..]].into_iter().chain(data).chain([trailer]) {
            let skipped = part.len().min(skip);
            skip -= skipped;
            let part = &part[skipped..];
            let (now, later) = room.split_at_mut(part.len().min(room.len()));
            now.copy_from_slice(&part[..now.len()]);
            room = later;
            if room.is_empty() {
                break;
            }
        }
        assert!(room.is_empty(), "only what is there is sent");
        bytes
    }

    /// A fragment has come. With the last one its message is gone.
    pub fn came(&mut self, fragment: Fragment, endpoint: &mut Endpoint) {
        if self.message(fragment.message).is_none() {
            return;
        }
        let slot = &mut self.begun[at(fragment.message)];
        let message = slot.as_mut().expect("it was found");
        message.came += u16::from(message.has_come.add(fragment.index));
        if message.came < message.fragments {
            return;
        }
        let message = slot.take().expect("it is there");
        self.sent += 1;
        self.sent_bytes += (message.bytes - CONTROL_BYTES) as u64;
        endpoint.transmitted(message.handle);
        while self.oldest < self.next && self.begun[at(self.oldest)].is_none() {
            self.oldest += 1;
        }
    }

    /// A fragment is lost: it is sent again.
    pub fn lost(&mut self, fragment: Fragment) {
        self.lost.push_back(fragment);
    }

    /// Gives all up.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        let begun = self.begun.iter_mut().filter_map(Option::take).map(|message| message.handle);
        for handle in begun.chain(self.waiting.drain(..)) {
            self.drops += 1;
            endpoint.transmitted(handle);
        }
        (self.oldest, self.next) = (0, 0);
        self.small.clear();
        self.bulk.clear();
        self.lost.clear();
    }
}
