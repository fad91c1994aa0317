//! The file under the checkpoint: every byte that is read was written by this store, or the read is an error.
//!
//! redb sums its pages, but looks at the sums only when it repairs a file. A flipped bit in a branch page would make
//! keys vanish, one in a value would change it. So every page is summed here, below redb, when it is written and
//! whenever it is read: keys, values, branches and what redb keeps for itself alike, and a key that is not found was
//! looked for in pages that are whole. That costs a sum of 4 KiB for each page that redb's cache does not have, and
//! 4 bytes of memory a page; sums of values alone would cost each `get` and find no key that is missing.
//!
//! ```text
//! 4 pages of 4 KiB, each with the same head in its first sector: redb's header
//! groups of 1 page of sums and 1,024 pages that they are of
//! ```
//!
//! A head is written in place by redb, so it has four copies, each in a sector, which a disk writes whole or not at
//! all: the others make up for one page that is lost or damaged. A head that only one of them has counts where no two
//! are alike: a misdirected write of another store may have put it there, and a head that a crash left so was never
//! acknowledged. A sum is of its page and the page's number; 0 is of a page that was never written. Sums are written
//! just before redb's syncs, after which nothing refers to a page whose sum is older than itself: what a crash leaves
//! so is free, and is written before it is read again.

use redb::StorageBackend;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder};

const PAGE_BYTES: usize = 4096;
/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
const HEADS: u64 = 4;
/// Pages that one page of sums is of.
const GROUP_PAGES: u64 = (PAGE_BYTES / SUM_BYTES) as u64;
const SUM_BYTES: usize = 4;
const SUMS_PER_SECTOR: usize = SECTOR_BYTES / SUM_BYTES;
/// Of redb's first page, which holds 320 bytes.
const HEADER_BYTES: usize = 384;
const REDB_MAGIC_BYTES: usize = 9;
const MAGIC: &[u8; 8] = b"TzSealed";
/// Layout of this file.
const VERSION: u32 = 1;
/// From here on a head is summed.
const SUMMED_FROM: usize = 16;

/// A page that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Offset of the page in the file.
    pub offset: u64,
}

#[derive(Debug)]
pub(crate) struct Sealed {
    file: Box<dyn StorageBackend>,
    state: Mutex<State>,
    /// Cleared by a planted bug only.
    pub verifies: bool,
}

#[derive(Debug)]
struct State {
    header: [u8; HEADER_BYTES],
    /// Heads written.
    sequence: u64,
    /// Of each page behind redb's first.
    sums: Vec<u32>,
    /// Sectors of sums to be written.
    dirty: BTreeSet<usize>,
    damage: Option<Damage>,
}

impl Sealed {
    /// The file in `file`, which is made when it is empty, or was left half made by a crash.
    pub fn open(file: Box<dyn StorageBackend>) -> io::Result<Sealed> {
        let heads = read_heads(&*file)?;
        let newest = newest_of(&heads);
        // redb writes its magic last, and refuses a file without.
        let newest = newest.filter(|head| head.header[..REDB_MAGIC_BYTES] != [0; REDB_MAGIC_BYTES]);
        let pages = pages_in(file.len()?);
        if let Some(head) = newest.filter(|head| head.pages > pages) {
            return Err(io::Error::other(format!(
                "it was truncated: it has {pages} pages of {}",
                head.pages
            )));
        }
        let header = newest.map_or([0; HEADER_BYTES], |head| head.header);
        // The next head must be newer than all heads that are there.
        let sequence = heads.iter().flatten().map(|head| head.sequence).max().unwrap_or(0);
        let sums = match newest {
            Some(_) => read_sums(&*file)?,
            None => Vec::new(),
        };
        if newest.is_none() {
            if heads.iter().all(Option::is_none) {
                check_half_made(&*file)?;
            }
            file.set_len(0)?;
        }
        let state = State { header, sequence, sums, dirty: BTreeSet::new(), damage: None };
        Ok(Sealed { file, state: Mutex::new(state), verifies: true })
    }

