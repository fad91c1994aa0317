//! Writes to one file that are not yet on its servers' stable storage: write-behind and the client's copy.
//!
//! ```text
//!   write        next_send        sent(Ok)        next_commit, committed(same verifier)
//!  ───────► Unsent ───────► Sending ───────► Sent ───────────────────────────────────► gone
//!              ▲               │ sent(Again)   │ committed(other verifier)
//!              └───────────────┴───────────────┘
//! ```
//!
//! A send that is all an fsync waits for may come back stable, and is gone then: no commit.
//!
//! It is a plain struct without a clock or calls: `write` sends and commits for it. The pieces are disjoint and
//! hold the newest bytes. Two sends of the same bytes are never under way together, so the servers see them in order.
//! Every piece remembers the oldest write that it stands for, so a newer write over it cannot make a flush or an fsync
//! end early.
//!
//! `V` tells which incarnation of which servers holds a sent piece, and as which write (`stripe::Verifiers`). A
//! retransmitted piece brings it along: the servers decide by it what is newer. Until then this client cannot know, so
//! what others may have written over is *shadowed*: reads take it from the servers.

use crate::gather::Gather;
use crate::limits::{SEND_BYTES_MAX, SEND_FRAMES_MAX, SENDS_PER_FILE};
use endpoint::{Frame, Frames};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use wire::Time;

/// Names a send under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// A point in the order of writes to the file: all that was written before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Bytes to send.
#[derive(Debug)]
pub struct Send<V> {
    /// To be given back with the result.
    pub ticket: Ticket,
    /// First byte in the file.
    pub offset: u64,
    /// At most [`SEND_BYTES_MAX`] bytes.
    pub data: Vec<Frame>,
    /// How many.
    pub bytes: u64,
    /// The incarnations that had them before and lost them, if they are retransmitted.
    pub earlier: Option<V>,
    /// A caller waits for them to be stable, and for nothing else: no commit is needed if the servers make them so at
    /// once.
    pub alone: bool,
}

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent<V> {
    /// The servers have the bytes.
    Kept(V),
    /// They have to be retransmitted.
    Again,
    /// On stable storage.
    Stable,
    /// They cannot be written; forget them.
    Dropped,
}

/// Meaning of a commit for one sent piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// On stable storage.
    Stable,
    /// A server forgot it: to be retransmitted.
    Lost,
    /// Nothing: the commit did not reach one of its servers, or failed there.
    Unknown,
    /// It cannot be made stable; forget it.
    Dropped,
}

#[derive(Clone, Debug)]
enum State<V> {
    Unsent,
    Sending(Ticket),
    Sent { verifiers: V, order: u64 },
}

#[derive(Clone, Debug)]
struct Piece<V> {
    data: Gather,
    bytes: u64,
    state: State<V>,
    /// The incarnation that had it before and lost it, while it is retransmitted.
    earlier: Option<V>,
    /// Another client may have written since it was sent.
    shadowed: bool,
    /// Another client may have cut it off.
    cut: bool,
    /// The oldest write whose bytes its servers lack until this is sent.
    sent_for: Mark,
    /// The oldest write whose bytes are not stable until this is.
    kept_for: Mark,
    since: Time,
}

#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    range: Range<u64>,
}

/// The written bytes of one file.
#[derive(Debug)]
pub struct Written<V> {
    pieces: BTreeMap<u64, Piece<V>>,
    unsent: BTreeSet<u64>,
    flights: Vec<Flight>,
    tickets: u64,
    writes: u64,
    sends: u64,
    send_goal: Mark,
    keep_goal: Mark,
    commit: Option<u64>,
    paused: bool,
    run: Range<u64>,
    /// Sends end at multiples of it.
    send_bytes: u64,
    unsent_held: u64,
    held: u64,
}

