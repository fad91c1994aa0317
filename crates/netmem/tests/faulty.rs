//! The service over a link that loses, repeats and reorders, and under nodes that die: no wrong byte, no version that
//! goes back, nothing lost that was acknowledged as durable.

use crate::world::*;
use netmem::service::GetError;
use netmem::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NODES: u16 = 5;
const PAGES: u64 = 12;

#[derive(Clone, Debug)]
enum Op {
    Put {
        node: u16,
        page: u64,
        flushed: bool,
    },
    Get {
        node: u16,
        page: u64,
    },
    Forget {
        node: u16,
        page: u64,
    },
    /// Another node is down, and comes back later in its next incarnation.
    Kill(u16),
    Revive,
    /// A node lends so many frames, and all others what they can.
    Lend {
        node: u16,
        frames: usize,
    },
    Pass(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let node = || 1..=NODES;
    prop_oneof![
        6 => (node(), 0..PAGES, prop::bool::weighted(0.7))
            .prop_map(|(node, page, flushed)| Op::Put { node, page, flushed }),
        8 => (node(), 0..PAGES).prop_map(|(node, page)| Op::Get { node, page }),
        2 => (node(), 0..PAGES).prop_map(|(node, page)| Op::Forget { node, page }),
        1 => node().prop_map(Op::Kill),
        1 => Just(Op::Revive),
        1 => (node(), 1usize..12).prop_map(|(node, frames)| Op::Lend { node, frames }),
        2 => (1usize..400).prop_map(Op::Pass),
    ]
}

/// Half of the pages are one node's own, half are shared.
fn page(node: u16, number: u64) -> PageId {
    if number.is_multiple_of(2) { private(node, number) } else { shared(number) }
}

/// State of a page as seen from outside.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Written last.
    written: u64,
    /// Acknowledged as durable last.
    durable: u64,
}

struct Run {
    world: World,
    known: BTreeMap<PageId, Known>,
}

impl Run {
    fn new(seed: u64, loss_percent: u64) -> Run {
        let mut world = World::new(NODES, |_| small(32));
        let mut random = seed;
        world.net.fate = Box::new(move |_| {
            random = wire::mix(random);
            let copies = match random % 100 {
                below if below < loss_percent => 0,
                below if below < 2 * loss_percent => 2,
                _ => 1,
            };
            let late =
                if (random >> 16) % 100 < loss_percent { (random >> 32) as usize % 20 } else { 0 };
            (copies, late)
        });
        Run { world, known: BTreeMap::new() }
    }

