//! Prefetch by the service: what was said or foreseen is there in time, demand goes first, and nothing is hurt.

use crate::world::*;
use netmem::limits::{AHEAD_SHARE, FAR_MAX, NEAR_MAX};
use netmem::service::{Counters, Hint, Source};
use netmem::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::mix;

const FRAMES: usize = 128;
const WILL_NEED: Hint = Hint::WillNeed { bytes: PAGE as u32 };
const MS: Duration = Duration::from_millis(1);

/// Nodes of which the first has so many pages on stable storage, after the first epochs.
fn with_pages(nodes: u16, pages: u64) -> (World, Disk) {
    let (mut world, disk) = with_disk(nodes, FRAMES);
    disk.pages.borrow_mut().extend((0..pages).map(|index| (private(1, index), 1)));
    world.seconds(3);
    (world, disk)
}

/// Node 1 uses these pages, and computes for so long after each. Answers with where they were and how long it took.
fn uses(
    world: &mut World,
    pages: impl IntoIterator<Item = u64> + 'static,
    compute: Duration,
) -> (BTreeMap<&'static str, u64>, Duration) {
    let (service, cx, start) = (world.service(1), world.cx(1), world.net.now);
    let found = world.run(1, async move {
        let mut found = BTreeMap::new();
        for index in pages {
            let got = service.get(wanted(private(1, index), 1)).await.unwrap();
            assert_eq!(&got.data[..], &content(private(1, index), got.version.0)[..]);
            let source = match got.source {
                Source::Local => "local",
                Source::Peer => "peer",
                Source::Backing => "disk",
            };
            *found.entry(source).or_default() += 1;
            cx.sleep(compute).await;
        }
        found
    });
    (found, world.net.now.since(start))
}

fn counters(world: &World) -> Counters {
    world.service(1).counters()
}

#[test]
fn what_a_program_says_is_read_by_an_idle_node_and_is_there_in_time() {
    let (mut world, disk) = with_pages(2, 600);
    // no frame is free
    uses(&mut world, 0..FRAMES as u64, MS);
    let (reads, before) = (disk.reads.get(), counters(&world));
    let plan = world.service(1).plan_use(Version(0), PAGE as u32).unwrap();
    plan.add(Run::new(private(1, 200), 300)).unwrap();
    world.net.run(300);
    let (found, _) = uses(&mut world, 200..500, MS * 2);
    assert!(found["local"] >= 270, "{found:?}");
    let Counters { hinted, prefetched, prefetched_used, read_early, .. } = counters(&world);
    let (prefetched, used) =
        (prefetched - before.prefetched, prefetched_used - before.prefetched_used);
    assert_eq!(hinted, 300);
    assert!(prefetched >= 270 && used >= prefetched - 16, "{used} of {prefetched}");
    assert!(read_early >= 150, "{read_early} by the idle node");
    let reads = disk.reads.get() - reads;
    assert!(reads < 400, "{reads} reads of 300 pages");
    assert!(plan.left() == 0 && world.services.iter().all(Service::is_consistent));
}

#[test]
fn a_list_in_any_order_is_followed() {
    let (mut world, _) = with_pages(2, 4000);
    let list: Vec<u64> = (0..200).map(|at| mix(at) % 4000).collect();
    let plan = world.service(1).plan_use(Version(1), PAGE as u32).unwrap();
    let ids: Vec<PageId> = list.iter().map(|index| private(1, *index)).collect();
    assert_eq!(plan.add_list(&ids), 200);
    world.net.run(50);
    let (found, _) = uses(&mut world, list, MS * 4);
    assert!(found["local"] > 180, "{found:?}");
}

#[test]
fn a_scan_that_nobody_announced_is_found() {
    for stride in [1, 7, -3] {
        let (mut world, _) = with_pages(2, 5000);
        let pages = (0..400).map(move |at| (2000 + at * stride) as u64);
        let (found, _) = uses(&mut world, pages, MS * 2);
        assert!(found["local"] > 350, "{stride}: {found:?}");
        let Counters { prefetched, prefetched_used, .. } = counters(&world);
        assert!(prefetched_used + 2 * 16 >= prefetched, "{stride}: {:?}", counters(&world));
    }
}

