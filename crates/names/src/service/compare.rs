//! Files of a restored volume are compared with their objects, before they are opened and in the background.
//!
//! Where a column is not where the name space has it, it moved since the backup: then the disks are surveyed, which
//! have the object under the file's number, with a later layout epoch than what it left behind.

use super::Service;
use super::dispatch::Encoded;
use crate::limits::{
    BACKGROUND_BATCH, CHANGES_MAX, DEADLINE, FRAGMENTS_MAX, RETRY_INTERVAL, SURVEY_COUNT,
};
use crate::objects::{Objects, ObjectsOf};
use crate::permissions::Who;
use crate::restored::{Compared, Restored};
use crate::sessions::Final;
use crate::transaction::Transaction;
use node::{Either, race};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stripe::Description;
use stripe::protocol::ObjectReply;
use wire::{BlockMap, Errno, FileId, Fragment, Home, NodeId, ObjectId, Placement};

/// Columns that lie elsewhere than the name space has them.
pub(super) type Strays = BTreeMap<(FileId, u16), Vec<Home>>;

/// What a column's object says, on a disk; `None`: there is none.
type Column = Option<(Home, ObjectReply)>;

/// The columns of a file, wherever they are.
struct Found {
    columns: Vec<Column>,
    /// There are objects of columns that the file does not have: it got them since, and which bytes are in them stood
    /// in the store that is lost.
    grown: bool,
}

impl Found {
    fn told(&self) -> impl Iterator<Item = &ObjectReply> {
        self.columns.iter().flatten().map(|(_, told)| told)
    }

    /// Whether it was truncated since.
    fn is_cut(&self, known: &ObjectsOf) -> bool {
        self.told().any(|told| told.truncations != known.truncations)
    }
}

