//! Write sessions and fresh knowledge: what this client tells the manager and asks of it about one file.

use crate::Files;
use crate::inode::{File, Local, State};
use crate::limits::{LEFT_PAUSE, RETRY_PAUSE, RETRY_PAUSE_MAX, USED_SPAN};
use crate::written::Mark;
use names::{Client, Entry, Final, WRITE, Who};
use std::rc::Rc;
use std::time::Duration;
use stripe::{FileRef, ObjectTotals};
use wire::blockmap::MAP_FRAGMENTS_MAX;
use wire::{Errno, FileId, Time};

impl Files {
    /// The file, with what the manager just said of it to a question of time `asked`.
    pub(crate) fn learn(&self, entry: Entry, asked: Time) -> Rc<File> {
        let file = self.file(entry.attr.file);
        self.absorb(&file, entry, asked);
        file
    }

    /// The file, known from now on. Others may be forgotten for it; when too many may not, they are synced.
    pub(crate) fn file(&self, id: FileId) -> Rc<File> {
        let (most, forgotten) = (self.config.files_max, |id| self.naming.forget(id));
        let may_go = |file: &File| !self.is_due(file);
        let file = self.table.borrow_mut().file(&self.cx, id, most, may_go, forgotten);
        if self.has_unsynced_names() && self.table.borrow().len() > most {
            self.sync_names_soon();
        }
        file
    }

    /// Whether an fsync of the file would do or tell something that only this client knows of: changes that no sync has
    /// covered, some that are lost, or a length that the manager lost.
    fn is_due(&self, file: &File) -> bool {
        let state = file.state.borrow();
        let is_old = || state.is_told_before(self.names.incarnation(file.id));
        state.names_mark > self.synced.get()
            || self.is_lost(state.own)
            || state.lost_session
            || self.spans_restart(state.names_mark) && is_old()
    }

    pub(crate) fn absorb(&self, file: &Rc<File>, entry: Entry, asked: Time) {
        self.with_written(file, |state| {
            state.note_incarnation(self.names.incarnation(file.id));
            state.absorb(entry, asked, self.cx.now());
            state.generation = self.generation.get();
        });
    }

    /// Whether what is known of the file is young enough to be told.
    pub(crate) fn is_fresh(&self, file: &File) -> bool {
        self.is_younger(file, self.config.attribute_age_max)
    }

    /// Whether what is known of the file is no older than this.
    pub(crate) fn is_younger(&self, file: &File, age_max: Duration) -> bool {
        let state = file.state.borrow();
        let age = state.fresh.map(|at| self.cx.now().since(at));
        let young = age.is_some_and(|age| age <= age_max);
        young && state.generation == self.generation.get()
    }

    /// Names have changed: link counts and directories' times known so far are old.
    pub(crate) fn names_changed(&self) {
        self.generation.set(self.generation.get() + 1);
    }

    /// This mount changed what the manager knows of `file`: it has to be synced before its fsync ends.
    pub(crate) fn note_change(&self, file: &File) {
        self.changes.set(self.changes.get() + 1);
        file.state.borrow_mut().names_mark = self.changes.get();
    }

    /// As [`note_change`](Files::note_change), of a name or attributes: an fsync also tells when a power cut took it.
    /// None can take what `names` had on stable storage when it answered.
    pub(crate) fn note_own(&self, names: &Client, file: &File) {
        if names.answers_synced() {
            return;
        }
        self.note_change(file);
        let mut state = file.state.borrow_mut();
        // A loss that was not told yet is told first.
        if !self.is_lost(state.own) {
            state.own = state.own.and(self.changes.get(), self.synced.get());
        }
    }

    /// Asks the manager, and the objects when others are writing.
    pub(crate) async fn refresh(&self, file: &Rc<File>) -> Result<(), Errno> {
        self.ask_manager(file).await?;
        self.ask_objects(file).await
    }

    /// Asks the manager for the file: ESTALE when the file is gone.
    async fn ask_manager(&self, file: &Rc<File>) -> Result<(), Errno> {
        let generation = self.generation.get();
        let (entry, asked) = self.ask_checked(file).await?;
        self.absorb(file, entry, asked);
        file.state.borrow_mut().generation = generation;
        Ok(())
    }

    /// While another client writes, only the objects know length and time. That they refuse the layout says that it has
    /// changed since the manager told it: only the manager says that a file is gone.
    pub(crate) async fn ask_objects(&self, file: &Rc<File>) -> Result<(), Errno> {
        let give_up = self.cx.now() + self.patience.get();
        loop {
            let result = self.ask_objects_once(file).await;
            if result != Err(Errno::ESTALE) || self.cx.now() >= give_up {
                return result;
            }
            self.cx.sleep(RETRY_PAUSE).await;
            self.ask_manager(file).await?;
        }
    }