    fn is_up(&self, node: u16) -> bool {
        !self.world.down.contains(&node)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Put { node, page: number, flushed } if self.is_up(node) => {
                self.put(node, page(node, number), flushed)
            }
            Op::Get { node, page: number } if self.is_up(node) => {
                self.get(node, page(node, number))
            }
            Op::Forget { node, page: number } if self.is_up(node) => {
                self.world.service(node).hint(page(node, number), service::Hint::DontNeed);
            }
            Op::Kill(node) if self.world.down.is_empty() => self.kill(node),
            Op::Revive => self.revive(),
            Op::Lend { node, frames } => {
                let all = self.world.services.iter();
                all.for_each(|service| service.set_share(service.config().bytes));
                self.world.service(node).set_share(frames * PAGE);
            }
            Op::Pass(turns) => self.world.net.run(turns),
            _ => (),
        }
        assert!(self.world.services.iter().all(Service::is_consistent));
    }

    fn put(&mut self, node: u16, id: PageId, flushed: bool) {
        let known = self.known.entry(id).or_default();
        // numbers are given out once, whatever becomes of the page
        known.written += 1;
        let version = known.written;
        if self.world.put(node, id, version, Class::Mirrored).is_err() {
            return;
        }
        if flushed && self.world.flush(node, id).is_ok() {
            self.known.get_mut(&id).unwrap().durable = version;
        }
    }

    /// Reads what was acknowledged as durable, or something newer; never older, and never lost.
    fn get(&mut self, node: u16, id: PageId) {
        let known = self.known.get(&id).copied().unwrap_or_default();
        match self.world.get(node, wanted(id, known.durable)) {
            Ok(got) => {
                assert_eq!(&got.data[..], &content(id, got.version.0)[..], "{id} at node {node}");
                assert!(got.version.0 >= known.durable && got.version.0 <= known.written);
            }
            Err(GetError::Unknown) => assert_eq!(known.durable, 0, "{id} {known:?}"),
            // of what was never acknowledged
            Err(GetError::Lost(version)) => {
                assert!(version.0 > known.durable, "{id} {known:?} {version:?}")
            }
            Err(error) => panic!("{id} at node {node}: {error}"),
        }
    }

    /// One node dies at a time, and the mirrors are there again before the next one does.
    fn kill(&mut self, node: u16) {
        self.repaired();
        self.world.kill(node);
        // a private space goes with its owner
        self.known.retain(|id, _| id.space.owner() != Some(wire::NodeId(node)));
        self.world.next_view();
        self.repaired();
    }

    fn repaired(&mut self) {
        self.world.settle();
        let up: Vec<Service> =
            (1..=NODES).filter(|n| self.is_up(*n)).map(|n| self.world.service(n)).collect();
        self.world
            .net
            .until(|| up.iter().all(|service| service.counters().durable_deficit_pages == 0));
    }

    fn revive(&mut self) {
        if let Some(node) = self.world.down.first().copied() {
            self.world.revive(node);
            self.world.next_view();
            self.world.settle();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost_and_no_byte_is_wrong(
        seed: u64,
        loss in 0u64..12,
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut run = Run::new(seed, loss);
        ops.into_iter().for_each(|op| run.step(op));
        // all that is durable is still there
        for (id, known) in run.known.clone() {
            let reader = id.space.owner().map_or(1, |owner| owner.0);
            if known.durable > 0 && run.is_up(reader) {
                run.get(reader, id);
            }
        }
    }
}

/// Remains of an earlier incarnation's private space have no owner: the next incarnation does not hear of them.
#[test]
fn a_node_that_comes_back_begins_anew() {
    let mut run = Run::new(1, 0);
    run.step(Op::Put { node: 4, page: 2, flushed: true });
    run.step(Op::Kill(4));
    run.step(Op::Revive);
    let id = private(4, 2);
    assert_eq!(run.world.get(4, wanted(id, 0)).unwrap_err(), GetError::Unknown);
    assert!(run.world.where_is(id).is_empty());
    run.step(Op::Put { node: 4, page: 2, flushed: true });
    assert_eq!(run.world.mirrors(id).len(), 2);
}

/// A writer whose own mirror made way for its newer version: the other mirror's node dies, and that version becomes
/// durable instead.
#[test]
fn a_mirror_that_made_way_is_replaced_by_a_newer_version() {
    let mut run = Run::new(2_896_419_841_532_449_960, 0);
    run.step(Op::Put { node: 2, page: 0, flushed: true });
    run.step(Op::Put { node: 2, page: 5, flushed: false });
    run.step(Op::Put { node: 1, page: 5, flushed: false });
    run.step(Op::Kill(5));
    run.step(Op::Get { node: 3, page: 5 });
}

/// Nodes that come and go while pages are written: a registration and its acknowledgement lie in different views.
#[test]
fn a_page_written_across_a_change_of_view_is_found_after_it() {
    for delay in 0..12 {
        let mut world = World::new(5, |_| small(64));
        let (flusher, id) = (world.service(1), shared(delay));
        world.put_shared(1, id, 1, Class::Mirrored).unwrap();
        let flushed = world.start(1, async move { flusher.flush(id).await });
        world.net.run(delay as usize);
        world.kill(5);
        world.next_view();
        world.net.until(|| flushed.borrow().is_some());
        assert_eq!(flushed.take(), Some(Ok(())));
        world.seconds(3);
        assert_eq!(world.mirrors(id).len(), 2, "delay {delay}");
        world.kill(1);
        world.next_view();
        assert_eq!(world.read(2, id, 1).0, late(1), "delay {delay}");
    }
}

/// A directory that believes in copies that are gone sends the requester round, and not for ever.
#[test]
fn requests_that_go_astray_come_to_an_end() {
    let disk = Disk::default();
    let share = disk.clone();
    let mut world = World::new(6, |_| small(64));
    world.restart_all(move |cx| {
        let mut config = small(64);
        config.backing = Some(share.at(cx));
        config
    });
    let homes: Vec<u16> = (0..640).map(|index| world.primary(shared(index))).collect();
    let id = shared(homes.iter().position(|home| *home == 6).unwrap() as u64);
    disk.pages.borrow_mut().insert(id, 1);
    for reader in [1, 2, 3, 4] {
        world.read(reader, id, 1);
        world.net.run(20);
    }
    // no word of it reaches the directory: every packet is lost for a while
    world.net.fate = Box::new(|_| (0, 0));
    for reader in [1, 2, 3, 4] {
        world.forget(reader, id);
    }
    world.seconds(2);
    world.net.fate = Box::new(|_| (1, 0));
    assert_eq!(world.read(5, id, 1).0, 1);
    let misses = world.service(5).counters().misses;
    assert!(misses.not_here >= 1, "{misses:?}");
    world.net.run(50);
    assert_eq!(world.read(6, id, 1).1, service::Source::Peer, "what is known now is right");
}
