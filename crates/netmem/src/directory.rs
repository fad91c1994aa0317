//! Holders of pages: the entries of the slots that a node keeps (SOSP'95: the global cache directory).
//!
//! Clean copies are soft state: an entry of them alone may be forgotten, and is made again when its holders register
//! anew. Mirrors, the copies of a version that is nowhere else, are hard state: an entry with one is never forgotten,
//! and when the last one goes down with its node, the entry stays and says that the version is lost.
//!
//! Invariants: an entry's version never goes back while the entry exists; a node is named once in an entry, in its
//! present incarnation; no entry is empty, and a crowded one is not: there are copies that it does not name.

use crate::index::{BYTES_PER_ENTRY, Index};
use crate::limits::{DIRECTORY_SHARE, FORGET_STEPS_MAX, HOLDERS_MAX};
use crate::page::{PageId, Version};
use arrayvec::ArrayVec;
use wire::NodeId;

/// The role of a holder's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A copy of what is on stable storage as well, or in mirrors.
    Clean,
    /// One of the copies that the version's survival depends on.
    Mirror,
}

impl Role {
    /// Whether the version's survival depends on it.
    pub fn is_hard(self) -> bool {
        self != Role::Clean
    }
}

/// A node that holds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Its incarnation: a later one has nothing that it does not say itself.
    pub incarnation: u64,
    /// Mirror or clean copy.
    pub role: Role,
}

/// The directory's record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The page.
    pub id: PageId,
    /// Its newest version that was registered.
    pub version: Version,
    /// Holders of that version.
    pub holders: ArrayVec<Holder, HOLDERS_MAX>,
    /// Mirrors of that version that there are to be; 0 when it is on stable storage, or the number is not known.
    pub copies: u8,
    /// The version was in mirrors only, and all of them went down.
    pub lost: bool,
    /// More nodes had copies of that version than can be named.
    pub crowded: bool,
}

impl Entry {
    /// Whether the entry must not be forgotten.
    pub fn is_hard(&self) -> bool {
        self.lost || self.mirror_holders().next().is_some()
    }

    /// The mirrors, which the version's survival depends on.
    pub fn mirror_holders(&self) -> impl Iterator<Item = &Holder> + Clone {
        self.holders.iter().filter(|holder| holder.role == Role::Mirror)
    }

    /// Number of mirrors.
    pub fn mirrors(&self) -> usize {
        self.mirror_holders().count()
    }

    /// Whether copies are all that is left of a version that is not on stable storage.
    pub fn is_bare(&self) -> bool {
        self.copies > 0 && self.mirrors() == 0
    }

    /// Mirrors that there should be and are not, while there is a copy to make them from.
    pub fn mirrors_missing(&self) -> usize {
        match self.mirrors() {
            0 => 0,
            kept => usize::from(self.copies).saturating_sub(kept),
        }
    }

    fn new(id: PageId, version: Version) -> Entry {
        Entry { id, version, holders: ArrayVec::new(), copies: 0, lost: false, crowded: false }
    }

    fn is_empty(&self) -> bool {
        self.holders.is_empty() && !self.lost && !self.crowded
    }

    /// A version that is not on stable storage has no holder.
    fn is_gone(&self) -> bool {
        self.holders.is_empty() && self.copies > 0
    }

    fn advance(&mut self, version: Version) -> ArrayVec<Holder, HOLDERS_MAX> {
        assert!(version > self.version, "what is known of a page grows newer");
        (self.version, self.copies, self.lost, self.crowded) = (version, 0, false, false);
        std::mem::take(&mut self.holders)
    }

    /// Names a holder of the present version. A holder with a mirror keeps that role when a late message names its
    /// earlier clean copy. Returns the clean holder that was displaced by a mirror, or refuses.
    fn name(&mut self, holder: Holder) -> Result<Option<Holder>, Refusal> {
        if let Some(known) = self.holders.iter_mut().find(|known| known.node == holder.node) {
            if known.incarnation > holder.incarnation {
                return Err(Refusal::Outlived);
            }
            let stays = known.incarnation == holder.incarnation && known.role.is_hard();
            *known = if stays { *known } else { holder };
            return Ok(None);
        }
        if !self.holders.is_full() {
            self.holders.push(holder);
            return Ok(None);
        }
        let clean = self.holders.iter().position(|known| known.role == Role::Clean);
        self.crowded = true;
        let place = clean.filter(|_| holder.role.is_hard()).ok_or(Refusal::Enough)?;
        Ok(Some(std::mem::replace(&mut self.holders[place], holder)))
    }
}

/// Copies displaced by a registration. The holders named here must be told to drop theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Holders of the same page: of an older version, or one copy too many.
    pub dropped: ArrayVec<Holder, HOLDERS_MAX>,
    /// Another page's entry, forgotten to make room.
    pub forgotten: Option<Entry>,
}

