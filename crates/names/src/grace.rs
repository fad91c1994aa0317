//! Clients that are waited for, since they may hold more than a manager knows, and the sites of which they may.

use crate::hashing::SiteSet;
use std::collections::BTreeMap;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Grace(BTreeMap<u64, SiteSet>);

impl Grace {
    /// It may hold something of any site: the manager has just started.
    pub fn await_all(&mut self, client: u64) {
        self.0.insert(client, SiteSet::ALL);
    }

    /// It may hold something of this site, which has just come.
    pub fn await_site(&mut self, client: u64, site: u8) {
        self.0.entry(client).or_default().insert(site);
    }

    /// Whether the client is waited for.
    pub fn awaits(&self, client: u64) -> bool {
        self.0.contains_key(&client)
    }

    /// Whether it is for what it may hold of this site.
    pub fn awaits_of(&self, client: u64, site: u8) -> bool {
        self.0.get(&client).is_some_and(|sites| sites.contains(site))
    }

    /// It has said all, or is dead.
    pub fn remove(&mut self, client: u64) {
        self.0.remove(&client);
    }

    /// The site has gone to another manager, which waits now.
    pub fn forget(&mut self, site: u8) {
        self.0.retain(|_, sites| {
            sites.remove(site);
            !sites.is_empty()
        });
    }

    /// Whether nothing is waited for.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something of this site may be held that is not known yet.
    pub fn has_site(&self, site: u8) -> bool {
        self.0.values().any(|sites| sites.contains(site))
    }
}
