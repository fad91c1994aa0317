//! The handshake that proves both ends know the cluster key and agrees on keys for the connection
//! (Noise specification, revision 34: pattern XX with a pre-shared key).
//!
//! The key is mixed in before the first message, so that a node that accepts a connection with another key knows after
//! 48 bytes and can say so. Both hellos are authenticated: the caller's as prologue, the acceptor's as payload of the
//! second message.

use super::frame_keys::FrameKeys;
use super::hello::HELLO_BYTES;
use snow::{Builder, HandshakeState, TransportState};

/// AES-GCM because processors with AES instructions seal 64 KiB in a third of the time ChaCha20-Poly1305 takes.
const PATTERN: &str = "Noise_XXpsk0_25519_AESGCM_SHA256";
/// `e`, and the seal of an empty payload.
pub const FIRST_BYTES: usize = 32 + 16;
/// `e`, sealed `s`, and the sealed hello.
pub const SECOND_BYTES: usize = 32 + 48 + HELLO_BYTES + 16;
/// Sealed `s`, and the seal of an empty payload.
pub const THIRD_BYTES: usize = 48 + 16;

/// Keys by which a node proves that it belongs to its cluster.
#[derive(Clone)]
pub struct Keys {
    /// Shared by all nodes of the cluster.
    pub cluster: [u8; 32],
    /// The node's own X25519 key.
    pub private: [u8; 32],
}

impl Keys {
    /// The cluster's key with a fresh key for this node.
    pub fn generate(cluster: [u8; 32]) -> Keys {
        let pair = builder().generate_keypair().expect("the system has random numbers");
        let private = pair.private.try_into().expect("an X25519 key has 32 bytes");
        Keys { cluster, private }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

/// The peer does not know the cluster key, or an attacker is in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKey;

/// One side's handshake.
pub struct Noise(HandshakeState);

impl std::fmt::Debug for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noise(..)")
    }
}

fn builder() -> Builder<'static> {
    Builder::new(PATTERN.parse().expect("a pattern of the specification"))
}

impl Noise {
    /// `hello` is the caller's, for both.
    pub fn new(keys: &Keys, hello: &[u8; HELLO_BYTES], caller: bool) -> Noise {
        let prepared = builder()
            .psk(0, &keys.cluster)
            .and_then(|b| b.local_private_key(&keys.private))
            .and_then(|b| b.prologue(hello));
        let state =
            prepared.and_then(|b| if caller { b.build_initiator() } else { b.build_responder() });
        Noise(state.expect("the pattern's keys are all there"))
    }

    /// The next message of the handshake, appended to `out`.
    pub fn write(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let mut message = [0; SECOND_BYTES];
        let count =
            self.0.write_message(payload, &mut message).expect("it is our turn and there is room");
        out.extend_from_slice(&message[..count]);
    }

    /// Reads the peer's message; how many bytes its payload in `into` has.
    pub fn read(&mut self, message: &[u8], into: &mut [u8]) -> Result<usize, WrongKey> {
        self.0.read_message(message, into).map_err(|_| WrongKey)
    }

    /// After the third message: the ciphers of the connection, and the keys that it agreed on beside them, for frames.
    pub fn finish(mut self) -> (TransportState, FrameKeys) {
        let (callers, acceptors) = self.0.dangerously_get_raw_split();
        let keys = if self.0.is_initiator() { (callers, acceptors) } else { (acceptors, callers) };
        let frames = FrameKeys::derive(&keys.0, &keys.1);
        (self.0.into_transport_mode().expect("all three messages have passed"), frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: [u8; HELLO_BYTES] = [7; HELLO_BYTES];

    fn keys(cluster: u8) -> Keys {
        Keys::generate([cluster; 32])
    }

    #[test]
    fn two_with_one_key_agree() {
        let (mut a, mut b) =
            (Noise::new(&keys(1), &HELLO, true), Noise::new(&keys(1), &HELLO, false));
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        let mut payload = [0; 256];
        a.write(&[], &mut first);
        assert_eq!(first.len(), FIRST_BYTES);
        b.read(&first, &mut payload).unwrap();
        b.write(&HELLO, &mut second);
        assert_eq!(second.len(), SECOND_BYTES);
        assert_eq!(a.read(&second, &mut payload), Ok(HELLO_BYTES));
        assert_eq!(payload[..HELLO_BYTES], HELLO);
        a.write(&[], &mut third);
        assert_eq!(third.len(), THIRD_BYTES);
        b.read(&third, &mut payload).unwrap();
        let ((mut a, _), (mut b, _)) = (a.finish(), b.finish());
        let mut sealed = [0; 64];
        let count = a.write_message(b"hello", &mut sealed).unwrap();
        assert_eq!(b.read_message(&sealed[..count], &mut payload).unwrap(), 5);
    }

    #[test]
    fn another_key_or_another_hello_shows_in_the_first_message() {
        for (key, hello) in [(2, HELLO), (1, [8; HELLO_BYTES])] {
            let (mut a, mut b) =
                (Noise::new(&keys(1), &HELLO, true), Noise::new(&keys(key), &hello, false));
            let mut first = Vec::new();
            a.write(&[], &mut first);
            assert_eq!(b.read(&first, &mut [0; 256]), Err(WrongKey));
        }
    }
}
