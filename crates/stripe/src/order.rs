//! The order of writes, decided by the server: which of two writes of the same bytes is the newer one, also when the
//! older one comes later. Plain structs; who asks and who stores is the server's business.
//!
//! A server that dies forgets what was not committed, and every client retransmits what it still holds. Two clients
//! may hold writes of the same bytes, or one may hold what another has overwritten and committed since. So every write
//! gets a [`Stamp`], the client keeps it, and a retransmitted write has it ([`op::REWRITE`](crate::protocol::op)). Then
//!
//! - what was committed in the incarnation that it was written in is left alone: it is stable, or something newer is;
//! - what that incarnation lost is written where nothing newer came since: this incarnation remembers its own
//!   writes (`Recent`);
//! - when incarnations in between committed as well, it is not known what they replaced: the write is refused, unless
//!   only its own writer wrote to the object in all of them.
//!
//! A column that moves to another disk takes its [`History`] along, and what its server remembers. So what clients
//! still hold of it is judged where it is now.

use crate::format;
use crate::limits::{INCARNATIONS_FIXED_BYTES, INCARNATIONS_MAX};
use crate::mark::Mark;
use crate::witness::{Witness, Witnesses};
use wire::NodeId;
use wire::codec::{Decoder, Short};
use wire::field::{Field, Output, fields};
use wire::limits::BLOCK_BYTES;

/// When a server executed a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The incarnation of the server: its write verifier.
    pub incarnation: u64,
    /// Grows from write to write within an incarnation, from 1.
    pub order: u64,
}

impl Stamp {
    /// Bytes that its encoding takes.
    pub const BYTES: usize = 16;
}
fields!(Stamp { incarnation, order });

/// The writer: one client, by its incarnation, none (0), or [`MANY`].
pub type Writer = u64;
/// More than one client.
pub const MANY: Writer = u64::MAX;

/// Both wrote.
pub fn joined(one: Writer, other: Writer) -> Writer {
    match (one, other) {
        (0, writer) | (writer, 0) => writer,
        (one, other) if one == other => one,
        _ => MANY,
    }
}

/// The commits of an object by one incarnation of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// The incarnation; 0 when there is none.
    pub incarnation: u64,
    /// Every write up to this one is stable.
    pub through: u64,
    /// Writers of this incarnation.
    pub writer: Writer,
    /// The shortest length that the object was cut to in this incarnation.
    pub cut: u64,
    /// The object was on another disk then, which counts incarnations of its own.
    pub elsewhere: bool,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits { incarnation: 0, through: 0, writer: 0, cut: u64::MAX, elsewhere: false }
    }
}

impl Commits {
    /// No server executes so many writes: in `through` it says [`elsewhere`](Commits::elsewhere).
    const ELSEWHERE: u64 = 1 << 63;

    /// The writers, as far as they must outlive this entry: moves follow each other faster than restarts, and a client
    /// may hold what it wrote before several of them.
    fn outlived_by(&self) -> Writer {
        match (self.elsewhere, self.cut) {
            (false, _) => 0,
            (true, u64::MAX) => self.writer,
            (true, _) => MANY,
        }
    }
}

impl<'a> Field<'a> for Commits {
    fn put(&self, out: &mut impl Output) {
        let elsewhere = if self.elsewhere { Commits::ELSEWHERE } else { 0 };
        [self.incarnation, self.through | elsewhere, self.writer, self.cut].put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Commits, Short> {
        let [incarnation, through, writer, cut] = Field::take(input)?;
        let (elsewhere, through) =
            (through & Commits::ELSEWHERE != 0, through & !Commits::ELSEWHERE);
        Ok(Commits { incarnation, through, writer, cut, elsewhere })
    }
}

/// Commits of the latest incarnations that committed something of an object. Part of its durable head.
///
/// Two would do for a server that restarts. A column that moves adds the incarnation of its new server at once, and
/// both may restart then before a client has retransmitted data that the first of them lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History([Commits; History::INCARNATIONS]);

impl<'a> Field<'a> for History {
    fn put(&self, out: &mut impl Output) {
        self.0.put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<History, Short> {
        Field::take(input).map(History)
    }
}

impl History {
    /// Incarnations that are remembered, the latest one last.
    const INCARNATIONS: usize = 4;
    const LAST: usize = History::INCARNATIONS - 1;
    /// Bytes that its encoding takes.
    pub const BYTES: usize = History::INCARNATIONS * 32;

