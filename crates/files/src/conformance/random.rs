//! Random operations on one file against a model in memory, as fsx does it, with shrinking.
//!
//! Steps are made from a seed, so a failure is a seed and a number of steps; [`shrink`] makes a short list of it.

use super::client::{Ask, Client, Opened, READ_WRITE, pattern};
use std::fmt;
use wire::FileId;

/// One operation. Offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes that tell the step's number.
    Write(u64, usize),
    /// Reads and compares.
    Read(u64, usize),
    /// Changes the length.
    Truncate(u64),
    /// Writes zeros over a part, within the length.
    Punch(u64, u64),
    /// fsync.
    Sync,
    /// Closes one of several descriptors.
    Flush,
    /// Closes and opens the file again.
    Reopen,
    /// Compares the length that stat tells.
    Stat,
}

/// Where the file and the model differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The step that saw it, counted from 0.
    pub step: usize,
    /// The expected and the seen value, in a sentence.
    pub text: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.text)
    }
}

/// `count` steps from `seed`, on a file of at most `size_max` bytes.
pub fn steps(seed: u64, count: usize, size_max: u64) -> Vec<Step> {
    let mut random = Random(seed);
    (0..count).map(|_| random.step(size_max)).collect()
}

struct Random(u64);

impl Random {
    /// splitmix64
    fn next(&mut self) -> u64 {
        let mixed = wire::mix(self.0);
        self.0 = self.0.wrapping_add(wire::mix::STEP);
        mixed
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// An offset, often at or beside a border of blocks.
    fn offset(&mut self, size_max: u64) -> u64 {
        let at = self.below(size_max);
        match self.below(4) {
            0 => at,
            1 => at / 4096 * 4096,
            2 => (at / 4096 * 4096).saturating_sub(1),
            _ => at / 32_768 * 32_768,
        }
    }

    /// A length: mostly small, sometimes large, within the largest file.
    fn bytes(&mut self, offset: u64, size_max: u64) -> u64 {
        let most = (size_max - offset).max(1);
        let scale = [16, 4096, 40_000, 300_000][self.below(4) as usize];
        (1 + self.below(scale)).min(most)
    }

    fn step(&mut self, size_max: u64) -> Step {
        let offset = self.offset(size_max);
        let bytes = self.bytes(offset, size_max);
        match self.below(20) {
            0..7 => Step::Write(offset, bytes as usize),
            7..13 => Step::Read(offset, bytes as usize),
            13 => Step::Truncate(offset),
            14 => Step::Punch(offset, bytes),
            15 => Step::Sync,
            16 => Step::Flush,
            17 => Step::Reopen,
            _ => Step::Stat,
        }
    }
}

/// Does the steps on a new file called `name` and on a model, and compares.
pub async fn run<A: Ask>(
    client: &Client<A>,
    dir: FileId,
    name: &[u8],
    steps: &[Step],
) -> Result<(), Mismatch> {
    let failed = |step: usize, text: String| Mismatch { step, text };
    let open = client.create(dir, name, READ_WRITE).await;
    let mut open = open.map_err(|errno| failed(0, format!("create: {errno}")))?;
    let mut model = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        do_step(client, &mut open, &mut model, number, *step)
            .await
            .map_err(|text| failed(number, format!("{step:?}: {text}")))?;
    }
    let end = steps.len();
    client.close(open).await.map_err(|errno| failed(end, format!("close: {errno}")))?;
    let last = client.get(dir, name).await;
    let last = last.map_err(|errno| failed(end, format!("read: {errno}")))?;
    compare(&model, &last).map_err(|text| failed(end, text))
}

async fn do_step<A: Ask>(
    client: &Client<A>,
    open: &mut Opened,
    model: &mut Vec<u8>,
    number: usize,
    step: Step,
) -> Result<(), String> {
    let result = match step {
        Step::Write(offset, bytes) => {
            let data = pattern(1 + number as u64, offset, bytes);
            let end = offset as usize + bytes;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
            client.write(*open, offset, &data).await
        }
        Step::Read(offset, bytes) => {
            let seen = client.read(*open, offset, bytes).await.map_err(|e| e.to_string())?;
            let from = model.len().min(offset as usize);
            let to = model.len().min(offset as usize + bytes);
            return compare(&model[from..to], &seen);
        }
        Step::Truncate(size) => {
            model.resize(size as usize, 0);
            client.set_size(*open, size).await.map(drop)
        }
        Step::Punch(offset, bytes) => {
            let from = model.len().min(offset as usize);
            let to = model.len().min((offset + bytes) as usize);
            model[from..to].fill(0);
            client.allocate(*open, offset, bytes, 3).await
        }
        Step::Sync => client.fsync(*open).await,
        Step::Flush => client.flush(*open).await,
        Step::Reopen => {
            client.close(*open).await.map_err(|e| e.to_string())?;
            *open = client.open(open.file, READ_WRITE).await.map_err(|e| e.to_string())?;
            Ok(())
        }
        Step::Stat => {
            let size = client.stat(open.file).await.map_err(|e| e.to_string())?.size;
            let expected = model.len() as u64;
            let right = size == expected;
            return right.then_some(()).ok_or(format!("size {size}, expected {expected}"));
        }
    };
    result.map_err(|errno| errno.to_string())
}

fn compare(expected: &[u8], seen: &[u8]) -> Result<(), String> {
    if expected.len() != seen.len() {
        return Err(format!("{} bytes, expected {}", seen.len(), expected.len()));
    }
    let differing: Vec<usize> = (0..seen.len()).filter(|at| seen[*at] != expected[*at]).collect();
    match (differing.first(), differing.last()) {
        (Some(first), Some(last)) => {
            let (count, got, want) = (differing.len(), seen[*first], expected[*first]);
            Err(format!("{count} bytes differ from {first} to {last}: {got} instead of {want}"))
        }
        _ => Ok(()),
    }
}

/// A short list of steps that `fails` still rejects: parts are left out for as long as that is so.
pub fn shrink(steps: &[Step], mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < steps.len() {
            let end = steps.len().min(at + part);
            let without: Vec<Step> = [&steps[..at], &steps[end..]].concat();
            if fails(&without) {
                steps = without;
            } else {
                at = end;
            }
        }
        part /= 2;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_from_the_seed_and_stay_within_the_file() {
        assert_eq!(steps(7, 100, 1 << 20), steps(7, 100, 1 << 20));
        assert_ne!(steps(7, 100, 1 << 20), steps(8, 100, 1 << 20));
        for step in steps(1, 10_000, 1 << 20) {
            if let Step::Write(offset, bytes) = step {
                assert!(offset + bytes as u64 <= 1 << 20 && bytes > 0);
            }
        }
    }

    #[test]
    fn shrinking_keeps_only_what_matters() {
        let all = steps(3, 500, 1 << 20);
        let fails = |steps: &[Step]| {
            let write = steps.iter().position(|step| matches!(step, Step::Write(..)));
            let sync = steps.iter().rposition(|step| *step == Step::Sync);
            matches!((write, sync), (Some(write), Some(sync)) if write < sync)
        };
        assert!(fails(&all));
        let short = shrink(&all, fails);
        assert_eq!(short.len(), 2);
        assert!(fails(&short));
    }
}
