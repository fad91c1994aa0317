//! Clients that lock: what they are called, and what the list on stable storage says of them.

use super::calls::Ends;
use super::kept::{Kept, Monitored};
use crate::limits::{LOCK_HOST_BYTES_MAX, LOCK_HOST_SPAN, LOCK_HOSTS_BYTES_MAX, LOCK_HOSTS_MAX};
use core::net::IpAddr;
use std::collections::BTreeMap;
use wire::Time;

/// A client within this incarnation of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostId(pub u32);

#[derive(Debug)]
pub(super) struct Host {
    pub ends: Ends,
    pub name: Box<[u8]>,
    /// Its number of NSM, as it came with its last lock; 0 is none.
    pub state: i32,
    /// It is in the list on stable storage.
    pub is_kept: bool,
    /// It was in the list of the last incarnation, so it may reclaim.
    pub may_reclaim: bool,
    /// Owners of locks, and locks that wait.
    pub owners: usize,
    pub waiters: usize,
    /// How often all of its locks were released at once.
    pub releases: u64,
    seen: Time,
}

impl Host {
    fn monitored(&self) -> Monitored {
        Monitored { client: self.ends.client, own: self.ends.own, name: self.name.clone() }
    }

    fn is_idle(&self, now: Time) -> bool {
        self.owners == 0 && self.waiters == 0 && now.since(self.seen) >= LOCK_HOST_SPAN
    }

    fn bytes(&self) -> usize {
        100 + self.name.len()
    }
}

/// All of them. Two clients with the same name and other addresses are two: so many machines are called localhost.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    all: BTreeMap<HostId, Host>,
    ids: BTreeMap<(IpAddr, Box<[u8]>), HostId>,
    next: u32,
}

/// A name up to its domain, in small letters: NSM and NLM of one client may send it with and without.
fn short(name: &[u8]) -> Vec<u8> {
    name.split(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase()
}

impl Hosts {
    /// The clients of the last incarnation.
    pub fn restore(&mut self, kept: &Kept, now: Time) {
        for one in kept.clients.iter().take(LOCK_HOSTS_MAX) {
            let ends = Ends { client: one.client, own: one.own };
            let id = self.add(ends, &one.name, now);
            let host = self.get_mut(id);
            (host.is_kept, host.may_reclaim) = (true, true);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.all.iter().map(|(id, host)| (*id, host))
    }

    pub fn get(&self, id: HostId) -> &Host {
        &self.all[&id]
    }

    pub fn get_mut(&mut self, id: HostId) -> &mut Host {
        self.all.get_mut(&id).expect("a client that is known")
    }

    pub fn find(&self, client: IpAddr, name: &[u8]) -> Option<HostId> {
        self.ids.get(&(client.to_canonical(), name.into())).copied()
    }

    /// The client, who may be new. `None`: there are too many.
    pub fn meet(&mut self, ends: Ends, name: &[u8], now: Time) -> Option<HostId> {
        if let Some(id) = self.find(ends.client, name) {
            let host = self.get_mut(id);
            (host.seen, host.ends) = (now, ends);
            return Some(id);
        }
        if name.len() > LOCK_HOST_BYTES_MAX {
            return None;
        }
        if !self.has_room(name) {
            self.forget_idle(now);
        }
        self.has_room(name).then(|| self.add(ends, name, now))
    }

    fn has_room(&self, name: &[u8]) -> bool {
        let bytes: usize = self.all.values().map(Host::bytes).sum();
        self.all.len() < LOCK_HOSTS_MAX && bytes + 100 + name.len() <= LOCK_HOSTS_BYTES_MAX
    }

    fn add(&mut self, ends: Ends, name: &[u8], now: Time) -> HostId {
        let id = HostId(self.next);
        self.next += 1;
        let name: Box<[u8]> = name.into();
        self.ids.insert((ends.client.to_canonical(), name.clone()), id);
        let (is_kept, may_reclaim, state) = (false, false, 0);
        let (owners, waiters, releases, seen) = (0, 0, 0, now);
        let host =
            Host { ends, name, state, is_kept, may_reclaim, owners, waiters, releases, seen };
        self.all.insert(id, host);
        id
    }

    /// Removes clients that have held nothing for long.
    pub fn forget_idle(&mut self, now: Time) {
        self.all.retain(|_, host| !host.is_idle(now));
        let all = &self.all;
        self.ids.retain(|_, id| all.contains_key(id));
    }

    /// Clients that a notice of a restart is about. It comes from the client's address; the name it has may be longer
    /// or shorter than the one of its locks, and only tells several clients at one address apart.
    pub fn restarted(&self, client: IpAddr, name: &[u8]) -> Vec<HostId> {
        let client = client.to_canonical();
        let there = || self.iter().filter(|(_, it)| it.ends.client.to_canonical() == client);
        let named: Vec<HostId> =
            there().filter(|(_, it)| short(&it.name) == short(name)).map(|(id, _)| id).collect();
        if !named.is_empty() {
            return named;
        }
        let mut all = there();
        match (all.next(), all.next()) {
            (Some((id, _)), None) => vec![id],
            (Some(_), Some(_)) => Vec::new(),
            // it has another address since
            (None, _) => {
                let named = self.iter().filter(|(_, it)| *it.name == *name);
                let named: Vec<HostId> = named.map(|(id, _)| id).collect();
                if named.len() == 1 { named } else { Vec::new() }
            }
        }
    }

    /// The list for stable storage.
    pub fn list(&self) -> Vec<Monitored> {
        self.all.values().map(Host::monitored).collect()
    }
}