    /// After a commit of everything up to `through` in this incarnation.
    pub fn after(mut self, incarnation: u64, through: u64, writer: Writer) -> History {
        if self.last().incarnation != incarnation {
            let [oldest, next, ..] = &mut self.0;
            next.writer = joined(next.writer, oldest.outlived_by());
            self.0.rotate_left(1);
            self.0[History::LAST] = Commits { incarnation, ..Commits::default() };
        }
        let last = &mut self.0[History::LAST];
        (last.through, last.writer) = (through, joined(last.writer, writer));
        self
    }

    /// After a cut to `length` in the latest incarnation.
    pub fn cut(mut self, length: u64) -> History {
        let last = &mut self.0[History::LAST];
        last.cut = last.cut.min(length);
        self
    }

    /// The same for a disk that the object has moved to.
    pub fn moved(self) -> History {
        History(self.0.map(|commits| Commits { elsewhere: commits.incarnation != 0, ..commits }))
    }

    /// The same, judged by incarnations that include those elsewhere.
    pub fn ranked(self) -> History {
        History(self.0.map(|commits| Commits { elsewhere: false, ..commits }))
    }

    /// Writers of this incarnation, as far as it was committed.
    pub fn writer_in(&self, incarnation: u64) -> Writer {
        if self.last().incarnation == incarnation { self.last().writer } else { 0 }
    }

    /// Writes up to this one are stable, of this incarnation.
    pub fn through_in(&self, incarnation: u64) -> u64 {
        if self.last().incarnation == incarnation { self.last().through } else { 0 }
    }

    fn last(&self) -> &Commits {
        &self.0[History::LAST]
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Commits> {
        self.0.iter().filter(|commits| commits.incarnation != 0)
    }
}

/// The incarnations of a server on one disk, the present one last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incarnations {
    sequence: u64,
    incarnations: Vec<u64>,
    disks: u16,
    mark: Mark,
    witnesses: Witnesses,
}

impl Incarnations {
    const MAGIC: u32 = u32::from_le_bytes(*b"TZLV");
    const FIXED_BYTES: usize = INCARNATIONS_FIXED_BYTES;

    /// These incarnations, the present one last.
    pub fn of(incarnations: impl IntoIterator<Item = u64>) -> Incarnations {
        let mut all = Incarnations::default();
        incarnations.into_iter().for_each(|incarnation| all.begin(incarnation));
        all
    }

    /// Number of disks that the server is known to have had.
    pub fn disks(&self) -> u16 {
        self.disks
    }

    /// The server has this many disks, or has had more.
    pub fn note_disks(&mut self, disks: u16) {
        self.disks = self.disks.max(disks);
    }

    /// An incarnation begins.
    pub fn begin(&mut self, incarnation: u64) {
        let surplus = (self.incarnations.len() + 1).saturating_sub(INCARNATIONS_MAX);
        self.incarnations.drain(..surplus);
        self.incarnations.push(incarnation);
        assert!(self.incarnations.len() <= INCARNATIONS_MAX, "as many as a slot has room for");
    }

    /// Extent of the disk's log.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Notes the extent of the disk's log.
    pub fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// State of the managers' stores, as last heard.
    pub fn witnesses(&self) -> &Witnesses {
        &self.witnesses
    }

    /// Notes the state of the managers' stores.
    pub fn learn_witnesses(&mut self, told: &Witnesses) {
        self.witnesses.learn_all(told);
    }

    /// They are to be written once more.
    pub fn turn(&mut self) {
        self.sequence += 1;
    }

    /// Grows with every write: which of two slots is the later one, and which is to be written first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The latest ones, at most `count`, and how many come before them.
    pub fn latest(&self, count: usize) -> (usize, &[u64]) {
        let before = self.incarnations.len().saturating_sub(count);
        (before, &self.incarnations[before..])
    }

    /// Whether there was an incarnation before, so that clients may retransmit writes.
    pub fn has_earlier(&self) -> bool {
        self.incarnations.len() > 1
    }

    /// The place of an incarnation among them.
    pub fn rank(&self, incarnation: u64) -> Option<usize> {
        self.incarnations.iter().rposition(|other| *other == incarnation)
    }

    /// The rank of the present one.
    pub fn now(&self) -> usize {
        self.incarnations.len().saturating_sub(1)
    }

    /// The later one of the two slots at the beginning of `slots`, as far as they can be understood.
    pub fn later_of(slots: &[u8]) -> Option<Incarnations> {
        let found = slots.chunks_exact(BLOCK_BYTES).take(2).filter_map(Incarnations::decode);
        found.max_by_key(Incarnations::sequence)
    }

