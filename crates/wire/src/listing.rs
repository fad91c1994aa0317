//! The version of a part of a directory that a manager listed.

use crate::field::fields;
use crate::ids::NodeId;

/// Names what a manager listed for as long as that manager runs: with the same version the part is the same, names,
/// attributes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingVersion {
    /// The manager.
    pub manager: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
    /// No other part of its listings has this number.
    pub number: u64,
}
fields!(ListingVersion { manager, incarnation, number });
