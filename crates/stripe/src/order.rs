//! The order of writes, decided by the server: which of two writes of the same bytes is the newer one, also when the
//! older one comes later. Plain structs; who asks and who stores is the server's business.
//!
//! A server that dies forgets what was not committed, and every client sends again what it still holds. Two clients
//! may hold writes of the same bytes, or one may hold what another has overwritten and committed since. So every write
//! gets a [`Stamp`], the client keeps it, and what is sent again says it ([`op::REWRITE`](crate::protocol::op)). Then
//!
//! - what was committed in the life that it was written in is left alone: it is stable, or something newer is;
//! - what that life lost is written where nothing newer came since: this life remembers its own writes ([`Recent`]);
//! - when lives in between committed as well, nobody knows any more what they replaced: the write is refused, unless
//!   only its own writer wrote to the object in all of them.

use crate::limits::{LIVES_MAX, RECENT_OBJECTS_MAX, RECENT_RANGES_MAX};
use crate::object::FORMAT_VERSION;
use crate::objects::Spot;
use std::collections::BTreeMap;
use std::ops::Range;
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder, Short};

/// When a server executed a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The life of the server: its write verifier.
    pub life: u64,
    /// Grows from write to write within a life, from 1.
    pub order: u64,
}

impl Stamp {
    /// Bytes that [`encode`](Stamp::encode) writes.
    pub const BYTES: usize = 16;

    /// Appends the stamp.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.u64(self.life).u64(self.order);
    }

    /// Reads what [`encode`](Stamp::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Stamp, Short> {
        Ok(Stamp { life: input.u64()?, order: input.u64()? })
    }
}

/// Who wrote: one client, by its incarnation, nobody (0), or [`MANY`].
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

/// What one life of a server committed of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// The life; 0 when there is none.
    pub life: u64,
    /// Every write up to this one is stable.
    pub through: u64,
    /// Who wrote in this life.
    pub writer: Writer,
    /// The shortest length that the object was cut to in this life.
    pub cut: u64,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits { life: 0, through: 0, writer: 0, cut: u64::MAX }
    }
}

impl Commits {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.u64(self.life).u64(self.through).u64(self.writer).u64(self.cut);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Commits, Short> {
        let (life, through) = (input.u64()?, input.u64()?);
        Ok(Commits { life, through, writer: input.u64()?, cut: input.u64()? })
    }
}

/// What the last two lives that committed something of an object committed. Part of its durable head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The later one.
    pub last: Commits,
    /// The one before.
    pub before: Commits,
}

impl History {
    /// Bytes that [`encode`](History::encode) writes.
    pub const BYTES: usize = 2 * 32;

    /// Appends both.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        self.last.encode(out);
        self.before.encode(out);
    }

    /// Reads what [`encode`](History::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<History, Short> {
        Ok(History { last: Commits::decode(input)?, before: Commits::decode(input)? })
    }

    /// After a commit of everything up to `through` in this life.
    pub fn after(&self, life: u64, through: u64, writer: Writer) -> History {
        let (last, before) = match self.last.life == life {
            true => (self.last, self.before),
            false => (Commits::default(), self.last),
        };
        let writer = joined(last.writer, writer);
        History { last: Commits { life, through, writer, cut: last.cut }, before }
    }

    /// Who wrote in this life, as far as it was committed.
    pub fn writer_in(&self, life: u64) -> Writer {
        if self.last.life == life { self.last.writer } else { 0 }
    }

    fn entries(&self) -> impl Iterator<Item = &Commits> {
        [&self.last, &self.before].into_iter().filter(|commits| commits.life != 0)
    }
}

/// The lives of a server on one disk, the present one last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    sequence: u64,
    lives: Vec<u64>,
}

impl Lives {
    const MAGIC: u32 = u32::from_le_bytes(*b"TZLV");
    const FIXED_BYTES: usize = 24;

    /// A life begins.
    pub fn begin(&mut self, life: u64) {
        let surplus = (self.lives.len() + 1).saturating_sub(LIVES_MAX);
        self.lives.drain(..surplus);
        self.lives.push(life);
        self.sequence += 1;
    }

