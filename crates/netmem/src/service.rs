//! The service: pages move between nodes (SOSP'95 section 3; PGMS, SIGMETRICS'98).
//!
//! Every node runs one. State that outlives a request is in the parts, plain structs each in a cell of its own:
//! [`Pages`](pages::Pages), [`Home`](home::Home) for what the node knows as a directory,
//! [`Replicas`](replicas::Replicas), [`Ahead`](ahead::Ahead) for what is prefetched, [`Guests`](guests::Guests), and
//! [`Peers`](peers::Peers). Requests are async functions over them; no borrow of a part lasts over a wait.
//!
//! ```text
//!  get ──► own frames ──► guess or directory ──► holder         stable storage, when no node has the page,
//!             │ none free                                       or beside a peer that is slow
//!             ▼
//!  a page leaves: clean ──► Policy::target ──► PUT ──► registered, then PUT_OK
//!                 dirty ──► mirrors or stable storage first
//! ```
//!
//! Guarantees: bytes without a fitting stamp are never data; a version that was known and is gone is
//! [`GetError::Lost`], never zeros and never an older one; a dirty page leaves its frame only when its class says so; a
//! mirror counts only when the directory knows of it; nothing of a freed space comes back.

mod ahead;
mod answer;
mod bring;
mod counters;
mod dirty;
mod events;
mod faults;
mod freed;
mod get;
mod guesses;
mod guests;
mod home;
mod incarnation;
mod latency;
mod leases;
mod leave;
mod many;
mod notices;
mod owed;
mod pages;
mod part;
mod peers;
mod prefetch;
mod put;
mod replicas;
mod share;
mod spare;
mod store;
mod tell;
mod ticks;
mod unlisted;
mod waiting;
mod write;
mod writing;

use counters::Stats;
pub use counters::{Counters, Misses, Refusals, Source};
pub use freed::TooMany;
pub use get::{GetError, Got};
pub use latency::Latency;
pub use members::{Up, View};
pub use prefetch::{Hint, Plan, TooManyPlans};
pub use put::Weak;
pub use share::Share;
pub use write::{PutError, Use};

use crate::directory::Directory;
use crate::epoch::EpochConfig;
use crate::epochs::Epochs;
use crate::limits::*;
use crate::memory::{Counts, MemoryConfig};
use crate::page::{PageId, PageStamp, SpaceId, Version, Wanted};
use crate::placement::Policy;
use crate::protocol::{Body, Message, Record, op};
use ahead::Ahead;
use endpoint::{Frame, FrameMut};
use events::{Event, Events};
use guesses::Guesses;
use guests::Guests;
use home::Home;
use members::Membership;
use node::{Call, CallError, Cx, Pieces, Reply, Semaphore};
use pages::Pages;
use peers::Peers;
use replicas::{Kind, Replicas};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::Store;
use wire::limits::BLOCK_BYTES;
use wire::{Channel, Errno, NodeId, Time};

/// A result of a [`Backing`], which comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// The page on stable storage, if it is there: its version and its bytes.
pub type OnStorage = Result<Option<(Version, Frame)>, Errno>;

/// Stable storage, as the user of the service knows it: files, a spill file, nothing.
pub trait Backing {
    /// Whether pages of this space can be on stable storage. If so, a page without a holder is read from there, and one
    /// that is slow to come as well.
    fn has(&self, space: SpaceId) -> bool;
    /// Reads a page of `bytes` bytes in this version or a newer one; `None` when there is none.
    fn read(&self, id: PageId, at_least: Version, bytes: u32) -> Later<OnStorage>;
    /// Writes a page; it is on stable storage when this ends well.
    fn write(&self, id: PageId, version: Version, data: Frame) -> Later<Result<(), Errno>>;
}

