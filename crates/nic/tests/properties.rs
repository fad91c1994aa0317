//! Invariants under any policy and load: no byte is lost, moved twice or overtaken.

use crate::world::*;
use nic::*;
use proptest::prelude::*;

const PAGE: usize = 4096;

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::StoreForward),
        Just(Policy::Functional),
        Just(Policy::Tuned),
        (1usize..5000, 1usize..5000).prop_map(|(send, receive)| Policy::Static { send, receive }),
        (1usize..5000, 1usize..5000).prop_map(|(send, receive)| Policy::Adaptive { send, receive }),
        (200usize..5000).prop_map(|size| Policy::FixedAll { size }),
        (300usize..5000).prop_map(|size| Policy::Fragment { size }),
    ]
}

fn buffers() -> impl Strategy<Value = Buffers> {
    let cache = CacheConfig { entries: 24, send_segment: 4, small_segment: 2, small_bytes: 600 };
    prop_oneof![
        (1usize..9, 1usize..9).prop_map(|(send, receive)| Buffers::Pools { send, receive }),
        Just(Buffers::Cache(cache)),
    ]
}

/// A message: lengths of its pieces.
fn messages() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let piece = prop_oneof![3 => 1usize..=PAGE, 2 => Just(PAGE), 1 => PAGE..3 * PAGE];
    prop::collection::vec(prop::collection::vec(piece, 0..5), 1..12)
}

fn config(policy: Policy, buffers: Buffers, control_to_host: bool) -> Config {
    Config {
        policy,
        buffers,
        control_to_host,
        send_ring: 8,
        receive_ring: 8,
        mtu: 64 * PAGE,
        log: 100_000,
        ..Config::new(PAGE)
    }
}

fn byte(seed: usize, at: usize) -> u8 {
    (seed.wrapping_mul(31) ^ at.wrapping_mul(7) ^ at >> 8) as u8
}

/// Room in host memory for one message, and where receive entry `slot` begins.
const AREA: usize = 16 * PAGE;

/// Both machines send the same messages to each other; every byte is compared on delivery. Returns the world.
fn exchange(rates: Rates, config: Config, messages: &[Vec<usize>]) -> World {
    let mut world = World::new(rates, &[config.clone(), config], (messages.len() + 8) * AREA);
    let base = messages.len() * AREA;
    let entry = |slot: usize| HostFrame { address: (base + slot * AREA) as u64, bytes: AREA };
    for machine in 0..2 {
        for (index, message) in messages.iter().enumerate() {
            let bytes: usize = message.iter().sum();
            for at in 0..bytes {
                world.machines[machine].host[index * AREA + at] = byte(index + machine * 77, at);
            }
        }
        (0..8).for_each(|slot| {
            world.nic(machine).arm(&[entry(slot)]).unwrap();
        });
        world.kick(machine);
    }
    let mut posted = [0; 2];
    let mut post = |world: &mut World, machine: usize| {
        while posted[machine] < messages.len() && world.nic(machine).send_room() > 0 {
            let index = posted[machine];
            let mut address = (index * AREA) as u64;
            let mut pieces = Vec::new();
            for &bytes in &messages[index] {
                pieces.push(Piece::from(HostFrame { address, bytes }));
                address += bytes as u64;
            }
            world.nic(machine).post(to(machine as u16, 1 - machine as u16), &pieces).unwrap();
            posted[machine] += 1;
        }
    };
    post(&mut world, 0);
    post(&mut world, 1);
    let (mut delivered, mut left) = ([0; 2], [0; 2]);
    world.run(&mut |world, machine, told| match told {
        Told::Action(Action::Deliver { slot, packet, landed, .. }) => {
            let index = delivered[machine];
            assert_eq!(packet.number, index as u64, "in the order of sending");
            assert_eq!(landed, messages[index].iter().sum::<usize>());
            let seen = &world.machines[machine].host[base + slot * AREA..][..landed];
            let seed = index + (1 - machine) * 77;
            assert!(seen.iter().enumerate().all(|(at, b)| *b == byte(seed, at)), "message {index}");
            delivered[machine] += 1;
            assert_eq!(world.nic(machine).arm(&[entry(slot)]), Ok(slot));
        }
        Told::Action(Action::Complete { number, .. }) => {
            assert_eq!(number, left[machine], "in the order of sending");
            left[machine] += 1;
            post(world, machine);
        }
        _ => (),
    });
    assert_eq!(delivered, [messages.len(); 2], "every message is delivered");
    assert_eq!(left, [messages.len() as u64; 2]);
    world
}