impl<V> Default for Written<V> {
    fn default() -> Written<V> {
        Written {
            pieces: BTreeMap::new(),
            unsent: BTreeSet::new(),
            flights: Vec::new(),
            tickets: 0,
            writes: 0,
            sends: 0,
            send_goal: Mark(0),
            keep_goal: Mark(0),
            commit: None,
            paused: false,
            run: 0..0,
            send_bytes: SEND_BYTES_MAX,
            unsent_held: 0,
            held: 0,
        }
    }
}

impl<V: Clone> Written<V> {
    /// Sends are to end at multiples of `bytes`, at most [`SEND_BYTES_MAX`].
    pub fn send_in(&mut self, bytes: u64) {
        self.send_bytes = bytes.min(SEND_BYTES_MAX);
    }

    /// Where a send that starts at `start` ends at the latest.
    fn send_end(&self, start: u64) -> u64 {
        (start / self.send_bytes + 1) * self.send_bytes
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.flights.is_empty() && self.commit.is_none()
    }

    /// Memory held by pieces that the servers lack, in bytes.
    pub fn unsent_held(&self) -> u64 {
        self.unsent_held
    }

    /// Memory held by all pieces, in bytes.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that may not be stable.
    pub fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.bytes).sum()
    }

    /// All that was written until now.
    pub fn mark(&self) -> Mark {
        Mark(self.writes)
    }

    /// Whether the servers have all that was written before `mark`.
    pub fn is_sent(&self, mark: Mark) -> bool {
        let mut unsent = self.unsent.iter().map(|start| &self.pieces[start]);
        !unsent.any(|piece| piece.sent_for <= mark)
            && !self.sending().any(|piece| piece.sent_for <= mark)
    }

    /// Whether all that was written before `mark` is on stable storage.
    pub fn is_kept(&self, mark: Mark) -> bool {
        !self.pieces.values().any(|piece| piece.kept_for <= mark)
    }

    /// Whether no send is under way.
    pub fn is_quiet(&self) -> bool {
        self.flights.is_empty()
    }

    /// Where the last piece ends that is surely part of the file; 0 when there is none.
    pub fn end(&self) -> u64 {
        let mut pieces = self.pieces.iter().rev().filter(|(_, piece)| !piece.cut);
        pieces.next().map_or(0, |(start, piece)| start + piece.bytes)
    }

    /// When the oldest piece was written.
    pub fn oldest(&self) -> Option<Time> {
        self.pieces.values().map(|piece| piece.since).min()
    }

    /// The pieces of `range`, as of now: to be laid over what the servers return.
    pub fn overlay(&self, range: Range<u64>) -> Vec<(u64, Gather)> {
        let first = self.first_touching(range.start);
        let pieces = self.pieces.range(first..range.end).filter(|(_, piece)| !piece.shadowed);
        pieces
            .filter_map(|(start, piece)| {
                let (from, to) = (range.start.max(*start), range.end.min(start + piece.bytes));
                (from < to).then(|| (from, piece.data.slice(from - start..to - start)))
            })
            .collect()
    }

    /// Takes `data` over, written at `offset` at `now`.
    pub fn write(&mut self, offset: u64, data: Gather, now: Time) {
        let bytes = data.len();
        if bytes == 0 {
            return;
        }
        self.writes += 1;
        let mut piece = Piece {
            data,
            bytes,
            state: State::Unsent,
            earlier: None,
            shadowed: false,
            cut: false,
            sent_for: Mark(self.writes),
            kept_for: Mark(self.writes),
            since: now,
        };
        for old in self.cut(offset..offset + bytes) {
            piece.kept_for = piece.kept_for.min(old.kept_for);
            piece.since = piece.since.min(old.since);
            if !matches!(old.state, State::Sent { .. }) {
                piece.sent_for = piece.sent_for.min(old.sent_for);
            }
        }
        self.insert(offset, piece);
        let follows = offset == self.run.end;
        self.run = if follows { self.run.start..offset + bytes } else { offset..offset + bytes };
    }

    /// Forgets everything from `size` on.
    pub fn truncate(&mut self, size: u64) {
        self.cut(size..u64::MAX);
        self.run = self.run.start.min(size)..self.run.end.min(size);
    }

    /// Another client may have written over what was sent, or cut it off: reads take it from the servers from now on.
    /// The copies stay, to be retransmitted should a server forget them. Until that is known to have been a truncation,
    /// the file is at least as long as they reach.
    pub fn shadow_sent(&mut self, cut: bool) {
        for piece in self.pieces.values_mut() {
            let sent = piece.earlier.is_some() || piece.verifiers().is_some();
            piece.shadowed |= sent;
            piece.cut |= sent && cut;
        }
    }

    /// While paused nothing new is sent (a truncation is under way).
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// All that was written until now shall be sent without waiting for more.
    pub fn want_sent(&mut self) -> Mark {
        self.send_goal = self.mark();
        self.mark()
    }

    /// As [`want_kept`](Written::want_kept), unless that is under way for an earlier mark: a writer that never stops
    /// would move the goal for ever.
    pub fn want_progress(&mut self) {
        if self.keep_goal == Mark(0) {
            self.want_kept();
        }
    }

    /// All that was written until now shall be sent and committed.
    pub fn want_kept(&mut self) -> Mark {
        self.keep_goal = self.mark();
        self.want_sent()
    }

    /// The next bytes to send: those that a caller waits for, else a sequential run that is long enough.
    pub fn poll_send(&mut self, pool: &Frames) -> Option<Send<V>> {
        if self.paused || self.flights.len() >= SENDS_PER_FILE {
            return None;
        }
        let start = self.wanted_send().or_else(|| self.ripe_run())?;
        Some(self.begin_send(start, pool))
    }

    /// The send with this ticket has ended.
    pub fn handle_sent(&mut self, ticket: Ticket, result: Sent<V>) {
        let at = self.flights.iter().position(|flight| flight.ticket == ticket);
        let flight = self.flights.swap_remove(at.expect("a send under way"));
        self.sends += 1;
        for start in self.starts_of(ticket, flight.range) {
            let mut piece = self.remove(start);
            match &result {
                Sent::Kept(verifiers) => {
                    let (verifiers, order) = (verifiers.clone(), self.sends);
                    piece.state = State::Sent { verifiers, order };
                    piece.earlier = None;
                }
                Sent::Again => self.make_urgent(&mut piece),
                Sent::Stable | Sent::Dropped => continue,
            }
            self.insert(start, piece);
        }
    }

    /// Whether a commit is due and none is under way: then the verifiers of every piece that it shall cover.
    pub fn poll_commit(&mut self) -> Option<Vec<V>> {
        let goal = self.keep_goal;
        if self.commit.is_some() || self.paused || goal == Mark(0) || self.lacks(goal) {
            return None;
        }
        if self.is_kept(goal) {
            self.keep_goal = Mark(0); // nothing was there, or it was stable when it was sent
            return None;
        }
        self.commit = Some(self.sends);
        Some(self.pieces.values().filter_map(|piece| piece.verifiers().cloned()).collect())
    }

    /// The commit under way has ended; `fate` judges each piece that it covered.
    pub fn handle_committed(&mut self, fate: impl Fn(&V) -> Fate) {
        let order = self.commit.take().expect("a commit under way");
        let covered = self.pieces.iter().filter(|(_, piece)| piece.is_sent_before(order));
        let starts: Vec<u64> = covered.map(|(start, _)| *start).collect();
        for start in starts {
            let mut piece = self.remove(start);
            match fate(piece.verifiers().expect("only sent pieces are covered")) {
                Fate::Stable | Fate::Dropped => continue,
                Fate::Unknown => {}
                Fate::Lost => self.make_urgent(&mut piece),
            }
            self.insert(start, piece);
        }
        if self.is_kept(self.keep_goal) {
            self.keep_goal = Mark(0);
        }
    }

    /// Whether something that `goal` asks to be kept is not sent yet.
    fn lacks(&self, goal: Mark) -> bool {
        let mut unsent = self.unsent.iter().map(|start| &self.pieces[start]);
        unsent.any(|piece| piece.kept_for <= goal)
            || self.sending().any(|piece| piece.kept_for <= goal)
    }

    fn sending(&self) -> impl Iterator<Item = &Piece<V>> {
        self.flights.iter().flat_map(|flight| {
            let pieces = self.pieces.range(flight.range.clone()).map(|(_, piece)| piece);
            pieces.filter(|piece| piece.is_sending(flight.ticket))
        })
    }

    /// Back to unsent: its servers lack again what they had been given.
    fn make_urgent(&mut self, piece: &mut Piece<V>) {
        piece.sent_for = piece.sent_for.min(piece.kept_for);
        piece.earlier = piece.verifiers().cloned().or(piece.earlier.take());
        piece.state = State::Unsent;
        self.send_goal = self.send_goal.max(piece.sent_for);
    }

    fn starts_of(&self, ticket: Ticket, range: Range<u64>) -> Vec<u64> {
        let pieces = self.pieces.range(range);
        let of_it = pieces.filter(|(_, piece)| piece.is_sending(ticket));
        of_it.map(|(start, _)| *start).collect()
    }

    fn wanted_send(&mut self) -> Option<u64> {
        if self.send_goal == Mark(0) && self.keep_goal == Mark(0) {
            return None;
        }
        let mut wanted = false;
        for start in &self.unsent {
            let piece = &self.pieces[start];
            if self.is_wanted(piece) {
                wanted = true;
                if !self.is_in_flight(*start..start + piece.bytes) {
                    return Some(*start);
                }
            }
        }
        if !wanted && self.flights.is_empty() {
            self.send_goal = Mark(0);
        }
        None
    }

    /// A write over bytes that were sent and are not stable is newer than what is to be sent, and yet no commit keeps
    /// what was there before until it is sent.
    fn is_wanted(&self, piece: &Piece<V>) -> bool {
        piece.sent_for <= self.send_goal || piece.kept_for <= self.keep_goal
    }

    fn ripe_run(&self) -> Option<u64> {
        let run = &self.run;
        let start = *self.unsent.range(self.first_touching(run.start)..run.end).next()?;
        let piece = &self.pieces[&start];
        let long = run.end >= self.send_end(start);
        (long && !self.is_in_flight(start..start + piece.bytes)).then_some(start)
    }

    fn is_in_flight(&self, range: Range<u64>) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|f| f.range.start < range.end && range.start < f.range.end)
    }

    /// Joins the unsent pieces from `start` on to one, as far as one send reaches, and marks it as under way.
    fn begin_send(&mut self, start: u64, pool: &Frames) -> Send<V> {
        let end = self.send_end(start);
        self.split_at(end);
        let mut piece = self.remove(start);
        while let Some(next) = self.joinable(start + piece.bytes, end) {
            if piece.earlier.is_some() {
                break;
            }
            if piece.data.frames().len() >= SEND_FRAMES_MAX {
                match piece.data.joined(pool) {
                    Some(joined) => piece.data = joined,
                    None => break,
                }
            }
            piece.join(self.remove(next));
        }
        if piece.data.frames().len() > SEND_FRAMES_MAX
            && let Some(joined) = piece.data.joined(pool)
        {
            piece.data = joined;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        piece.state = State::Sending(ticket);
        let range = start..start + piece.bytes;
        let data = piece.data.frames().to_vec();
        let earlier = piece.earlier.clone();
        let alone = self.pieces.is_empty() && earlier.is_none() && piece.kept_for <= self.keep_goal;
        let send = Send { ticket, offset: start, data, bytes: piece.bytes, earlier, alone };
        self.insert(start, piece);
        self.flights.push(Flight { ticket, range });
        send
    }

    /// The unsent piece that starts at `at`, when it ends by `end` and no send of its bytes is under way.
    fn joinable(&self, at: u64, end: u64) -> Option<u64> {
        let piece = self.pieces.get(&at)?;
        let range = at..at + piece.bytes;
        let fits = piece.is_unsent() && piece.earlier.is_none() && range.end <= end;
        (fits && !self.is_in_flight(range)).then_some(at)
    }

    /// Start of the piece that covers `at`, or `at`.
    fn first_touching(&self, at: u64) -> u64 {
        let before = self.pieces.range(..=at).next_back();
        before.filter(|(start, piece)| *start + piece.bytes > at).map_or(at, |(start, _)| *start)
    }

    /// Takes all pieces out of `range`, cutting those that reach over its ends.
    fn cut(&mut self, range: Range<u64>) -> Vec<Piece<V>> {
        self.split_at(range.start);
        self.split_at(range.end);
        let starts: Vec<u64> = self.pieces.range(range).map(|(start, _)| *start).collect();
        starts.into_iter().map(|start| self.remove(start)).collect()
    }

    fn split_at(&mut self, at: u64) {
        let start = self.first_touching(at);
        if start == at {
            return;
        }
        let piece = self.remove(start);
        let middle = at - start;
        let (head, tail) = (piece.data.slice(0..middle), piece.data.slice(middle..piece.bytes));
        let after = Piece { data: tail, bytes: piece.bytes - middle, ..piece.clone() };
        self.insert(start, Piece { data: head, bytes: middle, ..piece });
        self.insert(at, after);
    }

    fn insert(&mut self, start: u64, piece: Piece<V>) {
        let held = piece.data.held();
        self.held += held;
        if !matches!(piece.state, State::Sent { .. }) {
            self.unsent_held += held;
        }
        if piece.is_unsent() {
            self.unsent.insert(start);
        }
        assert!(self.pieces.insert(start, piece).is_none(), "pieces are disjoint");
    }

    fn remove(&mut self, start: u64) -> Piece<V> {
        let piece = self.pieces.remove(&start).expect("a piece starts here");
        let held = piece.data.held();
        self.held -= held;
        if !matches!(piece.state, State::Sent { .. }) {
            self.unsent_held -= held;
        }
        self.unsent.remove(&start);
        piece
    }
}

