//! Processor time, as the kernel counts it.

use std::fs::read_to_string;
use std::process::Command;
use std::time::Duration;

/// Of the numbers in `/proc`, on every Linux.
const TICKS_IN_A_SECOND: u64 = 100;

/// A process, and what it and the processes that it waited for have used.
#[derive(Debug, PartialEq)]
struct Usage {
    has_ended: bool,
    cpu: Duration,
}

impl Usage {
    fn of(process: u32) -> Option<Usage> {
        Usage::read(&read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// Reads `/proc/PID/stat`, whose second field is a name in parentheses, which may hold anything.
    fn read(text: &str) -> Option<Usage> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
        let ticks: u64 = ticks.sum::<Result<u64, _>>().ok()?;
        let has_ended = ["Z", "X"].contains(&fields[0]);
        Some(Usage { has_ended, cpu: seconds_of(ticks) })
    }
}

fn seconds_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_IN_A_SECOND)
}

/// Whether a child has ended that was not waited for. Its processor time is known until it is.
pub fn has_ended(child: u32) -> bool {
    Usage::of(child).is_none_or(|usage| usage.has_ended)
}

/// What a child used in all, once it has ended: it must not have been waited for.
pub fn at_end(child: u32) -> Duration {
    loop {
        match Usage::of(child) {
            Some(usage) if !usage.has_ended => std::thread::sleep(Duration::from_millis(1)),
            usage => return usage.map_or(Duration::ZERO, |usage| usage.cpu),
        }
    }
}

/// The processors of this machine since it started: how long they worked, and how long they were there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processors {
    busy: Duration,
    all: Duration,
}

impl Processors {
    pub fn now() -> Processors {
        Processors::read(&read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// Reads `/proc/stat`: user, nice, system, idle, waiting for a disk, interrupts of two kinds, and stolen.
    fn read(text: &str) -> Option<Processors> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        let (all, idle): (u64, u64) = (ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?);
        Some(Processors { busy: seconds_of(all - idle), all: seconds_of(all) })
    }

    /// The part of the time since then that they worked, in percent.
    pub fn busy_since(self, then: Processors) -> u64 {
        let (busy, all) = (self.busy - then.busy, self.all - then.all);
        (busy.as_millis() * 100).checked_div(all.as_millis()).unwrap_or_default() as u64
    }
}

/// The same command, behind all others that want a processor.
pub fn nicely(command: Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    command.get_current_dir().map(|folder| nice.current_dir(folder));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice.stdin(std::process::Stdio::null());
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process_and_its_children_is_read() {
        let stat = "7 (a) b) Z 1 7 7 0 -1 4194304 100 0 0 0 150 50 25 75 20 0 1 0 99 0 0";
        let cpu = Duration::from_secs(3);
        assert_eq!(Usage::read(stat), Some(Usage { has_ended: true, cpu }));
        assert_eq!(Usage::read("7 (a) R 1 7"), None);
    }

    #[test]
    fn a_child_is_charged_for_what_it_started() {
        let script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'";
        let mut child = nicely({
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{script}; exit 3")]);
            shell
        })
        .spawn()
        .unwrap();
        assert!(at_end(child.id()) > Duration::ZERO && has_ended(child.id()));
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn the_machines_processors_are_busy_when_they_do_not_idle() {
        let then = Processors::read("cpu  100 0 100 1000 200 0 0 0 7 7\ncpu0 1 1").unwrap();
        let now = Processors::read("cpu  130 10 110 1040 200 5 5 0 7 7").unwrap();
        assert_eq!(now.busy_since(then), 60);
        assert_eq!(now.busy_since(now), 0);
    }
}
