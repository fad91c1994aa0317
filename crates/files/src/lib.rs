//! The client file system: what a mount, a library or a simulated workload asks of files, made of calls to the file
//! manager (`names`) and to the I/O servers (`stripe`).
//!
//! [`serve`] answers the node's front ring. Files are read and written straight at the I/O servers; the manager is
//! asked for names, attributes, write sessions and locks. Consistency between clients is close-to-open: an open sees
//! what the last close before it left. Between processes of one client it is POSIX's, because they share one
//! [`Files`].
//!
//! It is not a cache of file data: on a FUSE mount that is the kernel's. It holds written data that is not yet stable,
//! and a few chunks read ahead of sequential readers, both bounded.
//!
//! The durability contract:
//!
//! | call | promise when it returns |
//! | --- | --- |
//! | *write* | none but that every later read here sees it |
//! | *close* | every byte is at its I/O servers and visible to the next open anywhere; a copy stays here until it is stable, within 1 s, and is retransmitted when a server forgot it |
//! | *fsync*, O_SYNC | on stable storage, the name too |
//!
//! Invariant: a byte that an application wrote is in [`written::Written`] until a commit with the verifier of its send
//! said that it is stable, or until its loss was counted and reported.
#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod chunks;
pub mod cluster;
pub mod conformance;
pub mod counters;
mod desk;
mod directory;
mod flags;
pub mod gather;
pub mod hints;
mod holes;
mod imported;
mod inode;
pub mod limits;
mod locks;
mod naming;
mod places;
mod read;
pub mod salvage;
mod service;
mod session;
pub mod stream;
mod sync;
mod table;
mod unnamed;
mod write;
pub mod written;

use crate::counters::{Counters, Report};
use crate::desk::Desks;
use crate::hints::Hints;
use crate::inode::File;
use crate::limits::*;
use crate::locks::Line;
use crate::naming::Names;
use crate::places::Places;
use crate::table::Table;
use endpoint::FrameMut;
use node::rings::FileReply;
use node::{Cx, Notify, WorkQueue};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, Time};

/// How much a client may hold, and how long it waits.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most memory of written data that its servers lack, in bytes: writes wait beyond it.
    pub unsent_bytes_max: u64,
    /// Most memory of written data that is not stable, in bytes: writes wait beyond it.
    pub held_bytes_max: u64,
    /// Most memory of read-ahead, in bytes.
    pub ahead_bytes_max: u64,
    /// Most files whose attributes are kept.
    pub files_max: usize,
    /// How long attributes are believed.
    pub attribute_age_max: Duration,
    /// Whether who opens a file may believe in a name of it, and so is told when that has become another one's.
    pub opens_by_name: bool,
    /// How long a server that is away is waited for before written data is given up and reads fail.
    pub patience: Duration,
    /// How long a manager that is away is waited for by what only asks it: look-ups, attributes, listings.
    pub manager_patience: Duration,
    /// File operations served side by side.
    pub front_loops: usize,
}

impl Config {
    /// The usual limits for a node whose pool has `bytes` bytes: half of it for written data, half of that unsent, an
    /// eighth for read-ahead; the rest is for payloads under way.
    pub fn for_pool(bytes: usize) -> Config {
        let bytes = bytes as u64;
        Config {
            unsent_bytes_max: bytes / 4,
            held_bytes_max: bytes / 2,
            ahead_bytes_max: bytes / 8,
            files_max: FILES_MAX,
            attribute_age_max: ATTRIBUTE_AGE_MAX,
            opens_by_name: true,
            patience: PATIENCE,
            manager_patience: names::limits::DEADLINE,
            front_loops: FRONT_LOOPS,
        }
    }

    /// The same for a node that executes calls of NFS: as patient as a mount, without attributes of its own that it
    /// believes, and for clients that have handles.
    pub fn for_nfs(self) -> Config {
        let (manager_patience, attribute_age_max) = (PATIENCE, Duration::ZERO);
        Config { manager_patience, attribute_age_max, opens_by_name: false, ..self }
    }
}

/// A running client. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct Files(Rc<Inner>);

