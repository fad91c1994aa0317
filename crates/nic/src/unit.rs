//! Payloads as units: a stretch of one host frame that takes one adapter buffer, and on the bus a transfer of its own
//! (scatter/gather: forwarding paper section 4.1, HotI'99 section 2.2).

use crate::cache::{Busy, PayloadCache, Reuse};
use crate::command::{HostFrame, Piece};
use endpoint::Pulse;
use endpoint::pulse::Backlog;

/// One unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub frame: HostFrame,
    pub reuse: Reuse,
    /// Offset of its end in the message's payload.
    pub end: usize,
    pub buffer: Option<u16>,
}

impl Unit {
    pub fn start(&self) -> usize {
        self.end - self.frame.bytes
    }

    /// Host memory of the payload's byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.frame.address + (offset - self.start()) as u64
    }

    /// The adapter's buffer and where in it the payload's byte at `offset` is.
    pub fn place(&self, offset: usize) -> Option<(u16, usize)> {
        self.buffer.map(|buffer| (buffer, offset - self.start()))
    }
}

/// Index of the message `number` in a ring of `len` entries. A step asks ten times: without a division if possible.
pub(crate) fn entry(number: u64, len: usize) -> usize {
    if len.is_power_of_two() {
        return number as usize & (len - 1);
    }
    (number % len as u64) as usize
}

/// Appends the units of the pieces' payload from `offset` on, `bytes` long, none longer than `most`.
pub(crate) fn cut(
    units: &mut Vec<Unit>,
    pieces: impl Iterator<Item = Piece>,
    (offset, bytes): (usize, usize),
    most: usize,
) {
    let (mut begin, until) = (0, offset + bytes);
    for piece in pieces {
        let end = begin + piece.frame.bytes;
        let mut at = begin.max(offset);
        while at < end.min(until) {
            let bytes = most.min(end.min(until) - at);
            let frame = HostFrame { address: piece.frame.address + (at - begin) as u64, bytes };
            let reuse = if frame == piece.frame { piece.reuse } else { Reuse::Fetch };
            units.push(Unit { frame, reuse, end: at + bytes, buffer: None });
            at += bytes;
        }
        begin = end;
    }
}

/// A payload's way through the adapter: how much of it came and how much has gone on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub units: Vec<Unit>,
    /// The unit that the source works at, and the one that the sink works at.
    pub source_unit: usize,
    pub sink_unit: usize,
    /// Payload offsets: transfers started up to here, and ended up to here, of the source and of the sink.
    pub source_started: usize,
    pub source_ended: usize,
    pub sink_started: usize,
    pub sink_ended: usize,
    /// The source waits for a buffer that only this payload's sink can free.
    pub stuck: bool,
    /// The source waited for its unit's buffer.
    waited: bool,
}

impl Stream {
    /// An empty stream that begins at `offset`; memory is used again.
    pub fn reset(&mut self, offset: usize) {
        self.units.clear();
        (self.source_unit, self.sink_unit) = (0, 0);
        (self.stuck, self.waited) = (false, false);
        (self.source_started, self.source_ended) = (offset, offset);
        (self.sink_started, self.sink_ended) = (offset, offset);
    }

    /// The unit that the source works at, unless it has started all.
    pub fn source(&mut self) -> Option<&mut Unit> {
        self.units.get_mut(self.source_unit)
    }

    /// The source starts a transfer: its offset and its bytes, at most `most` and to the unit's end.
    pub fn start_source(&mut self, most: usize) -> (Unit, usize, usize) {
        let unit = self.units[self.source_unit];
        let offset = self.source_started;
        let bytes = most.min(unit.end - offset);
        self.source_started += bytes;
        self.source_unit += usize::from(self.source_started == unit.end);
        (unit, offset, bytes)
    }

    /// Bytes that an idle sink should move now, of a packet that ends at `end` when `moved` bytes of the source's
    /// active transfer have come. Packets behind it are not told to the pulse as queued: on the adapters of the papers
    /// they show in what is buffered, and pulses grow to whole payloads over several packets (HotI'99 Figure 3).
    pub fn pulse(&self, pulse: Pulse, end: usize, moved: usize) -> usize {
        let come = (self.source_ended + moved).min(end);
        let complete = come == end || self.stuck;
        let buffered = come - self.sink_started;
        let backlog = Backlog { buffered, complete, idle: true, queued: 0 };
        let unit_end = self.units.get(self.sink_unit).map_or(end, |unit| unit.end);
        pulse.decide(backlog).min(unit_end - self.sink_started)
    }

    /// Bytes of the source's active transfer of `bytes` after which [`Stream::pulse`] can change.
    pub fn watch(&self, pulse: Pulse, bytes: usize) -> Option<usize> {
        let at = self.sink_started + pulse.least()?;
        let far = at.checked_sub(self.source_ended)?;
        (far > 0 && far < bytes).then_some(far)
    }

    /// The sink starts a transfer of `bytes`, which must have come.
    pub fn start_sink(&mut self, bytes: usize, moved: usize) -> (Unit, usize) {
        let (unit, offset) = (self.units[self.sink_unit], self.sink_started);
        self.sink_started += bytes;
        assert!(self.sink_started <= self.source_ended + moved, "a sink never overruns its source");
        assert!(self.sink_started <= unit.end, "a transfer stays in one frame");
        self.sink_unit += usize::from(self.sink_started == unit.end);
        (unit, offset)
    }

    /// The source's transfer has ended. The buffer that is full now, if one is.
    pub fn end_source(&mut self, bytes: usize) -> Option<u16> {
        self.source_ended += bytes;
        let at = self.source_ended;
        self.units.iter().find(|unit| unit.end == at).and_then(|unit| unit.buffer)
    }

    /// The sink's transfer has ended. The buffer that is done with, if one is.
    pub fn end_sink(&mut self, bytes: usize) -> Option<u16> {
        self.sink_ended += bytes;
        let at = self.sink_ended;
        self.units.iter().find(|unit| unit.end == at).and_then(|unit| unit.buffer)
    }

    /// Notes what an attempt to get a buffer for the source's unit brought.
    pub fn attached(&mut self, found: Result<u16, Busy>, cache: &mut PayloadCache) {
        if found.is_ok() && self.waited {
            cache.count_wait();
        }
        self.waited = found.is_err();
        let own =
            |busy: Busy| self.units[self.sink_unit..].iter().any(|u| u.buffer == Some(busy.0));
        self.stuck = found.is_err_and(own);
        if let Ok(buffer) = found {
            self.units[self.source_unit].buffer = Some(buffer);
        }
    }
}
