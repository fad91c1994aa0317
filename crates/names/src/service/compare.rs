//! Files of a restored volume are compared with their objects, before they are opened and in the background.
//!
//! Where a column is not where the name space has it, it moved since the backup, or the file got columns: then the
//! disks are surveyed, which have the objects under the file's number, and these were told the layout
//! ([`crate::columns`]).

use super::Service;
use super::dispatch::{Encoded, of_object};
use crate::columns::{Column, Missing, Object, columns_of, is_undecided, latest_of, unfinished_at};
use crate::limits::{BACKGROUND_BATCH, CHANGES_MAX, DEADLINE, RETRY_INTERVAL, SURVEY_COUNT};
use crate::objects::{Objects, ObjectsOf};
use crate::permissions::Who;
use crate::restoration::Restored;
use crate::restored::Compared;
use crate::sessions::Final;
use node::{Bug, Either, race};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stripe::protocol::ObjectReply;
use stripe::{Description, Kept};
use wire::{BlockMap, Errno, FileId, Fragment, Home, Layout, NodeId, ObjectId, Placement};

/// Columns that lie elsewhere than the name space has them.
pub(super) type Strays = BTreeMap<(FileId, u16), Vec<Home>>;

/// The columns of a file, wherever they are.
struct FileColumns {
    /// Their layout, as the objects were told last or the name space has it, with the epoch of that.
    layout: Layout,
    fragments: Vec<Fragment>,
    columns: Vec<Column>,
    /// The latest epoch that any object of the file has.
    latest: u32,
    /// There are objects of columns that the layout does not have.
    has_more: bool,
    /// There are bytes in such, of which no layout that is known says where in the file they are.
    undecided: bool,
    /// Columns whose object is lost, and what is there of them instead.
    missing: Vec<Missing>,
}

