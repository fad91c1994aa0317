//! Programs on a node with network memory: they read and write pages of their own spaces and of shared ones, and report
//! the results to the checker.

use super::model::{Content, fill};
use super::shared::{Phase, Shared, deadlines};
use super::spaces::{kind, private, shared as shared_space};
use crate::queue::Picos;
use crate::random::Random;
use endpoint::limits::PAGE_BYTES;
use netmem::service::{Hint, Plan, PutError};
use netmem::{PageId, Run, Service, SpaceId, Version, Wanted};
use node::Cx;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Longest pause of a working program.
const PAUSE_US_MAX: u64 = 3_000;
/// Pause of one that waits.
const WAIT: Duration = Duration::from_millis(20);
/// Most pages of a run.
const RUN_MAX: u64 = 32;
/// Times that a page is asked for at the end, where it may be slow to come.
const TRIES: usize = 4;

/// One program.
pub struct Program {
    cx: Cx,
    service: Service,
    shared: Rc<Shared>,
    number: u16,
    random: Random,
    own: Vec<SpaceId>,
    /// Newest versions that it has seen or written.
    seen: BTreeMap<PageId, Version>,
    /// Its hints about what it will read, right or wrong.
    plan: Option<Plan>,
}

impl Program {
    /// Program `number` of a node that begins to live.
    pub fn new(cx: &Cx, service: &Service, shared: &Rc<Shared>, number: u16) -> Program {
        let name = format!("program {:x} {number}", cx.incarnation());
        let mut program = Program {
            cx: cx.clone(),
            service: service.clone(),
            shared: shared.clone(),
            number,
            random: Random::new(shared.seed, &name),
            own: Vec::new(),
            seen: BTreeMap::new(),
            plan: service.plan_use(Version(0), PAGE_BYTES as u32).ok(),
        };
        let spaces = [program.new_space(), program.new_space()];
        program.own.extend(spaces);
        program
    }

    /// Runs until the node ends.
    pub async fn run(mut self) {
        let mut rested = false;
        loop {
            match self.shared.phase.get() {
                Phase::Working => {
                    let pause = self.random.below(PAUSE_US_MAX);
                    self.cx.sleep(Duration::from_micros(pause)).await;
                    self.step().await;
                    continue;
                }
                Phase::Resting if !rested => rested = self.rest().await,
                Phase::Reading if self.number == 0 && !self.has_read() => self.read_all().await,
                _ => (),
            }
            self.cx.sleep(WAIT).await;
        }
    }

    fn new_space(&mut self) -> SpaceId {
        // where nothing is shared most is on stable storage: programs with more pages than there is memory
        let stored = self.shared.shape.shared_spaces == 0 && self.random.chance(875_000);
        let kind = if stored { 1 } else { self.random.below(4) };
        private(self.cx.id(), self.shared.serial() * 4 + kind)
    }

    fn now(&self) -> Picos {
        self.shared.now(&self.cx)
    }

    /// A page, the first ones likelier.
    fn page_of(&mut self, space: SpaceId) -> PageId {
        let pages = u64::from(self.shared.shape.pages);
        let index = self.random.below(pages).min(self.random.below(pages));
        PageId { space, index }
    }

    fn own_page(&mut self) -> PageId {
        let space = *self.random.pick(&self.own);
        self.page_of(space)
    }

