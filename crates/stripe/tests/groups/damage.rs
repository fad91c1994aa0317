//! Damage to one copy: whatever it is, the right bytes are read, the copy is repaired, and it is told.

use super::Program;
use crate::common::decaying::{Decaying, Dice};
use crate::common::disk::Disk;
use crate::common::*;
use node::decay::Decay;
use std::time::Duration;
use stripe::{Health, ServerConfig};
use wire::NodeId;

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
