//! A program asks for a page.

use super::ahead::Seen;
use super::counters::{Counters, Source};
use super::events::Event;
use super::faults::FaultNo;
use super::home::Route;
use super::leave::Leaves;
use super::pages::{Begun, Here};
use super::store::Stored;
use super::waiting::{Behind, First};
use super::{Backing, Load, Service};
use crate::directory::{Holder, Role};
use crate::limits::*;
use crate::memory::Arrival;
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::protocol::{Data, Get, GetReply, Message, Record, Stale, op};
use endpoint::{Frame, FrameMut};
use node::{Bug, CallError, Either, Reply, race};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, NodeId, Time};

/// A page.
#[derive(Clone, Debug)]
pub struct Got {
    /// Its content.
    pub version: Version,
    /// Its bytes.
    pub data: Frame,
    /// Its origin.
    pub source: Source,
}

/// Why there is no page. None of them means that it reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// No node has it or knows of any version: it was never put anywhere.
    #[error("nobody has the page, and no version of it is known")]
    Unknown,
    /// It existed in network memory only, in this version, and is gone with the nodes that had it.
    #[error("version {} of the page is lost with the nodes that had it", .0.0)]
    Lost(Version),
    /// The nodes that may have it did not answer in time: try later.
    #[error("who may have the page does not answer; try again later")]
    Unavailable,
    /// Its space was freed.
    #[error("the page's space was freed")]
    Freed,
    /// No frame is free for its bytes, or too many requests are under way: try later.
    #[error("no memory is free for the page; try again later")]
    NoMemory,
    /// Stable storage failed.
    #[error("stable storage failed with error {}", .0.0)]
    Backing(Errno),
}

/// Why network memory does not have a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// No node has it.
    Unknown,
    Lost(Version),
    Unreachable,
    Freed,
    NoMemory,
}

/// State of a search.
#[derive(Clone, Copy, Debug)]
struct Trail {
    hops: u8,
    until: Time,
    pause: Duration,
    /// The node that is asked next without the directory.
    hint: Option<NodeId>,
    stale: Option<Stale>,
    /// The primary home does not answer: its backup is asked.
    backup: bool,
    /// The directory says that this node's own mirror is what there is.
    own: bool,
    /// The page gets a frame of the service here.
    keeps: bool,
    /// The number of the view in which a node was asked last.
    view: u64,
}

/// The outcome of one step of a search.
enum Step {
    Got(Got),
    Miss(Miss),
    Again,
}

impl Service {
    /// A page in version `wanted.at_least` or a newer one, of `wanted.bytes` bytes: from this node's memory, another
    /// node's, or stable storage. Waits for at most [`Config::patience`](super::Config::patience) and a read of stable
    /// storage.
    pub async fn get(&self, wanted: Wanted) -> Result<Got, GetError> {
        let (start, mut began) = (self.cx().now(), self.begin_get());
        let earlier = self.fetches().begun();
        loop {
            let doubtful = self.doubtful(wanted.id).ok_or(GetError::Freed)?;
            let now = self.cx().now();
            let begun = self.0.pages.borrow_mut().handle_request(now, wanted, doubtful);
            match begun {
                Begun::Here(here) => {
                    let got = self.take_here(wanted, here);
                    self.count_here(began);
                    return Ok(got);
                }
                Begun::Full => return Err(GetError::NoMemory),
                Begun::First(number) => {
                    self.note_use(wanted, Seen::Fault);
                    return self.fetch_first(wanted, number, start).await;
                }
                Begun::Behind(number) => {
                    began = None; // what is measured is a find without a wait
                    self.count(|counters| counters.coalesced += 1);
                    let is_earlier = self.fetches().is_among(number, earlier);
                    match self.wait_behind(number, wanted).await {
                        // what was prefetched is older than what is known by now
                        Some(Ok(got)) if got.version < wanted.at_least => (),
                        // the page may have been put between that answer and this request
                        Some(Err(GetError::Unknown | GetError::Lost(_))) if is_earlier => (),
                        Some(outcome) => return outcome,
                        None => (),
                    }
                }
            }
        }
    }

    /// A page of which the directory says that this node's own mirror is what there is.
    fn find_own(&self, wanted: Wanted) -> Option<Got> {
        let (now, doubtful) = (self.cx().now(), self.is_doubtful_of(wanted.id));
        let here = self.0.pages.borrow_mut().handle_use(now, wanted, true, doubtful)?;
        Some(self.take_here(wanted, here))
    }

