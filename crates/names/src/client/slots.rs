//! The slots of calls that must not be executed twice.
//!
//! A manager keeps the last answer of each slot beside the site that the call is about. So each site has slots of its
//! own: calls that wait for a manager that is away leave those of all others free, and a call keeps its number when its
//! site moves.

use crate::limits::SLOTS;
use node::{Cx, Permit, Semaphore};
use std::cell::{OnceCell, RefCell};

/// The slots of one site.
struct SiteSlots {
    permits: Semaphore,
    /// The last sequence of each slot.
    sequences: RefCell<[u32; SLOTS]>,
    free: RefCell<Vec<u16>>,
}

/// The slots of all sites.
pub(super) struct Slots {
    cx: Cx,
    /// Made when they are first used.
    sites: Vec<OnceCell<Box<SiteSlots>>>,
}

/// A slot in use, until this is dropped.
pub(super) struct Slot<'a> {
    slots: &'a SiteSlots,
    /// Its number.
    pub slot: u16,
    /// Greater than that of every earlier call in the slot.
    pub sequence: u32,
    _permit: Permit<'a>,
}

impl Slots {
    pub fn new(cx: &Cx) -> Slots {
        let sites = (0..wire::SITES).map(|_| OnceCell::new()).collect();
        Slots { cx: cx.clone(), sites }
    }

    /// A slot for a call about this site, as soon as one is free.
    pub async fn take(&self, site: u8) -> Slot<'_> {
        let slots = self.sites[usize::from(site)].get_or_init(|| Box::new(self.unused()));
        let permit = slots.permits.acquire(1).await;
        let slot = slots.free.borrow_mut().pop().expect("a permit is a free slot");
        let mut sequences = slots.sequences.borrow_mut();
        let last = &mut sequences[usize::from(slot)];
        *last += 1;
        Slot { slots, slot, sequence: *last, _permit: permit }
    }

    fn unused(&self) -> SiteSlots {
        SiteSlots {
            permits: Semaphore::new(&self.cx, SLOTS),
            sequences: RefCell::new([0; SLOTS]),
            free: RefCell::new((0..SLOTS as u16).rev().collect()),
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.free.borrow_mut().push(self.slot);
    }
}
