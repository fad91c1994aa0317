//! Objects that no file claims, left by a client's death between two steps, or by a move that was given up.
//!
//! They are set aside for a day before they are removed; a day in which there was a manager, by its own running and no
//! clock that may be set. An object is never touched while the store is older than it is: a store that was brought back
//! from a copy does not know the files made since. Their numbers are above all that it gave out, or among those that it
//! passed over when it started. And while there are such objects nothing is purged by its age: other objects of the
//! servers may be newer than the store too, as a column is that moved since. An object that was put back by hand is
//! left alone until it is dropped by hand.

use crate::keys::{self, Table};
use crate::limits::{CHANGES_MAX, QUARANTINE_SECONDS};
use crate::permissions::Who;
use crate::record::{Site, Volume};
use crate::transaction::{Effect, Transaction};
use node::Bug;
use stripe::Kept;
use wire::field::{Field, Output, encoded, fields};
use wire::{Decoder, Errno, FileId, Home, NodeId, ObjectId, Short};

/// Why no file has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unclaimed {
    /// The file is gone.
    FileGone = 0,
    /// The file has this column elsewhere.
    Elsewhere = 1,
}

/// The name space's decision on an object of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A file has it, or it is being removed or moved, or it was put back by hand.
    Claimed,
    /// Its file is of a site that is another manager's.
    Elsewhere,
    /// It may belong to a file that this store does not know yet.
    Younger,
    /// No file has it, and none will.
    Unclaimed(Unclaimed),
}

impl<'a> Field<'a> for Unclaimed {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(Unclaimed::FileGone),
            1 => Ok(Unclaimed::Elsewhere),
            _ => Err(Short),
        }
    }
}

/// The record of an object in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    since: u64,
    uptime: u64,
    bytes: u64,
    why: Unclaimed,
    restored: bool,
}
fields!(Note { since, uptime, bytes, why, restored });

/// An object in quarantine, or one that was put back from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The disk it is on.
    pub home: Home,
    /// The file it was a part of.
    pub file: FileId,
    /// Its column of the file.
    pub column: u16,
    /// When it was set aside, in seconds since 1970.
    pub since: u64,
    /// For how many seconds the volume had had a manager then.
    pub uptime: u64,
    /// Its length.
    pub bytes: u64,
    /// Why.
    pub why: Unclaimed,
    /// Whether it was put back: an object again, which is not set aside any more.
    pub restored: bool,
}
fields!(Aside { home, file, column, since, uptime, bytes, why, restored });

impl Aside {
    /// The object, on its server.
    pub(crate) fn kept(&self, volume: wire::VolumeId) -> Kept {
        let object = ObjectId { volume, file: self.file, column: self.column };
        Kept { object, disk: self.home.disk }
    }

    fn key(&self) -> Vec<u8> {
        keys::quarantined(self.home, self.file, self.column)
    }
}

/// One of them, and who asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The caller.
    pub who: &'a Who<'a>,
    /// The disk it is on.
    pub home: Home,
    /// The file it was a part of.
    pub file: FileId,
    /// Its column of the file.
    pub column: u16,
}

