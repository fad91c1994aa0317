//! How an incarnation of the manager begins, and which lineage of the volume its store is of.
//!
//! A store whose directory comes back as it was some time ago cannot tell so by itself: it lacks what it acknowledged
//! since, and would take the objects of those files for garbage. So the I/O servers know how far the store was
//! ([`stripe::Witness`]), and a manager begins only when it has compared. Sequences can be compared within a *lineage*:
//! a store that was restored from a backup, or that a person accepted as it is, begins a lineage above all that the
//! servers know of, and one of an earlier lineage is refused from then on. Serial numbers begin with the lineage, so
//! those of different lineages differ whatever became of the counters. An older copy of a store that goes above others
//! still says that it does; that it is a copy tells the number of the store, which a restore draws anew.

use crate::keys;
use crate::limits::{
    INCARNATIONS_MAX, LINEAGE_SHIFT, LINEAGES_MAX, SERIALS_BY_CLOCK, SERIALS_EPOCH, SERIALS_LEAP,
    SERIALS_PER_SECOND,
};
use crate::manager::{Manager, VolumeSettings};
use crate::open_error::{OpenError, damaged};
use crate::record::{Content, Directory, Incarnation, Inode, Site, Volume};
use node::Bug;
use store::{Append, Batch};
use stripe::Witness;
use wire::field::encoded;
use wire::{Attr, Errno, FileId, FileKind, NodeId, Wall};

/// A server knows of a store that is beyond this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the store of names is not the newest: node {} was told of change {} of lineage {}, which is not in this store; it \
     ends with change {} of lineage {}", .server.0, .seen.sequence, .seen.lineage, .own.sequence, .own.lineage
)]
pub struct Older {
    /// The server.
    pub server: NodeId,
    /// The state that it was told of, and when.
    pub seen: Witness,
    /// The state of this store.
    pub own: Witness,
}

/// The decision on a server's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing.
    Fits,
    /// This store was restored: it goes on as this lineage.
    Outbid(u16),
    /// This store lacks what was acknowledged, and is not to be served.
    Older,
}

impl Manager {
    /// A restored volume is as any other from now on.
    pub(crate) fn thaw(&mut self) {
        (self.volume.frozen, self.volume.outbids, self.outbids) = (false, false, false);
    }

    /// The store's state, as far as it is on stable storage.
    pub(crate) fn own_witness(&mut self, told: u64) -> Witness {
        let sequence = self.store().synced_sequence();
        let Volume { lineage, store, .. } = self.volume;
        let incarnation =
            self.incarnations.last_key_value().map_or(0, |(_, incarnation)| incarnation.id);
        Witness { lineage, sequence, store, incarnation, told }
    }

    /// Judges what a server was told of a manager's store; this one is at `own`.
    pub fn judge(&self, seen: &Witness, own: &Witness) -> Judgement {
        let is_own = seen.store == own.store;
        let fits = match (is_own, self.outbids) {
            (true, _) => self.includes(seen, own),
            (false, true) => seen.lineage < own.lineage,
            (false, false) => !seen.is_beyond(own),
        };
        match seen.lineage + 1 {
            _ if fits || seen.is_nothing() => Judgement::Fits,
            lineage if lineage < LINEAGES_MAX && self.outbids && !is_own => {
                Judgement::Outbid(lineage)
            }
            _ => Judgement::Older,
        }
    }

    /// Whether what was told of this store, or of one that went on from a copy of it, happened to this one: the
    /// incarnation that told it is one of this store, and came as far before the next one began.
    fn includes(&self, seen: &Witness, own: &Witness) -> bool {
        match self.incarnations.iter().find(|(_, incarnation)| incarnation.id == seen.incarnation) {
            Some((number, _)) => {
                let next = self.incarnations.range(number + 1..).next();
                seen.sequence <= next.map_or(own.sequence, |(_, next)| next.before)
            }
            None => {
                let oldest = self
                    .incarnations
                    .first_key_value()
                    .map_or(0, |(_, incarnation)| incarnation.before);
                self.incarnations.len() == INCARNATIONS_MAX && seen.sequence <= oldest
            }
        }
    }

