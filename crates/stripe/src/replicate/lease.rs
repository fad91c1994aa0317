//! Leases between the replicas of groups, and what follows from them: who is proposed to be in sync no more, when a
//! replica serves after a start, and which one is filled.

use super::fill::FILLS_MAX;
use crate::groups::Local;
use crate::server::Inner;
use members::Groups as Table;
use members::groups::{Change, Group, Memory, Replica, Word};
use node::{Answer, Bug, Call, Request};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::{Field, fields};
use wire::limits::{BODY_BYTES, TRAILER_BYTES_MAX};
use wire::{Channel, Errno, GroupId, NodeId, Time};

/// Operation of [`Channel::LEASES`]: asks for leases of groups; says what the asker has of them. Pure.
pub(crate) const LEASE: u16 = 100;

/// Between two requests for leases: two may be lost before one of 2 s ends.
const LEASE_PERIOD: Duration = Duration::from_millis(250);
/// How long an answer is waited for.
const LEASE_PATIENCE: Duration = Duration::from_millis(1_500);

/// What a replica says of itself in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    group: GroupId,
    /// 0: the group is not known there.
    epoch: u32,
    /// The verifier; 0 where what goes by it is lost.
    memory: u64,
    /// Of an answer: the lease is granted.
    granted: bool,
}
fields!(Told { group, epoch, memory, granted });

impl Told {
    const BYTES: usize = 17;

    fn of(local: &Local, granted: bool) -> Told {
        let word = local.seat.borrow().word();
        let memory = match word.memory {
            Memory::Kept(verifier) => verifier,
            Memory::Lost => 0,
        };
        Told { group: local.id, epoch: word.epoch, memory, granted }
    }

    fn word(&self, incarnation: u64) -> Word {
        let memory = if self.memory == 0 { Memory::Lost } else { Memory::Kept(self.memory) };
        Word { incarnation, epoch: self.epoch, memory }
    }

    fn encode_all(told: &[Told]) -> Vec<u8> {
        let mut trailer = Vec::new();
        (told.len() as u16).put(&mut trailer);
        told.iter().for_each(|told| told.put(&mut trailer));
        trailer.resize(trailer.len().next_multiple_of(8), 0);
        trailer
    }

    fn decode_all(trailer: &[u8]) -> Result<Vec<Told>, Short> {
        let mut input = Decoder::new(trailer);
        let count = input.u16()?;
        (0..count).map(|_| Told::take(&mut input)).collect()
    }
}

/// Groups of which one message tells.
const TOLD_MAX: usize = (TRAILER_BYTES_MAX - 8) / Told::BYTES;

impl Inner {
    /// Keeps this server's replicas for as long as the server runs, from the first group of the cluster on.
    pub async fn keep_groups(self: Rc<Self>, table: Table) {
        self.wait_for_groups(&table).await;
        self.serve_others();
        loop {
            self.follow_table();
            self.tend_replicas();
            self.ask_others();
            self.cx.sleep(LEASE_PERIOD).await;
        }
    }

    async fn wait_for_groups(&self, table: &Table) {
        loop {
            let changed = table.changed();
            if table.is_known() && !table.table().is_empty() {
                return;
            }
            if table.is_known() {
                changed.await;
            } else {
                table.refresh_soon();
                node::race(changed, self.cx.sleep(LEASE_PERIOD)).await;
            }
        }
    }

    /// The replicas here are those that the table has on disks that serve.
    fn follow_table(self: &Rc<Self>) {
        let Some(table) = &self.groups.table else { return };
        let known: Vec<(GroupId, Group)> =
            table.table().iter().map(|(id, group)| (id, group.clone())).collect();
        let mut there = BTreeMap::new();
        for (id, group) in known {
            if let Some(own) = group.replicas().iter().find(|replica| self.is_own(replica)) {
                there.insert(id, (*own, group));
            }
        }
        let mut local = self.groups.local.borrow_mut();
        local.retain(|id, local| there.get(id).is_some_and(|(own, _)| *own == local.own));
        for (id, (own, group)) in there {
            let new = || Rc::new(Local::new(&self.cx, id, own, group.clone()));
            let replica = local.entry(id).or_insert_with(new);
            replica.learn(&self.cx, group);
        }
    }

    fn is_own(&self, replica: &Replica) -> bool {
        let disk = self.disks.get(usize::from(replica.disk));
        disk.filter(|disk| disk.check().is_ok()).is_some_and(|disk| {
            let label = disk.index.disk();
            Replica::of_label(self.config.server, replica.disk, label) == *replica
        })
    }

    fn tend_replicas(self: &Rc<Self>) {
        for local in self.groups.all() {
            self.leave_damaged(&local);
            let proposal = local.seat.borrow_mut().propose(self.cx.now());
            let proposal = proposal.or_else(|| self.hasty(&local));
            if let Some(change) = proposal {
                let (service, local) = (self.clone(), local.clone());
                self.cx.spawn("stripe proposal", async move {
                    // An outcome that is not known shows itself by the group's epoch.
                    let _ = service.propose(&local, change).await;
                    local.seat.borrow_mut().handle_proposed();
                    local.moved.notify_all();
                });
            }
            self.settle_alone(&local);
            self.begin_fill(&local);
        }
    }

    /// The proposal of a planted bug.
    fn hasty(&self, local: &Local) -> Option<Change> {
        let group = local.group();
        let primary = group.primary();
        let is_other = self.cx.has_bug(Bug::PrimaryNotAwaited) && primary != local.own;
        let heard = self.groups.heard.borrow().get(&primary.server).map(|(_, at)| *at);
        let is_late = heard.is_some_and(|at| self.cx.now().since(at) > 2 * LEASE_PERIOD);
        let is_due = is_other && is_late && group.is_in_sync(local.own);
        is_due.then_some(Change::Remove(primary))
    }

