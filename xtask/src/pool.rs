//! What runs side by side. Jobs that compute have a lane for each processor, at low priority. Beside them run those
//! that wait for timeouts of the real world: most of them sleep most of the time, and find a processor when they do
//! not.

use crate::report::Done;
use crate::run::{SUITE, Watch, watch_tests};
use crate::usage::nicely;
use std::num::NonZero;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Suites that take longest, longest first: begun last they would be waited for alone.
const LONG: [&str; 15] = [
    "papers/papers",
    "command/kernel_client",
    "command/papers",
    "sim/cluster",
    "command/random_damage",
    "command/growth",
    "command/watching",
    "command/disks",
    "command/forget",
    "command/crashes",
    "sim/memory",
    "command/cluster",
    "sim/lending",
    "command/memory",
    "live/pressure",
];
/// Jobs that wait, for each processor.
const WAITING: usize = 3;
/// A job that takes less has no line of its own.
const SHORT: Duration = Duration::from_secs(1);

/// What a job does most of its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Computes,
    Waits,
}

/// Something to be run: tests, or another command that succeeds or fails.
pub struct Job {
    pub what: String,
    pub command: Command,
    /// Whether it counts its own tests.
    pub is_suite: bool,
    pub load: Load,
}

impl Job {
    /// A command that succeeds or fails, and computes.
    pub fn of_one(what: impl Into<String>, command: Command) -> Job {
        Job { what: what.into(), command, is_suite: false, load: Load::Computes }
    }

    /// Where it stands in the order: lowest first.
    fn rank(&self) -> usize {
        let suite = self.what.split(": ").next();
        LONG.iter().position(|long| suite == Some(long)).unwrap_or(LONG.len())
    }
}

/// Jobs that are not run yet, and what the others came to.
#[derive(Default)]
pub struct Pool {
    /// Words of which one must be in a job's name, or none.
    words: Vec<String>,
    queues: Mutex<Queues>,
    added: Condvar,
}

#[derive(Default)]
struct Queues {
    computing: Vec<Job>,
    waiting: Vec<Job>,
    /// No job will be added.
    is_complete: bool,
    done: Vec<Done>,
}

impl Queues {
    fn take(&mut self, lane: Load) -> Option<Job> {
        match lane {
            Load::Waits => first(&mut self.waiting),
            // The build has the processors until it has ended.
            Load::Computes if !self.is_complete => None,
            Load::Computes => first(&mut self.computing).or_else(|| first(&mut self.waiting)),
        }
    }
}

/// The longest, and of several such the one that was added first.
fn first(jobs: &mut Vec<Job>) -> Option<Job> {
    let (at, _) = jobs.iter().enumerate().min_by_key(|(_, job)| job.rank())?;
    Some(jobs.remove(at))
}

impl Pool {
    /// Whether a job of this name is asked for.
    pub fn wants(&self, what: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| what.contains(word))
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no lane panics")
    }

    /// Adds a job, which starts when a lane has room for it: one that computes only after [`Pool::complete`].
    pub fn add(&self, job: Job) {
        if !self.wants(&job.what) {
            return;
        }
        let mut queues = self.queues();
        match job.load {
            Load::Computes => queues.computing.push(job),
            Load::Waits => queues.waiting.push(job),
        }
        self.added.notify_all();
    }

    /// All are added.
    pub fn complete(&self) {
        self.queues().is_complete = true;
        self.added.notify_all();
    }

    fn next(&self, lane: Load) -> Option<Job> {
        let mut queues = self.queues();
        loop {
            match queues.take(lane) {
                Some(job) => return Some(job),
                None if queues.is_complete => return None,
                None => queues = self.added.wait(queues).expect("no lane panics"),
            }
        }
    }

    fn lane(&self, load: Load) {
        while let Some(job) = self.next(load) {
            self.run(job);
        }
    }

    /// Runs a job on this lane, if it is asked for.
    pub fn run_now(&self, job: Job) {
        if self.wants(&job.what) {
            self.run(job);
        }
    }

    /// Its output is printed in one piece, of tests only when they fail.
    fn run(&self, job: Job) {
        let Job { what, command, is_suite, load } = job;
        let command = if load == Load::Computes { nicely(command) } else { command };
        let (start, mut text) = (Instant::now(), String::new());
        let outcome = watch_tests(&what, command, Watch::of_suite(SUITE), |line| {
            text.push_str(line);
            text.push('\n');
        });
        let outcome = if is_suite { outcome } else { outcome.of_one() };
        let (took, failed) = (start.elapsed(), outcome.result.is_err());
        let mut queues = self.queues();
        if failed || !is_suite {
            print!("\n== {what}\n{text}");
        }
        let done = Done { what, outcome, took };
        if failed || took >= SHORT {
            let left = queues.computing.len() + queues.waiting.len();
            println!("   {done} ({} done, {left} left)", queues.done.len() + 1);
        }
        queues.done.push(done);
    }
}

