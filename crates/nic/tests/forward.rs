//! The payload cache at work: a source, a forwarder with a cache, and where it sends to (forwarding paper section 3).

use crate::world::*;
use nic::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const PAGE: usize = 256;
const RING: usize = 8;

fn cached(entries: usize) -> Buffers {
    Buffers::Cache(CacheConfig { entries, send_segment: 4, small_segment: 0, small_bytes: 0 })
}

fn config(buffers: Buffers, policy: Policy) -> Config {
    Config {
        policy,
        buffers,
        send_ring: RING,
        receive_ring: RING,
        mtu: 8 * PAGE,
        ..Config::new(PAGE)
    }
}

/// The program on the forwarder's host.
#[derive(Clone, Debug)]
struct Agent {
    /// How long it takes for a packet, in microseconds, packet by packet in turn.
    service: Vec<u64>,
    /// For each packet, in turn, whether it is changed before it is sent on.
    changes: Vec<bool>,
    /// Whether it gives receive entries back before their packets have been sent on.
    gives_back: bool,
    /// Whether it tells the adapter about copies.
    binds: bool,
    packets: usize,
    pieces: usize,
}

const PLAIN: Agent = Agent {
    service: Vec::new(),
    changes: Vec::new(),
    gives_back: false,
    binds: true,
    packets: 300,
    pieces: 1,
};

impl Agent {
    fn service(&self, number: usize) -> u64 {
        let turn = number.checked_rem(self.service.len()).map_or(1, |at| self.service[at]);
        turn * US as u64
    }

    fn changes(&self, number: usize) -> bool {
        number.checked_rem(self.changes.len()).is_some_and(|at| self.changes[at])
    }

    fn piece(&self, landed: &Landed, changed: bool) -> Piece {
        match self.binds {
            false => landed.frame.into(),
            true if changed => landed.modified(),
            true => landed.unmodified(),
        }
    }
}

struct Waiting {
    number: usize,
    landed: Vec<Landed>,
}

/// The forwarder's host, beside the adapter.
struct Forwarder {
    agent: Agent,
    /// Frames that no entry and no message holds.
    free: VecDeque<usize>,
    held: VecDeque<usize>,
    queue: VecDeque<Waiting>,
    busy: bool,
    /// Each message's content when it was posted.
    posted: Vec<Vec<u8>>,
    /// Entries that wait for a frame.
    bare: usize,
}

impl Forwarder {
    fn bytes(&self) -> usize {
        self.agent.pieces * PAGE
    }

    fn arm(&mut self, nic: &mut Nic) {
        while self.bare > 0 {
            let Some(frame) = self.free.pop_front() else { break };
            let bytes = self.bytes();
            let address = (frame * bytes) as u64;
            nic.arm(&[HostFrame { address, bytes }]).unwrap();
            self.held.push_back(frame);
            self.bare -= 1;
        }
    }

    fn told(&mut self, world: &mut World, told: Told) {
        match told {
            Told::Action(Action::Deliver { slot, packet, landed, .. }) => {
                assert_eq!(landed, self.bytes());
                let landed = world.nic(1).landed(slot).to_vec();
                self.queue.push_back(Waiting { number: packet.number as usize, landed });
                self.bare += usize::from(self.agent.gives_back);
                self.arm(world.nic(1));
                self.serve(world);
            }
            Told::Action(Action::Complete { .. }) => {
                let frame = self.held.pop_front().unwrap();
                self.free.push_back(frame);
                self.bare += usize::from(!self.agent.gives_back);
                self.arm(world.nic(1));
                self.serve(world);
            }
            Told::Timer(_) => self.forward(world),
            _ => (),
        }
    }

    fn serve(&mut self, world: &mut World) {
        if !self.busy && !self.queue.is_empty() && world.nic(1).send_room() > 0 {
            self.busy = true;
            let number = self.queue[0].number;
            world.timer(1, self.agent.service(number), 0);
        }
    }

    fn forward(&mut self, world: &mut World) {
        self.busy = false;
        let Waiting { number, landed } = self.queue.pop_front().unwrap();
        let changed = self.agent.changes(number);
        let at = landed[0].frame.address as usize;
        let bytes = self.bytes();
        let payload = &mut world.machines[1].host[at..at + bytes];
        if changed {
            payload[..PAGE].iter_mut().for_each(|b| *b = b.wrapping_add(1)); // its first page only
        }
        self.posted.push(payload.to_vec());
        let pieces = landed.iter().enumerate();
        let pieces: Vec<_> =
            pieces.map(|(at, l)| self.agent.piece(l, changed && at == 0)).collect();
        world.nic(1).post(to(1, 2), &pieces).unwrap();
        self.serve(world);
    }
}

