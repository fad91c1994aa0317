//! Ways to wait when there is nothing to do: look again, let others run, or sleep.
//!
//! Waking a sleeper on another processor costs 30 us on a virtual machine and 2 to 5 us on bare metal; looking again
//! costs nothing but the processor. So the adaptive policy looks for about as long as a wake costs, as long as what it
//! waits for tends to come that soon; it yields instead when the peer runs on the same processor, where spinning only
//! delays what is waited for. Common gaps are measured, not assumed. While no other thread wants the processor, regular
//! arrivals are waited for awake even if they take longer than a wake: looking then takes nothing from others.
//!
//! Beside a thread that computes (a compiler) all that is different: a thread that looks or yields has soon had its
//! share, and the scheduler lets the other one run for whole slices of some ms. A thread that sleeps keeps its share,
//! and is run as soon as it is woken. So where a look has come that late, a node sleeps at once, for a while.

mod contention;
mod thrift;

use contention::Contention;
use std::time::Duration;
pub use thrift::Thrift;
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

/// The next step of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Look again at once.
    Spin,
    /// Let others run on this processor, then look again.
    Yield,
    /// Sleep until something is ready.
    Sleep,
}

/// Counters of waiting, since the start.
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
/// A gap counts as at most this many wakes, so that a long rest is forgotten within ten arrivals.
const GAP_MAX_WAKES: u64 = 16;
/// Gaps up to this many wakes are worth spinning for.
const GAP_SPIN_WAKES: u32 = 2;
/// Gaps up to this long are waited for awake on a processor that no other thread wants: 10,000 arrivals a second and
/// more.
const REST_WORTH: Duration = Duration::from_micros(110);
/// A rest counts as at most this long, so that a long one is forgotten within ten.
const REST_MAX_NS: u64 = 1_000_000;
/// Between two looks at most this much time passes when no other thread ran on the processor meanwhile.
const LOOK_SPAN: Duration = Duration::from_micros(3);
/// How long the processor counts as wanted after others ran. A kernel thread's moment is forgotten at once, a loaded
/// machine is tried again now and then.
const WANTED_SPANS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));
/// Others that keep the processor for so long compute: peers and kernel threads have done their turn earlier.
const SLICE: Duration = Duration::from_micros(500);
/// How long others are taken to compute after they did. Each look that finds out costs slices of theirs.
const COMPUTING_SPANS: (Duration, Duration) = (Duration::from_millis(16), Duration::from_secs(1));
/// After this share of the budget has been spun, others on this processor get a chance between looks.
const PURE_SPIN_SHARE: u32 = 4;

/// Timers that are due within this are waited for awake.
const DUE_SOON: Duration = Duration::from_micros(30);

/// Decides for one node.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    idle_since: Option<Time>,
    slept: bool,
    gap_ns: u64,
    /// Of the gaps that are longer than is worth spinning for: a reply that comes at once says nothing of the next
    /// request.
    rest_ns: u64,
    wake_cost_ns: u64,
    /// The last look without a sleep since.
    looked_at: Option<Time>,
    /// How often others have run on the processor of this thread while it wanted to; see [`Waiter::new`].
    switches: fn() -> u64,
    switched: u64,
    /// Others want this processor.
    wanted: Contention,
    /// Others compute on it.
    computing: Contention,
    thrift: Option<Thrift>,
    counters: WaitCounters,
}

impl Waiter {
    /// With nothing measured yet. `switches` counts how often other threads have run on this thread's processor
    /// although this one wanted it; it is asked only when a look came late.
    pub fn new(policy: WaitPolicy, switches: fn() -> u64) -> Waiter {
        let wake_cost_ns = WAKE_COST_START_NS;
        let counters = WaitCounters::default();
        Waiter {
            policy,
            idle_since: None,
            slept: false,
            gap_ns: wake_cost_ns,
            rest_ns: REST_MAX_NS,
            wake_cost_ns,
            looked_at: None,
            switches,
            switched: 0,
            wanted: Contention::new(WANTED_SPANS),
            computing: Contention::new(COMPUTING_SPANS),
            thrift: None,
            counters,
        }
    }

    /// From now on the adaptive policy looks only as long as `thrift` allows.
    pub fn save(&mut self, thrift: Thrift) {
        self.thrift = Some(thrift);
    }

    /// Whether it matters to the policy where the peers run.
    pub fn minds_sharing(&self) -> bool {
        self.policy != WaitPolicy::Block
    }

    /// The counters since the start.
    pub fn counters(&self) -> WaitCounters {
        self.counters
    }

    /// How long the adaptive policy now looks before it sleeps, where it has the processor to itself or not.
    pub fn budget(&self, alone: bool) -> Duration {
        let rest = Duration::from_nanos(self.rest_ns);
        if alone && rest <= REST_WORTH {
            2 * rest
        } else if Duration::from_nanos(self.gap_ns) <= self.worth() {
            self.worth()
        } else {
            Duration::from_nanos(self.wake_cost_ns / 8)
        }
    }

