//! Random numbers that no dependency update can change: xoshiro256** (Blackman and Vigna 2018), seeded by splitmix64.
//!
//! Every component draws from a stream of its own, named after it, so that a new component changes no other's luck.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

/// Parts of a million: how probabilities are written, so that no floating point decides anything.
pub const MILLION: u32 = 1_000_000;

fn splitmix(state: &mut u64) -> u64 {
    let mixed = wire::mix(*state);
    *state = state.wrapping_add(wire::mix::STEP);
    mixed
}

impl Random {
    /// The stream of the component `name` in the run with this seed.
    pub fn new(seed: u64, name: &str) -> Random {
        let mut state = seed;
        for byte in name.bytes() {
            state = splitmix(&mut state) ^ u64::from(byte);
        }
        Random(std::array::from_fn(|_| splitmix(&mut state)))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. By multiplication; its bias is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range with something in it");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a million.
    pub fn chance(&mut self, millionths: u32) -> bool {
        millionths > 0 && self.below(u64::from(MILLION)) < u64::from(millionths)
    }

    /// A place in a list of `len`, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// An exponentially distributed number with this mean (von Neumann 1951): the length of a run of falling numbers
    /// is odd with probability e^-x, where x is the first of them. It only compares, so that no library's logarithm
    /// decides anything.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0u64;
        loop {
            let first = self.next();
            let (mut last, mut length) = (first, 1);
            loop {
                let next = self.next();
                if next >= last {
                    break;
                }
                (last, length) = (next, length + 1);
            }
            if length % 2 == 1 {
                let times = u128::from(whole) << 32 | u128::from(first >> 32);
                return (u128::from(mean) * times >> 32) as u64;
            }
            whole += 1;
        }
    }

    /// One of the alternatives.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_the_right_moments() {
        let mut random = Random::new(1, "exponential");
        let times: Vec<f64> =
            (0..200_000).map(|_| random.exponential(1_000_000) as f64 / 1e6).collect();
        let average = times.iter().sum::<f64>() / times.len() as f64;
        let square = times.iter().map(|time| time * time).sum::<f64>() / times.len() as f64;
        let above = times.iter().filter(|time| **time > 3.0).count() as f64 / times.len() as f64;
        assert!((average - 1.0).abs() < 0.01, "{average}");
        assert!((square - 2.0).abs() < 0.04, "{square}");
        assert!((above - 0.049_787).abs() < 0.002, "{above}"); // e^-3
    }

    /// Goldens: a change of these changes every recorded seed.
    #[test]
    fn streams_never_change() {
        let mut stream = Random::new(1, "network");
        let first: Vec<u64> = (0..3).map(|_| stream.next()).collect();
        let again: Vec<u64> = {
            let mut stream = Random::new(1, "network");
            (0..3).map(|_| stream.next()).collect()
        };
        assert_eq!(first, again);
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [u64; 3] = [13467165315839675122, 8374811557059284671, 10986234794728728607];

    /// The generator itself, against the authors' reference with the state 1, 2, 3, 4.
    #[test]
    fn is_xoshiro256_starstar() {
        let mut stream = Random([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| stream.next()).collect();
        assert_eq!(first, [11520, 0, 1509978240, 1215971899390074240]);
    }

    #[test]
    fn components_and_seeds_are_independent() {
        let streams = [(1, "a"), (1, "b"), (2, "a"), (1, "ab"), (1, "")];
        let mut first: Vec<u64> = streams.map(|(seed, name)| Random::new(seed, name).next()).into();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), streams.len());
    }

    #[test]
    fn chances_are_what_they_say() {
        let mut stream = Random::new(7, "dice");
        let hits = (0..100_000).filter(|_| stream.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!(0..1_000).any(|_| stream.chance(0)));
        assert!((0..1_000).all(|_| stream.chance(MILLION)));
        assert!((0..1_000).all(|_| (3..=5).contains(&stream.within(3, 5))));
    }
}
