//! The world itself: a run is its seed, nothing is lost under back-pressure or loss of entries, and how fast it is.

use crate::stations::{end_host, forwarder, hoti};
use nic::{Buffers, CacheConfig, Lag, Policy};
use sim::hardware::catalogue;
use sim::hardware::fabric::Link;
use sim::hardware::measure::{forward, forward_of, sink};
use sim::hardware::programs::{Forwarder, Role, Sink, Source};
use sim::hardware::world::program::Copies;
use sim::hardware::world::{HostSetup, World};
use sim::queue::Picos;

const PAGE: usize = 4_096;

fn forwarded() -> (u64, u64) {
    let (end, middle) = (end_host(PAGE, PAGE), forwarder("piii433", "lanai4", Some(128), PAGE));
    let run = forward(&end, &middle, catalogue::link("myrinet").unwrap(), PAGE, Copies::Use);
    (run.fingerprint, run.handled)
}

#[test]
fn a_run_is_the_same_on_every_thread() {
    let here = forwarded();
    let there = std::thread::spawn(forwarded).join().unwrap();
    assert_eq!(here, there);
    assert_eq!(here, forwarded());
    let (end, middle) = (end_host(PAGE, PAGE), forwarder("piii433", "lanai7", Some(384), PAGE));
    let other = forward(&end, &middle, catalogue::link("myrinet").unwrap(), PAGE, Copies::Use);
    assert_ne!(here.0, other.fingerprint);
}

/// Hosts 0 to `senders` stream to the last one, through one crossbar.
fn incast(senders: usize, lag: Lag) -> World<Role> {
    let mut station = hoti("piii450", Policy::adaptive(512));
    (station.nic.lag, station.nic.receive_ring) = (lag, 4);
    let hosts: Vec<HostSetup> = (0..=senders).map(|_| station.host()).collect();
    let mut roles: Vec<Role> = (0..senders).map(|_| Source::stream(senders, 8_192, 100)).collect();
    roles.push(Sink::after(0));
    let mut world = World::new(9, catalogue::link("myrinet").unwrap(), &hosts, roles).unwrap();
    assert!(!world.run(Picos::seconds(2)), "all is sent in two seconds");
    world
}

#[test]
fn back_pressure_loses_nothing_and_is_counted() {
    let world = incast(4, Lag::Backpressure);
    assert_eq!(sink(&world, 4).messages, 400);
    assert_eq!(sink(&world, 4).bytes, 400 * 8_192);
    assert_eq!(world.nic(4).counters().dropped, 0);
}

#[test]
fn without_it_what_finds_no_entry_is_dropped_and_counted() {
    let world = incast(4, Lag::Drop);
    let counters = world.nic(4).counters();
    assert_eq!(sink(&world, 4).messages + counters.dropped, 400);
    assert!(counters.delivered == sink(&world, 4).messages);
}

#[test]
#[should_panic(expected = "wrong payload")]
fn a_payload_that_changed_on_its_way_ends_the_run() {
    let roles = vec![Source::stream(1, 8_192, 20), Sink::after(0)];
    let station = hoti("piii450", Policy::StoreForward);
    let hosts = [station.host(), station.host()];
    let mut world = World::new(77, catalogue::link("myrinet").unwrap(), &hosts, roles).unwrap();
    while world.step() {
        world.spoil(1);
    }
}

/// Buffers of a cache too small for the agent's pauses, and of the paper's.
fn bursts(entries: usize, ring: usize) -> nic::CacheCounters {
    let mut middle = forwarder("piii433", "lanai7", Some(384), PAGE);
    (middle.nic.send_ring, middle.nic.receive_ring) = (ring, ring);
    middle.nic.buffers =
        Buffers::Cache(CacheConfig { entries, send_segment: 4, small_segment: 0, small_bytes: 0 });
    let source = Source::paced(1, vec![PAGE], 1_200, 40, Picos::millis(4));
    forward_of(
        &end_host(PAGE, PAGE),
        &middle,
        catalogue::link("myrinet").unwrap(),
        source,
        Copies::Use,
    )
    .cache
}

