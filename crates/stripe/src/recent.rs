//! The writes of a server's present incarnation, remembered for as long as clients may retransmit something that an
//! earlier one lost: so it is known where something newer is. In memory only: after the next restart it is gone, and
//! the histories of [`order`](crate::order) alone decide.
//!
//! Of a column that moves to another server its new one must know the same: [`Past`] goes along with the copy.

use crate::limits::{
    OWN_TRAILER_BYTES_MAX, PAST_INCARNATIONS_MAX, RECENT_OBJECTS_MAX, RECENT_RANGES_MAX,
};
use crate::objects::Spot;
use crate::order::{History, Incarnations, Stamp};
use std::collections::BTreeMap;
use std::ops::Range;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::Field;

/// The order of writes among incarnations: the incarnation's rank, then the number.
type Rank = (usize, u64);
/// Later than all that is retransmitted.
const NOW: Rank = (usize::MAX, 0);

/// The known writes of one object: which bytes were written when, first byte to end and order.
#[derive(Debug, Default)]
struct Known {
    ranges: BTreeMap<u64, (u64, Rank)>,
    /// The incarnations by which it is judged, if they are not those of its disk, and since which of them all is known.
    moved: Option<(Incarnations, usize)>,
}

/// Writes of this incarnation, by object.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    on: bool,
    objects: BTreeMap<Spot, Known>,
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

    /// The incarnations by which an object on a disk with these incarnations is judged.
    pub fn incarnations<'a>(&'a self, disk: &'a Incarnations, object: Spot) -> &'a Incarnations {
        self.moved(object).map_or(disk, |(incarnations, _)| incarnations)
    }

    /// The first of them of which every write is known.
    pub fn since(&self, disk: &Incarnations, object: Spot) -> Option<usize> {
        let moved = self.moved(object).map(|(_, since)| *since);
        moved.or(self.on.then(|| disk.now()))
    }

    /// Whether it is judged by incarnations of other disks too.
    pub fn has_moved(&self, object: Spot) -> bool {
        self.moved(object).is_some()
    }

    fn moved(&self, object: Spot) -> Option<&(Incarnations, usize)> {
        self.objects.get(&object)?.moved.as_ref()
    }

    /// A write of now to `range`.
    pub fn note(&mut self, object: Spot, range: Range<u64>) {
        self.put(object, range, NOW);
    }

    /// A retransmitted write is in `range`.
    pub fn note_again(
        &mut self,
        disk: &Incarnations,
        object: Spot,
        range: Range<u64>,
        stamp: Stamp,
    ) {
        if let Some(rank) = self.incarnations(disk, object).rank(stamp.incarnation) {
            self.put(object, range, (rank, stamp.order));
        }
    }

    fn put(&mut self, object: Spot, range: Range<u64>, rank: Rank) {
        if range.is_empty() || !(self.on || self.objects.contains_key(&object)) {
            return;
        }
        let ranges = &mut self.objects.entry(object).or_default().ranges;
        let before = ranges.len();
        let (mut start, mut end) = (range.start, range.end);
        // Ranges that it covers or touches go, and come back as far as they reach over.
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
        self.check_limits();
    }

    fn check_limits(&mut self) {
        if self.ranges > RECENT_RANGES_MAX || self.objects.len() > RECENT_OBJECTS_MAX {
            self.stop();
        }
    }

    /// The past that another server must know of the object when it goes there, with its `history`.
    pub fn past(&self, disk: &Incarnations, object: Spot, history: History) -> Past {
        let (before, latest) = self.incarnations(disk, object).latest(PAST_INCARNATIONS_MAX);
        let incarnations = latest.to_vec();
        let last = (incarnations.len().saturating_sub(1), u64::MAX);
        let ranges = self.objects.get(&object).into_iter().flat_map(|known| &known.ranges);
        let ranges: Vec<(Range<u64>, Rank)> = ranges
            .map(|(start, (end, rank))| {
                let among = (rank.0.saturating_sub(before), rank.1);
                (*start..*end, if *rank == NOW { last } else { among })
            })
            .collect();
        let since = self.since(disk, object).and_then(|since| since.checked_sub(before));
        let memory = since.map(|since| Memory { incarnations, since, ranges });
        Past { history, memory: memory.filter(Memory::fits) }
    }

    /// From now on, in `incarnation`, the object is a copy of one with this past. Whether there is more to know of it
    /// than its history.
    pub fn inherit(&mut self, object: Spot, incarnation: u64, memory: Option<Memory>) -> bool {
        let before = self.objects.remove(&object);
        self.ranges -= before.map_or(0, |known| known.ranges.len());
        let Some(memory) = memory else { return false };
        let incarnations = Incarnations::of(memory.incarnations.into_iter().chain([incarnation]));
        let moved = Some((incarnations, memory.since));
        let ranges = memory.ranges.into_iter();
        let ranges: BTreeMap<_, _> = ranges.map(|(at, rank)| (at.start, (at.end, rank))).collect();
        self.ranges += ranges.len();
        self.objects.insert(object, Known { ranges, moved });
        self.check_limits();
        true
    }

    /// The parts of `range` where nothing newer than `stamp` is.
    pub fn older(
        &self,
        disk: &Incarnations,
        object: Spot,
        range: Range<u64>,
        stamp: Stamp,
    ) -> Vec<Range<u64>> {
        let rank =
            (self.incarnations(disk, object).rank(stamp.incarnation).unwrap_or(0), stamp.order);
        let (mut out, mut at) = (Vec::new(), range.start);
        let ranges = self.objects.get(&object).into_iter();
        let newer = ranges.flat_map(|known| known.ranges.range(..range.end));
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

/// The past that the server of a column's copy needs to judge retransmitted writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub history: History,
    /// The remembered writes besides, if they are all and not too many.
    pub memory: Option<Memory>,
}

