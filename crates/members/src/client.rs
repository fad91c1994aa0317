//! The members' client: joins, stays a member, and knows who the others are.

use crate::ask::{ask, call_for_page};
use crate::disks::{ToldDisk, Verdict};
use crate::groups::Groups;
use crate::limits::{LENDER_MARGIN, LENDER_PERIOD, PARTING_SPAN, RETRY_PAUSE};
use crate::membership::View;
use crate::protocol::{
    DECLARED_GONE, DISKS, DRAINED, EMPTY, Empty, FORGET, Forget, Identity, JOIN, Join, LEAVE,
    LENDERS, Lease, LendersPage, Member, PLAN, Page, Planned, RENEW, RETIRE, Registration, Retire,
    Roles, STOPPING, Telling, VIEW,
};
use endpoint::FrameMut;
use node::{Cx, Notify, Pieces, Reply};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::codec::{Encoder, Short};
use wire::field::Message;
use wire::{Errno, NodeId, Time};

/// The members as one view shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Number of the view; 0 is none yet.
    pub view: u64,
    members: BTreeMap<NodeId, Member>,
}

impl Directory {
    /// The member with this id.
    pub fn get(&self, id: NodeId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// All members, in ascending order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }
}

/// Whether this node is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not yet.
    Joining,
    /// Until this time, unless the lease is renewed before.
    Member(Time),
    /// The lease ended before it could be renewed, and the cluster dropped its state for this node. The client goes on
    /// to join again.
    Lost,
    /// The node left on its own request.
    Left,
}

/// A node's membership. Clones are the same.
#[derive(Clone)]
pub struct Client(Rc<Shared>);

struct Shared {
    cx: Cx,
    manager: NodeId,
    identity: Identity,
    standing: Cell<Standing>,
    refused: Cell<Option<Errno>>,
    later_incarnation: Cell<Option<u64>>,
    declared_gone: Cell<bool>,
    directory: RefCell<Rc<Directory>>,
    lenders: RefCell<Rc<View>>,
    groups: Groups,
    /// The incarnation among the lenders that the last lease was for.
    lends_as: Cell<u64>,
    /// End of the period in which no other node takes that incarnation for over.
    lends_until: Cell<Time>,
    changed: Notify,
}

/// Asks once to become a member and be given an id: what a node without an id does, under one of the joining ids,
/// before it is started again with its own.
pub async fn join(cx: &Cx, manager: NodeId, identity: &Identity) -> Result<Lease, Errno> {
    identity.check()?;
    let join = Join { identity: identity.clone(), incarnation: cx.incarnation() };
    let (body, data) = join.encode();
    let frame = cx.frames().copy_of(&data).ok_or(Errno::ENOMEM)?;
    let reply = ask(cx, manager, JOIN, &body, cx.piece(frame), cx.pieces()).await?;
    Lease::decode(&reply.body).map_err(|Short| Errno::EPROTO)
}

/// Declares a server, or a disk of it, gone for good; on stable storage when this returns. The errors are those of
/// [`Registry::handle_forget`](crate::Registry::handle_forget).
pub async fn forget(cx: &Cx, manager: NodeId, forget: Forget) -> Result<(), Errno> {
    ask(cx, manager, FORGET, &forget.encode(), cx.pieces(), cx.pieces()).await.map(drop)
}

/// A file manager is to give away what it owns, or is to own a share again; on stable storage when this returns. EPERM:
/// it is the one that keeps the members; else the errors of
/// [`Registry::handle_retire`](crate::Registry::handle_retire).
pub async fn retire(cx: &Cx, manager: NodeId, retire: Retire) -> Result<(), Errno> {
    ask(cx, manager, RETIRE, &retire.encode(), cx.pieces(), cx.pieces()).await.map(drop)
}

/// Disks are to be emptied of replicas of groups, or are to get some again; on stable storage when this returns. The
/// errors are those of [`Registry::handle_empty`](crate::Registry::handle_empty).
pub async fn empty(cx: &Cx, manager: NodeId, asked: Empty) -> Result<(), Errno> {
    ask(cx, manager, EMPTY, &asked.encode(), cx.pieces(), cx.pieces()).await.map(drop)
}

/// Asks how far the planner of groups is.
pub async fn planned(cx: &Cx, manager: NodeId) -> Result<Planned, Errno> {
    let (reply, data) = call_for_page(cx, manager, PLAN, &[]).await?;
    Planned::decode(&reply.ok()?.body, &data).map_err(|Short| Errno::EPROTO)
}

