//! Guests: processes that are no nodes and keep pages with nodes that lend memory (`netmem::guest`), as regions do.
//!
//! A guest has a machine of its own and no service. Its program writes, reads and forgets pages; its keeper visits the
//! holders, reconnects to them and repairs pages, beside it. Checks: every page has the bytes written last; as many
//! nodes have it as were reported, less those whose processes have ended since; it is lost only when two have; at rest
//! each page is with two nodes again, and readable.

use super::model::{Content, fill, parse};
use super::shared::{Phase, Shared, deadlines};
use crate::machine::{Boot, Role};
use crate::queue::Picos;
use crate::random::Random;
use endpoint::limits::PAGE_BYTES;
use netmem::guest::{
    Entries, Gone, Keeping, Refused, Response, Transport, Visits, found, reminder, taken,
};
use netmem::limits::{ATTEMPT, GUEST_AHEAD_MAX, GUEST_DROPS_AT_ONCE};
use netmem::protocol::{Batch, Body, Get, Message, Put, Record, Spaces, Stayed, op};
use netmem::{PageId, PageStamp, SpaceId, Version, Wanted};
use node::{Call, CallError, Cx, Reply};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::field::Field;
use wire::{Channel, Encoder, Errno, NodeId, Time};

/// Copies of each page.
const COPIES: u8 = 2;
/// Longest pause of a working program.
const PAUSE_US_MAX: u64 = 5_000;
/// Pause of a waiting program, and of a keeper.
const WAIT: Duration = Duration::from_millis(20);
/// Most that a keeper waits for a holder.
const VISIT_WAIT: Duration = Duration::from_millis(500);
/// Times that a page is asked for which does not come now.
const TRIES: usize = 100;

/// A way to a holder, which lasts as long as the holder's process.
#[derive(Clone, Copy)]
struct Route {
    there: Stayed,
    generation: u16,
}

/// A guest's state of a page of its own.
#[derive(Clone, Copy, Default)]
struct Page {
    /// The last version that was offered.
    version: u64,
    /// The stored content, and the number of processes that had ended when that began.
    stored: Option<(Content, u64)>,
    /// In the guest's own memory, since it could not be stored.
    here: bool,
    busy: bool,
}

/// State shared by program and keeper.
struct Guest {
    cx: Cx,
    shared: Rc<Shared>,
    keeping: Keeping,
    holders: Vec<NodeId>,
    ways: RefCell<Vec<Option<Route>>>,
    pages: RefCell<Vec<Page>>,
    attempts: Cell<u64>,
}

/// The ways of one task.
struct Asker {
    guest: Rc<Guest>,
    /// Pages, one after the other.
    landed: Vec<u8>,
}

/// Starts a guest of the nodes that lend.
pub fn role(shared: Rc<Shared>) -> Role {
    Rc::new(move |boot: &mut Boot<'_>| {
        shared.clocks.borrow_mut().insert(boot.cx.id(), boot.clock);
        let guest = Rc::new(Guest::new(&boot.cx, &shared));
        boot.cx.spawn("guest", Program::new(&guest).run());
        boot.cx.spawn("guest's keeper", Keeper::new(&guest).run());
        shared.nodes.borrow_mut().insert(boot.cx.id(), boot.cx.clone());
        Ok(Box::new(()) as Box<dyn Any>)
    })
}

impl Guest {
    fn new(cx: &Cx, shared: &Rc<Shared>) -> Guest {
        let holders: Vec<NodeId> = (1..=shared.shape.nodes).map(NodeId).collect();
        let count = shared.shape.guest_pages as usize;
        let space = SpaceId::guest(shared.serial() * 4);
        let keeping = Keeping::new(cx.now(), space, holders.len(), COPIES, Entries::new(count));
        let keeping = keeping.with_bugs(cx.bugs());
        Guest {
            cx: cx.clone(),
            shared: shared.clone(),
            keeping,
            ways: RefCell::new(vec![None; holders.len()]),
            holders,
            pages: RefCell::new(vec![Page::default(); count]),
            attempts: Cell::new(0),
        }
    }

    fn now(&self) -> Picos {
        self.shared.now(&self.cx)
    }

    fn id(&self, page: usize) -> PageId {
        PageId { space: self.keeping.space(), index: page as u64 }
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) {
        let text = format!("guest {}: {what}", self.cx.id());
        self.shared.model.borrow_mut().violations.push(text);
    }