/// A server's memory of one object's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    incarnations: Vec<u64>,
    since: usize,
    ranges: Vec<(Range<u64>, Rank)>,
}

impl Memory {
    const RANGE_BYTES: usize = 32;

    fn bytes(&self) -> usize {
        8 * self.incarnations.len() + Memory::RANGE_BYTES * self.ranges.len()
    }

    fn fits(&self) -> bool {
        Past::FIXED_BYTES + self.bytes() <= OWN_TRAILER_BYTES_MAX
    }

    fn encode(&self, out: &mut Encoder<'_>) {
        out.u16(self.incarnations.len() as u16)
            .u16(self.since as u16)
            .u32(self.ranges.len() as u32);
        self.incarnations.iter().for_each(|incarnation| {
            out.u64(*incarnation);
        });
        for (range, (rank, order)) in &self.ranges {
            out.u64(range.start).u64(range.end).u64(*rank as u64).u64(*order);
        }
    }

    /// Nothing when there are no incarnations.
    fn decode(input: &mut Decoder<'_>) -> Result<Option<Memory>, Short> {
        let (incarnations, since, ranges) = (input.u16()?, usize::from(input.u16()?), input.u32()?);
        let incarnations =
            (0..incarnations).map(|_| input.u64()).collect::<Result<Vec<u64>, Short>>()?;
        let range = |input: &mut Decoder<'_>| {
            Ok((input.u64()?..input.u64()?, (input.u64()? as usize, input.u64()?)))
        };
        let ranges: Result<_, Short> = (0..ranges).map(|_| range(input)).collect();
        let memory = Memory { incarnations, since, ranges: ranges? };
        Ok((!memory.incarnations.is_empty()).then_some(memory))
    }
}

impl Past {
    const FIXED_BYTES: usize = History::BYTES + 8;

    /// As the trailer of a message.
    pub fn encode(&self) -> Vec<u8> {
        let more = self.memory.as_ref().map_or(0, Memory::bytes);
        let mut trailer = vec![0; Past::FIXED_BYTES + more];
        let mut out = Encoder::new(&mut trailer);
        self.history.put(&mut out);
        if let Some(memory) = &self.memory {
            memory.encode(&mut out);
        }
        trailer
    }

