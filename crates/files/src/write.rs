//! Write-behind: taking data over, sending it, committing it.
//!
//! A write is done when its frames are in [`Written`](crate::written::Written). Loops take files with work from one
//! queue; of one file several sends run side by side, and one commit. Memory bounds it all: a write waits while too
//! much is unsent or unstable.

use crate::Files;
use crate::flags::{APPEND, SYNCHRONOUS, writes};
use crate::gather::Gather;
use crate::inode::{File, State};
use crate::limits::{KEEP_AGE, TICK};
use crate::table::Open;
use crate::written::{Fate, Send, Sent};
use endpoint::Frame;
use node::Bug;
use node::rings::{FileReply, Handle, WriteFlags};
use std::rc::Rc;
use stripe::{Verifiers, Write};
use wire::Errno;
use wire::layout::WIDTH_MAX;

/// Work of one turn of a file at the queue.
enum Work {
    Send(Send<Rc<Verifiers>>),
    Commit(Vec<Rc<Verifiers>>),
}

/// Where in a file data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// From here on; the file becomes longer if need be.
    At(u64),
    /// From here on, as far as the file goes.
    Within(u64),
    /// Behind the last byte.
    End,
}

impl Position {
    /// The offset, and what of `data` goes there in a file of `size` bytes.
    fn cut(self, data: Gather, size: u64) -> (u64, Gather) {
        match self {
            Position::At(offset) => (offset, data),
            Position::Within(offset) if offset + data.len() > size => {
                (offset, data.slice(0..size.saturating_sub(offset)))
            }
            Position::Within(offset) => (offset, data),
            Position::End => (size, data),
        }
    }
}

/// The next write after one that found no room fails: a program that only writes would otherwise never end, as what is
/// refused makes room in memory for more. An fsync or a close tells it all the same.
fn warn_of_no_room(open: &Open) -> Result<(), Errno> {
    let failure = open.file.state.borrow().failure;
    let known = open.warned.replace(failure.count).max(open.reported.get());
    match failure.since(known) {
        Err(Errno::ENOSPC) => Err(Errno::ENOSPC),
        _ => Ok(()),
    }
}

impl Files {
    /// Takes data over. With O_SYNC or O_DSYNC it is stable when this returns.
    pub(crate) async fn write(
        &self,
        handle: Handle,
        offset: u64,
        data: Vec<Frame>,
        flags: WriteFlags,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        if let Some(user) = open.through.get() {
            return self.write_imported(&open, user, offset, data).await;
        }
        if !writes(open.flags) {
            return Err(Errno::EBADF);
        }
        warn_of_no_room(&open)?;
        if flags.clears_set_id {
            self.clear_set_id(&open.file).await?;
        }
        let place = if open.flags & APPEND == 0 { Position::At(offset) } else { Position::End };
        let bytes = self.accept(&open, place, Gather::new(data)).await?;
        if flags.direct {
            // A reader beside may have filled the kernel's pages while the write was on its way: the next open must not
            // keep them.
            open.file.state.borrow_mut().cached = None;
        }
        if open.flags & SYNCHRONOUS != 0 {
            self.keep(&open).await?;
        }
        Ok(FileReply::Written(bytes as u32))
    }

    /// Puts data among the written bytes of the file; how many.
    pub(crate) async fn accept(
        &self,
        open: &Open,
        place: Position,
        data: Gather,
    ) -> Result<u64, Errno> {
        let file = &open.file;
        self.wait_for_room(file, data.held()).await;
        let appends = place == Position::End;
        if appends && (!self.is_fresh(file) || file.state.borrow().entry.is_hint()) {
            self.refresh(file).await?;
        }
        while file.state.borrow().truncating {
            file.changed.wait().await;
        }
        // From here to the end nothing waits: that makes O_APPEND atomic among the processes of this mount.
        let (offset, data) = place.cut(data, file.state.borrow().size());
        let bytes = data.len();
        if bytes == 0 {
            return Ok(0);
        }
        let end = file.state.borrow().end_of(offset, bytes)?;
        self.with_written(file, |state| {
            if !self.cx.has_bug(Bug::StaleReadAhead) {
                state.chunks.forget(&(offset..end));
            }
            state.note_write(bytes, end, self.cx.wall());
            state.written.write(offset, data, self.cx.now());
        });
        self.counters.written_bytes.add(bytes);
        self.enqueue(file);
        Ok(bytes)
    }

