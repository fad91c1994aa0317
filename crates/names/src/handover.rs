//! Sites that come from another manager or go to one, as the store and the memory of a manager have them.

use crate::clients::Heard;
use crate::keys::{self, Table};
use crate::limits::CHANGES_MAX;
use crate::lineage::floor;
use crate::manager::Manager;
use crate::open_error::{OpenError, damaged};
use crate::protocol::Row;
use crate::protocol::managers::Silence;
use crate::quarantine::begun_anew;
use crate::record::{Handed, Inode};
use crate::restoration::Restored;
use crate::transaction::Transaction;
use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;
use store::{Append, Batch};
use wire::field::{Field, encoded};
use wire::{Decoder, Errno, FileId, NodeId, SiteOwner, Sites, Time, Wall};

/// A site that was given, its owner since, and clients of the giver.
pub(crate) type Handover = (u8, SiteOwner, Vec<Heard>);

/// Whether it is an inode of an import.
fn is_imported(row: &Row) -> bool {
    let is_inode = row.key.get(1) == Some(&(Table::Inode as u8));
    let inode = || Inode::take(&mut Decoder::new(&row.value));
    is_inode && inode().is_ok_and(|inode| inode.attr.import().is_some())
}

impl Manager {
    /// Writes down that the site is another manager's, which it is when the record is on stable storage. The record,
    /// and the clients; those that may hold something of the site are in it.
    pub(crate) fn give(
        &mut self,
        site: u8,
        owner: SiteOwner,
        now: Wall,
    ) -> Result<(Option<Append>, Vec<Heard>), Errno> {
        let heard = self.heard(site);
        let clients = heard.iter().filter(|it| it.holds).map(|it| it.client).collect();
        let handed = Handed { owner, is_done: false, clients };
        Ok((self.put_owner(site, &handed, now)?, heard))
    }

    /// The site is another manager's: that is on stable storage.
    pub(crate) fn gave(&mut self, site: u8, owner: SiteOwner) {
        assert!(self.sites.is_leaving(site), "nothing of it changes before that");
        self.sites.set(site, owner);
        self.forget_site(site);
    }

    /// The site is this manager's from now on. ENODATA unless everything of it is in the store, as where that is not
    /// the one that the giver sent the records to.
    pub(crate) fn take_site(
        &mut self,
        site: u8,
        owner: SiteOwner,
        clients: &[Silence],
        wall: Wall,
        now: Time,
    ) -> Result<Option<Append>, Errno> {
        if owner.epoch <= self.sites.table().get(site).epoch {
            return Ok(None); // said before
        }
        if self.arrived(site)? != Some(owner.epoch) {
            return Err(Errno::ENODATA);
        }
        let all = clients.iter().filter(|it| it.holds).map(|it| it.client).collect();
        let handed = Handed { owner, is_done: true, clients: all };
        let append = self.put_owner(site, &handed, wall)?;
        self.sites.set(site, owner);
        let change = self.store().sequence();
        for silence in clients {
            self.hear_of(silence, now);
            if silence.holds {
                self.await_claims(silence.client, site, change);
            }
        }
        self.load_site(site, now).map_err(|_| Errno::EIO)?;
        Ok(append)
    }

    /// The site came to this manager after what its store is from: what the store has of it, if anything, is of before.
    /// Its numbers go on behind all that were given since: in an earlier lineage, or before this incarnation.
    pub(crate) fn adopt_site(
        &mut self,
        site: u8,
        owner: SiteOwner,
        (lineage, incarnation): (u16, u64),
        (wall, now): (Wall, Time),
    ) -> Result<Option<Append>, Errno> {
        let is_bucket = !self.table(site, Table::Bucket).map_err(|_| Errno::EIO)?.is_empty();
        if is_bucket {
            self.volume.set_hashed();
        }
        let inodes = self.table(site, Table::Inode).map_err(|_| Errno::EIO)?;
        let row = |(key, value): store::Entry| Row { key: key.into(), value: value.into() };
        if inodes.into_iter().map(row).any(|row| is_imported(&row)) {
            self.volume.set_imports();
        }
        self.volume.base = self.volume.base.max(floor(lineage, incarnation));
        let behind = self.behind_serials(site, incarnation)?;
        let handed = Handed { owner, is_done: true, clients: Vec::new() };
        let append = self.put_owner_with(site, &handed, wall, behind)?;
        let is_loaded = self.sites.owns(site);
        self.sites.set(site, owner);
        if !is_loaded {
            self.load_site(site, now).map_err(|_| Errno::EIO)?;
        }
        Ok(append)
    }

    /// The epoch with which a site may become this manager's, if all its records are here.
    pub(crate) fn arrived(&self, site: u8) -> Result<Option<u32>, Errno> {
        let epoch = self.read(0, |t| t.get(&keys::arrived(site)))?;
        epoch.map(|epoch| Transaction::decoded(&epoch)).transpose()
    }