    /// The way to a holder whose process is still the one that it was made to.
    fn way(&self, at: usize) -> Option<Route> {
        let way = self.ways.borrow()[at]?;
        let nodes = self.shared.nodes.borrow();
        let incarnation = nodes.get(&self.holders[at]).map(Cx::incarnation);
        Some(way).filter(|way| incarnation == Some(way.there.incarnation))
    }

    /// Takes a page, or another one that is not busy.
    fn take(&self, page: usize) -> Option<usize> {
        let mut pages = self.pages.borrow_mut();
        let count = pages.len();
        let free = (0..count).map(|n| (page + n) % count).find(|page| !pages[*page].busy)?;
        pages[free].busy = true;
        Some(free)
    }

    fn give_back(&self, page: usize, change: impl FnOnce(&mut Page)) {
        let page = &mut self.pages.borrow_mut()[page];
        change(page);
        page.busy = false;
    }

    /// Nodes that have a version of a page.
    fn copies(&self, page: usize, version: Version) -> u64 {
        let id = self.id(page);
        let services = self.shared.services.borrow();
        let has = |memory: &netmem::Memory| {
            let page = memory.find(id).and_then(|frame| memory.page(frame));
            page.is_some_and(|page| page.version == version)
        };
        services.values().filter(|service| service.inspect(|memory, _| has(memory))).count() as u64
    }

    /// Checks the copies of a page that two nodes were reported to have: one may be missing for each process that has
    /// ended since.
    fn check_copies(&self, page: usize, when: &str) {
        let Some((content, ended)) = self.pages.borrow()[page].stored else { return };
        let copies = self.copies(page, content.version);
        let ends = self.shared.ends.get() - ended;
        if copies + ends < u64::from(COPIES) {
            let (id, version) = (self.id(page), content.version.0);
            self.wrong(format_args!(
                "{copies} nodes have {id} version {version}, {when}, {ends} ended since"
            ));
        }
    }

    fn check_bytes(&self, id: PageId, content: Content, bytes: &[u8]) {
        let landed = parse(bytes);
        if landed != Some((id, content)) {
            let version = content.version.0;
            self.wrong(format_args!("{landed:?} came for {id} version {version}"));
        }
    }

    async fn ask(
        &self,
        at: usize,
        op: u16,
        body: &Body,
        with: Load<'_>,
    ) -> Result<Reply, CallError> {
        let Load { once, data, trailer, lands, wait } = with;
        let frames = self.cx.frames();
        let data = match data {
            Some(bytes) => self.cx.piece(frames.copy_of(bytes).ok_or(CallError::Overloaded)?),
            None => self.cx.pieces(),
        };
        let into = match lands {
            true => self.cx.piece(frames.alloc_exact(PAGE_BYTES).ok_or(CallError::Overloaded)?),
            false => self.cx.pieces(),
        };
        let (to, channel, deadline) = (self.holders[at], Channel::MEMORY, Some(wait));
        self.cx.call(Call { to, channel, op, once, deadline, body, data, trailer, into }).await
    }
}

struct Load<'a> {
    once: bool,
    data: Option<&'a [u8]>,
    trailer: &'a [u8],
    lands: bool,
    wait: Duration,
}

impl Default for Load<'_> {
    fn default() -> Self {
        Load { once: false, data: None, trailer: &[], lands: false, wait: ATTEMPT }
    }
}

impl Asker {
    fn new(guest: &Rc<Guest>) -> Asker {
        Asker { guest: guest.clone(), landed: vec![0; GUEST_AHEAD_MAX * PAGE_BYTES] }
    }

    /// Asks over the way that is there now, which ends with the holder's process: no other process answers over it.
    async fn over(
        &self,
        at: usize,
        op: u16,
        body: &Body,
        with: Load<'_>,
    ) -> Result<Reply, CallError> {
        let there = |way: Option<Route>| way.map(|way| way.there).ok_or(CallError::PeerLost);
        let before = there(self.guest.way(at))?;
        let reply = self.guest.ask(at, op, body, with).await?;
        if there(self.guest.way(at))? == before { Ok(reply) } else { Err(CallError::PeerLost) }
    }

