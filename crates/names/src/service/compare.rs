//! Files of a restored volume are compared with their objects, before they are opened and in the background.
//!
//! Where a column is not where the name space has it, it moved since the backup: then the disks are surveyed, which
//! have the object under the file's number, with a later layout epoch than what it left behind.

use super::Service;
use super::dispatch::Encoded;
use crate::limits::{BACKGROUND_BATCH, CHANGES_MAX, DEADLINE, RETRY_INTERVAL, SURVEY_COUNT};
use crate::objects::{Objects, ObjectsOf};
use crate::permissions::Who;
use crate::restored::{Compared, Restored};
use node::{Either, race};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stripe::protocol::ObjectReply;
use wire::{BlockMap, Errno, FileId, Home, NodeId, ObjectId, Placement};

/// Columns that lie elsewhere than the name space has them.
pub(super) type Strays = BTreeMap<(FileId, u16), Vec<Home>>;

/// What a column's object says, on a disk; `None`: there is none.
type Column = Option<(Home, ObjectReply)>;

impl<O: Objects> Service<O> {
    /// Makes sure that the file, of a restored volume, is as its objects say. EIO: it had some that are nowhere.
    pub(super) async fn compare(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        match self.restored_row(file)? {
            None => Ok(()),
            Some(Restored::Lost) => Err(Errno::EIO),
            Some(Restored::Due) => {
                match race(self.alone(file, self.compare_alone(file)), self.cx.sleep(DEADLINE))
                    .await
                {
                    Either::Left(result) => result,
                    Either::Right(()) => Err(Errno::ETIMEDOUT),
                }
            }
        }
    }

    /// Whether the file is still to be compared, or has lost objects.
    pub(super) fn is_restored(&self, file: FileId) -> bool {
        self.restored_row(file).is_ok_and(|row| row.is_some())
    }

    fn restored_row(&self, file: FileId) -> Result<Option<Restored>, Errno> {
        match self.restored_left.get() {
            0 => Ok(None),
            _ => self.manager.borrow().read(0, |t| t.restored(file)),
        }
    }

    async fn compare_alone(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        if self.restored_row(file)? != Some(Restored::Due) {
            return Ok(());
        }
        let Some(before) = self.objects_of(file)? else {
            return self.end_compare(file, None).await;
        };
        let columns = self.columns_of(&before).await?;
        let is_later =
            |column: &Column| column.is_some_and(|(_, told)| told.epoch > before.layout.epoch);
        let moved = columns.iter().any(is_later) || columns.iter().all(Option::is_none);
        let columns = if moved { self.look_elsewhere(&before, columns).await? } else { columns };
        let Some(columns) = self.complete(&before, columns)? else {
            self.commit(|t| {
                t.note_lost(file);
                Ok(())
            })
            .await?;
            return Err(Errno::EIO);
        };
        let found = self.bring_together(&before, &columns).await?;
        self.end_compare(file, Some(found)).await
    }

    async fn end_compare(
        self: &Rc<Self>,
        file: FileId,
        found: Option<Compared>,
    ) -> Result<(), Errno> {
        self.commit(|t| match &found {
            Some(found) => t.compared(file, found),
            None => {
                t.forget_restored(file);
                Ok(())
            }
        })
        .await?;
        self.restored_left.set(self.restored_left.get().saturating_sub(1).max(1));
        Ok(())
    }

