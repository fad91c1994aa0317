//! The model of a server: it orders and takes changes, proposes, fills and is filled, as its [`Seat`] allows.

use super::*;

/// A change at its primary that is not at all others yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub number: u64,
    pub kind: Kind,
    pub object: usize,
    pub verifier: u64,
    pub waits: BTreeSet<usize>,
}

/// A replica that is being filled by this primary.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    pub fill: u64,
    pub is_filled: bool,
    pub whole_in: Option<u32>,
    /// The epoch in which it was proposed to admit it; until that has passed it may be in sync at any time.
    pub admitted_in: Option<u32>,
    /// Changes that it has not taken yet: it is admitted when there are none.
    pub untaken: BTreeSet<u64>,
}

pub(super) struct Server {
    pub seat: Seat,
    pub incarnation: u64,
    pub values: [Value; OBJECTS],
    pub open: Vec<Open>,
    pub filling: BTreeMap<usize, Filling>,
    /// As one that is being filled: by which, and what was forwarded before all came.
    pub filled_by: u64,
    pub aside: [Value; OBJECTS],
}

impl World {
    pub(super) fn learn(&mut self, at: usize) {
        if self.is_cut(at, STORE) || self.is_cut(STORE, at) {
            return;
        }
        let (now, group) = (self.clock(at), self.group.clone());
        if let Some(server) = self.running(at) {
            server.seat.handle_group(now, group);
        }
    }

    pub(super) fn tick(&mut self, at: usize, incarnation: u64) {
        let (now, real) = (self.clock(at), self.now);
        let is_hit = self.damage.as_mut().is_some_and(|random| random.one_in(60));
        let finds_damage = is_hit && self.troubled;
        let Some(server) = self.running(at).filter(|it| it.incarnation == incarnation) else {
            return;
        };
        if finds_damage {
            server.seat.handle_damage(now);
        }
        let (word, group) = (server.seat.word(), server.seat.group().clone());
        let proposal = server.seat.propose(now);
        self.at(real + TICK, Event::Tick(at, incarnation));
        for other in group.replicas().iter().map(|it| place(*it)).filter(|other| *other != at) {
            self.send(at, other, Message::Ask { word, group: group.clone(), asked: now });
        }
        if let Some(change) = proposal {
            self.propose(at, group.epoch(), change);
        }
        self.settle(at);
        self.fill(at);
        self.learn(at);
        self.plan();
    }

    pub(super) fn propose(&mut self, by: usize, epoch: u32, change: Change) {
        let incarnation = self.incarnations[by];
        match self.is_cut(by, STORE) {
            true => {
                let time = self.now + PATIENCE;
                self.at(time, Event::Proposed { to: by, incarnation, group: None });
            }
            false => {
                let time = self.now + self.delay();
                self.at(time, Event::Propose { by, incarnation, epoch, change });
            }
        }
    }

    pub(super) fn settle(&mut self, at: usize) {
        let verifier = self.random.next();
        let has_bug = self.has(Bug::VerifierKept);
        let now = self.clock(at);
        let Some(server) = self.running(at) else { return };
        let epoch = server.seat.group().epoch();
        let verifier = if has_bug { 7 } else { verifier };
        if server.seat.settles() {
            server.seat.handle_settled(now, epoch, verifier);
        }
    }