impl<O: Objects> Service<O> {
    /// Makes sure that the file, of a restored volume, is as its objects say. EIO: it had some that are nowhere.
    pub(super) async fn compare(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        match self.restored_row(file)? {
            None => Ok(()),
            // Lost objects are looked for once more: a client may have written since, or a disk come back.
            Some(_) => {
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
        self.manager.borrow().read(0, |t| t.restored(file))
    }

    async fn compare_alone(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        if self.restored_row(file)?.is_none() {
            return Ok(());
        }
        let Some(before) = self.objects_of(file)? else {
            return self.commit(|t| t.forget_restored(file)).await;
        };
        let found = self.found(&before).await?;
        if self.lacks(&before, &found).await? {
            self.commit(|t| t.note_lost(file)).await?;
            return Err(Errno::EIO);
        }
        let compared = self.bring_together(&before, &found.columns).await?;
        self.commit(|t| t.compared(file, &compared)).await
    }

    /// By hand: what is left of a file that lost objects is all of it, and the rest zeros. The loss of one that
    /// got columns since is what was appended then: it ends where the columns end that it had.
    pub(super) async fn accept_lost(self: &Rc<Self>, who: &Who<'_>, file: FileId) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        match self.compare(file).await {
            Err(Errno::EIO) => self.soon_alone(file, self.accept_alone(file)).await?,
            compared => compared?,
        }
        Ok(Vec::new())
    }

    async fn accept_alone(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        match self.restored_row(file)? {
            None => return Ok(()),
            // An object cannot be read: that loss is to be accepted first.
            Some(Restored::Due | Restored::Open) => return Err(Errno::EIO),
            Some(Restored::Lost | Restored::OpenLost) => {}
        }
        let before = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        let found = self.found(&before).await?;
        let compared = self.bring_together(&before, &found.columns).await?;
        let known = self.manager.borrow().read(0, |t| t.get_attr(file))?.attr.size;
        let told = compared.totals.map_or(0, |totals| totals.size);
        let size = if found.is_cut(&before) { told } else { known.max(told) };
        // The objects that are missing come with the truncation.
        let truncations = compared.truncations.checked_add(1).ok_or(Errno::EOVERFLOW)?;
        let totals = compared.totals.map(|totals| Final { size, ..totals });
        let compared = Compared { truncations, totals, unfinished: Some(size), ..compared };
        self.commit(|t| t.compared(file, &compared)).await?;
        self.finish_truncation(file).await
    }

    /// The columns of a file, wherever they are.
    async fn found(self: &Rc<Self>, objects: &ObjectsOf) -> Result<Found, Errno> {
        let columns = self.columns_of(objects).await?;
        let is_later =
            |column: &Column| column.is_some_and(|(_, told)| told.epoch > objects.layout.epoch);
        let is_gone = objects.layout.homes().any(|home| self.gone.has(home));
        let moved = columns.iter().any(is_later) || columns.iter().all(Option::is_none) || is_gone;
        if moved {
            return self.look_elsewhere(objects, columns).await;
        }
        Ok(Found { columns, grown: false })
    }

    /// What the objects say where the name space has them.
    async fn columns_of(&self, objects: &ObjectsOf) -> Result<Vec<Column>, Errno> {
        let told = self.objects.columns(objects).await;
        let column = |(home, told)| match told {
            Ok(told) => Ok(Some((home, told))),
            Err(Errno::ENOENT) => Ok(None),
            Err(_) if self.gone.has(home) => Ok(None),
            Err(errno) => Err(errno),
        };
        objects.layout.homes().zip(told).map(column).collect()
    }

    /// The same, with what lies elsewhere.
    async fn look_elsewhere(
        self: &Rc<Self>,
        objects: &ObjectsOf,
        mut columns: Vec<Column>,
    ) -> Result<Found, Errno> {
        self.surveyed().await;
        let file = objects.file;
        let strays: Vec<(u16, Vec<Home>)> = {
            let strays = self.strays.borrow();
            let strays = strays.as_ref().expect("surveyed");
            let of_it = strays.range((file, 0)..=(file, u16::MAX));
            of_it.map(|((_, column), homes)| (*column, homes.clone())).collect()
        };
        let mut grown = false;
        for (column, homes) in strays {
            let Some(known) = columns.get_mut(usize::from(column)) else {
                grown = true;
                continue;
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
        Ok(Found { columns, grown })
    }

    /// Whether objects are missing that the file had. A column without one is a hole, unless the store, or what the
    /// objects were told since, says that it had one.
    async fn lacks(&self, objects: &ObjectsOf, found: &Found) -> Result<bool, Errno> {
        let inode = self.manager.borrow().read(0, |t| t.inode(objects.file))?;
        let was_open = self.restored_row(objects.file)?.is_some_and(Restored::was_open);
        let gone = |column: u16| self.gone.has(objects.layout.home(column));
        let absent = (0..).zip(&found.columns).filter(|(_, told)| told.is_none());
        let absent = absent.map(|(column, _)| column).filter(|column| !gone(*column));
        let absent: Vec<u16> = absent.collect();
        if found.grown || absent.is_empty() {
            return Ok(found.grown);
        }
        if found.columns.iter().all(Option::is_none) {
            // A size of 0 of a file that was open tells nothing.
            return Ok(inode.attr.size > 0 || was_open);
        }
        let told = self.descriptions(objects.file, found).await?;
        let known = inode.regular().map_or(0, |regular| regular.present);
        let had = told.iter().fold(known, |had, told| had | told.present);
        let fragments = self.fragments_of(objects)?;
        let map = BlockMap::new(&objects.layout, &fragments);
        let columns = (0..).zip(&found.columns);
        let lengths = columns.filter_map(|(column, told)| Some((column, (*told)?.1.length)));
        let ends = lengths.map(|(column, length)| map.file_bytes(column, length));
        let size = ends.chain(told.iter().map(|told| told.size)).fold(inode.attr.size, u64::max);
        // Of a file that was open for writing objects came that neither knows of.
        let any = was_open && !found.is_cut(objects);
        let is_lost =
            |column: &u16| (any || had >> column & 1 != 0) && map.object_bytes(*column, size) > 0;
        Ok(absent.iter().any(is_lost))
    }

    /// What the objects that are there were told of the file, which may be later than a backup.
    async fn descriptions(&self, file: FileId, found: &Found) -> Result<Vec<Description>, Errno> {
        let there = (0..).zip(&found.columns).filter_map(|(column, told)| {
            let object = ObjectId { volume: self.volume, file, column };
            told.map(|(home, _)| self.objects.description(home, object))
        });
        node::all(there).await.into_iter().filter_map(Result::transpose).collect()
    }

    fn fragments_of(&self, objects: &ObjectsOf) -> Result<Vec<Fragment>, Errno> {
        match objects.layout.placement {
            Placement::Formula => Ok(Vec::new()),
            _ => {
                let all = |t: &Transaction<'_>| t.fragments(objects.file, 0, FRAGMENTS_MAX);
                Ok(self.manager.borrow().read(0, all)?.1)
            }
        }
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
        let fragments = self.fragments_of(&now)?;
        let map = BlockMap::new(&layout, &fragments);
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
                let due = rows.iter().filter(|(_, row)| row.is_due());
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

    /// By hand: what was salvaged is compared with its objects from now on. All servers are listed anew for that.
    pub(super) fn compare_now(self: &Rc<Self>, who: &Who<'_>) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        self.strays.replace(None);
        let servers = self.manager.borrow().servers().iter().map(|server| server.id).collect();
        self.cx.spawn("names compare", self.clone().compare_for_ever(servers));
        Ok(Vec::new())
    }

    /// By hand: a restored volume is as any other from now on. EBUSY while files are left to be compared.
    pub(super) async fn own_now(self: &Rc<Self>, who: &Who<'_>) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        if self.manager.borrow().is_frozen() && self.manager.borrow().restoration().due > 0 {
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
