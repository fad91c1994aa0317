//! The endpoint as an adapter's host: its frames are the memory that the adapter fetches from and deposits into.

use super::port::Host;
use crate::link::landing::Landing;
use crate::link::stream::Tally;
use endpoint::{Endpoint, SendMessage};
use nic::{HostFrame, Landed};
use std::collections::VecDeque;
use wire::{Control, Header};

/// The parts of a link that an adapter needs while its firmware runs.
pub struct LinkHost<'a> {
    pub endpoint: &'a mut Endpoint,
    pub sending: &'a mut VecDeque<SendMessage>,
    pub first: &'a mut u64,
    pub landings: &'a mut VecDeque<Landing>,
    pub tally: &'a mut Tally,
}

impl LinkHost<'_> {
    fn entry(&self, number: u64) -> &endpoint::rings::Message {
        let at = (number - *self.first) as usize;
        self.endpoint.taken(&self.sending[at])
    }
}

impl Host for LinkHost<'_> {
    fn source(&self, number: u64, offset: usize) -> &[u8] {
        let mut begin = 0;
        for frame in &self.entry(number).payload {
            if offset < begin + frame.len() {
                return &frame[offset - begin..];
            }
            begin += frame.len();
        }
        &[]
    }

    fn head(&self, number: u64) -> (&Control, &[u8]) {
        let entry = self.entry(number);
        (&entry.control, &entry.trailer[..entry.control.trailer_bytes()])
    }

    fn sent(&mut self, number: u64) {
        assert_eq!(number, *self.first, "messages leave in their order");
        let message = self.sending.pop_front().expect("it was posted");
        *self.first += 1;
        self.endpoint.transmitted(message);
    }

    fn sink(&mut self, offset: usize) -> &mut [u8] {
        let landing = self.landings.front().expect("a message goes to the host");
        assert_eq!(landing.got(), offset, "payloads are deposited in their order");
        landing.next_room(self.endpoint).expect("frames were named")
    }

    fn deposited(&mut self, bytes: usize) {
        self.landings.front_mut().expect("a message goes to the host").advance(bytes);
    }

    fn trailer(&mut self, read: &mut dyn FnMut(&mut [u8])) {
        let landing = self.landings.back().expect("a message comes in");
        landing.read_trailer(self.endpoint, read);
    }

    fn delivered(&mut self, _landed: &[Landed]) {
        let mut landing = self.landings.pop_front().expect("a message goes to the host");
        let rest = landing.missing();
        let header: &Header = landing.header();
        assert!(!landing.is_wanted() || rest == header.trailer_bytes(), "all of the data is there");
        self.tally.count_received(header);
        landing.advance(rest);
        landing.deliver(self.endpoint);
    }
}

/// Offsets and lengths as stretches of host memory; adjacent ones are one.
pub fn join(frames: impl Iterator<Item = (usize, usize)>, into: &mut Vec<HostFrame>) {
    into.clear();
    for (offset, bytes) in frames {
        let address = offset as u64;
        match into.last_mut() {
            Some(last) if last.address + last.bytes as u64 == address => last.bytes += bytes,
            _ => into.push(HostFrame { address, bytes }),
        }
    }
}
