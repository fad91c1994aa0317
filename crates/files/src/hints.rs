//! Files that applications say they will read soon, in order: the servers bring them from their disks into memory, and
//! this client reads the next few files ahead as their reader comes near.
//!
//! [`Hints`] plans and remembers names and offsets only. Its read-ahead becomes chunks as that of a sequential reader
//! does, with the same bounds and consistency; within a long file that read-ahead goes on alone.
//! Hints are only hints: wrong ones cost reads that no application waits for.

use crate::Files;
use crate::chunks::{Arrived, NO_READER};
use crate::limits::*;
use crate::table::Open;
use node::rings::{FileReply, Handle};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use stripe::limits::HINT_BYTES_MAX;
use wire::{Errno, FileId, Time};

const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;

/// A range of a file that will be read, at most [`HINT_BYTES_MAX`] long.
#[derive(Clone, Debug)]
struct Hint {
    file: FileId,
    range: Range<u64>,
    /// It goes on where the one before it ends: a sequential reader's read-ahead brings it.
    continues: bool,
    noted: Time,
    told: bool,
    fetched: bool,
}

impl Hint {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Something to do for hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Tell the servers.
    Tell(FileId, Range<u64>),
    /// Read ahead, as much as one chunk has.
    Fetch(FileId, Range<u64>),
}

/// The hints that no reader has come to, in the order in which they were given.
#[derive(Debug)]
pub struct Hints {
    list: BTreeMap<u64, Hint>,
    places: BTreeMap<(FileId, u64), u64>,
    last: u64,
    told: u64,
    told_bytes: u64,
    /// How many of the next hints this client reads ahead.
    depth: usize,
    steps: VecDeque<Step>,
    window: Window,
}

/// The hints behind the reader's that the servers are told of, as many as they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// The reader has come here.
    reader: u64,
    /// From here on they may not have been told.
    end: u64,
    hints: usize,
    bytes: u64,
}

impl Window {
    fn has(&self, number: u64) -> bool {
        self.reader < number && number < self.end
    }

    fn is_full(&self) -> bool {
        self.hints == HINTS_TOLD_MAX || self.bytes >= HINTED_BYTES_MAX
    }

    fn add(&mut self, number: u64, hint: &Hint) {
        assert!(number >= self.end, "hints are told in order");
        self.end = number + 1;
        self.hints += 1;
        self.bytes += hint.bytes();
    }

    fn remove(&mut self, hint: &Hint) {
        self.hints -= 1;
        self.bytes -= hint.bytes();
    }
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            list: BTreeMap::new(),
            places: BTreeMap::new(),
            last: 0,
            told: 0,
            told_bytes: 0,
            depth: HINT_DEPTH_MIN,
            steps: VecDeque::new(),
            window: Window::default(),
        }
    }
}