    async fn get_into(&mut self, at: usize, wanted: Wanted, nth: usize) -> Response {
        let Wanted { id, at_least, bytes } = wanted;
        let body = Get::new(id, at_least, bytes, self.guest.cx.id()).encode();
        let load = Load { lands: true, ..Load::default() };
        let reply = match self.over(at, op::GET, &body, load).await {
            Ok(reply) if reply.status == 0 => reply,
            Ok(reply) => return Response::Silent(Errno(reply.status)),
            Err(error) => return Response::Silent(error.into()),
        };
        let landed = reply.data.first().map_or(&[][..], |frame| &frame[..reply.bytes]);
        let found = found(wanted, &reply.body, landed);
        if let Response::Here(_) = found {
            self.landed[nth * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(landed);
        }
        found
    }
}

impl Transport for Asker {
    fn now(&self) -> Time {
        self.guest.cx.now()
    }

    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn reach(&mut self, at: usize) -> bool {
        self.guest.way(at).is_some() && !self.guest.keeping.holders()[at].is_away()
    }

    fn is_broken(&self, at: usize) -> bool {
        self.guest.way(at).is_none()
    }

    fn there(&self, at: usize) -> Option<Stayed> {
        self.guest.ways.borrow()[at].map(|way| way.there)
    }

    fn generation(&self, at: usize) -> u16 {
        self.guest.ways.borrow()[at].map_or(0, |way| way.generation)
    }

    async fn get(&mut self, at: usize, wanted: Wanted) -> Response {
        self.get_into(at, wanted, 0).await
    }

    fn ask_ahead(&mut self, _at: usize, _wanted: &[Wanted]) -> bool {
        true
    }

    /// Asks one by one here, where it is no matter how long that takes.
    async fn answers(&mut self, at: usize, wanted: &[Wanted], found: &mut [Response]) {
        for (nth, wanted) in wanted.iter().enumerate() {
            found[nth] = self.get_into(at, *wanted, nth).await;
        }
    }

    fn landed(&self, _: usize, nth: usize) -> &[u8] {
        &self.landed[nth * PAGE_BYTES..][..PAGE_BYTES]
    }

    async fn put(&mut self, at: usize, put: &Put, data: &[u8]) -> Result<(), Refused> {
        let mut trailer = [0; PageStamp::BYTES];
        put.stamp.put(&mut Encoder::new(&mut trailer));
        let load = Load { once: true, data: Some(data), trailer: &trailer, ..Load::default() };
        match self.over(at, op::PUT, &put.encode(), load).await {
            Ok(reply) if reply.status == 0 => taken(&reply.body),
            Ok(reply) => Err(Refused::Other(Errno(reply.status))),
            Err(error) => Err(Refused::Silent(error.into())),
        }
    }

    fn ring(&self) {}
}

/// The program that uses the pages.
struct Program {
    guest: Rc<Guest>,
    asker: Asker,
    random: Random,
}

impl Program {
    fn new(guest: &Rc<Guest>) -> Program {
        let name = format!("guest {:x}", guest.cx.incarnation());
        let random = Random::new(guest.shared.seed, &name);
        Program { guest: guest.clone(), asker: Asker::new(guest), random }
    }

    async fn run(mut self) {
        loop {
            match self.guest.shared.phase.get() {
                Phase::Working => {
                    let pause = self.random.below(PAUSE_US_MAX);
                    self.guest.cx.sleep(Duration::from_micros(pause)).await;
                    self.step().await;
                    continue;
                }
                Phase::Resting => self.store_rest().await,
                Phase::Reading if !self.has_read() => self.read_all().await,
                _ => (),
            }
            self.guest.cx.sleep(WAIT).await;
        }
    }

    async fn step(&mut self) {
        let count = self.guest.pages.borrow().len();
        let Some(page) = self.guest.take(self.random.index(count)) else { return };
        match self.random.below(100) {
            0..45 => self.read(page, 1).await,
            45..55 => self.read_ahead(page).await,
            55..95 => self.write(page).await,
            _ => self.forget(page),
        }
    }

    async fn write(&mut self, page: usize) {
        let guest = self.guest.clone();
        let version = guest.pages.borrow()[page].version + 1;
        guest.attempts.set(guest.attempts.get() + 1);
        let content = Content { version: Version(version), attempt: guest.attempts.get() };
        let (id, ended) = (guest.id(page), guest.shared.ends.get());
        let mut bytes = vec![0; PAGE_BYTES];
        fill(&mut bytes, id, content);
        let text = format_args!("store {id} version {version}");
        let number = guest.shared.begin(&guest.cx, deadlines::SEVERAL, text);
        let stored = guest.keeping.store(&mut self.asker, page as u64, version, &bytes).await;
        let outcome = match stored {
            Ok(()) => Ok(format_args!("stored")),
            Err(_) => Err(format_args!("not stored")),
        };
        guest.shared.end(guest.now(), number, outcome);
        let here = stored.is_err();
        let stored = (!here).then_some((content, ended));
        guest.pages.borrow_mut()[page] = Page { version, stored, here, busy: true };
        guest.check_copies(page, "which was just stored");
        guest.give_back(page, |_| ());
    }