/// Written bytes of one file that may not be on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaved {
    /// The file; its inode number.
    pub file: FileId,
    /// Its path from the root of the volume, as far as this client knows it.
    pub path: Option<String>,
    /// How many.
    pub bytes: u64,
}

/// State that the client's loops share.
pub struct Inner {
    cx: Cx,
    config: Config,
    /// How long a server that is away is waited for, now.
    patience: Cell<Duration>,
    names: names::Client,
    /// The same, with a longer timeout for the manager.
    asking: names::Client,
    stripe: stripe::Client,
    imports: imports::Client,
    table: RefCell<Table>,
    naming: Names,
    counters: Counters,
    /// Memory of written data, in bytes.
    unsent: Cell<u64>,
    held: Cell<u64>,
    /// Some of that was given back.
    relief: Notify,
    /// Files with written data.
    writing: RefCell<BTreeMap<FileId, Rc<File>>>,
    /// A file was added to them.
    started: Notify,
    /// Files of which closes left something at the manager.
    left: RefCell<BTreeMap<FileId, Rc<File>>>,
    /// One was added to them.
    left_some: Notify,
    work: WorkQueue<Rc<File>>,
    work_places: Rc<Places>,
    ahead: WorkQueue<ahead::Job>,
    ahead_places: Rc<Places>,
    ahead_used: Rc<Cell<u64>>,
    /// When what is old of it was forgotten last, of all files.
    ahead_swept: Cell<Time>,
    hints: RefCell<Hints>,
    /// Ranges of which the servers are to be told.
    tells: WorkQueue<(FileId, Range<u64>)>,
    /// Files that were read ahead for hints, and when.
    fetched: RefCell<VecDeque<(Time, Rc<File>)>>,
    desks: Desks,
    front_places: Rc<Places>,
    line: Line,
    line_joined: Notify,
    /// Locks were released.
    line_freed: Notify,
    /// Grows when names are taken away.
    generation: Cell<u64>,
    /// Changes of the name space by this mount, and how many of them are on stable storage.
    changes: Cell<u64>,
    synced: Cell<u64>,
    /// A sync of names that no application asked for is under way.
    syncing: Cell<bool>,
    /// Changes of which a power cut took some, those of each loss together.
    losses: RefCell<VecDeque<Range<u64>>>,
    /// Changes between two syncs between which a manager was started anew, and all incarnations at the last one.
    restarts: RefCell<VecDeque<Range<u64>>>,
    incarnations: Cell<u64>,
}

impl Deref for Files {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Starts a client on `cx` that answers its front ring.
pub fn serve(cx: &Cx, config: Config, names: names::Client, stripe: stripe::Client) -> Files {
    let inner = Inner {
        cx: cx.clone(),
        config,
        patience: Cell::new(config.patience),
        imports: imports::Client::new(cx, names.clone()),
        asking: names.with_patience(config.manager_patience),
        names,
        stripe,
        table: RefCell::default(),
        naming: Names::default(),
        counters: Counters::default(),
        unsent: Cell::default(),
        held: Cell::default(),
        relief: Notify::new(cx),
        writing: RefCell::default(),
        started: Notify::new(cx),
        left: RefCell::default(),
        left_some: Notify::new(cx),
        work: WorkQueue::new(cx),
        work_places: Places::new(cx, LATE_MAX, Files::start_work_loop),
        ahead: WorkQueue::new(cx),
        ahead_places: Places::new(cx, LATE_MAX, Files::start_ahead_loop),
        ahead_used: Rc::default(),
        ahead_swept: Cell::default(),
        hints: RefCell::default(),
        tells: WorkQueue::new(cx),
        fetched: RefCell::default(),
        desks: Desks::default(),
        front_places: Places::new(cx, BEHIND_MAX, Files::start_front_loop),
        line: Line::default(),
        line_joined: Notify::new(cx),
        line_freed: Notify::new(cx),
        generation: Cell::default(),
        changes: Cell::default(),
        synced: Cell::default(),
        syncing: Cell::default(),
        losses: RefCell::default(),
        restarts: RefCell::default(),
        incarnations: Cell::default(),
    };
    let files = Files(Rc::new(inner));
    files.start();
    files
}

impl Files {
    fn start(&self) {
        let cx = &self.cx;
        (0..SEND_LOOPS).for_each(|_| self.start_work_loop());
        (0..AHEAD_LOOPS).for_each(|_| self.start_ahead_loop());
        (0..HINT_LOOPS).for_each(|_| self.start_hint_loop());
        cx.spawn("files: alive", self.clone().alive_loop());
        cx.spawn("files: age", self.clone().age_loop());
        cx.spawn("files: left", self.clone().left_loop());
        cx.spawn("files: locks", self.clone().line_loop());
        cx.spawn("files: interrupts", self.clone().interrupt_loop());
        for places in [&self.front_places, &self.work_places, &self.ahead_places] {
            cx.spawn("files: places", self.clone().watch_places(places.clone()));
        }
        (0..self.config.front_loops).for_each(|_| self.start_front_loop());
    }

