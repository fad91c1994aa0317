//! Objects that no file claims: what a client's death between two steps, or a move that was given up, leaves.
//!
//! They are set aside for a day before they are removed. An object is never touched while the store is older than it
//! is: a store that was restored from a copy does not know the files made since, whose numbers are above all it gave
//! out.

use crate::field::encoded;
use crate::keys::{self, Table};
use crate::limits::{CHANGES_MAX, QUARANTINE_SECONDS};
use crate::record::Site;
use crate::transaction::Transaction;
use node::Bug;
use wire::{Errno, NodeId, ObjectId};

/// What the name space says of an object on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A file has it, or it is being removed or moved.
    Claimed,
    /// It may belong to a file that this store does not know yet.
    Younger,
    /// No file has it, and none will.
    Unclaimed,
}

impl Transaction<'_> {
    /// What the name space says of `object` on `server`.
    pub fn standing(&self, server: NodeId, object: ObjectId) -> Result<Standing, Errno> {
        let file = object.file;
        if object.volume != self.volume.volume {
            return Ok(Standing::Younger);
        }
        let claimed = match self.inode(file) {
            Err(Errno::ESTALE) => self.removed(file)?.is_some(),
            inode => inode?.regular().is_some_and(|regular| {
                let column = usize::from(object.column);
                let moving = regular.fence > regular.layout.epoch;
                moving || regular.layout.servers().get(column) == Some(&server)
            }),
        };
        if claimed {
            return Ok(Standing::Claimed);
        }
        let site: Option<Site> =
            self.get(&keys::site(file.site()))?.map(|site| Self::decoded(&site)).transpose()?;
        let known = site.is_some_and(|site| file.serial() <= site.serial);
        let known = known || self.bugs.has(Bug::QuarantineHasty);
        Ok(if known { Standing::Unclaimed } else { Standing::Younger })
    }

    /// The object was set aside now.
    pub fn note_quarantined(&mut self, server: NodeId, object: ObjectId) {
        let since = encoded(&(self.now.seconds as u64));
        self.put(keys::quarantined(server, object), since);
    }

    /// Objects that were set aside a day before `seconds` (since 1970) or earlier, at most [`CHANGES_MAX`].
    pub fn quarantine_due(&self, seconds: i64) -> Result<Vec<(NodeId, ObjectId)>, Errno> {
        let mut due = Vec::new();
        for (key, value) in self.scan(&keys::table(0, Table::Quarantine), None, usize::MAX)? {
            let since: u64 = Self::decoded(&value)?;
            let (server, file, column) = keys::quarantined_of(&key).ok_or(Errno::EIO)?;
            let object = ObjectId { volume: self.volume.volume, file, column };
            if since as i64 + QUARANTINE_SECONDS <= seconds && due.len() < CHANGES_MAX {
                due.push((server, object));
            }
        }
        Ok(due)
    }

    /// The object was removed for good.
    pub fn note_purged(&mut self, server: NodeId, object: ObjectId) {
        self.delete(keys::quarantined(server, object));
    }
}
