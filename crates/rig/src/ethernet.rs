//! An Ethernet in memory that loses, repeats, reorders and changes frames, as its seed says.

use std::collections::{BTreeMap, VecDeque};
use wire::mix;

/// An Ethernet address.
type Address = [u8; 6];

/// Frames of a thousand that meet a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost.
    pub lost: u32,
    /// Delivered twice.
    pub repeated: u32,
    /// Overtaken by up to 8 others.
    pub late: u32,
    /// Changed in one bit.
    pub changed: u32,
}

/// The wire, and what waits at each address.
#[derive(Debug)]
pub struct Ethernet {
    /// What it does to frames from now on.
    pub faults: Faults,
    /// Nothing passes.
    pub down: bool,
    /// Frames longer than this are dropped without a word, as by a switch with a smaller MTU.
    pub longest: usize,
    seed: u64,
    sent: u64,
    waiting: BTreeMap<Address, VecDeque<(u64, Vec<u8>)>>,
    spare: Vec<Vec<u8>>,
}

impl Ethernet {
    /// Without faults.
    pub fn new(seed: u64) -> Ethernet {
        let (faults, waiting) = (Faults::default(), BTreeMap::new());
        let longest = usize::MAX;
        Ethernet { faults, down: false, longest, seed, sent: 0, waiting, spare: Vec::new() }
    }

    /// Frames that were sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        self.seed = mix(self.seed);
        self.seed % 1000 < u64::from(of_thousand)
    }

    /// A frame goes out.
    pub fn send(&mut self, frame: &[u8]) {
        self.sent += 1;
        let faults = self.faults;
        if self.down || frame.len() > self.longest || self.chance(faults.lost) {
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        if self.chance(faults.changed) {
            let bit = mix(self.seed) as usize % (8 * copy.len());
            copy[bit / 8] ^= 1 << (bit % 8);
        }
        let to: Address = frame[..6].try_into().expect("a frame has an address");
        if self.chance(faults.repeated) {
            let late = mix(self.seed) % 8;
            self.waiting.entry(to).or_default().push_back((late, copy.clone()));
        }
        let late = if self.chance(faults.late) { 1 + mix(self.seed) % 8 } else { 0 };
        self.waiting.entry(to).or_default().push_back((late, copy));
    }

    /// The next frame for this address. Late ones wait for as many others as there are.
    pub fn receive(&mut self, address: Address) -> Option<Vec<u8>> {
        let waiting = self.waiting.get_mut(&address)?;
        let ready = waiting.iter().position(|(late, _)| *late == 0).unwrap_or(0);
        waiting.iter_mut().take(ready).for_each(|(late, _)| *late -= 1);
        waiting.remove(ready).map(|(_, frame)| frame)
    }

    /// Whether a frame waits for this address.
    pub fn has(&self, address: Address) -> bool {
        self.waiting.get(&address).is_some_and(|waiting| !waiting.is_empty())
    }

    /// Takes a received frame's memory for another one.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }
}