    /// A program gets a page that is here.
    fn take_here(&self, wanted: Wanted, here: Here) -> Got {
        match here {
            Here::Kept(got, seen) => {
                self.note_use(wanted, seen);
                got
            }
            Here::Leaving(leaves) => self.take_back(wanted, leaves),
        }
    }

    /// A clean page on its way to another node comes back.
    pub(super) fn take_back(&self, wanted: Wanted, leaves: Leaves) -> Got {
        let Leaves { version, data, checksum, .. } = leaves;
        self.count(|counters| counters.taken_back += 1);
        let arrival =
            Arrival { id: wanted.id, version, duplicate: true, reused: true, ..Arrival::default() };
        let got = Got { version, data: data.clone(), source: Source::Local };
        let mut stored = Stored::new(data, checksum);
        let arrival = self.come_back(arrival, &mut stored);
        if self.keep(arrival, stored) {
            self.announce(wanted.id, version);
        }
        got
    }

    /// Waits for a fetch under way: for one that was begun unasked only as long as a peer is waited for beside which
    /// stable storage is asked. Then this one fetches for itself.
    async fn wait_behind(&self, number: FaultNo, wanted: Wanted) -> Option<Result<Got, GetError>> {
        let mut wait = pin!(self.wait_for(number));
        if !self.fetches().is_ahead(number) {
            return wait.await;
        }
        self.count(|counters| counters.prefetched_late += 1);
        self.note_use(wanted, Seen::Early);
        loop {
            let patience = self.cx().sleep(self.patience_with(wanted.id));
            match race(wait.as_mut(), patience).await {
                Either::Left(outcome) => return outcome,
                Either::Right(()) if self.fetches().disown(number) => return None,
                Either::Right(()) => (),
            }
        }
    }

    async fn wait_for(&self, number: FaultNo) -> Option<Result<Got, GetError>> {
        let mut behind = Behind { service: self, number: Some(number) };
        loop {
            let ended = self.0.events.wait(Event::FetchEnded);
            let outcome = self.fetches().poll(number);
            if let Some(outcome) = outcome {
                behind.number = None;
                return outcome;
            }
            ended.await;
        }
    }

    async fn fetch_first(
        &self,
        wanted: Wanted,
        number: FaultNo,
        start: Time,
    ) -> Result<Got, GetError> {
        let first = First::new(self, number);
        let outcome = self.fetch(wanted).await;
        first.end(outcome.clone());
        if let Ok(got) = &outcome {
            let took = self.cx().now().since(start);
            self.count(|counters| counters.hit(got.source, Some(took)));
        }
        outcome
    }

    /// From another node; from stable storage when none has it, and beside one that is slow.
    async fn fetch(&self, wanted: Wanted) -> Result<Got, GetError> {
        let Some(backing) = self.backing(wanted.id.space) else {
            return self.search(wanted, true).await.map_err(|miss| miss.without_backing(wanted));
        };
        let mut search = pin!(self.search(wanted, true));
        match race(search.as_mut(), self.cx().sleep(self.patience_with(wanted.id))).await {
            Either::Left(Ok(got)) => return Ok(got),
            Either::Left(Err(miss)) => return self.read_after(&backing, wanted, miss).await,
            Either::Right(()) => self.count(|counters| counters.hedges += 1),
        }
        let mut read = pin!(self.read_backing(&backing, wanted, None));
        match race(search.as_mut(), read.as_mut()).await {
            Either::Left(Ok(got)) => Ok(got),
            Either::Right(Ok(got)) => {
                self.count(|counters| counters.hedges_won += 1);
                Ok(got)
            }
            Either::Left(Err(miss)) => match read.await {
                Ok(got) if miss.allows(got.version) => Ok(got),
                _ => self.read_after(&backing, wanted, miss).await,
            },
            Either::Right(Err(_)) => match search.await {
                Ok(got) => Ok(got),
                Err(miss) => self.read_after(&backing, wanted, miss).await,
            },
        }
    }

    /// From stable storage, which has the last word: no other node has it.
    async fn read_after(
        &self,
        backing: &Rc<dyn Backing>,
        wanted: Wanted,
        miss: Miss,
    ) -> Result<Got, GetError> {
        match miss {
            Miss::Freed => Err(GetError::Freed),
            miss => self.read_backing(backing, wanted, Some(miss)).await,
        }
    }

