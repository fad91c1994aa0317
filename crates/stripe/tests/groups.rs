//! Two copies: groups of disks of several servers, which die, come back and are filled.

mod damage;
mod hand_over;

use crate::common::*;
use std::collections::BTreeMap;
use std::time::Duration;
use stripe::{FileRef, Verifiers};
use wire::Errno;

#[test]
fn what_is_written_to_a_group_is_read_from_either_replica() {
    let mut world = World::grouped(3, 1);
    let file = world.replicated(5);
    let bytes = pattern(1, 700_001);
    world.write(&file, 0, &bytes).unwrap();
    assert!(world.read(&file, 0, bytes.len()).unwrap() == bytes);
    world.commit(&file).unwrap();
    for server in 0..3 {
        world.servers[server].is_paused = true;
        assert!(world.read(&file, 0, bytes.len()).unwrap() == bytes, "without {server}");
        world.servers[server].is_paused = false;
        world.until_whole();
        assert!(world.read(&file, 0, bytes.len()).unwrap() == bytes, "with {server}");
    }
}

/// The primary counts from 1 in its next incarnation, far below what the replica has executed for the one before.
#[test]
fn a_replica_that_ran_on_is_filled_by_a_primary_that_counts_anew() {
    let mut world = World::grouped(3, 1);
    let file = world.replicated(5);
    let bytes = |seed| pattern(seed, 300_001);
    (1..30).for_each(|seed| {
        world.write(&file, 0, &bytes(seed)).unwrap();
    });
    world.commit(&file).unwrap();
    let (_, group) = world.groups()[0].clone();
    let [primary, stale] = [0, 1].map(|at| usize::from(group.replicas()[at].server.0) - 1);
    world.servers[stale].is_paused = true;
    // The first of them is on its way there, and goes on without it; it is not sent the second one.
    retried(|| world.write(&file, 0, &bytes(30)));
    retried(|| world.write(&file, 0, &bytes(31)));
    retried(|| world.commit(&file));
    world.servers[primary].crash();
    retried(|| world.read(&file, 0, 300_001));
    world.servers[stale].is_paused = false;
    world.until_whole();
    world.servers[primary].is_paused = true;
    assert!(retried(|| world.read(&file, 0, 300_001)) == bytes(31));
}

/// A checkpoint has taken them out of the log, and has not brought them into place.
#[test]
fn objects_on_their_way_from_the_log_into_place_are_filled() {
    let mut world = World::grouped(3, 1);
    let files: Vec<FileRef> = (50..90).map(|file| world.replicated(file)).collect();
    world.servers[2].is_paused = true;
    for (file, seed) in files.iter().zip(1..) {
        retried(|| world.write(file, 0, &pattern(seed, PIECE * 9)));
        retried(|| world.commit(file));
    }
    world.slow_objects = Some(Duration::from_millis(800));
    for server in [0, 1] {
        let service = world.servers[server].server.clone().unwrap();
        world.servers[server].node.cx().spawn("test", async move {
            let _ = service.flush().await;
        });
    }
    world.servers[2].is_paused = false;
    world.until_whole();
    world.slow_objects = None;
    for server in [0, 1] {
        world.servers[server].is_paused = true;
        for (file, seed) in files.iter().zip(1..) {
            let found = retried(|| world.read(file, 0, PIECE * 9));
            assert!(found == pattern(seed, PIECE * 9), "{:?} without {server}", file.file);
        }
        world.servers[server].is_paused = false;
        world.until_whole();
    }
}

/// The primary is cut off while a write is on its way to the other replica, which takes over, with the same verifier:
/// it has all that was answered. The one before hears of that when it is heard again.
#[test]
fn a_write_that_the_next_primary_does_not_have_is_not_answered() {
    let mut world = World::grouped(3, 1);
    let file = world.replicated(5);
    let bytes = |seed| pattern(seed, 50_000);
    world.write(&file, 0, &bytes(1)).unwrap();
    world.commit(&file).unwrap();
    let (id, group) = world.groups()[0].clone();
    let [before, next] = [0, 1].map(|at| group.replicas()[at].server);
    let manager = world.manager.as_ref().expect("a manager").node.cx().id();
    world.cuts = vec![[before, next], [before, manager], [world.cx().id(), manager]];
    let frames = data(&world.cx(), &bytes(2));
    let client = world.client.clone();
    let written =
        world.start(async move { client.write(&file, 0, frames, stripe::Write::Unstable).await });
    let leads = |world: &World| {
        let groups = world.groups();
        groups.iter().find(|(other, _)| *other == id).map(|(_, group)| group.primary().server)
    };
    while leads(&world) != Some(next) {
        world.turn();
    }
    assert!(written.borrow().is_none(), "the other replica has not answered");
    world.cuts.clear();
    world.until(|| written.borrow().is_some());
    let mut written = written.take().expect("done");
    // As a client does: what was lost is written once more.
    let committed = retried(|| world.commit(&file));
    if written
        .is_ok_and(|written| !written.columns().all(|column| written.same(column, &committed)))
    {
        written = Err(Errno::EAGAIN);
    }
    if written.is_err() {
        retried(|| world.write(&file, 0, &bytes(2)));
    }
    assert!(retried(|| world.read(&file, 0, 50_000)) == bytes(2));
}

/// Bytes of a piece that the program below writes.
const PIECE: usize = 12_000;
const PIECES: u64 = 24;
const FILES: u64 = 3;

/// A program that writes pieces of files, commits, truncates and removes, and knows what it must find.
struct Program {
    random: u64,
    files: Vec<FileRef>,
    /// The seed of each piece's bytes; those that are not there read as zeros.
    wanted: BTreeMap<(u64, u64), u64>,
    /// Pieces that were not committed since, with the write's verifiers.
    unstable: BTreeMap<(u64, u64), Verifiers>,
    next: u64,
}