    /// Reads what [`encode`](Past::encode) wrote.
    pub fn decode(trailer: &[u8]) -> Result<Past, Short> {
        let mut input = Decoder::new(trailer);
        let history = History::take(&mut input)?;
        Ok(Past { history, memory: Memory::decode(&mut input)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, ObjectId, VolumeId};

    fn object() -> Spot {
        let id = ObjectId { volume: VolumeId(1), file: FileId(2), column: 0 };
        Spot { id, disk: 0 }
    }

    fn incarnations(all: &[u64]) -> Incarnations {
        Incarnations::of(all.iter().copied())
    }

    fn stamp(incarnation: u64, order: u64) -> Stamp {
        Stamp { incarnation, order }
    }

    proptest! {
        /// Every byte is what the newest write left there, in whatever order lost writes are retransmitted.
        #[test]
        fn the_newest_write_of_each_byte_stays(
            writes in prop::collection::vec((0u64..60, 1u64..20, 0usize..3, 1u64..6), 1..40),
        ) {
            let incarnations = incarnations(&[10, 11, 12]);
            let (mut recent, mut bytes) = (Recent::default(), [(0, 0); 80]);
            recent.start();
            for (start, count, incarnation, order) in writes {
                let range = start..start + count;
                // The last of the three is the present incarnation.
                let (stamp, rank) = match incarnation {
                    2 => (None, NOW),
                    _ => (Some(stamp(10 + incarnation as u64, order)), (incarnation, order)),
                };
                let parts = match stamp {
                    None => vec![range.clone()],
                    Some(stamp) => recent.older(&incarnations, object(), range.clone(), stamp),
                };
                for byte in range {
                    let wanted = bytes[byte as usize] < rank || rank == NOW || bytes[byte as usize] == (0, 0);
                    prop_assert_eq!(parts.iter().any(|part| part.contains(&byte)), wanted);
                }
                for part in parts {
                    part.clone().for_each(|byte| bytes[byte as usize] = rank);
                    match stamp {
                        None => recent.note(object(), part),
                        Some(stamp) => recent.note_again(&incarnations, object(), part, stamp),
                    }
                }
                prop_assert_eq!(recent.ranges, recent.objects[&object()].ranges.len());
            }
        }
    }

    #[test]
    fn too_much_to_remember_is_forgotten_and_said() {
        let mut recent = Recent::default();
        recent.start();
        (0..=RECENT_RANGES_MAX as u64).for_each(|at| recent.note(object(), at * 2..at * 2 + 1));
        assert!(!recent.on && recent.objects.is_empty());
    }

    /// On the old disk (incarnations 1 and 2) two clients had retransmitted what 1 lost; then the column moved.
    #[test]
    fn what_is_remembered_moves_along() {
        let mut old = Recent::default();
        old.start();
        let old_incarnations = incarnations(&[1, 2]);
        old.note_again(&old_incarnations, object(), 0..10, stamp(1, 5));
        old.note(object(), 20..30);
        let past = old.past(&old_incarnations, object(), History::default().after(2, 7, 9));
        assert_eq!(Past::decode(&past.encode()).as_ref(), Ok(&past));
        let (mut new, new_incarnations) = (Recent::default(), incarnations(&[50, 60]));
        assert!(new.inherit(object(), 60, past.memory));
        assert_eq!(new.since(&new_incarnations, object()), Some(1));
        assert!(new.has_moved(object()));
        new.note(object(), 40..50);
        let older = |order| new.older(&new_incarnations, object(), 0..60, stamp(1, order));
        assert_eq!(older(4), [10..20, 30..40, 50..60]);
        assert_eq!(older(6), [0..20, 30..40, 50..60]);
    }

    #[test]
    fn who_remembers_nothing_or_too_much_passes_the_history_only() {
        let mut recent = Recent::default();
        let (incarnations, history) = (incarnations(&[1, 2]), History::default().after(2, 7, 9));
        assert_eq!(recent.past(&incarnations, object(), history), Past { history, memory: None });
        recent.start();
        (0..64).for_each(|at| recent.note(object(), at * 2..at * 2 + 1));
        let past = recent.past(&incarnations, object(), history);
        assert_eq!(past.memory, None);
        assert_eq!(Past::decode(&past.encode()).as_ref(), Ok(&past));
        assert!(!recent.inherit(object(), 2, None) && recent.ranges == 0);
    }
}
