//! Machines that lock over NLM, and the datagrams between them and fronts: some are lost, late or come twice.

use super::ledger::Ledger;
use super::locker::{Locker, Steps};
use crate::queue::Picos;
use crate::random::Random;
use crate::trouble::strikes;
use std::collections::BTreeMap;

/// One datagram in so many is lost; comes twice; is late.
const LOST_ONE_IN: u64 = 30;
const TWICE_ONE_IN: u64 = 30;
const LATE_ONE_IN: u64 = 30;
/// Usual delay, and that of one that is late.
const DELAY_US: u64 = 200;
const LATE_US: u64 = 30_000;
/// How often each machine crashes.
const CRASHES_PER_MINUTE: u32 = 2;

/// Something that is due: a machine is to be looked at, a datagram arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Of this machine.
    Locker(usize),
    /// With this number.
    Datagram(u64),
}

/// A datagram between a machine's port and its front.
#[derive(Clone, Debug)]
struct Datagram {
    to_front: bool,
    locker: usize,
    port: u16,
    bytes: Vec<u8>,
}

/// Bytes that arrive at a front.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The front.
    pub front: usize,
    /// From this machine and port.
    pub locker: usize,
    pub port: u16,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// All of the machines.
#[derive(Debug)]
pub struct Locking {
    lockers: Vec<Locker>,
    ledger: Ledger,
    datagrams: BTreeMap<u64, Datagram>,
    next: u64,
    random: Random,
    later: Vec<(Picos, Due)>,
}

impl Locking {
    /// So many, spread over so many fronts.
    pub fn new(seed: u64, lockers: usize, fronts: usize) -> Locking {
        let locker = |number| Locker::new(seed, number, number % fronts);
        Locking {
            lockers: (0..lockers).map(locker).collect(),
            ledger: Ledger::default(),
            datagrams: BTreeMap::new(),
            next: 0,
            random: Random::new(seed, "nfs locking"),
            later: (0..lockers).map(|locker| (Picos::ZERO, Due::Locker(locker))).collect(),
        }
    }

    /// From now on each locks everything once more.
    pub fn finish(&mut self) {
        self.lockers.iter_mut().for_each(Locker::finish);
    }

    /// Whether all did.
    pub fn is_finished(&self) -> bool {
        self.lockers.iter().all(Locker::is_finished)
    }

    /// Those that did not, for people.
    pub fn unfinished(&self) -> impl Iterator<Item = String> {
        self.lockers.iter().filter(|locker| !locker.is_finished()).map(Locker::describe)
    }

    /// Locks that were granted.
    pub fn granted(&self) -> u64 {
        self.ledger.granted
    }

    /// The next thing that will be due, and when.
    pub fn poll_later(&mut self) -> Option<(Picos, Due)> {
        self.later.pop()
    }

    /// Machines crash now and then.
    pub fn tick(&mut self, now: Picos) {
        for locker in 0..self.lockers.len() {
            if strikes(&mut self.random, CRASHES_PER_MINUTE) {
                let steps = self.lockers[locker].crash(&mut self.ledger, now);
                self.follow(locker, steps, now);
            }
        }
    }

    /// The front that something is about to arrive at.
    pub fn front_of(&self, due: Due) -> Option<usize> {
        let Due::Datagram(number) = due else { return None };
        let datagram = self.datagrams.get(&number).filter(|it| it.to_front)?;
        Some(self.lockers[datagram.locker].front)
    }

    /// The event that is due, for people.
    pub fn describe(&self, due: Due) -> String {
        let (locker, what) = match due {
            Due::Locker(locker) => (locker, "goes on".to_string()),
            Due::Datagram(number) => match self.datagrams.get(&number) {
                None => return format!("{due:?} has gone"),
                Some(Datagram { to_front, locker, port, bytes }) => {
                    let way = if *to_front { "calls from" } else { "is called at" };
                    (*locker, format!("{way} {port}: {}", Locker::tell(bytes)))
                }
            },
        };
        format!("{} {what}", self.lockers[locker].describe())
    }

    /// Something is due. The file to lock has this handle, if there is one. The error names the violation.
    pub fn due(
        &mut self,
        due: Due,
        file: Option<&[u8]>,
        now: Picos,
    ) -> Result<Option<Arrival>, String> {
        let (locker, steps) = match due {
            Due::Locker(locker) if file.is_none() => {
                self.later.push((now + Picos::seconds(1), due));
                (locker, Steps::default())
            }
            Due::Locker(locker) => (locker, self.lockers[locker].due(file, &mut self.ledger, now)),
            Due::Datagram(number) => {
                let Some(datagram) = self.datagrams.remove(&number) else { return Ok(None) };
                let Datagram { to_front, locker, port, bytes } = datagram;
                if to_front {
                    let front = self.lockers[locker].front;
                    return Ok(Some(Arrival { front, locker, port, bytes }));
                }
                let about = (&mut self.ledger, now);
                let file = file.unwrap_or_default();
                (locker, self.lockers[locker].receive(port, &bytes, file, about)?)
            }
        };
        self.follow(locker, steps, now);
        Ok(None)
    }

    /// A front sends a datagram to a machine.
    pub fn sent(&mut self, locker: usize, port: u16, bytes: Vec<u8>, now: Picos) {
        self.send(Datagram { to_front: false, locker, port, bytes }, now);
    }

    fn follow(&mut self, locker: usize, steps: Steps, now: Picos) {
        for (port, bytes) in steps.sends {
            self.send(Datagram { to_front: true, locker, port, bytes }, now);
        }
        self.later.extend(steps.wake.map(|at| (at, Due::Locker(locker))));
    }

    fn send(&mut self, datagram: Datagram, now: Picos) {
        let copies = 1 + u64::from(self.random.below(TWICE_ONE_IN) == 0);
        for _ in 0..copies {
            if self.random.below(LOST_ONE_IN) == 0 {
                continue;
            }
            let is_late = self.random.below(LATE_ONE_IN) == 0;
            let delay = 20 + self.random.below(if is_late { LATE_US } else { DELAY_US });
            self.datagrams.insert(self.next, datagram.clone());
            self.later.push((now + Picos::micros(delay), Due::Datagram(self.next)));
            self.next += 1;
        }
    }
}
