//! The cleaner: written pages are stored before a fault waits for their room.

use crate::lenders::wait_until;
use crate::region_rig::{Moody, PAGE, map};
use region::{Access, LocalMemory, Region, RegionConfig};
use std::sync::atomic::Ordering;

const FRAMES: usize = 640;
const SLOTS: usize = FRAMES / 10;
const MAPPED: usize = FRAMES - SLOTS;
const PAGES: usize = 4 * FRAMES;

fn config(cleans: bool) -> RegionConfig {
    RegionConfig { cleans, ..RegionConfig::new(FRAMES) }
}

/// Writes so many pages that all frames are mapped and the staging area is full.
fn fill(region: &Region) {
    for page in 0..MAPPED + SLOTS {
        region.write(page * PAGE, &page.to_le_bytes()).unwrap();
    }
}

/// Has so many pages come that are zeros: for each of them an old one leaves.
fn push(region: &Region, pages: usize) {
    region.touch((MAPPED + SLOTS) * PAGE, pages * PAGE, Access::Read).unwrap();
}

#[test]
fn a_fault_finds_room_that_the_cleaner_has_made() {
    let backing = LocalMemory::new(PAGES * PAGE).unwrap();
    let Some(region) = map(PAGES * PAGE, config(true), &backing) else { return };
    fill(&region);
    wait_until("the older half of the staging area is stored", || {
        region.counters().cleaned >= SLOTS as u64 / 2
    });
    push(&region, SLOTS / 2);
    let counters = region.counters();
    assert_eq!(counters.pressed, 0, "{counters:?}");
    assert!(counters.dropped >= SLOTS as u64 / 2, "{counters:?}");
    for page in 0..MAPPED + SLOTS {
        let mut number = [0; 8];
        region.read(page * PAGE, &mut number).unwrap();
        assert_eq!(usize::from_le_bytes(number), page);
    }
}

#[test]
fn without_a_cleaner_faults_store_what_leaves() {
    let backing = LocalMemory::new(PAGES * PAGE).unwrap();
    let Some(region) = map(PAGES * PAGE, config(false), &backing) else { return };
    fill(&region);
    push(&region, SLOTS / 2);
    let counters = region.counters();
    assert!(counters.pressed >= SLOTS as u64 / 2 && counters.cleaned == 0, "{counters:?}");
}

#[test]
fn a_cleaner_whose_backing_takes_nothing_loses_nothing() {
    let backing = Moody::new(PAGES * PAGE);
    let Some(region) = map(PAGES * PAGE, config(true), &backing) else { return };
    backing.moods.full.store(true, Ordering::SeqCst);
    fill(&region);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(region.counters().cleaned, 0);
    backing.moods.full.store(false, Ordering::SeqCst);
    for page in 0..MAPPED + SLOTS {
        let mut number = [0; 8];
        region.read(page * PAGE, &mut number).unwrap();
        assert_eq!(usize::from_le_bytes(number), page);
    }
}
