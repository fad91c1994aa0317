//! What a node does when nothing is to be done: look again, let others run, or sleep.
//!
//! Waking a sleeper on another processor costs 30 us on a virtual machine and 2 to 5 us on bare metal; looking again
//! costs nothing but the processor. So the adaptive policy looks for a few times as long as a wake costs, as long as
//! what it waits for tends to come that soon, and sleeps at once where it does not. It yields instead when the peer
//! runs on the same processor, where spinning only delays what is waited for, and sleeps where others want the
//! processor. What is common is measured, not assumed.

use std::time::Duration;
use wire::Time;

/// How a node waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Spins as long as that pays, then sleeps.
    #[default]
    Adaptive,
    /// Never sleeps: lowest latency, one processor always busy.
    Spin,
    /// Sleeps at once.
    Block,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Look again at once.
    Spin,
    /// Let others run on this processor, then look again.
    Yield,
    /// Sleep until something is ready.
    Sleep,
}

/// What waiting came to, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounters {
    /// Turns that looked again.
    pub spins: u64,
    /// Waits that ended while looking.
    pub spin_hits: u64,
    /// Turns that let others run.
    pub yields: u64,
    /// Times slept.
    pub sleeps: u64,
}

/// Cost of a wake before one was measured.
const WAKE_COST_START_NS: u64 = 30_000;
/// No wake is cheaper, none is taken to be dearer: a loaded machine must not make a node spin for long.
const WAKE_COST_MIN_NS: u64 = 3_000;
const WAKE_COST_MAX_NS: u64 = 60_000;
/// Gaps up to this are worth spinning for: 10,000 arrivals a second are 100 us apart, and half as much again lets a
/// late one come. It does not follow the measured cost of a wake: that is of this processor's own timer, and a wake
/// from another processor, of which an exchange between two that sleep takes two, costs a varying multiple of it.
const WINDOW_NS: u64 = 150_000;
/// A gap counts as at most this many windows, so that a long rest is forgotten within ten arrivals.
const GAP_MAX_WINDOWS: u64 = 4;
/// Where gaps are long something may still come soon: it is looked for this part of a wake's cost.
const SHORT_WAKE_PARTS: u64 = 8;
/// After so many short looks for nothing only every [`SHORT_RARE`]th wait begins with one.
const SHORT_MISSES_MAX: u32 = 4;
const SHORT_RARE: u64 = 16;
/// How often one who spins lets others run.
const YIELD_SPAN: Duration = Duration::from_micros(20);
/// Giving the processor away for longer shows that somebody else needs it.
const CROWDED_AFTER: Duration = Duration::from_micros(8);
/// That is remembered so many times as long as it took. Who sleeps on a busy processor is woken without delay.
const CROWDED_TIMES: u32 = 10;

/// Decides for one node.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    idle_since: Option<Time>,
    slept: bool,
    gap_ns: u64,
    wake_cost_ns: u64,
    short_misses: u32,
    waits: u64,
    yielded_at: Time,
    crowded_until: Time,
    counters: WaitCounters,
}

impl Waiter {
    /// With nothing measured yet.
    pub fn new(policy: WaitPolicy) -> Waiter {
        Waiter {
            policy,
            idle_since: None,
            slept: false,
            gap_ns: WAKE_COST_START_NS,
            wake_cost_ns: WAKE_COST_START_NS,
            short_misses: 0,
            waits: 0,
            yielded_at: Time::ZERO,
            crowded_until: Time::ZERO,
            counters: WaitCounters::default(),
        }
    }

    /// What waiting came to.
    pub fn counters(&self) -> WaitCounters {
        self.counters
    }

    /// How long the adaptive policy now looks before it sleeps.
    pub fn budget(&self) -> Duration {
        if self.gap_ns <= WINDOW_NS {
            return Duration::from_nanos(WINDOW_NS);
        }
        let tried = self.short_misses < SHORT_MISSES_MAX || self.waits.is_multiple_of(SHORT_RARE);
        Duration::from_nanos(if tried { self.wake_cost_ns / SHORT_WAKE_PARTS } else { 0 })
    }

    /// Something was done at `now`.
    pub fn busy(&mut self, now: Time) {
        let Some(since) = self.idle_since.take() else { return };
        let gap = now.since(since).as_nanos() as u64;
        if self.slept || gap <= self.wake_cost_ns / SHORT_WAKE_PARTS {
            self.short_misses = if self.slept { self.short_misses.saturating_add(1) } else { 0 };
        }
        self.gap_ns = (3 * self.gap_ns + gap.min(WINDOW_NS * GAP_MAX_WINDOWS)) / 4;
        self.counters.spin_hits += u64::from(!self.slept);
        self.slept = false;
        self.waits += 1;
    }

    /// Nothing was to be done at `now`; `same_processor` when a peer runs where this node does; `due` when something is
    /// to be done then.
    pub fn idle(&mut self, now: Time, same_processor: bool, due: Option<Time>) -> Pause {
        let since = *self.idle_since.get_or_insert(now);
        let pause = match self.policy {
            WaitPolicy::Block => Pause::Sleep,
            WaitPolicy::Spin if same_processor => Pause::Yield,
            WaitPolicy::Spin => Pause::Spin,
            WaitPolicy::Adaptive => self.adapt(now, since, same_processor, due),
        };
        match pause {
            Pause::Spin => self.counters.spins += 1,
            Pause::Yield => self.counters.yields += 1,
            Pause::Sleep => self.counters.sleeps += 1,
        }
        pause
    }

