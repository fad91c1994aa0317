//! State of one file at this client.
//!
//! While there is a [`Local`], length and modification time are this client's: it has written what the manager does
//! not know yet. All else is the manager's, as of the last answer.

use crate::chunks::Chunks;
use crate::limits::{FILE_BYTES_MAX, SEND_BYTES_MAX};
use crate::written::Written;
use names::{Entry, Final, Unnamed};
use node::rings::Handle;
use node::{Cx, Notify};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use stripe::{FileRef, Verifiers};
use wire::{Attr, Errno, FileId, Time, Wall};

/// A file. Shared by the table, its open handles and the work under way.
pub(crate) struct File {
    pub id: FileId,
    /// Place in the order of last use.
    pub used: Cell<u64>,
    pub state: RefCell<State>,
    /// Something that tasks wait for has changed: a send or a commit ended, a session began, a chunk arrived.
    pub changed: Notify,
}

/// Length and time that only this client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub size: u64,
    pub mtime: Wall,
    /// Bytes of storage, estimated: the server's figure comes with the next look at the objects.
    pub used: u64,
    /// Of a file with holes something was written inside its length, so what was written over may be counted twice; or
    /// holes were made.
    pub guessed: bool,
}

/// The last write that could not be kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failure {
    /// Grows with every failure, so that each open handle reports each once.
    pub count: u64,
    /// The last that any handle has reported: a later one is for the next open.
    pub told: u64,
    pub errno: Option<Errno>,
}

impl Failure {
    /// An error when there was another failure after the first `count`.
    pub fn since(&self, count: u64) -> Result<(), Errno> {
        match self.errno {
            Some(errno) if self.count > count => Err(errno),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub entry: Entry,
    /// When it was asked.
    pub asked: Time,
    /// When its answer came.
    pub heard: Time,
    /// When the manager said so; `None` when it must be asked again.
    pub fresh: Option<Time>,
    /// Generation of the name space then.
    pub generation: u64,
    pub local: Option<Local>,
    /// A power cut may have taken the length that the manager was told: until the objects or a close have told it
    /// again, it is a hint.
    pub unsure: bool,
    /// The manager's incarnation that was told of a write session last, its begin or its end; 0 is none.
    pub told_incarnation: u32,
    /// A power cut may have taken that.
    pub lost_session: bool,
    /// The length as the manager said it last.
    pub said: u64,
    pub handles: u32,
    pub writers: u32,
    /// Opens for writing and for reading that the manager counts for this client.
    pub sessions: u32,
    pub readers: u32,
    /// A session is being opened or ended.
    pub busy: bool,
    /// New writes wait, and nothing is sent.
    pub truncating: bool,
    pub written: Written<Rc<Verifiers>>,
    /// Columns that this client wrote to, a bit for each.
    pub columns: u32,
    /// Something was retransmitted in this write session: only the objects know how long the file is.
    pub resent: bool,
    pub failure: Failure,
    /// In the queue of files with work.
    pub queued: bool,
    pub chunks: Chunks,
    /// Owners that may hold locks, and whether of the whole file, with the handles through which they took them.
    pub lockers: BTreeMap<(u64, bool), BTreeSet<Handle>>,
    /// The mount's last change of the name space that concerns the file.
    pub names_mark: u64,
    /// Those of a name or of attributes, of a directory one of its names.
    pub own: OwnChanges,
    /// Change version of what the kernel may have cached.
    pub cached: Option<u64>,
    /// It is open here and has no `security.capability`.
    pub plain: bool,
    /// Its state, for those that have it open, when it has no bytes and has lost its last name: the manager forgot it.
    pub unnamed: Option<Unnamed>,
}

/// Changes by this mount that a power cut may take: what is between the first of which no sync was known when it was
/// made and the last, both included. At first there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnChanges {
    pub first: u64,
    pub last: u64,
}

impl OwnChanges {
    /// Another change, number `now`, while all up to `synced` are on stable storage.
    pub fn and(self, now: u64, synced: u64) -> OwnChanges {
        let first = if self.last > synced { self.first.max(synced + 1) } else { now };
        OwnChanges { first, last: now }
    }

