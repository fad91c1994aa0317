//! Hints to the servers: what will be read soon.

use super::*;
use std::ops::Range;

impl Client {
    /// Asks the servers to bring these bytes of a file into their memory, at most [`HINT_BYTES_MAX`] of them. One try
    /// each: a hint that is lost or refused costs time later and nothing else. How many bytes servers took note of.
    pub async fn prefetch(&self, file: &FileRef, range: Range<u64>) -> u64 {
        let Ok(fragments) = self.fragments(file) else { return 0 };
        let bytes = range.end.saturating_sub(range.start).min(HINT_BYTES_MAX);
        if bytes == 0 || range.end > file.layout.size_max() {
            return 0;
        }
        let mut columns: BTreeMap<u16, Range<u64>> = BTreeMap::new();
        for extent in BlockMap::new(&file.layout, &fragments).extents(range.start, bytes) {
            let (from, to) = (extent.object_offset, extent.object_offset + extent.bytes);
            let column = columns.entry(extent.column).or_insert(from..to);
            *column = column.start.min(from)..column.end.max(to);
        }
        let asked = columns.into_iter().flat_map(|(column, range)| {
            let starts = range.clone().step_by(TRANSFER_BYTES_MAX);
            starts.map(move |at| {
                (column, at..range.end.min(at.saturating_add(TRANSFER_BYTES_MAX as u64)))
            })
        });
        let asked = asked.map(|(column, range)| self.prefetch_column(file, column, range));
        node::all(asked).await.into_iter().sum()
    }

    async fn prefetch_column(&self, file: &FileRef, column: u16, range: Range<u64>) -> u64 {
        let home = file.layout.home(column);
        if self.there(home).is_err() {
            return 0;
        }
        let offset = range.start - range.start % wire::limits::BLOCK_BYTES as u64;
        let bytes = (range.end - offset).min(TRANSFER_BYTES_MAX as u64);
        let request = ObjectRequest { offset, bytes: bytes as u32, ..self.request(file, column) };
        let until = self.cx().now() + HINT_PATIENCE;
        let (tries, into) = (Tries { until, ..self.tries(None) }, self.cx().pieces());
        let reply = self.send(home, op::PREFETCH, request, Sent::default(), into, &tries).await;
        if reply.is_ok_and(|reply| reply.status == 0) { range.end - range.start } else { 0 }
    }
}
