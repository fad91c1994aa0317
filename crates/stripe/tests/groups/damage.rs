//! Damage to one copy: whatever it is, the right bytes are read, the copy is repaired, and it is told.

use super::{Program, retried};
use crate::common::decaying::{Decaying, Dice};
use crate::common::disk::Disk;
use crate::common::*;
use node::decay::Decay;
use node::rings::DiskFile;
use std::time::Duration;
use stripe::object::{HEADER_BYTES, data_offset, sums_offset};
use stripe::{FileRef, Health, ServerConfig};
use wire::{Errno, FileId, Home, Layout, NodeId};

/// Turns of the world in two seconds: damage to what was written in the last one looks like the torn end of a log.
const IDLE_TURNS: usize = 10_000;

fn scrubbing(server: NodeId) -> ServerConfig {
    ServerConfig { scrub: Some(Duration::from_secs(1)), ..small(server) }
}

/// A world with files, and one server's disk to be damaged.
struct Case {
    world: World,
    program: Program,
    dice: Dice,
    victim: usize,
    earlier: Disk,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut world = World::grouped_as(3, seed, scrubbing);
        let (mut dice, mut program) = (Dice(seed), Program::new(&world, seed));
        let victim = dice.below(3) as usize;
        let steps = 12 + dice.below(20);
        let snapshot = dice.below(steps);
        let mut earlier = Disk::default();
        for step in 0..steps {
            program.step(&mut world);
            if dice.below(8) == 0 {
                world.flush(victim);
            }
            if step == snapshot {
                earlier = world.servers[victim].disks[0].clone();
            }
        }
        (0..super::FILES).for_each(|file| program.commit(&mut world, file));
        world.turns(IDLE_TURNS);
        Case { world, program, dice, victim, earlier }
    }

    /// Does one damage, to a server that stands still or that runs; what it was.
    fn damage(&mut self) -> String {
        let runs = self.dice.below(3) == 0;
        let all = Decay::OF_FILES.into_iter().chain([Decay::AllOlder]);
        let decays: Vec<Decay> = all.collect();
        let decay = decays[self.dice.below(decays.len() as u64) as usize];
        if !runs {
            self.world.servers[self.victim].kill();
        }
        let disk = &mut self.world.servers[self.victim].disks[0];
        let mut medium = Decaying { disk, earlier: &self.earlier };
        let dice = &mut self.dice;
        let said = decay.strike(&mut medium, &mut |end| dice.below(end));
        self.world.servers[self.victim].disks[0].sync_all();
        format!("{decay:?}, runs: {runs}: {}", said.unwrap_or_else(|| "nothing to decay".into()))
    }

    fn is_refused(&self) -> bool {
        let server = self.world.servers[self.victim].server.as_ref().unwrap();
        matches!(server.disks()[0], Health::Refused(..))
    }

    /// Reads everything, from both copies and from the damaged one alone, which has been looked at as a whole.
    fn check(&mut self) {
        self.program.check_all(&mut self.world);
        self.world.turns(2 * IDLE_TURNS);
        if self.is_refused() {
            return;
        }
        self.world.until_whole();
        for other in (0..3).filter(|other| *other != self.victim) {
            self.world.servers[other].is_paused = true;
            self.program.check_all(&mut self.world);
            self.world.servers[other].is_paused = false;
            self.world.until_whole();
        }
    }
}

#[test]
fn damage_to_one_copy_is_read_past_and_repaired() {
    let cases = if std::env::var_os("TRAPEZE_SOAK").is_some() { 1_000 } else { 12 };
    for seed in 1..=cases {
        let mut case = Case::new(seed);
        let what = case.damage();
        eprintln!("seed {seed}: server {}: {what}", case.victim + 1);
        case.check();
    }
}

const BYTES: usize = 300_000;

/// A file in the first group, in place at both of its replicas; the places of these, the primary first.
fn in_first_group(world: &mut World) -> (FileRef, Vec<usize>) {
    let (id, group) = world.groups()[0].clone();
    let layout = Layout::new(1, 32 * 1024, &[Home::from(id)]).unwrap();
    let file = FileRef { file: FileId(9), layout, truncations: 0 };
    retried(|| world.write(&file, 0, &pattern(1, BYTES)));
    retried(|| world.commit(&file));
    let places: Vec<usize> = group.in_sync().map(|it| usize::from(it.server.0) - 1).collect();
    places.iter().for_each(|server| world.flush(*server));
    (file, places)
}

fn repaired(world: &World, server: usize) -> u64 {
    world.servers[server].server.as_ref().unwrap().counters().repaired_blocks
}

