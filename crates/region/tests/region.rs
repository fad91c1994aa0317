//! Regions on the real kernel: what is written is read, wherever it was meanwhile.

use crate::region_rig::{Moody, Numbers, PAGE, each_config, map};
use region::{
    Access, Advice, Backing, FaultError, Faults, FileBacking, LocalMemory, RegionConfig, calls,
};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

const FRAMES: usize = 64;

/// Writes and reads at random, beside a plain vector; then everything once more in order.
fn compare_with_memory(config: RegionConfig, backing: &dyn Backing) {
    let bytes = 4 * FRAMES * config.page_bytes;
    let Some(region) = map(bytes, config, backing) else { return };
    let mut model = vec![0u8; bytes];
    let mut numbers = Numbers(1);
    for n in 0..6_000 {
        let len = 1 + numbers.below(if n % 50 == 0 { 3 * config.page_bytes } else { 200 });
        let at = numbers.below(bytes - len);
        if numbers.below(3) > 0 {
            let data: Vec<u8> = (0..len).map(|n| (n as u64 ^ numbers.0) as u8).collect();
            region.write(at, &data).unwrap();
            model[at..at + len].copy_from_slice(&data);
        } else {
            let mut data = vec![0; len];
            region.read(at, &mut data).unwrap();
            assert!(data == model[at..at + len], "{len} bytes at {at}");
        }
        if n % 500 == 0 {
            region.flush(numbers.below(bytes / 2), bytes / 2).unwrap();
        }
    }
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    assert!(all == model);
    let counters = region.counters();
    assert!(counters.evicted > 0 && counters.taken_back > 0 && counters.fetched > 0);
    assert_eq!((counters.damaged, counters.lost, counters.vanished), (0, 0, 0), "{counters:?}");
}

#[test]
fn a_region_is_memory() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        compare_with_memory(config, &LocalMemory::new(bytes).unwrap());
    });
}

#[test]
fn a_region_of_a_file_is_memory_and_the_file_has_it_after_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let path = directory.path().join(format!("{:?}{}", config.faults, config.page_bytes));
        compare_with_memory(config, &FileBacking::open(&path, bytes as u64).unwrap());
        let Some(region) = map(bytes, config, &FileBacking::open(&path, 0).unwrap()) else {
            return;
        };
        region.write(5000, b"the file begins where the region ended").unwrap();
        region.sync().unwrap();
        let file = std::fs::read(&path).unwrap();
        // SAFETY: nothing else uses the region.
        assert!(unsafe { region.as_mut_slice() } == file);
    });
}

#[test]
fn a_sort_in_a_third_of_the_memory_gives_the_same() {
    each_config(2 * FRAMES, |config| {
        let bytes = 3 * 2 * FRAMES * config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        let mut numbers = Numbers(7);
        let mut model: Vec<u64> = (0..bytes / 8).map(|_| numbers.next()).collect();
        // SAFETY: the region is aligned to pages and nothing else uses it; any bytes are numbers.
        let sorted = unsafe {
            let (none, numbers, rest) = region.as_mut_slice().align_to_mut::<u64>();
            assert!(none.is_empty() && rest.is_empty());
            numbers
        };
        sorted.copy_from_slice(&model);
        sorted.sort_unstable();
        model.sort_unstable();
        assert!(sorted == model);
        assert!(region.counters().fetched > 0);
    });
}

#[test]
fn pages_that_are_only_read_are_stored_once() {
    each_config(FRAMES, |config| {
        let bytes = 3 * FRAMES * config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        // SAFETY: nothing else uses the region.
        let all = unsafe { region.as_mut_slice() };
        all.chunks_mut(config.page_bytes).enumerate().for_each(|(n, page)| page[9] = n as u8);
        region.flush(0, bytes).unwrap();
        let before = region.counters();
        assert_eq!(before.stored, 3 * FRAMES as u64);
        for _ in 0..3 {
            let pages = all.chunks(config.page_bytes).enumerate();
            pages.for_each(|(n, page)| assert_eq!(page[9], n as u8));
        }
        let after = region.counters();
        assert_eq!(after.stored, before.stored, "clean pages are dropped, not stored");
        assert!(after.dropped > before.dropped);
    });
}

