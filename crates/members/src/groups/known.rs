//! The groups as one node knows them: what the service has told, and what other nodes have.
//!
//! ```text
//!  service ── pages after version() ──► refresh ─┐
//!          ── answers of proposals ──► propose ──┼──► table() ──► changed()
//!  another node ── a group ──────────► learn ────┘
//! ```
//!
//! Invariants: a group's epoch never goes back; all that changed up to `version()` is in the table.

use super::messages::{GroupsPage, Proposal, ToldGroup};
use super::{Change, Group, GroupId, Replica, Table};
use crate::ask::call_for_page;
use crate::limits::CALL_DEADLINE;
use crate::protocol::{CHANGE_GROUP, GROUPS};
use node::{Cx, Notify, Semaphore};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use wire::codec::Short;
use wire::field::{Message, body};
use wire::{Errno, NodeId};

/// The groups of a cluster. Clones are the same.
#[derive(Clone)]
pub struct Groups(Rc<Shared>);

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Groups(version {})", self.version())
    }
}

struct Shared {
    cx: Cx,
    manager: NodeId,
    table: RefCell<Table>,
    is_known: Cell<bool>,
    changed: Notify,
    /// Held by the task that fetches pages.
    turn: Semaphore,
    /// Pages asked for so far.
    asked: Cell<u64>,
    /// The number of the last fetch's last page, and the fetch's outcome.
    fetched: Cell<(u64, Result<(), Errno>)>,
    /// Something was heard that a task is to ask about, and there is such a task.
    wanted: Cell<bool>,
    asks: Cell<bool>,
}

impl Groups {
    /// Empty until [`refresh`](Groups::refresh); the node need not be a member.
    pub fn new(cx: &Cx, manager: NodeId) -> Groups {
        Groups(Rc::new(Shared {
            cx: cx.clone(),
            manager,
            table: RefCell::default(),
            is_known: Cell::new(false),
            changed: Notify::new(cx),
            turn: Semaphore::new(cx, 1),
            asked: Cell::new(0),
            fetched: Cell::new((0, Ok(()))),
            wanted: Cell::new(false),
            asks: Cell::new(false),
        }))
    }

    /// The group with this number, as it is known here.
    pub fn get(&self, id: GroupId) -> Option<Group> {
        self.0.table.borrow().get(id).cloned()
    }

    /// All groups. Not to be held while waiting for anything.
    pub fn table(&self) -> Ref<'_, Table> {
        self.0.table.borrow()
    }

    /// The version of the service's table up to which all changes are known.
    pub fn version(&self) -> u64 {
        self.0.table.borrow().version()
    }

    /// Whether the service has ever told all groups, be it none.
    pub fn is_known(&self) -> bool {
        self.0.is_known.get()
    }

    /// Waits for another version, or another state of any group.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.0.changed.wait()
    }

    /// A group as another node knows it, and the version of the service's table that it came with there; 0 where that
    /// is not known. What is known here already, or better, stays.
    pub fn learn(&self, version: u64, id: GroupId, group: Group) {
        let is_new = self.0.table.borrow_mut().hear(version, id, group);
        if is_new {
            self.0.changed.notify_all();
        }
    }

    /// Asks for all that changed behind [`version`](Groups::version). Afterwards all that the service told before this
    /// call, to whomever, is known. Those who ask at the same time share the pages, and the error.
    pub async fn refresh(&self) -> Result<(), Errno> {
        let before = self.0.asked.get();
        let _turn = self.0.turn.acquire(1).await;
        let (last, outcome) = self.0.fetched.get();
        // A page that was asked for earlier may lack what this caller has heard of.
        if last > before {
            return outcome;
        }
        let outcome = self.fetch().await;
        self.0.fetched.set((self.0.asked.get(), outcome));
        if outcome.is_ok() && !self.0.is_known.replace(true) {
            self.0.changed.notify_all();
        }
        outcome
    }

    /// As [`refresh`](Groups::refresh) beside what the caller does. Without an answer the next hint asks again.
    pub fn refresh_soon(&self) {
        self.0.wanted.set(true);
        if self.0.asks.replace(true) {
            return;
        }
        let groups = self.clone();
        self.0.cx.spawn("groups", async move {
            // A page that is under way may lack what was heard of meanwhile.
            while groups.0.wanted.replace(false) {
                let _ = groups.refresh().await;
            }
            groups.0.asks.set(false);
        });
    }

    async fn fetch(&self) -> Result<(), Errno> {
        loop {
            self.0.asked.set(self.0.asked.get() + 1);
            let page = self.page(self.version()).await?;
            if self.take(page) {
                return Ok(());
            }
        }
    }

    async fn page(&self, known: u64) -> Result<GroupsPage, Errno> {
        let Shared { cx, manager, .. } = &*self.0;
        let (reply, data) = call_for_page(cx, *manager, GROUPS, &body(&known)).await?;
        let page = GroupsPage::decode(&reply.ok()?.body, &data).map_err(|Short| Errno::EPROTO)?;
        // A page that goes back or says nothing would keep us asking for ever.
        if page.follows(known) { Ok(page) } else { Err(Errno::EPROTO) }
    }

    /// Whether it was the last page.
    fn take(&self, page: GroupsPage) -> bool {
        if !page.groups.is_empty() {
            let table = &mut *self.0.table.borrow_mut();
            for ToldGroup { version, id, group } in page.groups {
                table.learn(version, id, group);
            }
            self.0.changed.notify_all();
        }
        page.last
    }

    /// A lease tells the version of the service's table. A slow service costs the member no renewal: the next one goes
    /// on with the pages.
    pub(crate) async fn follow(&self, version: u64) {
        if version == 0 && !self.0.is_known.replace(true) {
            self.0.changed.notify_all();
        }
        if version > self.version() || !self.is_known() {
            let _ = self.0.cx.with_deadline(CALL_DEADLINE, self.refresh()).await;
        }
    }

    /// Proposes a change of a group that `by`, a disk of this node, has decided by the group's `epoch`; the group after
    /// it, which is on stable storage.
    ///
    /// # Errors
    ///
    /// The change was not made by this call, and [`get`](Groups::get) tells the group as it is: ESTALE, it has another
    /// epoch; EPERM, another replica may propose this; EINVAL, the group is not in the state that the change begins
    /// with. After any other error the outcome is unknown, and the change may be made even later, until the group has
    /// another epoch. One that proposes it anew, and had it made the first time, gets ESTALE: it compares the group
    /// with what it proposed ([`Proposal`]).
    pub async fn propose(
        &self,
        id: GroupId,
        by: Replica,
        epoch: u32,
        change: Change,
    ) -> Result<Group, Errno> {
        let Shared { cx, manager, .. } = &*self.0;
        let body = Proposal { group: id, by, epoch, change }.encode();
        let (reply, data) = call_for_page(cx, *manager, CHANGE_GROUP, &body).await?;
        let told = ToldGroup::decode(&data).ok().filter(|told| told.id == id);
        if let Some(ToldGroup { version, id, group }) = told.clone() {
            self.learn(version, id, group);
        }
        reply.ok()?;
        told.map(|told| told.group).ok_or(Errno::EPROTO)
    }
}