#[test]
fn mirrored_pages_come_back_ahead_of_their_use() {
    let mut world = World::new(4, |_| small(FRAMES));
    for index in 0..100 {
        world.put(1, private(1, index), 1, Class::Mirrored).unwrap();
        world.flush(1, private(1, index)).unwrap();
        world.forget(1, private(1, index));
    }
    let (found, _) = uses(&mut world, 0..100, MS * 2);
    assert!(found["local"] > 80, "{found:?}");
    // they are dirty still, and lost when both mirrors are: no copy here counts as one on stable storage
    assert!(world.service(1).inspect(|memory, _| {
        memory.pages().all(|(_, _, page)| page.durability == Durability::Dirty { copies: 2 })
    }));
    assert_eq!(world.mirrors(private(1, 50)).len(), 2);
}

#[test]
fn random_uses_cost_nothing() {
    let measure = |far: u64| {
        let (mut world, disk) = with_pages(2, 4000);
        let pages = (0..600).map(move |at| mix(at ^ far) % 4000);
        let (_, took) = uses(&mut world, pages, MS);
        (counters(&world).prefetched, disk.reads.get(), took)
    };
    let (prefetched, reads, _) = measure(5);
    assert!(prefetched * 50 <= reads, "{prefetched} beside {reads}");
}

/// Eight prefetches are being read, 56 wait: who asks for the last of them waits for one read.
#[test]
fn demand_overtakes_what_waits_and_joins_what_is_on_its_way() {
    let (mut world, disk) = with_pages(1, 200);
    disk.delay.set(MS * 100);
    world.service(1).hint_run(Run::new(private(1, 0), 64), WILL_NEED);
    world.net.run(10);
    assert_eq!(disk.reads.get(), 8);
    let (_, took) = uses(&mut world, [63], Duration::ZERO);
    assert!(took < MS * 110, "{took:?}");
    let (_, took) = uses(&mut world, [0], Duration::ZERO);
    assert!(took < MS * 10, "{took:?}");
    world.net.run(2000);
    // 63 and its like are not read again
    assert!(disk.reads.get() <= 64, "{}", disk.reads.get());
}

#[test]
fn a_page_that_is_on_its_way_is_waited_for_and_not_read_twice() {
    let (mut world, disk) = with_pages(1, 200);
    disk.delay.set(MS * 100);
    world.service(1).hint(private(1, 7), WILL_NEED);
    world.net.run(50);
    let (_, took) = uses(&mut world, [7], Duration::ZERO);
    assert!(took < MS * 60, "{took:?}");
    let Counters { prefetched_late, prefetched_used, .. } = counters(&world);
    assert_eq!((disk.reads.get(), prefetched_late, prefetched_used), (1, 1, 0));
}

/// The race of a prefetch that arrives after the demand's answer (r14): the holder's answer takes a second.
#[test]
fn a_peer_that_is_slow_is_not_waited_for() {
    let (mut world, disk) = with_pages(2, 200);
    let early = wanted(private(1, 40), 1);
    let plan = world.service(1).plan_use(Version(0), PAGE as u32).unwrap();
    uses(&mut world, 64..64 + FRAMES as u64, MS);
    plan.add(Run::new(private(1, 0), 60)).unwrap();
    world.net.run(200);
    let there = |world: &World| world.where_is(early.id).iter().any(|(node, ..)| *node == 2);
    drop(plan);
    world.service(1).hint(early.id, Hint::DontNeed);
    assert!(there(&world), "{:?}", world.where_is(early.id));
    world.net.fate = Box::new(|_| (1, 300));
    world.service(1).hint(early.id, WILL_NEED);
    world.net.run(5);
    let reads = disk.reads.get();
    let (found, took) = uses(&mut world, [40], Duration::ZERO);
    assert_eq!((found.get("disk"), disk.reads.get()), (Some(&1), reads + 1), "{found:?}");
    assert!(took < MS * 100, "{took:?}");
    let before = counters(&world).prefetched;
    world.net.fate = Box::new(|_| (1, 0));
    world.net.run(3000);
    assert_eq!(counters(&world).prefetched, before, "what came late is dropped");
    assert!(world.services.iter().all(Service::is_consistent));
}