#[test]
fn what_is_pinned_stays() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        region.write(0, b"pinned").unwrap();
        region.pin(0, 10 * config.page_bytes).unwrap();
        region.advise(0, bytes, Advice::WillNeed).unwrap();
        let before = region.counters();
        let mut text = [0; 6];
        region.read(0, &mut text).unwrap();
        region.touch(0, 10 * config.page_bytes, Access::Write).unwrap();
        assert_eq!(&text, b"pinned");
        let after = region.counters();
        assert_eq!((after.taken_back, after.fetched), (before.taken_back, before.fetched));
        assert_eq!(region.pin(0, bytes), Err(FaultError::Full), "not all of it can be");
        region.unpin(0, 10 * config.page_bytes);
        region.pin(30 * config.page_bytes, 40 * config.page_bytes).unwrap();
    });
}

#[test]
fn advice_is_taken() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let page = config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        region.write(0, &vec![5; 8 * page]).unwrap();
        region.advise(page, page, Advice::Cold).unwrap();
        assert_eq!(region.counters().evicted, 1);
        let mut byte = [0];
        region.read(page, &mut byte).unwrap();
        assert_eq!((byte, region.counters().taken_back), ([5], 1));
        region.advise(2 * page, page, Advice::Cold).unwrap();
        region.flush(0, bytes).unwrap();
        // Of what is freed the parts of pages stay.
        region.advise(page + 1, 3 * page, Advice::Free).unwrap();
        let mut freed = vec![1; 8 * page];
        region.read(0, &mut freed).unwrap();
        assert!(freed[..2 * page].iter().all(|byte| *byte == 5));
        assert!(freed[2 * page..4 * page].iter().all(|byte| *byte == 0));
        assert!(freed[4 * page..].iter().all(|byte| *byte == 5));
    });
}

#[test]
fn pages_that_were_let_go_come_back_into_their_own_frames() {
    each_config(FRAMES, |config| {
        let bytes = FRAMES / 2 * config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        region.write(0, &vec![3; bytes]).unwrap();
        for round in 1..=5 {
            region.advise(0, bytes, Advice::PageOut).unwrap();
            let evicted = region.counters().evicted;
            assert_eq!(
                evicted,
                round * FRAMES as u64 / 2,
                "no page left but those that were told to"
            );
            let mut all = vec![0; bytes];
            region.read(0, &mut all).unwrap();
            assert!(all.iter().all(|byte| *byte == 3));
        }
    });
}

#[test]
fn system_calls_find_their_pages_or_say_so() {
    let bytes = 4 * FRAMES * PAGE;
    let backing = LocalMemory::new(bytes).unwrap();
    let (from, to) = std::os::unix::net::UnixStream::pair().unwrap();
    let Some(region) = map(bytes, RegionConfig::new(FRAMES), &backing) else { return };
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    let raw = rustix::io::write(&from, &all[..PAGE]);
    assert_eq!(raw, Err(rustix::io::Errno::FAULT), "the kernel cannot have a page brought");
    assert_eq!(calls::write(&from, &all[PAGE..3 * PAGE]).unwrap(), 2 * PAGE);
    assert_eq!(calls::read(&to, &mut all[8 * PAGE..9 * PAGE]).unwrap(), PAGE);
    let (head, tail) = all.split_at_mut(20 * PAGE);
    let mut parts = [IoSliceMut::new(&mut head[..100]), IoSliceMut::new(&mut tail[..PAGE])];
    assert_eq!(calls::readv(&to, &mut parts).unwrap(), PAGE);
    let parts = [IoSlice::new(&head[30..40]), IoSlice::new(&tail[PAGE..PAGE + 5])];
    assert_eq!(calls::writev(&from, &parts).unwrap(), 15);
    let flags = rustix::net::RecvFlags::empty();
    assert_eq!(calls::recv(&to, &mut tail[9 * PAGE..10 * PAGE], flags).unwrap(), 15);
    let flags = rustix::net::SendFlags::empty();
    assert_eq!(calls::send(&from, &tail[30 * PAGE..30 * PAGE + 9], flags).unwrap(), 9);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("all");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    all.fill(3);
    let mut done = 0;
    while done < bytes {
        done += calls::pwrite(&file, &all[done..], done as u64).unwrap();
    }
    all.fill(4);
    done = 0;
    while done < bytes {
        done += calls::pread(&file, &mut all[done..], done as u64).unwrap();
    }
    assert!(all.iter().all(|byte| *byte == 3));
}

