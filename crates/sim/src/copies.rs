//! Checks of a volume with copies, from outside: what clients are answered, by what the coordination store has shown.
//!
//! A server that answers a client is the only one that does in that epoch of the group, and was the group's primary as
//! far as anybody could know when the request came: one that the store had shown to be out answers none that comes
//! later. In the end every group is whole, and all of its replicas have the same.

use crate::queue::Picos;
use members::groups::{Group, Table};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use stripe::Digest;
use stripe::protocol::ObjectRequest;
use wire::{CallHeader, Channel, GroupId, Header, Kind, NodeId, SessionEpoch};

/// What one replica of a group has.
type Digests = BTreeMap<(GroupId, NodeId), Vec<Digest>>;

/// A client's request to a group.
#[derive(Clone, Copy, Debug)]
struct GroupCall {
    /// The session and the number of the call: a slot is used again and again.
    call: (SessionEpoch, u32),
    group: GroupId,
    epoch: u32,
    /// Another server had been shown to be the primary when it came.
    is_late: bool,
}

#[derive(Debug, Default)]
struct Seen {
    groups: BTreeMap<GroupId, Group>,
    /// By client, server and slot.
    asked: BTreeMap<(NodeId, NodeId, u16), GroupCall>,
    answered: BTreeMap<(GroupId, u32), NodeId>,
    violations: Vec<String>,
}

/// The checks. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct CopyCheck(Rc<RefCell<Seen>>);

impl CopyCheck {
    /// The store shows these groups from now on.
    pub fn note_groups(&self, table: &Table) {
        let mut seen = self.0.borrow_mut();
        seen.groups = table.iter().map(|(id, group)| (id, group.clone())).collect();
    }

    /// Whether there are groups, and none lacks a replica.
    pub fn is_whole(&self) -> bool {
        let seen = self.0.borrow();
        !seen.groups.is_empty() && seen.groups.values().all(|group| group.lacks() == 0)
    }

    /// The groups that lack a replica.
    pub fn lacking(&self) -> Vec<(GroupId, Group)> {
        let seen = self.0.borrow();
        let lacking = seen.groups.iter().filter(|(_, group)| group.lacks() > 0);
        lacking.map(|(id, group)| (*id, group.clone())).collect()
    }

    /// A message has come to its receiver.
    pub(crate) fn arrived(&self, header: &Header, call: &CallHeader, body: &[u8]) {
        if (header.kind, header.channel) != (Kind::Request, Channel::STRIPE) {
            return;
        }
        let Ok(request) = ObjectRequest::decode(body) else { return };
        if !request.group.is_listed() {
            return;
        }
        let mut seen = self.0.borrow_mut();
        let key = (header.source, header.destination, call.slot);
        let number = (header.epoch, header.sequence);
        if seen.asked.get(&key).is_some_and(|asked| asked.call == number) {
            return; // it was sent again
        }
        let (group, epoch) = (request.group, request.group_epoch);
        let is_late = seen.groups.get(&group).is_some_and(|shown| {
            shown.epoch() > epoch && shown.primary().server != header.destination
        });
        seen.asked.insert(key, GroupCall { call: number, group, epoch, is_late });
    }

    /// A message was sent.
    pub(crate) fn sent(&self, now: Picos, header: &Header, call: &CallHeader) {
        let is_reply = (header.kind, header.channel) == (Kind::Reply, Channel::STRIPE);
        if !is_reply || call.status != 0 {
            return;
        }
        let mut seen = self.0.borrow_mut();
        let (client, server) = (header.destination, header.source);
        let Some(asked) = seen.asked.get(&(client, server, call.slot)).copied() else { return };
        let GroupCall { call: number, group, epoch, is_late } = asked;
        if number != (header.epoch, header.sequence) {
            return;
        }
        if is_late {
            let text = format!("{now} {server} answers for {group} in epoch {epoch}, and is out");
            seen.violations.push(text);
        }
        let first = *seen.answered.entry((group, epoch)).or_insert(server);
        if first != server {
            let text = format!("{now} {first} and {server} answer for {group} in epoch {epoch}");
            seen.violations.push(text);
        }
    }

    /// Violations since the last call.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().violations)
    }

    /// Compares what the replicas of each group have, at rest; the first difference.
    fn compare(&self, held: &Digests) -> Result<(), String> {
        for (id, group) in &self.0.borrow().groups {
            let of = |server: NodeId| held.get(&(*id, server)).map_or(&[][..], Vec::as_slice);
            let primary = group.primary().server;
            for other in group.in_sync().map(|replica| replica.server) {
                let differs = of(primary).iter().zip(of(other)).find(|(one, other)| one != other);
                match differs {
                    Some((one, other)) => return Err(format!("{id}: {one:?} and {other:?}")),
                    None if of(primary).len() != of(other).len() => {
                        let objects = [primary, other].map(|server| of(server).len());
                        return Err(format!(
                            "{id}: {primary} and {other} have {objects:?} objects"
                        ));
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }
}

/// Comparison of all replicas, at the end of a run.
#[derive(Debug, Default)]
pub struct Comparison {
    asked: Vec<(NodeId, Answer)>,
    is_over: bool,
}

/// What a server says that it has, once it has said so.
pub type Answer = Rc<RefCell<Option<Result<Vec<Digest>, wire::Errno>>>>;

impl Comparison {
    /// Whether the servers were asked.
    pub fn has_begun(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether all is compared.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// These answers will come.
    pub fn begin(&mut self, asked: Vec<(NodeId, Answer)>) {
        self.asked = asked;
    }

    /// Compares once all have answered. The error names a violation.
    pub fn tick(&mut self, check: &CopyCheck) -> Result<(), String> {
        if self.is_over || self.asked.iter().any(|(_, answer)| answer.borrow().is_none()) {
            return Ok(());
        }
        self.is_over = true;
        let mut held = Digests::new();
        for (server, answer) in &self.asked {
            let answer = answer.borrow_mut().take().expect("all have answered");
            let all =
                answer.map_err(|errno| format!("{server} does not say what it has: {errno}"))?;
            for digest in all {
                held.entry((digest.group, *server)).or_default().push(digest);
            }
        }
        check.compare(&held)
    }
}
