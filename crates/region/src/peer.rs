//! Pages in the memory that other nodes lend (`netmem::Service`), asked for by the faulting thread itself.
//!
//! Holders of pages, the next one to ask and what an answer means is [`netmem::guest`]'s; here are the links, and the
//! threads.
//!
//! | part | what it does |
//! | --- | --- |
//! | `line` | one thread's link to one holder |
//! | `way` | what is asked over it |
//! | `source` | a fault's ways to all holders: fetch, store, mend |
//! | `upkeep` | in the background: visits to holders, links made anew, what holders are to forget |
//! | `end` | a region that is gone is forgotten |

mod end;
mod line;
mod source;
mod upkeep;
mod way;

pub use end::free;
pub use line::{Answer, Line, LineConfig, LineError, Question};

use super::backing::{Backing, Source, Upkeep};
use super::bell::Bell;
use super::limits::{CALL_DEADLINE, HOLDERS_MAX};
use live::clock;
use live::link::{Address, Security};
use live::wait::WaitPolicy;
use netmem::SpaceId;
use netmem::guest::{Entries, Entry, Keeping};
use netmem::limits::GUEST_COPIES_MAX;
use source::PeerSource;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use upkeep::PeerUpkeep;
pub(super) use way::ahead_max;
use way::{Connection, Mailbox};

/// How a region's pages are kept by others.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Nodes that keep pages. Each fault context has a link to each of them.
    pub holders: Vec<Address>,
    /// Nodes that have each version before it may leave this memory, 1 or 2; what fewer have taken counts as refused.
    pub copies: u8,
    /// The space that the pages belong to, this region's alone: [`SpaceId::guest`].
    pub space: SpaceId,
    /// Of the links.
    pub line: LineConfig,
}

impl PeerConfig {
    /// Two copies, in a space of the region's own, with the usual times; in whichever cluster the holders are.
    pub fn new(holders: Vec<Address>, security: Security) -> io::Result<PeerConfig> {
        let mut serial = [0; 8];
        rustix::rand::getrandom(&mut serial, rustix::rand::GetRandomFlags::empty())?;
        let line = LineConfig {
            cluster: 0,
            security,
            wait: WaitPolicy::Adaptive,
            deadline: CALL_DEADLINE,
        };
        let space = SpaceId::guest(u64::from_ne_bytes(serial));
        Ok(PeerConfig { holders, copies: 2, space, line })
    }
}

/// The backing, of one region.
#[derive(Clone, Debug)]
pub struct Peers(Arc<Shared>);

/// State that the sources of a region and its keeper share.
#[derive(Debug)]
struct Shared {
    config: PeerConfig,
    keeping: OnceLock<Keeping>,
    bell: OnceLock<Arc<Bell>>,
    boxes: Mutex<Vec<Weak<[Mailbox]>>>,
}

impl Peers {
    /// Connects to no holder yet.
    pub fn new(config: PeerConfig) -> io::Result<Peers> {
        let (holders, copies) = (config.holders.len(), usize::from(config.copies));
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if holders > HOLDERS_MAX {
            return wrong(format!("{holders} holders: take {HOLDERS_MAX} at most"));
        }
        let most = holders.min(GUEST_COPIES_MAX);
        if copies == 0 || copies > most {
            return wrong(format!("{copies} copies with {holders} holders: take 1 to {most}"));
        }
        Ok(Peers(Arc::new(Shared {
            config,
            keeping: OnceLock::new(),
            bell: OnceLock::new(),
            boxes: Mutex::default(),
        })))
    }

    /// Pages that are kept by fewer nodes than there are to be, as far as is known: with two copies, 0 says that any
    /// one node may go. Looks at all pages.
    pub fn weak_pages(&self) -> usize {
        self.0.keeping.get().map_or(0, |keeping| keeping.weak_count(clock::now()))
    }
}

impl Shared {
    fn keeping(&self) -> &Keeping {
        self.keeping.get().expect("a region has begun")
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// A holder was reached.
    fn admit(&self, at: usize, way: Connection) -> Connection {
        let holder = &self.keeping().holders()[at];
        if holder.note(way.there.node, way.there.incarnation) {
            self.keeping().raise_alarm();
            self.ring();
        }
        way.of_generation(holder.generation())
    }

    fn boxes(&self) -> Vec<Arc<[Mailbox]>> {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        boxes.retain(|mail| mail.strong_count() > 0);
        boxes.iter().filter_map(Weak::upgrade).collect()
    }
}

fn no_places(pages: usize) -> Entries {
    // SAFETY: a place is atomic integers, for which zero is a value. The memory is taken when it is touched.
    Entries::over(unsafe { Box::<[Entry]>::new_zeroed_slice(pages).assume_init() })
}

impl Backing for Peers {
    fn begin(&self, pages: usize, bell: &Arc<Bell>) -> io::Result<()> {
        let PeerConfig { holders, copies, space, .. } = &self.0.config;
        let places = no_places(pages);
        let keeping = Keeping::new(clock::now(), *space, holders.len(), *copies, places);
        let once = self.0.bell.set(bell.clone()).is_ok();
        if !once || self.0.keeping.set(keeping).is_err() {
            let what =
                "these holders keep the pages of another region already: make a backing for each";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }

    fn source(&self, page_bytes: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(PeerSource::new(self.0.clone(), page_bytes)?))
    }

    fn upkeep(&self, page_bytes: usize) -> Option<Box<dyn Upkeep>> {
        Some(Box::new(PeerUpkeep::new(self.0.clone(), page_bytes)))
    }
}
