//! Hashed directories: their names are spread over all sites, each at the site of its hash, and so are the files that
//! are made in them.
//!
//! Each site has a *bucket* of such a directory: a record of the directory's own form, with its permissions and policy,
//! and with times, links and entries of the names at this site. So an operation on a name needs one site. The
//! directory's own record stays where it was; its attributes are the sum over all buckets, and a change of them, or its
//! removal, changes all buckets in one operation.

use crate::hash::site_of_name;
use crate::hashing::SiteSet;
use crate::keys::{self, BucketId};
use crate::lookup::Entry;
use crate::permissions::Who;
use crate::protocol::Operation;
use crate::record::Inode;
use crate::transaction::{CallName, Transaction};
use wire::field::fields;
use wire::{Attr, Errno, FileId, SITES};

/// The directory is hashed: the request belongs to the site of the name.
pub const HASHED: Errno = Errno::ENOTUNIQ;

/// A part of the hashed directory was lost with the store of its manager, and so were the names in it.
pub const LOST: Errno = Errno::ENOTRECOVERABLE;

/// A manager's share of a hashed directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// The sites whose buckets it has.
    pub sites: SiteSet,
    /// Its other sites.
    pub lacking: SiteSet,
    /// The latest times of these, and the sum of their links and changes.
    pub sum: Attr,
    /// The directory's own record, and whether that is one of a hashed directory.
    pub own: Option<Entry>,
    pub is_hashed: bool,
}
fields!(Share { sites, lacking, sum, own, is_hashed });

impl Share {
    fn add(&mut self, site: u8, attr: &Attr) {
        self.sites.insert(site);
        self.sum = merged(self.sum, attr);
    }

    /// Takes what another manager has. Whether it has nothing that this has: a site may have moved in between.
    pub fn merge(&mut self, other: &Share) -> bool {
        let are_others =
            other.sites.iter().chain(other.lacking.iter()).all(|site| !self.tells(site));
        self.sites.extend(other.sites);
        self.lacking.extend(other.lacking);
        self.sum = merged(self.sum, &other.sum);
        self.own = self.own.or(other.own);
        self.is_hashed |= other.is_hashed;
        are_others
    }

    /// Whether it is known what the site has.
    fn tells(&self, site: u8) -> bool {
        self.sites.contains(site) || self.lacking.contains(site)
    }

    /// Whether that is known of all sites, and the directory's own record is there.
    pub fn tells_all(&self) -> bool {
        self.own.is_some() && (0..=u8::MAX).all(|site| self.tells(site))
    }

    /// The directory, if nothing of it is missing.
    pub fn entry(&self) -> Option<Entry> {
        let all = self.sites.iter().count() == SITES;
        let own = self.own.filter(|_| all)?;
        Some(Entry { attr: merged(own.attr, &self.sum), ..own })
    }
}

fn merged(attr: Attr, other: &Attr) -> Attr {
    Attr {
        mtime: attr.mtime.max(other.mtime),
        ctime: attr.ctime.max(other.ctime),
        links: attr.links + other.links,
        change: attr.change + other.change,
        ..attr
    }
}