/// An object's file is as it was, but for what of its header counts writes.
fn is_as_before(world: &World, server: usize, before: &[u8]) -> bool {
    let now = world.servers[server].disks[0].bytes(World::object(9, 0));
    let from = sums_offset(0) as usize;
    now.is_some_and(|now| now.len() == before.len() && now[from..] == before[from..])
}

/// What is done to an object's file.
type Damage = fn(&mut Disk, DiskFile);

const DAMAGES: [(&str, Damage); 6] = [
    ("a bit of a block", |disk, file| disk.bytes_mut(file)[data_offset(3) as usize + 77] ^= 4),
    ("blocks of several windows", |disk, file| {
        (0..70).for_each(|block| disk.bytes_mut(file)[data_offset(block) as usize] ^= 1);
    }),
    ("a bit of a checksum", |disk, file| disk.bytes_mut(file)[sums_offset(0) as usize + 12] ^= 4),
    ("all checksums", |disk, file| {
        disk.bytes_mut(file)[sums_offset(0) as usize..][..4096].fill(0x5a);
    }),
    ("its header", |disk, file| disk.bytes_mut(file)[..HEADER_BYTES as usize].fill(0x5a)),
    ("its file is gone", |disk, file| disk.lose(file)),
];

/// The damage is there when the server starts, or is met while it runs; a reader meets it, or the scrub alone.
#[test]
fn each_kind_of_damage_to_an_object_is_repaired_at_the_primary_and_at_the_other() {
    for (what, damage) in DAMAGES {
        for (replica, killed, read) in
            [(0, false, true), (0, true, false), (1, false, false), (1, true, true)]
        {
            let mut world = World::grouped_as(3, 1, scrubbing);
            let (file, places) = in_first_group(&mut world);
            let (victim, other) = (places[replica], places[1 - replica]);
            let before =
                world.servers[victim].disks[0].bytes(World::object(9, 0)).unwrap().to_vec();
            if killed {
                world.servers[victim].kill();
            }
            damage(&mut world.servers[victim].disks[0], World::object(9, 0));
            let said = format!("{what}, replica {replica}, killed: {killed}, read: {read}");
            if read {
                let found = retried(|| world.read(&file, 0, BYTES));
                assert!(found == pattern(1, BYTES), "{said}");
            }
            world.turns(2 * IDLE_TURNS);
            world.until_whole();
            world.flush(victim);
            let problems = world.servers[victim].server.as_ref().unwrap().problems();
            assert!(is_as_before(&world, victim, &before), "{said}: {problems:?}");
            assert!(repaired(&world, victim) > 0 || !problems.is_empty() || killed, "{said}");
            world.servers[other].is_paused = true;
            let found = retried(|| world.read(&file, 0, BYTES));
            assert!(found == pattern(1, BYTES), "{said}: alone");
        }
    }
}

/// The log of a server that was killed has records of the damaged object: what they were written over is not there.
#[test]
fn a_damaged_object_with_records_in_the_log_is_repaired() {
    for (what, damage) in DAMAGES {
        for (replica, read) in [(0, true), (0, false), (1, false), (1, true)] {
            let said = format!("{what}, replica {replica}, read: {read}");
            let mut world = World::grouped_as(3, 1, scrubbing);
            let (file, places) = in_first_group(&mut world);
            let (victim, other) = (places[replica], places[1 - replica]);
            let (mut bytes, part) = (pattern(1, BYTES), pattern(3, 9_000));
            retried(|| world.write(&file, 40_000, &part));
            retried(|| world.commit(&file));
            bytes[40_000..49_000].copy_from_slice(&part);
            world.servers[victim].kill();
            damage(&mut world.servers[victim].disks[0], World::object(9, 0));
            if read {
                assert!(retried(|| world.read(&file, 0, BYTES)) == bytes, "{said}");
            }
            for _ in 0..2 {
                world.turns(2 * IDLE_TURNS);
                world.until_whole();
                world.servers[other].is_paused = true;
                assert!(retried(|| world.read(&file, 0, BYTES)) == bytes, "{said}: alone");
                world.servers[other].is_paused = false;
                world.until_whole();
                world.flush(victim);
                world.servers[victim].kill();
            }
        }
    }
}

