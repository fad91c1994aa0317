//! Messages that are posted before all of their data is there, so that a link can send the first bytes while a disk
//! still reads the last (cut-through delivery, HPDC'97 section 3).
//!
//! The header, with the length and checksum of the whole, is sealed before; the data follows in frames, in order. A
//! message always comes to an end: missing data is filled up with bytes that do not fit the checksums, and the receiver
//! finds a damaged payload, as after any fault on the link.

use crate::frames::Frame;
use crate::limits::GATHER_MAX;
use crate::rings::{Endpoint, Message, SendMessage};

/// Names a posted message whose data is still coming.
#[derive(Debug)]
#[must_use = "a message that is not filled up stops its connection"]
pub struct Filling {
    entry: u16,
    generation: u32,
}

impl Endpoint {
    /// As [`release_sendmsg`](Endpoint::release_sendmsg), with the first part of the data attached and `missing` bytes
    /// to come by [`fill`](Endpoint::fill). Panics when that is not [`is_fillable`].
    pub fn release_filling(&mut self, message: SendMessage, missing: usize) -> Filling {
        let entry = &mut self.send_entries[message.0 as usize];
        assert!(is_fillable(&entry.payload, missing), "frames to fill it up with, if need be");
        entry.missing = missing;
        let filling = Filling { entry: message.0, generation: entry.generation };
        self.release_sendmsg(message);
        filling
    }

    /// The next part of the data. Dropped when the message is gone, because its connection broke. Panics when it is
    /// more than is missing, or when after so many parts the rest could not be filled up.
    pub fn fill(&mut self, filling: &Filling, part: Frame) {
        let Some(entry) = self.filling_entry(filling) else { return };
        assert!(part.len() <= entry.missing, "no more than the header announced");
        entry.missing -= part.len();
        entry.payload.push(part);
        assert!(
            is_fillable(&entry.payload, entry.missing),
            "no more frames than a message may have"
        );
        self.has_filled = true;
    }

    /// The rest does not come: the message is filled up with what is there of it already.
    pub fn end_filling(&mut self, filling: Filling) {
        while let Some(part) = self.filler(&filling) {
            self.fill(&filling, part);
        }
    }

    fn filler(&mut self, filling: &Filling) -> Option<Frame> {
        let entry = self.filling_entry(filling).filter(|entry| entry.missing > 0)?;
        let longest = longest(&entry.payload).expect("the first part was attached");
        Some(longest.slice(0..longest.len().min(entry.missing)))
    }

    fn filling_entry(&mut self, filling: &Filling) -> Option<&mut Message> {
        let entry = &mut self.send_entries[filling.entry as usize];
        (entry.generation == filling.generation).then_some(entry)
    }

    /// Takes the oldest posted message that is not filling off the send ring: for an adapter that stores and forwards.
    pub fn next_whole(&mut self) -> Option<SendMessage> {
        let whole = |entry: &u16| self.send_entries[*entry as usize].missing == 0;
        let at = self.send_ring.iter().position(whole)?;
        self.send_ring.remove(at).map(SendMessage)
    }

    /// Whether a posted message has got more of its data since this was asked last.
    pub fn take_filled(&mut self) -> bool {
        std::mem::take(&mut self.has_filled)
    }
}

/// Whether a message with these frames could be filled up by `missing` bytes with the longest of them alone.
pub fn is_fillable(frames: &[Frame], missing: usize) -> bool {
    let longest = longest(frames).map_or(0, |frame| frame.len());
    longest > 0 && frames.len() + missing.div_ceil(longest) <= GATHER_MAX
}

fn longest(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().max_by_key(|frame| frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Frames;
    use crate::memory::HeapRegion;

    fn endpoint() -> Endpoint {
        Endpoint::with_entries(Frames::new(HeapRegion::new(64)), 1, 4)
    }

    fn begun(endpoint: &mut Endpoint, first: &[u8], missing: usize) -> Filling {
        let frame = endpoint.frames().copy_of(first).expect("memory");
        let message = endpoint.get_sendmsg().expect("an entry");
        endpoint.attach_sendmsg(&message, frame, None);
        endpoint.release_filling(message, missing)
    }

    fn data(endpoint: &Endpoint, message: &SendMessage) -> Vec<u8> {
        endpoint.taken(message).payload.iter().flat_map(|part| part.to_vec()).collect()
    }

    #[test]
    fn data_grows_behind_what_is_there() {
        let mut endpoint = endpoint();
        let filling = begun(&mut endpoint, b"abc", 4);
        let message = endpoint.next_send().expect("posted");
        assert!(!endpoint.take_filled());
        for (part, missing) in [(b"de", 2), (b"fg", 0)] {
            let part = endpoint.frames().copy_of(part).expect("memory");
            endpoint.fill(&filling, part);
            assert_eq!(endpoint.taken(&message).missing, missing);
            assert!(endpoint.take_filled());
        }
        assert_eq!(data(&endpoint, &message), b"abcdefg");
        endpoint.end_filling(filling);
        assert_eq!(data(&endpoint, &message), b"abcdefg", "nothing is missing");
    }

    #[test]
    fn what_nobody_brings_is_filled_up() {
        let mut endpoint = endpoint();
        let filling = begun(&mut endpoint, b"abc", 8);
        assert!(endpoint.next_whole().is_none());
        endpoint.end_filling(filling);
        let message = endpoint.next_whole().expect("posted");
        assert_eq!(endpoint.taken(&message).missing, 0);
        assert_eq!(data(&endpoint, &message), b"abcabcabcab");
    }

    /// A filling that cannot be ended is refused where it is made, not where it is cleaned up.
    #[test]
    #[should_panic(expected = "no more frames than a message may have")]
    fn parts_too_small_to_be_filled_up_are_refused() {
        let mut endpoint = endpoint();
        let filling = begun(&mut endpoint, &[1; 4], 4 * (GATHER_MAX - 1));
        for _ in 0..2 {
            let part = endpoint.frames().copy_of(b"d").expect("memory");
            endpoint.fill(&filling, part);
        }
    }

    #[test]
    fn data_for_a_message_that_is_gone_is_dropped() {
        let mut endpoint = endpoint();
        let free = endpoint.frames().free_pages();
        let filling = begun(&mut endpoint, b"abc", 2);
        let message = endpoint.next_send().expect("posted");
        endpoint.transmitted(message);
        let part = endpoint.frames().copy_of(b"de").expect("memory");
        endpoint.fill(&filling, part);
        assert_eq!(endpoint.frames().free_pages(), free);
        let next = endpoint.get_sendmsg().expect("the same entry");
        endpoint.end_filling(filling);
        assert_eq!(data(&endpoint, &next), b"");
    }
}
