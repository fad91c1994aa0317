//! The world of the servers: messages, clocks, faults, the store of the group, clients and what they are owed.

mod server;

use members::groups::{Change, Group, Memory, Replica, Seat, Word};
use server::Server;
use std::collections::{BTreeMap, BTreeSet};
use wire::{NodeId, Time};

const SERVERS: usize = 3;
const OBJECTS: usize = 3;
pub const MS: u64 = 1_000_000;
/// Between two looks of a server at what is to be done.
const TICK: u64 = 250 * MS;
const CLIENT_TICK: u64 = 40 * MS;
/// How long a client or a proposer waits for an answer.
const PATIENCE: u64 = 1_500 * MS;

pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Deliberate faults, each of which the checker must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    ReadsWithoutLease,
    AcknowledgesAlone,
    VerifierKept,
    CommitsHereOnly,
    AdmitsUnfilled,
    ServesUnsettled,
    FilledByAnEarlier,
    FillsTheNext,
    GivesAdmittingUp,
}

/// The place of an object's value: in memory, and durable.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    now: u64,
    durable: u64,
}

/// What is sent between servers.
#[derive(Clone, Debug)]
enum Message {
    Ask {
        word: Word,
        group: Group,
        asked: Time,
    },
    Answer {
        word: Word,
        group: Group,
        asked: Time,
        granted: bool,
    },
    /// A change of an object that the primary has ordered, or a commit of it.
    Forward {
        number: u64,
        epoch: u32,
        verifier: u64,
        object: usize,
        value: u64,
        commits: bool,
        fill: u64,
    },
    Took {
        number: u64,
    },
    /// All that the primary has.
    Fill {
        epoch: u32,
        fill: u64,
        /// The incarnation that is filled: what the one before took is gone.
        of: u64,
        values: [Value; OBJECTS],
    },
    Filled {
        fill: u64,
    },
    /// The one that was filled has all, in this epoch.
    Whole {
        epoch: u32,
        verifier: u64,
        fill: u64,
    },
    IsWhole {
        epoch: u32,
        fill: u64,
    },
}

/// Requests of clients, and what store and network bring.
#[derive(Clone, Debug)]
enum Event {
    Tick(usize, u64),
    Client(usize),
    Deliver { from: usize, to: usize, message: Message },
    Request { to: usize, epoch: u32, object: usize, kind: Kind, number: u64 },
    Propose { by: usize, incarnation: u64, epoch: u32, change: Change },
    Proposed { to: usize, incarnation: u64, group: Option<Group> },
    Start(usize),
    Heal(usize, usize),
    Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write(u64),
    Commit(u64),
    Read,
}

pub struct World {
    random: Random,
    now: u64,
    serial: u64,
    events: BTreeMap<(u64, u64), Event>,
    servers: Vec<Option<Server>>,
    durable: Vec<[Value; OBJECTS]>,
    incarnations: Vec<u64>,
    /// Start and rate of each clock.
    clocks: Vec<(u64, u64)>,
    paused_until: Vec<u64>,
    cut: BTreeSet<(usize, usize)>,
    pub group: Group,
    troubled: bool,
    /// Replicas find damage now and then, drawn by this.
    pub damage: Option<Random>,
    bugs: Option<Bug>,
    // Clients: one for each object.
    next_value: [u64; OBJECTS],
    under_way: [Option<(u64, u64, Kind, u64, u64)>; OBJECTS],
    written: [BTreeMap<u64, u64>; OBJECTS],
    committed: [u64; OBJECTS],
    pub acknowledged: u64,
    pub violations: Vec<String>,
}

/// The store that keeps the group's record, as the end of a cut.
const STORE: usize = SERVERS;

fn replica(server: usize) -> Replica {
    Replica { server: NodeId(server as u16), disk: 0, id: server as u64 + 100 }
}

fn place(replica: Replica) -> usize {
    replica.server.0.into()
}

impl World {
    pub fn new(seed: u64, bugs: Option<Bug>) -> World {
        let mut random = Random(seed);
        let clocks = (0..SERVERS).map(|_| (random.below(1 << 40), 96 + random.below(9))).collect();
        let mut world = World {
            random,
            now: 0,
            serial: 0,
            events: BTreeMap::new(),
            servers: (0..SERVERS).map(|_| None).collect(),
            durable: vec![[Value::default(); OBJECTS]; SERVERS],
            incarnations: vec![0; SERVERS],
            clocks,
            paused_until: vec![0; SERVERS],
            cut: BTreeSet::new(),
            group: Group::new(2, &[replica(0), replica(1)]).unwrap(),
            troubled: true,
            damage: None,
            bugs,
            next_value: [0; OBJECTS],
            under_way: [None; OBJECTS],
            written: Default::default(),
            committed: [0; OBJECTS],
            acknowledged: 0,
            violations: Vec::new(),
        };
        (0..SERVERS).for_each(|server| world.at(0, Event::Start(server)));
        (0..OBJECTS).for_each(|object| world.at(object as u64 * MS, Event::Client(object)));
        world.at(3_000 * MS, Event::Trouble);
        world
    }

