//! Requests of other nodes.

use super::events::Event;
use super::home::Route;
use super::{Load, Service};
use crate::limits::HOPS_MAX;
use crate::memory::{FrameNo, Memory, Role};
use crate::page::PageStamp;
use crate::protocol::{
    Batch, Data, Get, GetReply, Message, RECORDS_MAX, Record, Spaces, Stale, Verdict, op,
};
use endpoint::Frame;
use node::{Answer, Request};
use wire::field::Field;
use wire::{Channel, Encoder, Errno, Time};

/// A page as it is sent to another node.
pub struct Given {
    pub stamp: PageStamp,
    pub data: Frame,
    clean: bool,
    kept: bool,
}

impl Given {
    /// A page in the frames.
    pub fn here(stamp: PageStamp, data: Frame, clean: bool) -> Given {
        Given { stamp, data, clean, kept: true }
    }

    /// A page that is on its way to another node.
    pub fn leaving(stamp: PageStamp, data: Frame) -> Given {
        Given { stamp, data, clean: true, kept: false }
    }
}

impl Service {
    /// One of the tasks that serve requests. Requests that wait for other nodes may take all but a few of them.
    pub(super) async fn requests(self) {
        loop {
            let request = self.cx().accept(Channel::MEMORY).await;
            match request.op {
                op::PUT
                | op::MIRROR_AGAIN
                | op::HAND_ON
                | op::LEASE
                | op::REVOKE
                | op::FETCH_AHEAD => {
                    self.handle_slow(request).await;
                }
                _ => self.handle_at_once(request),
            }
        }
    }

    async fn handle_slow(&self, request: Request) {
        let Some(_permit) = self.0.permits.slow.try_acquire(1) else {
            return self.cx().reply(request, Answer::error(Errno::EAGAIN));
        };
        match request.op {
            op::PUT => self.handle_put(request).await,
            op::MIRROR_AGAIN => self.handle_mirror_again(request).await,
            op::HAND_ON => self.handle_hand_on(request).await,
            op::LEASE => self.handle_lease(request).await,
            op::REVOKE => self.handle_revoke(request).await,
            _ => self.handle_fetch_ahead(request).await,
        }
    }

    fn handle_at_once(&self, request: Request) {
        match request.op {
            op::GET => self.handle_get(request),
            op::TAKE => self.handle_take(request),
            op::REGISTER | op::UNREGISTER | op::DROP | op::WRITTEN => self.handle_records(request),
            op::FREE_SPACE => self.handle_free(request),
            op::DIGEST => self.handle_digest(request),
            op::EPOCH => self.handle_epoch(request),
            op::HASTEN => self.handle_hasten(request),
            op::LOOK_UP => self.handle_look_up(request),
            op::GET_MULTI => self.handle_get_multi(request),
            op::GET_PART => self.handle_get_part(request),
            op::STAY => self.handle_stay(request),
            _ => self.cx().reply(request, Answer::error(Errno::ENOSYS)),
        }
    }

    /// A page that is asked for: sent from here, by a holder in our stead, or not at all.
    fn handle_get(&self, request: Request) {
        let Ok(get) = Get::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        self.0.stats.borrow_mut().note_hops(get.hops);
        if let Some(given) = self.give(&get, get.forwarded) {
            return self.answer_data(request, &get, given, false);
        }
        if get.forwarded {
            let reply = self.not_here(&get);
            return self.answer_get(request, reply);
        }
        let route = self.direct(&get);
        self.send_on(request, &get, route);
    }

    /// Goes by what the directory says of a page that is asked for.
    fn send_on(&self, request: Request, get: &Get, route: Route) {
        match route {
            Route::To(stale, _) if stale.node == self.me() => match self.give(get, true) {
                Some(given) => self.answer_data(request, get, given, false),
                None => self.answer_get(request, GetReply::NotHere { stale, hint: None }),
            },
            // the requester has the only mirror itself
            Route::To(stale, _) if stale.node == get.requester => {
                let hint = Some(get.requester);
                self.answer_get(request, GetReply::NotHere { stale, hint });
            }
            Route::To(stale, _) if get.hops < HOPS_MAX => self.delegate(request, get, stale),
            Route::To(stale, _) => {
                self.answer_get(request, GetReply::NotHere { stale, hint: None })
            }
            Route::Back(GetReply::NotHome(_)) => {
                let reply = self.not_here(get);
                self.answer_get(request, reply);
            }
            Route::Back(reply) => self.answer_get(request, reply),
        }
    }

