//! How payloads move through a link, as configurations and flags name it.

use crate::size::{BadSize, Size};
use endpoint::Pulse;
use endpoint::tuning::Pulses;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// `adaptive`, the default: in pieces that follow from what transfers cost here. `adaptive:64K`: in pieces of at least
/// so much. `fixed:64K`: in pieces of just so much. `sf`: whole, stored and forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PulsePolicy(pub Pulses);

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// No such policy.
    #[error(
        "{0:?} is no policy of pulses: write sf, fixed:BYTES, adaptive or adaptive:LEAST, such as adaptive:64K"
    )]
    Name(String),
    /// No such size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// A pulse of next to nothing.
    #[error("a pulse of {0} bytes: write at least {PULSE_BYTES_MIN}")]
    Small(Size),
}

/// Fewest bytes of a pulse: a line of a processor's cache.
const PULSE_BYTES_MIN: u64 = 64;

impl PulsePolicy {
    /// Whether pieces are measured or at least of some size, and not of one.
    pub fn is_adaptive(self) -> bool {
        matches!(self.0, Pulses::Tuned | Pulses::Given(Pulse::Adaptive { .. }))
    }
}

impl FromStr for PulsePolicy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<PulsePolicy, BadPolicy> {
        Ok(PulsePolicy(match text.split_once(':') {
            None if text == "sf" => Pulses::Given(Pulse::Whole),
            None if text == "adaptive" => Pulses::Tuned,
            Some(("fixed", size)) => Pulses::Given(Pulse::Fixed(bytes(size)?)),
            Some(("adaptive", least)) => Pulses::Given(Pulse::Adaptive { minimum: bytes(least)? }),
            _ => return Err(BadPolicy::Name(text.to_string())),
        }))
    }
}

fn bytes(text: &str) -> Result<usize, BadPolicy> {
    let size: Size = text.parse()?;
    if size.0 < PULSE_BYTES_MIN { Err(BadPolicy::Small(size)) } else { Ok(size.0 as usize) }
}

impl fmt::Display for PulsePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Pulses::Tuned => f.write_str("adaptive"),
            Pulses::Given(Pulse::Whole) => f.write_str("sf"),
            Pulses::Given(Pulse::Fixed(size)) => write!(f, "fixed:{}", exact(size)),
            Pulses::Given(Pulse::Adaptive { minimum }) => write!(f, "adaptive:{}", exact(minimum)),
        }
    }
}

/// A size that is read as what it was.
fn exact(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 10) { format!("{}K", bytes >> 10) } else { bytes.to_string() }
}

impl<'de> Deserialize<'de> for PulsePolicy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PulsePolicy, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for PulsePolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written_alike() {
        for text in ["sf", "fixed:4K", "fixed:1408", "adaptive", "adaptive:8K", "adaptive:1025K"] {
            assert_eq!(text.parse::<PulsePolicy>().unwrap().to_string(), text);
        }
        assert_eq!("adaptive".parse(), Ok(PulsePolicy::default()));
        for (bad, says) in [
            ("", "no policy"),
            ("fixed", "no policy"),
            ("eager", "adaptive:64K"),
            ("sf:4K", "no policy"),
            ("fixed:x", "no size"),
            ("fixed:0", "at least 64"),
        ] {
            let error = bad.parse::<PulsePolicy>().unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
