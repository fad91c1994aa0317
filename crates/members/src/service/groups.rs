//! The service's tasks about groups of replicas: proposals, which are decided in order and made durable together, and
//! the planner.
//!
//! A server that dies leaves some hundred groups whose other replicas all propose to go on without it, and serve
//! nothing until that is durable: so proposals wait in one queue, and those that wait share a sync.

use super::Service;
use crate::groups::{GroupId, Proposal, Replica, Step, ToldGroup};
use crate::limits::{PLAN_PERIOD, PROPOSALS_AT_ONCE};
use crate::registry::{Denied, Registry};
use node::{Request, race};
use store::Append;
use wire::Errno;
use wire::field::{Message, encoded};

/// A proposal's answer, which is not given before the last record that it tells of is on stable storage.
struct Decision {
    request: Request,
    status: u16,
    told: Option<ToldGroup>,
}

impl Service {
    /// The primaries that had better be others, in the planner's eyes: the group, its epoch when that was seen, and the
    /// replica that should lead. Only the present primary may propose it.
    pub fn wishes(&self) -> Vec<(GroupId, u32, Replica)> {
        self.0.planner.borrow().wishes().to_vec()
    }

    pub(super) fn propose(&self, request: Request) {
        self.0.proposals.borrow_mut().push_back(request);
        self.0.proposed.notify_all();
    }

    pub(super) async fn decide_proposals(self) {
        loop {
            let proposed = self.0.proposed.wait();
            let requests: Vec<Request> = {
                let mut proposals = self.0.proposals.borrow_mut();
                let count = proposals.len().min(PROPOSALS_AT_ONCE);
                proposals.drain(..count).collect()
            };
            match requests.is_empty() {
                true => proposed.await,
                false => self.decide(requests).await,
            }
        }
    }

    async fn decide(&self, requests: Vec<Request>) {
        let mut decisions = Vec::new();
        let decide = |registry: &mut Registry, appends: &mut Vec<Append>| {
            for request in requests {
                let (status, told) = decision(registry, &request, appends);
                decisions.push(Decision { request, status, told });
            }
        };
        let result = self.change_groups(decide).await;
        for Decision { request, status, told } in decisions {
            let data = told.map(|told| encoded(&told)).unwrap_or_default();
            match result {
                Ok(()) => self.answer_with(request, status, &[], &data),
                Err(errno) => self.answer_with(request, errno.0, &[], &[]),
            }
        }
    }

    /// Makes changes of groups that are on stable storage, and told, when this ends without an error; and so is all
    /// that was decided before. After an error they may be there or not, and are told once they are.
    async fn change_groups(
        &self,
        change: impl FnOnce(&mut Registry, &mut Vec<Append>),
    ) -> Result<(), Errno> {
        let turn = self.0.turn.acquire(1).await;
        let mut appends = Vec::new();
        change(&mut self.0.registry.borrow_mut(), &mut appends);
        let version = self.0.registry.borrow().decided_groups().version();
        if let Some(append) = joined(appends) {
            self.append(append).await?;
        }
        drop(turn);
        if self.groups().version() < version {
            self.sync().await;
        }
        if self.groups().version() < version { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Plans anew whenever members, disks or groups have changed, and when a disk has been away for too long.
    pub(super) async fn keep_groups(self) {
        let cx = self.0.cx.clone();
        loop {
            let changed = race(self.changed(), self.groups_changed());
            let steps = self.0.planner.borrow_mut().steps(cx.now(), &self.0.registry.borrow());
            let due = self.0.planner.borrow().poll_due(cx.now());
            match due.filter(|_| steps.is_empty()) {
                Some(due) => drop(race(changed, cx.sleep_until(due)).await),
                None if steps.is_empty() => drop(changed.await),
                None => {
                    // Steps that were not made are planned again.
                    let make = |registry: &mut Registry, appends: &mut Vec<Append>| {
                        make(registry, steps, appends)
                    };
                    let _ = self.change_groups(make).await;
                }
            }
            cx.sleep(PLAN_PERIOD).await;
        }
    }
}

/// The records of changes one after the other, as one.
fn joined(appends: Vec<Append>) -> Option<Append> {
    let mut appends = appends.into_iter();
    let mut all = appends.next()?;
    for Append { log, bytes, sequence } in appends {
        assert_eq!(all.log, log, "no log ends between changes that are made together");
        all.bytes.extend_from_slice(&bytes);
        all.sequence = sequence;
    }
    Some(all)
}

/// The status and the group of the answer to a proposal.
fn decision(
    registry: &mut Registry,
    request: &Request,
    appends: &mut Vec<Append>,
) -> (u16, Option<ToldGroup>) {
    let proposal = Proposal::decode(&request.body).map_err(|_| Denied::Failed(Errno::EINVAL));
    let decided = proposal.and_then(|it| registry.handle_group(request.source, &it));
    match decided {
        Ok((told, append)) => {
            appends.push(append);
            (0, Some(told))
        }
        Err(denied) => {
            let (errno, told) = denied.into_answer();
            (errno.0, told)
        }
    }
}

/// Makes the steps of a plan, up to the first that fails. One that is refused was decided by a group that has changed
/// since, and so are those behind it about the same group: the next plan knows better.
fn make(registry: &mut Registry, steps: Vec<Step>, appends: &mut Vec<Append>) {
    for step in steps {
        let made = match step {
            Step::Make(id, group) => registry.handle_make(id, group).map_err(Denied::Failed),
            Step::Change(id, epoch, change) => registry.handle_planned(id, epoch, change),
        };
        match made {
            Ok(append) => appends.push(append),
            Err(Denied::Refused(..)) => {}
            Err(Denied::Failed(_)) => return,
        }
    }
}
