//! Weak cache consistency (RFC 1813 section 2.6): what a change did to attributes that others may have cached.

use crate::protocol::Operation;
use crate::transaction::Transaction;
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Attr, CallId, Errno, FileId, Wall, Wcc};

/// Attributes that a [client](crate::Client::with_wcc) collects, the ctime that the file must have, and the call that
/// the operation is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector {
    pub guard: Option<Wall>,
    pub call: Option<CallId>,
    pub changed: Rc<RefCell<Vec<Wcc>>>,
}

impl Collector {
    /// A directory was looked at. Of a hashed one, other managers are to be asked.
    pub fn saw(&self, directory: Option<Attr>) {
        let seen = directory.map(|after| Wcc { before: None, after });
        self.changed.replace(seen.into_iter().collect());
    }
}

/// The result of an operation, with the attributes around it.
pub(crate) type Around<T> = (Vec<Wcc>, T);

impl Transaction<'_> {
    /// Runs an operation, and says what it changed; nothing where a hashed directory is among it, of which others know
    /// the rest. EBADE: the file's ctime is not `guard`.
    pub(crate) fn with_wcc<T>(
        &mut self,
        operation: &Operation<'_>,
        guard: Option<Wall>,
        run: impl FnOnce(&mut Self, &Operation<'_>) -> Result<T, Errno>,
    ) -> Result<Around<T>, Errno> {
        let files = operation.changed();
        if files.is_empty() {
            return Err(Errno::EPROTO);
        }
        if let Some(guard) = guard
            && self.merged_attributes(files[0])?.ctime != guard
        {
            return Err(Errno::EBADE);
        }
        if files.iter().any(|file| self.is_elsewhere(*file)) {
            return Ok((Vec::new(), run(self, operation)?));
        }
        let before = self.attributes(&files)?;
        let outcome = run(self, operation)?;
        let after = self.attributes(&files)?;
        let changed = before.into_iter().zip(after).map(|((before, is_known), (after, _))| Wcc {
            before: is_known.then_some(before),
            after,
        });
        Ok((changed.collect(), outcome))
    }

    /// The attributes of each, and whether they are all that there is to know of it.
    fn attributes(&self, files: &[FileId]) -> Result<Vec<(Attr, bool)>, Errno> {
        let all = files.iter().map(|file| {
            let entry = self.get_attr(*file)?;
            Ok((entry.attr, !entry.is_hint() && !self.opens.is_written(*file)))
        });
        all.collect()
    }
}
