//! Cost of the firmware itself: one adapter that sends to itself over engines that take no time.

use nic::*;
use rig::Counting;
use std::time::Instant;
use wire::NodeId;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE: usize = 4096;
const RING: usize = 64;

fn adapter(buffers: Buffers) -> Nic {
    let config =
        Config { policy: Policy::adaptive(512), buffers, mtu: 4 * PAGE, ..Config::new(PAGE) };
    let mut nic = Nic::new(config).unwrap();
    (0..RING).for_each(|slot| {
        nic.arm(&frames(slot)).unwrap();
    });
    nic
}

fn frames(slot: usize) -> [HostFrame; 2] {
    let frame = |at: usize| HostFrame { address: ((2 * slot + at) * PAGE) as u64, bytes: PAGE };
    [frame(0), frame(1)]
}

/// Sends `count` messages of two pages, and every other one that is received once more. Commands carried out.
fn run(nic: &mut Nic, count: usize) -> u64 {
    let send = Send { source: NodeId(1), destination: NodeId(1), ..Send::default() };
    let (mut now, mut commands) = (0, 0);
    for message in 0..count {
        let frames = frames(RING + message % RING);
        nic.post(send, &frames.map(Piece::from)).unwrap();
        while let Some(command) = nic.step(now, &|_| 0) {
            commands += 1;
            match command.action {
                Action::Start(engine) => {
                    let &Transfer { kind, packet, .. } = nic.active(engine).unwrap();
                    if engine == Engine::NetSend && kind == Kind::Control {
                        nic.arriving(packet);
                    }
                    now += 1;
                    nic.finished(now, engine);
                }
                Action::Deliver { slot, packet, landed, .. } => {
                    assert_eq!(landed, packet.total);
                    forward(nic, send, slot);
                    nic.arm(&self::frames(slot)).unwrap();
                }
                _ => (),
            }
        }
    }
    commands
}

fn forward(nic: &mut Nic, send: Send, slot: usize) {
    if slot.is_multiple_of(2) {
        let landed = [nic.landed(slot)[0], nic.landed(slot)[1]];
        nic.post(send, &landed.map(|stretch| stretch.unmodified())).unwrap();
    }
}

#[test]
fn nothing_is_allocated_after_the_first_turn_of_the_rings() {
    let cache = CacheConfig { entries: 136, send_segment: 4, small_segment: 4, small_bytes: 64 };
    for buffers in [Buffers::Pools { send: 8, receive: 8 }, Buffers::Cache(cache)] {
        let mut nic = adapter(buffers);
        run(&mut nic, 3 * RING);
        let before = Counting::in_thread();
        run(&mut nic, 1_000);
        assert_eq!(Counting::in_thread() - before, 0, "{buffers:?}");
        let hits = nic.cache().counters().hits;
        assert_eq!(hits > 500, buffers == Buffers::Cache(cache), "{hits} hits");
    }
}

/// Commands each second; TRAPEZE_BENCH asks for more of them. Asserted nowhere.
#[test]
fn bench_commands() {
    let count = if std::env::var_os("TRAPEZE_BENCH").is_some() { 1_000_000 } else { 10_000 };
    let mut nic = adapter(Buffers::Pools { send: 8, receive: 8 });
    let begun = Instant::now();
    let commands = run(&mut nic, count);
    let rate = commands as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("{commands} commands, {rate:.1} M each second, {:?}", nic.counters());
    assert!(commands > 10 * count as u64);
}