    /// A primary that has lost what was acknowledged from memory, and that no other replica in sync is beside, serves
    /// what is durable, under a new verifier: the epoch of a change that only this incarnation can have made.
    fn settle_alone(self: &Rc<Self>, local: &Rc<Local>) {
        if !local.seat.borrow().settles() || local.proposing.replace(true) {
            return;
        }
        let (service, local) = (self.clone(), local.clone());
        self.cx.spawn("stripe settlement", async move {
            let fenced = service.propose(&local, Change::Fence).await;
            let epoch = local.group().epoch();
            if fenced.is_ok() && local.seat.borrow().settles() {
                let drawn = u64::from(epoch) << 32 | service.cx.random() >> 33 | 1;
                let is_kept = service.cx.has_bug(Bug::SettledVerifierKept);
                let verifier = if is_kept { 1 } else { drawn };
                if local.settle(&service.cx, epoch, verifier) {
                    local.remembers.set(true);
                }
            }
            local.proposing.set(false);
        });
    }

    /// Asks all servers that share a group with this one.
    fn ask_others(self: &Rc<Self>) {
        let mut of: BTreeMap<NodeId, Vec<Rc<Local>>> = BTreeMap::new();
        for local in self.groups.all() {
            for other in local.group().replicas().iter().filter(|other| **other != local.own) {
                of.entry(other.server).or_default().push(local.clone());
            }
        }
        for (server, shared) in of {
            if server != self.config.server && self.groups.asked.borrow_mut().insert(server) {
                let service = self.clone();
                self.cx.spawn("stripe lease", async move {
                    for some in shared.chunks(TOLD_MAX) {
                        service.ask_for_leases(server, some).await;
                    }
                    service.groups.asked.borrow_mut().remove(&server);
                });
            }
        }
    }

    async fn ask_for_leases(&self, server: NodeId, shared: &[Rc<Local>]) {
        let told: Vec<Told> = shared.iter().map(|local| Told::of(local, false)).collect();
        let (asked, trailer) = (self.cx.now(), Told::encode_all(&told));
        let call = Call {
            to: server,
            channel: Channel::LEASES,
            op: LEASE,
            once: false,
            deadline: Some(LEASE_PATIENCE),
            body: &incarnation_body(self.cx.incarnation()),
            data: self.cx.pieces(),
            trailer: &trailer,
            into: self.cx.pieces(),
        };
        let Ok(reply) = self.cx.call(call).await else { return };
        let incarnation = Decoder::new(&reply.body).u64().unwrap_or(0);
        let Ok(answers) = Told::decode_all(reply.trailer()) else { return };
        if reply.status != 0 {
            return;
        }
        self.groups.heard.borrow_mut().insert(server, (incarnation, self.cx.now()));
        for told in answers.iter().filter(|told| told.epoch > 0) {
            if let Some(local) = self.groups.get(told.group) {
                let (now, word) = (self.cx.now(), told.word(incarnation));
                local.seat.borrow_mut().handle_answer(now, server, word, asked, told.granted);
                self.expect_epoch(told.epoch, local.group().epoch());
            }
        }
    }

    /// LEASE.
    pub(super) fn tell_leases(&self, request: Request) {
        let (Ok(incarnation), Ok(asked)) =
            (Decoder::new(&request.body).u64(), Told::decode_all(request.trailer()))
        else {
            return self.cx.reply(request, Answer::error(Errno::EPROTO));
        };
        let (source, now) = (request.source, self.cx.now());
        let answers: Vec<Told> = asked
            .iter()
            .map(|told| match self.groups.get(told.group) {
                Some(local) => {
                    let word = told.word(incarnation);
                    let granted = local.seat.borrow_mut().handle_ask(now, source, word);
                    self.expect_epoch(told.epoch, local.group().epoch());
                    Told::of(&local, granted)
                }
                None => Told { group: told.group, ..Told::default() },
            })
            .collect();
        let (body, trailer) = (incarnation_body(self.cx.incarnation()), Told::encode_all(&answers));
        self.cx.reply(request, Answer { trailer: &trailer, ..Answer::body(&body) });
    }

    /// Fills a replica that is not in sync, if its server is there and this one is the primary.
    fn begin_fill(self: &Rc<Self>, local: &Rc<Local>) {
        let group = local.group();
        let is_primary = local.seat.borrow().orders(self.cx.now(), group.epoch()).is_ok();
        let (due, _) = local.fill_again.get();
        let waits = local.filling.borrow().is_some() || self.cx.now() < due;
        if !is_primary || waits || self.groups.fills.get() >= FILLS_MAX {
            return;
        }
        let heard = self.groups.heard.borrow();
        let lately = |at: Time| self.cx.now().since(at) < LEASE_PATIENCE;
        let target =
            group.replicas().iter().filter(|other| !group.is_in_sync(**other)).find_map(|other| {
                let (incarnation, at) = *heard.get(&other.server)?;
                lately(at).then_some((*other, incarnation))
            });
        drop(heard);
        if let Some((target, incarnation)) = target {
            self.spawn_fill(local, target, incarnation);
        }
    }
}

fn incarnation_body(incarnation: u64) -> [u8; BODY_BYTES] {
    let mut body = [0; BODY_BYTES];
    Encoder::new(&mut body).u64(incarnation);
    body
}