impl Hints {
    /// How many there are.
    pub fn len(&self) -> usize {
        assert_eq!(self.list.len(), self.places.len(), "every hint has its place");
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many of the next are read ahead here.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// `range` of `file` will be read after all that was named before. How many of its bytes are noted: the first ones,
    /// when there are too many hints. A range named again is moved to the end.
    pub fn handle_hint(&mut self, file: FileId, range: Range<u64>, now: Time) -> u64 {
        let mut at = range.start - range.start % wire::limits::BLOCK_BYTES as u64;
        while at < range.end {
            let end = range.end.min((at + 1).next_multiple_of(HINT_BYTES_MAX));
            self.remove_at(file, at);
            self.expire(now);
            if self.list.len() >= HINTS_MAX {
                break;
            }
            self.last += 1;
            let continues = at > range.start;
            let hint =
                Hint { file, range: at..end, continues, noted: now, told: false, fetched: false };
            self.places.insert((file, at), self.last);
            self.list.insert(self.last, hint);
            if self.told < HINTS_TOLD_MAX as u64 && self.told_bytes < HINTED_BYTES_MAX {
                self.tell(self.last);
            }
            at = end;
        }
        at.saturating_sub(range.start).min(range.end - range.start)
    }

    /// A read of `file` at `offset`. When a hint named it, that is done with, and the reader has come to the ones after
    /// it: whether the hint was read ahead.
    pub fn handle_read(&mut self, file: FileId, offset: u64) -> Option<bool> {
        let (_, place) = self.places.range(..=(file, offset)).next_back()?;
        let (place, hint) = (*place, &self.list[place]);
        if hint.file != file || hint.range.end <= offset {
            return None;
        }
        let fetched = self.remove(place).fetched;
        self.plan_after(place);
        Some(fetched)
    }

    /// Data read ahead for a hint came too `late` for its reader; or else so early that it had grown too old.
    pub fn handle_miss(&mut self, late: bool) {
        let depth = if late { self.depth * 2 } else { self.depth / 2 };
        self.depth = depth.clamp(HINT_DEPTH_MIN, HINT_DEPTH_MAX);
    }

    /// The next step to take.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// The reader has come to the hints after this place: the next few are read ahead, and the servers told of more.
    fn plan_after(&mut self, place: u64) {
        let mut ahead_bytes = 0;
        for (_, hint) in self.list.range_mut(place + 1..).take(self.depth) {
            if ahead_bytes >= AHEAD_BYTES_MAX {
                break;
            }
            if !hint.fetched && !hint.continues {
                hint.fetched = true;
                self.steps.push_back(Step::Fetch(hint.file, hint.range.clone()));
            }
            ahead_bytes += hint.bytes().min(CHUNK_BYTES);
        }
        self.move_window(place);
        while !self.window.is_full() {
            let next = self.list.range(self.window.end..).next();
            let Some((&number, hint)) = next else { return };
            self.window.add(number, hint);
            if !hint.told {
                self.tell(number);
            }
        }
    }

    /// Hints between the reader's last place and this one were passed over; one that went back begins anew.
    fn move_window(&mut self, place: u64) {
        assert_ne!(place, self.window.reader, "a hint is done with at its first read");
        if place < self.window.reader {
            self.window = Window::default();
        }
        for (number, hint) in self.list.range(self.window.reader + 1..=place) {
            if self.window.has(*number) {
                self.window.remove(hint);
            }
        }
        self.window.reader = place;
        self.window.end = self.window.end.max(place + 1);
    }

    fn tell(&mut self, number: u64) {
        let hint = self.list.get_mut(&number).expect("a hint of the list");
        assert!(!hint.told, "the servers are told once");
        hint.told = true;
        self.told += 1;
        self.told_bytes += hint.bytes();
        self.steps.push_back(Step::Tell(hint.file, hint.range.clone()));
    }

    fn remove_at(&mut self, file: FileId, offset: u64) {
        if let Some(number) = self.places.get(&(file, offset)) {
            self.remove(*number);
        }
    }

    fn remove(&mut self, number: u64) -> Hint {
        let hint = self.list.remove(&number).expect("a hint of the list");
        self.places.remove(&(hint.file, hint.range.start)).expect("every hint has its place");
        if hint.told {
            self.told -= 1;
            self.told_bytes -= hint.bytes();
        }
        if self.window.has(number) {
            self.window.remove(&hint);
        }
        hint
    }

    /// Hints that no reader came to in a long time make room when there is none: who gave them may be gone.
    fn expire(&mut self, now: Time) {
        let is_full = |hints: &Hints| {
            hints.list.len() >= HINTS_MAX
                || hints.told >= HINTS_TOLD_MAX as u64
                || hints.told_bytes >= HINTED_BYTES_MAX
        };
        while is_full(self) {
            let Some((number, oldest)) = self.list.first_key_value() else { return };
            if now.since(oldest.noted) < HINT_AGE_MAX {
                return;
            }
            self.remove(*number);
        }
    }
}

impl Files {
    /// An application will read `bytes` bytes of an open file from `offset` soon, all that follow if it says 0. Returns
    /// when the servers were told, as far as they are told in advance; how many bytes are noted.
    pub(crate) async fn prefetch(
        &self,
        handle: Handle,
        offset: u64,
        bytes: u64,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        if open.flags & O_ACCMODE == O_WRONLY {
            return Err(Errno::EBADF);
        }
        open.file.state.borrow().reference()?;
        let size = open.file.state.borrow().size();
        let end = if bytes == 0 { size } else { offset.saturating_add(bytes).min(size) };
        if offset >= end {
            return Ok(FileReply::Offset(0));
        }
        if let Some(import) = open.file.import() {
            self.fetch_imported(import, &open.file, offset..end).await?;
            return Ok(FileReply::Offset(end - offset));
        }
        let now = self.cx.now();
        let noted = self.hints.borrow_mut().handle_hint(open.file.id, offset..end, now);
        if noted == 0 {
            return Err(Errno::EAGAIN);
        }
        while let Some(step) = self.next_step() {
            let Step::Tell(file, range) = step else { continue };
            if self.tell_servers(file, range).await == 0 {
                break; // away, or busy: the reader finds out
            }
        }
        Ok(FileReply::Offset(noted))
    }

