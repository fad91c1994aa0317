//! One mixer of bits for all that need one: keys, random streams, rendezvous hashing.

/// Increment of splitmix64's sequence.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a change of any bit over all bits, one to one: the number of splitmix64 that follows the state `value`. It
/// is no cryptography.
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(STEP);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers from seed 1234567, as published with the generator (Steele, Lea and Flood 2014).
    #[test]
    fn it_is_splitmix64() {
        let numbers = [0u64, 1, 2].map(|n| mix(1_234_567_u64.wrapping_add(n.wrapping_mul(STEP))));
        let known =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, known);
    }
}