    /// Whether nothing is set aside and nothing purged: the volume was restored, until a person says go.
    pub(crate) fn is_frozen(&self) -> bool {
        self.volume.frozen
    }

    /// Begins an incarnation: of a new volume, or behind every serial number that the last one may have given out
    /// without a sync. A power cut takes such files back, but not the objects that their writers made. And behind every
    /// one that another copy of this store, which went on by itself, has given out before now: objects of such files
    /// are known by having been passed over. `asked_all`: every server told what it knows, of which the latest is
    /// `lineage`.
    pub fn begin_incarnation(
        &mut self,
        settings: &VolumeSettings,
        now: Wall,
        incarnation: u64,
        lineage: u16,
        asked_all: bool,
    ) -> Result<Append, OpenError> {
        let mut batch = Batch::new();
        if self.is_new {
            self.format(settings, now, &mut batch);
        }
        // Sites that came from managers of later lineages have numbers of those.
        let lineage = match self.volume.store == 0 && !self.is_new {
            true => lineage.max(self.lineage_of_serials()? + 1),
            false => lineage,
        };
        self.volume.frozen |= lineage > self.volume.lineage;
        self.volume.lineage = self.volume.lineage.max(lineage);
        self.volume.outbids &= !asked_all;
        if self.volume.store == 0 {
            self.volume.store = drawn(incarnation);
        }
        self.leap(&mut batch, self.floor(incarnation))?;
        self.record_incarnation(drawn(incarnation), &mut batch);
        self.is_new = false;
        Ok(self.store().apply(batch))
    }

    /// Goes on as a later lineage.
    pub(crate) fn outbid(&mut self, lineage: u16, incarnation: u64) -> Result<Append, OpenError> {
        let mut batch = Batch::new();
        (self.volume.lineage, self.volume.frozen) = (lineage, true);
        self.leap(&mut batch, self.floor(incarnation))?;
        Ok(self.store().apply(batch))
    }

    /// From its next start on the store is as any other: what the servers know is of this one. In this incarnation it
    /// goes on above what others know that come.
    pub(crate) fn end_outbidding(&mut self) -> Append {
        let mut batch = Batch::new();
        self.volume.outbids = false;
        batch.put(&keys::volume(), &encoded(&self.volume));
        self.store().apply(batch)
    }

    /// Whether its next start goes on above what the servers know, too.
    pub(crate) fn goes_on_outbidding(&self) -> bool {
        self.volume.outbids
    }

    /// Notes that an incarnation begins, behind what the last one left; the oldest goes when there are many.
    fn record_incarnation(&mut self, id: u32, batch: &mut Batch) {
        let (number, before) = (self.incarnation() + 1, self.found);
        debug_assert_eq!(before, self.store().sequence(), "a change before the incarnation began");
        let incarnation = Incarnation { before, id };
        self.incarnations.insert(number, incarnation);
        batch.put(&keys::incarnation(number), &encoded(&incarnation));
        if self.incarnations.len() > INCARNATIONS_MAX
            && let Some((oldest, _)) = self.incarnations.pop_first()
        {
            batch.delete(&keys::incarnation(oldest));
        }
    }

    /// The serial number that an incarnation begins behind.
    fn floor(&self, incarnation: u64) -> u64 {
        let repeats = self.bugs.has(Bug::RestoredNumbersRepeat);
        floor(if repeats { 0 } else { self.volume.lineage }, incarnation)
    }

