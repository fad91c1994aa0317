//! Which directories are hashed, as far as a manager has something of them.

use crate::keys::{self, BucketId};
use std::collections::BTreeMap;
use wire::field::{Field, Output};
use wire::{Decoder, FileId, SITES, Short};

/// A set of sites, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteSet([u64; SITES / 64]);

impl SiteSet {
    pub const ALL: SiteSet = SiteSet([u64::MAX; SITES / 64]);

    fn bit(site: u8) -> (usize, u64) {
        (usize::from(site / 64), 1 << (site % 64))
    }

    /// Whether the site was not in it.
    pub fn insert(&mut self, site: u8) -> bool {
        let (word, bit) = SiteSet::bit(site);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Takes all of another set.
    pub fn extend(&mut self, other: SiteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(word, others)| *word |= others);
    }

    pub fn contains(&self, site: u8) -> bool {
        let (word, bit) = SiteSet::bit(site);
        self.0[word] & bit != 0
    }

    pub fn remove(&mut self, site: u8) {
        let (word, bit) = SiteSet::bit(site);
        self.0[word] &= !bit;
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; SITES / 64]
    }

    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |site| self.contains(*site))
    }
}

impl<'a> Field<'a> for SiteSet {
    fn put(&self, out: &mut impl Output) {
        self.0.iter().for_each(|word| word.put(out));
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let mut set = SiteSet::default();
        for word in &mut set.0 {
            *word = input.u64()?;
        }
        Ok(set)
    }
}

/// Hashed directories of which a manager has buckets, and at which sites.
#[derive(Debug, Default)]
pub(crate) struct Hashed(BTreeMap<FileId, SiteSet>);

impl Hashed {
    /// Whether the directory is hashed, as far as is known here.
    pub fn has(&self, directory: FileId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&directory)
    }

    /// The sites of the directory's buckets that are here.
    pub fn sites(&self, directory: FileId) -> impl Iterator<Item = u8> {
        self.0.get(&directory).copied().unwrap_or_default().iter()
    }

    /// There is such a bucket, or there is none any more.
    pub fn set(&mut self, place: BucketId, exists: bool) {
        let sites = self.0.entry(place.directory).or_default();
        match exists {
            true => drop(sites.insert(place.site)),
            false => sites.remove(place.site),
        }
        if sites.is_empty() {
            self.0.remove(&place.directory);
        }
    }

    /// Nothing of a site is here any more.
    pub fn forget(&mut self, site: u8) {
        self.0.retain(|_, sites| {
            sites.remove(site);
            !sites.is_empty()
        });
    }

    /// The prefixes of all names of a directory that are here.
    pub fn prefixes(&self, directory: FileId) -> Vec<Vec<u8>> {
        match self.has(directory) {
            false => vec![keys::names(directory.into())],
            true => {
                let places = self.sites(directory).map(|site| BucketId { directory, site });
                places.map(keys::names).collect()
            }
        }
    }

    /// Takes the changes of a batch; whether there is a bucket among them.
    pub fn note_all(&mut self, writes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> bool {
        let mut any = false;
        for (key, value) in writes {
            if let Some(place) = keys::bucket_of(key) {
                self.set(place, value.is_some());
                any |= value.is_some();
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_as_hashed_while_there_is_a_bucket() {
        let mut hashed = Hashed::default();
        let place = |site| BucketId { directory: FileId(77), site };
        hashed.set(place(3), true);
        hashed.set(place(200), true);
        assert_eq!(hashed.sites(FileId(77)).collect::<Vec<_>>(), [3, 200]);
        hashed.forget(3);
        assert!(hashed.has(FileId(77)));
        hashed.set(place(200), false);
        assert!(!hashed.has(FileId(77)) && hashed.sites(FileId(77)).next().is_none());
    }
}