#[test]
fn with_handler_threads_any_system_call_finds_its_pages() {
    let bytes = 4 * FRAMES * PAGE;
    let backing = LocalMemory::new(bytes).unwrap();
    let config = RegionConfig { faults: Faults::Handlers(1), ..RegionConfig::new(FRAMES) };
    let Some(region) = map(bytes, config, &backing) else { return };
    let file = tempfile::tempfile().unwrap();
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    for (n, part) in all.chunks_mut(PAGE).enumerate() {
        part[0] = n as u8;
    }
    // More than there are frames for in one call.
    assert_eq!(rustix::io::pwrite(&file, all, 0).unwrap(), bytes);
    all.fill(0);
    assert_eq!(rustix::io::pread(&file, &mut *all, 0).unwrap(), bytes);
    assert!(all.chunks(PAGE).enumerate().all(|(n, part)| part[0] == n as u8));
}

#[test]
fn a_backing_that_takes_nothing_holds_up_and_loses_nothing() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let backing = Moody::new(bytes);
        let config = RegionConfig { patience: Duration::from_millis(20), ..config };
        let Some(region) = map(bytes, config, &backing) else { return };
        backing.moods.full.store(true, Ordering::SeqCst);
        let mut written = 0;
        let error = loop {
            match region.write(written * config.page_bytes, &[written as u8; 100]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, FaultError::Unavailable(libc::ENOSPC));
        assert!(error.to_string().contains("find no room"), "{error}");
        assert!(written <= FRAMES, "no more than the budget");
        assert!(region.flush(0, bytes).is_err());
        backing.moods.full.store(false, Ordering::SeqCst);
        region.advise(0, bytes, Advice::WillNeed).unwrap();
        for page in 0..written {
            let mut got = [0; 100];
            region.read(page * config.page_bytes, &mut got).unwrap();
            assert_eq!(got, [page as u8; 100]);
        }
    });
}

#[test]
fn a_lost_page_is_an_error_and_never_zeros() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let backing = Moody::new(bytes);
        let config = RegionConfig { patience: Duration::from_millis(5), ..config };
        let Some(region) = map(bytes, config, &backing) else { return };
        region.write(0, b"here").unwrap();
        region.flush(0, bytes).unwrap();
        region
            .advise(FRAMES * config.page_bytes, 2 * FRAMES * config.page_bytes, Advice::WillNeed)
            .unwrap();
        let mut text = [0; 4];
        backing.moods.away.store(true, Ordering::SeqCst);
        assert_eq!(region.read(0, &mut text), Err(FaultError::Unavailable(libc::EHOSTDOWN)));
        backing.moods.away.store(false, Ordering::SeqCst);
        backing.moods.wrong.store(2, Ordering::SeqCst);
        region.read(0, &mut text).unwrap();
        assert_eq!((&text, region.counters().damaged), (b"here", 2), "wrong bytes are no data");
        region
            .advise(FRAMES * config.page_bytes, 2 * FRAMES * config.page_bytes, Advice::WillNeed)
            .unwrap();
        backing.moods.lost.store(true, Ordering::SeqCst);
        assert_eq!(region.read(0, &mut text), Err(FaultError::Lost));
        backing.moods.lost.store(false, Ordering::SeqCst);
        assert_eq!(region.read(0, &mut text), Err(FaultError::Lost), "it stays so");
        assert_eq!(region.touch(0, 1, Access::Write), Err(FaultError::Lost));
        assert_eq!(region.counters().lost, 1);
    });
}