    /// The next owner has said that it is.
    pub(crate) fn handed_over(
        &mut self,
        site: u8,
        owner: SiteOwner,
        now: Wall,
    ) -> Result<Option<Append>, Errno> {
        if self.sites.table().get(site).epoch != owner.epoch {
            return Ok(None); // it came back
        }
        self.put_owner(site, &Handed { owner, is_done: true, clients: Vec::new() }, now)
    }

    /// Learns owners from another manager. Sites that the store has for this manager's and another one got later: what
    /// was loaded of them is forgotten.
    pub(crate) fn hear_sites(&mut self, heard: &Sites) -> Vec<(u8, SiteOwner)> {
        let own: Vec<u8> = self.sites.table().of(self.sites.own()).collect();
        self.sites.hear(heard);
        let lost = own.into_iter().filter(|site| !self.sites.owns(*site));
        let lost: Vec<_> = lost.map(|site| (site, self.sites.table().get(site))).collect();
        lost.iter().for_each(|(site, _)| self.forget_site(*site));
        lost
    }

    /// Loads from the store which sites were handed over.
    pub(crate) fn load_owners(&mut self) -> Result<(), OpenError> {
        for (site, handed) in self.owners()? {
            self.sites.set(site, handed.owner);
        }
        Ok(())
    }

    /// Sites that were handed over, and what is known of that.
    fn owners(&self) -> Result<Vec<(u8, Handed)>, OpenError> {
        let owner = |(key, value): store::Entry| {
            let handed = damaged(&key, &value)?;
            let site = key.get(2).copied().ok_or(OpenError::Damaged { key })?;
            Ok((site, handed))
        };
        self.table(0, Table::Owner)?.into_iter().map(owner).collect()
    }

    fn put_owner(&mut self, site: u8, handed: &Handed, now: Wall) -> Result<Option<Append>, Errno> {
        self.put_owner_with(site, handed, now, Vec::new())
    }

