//! Whether looking pays, in processor time.
//!
//! Looking for an arrival takes the processor until it is there; sleeping takes the cost of two switches and a wake,
//! which is not known beforehand: 3 us on bare metal, 15 us on a virtual machine, where an idle processor is given back
//! to its host. So both are tried and measured: the processor time of the thread for each arrival, over so many
//! arrivals in a row. A node that has measured that looking costs more than sleeping sleeps, and tries again now and
//! then. A server that waits so costs at no time much more than one that sleeps each time, and answers sooner wherever
//! that is free.

use std::time::Duration;

/// Arrivals of one measurement: two readings of a clock that takes a system call are then nothing beside them.
const EPOCH: u32 = 32;
/// Measurements in turns at the start.
const FIRST: u32 = 16;
/// Where looking pays, one measurement in so many is of sleeping: 0.4 % of the arrivals, so that not even the 99th
/// percentile of the latency shows it.
const PROBE_SLEEP: u32 = 256;
/// Where sleeping pays, one in so many is of looking: that harms no other thread.
const PROBE_LOOK: u32 = 16;
/// Looking may cost more by one part in so many: below that the measurement says nothing.
const TOLERANCE: u64 = 16;

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Look,
    Sleep,
}

impl Strategy {
    fn other(self) -> Strategy {
        match self {
            Strategy::Look => Strategy::Sleep,
            Strategy::Sleep => Strategy::Look,
        }
    }
}

/// Decides for one thread.
#[derive(Debug)]
pub struct Thrift {
    /// Processor time of the thread.
    clock: fn() -> Duration,
    way: Strategy,
    arrivals: u32,
    began: Duration,
    /// Another thread wanted the processor, or the peer was on it: this says nothing of looking.
    void: bool,
    measured: u32,
    /// Processor time of an arrival, by strategy.
    look_ns: Option<u64>,
    sleep_ns: Option<u64>,
}

impl Thrift {
    /// With nothing measured. `clock` gives the processor time of the thread.
    pub fn new(clock: fn() -> Duration) -> Thrift {
        let (way, began) = (Strategy::Look, clock());
        Thrift {
            clock,
            way,
            arrivals: 0,
            began,
            void: false,
            measured: 0,
            look_ns: None,
            sleep_ns: None,
        }
    }

    /// Whether to sleep at once; `alone` when no other thread wants the processor. If one does, the measurement is
    /// void.
    pub fn sleeps(&mut self, alone: bool) -> bool {
        self.void |= !alone;
        alone && self.way == Strategy::Sleep
    }

    /// An arrival that was waited for is there.
    pub fn arrived(&mut self) {
        self.arrivals += 1;
        if self.arrivals >= EPOCH {
            self.end_epoch();
        }
    }

    fn end_epoch(&mut self) {
        let now = (self.clock)();
        let spent = now.saturating_sub(self.began).as_nanos() as u64 / u64::from(self.arrivals);
        (self.arrivals, self.began) = (0, now);
        if std::mem::take(&mut self.void) {
            return;
        }
        let cost = match self.way {
            Strategy::Look => &mut self.look_ns,
            Strategy::Sleep => &mut self.sleep_ns,
        };
        *cost = Some(cost.map_or(spent, |before| (3 * before + spent) / 4));
        self.measured = self.measured.wrapping_add(1);
        self.way = self.next();
    }

    fn next(&self) -> Strategy {
        match (self.look_ns, self.sleep_ns) {
            _ if self.measured < FIRST => self.way.other(),
            (Some(look), Some(sleep)) => {
                let pays = look <= sleep + sleep / TOLERANCE;
                let (better, probe) = match pays {
                    true => (Strategy::Look, PROBE_SLEEP),
                    false => (Strategy::Sleep, PROBE_LOOK),
                };
                if self.measured.is_multiple_of(probe) { better.other() } else { better }
            }
            _ => self.way.other(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static SPENT: Cell<u64> = const { Cell::new(0) };
    }

    fn thrift() -> Thrift {
        Thrift::new(|| Duration::from_nanos(SPENT.get()))
    }

    /// Lets so many things arrive, each of which costs this by the way it was waited for; how many were slept for.
    fn slept(thrift: &mut Thrift, arrivals: u32, (look, sleep): (u64, u64)) -> u32 {
        let mut slept = 0;
        for _ in 0..arrivals {
            let sleeps = thrift.sleeps(true);
            slept += u32::from(sleeps);
            SPENT.set(SPENT.get() + if sleeps { sleep } else { look });
            thrift.arrived();
        }
        slept
    }

    #[test]
    fn what_costs_less_is_done_and_the_other_is_tried_now_and_then() {
        let mut thrift = thrift();
        slept(&mut thrift, 2 * FIRST * EPOCH, (9_000, 20_000));
        let probes = slept(&mut thrift, 100_000, (9_000, 20_000));
        assert!((100..1_000).contains(&probes), "{probes}");
        slept(&mut thrift, 4 * PROBE_SLEEP * EPOCH, (40_000, 20_000));
        let looks = 100_000 - slept(&mut thrift, 100_000, (40_000, 20_000));
        assert!((100..10_000).contains(&looks), "{looks}");
    }

    #[test]
    fn the_whole_costs_at_no_time_much_more_than_sleeping() {
        for look in [5_000, 19_000, 21_000, 22_000, 30_000, 100_000] {
            let mut thrift = thrift();
            slept(&mut thrift, PROBE_SLEEP * EPOCH, (look, 20_000));
            let before = SPENT.get();
            slept(&mut thrift, 100_000, (look, 20_000));
            let each = (SPENT.get() - before) / 100_000;
            let probes = look / u64::from(PROBE_LOOK);
            assert!(each <= 20_000 + 20_000 / TOLERANCE + probes, "{look}: {each}");
        }
    }

    #[test]
    fn where_others_want_the_processor_nothing_is_measured() {
        let mut thrift = thrift();
        for _ in 0..10 * EPOCH {
            assert!(!thrift.sleeps(false));
            SPENT.set(SPENT.get() + 1_000_000);
            thrift.arrived();
        }
        assert_eq!((thrift.look_ns, thrift.sleep_ns), (None, None));
    }
}