    /// What the objects say where the name space has them.
    async fn columns_of(&self, objects: &ObjectsOf) -> Result<Vec<Column>, Errno> {
        let told = self.objects.columns(objects).await;
        let column = |(home, told)| match told {
            Ok(told) => Ok(Some((home, told))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        };
        objects.layout.homes().zip(told).map(column).collect()
    }

    /// The same, with what lies elsewhere.
    async fn look_elsewhere(
        self: &Rc<Self>,
        objects: &ObjectsOf,
        mut columns: Vec<Column>,
    ) -> Result<Vec<Column>, Errno> {
        self.surveyed().await;
        let file = objects.file;
        let strays: Vec<(u16, Vec<Home>)> = {
            let strays = self.strays.borrow();
            let strays = strays.as_ref().expect("surveyed");
            let of_it = strays.range((file, 0)..=(file, u16::MAX));
            of_it.map(|((_, column), homes)| (*column, homes.clone())).collect()
        };
        for (column, homes) in strays {
            let Some(known) = columns.get_mut(usize::from(column)) else {
                // Columns that were added since: which bytes are in them stood in the store that is lost.
                return Ok(Vec::new());
            };
            for home in homes {
                let layout = objects.layout.with_home(objects.layout.epoch, column, home);
                let there = ObjectsOf { layout: layout.ok_or(Errno::EIO)?, ..*objects };
                let told = self.columns_of(&there).await?.swap_remove(usize::from(column));
                if rank(&told) > rank(known) {
                    *known = told;
                }
            }
        }
        Ok(columns)
    }

    /// The columns, if no object is missing that the file had; `None` if one is.
    fn complete(
        &self,
        objects: &ObjectsOf,
        columns: Vec<Column>,
    ) -> Result<Option<Vec<Column>>, Errno> {
        let entry = self.manager.borrow().read(0, |t| t.get_attr(objects.file))?;
        let attr = entry.attr;
        if columns.iter().all(Option::is_none) {
            return Ok((attr.size == 0 && !columns.is_empty()).then_some(columns));
        }
        let told = || columns.iter().flatten().map(|(_, told)| told);
        let used: u64 = told().map(|told| told.used).sum();
        let cut = told().any(|told| told.truncations != objects.truncations);
        let map = BlockMap::new(&objects.layout, &[]);
        let formula = objects.layout.placement == Placement::Formula;
        let had = |column: u16| formula && map.object_bytes(column, attr.size) > 0;
        let mut absent = (0..).zip(&columns).filter(|(_, column)| column.is_none());
        // A hole's column has no object. One that is gone had storage, which is missing now.
        let lost = !cut && used < attr.used && absent.any(|(column, _)| had(column));
        Ok((!lost).then_some(columns))
    }

    /// Gives all objects one layout epoch, where they have several, and asks them for the file's length.
    async fn bring_together(
        self: &Rc<Self>,
        before: &ObjectsOf,
        columns: &[Column],
    ) -> Result<Compared, Errno> {
        let told = || columns.iter().flatten().map(|(_, told)| told);
        let truncations = told().map(|told| told.truncations).fold(before.truncations, u32::max);
        let latest = told().map(|told| told.epoch).max().unwrap_or(0);
        let mut layout = before.layout;
        for (number, column) in (0..).zip(columns) {
            if let Some((home, _)) = column {
                layout = layout.with_home(layout.epoch, number, *home).ok_or(Errno::EIO)?;
            }
        }
        if latest > before.layout.epoch {
            let epoch = latest.checked_add(1).ok_or(Errno::EOVERFLOW)?;
            self.commit(|t| t.fence_restored(before.file, epoch, truncations)).await?;
            self.sync().await?;
            layout = layout.with_epoch(epoch);
            self.objects.set_layout(&ObjectsOf { layout, truncations, ..*before }).await?;
        }
        let now = ObjectsOf { layout, truncations, ..*before };
        self.teach_map(before.file, &layout)?;
        let totals = match told().next() {
            Some(_) => Some(self.objects.totals(&ObjectsOf { truncations: 0, ..now }).await?),
            None => None,
        };
        // What was being cut when the store was lost is cut to whole rows: everything that was to stay is in them.
        let is_cut = |told: &ObjectReply| told.truncations == truncations;
        let row = u64::from(layout.unit_bytes) * u64::from(layout.width());
        let map = BlockMap::new(&layout, &[]);
        let cut = (0..).zip(columns).filter_map(|(number, column)| {
            let (_, told) = (*column)?;
            is_cut(&told).then(|| map.file_bytes(number, told.length))
        });
        let unfinished = match told().all(is_cut) {
            true => None,
            false => cut.max().map(|size| size.next_multiple_of(row)),
        };
        Ok(Compared { layout, truncations, totals, unfinished })
    }

    /// Waits until every server has told what it has.
    async fn surveyed(&self) {
        loop {
            let surveyed = self.surveyed.wait();
            if self.strays.borrow().is_some() {
                return;
            }
            surveyed.await;
        }
    }

    /// Compares all files of a restored volume, those first that are asked for.
    pub(super) async fn compare_for_ever(self: Rc<Self>, servers: BTreeSet<NodeId>) {
        let survey = self.clone();
        self.cx.spawn("names survey", async move { survey.survey(servers).await });
        while self.compare_all().await.is_err() && !self.is_refused() {
            self.cx.sleep(RETRY_INTERVAL).await;
        }
    }

    /// Compares what is left; an error when that could not be done for some.
    async fn compare_all(self: &Rc<Self>) -> Result<(), Errno> {
        let mut result = Ok(());
        for site in 0..=u8::MAX {
            let mut after = None;
            loop {
                let rows =
                    self.manager.borrow().read(0, |t| t.restored_at(site, after, CHANGES_MAX))?;
                let Some((last, _)) = rows.last() else { break };
                after = Some(*last);
                let due = rows.iter().filter(|(_, row)| *row == Restored::Due);
                let due: Vec<FileId> = due.map(|(file, _)| *file).collect();
                for some in due.chunks(BACKGROUND_BATCH) {
                    let each = some.iter().map(|file| self.compare(*file));
                    let results = node::all(each).await;
                    result = results.into_iter().fold(result, |result, one| match one {
                        Err(Errno::EIO) | Ok(()) => result,
                        Err(errno) => Err(errno),
                    });
                }
            }
        }
        result
    }

    /// Lists what every server has: what lies where no file has it is found by its number.
    async fn survey(self: Rc<Self>, servers: BTreeSet<NodeId>) {
        let mut strays = Strays::new();
        for server in servers {
            let mut after = None;
            loop {
                let listed = self.objects.list(server, after, SURVEY_COUNT).await;
                let Ok(objects) = listed else {
                    // A server that is away may have what another one seems to lack.
                    self.cx.sleep(RETRY_INTERVAL).await;
                    continue;
                };
                for kept in &objects {
                    let home = Home { server, disk: kept.disk };
                    if self.is_stray(kept.object, home) {
                        let key = (kept.object.file, kept.object.column);
                        strays.entry(key).or_default().push(home);
                    }
                }
                match objects.last() {
                    Some(last) if objects.len() == SURVEY_COUNT => after = Some(last.object),
                    _ => break,
                }
            }
        }
        self.strays.replace(Some(strays));
        self.surveyed.notify_all();
    }

    fn is_stray(&self, object: ObjectId, home: Home) -> bool {
        let entry = self.manager.borrow().read(0, |t| t.get_attr(object.file));
        let layout = entry.ok().and_then(|entry| entry.layout);
        let own = object.volume == self.volume;
        own && layout
            .is_some_and(|layout| layout.homes().nth(usize::from(object.column)) != Some(home))
    }

    /// By hand: a restored volume is as any other from now on. EBUSY while files are left to be compared.
    pub(super) async fn own_now(self: &Rc<Self>, who: &Who<'_>) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        if self.restored_left.get() > 0 && self.manager.borrow().is_frozen() {
            self.compare_all().await.map_err(|_| Errno::EBUSY)?;
        }
        while !self.commit(|t| t.own_all(who)).await? {}
        Ok(Vec::new())
    }
}

/// Which of two objects of one column is the file's: the later layout, the later cut, the longer one.
fn rank(column: &Column) -> Option<(u32, u32, u64)> {
    column.map(|(_, told)| (told.epoch, told.truncations, told.length))
}
