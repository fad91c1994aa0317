//! Values of flags that several commands have.

use clap::ValueEnum;
use live::wait::WaitPolicy;

/// How a node waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// Spin a little, then sleep; tuned from what it measures
    Adaptive,
    /// Never sleep
    Spin,
    /// Sleep at once
    Block,
}

impl From<Wait> for WaitPolicy {
    fn from(wait: Wait) -> WaitPolicy {
        match wait {
            Wait::Adaptive => WaitPolicy::Adaptive,
            Wait::Spin => WaitPolicy::Spin,
            Wait::Block => WaitPolicy::Block,
        }
    }
}