impl<V> Piece<V> {
    fn is_unsent(&self) -> bool {
        matches!(self.state, State::Unsent)
    }

    fn is_sending(&self, ticket: Ticket) -> bool {
        matches!(self.state, State::Sending(of) if of == ticket)
    }

    fn verifiers(&self) -> Option<&V> {
        match &self.state {
            State::Sent { verifiers, .. } => Some(verifiers),
            _ => None,
        }
    }

    fn is_sent_before(&self, commit: u64) -> bool {
        matches!(self.state, State::Sent { order, .. } if order <= commit)
    }

    fn join(&mut self, next: Piece<V>) {
        self.data.append(next.data);
        self.bytes += next.bytes;
        self.sent_for = self.sent_for.min(next.sent_for);
        self.kept_for = self.kept_for.min(next.kept_for);
        self.since = self.since.min(next.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::HeapRegion;
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn pool() -> Frames {
        Frames::new(HeapRegion::new(4096))
    }

    fn bytes(pool: &Frames, bytes: usize, fill: u8) -> Gather {
        let mut frame = pool.alloc_exact(bytes).unwrap();
        frame.fill(fill);
        Gather::new(vec![frame.freeze()])
    }

    #[test]
    fn a_small_file_waits_for_its_flush_and_then_is_one_send() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        written.write(0, bytes(&pool, 4096, 1), Time::ZERO);
        assert!(written.poll_send(&pool).is_none());
        let mark = written.want_sent();
        let send = written.poll_send(&pool).unwrap();
        assert_eq!((send.offset, send.bytes), (0, 4096));
        assert!(written.poll_send(&pool).is_none());
        assert!(!written.is_sent(mark));
        written.handle_sent(send.ticket, Sent::Kept(7));
        assert!(written.is_sent(mark) && !written.is_kept(mark));
        assert!(written.poll_commit().is_none());
        let mark = written.want_kept();
        assert_eq!(written.poll_commit(), Some(vec![7]));
        written.handle_committed(|of| if *of == 7 { Fate::Stable } else { Fate::Lost });
        assert!(written.is_kept(mark) && written.is_empty());
        drop(send);
        assert_eq!((written.held(), pool.free_pages()), (0, 4096));
    }

    #[test]
    fn a_stream_is_sent_in_aligned_pieces_before_anybody_asks() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        let mut sends = Vec::new();
        for offset in (0..4096 * KIB).step_by(64 << 10) {
            written.write(offset, bytes(&pool, 64 << 10, 1), Time::ZERO);
            sends.extend(written.poll_send(&pool));
        }
        let spans: Vec<_> = sends.iter().map(|s| (s.offset / KIB, s.bytes / KIB)).collect();
        assert_eq!(spans, [(0, 1024), (1024, 1024), (2048, 1024), (3072, 1024)]);
    }

