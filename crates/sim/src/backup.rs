//! An administrator of a simulated cluster: takes backups of the names over the managers' protocol, under every fault
//! there is, and makes files when the names were restored. Or it salvages the names; machines are stopped cleanly then.

use crate::chain::{Chain, Seen};
use crate::meta::StoresImage;
use crate::salvaging::{Back, Wanted, lose, salvage};
use files::cluster::{Services, members_store, names_store, settle};
use names::{Client, How, PartOf, Snapshot, Who, restored};
use node::Cx;
use node::rings::StoreId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::{Entry, Filling, MemoryBackend, MemoryLogs, Store};
use stripe::Kept;
use wire::{Errno, FileId, NodeId};

/// How often the administrator looks for what there is to do.
const POLL: Duration = Duration::from_millis(20);
/// Files that are made after a restore: more than are made between a backup and the manager's next start, so that
/// numbers which begin there are met.
const MADE: usize = 64;
/// Servers have joined a new manager after this time: what is salvaged before that lacks their objects.
const JOINING: Duration = Duration::from_secs(3);
/// So long before it begins it is known that names are salvaged: longer than a tick of the run.
const NEAR: Duration = Duration::from_millis(150);
/// Pause after one that could not be made.
const PAUSE: Duration = Duration::from_millis(200);

/// All rows of the managers' stores at one moment.
#[derive(Clone, Debug, Default)]
pub struct Backup {
    /// Each manager's, the first one's first.
    names: Vec<(Snapshot, Vec<Entry>)>,
    members: Vec<Entry>,
}

impl Backup {
    /// The managers of which there is a part.
    pub fn managers(&self) -> impl Iterator<Item = NodeId> {
        self.names.iter().map(|(snapshot, _)| snapshot.manager)
    }

    /// The files of a manager's stores that are restored from it, as `trapeze restore` makes them.
    pub fn restore(&self, manager: NodeId) -> Result<StoresImage, String> {
        let mut names = Vec::new();
        for (Snapshot { manager: of, sites, .. }, rows) in &self.names {
            let sites = sites.iter().copied();
            let part = if *of == manager { PartOf::own(sites) } else { PartOf::other(sites) };
            for (key, value) in rows {
                names.extend(restored(&part, key, value).map_err(|error| error.to_string())?);
            }
        }
        let names = (StoreId::Names, names_store(), names);
        let members = (StoreId::Members, members_store(), self.members.clone());
        let is_first = self.managers().next() == Some(manager);
        let all = [Some(names), is_first.then_some(members)].into_iter().flatten();
        let filled = all.map(|(id, config, rows)| Ok((id, fill(config, rows)?)));
        filled.collect::<Result<_, String>>().map(StoresImage)
    }
}

fn fill(config: store::Config, rows: Vec<Entry>) -> Result<(Vec<u8>, MemoryLogs), String> {
    let backend = MemoryBackend::new();
    let store = Store::open(backend.clone(), config, Vec::new());
    let mut filling = Filling::new(store.map_err(|error| error.to_string())?);
    filling.put(rows)?;
    filling.end()?;
    Ok((backend.contents(), MemoryLogs::new()))
}

#[derive(Debug, Default)]
struct State {
    /// The number of a backup that is to be taken.
    wanted: Cell<Option<u32>>,
    taken: RefCell<Option<(u32, Backup)>>,
    /// Files are to be made.
    makes: Cell<bool>,
    made: RefCell<Vec<FileId>>,
    /// Of several managers: the changes that a backup is compared with, and those that were found before files were
    /// made.
    chain: Option<Chain>,
    seen: RefCell<Option<Seen>>,
    /// The names are to be salvaged, when all servers are there.
    salvages: Cell<Option<Wanted>>,
    /// A server that has lost an object with the names, and is to be started anew before they are salvaged.
    forgets: Cell<Option<NodeId>>,
    /// The file that cannot be whole without that object.
    broken: Cell<Option<FileId>>,
    /// How often that was begun.
    attempts: Cell<u32>,
    /// One begins in a moment, or is under way.
    is_near: Cell<bool>,
    salvaged: RefCell<Option<Vec<Back>>>,
    /// The machine that is to stop cleanly.
    stops: Cell<Option<NodeId>>,
}

/// Requests to the administrator, and their results.
#[derive(Clone, Debug, Default)]
pub struct Backups(Rc<State>);

impl Backups {
    /// Of a volume with several managers.
    pub fn of_several() -> Backups {
        Backups(Rc::new(State { chain: Some(Chain::default()), ..State::default() }))
    }

    /// The changes that backups of several managers are compared with.
    pub fn chain(&self) -> Option<&Chain> {
        self.0.chain.as_ref()
    }

    /// Makes these changes on a node until it ends.
    pub async fn serve_chain(self, cx: Cx, names: Client) {
        if let Some(chain) = self.chain() {
            chain.serve(&cx, &names).await;
        }
    }

    /// A backup is to be taken now; the number tells it from others.
    pub fn want(&self, number: u32) {
        self.0.wanted.set(Some(number));
    }

    /// The backup of this number, when it is whole.
    pub fn take(&self, number: u32) -> Option<Backup> {
        let taken = self.0.taken.take();
        taken.filter(|(of, _)| *of == number).map(|(_, backup)| backup)
    }

    /// Files are to be made anew.
    pub fn make(&self) {
        self.0.made.borrow_mut().clear();
        self.0.makes.set(true);
    }

    /// They, when all are made.
    pub fn made(&self) -> Option<Vec<FileId>> {
        (!self.0.makes.get()).then(|| self.0.made.borrow().clone())
    }

    /// The names of [`chain`](Backups::chain) that were found before.
    pub fn seen(&self) -> Option<Seen> {
        self.0.seen.borrow().clone()
    }

