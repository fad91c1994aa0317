//! Records from a stream that arrives in any pieces.

use super::writer::MARK_BYTES;
use crate::limits::{FRAGMENTS_MAX, IO_BYTES_MAX, STAGING_BYTES};
use crate::xdr::padding;
use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, FrameMut, Frames};
use std::io::IoSliceMut;

/// Sizes of runs for the data of one record, best first: in a fragmented pool many small ones serve as well.
const RUNS_BYTES: [usize; 4] = [IO_BYTES_MAX, IO_BYTES_MAX / 8, IO_BYTES_MAX / 64, PAGE_BYTES];
/// Data shorter than this is copied: no guess is worth it.
const GUESS_BYTES_MIN: usize = PAGE_BYTES;

/// The layout of a record, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing yet.
    More,
    /// All of it is head.
    Head,
    /// Behind so many bytes of head follow so many of data, then padding.
    Data {
        /// Bytes before the data.
        head_bytes: usize,
        /// Bytes of data.
        data_bytes: usize,
    },
}

/// A whole record.
#[derive(Debug, Default)]
pub struct Record {
    /// The head, or all of it.
    pub head: Vec<u8>,
    /// The data, page-aligned, in order.
    pub data: Vec<Frame>,
}

impl Record {
    /// Bytes of data.
    pub fn data_bytes(&self) -> usize {
        self.data.iter().map(|frame| frame.len()).sum()
    }
}

/// Progress of a reader.
#[derive(Debug)]
pub enum Progress {
    /// A record is whole.
    Record(Record),
    /// It needs more bytes of the stream.
    Bytes,
    /// It needs frames, and the pool has none: to be asked again when some came back.
    Frames,
}

/// Why a stream ends: nothing behind this can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The head is longer than any call's.
    #[error("a record whose head has more than {0} bytes")]
    HeadTooLong(usize),
    /// The data is longer than FSINFO allows.
    #[error("a record with {0} bytes of data, {IO_BYTES_MAX} is the most")]
    DataTooLong(usize),
    /// The record has not the length that its data needs.
    #[error("a record that ends within its data, or goes on behind it")]
    WrongLength,
    /// More fragments than anyone sends.
    #[error("a record of more than {FRAGMENTS_MAX} fragments")]
    Fragments,
}

/// Data that is arriving.
struct Arriving {
    /// Whole pages each, but for the last.
    runs: Vec<FrameMut>,
    /// Bytes that are there.
    filled: usize,
    bytes: usize,
}

impl Arriving {
    /// Room for so many bytes, of which `filled` are in `first`; gives `first` back when the pool has too little.
    fn begin(
        bytes: usize,
        first: Option<FrameMut>,
        filled: usize,
        frames: &Frames,
    ) -> Result<Arriving, Option<FrameMut>> {
        let mut runs = Vec::from_iter(first);
        let mut room: usize = runs.iter().map(|run| run.len()).sum();
        while room < bytes {
            let Some(run) = run(bytes - room, frames) else {
                return Err(if filled > 0 { runs.drain(..).next() } else { None });
            };
            room += run.len();
            runs.push(run);
        }
        if let Some(last) = runs.last_mut() {
            last.truncate(last.len() - (room - bytes));
        }
        Ok(Arriving { runs, filled, bytes })
    }

    fn missing_bytes(&self) -> usize {
        self.bytes - self.filled
    }

    /// The next places, so many bytes of them.
    fn places(&mut self, mut most: usize) -> impl Iterator<Item = &mut [u8]> {
        let mut skip = self.filled;
        self.runs.iter_mut().filter_map(move |run| {
            let from = skip.min(run.len());
            let to = run.len().min(from.saturating_add(most));
            skip -= from;
            most -= to - from;
            (from < to).then(|| &mut run[from..to])
        })
    }

    fn copy(&mut self, mut bytes: &[u8]) {
        let all = bytes.len();
        for place in self.places(all) {
            let (now, later) = bytes.split_at(place.len());
            place.copy_from_slice(now);
            bytes = later;
        }
        assert!(bytes.is_empty(), "no more than is missing");
        self.filled += all;
    }

    fn done(self) -> Vec<Frame> {
        self.runs.into_iter().map(FrameMut::freeze).collect()
    }
}

/// A run for the next of so many bytes: all of them, or whole pages.
fn run(bytes: usize, frames: &Frames) -> Option<FrameMut> {
    let shorter = RUNS_BYTES.into_iter().filter(|run| *run < bytes);
    frames.alloc_exact(bytes).or_else(|| shorter.into_iter().find_map(|run| frames.alloc(run)))
}