    /// Reads a page, in so many tries.
    async fn read(&mut self, page: usize, tries: usize) {
        let guest = self.guest.clone();
        let Some((content, ended)) = guest.pages.borrow()[page].stored else {
            return guest.give_back(page, |_| ());
        };
        guest.check_copies(page, "which is asked for");
        let (id, version) = (guest.id(page), content.version.0);
        let text = format_args!("fetch {id} version {version}");
        let number = guest.shared.begin(&guest.cx, deadlines::SEVERAL, text);
        let mut got = Err(Gone::Unavailable(Errno::EAGAIN));
        for _ in 0..tries {
            got = guest.keeping.fetch(&mut self.asker, page as u64, version).await;
            if !matches!(got, Err(Gone::Unavailable(_))) {
                break;
            }
            guest.cx.sleep(WAIT).await;
        }
        let outcome = match got {
            Ok(_) => Ok(format_args!("came")),
            Err(_) => Err(format_args!("did not come")),
        };
        guest.shared.end(guest.now(), number, outcome);
        let lost = got == Err(Gone::Lost);
        match got {
            Ok((at, _)) => guest.check_bytes(id, content, self.asker.landed(at, 0)),
            Err(Gone::Lost) => self.check_loss(page, content, ended),
            Err(Gone::Unavailable(errno)) if tries > 1 => {
                guest.wrong(format_args!("{id} version {version} does not come: {}", errno.0));
            }
            Err(Gone::Unavailable(_)) => (),
        }
        guest.give_back(page, |page| page.stored = page.stored.filter(|_| !lost));
    }

    /// Reads a page and those behind it, as far as they come in one go.
    async fn read_ahead(&mut self, first: usize) {
        let guest = self.guest.clone();
        let mut hand = vec![first];
        while hand.len() < GUEST_AHEAD_MAX {
            let Some(next) = guest.take(hand[hand.len() - 1] + 1) else { break };
            hand.push(next);
        }
        let stored = |page: &usize| guest.pages.borrow()[*page].stored.map(|(content, _)| content);
        let read: Vec<(usize, Content)> =
            hand.iter().filter_map(|page| Some((*page, stored(page)?))).collect();
        let wanted: Vec<(u64, u64)> =
            read.iter().map(|(page, content)| (*page as u64, content.version.0)).collect();
        let check = |which: usize, bytes: &[u8], _| {
            let (page, content) = read[which];
            guest.check_bytes(guest.id(page), content, bytes);
        };
        guest.keeping.fetch_ahead(&mut self.asker, &wanted, check).await;
        hand.into_iter().for_each(|page| guest.give_back(page, |_| ()));
    }

    /// Checks that a page of two nodes is lost only when both have ended.
    fn check_loss(&self, page: usize, content: Content, ended: u64) {
        let (guest, version) = (&self.guest, content.version);
        let (copies, ends) = (guest.copies(page, version), guest.shared.ends.get() - ended);
        if copies > 0 || ends < u64::from(COPIES) {
            let id = guest.id(page);
            guest.wrong(format_args!(
                "{id} version {} is lost, {copies} nodes have it, {ends} ended since",
                version.0
            ));
        }
    }

    fn forget(&mut self, page: usize) {
        let (guest, now) = (&self.guest, self.guest.cx.now());
        let version = guest.pages.borrow()[page].version;
        for obsolete in guest.keeping.forget(page as u64, version) {
            guest.keeping.drop_at(now, obsolete);
        }
        guest.give_back(page, |page| (page.stored, page.here) = (None, false));
    }

    /// Stores what could not be stored before.
    async fn store_rest(&mut self) {
        let count = self.guest.pages.borrow().len();
        for page in 0..count {
            let here = self.guest.pages.borrow()[page].here;
            if here && self.guest.take(page) == Some(page) {
                self.write(page).await;
            }
        }
    }

    fn has_read(&self) -> bool {
        self.guest.shared.readers_done.borrow().contains(&self.guest.cx.id())
    }