impl Transaction<'_> {
    /// The name space's decision on an object of `server`.
    pub fn standing(&self, server: NodeId, kept: Kept) -> Result<Standing, Errno> {
        let Kept { object, disk } = kept;
        let (file, home) = (object.file, Home { server, disk });
        if object.volume != self.volume.volume {
            return Ok(Standing::Younger);
        }
        if !self.sites.has(file) {
            return Ok(Standing::Elsewhere);
        }
        let (claimed, why) = match self.inode(file) {
            Err(Errno::ESTALE) => (self.removed(file)?.is_some(), Unclaimed::FileGone),
            inode => {
                let claimed = inode?.regular().is_some_and(|regular| {
                    let moving = regular.fence > regular.layout.epoch;
                    let column = usize::from(object.column);
                    moving || regular.layout.homes().nth(column) == Some(home)
                });
                (claimed, Unclaimed::Elsewhere)
            }
        };
        let note = self.get(&keys::quarantined(home, file, object.column))?;
        let note: Option<Note> = note.map(|note| Self::decoded(&note)).transpose()?;
        if claimed || note.is_some_and(|note| note.restored) {
            return Ok(Standing::Claimed);
        }
        let site: Option<Site> =
            self.get(&keys::site(file.site()))?.map(|site| Self::decoded(&site)).transpose()?;
        let known = site.is_some_and(|site| file.serial() <= site.serial);
        let known = known && !self.passed_over(file)?;
        let known = known || self.bugs.has(Bug::QuarantineHasty);
        Ok(if known { Standing::Unclaimed(why) } else { Standing::Younger })
    }

    /// Whether this store passed over the file's number, so that only another copy of it can have given it out, or one
    /// incarnation of it that a power cut took back.
    pub(crate) fn passed_over(&self, file: FileId) -> Result<bool, Errno> {
        let before = keys::passed(file.site(), file.serial() - 1);
        let next = self.scan(&keys::table(file.site(), Table::Passed), Some(&before), 1)?;
        let Some((_, last)) = next.first() else { return Ok(false) };
        let last: u64 = Self::decoded(last)?;
        Ok(last < file.serial())
    }

    /// Declares all objects passed over until now rests of a power cut: they are set aside from now on. Root's. At most
    /// [`CHANGES_MAX`] at once; says whether that was all.
    pub fn own_all(&mut self, who: &Who<'_>) -> Result<bool, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        for site in 0..=u8::MAX {
            let found = self.scan(&keys::table(site, Table::Passed), None, CHANGES_MAX)?;
            if !found.is_empty() {
                found.into_iter().for_each(|(key, _)| self.delete(key));
                return Ok(false);
            }
        }
        if self.volume.frozen || self.volume.outbids {
            let thawed = Volume { frozen: false, outbids: false, ..*self.volume };
            self.put(keys::volume(), encoded(&thawed));
            self.effect(Effect::Thawed);
        }
        Ok(true)
    }

    /// The object is being set aside now; how long it is comes later.
    pub fn note_quarantined(
        &mut self,
        server: NodeId,
        kept: Kept,
        why: Unclaimed,
        uptime: u64,
    ) -> Aside {
        let (file, column) = (kept.object.file, kept.object.column);
        let home = Home { server, disk: kept.disk };
        let since = self.now.seconds as u64;
        let aside = Aside { home, file, column, since, uptime, bytes: 0, why, restored: false };
        self.note_aside(&aside);
        aside
    }

    /// Writes down what is known of it.
    pub fn note_aside(&mut self, aside: &Aside) {
        let Aside { since, uptime, bytes, why, restored, .. } = *aside;
        self.put(aside.key(), encoded(&Note { since, uptime, bytes, why, restored }));
    }

    /// Objects in quarantine, and those put back, at most `count` after this one. Root's.
    pub fn quarantined(
        &self,
        who: &Who<'_>,
        after: Option<(Home, FileId, u16)>,
        count: usize,
    ) -> Result<Vec<Aside>, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let after = after.map(|(home, file, column)| keys::quarantined(home, file, column));
        let prefix = keys::table(0, Table::Quarantine);
        let found = self.scan(&prefix, after.as_deref(), count)?;
        found.iter().map(|(key, value)| aside_of(key, value)).collect()
    }

    /// One of them; ENOENT when there is none. Root's.
    pub fn aside(&self, wanted: &Wanted<'_>) -> Result<Aside, Errno> {
        if !wanted.who.is_root() {
            return Err(Errno::EPERM);
        }
        let key = keys::quarantined(wanted.home, wanted.file, wanted.column);
        aside_of(&key, &self.get(&key)?.ok_or(Errno::ENOENT)?)
    }

    /// The record of an object on `server`.
    pub fn noted(&self, server: NodeId, kept: Kept) -> Result<Option<Aside>, Errno> {
        let home = Home { server, disk: kept.disk };
        let key = keys::quarantined(home, kept.object.file, kept.object.column);
        self.get(&key)?.map(|note| aside_of(&key, &note)).transpose()
    }

    /// Objects that were set aside a day of running or longer ago, at most [`CHANGES_MAX`].
    pub fn quarantine_due(&self, uptime: u64) -> Result<Vec<Aside>, Errno> {
        let all = self.quarantined(&Who::ROOT, None, usize::MAX)?;
        let due = |aside: &Aside| !aside.restored && aside.uptime + QUARANTINE_SECONDS <= uptime;
        Ok(all.into_iter().filter(due).take(CHANGES_MAX).collect())
    }

    /// The object was removed for good, or not set aside.
    pub fn note_purged(&mut self, aside: &Aside) {
        self.delete(aside.key());
    }
}

/// The record of an object, at another manager: its day begins anew, as each manager counts its own running.
pub(crate) fn begun_anew(value: &[u8], uptime: u64) -> Result<Vec<u8>, Errno> {
    Ok(encoded(&Note { uptime, ..Transaction::decoded(value)? }))
}

fn aside_of(key: &[u8], value: &[u8]) -> Result<Aside, Errno> {
    let (home, file, column) = keys::quarantined_of(key).ok_or(Errno::EIO)?;
    let Note { since, uptime, bytes, why, restored } = Transaction::decoded(value)?;
    Ok(Aside { home, file, column, since, uptime, bytes, why, restored })
}