    /// Waits until `bytes` more may be held; asks for commits from half of what is allowed on.
    async fn wait_for_room(&self, file: &Rc<File>, bytes: u64) {
        loop {
            let (unsent, held) = (self.unsent.get(), self.held.get());
            if held + bytes > self.config.held_bytes_max / 2 {
                self.want_kept(file);
            }
            let fits = unsent + bytes <= self.config.unsent_bytes_max
                && held + bytes <= self.config.held_bytes_max;
            if fits || held == 0 {
                return;
            }
            let relief = self.relief.wait();
            self.relieve();
            self.counters.waits_for_room.add(1);
            relief.await;
        }
    }

    /// Has everything that is held sent and committed.
    pub(crate) fn relieve(&self) {
        let files: Vec<Rc<File>> = self.files_with_written();
        files.iter().for_each(|file| self.want_kept(file));
    }

    fn want_kept(&self, file: &Rc<File>) {
        file.state.borrow_mut().written.want_progress();
        self.enqueue(file);
    }

    pub(crate) fn files_with_written(&self) -> Vec<Rc<File>> {
        self.writing.borrow().values().cloned().collect()
    }

    /// Changes a file's written bytes and keeps the mount's sums.
    pub(crate) fn with_written<R>(
        &self,
        file: &Rc<File>,
        change: impl FnOnce(&mut State) -> R,
    ) -> R {
        let mut state = file.state.borrow_mut();
        let before = (state.written.unsent_held(), state.written.held());
        let result = change(&mut state);
        let after = (state.written.unsent_held(), state.written.held());
        self.unsent.set(self.unsent.get() + after.0 - before.0);
        self.held.set(self.held.get() + after.1 - before.1);
        if state.written.is_empty() {
            self.writing.borrow_mut().remove(&file.id);
        } else if self.writing.borrow_mut().insert(file.id, file.clone()).is_none() {
            self.started.notify_all();
        }
        if after.0 < before.0 || after.1 < before.1 {
            self.relief.notify_all();
        }
        result
    }

    /// Puts the file in the queue of files with work, once.
    pub(crate) fn enqueue(&self, file: &Rc<File>) {
        if !std::mem::replace(&mut file.state.borrow_mut().queued, true) {
            self.work.push(file.clone());
        }
    }

    pub(crate) fn start_work_loop(&self) {
        self.cx.spawn("files: send", self.clone().work_loop());
    }

    /// One of the loops that send and commit.
    async fn work_loop(self) {
        let work = async |file, _: &_| self.work_on(&file).await;
        self.work_places.work(&self.cx, || self.work.next(), work).await;
    }

    /// Gives the file its turn.
    async fn work_on(&self, file: &Rc<File>) {
        file.state.borrow_mut().queued = false;
        if let Some(work) = self.next_work(file) {
            // Another loop may find more to do meanwhile.
            self.enqueue(file);
            self.do_work(file, work).await;
        }
    }

    async fn do_work(&self, file: &Rc<File>, work: Work) {
        match work {
            Work::Send(send) => self.send(file, send).await,
            Work::Commit(verifiers) => self.commit(file, verifiers).await,
        }
        self.end_spare_sessions(file).await;
        file.changed.notify_all();
        self.enqueue(file);
    }

    fn next_work(&self, file: &Rc<File>) -> Option<Work> {
        self.with_written(file, |state| {
            let send = state.written.poll_send(self.cx.frames()).map(Work::Send);
            send.or_else(|| state.written.poll_commit().map(Work::Commit))
        })
    }

    async fn send(&self, file: &Rc<File>, send: Send<Rc<Verifiers>>) {
        let sent = self.begin_session(file).await;
        let sent = match sent {
            Ok(()) => self.send_now(file, &send).await,
            Err(errno) => Err(errno),
        };
        drop(send.data);
        if let Ok(verifiers) = &sent {
            file.state.borrow_mut().columns |= verifiers.mask();
        }
        self.with_written(file, |state| match sent {
            Ok(_) if self.cx.has_bug(Bug::CopyDroppedEarly) => {
                state.written.handle_sent(send.ticket, Sent::Dropped);
            }
            Ok(verifiers) if verifiers.are_stable() => {
                state.written.handle_sent(send.ticket, Sent::Stable);
            }
            Ok(verifiers) => {
                state.resent |= send.earlier.is_some();
                state.written.handle_sent(send.ticket, Sent::Kept(Rc::new(verifiers)));
            }
            Err(errno) => {
                state.written.handle_sent(send.ticket, Sent::Dropped);
                self.note_refused(state, errno, send.bytes);
            }
        });
    }

