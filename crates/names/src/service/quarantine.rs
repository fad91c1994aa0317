//! The walk over the servers' objects: slow, one server after the other, what no file claims is set aside.

use super::Service;
use super::dispatch::Encoded;
use crate::keys;
use crate::limits::{UPTIME_INTERVAL, WALK_COUNT, WALK_INTERVAL};
use crate::objects::Objects;
use crate::quarantine::{Aside, Standing, Unclaimed, Wanted};
use std::rc::Rc;
use stripe::Kept;
use wire::field::encoded;
use wire::{Errno, FileId, NodeId, ObjectId, Time};

/// Counts of the walk since the manager started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarantineCounters {
    /// Objects looked at.
    pub seen: u64,
    /// Objects that the store may be too old to know.
    pub younger: u64,
    /// Objects set aside.
    pub quarantined: u64,
    /// Objects removed for good.
    pub purged: u64,
    /// Rounds over all servers that ended.
    pub rounds: u64,
    /// Objects that the store may be too old to know, in the last round; while there are any, nothing is purged by its
    /// age.
    pub younger_now: u64,
}

/// Progress of the walk.
#[derive(Default)]
struct Walk {
    server: usize,
    after: Option<ObjectId>,
    /// Objects of this round that the store may be too old to know.
    younger: u64,
    /// A server of this round was not heard of.
    missed: bool,
    /// The last round saw every server, and no such object.
    clean: bool,
    /// When the walk began, and for how many seconds there had been a manager by then.
    begun: Time,
    uptime: u64,
    noted: Time,
}

impl Walk {
    fn uptime(&self, now: Time) -> u64 {
        self.uptime + now.since(self.begun).as_secs()
    }

    /// To the next server.
    fn next(&mut self) {
        self.server += 1;
        self.after = None;
    }
}

impl<O: Objects> Service<O> {
    pub(super) async fn walk_objects(self: Rc<Self>) {
        // Damage here is found by readers; and objects set aside only stay longer.
        let uptime = self.manager.borrow().uptime().unwrap_or(0);
        let begun = self.cx.now();
        let mut walk = Walk { begun, uptime, noted: begun, ..Walk::default() };
        loop {
            self.cx.sleep(WALK_INTERVAL).await;
            if self.is_refused() {
                return;
            }
            // A server that is away, or a store that takes no changes, is found in the next step.
            let _ = self.walk_step(&mut walk).await;
            let uptime = walk.uptime(self.cx.now());
            if self.cx.now() >= walk.noted + UPTIME_INTERVAL
                && self.note_uptime(uptime).await.is_ok()
            {
                walk.noted = self.cx.now();
            }
            if walk.clean {
                let _ = self.purge_due(uptime).await;
            }
        }
    }

    async fn note_uptime(self: &Rc<Self>, seconds: u64) -> Result<(), Errno> {
        self.commit(|t| {
            t.put(keys::uptime(), encoded(&seconds));
            Ok(())
        })
        .await
    }

    /// The end of a round.
    fn end_round(&self, walk: &mut Walk) {
        self.count_quarantine(|c| {
            c.rounds += 1;
            c.younger_now = walk.younger;
        });
        let is_frozen = self.manager.borrow().is_frozen();
        walk.clean = walk.younger == 0 && !walk.missed && !is_frozen;
        (walk.server, walk.after, walk.younger, walk.missed) = (0, None, 0, false);
    }

    async fn walk_step(self: &Rc<Self>, walk: &mut Walk) -> Result<(), Errno> {
        let server = self.manager.borrow().servers().get(walk.server).map(|server| server.id);
        let Some(server) = server else {
            self.end_round(walk);
            return Ok(());
        };
        let listed = self.objects.list(server, walk.after, WALK_COUNT).await;
        let Ok(objects) = listed else {
            walk.missed = true;
            walk.next();
            return Ok(());
        };
        match objects.last() {
            Some(last) if objects.len() == WALK_COUNT => walk.after = Some(last.object),
            _ => walk.next(),
        }
        self.count_quarantine(|c| c.seen += objects.len() as u64);
        let mut unclaimed = Vec::new();
        for object in objects {
            match self.manager.borrow().read(0, |t| t.standing(server, object))? {
                Standing::Claimed | Standing::Elsewhere => {}
                Standing::Younger => {
                    self.count_quarantine(|c| c.younger += 1);
                    if object.object.volume == self.volume {
                        (walk.younger, walk.clean) = (walk.younger + 1, false);
                    }
                }
                // Of a restored volume the decision is still open.
                Standing::Unclaimed(_) if self.manager.borrow().is_frozen() => {}
                Standing::Unclaimed(why) => unclaimed.push((object, why)),
            }
        }
        self.set_aside(server, unclaimed, walk.uptime(self.cx.now())).await
    }

