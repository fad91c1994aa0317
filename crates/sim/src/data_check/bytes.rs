//! The bytes of writes, made and compared eight at a time: most of a simulated hour would else go into this.

use super::{DataCheck, WriteId};

/// Bytes that are made, and compared, at once.
const WORD: u64 = 8;

/// The bytes of a write: a function of its number and the place in the file.
pub fn fill(write: WriteId, offset: u64, into: &mut [u8]) {
    let start = offset.next_multiple_of(WORD);
    let (head, rest) = into.split_at_mut(((start - offset) as usize).min(into.len()));
    let (words, tail) = rest.as_chunks_mut();
    for (at, word) in (start..).step_by(WORD as usize).zip(&mut *words) {
        *word = word_at(write, at).to_le_bytes();
    }
    let end = start + words.len() as u64 * WORD;
    for (at, byte) in (offset..).zip(head).chain((end..).zip(tail)) {
        *byte = byte_at(write, at);
    }
}

fn byte_at(write: WriteId, at: u64) -> u8 {
    word_at(write, at).to_le_bytes()[(at % WORD) as usize]
}

/// The word that has the byte at this place.
fn word_at(write: WriteId, at: u64) -> u64 {
    let word = (u64::from(write.0) << 40 ^ at / WORD).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl DataCheck {
    /// The first of the bytes from `start` on that none of the writes has left. Whole words are compared first: all but
    /// those where one write ends and another goes on have one that fits.
    pub(super) fn wrong_place(&self, may: &[WriteId], start: u64, data: &[u8]) -> Option<u64> {
        let mut at = 0;
        while let Some(byte) = data.get(at) {
            let place = start + at as u64;
            let word = data[at..].first_chunk().filter(|_| place.is_multiple_of(WORD));
            let word = word.map(|bytes| u64::from_le_bytes(*bytes));
            if word.is_some_and(|word| may.iter().any(|id| self.word(*id, place) == word)) {
                at += WORD as usize;
            } else if may.iter().any(|id| self.value(*id, place) == *byte) {
                at += 1;
            } else {
                return Some(place);
            }
        }
        None
    }

    fn word(&self, id: WriteId, at: u64) -> u64 {
        if self.writes[id.0 as usize].is_zero() { 0 } else { word_at(id, at) }
    }

    pub(super) fn value(&self, id: WriteId, at: u64) -> u8 {
        if self.writes[id.0 as usize].is_zero() { 0 } else { byte_at(id, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FILE, at, reader};
    use super::*;
    use wire::NodeId;

    /// Bounds of stretches, words and reads do not matter.
    #[test]
    fn every_wrong_byte_is_found_wherever_it_is() {
        let mut check = DataCheck::default();
        let (begin, end) = (13, 61);
        let one = check.write_begins(NodeId(1), FILE, 0, begin, at(1));
        let two = check.write_begins(NodeId(1), FILE, begin, end - begin, at(1));
        [one, two].into_iter().for_each(|id| check.ends(id, true, at(2)));
        let byte = |place| byte_at(if place < begin { one } else { two }, place);
        let whole: Vec<u8> = (0..end).map(byte).collect();
        for from in 0..end {
            for to in from..=end {
                let (first, last) = (from as usize, to as usize);
                let mut check = |data: &[u8]| {
                    check.check_read(&reader(NodeId(1), 3, 3), FILE, from, to - from, data)
                };
                let mut data = whole[first..last].to_vec();
                assert_eq!(check(&data), Ok(()), "{from}..{to}");
                for wrong in 0..data.len() {
                    data[wrong] ^= 1;
                    let told = check(&data).unwrap_err();
                    assert!(told.contains(&format!("byte {} reads", first + wrong)), "{told}");
                    data[wrong] ^= 1;
                }
            }
        }
        for (from, to) in [(0, 13), (3, 4), (5, 5), (8, 16), (9, 13)] {
            let mut bytes = vec![0; to - from];
            fill(one, from as u64, &mut bytes);
            let single: Vec<u8> = (from..to).map(|at| byte_at(one, at as u64)).collect();
            assert_eq!(bytes, single);
        }
    }
}