    /// Whether one of these may be among them.
    pub fn meets(self, lost: &Range<u64>) -> bool {
        self.first < lost.end && lost.start <= self.last
    }
}

impl File {
    pub fn new(cx: &Cx, id: FileId) -> File {
        let (used, state) = (Cell::default(), RefCell::default());
        File { id, used, state, changed: Notify::new(cx) }
    }
}

impl State {
    /// Attributes as an application on this client sees them.
    pub fn attr(&self) -> Attr {
        let attr = self.entry.attr;
        match self.local {
            None => attr,
            Some(local) => Attr {
                size: local.size,
                used: local.used,
                mtime: local.mtime,
                ctime: attr.ctime.max(local.mtime),
                ..attr
            },
        }
    }

    /// Length as an application on this client sees it.
    pub fn size(&self) -> u64 {
        self.local.map_or(self.entry.attr.size, |local| local.size)
    }

    /// Where a range ends; EFBIG when no file of this layout is so long. Told here, an error reaches the write that
    /// asks for it and not a later fsync.
    pub fn end_of(&self, offset: u64, bytes: u64) -> Result<u64, Errno> {
        let most = self.entry.layout.map_or(FILE_BYTES_MAX, |layout| layout.size_max());
        offset.checked_add(bytes).filter(|end| *end <= most).ok_or(Errno::EFBIG)
    }

    /// How the I/O servers are asked for the file; EINVAL when it has no bytes to ask for.
    pub fn reference(&self) -> Result<FileRef, Errno> {
        let layout = self.entry.layout.ok_or(Errno::EINVAL)?;
        let truncations = self.entry.truncations;
        Ok(FileRef { file: self.entry.attr.file, layout, truncations })
    }

    /// Whether the servers have everything that was written.
    pub fn is_sent(&self) -> bool {
        self.written.is_sent(self.written.mark())
    }

    /// The manager counts opens of the file that no handle has any more.
    pub fn is_left(&self) -> bool {
        self.writers == 0 && self.sessions > 0 || self.spare_readers() > 0
    }

    /// How many of them for reading.
    pub fn spare_readers(&self) -> u32 {
        self.readers.saturating_sub(self.handles - self.writers)
    }

    /// Nothing that was written or is held would be lost if the file were forgotten.
    pub fn is_idle(&self) -> bool {
        let open = self.handles + self.sessions + self.readers;
        open == 0 && !self.busy && self.written.is_empty() && self.lockers.is_empty()
    }

    /// Takes the manager's answer over, unless a newer one is known. A change of version that is not this client's own
    /// means that others wrote, or may be writing. While others write its length is a hint: not taken for a shorter
    /// file, and not for a fresh answer before the objects were asked. An answer may come late: what was learnt from
    /// a younger question stays. The data held here stays right when the manager goes back.
    pub fn absorb(&mut self, entry: Entry, asked: Time, now: Time) {
        let back = self.goes_back(&entry, asked);
        if !back && self.is_late(&entry, asked) {
            return;
        }
        (self.asked, self.heard) = (asked, now);
        self.unsure |= back && entry.layout.is_some();
        let cut = entry.truncations != self.entry.truncations;
        let foreign = entry.attr.change != self.entry.attr.change && !back;
        if cut || entry.writers || foreign {
            self.written.shadow_sent(cut);
        }
        // Writes of others change the version no sooner than they close the file.
        let changed = entry.attr.change != self.entry.attr.change;
        if changed || entry.writers {
            self.chunks.clear();
        }
        self.plain &= !changed;
        if let Some(local) = &mut self.local {
            let own = if cut { self.written.end() } else { local.size };
            local.size = own.max(entry.attr.size);
        }
        self.take(entry, now);
    }

    /// The manager's incarnation is this one now: a power cut between may have taken the end of a session, with the
    /// length, even where the change version does not show it. Versions of then may be given to other changes.
    pub fn note_incarnation(&mut self, incarnation: u32) {
        if self.is_told_before(incarnation) {
            self.told_incarnation = 0;
            (self.unsure, self.lost_session) = (true, true);
            (self.fresh, self.cached) = (None, None);
            self.chunks.clear();
            self.plain = false;
        }
    }

    /// Whether the last word on write sessions went to an incarnation of the manager before this one.
    pub fn is_told_before(&self, incarnation: u32) -> bool {
        self.told_incarnation != 0 && self.told_incarnation < incarnation
    }

    /// A write session began or ended while the manager's incarnation was this one, or a later one.
    pub fn tell_session(&mut self, incarnation: u32) {
        (self.told_incarnation, self.lost_session) = (incarnation, false);
    }

