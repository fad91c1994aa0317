//! Messages between managers on [`wire::Channel::MANAGERS`]. A request may be retransmitted; one that would undo
//! something if it came late is executed once.

use super::Row;
use crate::foreign::{Part, Want};
use crate::holds::Tx;
use crate::record::{Retired, Switching};
use wire::field::{Field, Output, fields};
use wire::{Decoder, NodeId, Short, Sites};

/// Operations, as their numbers on the wire.
pub(crate) mod op {
    /// Holds files for an operation, and tells what is asked of them.
    pub const FETCH: u16 = 1;
    /// Keeps what is to change, on stable storage.
    pub const PREPARE: u16 = 2;
    /// Makes the changes that were prepared; they are on stable storage later.
    pub const FINISH: u16 = 3;
    /// Forgets them, and holds nothing any more.
    pub const ABORT: u16 = 4;
    /// Tells what became of an operation.
    pub const DECISION: u16 = 5;
    /// Takes records of a site that is on its way.
    pub const IMPORT: u16 = 6;
    /// The site is the receiver's from now on.
    pub const TAKE: u16 = 7;
    /// Tells where sites are and where new directories go ([`super::Known`]), and is told.
    pub const TABLE: u16 = 8;
    /// Gives nothing to the sender any more, which is taken out.
    pub const REFUSE: u16 = 9;
    /// Whether the records fetched are held yet, and on stable storage.
    pub const STAY: u16 = 10;
    /// Makes the changes of several operations, on stable storage.
    pub const SETTLE: u16 = 11;
    /// Tells where sites are, by a manager's store ([`super::Owners`]): also before it serves.
    pub const SITES: u16 = 12;

    /// Whether the operation with this number may be executed twice.
    pub fn is_pure(op: u16) -> bool {
        !matches!(op, IMPORT | TAKE)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub tx: Tx,
    /// The client of the operation.
    pub client: u64,
    pub wants: Vec<Want>,
}
fields!(Fetch { tx, client, wants });

#[derive(Clone, Debug)]
pub(crate) struct Prepare {
    pub tx: Tx,
    pub part: Part,
}
fields!(Prepare { tx, part });

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is given up, or was never heard of.
    Aborted,
    /// It is made, on stable storage.
    Committed,
    /// That is not known yet.
    Pending,
}

impl<'a> Field<'a> for Decision {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(Decision::Aborted),
            1 => Ok(Decision::Committed),
            2 => Ok(Decision::Pending),
            _ => Err(Short),
        }
    }
}

/// Records of a site that is on its way to its next owner.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    pub site: u8,
    /// The epoch that it gets with the next owner.
    pub epoch: u32,
    /// Drawn for each attempt to hand the site over.
    pub attempt: u64,
    /// Records of an earlier attempt do not count.
    pub first: bool,
    /// Records; none is the end.
    pub rows: Vec<Row>,
}
fields!(Import { site, epoch, attempt, first, rows });

/// How long a client was not heard of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub client: u64,
    pub millis: u32,
    /// It may have something of the site open or locked: it says so again.
    pub holds: bool,
}
fields!(Silence { client, millis, holds });

/// A site gets its next owner.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub site: u8,
    pub epoch: u32,
    /// Clients of the last owner.
    pub clients: Vec<Silence>,
}
fields!(Take { site, epoch, clients });

/// The volume's tables, as managers exchange them.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Where sites are.
    pub sites: Sites,
    /// Where new directories go.
    pub switching: Switching,
    /// Servers that get nothing new.
    pub retired: Retired,
}
fields!(Known { sites, switching, retired });

/// Where sites are, by a manager's store.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub sites: Sites,
    /// Sites that it has given and has the records of: their next owner is told that it is.
    pub open: Vec<u8>,
    /// The lineage of its store.
    pub lineage: u16,
}
fields!(Owners { sites, open, lineage });

/// A manager is taken out.
#[derive(Clone, Debug)]
pub(crate) struct Refuse {
    pub manager: NodeId,
    /// A view of the members in which it is retired.
    pub view: u64,
    /// Where sites are, as far as it knows.
    pub sites: Sites,
}
fields!(Refuse { manager, view, sites });