/// How a node takes part.
#[derive(Clone)]
pub struct Config {
    /// Memory for pages, the node's own and others', in bytes. They come from the node's frames.
    pub bytes: usize,
    /// Bytes of it that the node's own pages may have whatever others want.
    pub local_min_bytes: usize,
    /// Memory for directory entries, beside the pages: [`Directory::ENTRY_BYTES`] for each page of this node's own that
    /// is in other nodes' memory, and for its part of the shared ones. A node that puts more of its own pages into
    /// other nodes' memory than these needs more than the usual share.
    pub directory_bytes: usize,
    /// Whether uses are counted, for second chances and effective ages.
    pub counts_uses: bool,
    /// Destination of evicted pages.
    pub policy: Policy,
    /// How epochs are planned.
    pub epoch: EpochConfig,
    /// Pages that the node's link may take in one epoch.
    pub link_pages: u32,
    /// Whether an evicted page travels with the request for the one that takes its place.
    pub swaps: bool,
    /// Whether pages are prefetched for which faults show a trend; what programs say is followed in any case.
    pub trends: bool,
    /// How long a request goes on trying.
    pub patience: Duration,
    /// Stable storage.
    pub backing: Option<Rc<dyn Backing>>,
}

impl Config {
    /// The usual limits for so many bytes of pages, a quarter of them the node's own, without stable storage.
    pub fn new(bytes: usize) -> Config {
        Config {
            bytes,
            local_min_bytes: bytes / 4,
            directory_bytes: (bytes - bytes / HINT_SHARE) / DIRECTORY_SHARE,
            counts_uses: true,
            policy: Policy::default(),
            epoch: EpochConfig::default(),
            link_pages: u32::MAX,
            swaps: true,
            trends: true,
            patience: PATIENCE,
            backing: None,
        }
    }

    /// Directory entries that there is room for.
    fn entries(&self) -> usize {
        (self.directory_bytes / Directory::ENTRY_BYTES).max(1)
    }

    /// And guesses about others' pages, which have the rest of the usual share.
    fn guesses(&self) -> usize {
        self.bytes / HINT_SHARE / DIRECTORY_SHARE / Guesses::ENTRY_BYTES
    }

    fn memory(&self) -> MemoryConfig {
        let frames = (self.bytes / BLOCK_BYTES).max(1);
        let local_min = (self.local_min_bytes / BLOCK_BYTES).min(frames);
        MemoryConfig {
            frames: u32::try_from(frames).expect("fewer than 2^32 pages"),
            local_min: local_min as u32,
            counts_uses: self.counts_uses,
        }
    }
}

/// The service of one node, for others on it. Cloning it is cheap.
#[derive(Clone)]
pub struct Service(Rc<Inner>);

struct Inner {
    cx: Cx,
    config: Config,
    pages: RefCell<Pages>,
    home: RefCell<Home>,
    replicas: RefCell<Replicas>,
    epochs: RefCell<Epochs>,
    peers: RefCell<Peers>,
    stats: RefCell<Stats>,
    /// The prefetches that are due.
    ahead: RefCell<Ahead>,
    /// Spaces of processes that are no nodes.
    guests: RefCell<Guests>,
    /// Events that tasks wait for.
    events: Events,
    permits: Permits,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("node", &self.me()).field("counts", &self.counts()).finish()
    }
}