impl FileColumns {
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
        let compared = self.bring_together(&before, &found).await?;
        self.commit(|t| t.compared(file, &compared)).await
    }

    /// By hand: what is left of a file that lost objects is all of it, and the rest zeros. Bytes in columns that no
    /// layout is known of are given up: it ends where the columns end that it had before.
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
        self.empty_stale(&before, &found).await?;
        let compared = self.bring_together(&before, &found).await?;
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

    /// An object in the place of a lost column that is not the column is emptied: it is going to be the column.
    async fn empty_stale(&self, before: &ObjectsOf, found: &FileColumns) -> Result<(), Errno> {
        for Missing { column, stale } in &found.missing {
            let at_home = |(home, _): &&(Home, _)| found.layout.home(*column) == *home;
            for (_, told) in stale.iter().filter(at_home) {
                let layout = found.layout.with_epoch(told.epoch);
                let there = ObjectsOf { layout, truncations: told.truncations, ..*before };
                self.objects.vacate_column(&there, *column).await.map_err(of_object)?;
            }
        }
        Ok(())
    }

    /// The columns of a file, wherever they are.
    async fn found(self: &Rc<Self>, objects: &ObjectsOf) -> Result<FileColumns, Errno> {
        let columns = self.columns_of(objects).await?;
        let is_later =
            |column: &Column| column.is_some_and(|(_, told)| told.epoch > objects.layout.epoch);
        let is_gone = objects.layout.homes().any(|home| self.gone.has(home));
        let moved = columns.iter().any(is_later) || columns.iter().all(Option::is_none) || is_gone;
        if moved {
            return self.look_elsewhere(objects).await;
        }
        let (layout, fragments) = (objects.layout, self.fragments_of(objects)?);
        let (latest, has_more, undecided, missing) = (layout.epoch, false, false, Vec::new());
        Ok(FileColumns { layout, fragments, columns, latest, has_more, undecided, missing })
    }

    /// The objects' replies where the name space has them.
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

    /// The columns by all objects of the file that there are.
    async fn look_elsewhere(self: &Rc<Self>, known: &ObjectsOf) -> Result<FileColumns, Errno> {
        self.surveyed().await;
        let mut places: Vec<(u16, Home)> = (0..).zip(known.layout.homes()).collect();
        {
            let strays = self.strays.borrow();
            let strays = strays.as_ref().expect("surveyed");
            let of_it = strays.range((known.file, 0)..=(known.file, u16::MAX));
            places.extend(
                of_it.flat_map(|((_, column), homes)| homes.iter().map(|at| (*column, *at))),
            );
        }
        let mut asked = self.ask_objects(known.file, &places).await;
        let mut objects: Vec<Object> = asked.iter().filter_map(readable).collect();
        let before = (known.layout, self.fragments_of(known)?);
        let (layout, fragments) = latest_of(before, &objects);
        // They were not there yet when the server was surveyed.
        let new = (0..).zip(layout.homes()).filter(|place| !places.contains(place));
        let new = self.ask_objects(known.file, &new.collect::<Vec<_>>()).await;
        objects.extend(new.iter().filter_map(readable));
        asked.extend(new);
        for (column, told) in asked {
            match told {
                // An object that cannot be read and is no column was left behind.
                Err(Errno::EIO) if column >= layout.width() => {}
                told => drop(told?),
            }
        }
        let (columns, missing) = columns_of(&layout, &objects);
        let latest = objects.iter().map(|object| object.reply.epoch).fold(layout.epoch, u32::max);
        let has_more = objects.iter().any(|object| object.column >= layout.width());
        let undecided = is_undecided(&layout, &objects);
        Ok(FileColumns { layout, fragments, columns, latest, has_more, undecided, missing })
    }

    /// The statements of the objects of these columns at these places, with the columns.
    async fn ask_objects(
        &self,
        file: FileId,
        places: &[(u16, Home)],
    ) -> Vec<(u16, Result<Option<Object>, Errno>)> {
        let calls = places.iter().map(async |(column, home)| {
            let object = ObjectId { volume: self.volume, file, column: *column };
            let kept = Kept { object, disk: home.disk };
            let told = match self.objects.description(home.server, kept).await {
                Ok((reply, told)) => Ok(Some(Object { home: *home, column: *column, reply, told })),
                Err(Errno::ENOENT) => Ok(None),
                Err(_) if self.gone.has(*home) => Ok(None),
                Err(errno) => Err(errno),
            };
            (*column, told)
        });
        node::all(calls).await
    }

    /// Whether objects are missing that the file had. A column without one is a hole, unless the store, or what the
    /// objects were told since, says that it had one.
    async fn lacks(&self, objects: &ObjectsOf, found: &FileColumns) -> Result<bool, Errno> {
        let inode = self.manager.borrow().read(0, |t| t.inode(objects.file))?;
        let was_open = self.restored_row(objects.file)?.is_some_and(Restored::was_open);
        let gone = |column: u16| self.gone.has(found.layout.home(column));
        let absent = (0..).zip(&found.columns).filter(|(_, told)| told.is_none());
        let absent = absent.map(|(column, _)| column).filter(|column| !gone(*column));
        let absent: Vec<u16> = absent.collect();
        let missing = || found.missing.iter().filter(|lost| !gone(lost.column));
        // Objects that are there of a lost column have bytes that it had once, or a part of them.
        if found.undecided || missing().any(|lost| !lost.stale.is_empty()) {
            return Ok(true);
        }
        if absent.is_empty() {
            return Ok(false);
        }
        if found.layout.placement == Placement::Map {
            // All of them were made when it got columns, those of holes too.
            return Ok(true);
        }
        let known = inode.regular().map_or(0, |regular| regular.present);
        if found.columns.iter().all(Option::is_none) {
            // A size of 0 of a file that was open tells nothing, nor does one of a file that had objects.
            let had = known != 0 || missing().next().is_some();
            return Ok(inode.attr.size > 0 || was_open || had);
        }
        let told = self.descriptions(objects.file, found).await?;
        // An object stays for as long as its file, however short that was when it was noted: it may have been opened
        // and written since.
        let had = missing().fold(known, |had, lost| had | 1 << lost.column);
        let had = told.iter().fold(had, |had, told| had | told.present);
        let had = if self.cx.has_bug(Bug::PresentForgotten) { 0 } else { had };
        let map = BlockMap::new(&found.layout, &found.fragments);
        let columns = (0..).zip(&found.columns);
        let lengths = columns.filter_map(|(column, told)| Some((column, (*told)?.1.length)));
        let ends = lengths.map(|(column, length)| map.file_bytes(column, length));
        let size = ends.chain(told.iter().map(|told| told.size)).fold(inode.attr.size, u64::max);
        // Of a file that was open for writing objects came that neither knows of.
        let any = was_open && !found.is_cut(objects);
        let is_lost =
            |column: &u16| had >> column & 1 != 0 || any && map.object_bytes(*column, size) > 0;
        Ok(absent.iter().any(is_lost))
    }

    /// The descriptions that existing objects have of the file, which may be later than a backup.
    async fn descriptions(
        &self,
        file: FileId,
        found: &FileColumns,
    ) -> Result<Vec<Description>, Errno> {
        let there = (0..).zip(&found.columns);
        let there =
            there.filter_map(|(column, told)| Some((column, (*told)?.0))).collect::<Vec<_>>();
        let asked = self.ask_objects(file, &there).await.into_iter();
        let told = asked.map(|(_, told)| Ok(told?.and_then(|object| object.told.description)));
        told.filter_map(Result::transpose).collect()
    }

    /// Gives all objects one layout epoch, where they have several, and asks them for the file's length.
    async fn bring_together(
        self: &Rc<Self>,
        before: &ObjectsOf,
        found: &FileColumns,
    ) -> Result<Compared, Errno> {
        let truncations =
            found.told().map(|told| told.truncations).fold(before.truncations, u32::max);
        let mut layout = found.layout;
        for (number, column) in (0..).zip(&found.columns) {
            if let Some((home, _)) = column {
                layout = layout.with_home(layout.epoch, number, *home).ok_or(Errno::EIO)?;
            }
        }
        if found.latest > before.layout.epoch {
            let epoch = found.latest.checked_add(1).ok_or(Errno::EOVERFLOW)?;
            self.commit(|t| t.fence_restored(before.file, epoch, truncations)).await?;
            self.sync().await?;
            layout = layout.with_epoch(epoch);
            let now = ObjectsOf { layout, truncations, ..*before };
            self.set_layout(&now).await?;
            // A layout that is given up is not to be found once more.
            if found.has_more || layout.placement == Placement::Map {
                self.describe_layout(&now, &found.fragments).await?;
            }
        }
        let now = ObjectsOf { layout, truncations, ..*before };
        if layout.placement == Placement::Map {
            self.objects.learn_map(before.file, layout.epoch, &found.fragments);
        }
        let totals = match found.told().next() {
            Some(_) => Some(self.objects.totals(&ObjectsOf { truncations: 0, ..now }).await?),
            None => None,
        };
        // A truncation that was under way when the store was lost is ended.
        let is_cut = |told: &ObjectReply| told.truncations == truncations;
        let fragments = found.fragments.clone();
        let unfinished = unfinished_at(&layout, &fragments, &found.columns, is_cut);
        Ok(Compared { layout, fragments, truncations, totals, unfinished })
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

/// An object that was asked for, if it is there and can be read.
fn readable((_, told): &(u16, Result<Option<Object>, Errno>)) -> Option<Object> {
    told.as_ref().ok().cloned().flatten()
}
