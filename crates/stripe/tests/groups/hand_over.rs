//! Primaries hand over: a server is emptied of replicas, and gets its share again.

use super::{Program, retried};
use crate::common::manager::MANAGER;
use crate::common::*;
use members::Empty;

/// From now on groups are moved off a server, or back; those that it leads are handed over first.
fn ask_to_empty(world: &mut World, server: usize, emptied: bool) {
    let (cx, id) = (world.cx(), world.servers[server].node.cx().id());
    let asked = Empty { id, disks: u32::MAX, emptied };
    world.run(async move { members::empty(&cx, MANAGER, asked).await }).unwrap();
}

/// Groups with a replica on a server.
fn groups_on(world: &World, server: usize) -> usize {
    let id = world.servers[server].node.cx().id();
    let is_on = |group: &members::groups::Group| group.replicas().iter().any(|it| it.server == id);
    world.groups().iter().filter(|(_, group)| is_on(group)).count()
}

fn until_empty(world: &mut World, server: usize) {
    for _ in 0..600_000 {
        if groups_on(world, server) == 0 {
            return world.until_whole();
        }
        world.turn();
    }
    panic!("not empty after two minutes: {:?}", world.groups());
}

/// The replica that comes has executed the steps of its fill, whose numbers the next primary has seen none of.
#[test]
fn what_the_next_primary_orders_is_executed_by_a_replica_that_the_one_before_has_filled() {
    let mut world = World::grouped(3, 1);
    let file = world.replicated(5);
    let bytes = |seed| pattern(seed, 300_001);
    world.write(&file, 0, &bytes(1)).unwrap();
    world.commit(&file).unwrap();
    ask_to_empty(&mut world, 0, true);
    until_empty(&mut world, 0);
    retried(|| world.write(&file, 0, &bytes(2)));
    retried(|| world.commit(&file));
    for server in [1, 2] {
        world.servers[server].is_paused = true;
        assert!(retried(|| world.read(&file, 0, 300_001)) == bytes(2), "without {server}");
        world.servers[server].is_paused = false;
        world.until_whole();
    }
}

/// Primaries change while a program runs, and servers die in the midst of it.
fn handed_over(seed: u64) {
    let mut world = World::grouped(3, seed);
    let mut program = Program::new(&world, seed);
    for _ in 0..4 {
        let emptied = program.below(3) as usize;
        ask_to_empty(&mut world, emptied, true);
        (0..program.below(24)).for_each(|_| program.step(&mut world));
        let victim = program.below(3) as usize;
        match program.below(4) {
            0 => world.servers[victim].kill(),
            1 => world.servers[victim].is_paused = true,
            _ => {}
        }
        (0..2 + program.below(12)).for_each(|_| program.step(&mut world));
        world.servers[victim].is_paused = false;
        world.until_whole();
        if program.below(2) == 0 {
            until_empty(&mut world, emptied);
            (0..program.below(12)).for_each(|_| program.step(&mut world));
        }
        ask_to_empty(&mut world, emptied, false);
        (0..program.below(12)).for_each(|_| program.step(&mut world));
    }
    world.until_whole();
    program.check_all(&mut world);
    for server in 0..3 {
        world.servers[server].is_paused = true;
        program.check_all(&mut world);
        world.servers[server].is_paused = false;
        world.until_whole();
    }
}

#[test]
fn nothing_is_lost_while_primaries_hand_over_and_servers_die() {
    let seeds = if std::env::var_os("TRAPEZE_SOAK").is_some() { 300 } else { 4 };
    (1..=seeds).for_each(handed_over);
}