    /// Fills what is not in sync, and has it admitted.
    pub(super) fn fill(&mut self, at: usize) {
        self.serial += 1;
        let (now, fill, again) = (self.clock(at), self.serial, self.random.one_in(8));
        let (incarnations, bugs) = (self.incarnations.clone(), self.bugs);
        let Some(server) = self.running(at) else { return };
        let group = server.seat.group().clone();
        let (epoch, Ok(verifier)) = (group.epoch(), server.seat.orders(now, group.epoch())) else {
            let epoch = Some(group.epoch());
            server.filling.retain(|_, it| it.admitted_in == epoch);
            return;
        };
        let unfilled = |it: &&Replica| !group.is_in_sync(**it);
        let targets: Vec<usize> =
            group.replicas().iter().filter(unfilled).map(|it| place(*it)).collect();
        server.filling.retain(|target, _| targets.contains(target));
        let values = server.values;
        let mut sends = Vec::new();
        let (mut admits, mut fences) = (None, false);
        for target in targets {
            match server.filling.get(&target).cloned() {
                None => {
                    let untaken = BTreeSet::new();
                    let filling = Filling {
                        fill,
                        is_filled: false,
                        whole_in: None,
                        admitted_in: None,
                        untaken,
                    };
                    server.filling.insert(target, filling);
                    let of = incarnations[target];
                    sends.push((target, Message::Fill { epoch, fill, of, values }));
                }
                // what it was sent may be lost: begun anew now and then
                Some(it) if again && it.admitted_in == Some(epoch) => fences = true,
                Some(_) if again => {
                    server.filling.remove(&target);
                }
                Some(it) if it.is_filled && it.whole_in != Some(epoch) => {
                    sends.push((target, Message::Whole { epoch, verifier, fill: it.fill }));
                }
                Some(it) if it.is_filled && it.untaken.is_empty() => admits = Some(target),
                Some(_) => {}
            }
        }
        let is_noted = bugs != Some(Bug::GivesAdmittingUp);
        if let Some(filling) =
            admits.filter(|_| is_noted).and_then(|target| server.filling.get_mut(&target))
        {
            filling.admitted_in = Some(epoch);
        }
        sends.into_iter().for_each(|(target, message)| self.send(at, target, message));
        let admit = admits.map(|target| Change::Admit(replica(target)));
        let Some(change) = admit.or_else(|| fences.then_some(Change::Fence)) else { return };
        let time = self.now + self.delay();
        let incarnation = self.incarnations[at];
        if !self.is_cut(at, STORE) {
            self.at(time, Event::Propose { by: at, incarnation, epoch, change });
        }
    }

    pub(super) fn hear_group(&mut self, at: usize, group: Group) {
        let now = self.clock(at);
        if let Some(server) = self.running(at) {
            server.seat.handle_group(now, group);
        }
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize, message: Message) {
        let now = self.clock(to);
        if self.servers[to].is_none() {
            return;
        }
        match message {
            Message::Ask { word, group, asked } => {
                self.hear_group(to, group);
                let server = self.running(to).unwrap();
                let granted = server.seat.handle_ask(now, NodeId(from as u16), word);
                let (word, group) = (server.seat.word(), server.seat.group().clone());
                self.send(to, from, Message::Answer { word, group, asked, granted });
            }
            Message::Answer { word, group, asked, granted } => {
                self.hear_group(to, group);
                let server = self.running(to).unwrap();
                server.seat.handle_answer(now, NodeId(from as u16), word, asked, granted);
            }
            Message::Forward { number, epoch, verifier, object, value, commits, fill } => {
                let here_only = self.has(Bug::CommitsHereOnly);
                let server = self.running(to).unwrap();
                let takes = server.seat.takes(replica(from), epoch, verifier);
                if takes.is_err() {
                    return;
                }
                let is_aside = fill != 0 && fill != server.filled_by;
                let place = if is_aside { &mut server.aside } else { &mut server.values };
                place[object].now = place[object].now.max(value);
                if commits && !here_only {
                    place[object].durable = place[object].durable.max(value);
                }
                self.send(to, from, Message::Took { number });
            }
            Message::Took { number } => self.took(from, to, number),
            Message::Fill { epoch, fill, of, values } => {
                if of != self.incarnations[to] && !self.has(Bug::FillsTheNext) {
                    return;
                }
                let takes_old = self.has(Bug::FilledByAnEarlier);
                let server = self.running(to).unwrap();
                let is_its = server.seat.group().epoch() == epoch
                    && server.seat.group().primary() == replica(from);
                let in_sync = server.seat.group().is_in_sync(replica(to));
                // one before the last may yet come
                if !is_its || in_sync || !(takes_old || fill >= server.filled_by) {
                    return;
                }
                server.filled_by = fill;
                server.values = values;
                let aside = std::mem::take(&mut server.aside);
                for (value, aside) in server.values.iter_mut().zip(aside) {
                    value.now = value.now.max(aside.now);
                    value.durable = value.durable.max(aside.durable);
                }
                self.send(to, from, Message::Filled { fill });
            }
            Message::Filled { fill } => {
                let Some(server) = self.running(to) else { return };
                if let Some(filling) = server.filling.get_mut(&from).filter(|it| it.fill == fill) {
                    filling.is_filled = true;
                }
            }
            Message::Whole { epoch, verifier, fill } => {
                let server = self.running(to).unwrap();
                let is_its =
                    server.filled_by == fill && !server.seat.group().is_in_sync(replica(to));
                if is_its && server.seat.handle_settled(now, epoch, verifier) {
                    self.send(to, from, Message::IsWhole { epoch, fill });
                }
            }
            Message::IsWhole { epoch, fill } => {
                let Some(server) = self.running(to) else { return };
                if let Some(filling) = server.filling.get_mut(&from).filter(|it| it.fill == fill) {
                    filling.whole_in = Some(epoch);
                }
            }
        }
    }

