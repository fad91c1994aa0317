//! Regions whose pages are in the memory of other nodes, over TCP and over shared memory.

mod region_rig;

use endpoint::Frames;
use live::host::Host;
use live::link::{Address, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::region::peer::holder::Holder;
use live::region::peer::{LineConfig, PeerConfig, Peers};
use live::region::{FaultError, RegionConfig};
use live::wait::WaitPolicy;
use netmem::SpaceId;
use node::{Node, NodeConfig};
use region_rig::{Numbers, PAGE, map};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::NodeId;

const POOL_PAGES: usize = 4096;
const PAGES: usize = 512;

/// A node that keeps pages, on a thread of its own.
struct Keeper {
    address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(id: u16, address: &str, pages: u32) -> Keeper {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, ready) = std::sync::mpsc::channel();
        let (flag, address) = (stop.clone(), address.parse::<Address>().unwrap());
        let thread = std::thread::spawn(move || {
            let region = MemfdRegion::create("keeper", POOL_PAGES).unwrap();
            let pool = SharedPool { fd: region.share().unwrap(), bytes: POOL_PAGES * PAGE };
            let node = NodeId(id);
            let (security, incarnation) = (Security::Insecure, live::clock::now().0);
            let config = LinkConfig { node, incarnation, cluster: 1, security };
            let mut links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
            told.send(links.listen(&address).unwrap()).unwrap();
            let node = Node::new(NodeConfig::new(node, incarnation, 1), Frames::new(region));
            let cx = node.cx().clone();
            let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
            host.add(links).unwrap();
            host.node().cx().spawn("holder", Holder::new(pages).serve(cx.clone()));
            // Wakes it, so that it sees the flag.
            host.node().cx().spawn("tick", async move {
                loop {
                    cx.sleep(Duration::from_millis(50)).await;
                }
            });
            host.run(|| flag.load(Ordering::Relaxed)).unwrap();
        });
        Keeper { address: ready.recv().unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.take().unwrap().join().is_ok() || std::thread::panicking());
    }
}

fn peers(keepers: &[&Keeper], copies: u8) -> Peers {
    let line = LineConfig {
        cluster: 1,
        security: Security::Insecure,
        wait: WaitPolicy::Adaptive,
        deadline: Duration::from_millis(300),
    };
    let holders = keepers.iter().map(|keeper| keeper.address.clone()).collect();
    let space = SpaceId::private(NodeId(1), 7);
    Peers::new(PeerConfig { holders, copies, space, line }).unwrap()
}

fn config() -> RegionConfig {
    let patience = Duration::from_millis(700);
    RegionConfig { contexts: 2, patience, ..RegionConfig::new(64) }
}

/// Two threads write and check numbers in words of their own.
fn use_it(region: &live::region::Region, seed: u64) {
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
    // SAFETY: nobody else uses the region.
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
    let keeper = Keeper::start(2, "tcp:127.0.0.1:0", PAGES as u32);
    let Some(region) = map(PAGES * PAGE, config(), &peers(&[&keeper], 1)) else { return };
    use_it(&region, 1);
    let counters = region.counters();
    assert!(counters.fetched > 500 && counters.stored > 500, "{counters:?}");
    assert_eq!((counters.lost, counters.damaged), (0, 0));
}

#[test]
fn pages_come_from_a_peer_over_shared_memory() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", directory.path().join("2.sock").display());
    let keeper = Keeper::start(2, &address, PAGES as u32);
    let Some(region) = map(PAGES * PAGE, config(), &peers(&[&keeper], 1)) else { return };
    use_it(&region, 2);
    let counters = region.counters();
    assert!(counters.fetched > 500 && counters.stored > 500, "{counters:?}");
}

#[test]
fn with_two_copies_one_holder_may_go() {
    let keepers = [2, 3].map(|id| Keeper::start(id, "tcp:127.0.0.1:0", PAGES as u32));
    let [first, second] = keepers;
    let Some(region) = map(PAGES * PAGE, config(), &peers(&[&first, &second], 2)) else { return };
    for page in 0..PAGES {
        region.write(page * PAGE, &(page as u64).to_le_bytes()).unwrap();
    }
    region.flush(0, PAGES * PAGE).unwrap();
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
fn a_holder_that_restarts_has_nothing_and_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", directory.path().join("2.sock").display());
    let keeper = Keeper::start(2, &address, PAGES as u32);
    let Some(region) = map(PAGES * PAGE, config(), &peers(&[&keeper], 1)) else { return };
    for page in 0..PAGES {
        region.write(page * PAGE, &[1]).unwrap();
    }
    drop(keeper);
    let _keeper = Keeper::start(2, &address, PAGES as u32);
    let mut byte = [0];
    let mut result = region.read(0, &mut byte);
    for _ in 0..5 {
        if result == Err(FaultError::Lost) {
            break;
        }
        assert!(matches!(result, Err(FaultError::Unavailable(_))), "{result:?} {byte:?}");
        result = region.read(0, &mut byte);
    }
    assert_eq!(result, Err(FaultError::Lost), "never zeros");
}

#[test]
fn a_full_holder_refuses() {
    let keeper = Keeper::start(2, "tcp:127.0.0.1:0", 16);
    let Some(region) = map(PAGES * PAGE, config(), &peers(&[&keeper], 1)) else { return };
    let written = (0..PAGES).take_while(|page| region.write(page * PAGE, &[1]).is_ok()).count();
    assert!((16..=80).contains(&written), "{written} pages in 64 frames here and 16 there");
    // What is here is read; for what is there something would have to leave.
    let mut byte = [0];
    let read = (0..written).filter(|page| {
        let is_read = region.read(page * PAGE, &mut byte).is_ok();
        assert!(!is_read || byte == [1], "page {page}: {byte:?}");
        is_read
    });
    assert!(read.count() >= 50);
}