    /// The objects say how long the file is. When the manager said the same, it has lost nothing.
    pub fn measured(&mut self, size: u64) {
        self.entry.attr.size = self.entry.attr.size.max(size);
        let lost = self.entry.attr.size != self.said;
        self.unsure &= lost;
        self.lost_session &= lost || self.sessions > 0;
    }

    fn take(&mut self, mut entry: Entry, now: Time) {
        self.said = entry.attr.size;
        entry.unsure |= self.unsure;
        if entry.truncations == self.entry.truncations {
            // A power cut may have taken bytes before the manager asked the objects for the length: they are sent
            // again.
            let known = if entry.is_hint() { self.entry.attr.size } else { 0 };
            entry.attr.size = entry.attr.size.max(known).max(self.written.end());
        }
        self.fresh = (!entry.is_hint()).then_some(now);
        if let Some(layout) = &entry.layout {
            self.written.send_in(layout.even_bytes(SEND_BYTES_MAX));
        }
        self.entry = entry;
    }

    /// As [`absorb`](State::absorb), after a change that this client made: what it and its kernel hold stays right
    /// unless others changed the file too.
    pub fn absorb_own(&mut self, entry: Entry, asked: Time, now: Time) {
        let next = entry.attr.change <= self.entry.attr.change + 1;
        let alone = next && !entry.writers && !self.goes_back(&entry, asked);
        let cached = self.cached == Some(self.entry.attr.change);
        if !alone {
            self.absorb(entry, asked, now);
        } else if !self.is_late(&entry, asked) {
            (self.asked, self.heard) = (asked, now);
            self.take(entry, now);
        } else {
            // Known of a manager that had its power cut since, perhaps: it must be asked what holds now.
            self.fresh = None;
        }
        self.cached = (alone && cached).then_some(entry.attr.change);
    }

    /// This client has cut the file to this size, or made it as long. Of that it may have heard before the answer came:
    /// then what it held beyond the new end has made the file longer again.
    pub fn cut(&mut self, size: u64) {
        self.written.truncate(size);
        self.chunks.clear();
        self.entry.attr.size = self.said.max(self.written.end());
        self.local = self.local.map(|local| Local { size, ..local });
    }

    /// Whether something newer than this answer is known.
    fn is_late(&self, entry: &Entry, asked: Time) -> bool {
        (entry.attr.change, asked) < (self.entry.attr.change, self.asked)
    }

    /// Whether more is known here than this answer of the manager says.
    pub fn knows_more(&self, entry: &Entry, asked: Time) -> bool {
        self.local.is_some() || self.is_late(entry, asked) && !self.goes_back(entry, asked)
    }

    /// Whether a power cut took back what the manager had said before it was asked this.
    fn goes_back(&self, entry: &Entry, asked: Time) -> bool {
        entry.attr.change < self.entry.attr.change && asked > self.heard
    }

    /// The manager was told our length and said no more: it must be asked for the rest. A truncation meanwhile knows
    /// better how long the file is.
    pub fn forget_attributes(&mut self, told: Final, now: Time) {
        self.asked = now;
        if told.truncations == self.entry.truncations {
            self.entry.attr.size = told.size;
        }
        self.fresh = None;
        self.cached = None;
    }

    /// Bytes up to `end` were written at `now`.
    pub fn note_write(&mut self, bytes: u64, end: u64, now: Wall) {
        let attr = self.attr();
        let size = attr.size.max(end);
        let most = size.next_multiple_of(wire::limits::BLOCK_BYTES as u64).max(attr.used);
        let used = (attr.used + bytes).min(most);
        let inside = bytes > 0 && end.saturating_sub(bytes) < attr.size && attr.used < attr.size;
        let guessed = inside || self.local.is_some_and(|local| local.guessed);
        self.local = Some(Local { size, mtime: now, used, guessed });
    }

    /// How much room the file takes now, only the objects know.
    pub fn guess_used(&mut self) {
        self.local = self.local.map(|local| Local { guessed: true, ..local });
    }