    /// How long a peer has before stable storage is asked as well.
    fn patience_with(&self, id: PageId) -> Duration {
        self.0.peers.borrow().hedge_after(id)
    }

    async fn read_backing(
        &self,
        backing: &Rc<dyn Backing>,
        wanted: Wanted,
        miss: Option<Miss>,
    ) -> Result<Got, GetError> {
        let Wanted { id, bytes, .. } = wanted;
        let at_least = miss.map_or(Version(0), Miss::newest).max(wanted.at_least);
        let began = self.view_number();
        let (version, data) = match backing.read(id, at_least, bytes).await {
            Ok(Some((version, data))) if version >= at_least => (version, data),
            Ok(_) => return Err(miss.unwrap_or(Miss::Unknown).without_backing(wanted)),
            Err(errno) => return Err(GetError::Backing(errno)),
        };
        if data.len() != bytes as usize {
            self.count(|counters| counters.misses.mismatches.length += 1);
            return Err(GetError::Backing(Errno::EIO));
        }
        let stamp = PageStamp::of(id, version, [&data[..]]);
        let arrival = Arrival { id, version, ..Arrival::default() };
        let stored = Stored::new(data.clone(), stamp.checksum);
        if self.is_of_today(id, began) && self.keep(arrival, stored) {
            self.announce(id, version);
        }
        Ok(Got { version, data, source: Source::Backing })
    }

    /// In other nodes' memory.
    pub(super) async fn search(&self, wanted: Wanted, keeps: bool) -> Result<Got, Miss> {
        let mut trail = Trail {
            hops: 0,
            until: self.cx().now() + self.0.config.patience,
            pause: PAUSE,
            hint: self.0.peers.borrow().hint(wanted.id),
            stale: None,
            backup: false,
            own: false,
            keeps,
            view: 0,
        };
        let backed = self.backing(wanted.id.space).is_some();
        while self.cx().now() < trail.until {
            if trail.hops > HOPS_MAX && backed {
                break;
            }
            if trail.hops > HOPS_MAX {
                // no other node has it: the directory will have heard of more in a while
                self.rest(&mut trail).await;
                trail.hops = 0;
            }
            match self.step(wanted, &mut trail).await {
                Step::Got(got) => return Ok(got),
                Step::Miss(miss) => return Err(self.counted(miss)),
                Step::Again => (),
            }
        }
        Err(self.counted(Miss::Unreachable))
    }

    fn counted(&self, miss: Miss) -> Miss {
        self.count(|Counters { misses, .. }: &mut Counters| match miss {
            Miss::Unknown => misses.unknown += 1,
            Miss::Lost(_) => misses.lost += 1,
            Miss::Unreachable => misses.unreachable += 1,
            Miss::Freed => misses.freed += 1,
            Miss::NoMemory => (),
        });
        miss
    }

    async fn step(&self, wanted: Wanted, trail: &mut Trail) -> Step {
        if trail.own
            && let Some(got) = self.find_own(wanted)
        {
            return Step::Got(got);
        }
        if let Some(hint) = trail.hint.take() {
            return self.ask(hint, wanted, trail, None).await;
        }
        let Some(homes) = self.0.home.borrow().homes(wanted.id) else {
            // without a view no node is known, but pages of this node's own space may be at one
            let own = wanted.id.space.owner() == Some(self.me());
            return Step::Miss(if own { Miss::Unknown } else { Miss::Unreachable });
        };
        let home = homes.backup.filter(|_| trail.backup).unwrap_or(homes.primary);
        if home != self.me() {
            return self.ask(home, wanted, trail, None).await;
        }
        let get = Get { stale: trail.stale.take(), ..self.question(wanted, trail) };
        let route = self.direct(&get);
        match route {
            Route::To(stale, _) if stale.node == self.me() => {
                self.handle_not_here(stale, Some(self.me()), trail)
            }
            Route::To(stale, role) => {
                self.ask(stale.node, wanted, trail, Some((stale, role))).await
            }
            Route::Back(reply) => self.handle_answer(reply, trail).await,
        }
    }

    fn question(&self, wanted: Wanted, trail: &Trail) -> Get {
        let get = Get::new(wanted.id, wanted.at_least, wanted.bytes, self.me());
        Get { hops: trail.hops, stale: trail.stale, ..get }
    }

