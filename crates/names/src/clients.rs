//! Clients and their leases: the ones alive, and those that still have to reclaim what they hold.
//!
//! A client that holds something or changed something is in the store. After a restart of the manager all of these
//! have one lease to reclaim their opens and locks (grace); until then no new lock is given and no file without a
//! name is removed. Of a site that came from another manager they have the rest of the lease that they had there. A
//! client loses what it does not reclaim within its lease.

use crate::keys;
use crate::limits::LEASE;
use crate::manager::{Client, Manager, Origin};
use crate::permissions::Who;
use crate::protocol::managers::Silence;
use crate::servers::IoServer;
use crate::sessions::Claim;
use crate::transaction::{Changes, Transaction};
use std::collections::BTreeSet;
use store::Append;
use wire::{Errno, FileId, NodeId, Time};

/// A client as the giver of a site knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub client: u64,
    pub at: Time,
    /// It may have something of the site open or locked.
    pub holds: bool,
}

impl Manager {
    /// The client is alive. Its registration tells it whether it must say again what it holds: that is so when it
    /// is not the one it knew.
    pub fn hear(&mut self, client: u64, now: Time) -> u64 {
        if let Some(known) = self.clients.get_mut(&client) {
            known.heard = now;
            return known.registration;
        }
        self.registrations = self.registrations.wrapping_add(1);
        let registration = self.registrations;
        self.clients.insert(client, Client { heard: now, registration, durable: None });
        registration
    }

    /// All clients, for the next owner of a site: when they were heard of last, and whether they may hold something of
    /// it.
    pub(crate) fn heard(&self, site: u8) -> Vec<Heard> {
        let locks = self.locks.held().filter(|(target, ..)| target.file.site() == site);
        let with_locks: BTreeSet<u64> = locks.map(|(_, owner, _)| owner.client).collect();
        let holds = |client: u64| {
            let is_open = || self.opens.files_of(client).iter().any(|file| file.site() == site);
            self.grace.awaits_of(client, site) || with_locks.contains(&client) || is_open()
        };
        let all = self.clients.iter();
        all.map(|(id, known)| Heard { client: *id, at: known.heard, holds: holds(*id) }).collect()
    }

    /// For how long clients were silent that were heard of at these times, or later.
    pub(crate) fn silences(&self, clients: &[Heard], now: Time) -> Vec<Silence> {
        let last = |then: &Heard| {
            self.clients.get(&then.client).map_or(then.at, |known| known.heard.max(then.at))
        };
        let silent = |then: &Heard| {
            let millis = u32::try_from(now.since(last(then)).as_millis()).unwrap_or(u32::MAX);
            Silence { client: then.client, millis, holds: then.holds }
        };
        clients.iter().map(silent).collect()
    }

    /// Clients that were not heard of for a lease.
    pub fn expired(&self, now: Time) -> Vec<u64> {
        let late = self.clients.iter().filter(|(_, client)| client.heard + LEASE < now);
        late.map(|(id, _)| *id).collect()
    }

    /// The client is dead: it holds nothing any more; its write sessions are to be settled. To be called again until
    /// it says that it is done.
    pub fn expire(&mut self, client: u64, origin: Origin) -> Result<(bool, Option<Append>), Errno> {
        let durable = self.clients.get(&client).is_some_and(|client| client.durable.is_some());
        if !durable && self.opens().files_of(client).is_empty() {
            self.forget_client(client);
            return Ok((true, None));
        }
        self.change(origin, |transaction| transaction.expire(client))
    }

    pub(crate) fn forget_client(&mut self, client: u64) {
        self.clients.remove(&client);
        self.grace.remove(client);
        self.suspects.remove(&client);
        self.locks.release_client(client);
        self.opens.forget_closes(client);
        self.forget_answers(client);
    }

    /// The client is about to hold something that only memory knows: the store shall know the client.
    pub fn register(&mut self, client: u64) -> Option<Append> {
        let mut changes = Changes::default();
        self.make_durable(client, &mut changes);
        (!changes.writes.is_empty()).then(|| self.store().apply(changes.batch()))
    }