#[test]
fn a_page_that_is_written_meanwhile_is_not_what_was_prefetched() {
    let (mut world, disk) = with_pages(1, 10);
    disk.delay.set(MS * 100);
    world.service(1).hint(private(1, 3), WILL_NEED);
    world.net.run(50);
    world.put(1, private(1, 3), 2, Class::WriteBack).unwrap();
    world.flush(1, private(1, 3)).unwrap();
    world.forget(1, private(1, 3));
    world.net.run(500);
    assert!(world.where_is(private(1, 3)).is_empty(), "version 1 is not kept");
}

/// A prefetched copy of a page that another node writes to would silently be out of date.
#[test]
fn what_somebody_writes_to_is_not_prefetched() {
    let (mut world, _disk) = with_disk(3, 64);
    for index in 0..16 {
        world.put(2, shared(index), late(1), Class::WriteBack).unwrap();
        world.flush(2, shared(index)).unwrap();
    }
    world.service(1).hint_run(Run::new(shared(0), 16), WILL_NEED);
    world.net.run(200);
    assert!((0..16).all(|index| world.where_is(shared(index)) == [(2, Role::Local, late(1))]));
    world.put(2, shared(4), late(2), Class::WriteBack).unwrap();
    assert_eq!(world.read(1, shared(4), 0).0, late(2));
}

/// A program says that it will use ten thousand pages, and uses others.
#[test]
fn a_wrong_hint_costs_a_bounded_amount() {
    let (mut world, disk) = with_pages(2, 20_000);
    uses(&mut world, (0..600).map(|at| 15_000 + mix(at) % 60), MS);
    let before = disk.reads.get();
    let plan = world.service(1).plan_use(Version(0), PAGE as u32).unwrap();
    plan.add(Run::new(private(1, 0), 10_000)).unwrap();
    world.net.run(1000);
    let reads = disk.reads.get() - before;
    assert!(reads <= NEAR_MAX + FAR_MAX, "{reads} reads");
    // what the program really uses is there
    let (found, _) = uses(&mut world, (0..600).map(|at| 15_000 + mix(at) % 60), MS);
    assert!(found["local"] > 590, "{found:?}");
    // and frames that are needed are those of the prefetched pages that were not used
    uses(&mut world, (0..200).map(|at| 16_000 + mix(at) % 3000), MS);
    let Counters { prefetched, prefetched_used, prefetched_wasted, .. } = counters(&world);
    assert!(prefetched_used == 0 && prefetched_wasted == prefetched, "{:?}", counters(&world));
}

#[test]
fn pages_that_are_not_needed_leave_at_once() {
    let (mut world, _) = with_pages(1, 200);
    uses(&mut world, 0..100, Duration::ZERO);
    world.service(1).hint_run(Run::between(private(1, 1), 99, 2), Hint::DontNeed);
    let left = world.service(1).inspect(|memory, _| {
        memory
            .pages()
            .filter(|(_, role, _)| *role == Role::Local)
            .map(|(.., page)| page.id.index)
            .collect::<Vec<_>>()
    });
    assert!(left.len() >= 50 && left.iter().all(|index| index % 2 == 0), "{left:?}");
}

/// Contents of a node's memory that were used: when, and at which effective age.
type Resident = BTreeMap<(u16, PageId), Page>;

fn held(world: &World) -> Resident {
    let mut held = Resident::new();
    for (at, service) in world.services.iter().enumerate() {
        service.inspect(|memory, _| {
            held.extend(memory.pages().map(|(_, _, page)| ((at as u16 + 1, page.id), *page)));
        });
    }
    held
}

