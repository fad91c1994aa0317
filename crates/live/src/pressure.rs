//! Memory pressure: a node that lends memory lends less while its machine is short of it.
//!
//! Memory left is the least of what `MemAvailable` says (proc_meminfo(5)) and what each control group around this
//! process leaves of its limit (cgroups(7), `memory.max` and `memory.high`; file pages that were not used lately count
//! as left). With less than a reserve the share shrinks by what is missing, a step at a time; after a quiet while it
//! grows again, slower. Where the kernel has pressure stall information (`/proc/pressure/memory`,
//! Documentation/accounting/psi.rst), waiting for memory counts as pressure too while not much more than the reserve
//! is left: a machine that reclaims all the time says that it has some. Its triggers are of no use here: they report
//! after windows of 2 s, and a look costs some 50 us.

use crate::device::Poller;
use crate::host::Device;
use netmem::Service;
use node::Node;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::Time;

/// How often the machine's memory is looked at.
const LOOK_SPAN: Duration = Duration::from_millis(250);
/// Time after a step in which its pages leave, before the next one.
const STEP_SPAN: Duration = Duration::from_secs(1);
/// Time without pressure before the share grows, and between two steps of that.
const QUIET_SPAN: Duration = Duration::from_secs(10);
/// The parts of what is lent at most by which the share shrinks at least, shrinks at most, and grows; one in so many.
const STEP_LEAST: u64 = 32;
const STEP_MOST: u64 = 4;
const STEP_UP: u64 = 32;
/// The part of what is lent at most that is lent in any case: less is not worth its messages.
const FLOOR: u64 = 16;
/// Waiting for memory is pressure while less than so many times the reserve is left.
const STALL_RESERVES: u64 = 2;
/// And when programs waited for one in so many parts of the time.
const STALL_SHARE: u32 = 10;

/// Where the machine tells of its memory.
#[derive(Clone, Debug)]
pub struct Sources {
    /// As `/proc/meminfo`.
    pub meminfo: PathBuf,
    /// As `/proc/pressure/memory`; it need not exist.
    pub pressure: PathBuf,
    /// Directories of control groups, each with `memory.max`, `memory.high`, `memory.current` and `memory.stat`, as far
    /// as there are any.
    pub groups: Vec<PathBuf>,
}

impl Sources {
    /// Of this machine, and of the control groups that this process is in (cgroups(7), version 2).
    pub fn of_machine() -> Sources {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let root = Path::new("/sys/fs/cgroup");
        let own = root.join(own);
        let groups = own.ancestors().take_while(|group| group.starts_with(root));
        Sources {
            meminfo: "/proc/meminfo".into(),
            pressure: "/proc/pressure/memory".into(),
            groups: groups.map(PathBuf::from).collect(),
        }
    }

    /// Reads them now; `None` where none tells how much memory is left.
    pub fn read(&self) -> Option<Reading> {
        let machine = fs::read_to_string(&self.meminfo).ok();
        let machine = machine.and_then(|text| field(&text, "MemAvailable:")).map(|kib| kib << 10);
        let groups = self.groups.iter().filter_map(|group| left_in(group));
        let available = groups.chain(machine).min()?;
        Some(Reading { available, stalled: self.stalled() })
    }

    fn stalled(&self) -> Option<Duration> {
        let text = fs::read_to_string(&self.pressure).ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        let total = some.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
        total.parse().ok().map(Duration::from_micros)
    }
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that a control group leaves of its limits; `None` when it has none.
fn left_in(group: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(group.join(name)).ok()?.trim().parse().ok() // "max": no limit
    };
    let limits = [number("memory.max"), number("memory.high")];
    let limit = limits.into_iter().flatten().min()?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let idle = field(&stat, "inactive_file ").unwrap_or(0);
    Some(limit.saturating_sub(number("memory.current")?.saturating_sub(idle)))
}

/// The machine's memory at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that programs can still get.
    pub available: u64,
    /// How long programs have waited for memory since the machine started, any of them.
    pub stalled: Option<Duration>,
}

