//! Files of imports: their importer makes all changes, after their origin, and to everybody else they are read only.

use crate::permissions::WRITE;
use crate::protocol::Operation;
use crate::transaction::Transaction;
use wire::{Errno, FileId};

impl Operation<'_> {
    /// The files and directories that only their importer may change by it, if they are of an import. Locks, opens for
    /// reading and what administrators do are everybody's.
    fn import_changes(&self) -> Vec<FileId> {
        use Operation::*;
        match self.plain() {
            SetXattr { file, .. } | RemoveXattr { file, .. } => vec![*file],
            CreateUnnamed { parent, .. } => vec![*parent],
            Open { file, mask, .. } | OpenNamed { file, mask, .. } if mask & WRITE != 0 => {
                vec![*file]
            }
            operation => operation.changed(),
        }
    }
}

impl Transaction<'_> {
    /// EROFS where the operation changes a file of an import. Clients know and do not ask: this one may be too old.
    pub(crate) fn check_imports(&self, operation: &Operation<'_>) -> Result<(), Errno> {
        if !self.volume.has_imports() {
            return Ok(());
        }
        for file in operation.import_changes() {
            let is_own = self.sites.has(file);
            let inode = if is_own { self.inode(file).ok() } else { None };
            if inode.is_some_and(|inode| inode.attr.import().is_some()) {
                return Err(Errno::EROFS);
            }
        }
        Ok(())
    }
}