    /// `changes` are about to be applied, with what makes the client known.
    pub(crate) fn make_durable(&mut self, client: u64, changes: &mut Changes) {
        let change = self.store().sequence() + 1;
        if let Some(known) = self.clients.get_mut(&client).filter(|known| known.durable.is_none()) {
            known.durable = Some(change);
            changes.writes.insert(keys::client(client), Some(Vec::new()));
        }
    }

    /// The change that made the client known to the store.
    pub(crate) fn known_since(&self, client: u64) -> u64 {
        self.clients.get(&client).and_then(|known| known.durable).unwrap_or_default()
    }

    /// Whether clients may still say what they held before this manager started, or got one of its sites.
    pub fn in_grace(&self) -> bool {
        !self.grace.is_over()
    }

    /// Whether they may of this site.
    pub fn is_site_in_grace(&self, site: u8) -> bool {
        self.grace.has_site(site)
    }

    /// The client begins to say what it holds. `closes` is the number of its last close: what closes up to that one
    /// have left open, the client says. One that is still on its way takes place no more.
    pub fn begin_claims(&mut self, client: u64, closes: u64) {
        self.opens.end_closes(client, closes);
        let held = self.opens().files_of(client).into_iter().collect();
        self.suspects.insert(client, held);
    }

    /// The client has said all that it held when it had this registration; what it did not say is closed. To be called
    /// again until it says that it is done. A site that came meanwhile has brought it another one: it says all once
    /// more, and what it said now closes nothing.
    pub fn end_claims(
        &mut self,
        registration: u64,
        origin: Origin,
    ) -> Result<(bool, Option<Append>), Errno> {
        let client = origin.client;
        if self.clients.get(&client).is_none_or(|known| known.registration != registration) {
            self.suspects.remove(&client);
            return Ok((true, None));
        }
        let suspects = self.suspects.get(&client).into_iter().flatten();
        let lost: Vec<FileId> = suspects.copied().collect();
        let (done, append) =
            self.change(origin, |transaction| transaction.abandon_all(&lost, client))?;
        if done {
            self.suspects.remove(&client);
            self.grace.remove(client);
        }
        Ok((done, append))
    }

    /// The active I/O servers. New files go to those that are not retired: neither by what is told here, nor by the
    /// store.
    pub fn set_servers(&mut self, servers: &[IoServer]) {
        self.told_servers = servers.to_vec();
        self.choose_servers();
    }

    /// Which servers are retired has changed.
    pub(crate) fn choose_servers(&mut self) {
        let is_retired = |server: &IoServer| self.retired.contains(&server.id);
        let told = self.told_servers.iter();
        let known = |server: &IoServer| IoServer { retired: is_retired(server), ..*server };
        self.servers = told.clone().map(known).collect();
        self.open_servers = told.filter(|s| !s.retired && !is_retired(s)).copied().collect();
    }

    /// A new file has no more columns than this: several of [`set_servers`](Manager::set_servers) may share a disk.
    pub fn set_columns_max(&mut self, columns: usize) {
        self.columns_max = columns;
    }

    /// These are told how far the store is, and not the servers of [`set_servers`](Manager::set_servers): of groups
    /// many are on one disk.
    pub fn set_witnesses(&mut self, servers: &[NodeId]) {
        self.witnesses = Some(servers.to_vec());
    }

    /// The servers that are told how far the store is.
    pub fn witnesses(&self) -> Vec<NodeId> {
        let servers = || self.servers.iter().map(|server| server.id).collect();
        self.witnesses.clone().unwrap_or_else(servers)
    }

    /// The active I/O servers.
    pub fn servers(&self) -> &[IoServer] {
        &self.servers
    }
}

impl Transaction<'_> {
    /// This client says again what it has open.
    pub fn claim_all(&mut self, claims: &[Claim]) -> Result<(), Errno> {
        claims.iter().try_for_each(|claim| self.claim(&Who::ROOT, *claim))
    }
}
