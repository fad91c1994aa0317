//! What the keeper does with pages that are kept less safely than promised.

mod lenders;
mod region_rig;

use lenders::wait_until;
use live::region::{
    Access, Advice, Backing, Bell, FaultError, FetchError, Fetched, LocalMemory, Region,
    RegionConfig, Source, StoreError, Upkeep,
};
use region_rig::{Moody, PAGE, map};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const PAGES: usize = 192;
const FRAMES: usize = 64;

#[derive(Default)]
struct Story {
    bell: OnceLock<Arc<Bell>>,
    /// A fault waits for page 0.
    awaited: AtomicBool,
    /// The keeper has found the page weak since.
    weak: AtomicBool,
    /// The keeper has taken another turn since: only now page 0 can be reached.
    reached: AtomicBool,
}

/// Memory whose page 0 comes only after the keeper has done something for that.
#[derive(Clone)]
struct Unlinked(LocalMemory, Arc<Story>);

impl Backing for Unlinked {
    fn begin(&self, _pages: usize, bell: &Arc<Bell>) -> io::Result<()> {
        self.1.bell.get_or_init(|| bell.clone());
        Ok(())
    }

    fn source(&self, _page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }

    fn upkeep(&self, _page_bytes: usize) -> Option<Box<dyn Upkeep>> {
        Some(Box::new(self.clone()))
    }
}

impl Source for Unlinked {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let Unlinked(memory, story) = self;
        if page == 0 && !story.reached.load(Ordering::SeqCst) {
            story.awaited.store(true, Ordering::SeqCst);
            story.bell.get().expect("it has begun").ring();
            return Err(FetchError::Unavailable(libc::EHOSTDOWN));
        }
        memory.fetch(page, version, into)
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        self.0.store(page, version, from)
    }
}

impl Upkeep for Unlinked {
    fn turn(&mut self) -> Duration {
        let weak = self.1.weak.load(Ordering::SeqCst);
        self.1.reached.fetch_or(weak, Ordering::SeqCst);
        Duration::from_millis(10)
    }

    fn weak(&mut self) -> Vec<u64> {
        let awaited = self.1.awaited.load(Ordering::SeqCst);
        let weak = awaited && !self.1.weak.swap(awaited, Ordering::SeqCst);
        Vec::from_iter(weak.then_some(0))
    }

    fn handle_unmended(&mut self) {}

    fn end(&mut self) {}
}

#[test]
fn the_keeper_does_not_wait_for_a_page_whose_fault_waits_for_the_keeper() {
    let story = Arc::new(Story::default());
    let backing = Unlinked(LocalMemory::new(PAGES * PAGE).unwrap(), story.clone());
    let patience = Duration::from_secs(5);
    let config = RegionConfig { patience, ..RegionConfig::new(FRAMES) };
    let Some(region) = map(PAGES * PAGE, config, &backing) else { return };
    for page in 0..PAGES {
        region.write(page * PAGE, &(page as u64 + 1).to_le_bytes()).unwrap();
    }
    region.touch(0, PAGE, Access::Read).unwrap();
    let mut number = [0; 8];
    region.read(0, &mut number).unwrap();
    assert_eq!(u64::from_le_bytes(number), 1);
    assert!(story.reached.load(Ordering::SeqCst), "page 0 had left and came again");
}

/// Memory that notes which pages it was told to forget, and finds some of them weak.
#[derive(Clone)]
struct Noting {
    memory: Moody,
    weak: Arc<Mutex<Vec<u64>>>,
    forgotten: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Noting {
    fn region(&self) -> Option<Region> {
        let patience = Duration::from_millis(50);
        map(PAGES * PAGE, RegionConfig { patience, ..RegionConfig::new(FRAMES) }, self)
    }

    fn forgotten(&self) -> Vec<(u64, u64)> {
        self.forgotten.lock().unwrap().clone()
    }
}

fn noting() -> Noting {
    let memory = Moody::new(PAGES * PAGE);
    Noting { memory, weak: Arc::default(), forgotten: Arc::default() }
}

impl Backing for Noting {
    fn source(&self, _page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }

    fn upkeep(&self, _page_bytes: usize) -> Option<Box<dyn Upkeep>> {
        Some(Box::new(self.clone()))
    }
}

impl Source for Noting {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        self.memory.fetch(page, version, into)
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        self.memory.store(page, version, from)
    }

    fn forget(&mut self, page: u64, version: u64) {
        self.forgotten.lock().unwrap().push((page, version));
    }
}

impl Upkeep for Noting {
    fn turn(&mut self) -> Duration {
        Duration::from_millis(10)
    }

    fn weak(&mut self) -> Vec<u64> {
        std::mem::take(&mut *self.weak.lock().unwrap())
    }

    fn handle_unmended(&mut self) {}

    fn end(&mut self) {}
}

#[test]
fn a_page_that_the_backing_did_not_take_whole_is_forgotten_with_its_content() {
    let backing = noting();
    let Some(region) = backing.region() else { return };
    backing.memory.moods.full.store(true, Ordering::SeqCst);
    region.write(3 * PAGE, &[1]).unwrap();
    region.flush(3 * PAGE, PAGE).unwrap_err();
    region.write(5 * PAGE, &[1]).unwrap();
    region.advise(0, PAGES * PAGE, Advice::Free).unwrap();
    let forgotten = backing.forgotten();
    assert_eq!(forgotten.len(), 1, "nothing was offered of the others: {forgotten:?}");
    assert!(matches!(forgotten[0], (3, 1..)), "{forgotten:?}");
}

#[test]
fn what_is_left_of_a_lost_page_is_forgotten_and_not_mended_again_and_again() {
    let backing = noting();
    let Some(region) = backing.region() else { return };
    region.write(3 * PAGE, &[1]).unwrap();
    region.advise(3 * PAGE, PAGE, Advice::PageOut).unwrap();
    backing.memory.moods.lost.store(true, Ordering::SeqCst);
    assert_eq!(region.touch(3 * PAGE, PAGE, Access::Read), Err(FaultError::Lost));
    backing.weak.lock().unwrap().push(3);
    wait_until("it is forgotten", || backing.forgotten().iter().any(|(page, _)| *page == 3));
}