    #[test]
    fn sends_end_where_the_layout_wants_it() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        written.send_in(768 * KIB);
        let mut sends = Vec::new();
        for offset in (0..2048 * KIB).step_by(64 << 10) {
            written.write(offset, bytes(&pool, 64 << 10, 1), Time::ZERO);
            sends.extend(written.poll_send(&pool));
        }
        let spans: Vec<_> = sends.iter().map(|s| (s.offset / KIB, s.bytes / KIB)).collect();
        assert_eq!(spans, [(0, 768), (768, 768)]);
    }

    #[test]
    fn crumbs_are_joined_to_one_frame() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        (0..100).for_each(|at| written.write(at * 10, bytes(&pool, 10, at as u8), Time::ZERO));
        assert_eq!(written.held(), 100 * 4096);
        written.want_sent();
        let send = written.poll_send(&pool).unwrap();
        assert_eq!(send.bytes, 1000);
        assert!(send.data.len() <= SEND_FRAMES_MAX);
        assert!(written.held() <= SEND_FRAMES_MAX as u64 * 4096);
    }

    #[test]
    fn a_send_is_alone_when_an_fsync_waits_for_nothing_else() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        written.write(0, bytes(&pool, 8192, 1), Time::ZERO);
        written.want_sent();
        let closed = written.poll_send(&pool).unwrap();
        assert!(!closed.alone, "a close waits for no disk");
        written.handle_sent(closed.ticket, Sent::Kept(1));
        written.write(20_000, bytes(&pool, 100, 2), Time::ZERO);
        written.want_kept();
        let second = written.poll_send(&pool).unwrap();
        assert!(!second.alone, "the first one has to be committed anyway");
        written.handle_sent(second.ticket, Sent::Kept(1));
        assert_eq!(written.poll_commit(), Some(vec![1, 1]));
        written.handle_committed(|_| Fate::Stable);
        written.write(0, bytes(&pool, 8192, 3), Time::ZERO);
        let mark = written.want_kept();
        let third = written.poll_send(&pool).unwrap();
        assert!(third.alone);
        written.write(4096, bytes(&pool, 4096, 4), Time::ZERO);
        written.handle_sent(third.ticket, Sent::Stable);
        assert!(!written.is_kept(mark), "half of it was never sent");
        let fourth = written.poll_send(&pool).unwrap();
        assert!(fourth.alone, "the same fsync waits for it");
        written.handle_sent(fourth.ticket, Sent::Stable);
        assert!(written.is_kept(mark));
        assert!(written.poll_commit().is_none() && written.is_empty());
        written.write(0, bytes(&pool, 8192, 5), Time::ZERO);
        written.want_sent();
        assert!(!written.poll_send(&pool).unwrap().alone, "that fsync has ended");
    }

    #[test]
    fn the_next_commit_may_be_wanted_when_one_has_ended() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        written.write(0, bytes(&pool, 8192, 1), Time::ZERO);
        written.want_progress();
        let send = written.poll_send(&pool).unwrap();
        written.handle_sent(send.ticket, Sent::Kept(1));
        assert_eq!(written.poll_commit(), Some(vec![1]));
        written.write(8192, bytes(&pool, 8192, 2), Time::ZERO);
        written.want_progress();
        assert!(written.poll_send(&pool).is_none(), "the goal is an earlier one");
        written.handle_committed(|_| Fate::Stable);
        written.want_progress();
        let send = written.poll_send(&pool).unwrap();
        written.handle_sent(send.ticket, Sent::Kept(2));
        assert_eq!(written.poll_commit(), Some(vec![2]));
    }

    #[test]
    fn a_write_over_what_a_commit_waits_for_is_sent_for_it() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        [0, 8192].iter().for_each(|at| written.write(*at, bytes(&pool, 4096, 1), Time::ZERO));
        written.want_progress();
        let send = written.poll_send(&pool).unwrap();
        written.handle_sent(send.ticket, Sent::Kept(1));
        written.write(0, bytes(&pool, 4096, 2), Time::ZERO);
        written.want_progress();
        for offset in [0, 8192] {
            let send = written.poll_send(&pool).expect("the commit waits for it");
            assert_eq!(send.offset, offset);
            assert!(written.poll_commit().is_none(), "it is not sent yet");
            written.handle_sent(send.ticket, Sent::Kept(2));
        }
        assert_eq!(written.poll_commit(), Some(vec![2, 2]));
    }

    #[test]
    fn a_newer_write_waits_for_the_older_send_of_its_bytes() {
        let (pool, mut written) = (pool(), Written::<u64>::default());
        written.write(0, bytes(&pool, 8192, 1), Time::ZERO);
        let first = written.want_sent();
        let send = written.poll_send(&pool).unwrap();
        written.write(4096, bytes(&pool, 4096, 2), Time::ZERO);
        written.want_sent();
        assert!(written.poll_send(&pool).is_none(), "the older send could land later");
        written.handle_sent(send.ticket, Sent::Kept(1));
        assert!(!written.is_sent(first), "half of the first write was never confirmed");
        let send = written.poll_send(&pool).unwrap();
        assert_eq!((send.offset, send.bytes), (4096, 4096));
        written.handle_sent(send.ticket, Sent::Kept(1));
        assert!(written.is_sent(first));
    }

    const FILE: usize = 40;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u8, u8),
        WantSent,
        WantKept,
        Begin,
        End(usize, u8),
        Crash,
        CommitBegin,
        CommitEnd,
        Truncate(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..FILE as u8, 1..12u8).prop_map(|(at, len)| Step::Write(at, len)),
            1 => Just(Step::WantSent),
            1 => Just(Step::WantKept),
            4 => Just(Step::Begin),
            4 => (any::<usize>(), 0..8u8).prop_map(|(which, how)| Step::End(which, how)),
            1 => Just(Step::Crash),
            2 => Just(Step::CommitBegin),
            3 => Just(Step::CommitEnd),
            1 => (0..FILE as u8).prop_map(Step::Truncate),
        ]
    }

    /// A server that forgets what was not committed when it crashes, and what the application believes.
    struct Model {
        pool: Frames,
        written: Written<u64>,
        incarnation: u64,
        committing: Option<u64>,
        memory: [u8; FILE],
        disk: [u8; FILE],
        truth: [u8; FILE],
        /// Write number of each byte of the truth, and of the disk.
        number: u8,
        sends: Vec<Send<u64>>,
        promises: Vec<(Mark, [u8; FILE])>,
    }

    impl Model {
        fn new() -> Model {
            let zero = [0; FILE];
            let (pool, written) = (pool(), Written::default());
            let (sends, promises) = (Vec::new(), Vec::new());
            Model {
                pool,
                written,
                incarnation: 1,
                committing: None,
                memory: zero,
                disk: zero,
                truth: zero,
                number: 0,
                sends,
                promises,
            }
        }

        fn run(&mut self, step: Step) {
            match step {
                Step::Write(at, len) => self.write(at.into(), len.into()),
                Step::WantSent => drop(self.written.want_sent()),
                Step::WantKept => {
                    let mark = self.written.want_kept();
                    self.promises.push((mark, self.truth));
                }
                Step::Begin => self.sends.extend(self.written.poll_send(&self.pool)),
                Step::End(which, how) => self.end(which, how),
                Step::Crash => {
                    self.incarnation += 1;
                    self.memory = self.disk;
                }
                Step::CommitBegin => self.commit_begin(),
                Step::CommitEnd => self.commit_end(),
                Step::Truncate(size) => self.truncate(size.into()),
            }
        }

        fn write(&mut self, at: usize, len: usize) {
            let len = len.min(FILE - at);
            self.number += 1;
            self.truth[at..at + len].fill(self.number);
            self.written.write(at as u64, bytes(&self.pool, len, self.number), Time::ZERO);
        }

        fn end(&mut self, which: usize, how: u8) {
            if self.sends.is_empty() {
                return;
            }
            let send = self.sends.swap_remove(which % self.sends.len());
            let mut image = vec![0; send.bytes as usize];
            Gather::new(send.data).copy_to(&mut image);
            let landed = how > 0;
            if landed {
                self.memory[send.offset as usize..][..image.len()].copy_from_slice(&image);
            }
            let result = match how {
                0 | 1 => Sent::Again,
                2..5 if send.alone => {
                    self.disk = self.memory;
                    Sent::Stable
                }
                _ => Sent::Kept(self.incarnation),
            };
            self.written.handle_sent(send.ticket, result);
        }

        fn commit_begin(&mut self) {
            if let Some(verifiers) = self.written.poll_commit() {
                assert!(!verifiers.is_empty());
                self.disk = self.memory;
                self.committing = Some(self.incarnation);
            }
        }

        fn commit_end(&mut self) {
            if let Some(incarnation) = self.committing.take() {
                let fate = |of: &u64| if *of == incarnation { Fate::Stable } else { Fate::Lost };
                self.written.handle_committed(fate);
            }
        }

        fn truncate(&mut self, size: usize) {
            while !self.sends.is_empty() {
                self.end(0, 2);
            }
            self.written.truncate(size as u64);
            for image in [&mut self.memory, &mut self.disk, &mut self.truth] {
                image[size..].fill(0);
            }
            self.promises.iter_mut().for_each(|(_, image)| image[size..].fill(0));
        }

        fn check(&self) {
            let mut seen = self.memory;
            for (at, data) in self.written.overlay(0..FILE as u64) {
                data.copy_to(&mut seen[at as usize..]);
            }
            assert_eq!(seen, self.truth, "a read sees the newest bytes");
            for (_, image) in self.promises.iter().filter(|(mark, _)| self.written.is_kept(*mark)) {
                let older = self.disk.iter().zip(image).any(|(disk, promised)| disk < promised);
                assert!(!older, "what fsync promised is on disk, or something newer");
            }
        }

        fn finish(&mut self) {
            let mark = self.written.want_kept();
            for _ in 0..1000 {
                self.run(Step::Begin);
                self.end(0, 2);
                self.commit_begin();
                self.commit_end();
            }
            assert!(self.written.is_kept(mark) && self.written.is_empty());
            assert_eq!(self.disk, self.truth);
            assert_eq!((self.written.held(), self.written.unsent_held()), (0, 0));
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_reads_see_the_newest(steps in prop::collection::vec(step(), 1..200)) {
            let mut model = Model::new();
            for step in steps {
                model.run(step);
                model.check();
            }
            model.finish();
            drop(model.written);
            prop_assert_eq!(model.pool.free_pages(), 4096);
        }
    }
}
