//! Pages of regions that come before they are touched, several in one exchange.

use crate::lenders::{Lender, peers};
use crate::region_rig::{Moody, Numbers, PAGE, each_config, map};
use region::{Access, Advice, Backing, Counters, Faults, LocalMemory, Region, RegionConfig};
use std::sync::atomic::Ordering;

const PAGES: usize = 1024;
const FRAMES: usize = 256;

fn config() -> RegionConfig {
    RegionConfig { contexts: 2, ..RegionConfig::new(FRAMES) }
}

fn byte(page: usize) -> u8 {
    (page % 251) as u8 + 1
}

/// A region of which all pages were written and are with the backing only.
fn stored(config: RegionConfig, backing: &dyn Backing) -> Option<Region> {
    let region = map(PAGES * PAGE, config, backing)?;
    for page in 0..PAGES {
        region.write(page * PAGE, &[byte(page); 64]).unwrap();
    }
    region.advise(0, PAGES * PAGE, Advice::PageOut).unwrap();
    Some(region)
}

/// Reads pages as a program does; what happened meanwhile.
fn read(region: &Region, pages: impl IntoIterator<Item = usize>) -> Counters {
    let before = region.counters();
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    for page in pages {
        assert_eq!(all[page * PAGE + 63], byte(page), "page {page}");
    }
    since(region, before)
}

fn since(region: &Region, before: Counters) -> Counters {
    let now = region.counters();
    let (faults, fetched) = (now.faults - before.faults, now.fetched - before.fetched);
    assert_eq!((now.lost, now.damaged), (before.lost, before.damaged));
    Counters { faults, fetched, ahead: now.ahead - before.ahead, ..Counters::default() }
}

fn lenders<const N: usize>() -> [Lender; N] {
    std::array::from_fn(|n| Lender::start(n as u16 + 2, "tcp:127.0.0.1:0", 2 * PAGES))
}

#[test]
fn a_scan_faults_once_for_many_pages() {
    let all = lenders::<3>();
    for faults in [Faults::InThread, Faults::Handlers(1)] {
        let backing = peers(all.iter().map(|lender| &lender.address), 2);
        let Some(region) = stored(RegionConfig { faults, ..config() }, &backing) else { return };
        let scan = read(&region, 0..PAGES);
        assert_eq!(scan.fetched as usize, PAGES, "each page once: {scan:?}");
        assert!(scan.faults < scan.fetched / 4, "{scan:?}");
    }
}

#[test]
fn runs_that_are_merged_come_ahead_each() {
    let [lender] = lenders();
    let Some(region) = stored(config(), &peers([&lender.address], 1)) else { return };
    let runs = 4;
    let merge = (0..PAGES / runs).flat_map(|at| (0..runs).map(move |run| run * PAGES / runs + at));
    let read = read(&region, merge);
    assert!(read.faults < read.fetched / 3, "{read:?}");
}

#[test]
fn pages_in_no_order_come_one_by_one() {
    let [lender] = lenders();
    let Some(region) = stored(config(), &peers([&lender.address], 1)) else { return };
    let mut order: Vec<usize> = (0..PAGES).filter(|page| page % 2 == 0).collect();
    let mut numbers = Numbers(7);
    (1..order.len()).rev().for_each(|at| order.swap(at, numbers.below(at + 1)));
    let read = read(&region, order);
    assert_eq!(read.ahead, 0, "{read:?}");
}

#[test]
fn what_is_said_to_be_needed_comes_in_few_exchanges_and_is_there() {
    let all = lenders::<2>();
    let backing = peers(all.iter().map(|lender| &lender.address), 2);
    let Some(region) = stored(config(), &backing) else { return };
    let before = region.counters();
    region.advise(100 * PAGE, 64 * PAGE, Advice::WillNeed).unwrap();
    let asked = since(&region, before);
    assert_eq!((asked.faults, asked.fetched), (0, 64));
    assert!(asked.ahead > 50, "{asked:?}");
    let before = region.counters();
    assert_eq!(read(&region, 100..164).faults, 0, "{before:?}");
    region.touch(200 * PAGE, 64 * PAGE, Access::Write).unwrap();
    assert_eq!(region.counters().ahead - before.ahead, 64);
}

/// Pages that came ahead and were written to afterwards are as safe as any others.
#[test]
fn pages_that_came_ahead_are_stored_when_they_were_written() {
    each_config(FRAMES, |config| {
        let bytes = PAGES * PAGE;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        // SAFETY: nothing else uses the region.
        let all = unsafe { region.as_mut_slice() };
        for round in 0..3u8 {
            for page in 0..PAGES {
                assert_eq!(all[page * PAGE], round, "page {page}");
                all[page * PAGE] += 1;
            }
        }
        assert!(region.counters().ahead > 100, "{:?}", region.counters());
    });
}

/// Nothing is believed, and nothing lost, because it did not come ahead or came wrong.
#[test]
fn what_does_not_come_ahead_comes_when_it_is_touched() {
    let backing = Moody::new(PAGES * PAGE);
    let Some(region) = stored(config(), &backing) else { return };
    read(&region, 0..20);
    backing.moods.wrong.store(3, Ordering::SeqCst);
    let before = region.counters();
    let all = (20..PAGES).map(|page| page * PAGE + 63);
    for at in all {
        let mut byte = [0];
        region.read(at, &mut byte).unwrap();
        assert_eq!(byte[0], self::byte(at / PAGE));
    }
    let after = region.counters();
    assert_eq!((after.damaged - before.damaged, after.lost), (3, 0));
}

/// Pages whose room must first be made by storing others do not come ahead: a fault that has what it asked for does not
/// wait for a backing that takes nothing.
#[test]
fn a_full_backing_holds_nobody_up_who_reads() {
    let backing = Moody::new(PAGES * PAGE);
    let config = RegionConfig { cleans: false, ..config() };
    let Some(region) = stored(config, &backing) else { return };
    backing.moods.full.store(true, Ordering::SeqCst);
    // Written pages fill the staging area and all frames but a few.
    for page in 0..FRAMES - 40 {
        region.write(page * PAGE, &[9]).unwrap();
    }
    let refused = region.counters().refused;
    let scan = read(&region, PAGES - 30..PAGES);
    assert_eq!(region.counters().refused, refused, "{scan:?}");
    backing.moods.full.store(false, Ordering::SeqCst);
}