/// Sends packets through the forwarder as fast as they go and compares every byte that arrives. The world and the
/// forwarder's counters.
fn forward(agent: Agent, config: Config) -> (World, CacheCounters) {
    let rates = Rates::new(1.0, 132.0, 132.0, 160.0, true);
    let ends = Config {
        buffers: Buffers::Pools { send: 16, receive: 16 },
        lag: Lag::Backpressure,
        costs: Costs::default(),
        ..config.clone()
    };
    let frames = if agent.gives_back { 5 * RING } else { RING };
    let bytes = agent.pieces * PAGE;
    let mut world = World::new(rates, &[ends.clone(), config, ends], 6 * RING * bytes);
    let free = (0..frames).collect();
    let mut forwarder = Forwarder {
        agent: agent.clone(),
        free,
        held: VecDeque::new(),
        queue: VecDeque::new(),
        busy: false,
        posted: Vec::new(),
        bare: RING,
    };
    forwarder.arm(world.nic(1));
    (0..RING).for_each(|slot| {
        world.nic(2).arm(&[page(slot, bytes)]).unwrap();
    });
    let mut sent = 0;
    let mut send = |world: &mut World| {
        while sent < agent.packets && world.nic(0).send_room() > 0 {
            let frame = page(sent % RING, bytes);
            let stretch = frame.address as usize..frame.address as usize + bytes;
            let fresh = world.machines[0].host[stretch].iter_mut().enumerate();
            fresh.for_each(|(at, byte)| *byte = (at * 3 + sent * 7) as u8);
            world.nic(0).post(to(0, 1), &[frame.into()]).unwrap();
            sent += 1;
        }
    };
    send(&mut world);
    world.kick(0);
    let mut arrived = 0;
    world.run(&mut |world, machine, told| match (machine, told) {
        (0, Told::Action(Action::Complete { .. })) => send(world),
        (1, told) => forwarder.told(world, told),
        (2, Told::Action(Action::Deliver { slot, .. })) => {
            let seen = &world.machines[2].host[slot * bytes..][..bytes];
            assert!(
                seen == forwarder.posted[arrived],
                "message {arrived} is what the host had posted"
            );
            arrived += 1;
            world.nic(2).arm(&[page(slot, bytes)]).unwrap();
        }
        _ => (),
    });
    let counters = world.machines[1].nic.counters();
    let dropped = counters.dropped as usize;
    assert_eq!(arrived + dropped, agent.packets, "every packet arrives that was not dropped");
    let cache = world.machines[1].nic.cache().counters();
    (world, cache)
}

#[test]
fn c14_all_hits_under_back_pressure_however_long_the_host_stalls() {
    let service = vec![1, 1, 400, 3, 2000, 1];
    for policy in [Policy::StoreForward, Policy::adaptive(64)] {
        let agent = Agent { service: service.clone(), ..PLAIN };
        let (world, cache) = forward(agent, config(cached(4 + 2 * RING), policy));
        assert_eq!((cache.hits, cache.misses, cache.fetches), (300, 0, 0));
        assert_eq!(cache.evictions_unsent, 0);
        assert!(world.machines[1].nic.counters().held > 0, "the source had to wait");
    }
}

/// Without it: the host takes more packets than the cache holds before it sends them on.
#[test]
fn c14_hits_are_lost_without_back_pressure() {
    let agent = Agent { service: vec![1, 1, 400, 3, 2000, 1], gives_back: true, ..PLAIN };
    let (_, cache) = forward(agent, config(cached(4 + 2 * RING), Policy::adaptive(64)));
    assert!(cache.misses > 30, "{cache:?}");
    assert!(cache.evictions_unsent > 30, "{cache:?}");
    assert_eq!(cache.hits + cache.misses, 300);
}

/// An adapter that drops instead loses packets, not hits: what it delivers is still there.
#[test]
fn an_adapter_that_drops_loses_packets_and_no_hits() {
    let agent = Agent { service: vec![1, 1, 400, 3, 2000, 1], ..PLAIN };
    let config = Config { lag: Lag::Drop, ..config(cached(4 + 2 * RING), Policy::adaptive(64)) };
    let (world, cache) = forward(agent, config);
    let counters = world.machines[1].nic.counters();
    assert!(counters.dropped > 30, "{counters:?}");
    assert_eq!((cache.hits, cache.misses), (300 - counters.dropped, 0));
}

/// I22: a hit saves the second visit to the bus; a packet that the host changed is fetched again.
#[test]
fn i22_visits_to_the_bus() {
    let visits = |agent: Agent, buffers| {
        let config = Config { log: 100_000, ..config(buffers, Policy::adaptive(64)) };
        let (world, cache) = forward(agent, config);
        let records = world.machines[1].nic.log().records();
        let payload =
            |r: &&Record| (r.transfer.engine, r.transfer.kind) == (Engine::HostDma, Kind::Payload);
        let bytes: usize = records.iter().filter(payload).map(|r| r.transfer.bytes).sum();
        (bytes as f64 / (300 * PAGE) as f64, cache)
    };
    let pools = Buffers::Pools { send: 16, receive: 16 };
    assert_eq!(visits(PLAIN, pools).0, 2.0);
    assert_eq!(visits(PLAIN, cached(20)).0, 1.0);
    assert_eq!(visits(Agent { binds: false, ..PLAIN }, cached(20)).0, 2.0);
    let (share, cache) = visits(Agent { changes: vec![true, false, false], ..PLAIN }, cached(20));
    assert_eq!((share, cache.refills, cache.hits), (4.0 / 3.0, 100, 200));
}