/// State of the record.
enum State {
    Head,
    /// The head is whole, and what of the data came with it; there were no frames for so many bytes yet.
    Waiting(usize, Vec<u8>),
    Data(Arriving),
    /// So many bytes of padding follow.
    Padding(usize, Vec<Frame>),
}

/// Layout of the next record if it is like the last one.
struct Guess {
    /// Bytes of mark and head.
    head_bytes: usize,
    data_bytes: usize,
    run: Option<FrameMut>,
    /// Bytes that are in the run.
    landed: usize,
}

/// Bytes of each place that the stream was given: staging, data, staging.
#[derive(Default)]
struct Given {
    before: usize,
    data: usize,
    after: usize,
}

/// The records of one stream. Commands: [`slices`](Reader::slices) and [`filled`](Reader::filled) in turns;
/// [`poll`](Reader::poll) between them, until it needs bytes.
pub struct Reader {
    head_bytes_max: usize,
    staging: Vec<u8>,
    /// The bytes of `staging` that were not parsed yet: first, and end.
    start: usize,
    end: usize,
    /// Bytes of the fragment that are not taken.
    fragment: usize,
    /// Fragments of the record that began.
    fragments: u32,
    /// Whether the fragment is the record's last.
    last: bool,
    head: Vec<u8>,
    state: State,
    guess: Option<Guess>,
    given: Given,
}

impl Reader {
    /// Of a stream whose heads have at most so many bytes.
    pub fn new(head_bytes_max: usize) -> Reader {
        Reader {
            head_bytes_max,
            staging: Vec::new(),
            start: 0,
            end: 0,
            fragment: 0,
            fragments: 0,
            last: false,
            head: Vec::new(),
            state: State::Head,
            guess: None,
            given: Given::default(),
        }
    }

    /// Whether the stream is between two records.
    pub fn is_at_rest(&self) -> bool {
        self.fragments == 0 && self.start == self.end
    }

    /// Bytes of memory beside frames: what an idle connection costs.
    pub fn memory_bytes(&self) -> usize {
        self.staging.capacity() + self.head.capacity()
    }

    /// Bytes of data of the record that is arriving, in frames.
    pub fn data_bytes(&self) -> usize {
        match &self.state {
            State::Data(arriving) => arriving.bytes,
            State::Padding(_, data) => data.iter().map(|frame| frame.len()).sum(),
            _ => 0,
        }
    }

    /// Gives the staging area back while the stream is at rest: of ten thousand connections most are idle.
    pub fn release(&mut self) {
        if self.is_at_rest() {
            (self.staging, self.guess) = (Vec::new(), None);
            (self.start, self.end) = (0, 0);
        }
    }