    async fn set_aside(
        self: &Rc<Self>,
        server: NodeId,
        all: Vec<(Kept, Unclaimed)>,
        uptime: u64,
    ) -> Result<(), Errno> {
        if all.is_empty() {
            return Ok(());
        }
        // That the files are gone must outlive a power cut before their objects go.
        self.sync().await?;
        let mut result = Ok(());
        for (object, why) in all {
            // A column may be on its way to where this lies: by now it is the file's, or soon.
            let Some(_held) = self.hold_layout(object.object.file) else { continue };
            // The next owner of the site gets what is noted of it now.
            if self.manager.borrow().sites.is_leaving(object.object.file.site()) {
                continue;
            }
            let standing = self.manager.borrow().read(0, |t| t.standing(server, object))?;
            if !matches!(standing, Standing::Unclaimed(_)) {
                continue;
            }
            let before = self.manager.borrow().read(0, |t| t.noted(server, object))?;
            // First the note: what is set aside without one would stay for ever.
            let aside =
                self.commit(|t| Ok(t.note_quarantined(server, object, why, uptime))).await?;
            match self.objects.quarantine(server, object).await {
                Ok(bytes) => {
                    self.count_quarantine(|c| c.quarantined += 1);
                    // Without its length it is listed as empty; a failure is in the store's state.
                    let _ = self.change_aside(Aside { bytes, ..aside }).await;
                }
                // Gone meanwhile, or in use: the next round will see.
                Err(Errno::ENOENT | Errno::ESTALE | Errno::EAGAIN) => {}
                // An object that cannot be read is no reason to leave the others.
                Err(Errno::EIO) => {
                    result = Err(Errno::EIO);
                    if self.is_there(server, object).await {
                        self.take_back(&aside, before).await?;
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        result
    }

    /// Whether the server says that it has the object. It has not when it set it aside and could not make that stable.
    async fn is_there(&self, server: NodeId, kept: Kept) -> bool {
        let id = kept.object;
        let after = match id.column.checked_sub(1) {
            Some(column) => ObjectId { column, ..id },
            None => {
                let file = FileId(id.file.0.saturating_sub(1));
                ObjectId { file, column: u16::MAX, ..id }
            }
        };
        let listed = self.objects.list(server, Some(after), WALK_COUNT).await;
        listed.is_ok_and(|objects| objects.contains(&kept))
    }

    /// It was not set aside: what was noted of it before is so again.
    async fn take_back(self: &Rc<Self>, aside: &Aside, before: Option<Aside>) -> Result<(), Errno> {
        match before {
            Some(before) => self.change_aside(before).await,
            None => self.forget_aside(aside).await,
        }
    }

    async fn forget_aside(self: &Rc<Self>, aside: &Aside) -> Result<(), Errno> {
        self.commit(|t| {
            t.note_purged(aside);
            Ok(())
        })
        .await
    }

    async fn purge_due(self: &Rc<Self>, uptime: u64) -> Result<(), Errno> {
        let due = self.manager.borrow().read(0, |t| t.quarantine_due(uptime))?;
        for aside in due {
            // A failure is retried in the next step.
            if self.drop_aside(&aside).await.is_ok() {
                self.count_quarantine(|c| c.purged += 1);
            }
        }
        Ok(())
    }

    async fn change_aside(self: &Rc<Self>, aside: Aside) -> Result<(), Errno> {
        self.commit(|t| {
            t.note_aside(&aside);
            Ok(())
        })
        .await
    }

    /// The object goes for good; one that was put back is set aside first, which makes it an object no more.
    async fn drop_aside(self: &Rc<Self>, aside: &Aside) -> Result<(), Errno> {
        let (server, kept) = (aside.home.server, aside.kept(self.volume));
        if aside.restored {
            match self.objects.quarantine(server, kept).await {
                Ok(_) | Err(Errno::ENOENT | Errno::ESTALE) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.objects.purge(server, kept).await?;
        self.forget_aside(aside).await
    }

    /// By hand: removes for good what is in quarantine. Removing it twice is no error.
    pub(super) async fn purge_now(self: &Rc<Self>, wanted: Wanted<'_>) -> Encoded {
        let found = self.manager.borrow().read(0, |t| t.aside(&wanted));
        match found {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            found => self.drop_aside(&found?).await.map(|()| Vec::new()),
        }
    }

    /// By hand: makes a quarantined object an object again, which is not set aside any more.
    pub(super) async fn restore_now(self: &Rc<Self>, wanted: Wanted<'_>) -> Encoded {
        let aside = self.manager.borrow().read(0, |t| t.aside(&wanted))?;
        if aside.restored {
            return Ok(Vec::new());
        }
        // First the note: else the walk would set it aside again, or its day end.
        self.change_aside(Aside { restored: true, ..aside }).await?;
        let restored = self.objects.restore(wanted.home.server, aside.kept(self.volume)).await;
        if let Err(errno) = restored {
            self.change_aside(aside).await?;
            return Err(errno);
        }
        Ok(Vec::new())
    }

    fn count_quarantine(&self, change: impl FnOnce(&mut QuarantineCounters)) {
        let mut counters = self.quarantine.get();
        change(&mut counters);
        self.quarantine.set(counters);
    }
}