    pub(crate) fn start_front_loop(&self) {
        self.cx.spawn("files: front", self.clone().front_loop());
    }

    /// From now on a server that is away is waited for no longer than this.
    pub fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
        self.stripe.set_patience(patience.min(stripe::limits::RETRY_DEADLINE));
    }

    /// The clients of managers and I/O servers that it asks, for a service beside it.
    pub fn clients(&self) -> (names::Client, stripe::Client) {
        (self.names.clone(), self.stripe.clone())
    }

    /// The client's counters and the bytes that it holds.
    pub fn report(&self) -> Report {
        let counters = &self.counters;
        Report {
            ops: std::array::from_fn(|kind| counters.ops[kind].get()),
            failures: counters.failures.get(),
            read_bytes: counters.read_bytes.get(),
            ahead_bytes: counters.ahead_bytes.get(),
            written_bytes: counters.written_bytes.get(),
            commits: counters.commits.get(),
            retries: counters.retries.get(),
            waits_for_room: counters.waits_for_room.get(),
            waits_for_frames: counters.waits_for_frames.get(),
            lost_bytes: counters.lost_bytes.get(),
            lost_locks: counters.lost_locks.get(),
            unsent_bytes: self.unsent.get(),
            held_bytes: self.held.get(),
            ahead_held_bytes: self.ahead_used.get(),
            files: self.table.borrow().len(),
            handles: self.table.borrow().open_handles(),
            queued: self.work.len(),
            hints: self.hints.borrow().len(),
            hinted_reads: counters.hinted_reads.get(),
        }
    }

    /// Written data that would be lost if the client ended now.
    pub fn unsaved(&self) -> Vec<Unsaved> {
        let files = self.files_with_written();
        let unsaved = files.iter().map(|file| {
            let bytes = file.state.borrow().written.bytes();
            Unsaved { file: file.id, path: self.naming.path(file.id), bytes }
        });
        unsaved.collect()
    }

    /// Whether a power cut of the manager might take changes of names or attributes by this client.
    pub fn has_unsynced_names(&self) -> bool {
        self.changes.get() > self.synced.get()
    }

    /// A frame of exactly `bytes` bytes. Waits a while when the pool is empty, having asked for commits; ENOMEM when
    /// that does not help.
    pub(crate) async fn frame(&self, bytes: usize) -> Result<FrameMut, Errno> {
        let give_up = self.cx.now() + FRAMES_PATIENCE;
        loop {
            if let Some(frame) = self.cx.frames().alloc_exact(bytes) {
                return Ok(frame);
            }
            if self.cx.now() >= give_up {
                return Err(Errno::ENOMEM);
            }
            self.counters.waits_for_frames.add(1);
            self.relieve();
            self.cx.sleep(FRAMES_PAUSE).await;
        }
    }

    /// Attributes of a file have changed at the manager.
    pub(crate) fn attributes_changed(&self, id: FileId) -> FileReply {
        let file = self.file(id);
        {
            let mut state = file.state.borrow_mut();
            (state.fresh, state.plain) = (None, false);
        }
        self.note_own(&self.names, &file);
        FileReply::Done
    }
}
