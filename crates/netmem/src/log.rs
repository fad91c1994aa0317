//! A node's log of pages, in one file of one of its disks.
//!
//! It is a second copy of what other nodes have, for as long as its node's process runs: nothing is read of an earlier
//! one, so the index and the pages' stamps are in memory only, and the file is removed when the log begins. So a page
//! need not be appended at the end either. It takes the first free blocks; what was superseded or forgotten leaves
//! room for others at once, and the file is never longer than its limit.
//!
//! ```text
//!   append ─► blocks ─► waits ─┐                        ┌─► index, and the blocks that it had are free
//!   append ─► blocks ─► waits ─┴─► writes ─► one sync ──┤
//!                       the next batch waits meanwhile  └─► an error: its blocks are free, the index is as it was
//! ```
//!
//! It is not a place for what nobody else has, and it believes nothing: who reads compares with the stamp.

mod room;

use crate::limits::{LOG_BATCH, LOG_BUSY_PAUSE};
use crate::page::{PageId, PageStamp};
use crate::service::{Later, Log};
use endpoint::Frame;
use node::rings::{DiskError, DiskFile, DiskId, DiskOp, DiskReply};
use node::{Batch, Batches, Cx, all};
use room::{Room, Run};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

/// The file. No disk of an I/O server is taken for a log's: see [`Inner::empty`].
const FILE: DiskFile = DiskFile::Log(0);

/// The log. Cloning it is cheap.
#[derive(Clone)]
pub struct PageLog(Rc<Inner>);

struct Inner {
    cx: Cx,
    disk: DiskId,
    room: Rc<RefCell<Room>>,
    index: RefCell<BTreeMap<PageId, Rc<Run>>>,
    appends: Batches<Append, Result<(), Errno>>,
}

type Appends<'a> = Batch<'a, Append, Result<(), Errno>>;

/// A page on its way to the disk.
struct Append {
    run: Rc<Run>,
    data: Frame,
}

impl PageLog {
    /// Begins with an empty log, of at most `bytes` bytes, on a disk of this node that nothing else uses.
    pub fn start(cx: &Cx, disk: DiskId, bytes: u64) -> PageLog {
        let blocks = u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let log = PageLog(Rc::new(Inner {
            cx: cx.clone(),
            disk,
            room: Rc::new(RefCell::new(Room::new(blocks))),
            index: RefCell::default(),
            appends: Batches::new(cx),
        }));
        cx.spawn("netmem log", log.0.clone().commit_all());
        log
    }

    /// Bytes that it has room for.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.0.room.borrow().free()) * BLOCK_BYTES as u64
    }
}

impl std::fmt::Debug for PageLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageLog").field("free_bytes", &self.free_bytes()).finish()
    }
}

impl Log for PageLog {
    fn append(&self, stamp: PageStamp, data: Frame) -> Later<Result<(), Errno>> {
        Box::pin(self.0.clone().append(stamp, data))
    }

    fn read(&self, stamp: PageStamp) -> Later<Result<Frame, Errno>> {
        Box::pin(self.0.clone().read(stamp))
    }

    fn forget(&self, id: PageId) {
        self.0.index.borrow_mut().remove(&id);
    }
}

impl Inner {
    /// Dropped before it ends, its blocks are free when the write is over.
    async fn append(self: Rc<Inner>, stamp: PageStamp, data: Frame) -> Result<(), Errno> {
        let run = Run::take(&self.room, data.len().div_ceil(BLOCK_BYTES) as u32);
        let run = run.ok_or(Errno::ENOSPC)?;
        self.appends.submit(Append { run: run.clone(), data }).await?;
        self.index.borrow_mut().insert(stamp.id, run);
        Ok(())
    }

    async fn read(self: Rc<Inner>, stamp: PageStamp) -> Result<Frame, Errno> {
        // the blocks are nobody else's while this is here
        let run = self.index.borrow().get(&stamp.id).cloned().ok_or(Errno::ENOENT)?;
        let reply = loop {
            let into = self.cx.frames().alloc_exact(stamp.bytes as usize).ok_or(Errno::ENOMEM)?;
            let op = DiskOp::Read { file: FILE, offset: offset(&run), into };
            match self.cx.disk(self.disk, op).await {
                Err(DiskError::Busy) => self.cx.sleep(LOG_BUSY_PAUSE).await,
                reply => break reply?,
            }
        };
        match reply {
            DiskReply::Read { into, bytes } => Ok(into.freeze().slice(0..bytes)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// The task that writes what waits. What comes meanwhile waits for the next sync together.
    async fn commit_all(self: Rc<Inner>) {
        let mut empty = Err(Errno::EAGAIN);
        loop {
            self.appends.ready().await;
            let batch = self.appends.take(LOG_BATCH, |_| 1);
            if empty.is_err() {
                empty = self.empty().await;
            }
            let outcomes = match empty {
                Ok(()) => self.commit(&batch).await,
                Err(errno) => vec![Err(errno); batch.items().len()],
            };
            let mut outcomes = outcomes.into_iter();
            batch.end(|_| outcomes.next().expect("an outcome for each page"));
        }
    }

    /// Whatever is in the file is of an earlier process. A disk with a label is an I/O server's, whose log it would be.
    async fn empty(&self) -> Result<(), Errno> {
        match self.ask(|| DiskOp::stat(DiskFile::Label)).await {
            Err(DiskError::NotFound) => (),
            Ok(_) => return Err(Errno::EEXIST),
            Err(error) => return Err(error.into()),
        }
        Ok(self.ask(|| DiskOp::Remove { file: FILE }).await.map(drop)?)
    }

    /// What a sync that fails was to cover is nowhere, and is not to be had by another sync.
    async fn commit(&self, batch: &Appends<'_>) -> Vec<Result<(), Errno>> {
        let durable = batch.items().len() == 1;
        let written = all(batch.items().map(|append| self.write(append, durable))).await;
        if durable {
            return written;
        }
        let synced = self.ask(|| DiskOp::Sync { file: FILE }).await;
        let synced = synced.map(drop).map_err(Errno::from);
        written.into_iter().map(|written| written.and(synced)).collect()
    }

    async fn write(&self, append: &Append, durable: bool) -> Result<(), Errno> {
        let offset = offset(&append.run);
        let op = || DiskOp::Write { file: FILE, offset, data: append.data.clone(), durable };
        Ok(self.ask(op).await.map(drop)?)
    }

    async fn ask(&self, op: impl Fn() -> DiskOp) -> Result<DiskReply, DiskError> {
        loop {
            match self.cx.disk(self.disk, op()).await {
                Err(DiskError::Busy) => self.cx.sleep(LOG_BUSY_PAUSE).await,
                reply => return reply,
            }
        }
    }
}

fn offset(run: &Run) -> u64 {
    u64::from(run.first) * BLOCK_BYTES as u64
}
