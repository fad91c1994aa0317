//! `kill -9` of processes that lend memory to a region, one after the other, while threads write to it: no version is
//! lost, no byte is wrong. Fifteen seconds among the tests; five minutes, a kill every five seconds, in a soak.

use crate::lenders::{Process, peers, wait_until};
use crate::region_rig::{Numbers, PAGE, map};
use live::link::{Address, Security};
use live::wait::WaitPolicy;
use netmem::SpaceId;
use netmem::protocol::{Message, Spaces, op};
use region::peer::{Answer, Line, LineConfig, LineError, Peers, Question};
use region::{Region, RegionConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGES: usize = 2048;
const THREADS: usize = 2;
const LENDER: &str = "kills::a_lenders_process";

#[test]
#[ignore = "run by the tests that kill it"]
fn a_lenders_process() {
    crate::lenders::lend_as_told();
}

fn fill(page: &mut [u8], number: usize, round: u64) {
    let word = wire::mix(number as u64 ^ round << 32);
    for (at, bytes) in page.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&(word ^ at as u64).to_le_bytes());
    }
}

/// Writes pages whole and reads them whole, those whose number leaves `mine` when divided by the number of threads.
fn load(region: &Region, mine: usize, stop: &AtomicBool) -> (Vec<u64>, u64) {
    let (mut rounds, mut checked) = (vec![0u64; PAGES], 0);
    let (mut wanted, mut got) = ([0; PAGE], [0; PAGE]);
    let mut numbers = Numbers(mine as u64);
    while !stop.load(Ordering::Relaxed) {
        let page = numbers.below(PAGES / THREADS) * THREADS + mine;
        if numbers.below(2) == 0 || rounds[page] == 0 {
            rounds[page] += 1;
            fill(&mut wanted, page, rounds[page]);
            region.write(page * PAGE, &wanted).unwrap();
        } else {
            fill(&mut wanted, page, rounds[page]);
            region.read(page * PAGE, &mut got).unwrap();
            assert!(got == wanted, "page {page} of round {}", rounds[page]);
            checked += 1;
        }
    }
    (rounds, checked)
}

fn check(region: &Region, mine: usize, rounds: &[u64]) {
    let (mut wanted, mut got) = ([0; PAGE], [0; PAGE]);
    for page in (mine..PAGES).step_by(THREADS).filter(|page| rounds[*page] > 0) {
        fill(&mut wanted, page, rounds[page]);
        region.read(page * PAGE, &mut got).unwrap();
        assert!(got == wanted, "page {page} of round {}", rounds[page]);
    }
}

/// Kills one after the other, each when all copies are there again, and not sooner than every `every`.
fn kill(lenders: &mut [Process], peers: &Peers, every: Duration, span: Duration) -> usize {
    let (begun, mut kills) = (Instant::now(), 0);
    while begun.elapsed() < span {
        let at = Instant::now();
        let victim = &mut lenders[kills % 4];
        if kills % 5 == 3 {
            // Stands still for longer than it is waited for, and comes back with old pages.
            victim.pause();
            std::thread::sleep(every / 2);
            victim.resume();
        } else {
            victim.kill();
            std::thread::sleep(every / 5);
            victim.restart(LENDER);
        }
        kills += 1;
        std::thread::sleep(every.saturating_sub(at.elapsed()));
        wait_until("two copies of every page", || peers.weak_pages() == 0);
    }
    kills
}

fn run(every: Duration, span: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let address = |id: u16| match id {
        2 | 3 => "tcp:127.0.0.1:0".to_string(),
        id => format!("unix:{}", directory.path().join(id.to_string()).display()),
    };
    let mut lenders = [2, 3, 4, 5].map(|id| Process::start(LENDER, id, &address(id), PAGES));
    let peers = peers(lenders.iter().map(|lender| &lender.address), 2);
    let Some(region) = map(PAGES * PAGE, RegionConfig::new(256), &peers) else { return };
    let stop = AtomicBool::new(false);
    let kills = std::thread::scope(|scope| {
        let threads = [0, 1].map(|mine| {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || (mine, load(region, mine, stop)))
        });
        let stops = rig::SetOnDrop(&stop);
        let kills = kill(&mut lenders, &peers, every, span);
        drop(stops);
        for thread in threads {
            let (mine, (rounds, checked)) = thread.join().unwrap();
            assert!(checked > 0);
            check(&region, mine, &rounds);
        }
        kills
    });
    let counters = region.counters();
    println!("{kills} kills and pauses: {counters:?}");
    assert_eq!((counters.lost, counters.damaged), (0, 0), "{counters:?}");
    assert!(counters.mended > 0 && counters.stored > 1_000, "{counters:?}");
}

/// A line that sleeps.
fn line(address: &Address, deadline: Duration) -> Line {
    let (security, wait) = (Security::Insecure, WaitPolicy::Block);
    Line::connect(address, LineConfig { cluster: 1, security, wait, deadline }, 16).unwrap()
}

fn ask(line: &mut Line) -> Result<Answer, LineError> {
    let body = Spaces::of(&[SpaceId::guest(1)]).encode();
    let op = op::STAY;
    line.ask(Question { op, once: false, body: &body, data: None, trailer: &[], into: None })
}

#[test]
fn who_sleeps_until_an_answer_comes_hears_of_the_end_of_who_was_asked() {
    let directory = tempfile::tempdir().unwrap();
    let paths =
        ["tcp:127.0.0.1:0".to_string(), format!("unix:{}", directory.path().join("2").display())];
    for path in paths {
        let mut lender = Process::start(LENDER, 2, &path, 16);
        let mut line = line(&lender.address, Duration::from_secs(30));
        ask(&mut line).unwrap();
        lender.pause();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&mut line).map(drop));
            std::thread::sleep(Duration::from_millis(300));
            lender.kill();
            let asked = asked.join().unwrap();
            assert!(matches!(asked, Err(LineError::Broken)), "{path}: {asked:?}");
        });
    }
}

/// Every one of these wakes both sides. Wakes that are not counted fill the socket that they come through after some
/// hundred, and then none arrives: each exchange would wait for a timer.
#[test]
fn thousands_of_wakes_leave_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("unix:{}", directory.path().join("2").display());
    let lender = Process::start(LENDER, 2, &path, 16);
    let mut line = line(&lender.address, Duration::from_secs(5));
    (0..3_000).for_each(|_| drop(ask(&mut line).unwrap()));
}

#[test]
fn lenders_that_are_killed_one_after_the_other_lose_nothing() {
    run(Duration::from_millis(2500), Duration::from_secs(12));
}

#[test]
#[ignore = "a soak's"]
fn lenders_that_are_killed_every_five_seconds_for_five_minutes_lose_nothing() {
    if std::env::var_os("TRAPEZE_SOAK").is_none() {
        return;
    }
    run(Duration::from_secs(5), Duration::from_secs(300));
}
