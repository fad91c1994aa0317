//! Random damage to the disk of a server that stands still: whatever a read returns was acknowledged last, or it is an
//! error. Never zeros, never older bytes, never another file's, and never a crash.
//!
//! The last second before an unclean stop is left out, as in DESIGN 9: damage to the very last record looks like the
//! torn end of a log. So the server is idle for some time before it is killed.

use crate::common::decaying::{Decaying, Dice};
use crate::common::disk::Disk;
use crate::common::*;
use node::decay::Decay;
use std::collections::BTreeMap;
use stripe::{FileRef, Health};
use wire::Errno;

const BLOCK: u64 = 4096;
const FILES: u64 = 6;
const FILE_BYTES: usize = 200_000;
/// Turns of the world in two seconds.
const IDLE_TURNS: usize = 10_000;

fn cases() -> u64 {
    if std::env::var_os("TRAPEZE_SOAK").is_some() { 10_000 } else { 200 }
}

/// Acknowledged content of every file.
type Model = BTreeMap<u64, Vec<u8>>;

/// A server with files, all of it committed, some in place and some in the log only, and its disk as it was at some
/// time before.
struct Case {
    world: World,
    dice: Dice,
    model: Model,
    earlier: Disk,
}

impl Case {
    fn new(seed: u64) -> Case {
        let world = World::with(1, 1, seed + 1, small);
        let earlier = world.servers[0].disks[0].clone();
        let mut case = Case { world, dice: Dice(seed), model: Model::new(), earlier };
        let steps = 6 + case.dice.below(25);
        let snapshot = case.dice.below(steps);
        for step in 0..steps {
            case.step(seed * 1000 + step);
            if step == snapshot {
                case.earlier = case.world.servers[0].disks[0].clone();
            }
        }
        case.world.turns(IDLE_TURNS);
        case.world.servers[0].kill();
        // It has not looked at its disk yet: what it finds is what the damage leaves.
        case
    }

    fn file(&self, number: u64) -> FileRef {
        self.world.single(number)
    }

    fn step(&mut self, salt: u64) {
        let number = 1 + self.dice.below(FILES);
        match self.dice.below(10) {
            0 => self.remove(number),
            1 => self.world.flush(0),
            2 => self.world.forget_memory(),
            _ => self.write(number, salt),
        }
    }

    fn write(&mut self, number: u64, salt: u64) {
        let offset = self.dice.below(FILE_BYTES as u64 / 2) as usize;
        let bytes = pattern(salt, 1 + self.dice.below(FILE_BYTES as u64 / 2) as usize);
        let file = self.file(number);
        // A file that was removed is refused for a while: its number is not used again.
        if self.world.write(&file, offset as u64, &bytes).is_err() {
            return;
        }
        self.world.commit(&file).unwrap();
        let model = self.model.entry(number).or_default();
        let length = model.len().max(offset + bytes.len());
        model.resize(length, 0);
        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    fn remove(&mut self, number: u64) {
        let (client, file) = (self.world.client.clone(), self.file(number));
        self.world.run(async move { client.remove(&file).await }).unwrap();
        self.model.remove(&number);
    }

    fn disk(&mut self) -> &mut Disk {
        &mut self.world.servers[0].disks[0]
    }

    /// Does one damage; what it was.
    fn damage(&mut self) -> String {
        let decay = Decay::OF_FILES[self.dice.below(Decay::OF_FILES.len() as u64) as usize];
        let disk = &mut self.world.servers[0].disks[0];
        let mut medium = Decaying { disk, earlier: &self.earlier };
        let said = decay.strike(&mut medium, &mut |end| self.dice.below(end));
        format!("{decay:?}: {}", said.unwrap_or_else(|| "nothing to decay".into()))
    }

    /// Reads everything; what is wrong with it.
    fn wrong(&mut self) -> Option<String> {
        (1..=FILES).find_map(|number| {
            let file = self.file(number);
            let model = self.model.get(&number).cloned().unwrap_or_default();
            let mut expected = model.clone();
            expected.resize(FILE_BYTES + BLOCK as usize, 0);
            let blocks = (0..expected.len()).step_by(BLOCK as usize);
            blocks.into_iter().find_map(|at| {
                let end = (at + BLOCK as usize).min(expected.len());
                match self.world.read(&file, at as u64, end - at) {
                    Ok(read) if read != expected[at..end] => {
                        Some(format!("file {number} of {} bytes: other bytes at {at}", model.len()))
                    }
                    // A length that is too short is zeros to a reader.
                    _ => None,
                }
            })
        })
    }

    fn refusal(&self) -> Option<String> {
        match &self.world.servers[0].server.as_ref().unwrap().disks()[0] {
            Health::Refused(_, text) => Some(text.clone()),
            _ => None,
        }
    }
}

/// Plays a seed; what went wrong, and what the damage was.
fn play(seed: u64) -> Result<String, String> {
    let mut case = Case::new(seed);
    let what = case.damage();
    case.disk().sync_all();
    // Twice: what the first start and the reads do may not make anything worse.
    for round in 0..2 {
        case.world.servers[0].kill();
        case.world.turns(200);
        if let Some(wrong) = case.wrong() {
            let refused = case.refusal().unwrap_or_default();
            return Err(format!("seed {seed}, round {round}: {what}: {wrong} {refused}"));
        }
    }
    Ok(what)
}

#[test]
fn no_damage_to_a_disk_is_silent() {
    let wrong: Vec<String> = (0..cases()).filter_map(|seed| play(seed).err()).collect();
    let (count, shown) = (wrong.len(), wrong.iter().take(10).cloned().collect::<Vec<_>>());
    assert!(wrong.is_empty(), "{count} of {} damages were silent:\n{}", cases(), shown.join("\n"));
}

/// Without damage everything is there: the model and the reads agree.
#[test]
fn without_damage_every_byte_is_right() {
    for seed in 0..cases() / 10 {
        let mut case = Case::new(seed);
        case.world.turns(200);
        assert_eq!(case.refusal(), None, "seed {seed}");
        for (number, model) in case.model.clone() {
            let file = case.file(number);
            let read: Result<Vec<u8>, Errno> = case.world.read(&file, 0, model.len());
            assert!(read == Ok(model), "seed {seed}, file {number}");
        }
    }
}