/// Why a copy is not registered. Its holder drops it, or keeps what it must and asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A newer version is known: this one.
    Stale(Version),
    /// The node has registered in a later incarnation.
    Outlived,
    /// The page has holders enough.
    Enough,
    /// No entry can be forgotten.
    Full,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The page has holders in a version that will do.
    Held(&'a Entry),
    /// That version, or a newer one, existed in network memory only and is gone.
    Lost(Version),
    /// No entry: the page is on stable storage, or nowhere.
    Unknown,
}

/// The entries that one node keeps.
#[derive(Debug)]
pub struct Directory {
    slab: Box<[Entry]>,
    vacant: Vec<u32>,
    index: Index,
    hand: usize,
}

impl Directory {
    /// Entries that fit the directory's share of `memory_bytes` of memory.
    pub const fn entries_in(memory_bytes: usize) -> usize {
        memory_bytes / DIRECTORY_SHARE / Directory::ENTRY_BYTES
    }

    /// Most bytes of memory for each entry, everything included.
    pub const ENTRY_BYTES: usize =
        std::mem::size_of::<Entry>() + std::mem::size_of::<u32>() + BYTES_PER_ENTRY;

    /// With room for `entries`; it takes its memory now and never more.
    pub fn new(entries: usize) -> Directory {
        let vacant = Entry::new(PageId::default(), Version::default());
        Directory {
            slab: vec![vacant; entries].into(),
            vacant: (0..entries as u32).rev().collect(),
            index: Index::new(entries),
            hand: 0,
        }
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let vacant = self.vacant.capacity() * size_of::<u32>();
        size_of_val(&*self.slab) + vacant + self.index.bytes()
    }

    /// Pages that have entries.
    pub fn len(&self) -> usize {
        self.slab.len() - self.vacant.len()
    }

    /// Whether no page has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of a page.
    pub fn entry(&self, id: PageId) -> Option<&Entry> {
        self.find(id).map(|at| &self.slab[at])
    }