    /// Length, time and storage by the objects, once the block map is known.
    async fn totals_of(&self, reference: &FileRef) -> Result<ObjectTotals, Errno> {
        self.know_map(reference).await?;
        self.stripe.attributes(reference).await
    }

    async fn ask_objects_once(&self, file: &Rc<File>) -> Result<(), Errno> {
        let reference = {
            let state = file.state.borrow();
            if !state.entry.is_hint() {
                return Ok(());
            }
            state.reference()?
        };
        // Applications know no ENXIO of stat(2): a disk that its server lacks is told as a device that is away.
        let away = |errno| if errno == Errno::ENXIO { Errno::ENODEV } else { errno };
        let totals = self.totals_of(&reference).await.map_err(away)?;
        let mut state = file.state.borrow_mut();
        if reference.truncations == state.entry.truncations && !totals.uncut {
            state.measured(totals.size);
            let attr = &mut state.entry.attr;
            attr.mtime = attr.mtime.max(totals.mtime);
            attr.used = totals.used;
            let size = attr.size;
            state.fresh = Some(self.cx.now());
            state.local = state.local.map(|local| Local { size: local.size.max(size), ..local });
        }
        Ok(())
    }

    /// Fetches the file's block map if it has one and it is not known as of this layout.
    async fn know_map(&self, reference: &FileRef) -> Result<(), Errno> {
        if self.stripe.knows_map(reference) {
            return Ok(());
        }
        let count = MAP_FRAGMENTS_MAX as u32;
        let (epoch, fragments) = self.names.fragments(reference.file, 0, count).await?;
        self.stripe.learn_map(reference.file, epoch, &fragments);
        let current = self.stripe.knows_map(reference);
        if current { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Runs `attempt` until it succeeds, fails for good, or the mount's timeout ends. A refusal for an old layout or
    /// truncate generation brings fresh knowledge first. A disk that its server refuses comes back by no waiting: EIO,
    /// unless the file is kept elsewhere by now.
    pub(crate) async fn persist<T>(
        &self,
        file: &Rc<File>,
        attempt: impl AsyncFn(FileRef) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let give_up = self.cx.now() + self.patience.get();
        let mut pause = RETRY_PAUSE;
        loop {
            let reference = file.state.borrow().reference()?;
            let result = match self.know_map(&reference).await {
                Ok(()) => attempt(reference).await,
                Err(errno) => Err(errno),
            };
            let errno = match result {
                Err(errno) if is_passing(errno) || errno == Errno::ENXIO => errno,
                result => return result,
            };
            if self.cx.now() >= give_up {
                return Err(Errno::EIO);
            }
            self.counters.retries.add(1);
            self.cx.sleep(pause).await;
            pause = longer(pause);
            // EAGAIN: an object has not heard of a truncation, and never will where its column has moved away.
            if matches!(errno, Errno::ESTALE | Errno::EAGAIN | Errno::ENXIO) {
                pause = RETRY_PAUSE;
                // The objects are not asked: that they refuse this layout too does not mean that the file is gone.
                match self.ask_manager(file).await {
                    Err(errno) if !is_passing(errno) || errno == Errno::ESTALE => {
                        return Err(told(errno));
                    }
                    Ok(()) if errno == Errno::ENXIO && is_kept_as(file, &reference) => {
                        return Err(Errno::EIO);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Makes sure that there is a write session before bytes are sent: there is none when a closed file is
    /// retransmitted to a server that forgot it, or when a map is written back after its handle is released.
    pub(crate) async fn begin_session(&self, file: &Rc<File>) -> Result<(), Errno> {
        if self.has_session(file) {
            return Ok(());
        }
        self.take_turn(file).await;
        let sessions = file.state.borrow().sessions;
        let result = if sessions == 0 { self.open_session(file).await } else { Ok(()) };
        self.end_turn(file);
        result
    }

    /// Whether there is a write session that no task is about to end.
    fn has_session(&self, file: &File) -> bool {
        let state = file.state.borrow();
        state.sessions > 0 && !state.busy
    }

    async fn open_session(&self, file: &Rc<File>) -> Result<(), Errno> {
        let (asked, incarnation) = (self.cx.now(), self.names.incarnation(file.id));
        let entry =
            self.patiently(async || self.names.open(&Who::ROOT, file.id, WRITE).await).await?;
        self.absorb(file, entry, asked);
        file.state.borrow_mut().sessions += 1;
        file.state.borrow_mut().tell_session(incarnation);
        self.note_change(file);
        self.recover_length(file).await
    }

    /// A power cut may have taken what the manager was told of this mount's write sessions, and with that the length:
    /// one more session tells it that there are some.
    pub(crate) async fn tell_lost_session(&self, file: &Rc<File>) -> Result<(), Errno> {
        self.take_turn(file).await;
        let lost = file.state.borrow().lost_session;
        let result = if lost { self.open_session(file).await } else { Ok(()) };
        self.end_turn(file);
        result
    }

    /// Data that is about to be retransmitted was lost, and the manager may have asked the objects for the length
    /// meanwhile: it is that of the objects now or that of the data held here, whichever is longer.
    async fn recover_length(&self, file: &Rc<File>) -> Result<(), Errno> {
        let needed = |state: &State| state.local.is_none() && !state.written.is_empty();
        if !needed(&file.state.borrow()) {
            return Ok(());
        }
        let totals = self.measure(file).await?;
        let mut state = file.state.borrow_mut();
        if needed(&state) {
            let attr = state.attr();
            let size = attr.size.max(totals.size).max(state.written.end());
            let mtime = attr.mtime.max(totals.mtime);
            let used = attr.used.max(totals.used);
            state.local = Some(Local { size, mtime, used, guessed: false });
        }
        Ok(())
    }

    /// Ends the write sessions of the file with what this client knows, unless a handle is open for writing by now or
    /// something is not sent yet: then they go on.
    pub(crate) async fn end_sessions(&self, file: &Rc<File>) -> Result<(), Errno> {
        self.take_turn(file).await;
        let mut result = self.measure_resent(file).await;
        let ends = |state: &State| {
            let sent = state.is_sent() && !state.resent;
            sent && state.sessions > 0 && state.writers == 0
        };
        if result.is_ok() && ends(&file.state.borrow()) {
            self.measure_used(file).await;
        }
        while result.is_ok() && ends(&file.state.borrow()) {
            result = self.end_session(file).await;
        }
        self.end_turn(file);
        result
    }

    /// How much room a file with holes takes that was written over, only the objects know. When they do not say so
    /// soon, the close does not either: by a guess a manager whose names are restored would take a hole for a loss.
    pub(crate) async fn measure_used(&self, file: &Rc<File>) {
        let (reference, mark) = {
            let state = file.state.borrow();
            if !state.local.is_some_and(|local| local.guessed) {
                return;
            }
            (state.reference(), state.written.mark())
        };
        let ask = async { self.totals_of(&reference?).await };
        let Ok(Ok(totals)) = self.cx.with_deadline(USED_SPAN, ask).await else { return };
        let mut state = file.state.borrow_mut();
        if state.written.mark() == mark
            && let Some(local) = &mut state.local
        {
            (local.used, local.guessed) = (totals.used, false);
        }
    }

    /// Retransmitted writes may have given way to something newer, a truncation by another client for one: the length
    /// is that of the objects, unless more is written or heard meanwhile: then they are to be asked again.
    async fn measure_resent(&self, file: &Rc<File>) -> Result<(), Errno> {
        if !std::mem::take(&mut file.state.borrow_mut().resent) {
            return Ok(());
        }
        let (mark, asked) = (file.state.borrow().written.mark(), self.cx.now());
        let totals = self.measure(file).await;
        let mut state = file.state.borrow_mut();
        // Some objects may have answered long before the last one did: what was heard of the file since is younger.
        let unchanged = state.written.mark() == mark;
        let known = totals.is_ok() && unchanged && state.asked <= asked;
        // The length of a file that is gone is not needed any more.
        let gone = matches!(totals, Err(Errno::ESTALE));
        state.resent |= !known && !gone;
        let size = totals?.size;
        if known && let Some(local) = &mut state.local {
            local.size = size;
        }
        Ok(())
    }

    /// Length and use by the objects, for the layout and the truncate generation that are known when this returns: a
    /// truncation meanwhile, by an application here too, makes it another length.
    async fn measure(&self, file: &Rc<File>) -> Result<ObjectTotals, Errno> {
        let ask = async |reference: FileRef| {
            let totals = self.stripe.attributes(&reference).await?;
            if totals.uncut { Err(Errno::EAGAIN) } else { Ok((totals, reference)) }
        };
        loop {
            let (totals, reference) = self.persist(file, ask).await?;
            let uncut = reference.truncations == file.state.borrow().entry.truncations;
            if uncut && self.is_current(file, &reference).await? {
                return Ok(totals);
            }
        }
    }

    /// Whether the file is where this says: a column that was moved leaves nothing at its old place.
    async fn is_current(&self, file: &Rc<File>, reference: &FileRef) -> Result<bool, Errno> {
        let asked = self.cx.now();
        let entry = match self.patiently(async || self.names.get_attr(file.id).await).await {
            Err(Errno::ESTALE) => return Ok(true), // it is gone: its length is not needed any more
            entry => entry?,
        };
        let truncations = entry.truncations == reference.truncations;
        let current = truncations && entry.layout == Some(reference.layout);
        if !current {
            self.absorb(file, entry, asked);
        }
        Ok(current)
    }

    /// Opens that the manager still counts, since it or a server was away too long at the close, are ended later.
    pub(crate) fn note_left(&self, file: &Rc<File>) {
        if file.state.borrow().is_left() {
            self.left.borrow_mut().insert(file.id, file.clone());
            self.left_some.notify_all();
        }
    }

    /// The loop that ends what closes have left.
    pub(crate) async fn left_loop(self) {
        loop {
            let some = self.left_some.wait();
            if self.left.borrow().is_empty() {
                some.await;
            }
            self.cx.sleep(LEFT_PAUSE).await;
            let left = std::mem::take(&mut *self.left.borrow_mut());
            node::all(left.values().map(|file| self.end_left(file))).await;
        }
    }

    async fn end_left(&self, file: &Rc<File>) {
        self.end_spare_sessions(file).await;
        while file.state.borrow().spare_readers() > 0 {
            if self.release_reader(file).await.is_err() {
                break;
            }
        }
        self.note_left(file);
    }

    async fn end_session(&self, file: &Rc<File>) -> Result<(), Errno> {
        let ((outcome, mark), asked) = (outcome(file), self.cx.now());
        let incarnation = self.names.incarnation(file.id);
        let entry = self.patiently(async || self.names.close(file.id, Some(outcome)).await).await?;
        self.with_written(file, |state| {
            state.sessions -= 1;
            state.unsure = false;
            state.tell_session(incarnation);
            if state.written.mark() == mark && state.sessions == 0 && state.is_sent() {
                state.local = None;
            }
            match entry {
                Some(entry) => state.absorb_own(entry, asked, self.cx.now()),
                None => state.forget_attributes(outcome, self.cx.now()),
            }
        });
        Ok(())
    }

    async fn patiently<T>(&self, attempt: impl AsyncFn() -> Result<T, Errno>) -> Result<T, Errno> {
        let give_up = self.cx.now() + self.patience.get();
        let mut pause = RETRY_PAUSE;
        loop {
            match attempt().await {
                Err(errno) if is_passing(errno) && errno != Errno::ESTALE => {}
                result => return result.map_err(told),
            }
            if self.cx.now() >= give_up {
                return Err(Errno::EIO);
            }
            self.cx.sleep(pause).await;
            pause = longer(pause);
        }
    }

    /// One task at a time opens or ends sessions of a file. It must not be given up before it ends its turn.
    pub(crate) async fn take_turn(&self, file: &File) {
        self.wait_for_turn(file).await;
        file.state.borrow_mut().busy = true;
    }

    pub(crate) async fn wait_for_turn(&self, file: &File) {
        while file.state.borrow().busy {
            file.changed.wait().await;
        }
    }

    pub(crate) fn end_turn(&self, file: &File) {
        file.state.borrow_mut().busy = false;
        file.changed.notify_all();
    }
}

/// The file's state as known at the end of a write session, and as of which write.
fn outcome(file: &File) -> (Final, Mark) {
    let state = file.state.borrow();
    let attr = state.attr();
    let used = state.local.filter(|local| !local.guessed).map(|local| local.used);
    let (truncations, present) = (state.entry.truncations, state.columns);
    let told = Final { size: attr.size, mtime: attr.mtime, used, truncations, present };
    (told, state.written.mark())
}

/// The error that applications get for data on a disk that its server refuses.
fn told(errno: Errno) -> Errno {
    if errno == Errno::ENXIO { Errno::EIO } else { errno }
}

/// Whether the file is kept where this says.
fn is_kept_as(file: &File, reference: &FileRef) -> bool {
    let now = file.state.borrow().reference();
    now.is_ok_and(|now| now.layout == reference.layout)
}

/// The pause after this one, while the server stays away.
fn longer(pause: Duration) -> Duration {
    (2 * pause).min(RETRY_PAUSE_MAX)
}

/// Whether the same may succeed later: the server is away or has too much to do, or we go by an old layout. ENODEV: a
/// disk went missing while its server ran, as one does that is unplugged, and may be there at the server's next start.
fn is_passing(errno: Errno) -> bool {
    let passing = [
        Errno::EHOSTDOWN,
        Errno::ETIMEDOUT,
        Errno::EAGAIN,
        Errno::ENODEV,
        Errno::ECANCELED,
        Errno::ESTALE,
    ];
    passing.contains(&errno)
}
