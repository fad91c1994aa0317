//! How the service begins, and goes on telling the I/O servers how far its store is.
//!
//! Nothing is served, changed or purged before the servers that answer have said what they know of this volume's
//! stores. A server that comes later is asked then: when it knows more, nothing is served from then on.

use super::{Service, Stopping, upkeep};
use crate::limits::{
    DESCRIBE_LAST_SPAN, RETRY_INTERVAL, SYNC_INTERVAL, WITNESS_DEADLINE, WITNESS_LAST_SPAN,
    WITNESS_PAUSE, WITNESS_SPAN,
};
use crate::lineage::{Judgement, Older};
use crate::manager::VolumeSettings;
use crate::objects::Objects;
use crate::open_error::OpenError;
use node::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::Append;
use stripe::Witness;
use wire::{Errno, NodeId};

/// The refusal of a manager whose store is not the newest.
pub const REFUSED: Errno = Errno::EUCLEAN;

/// Whether requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The servers are being asked.
    #[default]
    Asking,
    Serving,
    /// Not by this store.
    Refused(Older),
}

/// The servers' knowledge.
type Told = BTreeMap<NodeId, Witness>;

impl<O: Objects> Service<O> {
    /// Whether requests are served, when that is known.
    pub(super) async fn may_serve(&self) -> Result<(), Errno> {
        loop {
            let begun = self.begun.wait();
            match self.stage.get() {
                Stage::Serving => return Ok(()),
                Stage::Refused(_) => return Err(REFUSED),
                Stage::Asking => begun.await,
            }
        }
    }

    pub(super) async fn refused(self: Rc<Self>) -> Older {
        loop {
            let begun = self.begun.wait();
            if let Stage::Refused(older) = self.stage.get() {
                return older;
            }
            begun.await;
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self.stage.get(), Stage::Refused(_))
    }

    fn set_stage(&self, stage: Stage) {
        // A refusal is final: a later answer changes nothing.
        if !self.is_refused() {
            self.stage.set(stage);
            self.begun.notify_all();
        }
    }

    /// Asks `servers` what they know, then serves or not.
    pub(super) async fn begin(self: Rc<Self>, settings: VolumeSettings, servers: Vec<NodeId>) {
        let (servers, told) = self.ask_all(servers).await;
        let lineage = match self.lineage_above(&told) {
            Ok(lineage) => lineage,
            Err(older) => return self.set_stage(Stage::Refused(older)),
        };
        // A new store knows of no server to ask. It may be that of a volume whose names were lost.
        let asked_all = !told.is_empty() && self.has_heard(&servers, &told);
        while let Err(error) = self.begin_incarnation(&settings, lineage, asked_all) {
            // Numbers could be given twice by an incarnation that has not begun.
            self.trouble.replace(Some(error.to_string().into()));
            self.cx.sleep(RETRY_INTERVAL).await;
        }
        self.asked.replace(servers.clone());
        self.told.replace(told);
        self.ask_owners().await;
        self.sync_handovers().await;
        self.set_stage(Stage::Serving);
        upkeep::spawn(&self);
        self.cx.spawn("names walk", self.clone().walk_objects());
        self.cx.spawn("names gone", self.clone().count_gone());
        self.cx.spawn("names describe", self.clone().describe_for_ever());
        if self.manager.borrow().restoration().files() > 0 {
            let active = self.manager.borrow().servers().to_vec();
            let all = active.iter().map(|server| server.id).chain(servers).collect();
            self.cx.spawn("names compare", self.clone().compare_for_ever(all));
        }
        self.tell_for_ever().await;
    }

    /// Sites that the last incarnation gave away without saying so: others hear of it when no power cut takes it back.
    async fn sync_handovers(&self) {
        let open = self.manager.borrow().open_handovers(self.cx.now());
        if open.is_ok_and(|open| open.is_empty()) {
            return;
        }
        while self.sync().await.is_err() {
            self.cx.sleep(RETRY_INTERVAL).await;
        }
    }