    /// Buffers for the next bytes of the stream, in order; none while the reader needs frames.
    pub fn slices(&mut self, frames: &Frames) -> impl Iterator<Item = IoSliceMut<'_>> {
        self.make_room();
        let given = self.give(frames);
        let Reader { staging, end, state, guess, .. } = self;
        let (before, after) = staging[*end..].split_at_mut(given.before);
        let after = &mut after[..given.after];
        let run = match (&mut *state, guess) {
            (State::Head, Some(guess)) => guess.run.as_deref_mut(),
            _ => None,
        };
        let arriving = match state {
            State::Data(arriving) => Some(arriving.places(given.data)),
            _ => None,
        };
        self.given = given;
        let data = run.into_iter().chain(arriving.into_iter().flatten());
        let all = std::iter::once(before).chain(data).chain(std::iter::once(after));
        all.filter(|slice| !slice.is_empty()).map(IoSliceMut::new)
    }

    /// Moves what is in the staging area to its front, where it is small, and cuts what a wrong guess added.
    fn make_room(&mut self) {
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.staging.resize(STAGING_BYTES.max(self.end), 0);
    }

    fn give(&mut self, frames: &Frames) -> Given {
        let free = self.staging.len() - self.end;
        let at_rest = self.is_at_rest();
        match (&self.state, &mut self.guess) {
            (State::Waiting(..), _) => Given::default(),
            (State::Data(arriving), guess) if self.end == 0 => {
                let missing = arriving.missing_bytes();
                let next = guess.as_ref().map(|guess| padding(arriving.bytes) + guess.head_bytes);
                let after = next.unwrap_or(free).min(free);
                Given { before: 0, data: missing.min(self.fragment), after }
            }
            (State::Head, Some(guess)) if at_rest && guess.head_bytes <= free => {
                guess.run = frames.alloc(guess.data_bytes);
                let data = guess.run.as_ref().map_or(0, |run| run.len());
                Given { before: if data == 0 { free } else { guess.head_bytes }, data, after: 0 }
            }
            _ => Given { before: free, data: 0, after: 0 },
        }
    }

    /// So many bytes came into the last slices.
    pub fn filled(&mut self, bytes: usize) {
        let Given { before, data, after } = std::mem::take(&mut self.given);
        assert!(bytes <= before + data + after, "no more than there was room for");
        let (staged, rest) = (bytes.min(before), bytes.saturating_sub(before));
        let (landed, behind) = (rest.min(data), rest.saturating_sub(data));
        match (&mut self.state, &mut self.guess) {
            (State::Data(arriving), _) => {
                arriving.filled += landed;
                self.fragment -= landed;
            }
            (_, Some(guess)) if landed > 0 => guess.landed = landed,
            (_, Some(guess)) => guess.run = None,
            _ => {}
        }
        self.end += staged + behind;
    }

    /// The next record. `plan` is asked with the first bytes of each, and answers the same however many there are.
    pub fn poll(
        &mut self,
        frames: &Frames,
        plan: &mut dyn FnMut(&[u8]) -> Plan,
    ) -> Result<Progress, RecordError> {
        if self.guess.as_ref().is_some_and(|guess| guess.landed > 0) {
            self.settle(frames, plan)?;
        }
        loop {
            let step = match std::mem::replace(&mut self.state, State::Head) {
                State::Head => self.poll_head(plan)?,
                State::Waiting(bytes, begun) => self.poll_waiting(bytes, begun, frames),
                State::Data(arriving) => self.poll_data(arriving)?,
                State::Padding(left, data) => self.poll_padding(left, data)?,
            };
            if let Some(progress) = step {
                return Ok(progress);
            }
        }
    }

    /// The data of a guess stays where it is when the head is as long as it was thought; else it is copied to where it
    /// would have come without the guess.
    fn settle(
        &mut self,
        frames: &Frames,
        plan: &mut dyn FnMut(&[u8]) -> Plan,
    ) -> Result<(), RecordError> {
        let guess = self.guess.as_mut().expect("a guess landed");
        let (landed, head_bytes) = (std::mem::take(&mut guess.landed), guess.head_bytes);
        let run = guess.run.take().expect("what landed has a run");
        let record = &self.staging[self.start..self.end];
        assert_eq!(record.len(), head_bytes, "data comes behind a whole head");
        let (length, last) = mark(record);
        if let Plan::Data { head_bytes: found, data_bytes } = plan(&record[MARK_BYTES..]) {
            let whole = found + data_bytes + padding(data_bytes);
            if last && length == whole && found + MARK_BYTES == head_bytes {
                return self.accept(run, landed, data_bytes, frames);
            }
        }
        self.stage(&run[..landed]);
        Ok(())
    }

    fn accept(
        &mut self,
        run: FrameMut,
        landed: usize,
        data_bytes: usize,
        frames: &Frames,
    ) -> Result<(), RecordError> {
        check_data(data_bytes)?;
        let head = &self.staging[self.start..self.end];
        self.head.extend_from_slice(&head[MARK_BYTES..]);
        self.start = self.end;
        (self.fragments, self.last) = (1, true);
        let of_data = landed.min(data_bytes);
        self.fragment = data_bytes + padding(data_bytes) - of_data;
        if landed > data_bytes {
            self.stage(&run[data_bytes..landed]);
        }
        let begun = Arriving::begin(data_bytes, Some(run), of_data, frames);
        self.state = match begun {
            Ok(arriving) => State::Data(arriving),
            Err(run) => {
                let copy = run.map_or(Vec::new(), |run| run[..of_data].to_vec());
                State::Waiting(data_bytes, copy)
            }
        };
        Ok(())
    }

    fn stage(&mut self, bytes: &[u8]) {
        self.staging.truncate(self.end);
        self.staging.extend_from_slice(bytes);
        self.end = self.staging.len();
    }

    fn poll_head(
        &mut self,
        plan: &mut dyn FnMut(&[u8]) -> Plan,
    ) -> Result<Option<Progress>, RecordError> {
        if self.fragment == 0 {
            if self.fragments > 0 && self.last {
                return Ok(Some(self.finish(Vec::new())));
            }
            return self.take_mark(State::Head);
        }
        let ready = self.fragment.min(self.end - self.start);
        if ready == 0 {
            return Ok(Some(Progress::Bytes));
        }
        let begun = self.head.len();
        self.head.extend_from_slice(&self.staging[self.start..self.start + ready]);
        let Plan::Data { head_bytes, data_bytes } = plan(&self.head) else {
            self.consume(ready);
            return self.check_head().map(|()| None);
        };
        check_data(data_bytes)?;
        // a plan is known at the latest with the head's last byte, so what is behind it came just now
        let taken = head_bytes.checked_sub(begun).filter(|taken| *taken <= ready);
        let taken = taken.ok_or(RecordError::WrongLength)?;
        self.head.truncate(head_bytes);
        self.consume(taken);
        self.check_head()?;
        if self.last && self.fragment != data_bytes + padding(data_bytes) {
            return Err(RecordError::WrongLength);
        }
        self.remember(head_bytes, data_bytes);
        self.state = State::Waiting(data_bytes, Vec::new());
        Ok(None)
    }

    fn check_head(&self) -> Result<(), RecordError> {
        match self.head.len() > self.head_bytes_max {
            true => Err(RecordError::HeadTooLong(self.head_bytes_max)),
            false => Ok(()),
        }
    }

    fn remember(&mut self, head_bytes: usize, data_bytes: usize) {
        let guess = |head_bytes| Guess { head_bytes, data_bytes, run: None, landed: 0 };
        let worth = data_bytes >= GUESS_BYTES_MIN && head_bytes < STAGING_BYTES / 2;
        self.guess = worth.then(|| guess(MARK_BYTES + head_bytes));
    }

    fn poll_waiting(&mut self, bytes: usize, begun: Vec<u8>, frames: &Frames) -> Option<Progress> {
        if let Ok(mut arriving) = Arriving::begin(bytes, None, 0, frames) {
            arriving.copy(&begun);
            self.state = State::Data(arriving);
            return None;
        }
        self.state = State::Waiting(bytes, begun);
        Some(Progress::Frames)
    }

    fn poll_data(&mut self, mut arriving: Arriving) -> Result<Option<Progress>, RecordError> {
        let ready = self.fragment.min(self.end - self.start).min(arriving.missing_bytes());
        arriving.copy(&self.staging[self.start..self.start + ready]);
        self.consume(ready);
        if arriving.missing_bytes() == 0 {
            self.state = State::Padding(padding(arriving.bytes), arriving.done());
            return Ok(None);
        }
        if self.fragment > 0 {
            self.state = State::Data(arriving);
            return Ok(Some(Progress::Bytes));
        }
        self.take_mark(State::Data(arriving))
    }

    fn poll_padding(
        &mut self,
        left: usize,
        data: Vec<Frame>,
    ) -> Result<Option<Progress>, RecordError> {
        let ready = self.fragment.min(self.end - self.start).min(left);
        self.consume(ready);
        let left = left - ready;
        match (left, self.fragment, self.last) {
            (0, 0, true) => Ok(Some(self.finish(data))),
            (_, 0, _) => self.take_mark(State::Padding(left, data)),
            (0, ..) => Err(RecordError::WrongLength),
            _ => {
                self.state = State::Padding(left, data);
                Ok(Some(Progress::Bytes))
            }
        }
    }

    /// Goes on in `state` behind the next mark.
    fn take_mark(&mut self, state: State) -> Result<Option<Progress>, RecordError> {
        if self.fragments > 0 && self.last {
            return Err(RecordError::WrongLength);
        }
        self.state = state;
        let bytes = &self.staging[self.start..self.end];
        if bytes.len() < MARK_BYTES {
            return Ok(Some(Progress::Bytes));
        }
        if self.fragments == FRAGMENTS_MAX {
            return Err(RecordError::Fragments);
        }
        (self.fragment, self.last) = mark(bytes);
        self.fragments += 1;
        self.start += MARK_BYTES;
        Ok(None)
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.fragment -= bytes;
    }

    fn finish(&mut self, data: Vec<Frame>) -> Progress {
        (self.fragments, self.last) = (0, false);
        if data.is_empty() {
            self.guess = None;
        }
        Progress::Record(Record { head: std::mem::take(&mut self.head), data })
    }
}

fn check_data(bytes: usize) -> Result<(), RecordError> {
    if bytes > IO_BYTES_MAX { Err(RecordError::DataTooLong(bytes)) } else { Ok(()) }
}

/// A fragment's length, and whether it is the last.
fn mark(bytes: &[u8]) -> (usize, bool) {
    let mark = u32::from_be_bytes(*bytes.first_chunk().expect("the bytes of a mark"));
    ((mark & !(1 << 31)) as usize, mark >> 31 == 1)
}
