//! The reply of a slot's last once-call, and the pages kept so by its session and by all of them.

use endpoint::Frame;
use std::cell::Cell;
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;

/// Pages that several share a count of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Rc<Cell<usize>>);

impl Tally {
    pub fn get(&self) -> usize {
        self.0.get()
    }

    fn add(&self, pages: usize) {
        self.0.set(self.0.get() + pages);
    }

    fn subtract(&self, pages: usize) {
        assert!(pages <= self.0.get(), "no more pages are given back than are kept");
        self.0.set(self.0.get() - pages);
    }
}

/// Data and trailer of a reply. Dropping it gives its pages back.
#[derive(Debug)]
pub(crate) struct Kept {
    data: Vec<Frame>,
    trailer: Vec<u8>,
    number: u64,
    pages: usize,
    /// Of the session, and of all.
    tallies: [Tally; 2],
}

impl Kept {
    pub fn new(session: &Tally, all: &Tally) -> Kept {
        let tallies = [session.clone(), all.clone()];
        Kept { data: Vec::new(), trailer: Vec::new(), number: 0, pages: 0, tallies }
    }

    /// Keeps this, as the `number`th reply of its session.
    pub fn set(&mut self, number: u64, data: &[Frame], trailer: &[u8]) {
        self.clear();
        self.number = number;
        self.data.extend_from_slice(data);
        self.trailer.extend_from_slice(trailer);
        self.pages = data.iter().map(|frame| frame.len().div_ceil(BLOCK_BYTES).max(1)).sum();
        self.tallies.iter().for_each(|tally| tally.add(self.pages));
    }

    /// Keeps nothing, and its lists' memory.
    pub fn clear(&mut self) {
        self.data.clear();
        self.trailer.clear();
        self.tallies.iter().for_each(|tally| tally.subtract(self.pages));
        self.pages = 0;
    }

    /// Keeps nothing.
    pub fn release(&mut self) {
        self.clear();
        (self.data, self.trailer) = (Vec::new(), Vec::new());
    }

    /// Whether there is more than a control message.
    pub fn carries(&self) -> bool {
        !self.data.is_empty() || !self.trailer.is_empty()
    }

    pub fn data(&self) -> &[Frame] {
        &self.data
    }

    pub fn trailer(&self) -> &[u8] {
        &self.trailer
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn pages(&self) -> usize {
        self.pages
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.clear();
    }
}