    fn begin_incarnation(
        self: &Rc<Self>,
        settings: &VolumeSettings,
        lineage: u16,
        asked_all: bool,
    ) -> Result<(), OpenError> {
        let (wall, incarnation) = (self.cx.wall(), self.cx.incarnation());
        let append = self.manager.borrow_mut().begin_incarnation(
            settings,
            wall,
            incarnation,
            lineage,
            asked_all,
        )?;
        self.first.set(append.sequence);
        let (service, posted) = (self.clone(), self.post(Some(append)));
        self.cx.spawn("names begin", async move { service.note(posted.await) });
        Ok(())
    }

    /// This store's state, durably.
    fn own(&self) -> Witness {
        let told = u64::try_from(self.cx.wall().seconds).unwrap_or(0);
        self.manager.borrow_mut().own_witness(told)
    }

    /// Asks `servers`, and those that join meanwhile, until each has answered, for a bounded time. All that were asked,
    /// and what those know that answered.
    async fn ask_all(&self, servers: Vec<NodeId>) -> (BTreeSet<NodeId>, Told) {
        let until = self.cx.now() + WITNESS_SPAN;
        let (mut servers, mut told) = (BTreeSet::from_iter(servers), Told::new());
        loop {
            if !self.manager.borrow().is_new {
                servers.extend(self.manager.borrow().witnesses());
            }
            if self.has_heard(&servers, &told) || self.cx.now() >= until {
                return (servers, told);
            }
            let silent = servers.iter().copied().filter(|server| !told.contains_key(server));
            let silent: Vec<NodeId> = silent.collect();
            // Not one after the other: one that is away takes its time.
            let left = until.since(self.cx.now());
            told.extend(self.ask_some(&silent, Witness::default(), left).await);
            self.cx.sleep(WITNESS_PAUSE).await;
        }
    }

    /// Whether all of them have answered. A store that is not new and knows of no server may be from before they
    /// joined: the first one is waited for.
    fn has_heard(&self, servers: &BTreeSet<NodeId>, told: &Told) -> bool {
        let knows_some = self.manager.borrow().is_new || !told.is_empty();
        knows_some && servers.iter().all(|server| told.contains_key(server))
    }

    /// The knowledge of those servers that answer within `span`.
    async fn ask_some(&self, servers: &[NodeId], tell: Witness, span: Duration) -> Told {
        let calls = servers.iter().map(async |server| {
            let asked = self.objects.witness(*server, self.seat, tell);
            let known = self.cx.with_deadline(span, asked).await;
            known.ok()?.ok().map(|known| (*server, known))
        });
        node::all(calls).await.into_iter().flatten().collect()
    }

    /// Tells the servers every second what is new.
    async fn tell_for_ever(self: &Rc<Self>) {
        while !self.is_refused() {
            self.cx.sleep(SYNC_INTERVAL).await;
            let behind = self.behind(&self.own());
            self.tell(&behind, WITNESS_DEADLINE).await;
        }
    }

    /// For a server that stops, or the manager itself: what is new is synced and told at once.
    pub(super) async fn tell_now(self: Rc<Self>, stopping: Option<Stopping>) {
        if self.stage.get() != Stage::Serving || self.sync().await.is_err() {
            return;
        }
        let server = stopping.as_ref().map(|it| it.server);
        let behind = self.behind(&self.own());
        let behind: Vec<NodeId> =
            behind.into_iter().filter(|one| server.is_none_or(|server| server == *one)).collect();
        // Some may have stopped before, and not in silence.
        let span = if server.is_some() { WITNESS_DEADLINE } else { WITNESS_LAST_SPAN };
        self.tell(&behind, span).await;
        // The next incarnation tells the rest.
        let _ =
            self.cx.with_deadline(DESCRIBE_LAST_SPAN, self.describe_now(stopping.as_ref())).await;
    }

    /// The active servers that do not know yet how far the store is.
    fn behind(&self, own: &Witness) -> Vec<NodeId> {
        let active = BTreeSet::from_iter(self.manager.borrow().witnesses());
        let mut told = self.told.borrow_mut();
        told.retain(|server, _| active.contains(server));
        let knows = |server: &NodeId| told.get(server).is_some_and(|known| !own.is_beyond(known));
        active.into_iter().filter(|server| !knows(server)).collect()
    }