    /// The page that was last found to be damaged, once.
    pub fn take_damage(&self) -> Option<Damage> {
        self.lock().damage.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whole pages from `page` on, which are summed.
    fn read_pages(&self, page: u64, out: &mut [u8]) -> io::Result<()> {
        for (at, bytes) in runs(page, out.len()) {
            let start = ((at - page) as usize) * PAGE_BYTES;
            let out = &mut out[start..start + bytes];
            let read = self.file.read(place(at), out);
            if let Err(error) = read {
                // The end of the file is where a page should be.
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    return Err(self.damaged(at));
                }
                return Err(error);
            }
            let sums: Vec<u32> =
                (at..).zip(out.chunks(PAGE_BYTES)).map(|(page, bytes)| sum(page, bytes)).collect();
            let first = at as usize - 1;
            let wrong = {
                let state = self.lock();
                let known = (first..).map(|index| state.sums.get(index).copied());
                sums.iter().zip(known).position(|(sum, known)| known != Some(*sum))
            };
            // A page that was never written has no sum, and is all zeros.
            let wrong = wrong.filter(|_| self.verifies).filter(|&index| {
                let bytes = &out[index * PAGE_BYTES..][..PAGE_BYTES];
                let never = self.lock().sums.get(first + index) == Some(&0);
                !never || bytes.iter().any(|byte| *byte != 0)
            });
            if let Some(index) = wrong {
                return Err(self.damaged(at + index as u64));
            }
        }
        Ok(())
    }

    fn damaged(&self, page: u64) -> io::Error {
        let offset = place(page);
        self.lock().damage = Some(Damage { offset });
        io::Error::other(format!("the page at byte {offset} is not what was written"))
    }

    fn write_header(&self, offset: usize, data: &[u8]) -> io::Result<()> {
        let (head, rest) = data.split_at(data.len().min(HEADER_BYTES.saturating_sub(offset)));
        if rest.iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("redb's header is longer than this program knows"));
        }
        let mut state = self.lock();
        self.write_sums(&mut state)?;
        state.header[offset..offset + head.len()].copy_from_slice(head);
        self.write_head(&mut state)
    }

    fn write_head(&self, state: &mut State) -> io::Result<()> {
        state.sequence += 1;
        let sector = head_bytes(state);
        (0..HEADS).try_for_each(|copy| self.file.write(copy * PAGE_BYTES as u64, &sector))
    }

    fn write_sums(&self, state: &mut State) -> io::Result<()> {
        while let Some(sector) = state.dirty.first().copied() {
            let first = sector * SUMS_PER_SECTOR;
            assert!(first < state.sums.len(), "sums of pages that are there");
            let mut bytes = [0; SECTOR_BYTES];
            let sums = state.sums.iter().skip(first).take(SUMS_PER_SECTOR);
            for (out, sum) in bytes.chunks_exact_mut(SUM_BYTES).zip(sums) {
                out.copy_from_slice(&sum.to_le_bytes());
            }
            self.file.write(place_of_sums(sector), &bytes)?;
            state.dirty.remove(&sector);
        }
        Ok(())
    }
}

