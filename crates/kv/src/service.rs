//! Slow work: values go to network memory and come back, commands go to other nodes. Tasks of the node beside the plain
//! structs.

mod carry;
mod run;
mod views;

use crate::away::{Fetch, PageRef, Store, Trip};
use crate::items::Items;
use crate::limits::*;
use endpoint::Frame;
use netmem::service::{GetError, Hint};
use netmem::{Class, PageId, Service, SpaceId, Version, Wanted};
use node::{Cx, Idle, Notify, all};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Pause before a page is asked for again that there was no memory for.
const FETCH_PAUSE: Duration = Duration::from_millis(2);

/// The service that does what [`Items`] ask for. Cloning it is cheap.
#[derive(Clone)]
pub struct Courier(Rc<Inner>);

struct Inner {
    cx: Cx,
    items: Rc<RefCell<Items>>,
    memory: Service,
    /// Copies of a value, which decide how many nodes may go down before it is lost.
    class: Class,
    space: SpaceId,
    stores: Idle,
    fetches: Idle,
    carries: Idle,
    /// One for each task that executes commands of other nodes: replies that it waits for have come.
    replies: Vec<Notify>,
    /// Buffer in which commands of other nodes are put together for a session.
    input: RefCell<Box<[u8]>>,
    view_changed: Notify,
    long: run::Long,
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("class", &self.0.class).finish_non_exhaustive()
    }
}

impl Courier {
    /// Starts its tasks. Values are put into `memory` in a space of this node's own, a new one in each of its
    /// incarnations.
    pub fn start(cx: &Cx, memory: Service, class: Class, items: Rc<RefCell<Items>>) -> Courier {
        let courier = Courier(Rc::new(Inner {
            space: SpaceId::private(cx.id(), wire::mix(cx.incarnation())),
            stores: Idle::new(cx),
            fetches: Idle::new(cx),
            carries: Idle::new(cx),
            replies: (0..SERVE_TASKS).map(|_| Notify::new(cx)).collect(),
            input: RefCell::new(vec![0; INPUT_BYTES].into()),
            view_changed: Notify::new(cx),
            long: run::Long::new(wire::mix(cx.incarnation())),
            cx: cx.clone(),
            items,
            memory,
            class,
        }));
        for _ in 0..STORE_TASKS {
            cx.spawn("kv store", courier.clone().take_away());
        }
        for _ in 0..FETCH_TASKS {
            cx.spawn("kv fetch", courier.clone().bring());
        }
        courier
    }

    /// As [`start`](Courier::start), for one of several nodes that are one key space: it carries commands to where
    /// their keys are kept and executes those that others bring. Nothing is answered before
    /// [`set_view`](Courier::set_view) and [`set_lease`](Courier::set_lease).
    pub fn start_shared(
        cx: &Cx,
        memory: Service,
        class: Class,
        items: Rc<RefCell<Items>>,
    ) -> Courier {
        items.borrow_mut().share(crate::Owners::new(cx.id()));
        let courier = Courier::start(cx, memory, class, items);
        for _ in 0..CARRY_TASKS {
            cx.spawn("kv carry", courier.clone().carry());
        }
        for worker in 0..SERVE_TASKS {
            cx.spawn("kv serve", courier.clone().serve(worker as u32));
        }
        cx.spawn("kv view", courier.clone().follow_views());
        cx.spawn("kv sweep", courier.clone().sweep());
        courier
    }

    /// Has it look what there is to do.
    pub fn ring(&self) {
        self.forget();
        self.tell_replies();
        let (stores, fetches) = self.0.items.borrow().errands();
        if self.0.items.borrow().carries() > 0 {
            self.0.carries.wake_one();
        }
        if stores > 0 {
            self.0.stores.wake_one();
        }
        if fetches > 0 {
            self.0.fetches.wake_one();
        }
    }

    /// The network memory that it uses.
    pub fn memory(&self) -> &Service {
        &self.0.memory
    }

    fn page(&self, place: &PageRef) -> (PageId, Version) {
        (PageId { space: self.0.space, index: place.index }, Version(place.version))
    }

    /// Frees pages that are not needed any more, here and on other nodes.
    fn forget(&self) {
        loop {
            let ended = self.0.items.borrow_mut().poll_ended();
            let Some(place) = ended else { return };
            let (id, version) = self.page(&place);
            // what counts as written need not be kept by anybody
            self.0.memory.written(id, version);
            self.0.memory.hint(id, Hint::DontNeed);
        }
    }

    async fn take_away(self) {
        loop {
            let next = self.0.items.borrow_mut().poll_store();
            let Some(store) = next else {
                self.0.stores.wait().await;
                continue;
            };
            self.ring(); // there may be work for another
            let done = self.store(&store).await;
            self.0.items.borrow_mut().stored(store, done);
            self.ring();
        }
    }

    async fn store(&self, store: &Store) -> bool {
        for (number, place) in store.trip().places().iter().enumerate() {
            let Some(page) = store.trip().page(number) else { return false };
            let (id, version) = self.page(place);
            if self.0.memory.put(id, version, self.0.class, page).await.is_err() {
                return false;
            }
        }
        true
    }

    async fn bring(self) {
        loop {
            let next = self.0.items.borrow_mut().poll_fetch();
            let Some(fetch) = next else {
                self.0.fetches.wait().await;
                continue;
            };
            self.ring();
            let pages = self.fetch(&fetch).await;
            self.0.items.borrow_mut().fetched(fetch, pages.as_deref());
            self.ring();
        }
    }

    /// All pages of a value, or nothing.
    async fn fetch(&self, fetch: &Fetch) -> Option<Vec<Frame>> {
        let trip: &Trip = fetch.trip();
        let mut pages = Vec::with_capacity(trip.places().len());
        for some in trip.places().chunks(FETCH_PAGES) {
            for page in all(some.iter().map(|place| self.fetch_page(place))).await {
                pages.push(page?);
            }
        }
        Some(pages)
    }

    async fn fetch_page(&self, place: &PageRef) -> Option<Frame> {
        let (id, version) = self.page(place);
        let wanted = Wanted { id, at_least: version, bytes: place.bytes };
        for _ in 0..FETCH_TRIES {
            match self.0.memory.get(wanted).await {
                Ok(got) => return Some(got.data).filter(|_| got.version == version),
                Err(GetError::NoMemory) => self.0.cx.sleep(FETCH_PAUSE).await,
                Err(_) => return None,
            }
        }
        None
    }
}
