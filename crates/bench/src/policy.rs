//! The adapter's policies of moving payloads, by the names that arguments give them.

use live::link::AdapterShape;
use nic::Policy;
use std::str::FromStr;
use trapeze::size::{BadSize, Size};

/// A policy by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulsePolicy {
    pub(crate) name: String,
    pub(crate) policy: Policy,
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// No such policy.
    #[error("{0:?} is no policy: sf, fixed:BYTES, adaptive or adaptive:LEAST")]
    Name(String),
    /// No such size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// A pulse of nothing.
    #[error("a pulse has at least 64 bytes")]
    Small,
}

impl FromStr for PulsePolicy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<PulsePolicy, BadPolicy> {
        let policy = match text.split_once(':') {
            None if text == "sf" => Policy::StoreForward,
            None if text == "adaptive" => AdapterShape::default().policy,
            Some(("fixed", size)) => Policy::FixedAll { size: pulse(size)? },
            Some(("adaptive", least)) => Policy::adaptive(pulse(least)?),
            _ => return Err(BadPolicy::Name(text.to_string())),
        };
        Ok(PulsePolicy { name: text.to_string(), policy })
    }
}

fn pulse(text: &str) -> Result<usize, BadPolicy> {
    let Size(bytes) = text.parse()?;
    if bytes < 64 { Err(BadPolicy::Small) } else { Ok(bytes as usize) }
}

impl PulsePolicy {
    pub(crate) fn shape(&self, log: usize) -> AdapterShape {
        AdapterShape { policy: self.policy, log, ..AdapterShape::default() }
    }
}