/// Nodes 1 and 2 use pages of their own at random; then node 1 says, rightly or wrongly, what it will use. No page that
/// went for that, on either node, was used more recently than the soonest of what came is expected to be used: a page's
/// next use is expected as far ahead as its last one lies behind. And never does more than an eighth of the frames
/// wait for a first use.
fn check_displaced(seed: u64) -> usize {
    let (mut world, disk) = with_disk(2, FRAMES);
    let mut draws = (0u64..).map(move |at| mix(seed ^ at << 8));
    let mut draw = move |below: u64| draws.next().unwrap() % below;
    let pages = (0..3000).flat_map(|index| [private(1, index), private(2, index)]);
    disk.pages.borrow_mut().extend(pages.map(|id| (id, 1)));
    world.seconds(2);
    let step = draw(30) + 1;
    for _ in 0..300 {
        let node = draw(2) as u16 + 1;
        world.read(node, private(node, 2000 + draw(100 + seed % 200)), 1);
        world.net.run(draw(step) as usize);
    }
    let plan = world.service(1).plan_use(Version(0), PAGE as u32).unwrap();
    // a pace
    plan.add(Run::new(private(1, 0), 9)).unwrap();
    for at in 0..9 {
        world.read(1, private(1, at), 1);
        world.net.run(step as usize);
    }
    let (before, mut displaced) = (held(&world), 0);
    plan.add(Run { stride: draw(3) as i64 + 1, ..Run::new(private(1, 16), 600) }).unwrap();
    for _ in 0..200 {
        world.net.turn();
        let now = held(&world);
        for node in 1..=2 {
            let here = |id: &&(u16, PageId)| id.0 == node;
            let came = now.keys().filter(here).filter(|id| !before.contains_key(*id)).count();
            let gone: Vec<_> =
                before.keys().filter(here).filter(|id| !now.contains_key(*id)).collect();
            assert!(came >= gone.len(), "seed {seed}: nothing goes but for what comes");
            // each page takes a step at least, and the first batch that comes has five pages or more of an extent
            let youngest = gone.iter().map(|id| before[*id].age(world.net.now)).min();
            let soonest = Age(5000 * step);
            assert!(youngest.is_none_or(|age| age > soonest), "seed {seed}: {youngest:?}");
            displaced = displaced.max(gone.len());
        }
        let ahead = world.service(1).counts().ahead;
        assert!(ahead <= FRAMES as u32 / AHEAD_SHARE, "seed {seed}: {ahead} pages wait");
    }
    displaced
}

#[test]
fn a_hint_displaces_nothing_that_is_used_sooner() {
    let displaced: usize = (0..24).map(check_displaced).sum();
    assert!(displaced > 100, "{displaced}");
}

/// When it is to be used is the time of a page that is kept for others: hosted pages say it themselves.
#[test]
fn what_is_kept_for_others_takes_no_place_of_what_is_used_sooner() {
    let (mut world, disk) = with_pages(2, 1000);
    disk.pages.borrow_mut().extend((0..500).map(|index| (private(2, index), 1)));
    // node 2 uses all of its frames, every one within a quarter of a second
    let busy = Rc::new(RefCell::new(0u64));
    let (service, cx, at) = (world.service(2), world.cx(2), busy.clone());
    cx.clone().spawn("busy", async move {
        loop {
            let index = *at.borrow() % FRAMES as u64;
            *at.borrow_mut() += 1;
            let _ = service.get(wanted(private(2, index), 1)).await;
            cx.sleep(MS * 2).await;
        }
    });
    world.seconds(3);
    let reads = disk.reads.get();
    let plan = world.service(1).plan_use(Version(0), PAGE as u32).unwrap();
    plan.add(Run::new(private(1, 0), 500)).unwrap();
    uses(&mut world, 0..40, MS * 50);
    world.seconds(1);
    let hosted = world.service(2).counts().hosted;
    assert!(hosted < 16, "{hosted} pages that are used in seconds beside a loop of 0.3 s");
    let again = disk.reads.get() - reads;
    assert!(again < 500, "{again} reads: the loop stays where it is");
}
