//! A striped file while an I/O server dies and comes back, in the simulator: the seed decides when, and the same
//! seed is the same run.
//!
//! `cargo run --release --example fault -- [SEED]`

use files::conformance::client::pattern;
use files::conformance::{Asks, Client};
use sim::experiment::{Experiment, Faults};
use sim::random::Random;
use sim::run::Members;
use sim::storage::Crash;
use sim::{cluster, machine::MachineConfig, network::LinkModel, queue::Picos};
use sim::{trace::Trace, world::Happening, world::World};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use wire::FileId;

const FILE_BYTES: usize = 3 << 20;

/// Writes a file over all servers, has it synced, reads it back.
async fn work(client: Client<Asks>) -> bool {
    let bytes = pattern(1, 0, FILE_BYTES);
    client.put(FileId::ROOT, b"file", &bytes).await.expect("a dead server is waited for");
    client.get(FileId::ROOT, b"file").await.expect("it is there") == bytes
}

fn run(seed: u64) -> (bool, u64, String) {
    let experiment = Experiment { faults: Faults::NONE, ..Experiment::default() };
    let Members { manager, servers, mounts, .. } = Members::of(&experiment);
    let roles = cluster::roles(&experiment, 0);
    let mut world = World::new(seed, LinkModel::default(), Trace::default());
    let disks = |id, disks| MachineConfig { disks, ..MachineConfig::new(id) };
    world.add(disks(manager, 1), roles.manager.clone());
    servers.iter().for_each(|id| world.add(disks(*id, 2), roles.server.clone()));
    world.add(disks(mounts[0], 0), roles.mount.clone());
    let nodes: Vec<_> = world.nodes();
    nodes.into_iter().for_each(|node| world.start(node));

    // One server dies while the file is written or read, and is back half a second later.
    let mut random = Random::new(seed, "fault");
    let victim = servers[random.below(servers.len() as u64) as usize];
    let death = Picos::micros(random.within(1_000, 6_000));
    world.set_timer(death, 0);
    world.set_timer(death + Picos::millis(500), 1);

    let asks = Asks::default();
    let frames = world.frames(mounts[0]).expect("it runs");
    let mut work = pin!(work(Client::new(asks.clone(), frames)));
    loop {
        if let Poll::Ready(same) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let text = format!("server {} dies at {death} s, done at {} s", victim.0, world.now());
            return (same, world.fingerprint(), text);
        }
        while let Some(request) = asks.take_request() {
            world.ask(mounts[0], request).expect("the mount runs and has room");
        }
        match world.advance(Picos::seconds(120)) {
            Happening::Done(_, done) => asks.done(done),
            Happening::Timer(0) => world.crash(victim, Crash::Kill),
            Happening::Timer(_) => world.start(victim),
            Happening::Pause => panic!("every operation ends"),
        }
    }
}

fn main() {
    let seed = std::env::args().nth(1).map_or(7, |text| text.parse().expect("a seed is a number"));
    let (same, fingerprint, text) = run(seed);
    println!("seed {seed}: {text}, {FILE_BYTES} bytes, fingerprint {fingerprint:x}");
    assert!(same, "byte for byte");
    assert_eq!(run(seed).1, fingerprint, "a seed is a run");
}