    /// Tells servers how far the store is, and looks at what they know.
    async fn tell(self: &Rc<Self>, servers: &[NodeId], span: Duration) {
        if self.hear(servers, span).await.is_err() {
            return; // they are asked again
        }
        let heard: Vec<NodeId> =
            servers.iter().copied().filter(|one| self.is_heard(*one)).collect();
        let told = self.ask_some(&heard, self.own(), span).await;
        let _asked_again = self.follow(told).await;
    }

    /// Servers that come only now are asked before they are told: their knowledge of another store, or of this one
    /// where an older copy of it went on, would be overwritten.
    async fn hear(self: &Rc<Self>, servers: &[NodeId], span: Duration) -> Result<(), Errno> {
        let late = servers.iter().copied().filter(|server| !self.is_heard(*server));
        let late: Vec<NodeId> = late.collect();
        let told = self.ask_some(&late, Witness::default(), span).await;
        self.follow(told).await?;
        if self.manager.borrow().goes_on_outbidding() && self.is_end_of_outbidding() {
            self.admit().await?;
            let append = self.manager.borrow_mut().end_outbidding();
            self.append_first(append).await;
        }
        // A power cut takes nothing back that is told.
        if self.own().sequence < self.first.get() { self.sync().await } else { Ok(()) }
    }

    fn is_heard(&self, server: NodeId) -> bool {
        self.told.borrow().contains_key(&server)
    }

    /// Of a volume that had another store all servers are waited for: the next start asks those that are silent.
    fn is_end_of_outbidding(&self) -> bool {
        let (told, asked) = (self.told.borrow(), self.asked.borrow());
        let manager = self.manager.borrow();
        let active = manager.witnesses();
        let heard_all = active.iter().chain(asked.iter()).all(|server| told.contains_key(server));
        !told.is_empty() && (heard_all || !manager.is_frozen())
    }

    /// The lineage that this store goes on as, by what servers know.
    fn lineage_above(&self, told: &Told) -> Result<u16, Older> {
        let own = self.own();
        let mut lineage = own.lineage;
        for (&server, &seen) in told {
            match self.manager.borrow().judge(&seen, &own) {
                Judgement::Fits => {}
                Judgement::Outbid(later) => lineage = lineage.max(later),
                Judgement::Older if self.cx.has_bug(Bug::OlderStoreServed) => {}
                Judgement::Older => return Err(Older { server, seen, own }),
            }
        }
        Ok(lineage)
    }

    /// Goes by what servers know.
    async fn follow(self: &Rc<Self>, told: Told) -> Result<(), Errno> {
        match self.lineage_above(&told) {
            Ok(lineage) if lineage > self.own().lineage => self.outbid(lineage).await?,
            Ok(_) => {}
            Err(older) => {
                self.set_stage(Stage::Refused(older));
                return Err(REFUSED);
            }
        }
        self.told.borrow_mut().extend(told);
        Ok(())
    }

    /// A server told late of another store's lineage: this one goes on above it. After an error it is asked again.
    async fn outbid(self: &Rc<Self>, lineage: u16) -> Result<(), Errno> {
        self.admit().await?;
        let is_news = !self.manager.borrow().is_frozen();
        let append = self.manager.borrow_mut().outbid(lineage, self.cx.incarnation());
        let append = append.map_err(|_| Errno::EIO)?;
        self.append_first(append).await;
        if is_news {
            // A store that began empty did not know that there was one before, which may have had sites.
            self.cx.spawn("names owners", self.clone().ask_owners_late(BTreeMap::new()));
        }
        Ok(())
    }

    /// Appends a change of the lineage: nothing is told from then on before it is on stable storage.
    async fn append_first(self: &Rc<Self>, append: Append) {
        self.first.set(append.sequence);
        let posted = self.post(Some(append)).await;
        self.note(posted);
    }
}