    /// Grows with every life: which of two slots is the later one, and where the next goes.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether there was a life before, so that somebody may send something again.
    pub fn has_earlier(&self) -> bool {
        self.lives.len() > 1
    }

    fn rank(&self, life: u64) -> Option<usize> {
        self.lives.iter().rposition(|other| *other == life)
    }

    fn now(&self) -> usize {
        self.lives.len().saturating_sub(1)
    }

    /// Writes one slot: a block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut out = Encoder::new(block);
        out.u32(Lives::MAGIC).u32(0).u16(FORMAT_VERSION).u64(self.sequence);
        out.u32(self.lives.len() as u32);
        let mut rest = Encoder::new(&mut block[Lives::FIXED_BYTES..]);
        self.lives.iter().for_each(|life| {
            rest.u64(*life);
        });
        let sum = crc32c(block);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads a slot; `None` when it was never written or is torn.
    pub fn decode(block: &[u8]) -> Option<Lives> {
        let mut copy = block.to_vec();
        copy.get_mut(4..8)?.fill(0);
        let mut input = Decoder::new(block);
        let (magic, sum, version) = (input.u32().ok()?, input.u32().ok()?, input.u16().ok()?);
        if magic != Lives::MAGIC || sum != crc32c(&copy) || version != FORMAT_VERSION {
            return None;
        }
        let (sequence, count) = (input.u64().ok()?, input.u32().ok()? as usize);
        let mut rest = Decoder::new(block.get(Lives::FIXED_BYTES..)?);
        let lives: Result<Vec<u64>, Short> =
            (0..count.min(LIVES_MAX)).map(|_| rest.u64()).collect();
        Some(Lives { sequence, lives: lives.ok()? })
    }
}

/// What is to be done with a write that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it is here, or stable, or something newer is.
    Kept,
    /// It was lost: it belongs where nothing newer is, below this offset.
    Lost {
        /// First byte that was cut off since.
        below: u64,
    },
    /// Nobody can tell what it may replace.
    Unknown,
}

/// Judges a write with this stamp of `client`, of an object with this history, to which `writer` wrote in this life.
/// `remembered`: whether [`Recent`] knows every write of this life.
pub fn judge(
    lives: &Lives,
    history: &History,
    stamp: Stamp,
    client: u64,
    writer: Writer,
    remembered: bool,
) -> Verdict {
    let rank = lives.rank(stamp.life);
    if rank == Some(lives.now()) {
        return Verdict::Kept;
    }
    let same = history.entries().find(|commits| commits.life == stamp.life);
    if same.is_some_and(|commits| stamp.order <= commits.through) {
        return Verdict::Kept;
    }
    // A life that is not listed is one of long ago, or none of this disk.
    let later = |commits: &&Commits| {
        rank.is_none_or(|rank| lives.rank(commits.life).is_some_and(|of| of > rank))
    };
    let now = lives.now();
    let untold = |commits: &Commits| lives.rank(commits.life) != Some(now);
    let told = !history.entries().filter(later).any(untold);
    if told && remembered && rank.is_some() {
        return Verdict::Lost { below: u64::MAX };
    }
    let (sole, below) =
        history.entries().filter(later).fold((writer, u64::MAX), |(writer, below), commits| {
            (joined(writer, commits.writer), below.min(commits.cut))
        });
    let sole = sole == 0 || sole == client;
    if sole { Verdict::Lost { below } } else { Verdict::Unknown }
}

/// The order of writes among lives: the life's rank, then the number.
type Rank = (usize, u64);
/// Later than all that is sent again.
const NOW: Rank = (usize::MAX, 0);

/// What was written in this life, by object: only as long as clients may still send something of an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    on: bool,
    objects: BTreeMap<Spot, BTreeMap<u64, (u64, Rank)>>,
    ranges: usize,
}

impl Recent {
    /// Starts to remember.
    pub fn start(&mut self) {
        self.on = true;
    }