    /// At rest: all that could be stored is with two nodes, and comes.
    async fn read_all(&mut self) {
        let guest = self.guest.clone();
        let (weak, count) = (guest.keeping.weak_count(guest.cx.now()), guest.pages.borrow().len());
        for page in 0..count {
            let stored = guest.pages.borrow()[page].stored;
            if let Some((content, _)) = stored {
                // a page without a copy may be lost rightly: the read tells
                let copies = guest.copies(page, content.version);
                if weak == 0 && (1..u64::from(COPIES)).contains(&copies) {
                    let (id, version) = (guest.id(page), content.version.0);
                    guest.wrong(format_args!("{copies} nodes have {id} version {version} at rest"));
                }
            }
            if guest.take(page) == Some(page) {
                self.read(page, TRIES).await;
            }
        }
        guest.shared.readers_done.borrow_mut().insert(guest.cx.id());
    }
}

/// The keeper, beside it.
struct Keeper {
    guest: Rc<Guest>,
    asker: Asker,
    visits: Visits,
}

impl Keeper {
    fn new(guest: &Rc<Guest>) -> Keeper {
        let visits = Visits::new(&guest.keeping);
        Keeper { guest: guest.clone(), asker: Asker::new(guest), visits }
    }

    async fn run(mut self) {
        let guest = self.guest.clone();
        loop {
            for at in 0..guest.holders.len() {
                // a broken route is made anew at once, since the program waits for it
                let broke = guest.way(at).is_none() && !guest.keeping.holders()[at].is_away();
                if self.visits.is_due(at, guest.cx.now()) || broke {
                    self.visit(at).await;
                }
                if !guest.keeping.holders()[at].is_away() {
                    self.tell(at).await;
                }
                self.visits.give_up_late(&guest.keeping, at, guest.cx.now());
            }
            self.mend().await;
            guest.cx.sleep(WAIT).await;
        }
    }

    async fn visit(&mut self, at: usize) {
        let (guest, keeping) = (self.guest.clone(), &self.guest.keeping);
        let body = Spaces::of(&[keeping.space()]).encode();
        let load = Load { wait: VISIT_WAIT, ..Load::default() };
        let reply = guest.ask(at, op::STAY, &body, load).await.ok();
        let there = reply.and_then(|reply| Stayed::decode(&reply.body).ok());
        let holder = &keeping.holders()[at];
        match there {
            Some(there) => {
                if holder.note(there.node, there.incarnation) {
                    keeping.raise_alarm();
                }
                guest.ways.borrow_mut()[at] =
                    Some(Route { there, generation: holder.generation() });
            }
            None => holder.note_away(guest.cx.now()),
        }
        self.visits.handle_visit(keeping, at, guest.cx.now());
    }

    async fn tell(&mut self, at: usize) {
        let keeping = &self.guest.keeping;
        let due = keeping.take_obsolete(at, GUEST_DROPS_AT_ONCE);
        if due.is_empty() {
            return;
        }
        let records: Vec<Record> =
            due.iter().map(|obsolete| reminder(keeping.space(), obsolete)).collect();
        let batch = Batch::of(0, &records, false);
        let mut data = vec![0; batch.data_bytes()];
        if !data.is_empty() {
            Batch::encode_data(&records, &mut data);
        }
        let data = Some(&data[..]).filter(|data| !data.is_empty());
        let load = Load { once: true, data, ..Load::default() };
        let told = self.guest.ask(at, op::DROP, &batch.encode(), load).await;
        if told.is_err() {
            let now = self.guest.cx.now();
            due.into_iter().for_each(|obsolete| {
                keeping.drop_at(now, obsolete);
            });
        }
    }

    async fn mend(&mut self) {
        let guest = self.guest.clone();
        let mut buffer = vec![0; PAGE_BYTES];
        for page in self.visits.weak(&guest.keeping, guest.cx.now()) {
            let at = page as usize;
            let stored = guest.pages.borrow()[at].stored.filter(|_| !guest.pages.borrow()[at].busy);
            let Some((content, _)) = stored else {
                self.visits.handle_unmended(guest.cx.now());
                continue;
            };
            guest.pages.borrow_mut()[at].busy = true;
            let (ended, version) = (guest.shared.ends.get(), content.version.0);
            let mended = guest.keeping.mend(&mut self.asker, page, version, &mut buffer).await;
            let done = mended == Ok(true);
            guest.give_back(at, |page| {
                page.stored = page
                    .stored
                    .map(|(content, before)| (content, if done { ended } else { before }))
            });
            if let Err(Gone::Unavailable(_)) = mended {
                return self.visits.handle_unmended(guest.cx.now());
            }
        }
    }
}