impl StorageBackend for Sealed {
    fn len(&self) -> io::Result<u64> {
        Ok(pages_in(self.file.len()?) * PAGE_BYTES as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let (first, skip) = (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize);
        if first > 0 && skip == 0 && out.len().is_multiple_of(PAGE_BYTES) {
            return self.read_pages(first, out);
        }
        let mut pages = vec![0; (skip + out.len()).next_multiple_of(PAGE_BYTES)];
        let behind = match first {
            0 => {
                pages[..HEADER_BYTES].copy_from_slice(&self.lock().header);
                &mut pages[PAGE_BYTES..]
            }
            _ => &mut pages[..],
        };
        if !behind.is_empty() {
            self.read_pages(first.max(1), behind)?;
        }
        out.copy_from_slice(&pages[skip..skip + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let pages = len.div_ceil(PAGE_BYTES as u64);
        let summed = pages.saturating_sub(1) as usize;
        let mut state = self.lock();
        let shrinks = summed < state.sums.len();
        // Pages that come back have never been written.
        let first = summed.min(state.sums.len()) / SUMS_PER_SECTOR;
        let last = summed.max(state.sums.len()).div_ceil(SUMS_PER_SECTOR);
        state.sums.resize(summed, 0);
        let kept = summed.div_ceil(SUMS_PER_SECTOR);
        state.dirty.retain(|sector| *sector < kept);
        state.dirty.extend((first..last).filter(|sector| *sector < kept));
        if shrinks && state.sequence > 0 {
            // Else the shorter file would be taken for a truncated one.
            self.write_head(&mut state)?;
            self.file.sync_data()?;
        }
        self.file.set_len(file_bytes(pages))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.write_sums(&mut self.lock())?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (page, skip) = (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize);
        if page == 0 && skip + data.len() <= PAGE_BYTES {
            return self.write_header(skip, data);
        }
        if page == 0 || skip != 0 || !data.len().is_multiple_of(PAGE_BYTES) {
            return Err(io::Error::other("redb wrote a part of a page"));
        }
        for (at, bytes) in runs(page, data.len()) {
            let start = (at - page) as usize * PAGE_BYTES;
            let data = &data[start..start + bytes];
            self.file.write(place(at), data)?;
            let mut state = self.lock();
            for (page, bytes) in (at..).zip(data.chunks(PAGE_BYTES)) {
                let index = page as usize - 1;
                if index >= state.sums.len() {
                    state.sums.resize(index + 1, 0);
                }
                state.sums[index] = sum(page, bytes);
                state.dirty.insert(index / SUMS_PER_SECTOR);
            }
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

#[derive(PartialEq, Eq)]
struct Head {
    sequence: u64,
    /// That the file had at least when the head was written, redb's first included.
    pages: u64,
    header: [u8; HEADER_BYTES],
}

fn newest_of(heads: &[Option<Head>]) -> Option<&Head> {
    let copies = |head: &Head| heads.iter().flatten().filter(|other| *other == head).count();
    heads.iter().flatten().max_by_key(|head| (copies(head) > 1, head.sequence))
}

fn head_bytes(state: &State) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    let mut out = Encoder::new(&mut sector[SUMMED_FROM..]);
    out.u64(state.sequence).u64(state.sums.len() as u64 + 1).raw(&state.header);
    let crc = crc32c(&sector[SUMMED_FROM..]);
    Encoder::new(&mut sector[..SUMMED_FROM]).raw(MAGIC).u32(VERSION).u32(crc);
    sector
}

/// The heads that are whole. A head of another version is an error.
fn read_heads(file: &dyn StorageBackend) -> io::Result<Vec<Option<Head>>> {
    let len = file.len()?;
    let mut heads = Vec::new();
    for copy in 0..HEADS {
        let at = copy * PAGE_BYTES as u64;
        let mut sector = [0; SECTOR_BYTES];
        if at + SECTOR_BYTES as u64 <= len {
            file.read(at, &mut sector)?;
        }
        heads.push(parse_head(&sector));
    }
    let version = |head: &Result<Option<Head>, u32>| head.as_ref().err().copied();
    let other = heads.iter().find_map(version);
    if let Some(version) = other.filter(|_| !heads.iter().any(|head| matches!(head, Ok(Some(_))))) {
        return Err(io::Error::other(format!(
            "its layout has version {version}, this program writes version {VERSION}"
        )));
    }
    Ok(heads.into_iter().map(|head| head.unwrap_or(None)).collect())
}

/// The head in a sector, or the version of another program's.
fn parse_head(sector: &[u8; SECTOR_BYTES]) -> Result<Option<Head>, u32> {
    let mut input = Decoder::new(sector);
    let magic = input.raw(MAGIC.len()).expect("a sector is long enough");
    let version = input.u32().expect("a sector is long enough");
    let crc = input.u32().expect("a sector is long enough");
    if magic != MAGIC || crc != crc32c(&sector[SUMMED_FROM..]) {
        return Ok(None);
    }
    if version != VERSION {
        return Err(version);
    }
    let sequence = input.u64().expect("a sector is long enough");
    let pages = input.u64().expect("a sector is long enough");
    let header = input.raw(HEADER_BYTES).expect("a sector is long enough");
    Ok(Some(Head { sequence, pages, header: header.try_into().expect("as long as asked for") }))
}

/// A file without a head is new only when nothing is where the heads are: a crash while it was made left it so.
fn check_half_made(file: &dyn StorageBackend) -> io::Result<()> {
    let mut heads = vec![0; file.len()?.min(HEADS * PAGE_BYTES as u64) as usize];
    file.read(0, &mut heads)?;
    if heads.starts_with(b"redb") {
        return Err(io::Error::other("it was made by a program of an earlier version"));
    }
    match heads.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(io::Error::other("it does not begin as a store does, or its head is damaged")),
    }
}

fn read_sums(file: &dyn StorageBackend) -> io::Result<Vec<u32>> {
    let summed = pages_in(file.len()?).saturating_sub(1) as usize;
    let mut sums = Vec::with_capacity(summed);
    let mut bytes = [0; PAGE_BYTES];
    while sums.len() < summed {
        file.read(place_of_sums(sums.len() / SUMS_PER_SECTOR), &mut bytes)?;
        let all = bytes.chunks_exact(SUM_BYTES);
        let all = all.map(|sum| u32::from_le_bytes(sum.try_into().expect("4 bytes")));
        sums.extend(all.take(summed - sums.len()));
    }
    Ok(sums)
}

/// The sum of a page; never 0.
fn sum(page: u64, bytes: &[u8]) -> u32 {
    // Spread, so that no two pages of a file are summed alike.
    (crc32c(bytes) ^ (page as u32).wrapping_mul(0x9e37_79b1)).max(1)
}

/// Offset in the file of a page behind redb's first.
fn place(page: u64) -> u64 {
    let index = page - 1;
    let pages = HEADS + index / GROUP_PAGES * (GROUP_PAGES + 1) + 1 + index % GROUP_PAGES;
    pages * PAGE_BYTES as u64
}

/// Offset in the file of a sector of sums.
fn place_of_sums(sector: usize) -> u64 {
    let per_group = PAGE_BYTES / SECTOR_BYTES;
    let group = (sector / per_group) as u64;
    let page = (HEADS + group * (GROUP_PAGES + 1)) * PAGE_BYTES as u64;
    page + (sector % per_group * SECTOR_BYTES) as u64
}

/// Pages that are in a file of this length, redb's first included.
fn pages_in(file_bytes: u64) -> u64 {
    let pages = file_bytes / PAGE_BYTES as u64;
    let Some(behind) = pages.checked_sub(HEADS) else { return 0 };
    1 + behind / (GROUP_PAGES + 1) * GROUP_PAGES + (behind % (GROUP_PAGES + 1)).saturating_sub(1)
}

/// The length of a file of so many pages, redb's first included.
fn file_bytes(pages: u64) -> u64 {
    match pages {
        0 => 0,
        1 => HEADS * PAGE_BYTES as u64,
        _ => place(pages - 1) + PAGE_BYTES as u64,
    }
}

/// Cuts so many bytes of pages where groups end: first page and bytes of each run.
fn runs(page: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = page + (bytes / PAGE_BYTES) as u64;
    let mut at = page;
    std::iter::from_fn(move || {
        let begin = at;
        let group_end = (begin - 1) / GROUP_PAGES * GROUP_PAGES + GROUP_PAGES + 1;
        at = group_end.min(end);
        (begin < end).then(|| (begin, (at - begin) as usize * PAGE_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBackend;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn pages_and_lengths_fit_over_groups() {
        for pages in [0, 1, 2, 3, 1024, 1025, 1026, 2049, 2050, 5000] {
            assert_eq!(pages_in(file_bytes(pages)), pages, "{pages} pages");
        }
        let places: Vec<u64> = [1, 2, 1024, 1025].into_iter().map(place).collect();
        assert_eq!(places, [5, 6, 1028, 1030].map(|page| page * PAGE));
        assert_eq!(place_of_sums(8), 1029 * PAGE);
        assert_eq!(
            runs(1000, 100 * PAGE_BYTES).collect::<Vec<_>>(),
            [(1000, 25 * PAGE_BYTES), (1025, 75 * PAGE_BYTES)]
        );
    }

    #[test]
    fn pages_come_back_over_the_border_of_groups_and_after_opening() {
        let backend = MemoryBackend::new();
        let sealed = Sealed::open(Box::new(backend.clone())).unwrap();
        sealed.set_len(1100 * PAGE).unwrap();
        let data: Vec<u8> = (0..40 * PAGE_BYTES).map(|byte| (byte / 7) as u8).collect();
        sealed.write(1010 * PAGE, &data).unwrap();
        sealed.write(0, &[7; 320]).unwrap();
        sealed.sync_data().unwrap();
        drop(sealed);
        let sealed = Sealed::open(Box::new(backend)).unwrap();
        assert_eq!(sealed.len().unwrap(), 1100 * PAGE);
        let mut out = vec![0; data.len()];
        sealed.read(1010 * PAGE, &mut out).unwrap();
        assert!(out == data);
        let mut out = [0; 330];
        sealed.read(0, &mut out).unwrap();
        assert_eq!((out[319], out[320]), (7, 0));
        sealed.read(1099 * PAGE, &mut out).unwrap();
    }

    #[test]
    fn a_head_of_another_store_counts_nowhere_and_one_that_is_alone_does() {
        let written = |byte, times| {
            let backend = MemoryBackend::new();
            let sealed = Sealed::open(Box::new(backend.clone())).unwrap();
            sealed.set_len(PAGE).unwrap();
            (0..times).for_each(|_| sealed.write(0, &[byte; 320]).unwrap());
            backend
        };
        let header = |backend: &MemoryBackend| {
            let sealed = Sealed::open(Box::new(backend.clone())).unwrap();
            let mut out = [0; 1];
            sealed.read(0, &mut out).unwrap();
            sealed.write(0, &[out[0] + 1; 320]).unwrap();
            drop(sealed);
            Sealed::open(Box::new(backend.clone())).unwrap().read(0, &mut out).unwrap();
            out[0]
        };
        let mut other = [0; PAGE_BYTES];
        written(70, 9).read(0, &mut other).unwrap();
        for copy in 0..HEADS {
            let own = written(7, 3);
            own.write(copy * PAGE, &other).unwrap();
            assert_eq!(header(&own), 8, "copy {copy}");
            let own = written(7, 3);
            for lost in (0..HEADS).filter(|lost| *lost != copy) {
                own.write(lost * PAGE, &[0; PAGE_BYTES]).unwrap();
            }
            assert_eq!(header(&own), 8, "copy {copy}");
        }
    }

    #[test]
    fn a_page_in_another_ones_place_is_damage() {
        let backend = MemoryBackend::new();
        let sealed = Sealed::open(Box::new(backend.clone())).unwrap();
        sealed.set_len(9 * PAGE).unwrap();
        for page in 1..9 {
            sealed.write(page * PAGE, &[page as u8; PAGE_BYTES]).unwrap();
        }
        backend.write(place(3), &[4; PAGE_BYTES]).unwrap();
        let mut out = [0; PAGE_BYTES];
        assert!(sealed.read(3 * PAGE, &mut out).is_err());
        assert_eq!(sealed.take_damage(), Some(Damage { offset: place(3) }));
        assert_eq!(sealed.take_damage(), None);
    }
}