impl Service {
    /// Starts the service on this node. It keeps to itself until [`set_view`](Service::set_view) says who is there.
    pub fn start(cx: &Cx, config: Config) -> Service {
        let service = Service(Rc::new(Inner::new(cx, config)));
        cx.set_pure(Channel::MEMORY, op::is_pure);
        for _ in 0..REQUEST_TASKS {
            cx.spawn("netmem request", service.clone().requests());
        }
        for _ in 0..LEAVING_TASKS {
            cx.spawn("netmem leaving", service.clone().carry_away());
        }
        for _ in 0..CLEANING_TASKS {
            cx.spawn("netmem cleaning", service.clone().clean());
        }
        for _ in 0..NOTICE_TASKS {
            cx.spawn("netmem notices", service.clone().give_notice());
        }
        for _ in 0..REPAIR_TASKS {
            cx.spawn("netmem repair", service.clone().repair());
        }
        for _ in 0..AHEAD_TASKS {
            cx.spawn("netmem prefetch", service.clone().prefetch());
        }
        cx.spawn("netmem register", service.clone().do_owed(Kind::Register));
        cx.spawn("netmem unregister", service.clone().do_owed(Kind::Unregister));
        cx.spawn("netmem secure", service.clone().do_owed(Kind::Secure));
        cx.spawn("netmem view", service.clone().tell_all());
        cx.spawn("netmem epochs", service.clone().tick());
        cx.spawn("netmem share", service.clone().shrink());
        service
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        let mut home = self.0.home.borrow_mut();
        let ahead = self.store().memory().ahead();
        Counters {
            prefetched_used: ahead.used,
            prefetched_wasted: ahead.wasted,
            notices_lost: home.notices().lost(),
            durable_deficit_pages: home.deficit() as u64,
            ..self.0.stats.borrow().counters
        }
    }

    /// Frames by role, of [`BLOCK_BYTES`] each when all pages are as short as that.
    pub fn counts(&self) -> Counts {
        self.store().memory().counts()
    }

    /// Blocks of [`BLOCK_BYTES`] that the pages of each role take: a page has one frame and up to sixteen blocks.
    pub fn blocks(&self) -> Counts {
        self.store().memory().blocks()
    }

    /// Bytes that pages take, of the [`Config::bytes`] that they may.
    pub fn used_bytes(&self) -> usize {
        self.store().used_bytes()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The nodes that are up, as far as was said.
    pub fn view(&self) -> View {
        self.0.home.borrow().view().clone()
    }

    /// The epoch that holds: its number, and the age from which on pages are dropped rather than sent.
    pub fn epoch(&self) -> crate::epoch::Epoch {
        self.0.epochs.borrow().current().clone()
    }

    /// How long a peer takes to answer a request for a page, as this node sees it.
    pub fn peer_latency(&self, node: NodeId) -> Option<Latency> {
        self.0.peers.borrow().latency(node)
    }

    /// When a request begins; nothing for those that are not measured. A node's time stands still while its own memory
    /// answers, so this is a look at the world's clock.
    fn begin_get(&self) -> Option<Time> {
        self.0.stats.borrow_mut().is_sampled().then(|| self.cx().instant())
    }

    /// Its page was here.
    fn count_here(&self, began: Option<Time>) {
        let took = began.map(|began| self.cx().instant().since(began));
        self.count(|counters| counters.hit(Source::Local, took));
    }

    /// The tables, for those who check them while nothing runs: tests and the simulator.
    pub fn inspect<R>(&self, look: impl FnOnce(&crate::Memory, &Directory) -> R) -> R {
        look(self.store().memory(), self.0.home.borrow().directory())
    }

    /// The most times that a request for a page had been passed on when it came here: at most [`HOPS_MAX`]. For those
    /// who check it.
    pub fn most_hops(&self) -> u8 {
        self.0.stats.borrow().most_hops()
    }

    /// Whether the bytes beside the frame table fit it. For those who check it while nothing runs.
    pub fn is_consistent(&self) -> bool {
        self.store().is_consistent()
    }

    fn cx(&self) -> &Cx {
        &self.0.cx
    }

    fn raise(&self, event: Event) {
        self.0.events.raise(event);
    }

    fn me(&self) -> NodeId {
        self.cx().id()
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.stats.borrow_mut().counters);
    }

    /// Whether bytes are the page that is wanted; else the miss is counted.
    fn verify(&self, wanted: Wanted, stamp: &PageStamp, bytes: &[u8]) -> bool {
        let mut stats = self.0.stats.borrow_mut();
        stats.counters.misses.mismatches.verify(wanted, stamp, [bytes]).is_some()
    }

