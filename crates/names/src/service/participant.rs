//! A manager's work for others: its parts of their operations, and the owners of sites.

use super::Service;
use crate::foreign::{Got, Want};
use crate::holds::Tx;
use crate::keys;
use crate::limits::{
    MANAGER_DEADLINE, MANAGER_REPLY_BYTES_MAX, MANAGER_TASKS, SYNC_INTERVAL, TABLE_INTERVAL,
};
use crate::objects::Objects;
use crate::protocol::managers::{Decision, Fetch, Import, Known, Prepare, Take, op};
use crate::protocol::{CallNumber, cut, join};
use node::{Bug, Call, Request};
use std::rc::Rc;
use wire::field::{Field, encoded};
use wire::{Channel, Decoder, Errno, FileId, NodeId};

pub(super) fn spawn<O: Objects>(service: &Rc<Service<O>>) {
    let cx = &service.cx;
    cx.set_pure(Channel::MANAGERS, op::is_pure);
    for _ in 0..MANAGER_TASKS {
        let service = service.clone();
        cx.spawn("names managers", async move {
            loop {
                let request = service.cx.accept(Channel::MANAGERS).await;
                service.serve_manager(request).await;
            }
        });
    }
    cx.spawn("names operations", service.clone().follow_operations());
    cx.spawn("names settle", service.clone().settle_operations());
    cx.spawn("names handovers", service.clone().end_handovers());
    cx.spawn("names table", service.clone().tell_table());
}

fn taken<T: for<'a> Field<'a>>(message: &[u8]) -> Result<T, Errno> {
    T::take(&mut Decoder::new(message)).map_err(|_| Errno::EPROTO)
}

impl<O: Objects> Service<O> {
    /// Asks another manager; EHOSTDOWN, ENODEV or ETIMEDOUT when it does not answer.
    pub(super) async fn ask_manager<T: for<'a> Field<'a>>(
        &self,
        to: NodeId,
        op: u16,
        message: &[u8],
    ) -> Result<T, Errno> {
        let about = CallNumber { volume: self.volume, ..CallNumber::default() }.about();
        let parts = cut(message, about);
        let data = match parts.data.is_empty() {
            true => self.cx.pieces(),
            false => self.cx.piece(self.cx.frames().copy_of(parts.data).ok_or(Errno::ENOMEM)?),
        };
        let into = self.cx.frames().alloc(MANAGER_REPLY_BYTES_MAX).ok_or(Errno::ENOMEM)?;
        let call = Call {
            to,
            channel: Channel::MANAGERS,
            op,
            once: !op::is_pure(op),
            deadline: Some(MANAGER_DEADLINE),
            body: &parts.body,
            data,
            trailer: &[],
            into: self.cx.piece(into),
        };
        let reply = self.cx.call(call).await.map_err(Errno::from)?.ok()?;
        let mut message = Vec::new();
        join(&reply.body, &reply.data, reply.bytes, &mut message).map_err(|_| Errno::EPROTO)?;
        taken(&message)
    }

    async fn serve_manager(self: &Rc<Self>, request: Request) {
        let mut message = Vec::new();
        let about = join(&request.body, &request.data, request.bytes, &mut message);
        let volume = about.and_then(CallNumber::of).map(|number| number.volume);
        let result = match volume {
            Ok(volume) if volume == self.volume => self.execute_for(&request, &message).await,
            Ok(_) => Err(Errno::ENXIO),
            Err(_) => Err(Errno::EPROTO),
        };
        self.answer(request, result);
    }

