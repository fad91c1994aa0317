//! The service's tasks about groups of replicas: proposals, which are decided in order and made durable together, and
//! the planner.
//!
//! A server that dies leaves some hundred groups whose other replicas all propose to go on without it, and serve
//! nothing until that is durable: so proposals wait in one queue, and those that wait share a sync.

use super::Service;
use crate::groups::{Group, GroupId, HAND_OVER, HandOver, Proposal, Replica, Step, ToldGroup};
use crate::limits::{HAND_OVER_AGAIN, PLAN_PERIOD, PROPOSALS_AT_ONCE};
use crate::protocol::{Empty, Planned};
use crate::registry::{Denied, Registry};
use node::{Call, CallError, Request, race};
use std::collections::BTreeMap;
use store::Append;
use wire::field::{Message, encoded};
use wire::{Channel, Errno, NodeId, Time};

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
            self.ask_primaries();
            let due = self.due();
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

impl Service {
    /// The planner makes its next plan when the mark is on stable storage.
    pub(super) async fn empty(&self, asked: Empty) -> Result<(), Errno> {
        self.change_for_good(|registry| registry.handle_empty(asked)).await
    }

    pub(super) fn planned(&self) -> Planned {
        let registry = self.registry();
        let mut planner = self.0.planner.borrow_mut();
        Planned {
            is_settled: planner.is_settled(self.0.cx.now(), &registry),
            hand_overs: planner.wishes().len() as u64,
            emptied: registry.emptied().collect(),
        }
    }

    /// When there is something to do though nothing has changed.
    fn due(&self) -> Option<Time> {
        let (now, planner) = (self.0.cx.now(), self.0.planner.borrow());
        let again = (!planner.wishes().is_empty()).then(|| now + HAND_OVER_AGAIN);
        planner.poll_due(now).into_iter().chain(again).min()
    }

    /// Asks the primaries that had better be others to hand over, unless they are being asked. A request that is
    /// lost is repeated by the next plan.
    fn ask_primaries(&self) {
        let wishes = self.0.planner.borrow().wishes().to_vec();
        let mut of: BTreeMap<NodeId, Vec<HandOver>> = BTreeMap::new();
        for (group, epoch, to) in wishes {
            let primary = self.registry().decided_groups().get(group).map(Group::primary);
            let primary = primary.map_or(to.server, |primary| primary.server);
            of.entry(primary).or_default().push(HandOver { group, epoch, to });
        }
        for (primary, asked) in of {
            if !self.0.asked.borrow_mut().insert(primary) {
                continue;
            }
            let service = self.clone();
            self.0.cx.spawn("members hand-over", async move {
                for hand_over in asked {
                    if service.ask_to_hand_over(primary, &hand_over).await.is_err() {
                        break;
                    }
                }
                service.0.asked.borrow_mut().remove(&primary);
            });
        }
    }

    async fn ask_to_hand_over(&self, primary: NodeId, asked: &HandOver) -> Result<(), CallError> {
        let cx = &self.0.cx;
        let call = Call {
            to: primary,
            channel: Channel::LEASES,
            op: HAND_OVER,
            once: false,
            deadline: Some(HAND_OVER_AGAIN),
            body: &asked.encode(),
            data: cx.pieces(),
            trailer: &[],
            into: cx.pieces(),
        };
        cx.call(call).await.map(drop)
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