    /// The longest gap that is worth spinning for, even when other threads want the processor.
    fn worth(&self) -> Duration {
        Duration::from_nanos(self.wake_cost_ns) * GAP_SPIN_WAKES
    }

    /// Something was done at `now`.
    pub fn busy(&mut self, now: Time) {
        let Some(since) = self.idle_since.take() else { return };
        self.thrift.iter_mut().for_each(Thrift::arrived);
        let gap = self.gap_awake(now.since(since));
        if gap > self.worth().as_nanos() as u64 {
            self.rest_ns = (3 * self.rest_ns + gap.min(REST_MAX_NS)) / 4;
        }
        self.gap_ns = (3 * self.gap_ns + gap.min(self.wake_cost_ns * GAP_MAX_WAKES)) / 4;
        self.counters.spin_hits += u64::from(!self.slept);
        self.slept = false;
        self.looked_at = None;
    }

    /// How long the wait would have been without a sleep, in ns: what sleeping costs must not decide for sleeping.
    fn gap_awake(&self, gap: Duration) -> u64 {
        let wake_ns = if self.slept { self.wake_cost_ns } else { 0 };
        (gap.as_nanos() as u64).saturating_sub(wake_ns)
    }

    /// Nothing was to be done at `now`; `same_processor` when a peer runs where this node does; `due` when something is
    /// to be done then.
    pub fn idle(&mut self, now: Time, same_processor: bool, due: Option<Time>) -> Pause {
        let since = *self.idle_since.get_or_insert(now);
        self.note_look(now);
        let pause = match self.policy {
            WaitPolicy::Block => Pause::Sleep,
            WaitPolicy::Spin if same_processor => Pause::Yield,
            WaitPolicy::Spin => Pause::Spin,
            WaitPolicy::Adaptive => {
                // A sleep until something that is due that soon ends late by a wake.
                let soon = due.is_some_and(|due| due.since(now) <= DUE_SOON);
                let alone = !same_processor && !self.wanted.lasts(now);
                let sleeps = self.thrift.as_mut().is_some_and(|thrift| thrift.sleeps(alone));
                if sleeps && !soon {
                    self.slept = true;
                }
                if self.computing.lasts(now) {
                    Pause::Sleep
                } else {
                    self.adapt(now.since(since), self.budget(alone), same_processor, soon)
                }
            }
        };
        match pause {
            Pause::Spin => self.counters.spins += 1,
            Pause::Yield => self.counters.yields += 1,
            Pause::Sleep => self.counters.sleeps += 1,
        }
        pause
    }

    /// Looks follow each other closely, unless others run on this processor, or the processor itself was taken away.
    fn note_look(&mut self, now: Time) {
        let before = self.looked_at.replace(now);
        let late = before.map_or(Duration::ZERO, |before| now.since(before));
        if late > LOOK_SPAN {
            let before = std::mem::replace(&mut self.switched, (self.switches)());
            if self.switched > before {
                self.wanted.note(now);
            }
            if self.switched > before && late > SLICE {
                self.computing.note(now);
            }
        }
    }

    fn adapt(&self, idle: Duration, budget: Duration, same_processor: bool, soon: bool) -> Pause {
        let pure = budget.min(self.worth()) / PURE_SPIN_SHARE;
        if (self.slept || idle >= budget) && !soon {
            Pause::Sleep
        } else if same_processor || idle >= pure {
            Pause::Yield
        } else {
            Pause::Spin
        }
    }

    /// The node slept until `now`. When it was to be woken by the clock alone, `due` says when: what it came too late
    /// is what a wake costs here.
    pub fn woken(&mut self, now: Time, due: Option<Time>) {
        self.slept = true;
        self.looked_at = None;
        if let Some(due) = due {
            let cost = (now.since(due).as_nanos() as u64).clamp(WAKE_COST_MIN_NS, WAKE_COST_MAX_NS);
            self.wake_cost_ns = (7 * self.wake_cost_ns + cost) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static SWITCHES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    fn waiter(policy: WaitPolicy) -> Waiter {
        Waiter::new(policy, || SWITCHES.get())
    }

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
        let mut waiter = waiter(WaitPolicy::Adaptive);
        assert_eq!(sleeps(&mut waiter, 10, 100), 0);
        sleeps(&mut waiter, 5_000, 20);
        assert!(
            waiter.budget(true) < Duration::from_micros(5),
            "rare arrivals are not worth spinning"
        );
        assert!(sleeps(&mut waiter, 10, 100) < 20, "and a burst is noticed");
        assert_eq!(sleeps(&mut waiter, 10, 100), 0);
    }

    #[test]
    fn what_comes_regularly_is_waited_for_on_a_processor_that_nobody_else_wants() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        sleeps(&mut waiter, 100, 20);
        assert_eq!(sleeps(&mut waiter, 100, 1_000), 0);
        for n in 0..1_000 {
            waiter.idle(micros(100 * n), false, None);
            waiter.busy(micros(100 * n + 2));
            waiter.idle(micros(100 * n + 3), false, None);
            assert_ne!(waiter.idle(micros(100 * n + 99), false, None), Pause::Sleep);
            waiter.busy(micros(100 * n + 100));
        }
        assert!(sleeps(&mut waiter, 300, 1_000) > 980, "what comes later is slept for");
    }

