//! The filter's half: each forwarded call is a task that asks the owner of its site until that answers.

use super::message::{EXECUTE, Ended, SITES, encode};
use super::{Forward, Outcome, Subject};
use crate::limits::{
    FORWARD_PAUSE, FORWARD_SPAN, FORWARDED_TO_ONE_MAX, HASHED_MAX, REPLY_HEAD_BYTES_MAX,
    SMALL_REPLY_BYTES_MAX,
};
use endpoint::{Frame, FrameMut};
use node::{Call, Cx, Pieces};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use wire::field::Field;
use wire::{Channel, Decoder, Errno, FileId, NodeId, Sites, Time};

/// Counts of forwarded calls since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Calls.
    pub calls: u64,
    /// Answers that another manager owns the site by now.
    pub moved: u64,
    /// Calls that were retransmitted, since their manager was away.
    pub retransmitted: u64,
    /// Calls that were given up: their clients retransmit them.
    pub dropped: u64,
}

#[derive(Default)]
struct Queue {
    done: VecDeque<(u64, Option<Outcome>)>,
    /// Calls under way, by manager that they were first sent to.
    under_way: BTreeMap<NodeId, usize>,
    counters: Forwarded,
}

struct Inner {
    cx: Cx,
    /// The volume's first manager, which is there as long as the volume is.
    first: NodeId,
    sites: RefCell<Sites>,
    /// Directories whose names are at the sites of their hashes.
    hashed: RefCell<BTreeSet<FileId>>,
    site_of_name: SiteOfName,
    queue: RefCell<Queue>,
}

/// The site of a name in a hashed directory.
pub type SiteOfName = fn(FileId, &[u8]) -> u8;

/// Sends calls to managers. Its state is what it learns of sites: nothing is lost with it.
#[derive(Clone)]
pub struct Forwarder(Rc<Inner>);

/// Why one attempt brought no reply.
enum Failure {
    /// Its site has moved; whether something was learnt of where.
    Moved(bool),
    /// The manager is away, or has no room.
    Away,
    /// The manager takes the call for none.
    Refused,
}

impl Forwarder {
    /// For the volume that was made at the manager `first`; names are hashed by the managers' function.
    pub fn new(cx: &Cx, first: NodeId, site_of_name: SiteOfName) -> Forwarder {
        Forwarder(Rc::new(Inner {
            cx: cx.clone(),
            first,
            sites: RefCell::new(Sites::all_at(first)),
            hashed: RefCell::default(),
            site_of_name,
            queue: RefCell::default(),
        }))
    }

    /// Counters.
    pub fn counters(&self) -> Forwarded {
        self.0.queue.borrow().counters
    }

    /// Sends a call. One too many for a manager is dropped, so that one that is away stops no other's calls.
    pub fn start(&self, forward: Forward) {
        let manager = self.owner(&forward);
        let mut queue = self.0.queue.borrow_mut();
        queue.counters.calls += 1;
        let under_way = queue.under_way.entry(manager).or_default();
        if *under_way >= FORWARDED_TO_ONE_MAX {
            queue.counters.dropped += 1;
            queue.done.push_back((forward.number, None));
            return;
        }
        *under_way += 1;
        drop(queue);
        let this = self.clone();
        self.0.cx.spawn("nfs forward", async move {
            let outcome = this.carry(&forward).await;
            let mut queue = this.0.queue.borrow_mut();
            *queue.under_way.get_mut(&manager).expect("it was counted") -= 1;
            queue.counters.dropped += u64::from(outcome.is_none());
            queue.done.push_back((forward.number, outcome));
        });
    }

    /// The next call that has ended, by the front's number; `None`: without a reply.
    pub fn take_done(&self) -> Option<(u64, Option<Outcome>)> {
        self.0.queue.borrow_mut().done.pop_front()
    }

    fn owner(&self, forward: &Forward) -> NodeId {
        let Subject { file, part, .. } = &forward.subject;
        let site = match self.0.hashed.borrow().contains(file) {
            true => part.site(*file, self.0.site_of_name),
            false => file.site(),
        };
        self.0.sites.borrow().get(site).manager
    }