    fn backing(&self, space: SpaceId) -> Option<Rc<dyn Backing>> {
        self.0.config.backing.clone().filter(|backing| backing.has(space))
    }

    /// Queues a notice for a node; no task waits for it. `false` when too many wait already.
    fn notice(&self, to: NodeId, op: u16, record: Record) -> bool {
        self.raise(Event::NoticeWaits);
        self.0.home.borrow_mut().notices().push(to, op, record)
    }

    /// A message to another node, or to this one.
    fn send(
        &self,
        to: NodeId,
        op: u16,
        body: &Body,
        with: Load<'_>,
    ) -> impl Future<Output = Result<Reply, CallError>> + Unpin + use<> {
        let Load { once, data, trailer, into, wait } = with;
        let channel = Channel::MEMORY;
        let deadline = Some(wait);
        self.cx().call(Call { to, channel, op, once, deadline, body, data, trailer, into })
    }

    /// The answer to a message; `None` when there is none, or the other node could not read the message.
    async fn ask_for<R: Message>(
        &self,
        to: NodeId,
        op: u16,
        body: &Body,
        with: Load<'_>,
    ) -> Option<R> {
        let reply = self.send(to, op, body, with).await.ok().filter(|reply| reply.status == 0)?;
        R::decode(&reply.body).ok()
    }

    /// The payload of a message beside its body.
    fn load(&self) -> Load<'static> {
        let (data, into) = (self.cx().pieces(), self.cx().pieces());
        Load { once: false, data, trailer: &[], into, wait: ATTEMPT }
    }
}

/// The payload of a message beside its body.
struct Load<'a> {
    once: bool,
    data: Pieces<Frame>,
    trailer: &'a [u8],
    into: Pieces<FrameMut>,
    wait: Duration,
}

/// Bounds on slow work.
struct Permits {
    /// Requests of others that wait for other nodes.
    slow: Semaphore,
    /// Reads of stable storage for prefetch.
    early_reads: Semaphore,
    /// Requests of others for such reads.
    early_served: Semaphore,
}

impl Permits {
    fn new(cx: &Cx) -> Permits {
        Permits {
            slow: Semaphore::new(cx, SLOW_REQUESTS_MAX),
            early_reads: Semaphore::new(cx, EARLY_READS),
            early_served: Semaphore::new(cx, EARLY_MAX),
        }
    }
}

impl Inner {
    fn new(cx: &Cx, config: Config) -> Inner {
        Inner {
            pages: RefCell::new(Pages::new(Store::new(config.memory(), config.bytes))),
            home: RefCell::new(Home::new(
                Membership::new(cx.id(), cx.incarnation()),
                config.entries(),
            )),
            replicas: RefCell::default(),
            epochs: RefCell::new(Epochs::new(cx.id(), config.epoch, cx.now())),
            peers: RefCell::new(Peers::new(config.guesses())),
            stats: RefCell::default(),
            guests: RefCell::default(),
            ahead: RefCell::new(Ahead::new(config.trends)),
            events: Events::new(cx),
            permits: Permits::new(cx),
            cx: cx.clone(),
            config,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory and guesses take at most 2 % of what is lent: their arrays as they are allocated, from the least
    /// memory that has room for entries at all. (Simulated nodes of less than 1 MiB have more on purpose: most of what
    /// their programs write is in other nodes' memory.)
    #[test]
    fn directory_and_guesses_are_two_percent_of_what_is_lent() {
        for bytes in [64 << 10, 1 << 20, 3 << 20, 10_000_000, 64 << 20, 100_000_000, 1 << 30] {
            let config = Config::new(bytes);
            let directory = Directory::new(config.entries()).bytes();
            let guesses = Guesses::new(config.guesses()).bytes();
            assert!((directory + guesses) * 50 <= bytes, "{directory} and {guesses} of {bytes}");
            assert!(bytes < 1 << 20 || (directory + guesses) * 80 > bytes, "too few of {bytes}");
        }
    }
}
