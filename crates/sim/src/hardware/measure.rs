//! The papers' measurements, as they describe them, on any set-up.

use super::board::Board;
use super::catalogue::Machine;
use super::fabric::Link;
use super::programs::{Ping, Role, Sink, Source};
use super::world::{AdapterSetup, HostSetup, Pricing, World};
use crate::queue::Picos;

/// A host with one adapter.
#[derive(Clone, Debug)]
pub struct Station {
    /// Its processor and bus.
    pub machine: Machine,
    /// Its adapter.
    pub board: Board,
    /// How transfers are priced on it.
    pub pricing: Pricing,
    /// Settings of its firmware.
    pub nic: nic::Config,
}

impl Station {
    /// A machine whose constants stand for its adapter's processor and memory.
    ///
    /// The error says that the machine's preset has none.
    pub fn constants(machine: Machine, board: Board, nic: nic::Config) -> Result<Station, String> {
        let constants =
            machine.constants.ok_or("this machine's preset has no table [constants]")?;
        Ok(Station { machine, board, pricing: Pricing::Constants(constants), nic })
    }

    /// A machine whose adapter executes what `costs` says on what memory its engines leave.
    pub fn contention(
        machine: Machine,
        board: Board,
        costs: nic::Costs,
        nic: nic::Config,
    ) -> Station {
        Station { machine, board, pricing: Pricing::Contention, nic: nic::Config { costs, ..nic } }
    }

    /// As a host of a world.
    pub fn host(&self) -> HostSetup {
        self.host_with(1)
    }

    /// The same with several adapters of the kind.
    pub fn host_with(&self, adapters: usize) -> HostSetup {
        let adapter =
            AdapterSetup { board: self.board, pricing: self.pricing, nic: self.nic.clone() };
        HostSetup {
            machine: self.machine,
            page: self.nic.buffer_bytes,
            adapters: vec![adapter; adapters],
        }
    }
}

/// A run that stands still before it is done is a fault of the model.
fn finish(world: &mut World<Role>, done: impl Fn(&[Role]) -> bool) {
    assert!(
        world.run_until(done),
        "seed {}: the world stood still at {} s",
        world.seed(),
        world.now()
    );
}

/// Half the mean of 50 round trips of messages of `bytes`, in microseconds (HPDC'97 section 4).
pub fn one_way(station: &Station, link: Link, bytes: usize) -> f64 {
    round_trip([station, station], link, bytes, bytes, Picos::ZERO) / 2.0
}

/// The mean of 50 round trips between two stations: a request of `asked` bytes, `service`, an answer of
/// `answered` bytes; microseconds.
pub fn round_trip(
    stations: [&Station; 2],
    link: Link,
    asked: usize,
    answered: usize,
    service: Picos,
) -> f64 {
    let echo = Role::Echo { bytes: answered, service };
    match played(stations, link, [Ping::role(1, asked, 50), echo]).program(0) {
        Role::Ping(ping) => ping.round_trip(),
        _ => unreachable!("host 0 plays ping"),
    }
}

/// `rounds` round trips of messages of `bytes` between two stations of a kind.
pub fn ping_pong(station: &Station, link: Link, bytes: usize, rounds: u64) -> World<Role> {
    let echo = Role::Echo { bytes, service: Picos::ZERO };
    played([station, station], link, [Ping::role(1, bytes, rounds), echo])
}

fn played(stations: [&Station; 2], link: Link, roles: [Role; 2]) -> World<Role> {
    let hosts = stations.map(Station::host);
    let mut world = World::new(1, link, &hosts, roles.into()).expect("a pair of stations");
    finish(&mut world, |roles| matches!(&roles[0], Role::Ping(ping) if ping.made == ping.rounds));
    world
}

/// Messages that pass before a stream is measured, and that are measured.
pub(super) const FILL: u64 = 200;
pub(super) const MEASURED: u64 = 1_000;

/// Payload bytes a second of a stream of messages of `bytes` from one station to another.
pub fn stream(from: &Station, to: &Station, link: Link, bytes: usize) -> f64 {
    let roles = vec![Source::stream(1, bytes, FILL + MEASURED), Sink::after(FILL)];
    let mut world =
        World::new(1, link, &[from.host(), to.host()], roles).expect("a pair of stations");
    finish(&mut world, |roles| matches!(&roles[1], Role::Sink(sink) if sink.messages == MEASURED));
    sink(&world, 1).rate()
}

/// A burst of `count` messages of `bytes` between two stations whose adapters keep logs (HotI'99 Figure 3).
pub fn burst(station: &Station, link: Link, bytes: usize, count: u64) -> World<Role> {
    let roles = vec![Source::stream(1, bytes, count), Sink::after(0)];
    let hosts = [station.host(), station.host()];
    let mut world = World::new(1, link, &hosts, roles).expect("a pair of stations");
    finish(&mut world, |roles| matches!(&roles[1], Role::Sink(sink) if sink.messages == count));
    world
}

/// Counts of a host that only receives.
pub fn sink(world: &World<Role>, host: usize) -> &Sink {
    match world.program(host) {
        Role::Sink(sink) => sink,
        _ => panic!("host {host} is no sink"),
    }
}