    /// All entries, in no meaningful order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slab.iter().filter(|entry| !entry.is_empty())
    }

    /// Holders of the page in version `at_least` or a newer one.
    pub fn look_up(&self, id: PageId, at_least: Version) -> Lookup<'_> {
        match self.entry(id) {
            Some(entry) if entry.version < at_least => Lookup::Unknown,
            Some(entry) if entry.lost => Lookup::Lost(entry.version),
            Some(entry) if entry.holders.is_empty() => Lookup::Unknown,
            Some(entry) => Lookup::Held(entry),
            None => Lookup::Unknown,
        }
    }

    /// A node says that it holds a page; said again, it changes nothing. A newer version replaces all that is known,
    /// the same one ends a loss, an older one is refused.
    pub fn register(
        &mut self,
        id: PageId,
        version: Version,
        holder: Holder,
    ) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        let at = match self.find(id) {
            Some(at) => at,
            None => self.add(id, version, &mut outcome)?,
        };
        let entry = &mut self.slab[at];
        if version < entry.version {
            return Err(Refusal::Stale(entry.version));
        }
        if version > entry.version {
            outcome.dropped = entry.advance(version);
            outcome.dropped.retain(|old| old.node != holder.node);
        }
        outcome.dropped.extend(entry.name(holder)?);
        let named = entry.holders.iter().filter(|other| other.node == holder.node).count();
        assert_eq!(named, 1, "a node is named once");
        entry.lost = false;
        Ok(outcome)
    }

    /// There are to be so many mirrors of a version, which is registered. Says whether it is the present one.
    pub fn expect_mirrors(&mut self, id: PageId, version: Version, copies: u8) -> bool {
        let Some(at) = self.find(id) else { return false };
        let entry = &mut self.slab[at];
        let present = entry.version == version;
        if present {
            entry.copies = entry.copies.max(copies);
        }
        present
    }

    /// A version is on stable storage: its mirrors are copies like others from now on, and a loss is none. Says whether
    /// it is the present one.
    pub fn handle_written(&mut self, id: PageId, version: Version) -> bool {
        let Some(at) = self.find(id) else { return false };
        let entry = &mut self.slab[at];
        if entry.version != version {
            return false;
        }
        (entry.copies, entry.lost) = (0, false);
        entry.holders.iter_mut().for_each(|holder| holder.role = Role::Clean);
        self.remove_if_empty(at);
        true
    }

    /// A newer version than is known is on stable storage: what is known is worth nothing, and is forgotten.
    pub fn handle_outdated(&mut self, id: PageId, newer: Version) -> Option<Entry> {
        let at = self.find(id).filter(|at| self.slab[*at].version < newer)?;
        Some(self.remove(at))
    }

    /// Every holder of a copy is named.
    pub fn handle_dispersed(&mut self, id: PageId) {
        let Some(at) = self.find(id) else { return };
        self.slab[at].crowded = false;
        self.remove_if_empty(at);
    }

    /// Another directory knew that a version is lost. Changes nothing where a holder of it or a newer one is known.
    pub fn handle_lost(&mut self, id: PageId, version: Version) -> Result<(), Refusal> {
        let at = match self.find(id) {
            Some(at) => at,
            None => self.add(id, version, &mut Outcome::default())?,
        };
        let entry = &mut self.slab[at];
        if entry.version < version {
            entry.advance(version);
        }
        entry.lost = entry.version == version && entry.holders.is_empty();
        Ok(())
    }

    /// A holder has given the page up. Counts only if it is known in just this version and incarnation, and where a
    /// clean copy was given up not as a mirror, so that a late message cannot take away what came after it. Says
    /// whether it did.
    pub fn unregister(&mut self, id: PageId, version: Version, gone: Holder) -> bool {
        let Some(at) = self.find(id) else { return false };
        let entry = &mut self.slab[at];
        let clean = Holder { role: Role::Clean, ..gone };
        let is_it =
            |known: &Holder| *known == gone || (*known == clean && gone.role == Role::Mirror);
        let Some(place) = entry.holders.iter().position(is_it) else { return false };
        if entry.version != version {
            return false;
        }
        let holder = entry.holders.remove(place);
        // a mirror is given up for a newer version only, of which is heard yet
        entry.lost = entry.is_gone() && holder.role != Role::Mirror;
        self.remove_if_empty(at);
        true
    }

    /// A node is down, or back in a later incarnation: whatever it held in incarnations up to `last` is gone. `hurt`
    /// gets every page that lost a mirror, as it is now: lost, or to be mirrored anew. Takes time for every entry.
    pub fn drop_node(&mut self, node: NodeId, last: u64, mut hurt: impl FnMut(&Entry)) {
        let gone = |holder: &Holder| holder.node == node && holder.incarnation <= last;
        for at in 0..self.slab.len() {
            let entry = &mut self.slab[at];
            if !entry.holders.iter().any(gone) {
                continue;
            }
            let hard = entry.mirror_holders().any(gone);
            entry.holders.retain(|holder| !gone(holder));
            entry.lost = entry.is_gone() || (hard && entry.holders.is_empty());
            if hard || entry.lost {
                hurt(entry);
            }
            self.remove_if_empty(at);
        }
    }

    /// Forgets every page that is not to be kept: its slot has moved, or its space is freed. `gone` gets each of them;
    /// what is hard of them is the new home's to have first.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Entry) -> bool, mut gone: impl FnMut(&Entry)) {
        for at in 0..self.slab.len() {
            let entry = &self.slab[at];
            if !entry.is_empty() && !keeps(entry) {
                gone(entry);
                self.remove(at);
            }
        }
    }

    fn find(&self, id: PageId) -> Option<usize> {
        self.index.find(id, |at| self.slab[at as usize].id).map(|at| at as usize)
    }

    fn add(
        &mut self,
        id: PageId,
        version: Version,
        outcome: &mut Outcome,
    ) -> Result<usize, Refusal> {
        if self.vacant.is_empty() {
            outcome.forgotten = Some(self.forget().ok_or(Refusal::Full)?);
        }
        let at = self.vacant.pop().ok_or(Refusal::Full)?;
        assert!(self.slab[at as usize].is_empty(), "a vacant entry is empty");
        self.slab[at as usize] = Entry::new(id, version);
        self.index.insert(id, at, |other| self.slab[other as usize].id);
        assert!(self.hand < self.slab.len(), "the hand is at an entry");
        Ok(at as usize)
    }

    /// Forgets the next entry of clean copies, in a circle. Looks at some only.
    fn forget(&mut self) -> Option<Entry> {
        for _ in 0..FORGET_STEPS_MAX.min(self.slab.len()) {
            let at = self.hand;
            self.hand = (at + 1) % self.slab.len();
            if !self.slab[at].is_hard() {
                return Some(self.remove(at));
            }
        }
        None
    }

    fn remove_if_empty(&mut self, at: usize) {
        if self.slab[at].is_empty() {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) -> Entry {
        let id = self.slab[at].id;
        self.index.remove(id, |other| self.slab[other as usize].id);
        self.vacant.push(at as u32);
        assert!(self.vacant.len() <= self.slab.len(), "an entry is removed once");
        let vacant = Entry::new(PageId::default(), Version::default());
        std::mem::replace(&mut self.slab[at], vacant)
    }
}

#[cfg(test)]
mod tests;
