//! Regions whose pages are in memory that nodes lend, over TCP and over shared memory.

use crate::lenders::{Lender, peers, wait_until};
use crate::region_rig::{Numbers, PAGE, map};
use region::peer::Peers;
use region::{FaultError, Region, RegionConfig};
use std::time::Duration;

const PAGES: usize = 512;

fn config() -> RegionConfig {
    let patience = Duration::from_millis(1500);
    RegionConfig { contexts: 2, patience, ..RegionConfig::new(64) }
}

fn over_tcp<const N: usize>(pages: usize) -> [Lender; N] {
    std::array::from_fn(|n| Lender::start(n as u16 + 2, "tcp:127.0.0.1:0", pages))
}

fn backing(lenders: &[Lender], copies: u8) -> Peers {
    peers(lenders.iter().map(|lender| &lender.address), copies)
}

fn write_all(region: &Region, pages: usize, with: u64) {
    for page in 0..pages {
        region.write(page * PAGE, &(page as u64 ^ with).to_le_bytes()).unwrap();
    }
    region.flush(0, pages * PAGE).unwrap();
}

fn check_all(region: &Region, pages: usize, with: u64) {
    for page in 0..pages {
        let mut word = [0; 8];
        region.read(page * PAGE, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), page as u64 ^ with, "page {page}");
    }
}

/// Two threads write and check numbers in words of their own.
fn use_it(region: &Region, seed: u64) {
    let mut models = [vec![0u64; PAGES], vec![0; PAGES]];
    std::thread::scope(|scope| {
        for (mine, model) in models.iter_mut().enumerate() {
            scope.spawn(move || {
                let mut numbers = Numbers(seed + mine as u64);
                for _ in 0..2_000 {
                    let page = numbers.below(PAGES);
                    let at = page * PAGE + mine * 8;
                    if numbers.below(2) == 0 {
                        model[page] = numbers.next();
                        region.write(at, &model[page].to_le_bytes()).unwrap();
                    } else {
                        let mut word = [0; 8];
                        region.read(at, &mut word).unwrap();
                        assert_eq!(u64::from_le_bytes(word), model[page]);
                    }
                }
            });
        }
    });
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    for (page, bytes) in all.chunks(PAGE).enumerate() {
        for (mine, model) in models.iter().enumerate() {
            let word = bytes[mine * 8..mine * 8 + 8].try_into().unwrap();
            assert_eq!(u64::from_le_bytes(word), model[page]);
        }
    }
}

#[test]
fn pages_come_from_a_peer_over_tcp() {
    let lenders = over_tcp::<1>(PAGES);
    let Some(region) = map(PAGES * PAGE, config(), &backing(&lenders, 1)) else { return };
    use_it(&region, 1);
    let counters = region.counters();
    assert!(counters.fetched > 500 && counters.stored > 500, "{counters:?}");
    assert_eq!((counters.lost, counters.damaged), (0, 0));
}

#[test]
fn pages_come_from_a_peer_over_shared_memory() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", directory.path().join("2.sock").display());
    let lender = Lender::start(2, &address, PAGES);
    let Some(region) = map(PAGES * PAGE, config(), &peers([&lender.address], 1)) else { return };
    use_it(&region, 2);
    let counters = region.counters();
    assert!(counters.fetched > 500 && counters.stored > 500, "{counters:?}");
}

#[test]
fn with_two_copies_one_holder_may_go() {
    let [first, second] = over_tcp(PAGES);
    let both = peers([&first.address, &second.address], 2);
    let Some(region) = map(PAGES * PAGE, config(), &both) else { return };
    write_all(&region, PAGES, 0);
    drop(first);
    for page in (0..PAGES).rev().step_by(37) {
        let mut word = [0; 8];
        region.read(page * PAGE, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), page as u64);
    }
    // One copy is not what was promised: what is written now stays here, and the writer is held up.
    let mut written = 0;
    let error = loop {
        match region.write(written * PAGE, &[1; 8]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "no more than the budget");
    };
    assert!(matches!(error, FaultError::Unavailable(_)), "{error:?}");
}