    fn next_step(&self) -> Option<Step> {
        self.hints.borrow_mut().poll_step()
    }

    /// Notes a read: the hints after the one that named it are due.
    pub(crate) fn follow_hints(&self, open: &Open, offset: u64) {
        if self.hints.borrow().is_empty() {
            return;
        }
        let Some(fetched) = self.hints.borrow_mut().handle_read(open.file.id, offset) else {
            return;
        };
        if fetched {
            match open.file.state.borrow().chunks.arrived(offset) {
                Arrived::Whole => self.counters.hinted_reads.add(1),
                Arrived::UnderWay => self.hints.borrow_mut().handle_miss(true),
                Arrived::Nothing => self.hints.borrow_mut().handle_miss(false),
            }
        }
        self.forget_fetched();
        while let Some(step) = self.next_step() {
            match step {
                Step::Tell(file, range) => self.tells.push((file, range)),
                Step::Fetch(file, range) => self.fetch_hinted(file, range),
            }
        }
    }

    fn fetch_hinted(&self, id: FileId, range: Range<u64>) {
        let Some(file) = self.table.borrow_mut().get(id) else { return };
        {
            let mut state = file.state.borrow_mut();
            let end = range.end.min(range.start.saturating_add(CHUNK_BYTES)).min(state.size());
            if range.start >= end || state.entry.writers || state.reference().is_err() {
                return;
            }
            if !self.push_ahead(&file, &mut state.chunks, NO_READER, range.start..end) {
                return;
            }
        }
        self.fetched.borrow_mut().push_back((self.cx.now(), file));
    }

    /// Forgets data read ahead for which no reader came in time.
    pub(crate) fn forget_fetched(&self) {
        let now = self.cx.now();
        let mut fetched = self.fetched.borrow_mut();
        while fetched.front().is_some_and(|(since, _)| now.since(*since) > AHEAD_AGE_MAX) {
            let (_, file) = fetched.pop_front().expect("there is a first");
            file.state.borrow_mut().chunks.forget_old(now);
        }
    }

    pub(crate) fn start_hint_loop(&self) {
        self.cx.spawn("files: hints", self.clone().hint_loop());
    }

    async fn hint_loop(self) {
        loop {
            let (file, range) = self.tells.next().await;
            self.tell_servers(file, range).await;
        }
    }