/// Damage that is found when the fill has passed the object, and the copy is not in sync yet: the manager, which admits
/// it, is away meanwhile, from different turns of the fill on.
#[test]
fn damage_that_is_found_while_a_copy_is_filled_is_repaired_by_another_fill() {
    for (what, damage) in DAMAGES {
        for turns in (0..2_000).step_by(400) {
            let said = format!("{what}, away after {turns} turns");
            let mut world = World::grouped_as(3, 1, scrubbing);
            let (file, places) = in_first_group(&mut world);
            let [whole, other] = places[..] else { panic!("two copies") };
            world.servers[other].is_paused = true;
            retried(|| world.write(&file, 0, &pattern(2, BYTES)));
            retried(|| world.commit(&file));
            world.servers[other].is_paused = false;
            world.turns(turns);
            world.manager.as_mut().unwrap().is_away = true;
            world.turns(IDLE_TURNS);
            world.flush(other);
            damage(&mut world.servers[other].disks[0], World::object(9, 0));
            world.turns(2 * IDLE_TURNS);
            world.manager.as_mut().unwrap().is_away = false;
            world.until_whole();
            world.turns(2 * IDLE_TURNS);
            world.until_whole();
            let damaged = world.servers[other].server.as_ref().unwrap().damaged();
            assert!(damaged.is_empty(), "{said}: {damaged:?}");
            world.servers[whole].is_paused = true;
            assert!(retried(|| world.read(&file, 0, BYTES)) == pattern(2, BYTES), "{said}: alone");
        }
    }
}

/// A copy that is not whole has older bytes of what the whole one has lost.
#[test]
fn older_bytes_do_not_pass_for_what_the_only_whole_copy_has_lost() {
    for (what, damage) in DAMAGES {
        let mut world = World::grouped(3, 1);
        let (file, places) = in_first_group(&mut world);
        let [whole, other] = places[..] else { panic!("two copies") };
        world.servers[other].is_paused = true;
        let newer = pattern(2, BYTES);
        retried(|| world.write(&file, 0, &newer));
        retried(|| world.commit(&file));
        world.flush(whole);
        world.servers[whole].kill();
        world.turns(IDLE_TURNS); // nothing of it is in the log any more
        damage(&mut world.servers[whole].disks[0], World::object(9, 0));
        world.servers[other].kill(); // what it was sent meanwhile is gone
        world.turns(3 * IDLE_TURNS);
        let lacks = |world: &World| world.groups()[0].1.lacks() > 0;
        assert!(lacks(&world), "{what}");
        for block in (0..BYTES / 4096 * 4096).step_by(4096) {
            // EIO, or what was written last.
            if let Ok(found) = world.read(&file, block as u64, 4096) {
                assert!(found == newer[block..block + 4096], "{what}: block {block}");
            }
        }
        let problems = world.servers[whole].server.as_ref().unwrap().problems().join("\n");
        assert!(problems.contains("object"), "{what}: {problems}");
        // With the damaged file gone, nothing keeps the copies apart.
        let client = world.client.clone();
        retried(|| {
            let client = client.clone();
            world.run(async move { client.remove(&file).await })
        });
        world.until_whole();
    }
}

/// Both copies of what is damaged in the only whole one are errors then; all else has two.
#[test]
fn a_second_copy_is_made_past_what_the_only_whole_one_cannot_read() {
    for (what, damage) in DAMAGES {
        let mut world = World::grouped(3, 1);
        let (file, places) = in_first_group(&mut world);
        let [whole, other] = places[..] else { panic!("two copies") };
        let next = FileRef { file: FileId(10), ..file };
        let newer = pattern(2, BYTES);
        world.servers[other].is_paused = true;
        for file in [&file, &next] {
            retried(|| world.write(file, 0, &newer));
            retried(|| world.commit(file));
        }
        world.flush(whole);
        world.servers[whole].kill();
        world.turns(IDLE_TURNS);
        damage(&mut world.servers[whole].disks[0], World::object(9, 0));
        world.servers[other].kill();
        let mut lost = Vec::new();
        for alone in [other, whole] {
            for _ in 0..3 {
                world.until_whole();
                world.turns(IDLE_TURNS);
            }
            world.servers[whole + other - alone].is_paused = true;
            assert!(retried(|| world.read(&next, 0, BYTES)) == newer, "{what}: server {alone}");
            lost.push(unreadable_blocks(&mut world, &file, &newer));
            world.servers[whole + other - alone].is_paused = false;
            world.flush(alone);
            world.servers[alone].kill();
        }
        assert_eq!(lost[0], lost[1], "{what}");
        match what {
            "a bit of a block" | "a bit of a checksum" => assert_eq!(lost[0], [3], "{what}"),
            _ => assert!(!lost[0].is_empty(), "{what}"),
        }
    }
}

/// Blocks that are errors; all others have these bytes.
fn unreadable_blocks(world: &mut World, file: &FileRef, bytes: &[u8]) -> Vec<usize> {
    let mut lost = Vec::new();
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        match world.read(file, block as u64 * 4096, bytes.len()) {
            Ok(found) => assert!(found == bytes, "block {block}"),
            Err(errno) => {
                assert_eq!(errno, Errno::EIO, "block {block}");
                lost.push(block);
            }
        }
    }
    lost
}