    /// Writes one slot: a block. The oldest incarnations are left out where other managers than the first take their
    /// room.
    pub fn encode(&self, block: &mut [u8]) {
        let mut rest = Vec::with_capacity(BLOCK_BYTES);
        let others = self.witnesses.others();
        let others_bytes = if others.len() == 0 { 0 } else { 2 + others.len() * OTHER_BYTES };
        let room = (BLOCK_BYTES - Incarnations::FIXED_BYTES - others_bytes) / 8;
        let latest = &self.incarnations[self.incarnations.len().saturating_sub(room)..];
        latest.iter().for_each(|incarnation| incarnation.put(&mut rest));
        if others_bytes > 0 {
            (others.len() as u16).put(&mut rest);
            others.for_each(|other| other.put(&mut rest));
        }
        let mut out = format::begin(Incarnations::MAGIC, block);
        out.u64(self.sequence).u32(latest.len() as u32).u16(self.disks);
        self.mark.put(&mut out);
        self.witnesses.get(NodeId(0)).put(&mut out);
        block[Incarnations::FIXED_BYTES..][..rest.len()].copy_from_slice(&rest);
        format::seal(block);
    }

    /// Reads a slot; `None` when it was never written or is torn.
    pub fn decode(block: &[u8]) -> Option<Incarnations> {
        let mut input = format::open_sealed(Incarnations::MAGIC, block)?;
        let (sequence, count) = (input.u64().ok()?, input.u32().ok()? as usize);
        let disks = input.u16().ok()?;
        let mark = Mark::take(&mut input).ok()?;
        let mut witnesses = Witnesses::default();
        let first = Witness::take(&mut input).ok()?;
        if first != Witness::default() {
            witnesses.learn(NodeId(0), first).ok()?;
        }
        let mut rest = Decoder::new(block.get(Incarnations::FIXED_BYTES..)?);
        let incarnations: Result<Vec<u64>, Short> =
            (0..count.min(INCARNATIONS_MAX)).map(|_| rest.u64()).collect();
        let incarnations = incarnations.ok()?;
        // A label of before there were others ends with zeros, or where the block does.
        for _ in 0..rest.u16().unwrap_or(0) {
            let (manager, witness) = Field::take(&mut rest).ok()?;
            witnesses.learn(manager, witness).ok()?;
        }
        Some(Incarnations { sequence, incarnations, disks, mark, witnesses })
    }
}

/// Bytes of what is kept of another manager than the first.
const OTHER_BYTES: usize = 2 + 26;

/// The decision on a retransmitted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it is here, or stable, or something newer is.
    Kept,
    /// It was lost: it belongs where nothing newer is, below this offset.
    Lost {
        /// First byte that was cut off since.
        below: u64,
    },
    /// The writes that it may replace are not known any more.
    Unknown,
}

/// Incarnations in the order in which they were.
pub trait Ranks {
    /// The place of one among them; nothing where it is not known.
    fn rank(&self, incarnation: u64) -> Option<usize>;
    /// The place of the present one.
    fn now(&self) -> usize;
}

impl Ranks for Incarnations {
    fn rank(&self, incarnation: u64) -> Option<usize> {
        Incarnations::rank(self, incarnation)
    }

    fn now(&self) -> usize {
        Incarnations::now(self)
    }
}

/// The verifiers of a group, of which this is the present one: they are numbers that grow.
#[derive(Clone, Copy, Debug)]
pub struct Verifiers(pub u64);

impl Ranks for Verifiers {
    fn rank(&self, incarnation: u64) -> Option<usize> {
        (incarnation <= self.0).then_some(incarnation as usize)
    }