/// Asks once who the members are: also a node that is none may.
pub async fn view(cx: &Cx, manager: NodeId) -> Result<Directory, Errno> {
    loop {
        if let Some(directory) = fetch(cx, manager).await? {
            return Ok(directory);
        }
    }
}

impl Client {
    /// Makes this node a member under its own id, and keeps it one as long as the node runs.
    pub fn start(cx: &Cx, manager: NodeId, identity: Identity) -> Client {
        let client = Client::new(cx, manager, identity);
        client.begin();
        client
    }

    /// The same, which does nothing yet: for services that are started before it and hear of groups from it. The node
    /// of the manager itself must not join before the manager answers, or another machine may have its id.
    pub fn new(cx: &Cx, manager: NodeId, identity: Identity) -> Client {
        Client(Rc::new(Shared {
            cx: cx.clone(),
            manager,
            identity: Identity { wish: Some(cx.id()), ..identity },
            standing: Cell::new(Standing::Joining),
            refused: Cell::new(None),
            later_incarnation: Cell::new(None),
            declared_gone: Cell::new(false),
            directory: RefCell::default(),
            lenders: RefCell::default(),
            groups: Groups::new(cx, manager),
            lends_as: Cell::new(0),
            lends_until: Cell::new(Time::ZERO),
            changed: Notify::new(cx),
        }))
    }

    /// Makes the node a member; once.
    pub fn begin(&self) {
        self.0.cx.spawn("member", self.clone().keep());
    }

    /// Whether this node is a member now. A lease that ran out without an answer counts as lost.
    pub fn standing(&self) -> Standing {
        match self.0.standing.get() {
            Standing::Member(until) if until <= self.0.cx.now() => Standing::Lost,
            standing => standing,
        }
    }

    /// Why the manager refused the last time; `None` when it did not answer or agreed.
    pub fn refused(&self) -> Option<Errno> {
        self.0.refused.get()
    }

    /// The incarnation of this node that the manager takes for a later one, and refuses this one for.
    pub fn later_incarnation(&self) -> Option<u64> {
        self.0.later_incarnation.get()
    }

    /// Whether the manager refuses this node because it, or one of its disks, was declared gone.
    pub fn is_declared_gone(&self) -> bool {
        self.0.declared_gone.get()
    }

    /// The last view seen.
    pub fn directory(&self) -> Rc<Directory> {
        self.0.directory.borrow().clone()
    }

    /// The members of network memory, as last seen; known to members with [`Roles::MEMORY`] only.
    pub fn lenders(&self) -> Rc<View> {
        self.0.lenders.borrow().clone()
    }

    /// The groups of replicas, kept up with the leases.
    pub fn groups(&self) -> Groups {
        self.0.groups.clone()
    }

    /// The incarnation in which this node takes part in network memory, and the end of the period in which no other
    /// node takes it for over, though clocks run a tenth too fast or too slow.
    pub fn lends(&self) -> Option<(u64, Time)> {
        match self.0.standing.get() {
            Standing::Member(_) if self.0.lends_as.get() > 0 => {
                Some((self.0.lends_as.get(), self.0.lends_until.get()))
            }
            _ => None,
        }
    }