    fn leap(&mut self, batch: &mut Batch, floor: u64) -> Result<(), OpenError> {
        self.volume.base = self.volume.base.max(floor);
        batch.put(&keys::volume(), &encoded(&self.volume));
        for site in 0..=u8::MAX {
            let counters = match self.counters(site)? {
                Some(counters) => counters,
                None if self.is_new && site == 0 && self.sites.owns(0) => FIRST_SITE,
                None => continue,
            };
            if !self.sites.owns(site) {
                continue; // what is left of a site that went, or is coming
            }
            let leap = if self.is_new { 0 } else { SERIALS_LEAP };
            let serial = floor.max(counters.serial + leap);
            batch.put(&keys::site(site), &encoded(&Site { serial, ..counters }));
            if serial > counters.serial {
                batch.put(&keys::passed(site, serial), &encoded(&counters.serial));
            }
        }
        Ok(())
    }

    /// Counters of a site, also of another manager's, of which there may be some yet.
    fn counters(&self, site: u8) -> Result<Option<Site>, OpenError> {
        let key = keys::site(site);
        let counters = self.store.get(&key)?;
        counters.map(|bytes| damaged::<Site>(&key, &bytes)).transpose()
    }

    /// The latest lineage of which a site has given out numbers.
    fn lineage_of_serials(&self) -> Result<u16, OpenError> {
        let mut latest = 0;
        for site in 0..=u8::MAX {
            let serial = self.counters(site)?.map_or(0, |counters| counters.serial);
            latest = latest.max((serial >> LINEAGE_SHIFT) as u16);
        }
        Ok(latest)
    }

    /// Records by which a site's numbers go on behind what this incarnation begins behind, and behind all that were
    /// given out before its start in the lineage that they are of.
    pub(crate) fn behind_serials(
        &self,
        site: u8,
        incarnation: u64,
    ) -> Result<Vec<store::Entry>, Errno> {
        let Some(counters) = self.counters(site).map_err(|_| Errno::EIO)? else {
            return Ok(Vec::new()); // it begins behind those of this incarnation
        };
        let lineage = (counters.serial >> LINEAGE_SHIFT) as u16;
        let serial = self.volume.base.max(floor(lineage, incarnation));
        let serial = serial.max(counters.serial + SERIALS_LEAP);
        Ok(vec![
            (keys::site(site), encoded(&Site { serial, ..counters })),
            (keys::passed(site, serial), encoded(&counters.serial)),
        ])
    }

    /// A new volume: its root directory.
    fn format(&mut self, settings: &VolumeSettings, now: Wall, batch: &mut Batch) {
        if !self.sites.owns(FileId::ROOT.site()) {
            return;
        }
        let (uid, gid) = settings.owner;
        let attr = Attr {
            file: FileId::ROOT,
            kind: FileKind::Directory,
            mode: settings.mode & 0o7777,
            links: 2,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            ..Attr::default()
        };
        let root = Directory::new(FileId::ROOT, settings.policy.clone());
        let inode = Inode { attr, content: Content::Directory(root) };
        batch.put(&keys::inode(FileId::ROOT), &encoded(&inode));
    }
}

/// Counters of the site that has the root directory.
const FIRST_SITE: Site = Site { serial: FileId::ROOT.serial(), files: 1 };

/// The serial number that a start of a lineage at `incarnation` (in nanoseconds since 1970, or a small number in
/// simulations) begins behind.
pub(crate) fn floor(lineage: u16, incarnation: u64) -> u64 {
    let seconds = (incarnation / 1_000_000_000).saturating_sub(SERIALS_EPOCH);
    let clock = (seconds * SERIALS_PER_SECOND).min(SERIALS_BY_CLOCK - 1);
    u64::from(lineage) << LINEAGE_SHIFT | clock
}

/// A number, never 0, that tells this incarnation from those of copies of the store, and the store that begins with it
/// from others.
fn drawn(incarnation: u64) -> u32 {
    (incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_begin_with_the_lineage() {
        let now = 1_800_000_000_000_000_000;
        assert_eq!(floor(0, 5), 0);
        assert!(floor(0, now) < floor(1, 5) && floor(1, u64::MAX) < floor(2, 0));
        assert_eq!(floor(7, now) >> LINEAGE_SHIFT, 7);
        assert!(floor(LINEAGES_MAX - 1, u64::MAX) < 1 << 56);
    }
}
