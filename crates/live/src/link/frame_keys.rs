//! Keys for the Ethernet frames of a connection: derived from those that its handshake agreed on, with the same cipher
//! as its TCP connection, AES-256-GCM.
//!
//! A frame's number is its nonce, and no number is used twice. Every [`MESSAGES_PER_KEY`] frames a direction changes to
//! the next key, which does not lead back to the one before.

use super::limits::MESSAGES_PER_KEY;
use nic::ether::{PROOF_BYTES, Seal};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::fmt;

type Key = [u8; 32];

/// The keys of both directions.
pub struct FrameKeys {
    send: Direction,
    receive: Direction,
}

struct Direction {
    /// The keys in use are the ones of so many changes.
    change: u64,
    current: LessSafeKey,
    /// Frames that were overtaken by the change.
    previous: Option<LessSafeKey>,
    next: Prk,
}

fn derive(from: &Prk, what: &[u8]) -> Key {
    let mut key = Key::default();
    let info = [what];
    let material = from.expand(&info, HKDF_SHA256).expect("one block of the hash");
    material.fill(&mut key).expect("as long as the hash");
    key
}

fn cipher(from: &Prk) -> LessSafeKey {
    let key = derive(from, b"trapeze frames, key");
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("a key of 32 bytes"))
}

fn following(from: &Prk) -> Prk {
    Prk::new_less_safe(HKDF_SHA256, &derive(from, b"trapeze frames, next"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Direction {
    fn new(key: &Key) -> Direction {
        let first = Salt::new(HKDF_SHA256, b"trapeze frames").extract(key);
        let (current, next) = (cipher(&first), following(&first));
        Direction { change: 0, current, previous: None, next }
    }

    fn advance(&mut self) {
        self.change += 1;
        let following = following(&self.next);
        let current = std::mem::replace(&mut self.current, cipher(&self.next));
        (self.previous, self.next) = (Some(current), following);
    }
}

impl FrameKeys {
    /// From the keys of a handshake, that to send with first.
    pub fn derive(send: &Key, receive: &Key) -> FrameKeys {
        FrameKeys { send: Direction::new(send), receive: Direction::new(receive) }
    }
}

impl fmt::Debug for FrameKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameKeys(..)")
    }
}

fn open(key: &LessSafeKey, number: u64, head: &[u8], body: &mut [u8], proof: &[u8]) -> bool {
    let Ok(tag) = Tag::try_from(&proof[..PROOF_BYTES]) else { return false };
    key.open_in_place_separate_tag(nonce(number), Aad::from(head), tag, body, 0..).is_ok()
}

impl Seal for FrameKeys {
    fn seal(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &mut [u8]) {
        if number / MESSAGES_PER_KEY > self.send.change {
            self.send.advance();
        }
        let sealed =
            self.send.current.seal_in_place_separate_tag(nonce(number), Aad::from(head), body);
        proof.copy_from_slice(sealed.expect("a frame is short").as_ref());
    }

    fn open(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &[u8]) -> bool {
        let direction = &mut self.receive;
        let change = number / MESSAGES_PER_KEY;
        if change == direction.change {
            return open(&direction.current, number, head, body, proof);
        }
        if change + 1 == direction.change {
            let previous = direction.previous.as_ref();
            return previous.is_some_and(|key| open(key, number, head, body, proof));
        }
        // Only the real first frame under the next key changes to it.
        let next = change == direction.change + 1;
        let opened = next && open(&cipher(&direction.next), number, head, body, proof);
        if opened {
            direction.advance();
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (FrameKeys, FrameKeys) {
        (FrameKeys::derive(&[1; 32], &[2; 32]), FrameKeys::derive(&[2; 32], &[1; 32]))
    }

    fn sealed(keys: &mut FrameKeys, number: u64) -> (Vec<u8>, [u8; PROOF_BYTES]) {
        let (mut body, mut proof) = (b"a body".to_vec(), [0; PROOF_BYTES]);
        keys.seal(number, b"head", &mut body, &mut proof);
        (body, proof)
    }

    #[test]
    fn only_the_frame_that_was_sealed_opens() {
        let (mut a, mut b) = pair();
        let (body, proof) = sealed(&mut a, 5);
        assert_ne!(body, b"a body");
        let mut opens = |number, head: &[u8], body: &[u8], proof: &[u8]| {
            b.open(number, head, &mut body.to_vec(), proof)
        };
        assert!(!opens(6, b"head", &body, &proof));
        assert!(!opens(5, b"heat", &body, &proof));
        assert!(!opens(5, b"head", &body[1..], &proof));
        assert!(!opens(5, b"head", &body, &[0; PROOF_BYTES]));
        assert!(opens(5, b"head", &body, &proof));
        let (body, proof) = sealed(&mut b, 5);
        assert!(!b.open(5, b"head", &mut body.clone(), &proof), "its own frame");
        assert!(a.open(5, b"head", &mut body.clone(), &proof));
    }

    #[test]
    fn keys_change_and_frames_that_were_overtaken_still_open() {
        let (mut a, mut b) = pair();
        let late = sealed(&mut a, MESSAGES_PER_KEY - 1);
        let first = sealed(&mut a, MESSAGES_PER_KEY);
        let opens = |b: &mut FrameKeys, number, (body, proof): &(Vec<u8>, [u8; 16])| {
            b.open(number, b"head", &mut body.clone(), proof)
        };
        assert!(!opens(&mut b, 2 * MESSAGES_PER_KEY, &first), "a number ahead changes nothing");
        assert!(!opens(&mut b, MESSAGES_PER_KEY + 1, &first));
        assert!(opens(&mut b, MESSAGES_PER_KEY, &first));
        assert!(opens(&mut b, MESSAGES_PER_KEY - 1, &late));
        let next = sealed(&mut a, 2 * MESSAGES_PER_KEY);
        assert!(opens(&mut b, 2 * MESSAGES_PER_KEY, &next));
        assert!(!opens(&mut b, MESSAGES_PER_KEY - 1, &late), "two changes ago");
    }
}