    /// Remembers no more, and forgets: too much, or too late.
    pub fn stop(&mut self) {
        *self = Recent::default();
    }

    /// Whether every write of this life is known.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// A write of now to `range`.
    pub fn note(&mut self, object: Spot, range: Range<u64>) {
        self.put(object, range, NOW);
    }

    /// A write that was sent again is in `range`.
    pub fn note_again(&mut self, lives: &Lives, object: Spot, range: Range<u64>, stamp: Stamp) {
        if let Some(rank) = lives.rank(stamp.life) {
            self.put(object, range, (rank, stamp.order));
        }
    }

    fn put(&mut self, object: Spot, range: Range<u64>, rank: Rank) {
        if !self.on || range.is_empty() {
            return;
        }
        let ranges = self.objects.entry(object).or_default();
        let before = ranges.len();
        let (mut start, mut end) = (range.start, range.end);
        // What it covers or touches goes, and comes back as far as it reaches over.
        let first = ranges.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let touched: Vec<(u64, (u64, Rank))> = ranges
            .range(first..=end)
            .filter(|(_, (stop, _))| *stop >= start)
            .map(|(at, of)| (*at, *of))
            .collect();
        for (at, (stop, of)) in touched {
            ranges.remove(&at);
            if of == rank {
                (start, end) = (start.min(at), end.max(stop));
                continue;
            }
            if at < range.start {
                ranges.insert(at, (range.start, of));
            }
            if stop > range.end {
                ranges.insert(range.end, (stop, of));
            }
        }
        ranges.insert(start, (end, rank));
        self.ranges = self.ranges + ranges.len() - before;
        if self.ranges > RECENT_RANGES_MAX || self.objects.len() > RECENT_OBJECTS_MAX {
            self.stop();
        }
    }