impl Program {
    fn new(world: &World, seed: u64) -> Program {
        let files = (0..FILES).map(|file| world.replicated(50 + file)).collect();
        let (wanted, unstable) = (BTreeMap::new(), BTreeMap::new());
        Program { random: seed * 77 + 1, files, wanted, unstable, next: 1 }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.random >> 33) % count
    }

    fn step(&mut self, world: &mut World) {
        let file = self.below(FILES);
        match self.below(16) {
            0..9 => {
                let piece = self.below(PIECES);
                self.write(world, file, piece);
            }
            9..12 => self.commit(world, file),
            12..15 => {
                let piece = self.below(PIECES);
                self.check(world, file, piece);
            }
            _ => {
                let piece = self.below(PIECES);
                self.truncate(world, file, piece);
            }
        }
    }

    fn write(&mut self, world: &mut World, file: u64, piece: u64) {
        self.next += 1;
        let bytes = pattern(self.next, PIECE);
        let at = piece * PIECE as u64;
        let written = retried(|| world.write(&self.files[file as usize], at, &bytes));
        self.wanted.insert((file, piece), self.next);
        self.unstable.insert((file, piece), written);
    }

    /// As a client does: what a server has forgotten is sent once more, and committed then.
    fn commit(&mut self, world: &mut World, file: u64) {
        let layout = self.files[file as usize];
        for _ in 0..40 {
            let now = retried(|| world.commit(&layout));
            let lost: Vec<(u64, Verifiers)> = self
                .unstable
                .range((file, 0)..(file + 1, 0))
                .filter(|(_, written)| written.columns().any(|column| !written.same(column, &now)))
                .map(|((_, piece), written)| (*piece, *written))
                .collect();
            if lost.is_empty() {
                self.unstable.retain(|(of, _), _| *of != file);
                return;
            }
            for (piece, earlier) in lost {
                let bytes = pattern(self.wanted[&(file, piece)], PIECE);
                let at = piece * PIECE as u64;
                let written = retried(|| world.rewrite(&layout, at, &bytes, &earlier));
                self.unstable.insert((file, piece), written);
            }
        }
        panic!("never committed");
    }

    fn truncate(&mut self, world: &mut World, file: u64, piece: u64) {
        let layout = &mut self.files[file as usize];
        layout.truncations += 1;
        let layout = *layout;
        retried(|| world.truncate(&layout, piece * PIECE as u64));
        self.wanted.retain(|(of, at), _| *of != file || *at < piece);
        self.unstable.retain(|(of, at), _| *of != file || *at < piece);
    }

    fn check(&mut self, world: &mut World, file: u64, piece: u64) {
        let layout = self.files[file as usize];
        let found = retried(|| world.read(&layout, piece * PIECE as u64, PIECE));
        let wanted = self.wanted.get(&(file, piece));
        let is_lost = self.unstable.contains_key(&(file, piece));
        let expected = wanted.map_or(vec![0; PIECE], |seed| pattern(*seed, PIECE));
        // What was not committed may be gone after all of its replicas died.
        assert!(is_lost || found == expected, "file {file} piece {piece}: {wanted:?}");
    }

    fn check_all(&mut self, world: &mut World) {
        (0..FILES).for_each(|file| self.commit(world, file));
        (0..FILES).for_each(|file| (0..PIECES).for_each(|piece| self.check(world, file, piece)));
    }
}

/// Repeats what ends with an error that says nothing of the outcome.
fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> T {
    let mut why = None;
    for _ in 0..20 {
        match call() {
            Ok(done) => return done,
            Err(errno @ (Errno::ETIMEDOUT | Errno::EAGAIN | Errno::EHOSTDOWN | Errno::EREMOTE)) => {
                why = Some(errno)
            }
            Err(errno) => panic!("{errno}"),
        }
    }
    panic!("it never ended: {why:?}");
}

/// One server at a time dies, loses power or stands still, in the middle of everything.
fn one_at_a_time(seed: u64) {
    let mut world = World::grouped(3, seed);
    let mut program = Program::new(&world, seed);
    for _ in 0..6 {
        (0..program.below(12)).for_each(|_| program.step(&mut world));
        let victim = program.below(3) as usize;
        match program.below(3) {
            0 => world.servers[victim].kill(),
            1 => world.servers[victim].crash(),
            _ => world.servers[victim].is_paused = true,
        }
        (0..2 + program.below(12)).for_each(|_| program.step(&mut world));
        world.servers[victim].is_paused = false;
        (0..program.below(6)).for_each(|_| program.step(&mut world));
        world.until_whole();
    }
    program.check_all(&mut world);
    // Each replica has all.
    for server in 0..3 {
        world.servers[server].is_paused = true;
        program.check_all(&mut world);
        world.servers[server].is_paused = false;
        world.until_whole();
    }
}

#[test]
fn no_single_failure_loses_what_was_acknowledged() {
    let seeds = if std::env::var_os("TRAPEZE_SOAK").is_some() { 500 } else { 6 };
    (1..=seeds).for_each(one_at_a_time);
}

#[test]
fn all_lose_power_and_what_was_committed_is_there() {
    for seed in 1..=4 {
        let mut world = World::grouped(3, seed);
        let mut program = Program::new(&world, seed);
        for _ in 0..4 {
            (0..20).for_each(|_| program.step(&mut world));
            world.servers.iter_mut().for_each(|server| server.crash());
            (0..8).for_each(|_| program.step(&mut world));
            world.until_whole();
        }
        program.check_all(&mut world);
    }
}