    /// Asks a node. `known` is what it holds, when this node's own directory says so.
    async fn ask(
        &self,
        to: NodeId,
        wanted: Wanted,
        trail: &mut Trail,
        known: Option<(Stale, Role)>,
    ) -> Step {
        let Some(into) = self.cx().frames().alloc_exact(wanted.bytes as usize) else {
            return Step::Miss(Miss::NoMemory);
        };
        let start = self.cx().now();
        trail.view = self.view_number();
        let wait = ATTEMPT.min(trail.until.since(start));
        let asked = self.question(wanted, trail);
        let get = match known {
            Some((stale, _)) => Get { forwarded: true, stale: Some(stale), ..asked },
            None => asked,
        };
        trail.stale = None;
        let takes = known.is_some_and(|(_, role)| role == Role::Clean)
            && wanted.id.space.owner() == Some(self.me());
        let answer = match takes {
            true => self.take_over(to, &get, into, wait, trail.keeps).await,
            false => {
                let load = Load { into: self.cx().piece(into), wait, ..self.load() };
                self.send(to, op::GET, &get.encode(), load).await
            }
        };
        match answer {
            Ok(reply) => self.handle_reply(reply, wanted, trail, start).await,
            Err(error) => self.handle_silence(to, error, wanted.id, trail).await,
        }
    }

    /// A node does not answer: another home, or whatever else the directory knows.
    async fn handle_silence(
        &self,
        to: NodeId,
        error: CallError,
        id: PageId,
        trail: &mut Trail,
    ) -> Step {
        self.0.peers.borrow_mut().forget(id);
        let homes = self.0.home.borrow().homes(id);
        if homes.is_some_and(|homes| homes.has(to)) {
            trail.backup = !trail.backup;
        }
        if matches!(error, CallError::Overloaded | CallError::Refused | CallError::PeerLost) {
            self.rest(trail).await;
        }
        Step::Again
    }

    async fn rest(&self, trail: &mut Trail) {
        self.cx().sleep(trail.pause).await;
        trail.pause = (trail.pause * 2).min(PAUSE_MAX);
    }

    async fn handle_reply(
        &self,
        mut reply: Reply,
        wanted: Wanted,
        trail: &mut Trail,
        start: Time,
    ) -> Step {
        let answer = if reply.status == 0 { GetReply::decode(&reply.body).ok() } else { None };
        match answer {
            Some(GetReply::Data(data)) => {
                let frame = reply.data.pop().filter(|_| reply.bytes == wanted.bytes as usize);
                match frame.and_then(|frame| self.verified(wanted, &data, frame)) {
                    Some(frame) => {
                        let keeps = trail.keeps && self.is_of_today(wanted.id, trail.view);
                        Step::Got(self.receive(wanted, &data, frame, start, keeps))
                    }
                    None => self.handle_damaged(&data, trail),
                }
            }
            Some(answer) => self.handle_answer(answer, trail).await,
            None => {
                self.rest(trail).await;
                Step::Again
            }
        }
    }

    fn verified(&self, wanted: Wanted, data: &Data, frame: FrameMut) -> Option<Frame> {
        let good = self.verify(wanted, &data.stamp, &frame);
        (good || self.cx().has_bug(Bug::StampIgnored)).then(|| frame.freeze())
    }

    /// Bytes that do not fit the request count as a miss.
    fn handle_damaged(&self, data: &Data, trail: &mut Trail) -> Step {
        let incarnation = self.0.home.borrow().view().incarnation(data.node).unwrap_or(0);
        let PageStamp { id, version, .. } = data.stamp;
        trail.stale = Some(Stale { node: data.node, incarnation, version });
        trail.hops += 1;
        self.0.peers.borrow_mut().forget(id);
        Step::Again
    }

    async fn handle_answer(&self, answer: GetReply, trail: &mut Trail) -> Step {
        match answer {
            GetReply::NotHere { stale, hint } => {
                self.count(|counters| counters.misses.not_here += 1);
                self.handle_not_here(stale, hint, trail)
            }
            GetReply::Older { stale, hint } => {
                self.count(|counters| counters.misses.older += 1);
                self.handle_not_here(stale, hint, trail)
            }
            GetReply::Lost(version) => Step::Miss(Miss::Lost(version)),
            GetReply::Freed => Step::Miss(Miss::Freed),
            GetReply::Unknown { settled: true } => Step::Miss(Miss::Unknown),
            GetReply::Unknown { settled: false } | GetReply::NotHome(_) => {
                trail.backup = false;
                self.rest(trail).await;
                Step::Again
            }
            GetReply::Data(_) => unreachable!("data is verified where it arrives"),
        }
    }