    fn adapt(&mut self, now: Time, since: Time, same: bool, due: Option<Time>) -> Pause {
        // Who sleeps until then comes late by a wake.
        let soon = due.is_some_and(|due| due.since(now).as_nanos() as u64 <= WINDOW_NS);
        let waited_out = self.slept || now.since(since) >= self.budget();
        if waited_out && !soon {
            return Pause::Sleep;
        }
        if same {
            return Pause::Yield;
        }
        if now < self.crowded_until {
            return Pause::Sleep;
        }
        if now >= self.yielded_at.max(since) + YIELD_SPAN {
            self.yielded_at = now;
            return Pause::Yield;
        }
        Pause::Spin
    }

    /// A yield that began at `from` has ended at `until`.
    pub fn yielded(&mut self, from: Time, until: Time, same_processor: bool) {
        let away = until.since(from);
        if !same_processor && away >= CROWDED_AFTER {
            self.crowded_until = until + away * CROWDED_TIMES;
        }
    }

    /// The node slept until `now`. When it was to be woken by the clock alone, `due` says when: what it came too late
    /// is what a wake costs here.
    pub fn woken(&mut self, now: Time, due: Option<Time>) {
        self.slept = true;
        if let Some(due) = due {
            let cost = (now.since(due).as_nanos() as u64).clamp(WAKE_COST_MIN_NS, WAKE_COST_MAX_NS);
            self.wake_cost_ns = (7 * self.wake_cost_ns + cost) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: u64) -> Time {
        Time(us * 1000)
    }

    /// Lets something arrive every `gap_us` and counts how often the node slept.
    fn sleeps(waiter: &mut Waiter, gap_us: u64, arrivals: u64) -> u64 {
        let before = waiter.counters().sleeps;
        for n in 0..arrivals {
            let start = n * gap_us;
            let pause = (0..gap_us).map(|us| waiter.idle(micros(start + us), false, None));
            let slept = pause.into_iter().find(|p| *p == Pause::Sleep).is_some();
            if slept {
                waiter.woken(micros(start + gap_us), None);
            }
            waiter.busy(micros(start + gap_us));
        }
        waiter.counters().sleeps - before
    }

    #[test]
    fn what_comes_soon_is_waited_for_and_what_comes_late_is_slept_for() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        assert_eq!(sleeps(&mut waiter, 10, 100), 0);
        sleeps(&mut waiter, 5_000, 20);
        assert!(waiter.budget() < Duration::from_micros(5), "rare arrivals are not worth spinning");
        assert!(sleeps(&mut waiter, 10, 100) < 20, "and a burst is noticed");
        assert_eq!(sleeps(&mut waiter, 10, 100), 0);
    }

    #[test]
    fn rare_arrivals_are_slept_for_at_once() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        sleeps(&mut waiter, 1_000, 30);
        let budgets: Vec<Duration> = (0..16)
            .map(|_| {
                sleeps(&mut waiter, 1_000, 1);
                waiter.budget()
            })
            .collect();
        assert_eq!(budgets.iter().filter(|budget| !budget.is_zero()).count(), 1);
    }

    #[test]
    fn what_is_due_soon_is_waited_for_awake() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        sleeps(&mut waiter, 5_000, 30);
        let now = micros(1_000_000);
        assert_eq!(waiter.idle(now, false, Some(now + Duration::from_millis(2))), Pause::Sleep);
        assert_ne!(waiter.idle(now, false, Some(now + Duration::from_micros(9))), Pause::Sleep);
    }

    #[test]
    fn on_one_processor_it_yields() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        assert_eq!(waiter.idle(micros(0), true, None), Pause::Yield);
        assert_eq!(waiter.idle(micros(0), false, None), Pause::Spin);
        assert_eq!(waiter.idle(micros(30), false, None), Pause::Yield);
        assert_eq!(waiter.idle(micros(31), false, None), Pause::Spin);
        assert_eq!(waiter.idle(micros(150), false, None), Pause::Sleep);
    }

    #[test]
    fn where_others_need_the_processor_it_sleeps() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        waiter.idle(micros(0), false, None);
        assert_eq!(waiter.idle(micros(20), false, None), Pause::Yield);
        waiter.yielded(micros(20), micros(21), false);
        assert_eq!(waiter.idle(micros(21), false, None), Pause::Spin);
        waiter.yielded(micros(41), micros(72), false);
        assert_eq!(waiter.idle(micros(72), false, None), Pause::Sleep);
        assert_ne!(waiter.idle(micros(72), true, None), Pause::Sleep);
    }

    #[test]
    fn a_wake_for_nothing_leads_straight_back_to_sleep() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        waiter.idle(micros(0), false, None);
        waiter.woken(micros(500), None);
        assert_eq!(waiter.idle(micros(500), false, None), Pause::Sleep);
    }

    #[test]
    fn the_cost_of_a_wake_is_learnt_within_limits() {
        let mut waiter = Waiter::new(WaitPolicy::Adaptive);
        (0..50).for_each(|_| waiter.woken(micros(104), Some(micros(100))));
        assert!(waiter.wake_cost_ns < 6_000);
        (0..50).for_each(|_| waiter.woken(micros(9_000), Some(micros(100))));
        assert!(waiter.wake_cost_ns <= WAKE_COST_MAX_NS);
    }

    #[test]
    fn the_fixed_policies_are_fixed() {
        assert_eq!(Waiter::new(WaitPolicy::Spin).idle(micros(0), false, None), Pause::Spin);
        assert_eq!(Waiter::new(WaitPolicy::Block).idle(micros(0), false, None), Pause::Sleep);
    }
}