    /// Whether the directory is hashed; whether that is new. One that is none any more is no way to go on at once: of
    /// two managers one may not know it yet.
    fn note_hashed(&self, directory: FileId, is_hashed: bool) -> bool {
        let mut hashed = self.0.hashed.borrow_mut();
        if !is_hashed {
            hashed.remove(&directory);
            return false;
        }
        if hashed.len() >= HASHED_MAX {
            hashed.clear(); // each is learnt again
        }
        hashed.insert(directory)
    }

    /// Asks the owner, and its successor, until the client would ask again by itself.
    async fn carry(&self, forward: &Forward) -> Option<Outcome> {
        let cx = &self.0.cx;
        let end = cx.now() + FORWARD_SPAN;
        loop {
            let manager = self.owner(forward);
            let failure = match self.ask(manager, forward, end).await {
                Ok(outcome) => return Some(outcome),
                Err(failure) => failure,
            };
            match failure {
                Failure::Refused => return None,
                Failure::Moved(is_news) => {
                    self.count(|counters| counters.moved += 1);
                    if is_news {
                        continue;
                    }
                }
                // a manager that was taken out for good says nothing of its sites
                Failure::Away if self.learn(self.0.first, end).await => continue,
                Failure::Away => {}
            }
            if cx.now() + FORWARD_PAUSE >= end {
                return None;
            }
            cx.sleep(FORWARD_PAUSE).await;
            self.count(|counters| counters.retransmitted += 1);
        }
    }

    fn count(&self, add: impl FnOnce(&mut Forwarded)) {
        add(&mut self.0.queue.borrow_mut().counters);
    }

    async fn ask(&self, to: NodeId, forward: &Forward, end: Time) -> Result<Outcome, Failure> {
        let (body, data) = encode(forward);
        let data = self.0.cx.frames().copy_of(&data).ok_or(Failure::Away)?;
        let is_listing = forward.subject.is_listing;
        let room = if is_listing { REPLY_HEAD_BYTES_MAX } else { SMALL_REPLY_BYTES_MAX };
        let (ended, bytes) = self.call(to, (EXECUTE, &body), Some(data), room, end).await?;
        if ended.moved {
            let is_hashed = self.note_hashed(forward.subject.file, ended.is_hashed);
            return Err(Failure::Moved(self.take_table(&bytes) || is_hashed));
        }
        let Ended { is_final, failed, .. } = ended;
        Ok(Outcome { reply: bytes, is_final, failed })
    }

    /// Asks a manager where sites are; whether something is new.
    async fn learn(&self, from: NodeId, end: Time) -> bool {
        let asked = self.call(from, (SITES, &[]), None, Sites::BYTES, end).await;
        asked.is_ok_and(|(_, bytes)| self.take_table(&bytes))
    }

    fn take_table(&self, bytes: &[u8]) -> bool {
        let table = Sites::take(&mut Decoder::new(bytes));
        table.is_ok_and(|table| self.0.sites.borrow_mut().learn_all(&table))
    }

    async fn call(
        &self,
        to: NodeId,
        (op, body): (u16, &[u8]),
        data: Option<Frame>,
        room: usize,
        end: Time,
    ) -> Result<(Ended, Vec<u8>), Failure> {
        let cx = &self.0.cx;
        let into: FrameMut = cx.frames().alloc_exact(room).ok_or(Failure::Away)?;
        let mut pieces: Pieces<Frame> = cx.pieces();
        data.into_iter().for_each(|frame| pieces.push(frame));
        let call = Call {
            to,
            channel: Channel::NFS,
            op,
            // the manager's duplicate-request cache sees to what may not be executed twice
            once: false,
            deadline: Some(end.since(cx.now())),
            body,
            data: pieces,
            trailer: &[],
            into: cx.piece(into),
        };
        let reply = cx.call(call).await.map_err(|_| Failure::Away)?;
        let reply = match reply.ok() {
            Ok(reply) => reply,
            Err(Errno::EPROTO) => return Err(Failure::Refused),
            Err(_) => return Err(Failure::Away),
        };
        let ended = Ended::take(&mut Decoder::new(&reply.body)).map_err(|_| Failure::Refused)?;
        let bytes = reply.data.copied(reply.bytes);
        if bytes.len() != ended.bytes as usize {
            return Err(Failure::Refused);
        }
        Ok((ended, bytes))
    }
}
