//! The world itself: a run is its seed, nothing is lost under back-pressure or loss of entries, and how fast it is.

use super::stations::hoti;
use nic::{Balance, Lag, Policy};
use sim::hardware::agent::Forwarder;
use sim::hardware::catalogue;
use sim::hardware::forwarding::{Forwarding, PAGE, cache, end_host, forwarder, myrinet};
use sim::hardware::measure::sink;
use sim::hardware::programs::{Arrivals, Role, Sink, Source};
use sim::hardware::world::program::Copies;
use sim::hardware::world::{HostSetup, World};
use sim::queue::Picos;

fn forwarded() -> (u64, u64) {
    let middle = forwarder("piii433", "lanai4", Some(128), PAGE);
    let run = Forwarding::new(&end_host(PAGE), &middle, Copies::Use).stream(PAGE);
    (run.fingerprint, run.handled)
}

#[test]
fn a_run_is_the_same_on_every_thread() {
    let here = forwarded();
    let there = std::thread::spawn(forwarded).join().unwrap();
    assert_eq!(here, there);
    assert_eq!(here, forwarded());
    let middle = forwarder("piii433", "lanai7", Some(384), PAGE);
    let other = Forwarding::new(&end_host(PAGE), &middle, Copies::Use).stream(PAGE);
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
    middle.nic.buffers = cache(entries);
    let arrivals = Arrivals::Bursts(40, Picos::millis(4));
    Forwarding::new(&end_host(PAGE), &middle, Copies::Use).run(1, vec![PAGE], &arrivals).cache
}

/// With at least twice the ring, back-pressure keeps every payload that is not forwarded yet (forwarding paper
/// section 3.2).
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

/// An agent that holds packets gives entries back at once and stops no other: a burst that is longer than the cache
/// misses, and the bytes that arrive are right all the same.
#[test]
fn an_agent_that_holds_packets_loses_hits_and_no_bytes() {
    let end = end_host(PAGE);
    let hits = [36, 384].map(|entries| {
        let mut middle = forwarder("piii433", "lanai7", Some(384), PAGE);
        (middle.nic.send_ring, middle.nic.receive_ring) = (16, 16);
        middle.nic.buffers = cache(entries);
        let one = Forwarding::new(&end, &middle, Copies::Use);
        let holding = Forwarding { holds: Picos::millis(10), ..one };
        let run = holding.run(1, vec![PAGE], &Arrivals::Bursts(200, Picos::millis(30)));
        assert_eq!((&run.arrived[..], run.dropped), (&[1_200][..], 0));
        run.hits()
    });
    assert!(hits[0] < 50.0 && hits[1] == 100.0, "{hits:?}");
}

/// The agent's policies in the world: a flow stays with its backend; taking turns and counting flows give each backend
/// as many, hashes about as many.
#[test]
fn flows_go_to_the_backends_that_the_policy_chose() {
    let (end, middle) = (end_host(PAGE), forwarder("piii733", "lanai7", Some(384), PAGE));
    let one = Forwarding::new(&end, &middle, Copies::Use);
    let arrived = [Balance::Hash, Balance::RoundRobin, Balance::LeastConnections].map(|balance| {
        let two =
            Forwarding { adapters: 2, balance, flows: 32, fill: 0, measured: 320, ..one.clone() };
        two.stream(PAGE).arrived
    });
    assert_eq!(arrived[1..], [[320, 320], [320, 320]]);
    let hashed = &arrived[0];
    assert!(hashed.iter().all(|count| count % 10 == 0 && *count > 160), "{hashed:?}");
}

/// The host modifies each payload: every copy is fetched again, and what arrives is what the host wrote.
#[test]
fn modified_payloads_are_fetched_again() {
    let middle = forwarder("piii433", "lanai7", Some(384), PAGE);
    let run = Forwarding::new(&end_host(PAGE), &middle, Copies::Invalidate).stream(PAGE);
    assert_eq!((run.cache.hits, run.cache.refills), (0, 1_200));
}

/// One, two and four adapters in one forwarding host share its bus: 64 bits at 66 MHz feed two and do not feed
/// four without the cache; with it they feed all (forwarding paper, section 5).
#[test]
fn several_adapters_share_a_bus() {
    let total = |adapters: usize, cache: bool| {
        let (entries, copies) =
            if cache { (Some(384), Copies::Use) } else { (None, Copies::Ignore) };
        let middle = forwarder("piii733", "lanai7", entries, PAGE);
        let end = end_host(PAGE);
        let one = Forwarding::new(&end, &middle, copies);
        Forwarding { adapters, ..one }.stream(PAGE).rate / 1e6
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
    let (end, link) = (end_host(PAGE), myrinet());
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