    fn now(&self) -> usize {
        self.0 as usize
    }
}

const _: () = assert!(usize::BITS == 64, "a verifier is a rank");

/// Judges a write with this stamp of `client`, of an object with this history, to which `writer` wrote in
/// this incarnation.
/// `since`: the first incarnation, by rank, of which every write is remembered, if there is one.
pub fn judge(
    incarnations: &impl Ranks,
    history: &History,
    stamp: Stamp,
    client: u64,
    writer: Writer,
    since: Option<usize>,
) -> Verdict {
    let rank = incarnations.rank(stamp.incarnation);
    if rank == Some(incarnations.now()) {
        return Verdict::Kept;
    }
    let mut same = history.entries().filter(|commits| commits.incarnation == stamp.incarnation);
    if same.any(|commits| stamp.order <= commits.through) {
        return Verdict::Kept;
    }
    // An incarnation that is not listed is one of long ago, or none of this disk.
    let is_earlier = |commits: &&Commits| {
        let ranked =
            rank.is_some() && !commits.elsewhere && incarnations.rank(commits.incarnation) < rank;
        commits.incarnation == stamp.incarnation || ranked
    };
    let later = || history.entries().rev().take_while(|commits| !is_earlier(commits));
    let told =
        |commits: &Commits| !commits.elsewhere && incarnations.rank(commits.incarnation) >= since;
    // When all are later the stamp's own incarnation may have been among those before them.
    let known = later().count() < History::INCARNATIONS && later().all(told);
    if since.is_some() && rank.is_some() && known {
        return Verdict::Lost { below: u64::MAX };
    }
    let (sole, below) = later().fold((writer, u64::MAX), |(writer, below), commits| {
        (joined(writer, commits.writer), below.min(commits.cut))
    });
    let sole = sole == 0 || sole == client;
    if sole { Verdict::Lost { below } } else { Verdict::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WITNESSES_MAX;
    use wire::Errno;

    const ME: u64 = 77;
    const OTHER: u64 = 78;

    fn incarnations(all: &[u64]) -> Incarnations {
        Incarnations::of(all.iter().copied())
    }

    fn stamp(incarnation: u64, order: u64) -> Stamp {
        Stamp { incarnation, order }
    }

    #[test]
    fn lives_survive_the_disk_and_a_torn_slot_is_none() {
        let mut many = incarnations(&[5, 9, 3]);
        many.note_disks(4);
        let mut block = vec![0; 4096];
        many.encode(&mut block);
        assert_eq!(Incarnations::decode(&block), Some(many.clone()));
        block[30] ^= 1;
        assert_eq!(Incarnations::decode(&block), None);
        assert_eq!(Incarnations::decode(&[0; 4096]), None);
        (100..2000).for_each(|incarnation| many.begin(incarnation));
        many.encode(&mut block);
        assert_eq!(Incarnations::decode(&block), Some(many.clone()));
        assert_eq!((many.rank(3), many.rank(1999)), (None, Some(INCARNATIONS_MAX - 1)));
    }

    #[test]
    fn what_is_known_of_many_managers_has_room_beside_the_latest_incarnations() {
        let mut many = incarnations(&(0..2000).collect::<Vec<_>>());
        let told = |sequence| Witness { sequence, store: 7, ..Witness::default() };
        let mut witnesses = Witnesses::default();
        for manager in 0..WITNESSES_MAX as u16 {
            witnesses.learn(NodeId(manager), told(100 + u64::from(manager))).unwrap();
        }
        assert_eq!(witnesses.learn(NodeId(999), told(1)), Err(Errno::ENOSPC));
        many.learn_witnesses(&witnesses);
        let mut block = vec![0; 4096];
        many.encode(&mut block);
        let found = Incarnations::decode(&block).unwrap();
        assert_eq!(found.witnesses(), &witnesses);
        assert!(found.rank(1999) > Some(250) && found.latest(1).1 == [1999]);
        assert!(!found.witnesses().is_beyond(&witnesses));
        many.learn_witnesses(&{
            let mut later = Witnesses::default();
            later.learn(NodeId(9), told(500)).unwrap();
            later
        });
        assert!(many.witnesses().is_beyond(&witnesses));
        assert_eq!(many.witnesses().get(NodeId(8)), told(108));
    }

    #[test]
    fn what_its_life_committed_is_left_alone_and_what_it_lost_is_written() {
        let (incarnations, history) =
            (incarnations(&[1, 2, 3]), History::default().after(2, 10, OTHER));
        let judge = |stamp| judge(&incarnations, &history, stamp, ME, OTHER, Some(2));
        assert_eq!(judge(stamp(2, 10)), Verdict::Kept);
        assert_eq!(judge(stamp(2, 11)), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(stamp(3, 1)), Verdict::Kept);
    }

    #[test]
    fn the_life_before_counts_although_this_one_has_committed() {
        let history = History::default().after(2, 10, OTHER).after(3, 5, OTHER);
        let judge = |stamp| judge(&incarnations(&[1, 2, 3]), &history, stamp, ME, OTHER, Some(2));
        assert_eq!(judge(stamp(2, 10)), Verdict::Kept);
        assert_eq!(judge(stamp(2, 11)), Verdict::Lost { below: u64::MAX });
    }

    #[test]
    fn what_two_lives_ago_lost_is_written_only_for_the_sole_writer() {
        let all = incarnations(&[1, 2, 3]);
        let own = History::default().after(1, 1, ME).after(2, 10, ME);
        assert_eq!(
            judge(&all, &own, stamp(1, 2), ME, 0, Some(2)),
            Verdict::Lost { below: u64::MAX }
        );
        assert_eq!(judge(&all, &own, stamp(1, 2), ME, OTHER, Some(2)), Verdict::Unknown);
        let shared = History::default().after(2, 10, OTHER);
        assert_eq!(judge(&all, &shared, stamp(1, 2), ME, 0, Some(2)), Verdict::Unknown);
        let cut = own.cut(4096);
        assert_eq!(judge(&all, &cut, stamp(1, 2), ME, 0, Some(2)), Verdict::Lost { below: 4096 });
    }

    #[test]
    fn a_column_that_moved_is_judged_by_what_its_old_disk_knew() {
        let history = History::default().after(7, 10, MANY).moved();
        let judge =
            |stamp, writer| judge(&incarnations(&[1, 2]), &history, stamp, ME, writer, Some(1));
        assert_eq!(judge(stamp(7, 10), OTHER), Verdict::Kept);
        assert_eq!(judge(stamp(7, 11), OTHER), Verdict::Unknown);
        assert_eq!(judge(stamp(7, 11), ME), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(stamp(6, 1), ME), Verdict::Unknown);
    }

    #[test]
    fn a_column_that_came_back_keeps_what_others_wrote_elsewhere() {
        let gone = History::default().after(1, 5, ME).moved().after(9, 3, OTHER);
        let history = gone.moved();
        let judge = |stamp| judge(&incarnations(&[1, 2]), &history, stamp, ME, 0, Some(1));
        assert_eq!(judge(stamp(1, 5)), Verdict::Kept);
        assert_eq!(judge(stamp(1, 6)), Verdict::Unknown);
        assert_eq!(judge(stamp(9, 3)), Verdict::Kept);
        let again = history.after(1, 8, 0).moved().after(9, 20, OTHER).moved();
        assert_eq!(
            super::judge(&incarnations(&[2]), &again, stamp(1, 7), ME, 0, None),
            Verdict::Kept
        );
    }

    #[test]
    fn who_wrote_before_several_moves_is_not_forgotten() {
        let first = History::default().after(7, 10, MANY).moved();
        let fifth = [8, 9, 10, 11]
            .iter()
            .fold(first, |history, incarnation| history.after(*incarnation, 5, ME).moved());
        let judge = |stamp| judge(&incarnations(&[12]), &fifth, stamp, ME, 0, Some(0));
        assert_eq!(judge(stamp(7, 1)), Verdict::Unknown);
        assert_eq!(judge(stamp(8, 6)), Verdict::Lost { below: u64::MAX });
    }

    /// The new disk has incarnations 1 and 2; the column came in incarnation 1, from a disk whose incarnation was 7.
    #[test]
    fn what_a_new_home_lost_is_written_again() {
        let history = History::default().after(7, 10, OTHER).moved().after(1, 0, 0);
        let judge = |stamp| judge(&incarnations(&[1, 2]), &history, stamp, ME, 0, Some(1));
        assert_eq!(judge(stamp(1, 3)), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(stamp(7, 10)), Verdict::Kept);
    }

    /// A server that remembers all since some incarnations ago does not know one that its history has forgotten.
    #[test]
    fn a_life_that_dropped_out_is_not_judged_by_memory() {
        let all = [1, 2, 3, 4]
            .iter()
            .fold(History::default(), |history, incarnation| history.after(*incarnation, 5, OTHER));
        let judge =
            |history, stamp| judge(&incarnations(&[1, 2, 3, 4, 5]), history, stamp, ME, 0, Some(1));
        assert_eq!(judge(&all, stamp(1, 6)), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(&all.after(5, 1, OTHER), stamp(1, 6)), Verdict::Unknown);
    }

    #[test]
    fn a_history_survives_the_disk() {
        let history = History::default().after(7, 10, MANY).moved().after(8, 5, ME).cut(4096);
        let mut block = [0; History::BYTES];
        history.put(&mut wire::Encoder::new(&mut block));
        assert_eq!(History::take(&mut Decoder::new(&block)), Ok(history));
    }

    #[test]
    fn without_memory_of_this_life_only_the_sole_writer_writes_again() {
        let (all, none) = (incarnations(&[1, 2]), History::default());
        assert_eq!(judge(&all, &none, stamp(1, 2), ME, OTHER, None), Verdict::Unknown);
        let lost = Verdict::Lost { below: u64::MAX };
        assert_eq!(judge(&all, &none, stamp(1, 2), ME, ME, None), lost);
        assert_eq!(judge(&all, &none, stamp(9, 2), ME, ME, Some(1)), lost);
        assert_eq!(judge(&all, &none, stamp(9, 2), ME, OTHER, Some(1)), Verdict::Unknown);
    }
}
