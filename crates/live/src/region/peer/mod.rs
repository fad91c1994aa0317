//! Pages in the memory that other nodes lend (`netmem::Service`), asked for by the faulting thread itself.
//!
//! A region's space is its process's own. So the process is its directory (SOSP'95, non-shared pages: no hop): it knows
//! which holders have a page, asks them by the service's own messages, and makes copies again when one is gone. Nothing
//! of it stands in the directories of the nodes.
//!
//! | part | what it does |
//! | --- | --- |
//! | `line` | one thread's link to one holder |
//! | `way` | what is asked over it |
//! | `places` | which holders have a page |
//! | `standing` | what is known of each holder |
//! | `source` | a fault's ways to all holders: fetch, store, mend |
//! | `upkeep` | in the background: visits to holders, links made anew, what holders are to forget |
//!
//! Invariants: a version counts as stored when as many different nodes as asked for have said that they have it; a page
//! whose holders are all in another life than when they took it is lost, and one whose holders do not answer is not.

mod line;
mod places;
mod source;
mod standing;
mod upkeep;
mod way;

pub use line::{Answer, Line, LineConfig, LineError, Question};

use super::backing::{Backing, Source, Upkeep};
use super::keeper::Bell;
use super::limits::{CALL_DEADLINE, COPIES_MAX, DROPS_MAX, HOLDERS_MAX};
use crate::clock;
use crate::link::{Address, Security};
use crate::wait::WaitPolicy;
use netmem::SpaceId;
use places::{Held, HeldBy, Places};
use source::PeerSource;
use standing::Standing;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use upkeep::PeerUpkeep;
use way::Mailbox;
use wire::Time;

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

/// A page that a holder is to forget, up to a version.
#[derive(Clone, Copy, Debug)]
struct Obsolete {
    holder: usize,
    page: u64,
    version: u64,
}

/// What the sources of a region and its keeper share.
#[derive(Debug)]
struct Shared {
    config: PeerConfig,
    holders: Box<[Standing]>,
    places: OnceLock<Places>,
    bell: OnceLock<Arc<Bell>>,
    boxes: Mutex<Vec<Weak<[Mailbox]>>>,
    obsolete: Mutex<VecDeque<Obsolete>>,
    /// Copies may be missing.
    alarm: AtomicBool,
    begun: Time,
}

impl Peers {
    /// Connects to nobody yet.
    pub fn new(config: PeerConfig) -> io::Result<Peers> {
        let (holders, copies) = (config.holders.len(), usize::from(config.copies));
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if holders > HOLDERS_MAX {
            return wrong(format!("{holders} holders: take {HOLDERS_MAX} at most"));
        }
        let most = holders.min(COPIES_MAX);
        if copies == 0 || copies > most {
            return wrong(format!("{copies} copies with {holders} holders: take 1 to {most}"));
        }
        Ok(Peers(Arc::new(Shared {
            holders: config.holders.iter().map(|_| Standing::default()).collect(),
            config,
            places: OnceLock::new(),
            bell: OnceLock::new(),
            boxes: Mutex::default(),
            obsolete: Mutex::new(VecDeque::with_capacity(DROPS_MAX)),
            alarm: AtomicBool::new(false),
            begun: clock::now(),
        })))
    }
}

impl Peers {
    /// Pages that are kept by fewer nodes than there are to be, as far as is known: with two copies, 0 says that any
    /// one node may go. Looks at all pages.
    pub fn weak_pages(&self) -> usize {
        let (now, copies) = (clock::now(), usize::from(self.0.config.copies));
        let has = |held: &&Held| self.0.has(held, now);
        let weak = |held: &HeldBy| held.iter().filter(has).count() < copies;
        self.0.places.get().map_or(0, |places| places.count(weak))
    }
}

impl Shared {
    fn places(&self) -> &Places {
        self.places.get().expect("a region has begun")
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// Copies may be missing: the keeper is to look.
    fn raise_alarm(&self) {
        self.alarm.store(true, Ordering::Release);
        self.ring();
    }

    /// Has a holder forget a page, soon; false when it cannot be noted now.
    fn drop_at(&self, obsolete: Obsolete) -> bool {
        let Ok(mut list) = self.obsolete.try_lock() else { return false };
        if list.len() >= DROPS_MAX {
            // Who is gone hears of nothing, and must not take the room of those who do.
            let now = clock::now();
            list.retain(|obsolete| !self.holders[obsolete.holder].is_given_up(now));
        }
        let room = list.len() < DROPS_MAX; // it never grows
        if room {
            list.push_back(obsolete);
        }
        room
    }

    fn boxes(&self) -> Vec<Arc<[Mailbox]>> {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        boxes.retain(|mail| mail.strong_count() > 0);
        boxes.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Backing for Peers {
    fn begin(&self, pages: usize, bell: &Arc<Bell>) -> io::Result<()> {
        let once = self.0.bell.set(bell.clone()).is_ok();
        if !once || self.0.places.set(Places::new(pages)).is_err() {
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

#[cfg(test)]
mod tests {
    use super::super::limits::AWAY_MAX;
    use super::*;

    #[test]
    fn what_a_holder_that_is_gone_was_to_forget_takes_no_room() {
        let holders = (0..3).map(|n| Address::Unix(format!("/{n}").into())).collect();
        let Peers(shared) =
            Peers::new(PeerConfig::new(holders, Security::Insecure).unwrap()).unwrap();
        let mut pages = 0..;
        let mut noted = |holder, count: usize| {
            let pages = pages.by_ref().take(count);
            let noted =
                pages.filter(|page| shared.drop_at(Obsolete { holder, page: *page, version: 1 }));
            noted.count()
        };
        assert_eq!(noted(0, DROPS_MAX - 10) + noted(1, 10), DROPS_MAX);
        assert_eq!(noted(1, 5), 0, "nobody is gone");
        shared.holders[0].note_away();
        std::thread::sleep(AWAY_MAX);
        assert_eq!(noted(1, 5), 5);
        assert_eq!(shared.obsolete.lock().unwrap().len(), 15);
    }
}