    async fn execute_for(
        self: &Rc<Self>,
        request: &Request,
        message: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        if request.op == op::SITES {
            // Two managers that were restored ask each other.
            return self.owners_here().map(|owners| encoded(&owners));
        }
        self.may_serve().await?;
        match request.op {
            op::FETCH => self.fetch_for(taken(message)?).await.map(|got| encoded(&got)),
            op::PREPARE => self.prepare_for(taken(message)?).await.map(|()| Vec::new()),
            op::FINISH => self.finish_for(taken(message)?).await.map(|()| Vec::new()),
            op::STAY => self.stay_for(taken(message)?).await.map(|()| Vec::new()),
            op::SETTLE => self.settle_for(taken(message)?).await.map(|()| Vec::new()),
            op::ABORT => self.abort_for(taken(message)?).await.map(|()| Vec::new()),
            op::DECISION => Ok(encoded(&self.decision(taken(message)?))),
            op::IMPORT => self.import(taken::<Import>(message)?).await.map(|()| Vec::new()),
            op::TAKE => self.take_site(taken::<Take>(message)?).await.map(|()| Vec::new()),
            op::REFUSE => Ok(encoded(&self.refuse(taken(message)?)?)),
            op::TABLE => {
                self.hear_known(taken(message)?).await?;
                Ok(encoded(&self.known_here()?))
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Holds for an operation what it asks for. Numbers need no sync: the next incarnation begins behind every one that
    /// this one gave out.
    async fn fetch_for(self: &Rc<Self>, fetch: Fetch) -> Result<Vec<Got>, Errno> {
        let mut got = Vec::new();
        for want in &fetch.wants {
            got.push(match want {
                Want::Record(key) => self.hold_record(fetch.tx, fetch.client, key)?,
                Want::Serial(site) => self.hold_serial(fetch.tx, *site).await?,
            });
        }
        Ok(got)
    }

    /// Whether the records that an operation read here are held for it yet, and on stable storage. A part of it here
    /// says so too.
    async fn stay_for(&self, tx: Tx) -> Result<(), Errno> {
        self.sync().await?;
        let is_held = !self.manager.borrow().holds.files(tx).is_empty();
        if is_held { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// EREMCHG unless the site is this manager's, and stays.
    pub(super) fn check_site(&self, site: u8) -> Result<(), Errno> {
        let manager = self.manager.borrow();
        let here = manager.sites.owns(site) && !manager.sites.is_leaving(site);
        if here { Ok(()) } else { Err(Errno::EREMCHG) }
    }

    fn hold_record(&self, tx: Tx, client: u64, key: &[u8]) -> Result<Got, Errno> {
        let file = keys::subject(key).ok_or(Errno::EPROTO)?;
        self.hold(tx, file)?;
        let manager = self.manager.borrow();
        let value = manager.read(0, |t| t.get(key))?;
        let is_open = !manager.opens().get(file, client).is_empty();
        Ok(Got { value: value.map(Into::into), is_open })
    }

    async fn hold_serial(self: &Rc<Self>, tx: Tx, site: u8) -> Result<Got, Errno> {
        self.check_site(site)?;
        let file = self.commit(|t| t.reserve(site)).await?;
        self.hold(tx, file)?;
        Ok(Got { value: Some(encoded(&file).into()), is_open: false })
    }

    /// Holds the file for the operation. EBUSY: another one holds it. There is no waiting here: it could delay the
    /// operation that is to let go.
    fn hold(&self, tx: Tx, file: FileId) -> Result<(), Errno> {
        self.check_site(file.site())?;
        let held = self.manager.borrow_mut().holds.take(file, tx, self.cx.now());
        held.map_err(|_| Errno::EBUSY)
    }

    async fn prepare_for(self: &Rc<Self>, prepare: Prepare) -> Result<(), Errno> {
        let Prepare { tx, part } = prepare;
        self.admit().await?;
        let append = self.manager.borrow_mut().prepare_part(tx, part, self.cx.wall())?;
        let posted = self.post(append);
        if self.cx.has_bug(Bug::PartNotSynced) {
            return posted.await.map(drop);
        }
        let (posted, synced) = node::both(posted, self.sync()).await;
        posted.and(synced)
    }

    async fn finish_for(self: &Rc<Self>, tx: Tx) -> Result<(), Errno> {
        self.admit().await?;
        if self.cx.has_bug(Bug::PartNotFinished) {
            return self.abort_for(tx).await;
        }
        let finished = self.manager.borrow_mut().finish_part(tx);
        self.released.notify_all();
        self.post(finished?).await?;
        self.wake_upkeep();
        Ok(())
    }

    /// As [`finish_for`](Self::finish_for) for all of them, on stable storage. A power cut may have taken what was
    /// finished before: then it is prepared again.
    async fn settle_for(self: &Rc<Self>, operations: Vec<Tx>) -> Result<(), Errno> {
        for tx in operations {
            self.finish_for(tx).await?;
        }
        self.sync().await
    }

    async fn abort_for(self: &Rc<Self>, tx: Tx) -> Result<(), Errno> {
        self.admit().await?;
        let aborted = self.manager.borrow_mut().abort_part(tx, self.cx.wall());
        self.released.notify_all();
        self.post(aborted?).await.map(drop)
    }

    fn decision(&self, tx: Tx) -> Decision {
        match () {
            () if self.undecided.borrow().contains(&tx) => Decision::Pending,
            () if self.manager.borrow().decided.contains_key(&tx) => Decision::Committed,
            () => Decision::Aborted,
        }
    }

    /// Ends what was decided before, and asks what became of what was prepared.
    async fn follow_operations(self: Rc<Self>) {
        if self.may_serve().await.is_err() {
            return;
        }
        let decided = self.manager.borrow().decided.clone();
        if !decided.is_empty() && self.sync().await.is_ok() {
            for (tx, participants) in decided {
                self.cx.spawn("names finish", self.clone().finish(tx, participants));
            }
        }
        let mut known = std::collections::BTreeSet::new();
        while !self.is_refused() {
            self.cx.sleep(SYNC_INTERVAL).await;
            self.drop_overdue();
            let prepared: Vec<Tx> = self.manager.borrow().prepared.keys().copied().collect();
            // Operations prepared since are about to be decided.
            for tx in prepared.iter().filter(|tx| known.contains(*tx)) {
                self.follow_decision(*tx).await;
            }
            known = prepared.into_iter().collect();
        }
    }

    fn drop_overdue(&self) {
        let overdue = self.manager.borrow().holds.overdue(self.cx.now());
        for tx in &overdue {
            self.manager.borrow_mut().holds.release(*tx);
        }
        if !overdue.is_empty() {
            self.released.notify_all();
        }
    }

    async fn follow_decision(self: &Rc<Self>, tx: Tx) {
        let decision = match self.retiring.borrow().is_gone(tx.manager) {
            // It had no decision any more when it went.
            true => Some(Ok(Decision::Aborted)),
            false => None,
        };
        let decision = match decision {
            Some(decision) => decision,
            None => self.ask_manager(tx.manager, op::DECISION, &encoded(&tx)).await,
        };
        // A failure is retried.
        let _ = match decision {
            Ok(Decision::Committed) => self.finish_for(tx).await,
            Ok(Decision::Aborted) => self.abort_for(tx).await,
            Ok(Decision::Pending) | Err(_) => Ok(()),
        };
    }

    /// Tells the other managers where sites are, as far as it is known here, and hears what they know.
    async fn tell_table(self: Rc<Self>) {
        if self.may_serve().await.is_err() {
            return;
        }
        while !self.is_refused() {
            let others = self.other_managers().into_iter();
            let calls: Vec<_> = others.map(|manager| self.exchange_table(manager)).collect();
            node::all(calls).await;
            self.cx.sleep(TABLE_INTERVAL).await;
        }
    }

    /// Tells a manager where sites are, and hears what it knows; nothing when it is away.
    pub(super) async fn exchange_table(self: &Rc<Self>, manager: NodeId) {
        let Ok(told) = self.known_here().map(|known| encoded(&known)) else { return };
        let heard = self.ask_manager::<Known>(manager, op::TABLE, &told).await;
        if let Ok(known) = heard {
            // A table that could not be kept is told again.
            let _ = self.hear_known(known).await;
        }
    }

    fn known_here(&self) -> Result<Known, Errno> {
        let manager = self.manager.borrow();
        let (sites, switching) = (manager.sites.table().clone(), manager.sites.switching);
        Ok(Known { sites, switching, retired: manager.retired()? })
    }

    async fn hear_known(self: &Rc<Self>, heard: Known) -> Result<(), Errno> {
        self.hear_sites(&heard.sites);
        let known = self.known_here()?;
        let is_news = heard.switching.version > known.switching.version
            || heard.retired.version > known.retired.version;
        if !is_news {
            return Ok(());
        }
        self.admit().await?;
        let posted = {
            let (mut manager, now) = (self.manager.borrow_mut(), self.cx.wall());
            let switching = manager.hear_switching(heard.switching, now)?;
            let retired = manager.hear_retired(&heard.retired, now);
            [self.post(switching), self.post(retired?)]
        };
        node::all(posted).await.into_iter().try_for_each(|posted| posted.map(drop))
    }
}