    /// Bytes of the file that are dropped were refused with `errno`. They are lost, unless another client removed the
    /// file and no handle here has it open: in the manager's incarnation that was told of it no power cut can have
    /// taken it.
    fn note_refused(&self, state: &mut State, errno: Errno, bytes: u64) {
        let incarnation = self.names.incarnation(state.entry.attr.file);
        let alive = state.told_incarnation != 0 && state.told_incarnation == incarnation;
        if errno == Errno::ESTALE && state.handles == 0 && alive {
            return;
        }
        self.counters.lost_bytes.add(bytes);
        state.fail(errno);
    }

    async fn send_now(
        &self,
        file: &Rc<File>,
        send: &Send<Rc<Verifiers>>,
    ) -> Result<Verifiers, Errno> {
        let as_new = self.cx.has_bug(Bug::RetransmittedAsNew);
        let how = match send.earlier.as_deref() {
            Some(earlier) if !as_new => Write::Again(earlier),
            None if send.alone => Write::Stable,
            _ => Write::Unstable,
        };
        self.persist(file, async |reference| {
            let mut pieces = self.cx.pieces();
            pieces.extend(send.data.iter().cloned());
            let sent = self.stripe.write(&reference, send.offset, pieces, how).await;
            if send.earlier.is_some() { sent.map_err(at_its_return) } else { sent }
        })
        .await
    }

    async fn commit(&self, file: &Rc<File>, sent: Vec<Rc<Verifiers>>) {
        let mut columns = Verifiers::default();
        sent.iter().for_each(|verifiers| columns.merge(verifiers));
        if self.cx.has_bug(Bug::OneColumnCommitted) {
            columns = first_of(&columns);
        }
        let stable = self
            .persist(file, async |reference| {
                self.stripe.commit(&reference, &columns).await.map_err(at_its_return)
            })
            .await;
        self.counters.commits.add(1);
        self.with_written(file, |state| match stable {
            Ok(stable) => state.written.handle_committed(|sent| self.fate(sent, &stable)),
            Err(errno) => {
                let held = state.written.held();
                state.written.handle_committed(|_| Fate::Dropped);
                self.note_refused(state, errno, held - state.written.held());
            }
        });
        // At once, before the writer has filled the room again: a commit of all that may be held lets it wait for all
        // of it, and the disks for the writer.
        if self.held.get() > self.config.held_bytes_max / 4 {
            self.want_kept(file);
        }
    }

    fn fate(&self, sent: &Verifiers, stable: &Verifiers) -> Fate {
        let trusting = self.cx.has_bug(Bug::IgnoredVerifier);
        match fate(sent, stable) {
            Fate::Lost if trusting => Fate::Stable,
            Fate::Unknown if self.cx.has_bug(Bug::OneColumnCommitted) => Fate::Stable,
            fate => fate,
        }
    }

    /// Looks after the age of what is written, for as long as anything is.
    pub(crate) async fn age_loop(self) {
        loop {
            let started = self.started.wait();
            if self.writing.borrow().is_empty() {
                started.await;
            }
            self.cx.sleep(TICK).await;
            let now = self.cx.now();
            for file in self.files_with_written() {
                let oldest = file.state.borrow().written.oldest();
                if oldest.is_some_and(|since| now.since(since) >= KEEP_AGE) {
                    self.want_kept(&file);
                }
            }
        }
    }
}

/// Data that a server had and may have lost waits for its disk as it does for the server: this may be the only copy.
fn at_its_return(errno: Errno) -> Errno {
    if errno == Errno::ENXIO { Errno::ENODEV } else { errno }
}

/// The first column that is known, alone.
fn first_of(columns: &Verifiers) -> Verifiers {
    let mut first = Verifiers::default();
    if let Some(column) = columns.columns().next() {
        first.set(column, columns.get(column).expect("a known column"));
    }
    first
}

/// The fate of a piece sent as `sent`, after a commit that returned `stable`.
fn fate(sent: &Verifiers, stable: &Verifiers) -> Fate {
    let columns = (0..WIDTH_MAX as u16).filter(|column| sent.get(*column).is_some());
    let mut fate = Fate::Stable;
    for column in columns {
        match stable.get(column) {
            None => fate = Fate::Unknown,
            same if same == sent.get(column) => {}
            _ => return Fate::Lost,
        }
    }
    fate
}