/// With at least twice the ring, back-pressure keeps every payload that is not forwarded yet (forwarding paper section 3.2).
#[test]
fn bursts_hit_always_when_the_cache_is_twice_the_ring() {
    for (entries, ring) in [(384, 64), (132, 64), (36, 16)] {
        let counters = bursts(entries, ring);
        assert_eq!(
            (counters.hits, counters.misses),
            (1_200, 0),
            "{entries} entries, ring of {ring}"
        );
    }
}

/// The host modifies each payload: every copy is fetched again, and what arrives is what the host wrote.
#[test]
fn modified_payloads_are_fetched_again() {
    let middle = forwarder("piii433", "lanai7", Some(384), PAGE);
    let link = catalogue::link("myrinet").unwrap();
    let run = forward(&end_host(PAGE, PAGE), &middle, link, PAGE, Copies::Invalidate);
    assert_eq!((run.cache.hits, run.cache.refills), (0, 1_200));
}

/// One, two and four adapters in one forwarding host share its bus: 64 bits at 66 MHz feed two and do not feed
/// four without the cache; with it they feed all (forwarding paper, section 5).
#[test]
fn several_adapters_share_a_bus() {
    // one crossbar for all twelve adapters: on smaller ones the streams would share a link between two
    let link = Link { ports: 16, ..catalogue::link("myrinet").unwrap() };
    let total = |adapters: usize, cache: bool| {
        let (entries, copies) =
            if cache { (Some(384), Copies::Use) } else { (None, Copies::Ignore) };
        let middle = forwarder("piii733", "lanai7", entries, PAGE);
        let end = end_host(PAGE, PAGE);
        let mut hosts = vec![middle.host_with(adapters)];
        let mut roles = vec![Role::Forwarder(Forwarder {
            to: (0..adapters).map(|n| 2 * adapters + n).collect(),
            copies,
            service: middle.machine.host.service,
            forwarded: 0,
        })];
        for n in 0..adapters {
            hosts.push(end.host());
            roles.push(Source::stream(n, PAGE, 1_000));
        }
        for _ in 0..adapters {
            hosts.push(end.host());
            roles.push(Sink::after(100));
        }
        let mut world = World::new(3, link, &hosts, roles).unwrap();
        world.run(Picos::seconds(5));
        (adapters + 1..=2 * adapters).map(|host| sink(&world, host).rate()).sum::<f64>() / 1e6
    };
    let rates = [1, 2, 4].map(|adapters| (total(adapters, false), total(adapters, true)));
    println!("1, 2, 4 adapters, MB/s without and with the cache: {rates:.0?}");
    assert!(rates[1].1 > rates[0].1 * 1.6);
    assert!(rates[2].1 > rates[2].0 * 1.2, "four adapters gain from the cache");
}

/// Events a second of the adapter models; printed, asserted nowhere. Target: 3 M/s in a release build.
#[test]
fn bench_adapters() {
    let middle = forwarder("piii433", "lanai4", Some(128), PAGE);
    let (end, link) = (end_host(PAGE, PAGE), catalogue::link("myrinet").unwrap());
    let count =
        std::env::var("SIM_BENCH_PACKETS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let hosts = [end.host(), middle.host(), end.host()];
    let roles = vec![
        Source::stream(1, PAGE, count),
        Forwarder::role(2, Copies::Use, middle.machine.host.service),
        Sink::after(0),
    ];
    let mut world = World::new(1, link, &hosts, roles).unwrap();
    let begun = std::time::Instant::now();
    world.run(Picos::seconds(1_000));
    let spent = begun.elapsed().as_secs_f64();
    let rate = world.handled() as f64 / spent / 1e6;
    println!(
        "adapters: {rate:.2} M events/s, {:.0} k packets/s, {} events",
        count as f64 / spent / 1e3,
        world.handled()
    );
    assert_eq!(sink(&world, 2).messages, count);
}