    fn handle_not_here(&self, stale: Stale, hint: Option<NodeId>, trail: &mut Trail) -> Step {
        trail.hops += 1;
        trail.own = hint == Some(self.me());
        // one guess may lead to another; after that the directory knows better: guesses can go round in a circle
        let first = trail.hops == 1;
        trail.hint = hint.filter(|node| first && *node != self.me() && *node != stale.node);
        // this node's mirror as the only one may be an old guess of a node that has it no more: that is not asked again
        trail.stale = Some(stale).filter(|stale| stale.node != self.me());
        Step::Again
    }

    /// A page that was verified: kept if there is room, and if it is to be.
    fn receive(&self, wanted: Wanted, data: &Data, frame: Frame, start: Time, keeps: bool) -> Got {
        let PageStamp { id, version, checksum, .. } = data.stamp;
        let took = self.cx().now().since(start);
        self.0.peers.borrow_mut().handle_answer(data.node, took);
        let own = id.space.owner() == Some(self.me());
        if keeps && !data.leased && (own || wanted.id.space.owner().is_none()) {
            self.keep_copy(data, own, Stored::new(frame.clone(), checksum));
        }
        if id.space.owner().is_none() && data.kept {
            self.0.peers.borrow_mut().handle_holder(id, data.node);
        }
        Got { version, data: frame, source: Source::Peer }
    }

    /// Of the node's own page that others have mirrors of, it knows which, also where a clean copy comes; everything
    /// else is a copy.
    fn keep_copy(&self, data: &Data, own: bool, mut stored: Stored) {
        let PageStamp { id, version, .. } = data.stamp;
        let arrival =
            Arrival { id, version, duplicate: data.kept, reused: true, ..Arrival::default() };
        let arrival = match own && !data.clean {
            true => self.with_mirrors(arrival, &mut stored),
            false => self.come_back(arrival, &mut stored),
        };
        if self.keep(arrival, stored) && !own {
            self.announce(id, version);
        }
    }

    /// Puts a page into a frame of the node's own, if one can be freed without waiting. Says whether it could.
    pub(super) fn keep(&self, arrival: Arrival, stored: Stored) -> bool {
        self.keep_of(self.cx().now(), arrival, stored)
    }

    /// As [`keep`](Service::keep), of a page that was used last at `used`.
    pub(super) fn keep_of(&self, used: Time, arrival: Arrival, stored: Stored) -> bool {
        if !self.0.home.borrow().may_keep(arrival.id) || !self.make_room(stored.data.len()) {
            return false;
        }
        let installed = self.store_mut().install(used, arrival, stored);
        installed.is_ok()
    }

    /// Another node's clean copy of a page; `None` when that node is down.
    pub(super) fn record_at(&self, node: NodeId, id: PageId, version: Version) -> Option<Record> {
        let incarnation = self.0.home.borrow().view().incarnation(node)?;
        Some(Record::new(id, version, Holder { node, incarnation, role: Role::Clean }))
    }

    /// This node's copy of a page.
    pub(super) fn record(&self, id: PageId, version: Version, role: Role, copies: u8) -> Record {
        let holder = Holder { node: self.me(), incarnation: self.incarnation(), role };
        Record { copies, ..Record::new(id, version, holder) }
    }
}

impl Miss {
    /// The version that is lost: it is not replaced by what was before it.
    fn newest(self) -> Version {
        if let Miss::Lost(version) = self { version } else { Version(0) }
    }

    /// Whether a version may be had all the same.
    fn allows(self, version: Version) -> bool {
        version >= self.newest() && !matches!(self, Miss::Freed)
    }

    /// The error where stable storage does not have the page either. A version that was seen once and has no copy any
    /// more is lost.
    pub(super) fn without_backing(self, wanted: Wanted) -> GetError {
        match self {
            Miss::Unknown if wanted.at_least == Version(0) => GetError::Unknown,
            Miss::Unknown => GetError::Lost(wanted.at_least),
            Miss::Lost(version) => GetError::Lost(version),
            Miss::Unreachable => GetError::Unavailable,
            Miss::Freed => GetError::Freed,
            Miss::NoMemory => GetError::NoMemory,
        }
    }
}