    async fn tell_servers(&self, id: FileId, range: Range<u64>) -> u64 {
        let Some(file) = self.table.borrow_mut().get(id) else { return 0 };
        let reference = file.state.borrow().reference();
        match reference {
            Ok(reference) => self.stripe.prefetch(&reference, range).await,
            Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn steps(hints: &mut Hints) -> Vec<Step> {
        std::iter::from_fn(|| hints.poll_step()).collect()
    }

    /// The window, counted anew.
    fn counted(hints: &Hints) -> Window {
        let mut window =
            Window { end: hints.window.reader + 1, hints: 0, bytes: 0, ..hints.window };
        let told = hints.list.iter().filter(|(number, _)| hints.window.has(**number));
        told.for_each(|(number, hint)| window.add(*number, hint));
        Window { end: hints.window.end, ..window }
    }

    fn is_tell(step: &&Step) -> bool {
        matches!(step, Step::Tell(..))
    }

    #[test]
    fn the_servers_are_told_in_order_and_the_next_files_are_read_as_the_reader_comes_near() {
        let mut hints = Hints::default();
        for file in 0..10 {
            assert_eq!(hints.handle_hint(FileId(file), 0..5000, Time::ZERO), 5000);
        }
        let told: Vec<Step> = (0..10).map(|file| Step::Tell(FileId(file), 0..5000)).collect();
        assert_eq!(steps(&mut hints), told);
        assert_eq!(hints.handle_read(FileId(0), 0), Some(false));
        let fetch = |file| Step::Fetch(FileId(file), 0..5000);
        assert_eq!(steps(&mut hints), [fetch(1), fetch(2)]);
        assert_eq!(hints.handle_read(FileId(1), 4096), Some(true));
        assert_eq!(steps(&mut hints), [fetch(3)]);
        hints.handle_miss(true);
        assert_eq!(hints.handle_read(FileId(2), 0), Some(true));
        assert_eq!(steps(&mut hints), [fetch(4), fetch(5), fetch(6)]);
        assert_eq!(hints.handle_read(FileId(2), 0), None, "it is done with");
        assert_eq!(hints.handle_read(FileId(77), 0), None);
        assert_eq!(hints.len(), 7);
    }

    #[test]
    fn a_long_file_is_told_in_pieces_and_only_its_start_is_read_as_a_hint() {
        let mut hints = Hints::default();
        let bytes = 3 * HINT_BYTES_MAX + 1;
        hints.handle_hint(FileId(1), 0..1, Time::ZERO);
        assert_eq!(hints.handle_hint(FileId(2), 0..bytes, Time::ZERO), bytes);
        assert_eq!(hints.len(), 5);
        steps(&mut hints);
        hints.handle_read(FileId(1), 0);
        assert_eq!(steps(&mut hints), [Step::Fetch(FileId(2), 0..HINT_BYTES_MAX)]);
    }

    #[test]
    fn old_hints_make_room_and_young_ones_do_not() {
        let mut hints = Hints::default();
        for file in 0..HINTS_MAX as u64 {
            hints.handle_hint(FileId(file), 0..1, Time::ZERO);
        }
        assert_eq!(hints.handle_hint(FileId(1 << 40), 0..1, Time::ZERO), 0);
        assert_eq!(hints.handle_hint(FileId(0), 0..1, Time::ZERO), 1, "it is moved");
        let later = Time::ZERO + HINT_AGE_MAX + Duration::from_secs(1);
        assert_eq!(hints.handle_hint(FileId(1 << 40), 0..1, later), 1);
        assert!(hints.len() <= HINTS_MAX);
    }

    proptest! {
        /// The table stays bounded, whatever is named and read in whatever order, and so is what the servers are told
        /// ahead of a reader and what this client reads ahead at one step.
        #[test]
        fn hints_stay_bounded(asked in prop::collection::vec((0u64..300, 0u64..1 << 25, any::<bool>()), 1..400)) {
            let mut hints = Hints::default();
            for (file, bytes, read) in asked {
                if read {
                    let is_hinted = hints.handle_read(FileId(file), bytes / 2).is_some();
                    let rest = hints.list.range(hints.window.end..).count();
                    prop_assert!(!is_hinted || rest == 0 || hints.window.is_full());
                    hints.handle_miss(bytes % 2 == 0);
                } else {
                    let noted = hints.handle_hint(FileId(file), bytes / 3..bytes, Time(bytes));
                    prop_assert!(noted <= bytes - bytes / 3);
                }
                prop_assert!(hints.len() <= HINTS_MAX);
                prop_assert_eq!(hints.window, counted(&hints));
                prop_assert!(hints.list.iter().all(|(at, hint)| !hints.window.has(*at) || hint.told));
                let steps = steps(&mut hints);
                prop_assert!(steps.iter().filter(|step| !is_tell(step)).count() <= HINT_DEPTH_MAX);
                prop_assert!(steps.iter().filter(is_tell).count() <= HINTS_TOLD_MAX);
            }
        }
    }
}
