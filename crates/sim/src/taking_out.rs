//! An administrator who takes file managers out, and in again, while the volume is used: in place of the members, whose
//! views tell that to all managers.
//!
//! A manager that is out gives all it has to the others, as its own service does then, and is in again some seconds
//! after it has drained, or before.

use node::Cx;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use wire::NodeId;

/// Pauses between two steps of the administrator, in milliseconds.
const PAUSE_MS: (u64, u64) = (1_000, 6_000);
/// One step in so many takes a manager in again that has not drained yet.
const EARLY_ONE_IN: u64 = 12;
/// Pause before a manager that has not drained is asked again.
const DRAIN_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    /// Grows with each change of what follows, as a view of the members does.
    view: Cell<u64>,
    out: Cell<Option<NodeId>>,
    has_drained: Cell<bool>,
    drained: Cell<u64>,
}

/// The manager that is out, as all managers see it.
#[derive(Clone, Debug, Default)]
pub struct TakenOut(Rc<State>);

impl TakenOut {
    /// How often a manager has drained.
    pub fn drained(&self) -> u64 {
        self.0.drained.get()
    }

    /// Those of `managers` that are in.
    pub(crate) fn all_in(&self, managers: &[NodeId]) -> BTreeSet<NodeId> {
        managers.iter().copied().filter(|manager| self.0.out.get() != Some(*manager)).collect()
    }

    fn set(&self, out: Option<NodeId>) {
        self.0.view.set(self.0.view.get() + 1);
        self.0.out.set(out);
        self.0.has_drained.set(false);
    }

    /// A manager's part, beside the moves of its sites: it hears who is out, and says when it has drained.
    pub(crate) async fn follow(
        self,
        cx: Cx,
        manager: impl Fn() -> Option<names::Handle>,
        managers: Vec<NodeId>,
    ) {
        while let Some(manager) = manager() {
            let view = self.0.view.get();
            manager.hear_members(view, BTreeSet::new());
            let drains = self.0.out.get() == Some(cx.id()) && !self.0.has_drained.get();
            if drains {
                let others = managers.iter().copied().filter(|other| *other != cx.id());
                let drained = manager.drain(view, others.collect()).await;
                if drained.is_ok() && self.0.view.get() == view {
                    self.0.has_drained.set(true);
                    self.0.drained.set(self.0.drained.get() + 1);
                }
            }
            drop(manager);
            cx.sleep(DRAIN_PAUSE).await;
        }
    }

    /// The administrator, on the node of the first manager, which is never out.
    pub(crate) async fn administer(self, cx: Cx, others: Vec<NodeId>) {
        loop {
            let pause = PAUSE_MS.0 + cx.random() % (PAUSE_MS.1 - PAUSE_MS.0);
            cx.sleep(Duration::from_millis(pause)).await;
            let is_early = || cx.random().is_multiple_of(EARLY_ONE_IN);
            match self.0.out.get() {
                None => self.set(Some(others[(cx.random() % others.len() as u64) as usize])),
                Some(_) if self.0.has_drained.get() || is_early() => self.set(None),
                Some(_) => {}
            }
        }
    }
}
