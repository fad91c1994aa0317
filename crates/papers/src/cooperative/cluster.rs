//! Eight nodes of 1,000 frames without a network: a fetch takes no time. Everything that is decided is decided by the
//! tables of `netmem`. In each round every busy node makes one access, and 10 µs pass.

use netmem::*;
use std::ops::AddAssign;
use std::time::Duration;
use wire::{NodeId, Time, mix};

/// Nodes.
pub const NODES: usize = 8;
/// Frames of each.
pub const FRAMES: u64 = 1000;
const ROUND: Duration = Duration::from_micros(10);
/// Half a pass over a node's memory.
const EPOCH: Duration = Duration::from_millis(5);
const VERSION: Version = Version(1);
const INCARNATION: u64 = 1;

/// How pages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `None`: without network memory.
    pub policy: Option<Policy>,
    /// Whether uses are counted, for second chances and effective ages.
    pub counts_uses: bool,
}

/// Counts of the accesses and the pages of a node, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accesses by source: own memory, another's, disk.
    pub accesses: [u64; 3],
    /// Pages that left.
    pub evicted: u64,
    /// Of these, pages that another node took.
    pub sent: u64,
    /// Times that another node did not.
    pub refused: u64,
}

impl Counters {
    /// The mean time of an access, each source with its own.
    pub fn mean(&self, times: [f64; 3]) -> f64 {
        let sum: f64 = self.accesses.iter().zip(times).map(|(n, time)| *n as f64 * time).sum();
        sum / self.all()
    }

    /// Percent of the accesses by source.
    pub fn percent(&self) -> [f64; 3] {
        self.accesses.map(|count| count as f64 * 100.0 / self.all())
    }

    /// All accesses, at least one.
    fn all(&self) -> f64 {
        self.accesses.iter().sum::<u64>().max(1) as f64
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.accesses.iter_mut().zip(other.accesses).for_each(|(mine, others)| *mine += others);
        self.evicted += other.evicted;
        self.sent += other.sent;
        self.refused += other.refused;
    }
}

struct Node {
    memory: Memory,
    directory: Directory,
    epochs: Epochs,
    counters: Counters,
}

/// The cluster.
pub struct Cluster {
    setting: Setting,
    nodes: Vec<Node>,
    slots: Slots,
    now: Time,
    random: u64,
}

fn clean(at: usize) -> Holder {
    Holder { node: id(at), incarnation: INCARNATION, role: HolderRole::Clean }
}

fn id(at: usize) -> NodeId {
    NodeId(at as u16 + 1)
}