    /// Written data is lost to `errno`.
    pub fn fail(&mut self, errno: Errno) {
        self.failure.count += 1;
        self.failure.errno = Some(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gather;
    use endpoint::{Frames, HeapRegion};

    fn entry(change: u64, size: u64, truncations: u32) -> Entry {
        let attr = Attr { change, size, ..Attr::default() };
        Entry { attr, truncations, ..Entry::default() }
    }

    #[test]
    fn a_file_is_as_long_as_what_is_held_of_it_until_it_is_cut() {
        let (pool, mut state) = (Frames::new(HeapRegion::new(1 << 20)), State::default());
        state.absorb(entry(1, 100, 3), Time(1), Time(2));
        let held = Gather::new(vec![pool.alloc_exact(50).unwrap().freeze()]);
        state.written.write(100, held, Time(3));
        state.absorb(entry(2, 90, 3), Time(4), Time(5));
        assert_eq!(state.size(), 150, "the objects have lost it, and will have it again");
        state.absorb(entry(3, 90, 4), Time(6), Time(7));
        assert_eq!(state.size(), 90);
    }

    #[test]
    fn a_manager_that_goes_back_is_believed_and_a_late_answer_is_not() {
        let mut state = State::default();
        state.absorb(entry(10, 100, 3), Time(4), Time(6));
        state.absorb(entry(9, 90, 3), Time(5), Time(7));
        assert_eq!(state.entry.attr.size, 100, "it was on its way before");
        state.absorb(entry(8, 80, 4), Time(7), Time(8));
        assert_eq!((state.entry.attr.size, state.entry.truncations), (80, 4), "a power cut");
        state.absorb_own(entry(7, 70, 5), Time(9), Time(10));
        assert_eq!((state.entry.attr.size, state.entry.truncations), (70, 5));
        state.absorb_own(entry(6, 60, 6), Time(9), Time(11));
        assert_eq!((state.entry.attr.size, state.fresh), (70, None));
    }

    /// While the answer is on its way others of this mount open the file, and hear of its new length.
    #[test]
    fn a_cut_of_which_is_heard_before_its_answer_cuts_what_is_held_too() {
        for asked in [Time(3), Time(9)] {
            let (pool, mut state) = (Frames::new(HeapRegion::new(1 << 20)), State::default());
            state.absorb(entry(1, 100, 3), Time(1), Time(2));
            let held = Gather::new(vec![pool.alloc_exact(50).unwrap().freeze()]);
            state.written.write(100, held, Time(2));
            state.note_write(50, 150, Wall::default());
            state.absorb(entry(2, 80, 4), Time(4), Time(5));
            state.absorb(entry(2, 80, 4), Time(6), Time(7));
            state.cut(80);
            state.absorb_own(entry(2, 80, 4), asked, Time(10));
            assert_eq!((state.size(), state.entry.attr.size), (80, 80), "asked at {asked:?}");
        }
    }

    #[test]
    fn what_is_written_over_is_a_guess_at_storage_only_where_a_file_has_holes() {
        let mut state = State::default();
        let mut write = |from: u64, to: u64| {
            state.note_write(to - from, to, Wall::default());
            state.local.is_some_and(|local| local.guessed)
        };
        assert!(!write(0, 100) && !write(100, 200) && !write(50, 150), "it has no holes");
        assert!(!write(10_000, 10_100), "only that it got longer");
        assert!(write(10_050, 10_100));
        assert!(write(10_100, 10_200), "and stays one");
    }

    #[test]
    fn a_close_says_no_length_of_before_a_truncation() {
        let mut state = State::default();
        state.absorb(entry(1, 100, 0), Time(1), Time(2));
        let told = Final { size: 100, ..Final::default() };
        state.absorb_own(entry(2, 10, 1), Time(3), Time(4));
        state.forget_attributes(told, Time(5));
        assert_eq!((state.entry.attr.size, state.fresh), (10, None));
        state.forget_attributes(Final { size: 20, truncations: 1, ..told }, Time(6));
        assert_eq!(state.entry.attr.size, 20);
    }

    /// A change after a power cut, before a sync has told of the cut, hides none that was made before it.
    #[test]
    fn a_later_change_hides_no_earlier_one_that_is_not_synced() {
        let one = OwnChanges::default().and(3, 2);
        let two = one.and(4, 2);
        assert!(two.meets(&(3..4)) && two.meets(&(3..9)) && !two.meets(&(5..9)));
        let later = two.and(7, 5);
        assert!(!later.meets(&(3..5)) && later.meets(&(6..8)), "the first ones are synced");
        assert!(!OwnChanges::default().meets(&(1..9)));
    }
}
