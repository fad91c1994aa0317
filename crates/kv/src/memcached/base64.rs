//! Keys that are not text, as base64 with padding (RFC 4648, section 4).

use crate::limits::MEMCACHED_KEY_BYTES_MAX;
use arrayvec::ArrayVec;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A key.
pub type Key = ArrayVec<u8, MEMCACHED_KEY_BYTES_MAX>;

fn value(digit: u8) -> Option<u32> {
    ALPHABET.iter().position(|other| *other == digit).map(|value| value as u32)
}

/// The bytes of a text; `None` when it is no base64, or too long for a key.
pub fn decode(text: &[u8]) -> Option<Key> {
    let mut key = Key::new();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let groups = text.len() / 4;
    for (number, group) in text.chunks(4).enumerate() {
        let digits = group.iter().take_while(|digit| **digit != b'=').count();
        let padded = group[digits..].iter().all(|digit| *digit == b'=');
        if digits < 2 || !padded || (digits < 4 && number + 1 < groups) {
            return None;
        }
        let bits =
            group[..digits].iter().try_fold(0, |bits, digit| Some(bits << 6 | value(*digit)?))?;
        let bytes = (bits << (6 * (4 - digits))).to_be_bytes();
        key.try_extend_from_slice(&bytes[1..digits]).ok()?;
    }
    Some(key)
}

/// Appends the text of some bytes.
pub fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(word);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            into.push(if place <= group.len() { digit } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut encoded = Vec::new();
            encode(bytes.as_bytes(), &mut encoded);
            assert_eq!(encoded, text.as_bytes());
        }
        for text in ["Z", "Zg", "Zg=", "Zg==Zg==", "=Zg=", "Z===", "Zm9-"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn keys_come_back(bytes in prop::collection::vec(any::<u8>(), 0..260)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let decoded = decode(&text);
            match bytes.len() <= MEMCACHED_KEY_BYTES_MAX {
                true => prop_assert_eq!(decoded.as_deref(), Some(&bytes[..])),
                false => prop_assert_eq!(decoded, None),
            }
        }
    }
}