    /// The parts of `range` where nothing newer than `stamp` is.
    pub fn older(
        &self,
        lives: &Lives,
        object: Spot,
        range: Range<u64>,
        stamp: Stamp,
    ) -> Vec<Range<u64>> {
        let rank = (lives.rank(stamp.life).unwrap_or(0), stamp.order);
        let (mut out, mut at) = (Vec::new(), range.start);
        let ranges = self.objects.get(&object).into_iter();
        let newer = ranges.flat_map(|ranges| ranges.range(..range.end));
        for (start, (end, of)) in newer {
            if *end <= at || *of < rank {
                continue;
            }
            if at < *start {
                out.push(at..*start);
            }
            at = *end;
        }
        if at < range.end {
            out.push(at..range.end);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, ObjectId, VolumeId};

    const ME: u64 = 77;
    const OTHER: u64 = 78;

    fn object() -> Spot {
        let id = ObjectId { volume: VolumeId(1), file: FileId(2), column: 0 };
        Spot { id, disk: 0 }
    }

    fn lives(all: &[u64]) -> Lives {
        let mut lives = Lives::default();
        all.iter().for_each(|life| lives.begin(*life));
        lives
    }

    fn stamp(life: u64, order: u64) -> Stamp {
        Stamp { life, order }
    }

    #[test]
    fn lives_survive_the_disk_and_a_torn_slot_is_none() {
        let mut many = lives(&[5, 9, 3]);
        let mut block = vec![0; 4096];
        many.encode(&mut block);
        assert_eq!(Lives::decode(&block), Some(many.clone()));
        block[30] ^= 1;
        assert_eq!(Lives::decode(&block), None);
        assert_eq!(Lives::decode(&[0; 4096]), None);
        (100..2000).for_each(|life| many.begin(life));
        many.encode(&mut block);
        assert_eq!(Lives::decode(&block), Some(many.clone()));
        assert_eq!((many.rank(3), many.rank(1999)), (None, Some(LIVES_MAX - 1)));
    }

    #[test]
    fn what_its_life_committed_is_left_alone_and_what_it_lost_is_written() {
        let (lives, history) = (lives(&[1, 2, 3]), History::default().after(2, 10, OTHER));
        let judge = |stamp| judge(&lives, &history, stamp, ME, OTHER, true);
        assert_eq!(judge(stamp(2, 10)), Verdict::Kept);
        assert_eq!(judge(stamp(2, 11)), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(stamp(3, 1)), Verdict::Kept);
    }

    #[test]
    fn the_life_before_counts_although_this_one_has_committed() {
        let history = History::default().after(2, 10, OTHER).after(3, 5, OTHER);
        let judge = |stamp| judge(&lives(&[1, 2, 3]), &history, stamp, ME, OTHER, true);
        assert_eq!(judge(stamp(2, 10)), Verdict::Kept);
        assert_eq!(judge(stamp(2, 11)), Verdict::Lost { below: u64::MAX });
    }

    #[test]
    fn what_two_lives_ago_lost_is_written_only_for_the_sole_writer() {
        let all = lives(&[1, 2, 3]);
        let own = History::default().after(1, 1, ME).after(2, 10, ME);
        assert_eq!(judge(&all, &own, stamp(1, 2), ME, 0, true), Verdict::Lost { below: u64::MAX });
        assert_eq!(judge(&all, &own, stamp(1, 2), ME, OTHER, true), Verdict::Unknown);
        let shared = History::default().after(2, 10, OTHER);
        assert_eq!(judge(&all, &shared, stamp(1, 2), ME, 0, true), Verdict::Unknown);
        let mut cut = own;
        cut.last.cut = 4096;
        assert_eq!(judge(&all, &cut, stamp(1, 2), ME, 0, true), Verdict::Lost { below: 4096 });
    }

    #[test]
    fn without_memory_of_this_life_only_the_sole_writer_writes_again() {
        let (all, none) = (lives(&[1, 2]), History::default());
        assert_eq!(judge(&all, &none, stamp(1, 2), ME, OTHER, false), Verdict::Unknown);
        let lost = Verdict::Lost { below: u64::MAX };
        assert_eq!(judge(&all, &none, stamp(1, 2), ME, ME, false), lost);
        assert_eq!(judge(&all, &none, stamp(9, 2), ME, ME, true), lost);
        assert_eq!(judge(&all, &none, stamp(9, 2), ME, OTHER, true), Verdict::Unknown);
    }

    proptest! {
        /// Every byte is what the newest write left there, in whatever order lost writes are sent again.
        #[test]
        fn the_newest_write_of_each_byte_stays(
            writes in prop::collection::vec((0u64..60, 1u64..20, 0usize..3, 1u64..6), 1..40),
        ) {
            let lives = lives(&[10, 11, 12]);
            let (mut recent, mut bytes) = (Recent::default(), [(0, 0); 80]);
            recent.start();
            for (start, count, life, order) in writes {
                let range = start..start + count;
                // The last of the three is the present life.
                let (stamp, rank) = match life {
                    2 => (None, NOW),
                    _ => (Some(stamp(10 + life as u64, order)), (life, order)),
                };
                let parts = match stamp {
                    None => vec![range.clone()],
                    Some(stamp) => recent.older(&lives, object(), range.clone(), stamp),
                };
                for byte in range {
                    let wanted = bytes[byte as usize] < rank || rank == NOW || bytes[byte as usize] == (0, 0);
                    prop_assert_eq!(parts.iter().any(|part| part.contains(&byte)), wanted);
                }
                for part in parts {
                    part.clone().for_each(|byte| bytes[byte as usize] = rank);
                    match stamp {
                        None => recent.note(object(), part),
                        Some(stamp) => recent.note_again(&lives, object(), part, stamp),
                    }
                }
                prop_assert_eq!(recent.ranges, recent.objects[&object()].len());
            }
        }
    }

    #[test]
    fn too_much_to_remember_is_forgotten_and_said() {
        let mut recent = Recent::default();
        recent.start();
        (0..=RECENT_RANGES_MAX as u64).for_each(|at| recent.note(object(), at * 2..at * 2 + 1));
        assert!(!recent.is_on() && recent.objects.is_empty());
    }
}