    /// Waits for another standing, which is also a lease that lasts longer or is refused, another view or other
    /// lenders.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.0.changed.wait()
    }

    /// Waits until this node is a member and has seen a view, or is refused.
    ///
    /// # Errors
    ///
    /// As [`refused`](Client::refused) tells; the client goes on to try.
    pub async fn joined(&self) -> Result<(), Errno> {
        loop {
            let changed = self.changed();
            let member = matches!(self.standing(), Standing::Member(_));
            if member && self.0.directory.borrow().view > 0 {
                return Ok(());
            }
            self.refused().map_or(Ok(()), Err)?;
            changed.await;
        }
    }

    /// Gives the membership up, at once instead of with the lease.
    pub async fn leave(&self) -> Result<(), Errno> {
        self.stand(Standing::Left);
        let body = self.registration().encode();
        self.ask(LEAVE, &body, self.0.cx.pieces()).await.map(drop)
    }

    /// Tells the manager that this node stops, and waits until it has said what it has to say.
    pub async fn stopping(&self) -> Result<(), Errno> {
        let body = self.registration().encode();
        let asked = self.ask(STOPPING, &body, self.0.cx.pieces());
        let late = |_| Errno::ETIMEDOUT;
        self.0.cx.with_deadline(PARTING_SPAN, asked).await.map_err(late)?.map(drop)
    }

    /// Tells the disks that this node can serve, so that the others get nothing new; which of them the manager knows
    /// better, and are not to be served. Those with a bit in `replacing` are empty, and in the places of lost ones.
    pub async fn tell_disks(&self, disks: &[ToldDisk], replacing: u32) -> Result<Verdict, Errno> {
        let Shared { cx, manager, .. } = &*self.0;
        let data = match &ToldDisk::encode_all(disks)[..] {
            [] => cx.pieces(),
            bytes => cx.piece(cx.frames().copy_of(bytes).ok_or(Errno::ENOMEM)?),
        };
        let body = Telling { registration: self.registration(), replacing }.encode();
        let reply = ask(cx, *manager, DISKS, &body, data, cx.pieces()).await?;
        Verdict::decode(&reply.body).map_err(|Short| Errno::EPROTO)
    }

    /// Tells that this node, a retired file manager, owns nothing any more; on stable storage when this returns.
    pub async fn drained(&self) -> Result<(), Errno> {
        let body = self.registration().encode();
        self.ask(DRAINED, &body, self.0.cx.pieces()).await.map(drop)
    }

    /// Asks for the view now instead of with the next renewal.
    pub async fn refresh(&self) -> Result<(), Errno> {
        let directory = view(&self.0.cx, self.0.manager).await?;
        if directory.view > self.0.directory.borrow().view {
            self.0.directory.replace(Rc::new(directory));
            self.0.changed.notify_all();
        }
        Ok(())
    }

    async fn keep(self) {
        while self.0.standing.get() != Standing::Left {
            let asked = self.0.cx.now();
            let result = match self.standing() {
                Standing::Member(_) => self.renew().await,
                _ => self.join_again().await,
            };
            if result.as_ref().err() == Some(&DECLARED_GONE) {
                // The advice to the operator depends on what was declared gone, which the view says.
                let _ = self.refresh().await;
            }
            self.tell_refusal(result.as_ref().err().copied().filter(|errno| !is_silence(*errno)));
            match result {
                Ok(lease) => self.renewed(asked, lease).await,
                Err(errno) => self.failed(errno).await,
            }
        }
    }

    fn tell_refusal(&self, refused: Option<Errno>) {
        self.0.declared_gone.set(refused == Some(DECLARED_GONE));
        if self.0.refused.replace(refused) != refused {
            self.0.changed.notify_all();
        }
    }

    async fn renewed(&self, asked: Time, lease: Lease) {
        if self.0.standing.get() == Standing::Left {
            return;
        }
        self.0.lends_as.set(lease.incarnation);
        self.0.lends_until.set(asked + (lease.span - lease.span / LENDER_MARGIN));
        self.stand(Standing::Member(asked + lease.span));
        if lease.view != self.0.directory.borrow().view {
            // The next renewal tells the number of the view again.
            let _ = self.refresh().await;
        }
        if lease.incarnation > 0 && lease.lenders != self.0.lenders.borrow().number {
            let _ = self.refresh_lenders().await;
        }
        self.0.groups.follow(lease.groups).await;
        self.0.cx.sleep_until(asked + self.period(lease.span)).await;
    }

    fn period(&self, span: Duration) -> Duration {
        let lends = self.0.identity.roles.contains(Roles::MEMORY);
        if lends { LENDER_PERIOD.min(span / 3) } else { span / 3 }
    }

    async fn refresh_lenders(&self) -> Result<(), Errno> {
        loop {
            if let Some(lenders) = self.fetch_lenders().await? {
                if lenders.number > self.0.lenders.borrow().number {
                    self.0.lenders.replace(Rc::new(lenders));
                    self.0.changed.notify_all();
                }
                return Ok(());
            }
        }
    }

    /// All of them; `None` when they changed between two pages.
    async fn fetch_lenders(&self) -> Result<Option<View>, Errno> {
        let mut lenders = View::default();
        loop {
            let after = lenders.members.last().map_or(NodeId(0), |lender| lender.node);
            let LendersPage { number, lenders: more, last } = self.lenders_page(after).await?;
            if lenders.number != 0 && lenders.number != number {
                return Ok(None);
            }
            lenders.number = number;
            lenders.members.extend(more);
            if last {
                return Ok(Some(lenders));
            }
        }
    }

    async fn lenders_page(&self, after: NodeId) -> Result<LendersPage, Errno> {
        let (reply, data) = page_after(&self.0.cx, self.0.manager, LENDERS, after).await?;
        let page = LendersPage::decode(&reply.body, &data).map_err(|Short| Errno::EPROTO)?;
        let ids: Vec<NodeId> = page.lenders.iter().map(|lender| lender.node).collect();
        let ascends = ids.first().is_none_or(|id| *id > after) && ids.is_sorted_by(|a, b| a < b);
        // A page that goes back or says nothing would keep us asking for ever.
        if ascends && (page.last || !ids.is_empty()) { Ok(page) } else { Err(Errno::EPROTO) }
    }

    async fn failed(&self, errno: Errno) {
        let was = self.0.standing.get();
        let over = self.standing() == Standing::Lost || errno == Errno::ESTALE;
        if matches!(was, Standing::Member(_)) && over {
            self.stand(Standing::Lost);
        }
        self.0.cx.sleep(RETRY_PAUSE).await;
    }

    async fn join(&self) -> Result<Lease, Errno> {
        let Shared { cx, manager, identity, .. } = &*self.0;
        join(cx, *manager, identity).await
    }

    /// As [`join`](Client::join), and finds out which incarnation is preferred to this one.
    async fn join_again(&self) -> Result<Lease, Errno> {
        let result = self.join().await;
        if result == Err(Errno::ESTALE) {
            self.refresh().await?;
            let Registration { id, incarnation } = self.registration();
            let known = self.directory().get(id).map(|member| member.incarnation);
            self.0.later_incarnation.set(known.filter(|known| *known > incarnation));
        }
        result
    }

    async fn renew(&self) -> Result<Lease, Errno> {
        let body = self.registration().encode();
        let reply = self.ask(RENEW, &body, self.0.cx.pieces()).await?;
        Lease::decode(&reply.body).map_err(|Short| Errno::EPROTO)
    }

    async fn ask(&self, op: u16, body: &[u8], into: Pieces<FrameMut>) -> Result<Reply, Errno> {
        let Shared { cx, manager, .. } = &*self.0;
        ask(cx, *manager, op, body, cx.pieces(), into).await
    }

    fn registration(&self) -> Registration {
        Registration { id: self.0.cx.id(), incarnation: self.0.cx.incarnation() }
    }

    fn stand(&self, standing: Standing) {
        self.0.standing.set(standing);
        self.0.changed.notify_all();
    }
}