    /// Has a holder answer the requester.
    fn delegate(&self, request: Request, get: &Get, stale: Stale) {
        self.count(|counters| counters.delegated += 1);
        let hops = get.hops + 1;
        let body = Get { hops, forwarded: true, stale: Some(stale), ..*get }.encode();
        self.cx().forward(request, stale.node, &body);
    }

    /// A page of this node's, if it is new enough and of the right length. A mirror of a shared page may be older than
    /// what its writer has: it counts only when the directory `trusts` it.
    fn give(&self, get: &Get, trusts: bool) -> Option<Given> {
        self.give_noting(get, trusts, Memory::handle_copied)
    }

    /// As [`give`](Service::give), for this use.
    pub(super) fn give_noting(
        &self,
        get: &Get,
        trusts: bool,
        note: impl FnOnce(&mut Memory, Time, FrameNo),
    ) -> Option<Given> {
        let (now, doubtful) = (self.cx().now(), self.doubtful(get.id)?);
        self.0.pages.borrow_mut().handle_get(now, get, trusts, doubtful, note)
    }

    /// The answer of a node that does not have the page: a forwarder's belief, which it is to hear of.
    pub(super) fn not_here(&self, get: &Get) -> GetReply {
        let hint = self.0.peers.borrow().hint(get.id).filter(|node| *node != self.me());
        let version =
            get.stale.filter(|_| get.forwarded).map_or(get.at_least, |stale| stale.version);
        let (node, incarnation) = (self.me(), self.incarnation());
        let here = self.0.pages.borrow().version(get.id);
        match here {
            Some(older) if older < get.at_least => {
                GetReply::Older { stale: Stale { node, incarnation, version: older }, hint }
            }
            _ => GetReply::NotHere { stale: Stale { node, incarnation, version }, hint },
        }
    }

    pub(super) fn answer_get(&self, request: Request, reply: GetReply) {
        self.cx().reply(request, Answer::body(&reply.encode()));
    }

    pub(super) fn answer_data(&self, request: Request, get: &Get, given: Given, swapped: bool) {
        let Given { stamp, data, clean, kept } = given;
        self.count(|counters| counters.served += 1);
        let leased = get.id.space.owner().is_none() && self.writing().has(get.id);
        let reply = Data { stamp, node: self.me(), kept, leased, clean, swapped };
        let body = GetReply::Data(reply).encode();
        let mut trailer = [0; PageStamp::BYTES];
        stamp.put(&mut Encoder::new(&mut trailer));
        let answer = Answer { status: 0, body: &body, data: &[data], trailer: &trailer };
        self.cx().reply(request, answer);
    }

    /// The owner of a page takes it from here: a clean one is given up, since the answer is sent until it arrives. The
    /// page that came along may have its frame.
    fn handle_take(&self, mut request: Request) {
        let Ok(get) = Get::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let Some(mut given) = self.give(&get, true) else {
            let reply = self.not_here(&get);
            return self.answer_get(request, reply);
        };
        given.kept = !self.lets_go(&get, request.source);
        let swapped = request.bytes > 0 && self.swap_in(&mut request);
        self.answer_data(request, &get, given, swapped);
    }

    /// Gives up a clean page that its owner takes. A mirror stays what it is.
    fn lets_go(&self, get: &Get, source: wire::NodeId) -> bool {
        if get.id.space.owner() != Some(source) {
            return false;
        }
        let mut store = self.store_mut();
        let frame = store.memory().find(get.id);
        let hosted = frame.filter(|frame| store.memory().role(*frame) == Role::Hosted);
        let leaving = frame.is_none();
        hosted.is_some_and(|frame| store.take(frame).is_ok()) || leaving
    }

