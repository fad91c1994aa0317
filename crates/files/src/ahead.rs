//! The loops that read ahead of sequential readers, into [`Chunks`].

use crate::Files;
use crate::chunks::{Chunks, Room};
use crate::inode::File;
use crate::limits::{AHEAD_AGE_MAX, CHUNK_BYTES};
use crate::table::Open;
use node::rings::Handle;
use std::ops::Range;
use std::rc::Rc;

/// A chunk to read.
pub(crate) struct Job {
    file: Rc<File>,
    range: Range<u64>,
    number: u64,
}

impl Files {
    /// Notes a read and asks for what should be read ahead of it.
    pub(crate) fn plan_ahead(&self, open: &Open, range: &Range<u64>) {
        self.make_room_ahead();
        let mut stream = open.stream.borrow_mut();
        stream.handle_read(range.start, range.end - range.start);
        let mut state = open.file.state.borrow_mut();
        if !stream.is_run() || state.entry.writers {
            return;
        }
        state.chunks.forget_before(open.handle, stream.position());
        loop {
            let left = self.config.ahead_bytes_max.saturating_sub(self.ahead_used.get());
            let Some(chunk) = stream.poll_chunk(state.size(), left) else { return };
            self.push_ahead(&open.file, &mut state.chunks, open.handle, chunk);
        }
    }

    /// Has a chunk read, unless there is no room for it or a part of it is there. Whether it is going to be.
    pub(crate) fn push_ahead(
        &self,
        file: &Rc<File>,
        chunks: &mut Chunks,
        reader: Handle,
        range: Range<u64>,
    ) -> bool {
        let (bytes, most) = (range.end - range.start, self.config.ahead_bytes_max);
        let Some(room) = Room::take(&self.ahead_used, bytes, most) else { return false };
        let number = chunks.begin(reader, &range, room, self.cx.now());
        let job = number.map(|number| Job { file: file.clone(), range, number });
        let is_planned = job.is_some();
        job.into_iter().for_each(|job| self.ahead.push(job));
        is_planned
    }

    /// Readers who stopped in the middle keep no room from others: what was read ahead of them grows old.
    fn make_room_ahead(&self) {
        let now = self.cx.now();
        let full = self.ahead_used.get() + CHUNK_BYTES > self.config.ahead_bytes_max;
        if !full || now.since(self.ahead_swept.get()) < AHEAD_AGE_MAX {
            return;
        }
        self.ahead_swept.set(now);
        self.forget_fetched();
        for open in self.table.borrow().opens() {
            open.file.state.borrow_mut().chunks.forget_old(now);
        }
    }

    pub(crate) fn start_ahead_loop(&self) {
        self.cx.spawn("files: read ahead", self.clone().ahead_loop());
    }

    /// One of the loops that read ahead.
    async fn ahead_loop(self) {
        let work = async |job, _: &_| self.read_ahead(job).await;
        self.ahead_places.work(&self.cx, || self.ahead.next(), work).await;
    }

    async fn read_ahead(&self, job: Job) {
        let Job { file, range, number } = job;
        // When it is not wanted any more, a read may have seen that it will come.
        if file.state.borrow().chunks.wants(range.start, number) {
            let data = self.fetch_frame(&file, range.clone()).await.ok();
            self.counters.ahead_bytes.add(data.as_ref().map_or(0, |frame| frame.len() as u64));
            file.state.borrow_mut().chunks.arrive(range.start, number, data);
        }
        file.changed.notify_all();
    }
}