impl Transaction<'_> {
    /// The directory as far as it concerns this name: its record, or the bucket of the name. ESTALE when it is gone.
    pub(crate) fn directory_of(&self, parent: FileId, name: &[u8]) -> Result<Inode, Errno> {
        let place = BucketId { directory: parent, site: site_of_name(parent, name) };
        if self.hashed.has(parent) {
            return self.bucket(place);
        }
        let inode = self.inode(parent)?;
        match inode.directory() {
            Some(directory) if directory.is_hashed => self.find_bucket(place)?.ok_or(LOST),
            _ => Ok(inode),
        }
    }

    /// Where the name is.
    pub(crate) fn place_of(&self, parent: FileId, name: &[u8]) -> BucketId {
        match self.hashed.has(parent) {
            true => BucketId { directory: parent, site: site_of_name(parent, name) },
            false => parent.into(),
        }
    }

    /// ENOTUNIQ for a request that belongs to the site of its name, or to every manager; ESTALE for one that came to
    /// the site of its name when the directory is gone.
    pub(crate) fn check_route(
        &self,
        operation: &Operation<'_>,
        call: CallName,
    ) -> Result<(), Errno> {
        let Some(directory) = operation.spread() else { return Ok(()) };
        let is_by_name = call.site != directory.site();
        if !self.hashed.has(directory) {
            let place = BucketId { directory, site: call.site };
            return if is_by_name { self.bucket(place).map(drop) } else { Ok(()) };
        }
        let is_of_all = matches!(operation, Operation::GetAttr { .. }) && !self.sites.is_alone();
        let is_elsewhere = operation.site(true) != Some(call.site);
        if is_of_all || is_elsewhere { Err(HASHED) } else { Ok(()) }
    }

    /// ESTALE where nothing of the directory is known here: it may be gone.
    pub(crate) fn bucket(&self, place: BucketId) -> Result<Inode, Errno> {
        let why = || if self.hashed.has(place.directory) { LOST } else { Errno::ESTALE };
        self.find_bucket(place)?.ok_or_else(why)
    }

    fn find_bucket(&self, place: BucketId) -> Result<Option<Inode>, Errno> {
        let Some(mut inode): Option<Inode> = self.record(&keys::bucket(place))? else {
            return Ok(None);
        };
        inode.directory_mut().ok_or(Errno::EIO)?.bucket = Some(place.site);
        Ok(Some(inode))
    }

    /// The bucket of each site, if it has one; of what is at others all is asked for at once, and held.
    fn find_buckets(&self, directory: FileId) -> Result<Vec<(u8, Option<Inode>)>, Errno> {
        let find = |site| Ok((site, self.find_bucket(BucketId { directory, site })?));
        let all: Vec<Result<_, Errno>> = (0..=u8::MAX).map(find).collect();
        all.into_iter().collect()
    }

    /// All buckets of a hashed directory, by their sites.
    pub(crate) fn buckets(&self, directory: FileId) -> Result<Vec<Inode>, Errno> {
        let all = self.find_buckets(directory)?.into_iter();
        all.map(|(_, bucket)| bucket.ok_or(LOST)).collect()
    }

    /// How many names a directory has. Those of a lost part are lost.
    pub(crate) fn entries(&self, inode: &Inode) -> Result<u64, Errno> {
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        if !directory.is_hashed {
            return Ok(directory.entries);
        }
        let buckets = self.find_buckets(inode.attr.file)?.into_iter();
        let entries = buckets.filter_map(|(_, bucket)| Some(bucket?.directory()?.entries));
        Ok(entries.sum())
    }

    /// The names of an empty directory are at the sites of their hashes from now on. Its owner may. ENOTEMPTY for one
    /// that has names.
    pub fn hash_directory(&mut self, who: &Who<'_>, file: FileId) -> Result<(), Errno> {
        let mut inode = self.inode(file)?;
        who.check_owner(&inode.attr)?;
        if inode.attr.import().is_some() {
            return Err(Errno::EINVAL); // its names are the origin's
        }
        let directory = inode.directory_mut().ok_or(Errno::ENOTDIR)?;
        match directory {
            directory if directory.is_hashed => return Ok(()),
            directory if directory.entries > 0 => return Err(Errno::ENOTEMPTY),
            directory => directory.is_hashed = true,
        }
        inode.touch(self.now);
        self.put_inode(&inode);
        self.make_buckets(inode)
    }

    /// Makes parts of a hashed directory that are lost anew, without names. Its owner may.
    pub fn mend_hashed(&mut self, who: &Who<'_>, file: FileId) -> Result<(), Errno> {
        let inode = self.inode(file)?;
        who.check_owner(&inode.attr)?;
        match inode.directory() {
            Some(directory) if directory.is_hashed => self.make_buckets(inode),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes the buckets that there are not: there may be some where its own manager is one that lost its names.
    fn make_buckets(&mut self, inode: Inode) -> Result<(), Errno> {
        let found = self.find_buckets(inode.attr.file)?;
        let mut bucket = inode;
        (bucket.attr.links, bucket.attr.change) = (0, 0);
        for (site, _) in found.iter().filter(|(_, found)| found.is_none()) {
            bucket.directory_mut().ok_or(Errno::ENOTDIR)?.bucket = Some(*site);
            self.put_inode(&bucket);
        }
        Ok(())
    }

    /// Changes the record of a file, and the buckets of a hashed directory; what users see of it then.
    pub(crate) fn change_everywhere(
        &mut self,
        mut inode: Inode,
        change: impl Fn(&mut Inode),
    ) -> Result<Entry, Errno> {
        let mut share = Share::default();
        if inode.directory().is_some_and(|directory| directory.is_hashed) {
            for mut bucket in self.buckets(inode.attr.file)? {
                change(&mut bucket);
                share.sum = merged(share.sum, &bucket.attr);
                self.put_inode(&bucket);
            }
        }
        change(&mut inode);
        inode.touch(self.now);
        self.put_inode(&inode);
        let entry = self.entry_of(&inode);
        Ok(Entry { attr: merged(entry.attr, &share.sum), ..entry })
    }

    /// The buckets of a directory that goes go with it. It is empty.
    pub(crate) fn forget_buckets(&mut self, inode: &Inode) {
        if inode.directory().is_some_and(|directory| directory.is_hashed) {
            let directory = inode.attr.file;
            (0..=u8::MAX).for_each(|site| self.delete(keys::bucket(BucketId { directory, site })));
        }
    }

    /// Whether it is a hashed directory of which others have a part.
    pub(crate) fn is_elsewhere(&self, file: FileId) -> bool {
        self.hashed.has(file) && !self.sites.is_alone()
    }

    /// The attributes of a file or a directory, whatever others are to be asked for.
    pub(crate) fn merged_attributes(&self, file: FileId) -> Result<Attr, Errno> {
        let inode = self.inode(file)?;
        if !inode.directory().is_some_and(|directory| directory.is_hashed) {
            return Ok(inode.attr);
        }
        let buckets = self.buckets(file)?;
        Ok(buckets.iter().fold(inode.attr, |attr, bucket| merged(attr, &bucket.attr)))
    }

    /// This manager's share of a hashed directory.
    pub(crate) fn share(&self, file: FileId) -> Result<Share, Errno> {
        let mut share = Share::default();
        if self.sites.has(file) {
            let inode = self.inode(file)?;
            share.is_hashed = inode.directory().is_some_and(|directory| directory.is_hashed);
            share.own = Some(self.entry_of(&inode));
        }
        for site in (0..=u8::MAX).filter(|site| self.sites.owns(*site)) {
            match self.find_bucket(BucketId { directory: file, site })? {
                Some(bucket) => share.add(site, &bucket.attr),
                None => drop(share.lacking.insert(site)),
            }
        }
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_all_sites_is_the_directory_and_none_is_counted_twice() {
        let own = Entry { attr: Attr { links: 2, ..Attr::default() }, ..Entry::default() };
        let (mut all, mut half) = (Share { own: Some(own), ..Share::default() }, Share::default());
        for site in 0..=u8::MAX {
            let attr = Attr { links: 1, change: u64::from(site), ..Attr::default() };
            if site % 2 == 0 { all.add(site, &attr) } else { half.add(site, &attr) }
        }
        assert_eq!(all.entry(), None);
        assert!(!all.tells_all());
        assert!(all.merge(&half) && all.tells_all());
        assert_eq!(all.entry().map(|entry| entry.attr.links), Some(2 + 256));
        assert_eq!(all.entry().map(|entry| entry.attr.change), Some(255 * 128));
        assert!(!all.merge(&half));
        let mut lacking = Share::default();
        assert!(lacking.lacking.insert(7) && !all.merge(&lacking), "it is known of each site once");
    }
}