/// The log of each machine: every engine's payload bytes are the payloads', no transfer crosses a frame's page.
fn check_log(world: &World, messages: &[Vec<usize>]) {
    let total: usize = messages.iter().flatten().sum();
    for machine in &world.machines {
        let log = machine.nic.log();
        assert_eq!(log.lost(), 0);
        let payloads = || log.records().iter().filter(|r| r.transfer.kind == Kind::Payload);
        for (engine, ways) in [(Engine::HostDma, 2), (Engine::NetSend, 1), (Engine::NetReceive, 1)]
        {
            let moved = payloads().filter(|r| r.transfer.engine == engine);
            assert_eq!(moved.map(|r| r.transfer.bytes).sum::<usize>(), total * ways, "{engine:?}");
        }
        for record in payloads() {
            let Transfer { buffer, bytes, .. } = record.transfer;
            assert!(buffer.unwrap().1 + bytes <= PAGE, "a transfer stays in its buffer");
            assert!(bytes > 0);
        }
        for buffer in 0..machine.nic.cache().buffers() {
            assert_eq!(
                machine.nic.cache().pending(buffer as u16),
                0,
                "nothing is to come at the end"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn i6_every_byte_arrives_once_and_none_is_overtaken(
        policy in policies(), buffers in buffers(), control: bool, messages in messages(),
        speeds in (10f64..500.0, 10f64..500.0, 10f64..500.0), overhead in 0f64..10.0,
    ) {
        let rates = Rates::new(overhead, speeds.0, speeds.1, speeds.2, control);
        let world = exchange(rates, config(policy, buffers, control), &messages);
        check_log(&world, &messages);
    }

    #[test]
    fn i6_eager_pulses_are_at_most_the_payload_by_the_threshold(
        minimum in 1usize..9000, bytes in 1usize..8192, speeds in (10f64..500.0, 10f64..500.0, 10f64..500.0),
    ) {
        let rates = Rates::new(1.0, speeds.0, speeds.1, speeds.2, true);
        let policy = Policy::adaptive(minimum);
        let config = Config { buffer_bytes: 8192, ..config(policy, Buffers::Pools { send: 8, receive: 8 }, true) };
        let world = exchange(rates, config, &[vec![bytes]]);
        let records = world.machines[0].nic.log().records();
        let payload = records.iter().filter(|r| r.transfer.kind == Kind::Payload);
        let sinks = |engine, direction| payload.clone().filter(move |r| {
            (r.transfer.engine, r.transfer.direction) == (engine, direction)
        }).count();
        prop_assert!(sinks(Engine::NetSend, Direction::ToNet) <= bytes.div_ceil(minimum));
        prop_assert!(sinks(Engine::HostDma, Direction::ToHost) <= bytes.div_ceil(minimum));
    }
}

#[test]
fn i3_one_bus_transfer_for_each_frame() {
    let rates = Rates::new(1.0, 132.0, 132.0, 132.0, true);
    let config = config(Policy::StoreForward, Buffers::Pools { send: 8, receive: 8 }, true);
    let world = exchange(rates, config, &[vec![PAGE, 100, PAGE - 100, 1]]);
    let records = world.machines[0].nic.log().records();
    let on_bus = |direction| {
        let of = move |t: &Transfer| {
            (t.engine, t.direction, t.kind) == (Engine::HostDma, direction, Kind::Payload)
        };
        records.iter().map(|r| r.transfer).filter(of).map(|t| t.bytes).collect::<Vec<_>>()
    };
    assert_eq!(on_bus(Direction::ToNet), [PAGE, 100, PAGE - 100, 1], "as the sender's pieces are");
    assert_eq!(on_bus(Direction::ToHost), [PAGE, PAGE, 1], "as the receiver's pages are");
}

#[test]
fn i7_both_directions_take_turns_on_the_bus() {
    let rates = Rates::new(1.0, 100.0, 100.0, 400.0, true);
    let buffers = Buffers::Pools { send: 8, receive: 8 };
    let config = Config { control_to_host: false, ..config(Policy::StoreForward, buffers, false) };
    let messages = vec![vec![PAGE]; 40];
    let world = exchange(rates, config, &messages);
    let records = world.machines[0].nic.log().records();
    let on_bus = records.iter().filter(|r| r.transfer.engine == Engine::HostDma);
    let ways: Vec<_> = on_bus.map(|r| r.transfer.direction).collect();
    let middle = &ways[10..70];
    assert!(middle.windows(2).all(|pair| pair[0] != pair[1]), "{middle:?}");
}

/// Packets that wait for a receive entry are held on the link, or dropped: counted either way.
#[test]
fn a_host_that_lags() {
    for (lag, delivered) in [(Lag::Backpressure, 10), (Lag::Drop, 2)] {
        let rates = Rates::new(1.0, 132.0, 132.0, 132.0, true);
        let buffers = Buffers::Pools { send: 8, receive: 8 };
        let config = Config { lag, ..config(Policy::adaptive(512), buffers, true) };
        let mut world = World::new(rates, &[config.clone(), config], 64 * PAGE);
        (0..2).for_each(|slot| {
            world.nic(1).arm(&[page(slot, PAGE)]).unwrap();
        });
        for index in 0..8 {
            world.nic(0).post(to(0, 1), &[page(index, PAGE).into()]).unwrap();
        }
        let mut more = 2;
        let mut got = Vec::new();
        world.kick(0);
        world.timer(1, 5_000_000_000, 0); // 5 ms later the host has time again
        world.run(&mut |world, _, told| match told {
            Told::Action(Action::Deliver { packet, slot, .. }) => {
                got.push(packet.number);
                if world.now > 5_000_000_000 {
                    world.nic(1).arm(&[page(slot, PAGE)]).unwrap();
                }
            }
            Told::Action(Action::Complete { .. }) if more > 0 => {
                more -= 1;
                world.nic(0).post(to(0, 1), &[page(more, PAGE).into()]).unwrap();
            }
            Told::Timer(_) => {
                (2..4).for_each(|slot| {
                    world.nic(1).arm(&[page(slot, PAGE)]).unwrap();
                });
            }
            _ => (),
        });
        let counters = world.machines[1].nic.counters();
        assert_eq!(got.len(), delivered, "{lag:?}");
        assert!(got.is_sorted());
        let expected = if lag == Lag::Drop { (8, 0) } else { (0, 1) };
        assert_eq!((counters.dropped, counters.held.min(1)), expected, "{lag:?}");
    }
}

fn one_message(world: &mut World, send: Send, pieces: &[Piece]) -> (Landing, usize) {
    world.nic(0).post(send, pieces).unwrap();
    world.kick(0);
    let mut found = None;
    world.run(&mut |_, machine, told| {
        if let (1, Told::Action(Action::Deliver { landing, landed, .. })) = (machine, told) {
            found = Some((landing, landed));
        }
    });
    found.expect("the control message is delivered in any case")
}

#[test]
fn i4_tokens_and_payloads_without_a_frame() {
    let rates = Rates::new(1.0, 132.0, 132.0, 132.0, true);
    let config = config(Policy::adaptive(512), Buffers::Pools { send: 8, receive: 8 }, true);
    let mut world = World::new(rates, &[config.clone(), config], 16 * PAGE);
    world.machines[0].host[..PAGE].fill(7);
    let piece = [Piece::from(page(0, PAGE))];
    for frames in
        [&[][..], &[HostFrame { address: 0, bytes: 100 }], &[page(1, PAGE)], &[], &[], &[], &[]]
    {
        world.nic(1).arm(frames).unwrap();
    }
    assert_eq!(one_message(&mut world, to(0, 1), &piece), (Landing::Nowhere, 0), "no frame");
    assert_eq!(
        one_message(&mut world, to(0, 1), &piece),
        (Landing::Nowhere, 0),
        "too short a frame"
    );
    assert_eq!(world.nic(1).counters().payloads_discarded, 2);
    assert_eq!(one_message(&mut world, to(0, 1), &piece), (Landing::Entry, PAGE));
    let token = world.nic(1).incoming().arm(&mut vec![page(5, PAGE)]).unwrap();
    let with = |token| Send { token, ..to(0, 1) };
    let wrong = wire::Token { key: token.key ^ 1, ..token };
    assert_eq!(one_message(&mut world, with(wrong), &piece), (Landing::Nowhere, 0), "wrong key");
    assert!(world.machines[1].host[5 * PAGE..6 * PAGE].iter().all(|b| *b == 0));
    assert_eq!(one_message(&mut world, with(token), &piece), (Landing::Incoming, PAGE));
    assert!(world.machines[1].host[5 * PAGE..6 * PAGE].iter().all(|b| *b == 7));
    assert_eq!(one_message(&mut world, with(token), &piece), (Landing::Nowhere, 0), "one-shot");
    let token = world.nic(1).incoming().arm(&mut vec![page(6, PAGE)]).unwrap();
    world.nic(1).incoming().cancel(token, &mut Vec::new());
    assert_eq!(one_message(&mut world, with(token), &piece), (Landing::Nowhere, 0), "cancelled");
    assert!(world.machines[1].host[6 * PAGE..7 * PAGE].iter().all(|b| *b == 0));
}

/// Suppressed interrupts: one for a burst, another when the host has drained the ring too early.
#[test]
fn i23_interrupts_are_suppressed_until_the_ring_is_drained() {
    for (interrupts, raised) in
        [(Interrupts::Never, 0), (Interrupts::Each, 8), (Interrupts::Suppressed, 1)]
    {
        let rates = Rates::new(1.0, 132.0, 132.0, 132.0, true);
        let buffers = Buffers::Pools { send: 8, receive: 8 };
        let config = Config { interrupts, ..config(Policy::StoreForward, buffers, true) };
        let mut world = World::new(rates, &[config.clone(), config], 64 * PAGE);
        for index in 0..8 {
            world.nic(1).arm(&[page(index, PAGE)]).unwrap();
            world.nic(0).post(to(0, 1), &[page(index, PAGE).into()]).unwrap();
        }
        let mut seen = 0;
        world.kick(0);
        world.run(&mut |_, _, told| {
            seen += u64::from(matches!(told, Told::Action(Action::Interrupt)))
        });
        assert_eq!((seen, world.nic(1).counters().interrupts), (raised, raised), "{interrupts:?}");
        world.nic(1).drained(5);
        let missed = u64::from(interrupts == Interrupts::Suppressed);
        assert_eq!(world.nic(1).counters().interrupts, raised + missed, "three came since");
    }
}

/// HPDC'97 section 3: without overlap in one packet the functional structure is as slow as store-and-forward for one
/// message, and as fast for a stream; fragments cost bandwidth.
#[test]
fn the_baselines_are_what_the_papers_say() {
    let rates = Rates::new(3.0, 107.5, 68.8, 107.5, true);
    let buffers = Buffers::Pools { send: 8, receive: 8 };
    let time = |policy, count: usize| {
        let config = Config { buffer_bytes: 8192, ..config(policy, buffers, true) };
        let mut world = World::new(rates, &[config.clone(), config], 64 * 8192);
        let mut posted = 0;
        (0..8).for_each(|slot| {
            world.nic(1).arm(&[page(slot, 8192)]).unwrap();
        });
        while posted < count.min(8) {
            world.nic(0).post(to(0, 1), &[page(posted, 8192).into()]).unwrap();
            posted += 1;
        }
        world.kick(0);
        let mut end = 0;
        world.run(&mut |world, _, told| match told {
            Told::Action(Action::Deliver { slot, .. }) => {
                end = world.now;
                world.nic(1).arm(&[page(slot, 8192)]).unwrap();
            }
            Told::Action(Action::Complete { slot, .. }) if posted < count => {
                world.nic(0).post(to(0, 1), &[page(slot, 8192).into()]).unwrap();
                posted += 1;
            }
            _ => (),
        });
        end as f64 / US
    };
    let (stored, eager) = (time(Policy::StoreForward, 1), time(Policy::adaptive(512), 1));
    assert_eq!(time(Policy::Functional, 1), stored);
    assert!(eager < 0.7 * stored, "{eager} us, {stored} us");
    let (stored, functional) = (time(Policy::StoreForward, 100), time(Policy::Functional, 100));
    assert!(functional < 1.05 * stored, "successive packets overlap: {functional} us, {stored} us");
    let fragments = time(Policy::Fragment { size: 1024 }, 100);
    assert!(fragments > 1.3 * time(Policy::adaptive(512), 100), "{fragments} us");
}

/// Two machines send to a third, whose host now and then has no entry for what comes. Messages that were delivered of
/// each sender, in order.
fn converge(config: Config, sizes: &[Vec<usize>], pause: u64) -> (World, [Vec<u64>; 2]) {
    let rates = Rates::new(1.0, 132.0, 90.0, 160.0, true);
    let configs = [config.clone(), config.clone(), config];
    let mut world = World::new(rates, &configs, 16 * AREA);
    let area = |slot: usize| HostFrame { address: (slot * AREA) as u64, bytes: AREA };
    let mut next = 0;
    let mut arm = move |world: &mut World| {
        while world.nic(2).arm(&[area(next)]).is_ok() {
            next = (next + 1) % 8;
        }
    };
    arm(&mut world);
    let mut posted = [0; 2];
    let mut post = |world: &mut World, machine: usize| {
        while posted[machine] < sizes.len() && world.nic(machine).send_room() > 0 {
            let slot = posted[machine] % 8;
            let bytes = sizes[posted[machine]].iter().sum();
            let seed = posted[machine] + 100 * machine;
            let at = slot * AREA;
            for (offset, there) in
                world.machines[machine].host[at..at + bytes].iter_mut().enumerate()
            {
                *there = byte(seed, offset);
            }
            let piece = HostFrame { address: at as u64, bytes };
            world.nic(machine).post(to(machine as u16, 2), &[piece.into()]).unwrap();
            posted[machine] += 1;
        }
    };
    (0..2).for_each(|machine| {
        post(&mut world, machine);
        world.kick(machine);
    });
    let mut got = [Vec::new(), Vec::new()];
    world.run(&mut |world, machine, told| match (machine, told) {
        (2, Told::Action(Action::Deliver { slot, packet, landed, .. })) => {
            let from = usize::from(packet.source.0);
            let seed = packet.number as usize + 100 * from;
            let seen = &world.machines[2].host[slot * AREA..][..landed];
            assert!(seen.iter().enumerate().all(|(at, b)| *b == byte(seed, at)), "{packet:?}");
            assert_eq!(landed, sizes[packet.number as usize].iter().sum::<usize>());
            got[from].push(packet.number);
            world.timer(2, pause, 0);
        }
        (2, Told::Timer(_)) => arm(world),
        (from, Told::Action(Action::Complete { .. })) => post(world, from),
        _ => (),
    });
    (world, got)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Packets of two senders, and fragments of their messages, come in any mixture.
    #[test]
    fn two_senders_to_one(
        policy in policies(), buffers in buffers(), messages in messages(), drops: bool, pause in 0u64..300_000_000,
    ) {
        let lag = if drops { Lag::Drop } else { Lag::Backpressure };
        let config = Config { lag, ..config(policy, buffers, true) };
        let (world, got) = converge(config, &messages, pause);
        let counters = world.machines[2].nic.counters();
        let delivered = got[0].len() + got[1].len();
        prop_assert_eq!(delivered + counters.dropped as usize, 2 * messages.len());
        prop_assert!(drops || delivered == 2 * messages.len());
        for numbers in &got {
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", numbers);
        }
    }
}

/// I4: a token that is cancelled while its payload comes delivers a control message and no payload.
#[test]
fn i4_a_token_is_cancelled_while_its_payload_comes() {
    let rates = Rates::new(1.0, 132.0, 132.0, 132.0, true);
    let config = config(Policy::adaptive(512), Buffers::Pools { send: 8, receive: 8 }, true);
    let mut world = World::new(rates, &[config.clone(), config], 16 * PAGE);
    world.nic(1).arm(&[]).unwrap();
    let token = world.nic(1).incoming().arm(&mut vec![page(5, PAGE)]).unwrap();
    world.nic(0).post(Send { token, ..to(0, 1) }, &[page(0, PAGE).into()]).unwrap();
    world.kick(0);
    world.timer(1, 20 * US as u64, 0);
    let mut found = None;
    world.run(&mut |world, machine, told| match (machine, told) {
        (1, Told::Timer(_)) => {
            let cancelled = world.nic(1).incoming().cancel(token, &mut Vec::new());
            assert_eq!(cancelled, endpoint::incoming::Cancelled::Filling);
        }
        (1, Told::Action(Action::Deliver { landing, landed, .. })) => {
            found = Some((landing, landed))
        }
        _ => (),
    });
    assert_eq!(found, Some((Landing::Incoming, 0)));
    assert_eq!(world.nic(1).incoming().in_use(), 0);
}