/// Runs what `build` adds as soon as it does so, and `build` itself on a lane for jobs that compute; only jobs with one
/// of the words in their names, unless there is none. What they came to, in the order in which they ended.
pub fn run_all<T>(words: &[String], build: impl FnOnce(&Pool) -> T) -> (T, Vec<Done>) {
    let pool = Pool { words: words.to_vec(), ..Pool::default() };
    let built = std::thread::scope(|scope| {
        (0..WAITING * processors()).for_each(|_| drop(scope.spawn(|| pool.lane(Load::Waits))));
        (1..processors()).for_each(|_| drop(scope.spawn(|| pool.lane(Load::Computes))));
        let built = build(&pool);
        pool.complete();
        pool.lane(Load::Computes);
        built
    });
    (built, pool.queues.into_inner().expect("no lane panics").done)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(what: &str, script: &str, load: Load) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { what: what.into(), command, is_suite: false, load }
    }

    #[test]
    fn every_job_is_run_and_a_failure_is_its_own() {
        let told = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'";
        let ((), mut done) = run_all(&[], |pool| {
            pool.add(Job { is_suite: true, ..shell("a", told, Load::Waits) });
            pool.add(shell("b", "exit 3", Load::Computes));
            pool.run_now(shell("c", "echo x", Load::Computes));
        });
        done.sort_by(|one, other| one.what.cmp(&other.what));
        let counts: Vec<_> = done
            .iter()
            .map(|done| (&*done.what, done.outcome.tally, done.outcome.result.is_ok()))
            .map(|(what, tally, is_ok)| (what, tally.passed, tally.failed, is_ok))
            .collect();
        assert_eq!(counts, [("a", 2, 0, true), ("b", 0, 1, false), ("c", 1, 0, true)]);
    }

    #[test]
    fn jobs_that_wait_run_beside_the_build_and_jobs_that_compute_after_it() {
        let folder = std::env::temp_dir().join(format!("trapeze-xtask-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let wait = format!("touch {}/waits", folder.display());
        let compute = format!("test -e {}/built", folder.display());
        let ((), done) = run_all(&[], |pool| {
            pool.add(shell("computes", &compute, Load::Computes));
            pool.add(shell("waits", &wait, Load::Waits));
            while !folder.join("waits").exists() {
                std::thread::yield_now();
            }
            std::fs::write(folder.join("built"), "").unwrap();
        });
        std::fs::remove_dir_all(&folder).unwrap();
        let results: Vec<_> = done.iter().map(|done| done.outcome.result.clone()).collect();
        assert_eq!(results, [Ok(()), Ok(())]);
    }

    #[test]
    fn the_longest_begin_first_and_a_lane_that_computes_helps_those_that_wait() {
        let mut queues = Queues::default();
        let waits = ["live/links: a", "command/growth: b", "command/growth: c", "live/links: d"];
        queues.waiting = waits.map(|what| shell(what, "", Load::Waits)).into();
        queues.computing = vec![shell("wire/wire", "", Load::Computes)];
        assert!(queues.take(Load::Computes).is_none(), "it is being built");
        assert_eq!(queues.take(Load::Waits).unwrap().what, "command/growth: b");
        queues.is_complete = true;
        let order = [Load::Computes; 4].map(|lane| queues.take(lane).unwrap().what);
        assert_eq!(order, ["wire/wire", "command/growth: c", "live/links: a", "live/links: d"]);
        assert!(queues.take(Load::Computes).is_none());
    }
}