    /// The same with other records of this manager's.
    fn put_owner_with(
        &mut self,
        site: u8,
        handed: &Handed,
        now: Wall,
        rows: Vec<store::Entry>,
    ) -> Result<Option<Append>, Errno> {
        self.volume.set_shared();
        let volume = encoded(&self.volume);
        let origin = crate::manager::Origin { client: 0, now };
        let put = |t: &mut Transaction<'_>| {
            t.put(keys::owner(site), encoded(handed));
            t.put(keys::volume(), volume);
            rows.into_iter().for_each(|(key, value)| t.put(key, value));
            if handed.owner.manager == t.sites.own() {
                t.delete(keys::arrived(site));
                handed.clients.iter().for_each(|client| t.put(keys::client(*client), Vec::new()));
            }
            Ok(())
        };
        Ok(self.change(origin, put)?.1)
    }

    /// Handovers of which the next owner has not said that it knows. Clients that were known then may have been heard
    /// of until now.
    pub(crate) fn open_handovers(&self, now: Time) -> Result<Vec<Handover>, OpenError> {
        let mut open = Vec::new();
        for (site, handed) in self.owners()? {
            if !handed.is_done {
                let heard = |client| Heard { client, at: now, holds: true };
                let clients = handed.clients.into_iter().map(heard).collect();
                open.push((site, handed.owner, clients));
            }
        }
        Ok(open)
    }

    /// Records of a site behind the one with this key, of about so many bytes: its own, then those of objects of its
    /// files in quarantine.
    pub(crate) fn rows_of(
        &self,
        site: u8,
        after: Option<&[u8]>,
        bytes: usize,
    ) -> Result<Vec<Row>, Errno> {
        let (mut rows, sum) = (Vec::new(), Cell::new(0));
        let take = |rows: &mut Vec<Row>, key: &[u8], value: &[u8]| {
            sum.set(sum.get() + key.len() + value.len());
            rows.push(Row { key: key.into(), value: value.into() });
            if sum.get() < bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let own = after.filter(|after| after.first() == Some(&site));
        let aside = after.filter(|_| own.is_none());
        if aside.is_none() {
            self.scan_site(site, own, |key, value| take(&mut rows, key, value))?;
        }
        if aside.is_some() || rows.is_empty() {
            self.scan_asides(site, aside, |key, value| take(&mut rows, key, value))?;
        }
        Ok(rows)
    }

    /// Shows the records of objects of a site's files in quarantine, behind the one with this key. On each server those
    /// of one site are neighbours, so that no others are looked at but one for each server.
    fn scan_asides(
        &self,
        site: u8,
        after: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut from = after.map_or_else(|| keys::table(0, Table::Quarantine), <[u8]>::to_vec);
        let mut flow = ControlFlow::Continue(());
        while let Some(server) = self.aside_server(&from)? {
            let rows = keys::quarantined_of_site(server, site);
            let end = keys::behind(&rows).ok_or(Errno::EIO)?;
            let start = match after.filter(|after| after.starts_with(&rows)) {
                Some(after) => Bound::Excluded(after),
                None => Bound::Included(&rows[..]),
            };
            let visit = |key: &[u8], value: &[u8]| {
                flow = visit(key, value);
                flow
            };
            self.store.scan((start, Bound::Excluded(&end[..])), visit).map_err(|_| Errno::EIO)?;
            let Some(behind) =
                keys::behind(&keys::quarantined_at(server)).filter(|_| flow.is_continue())
            else {
                break;
            };
            from = behind;
        }
        Ok(())
    }

    /// The first server from this key on that has objects in quarantine.
    fn aside_server(&self, from: &[u8]) -> Result<Option<NodeId>, Errno> {
        let end = keys::behind(&keys::table(0, Table::Quarantine)).ok_or(Errno::EIO)?;
        let found = self.store.range((Bound::Included(from), Bound::Excluded(&end[..])), 1);
        let found = found.map_err(|_| Errno::EIO)?;
        let server = |(key, _): &store::Entry| Some(keys::quarantined_of(key)?.0.server);
        Ok(found.first().and_then(server))
    }

    /// Shows every record of a site behind the one with this key, until `visit` breaks.
    fn scan_site(
        &self,
        site: u8,
        after: Option<&[u8]>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let first = [site];
        let start = after.map_or(Bound::Included(&first[..]), Bound::Excluded);
        let end = keys::behind(&first);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.store.scan((start, end), visit).map_err(|_| Errno::EIO)
    }

    /// Takes records of a site that is not this manager's yet; none is the end: with this epoch it may become that.
    pub(crate) fn import(&mut self, site: u8, epoch: u32, rows: &[Row]) -> Result<Append, Errno> {
        let (mut batch, uptime) = (Batch::new(), self.uptime()?);
        match rows.is_empty() {
            true => batch.put(&keys::arrived(site), &encoded(&epoch)),
            false => batch.delete(&keys::arrived(site)),
        };
        for row in rows {
            if keys::is_aside_of(&row.key, site) {
                batch.put(&row.key, &begun_anew(&row.value, uptime)?);
            } else if row.key.first() == Some(&site) && keys::is_of_site(&row.key) {
                batch.put(&row.key, &row.value);
            } else {
                return Err(Errno::EPROTO);
            }
        }
        let format = self.volume.format;
        if rows.iter().any(|row| keys::bucket_of(&row.key).is_some()) {
            self.volume.set_hashed();
        }
        if rows.iter().any(is_imported) {
            self.volume.set_imports();
        }
        if self.volume.format != format {
            batch.put(&keys::volume(), &encoded(&self.volume));
        }
        Ok(self.store().apply(batch))
    }

    /// Removes records of a site that is another manager's, as many as a batch takes; whether there are more.
    pub(crate) fn clear_site(&mut self, site: u8) -> Result<(Option<Append>, bool), Errno> {
        assert!(site != 0, "site 0 has the records of the store itself");
        if self.sites.owns(site) {
            return Err(Errno::EEXIST);
        }
        let (mut batch, mut count) = (Batch::new(), 0);
        let mut delete = |key: &[u8], _: &[u8]| {
            batch.delete(key);
            count += 1;
            if count < CHANGES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.scan_site(site, None, &mut delete)?;
        self.scan_asides(site, None, delete)?;
        if count > 0 {
            batch.delete(&keys::arrived(site)); // not all of it is here any more
        }
        Ok(((count > 0).then(|| self.store().apply(batch)), count >= CHANGES_MAX))
    }

    /// Nothing of a site is in memory any more.
    fn forget_site(&mut self, site: u8) {
        let of_site = |file: &FileId| file.site() == site;
        for client in self.opens.clients().collect::<Vec<_>>() {
            for file in self.opens.files_of(client).into_iter().filter(of_site) {
                self.opens.set(file, client, crate::opens::Holder::default());
                self.listings.note(file);
            }
        }
        self.locks.release_files(of_site);
        self.truncating.retain(|file, _| !of_site(file));
        self.removing.retain(|file| !of_site(file));
        self.suspects.values_mut().for_each(|files| files.retain(|file| !of_site(file)));
        self.grace.forget(site);
        self.changed.forget(of_site);
        self.hashed.forget(site);
        self.duplicates.forget(site);
        self.forget_restored(site);
    }

    /// Files of a restored store whose site is another manager's are not this one's to compare.
    fn forget_restored(&mut self, site: u8) {
        // What cannot be read stays counted.
        for (_, value) in self.table(site, Table::Restored).into_iter().flatten() {
            let before = Restored::take(&mut Decoder::new(&value)).ok();
            self.restoration.change(before, None);
        }
    }

    /// The last owner of a site has heard of the client: one that is dead is not alive again because sites move, and
    /// one that is alive ends its session here before this manager is taken out.
    fn hear_of(&mut self, silence: &Silence, now: Time) {
        let heard = now - Duration::from_millis(silence.millis.into());
        let before = self.clients.get(&silence.client).map_or(Time::ZERO, |known| known.heard);
        self.hear(silence.client, heard.max(before));
    }

    /// The client is to say what it has open, before anything of the site is given to others.
    fn await_claims(&mut self, client: u64, site: u8, change: u64) {
        self.registrations = self.registrations.wrapping_add(1);
        let registration = self.registrations;
        if let Some(known) = self.clients.get_mut(&client) {
            known.registration = registration;
            known.durable.get_or_insert(change);
        }
        self.grace.await_site(client, site);
    }
}
