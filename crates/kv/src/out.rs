//! Replies that wait to be written: text, and the frames of values themselves.

use crate::limits::OUTPUT_BYTES_MAX;
use crate::number::Decimal;
use endpoint::Frame;
use std::collections::VecDeque;

/// What waits, in order.
#[derive(Debug, Default)]
pub struct Out {
    text: Vec<u8>,
    parts: VecDeque<Part>,
    waiting: usize,
}

#[derive(Debug)]
enum Part {
    /// A range of the text.
    Text(usize, usize),
    /// Bytes of a value, from the given one on.
    Value(Frame, usize),
}

impl Out {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether so much waits that no more is to be made.
    pub fn is_full(&self) -> bool {
        self.waiting >= OUTPUT_BYTES_MAX
    }

    /// Adds text.
    pub fn text(&mut self, bytes: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        self.grown(start);
    }

    /// Adds a number.
    pub fn number(&mut self, value: u64) {
        self.text(Decimal::new(value).text());
    }

    /// Adds a number.
    pub fn signed(&mut self, value: i64) {
        self.text(Decimal::signed(value).text());
    }

    /// Adds what `write` appends.
    pub fn with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.grown(start);
    }

    /// The text from `start` on is new.
    fn grown(&mut self, start: usize) {
        let end = self.text.len();
        self.waiting += end - start;
        match self.parts.back_mut() {
            Some(Part::Text(_, before)) => *before = end,
            _ if end > start => self.parts.push_back(Part::Text(start, end)),
            _ => {}
        }
    }

    /// Adds the bytes of a frame, which are not copied.
    pub fn frame(&mut self, frame: &Frame) {
        if !frame.is_empty() {
            self.waiting += frame.len();
            self.parts.push_back(Part::Value(frame.clone(), 0));
        }
    }

    /// Takes back the text that was added since there were `len` bytes.
    pub fn take_back(&mut self, len: usize) {
        let bytes = self.waiting - len;
        self.waiting = len;
        self.text.truncate(self.text.len() - bytes);
        let Some(Part::Text(start, end)) = self.parts.back_mut() else { return };
        *end -= bytes;
        if start == end {
            self.parts.pop_back();
        }
    }

    /// The first pieces that wait, for one gathered write.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Text(start, end) => &self.text[*start..*end],
            Part::Value(frame, from) => &frame[*from..],
        })
    }

    /// So many bytes have been written.
    pub fn written(&mut self, mut bytes: usize) {
        self.waiting = self.waiting.checked_sub(bytes).expect("no more than there was");
        while bytes > 0 {
            let left = match self.parts.front_mut().expect("as long as bytes wait") {
                Part::Text(start, end) => {
                    let step = bytes.min(*end - *start);
                    (*start, bytes) = (*start + step, bytes - step);
                    *end - *start
                }
                Part::Value(frame, from) => {
                    let step = bytes.min(frame.len() - *from);
                    (*from, bytes) = (*from + step, bytes - step);
                    frame.len() - *from
                }
            };
            if left == 0 {
                self.parts.pop_front();
            }
        }
        if self.waiting == 0 {
            self.clear();
        }
    }

    /// Forgets everything, but for the memory of the text, which is used again.
    pub fn clear(&mut self) {
        self.text.clear();
        self.parts.clear();
        self.waiting = 0;
        self.text.shrink_to(OUTPUT_BYTES_MAX);
    }
}