/// C12: sends that are not cached displace nothing but the send segment.
#[test]
fn c12_ten_thousand_uncached_sends() {
    let rates = Rates::new(1.0, 132.0, 132.0, 160.0, true);
    let config = config(cached(4 + 2 * RING), Policy::adaptive(64));
    let mut world = World::new(rates, &[config.clone(), config], 64 * PAGE);
    for slot in 0..RING {
        world.nic(1).arm(&[page(slot, PAGE)]).unwrap();
        world.nic(0).post(to(0, 1), &[page(slot, PAGE).into()]).unwrap();
    }
    world.kick(0);
    let mut landed = Vec::new();
    world.run(&mut |world, _, told| {
        if let Told::Action(Action::Deliver { slot, .. }) = told {
            landed.extend(world.nic(1).landed(slot).to_vec());
        }
    });
    assert_eq!(landed.len(), RING);
    (0..RING).for_each(|slot| {
        world.nic(0).arm(&[page(slot, PAGE)]).unwrap();
    });
    let mut posted = 0;
    let mut post = |world: &mut World| {
        while posted < 10_000 && world.nic(1).send_room() > 0 {
            world.nic(1).post(to(1, 0), &[page(20 + posted % 40, PAGE).into()]).unwrap();
            posted += 1;
        }
    };
    post(&mut world);
    world.kick(1);
    world.run(&mut |world, machine, told| match (machine, told) {
        (1, Told::Action(Action::Complete { .. })) => post(world),
        (0, Told::Action(Action::Deliver { slot, .. })) => {
            world.nic(0).arm(&[page(slot, PAGE)]).unwrap();
        }
        _ => (),
    });
    let cache = world.nic(1).cache().counters();
    assert_eq!((cache.fetches, cache.evictions), (10_000, 10_000 - 4), "the segment's own");
    assert_eq!((cache.evictions_by_sends, cache.evictions_unsent), (0, 0));
    for one in landed {
        let piece = Piece { frame: one.frame, reuse: Reuse::Use(one.binding.unwrap()) };
        world.nic(1).post(to(1, 0), &[piece]).unwrap();
    }
    world.kick(1);
    world.run(&mut |_, _, _| ());
    assert_eq!(world.nic(1).cache().counters().hits, RING as u64, "all that came is still there");
}

/// Small payloads have buffers of their own, so that they crowd out nothing.
#[test]
fn small_packets_do_not_crowd_the_cache() {
    let mut cache = PayloadCache::new(Buffers::Cache(CacheConfig {
        entries: 30,
        send_segment: 4,
        small_segment: 4,
        small_bytes: 64,
    }));
    let mut receive = |address, bytes| {
        let buffer = cache.attach_receive(address, bytes).unwrap();
        cache.source_done(buffer);
        cache.sink_done(buffer);
        (buffer, cache.binding(buffer).unwrap())
    };
    let (large, binding) = receive(4096, 4096);
    for address in 0..1000 {
        let (small, _) = receive(1 << 20 | address << 6, 64);
        assert!((4..8).contains(&small));
    }
    assert!(cache.attach_send(4096, Reuse::Use(binding)).unwrap().hit);
    assert_eq!((large, cache.counters().evictions), (8, 996));
}

/// The firmware's instructions for a forwarded packet are the sum of its actions' (forwarding paper section 2.2).
#[test]
fn instructions_of_a_forwarded_packet() {
    let costs = Costs {
        host: 50,
        net_send: 40,
        net_receive: 30,
        send_packet: 60,
        receive_packet: 90,
        cache: 35,
        interrupt: 20,
        punt: 5,
    };
    let config = Config { costs, ..config(cached(20), Policy::StoreForward) };
    let (world, _) = forward(PLAIN, config);
    assert_eq!(world.machines[1].nic.counters().instructions, 300 * u64::from(costs.forwarding()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// C11, G8: whatever the host changes, keeps or forgets, and however long it takes, what leaves is what it has.
    #[test]
    fn no_stale_byte_is_ever_sent(
        service in prop::collection::vec(0u64..300, 1..6), changes in prop::collection::vec(any::<bool>(), 1..7),
        gives_back: bool, binds: bool, pieces in 1usize..4, small in 0usize..3,
        policy in prop_oneof![
            Just(Policy::StoreForward), Just(Policy::Functional), (1usize..300).prop_map(Policy::adaptive),
            (1usize..300).prop_map(|size| Policy::Static { send: size, receive: size }),
        ],
    ) {
        let agent = Agent { service, changes, gives_back, binds, packets: 120, pieces };
        let entries = 4 + small + 2 * RING;
        let shape = CacheConfig { entries, send_segment: 4, small_segment: small, small_bytes: PAGE };
        let (world, _) = forward(agent, config(Buffers::Cache(shape), policy));
        let cache = world.machines[1].nic.cache();
        for buffer in 0..cache.buffers() as u16 {
            prop_assert_eq!(cache.pending(buffer), 0);
        }
    }
}
