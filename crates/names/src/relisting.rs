//! Listings that clients have already, as the manager answers them.

use crate::directory::{Listing, Plus};
use crate::keys;
use crate::listings::{Basis, Part};
use crate::manager::Manager;
use crate::permissions::{READ, Who};
use crate::transaction::Transaction;
use node::Bug;
use std::collections::BTreeMap;
use wire::{Errno, ListingVersion};

impl Manager {
    /// What all listings depend on now.
    pub(crate) fn listing_basis(&self) -> Basis {
        Basis { sequence: self.store.sequence(), sites: self.sites.version() }
    }

    /// These records are about to change.
    pub(crate) fn note_listed(&mut self, writes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        if !self.bugs.has(Bug::ListingKept) {
            let files = writes.keys().filter_map(|key| keys::subject(key));
            files.for_each(|file| self.listings.note(file));
        }
    }

    /// The part of a directory, or that it is as of `known`. `namer` makes versions of this incarnation of numbers.
    pub(crate) fn list(
        &self,
        transaction: &Transaction<'_>,
        who: &Who<'_>,
        part: Part,
        known: Option<ListingVersion>,
        namer: impl Fn(u64) -> ListingVersion,
    ) -> Result<Listing, Errno> {
        // What an operation over several managers holds may have changed already, as others see it.
        let is_free = self.holds.is_empty() && !self.hashed.has(part.file);
        let now = self.listing_basis();
        let holds = |version: &ListingVersion| {
            *version == namer(version.number) && self.listings.holds(now, version.number, part)
        };
        if let Some(version) = known.filter(|version| is_free && holds(version)) {
            let directory = transaction.inode(part.file)?;
            who.check(&directory.attr, READ)?;
            return Ok(Listing { version: Some(version), is_known: true, ..Listing::default() });
        }
        let (bytes, plus) = (part.bytes as usize, part.plus);
        let listing = transaction.read_directory(who, part.file, part.span, bytes, plus)?;
        // Attributes of what a client has open differ for others.
        let is_same_for_all = || {
            let mut files = listing.entries.iter().map(|listed| listed.file);
            plus == Plus::Nothing || files.all(|file| !self.opens.is_held(file))
        };
        let version = (is_free && is_same_for_all()).then(|| {
            let files = listing.entries.iter().map(|listed| listed.file);
            namer(self.listings.add(now, part, files))
        });
        Ok(Listing { version, ..listing })
    }
}