    fn has(&self, bug: Bug) -> bool {
        self.bugs == Some(bug)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.insert((time, self.serial), event);
    }

    fn clock(&self, server: usize) -> Time {
        let (start, rate) = self.clocks[server];
        Time(start + self.now / 100 * rate)
    }

    fn delay(&mut self) -> u64 {
        match self.troubled && self.random.one_in(20) {
            true => self.random.below(3_000 * MS),
            false => MS / 10 + self.random.below(4 * MS),
        }
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one, other))
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if self.is_cut(from, to) || (self.troubled && self.random.one_in(40)) {
            return;
        }
        let time = self.now + self.delay();
        self.at(time, Event::Deliver { from, to, message });
    }

    pub fn run(&mut self, until: u64) {
        while let Some(((time, serial), event)) = self.events.pop_first() {
            if time > until {
                self.events.insert((time, serial), event);
                return;
            }
            self.now = time;
            let at = match &event {
                Event::Tick(server, _) | Event::Proposed { to: server, .. } => Some(*server),
                Event::Deliver { to, .. } | Event::Request { to, .. } => Some(*to),
                _ => None,
            };
            match at.map(|server| self.paused_until[server]).filter(|until| *until > time) {
                Some(later) => self.at(later, event),
                None => self.handle(event),
            }
            if !self.violations.is_empty() {
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick(server, incarnation) => self.tick(server, incarnation),
            Event::Client(object) => self.client(object),
            Event::Deliver { from, to, message } => self.deliver(from, to, message),
            Event::Request { to, epoch, object, kind, number } => {
                self.request(to, epoch, object, kind, number);
            }
            Event::Propose { by, incarnation, epoch, change } => {
                let _ = self
                    .group
                    .after(Some(replica(by)), epoch, change)
                    .map(|group| self.group = group);
                // An answer that is lost is not waited for longer.
                let is_lost = self.is_cut(STORE, by);
                let time = self.now + if is_lost { PATIENCE } else { self.delay() };
                let group = if is_lost { None } else { Some(self.group.clone()) };
                self.at(time, Event::Proposed { to: by, incarnation, group });
            }
            Event::Proposed { to, incarnation, group } => {
                let now = self.clock(to);
                if let Some(server) = self.running(to).filter(|it| it.incarnation == incarnation) {
                    group.into_iter().for_each(|group| server.seat.handle_group(now, group));
                    server.seat.handle_proposed();
                }
            }
            Event::Start(server) => self.start(server),
            Event::Heal(one, other) => {
                self.cut.remove(&(one, other));
            }
            Event::Trouble => self.trouble(),
        }
    }

    fn running(&mut self, server: usize) -> Option<&mut Server> {
        self.servers[server].as_mut()
    }

    fn start(&mut self, at: usize) {
        if self.servers[at].is_some() {
            return;
        }
        self.incarnations[at] += 1;
        let incarnation = self.incarnations[at];
        let mut seat = Seat::new(self.clock(at), replica(at), incarnation, self.group.clone());
        let values = self.durable[at].map(|value| Value { now: value.durable, ..value });
        if self.has(Bug::ServesUnsettled) {
            seat.handle_settled(self.clock(at), self.group.epoch(), 7);
        }
        self.servers[at] = Some(Server {
            seat,
            incarnation,
            values,
            open: Vec::new(),
            filling: BTreeMap::new(),
            filled_by: 0,
            aside: Default::default(),
        });
        self.at(self.now, Event::Tick(at, incarnation));
    }

    fn kill(&mut self, at: usize, is_power_cut: bool) {
        let Some(server) = self.servers[at].take() else { return };
        // A kill leaves some of what was written in the log, a power cut what was synced.
        self.durable[at] = server.values.map(|value| {
            let flushed = !is_power_cut && self.random.one_in(2);
            Value { durable: if flushed { value.now } else { value.durable }, now: 0 }
        });
        let time = self.now + self.random.below(9_000 * MS);
        self.at(time, Event::Start(at));
    }

    fn trouble(&mut self) {
        if !self.troubled {
            return;
        }
        let one = self.random.below(SERVERS as u64) as usize;
        match self.random.below(8) {
            0 | 1 => self.kill(one, false),
            2 => (0..SERVERS).for_each(|server| self.kill(server, true)),
            3 | 4 => self.paused_until[one] = self.now + self.random.below(6_000 * MS),
            _ => {
                let other = self.random.below(SERVERS as u64 + 1) as usize;
                let until = self.now + self.random.below(8_000 * MS);
                for way in [(one, other), (other, one)] {
                    // some are cut off in one direction only
                    if !self.random.one_in(4) && self.cut.insert(way) {
                        self.at(until, Event::Heal(way.0, way.1));
                    }
                }
            }
        }
        let next = self.now + self.random.below(4_000 * MS);
        self.at(next, Event::Trouble);
    }

    /// The planner adds a disk where one lacks, and takes one away where there are too many.
    fn plan(&mut self) {
        let group = self.group.clone();
        let spare = (0..SERVERS).find(|server| !group.replicas().contains(&replica(*server)));
        let change = match (group.lacks(), spare) {
            (1.., Some(server)) if self.random.one_in(8) => Change::Add(replica(server)),
            (0, None) if self.random.one_in(8) => Change::Drop(*group.replicas().last().unwrap()),
            _ => return,
        };
        let _ = self.group.after(None, group.epoch(), change).map(|group| self.group = group);
    }

    // Clients, and the primary.

    fn client(&mut self, object: usize) {
        self.at(self.now + CLIENT_TICK, Event::Client(object));
        if let Some((_, since, ..)) = self.under_way[object] {
            if self.now < since + PATIENCE {
                return;
            }
        }
        let primary = self.group.primary();
        let kind = match self.random.below(4) {
            0 | 1 => {
                self.next_value[object] += 1;
                Kind::Write(self.next_value[object])
            }
            2 => Kind::Commit(0),
            _ => Kind::Read,
        };
        self.serial += 1;
        let number = self.serial;
        let (to, epoch) = match self.random.below(6) {
            // somebody whom it took for the primary a while ago
            0 => {
                let to = self.random.below(SERVERS as u64) as usize;
                (to, self.servers[to].as_ref().map_or(0, |it| it.seat.group().epoch()))
            }
            _ => (place(primary), self.group.epoch()),
        };
        let newest = self.written[object].values().copied().max().unwrap_or(0);
        self.under_way[object] = Some((number, self.now, kind, newest, self.committed[object]));
        let time = self.now + self.delay();
        self.at(time, Event::Request { to, epoch, object, kind, number });
    }

    /// A client's request was executed: the answer is taken for heard, which is the hardest case.
    fn answered(&mut self, object: usize, number: u64, kind: Kind, verifier: u64, read: u64) {
        let Some((_, _, _, _, committed)) = self.under_way[object].filter(|it| it.0 == number)
        else {
            return;
        };
        self.under_way[object] = None;
        self.acknowledged += 1;
        match kind {
            Kind::Write(value) => {
                self.written[object].insert(verifier, value);
            }
            Kind::Commit(value) => {
                let promised = self.written[object].get(&verifier).copied().unwrap_or(0);
                if value < promised.max(committed) {
                    self.violations
                        .push(format!("{}: COMMIT of {value}, written {promised}", self.now));
                }
                self.committed[object] = self.committed[object].max(value);
            }
            Kind::Read => {
                let promised =
                    self.written[object].get(&verifier).copied().unwrap_or(0).max(committed);
                if read < promised {
                    self.violations
                        .push(format!("{}: object {object} read {read} of {promised}", self.now));
                }
            }
        }
    }

    /// All is well again, for long enough.
    pub fn calm(&mut self) {
        self.troubled = false;
        self.cut.clear();
        self.paused_until.fill(0);
        (0..SERVERS).for_each(|server| self.at(self.now, Event::Start(server)));
        let until = self.now + 40_000 * MS;
        self.run(until);
        if !self.violations.is_empty() {
            return;
        }
        if self.group.lacks() > 0 {
            let words: Vec<_> =
                self.servers.iter().map(|it| it.as_ref().map(|it| it.seat.word())).collect();
            self.violations.push(format!("not whole in the end: {:?} {words:?}", self.group));
        }
        for object in 0..OBJECTS {
            for it in self.group.in_sync().map(place).collect::<Vec<_>>() {
                let value = self.servers[it].as_ref().map_or(0, |it| it.values[object].durable);
                if value < self.committed[object] {
                    self.violations
                        .push(format!("server {it} has {value} of {}", self.committed[object]));
                }
            }
        }
    }
}
