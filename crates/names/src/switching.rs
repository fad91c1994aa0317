//! Mkdir switching: how many of the new directories go to the site of their hash (Slice, OSDI 2000, section 3.2).
//!
//! The share is the volume's. It is changed at the first manager and has a version: managers tell it each other with
//! the table of sites, keep the latest, and a manager of a parent decides by it.

use crate::hash::hash;
use crate::keys::{self, BucketId};
use crate::manager::{Manager, Origin};
use crate::open_error::{OpenError, damaged};
use crate::permissions::Who;
use crate::record::{Policy, Switching, SwitchingShare};
use crate::transaction::{Effect, Transaction};
use store::Append;
use wire::field::encoded;
use wire::{Errno, Wall};

/// Thousandths that there are.
pub(crate) const WHOLE: u16 = 1000;

impl Manager {
    /// Loads from the store what was set.
    pub(crate) fn load_switching(&mut self) -> Result<(), OpenError> {
        let key = keys::switching();
        if let Some(value) = self.store.get(&key)? {
            self.sites.switching = damaged(&key, &value)?;
        }
        Ok(())
    }

    /// The share that holds for new directories of this manager's.
    pub(crate) fn switching_share(&self) -> SwitchingShare {
        let set = self.sites.switching.set;
        SwitchingShare { set, per_mille: self.read(0, |t| t.per_mille()) }
    }

    /// Another manager has heard of this.
    pub(crate) fn hear_switching(
        &mut self,
        heard: Switching,
        now: Wall,
    ) -> Result<Option<Append>, Errno> {
        if heard.version <= self.sites.switching.version {
            return Ok(None);
        }
        let keep = |t: &mut Transaction<'_>| {
            t.keep_switching(heard);
            Ok(())
        };
        Ok(self.change(Origin { client: 0, now }, keep)?.1)
    }
}

impl Transaction<'_> {
    /// From now on so many of 1000 new directories go to the site of their hash; without a number the default holds.
    /// Only root may.
    pub fn set_switching(&mut self, who: &Who<'_>, set: Option<u16>) -> Result<(), Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        if set.is_some_and(|set| set > WHOLE) {
            return Err(Errno::EINVAL);
        }
        let version = self.sites.switching.version + 1;
        self.keep_switching(Switching { version, set });
        Ok(())
    }

    fn keep_switching(&mut self, switching: Switching) {
        self.put(keys::switching(), encoded(&switching));
        self.effect(Effect::Switching(switching));
    }

    fn per_mille(&self) -> u16 {
        // As many go elsewhere as are to be elsewhere in the end, where that is more than the volume was made with.
        let share = WHOLE - WHOLE / self.sites.managers() as u16;
        self.sites.switching.set.unwrap_or(self.volume.switch_per_mille.max(share))
    }

    /// Where a new directory goes: to the site of its hash, or with its parent.
    pub(crate) fn site_for(&self, policy: &Policy, parent: BucketId, name: &[u8]) -> u8 {
        let hash = hash(parent.directory, name);
        let switched = (hash >> 32) % u64::from(WHOLE) < u64::from(self.per_mille());
        if policy.switching && switched { hash as u8 } else { parent.site }
    }
}