    /// The names are to be salvaged when all servers are there.
    pub fn salvage(&self, wanted: Wanted) {
        self.0.salvaged.take();
        self.0.attempts.set(0);
        self.0.is_near.set(false);
        self.0.forgets.set(None);
        self.0.broken.set(None);
        self.0.salvages.set(Some(wanted));
    }

    /// The server that has just lost an object: the caller starts it anew.
    pub fn forgets(&self) -> Option<NodeId> {
        self.0.forgets.take()
    }

    /// The file that cannot be whole, as an object was lost with the names.
    pub fn broken(&self) -> Option<FileId> {
        self.0.broken.get()
    }

    /// Whether they are still to be.
    pub fn is_salvaging(&self) -> bool {
        self.0.salvages.get().is_some()
    }

    /// How often that was begun, since it was to be.
    pub fn attempts(&self) -> u32 {
        self.0.attempts.get()
    }

    /// Whether one begins in a moment, or is under way.
    pub fn is_near(&self) -> bool {
        self.0.is_near.get()
    }

    /// The salvaged names, when all are.
    pub fn salvaged(&self) -> Option<Vec<Back>> {
        self.0.salvaged.take()
    }

    /// The machine is to stop cleanly.
    pub fn stop(&self, node: NodeId) {
        self.0.stops.set(Some(node));
    }

    /// Whether the machine that was to stop has done all that it does for that.
    pub fn has_stopped(&self) -> bool {
        self.0.stops.get().is_none()
    }

    /// On each machine: does what comes before its end, when it is to stop.
    pub fn stop_when_wanted(&self, cx: &Cx, services: &Services) {
        let Services { io, manager, member, .. } = services;
        let (io, manager, member) = (io.clone(), manager.clone(), member.clone());
        let (own, state) = (cx.clone(), self.0.clone());
        cx.spawn("stop", async move {
            while state.stops.get() != Some(own.id()) {
                own.sleep(POLL).await;
            }
            match (manager, member) {
                (manager, Some(member)) => settle(own, io, manager, member).await,
                (Some(manager), None) => manager.settle(None).await,
                (None, None) => {}
            }
            state.stops.set(None);
        });
    }

    /// Serves on a node until it ends.
    pub async fn serve(self, cx: Cx, names: Client, stripe: stripe::Client) {
        loop {
            cx.sleep(POLL).await;
            if let Some(wanted) = self.0.salvages.get() {
                cx.sleep(JOINING).await;
                if let Some(lost) = wanted.loses {
                    self.lose_without_a_trace(&cx, (&names, &stripe), wanted, lost).await;
                    continue;
                }
                self.0.is_near.set(true);
                cx.sleep(NEAR).await;
                self.0.attempts.set(self.0.attempts.get() + 1);
                let back = salvage(&cx, &names, &stripe, wanted).await;
                self.0.is_near.set(false);
                match back {
                    Ok(back) => {
                        self.0.salvaged.replace(Some(back));
                        self.0.salvages.set(None);
                    }
                    Err(_) => cx.sleep(PAUSE).await,
                }
            }
            if let Some(number) = self.0.wanted.take()
                && let Ok(backup) = back_up(&names).await
            {
                self.0.taken.replace(Some((number, backup)));
            }
            if self.0.makes.get() {
                self.make_all(&cx, &names).await;
            }
        }
    }

    /// After an error it is to be called again.
    async fn lose_without_a_trace(
        &self,
        cx: &Cx,
        clients: (&Client, &stripe::Client),
        wanted: Wanted,
        lost: (NodeId, Kept),
    ) {
        let Ok(is_broken) = lose(clients, wanted.servers, lost).await else { return };
        self.0.broken.set(is_broken.then_some(lost.1.object.file));
        self.0.forgets.set(Some(lost.0));
        while self.0.forgets.get().is_some() {
            cx.sleep(POLL).await;
        }
        self.0.salvages.set(Some(Wanted { loses: None, ..wanted }));
    }

    async fn make_all(&self, cx: &Cx, names: &Client) {
        self.0.seen.take();
        while self.0.chain.is_some() && self.0.seen.borrow().is_none() {
            match Chain::look(names).await {
                Ok(seen) => drop(self.0.seen.replace(Some(seen))),
                Err(_) => cx.sleep(PAUSE).await,
            }
        }
        for number in 0.. {
            let name = format!("made{number}");
            let created =
                names.create(&Who::ROOT, FileId::ROOT, name.as_bytes(), 0o644, How::Guarded, None);
            match created.await {
                Ok((entry, _)) => self.0.made.borrow_mut().push(entry.attr.file),
                Err(_) => cx.sleep(PAUSE).await,
            }
            if self.0.made.borrow().len() >= MADE {
                return self.0.makes.set(false);
            }
        }
    }
}

async fn back_up(names: &Client) -> Result<Backup, Errno> {
    let snapshots = names.snapshot(&Who::ROOT).await.map_err(|error| error.errno)?;
    let members = rows(names, &snapshots[0], true).await?;
    let mut all = Vec::new();
    for snapshot in snapshots {
        let rows = rows(names, &snapshot, false).await?;
        all.push((snapshot, rows));
    }
    Ok(Backup { names: all, members })
}

async fn rows(names: &Client, snapshot: &Snapshot, of_members: bool) -> Result<Vec<Entry>, Errno> {
    let mut rows: Vec<Entry> = Vec::new();
    loop {
        let after = rows.last().map(|(key, _)| key.clone()).unwrap_or_default();
        let mut part = names.back_up(&Who::ROOT, snapshot, of_members, &after).await?;
        rows.append(&mut part.rows);
        if part.last {
            return Ok(rows);
        }
    }
}
