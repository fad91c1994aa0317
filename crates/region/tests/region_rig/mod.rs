//! Regions for tests, and a backing that misbehaves.
#![allow(dead_code)] // each test file uses its part

use region::uffd::OpenError;
use region::{
    Backing, Faults, FetchError, Fetched, LocalMemory, Region, RegionConfig, RegionError, Source,
    StoreError,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const PAGE: usize = 4096;

/// The region, or `None` and a line where userfaultfd is not allowed.
pub fn map(bytes: usize, config: RegionConfig, backing: &dyn Backing) -> Option<Region> {
    match Region::map(bytes, config, backing) {
        Ok(region) => Some(region),
        Err(RegionError::Uffd(error @ (OpenError::Forbidden(_) | OpenError::Absent))) => {
            rig::skip(error);
            None
        }
        Err(RegionError::Uffd(error @ OpenError::Features(_))) => {
            rig::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Both ways to serve faults, with pages of two sizes.
pub fn each_config(frames: usize, mut test: impl FnMut(RegionConfig)) {
    for faults in [Faults::InThread, Faults::Handlers(2)] {
        for page_bytes in [PAGE, 4 * PAGE] {
            test(RegionConfig { faults, page_bytes, ..RegionConfig::new(frames) });
        }
    }
}

/// The 64-bit numbers of Steele and others' SplitMix.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        wire::mix(self.0)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[derive(Default)]
pub struct Moods {
    /// Stores fail.
    pub full: AtomicBool,
    /// Fetches fail for now.
    pub away: AtomicBool,
    /// Fetches find nothing.
    pub lost: AtomicBool,
    /// So many fetches bring a wrong byte.
    pub wrong: AtomicU64,
    /// The highest version that was stored.
    pub stored: AtomicU64,
}

/// Memory that fails as it is told to.
#[derive(Clone)]
pub struct Moody {
    memory: LocalMemory,
    pub moods: Arc<Moods>,
}

impl Moody {
    pub fn new(bytes: usize) -> Moody {
        Moody { memory: LocalMemory::new(bytes).unwrap(), moods: Arc::default() }
    }
}

impl Backing for Moody {
    fn source(&self, _page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for Moody {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        if self.moods.lost.load(Ordering::SeqCst) {
            return Err(FetchError::Lost);
        }
        if self.moods.away.load(Ordering::SeqCst) {
            return Err(FetchError::Unavailable(libc::EHOSTDOWN));
        }
        self.memory.fetch(page, version, into)?;
        let wrong = |left: u64| left.checked_sub(1);
        if self.moods.wrong.fetch_update(Ordering::SeqCst, Ordering::SeqCst, wrong).is_ok() {
            into[17] ^= 1;
        }
        Ok(Fetched::of(into))
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        if self.moods.full.load(Ordering::SeqCst) {
            return Err(StoreError(libc::ENOSPC));
        }
        self.moods.stored.fetch_max(version, Ordering::SeqCst);
        self.memory.store(page, version, from)
    }
}
