//! Messages by which the snapshots of all managers are made to be of one moment.

use wire::field::{Field, Output, fields};
use wire::{Decoder, Short, Sites};

/// What a manager does for a snapshot of all of them, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// Checkpoints, so that there is little to copy and to sync later.
    Prepare = 0,
    /// Begins no operation over several managers and no handover, and ends those that are under way.
    Quiesce = 1,
    /// Changes nothing, and has everything so far on stable storage.
    Pause = 2,
    /// Begins its snapshot.
    Take = 3,
    /// Goes on.
    Resume = 4,
}

impl<'a> Field<'a> for Step {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(Step::Prepare),
            1 => Ok(Step::Quiesce),
            2 => Ok(Step::Pause),
            3 => Ok(Step::Take),
            4 => Ok(Step::Resume),
            _ => Err(Short),
        }
    }
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stepped {
    /// No operation over several managers, and no handover, is under way here.
    pub is_quiet: bool,
    /// The snapshot, once it is taken.
    pub snapshot: u64,
    /// The last change that is in it.
    pub sequence: u64,
    /// The lineage of the store.
    pub lineage: u16,
    /// Where sites are, as far as this manager knows.
    pub sites: Sites,
}
fields!(Stepped { is_quiet, snapshot, sequence, lineage, sites });