/// When a node lends less.
#[derive(Clone, Copy, Debug)]
pub struct PressureConfig {
    /// Bytes of the machine's memory that are to be left to others.
    pub reserve: u64,
    /// Time without pressure before the share grows, and between two steps of that.
    pub quiet: Duration,
}

impl PressureConfig {
    /// With the usual times.
    pub fn new(reserve: u64) -> PressureConfig {
        PressureConfig { reserve, quiet: QUIET_SPAN }
    }
}

/// How much of what could be lent is lent: decides, and does nothing.
#[derive(Clone, Debug)]
struct Rule {
    config: PressureConfig,
    most: u64,
    share: u64,
    /// As it was told last.
    stalled: Option<(Time, Duration)>,
    /// The last step, in either direction.
    stepped: Option<Time>,
    /// The last look that showed pressure.
    pressed: Option<Time>,
}

impl Rule {
    /// All of `most` bytes is lent at first.
    fn new(most: u64, config: PressureConfig) -> Rule {
        Rule { config, most, share: most, stalled: None, stepped: None, pressed: None }
    }

    /// Another share, when it is time for one. While pages are `leaving` for the last step there is none.
    fn look(&mut self, now: Time, reading: Reading, leaving: bool) -> Option<u64> {
        let stalls = self.stalls(now, reading);
        let missing = self.config.reserve.saturating_sub(reading.available);
        if missing == 0 && !stalls {
            return self.grow(now, reading.available);
        }
        self.pressed = Some(now);
        if leaving || self.stepped.is_some_and(|at| now.since(at) < STEP_SPAN) {
            return None;
        }
        let down = missing.clamp(self.most / STEP_LEAST, self.most / STEP_MOST);
        self.step(now, self.share.saturating_sub(down))
    }

    /// Only where that brings no pressure again at once.
    fn grow(&mut self, now: Time, available: u64) -> Option<u64> {
        let (step, reserve) = (self.most / STEP_UP, self.config.reserve);
        let since = self.pressed.max(self.stepped)?;
        let room = available - reserve > step + reserve / 4;
        let grows = room && now.since(since) >= self.config.quiet;
        if grows { self.step(now, self.share + step) } else { None }
    }

    fn step(&mut self, now: Time, share: u64) -> Option<u64> {
        let share = share.clamp(self.most / FLOOR, self.most);
        if share == self.share {
            return None;
        }
        (self.share, self.stepped) = (share, Some(now));
        Some(share)
    }

    /// Whether programs have waited much since the last look, and little more than the reserve is left.
    fn stalls(&mut self, now: Time, reading: Reading) -> bool {
        let told = reading.stalled.map(|stalled| (now, stalled));
        let before = std::mem::replace(&mut self.stalled, told);
        let waited = before.zip(told).is_some_and(|((since, old), (_, new))| {
            new.saturating_sub(old) * STALL_SHARE > now.since(since)
        });
        waited && reading.available < self.config.reserve.saturating_mul(STALL_RESERVES)
    }
}

/// Watches the machine's memory for a node's service.
pub struct Pressure {
    sources: Sources,
    rule: Rule,
    service: Service,
    due: Time,
}

impl Pressure {
    /// The service lends as much as configured while the machine has enough memory for others.
    pub fn new(sources: Sources, service: Service, config: PressureConfig) -> Pressure {
        let rule = Rule::new(service.config().bytes as u64, config);
        Pressure { sources, rule, service, due: Time::ZERO }
    }
}

impl Device for Pressure {
    fn attach(&mut self, _poller: &Poller) -> io::Result<()> {
        Ok(())
    }