/// Whether an error means that no answer came, as opposed to an answer that refuses.
pub fn is_silence(errno: Errno) -> bool {
    matches!(errno, Errno::EHOSTDOWN | Errno::ETIMEDOUT | Errno::EAGAIN | Errno::ENODEV)
}

/// The whole view; `None` when it changed between two pages.
async fn fetch(cx: &Cx, manager: NodeId) -> Result<Option<Directory>, Errno> {
    let mut directory = Directory::default();
    loop {
        let after = directory.members.keys().next_back().copied().unwrap_or_default();
        let page = page(cx, manager, after).await?;
        if directory.view != 0 && directory.view != page.view {
            return Ok(None);
        }
        directory.view = page.view;
        directory.members.extend(page.members.into_iter().map(|member| (member.id, member)));
        if page.last {
            return Ok(Some(directory));
        }
    }
}

async fn page(cx: &Cx, manager: NodeId, after: NodeId) -> Result<Page, Errno> {
    let (reply, data) = page_after(cx, manager, VIEW, after).await?;
    let page = Page::decode(&reply.body, &data).map_err(|Short| Errno::EPROTO)?;
    // A page that goes back or says nothing would keep us asking for ever.
    let goes_on = page.members.first().is_some_and(|member| member.id > after);
    if goes_on || page.last { Ok(page) } else { Err(Errno::EPROTO) }
}

/// The part of a list behind `after`, and its data.
async fn page_after(
    cx: &Cx,
    manager: NodeId,
    op: u16,
    after: NodeId,
) -> Result<(Reply, Vec<u8>), Errno> {
    let mut body = [0; 2];
    Encoder::new(&mut body).u16(after.0);
    let (reply, data) = call_for_page(cx, manager, op, &body).await?;
    Ok((reply.ok()?, data))
}
