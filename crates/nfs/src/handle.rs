//! File handles that say themselves what they name: the same through every manager and filter, over restarts and moves
//! for ever, for nothing in them is a time, a device or a place.
//!
//! ```text
//!   0  version, kind      8  file, with its site    20  export     28  CRC-32C of all before
//!   4  volume            16  generation             24  seal
//! ```
//!
//! All big-endian. The checksum tells garbage (BADHANDLE) from a handle; the volume and the seal tell whether it is
//! ours (else STALE). The seal is made with a key of the volume, since AUTH_SYS lets anybody who reaches the port ask:
//! without it the handle of a file outside of an export is guessed in a few tries. It has 32 bits, so a guess takes two
//! thousand million calls and all of them are errors.

use crate::v3::{self, Status};
use wire::{FileId, VolumeId};

/// Bytes of a handle: half of what NFSv3 allows, for other servers' clients keep 32.
pub const HANDLE_BYTES: usize = 32;
const VERSION: u8 = 1;
const SEALED_BYTES: usize = 24;
const SUMMED_BYTES: usize = 28;

/// Attribute of the root directory with the key of the volume's handles: in backups too, and the same for all servers.
pub const KEY_ATTRIBUTE: &[u8] = b"trusted.nfs3.key";

/// Content of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Volume.
    pub volume: VolumeId,
    /// File, and with it the site.
    pub file: FileId,
    /// Of the file, where its number can be used again; else 0.
    pub generation: u32,
    /// The export through which the client came to it: see [`Export::number`](crate::exports::Export::number).
    pub export: u32,
}

/// The key of a volume's handles. It is kept with the volume, in backups too: with another one all mounts are stale.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// A number that cannot be forged without the key.
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        siphash(self, bytes)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a handle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// It is no handle of any version of ours (section 2.6, BADHANDLE).
    #[error("bytes that are no file handle")]
    Bad,
    /// It is a handle, of another volume or with another key (section 2.6, STALE).
    #[error("a file handle of another volume")]
    Stale,
}

impl From<HandleError> for Status {
    fn from(error: HandleError) -> Status {
        match error {
            HandleError::Bad => Status::BadHandle,
            HandleError::Stale => Status::Stale,
        }
    }
}

impl Named {
    /// The handle.
    pub fn encode(&self, key: &Key) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = VERSION;
        bytes[4..8].copy_from_slice(&self.volume.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.file.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.export.to_be_bytes());
        let seal = seal(key, &bytes);
        bytes[SEALED_BYTES..SUMMED_BYTES].copy_from_slice(&seal);
        let sum = wire::checksum::crc32c(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Decodes a handle of this volume.
    pub fn decode(
        handle: v3::Handle<'_>,
        volume: VolumeId,
        key: &Key,
    ) -> Result<Named, HandleError> {
        let bytes: &[u8; HANDLE_BYTES] = handle.0.try_into().map_err(|_| HandleError::Bad)?;
        let sum = wire::checksum::crc32c(&bytes[..SUMMED_BYTES]);
        if bytes[..4] != [VERSION, 0, 0, 0] || bytes[SUMMED_BYTES..] != sum.to_be_bytes() {
            return Err(HandleError::Bad);
        }
        let number = |at: usize| {
            u32::from_be_bytes(*bytes[at..].first_chunk().expect("a number within the handle"))
        };
        let found = Named {
            volume: VolumeId(number(4)),
            file: FileId(u64::from(number(8)) << 32 | u64::from(number(12))),
            generation: number(16),
            export: number(20),
        };
        let is_ours =
            found.volume == volume && bytes[SEALED_BYTES..SUMMED_BYTES] == seal(key, bytes);
        if is_ours { Ok(found) } else { Err(HandleError::Stale) }
    }
}

fn seal(key: &Key, bytes: &[u8; HANDLE_BYTES]) -> [u8; 4] {
    let hash = siphash(key, &bytes[..SEALED_BYTES]);
    (hash as u32).to_be_bytes()
}

/// SipHash-2-4 (Aumasson and Bernstein 2012), the standard keyed hash of short inputs. The standard library has it
/// under an interface that does not promise to stay the same.
fn siphash(key: &Key, bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    let (first, second) = (word(&key.0), word(&key.0[8..]));
    let mut state = [
        first ^ 0x736f_6d65_7073_6575,
        second ^ 0x646f_7261_6e64_6f6d,
        first ^ 0x6c79_6765_6e65_7261,
        second ^ 0x7465_6462_7974_6573,
    ];
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = bytes.len() as u8;
    for message in chunks.map(word).chain([word(&last)]) {
        state[3] ^= message;
        (0..2).for_each(|_| round(&mut state));
        state[0] ^= message;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state.into_iter().fold(0, |all, word| all ^ word)
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    /// Vectors of the paper's reference implementation: key 00..0f, input 00, 01, ...
    #[test]
    fn siphash_gives_the_published_values() {
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(&KEY, &input), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(&KEY, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(&KEY, &input[..8]), 0x93f5_f579_9a93_2462);
    }

    /// hf-mount#177: a handle that changes over a restart makes macOS drop writes. These bytes are on clients' disks.
    #[test]
    fn a_handle_is_the_same_for_ever() {
        let file = FileId::new(3, 77);
        let named = Named { volume: VolumeId(9), file, generation: 2, export: 5 };
        let bytes = named.encode(&KEY);
        let wanted = [1, 0, 0, 0, 0, 0, 0, 9, 3, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 2, 0, 0, 0, 5];
        assert_eq!(bytes[..24], wanted);
        assert_eq!(named.encode(&KEY), bytes);
        assert_eq!(Named::decode(v3::Handle(&bytes), VolumeId(9), &KEY), Ok(named));
    }

    #[test]
    fn another_volume_or_key_is_stale() {
        let bytes = Named { volume: VolumeId(9), ..Named::default() }.encode(&KEY);
        let decode = |volume, key| Named::decode(v3::Handle(&bytes), VolumeId(volume), key);
        assert_eq!(decode(8, &KEY), Err(HandleError::Stale));
        assert_eq!(decode(9, &Key([7; 16])), Err(HandleError::Stale));
        assert_eq!(Status::from(HandleError::Stale), Status::Stale);
    }

    proptest! {
        #[test]
        fn handles_come_back(volume: u32, file: u64, generation: u32, export: u32, key: [u8; 16]) {
            let (volume, key) = (VolumeId(volume), Key(key));
            let named = Named { volume, file: FileId(file), generation, export };
            let bytes = named.encode(&key);
            prop_assert_eq!(Named::decode(v3::Handle(&bytes), volume, &key), Ok(named));
        }

        /// One changed bit, a missing or an added byte, or no handle at all: BADHANDLE.
        #[test]
        fn garbage_is_bad(bit in 0usize..256, bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
            let volume = VolumeId(1);
            let whole = Named { volume, ..Named::default() }.encode(&KEY);
            let mut changed = whole;
            changed[bit / 8] ^= 1 << (bit % 8);
            let longer = [&whole[..], &[0]].concat();
            for bad in [&changed[..], &whole[..31], &longer, &bytes] {
                prop_assert_eq!(Named::decode(v3::Handle(bad), volume, &KEY), Err(HandleError::Bad));
            }
        }
    }
}
