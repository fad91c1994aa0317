//! Sizes and rates as people write and read them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written with an optional suffix `K`, `M`, `G` or `T` (powers of 1024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size: write a number with an optional K, M, G or T, such as 64M")]
pub struct BadSize(String);

const SUFFIXES: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Size, BadSize> {
        let bad = || BadSize(text.to_string());
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper.trim_end_matches("IB").trim_end_matches('B');
        let suffix = SUFFIXES.iter().find(|(letter, _)| plain.ends_with(*letter));
        let digits = suffix.map_or(plain, |(letter, _)| plain.trim_end_matches(*letter));
        let count: u64 = digits.trim().parse().map_err(|_| bad())?;
        let shift = suffix.map_or(0, |(_, shift)| *shift);
        count.checked_mul(1 << shift).map(Size).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = SUFFIXES.iter().rev().find(|(_, shift)| self.0 >= 1 << shift);
        match fits {
            None => write!(f, "{}", self.0),
            Some((letter, shift)) if self.0.is_multiple_of(1 << shift) => {
                write!(f, "{}{letter}", self.0 >> shift)
            }
            Some((letter, shift)) => {
                write!(f, "{:.1}{letter}", self.0 as f64 / (1u64 << shift) as f64)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("64K", 65536), ("64KiB", 65536), ("3g", 3 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "12X", "-1", "99999999999T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(65536).to_string(), "64K");
        assert_eq!(Size(1_500_000).to_string(), "1.4M");
        assert_eq!(Size(100).to_string(), "100");
    }
}
