//! A fault allocates nothing: it may come in the middle of anything.

mod lenders;
mod region_rig;

use lenders::{Lender, peers};
use region::{LocalMemory, RegionConfig};
use region_rig::{Numbers, PAGE, map};
use rig::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn faults_and_evictions_allocate_nothing() {
    let backing = LocalMemory::new(1024 * PAGE).unwrap();
    let Some(region) = map(1024 * PAGE, RegionConfig::new(128), &backing) else { return };
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    let mut numbers = Numbers(1);
    let before = Counting::in_thread();
    for _ in 0..20_000 {
        let (page, write) = (numbers.below(1024), numbers.below(2) == 0);
        let byte = &mut all[page * PAGE];
        if write {
            *byte = byte.wrapping_add(1)
        } else {
            std::hint::black_box(*byte);
        }
    }
    let allocated = Counting::in_thread() - before;
    let counters = region.counters();
    assert!(counters.stored > 0 && counters.fetched > 0 && counters.taken_back > 0);
    assert_eq!(allocated, 0);
}

#[test]
fn faults_over_links_and_what_comes_ahead_allocate_nothing() {
    let lender = Lender::start(2, "tcp:127.0.0.1:0", 1024);
    let config = RegionConfig { contexts: 1, ..RegionConfig::new(256) };
    let Some(region) = map(1024 * PAGE, config, &peers([&lender.address], 1)) else { return };
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    let mut scan = |from: usize| (from..1024).for_each(|page| all[page * PAGE] += 1);
    // Buffers of sockets and queues get their lengths: on a busy machine some of them later.
    for _ in 0..8 {
        let before = Counting::in_thread();
        scan(0);
        if Counting::in_thread() == before {
            break;
        }
    }
    let before = Counting::in_thread();
    (0..3).for_each(|_| scan(0));
    let allocated = Counting::in_thread() - before;
    let counters = region.counters();
    assert!(counters.ahead > 1000, "{counters:?}");
    assert_eq!(allocated, 0);
}
