//! This thread at the kernel's scheduler: its delays, and its slices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use wire::Time;

/// A thread that waits longer for the processor, on average, has others beside it that compute.
const DELAY: Duration = Duration::from_micros(500);
/// So many waits tell the average: one long wait among a few short ones is a moment's, a program's start or end.
const WAITS_MIN: u64 = 32;
/// For so long it is not asked again after the first such answer, and twice as long after each in a row: most of the
/// time beside a program that computes for minutes, and not much longer than one that has ended.
const SHORT_SPAN_MIN: Duration = Duration::from_millis(250);
/// And at most so long.
const SHORT_SPAN_MAX: Duration = Duration::from_secs(16);
/// The shortest slice that the kernel takes (`kernel/sched/syscalls.c`). A node runs for some us at a time.
const SLICE_NS: u64 = 100_000;

/// How often this thread lost its processor to another that wanted it too. A yield without a taker does not count.
pub fn switches() -> u64 {
    // SAFETY: all of the structure is integers, for which zero is a value, and the kernel writes no more than it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nivcsw as u64
}

/// How long this thread's slices are: short while others compute on its processor, so that it runs soon after a wake,
/// for no more of the processor than before. A node would else wait for the end of their slices, some ms, at each
/// message. Not always, because its own clients are interrupted by it, too. Kernels before Linux 6.12 have one slice
/// for all; there nothing changes.
#[derive(Debug)]
pub(crate) struct Slices {
    /// Processor time in ns, time in which it waited for the processor in ns, times that it got the processor.
    schedstat: Option<File>,
    seen: (u64, u64),
    short_until: Option<Time>,
    /// How long they are short at the next wait that is long.
    span: Duration,
}

impl Slices {
    /// Of the thread that calls this.
    pub fn new() -> Slices {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let span = SHORT_SPAN_MIN;
        let mut slices = Slices { schedstat, seen: (0, 0), short_until: None, span };
        slices.forget();
        slices
    }

    /// To be called now and then.
    pub fn look(&mut self, now: Time) {
        if self.short_until.is_some_and(|until| now < until) {
            return;
        }
        if self.short_until.take().is_some() {
            set_slice(0);
            self.forget();
            return;
        }
        match self.mean_delay() {
            Some(delay) if delay > DELAY => self.shorten(now),
            Some(_) => self.span = SHORT_SPAN_MIN,
            None => {}
        }
    }

    /// Delays measured with short slices say nothing of others.
    fn forget(&mut self) {
        self.seen = self.schedstat.as_ref().and_then(delays).unwrap_or_default();
    }

    fn shorten(&mut self, now: Time) {
        self.short_until = Some(now + self.span);
        self.span = (2 * self.span).min(SHORT_SPAN_MAX);
        set_slice(SLICE_NS);
    }

    /// How long the thread waited for the processor, on average, since the last answer; none before enough waits.
    fn mean_delay(&mut self) -> Option<Duration> {
        let now = self.schedstat.as_ref().and_then(delays)?;
        let (delay, count) = (now.0.saturating_sub(self.seen.0), now.1.saturating_sub(self.seen.1));
        (count >= WAITS_MIN).then(|| {
            self.seen = now;
            Duration::from_nanos(delay / count)
        })
    }
}

fn delays(schedstat: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; 80];
    let got = schedstat.read_at(&mut bytes, 0).ok()?;
    let mut words = std::str::from_utf8(&bytes[..got]).ok()?.split_ascii_whitespace().skip(1);
    let mut number = || words.next()?.parse().ok();
    Some((number()?, number()?))
}

/// 0 is the kernel's own. Threads and programs that this one starts have the kernel's own in any case; without
/// privilege that cannot be taken back, so it stays.
fn set_slice(nanos: u64) {
    let is_plain = |attr: &libc::sched_attr| attr.sched_policy == libc::SCHED_OTHER as u32;
    let Some(attr) = attributes().filter(is_plain) else { return };
    let sched_flags = attr.sched_flags | libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let attr = libc::sched_attr { sched_runtime: nanos, sched_flags, ..attr };
    // SAFETY: it reads the structure. Where it is refused, everything is as before.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) };
}

fn attributes() -> Option<libc::sched_attr> {
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: all of the structure is integers, for which zero is a value, and the kernel writes no more than `bytes`.
    unsafe {
        let mut attr = std::mem::zeroed::<libc::sched_attr>();
        (libc::syscall(libc::SYS_sched_getattr, 0, &mut attr, bytes, 0) == 0).then_some(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_long_wait_in_a_row_makes_slices_short_for_twice_as_long() {
        let in_node = || {
            let mut slices = Slices::new();
            let mut spans = Vec::new();
            for at in 0..10 {
                slices.shorten(Time(at));
                spans.push(slices.short_until.unwrap().since(Time(at)));
            }
            assert_eq!(spans[..3], [1, 2, 4].map(|times| times * SHORT_SPAN_MIN));
            assert_eq!(spans[9], SHORT_SPAN_MAX);
        };
        std::thread::spawn(in_node).join().unwrap();
    }

    #[test]
    fn slices_are_short_for_a_while_after_the_thread_waited_long_for_the_processor() {
        let runtime = || attributes().unwrap().sched_runtime;
        let in_node = move || {
            let (mut slices, own) = (Slices::new(), runtime());
            slices.look(Time(1));
            assert_eq!(runtime(), own, "nothing is known");
            slices.shorten(Time(2));
            // An older kernel has one slice for all, and says 0.
            assert_eq!(runtime(), if own == 0 { 0 } else { SLICE_NS });
            let started = std::thread::spawn(move || attributes().unwrap().sched_runtime);
            assert_eq!(started.join().unwrap(), own, "threads that it starts are not concerned");
            slices.look(Time(2) + SHORT_SPAN_MIN);
            assert_eq!(runtime(), own);
        };
        let own = runtime();
        std::thread::spawn(in_node).join().unwrap();
        assert_eq!(runtime(), own);
    }
}