    pub(super) fn request(
        &mut self,
        at: usize,
        epoch: u32,
        object: usize,
        kind: Kind,
        number: u64,
    ) {
        let now = self.clock(at);
        let (no_lease, alone) =
            (self.has(Bug::ReadsWithoutLease), self.has(Bug::AcknowledgesAlone));
        let bugs = self.bugs;
        let Some(server) = self.running(at) else { return };
        let ordered = server.seat.orders(now, epoch);
        let verifier = match (ordered, server.seat.word().memory) {
            (Ok(verifier), _) => verifier,
            (Err(members::groups::Refused::NoLease), Memory::Kept(verifier)) if no_lease => {
                verifier
            }
            _ => return,
        };
        let value = &mut server.values[object];
        let (value, commits) = match kind {
            Kind::Read => {
                let (now, verifier) = (value.now, verifier);
                return self.answered(object, number, Kind::Read, verifier, now);
            }
            Kind::Write(new) => {
                value.now = value.now.max(new);
                (value.now, false)
            }
            Kind::Commit(_) => {
                value.durable = value.now;
                (value.now, true)
            }
        };
        let has_bug = bugs == Some(Bug::AdmitsUnfilled);
        let others: Vec<usize> = server.seat.others().map(place).collect();
        let kind = match kind {
            Kind::Commit(_) => Kind::Commit(value),
            kind => kind,
        };
        // One that may be admitted at any time is waited for.
        let epoch = server.seat.group().epoch();
        let joins = |it: &Filling| it.whole_in.is_some() || it.admitted_in == Some(epoch);
        let joins = server.filling.iter().filter(|(_, it)| joins(it) && !has_bug);
        let waits = others.iter().chain(joins.map(|(to, _)| to)).copied();
        let waits = if alone { BTreeSet::new() } else { waits.collect() };
        let filling: Vec<(usize, u64)> =
            server.filling.iter().map(|(to, it)| (*to, it.fill)).collect();
        for filling in server.filling.values_mut().filter(|_| !has_bug) {
            filling.untaken.insert(number);
        }
        let open = Open { number, kind, object, verifier, waits };
        server.open.push(open);
        let epoch = server.seat.group().epoch();
        let forward =
            |fill| Message::Forward { number, epoch, verifier, object, value, commits, fill };
        others.into_iter().for_each(|other| self.send(at, other, forward(0)));
        filling.into_iter().for_each(|(other, fill)| self.send(at, other, forward(fill)));
        self.end_open(at);
    }

    pub(super) fn took(&mut self, from: usize, at: usize, number: u64) {
        let Some(server) = self.running(at) else { return };
        for open in server.open.iter_mut().filter(|open| open.number == number) {
            open.waits.remove(&from);
        }
        if let Some(filling) = server.filling.get_mut(&from) {
            filling.untaken.remove(&number);
        }
        self.end_open(at);
    }

    pub(super) fn end_open(&mut self, at: usize) {
        let Some(server) = self.running(at) else { return };
        let (ended, open): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut server.open).into_iter().partition(|open| open.waits.is_empty());
        server.open = open;
        for Open { number, kind, object, verifier, .. } in ended {
            self.answered(object, number, kind, verifier, 0);
        }
    }
}
