//! The bytes of one file that one client writes: what it, and others, may read of them.
//!
//! A file is [`CELLS`] cells, each of which is written as a whole and has versions. A version that COMMIT or a stable
//! WRITE acknowledged stays. An unstable WRITE is there as long as neither the front nor a machine that keeps data
//! restarts; then any version since the last stable one may be. Another client that asks for the attributes first must
//! see what was committed before. SETATTR of the size cuts whole cells off, and is stable when it is acknowledged.

use crate::queue::Picos;

/// Cells of a file.
pub const CELLS: usize = 8;
/// Bytes of a cell: no multiple of a block.
pub const CELL_BYTES: usize = 6_100;
/// Versions whose commit is longer ago are forgotten: no read takes so long.
const REMEMBERED: Picos = Picos::seconds(600);

/// The circumstances under which an unstable write stays: restarts of the front and of machines that keep data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era {
    /// The front's incarnation.
    pub front: u32,
    /// Restarts of the others.
    pub keepers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    number: u32,
    /// When and with which verifier its WRITE was acknowledged.
    written: Option<(Era, [u8; 8])>,
    /// From when on others see it.
    published: Option<Picos>,
}

/// One cell: versions in the order of their writes. Before the first there is a hole, version 0.
#[derive(Clone, Debug, Default)]
struct Cell(Vec<Version>);

impl Cell {
    fn begins(&mut self, number: u32, now: Picos) {
        let is_old = |version: &Version| {
            version.published.is_some_and(|published| published + REMEMBERED < now)
        };
        let old = self.0.iter().rposition(is_old).unwrap_or(0);
        self.0.drain(..old);
        self.0.push(Version { number, written: None, published: None });
    }

    fn own(&self, era: Era) -> Vec<u32> {
        self.since(|version| {
            let is_there = version.written.is_some_and(|(its, _)| its == era);
            is_there || version.published.is_some()
        })
    }

    fn others(&self, asked: Picos) -> Vec<u32> {
        let is_seen = |published: Picos| published <= asked;
        self.since(|version| version.published.is_some_and(is_seen))
    }

    /// Versions from the last one on for which this holds; the hole too where it holds for none.
    fn since(&self, last: impl Fn(&Version) -> bool) -> Vec<u32> {
        let at = self.0.iter().rposition(last);
        let numbers = self.0[at.unwrap_or(0)..].iter().map(|version| version.number);
        at.is_none().then_some(0).into_iter().chain(numbers).collect()
    }
}

/// The file.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    cells: [Cell; CELLS],
    /// Numbers of cells that SETATTR left, as versions.
    ends: Cell,
}

/// The bytes of a version of a cell of a file.
pub fn fill(file: u64, cell: usize, version: u32) -> Vec<u8> {
    if version == 0 {
        return vec![0; CELL_BYTES];
    }
    let seed = file << 32 ^ u64::from(version) << 8 ^ cell as u64;
    let words =
        (0..CELL_BYTES.div_ceil(8) as u64).map(|at| wire::mix(seed.wrapping_mul(31) ^ at << 48));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(CELL_BYTES);
    bytes
}

impl Bytes {
    /// A WRITE of a cell is sent.
    pub fn begins(&mut self, cell: usize, number: u32, now: Picos) {
        let last = self.cells[cell].0.last();
        // a version that was lost is written again
        if last.is_none_or(|last| last.number != number) {
            self.cells[cell].begins(number, now);
        }
    }

    /// SETATTR of the size to so many cells is sent.
    pub fn cuts(&mut self, cells: usize, now: Picos) {
        self.cells[cells..].iter_mut().for_each(|cell| cell.begins(0, now));
        self.ends.begins(cells as u32, now);
    }

    /// It was acknowledged.
    pub fn cut(&mut self, cells: usize, now: Picos) {
        let all = self.cells[cells..].iter_mut().chain([&mut self.ends]);
        all.filter_map(|cell| cell.0.last_mut()).for_each(|last| last.published = Some(now));
    }

    /// It was acknowledged.
    pub fn written(&mut self, cell: usize, era: Era, verifier: [u8; 8], stable: bool, now: Picos) {
        let last = self.cells[cell].0.last_mut().expect("a write that began");
        last.written = Some((era, verifier));
        if stable {
            last.published = last.published.or(Some(now));
        }
    }

    /// COMMIT was acknowledged with this verifier.
    pub fn committed(&mut self, verifier: [u8; 8], now: Picos) {
        for version in self.cells.iter_mut().filter_map(|cell| cell.0.last_mut()) {
            if version.written.is_some_and(|(_, its)| its == verifier) {
                version.published = version.published.or(Some(now));
            }
        }
    }

    /// COMMIT failed: what it was to make stable may be lost.
    pub fn lost(&mut self) {
        for version in self.cells.iter_mut().filter_map(|cell| cell.0.last_mut()) {
            version.written = None;
        }
    }

    /// A cell that is to be written again: its verifier is another one than this, or it was lost. And its version.
    pub fn to_rewrite(&self, verifier: [u8; 8]) -> Option<(usize, u32)> {
        let last =
            self.cells.iter().enumerate().filter_map(|(at, cell)| Some((at, cell.0.last()?)));
        let mut lost = last.filter(|(_, version)| version.published.is_none());
        let (cell, version) =
            lost.find(|(_, version)| version.written.is_none_or(|(_, its)| its != verifier))?;
        Some((cell, version.number))
    }