fn at(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

impl Cluster {
    /// All memories empty, the first epoch planned.
    pub fn new(setting: Setting, seed: u64) -> Cluster {
        // all have been members for long
        let now = Time::ZERO + Duration::from_secs(100);
        let frames = FRAMES as u32;
        let config =
            MemoryConfig { frames, local_min: frames / 10, counts_uses: setting.counts_uses };
        let period = EpochConfig { period: EPOCH, ..EpochConfig::default() };
        let node = |at| Node {
            memory: Memory::new(config),
            directory: Directory::new(NODES * FRAMES as usize),
            epochs: Epochs::new(id(at), period, now),
            counters: Counters::default(),
        };
        let members: Vec<Member> =
            (0..NODES).map(|at| Member { node: id(at), weight: frames }).collect();
        let slots = Slots::new(&members).unwrap();
        let nodes = (0..NODES).map(node).collect();
        let mut cluster = Cluster { setting, nodes, slots, now, random: seed };
        cluster.plan();
        cluster
    }

    /// The next random number.
    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(wire::mix::STEP);
        mix(self.random)
    }

    /// Counts at a node since the counters began.
    pub fn counters(&self, at: usize) -> Counters {
        self.nodes[at].counters
    }

    /// Begins to count.
    pub fn restart_counters(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.counters = Counters::default());
    }

    /// Time passes; when an epoch is over the next one is planned.
    pub fn next_round(&mut self) {
        self.now = self.now + ROUND;
        if self.nodes.iter().any(|node| node.epochs.ending(self.now).is_some()) {
            self.plan();
        }
    }

    /// Node `at` uses a page; of shared ones others keep their copies.
    pub fn access(&mut self, at: usize, page: PageId, shared: bool) {
        let source = match self.nodes[at].memory.find(page) {
            Some(frame) => {
                self.nodes[at].memory.handle_use(self.now, frame);
                0
            }
            None => self.fault(at, page, shared),
        };
        self.nodes[at].counters.accesses[source] += 1;
    }

    fn fault(&mut self, at: usize, page: PageId, shared: bool) -> usize {
        let fetched = self.setting.policy.and_then(|_| self.fetch(page, shared));
        self.make_room(at);
        let duplicate = fetched == Some(true);
        let reused = fetched.is_some();
        let arrival =
            Arrival { id: page, version: VERSION, duplicate, reused, ..Arrival::default() };
        self.nodes[at].memory.install(self.now, arrival).unwrap();
        // with holders enough a copy for own use need not be registered
        let _ = self.register(at, page);
        if fetched.is_some() { 1 } else { 2 }
    }

    /// Takes a page from who has it. Says whether a copy stays there.
    fn fetch(&mut self, page: PageId, shared: bool) -> Option<bool> {
        let Lookup::Held(entry) = self.directory(page).look_up(page, VERSION) else { return None };
        let holder = at(entry.holders[0].node);
        let memory = &mut self.nodes[holder].memory;
        let frame = memory.find(page).expect("a holder has the page");
        if shared {
            memory.handle_copied(self.now, frame);
        } else {
            memory.release(frame).unwrap();
            self.unregister(holder, page);
        }
        Some(shared)
    }

    fn make_room(&mut self, at: usize) {
        while self.nodes[at].memory.counts().free == 0 {
            match self.nodes[at].memory.poll_eviction(self.now) {
                Some(Eviction::Staged(_)) => continue,
                Some(Eviction::Durable(frame)) => self.evict(at, frame),
                other => panic!("{other:?}"),
            }
        }
    }

    fn evict(&mut self, at: usize, frame: FrameNo) {
        let page = self.nodes[at].memory.release(frame).unwrap();
        self.nodes[at].counters.evicted += 1;
        let others = self.unregister(at, page.id);
        let age = page.age(self.now);
        let leaving =
            Leaving { age, reused: page.reused, duplicate: others > 0, chances: page.chances };
        let chances = page.chances.saturating_sub(1);
        let offer = Offer {
            id: page.id,
            version: VERSION,
            blocks: 1,
            age,
            chances,
            reused: page.reused,
            mirror: false,
        };
        if let Some(policy) = self.setting.policy {
            self.send(at, policy, offer, leaving);
        }
    }

    /// Offers a page to one node, and once more to another.
    fn send(&mut self, from: usize, policy: Policy, offer: Offer, leaving: Leaving) {
        let mut refused = None;
        for _ in 0..2 {
            let draws = [self.draw(), self.draw()];
            let epoch = self.nodes[from].epochs.current();
            let Some(target) = policy.target(epoch, id(from), refused, leaving, draws) else {
                return;
            };
            let taken = self.accept(at(target), offer);
            let oldest = self.nodes[at(target)].memory.oldest_taken(self.now);
            self.nodes[from].epochs.handle_answer(target, taken, oldest);
            if taken {
                self.nodes[from].counters.sent += 1;
                return;
            }
            self.nodes[from].counters.refused += 1;
            refused = Some(target);
        }
    }

    fn accept(&mut self, at: usize, offer: Offer) -> bool {
        let node = &mut self.nodes[at];
        let Ok(Accepted { displaced, frame }) = node.memory.accept(self.now, offer) else {
            return false;
        };
        node.epochs.handle_taken();
        if let Some(displaced) = displaced {
            self.unregister(at, displaced.id);
        }
        if self.register(at, offer.id).is_err() {
            return self.nodes[at].memory.release(frame).is_err();
        }
        true
    }

    fn directory(&mut self, page: PageId) -> &mut Directory {
        let home = at(self.slots.homes(page).primary);
        &mut self.nodes[home].directory
    }

    fn register(&mut self, at: usize, page: PageId) -> Result<Outcome, Refusal> {
        self.directory(page).register(page, VERSION, clean(at))
    }

    /// Says how many other holders are left. One that is alone is told.
    fn unregister(&mut self, at_: usize, page: PageId) -> usize {
        let directory = self.directory(page);
        directory.unregister(page, VERSION, clean(at_));
        let Some(entry) = directory.entry(page) else { return 0 };
        let Some(first) = entry.holders.first() else { return 0 };
        let (left, first) = (entry.holders.len(), at(first.node));
        let memory = &mut self.nodes[first].memory;
        if let Some(frame) = memory.find(page).filter(|_| left == 1) {
            memory.handle_single(frame);
        }
        left
    }

    fn plan(&mut self) {
        let told = |(at, node): (usize, &Node)| Digest {
            node: id(at),
            member_for: Duration::from_secs(100),
            link_pages: u32::MAX,
            ..node.memory.digest(self.now)
        };
        let digests: Vec<Digest> = self.nodes.iter().enumerate().map(told).collect();
        let config = EpochConfig { period: EPOCH, ..EpochConfig::default() };
        let epoch = Epoch::plan(self.nodes[0].epochs.next_number(), &digests, &config);
        for node in &mut self.nodes {
            assert!(node.epochs.handle_epoch(self.now, epoch.clone()));
        }
    }

    /// Frames sum up, and every frame that is held for others has its entry, every entry its frames.
    ///
    /// Panics when they do not: tables that lost track.
    pub fn check(&self) {
        for node in &self.nodes {
            assert_eq!(u64::from(node.memory.counts().total()), FRAMES);
            for entry in node.directory.entries() {
                let held = |holder: &Holder| self.nodes[at(holder.node)].memory.find(entry.id);
                assert!(entry.holders.iter().all(|holder| held(holder).is_some()), "{entry:?}");
            }
        }
        let hosted: u32 = self.nodes.iter().map(|node| node.memory.counts().hosted).sum();
        let registered = self.nodes.iter().flat_map(|node| node.directory.entries());
        let is_hosted = |entry: &&Entry, holder: &Holder| {
            let memory = &self.nodes[at(holder.node)].memory;
            memory.find(entry.id).is_some_and(|frame| memory.role(frame) == Role::Hosted)
        };
        let entries: usize = registered
            .map(|entry| entry.holders.iter().filter(|holder| is_hosted(&entry, holder)).count())
            .sum();
        assert_eq!(entries, hosted as usize);
    }
}