    /// Lets something arrive `gap_us` after each arrival was met, to which a sleeper wakes; counts how often it slept.
    fn sleeps_before_replies(waiter: &mut Waiter, gap_us: u64, arrivals: u64) -> u64 {
        let (before, mut at) = (waiter.counters().sleeps, 0);
        let wake_us = WAKE_COST_START_NS / 1000;
        for _ in 0..arrivals {
            let mut pauses = (0..gap_us).map(|us| waiter.idle(micros(at + us), false, None));
            let slept = pauses.any(|pause| pause == Pause::Sleep);
            at += gap_us;
            if slept {
                at += wake_us;
                waiter.woken(micros(at), None);
            }
            waiter.busy(micros(at));
        }
        waiter.counters().sleeps - before
    }

    #[test]
    fn what_a_sleeper_waits_for_its_own_wake_does_not_keep_it_asleep() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        sleeps(&mut waiter, 5_000, 20);
        assert_eq!(sleeps_before_replies(&mut waiter, 120, 100), 100, "not worth it");
        sleeps_before_replies(&mut waiter, 100, 40);
        assert_eq!(sleeps_before_replies(&mut waiter, 100, 100), 0, "with the wake it is 130");
    }

    #[test]
    fn who_is_kept_from_looking_leaves_the_processor_to_others() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        sleeps(&mut waiter, 100, 20);
        let start = 10_000;
        SWITCHES.set(1);
        waiter.idle(micros(start), false, None);
        assert_eq!(waiter.idle(micros(start + 70), false, None), Pause::Sleep);
        waiter.busy(micros(start + 100));
        waiter.idle(micros(start + 200), false, None);
        assert_eq!(waiter.idle(micros(start + 209), false, None), Pause::Sleep, "for a while");
    }

    #[test]
    fn beside_threads_that_compute_a_node_sleeps_at_once() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        assert_eq!(waiter.idle(micros(0), true, None), Pause::Yield);
        SWITCHES.set(1);
        assert_eq!(waiter.idle(micros(20), true, None), Pause::Yield, "a peer had its turn");
        SWITCHES.set(2);
        assert_eq!(waiter.idle(micros(4_000), true, None), Pause::Sleep, "others compute");
        waiter.woken(micros(4_100), None);
        waiter.busy(micros(4_100));
        assert_eq!(waiter.idle(micros(4_200), true, None), Pause::Sleep);
        waiter.woken(micros(30_000), None);
        waiter.busy(micros(30_000));
        assert_eq!(waiter.idle(micros(30_010), true, None), Pause::Yield, "tried again");
        SWITCHES.set(3);
        waiter.idle(micros(35_000), true, None);
        waiter.busy(micros(35_010));
        assert_eq!(waiter.idle(micros(60_000), true, None), Pause::Sleep, "for twice as long");
    }

    #[test]
    fn on_one_processor_it_yields() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        assert_eq!(waiter.idle(micros(0), true, None), Pause::Yield);
        assert_eq!(waiter.idle(micros(0), false, None), Pause::Spin);
        assert_eq!(waiter.idle(micros(30), false, None), Pause::Yield);
        assert_eq!(waiter.idle(micros(60), false, None), Pause::Sleep);
    }

    #[test]
    fn a_wake_for_nothing_leads_straight_back_to_sleep() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        waiter.idle(micros(0), false, None);
        waiter.woken(micros(500), None);
        assert_eq!(waiter.idle(micros(500), false, None), Pause::Sleep);
    }

    #[test]
    fn the_cost_of_a_wake_is_learnt_within_limits() {
        let mut waiter = waiter(WaitPolicy::Adaptive);
        (0..50).for_each(|_| waiter.woken(micros(104), Some(micros(100))));
        assert!(waiter.wake_cost_ns < 6_000);
        (0..50).for_each(|_| waiter.woken(micros(9_000), Some(micros(100))));
        assert!(waiter.wake_cost_ns <= WAKE_COST_MAX_NS);
    }

    #[test]
    fn the_fixed_policies_are_fixed() {
        assert_eq!(waiter(WaitPolicy::Spin).idle(micros(0), false, None), Pause::Spin);
        assert_eq!(waiter(WaitPolicy::Block).idle(micros(0), false, None), Pause::Sleep);
    }
}
