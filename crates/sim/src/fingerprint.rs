//! A 64-bit running hash of everything that happened: two runs with one fingerprint were the same run.
//!
//! It is not cryptographic; a simulation is not forged.

/// The running hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

const MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint(0x243f_6a88_85a3_08d3)
    }
}

impl Fingerprint {
    /// Goes on with a number.
    pub fn mix(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(MULTIPLIER);
        self.0 = (mixed ^ (mixed >> 32)).wrapping_add(MULTIPLIER);
    }

    /// Goes on with bytes and their number.
    pub fn mix_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
        self.mix(bytes.len() as u64);
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> u64 {
        let mut fingerprint = Fingerprint::default();
        values.iter().for_each(|value| fingerprint.mix(*value));
        fingerprint.value()
    }

    #[test]
    fn order_and_content_count() {
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[]));
        assert_ne!(of(&[0]), of(&[0, 0]));
    }

    #[test]
    fn every_byte_counts() {
        let sum = |bytes: &[u8]| {
            let mut fingerprint = Fingerprint::default();
            fingerprint.mix_bytes(bytes);
            fingerprint.value()
        };
        assert_ne!(sum(b"abcdefgh"), sum(b"abcdefgh\0"));
        assert_ne!(sum(b"abcdefghi"), sum(b"abcdefghj"));
    }
}