    fn shared_page(&mut self) -> PageId {
        let spaces = u64::from(self.shared.shape.shared_spaces);
        if spaces == 0 {
            return self.own_page();
        }
        let space = shared_space(self.random.below(spaces));
        self.page_of(space)
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..38 => {
                let page = self.own_page();
                self.read(page).await;
            }
            38..65 => {
                let page = self.shared_page();
                self.read(page).await;
            }
            65..84 => {
                let page = self.own_page();
                self.write(page).await;
            }
            84..94 => {
                let page = self.shared_page();
                self.write(page).await;
            }
            94..97 => self.hint(),
            97 => self.read_run().await,
            _ => self.move_on().await,
        }
    }

    fn any_page(&mut self) -> PageId {
        if self.random.chance(500_000) { self.own_page() } else { self.shared_page() }
    }

    /// Pages at equal distances.
    fn any_run(&mut self) -> Run {
        let (first, pages) = (self.any_page(), 1 + self.random.below(RUN_MAX) as u32);
        let strides = [1, 1, 1, 2, 3, -1, 17];
        Run { stride: *self.random.pick(&strides), ..Run::new(first, pages) }
    }

    /// Says something that is not true, mostly.
    fn hint(&mut self) {
        match self.random.below(5) {
            0 => {
                let page = self.any_page();
                self.service.hint(page, Hint::DontNeed);
            }
            1..4 => {
                let run = self.any_run();
                self.service.hint_run(run, Hint::WillNeed { bytes: PAGE_BYTES as u32 });
            }
            _ => self.plan.iter().for_each(Plan::clear),
        }
    }

    /// Reads pages in an order that it may have told before, and that its faults may tell.
    async fn read_run(&mut self) {
        let run = self.any_run();
        let says = self.random.chance(600_000);
        if let Some(plan) = self.plan.as_ref().filter(|_| says) {
            // when too much was said and not done, the rest of it goes unsaid
            let _ = plan.add(run);
        }
        let pages = u64::from(self.shared.shape.pages);
        let truth = self.random.chance(800_000);
        let read: Vec<PageId> = run.iter().filter(|id| truth && id.index < pages).collect();
        for id in read {
            self.cx.sleep(Duration::from_micros(self.random.below(PAUSE_US_MAX))).await;
            self.read(id).await;
        }
    }

    /// A version that the program may insist on.
    fn least(&mut self, id: PageId) -> Version {
        let seen = self.seen.get(&id).copied().unwrap_or_default();
        match self.random.below(10) {
            0..5 => seen.max(self.shared.model.borrow().durable(id)),
            5..9 => seen,
            _ => Version(0),
        }
    }

    async fn read(&mut self, id: PageId) {
        let at_least = self.least(id);
        self.get(id, at_least, false).await;
    }

    /// Asks for a page. Says whether it came.
    async fn get(&mut self, id: PageId, at_least: Version, at_rest: bool) -> bool {
        let shared = self.shared.clone();
        let asked = shared.model.borrow().ask(self.cx.id(), id, at_least, at_rest);
        let text = format_args!("get {id} from version {} on", at_least.0);
        let number = shared.begin(&self.cx, deadlines::GET, text);
        let wanted = Wanted { id, at_least, bytes: PAGE_BYTES as u32 };
        let outcome = self.service.get(wanted).await;
        let mut model = shared.model.borrow_mut();
        match outcome {
            Ok(got) => {
                model.delivered(asked, got.version, &got.data);
                let seen = self.seen.entry(id).or_default();
                *seen = got.version.max(*seen);
                let (version, source) = (got.version.0, got.source);
                shared.end(
                    self.now(),
                    number,
                    Ok(format_args!("version {version} from {source:?}")),
                );
                true
            }
            Err(error) => {
                model.failed(asked, &error);
                shared.end(self.now(), number, Err(format_args!("{error}")));
                false
            }
        }
    }

    async fn write(&mut self, id: PageId) {
        let seen = self.seen.get(&id).copied().unwrap_or_default();
        let version = Version(seen.max(self.shared.model.borrow().durable(id)).0 + 1);
        let content = self.shared.model.borrow_mut().begin(id, kind(id.space).class(), version);
        match self.put(id, content).await {
            Ok(()) if self.random.chance(700_000) => self.flush(id, content).await,
            Ok(()) => (),
            Err(_) => self.shared.model.borrow_mut().refused(id, content),
        }
    }

    async fn put(&mut self, id: PageId, content: Content) -> Result<(), Option<PutError>> {
        let Some(mut data) = self.cx.frames().alloc_exact(PAGE_BYTES) else { return Err(None) };
        fill(&mut data, id, content);
        let Content { version, .. } = content;
        let text = format_args!("put {id} version {}", version.0);
        let number = self.shared.begin(&self.cx, deadlines::PUT, text);
        let outcome = self.service.put(id, version, kind(id.space).class(), data.freeze()).await;
        match &outcome {
            Ok(()) => self.shared.end(self.now(), number, Ok(format_args!("done"))),
            Err(error) => self.shared.end(self.now(), number, Err(format_args!("{error}"))),
        }
        let newest = match outcome {
            Ok(()) => version,
            Err(PutError::Stale(known)) => known,
            Err(_) => Version(0),
        };
        let seen = self.seen.entry(id).or_default();
        *seen = newest.max(*seen);
        outcome.map_err(Some)
    }

    async fn flush(&mut self, id: PageId, content: Content) {
        let text = format_args!("flush {id} version {}", content.version.0);
        let number = self.shared.begin(&self.cx, deadlines::FLUSH, text);
        let outcome = self.service.flush(id).await;
        match outcome {
            Ok(()) => {
                let fenced = self.shared.fenced.borrow().contains(&self.cx.id());
                if !fenced {
                    self.shared.model.borrow_mut().acknowledged(id, content);
                }
                self.shared.end(self.now(), number, Ok(format_args!("durable")));
            }
            Err(weak) => self.shared.end(self.now(), number, Err(format_args!("{weak}"))),
        }
    }

    /// Frees a space and takes another.
    async fn move_on(&mut self) {
        if !self.random.chance(150_000) {
            return;
        }
        let at = self.random.index(self.own.len());
        let new = self.new_space();
        let old = std::mem::replace(&mut self.own[at], new);
        self.seen.retain(|id, _| id.space != old);
        self.shared.model.borrow_mut().begin_free(old);
        let text = format_args!("free {:x}", old.0);
        let number = self.shared.begin(&self.cx, deadlines::SEVERAL, text);
        match self.service.free(old).await {
            Ok(()) => {
                self.shared.model.borrow_mut().end_free(old);
                self.shared.end(self.now(), number, Ok(format_args!("done")));
                // nothing of it comes back
                let page = self.page_of(old);
                self.get(page, Version(0), false).await;
                self.seen.retain(|id, _| id.space != old);
            }
            Err(error) => self.shared.end(self.now(), number, Err(format_args!("{error:?}"))),
        }
    }

    /// Makes durable what is not. Says whether all is.
    async fn rest(&mut self) -> bool {
        let shared = (0..u64::from(self.shared.shape.shared_spaces)).map(shared_space);
        let spaces: Vec<SpaceId> = self.own.iter().copied().chain(shared).collect();
        let mut all = true;
        for space in spaces {
            all &= self.service.flush_space(space).await.is_ok();
        }
        all
    }

    fn has_read(&self) -> bool {
        self.shared.readers_done.borrow().contains(&self.cx.id())
    }

    /// Reads all that must be readable from here.
    async fn read_all(&mut self) {
        let me = self.cx.id();
        let concerns = |space: SpaceId| space.owner().is_none_or(|owner| owner == me);
        let pages = self.shared.model.borrow().readable(concerns);
        for id in pages {
            let at_least = self.shared.model.borrow().durable(id);
            let mut came = false;
            for last in (0..TRIES).map(|at| at + 1 == TRIES) {
                came = came || self.get(id, at_least, last).await;
            }
        }
        self.shared.readers_done.borrow_mut().insert(me);
    }
}