    /// Records of who holds what. A sender whose view is newer is heard when this node has it too; one whose view is
    /// older than this node's incarnation speaks of an earlier incarnation of its private spaces.
    fn handle_records(&self, request: Request) {
        let batch = Batch::decode(&request.body);
        let Ok(batch) = batch else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let registers = request.op == op::REGISTER;
        let (view, is_home, joined) = {
            // a node in no view is no home: it would take what it hears along into its next incarnation, which did not
            // hear it
            let home = self.0.home.borrow();
            (home.view().number, home.members().is_member(), home.members().joined())
        };
        let joined = joined.map_or(view, |(_, view)| view);
        if registers && !(is_home && (joined..=view).contains(&batch.view)) {
            return self.cx().reply(request, Answer::error(Errno::EAGAIN));
        }
        let data = request.data.first().map_or(&[][..], |frame| &frame[..]);
        let Ok(records) = batch.records(data) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let believed = self.0.home.borrow().members().believes(request.source, batch.view);
        let outlived = |id| self.0.home.borrow().is_outlived(id, batch.view);
        // who wrote to a page in a view that is over need not be who does now; a guest goes by no view
        let verdict = |record: Record| match request.op {
            op::DROP if !believed && !record.id.space.is_guest() => Verdict::NotHome,
            op::REGISTER if record.writer && batch.view < view => Verdict::NotHome,
            op::REGISTER if outlived(record.id) => Verdict::NotHome,
            op::REGISTER => self.at_home(|home| home.register_from(request.source, &record)),
            what => self.handle_record(what, &record),
        };
        let verdicts: Vec<Verdict> = records.map(verdict).collect();
        let heard = match request.op {
            op::DROP => verdicts.iter().all(|verdict| *verdict == Verdict::Done),
            _ => !verdicts.contains(&Verdict::Later),
        };
        if !heard {
            return self.cx().reply(request, Answer::error(Errno::EAGAIN));
        }
        if registers && batch.last {
            self.0.home.borrow_mut().handle_report(request.source, batch.view);
            self.raise(Event::RepairDue);
        }
        self.answer_verdicts(request, &verdicts);
    }

    fn answer_verdicts(&self, request: Request, verdicts: &[Verdict]) {
        if let [verdict] = verdicts {
            return self.cx().reply(request, Answer::body(&verdict.encode()));
        }
        if verdicts.iter().all(|verdict| *verdict == Verdict::Done) || request.op != op::REGISTER {
            return self.cx().reply(request, Answer::DONE);
        }
        match self.cx().frames().alloc_exact(verdicts.len() * Verdict::BYTES) {
            Some(mut frame) => {
                let mut out = Encoder::new(&mut frame);
                verdicts.iter().for_each(|verdict| verdict.put(&mut out));
                let data = [frame.freeze()];
                self.cx().reply(request, Answer { data: &data, ..Answer::DONE });
            }
            None => self.cx().reply(request, Answer::error(Errno::ENOMEM)),
        }
    }

    pub(super) fn handle_record(&self, what: u16, record: &Record) -> Verdict {
        match what {
            op::REGISTER => self.register_here(record),
            op::UNREGISTER => self.unregister_here(record),
            op::WRITTEN => {
                self.mark_written(record.id, record.version);
                Verdict::Done
            }
            _ if self.drop_page(record) => Verdict::Done,
            _ => Verdict::Later,
        }
    }

    /// The directory says that a copy is worth nothing. Says whether what was meant is gone.
    pub(super) fn drop_page(&self, record: &Record) -> bool {
        self.0.peers.borrow_mut().forget(record.id);
        self.0.pages.borrow_mut().handle_drop(record)
    }

    fn handle_free(&self, request: Request) {
        let spaces = Spaces::decode(&request.body);
        let data = request.data.first().map_or(&[][..], |frame| &frame[..]);
        let freed = spaces.and_then(|spaces| {
            let mut all = spaces.spaces(data)?;
            Ok(all.all(|space| self.free_here(space).is_ok()))
        });
        let answer = match freed {
            Ok(true) => Answer::DONE,
            Ok(false) => Answer::error(Errno::EAGAIN),
            Err(_) => Answer::error(Errno::EPROTO),
        };
        self.cx().reply(request, answer);
    }

    /// A message with records, one or many.
    pub(super) fn batch_load(&self, batch: &Batch, records: &[Record]) -> Option<Load<'static>> {
        assert!(records.len() <= RECORDS_MAX);
        let mut load = Load { once: true, ..self.load() };
        if batch.data_bytes() > 0 {
            let mut data = self.cx().frames().alloc_exact(batch.data_bytes())?;
            Batch::encode_data(records, &mut data);
            load.data.push(data.freeze());
        }
        Some(load)
    }
}