#[test]
fn one_holder_after_the_other_may_go_when_others_have_taken_its_part() {
    let [first, second, third, fourth] = over_tcp(PAGES);
    let all = peers([&first, &second, &third, &fourth].map(|lender| &lender.address), 2);
    let Some(region) = map(PAGES * PAGE, config(), &all) else { return };
    write_all(&region, PAGES, 7);
    assert_eq!(all.weak_pages(), 0);
    for (gone, holder) in [first, second].into_iter().enumerate() {
        drop(holder);
        wait_until("copies elsewhere of all that the holder had", || {
            region.counters().mended > 100 * (gone as u64 + 1) && all.weak_pages() == 0
        });
        check_all(&region, PAGES, 7);
    }
    let counters = region.counters();
    assert_eq!((counters.lost, counters.damaged), (0, 0), "{counters:?}");
}

#[test]
fn a_page_whose_holders_are_both_gone_is_lost_and_never_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let address = |n: u16| format!("unix:{}", directory.path().join(n.to_string()).display());
    let lenders = [2, 3].map(|id| Lender::start(id, &address(id), PAGES));
    let both = backing(&lenders, 2);
    let Some(region) = map(PAGES * PAGE, config(), &both) else { return };
    write_all(&region, PAGES, 1);
    drop(lenders);
    let mut byte = [0];
    let away = region.read(0, &mut byte);
    assert!(matches!(away, Err(FaultError::Unavailable(_))), "nobody knows yet: {away:?}");
    let _lenders = [2, 3].map(|id| Lender::start(id, &address(id), PAGES));
    let mut result = away;
    wait_until("they say that they have nothing", || {
        result = region.read(0, &mut byte);
        assert!(result.is_err(), "{byte:?}");
        result == Err(FaultError::Lost)
    });
    assert_eq!(region.write(0, &[5; PAGE]), Err(FaultError::Lost), "it stays so");
    // Pages that were here when the holders went are here still.
    let last = PAGES - 1;
    region.read(last * PAGE, &mut byte).unwrap();
    assert_eq!(byte, [last as u8 ^ 1]);
}

#[test]
fn a_full_holder_refuses_and_another_one_takes() {
    let lenders = [
        Lender::start(2, "tcp:127.0.0.1:0", 16),
        Lender::start(3, "tcp:127.0.0.1:0", PAGES),
        Lender::start(4, "tcp:127.0.0.1:0", PAGES),
    ];
    let all = backing(&lenders, 2);
    let Some(region) = map(PAGES * PAGE, config(), &all) else { return };
    write_all(&region, PAGES, 3);
    check_all(&region, PAGES, 3);
    assert_eq!(all.weak_pages(), 0);
}

#[test]
fn where_no_holder_has_room_the_writer_is_held_up_and_then_told() {
    let lenders = over_tcp::<1>(16);
    let hasty = RegionConfig { patience: Duration::from_millis(100), ..config() };
    let Some(region) = map(PAGES * PAGE, hasty, &backing(&lenders, 1)) else { return };
    let written = (0..PAGES).take_while(|page| region.write(page * PAGE, &[1]).is_ok()).count();
    assert!((16..=80).contains(&written), "{written} pages in 64 frames here and 16 there");
    let full = region.write(written * PAGE, &[1]);
    assert_eq!(full, Err(FaultError::Unavailable(libc::ENOSPC)));
    // Pages that are here are read; for those at holders others would have to leave.
    let mut byte = [0];
    let read = (0..written).filter(|page| {
        let is_read = region.read(page * PAGE, &mut byte).is_ok();
        assert!(!is_read || byte == [1], "page {page}: {byte:?}");
        is_read
    });
    assert!(read.count() >= 16);
}

#[test]
fn pages_that_are_given_up_make_room_at_their_holders() {
    let lenders = over_tcp::<2>(PAGES / 2);
    let Some(region) = map(PAGES * PAGE, config(), &backing(&lenders, 2)) else { return };
    let half = PAGES / 2 * PAGE;
    for round in 0..3 {
        for page in 0..PAGES / 2 {
            region.write((round % 2) * half + page * PAGE, &[round as u8 + 1; 8]).unwrap();
        }
        region.flush(0, region.len()).unwrap();
        region.advise((round % 2) * half, half, region::Advice::Free).unwrap();
    }
}

#[test]
fn two_addresses_of_one_node_are_not_two_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("unix:{}", directory.path().join("2").display());
    let lender = Lender::start(2, &path, PAGES);
    let twice = peers([&lender.address, &lender.address], 2);
    let Some(region) = map(PAGES * PAGE, config(), &twice) else { return };
    let written = (0..PAGES).take_while(|page| region.write(page * PAGE, &[1]).is_ok()).count();
    assert!(written <= 64, "{written} pages are said to have two copies");
}