    /// Tasks of the service see the changes: that is news enough for the host.
    fn poll(&mut self, _node: &mut Node, now: Time) -> io::Result<bool> {
        if now < self.due {
            return Ok(false);
        }
        self.due = now + LOOK_SPAN;
        let leaving = self.service.share().over > 0;
        let share = self.sources.read().and_then(|reading| self.rule.look(now, reading, leaving));
        if let Some(share) = share {
            self.service.set_share(usize::try_from(share).unwrap_or(usize::MAX));
        }
        Ok(share.is_some())
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Time> {
        Some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The shares that a machine comes to which tells this, a look each 250 ms.
    fn shares(rule: &mut Rule, from_ms: u64, looks: u64, available: u64) -> Vec<u64> {
        let look = |at| Time(1_000_000 * (from_ms + at * 250));
        let reading = Reading { available: available * MIB, stalled: None };
        let all = (0..looks).filter_map(|at| rule.look(look(at), reading, false));
        all.map(|share| share / MIB).collect()
    }

    #[test]
    fn the_share_shrinks_by_what_is_missing_in_bounded_steps() {
        let mut rule = Rule::new(1024 * MIB, PressureConfig::new(512 * MIB));
        assert_eq!(shares(&mut rule, 1_000, 100, 513), []);
        assert_eq!(shares(&mut rule, 100_000, 8, 412), [924, 824], "one step in a second");
        assert_eq!(shares(&mut rule, 110_000, 12, 511), [792, 760, 728], "at least a 32nd");
        let rest = [472, 216, 64];
        assert_eq!(shares(&mut rule, 120_000, 100, 0), rest, "at most a quarter, and a 16th stays");
    }

    #[test]
    fn it_grows_again_slowly_and_only_where_there_is_room() {
        let mut rule = Rule::new(1024 * MIB, PressureConfig::new(512 * MIB));
        assert_eq!(shares(&mut rule, 1_000, 1, 0), [768]);
        assert_eq!(shares(&mut rule, 2_000, 200, 600), [], "it would be short again at once");
        assert_eq!(shares(&mut rule, 60_000, 80, 2048), [800, 832], "each ten seconds");
        assert_eq!(shares(&mut rule, 100_000, 1000, 2048).last(), Some(&1024));
        assert_eq!(shares(&mut rule, 500_000, 100, 2048), [], "no more than all");
    }

    #[test]
    fn while_pages_are_leaving_there_is_no_other_step() {
        let mut rule = Rule::new(1024 * MIB, PressureConfig::new(512 * MIB));
        let reading = Reading { available: 0, stalled: None };
        assert_eq!(rule.look(Time(1), reading, true), None);
        assert_eq!(rule.look(Time(2), reading, false), Some(768 * MIB));
    }

    #[test]
    fn waiting_is_pressure_where_little_is_left() {
        let step = |available: u64, waited_ms: u64| {
            let mut rule = Rule::new(1024 * MIB, PressureConfig::new(512 * MIB));
            let reading = |ms| {
                let stalled = Some(Duration::from_millis(7_000 + ms));
                Reading { available: available * MIB, stalled }
            };
            assert_eq!(rule.look(Time(0), reading(0), false), None);
            rule.look(Time(250_000_000), reading(waited_ms), false)
        };
        assert_eq!(step(1000, 30), Some(992 * MIB));
        assert_eq!((step(1000, 20), step(1100, 200)), (None, None));
    }

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        let (meminfo, pressure) = (path("meminfo"), path("pressure"));
        let groups = vec![directory.path().to_path_buf(), path("none")];
        let sources = Sources { meminfo, pressure, groups };
        assert_eq!(sources.read(), None, "nothing tells");
        write("meminfo", "MemTotal: 9 kB\nMemAvailable:   4096 kB\n");
        let reading = |available, stalled| Some(Reading { available, stalled });
        assert_eq!(sources.read(), reading(4 << 20, None));
        write("memory.max", "max\n");
        assert_eq!(sources.read(), reading(4 << 20, None));
        write("memory.high", "3000000\n");
        write("memory.current", "2500000\n");
        write("memory.stat", "anon 1\ninactive_file 500000\n");
        write("pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull total=2\n");
        let stalled = Some(Duration::from_micros(1500));
        assert_eq!(sources.read(), reading(1_000_000, stalled));
        write("memory.max", "2000000\n");
        assert_eq!(sources.read(), reading(0, stalled));
        assert!(Sources::of_machine().read().is_some());
    }
}
