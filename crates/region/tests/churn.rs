//! Threads that write, read, pin, flush and give up pages at random in a region far larger than its frames, and check
//! every page's content each time. Two seconds in all; ten minutes each in a soak.

use crate::region_rig::{Numbers, map};
use region::{Access, Advice, Counters, Faults, FileBacking, LocalMemory, Region, RegionConfig};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: usize = 3;
const PAGES: usize = 1024;

fn span() -> Duration {
    let soak = std::env::var_os("TRAPEZE_SOAK").is_some();
    Duration::from_millis(if soak { 600_000 } else { 500 })
}

/// A page's owner, number and round, in its first and last words; the bytes between follow from them.
fn fill(page: &mut [u64], number: usize, round: u64) {
    let word = wire::mix(number as u64) ^ round;
    page.fill(word);
    page[0] = round;
}

fn check(page: &[u64], number: usize, round: u64) {
    let word = if round == 0 { 0 } else { wire::mix(number as u64) ^ round };
    let good = page[0] == round && page[1..].iter().all(|found| *found == word);
    assert!(good, "page {number} of round {round}: {:x?}", &page[..4]);
}

/// The pages whose number leaves `mine` when divided by the number of threads.
fn churn(region: &Region, mine: usize, stop: &AtomicBool, operations: &AtomicU64) {
    let words = region.page_bytes() / 8;
    let mut rounds = [0u64; PAGES];
    let mut numbers = Numbers(mine as u64);
    while !stop.load(Ordering::Relaxed) {
        let page = numbers.below(PAGES / THREADS) * THREADS + mine;
        let at = page * region.page_bytes();
        // SAFETY: the page is in the region, aligned, and this thread's alone; `flush` reads it through the kernel.
        let content =
            unsafe { std::slice::from_raw_parts_mut(region.as_ptr().add(at).cast::<u64>(), words) };
        match numbers.below(100) {
            0..40 => {
                rounds[page] += 1;
                fill(content, page, rounds[page]);
            }
            40..90 => check(content, page, rounds[page]),
            90..93 => region.touch(at, region.page_bytes(), Access::Read).unwrap(),
            93..95 => region.advise(at, region.page_bytes(), Advice::Cold).unwrap(),
            95..97 => region.flush(at, region.page_bytes()).unwrap(),
            97 => {
                region.advise(at, region.page_bytes(), Advice::Free).unwrap();
                rounds[page] = 0;
            }
            _ => {
                region.pin(at, region.page_bytes()).unwrap();
                check(content, page, rounds[page]);
                region.unpin(at, region.page_bytes());
            }
        }
        operations.fetch_add(1, Ordering::Relaxed);
    }
    for page in (mine..PAGES / THREADS * THREADS).step_by(THREADS) {
        let mut bytes = vec![0; region.page_bytes()];
        region.read(page * region.page_bytes(), &mut bytes).unwrap();
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        check(&words, page, rounds[page]);
    }
}

/// Whether pages have left, come back from the staging area and come back from the backing: a machine that is busy may
/// not get to all of it in a short while.
fn has_churned(counters: &Counters) -> bool {
    counters.evicted > 0 && counters.taken_back > 0 && counters.fetched > 0
}

/// Sleeps until it is so, at least for the span and not for ever.
fn wait_until(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < span() || !so() {
        assert!(
            begun.elapsed() < span() + Duration::from_secs(120),
            "two minutes, and it is not so"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn run(region: &Region) {
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for mine in 0..THREADS {
            let (stop, operations) = (&stop, &operations);
            scope.spawn(move || churn(region, mine, stop, operations));
        }
        let _stops = rig::SetOnDrop(&stop);
        wait_until(|| has_churned(&region.counters()));
    });
    let counters = region.counters();
    println!("{} operations; {counters:?}", operations.into_inner());
    assert!(has_churned(&counters));
    assert_eq!((counters.damaged, counters.lost, counters.vanished), (0, 0, 0));
}

fn config(faults: Faults, page_bytes: usize) -> RegionConfig {
    RegionConfig { faults, page_bytes, ..RegionConfig::new(128) }
}

/// One thread goes round pages of which some more are than are mapped: all that leave come back from the staging area.
#[test]
fn no_page_is_ever_wrong_that_comes_back_from_the_staging_area() {
    const FRAMES: usize = 4096;
    let pages = FRAMES - FRAMES / 20;
    let backing = LocalMemory::new(pages * 4096).unwrap();
    let Some(region) = map(pages * 4096, RegionConfig::new(FRAMES), &backing) else { return };
    let (mut round, start) = (0, Instant::now());
    // In the second round pages come back that left in the first, however long that took.
    while start.elapsed() < span() || round < 2 {
        for page in 0..pages {
            // SAFETY: the page is in the region, aligned, and nothing else uses it.
            let content = unsafe {
                let at = region.as_ptr().add(page * 4096).cast::<u64>();
                std::slice::from_raw_parts_mut(at, 512)
            };
            check(content, page, round);
            fill(content, page, round + 1);
        }
        round += 1;
    }
    let (counters, seconds) = (region.counters(), start.elapsed().as_secs_f64());
    let pairs = counters.evicted.min(counters.taken_back + counters.fetched) as f64;
    println!("{:.0} pairs/s for {seconds:.0} s; {counters:?}", pairs / seconds);
    assert!(counters.taken_back > 0);
    assert_eq!((counters.damaged, counters.lost, counters.vanished), (0, 0, 0));
}

#[test]
fn no_page_is_ever_wrong_in_the_faulting_thread() {
    let backing = LocalMemory::new(PAGES * 4096).unwrap();
    let Some(region) = map(PAGES * 4096, config(Faults::InThread, 4096), &backing) else { return };
    run(&region);
}

#[test]
fn no_large_page_is_ever_wrong() {
    let backing = LocalMemory::new(PAGES * 16384).unwrap();
    let config = config(Faults::InThread, 16384);
    let Some(region) = map(PAGES * 16384, config, &backing) else { return };
    run(&region);
}

#[test]
fn no_page_is_ever_wrong_with_handler_threads() {
    let backing = LocalMemory::new(PAGES * 4096).unwrap();
    let config = config(Faults::Handlers(2), 4096);
    let Some(region) = map(PAGES * 4096, config, &backing) else { return };
    run(&region);
}

#[test]
fn no_page_of_a_file_is_ever_wrong() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let backing = FileBacking::open(file.path(), PAGES as u64 * 4096).unwrap();
    let Some(region) = map(PAGES * 4096, config(Faults::InThread, 4096), &backing) else { return };
    run(&region);
}