#[test]
fn what_the_program_gives_up_itself_comes_as_it_was_stored() {
    each_config(FRAMES, |config| {
        let bytes = 4 * FRAMES * config.page_bytes;
        let backing = LocalMemory::new(bytes).unwrap();
        let Some(region) = map(bytes, config, &backing) else { return };
        region.write(0, b"stored").unwrap();
        region.flush(0, bytes).unwrap();
        region.write(0, b"newer!").unwrap();
        // SAFETY: the region is this test's.
        let gone = unsafe {
            libc::madvise(region.as_ptr().cast(), config.page_bytes, libc::MADV_DONTNEED)
        };
        assert_eq!(gone, 0);
        // SAFETY: nothing else uses the region.
        assert_eq!(&unsafe { region.as_mut_slice() }[..6], b"stored");
        assert_eq!(region.counters().vanished, 1);
    });
}

#[test]
fn versions_rise_by_one() {
    let backing = Moody::new(4 * FRAMES * PAGE);
    let Some(region) = map(4 * FRAMES * PAGE, RegionConfig::new(FRAMES), &backing) else { return };
    for n in 1..=5u8 {
        region.write(100, &[n]).unwrap();
        region.flush(0, PAGE).unwrap();
        region.flush(0, PAGE).unwrap();
        assert_eq!(backing.moods.stored.load(Ordering::SeqCst), u64::from(n));
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let backing = LocalMemory::new(64 * PAGE).unwrap();
    let good = RegionConfig::new(FRAMES);
    let refused = |bytes: usize, config: RegionConfig| {
        let error = region::Region::map(bytes, config, &backing).err().unwrap();
        error.to_string()
    };
    assert!(refused(5000, good).contains("whole pages"));
    assert!(refused(128 * PAGE, good).contains("room for 262144"));
    let frames = RegionConfig { frames: 3, ..good };
    assert!(refused(64 * PAGE, frames).contains("3 frames: take 64"));
    let page_bytes = RegionConfig { page_bytes: 5000, ..good };
    assert!(refused(64 * PAGE, page_bytes).contains("power of two"));
    let contexts = RegionConfig { contexts: 17, ..good };
    assert!(refused(64 * PAGE, contexts).contains("take 1 to 16"));
    let faults = RegionConfig { faults: Faults::Handlers(0), ..good };
    assert!(refused(64 * PAGE, faults).contains("handler threads"));
}

#[test]
fn a_signal_handler_of_the_program_may_touch_a_region() {
    let bytes = 4 * FRAMES * PAGE;
    let backing = LocalMemory::new(bytes).unwrap();
    let Some(region) = map(bytes, RegionConfig::new(FRAMES), &backing) else { return };
    // A timer's handler that walks through the region while this thread does.
    static START: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    static TICKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    extern "C" fn tick(_signal: libc::c_int) {
        let n = TICKS.fetch_add(1, Ordering::Relaxed);
        let page = (n * 31 + 7) % (4 * FRAMES) * PAGE;
        let at = (START.load(Ordering::Relaxed) + page + 8) as *mut u64;
        // SAFETY: it is in the region, which outlives the timer, and words at this place are the handler's.
        unsafe { at.write_volatile(at.read_volatile() + 1) };
    }
    START.store(region.as_ptr() as usize, Ordering::Relaxed);
    let timer = |micros| libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: micros },
        it_value: libc::timeval { tv_sec: 0, tv_usec: micros },
    };
    // SAFETY: the handler touches the region and atomics alone; the timer is stopped before the region goes.
    unsafe {
        let handler = tick as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGVTALRM, handler as usize);
        libc::setitimer(libc::ITIMER_VIRTUAL, &timer(200), std::ptr::null_mut());
    }
    let mut numbers = Numbers(3);
    for n in 0..40_000u64 {
        let at = numbers.below(4 * FRAMES) * PAGE;
        region.write(at, &n.to_le_bytes()).unwrap();
        if n % 1000 == 0 {
            region.flush(0, bytes).unwrap();
        }
    }
    // SAFETY: as above.
    unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &timer(0), std::ptr::null_mut()) };
    let mut ticks = 0;
    for page in 0..4 * FRAMES {
        let mut word = [0; 8];
        region.read(page * PAGE + 8, &mut word).unwrap();
        ticks += u64::from_le_bytes(word);
    }
    assert_eq!(ticks, TICKS.load(Ordering::Relaxed) as u64);
    println!("{ticks} ticks");
}
