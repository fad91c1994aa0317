//! One file: whether each of its columns is whole, and with `--deep` whether every block can be read.

use super::ranges::{Range, Ranges};
use node::Cx;
use std::cell::RefCell;
use std::collections::BTreeSet;
use stripe::FileRef;
use stripe::limits::TRANSFER_BYTES_MAX;
use wire::limits::BLOCK_BYTES;
use wire::{BlockMap, Errno, Fragment, Home, NodeId};

/// Reads of one file at a time.
const READS: usize = 4;

/// A column that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostColumn {
    pub column: u16,
    pub home: Home,
    pub why: Errno,
}

/// Findings about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Columns whose disk says that they are damaged, or is not served.
    pub columns: Vec<LostColumn>,
    /// The names are those of a backup, and the file got columns since: what is in them cannot be told.
    pub grown: bool,
    /// Bytes that cannot be read: those of the columns, and damaged blocks.
    pub lost: Ranges,
    /// The names were restored, and the file is not compared with its objects yet: a server is waited for.
    pub uncompared: bool,
    /// Servers that did not answer, so that this is not all.
    pub silent: Vec<NodeId>,
}

impl Findings {
    /// Whether something is known to be damaged.
    pub fn is_damaged(&self) -> bool {
        self.grown || !self.columns.is_empty() || self.lost.bytes() > 0
    }
}

/// The checker of files.
pub struct Inspector {
    pub cx: Cx,
    pub stripe: stripe::Client,
    pub deep: bool,
    /// Servers that did not answer once: they are not waited for again.
    pub silent: RefCell<BTreeSet<NodeId>>,
}

/// A file to be looked at.
pub struct Target<'a> {
    pub reference: FileRef,
    pub size: u64,
    pub fragments: &'a [Fragment],
    /// The names were restored, and the manager misses objects of it.
    pub lacks: bool,
}

impl Inspector {
    /// Looks at a file; ESTALE when its layout has changed meanwhile.
    pub async fn inspect(&self, target: &Target<'_>) -> Result<Findings, Errno> {
        let mut findings = Findings::default();
        if self.note_silent(target, &mut findings) {
            return Ok(findings);
        }
        let map = BlockMap::new(&target.reference.layout, target.fragments);
        let told = self.stripe.columns(&target.reference).await;
        for ((column, home), told) in (0..).zip(target.reference.layout.homes()).zip(told) {
            match told {
                Err(why @ Errno::ENOENT)
                    if target.lacks && map.object_bytes(column, target.size) > 0 =>
                {
                    findings.columns.push(LostColumn { column, home, why });
                }
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(Errno::ESTALE) => return Err(Errno::ESTALE),
                Err(why @ (Errno::EIO | Errno::ENXIO | Errno::ENODEV)) => {
                    findings.columns.push(LostColumn { column, home, why });
                }
                Err(_) => drop(self.silent.borrow_mut().insert(home.server)),
            }
        }
        findings.grown = target.lacks && findings.columns.is_empty();
        let mut lost = lost_with(target, &findings.columns);
        // Its layout may not be what its objects go by: it is read when the loss was accepted.
        if self.deep && !target.lacks && !self.note_silent(target, &mut findings) {
            lost.extend(self.unreadable(target, &findings.columns).await?);
        }
        self.note_silent(target, &mut findings);
        findings.lost = Ranges::joined(lost);
        Ok(findings)
    }

    /// Whether a server of the file is known not to answer.
    fn note_silent(&self, target: &Target<'_>, findings: &mut Findings) -> bool {
        let silent = self.silent.borrow();
        let servers: BTreeSet<NodeId> =
            target.reference.layout.homes().map(|home| home.server).collect();
        findings.silent = servers.intersection(&silent).copied().collect();
        !findings.silent.is_empty()
    }

    /// The blocks of the other columns that cannot be read.
    async fn unreadable(
        &self,
        target: &Target<'_>,
        lost: &[LostColumn],
    ) -> Result<Vec<Range>, Errno> {
        let mut bad = Vec::new();
        let ranges = readable(target, lost);
        for some in ranges.chunks(READS) {
            let reads = some.iter().map(|range| self.unreadable_in(target, *range));
            for found in node::all(reads).await {
                bad.extend(found?);
            }
        }
        Ok(bad)
    }

    /// Halves a range that cannot be read until the blocks are known.
    async fn unreadable_in(&self, target: &Target<'_>, range: Range) -> Result<Vec<Range>, Errno> {
        let (mut open, mut bad) = (vec![range], Vec::new());
        while let Some(range) = open.pop() {
            let Err(errno) = self.read(target, range).await else { continue };
            match errno {
                Errno::EIO if range.bytes <= BLOCK_BYTES as u64 => bad.push(range),
                Errno::EIO => open.extend(halves(range)),
                errno => return Err(errno),
            }
        }
        Ok(bad)
    }

    async fn read(&self, target: &Target<'_>, range: Range) -> Result<(), Errno> {
        let blocks = (range.bytes as usize).div_ceil(BLOCK_BYTES);
        loop {
            if let Some(frame) = self.cx.frames().alloc_exact(blocks * BLOCK_BYTES) {
                return self.stripe.read(&target.reference, range.offset, frame).await.map(drop);
            }
            self.cx.sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

/// Whether a column is one of these.
fn is_in(lost: &[LostColumn], column: u16) -> bool {
    lost.iter().any(|lost| lost.column == column)
}

/// The file's parts of one column each, in their order.
fn extents<'a>(target: &'a Target<'_>) -> impl Iterator<Item = (u16, Range)> + 'a {
    let map = BlockMap::new(&target.reference.layout, target.fragments);
    let mut offset = 0;
    map.extents(0, target.size).map(move |extent| {
        let range = Range { offset, bytes: extent.bytes };
        offset += extent.bytes;
        (extent.column, range)
    })
}

/// The bytes of the file that are in lost columns.
fn lost_with(target: &Target<'_>, lost: &[LostColumn]) -> Vec<Range> {
    if lost.is_empty() {
        return Vec::new();
    }
    extents(target).filter(|(column, _)| is_in(lost, *column)).map(|(_, range)| range).collect()
}

/// Ranges to be read: all of the file, but what is in lost columns.
fn readable(target: &Target<'_>, lost: &[LostColumn]) -> Vec<Range> {
    if lost.is_empty() {
        let step = TRANSFER_BYTES_MAX as u64;
        let starts = (0..target.size).step_by(TRANSFER_BYTES_MAX);
        return starts
            .map(|offset| Range { offset, bytes: (target.size - offset).min(step) })
            .collect();
    }
    extents(target).filter(|(column, _)| !is_in(lost, *column)).map(|(_, range)| range).collect()
}

/// Both halves, cut at a block's border.
fn halves(range: Range) -> [Range; 2] {
    let blocks = range.bytes.div_ceil(BLOCK_BYTES as u64);
    let first = blocks / 2 * BLOCK_BYTES as u64;
    let rest = Range { offset: range.offset + first, bytes: range.bytes - first };
    [Range { offset: range.offset, bytes: first }, rest]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_whole_blocks_and_cover_the_range() {
        for bytes in [4097, 8192, 12_288, 1 << 20, 1_000_001] {
            let [one, other] = halves(Range { offset: 4096, bytes });
            assert_eq!((one.offset, one.bytes + other.bytes), (4096, bytes));
            assert!(one.bytes > 0 && one.bytes.is_multiple_of(4096), "{one:?}");
            assert_eq!(other.offset, 4096 + one.bytes);
        }
    }
}
