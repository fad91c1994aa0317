//! The keeper's work on pages that are kept less safely than promised.

use crate::lenders::wait_until;
use crate::region_rig::{Moody, PAGE, map};
use region::{
    Access, Advice, Backing, FaultError, FetchError, Fetched, Region, RegionConfig, Source,
    StoreError, Upkeep,
};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGES: usize = 192;
const FRAMES: usize = 64;

/// Memory that notes which pages it was told to forget. A page that it cannot give is weak, and comes only when the
/// keeper has heard that and takes another turn.
#[derive(Clone)]
struct Tended {
    memory: Moody,
    /// Pages that the keeper has not heard of yet.
    weak: Arc<Mutex<Vec<u64>>>,
    told: Arc<AtomicBool>,
    forgotten: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Tended {
    fn region(&self, patience: Duration) -> Option<Region> {
        map(PAGES * PAGE, RegionConfig { patience, ..RegionConfig::new(FRAMES) }, self)
    }

    fn find_weak(&self, page: u64) {
        self.weak.lock().unwrap().push(page);
    }

    fn forgotten(&self) -> Vec<(u64, u64)> {
        self.forgotten.lock().unwrap().clone()
    }
}

fn tended() -> Tended {
    let memory = Moody::new(PAGES * PAGE);
    Tended { memory, weak: Arc::default(), told: Arc::default(), forgotten: Arc::default() }
}

impl Backing for Tended {
    fn source(&self, _page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }

    fn upkeep(&self, _page_bytes: usize) -> Option<Box<dyn Upkeep>> {
        Some(Box::new(self.clone()))
    }
}

impl Source for Tended {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        if self.memory.moods.away.load(Ordering::SeqCst) {
            self.find_weak(page);
        }
        self.memory.fetch(page, version, into)
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        self.memory.store(page, version, from)
    }

    fn forget(&mut self, page: u64, version: u64) {
        self.forgotten.lock().unwrap().push((page, version));
    }
}

impl Upkeep for Tended {
    fn turn(&mut self) -> Duration {
        if self.told.load(Ordering::SeqCst) {
            self.memory.moods.away.store(false, Ordering::SeqCst);
        }
        Duration::from_millis(10)
    }

    fn weak(&mut self) -> Vec<u64> {
        let weak = std::mem::take(&mut *self.weak.lock().unwrap());
        self.told.fetch_or(!weak.is_empty(), Ordering::SeqCst);
        weak
    }

    fn handle_unmended(&mut self) {}

    fn end(&mut self) {}
}

#[test]
fn the_keeper_does_not_wait_for_a_page_whose_fault_waits_for_the_keeper() {
    let backing = tended();
    let Some(region) = backing.region(Duration::from_secs(5)) else { return };
    for page in 0..PAGES {
        region.write(page * PAGE, &(page as u64 + 1).to_le_bytes()).unwrap();
    }
    backing.memory.moods.away.store(true, Ordering::SeqCst);
    region.touch(0, PAGE, Access::Read).unwrap();
    let mut number = [0; 8];
    region.read(0, &mut number).unwrap();
    assert_eq!(u64::from_le_bytes(number), 1);
    let reached = !backing.memory.moods.away.load(Ordering::SeqCst);
    assert!(reached, "page 0 had left and came again");
}

#[test]
fn a_page_that_the_backing_did_not_take_whole_is_forgotten_with_its_content() {
    let backing = tended();
    let Some(region) = backing.region(Duration::from_millis(50)) else { return };
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
    let backing = tended();
    let Some(region) = backing.region(Duration::from_millis(50)) else { return };
    region.write(3 * PAGE, &[1]).unwrap();
    region.advise(3 * PAGE, PAGE, Advice::PageOut).unwrap();
    backing.memory.moods.lost.store(true, Ordering::SeqCst);
    assert_eq!(region.touch(3 * PAGE, PAGE, Access::Read), Err(FaultError::Lost));
    backing.find_weak(3);
    wait_until("it is forgotten", || backing.forgotten().iter().any(|(page, _)| *page == 3));
}
