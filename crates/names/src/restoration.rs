//! State of the files of a restored volume, and the number not compared with their objects yet.

use wire::field::{Field, Output, fields};
use wire::{Decoder, Short};

/// State of a file of a restored volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Restored {
    /// It was not compared with its objects yet.
    Due = 0,
    /// Objects that it had are nowhere: opening it is an error.
    Lost = 1,
    /// As [`Due`](Restored::Due), of a file that was open for writing: what its record says of its size and storage is
    /// a hint, so a file without objects may have had some.
    Open = 2,
    /// As [`Lost`](Restored::Lost), of one that was open for writing.
    OpenLost = 3,
}

impl Restored {
    /// Whether it is still to be compared.
    pub fn is_due(self) -> bool {
        matches!(self, Restored::Due | Restored::Open)
    }

    /// Whether the file was open for writing.
    pub fn was_open(self) -> bool {
        matches!(self, Restored::Open | Restored::OpenLost)
    }

    /// The same file, whose objects are nowhere.
    pub(crate) fn lost(self) -> Restored {
        if self.was_open() { Restored::OpenLost } else { Restored::Lost }
    }
}

impl<'a> Field<'a> for Restored {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(Restored::Due),
            1 => Ok(Restored::Lost),
            2 => Ok(Restored::Open),
            3 => Ok(Restored::OpenLost),
            _ => Err(Short),
        }
    }
}

/// Files of a restored volume that are not as any other yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restoration {
    /// They were not compared with their objects so far.
    pub due: u64,
    /// Objects that they had are nowhere.
    pub lost: u64,
}
fields!(Restoration { due, lost });

impl Restoration {
    /// Number of files.
    pub fn files(&self) -> u64 {
        self.due + self.lost
    }

    /// The row of a file changes.
    pub(crate) fn change(&mut self, before: Option<Restored>, now: Option<Restored>) {
        if let Some(before) = before {
            let count = self.of(before);
            *count = count.checked_sub(1).expect("a row that was counted");
        }
        if let Some(now) = now {
            *self.of(now) += 1;
        }
    }

    fn of(&mut self, row: Restored) -> &mut u64 {
        match row {
            Restored::Due | Restored::Open => &mut self.due,
            Restored::Lost | Restored::OpenLost => &mut self.lost,
        }
    }
}