    /// Versions of a cell that the client may read that writes it.
    pub fn own(&self, cell: usize, era: Era) -> Vec<u32> {
        self.cells[cell].own(era)
    }

    /// Versions that another client may read that asked for the attributes at this time.
    pub fn others(&self, cell: usize, asked: Picos) -> Vec<u32> {
        self.cells[cell].others(asked)
    }

    /// The least and the most that the file may be long for the client that writes it.
    pub fn own_sizes(&self, era: Era) -> (u64, u64) {
        self.sizes(|cell| cell.own(era))
    }

    /// The same for another client that asked for the attributes at this time.
    pub fn others_sizes(&self, asked: Picos) -> (u64, u64) {
        self.sizes(|cell| cell.others(asked))
    }

    fn sizes(&self, may: impl Fn(&Cell) -> Vec<u32>) -> (u64, u64) {
        let cells: Vec<Vec<u32>> = self.cells.iter().map(&may).collect();
        let ends = may(&self.ends);
        let least = cells.iter().rposition(|may| may.iter().all(|version| *version > 0));
        let most = cells.iter().rposition(|may| may.iter().any(|version| *version > 0));
        let cells = |at: Option<usize>| at.map_or(0, |at| at + 1);
        let bytes = |cells: usize, end: Option<&u32>| {
            (cells.max(end.map_or(0, |end| *end as usize)) * CELL_BYTES) as u64
        };
        (bytes(cells(least), ends.iter().min()), bytes(cells(most), ends.iter().max()))
    }
}

/// Checks what a READ of a cell returned. The error names the violation.
pub fn check(file: u64, cell: usize, may: &[u32], data: &[u8]) -> Result<(), String> {
    let versions: Vec<Vec<u8>> = may.iter().map(|version| fill(file, cell, *version)).collect();
    let fits = |(at, byte): (usize, &u8)| versions.iter().any(|bytes| bytes[at] == *byte);
    if let Some(at) = data.iter().enumerate().position(|it| !fits(it)) {
        let known = (0..1 << 16).find(|version| fill(file, cell, *version)[..data.len()] == *data);
        return Err(format!(
            "file {file:#x}, cell {cell}: byte {at} is of version {known:?}, but may be of {may:?}"
        ));
    }
    if data.len() < CELL_BYTES && !may.contains(&0) {
        let bytes = data.len();
        return Err(format!("file {file:#x}, cell {cell}: ends after {bytes} bytes of {may:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Era = Era { front: 1, keepers: 3 };
    const SECOND: Era = Era { front: 2, keepers: 3 };

    #[test]
    fn what_is_not_committed_may_go_with_the_front() {
        let mut bytes = Bytes::default();
        bytes.begins(2, 1, Picos::ZERO);
        bytes.written(2, FIRST, [1; 8], true, Picos::seconds(1));
        bytes.begins(2, 2, Picos::seconds(2));
        bytes.written(2, FIRST, [1; 8], false, Picos::seconds(3));
        assert_eq!(bytes.own(2, FIRST), [2]);
        assert_eq!(bytes.own(2, SECOND), [1, 2]);
        assert_eq!(bytes.others(2, Picos::seconds(3)), [1, 2]);
        assert_eq!(bytes.others(2, Picos::ZERO), [0, 1, 2]);
        assert_eq!((bytes.to_rewrite([1; 8]), bytes.to_rewrite([2; 8])), (None, Some((2, 2))));
        bytes.committed([2; 8], Picos::seconds(4));
        assert_eq!(bytes.own(2, SECOND), [1, 2], "another verifier");
        bytes.committed([1; 8], Picos::seconds(4));
        assert_eq!(bytes.own(2, SECOND), [2]);
        assert_eq!(bytes.own_sizes(SECOND), (3 * CELL_BYTES as u64, 3 * CELL_BYTES as u64));
    }

    #[test]
    fn cells_that_are_cut_off_are_gone_once_it_is_acknowledged() {
        let size = |cells: usize| (cells * CELL_BYTES) as u64;
        let mut bytes = Bytes::default();
        bytes.begins(4, 1, Picos::ZERO);
        bytes.written(4, FIRST, [1; 8], true, Picos::seconds(1));
        bytes.cuts(2, Picos::seconds(2));
        assert_eq!(bytes.own(4, SECOND), [1, 0]);
        assert_eq!(bytes.own_sizes(FIRST), (0, size(5)));
        bytes.cut(2, Picos::seconds(3));
        assert_eq!((bytes.own(4, SECOND), bytes.own_sizes(FIRST)), (vec![0], (size(2), size(2))));
        assert_eq!(bytes.others_sizes(Picos::seconds(2)), (0, size(5)));
        assert_eq!(bytes.to_rewrite([2; 8]), None);
        bytes.begins(2, 2, Picos::seconds(4));
        assert_eq!(bytes.own_sizes(FIRST), (size(2), size(3)));
    }

    #[test]
    fn bytes_tell_their_version() {
        let data = fill(7, 1, 3);
        check(7, 1, &[2, 3], &data).unwrap();
        assert!(check(7, 1, &[2], &data).unwrap_err().contains("Some(3)"));
        assert!(check(7, 1, &[3], &data[..100]).is_err());
        check(7, 1, &[0, 3], &data[..100]).unwrap();
    }
}
